"""scikit-learn: an edited ensemble, written back, is that ensemble in the library and when it is read again."""

from __future__ import annotations

import gzip
import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, OneHotEncoder, OrdinalEncoder, StandardScaler
from xgboost import XGBClassifier

from boxqte.errors import ModelError
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers import load_model
from boxqte.repairing.writing import storable, write_back
from tests.conformance.suite import assert_conforms
from tests.models.test_importer_sklearn import KINDS, class_indices, data, leaves_of
from tests.repairing.edits import edits, pruned, revalued, some_boundary_rows

pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def fitted(kind: str) -> Any:
    X, y = data()
    return KINDS[kind]().fit(X, np.array(["no", "yes"])[y])


def limits(ensemble: TreeEnsemble) -> dict[str, float]:
    return {"low": 0.0, "high": 1.0} if ensemble.link == "mean" else {}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_what_was_meant(kind: str) -> None:
    check(fitted(kind), [1], [3], rows_kept=40)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_edits_are_written_as_they_were_meant(kind: str) -> None:
    check(fitted(kind), range(10), range(5), rows_kept=150)


def check(model: Any, seeds: Any, which: Any, rows_kept: int) -> None:
    imported, before = load_model(model), pickle.dumps(model)
    allows_missing = isinstance(model, HistGradientBoostingClassifier)
    for seed in seeds:
        for edited in [edits(imported.ensemble, seed, **limits(imported.ensemble))[number] for number in which]:
            written = write_back(model, imported, edited)
            rows = some_boundary_rows(edited, rows_kept, missing=allows_missing)
            result = written.imported.ensemble
            expected = storable(imported, edited.value)[edited.leaves(rows), 0]
            assert np.array_equal(result.value[result.leaves(rows), 0], expected)
            live = written.model
            assert type(live) is type(model)
            assert_conforms(result, rows, leaves_of(live, rows), class_indices(live, rows))
            assert (live.predict_proba(rows) >= 0).all()
            if hasattr(live, "feature_importances_"):
                assert (live.feature_importances_ >= -1e-12).all()
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("rate", [0.1, 1 / 3, 7.0])
def test_values_that_a_model_has_are_storable(rate: float) -> None:
    X, y = data()
    model = GradientBoostingClassifier(n_estimators=8, learning_rate=rate, random_state=0).fit(X, y)
    imported = load_model(model)
    assert np.array_equal(storable(imported, imported.ensemble.value), imported.ensemble.value)
    free = np.random.default_rng(0).normal(size=1000)
    near = storable(imported, free)
    assert np.array_equal(storable(imported, near), near)
    assert np.abs(near - free).max() <= np.spacing(np.abs(free)).max()


def test_missing_values_go_where_they_went() -> None:
    X, y = data(missing=True)
    for model in (RandomForestClassifier(4, max_depth=4, random_state=0), HistGradientBoostingClassifier(max_iter=4)):
        imported = load_model(model.fit(X, y))
        edited = edits(imported.ensemble, 1, **limits(imported.ensemble))[3]
        live = write_back(model, imported, edited).model
        rows = some_boundary_rows(edited, 100)
        assert np.array_equal(edited.predict(rows), live.predict(rows))


def test_category_splits_of_histogram_boosting() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=400), "colour": pd.Categorical(rng.choice([*"abcdefgh"], 400))})
    frame.loc[::11, "colour"] = np.nan
    y = (frame["colour"].isin(["b", "e"]) ^ (frame["size"] > 0.5)).to_numpy()
    model = HistGradientBoostingClassifier(
        max_iter=5, max_leaf_nodes=6, categorical_features="from_dtype", min_samples_leaf=5
    ).fit(frame, y)
    imported = load_model(model)
    for edited in edits(imported.ensemble, 3):
        written = write_back(model, imported, edited)
        rows = some_boundary_rows(edited, 150)
        assert np.array_equal(written.imported.native(rows), edited.predict(rows))


