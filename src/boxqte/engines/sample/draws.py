"""Points drawn from open boxes in proportion to mass: the refined cell of every axis of the grid."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from boxqte import _core
from boxqte.engines.point.trees import padded
from boxqte.questions.grid import AnyGrid

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

    def __init__(self, grid: AnyGrid, boxes: Boxes, axis_ids: tuple[int, ...], seed: int, *, workers: int = 1):
        refined = not grid.ensemble.is_binary  # the boxes of many-class grids hold refined cells
        self.boxes = boxes
        self.below = np.cumsum(boxes.masses())
        self.workers = workers
        most = max(len(axis.refined) for axis in grid.axes)
        self.core = _core.Draws(
            seed,
            np.array([len(axis.refined) for axis in grid.axes], np.int32),
            padded([[float(m) for m in axis.refined_masses] for axis in grid.axes], most, np.float64),
            padded([np.arange(len(axis.refined)) if refined else axis.base for axis in grid.axes], most, np.int32),
            np.array([axis_ids.index(a) if a in axis_ids else -1 for a in range(len(grid.axes))], np.int32),
        )

    @property
    def mass(self) -> float:
        return float(self.below[-1]) if len(self.below) else 0.0

    def round(self, n: int) -> Int64Array:
        """n points as refined cells (points x axes of the grid)."""
        return self.at(self.core.places(n, self.mass))

    def at(self, places: FloatArray) -> Int64Array:
        """A point for every place below the mass of all boxes."""
        chosen = np.minimum(np.searchsorted(self.below, places, side="right"), len(self.below) - 1)
        which, index = np.unique(chosen, return_inverse=True)
        boxes = np.ascontiguousarray(self.boxes.boxes(which), np.uint64)
        points: Int64Array = self.core.cells(index.reshape(-1).astype(np.int64), boxes, self.workers)
        return points


class Stratum(NamedTuple):
    """A product of a mixture to draw from: its weight in the whole, its grid, and the boxes on these axes of it."""

    weight: Fraction
    grid: AnyGrid
    boxes: Boxes
    axis_ids: tuple[int, ...]


class MixedDraws:
    """Draws from several products by their weights: as `Draws`, with the products side by side."""

    def __init__(self, strata: Sequence[Stratum], seed: int, *, workers: int = 1):
        seeds = np.random.SeedSequence(seed).generate_state(len(strata), np.uint64) >> np.uint64(1)
        self.draws = [
            Draws(stratum.grid, stratum.boxes, stratum.axis_ids, int(own), workers=workers)
            for stratum, own in zip(strata, seeds.tolist())
        ]
        self.weights = np.array([float(stratum.weight) for stratum in strata])
        self.below = np.cumsum(self.weights * [draws.mass for draws in self.draws])

    @property
    def mass(self) -> float:
        return float(self.below[-1])

    def round(self, n: int) -> Int64Array:
        """n points as refined cells; the products have the same cells."""
        places = self.draws[0].core.places(n, self.mass)
        last = int(np.flatnonzero(np.diff(self.below, prepend=0.0) > 0)[-1])  # the last that has mass
        chosen = np.minimum(np.searchsorted(self.below, places, side="right"), last)
        starts = np.concatenate([[0.0], self.below])
        parts = []
        for k, draws in enumerate(self.draws):
            own = places[chosen == k]
            if len(own):
                parts.append(draws.at((own - starts[k]) / self.weights[k]))
        points: Int64Array = np.concatenate(parts)
        return points


def strata_draws(strata: Sequence[Stratum], seed: int, *, workers: int = 1) -> Draws | MixedDraws:
    """Draws from one product, or from several by their weights."""
    if len(strata) > 1:
        return MixedDraws(strata, seed, workers=workers)
    (only,) = strata
    return Draws(only.grid, only.boxes, only.axis_ids, seed, workers=workers)
