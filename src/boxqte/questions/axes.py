"""One attribute as cells: exact edges, masses, near ranges (semantics.md, 'Everything is finite: cells').

The tests of a model on one attribute cut its domain into base cells. For epsilon > 0 the cuts shifted by -epsilon and
+epsilon refine them: inside a refined cell every x has the same base cell and reaches the same range of base cells.
Edges are exact rationals with open and closed ends kept. An edge at which no test changes its outcome is none.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import SpaceError
from boxqte.exact import exact_sum
from boxqte.models.ensemble import ZERO_BAND, Missing, Test, TreeEnsemble, holds
from boxqte.space.attributes import Attribute
from boxqte.space.conditions import Part, cuts_of, holds_in

# (v, 0) separates the points below v from v; (v, 1) separates v from the points above it. They order as tuples do.
Edge = tuple[Fraction, int]
Int32Array = npt.NDArray[np.int32]

MAX_SET_CODES = 1_000_000
BEYOND_F32 = 2.0**128  # where the next float32 would be; the cast to infinity begins halfway to it


@dataclass(frozen=True, slots=True)
class Cell:
    """A set of values of one attribute that no test, and no tolerance, tells apart."""

    low: Edge | None = None
    high: Edge | None = None
    """The ends of an interval of a numeric attribute."""
    values: tuple[int, ...] = ()
    """Indices into the values of a finite attribute."""
    missing: bool = False
    integral: bool = False

    @property
    def is_point(self) -> bool:
        """Whether the cell is a single value of its attribute."""
        if self.missing:
            return True
        if self.low is None or self.high is None:
            return len(self.values) == 1
        if self.integral:  # its ends are whole numbers
            return self.high[0].numerator - self.low[0].numerator == 1
        return self.high[0] == self.low[0]


@dataclass(frozen=True, eq=False)
class Axis:
    """One attribute as cells. Refined cell r lies in base cell `base[r]` and reaches `near_lo[r]`..`near_hi[r]`."""

    attribute: Attribute
    sensitive: bool
    tolerance: Fraction
    cells: tuple[Cell, ...]
    masses: tuple[Fraction, ...]
    refined: tuple[Cell, ...]
    refined_masses: tuple[Fraction, ...]
    base: Int32Array
    near_lo: Int32Array
    near_hi: Int32Array

    @property
    def n_cells(self) -> int:
        return len(self.cells)

    @cached_property
    def single(self) -> npt.NDArray[np.bool_]:
        """Which base cells are single points."""
        return np.array([c.is_point for c in self.cells])

    @property
    def mass_error(self) -> Fraction:
        """Twice as much as, and more than, the cells' masses are off in total (distributions.py); 0 but for formulas."""
        formula = self.attribute.distribution
        return Fraction(0) if formula is None else formula.error * len(self.refined)

    @property
    def moves(self) -> bool:
        """Whether some x reaches another base cell along this axis without it being sensitive (the set E)."""
        return not self.sensitive and bool((self.near_lo < self.near_hi).any())


@dataclass(frozen=True)
class Question:
    """What an axis is built for: the attribute's part in the property, and the nodes of the model that test it."""

    attribute: Attribute
    sensitive: bool
    tolerance: Fraction
    model: TreeEnsemble
    nodes: npt.NDArray[np.int64]
    """One node for each distinct test."""
    groups: tuple[int, ...] = ()
    """The decision threshold of each value, where it depends on the attribute: values of two groups share no cell."""
    parts: tuple[Part, ...] = ()
    """What the space's rules say of the attribute: no cell lies half inside one of these."""

    def axis(
        self,
        cells: list[Cell],
        masses: list[Fraction],
        refined: tuple[list[Cell], list[Fraction], Sequence[int], Sequence[int], Sequence[int]] | None = None,
    ) -> Axis:
        """The axis, with the missing value as its last cell if it is declared, and everything near if sensitive."""
        own = range(len(cells))
        fine, fine_masses, base, lo, hi = refined or (cells, masses, own, own, own)
        if self.attribute.missing is not None:
            absent, end = Cell(missing=True), len(cells)
            cells, masses = [*cells, absent], [*masses, self.attribute.missing]
            fine, fine_masses = [*fine, absent], [*fine_masses, self.attribute.missing]
            base, lo, hi = ([*ends, end] for ends in (base, lo, hi))
        if self.sensitive:
            lo, hi = [0] * len(base), [len(cells) - 1] * len(base)
        ranges = (np.array(numbers, np.int32) for numbers in (base, lo, hi))
        return Axis(self.attribute, self.sensitive, self.tolerance, tuple(cells), tuple(masses), tuple(fine),
                    tuple(fine_masses), *ranges)  # fmt: skip


