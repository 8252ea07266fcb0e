"""python -m wmma_ops run, as a user types it."""

import json
import sys

import numpy as np
import pytest
import torch
from typed import typed
from user_kernels import HEAD, SCALE

from wmma_ops import jit
from wmma_ops.cli import values
from wmma_ops.jit import disassembler

PAIR = (
    HEAD
    + """
struct Pair { const float* from; int skip; float by; };
extern "C" __global__ void pair(float* x, Pair p, unsigned short* none) {
  x[threadIdx.x] = p.from[threadIdx.x + p.skip] * p.by + (none == nullptr);
}"""
)


@pytest.fixture
def scale(tmp_path):
    return _file(tmp_path, SCALE, "scale", "gfx942")


@pytest.fixture
def executed():
    if not disassembler.available():
        reason = f"no {disassembler.PACKAGE} here (pip install {disassembler.PACKAGE}): NO CODE OBJECT IS RUN"
        print(reason, file=sys.stderr)
        pytest.skip(reason)


def _file(folder, source, name, target):
    path = folder / f"{name}.co"
    path.write_bytes(jit.compile(source, target, name=f"{name}.hip").code)
    return str(path)


def test_lists_what_a_file_holds(scale, capsys):
    done = typed(capsys, "run", scale)
    assert done.returncode == 0, done.stderr
    assert "scale.co: gfx942, 1 kernel\n\nscale\n  takes  " in done.stdout
    assert "waves of 64, blocks of up to 1024" in done.stdout
    assert [line.split() for line in done.stdout.splitlines()[-4:]] == [
        "1 argument_1 pointer, at 0".split(), "2 argument_2 pointer, at 8".split(),
        "3 argument_3 4 bytes, at 16".split(), "4 argument_4 4 bytes, at 20".split(),
    ]  # fmt: skip
    (kernel,) = json.loads(typed(capsys, "run", scale, "--json").stdout)["kernels"]
    assert (kernel["kernel"], kernel["wave"], kernel["shared_bytes"]) == ("scale", 64, 0)
    assert kernel["arguments"][3] == {"name": "argument_4", "offset": 20, "size": 4, "pointer": False}


