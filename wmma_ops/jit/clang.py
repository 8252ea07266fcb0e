"""clang for AMD targets: the one inside PyPI's ziglang, with which all is proven; else ROCm's, else the system's.

WMMA_OPS_CLANG names another, which is then the only one. Three explicit steps (to assembly, assemble, link), because
ziglang's driver cannot link and because the assembly is wanted: the emulator and the static figures read it.
"""

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wmma_ops.jit import cache, elf, files, inputs, kernels_dir
from wmma_ops.jit.compiler import CodeObject, CompileError

ASKED = "WMMA_OPS_CLANG"  # names a clang, by its path or as a command
PINNED = "ziglang==0.17.1"  # as pyproject.toml has it
_OLDEST = 19  # of the system's clang: older ones lack half of the targets
# What was shown to be right with which version, as its first words.
_BY_HALVES = (
    "values on emulated targets, kernels as people write them, and the limits of `report`, by make test-compilers"
)
_PROVEN = {
    "22.1.8 (ziglang 0.17.1)": "all tests, and the limits of `python -m wmma_ops report`",
    "22.1.8 ": _BY_HALVES,
    "ROCm 7.2.2": _BY_HALVES,  # tests/support/rocm_llvm.py
    "19.1.7 ": f"{_BY_HALVES}; it spills registers on CDNA, and does not know gfx950 and gfx1250",
}
_BECAUSE = {
    "asked": f"{ASKED} names it",
    "ziglang": f"PyPI's ziglang comes before ROCm's and the system's clang; {ASKED} names another",
    "rocm": f"there is no ziglang here (`pip install {PINNED}`); ROCm's comes before the system's",
    "system": f"there is neither ziglang (`pip install {PINNED}`) nor ROCm's clang here",
}
_NAME = re.compile(r"clang(?:-(\d+))?")
_PATIENCE = 60  # seconds for a probe
# Sums in whichever registers are free. ROCm 7.2's compiler has them all in AGPRs where a kernel takes more than 256
# registers, and moves scores out of there and weights in; LLVM from 22.1 on does as this says by itself, and the oldest
# do not know it.
_SUMS_ANYWHERE = ("-mllvm", "-amdgpu-mfma-vgpr-form=1")
# clang reads these: what they hold is in no cache key.
_MEDDLING = re.compile(r"(C|CPLUS_INCLUDE_|C_INCLUDE_|OBJC_INCLUDE_)PATH|CCC_\w+|CLANG_\w+|HIP_\w+|COMPILER_PATH")


@dataclass(frozen=True)
class Toolchain:
    kind: str  # asked, ziglang, rocm or system
    clang: tuple[str, ...]
    lld: tuple[str, ...]
    version: str
    targets: frozenset[str]
    options: tuple[str, ...] = ()  # that it takes, of those which not every clang does

    @property
    def because(self) -> str:
        """Why this one comes first."""
        return _BECAUSE[self.kind]

    @property
    def proven(self) -> str:
        """What was shown to be right with it."""
        found = next((what for version, what in _PROVEN.items() if self.version.startswith(version)), None)
        return found or f"nothing; all tests run with {PINNED}"

    def __str__(self) -> str:
        return f"{self.version}, {self.clang[0]}"


