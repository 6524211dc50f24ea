"""The model as a tester may see it: rows in, labels out, every call and every row counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from boxqte.errors import ModelError, SpaceError
from boxqte.models.decision import Threshold
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers import ImportedModel, load_model
from boxqte.questions.building import attribute_codes, feature_of, match_columns
from boxqte.questions.decisions import attribute_groups
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from boxqte.testers.coordinates import Coordinates, FloatArray, IntArray

Input = Literal["matrix", "frame"]
TREE_LIBRARIES = ("xgboost", "lightgbm", "catboost")


class BlackBox:
    """A predict function over a space.

    Parameters
    ----------
    model
        One of: a function of a table of inputs that returns one label a row; an object with such a `predict`; a tree
        ensemble that boxqte reads (live, or the path of its file).
    space
        The input space.
    input
        What a function or a `predict` is called with. "matrix": a float64 array in the order of `space.columns`,
        categories as codes, NaN for missing. "frame": a pandas table of the user's own values, one column an
        attribute. A tree ensemble that boxqte reads always gets its own columns.
    allow_pickle
        Unpickle a scikit-learn file; only for files you trust.
    threshold
        The decision rule of a model that boxqte reads, in place of its own.

    Attributes
    ----------
    calls, rows
        How often the function was called, and with how many rows in all.
    """

    def __init__(
        self,
        model: Any,
        space: Space,
        *,
        input: Input = "matrix",
        allow_pickle: bool = False,
        threshold: Threshold | None = None,
    ):
        if input not in ("matrix", "frame"):
            raise ModelError(f"input: expected 'matrix' or 'frame', found {input!r}")
        self.space = space
        self.calls = 0
        self.rows = 0
        self._known: dict[Any, int] = {}
        self.codes: dict[int, FloatArray] = {}
        self.input: Input = input
        library = type(model).__module__.partition(".")[0]
        read = isinstance(model, (str, Path, TreeEnsemble, ImportedModel)) or library in (*TREE_LIBRARIES, "sklearn")
        if threshold is not None and not read:
            raise ModelError(
                f"threshold: {type(model).__name__} decides by itself; a threshold is for models boxqte reads"
            )
        if read and (library != "sklearn" or threshold is not None):
            imported = load_model(model, allow_pickle=allow_pickle, threshold=threshold)
            self.input = "matrix"
            self._ask, self.codes = _tree_function(imported, space)
            rule = imported.ensemble.decision
            self.name = imported.source if rule is None else f"{imported.source} ({rule.text()})"
        else:
            self._ask = _function(model, input, space)
            self.name = getattr(model, "__name__", None) or type(model).__name__
            if input == "matrix":
                self.codes = _plain_codes(space)

    def labels(self, at: Coordinates, x: FloatArray) -> IntArray:
        """The labels of rows of coordinates, as integers that are equal for equal labels."""
        self.calls += 1
        self.rows += len(x)
        return self.ask(at.matrix(x, self.codes) if self.input == "matrix" else at.frame(x))

    def ask(self, rows: FloatArray | pd.DataFrame) -> IntArray:
        """The labels of rows in the model's own form; not counted."""
        labels = np.asarray(self._ask(rows))
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.shape != (len(rows),):
            raise ModelError(
                f"{self.name}: predict returned an array of shape {labels.shape} for {len(rows)} rows; expected one label a "
                "row"
            )
        if labels.dtype.kind in "biu":
            return labels.astype(np.int64)
        if labels.dtype.kind == "f":
            if not (labels == np.rint(labels)).all():
                wrong = labels[labels != np.rint(labels)][0]
                raise ModelError(f"{self.name}: predict returned {wrong:g}; expected class labels, not scores")
            return labels.astype(np.int64)
        return np.array([self._known.setdefault(label, len(self._known)) for label in labels.tolist()], np.int64)


