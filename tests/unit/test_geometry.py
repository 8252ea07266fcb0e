"""What Python and the device's headers both know of a tile, asserted by each target's own compiler."""

import dataclasses
import itertools
import re

import pytest
import torch

import wmma_ops
from wmma_ops import jit
from wmma_ops.hardware import arch, geometry
from wmma_ops.ops.types import OUTPUTS
from wmma_ops.plan.attention import owners
from wmma_ops.plan.attention.loops import forward as attention
from wmma_ops.plan.attention.loops import gradients, warpgroup, warpgroup_gradients, warpgroup_owners
from wmma_ops.plan.gemm import loops as gemm_loops
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm.candidates import candidates
from wmma_ops.plan.gemm_gemm import loops as gemm_gemm_loops
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.plan.source import CPP
from wmma_ops.runtime import launching

FLOATS = (torch.float32, torch.float64)
HEADERS = """#include <wmma/tile/chain_link.hpp>
#include <wmma/attention/loops/forward.hpp>
#include <wmma/attention/loops/gradients.hpp>
#if defined(WMMA_NVIDIA)
#include <wmma/arch/tma.hpp>
#endif
"""
KERNELS = {
    "GemmKernel": ["#include <wmma/gemm/kernel.hpp>"],
    "WarpgroupGradients": ["#include <wmma/attention/loops/warpgroup_gradients.hpp>"],
}
LINES, LENGTHS = (8, 16, 48, 64), (16, 32, 48, 64, 96, 112, 128, 192, 256, 272)


def _asserts(where: str, numbers: dict[str, object]) -> list[str]:
    """That a name is a number, for each that `where` has."""
    texts = ((f"{where}::{name}", str(number).lower()) for name, number in numbers.items())
    return [f'static_assert({name} == {number}, "{name} is {number} to Python");' for name, number in texts]


def _steps(target: arch.Target) -> list[str]:
    """Of every product that the target's matrix unit has, and of plain FMA's."""
    found = []
    for element, cpp in CPP.items():
        native = element in OUTPUTS and not attention.is_lanes(target, element)
        sides = (16, 32) if target.family == "cdna" and element != torch.float64 else (16,)
        products = [(f"wmma::MatrixProduct<{cpp}, {side}>", False, side) for side in sides] if native else []
        products += [(f"wmma::LaneProduct<{cpp}>", True, 16)] if element in FLOATS else []
        for product, lanes, side in products:
            step = geometry.step_of(target, element, lanes, side)
            numbers = {"kRows": step.rows, "kCols": step.cols, "kDepth": step.depth}
            copies = {"Tile::A::kReplicas": step.copies} if target.vendor == "amd" and not lanes else {}
            found += _asserts(product, numbers | copies)
            if side == 16:  # of two products in a row
                found += _asserts(f"wmma::ChainLink<{product}>", numbers | {"kWhole": step.whole, "kStays": step.stays})
    return found


def _tiles(target: arch.Target) -> list[str]:
    barriers = {"kBarrierBytes": geometry.BARRIER_BYTES} if target.family == "sm90" else {}
    banks = {"kWaveSize": target.wave, "kBankBytes": geometry.shared_rate(target)}
    found = _asserts("wmma::arch", banks | barriers)
    for lines, length, size in itertools.product(LINES, LENGTHS, (1, 2, 4, 8)):
        tile = geometry.tile_bytes(target, lines, length, size)
        found += _asserts(f"wmma::SharedTile<{lines}, {length * size}>", {"kBytes": tile})
    return found


def _calls():
    """One of each kind of problem."""
    for a, (along_a, along_b) in itertools.product(OUTPUTS, itertools.product((True, False), repeat=2)):
        x, y = torch.empty(1000, 1024, dtype=a), torch.empty(1024, 264, dtype=a)
        x, y = x if along_a else x.mT.contiguous().mT, y.mT.contiguous().mT if along_b else y
        yield gemm, lambda x=x, y=y: wmma_ops.gemm(x, y)
        if along_a and along_b:
            yield gemm, lambda x=x, y=y: wmma_ops.gemm(x[:9], y, a2=x[:9, :48], b2=y[:48])
    for a, size, gate in itertools.product((torch.float16, torch.bfloat16, torch.int8), (48, 200), (False, True)):
        x, y = torch.empty(1000, size, dtype=a), torch.empty(size, size, dtype=a)
        yield gemm_gemm, lambda x=x, y=y, gate=gate: wmma_ops.gemm_gemm(x, y, y, gate=y if gate else None)
    for dtype, e in itertools.product((torch.float16, torch.bfloat16, *FLOATS), (24, 64, 200)):
        q = torch.empty(1, 2, 300, e, dtype=dtype)
        yield attention, lambda q=q: wmma_ops.attention(q, q, q)


