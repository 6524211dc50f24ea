"""LightGBM models, live and from text, decide every row as LightGBM does; what cannot be kept exactly is refused."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boxqte.errors import ModelError
from boxqte.models.ensemble import ZERO_BAND, Missing, Test
from boxqte.models.importers import load_model
from boxqte.models.importers.lightgbm import HEADER, TREE
from tests.conformance.mutations import mutate_bytes, mutate_document, refused_or_sound
from tests.conformance.suite import assert_conforms, boundary_rows

lightgbm = pytest.importorskip("lightgbm")

N = 400
SMALL = {
    "verbose": -1,
    "num_threads": 1,
    "num_leaves": 7,
    "min_data_in_leaf": 5,
    "min_data_per_group": 5,
    "cat_smooth": 1.0,
}
RF = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}
KINDS: dict[str, dict[str, Any]] = {
    "missing as NaN": {},
    "missing as zero": {"zero_as_missing": True},
    "no missing": {"use_missing": False},
    "categories": {"categorical": True},
    "categories one against the rest": {"categorical": True, "max_cat_to_onehot": 100, "use_missing": False},
    "categories, missing as zero": {"categorical": True, "zero_as_missing": True},
    "cross entropy": {"objective": "cross_entropy"},
    "three classes": {"objective": "multiclass", "num_class": 3},
    "three classes with categories": {"objective": "multiclass", "num_class": 3, "categorical": True},
    "two classes by softmax": {"objective": "multiclass", "num_class": 2},
    "sigmoid of half the margin": {"sigmoid": 0.5},
    "sigmoid of an odd part of the margin": {"sigmoid": 0.7},
    "random forest of four": RF,
    "random forest of three classes": {**RF, "objective": "multiclass", "num_class": 3},
    "dart": {"boosting": "dart", "drop_rate": 0.9},
    "no start from the average": {"boost_from_average": False},
    "extra trees": {"extra_trees": True},
}


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    """Columns: real, small integers, real with NaN, half zeros, categories; and three classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 5))
    x[:, 1] = np.round(2 * x[:, 1])
    x[::9, 2] = np.nan
    x[:, 3] = np.where(rng.random(N) < 0.5, 0.0, x[:, 3])
    x[:, 4] = rng.integers(0, 70, N)
    score = np.nan_to_num(x[:, 2]) * x[:, 0] + x[:, 1] + x[:, 3] + 2 * (x[:, 4] % 3 == 0)
    return x, np.digitize(score, [0.0, 2.0])


@cache
def booster(kind: str, rounds: int = 4) -> Any:
    options = dict(KINDS[kind])
    categorical = [4] if options.pop("categorical", False) else []
    x, y = data()
    y = np.minimum(y, options.get("num_class", 2) - 1)
    params = {**SMALL, "objective": "binary", **options}
    return lightgbm.train(params, lightgbm.Dataset(x, y, categorical_feature=categorical), rounds)


def text_of(kind: str) -> str:
    text: str = booster(kind).model_to_string()
    return text


def resized(text: str) -> str:
    """The text with tree_sizes that fit its trees, so that a change in a tree is not caught by its length alone."""
    body = text[: text.find("end of trees")] if "end of trees" in text else text
    blocks = re.split(r"(?m)^(?=Tree=)", body)[1:]
    sizes = " ".join(str(len(block.encode())) for block in blocks)
    return re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", text, count=1)


def changed(pattern: str, replacement: str, kind: str = "categories") -> str:
    text, count = re.subn(pattern, replacement, text_of(kind), count=1, flags=re.MULTILINE)
    assert count == 1, f"{pattern!r} does not occur"
    return resized(text)


