"""scikit-learn pipelines: one encoder that has an exact counterpart here, then a model of any library."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from boxqte.errors import ModelError
from boxqte.models.encoders import EncodedColumn, from_transformer, is_identity, kind_of, model_columns, writes_sparse
from boxqte.models.ensemble import Missing, Test
from boxqte.models.importers import ImportedModel, load_model


def read_pipeline(pipeline: Any, where: str) -> ImportedModel:
    """The last step's model over the columns that the encoder writes, and how the encoder writes them."""
    *before, (last, final) = _flat_steps(pipeline)
    encoders = [(name, step) for name, step in before if not is_identity(step)]
    for name, step in encoders:
        if kind_of(step) not in ("columns", "encoder"):
            raise ModelError(
                f"{where}: step '{name}' is a {type(step).__name__}, which has no exact counterpart here; accepted "
                "before the model are a ColumnTransformer, a OneHotEncoder, an OrdinalEncoder and 'passthrough'"
            )
    if len(encoders) > 1:
        raise ModelError(
            f"{where}: steps '{encoders[0][0]}' and '{encoders[1][0]}' both encode; accepted is one such step"
        )
    if final is None or isinstance(final, str) or is_identity(final):
        raise ModelError(f"{where}: step '{last}' is no model")
    try:
        inner = load_model(final)
    except ModelError as error:
        raise ModelError(f"{where}: step '{last}': {error}") from error
    if not encoders:
        return replace(inner, source=where)
    name, encoder = encoders[0]
    here = f"{where}: step '{name}'"
    columns, encoded = model_columns(encoder, where=here), from_transformer(encoder, where=here)
    if len(columns) != inner.ensemble.n_features:
        raise ModelError(f"{here}: writes {len(columns)} columns, step '{last}' takes {inner.ensemble.n_features}")
    model = replace(inner, source=where, ensemble=replace(inner.ensemble, feature_names=columns), encoded=encoded)
    if inner.ensemble.library == "xgboost" and writes_sparse(encoder):
        model = _with_absent_zeros(model)
    return _with_composed_categories(model)


def _flat_steps(pipeline: Any) -> list[tuple[str, Any]]:
    """The steps of a pipeline and, in their place, those of the pipelines inside it."""
    flat: list[tuple[str, Any]] = []
    for name, step in pipeline.steps:
        if type(step).__name__ == "Pipeline" and type(step).__module__.startswith("sklearn."):
            flat += [(f"{name}.{inner}", deep) for inner, deep in _flat_steps(step)]
        else:
            flat.append((name, step))
    return flat


def _with_absent_zeros(model: ImportedModel) -> ImportedModel:
    """XGBoost reads what a sparse matrix does not store, and that is every zero, as missing."""
    ensemble = model.ensemble
    missing = np.where(ensemble.test != Test.LEAF, Missing.ZERO_EXACT, ensemble.missing).astype(np.uint8)

    def absent_zeros(asked: Any) -> Any:
        return asked and (lambda rows: asked(np.where(rows == 0.0, np.nan, rows)))

    return replace(
        model,
        ensemble=replace(ensemble, missing=missing),
        native=absent_zeros(model.native),
        probability=absent_zeros(model.probability),
    )


def _with_composed_categories(model: ImportedModel) -> ImportedModel:
    """Where HistGradientBoosting maps an encoder's output to codes of its own, the user's values map to those codes."""
    ensemble = model.ensemble
    categories = dict(ensemble.categories)
    composed: list[EncodedColumn] = []
    for column in model.encoded or ():
        codes = None if column.codes is None else column.codes.copy()
        for c, name in enumerate(column.columns):
            feature = ensemble.feature_names.index(name)
            if codes is None or feature not in ensemble.known_codes:
                continue
            code_of = {written: float(code) for code, written in enumerate(categories.pop(feature))}
            # -1 is no code: an output that the model was not fitted on is missing to it.
            codes[:, c] = [code_of.get(written, -1.0) for written in codes[:, c].tolist()]
        if codes is not None:
            codes.setflags(write=False)
        composed.append(replace(column, codes=codes))
    return replace(model, ensemble=replace(ensemble, categories=categories), encoded=tuple(composed))
