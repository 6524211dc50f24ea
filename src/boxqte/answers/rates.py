"""Group rates: for every group of sensitive values the share that gets class 1, as certain bounds (docs/rates.md).

The rate of a group is the mass of class 1 where the sensitive attributes are held at the group's values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boxqte.answers.empirical import clopper_pearson
from boxqte.answers.quantify import limits_of, summary
from boxqte.answers.rate_search import CONFIDENCE, Moment, RateSearch, SearchedGroup, judged
from boxqte.answers.remarks import sentences
from boxqte.answers.result import THE_SPACE, Bounds, ModelSummary, world_of
from boxqte.answers.verdict import Verdict
from boxqte.basics.budget import TimeBudget
from boxqte.basics.checks import file_path, function, number
from boxqte.engines.kinds import LOW
from boxqte.engines.point import PointDecider
from boxqte.engines.protocol import Progress, Status
from boxqte.engines.refusals import two_classes
from boxqte.errors import CertificateError, PropertyError, SpaceError
from boxqte.exact import Number, down, fraction, plain, up
from boxqte.models.decision import Threshold, decision_text
from boxqte.models.importers import ImportedModel, load_model
from boxqte.questions.axes import Axis
from boxqte.questions.building import build_any_grid
from boxqte.questions.combined import Combination, combinations, forbidden_in
from boxqte.questions.grid import Grid
from boxqte.questions.pieces import pieces_of
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
GUARANTEE = "certain bounds, rounded outward; exact once converged, but for rounding"


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
    statistical: Bounds | None = None
    """Inside the bounds on the rate, an interval from random inputs (see `Intervals`)."""

    @property
    def name(self) -> str:
        return ", ".join(self.values)


@dataclass(frozen=True)
class Intervals:
    """Where time ended before the rates were known: intervals from random inputs, each decided exactly. Those of all groups,
    and what follows from them, hold together with the confidence; no proof."""

    confidence: float
    difference: Bounds
    ratio: Bounds | None

    def to_json(self) -> dict[str, Any]:
        """The intervals as a JSON object."""
        return {"confidence": self.confidence, "difference": _ends(self.difference), "ratio": _ends(self.ratio)}


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
    rounding_ambiguous: float | None
    """A bound on the mass of a group whose class could be another one in the library because it sums in floating point."""
    input_rounding: float
    trace: tuple[Moment, ...] = ()
    """What was proved as the run went on: seconds, bounds on the difference and on the ratio."""
    confidence: float | None = None
    """Of the intervals of the rows."""
    rows_outside: int = 0
    """Rows with a value outside the space, which count for nothing."""
    require_ratio: Fraction | None = None
    world: str = THE_SPACE
    """Which inputs count, and for how much."""
    remarks: tuple[str, ...] = ()
    """What the rates do not say: that no tree tests the attribute, for one."""
    statistical: Intervals | None = None

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    @property
    def verdict(self) -> Verdict | None:
        """What became of `require_ratio`; None if nothing is required."""
        return None if self.require_ratio is None else judged(self.ratio, self.require_ratio)

    @property
    def why(self) -> str:
        """Why what is required is undecided; empty if it is not."""
        if self.verdict is not Verdict.UNDECIDED:
            return ""
        if not self.converged:
            return "interrupted" if self.status is Status.INTERRUPTED else f"stopped by {self.status}"
        if self.ratio is None:
            return "no group has a rate above 0, so there is no ratio"
        return "the requirement lies within the engine's rounding error: engine 'exhaustive' is exact on small problems"

    @property
    def ordered(self) -> tuple[Group, ...]:
        """The groups, those of the lowest rates first."""

        def ends(group: Group) -> tuple[float, float]:
            known = group.statistical or group.rate
            return known.lower, known.upper

        return tuple(sorted(self.groups, key=ends))

    def to_frame(self) -> pd.DataFrame:
        """One row a group: its values, `mass`, bounds on the rate and on its ratio to the best one, and what the rows say."""
        import pandas as pd

        rows = []
        for group in self.groups:
            row: dict[str, Any] = dict(zip(self.sensitive, group.values))
            ratio = group.ratio
            row |= {"mass": group.mass, "lower": group.rate.lower, "upper": group.rate.upper}
            drawn = group.statistical
            row |= {"statistical_lower": None if drawn is None else drawn.lower}
            row |= {"statistical_upper": None if drawn is None else drawn.upper}
            row |= {"confidence": None if drawn is None or self.statistical is None else self.statistical.confidence}
            row |= {"ratio_lower": None if ratio is None else ratio.lower}
            row |= {"ratio_upper": None if ratio is None else ratio.upper}
            if group.data is not None:
                row |= {f"data_{name}": value for name, value in vars(group.data).items()}
            rows.append(row)
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        ends = _ends
        return {
            "sensitive": list(self.sensitive),
            "status": str(self.status),
            "guarantee": GUARANTEE,
            "world": self.world,
            "remarks": list(self.remarks),
            "decision": self.decision,
            "difference": ends(self.difference),
            "ratio": ends(self.ratio),
            "statistical": None if self.statistical is None else self.statistical.to_json(),
            "require_ratio": None if self.require_ratio is None else plain(self.require_ratio),
            "verdict": None if self.verdict is None else str(self.verdict),
            "groups": [
                {
                    "values": list(group.values),
                    "mass": group.mass,
                    "rate": ends(group.rate),
                    "statistical": ends(group.statistical),
                    "ratio": ends(group.ratio),
                    "data": None if group.data is None else vars(group.data),
                }
                for group in self.groups
            ],
            "confidence": self.confidence,
            "rows_outside": self.rows_outside,
            "rounding_ambiguous": self.rounding_ambiguous,
            "input_rounding": self.input_rounding,
            "seconds": self.seconds,
            "trace": [[moment.seconds, ends(moment.difference), ends(moment.ratio)] for moment in self.trace],
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
    node_limit: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    certificate: str | Path | None = None,
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
        The smallest ratio of two groups' rates that is accepted (0.8 is the four-fifths rule): stops once that is decided;
        see `verdict`.
    confidence
        Of the intervals of the rows.
    engine
        "box", or "exhaustive" for small problems.
    time_limit
        Seconds for everything; bounds that are certain are given whenever it ends.
    workers, memory_limit, allow_pickle
        As for `quantify`.
    node_limit
        Stop each group after this many nodes of the search: a limit that repeats exactly.
    progress
        Called with a Progress now and then, whose bounds are of the ratio.
    certificate
        A file for the proof of every group's rate: `boxqte certify` checks it without the engine.
    threshold
        The decision rule in place of the model's own `predict`, as `load_model` takes it.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> rates = group_rates(loan_ensemble(), loan_space(), "race")
    >>> rates.converged, [(group.name, round(group.rate.lower, 3)) for group in rates.groups]
    (True, [('0', 0.849), ('1', 0.849), ('2', 0.697), ('3', 1.0), ('4', 1.0)])
    """
    limits = limits_of(time_limit, workers=workers, memory_limit=memory_limit, node_limit=node_limit)
    budget = TimeBudget(limits.time_limit)
    proof = None if certificate is None else file_path(certificate, "certificate", CertificateError)
    level = None if require_ratio is None else fraction(require_ratio, PropertyError, "require_ratio")
    if level is not None and not 0 < level <= 1:
        raise PropertyError(f"require_ratio: must be above 0 and at most 1, found {plain(level)}")
    if not 0 < number(confidence, "confidence", SpaceError) < 1:
        raise SpaceError(f"confidence: must lie between 0 and 1, found {confidence}")
    imported, space = load_model(model, allow_pickle=allow_pickle, threshold=threshold), read_space(space)
    if space.mass is not None:
        raise SpaceError("rates: a group is a share of inputs, but the space counts cells; leave out its mass 'cells'")
    prop = Fairness(sensitive)
    grid = two_classes(build_any_grid(imported.ensemble, space, prop), "rates")
    groups = _groups(grid)
    rows, outside = (None, 0) if data is None else _row_rates(grid, data, groups, confidence)
    # Values that no tree tells apart have the same rate, if who has them is the same in each product.
    distinct = {group.same: group for group in groups}
    counted = [SearchedGroup(group.combination, group.shares) for group in distinct.values()]
    search = RateSearch(grid, counted, engine, limits, budget, level, function(progress, "progress"), proof)
    search.run()
    at = {same: i for i, same in enumerate(distinct)}
    of = [at[group.same] for group in groups]
    known, best, likely = search.known, search.known.ratios_to_best(), search.likely
    return GroupRates(
        sensitive=prop.sensitive,
        groups=tuple(
            Group(
                group.values,
                down(group.mass),
                known.rates[i].bounds(),
                best[i],
                None if rows is None else rows[g],
                None if likely is None else likely.rates[i].bounds(),
            )
            for g, (group, i) in enumerate(zip(groups, of))
        ),
        difference=known.largest_difference(),
        ratio=known.least_ratio(),
        status=search.status,
        seconds=budget.used,
        model=summary(imported),
        decision=decision_text(imported.ensemble.decision) or "as the library's own predict decides",
        space_fingerprint=space.fingerprint(),
        rounding_ambiguous=search.rounding_ambiguous,
        input_rounding=up(grid.input_rounding),
        trace=tuple(search.trace),
        confidence=None if data is None else confidence,
        rows_outside=outside,
        require_ratio=level,
        world=world_of(space),
        remarks=sentences(grid, rates=True),
        statistical=None
        if likely is None
        else Intervals(CONFIDENCE, likely.largest_difference(), likely.least_ratio()),
    )


