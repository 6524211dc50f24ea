"""DecisionRule rules of models: what a threshold may be, and whose decisions it makes: those of the library, row by row."""

from __future__ import annotations

import pickle
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import make_scorer
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier

import boxqte
from boxqte import load_model
from boxqte.errors import ModelError
from boxqte.examples import loan_ensemble
from boxqte.models.decision import DecisionRule, read_decision
from boxqte.models.importers import ImportedModel
from boxqte.models.importers.sklearn_decisions import first_true
from tests.conformance.suite import beyond_rounding, boundary_rows

MODELS: dict[str, Any] = {
    "tree": DecisionTreeClassifier(max_depth=4, random_state=0),
    "forest": RandomForestClassifier(10, max_depth=3, random_state=0),
    "extra trees": ExtraTreesClassifier(7, max_depth=4, random_state=0),
    "gradient boosting": GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0),
    "exponential": GradientBoostingClassifier(n_estimators=8, max_depth=2, loss="exponential", random_state=0),
    "histogram": HistGradientBoostingClassifier(max_iter=8, max_depth=3, random_state=0),
    "xgboost": xgboost.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1),
    "lightgbm": lightgbm.LGBMClassifier(
        n_estimators=8, max_depth=3, verbose=-1, min_child_samples=5, sigmoid=0.7, n_jobs=1
    ),
    "catboost": catboost.CatBoostClassifier(iterations=8, depth=2, verbose=0, allow_writing_files=False),
}
MARGINS = ("gradient boosting", "exponential", "histogram", "lightgbm")  # those with a decision_function


# calibrated models of the fast suite: every method, on a score of each kind (float64 and float32, margin and probability)
QUICK = (("forest", "isotonic"), ("gradient boosting", "sigmoid"), ("gradient boosting", "isotonic"), ("lightgbm", "sigmoid"),
         ("xgboost", "sigmoid"), ("xgboost", "isotonic"), ("xgboost", "temperature"))  # fmt: skip


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    X = rng.integers(0, 8, (400, 4)).astype(float)
    y = np.where(X[:, 0] + X[:, 1] * (X[:, 2] > 3) + rng.normal(0, 2.5, 400) > 6, "yes", "no")
    return X, y


@pytest.fixture(scope="module")
def fitted(data: tuple[Any, Any]) -> dict[str, Any]:
    X, y = data
    coded = (y == "yes").astype(int)  # XGBoost takes no text
    return {name: clone(model).fit(X, coded if name == "xgboost" else y) for name, model in MODELS.items()}


