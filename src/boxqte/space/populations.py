"""Masses that follow a table: the product of its columns' frequencies, or that of a group of its rows.

Which question each answers is in docs/populations.md. The space keeps its domains: x' may be any input.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from boxqte.errors import SpaceError
from boxqte.space.frequencies import with_data_mass
from boxqte.space.rows import MISSING, OUTSIDE, TableRows
from boxqte.space.space import Space, read_space
from boxqte.space.tables import table_of


@dataclass(frozen=True)
class Population:
    """A space whose masses are those of a table, and how they were taken."""

    space: Space
    rows: int
    """rows of the group"""
    notes: tuple[str, ...]


def population(space: Space, frame: Any, *, where: str | None = None) -> Population:
    """The space with the masses of a table: each attribute's own frequencies among the rows, or those of a group.

    Parameters
    ----------
    space
        The space; its domains stay as they are.
    frame
        A pandas, polars or pyarrow table with a column for each attribute (or for each model column of a one-hot group).
    where
        A condition that rows must satisfy to count, such as `"sex == 'f' and age >= 60"`.

    Examples
    --------
    >>> from boxqte.space.attributes import Attribute
    >>> space = Space([Attribute.categorical("sex", ["f", "m"]), Attribute.integer("age", 18, 20)])
    >>> people = {"sex": ["f", "m", "m", "m"], "age": [18, 19, 19, 20]}
    >>> population(space, people).space["sex"].value_masses()
    [Fraction(1, 4), Fraction(3, 4)]
    >>> population(space, people, where="sex == 'm'").rows
    3
    """
    space = read_space(space)
    if space.mass is not None:
        raise SpaceError("population: the space counts cells; leave out its mass 'cells', or the population")
    rows = TableRows(space, table_of(frame))
    chosen = rows.chosen(where)
    notes = []
    broken = np.array([bool(words) for words in rows.broken], bool) & chosen
    if broken.any():
        notes.append(f"rows that a rule forbids, left out: {int(broken.sum())}")
        chosen &= ~broken
        if not chosen.any():
            raise SpaceError("population: the rules forbid every row of the table")
    own = []
    for attribute in space:
        values = [v for v, keep in zip(rows.values[attribute.name], chosen) if keep]
        counts = Counter(values)
        absent, outside = counts.pop(MISSING, 0), counts.pop(OUTSIDE, 0)
        if not attribute.is_numeric:
            counts = Counter({attribute.values[index]: n for index, n in counts.items()})
        changed, how = with_data_mass(attribute, counts)
        if attribute.missing is not None:
            changed = replace(changed, missing=Fraction(absent, absent + counts.total()))
        elif absent:
            how += f"; missing values, which are not in the domain, left out: {absent}"
        if outside:
            how += f"; rows outside the domain, left out: {outside}"
        notes.append(f"{attribute.name}: {how}")
        own.append(changed)
    return Population(space.with_attributes(own), int(np.count_nonzero(chosen)), tuple(notes))
