"""Inputs as rows of numbers, one a attribute: what the testers search in, whatever the attributes are.

The published tools know integers between two ends and nothing else. Here an attribute's coordinate is the value itself
(real, integer) or the index of the value (categorical, one-hot); a declared missing value is one more coordinate above
the others. Rows go from coordinates to the user's values (`frame`) or to the model's columns (`matrix`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from boxqte.errors import PropertyError, SpaceError
from boxqte.exact import down, up
from boxqte.space.attributes import Attribute
from boxqte.space.conditions import Part
from boxqte.space.rows import MISSING, TableRows
from boxqte.space.space import Space
from boxqte.space.tables import table_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MAX_SENSITIVE = 1000
REDRAWS = 30


class Coordinates:
    """The coordinates of a space, with one sensitive attribute.

    Examples
    --------
    >>> from boxqte.examples import loan_space
    >>> at = Coordinates(loan_space(), "race")
    >>> at.sensitive, at.values.tolist(), at.integral.tolist()
    (1, [0.0, 1.0, 2.0, 3.0, 4.0], [False, True, True])
    >>> at.frame(np.array([[500.0, 2.0, 40.0]])).to_dict("records")
    [{'income': 500.0, 'race': 2, 'age': 40}]
    """

    def __init__(self, space: Space, sensitive: str):
        if not isinstance(sensitive, str):
            raise PropertyError(f"sensitive: a tester takes the name of one attribute, found {sensitive!r}")
        if sensitive not in space.names:
            raise PropertyError(
                f"sensitive: '{sensitive}' is not an attribute; attributes are {', '.join(space.names)}"
            )
        self.space = space
        self.sensitive = space.names.index(sensitive)
        self.others = np.array([i for i in range(len(space)) if i != self.sensitive], np.int64)
        self.integral: BoolArray = np.array([a.kind != "real" for a in space])
        self.low: FloatArray = np.array([_ends(a)[0] for a in space])
        self._present: FloatArray = np.array([_ends(a)[1] for a in space])  # the highest that is not the missing value
        self._absent: FloatArray = np.array([_absent(a) for a in space])
        self.high: FloatArray = np.where(np.isnan(self._absent), self._present, self._absent)
        size = space[sensitive].size
        if size is None or size > MAX_SENSITIVE:
            raise PropertyError(
                f"sensitive: '{sensitive}' has {'infinitely many' if size is None else size} values; a tester tries them "
                f"all, so it takes an attribute with at most {MAX_SENSITIVE}"
            )
        self.values: FloatArray = self.low[self.sensitive] + np.arange(size)

    def __len__(self) -> int:
        return len(self.space)

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Random inputs, each attribute by its own mass: uniform unless the space says otherwise.

        What the space's rules forbid is drawn anew, some times; what is still forbidden then is never recorded as found.
        """
        x = self._drawn(rng, n)
        for _ in range(REDRAWS if self.space.rules else 0):
            again = np.flatnonzero(~self.allowed(x))
            if not len(again):
                break
            x[again] = self._drawn(rng, len(again))
        return x

    def _drawn(self, rng: np.random.Generator, n: int) -> FloatArray:
        return np.column_stack([_draw(a, rng, n, *ends) for a, *ends in zip(self.space, self.low, self._present,
                                                                           self._absent)])  # fmt: skip

    def allowed(self, x: FloatArray) -> BoolArray:
        """Which rows no rule of the space forbids."""
        found = np.ones(len(x), bool)
        for box in (box for rule in self.space.rules for box in rule.boxes):
            forbidden = np.ones(len(x), bool)
            for name, part in box:
                i = self.space.names.index(name)
                forbidden &= self._in_part(i, part, x[:, i])
            found &= ~forbidden
        return found

    def _in_part(self, i: int, part: Part, column: FloatArray) -> BoolArray:
        a, absent = self.space.attributes[i], column == self._absent[i]
        if not a.is_numeric:
            held = np.array([*(v in part.values for v in range(len(a.values))), part.missing])
            return held[np.clip(column, 0, len(held) - 1).astype(np.int64)]
        inside = np.zeros(len(column), bool)
        for low, high in part.spans:
            if a.kind == "integer" or not a.range:
                inside |= (column >= float(low)) & (column < float(high))
            else:  # a double lies above a rational iff it is at least the next double
                inside |= (column >= up(low)) & (column <= down(high))
        for edges, has in ((part.lacks, False), (part.points, True)):
            for edge in edges:
                if Fraction(float(edge)) == edge:
                    inside[column == float(edge)] = has
        return np.where(absent, part.missing, inside)

    def draw_box(self, rng: np.random.Generator, low: FloatArray, high: FloatArray) -> FloatArray:
        """One input from each box of closed intervals (rows of `low` and `high`), all points of a box alike."""
        u = rng.random(low.shape)
        whole = np.minimum(np.floor(low + u * (high - low + 1)), high)
        return self.snap(np.where(self.integral, whole, np.clip(low + u * (high - low), low, high)))

    def snap(self, x: FloatArray) -> FloatArray:
        """The nearest inputs of the space: whole numbers where they are, ends where a row is beyond them."""
        near = np.clip(np.where(self.integral, np.rint(x), x), self.low, self.high)
        return np.where(near > self._present, self._absent, near)  # between the last value and the missing one

    def inside(self, x: FloatArray) -> BoolArray:
        """Which rows are inputs of the space."""
        inside: BoolArray = (self.snap(x) == x).all(axis=1)
        return inside

    def with_sensitive(self, x: FloatArray, value: FloatArray | float) -> FloatArray:
        """The same rows with another sensitive value."""
        changed = x.copy()
        changed[:, self.sensitive] = value
        return changed

    def keys(self, x: FloatArray) -> list[Any]:
        """A key a row that is equal for rows that differ in the sensitive attribute at most."""
        rest = np.ascontiguousarray(x[:, self.others] + 0.0)  # -0 and 0 are one number
        if self._strides is None:
            return [row.tobytes() for row in rest]
        keys: list[Any] = ((rest - self.low[self.others]).astype(np.int64) @ self._strides).tolist()
        for i in np.flatnonzero(~self.inside(x)):  # a faithful variant may leave the space: no number is left for it
            keys[i] = rest[i].tobytes()
        return keys

    @cached_property
    def _strides(self) -> IntArray | None:
        sizes = [self.space.attributes[i].size for i in self.others]
        if any(size is None for size in sizes):
            return None
        strides, product = [], 1
        for size in sizes:
            strides.append(product)
            product *= size or 1
        return np.array(strides, np.int64) if product < 2**63 else None

    def frame(self, x: FloatArray) -> pd.DataFrame:
        """The rows as a table of the user's values."""
        return pd.DataFrame({a.name: self._values_of(i, x[:, i]) for i, a in enumerate(self.space)})

    def _values_of(self, i: int, column: FloatArray) -> npt.NDArray[Any]:
        attribute = self.space.attributes[i]
        absent = column == self._absent[i]
        if attribute.is_numeric:
            if attribute.kind == "integer" and attribute.missing is None:
                return column.astype(np.int64)
            return np.where(absent, np.nan, column)
        values: npt.NDArray[Any] = pd.Series(list(attribute.values)).to_numpy()
        if absent.any():
            values = np.array([*attribute.values, None], dtype=object)
        found: npt.NDArray[Any] = values[column.astype(np.int64)]
        return found

    def matrix(self, x: FloatArray, codes: Mapping[int, FloatArray]) -> FloatArray:
        """The rows in model columns (`space.columns`); `codes[i]` is what each value of attribute i writes."""
        columns: list[FloatArray] = []
        for i in range(len(self)):
            column = x[:, i]
            if i not in codes:
                columns.append(np.where(column == self._absent[i], np.nan, column)[:, None])
            else:
                columns.append(codes[i][column.astype(np.int64)])
        return np.concatenate(columns, axis=1)

    def from_columns(self, columns: FloatArray) -> FloatArray:
        """Rows in which only NaN stands for a missing value instead of its coordinate: what `matrix(x, {})` gives."""
        return np.where(np.isnan(columns), self._absent, columns)

    def read(self, frame: pd.DataFrame) -> FloatArray:
        """Rows of the user's table as coordinates; a value outside the space is refused."""
        rows = TableRows(self.space, table_of(frame))
        for row, problem in enumerate(rows.problems):
            if problem is not None:
                raise SpaceError(f"data, attribute '{problem[0]}', row {row}: {problem[1]}")
        return np.column_stack([self._read(i, rows) for i in range(len(self))])

    def _read(self, i: int, rows: TableRows) -> FloatArray:
        a = self.space.attributes[i]
        words = {MISSING: self._absent[i]}
        out = np.array([float(words.get(v, v)) for v in rows.values[a.name]])
        if a.is_numeric:  # the double of a typed end may lie just outside of it: it means the end
            out = np.where(out == float(a.low), self.low[i], np.where(out == float(a.high), self._present[i], out))
        return out


