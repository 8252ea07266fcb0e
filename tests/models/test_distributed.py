"""Several processes: every placement that a rule offers gives what one process gives."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sharded
import sharded_anyhow
import sharded_backward
import sharded_models
import sharded_pages
import torch
from processes import Group
from torch.distributed.tensor import Partial

import wmma_ops.distributed
from wmma_ops.distributed import rules
from wmma_ops.ops.library import OPS, overload, tensor_names

pytestmark = pytest.mark.xdist_group("processes")  # one worker starts them

PRODUCT = {"replicate", "rows", "columns", "sum"}
OFFERED = {
    "matmul": PRODUCT | {"batch 0", "batch 1"},
    "addmm": PRODUCT,
    "addmm_": PRODUCT,
    "baddbmm": PRODUCT | {"batch 0"},
    "gemm": PRODUCT | {"batch 0"},
    "linear": PRODUCT | {"batch 0"},
    "gemm_gemm": PRODUCT - {"sum"} | {"hidden", "batch 0"},
    "attention": {"replicate", "heads", "queries", "batch 0"},
    "varlen_attention": {"replicate", "heads"},
    "scaled_attention": {"replicate", "heads", "queries", "batch 0"},
    "scaled_mm": PRODUCT | {"batch 0"},
}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    group = Group(2, tmp_path_factory.mktemp("two"))
    yield group
    group.close()


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    group = Group(4, tmp_path_factory.mktemp("four"))
    yield group
    group.close()


@pytest.mark.parametrize("op", OPS)
def test_every_offer_on_two_processes(two, op):
    ran = two.run(sharded.check_op, op, torch.float32, (2,))[0]
    assert OFFERED[op] == set(ran)
    assert min(ran.values()) > 0


@pytest.mark.parametrize("op", OPS)
def test_every_offer_on_four_processes(four, op):
    ran = four.run(sharded.check_op, op, torch.bfloat16, (4,), 2, "first")[0]
    assert OFFERED[op] == set(ran)
    assert min(ran.values()) > 0


# Attention that asks where a query stands is offered no part of its rows.
@pytest.mark.parametrize(("op", "least"), [("gemm", 12), ("linear", 12), ("attention", 9)])
def test_every_pair_of_offers_on_two_by_two_processes(four, op, least):
    assert four.run(sharded.check_pairs, op, torch.float32, (2, 2), 2)[0] >= least


@pytest.mark.parametrize(
    ("kind", "dtype", "sequence_dim", "whole"),
    [
        ("ours", torch.float32, None, False),
        ("ours", torch.float32, 1, True),
        ("ours", torch.bfloat16, 1, False),
        ("torch", torch.float32, 1, False),
        ("swapped", torch.float32, None, False),
        ("swapped", torch.float32, 1, True),
        ("mode", torch.float32, 1, False),
    ],
)
def test_a_block_by_tensor_parallel_plans(two, kind, dtype, sequence_dim, whole):
    two.run(sharded_models.tensor_parallel, 2, kind, dtype, sequence_dim, whole)


@pytest.mark.parametrize("name", sharded_models.LAYERS)
def test_our_layers_by_plans(two, name):
    two.run(sharded_models.our_layer, 2, name)


@pytest.mark.parametrize("kind", ["ours", "swapped"])
def test_data_parallel(two, kind):
    two.run(sharded_models.data_parallel, kind)


@pytest.mark.parametrize(("is_causal", "target"), [(True, None), (False, "gfx942"), (True, "gfx942")])
def test_attention_of_rows_that_are_spread(two, is_causal, target):
    two.run(sharded_models.attention_by_rows, is_causal, target)


def test_a_compiled_block(two):
    two.run(sharded_models.compiled, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fsdp_and_tensor_parallel_together(four, dtype):
    reasons = set(four.run(sharded_models.fsdp_and_tensor_parallel, "ours", dtype))
    if reasons != {None}:  # as 2.10 does
        pytest.skip(" ".join(reasons))


def test_the_pages_example(two):
    text = (Path(__file__).parents[2] / "docs/pages/api/distributed.md").read_text()
    (example,) = re.findall(r"^```python\n([^`]*wmma_ops\.distributed.*?)^```", text, re.M | re.S)
    two.run(sharded_models.readme_example, example)


def test_plans_refuse_what_they_cannot_do(two):
    said = two.run(sharded_models.refusals)[0]
    assert "activation 'gelu'" in said["activation"]
    assert "no parameter 'wieght'; has bias, weight" in said["name"]
    assert "3 heads do not divide among 2 devices" in said["heads"]
    assert "out_proj of torch.nn.MultiheadAttention is read and never called" in said["never called"]
    assert "Linear got [2, 3, 8] on each of 2 devices; takes their parts of 8 features" in said["parts"]


def test_sums_of_one_product_beside_longer_ones_are_not_divided():
    def offered(k, k2):
        shapes = {"a": (3, k), "b": (k, 5), "a2": (3, k2), "b2": (k2, 5)}
        operands = dict.fromkeys(tensor_names(overload("gemm")))
        operands |= {name: rules.Operand(shape, torch.float32) for name, shape in shapes.items()}
        return {offer.name for offer in rules.offers("gemm", operands, {}, (2,))}

    assert offered(4, 2) == offered(4, 1) | {"sum"} == offered(1, 4) | {"sum"}
    assert "sum" not in offered(4, 1) | offered(1, 4) | offered(1, 1)


@pytest.mark.parametrize("op", OPS)
def test_any_placements_give_the_right_values(two, op):
    assert two.run(sharded_anyhow.check_anyhow, op, torch.float32, (2,), 6)[0] >= 6


@pytest.mark.parametrize("name", sharded_anyhow.WRONG)
def test_a_wrong_rule_is_caught(two, name):
    for said in two.run(sharded_anyhow.said_of_wrong, name, torch.float32):
        assert re.search("result . is .* at .*; should be", said), said


@pytest.mark.parametrize(("kv_heads", "names"), [(4, ["batch 0"]), (1, ["heads", "queries"])])
def test_the_kernels_of_attentions_gradients(two, kv_heads, names):
    offered = two.run(sharded_backward.attention_backward, 2, kv_heads, names)[0]
    assert offered == ["replicate", "batch 0", "heads", "queries"]


def test_attention_with_functions_of_scores(two):
    two.run(sharded_backward.attention_with_functions, 2)


@pytest.mark.parametrize("inference", [False, True])
def test_new_keys_into_pages(two, four, inference):
    two.run(sharded_pages.check, (2,), 2, inference)
    two.run(sharded_pages.check, (2,), 3, inference)
    four.run(sharded_pages.check, (2, 2), 4, inference)


def test_narrow_pages_by_heads(two):
    two.run(sharded_pages.check_narrow, (2,))


def test_pages_are_written_where_they_lie(two, four):
    said = two.run(sharded_pages.refused)[0]
    whole, by_heads = (
        "beside key_pages as Replicate() (redistribute it)",
        "beside key_pages as Shard(dim=2) (redistribute it)",
    )
    for name, text in {
        "by pages": "key_pages is spread as Shard(dim=0); takes Replicate() or Shard(dim=2)",
        "partial": f"value_pages is spread as {Partial()!r}; takes Replicate() {whole}",
        "one alone": f"value_pages is spread as Replicate(); takes Shard(dim=2) {by_heads}",
        "whole keys": f"key is spread as Replicate(); takes Shard(dim=1) {by_heads}",
        "heads of keys alone": f"key is spread as Shard(dim=1); takes Replicate() {whole}",
        "numbers": f"seqused_k is spread as Shard(dim=0); takes Replicate() {by_heads}",
        "one head": "key_pages is spread as Shard(dim=2); takes Replicate()",
        "shapes": "value has shape [4, 2, 4]; takes the tokens and the heads of key, [5, 2, 8]",
    }.items():
        assert said[name] == f"ValueError: wmma.kv_append: {text}"
    few = "wmma.kv_append: key_pages has 3 heads on 4 devices; takes one or more on each"
    assert set(four.run(sharded_pages.few_heads)) == {few}


def test_unusual_placements(two):
    two.run(sharded_anyhow.check_unusual)


def test_gradients_of_uneven_parts(two):
    two.run(sharded_anyhow.check_uneven_gradients, 4)


def test_options_that_change_between_calls(two):
    two.run(sharded_anyhow.check_changing_options)


def test_second_derivatives(two):
    two.run(sharded_anyhow.check_second_derivatives)


def test_what_cannot_be_right_is_refused(two):
    said = two.run(sharded_anyhow.refused)[0]
    assert "mixed torch.Tensor and DTensor" in said["plain"]
    assert "mesh" in said["meshes"]
    assert said["sizes"] == (
        "ValueError: wmma.matmul: b has shape [7, 4]; takes [..., 8, N], as the last dimension of a, [2, 6, 8], is 8"
    )
    assert said["types"] == "TypeError: wmma.matmul: b is float16; takes float32, as a has"
    assert "ValueError: wmma.attention: k has shape [1, 6, 8]; takes the batch" in said["batch"]
    assert "enable_gqa=True" in said["heads"]
    assert "ValueError: wmma.linear: bias has shape [1]; takes [2]" in said["bias"]
    assert "ValueError: wmma.addmm_: input has shape [1, 6]; takes [2, 6]" in said["in place"]


WITHOUT_RULES = """
import sys
import torch, wmma_ops
print("torch.distributed.tensor" in sys.modules, "wmma_ops.distributed" in sys.modules)
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
x = distribute_tensor(torch.ones(4, 4), init_device_mesh("cpu", (1,)), [Replicate()])
try:
    wmma_ops.matmul(x, x)
