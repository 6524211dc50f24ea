"""One-hot groups among the columns of a table: suggested by the columns' names, proved by the rows.

A group is k columns of which exactly one is 1 in every row; where one column was dropped (pandas' `drop_first`), at most
one. Treated as k attributes they would span 2^k inputs, of which nearly all are nonsense (semantics.md, 'Input space').
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
COINCIDENCES = 10  # so many rows with two 1s, expected but not found, leave independence a chance of exp(-10)

Flags = npt.NDArray[np.int8]
ABSENT = -1


@dataclass(frozen=True, eq=False)
class Group:
    """Columns that are one attribute, and the attribute's value in each row as a column of its own."""

    attribute: Attribute
    column: Column
    why: str


@dataclass(frozen=True)
class Lookalike:
    """Columns that may be dummies of one attribute, but are taken one by one."""

    name: str
    columns: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        listed = ", ".join(map(repr, self.columns))
        return (
            f"note: {', '.join(self.columns)} are taken one by one, but {self.why}; if they are one attribute, "
            f"one_hot={{{self.name!r}: [{listed}]}}"
        )


def find_groups(columns: Sequence[Column], taken: Sequence[str] = ()) -> tuple[list[Group], list[Lookalike]]:
    """The largest sets of 0/1 columns with a common `prefix + separator` whose rows all sum to 1, or to at most 1.

    A set counts only if two of its columns at least are 1 somewhere: one constant column proves nothing. Where rows of
    zeros occur, it counts if independent columns with these frequencies would be 1 together in at least COINCIDENCES rows;
    otherwise it is a lookalike. `taken` are names that a group must not have.
    """
    flags = {c.name: flag for c in columns if (flag := _flags(c)) is not None}
    sharing: dict[str, list[str]] = {}
    for name in flags:
        for stem in _stems(name):
            sharing.setdefault(stem, []).append(name)
    # Of the stems that the same columns share, the longest: native_country_*, not native_*.
    stems = {tuple(members): stem for stem, members in sorted(sharing.items(), key=lambda item: len(item[0]))}
    candidates = []
    several = [(members, stem) for members, stem in stems.items() if len(members) >= 2]
    for members, stem in sorted(several, key=lambda item: -len(item[0])):
        matrix = np.stack([flags[name] for name in members])
        if _at_most_one(matrix) and np.count_nonzero((matrix == 1).any(axis=1)) >= 2:
            candidates.append((members, stem, matrix))
    candidates.sort(
        key=lambda candidate: _has_zeros(candidate[2])
    )  # those without rows of zeros are proved: they first
    names = set(taken) | {c.name for c in columns}
    claimed: set[str] = set()
    groups, lookalikes = [], []
    for members, stem, matrix in candidates:
        if not claimed.isdisjoint(members):
            continue
        claimed.update(members)
        name = stem.rstrip(SEPARATORS)
        name = name if name not in names else f"{stem}*"
        values = [member.removeprefix(stem) for member in members]
        what = "exactly one of them 1 in every row"
        if _has_zeros(matrix):
            expected = _expected_coincidences(matrix)
            what = f"never two of them 1 ({expected:.3g} rows if they were independent)"
            if expected < COINCIDENCES:
                lookalikes.append(Lookalike(name, members, f"{stem}* are 0 or 1, {what}"))
                continue
            what += f", rows of zeros are the value {NONE_OF_THEM}"
            values.append(NONE_OF_THEM)
        names.add(name)
        why = f"{len(members)} columns {stem}*, {what}; one_hot=None takes them one by one"
        groups.append(_group(name, members, values, matrix, why))
    return groups, lookalikes


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


def _at_most_one(matrix: Flags) -> bool:
    """Whether every row has at most one 1, or is missing in every column."""
    absent = (matrix == ABSENT).all(axis=0)
    return bool(((matrix >= 0).all(axis=0) & (matrix.sum(axis=0, dtype=np.int64) <= 1) | absent).all())


def _has_zeros(matrix: Flags) -> bool:
    return bool((matrix == 0).all(axis=0).any())


def _expected_coincidences(matrix: Flags) -> float:
    """How many pairs of 1s in a row there would be, on average, if the columns were independent."""
    n = np.count_nonzero((matrix != ABSENT).all(axis=0))
    share = (matrix == 1).sum(axis=1) / n
    return float(n * (share.sum() ** 2 - (share**2).sum()) / 2)


def _group(name: str, members: Sequence[str], values: Sequence[str], matrix: Flags, why: str) -> Group:
    codes = np.eye(len(values), len(members))
    at = np.where((matrix == 1).any(axis=0), matrix.argmax(axis=0), len(members))
    absent = (matrix == ABSENT).all(axis=0)
    held = [None if missing else values[i] for i, missing in zip(at.tolist(), absent.tolist())]
    attribute = Attribute.one_hot(name, members, values=values, codes=codes.tolist())
    return Group(attribute, Column(name, "one-hot", held), why)
