"""The check behind every reported IDI, independent of the testers: in domain, and flips under another sensitive value.

It starts from the reported tables of the user's values, reads the space's own definition of each attribute, writes the
model's columns in its own way, and asks the model again.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from boxqte.space.attributes import Attribute
from boxqte.space.rows import TableRows
from boxqte.space.space import Space
from boxqte.space.tables import table_of
from boxqte.testers.blackbox import BlackBox
from boxqte.testers.coordinates import BoolArray, FloatArray

CHUNK = 100_000


def verify(box: BlackBox, space: Space, sensitive: str, idis: pd.DataFrame, partners: pd.DataFrame) -> BoolArray:
    """Which rows are IDIs: both inputs lie in the space and break no rule of it, differ in the sensitive attribute alone, and
    differ in label."""
    good = np.ones(len(idis), bool)
    for attribute in space:
        one, two = idis[attribute.name], partners[attribute.name]
        good &= _in_domain(attribute, one) & _in_domain(attribute, two)
        same = ((one == two) | (one.isna() & two.isna())).to_numpy()
        good &= ~same if attribute.name == sensitive else same
    if space.rules and len(idis):
        for table in (idis, partners):
            broken = TableRows(space, table_of(table)).broken
            good &= np.array([not words for words in broken], bool)
    at = np.flatnonzero(good)
    for start in range(0, len(at), CHUNK):
        rows = at[start : start + CHUNK]
        mine, other = (box.ask(_model_rows(box, space, table.iloc[rows])) for table in (idis, partners))
        good[rows] = mine != other
    return good


def _in_domain(a: Attribute, column: pd.Series[Any]) -> BoolArray:
    distinct = column.unique().tolist()
    accepted = [value for value in distinct if _has(a, value)]
    inside: BoolArray = (column.isin(accepted) | (column.isna() & (a.missing is not None))).to_numpy()
    return inside


def _has(a: Attribute, value: Any) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return a.missing is not None
    if not a.is_numeric:
        return value in a.values
    exact = Fraction(value)
    return a.low <= exact <= a.high and (a.kind == "real" or exact.denominator == 1)


def _model_rows(box: BlackBox, space: Space, table: pd.DataFrame) -> FloatArray | pd.DataFrame:
    """The rows as the black box takes them."""
    if box.input == "frame":
        return table.reset_index(drop=True)
    columns: list[FloatArray] = []
    for i, a in enumerate(space):
        column = table[a.name]
        if i not in box.codes:
            columns.append(column.to_numpy(np.float64)[:, None])
            continue
        of_value = dict(zip(a.values, box.codes[i]))
        number, distinct = pd.factorize(column, use_na_sentinel=True)  # -1, the last row, is a missing value
        codes = [of_value[value] for value in distinct.tolist()]
        columns.append(np.array([*codes, np.full(len(a.columns), np.nan)])[number])
    return np.concatenate(columns, axis=1)
