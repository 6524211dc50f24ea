"""A pipeline is read as a model of the user's own columns, and decides every row as the pipeline itself does."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from hypothesis import HealthCheck, given, reject, settings
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from boxqte import Attribute, Fairness, Space, quantify
from boxqte.errors import ModelError
from boxqte.models import pullback
from boxqte.models.ensemble import Test
from boxqte.models.floats import floats_of, keys_of
from boxqte.models.importers import ImportedModel, load_model
from tests.conformance.pipelines import (
    FINAL,
    NO_MISSING,
    READ,
    REFUSED,
    Kind,
    as_table,
    bins,
    own_classes,
    own_leaves,
    people,
    takes_missing,
    unfair_share,
)
from tests.conformance.random_pipelines import pipelines
from tests.conformance.suite import assert_conforms, boundary_rows

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings(
        "ignore::RuntimeWarning", "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
    ),
]


def pipeline_conforms(
    pipeline: Any, like: pd.DataFrame, low: float = -1e30, high: float = 1e30, n_random: int = 100
) -> ImportedModel:
    """Leaf ids and classes on every threshold, one ulp to each side, and missing values where the pipeline takes them."""
    imported = load_model(pipeline)
    ensemble = imported.ensemble
    rows = boundary_rows(ensemble, n_random=n_random, unseen=False)
    rng = np.random.default_rng(0)
    for feature, name in enumerate(ensemble.feature_names):
        if not takes_missing(pipeline, like, name):
            absent = np.isnan(rows[:, feature])
            rows[absent, feature] = rng.choice(rows[~absent, feature], absent.sum())
        if feature in ensemble.categories:
            rows[:, feature] = np.minimum(rows[:, feature], len(ensemble.categories[feature]) - 1)
        else:
            rows[:, feature] = np.clip(rows[:, feature], low, high)
    rows = np.unique(rows, axis=0)
    table = as_table(ensemble, rows, like)
    classes = own_classes(pipeline, table)
    assert_conforms(ensemble, rows, own_leaves(pipeline, table), classes)
    assert imported.native is not None
    np.testing.assert_array_equal(imported.native(rows), classes)
    return imported


def measure_is_the_oracle_s(pipeline: Any, imported: ImportedModel, low: float) -> None:
    """The share of unfair inputs on a small space, against plain loops over it with the pipeline's own predict."""
    numbers = {"empty": range(1), "age": range(20, 32), "gain": range(-3, 4), "dose": range(1, 5), "level": (1, 5, 9)}
    ensemble = imported.ensemble
    attributes, domains = [], {}
    for feature, name in enumerate(ensemble.feature_names):
        values = ensemble.categories.get(feature)
        if values is not None:
            attributes.append(Attribute.categorical(name, values))
        else:
            values = [v for v in numbers[name] if v >= low]
            attributes.append(Attribute.integer(name, values[0], values[-1]))
            values = range(values[0], values[-1] + 1)
        domains[name] = list(values)
    frame = pipeline.feature_names_in_ if hasattr(pipeline, "feature_names_in_") else ensemble.feature_names
    domains |= {name: [_any(name)] for name in frame if name not in domains}
    if "sex" not in ensemble.feature_names:
        return
    result = quantify(imported, Space(attributes), Fairness("sex"), engine="exhaustive")
    assert result.exact == 1 - unfair_share(pipeline, {name: domains[name] for name in frame}, "sex")


def _any(name: str) -> Any:
    return next(iter(people()[0][name].dropna()), np.nan)


FINALS = [name for name in FINAL if name not in NO_MISSING]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.name, marks=[pytest.mark.slow] if kind.slow else []) for kind in READ]
)
def test_a_pipeline_decides_as_its_own_predict(kind: Kind) -> None:
    final = kind.final or FINALS[READ.index(kind) % len(FINALS)]
    pipeline = kind.fitted(final)
    imported = pipeline_conforms(pipeline, people()[0][list(kind.columns)], max(kind.low, -1e30))
    if kind.classes == 2:
        measure_is_the_oracle_s(pipeline, imported, kind.low)


def random_pipeline_conforms(given: tuple[Any, list[str]]) -> None:
    pipeline, columns = given
    frame, y = people(150)
    try:
        pipeline.fit(frame[columns], y)
    except ValueError as error:  # infinities, nothing left to select, a column of one value
        reject()
        raise AssertionError from error
    imported = pipeline_conforms(pipeline, frame[columns], low=-1e3, high=1e3, n_random=50)
    measure_is_the_oracle_s(pipeline, imported, -np.inf)


