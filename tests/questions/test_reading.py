"""A property from named fields: it reads back from its own JSON, and what contradicts itself is refused in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boxqte import Fairness, Monotonicity, PropertyError, Robustness, ScoreFairness
from boxqte.questions.properties import Property
from boxqte.questions.reading import FIELDS, read_property
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space


@pytest.mark.parametrize(
    "prop",
    [
        Fairness("sex"),
        Fairness(["sex", "race"], "1/3", "0.7", tie="paper"),
        Fairness("sex", {"age": 2, "income": "0.1"}),
        Fairness("age", kappa="0.8", partner_kappa="0.8", max_change={"age": "2.5"}),
        Robustness({"age": 2}, partner_kappa="0.6"),
        Robustness(0),
        Monotonicity("income"),
        Monotonicity("debt", "decreasing", "score", tie="paper"),
        ScoreFairness("sex", "0.05"),
        ScoreFairness(["sex", "race"], 3, "margin", "0.6"),
        ScoreFairness("sex", "1e-3", "value"),
    ],
    ids=str,
)
def test_every_property_reads_back_from_its_json(prop: Property) -> None:
    assert read_property(json.loads(json.dumps(prop.to_json()))) == prop
    assert set(prop.to_json()) <= {"kind", *FIELDS}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "robustness", "sensitive": "sex"}, "kind: 'robustness', but its fields ask about fairness"),
        ({"sensitiv": "sex"}, "unknown field 'sensitiv' (did you mean 'sensitive'?); fields are"),
        ({"sensitive": 3}, "sensitive: expected the names of attributes, found 3"),
        ({"sensitive": ["sex", 3]}, "sensitive: expected a text, found 3"),
        ({"epsilon": 3}, "epsilon: expected a table, attribute = number, found 3"),
        ({"epsilon": {"a": 1}, "epsilon_rate": 0.1}, "epsilon: it and epsilon_rate exclude each other"),
        ({"max_change": {"age": 5}}, "max_change: bounds a sensitive attribute; give sensitive too"),
        ({"sensitive": "age", "max_change": {"age": 0}}, "max_change of 'age': must be above 0, found 0"),
        ({"sensitive": "age", "max_change": [5]}, "max_change: expected a table, attribute = number, found [5]"),
        (
            {"monotone": "income"},
            "monotone: expected a table, attribute = 'increasing' or 'decreasing', found 'income'",
        ),
        ({"monotone": {}}, "monotone: no attribute is named"),
        ({"monotone": {"a": "up"}}, "monotone: expected 'increasing' or 'decreasing', found 'up'"),
        ({"monotone": {"a": "increasing", "b": "increasing"}}, "monotone: one attribute a question, found a, b"),
        ({"monotone": {"a": "increasing"}, "on": "rank"}, "on: expected 'class' or 'score', found 'rank'"),
        ({"monotone": {"a": "increasing"}, "sensitive": "b"}, "leave sensitive out"),
        ({"monotone": {"a": "increasing"}, "partner_kappa": 0.6}, "leave partner_kappa out"),
        ({"monotone": {"a": "increasing"}, "score_at_most": 1}, "leave score_at_most out"),
        ({"on": "score"}, "on: belongs to monotone; give it too"),
        ({"scale": "margin", "sensitive": "sex"}, "scale: belongs to score_at_most; give it too"),
        ({"score_at_most": 1}, "score_at_most: compares inputs that differ in sensitive; give it too"),
        ({"score_at_most": 1, "sensitive": "sex"}, "score_at_most: probabilities differ by less than 1, found 1"),
        ({"score_at_most": -1, "sensitive": "sex"}, "score_at_most: must be at least 0, found -1"),
        (
            {"score_at_most": 0.1, "sensitive": "sex", "scale": "odds"},
            "scale: expected 'probability', 'margin' or 'value'",
        ),
        ({"score_at_most": 0.1, "sensitive": "sex", "tie": "paper"}, "score_at_most: compares scores; leave tie out"),
        ({"score_at_most": 0.1, "sensitive": "sex", "epsilon": {"a": 1}}, "leave epsilon out"),
    ],
)
def test_what_contradicts_itself_is_one_line(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(PropertyError) as raised:
        read_property(fields)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_says_nothing_contradicts_nothing() -> None:
    neutral = {"epsilon_rate": "0", "tie": "library", "partner_kappa": 0, "kappa": "0.5", "sensitive": None}
    assert read_property({"monotone": {"a": "increasing"}, **neutral}) == Monotonicity("a")
    assert read_property({**neutral, "score_at_most": "0.1", "sensitive": "a"}) == ScoreFairness("a", "0.1")


def test_a_monotone_attribute_must_be_a_number_of_the_space() -> None:
    space = Space([Attribute.integer("income", 0, 9), Attribute.categorical("sex", ["f", "m"])])
    with pytest.raises(PropertyError, match=r"attribute: 'incom' is not an attribute \(did you mean 'income'\?\)"):
        Monotonicity("incom").check(space)
    with pytest.raises(PropertyError, match="attribute: 'sex' is categorical; only numbers have an order"):
        Monotonicity("sex").check(space)


def test_words_say_what_a_counterexample_is() -> None:
    assert "has more of it, gets a lower score" in Monotonicity("income", on="score").meaning
    assert "further than 0.1" in ScoreFairness("sex", "0.1").meaning
    assert "(age by at most 5)" in Fairness("age", max_change={"age": 5}).meaning
    assert "with confidence above 0.8" in Fairness("age", partner_kappa="0.8").meaning
