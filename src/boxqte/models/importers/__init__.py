"""From a live model or a model file to a TreeEnsemble. One file a library; a new library is one file and one line below.

An importer is a module with two functions:

    recognises(source) -> bool                      quick, never imports the library, never reads more than a file's head
    load(source, *, allow_pickle) -> ImportedModel  parses and validates by itself; says exactly why not (ModelError)

`source` is a live object or a `pathlib.Path`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.encoders import EncodedColumn
from boxqte.models.ensemble import TreeEnsemble

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
    """How many trees the model holds, where early stopping makes `predict` use only those up to its best iteration."""


class Importer(Protocol):
    """What a module in this package provides."""

    def recognises(self, source: object) -> bool: ...
    def load(self, source: Any, *, allow_pickle: bool) -> ImportedModel: ...


def load_model(source: object, *, allow_pickle: bool = False) -> ImportedModel:
    """Read a model: a live object, a path, or a TreeEnsemble itself.

    Parameters
    ----------
    source
        A fitted model of a supported library, the path of a model file, or a TreeEnsemble.
    allow_pickle
        Unpickle scikit-learn files. Unpickling runs code from the file: only for files you trust.
    """
    if isinstance(source, ImportedModel):
        return source
    if isinstance(source, TreeEnsemble):
        return ImportedModel(source, "TreeEnsemble")
    if isinstance(source, str):
        source = Path(source)
    if isinstance(source, Path):
        if not source.exists():
            raise ModelError(f"{source}: no such file")
        if not source.is_file():
            raise ModelError(f"{source}: not a file")
        if source.stat().st_size == 0:
            raise ModelError(f"{source}: the file is empty")
    for library in LIBRARIES:
        importer = cast(Importer, importlib.import_module(f"boxqte.models.importers.{library}"))
        if importer.recognises(source):
            return importer.load(source, allow_pickle=allow_pickle)
    what = str(source) if isinstance(source, Path) else f"{type(source).__module__}.{type(source).__qualname__} object"
    raise ModelError(
        f"{what}: not a model this version reads; accepted are XGBoost (JSON, UBJSON), LightGBM (text), CatBoost (JSON), "
        "scikit-learn (skops; pickle with allow_pickle=True), and live models of these libraries"
    )
