"""XGBoost: imported models decide every row as the library does, and broken files are refused or sound."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost

from boxqte.errors import ModelError
from boxqte.models.ensemble import Test
from boxqte.models.importers import load_model, ubjson
from boxqte.models.importers import xgboost as importer
from boxqte.models.importers.structure import single_from_text
from boxqte.models.importers.ubjson import read_ubjson
from boxqte.models.importers.xgboost_document import logit
from tests.conformance.mutations import mutate_bytes, mutate_document, refused_or_sound
from tests.conformance.suite import assert_conforms, boundary_rows

QUIET = {"nthread": 1, "verbosity": 0, "seed": 0}
CATEGORY_TYPES = ["c", "c", "float"]


# --- small models, one for each kind of thing the format can say ---


def numeric_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    X[:, 1] = X[:, 1].round(1)
    X[:, 2] = rng.integers(0, 5, 300)
    y = (X[:, 0] + X[:, 1] + (X[:, 2] == 2) + rng.normal(size=300) / 2 > 0.5).astype(int)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def category_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = np.stack([rng.integers(0, 9, 400), rng.integers(0, 3, 400), rng.normal(size=400)], axis=1)
    y = (np.isin(X[:, 0], [1, 4, 7]) + (X[:, 1] == 2) + X[:, 2] / 2 + rng.normal(size=400) / 2 > 1).astype(int)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def three_classes() -> np.ndarray:
    X, y = numeric_data()
    return np.where(np.nan_to_num(X[:, 3]) > 0.8, 2, y)


def booster(rounds: int = 5, y: np.ndarray | None = None, **params: Any) -> xgboost.Booster:
    X, binary = numeric_data()
    data = xgboost.DMatrix(X, binary if y is None else y, nthread=1)
    return xgboost.train({"objective": "binary:logistic", "max_depth": 3, **QUIET, **params}, data, rounds)


def category_booster(**params: Any) -> xgboost.Booster:
    X, y = category_data()
    data = xgboost.DMatrix(X, y, feature_types=CATEGORY_TYPES, enable_categorical=True, nthread=1)
    return xgboost.train({"objective": "binary:logistic", "max_depth": 4, **QUIET, **params}, data, 5)


def pruned_category_booster() -> xgboost.Booster:
    X, y = category_data()
    data = xgboost.DMatrix(X, y, feature_types=CATEGORY_TYPES, enable_categorical=True, nthread=1)
    update = {"process_type": "update", "updater": "prune", "gamma": 4.0}
    return xgboost.train(
        {"objective": "binary:logistic", **QUIET, **update}, data, 5, xgb_model=category_booster(max_cat_to_onehot=2)
    )


def classifier(kind: type = xgboost.XGBClassifier, y: np.ndarray | None = None, **params: Any) -> Any:
    X, binary = numeric_data()
    model = kind(**{"n_estimators": 5, "max_depth": 3, "n_jobs": 1, "verbosity": 0, "random_state": 0, **params})
    return model.fit(X, binary if y is None else y)


def stopped_classifier() -> Any:
    X, y = numeric_data()
    model = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1, early_stopping_rounds=4, random_state=0)
    return model.fit(X[:200], y[:200], eval_set=[(X[200:], y[200:])], verbose=False)


MULTI = {"objective": "multi:softprob", "num_class": 3}
KINDS: dict[str, Callable[[], Any]] = {
    "classifier": classifier,
    "booster": booster,
    "base_score": lambda: booster(base_score=0.9),
    "logitraw": lambda: booster(objective="binary:logitraw"),
    "dart": lambda: booster(10, booster="dart", rate_drop=0.5),
    "dart classifier": lambda: classifier(booster="dart", rate_drop=0.5, n_estimators=10),
    "random forest": lambda: classifier(xgboost.XGBRFClassifier),
    "boosted forests": lambda: booster(2, num_parallel_tree=3, subsample=0.5),
    "deleted nodes": lambda: booster(tree_method="exact", gamma=2.0, max_depth=5),
    "leaf-wise": lambda: booster(grow_policy="lossguide", max_leaves=9, max_depth=0),
    "single leaves": lambda: booster(gamma=1e6),
    "one-hot categories": lambda: category_booster(max_cat_to_onehot=100),
    "partitioned categories": lambda: category_booster(max_cat_to_onehot=1),
    "pruned categories": pruned_category_booster,
    "softprob": lambda: booster(3, three_classes(), **MULTI),
    "softmax": lambda: booster(3, three_classes(), objective="multi:softmax", num_class=3),
    "softprob classifier": lambda: classifier(y=three_classes(), n_estimators=3),
    "softprob forests": lambda: booster(2, three_classes(), num_parallel_tree=2, subsample=0.5, **MULTI),
    "softprob dart": lambda: booster(4, three_classes(), booster="dart", rate_drop=0.5, **MULTI),
    "vector leaves": lambda: booster(3, three_classes(), multi_strategy="multi_output_tree", **MULTI),
    "early stopping": stopped_classifier,
}
SMALL = ("classifier", "dart", "partitioned categories", "deleted nodes", "vector leaves", "early stopping")


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {name: build() for name, build in KINDS.items()}


def booster_of(model: Any) -> xgboost.Booster:
    return model if isinstance(model, xgboost.Booster) else model.get_booster()


def document_of(model: Any) -> Any:
    return json.loads(bytes(booster_of(model).save_raw("json")))


def saved(model: Any, path: Path) -> Path:
    model.save_model(path)
    return path


def library_leaves(model: xgboost.Booster, rows: np.ndarray, n_trees: int) -> np.ndarray:
    data = xgboost.DMatrix(
        rows, feature_names=model.feature_names, feature_types=model.feature_types, enable_categorical=True, nthread=1
    )
    return model.predict(data, pred_leaf=True).reshape(len(rows), -1).astype(int)[:, :n_trees]


def library_classes(model: Any, rows: np.ndarray) -> np.ndarray:
    if not isinstance(model, xgboost.Booster):
        return model.predict(rows)
    output = model.inplace_predict(rows)
    objective = document_of(model)["learner"]["objective"]["name"]
    if output.ndim == 2:
        return output.argmax(axis=1)
    return output if objective == "multi:softmax" else output > (0.0 if objective == "binary:logitraw" else 0.5)


def tree_documents(document: Any) -> list[Any]:
    booster = document["learner"]["gradient_booster"]
    return booster.get("gbtree", booster)["model"]["trees"]


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


# --- refusals ---


def refusal(source: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(source)
    message = str(caught.value)
    assert message.splitlines() == [message]
    return message


@pytest.mark.parametrize(
    "objective",
    ["binary:hinge", "survival:cox"],
)
def test_objectives_that_have_no_exact_counterpart_are_refused(objective: str) -> None:
    message = refusal(booster(1, objective=objective))
    assert "learner.objective.name" in message
    assert objective in message


def test_a_linear_booster_is_refused() -> None:
    X, y = numeric_data()
    data = xgboost.DMatrix(np.nan_to_num(X), y, nthread=1)
    model = xgboost.train({"booster": "gblinear", "objective": "binary:logistic", **QUIET}, data, 1)
    assert "gradient_booster.name: 'gblinear' has no trees" in refusal(model)


def test_several_labels_at_once_are_refused() -> None:
    y = numeric_data()[1]
    assert "num_target: 2 labels" in refusal(classifier(y=np.stack([y, 1 - y], axis=1)))


def test_a_wrapper_that_does_not_predict_what_its_objective_says_is_refused() -> None:
    probabilities = refusal(classifier(xgboost.XGBRegressor, objective="binary:logistic"))
    assert "objective 'binary:logistic': XGBRegressor.predict predicts probabilities, not classes" in probabilities
    numbers = refusal(classifier(objective="reg:logistic"))
    assert "objective 'reg:logistic': XGBClassifier.predict asks a number for classes" in numbers


def test_an_unfitted_classifier_is_refused() -> None:
    assert "not fitted" in refusal(xgboost.XGBClassifier())


def test_an_untrained_booster_is_refused() -> None:
    assert refusal(xgboost.Booster(QUIET))


def test_a_model_without_trees_is_refused() -> None:
    assert "no trees" in refusal(booster(0))


def test_another_value_for_missing_is_refused() -> None:
    X, y = numeric_data()
    model = xgboost.XGBClassifier(n_estimators=1, n_jobs=1, missing=-9.0).fit(np.nan_to_num(X, nan=-9.0), y)
    assert "missing=-9.0" in refusal(model)


def test_a_logitraw_classifier_is_refused_because_its_predict_compares_log_odds_with_a_half() -> None:
    assert "logitraw" in refusal(classifier(objective="binary:logitraw"))


def test_a_dump_of_the_trees_is_refused_with_advice(models: Any, tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    models["booster"].dump_model(path, dump_format="json")
    assert "save_model" in refusal(path)


def test_the_old_binary_format_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "old.model"
    path.write_bytes(b"binf" + bytes(100))
    assert "save it as .json" in refusal(path)


def changed(model: Any, tmp_path: Path, change: Callable[[Any], None]) -> Path:
    document = document_of(model)
    change(document)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    return path


TREE = r"learner\.gradient_booster\.model\.trees\[1\]"


def set_tree(key: str, at: int | None, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        tree = tree_documents(document)[1]
        if at is None:
            tree[key] = value
        else:
            tree[key][at] = value

    return change


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (set_tree("left_children", 0, 10**6), TREE + r"\.left_children\[0\]: 1000000"),
        (set_tree("left_children", 1, 0), TREE + r"\.left_children/right_children: node 0"),
        (set_tree("right_children", 0, 3), TREE + r"\.left_children/right_children: node 3"),
        (set_tree("parents", 2, 77), TREE + r"\.parents\[2\]: 77"),
        (set_tree("parents", 2, 1), TREE + r"\.parents\[2\]: is 1"),
        (set_tree("split_indices", 0, 4), TREE + r"\.split_indices\[0\]: 4"),
        (set_tree("split_indices", 0, 2**31 - 1), TREE + r"\.tree_param\.num_deleted: is 0"),
        (set_tree("split_conditions", 0, float("nan")), TREE + r"\.split_conditions\[0\]: nan"),
        (set_tree("split_conditions", -1, 1e39), TREE + r"\.split_conditions\[\d+\]: inf"),
        (set_tree("default_left", 0, 2), TREE + r"\.default_left\[0\]: 2"),
        (set_tree("sum_hessian", None, []), TREE + r"\.sum_hessian: has 0"),
        (set_tree("id", None, 0), TREE + r"\.id: is 0, expected 1"),
        (set_tree("split_type", 0, 1), TREE + r"\.categories_nodes"),
        (lambda d: d["learner"]["learner_model_param"].update(base_score="[2E0]"), r"base_score: '\[2E0\]'"),
        (lambda d: d["learner"]["learner_model_param"].update(num_feature="2"), r"split_indices\[\d+\]|num_feature"),
        (lambda d: d["learner"].update(feature_names=["a", "a", "b", "c"]), r"feature_names: 'a' occurs twice"),
        (lambda d: d["learner"]["attributes"].update(best_iteration="99"), r"attributes\.best_iteration: 99"),
        (lambda d: d["learner"]["gradient_booster"]["model"]["tree_info"].append(0), r"tree_info: has 6"),
    ],
)
def test_a_broken_field_is_named(models: Any, tmp_path: Path, change: Callable[[Any], None], named: str) -> None:
    path = changed(models["booster"], tmp_path, change)
    assert re.search(f"^{re.escape(str(path))}: .*{named}", refusal(path))


def test_children_that_are_not_neighbours_are_refused(models: Any, tmp_path: Path) -> None:
    def swap(document: Any) -> None:
        tree = tree_documents(document)[0]
        tree["left_children"][0], tree["right_children"][0] = 2, 1

    assert "right_children[0]: is 1, but XGBoost goes to 3" in refusal(changed(models["booster"], tmp_path, swap))


def test_overlapping_category_segments_are_refused(models: Any, tmp_path: Path) -> None:
    def overlap(document: Any) -> None:
        tree = next(t for t in tree_documents(document) if len(t["categories_sizes"]) > 1)
        tree["categories_segments"] = [0] * len(tree["categories_segments"])

    path = changed(models["partitioned categories"], tmp_path, overlap)
    assert "categories_segments" in refusal(path)


def test_vector_leaves_of_older_files_are_refused(models: Any, tmp_path: Path) -> None:
    path = changed(models["vector leaves"], tmp_path, lambda d: tree_documents(d)[0].pop("leaf_weights"))
    assert "leaf_weights: missing" in refusal(path)


def test_a_key_given_twice_is_refused(models: Any, tmp_path: Path) -> None:
    path = tmp_path / "twice.json"
    path.write_text(json.dumps(document_of(models["booster"]))[:-1] + ', "learner": {}}')
    assert "'learner' occurs twice" in refusal(path)


@pytest.mark.parametrize("text", ['{"learner": ' + "[" * 100_000, '{"learner": ' + "9" * 10_000 + "}", '{"learner": {'])
def test_json_that_is_too_deep_too_long_or_cut_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    assert refusal(path).startswith(f"{path}: ")


# --- UBJSON ---


ARRAY_TYPES = {
    "base_weights": "d", "loss_changes": "d", "sum_hessian": "d", "split_conditions": "d", "leaf_weights": "d",
    "left_children": "l", "right_children": "l", "parents": "l", "split_indices": "l", "categories": "l",
    "categories_nodes": "l", "feature_segments": "l", "sorted_idx": "l", "offsets": "l",
    "categories_segments": "L", "categories_sizes": "L", "default_left": "U", "split_type": "U",
}  # fmt: skip


def to_ubjson(value: Any, key: str = "") -> bytes:
    """UBJSON as XGBoost writes it: typed arrays in trees, counted arrays elsewhere, every size an int64."""
    if value is None or isinstance(value, bool):
        return {None: b"Z", True: b"T", False: b"F"}[value]
    if isinstance(value, int):
        return b"L" + struct.pack(">q", value) if -(2**63) <= value < 2**63 else to_ubjson(float(value))
    if isinstance(value, float):
        return b"D" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"S" + sized(value.encode())
    if isinstance(value, dict):
        return b"{" + b"".join(sized(name.encode()) + to_ubjson(item, name) for name, item in value.items()) + b"}"
    kind = ARRAY_TYPES.get(key, "")
    if kind and all(type(item) in (int, float) for item in value):
        with np.errstate(all="ignore"):
            array = np.array(value, float).astype(np.dtype(ubjson.ARRAYS[kind]))
        return b"[$" + kind.encode() + b"#L" + struct.pack(">q", len(value)) + array.tobytes()
    return b"[#L" + struct.pack(">q", len(value)) + b"".join(map(to_ubjson, value))


def sized(text: bytes) -> bytes:
    return b"L" + struct.pack(">q", len(text)) + text


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", SMALL)
def test_ubjson_reads_as_what_xgboost_writes_in_json(models: Any, kind: str) -> None:
    model = booster_of(models[kind])
    document = document_of(model)
    read = plain(read_ubjson(bytes(model.save_raw("ubj"))))
    for tree, same in zip(tree_documents(document), tree_documents(read)):
        for key in ("base_weights", "loss_changes", "sum_hessian", "split_conditions", "leaf_weights"):
            if key in tree:
                assert np.array_equal(np.float32(tree.pop(key)), np.float32(same.pop(key)))
    for booster_document in (document, read):
        booster_document["learner"]["gradient_booster"].pop("weight_drop", None)
    assert read == document


def test_ubjson_reads_every_kind_of_value() -> None:
    mixed = {"a": [None, True, False, -1, 2.5, "é", [], {}], "left_children": [1, 2, -1], "c": [0.5, 1e300]}
    assert plain(read_ubjson(to_ubjson(mixed))) == mixed
    assert read_ubjson(b"[U\xffi\xffI\xff\xfeNl\x00\x00\x00\x07]") == [255, -1, -2, 7]
    assert read_ubjson(b"[$d#i\x02" + struct.pack(">2f", 0.1, -2)).dtype == np.float32
    assert read_ubjson(b"[$U#i\x02\x01\xff").tolist() == [1, 255]


HUGE = b"L" + struct.pack(">q", 2**62)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[$d#" + HUGE,
        b"[#" + HUGE,
        b"[$Z#" + HUGE,
        b"[$D#U\x00",
        b"[$[#" + HUGE,
        b"[$l#L" + struct.pack(">q", -1),
        b"[$L#U\x7f" + bytes(100),
        b"S" + HUGE,
        b"SL" + struct.pack(">q", -5) + b"hello",
        b"Sd" + struct.pack(">f", 3) + b"abc",
        b"SU\x02\xff\xfe",
        b"{" + HUGE,
        b"{U\x01aZU\x01aZ}",
        b"{$i#U\x01",
        b"[" * 100_000,
        b"{U\x01a" * 100_000,
        b"H" + HUGE,
        b"ZZ",
        b"N" * 1000,
        b"L\x00",
        b"\xff",
    ],
)
def test_hostile_ubjson_is_refused_without_the_memory_it_asks_for(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match="byte"):
            read_ubjson(data)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_ubjson_with_more_values_than_a_model_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ubjson, "MAX_VALUES", 100)
    with pytest.raises(ModelError, match="more than 100 values"):
        read_ubjson(b"[" + b"Z" * 200 + b"]")


# --- mutated files ---


def small_documents(models: Any) -> list[Any]:
    """One document for each thing that only some models have."""
    return [document_of(models[kind]) for kind in SMALL]


def outcome(path: Path, what: str) -> str:
    def load() -> Any:
        try:
            return importer.load(path, allow_pickle=False)
        except ModelError as error:
            if not re.match(rf"{re.escape(str(path))}: (byte \d|document|learner|the model has no trees)", str(error)):
                raise AssertionError(f"{what}: does not name the field: {error}") from error
            raise

    return refused_or_sound(load, what)


def test_mutated_json_files_are_refused_or_sound(models: Any, tmp_path: Path) -> None:
    documents = small_documents(models)
    path = tmp_path / "mutated.json"
    outcomes = []
    for seed in range(500):
        rng = np.random.default_rng(seed)
        if seed % 5 == 4:
            path.write_bytes(mutate_bytes(json.dumps(documents[seed % len(documents)]).encode(), rng))
            outcomes.append(outcome(path, f"seed {seed}: bytes"))
        else:
            broken, what = mutate_document(documents[seed % len(documents)], rng)
            path.write_text(json.dumps(broken))
            outcomes.append(outcome(path, f"seed {seed}: {what}"))
    assert outcomes.count("refused") > 250


def test_mutated_ubjson_files_are_refused_or_sound(models: Any, tmp_path: Path) -> None:
    documents = small_documents(models)
    raws = [bytes(booster_of(models[kind]).save_raw("ubj")) for kind in SMALL]
    path = tmp_path / "mutated.ubj"
    outcomes = []
    for seed in range(500):
        rng = np.random.default_rng(1000 + seed)
        if seed % 2:
            path.write_bytes(mutate_bytes(raws[seed % len(raws)], rng))
            outcomes.append(outcome(path, f"seed {seed}: bytes"))
        else:
            broken, what = mutate_document(documents[seed % len(documents)], rng)
            path.write_bytes(to_ubjson(broken))
            outcomes.append(outcome(path, f"seed {seed}: {what}"))
    assert outcomes.count("refused") > 250
