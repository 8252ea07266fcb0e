"""The value contract: every case, on the backends given by --backend (default: all that can run here)."""

import pytest

from wmma_ops.testing import cases, run
from wmma_ops.testing.cases import groups


@pytest.mark.parametrize("group", groups())
def test_group(group, backend, subtests):
    chosen = cases(group)
    assert chosen
    for case in chosen:
        with subtests.test(msg=repr(case)):
            run(case, backend=backend)


def test_there_are_enough_cases():
    assert len(cases()) >= 500
