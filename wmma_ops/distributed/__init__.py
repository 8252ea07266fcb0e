"""Products of DTensors, and plans that spread a model over several devices. Importing it registers the sharding rules."""

from wmma_ops.distributed import sharding

sharding.register()
