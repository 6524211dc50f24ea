"""verify for confident partners, bounded changes, monotonicity and scores: the oracle's verdict, or a pair that is one."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMRegressor
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier

from boxqte import Fairness, Monotonicity, ScoreFairness, Space, verify
from boxqte.answers.verdict import Verdict
from boxqte.questions.properties import Property
from tests.naive import MISSING, Oracle, Point
from tests.naive_questions import exchanged, is_witness, products_of_fine_pieces
from tests.questions.test_partners import asked
from tests.strategies import Problem, problems, random_problem


def oracle_says(oracle: Oracle) -> bool:
    """Whether there is any counterexample, also among inputs without mass."""
    points = (oracle.representative(pieces) for pieces in products_of_fine_pieces(oracle))
    return any(oracle.is_confident(x) and any(is_witness(oracle, x, y) for y in exchanged(oracle, x)) for x in points)


def point(space: Space, frame: pd.DataFrame) -> Point:
    """A row of a verification as the oracle's point, exactly."""
    found: dict[str, Any] = {}
    for a in space:
        row = [frame[column].iloc[0] for column in a.columns]
        if row[0] is None or row[0] != row[0]:
            found[a.name] = MISSING
        elif a.is_numeric:
            found[a.name] = Fraction(float(row[0]))
        else:
            codes = None if a.codes is None else [tuple(map(float, code)) for code in a.codes]
            found[a.name] = row[0] if codes is None else a.values[codes.index(tuple(map(float, row)))]
    return found


def check(problem: Problem, prop: Property) -> Verdict:
    """The verdict, after it was compared with the oracle's, and the pair with the definition."""
    oracle = Oracle(problem.ensemble, problem.space, prop)
    expected = oracle_says(oracle)
    found = verify(problem.ensemble, problem.space, prop, workers=1)
    assert found.verdict is (Verdict.VIOLATED if expected else Verdict.HOLDS), (prop, found)
    assert found.x is not None or not expected or "no floats" in found.why
    if found.x is not None and found.witness is not None:
        x, other = point(problem.space, found.x), point(problem.space, found.witness)
        assert oracle.is_confident(x)
        assert is_witness(oracle, x, other), (prop, x, other)
        assert all(x[name] == other[name] for name in x if name not in prop.sensitive)
    return found.verdict


@pytest.mark.parametrize("luck", [True, False])
def test_verdicts_and_pairs_are_those_of_the_definition(luck: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not luck:  # the search itself must find the counterexample or prove that there is none
        monkeypatch.setattr("boxqte.answers.verify.TRIES", ())
    rng = random.Random(f"verify partners {luck}")
    seen: dict[tuple[str, Verdict], int] = {}
    for _ in range(14):
        problem = random_problem(rng, eps=False, max_pieces=200)
        for prop in asked(problem, rng.randrange(10**6)):
            key = f"{prop.kind} {getattr(prop, 'on', '')} {bool(prop.max_change)}", check(problem, prop)
            seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 10  # five kinds of questions, both verdicts


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(problems(eps=False, max_pieces=200), st.integers(0, 10**6), st.booleans())
def test_verdicts_and_pairs_on_many(problem: Problem, seed: int, luck: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not luck:
            patch.setattr("boxqte.answers.verify.TRIES", ())
        for prop in asked(problem, seed):
            check(problem, prop)


# --- models of libraries ------------------------------------------------------------------------------------------------


def people(n: int = 1500) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "income": rng.uniform(0, 100, n).round(1),
            "age": rng.integers(18, 80, n),
            "hours": rng.integers(0, 60, n),
            "sex": rng.integers(0, 2, n),
        }
    )
    score = frame["income"] / 25 + frame["age"] / 40 + frame["sex"] / 2 + rng.normal(0, 1, n)
    return frame, (score > 3.6).astype(int)


