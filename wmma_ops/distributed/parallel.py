"""Styles and plans for ``torch.distributed.tensor.parallel.parallelize_module``.

A column-parallel layer shards its weight along the features that it gives, a row-parallel one along those that it takes; one
after the other they need a single sum over the devices, at the end. A plan names both for a model's modules.
"""

import operator
from collections.abc import Iterable

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from wmma_ops import torch_internals

REPLICATED, BY_FEATURES = Replicate(), Shard(-1)


class Sharded(torch_internals.AppliedStyle, ParallelStyle):
    """Shards a module's parameters as told; what is not named is replicated.

    Args:
        parameters: by their names in the module, the placements of parameters.
        given: how a plain tensor that comes in is spread.
        taken: how the module takes it; a DTensor too is redistributed to that.
        gives: how the result goes on.
        use_local_output: whether as a plain tensor, this device's part.
        units: what may not be divided (heads, for example); the number of devices must divide their number.

    Examples:
        >>> from torch.distributed.tensor import Shard
        >>> from wmma_ops.distributed import Sharded
        >>> # for a module that calls gemm_gemm(x, self.up, self.down, gate=self.gate, activation="silu")
        >>> style = Sharded({"up": Shard(1), "gate": Shard(1), "down": Shard(0)})
    """

    def __init__(
        self,
        parameters: dict[str, Placement],
        *,
        given: Placement = REPLICATED,
        taken: Placement = REPLICATED,
        gives: Placement = REPLICATED,
        use_local_output: bool = True,
        units: int | None = None,
    ):
        super().__init__()
        self.parameters = parameters
        self.given, self.taken, self.gives = given, taken, gives
        self.use_local_output = use_local_output
        self.units = units

    def __repr__(self):
        return f"{type(self).__name__}({self.parameters}, {self.given} → {self.taken}, gives {self.gives})"

    def apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if self.units is not None and self.units % device_mesh.size():
            raise ValueError(
                f"wmma_ops.distributed: {self.units} heads do not divide among {device_mesh.size()} devices; takes a number "
                "of devices that divides that of heads"
            )
        known = {name for name, _ in module.named_parameters()}
        for name in self.parameters:
            if name not in known and not _is_missing(module, name):
                taken = ", ".join(sorted(known)) or "none"
                raise ValueError(
                    f"wmma_ops.distributed: {type(module).__name__} has no parameter {name!r}; has {taken}"
                )
        return distribute_module(module, device_mesh, self._partition, self._input, self._output)

    def _partition(self, prefix: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for name, parameter in list(module.named_parameters(recurse=False)):
            placement = self.parameters.get(f"{prefix}.{name}".lstrip("."), REPLICATED)
            spread = distribute_tensor(parameter, mesh, [placement], src_data_rank=self.src_data_rank)
            module.register_parameter(name, nn.Parameter(spread, requires_grad=parameter.requires_grad))

    def _input(self, module: nn.Module, inputs: tuple, mesh: DeviceMesh) -> tuple:
        x, *others = inputs
        if not isinstance(x, DTensor):
            x = DTensor.from_local(x, mesh, [self.given], run_check=False)
        return (x.redistribute(placements=[self.taken], async_op=True), *others)

    def _output(self, module: nn.Module, output: Tensor, mesh: DeviceMesh) -> Tensor:
        output = output.redistribute(placements=[self.gives], async_op=True)
        return output.to_local() if self.use_local_output else output


def _is_missing(module: nn.Module, name: str) -> bool:
    """Whether the module has a place of that name with nothing in it, as a bias that was not asked for."""
    try:
        return operator.attrgetter(name)(module) is None
    except AttributeError:
        return False


class ColumnParallel(Sharded):
    """For layers with a weight ``[out, in]`` and a bias, as nn.Linear's. Any activation may follow.

    The arguments are those of ``Sharded``.
    """

    def __init__(self, *, given: Placement = REPLICATED, gives: Placement = BY_FEATURES, **options):
        super().__init__({"weight": Shard(0), "bias": Shard(0)}, given=given, gives=gives, **options)


class RowParallel(Sharded):
    """The same, along the features that come in. Without activation: what a device has is a part of the sum.

    The bias enters the sum once. Each device's part is rounded to the layer's type, as with torch's RowwiseParallel.
    """

    def __init__(self, *, given: Placement = BY_FEATURES, gives: Placement = REPLICATED, **options):
        super().__init__({"weight": Shard(1)}, given=given, taken=BY_FEATURES, gives=gives, **options)

    def apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        activation = getattr(module, "activation", None)
        if activation not in (None, "none"):
            raise ValueError(
                f"wmma_ops.distributed: a row-parallel {type(module).__name__} has the activation {activation!r}; takes "
                "none, as partial sums must be added up before it"
            )
        if type(module) is nn.modules.linear.NonDynamicallyQuantizableLinear:
            raise ValueError(
                "wmma_ops.distributed: the out_proj of torch.nn.MultiheadAttention is read and never called; takes layers "
                "that are called, or Sharded for a module that holds the whole"
            )
        return super().apply(module, device_mesh)

    def _input(self, module: nn.Module, inputs: tuple, mesh: DeviceMesh) -> tuple:
        x, features = inputs[0], module.weight.shape[1]
        if not isinstance(x, DTensor) and self.given == BY_FEATURES and x.shape[-1] * mesh.size() != features:
            raise ValueError(
                f"wmma_ops.distributed: a row-parallel {type(module).__name__} got {list(x.shape)} on each of {mesh.size()} "
                f"devices; takes their parts of {features} features, as column-parallel layers before it give"
            )
        return super()._input(module, inputs, mesh)


def mlp_plan(
    prefix: str = "",
    *,
    column: Iterable[str] = ("gate_proj", "up_proj"),
    row: Iterable[str] = ("down_proj",),
    sequence_dim: int | None = None,
) -> dict[str, ParallelStyle]:
    """A plan for MLP blocks: what leads into the hidden features is column-parallel, what leads out row-parallel.

    Args:
        prefix: where the blocks are, such as ``"model.layers.*.mlp"``.
        column, row: the names of their linear layers.
        sequence_dim: the dimension that activations are sharded along outside the block, for sequence parallelism; by
            default they are replicated.

    Examples:
        >>> from wmma_ops.distributed import mlp_plan
        >>> sorted(mlp_plan("layers.*.mlp", column=["fc1"], row=["fc2"]))
        ['layers.*.mlp.fc1', 'layers.*.mlp.fc2']
    """
    return _plan(prefix, column, row, sequence_dim, None)


def attention_plan(
    prefix: str = "",
    *,
    column: Iterable[str] = ("q_proj", "k_proj", "v_proj"),
    row: Iterable[str] = ("o_proj",),
    sequence_dim: int | None = None,
    kv_heads: int | None = None,
) -> dict[str, ParallelStyle]:
    """A plan for attention blocks: every device takes its share of the heads.

    The block must read the number of heads off its tensors' sizes. One that stacks q, k and v in a weight, as
    :class:`wmma_ops.nn.Attention`, is not divided by heads: :class:`Sharded` spreads its weights, and every device attends.

    Args:
        prefix, column, row, sequence_dim: as for ``mlp_plan``.
        kv_heads: the number of key heads, which the number of devices has to divide; checked where it is given.

    Examples:
        >>> from wmma_ops.distributed import attention_plan
        >>> sorted(attention_plan(kv_heads=8))
        ['k_proj', 'o_proj', 'q_proj', 'v_proj']
    """
    return _plan(prefix, column, row, sequence_dim, kv_heads)


def _plan(prefix, column, row, sequence_dim, units) -> dict[str, ParallelStyle]:
    outside = REPLICATED if sequence_dim is None else Shard(sequence_dim)
    path = f"{prefix}." if prefix else ""
    return {f"{path}{name}": ColumnParallel(given=outside, units=units) for name in column} | {
        f"{path}{name}": RowParallel(gives=outside, units=units) for name in row
    }