@pytest.mark.slow
@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.name)
@pytest.mark.parametrize("final", ["HistGradientBoosting", "LightGBM", "CatBoost"])
def test_a_pipeline_decides_as_its_own_predict_whatever_model_ends_it(kind: Kind, final: str) -> None:
    """These three take infinite numbers, which XGBoost and scikit-learn's trees refuse."""
    pipeline_conforms(kind.fitted(final), people()[0][list(kind.columns)], max(kind.low, -1e30))


@given(pipelines())
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_pipelines_decide_as_their_own_predict(given: tuple[Any, list[str]]) -> None:
    random_pipeline_conforms(given)


@pytest.mark.slow
@given(pipelines())
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_fifty_random_pipelines_decide_as_their_own_predict(given: tuple[Any, list[str]]) -> None:
    random_pipeline_conforms(given)


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.name)
def test_a_step_that_is_not_read_is_refused_by_name_with_the_way_out(kind: Kind) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(kind.fitted("RandomForest"))
    assert kind.refused in str(caught.value)
    assert "`boxqte test` (boxqte.find_idis) takes any model" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


# ---------------------------------------------------------------------------------------------------------------------
# What each step does is found where it is done


def kind_named(name: str) -> Kind:
    return next(kind for kind in READ if kind.name == name)


ROUGH = [
    "FunctionTransformer(numpy.cbrt)",
    "FunctionTransformer(numpy.log1p)",
    "PowerTransformer('yeo-johnson')",
    "QuantileTransformer(output_distribution='normal')",
    "scaled, root, bins as one-hot",
]


@pytest.mark.parametrize("name", [ROUGH[0], *(pytest.param(name, marks=pytest.mark.slow) for name in ROUGH[1:])])
def test_around_every_threshold_each_single_float_goes_where_the_library_sends_it(name: str) -> None:
    """These functions are computed with an error: among neighbouring floats the test may change more than once."""
    kind = kind_named(name)
    pipeline = kind.fitted("HistGradientBoosting")
    ensemble = load_model(pipeline).ensemble
    like = people()[0][list(kind.columns)]
    rows = []
    for node in np.flatnonzero(ensemble.test == Test.AT_MOST_F64):
        around = keys_of([ensemble.threshold[node]]) + np.arange(-150, 151)
        block = np.tile(np.nan_to_num(boundary_rows(ensemble, n_random=1, unseen=False)[-1]), (len(around), 1))
        block[:, ensemble.feature[node]] = floats_of(around)
        rows.append(block[np.abs(floats_of(around)) < 1e30])
    table = as_table(ensemble, np.concatenate(rows), like)
    np.testing.assert_array_equal(ensemble.leaf_ids(np.concatenate(rows)), own_leaves(pipeline, table))


