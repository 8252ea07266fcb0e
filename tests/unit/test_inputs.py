"""What compilations read beside their source: headers of users' own, by whichever way they come, are never an old copy."""

import pytest
from compiler_sources import EMPTY, STORES, forget, text_of

from wmma_ops import jit
from wmma_ops.jit import build, clang, inputs, kernels_dir

pytestmark = pytest.mark.usefixtures("cache_folder")

# Ways to have {0} read, a header in folder {1}, of which no pattern over the source's text knows all.
INCLUDES = {
    "plainly": '#include "{0}"\n',
    "by a macro": '#define HEADER "{0}"\n#include HEADER\n',
    "behind a comment": '/* first */ #include "{0}"\n',
    "with a comment within": '# /**/ include /**/ "{0}"\n',
    "with a digraph": '%:include "{0}"\n',
    "imported": '#import "{0}"\n',
    "next": '#include_next "{0}"\n',
    "continued": '#incl\\\nude "{0}"\n',
    "up and down": '#include "{1}/../{2}/value.hpp"\n',
    "of a header": '#include "{1}/outer.hpp"\n',
}
OPTIONS = {
    "-I": ("-I{1}",),
    "-I apart": ("-I", "{1}"),
    "-isystem": ("-isystem", "{1}"),
    "-iquote": ("-iquote{1}",),
}


