"""Points drawn from open boxes in proportion to mass: the refined cell of every axis of the grid."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import kernel
from boxqte.grid import Axis, Grid

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Boxes(Protocol):
    """Where to draw from: boxes as sets of base cells (bit words) on some axes of the grid, all cells on the others."""

    def masses(self) -> FloatArray:
        """The mass of every box."""
        ...

    def boxes(self, at: Int64Array) -> npt.NDArray[np.uint64]:
        """Some of the boxes: box x axis x word."""
        ...


class WholeSpace:
    """One box that holds everything."""

    def masses(self) -> FloatArray:
        return np.ones(1)

    def boxes(self, at: Int64Array) -> npt.NDArray[np.uint64]:
        return np.zeros((len(at), 0, 1), np.uint64)


class Draws:
    """Draws rounds of points. A round is stratified: one point from each of n parts of the boxes of equal mass."""

    def __init__(self, grid: Grid, boxes: Boxes, axis_ids: tuple[int, ...], seed: int):
        refined = not grid.ensemble.is_binary  # the boxes of many-class grids hold refined cells
        self.boxes = boxes
        self.axis_ids = axis_ids
        self.below = np.cumsum(boxes.masses())
        self.random = np.random.default_rng(seed)
        self.tables = [AxisTable(axis, refined) for axis in grid.axes]

    @property
    def mass(self) -> float:
        return float(self.below[-1]) if len(self.below) else 0.0

    def round(self, n: int) -> Int64Array:
        """n points as refined cells (points x axes of the grid)."""
        places = (np.arange(n) + self.random.random(n)) / n * self.below[-1]
        chosen = np.minimum(np.searchsorted(self.below, places, side="right"), len(self.below) - 1)
        which, index = np.unique(chosen, return_inverse=True)
        boxes = self.boxes.boxes(which)
        points = np.empty((n, len(self.tables)), np.int64)
        for a, table in enumerate(self.tables):
            chance = self.random.random(n)
            if a in self.axis_ids:
                words = np.ascontiguousarray(boxes[:, self.axis_ids.index(a), :])
                draw_within(words, index.reshape(-1), table.base, table.mass, chance, points[:, a])
            else:
                points[:, a] = np.minimum(np.searchsorted(table.below, chance, side="right"), table.last)
        return points


class AxisTable:
    """The refined cells of an axis: their places in a box and their masses."""

    def __init__(self, axis: Axis, refined: bool):
        self.base = np.arange(len(axis.refined)) if refined else axis.base.astype(np.int64)
        self.mass = np.array([float(m) for m in axis.refined_masses])
        self.below = np.cumsum(self.mass)
        self.below /= self.below[-1]
        self.last = int(np.flatnonzero(self.mass)[-1])


@kernel
def draw_within(
    words: npt.NDArray[np.uint64],
    index: Int64Array,
    base: Int64Array,
    mass: FloatArray,
    chance: FloatArray,
    cells: Int64Array,
) -> None:
    """For every point a refined cell whose base cell is in its box, in proportion to mass."""
    for i in range(len(index)):
        box = words[index[i]]
        total = 0.0
        for r in range(len(base)):
            if (box[base[r] >> 6] >> np.uint64(base[r] & 63)) & np.uint64(1):
                total += mass[r]
        place = chance[i] * total
        for r in range(len(base)):
            if (box[base[r] >> 6] >> np.uint64(base[r] & 63)) & np.uint64(1) and mass[r] > 0:
                cells[i] = r
                if place < mass[r]:
                    break
                place -= mass[r]
