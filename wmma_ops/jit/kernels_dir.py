"""Where the device sources lie: inside the package when it came as a wheel, beside it in a checkout."""

from pathlib import Path

_HERE = Path(__file__).resolve().parents[1]

PATH = next(
    (folder for folder in (_HERE / "kernels", _HERE.parent / "kernels") if (folder / "wmma").is_dir()),
    _HERE / "kernels",
)

# Within PATH: headers by the names that HIP, CUDA and rocWMMA give theirs. It comes after a user's own -I.
COMPAT = "compat"
