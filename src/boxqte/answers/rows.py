"""Given rows: which of them are counterexamples, and what is the nearest input that the model treats otherwise?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxqte.answers.replay import replayed
from boxqte.answers.samples import shown_partners, witness_values
from boxqte.answers.values import FloatArray, GridValues
from boxqte.basics.checks import worker_count
from boxqte.engines.kinds import FAIR, LOW, UNFAIR
from boxqte.engines.point import PointDecider
from boxqte.engines.refusals import two_classes
from boxqte.models.decision import Threshold, decision_text
from boxqte.models.importers import load_model
from boxqte.questions.building import build_any_grid
from boxqte.questions.grid import AnyGrid, Grid
from boxqte.questions.properties import Property
from boxqte.questions.row_cells import read_rows
from boxqte.space.space import Space, read_space
from boxqte.space.tables import table_of

if TYPE_CHECKING:
    import pandas as pd

HALVINGS = 12
VERDICTS = {LOW: "not confident", FAIR: "fair", UNFAIR: "unfair"}
OUTSIDE = "outside the space"


@dataclass(frozen=True, eq=False)
class Rows:
    """The verdict on every row.

    Attributes
    ----------
    table
        One line a row, with the row's own index: `verdict` (fair, unfair, not confident, outside the space), `changes`
        (from the row to the nearest x' of the other class), `distance` (how much of the tolerance that takes, 0 if only
        sensitive values change), `why` (for rows outside the space).
    x, witness
        The rows that are counterexamples, and the nearest x' of each, in the columns that the model's `predict` takes.
    disagreements
        The index of the counterexamples that are none by the library's own classes or scores (its sums are rounded).
    replayed
        Whether the library was asked.
    decision
        The model's decision rule in words, where it is not the library's own `predict`.
    """

    table: pd.DataFrame
    x: pd.DataFrame
    witness: pd.DataFrame
    disagreements: list[Any]
    replayed: bool
    decision: str = ""

    def to_frame(self) -> pd.DataFrame:
        """The verdict on every row, as `table`."""
        return self.table

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict."""
        found = self.table["verdict"].value_counts().to_dict()
        return {name: int(found.get(name, 0)) for name in (*VERDICTS.values(), OUTSIDE)}

    @property
    def share(self) -> float | None:
        """The share of the confident rows that are counterexamples; None if no row is confident."""
        counts = self.counts
        confident = counts["fair"] + counts["unfair"]
        return counts["unfair"] / confident if confident else None

    def __repr__(self) -> str:
        said = ", ".join(f"{n} {name}" for name, n in self.counts.items() if n)
        return f"Rows({said}; share {'undefined' if self.share is None else format(self.share, '.4g')})"


def check(
    model: object,
    space: Space | Mapping[str, Any] | str | Path,
    property: Property,
    rows: Any,
    *,
    nearest: bool = True,
    workers: int | None = None,
    allow_pickle: bool = False,
    threshold: Threshold | None = None,
) -> Rows:
    """Local fairness or robustness of every given row, with the nearest x' of the other class.

    Parameters
    ----------
    model, space, property, allow_pickle, threshold
        As in `quantify`.
    rows
        A table (pandas, polars, ..., or a dict of lists) with the columns of the model or of the space; others are left
        alone.
    nearest
        Look for the x' that moves the least: the largest movement, as a share of the attribute's tolerance, is smallest; for
        monotonicity and bounded changes the change of that attribute. Otherwise any x'.
    workers
        Threads; None is one per core.

    Examples
    --------
    >>> from boxqte import Fairness, check
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> people = {"income": [500.0, 500.0], "race": [2, 2], "age": [40, 60]}
    >>> found = check(loan_ensemble(), loan_space(), Fairness("race"), people)
    >>> found.table["verdict"].tolist()
    ['fair', 'unfair']
    """
    import pandas as pd

    threads = worker_count(workers)
    imported = load_model(model, allow_pickle=allow_pickle, threshold=threshold)
    grid = two_classes(build_any_grid(imported.ensemble, read_space(space), property), "check")
    values = GridValues(grid)
    table = table_of(rows)
    read = read_rows(grid, table)
    columns, cells, why = values.columns(read.rows), read.cells, read.rows.why
    index = table.index
    inside = np.flatnonzero(read.inside)
    decider = PointDecider(grid)
    found = decider.decide(cells[inside], workers=threads)
    verdict = np.full(len(cells), -1, np.int64)
    verdict[inside] = found.verdict
    unfair = np.flatnonzero(verdict == UNFAIR)
    x = [column[unfair] for column in columns]
    other = found.witness[found.verdict == UNFAIR]
    if nearest and len(unfair):
        other = nearest_witnesses(decider, cells[unfair], x, other, threads)
    other = shown_partners(grid, values, cells[unfair], other)
    witness = witness_values(grid, values, cells[unfair], other, x, np.random.default_rng(0))
    texts, distances = changes(grid, values, x, witness)
    said = pd.DataFrame(
        {
            "verdict": [VERDICTS.get(v, OUTSIDE) for v in verdict.tolist()],
            "changes": "",
            "distance": np.nan,
            "why": why,
        },
        index=index,
    )
    said.iloc[unfair, 1] = texts
    said.iloc[unfair, 2] = distances
    disagreements: list[Any] = []
    agreed = replayed(imported, values, x, witness)
    if agreed is not None:
        disagreements = index[unfair[~agreed]].tolist()
    tables = [values.frame(part).set_index(index[unfair]) for part in (x, witness)]
    rule = decision_text(imported.ensemble.decision)
    return Rows(said, tables[0], tables[1], disagreements, agreed is not None, rule)


