"""Pipelines, thresholds, calibration and models of models inside each other: what each of them does is not lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from catboost import CatBoostClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, GradientBoostingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from boxqte import load_model
from boxqte.errors import ModelError
from tests.conformance.suite import boundary_rows
from tests.models.test_decisions import beyond_rounding

N = 240
NUMBERS = ["age", "income"]
pytestmark = pytest.mark.usefixtures("one_thread")


def people() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 80, N).astype(float), "income": rng.normal(50, 20, N)})
    frame["sex"], frame["job"] = rng.choice(["f", "m"], N), rng.choice(["a", "b", "c"], N)
    frame.loc[rng.random(N) < 0.1, "income"] = np.nan
    score = frame["income"].fillna(40) + frame["age"] / 2 + 9 * (frame["sex"] == "m") + rng.normal(0, 10, N)
    return frame, (score > 75).to_numpy().astype(int)


def before() -> Any:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return ColumnTransformer([("n", numbers, NUMBERS), ("c", OneHotEncoder(handle_unknown="ignore"), ["sex", "job"])])


def boosted() -> Any:
    return GradientBoostingClassifier(n_estimators=6, max_depth=2, random_state=0)


def forest() -> Any:
    return RandomForestClassifier(4, max_depth=3, random_state=0)


def light() -> Any:
    return lightgbm.LGBMClassifier(n_estimators=4, num_leaves=5, verbose=-1, n_jobs=1)


def extreme() -> Any:
    return xgboost.XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1)


def scaled(scaler: Any) -> Any:
    return make_pipeline(SimpleImputer(), scaler, forest())


# name -> the model, and whether it takes all columns or the numbers alone
CASES: dict[str, tuple[Callable[[], Any], bool]] = {
    "a search around a pipeline": (
        lambda: GridSearchCV(make_pipeline(before(), boosted()), {"gradientboostingclassifier__max_depth": [1, 2]}, cv=2),
        True,
    ),
    "a threshold around a pipeline": (
        lambda: FixedThresholdClassifier(make_pipeline(before(), boosted()), threshold=0.3), True),
    "a pipeline that ends in a threshold": (
        lambda: make_pipeline(before(), FixedThresholdClassifier(forest(), threshold=0.41)), True),
    "a tuned threshold around a pipeline": (
        lambda: TunedThresholdClassifierCV(make_pipeline(before(), extreme()), cv=2, random_state=0), True),
    "calibration around a pipeline": (
        lambda: CalibratedClassifierCV(make_pipeline(before(), light()), method="sigmoid", ensemble=False, cv=2), True),
    "a pipeline that ends in calibration": (
        lambda: make_pipeline(before(), CalibratedClassifierCV(extreme(), method="sigmoid", ensemble=False, cv=2)), True),
    "a pipeline that ends in a search": (
        lambda: make_pipeline(before(), GridSearchCV(boosted(), {"max_depth": [1, 2]}, cv=2)), True),
    "a pipeline that ends in bagging": (
        lambda: make_pipeline(before(), BaggingClassifier(forest(), 2, random_state=0)), True),
    "a threshold around bagging": (
        lambda: FixedThresholdClassifier(BaggingClassifier(scaled(StandardScaler()), 3, random_state=0), threshold=0.37),
        False,
    ),
    "a vote of scaled forests": (
        lambda: VotingClassifier(
            [("a", scaled(StandardScaler())), ("b", scaled(MinMaxScaler()))], voting="soft", weights=[1, 2]
        ),
        False,
    ),
    "bagging of pipelines": (lambda: BaggingClassifier(scaled(StandardScaler()), 3, random_state=0), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_decides_as_its_own_predict(name: str) -> None:
    make, everything = CASES[name]
    frame, y = people()
    model = make().fit(frame if everything else frame[NUMBERS], y)
    imported = load_model(model)
    assert set(imported.ensemble.feature_names) == set(frame if everything else NUMBERS)
    rows = boundary_rows(imported.ensemble)
    for feature, values in imported.ensemble.categories.items():
        rows[:, feature] = np.arange(len(rows)) % len(values)
    assert imported.native is not None
    own = imported.native(rows)
    sure = beyond_rounding(imported.ensemble, rows)
    assert imported.ensemble.predict(rows[sure]).tolist() == own[sure].tolist()
    assert 0 < own.sum() < len(own)
    # and `native` is the model's own predict
    table = frame.loc[:, list(imported.ensemble.feature_names)].copy()
    for feature, values in imported.ensemble.categories.items():
        column = imported.ensemble.feature_names[feature]
        table[column] = [float(values.index(value)) for value in frame[column]]
    given = frame if everything else frame[NUMBERS]
    assert imported.native(table.to_numpy(float)).tolist() == model.predict(given).tolist()


def test_a_threshold_of_the_user_takes_the_place_of_the_model_s_own() -> None:
    frame, y = people()
    model = make_pipeline(before(), FixedThresholdClassifier(forest(), threshold=0.41)).fit(frame, y)
    imported = load_model(model, threshold=0.7)
    rows = boundary_rows(imported.ensemble)
    for feature, values in imported.ensemble.categories.items():
        rows[:, feature] = np.arange(len(rows)) % len(values)
    assert imported.probability is not None
    sure = beyond_rounding(imported.ensemble, rows)
    wanted = imported.probability(rows)[:, 1] >= 0.7
    assert imported.ensemble.predict(rows[sure]).tolist() == wanted[sure].astype(int).tolist()


def test_catboost_s_own_threshold_is_kept_behind_a_pipeline_and_left_out_of_a_mean() -> None:
    frame, y = people()
    numbers = frame[NUMBERS].fillna(0.0)
    cat = CatBoostClassifier(iterations=4, depth=2, verbose=0, allow_writing_files=False).fit(numbers, y)
    cat.set_probability_threshold(0.35)
    scaler = MinMaxScaler().set_output(transform="pandas").fit(numbers)
    behind = make_pipeline(scaler, CatBoostClassifier(iterations=4, depth=2, verbose=0, allow_writing_files=False))
    behind.fit(numbers, y)
    behind[-1].set_probability_threshold(0.35)
    imported = load_model(behind)
    assert imported.ensemble.decision is not None
    rows = boundary_rows(imported.ensemble)
    assert imported.native is not None
    sure = beyond_rounding(imported.ensemble, rows)
    assert imported.ensemble.predict(rows[sure]).tolist() == imported.native(rows)[sure].tolist()
    alone = VotingClassifier([("a", cat)], voting="soft").fit(numbers, y)
    assert load_model(alone).ensemble.decision is None


def test_members_that_encode_by_themselves_are_refused_with_the_way_out() -> None:
    frame, y = people()
    members = [(name, make_pipeline(before(), forest())) for name in ("a", "b")]
    with pytest.raises(ModelError, match="put the encoder before the whole, in one Pipeline"):
        load_model(VotingClassifier(members, voting="soft").fit(frame, y))