def test_regressors_keep_their_values() -> None:
    X, y = data()
    for model in (RandomForestRegressor(3, max_depth=3, random_state=0), GradientBoostingRegressor(n_estimators=3)):
        imported = load_model(model.fit(X, X[:, 0] + y))
        edited = edits(imported.ensemble, 1)[3]
        written = write_back(model, imported, edited)
        rows = some_boundary_rows(edited, 60, missing=False)
        assert np.allclose(written.model.predict(rows), edited.margin(rows)[:, 0], rtol=1e-12)


def test_only_some_stages_are_written() -> None:
    model = fitted("GradientBoosting")
    imported = load_model(model, trees=3)
    written = write_back(model, imported, edits(imported.ensemble, 1)[3])
    assert written.model.n_estimators_ == 3
    assert model.n_estimators_ == 6


# --- files ---


@pytest.mark.parametrize("form", ["pickle", "joblib", "gzip", "zlib", "skops"])
def test_files_keep_their_form(form: str, tmp_path: Path) -> None:
    model = fitted("RandomForest")
    path = tmp_path / f"model.{form}"
    if form == "pickle":
        path.write_bytes(pickle.dumps(model))
    elif form == "gzip":
        path.write_bytes(gzip.compress(pickle.dumps(model)))
    elif form == "skops":
        import skops.io

        skops.io.dump(model, path)
    else:
        joblib.dump(model, path, compress=3 if form == "zlib" else 0)
    imported = load_model(path, allow_pickle=form != "skops")
    edited = edits(imported.ensemble, 1, low=0.0, high=1.0)[3]
    written = write_back(path, imported, edited, allow_pickle=form != "skops")
    target = written.save(tmp_path / f"written.{form}")
    again = load_model(target, allow_pickle=form != "skops")
    assert again.ensemble.fingerprint() == written.imported.ensemble.fingerprint()
    if form == "gzip":
        assert type(pickle.loads(gzip.decompress(target.read_bytes()))) is RandomForestClassifier
    elif form != "skops":
        assert type(joblib.load(target)) is RandomForestClassifier
    assert target.read_bytes()[:1] == path.read_bytes()[:1]


# --- pipelines and wrappers ---


@cache
def table() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    n = 500
    frame = pd.DataFrame({
        "age": rng.integers(18, 80, n).astype(float), "pay": rng.normal(40, 9, n).round(2),
        "sex": rng.choice(["f", "m"], n), "job": rng.choice(["clerk", "nurse", "smith", "cook"], n),
    })  # fmt: skip
    score = (frame.pay > 42) * 2.0 + (frame.sex == "m") + frame.job.isin(["smith", "nurse"]) - (frame.age > 60)
    return frame, np.where(score + rng.normal(0, 0.5, n) > 1.5, "good", "bad")


def steps(encoder: Any) -> Any:
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "pay"]), (encoder, ["sex", "job"])
    )


def numbered(frame: pd.DataFrame, ensemble: TreeEnsemble) -> np.ndarray:
    columns = []
    for at, name in enumerate(ensemble.feature_names):
        codes = {value: code for code, value in enumerate(ensemble.categories.get(at, ()))}
        columns.append([codes[v] if codes else v for v in frame[name]])
    return np.array(columns, np.float64).T


MODELS = {
    "XGBoost": lambda: XGBClassifier(n_estimators=6, max_depth=3, n_jobs=1),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=6, random_state=0),
    "forest": lambda: RandomForestClassifier(5, max_depth=4, random_state=0),
    "histogram": lambda: HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=7),
}


@pytest.mark.parametrize(("kind", "encoder"), [*zip(MODELS, ["one-hot", "ordinal"] * 2)])
def test_pipelines_keep_their_steps(kind: str, encoder: str) -> None:
    check_pipeline(kind, encoder, [3])


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("encoder", ["one-hot", "ordinal"])
def test_random_edits_of_pipelines_are_written_as_they_were_meant(kind: str, encoder: str) -> None:
    check_pipeline(kind, encoder, range(5))