def _function(model: Any, input: Input, space: Space) -> Callable[[Any], Any]:
    predict = getattr(model, "predict", None)
    if not callable(predict):
        if callable(model):
            return model  # type: ignore[no-any-return]
        raise ModelError(
            f"{type(model).__name__} object: not a black box; accepted are a function, an object with predict, or a model "
            "that boxqte reads"
        )
    names = getattr(model, "feature_names_in_", None)
    if input == "frame" or names is None:
        return predict  # type: ignore[no-any-return]
    wanted = [str(name) for name in names]  # fitted on a table: give it one with the same columns
    if sorted(wanted) != sorted(space.columns):
        raise SpaceError(
            f"{type(model).__name__}: was fitted on the columns {', '.join(wanted)}; the space feeds "
            f"{', '.join(space.columns)}"
        )
    return lambda matrix: predict(pd.DataFrame(matrix, columns=list(space.columns))[wanted])


def _tree_function(imported: ImportedModel, space: Space) -> tuple[Callable[[Any], Any], dict[int, FloatArray]]:
    ensemble = imported.ensemble
    ensemble.require_classes()
    owner = match_columns(ensemble, space, ())
    start = np.cumsum([0] + [len(a.columns) for a in space])
    order = np.array([start[i] + j for i, j in owner])
    codes = {
        i: _with_missing(attribute_codes(a, ensemble, feature_of(owner, i)))
        for i, a in enumerate(space)
        if not a.is_numeric
    }
    predict = imported.native or ensemble.predict
    for i, a in enumerate(space):
        groups = attribute_groups(ensemble.decision, a)
        if groups:
            group = _group_function(a, codes.get(i), groups, slice(int(start[i]), int(start[i + 1])))
            return partial(_with_group, predict, order, group), codes
    if len(order) == start[-1] and (order == np.arange(len(order))).all():
        return predict, codes
    return lambda matrix: predict(matrix[:, order]), codes


def _with_group(predict: Any, order: npt.NDArray[np.int64], group: Any, matrix: FloatArray) -> Any:
    return predict(np.column_stack([matrix[:, order], group(matrix)]))


def _group_function(
    attribute: Attribute, codes: FloatArray | None, groups: Sequence[int], columns: slice
) -> Callable[[FloatArray], FloatArray]:
    """From rows of the space's columns to the numbers of their decision thresholds."""
    if codes is None:
        low, numbers = float(attribute.low), np.array(groups)

        def of_integers(matrix: FloatArray) -> FloatArray:
            column = matrix[:, columns][:, 0]
            return numbers[np.where(np.isnan(column), -1, column - low).astype(np.int64)]

        return of_integers
    of_codes: dict[bytes, int] = {}
    for row, group in zip(codes, groups):
        if of_codes.setdefault(row.tobytes(), group) != group:
            raise SpaceError(
                f"threshold: two values of '{attribute.name}' with different thresholds have the same codes, so a tester "
                "cannot tell them apart"
            )
    return lambda matrix: np.array([of_codes[row.tobytes()] for row in np.ascontiguousarray(matrix[:, columns])])


def _plain_codes(space: Space) -> dict[int, FloatArray]:
    """What each value writes into its columns where no model says otherwise: the attribute's codes, or the values."""
    codes: dict[int, FloatArray] = {}
    for i, a in enumerate(space):
        if a.codes is not None:
            codes[i] = _with_missing(np.array(a.codes, np.float64))
        elif not a.is_numeric:
            text = next((v for v in a.values if isinstance(v, str)), None)
            if text is not None:
                raise SpaceError(
                    f"attribute '{a.name}': value {text!r} is text, and a matrix holds numbers; give the attribute 'codes', "
                    "or input='frame'"
                )
            codes[i] = _with_missing(np.array(a.values, np.float64)[:, None])
    return codes


def _with_missing(codes: npt.NDArray[np.float64]) -> FloatArray:
    """One more row for the missing value."""
    return np.concatenate([codes, np.full((1, codes.shape[1]), np.nan)])
