"""Writing a changed tree ensemble back into the library that it came from: same format, same class, same everything else.

`write_back` takes what was loaded and the ensemble as it was changed, and gives the model as that library keeps it,
already read again by boxqte's own importer: what is measured then is what is in the file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.decision import Threshold
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.imported import ImportedModel
from boxqte.models.importers import decided, load_model
from boxqte.models.importers.archives import is_archive
from boxqte.models.importers.structure import type_name
from boxqte.repairing.writing import catboost, lightgbm, sklearn, xgboost
from boxqte.repairing.writing.objects import ObjectOutput, changed_object, is_object_file, library_of, object_in
from boxqte.repairing.writing.shapes import first_difference, first_other_answer

WRITERS: dict[str, Any] = {"xgboost": xgboost, "lightgbm": lightgbm, "catboost": catboost}
ACCEPTED = "accepted are models of XGBoost, LightGBM, scikit-learn and CatBoost as they save them themselves"


class Output(Protocol):
    """A model of a library, changed: what a writer makes."""

    def save(self, path: Path) -> None:
        """Write it in the source's format."""

    def live(self) -> Any:
        """It as an object of the library."""


@dataclass(frozen=True, eq=False)
class Written:
    """A changed model in its own library."""

    imported: ImportedModel
    """The model as saved and read again."""
    output: Output

    def save(self, path: str | Path) -> Path:
        """Write the model in the format of its source."""
        target = Path(path)
        try:
            self.output.save(target)
        except OSError as error:
            raise ModelError(f"{target}: cannot be written: {error.strerror}") from None
        return target

    @property
    def model(self) -> Any:
        """A live object of the library: of the user's own class, where the source was one."""
        return self.output.live()


def storable(imported: ImportedModel, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Leaf values as the model's library would keep them: the nearest that it can.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble
    >>> from dataclasses import replace
    >>> storable(ImportedModel(replace(loan_ensemble(), library="xgboost"), "loan"), [0.1, 0.5]).tolist()
    [0.10000000149011612, 0.5]
    """
    found, library = np.asarray(values, np.float64), imported.ensemble.library
    if library == "sklearn":
        return sklearn.storable(found, imported.leaf_unit, imported.ensemble.link == "mean")
    if library not in WRITERS:
        raise ModelError(f"{imported.source}: a model of '{library}' cannot be written back; {ACCEPTED}")
    kept: npt.NDArray[np.float64] = WRITERS[library].storable(found)
    return kept


def write_back(
    source: Any,
    imported: ImportedModel,
    edited: TreeEnsemble,
    *,
    origins: Sequence[int] | None = None,
    allow_pickle: bool = False,
    threshold: Threshold | None = None,
) -> Written:
    """The model that was read from `source`, with the trees of `edited` in place of its own.

    Parameters
    ----------
    source
        What was loaded: a path or a live object, which stays as it is.
    imported
        What `load_model` made of it.
    edited
        The changed ensemble: `imported.ensemble` with other trees, nothing else changed. `node_id` of a node is the
        library's own number of the node that it came from, in the same tree, or -1.
    origins
        For each tree of `edited` the tree that it came from, where there are more or fewer than there were. Must not
        fall.
    allow_pickle, threshold
        As `load_model` was given them.

    Returns
    -------
    The model in its library. Its leaves have the values `storable` gives.

    Raises
    ------
    ModelError
        Where the model cannot be written back, with the way out.
    """
    source = Path(source) if isinstance(source, str) else source
    name = str(source) if isinstance(source, Path) else type_name(source)
    came = _origins(imported, edited, origins)
    if edited.value.shape[1] != 1:
        raise ModelError(
            f"{name}: leaves with a value for each class cannot be written back; accepted is one value a leaf"
        )
    try:
        meant = replace(edited, value=storable(imported, edited.value))
        output = _output(source, imported.ensemble, edited, came, allow_pickle)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    again = _read_again(source, output, allow_pickle, threshold)
    if (
        threshold is not None and meant.link != "mean"
    ):  # a threshold on a number moves the base by what leaves can add up to
        meant = replace(meant, base=again.ensemble.base)
    rule = imported.ensemble.decision
    if rule is not None and again.ensemble.decision is None:
        again = decided(again, rule)
    # Symmetric trees of CatBoost ask their splits in an order of their own.
    compare = first_other_answer if meant.library == "catboost" else first_difference
    different = compare(meant, again.ensemble)
    if different is not None:
        raise ModelError(f"{name}: as written it reads differently: {different}; please report this")
    return Written(again, output)


def _output(source: Any, own: TreeEnsemble, edited: TreeEnsemble, came: list[int], allow_pickle: bool) -> Output:
    library = own.library
    if not isinstance(source, Path):
        library = library_of(source)
        if library not in WRITERS:
            return ObjectOutput(changed_object(source, own, edited, came))
    elif (refused := _not_a_model_file(source)) is not None:
        raise ModelError(refused)
    elif is_object_file(source):
        held = object_in(source, allow_pickle=allow_pickle)
        return ObjectOutput(changed_object(held, own, edited, came), source)
    output: Output = WRITERS[library].written(source, edited, came)
    return output


def _not_a_model_file(path: Path) -> str | None:
    if path.is_dir():
        return "a folder cannot be written back; give the model file in it"
    if is_archive(path):
        return "an archive cannot be written back; unpack it and give the model file"
    return None


def _origins(imported: ImportedModel, edited: TreeEnsemble, given: Sequence[int] | None) -> list[int]:
    n = imported.ensemble.n_trees
    if given is None:
        if edited.n_trees != n:
            raise ModelError(
                f"origins: the edited model has {edited.n_trees} trees, the model {n}; say where each is from"
            )
        return list(range(n))
    came = [int(t) for t in given]
    if len(came) != edited.n_trees or came != sorted(came) or not all(0 <= t < n for t in came):
        raise ModelError(f"origins: expected a tree of 0..{n - 1} for each of {edited.n_trees} trees, rising")
    return came


def _read_again(source: Any, output: Output, allow_pickle: bool, threshold: Threshold | None) -> ImportedModel:
    if not isinstance(source, Path):
        return load_model(output.live(), allow_pickle=allow_pickle, threshold=threshold)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / source.name
        output.save(path)
        return replace(load_model(path, allow_pickle=allow_pickle, threshold=threshold), source=str(source))
