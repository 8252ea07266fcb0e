"""Every op, public and private, with whatever its schema allows: a value, or one line of ours, and never a crash.

A minute of it; as long as is asked for by

    make test-full ARGS="tests/contract/test_fuzz.py --fuzz-seconds 3600 --fuzz-seed 7"

and again, one call of it, by tests/support/fuzz.py, which a failure names.
"""

import os
import subprocess
import sys
from pathlib import Path

import fuzz
import pytest
import tiers
import torch


@pytest.mark.full
def test_every_call_ends_in_a_value_or_in_words(request, tmp_path):
    """In a process of its own, which may crash."""
    seconds, seed = request.config.getoption("--fuzz-seconds"), request.config.getoption("--fuzz-seed")
    seed = tiers.turn() if seed is None else seed
    progress = tmp_path / "number"
    asked = ["--seconds", str(seconds), "--seed", str(seed), "--progress", str(progress)]
    done = subprocess.run([sys.executable, fuzz.__file__, *asked], capture_output=True, text=True)
    last = progress.read_text().strip() if progress.exists() else "0"
    again = f"python {Path(fuzz.__file__).relative_to(Path.cwd())} --seed {seed} --only {last}"
    assert done.returncode in (0, 1), f"call {last} of seed {seed} ends the process: {again}\n{done.stderr[-4000:]}"
    assert done.returncode == 0, done.stdout
    print(done.stdout)


def test_calls_are_those_of_their_seed_and_number():
    ops = fuzz.every_op()
    assert {op._schema.name.split("::")[1] for op in ops} >= {*fuzz.FITTING}
    first, again, other = (str(fuzz.call_of(ops, seed, 11)).split(" in ")[0] for seed in (3, 3, 4))
    assert first == again != other


@pytest.mark.parametrize(
    ("raised", "is_found"),
    [
        (RuntimeError("wmma.gemm: a has shape []; takes 2 dimensions or more [ValueError]"), False),
        (RuntimeError("wmma: the inner call aten::reshape failed"), True),
        (RuntimeError("The size of tensor a (2) must match the size of tensor b (3)"), True),
        (RuntimeError("wmma.gemm: a has shape []\nand another line"), True),
        (AttributeError("'NoneType' object has no attribute 'shape'"), True),
        (None, False),
    ],
    ids=str,
)
def test_what_is_a_finding(raised, is_found):
    class Planted(fuzz.Call):
        def __call__(self):
            if raised is not None:
                raise raised

    _, wrong = fuzz.finding(Planted(torch.ops.wmma.gemm.default, {}))
    assert (wrong is not None) == is_found


def test_most_calls_are_nearly_right():
    """Half of them give values: what is refused at once shows little."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    asked = [sys.executable, fuzz.__file__, "--calls", "1500", "--seed", "1"]
    told = subprocess.run(asked, capture_output=True, text=True, env=environment, check=True).stdout
    assert int(told.split("of which ")[1].split()[0]) > 600, told
