"""One point in Python's integers: for margins that 64 bits cannot tell from a threshold, and as a readable reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from boxqte.questions.grid import AnyGrid, Grid

Box = Sequence[tuple[int, int]]  # the first and the last base cell on every axis of the grid


def exact_margin(grid: Grid, cells: Sequence[int]) -> int:
    """F at a base cell of every axis of the grid."""
    return grid.base + sum(low for low, _ in _bounds(grid, [(c, c) for c in cells]))


def counterexample(grid: Grid, cells: Sequence[int]) -> tuple[bool, list[int] | None]:
    """Whether the x in these refined cells is confident, and the base cells of an x' that makes it a counterexample."""
    t, partners = grid.thresholds, grid.partners
    own = [int(axis.base[c]) for axis, c in zip(grid.axes, cells)]
    F = exact_margin(grid, own)
    if t.conf_neg < F < t.conf_pos or forbids(grid, [(c, c) for c in own]):
        return False, None
    among = ((), ()) if partners is None else (partners.low, partners.high)
    window = [(int(axis.near_lo[c]), int(axis.near_hi[c])) for axis, c in zip(grid.axes, cells)]
    for sign, target, ranges in zip((1, -1), grid.targets(F), among):
        if target is None:
            continue
        box = list(window)
        if partners is not None and partners.axis >= 0:
            box[partners.axis] = ranges[cells[partners.axis]]
        found = partner(grid, cells, box, partial(_reaches, grid, sign, target))
        if found is not None:
            return True, found
    return True, None


def partners_of(grid: Grid, cells: Sequence[int], combinations: Iterable[Sequence[int]]) -> Iterator[list[int]]:
    """Of these combinations of sensitive cells those with which the confident x in these refined cells is a counterexample, as
    base cells of x'; epsilon = 0."""
    own = [int(axis.base[c]) for axis, c in zip(grid.axes, cells)]
    low, high = grid.targets(exact_margin(grid, own))
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    place = -1 if grid.partners is None else grid.partners.axis
    for combination in combinations:
        other = list(own)
        for a, c in zip(sensitive, combination):
            other[a] = c
        if forbids(grid, [(c, c) for c in other]):
            continue
        G = exact_margin(grid, other)
        below, above = low is not None and low >= G, high is not None and high <= G
        if grid.partners is not None and place >= 0:
            (first, last), (start, stop) = grid.partners.low[own[place]], grid.partners.high[own[place]]
            below, above = below and first <= other[place] <= last, above and start <= other[place] <= stop
        if below or above:
            yield other


def _reaches(grid: Grid, sign: int, target: int, box: Box) -> bool:
    """Whether a lower bound (sign 1) of F on the box is at most the target, or an upper bound (-1) at least."""
    bounds = list(_bounds(grid, box))
    if sign > 0:
        return grid.base + sum(low for low, _ in bounds) <= target
    return grid.base + sum(high for _, high in bounds) >= target


def partner(grid: AnyGrid, cells: Sequence[int], window: Box, holds: Callable[[Box], bool]) -> list[int] | None:
    """The base cells of an x' in the window that the x in these refined cells may take and that `holds` is true of, if there
    is one.

    `holds` must be true of a box with such a cell, and false of every single cell that is none.
    """
    own = [int(axis.base[c]) for axis, c in zip(grid.axes, cells)]
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    differ = bool(sensitive) and all(grid.axes[a].single[own[a]] for a in sensitive)
    stack = [list(window)] if all(low <= high for low, high in window) else []
    while stack:
        box = stack.pop()
        if (differ and all(box[a] == (own[a], own[a]) for a in sensitive)) or forbids(grid, box) or not holds(box):
            continue
        widest = max(range(len(box)), key=lambda a: box[a][1] - box[a][0])
        low, high = box[widest]
        if low == high:
            return [low for low, _ in box]
        middle = (low + high) // 2
        for part in ((low, middle), (middle + 1, high)):
            stack.append([*box[:widest], part, *box[widest + 1 :]])
    return None


def forbids(grid: AnyGrid, box: Box) -> bool:
    """Whether a rule forbids all of the box."""
    for one in grid.forbidden:
        ranges = [(mask, *box[axis]) for axis, mask in one.masks]
        if all(mask >> low & (inside := (1 << (high - low + 1)) - 1) == inside for mask, low, high in ranges):
            return True
    return False


def reached_leaves(grid: AnyGrid, root: int, box: Box) -> Iterator[int]:
    """The leaves of a tree that the box can reach, as far as each test tells by itself."""
    stack = [root]
    while stack:
        node = stack.pop()
        if grid.cut[node] < 0:
            yield int(grid.leaf[node])
            continue
        cut = grid.cuts[grid.cut[node]]
        low, high = box[cut.axis]
        whole = (1 << (high - low + 1)) - 1
        inside = cut.mask >> low & whole
        if inside:
            stack.append(int(grid.yes[node]))
        if inside != whole:
            stack.append(int(grid.no[node]))


def _bounds(grid: Grid, box: Box) -> Iterator[tuple[int, int]]:
    """The smallest and largest leaf of every tree that the box can reach."""
    for root in grid.roots.tolist():
        reached = [grid.values[leaf] for leaf in reached_leaves(grid, root, box)]
        yield min(reached), max(reached)
