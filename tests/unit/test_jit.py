"""Sources to machine code through the real clang, hiprtc and NVRTC."""

import ctypes
import functools
import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rocm_llvm
from compiler_sources import AMD, EMPTY, MATRIX, NVIDIA, forget, text_of
from stand_in import COMPILER

from wmma_ops import jit
from wmma_ops.jit import build, cache, clang, disassembler, hiprtc, kernels_dir, nvrtc

pytestmark = pytest.mark.usefixtures("cache_folder")

COMPILE_SECONDS = 1.0  # the promise for a plain GEMM

INSTRUCTION = {"gfx9": "v_mfma_f32_16x16x4", "gfx1": "v_wmma_f32_16x16x16_f16", "sm_": "mma.sync.aligned.m16n8k16"}


@pytest.fixture(autouse=True)
def _nothing_asked(monkeypatch):
    """The tests here choose for themselves."""
    monkeypatch.delenv(clang.ASKED, raising=False)


@pytest.fixture
def ziglang(monkeypatch):
    """Leaves PyPI's clang as the only one."""
    _only(monkeypatch, "ziglang")


def _only(monkeypatch, kind):
    kept = tuple(candidate for candidate in clang._candidates() if candidate[0] == kind)
    monkeypatch.setattr(clang, "_candidates", lambda: kept)
    return kept


# ---------------------------------------------------------------------------------------------------- the compilers


@pytest.mark.parametrize("target", AMD)
def test_ziglang_compiles_for_every_amd_target(target, ziglang):
    start = time.perf_counter()
    code = jit.compile(MATRIX, target)
    seconds = time.perf_counter() - start
    print(f"{target}: {seconds * 1e3:.0f} ms with {code.compiler}")
    assert seconds < 5 * COMPILE_SECONDS  # the promise is tested on its own, without the other test process
    assert code.compiler.startswith("clang ")
    assert "ziglang" in code.compiler
    assert code.code[:4] == b"\x7fELF"
    assert set(code.kernels) == {"gemm", "zero"}
    assert f'.amdgcn_target "amdgcn-amd-amdhsa--{target}"' in code.assembly
    if target != "gfx1250":
        assert INSTRUCTION[target[:4]] in code.assembly


@pytest.mark.parametrize("kind", ["rocm", "system"])
def test_other_clangs_compile_what_they_know(kind, monkeypatch):
    if not _only(monkeypatch, kind):
        pytest.skip(f"no {kind} clang with lld on this machine")
    known = [target for target in AMD if build.COMPILERS["clang"].available(target)]
    assert known
    for target in known:
        code = jit.compile(MATRIX, target)
        assert "ziglang" not in code.compiler
        assert set(code.kernels) == {"gemm", "zero"}


def test_rocms_code_generator_compiles_what_it_knows(monkeypatch, tmp_path):
    """Behind the pinned front end, as a clang that is asked for."""
    if not disassembler.available():
        pytest.skip(f"no {disassembler.PACKAGE} here")
    rocm_llvm.main(str(tmp_path))
    pinned = {target: jit.compile(MATRIX, target).assembly for target in AMD}
    monkeypatch.setenv(clang.ASKED, str(tmp_path / "clang"))
    for target in filter(build.COMPILERS["clang"].available, AMD):
        code = jit.compile(MATRIX, target)
        assert code.compiler.startswith("clang ROCm ")
        assert set(code.kernels) == {"gemm", "zero"}
        assert INSTRUCTION[target[:4]] in code.assembly or target == "gfx1250"
        assert code.assembly != pinned[target]
        assert not code.log or target == "gfx1250"  # of whose features it does not know all
    with pytest.raises(jit.CompileError, match=r"kernel\.hip:1:"):
        jit.compile("nothing", "gfx942")


@pytest.mark.parametrize("knows", [True, False])
def test_a_clang_is_given_the_options_that_it_takes(knows, asked):
    path = asked / "clang-99"
    if not knows:
        refuses = 'case "$*" in *-mfma-vgpr-form*) echo "Unknown command line argument" >&2; exit 1;; esac'
        path.write_text(path.read_text().replace("exec", f"{refuses}\nexec", 1))
    assert clang.toolchain("gfx942").options == (("-mllvm", "-amdgpu-mfma-vgpr-form=1") if knows else ())
    assert jit.compile(MATRIX, "gfx942").kernels