# --- finite attributes ------------------------------------------------------------------------------------------------


def finite_axis(question: Question, codes: npt.NDArray[np.float64], columns: Sequence[int]) -> tuple[Axis, list[int]]:
    """Cells of a categorical or one-hot attribute: values with the same outcome in every test share one.

    `codes` is what each value writes into each column, `columns` the column that each node tests. The second result is
    the set of cells that each node sends left, as a bit mask.
    """
    attribute, model, nodes = question.attribute, question.model, question.nodes.tolist()
    n_values = len(codes)
    rows = np.concatenate([codes, np.full((1, codes.shape[1]), np.nan)])  # the last value is the missing one
    tests, read = model.test[question.nodes], rows.T[columns]
    outcomes = np.where(
        np.isnan(read), model.default_left[question.nodes][:, None],
        holds(tests[:, None], model.threshold[question.nodes][:, None], read),
    )  # fmt: skip
    for at in np.flatnonzero((tests == Test.IN_SET) | (model.missing[question.nodes] != Missing.DEFAULT)).tolist():
        if tests[at] == Test.IN_SET:
            _check_codes(attribute, codes[:, columns[at]], model.feature_names[model.feature[nodes[at]]])
        outcomes[at] = model.goes_left(nodes[at], read[at])
    groups: dict[tuple[bytes, int, tuple[bool, ...]], list[int]] = {}
    for value, signature in enumerate(np.packbits(outcomes[:, :n_values].T, axis=1)):
        group = question.groups[value] if question.groups else 0
        ruled = tuple(value in part.values for part in question.parts)
        groups.setdefault((signature.tobytes(), group, ruled), []).append(value)
    cells = [Cell(values=tuple(group)) for group in groups.values()]
    value_masses = attribute.value_masses()
    masses = [sum((value_masses[v] for v in group), Fraction(0)) for group in groups.values()]
    shown = [group[0] for group in groups.values()] + ([n_values] if attribute.missing is not None else [])
    packed = np.packbits(outcomes[:, shown], axis=1, bitorder="little")
    return question.axis(cells, masses), [int.from_bytes(row.tobytes(), "little") for row in packed]


def _check_codes(attribute: Attribute, codes: npt.NDArray[np.float64], column: str) -> None:
    """Libraries read fractions as category codes in different ways (TreeEnsemble); integers they all read alike."""
    odd = codes[codes != np.floor(codes)]
    if len(odd):
        raise SpaceError(
            f"attribute '{attribute.name}': code {odd[0]} is no integer, but the model tests column '{column}' for "
            "categories"
        )


# --- numeric attributes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Flips:
    """The edges at which each test changes its outcome, test by test from left to right.

    `value` holds float64 (real attributes) or int64 (integer attributes), `side` completes it to an edge, `test` is the
    index of the test; `ends_true[t]` is the outcome of test t on the far right.
    """

    value: npt.NDArray[Any]
    side: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]
    ends_true: npt.NDArray[np.bool_]


