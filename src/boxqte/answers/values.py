"""From cells back to values: draw a value inside a cell, and write values as the model's columns or as a table.

A drawn real value lies in its cell as the model sees it: where the model rounds its inputs to float32, the value is a
float32 of the cell whenever the cell has one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxqte.models.ensemble import Test
from boxqte.questions.axes import Axis, Cell, Edge
from boxqte.questions.building import attribute_codes, feature_of, match_columns
from boxqte.questions.decisions import attribute_groups
from boxqte.questions.grid import AnyGrid
from boxqte.space.rows import MISSING, OUTSIDE, TableRows

if TYPE_CHECKING:
    import pandas as pd

FloatArray = npt.NDArray[np.float64]
ABSENT = -1
LARGEST_WHOLE = 2.0**53  # larger codes stay floats: an int64 may not hold them


class AxisValues:
    """The values of one axis: numbers (NaN is missing) of a numeric attribute, indices (-1 is missing) of a finite one.

    Every refined cell is a list of pieces on which the mass lies evenly, or as the attribute's distribution says.
    """

    def __init__(self, axis: Axis, single_precision: bool):
        self.axis = axis
        self.casts = single_precision
        attribute = axis.attribute
        self.numeric = attribute.is_numeric
        self.integral = attribute.kind == "integer"
        by_cell = [self._pieces(cell, single_precision) for cell in axis.refined]
        pieces = [piece for cell in by_cell for piece in cell]
        self.start = np.concatenate([[0], np.cumsum([len(cell) for cell in by_cell])]).astype(np.int64)
        masses = np.array([float(piece[0]) for piece in pieces])
        self.before = np.concatenate([[0.0], np.cumsum(masses)])
        self.low = np.array([piece[1] for piece in pieces], np.float64)
        self.high = np.array([piece[2] for piece in pieces], np.float64)
        self.narrow = np.array([piece[3] for piece in pieces], bool)
        self.missing = np.array([piece[4] for piece in pieces], bool)

    def _pieces(self, cell: Cell, single_precision: bool) -> list[tuple[Fraction, float, float, bool, bool]]:
        """(mass, low, high, whether both are float32, missing): closed ends for reals, [low, high) for integers."""
        attribute = self.axis.attribute
        if cell.missing:
            return [(attribute.missing or Fraction(0), 0.0, 0.0, False, True)]
        if cell.low is None or cell.high is None:
            masses = attribute.value_masses()
            return [(masses[v], float(v), float(v), False, False) for v in cell.values]
        inner = [(edge, 0) for edge in attribute.knots if cell.low < (edge, 0) < cell.high]
        edges: list[Edge] = [cell.low, *inner, cell.high]
        out = []
        for low, high in pairwise(edges):
            # A cell of one piece needs no mass: nothing is to be chosen in it.
            mass = attribute.mass_below(high[0]) - attribute.mass_below(low[0]) if inner else Fraction(1)
            if self.integral:
                out.append((mass, float(low[0]), float(high[0]), False, False))
                continue
            ends = first_float(low), last_float(high)
            narrow = False
            if single_precision:
                singles = _first_single(ends[0]), _last_single(ends[1])
                if singles[0] <= singles[1]:
                    ends, narrow = singles, True
            out.append((mass, ends[0], max(ends), narrow, False))
        return out

    def draw(self, cells: npt.NDArray[np.integer], rng: np.random.Generator) -> FloatArray:
        """One value for every refined cell, by the mass inside it (evenly where a cell has no mass)."""
        first, stop = self.start[cells], self.start[cells + 1]
        piece = first
        if (stop - first > 1).any():
            low, high = self.before[first], self.before[stop]
            piece = np.searchsorted(self.before, low + rng.random(len(cells)) * (high - low), side="right") - 1
            even = first + (rng.random(len(cells)) * (stop - first)).astype(np.int64)
            piece = np.where(high > low, np.clip(piece, first, stop - 1), even)
        low, high = self.low[piece], self.high[piece]
        if not self.numeric:
            return np.where(self.missing[piece], ABSENT, low)
        drawn = rng.random(len(cells))
        formula = self.axis.attribute.distribution
        if formula is not None:
            values = formula.draw(low, np.maximum(high, low + 1) if self.integral else high, rng)
        elif self.integral:
            values = low + np.minimum(np.floor(drawn * (high - low)), high - low - 1)
        else:
            values = np.clip(low + drawn * (high - low), low, high)
        if self.narrow.any():  # never of integers
            rounded = np.clip(values.astype(np.float32).astype(np.float64), low, high)
            values = np.where(self.narrow[piece], rounded, values)
        return np.where(self.missing[piece], np.nan, values)

    @cached_property
    def shown(self) -> npt.NDArray[np.bool_]:
        """Which base cells have a value that can be written: between two neighbouring floats lies none."""
        return np.array([
            cell.low is None or cell.high is None or self.integral or first_float(cell.low) <= last_float(cell.high)
            for cell in self.axis.cells
        ])  # fmt: skip

    def nearest_refined(self, cells: npt.NDArray[np.integer], to: FloatArray) -> FloatArray:
        """Of a numeric attribute: the value of each refined cell that is nearest to a given value."""
        low, high = self.low[self.start[cells]], self.high[self.start[cells + 1] - 1]
        return np.clip(to, low, high - 1 if self.integral else high)

    def nearest(self, cells: npt.NDArray[np.integer], to: FloatArray) -> FloatArray:
        """Of a numeric attribute: the value of each base cell that is nearest to a given value."""
        return self.nearest_among(cells, cells, to)

    def nearest_among(
        self,
        first: npt.NDArray[np.integer],
        last: npt.NDArray[np.integer],
        to: FloatArray,
        reach: Fraction | None = None,
    ) -> FloatArray:
        """Of a numeric attribute: the value of the base cells first..last that is nearest to a given value.

        A float32 where the model casts, unless that is beyond the reach and another float is not.
        """
        values = to.copy()
        for one, end in set(zip(first.tolist(), last.tolist())):
            at = np.flatnonzero((first == one) & (last == end))
            if self.axis.cells[one].missing:
                values[at] = np.nan
                continue
            low, high = self.axis.cells[one].low, self.axis.cells[end].high
            assert low is not None
            assert high is not None
            if self.integral:
                ends = float(low[0]), float(high[0]) - 1
            else:
                wide = ends = first_float(low), last_float(high)
                if self.narrow.any():
                    singles = _first_single(ends[0]), _last_single(ends[1])
                    ends = singles if singles[0] <= singles[1] else ends
                if reach is not None and ends != wide:
                    beyond = at[_beyond(reach, to[at], np.clip(to[at], *ends))]
                    values[beyond] = np.clip(to[beyond], *wide)
                    at = np.setdiff1d(at, beyond)
            values[at] = np.clip(to[at], *ends)
        return values


def _beyond(reach: Fraction, one: FloatArray, two: FloatArray) -> npt.NDArray[np.intp]:
    """Where two values are farther apart than the reach, exactly."""
    at: npt.NDArray[np.intp] = np.flatnonzero(np.abs(one - two) > float(reach) * (1 - 1e-12))
    exact = [abs(Fraction(a) - Fraction(b)) > reach for a, b in zip(one[at].tolist(), two[at].tolist())]
    return np.asarray(at[np.array(exact, bool)])


def first_float(edge: Edge) -> float:
    """The smallest float to the right of an edge."""
    value, after = edge
    nearest = float(value)
    while Fraction(nearest) < value or (after and Fraction(nearest) == value):
        nearest = math.nextafter(nearest, math.inf)
    return nearest


def last_float(edge: Edge) -> float:
    """The largest float to the left of an edge."""
    value, after = edge
    nearest = float(value)
    while Fraction(nearest) > value or (not after and Fraction(nearest) == value):
        nearest = math.nextafter(nearest, -math.inf)
    return nearest


def _first_single(value: float) -> float:
    with np.errstate(over="ignore"):
        single = np.float32(value)
        return float(single if float(single) >= value else np.nextafter(single, np.float32(np.inf)))


def _last_single(value: float) -> float:
    with np.errstate(over="ignore"):
        single = np.float32(value)
        return float(single if float(single) <= value else np.nextafter(single, np.float32(-np.inf)))


class GridValues:
    """The values of all axes of a grid, and the ways to write them."""

    def __init__(self, grid: AnyGrid):
        self.grid = grid
        ensemble = grid.ensemble
        self.owner = match_columns(ensemble, grid.space, grid.property.sensitive)
        casts = np.isin(ensemble.test, (Test.LESS_F32, Test.AT_MOST_F32))
        narrow = {self.owner[f][0] for f in np.unique(ensemble.feature[casts]).tolist()}
        self.axes = [
            AxisValues(axis, at in narrow and axis.attribute.kind == "real") for at, axis in enumerate(grid.axes)
        ]

    def columns(self, rows: TableRows) -> list[FloatArray]:
        """The rows of a table as a column of values an axis; 0 where a row is outside the space."""
        words = {MISSING: np.nan, OUTSIDE: 0.0}
        absent = {MISSING: float(ABSENT), OUTSIDE: 0.0}
        return [
            np.array(
                [float((words if own.numeric else absent).get(v, v)) for v in rows.values[own.axis.attribute.name]]
            )
            for own in self.axes
        ]

    def draw(self, cells: npt.NDArray[np.integer], rng: np.random.Generator, workers: int = 1) -> list[FloatArray]:
        """One point for every row of refined cells (points x axes): a column of values an axis."""
        own = rng.spawn(len(self.axes))  # each axis its own generator: the same draws on any number of threads

        def column(a: int) -> FloatArray:
            return self.axes[a].draw(cells[:, a], own[a])

        if workers == 1:
            return [column(a) for a in range(len(self.axes))]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(column, range(len(self.axes))))

    def matrix(self, columns: Sequence[FloatArray]) -> FloatArray:
        """The points as the model's columns: codes for categories, NaN for missing values.

        Where the decision threshold depends on a group, one more column has its number (TreeEnsemble.decision).
        """
        ensemble = self.grid.ensemble
        group = self._groups(columns)
        out = np.empty((len(columns[0]), ensemble.n_features + len(group)))
        if group:
            out[:, -1] = group[0]
        for f, (at, column) in enumerate(self.owner):
            values = columns[at]
            if self.axes[at].numeric:
                out[:, f] = values
            else:
                codes = attribute_codes(self.axes[at].axis.attribute, ensemble, feature_of(self.owner, at))[:, column]
                out[:, f] = np.append(codes, np.nan)[values.astype(np.int64)]
        return out

    def _groups(self, columns: Sequence[FloatArray]) -> list[FloatArray]:
        """The number of each point's decision threshold, if there are several."""
        for own, values in zip(self.axes, columns):
            attribute = own.axis.attribute
            numbers = attribute_groups(self.grid.ensemble.decision, attribute)
            if numbers:
                at = np.where(np.isnan(values), -1, values - float(attribute.low)) if own.numeric else values
                return [np.array(numbers, np.float64)[at.astype(np.int64)]]
        return []

    def frame(self, columns: Sequence[FloatArray]) -> pd.DataFrame:
        """The points as the user's table: the columns and values that the model's `predict` is given.

        A model that knows its categories takes the attributes' own values, and so does a pipeline. Otherwise an attribute
        with codes is written as its codes.
        """
        import pandas as pd

        table: dict[str, Any] = {}
        for at, values in enumerate(columns):
            attribute = self.axes[at].axis.attribute
            if attribute.is_numeric:
                whole = attribute.kind == "integer" and not np.isnan(values).any()
                table[attribute.columns[0]] = values.astype(np.int64) if whole else values
            elif attribute.codes is None:
                table[attribute.columns[0]] = _taken(attribute.values, values.astype(np.int64))
            else:
                for c, name in enumerate(attribute.columns):
                    column = np.append(np.array([row[c] for row in attribute.codes]), np.nan)[values.astype(np.int64)]
                    whole = (column == np.floor(column)) & (np.abs(column) <= LARGEST_WHOLE)
                    table[name] = column.astype(np.int64) if whole.all() else column
        return pd.DataFrame(table, copy=False)

    def readable(self, columns: Sequence[FloatArray]) -> pd.DataFrame:
        """The points as one column an attribute, with readable values."""
        import pandas as pd

        return pd.DataFrame(self.readable_columns(columns), copy=False)

    def readable_columns(self, columns: Sequence[FloatArray]) -> dict[str, npt.NDArray[Any]]:
        """`readable`, as arrays: for a few rows a table takes longer to make than to fill."""
        table: dict[str, Any] = {}
        for at, values in enumerate(columns):
            attribute = self.axes[at].axis.attribute
            if attribute.is_numeric:
                whole = attribute.kind == "integer" and not np.isnan(values).any()
                table[attribute.name] = values.astype(np.int64) if whole else values
            else:
                names = [attribute.label_of(i) for i in range(len(attribute.values))]
                table[attribute.name] = _taken(names, values.astype(np.int64))
        return table


def _taken(values: Sequence[Any], at: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """values[at], where -1 is a missing value."""
    if (at >= 0).all() and all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return np.array(values, np.int64)[at]
    objects = np.empty(len(values) + 1, object)
    objects[: len(values)] = values
    objects[-1] = None
    taken: npt.NDArray[Any] = objects[at]
    return taken