@pytest.mark.usefixtures("executed")
def test_runs_it_and_shows_and_saves_its_tensors(scale, capsys, tmp_path):
    np.save(tmp_path / "y.npy", np.arange(8, dtype=np.float32))
    given = ("f32[2,4]=nan", f"{tmp_path / 'y.npy'}", "i32:6", "f32:-0.5")
    options = ("--grid", "1", "--block", "64", "--save", str(tmp_path / "out"))
    done = typed(capsys, "run", scale, *given, *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("scale on gfx942, emulated: 1 waves, ")
    row = next(line for line in done.stdout.splitlines() if "argument_1" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        *("argument_1", "float32", "2x4", "6", "-2.5", "-0", "-1.25", "2", "-0 -0.5 -1 -1.5"),
    ]
    saved = np.load(tmp_path / "out/argument_1.npy")
    assert saved.shape == (2, 4)
    assert saved.flatten()[:6].tolist() == [0, -0.5, -1, -1.5, -2, -2.5]
    # The same behind the options, by name, as JSON.
    named = [f"argument_{number}={text}" for number, text in enumerate(given, 1)]
    done = typed(capsys, "run", scale, *options[:4], "--target", "gfx942", "--json", *named[::-1])
    found = json.loads(done.stdout)
    assert (found["kernel"], found["emulated"], found["executed"]["waves"]) == ("scale", True, 1)
    by_name = {row["name"]: row for row in found["tensors"]}
    assert (by_name["argument_1"]["changed"], by_name["argument_1"]["nan"], by_name["argument_2"]["changed"]) == (
        6,
        2,
        0,
    )


@pytest.mark.usefixtures("executed")
def test_structs_null_and_bytes(capsys, tmp_path):
    path = _file(tmp_path, PAIR, "pair", "gfx1201")
    done = typed(
        capsys, "run", path, "f32[32]", "struct(f32[40]=arange, i32:3, f32:2)", "null", "--grid", "1", "--block", "32"
    )
    assert done.returncode == 0, done.stderr
    assert "7 9 11 13" in done.stdout
    assert "argument_2.0" in done.stdout


@pytest.mark.usefixtures("executed")
def test_prints_the_instructions(scale, capsys):
    done = typed(capsys, "run", scale, "--assembly")
    assert "\tglobal_store_dword " in done.stdout
    assert "scale:\n\ts_load" in done.stdout


BAD = [
    (("--target", "gfx950"), 2, "is for gfx942, and gfx950 was asked for"),
    (("--target", "RTX 4090"), 2, "code objects are AMD's, and RTX 4090 was asked for, which is NVIDIA's"),
    (("f32[8]",), 2, "arguments came without --grid"),
    (("f32[8]", "--grid", "1"), 2, "no --block came"),
    (("f32[8]", "--grid", "1", "--block", "64"), 2, "no argument_2, argument_3, argument_4 among the arguments; takes"),
    (("f32[8]", "x", "--grid", "1", "--block", "64"), 2, "'x' is no argument; takes NUMBER as i32:5"),
    (("f32[8]", "f99[8]", "--grid", "1", "--block", "64"), 2, "f99 is no type; takes f16, bf16"),
    (("f32[8]", "u8[8]=nan", "--grid", "1", "--block", "64"), 2, "nan is no value of u8"),
    (("f32[8]", "f32[8]=two", "--grid", "1", "--block", "64"), 2, "'two' fills none; takes random, zeros"),
    (("f32[8]", "none.npy", "--grid", "1", "--block", "64"), 2, "No such file"),
    (("f32[8]", "i8:200", "--grid", "1", "--block", "64"), 2, "takes -128 to 127"),
    (
        ("f32[8]", "f32[8]", "i64:8", "f32:1", "--grid", "1", "--block", "64"),
        2,
        "argument_3 has 8 bytes; 4 bytes has 4",
    ),
    (("f32[999999999999]", "--grid", "1", "--block", "64"), 2, "takes tensors up to"),
    (("--kernel", "two"), 2, "'two' is not in the compiled code"),
    (("--grid", "0"), 2, "'0' is no size"),
    (("--grid", "1x1x1x1"), 2, "takes one to three sizes"),
    (("--gird", "1"), 2, "unrecognized arguments: --gird 1"),
    (("f32[8]", "f32[8]", "i32:64", "f32:1", "--grid", "1", "--block", "64"), 1, "is outside every tensor"),
]


@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize(("given", "code", "text"), BAD, ids=[text for *_, text in BAD])
def test_bad_input_ends_in_one_line(given, code, text, scale, capsys):
    done = typed(capsys, "run", scale, *given)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", values.TYPES)
def test_values_of_every_type(kind, tmp_path):
    dtype = values.TYPES[kind]
    for fill, numbers in (("ones", [1, 1, 1]), ("arange", [0, 1, 1 if kind == "bool" else 2]), ("1", [1, 1, 1])):
        found = values.read(f"{kind}[3]={fill}")
        assert (found.dtype, found.double().tolist()) == (dtype, numbers)
    random = [values.read(f"{kind}[4,5]=random", "cpu", torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    as_bytes = [x.view(torch.uint8) for x in random]
    assert torch.equal(as_bytes[0], as_bytes[1])
    assert not torch.equal(as_bytes[0], as_bytes[2])
    number = values.read(f"{kind}:1")
    content = number if isinstance(number, bytes) else number.tobytes()
    assert content == bytes(values.read(f"{kind}[1]=ones").view(torch.uint8).tolist())
    np.save(tmp_path / "x.npy", values.saved(random[0]))
    assert torch.equal(values.read(f"{kind}:{tmp_path / 'x.npy'}").view(torch.uint8), as_bytes[0])


@pytest.mark.usefixtures("executed")
def test_tells_how_long_it_takes(scale, capsys, tmp_path):
    arguments = ("f32[128]", "f32[128]=random", "i32:128", "f32:0.5", "--grid", "2", "--block", "64")
    picture = tmp_path / "scale.svg"
    done = typed(capsys, "run", scale, *arguments, "--time", "--draw", str(picture))
    assert done.returncode == 0, done.stderr
    assert "kernel    scale: one compute unit has 2 blocks of 2 at once, 2 waves" in done.stdout
    assert "bound by  loads from memory that are waited for" in done.stdout
    assert "global_load_dword" not in done.stdout
    assert "global_load_dword" in typed(capsys, "run", scale, *arguments, "--time", "--assembly").stdout
    assert "scale" in picture.read_text(encoding="utf-8")
    told = json.loads(typed(capsys, "run", scale, *arguments, "--time", "--json").stdout)
    assert told["timing"]["cycles"] > 600
    assert "timing" not in json.loads(typed(capsys, "run", scale, *arguments, "--json").stdout)
    refused = typed(capsys, "run", scale, *arguments, "--draw", "scale.jpg")
    assert (refused.returncode, "pictures end in .png or .svg" in refused.stderr) == (2, True)
