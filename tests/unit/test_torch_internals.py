"""What is no part of torch's interface is named in one module, and nothing fails where it is gone."""

import ast
import functools
import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import wmma_ops
from wmma_ops import torch_internals

ROOT = Path(wmma_ops.__file__).parent
SUPPORT = Path(__file__).parents[1] / "support"
HOLDS_THEM = "wmma_ops.torch_internals"

# ------------------------------------------------------------------------------------------- who names what is private
#
# Private is what torch writes with one underscore in front, in any part of a dotted name, be it imported, reached as an
# attribute, or spelled out in a text. Not so are our own ops (torch.ops.wmma._load), what torch keeps under another
# library's name, and names that Python's own library documents with an underscore.

OUR_OPS = re.compile(r"torch\.ops\.(wmma|wmma_raw)\.")
DOCUMENTED = {"_replace", "_asdict", "_fields", "_make"}  # of named tuples
LAYERS = (nn.Linear, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
OBJECTS = (torch, torch._C, torch.Tensor, torch.ops.aten.relu.default, torch.fx.Node, torch.autograd.forward_ad,
           *(layer(1, 1) for layer in LAYERS))  # fmt: skip
TORCHS = {name for one in OBJECTS for name in dir(one)}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def sources() -> dict[str, Path]:
    """The modules of the package by name."""
    names = {".".join(("wmma_ops", *path.relative_to(ROOT).with_suffix("").parts)): path for path in ROOT.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


SOURCES = sources()


@functools.cache
def tree(name: str) -> ast.Module:
    return ast.parse(SOURCES[name].read_text(encoding="utf-8"))


@functools.cache
def own_names() -> set[str]:
    """What the package itself defines."""
    found = set()
    for node in (node for name in SOURCES for node in ast.walk(tree(name))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def private_uses(tree: ast.Module, own: set[str]) -> list[str]:
    """The private names of torch's that a module uses, each with its line."""
    found, bound = [], {}
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(one.asname or one.name.split(".")[0], one.name) for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(one.asname or one.name, f"{node.module}.{one.name}") for one in node.names]
        else:
            continue
        for name, full in names:
            if full.split(".")[0] == "torch":
                bound[name] = full if isinstance(node, ast.ImportFrom) or node.names[0].asname else "torch"
                if any(map(is_private, full.split("."))):
                    found.append((node.lineno, full))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            text = ast.unparse(node)
            root, _, rest = text.partition(".")
            full = f"{bound[root]}.{rest}" if root in bound else ""
            ours = OUR_OPS.match(full) if full else (node.attr in own or node.attr in DOCUMENTED)
            if not ours and (full or node.attr in TORCHS):
                found.append((node.lineno, full or text))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            spelled = re.search(r"\btorch(\.\w+)*[.:]_[a-zA-Z]\w*", node.value)
            if spelled and not OUR_OPS.match(spelled[0]):
                found.append((node.lineno, spelled[0]))
            elif is_private(node.value) and node.value in TORCHS and node.value not in own:
                found.append((node.lineno, node.value))
    return [f"line {line}: {text}" for line, text in sorted(set(found))]


IN_ONE = pytest.mark.xdist_group("sources of the package")  # one worker reads them


@IN_ONE
@pytest.mark.parametrize("name", sorted(SOURCES.keys() - {HOLDS_THEM}))
def test_no_other_module_uses_a_private_name_of_torchs(name):
    assert private_uses(tree(name), own_names()) == []


@IN_ONE
@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch._dynamo", "torch._dynamo"),
        ("from torch._inductor import config", "torch._inductor.config"),
        (
            "from torch.utils._python_dispatch import TorchDispatchMode",
            "torch.utils._python_dispatch.TorchDispatchMode",
        ),
        ("from torch.autograd.function import _SingleLevelFunction", "torch.autograd.function._SingleLevelFunction"),
        ("import torch\nx = torch._C._is_tracing()", "torch._C._is_tracing"),
        ("import torch\ntorch._check(True)", "torch._check"),
        ("import torch.autograd.forward_ad as ad\nad._current_level", "torch.autograd.forward_ad._current_level"),
        ("from torch import fx\nfx._symbolic_trace", "torch.fx._symbolic_trace"),
        ("import torch\ntorch.ops.aten._int_mm", "torch.ops.aten._int_mm"),
        ("def f(call):\n    return call._schema", "call._schema"),
        ("def f(self):\n    return self._modules", "self._modules"),
        ("import torch\nx = getattr(torch, '_native_multi_head_attention')", "_native_multi_head_attention"),
        ("x = 'torch._subclasses.'", "torch._subclasses"),
        ("METHODS = ('forward', '_sa_block')", "_sa_block"),
    ],
)
def test_private_names_are_found(source, found):
    assert found in "\n".join(private_uses(ast.parse(source), own_names()))


@IN_ONE
@pytest.mark.parametrize(
    "source",
    [
        '"""Of torch._dynamo."""\nfrom torch import nn\nnn.Linear',
        "import torch\ntorch.ops.wmma._load\ntorch.__version__",
        "from wmma_ops import x\nx._replace(y=1)\nx._own",
    ],
)
def test_public_names_pass(source):
    assert private_uses(ast.parse(source), own_names()) == []


