"""XGBoost: live Booster, XGBClassifier, XGBRegressor and XGBRanker objects, JSON and UBJSON files.

One path for all of them: bytes (a file's, or what a live object's `save_raw` gives) are parsed and validated here, and
only bytes that passed are ever given back to XGBoost, by `native`. XGBoost's own loader trusts its input: a wrong index
in a file makes it read out of bounds.

Which trees count is what `predict` does: XGBClassifier, live or just loaded from a file, stops after `best_iteration`
if the model has one; a live Booster uses all trees. A file has no `predict` of its own, so it means what XGBClassifier
makes of it.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.importers import ImportedModel
from boxqte.models.importers.rounds import Trees
from boxqte.models.importers.structure import Direction, parsed_json, read_bytes, single_from_text, type_name
from boxqte.models.importers.ubjson import read_ubjson
from boxqte.models.importers.xgboost_document import OBJECTIVES, Model, read_constraints, read_model

HEAD = 4096
FEW_ROWS = 2000  # for so few, waking other threads takes longer than the prediction
MAX_BYTES = 2**30  # parsed JSON takes some twenty times its size in memory


def recognises(source: object) -> bool:
    """Whether this is an XGBoost object or a file in one of its formats (also those that `load` then refuses)."""
    if isinstance(source, Path):
        head = read_bytes(source, HEAD)
        return _is_json_model(head) or _is_ubjson_model(head) or _is_legacy(head) or _is_dump(head)
    return bool(_class_names(source) & {"Booster", "XGBModel"})


def load(source: Any, *, allow_pickle: bool, trees: Trees | None = None) -> ImportedModel:
    """Read a live Booster or scikit-learn style model, or a JSON or UBJSON file."""
    live = not isinstance(source, Path)
    name = type_name(source) if live else str(source)
    stored = None if live else read_bytes(source, MAX_BYTES + 1)
    try:
        raw = live_bytes(source) if stored is None else stored
        model = read_model(parsed(raw), until_best="Booster" not in _class_names(source), trees=trees)
        if live:
            _check_wrapper(source, model)
            model = replace(model, monotone=_live_constraints(source, model))
        ensemble = model.ensemble(classes=getattr(source, "classes_", None))
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    output, objective = _output(raw, model, name), OBJECTIVES[model.objective]
    decide, raw_margin = objective.decide, _output(raw, model, name, "margin")
    kept: dict[str, Any] = {"raw": raw_margin, "trees_in_file": model.trees_in_file, "monotone": model.monotone}
    if decide is None:
        return ImportedModel(ensemble, name, values=output, objective=model.objective, **kept)
    return ImportedModel(
        ensemble,
        name,
        native=None if output is None else lambda rows: decide(output(rows)).astype(np.int64),
        probability=None if output is None else lambda rows: objective.probability(output(rows)),
        **kept,
    )


def _is_json_model(head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and b'"learner"' in head


def _is_ubjson_model(head: bytes) -> bool:
    return head.startswith(b"{") and b"\x07learner" in head


def _is_legacy(head: bytes) -> bool:
    return head.startswith(b"binf")


def _is_dump(head: bytes) -> bool:
    stripped = head.lstrip()
    return (stripped.startswith(b"[") and b'"nodeid"' in head) or stripped.startswith(
        (b"booster[0]:", b"0:[", b"0:leaf=")
    )


def _class_names(source: object) -> set[str]:
    return {kind.__name__ for kind in type(source).__mro__ if kind.__module__.partition(".")[0] == "xgboost"}


def live_bytes(source: Any) -> bytes:
    """A live model as the UBJSON that XGBoost itself saves."""
    names = _class_names(source)
    if "Booster" not in names:
        if not source.__sklearn_is_fitted__():
            raise ModelError("the model is not fitted")
        source = source.get_booster()
    try:
        return bytes(source.save_raw("ubj"))
    except ValueError as error:  # XGBoostError is one
        raise ModelError(f"XGBoost cannot save the model: {_first_line(error)}") from None


def _check_wrapper(source: Any, model: Model) -> None:
    """Refuse a wrapper whose `predict` does more than its booster's margin says."""
    names = _class_names(source)
    if "Booster" in names:
        return
    classifies = bool(names & {"XGBClassifier", "DaskXGBClassifier"})
    if classifies != (OBJECTIVES[model.objective].decide is not None):
        says = "asks a number for classes" if classifies else "predicts probabilities, not classes"
        raise ModelError(f"objective '{model.objective}': {type(source).__name__}.predict {says}; import get_booster()")
    missing = source.missing
    if missing is not None and not (isinstance(missing, (int, float)) and math.isnan(missing)):
        raise ModelError(
            f"missing={shown(missing)}: the model reads this value as missing; accepted is NaN, so import "
            "get_booster() and write missing values as NaN"
        )
    if model.objective == "binary:logitraw":
        raise ModelError(
            "objective 'binary:logitraw': XGBClassifier.predict compares the log-odds with 0.5 as if they were a "
            "probability; import get_booster() to have class 1 where the log-odds are positive"
        )


