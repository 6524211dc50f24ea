"""A grid's trees as compact arrays for deciding single points, and the windows that points reach."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.problem import into_64_bits, used_axes
from boxqte.engines.point.kernels import Forest
from boxqte.grid import Grid, Thresholds

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PointProblem:
    """All that is needed to decide points: trees with 64-bit leaf values, thresholds, and the cells that x reaches."""

    grid: Grid
    axis_ids: tuple[int, ...]
    """kernel axis -> grid axis"""
    forest: Forest
    base: int
    thresholds: Thresholds
    fuzz: int
    """0: the 64-bit sums are exact; otherwise every sum is within this of the exact one"""

    def windows(
        self, cells: npt.NDArray[np.integer]
    ) -> tuple[Int32Array, Int32Array, Int32Array, npt.NDArray[np.bool_]]:
        """Of every point, given by its refined cells on the grid's axes: own cells, the first and last cells that x'
        may lie in (points x kernel axes), and whether x' must have other sensitive cells than x."""
        shape = (len(cells), len(self.axis_ids))
        own, low, high = np.empty(shape, np.int32), np.empty(shape, np.int32), np.empty(shape, np.int32)
        for i, a in enumerate(self.axis_ids):
            axis = self.grid.axes[a]
            own[:, i] = axis.base[cells[:, a]]
            low[:, i] = axis.near_lo[cells[:, a]]
            high[:, i] = axis.near_hi[cells[:, a]]
        return own, low, high, self.must_differ(cells)

    def must_differ(self, cells: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """semantics.md: if all sensitive cells of x are single points, x' lies in another combination of cells.

        An axis that no tree cuts may have two cells, the second for the missing value: there x' differs at no cost.
        """
        sensitive = [a for a, axis in enumerate(self.grid.axes) if axis.sensitive]
        idle = any(self.grid.axes[a].n_cells > 1 for a in sensitive if a not in self.axis_ids)
        differs = np.full(len(cells), bool(sensitive) and not idle)
        for a in sensitive:
            axis = self.grid.axes[a]
            differs &= axis.single[axis.base[cells[:, a]]]
        return differs

    def witnesses(self, cells: npt.NDArray[np.integer], found: Int32Array) -> Int32Array:
        """The cells of x' on all axes of the grid, from those on the kernel's axes."""
        whole = np.empty(cells.shape, np.int32)
        for a, axis in enumerate(self.grid.axes):
            own = axis.base[cells[:, a]]
            if a in self.axis_ids:
                whole[:, a] = found[:, self.axis_ids.index(a)]
            elif axis.sensitive and axis.n_cells > 1:
                whole[:, a] = np.where(own == 0, 1, 0)
            else:
                whole[:, a] = own
        return whole


def compile_binary(grid: Grid) -> PointProblem:
    """The arrays behind the grid of a binary model; leaf values in 64 bits, exactly where they fit."""
    value, base, thresholds, _, fuzz, _ = into_64_bits(grid)
    trees = np.arange(len(grid.roots))
    return compile_points(grid, value.reshape(-1, 1), base, thresholds, fuzz, trees, np.zeros_like(trees))


def compile_points(
    grid: Grid,
    value: Int64Array,
    base: int,
    thresholds: Thresholds,
    fuzz: int,
    order: npt.NDArray[np.int64],
    output: npt.NDArray[np.integer],
) -> PointProblem:
    """The arrays behind a grid with these leaf values (node x output); its trees in that order."""
    used = used_axes(grid)
    where = {axis: i for i, axis in enumerate(used)}
    sizes = [grid.axes[a].n_cells for a in used]
    limit = np.zeros(len(grid.cuts) + 1, np.int32)
    axis = np.full(len(grid.cuts) + 1, -1, np.int32)  # the last one is the leaves'
    rows = []
    for k, cut in enumerate(grid.cuts):
        axis[k] = where[cut.axis]
        if cut.mask & (cut.mask + 1) == 0:
            limit[k] = cut.mask.bit_count()
        else:
            rows.append((cut.mask, sizes[where[cut.axis]]))
            limit[k] = -len(rows)
    odd = np.zeros((len(rows), max(sizes, default=1) + 1), np.int32)
    for row, (mask, n) in enumerate(rows):
        odd[row, 1 : n + 1] = np.cumsum([mask >> i & 1 for i in range(n)])
    leaf, number = grid.cut < 0, np.arange(len(grid.cut), dtype=np.int32)
    step = np.stack([axis[grid.cut], grid.no - number - 1, limit[grid.cut]], axis=1)
    step[leaf] = (0, -1, 0)
    forest = Forest(
        axis=axis[grid.cut],
        cut=limit[grid.cut],
        no=grid.no.astype(np.int32),
        value=value,
        roots=grid.roots[order].astype(np.int32),
        output=output[order].astype(np.int32),
        depth=_depths(grid)[order],
        step=np.ascontiguousarray(step, np.int32),
        odd=odd,
        sensitive=np.array([grid.axes[a].sensitive for a in used], bool),
        line_start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )
    return PointProblem(grid, tuple(used), forest, base, thresholds, fuzz)


def _depths(grid: Grid) -> Int32Array:
    """The largest number of tests on a path of each tree, found level by level."""
    depths = np.zeros(len(grid.roots), np.int32)
    level, tree = grid.roots, np.arange(len(grid.roots))
    while len(level):
        inner = grid.cut[level] >= 0
        level, tree = level[inner], tree[inner]
        depths[tree] += np.bincount(tree, minlength=len(depths))[tree] > 0
        level, tree = np.concatenate([grid.yes[level], grid.no[level]]), np.concatenate([tree, tree])
    return depths


def frames_needed(sizes: list[int], extra: int) -> int:
    """How deep the search can go: `extra` free choices of the cut, then halves along every axis."""
    return extra + sum(math.ceil(math.log2(n)) for n in sizes if n > 1) + 2
