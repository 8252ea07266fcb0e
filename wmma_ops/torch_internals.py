"""Every name of torch's that is no part of its interface, each with what stands in its place where it is gone.

A function or class below is the stand-in: a slower or plainer way that is right. `instead_of` puts what torch keeps under
the given names in its place, as `made` makes it out of them. The docstrings say what the names are for, and what is lost
without them. All were found in torch 2.10 to 2.15 where no other range is given. Names of what is loaded with torch are
looked up at once, the others (`later`) at the first call: they bring the compiler, for seconds.
"""

import contextlib
import copy
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.fx.operator_schemas import get_signature_for_torch_op
from torch.overrides import TorchFunctionMode


class Internal(NamedTuple):
    """Names of torch's that stand or fall together."""

    name: str  # what they are here
    paths: tuple[str, ...]
    seen: tuple[str, str]  # the first and the last release that they were found in
    use: str
    is_there: Callable[[], bool]


INTERNALS: list[Internal] = []


def instead_of(*paths: str, made: Callable | None = None, seen=("2.10", "2.15"), later: bool = False):
    """Replaces the decorated stand-in by what torch has under all of the `paths`, ``module:name.name`` each."""

    def decorate(stand_in):
        @functools.cache
        def found():
            try:
                names = [pkgutil.resolve_name(path) for path in paths]
            except (ImportError, AttributeError):
                return stand_in
            return made(*names) if made else names[0]

        use = inspect.getdoc(stand_in) or ""
        INTERNALS.append(Internal(stand_in.__name__, paths, seen, use, lambda: found() is not stand_in))
        return functools.wraps(stand_in)(lambda *args, **kwargs: found()(*args, **kwargs)) if later else found()

    return decorate


# ------------------------------------------------------------------------------------- what goes on around a call


class _WithoutContext(torch.autograd.Function):
    """torch.func's transforms take no Function that has no setup_context."""

    @staticmethod
    def forward(ctx):
        return None


@instead_of("torch._C:_are_functorch_transforms_active")
def transforms_active() -> bool:
    """Whether a transform of torch.func is on. Asked at every call; without it, of a Function that they refuse."""
    try:
        _WithoutContext.apply()
    except RuntimeError:
        return True
    return False


@instead_of("torch.fx._symbolic_trace:is_fx_symbolic_tracing")
def is_fx_symbolic_tracing() -> bool:
    """Whether torch.fx traces. Without it, taken to be so: the differentiable op is always right."""
    return True


@instead_of(
    "torch.fx._symbolic_trace:_is_fx_tracing_tls",
    made=lambda state: lambda: state.__dict__.get("flag", False),
    seen=("2.14", "2.15"),
)
def is_fx_tracing() -> bool:
    """The same, asked at every call. Without it, of that function: in a thread that has never traced, it takes half a
    microsecond where it reads this.
    """
    return is_fx_symbolic_tracing()


@instead_of("torch._C:_is_tracing")
def is_jit_tracing() -> bool:
    """Whether torch.jit traces. Asked at every call; the public function has two Python frames more."""
    return torch.jit.is_tracing()


_ONE = torch.ones((), device="cpu")


@instead_of("torch.autograd.forward_ad:_current_level", made=lambda level: lambda: forward_ad._current_level >= 0)
def is_forward_mode() -> bool:
    """Whether forward-mode derivatives are on. Asked at every call; without it, of make_dual, which refuses where not."""
    try:
        forward_ad.make_dual(_ONE, _ONE)
    except RuntimeError:
        return False
    return True


@instead_of("torch._C:_len_torch_dispatch_stack")
def any_dispatch_mode() -> int:
    """Whether a mode of Python sees what is dispatched. Asked at every call; without it, one is taken to be there, and
    derivatives take longer to set up."""
    return 1


@instead_of("torch._C:_any_requires_grad")
def any_requires_grad(*tensors: Tensor | None) -> bool:
    """Whether one of the tensors requires a gradient. In Python, it takes longer."""
    return any(isinstance(x, Tensor) and x.requires_grad for x in tensors)


def _is_captured(peek, kinds, level_of):
    def is_captured(x: Tensor) -> bool:
        level = peek()
        return level is not None and level.key() in (kinds.Grad, kinds.Jvp) and level_of(x) != level.level()

    return is_captured


@instead_of(
    "torch._C._functorch:peek_interpreter_stack",
    "torch._C._functorch:TransformType",
    "torch._C._functorch:maybe_get_level",
    made=_is_captured,
)
def is_captured(x: Tensor) -> bool:
    """Whether the tensor comes from outside the function that torch.func differentiates, which may not change it. Without
    the levels, it is copied into itself: torch refuses that for its own ops.
    """
    try:
        with torch.no_grad():
            x.copy_(x)
    except RuntimeError as error:
        return "captured" in str(error)
    return False


