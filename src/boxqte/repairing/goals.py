"""What a repaired model must satisfy, and whether a model does: measured on the model as saved and read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from boxqte.answers.quantify import measure
from boxqte.answers.result import Bounds, Result
from boxqte.answers.samples import sampled_columns, shown_partners, witness_values
from boxqte.answers.values import FloatArray, GridValues
from boxqte.answers.verdict import Verdict, decide
from boxqte.answers.verify import verify
from boxqte.engines import DEFAULT_ENGINE
from boxqte.engines.kinds import LOW, UNFAIR
from boxqte.engines.point import PointDecider
from boxqte.engines.protocol import Limits, Status
from boxqte.errors import BoxQTEError, EngineError, PropertyError
from boxqte.exact import down, plain, up
from boxqte.models.imported import ImportedModel
from boxqte.questions.building import build_grid
from boxqte.questions.properties import Fairness, Property, Robustness, ScoreFairness
from boxqte.questions.row_cells import read_rows
from boxqte.space.space import Space
from boxqte.space.tables import Table

On = Literal["space", "population", "rows"]
ON: tuple[On, ...] = ("space", "population", "rows")
VERIFY_SECONDS = 60.0
REPAIRABLE = (Fairness, Robustness, ScoreFairness)


@dataclass(frozen=True)
class Goal:
    """A requirement: so large a share of the confident inputs (of the space, a population or the rows) must be treated so."""

    property: Property
    at_least: Fraction
    on: On = "space"
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.property, REPAIRABLE):
            raise PropertyError(
                f"property: {self.property.kind} cannot be repaired; fairness, robustness and score fairness can"
            )

    def __str__(self) -> str:
        where = {"space": "", "population": " of the population", "rows": " of the rows"}[self.on]
        return f"{self.property} at least {plain(self.at_least)}{where}"

    def moves(self, space: Space) -> bool:
        """Whether other attributes than the sensitive ones may differ in x': then removing the tests of S is not enough."""
        return any(self.property.tolerances(space).values())


@dataclass(frozen=True, eq=False)
class World:
    """The inputs that requirements are about."""

    space: Space
    rows: Table
    population: Space | None = None

    def of(self, on: On) -> Space:
        if on == "population":
            assert self.population is not None
            return self.population
        return self.space


@dataclass(frozen=True, eq=False)
class Measured:
    """What is proved of one goal."""

    goal: Goal
    verdict: Verdict
    lower: Fraction | None
    upper: Fraction | None
    seconds: float
    status: Status
    why: str = ""
    result: Result | None = None
    """The answer itself, of a goal that is not about rows."""

    @property
    def bounds(self) -> Bounds | None:
        return None if self.lower is None or self.upper is None else Bounds(down(self.lower), min(up(self.upper), 1.0))

    def to_json(self) -> dict[str, Any]:
        ends = self.bounds
        return {
            "requirement": str(self.goal),
            "at_least": plain(self.goal.at_least),
            "on": self.goal.on,
            "verdict": str(self.verdict),
            "lower": None if ends is None else ends.lower,
            "upper": None if ends is None else ends.upper,
            "status": str(self.status),
            "why": self.why,
        }


@dataclass(frozen=True)
class Asking:
    """How goals are measured."""

    engine: str = DEFAULT_ENGINE
    limits: Limits = field(default_factory=Limits)

    def within(self, seconds: float | None) -> Asking:
        return replace(self, limits=replace(self.limits, time_limit=seconds))


def measured(model: ImportedModel, goal: Goal, world: World, asking: Asking, *, until_decided: bool) -> Measured:
    """One goal on one model. `until_decided`: stop once the requirement is proved or refuted."""
    if goal.on == "rows":
        return _measured_rows(model, goal, world, asking)
    limits = replace(asking.limits, require=goal.at_least if until_decided else None)
    result = measure(model, world.of(goal.on), goal.property, engine=asking.engine, limits=limits)
    return judged(goal, result)


