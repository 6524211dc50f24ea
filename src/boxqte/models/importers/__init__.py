"""From a live model or a model file to a TreeEnsemble. One file a library; a new library is one file and one line below.

An importer is a module with two functions:

    recognises(source) -> bool                      quick, never imports the library, never reads more than a file's head
    load(source, *, allow_pickle, trees) -> ImportedModel  parses and validates by itself; says exactly why not
                                                    (ModelError)

`source` is a live object or a `pathlib.Path`; `trees` is what the user says of early stopping (rounds.py). Archives
and MLflow folders are opened here, so that an importer sees only its own files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.encoders import EncodedColumn
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers.archives import is_archive, unpacked
from boxqte.models.importers.looks import ACCEPTED, described
from boxqte.models.importers.mlflow import NAME, inner_file
from boxqte.models.importers.rounds import Trees, read_trees, refuse_rounds
from boxqte.models.importers.structure import ANY_MODEL

# The order matters only for files whose format two importers could claim; each recognises its own by content.
LIBRARIES = ("xgboost", "lightgbm", "catboost", "onnx", "sklearn")


@dataclass(frozen=True, eq=False)
class ImportedModel:
    """A model as we read it, and the way back to its own library."""

    ensemble: TreeEnsemble
    source: str
    """The file's path or the live object's type."""
    native: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.int64]] | None = None
    """The library's own predicted class indices for rows in model columns (float64, codes for categories, NaN for
    missing); None where the library is not installed. Importing the library is put off until the first call."""
    encoded: tuple[EncodedColumn, ...] | None = None
    """How the user's columns become model columns, where the model is a pipeline that encodes them."""
    trees_in_file: int | None = None
    """How many trees the model holds, where only some of them count: those up to its best iteration, or so many as the
    user says (`trees_because`)."""
    trees_because: str = "best_iteration"


class Importer(Protocol):
    """What a module in this package provides."""

    def recognises(self, source: object) -> bool: ...
    def load(self, source: Any, *, allow_pickle: bool, trees: Trees | None) -> ImportedModel: ...


def load_model(source: object, *, allow_pickle: bool = False, trees: Trees | str | None = None) -> ImportedModel:
    """Read a model: a live object, a path, or a TreeEnsemble itself.

    Parameters
    ----------
    source
        A fitted model of a supported library, the path of a model file (also in gz or zip) or of an MLflow folder, or a
        TreeEnsemble.
    allow_pickle
        Unpickle scikit-learn files. Unpickling runs code from the file: only for files you trust.
    trees
        Which trees count after early stopping: 'all', 'best' (those up to the best iteration), or how many. By default
        those with which the library's own object predicts (docs/models.md).
    """
    chosen = read_trees(trees)
    imported = _read(Path(source) if isinstance(source, str) else source, allow_pickle, chosen)
    return replace(imported, trees_because=f"trees={chosen}") if isinstance(chosen, int) else imported


def _read(source: object, allow_pickle: bool, trees: Trees | None) -> ImportedModel:
    if isinstance(source, ImportedModel):
        refuse_rounds(trees, f"{source.source} is read already")
        return source
    if isinstance(source, TreeEnsemble):
        refuse_rounds(trees, "TreeEnsemble")
        return ImportedModel(source, "TreeEnsemble")
    if isinstance(source, Path):
        if not source.exists():
            raise ModelError(f"{source}: no such file")
        if source.is_dir() and (source / NAME).is_file():
            inside, is_booster = inner_file(source)
            return _read(inside, allow_pickle, trees or ("all" if is_booster else None))
        if not source.is_file():
            raise ModelError(f"{source}: not a file: {described(source) if source.is_dir() else 'a device or a pipe'}")
        if source.stat().st_size == 0:
            raise ModelError(f"{source}: the file is empty")
    for library in LIBRARIES:
        importer = cast(Importer, importlib.import_module(f"boxqte.models.importers.{library}"))
        if importer.recognises(source):
            return importer.load(source, allow_pickle=allow_pickle, trees=trees)
    if isinstance(source, Path):
        if is_archive(source):
            return _unpacked(source, allow_pickle, trees)
        raise ModelError(f"{source}: {described(source)}")
    raise ModelError(
        f"{type(source).__module__}.{type(source).__qualname__} object: not a model this version reads; {ACCEPTED}; "
        f"{ANY_MODEL}"
    )


def _unpacked(source: Path, allow_pickle: bool, trees: Trees | None) -> ImportedModel:
    """The model in an archive; messages and results name the archive, not the temporary file."""
    with unpacked(source) as inside:
        if is_archive(inside):
            raise ModelError(
                f"{source}: holds an archive in an archive ({inside.name}); unpack it and give the model file"
            )
        try:
            return replace(_read(inside, allow_pickle, trees), source=str(source))
        except ModelError as error:
            raise ModelError(str(error).replace(str(inside), f"{source} ({inside.name})")) from None