@instead_of("torch._C._functorch:is_legacy_batchedtensor")
def is_one_of_many(x: Tensor) -> bool:
    """Whether it stands for many gradients (`is_grads_batched`), under the older of torch's two vmaps. Asked in backward
    passes; without it, each is taken for such, and its formulas take longer."""
    return True


# ---------------------------------------------------------------------------------------------- an op and its layers


@instead_of("torch:ops.aten.mm.default._schema", made=lambda mm: lambda call: call._schema)
def schema(call):
    """An overload's schema: its arguments and whether it changes them. torch.fx gives it, too."""
    return get_signature_for_torch_op(call, return_schemas=True)[1][0]


@instead_of("torch:ops.aten.mm.default._op", made=lambda mm: lambda call: call._op)
def direct(call):
    """What an overload calls: without it, the overload itself, a Python frame more."""
    return call


def _below_autograd(guard, after):
    def below_autograd(call, instead, keyset, *inputs, **scalars):
        with guard():
            return call.redispatch(keyset & after, *inputs, **scalars)

    return below_autograd


_BELOW_AUTOGRAD = ("torch._C:_AutoDispatchBelowAutograd", "torch._C:_after_autograd_keyset")


@instead_of(*_BELOW_AUTOGRAD, made=_below_autograd)
def below_autograd(call, instead, keyset, *inputs, **scalars):
    """Goes on from an op's kernel for Autograd to the next. Without the keys, calls `instead`."""
    return instead(*inputs, **scalars)


def _level_recorder(guard, after, function, single_level, set_forward_mode, forward_mode_enabled):
    below_autograd = _below_autograd(guard, after)

    def recorder(name, call, instead, remember, gradients):
        def forward(ctx, below, scalars, *inputs):
            # A Function's forward runs without derivatives of either mode, but the levels below this one have their own.
            keyset, forward_mode = below
            derives = set_forward_mode(True) if forward_mode else contextlib.nullcontext()
            with torch.enable_grad(), derives:
                output = below_autograd(call, instead, keyset, *inputs, **scalars)
            remember(ctx, scalars, inputs, output)
            return output

        def backward(ctx, *grads):
            return (None, None, *gradients(ctx, grads, ctx.needs_input_grad[2:]))

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        apply = type(name, (function,), members).apply

        def record(keyset, scalars, inputs):
            below = (keyset, is_forward_mode() and forward_mode_enabled())
            if not transforms_active():
                return apply(below, scalars, *inputs)
            with single_level():
                return apply(below, scalars, *inputs)

        return record

    return recorder


@instead_of(
    *_BELOW_AUTOGRAD,
    "torch.autograd.function:_SingleLevelFunction",
    "torch._functorch.utils:enable_single_level_autograd_function",
    "torch.autograd.forward_ad:_set_fwd_grad_enabled",
    "torch._C:_is_fwd_grad_enabled",
    made=_level_recorder,
)
def recorder(name: str, call, instead: Callable, remember: Callable, gradients: Callable) -> Callable:
    """An op's derivative, for its kernel for Autograd: `record(keyset, scalars, inputs)` answers with its output.

    This is torch.library.register_autograd with one thing more: under torch.func's transforms each level records its own
    step, and the redispatch goes on to the next. Without those names, it calls `instead`.

    Args:
        name: of the class of the results' grad_fn.
        call: the op's overload.
        instead: called with the inputs and the scalars; differentiable by itself.
        remember: called with ctx, scalars, inputs and the output.
        gradients: called with ctx, the outputs' gradients, and which inputs need one; gives one for each input.
    """
    return lambda keyset, scalars, inputs: instead(*inputs, **scalars)


def _without_autocast(keyset, key, guard):
    keys = keyset(key.AutocastCPU) | keyset(key.AutocastCUDA)
    return lambda device_type: guard(keys)


@instead_of(
    "torch._C:DispatchKeySet", "torch._C:DispatchKey", "torch._C:_ExcludeDispatchKeyGuard", made=_without_autocast
)
def without_autocast(device_type: str) -> contextlib.AbstractContextManager:
    """Within it ops go past their kernels for autocast. Without the keys, autocast is switched off, which takes longer."""
    return torch.autocast(device_type, enabled=False)


@instead_of("torch:_check")
def check(holds, message: Callable[[], str]) -> None:
    """Refuses, or leaves a check in the graph where a size is known only as it runs. Without it, the op alone checks."""
    from torch.fx.experimental.symbolic_shapes import guard_or_true  # not with torch: it brings sympy

    if not guard_or_true(holds):
        raise RuntimeError(message())


@instead_of("torch:ops.aten._int_mm")
def int_mm(a: Tensor, b: Tensor) -> Tensor:
    """The product of two int8 matrices, which `bench` compares ours with. Without it, it takes float64's."""
    raise RuntimeError("torch has no product of int8 matrices")


