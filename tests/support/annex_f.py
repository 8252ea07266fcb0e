"""Values that C99's Annex F gives for special arguments, by hand, and a kernel of them."""

import device_math
import numpy as np

INF, NAN = np.inf, np.nan
# By name: both arguments, the second one also where there is but one, and the value.
VALUES = {
    "pow": [
        (-2, 3, -8), (-2, 0.5, NAN), (-0.0, -3, -INF), (-0.0, -2, INF), (0.0, -INF, INF), (-1, INF, 1), (1, NAN, 1),
        (NAN, 0, 1), (NAN, 1, NAN), (0.5, -INF, INF), (2, -INF, 0), (-INF, -3, -0.0), (-INF, 3, -INF), (-INF, 2, INF),
    ],
    "atan2": [
        (0.0, -0.0, np.pi),
        (-0.0, -1, -np.pi),
        (-0.0, 2, -0.0),
        (-1, 0.0, -np.pi / 2),
        (INF, -INF, 3 * np.pi / 4),
    ],
    "hypot": [(INF, NAN, INF), (NAN, -INF, INF), (-3, 4, 5)],
    "fmod": [(-0.0, 2, -0.0), (5, INF, 5), (INF, 2, NAN), (5, 0.0, NAN), (-7, 3, -1)],
    "remainder": [(5, 2, 1), (7, 2, -1), (-4, 2, -0.0), (5, INF, 5), (2, 0.0, NAN)],
    "fmin": [(NAN, 2, 2), (3, NAN, 3), (NAN, NAN, NAN)],
    "nextafter": [(0.0, 0.0, 0.0), (1, 1, 1), (NAN, 1, NAN)],
    "exp": [(-INF, 0, 0.0), (INF, 0, INF), (-0.0, 0, 1)],
    "expm1": [(-0.0, 0, -0.0), (-INF, 0, -1)],
    "log": [(-0.0, 0, -INF), (-1, 0, NAN), (1, 0, 0.0)],
    "log1p": [(-1, 0, -INF), (-0.0, 0, -0.0), (-2, 0, NAN)],
    "asin": [(-0.0, 0, -0.0), (2, 0, NAN)],
    "acos": [(1, 0, 0.0), (-1.5, 0, NAN)],
    "atanh": [(-1, 0, -INF), (2, 0, NAN)],
    "acosh": [(1, 0, 0.0), (0.5, 0, NAN)],
    "cosh": [(-INF, 0, INF), (0.0, 0, 1)],
    "tanh": [(-INF, 0, -1), (-0.0, 0, -0.0)],
    "sin": [(-0.0, 0, -0.0), (INF, 0, NAN)],
    "sinpi": [(-0.0, 0, -0.0), (3, 0, 0.0), (-INF, 0, NAN), (0.5, 0, 1)],
    "cospi": [(0.5, 0, 0.0), (-1, 0, -1)],
    "erfc": [(-INF, 0, 2), (INF, 0, 0.0)],
    "round": [(2.5, 0, 3), (-0.4, 0, -0.0), (-2.5, 0, -3)],
    "rint": [(2.5, 0, 2), (-0.4, 0, -0.0)],
    "sqrt": [(-0.0, 0, -0.0), (-1, 0, NAN)],
    "cbrt": [(-8, 0, -2), (-INF, 0, -INF), (-0.0, 0, -0.0)],
    "rsqrt": [(INF, 0, 0.0), (0.0, 0, INF)],
    "logb": [(-0.0, 0, -INF), (-INF, 0, INF), (-6, 0, 2)],
}  # fmt: skip
OF_TWO = {*device_math.TWO, "fmod", "remainder", "fmin", "nextafter"}


def special_faults(type_: str, target: str | None) -> list[str]:
    kind = device_math.TYPES[type_]
    names = [name for name, rows in VALUES.items() for _ in rows]
    x, z, want = np.array([row for rows in VALUES.values() for row in rows], kind).T.copy()
    calls = [
        f"if (i == {i}) y[i] = wmma::{name}({'v, w' if name in OF_TWO else 'v'});\n" for i, name in enumerate(names)
    ]
    source = device_math.HEAD.replace("KERNEL", "special") + "".join(calls) + "}\n"
    got = device_math.run(source, "special", 1, type_, x, z, target)[0]
    error = device_math.errors(got, want.astype(device_math.Wide))
    return [f"{name}({x[i]}, {z[i]}) = {got[i]}, not {want[i]}" for i, name in enumerate(names) if not error[i] <= 1]
