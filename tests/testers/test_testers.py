"""The testers: whatever they report is true, repeats, and is counted as it says."""

from __future__ import annotations

import random
import time
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boxqte.errors import BoxQTEError, EngineError, ModelError, PropertyError, SpaceError
from boxqte.questions.properties import Fairness
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from boxqte.testers import TESTERS, find_idis, named_tester
from boxqte.testers.blackbox import BlackBox
from boxqte.testers.session import Session
from boxqte.testers.tester import Tester
from boxqte.testers.verification import verify
from tests.naive import naive_row_at
from tests.strategies import random_problem

METHODS = list(TESTERS)
SPACE = Space(
    [
        Attribute.integer("debt", -20, 20),
        Attribute.real("income", 0, 10),
        Attribute.categorical("town", ["a", "b", "c"], codes=[3, 1, 2]),
        Attribute.one_hot("job", ["job_x", "job_y", "job_z"]),
        Attribute.integer("group", 1, 4),
        Attribute.integer("age", 0, 30, missing=True),
    ]
)
# Small searches: the same code as the defaults, less of it.
QUICK: dict[str, dict[str, Any]] = {
    "themis": {},
    "sg": {"seeds": 50, "rows": 300, "at_once": 64},
    "expga": {"samples": 200, "seeds": 20, "perturbations": 300},
    "aft": {"points": 500, "pairs": 40, "samples": 20},
    "vbt": {"points": 300, "starts": 4},
    "surrogate": {"points": 1000, "trees": 20, "depth": 3, "samples": 300, "quantify": False},
}


def decide(debt: float, income: float, town: str, job: str, group: int, age: float) -> int:
    """A rule that treats groups differently near its border, and in one job."""
    score = income - debt / 4 + {"a": 0.0, "b": 1.0, "c": -1.0}[town]
    if job == "job_y" and not np.isnan(age) and age > 10:
        score += 1.5 * (group == 4)
    return int(score + 0.3 * group > 5)


def model(rows: np.ndarray) -> np.ndarray:
    """The same rule on a matrix of model columns: debt, income, town, three of job, group, age."""
    town = np.select([rows[:, 2] == 1, rows[:, 2] == 2], [1.0, -1.0], 0.0)
    score = rows[:, 1] - rows[:, 0] / 4 + town + 1.5 * ((rows[:, 4] == 1) & (rows[:, 7] > 10) & (rows[:, 6] == 4))
    return (score + 0.3 * rows[:, 6] > 5).astype(int)


def search(method: str, **changed: Any) -> Any:
    arguments: dict[str, Any] = {"tests": 800, "random_state": 3, "options": QUICK[method]} | changed
    return find_idis(model, arguments.pop("space", SPACE), "group", method=method, **arguments)


def is_idi(row: dict[str, Any]) -> bool:
    answers = {decide(**{**row, "group": group}) for group in range(1, 5)}
    return len(answers) == 2


# --- what is reported is true ---


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_every_reported_idi_is_one(method: str, batch: bool) -> None:
    found = search(method, batch=batch, tests=800 if batch else 150)
    assert len(found) > 0
    assert found.rejected == 0
    for row, partner in zip(found.idis.to_dict("records"), found.partners.to_dict("records")):
        assert -20 <= row["debt"] <= 20
        assert row["debt"] == int(row["debt"])
        assert 0 <= row["income"] <= 10
        assert row["group"] in (1, 2, 3, 4)
        assert np.isnan(row["age"]) or 0 <= row["age"] <= 30
        assert row["group"] != partner["group"]
        assert decide(**row) != decide(**partner)
        same = {name: value for name, value in row.items() if name != "group" and not pd.isna(value)}
        assert same == {name: partner[name] for name in same}
        assert is_idi(row)


@pytest.mark.parametrize("method", METHODS)
def test_an_idi_counts_once_without_the_sensitive_attribute(method: str) -> None:
    found = search(method)
    assert not found.idis.drop(columns="group").duplicated().any()
    assert found.raw >= len(found)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_and_number_of_tests_give_the_same_idis(method: str) -> None:
    one, two, other = search(method), search(method), search(method, random_state=4)
    pd.testing.assert_frame_equal(one.pairs, two.pairs)
    assert (one.tests, one.calls, one.rows, one.raw) == (two.tests, two.calls, two.rows, two.raw)
    assert not one.pairs.equals(other.pairs)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("method", ["themis", "aft", "vbt", "expga"])