_FLASH = (
    "torch:ops.aten._flash_attention_forward.default",
    "torch:ops.aten._flash_attention_backward.default",
    "torch:ops.aten._scaled_dot_product_flash_attention.default",
    "torch:ops.aten._scaled_dot_product_flash_attention_backward.default",
)


@instead_of(*_FLASH, made=lambda *found: lambda: found)
def flash_operators() -> tuple:
    """What torch calls for flash attention: on ``[batch, length, heads, size]`` or packed sequences, and for SDPA, each with
    its backward. Without them, nothing can be put in their place.
    """
    return ()


@instead_of(
    "torch:ops.aten._flash_attention_forward_no_dropout_inplace.default",
    made=lambda found: lambda: found,
    seen=("2.13", "2.15"),
)
def flash_into_operator():
    """The one that writes into a tensor that is given, for `varlen_attn_out`. Without it, torch has no such function."""
    return None


@instead_of(
    "torch.nn.attention.flex_attention:_identity",
    "torch.nn.attention.flex_attention:_LARGE_SPARSE_BLOCK_SIZE",
    made=lambda identity, size: lambda: (identity, size),
    later=True,
)
def plain_flex_attention() -> tuple:
    """The function of scores, and the size of a block mask's blocks, that flex_attention takes where it is given none.
    Without them, no call of it is known to be plain.
    """
    return None, None


# ------------------------------------------------------------------------------------------------ modes and tensors


# The classes of torch.ops' overloads, and of all of one name.
OpOverload, OpOverloadPacket = type(torch.ops.aten.relu.default), type(torch.ops.aten.relu)


@instead_of("torch.utils._python_dispatch:TorchDispatchMode")
class DispatchMode(TorchFunctionMode):
    """The class of modes that see every call of an op. Without it, those calls that Python makes."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if isinstance(func, OpOverloadPacket) and func.overloads() == ["default"]:
            func = func.default
        if isinstance(func, OpOverload):
            return self.__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


@instead_of("torch.utils._python_dispatch:is_traceable_wrapper_subclass")
def is_traceable_wrapper_subclass(x: object) -> bool:
    """Whether the compiler takes the tensor apart, by the methods that torch documents for it."""
    return hasattr(type(x), "__tensor_flatten__")


@instead_of("torch.utils._python_dispatch:_disable_current_modes")
def modes_off() -> contextlib.AbstractContextManager:
    """Within it tensors are real ones, whatever traces around it. Without it they are the compiler's."""
    return contextlib.nullcontext()


@instead_of(
    "torch._subclasses.fake_tensor:FakeTensor",
    "torch._subclasses.functional_tensor:FunctionalTensor",
    made=lambda *tracing: lambda kind: issubclass(kind, tracing),
)
def is_tracing_tensor(kind: type) -> bool:
    """Whether torch.export traces with tensors of the class. Without it, they are taken for somebody's with own rules."""
    return False


# --------------------------------------------------------------------------------------------------- torch's modules


def children(module: nn.Module) -> dict[str, nn.Module | None]:
    """Its children by name, with one that it has twice. Without their dictionary, of all modules that lie in it."""
    found = getattr(module, "_modules", None)
    if found is None:
        everything = module.named_modules(remove_duplicate=False)
        found = {name: child for name, child in everything if name and "." not in name}
    return found


@instead_of("torch.nn.modules.module:_has_any_global_hook")
def has_global_hooks() -> bool:
    """Whether hooks watch every module. Without it, they are taken to do so: modules are called one by one."""
    return True


class Named(nn.Module):
    """Prints itself as one of ours, by `_get_name`. Without it, by the name of its class."""

    def _get_name(self) -> str:
        return f"wmma.{type(self).__name__}"


def has_forward_hooks(module: nn.Module) -> bool:
    """Whether hooks take the module's results. Where their dictionary is gone, they are taken to do so."""
    return bool(getattr(module, "_forward_hooks", True))


