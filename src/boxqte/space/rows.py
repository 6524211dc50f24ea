"""The one reader of rows: what a table says about every attribute of a space, row by row.

The column of an attribute's own name holds its values, by themselves, as text or as labels; where none fits, its codes.
Where only the model's columns are there, they hold codes. Text in a numeric column counts as the number that it is. What
fits nowhere is outside the space, and the row says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import SpaceError
from boxqte.exact import shown
from boxqte.space.attributes import Attribute
from boxqte.space.conditions import Part, holds_in, parse_condition
from boxqte.space.rules import Rule
from boxqte.space.space import Space
from boxqte.space.tables import Table, exact_number

MISSING, OUTSIDE = "missing", "outside"
WORDS = (MISSING, OUTSIDE)

Codes = Sequence[tuple[float, ...]]
Reading = tuple[Any, str]
"""A Fraction, the index of a value, MISSING or OUTSIDE; and what is wrong with it ('' if nothing)."""


class TableRows:
    """The rows of a table as values of the attributes: a Fraction, the index of a value, MISSING or OUTSIDE.

    `codes` are what a model's columns hold for each value of an attribute, where the attribute has no codes of its own.
    """

    def __init__(self, space: Space, table: Table, codes: Mapping[str, Codes] | None = None):
        self.space = space
        self.n = table.n_rows
        self.values: dict[str, list[Any]] = {}
        self._held: dict[tuple[str, Part], npt.NDArray[np.bool_]] = {}
        self.problems: list[tuple[str, str] | None] = [None] * self.n
        """The first attribute of which a row says something outside the space, and what; None for a row inside."""
        for attribute in space:
            own = attribute.codes if attribute.codes is not None else (codes or {}).get(attribute.name)
            readings = _readings(attribute, table, own)
            self.values[attribute.name] = [value for value, _ in readings]
            for row, (_, problem) in enumerate(readings):
                if problem and self.problems[row] is None:
                    self.problems[row] = attribute.name, problem

    @property
    def why(self) -> list[str]:
        """Why each row is not in the space; '' if it is."""
        own = ["" if problem is None else ": ".join(problem) for problem in self.problems]
        return [said or broken for said, broken in zip(own, self.broken)]

    @cached_property
    def broken(self) -> list[str]:
        """The first rule of the space that each row breaks, in words; '' if it breaks none."""
        found = [""] * self.n
        for rule in reversed(self.space.rules):
            for row in np.flatnonzero(self.breaks(rule)).tolist():
                found[row] = f"forbidden by the rule {rule.text!r}"
        return found

    def breaks(self, rule: Rule) -> npt.NDArray[np.bool_]:
        """Which rows a rule forbids; a value outside the space breaks none."""
        found = np.zeros(self.n, bool)
        for box in rule.boxes:
            inside = np.ones(self.n, bool)
            for name, part in box:
                inside &= self._in_part(name, part)
            found |= inside
        return found

    def _in_part(self, name: str, part: Part) -> npt.NDArray[np.bool_]:
        if (name, part) not in self._held:
            attribute, values = self.space[name], self.values[name]
            verdicts = {v: v != OUTSIDE and holds_in(attribute, part, None if v == MISSING else v) for v in set(values)}
            self._held[name, part] = np.array([verdicts[value] for value in values], bool)
        return self._held[name, part]

    def chosen(self, where: str | None) -> npt.NDArray[np.bool_]:
        """Which rows satisfy the condition; a value outside the space satisfies none."""
        found = np.ones(self.n, bool)
        if where is None:
            return found
        for name, part in parse_condition(where, self.space).items():
            found &= self._in_part(name, part)
        if not found.any():
            raise SpaceError(f"condition {where!r}: no row of the table satisfies it")
        return found


def _readings(attribute: Attribute, table: Table, codes: Codes | None) -> list[Reading]:
    """What each row says about one attribute, from the column of its name or from its model columns."""
    if attribute.name in table.names:
        column, read = table.column(attribute.name), _reader(attribute, codes)
    elif all(name in table.names for name in attribute.columns):
        if len(attribute.columns) > 1:
            return _group_readings(attribute, table, codes)
        column = table.column(attribute.columns[0])
        read = _reader(attribute, codes) if attribute.is_numeric or codes is None else _code_reader(codes)
    else:
        wanted = " or ".join(dict.fromkeys([f"'{attribute.name}'", f"'{', '.join(attribute.columns)}'"]))
        names = ", ".join(table.names[:12]) + (", ..." if len(table.names) > 12 else "")
        raise SpaceError(f"the table has no column {wanted} of the space; it has {names}")
    seen: dict[Any, Reading] = {None: _missing(attribute)}
    for value in column.counts:
        seen[value] = read(value)
    return [seen[value] for value in column.values]


def _missing(attribute: Attribute) -> Reading:
    return MISSING, "" if attribute.missing is not None else "missing, which the space does not allow"


def _reader(attribute: Attribute, codes: Codes | None) -> Callable[[Any], Reading]:
    """Reads the values of the column that has the attribute's name."""
    if attribute.is_numeric:
        return lambda value: _number(attribute, value)
    by_value: dict[Any, int] = {value: i for i, value in reversed(list(enumerate(attribute.values)))}
    by_text = {str(value): i for i, value in reversed(list(enumerate(attribute.values)))}
    by_text |= {attribute.label_of(i): i for i in reversed(range(len(attribute.values)))}
    by_code = {} if codes is None or len(attribute.columns) > 1 else _by_code(codes)

    def read(value: Any) -> Reading:
        at = by_value.get(value, by_text.get(str(value)))
        if at is None and not isinstance(value, str):
            at = by_code.get((value,))
        return (at, "") if at is not None else (OUTSIDE, f"{shown(value)} is not one of its values")

    return read