def test_no_other_class_overrides_what_is_private_to_torchs():
    importlib.import_module("wmma_ops.distributed")
    found = []
    for name, module in list(sys.modules.items()):
        if not name.startswith("wmma_ops") or name == HOLDS_THEM:
            continue
        for _, kind in inspect.getmembers(module, inspect.isclass):
            bases = [base for base in kind.__mro__ if base.__module__.split(".")[0] == "torch"]
            if kind.__module__.startswith("wmma_ops") and kind.__module__ != HOLDS_THEM:
                found += [
                    f"{kind.__module__}.{kind.__name__}.{member}"
                    for member in vars(kind)
                    if is_private(member) and any(member in vars(base) for base in bases)
                ]
    made = ("._abc_impl", "._backward_cls")  # by Python's metaclass of abstract classes and torch's of Functions
    assert [one for one in found if not one.endswith(made)] == []


@pytest.mark.parametrize("path", sorted((ROOT / "csrc").rglob("*.?pp")), ids=lambda path: path.name)
def test_no_other_source_looks_for_torchs_symbols(path):
    """What the C++ library looks for by its name at run time stands in one header; drivers look for their own."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(r"_ZN\w+|lib(?:torch|c10)\w*\.so|__attribute__\(\(weak\)\)|\"mkldnn::\w+|\"aten::_\w+", text)
    assert path.name == "torch_internals.hpp" or found == []


# ------------------------------------------------------------------------------------------------ where they are gone


def release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@pytest.mark.parametrize("internal", torch_internals.INTERNALS, ids=lambda internal: internal.name)
def test_says_what_it_is_for_and_in_which_releases_it_is(internal):
    assert len(internal.use) > 20
    first, last = map(release, internal.seen)
    if first <= release(torch.__version__) <= last:
        for path in internal.paths:
            pkgutil.resolve_name(path)
        assert internal.is_there()


def test_of_modules_without_their_dictionaries():
    activation = nn.ReLU()
    twice = nn.Sequential(activation, nn.Linear(2, 2), activation)
    assert not torch_internals.has_hooks(twice)
    assert torch_internals.has_hooks(SimpleNamespace())
    assert torch_internals.children(SimpleNamespace(named_modules=twice.named_modules)) == twice._modules
    assert torch_internals.children(twice) == twice._modules


def outcomes_without(*names: str) -> dict[str, str]:
    script = SUPPORT / "without_internals.py"
    done = subprocess.run([sys.executable, script, *names], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.full
def test_all_is_right_without_any_of_them():
    assert outcomes_without("every name") == {"every name": "right"}


@pytest.fixture(scope="module")
def outcomes(request):
    """Of the names whose tests run, in one process."""
    tests = [item for item in request.session.items if item.originalname == "test_all_is_right_without_one_of_them"]
    return outcomes_without(*(item.callspec.params["name"] for item in tests))


@pytest.mark.full
@pytest.mark.xdist_group("without internals")  # one worker tries them
@pytest.mark.parametrize("name", [internal.name for internal in torch_internals.INTERNALS])
def test_all_is_right_without_one_of_them(outcomes, name):
    assert outcomes[name] == "right"


SYMBOLS = {
    "_ZN2at13globalContextEv": """
torch.set_float32_matmul_precision("medium")
x = torch.randn(64, 64)
assert wmma_ops.explain("matmul", x, x, target="gfx942").config.element == torch.bfloat16
torch.set_float32_matmul_precision("highest")
assert wmma_ops.explain("matmul", x, x, target="gfx942").config.element == torch.float32
""",
    "_ZN2at4_ops13_assert_async4callERKNS_6TensorE": """
def interrupted(x):
    if x.shape == (3, 3): raise KeyboardInterrupt("stop")
    return x
wmma_ops.register_activation("stopped", device="x", forward=interrupted, derivative=torch.ones_like)
try:
    wmma_ops.linear(torch.ones(3, 3), torch.ones(3, 3), activation="stopped")
except KeyboardInterrupt as error:
    assert str(error) == "wmma.linear: stop"
else:
    raise AssertionError("it was not interrupted")
""",
    "aoti_torch_cpu__linear_pointwise": """
x, weight = (torch.randn(n, 32).bfloat16() for n in (8, 16))
expected = torch.nn.functional.gelu(x.float() @ weight.float().mT)
torch.testing.assert_close(wmma_ops.linear(x, weight, activation="gelu").float(), expected, rtol=2**-7, atol=2**-7)
""",
}


@pytest.fixture(scope="module")
def without_symbols(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to build what hides symbols")
    library = tmp_path_factory.mktemp("symbols") / "libwithout_symbols.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SUPPORT / "without_symbols.c", "-ldl"], check=True)
    return library


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_the_library_is_right_without_a_symbol(without_symbols, symbol):
    environment = {**os.environ, "LD_PRELOAD": str(without_symbols), "WITHOUT_SYMBOLS": symbol}
    program = f"import torch, wmma_ops\n{SYMBOLS[symbol]}"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"gone: {symbol}" in done.stderr
