"""The targets and their matrix instructions: one table, whose rows check themselves.

Rates and cycles are AMD's published ones, as its matrix instruction calculator prints them; gfx950's forms and passes
are those of LLVM's scheduling model. Where no figure is published it is None. Sparse products and block scales are left
out.
"""

import difflib
import math
import re
from dataclasses import dataclass, field

from wmma_ops.hardware import cards

BITS = {
    "float64": 64,
    "float32": 32,
    "xfloat32": 32,  # AMD's 19-bit format in a 32-bit register
    "tfloat32": 32,  # NVIDIA's
    "int32": 32,
    "float16": 16,
    "bfloat16": 16,
    "int8": 8,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "float8_e4m3fnuz": 8,
    "float8_e5m2fnuz": 8,
    "int4": 4,
    "float4_e2m1fn": 4,
}

# Assembly's short names. fp8 and bf8 mean the FNUZ formats on gfx942 and the OCP formats everywhere else.
_FP8_OCP = {"fp8": "float8_e4m3fn", "bf8": "float8_e5m2"}
_FP8_FNUZ = {"fp8": "float8_e4m3fnuz", "bf8": "float8_e5m2fnuz"}
_TYPES = {
    "f64": "float64",
    "f32": "float32",
    "xf32": "xfloat32",
    "tf32": "tfloat32",
    "i32": "int32",
    "s32": "int32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "iu8": "int8",
    "s8": "int8",
    "iu4": "int4",
    **_FP8_OCP,
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}


@dataclass(frozen=True)
class MatrixInstruction:
    """D = A·B + C for one wave: `blocks` products of M×K by K×N, side by side."""

    name: str  # as LLVM prints it, or PTX's mnemonic
    builtin: str  # clang's builtin, or PTX's mnemonic
    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    d: str
    cycles: int | None  # that it holds the matrix unit of one SIMD
    replicated: bool = False  # gfx11 wants A and B in both halves of the wave

    def __post_init__(self):
        # One row written wrongly would put wrong numbers into kernels, emulator and cost model alike.
        shape = f"{self.m}x{self.n}x{self.k}" if self.amd else f"m{self.m}n{self.n}k{self.k}"
        assert re.search(rf"(?<!\d){shape}(?!\d)", self.name), f"{self.name} is no {shape}"
        assert re.search(rf"(?<!\d){shape}(?!\d)", self.builtin), f"{self.builtin} is no {shape}"
        if "v_mfma" in self.name and f"{shape}_" in self.name:  # gfx908's and gfx90a's names do not tell the blocks
            told = re.search(r"_(\d+)b_", self.name)
            assert self.blocks == int(told[1] if told else 1), f"{self.name} has not {self.blocks} blocks"
        assert {self.a, self.b, self.d} <= set(BITS), f"{self.name}: unknown type"
        assert BITS[self.a] == BITS[self.b], f"{self.name}: A and B are of unequal size"
        assert (self.d == "int32") == self.a.startswith("int"), f"{self.name}: {self.a} gives no {self.d}"
        assert BITS[self.d] >= BITS[self.a], f"{self.name}: {self.d} is narrower than {self.a}"
        for operand in "ABD":
            lanes, copies = self.wave * self.elements(operand), 2 if self.replicated and operand != "D" else 1
            rows, columns = self.shape(operand)
            assert lanes == rows * columns * self.blocks * copies, f"{self.name}: {operand} does not fill the wave"
            assert self.elements(operand) * BITS[self.type(operand)] % 32 == 0, (
                f"{self.name}: {operand} splits a register"
            )
        # Matrix units work in passes of 4 cycles.
        assert self.cycles is None or (self.cycles > 0 and self.cycles % 4 == 0), f"{self.name}: {self.cycles} cycles"

    @property
    def amd(self) -> bool:
        return self.name.startswith("v_")

    @property
    def wave(self) -> int:
        return 64 if self.name.startswith("v_mfma") else 32

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.blocks

    def shape(self, operand: str) -> tuple[int, int]:
        """Rows and columns of one block of A, B, C or D."""
        return {"A": (self.m, self.k), "B": (self.k, self.n), "C": (self.m, self.n), "D": (self.m, self.n)}[operand]

    def type(self, operand: str) -> str:
        return {"A": self.a, "B": self.b, "C": self.d, "D": self.d}[operand]

    def elements(self, operand: str) -> int:
        """How many elements of the operand a lane holds."""
        rows, columns = self.shape(operand)
        copies = 2 if self.replicated and operand in "AB" else 1
        return rows * columns * self.blocks * copies // self.wave


