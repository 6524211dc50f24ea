"""Group rates: for every group of sensitive values the share that gets class 1, as certain bounds (questions.md, 4).

The rate of a group is the mass of class 1 where the sensitive attributes are held at the group's values. Two groups differ
only where their margins have different signs, and that is counted by itself, without the rates: so a difference can be
known far better than the two rates it lies between.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boxqte.answers.empirical import clopper_pearson
from boxqte.answers.quantify import limits_of, summary
from boxqte.answers.result import Bounds, ModelSummary
from boxqte.answers.verdict import Verdict
from boxqte.basics.budget import TimeBudget
from boxqte.basics.checks import number
from boxqte.engines import make_engine
from boxqte.engines.kinds import LOW
from boxqte.engines.point import PointDecider
from boxqte.engines.protocol import Decided, Limits, Outcome, Status, Watch
from boxqte.engines.refusals import two_classes
from boxqte.errors import PropertyError, SpaceError
from boxqte.exact import Number, down, fraction, plain, up
from boxqte.models.decision import Threshold, decision_text
from boxqte.models.importers import load_model
from boxqte.questions.axes import Axis
from boxqte.questions.building import build_any_grid
from boxqte.questions.combined import Combination, combinations, combined_grid
from boxqte.questions.grid import Grid
from boxqte.questions.properties import Fairness
from boxqte.questions.row_cells import read_rows
from boxqte.questions.variations import one_class_grid, part_of_cell
from boxqte.space.conditions import part_text
from boxqte.space.rows import MISSING
from boxqte.space.space import Space, read_space
from boxqte.space.tables import table_of

if TYPE_CHECKING:
    import pandas as pd

MAX_GROUPS = 4096
PAIRED = 8  # up to so many distinct groups are compared with one of them; beyond, each is counted by itself
SHARE_OF_PAIRS = 0.5  # of the time limit: what comparing may take before the reference group has its turn

ZERO, ONE = Fraction(0), Fraction(1)


class Ends(NamedTuple):
    """A number between two rationals."""

    low: Fraction
    high: Fraction

    def bounds(self) -> Bounds:
        return Bounds(down(self.low), up(self.high))

    def meet(self, other: Ends) -> Ends:
        """What is known if both are true."""
        return Ends(max(self.low, other.low), min(self.high, other.high))


@dataclass(frozen=True)
class RowRate:
    """What the rows of a table say about a group: how many there are, how many get class 1, and an exact binomial
    interval for the population that they were drawn from."""

    rows: int
    positive: int
    rate: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class Group:
    """One group: its values, its share of the space, the rate of class 1 in it, and its ratio to the best rate."""

    values: tuple[str, ...]
    mass: float
    rate: Bounds
    ratio: Bounds | None
    """The group's rate by the largest rate of all groups; None while that may be 0."""
    data: RowRate | None = None

    @property
    def name(self) -> str:
        return ", ".join(self.values)


@dataclass(frozen=True, eq=False)
class GroupRates:
    """The rates of all groups, and how far apart they are; every bound is certain and rounded outward.

    Attributes
    ----------
    groups
        One entry a group, in the order of the values.
    difference
        Bounds on the largest rate minus the smallest one (demographic parity difference).
    ratio
        Bounds on the smallest rate by the largest one (impact ratio); None while the largest may be 0.
    status
        Why the computation ended; `Status.CONVERGED` means that every input is decided.
    """

    sensitive: tuple[str, ...]
    groups: tuple[Group, ...]
    difference: Bounds
    ratio: Bounds | None
    status: Status
    seconds: float
    model: ModelSummary
    decision: str
    space_fingerprint: str
    rounding_ambiguous: float
    """A bound on the mass of a group whose class could be another one in the library because it sums in floating point."""
    input_rounding: float
    confidence: float | None = None
    """Of the intervals of the rows."""
    require_ratio: Fraction | None = None

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    @property
    def verdict(self) -> Verdict | None:
        """What became of `require_ratio`; None if nothing is required."""
        if self.require_ratio is None:
            return None
        if self.ratio is None:
            return Verdict.UNDECIDED
        if self.ratio.lower >= self.require_ratio:
            return Verdict.HOLDS
        return Verdict.VIOLATED if self.ratio.upper < self.require_ratio else Verdict.UNDECIDED

    def to_frame(self) -> pd.DataFrame:
        """One row a group: its values, `mass`, bounds on the rate and on its ratio to the best one, and what the rows say."""
        import pandas as pd

        rows = []
        for group in self.groups:
            row: dict[str, Any] = dict(zip(self.sensitive, group.values))
            ratio = group.ratio
            row |= {"mass": group.mass, "lower": group.rate.lower, "upper": group.rate.upper}
            row |= {"ratio_lower": None if ratio is None else ratio.lower}
            row |= {"ratio_upper": None if ratio is None else ratio.upper}
            if group.data is not None:
                row |= {f"data_{name}": value for name, value in vars(group.data).items()}
            rows.append(row)
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""

        def ends(bounds: Bounds | None) -> list[float] | None:
            return None if bounds is None else [bounds.lower, bounds.upper]

        return {
            "sensitive": list(self.sensitive),
            "status": str(self.status),
            "guarantee": "certain bounds, rounded outward",
            "world": "space",
            "decision": self.decision,
            "difference": ends(self.difference),
            "ratio": ends(self.ratio),
            "require_ratio": None if self.require_ratio is None else plain(self.require_ratio),
            "verdict": None if self.verdict is None else str(self.verdict),
            "groups": [
                {
                    "values": list(group.values),
                    "mass": group.mass,
                    "rate": ends(group.rate),
                    "ratio": ends(group.ratio),
                    "data": None if group.data is None else vars(group.data),
                }
                for group in self.groups
            ],
            "confidence": self.confidence,
            "rounding_ambiguous": self.rounding_ambiguous,
            "input_rounding": self.input_rounding,
            "seconds": self.seconds,
            "model": {k: v for k, v in vars(self.model).items() if k != "decision"},
            "space_fingerprint": self.space_fingerprint,
        }


