"""The device library's headers that a source leads to: a kernel is compiled again when one changes, and only then."""

import logging
import shutil
import subprocess

import pytest
from compiler_sources import EMPTY, STORES, forget

from wmma_ops import jit
from wmma_ops.analysis import report_cases
from wmma_ops.analysis.report import _KINDS
from wmma_ops.hardware import arch
from wmma_ops.jit import clang, headers, kernels_dir

SLEEPS = f"#include <wmma/sleep.hpp>\n#define VALUE 1.0f\n{STORES}"
NAMES_THREADS = f"#include <wmma/grid.hpp>\n#define VALUE 1.0f\n{STORES}"
OF_OTHERS = f"#include <cmath>\n#define VALUE 1.0f\n{STORES}"


@pytest.fixture
def edited(cache_folder, tmp_path, monkeypatch):
    """A copy of the device sources in which a header can be edited."""
    copy = shutil.copytree(kernels_dir.PATH, tmp_path / "kernels")
    monkeypatch.setattr(kernels_dir, "PATH", copy)

    def edit(name: str) -> None:
        (copy / name).write_text((copy / name).read_text() + "\n// edited\n")

    return edit


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("wmma/sleep.hpp", [SLEEPS, OF_OTHERS]),
        ("wmma/grid.hpp", [NAMES_THREADS, OF_OTHERS]),
        ("wmma/target.hpp", [SLEEPS, NAMES_THREADS, OF_OTHERS]),  # which the others include
        ("wmma/arch/nvidia.hpp", [SLEEPS, NAMES_THREADS, OF_OTHERS]),  # for other targets, so in vain
        ("compat/cmath", [OF_OTHERS]),
        ("wmma/gemm/kernel.hpp", []),
    ],
)
def test_what_includes_a_header_is_compiled_again(name, again, edited, compilations):
    sources = EMPTY, SLEEPS, NAMES_THREADS, OF_OTHERS
    for source in sources:
        jit.compile(source, "gfx942")
    edited(name)
    forget()
    before, found = compilations(), []
    for source in sources:
        jit.compile(source, "gfx942")
        found += [source] * (compilations() - before)
        before = compilations()
    assert found == again


def test_a_header_that_comes_to_stand_before_another(edited, compilations):
    jit.compile(OF_OTHERS, "gfx942")
    (kernels_dir.PATH / "cmath").write_text("#error instead\n")
    with pytest.raises(jit.CompileError, match="instead"):
        jit.compile(OF_OTHERS, "gfx942")


def _sources(target: str) -> dict[str, str]:
    """The kernels of one case of each kind in the report."""
    one = {type(case): case for case in report_cases.cases(target)}
    plans = {kind.__name__: _KINDS[kind][0].plan(case.problem(target), target) for kind, case in one.items()}
    return {f"{name} {i}": launch.source for name, plan in plans.items() for i, launch in enumerate(plan.launches)}


def test_attention_edited_leaves_products_as_they_were(edited):
    target = arch.target("gfx942")
    sources = _sources(target)
    before = {name: headers.tree().digest(headers.includes(source, ())) for name, source in sources.items()}
    edited("wmma/attention/terms/scores.hpp")
    after = {name: headers.tree().digest(headers.includes(source, ())) for name, source in sources.items()}
    changed = {name.split()[0] for name in sources if before[name] != after[name]}
    assert changed
    assert all("Attention" in name for name in changed)


def _listed(source: str, target: str, tmp_path) -> set[str]:
    """What the compiler itself reads of the device library."""
    (tmp_path / "kernel.hip").write_text(source)
    rule, text = tmp_path / "kernel.d", tmp_path / "kernel.txt"
    includes = ("-I", kernels_dir.PATH, "-I", kernels_dir.PATH / kernels_dir.COMPAT)
    command = (*clang.toolchain(target).clang, *clang.Clang.flags[:-1], "-E", f"--offload-arch={target}", *includes)
    subprocess.run(
        [*map(str, (*command, *clang._listing(rule), "kernel.hip", "-o", text))],
        cwd=tmp_path,
        env=clang._environment(str(tmp_path)),
        check=True,
    )
    return {name for path in jit.inputs._paths(rule.read_text()) if (name := kernels_dir.name_of(path))}


@pytest.mark.parametrize("name", ["gfx942", "gfx1100", "gfx1201"])
def test_the_compiler_reads_no_other(name, tmp_path):
    sources = {**_sources(arch.target(name)), "others": OF_OTHERS, "micro": "#include <microkernels.hip>\n"}
    for kind, source in sources.items():
        listed, reached = _listed(source, name, tmp_path), headers.tree().reached(headers.includes(source, ()))
        assert listed, kind
        assert listed <= reached, kind
        assert len(reached) < len(headers.tree().files), kind