def check_pipeline(kind: str, encoder: str, which: Any) -> None:
    frame, y = table()
    labels = (y == "good").astype(int) if kind == "XGBoost" else y
    encode = OneHotEncoder(sparse_output=False) if encoder == "one-hot" else OrdinalEncoder()
    model = make_pipeline(steps(encode), MODELS[kind]()).fit(frame, labels)
    imported, before = load_model(model), model.predict_proba(frame)
    for edited in [edits(imported.ensemble, 5, **limits(imported.ensemble))[number] for number in which]:
        written = write_back(model, imported, edited)
        live, rows = written.model, numbered(frame, edited)
        assert type(live) is type(model)
        assert type(live[-1]) is type(model[-1])
        assert np.array_equal(live.predict(frame), np.array(imported.ensemble.classes)[edited.predict(rows)])
        near = some_boundary_rows(edited, 60, missing=False, unseen=False)
        near = near[~(near < 0).any(axis=1)]
        assert np.array_equal(written.imported.ensemble.predict(near), written.imported.native(near))
    assert np.array_equal(model.predict_proba(frame), before)


def test_nodes_without_an_origin_are_known_by_their_tests() -> None:
    frame, y = table()
    model = make_pipeline(steps(OneHotEncoder(sparse_output=False)), MODELS["boosting"]()).fit(frame, y)
    imported = load_model(model)
    edited = pruned(imported.ensemble, np.random.default_rng(0))
    strangers = replace(edited, node_id=np.full(edited.n_nodes, -1, np.int32))
    live = write_back(model, imported, strangers).model
    assert np.array_equal(live.predict_proba(frame), write_back(model, imported, edited).model.predict_proba(frame))


def test_a_step_of_several_intervals_is_refused_by_name() -> None:
    frame, _ = table()
    y = (frame.pay - 37).abs() < 3
    bins = KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf")
    model = make_pipeline(bins, MODELS["boosting"]()).fit(frame[["age", "pay"]], y)
    imported = load_model(model)
    with pytest.raises(ModelError, match=r"column '(age|pay)' reaches the model through a step that makes several"):
        write_back(model, imported, imported.ensemble)


def test_a_decreasing_step_swaps_sides() -> None:
    frame, y = table()
    model = make_pipeline(FunctionTransformer(np.negative), MODELS["boosting"]()).fit(frame[["age", "pay"]], y)
    imported = load_model(model)
    edited = edits(imported.ensemble, 2)[3]
    live = write_back(model, imported, edited).model
    predicted = np.array(["bad", "good"])[edited.predict(frame[["age", "pay"]].to_numpy())]
    assert np.array_equal(live.predict(frame[["age", "pay"]]), predicted)


def test_a_threshold_around_a_pipeline_is_kept() -> None:
    frame, y = table()
    pipeline = make_pipeline(steps(OrdinalEncoder()), MODELS["boosting"]())
    model = FixedThresholdClassifier(pipeline, threshold=0.4, pos_label="good").fit(frame, y)
    imported = load_model(model)
    edited = edits(imported.ensemble, 2)[3]
    written = write_back(model, imported, edited)
    assert written.imported.ensemble.decision.text() == imported.ensemble.decision.text()
    predicted = np.array(["bad", "good"])[edited.predict(numbered(frame, edited))]
    assert np.array_equal(written.model.predict(frame), predicted)


def test_what_is_no_single_model_of_trees_is_refused_by_name() -> None:
    X, y = data()
    forest = RandomForestClassifier(3, max_depth=3, random_state=0)
    vote = VotingClassifier([("a", forest), ("b", forest)], voting="soft").fit(X, y)
    calibrated = CalibratedClassifierCV(GradientBoostingClassifier(n_estimators=3), ensemble=False).fit(X, y)
    for model in (vote, calibrated):
        imported = load_model(model)
        with pytest.raises(ModelError, match=f"{type(model).__name__} cannot be written back; accepted are Decision"):
            write_back(model, imported, imported.ensemble)


def test_refused_values_lie_within_what_a_forest_can_hold() -> None:
    model = fitted("RandomForest")
    imported = load_model(model)
    edited = revalued(imported.ensemble, np.random.default_rng(0))
    written = write_back(model, imported, edited)
    leaf = written.imported.ensemble.test == 0
    assert written.imported.ensemble.value[leaf].min() == 0.0
    assert written.imported.ensemble.value[leaf].max() == 1.0
