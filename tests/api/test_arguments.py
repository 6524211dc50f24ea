"""Whatever one passes to a public function by mistake: a typed error of one line, never another exception."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import boxqte
from boxqte import Attribute, Fairness, Policy, Requirement, Robustness, Space, audit, quantify, verify
from boxqte.certify import certify
from boxqte.errors import BoxQTEError, EngineError, PropertyError, SpaceError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.testing import assert_fair, assert_policy, assert_ratio, assert_robust

MODEL, SPACE, RACE = loan_ensemble(), loan_space(), Fairness("race")
PEOPLE = pd.DataFrame({"income": [500.0, 100.5], "race": [2, 1], "age": [40, 60]})
WRONG: list[Any] = [3, -1, 0.5, "10s", "", b"x", None, [], [3], {}, {"x": 1}, {3: 3}, object(), float("nan"), 1j, True]

CALLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (quantify, {"model": MODEL, "space": SPACE, "property": RACE, "engine": "exhaustive"}),
    (verify, {"model": MODEL, "space": SPACE, "property": RACE}),
    (boxqte.check, {"model": MODEL, "space": SPACE, "property": RACE, "rows": PEOPLE}),
    (boxqte.empirical, {"model": MODEL, "space": SPACE, "prop": RACE, "frame": PEOPLE}),
    (boxqte.population, {"space": SPACE, "frame": PEOPLE}),
    (audit, {"model": MODEL, "space": SPACE, "sensitive": "race", "engine": "exhaustive", "robustness": 0}),
    (boxqte.find_idis, {"model": MODEL, "space": SPACE, "sensitive": "race", "method": "themis", "tests": 5}),
    (boxqte.load_model, {"source": MODEL}),
    (Space.infer, {"frame": PEOPLE}),
    (Fairness, {"sensitive": "race"}),
    (Robustness, {"epsilon": 0.1}),
    (Requirement, {"property": RACE, "at_least": 0.5}),
    (boxqte.RatioRequirement, {"sensitive": "race", "require_ratio": 0.5}),
    (boxqte.group_rates, {"model": MODEL, "space": SPACE, "sensitive": "race", "engine": "exhaustive", "data": PEOPLE}),
    (Policy, {"requirements": [Requirement(RACE, 0.5)]}),
    (Policy.load, {"path": "none.toml"}),
    (Policy([Requirement(RACE, 0.5)]).check, {"model": MODEL, "space": SPACE, "engine": "exhaustive"}),
    (Space, {"attributes": SPACE.attributes}),
    (Space.load, {"path": "none.json"}),
    (Space.from_json, {"node": SPACE.to_json()}),
    (SPACE.with_mass, {"masses": {"race": [1] * len(SPACE["race"].values)}}),
    (SPACE.with_attribute, {"attribute": SPACE["race"]}),
    (Attribute.real, {"name": "x", "low": 0, "high": 1}),
    (Attribute.integer, {"name": "x", "low": 0, "high": 1}),
    (Attribute.categorical, {"name": "x", "values": ["a", "b"]}),
    (Attribute.one_hot, {"name": "x", "columns": ["a", "b"]}),
    (certify, {"file": "none", "model": MODEL, "workers": 1}),
    (assert_fair, {"model": MODEL, "space": SPACE, "sensitive": "race", "at_least": 0.1, "engine": "exhaustive"}),
    (assert_robust, {"model": MODEL, "space": SPACE, "epsilon": {"age": 1}, "at_least": 0.1, "engine": "exhaustive"}),
    (assert_ratio, {"model": MODEL, "space": SPACE, "sensitive": "race", "at_least": 0.1}),
    (assert_policy, {"policy": Policy([Requirement(RACE, 0.1)], engine="exhaustive"), "model": MODEL, "space": SPACE}),
]  # fmt: skip
HARMLESS = {"command", "allow_pickle", "nearest", "batch", "where_", "replay", "merge", "flip", "distinct", "pure"}


def tried(call: Callable[..., Any], good: dict[str, Any], name: str, value: Any) -> None:
    """Call it; the value is fine, or refused as it should be."""
    try:
        call(**{**good, name: value})
    except (BoxQTEError, AssertionError) as error:  # assert_fair and the like: the model is unfair
        said = str(error)
    else:
        return
    assert len(said) > 10
    assert "\n" not in said or said.startswith("the policy is not met")


def arguments_of(call: Callable[..., Any]) -> list[str]:
    named = [p for p in inspect.signature(call).parameters.values() if p.kind is not p.VAR_KEYWORD]
    return [p.name for p in named if p.name not in HARMLESS]


@pytest.mark.parametrize(("call", "good"), CALLS, ids=[call.__qualname__ for call, _ in CALLS])
def test_a_wrong_argument_is_a_typed_error_of_one_line(
    call: Callable[..., Any], good: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = arguments_of(call)
    assert names
    for name in names:
        for value in WRONG:
            try:
                tried(call, good, name, value)
            except Exception as error:
                raise AssertionError(
                    f"{call.__qualname__}({name}={value!r}): {type(error).__name__}: {error}"
                ) from error


RESULT_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("regions", {"top": 2}), ("profile", {"attribute": "age"}), ("pairs", {}), ("restrict", {"condition": "age >= 30"}),
    ("sample", {"n": 2, "random_state": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "good"), RESULT_CALLS, ids=[method for method, _ in RESULT_CALLS])
def test_a_wrong_argument_of_a_results_method_is_a_typed_error_of_one_line(method: str, good: dict[str, Any]) -> None:
    result = quantify(MODEL, SPACE, RACE)
    call = getattr(result, method)
    for name in arguments_of(call):
        for value in WRONG:
            try:
                tried(call, good, name, value)
            except Exception as error:
                raise AssertionError(f"{method}({name}={value!r}): {type(error).__name__}: {error}") from error


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: quantify(MODEL, SPACE, "race"), PropertyError,
         "property: expected Fairness(...), Robustness(...), Monotonicity(...) or ScoreFairness(...), found 'race'; fairness "
         "in that attribute is Fairness('race')"),
        (lambda: verify(MODEL, SPACE, ["race", "age"]), PropertyError, "Fairness(['race', 'age'])"),
        (lambda: boxqte.check(MODEL, SPACE, 3, PEOPLE), PropertyError, "found 3"),
        (lambda: Fairness(3), PropertyError, "sensitive: expected a name or a list of names, found 3"),
        (lambda: Fairness(["race", 3]), PropertyError, "sensitive: expected a name or a list of names, found 3"),
        (lambda: quantify(MODEL, SPACE, RACE, time_limit="10s"), EngineError,
         "time_limit: expected a number of seconds, found '10s'"),
        (lambda: audit(MODEL, space=SPACE, sensitive="race", time_limit="10s"), EngineError,
         "time_limit: expected a number of seconds, found '10s'"),
        (lambda: verify(MODEL, SPACE, RACE, workers=0), EngineError, "workers: must be at least 1, found 0"),
        (lambda: quantify(MODEL, SPACE, RACE, workers=1.5), EngineError, "workers: expected a whole number, found 1.5"),
        (lambda: quantify(MODEL, SPACE, RACE, options={"max_cells": "many"}, engine="exhaustive"), EngineError,
         "engine 'exhaustive': option 'max_cells' takes int, found 'many'"),
        (lambda: Space(["age"]), SpaceError, "attributes: expected Attribute.real(...) and the like, found 'age'"),
        (lambda: quantify(MODEL, 7, RACE), SpaceError,
         "space: expected a Space, an Inference, a path or a JSON object, found 7"),
    ],
)  # fmt: skip
def test_the_error_says_what_is_expected(call: Callable[[], Any], error: type[BoxQTEError], said: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert said in str(caught.value)


def test_an_inference_is_a_space_wherever_a_space_is_taken(tmp_path: Path) -> None:
    inference = Space.infer(PEOPLE, overrides={a.name: a for a in SPACE})
    assert inference.space.attributes == SPACE.attributes
    file = tmp_path / "certificate"
    expected = quantify(MODEL, SPACE, RACE, engine="exhaustive").exact
    assert quantify(MODEL, inference, RACE, engine="exhaustive").exact == expected == Fraction(352, 505)
    assert audit(MODEL, space=inference, sensitive="race", engine="exhaustive", robustness=0)["race"].exact == expected
    assert str(verify(MODEL, inference, RACE).verdict) == "violated"
    assert len(boxqte.check(MODEL, inference, RACE, PEOPLE).table) == 2
    assert boxqte.empirical(MODEL, inference, RACE, PEOPLE).rows == 2
    population = boxqte.population(inference, PEOPLE)
    assert population.rows == 2
    assert quantify(MODEL, population, RACE, engine="exhaustive").exact is not None
    assert boxqte.find_idis(MODEL, inference, "race", method="themis", tests=5).tests == 5
    assert Policy([Requirement(RACE, 0.5)], engine="exhaustive").check(MODEL, inference).passed
    quantify(MODEL, inference, RACE, engine="box", certificate=file)
    assert certify(file, MODEL, space=inference, workers=1).boxes > 0


def test_an_audit_iterates_over_its_questions_names_like_a_mapping() -> None:
    found = audit(MODEL, space=SPACE, sensitive=["race", "age"], engine="exhaustive", robustness=0)
    assert list(found) == ["race", "age", "race, age"] == list(found.keys())
    assert len(found) == 3
    assert "race" in found
    assert 0 not in found
    assert dict(found)["race"] is found["race"]
    assert [found[name].exact for name in found] == [r.exact for r in found.results]
    with pytest.raises(KeyError, match="no answered question"):
        found["colour"]
