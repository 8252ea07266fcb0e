"""Where the device sources lie: inside the package when it came as a wheel, beside it in a checkout."""

from pathlib import Path

_HERE = Path(__file__).resolve().parents[1]

PATH = next(
    (folder for folder in (_HERE / "kernels", _HERE.parent / "kernels") if (folder / "wmma").is_dir()),
    _HERE / "kernels",
)