def group_rates(
    model: object,
    space: Space,
    sensitive: str | Iterable[str],
    *,
    data: Any = None,
    require_ratio: Number | None = None,
    confidence: float = 0.95,
    engine: str = "box",
    time_limit: float | None = None,
    workers: int | None = None,
    memory_limit: int | None = None,
    allow_pickle: bool = False,
    threshold: Threshold | None = None,
) -> GroupRates:
    """For every value (or combination of values) of the sensitive attributes, the share that gets class 1.

    Parameters
    ----------
    sensitive
        The attribute, or several: then every combination of their values is a group.
    data
        A table; the rates of its rows stand beside those of the space, each with an exact interval.
    require_ratio
        The smallest ratio of two groups' rates that is accepted (0.8 is the four-fifths rule); see `verdict`.
    confidence
        Of the intervals of the rows.
    time_limit
        Seconds for everything; bounds that are certain are given whenever it ends.
    threshold
        The decision rule in place of the model's own `predict`, as `load_model` takes it.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> rates = group_rates(loan_ensemble(), loan_space(), "race")
    >>> rates.converged, [(group.name, round(group.rate.lower, 3)) for group in rates.groups]
    (True, [('0', 0.697), ('1', 0.0)])
    """
    budget = TimeBudget(time_limit)
    limits = limits_of(time_limit, workers=workers, memory_limit=memory_limit)
    level = None if require_ratio is None else fraction(require_ratio, PropertyError, "require_ratio")
    if level is not None and not 0 < level <= 1:
        raise PropertyError(f"require_ratio: must be above 0 and at most 1, found {plain(level)}")
    if not 0 < number(confidence, "confidence", SpaceError) < 1:
        raise SpaceError(f"confidence: must lie between 0 and 1, found {confidence}")
    imported, space = load_model(model, allow_pickle=allow_pickle, threshold=threshold), read_space(space)
    prop = Fairness(sensitive)
    grid = two_classes(build_any_grid(imported.ensemble, space, prop), "rates")
    groups = _groups(grid)
    rows = None if data is None else _row_rates(grid, data, groups, confidence)
    distinct = {group.combination.cells: group.combination for group in groups}
    found = _Search(grid, engine, limits, budget).run(list(distinct.values()))
    at = {cells: i for i, cells in enumerate(distinct)}
    of = [at[group.combination.cells] for group in groups]
    best = [found.ratio_to_best(i) for i in range(len(distinct))]
    return GroupRates(
        sensitive=prop.sensitive,
        groups=tuple(
            Group(group.values, down(group.mass), found.rates[i].bounds(), best[i], None if rows is None else rows[g])
            for g, (group, i) in enumerate(zip(groups, of))
        ),
        difference=found.largest_difference(),
        ratio=found.least_ratio(),
        status=found.status,
        seconds=budget.used,
        model=summary(imported),
        decision=decision_text(imported.ensemble.decision) or "as the library's own predict decides",
        space_fingerprint=space.fingerprint(),
        rounding_ambiguous=found.ambiguous,
        input_rounding=up(grid.input_rounding),
        confidence=None if data is None else confidence,
        require_ratio=level,
    )