@dataclass(frozen=True)
class RowRates:
    """The rate of class 1 in every group, in the rows of a table alone."""

    sensitive: tuple[str, ...]
    groups: tuple[tuple[str, RowRate], ...]
    outside: int
    """Rows with a value outside the space, which are in no group."""
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """The rates as a JSON object."""
        return {
            "sensitive": list(self.sensitive),
            "groups": [{"name": name, **vars(rate)} for name, rate in self.groups],
            "outside": self.outside,
            "confidence": self.confidence,
        }


def row_rates(
    imported: ImportedModel, space: Space, sensitive: Iterable[str], data: Any, *, confidence: float = 0.95
) -> RowRates:
    """How many rows of each group get class 1, each decided exactly, with an interval for the people behind them."""
    prop = Fairness(sensitive)
    grid = two_classes(build_any_grid(imported.ensemble, space, prop), "rates")
    groups = _groups(grid)
    found, outside = _row_rates(grid, data, groups, confidence)
    own = tuple((", ".join(group.values), rate) for group, rate in zip(groups, found) if rate.rows)
    return RowRates(prop.sensitive, own, outside, confidence)


# --- which groups there are -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Values:
    """A group as the user names it; groups that no tree tells apart share a combination of cells."""

    values: tuple[str, ...]
    keys: tuple[Any, ...]
    """On each sensitive axis, what tells its rows from others: a value's index, MISSING, or the cell of a number."""
    mass: Fraction
    combination: Combination
    shares: tuple[Fraction, ...]
    """Of the group's mass, those of the products that the space is a mixture of."""

    @property
    def same(self) -> tuple[Any, ...]:
        """What decides the group's rate."""
        return self.combination.cells, self.shares