class Clang:
    name = "clang"
    lists = True
    flags = (
        "-O3",
        "-std=c++17",
        "-x",
        "hip",
        "--offload-device-only",
        "-nogpuinc",
        "-nogpulib",
        "-mcode-object-version=5",  # the newest that every ROCm from 6.0 on loads
        "-gline-tables-only",  # .loc lines for the emulator; the instructions are the same without
        "-ffile-compilation-dir=.",  # this and the next: the same bytes wherever it is compiled
        "-fuse-cuid=none",
        "-S",
    )

    def available(self, target: str) -> bool:
        return _toolchain(target) is not None

    def version(self, target: str) -> str:
        return toolchain(target).version

    def compile(self, source: str, target: str, options: tuple[str, ...], name: str) -> CodeObject:
        tools = toolchain(target)
        kernels = kernels_dir.PATH
        with files.temporary() as folder:
            # The source lies alone in its folder, so that #include "…" finds nothing by accident.
            (sources := Path(folder, "source")).mkdir()
            (sources / name).write_text(source, encoding="utf-8")
            assembly, relocatable, linked, read = (Path(folder, f"kernel.{end}") for end in ("s", "o", "co", "d"))
            started = time.time_ns()

            def step(command: tuple[str, ...], *arguments: object) -> str:
                try:
                    done = subprocess.run(
                        [*command, *map(str, arguments)],
                        cwd=sources,
                        env=_environment(folder),
                        stdin=subprocess.DEVNULL,
                        capture_output=True,
                        text=True,
                        errors="replace",
                    )
                except OSError as error:
                    raise self._error(f"{command[0]} does not start: {error}", target, tools) from error
                if done.returncode:
                    log = done.stderr.strip() or f"{command[0]} ended with {done.returncode} and no message"
                    log = _in_source(log.replace(f"{folder}/", ""), assembly)
                    raise self._error(f"{name} does not compile for {target}", target, tools, log)
                return done.stderr.strip()

            log = step(
                tools.clang,
                *self.flags,
                *tools.options,
                f"--offload-arch={target}",
                f"-ffile-prefix-map={kernels}=kernels",
                "-I",
                kernels,
                *options,
                "-I",
                kernels / kernels_dir.COMPAT,
                *_listing(read),
                name,
                "-o",
                assembly,
            )
            # -mcpu wants the features too (gfx90a:xnack-): they are part of the target that the assembly names.
            step(tools.clang, "--target=amdgcn-amd-amdhsa", f"-mcpu={target}", "-c", assembly, "-o", relocatable)
            step(tools.lld, "-shared", "--no-undefined", relocatable, "-o", linked)
            code, text = linked.read_bytes(), assembly.read_text(encoding="utf-8")
            return CodeObject(
                target=target,
                compiler=f"{self.name} {tools.version}",
                code=code,
                assembly=text,
                log=log,
                kernels=elf.kernels(code),
                inputs=inputs.of_list(read, sources, source, options, text, started),
            )

    def _error(self, message: str, target: str, tools: Toolchain, log: str = "") -> CompileError:
        compiler = f"{self.name} {tools.version}"
        return CompileError(f"{message} ({compiler}):" if log else message, target=target, compiler=compiler, log=log)


def _listing(file: Path) -> Iterator[object]:
    """Has all files that it reads listed there, the system's too; the driver passes -MD to no device's compilation."""
    for option in ("-dependency-file", file, "-sys-header-deps", "-MT", "_"):
        yield from ("-Xclang", option)


def _none_for(target: str) -> str:
    """Why there is no clang for it, and what to do."""
    known = ", ".join(tools.version for tools in toolchains())
    ignorant = f"{known} does not know it" if known else ""
    if asked := os.environ.get(ASKED):
        command = shutil.which(asked)
        absent = "there is no such command" if not command else "" if _lld(command, None) else "it has no ld.lld"
        why = absent or ignorant or "it does not run"
        return f"the clang that {ASKED} names, {asked}, does not compile for {target}: {why}"
    return (
        f"no clang here compiles for {target}{ignorant and '; '}{ignorant}. `pip install {PINNED}` brings one that does "
        f"(ROCm's, or a system clang {_OLDEST} or later with lld, serves as well)"
    )


def _in_source(log: str, assembly: Path) -> str:
    """Inline assembly is read by the second step: its errors name lines of kernel.s, which .loc leads back to ours."""
    if "kernel.s:" not in log:
        return log
    files, place, places = {}, None, []
    for line in assembly.read_text(encoding="utf-8").splitlines():
        if file := re.match(r'\s*\.file\s+(\d+) (?:".*" )?"(.*?)"', line):
            files[file[1]] = file[2]
        elif loc := re.match(r"\s*\.loc\s+(\d+) (\d+)", line):
            place = f"{files.get(loc[1], 'kernel')}:{loc[2]}"
        places.append(place)
    return re.sub(
        r"^kernel\.s:(\d+):\d+(?=:)", lambda found: places[int(found[1]) - 1] or found[0], log, flags=re.MULTILINE
    )


def toolchain(target: str) -> Toolchain:
    """The one that compiles for `target`."""
    if found := _toolchain(target):
        return found
    raise CompileError(_none_for(target), target=target, compiler=Clang.name)


def _toolchain(target: str) -> Toolchain | None:
    base = target.split(":")[0]
    for _ in range(2):
        if found := next((tools for tools in _probed() if base in tools.targets), None):
            return found
        _search.cache_clear()  # one may have come since, or have moved
    return None


def toolchains() -> list[Toolchain]:
    """Those that work here, best first."""
    return list(_probed())


def _probed() -> Iterator[Toolchain]:
    for kind, clang, lld in _candidates():
        if (files := _identity(clang, lld)) and (tools := _probe(kind, clang, lld, files)):
            yield tools


def _identity(clang: tuple[str, ...], lld: tuple[str, ...]) -> tuple | None:
    """What tells that these binaries are those that were probed; None where one is gone."""
    try:
        return tuple((found.st_size, found.st_mtime_ns, found.st_ino) for found in map(os.stat, (clang[0], lld[0])))
    except OSError:
        return None


def _candidates() -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    """(kind, clang, lld): commands, best first. None has been started yet."""
    return _search(os.environ.get(ASKED), os.environ.get("ROCM_PATH"), os.environ.get("PATH"))


