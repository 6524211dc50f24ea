"""CatBoost models, live and from JSON, decide every row as CatBoost does; what cannot be kept exactly is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boxqte.errors import ModelError
from boxqte.models.ensemble import Test, TreeEnsemble
from boxqte.models.importers import load_model
from boxqte.models.importers.catboost import MAX_TREE_DEPTH
from tests.conformance.mutations import mutate_bytes, mutate_document, refused_or_sound
from tests.conformance.suite import assert_conforms, boundary_rows

catboost = pytest.importorskip("catboost")

N = 400
SMALL = {"iterations": 3, "depth": 3, "thread_count": 1, "verbose": False, "allow_writing_files": False}
LOSSGUIDE = {"grow_policy": "Lossguide", "max_leaves": 9, "depth": 6}
KINDS: dict[str, dict[str, Any]] = {
    "symmetric": {},
    "NaN below all": {"nan_mode": "Min", "missing_matters": True},
    "NaN above all": {"nan_mode": "Max", "missing_matters": True},
    "depth one": {"depth": 1},
    "deeper": {"depth": 6, "iterations": 2},
    "depthwise": {"grow_policy": "Depthwise", "min_data_in_leaf": 20},
    "lossguide": LOSSGUIDE,
    "cross entropy": {"loss_function": "CrossEntropy"},
    "from the average": {"boost_from_average": True},
    "three classes": {"classes": 3},
    "three classes by lossguide": {"classes": 3, **LOSSGUIDE},
    "two classes by softmax": {"loss_function": "MultiClass"},
}
CATEGORICAL: dict[str, dict[str, Any]] = {
    "one-hot": {},
    "one-hot by lossguide": LOSSGUIDE,
    "one-hot with three classes": {"classes": 3},
}


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    """Columns: real, small integers, real with NaN, real; and three classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 4))
    x[:, 1] = np.round(2 * x[:, 1])
    x[::9, 2] = np.nan
    return x, np.digitize(np.nan_to_num(x[:, 2]) * x[:, 0] + x[:, 1] - x[:, 3] / 2, [0.0, 1.0])


@cache
def model(kind: str) -> Any:
    options = dict(KINDS[kind])
    x, y = data()
    y = np.minimum(y, options.pop("classes", 2) - 1)
    if options.pop("missing_matters", False):
        y = (np.isnan(x[:, 2]) | (x[:, 0] > 1)).astype(int)
    return catboost.CatBoostClassifier(**{**SMALL, **options}).fit(x, y)


@cache
def table() -> tuple[pd.DataFrame, np.ndarray]:
    """Categories between the numbers, so that CatBoost's flat order differs from its order by kind."""
    x, _ = data()
    rng = np.random.default_rng(1)
    colour, size = rng.choice(["red", "green", "blue", "grey"], N), rng.integers(0, 5, N)
    frame = pd.DataFrame({"colour": colour, "amount": x[:, 0], "size": size, "rate": x[:, 2]})
    score = (colour == "red") + 2.0 * (size == 2) - (size == 4) + (x[:, 0] > 0) - (colour == "grey")
    return frame, np.digitize(score, [0.5, 2.0])


@cache
def categorical_model(kind: str) -> Any:
    options = dict(CATEGORICAL[kind])
    frame, y = table()
    y = np.minimum(y, options.pop("classes", 2) - 1)
    params = {**SMALL, **options, "cat_features": ["colour", "size"], "one_hot_max_size": 10}
    return catboost.CatBoostClassifier(**params).fit(frame, y)


def exported(source: Any, path: Path, pool: Any = None) -> Path:
    source.save_model(str(path), format="json", pool=pool)
    return path


def exported_with_values(source: Any, path: Path) -> Path:
    frame, y = table()
    return exported(source, path, catboost.Pool(frame, y, cat_features=["colour", "size"]))