@dataclass(frozen=True, eq=False)  # compared by identity: layouts are looked up by target, often
class Target:
    name: str
    family: str  # of lane layouts: cdna, rdna3, rdna4, gfx1250, sm80, sm90
    vendor: str
    wave: int
    simds: int  # per CU, or per SM
    lds_bytes: int  # the most that a block may use
    lds_banks: int | None
    lds_bytes_per_clock: int | None  # per CU
    vgprs: int  # 32-bit registers that one lane may use
    agprs: int  # gfx908: beside the VGPRs; gfx90a and later: a part of them
    instructions: tuple[MatrixInstruction, ...]
    rates: dict[str, int] = field(default_factory=dict)  # type of A -> dense FLOP per clock and CU
    max_threads: int = 1024  # per block
    most_waves: int = 16  # of a SIMD at once; NVIDIA: of a quarter of an SM
    most_blocks: float = math.inf  # of an SM at once
    vgpr_file: tuple[int, int] = (0, 0)  # (granule, total) of what one lane's waves on a SIMD share
    lds_granule: int = 1024  # bytes
    compile_only: bool = False  # compiled for, run nowhere: neither emulated nor measured

    def __post_init__(self):
        rows = [(row.name, row.a, row.b) for row in self.instructions]
        assert len(rows) == len(set(rows)), f"{self.name}: an instruction stands twice in its table"
        assert (self.vendor == "amd") == self.name.startswith("gfx"), f"{self.name} is not of {self.vendor}"
        for row in self.instructions:
            assert (row.wave, row.amd) == (self.wave, self.vendor == "amd"), f"{self.name}: {row.name} is not of it"
            assert row.replicated == (self.family == "rdna3"), f"{self.name}: {row.name}'s copies"
            assert (row.cycles is None) == (not self.rates), f"{self.name}: {row.name} has cycles and no rate, or none"
            for operand in "ABD":
                registers = row.elements(operand) * BITS[row.type(operand)] // 32
                assert registers <= self.vgprs, f"{self.name}: {row.name} needs {registers} registers"
        if self.rates:
            reached = {row.a: 0 for row in self.instructions}
            for row in self.instructions:
                reached[row.a] = max(reached[row.a], self.rate(row))
            # Every dense rate is reached by an instruction, and passed by none.
            assert reached == self.rates, f"{self.name}: rates {self.rates}, reached {reached}"

    def rate(self, instruction: MatrixInstruction) -> float | None:
        """FLOP per clock and CU with every SIMD issuing `instruction` alone."""
        return instruction.flops * self.simds / instruction.cycles if instruction.cycles else None

    @property
    def default(self) -> MatrixInstruction:
        """The 16-row product of float16 into float32 with the longest K."""
        rows = [row for row in self.instructions if (row.m, row.a, row.d) == (16, "float16", "float32")]
        return max((row for row in rows if row.blocks == 1), key=lambda row: row.k)

    def instruction(self, name: str | None = None) -> MatrixInstruction:
        """The instruction of this mnemonic or builtin. Of several type pairs under one name, the first."""
        if name is None:
            return self.default
        for row in self.instructions:
            if name in (row.name, row.builtin):
                return row
        known = ", ".join(dict.fromkeys(row.name for row in self.instructions))
        raise ValueError(f"{self.name} has no matrix instruction {name!r}; it has {known}")


def _mfma(rows: str, *, plain_names: bool, fp8: dict[str, str] = _FP8_OCP) -> tuple[MatrixInstruction, ...]:
    """Rows of `d MxNxK[xBlocks] a[,b] cycles`; `plain_names` are gfx908's and gfx90a's, without underscores."""
    found = []
    for row in rows.strip().splitlines():
        d, shape, kinds, cycles = row.split()
        m, n, k, blocks = (int(size) for size in (shape + "x1").split("x")[:4])
        a, _, b = kinds.partition(",")
        bare = a.removesuffix("_1k")
        product = f"{m}x{n}x{k}"
        types = _TYPES | fp8
        # gfx942 renamed the instructions, clang kept the names of the builtins that it had.
        old = (m, n, k, a) in _NAMED_WITHOUT_UNDERSCORE
        builtin = f"__builtin_amdgcn_mfma_{d}_{product}{'' if old else '_'}{a}"
        name = f"v_mfma_{d}_{product}{a}"
        if not plain_names:
            name = f"v_mfma_{d}_{product}{f'_{blocks}b' if blocks > 1 else ''}_{bare}"
        if b:
            name, builtin = f"{name}_{b}", f"{builtin}_{b}"
        found.append(
            MatrixInstruction(name, builtin, m, n, k, blocks, types[bare], types[b or bare], types[d], int(cycles))
        )
    return tuple(found)