# --- which groups there are -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Values:
    """A group as the user names it; groups that no tree tells apart share a combination of cells."""

    values: tuple[str, ...]
    keys: tuple[Any, ...]
    """On each sensitive axis, what tells its rows from others: a value's index, MISSING, or the cell of a number."""
    mass: Fraction
    combination: Combination


def _groups(grid: Grid) -> list[_Values]:
    """Every combination of single values (of a numeric attribute: of intervals that no tree cuts) that has mass."""
    axes = [axis for axis in grid.axes if axis.sensitive]
    order = [[axis.attribute.name for axis in axes].index(name) for name in grid.property.sensitive]
    by_cells = {combination.cells: combination for combination in combinations(grid)}
    parts = [_parts(axis) for axis in axes]
    count = math.prod(map(len, parts))
    if count > MAX_GROUPS:
        raise PropertyError(f"sensitive: {count:,} groups, at most {MAX_GROUPS} can be compared; name fewer attributes")
    groups = []
    for chosen in itertools.product(*parts):
        mass = math.prod((part.mass for part in chosen), start=ONE)
        if mass:
            texts = tuple(chosen[j].text for j in order)
            keys = tuple(part.key for part in chosen)
            groups.append(_Values(texts, keys, mass, by_cells[tuple(part.cell for part in chosen)]))
    return groups


class _Part(NamedTuple):
    text: str
    key: Any
    cell: int
    mass: Fraction


def _parts(axis: Axis) -> list[_Part]:
    """One part a value; of a numeric attribute, one a cell."""
    attribute = axis.attribute
    parts = []
    for at, (cell, mass) in enumerate(zip(axis.cells, axis.masses)):
        if cell.missing:
            parts.append(_Part("missing", MISSING, at, mass))
        elif attribute.is_numeric:
            parts.append(_Part(part_text(attribute, part_of_cell(axis, cell)), at, at, mass))
    if attribute.is_numeric:
        return parts
    masses = attribute.value_masses()
    where = {value: at for at, cell in enumerate(axis.cells) for value in cell.values}
    return [_Part(attribute.label_of(v), v, where[v], masses[v]) for v in range(len(attribute.values))] + parts


# --- counting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Found:
    """Bounds on the rate of every combination, and on how much each exceeds the first."""

    rates: list[Ends]
    over_first: list[Ends]
    status: Status
    ambiguous: float

    def difference(self, i: int, j: int) -> Ends:
        """Rate i minus rate j."""
        if i == j:
            return Ends(ZERO, ZERO)
        a, b, p, q = self.rates[i], self.rates[j], self.over_first[i], self.over_first[j]
        return Ends(a.low - b.high, a.high - b.low).meet(Ends(p.low - q.high, p.high - q.low))

    def ratio(self, i: int, j: int) -> Ends | None:
        """Rate i by rate j: from the two rates, and as 1 + difference / rate j, whichever says more."""
        if i == j:
            return Ends(ONE, ONE)
        top, bottom, gap = self.rates[i], self.rates[j], self.difference(i, j)
        if bottom.low <= 0:
            return None
        plain_ends = Ends(top.low / bottom.high, top.high / bottom.low)
        low = 1 + gap.low / (bottom.low if gap.low < 0 else bottom.high)
        high = 1 + gap.high / (bottom.high if gap.high < 0 else bottom.low)
        return plain_ends.meet(Ends(max(low, ZERO), high))

    def largest_difference(self) -> Bounds:
        """The largest rate minus the smallest: the largest of all differences."""
        n = range(len(self.rates))
        every = [self.difference(i, j) for i in n for j in n]
        return Ends(max(e.low for e in every), max(e.high for e in every)).bounds()

    def least_ratio(self) -> Bounds | None:
        """The smallest rate by the largest: the smallest of all ratios; None while some rate may be 0 and be the largest."""
        n = range(len(self.rates))
        if max(rate.low for rate in self.rates) <= 0:
            return None
        # A group that may have rate 0 bounds no ratio from below as a denominator, unless it is surely not the largest.
        largest = max(rate.low for rate in self.rates)
        every = [self.ratio(i, j) for j in n if self.rates[j].high >= largest for i in n]
        known = [e for e in every if e is not None]
        low = ZERO if len(known) < len(every) else min(e.low for e in known)
        return Ends(low, min(e.high for e in known)).bounds()

    def ratio_to_best(self, i: int) -> Bounds | None:
        """Rate i by the largest rate: the smallest of its ratios."""
        largest = max(rate.low for rate in self.rates)
        if largest <= 0:
            return None
        every = [self.ratio(i, j) for j in range(len(self.rates)) if self.rates[j].high >= largest]
        known = [e for e in every if e is not None]
        low = ZERO if len(known) < len(every) else min(e.low for e in known)
        return Ends(low, min([ONE, *(e.high for e in known)])).bounds()


