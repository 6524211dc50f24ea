"""Regions of the input space, as CegarQuant refines them: by a node's test, or in half wherever that falls.

A region is a product of parts, one an attribute. Unlike the boxes of the other engines it need not follow the grid's
cells: half of an interval may end in the middle of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from boxqte.engines.smt.boxes import Mask
from boxqte.questions.axes import Axis, Edge
from boxqte.questions.grid import Grid


@dataclass(frozen=True)
class Part:
    """What a region has of one attribute.

    Numeric: the values between two edges that lie in base cells of the mask, and the missing value if its cell is in the
    mask. The edges are the outermost of what is left; None if only the missing value is.
    Finite: numbers of values; the number behind the last is the missing value.
    """

    mask: Mask = 0
    low: Edge | None = None
    high: Edge | None = None
    values: tuple[int, ...] = ()


Region = tuple[Part, ...]


class Dimension:
    """One attribute: how its parts are divided and what they weigh."""

    def __init__(self, axis: Axis, alike: Sequence[int]):
        self.axis = axis
        self._alike = alike
        self.numeric = axis.attribute.is_numeric
        absent = axis.attribute.missing is not None
        self._absent: Mask = 1 << (axis.n_cells - 1) if absent and self.numeric else 0
        self._mass: dict[Part, Fraction] = {}
        masses = [] if self.numeric else axis.attribute.value_masses()
        self._value_masses = [*masses, axis.attribute.missing or Fraction(0)]
        self._cell_of = {
            (len(axis.attribute.values) if cell.missing else value): at
            for at, cell in enumerate(axis.cells)
            for value in (cell.values if not cell.missing else (-1,))
        }

    def whole(self) -> Part:
        if not self.numeric:
            return Part(values=tuple(sorted(self._cell_of)))
        ends = [(cell.low, cell.high) for cell in self.axis.cells if cell.low is not None]
        return Part((1 << self.axis.n_cells) - 1, ends[0][0], ends[-1][1])

    def mass(self, part: Part) -> Fraction:
        if part not in self._mass:
            if len(self._mass) > 100_000:
                self._mass.clear()
            self._mass[part] = self._mass_of(part)
        return self._mass[part]

    def _mass_of(self, part: Part) -> Fraction:
        a = self.axis.attribute
        if not self.numeric:
            return sum((self._value_masses[v] for v in part.values), Fraction(0))
        total = a.missing or Fraction(0) if part.mask & self._absent else Fraction(0)
        if part.low is None:
            return total
        if a.kind == "real" and not a.range:
            return total + 1 - (a.missing or Fraction(0))
        spans = self._spans(part)
        return total + sum((a.mass_below(high[0]) - a.mass_below(low[0]) for low, high in spans), Fraction(0))

    def _spans(self, part: Part) -> list[tuple[Edge, Edge]]:
        """What is left of each base cell."""
        if part.low is None or part.high is None:
            return []
        spans = []
        for at, cell in enumerate(self.axis.cells):
            if part.mask >> at & 1 and cell.low is not None and cell.high is not None:
                low, high = max(part.low, cell.low), min(part.high, cell.high)
                if low < high:
                    spans.append((low, high))
        return spans

    def _tight(self, part: Part) -> Part | None:
        """The same part with the outermost edges and no idle cells; None if nothing is left."""
        spans = self._spans(part)
        if not spans:
            return Part(self._absent) if part.mask & self._absent else None
        low, high = spans[0][0], spans[-1][1]
        mask = part.mask & self._absent
        for at, cell in enumerate(self.axis.cells):
            if part.mask >> at & 1 and cell.low is not None and cell.high is not None:
                mask |= (1 << at) if max(low, cell.low) < min(high, cell.high) else 0
        return Part(mask, low, high)

    def by_cells(self, part: Part, mask: Mask) -> tuple[Part, Part] | None:
        """The part in the cells of the mask, and the rest; None if one of them is empty."""
        if not self.numeric:
            inside = tuple(v for v in part.values if mask >> self._cell_of[v] & 1)
            outside = tuple(v for v in part.values if not mask >> self._cell_of[v] & 1)
            return (Part(values=inside), Part(values=outside)) if inside and outside else None
        if not part.mask & mask or not part.mask & ~mask:
            return None
        yes = self._tight(Part(part.mask & mask, part.low, part.high))
        no = self._tight(Part(part.mask & ~mask, part.low, part.high))
        return (yes, no) if yes is not None and no is not None else None

    def meets(self, part: Part, mask: Mask) -> bool:
        """Whether some value of the part lies in a cell of the mask; idle cells are not in a part's own mask."""
        if not self.numeric:
            return any(mask >> self._cell_of[v] & 1 for v in part.values)
        return bool(part.mask & mask)

    def halves(self, part: Part) -> tuple[Part, Part] | None:
        """The part in two even halves; a missing value is taken off first. None if it is a single value."""
        if not self.numeric:
            middle = len(part.values) // 2
            return (Part(values=part.values[:middle]), Part(values=part.values[middle:])) if middle else None
        if part.low is None or part.high is None:
            return None
        if part.mask & self._absent:
            return Part(part.mask & ~self._absent, part.low, part.high), Part(self._absent)
        low, high = part.low[0], part.high[0]
        if self.axis.attribute.kind == "integer":
            middle_value = Fraction(math.floor((low + high) / 2))
            if high - low < 2:
                return None
        else:
            middle_value = (low + high) / 2
            if low == high:
                return None
        edge: Edge = (middle_value, 0)
        left, right = self._tight(Part(part.mask, part.low, edge)), self._tight(Part(part.mask, edge, part.high))
        return (left, right) if left is not None and right is not None else None

    def alike(self, part: Part) -> bool:
        """Whether all refined cells that the part meets are of one group."""
        if not self.numeric:
            return len({self._alike[self._cell_of[v]] for v in part.values}) == 1
        spans = self._spans(part)
        met = {
            self._alike[at]
            for at, cell in enumerate(self.axis.refined)
            if (cell.missing and part.mask & self._absent)
            or any(cell.low is not None and cell.high is not None and max(low, cell.low) < min(high, cell.high)
                   for low, high in spans)
        }  # fmt: skip
        return len(met) == 1


