"""One-hot groups among the columns of a table: suggested by the columns' names, proved by the rows.

A group is k columns of which exactly one is 1 in every row. Treated as k attributes they would span 2^k inputs, of
which all but k are nonsense (semantics.md, 'Input space').
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boxqte.errors import SpaceError
from boxqte.space.attributes import Attribute
from boxqte.space.tables import Column

SEPARATORS = "_=.:"  # race_white, race=white, race__white, race.white, race:white
NONE_OF_THEM = "(none)"

Flags = npt.NDArray[np.int8]
ABSENT = -1


@dataclass(frozen=True, eq=False)
class Group:
    """Columns that are one attribute, and the attribute's value in each row as a column of its own."""

    attribute: Attribute
    column: Column
    why: str


def find_groups(columns: Sequence[Column], taken: Sequence[str] = ()) -> list[Group]:
    """The largest sets of 0/1 columns with a common `prefix + separator` whose rows all sum to 1.

    A set counts only if two of its columns at least are 1 somewhere: one constant column proves nothing.
    `taken` are names that a group must not have.
    """
    flags = {c.name: flag for c in columns if (flag := _flags(c)) is not None}
    sharing: dict[str, list[str]] = {}
    for name in flags:
        for stem in _stems(name):
            sharing.setdefault(stem, []).append(name)
    # Of the stems that the same columns share, the longest: native_country_*, not native_*.
    stems = {tuple(members): stem for stem, members in sorted(sharing.items(), key=lambda item: len(item[0]))}
    found: dict[tuple[str, ...], str] = {}
    claimed: set[str] = set()
    for members, stem in sorted(stems.items(), key=lambda item: -len(item[0])):
        if len(members) >= 2 and claimed.isdisjoint(members):
            matrix = np.stack([flags[name] for name in members])
            if _exactly_one(matrix) and np.count_nonzero((matrix == 1).any(axis=1)) >= 2:
                found[members] = stem
                claimed.update(members)
    names = set(taken) | {c.name for c in columns}
    groups = []
    for members, stem in found.items():
        name = stem.rstrip(SEPARATORS)
        name = name if name not in names else f"{stem}*"
        names.add(name)
        values = [member.removeprefix(stem) for member in members]
        why = f"{len(members)} columns {stem}*, exactly one of them 1 in every row; one_hot=None takes them one by one"
        groups.append(_group(name, members, values, np.stack([flags[m] for m in members]), why))
    return groups


def declared_group(name: str, columns: Sequence[Column]) -> Group:
    """A group that the user declares: every column 0/1, at most one of them 1 in a row.

    Rows of zeros (`drop_first`) are one more value.
    """
    if len(columns) < 2:
        raise SpaceError(f"one_hot['{name}']: expected at least 2 columns, found {len(columns)}")
    flags = []
    for column in columns:
        flag = _flags(column)
        if flag is None:
            other = next((v for v in column.counts if v not in (0, 1)), "no value")
            raise SpaceError(f"one_hot['{name}']: column '{column.name}' must be 0 or 1 in every row, found {other!r}")
        flags.append(flag)
    matrix = np.stack(flags)
    absent = (matrix == ABSENT).any(axis=0)
    wrong = np.flatnonzero(np.where(absent, (matrix != ABSENT).any(axis=0), matrix.sum(axis=0) > 1))
    if len(wrong):
        row = int(wrong[0])
        held = ", ".join(f"{c.name}={c.values[row]}" for c in columns if c.values[row] != 0)
        raise SpaceError(f"one_hot['{name}'], row {row}: expected one 1 at most, found {held}")
    members = tuple(c.name for c in columns)
    stem = max(set.intersection(*(set(_stems(member)) for member in members)), key=len, default="")
    values = [member.removeprefix(stem) for member in members]
    why = f"one-hot group of {len(members)} columns (one_hot)"
    if (matrix.sum(axis=0) == 0).any():
        return _group(
            name, members, [*values, NONE_OF_THEM], matrix, f"{why}; rows of zeros are the value {NONE_OF_THEM}"
        )
    return _group(name, members, values, matrix, why)


def _flags(column: Column) -> Flags | None:
    """The column as 0, 1 and ABSENT; None if it holds anything else, or nothing at all."""
    if column.storage not in ("bool", "integer", "float") or not column.counts or not set(column.counts) <= {0, 1}:
        return None
    return np.array([ABSENT if v is None else int(v) for v in column.values], np.int8)


def _stems(name: str) -> list[str]:
    """The beginnings of a name that end in a separator, and that a value follows."""
    return [
        name[: i + 1] for i, letter in enumerate(name[:-1]) if letter in SEPARATORS and name[: i + 1].rstrip(SEPARATORS)
    ]


def _exactly_one(matrix: Flags) -> bool:
    """Whether every row has exactly one 1, or is missing in every column."""
    absent = (matrix == ABSENT).all(axis=0)
    return bool(((matrix >= 0).all(axis=0) & (matrix.sum(axis=0) == 1) | absent).all())


def _group(name: str, members: Sequence[str], values: Sequence[str], matrix: Flags, why: str) -> Group:
    codes = np.eye(len(values), len(members))
    at = np.where((matrix == 1).any(axis=0), matrix.argmax(axis=0), len(members))
    absent = (matrix == ABSENT).all(axis=0)
    held = [None if missing else values[i] for i, missing in zip(at.tolist(), absent.tolist())]
    attribute = Attribute.one_hot(name, members, values=values, codes=codes.tolist())
    return Group(attribute, Column(name, "one-hot", held), why)