def test_a_target_that_the_first_clang_lacks_goes_to_the_next(monkeypatch, tmp_path):
    real = [candidate for candidate in clang._candidates() if candidate[0] == "ziglang"]
    old, rocm, lld = (str(tmp_path / name) for name in ("old", "rocm", "lld"))
    for path in (old, rocm, lld):
        Path(path).touch()
    monkeypatch.setattr(clang, "_candidates", lambda: (("system", (old,), (lld,)), ("rocm", (rocm,), (lld,)), *real))
    answers = {
        old: {"version": "18.1.0", "targets": AMD, "sums_anywhere": False},
        rocm: {"version": "17.0.0", "targets": ["gfx90a"], "sums_anywhere": False},
    }
    ask = clang._ask
    monkeypatch.setattr(cache, "remember", lambda binary, *_: answers.get(binary) or ask("ziglang", real[0][1]))
    assert clang.toolchain("gfx90a").version == "17.0.0"  # ROCm's may be old: it knows its own targets
    assert "ziglang" in clang.toolchain("gfx950").version  # the system's 18 is passed over


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """A clang that is asked for: ziglang's under another name."""
    zig = next(clang[0] for kind, clang, _ in clang._candidates() if kind == "ziglang")
    for name, command in (("clang-99", "clang"), ("ld.lld-99", "ld.lld")):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {zig} {command} "$@"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(clang.ASKED, "clang-99")
    return tmp_path


def test_a_clang_that_moved_is_looked_up_again(asked, monkeypatch):
    (asked / "later").mkdir()
    monkeypatch.setenv("PATH", f"{asked}/later{os.pathsep}{os.environ['PATH']}")
    assert jit.compile(EMPTY, "gfx942").compiler.startswith("clang 22")
    for name in ("clang-99", "ld.lld-99"):
        (asked / name).rename(asked / "later" / name)
    assert jit.compile(f"{EMPTY}// again\n", "gfx942").kernels == ("empty",)
    assert clang.toolchain("gfx942").clang == (str(asked / "later/clang-99"),)


@pytest.mark.parametrize("gone", ["clang-99", "ld.lld-99"])
def test_a_clang_that_is_gone_gives_way_to_the_next(gone, asked, monkeypatch):
    here = dict.fromkeys(("asked", "ziglang"))
    for kind in here:
        here[kind] = next(candidate for candidate in clang._candidates() if candidate[0] == kind)
        monkeypatch.delenv(clang.ASKED, raising=False)
    monkeypatch.setattr(clang, "_search", functools.lru_cache(lambda *_: tuple(here.values())))
    assert clang.toolchain("gfx942").kind == "asked"
    (asked / gone).unlink()
    assert "ziglang" in jit.compile(EMPTY, "gfx942").compiler


def test_a_clang_that_comes_is_found(asked, monkeypatch):
    (asked / "clang-99").rename(asked / "not yet")
    assert not jit.available("gfx942")
    (asked / "not yet").rename(asked / "clang-99")
    assert jit.compile(EMPTY, "gfx942").kernels == ("empty",)


def test_a_clang_that_was_replaced_says_its_version_again(others_here, monkeypatch):
    monkeypatch.setenv(clang.ASKED, "clang-99")
    assert clang.toolchain("gfx942").version.startswith("99.1.2")
    path = others_here / "system/clang-99"
    path.write_text(path.read_text().replace("99.1.2", "99.1.30"))
    assert clang.toolchain("gfx942").version.startswith("99.1.30")


def test_an_nvrtc_that_is_gone_is_looked_up_again(monkeypatch, tmp_path):
    real = Path(nvrtc._find()).parent
    places = tmp_path / "first", tmp_path / "second"
    for place in places:
        place.symlink_to(real)
    monkeypatch.setattr(
        nvrtc, "_packaged", lambda: [str(one) for place in places for one in place.glob("libnvrtc.so.1*")]
    )
    monkeypatch.setattr(nvrtc._find, "path", None)
    assert jit.compile(EMPTY, "sm_80").compiler.startswith("nvrtc ")
    assert Path(nvrtc._find()).parent == places[0]
    places[0].unlink()
    assert jit.compile(f"{EMPTY}// again\n", "sm_80").compiler.startswith("nvrtc ")
    assert Path(nvrtc._find()).parent == places[1]