@pytest.mark.parametrize("behind", [[], [StandardScaler()]], ids=["alone", "scaled"])
def test_a_cube_root_that_is_not_monotone_gives_a_threshold_more_than_one_end(behind: list[Any]) -> None:
    x = np.exp(np.random.default_rng(0).normal(size=400) * 3)[:, None]  # behind a scaler small ones round coarsely
    model = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2)
    pipeline = make_pipeline(FunctionTransformer(np.cbrt), *behind, model)
    pipeline.fit(x, np.argsort(np.argsort(x[:, 0])) // 7 % 2)
    inner, ours = load_model(pipeline[-1]).ensemble, load_model(pipeline).ensemble
    steps = floats_of(keys_of(x[:, 0])[:, None] + np.arange(-400, 401))
    if (np.diff(pipeline[:-1].transform(steps.reshape(-1, 1)).reshape(steps.shape), axis=1) < 0).any():
        assert ours.n_nodes > inner.n_nodes  # numpy has several cube roots; which one it takes depends on the processor
    cuts = np.unique(ours.threshold[ours.test != Test.LEAF])
    cuts = cuts[np.abs(cuts) < 1e300]  # the largest float parts missing values from all others
    keys = np.unique(np.concatenate([keys_of(cuts) + step for step in range(-400, 401)]))
    rows = floats_of(keys)[:, None]
    np.testing.assert_array_equal(ours.leaf_ids(rows), own_leaves(pipeline, rows))


FLAT: dict[str, tuple[Any, Any]] = {
    "exp of numbers near 0": (lambda: [FunctionTransformer(np.exp)], lambda normal: normal * 1e-5),
    "exp of scaled numbers": (lambda: [StandardScaler(), FunctionTransformer(np.exp)], lambda normal: normal + 1),
    "cbrt of scaled numbers": (lambda: [StandardScaler(), FunctionTransformer(np.cbrt)], lambda normal: normal * 1e-3),
    "cbrt on plateaus": (
        lambda: [MinMaxScaler((1, 2)), FunctionTransformer(np.cbrt)],
        lambda normal: np.exp(normal * 6),
    ),
    "scaled cbrt": (lambda: [FunctionTransformer(np.cbrt), StandardScaler()], lambda normal: np.exp(normal * 3)),
    "normal quantile": (lambda: [normal_quantile()], lambda normal: np.exp(normal * 4)),
    "normal quantile on plateaus": (
        lambda: [MinMaxScaler((1, 2)), normal_quantile()],
        lambda normal: np.exp(normal * 6),
    ),
    "yeo-johnson near 0": (lambda: [PowerTransformer()], lambda normal: normal * 1e-4),
    "log1p": (lambda: [FunctionTransformer(np.log1p)], lambda normal: np.exp(normal * 8)),
    "tanh": (lambda: [FunctionTransformer(np.tanh)], lambda normal: normal * 5),
}


def normal_quantile() -> QuantileTransformer:
    return QuantileTransformer(n_quantiles=50, output_distribution="normal")


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAT)
def test_far_around_a_threshold_floats_go_where_the_library_sends_them(name: str) -> None:
    """Where floats are dense, or a step before rounds coarsely, the reach of a rounding error is millions of floats."""
    steps, numbers = FLAT[name]
    rng = np.random.default_rng(0)
    x = numbers(rng.normal(size=500))[:, None]
    pipeline = make_pipeline(*steps(), HistGradientBoostingClassifier(max_iter=4, min_samples_leaf=2))
    ensemble = load_model(pipeline.fit(x, np.argsort(np.argsort(x[:, 0])) // 7 % 2)).ensemble
    cuts = np.unique(ensemble.threshold[ensemble.test != Test.LEAF])
    for reach in (2**8, 2**12, 2**16, 2**20, 2**30):
        steps_away = rng.integers(-reach, reach, (len(cuts), 400))
        keys = np.unique((keys_of(cuts)[:, None] + steps_away)[np.abs(cuts) < 1e300])
        rows = floats_of(keys)[:, None]
        np.testing.assert_array_equal(ensemble.leaf_ids(rows), own_leaves(pipeline, rows))


def test_zeros_that_a_sparse_matrix_does_not_store_are_missing_to_xgboost() -> None:
    frame, y = people()
    columns = ["gain", "dose", "job", "sex"]
    before = ColumnTransformer(
        [
            ("hot", OneHotEncoder(), ["job", "sex"]),
            ("same", "passthrough", ["gain"]),
            ("scaled", MaxAbsScaler(), ["dose"]),
        ],
        sparse_threshold=1.0,
    )
    pipeline = make_pipeline(before, XGBClassifier(n_estimators=5, max_depth=4, n_jobs=1)).fit(frame[columns], y)
    assert pipeline[0].sparse_output_
    imported = pipeline_conforms(pipeline, frame[columns])
    dense = make_pipeline(before, FunctionTransformer(lambda x: x.toarray(), accept_sparse=True), pipeline[-1])
    rows = np.unique(boundary_rows(imported.ensemble, unseen=False, missing=False), axis=0)
    table = as_table(imported.ensemble, rows, frame[columns])
    assert (own_leaves(dense, table) != own_leaves(pipeline, table)).any(), "stored zeros would not have differed"


def test_an_ordinal_code_that_histogram_boosting_never_saw_is_missing_to_it() -> None:
    frame, y = people()
    order = [["clerk", "none", "farmer", "teacher"], ["m", "f"]]
    encoder = ColumnTransformer([("o", OrdinalEncoder(categories=order), ["job", "sex"])], remainder="passthrough")
    seen = (frame["job"] != "none") & frame["job"].notna()
    columns = ["job", "sex", "age"]
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features=[0, 1], min_samples_leaf=5)
    imported = pipeline_conforms(make_pipeline(encoder, model).fit(frame.loc[seen, columns], y[seen]), frame[columns])
    assert imported.ensemble.categories == {0: tuple(order[0]), 1: ("m", "f")}


def test_bins_that_histogram_boosting_takes_for_categories_are_intervals() -> None:
    frame, y = people()
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features=[0, 1], min_samples_leaf=5)
    pipeline_conforms(make_pipeline(bins("ordinal", 6), model).fit(frame[["gain", "dose"]], y), frame[["gain", "dose"]])


