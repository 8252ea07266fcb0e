"""`wmma_ops completion`: the script with which a shell completes the commands, their options and what these take."""

import argparse
import json
import sys

from wmma_ops.cli.arguments import OneOf
from wmma_ops.cli.main import parser
from wmma_ops.hardware import arch
from wmma_ops.ops import activations


def show(options) -> int:
    try:
        import shtab
    except ImportError:
        print("completion: needs shtab: pip install shtab", file=sys.stderr)
        return 1
    found = parser("wmma_ops")  # a shell completes by a command's name: python's arguments are not ours to complete
    for action in _actions(found):
        if action.metavar == "TARGET":
            action.choices = tuple(arch.TARGETS)
        elif isinstance(action.type, OneOf):
            action.choices = action.type.names()
        elif action.dest == "activation":
            action.choices = tuple(activations.names())
        elif action.metavar in ("FILE", "FOLDER"):
            action.complete = shtab.FILE if action.metavar == "FILE" else shtab.DIRECTORY
    script = shtab.complete(found, options.shell)
    print(json.dumps({"shell": options.shell, "script": script}) if options.json else script)
    return 0


def _actions(found: argparse.ArgumentParser):
    for action in found._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
