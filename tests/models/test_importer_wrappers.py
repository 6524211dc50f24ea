"""Models of models decide every row as their library does, or are refused by the name of what is inside them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import skops.io
from imblearn.ensemble import (
    BalancedBaggingClassifier,
    BalancedRandomForestClassifier,
    EasyEnsembleClassifier,
    RUSBoostClassifier,
)
from imblearn.pipeline import Pipeline as ResamplingPipeline
from imblearn.under_sampling import RandomUnderSampler
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from xgboost import XGBClassifier

from boxqte import Attribute, Fairness, Space, quantify
from boxqte.errors import ModelError
from boxqte.models.importers import load_model
from tests.conformance.mutations import mutate_bytes, outcomes
from tests.conformance.suite import assert_conforms, boundary_rows

N = 160
LABELS = np.array(["no", "perhaps", "yes"])
pytestmark = pytest.mark.usefixtures("one_thread")


def data(n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=N), rng.integers(0, 6, N), rng.random(N) * 1e-3, rng.normal(size=N) * 1e6])
    score = X[:, 0] + (X[:, 1] > 2) - 1e3 * X[:, 2] * (X[:, 3] > 0) + rng.normal(size=N) * 0.3
    return X, LABELS[np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)]


def tree(depth: int = 3, seed: int = 0) -> Any:
    return DecisionTreeClassifier(max_depth=depth, random_state=seed)


def forest(n: int = 3, depth: int = 3) -> Any:
    return RandomForestClassifier(n, max_depth=depth, random_state=0)


def boosted() -> Any:
    return GradientBoostingClassifier(n_estimators=3, random_state=0)


GRID = {"max_depth": [2, 4]}
SPREAD = {"max_depth": [2, 3, 4]}


@dataclass(frozen=True)
class Case:
    """One kind of model: how it is made, and what becomes of it. `docs/models.md` can be made from this list."""

    kind: str
    make: Callable[[], Any]
    outcome: Literal["read", "refused"] = "read"
    words: str = ""
    """What the refusal says."""
    classes: tuple[int, ...] = (2, 3)


CASES = (
    Case("GridSearchCV", lambda: GridSearchCV(tree(), GRID, cv=2)),
    Case("RandomizedSearchCV", lambda: RandomizedSearchCV(forest(), SPREAD, n_iter=2, cv=2, random_state=0)),
    Case("HalvingGridSearchCV", lambda: HalvingGridSearchCV(tree(), GRID, cv=2, random_state=0)),
    Case("HalvingRandomSearchCV", lambda: HalvingRandomSearchCV(
        tree(), SPREAD, n_candidates=3, cv=2, random_state=0)),
    Case("GridSearchCV of boosting", lambda: GridSearchCV(boosted(), {"max_depth": [1, 2]}, cv=2)),
    Case("GridSearchCV, refit=False", lambda: GridSearchCV(tree(), GRID, cv=2, refit=False), "refused",
         "GridSearchCV: refit=False keeps no model; search with refit=True"),
    Case("Bagging of trees", lambda: BaggingClassifier(tree(), 5, random_state=0)),
    Case("Bagging over drawn columns", lambda: BaggingClassifier(
        tree(), 5, max_features=0.7, bootstrap_features=True, random_state=0)),
    Case("Bagging of small samples", lambda: BaggingClassifier(
        make_pipeline(tree()), 6, max_samples=3, random_state=4)),
    Case("Bagging of forests", lambda: BaggingClassifier(forest(), 3, random_state=0)),
    Case("Bagging of small samples, forests", lambda: BaggingClassifier(
        make_pipeline(forest()), 6, max_samples=3, random_state=4)),
    Case("Bagging of bagging", lambda: BaggingClassifier(BaggingClassifier(tree(), 2), 2, random_state=0)),
    Case("Bagging of one boosted model", lambda: BaggingClassifier(boosted(), 1, max_features=0.6, random_state=0)),
    Case("Bagging of one histogram model", lambda: BaggingClassifier(
        HistGradientBoostingClassifier(max_iter=3), 1, random_state=0)),
    Case("Bagging of boosted models", lambda: BaggingClassifier(boosted(), 2, random_state=0), "refused",
         r"estimators_\[0\]: the probabilities of GradientBoostingClassifier are no mean of trees.*`boxqte test`"),
    Case("Bagging of other models", lambda: BaggingClassifier(GaussianNB(), 2), "refused",
         r"BaggingClassifier.estimators_\[0\]: .*GaussianNB is not read"),
    Case("Voting, soft", lambda: VotingClassifier([("a", tree()), ("b", forest(4))], voting="soft")),
    Case("Voting, soft, weighted", lambda: VotingClassifier(
        [("a", tree()), ("b", forest(4)), ("c", "drop"), ("d", ExtraTreesClassifier(3, max_depth=3, random_state=0))],
        voting="soft", weights=[2, 0.3, 9, 1])),
    Case("Voting, soft, one boosted model", lambda: VotingClassifier([("a", boosted())], voting="soft")),
    Case("Voting, soft, boosted models", lambda: VotingClassifier(
        [("a", tree()), ("b", boosted())], voting="soft"), "refused",
         r"estimators_\[1\]: the probabilities of GradientBoostingClassifier are no mean of trees"),
    Case("Voting, hard, trees", lambda: VotingClassifier([("a", tree(2)), ("b", tree(3)), ("c", tree(4))])),
    Case("Voting, hard, an even number of trees", lambda: VotingClassifier([("a", tree(1)), ("b", tree(3))])),
    Case("Voting, hard, weighted trees", lambda: VotingClassifier(
        [("a", tree(2)), ("b", ExtraTreeClassifier(max_depth=3, random_state=0)), ("c", tree(4))], weights=[1, 0.5, 0.7])),
    Case("Voting, hard, one boosted model", lambda: VotingClassifier([("a", boosted())])),
    Case("Voting, hard, forests", lambda: VotingClassifier([("a", tree()), ("b", forest())]), "refused",
         r"estimators_\[1\]: a RandomForestClassifier votes as a whole, which is no sum of trees"),
    Case("Voting with a threshold inside", lambda: VotingClassifier(
        [("a", FixedThresholdClassifier(tree(), threshold=0.2)), ("b", tree())], voting="soft"), "refused",
         "FixedThresholdClassifier", (2,)),
    Case("Voting with a calibrated model inside", lambda: VotingClassifier(
        [("a", CalibratedClassifierCV(tree(), cv=2)), ("b", tree())], voting="soft"), "refused",
         r"estimators_\[0\]: .*CalibratedClassifierCV"),
    Case("AdaBoost", lambda: AdaBoostClassifier(n_estimators=8, random_state=0)),
    Case("AdaBoost of deeper trees", lambda: AdaBoostClassifier(tree(2), n_estimators=5, random_state=0)),
    Case("AdaBoost of forests", lambda: AdaBoostClassifier(forest(), n_estimators=2, random_state=0), "refused",
         r"AdaBoostClassifier.estimators_\[0\]: a RandomForestClassifier votes as a whole"),
    Case("OneVsRest of a forest, two classes", lambda: OneVsRestClassifier(forest()), classes=(2,)),
    Case("OneVsRest of boosting, two classes", lambda: OneVsRestClassifier(boosted()), classes=(2,)),
    Case("OneVsRest of XGBoost, two classes", lambda: OneVsRestClassifier(XGBClassifier(n_estimators=3, n_jobs=1)),
         classes=(2,)),
    Case("OneVsRest, three classes", lambda: OneVsRestClassifier(forest()), "refused",
         "divides the probabilities of 3 models by their sum", (3,)),
    Case("OneVsOne", lambda: OneVsOneClassifier(forest()), "refused", "counts the votes of whole models"),
    Case("Stacking", lambda: StackingClassifier([("a", tree())], cv=2), "refused",
         "a model of its members' outputs is no sum of trees; `boxqte test`"),
    Case("BalancedRandomForest", lambda: BalancedRandomForestClassifier(4, max_depth=3, random_state=0)),
    Case("BalancedBagging", lambda: BalancedBaggingClassifier(tree(), n_estimators=4, random_state=0)),
    Case("EasyEnsemble of trees", lambda: EasyEnsembleClassifier(3, estimator=tree(), random_state=0)),
    Case("EasyEnsemble of one AdaBoost", lambda: EasyEnsembleClassifier(
        1, estimator=AdaBoostClassifier(n_estimators=5), random_state=0)),
    Case("EasyEnsemble of AdaBoost", lambda: EasyEnsembleClassifier(
        2, estimator=AdaBoostClassifier(n_estimators=5), random_state=0), "refused",
         "the probabilities of AdaBoostClassifier are no mean of trees"),
    Case("RUSBoost", lambda: RUSBoostClassifier(tree(2), n_estimators=4, random_state=0)),
    Case("imbalanced-learn's Pipeline", lambda: ResamplingPipeline(
        [("sample", RandomUnderSampler(random_state=0)), ("model", forest())])),
)  # fmt: skip
EVERY = [(case, n) for case in CASES for n in case.classes]


@cache
def fitted(kind: str, n_classes: int) -> Any:
    model = next(case for case in CASES if case.kind == kind).make()
    return model.fit(*data(n_classes))


def leaves_of(model: Any, rows: np.ndarray) -> np.ndarray:
    """The library's own leaf numbers, [rows, trees], in the order of the members; none where it does not tell them."""
    if hasattr(model, "best_estimator_"):
        return leaves_of(model.best_estimator_, rows)
    if hasattr(model, "steps"):
        return leaves_of(model.steps[-1][1], rows)
    if hasattr(model, "estimators_features_"):
        members = zip(model.estimators_, model.estimators_features_)
        return np.concatenate([leaves_of(member, rows[:, columns]) for member, columns in members], axis=1)
    if hasattr(model, "apply"):
        return model.apply(rows).reshape(len(rows), -1)
    members = model.estimators_.ravel() if isinstance(model.estimators_, np.ndarray) else model.estimators_
    return np.concatenate([leaves_of(member, rows) for member in members], axis=1)


