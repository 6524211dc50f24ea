"""Path tuples, their boxes and the regions X_unfair as sets of cells: bit masks, one an attribute, and whole numbers.

A *box* is a tuple of masks over base cells, a *refined box* one over refined cells. Every x of a refined cell has the same
path tuple and reaches the same base cells, so regions of refined cells are regions of inputs, without any loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from boxqte.questions.axes import Axis
from boxqte.questions.grid import Grid

Mask = int
Masks = tuple[Mask, ...]
PathTuple = tuple[int, ...]
"""One leaf a tree."""


class AxisMasks:
    """One attribute: which refined cells lie in, or reach, given base cells, and what they weigh."""

    def __init__(self, axis: Axis):
        self.sensitive = axis.sensitive
        self.full: Mask = (1 << axis.n_cells) - 1
        self.full_refined: Mask = (1 << len(axis.refined)) - 1
        self.points: Mask = sum(1 << at for at, single in enumerate(axis.single.tolist()) if single)
        self._base = axis.base.tolist()
        self._reach = [(2 << hi) - (1 << lo) for lo, hi in zip(axis.near_lo.tolist(), axis.near_hi.tolist())]
        self.unit = math.lcm(*(mass.denominator for mass in axis.refined_masses))
        self._weights = [int(mass * self.unit) for mass in axis.refined_masses]
        self._inside: dict[Mask, Mask] = {}
        self._near: dict[Mask, Mask] = {}
        self._weight: dict[Mask, int] = {}

    def inside(self, base: Mask) -> Mask:
        """The refined cells that lie in the base cells."""
        if base not in self._inside:
            self._inside[base] = sum(1 << r for r, b in enumerate(self._base) if base >> b & 1)
        return self._inside[base]

    def near(self, base: Mask) -> Mask:
        """Near(B_i, epsilon): the refined cells that reach one of the base cells."""
        if base not in self._near:
            self._near[base] = sum(1 << r for r, reach in enumerate(self._reach) if reach & base)
        return self._near[base]

    def weight(self, refined: Mask) -> int:
        """The mass of the refined cells, in units of 1 / `unit`."""
        if refined not in self._weight:
            self._weight[refined] = sum(w for r, w in enumerate(self._weights) if refined >> r & 1)
        return self._weight[refined]


class Boxes:
    """The boxes of a grid's path tuples, and exact measures of sets of refined cells."""

    def __init__(self, grid: Grid):
        self.axes = tuple(AxisMasks(axis) for axis in grid.axes)
        self.full: Masks = tuple(axis.full for axis in self.axes)
        self.sensitive = tuple(i for i, axis in enumerate(self.axes) if axis.sensitive)
        self.unit = math.prod(axis.unit for axis in self.axes)
        """Masses are whole multiples of 1 / unit."""
        self.roots = grid.roots.tolist()
        self.cuts = tuple((cut.axis, cut.mask) for cut in grid.cuts)
        self._cut, self._yes, self._no = grid.cut.tolist(), grid.yes.tolist(), grid.no.tolist()
        self._leaf_box: dict[int, Masks] = dict(self._leaf_boxes(grid.leaf.tolist()))
        self._values, self._base = grid.values, grid.base

    def _leaf_boxes(self, leaf: Sequence[int]) -> Iterator[tuple[int, Masks]]:
        stack = [(root, self.full) for root in self.roots]
        while stack:
            node, box = stack.pop()
            if self._cut[node] < 0:
                yield leaf[node], box
                continue
            yes, no = self.sides(box, self._cut[node])
            stack += [(self._yes[node], yes), (self._no[node], no)]

    def sides(self, box: Masks, cut: int) -> tuple[Masks, Masks]:
        """The two parts of a box that a cut makes."""
        axis, mask = self.cuts[cut]
        here = box[axis]
        return replaced(box, axis, here & mask), replaced(box, axis, here & ~mask)

    def margin(self, leaves: PathTuple) -> int:
        """F, in the grid's units."""
        return self._base + sum(self._values[leaf] for leaf in leaves)

    def box(self, leaves: PathTuple) -> Masks:
        """B(pi): the intersection of the boxes of its paths."""
        box = self.full
        for leaf in leaves:
            box = tuple(a & b for a, b in zip(box, self._leaf_box[leaf]))
        return box

    def refined(self, box: Masks) -> Masks:
        """The same box in refined cells."""
        return tuple(axis.inside(mask) for axis, mask in zip(self.axes, box))

    def mass(self, refined: Masks) -> int:
        """|box|, in units of 1 / `unit`."""
        return math.prod(axis.weight(mask) for axis, mask in zip(self.axes, refined))

    def share(self, units: int) -> Fraction:
        return Fraction(units, self.unit)

    def near(self, other: Masks) -> tuple[Masks, Masks | None]:
        """The x that reach the box B' of x': refined cells near it, less those in the second result (None: none).

        x'_S != x_S only matters where B' is a single combination of sensitive values: x with these values are out. The
        set to take away is the product over S (the paper takes the difference attribute by attribute, which loses x that
        differ in some of them only).
        """
        reach = tuple(axis.near(mask) for axis, mask in zip(self.axes, other))
        if not self.sensitive or any(other[i] & (other[i] - 1) or not other[i] & self.axes[i].points
                                     for i in self.sensitive):  # fmt: skip
            return reach, None
        own = tuple(axis.inside(mask) if axis.sensitive else axis.full_refined
                    for axis, mask in zip(self.axes, other))  # fmt: skip
        return reach, own

    def region(self, x_box: Masks, other: Masks) -> list[Masks]:
        """X_unfair(pi, pi'): the part of the refined box x_box that reaches B', as disjoint refined boxes."""
        reach, own = self.near(other)
        outer = tuple(a & b for a, b in zip(x_box, reach))
        if not all(outer):
            return []
        if own is None:
            return [outer]
        parts = []
        for i in self.sensitive:  # differ in this one, agree in those before
            outside = outer[i] & ~own[i]
            if outside:
                parts.append(replaced(outer, i, outside))
            outer = replaced(outer, i, outer[i] & own[i])
            if not outer[i]:
                break
        return parts

    def residual_cuts(self, box: Masks) -> set[int]:
        """The first cut of each tree that divides the box. Every path tuple in the box lies on one side of each."""
        found = set()
        for node in self.roots:
            while self._cut[node] >= 0:
                axis, mask = self.cuts[self._cut[node]]
                if box[axis] & mask and box[axis] & ~mask:
                    found.add(self._cut[node])
                    break
                node = self._yes[node] if box[axis] & mask else self._no[node]
        return found

    def union(self, boxes: Iterable[Masks]) -> int:
        """The mass of the union of refined boxes, in units of 1 / `unit`.

        Axis by axis: cells that lie in the same boxes have the same rest, which is measured once.
        """
        listed = list(dict.fromkeys(boxes))
        known: dict[tuple[int, tuple[int, ...]], int] = {}

        def rest(i: int, active: tuple[int, ...]) -> int:
            if i == len(self.axes):
                return 1
            if (i, active) in known:
                return known[i, active]
            if len(active) == 1:
                return math.prod(axis.weight(mask) for axis, mask in zip(self.axes[i:], listed[active[0]][i:]))
            total = 0
            for cells, through in groups(active, [listed[n][i] for n in active]):
                weight = self.axes[i].weight(cells)
                if weight:
                    total += weight * rest(i + 1, through)
            known[i, active] = total
            return total

        return rest(0, tuple(range(len(listed)))) if listed else 0


def groups(active: Sequence[int], masks: Sequence[Mask]) -> list[tuple[Mask, tuple[int, ...]]]:
    """The cells in any of the masks, grouped by the boxes that they lie in."""
    parts: list[tuple[Mask, tuple[int, ...]]] = []
    for number, mask in zip(active, masks):
        left, split = mask, []
        for cells, through in parts:
            both = cells & mask
            left &= ~cells
            if both:
                split.append((both, (*through, number)))
            if cells & ~mask:
                split.append((cells & ~mask, through))
        if left:
            split.append((left, (number,)))
        parts = split
    return parts


def replaced(box: Masks, axis: int, mask: Mask) -> Masks:
    return (*box[:axis], mask, *box[axis + 1 :])
