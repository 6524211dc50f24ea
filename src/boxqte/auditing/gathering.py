"""From a result to the findings that a report shows, within a time limit.

Every search behind a finding has a deadline. What a search cut short leaves is shown as the bounds it has proved; what
says too little is not shown, and a note says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from boxqte.answers import followups
from boxqte.answers.asked import Asked, support_boxes
from boxqte.answers.directions import directions
from boxqte.answers.drawn_profiles import CONFIDENCE, drawn_profiles
from boxqte.answers.hotspots import Sought, hotspots
from boxqte.answers.profiles import same_for_all
from boxqte.answers.regions import RegionStore
from boxqte.answers.result import Result, asked_of
from boxqte.auditing.audit import Audit
from boxqte.auditing.findings import (
    NARROW,
    NOTHING,
    WIDEST,
    Extent,
    Findings,
    Flip,
    FlipMatrix,
    HotNode,
    HotSpots,
    Pair,
    Profile,
    ProfileCell,
    Rule,
)
from boxqte.auditing.pairs import Rows, example_pairs, rows_of
from boxqte.basics.budget import TimeBudget
from boxqte.errors import BoxQTEError, ReportError
from boxqte.questions.combined import combinations
from boxqte.questions.variations import part_of_cell
from boxqte.space.conditions import part_text
from boxqte.space.space import Space

if TYPE_CHECKING:
    import pandas as pd

REPORT_SECONDS = 60.0  # for all findings of a report, where nothing else is said
MOST_FLIPS = 6
HOT = ("density", "lift", "share")
LEAST_SEARCH = 0.02  # seconds: a search that has less proves nothing
# of what is left when each of them begins
STORE_PART, HOT_PART, FLIPS_PART = 0.4, 0.4, 0.35
RULES_PART, MATRIX_PART, DRAWS_PART = 0.25, 0.25, 0.2
MOST_DRAWING = 5.0  # seconds
LONG_NUMBER = re.compile(r"\d+\.\d{6,}(?:e[-+]?\d+)?")
SEED = 0  # what is drawn for a report is the same whenever it is made

Note = Callable[[str], None]


def gather(
    result: Result,
    space: Space | None = None,
    *,
    seconds: float | None = REPORT_SECONDS,
    say: Note | None = None,
    rows: Rows | None = None,
    classes: Sequence[str] = (),
) -> Findings:
    """Regions, profiles, flips and pairs of the result; nothing for one without counterexamples or read from a file.

    `say` is called with a few words whenever something else is begun; `rows` are those that examples should be like,
    `classes` what the classes are called.
    """
    nothing = result.undefined or (result.converged and not result.decided.unfair)
    if result.asked is None or nothing:
        return NOTHING
    say = say or (lambda words: None)
    clock = TimeBudget(seconds)
    notes: list[str] = []
    say("regions")
    result = _with_regions(result, clock)
    stores = [own.regions() for own in _searched(result)]
    complete = all(store.complete for store in stores)
    extent = Extent()
    space = asked_of(result).grid.space if space is None else space
    spots: HotSpots | None = None
    rules: tuple[Rule, ...] = ()
    matrices: tuple[FlipMatrix, ...] = ()
    pairs: tuple[Pair, ...] = ()
    flips: tuple[Flip, ...] = ()
    replayed = False
    if not any(len(store.boxes) for store in stores):
        notes.append("The search did not finish, and has found no region with counterexamples so far.")
    else:
        if not complete:
            notes.append("The search did not finish: regions, flips and examples are those that it has found.")
        say("hot spots")
        (spots,) = _part("the hot spots", notes, lambda: (_hotspots(result, clock),)) or (None,)
        rules = _part("the regions", notes, lambda: _rules(result, extent, clock))
        if result.property.sensitive:
            say("flip matrix")
            flips = _part("who flips to what", notes, lambda: _flips(result, clock, classes))
            matrices = _part("the flip matrix", notes, lambda: _matrices(result, extent, clock))
        say("examples")
        found = _part("the examples", notes, lambda: example_pairs(result, extent.pairs, rows, classes))
        pairs, replayed = found or ((), False)
    profiles = _part("the profiles", notes, lambda: _profiles(result, space, extent, notes, clock, say))
    return Findings(spots, rules, profiles, matrices, pairs, tuple(notes), complete, flips, replayed)


def gather_all(audit: Audit, *, seconds: float | None, say: Note | None = None) -> list[Findings]:
    """The findings of every question of an audit, within the seconds for all of them."""
    budget = TimeBudget(seconds, len(audit.results))
    found = []
    for question in audit.questions:
        if question.result is None:
            found.append(NOTHING)
            continue
        hears = None if say is None else _named(say, question.name)
        rows = None
        if audit.data is not None and question.rows is not None and question.result.asked is not None:
            rows = rows_of(question.result.asked, audit.data, question.rows)
        found.append(gather(question.result, audit.space, seconds=budget.next_share(), say=hears, rows=rows,
                            classes=audit.class_names))  # fmt: skip
    return found


def _named(say: Note, name: str) -> Note:
    return lambda words: say(f"{name}, {words}")


def _searched(result: Result) -> list[Asked]:
    """The questions about products behind a result."""
    asked = asked_of(result)
    return [asked_of(own) for _, own in asked.pieces] or [asked]


def _with_regions(result: Result, clock: TimeBudget) -> Result:
    """The result with the boxes that hold its counterexamples; engines other than box have not kept them."""
    asked = asked_of(result)
    if asked.pieces:
        turns = TimeBudget(None if clock.seconds is None else STORE_PART * clock.left, len(asked.pieces))
        pieces = tuple((weight, _with_store(own, turns.next_share())) for weight, own in asked.pieces)
        return replace(result, asked=replace(asked, pieces=pieces, answers={}))
    return _with_store(result, None if clock.seconds is None else STORE_PART * clock.left)


def _with_store(result: Result, seconds: float | None) -> Result:
    asked = asked_of(result)
    if asked.store is not None:
        return result
    store = RegionStore()
    limit = None if seconds is None else max(seconds, LEAST_SEARCH)
    limits = replace(asked.limits, gap=0.0, node_limit=None, require=None, time_limit=limit)
    outcome = asked.run(asked.grid, observers=[store], roots=support_boxes, limits=limits)
    store.finish(outcome.decided, outcome.status)
    return replace(result, asked=replace(asked, store=store, answers={}))


def _each(clock: TimeBudget, part: float, searches: int) -> float | None:
    """The time limit of each of so many searches that have this part of the time that is left; None is no limit."""
    return None if clock.seconds is None else part * clock.left / max(searches, 1)


def _part(name: str, notes: list[str], make: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    try:
        return make()
    except BoxQTEError as error:
        notes.append(f"Without {name}: {error}")
        return ()


def _hotspots(result: Result, clock: TimeBudget) -> HotSpots | None:
    limit = _each(clock, HOT_PART, 1)
    if limit is not None and limit < LEAST_SEARCH:
        raise ReportError("there was no time to count them")
    table = hotspots(result, Sought(), time_limit=limit, random_state=SEED)
    if not len(table):
        return None
    nodes = tuple(
        HotNode(
            node["level"],
            _shortened(node["condition"]),
            node["hot_spot"],
            node.get("mass"),
            **{name: _ends(node, name) for name in HOT if "mass" in node},
            drawn="density_statistical_lower" in node,
        )
        for node in table.attrs["tree"]
    )
    covered = _ends(table.iloc[-1].to_dict(), "covered")
    return HotSpots(nodes, covered, table.attrs["lift"], table.attrs["confidence"])


def _ends(node: Mapping[Any, Any], name: str) -> Any:
    """The statistical bounds where there are some, else the certain ones."""
    kind = f"{name}_statistical" if f"{name}_statistical_lower" in node else name
    low, high = float(node[f"{kind}_lower"]), float(node[f"{kind}_upper"])
    return low, None if math.isinf(high) else high


def _rules(result: Result, extent: Extent, clock: TimeBudget) -> tuple[Rule, ...]:
    values = sum(int(axis.n_cells) for axis in asked_of(result).grid.axes if axis.sensitive)
    limit = _each(clock, RULES_PART, 1 + max(values, 2))  # one search splits the regions, the others find the flips
    table = followups.regions(result, extent.rules, time_limit=limit)
    names = [name for name in asked_of(result).grid.space.names if name in table.columns]
    rules = []
    for row in table.to_dict("records"):
        conditions = tuple(_shortened(str(row[name])) for name in names if row[name])
        rules.append(Rule(conditions, row["mass"], row["share"], row["density"], str(row.get("flip", ""))))
    return tuple(rules)


def _shortened(condition: str) -> str:
    """24.899999618530273 is 24.9 as the model's float32 threshold has it; seven digits are enough to read."""
    return LONG_NUMBER.sub(lambda match: f"{float(match[0]):.7g}", condition)


