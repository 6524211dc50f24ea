"""A repair from beginning to end: rows, measures before, a method, measures after, and what it cost whom."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boxqte.answers.result import Bounds, Result
from boxqte.answers.verdict import Verdict
from boxqte.basics.budget import TimeBudget
from boxqte.engines.protocol import Status
from boxqte.errors import EngineError, SpaceError
from boxqte.exact import plain
from boxqte.models.decision import Threshold
from boxqte.models.imported import ImportedModel
from boxqte.repairing.disagreement import disagreement
from boxqte.repairing.goals import Asking, Goal, Measured, World, all_met, matrix_of, measured, row_verdicts
from boxqte.repairing.methods import Method, Outcome, chosen, repaired
from boxqte.repairing.quality import (
    BoolArray,
    Decisions,
    Quality,
    by_group,
    decisions,
    groups_of,
    labels_of,
    quality,
    refuse_classes,
)
from boxqte.repairing.workshop import Candidate, Keeper, Step, Unwritten, Workshop
from boxqte.repairing.writing import Written
from boxqte.space.populations import population
from boxqte.space.space import Space
from boxqte.space.tables import Table, table_of

if TYPE_CHECKING:
    import pandas as pd

HELD_OUT = 0.3
FEWEST_ROWS = 20
REPORT_SECONDS = 60.0
"""For measuring one requirement on the original, and to the end on the repaired model: bounds after that."""
CHANGED_SECONDS = 2.0
"""For the mass of changed decisions in the space: certain bounds after that, with a statistical interval inside."""


@dataclass(frozen=True)
class RowShare:
    """How many of the held-out rows are treated fairly (or robustly), of those that are confident: exact."""

    confident: int
    fair: int

    @property
    def share(self) -> float | None:
        return self.fair / self.confident if self.confident else None


@dataclass(frozen=True, eq=False)
class Point:
    """A repaired model and what it costs: one point of the trade-off."""

    at_least: Fraction | None
    met: bool
    written: Written | Unwritten
    measures: tuple[Measured, ...]
    quality: Quality
    rows: tuple[RowShare, ...]
    changed: int
    """how many of the held-out rows are decided otherwise than by the original"""
    share: Fraction | None
    round: int

    @property
    def changed_share(self) -> float:
        return self.changed / self.quality.rows


@dataclass(frozen=True, eq=False, repr=False)
class Repair:
    """What a repair found (api/repair.py says what each field means to a user)."""

    met: bool
    method: str
    goals: tuple[Goal, ...]
    source: str
    before: tuple[Measured, ...]
    after: tuple[Measured, ...]
    quality_before: Quality
    quality_after: Quality
    rows_before: tuple[RowShare, ...]
    rows_after: tuple[RowShare, ...]
    changed_rows: int
    changed_space: Result | None
    who: pd.DataFrame
    rounds: int
    share: Fraction | None
    seconds: float
    stopped: Status | None
    held_out: str
    points: tuple[Point, ...]
    written: Written | Unwritten
    space: Space
    notes: tuple[str, ...] = ()
    leaves: tuple[int, int] = (0, 0)
    """of the model before and after"""

    @property
    def model(self) -> Any:
        """The repaired model as an object of its library: of the class that was given, or loaded from the file's content."""
        return self.written.model

    @property
    def exit_code(self) -> int:
        """0 the requirement is met, 3 it is not, or it is not proved."""
        return 0 if self.met else 3

    def save(self, path: str | Path) -> Path:
        """Write the repaired model in the format of its source."""
        return self.written.save(path)

    @property
    def changed_mass(self) -> Bounds | None:
        """Certain bounds on the mass of the inputs of the space that are decided otherwise than by the original."""
        return None if self.changed_space is None else self.changed_space.counterexample

    def to_frame(self) -> pd.DataFrame:
        """The trade-off: one line for the original, then one for each level of the path (or for the requirement)."""
        import pandas as pd

        original = _line("original", None, None, self.before, self.quality_before, self.rows_before, 0, None)
        lines = [original]
        for point in self.points:
            level = None if point.at_least is None else float(point.at_least)
            name = "repaired" if level is None else f"at least {plain(point.at_least or Fraction(0))}"
            changed = point.changed
            lines.append(_line(name, level, point.met, point.measures, point.quality, point.rows, changed, point.share))
        return pd.DataFrame(lines)

    def to_json(self) -> dict[str, Any]:
        """Everything but the models as a JSON object."""
        mass = self.changed_mass
        return {
            "met": self.met,
            "method": self.method,
            "model": self.source,
            "before": [m.to_json() for m in self.before],
            "after": [m.to_json() for m in self.after],
            "held_out": self.held_out,
            "quality": {"before": self.quality_before.to_json(), "after": self.quality_after.to_json()},
            "rows": {
                "before": [vars(r) for r in self.rows_before],
                "after": [vars(r) for r in self.rows_after],
            },
            "changed": {
                "rows": self.changed_rows,
                "of": self.quality_after.rows,
                "mass": None if mass is None else [mass.lower, mass.upper],
            },
            "who": self.who.to_dict("records"),
            "path": self.to_frame().replace({np.nan: None}).to_dict("records"),
            "share": None if self.share is None else str(self.share),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "stopped": None if self.stopped is None else str(self.stopped),
            "leaves": {"before": self.leaves[0], "after": self.leaves[1]},
            "notes": list(self.notes),
        }


