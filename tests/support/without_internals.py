"""Tries what the ops are asked for on a torch that has lost names that are no part of its interface.

    python tests/support/without_internals.py [name…]

Prints, as JSON, what came of it by the names' names in wmma_ops.torch_internals: "right", or what went wrong. "every name",
where that is asked for, is all at once. torch is imported once, and forked for each.
"""

import ast
import importlib
import json
import os
import pkgutil
import sys
import traceback
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

INTERNALS = Path(__file__).parents[2] / "wmma_ops" / "torch_internals.py"
ALL = "every name"
# Asked for only when something is compiled: what costs seconds is tried without these alone.
COMPILED = ("check", "modes_off", "is_traceable_wrapper_subclass", "compilation", "is_higher_order", "enter_autocast",
            "exit_autocast", "register_backend", "graph_pass", "inductor_settings", "inductor", "constant_for_compiler",
            "schema", "recorder")  # fmt: skip


def internals() -> dict[str, list[str]]:
    """The names, as the source has them: to import the module is to look them up."""
    tree = ast.parse(INTERNALS.read_text(encoding="utf-8"))
    texts = {
        statement.targets[0].id: [one.value for one in ast.walk(statement.value) if isinstance(one, ast.Constant)]
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }
    found = {}
    for statement in tree.body:
        for call in getattr(statement, "decorator_list", ()):
            if isinstance(call, ast.Call) and call.func.id == "instead_of":
                parts = [one.value if isinstance(one, ast.Starred) else one for one in call.args]
                found[statement.name] = [
                    text for one in parts for text in ([one.value] if isinstance(one, ast.Constant) else texts[one.id])
                ]
    return found


def without(paths: set[str]):
    """From here on, nothing is found under these paths."""
    look_up = pkgutil.resolve_name

    def resolve_name(path):
        if path in paths:
            raise AttributeError(f"{path} is taken to be gone")
        return look_up(path)

    pkgutil.resolve_name = resolve_name


def close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def calls_and_gradients() -> None:
    import wmma_ops

    x, w, bias = (torch.randn(*shape, requires_grad=True) for shape in ((3, 4), (5, 4), (5,)))
    close(wmma_ops.matmul(x.detach(), w.detach().mT), x.detach() @ w.detach().mT)
    found = wmma_ops.linear(x, w, bias, activation="gelu")
    expected = F.gelu(F.linear(x, w, bias))
    close(found, expected)
    for ours, theirs in zip(
        *(torch.autograd.grad(y.square().sum(), (x, w, bias)) for y in (found, expected)), strict=True
    ):
        close(ours, theirs)
    torch.autograd.gradgradcheck(wmma_ops.matmul, [one.detach().double().requires_grad_() for one in (x, w.mT)])
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    ours, theirs = (
        wmma_ops.attention(q, q, q, is_causal=True)[0],
        F.scaled_dot_product_attention(q, q, q, is_causal=True),
    )
    close(ours, theirs)
    close(*(torch.autograd.grad(y.square().sum(), q)[0] for y in (ours, theirs)))
    with torch.autocast("cpu", torch.bfloat16):
        assert wmma_ops.matmul(x, w.mT).dtype == torch.bfloat16
    with wmma_ops.record() as calls:
        torch.ops.wmma.matmul(x.detach(), w.detach().mT)
    assert list(calls.values()) == [1]
    integers = torch.ones(2, 2, dtype=torch.int8)
    raises(ValueError, "not differentiable", lambda: wmma_ops.gemm(integers, integers, c=bias[:2]))
    raises(ValueError, "b has shape", lambda: wmma_ops.matmul(x, w))


def raises(kind, text, call) -> None:
    with pytest.raises(kind, match=text):
        call()


def in_place() -> None:
    import wmma_ops

    total, x = torch.zeros(3, 3), torch.randn(3, 3)
    before = total._version
    wmma_ops.addmm_(total, x, x)
    close(total, x @ x)
    assert total._version > before
    outside = torch.zeros(3, 3)
    raises(ValueError, "from outside", lambda: torch.func.grad(lambda x: wmma_ops.addmm_(outside, x, x).sum())(x))
    inside = torch.func.grad(lambda x: wmma_ops.addmm_(x.clone(), x, x).sum())(x)
    close(inside, torch.func.grad(lambda x: (x + x @ x).sum())(x))


def transforms() -> None:
    import wmma_ops

    x, w = torch.randn(6, 3, 4), torch.randn(4, 3)

    def loss(product):
        return lambda w, x: product(x, w).square().sum()

    for transform in (
        lambda f: torch.func.grad(f)(w, x),
        lambda f: torch.func.vmap(torch.func.grad(f), (None, 0))(w, x),
        lambda f: torch.func.jacrev(torch.func.grad(f))(w, x),
        lambda f: torch.func.vmap(f, (None, 0))(w, x),
    ):
        close(transform(loss(wmma_ops.matmul)), transform(loss(torch.matmul)), 1e-4)
    raises(
        ValueError, "forward-mode", lambda: torch.func.jvp(lambda x: wmma_ops.matmul(x, w), (x,), (torch.ones_like(x),))
    )