def conforms(imported: ImportedModel, predict: Any, label: Any, X: Any = ()) -> int:
    """Rows on every boundary and those of X are decided as the library decides them, but for its own rounding.

    The number of rows that are left to rounding is the result.
    """
    rows = boundary_rows(imported.ensemble, n_random=60, missing=False)
    rows = np.concatenate([rows, np.reshape(X, (-1, rows.shape[1]))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = (np.asarray(predict(rows)) == label).astype(int)
        assert imported.native is not None
        assert imported.native(rows).tolist() == theirs.tolist()
    _, first = np.unique(imported.ensemble.leaves(rows), axis=0, return_index=True)  # equal leaves have equal margins
    rows, theirs = rows[first], theirs[first]
    sure = beyond_rounding(imported.ensemble, rows)
    assert imported.ensemble.predict(rows[sure]).tolist() == theirs[sure].tolist()
    assert 0 < theirs.sum() < len(theirs)
    return int((~sure).sum())


def some_probability(model: Any, X: Any, rank: float = 0.4) -> float:
    """A probability that really occurs."""
    return float(np.quantile(model.predict_proba(X)[:, 1], rank, method="nearest"))


# --- the rule of a wrapper, and of the user ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("positive", [True, False])
def test_a_fixed_threshold_decides_as_scikit_learn_does(
    fitted: dict[str, Any], data: tuple[Any, Any], name: str, positive: bool
) -> None:
    model = fitted[name]
    level = some_probability(model, data[0])
    wrapper = FixedThresholdClassifier(
        FrozenEstimator(model), threshold=level if positive else 1 - level, pos_label=model.classes_[int(positive)]
    ).fit(*data if name != "xgboost" else (data[0], data[1] == "yes"))
    imported = load_model(wrapper)
    assert imported.source == "FixedThresholdClassifier"
    assert (
        conforms(imported, wrapper.predict, model.classes_[1], data[0]) > 0
    )  # rows on the threshold are not beyond rounding


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rank", [0.35, pytest.param(0.8, marks=pytest.mark.slow)])
def test_a_threshold_of_the_user_is_the_librarys_probability_compared(
    fitted: dict[str, Any], data: tuple[Any, Any], name: str, rank: float
) -> None:
    model = fitted[name]
    exact = some_probability(model, data[0], rank)
    for level in (exact, round(exact, 2)):
        for text, compare in (("", np.greater_equal), (">", np.greater)):

            def predict(rows: Any, level: float = level, compare: Any = compare) -> Any:
                return compare(model.predict_proba(rows)[:, 1], level).astype(int)

            conforms(load_model(model, threshold=f"{text}{level}"), predict, 1)


def test_votes_reach_the_decimal_that_a_user_writes(data: tuple[Any, Any]) -> None:
    X, y = data
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    votes = np.stack([tree.predict_proba(X)[:, 1] for tree in forest.estimators_]).sum(axis=0)
    for n in range(1, 10):
        on = X[votes == n]
        assert len(on)
        assert load_model(forest, threshold=n / 10).ensemble.predict(on).tolist() == [1] * len(on)
        assert load_model(forest, threshold=f">{n / 10}").ensemble.predict(on).tolist() == [0] * len(on)


@pytest.mark.parametrize("name", MARGINS)
@pytest.mark.parametrize("positive", [True, False])
def test_a_threshold_on_the_margin_decides_as_scikit_learn_does(
    fitted: dict[str, Any], data: tuple[Any, Any], name: str, positive: bool
) -> None:
    model = fitted[name]
    level = float(np.quantile(model.decision_function(data[0]), 0.6, method="nearest"))
    wrapper = FixedThresholdClassifier(
        FrozenEstimator(model), threshold=level if positive else -level, response_method="decision_function",
        pos_label="yes" if positive else "no",
    ).fit(*data)  # fmt: skip
    assert conforms(load_model(wrapper), wrapper.predict, "yes", data[0]) > 0


def test_an_automatic_threshold_is_one_half_and_a_tie_is_class_1(data: tuple[Any, Any]) -> None:
    forest = RandomForestClassifier(10, random_state=0).fit(*data)
    wrapper = FixedThresholdClassifier(FrozenEstimator(forest)).fit(*data)
    imported = load_model(wrapper)
    assert imported.ensemble.decision == DecisionRule(((None, Fraction(1, 2)),))
    tie = data[0][forest.predict_proba(data[0])[:, 1] == 0.5]
    assert len(tie)
    assert (
        imported.ensemble.predict(tie).tolist() == [1] * len(tie) != load_model(forest).ensemble.predict(tie).tolist()
    )


@pytest.mark.parametrize("name", ["forest", "gradient boosting", "xgboost", "lightgbm"])
@pytest.mark.parametrize("positive", [True, False])
def test_a_tuned_threshold_decides_as_scikit_learn_does(data: tuple[Any, Any], name: str, positive: bool) -> None:
    X, y = data
    target = (y == "yes").astype(int) if name == "xgboost" else y
    labels = [0, 1] if name == "xgboost" else ["no", "yes"]
    scorer = make_scorer(_few_of, pos_label=labels[int(positive)])
    tuned = TunedThresholdClassifierCV(clone(MODELS[name]), cv=2, scoring=scorer, thresholds=12, random_state=0)
    imported = load_model(tuned.fit(X, target))
    assert imported.ensemble.decision is not None
    assert imported.ensemble.decision.exclusive != positive
    conforms(imported, tuned.predict, labels[1])


def _few_of(y: Any, predicted: Any, pos_label: Any) -> float:
    """Best where three rows in ten are of one class."""
    share = float((np.asarray(predicted) == pos_label).mean())
    return -abs(share - 0.3)


# --- calibration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, marks=[] if (name, method) in QUICK else pytest.mark.slow)
        for name in MODELS
        for method in ("sigmoid", "isotonic", "temperature")
    ],
)
def test_a_calibrated_model_decides_as_scikit_learn_does(
    fitted: dict[str, Any], data: tuple[Any, Any], name: str, method: str
) -> None:
    X, y = data
    target = (y == "yes").astype(int) if name == "xgboost" else y
    half = slice(0, None, 2)
    model = clone(MODELS[name]).fit(X[half], target[half])
    wrapper = CalibratedClassifierCV(FrozenEstimator(model), method=method, ensemble=False, cv=3).fit(X, target)
    conforms(load_model(wrapper), wrapper.predict, model.classes_[1])
    # a threshold on the calibrated probability: of the user, and of a wrapper around it
    level = some_probability(wrapper, X, 0.7)
    fixed = FixedThresholdClassifier(FrozenEstimator(wrapper), threshold=level).fit(X, target)
    conforms(load_model(fixed), fixed.predict, model.classes_[1])

    def predict(rows: Any) -> Any:
        return (wrapper.predict_proba(rows)[:, 1] >= 0.35).astype(int)

    conforms(load_model(wrapper, threshold=0.35), predict, 1)


