"""What a result says of itself where its number says little."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

import pytest

import boxqte
from boxqte import Fairness, Monotonicity, Robustness, ScoreFairness, Space, quantify
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble
from boxqte.report.text import answer_text
from boxqte.space.attributes import Attribute
from tests.naive import naive_quantify
from tests.strategies import random_problem

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
    written = json.loads(json.dumps(result.to_json()))
    assert (written["remarks"], written["caveats"]) == (list(result.remarks), list(result.caveats))
    assert len(result.caveats) == len(result.remarks)
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


def test_a_question_that_is_empty_is_answered_exactly_and_says_so_beside_the_number() -> None:
    result = quantify(stump(), SPACE, Fairness("sex"), workers=1)
    assert result.exact == 1
    measure = next(line for line in answer_text(result).splitlines() if line.startswith("measure"))
    assert measure.split(maxsplit=1)[1] == "1 (exact); no tree tests sex"
    assert quantify(stump(), SPACE, Robustness({"income": 1}), workers=1).exact == 1
    assert quantify(stump(), SPACE, Robustness({"age": 1}), workers=1).value < 1  # type: ignore[operator]


def test_an_undefined_measure_says_why_once() -> None:
    result = quantify(stump(0.1, -0.1), SPACE, Fairness("sex", kappa="0.9"), workers=1)
    assert result.caveats == ("no tree tests sex", "no input is confident")
    assert answer_text(result).count("undefined: no input is confident at kappa 0.9, so") == 1


# --- a sensitive attribute that is no input of the model ---

WIDER = Space([*SPACE, Attribute.categorical("race", ["a", "b", "c"]), Attribute.integer("shoe", 30, 50)])
UNREAD = "The model does not read race: the class never depends on it; proxies are not covered by this measure."


@pytest.mark.parametrize("engine", ["auto", "box", "exhaustive"])
def test_the_model_may_not_read_what_is_sensitive(engine: str) -> None:
    space = Space(WIDER.attributes[:-1])
    result = quantify(stump(), space, Fairness("race"), engine=engine, workers=1)
    assert (result.exact, result.remarks, result.caveats) == (1, (UNREAD,), ("the model does not read race",))
    both = quantify(stump(column=2, threshold=0.5), space, Fairness(["sex", "race"]), engine=engine, workers=1)
    assert both.converged
    assert both.upper < 1e-9  # type: ignore[operator]  # every input is unfair in sex
    assert both.remarks == (UNREAD,)
    drawn = both.sample(5, random_state=0)
    assert list(drawn.x.columns) == ["age", "income", "sex", "one", "race"]


def test_other_attributes_must_be_columns_of_the_model() -> None:
    with pytest.raises(
        boxqte.SpaceError, match=r"'shoe' that the model does not take; .* only a sensitive attribute may"
    ):
        quantify(stump(), WIDER, Fairness("race"))
    marked = Space(WIDER.attributes, sensitive=["shoe", "race"])
    assert (
        quantify(stump(), marked, Robustness({"age": 1})).value
        == quantify(stump(), SPACE, Robustness({"age": 1})).value
    )


def test_every_door_says_that_the_model_does_not_read_it() -> None:
    space = Space(WIDER.attributes[:-1])
    rates = boxqte.group_rates(stump(), space, "race")
    assert rates.remarks == (UNREAD,)
    assert rates.ratio is not None
    assert rates.ratio.lower == 1
    assert UNREAD in str(rates.to_json())
    changed = boxqte.score_changes(stump(), space, "race", scale="margin")
    score = UNREAD.replace("class", "score")
    assert changed.remarks == (score,) == quantify(stump(), space, ScoreFairness("race", 0)).remarks
    assert changed.to_json()["remarks"] == [score]
    proved = boxqte.verify(stump(), space, Fairness("race"))
    assert (str(proved.verdict), proved.remarks) == ("holds", (UNREAD,))
    shoes = Space([*SPACE, WIDER["shoe"]])
    assert quantify(stump(), shoes, Monotonicity("shoe", "increasing")).remarks == (
        "The model does not read shoe: the class never depends on it.",
    )
    found = boxqte.audit(stump(), space=space, sensitive=["race", "sex"], robustness=0, require="0.9", time_limit=30)
    assert found.gate is not None
    for text in (str(found), found._repr_html_(), found.gate.to_markdown().replace("\\", "")):
        assert "1 (exact); the model does not read race" in text
    assert "<span class=caveat>the model does not read race [1]</span>" in found.to_html()
    assert UNREAD in found.gate.to_junit()
    assert found.to_frame().set_index("question").loc["race", "caveats"] == "the model does not read race"


def test_a_proof_about_what_the_model_does_not_read_is_checked(tmp_path: Any) -> None:
    from boxqte.certify import certify

    space = Space(WIDER.attributes[:-1])
    quantify(stump(), space, Fairness("race"), certificate=tmp_path / "c.cert")
    assert certify(tmp_path / "c.cert", stump(), space=space, workers=1).fair > 0.999


def test_verify_says_if_nothing_that_was_tried_is_confident() -> None:
    model = stump(0.1, -0.1, column=2, threshold=0.5)
    proved = boxqte.verify(model, SPACE, Fairness("sex", kappa="0.9"))
    assert str(proved.verdict) == "holds"
    assert "inputs that were tried is confident at kappa 0.9" in proved.remarks[0]
    assert boxqte.verify(model, SPACE, Fairness("sex")).remarks == ()


def check_unread(rng: random.Random) -> None:
    """One more attribute that the model does not read: the oracle and the engines agree, asked about it and not."""
    ensemble, space, prop = random_problem(rng, max_pieces=300, decision=False)
    more = Attribute.categorical("unread", ["a", "b", "c"][: rng.randint(1, 3)])
    names = rng.choice([(*prop.sensitive, "unread"), ("unread",)])
    epsilon = prop.epsilon if isinstance(prop.epsilon, Fraction) else {n: e for n, e in prop.epsilon if n not in names}
    asked = Fairness(names, epsilon, prop.kappa, tie=prop.tie)
    wider = Space([*space, more])
    expected = naive_quantify(ensemble, wider, asked)
    found = quantify(ensemble, wider, asked, engine="exhaustive")
    assert found.exact == expected.measure, (ensemble, wider, asked)
    box = quantify(ensemble, wider, asked, engine="box", workers=1)
    if expected.measure is not None:
        assert box.lower <= expected.measure <= box.upper  # type: ignore[operator]
    marked = quantify(ensemble, wider.marked(["unread"]), prop, engine="exhaustive")
    assert marked.exact == naive_quantify(ensemble, space, prop).measure


def test_the_oracle_agrees_about_what_the_model_does_not_read() -> None:
    for seed in range(25):
        check_unread(random.Random(seed))


@pytest.mark.slow
def test_the_oracle_agrees_about_what_the_model_does_not_read_a_thousand_times() -> None:
    for seed in range(1000, 2000):
        check_unread(random.Random(seed))
