"""Rows of a table as cells of a grid."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import SpaceError
from boxqte.models.ensemble import Test
from boxqte.questions.building import attribute_codes, feature_of, match_columns
from boxqte.questions.decisions import attribute_groups
from boxqte.questions.grid import AnyGrid
from boxqte.space.rows import MISSING, OUTSIDE, WORDS, TableRows, as_the_model_reads
from boxqte.space.tables import Table


@dataclass(frozen=True, eq=False)
class RowCells:
    """The refined cell of every row on every axis (0 where a row is not inside), and which rows lie in the space."""

    rows: TableRows
    cells: npt.NDArray[np.int64]
    inside: npt.NDArray[np.bool_]


def read_rows(grid: AnyGrid, table: Table) -> RowCells:
    """The rows of a table as the grid's model would be given them."""
    ensemble, space = grid.ensemble, grid.space
    owner = match_columns(ensemble, space, grid.property.sensitive)
    codes = {
        attribute.name: list(map(tuple, attribute_codes(attribute, ensemble, feature_of(owner, i)).tolist()))
        for i, attribute in enumerate(space)
        if not attribute.is_numeric and feature_of(owner, i) is not None
    }
    for name, own in codes.items():
        pairs = {*zip(own, attribute_groups(ensemble.decision, space[name]))}
        if name not in table.names and len(pairs) > len({code for code, _ in pairs}):
            raise SpaceError(
                f"threshold: values of '{name}' with different thresholds have the same codes; give the table a column "
                f"'{name}' with the values themselves"
            )
    rows = TableRows(space, table, codes)
    casts = np.isin(ensemble.test, (Test.LESS_F32, Test.AT_MOST_F32))
    narrow = {owner[f][0] for f in np.unique(ensemble.feature[casts]).tolist()}
    cells = np.zeros((rows.n, len(grid.axes)), np.int64)
    ruled = [any(a == axis for one in grid.forbidden for axis, _ in one.masks) for a in range(len(grid.axes))]
    inside = np.array([problem is None and not broken for problem, broken in zip(rows.problems, rows.broken)], bool)
    for a, axis in enumerate(grid.axes):
        attribute, values = axis.attribute, rows.values[axis.attribute.name]
        place: dict[Any, int] = {
            MISSING: next((i for i, cell in enumerate(axis.refined) if cell.missing), -1),
            OUTSIDE: -1,
        }
        if attribute.is_numeric:
            edges = [cell.low for cell in axis.refined if cell.low is not None]
            for value in {*values} - {*WORDS}:  # each once: comparing fractions with words takes long
                seen = as_the_model_reads(value, a in narrow) if attribute.kind == "real" else value
                place[value] = max(bisect_right(edges, (seen, 0)) - 1, 0)
                if ruled[a] and seen != value:  # rules are about the number as it was written
                    exact = max(bisect_right(edges, (value, 0)) - 1, 0)
                    place[value] = exact if _no_test_between(grid, a, place[value], exact) else place[value]
        else:
            place |= {v: i for i, cell in enumerate(axis.refined) for v in cell.values}
        cells[:, a] = [place[v] for v in values]
    inside &= (cells >= 0).all(axis=1)
    return RowCells(rows, np.maximum(cells, 0), inside)


def _no_test_between(grid: AnyGrid, a: int, one: int, other: int) -> bool:
    """Whether no test of the trees tells two refined cells of an axis apart."""
    base = grid.axes[a].base
    return all(cut.mask >> base[one] & 1 == cut.mask >> base[other] & 1 for cut in grid.cuts if cut.axis == a)