def _line(
    name: str,
    level: float | None,
    met: bool | None,
    measures: Sequence[Measured],
    found: Quality,
    rows: Sequence[RowShare],
    changed: int,
    share: Fraction | None,
) -> dict[str, Any]:
    worst = min((m for m in measures if m.bounds is not None), key=lambda m: m.lower or 0, default=None)
    ends = None if worst is None else worst.bounds
    fair = min((r.share for r in rows if r.share is not None), default=None)
    return {
        "model": name,
        "at_least": level,
        "met": met,
        "lower": None if ends is None else ends.lower,
        "upper": None if ends is None else ends.upper,
        "rows_fair": fair,
        "accuracy": found.accuracy,
        "auc": found.auc,
        "log_loss": found.log_loss,
        "changed": changed / found.rows,
        "share": None if share is None else float(share),
    }


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows behind a repair: those that it may look at, and those that it is judged on."""

    fitted: Table
    judged: Table
    said: str


@dataclass(frozen=True, eq=False)
class Order:
    """Everything that a repair is told."""

    source: Any
    imported: ImportedModel
    goals: tuple[Goal, ...]
    space: Space
    rows: Rows
    label: str
    method: Method = "auto"
    levels: tuple[Fraction, ...] | None = None
    random_state: int = 0
    asking: Asking = field(default_factory=Asking)
    time_limit: float | None = None
    progress: Callable[[Step], None] | None = None
    checkpoint: Path | None = None
    allow_pickle: bool = False
    threshold: Threshold | None = None
    changed_seconds: float | None = CHANGED_SECONDS
    components: int | str = 1


def split_rows(data: Any, test: Any, random_state: int) -> Rows:
    """The rows to fit to and to judge on; without a test table a part of the data is held out."""
    if test is not None:
        fitted, judged = table_of(data), table_of(test)
        return Rows(fitted, judged, f"{judged.n_rows:,} rows of the test table")
    table = table_of(data)
    if table.n_rows < FEWEST_ROWS:
        raise SpaceError(
            f"data: has {table.n_rows} rows; at least {FEWEST_ROWS} are needed, of which some are held out"
        )
    order = np.random.default_rng(random_state).permutation(table.n_rows)
    cut = round(table.n_rows * HELD_OUT)
    held, kept = (
        replace(table, n_rows=len(at), frame=table.frame[np.sort(at).tolist()]) for at in (order[:cut], order[cut:])
    )
    said = f"{cut:,} of {table.n_rows:,} rows, held out here; the model may have been trained on them (others: test='TEST.csv')"
    return Rows(kept, held, said)


def repair_model(order: Order) -> Repair:
    """Repair a model as ordered. Ctrl-C and the time limit end it with the best model so far."""
    clock = TimeBudget(order.time_limit)
    imported, space = order.imported, order.space
    refuse_classes(imported.ensemble, imported.source)
    for goal in order.goals:
        goal.property.check(space)
    if order.levels is not None and len(order.goals) > 1:
        raise EngineError(f"path: is for one requirement, found {len(order.goals)}")
    labels_of(order.rows.fitted, order.label, imported.ensemble, "the data")  # a wrong column is said at once
    y = labels_of(order.rows.judged, order.label, imported.ensemble, "the held-out rows")
    names = list(dict.fromkeys(name for goal in order.goals for name in goal.property.sensitive))
    X, inside = matrix_of(imported, space, order.rows.fitted, names)
    T, judged_inside = matrix_of(imported, space, order.rows.judged, names)
    notes = [*_outside(inside, "data"), *_outside(judged_inside, "held-out rows")]
    if not inside.any() or not judged_inside.any():
        raise SpaceError("data: no row lies in the space; infer the space from this table")
    on_population = any(goal.on == "population" for goal in order.goals)
    people = None
    if on_population:
        data = order.rows.fitted.frame.to_native()
        people = population(space, data, components=order.components, model=imported).space
    world = World(space, order.rows.fitted, people)
    shop = Workshop(
        order.source,
        imported,
        order.goals,
        world,
        X[inside],
        order.asking,
        clock,
        np.random.default_rng(order.random_state),
        order.progress,
        None if order.checkpoint is None else Keeper(order.checkpoint, _identity(order, X[inside])),
        order.allow_pickle,
        order.threshold,
    )
    method = chosen(shop, order.method)
    judge = _Judge(shop, order, T[judged_inside], y[judged_inside], judged_inside)
    shop.say(method, "measuring the model as it is")
    before = judge.measures(imported, order.goals)
    original = Candidate(shop.written(shop.ensemble), before, Fraction(0), 0, "none")
    if any(m.status is Status.INTERRUPTED for m in before):
        outcomes = [Outcome(None, original, False, Status.INTERRUPTED)]
        shop.stopped = Status.INTERRUPTED
    elif order.levels is None and all_met(before):
        outcomes = [Outcome(None, original, True)]
        notes.append("the model meets the requirement as it is: nothing is changed")
    else:
        outcomes = repaired(shop, method, original, order.levels)
    return judge.report(outcomes, original, method, notes, clock)


def _outside(inside: BoolArray, what: str) -> list[str]:
    n = int((~inside).sum())
    return [f"{n:,} of the {what} lie outside the space and count for nothing"] if n else []


def _identity(order: Order, X: Any) -> dict[str, Any]:
    goals = [{**goal.property.to_json(), "on": goal.on} for goal in order.goals]
    if order.levels is None:
        goals = [{**goal, "at_least": str(own.at_least)} for goal, own in zip(goals, order.goals)]
    return {
        "model": order.imported.ensemble.fingerprint(),
        "space": order.space.fingerprint(),
        "requirement": goals,
        "path": None if order.levels is None else [str(level) for level in order.levels],
        "data": hashlib.sha256(np.ascontiguousarray(X).tobytes()).hexdigest(),
        "method": order.method,
        "random_state": order.random_state,
    }


class _Judge:
    """Measures models on the space and on the held-out rows."""

    def __init__(self, shop: Workshop, order: Order, T: Any, y: BoolArray, inside: BoolArray):
        self.shop, self.order, self.T, self.y, self.inside = shop, order, T, y, inside
        self.own = decisions(shop.ensemble, T)

    def measures(self, model: ImportedModel, goals: Sequence[Goal]) -> tuple[Measured, ...]:
        """All goals to the end, as far as the time allows: each has its share of what is left."""
        found = []
        for i, goal in enumerate(goals):
            left = max(self.shop.clock.left / (2 * (len(goals) - i)), 0.01)
            asking = self.order.asking.within(min(left, REPORT_SECONDS))
            found.append(measured(model, goal, self.shop.world, asking, until_decided=False))
            if found[-1].status is Status.INTERRUPTED:
                break
        return tuple(found)

    def rows(self, model: ImportedModel) -> tuple[RowShare, ...]:
        found = []
        for goal in self.order.goals:
            workers = self.order.asking.limits.workers
            confident, unfair = row_verdicts(model, self.order.space, goal.property, self.order.rows.judged, workers)
            n = int(confident.sum())
            found.append(RowShare(n, n - int(unfair.sum())))
        return tuple(found)

    def point(self, outcome: Outcome) -> tuple[Point, Decisions]:
        model = outcome.candidate.written.imported
        said = decisions(model.ensemble, self.T)
        changed = int((said.positive != self.own.positive).sum())
        measures, candidate = outcome.candidate.measures, outcome.candidate
        point = Point(
            outcome.at_least, outcome.met, candidate.written, measures, quality(said, self.y), self.rows(model), changed,
            candidate.share, candidate.round,
        )  # fmt: skip
        return point, said

    def report(
        self,
        outcomes: Sequence[Outcome],
        original: Candidate,
        method: str,
        notes: list[str],
        clock: TimeBudget,
    ) -> Repair:
        shop, order = self.shop, self.order
        points = [self.point(outcome) for outcome in outcomes]
        last, said = points[-1]
        after = last.measures
        model = last.written.imported
        interrupted = shop.stopped is Status.INTERRUPTED
        if not interrupted and any(m.result is not None and not m.result.converged for m in after):
            shop.say(method, "measuring the repaired model to the end")
            goals = [m.goal for m in after]
            newer = self.measures(model, goals)
            after = tuple(_better(one, two) for one, two in zip(after, newer)) if len(newer) == len(after) else after
        changed = None
        if not interrupted and model is not original.written.imported:
            shop.say(method, "measuring which decisions have changed")
            limit = order.changed_seconds
            if clock.seconds is not None:
                limit = max(min(clock.left, np.inf if limit is None else limit), 0.01)
            changed = disagreement(order.imported, model, order.space, order.asking.within(limit))
        attributes = list(dict.fromkeys(name for goal in order.goals for name in goal.property.sensitive))
        groups = groups_of(order.space, order.rows.judged, attributes)
        groups = type(groups)(groups.names, groups.of_row[self.inside])
        met = all(outcome.met for outcome in outcomes) and (order.levels is None or len(outcomes) == len(order.levels))
        return Repair(
            met=met,
            method=outcomes[-1].candidate.method or method,
            goals=tuple(m.goal for m in after) or order.goals,
            source=order.imported.source,
            before=original.measures,
            after=after,
            quality_before=quality(self.own, self.y),
            quality_after=last.quality,
            rows_before=self.rows(order.imported),
            rows_after=last.rows,
            changed_rows=last.changed,
            changed_space=changed,
            who=by_group(groups, self.y, self.own, said, attributes),
            rounds=shop.tried,
            share=last.share,
            seconds=clock.used,
            stopped=shop.stopped,
            held_out=order.rows.said,
            points=tuple(point for point, _ in points),
            written=last.written,
            space=order.space,
            notes=tuple(notes),
            leaves=(order.imported.ensemble.n_leaves, model.ensemble.n_leaves),
        )


def _better(one: Measured, two: Measured) -> Measured:
    """Of two answers to the same question the one that says more; a proof is never given up for a longer search."""
    if one.verdict is Verdict.HOLDS and two.verdict is not Verdict.HOLDS:
        return one
    return two