def class_indices(model: Any, rows: np.ndarray) -> np.ndarray:
    labels = list(model.classes_)
    return np.array([labels.index(label) for label in model.predict(rows)])


@pytest.mark.parametrize(("case", "n"), [(c, n) for c, n in EVERY if c.outcome == "read"],
                         ids=lambda v: v.kind if isinstance(v, Case) else str(v))  # fmt: skip
def test_what_is_read_decides_every_boundary_row_as_the_library_does(case: Case, n: int) -> None:
    model = fitted(case.kind, n)
    imported = load_model(model)
    ensemble = imported.ensemble
    rows = boundary_rows(ensemble, n_random=100, missing=False)
    classes = class_indices(model, rows)
    ours = ensemble.leaf_ids(rows) if "histogram" in case.kind else leaves_of(model, rows)
    assert_conforms(ensemble, rows, ours, classes)
    assert imported.native is not None
    np.testing.assert_array_equal(imported.native(rows), classes)
    assert ensemble.classes == tuple(model.classes_.tolist())
    if not hasattr(model, "predict_proba"):
        return
    probabilities = model.predict_proba(rows)
    margins = ensemble.margin(rows)
    if ensemble.link == "mean":
        mine = margins if n > 2 else np.concatenate([0.5 - margins, 0.5 + margins], axis=1)
    else:
        scores = margins if n > 2 else np.concatenate([0 * margins, margins], axis=1)
        mine = np.exp(scores - scores.max(axis=1, keepdims=True))
        mine /= mine.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(mine, probabilities, rtol=0, atol=1e-6 if ensemble.sum_dtype == "float32" else 1e-14)


