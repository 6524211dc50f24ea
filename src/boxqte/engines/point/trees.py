"""A grid's trees as the arrays that the core decides points with (src/core/forest.hpp)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte import _core
from boxqte.engines.box.problem import into_64_bits, used_axes
from boxqte.questions.grid import AnyGrid, Grid, Thresholds

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

MASK_BYTES = 1 << 28  # beyond so much memory the masks of leaves are made for each window instead of once


@dataclass(frozen=True, eq=False)
class PointProblem:
    """All that is needed to decide points: trees with 64-bit leaf values, thresholds, and the cells that x reaches."""

    grid: AnyGrid
    axis_ids: tuple[int, ...]
    """axis that some tree tests -> grid axis"""
    arrays: dict[str, npt.NDArray[Any]]
    thresholds: Thresholds
    fuzz: int
    """0: the 64-bit sums are exact; otherwise every sum is within this of the exact one"""
    shift: int = 0
    """How many bits were dropped to make the values fit."""

    def core(self, dense_limit: int) -> _core.Points:
        """The same for the core, which checks all of it."""
        return _core.Points(**self.arrays, fuzz=self.fuzz, dense_limit=dense_limit, mask_bytes=MASK_BYTES)


def compile_binary(grid: Grid) -> PointProblem:
    """The arrays behind the grid of a binary model; leaf values in 64 bits, exactly where they fit."""
    value, base, thresholds, _, fuzz, shift = into_64_bits(grid)
    outputs = np.zeros(len(grid.roots), np.int32)
    return compile_points(grid, value.reshape(-1, 1), [base], thresholds, fuzz, outputs, shift)


def compile_points(
    grid: AnyGrid,
    value: Int64Array,
    bases: Sequence[int],
    thresholds: Thresholds,
    fuzz: int,
    output: npt.NDArray[np.integer],
    shift: int = 0,
) -> PointProblem:
    """The arrays behind a grid with these leaf values (node x output, or node x 1 if every tree feeds one output)."""
    used = used_axes(grid)
    where = {axis: i for i, axis in enumerate(used)}
    limit = np.zeros(len(grid.cuts) + 1, np.int32)
    axis = np.full(len(grid.cuts) + 1, -1, np.int32)  # the last one is the leaves'
    rows = []
    for k, cut in enumerate(grid.cuts):
        axis[k] = where[cut.axis]
        if cut.mask & (cut.mask + 1) == 0:
            limit[k] = cut.mask.bit_count()
        else:
            rows.append((cut.mask, grid.axes[cut.axis].n_cells))
            limit[k] = -len(rows)
    odd = np.zeros((len(rows), max((a.n_cells for a in grid.axes), default=1) + 1), np.int32)
    for row, (mask, n) in enumerate(rows):
        odd[row, 1 : n + 1] = np.cumsum([mask >> i & 1 for i in range(n)])
    arrays: dict[str, npt.NDArray[Any]] = {
        "axis": axis[grid.cut],
        "cut": limit[grid.cut],
        "no": np.ascontiguousarray(grid.no, np.int32),
        "value": np.ascontiguousarray(value, np.int64),
        "root": np.ascontiguousarray(grid.roots, np.int32),
        "output": np.ascontiguousarray(output, np.int32),
        "base": np.array(bases, np.int64),
        "odd": odd,
        "tested": np.array(used, np.int32),
        **attribute_arrays(grid),
    }
    return PointProblem(grid, tuple(used), arrays, thresholds, fuzz, shift)


def attribute_arrays(grid: AnyGrid) -> dict[str, npt.NDArray[Any]]:
    """The cells of all attributes; rows are padded to the longest."""
    axes = grid.axes
    refined = max((len(a.refined) for a in axes), default=1)
    return {
        "n_cells": np.array([a.n_cells for a in axes], np.int32),
        # No window holds the missing value and another one, except of a sensitive attribute.
        "ordered": np.array(
            [a.n_cells - 1 if a.cells[-1].missing and a.n_cells > 1 and not a.sensitive else a.n_cells for a in axes],
            np.int32,
        ),
        "sensitive": np.array([a.sensitive for a in axes], bool),
        "n_refined": np.array([len(a.refined) for a in axes], np.int32),
        "base_cell": padded([a.base for a in axes], refined, np.int32),
        "near_lo": padded([a.near_lo for a in axes], refined, np.int32),
        "near_hi": padded([a.near_hi for a in axes], refined, np.int32),
        "single": padded([a.single for a in axes], max((a.n_cells for a in axes), default=1), np.bool_),
    }


def padded(rows: Sequence[Any], width: int, dtype: type) -> npt.NDArray[Any]:
    """Rows of different lengths as a table."""
    out: npt.NDArray[Any] = np.zeros((len(rows), width), dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
