"""Where the counterexamples are: disjoint boxes with their exact counterexample mass, and rules that people can read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.classes import ClassProblem
from boxqte.engines.box.plan import rounding_bound
from boxqte.engines.box.problem import Problem
from boxqte.engines.kinds import LOW, UNFAIR
from boxqte.engines.protocol import BoxArray, Closed, Decided, FloatArray, Status
from boxqte.exact import down
from boxqte.questions.axes import Cell
from boxqte.space.attributes import Attribute
from boxqte.space.conditions import MISSING, Part, shown_number, whole

STORE_BYTES = 1 << 28
PURE = 1 - 1e-9
ALIKE = 2.0  # regions are merged while their densities differ by no more than this factor


@dataclass(frozen=True, eq=False)
class Boxes:
    """Disjoint boxes of cells with their masses; `counted` is False for a box that bounds alone settled."""

    cells: BoxArray
    """box x axis of the problem x word"""
    masses: FloatArray
    """box x [fair, unfair, low]"""
    counted: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.counted)

    @property
    def density(self) -> FloatArray:
        """The share of each box's mass that is counterexamples."""
        total: FloatArray = np.maximum(self.masses.sum(axis=1), np.finfo(float).tiny)
        return np.minimum(self.masses[:, UNFAIR] / total, 1.0)

    def certain(self, rounding: Fraction) -> FloatArray:
        """What each box has of counterexamples at the least: an error is at most `rounding` of the box's mass."""
        least = [Fraction(own[UNFAIR]) - 2 * rounding * Fraction(sum(own)) for own in self.masses.tolist()]
        return np.array([down(max(mass, Fraction(0))) for mass in least])

    def take(self, at: npt.NDArray[np.integer] | slice) -> Boxes:
        return Boxes(self.cells[at], self.masses[at], self.counted[at])

    def heaviest(self, n: int | None) -> Boxes:
        """The boxes with the most counterexamples, most first."""
        return self.take(np.argsort(-self.masses[:, UNFAIR], kind="stable")[:n])


def joined(parts: Sequence[Boxes]) -> Boxes:
    """All boxes in one object."""
    return Boxes(
        np.concatenate([p.cells for p in parts]),
        np.concatenate([p.masses for p in parts]),
        np.concatenate([p.counted for p in parts]),
    )


class RegionStore:
    """An observer of the box engine that keeps every closed box with counterexamples in it.

    Bounded: beyond `limit` bytes, boxes that differ in one attribute only become one, and if that does not help, the
    lightest are counted in `elsewhere` and forgotten. No mass is lost.

    With epsilon > 0 what is unfair in a box is the rest that other masses leave. A rest that rounding alone can leave is
    no region: it is added up in `doubtful`. No rest proves nothing there, it may be lost in rounding: `unsure` says so.
    """

    def __init__(self, limit: int = STORE_BYTES):
        self.limit = limit
        self.problem: Problem | ClassProblem | None = None
        self.elsewhere = 0.0
        self.doubtful = 0.0
        self.unsure = False
        self.some_confident = False
        """Whether a box has anything else than inputs of low confidence, as far as sums in floats tell."""
        self.rounding = Fraction(0)
        """How far every sum of masses can be off, as a share of the mass it is about."""
        self.decided = Decided()
        self.status = Status.INTERRUPTED
        self._least_density = 0.0
        self._words: tuple[int, ...] = (0, 1)
        self._parts: list[Boxes] = []
        self._bytes = 0

    def begin(self, problem: Problem | ClassProblem, roots: BoxArray) -> None:
        self.problem = problem
        self.rounding = rounding_bound(problem)
        if problem.grid.has_tolerance and problem.grid.ensemble.is_binary:
            self._least_density = 2 * float(self.rounding)
            self.unsure = True
        self._words = roots.shape[1:]

    def finish(self, decided: Decided, status: Status) -> None:
        """The search has ended: what it has decided in all, and why it stopped."""
        self.decided, self.status = decided, status

    @property
    def complete(self) -> bool:
        """Whether the search went through all of the space, so that there are no other counterexamples."""
        return self.status is Status.CONVERGED

    def closed(self, parts: Closed) -> None:
        self.some_confident = self.some_confident or bool((parts.masses[:, :LOW] > 0).any())
        unfair = parts.masses[:, UNFAIR]
        sure = unfair > self._least_density * parts.masses.sum(axis=1)
        self.doubtful += float(unfair[~sure].sum())
        keep = np.flatnonzero(sure)
        if len(keep):
            self.add(Boxes(parts.boxes[keep], parts.masses[keep], parts.how[keep] != 0))
            if self._bytes > self.limit:
                self._shrink()

    def add(self, boxes: Boxes) -> None:
        """Keep more boxes, disjoint from those that are there."""
        self._parts.append(boxes)
        self._bytes += boxes.cells.nbytes + boxes.masses.nbytes + boxes.counted.nbytes

    def _shrink(self) -> None:
        boxes = merged(self.boxes, alike=math.inf)
        room = max(int(len(boxes) * self.limit / 2 / max(self._bytes, 1)), 1)
        if len(boxes) > room:
            ranked = boxes.heaviest(None)
            boxes, rest = ranked.take(slice(0, room)), ranked.take(slice(room, None))
            self.elsewhere = math.fsum([self.elsewhere, *rest.masses[:, UNFAIR].tolist()])
        self._parts, self._bytes = [], 0
        self.add(boxes)

    @property
    def boxes(self) -> Boxes:
        """All boxes that are kept, in no order."""
        if not self._parts:
            return Boxes(np.zeros((0, *self._words), np.uint64), np.zeros((0, 3)), np.zeros(0, bool))
        if len(self._parts) > 1:
            self._parts = [joined(self._parts)]
        return self._parts[0]

    def sort(self) -> None:
        """Put the boxes in an order that does not depend on which thread has found them when."""
        boxes = self.boxes
        if len(boxes):
            self._parts = [boxes.take(np.lexsort(boxes.cells.reshape(len(boxes), -1).T))]

    @property
    def mass(self) -> float:
        """The mass of all counterexamples seen."""
        return math.fsum([self.elsewhere, *self.boxes.masses[:, UNFAIR].tolist()])


