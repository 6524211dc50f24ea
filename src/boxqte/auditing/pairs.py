"""Example pairs for a report: rows of the data that are counterexamples first, then drawn ones, those most like a row first.

Every pair that is shown was asked of the model's own library, where it is installed; one that it denies is not shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.answers.asked import Asked
from boxqte.answers.empirical import Empirical
from boxqte.answers.replay import replayed
from boxqte.answers.result import Result, asked_of
from boxqte.answers.rows import nearest_witnesses
from boxqte.answers.samples import Columns, decider_of, drawn_columns, shown_partners, witness_values
from boxqte.answers.values import FloatArray, GridValues
from boxqte.auditing.findings import Difference, Pair
from boxqte.engines.point import PointDecider
from boxqte.errors import EngineError
from boxqte.questions.row_cells import read_rows
from boxqte.space.attributes import Attribute
from boxqte.space.tables import table_of

SEED = 0  # the examples of a report are the same whenever it is made
CANDIDATES = 50  # draws for each pair that is shown, where they are compared with rows
MOST_ROWS = 5_000  # that a draw is compared with


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a table in a question's own cells, and which of them are counterexamples."""

    numbers: npt.NDArray[np.int64]
    """Of the rows inside the space, from 0 in the table."""
    cells: npt.NDArray[np.int64]
    columns: Columns
    unfair: npt.NDArray[np.int64]
    """Places among these rows."""


def rows_of(asked: Asked, data: Any, found: Empirical) -> Rows:
    """The rows of the data for this question."""
    read = read_rows(asked.grid, table_of(data))
    numbers = np.flatnonzero(read.inside)
    columns = [column[numbers] for column in GridValues(asked.grid).columns(read.rows)]
    unfair = np.flatnonzero(np.isin(numbers, found.counterexamples))
    return Rows(numbers, read.cells[numbers], columns, unfair)


def example_pairs(result: Result, n: int, rows: Rows | None = None) -> tuple[tuple[Pair, ...], bool]:
    """At most n pairs, and whether the library agreed to each of them (False: it could not be asked)."""
    asked = asked_of(result)
    values = GridValues(asked.grid)
    rng = np.random.default_rng(SEED)
    pairs: list[Pair] = []
    asks = True
    if rows is not None and len(rows.unfair) and asked.grid.ensemble.is_binary:
        at = rng.permutation(rows.unfair)[: 2 * n]
        x = [column[at] for column in rows.columns]
        other = _partners_of(asked, values, rows.cells[at], x, rng)
        kept, asks = _agreed(asked, values, x, other)
        pairs += _pairs(asked, values, x, other, kept[:n], rows, at)
    if len(pairs) < n:
        wanted = n if rows is None else CANDIDATES * n
        try:
            x, other = drawn_columns(asked, wanted, rng)
        except EngineError:
            if pairs:
                return tuple(pairs), asks
            raise
        kept, asks = _agreed(asked, values, x, other)
        near = None
        if rows is not None and len(rows.numbers):
            near, far = _nearest(asked, x, rows, rng)
            kept = kept[np.argsort(far[kept], kind="stable")]
        kept = _distinct(x, kept)[: n - len(pairs)]
        pairs += _pairs(asked, values, x, other, kept, rows, near)
    return tuple(pairs), asks


def _partners_of(
    asked: Asked, values: GridValues, cells: npt.NDArray[np.int64], x: Columns, rng: np.random.Generator
) -> Columns:
    """For rows that are counterexamples, the nearest x' of each."""
    grid, decider = asked.grid, decider_of(asked)
    assert isinstance(decider, PointDecider)
    found = decider.decide(cells, workers=1).witness
    found = shown_partners(grid, values, cells, nearest_witnesses(decider, cells, x, found, 1))
    return witness_values(grid, values, cells, found, x, rng)


def _agreed(asked: Asked, values: GridValues, x: Columns, other: Columns) -> tuple[npt.NDArray[np.intp], bool]:
    """The pairs that the library does not deny, and whether it was asked."""
    said = replayed(asked.model, values, x, other)
    return (np.arange(len(x[0])), False) if said is None else (np.flatnonzero(said), True)


def _nearest(
    asked: Asked, x: Columns, rows: Rows, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """For each x the place of the row that it is most like, and how far it is: attributes that differ, numbers by their
    share of the range (Gower's distance)."""
    places = np.arange(len(rows.numbers))
    if len(places) > MOST_ROWS:
        places = np.sort(rng.choice(places, MOST_ROWS, replace=False))
    far = np.zeros((len(x[0]), len(places)))
    for axis, own, column in zip(asked.grid.axes, x, rows.columns):
        one, two = own[:, None], column[places][None, :]
        if axis.attribute.is_numeric:
            gap = np.abs(one - two) / (float(axis.attribute.range) or 1.0)
            absent = np.isnan(one) | np.isnan(two)
            far += np.where(absent, (np.isnan(one) != np.isnan(two)).astype(float), gap)
        else:
            far += one != two
    best = far.argmin(axis=1)
    return places[best], far[np.arange(len(far)), best]


def _distinct(x: Columns, at: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The places without those whose x stands before."""
    _, first = np.unique(np.nan_to_num(np.stack([column[at] for column in x]), nan=-1e300), axis=1, return_index=True)
    return at[np.sort(first)]


def _pairs(
    asked: Asked,
    values: GridValues,
    x: Columns,
    other: Columns,
    kept: npt.NDArray[np.intp],
    rows: Rows | None,
    near: npt.NDArray[np.int64] | None,
) -> list[Pair]:
    """The pairs in readable values; `near` has for each x the place of its row."""
    classes = _classes(asked, values, [c[kept] for c in x], [c[kept] for c in other])
    pairs = []
    for place, i in enumerate(kept.tolist()):
        row = None if rows is None or near is None else int(near[i])
        attributes = []
        for at, axis in enumerate(asked.grid.axes):
            attribute = axis.attribute
            real = "" if row is None or rows is None else _shown(attribute, rows.columns[at][row])
            one, two = (_shown(attribute, columns[at][i]) for columns in (x, other))
            attributes.append(Difference(attribute.name, one, two, real))
        # what changed comes first, so that it is seen where a model has many columns
        ordered = tuple(sorted(attributes, key=lambda d: not d.changed))
        number = None if row is None or rows is None else int(rows.numbers[row])
        pairs.append(Pair(ordered, classes[0][place], classes[1][place], number))
    return pairs


def _classes(asked: Asked, values: GridValues, *both: Sequence[FloatArray]) -> tuple[list[str], list[str]]:
    """The classes of both inputs of each pair."""
    ensemble = asked.model.ensemble
    one, two = ([str(ensemble.classes[c]) for c in ensemble.predict(values.matrix(own))] for own in both)
    return one, two


def _shown(attribute: Attribute, value: float) -> str:
    if math.isnan(value) or (not attribute.is_numeric and not 0 <= int(value) < len(attribute.values)):
        return "missing"
    if not attribute.is_numeric:
        return str(attribute.label_of(int(value)))
    return str(int(value)) if attribute.kind == "integer" else f"{value:.6g}"