def traces() -> None:
    import wmma_ops

    x, w = torch.randn(3, 4), torch.randn(4, 3)
    for trace in (
        lambda f: torch.fx.symbolic_trace(f),
        lambda f: make_fx(f)(x, w),
        lambda f: torch.jit.trace(f, (x, w)),
    ):
        given = [one.clone().requires_grad_() for one in (x, w)]
        found = trace(lambda x, w: wmma_ops.matmul(x, w))(*given)
        close(found, x @ w)
        close(torch.autograd.grad(found.sum(), given), torch.autograd.grad((given[0] @ given[1]).sum(), given))


def modules() -> None:
    import wmma_ops

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 8)
    expected = layer(x)
    wmma_ops.swap_(layer)
    close(layer(x), expected)
    close(pickled(layer)(x), expected)
    mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    expected = mlp(x)
    wmma_ops.swap_(mlp)
    close(mlp(x), expected)
    for register in (mlp[1].register_forward_hook, nn.modules.module.register_module_forward_hook):
        watched = []
        hook = register(lambda module, *_, watched=watched: watched.append(module))
        close(mlp(x), expected)
        assert mlp[1] in watched, "a hook was passed over"
        hook.remove()
    with wmma_ops.swapped() as calls:
        close(torch.matmul(x, x.mT), x @ x.mT)
        torch.func.jvp(lambda x: torch.matmul(x, x.mT), (x,), (x,))
        close(torch.autograd.grad(torch.matmul(x.requires_grad_(), x.mT).sum(), x)[0], 2 * x.sum(1, True).expand_as(x))
    assert calls.taken["matmul"] >= 2, calls
    assert any("forward-mode" in reason for _, reason in calls.left), calls


def pickled(module):
    import io

    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def compiled() -> None:
    import wmma_ops

    a, b, gate = (torch.randn(*shape, requires_grad=True) for shape in ((3, 4), (4, 5), (4, 5)))
    for ours, theirs in (
        (lambda a, b, gate: wmma_ops.gemm(a, b, activation="silu", multiply=a @ gate), lambda x, u: F.silu(x) * u),
        (lambda a, b, gate: wmma_ops.gemm(a, b, activation="silu", gate=gate), lambda x, u: F.silu(x) * u),
    ):
        got, want = torch.compile(ours, backend="aot_eager")(a, b, gate), theirs(a @ b, a @ gate)
        close(got, want)
        for one, other in zip(*(torch.autograd.grad(y.square().sum(), (a, b, gate)) for y in (got, want)), strict=True):
            close(one, other)
    import wmma_ops.inductor

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4)

    def f(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            narrow = x @ w
        return torch.relu(wmma_ops.matmul(x, w)) @ w + narrow

    expected = f(x, w)
    (wanted,) = torch.autograd.grad(expected.sum(), x)
    found = torch.compile(f, backend="aot_eager", fullgraph=True)(x, w)
    close(found, expected)
    close(torch.autograd.grad(found.sum(), x)[0], wanted, 1e-2)

    def picked(x, w):
        return wmma_ops.matmul(x[x[:, 0] > 0], w)

    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    close(torch.compile(picked, backend="aot_eager", fullgraph=True)(x.detach(), w), picked(x.detach(), w))
    exported = torch.export.export(nn.Linear(4, 4), (x.detach(),)).module()
    assert exported(x).shape == (3, 4)
    with wmma_ops.swapped():
        close(torch.compile(lambda x, w: x @ w, backend="eager")(x, w), x @ w)
    # A lone product, for which Inductor compiles nothing.
    product = torch.compile(
        lambda x, w: torch.bmm(x, w), backend=wmma_ops.inductor.backend, options={"wmma.force": True}
    )
    inputs = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    close(product(*inputs), torch.bmm(*inputs))
    assert [entry.op for entry in wmma_ops.inductor.last_report().rewritten] == ["matmul"]
    with wmma_ops.inductor.enabled(force=True), wmma_ops.inductor.disabled():
        pass
    wmma_ops.inductor.enable(force=True)
    wmma_ops.inductor.disable()


def distributed() -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    from wmma_ops.distributed import ColumnParallel

    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    layer, x = nn.Linear(4, 6, bias=False), torch.randn(3, 4)
    expected = layer(x)
    close(parallelize_module(layer, init_device_mesh("cpu", (1,)), ColumnParallel())(x), expected)
    dist.destroy_process_group()


def tried(name: str, paths: set[str]) -> str:
    """In a process of its own, what became of it."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        try:
            os.close(reader)
            without(paths)
            torch.manual_seed(0)
            from wmma_ops import torch_internals

            gone = {one.name for one in torch_internals.INTERNALS if paths & set(one.paths) and one.is_there()}
            assert not gone, f"{gone} were found all the same"
            for check in (calls_and_gradients, in_place, transforms, traces, modules):
                check()
            if name == ALL or name in COMPILED:
                compiled()
            if name == ALL:
                distributed()
            text = "right"
        except BaseException:
            text = traceback.format_exc()
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text or "the process died"


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.compiler.config.force_disable_caches = True  # what one process has compiled is another's to compile
    names = internals()
    for module in ("torch._dynamo", "torch._inductor.config", "torch.distributed.tensor"):
        importlib.import_module(module)
    chosen = sys.argv[1:] or names
    every = {path for paths in names.values() for path in paths}
    print(json.dumps({name: tried(name, set(names.get(name, every))) for name in chosen}))