@pytest.mark.parametrize(("case", "n"), [(c, n) for c, n in EVERY if c.outcome == "refused"],
                         ids=lambda v: v.kind if isinstance(v, Case) else str(v))  # fmt: skip
def test_what_is_no_sum_of_trees_is_refused_in_one_line_that_names_it(case: Case, n: int) -> None:
    with pytest.raises(ModelError, match=case.words) as caught:
        load_model(fitted(case.kind, n))
    assert len(str(caught.value).splitlines()) == 1


FILES = ("GridSearchCV", "Bagging over drawn columns", "Voting, soft, weighted", "Voting, hard, trees", "AdaBoost",
         "OneVsRest of a forest, two classes", "BalancedRandomForest", "BalancedBagging")  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_a_pickle_and_a_skops_file_are_the_live_model(kind: str, tmp_path: Path) -> None:
    model = fitted(kind, 2)
    expected = load_model(model).ensemble.fingerprint()
    pickled = tmp_path / "model.pkl"
    pickled.write_bytes(pickle.dumps(model))
    with pytest.raises(ModelError, match="allow_pickle=True"):
        load_model(pickled)
    assert load_model(pickled, allow_pickle=True).ensemble.fingerprint() == expected
    skopsed = tmp_path / "model.skops"
    skops.io.dump(model, skopsed)
    untrusted = kind.startswith("Balanced")  # imbalanced-learn is not among the libraries that skops trusts
    if untrusted:
        with pytest.raises(ModelError, match=r"holds type 'imblearn.*, which skops does not trust"):
            load_model(skopsed)
    assert load_model(skopsed, allow_pickle=untrusted).ensemble.fingerprint() == expected


