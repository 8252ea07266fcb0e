"""`python -m wmma_ops doctor`: what is installed here, what it can run, and whether it works."""

import json
import sys

from wmma_ops.bringup import doctor
from wmma_ops.cli.terminal import output


def show(options) -> int:
    found = doctor.report()
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return 0 if found["ok"] else 1
    console = output()
    width = max(map(len, found))
    for key, value in found.items():
        if isinstance(value, dict):
            lines = [f"{k}: {v}" for k, v in value.items()] or ["nothing"]
        else:
            lines = [", ".join(value) or "none" if isinstance(value, list) else str(value)]
        for index, line in enumerate(lines):
            console.print(f"{'' if index else key:<{width}}  {line}", highlight=False, markup=False, soft_wrap=True)
    if not found["ok"]:
        print("a product failed or gave a wrong result: see runs_on", file=sys.stderr)
    return 0 if found["ok"] else 1