@pytest.fixture
def header(tmp_path):
    """A header of a folder that has one more, which includes it."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "outer.hpp").write_text('#include "value.hpp"\n')
    (folder / "value.hpp").write_text("#define VALUE 1.0f\n")
    return folder / "value.hpp"


def _seen(compilations, header, source, options=(), target="gfx942"):
    """That a source is compiled again when the header has changed, and only then."""
    source = source.format(header, header.parent, header.parent.name) + STORES
    options = tuple(option.format(header, header.parent) for option in options)

    def text():
        forget()
        code = jit.compile(source, target, options=options)
        assert jit.compile(source, target, options=options) == code
        return text_of(code.code)

    first = text()
    assert text() == first
    assert compilations() == 1
    header.write_text("#define VALUE 2.0f\n")
    second = text()
    assert second != first
    assert text() == second
    assert compilations() == 2


@pytest.mark.parametrize("way", INCLUDES)
def test_a_header_that_changed_is_read_again(way, header, compilations):
    _seen(compilations, header, INCLUDES[way])


@pytest.mark.parametrize("way", OPTIONS)
def test_so_is_one_in_a_folder_of_an_option(way, header, compilations):
    _seen(compilations, header, '#include "value.hpp"\n', OPTIONS[way])


def test_so_is_one_that_an_option_includes(header, compilations):
    _seen(compilations, header, "", ("-include", "{0}"))


def test_in_memory_too(header, compilations):
    source = f'#include "{header}"\n{STORES}'
    code = jit.compile(source, "gfx942")
    assert jit.compile(source, "gfx942") is code
    header.write_text("#define VALUE 2.0f\n")
    assert jit.compile(source, "gfx942") != code
    header.unlink()
    with pytest.raises(jit.CompileError, match="file not found"):
        jit.compile(source, "gfx942")


def test_and_what_is_embedded(tmp_path, compilations):
    data = tmp_path / "data"
    source = f'__attribute__((device)) const char x[] = {{\n#define D "{data}"\n#embed D\n}};\n' + EMPTY.replace(
        "empty() {}", "first(int* y) { *y = x[0]; }"
    )
    found = []
    for content in ("1", "1", "2"):
        data.write_text(content)
        forget()
        found.append(jit.compile(source, "gfx942").code)
    assert found[0] == found[1] != found[2]
    assert compilations() == 2


def test_a_machine_without_a_compiler_has_no_old_copy_either(header, monkeypatch):
    source = f'#include "{header}"\n{STORES}'
    code = jit.compile(source, "gfx942")
    forget()
    monkeypatch.setattr(build, "_FOR", {"gfx": ("clang",), "sm_": ("nvrtc",)})
    monkeypatch.setattr(clang, "_candidates", tuple)
    assert jit.compile(source, "gfx942") == code
    header.write_text("#define VALUE 2.0f\n")
    with pytest.raises(jit.CompileError, match="pip install ziglang"):
        jit.compile(source, "gfx942")


@pytest.mark.parametrize("place", ["before", "beside"])
def test_a_header_that_comes_before_is_found(place, header, tmp_path, compilations):
    """In a folder that is looked in earlier, or beside the header that includes it."""
    (tmp_path / "early").mkdir()
    (tmp_path / "early/outer.hpp").write_text('#include "deep/value.hpp"\n')
    (header.parent / "deep").mkdir()
    header.rename(header.parent / "deep/value.hpp")
    options = (f"-I{tmp_path}/early", f"-I{header.parent}")
    source = f'#include "{"deep/value.hpp" if place == "before" else "outer.hpp"}"\n{STORES}'
    first = jit.compile(source, "gfx942", options=options)
    (tmp_path / "early/other.hpp").touch()
    assert jit.compile(source, "gfx942", options=options) is first
    (tmp_path / "early/deep").mkdir()
    (tmp_path / "early/deep/value.hpp").write_text("#define VALUE 2.0f\n")
    assert text_of(jit.compile(source, "gfx942", options=options).code) != text_of(first.code)
    assert compilations() == 2


def test_one_that_changes_while_it_is_compiled_is_not_kept(header, monkeypatch, compilations):
    source = f'#include "{header}"\n{STORES}'
    listed = inputs.of_list

    def meanwhile(*arguments):
        header.write_text("#define VALUE 2.0f\n")
        return listed(*arguments)

    with monkeypatch.context() as changing:
        changing.setattr(inputs, "of_list", meanwhile)
        old = jit.compile(source, "gfx942")
    assert old.inputs is None
    assert text_of(jit.compile(source, "gfx942").code) != text_of(old.code)
    assert compilations() == 2


UNTOLD = {
    "what may come": ('#if __has_include("/nowhere/x.hpp")\n#error x\n#endif\n', ()),
    "what may come, pasted": ('#define P(a, b) a##b\n#if P(__has, _include)("/nowhere/x.hpp")\n#error\n#endif\n', ()),
    "what may come, continued": ('#if __has_\\\ninclude("/nowhere/x.hpp")\n#error\n#endif\n', ()),
    "what may come, by an option": ('#if ASK("/nowhere/x.hpp")\n#error\n#endif\n', ("-DASK=__has_include",)),
    "what may be embedded": ('#if __has_embed("/nowhere/x")\n#error\n#endif\n', ()),
    "what assembly reads": (
        'extern "C" __attribute__((global)) void f() { asm volatile(".IncBin \\"/dev/null\\""); }\n',
        (),
    ),
    "what assembly makes": (
        'extern "C" __attribute__((global)) void f() { asm volatile(".irp x, bin\\n.inc\\\\x \\"/dev/null\\"\\n.endr"); }\n',
        (),
    ),
    "an option for the front end": ("", ("-Xclang", "-disable-llvm-passes")),
    "an option that nobody knows": ("", ("--save-temps",)),
    "a folder below the compilation's own": ("", ("-Iheaders",)),
    "a module of LLVM's": ("", ("-fno-lto", "-fprofile-list=/dev/null")),
}


@pytest.mark.parametrize("what", UNTOLD)
def test_what_no_list_tells_of_is_not_kept(what, compilations, cache_folder):
    source, options = UNTOLD[what]
    for _ in range(2):
        assert "empty" in jit.compile(source + EMPTY, "gfx942", options=options).kernels
    assert compilations() == 2
    assert not list(cache_folder.rglob("*.wmma"))


def test_without_a_list_nothing_is_kept(compilations, monkeypatch):
    monkeypatch.setattr(clang, "_listing", lambda file: ())
    for _ in range(2):
        assert jit.compile(EMPTY, "gfx942").inputs is None
    assert compilations() == 2


def test_a_header_that_asks_is_not_kept(header, compilations, tmp_path):
    header.write_text(
        f'#if __has_include("{tmp_path}/later.hpp")\n#define VALUE 2.f\n#else\n#define VALUE 1.f\n#endif\n'
    )
    found = []
    for _ in range(2):
        found.append(text_of(jit.compile(f'#include "{header}"\n{STORES}', "gfx942").code))
        (tmp_path / "later.hpp").touch()
    assert found[0] != found[1]


def test_a_path_relative_to_where_it_is_compiled_is_not_kept(tmp_path, monkeypatch, compilations):
    (tmp_path / "value.hpp").write_text("#define VALUE 1.0f\n")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for _ in range(2):
        assert jit.compile(f'#include "../../value.hpp"\n{STORES}', "gfx942").inputs is None
    assert compilations() == 2


def test_options_that_change_no_input_are_kept(compilations):
    for options in (
        ("-DX=/y",),
        ("-ffast-math", "-O2"),
        ("-mllvm", "-amdgpu-early-inline-all=true"),
        ("-std=c++20", "-g0"),
    ):
        count = compilations()
        for _ in range(2):
            jit.compile(EMPTY, "gfx942", options=options)
        assert compilations() == count + 1, options


def test_our_own_kernels_list_nothing():
    """To look one up costs no file beside the entry."""
    source = "#include <wmma/fragment.hpp>\n#include <cmath>\n#include <vector>\n" + EMPTY
    assert jit.compile(source, "gfx942").inputs == inputs.Inputs()
    assert jit.compile(source, "sm_80").inputs == inputs.Inputs()


def test_headers_without_a_suffix_are_device_sources(compilations):
    source = "#include <limits>\n" + EMPTY
    jit.compile(source, "gfx942")
    path = kernels_dir.PATH / "compat/limits"
    path.write_text(path.read_text() + "#define MORE\n")
    jit.compile(source, "gfx942")
    assert compilations() == 2


# ------------------------------------------------------------------------------------------- compilers without a list


@pytest.mark.parametrize(
    "way", [way for way in INCLUDES if way not in ("imported", "of a header")]
)  # which NVRTC refuses
def test_nvrtc_reads_what_is_not_ours_each_time(way, header):
    source = INCLUDES[way].format(header, header.parent, header.parent.name) + STORES
    source = source.replace("__attribute__((global))", "__global__")
    found = []
    for value in ("1.0f", "2.0f"):
        header.write_text(f"#define VALUE {value}\n")
        found.append(jit.compile(source, "sm_80"))
    assert [code.inputs for code in found] == [None, None]
    assert found[0].assembly != found[1].assembly


@pytest.mark.parametrize(
    "options", [("-I/tmp",), ("--include-path=/tmp",), ("--pre-include=x.h",), ("-include", "x.h"), ("--pch",)]
)
def test_nor_what_options_bring_it(options):
    assert inputs.folders(options, listed=False) is None


OURS = "#include <wmma/fragment.hpp>\n"
TOLD = {
    OURS: True,
    f"// we include what we need\n/* #import */ {OURS}": True,
    '#include "wmma/types.hpp" // of the device library\n  #  include\t<cmath>\n': True,
    "int x = 1'000; // '\n" + OURS: True,
    "#include <wmma/nothing.hpp>\n": False,
    "#include </etc/passwd>\n": False,
    "#include <../kernels/wmma/types.hpp>\n": False,
    "#include <wmma/types.hpp> M\n": False,
    'const char* x = "/*";\n#include M\n// */\n': False,
    "int x = 1'0, y = '\"', *z = \"/*\";\n#include M\n// */\n": False,
    'char x[] = R"(/*)";\n#include M\n// */\n': False,
    '#if 0\n" /*\n#endif\n#include M\n// */\n': False,
    "int $1'0', *y = \"/*\";\n#include M\n// */\n": False,
    "// ??/\n#include M\n": False,
    "// \\\n#include M\n": True,  # it is the comment's
    "??=include M\n": False,
    "#embed M\n": False,
    "#if __has_include(M)\n#endif\n": False,
}  # fmt: skip


@pytest.mark.parametrize("source", TOLD)
def test_what_a_text_tells(source):
    found = inputs.of_text(source, ())
    assert found == (inputs.Inputs() if TOLD[source] else None)
    assert inputs.of_text(f'{source}\nvoid f() {{ asm(""); }}', (), without=("asm",)) is None


def test_a_rule_of_make_is_read():
    names = ["/a b/c.hpp", "/a#b", "/a$b", "/d.hpp"]
    rule = "_: kernel.hip /a\\ b/c.hpp \\\n  /a\\#b /a$$b \\\n  /d.hpp\n"
    assert list(inputs._paths(rule)) == ["kernel.hip", *names]


def test_the_list_is_clangs_own(tmp_path):
    """Of names that a rule has to quote, too."""
    for name in ("a b.hpp", "a#b.hpp", "a$b.hpp"):
        (tmp_path / name).touch()
        code = jit.compile(f'#include "{tmp_path}/{name}"\n{EMPTY}', "gfx942")
        assert [path for path, _ in code.inputs.files] == [f"{tmp_path}/{name}"]