def _ends(bounds: Bounds | None) -> list[float] | None:
    return None if bounds is None else [bounds.lower, bounds.upper]


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
    pieces = pieces_of(grid)
    masses = [[[part.mass for part in _parts(a)] for a in piece.grid.axes if a.sensitive] for piece in pieces]
    for at in itertools.product(*(range(len(own)) for own in parts)):
        chosen = [one[i] for one, i in zip(parts, at)]
        own = [
            piece.weight * math.prod((m[i] for m, i in zip(of, at)), start=Fraction(1))
            for piece, of in zip(pieces, masses)
        ]
        mass = sum(own, Fraction(0))
        group = by_cells[tuple(part.cell for part in chosen)]
        allowed = sum((share * (1 - forbidden_in(piece.grid, group)) for share, piece in zip(own, pieces)), Fraction(0))
        if allowed:  # what rules forbid belongs to no group
            texts = tuple(chosen[j].text for j in order)
            keys = tuple(part.key for part in chosen)
            shares = tuple(share / mass for share in own)
            groups.append(_Values(texts, keys, allowed, group, shares))
    everything = sum((group.mass for group in groups), Fraction(0))
    return groups if not grid.forbidden else [replace(group, mass=group.mass / everything) for group in groups]


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


# --- the rows ---------------------------------------------------------------------------------------------------------


def _row_rates(grid: Grid, data: Any, groups: Sequence[_Values], confidence: float) -> tuple[list[RowRate], int]:
    """How many rows of each group get class 1, each decided exactly; and how many lie outside the space."""
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
    found = [_row_rate(counts.get(group.keys, [0, 0]), confidence) for group in groups]
    return found, len(read.inside) - len(inside)


def _row_rate(count: list[int], confidence: float) -> RowRate:
    rows, positive = count
    if not rows:
        return RowRate(0, 0, None, None, None)
    return RowRate(rows, positive, positive / rows, *clopper_pearson(positive, rows, confidence))