_FROM_GFX908 = """
f32 16x16x16 f16 32
f32 32x32x8 f16 64
f32 32x32x4x2 f16 64
f32 16x16x4x4 f16 32
f32 4x4x4x16 f16 8
f32 32x32x4 bf16 64
f32 16x16x8 bf16 32
f32 32x32x2x2 bf16 64
f32 16x16x2x4 bf16 32
f32 4x4x2x16 bf16 8
i32 32x32x8 i8 64
i32 16x16x16 i8 32
i32 32x32x4x2 i8 64
i32 16x16x4x4 i8 32
i32 4x4x4x16 i8 8
f32 32x32x2 f32 64
f32 16x16x4 f32 32
f32 32x32x1x2 f32 64
f32 16x16x1x4 f32 32
f32 4x4x1x16 f32 8
"""

_FROM_GFX90A = """
f32 32x32x8 bf16_1k 64
f32 16x16x16 bf16_1k 32
f32 32x32x4x2 bf16_1k 64
f32 16x16x4x4 bf16_1k 32
f32 4x4x4x16 bf16_1k 8
f64 16x16x4 f64 32
f64 4x4x4x4 f64 16
"""

_NAMED_WITHOUT_UNDERSCORE = {
    (*(int(size) for size in shape.split("x")[:3]), kind)
    for _, shape, kind, _ in (row.split() for row in (_FROM_GFX908 + _FROM_GFX90A).strip().splitlines() if row)
}

# One block only runs at the dense rate; forms with more kept gfx908's passes.
_FROM_GFX942 = """
f32 16x16x16 f16 16
f32 32x32x8 f16 32
f32 32x32x4x2 f16 64
f32 16x16x4x4 f16 32
f32 4x4x4x16 f16 8
f32 16x16x16 bf16_1k 16
f32 32x32x8 bf16_1k 32
f32 32x32x4x2 bf16_1k 64
f32 16x16x4x4 bf16_1k 32
f32 4x4x4x16 bf16_1k 8
i32 16x16x32 i8 16
i32 32x32x16 i8 32
i32 32x32x4x2 i8 64
i32 16x16x4x4 i8 32
i32 4x4x4x16 i8 8
f32 32x32x2 f32 64
f32 16x16x4 f32 32
f32 32x32x1x2 f32 64
f32 16x16x1x4 f32 32
f32 4x4x1x16 f32 8
f32 16x16x32 fp8,fp8 16
f32 16x16x32 fp8,bf8 16
f32 16x16x32 bf8,fp8 16
f32 16x16x32 bf8,bf8 16
f32 32x32x16 fp8,fp8 32
f32 32x32x16 fp8,bf8 32
f32 32x32x16 bf8,fp8 32
f32 32x32x16 bf8,bf8 32
f64 4x4x4x4 f64 16
"""

_ONLY_GFX942 = """
f32 16x16x8 xf32 16
f32 32x32x4 xf32 32
f64 16x16x4 f64 32
"""

_ONLY_GFX950 = """
f32 16x16x32 f16 16
f32 32x32x16 f16 32
f32 16x16x32 bf16 16
f32 32x32x16 bf16 32
i32 16x16x64 i8 16
i32 32x32x32 i8 32
f64 16x16x4 f64 64
"""


def _f8f6f4() -> tuple[MatrixInstruction, ...]:
    """gfx950's products whose types are operands of the instruction (cbsz, blgp). 8-bit types take twice the cycles."""
    pairs = [(a, b, 2) for a in _FP8_OCP.values() for b in _FP8_OCP.values()]
    pairs.append(("float4_e2m1fn", "float4_e2m1fn", 1))
    return tuple(
        MatrixInstruction(
            f"v_mfma_f32_{m}x{n}x{k}_f8f6f4",
            f"__builtin_amdgcn_mfma_scale_f32_{m}x{n}x{k}_f8f6f4",
            m,
            n,
            k,
            1,
            a,
            b,
            "float32",
            cycles * slow,
        )
        for m, n, k, cycles in ((16, 16, 128, 16), (32, 32, 64, 32))
        for a, b, slow in pairs
    )


