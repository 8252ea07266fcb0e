"""Tries other releases of torch with the one library that is built: the oldest that is taken, and the newest that pip finds.

    python tests/torch_versions.py [--install] [2.10.0 | newest | …]

Each release gets an environment of its own, build/torch-RELEASE, in which the tests of the tier "torch" and the demo run on
this checkout. torch's wheels bring CUDA's packages, gigabytes: where they cannot be had, that is said on stderr, and the
release counts as not tried, not as failed. With --install they are fetched, and nothing is tried yet.
"""

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST, NEWEST = "2.10.0", "newest"
# Of the extra `test`: what the tier needs. The others bring models, and are tested with the torch that we build with.
TESTING = ("pytest", "pytest-benchmark", "pytest-xdist", "hypothesis", "ziglang", "ninja")
BUILDING = ("setuptools>=64", "wheel")  # derivatives in C++ are built for each torch


def packages() -> list[str]:
    """What the tier needs beside torch, as the package's metadata asks for it."""
    rows = [row.partition(";") for row in importlib.metadata.requires("wmma_ops")]
    base = [row for row, _, extra in rows if "extra" not in extra and not row.startswith("torch")]
    tests = [row for row, _, extra in rows if 'extra == "test"' in extra]
    return [*BUILDING, *base] + [row for row in tests if re.match(r"[\w-]+", row).group() in TESTING]


def environment(release: str) -> Path | None:
    """The interpreter of an environment with that torch; None where it cannot be had."""
    python = ROOT / "build" / f"torch-{release}" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
    torch = ["--upgrade", "torch"] if release == NEWEST else [f"torch=={release}"]
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile", "--retries", "2"]
    done = subprocess.run([*pip, *torch, *packages()], stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return python
    print(done.stderr, file=sys.stderr)
    print(f"WARNING: torch {release} could not be installed: NOTHING IS TESTED WITH IT IN THIS RUN", file=sys.stderr)
    return None


def tried(python: Path) -> bool:
    """Whether the tests and the demo pass there."""
    around = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [python, "-c", "import torch; print('torch', torch.__version__, flush=True)"], env=around, check=True
    )
    build = [python, "setup.py", "-q", "build_ext", "--inplace", "--build-temp", python.parents[1] / "objects"]
    subprocess.run(build, env=around | {"WMMA_OPS_BUILD": "nodes"}, cwd=ROOT, check=True)
    commands = (["pytest", "-q", "-n", "2", "--dist", "loadgroup", "--tier", "torch"], ["wmma_ops", "demo"])
    codes = [subprocess.run([python, "-m", *command], env=around, cwd=ROOT).returncode for command in commands]
    for command, code in zip(commands, codes, strict=True):
        if code:  # a signal's is negative, and leaves no summary
            print(f"{python.parents[1].name}: {' '.join(command)} ended with {code}", file=sys.stderr)
    return not any(codes)


def main(releases: list[str], only_install: bool = False) -> str | None:
    """What failed, in words."""
    failed = []
    with ThreadPoolExecutor() as pool:  # each is gigabytes
        pythons = list(pool.map(environment, releases))
    if only_install:
        return None
    for release, python in zip(releases, pythons, strict=True):
        if python is not None and not tried(python):
            failed.append(release)
    return f"failed with torch: {', '.join(failed)}" if failed else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", nargs="*", default=[OLDEST, NEWEST], help="of torch; the oldest and the newest")
    parser.add_argument("--install", action="store_true", help="fetch them, and try nothing yet")
    options = parser.parse_args()
    sys.exit(main(options.release, options.install))