class _Search:
    """The runs of an engine that the rates need, under one time limit."""

    def __init__(self, grid: Grid, engine: str, limits: Limits, budget: TimeBudget):
        if engine not in ("box", "exhaustive"):
            raise PropertyError(f"engine: rates are counted by 'box' or 'exhaustive', found {engine!r}")
        self.grid, self.engine, self.limits, self.budget = grid, engine, limits, budget
        self.status = Status.CONVERGED
        self.ambiguous = 0.0

    def run(self, groups: Sequence[Combination]) -> _Found:
        self.groups = groups
        unknown = Ends(-ONE, ONE)
        over_first = [Ends(ZERO, ZERO), *(unknown for _ in groups[1:])]
        if len(groups) <= PAIRED:
            self.budget.questions = 2 * (len(groups) - 1)
            for i in range(1, len(groups)):
                more, less = (self._only_one(i, counted, SHARE_OF_PAIRS) for counted in (1, -1))
                over_first[i] = Ends(more.low - less.high, more.high - less.low)
            self.budget.questions = 1
            first = self._rate(groups[0])
            rates = [first] + [
                Ends(first.low + e.low, first.high + e.high).meet(Ends(ZERO, ONE)) for e in over_first[1:]
            ]
        else:
            self.budget.questions = len(groups)
            rates = [self._rate(group) for group in groups]
        return _Found(rates, over_first, self.status, self.ambiguous)

    def _rate(self, group: Combination) -> Ends:
        """The share of class 1 in a group: only x of class 1 are 'confident', and x' is x."""
        decided = self._ask(one_class_grid(combined_grid(self.grid, [group]), True))
        return Ends(Fraction(decided.fair) + Fraction(decided.unfair), 1 - Fraction(decided.low))

    def _only_one(self, i: int, counted: int, share: float) -> Ends:
        """The share of class 1 in group i that would have class 0 in the first (counted 1), or the other way round (-1)."""
        pair = combined_grid(self.grid, [self.groups[i], self.groups[0]])
        if not pair.thresholds.all_confident:
            raise AssertionError("rates are asked without kappa")
        decided = self._ask(replace(pair, thresholds=replace(pair.thresholds, counted=counted)), share)
        return Ends(Fraction(decided.unfair), 1 - Fraction(decided.fair))

    def _ask(self, grid: Grid, share: float = 1.0) -> Decided:
        if self.status is Status.INTERRUPTED:
            return Decided()
        seconds = self.budget.next_share()
        limits = replace(self.limits, time_limit=None if seconds is None else seconds * share)
        outcome: Outcome = make_engine(self.engine).run(grid, limits, Watch(limits))
        if outcome.status is not Status.CONVERGED:
            self.status = outcome.status
        self.ambiguous = up(Fraction(self.ambiguous) + Fraction(outcome.rounding_ambiguous or 0))
        return outcome.decided


# --- the rows ---------------------------------------------------------------------------------------------------------


def _row_rates(grid: Grid, data: Any, groups: Sequence[_Values], confidence: float) -> list[RowRate]:
    """How many rows of each group get class 1; each row is decided exactly."""
    read = read_rows(grid, table_of(data))
    axes = [axis for axis in grid.axes if axis.sensitive]
    places = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    inside = np.flatnonzero(read.inside)
    verdict = PointDecider(one_class_grid(grid, True)).decide(read.cells[inside]).verdict
    counts: dict[tuple[Any, ...], list[int]] = {}
    values = [read.rows.values[axis.attribute.name] for axis in axes]
    for row, kind in zip(inside.tolist(), verdict.tolist()):
        key = tuple(
            int(axis.base[read.cells[row, at]]) if axis.attribute.is_numeric and column[row] != MISSING else column[row]
            for axis, at, column in zip(axes, places, values)
        )
        entry = counts.setdefault(key, [0, 0])
        entry[0] += 1
        entry[1] += kind != LOW
    return [_row_rate(counts.get(group.keys, [0, 0]), confidence) for group in groups]


def _row_rate(count: list[int], confidence: float) -> RowRate:
    rows, positive = count
    if not rows:
        return RowRate(0, 0, None, None, None)
    return RowRate(rows, positive, positive / rows, *clopper_pearson(positive, rows, confidence))
