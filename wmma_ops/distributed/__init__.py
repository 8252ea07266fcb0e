"""Products and attention of DTensors, and plans that spread a model over several devices.

Importing it tells DTensor of the sharding rules (``wmma_ops.distributed.rules``). From then on every op takes DTensors:
where a rule offers the placements that come, it runs on them as they lie; where none does, DTensor redistributes.
"""

from wmma_ops.distributed import sharding
from wmma_ops.distributed.parallel import ColumnParallel, RowParallel, Sharded, attention_plan, mlp_plan

__all__ = ["ColumnParallel", "RowParallel", "Sharded", "attention_plan", "mlp_plan"]

sharding.register()