class Regions:
    """The regions of a grid's space."""

    def __init__(self, grid: Grid):
        self.forbidden = grid.forbidden
        self.dimensions = tuple(Dimension(axis, alike) for axis, alike in zip(grid.axes, _groups(grid)))

    def whole(self) -> Region:
        """X itself."""
        return tuple(dimension.whole() for dimension in self.dimensions)

    def mass(self, region: Region) -> Fraction:
        return math.prod((d.mass(part) for d, part in zip(self.dimensions, region)), start=Fraction(1))

    def by_cells(self, region: Region, axis: int, mask: Mask) -> tuple[Region, Region] | None:
        """The region in two by a node's test; None if the test is the same for all of it."""
        return _both(region, axis, self.dimensions[axis].by_cells(region[axis], mask))

    def halves(self, region: Region, axis: int) -> tuple[Region, Region] | None:
        """The region in two along an attribute; None if it has a single value of it."""
        return _both(region, axis, self.dimensions[axis].halves(region[axis]))

    def meets_forbidden(self, region: Region) -> bool:
        """Whether a rule forbids some input of the region."""
        return any(all(self.dimensions[a].meets(region[a], mask) for a, mask in one.masks) for one in self.forbidden)

    def alike(self, region: Region) -> bool:
        """Whether all inputs of the region surely have the same verdict."""
        return all(d.alike(part) for d, part in zip(self.dimensions, region))


def _groups(grid: Grid) -> list[list[int]]:
    """For each attribute a number for each refined cell; inputs with the same numbers have the same verdict.

    Inputs of one refined cell have the same F and reach the same cells. If epsilon moves nothing, it is enough that no test
    tells them apart: they have the same F, and so have the x' with other sensitive values. But along an axis that says who
    may be whose partner, every cell has its own.
    """
    groups = []
    for i, axis in enumerate(grid.axes):
        if grid.has_tolerance or (grid.partners is not None and grid.partners.axis == i):
            groups.append(list(range(len(axis.refined))))
            continue
        masks = [cut.mask for cut in grid.cuts if cut.axis == i]
        numbers: dict[tuple[int, ...], int] = {}
        outcomes = [tuple(mask >> cell & 1 for mask in masks) for cell in axis.base.tolist()]
        groups.append([numbers.setdefault(outcome, len(numbers)) for outcome in outcomes])
    return groups


def _both(region: Region, axis: int, parts: tuple[Part, Part] | None) -> tuple[Region, Region] | None:
    if parts is None:
        return None
    yes, no = ((*region[:axis], part, *region[axis + 1 :]) for part in parts)
    return yes, no
