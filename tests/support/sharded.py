"""What the processes of a group do in tests/models/test_distributed.py: calls of DTensors, held against one process."""

import functools
import itertools

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Shard, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode

from wmma_ops.distributed import rules, sharding
from wmma_ops.ops.library import overload, tensor_names
from wmma_ops.testing.samples import SAMPLES, Sample

# With what the common samples leave out: partial sums with everything that is added, groups of heads, integers.
EVERY = (
    *SAMPLES,
    Sample("linear", {"x": (2, 3, 4), "weight": (5, 4), "bias": (5,), "residual": (2, 3, 5)}),
    Sample("linear", {"x": (4,), "weight": (5, 4), "bias": (5,)}),
    Sample(
        "gemm",
        {
            "a": (2, 3, 4),
            "b": (4, 5),
            "c": (3, 5),
            "bias": (5,),
            "row_scale": (2, 3),
            "col_scale": (5,),
            "a_scale": (4,),
        },
        {"alpha": 0.7, "beta": 1.3, "a_activation": 4},
    ),
    Sample("matmul", {"a": (3, 4), "b": (4, 5)}, note="int8"),
    Sample("scaled_mm", {"a": (2, 3, 4), "b": (2, 4, 5), "scale_a": (2, 3, 1), "scale_b": (2, 1, 5)}),
    Sample(
        "scaled_attention",
        {
            "q": (2, 4, 3, 4),
            "k": (2, 2, 5, 4),
            "v": (2, 2, 5, 3),
            "scale_q": (4,),
            "scale_k": (2, 1),
            "scale_v": (2, 2),
        },
        {"enable_gqa": True},
    ),
    Sample("attention", {"q": (1, 4, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 3)}, {"enable_gqa": True}),
    Sample("attention", {"q": (2, 4, 3, 4), "k": (2, 1, 5, 4), "v": (2, 1, 5, 3)}, {"enable_gqa": True}),
    Sample(
        "attention",
        {"q": (2, 4, 3, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 3), "sinks": (4,), "alibi_slopes": (2, 4)},
        {"enable_gqa": True, "window_left": 1, "softcap": 2.0},
    ),
)


class Mismatch(AssertionError):
    pass


def device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


@functools.cache  # a mesh is a set of process groups
def mesh_of(shape):
    return init_device_mesh(device(), shape)


def place(x: torch.Tensor, mesh, placements) -> DTensor:
    """x, the same in every process, as a DTensor, without communication. Partial sums differ from process to process."""
    local = x.detach()
    for dimension, placement in enumerate(placements):
        ways, here = mesh.size(dimension), mesh.get_local_rank(dimension)
        if placement.is_partial("sum"):  # 2 − 1 + 1 − 1 …: exact in every type, and adds up to 1
            local = local * (2 if here == 0 else (-1) ** here)
        if isinstance(placement, Shard):
            chunks = local.chunk(ways, placement.dim)
            local = chunks[here] if here < len(chunks) else local.narrow(placement.dim, 0, 0)
    strides = torch.empty(x.shape, device="meta").stride()
    made = DTensor.from_local(
        local.contiguous().clone(), mesh, placements, run_check=False, shape=x.shape, stride=strides
    )
    return made.requires_grad_(x.requires_grad)


def _fits(x, mesh, placements) -> bool:
    """Whether every device gets a part, as DTensor asks for."""
    ways = {}
    for dimension, placement in enumerate(placements):
        if isinstance(placement, Shard):
            ways[placement.dim] = ways.get(placement.dim, 1) * mesh.size(dimension)
    return all(x.shape[dim] >= n for dim, n in ways.items())


def tensors_of(sample, dtype, grads=False):
    if sample.note == "int8":
        generator = torch.Generator().manual_seed(0)
        made = {
            name: torch.randint(-128, 127, shape, generator=generator, dtype=torch.int8)
            for name, shape in sample.shapes.items()
        }
    else:
        made = sample.tensors(dtype)
    grads = grads and sample.differentiable
    return {name: x.to(device()).requires_grad_(grads and x.is_floating_point()) for name, x in made.items()}


def larger(sample, factor):
    shapes = {
        name: tuple(size if size == 1 else factor * size for size in shape) for name, shape in sample.shapes.items()
    }
    scalars = {name: factor * x if name in ("max_q", "max_k") else x for name, x in sample.scalars.items()}
    return Sample(sample.op, shapes, scalars, sample.note)


def result_of(sample, tensors):
    tensors = dict(tensors)
    if sample.op == "addmm_":
        tensors["input"] = tensors["input"] * 1  # clone() would add up partial sums
        overload("addmm_")(*sample.arguments(tensors), **sample.scalars)
        return (tensors["input"],)
    grad = any(x.requires_grad for x in tensors.values())
    out = overload(sample.op, raw=not grad)(*sample.arguments(tensors), **sample.scalars)
    return out if isinstance(out, tuple) else (out,)


