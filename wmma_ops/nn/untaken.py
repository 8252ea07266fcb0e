"""Why a module with parameters or attention, that none of swap_'s rules is for, stays as it is, and what else takes it."""

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

_PRODUCTS = {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm"}  # that swapped() takes
ON_WMMA = "OnWmma"  # ends the name of an attention processor's class that is ours (integrations/diffusers.py)
PARAMETRIZED = "it is parametrized: its weights are computed anew at each call"
CONVOLUTIONS = tuple(getattr(nn, f"Conv{kind}{n}d") for kind in ("", "Transpose") for n in (1, 2, 3))
_KINDS = (
    (torch.jit.ScriptModule, "compiled by torch.jit; swap before that"),
    (CONVOLUTIONS, "a convolution, which no layer of ours is"),
    ((nn.RNNBase, nn.RNNCellBase), "recurrent: its products are inside of torch's own functions"),
    (nn.Bilinear, "multiplies two inputs by one weight, which no layer of ours does"),
    ((nn.Embedding, nn.EmbeddingBag), "looks rows up: no product"),
)


def why(module: nn.Module) -> str | None:
    """None where it has neither parameters nor attention of its own."""
    if isinstance(module, ParametrizationList):  # its parameters are another's
        return None
    called = _called(module)
    if reason := _attention(module, called) or _experts(module, called):
        return reason
    if _is_quantised(module):
        return "its weight is quantised and packed; wmma_ops.scaled_mm multiplies int8 and float8"
    parameters, parametrized = dict(module.named_parameters(recurse=False)), is_parametrized(module)
    if not parameters and not parametrized:
        return None
    if found := next((reason for kind, reason in _KINDS if isinstance(module, kind)), None):
        return found
    if parametrized:
        return PARAMETRIZED
    wide = [name for name, x in parameters.items() if isinstance(x, UninitializedTensorMixin) or x.dim() > 1]
    if not wide:
        return "scales or shifts elements: no product"
    names = ", ".join(wide[:2]) + (", …" if len(wide) > 2 else "")
    return f"computes with {names} in a forward of its own{_within(_PRODUCTS & called)}"


def _attention(module: nn.Module, called: set[str]) -> str | None:
    implementation = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if "ALL_ATTENTION_FUNCTIONS" in called and isinstance(implementation, str):  # of transformers
        if implementation.startswith("wmma"):
            return None
        return (
            f"its attention is {implementation}; call wmma_ops.integrations.transformers.register(), then "
            "model.set_attn_implementation('wmma')"
        )
    if hasattr(module, "processor") and hasattr(module, "set_processor"):  # of diffusers
        if type(module.processor).__name__.endswith(ON_WMMA):
            return None
        return "its attention is its processor's; call wmma_ops.integrations.diffusers.swap_processors(model)"
    if "scaled_dot_product_attention" in called:
        return f"its attention is torch's{_within({'scaled_dot_product_attention'})}"
    if "softmax" in called and (products := called & {"matmul", "bmm", "baddbmm"}):
        return f"its attention is of products and a softmax{_within(products)}"
    return None


def _experts(module: nn.Module, called: set[str]) -> str | None:
    """Those of transformers, which another function than their forward may compute."""
    implementation = getattr(getattr(module, "config", None), "_experts_implementation", None)
    if "_experts_implementation" not in called or implementation in (None, "eager"):
        return None
    return f"its products are {implementation}; call model.set_experts_implementation('eager')" + _within({"linear"})


def _is_quantised(module: nn.Module) -> bool:
    """Whether its weight is no parameter: of torch.ao's, or in buffers, as GPTQ and AWQ pack a linear layer's."""
    kind = type(module)
    if next(module.parameters(), None) is not None:
        return False
    of_torch = ".quantized." in f"{kind.__module__}." and (hasattr(module, "weight") or hasattr(module, "get_weight"))
    return of_torch or ("Linear" in kind.__name__ and next(module.buffers(recurse=False), None) is not None)


def _called(module: nn.Module) -> set[str]:
    """The names of globals and attributes in its forward's code, and in that of decorators around it."""
    found, function = set(), getattr(type(module), "forward", None)
    while function is not None:
        found |= set(getattr(getattr(function, "__code__", None), "co_names", ()))
        function = getattr(function, "__wrapped__", None)
    return found


def _within(functions: set[str]) -> str:
    return f"; within wmma_ops.swapped() its calls of {', '.join(sorted(functions))} are ours" if functions else ""