def _wmma(rows: str, suffix: str, replicated: bool = False) -> tuple[MatrixInstruction, ...]:
    """Rows of `d K a[,b] cycles`, all of 16x16xK; cycles `-` where none are published."""
    found = []
    for row in rows.strip().splitlines():
        d, k, kinds, cycles = row.split()
        a, _, b = kinds.partition(",")
        name = f"wmma_{d}_16x16x{k}_{a}" + (f"_{b}" if b else "")
        types = _TYPES[a], _TYPES[b or a], _TYPES[d]
        took = None if cycles == "-" else int(cycles)
        builtin = f"__builtin_amdgcn_{name}{suffix}"
        found.append(MatrixInstruction(f"v_{name}", builtin, 16, 16, int(k), 1, *types, took, replicated))
    return tuple(found)


_RDNA3 = _wmma(
    """
f32 16 f16 32
f16 16 f16 32
f32 16 bf16 32
bf16 16 bf16 32
i32 16 iu8 32
i32 16 iu4 16
""",
    "_w32",
    replicated=True,
)

_RDNA4 = _wmma(
    """
f32 16 f16 16
f16 16 f16 16
f32 16 bf16 16
bf16 16 bf16 16
f32 16 fp8,fp8 8
f32 16 fp8,bf8 8
f32 16 bf8,fp8 8
f32 16 bf8,bf8 8
i32 16 iu8 8
i32 16 iu4 8
i32 32 iu4 8
""",
    "_w32_gfx12",
)

# The wave32 products of gfx1250 that have one type a side and no scales.
_GFX1250 = _wmma(
    """
f32 32 f16 -
f16 32 f16 -
f32 32 bf16 -
bf16 32 bf16 -
f32 64 fp8,fp8 -
f32 64 fp8,bf8 -
f32 64 bf8,fp8 -
f32 64 bf8,bf8 -
f32 128 fp8,fp8 -
f32 128 fp8,bf8 -
f32 128 bf8,fp8 -
f32 128 bf8,bf8 -
f16 64 fp8,fp8 -
f16 64 fp8,bf8 -
f16 64 bf8,fp8 -
f16 64 bf8,bf8 -
f16 128 fp8,fp8 -
f16 128 fp8,bf8 -
f16 128 bf8,fp8 -
f16 128 bf8,bf8 -
i32 64 iu8 -
f32 4 f32 -
""",
    "",
)


def _mma(rows: str) -> tuple[MatrixInstruction, ...]:
    """Rows of `shape d a[,b]`. NVIDIA publishes no cycles of mma.sync."""
    found = []
    for row in rows.strip().splitlines():
        shape, d, kinds = row.split()
        a, _, b = kinds.partition(",")
        m, n, k = (int(size) for size in re.findall(r"\d+", shape))
        name = f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{b or a}.{d}"
        found.append(MatrixInstruction(name, name, m, n, k, 1, _TYPES[a], _TYPES[b or a], _TYPES[d], None))
    return tuple(found)


_SM80 = _mma(
    """
m16n8k16 f32 f16
m16n8k16 f16 f16
m16n8k8 f32 f16
m16n8k8 f16 f16
m16n8k16 f32 bf16
m16n8k8 f32 bf16
m16n8k8 f32 tf32
m16n8k4 f32 tf32
m16n8k32 s32 s8
m16n8k16 s32 s8
m8n8k4 f64 f64
"""
)

_SM89 = _SM80 + _mma(
    """
m16n8k32 f32 e4m3
m16n8k32 f32 e4m3,e5m2
m16n8k32 f32 e5m2,e4m3
m16n8k32 f32 e5m2
"""
)

_FP8_RATES_FNUZ = dict.fromkeys(_FP8_FNUZ.values(), 4096)


def _cdna(
    name: str, vgprs: int, instructions, rates, lds: tuple[int, int, int] = (65536, 32, 128), granule: int = 512
) -> Target:
    waves, file = (10, (4, 256)) if name == "gfx908" else (8, (8, 512))
    beside = {"most_waves": waves, "vgpr_file": file, "lds_granule": granule}
    return Target(name, "cdna", "amd", 64, 4, *lds, vgprs, 256, instructions, rates, **beside)


def _rdna(name: str, family: str, instructions, rates) -> Target:
    large = name in ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201")
    file = (24, 1536) if large else (16, 1024)
    return Target(name, family, "amd", 32, 2, 65536, 32, 128, 256, 0, instructions, rates, vgpr_file=file)


