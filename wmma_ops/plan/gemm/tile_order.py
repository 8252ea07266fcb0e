"""Which tile a block of a product computes, how much of its K, and which tile comes next.

kernels/wmma/tile/tile_order.hpp has the types that these are on the device.
"""

from dataclasses import dataclass
from math import ceil

from wmma_ops.plan.plan import MOST_GRID_Y


@dataclass(frozen=True)
class TileOrder:
    """One order. `cluster_blocks` start at once."""

    group: int  # rows of tiles that neighbouring blocks go down; 0: there is one
    dies: int = 1  # that blocks are assigned to
    splits: int = 1  # blocks that share a tile of the result and split K, their sums added up by a second kernel
    last: int = 1  # blocks that share each tile of the last round, which leaves units without one, and split its K
    cluster: int = 1  # neighbouring blocks that share a tile and split K, their sums added up from shared memory
    share: int = 1  # neighbouring blocks down that take the same tiles of B, each bringing a part of them to all
    share_a: int = 1  # the same of A, side by side
    along_x: bool = False  # the batch's matrices stand one behind the other; else along the grid's y
    persistent: bool = False  # blocks go from tile to tile: the next one's operands come while a result leaves

    def but(self, **changes) -> "TileOrder":
        """The same but for these. As dataclasses.replace; a plan asks for hundreds."""
        made = object.__new__(TileOrder)
        made.__dict__.update(self.__dict__, **changes)
        return made

    @property
    def cluster_blocks(self) -> int:
        return self.cluster * self.neighbours

    @property
    def neighbours(self) -> int:
        """Blocks that bring tiles for each other."""
        return self.share * self.share_a

    @property
    def parts(self) -> int:
        """Of K, of the tiles that are split."""
        return self.splits * self.cluster * self.last

    @property
    def has_whole_tiles(self) -> bool:
        """Whether no block has a part of K alone."""
        return self.parts == 1

    def tiles(self, down: int, across: int) -> tuple[int, int]:
        """As many as blocks that share come together."""
        return ceil(down / self.share) * self.share, ceil(across / self.share_a) * self.share_a

    def in_parts(self, tiles: int, units: int) -> int:
        """How many of a matrix' tiles a second kernel adds up; `units` are what blocks run on."""
        if self.splits > 1:
            return tiles
        return tiles % units if self.last > 1 else 0

    def blocks(self, tiles: int, in_parts: int) -> int:
        """Of a matrix."""
        return tiles * self.cluster + in_parts * (self.splits * self.last - 1)

    def grid(self, blocks: int, batch: int, units: int) -> tuple[int, int]:
        """Of so many blocks for each of the batch's matrices."""
        if not self.along_x:
            return blocks, min(batch, MOST_GRID_Y)
        at_once = units // self.neighbours * self.neighbours
        return min(blocks * batch, at_once) if self.persistent else blocks * batch, 1

    def device(self, batch_dims: int, columns: str) -> str:
        """The device's type, of tiles with so many columns."""
        split = "SplitK" if self.splits > 1 else "SplitLastRound" if self.last > 1 else "WholeK"
        walk = (
            f"BatchAlongX<{batch_dims}, {str(self.persistent).lower()}>"
            if self.along_x
            else f"BatchAlongY<{batch_dims}>"
        )
        types = (
            f"GroupedRows<{self.group}>",
            f"RunsOfDies<{self.dies}>",
            f"ClusterK<{self.cluster}>" if self.cluster > 1 else split,
            walk,
        )
        return f"wmma::TileOrder<{', '.join(f'wmma::{x}' for x in types)}, kBlockM, {columns}, kBlockK>"

    def __str__(self) -> str:
        extras = (
            (f"K split {self.splits} ways", self.splits > 1),
            (f"clusters of {self.cluster}", self.cluster > 1),
            (f"B shared by {self.share}", self.share > 1),
            (f"A shared by {self.share_a}", self.share_a > 1),
            ("persistent", self.persistent),
            (f"K of the last round split {self.last} ways", self.last > 1),
        )
        return ", ".join(text for text, there in extras if there)