def _loss(outs):
    return sum(x.double().sin().sum() for x in outs)


def check(sample, dtype, mesh_shape, offers, grads=True) -> bool:
    """Runs a call spread by one offer for every dimension of the mesh. False where it is too small for that."""
    mesh = mesh_of(mesh_shape)
    plain = tensors_of(sample, dtype, grads)
    names = tensor_names(overload(sample.op))
    placements = {x: [offer.inputs[names.index(x)] for offer in offers] for x in plain}
    if not all(_fits(x, mesh, placements[name]) for name, x in plain.items()):
        return False

    spread = {name: place(x, mesh, placements[name]) for name, x in plain.items()}
    with CommDebugMode() as communication:
        outs = result_of(sample, spread)
    what = f"{sample}, {' × '.join(x.name for x in offers)} over {mesh_shape}"
    if communication.get_total_counts():
        raise Mismatch(f"{what}: communicated, so that another offer was taken")
    for i, (got, want) in enumerate(zip(outs, result_of(sample, plain), strict=True)):
        results = [offer.outputs[i] for offer in offers] if sample.op != "addmm_" else placements["input"]
        if list(got.placements) != results:
            raise Mismatch(f"{what}: result {i} is {got.placements}, not {results}")
        compare(f"{what}: result {i}", got, want)
    if any(x.requires_grad for x in plain.values()):
        compare_gradients(what, sample, plain, spread, outs)
    return True


def compare(what, got: DTensor, want):
    """Within one rounding each, and for partial sums one a process and one for each addition."""
    full, want = got.full_tensor().double(), want.detach()
    unit = 0.0 if not want.dtype.is_floating_point else torch.finfo(want.dtype).eps / 2
    bound = 2 * unit * want.double().abs() + 64 * 2.0**-24 * (unit > 0) * want.double().abs().max().clamp(min=1)
    if any(isinstance(placement, Partial) for placement in got.placements):
        local = got.to_local().detach().double().abs()
        parts = DTensor.from_local(
            local, got.device_mesh, got.placements, run_check=False, shape=got.shape, stride=got.stride()
        )
        bound = bound + got.device_mesh.size() * unit * parts.full_tensor()
    within(what, full, want.double(), bound)


def compare_gradients(what, sample, plain, spread, outs):
    wide = {
        name: x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x
        for name, x in plain.items()
    }
    leaves = [name for name, x in plain.items() if x.requires_grad]
    wanted = torch.autograd.grad(_loss(result_of(sample, wide)), [wide[x] for x in leaves])
    found = torch.autograd.grad(_loss(outs), [spread[x] for x in leaves])
    for name, got, want in zip(leaves, found, wanted, strict=True):
        unit = torch.finfo(plain[name].dtype).eps / 2
        full = got.full_tensor()
        if full.dtype != plain[name].dtype:
            raise Mismatch(f"{what}: the gradient of {name} is {full.dtype}")
        within(f"{what}: gradient of {name}", full.double(), want, 64 * unit * want.abs().max().clamp(min=1))


def within(what, got, want, bound):
    if got.shape != want.shape:
        raise Mismatch(f"{what} has shape {list(got.shape)}; should be {list(want.shape)}")
    off = (got - want).abs()
    right = (off <= bound) | (got == want)
    if not right.all():
        at = tuple(int(i) for i in (~right).nonzero()[0])
        raise Mismatch(f"{what} is {got[at]} at {at}; should be {want[at]}")


def offers_for(sample, dtype, mesh_shape):
    operands = sharding.operands_of(overload(sample.op), sample.arguments(tensors_of(sample, dtype)))
    return rules.offers(sample.op, operands, sample.scalars, mesh_shape)


def check_op(op, dtype, mesh_shape, factor=1, gradients="all") -> dict[str, int]:
    """Every offer of an op's samples; how often each ran, by its name. With the gradients of all, or of each one's first."""
    ran = {}
    for sample in (larger(x, factor) for x in EVERY if x.op == op):
        for offer in offers_for(sample, dtype, mesh_shape):
            grads = gradients == "all" or not ran.get(offer.name)
            ran[offer.name] = ran.get(offer.name, 0) + check(sample, dtype, mesh_shape, [offer], grads)
    return ran


def check_pairs(op, dtype, mesh_shape, factor) -> int:
    """Every two offers of an op's fullest sample, one for each dimension of the mesh; how many ran."""
    fullest = max((x for x in EVERY if x.op == op), key=lambda x: (len(x.shapes), sum(map(len, x.shapes.values()))))
    sample = larger(fullest, factor)
    pairs = itertools.product(offers_for(sample, dtype, mesh_shape), repeat=2)
    return sum(check(sample, dtype, mesh_shape, pair, grads=False) for pair in pairs)