@pytest.mark.parametrize("final", ["HistGradientBoosting", "XGBoost", "LightGBM"])
def test_categories_of_a_data_frame_are_passed_through_to_the_model(final: str) -> None:
    frame, y = people()
    frame = frame[["job", "sex", "age"]].astype({"job": "category"})
    before = ColumnTransformer(
        [("same", "passthrough", ["job"]), ("sex", OrdinalEncoder(), ["sex"]), ("scaled", StandardScaler(), ["age"])],
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    model = FINAL[final]() if final != "XGBoost" else XGBClassifier(n_estimators=3, n_jobs=1, enable_categorical=True)
    pipeline = make_pipeline(before, model).fit(frame, y)
    imported = load_model(pipeline)
    assert imported.ensemble.categories[0] == ("clerk", "farmer", "none", "teacher")
    rows = np.unique(boundary_rows(imported.ensemble, unseen=False), axis=0)
    rows = rows[~np.isnan(rows[:, 1])]
    table = as_table(imported.ensemble, rows, frame)
    table["job"] = pd.Categorical(table["job"], categories=frame["job"].cat.categories)
    assert_conforms(imported.ensemble, rows, own_leaves(pipeline, table), own_classes(pipeline, table))
    assert imported.native is not None
    np.testing.assert_array_equal(imported.native(rows), own_classes(pipeline, table))


def test_columns_without_names_are_numbered() -> None:
    frame, y = people()
    numbers = frame[["gain", "dose"]].to_numpy()
    imported = load_model(make_pipeline(StandardScaler(), FINAL["XGBoost"]()).fit(numbers, y))
    assert imported.ensemble.feature_names == ("x0", "x1")
    mixed = frame[["gain", "sex"]].to_numpy(object)
    before = ColumnTransformer([("hot", OneHotEncoder(), [1])], remainder=RobustScaler())
    pipeline = make_pipeline(before, FINAL["RandomForest"]()).fit(mixed, y)
    imported = load_model(pipeline)
    assert imported.ensemble.categories == {1: ("f", "m")}
    rows = np.unique(boundary_rows(imported.ensemble, unseen=False, missing=False), axis=0)
    values = rows.astype(object)
    values[:, 1] = np.array(["f", "m"])[rows[:, 1].astype(int)]
    classes = pipeline.predict(values)
    assert_conforms(imported.ensemble, rows, own_leaves(pipeline, values), classes)
    assert imported.native is not None
    np.testing.assert_array_equal(imported.native(rows), classes)


def test_what_an_imputer_takes_for_missing_is_a_value_of_the_column() -> None:
    imported = load_model(kind_named("SimpleImputer(missing_values='?')").fitted("RandomForest"))
    assert imported.ensemble.categories[0] == ("north", "south", "?")


def test_a_pipeline_of_nothing_but_a_model_is_that_model() -> None:
    frame, y = people()
    x = frame[["gain", "dose"]].to_numpy()
    pipeline = make_pipeline("passthrough", FunctionTransformer(), FINAL["XGBoost"]()).fit(x, y)
    assert load_model(pipeline).ensemble.fingerprint() == load_model(pipeline[-1]).ensemble.fingerprint()


def test_columns_that_do_not_reach_the_model_are_not_its_columns() -> None:
    frame, y = people()
    before = ColumnTransformer(
        [("gone", "drop", ["job"]), ("one", OneHotEncoder(drop="first", categories=[["m", "f"]]), ["sex"])],
        remainder=make_pipeline(SimpleImputer(), StandardScaler(), SelectKBest(k=1)),
    )
    pipeline = make_pipeline(before, FINAL["RandomForest"]()).fit(frame[["job", "sex", "age", "gain", "dose"]], y)
    imported = load_model(pipeline)
    chosen = ["age", "gain", "dose"][int(pipeline[0].named_transformers_["remainder"][-1].get_support(indices=True)[0])]
    assert imported.ensemble.feature_names == ("sex", chosen)
    assert imported.native is not None
    rows = np.array([[0.0, 1.0], [1.0, -3.0]])
    assert imported.native(rows).tolist() == imported.ensemble.predict(rows).tolist()


# ---------------------------------------------------------------------------------------------------------------------
# Refusals and files


def test_a_number_that_a_step_refuses_has_no_class_and_the_library_says_so() -> None:
    kind = kind_named("PowerTransformer('box-cox')")
    imported = load_model(kind.fitted("RandomForest"))
    assert imported.native is not None
    with pytest.raises(ModelError, match=r"^Pipeline: refuses to predict .*strictly positive data") as caught:
        imported.native(np.array([[-1.0, 0.0]]))
    assert len(str(caught.value).splitlines()) == 1


def test_trees_that_would_grow_beyond_measure_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pullback, "MAX_NODES", 20)
    with pytest.raises(ModelError, match=r"has more than 20 nodes, .*KBinsDiscretizer\(encode='ordinal'\)"):
        load_model(kind_named("KBinsDiscretizer('onehot-dense')").fitted("RandomForest"))