def numeric_axis(question: Question) -> tuple[Axis, list[int]]:
    """Cells of a real or integer attribute: intervals between the tests' edges, as many as the tests tell apart.

    The second result is the set of cells that each node sends left, as a bit mask.
    """
    attribute = question.attribute
    integral = attribute.kind == "integer"
    flips = _integer_flips(question) if integral else _real_flips(question)
    tests = len(flips.ends_true)
    if question.groups:
        flips = _with_groups(flips, question)
    first: Edge = (attribute.low, 0)
    last: Edge = (attribute.high + 1, 0) if integral else (attribute.high, 1)
    values, rank = np.unique(flips.value, return_inverse=True)
    keys, at = np.unique(2 * rank.reshape(-1) + flips.side, return_inverse=True)
    # A float and a Fraction compare exactly.
    listed = list(zip(values[keys // 2].tolist(), (keys % 2).tolist()))
    start, stop = bisect_right(listed, first), bisect_left(listed, last)
    tested = [(Fraction(value), side) for value, side in listed[start:stop]]
    inner = sorted({*tested, *cuts_of(attribute, question.parts)}) if question.parts else tested
    n = len(inner) + 1
    # How many cells lie to the left of a flip: none or all for those outside the domain.
    left_of = np.array([0, *(bisect_right(inner, edge) for edge in tested), n])
    before = left_of[np.clip(at - start + 1, 0, len(tested) + 1)]
    masks = _interval_masks(flips, before, n)[:tests]
    if attribute.missing is not None:
        masks = [mask | (absent << n) for mask, absent in zip(masks, _goes_left_missing(question))]
    cells, masses = _intervals(attribute, [first, *inner, last])
    reach = Fraction(math.floor(question.tolerance)) if integral else question.tolerance
    if question.sensitive or not reach:
        return question.axis(cells, masses), masks
    edges, base, lo, hi = _refined(inner, first, last, reach)
    return question.axis(cells, masses, (*_intervals(attribute, edges), base, lo, hi)), masks


def bounded_axis(axis: Axis, masks: Sequence[int], reach: Fraction) -> tuple[Axis, list[int], list[tuple[int, int]]]:
    """A sensitive numeric axis whose values may change by at most `reach`: cells in which all x reach the same cells.

    The axis, the masks over its new cells, and the cells that each cell reaches (a missing value: itself).
    """
    attribute = axis.attribute
    if attribute.kind == "integer":
        reach = Fraction(math.floor(reach))
    old = [cell for cell in axis.cells if not cell.missing]
    first, last = old[0].low, old[-1].high
    assert first is not None
    assert last is not None
    inner = [cell.low for cell in old[1:] if cell.low is not None]
    edges, base, lo, hi = _refined(inner, first, last, reach)
    cells, masses = _intervals(attribute, edges)
    absent = axis.cells[len(old) :]
    cells += absent
    masses += axis.masses[len(old) :]
    start = [base.index(b) for b in range(len(old))]
    stop = [*(s - 1 for s in start[1:]), len(base) - 1]
    windows = [(start[low], stop[high]) for low, high in zip(lo, hi)] + [(len(base), len(base))] * len(absent)
    base += [len(old)] * len(absent)
    spread = [sum(1 << r for r, b in enumerate(base) if mask >> b & 1) for mask in masks]
    own = np.arange(len(cells), dtype=np.int32)
    everything = (own * 0, own * 0 + np.int32(len(cells) - 1))
    kept = tuple(cells), tuple(masses)
    return Axis(attribute, True, axis.tolerance, *kept, *kept, own, *everything), spread, windows


def _real_flips(question: Question) -> _Flips:
    """Threshold tests read on the real number itself: true to the left of the threshold's edge.

    Where zero follows the default side, a band around zero is cut out: [-ZERO_BAND, ZERO_BAND], or 0 alone.
    """
    attribute, model, nodes = question.attribute, question.model, question.nodes
    if (model.test[nodes] == Test.IN_SET).any():
        raise SpaceError(
            f"attribute '{attribute.name}' is real, but the model tests it for categories; declare it categorical or "
            "integer"
        )
    value, side = model.threshold[nodes], (model.test[nodes] != Test.LESS_F32).astype(np.int64)
    special: dict[int, list[tuple[float, int]]] = {}
    for at in np.flatnonzero(_with_zero(question)).tolist():
        band = ZERO_BAND if model.missing[nodes[at]] == Missing.WITH_ZERO else 0.0
        edge, zero, beyond = (float(value[at]), int(side[at])), (-band, 0), (band, 1)
        starts = sorted({edge, zero, beyond})
        default = bool(model.default_left[nodes[at]])
        special[at] = _changes(starts, True, [default if zero <= s < beyond else s < edge for s in starts])
    return _collect(value, side, special, np.zeros(len(nodes), bool))


def _integer_flips(question: Question) -> _Flips:
    """Threshold tests are true up to some integer; of all other tests, the outcome is computed where it may change."""
    attribute, model, nodes = question.attribute, question.model, question.nodes
    low, high = int(attribute.low), int(attribute.high)
    is_set = model.test[nodes] == Test.IN_SET
    value = np.zeros(len(nodes), np.int64)
    value[~is_set] = _first_false(model.test[nodes[~is_set]], model.threshold[nodes[~is_set]], low, high)
    special: dict[int, list[tuple[int, int]]] = {}
    ends_true = np.zeros(len(nodes), bool)
    for at in np.flatnonzero(is_set | _with_zero(question)).tolist():
        node = int(nodes[at])
        candidates = {low, 0, 1} | ({int(value[at])} if not is_set[at] else _set_edges(question, node))
        starts = sorted(v for v in candidates if low <= v <= high)
        left = model.goes_left(node, np.array(starts, np.float64)).tolist()
        special[at] = _changes([(v, 0) for v in starts], left[0], left)
        ends_true[at] = left[-1]
    return _collect(value, np.zeros(len(nodes), np.int64), special, ends_true)


def _with_groups(flips: _Flips, question: Question) -> _Flips:
    """One more test for every place where the group changes; it is there for its edge alone."""
    low, groups = int(question.attribute.low), question.groups[: int(question.attribute.range) + 1]
    starts = np.array([low + i for i in range(1, len(groups)) if groups[i] != groups[i - 1]], np.int64)
    tests = len(flips.ends_true) + np.arange(len(starts))
    return _Flips(
        np.concatenate([flips.value, starts]),
        np.concatenate([flips.side, np.zeros(len(starts), np.int64)]),
        np.concatenate([flips.test, tests]),
        np.concatenate([flips.ends_true, np.zeros(len(starts), bool)]),
    )


def _with_zero(question: Question) -> npt.NDArray[np.bool_]:
    missing = question.model.missing[question.nodes]
    with_zero: npt.NDArray[np.bool_] = (missing == Missing.WITH_ZERO) | (missing == Missing.ZERO_EXACT)
    return with_zero


def _set_edges(question: Question, node: int) -> set[int]:
    """Where a category set, or the categories that the model knows at all, may begin or end."""
    codes = question.model.set_of(node) | question.model.known_codes.get(int(question.model.feature[node]), frozenset())
    if len(codes) > MAX_SET_CODES:
        raise SpaceError(f"attribute '{question.attribute.name}': the model tests more than {MAX_SET_CODES} categories")
    return {edge for code in codes for edge in (code, code + 1)}


def _first_false(
    test: npt.NDArray[np.uint8], threshold: npt.NDArray[np.float64], low: int, high: int
) -> npt.NDArray[np.int64]:
    """The smallest integer in low..high+1 at which each threshold test fails: it is true below and false from there on.

    By bisection: how float32 rounds integers beyond 2**24 is for `holds` to know. Below, it is beside the threshold.
    """
    near = np.abs(threshold) < 2.0**24
    beside = np.where(near, np.ceil(threshold), 0).astype(np.int64)
    start = np.where(near, np.clip(beside - 1, low, high + 1), low)
    stop = np.where(near, np.clip(beside + 1, low, high + 1), high + 1)
    while (start < stop).any():
        middle = (start + stop) // 2
        true = holds(test, threshold, middle) & (start < stop)
        start, stop = np.where(true, middle + 1, start), np.where(true, stop, middle)
    return start


def _changes(starts: Sequence[tuple[Any, int]], before: bool, outcomes: Iterable[bool]) -> list[tuple[Any, int]]:
    """The starts at which the outcome differs from the one before."""
    found = []
    for start, outcome in zip(starts, outcomes):
        if outcome != before:
            found.append(start)
        before = outcome
    return found


def _collect(
    value: npt.NDArray[Any],
    side: npt.NDArray[np.int64],
    special: dict[int, list[tuple[Any, int]]],
    ends_true: npt.NDArray[np.bool_],
) -> _Flips:
    """One flip for every test but the special ones, which have their own."""
    plain = np.delete(np.arange(len(value)), list(special))
    flips = [(v, s, at) for at, edges in special.items() for v, s in edges]
    columns = list(zip(*flips)) or [(), (), ()]
    return _Flips(
        np.concatenate([value[plain], np.array(columns[0], value.dtype)]),
        np.concatenate([side[plain], np.array(columns[1], np.int64)]),
        np.concatenate([plain, np.array(columns[2], np.int64)]),
        ends_true,
    )


def _interval_masks(flips: _Flips, before: npt.NDArray[np.int64], n: int) -> list[int]:
    """The cells that each test holds on: it changes at its flips, and behind the last one is as `ends_true` says."""
    prefixes: dict[int, int] = {}  # equal masks are one object: there can be many, and they can be long
    masks = [(1 << n) - 1 if true else 0 for true in flips.ends_true.tolist()]
    for test, cells in zip(flips.test.tolist(), before.tolist()):
        if cells not in prefixes:
            prefixes[cells] = (1 << cells) - 1
        masks[test] = masks[test] ^ prefixes[cells] if masks[test] else prefixes[cells]
    return masks


def _goes_left_missing(question: Question) -> list[bool]:
    """Where each node sends a missing value."""
    model, nodes = question.model, question.nodes
    left = np.where(
        model.missing[nodes] == Missing.AS_ZERO, holds(model.test[nodes], model.threshold[nodes], 0.0),
        model.default_left[nodes],
    )  # fmt: skip
    for at in np.flatnonzero(model.test[nodes] == Test.IN_SET).tolist():
        left[at] = model.goes_left(int(nodes[at]), np.array([np.nan]))[0]
    outcomes: list[bool] = left.tolist()
    return outcomes


def _refined(
    inner: Sequence[Edge], first: Edge, last: Edge, reach: Fraction
) -> tuple[list[Edge], list[int], list[int], list[int]]:
    """The edges of the refined cells, and for each of these its base cell and the base cells it reaches.

    An x to the right of the edge (v - reach) reaches past the edge v; one left of (v + reach) reaches before it.
    """
    unit = math.lcm(reach.denominator, *(v.denominator for v, _ in (first, last, *inner)))

    def position(edge: Edge) -> int:  # one integer an edge, in the order of the edges
        return 2 * edge[0].numerator * (unit // edge[0].denominator) + edge[1]

    step = 2 * reach.numerator * (unit // reach.denominator)
    at, begin, end = [position(edge) for edge in inner], position(first), position(last)
    shifted = sorted({p + d for p in at for d in (-step, 0, step) if begin < p + d < end})
    edges = [first, *((Fraction(p >> 1, unit), p & 1) for p in shifted), last]
    base, lo, hi = ([bisect_right(at, p + d) for p in (begin, *shifted)] for d in (0, -step, step))
    return edges, base, lo, hi


def _intervals(attribute: Attribute, edges: Sequence[Edge]) -> tuple[list[Cell], list[Fraction]]:
    """The cells between neighbouring edges, and their masses."""
    integral = attribute.kind == "integer"
    cells = [Cell(low=low, high=high, integral=integral) for low, high in pairwise(edges)]
    if attribute.kind == "real" and not attribute.range:
        return cells, [1 - (attribute.missing or Fraction(0))]
    if attribute.is_even:
        # On a common denominator, because there can be many.
        unit = math.lcm(*(value.denominator for value, _ in edges))
        density = (1 - (attribute.missing or Fraction(0))) / (edges[-1][0] - edges[0][0]) / unit
        at = [value.numerator * (unit // value.denominator) for value, _ in edges]
        up, down = density.numerator, density.denominator
        return cells, [Fraction((high - low) * up, down) for low, high in pairwise(at)]
    below = [attribute.mass_below(value) for value, _ in edges]
    return cells, [high - low for low, high in pairwise(below)]


def cell_mass(attribute: Attribute, cell: Cell) -> Fraction:
    """The mass of a cell of the attribute's domain."""
    if cell.missing:
        return attribute.missing or Fraction(0)
    if cell.low is None or cell.high is None:
        masses = attribute.value_masses()
        return sum((masses[v] for v in cell.values), Fraction(0))
    if attribute.kind == "real" and not attribute.range:
        return 1 - (attribute.missing or Fraction(0))
    return attribute.mass_below(cell.high[0]) - attribute.mass_below(cell.low[0])


def cells_inside(axis: Axis, part: Part) -> int:
    """The base cells that lie in a part, as a bit mask; none lies half inside (`Question.parts`)."""
    return sum(1 << c for c, cell in enumerate(axis.cells) if _inside(axis.attribute, part, cell))


def _inside(attribute: Attribute, part: Part, cell: Cell) -> bool:
    if cell.missing or cell.low is None:
        return part.missing if cell.missing else cell.values[0] in part.values
    value, side = cell.low
    if side:  # the points behind the value, but not itself
        return any(low <= value < high for low, high in part.spans)
    return holds_in(attribute, part, value)


# --- cells that count the same ---------------------------------------------------------------------------------------


def counted_axis(axis: Axis) -> Axis:
    """The axis where every cell has the same mass (epsilon = 0). Inside a cell it lies as the attribute's own does."""
    masses = (Fraction(1, axis.n_cells),) * axis.n_cells
    return replace(axis, masses=masses, refined_masses=masses)


# --- rounding of inputs -----------------------------------------------------------------------------------------------


def cast_mass(question: Question, counted: Axis | None = None) -> Fraction:
    """A bound on the mass of real x that the cast to float32 moves across a threshold.

    float32(x) < t holds below the point halfway between t (which is a float32) and the float32 before it; float32(x) <= t
    holds up to the point halfway between the last float32 that is at most t and the next one. What lies between t and
    that point is moved. `counted` is the axis, if its cells count the same.
    """
    attribute, model, nodes = question.attribute, question.model, question.nodes
    total = Fraction(0)
    for test in (Test.LESS_F32, Test.AT_MOST_F32):
        limit = np.unique(model.threshold[nodes[model.test[nodes] == test]])
        with np.errstate(over="ignore"):
            single = limit.astype(np.float32)
            down = np.where(single > limit, np.nextafter(single, np.float32(-np.inf)), single)
            other = np.nextafter(down, np.float32(-np.inf if test == Test.LESS_F32 else np.inf))
        near, far = (np.clip(ends.astype(np.float64), -BEYOND_F32, BEYOND_F32) for ends in (down, other))
        halfway = (near + far) / 2  # exact: neighbours in float32 differ in the last of 24 bits
        ends = np.minimum(halfway, limit).tolist(), np.maximum(halfway, limit).tolist()
        total += _mass_of_intervals(attribute, *ends) if counted is None else _mass_in_cells(counted, *ends)
    return min(total, Fraction(1))


def _mass_in_cells(axis: Axis, lows: list[float], highs: list[float]) -> Fraction:
    """A bound on the same where cells count the same; a cell without a mass of its own is counted as a whole."""
    total, below = Fraction(0), axis.attribute.mass_below
    ends = [(cell.low[0], cell.high[0]) for cell in axis.cells if cell.low is not None and cell.high is not None]
    starts = [low for low, _ in ends]
    for low, high in zip(map(Fraction, lows), map(Fraction, highs)):
        for at in range(max(bisect_left(starts, low) - 1, 0), bisect_right(starts, high)):
            start, stop = ends[at]
            own, inside = below(stop) - below(start), below(min(high, stop)) - below(max(low, start))
            if max(low, start) <= min(high, stop):
                total += axis.masses[at] * (inside / own if own else 1)
    return total


def _mass_of_intervals(attribute: Attribute, lows: list[float], highs: list[float]) -> Fraction:
    """The sum of the masses of the intervals lows[i]..highs[i], both lists being in order."""
    start, stop = bisect_right(highs, attribute.low), bisect_left(lows, attribute.high)
    total = Fraction(0)
    if attribute.is_even and attribute.range:
        # Of those that lie in the domain the mass is the length, and lengths are quickly added.
        first, last = max(bisect_left(lows, attribute.low), start), min(bisect_right(highs, attribute.high), stop)
        length = exact_sum(highs[first:last]) - exact_sum(lows[first:last])
        total += length / attribute.range * (1 - (attribute.missing or Fraction(0)))
        others = [*range(start, min(first, stop)), *range(max(first, last), stop)]
    else:
        others = list(range(start, stop))
    for at in others:
        total += attribute.mass_below(Fraction(highs[at])) - attribute.mass_below(Fraction(lows[at]))
    return total