def test_members_that_know_one_class_only_are_among_those_that_are_compared() -> None:
    for kind in ("Bagging of small samples", "Bagging of small samples, forests"):
        assert {len(member.classes_) for member in fitted(kind, 2).estimators_} == {1, 2}
        assert {len(member.classes_) for member in fitted(kind, 3).estimators_} == {1, 2, 3}


def test_equal_votes_are_the_first_class_and_no_vote_is_rounded() -> None:
    X, _ = data(2)
    model = fitted("Voting, hard, an even number of trees", 2)
    ensemble = load_model(model).ensemble
    ties = [margin == (0,) for margin in ensemble.exact_margin(X)]
    assert any(ties)
    assert (model.predict(X[ties]) == "no").all()
    np.testing.assert_array_equal(ensemble.predict(X), class_indices(model, X))
    assert set(load_model(fitted("Voting, hard, trees", 2)).ensemble.value.ravel().tolist()) == {0.0, 1.0}


def test_one_boosted_model_in_a_mean_gives_a_tie_to_the_first_class() -> None:
    X, y = np.zeros((4, 1)), np.array([0, 1, 0, 1])
    alone = GradientBoostingClassifier(n_estimators=2)
    assert alone.fit(X, y).predict(X[:1]) == [1]
    for wrapper in (
        BaggingClassifier(GradientBoostingClassifier(n_estimators=2), 1, bootstrap=False),
        VotingClassifier([("a", alone)], voting="soft"),
        OneVsRestClassifier(alone),
    ):
        wrapper.fit(X, y)
        assert wrapper.predict(X[:1]) == load_model(wrapper).ensemble.predict(X[:1]) == [0]
    hard = VotingClassifier([("a", alone)]).fit(X, y)
    assert hard.predict(X[:1]) == load_model(hard).ensemble.predict(X[:1]) == [1]


def test_the_weights_of_a_mean_are_exact() -> None:
    model = fitted("Voting, soft, weighted", 2)
    ensemble = load_model(model).ensemble
    X, _ = data(2)
    total = Fraction(2) + Fraction(0.3) + 1
    members = [(load_model(m).ensemble, Fraction(w)) for m, w in zip(model.estimators_, (2, 0.3, 1))]
    each = [[e.exact_margin(X[:20])[i][0] * w / total for e, w in members] for i in range(20)]
    for row, (margin,) in zip(each, ensemble.exact_margin(X[:20])):
        assert abs(sum(row) - margin) <= Fraction(4, 2**53)  # a product of a fraction and a weight is rounded