def test_two_kinds_of_missing_in_one_column_are_refused() -> None:
    frame, y = people()
    job = frame["job"].where(frame.index % 9 != 0, None)
    job[frame.index % 7 == 0] = np.nan
    table = pd.DataFrame({"job": pd.Series(job.tolist(), dtype=object)})
    pipeline = make_pipeline(OrdinalEncoder(encoded_missing_value=-1), FINAL["RandomForest"]()).fit(table, y)
    assert None in pipeline[0].categories_[0]
    with pytest.raises(ModelError, match="column 'job' has both None and NaN for missing"):
        load_model(pipeline)


def test_a_pipeline_whose_last_step_is_no_model_is_refused_by_that_step() -> None:
    frame, y = people()
    with pytest.raises(ModelError, match=r"step 'logisticregression': sklearn.*LogisticRegression is not read"):
        load_model(make_pipeline(StandardScaler(), LogisticRegression()).fit(frame[["dose"]], y))
    with pytest.raises(ModelError, match="step 'onehotencoder'"):
        load_model(make_pipeline(StandardScaler(), OneHotEncoder()).fit(frame[["dose"]], y))


@pytest.mark.parametrize("step", [StandardScaler(), OneHotEncoder(), ColumnTransformer([]), PowerTransformer()])
def test_a_pipeline_that_is_not_fitted_is_refused(step: Any) -> None:
    with pytest.raises(ModelError, match=f"^Pipeline: {type(step).__name__} is not fitted"):
        load_model(make_pipeline(step, DecisionTreeClassifier()))


FILES = [
    "scikit-learn's documented pipeline",
    "category_encoders.TargetEncoder",
    "imbalanced-learn: Pipeline with samplers",
]


@pytest.mark.parametrize("name", FILES)
def test_a_pickled_pipeline_is_the_live_one(name: str, tmp_path: Path) -> None:
    pipeline = kind_named(name).fitted("XGBoost")
    live = load_model(pipeline).ensemble.fingerprint()
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(pipeline))
    joblib.dump(pipeline, tmp_path / "model.joblib", compress=3)
    for path in (tmp_path / "model.pkl", tmp_path / "model.joblib"):
        with pytest.raises(ModelError, match="is a pickle"):
            load_model(path)
        imported = load_model(path, allow_pickle=True)
        assert (imported.ensemble.fingerprint(), imported.source) == (live, str(path))


SKOPS = [
    "FunctionTransformer(numpy.log1p)",
    "StandardScaler",
    "OneHotEncoder",
    "PowerTransformer('box-cox')",
    "RobustScaler",
]


@pytest.mark.parametrize("name", SKOPS)
def test_a_skops_file_with_a_pipeline_is_the_live_one(name: str, tmp_path: Path) -> None:
    pipeline = kind_named(name).fitted("HistGradientBoosting")
    skops.io.dump(pipeline, tmp_path / "model.skops")
    imported = load_model(tmp_path / "model.skops")
    assert imported.ensemble.fingerprint() == load_model(pipeline).ensemble.fingerprint()


def test_a_selecting_model_with_broken_trees_is_refused_before_it_is_asked() -> None:
    """Asked for its importances, such a tree reads memory that is not its own."""
    pipeline = kind_named("SelectFromModel").fitted("RandomForest")
    chooser = pipeline.named_steps["select"].estimator_
    cls, arguments, state = chooser.tree_.__reduce__()
    state = state | {"nodes": state["nodes"].copy()}
    state["nodes"]["left_child"][0] = 2**30
    chooser.tree_ = cls(*arguments)
    chooser.tree_.__setstate__(state)
    with pytest.raises(ModelError, match=r"step 'select'.estimator_.*children_left\[0\]: 1073741824 is outside"):
        load_model(pipeline)


def test_a_skops_file_with_a_type_that_skops_does_not_trust_is_refused_by_that_type(tmp_path: Path) -> None:
    pipeline = kind_named("scikit-learn's documented pipeline").fitted("HistGradientBoosting")
    skops.io.dump(pipeline, tmp_path / "model.skops")
    with pytest.raises(ModelError, match=r"holds type 'numpy.dtype', .*allow_pickle=True"):
        load_model(tmp_path / "model.skops")
    imported = load_model(tmp_path / "model.skops", allow_pickle=True)
    assert imported.ensemble.fingerprint() == load_model(pipeline).ensemble.fingerprint()
