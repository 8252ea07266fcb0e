"""addmm_ into a view that negates or conjugates, as ``z.conj().imag`` is.

torch's own step for such views resolves what an op reads and copies back what it changes, which the op has to return; addmm_
returns nothing, as torch.compile would have it.
"""

import functools

from wmma_ops.ops.library import IMPLEMENTATIONS, NAMESPACES, overload


def _addmm_(op, input, a, b, *, beta=1.0, alpha=1.0):
    own, a, b = (x.resolve_conj().resolve_neg() for x in (input, a, b))
    op(own, a, b, beta=beta, alpha=alpha)
    if own is not input:
        input.copy_(own)


for _namespace in NAMESPACES:
    for _key in ("Negative", "Conjugate"):
        _op = overload("addmm_", raw=_namespace == "wmma_raw")
        IMPLEMENTATIONS[_namespace].impl("addmm_", functools.partial(_addmm_, _op), _key)