def _profiles(
    result: Result, space: Space, extent: Extent, notes: list[str], clock: TimeBudget, say: Note
) -> tuple[Profile, ...]:
    """The attributes along which the unfair share differs the most, as far as that is known."""
    axes = [a for a in asked_of(result).grid.axes if len(a.cells) > 1 and a.attribute.name in space.names]
    drawing = 0.0 if clock.seconds is None else min(DRAWS_PART * clock.left, MOST_DRAWING)
    waiting = TimeBudget(None if clock.seconds is None else clock.left - drawing, len(axes))
    found = []
    for axis in axes:
        name = axis.attribute.name
        say(f"profile of {name}")
        share = waiting.next_share()
        limit = None if share is None else share / _searches(result, axis)
        table = (
            None if limit is not None and limit < LEAST_SEARCH else followups.profile(result, name, time_limit=limit)
        )
        found.append((axis, _bounds(table, axis)))
    intervals: dict[str, list[Any]] = {}
    confidence = None
    if drawing and any(upper - lower > NARROW for _, rows in found for *_, lower, upper in rows):
        say("profiles from draws")
        intervals, confidence = (
            drawn_profiles(asked_of(result), min(drawing, max(clock.left, 0.0)), seed=SEED),
            CONFIDENCE,
        )
    profiles, open_ = [], []
    for axis, rows in found:
        profile = Profile(axis.attribute.name, _cells(rows, axis, intervals, extent.cells), confidence)
        if all(cell.best is None for cell in profile.cells):
            open_.append(profile.attribute)
        elif any(cell.upper > 0 for cell in profile.cells):
            profiles.append(profile)
    if open_:
        notes.append(f"Unfair share by {', '.join(open_)}: not decided within the time.")
    return tuple(sorted(profiles, key=_difference, reverse=True)[: extent.profiles])


