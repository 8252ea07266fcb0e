"""`python -m wmma_ops …` in this process: a new one takes seconds to import torch."""

import dataclasses

from wmma_ops.cli.main import main


@dataclasses.dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def typed(capsys, *arguments: str) -> Done:
    try:
        code = main([*arguments])
    except SystemExit as ended:  # as argparse ends
        code = ended.code
    printed = capsys.readouterr()
    return Done(code, printed.out, printed.err)