def saved(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def rows_for(model: Any) -> np.ndarray:
    """The suite's rows, and some with infinities, huge values, fractional and huge codes."""
    rows = boundary_rows(model)
    odd = np.array([np.inf, -np.inf, 1e300, -1e300, -0.5, 0.5, 2.5, -1.5, 2.0**31, 2.0**31 + 1, 2.0**32, -(2.0**31)])
    rng = np.random.default_rng(1)
    extra = rows[rng.integers(len(rows), size=120)].copy()
    extra[np.arange(120), rng.integers(rows.shape[1], size=120)] = rng.choice(odd, 120)
    return np.concatenate([rows, extra])


def test_a_split_that_only_parts_missing_values_from_all_others_is_read() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([np.where(rng.random(300) < 0.2, np.nan, rng.integers(0, 5, 300)), rng.normal(size=300)])
    y = np.isnan(x[:, 0]) ^ (x[:, 1] > 1.0)
    model = lightgbm.LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1, n_jobs=1).fit(x, y)
    assert "threshold=inf" in model.booster_.model_to_string()
    imported = load_model(model)
    rows = boundary_rows(imported.ensemble)
    assert_conforms(imported.ensemble, rows, model.predict(rows, pred_leaf=True), model.predict(rows).astype(int))


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_reaches_lightgbms_own_leaf_and_class(kind: str, tmp_path: Path) -> None:
    live = load_model(booster(kind))
    rows = rows_for(live.ensemble)
    assert live.native is not None
    assert_conforms(live.ensemble, rows, booster(kind).predict(rows, pred_leaf=True), live.native(rows))
    path = saved(tmp_path / "model.txt", text_of(kind))
    read = load_model(path)
    assert read.ensemble.fingerprint() == live.ensemble.fingerprint()
    assert read.native is not None
    assert np.array_equal(read.native(rows), live.native(rows))


def test_the_kinds_cover_every_test_and_every_rule_for_missing_values() -> None:
    models = [load_model(booster(kind)).ensemble for kind in KINDS]
    tests = {Test(t) for model in models for t in model.test.tolist()}
    rules = {Missing(m) for model in models for m in model.missing[model.test == Test.AT_MOST_F64].tolist()}
    assert tests == {Test.LEAF, Test.AT_MOST_F64, Test.IN_SET}
    assert rules == {Missing.DEFAULT, Missing.AS_ZERO, Missing.WITH_ZERO}


@pytest.mark.parametrize(
    "threshold", ["0", "-0", "5e-36", "-5e-36", repr(ZERO_BAND), repr(-ZERO_BAND), "2e-35", "-2e-35"]
)
@pytest.mark.parametrize("decision", [0, 2, 8, 10])
def test_values_that_lightgbm_reads_as_zero_go_where_zero_goes(threshold: str, decision: int, tmp_path: Path) -> None:
    text = changed(
        r"^threshold=\S+ (.*)\ndecision_type=\d+ ", rf"threshold={threshold} \1\ndecision_type={decision} ", "dart"
    )
    model = load_model(saved(tmp_path / "model.txt", text)).ensemble
    feature = int(model.feature[model.roots[0]])
    around = [v for p in (0.0, 5e-36, 1e-35, ZERO_BAND, 2e-35) for v in (p, np.nextafter(p, 1), np.nextafter(p, -1))]
    rows = np.tile(data()[0][0], (2 * len(around) + 1, 1))
    rows[:, feature] = [*around, *(-v for v in around), np.nan]
    assert_conforms(model, rows, lightgbm.Booster(model_str=text).predict(rows, pred_leaf=True))


def test_only_the_trees_up_to_the_best_iteration_are_read() -> None:
    x, y = data()
    train = lightgbm.Dataset(x[:300], y[:300] > 0)
    model = lightgbm.train(
        {**SMALL, "objective": "binary", "learning_rate": 0.9}, train, 60,
        valid_sets=[lightgbm.Dataset(x[300:], y[300:] > 0, reference=train)],
        callbacks=[lightgbm.early_stopping(3, verbose=False)], keep_training_booster=True,
    )  # fmt: skip
    imported = load_model(model)
    assert 0 < model.best_iteration < model.num_trees()
    assert imported.ensemble.n_trees == model.best_iteration
    rows = rows_for(imported.ensemble)
    assert_conforms(
        imported.ensemble, rows, model.predict(rows, pred_leaf=True), (model.predict(rows) > 0.5).astype(int)
    )


def test_a_model_of_single_leaves_is_read() -> None:
    x, y = data()
    model = lightgbm.train({**SMALL, "objective": "binary", "min_data_in_leaf": N}, lightgbm.Dataset(x, y > 0), 2)
    imported = load_model(model)
    assert imported.ensemble.n_leaves == imported.ensemble.n_nodes == imported.ensemble.n_trees
    assert_conforms(imported.ensemble, x, model.predict(x, pred_leaf=True), (model.predict(x) > 0.5).astype(int))


