"""XGBoost: imported models decide every row as the library does."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost

from boxqte.models.ensemble import Test
from boxqte.models.importers import load_model
from boxqte.models.importers import xgboost as importer
from boxqte.models.importers.structure import single_from_text
from boxqte.models.importers.xgboost_document import logit
from tests.conformance.suite import assert_conforms, boundary_rows
from tests.models.xgboost_models import (
    KINDS,
    QUIET,
    all_models,
    booster,
    booster_of,
    document_of,
    library_classes,
    library_leaves,
    numeric_data,
    saved,
    tree_documents,
)


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return all_models()


# --- conformance ---


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["live", "json", "ubj"])
def test_import_reaches_the_librarys_leaves_and_classes(models: Any, kind: str, form: str, tmp_path: Path) -> None:
    model = models[kind]
    imported = load_model(model if form == "live" else saved(model, tmp_path / f"model.{form}"))
    rows = boundary_rows(imported.ensemble, n_random=100)
    leaves = library_leaves(booster_of(model), rows, imported.ensemble.n_trees)
    classes = library_classes(model, rows).astype(int)
    assert_conforms(imported.ensemble, rows, leaves, classes)
    assert imported.native is not None
    assert np.array_equal(imported.native(rows), classes)


@pytest.mark.parametrize("kind", KINDS)
def test_json_ubjson_and_live_object_are_the_same_model(models: Any, kind: str, tmp_path: Path) -> None:
    model = models[kind]
    live, *files = [
        load_model(source).ensemble.fingerprint()
        for source in (model, saved(model, tmp_path / "model.json"), saved(model, tmp_path / "model.ubj"))
    ]
    assert files == [live, live]


@pytest.mark.parametrize("kind", KINDS)
def test_margins_are_the_librarys_up_to_its_rounding(models: Any, kind: str) -> None:
    model = models[kind]
    imported = load_model(model)
    rows = boundary_rows(imported.ensemble, n_random=50)[-150:]
    rounds = getattr(model, "best_iteration", -1) + 1 if kind == "early stopping" else 0
    margin = booster_of(model).inplace_predict(rows, predict_type="margin", iteration_range=(0, rounds))
    difference = np.abs(imported.ensemble.margin(rows) - margin.reshape(len(rows), -1))
    assert difference.max() <= float(imported.ensemble.rounding_error())


def test_deleted_nodes_are_left_out_and_numbers_kept(models: Any) -> None:
    document = document_of(models["deleted nodes"])
    declared = sum(int(tree["tree_param"]["num_deleted"]) for tree in tree_documents(document))
    nodes = sum(int(tree["tree_param"]["num_nodes"]) for tree in tree_documents(document))
    ensemble = load_model(models["deleted nodes"]).ensemble
    assert declared > 0
    assert ensemble.n_nodes == nodes - declared
    assert ensemble.node_id.max() > np.bincount(ensemble.tree_of_node()).max()


def test_members_of_a_category_set_go_left_here_and_right_in_xgboost(models: Any) -> None:
    ensemble = load_model(models["partitioned categories"]).ensemble
    tree = tree_documents(document_of(models["partitioned categories"]))[0]
    node = tree["categories_nodes"][0]
    assert ensemble.test[node] == Test.IN_SET
    assert ensemble.set_of(node) == set(tree["categories"][: tree["categories_sizes"][0]])
    assert ensemble.left[node] == tree["right_children"][node]
    assert ensemble.right[node] == tree["left_children"][node]
    assert ensemble.default_left[node] != tree["default_left"][node]


# --- what predict does beside the trees ---


def test_a_classifier_and_its_file_stop_at_the_best_iteration(models: Any, tmp_path: Path) -> None:
    model = models["early stopping"]
    used = model.best_iteration + 1
    assert used < model.get_booster().num_boosted_rounds()
    assert load_model(model).ensemble.n_trees == used
    assert load_model(saved(model, tmp_path / "model.json")).ensemble.n_trees == used
    # A file that a Booster wrote is still read by XGBClassifier, which then stops there, too.
    path = saved(model.get_booster(), tmp_path / "model.ubj")
    loaded = xgboost.XGBClassifier(n_jobs=1)
    loaded.load_model(path)
    imported = load_model(path)
    rows = boundary_rows(imported.ensemble)
    assert imported.ensemble.n_trees == used
    assert np.array_equal(loaded.predict(rows), imported.native(rows))


def test_a_live_booster_uses_all_trees_after_early_stopping(models: Any) -> None:
    model = models["early stopping"].get_booster()
    imported = load_model(model)
    rows = boundary_rows(imported.ensemble)
    assert imported.ensemble.n_trees == model.num_boosted_rounds()
    assert_conforms(
        imported.ensemble, rows, library_leaves(model, rows, 1000), library_classes(model, rows).astype(int)
    )


def test_native_is_a_snapshot_of_the_live_object() -> None:
    model = booster(2)
    imported = load_model(model)
    rows = boundary_rows(imported.ensemble)
    before = imported.native(rows)
    X, y = numeric_data()
    for round_ in range(20):
        model.update(xgboost.DMatrix(X, 1 - y, nthread=1), round_)
    assert not np.array_equal(library_classes(model, rows).astype(int), before)
    assert np.array_equal(imported.native(rows), before)


def test_reading_a_file_does_not_import_xgboost(models: Any, tmp_path: Path) -> None:
    path = saved(models["classifier"], tmp_path / "model.ubj")
    code = (
        "import sys; from boxqte.models.importers import load_model; "
        f"load_model({str(path)!r}); sys.exit('xgboost' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_native_is_none_without_xgboost(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer.importlib.util, "find_spec", lambda name: None)
    assert load_model(models["classifier"]).native is None


def test_the_intercept_is_the_librarys_float32_bit_for_bit() -> None:
    document = document_of(booster(1))
    tree = tree_documents(document)[0]
    tree["split_conditions"] = [
        0.0 if left < 0 else t for t, left in zip(tree["split_conditions"], tree["left_children"])
    ]
    rng = np.random.default_rng(0)
    row = np.zeros((1, 4))
    for score in [0.0, 1e-10, 1e-6, 0.5, 1 - 1e-7, 1.0, *rng.uniform(0, 1, 200), *10 ** rng.uniform(-9, -1, 30)]:
        document["learner"]["learner_model_param"]["base_score"] = f"[{np.float32(score):.9E}]"
        model = xgboost.Booster(QUIET, model_file=bytearray(json.dumps(document).encode()))
        margin = model.inplace_predict(row, predict_type="margin")[0]
        assert logit(np.float32(score)) == margin
        assert load_model(model).ensemble.base == (Fraction(float(margin)),)


@pytest.mark.parametrize("objective", ["binary:logistic", "binary:logitraw"])
def test_a_margin_that_vanishes_in_the_probability_is_within_the_rounding_error(objective: str) -> None:
    # 5e-8 is a positive margin, but 1 / (1 + expf(-5e-8)) is exactly 1/2 in float32: XGBoost's class is 0.
    document = document_of(booster(1, objective=objective))
    tree = tree_documents(document)[0]
    row = np.zeros((1, 4))
    for leaf, below_one_half in ((5e-8, True), (2.0**-22 + 2.0**-40, False), (1e-6, False)):
        tree["split_conditions"] = [
            leaf if left < 0 else t for t, left in zip(tree["split_conditions"], tree["left_children"])
        ]
        score = "5E-1" if objective == "binary:logistic" else "0E0"
        document["learner"]["learner_model_param"]["base_score"] = f"[{score}]"
        imported = load_model(xgboost.Booster(QUIET, model_file=bytearray(json.dumps(document).encode())))
        margin = imported.ensemble.exact_margin(row)[0][0]
        assert margin == Fraction(float(np.float32(leaf)))
        assert imported.native is not None
        vanishes = below_one_half and objective == "binary:logistic"
        assert imported.native(row).tolist() == [0 if vanishes else 1]
        if vanishes:
            assert margin <= imported.ensemble.rounding_error()
        elif objective == "binary:logistic":
            assert imported.ensemble.rounding_error() < Fraction(1, 2**22) + Fraction(1, 2**40)
        else:
            assert imported.ensemble.rounding_error() < margin / 10**5


@pytest.mark.parametrize("exponent", [-149, -140, -127, -126, -60, 0, 20, 100])
def test_a_decimal_becomes_the_nearest_float32_even_beside_a_halfway_point(exponent: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        low = np.float32(np.ldexp(rng.uniform(1, 2), exponent))
        high = np.nextafter(low, np.float32(np.inf))
        halfway = (Fraction(float(low)) + Fraction(float(high))) / 2
        assert float(halfway) == halfway
        for nudge, nearest in ((Fraction(-1, 10**30), low), (Fraction(1, 10**30), high)):
            text = f"{round(halfway * (1 + nudge) * 10**200)}E-200"
            assert np.float32(single_from_text(text)) == nearest
            assert np.float32(single_from_text("-" + text)) == -nearest


# --- categories by name ---


def frame() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(2)
    columns = {
        "job": pd.Categorical(rng.choice(["clerk", "cook", "judge", "smith"], 300)),
        "age": rng.normal(40, 10, 300),
        "zone": pd.Categorical(rng.choice([30, 10, 20], 300)),
    }
    table = pd.DataFrame(columns)
    y = (table["job"].isin(["cook", "smith"]) ^ (table["zone"] == 20)).to_numpy() ^ (rng.random(300) < 0.1)
    return table, y.astype(int)


def codes(table: pd.DataFrame) -> np.ndarray:
    columns = [table[c].cat.codes if isinstance(table[c].dtype, pd.CategoricalDtype) else table[c] for c in table]
    return np.stack([np.asarray(column, float) for column in columns], axis=1)


@pytest.mark.parametrize("form", ["live", "json", "ubj"])
def test_pandas_categories_come_back_in_code_order(form: str, tmp_path: Path) -> None:
    table, y = frame()
    model = xgboost.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1, enable_categorical=True).fit(table, y)
    imported = load_model(model if form == "live" else saved(model, tmp_path / f"model.{form}"))
    assert imported.ensemble.feature_names == ("job", "age", "zone")
    assert imported.ensemble.categories == {0: ("clerk", "cook", "judge", "smith"), 2: (10, 20, 30)}
    assert np.array_equal(imported.native(codes(table)), model.predict(table))
    assert np.array_equal(imported.ensemble.predict(codes(table)), model.predict(table))
    rows = boundary_rows(imported.ensemble)
    assert_conforms(imported.ensemble, rows, library_leaves(model.get_booster(), rows, 4), model.predict(rows))


def test_category_names_that_xgboost_cuts_are_left_out() -> None:
    table, y = frame()
    table["job"] = table["job"].cat.rename_categories({"cook": "Köchin", "clerk": "Schreiber"})
    model = xgboost.XGBClassifier(n_estimators=2, max_depth=3, n_jobs=1, enable_categorical=True).fit(table, y)
    assert load_model(model).ensemble.categories == {2: (10, 20, 30)}