@pytest.mark.parametrize("name", ["forest", "gradient boosting", "xgboost"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_thresholds_by_group_are_compared_with_the_librarys_probabilities(
    fitted: dict[str, Any], data: tuple[Any, Any], name: str, calibrated: bool
) -> None:
    """Of a calibrated model those that are calibrated; the groups are values of the first column."""
    (X, y), model = data, fitted[name]
    target = (y == "yes").astype(int) if name == "xgboost" else y
    if calibrated:
        model = CalibratedClassifierCV(FrozenEstimator(model), method="isotonic", ensemble=False).fit(X, target)
    taus = [0.26, 0.31, 0.36, 0.41, 0.46, 0.51, 0.55, 0.61]  # none is a step of a calibrator
    imported = load_model(model, threshold={"x0": dict(enumerate(taus))})
    rows = np.concatenate([X, X[:, :1]], axis=1)
    p, levels = model.predict_proba(X)[:, 1], np.array(taus)[X[:, 0].astype(int)]
    theirs = (p >= levels.astype(p.dtype)).astype(int)
    assert 0 < theirs.sum() < len(theirs)
    assert imported.native is not None
    assert imported.native(rows).tolist() == theirs.tolist()
    sure = np.abs(p - levels) > 1e-5
    assert imported.ensemble.predict(rows[sure]).tolist() == theirs[sure].tolist()
    space = boxqte.Space([boxqte.Attribute.integer(c, 0, 7) for c in imported.ensemble.feature_names])
    group = space.names[0]
    imported = load_model(model, threshold={group: dict(enumerate(taus))})
    found = boxqte.quantify(imported, space, boxqte.Fairness(group), engine="auto", time_limit=20)
    pairs = found.sample(20, random_state=0)
    assert len(pairs.disagreements) == 0


def test_several_calibrated_models_are_refused_with_the_way_out(data: tuple[Any, Any]) -> None:
    several = CalibratedClassifierCV(MODELS["tree"], cv=3, ensemble=True).fit(*data)
    with pytest.raises(ModelError, match=r"mean of 3 calibrated models.*ensemble=False"):
        load_model(several)


def test_a_calibrator_that_falls_or_never_reaches_a_class_is_refused(data: tuple[Any, Any]) -> None:
    X, y = data
    tree = clone(MODELS["tree"]).fit(X, y)
    rare = np.where(np.arange(400) % 10 == 0, "yes", "no")
    never = CalibratedClassifierCV(FrozenEstimator(tree), method="sigmoid", ensemble=False).fit(X, rare)
    with pytest.raises(ModelError, match="every score is calibrated to class 'no'"):
        load_model(never)
    falls = CalibratedClassifierCV(FrozenEstimator(tree), method="sigmoid", ensemble=False)
    falls.fit(X, np.where(y == "yes", "no", "yes"))
    with pytest.raises(ModelError, match="its calibrator falls"):
        load_model(falls)


def test_a_step_of_an_isotonic_calibrator_is_found_to_the_last_float() -> None:
    level = float(np.nextafter(0.3, 1))
    assert first_true(lambda x: x >= level, -8.0, 8.0, np.float64) == level
    assert first_true(lambda x: x > np.float32(-1e-40), -8.0, 8.0, np.float32) == np.nextafter(
        np.float32(-1e-40), np.float32(1)
    )
    assert first_true(lambda x: x > 0, -8.0, 8.0, np.float64) == 5e-324


def test_thresholds_lie_inside_pipelines_and_around_them(data: tuple[Any, Any]) -> None:
    X, y = data
    fixed = FixedThresholdClassifier(MODELS["histogram"], threshold=0.3)
    for model in (
        make_pipeline(OrdinalEncoder(), fixed),
        FixedThresholdClassifier(make_pipeline(OrdinalEncoder(), MODELS["histogram"]), threshold=0.3),
    ):
        model.fit(X, y)
        imported = load_model(model)
        assert imported.ensemble.decision == DecisionRule(((None, Fraction(3, 10)),))
        assert imported.native is not None
        assert (imported.native(X) == (model.predict(X) == "yes")).all()  # the codes of 0..7 are 0..7


def test_a_pickled_wrapper_is_read_if_the_user_allows_it(data: tuple[Any, Any], tmp_path: Path) -> None:
    calibrated = CalibratedClassifierCV(MODELS["gradient boosting"], ensemble=False, cv=2).fit(*data)
    file = tmp_path / "model.pkl"
    file.write_bytes(pickle.dumps(calibrated))
    assert load_model(file, allow_pickle=True).ensemble.fingerprint() == load_model(calibrated).ensemble.fingerprint()


@pytest.mark.parametrize("broken", [{"threshold": "x"}, {"pos_label": "none"}, {"estimator_": 3}, {"threshold": None}])
def test_a_broken_wrapper_is_refused_in_one_line(data: tuple[Any, Any], broken: dict[str, Any]) -> None:
    wrapper = FixedThresholdClassifier(MODELS["tree"], threshold=0.3).fit(*data)
    vars(wrapper).update(broken)
    with pytest.raises(ModelError, match=r"^FixedThresholdClassifier") as caught:
        load_model(wrapper)
    assert "\n" not in str(caught.value)


# --- CatBoost's own threshold -----------------------------------------------------------------------------------------


def test_catboosts_own_threshold_is_read_live_and_from_its_file(data: tuple[Any, Any], tmp_path: Path) -> None:
    model = clone(MODELS["catboost"]).fit(*data)
    for level in (0.3, some_probability(model, data[0])):
        model.set_probability_threshold(level)
        file = tmp_path / "model.json"
        model.save_model(str(file), format="json")
        for source in (model, file):
            imported = load_model(source)
            assert imported.ensemble.decision == DecisionRule(((None, Fraction(str(level))),), exclusive=True)
            conforms(imported, model.predict, "yes")


@pytest.mark.parametrize("level", ["0", "1", "x", "nan", "-3"])
def test_a_threshold_of_catboosts_file_that_is_none_is_refused(
    data: tuple[Any, Any], tmp_path: Path, level: str
) -> None:
    model, file = clone(MODELS["catboost"]).fit(*data), tmp_path / "model.json"
    model.set_probability_threshold(0.25)
    model.save_model(str(file), format="json")
    file.write_text(file.read_text().replace('"0.25"', f'"{level}"'))
    with pytest.raises(ModelError, match=r"model_info\.binclass_probability_threshold"):
        load_model(file)


# --- what may be a threshold ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (0.3, DecisionRule(((None, Fraction(3, 10)),))),
        ("0.3", DecisionRule(((None, Fraction(3, 10)),))),
        (Fraction(0.3), DecisionRule(((None, Fraction(0.3)),))),
        (np.float64(0.3), DecisionRule(((None, Fraction(3, 10)),))),
        (" >0.3", DecisionRule(((None, Fraction(3, 10)),), exclusive=True)),
        (">= 1/3", DecisionRule(((None, Fraction(1, 3)),))),
        ("sex:f=0.4, m=0.6", DecisionRule((("f", Fraction(2, 5)), ("m", Fraction(3, 5))), "sex")),
        (">sex:f=0.4,m=0.6", DecisionRule((("f", Fraction(2, 5)), ("m", Fraction(3, 5))), "sex", exclusive=True)),
        ('job:"a,b"=0.4,c=d=0.6', DecisionRule((("a,b", Fraction(2, 5)), ("c=d", Fraction(3, 5))), "job")),
        ({"sex": {0: "0.4", 1: 0.6}}, DecisionRule(((0, Fraction(2, 5)), (1, Fraction(3, 5))), "sex")),
    ],
)
def test_a_threshold_is_a_number_or_one_for_each_value(given: Any, rule: DecisionRule) -> None:
    assert read_decision(given) == rule


