"""Models spread over the processes of a group, in the ways that wmma_ops.distributed has plans for."""

import contextlib
import copy
import os

import torch
import torch.distributed as dist
from op_counts import ran
from sharded import Mismatch, mesh_of
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module

import wmma_ops
from wmma_ops.distributed import RowParallel, Sharded, attention_plan, mlp_plan

COLLECTIVES = tuple(
    f"_c10d_functional::{name}"
    for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast")
)
HIDDEN, HEADS, KV_HEADS, SIZE = 32, 8, 4, 4


class Ours(nn.Linear):
    """A linear layer on our op, with an activation."""

    def __init__(self, *sizes, activation=None, bias=True):
        super().__init__(*sizes, bias=bias)
        self.activation = activation

    def forward(self, x):
        return wmma_ops.linear(x, self.weight, self.bias, activation=self.activation)


class Attention(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.q_proj = linear(HIDDEN, HEADS * SIZE)
        self.k_proj, self.v_proj = (linear(HIDDEN, KV_HEADS * SIZE) for _ in range(2))
        self.o_proj = linear(HEADS * SIZE, HIDDEN)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, SIZE)).transpose(-2, -3) for f in (self.q_proj, self.k_proj, self.v_proj))
        out, _ = wmma_ops.attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(out.transpose(-2, -3).flatten(-2))