def judged(goal: Goal, result: Result) -> Measured:
    """The verdict that a result means. A count in floating point ends within its rounding error of 1, never at 1: there
    it is verified that no counterexample exists."""
    verdict, why = decide(result, goal.at_least), ""
    ends = result.decided.measure()
    lower, upper = (None, None) if ends is None or result.undefined else (Fraction(ends[0]), Fraction(ends[1]))
    if verdict is Verdict.UNDECIDED:
        if result.undefined:
            why = "no input is confident, so the measure is undefined: lower kappa"
        elif not result.converged:
            why = f"stopped by {result.status}"
        elif goal.at_least == 1 and _none_at_all(result):
            verdict, why, lower, upper = (
                Verdict.HOLDS,
                "verified: there is no counterexample at all",
                Fraction(1),
                Fraction(1),
            )
        else:
            why = "the requirement lies within the engine's rounding error"
    return Measured(goal, verdict, lower, upper, result.seconds, result.status, why, result)


def _none_at_all(result: Result) -> bool:
    if result.asked is None:
        return False
    try:
        found = verify(result.asked.model, result.asked.grid.space, result.property, time_limit=VERIFY_SECONDS)
    except BoxQTEError:
        return False
    return found.verdict is Verdict.HOLDS


def _measured_rows(model: ImportedModel, goal: Goal, world: World, asking: Asking) -> Measured:
    confident, unfair = row_verdicts(model, world.space, goal.property, world.rows, asking.limits.workers)
    n, bad = int(confident.sum()), int(unfair.sum())
    if not n:
        return Measured(goal, Verdict.UNDECIDED, None, None, 0.0, Status.CONVERGED, "no row is confident: lower kappa")
    share = 1 - Fraction(bad, n)
    verdict = Verdict.HOLDS if share >= goal.at_least else Verdict.VIOLATED
    return Measured(goal, verdict, share, share, 0.0, Status.CONVERGED)


def row_verdicts(
    model: ImportedModel, space: Space, prop: Property, table: Table, workers: int
) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Which rows are confident, and which of them counterexamples; a row outside the space is neither."""
    grid = build_grid(model.ensemble, space, prop)
    read = read_rows(grid, table)
    verdict = np.full(len(read.cells), LOW)
    verdict[read.inside] = PointDecider(grid).decide(read.cells[read.inside], workers=workers).verdict
    return verdict != LOW, verdict == UNFAIR


def pairs_of(
    model: ImportedModel, found: Measured, world: World, n: int, rng: np.random.Generator, workers: int
) -> tuple[FloatArray, FloatArray]:
    """Counterexamples and a partner of each as rows in the model's columns; n of the space, or those among the rows."""
    if found.result is not None:
        try:
            values, x, other = sampled_columns(found.result, n, rng, workers)
        except EngineError:  # none was found by then
            empty = np.zeros((0, model.ensemble.n_features))
            return empty, empty
        return values.matrix(x), values.matrix(other)
    grid = build_grid(model.ensemble, world.space, found.goal.property)
    values, read = GridValues(grid), read_rows(grid, world.rows)
    inside = np.flatnonzero(read.inside)
    decided = PointDecider(grid).decide(read.cells[inside], workers=workers)
    hit = decided.verdict == UNFAIR
    cells = read.cells[inside[hit]]
    own = [column[inside[hit]] for column in values.columns(read.rows)]
    partners = shown_partners(grid, values, cells, decided.witness[hit])
    return values.matrix(own), values.matrix(witness_values(grid, values, cells, partners, own, rng))


def matrix_of(
    model: ImportedModel, space: Space, table: Table, sensitive: Sequence[str] = ()
) -> tuple[FloatArray, np.ndarray[Any, np.dtype[np.bool_]]]:
    """The rows of a table in the model's columns, and which of them lie in the space."""
    grid = build_grid(model.ensemble, space, Fairness(sensitive) if sensitive else Robustness(0))
    read = read_rows(grid, table)
    values = GridValues(grid)
    return values.matrix(values.columns(read.rows)), read.inside


def all_met(found: Sequence[Measured]) -> bool:
    return all(one.verdict is Verdict.HOLDS for one in found)
