"""Rules that a table suggests: values of two attributes that never occur together, although many rows were expected to.

They are proposals: nothing is forbidden unless the user takes one. A table without a 20-year-old surgeon does not prove that
there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.basics.checks import whole
from boxqte.errors import SpaceError
from boxqte.space.attributes import Attribute
from boxqte.space.conditions import shown_number
from boxqte.space.rows import WORDS, TableRows
from boxqte.space.space import Space, read_space
from boxqte.space.tables import table_of

LEAST_EXPECTED = 20  # rows; if the two were independent, none at all would be seen once in e^20 times
MOST = 20
BINS = 5  # of a numeric attribute, with about as many rows each


@dataclass(frozen=True)
class Proposal:
    """A rule, and how many rows would break it if the two attributes were independent; none does."""

    rule: str
    expected: float
    rows: int
    """of the table, that have both attributes"""

    def __str__(self) -> str:
        return f"{self.rule}  (0 of {self.rows:,} rows; {self.expected:,.0f} expected)"


def propose_rules(space: Space, frame: Any, *, at_most: int = MOST) -> list[Proposal]:
    """Pairs of values that never occur together in a table, although the product of their frequencies expects many rows.

    Values of finite attributes are taken as they are, and numeric ones by their smallest and largest number in a group, the
    groups being values, or fifths of another numeric attribute. The clearest come first.

    Parameters
    ----------
    space
        The space that the rules would be for.
    frame
        A pandas, polars or pyarrow table with a column for each attribute.
    at_most
        How many to return.

    Examples
    --------
    >>> from boxqte.space.attributes import Attribute
    >>> space = Space([Attribute.integer("age", 0, 99), Attribute.categorical("school", ["none", "PhD"])])
    >>> people = {"age": [10, 30, 40, 50] * 50, "school": ["none", "none", "PhD", "PhD"] * 50}
    >>> [proposal.rule for proposal in propose_rules(space, people)]
    ["not (school == 'PhD' and age < 40)", "not (school == 'none' and age > 30)"]
    """
    space, at_most = read_space(space), whole(at_most, "at_most", 0, error=SpaceError)
    rows = TableRows(space, table_of(frame))
    columns = {attribute.name: _column(rows.values[attribute.name]) for attribute in space}
    found: list[Proposal] = []
    for one, other in combinations(space.attributes, 2):
        if one.is_numeric and not other.is_numeric:
            one, other = other, one
        a, b = columns[one.name], columns[other.name]
        known = (a.at >= 0) & (b.at >= 0)
        if known.any():
            a, b = a.of(known), b.of(known)
            found += _tails(one, other, a, b) if other.is_numeric else _values(one, other, a, b)
    found.sort(key=lambda proposal: (-proposal.expected, proposal.rule))
    return found[:at_most]


@dataclass(frozen=True, eq=False)
class _Column:
    """An attribute's values in order, and which of them each row has; -1 for those that are missing or outside."""

    values: Sequence[Any]
    at: npt.NDArray[np.int64]

    def of(self, rows: npt.NDArray[np.bool_]) -> _Column:
        return _Column(self.values, self.at[rows])

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.at, minlength=len(self.values))


def _column(values: Sequence[Any]) -> _Column:
    known = sorted({value for value in values if value not in WORDS})
    place = {value: i for i, value in enumerate(known)}
    return _Column(known, np.array([place.get(value, -1) for value in values], np.int64))


def _values(one: Attribute, other: Attribute, a: _Column, b: _Column) -> Iterator[Proposal]:
    """Two finite attributes: with each value of the first, those of the second that never occur."""
    n, ones, others = len(a.at), a.counts.tolist(), b.counts.tolist()
    seen = np.bincount(a.at * len(b.values) + b.at, minlength=len(a.values) * len(b.values))
    for i, count in enumerate(ones):
        expected = {j: count * m / n for j, m in enumerate(others) if not seen[i * len(others) + j]}
        absent = {j: rows for j, rows in expected.items() if rows >= LEAST_EXPECTED}
        if absent:
            listed = ", ".join(_value(other, b.values[j]) for j in absent)
            words = f"== {listed}" if len(absent) == 1 else f"in {{{listed}}}"
            rule = f"not ({_name(one)} == {_value(one, a.values[i])} and {_name(other)} {words})"
            yield Proposal(rule, sum(absent.values()), n)


def _tails(one: Attribute, other: Attribute, a: _Column, b: _Column) -> Iterator[Proposal]:
    """The second attribute is numeric: what lies beyond its numbers in each group of the first."""
    n, up_to = len(b.at), np.cumsum(b.counts)
    for words, group in _groups(one, a):
        inside = b.at[group]
        low, high = int(inside.min()), int(inside.max())
        below, above = int(up_to[low - 1]) if low else 0, n - int(up_to[high])
        for side, limit, beyond in (("<", low, below), (">", high, above)):
            expected = len(inside) * beyond / n
            if expected >= LEAST_EXPECTED:
                number = shown_number(b.values[limit])
                yield Proposal(f"not ({words} and {_name(other)} {side} {number})", expected, n)


def _groups(one: Attribute, a: _Column) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """The rows by value of a finite attribute, or by fifths of a numeric one."""
    if not one.is_numeric:
        for i in np.flatnonzero(a.counts).tolist():
            yield f"{_name(one)} == {_value(one, a.values[i])}", a.at == i
        return
    ordered = np.sort(a.at)
    edges = np.unique(ordered[[len(ordered) * i // BINS for i in range(BINS)]]).tolist()
    for i, low in enumerate(edges):
        high = edges[i + 1] if i + 1 < len(edges) else None
        ends = [f"{_name(one)} >= {shown_number(a.values[low])}"] * (i > 0)
        ends += [f"{_name(one)} < {shown_number(a.values[high])}"] if high is not None else []
        if ends:
            yield " and ".join(ends), (a.at >= low) & (a.at < (len(a.values) if high is None else high))


def _name(attribute: Attribute) -> str:
    return attribute.name if attribute.name.isidentifier() else f"`{attribute.name}`"


def _value(attribute: Attribute, index: int) -> str:
    return repr(attribute.values[index])
