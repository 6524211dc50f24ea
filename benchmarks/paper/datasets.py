"""The paper's five data sets: from a folder, or from OpenML with the documented recoding.

A folder holds NAME.csv (integer codes, the label in the last column) and NAME.schema.json (the space).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.paper.recoding import SOURCES, digest, recoded, space_of

from boxqte.errors import BoxQTEError, SpaceError
from boxqte.space.space import Space

if TYPE_CHECKING:
    import pandas as pd

DATASETS = ("adult", "bank", "compas", "credit", "lsac")
TITLES = {"adult": "Adult", "bank": "Bank", "compas": "COMPAS", "credit": "Credit", "lsac": "LSAC"}
BESIDE = Path("..") / "shared" / "data"

HOW_TO_GET = {
    "adult": "UCI Adult, recoded as in benchmarks.paper.recoding (OpenML data set 1590)",
    "bank": "UCI Bank Marketing, recoded as in benchmarks.paper.recoding (OpenML data set 1461)",
    "compas": "ProPublica's compas-scores-two-years.csv without the 307 rows that have no jail dates: sex, age, race, "
    "priors_count, c_charge_degree, length_of_stay (days from c_jail_in to c_jail_out), label two_year_recid",
    "credit": "UCI German Credit with 300 good and 300 bad rows, in the coding of the public repository toda-lab/Vbt-X",
    "lsac": "the LSAC bar passage study from the public repository GuilhermePelegrina/Datasets",
}


class DataError(BoxQTEError):
    """A data set is not there, or is not what it should be."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """A table of inputs, their labels (0 or 1) and the space that they come from."""

    name: str
    inputs: pd.DataFrame
    labels: pd.Series[Any]
    space: Space
    source: str

    def narrowed(self, attributes: int, keep: str | None = None) -> DataSet:
        """The same rows with so many attributes: the one to keep, and the first of the others, in their order."""
        if not 1 <= attributes <= len(self.space):
            raise DataError(f"{self.name}: has {len(self.space)} attributes, asked for {attributes}")
        first = [name for name in self.space.names if name != keep][: attributes - (keep is not None)]
        kept = [a for a in self.space if a.name in (*first, keep)]
        space = Space(kept, label=self.space.label, sensitive=[s for s in self.space.sensitive if s in (*first, keep)])
        return DataSet(self.name, self.inputs[list(space.columns)], self.labels, space, self.source)


def data_folder(data_dir: str | Path | None = None) -> Path | None:
    """The folder with the data sets: the argument, BOXQTE_DATA, or ../shared/data where it exists."""
    named = data_dir or os.environ.get("BOXQTE_DATA")
    if named:
        if not Path(named).is_dir():
            raise DataError(f"{named}: no such folder ({'--data-dir' if data_dir else 'BOXQTE_DATA'})")
        return Path(named)
    return BESIDE if BESIDE.is_dir() else None


def load_dataset(name: str, data_dir: str | Path | None = None) -> DataSet:
    """One of the five data sets.

    Parameters
    ----------
    name
        adult, bank, compas, credit or lsac.
    data_dir
        The folder with NAME.csv and NAME.schema.json; None is BOXQTE_DATA, then ../shared/data, then OpenML.

    Returns
    -------
    DataSet
        Inputs, labels and space. A table from OpenML is refused unless it is, digit by digit, the published one.
    """
    if name not in DATASETS:
        raise DataError(f"data set '{name}' is unknown; data sets are {', '.join(DATASETS)}")
    folder = data_folder(data_dir)
    if folder is not None and (folder / f"{name}.csv").exists():
        return _from_folder(name, folder)
    where = f"not in {folder}" if folder is not None else "in no folder (--data-dir, BOXQTE_DATA)"
    if name not in SOURCES:
        raise DataError(f"{name}: {where}, and not on OpenML in this coding; it is {HOW_TO_GET[name]}, as "
                        f"{name}.csv and {name}.schema.json")  # fmt: skip
    return from_openml(name, where)


def _from_folder(name: str, folder: Path) -> DataSet:
    import pandas as pd

    table_file, space_file = folder / f"{name}.csv", folder / f"{name}.schema.json"
    space = Space.load(space_file)
    try:
        table = pd.read_csv(table_file)
    except (ValueError, OSError) as error:
        raise DataError(f"{table_file}: cannot be read: {str(error).splitlines()[0]}") from None
    return _split(name, table, space, str(table_file))


def from_openml(name: str, where: str = "in no folder", fetch: Any = None) -> DataSet:
    """The data set from OpenML, recoded and checked; `fetch(data_id)` returns the raw table (tests give their own)."""
    source = SOURCES[name]
    try:
        raw = (fetch or _fetch)(source.openml_id)
    except DataError:
        raise
    except Exception as error:  # whatever the network or the fetcher raises, the user needs the same advice
        raise DataError(f"{name}: {where}, and OpenML did not answer ({type(error).__name__}: {_first_line(error)}); it is "
                        f"{HOW_TO_GET[name]}: put {name}.csv and {name}.schema.json into a folder and name it with "
                        "--data-dir or BOXQTE_DATA") from None  # fmt: skip
    try:
        table = recoded(raw, source)
    except SpaceError as error:
        raise DataError(f"{name}: OpenML data set {source.openml_id}: {error}") from None
    if digest(table) != source.digest:
        raise DataError(f"{name}: OpenML data set {source.openml_id} does not give the published table (digest "
                        f"{digest(table)[:12]}, expected {source.digest[:12]}); it is {HOW_TO_GET[name]}")  # fmt: skip
    return _split(name, table, space_of(table, source), f"OpenML {source.openml_id}")


def _fetch(data_id: int) -> Any:
    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise DataError("fetching from OpenML needs scikit-learn: pip install boxqte[sklearn]") from None
    return fetch_openml(data_id=data_id, as_frame=True, parser="auto").frame


def _split(name: str, table: pd.DataFrame, space: Space, source: str) -> DataSet:
    label = space.label or "label"
    for column in (label, *space.columns):
        if column not in table:
            raise DataError(f"{source}: column '{column}' is missing")
    labels = table[label]
    if not labels.isin((0, 1)).all():
        raise DataError(f"{source}: column '{label}': expected 0 and 1, found {sorted(labels.unique())[:5]}")
    return DataSet(name, table[list(space.columns)], labels, space, source)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