@pytest.mark.parametrize(
    "given",
    [0, 1, "0", "1.0", -0.1, 2, "x", "", None, True, [0.3], {}, {"sex": 0.3}, {"sex": {}}, {"a": {0: 0.1}, "b": {0: 0.2}},
     "sex:", "sex:f", "sex:f=", "sex:=0.4", "sex:f=0.4,f=0.5", {"sex": {"f": ">0.4", "m": 0.5}}, "nan", "1e999999999"],
)  # fmt: skip
def test_what_is_no_threshold_is_refused_in_one_line(given: Any) -> None:
    with pytest.raises(ModelError, match=r"^threshold") as caught:
        read_decision(given)
    assert "\n" not in str(caught.value)


def test_a_threshold_for_three_classes_is_refused_by_name(data: tuple[Any, Any]) -> None:
    X, _ = data
    forest = RandomForestClassifier(3, max_depth=2, random_state=0).fit(X, X[:, 0] % 3)
    with pytest.raises(ModelError, match=r"^threshold: RandomForestClassifier has 3 classes.*two classes"):
        load_model(forest, threshold=0.3)


@pytest.mark.parametrize("level", ["0.9999999", "1e-40"])
def test_a_threshold_that_float32_cannot_tell_from_0_or_1_is_refused(fitted: dict[str, Any], level: str) -> None:
    with pytest.raises(ModelError, match=r"closer to [01] than the probabilities of xgboost"):
        load_model(fitted["xgboost"], threshold=level)


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5, -2.0])
def test_a_wrapper_with_one_class_for_all_is_refused(
    fitted: dict[str, Any], data: tuple[Any, Any], level: float
) -> None:
    wrapper = FixedThresholdClassifier(FrozenEstimator(fitted["histogram"]), threshold=level).fit(*data)
    with pytest.raises(ModelError, match=r"FixedThresholdClassifier.threshold: .* every input is of class"):
        load_model(wrapper)


def test_unanimous_forests_have_a_threshold_of_one(fitted: dict[str, Any], data: tuple[Any, Any]) -> None:
    forest = RandomForestClassifier(5, random_state=0).fit(*data)
    wrapper = FixedThresholdClassifier(FrozenEstimator(forest), threshold=1.0).fit(*data)
    conforms(load_model(wrapper), wrapper.predict, "yes")


def test_the_rule_is_part_of_the_model() -> None:
    plain, low = load_model(loan_ensemble()), load_model(loan_ensemble(), threshold=0.3)
    assert plain.ensemble.fingerprint() == loan_ensemble().fingerprint() != low.ensemble.fingerprint()
    assert load_model(low) is low
    assert load_model(low, threshold="0.30").ensemble.fingerprint() == low.ensemble.fingerprint()
    groups = [
        load_model(loan_ensemble(), threshold=t).ensemble
        for t in ("race:0=.3,1=.4", "race:1=.4,0=.3", "race:0=.3,1=.5")
    ]
    assert groups[0].fingerprint() == groups[1].fingerprint() != groups[2].fingerprint()
    assert boxqte.load_model is load_model