def test_idis_of_random_tree_ensembles_are_counterexamples_for_the_oracle(method: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        problem = random_problem(rng, robustness=False, eps=False, kappa=False, paper_ties=False, max_pieces=200)
        sensitive = problem.property.sensitive
        if len(sensitive) == 1 and (problem.space[sensitive[0]].size or 0) > 1:
            break
    fairness = Fairness(sensitive[0])
    options = QUICK[method] | ({"points": 60} if method in ("aft", "vbt") else {})
    found = find_idis(problem.ensemble, problem.space, sensitive[0], method=method, tests=30, random_state=seed,
                      options=options if method != "expga" else {"samples": 40, "seeds": 5, "perturbations": 40})  # fmt: skip
    assert found.rejected == 0
    for row in found.idis.head(5).to_dict("records"):
        x = {name: _exact(problem.space[name], value) for name, value in row.items()}
        assert naive_row_at(problem.ensemble, problem.space, fairness, x).counterexample


def _exact(attribute: Attribute, value: Any) -> Any:
    if pd.isna(value):
        return None
    return Fraction(value) if attribute.is_numeric else value


class Liar(Tester):
    """Reports whatever it draws, in the space or not."""

    name = "liar"

    class Options:
        pass

    def search(self, session: Session) -> None:
        x = session.at.draw(session.rng, 300)
        session.tests += 300
        session.found(x, session.at.values[(x[:, session.at.sensitive] - session.at.low[session.at.sensitive] + 1)
                                           .astype(int) % 4])  # fmt: skip
        outside = x[:50] + np.where(np.arange(len(session.at)) == 0, 100.0, 0.0)
        session.found(outside, outside[:, session.at.sensitive])


def test_a_tester_that_reports_false_idis_is_caught() -> None:
    import dataclasses

    Liar.Options = dataclasses.make_dataclass("Options", [])  # type: ignore[misc]
    TESTERS["liar"] = f"{__name__}:Liar"
    try:
        import sys

        sys.modules.setdefault(__name__, sys.modules[Liar.__module__])
        found = find_idis(model, SPACE, "group", method="liar", tests=1000, random_state=0)
    finally:
        del TESTERS["liar"]
    assert found.status == "exhausted"
    assert found.raw == 350
    assert 0 < len(found) < 150
    assert found.rejected == 350 - len(found)
    assert all(is_idi(row) for row in found.idis.to_dict("records"))


def test_the_check_refuses_each_kind_of_false_idi() -> None:
    x = {"debt": 0, "income": 4.0, "town": "a", "job": "job_x", "group": 1, "age": 5.0}
    good, bad = {**x, "group": 4}, {**x, "group": 2}
    assert decide(**x) != decide(**good)
    assert decide(**x) == decide(**bad)
    cases = [
        (x, good, True),
        (x, bad, False),  # no flip
        (x, x, False),  # the same input
        (x, {**good, "debt": 1}, False),  # another attribute differs
        ({**x, "group": 5}, {**good, "group": 1}, False),  # S outside its domain
        ({**x, "debt": -21}, {**good, "debt": -21}, False),
        ({**x, "debt": 0.5}, {**good, "debt": 0.5}, False),
        ({**x, "town": "d"}, {**good, "town": "d"}, False),
        ({**x, "income": float("nan")}, {**good, "income": float("nan")}, False),  # no missing value declared
        ({**x, "age": float("nan")}, {**good, "age": float("nan")}, True),
    ]
    one, two = (pd.DataFrame([case[i] for case in cases]) for i in (0, 1))
    checked = verify(BlackBox(model, SPACE), SPACE, "group", one, two)
    assert checked.tolist() == [case[2] for case in cases]


# --- how much is found ---


def test_the_success_rate_of_themis_is_the_share_of_idis() -> None:
    """On a finite space, where the share is known exactly."""
    space = Space([Attribute.integer("a", 0, 19), Attribute.integer("b", 0, 19), Attribute.categorical("s", [0, 1, 2])])

    def f(rows: np.ndarray) -> np.ndarray:
        return (rows[:, 0] + rows[:, 1] + 3 * (rows[:, 2] == 2) > 20).astype(int)

    grid = np.array([[a, b] for a in range(20) for b in range(20)])
    answers = [f(np.column_stack([grid, np.full(400, s)])) for s in range(3)]
    share = float(np.mean(np.ptp(answers, axis=0)))
    found = find_idis(f, space, "s", method="themis", tests=20_000, random_state=0)
    score = found.details["causal_score"]
    assert abs(score - share) < 3 * (share * (1 - share) / 20_000) ** 0.5
    assert len(found) == round(share * 400)  # 50 draws an input: all of them are found
    assert found.raw == round(score * 20_000)


@pytest.mark.parametrize("method", ["sg", "expga", "aft", "vbt", "surrogate"])
def test_a_search_finds_more_than_chance(method: str) -> None:
    """A rule that flips 1 % of the inputs."""
    space = Space([*(Attribute.integer(f"x{i}", 0, 99) for i in range(4)), Attribute.integer("s", 0, 1)])

    def f(rows: np.ndarray) -> np.ndarray:
        special = (rows[:, 0] >= 90) & (rows[:, 1] < 10)
        return np.where(special, rows[:, 4], rows[:, 2] + rows[:, 3] > 99).astype(int)

    options = QUICK[method] | ({"points": 3000} if method in ("aft", "vbt", "surrogate") else {})
    options |= {"trees": 50, "depth": 5} if method == "surrogate" else {}
    tests = 20_000 if method == "expga" else 2000  # its fitness knows no way to such a corner before it is hit
    found = find_idis(f, space, "s", method=method, tests=tests, random_state=1, options=options)
    assert found.success_rate > 0.05


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_ignores_the_attribute_has_no_idi(method: str) -> None:
    found = find_idis(lambda rows: (rows[:, 1] > 5).astype(int), SPACE, "group", method=method, tests=300, random_state=0,
                      options=QUICK[method])  # fmt: skip
    assert len(found) == found.raw == found.rejected == 0
    assert found.status in ("tests", "exhausted")


@pytest.mark.parametrize("method", METHODS)
def test_a_model_with_one_class_ends_every_search(method: str) -> None:
    found = find_idis(lambda rows: np.zeros(len(rows)), SPACE, "group", method=method, tests=100, random_state=0,
                      options=QUICK[method])  # fmt: skip
    assert len(found) == 0


# --- what is counted ---


@pytest.mark.parametrize("method", METHODS)
def test_the_budget_of_tests_is_met_exactly_unless_nothing_is_left(method: str) -> None:
    found = search(method, tests=777)
    assert found.tests == 777 if found.status == "tests" else found.tests < 777


def test_calls_and_rows_are_those_of_the_model() -> None:
    sizes: list[int] = []

    def counting(rows: np.ndarray) -> np.ndarray:
        sizes.append(len(rows))
        return model(rows)

    found = find_idis(counting, SPACE, "group", method="themis", tests=500, random_state=0)
    asked = len(sizes) - 2  # the check's own two calls come last
    assert (found.calls, found.rows) == (asked, sum(sizes[:asked]))
    sizes.clear()
    found = find_idis(counting, SPACE, "group", method="themis", tests=50, random_state=0, batch=False)
    assert set(sizes[: found.calls]) == {1}
    assert found.rows == found.calls <= 200


@pytest.mark.parametrize("method", METHODS)
def test_the_curve_rises_to_the_result(method: str) -> None:
    found = search(method)
    assert list(found.curve.columns) == ["seconds", "tests", "idis"]
    assert all((a <= b).all() for a, b in pairwise(found.curve.to_numpy()))
    assert found.curve.iloc[-1]["idis"] == len(found)


def test_figures_of_the_result() -> None:
    found = search("themis")
    assert found.success_rate == len(found) / 800
    assert found.seconds_per_idi == found.seconds / len(found)
    assert 3 < found.diversity < 5
    node = found.to_json()
    assert node["idis"] == len(found)
    assert node["first"][0]["partner_group"] == found.partners["group"].iloc[0]
    assert str(len(found)) in repr(found)
    empty = find_idis(lambda rows: rows[:, 0] > 0, SPACE, "group", method="themis", tests=10)
    assert (empty.success_rate, empty.seconds_per_idi, empty.diversity) == (0, None, None)
    assert list(empty.idis.columns) == list(SPACE.names)


# --- budgets and interruptions ---


@pytest.mark.parametrize("method", ["themis", "aft", "expga"])
def test_a_time_limit_is_met_also_if_the_model_is_slow(method: str) -> None:
    def slow(rows: np.ndarray) -> np.ndarray:
        time.sleep(len(rows) * 2e-4)
        return model(rows)

    found = find_idis(slow, SPACE, "group", method=method, seconds=0.5, random_state=0, options=QUICK[method])
    assert found.status == "time limit"
    assert 0.5 <= found.seconds < 5


def test_an_interrupted_search_keeps_what_it_found() -> None:
    calls = 0

    def interrupted(rows: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise KeyboardInterrupt
        return model(rows)

    found = find_idis(interrupted, SPACE, "group", method="themis", seconds=60, random_state=0)
    assert found.status == "interrupted"
    assert len(found) > 0
    assert found.rejected == 0


def test_progress_is_reported() -> None:
    seen: list[Any] = []
    search("themis", progress=seen.append, tests=20_000)
    assert seen[0].tests == 0
    assert all(a.idis <= b.idis for a, b in pairwise(seen))


# --- variants: the published errors, and that they are fixed ---


def test_the_causal_stop_of_themis_needs_more_than_no_flip() -> None:
    def fair(rows: np.ndarray) -> np.ndarray:
        return (rows[:, 0] > 0).astype(int)

    options = {"causal_stop": True, "margin": 0.01}
    one = find_idis(fair, SPACE, "group", method="themis", tests=5000, options=options, batch=False, variant="faithful")
    assert (one.tests, one.status) == (1, "exhausted")
    two = find_idis(fair, SPACE, "group", method="themis", tests=5000, options=options, random_state=0)
    assert 100 < two.tests < 5000
    assert two.details["half_width"] < 0.01


def test_the_faithful_expga_leaves_the_domain_and_never_mutates_to_the_highest_value() -> None:
    faithful, fixed = (search("expga", variant=variant, tests=3000) for variant in ("faithful", "fixed"))
    assert faithful.rejected > 0  # group 0
    assert fixed.rejected == 0
    seeds = QUICK["expga"]["seeds"]
    assert (fixed.idis["debt"] == 20).sum() + (fixed.idis["debt"] == -20).sum() > 0
    assert len(faithful) + faithful.rejected > seeds


def test_the_faithful_vbt_leaves_the_domain() -> None:
    pytest.importorskip("z3")
    space = Space([Attribute.integer("a", 5, 30), Attribute.integer("b", 5, 9), Attribute.integer("s", 3, 5)])

    def f(rows: np.ndarray) -> np.ndarray:
        return (rows[:, 0] + 3 * rows[:, 2] > 30).astype(int)

    search = {"method": "vbt", "tests": 60, "random_state": 0, "options": {"points": 300}, "batch": False}
    faithful, fixed = (find_idis(f, space, "s", variant=variant, **search) for variant in ("faithful", "fixed"))
    assert faithful.rejected > 0
    assert fixed.rejected == 0 < len(fixed)
    for row in faithful.idis.to_dict("records"):
        assert row["a"] + 9 <= 30 < row["a"] + 15


def test_a_variant_must_be_known() -> None:
    with pytest.raises(EngineError, match="variant: expected one of fixed, faithful, found 'best'"):
        search("aft", variant="best")


# --- the model ---


def test_a_model_with_text_labels_and_a_table_of_values_can_be_tested() -> None:
    def f(table: pd.DataFrame) -> list[str]:
        return ["yes" if decide(**row) else "no" for row in table.to_dict("records")]

    found = find_idis(f, SPACE, "group", method="themis", tests=300, random_state=0, input="frame")
    same = find_idis(model, SPACE, "group", method="themis", tests=300, random_state=0)
    pd.testing.assert_frame_equal(found.pairs, same.pairs)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_the_surrogate_tests_a_neural_network(library: str) -> None:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    names = ["x", "y", "z", "s"]
    rows = pd.DataFrame(rng.integers(0, [100, 100, 100, 3], (2000, 4)), columns=names).astype(float)
    target = rows["x"] - rows["y"] + 15 * rows["s"] + rng.normal(0, 5, 2000) > 10
    network = make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=60, tol=1e-2, random_state=0)).fit(
        rows, target
    )
    space = Space([*(Attribute.integer(n, 0, 99) for n in "xyz"), Attribute.categorical("s", [0, 1, 2])])
    options = {"library": library, "points": 3000, "trees": 30, "samples": 500, "quantify": False}
    found = find_idis(network, space, "s", method="surrogate", tests=3000, random_state=0, options=options)
    chance = find_idis(network, space, "s", method="themis", tests=3000, random_state=0)
    assert found.rejected == 0
    assert found.success_rate > 0.7 > 2 * chance.success_rate
    answers = [network.predict(found.idis.assign(s=s)[names].astype(float)) for s in range(3)]
    assert (np.ptp(np.array(answers, int), axis=0) > 0).all()