@pytest.fixture(scope="module", params=["50x3", "200x5"])
def two_models(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Trained with a monotone constraint and without."""
    trees, depth = map(int, request.param.split("x"))
    frame, y = people()
    one, two = (
        xgboost.XGBClassifier(n_estimators=trees, max_depth=depth, n_jobs=1, monotone_constraints=constraint).fit(
            frame, y
        )
        for constraint in ({"income": 1}, None)
    )
    return one, two


@pytest.mark.parametrize("on", ["class", "score"])
def test_a_constrained_xgboost_model_is_monotone_and_another_is_not(two_models: tuple[Any, Any], on: Any) -> None:
    frame, _ = people()
    space = Space.infer(frame).space
    kept, free = (verify(model, space, Monotonicity("income", on=on), workers=1) for model in two_models)
    assert kept.verdict is Verdict.HOLDS
    assert kept.seconds < 10
    assert free.verdict is Verdict.VIOLATED
    assert free.replayed is True
    low, high = sorted((free.x, free.witness), key=lambda row: float(row["income"].iloc[0]))
    assert free.x["age"].iloc[0] == free.witness["age"].iloc[0]
    model = two_models[1]
    if on == "class":
        assert model.predict(low[frame.columns])[0] > model.predict(high[frame.columns])[0]
        assert free.scores is None
    else:
        low, high = (model.predict(row[frame.columns], output_margin=True)[0] for row in (low, high))
        assert low > high
        assert sorted(free.scores) == [high, low]


def test_a_constraint_is_kept_in_the_other_direction_only() -> None:
    frame, y = people()
    model = xgboost.XGBClassifier(n_estimators=20, max_depth=3, n_jobs=1, monotone_constraints={"income": 1}).fit(
        frame, y
    )
    space = Space.infer(frame).space
    assert verify(model, space, Monotonicity("income", "decreasing", "score")).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("model", "scale", "read"),
    [
        (xgboost.XGBClassifier(n_estimators=20, max_depth=3, n_jobs=1), "margin",
         lambda model, rows: model.predict(rows, output_margin=True)),
        (xgboost.XGBClassifier(n_estimators=20, max_depth=3, n_jobs=1), "probability",
         lambda model, rows: model.predict_proba(rows)[:, 1]),
        (xgboost.XGBRegressor(n_estimators=20, max_depth=3, n_jobs=1), "value", lambda model, rows: model.predict(rows)),
        (LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1), "value", lambda model, rows: model.predict(rows)),
        (GradientBoostingRegressor(n_estimators=10, random_state=0), "value", lambda model, rows: model.predict(rows)),
        (RandomForestClassifier(10, max_depth=4, random_state=0), "probability",
         lambda model, rows: model.predict_proba(rows)[:, 1]),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else str(value)[:12],
)  # fmt: skip
def test_scores_are_replayed_by_the_librarys_own_scores(model: Any, scale: Any, read: Any) -> None:
    frame, y = people()
    model.fit(frame, y)
    space = Space.infer(frame).space
    found = verify(model, space, ScoreFairness("sex", "0.01", scale), workers=1)
    assert found.verdict is Verdict.VIOLATED
    assert found.replayed is True
    own = [float(read(model, row[frame.columns])[0]) for row in (found.x, found.witness)]
    assert abs(own[0] - own[1]) > 0.01
    assert found.scores == pytest.approx(own, abs=1e-6)
    assert (
        verify(model, space, ScoreFairness("sex", "0.99" if scale == "probability" else 50, scale)).verdict
        is Verdict.HOLDS
    )


def test_a_bounded_change_is_kept_by_the_pair() -> None:
    frame, y = people()
    model = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1).fit(frame, y)
    found = verify(model, Space.infer(frame).space, Fairness("age", max_change={"age": 3}))
    assert found.replayed is True
    assert 0 < abs(found.x["age"].iloc[0] - found.witness["age"].iloc[0]) <= 3


def test_a_confident_partner_is_confident() -> None:
    frame, y = people()
    model = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1).fit(frame, y)
    found = verify(model, Space.infer(frame).space, Fairness("income", kappa="0.8", partner_kappa="0.8"))
    p = [model.predict_proba(row[frame.columns])[0, 1] for row in (found.x, found.witness)]
    assert min(p) < 0.2
    assert max(p) > 0.8


def test_near_data_knows_monotonicity() -> None:
    frame, y = people()
    model = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1).fit(frame, y)
    found = verify(model, Space.infer(frame).space, Monotonicity("income"), near=frame[:50])
    assert found.replayed is True
    assert found.row in frame.index[:50]