@pytest.fixture
def others_here(monkeypatch, tmp_path):
    """A system's clang in PATH, newer than ziglang's, and ROCm's: they say a version and compile nothing."""

    def stand_in(folder, clang_name, version, lld_name):
        folder.mkdir(parents=True)
        lines = f"clang version {version}", *(f"\tgfx{number}" for number in ("908", "90a", "942", "1201"))
        for name, text in ((clang_name, "\n".join(lines)), (lld_name, "LLD")):
            (folder / name).write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
            (folder / name).chmod(0o755)

    stand_in(tmp_path / "system", "clang-99", "99.1.2 (of the system)", "ld.lld-99")
    stand_in(tmp_path / "rocm/llvm/bin", "clang", "20.0.0git (of ROCm)", "ld.lld")
    monkeypatch.setenv("PATH", f"{tmp_path}/system{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))
    return tmp_path


def test_the_clang_that_is_proven_comes_first(others_here, monkeypatch):
    assert "ziglang" in jit.compile(EMPTY, "gfx1201").compiler
    kinds = [tools.kind for tools in clang.toolchains()]
    assert kinds[:2] == ["ziglang", "rocm"]
    assert kinds.index("system") > 1
    monkeypatch.setattr(clang.importlib.util, "find_spec", lambda name: None)
    clang._search.cache_clear()
    assert clang.toolchain("gfx1201").version == "20.0.0git (of ROCm)"
    clang._search.cache_clear()


def test_the_clang_that_is_proven_is_the_one_that_we_install():
    required = re.findall(r'"(ziglang\b[^"]*)"', (Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert set(required) == {clang.PINNED}
    assert any(f"(ziglang {clang.PINNED.removeprefix('ziglang==')})" in version for version in clang._PROVEN)


@pytest.mark.parametrize("named", ["clang-99", "{}/system/clang-99"])
def test_the_clang_that_is_asked_for_is_the_only_one(named, others_here, monkeypatch):
    monkeypatch.setenv(clang.ASKED, named.format(others_here))
    tools = clang.toolchain("gfx1201")
    assert tools.version == "99.1.2 (of the system)"
    assert tools.lld == (str(others_here / "system/ld.lld-99"),)
    assert clang.toolchains() == [tools]
    assert not jit.available("gfx950")
    with pytest.raises(jit.CompileError, match=r"WMMA_OPS_CLANG names, .*clang-99, .* gfx950: 99\.1\.2 .* not know it"):
        jit.compile(EMPTY, "gfx950")
    assert jit.available("sm_80")


def test_hiprtc_does_not_stand_in_for_a_clang_that_is_asked_for(others_here, monkeypatch):
    monkeypatch.setattr(hiprtc.Hiprtc, "available", lambda self, target: True)
    monkeypatch.setenv(clang.ASKED, "clang-99")
    assert not jit.available("gfx950")
    assert jit.available("gfx950", "hiprtc")


def test_a_clang_that_is_asked_for_and_does_not_serve_is_told(others_here, monkeypatch):
    monkeypatch.setenv(clang.ASKED, "clang-98")
    with pytest.raises(jit.CompileError, match=r"WMMA_OPS_CLANG names, clang-98, .*: there is no such command"):
        jit.compile(EMPTY, "gfx1201")
    (others_here / "system/clang-98").write_text("#!/bin/sh\nexit 1\n")
    (others_here / "system/clang-98").chmod(0o755)
    monkeypatch.setenv("PATH", str(others_here / "system"))
    with pytest.raises(jit.CompileError, match=r"clang-98, .*: it has no ld\.lld"):
        jit.compile(EMPTY, "gfx1201")
    (others_here / "system/ld.lld").symlink_to("ld.lld-99")
    with pytest.raises(jit.CompileError, match=r"clang-98, .*: it does not run"):
        jit.compile(EMPTY, "gfx1201")


@pytest.mark.parametrize("target", NVIDIA)
def test_nvrtc_compiles_the_same_source(target):
    code = jit.compile(MATRIX, target)
    assert code.compiler.startswith("nvrtc ")
    assert code.code[:4] == b"\x7fELF"
    assert set(code.kernels) == {"gemm", "zero"}
    assert INSTRUCTION["sm_"] in code.assembly  # PTX


def test_nvrtc_is_given_the_builtins_that_lie_beside_it(tmp_path):
    """CUDA 13.0's asks for them by their name alone."""
    library, builtins = "libnvrtc.so.13", "libnvrtc-builtins.so.13.99"
    for name in (library, builtins):
        command = (COMPILER, "-shared", "-x", "c", os.devnull, f"-Wl,-soname,{name}", "-o", tmp_path / name)
        subprocess.run(command, check=True)
    with pytest.raises(OSError, match=builtins):
        ctypes.CDLL(builtins)
    nvrtc._load(str(tmp_path / library))
    ctypes.CDLL(builtins)


@pytest.fixture
def real_hiprtc():
    if not build.COMPILERS["hiprtc"].available("gfx90a"):
        reason = (
            "no hiprtc here: NOTHING COMPILED BY hiprtc IS TESTED. "
            "On Debian: apt-get install libamdhip64-5 libhiprtc-builtins5 libamd-comgr2"
        )
        print(reason, file=sys.stderr)
        pytest.skip(reason)


def test_hiprtc_compiles_the_same_source(real_hiprtc):
    code = jit.compile(MATRIX, "gfx90a", compiler="hiprtc")
    assert code.compiler.startswith("hiprtc ")
    assert set(code.kernels) == {"gemm", "zero"}
    assert code.assembly is None
    # It lists nothing that it reads, and assembly may bring files in: what has some is compiled each time.
    assert jit.compile(MATRIX, "gfx90a", compiler="hiprtc") is not code
    plain = 'extern "C" __attribute__((global)) void zero(float* x) { *x = 0; }'
    assert jit.compile(plain, "gfx90a", compiler="hiprtc") is jit.compile(plain, "gfx90a", compiler="hiprtc")


def test_hiprtc_refuses_targets_that_would_kill_it(real_hiprtc, monkeypatch):
    if build.COMPILERS["hiprtc"].available("gfx1100"):
        pytest.skip("this hiprtc knows every target")
    with pytest.raises(jit.CompileError, match="older than gfx1100"):
        jit.compile(MATRIX, "gfx1100", compiler="hiprtc")
    monkeypatch.setattr(clang, "_candidates", tuple)
    assert jit.compile(MATRIX, "gfx90a").compiler.startswith("hiprtc")  # the default without a clang


def test_a_plain_gemm_compiles_in_a_second(ziglang):
    jit.compile(MATRIX, "gfx1201")  # the binary's 180 MB are in memory after this
    times = []
    for i in range(3):
        start = time.perf_counter()
        jit.compile(f"{MATRIX}// {i}\n", "gfx1201")
        times.append(time.perf_counter() - start)
    print(f"compile: {min(times) * 1e3:.0f} ms")
    assert min(times) < COMPILE_SECONDS


@pytest.mark.parametrize("target", AMD)
def test_line_information_leaves_the_machine_code_alone(target, ziglang):
    with_lines = jit.compile(MATRIX, target)
    without = jit.compile(MATRIX, target, options=("-g0",))
    assert text_of(with_lines.code) == text_of(without.code)
    assert ".loc\t" in with_lines.assembly
    assert '"." "kernel.hip"' in with_lines.assembly
    assert str(kernels_dir.PATH).encode() not in with_lines.code
    assert "\t.loc\t" not in without.assembly


def test_target_features_reach_the_code_object():
    plain, off = jit.compile(EMPTY, "gfx90a"), jit.compile(EMPTY, "gfx90a:xnack-")
    assert 'amdhsa--gfx90a:xnack-"' in off.assembly
    flags = [int.from_bytes(code.code[0x30:0x34], "little") for code in (plain, off)]
    assert [flag & 0x300 for flag in flags] == [0x100, 0x200]  # xnack: any, off


def test_the_environment_does_not_meddle(monkeypatch, tmp_path):
    (tmp_path / "evil.hpp").write_text("#error from the environment\n")
    monkeypatch.setenv("CPATH", str(tmp_path))
    monkeypatch.setenv("CCC_OVERRIDE_OPTIONS", f"+-include +{tmp_path}/evil.hpp")
    assert jit.compile(EMPTY, "gfx942").kernels == ("empty",)


def test_the_systems_clangs_are_found_newest_first(tmp_path):
    for name in ("one/clang-20", "one/clang-18", "one/clang-format-22", "two/clang", "two/clang-20", "two/clang-22"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(0o755)
    (tmp_path / "one/clang-21").touch(0o644)
    path = os.pathsep.join(str(tmp_path / name) for name in ("one", "missing", "two"))
    found = [str(Path(clang).relative_to(tmp_path)) for clang in clang._clangs(path)]
    assert found == ["two/clang", "two/clang-22", "one/clang-20"]


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("target", "compiler"), [("gfx942", "clang"), ("gfx90a", "hiprtc"), ("sm_80", "nvrtc")], ids=lambda value: value
)
def test_errors_carry_our_line_numbers(target, compiler, request):
    if compiler == "hiprtc":
        request.getfixturevalue("real_hiprtc")
    line = MATRIX.count("\n") + 2
    with pytest.raises(jit.CompileError, match=rf"\bmine\.hip:{line}:.*error: ") as caught:
        jit.compile(
            f"{MATRIX}\n__device__ int broken() {{ return missing; }}\n", target, compiler=compiler, name="mine.hip"
        )
    error = caught.value
    assert "missing" in error.log
    assert (error.target, error.compiler.split()[0]) == (target, compiler)
    assert "/tmp" not in str(error)
    again = pickle.loads(pickle.dumps(error))  # from a worker process
    assert (str(again), again.target, again.log) == (str(error), error.target, error.log)


def test_errors_of_the_later_steps_carry_them_too():
    inline = 'extern "C" __attribute__((global)) void bad() {\n  asm volatile("v_nonsense v0, v1");\n}\n'
    with pytest.raises(jit.CompileError, match=r"kernel\.hip:2: error: invalid instruction"):
        jit.compile(inline, "gfx942")
    undefined = "__attribute__((device)) void nowhere();\n" + EMPTY.replace("{}", "{ nowhere(); }")
    with pytest.raises(jit.CompileError, match=r"undefined hidden symbol: nowhere.*\n.* kernel\.hip:2") as caught:
        jit.compile(undefined, "gfx942")
    assert "/tmp" not in str(caught.value)


@pytest.mark.parametrize(("target", "compiler"), [("gfx942", "clang"), ("sm_80", "nvrtc")])
def test_a_missing_header_and_a_wrong_option_are_compile_errors(target, compiler):
    with pytest.raises(jit.CompileError, match=r"kernel\.hip:1:.*wmma/nope\.hpp"):
        jit.compile("#include <wmma/nope.hpp>\n", target)
    with pytest.raises(jit.CompileError, match=compiler):
        jit.compile(EMPTY, target, options=("--no-such-option",))


def test_warnings_are_kept():
    code = jit.compile(f"#warning careful\n{EMPTY}", "gfx942")
    assert "kernel.hip:1:2: warning: careful" in code.log
    forget()
    assert jit.compile(f"#warning careful\n{EMPTY}", "gfx942").log == code.log


def test_a_missing_compiler_says_which_command_brings_it(monkeypatch):
    monkeypatch.setattr(clang, "_candidates", tuple)
    monkeypatch.setattr(hiprtc, "_find", lambda: None)
    monkeypatch.setattr(nvrtc, "_find", lambda: None)
    with pytest.raises(jit.CompileError, match=r"no clang here compiles for gfx1201.*`pip install ziglang=="):
        jit.compile(EMPTY, "gfx1201")
    with pytest.raises(jit.CompileError, match=r"no hiprtc here.*ROCm.*`pip install ziglang=="):
        jit.compile(EMPTY, "gfx1201", compiler="hiprtc")
    with pytest.raises(jit.CompileError, match=r"no NVRTC here.*`pip install nvidia-cuda-nvrtc`"):
        jit.compile(EMPTY, "sm_90a")


def test_a_clang_that_does_not_start_is_passed_over(monkeypatch, tmp_path):
    real = [candidate for candidate in clang._candidates() if candidate[0] == "ziglang"]
    broken = tmp_path / "clang"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    gone = tmp_path / "gone"
    found = (("system", (str(gone),), ("lld",)), ("system", (str(broken),), ("lld",)), *real)
    monkeypatch.setattr(clang, "_candidates", lambda: found)
    assert "ziglang" in jit.compile(EMPTY, "gfx942").compiler


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"target": "gfx943"}, ValueError, "gfx942"),
        ({"target": "sm_91"}, ValueError, "sm_90"),
        ({"target": "gfx942:xnack"}, ValueError, "xnack+"),
        ({"target": "sm_80:xnack-"}, ValueError, "gfx"),
        ({"target": 942}, TypeError, "target is of type int; takes a str"),
        ({"compiler": "gcc"}, ValueError, "clang, hiprtc, nvrtc"),
        ({"compiler": "nvrtc"}, ValueError, "clang, hiprtc"),
        ({"target": "sm_80", "compiler": "clang"}, ValueError, "nvrtc"),
        ({"options": "-O1"}, TypeError, "takes a tuple of str"),
        ({"options": (1,)}, TypeError, "takes a tuple of str"),
        ({"name": "../kernel.hip"}, ValueError, "plain file name"),
        ({"name": "-o"}, ValueError, "plain file name"),
        ({"source": b"x"}, TypeError, "source is of type bytes"),
        ({"source": "x\0y"}, ValueError, "NUL"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments, error, text):
    given = {"source": EMPTY, "target": "gfx942", **arguments}
    with pytest.raises(error) as caught:
        jit.compile(given.pop("source"), given.pop("target"), **given)
    assert text in str(caught.value)