def _sm(name: str, family: str, instructions, kilobytes: int, warps: int, blocks: int) -> Target:
    # A block may take all of an SM's shared memory but 1 KB. Of 256 register numbers the last reads as zero. Warps and
    # blocks of an SM: CUDA C Programming Guide, technical specifications per compute capability.
    beside = {"most_waves": warps // 4, "most_blocks": blocks}
    return Target(name, family, "nvidia", 32, 4, kilobytes * 1024, 32, 128, 255, 0, instructions, **beside)


_RDNA3_RATES = {"float16": 512, "bfloat16": 512, "int8": 512, "int4": 1024}
_RDNA4_RATES = {
    "float16": 1024,
    "bfloat16": 1024,
    "int8": 2048,
    "int4": 4096,
    **dict.fromkeys(_FP8_OCP.values(), 2048),
}

TARGETS: dict[str, Target] = {
    row.name: row
    for row in (
        _cdna(
            "gfx908",
            256,
            _mfma(_FROM_GFX908, plain_names=True),
            {"float16": 1024, "bfloat16": 512, "int8": 1024, "float32": 256},
        ),
        _cdna(
            "gfx90a",
            512,
            _mfma(_FROM_GFX908 + _FROM_GFX90A.lstrip(), plain_names=True),
            {"float16": 1024, "bfloat16": 1024, "int8": 1024, "float32": 256, "float64": 256},
        ),
        _cdna(
            "gfx942",
            512,
            _mfma(_FROM_GFX942 + _ONLY_GFX942.lstrip(), plain_names=False, fp8=_FP8_FNUZ),
            {
                "float16": 2048,
                "bfloat16": 2048,
                "int8": 4096,
                "float32": 256,
                "xfloat32": 1024,
                "float64": 256,
                **_FP8_RATES_FNUZ,
            },
        ),
        _cdna(
            "gfx950",
            512,
            _mfma(_FROM_GFX942 + _ONLY_GFX950.lstrip(), plain_names=False) + _f8f6f4(),
            {
                "float16": 4096,
                "bfloat16": 4096,
                "int8": 8192,
                "float32": 256,
                "float64": 128,
                "float4_e2m1fn": 16384,
                **dict.fromkeys(_FP8_OCP.values(), 8192),
            },
            lds=(163840, 64, 256),
            granule=1280,
        ),
        *(
            _rdna(name, "rdna3", _RDNA3, _RDNA3_RATES)
            for name in ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151")
        ),
        *(_rdna(name, "rdna4", _RDNA4, _RDNA4_RATES) for name in ("gfx1200", "gfx1201")),
        Target(
            "gfx1250",
            "gfx1250",
            "amd",
            32,
            4,
            327680,
            None,
            None,
            1024,
            0,
            _GFX1250,
            compile_only=True,
            vgpr_file=(16, 1024),
            lds_granule=2048,
        ),
        _sm("sm_80", "sm80", _SM80, 163, 64, 32),
        _sm("sm_86", "sm80", _SM80, 99, 48, 16),
        _sm("sm_89", "sm80", _SM89, 99, 48, 24),
        _sm("sm_90", "sm90", _SM89, 227, 64, 32),
        _sm("sm_90a", "sm90", _SM89, 227, 64, 32),
    )
}

# What the emulator runs.
EMULATED = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1200", "gfx1201")


def target(name: str | int) -> Target:
    """The target of a name: its own, with or without ROCm's features (gfx942:sramecc+:xnack-), that of a generation (rdna4)
    or of a card, as sold or as torch.cuda.get_device_name says it (RX 7900 XTX, NVIDIA H100 80GB HBM3)."""
    asked = str(name).partition(":")[0]
    if found := TARGETS.get(asked) or TARGETS.get(cards.chip(asked)):
        return found
    if why := cards.why_not(asked):
        raise ValueError(why)
    close = difflib.get_close_matches(asked, TARGETS, n=3, cutoff=0.5)
    close.sort(key=lambda known: known[:-1] != asked[:-1])  # a sibling before any other
    raise ValueError(
        f"no target {str(name)!r} is known; the closest names are {', '.join(close or cards.near(asked) or TARGETS)}"
    )


def full_name(name: str) -> str:
    """A target's own name, with the features that stand behind the one given."""
    base, colon, features = name.partition(":")
    return f"{target(base).name}{colon}{features}"


def emulated_as(found: Target) -> str | None:
    """The emulated target that a target is, or that stands for it; None where the emulator knows none of its kind."""
    return next((one for one in (found.name, cards.STANDS_FOR.get(found.name)) if one in EMULATED), None)
