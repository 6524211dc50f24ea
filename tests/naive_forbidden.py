"""The oracle of what rules forbid, on a grid: every x against every x' that it may take, with no code of the engines.

It reads the fields of a grid (cells, reach, trees, thresholds, partners) and walks through all of its refined cells.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from boxqte.questions.grid import Grid


class Masses(NamedTuple):
    fair: Fraction
    unfair: Fraction
    low: Fraction
    """With what is forbidden."""
    forbidden: Fraction


def naive_margins(grid: Grid) -> np.ndarray[Any, Any]:
    """F at every base cell, as Python integers."""
    shape = [axis.n_cells for axis in grid.axes]
    total = np.full(shape, grid.base, object)
    for root in grid.roots.tolist():
        total = total + _tree(grid, root, shape)
    return total


def _tree(grid: Grid, node: int, shape: list[int]) -> Any:
    if grid.cut[node] < 0:
        return np.array(grid.values[grid.leaf[node]], object)
    cut = grid.cuts[grid.cut[node]]
    along = [1] * len(shape)
    along[cut.axis] = shape[cut.axis]
    yes = np.array([bool(cut.mask >> c & 1) for c in range(shape[cut.axis])]).reshape(along)
    return np.where(yes, _tree(grid, int(grid.yes[node]), shape), _tree(grid, int(grid.no[node]), shape))


def naive_forbidden(grid: Any) -> np.ndarray[Any, Any]:
    """Which base cells some rule forbids."""
    found = np.zeros([axis.n_cells for axis in grid.axes], bool)
    for cells in product(*(range(axis.n_cells) for axis in grid.axes)):
        found[cells] = any(all(mask >> cells[a] & 1 for a, mask in one.masks) for one in grid.forbidden)
    return found


def naive_verdicts(grid: Grid) -> dict[tuple[int, ...], str]:
    """The verdict on every refined cell: fair, unfair, low or forbidden."""
    margins, gone = naive_margins(grid), naive_forbidden(grid)
    t = grid.thresholds
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    verdicts = {}
    for cells in product(*(range(len(axis.refined)) for axis in grid.axes)):
        own = tuple(int(axis.base[c]) for axis, c in zip(grid.axes, cells))
        if gone[own]:
            verdicts[cells] = "forbidden"
            continue
        F = margins[own]
        if t.conf_neg < F < t.conf_pos:
            verdicts[cells] = "low"
            continue
        below, above = grid.targets(F)
        window = tuple(slice(int(x.near_lo[c]), int(x.near_hi[c]) + 1) for x, c in zip(grid.axes, cells))
        admissible = ~gone
        if sensitive and all(grid.axes[a].single[own[a]] for a in sensitive):
            same = np.ones_like(gone)
            for a in sensitive:
                along = [1] * gone.ndim
                along[a] = -1
                same = same & (np.arange(gone.shape[a]) == own[a]).reshape(along)
            admissible = admissible & ~same
        found = False
        for target, side in ((below, "low"), (above, "high")):
            if target is None:
                continue
            hit = admissible & ((margins <= target) if side == "low" else (margins >= target))
            hit = hit[window]
            if grid.partners is not None and grid.partners.axis >= 0:
                first, last = getattr(grid.partners, side)[own[grid.partners.axis]]
                hit = hit[(slice(None),) * grid.partners.axis + (slice(first, last + 1),)]
            found = found or bool(hit.any())
        verdicts[cells] = "unfair" if found else "fair"
    return verdicts


def naive_masses(grid: Any) -> Masses:
    """The mass of every verdict."""
    sums = dict.fromkeys(("fair", "unfair", "low", "forbidden"), Fraction(0))
    for cells, verdict in (naive_verdicts if isinstance(grid, Grid) else naive_class_verdicts)(grid).items():
        mass = Fraction(1)
        for axis, c in zip(grid.axes, cells):
            mass *= axis.refined_masses[c]
        sums[verdict] += mass
    return Masses(sums["fair"], sums["unfair"], sums["low"] + sums["forbidden"], sums["forbidden"])


def naive_class_verdicts(grid: Any) -> dict[tuple[int, ...], str]:
    """The same for three classes and more."""
    margins, gone = {}, naive_forbidden(grid)
    shape = [axis.n_cells for axis in grid.axes]
    for cells in product(*map(range, shape)):
        totals = list(grid.bases)
        for tree, root in enumerate(grid.roots.tolist()):
            node = root
            while grid.cut[node] >= 0:
                cut = grid.cuts[grid.cut[node]]
                node = int((grid.yes if cut.mask >> cells[cut.axis] & 1 else grid.no)[node])
            row, output = grid.leaf_values[grid.leaf[node]], int(grid.tree_output[tree])
            for k in range(len(totals)):
                totals[k] += row[k] if output < 0 else row[0] if output == k else 0
        margins[cells] = totals
    classes = np.array([margins[cells].index(max(margins[cells])) for cells in product(*map(range, shape))]).reshape(
        shape
    )
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    verdicts = {}
    for cells in product(*(range(len(axis.refined)) for axis in grid.axes)):
        own = tuple(int(axis.base[c]) for axis, c in zip(grid.axes, cells))
        if gone[own]:
            verdicts[cells] = "forbidden"
        elif not grid.confident(margins[own]):
            verdicts[cells] = "low"
        else:
            hit = ~gone & (classes != classes[own])
            if sensitive and all(grid.axes[a].single[own[a]] for a in sensitive):
                same = np.ones_like(gone)
                for a in sensitive:
                    along = [1] * gone.ndim
                    along[a] = -1
                    same = same & (np.arange(gone.shape[a]) == own[a]).reshape(along)
                hit = hit & ~same
            window = tuple(slice(int(x.near_lo[c]), int(x.near_hi[c]) + 1) for x, c in zip(grid.axes, cells))
            verdicts[cells] = "unfair" if hit[window].any() else "fair"
    return verdicts