def test_the_surrogate_says_how_fair_it_is_itself() -> None:
    found = search("surrogate", options=QUICK["surrogate"] | {"quantify": True})
    lower, upper = found.details["surrogate_fairness"]
    assert 0 <= lower <= upper <= 1
    assert upper < 1  # it has found pairs
    assert 0.5 < found.details["agreement"] <= 1


def test_a_model_of_several_classes_can_be_tested() -> None:
    def three(rows: np.ndarray) -> np.ndarray:
        return np.digitize(rows[:, 1] + rows[:, 6], [5, 9])

    for method in METHODS:
        found = find_idis(three, SPACE, "group", method=method, tests=300, random_state=0, options=QUICK[method])
        assert found.rejected == 0
        assert len(found) > 0


def test_a_sensitive_attribute_with_many_values_is_asked_in_waves() -> None:
    space = Space([Attribute.integer("x", 0, 9), Attribute.integer("s", 0, 99)])

    def f(rows: np.ndarray) -> np.ndarray:
        return ((rows[:, 1] == 57) & (rows[:, 0] > 4)).astype(int)

    found = find_idis(f, space, "s", method="themis", tests=300, random_state=0)
    assert sorted(found.idis["x"]) == [5, 6, 7, 8, 9]
    one = find_idis(f, space, "s", method="themis", tests=20, random_state=0, batch=False)
    assert one.rows <= 20 * 100


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda rows: np.zeros((len(rows), 2)), "shape"),
        (lambda rows: np.full(len(rows), 0.25), "expected class labels, not scores"),
        (7, "int object: not a black box"),
    ],
)
def test_a_model_that_is_none_is_refused(function: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        find_idis(function, SPACE, "group", method="themis", tests=10)


def test_a_model_fitted_on_other_columns_is_refused() -> None:
    from sklearn.dummy import DummyClassifier

    other = DummyClassifier().fit(pd.DataFrame({"a": [0.0, 1.0]}), [0, 1])
    other.feature_names_in_ = np.array(["a"])
    with pytest.raises(SpaceError, match="was fitted on the columns a; the space feeds debt"):
        find_idis(other, SPACE, "group", method="themis", tests=10)


# --- mistakes of the user ---


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"tests": None}, EngineError, "a tester needs a budget"),
        ({"tests": 0}, EngineError, "tests: must be at least 1, found 0"),
        ({"seconds": -1.0}, EngineError, "seconds: must be above 0"),
        ({"options": {"speed": 1}}, EngineError, "option 'speed' is unknown; options are points"),
        ({"input": "table"}, ModelError, "input: expected 'matrix' or 'frame'"),
        (
            {"data": pd.DataFrame({"debt": [1]})},
            SpaceError,
            "the table has no column 'income' of the space; it has debt",
        ),
    ],
)
def test_mistakes_are_named(changed: dict[str, Any], error: type[BoxQTEError], words: str) -> None:
    with pytest.raises(error, match=words):
        search("aft", **changed)


@pytest.mark.parametrize(
    ("sensitive", "words"),
    [
        ("sex", "'sex' is not an attribute; attributes are debt"),
        ("income", "'income' has infinitely many values"),
        (["group"], "takes the name of one attribute"),
    ],
)
def test_the_sensitive_attribute_must_be_one_that_can_be_tried(sensitive: Any, words: str) -> None:
    with pytest.raises(PropertyError, match=words):
        find_idis(model, SPACE, sensitive, method="themis", tests=10)


def test_an_unknown_tester_is_named() -> None:
    with pytest.raises(EngineError, match="method: 'adf' is unknown; testers are themis, sg"):
        named_tester("adf")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_tester("aft"), "needs", lambda self: ("no_such_library.part",))
    with pytest.raises(EngineError, match=r"tester 'aft' needs no_such_library: pip install boxqte\[testers\]"):
        search("aft")