except NotImplementedError as error:
    print(error)
with wmma_ops.swapped() as before:
    x @ x
import wmma_ops.distributed
print(wmma_ops.matmul(x, x).full_tensor().sum().item())
with wmma_ops.swapped() as after:
    x @ x
    try:
        x @ torch.ones(4, 4)
    except RuntimeError as error:
        print("aten.mm" in str(error))
print(*before.left, dict(before.taken), *after.left, dict(after.taken), sep="\\n")
"""


def test_the_package_alone_loads_nothing_distributed():
    ran = subprocess.run([sys.executable, "-c", WITHOUT_RULES], capture_output=True, text=True, timeout=100)
    said = [line for line in ran.stdout.splitlines() if not line.startswith("[Gloo]")]  # torch 2.10 says it there
    assert said == [
        "False False",
        "wmma.matmul takes DTensors once `import wmma_ops.distributed` has run",
        "64.0",
        "True",
        "('matmul', 'its first argument is a DTensor, which has rules of its own')",
        "{}",
        "('matmul', 'its second argument and the first are a DTensor and a plain tensor')",
        "{'matmul': 1}",
    ], ran.stderr


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_two_gpus_by_nccl(tmp_path, dtype):
    group = Group(2, tmp_path, "nccl")
    for op in OPS:
        ran = group.run(sharded.check_op, op, dtype, (2,), 1, "first")[0]
        assert min(ran.values()) > 0
    group.close()


@pytest.mark.parametrize("name", wmma_ops.distributed.__all__)
def test_docstring_example(name):
    found = doctest.DocTestFinder(recurse=False).find(getattr(wmma_ops.distributed, name), name)
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(found[0]).failed == 0