def test_a_single_leaf_beside_larger_trees_is_read() -> None:
    x, y = data()
    rare = np.where(np.arange(N) < 3, 2, np.minimum(y, 1))
    params = {**SMALL, "objective": "multiclass", "num_class": 3, "min_sum_hessian_in_leaf": 5.0}
    model = lightgbm.train(params, lightgbm.Dataset(x, rare), 2)
    imported = load_model(model)
    assert 1 in np.bincount(imported.ensemble.tree_of_node())
    rows = rows_for(imported.ensemble)
    assert_conforms(imported.ensemble, rows, model.predict(rows, pred_leaf=True), model.predict(rows).argmax(axis=1))


@pytest.mark.parametrize(
    ("kind", "scale"), [("sigmoid of half the margin", 0.5), ("sigmoid of an odd part of the margin", 0.7)]
)
def test_a_sigmoid_parameter_scales_the_margin_exactly(kind: str, scale: float) -> None:
    x, _ = data()
    raw = booster(kind).predict(x, raw_score=True)
    ensemble = load_model(booster(kind)).ensemble
    assert ensemble.scale == Fraction(scale)
    assert np.array_equal(ensemble.margin(x)[:, 0], raw * scale)


@pytest.mark.parametrize("rounds", [1, 3, 4, 7])
def test_the_margin_of_a_random_forest_is_the_mean_of_its_trees(rounds: int) -> None:
    x, _ = data()
    forest = booster("random forest of four", rounds)
    imported = load_model(forest)
    assert imported.ensemble.scale == Fraction(1, rounds)
    probability = forest.predict(x)
    assert np.allclose(1 / (1 + np.exp(-imported.ensemble.margin(x)[:, 0])), probability, rtol=1e-14, atol=0)
    rows = rows_for(imported.ensemble)
    assert imported.native is not None
    assert_conforms(imported.ensemble, rows, forest.predict(rows, pred_leaf=True), imported.native(rows))


def test_a_sigmoid_that_lightgbm_does_not_save_in_full_is_refused_live_and_read_from_the_file(tmp_path: Path) -> None:
    # While it is still in training the booster computes with 0.123456789; saved, it computes with 0.123457.
    x, y = data()
    model = lightgbm.train(
        {**SMALL, "objective": "binary", "sigmoid": 0.123456789},
        lightgbm.Dataset(x, y > 0),
        2,
        keep_training_booster=True,
    )
    with pytest.raises(ModelError, match=r"sigmoid: 0\.123456789, which LightGBM itself saves as 0\.123457"):
        load_model(model)
    path = saved(tmp_path / "model.txt", model.model_to_string())
    assert load_model(path).ensemble.scale == Fraction(0.123457)


def test_a_margin_that_vanishes_in_the_probability_is_within_the_rounding_error(tmp_path: Path) -> None:
    # 2**-53 is a positive margin, but 1 / (1 + exp(-2**-53)) is exactly 1/2: LightGBM's class is the negative one.
    text = re.sub(r"(?m)^leaf_value=.*$", lambda m: re.sub(r"[^ =]+(?= |$)", repr(2.0**-55), m[0]), text_of("dart"))
    imported = load_model(saved(tmp_path / "model.txt", resized(text)))
    x, _ = data()
    assert imported.native is not None
    assert imported.native(x).tolist() == [0] * N
    assert imported.ensemble.predict(x).tolist() == [1] * N
    assert {margin for (margin,) in imported.ensemble.exact_margin(x)} == {Fraction(1, 2**53)}
    assert Fraction(1, 2**53) < imported.ensemble.rounding_error() < Fraction(1, 2**50)