def _searches(result: Result, axis: Any) -> int:
    """How many searches a profile takes: one, or one a value where x' may have another value than x."""
    grid = asked_of(result).grid
    alike = same_for_all(grid, axis)
    return len(axis.cells) if not alike and (axis.sensitive or axis.moves or not grid.ensemble.is_binary) else 1


def _difference(profile: Profile) -> float:
    """How far apart two shares of the profile are at least."""
    ends = [cell.best for cell in profile.cells if cell.best is not None]
    return max(lower for lower, _ in ends) - min(upper for _, upper in ends)


def _bounds(table: pd.DataFrame | None, axis: Any) -> list[tuple[str, float, float, float]]:
    """Every cell's name and mass, and certain bounds on the share of its inputs that are counterexamples."""
    if table is None:  # there was no time to ask
        names = [part_text(axis.attribute, part_of_cell(axis, cell)) for cell in axis.cells]
        return [(_shortened(name), float(mass), 0.0, 1.0) for name, mass in zip(names, axis.masses)]
    rows = []
    for row in table.to_dict("records"):
        mass = float(row["mass"])
        ends = (row["density_lower"], row["density_upper"]) if mass else (0.0, 0.0)
        rows.append((_shortened(str(row["value"])), mass, *ends))
    return rows


def _down(share: float) -> float:
    return max(math.nextafter(share, -math.inf), 0.0) if share < 1 else 1.0


def _up(share: float) -> float:
    return min(math.nextafter(share, math.inf), 1.0) if share > 0 else 0.0