def test_a_search_over_a_pipeline_is_read_with_its_columns() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(20, 60, N), "sex": rng.choice(["f", "m"], N)})
    y = (frame["age"] > 40) ^ (frame["sex"] == "f")
    encoder = ColumnTransformer([("sex", OneHotEncoder(), ["sex"])], remainder="passthrough")
    search = GridSearchCV(make_pipeline(encoder, forest()), {"randomforestclassifier__max_depth": [2, 3]}, cv=2)
    imported = load_model(search.fit(frame, y))
    assert imported.source == "GridSearchCV"
    assert set(imported.ensemble.feature_names) == {"age", "sex"}
    encoded_tree = make_pipeline(encoder, tree())
    for members, voting in (
        ([("a", search), ("b", search)], "soft"),
        ([("a", encoded_tree), ("b", encoded_tree)], "hard"),
    ):
        with pytest.raises(ModelError, match="encodes columns by itself; put the encoder before the whole"):
            load_model(VotingClassifier(members, voting=voting).fit(frame, y))


def test_names_are_those_of_the_whole_and_other_libraries_may_be_inside() -> None:
    X, y = data(2)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    search = GridSearchCV(LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1), {"max_depth": [2]}, cv=2).fit(frame, y)
    assert load_model(search).ensemble.feature_names == ("a", "b", "c", "d")
    bagged = load_model(BaggingClassifier(tree(), 3, max_features=2, random_state=0).fit(frame, y))
    assert bagged.ensemble.feature_names == ("a", "b", "c", "d")
    assert bagged.native is not None
    bagged.native(X)


def test_what_is_not_fitted_or_damaged_is_refused() -> None:
    for model in (GridSearchCV(tree(), GRID), BaggingClassifier(), VotingClassifier([("a", tree())]), AdaBoostClassifier(),
                  OneVsRestClassifier(tree())):  # fmt: skip
        with pytest.raises(ModelError, match=f"{type(model).__name__}: not fitted"):
            load_model(model)
    damaged: list[tuple[Any, str, Any, str]] = [
        (fitted("Voting, soft", 2), "weights", [-1, 2], r"VotingClassifier.weights: expected numbers"),
        (fitted("AdaBoost", 2), "estimator_weights_", np.array([1.0]), r"estimator_weights_: expected 8 weights"),
        (
            fitted("GridSearchCV", 2),
            "best_estimator_",
            "/etc/hostname",
            "expected a fitted model, found '/etc/hostname'",
        ),
        (fitted("AdaBoost", 2), "algorithm", "SAMME.R", "accepted is algorithm='SAMME'"),
    ]
    renamed = pickle.loads(pickle.dumps(fitted("AdaBoost", 2)))
    renamed.estimators_[1].classes_ = np.array(["no", "yes"])  # whose vote for yes counts for nobody
    with pytest.raises(
        ModelError, match=r"estimators_\[1\].classes_: expected \['no', 'perhaps'\], found \['no', 'yes'\]"
    ):
        load_model(renamed)
    for model, field, value, message in damaged:
        copy = pickle.loads(pickle.dumps(model))
        setattr(copy, field, value)
        with pytest.raises(ModelError, match=message) as caught:
            load_model(copy)
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(ModelError, match="a weighted median of its members"):
        load_model(AdaBoostRegressor())


@pytest.mark.parametrize("kind", ["GridSearchCV", "imbalanced-learn's Pipeline"])
def test_a_model_inside_itself_is_refused_at_once(kind: str) -> None:
    inner = pickle.loads(pickle.dumps(fitted(kind, 2)))
    if kind == "GridSearchCV":
        inner.best_estimator_ = inner
    else:
        inner.steps[-1] = ("model", inner)
    bagged = pickle.loads(pickle.dumps(fitted("Bagging of trees", 2)))
    bagged.estimators_ = [inner, inner]
    for model in (inner, bagged):
        with pytest.raises(ModelError) as caught:
            load_model(model)
        assert len(str(caught.value).splitlines()) == 1


