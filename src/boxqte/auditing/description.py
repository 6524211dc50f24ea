"""What a reader must know of the data beside an audit: which table it was, and how good the model is on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from boxqte.answers.values import GridValues
from boxqte.errors import BoxQTEError
from boxqte.models.importers import ImportedModel
from boxqte.questions.building import build_any_grid
from boxqte.questions.properties import Fairness
from boxqte.questions.row_cells import read_rows
from boxqte.repairing.quality import auc, labels_of
from boxqte.space.space import Space
from boxqte.space.tables import Table, table_of

MOST_NAMED = 20


@dataclass(frozen=True)
class DataDescription:
    """A table, and how the model does on its rows; None where that cannot be said."""

    source: str
    """The file, or the type of the table."""
    rows: int
    columns: int
    fingerprint: str
    """SHA-256 of the columns' names and values."""
    outside: int | None = None
    """Rows that do not lie in the space."""
    missing: tuple[tuple[str, int], ...] = ()
    """The columns with missing values, and how many; those with the most."""
    label: str | None = None
    positive: str | None = None
    """What class 1 is called."""
    positive_rate: float | None = None
    """The share of the rows whose label is class 1."""
    decided_rate: float | None = None
    """The share of the rows inside the space that get class 1."""
    accuracy: float | None = None
    auc: float | None = None
    """The area under the ROC curve of the model's margin."""

    def to_json(self) -> dict[str, Any]:
        """The description as a JSON object."""
        return asdict(self)


def describe(
    imported: ImportedModel, space: Space, data: Any, sensitive: str, label: str | None, source: str
) -> DataDescription:
    """The description of a table; accuracy and AUC are of the rows that lie in the space."""
    table = table_of(data)
    missing = sorted(((name, int(own.is_null().sum())) for name, own in _columns(table)), key=lambda one: -one[1])
    known = DataDescription(
        source=source or f"{type(data).__module__.partition('.')[0]} table",
        rows=table.n_rows,
        columns=len(table.names),
        fingerprint=_fingerprint(table),
        missing=tuple((name, n) for name, n in missing[:MOST_NAMED] if n),
        label=label if label in table.names else None,
    )
    if not imported.ensemble.is_binary or not imported.ensemble.predicts_classes:
        return known
    try:
        return _with_decisions(known, imported, space, table, sensitive)
    except BoxQTEError:  # the table lacks columns of the model, and the questions about rows have said so
        return known


def _with_decisions(
    known: DataDescription, imported: ImportedModel, space: Space, table: Table, sensitive: str
) -> DataDescription:
    grid = build_any_grid(imported.ensemble, space, Fairness(sensitive))
    read = read_rows(grid, table)
    at = np.flatnonzero(read.inside)
    values = GridValues(grid)
    rows = values.matrix([column[at] for column in values.columns(read.rows)])
    ensemble = imported.ensemble
    known = replace(known, outside=len(read.inside) - len(at), positive=str(ensemble.classes[1]))
    if not len(at) or imported.native is None:
        return known
    decided = np.asarray(imported.native(rows)) == 1
    known = replace(known, decided_rate=float(decided.mean()))
    if known.label is None:
        return known
    try:
        truth = labels_of(table, known.label, ensemble)[at]
    except BoxQTEError:  # a label that is no class
        return known
    return replace(
        known,
        positive_rate=float(truth.mean()),
        accuracy=float((decided == truth).mean()),
        auc=auc(ensemble.margin(rows)[:, 0], truth),
    )


def _fingerprint(table: Table) -> str:
    digest = hashlib.sha256(repr(table.names).encode())
    for _, column in _columns(table):
        digest.update("\0".join(map(str, column.to_list())).encode())
    return digest.hexdigest()


def _columns(table: Table) -> Iterator[tuple[str, Any]]:
    return zip(table.names, (table.frame.get_column(name) for name in table.frame.columns))