def _cells(rows: list[Any], axis: Any, intervals: dict[str, list[Any]], most: int) -> tuple[ProfileCell, ...]:
    """The rows of a profile; neighbours of a numeric attribute are put together while there are too many."""
    drawn = intervals.get(axis.attribute.name, [None] * len(rows))
    cells = []
    for (label, mass, lower, upper), interval, cell in zip(rows, drawn, axis.cells):
        low, high = (None, None) if cell.low is None else (float(cell.low[0]), float(cell.high[0]))
        if mass > 0:
            cells.append(ProfileCell(label, lower, upper, mass, low, high, interval))
    if all(cell.low is not None for cell in cells):
        step = -(-len(cells) // most)
        return tuple(_together(cells[i : i + step]) for i in range(0, len(cells), step))
    return tuple(sorted(cells, key=lambda cell: cell.best or (-1.0, 0.0), reverse=True)[:most])


def _together(cells: list[ProfileCell]) -> ProfileCell:
    """Neighbours as one: their shares weighed by mass."""
    if len(cells) == 1:
        return cells[0]
    mass = math.fsum(cell.mass for cell in cells)
    ends = [_weighed(cells, [(cell.lower, cell.upper) for cell in cells], mass)]
    drawn = [cell.statistical for cell in cells if cell.statistical is not None]
    if len(drawn) == len(cells):
        ends.append(_weighed(cells, drawn, mass))
    label = f"{cells[0].label} ... {cells[-1].label}"
    statistical = ends[1] if len(ends) > 1 else None
    return ProfileCell(label, *ends[0], mass, cells[0].low, cells[-1].high, statistical)


def _weighed(cells: list[ProfileCell], ends: list[tuple[float, float]], mass: float) -> tuple[float, float]:
    lower, upper = (math.fsum(c.mass * end[i] for c, end in zip(cells, ends)) / mass for i in (0, 1))
    return _down(lower), _up(upper)


def _matrices(result: Result, extent: Extent, clock: TimeBudget) -> tuple[FlipMatrix, ...]:
    n = len(combinations(asked_of(result).grid))
    limit = _each(clock, MATRIX_PART, n * n)
    if limit is not None and limit < LEAST_SEARCH:
        raise ReportError(f"its {n * n} entries are not decided within the time")
    table = followups.pairs(result, time_limit=limit)
    lower, upper = table.to_numpy(), table.attrs["upper"]
    weight = (lower.sum(axis=1) + lower.sum(axis=0)).tolist()
    kept = sorted(sorted(range(len(weight)), key=lambda i: -weight[i])[: extent.labels])
    title = ", ".join(result.property.sensitive)
    if len(kept) < len(table):
        title += f" (the {len(kept)} of {len(table)} values with the most)"
    masses = tuple(
        tuple(_mass(float(lower[row, column]), upper[row][column], row == column) for column in kept) for row in kept
    )
    return (FlipMatrix(title, tuple(str(table.index[i]) for i in kept), masses),)


def _flips(result: Result, clock: TimeBudget, names: Sequence[str]) -> tuple[Flip, ...]:
    """The pairs of values with the most inputs that are refused with the one and granted with the other."""
    grid = asked_of(result).grid
    n = len(combinations(grid))
    limit = _each(clock, FLIPS_PART, n * (n - 1) * (1 if grid.mutual else 2) * max(len(asked_of(result).pieces), 1))
    if limit is not None and limit < LEAST_SEARCH:
        raise ReportError("there was no time to count it")
    found, _ = directions(result, time_limit=limit)
    first, second = names or [f"class {name}" for name in asked_of(result).model.ensemble.classes]
    return tuple(
        Flip(f"{first} as {d.refused}, {second} as {d.granted}", d.lower, d.upper)
        for d in found[:MOST_FLIPS]
        if d.lower > 0
    )


def _mass(lower: float, upper: float, same: bool) -> tuple[float, float | None] | None:
    """None where x' cannot have the same value as x; it can within a cell that holds several points (epsilon > 0)."""
    if same and not upper:
        return None
    return lower, None if upper - lower > WIDEST else upper
