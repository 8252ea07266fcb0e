"""Schemas, fakes, derivatives and devices are registered as PyTorch wants them: opcheck on every op, both namespaces."""

import re
from pathlib import Path

import pytest
import torch

import wmma_ops
from wmma_ops.ops import activations, library
from wmma_ops.ops.registered import FIRST_REGISTERED
from wmma_ops.ops.types import FP8, OUTPUTS
from wmma_ops.testing.samples import SAMPLES


@pytest.mark.parametrize("namespace", library.NAMESPACES)
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_opcheck(sample, namespace):
    requires_grad = namespace == "wmma" and sample.differentiable and sample.op != "addmm_"
    arguments = sample.arguments(sample.tensors(requires_grad=requires_grad))
    op = library.overload(sample.op, raw=namespace == "wmma_raw")
    checks = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if any(x is not None and x.dtype in FP8 for x in arguments):
        checks.remove("test_schema")  # it compares inputs by a product that torch has not of these
    results = torch.library.opcheck(op, arguments, sample.scalars, test_utils=checks)
    assert results == dict.fromkeys(checks, "SUCCESS")


def test_samples_meet_every_op():
    assert {sample.op for sample in SAMPLES} == set(library.OPS)


@pytest.mark.parametrize("name", library.OPS)
def test_schemas(name):
    """No str (torch before 2.14 leaks each), no Scalar (there is none); the same in both namespaces, one overload each."""
    schema = str(library.overload(name)._schema)
    assert not re.search(r"\b(str|Scalar|SymInt)\b", schema.replace("ScalarType", ""))
    assert str(library.overload(name, raw=True)._schema) == schema.replace("wmma::", "wmma_raw::")
    assert getattr(torch.ops.wmma, name).overloads() == ["default"]


def test_fakes_agree_with_the_library_on_types():
    """OUTPUTS stands once in Python and once in C++."""
    every = [*OUTPUTS, torch.int16, torch.int32, torch.uint8, torch.complex64, torch.bool]
    for a in every:
        for out in (None, *OUTPUTS, torch.int32):
            x = torch.zeros(4, 4).to(a)
            answers = []
            for device in ("cpu", "meta"):
                try:
                    answers.append(torch.ops.wmma.matmul(x.to(device), x.to(device), out_dtype=out).dtype)
                except RuntimeError:
                    answers.append("refused")
            assert answers[0] == answers[1], (a, out, answers)
            allowed = a in OUTPUTS and (out is None or out in OUTPUTS[a])
            assert (answers[0] != "refused") == allowed, (a, out)


def test_meta_tensors_need_no_data():
    a = torch.empty(3, 1000, 1000, device="meta")
    assert wmma_ops.matmul(a, a).shape == (3, 1000, 1000)
    out, lse = wmma_ops.attention(*[a.unsqueeze(0)] * 3)
    assert out.device.type == lse.device.type == "meta"
    assert lse.shape == (1, 3, 1000)


def test_meta_tensors_are_refused_as_others_are():
    one = torch.ones(())
    for dtype in (torch.float32, torch.bfloat16):
        for device in ("cpu", "meta"):
            a = torch.empty(2, 2, device=device, dtype=dtype)
            with pytest.raises(TypeError, match=f"scaled_mm: a is {str(dtype)[6:]}; takes int8 or a float8 type"):
                wmma_ops.scaled_mm(a, a, one.to(device), one.to(device))


def test_activation_codes_are_those_of_the_kernels():
    header = (Path(__file__).parents[2] / "kernels/wmma/activation.hpp").read_text()
    codes = {k.lower(): int(v) for k, v in re.findall(r"^  k(\w+) = (\d+),", header, re.M)}
    for activation in activations.BUILTIN:
        assert codes.pop(activation.name.replace("_", "")) == activation.code
    assert codes == {"builtinactivations": len(activations.BUILTIN), "firstregistered": FIRST_REGISTERED}
    assert f"kLeakySlope = {activations.LEAKY_SLOPE};" in header