def test_damaged_files_are_refused_or_sound(tmp_path: Path) -> None:
    for seed in range(90):
        rng = np.random.default_rng(seed)
        model = fitted(FILES[seed % len(FILES)], 2)
        data = pickle.dumps(model) if seed % 3 else skops.io.dumps(model)
        (tmp_path / f"{seed:03}.{'pkl' if seed % 3 else 'skops'}").write_bytes(mutate_bytes(data, rng))
    assert 30 < outcomes(tmp_path).count("refused") <= 90


@pytest.mark.slow
def test_500_damaged_pickles_are_refused_or_sound(tmp_path: Path) -> None:
    for seed in range(500):
        data = pickle.dumps(fitted(FILES[seed % len(FILES)], 2))
        (tmp_path / f"{seed:03}.pkl").write_bytes(mutate_bytes(data, np.random.default_rng(1000 + seed)))
    assert 200 < outcomes(tmp_path).count("refused") < 500


# ---------------------------------------------------------------------------------------------------------------------
# The answer, from the model's own predict on every input


SPACE = Space([Attribute.integer("a", 0, 5), Attribute.integer("b", 0, 4), Attribute.categorical("s", [0, 1, 2])])


def test_the_measure_of_three_classes_counts_weights_too() -> None:
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(0, 6, N), rng.integers(0, 5, N), rng.integers(0, 3, N)])
    y = np.digitize(X[:, 0] + X[:, 1] * (X[:, 2] > 0) + rng.normal(size=N), [3, 6])
    voting = next(case for case in CASES if case.kind == "Voting, soft, weighted").make()
    model = voting.fit(pd.DataFrame(X, columns=["a", "b", "s"]), y)
    inputs = list(product(range(6), range(5), range(3)))
    frame = pd.DataFrame(inputs, columns=["a", "b", "s"])
    label = dict(zip(inputs, model.predict(frame).tolist()))
    top = dict(zip(inputs, model.predict_proba(frame).max(axis=1).tolist()))
    confident = [x for x in inputs if top[x] > 0.6]
    unfair = [x for x in confident if any(label[*x[:2], s] != label[x] for s in range(3) if s != x[2])]
    assert 0 < len(unfair) < len(confident) < len(inputs)
    for engine in ("box", "exhaustive"):
        result = quantify(model, SPACE, Fairness(["s"], kappa="0.6"), engine=engine)
        assert result.lower <= 1 - Fraction(len(unfair), len(confident)) <= result.upper
        assert result.upper - result.lower < 1e-11


@pytest.mark.parametrize("kappa", ["0.5", "0.6"])
@pytest.mark.parametrize("kind", ["Voting, soft, weighted", "AdaBoost", "Bagging of small samples", "BalancedBagging",
                                  "OneVsRest of a forest, two classes"])  # fmt: skip
def test_the_measure_is_that_of_the_wrapper_s_own_predict_on_every_input(kind: str, kappa: str) -> None:
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(0, 6, N), rng.integers(0, 5, N), rng.integers(0, 3, N)])
    y = X[:, 0] + X[:, 1] * (X[:, 2] > 0) + rng.normal(size=N) > 5
    model = next(case for case in CASES if case.kind == kind).make().fit(pd.DataFrame(X, columns=["a", "b", "s"]), y)
    inputs = list(product(range(6), range(5), range(3)))
    frame = pd.DataFrame(inputs, columns=["a", "b", "s"])
    label = dict(zip(inputs, model.predict(frame).tolist()))
    top = dict(zip(inputs, model.predict_proba(frame).max(axis=1).tolist()))
    assert not any(math.isclose(p, float(kappa)) for p in top.values() if kappa != "0.5")
    confident = [x for x in inputs if kappa == "0.5" or top[x] > float(kappa)]
    unfair = [x for x in confident if any(label[*x[:2], s] != label[x] for s in range(3) if s != x[2])]
    result = quantify(model, SPACE, Fairness(["s"], kappa=kappa))
    assert unfair
    assert result.lower <= 1 - Fraction(len(unfair), len(confident)) <= result.upper
    assert result.upper - result.lower < 1e-11