def held_cells(words: npt.NDArray[np.uint64], n_cells: int) -> npt.NDArray[np.bool_]:
    """box x cell: which cells of one axis each box holds (words: box x word)."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    return bits[..., :n_cells].astype(bool)


def merged(boxes: Boxes, *, alike: float = ALIKE, ordered: Sequence[bool] | None = None) -> Boxes:
    """Boxes that differ in one axis only become one, again and again, while their densities are alike.

    On an ordered axis only neighbouring ranges are joined, so that the result is a range again. A box that is
    counterexamples throughout is joined only with such boxes.
    """
    n_axes = boxes.cells.shape[1]
    factors = np.random.default_rng(0).integers(1, 2**63, boxes.cells.shape[1:], dtype=np.uint64) | np.uint64(1)
    idle = 0
    axis = 0
    while n_axes and idle < n_axes and len(boxes) > 1:
        before = len(boxes)
        boxes = _merged_along(boxes, axis, factors, alike, ordered is not None and ordered[axis])
        idle = idle + 1 if len(boxes) == before else 1
        axis = (axis + 1) % n_axes
    return boxes


def _merged_along(boxes: Boxes, axis: int, factors: npt.NDArray[np.uint64], alike: float, ordered: bool) -> Boxes:
    """One pass: boxes that agree in all other axes stand side by side after sorting by a hash of these."""
    others = np.delete(np.arange(boxes.cells.shape[1]), axis)
    key = (boxes.cells[:, others] * factors[others]).sum(axis=(1, 2), dtype=np.uint64)
    held = held_cells(boxes.cells[:, axis], 64 * boxes.cells.shape[2])
    first = held.argmax(axis=1)
    last = held.shape[1] - 1 - held[:, ::-1].argmax(axis=1)
    order = np.lexsort((first, key))
    sorted_cells, density = boxes.cells[order], boxes.density[order]
    joins = key[order][1:] == key[order][:-1]
    joins &= (sorted_cells[1:, others] == sorted_cells[:-1, others]).all(axis=(1, 2))  # equal hashes prove nothing
    if ordered:
        joins &= last[order][:-1] + 1 == first[order][1:]
    low, high = np.minimum(density[1:], density[:-1]), np.maximum(density[1:], density[:-1])
    if not math.isinf(alike):
        joins &= (high <= alike * low) & ((low >= PURE) == (high >= PURE))
    if not joins.any():
        return boxes
    starts = np.concatenate([[0], 1 + np.flatnonzero(~joins)])
    return Boxes(
        np.bitwise_or.reduceat(sorted_cells, starts, axis=0),
        np.add.reduceat(boxes.masses[order], starts, axis=0),
        np.logical_or.reduceat(boxes.counted[order], starts),
    )


# --- rules ------------------------------------------------------------------------------------------------------------


class _Interval(NamedTuple):
    """From low to high; an open end does not belong to it."""

    low: Fraction
    low_open: bool
    high: Fraction
    high_open: bool


def rule_of(problem: Problem | ClassProblem, box: BoxArray, parts: Mapping[str, Part] | None = None) -> dict[str, str]:
    """The condition on each attribute that the box restricts, such that `restrict` reads it back.

    `parts` is what the condition of a restriction leaves: the cells may reach beyond it, the rule does not.
    """
    rules = {}
    at = {a: i for i, a in enumerate(problem.axis_ids)}
    for a, axis in enumerate(problem.grid.axes):
        attribute = axis.attribute
        part = (parts or {}).get(attribute.name)
        cells = problem.cells_of(at[a]) if a in at else axis.cells
        held = held_cells(box[at[a]], len(cells)) if a in at else np.ones(len(cells), bool)
        if not held.all() or (part is not None and not _is_whole(attribute, part)):
            rules[attribute.name] = cells_text(attribute, cells, np.flatnonzero(held).tolist(), part)
    return rules


def _is_whole(attribute: Attribute, part: Part) -> bool:
    everything = whole(attribute)
    return replace(part, lacks=frozenset()) == everything and not part.lacks & {attribute.low, attribute.high}


def quoted(name: str) -> str:
    """An attribute's name as conditions have it."""
    return name if name.isidentifier() else f"`{name}`"


