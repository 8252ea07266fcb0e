"""Where the device sources lie: inside the package when it came as a wheel, beside it in a checkout."""

from pathlib import Path

_HERE = Path(__file__).resolve().parents[1]

PATH = next(
    (folder for folder in (_HERE / "kernels", _HERE.parent / "kernels") if (folder / "wmma").is_dir()),
    _HERE / "kernels",
)

# Within PATH: headers by the names that HIP, CUDA and rocWMMA give theirs. It comes after a user's own -I.
COMPAT = "compat"

_SUFFIXES = (".hip", ".hpp", ".h", ".inc")


def is_source(name: str) -> bool:
    """Whether a file of PATH is a device source, which keys of the cache hold; C++'s own headers have no suffix."""
    return "." not in name or name.endswith(_SUFFIXES)


def name_of(path: str) -> str | None:
    """By which a device source is included; None of any other file."""
    root = f"{PATH}/"
    name = path.removeprefix(root)
    if name == path or ".." in name or not is_source(name.rpartition("/")[2]):
        return None
    return name.removeprefix(f"{COMPAT}/")


def has(name: str) -> bool:
    """Whether a device source is included by that name."""
    return any(
        name_of(path) is not None and Path(path).is_file() for path in (f"{PATH}/{name}", f"{PATH}/{COMPAT}/{name}")
    )
