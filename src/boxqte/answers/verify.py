"""Is there any counterexample at all? Stops at the first, or proves that there is none.

Every input of the space counts here, also one without mass (a single real number, a value of weight 0): the cells are
searched with masses of their own. First some points are tried; then the search of the box engine goes through the space
until a box with a counterexample is closed or none is left.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxqte.answers.asked import Asked
from boxqte.answers.existence import CANDIDATES, FINISH_LIMIT, Finder, UntilFound, counterexample_cells
from boxqte.answers.far_apart import as_roots, possible_boxes
from boxqte.answers.regions import Boxes, RegionStore
from boxqte.answers.remarks import sentences
from boxqte.answers.replay import replayed, scores
from boxqte.answers.rows import changes
from boxqte.answers.samples import drawn_cells, masks_of_rules, witness_values
from boxqte.answers.values import FloatArray, GridValues
from boxqte.answers.verdict import Verdict
from boxqte.basics.checks import random_numbers, seconds, worker_count
from boxqte.engines.box.engine import Box
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import Problem
from boxqte.engines.kinds import LOW, UNFAIR
from boxqte.engines.point import PointDecider
from boxqte.engines.protocol import Companions, Limits, Status, Watch
from boxqte.engines.refusals import two_classes
from boxqte.errors import EngineError
from boxqte.exact import plain
from boxqte.models.decision import Threshold, decision_text
from boxqte.models.importers import ImportedModel, load_model
from boxqte.questions.building import build_any_grid
from boxqte.questions.grid import Grid
from boxqte.questions.properties import Property
from boxqte.questions.row_cells import read_rows
from boxqte.space.space import Space, read_space
from boxqte.space.tables import table_of

if TYPE_CHECKING:
    import pandas as pd

TRIES = (64, 256, 1024, 4096)
STEPS = 2_000_000  # the most work on one tried point, in steps of some nanoseconds
PREVIEW = 60.0  # seconds at most for a first look at how far margins can be apart
NEAR_SAMPLES = 2000
NEAR_ROWS = 400

Points = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]


@dataclass(frozen=True, eq=False)
class Verification:
    """The answer to 'is there any counterexample?'.

    Attributes
    ----------
    verdict
        `Verdict.VIOLATED` (there is one: `x` and `witness`), `Verdict.HOLDS` (it is proved that there is none), or
        `Verdict.UNDECIDED` (`why` says what stopped it).
    x, witness
        Tables of one row, in the columns that the model's `predict` takes; None without a counterexample.
    changes
        What differs between the two, in words.
    replayed
        True if the model's own library breaks the property with them, by its classes or its scores, False if it does not
        (it rounds its sums), None if it was not asked.
    scores
        What the library itself gives x and x', where scores are asked about.
    distance
        With `near`: how far `x` is from the nearest row, as the sum over attributes of |difference| / range (1 for another
        category).
    row
        With `near`: the index of that row.
    decision
        The model's decision rule in words, where it is not the library's own `predict`.
    """

    verdict: Verdict
    seconds: float
    how: str
    x: pd.DataFrame | None = None
    witness: pd.DataFrame | None = None
    changes: str = ""
    replayed: bool | None = None
    scores: tuple[float, float] | None = None
    distance: float | None = None
    row: Any = None
    why: str = ""
    decision: str = ""
    remarks: tuple[str, ...] = ()
    """What the verdict does not say: that no tree tests a sensitive attribute, for one."""

    def to_json(self) -> dict[str, Any]:
        """The answer as a JSON object."""

        def record(table: pd.DataFrame | None) -> Any:
            return None if table is None else {k: _plain(v) for k, v in table.iloc[0].to_dict().items()}

        return {
            "verdict": str(self.verdict),
            "seconds": self.seconds,
            "how": self.how,
            "x": record(self.x),
            "witness": record(self.witness),
            "changes": self.changes,
            "replayed": self.replayed,
            "scores": None if self.scores is None else list(self.scores),
            "distance": self.distance,
            "row": _plain(self.row),
            "decision": self.decision,
            "why": self.why,
            "remarks": list(self.remarks),
        }

    def to_frame(self) -> pd.DataFrame:
        """The verdict as a table of one row, without the pair itself (`x`, `witness`)."""
        import pandas as pd

        row = {name: value for name, value in self.to_json().items() if name not in ("x", "witness", "scores")}
        return pd.DataFrame([row | {"remarks": " ".join(self.remarks)}])

    def __repr__(self) -> str:
        said = self.changes or self.why
        return f"Verification({self.verdict}{': ' + said if said else ''}; {self.how}, {self.seconds:.3g} s)"


def verify(
    model: object,
    space: Space | Mapping[str, Any] | str | Path,
    property: Property,
    *,
    near: Any = None,
    time_limit: float | None = None,
    workers: int | None = None,
    random_state: int = 0,
    allow_pickle: bool = False,
    threshold: Threshold | None = None,
) -> Verification:
    """Is there any counterexample? Stops at the first one, or proves that there is none.

    Parameters
    ----------
    model, space, property, workers, allow_pickle, threshold
        As in `quantify`.
    near
        A table of rows: the counterexample closest to one of them that is found (not proved to be the closest).
    time_limit
        Seconds; None is no limit.

    Examples
    --------
    >>> import boxqte
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> found = boxqte.verify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
    >>> str(found.verdict)
    'violated'
    """
    started = time.perf_counter()
    imported = load_model(model, allow_pickle=allow_pickle, threshold=threshold)
    threads, limit, rng = worker_count(workers), seconds(time_limit), random_numbers(random_state)
    grid = two_classes(build_any_grid(imported.ensemble, read_space(space), property), "verify")
    search = _Search(
        imported, grid, every_cell(grid), PointDecider(grid), GridValues(grid), threads, started,
        math.inf if limit is None else limit, rng,
    )  # fmt: skip
    if near is not None:
        return search.near(near)
    return search.first()


def every_cell(grid: Grid) -> Grid:
    """The grid with the same mass on every cell of an axis: what has no mass is found, too."""
    axes = []
    for axis in grid.axes:
        refined = Fraction(1, len(axis.refined))
        masses = [Fraction(0)] * axis.n_cells
        for base in axis.base.tolist():
            masses[base] += refined
        axes.append(replace(axis, masses=tuple(masses), refined_masses=(refined,) * len(axis.refined)))
    return replace(grid, axes=tuple(axes))


@dataclass
class _Search:
    model: ImportedModel
    grid: Grid
    even: Grid
    decider: PointDecider
    values: GridValues
    workers: int
    started: float
    time_limit: float
    rng: np.random.Generator
    tried: int = 0
    confident: int = 0
    """How many of the inputs that were tried are (or may be) confident."""

    @property
    def left(self) -> float:
        return self.time_limit - (time.perf_counter() - self.started)

    def first(self) -> Verification:
        found = self._try_points()
        if found is not None:
            return self._violated(*found, "found among points that were tried")
        if self.left <= 0:
            return self._undecided("the time limit", "points were tried")
        if self.grid.has_tolerance:
            return self._with_tolerance()
        return self._exchange()

    # --- trying points ---

    def _try_points(self) -> Points | None:
        """Some points of the space, by its mass and cell by cell."""
        for count in TRIES:
            if self.left <= 0:
                return None
            cells = np.concatenate([self._points(self.grid, count // 2), self._points(self.even, count - count // 2)])
            found = self._counterexamples(cells)
            if found is not None:
                return found
        return None

    def _points(self, grid: Grid, count: int) -> npt.NDArray[np.int64]:
        cells = np.zeros((count, len(grid.axes)), np.int64)
        for a, axis in enumerate(grid.axes):
            masses = np.array([float(m) for m in axis.refined_masses])
            cells[:, a] = self.rng.choice(len(masses), count, p=masses / masses.sum())
        return cells

    def _counterexamples(self, cells: npt.NDArray[np.int64]) -> Points | None:
        verdicts = self.decider.decide(cells, budget=STEPS, workers=self.workers)
        self.tried += len(cells)
        self.confident += int(np.count_nonzero(verdicts.verdict != LOW))
        at = np.flatnonzero(verdicts.verdict == UNFAIR)
        return (cells[at], verdicts.witness[at]) if len(at) else None

    # --- searching everything ---

    def _exchange(self) -> Verification:
        finder = Finder()
        possible = possible_boxes(self.even, Limits(time_limit=min(self.left / 2, PREVIEW), workers=self.workers))
        if possible is not None and not len(possible[1]):
            return self._answer(Verdict.HOLDS, "no two margins are far enough apart, proved by the box engine")
        limits = Limits(time_limit=None if math.isinf(self.left) else self.left, workers=self.workers)
        roots = None if possible is None else partial(as_roots, *possible)
        status = self._run(limits, UntilFound(limits, finder), [finder], roots)
        if finder.found:
            try:
                pairs = self._from_boxes(finder.problem, finder.found[0])
            except EngineError:  # it is there, by ranks, but its mass is too small to draw it
                return self._answer(Verdict.VIOLATED, "proved by the box engine")
            return self._violated(*pairs, "found by the box engine")
        if status is not Status.CONVERGED:
            return self._undecided(
                f"the {status}" if status is not Status.INTERRUPTED else "an interrupt", "box engine"
            )
        smallest = sum(math.log10(len(axis.refined)) for axis in self.grid.axes)
        if finder.unsure or smallest > 280:  # such a cell's mass is no float any more
            return self._undecided("margins too close to call, or too many cells", "box engine")
        return self._answer(Verdict.HOLDS, "every box proved by the box engine")

    def _run(self, limits: Limits, watch: Watch, observers: list[Any], roots: Any = None) -> Status:
        engine = Box(BoxOptions(finish_limit=FINISH_LIMIT))
        return engine.run(self.even, limits, watch, Companions(tuple(observers), roots=roots)).status

    def _from_boxes(self, problem: Problem, boxes: Boxes) -> Points:
        """Some counterexamples of the boxes that were found."""
        store = RegionStore()
        store.begin(problem, boxes.cells)
        store.add(boxes)
        asked = Asked(self.model, self.even, "box", {}, Limits(workers=self.workers), store)
        cells, others = drawn_cells(asked, store, CANDIDATES, self.rng, 1)
        return cells.astype(np.int64), others

    def _with_tolerance(self) -> Verification:
        """Sums of masses with epsilon > 0 carry rounding: they can find a counterexample, they cannot prove there is none."""
        cells = counterexample_cells(self.even)
        if cells is not None:
            if not len(cells):
                return self._answer(Verdict.HOLDS, "every cell was tried")
            found = self._counterexamples(cells[:CANDIDATES])
            if found is not None:
                return self._violated(*found, "every cell was tried")
        store = RegionStore()
        limits = Limits(time_limit=None if math.isinf(self.left) else self.left, workers=self.workers)
        status = self._run(limits, Watch(limits), [store])
        heavy = store.boxes.masses[:, UNFAIR] > 1e-9 if store.problem is not None else np.zeros(0, bool)
        if heavy.any():
            assert isinstance(store.problem, Problem)
            pairs = self._from_boxes(store.problem, store.boxes.take(np.flatnonzero(heavy)))
            return self._violated(*pairs, "found by the box engine")
        if status is not Status.CONVERGED:
            return self._undecided(f"the {status}", "box engine")
        return self._undecided("with epsilon > 0 this version proves only that counterexamples have a mass of at most "
                               f"{1e-9 * max(len(store.boxes), 1):.1g} of the cells", "box engine")  # fmt: skip

    # --- near data ---

    def near(self, rows: Any) -> Verification:
        """The closest counterexample that is found: a row itself, one attribute of a row changed, or one drawn anywhere
        and brought nearer."""
        table = table_of(rows)
        read = read_rows(self.grid, table)
        columns, cells, why = self.values.columns(read.rows), read.cells, read.rows.why
        inside = np.flatnonzero(read.inside)
        if not len(inside):
            raise EngineError(f"near: no row lies in the space; row 0: {why[0]}")
        data = [column[inside] for column in columns]
        found = self._counterexamples(cells[inside])
        if found is not None:
            at = self._rows_of(cells[inside], found[0][:1])
            x = [column[at] for column in data]
            return self._violated(found[0][:1], found[1][:1], "a row itself", values=x, distance=0.0,
                                  row=table.index[inside[at[0]]])  # fmt: skip
        best = self._one_change(cells[inside], data)
        drawn_near = self._brought_nearer(cells[inside], data)
        if drawn_near is not None and (best is None or drawn_near[0] < best[0]):
            best = drawn_near
        if best is None:
            return self.first()
        distance, own, witness, x, row = best
        return self._violated(own, witness, "near a row", values=x, distance=distance, row=table.index[inside[row]])

    def _rows_of(self, cells: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        return np.array([int(np.flatnonzero((cells == row).all(axis=1))[0]) for row in wanted])

    def _one_change(self, cells: npt.NDArray[np.int64], data: list[FloatArray]) -> Any:
        """One attribute of a row in another cell, all of them, for as many rows as there is time for."""
        best: Any = None
        for row in range(min(len(cells), NEAR_ROWS)):
            if self.left <= 0:
                break
            options = []
            for a, axis in enumerate(self.grid.axes):
                for cell in range(len(axis.refined)):
                    if cell != cells[row, a]:
                        options.append(cells[row].copy())
                        options[-1][a] = cell
            found = self._counterexamples(np.array(options).reshape(-1, cells.shape[1]))
            if found is None:
                continue
            x = self._towards(
                found[0], [column[[row] * len(found[0])] for column in data], cells[[row] * len(found[0])]
            )
            distances = self._distances(x, [column[[row] * len(found[0])] for column in data])
            i = int(np.argmin(distances))
            if best is None or distances[i] < best[0]:
                best = (float(distances[i]), found[0][[i]], found[1][[i]], [column[[i]] for column in x], row)
        return best

    def _brought_nearer(self, cells: npt.NDArray[np.int64], data: list[FloatArray]) -> Any:
        """Counterexamples from anywhere: attribute by attribute takes the value of the nearest row while it stays one."""
        points = np.concatenate([self._points(self.grid, NEAR_SAMPLES), self._points(self.even, NEAR_SAMPLES)])
        found = self._counterexamples(points)
        if found is None:
            return None
        own = found[0][:200]
        # the row that shares the most cells
        row = np.array([int(np.argmax((cells == point).sum(axis=1))) for point in own])
        for _ in range(2):
            for a in self.rng.permutation(len(self.grid.axes)).tolist():
                trial = own.copy()
                trial[:, a] = cells[row, a]
                verdicts = self.decider.decide(trial, budget=STEPS, workers=self.workers)
                own = np.where((verdicts.verdict == UNFAIR)[:, None], trial, own)
        found = self._counterexamples(own)
        assert found is not None
        own, witness = found
        at = [column[row[: len(own)]] for column in data]
        x = self._towards(own, at, cells[row[: len(own)]])
        distances = self._distances(x, at)
        i = int(np.argmin(distances))
        return float(distances[i]), own[[i]], witness[[i]], [column[[i]] for column in x], int(row[i])

    def _towards(
        self, own: npt.NDArray[np.int64], data: list[FloatArray], cells: npt.NDArray[np.int64]
    ) -> list[FloatArray]:
        """The value of each point's cells that is nearest to the row's; the row's own where the cell is the same."""
        out = []
        for a, values in enumerate(self.values.axes):
            drawn_values = values.draw(own[:, a], self.rng)
            same = own[:, a] == cells[:, a]
            if values.numeric:
                nearest = values.nearest_refined(own[:, a], np.where(np.isnan(data[a]), drawn_values, data[a]))
                drawn_values = np.where(np.isnan(drawn_values), np.nan, nearest)
            out.append(np.where(same, data[a], drawn_values))
        return out

    def _distances(self, x: list[FloatArray], data: list[FloatArray]) -> FloatArray:
        """The sum over attributes of |difference| / range; 1 for another category or a missing value."""
        total = np.zeros(len(x[0]))
        for a, values in enumerate(self.values.axes):
            span = float(values.axis.attribute.range) if values.numeric else 0.0
            differs = ~((x[a] == data[a]) | (np.isnan(x[a]) & np.isnan(data[a])))
            if span:
                part = np.abs(x[a] - data[a]) / span
                total += np.where(differs, np.where(np.isnan(part), 1.0, part), 0.0)
            else:
                total += differs
        return total

    # --- answers ---

    def _violated(
        self,
        cells: npt.NDArray[np.int64],
        others: npt.NDArray[np.int32],
        how: str,
        *,
        values: list[FloatArray] | None = None,
        distance: float | None = None,
        row: Any = None,
    ) -> Verification:
        """The first of the counterexamples on which the library agrees; the first of all if it agrees on none."""
        cells, others = cells[:CANDIDATES], others[:CANDIDATES]
        x = values if values is not None else self.values.draw(cells, self.rng)
        witness = witness_values(self.grid, self.values, cells, others, x, self.rng)
        kept = self._within_bounds(x, witness)
        if values is None:
            own = np.stack([axis.base[cells[:, a]] for a, axis in enumerate(self.grid.axes)], axis=1)
            kept &= self._in_cells(own, x) & self._in_cells(others, witness)
        if not kept.any():
            return self._answer(Verdict.VIOLATED, how, why="the pairs are of real numbers that are no floats")
        x, witness = [c[kept] for c in x], [c[kept] for c in witness]
        at, replay = 0, None
        agreed = replayed(self.model, self.values, x, witness)
        if agreed is not None:
            at, replay = int(np.argmax(agreed)), bool(agreed.any())
        x, witness = [c[[at]] for c in x], [c[[at]] for c in witness]
        return self._answer(
            Verdict.VIOLATED,
            how,
            x=self.values.frame(x),
            witness=self.values.frame(witness),
            changes=changes(self.grid, self.values, x, witness)[0][0],
            replayed=replay,
            scores=self._scores(x, witness),
            distance=distance,
            row=row,
        )

    def _within_bounds(self, x: list[FloatArray], witness: list[FloatArray]) -> npt.NDArray[np.bool_]:
        """The pairs that keep bounded changes exactly: at the very edge of a cell real numbers may, and no floats."""
        kept = np.ones(len(x[0]), bool)
        for name, most in self.grid.property.max_change:
            a = self.grid.space.names.index(name)
            pairs = zip(x[a].tolist(), witness[a].tolist())
            kept &= [math.isnan(one) or abs(Fraction(one) - Fraction(two)) <= most for one, two in pairs]
        return kept

    def _in_cells(self, cells: npt.NDArray[np.integer], points: list[FloatArray]) -> npt.NDArray[np.bool_]:
        """The points all of whose real numbers are in their base cells, or in some that no cut and no rule tells from
        these: a cell may have no float in it."""
        kept = np.ones(len(cells), bool)
        for a, axis in enumerate(self.grid.axes):
            if axis.attribute.kind != "real":
                continue
            edges = [cell.low for cell in axis.cells if cell.low is not None]
            masks = [cut.mask for cut in self.grid.cuts if cut.axis == a] + masks_of_rules(self.grid, a)
            for i, (wanted, value) in enumerate(zip(cells[:, a].tolist(), points[a].tolist())):
                if not math.isnan(value):
                    at = bisect_right(edges, (Fraction(value), 0)) - 1
                    kept[i] &= at == wanted or all(mask >> at & 1 == mask >> wanted & 1 for mask in masks)
        return kept

    def _scores(self, *pair: list[FloatArray]) -> tuple[float, float] | None:
        """What the library itself gives the two inputs, where scores are asked about."""
        read = scores(self.model, self.grid.property) if self.grid.property.asks_scores else None
        if read is None:
            return None
        one, two = (float(read(self.values.matrix(x)[:, : self.grid.ensemble.n_features])[0]) for x in pair)
        return one, two

    def _undecided(self, why: str, how: str) -> Verification:
        return self._answer(Verdict.UNDECIDED, how, why=why)

    def _answer(self, verdict: Verdict, how: str, **rest: Any) -> Verification:
        rule = decision_text(self.model.ensemble.decision)
        said = sentences(self.grid)
        if verdict is Verdict.HOLDS and self.tried and not self.confident:
            kappa = plain(self.grid.property.kappa)
            said += (
                f"None of {self.tried:,} inputs that were tried is confident at kappa {kappa}: others do not count.",
            )
        return Verification(verdict, time.perf_counter() - self.started, how, decision=rule, remarks=said, **rest)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value