# --- the nearest x' ---------------------------------------------------------------------------------------------------


def nearest_witnesses(
    decider: PointDecider,
    cells: npt.NDArray[np.int64],
    x: list[FloatArray],
    found: npt.NDArray[np.int32],
    workers: int,
) -> npt.NDArray[np.int32]:
    """Halve the window again and again: the smallest share of the tolerance within which there still is an x'; where the
    property relates the values of a sensitive attribute, of how far that may change."""
    grid = decider.grid
    best = found.copy()
    if not grid.has_tolerance and _related(grid) < 0:
        return best
    low, high = np.zeros(len(cells)), np.ones(len(cells))
    for step in range(HALVINGS + 1):
        share = np.zeros(len(cells)) if step == 0 else (low + high) / 2
        open_rows = np.flatnonzero(high > 0)
        if not len(open_rows):
            break
        windows = _windows(grid, cells[open_rows], [c[open_rows] for c in x], share[open_rows])
        verdicts = decider.decide(cells[open_rows], windows=windows, workers=workers)
        hit = verdicts.verdict == UNFAIR
        best[open_rows[hit]] = verdicts.witness[hit]
        high[open_rows[hit]] = share[open_rows[hit]]
        low[open_rows[~hit]] = share[open_rows[~hit]]
    return best


def _windows(
    grid: AnyGrid, cells: npt.NDArray[np.int64], x: list[FloatArray], share: FloatArray
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The base cells within a share of the tolerance, or of the change that the property relates, around each x."""
    first, last = np.zeros(cells.shape, np.int32), np.zeros(cells.shape, np.int32)
    related = _related(grid)
    for a, axis in enumerate(grid.axes):
        if a != related and (axis.sensitive or not axis.moves):
            first[:, a], last[:, a] = axis.near_lo[cells[:, a]], axis.near_hi[cells[:, a]]
            continue
        own = axis.base[cells[:, a]]
        most = axis.tolerance
        if a == related:
            most = dict(grid.property.max_change).get(axis.attribute.name, axis.attribute.range)
        reach = share * float(most)
        edges = np.array([float(cell.low[0]) for cell in axis.cells[1:] if cell.low is not None])
        value = np.where(np.isnan(x[a]), 0.0, x[a])
        inside = ~np.isnan(x[a]) & (share > 0)
        first[:, a] = np.where(inside, np.minimum(np.searchsorted(edges, value - reach, side="left"), own), own)
        last[:, a] = np.where(inside, np.maximum(np.searchsorted(edges, value + reach, side="right"), own), own)
    return first, last


def _related(grid: AnyGrid) -> int:
    """The axis along which the property says who may be whose partner; -1: none."""
    return grid.partners.axis if isinstance(grid, Grid) and grid.partners is not None else -1


def changes(
    grid: AnyGrid, values: GridValues, x: list[FloatArray], witness: list[FloatArray]
) -> tuple[list[str], list[float]]:
    """What differs between each x and its x' in words, and the largest movement as a share of the tolerance."""
    if not x or not len(x[0]):
        return [], []
    before, after = values.readable_columns(x), values.readable_columns(witness)
    texts: list[list[str]] = [[] for _ in range(len(x[0]))]
    distance = np.zeros(len(x[0]))
    for a, axis in enumerate(grid.axes):
        name = axis.attribute.name
        differs = ~((x[a] == witness[a]) | (np.isnan(x[a]) & np.isnan(witness[a])))
        one, two = before[name].tolist(), after[name].tolist()
        for i in np.flatnonzero(differs).tolist():
            texts[i].append(f"{name}: {_short(one[i])} -> {_short(two[i])}")
        if not axis.sensitive and axis.tolerance:
            moved = np.where(differs, np.abs(x[a] - witness[a]), 0.0)
            distance = np.maximum(distance, moved / float(axis.tolerance))
    return ["; ".join(words) for words in texts], distance.tolist()


def _short(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "missing"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
