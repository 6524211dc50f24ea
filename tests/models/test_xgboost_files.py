"""What is not read of XGBoost is refused by name, and broken files are refused or sound."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from boxqte.errors import ModelError
from boxqte.models.importers import load_model
from boxqte.models.importers import xgboost as importer
from tests.conformance.mutations import mutate_bytes, mutate_document, refused_or_sound
from tests.models.test_ubjson import to_ubjson
from tests.models.xgboost_models import (
    QUIET,
    SMALL,
    all_models,
    booster,
    booster_of,
    classifier,
    document_of,
    numeric_data,
    tree_documents,
)


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return all_models()


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