@pytest.mark.parametrize("target", ["gfx90a", "sm_90a"])
def test_they_alone_are_enough(target, tmp_path, cache_folder, monkeypatch):
    """As NVRTC lists nothing."""
    source = "#include <wmma/fragment.hpp>\n#include <wmma/grid.hpp>\n" + EMPTY
    includes = headers.includes(source, ())
    names = headers.tree()._of(includes)[0]
    for name in names:
        (tmp_path / "alone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kernels_dir.PATH / name, tmp_path / "alone" / name)
    monkeypatch.setattr(kernels_dir, "PATH", tmp_path / "alone")
    assert headers.tree().reached(includes) == names
    assert jit.compile(source, target).kernels == ("empty",)
    (tmp_path / "alone/wmma/fragment_memory.hpp").unlink()
    with pytest.raises(jit.CompileError, match="fragment_memory"):
        jit.compile(source, target)


def test_a_header_that_was_missed_is_told_and_nothing_kept(cache_folder, compilations, monkeypatch, caplog, tmp_path):
    right = headers.Tree._closure
    monkeypatch.setattr(headers.Tree, "_closure", lambda self, names: right(self, names) - {"wmma/sleep.hpp"})
    monkeypatch.setattr(headers, "_trees", {})
    with caplog.at_level(logging.WARNING, "wmma_ops.jit"):
        jit.compile(SLEEPS, "gfx942")
    assert "reads wmma/sleep.hpp, which its text does not lead to" in caplog.text
    jit.compile(SLEEPS, "gfx942")
    assert compilations() == 2
    assert not list(cache_folder.rglob("*.wmma"))
    with pytest.raises(ValueError, match="sleep"):
        jit.build.ship(SLEEPS, "gfx942", tmp_path)


def test_what_reads_headers_first_that_it_does_not_list_counts_as_reading_all(edited):
    def request(name: str) -> str:
        return jit.build._request(SLEEPS, "gfx942", jit.COMPILERS[name], (), "kernel.hip")

    before = {name: request(name) for name in jit.COMPILERS}
    edited("wmma/gemm/kernel.hpp")
    assert [name for name in before if request(name) != before[name]] == ["hiprtc"]


def test_our_own_headers_include_plainly():
    assert [name for name, file in headers.tree().files.items() if file.includes is None] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", set()),
        ("#include <wmma/grid.hpp>", {"wmma/grid.hpp"}),
        ('  # \tinclude "wmma/grid.hpp" // why', {"wmma/grid.hpp"}),
        ("#if 0\n#include <wmma/grid.hpp>\n#endif", {"wmma/grid.hpp"}),
        ("#incl\\\nude <wmma/grid.hpp>", {"wmma/grid.hpp"}),
        ('const char* x = "to include a file"; // include one, # of 3', set()),
        ("#if __has_builtin(__builtin_amdgcn_s_sleep)\n#endif", set()),
    ],
)
def test_plain_includes_are_known(text, found):
    assert headers.includes(text, ("-O2", "-DN=3", "-UN")) == found


@pytest.mark.parametrize(
    "text",
    [
        "#define H <wmma/grid.hpp>\n#include H",
        "/* first */ #include <wmma/grid.hpp>",
        "# /* a\n */ include <wmma/grid.hpp>",
        "int x;\r#include <wmma/grid.hpp>",
        "%:include <wmma/grid.hpp>",
        "?\x3f=include <wmma/grid.hpp>",
        "#inclu?\x3f/\nde <wmma/grid.hpp>",
        "#import <wmma/grid.hpp>",
        "#include_next <wmma/grid.hpp>",
        "#embed <wmma/grid.hpp>",
        "#include </usr/include/limits.h>",
        "#include <wmma/../wmma/grid.hpp>",
        "#if __has_include(<wmma/grid.hpp>)\n#endif",
        "#if PASTED(__has_, include)(<wmma/grid.hpp>)\n#endif",
    ],
)
def test_others_may_be_anything(text):
    assert headers.includes(text, ()) is None


@pytest.mark.parametrize("options", [("-Ix",), ("-I", "x"), ("-include", "x"), ("-D", "X"), ("-DX=__has_include",)])
def test_so_may_what_options_bring(options):
    assert headers.includes("#include <wmma/grid.hpp>", options) is None


def test_a_header_of_the_system_may_include_any():
    assert headers.tree().digest(frozenset(["mine.hpp"])) == headers.tree().digest(None)
    assert headers.tree().digest(frozenset(["wmma/grid.hpp"])) != headers.tree().digest(None)