def cells_text(
    attribute: Attribute,
    cells: Sequence[Cell],
    chosen: Sequence[int],
    part: Part | None = None,
    shown: Callable[[Fraction], str] = shown_number,
) -> str:
    """Some of an attribute's cells, inside a part of its domain, as a condition on it."""
    name = quoted(attribute.name)
    terms = []
    values = sorted(v for c in chosen for v in cells[c].values if part is None or v in part.values)
    if values:
        texts = [repr(attribute.values[v]) for v in values]
        terms.append(f"{name} == {texts[0]}" if len(texts) == 1 else f"{name} in [{', '.join(texts)}]")
    intervals = _intervals(cells, chosen)
    if part is not None:
        inside = _intervals_of(attribute, part)
        met = [_common(one, two) for one in intervals for two in inside]
        intervals = [i for i in met if i.low < i.high] or [
            i for i in met if i.low == i.high and not i.low_open and not i.high_open
        ]
    terms += [_interval_text(name, attribute, interval, shown) for interval in intervals]
    if any(cells[c].missing for c in chosen) and (part is None or part.missing):
        terms.append(f"{name} == {MISSING}")
    return terms[0] if len(terms) == 1 else f"({' or '.join(terms)})"


def _intervals(cells: Sequence[Cell], chosen: Sequence[int]) -> list[_Interval]:
    """The numeric cells as intervals, neighbours joined; those of integers end with the last one, which belongs to them."""
    found: list[_Interval] = []
    before = None
    for c in chosen:
        low, high = cells[c].low, cells[c].high
        if low is None or high is None:
            continue
        end = (high[0] - 1, False) if cells[c].integral else (high[0], not high[1])
        if found and before == c - 1:
            found[-1] = _Interval(found[-1].low, found[-1].low_open, *end)
        else:
            found.append(_Interval(low[0], bool(low[1]), *end))
        before = c
    return found


def _intervals_of(attribute: Attribute, part: Part) -> list[_Interval]:
    """The spans of a part in the same form."""
    if attribute.kind == "integer":
        return [_Interval(low, False, high - 1, False) for low, high in part.spans]
    if attribute.low == attribute.high:  # one point, which has a span of its own
        return [_Interval(attribute.low, False, attribute.low, False) for _ in part.spans]
    return [_Interval(low, low in part.lacks, high, high in part.lacks) for low, high in part.spans]


def _common(one: _Interval, two: _Interval) -> _Interval:
    low, low_open = max((one.low, one.low_open), (two.low, two.low_open))
    high, high_closed = min((one.high, not one.high_open), (two.high, not two.high_open))
    return _Interval(low, low_open, high, not high_closed)


def _interval_text(name: str, attribute: Attribute, interval: _Interval, shown: Callable[[Fraction], str]) -> str:
    low, high = interval.low, interval.high
    if attribute.kind == "integer" and low == high:
        return f"{name} == {int(low)}"
    lowest, highest = low == attribute.low and not interval.low_open, high == attribute.high and not interval.high_open
    texts = shown(low), shown(high)
    if highest and not lowest:
        return f"{name} {'>' if interval.low_open else '>='} {texts[0]}"
    upper = f"{name} {'<' if interval.high_open else '<='} {texts[1]}"
    if lowest:  # perhaps all of it, next to a missing value that is not there
        return upper
    return f"{texts[0]} {'<' if interval.low_open else '<='} {upper}"
