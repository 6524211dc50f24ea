"""What a result says of itself where its number says little."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from boxqte import Fairness, Robustness, Space, quantify
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble
from boxqte.space.attributes import Attribute

SPACE = Space([
    Attribute.integer("age", 0, 50), Attribute.real("income", 0, 10), Attribute.categorical("sex", [0, 1]),
    Attribute.integer("one", 3, 3),
])  # fmt: skip


def stump(leaf: float = 2.0, other: float = -2.0, column: int = 0, threshold: float = 25.0) -> TreeEnsemble:
    """One tree with one test; by default on the age."""
    builder = EnsembleBuilder()
    builder.add_tree(
        feature=[column, 0, 0], test=[Test.LESS_F32, Test.LEAF, Test.LEAF], threshold=[threshold, 0.0, 0.0],
        left=[1, 0, 0], right=[2, 0, 0], value=[0.0, leaf, other],
    )  # fmt: skip
    names = ["age", "income", "sex", "one"]
    return builder.build(library="example", feature_names=names, base=(Fraction(0),), link="sigmoid")


def said(model: Any, prop: Any, **options: Any) -> tuple[str, ...]:
    result = quantify(model, SPACE, prop, workers=1, **options)
    assert json.loads(json.dumps(result.to_json()))["remarks"] == list(result.remarks)
    return result.remarks


def test_most_answers_have_no_remarks() -> None:
    assert quantify(loan_ensemble(), loan_space(), Fairness("race")).remarks == ()
    assert quantify(loan_ensemble(), loan_space(), Robustness("0.1")).remarks == ()


def test_nothing_moves_within_a_tolerance_below_one_integer() -> None:
    for epsilon in ({"age": "0.99"}, {"age": "0.5", "one": 2}):
        (remark,) = said(stump(), Robustness(epsilon))
        assert remark == (
            "No attribute of x' can move within epsilon (a tolerance below 1 moves no integer): it is x itself and every "
            "input is robust, whatever the model does."
        )
    assert "every input is robust" in said(stump(), Robustness(0))[0]
    assert said(stump(), Robustness({"age": 1})) == ()
    remark = said(stump(column=2, threshold=0.5), Fairness("sex", {"age": "0.5"}))[0]
    assert "only its sensitive attributes differ" in remark


def test_what_moves_may_be_tested_by_no_tree() -> None:
    assert said(stump(), Robustness({"income": 1})) == (
        "Only income can move within epsilon, and no tree tests it: epsilon changes no class.",
    )


def test_a_sensitive_attribute_that_no_tree_tests() -> None:
    assert said(stump(), Fairness("sex")) == (
        "No tree tests sex: the class never depends on it; proxies are not covered by this measure.",
    )
    assert said(stump(), Fairness(["sex", "income", "age"])) == (
        "No tree tests income and sex: the class never depends on them; proxies are not covered by this measure.",
    )
    assert said(stump(), Fairness("one")) == ("one has one value only in this space: no x' differs from x in it.",)


@pytest.mark.parametrize("engine", ["box", "exhaustive"])
def test_few_confident_inputs_are_counted(engine: str) -> None:
    model = stump(3.0, 0.1, threshold=10.0)
    (remark,) = said(model, Robustness({"age": 2}, "0.9"), engine=engine)
    assert remark == "At kappa 0.9 only 19.6 % of the inputs are confident; the measure says nothing about the others."
    assert said(stump(3.0, 0.1, threshold=40.0), Robustness({"age": 2}, "0.9")) == ()
    result = quantify(model, SPACE, Robustness({"age": 2}, "0.9"), engine=engine)
    assert result.restrict("age < 10").remarks == ()
    assert result.restrict("age >= 10").remarks == ("No input is confident at kappa 0.9, so the measure is undefined.",)


def test_few_confident_inputs_are_certain_bounds() -> None:
    from boxqte.basics.numbers import PHRASE, number_text

    assert number_text(0.12349, 0.45671, PHRASE) == "between 12.3 % and 45.7 %"
    assert number_text(0.0, 0.125, PHRASE) == "between 0 % and 12.5 %"