def test_a_probability_of_one_half_is_the_negative_class(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^leaf_value=.*$", lambda m: re.sub(r"[^ =]+(?= |$)", "0", m[0]), text_of("dart"))
    imported = load_model(saved(tmp_path / "model.txt", resized(text)))
    x, _ = data()
    assert imported.native is not None
    assert imported.ensemble.predict(x).tolist() == imported.native(x).tolist() == [0] * N


def frame() -> pd.DataFrame:
    x, _ = data()
    colours = pd.Categorical.from_codes(x[:, 4].astype(int) % 4, ["red", "green", "blue", "grey"])
    sizes = pd.Categorical.from_codes(x[:, 4].astype(int) % 3, [10, 20, 30])
    return pd.DataFrame({"amount": x[:, 0], "colour": colours, "count": x[:, 1], "size": sizes})


def classifier(**options: Any) -> Any:
    params = {
        "n_estimators": 4,
        "num_leaves": 7,
        "min_child_samples": 5,
        "n_jobs": 1,
        "verbose": -1,
        "min_data_per_group": 5,
    }
    return lightgbm.LGBMClassifier(**{**params, **options})


def test_a_classifier_keeps_its_labels_and_its_pandas_categories() -> None:
    table, (_, y) = frame(), data()
    model = classifier().fit(table, np.array(["no", "yes"])[np.minimum(y, 1)])
    imported = load_model(model)
    assert imported.ensemble.feature_names == ("amount", "colour", "count", "size")
    assert imported.ensemble.classes == ("no", "yes")
    assert imported.ensemble.categories == {1: ("red", "green", "blue", "grey"), 3: (10, 20, 30)}
    codes = table.assign(colour=table["colour"].cat.codes, size=table["size"].cat.codes).to_numpy(np.float64)
    assert_conforms(imported.ensemble, codes, model.booster_.predict(table, pred_leaf=True))
    assert [imported.ensemble.classes[c] for c in imported.ensemble.predict(codes)] == model.predict(table).tolist()


def test_categories_are_left_out_where_the_file_does_not_say_whose_they_are() -> None:
    table, (_, y) = frame(), data()
    table["size"] = table["size"].cat.as_ordered()  # LightGBM lists its values but takes its codes for numbers
    assert load_model(classifier().fit(table, np.minimum(y, 1))).ensemble.categories == {}


def test_a_file_without_tree_sizes_is_read(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^tree_sizes=.*\n", "", text_of("categories"))
    read = load_model(saved(tmp_path / "model.txt", text))
    assert read.ensemble.fingerprint() == load_model(booster("categories")).ensemble.fingerprint()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "squared sums": ({"objective": "regression", "reg_sqrt": True}, "objective: 'regression sqrt' squares the sum"),
    "one against all": ({"objective": "multiclassova", "num_class": 3}, "objective: 'multiclassova'"),
    "cross entropy with weights": ({"objective": "cross_entropy_lambda"}, "objective: 'cross_entropy_lambda'"),
    "linear trees": ({"objective": "binary", "linear_tree": True}, "is_linear: 1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_model_without_an_exact_counterpart_is_refused_by_its_field(what: str) -> None:
    params, message = REFUSED[what]
    x, y = data()
    y = np.minimum(y, params.get("num_class", 2) - 1)
    with pytest.raises(ModelError, match=message):
        load_model(lightgbm.train({**SMALL, **params}, lightgbm.Dataset(x[:, :4], y), 3))


def test_a_custom_objective_is_refused() -> None:
    x, y = data()

    def squared(raw: np.ndarray, train: Any) -> tuple[np.ndarray, np.ndarray]:
        return raw - train.get_label(), np.ones(N)

    with pytest.raises(ModelError, match="objective: missing, as for a custom objective"):
        load_model(lightgbm.train({**SMALL, "objective": squared}, lightgbm.Dataset(x, y), 2))


def test_a_classifier_that_is_not_fitted_is_refused() -> None:
    with pytest.raises(ModelError, match=r"LGBMClassifier: is not fitted"):
        load_model(classifier())


def test_a_classifier_of_one_class_is_refused() -> None:
    table, _ = frame(), data()
    with pytest.raises(ModelError, match="classes_: has 1 entries, expected 2"):
        load_model(classifier().fit(table, np.zeros(N)))


def test_a_classifier_that_stops_summing_early_is_refused() -> None:
    table, (_, y) = frame(), data()
    with pytest.raises(ModelError, match="pred_early_stop"):
        load_model(classifier(pred_early_stop=True).fit(table, np.minimum(y, 1)))


BROKEN: dict[str, tuple[str, str, str]] = {
    "version": (r"^version=v4", "version=v9", "version: 'v9' is not read"),
    "no version": (r"^version=v4\n", "", "version: missing"),
    "unknown header": (r"^label_index=", "label_inde=", "'label_inde' is not a field"),
    "header twice": (r"^num_class=1\n", "num_class=1\nnum_class=1\n", "num_class: occurs twice"),
    "classes": (r"^num_class=1", "num_class=2", "num_class: 2"),
    "huge class count": (r"^num_class=1", "num_class=2147483648", "num_class: 2147483648 is outside"),
    "features": (r"^max_feature_idx=4", "max_feature_idx=5", "feature_names: has 5 entries, expected 6"),
    "feature infos": (r"^(feature_infos=.*) \S+$", r"\1", "feature_infos: has 4 entries"),
    "feature name twice": (r"^feature_names=Column_0", "feature_names=Column_1", "feature_names: 'Column_1' occurs"),
    "objective": (r"^objective=binary sigmoid:1", "objective=", "objective: ''"),
    "sigmoid twice": (r"^objective=binary", "objective=binary sigmoid:2", "expected binary sigmoid:<number>"),
    "no sigmoid": (r"^objective=binary sigmoid:1", "objective=binary", "expected binary sigmoid:<number>"),
    "negative sigmoid": (r"sigmoid:1$", "sigmoid:-1", "objective.sigmoid: -1.0 is not positive"),
    "tree number": (r"^Tree=2", "Tree=7", "'Tree=7' found where 'Tree=2' was expected"),
    "huge leaf count": (r"^num_leaves=7", "num_leaves=2147483647", "num_leaves: 2147483647 is outside"),
    "leaf count": (r"^num_leaves=7", "num_leaves=8", r"Tree=0.leaf_value: has 7 entries, expected 8"),
    "negative leaf count": (r"^num_leaves=7", "num_leaves=-7", "num_leaves: -7 is outside"),
    "NaN threshold": (r"^threshold=\S+", "threshold=nan", r"threshold\[0\]: expected a finite number, found 'nan'"),
    "infinite threshold": (r"^threshold=\S+", "threshold=-inf", r"threshold\[0\]: expected a finite"),
    "overflowing threshold": (r"^threshold=\S+", "threshold=1e999", r"threshold\[0\]: expected a finite"),
    "underscored threshold": (r"^threshold=\S+", "threshold=1_0", r"threshold\[0\]: expected a finite"),
    "NaN leaf": (r"^leaf_value=\S+", "leaf_value=nan", r"leaf_value\[0\]: expected a finite"),
    "feature": (r"^split_feature=\d+", "split_feature=5", r"split_feature\[0\]: 5 is outside 0..4"),
    "negative feature": (r"^split_feature=\d+", "split_feature=-1", r"split_feature\[0\]: -1 is outside 0..4"),
    "missing rule": (r"^decision_type=\d+", "decision_type=12", r"decision_type\[0\]: 12 is outside 0..11"),
    "own child": (r"^left_child=\S+", "left_child=0", "left_child/right_child: node 0 has more than one parent"),
    "child": (r"^left_child=\S+", "left_child=6", r"left_child\[0\]: 6 is outside -7..5"),
    "leaf child": (r"^right_child=\S+", "right_child=-8", r"right_child\[0\]: -8 is outside -7..5"),
    "huge child": (r"^right_child=\S+", "right_child=99999999999", r"right_child\[0\]: expected an integer"),
    "real child": (r"^right_child=\S+", "right_child=1.5", r"right_child\[0\]: expected an integer, found '1.5'"),
    "lost field": (r"^decision_type=.*\n", "", "decision_type: missing"),
    "unknown tree field": (r"^shrinkage=", "shrinkag=", "'shrinkag' is not a field"),
    "tree field twice": (r"^shrinkage=1\n", "shrinkage=1\nshrinkage=1\n", "shrinkage: occurs twice"),
    "empty line": (r"^decision_type=", "\ndecision_type=", "Tree=0: has an empty line among its fields"),
    "category count": (r"^num_cat=[1-9]\d*", "num_cat=0", "num_cat: 0, but decision_type marks"),
    "bitset bounds": (r"^cat_boundaries=0 \d+", "cat_boundaries=0 9", "cat_boundaries: do not rise from 0"),
    "bitset word": (r"^cat_threshold=\S+", "cat_threshold=4294967296", r"cat_threshold\[0\]: 4294967296 is outside"),
    "lost bitsets": (r"^cat_threshold=.*\n", "", "cat_threshold: missing"),
    "truncated": (r"(?s)^end of trees.*", "", "'end of trees' is missing; the file is truncated"),
    "no trees": (r"(?s)^Tree=0.*^end of trees", "end of trees", "Tree=0: missing"),
    "category values": (r"^pandas_categorical:.*", 'pandas_categorical:[["a",', "pandas_categorical: is not JSON"),
    "category value": (r"^pandas_categorical:.*", "pandas_categorical:[[[]]]", r"pandas_categorical\[0\]"),
    "null byte": (r"^label_index=", "label\0_index=", "NUL characters"),
    "Windows line ends": (r"^version=v4\n", "version=v4\r\n", "Windows line ends"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused_by_name_and_field(what: str, tmp_path: Path) -> None:
    pattern, replacement, message = BROKEN[what]
    path = saved(tmp_path / "model.txt", changed(pattern, replacement))
    with pytest.raises(ModelError, match=message) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_faults_in_fields_that_decide_nothing_do_not_reach_lightgbm(tmp_path: Path) -> None:
    text = changed(r"^leaf_weight=\S+", "leaf_weight=[]")  # LightGBM 4.7 aborts the process over this
    text = re.sub(r"(?m)^\[num_leaves: .*$", "[num_leaves: x]", text)
    imported = load_model(saved(tmp_path / "model.txt", text))
    x, _ = data()
    assert imported.native is not None
    assert imported.native(x).tolist() == (booster("categories").predict(x) > 0.5).tolist()


def test_tree_sizes_that_do_not_fit_the_trees_are_refused(tmp_path: Path) -> None:
    text = text_of("categories").replace("leaf_value=", "leaf_value=0", 1)
    with pytest.raises(ModelError, match=r"tree_sizes\[0\]: \d+, but Tree=0 takes \d+ bytes"):
        load_model(saved(tmp_path / "model.txt", text))


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_bytes(b"tree\nversion=v4\n\xff\xfe")
    with pytest.raises(ModelError, match="byte 16 is not UTF-8 text"):
        load_model(path)


def as_document(text: str) -> dict[str, Any]:
    """The text as nested lists of numbers, so that the shared mutations can break it where it hurts."""

    def value(field: str) -> Any:
        try:
            return [json.loads(word) for word in field.split(" ")]
        except ValueError:
            return field

    head, *trees = re.split(r"(?m)^Tree=\d+\n", text[: text.index("end of trees")])
    parts = [dict(line.partition("=")[::2] for line in part.split("\n") if "=" in line) for part in (head, *trees)]
    header, *blocks = [{key: value(field) for key, field in part.items()} for part in parts]
    return {"header": header, "trees": blocks}


def as_text(document: Any) -> str:
    """The text of a document that may have anything in any place."""

    def line(value: Any) -> str:
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)

    def lines(fields: Any) -> str:
        return "".join(f"{k}={line(v)}\n" for k, v in fields.items()) if isinstance(fields, dict) else f"{fields}\n"

    trees = document.get("trees", [])
    blocks = "".join(f"Tree={i}\n{lines(t)}\n\n" for i, t in enumerate(trees if isinstance(trees, list) else [trees]))
    return f"tree\n{lines(document.get('header', {}))}\n{blocks}end of trees\n\npandas_categorical:null\n"


def broken_lines(text: str, rng: np.random.Generator) -> str:
    """A line lost, doubled or moved, a number or a word replaced, or the end cut off."""
    lines = text[: text.index("feature_importances")].split("\n")
    at, other = (int(i) for i in rng.integers(1, len(lines), 2))
    kind = int(rng.integers(5))
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        words = re.split(r"([ =])", lines[at])
        bad = ("nan", "inf", "-inf", "1e999", "-1", "0", "", "4294967296", "9" * 400, "1_0", "٣", "x", "2147483647")
        words[rng.integers(len(words))] = bad[rng.integers(len(bad))]
        lines[at] = "".join(words)
    else:
        lines = lines[:at]
    return "\n".join(lines)


@pytest.mark.parametrize("kind", ["categories", "three classes with categories"])
def test_mutated_files_are_refused_in_one_line_or_are_sound(kind: str, tmp_path: Path) -> None:
    text = text_of(kind)
    document = as_document(text)
    path = tmp_path / "model.txt"
    assert (
        load_model(saved(path, resized(as_text(document)))).ensemble.n_trees
        == load_model(booster(kind)).ensemble.n_trees
    )
    outcomes = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        if seed % 3 == 0:
            broken, what = mutate_document(document, rng)
            saved(path, resized(as_text(broken)))
        elif seed % 3 == 1:
            what = "lines"
            saved(path, resized(broken_lines(text, rng)))
        else:
            what = "bytes"
            path.write_bytes(mutate_bytes(text.encode(), rng))
        outcomes.append(refused_or_sound(lambda: load_model(path), f"seed {seed}: {what}"))
        if outcomes[-1] == "refused" and what != "bytes":
            assert names_a_field(path), f"seed {seed}: {what}"
    assert outcomes.count("refused") > 150


def names_a_field(path: Path) -> bool:
    """Whether the refusal says in which file and which field the fault is."""
    with pytest.raises(ModelError) as caught:
        load_model(path)
    message = str(caught.value)
    fields = (*HEADER, *TREE, "Tree=", "end of trees", "is not a field")
    return message.startswith(f"{path}: ") and any(field in message for field in fields)