def _configured(target: arch.Target):
    """(the kernel's class, its source, threads, bytes of shared memory): a configuration of each call."""
    place = list(arch.TARGETS).index(target.name)

    def one(configs) -> list:  # another on each target
        found = list(configs)
        return found[place % len(found) :][:1] if found else []

    for family, call in _calls():
        problem, *_ = launching.problems(call, target)
        if family is gemm:
            for config in one(candidates(problem, target)):
                shared = gemm_loops.loop_of(config).shared_bytes(problem, config, target)
                yield "GemmKernel", gemm.source(problem, config, target), config.all_waves * target.wave, shared
        elif family is gemm_gemm:
            for config in one(gemm_gemm.candidates(problem, target)):
                loop = gemm_gemm_loops.loop_of(config)
                shared = loop.shared_bytes(problem, config, target)
                yield loop.kernel, gemm_gemm.source(problem, config, target), config.all_waves * target.wave, shared
        else:
            for config in one(attention.candidates(problem, target)):
                shared = config.shared_bytes(target)
                yield "AttentionKernel", attention.source(problem, config, target), config.waves * target.wave, shared
            for config in warpgroup.candidates(problem, target):
                shared = warpgroup.shared_bytes(problem, config)
                yield "WarpgroupAttention", warpgroup.source(problem, config, target), config.threads, shared
            problem = dataclasses.replace(problem, backward=True, g_order=problem.q_order, g_vec=problem.q_vec)
            for config in warpgroup_gradients.candidates(problem, target):
                shared = warpgroup_gradients.shared_bytes(problem, config)
                text = warpgroup_gradients.source(problem, config, target)
                yield "WarpgroupGradients", text, warpgroup_gradients.THREADS, shared
            if warpgroup_owners.supports(problem, target):
                for config in warpgroup_owners.configs(problem, target):
                    text, shared = owners.source(problem, config, target), config.shared_bytes(target, problem.dtype)
                    yield "WarpgroupOwners", text, config.threads(target), shared
            for config in (x for owns in (False, True) for x in one(gradients.candidates(problem, target, owns))):
                shared = config.shared_bytes(target, problem.dtype)
                yield "AttentionBackward", owners.source(problem, config, target), config.waves * target.wave, shared


def _kernels(target: arch.Target) -> list[str]:
    found = []
    for index, (kernel, source, threads, shared) in enumerate(_configured(target)):
        struct = re.search(r"^struct Config (\{.*?^\};)", source, re.DOTALL | re.MULTILINE)[1]
        numbers = {"kThreads": threads, "kSharedBytes": shared}
        found += re.findall(r"^#include <wmma/.*>$", source, re.MULTILINE)  # its loop, for one
        found += [*KERNELS.get(kernel, ()), f"struct Config{index} {struct}"]
        found += _asserts(f"wmma::{kernel}<Config{index}>", numbers)
    return found


def _probe(target: arch.Target) -> list[str]:
    if not jit.available(target.name):
        pytest.skip(f"no compiler for {target.name} is here")
    asserts = [*_steps(target), *_tiles(target), *_kernels(target)]
    jit.compile("\n".join([HEADERS, *asserts, 'extern "C" WMMA_KERNEL(32, 1) void nothing() {}', ""]), target.name)
    return asserts


@pytest.mark.parametrize("target", arch.TARGETS)
def test_python_and_the_headers_agree(target):
    asserts = _probe(arch.target(target))
    for name in ("MatrixProduct", "LaneProduct", "ChainLink", "SharedTile"):
        assert sum(f"wmma::{name}<" in one for one in asserts) >= 4, name
    kernels = sum("kSharedBytes" in one for one in asserts)
    assert kernels >= 60, kernels


def _with_step(**wrong):
    real = geometry.step_of

    def changed(*arguments):
        step = real(*arguments)
        return dataclasses.replace(step, **{name: change(getattr(step, name)) for name, change in wrong.items()})

    return geometry, "step_of", changed


WRONG = {  # a number that is wrong, and a target on which it is
    "rows": ("gfx942", _with_step(rows=lambda x: 2 * x), "kRows"),
    "columns": ("sm_80", _with_step(cols=lambda x: x // 2), "kCols"),
    "depth": ("gfx1250", _with_step(depth=lambda x: x // 2), "kDepth"),
    "copies": ("gfx1100", _with_step(copies=lambda x: 1), "kReplicas"),
    "stays": ("sm_80", _with_step(stays=lambda x: True), "kStays"),
    "banks": ("gfx950", (geometry, "shared_rate", lambda target: 128), "kBankBytes"),
    "barriers": ("sm_90a", (geometry, "BARRIER_BYTES", 16), "kBarrierBytes"),
    "tiles": (
        "gfx1201",
        (geometry, "tile_bytes", lambda target, lines, length, size: lines * length * size),
        "SharedTile",
    ),
    "product": ("gfx90a", (gemm_loops.LOOPS["staged"], "shared_bytes", lambda *_: 4096), "GemmKernel<Config"),
    "two products": ("gfx1201", (gemm_gemm_loops.LOOPS["resident"], "shared_bytes", lambda *_: 4096), "Kernel<Config"),
    "attention": ("gfx1100", (attention.AttentionConfig, "shared_bytes", lambda *_: 4096), "AttentionKernel<Config"),
    "gradients": ("gfx942", (gradients.GradientsConfig, "shared_bytes", lambda *_: 4096), "AttentionBackward<Config"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_number_is_found(wrong, monkeypatch):
    target, change, name = WRONG[wrong]
    monkeypatch.setattr(*change)
    with pytest.raises(jit.CompileError, match=rf"static assertion failed.*{name}"):
        _probe(arch.target(target))