@functools.lru_cache(maxsize=8)
def _search(asked: str | None, rocm: str | None, path: str | None):
    if asked:
        clang = shutil.which(asked, path=path)
        lld = _lld(clang, path) if clang else None
        return (("asked", (clang,), (lld,)),) if lld else ()
    commands = []
    # The binary itself: starting it through `python -m ziglang` costs a Python start at each of the three steps.
    package = importlib.util.find_spec("ziglang")
    for folder in (package.submodule_search_locations or ()) if package else ():
        if zig := shutil.which("zig", path=folder):
            commands.append(("ziglang", (zig, "clang"), (zig, "ld.lld")))
    found = []
    for root in (rocm, "/opt/rocm"):
        if root and (clang := shutil.which("clang", path=f"{root}/llvm/bin")):
            found.append(("rocm", clang))
    found += [("system", clang) for clang in _clangs(path)]
    commands += [(kind, (clang,), (lld,)) for kind, clang in found if (lld := _lld(clang, path))]
    return tuple(commands)


def _clangs(path: str | None) -> list[str]:
    """Of PATH: clang, then those with a version in their name, the newest first. Each folder is read once: to ask for one
    name after the other costs the first call of a process hundreds of look-ups."""
    found: dict[int, str] = {}
    for folder in filter(None, (os.defpath if path is None else path).split(os.pathsep)):  # not the current one
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if (match := _NAME.fullmatch(name)) and (clang := shutil.which(name, path=folder)):
                    found.setdefault(-int(match[1] or 1_000_000), clang)
    return [clang for age, clang in sorted(found.items()) if -age >= _OLDEST]


def _lld(clang: str, path: str | None) -> str | None:
    """The linker that belongs to `clang`, else any."""
    _, dash, major = Path(clang).name.partition("-")
    for folder in (Path(clang).parent, Path(clang).resolve().parent):
        if found := shutil.which(f"ld.lld{dash}{major}", path=str(folder)) or shutil.which("ld.lld", path=str(folder)):
            return found
    return shutil.which(f"ld.lld{dash}{major}", path=path) or shutil.which("ld.lld", path=path)


@functools.lru_cache(maxsize=64)
def _probe(kind: str, clang: tuple[str, ...], lld: tuple[str, ...], files: tuple) -> Toolchain | None:
    """Version and targets. Asked once a binary, not once a process: the cache keeps the answer."""
    try:
        facts = cache.remember(clang[0], lambda: _ask(kind, clang), _is_answer)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    major = re.match(r"\d+", facts["version"])
    if kind == "system" and (not major or int(major[0]) < _OLDEST):
        return None
    options = _SUMS_ANYWHERE if facts["sums_anywhere"] else ()  # a file names no option
    return Toolchain(kind, clang, lld, facts["version"], frozenset(facts["targets"]), options)


def _ask(kind: str, clang: tuple[str, ...]) -> dict:
    with files.temporary() as folder:

        def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*clang, "-nogpulib", *arguments],
                cwd=folder,
                env=_environment(folder),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PATIENCE,
            )

        done = ask("--target=amdgcn-amd-amdhsa", "--print-supported-cpus")
        Path(folder, "empty.hip").touch()
        empty = ("--offload-device-only", "--offload-arch=gfx90a", "-nogpuinc", "-S", "empty.hip", "-o", "empty.s")
        takes_it = ask(*_SUMS_ANYWHERE, *empty).returncode == 0
    text = done.stdout + done.stderr
    version = re.search(r"clang version (.+)", text)
    if not version:
        raise ValueError(f"{clang[0]} does not say its version:\n{text}")
    package = ""
    if kind == "ziglang":
        import importlib.metadata

        package = f" (ziglang {importlib.metadata.version('ziglang')})"
    return {
        "version": version[1].strip() + package,
        "targets": re.findall(r"^\s+(gfx\w+)\s*$", text, re.MULTILINE),
        "sums_anywhere": takes_it,
    }


def _is_answer(kept: object) -> bool:
    """Whether what a file holds may be an answer of `_ask`."""
    if not isinstance(kept, dict) or kept.keys() != {"version", "targets", "sums_anywhere"}:
        return False
    version, targets = kept["version"], kept["targets"]
    return (
        isinstance(version, str)
        and version.isprintable()
        and 0 < len(version) <= 500
        and isinstance(targets, list)
        and all(isinstance(target, str) and re.fullmatch(r"gfx\w+", target, re.ASCII) for target in targets)
        and isinstance(kept["sums_anywhere"], bool)
    )


def _environment(folder: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not _MEDDLING.fullmatch(name)}
    # zig wants folders to write to, even for what leaves nothing there.
    return kept | {"LC_ALL": "C", "ZIG_GLOBAL_CACHE_DIR": f"{folder}/zig", "ZIG_LOCAL_CACHE_DIR": f"{folder}/zig"}