def _live_constraints(source: Any, model: Model) -> dict[str, Direction]:
    """The monotone constraints of the last training: only a live object knows them, `save_model` writes none."""
    booster = source if "Booster" in _class_names(source) else source.get_booster()
    learner = parsed_json(booster.save_config().encode(), "save_config()", constants=True).get("learner", {})
    gradient = learner.get("gradient_booster", {})
    param = gradient.get("gbtree", gradient).get("tree_train_param", {})
    where = "save_config(): tree_train_param.monotone_constraints"
    return {**model.monotone, **read_constraints(param.get("monotone_constraints"), model.feature_names, where)}


def is_binary(raw: bytes) -> bool:
    """Whether a document is UBJSON: there a type marker follows the brace; in JSON a quote does, or space before one."""
    head = raw[:HEAD].lstrip()
    return head.startswith(b"{") and head[1:].lstrip()[:1] not in (b'"', b"}", b"")


def parsed(raw: bytes) -> Any:
    """The document that the bytes hold, JSON or UBJSON."""
    if len(raw) > MAX_BYTES:
        raise ModelError(f"the model has more than {MAX_BYTES} bytes")
    head = raw[:HEAD].lstrip()
    if _is_legacy(head):
        raise ModelError("XGBoost's old binary format; load it in XGBoost and save it as .json or .ubj")
    if _is_dump(head):
        raise ModelError(
            "a dump of the trees, which has rounded numbers, no objective and no base_score; save with save_model instead"
        )
    if is_binary(raw):
        return read_ubjson(raw)
    # XGBoost writes NaN where a statistic has none; where it matters, the trees' own checks refuse it by name.
    return parsed_json(raw, "document", parse_float=single_from_text, constants=True)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _output(
    raw: bytes, model: Model, name: str, kind: str = "value"
) -> Callable[[npt.NDArray[np.float64]], npt.NDArray[Any]] | None:
    """What XGBoost itself predicts (float32), or its margins (`kind`), from a snapshot of the validated bytes: a live object
    may be trained further."""
    if importlib.util.find_spec("xgboost") is None:
        return None
    loaded: list[Any] = []

    def predict(rows: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        import xgboost

        try:
            if not loaded:
                loaded.append(xgboost.Booster(model_file=bytearray(raw)))
            # Rows go in as float64: the cast to float32 is the library's own.
            X = np.ascontiguousarray(rows, np.float64)
            loaded[0].set_param({"nthread": 1 if len(X) < FEW_ROWS else 0})  # 0: all cores
            output = loaded[0].inplace_predict(X, iteration_range=(0, model.rounds), predict_type=kind)
        except xgboost.core.XGBoostError as error:
            raise ModelError(f"{name}: XGBoost itself cannot predict with this model: {_first_line(error)}") from None
        return np.asarray(output)

    return predict