def _code_reader(codes: Codes) -> Callable[[Any], Reading]:
    """Reads the codes in the attribute's one model column."""
    by_code = _by_code(codes)

    def read(value: Any) -> Reading:
        at = by_code.get((value,))
        return (at, "") if at is not None else (OUTSIDE, f"{shown(value)} is none of its codes")

    return read


def _by_code(codes: Codes) -> dict[tuple[Any, ...], int]:
    """The first value that writes each code."""
    return {tuple(code): i for i, code in reversed(list(enumerate(codes)))}


def _number(attribute: Attribute, value: Any) -> Reading:
    try:
        number = exact_number(value, attribute.name)
    except SpaceError:
        return OUTSIDE, f"{shown(value)} is no number"
    if not attribute.low <= number <= attribute.high:
        return OUTSIDE, f"{shown(value)} is outside {float(attribute.low):g} to {float(attribute.high):g}"
    if attribute.kind == "integer" and number.denominator != 1:
        return OUTSIDE, f"{shown(value)} is no integer"
    return number, ""


def _group_readings(attribute: Attribute, table: Table, codes: Codes | None) -> list[Reading]:
    """A one-hot group: the value that writes what the row holds in all its columns."""
    n = len(attribute.columns)
    by_code = _by_code(codes or [tuple(float(i == j) for j in range(n)) for i in range(len(attribute.values))])
    columns = [table.column(name).values for name in attribute.columns]
    found: list[Reading] = []
    for row in zip(*columns):
        at = by_code.get(tuple(None if v is None else _float(v) for v in row))
        if all(value is None for value in row):
            found.append(_missing(attribute))
        elif at is None:
            found.append((OUTSIDE, f"{shown(tuple(row))} is not one of its values"))
        else:
            found.append((at, ""))
    return found


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def as_the_model_reads(value: Fraction, single: bool) -> Fraction:
    """A real number as the library's column holds it. A row may lie exactly on a threshold, so this matters here."""
    return Fraction(float(np.float32(float(value)))) if single else Fraction(float(value))