class GatedMLP(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.gate_proj = linear(HIDDEN, 3 * HIDDEN, activation="silu") if linear is Ours else linear(HIDDEN, 3 * HIDDEN)
        self.up_proj, self.down_proj = linear(HIDDEN, 3 * HIDDEN), linear(3 * HIDDEN, HIDDEN)

    def forward(self, x):
        gate = self.gate_proj(x)
        gate = gate if isinstance(self.gate_proj, Ours) else nn.functional.silu(gate)
        return self.down_proj(gate * self.up_proj(x))


class FusedMLP(nn.Module):
    """Two products in one op; its parameters are no linear layers'."""

    def __init__(self):
        super().__init__()
        self.up, self.gate = (nn.Parameter(torch.randn(HIDDEN, 3 * HIDDEN) / 6) for _ in range(2))
        self.down = nn.Parameter(torch.randn(3 * HIDDEN, HIDDEN) / 10)
        self.bias = nn.Parameter(torch.randn(HIDDEN))

    def forward(self, x):
        return wmma_ops.gemm_gemm(x, self.up, self.down, gate=self.gate, bias1=self.bias, activation="silu")


class Block(nn.Module):
    def __init__(self, linear=Ours):
        super().__init__()
        self.attention, self.mlp, self.fused = Attention(linear), GatedMLP(linear), FusedMLP()

    def forward(self, x):
        x = x + self.attention(x)
        x = x + self.mlp(x)
        return x + self.fused(x)


FUSED = {"up": Shard(1), "gate": Shard(1), "down": Shard(0)}


# The layers of an MLP that is sharded as a whole: DTensors pass between them.
GATED = {f"{name}.{kind}": Shard(0) for name in ("gate_proj", "up_proj") for kind in ("weight", "bias")}
GATED["down_proj.weight"] = Shard(1)


def plan(sequence_dim=None, whole=False):
    outside = {} if sequence_dim is None else {"given": Shard(sequence_dim), "gives": Shard(sequence_dim)}
    return {
        **attention_plan("attention", sequence_dim=sequence_dim, kv_heads=KV_HEADS),
        **({"mlp": Sharded(GATED, **outside)} if whole else mlp_plan("mlp", sequence_dim=sequence_dim)),
        "fused": Sharded(FUSED, **outside),
    }


def _full(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


# Models of torch's layers: as they are, swapped for ours, within the mode. And what runs of our ops, where Block has some.
_FIXED = {"attention", "gemm_gemm"}
KINDS = {"ours": _FIXED | {"linear"}, "torch": _FIXED, "swapped": _FIXED | {"linear"}, "mode": _FIXED | {"linear"}}


def _model(kind, dtype, part=Block):
    torch.manual_seed(1)
    linear = Ours if kind == "ours" else nn.Linear
    model, x = part(linear).to(dtype), torch.randn(2, 8, HIDDEN).to(dtype)
    return model, copy.deepcopy(model).double(), x


def _near(what, got, want, dtype):
    """As in the tests of gradients: within a few roundings of float64."""
    bound = 64 * torch.finfo(dtype).eps / 2 * want.abs().max().clamp(min=1)
    off = (got.double() - want).abs().max()
    if not off <= bound:
        raise Mismatch(f"{what} is off by {off}; may be by {bound}")


def tensor_parallel(ways, kind, dtype, sequence_dim, whole):
    """A block whose activations are plain tensors between its parts."""
    model, wide, x = _model(kind, dtype)
    mesh = mesh_of((ways,))
    if kind == "swapped":
        wmma_ops.swap_(model)
    parallelize_module(model, mesh, plan(sequence_dim, whole))
    rows = model.attention.q_proj.weight.to_local().shape[0]
    if rows != HEADS * SIZE // ways:
        raise Mismatch(f"the weight of q_proj has {rows} rows here")

    def run(x):
        with wmma_ops.swapped() if kind == "mode" else contextlib.nullcontext():
            return model(x)

    # Every part of the block adds up once; of a sequence, every part (or layer) first collects its rows.
    sums = {"all_reduce": 3} if sequence_dim is None else {"reduce_scatter_tensor": 3}
    collects = {} if sequence_dim is None else {"all_gather_into_tensor": 5 if whole else 6}
    # Sharded as a whole, a swapped MLP stays one: the gate's product takes the other's result.
    ops = KINDS[kind] | ({"gemm"} if kind == "swapped" and whole else set())
    _calls(run, x if sequence_dim is None else x.chunk(ways, sequence_dim)[mesh.get_local_rank()], sums | collects, ops)
    _run_and_compare(run, model, wide, x, mesh, sequence_dim)


def _calls(run, x, communication, ops):
    """Holds what a forward pass sends, and which of our ops it runs, against what it should."""
    # Not by CommDebugMode, whose hooks on every module keep layers from fusing.
    with torch.no_grad(), ran(*COLLECTIVES) as counts:
        run(x)
    said = {name.partition("::")[2]: counts.pop(name) for name in COLLECTIVES if name in counts}
    if said != communication:
        raise Mismatch(f"communicates by {said}; should by {communication}; runs {dict(counts)}")
    if set(counts) != ops:
        raise Mismatch(f"runs {sorted(counts)}; should {sorted(ops)}")


# Our layers: what makes one, its plan, what it sends, what it runs.
SUM = {"all_reduce": 1}
LAYERS = {
    "linear": (
        lambda: nn.Sequential(
            wmma_ops.nn.Linear(HIDDEN, 3 * HIDDEN, activation="gelu"), wmma_ops.nn.Linear(3 * HIDDEN, HIDDEN)
        ),
        mlp_plan(column=["0"], row=["1"]),
        SUM,
        {"linear"},
    ),
    "layers of an MLP": (
        lambda: wmma_ops.nn.FusedMLP(HIDDEN, 3 * HIDDEN, activation="silu", gated=True),
        mlp_plan(),
        SUM,
        {"linear"},
    ),
    "MLP": (
        lambda: wmma_ops.nn.FusedMLP(HIDDEN, 3 * HIDDEN),
        Sharded({"0.weight": Shard(0), "0.bias": Shard(0), "2.weight": Shard(1)}),
        SUM,
        {"gemm_gemm"},
    ),
    # q, k and v are stacked, and so not divided by heads: they are collected, and everyone attends.
    "attention": (
        lambda: wmma_ops.nn.Attention(HIDDEN, HEADS, num_kv_heads=KV_HEADS),
        Sharded({"in_proj_weight": Shard(0), "in_proj_bias": Shard(0), "out_proj.weight": Shard(1)}),
        SUM | {"all_gather_into_tensor": 1},
        {"linear", "attention"},
    ),
}


def our_layer(ways, name):
    make, style, communication, ops = LAYERS[name]
    torch.manual_seed(1)
    model, mesh, x = make(), mesh_of((ways,)), torch.randn(2, 8, HIDDEN)
    wide = copy.deepcopy(model).double()
    parallelize_module(model, mesh, style)
    _calls(model, x, communication, ops)
    _run_and_compare(model, model, wide, x, mesh, None)


def compiled(ways):
    """One graph, and nothing of DTensor left for run time: its products are ours, on this device's parts."""
    model, wide, x = _model("ours", torch.float32, GatedMLP)
    parallelize_module(model, mesh_of((ways,)), mlp_plan())
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    run = torch.compile(model, backend=aot_autograd(fw_compiler=backend), fullgraph=True)
    _run_and_compare(run, model, wide, x, mesh_of((ways,)), None)
    products = [node.target for node in graphs[0].graph.nodes if str(node.target).startswith("wmma.linear")]
    if len(graphs) < 2 or len(products) != 3:
        raise Mismatch(f"{len(graphs)} graphs, {len(products)} products in the first")


def _run_and_compare(run, model, wide, x, mesh, dim):
    """Results and gradients; `dim` is what activations are sharded along."""

    def mine(full):
        return full if dim is None else full.chunk(mesh.size(), dim)[mesh.get_local_rank()]

    dtype = x.dtype
    local, full = mine(x).clone().requires_grad_(), x.double().requires_grad_()
    out, want = run(local), wide(full)
    _near("the result", out, mine(want), dtype)
    out.double().sin().sum().backward()
    want.sin().sum().backward()
    _near("the gradient of x", local.grad, mine(full.grad), dtype)
    for (name, parameter), other in zip(model.named_parameters(), wide.parameters(), strict=True):
        _near(f"the gradient of {name}", _full(parameter.grad), other.grad, dtype)


def fsdp_and_tensor_parallel(kind, dtype):
    """Two by two: every pair has half of the batch, and everyone a quarter of each weight. One step of SGD."""
    model, wide, x = _model(kind, torch.float32)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    parallelize_module(model, mesh["model"], plan())
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for part in (model.attention, model.mlp, model.fused, model):
        fully_shard(part, mesh=mesh["data"], mp_policy=policy)
    weight = model.mlp.up_proj.weight
    if weight.to_local().numel() * 4 != weight.numel():
        raise Mismatch(f"up_proj keeps {weight.to_local().numel()} of {weight.numel()} elements here")
    model.mlp.unshard()
    told = model.mlp.up_proj.weight._spec.tensor_meta.dtype
    model.mlp.reshard()
    if told != dtype:
        return f"torch tells the rules of DTensor that a parameter in {dtype} is {told}"
    before = {name: _full(parameter.detach()).clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    out = model(x.chunk(2)[mesh["data"].get_local_rank()])
    want = wide(x.double())
    _near("the result", out, want.chunk(2)[mesh["data"].get_local_rank()], dtype)
    out.double().sin().sum().backward()
    (want.sin().sum() / 2).backward()  # FSDP takes the mean over the data's mesh
    optimizer.step()
    for (name, parameter), other in zip(model.named_parameters(), wide.parameters(), strict=True):
        _near(f"the step of {name}", before[name] - _full(parameter), other.grad, dtype)


def data_parallel(kind):
    """DDP: everyone has a part of the batch, of which half is kept back before means go round; as the backward pass goes
    on, as each parameter has a bucket of its own."""
    model, wide, x = _model(kind, torch.float32)
    if kind == "swapped":
        wmma_ops.swap_(model)
    spread = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-4)
    parts = x.repeat(2, 1, 1).sin().chunk(4)  # two turns of two processes
    with spread.no_sync():
        spread(parts[dist.get_rank()]).double().sin().sum().backward()
    spread(parts[2 + dist.get_rank()]).double().sin().sum().backward()
    for part in parts:
        (wide(part.double()).sin().sum() / dist.get_world_size()).backward()
    for (name, parameter), other in zip(model.named_parameters(), wide.parameters(), strict=True):
        _near(f"the gradient of {name}", parameter.grad, other.grad, torch.float32)


def refusals():
    """What plans refuse, as texts."""
    mesh, said = mesh_of((dist.get_world_size(),)), {}
    for name, style, module in (
        ("activation", RowParallel(), Ours(8, 8, activation="gelu")),
        ("name", Sharded({"wieght": Shard(0)}), nn.Linear(8, 8)),
        ("heads", attention_plan(kv_heads=3)["k_proj"], nn.Linear(8, 12)),
        ("never called", attention_plan(row=["out_proj"])["out_proj"], nn.MultiheadAttention(8, 2).out_proj),
        ("parts", attention_plan(row=["out_proj"]), wmma_ops.nn.Attention(8, 2)),
    ):
        try:
            parallelize_module(module, mesh, style)(torch.ones(2, 3, 8))
        except ValueError as error:
            said[name] = str(error)
    return said


def readme_example(text):
    """The example as if torchrun had started it; its result against one process's."""
    os.environ["TORCHELASTIC_RUN_ID"] = "here"
    names = {}
    try:
        exec(compile(text, "README.md", "exec"), names)
    finally:
        del os.environ["TORCHELASTIC_RUN_ID"]
    up, down = ([_full(x).detach() for x in names["block"][part].parameters()] for part in ("up", "down"))
    want = nn.functional.linear(nn.functional.linear(torch.ones(4, 64), *up).relu(), *down)
    _near("the result", names["y"], want.double(), torch.float32)


def attention_by_rows(is_causal, target):
    """Of a batch whose rows are spread, by our layer: joining heads goes by strides, which a result has as it says."""
    torch.manual_seed(1)
    layer, mesh = wmma_ops.nn.Attention(64, 4, is_causal=is_causal), mesh_of((dist.get_world_size(),))
    x = torch.randn(2, 8, 64)
    spread = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
    whole = x.clone().requires_grad_()
    parameters = {name: distribute_tensor(one.detach(), mesh, [Replicate()]) for name, one in layer.named_parameters()}
    want = layer(whole)
    want.sin().sum().backward()
    with wmma_ops.emulate(target) if target else contextlib.nullcontext():
        found = torch.func.functional_call(layer, parameters, (spread,))
        found.sin().sum().backward()
    _near("the result", found.full_tensor(), want.double(), torch.float32)
    _near("the gradient of x", spread.grad.full_tensor(), whole.grad.double(), torch.float32)
