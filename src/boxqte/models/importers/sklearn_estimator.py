"""What every scikit-learn estimator has, checked: that it is fitted, its classes, its columns, its own prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.importers.structure import ANY_MODEL, integer

Native = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.int64]]
Values = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]


def fitted(model: Any, attribute: str, where: str) -> Any:
    if not hasattr(model, attribute):
        raise ModelError(f"{where}: not fitted")
    return getattr(model, attribute)


def classes_of(model: Any, where: str) -> tuple[Any, ...]:
    classes = fitted(model, "classes_", where)
    if isinstance(classes, list) or getattr(model, "n_outputs_", 1) != 1:
        raise ModelError(f"{where}: predicts several targets at once; accepted is a model of one target; {ANY_MODEL}")
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or len(set(classes.tolist())) != len(classes):
        raise ModelError(f"{where}.classes_: expected distinct classes, found {shown(classes)}")
    if len(classes) < 2:
        raise ModelError(f"{where}.classes_: has {len(classes)} classes, expected two or more")
    return tuple(classes.tolist())


def feature_names(model: Any, where: str) -> list[str]:
    n = integer(fitted(model, "n_features_in_", where), f"{where}.n_features_in_", 1, 1_000_000)
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [f"x{i}" for i in range(n)]
    if len(names) != n or not all(isinstance(name, str) for name in names):
        raise ModelError(f"{where}.feature_names_in_: expected {n} names, found {shown(list(names))}")
    return list(names)


def native(model: Any, classes: Sequence[Any], categories: Mapping[int, tuple[Any, ...]] | None = None) -> Native:
    """The library's own prediction. Rows become a data frame, because a model fitted with names warns without them."""
    index = {label: i for i, label in enumerate(classes)}

    def predict(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        labels = model.predict(_frame(model, rows, categories or {}))
        return np.array([index[label] for label in labels.tolist()], np.int64)

    return predict


def values(model: Any, categories: Mapping[int, tuple[Any, ...]] | None = None) -> Values:
    """The numbers that the library itself predicts, for a model that predicts numbers."""

    def predict(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(model.predict(_frame(model, rows, categories or {})), np.float64).reshape(-1)

    return predict


def responses(model: Any, categories: Mapping[int, tuple[Any, ...]] | None = None) -> dict[str, Any]:
    """The library's own probabilities and, if it has them, margins."""
    asked = {"probability": lambda rows: np.asarray(model.predict_proba(_frame(model, rows, categories or {})))}
    if hasattr(model, "decision_function"):
        asked["margin"] = lambda rows: np.asarray(model.decision_function(_frame(model, rows, categories or {})))
    return asked


def _frame(model: Any, rows: npt.NDArray[np.float64], categories: Mapping[int, tuple[Any, ...]]) -> Any:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=getattr(model, "feature_names_in_", None))
    for feature, names in categories.items():
        frame.isetitem(feature, _decoded(rows[:, feature], names))
    return frame


def _decoded(codes: npt.NDArray[np.float64], values: tuple[Any, ...]) -> npt.NDArray[Any]:
    """The user's category behind each code; missing for any other code, as the library's own encoder has it."""
    known = np.isin(codes, np.arange(len(values)))
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    table = np.array([*values, np.nan], np.float64 if numeric else object)
    return table[np.where(known, codes, len(values)).astype(np.int64)]