def saved(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def rows_for(ensemble: TreeEnsemble) -> np.ndarray:
    """The suite's rows, and some with infinities and values beyond float32."""
    rows = boundary_rows(ensemble)
    rng = np.random.default_rng(1)
    extra = rows[rng.integers(len(rows), size=60)].copy()
    numeric = [f for f in range(ensemble.n_features) if f not in ensemble.categories]
    odd = np.array([np.inf, -np.inf, 1e300, -1e300, np.finfo(np.float32).max, -np.finfo(np.float32).max])
    extra[np.arange(60), rng.choice(numeric, 60)] = rng.choice(odd, 60)
    return np.concatenate([rows, extra])


def with_values(rows: np.ndarray, ensemble: TreeEnsemble) -> pd.DataFrame:
    """The rows as the user has them: category values in place of codes, one never seen for codes of none."""
    frame = pd.DataFrame(rows, columns=list(ensemble.feature_names)).astype(object)
    for feature, values in ensemble.categories.items():
        codes = [int(x) if np.isfinite(x) else -1 for x in rows[:, feature]]
        frame.isetitem(feature, [values[c] if 0 <= c < len(values) else "never seen" for c in codes])
    return frame


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_reaches_catboosts_own_leaf_and_class(kind: str, tmp_path: Path) -> None:
    live = load_model(model(kind))
    rows = rows_for(live.ensemble)
    assert live.native is not None
    assert_conforms(live.ensemble, rows, model(kind).calc_leaf_indexes(rows), live.native(rows))
    read = load_model(exported(model(kind), tmp_path / "model.json"))
    assert read.ensemble.fingerprint() == live.ensemble.fingerprint()
    assert read.native is not None
    assert_conforms(read.ensemble, rows, model(kind).calc_leaf_indexes(rows), read.native(rows))


@pytest.mark.parametrize(("kind", "border"), [("NaN below all", -1.0), ("NaN above all", 1.0)])
def test_the_border_that_sets_nan_apart_is_among_those_tested(kind: str, border: float) -> None:
    ensemble = load_model(model(kind)).ensemble
    assert border * float(np.finfo(np.float32).max) in ensemble.threshold


@pytest.mark.parametrize("kind", CATEGORICAL)
def test_one_hot_splits_are_read_with_the_users_values(kind: str, tmp_path: Path) -> None:
    source = categorical_model(kind)
    read = load_model(exported_with_values(source, tmp_path / "model.json"))
    assert Test.IN_SET in read.ensemble.test
    assert read.ensemble.feature_names == ("colour", "amount", "size", "rate")
    assert {"red", "green", "blue", "grey"} <= set(read.ensemble.categories[0])
    assert {"0", "1", "2", "3", "4"} <= set(read.ensemble.categories[2])
    rows = rows_for(read.ensemble)
    assert read.native is not None
    assert_conforms(read.ensemble, rows, source.calc_leaf_indexes(with_values(rows, read.ensemble)), read.native(rows))


def test_the_users_own_table_gets_catboosts_classes_through_the_codes(tmp_path: Path) -> None:
    frame, _ = table()
    ensemble = load_model(exported_with_values(categorical_model("one-hot"), tmp_path / "model.json")).ensemble
    rows = frame.copy()
    for feature, values in ensemble.categories.items():
        rows.isetitem(feature, [values.index(str(value)) for value in frame.iloc[:, feature]])
    assert ensemble.predict(rows.to_numpy(np.float64)).tolist() == categorical_model("one-hot").predict(frame).tolist()


def test_integers_and_reals_of_the_same_value_are_the_same_row() -> None:
    rows = np.arange(-6, 6)[:, None] * np.ones((1, 4), np.int64)
    ensemble = load_model(model("symmetric")).ensemble
    expected = model("symmetric").calc_leaf_indexes(rows.astype(np.int64))
    assert np.array_equal(ensemble.leaf_ids(rows), expected)
    assert np.array_equal(ensemble.leaf_ids(rows), model("symmetric").calc_leaf_indexes(rows.astype(np.float32)))


def test_the_margin_is_catboosts_raw_value() -> None:
    x, _ = data()
    for kind in ("symmetric", "from the average", "three classes by lossguide"):
        raw = model(kind).predict(x, prediction_type="RawFormulaVal")
        margin = load_model(model(kind)).ensemble.margin(x)
        assert np.allclose(margin.reshape(raw.shape), raw, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("scale", "bias"), [(0.25, -0.125), (0.7, 0.0), (3.0, 0.1), (1e-3, -1e-3)])
def test_scale_and_bias_are_read_exactly(scale: float, bias: float, tmp_path: Path) -> None:
    x, y = data()
    source = catboost.CatBoostClassifier(**SMALL).fit(x, y > 0)
    plain = load_model(source).ensemble.exact_margin(x)
    source.set_scale_and_bias(scale, bias)
    expected = [(Fraction(scale) * margin + Fraction(bias),) for (margin,) in plain]
    for imported in (load_model(source), load_model(exported(source, tmp_path / "model.json"))):
        assert imported.ensemble.exact_margin(x) == expected
        rows = rows_for(imported.ensemble)
        assert imported.native is not None
        assert_conforms(imported.ensemble, rows, source.calc_leaf_indexes(rows), imported.native(rows))


def test_a_margin_of_zero_is_the_negative_class(tmp_path: Path) -> None:
    document = json.loads(exported(model("symmetric"), tmp_path / "model.json").read_text())
    for tree in document["oblivious_trees"]:
        tree["leaf_values"] = [0] * len(tree["leaf_values"])
    imported = load_model(saved(tmp_path / "model.json", document))
    x, _ = data()
    assert imported.native is not None
    assert imported.ensemble.predict(x).tolist() == imported.native(x).tolist() == [0] * N


def test_equal_margins_of_several_classes_are_the_first_of_them(tmp_path: Path) -> None:
    document = json.loads(exported(model("three classes"), tmp_path / "model.json").read_text())
    for tree in document["oblivious_trees"]:
        tree["leaf_values"] = [0.25, 0.5, 0.5] * (len(tree["leaf_values"]) // 3)
    imported = load_model(saved(tmp_path / "model.json", document))
    x, _ = data()
    assert imported.native is not None
    assert imported.ensemble.predict(x).tolist() == imported.native(x).tolist() == [1] * N


@pytest.mark.parametrize(
    "labels", [("no", "yes"), (False, True), (0.5, 1.5), (3, 7), ("c", "a", "b"), (5, 1, 3)], ids=str
)  # fmt: skip
def test_class_labels_are_the_users_in_catboosts_order(labels: tuple[Any, ...], tmp_path: Path) -> None:
    x, y = data()
    y = np.minimum(y, len(labels) - 1)
    source = catboost.CatBoostClassifier(**SMALL).fit(x, [labels[i] for i in y])
    for imported in (load_model(source), load_model(exported(source, tmp_path / "model.json"))):
        assert imported.ensemble.classes == tuple(source.classes_.tolist())
        predicted = [imported.ensemble.classes[c] for c in imported.ensemble.predict(x)]
        assert predicted == source.predict(x).reshape(-1).tolist()
        assert imported.native is not None
        assert imported.native(x).tolist() == imported.ensemble.predict(x).tolist()


def test_a_tree_of_one_leaf_is_read() -> None:
    x, y = data()
    options = {**SMALL, "grow_policy": "Depthwise", "min_data_in_leaf": N}
    source = catboost.CatBoostClassifier(**options).fit(x, y > 0)
    ensemble = load_model(source).ensemble
    assert ensemble.n_nodes == ensemble.n_trees == 3
    assert_conforms(ensemble, x, source.calc_leaf_indexes(x), [int(ensemble.margin(x)[0, 0] > 0)] * N)


def test_columns_of_an_ignored_feature_stay_in_place() -> None:
    x, y = data()
    source = catboost.CatBoostClassifier(**SMALL, ignored_features=[0, 1]).fit(x, y > 0)
    ensemble = load_model(source).ensemble
    assert ensemble.feature_names == ("0", "1", "2", "3")
    assert set(ensemble.feature[ensemble.test != Test.LEAF].tolist()) <= {2, 3}


def refuses(source: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(source)
    assert "\n" not in str(caught.value)


def test_text_and_embedding_features_are_refused() -> None:
    x, y = data()
    words = np.array(["a b", "b c", "c d", "d a"])[np.arange(N) % 4]
    frame = pd.DataFrame({"amount": x[:, 0], "words": words})
    refuses(catboost.CatBoostClassifier(**SMALL, text_features=["words"]).fit(frame, y > 0), "text features")
    frame = pd.DataFrame({"amount": x[:, 0], "place": list(x[:, [0, 1, 3]])})
    refuses(catboost.CatBoostClassifier(**SMALL, embedding_features=["place"]).fit(frame, y > 0), "embedding features")


@pytest.mark.parametrize("loss", ["MultiClassOneVsAll", "Focal:focal_alpha=0.5;focal_gamma=1.0"])
def test_other_losses_are_refused_by_name(loss: str) -> None:
    x, y = data()
    source = catboost.CatBoostClassifier(**SMALL, loss_function=loss).fit(x, (y > 0).astype(int))
    refuses(source, f"params.loss_function: '{loss.partition(':')[0]}' is not supported")


def test_several_numbers_at_once_are_refused() -> None:
    x, _ = data()
    source = catboost.CatBoostRegressor(**SMALL, loss_function="MultiRMSE").fit(x, x[:, :2])
    refuses(source, "params.loss_function: 'MultiRMSE' is not supported")


def test_a_negative_scale_is_refused() -> None:
    x, y = data()
    source = catboost.CatBoostClassifier(**SMALL).fit(x, y > 0)
    source.set_scale_and_bias(-0.7, 0.0)
    refuses(source, r"scale_and_bias\[0\]: -0.7 is not positive")


def test_a_model_that_is_not_fitted_is_refused() -> None:
    refuses(catboost.CatBoostClassifier(**SMALL), "CatBoostClassifier: is not fitted")


def test_a_model_of_one_class_is_refused() -> None:
    x, _ = data()
    source = catboost.CatBoostClassifier(**SMALL, allow_const_label=True).fit(x, np.zeros(N, int))
    refuses(source, "class_names: has 1 entries, expected 2")


def put(*steps: Any) -> Callable[[Any], None]:
    """A change that writes the last of the steps to the place that the others name."""

    def change(document: Any) -> None:
        *path, key, value = steps
        for step in path:
            document = document[step]
        if value is KeyError:
            del document[key]
        else:
            document[key] = value

    return change


TREE_0 = ("oblivious_trees", 0)
SPLIT_0 = (*TREE_0, "splits", 0)
FLOATS = ("features_info", "float_features")
CATS = ("features_info", "categorical_features")
HASHES = ("features_info", "cat_features_hash")
BROKEN: dict[str, tuple[Callable[[Any], None], str]] = {
    "no features": (put("features_info", None), "features_info: expected dict, found None"),
    "no trees": (put("oblivious_trees", KeyError), "oblivious_trees: expected list, found nothing"),
    "empty trees": (put("oblivious_trees", []), "the model has no trees"),
    "both kinds of trees": (put("trees", [{"value": 1}]), "trees: given beside oblivious_trees"),
    "no loss": (put("model_info", "params", "loss_function", KeyError), "params.loss_function: missing"),
    "labels": (put("model_info", "class_params", "class_names", [0]), "class_names: has 1 entries, expected 2"),
    "labels twice": (put("model_info", "class_params", "class_names", ["a", "a"]), "class_names: expected distinct"),
    "name twice": (put(*FLOATS, 0, "feature_id", "rate"), "feature_id: 'rate' occurs twice"),
    "label type": (put("model_info", "class_params", "class_names", [[], {}]), "class_names: expected distinct labels"),
    "border order": (put(*FLOATS, 0, "borders", [1, 0]), r"float_features\[0\].borders\[1\]: 0.0 does not exceed"),
    "huge border": (put(*FLOATS, 0, "borders", [1e300]), r"float_features\[0\].borders\[0\]: inf is not a finite"),
    "text border": (put(*FLOATS, 0, "borders", ["x"]), r"float_features\[0\].borders: expected a list of numbers"),
    "treatment": (put(*FLOATS, 0, "nan_value_treatment", "x"), "nan_value_treatment: 'x', accepted are AsIs"),
    "flat index": (put(*FLOATS, 0, "flat_feature_index", 0), r"flat_feature_index: 0 belongs to another feature"),
    "flat gap": (put(*FLOATS, 0, "flat_feature_index", 9), r"flat_feature_index: the features have \[0, 2, 3, 9\]"),
    "feature index": (put(*FLOATS, 0, "feature_index", 1), r"float_features\[0\].feature_index: 1, expected 0"),
    "hash range": (put(*HASHES, 0, "hash", -1), r"cat_features_hash\[0\].hash: -1 is outside"),
    "hash twice": (put(*HASHES, [{"hash": 1, "value": "a"}, {"hash": 1, "value": "b"}]), "hash: 1 occurs twice"),
    "value twice": (put(*HASHES, [{"hash": 1, "value": "a"}, {"hash": 2, "value": "a"}]), "value 'a' occurs twice"),
    "category hash": (put(*CATS, 0, "values", [2**31]), r"categorical_features\[0\].values\[0\]: expected an integer"),
    "categories twice": (put(*CATS, 0, "values", [1, 1]), r"categorical_features\[0\].values: 1 occurs twice"),
    "leaf count": (put(*TREE_0, "leaf_values", [0.5] * 7), r"trees\[0\].leaf_values: has 7 entries, expected 8"),
    "leaf value": (put(*TREE_0, "leaf_values", ["1"] * 8), r"trees\[0\].leaf_values: expected a list of numbers"),
    "infinite leaf": (put(*TREE_0, "leaf_values", [1e999] * 8), "the number Infinity, which is not JSON"),
    "depth": (put(*TREE_0, "splits", [{}] * 17), r"splits: has 17 entries, at most 16 are accepted"),
    "split type": (put(*SPLIT_0, "split_type", "Text"), r"splits\[0\].split_type: 'Text' is not supported"),
    "split index": (put(*SPLIT_0, "split_index", 99), r"splits\[0\].split_index: 99 is outside"),
    "other split": (put(*SPLIT_0, "split_index", 0), r"splits\[0\].split_index: 0 is .* but the split is"),
    "scale": (put("scale_and_bias", 0, 0), r"scale_and_bias\[0\]: 0 is not positive"),
    "bias": (put("scale_and_bias", 1, [0, 0]), r"scale_and_bias\[1\]: has 2 entries, expected 1"),
    "text features": (put("features_info", "text_features", [{}]), "text_features: text features are not supported"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused_by_name_and_field(what: str, tmp_path: Path) -> None:
    change, message = BROKEN[what]
    document = json.loads(exported_with_values(categorical_model("one-hot"), tmp_path / "model.json").read_text())
    change(document)
    path = saved(tmp_path / "model.json", document)
    refuses(path, message)
    refuses(path, f"^{path}: ")


def nested(depth: int) -> dict[str, Any]:
    tree: dict[str, Any] = {"value": 1.0, "weight": 1}
    split = {"border": 0.5, "float_feature_index": 0, "split_index": 0, "split_type": "FloatFeature"}
    for _ in range(depth):
        tree = {"left": tree, "right": {"value": 0.0, "weight": 1}, "split": split}
    return tree


@pytest.mark.parametrize("depth", [MAX_TREE_DEPTH, MAX_TREE_DEPTH + 1, 200, 100_000])
def test_nested_trees_are_read_up_to_catboosts_own_depth(depth: int, tmp_path: Path) -> None:
    document = json.loads(exported(model("lossguide"), tmp_path / "model.json").read_text())
    document["features_info"]["float_features"][0]["borders"] = [0.5]
    document["trees"] = ["TREE"]
    split = json.dumps(nested(1)["split"])
    text = '{"left":' * depth + '{"value":1}' + f',"right":{{"value":0}},"split":{split}}}' * depth
    path = tmp_path / "deep.json"
    path.write_text(json.dumps(document).replace('"TREE"', text))
    if depth == MAX_TREE_DEPTH:
        assert load_model(path).ensemble.depth() == depth
    else:
        refuses(path, f"deeper than {MAX_TREE_DEPTH}|nested too deeply")


@pytest.mark.parametrize(
    "text", ["{", '{"features_info": {}, "features_info": {}}', '{"features_info": NaN}', '{"features_info"']
)
def test_text_that_is_not_plain_json_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    refuses(path, f"^{path}: ")


def test_mutated_files_are_refused_in_one_line_or_are_sound(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    documents = [json.loads(exported_with_values(categorical_model("one-hot"), path).read_text())]
    documents.append(json.loads(exported(model("three classes by lossguide"), path).read_text()))
    for document in documents:  # hundreds of training options that nobody reads would hide what matters
        document["model_info"] = {
            "params": {"loss_function": document["model_info"]["params"]["loss_function"]},
            "class_params": document["model_info"]["class_params"],
        }
        assert load_model(saved(path, document)).ensemble.n_trees == 3
    outcomes = []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        document = documents[seed % 2]
        if seed % 6 < 4:
            broken, what = mutate_document(document, rng)
            saved(path, broken)
        else:
            what = "bytes"
            path.write_bytes(mutate_bytes(json.dumps(document).encode(), rng))
        outcomes.append(refused_or_sound(lambda: load_model(path), f"seed {seed}: {what}"))
        if outcomes[-1] == "refused" and what != "bytes":
            refuses(path, f"^{path}: ")
    assert outcomes.count("refused") > 300