_OTHER_HOOKS = ("_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def stand_in(module: nn.Module, parameters: dict[str, nn.Parameter], **attributes) -> nn.Module:
    """A module of the same class with these parameters and attributes, and otherwise the same things."""
    found = copy.copy(module)
    found.__dict__ = module.__dict__ | {"_parameters": parameters} | attributes
    return found


def has_hooks(module: nn.Module) -> bool:
    """Whether hooks of any kind watch the module, or every one; likewise."""
    return has_forward_hooks(module) or any(getattr(module, name, True) for name in _OTHER_HOOKS) or has_global_hooks()


class FeedForward(nn.Module):
    """A transformer's layer whose two linear layers, with dropout between and after them, are one method, `feed_forward`.

    torch calls it `_ff_block` and what comes before `_sa_block`. Without them the layers are called one by one.
    """

    BLOCKS = ("_ff_block", "_sa_block")

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.feed_forward(x, super()._ff_block)

    def feed_forward(self, x: Tensor, otherwise: Callable[[Tensor], Tensor]) -> Tensor:
        raise NotImplementedError


class AppliedStyle:
    """Mixed into a ParallelStyle: parallelize_module calls `_apply`. Without that, `apply` is called by hand."""

    def _apply(self, module: nn.Module, device_mesh) -> nn.Module:
        return self.apply(module, device_mesh)


# ------------------------------------------------------------------------------------------------- graphs and compiler


@instead_of("torch:_native_multi_head_attention")
def native_multi_head_attention(*_):
    """A function of torch's with products in it, which a graph may call. Without it, none does."""
    raise NotImplementedError


@instead_of("torch:_transformer_encoder_layer_fwd")
def transformer_encoder_layer(*_):
    """Another function of torch's with products in it, likewise."""
    raise NotImplementedError


@instead_of("torch.amp.autocast_mode:_enter_autocast")
def enter_autocast(*_):
    """What a graph calls where a region of autocast begins. Without it, the operands of a product may be taken to be of the
    type that they have outside.
    """
    raise NotImplementedError


@instead_of("torch.amp.autocast_mode:_exit_autocast")
def exit_autocast(*_):
    """What it calls where the region ends, likewise."""
    raise NotImplementedError


@instead_of("torch._ops:HigherOrderOperator", made=lambda kind: lambda target: isinstance(target, kind))
def is_higher_order(target: object) -> bool:
    """Whether a node calls one of torch's operators on functions; they say so by their namespace, too."""
    return getattr(target, "namespace", None) == "higher_order"


@instead_of("torch._guards:CompileContext.try_get")
def compilation():
    """The compilation under way, with its `compile_id`. Without it none: every graph has a report of its own."""
    return None


_OFTEN = 2**16


@instead_of(
    "torch._dynamo:config",
    made=lambda config: lambda: config.patch(recompile_limit=_OFTEN, accumulated_recompile_limit=_OFTEN),
    later=True,
)
def compiled_often() -> contextlib.AbstractContextManager:
    """Within it a function may be compiled time and again. Without it, as often as torch lets it."""
    return contextlib.nullcontext()


def constant_for_compiler(function: Callable) -> Callable:
    """The compiler calls the function while it traces, and never again.

    This is torch.compiler.assume_constant_result, which would import the compiler. Where the mark means nothing, the
    compiler follows the function.
    """
    function._dynamo_marked_constant = True
    return function


@instead_of("torch._dynamo:register_backend", later=True)
def register_backend(function: Callable, name: str) -> None:
    """Makes a backend of torch.compile known by its name. Without it, only where the package is installed."""


@instead_of("torch._inductor.custom_graph_pass:CustomGraphPass", made=lambda kind: lambda: kind, later=True)
def graph_pass() -> type:
    """The class of passes that have a key for Inductor's caches. Without it, what they made is not cached."""
    return _GraphPass


class _GraphPass:
    """Has a method `uuid` that nobody asks."""


_PRE_GRAD = "torch._inductor.config:pre_grad_custom_pass"


class _NoSettings:
    """Those of an Inductor that has no slot for passes before gradients."""

    pre_grad_custom_pass = None

    @contextlib.contextmanager
    def patch(self, **changes):
        before = {name: getattr(self, name) for name in changes}
        vars(self).update(changes)
        try:
            yield
        finally:
            vars(self).update(before)


@functools.cache
def _no_settings() -> _NoSettings:
    return _NoSettings()


@instead_of(_PRE_GRAD, made=lambda _: lambda: importlib.import_module("torch._inductor.config"), later=True)
def inductor_settings():
    """Inductor's settings, one of which is the slot for passes before gradients. Without it, plain Inductor runs none, only
    the backend of ours does.
    """
    return _no_settings()


def _inductor(wrapper, slot):
    def inductor(graph_module, inputs, mode, options, before_gradients):
        compiler = wrapper(mode, options, None)
        if before_gradients is not None:
            compiler.config["pre_grad_custom_pass"] = before_gradients
        return compiler(graph_module, inputs)

    return inductor


@instead_of("torch:_TorchCompileInductorWrapper", _PRE_GRAD, made=_inductor, later=True)
def inductor(graph_module, inputs, mode: str | None, options: dict, before_gradients: Callable | None):
    """torch.compile's backend "inductor" with a pass before gradients. Without it, torch.compile of the graph that the pass
    has been over.
    """
    if before_gradients is not None:
        before_gradients(graph_module.graph)
        graph_module.recompile()
    return torch.compile(graph_module, mode=mode, options=options or None)