def _ends(a: Attribute) -> tuple[float, float]:
    """The coordinates of the lowest and the highest present value; a real end that is no double is rounded inward."""
    if a.is_numeric:
        return up(a.low), down(a.high)
    return 0.0, float(len(a.values) - 1)


def _absent(a: Attribute) -> float:
    """The coordinate of the missing value: NaN if there is none."""
    if a.missing is None:
        return float("nan")
    high = _ends(a)[1]
    return high + 1 if a.kind != "real" else high + max(float(a.range), 1.0)


def _draw(a: Attribute, rng: np.random.Generator, n: int, low: float, high: float, absent: float) -> FloatArray:
    if a.distribution is not None:
        ends = sorted({a.low, a.end, *(k for k in a.knots if a.low < k < a.end)})
        below = [a.distribution.below(e) for e in ends]
        at = _weighted(tuple(two - one for one, two in pairwise(below)), rng, n)
        edges = np.array([float(e) for e in ends])
        x = a.distribution.draw(edges[at], edges[at + 1], rng)
    elif a.kind == "integer":
        if a.histogram is None:
            x = rng.integers(int(low), int(high) + 1, n).astype(np.float64)
        else:
            edges = np.array([float(e) for e in a.histogram.edges])
            at = _weighted(a.histogram.weights, rng, n)
            x = np.floor(edges[at] + rng.random(n) * (edges[at + 1] - edges[at]))
    elif a.kind == "real":
        edges, at = np.array([low, high]), np.zeros(n, np.int64)
        if a.histogram is not None:
            edges = np.array([float(e) for e in a.histogram.edges])
            at = _weighted(a.histogram.weights, rng, n)
        x = edges[at] + rng.random(n) * (edges[at + 1] - edges[at])
    elif a.weights is None:
        x = rng.integers(0, len(a.values), n).astype(np.float64)
    else:
        x = _weighted(a.weights, rng, n).astype(np.float64)
    x = np.clip(x, low, high)
    return x if a.missing is None else np.where(rng.random(n) < float(a.missing), absent, x)


def _weighted(weights: tuple[Fraction, ...], rng: np.random.Generator, n: int) -> IntArray:
    total = np.cumsum([float(w) for w in weights])
    found: IntArray = np.searchsorted(total, rng.random(n) * total[-1], side="right").astype(np.int64)
    return found
