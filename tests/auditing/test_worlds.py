"""One question in three worlds: the space, the population behind the data, the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import boxqte
from boxqte import Audit, Fairness, Space, audit, quantify
from boxqte.answers.empirical import empirical
from boxqte.auditing.gathering import gather_all
from boxqte.auditing.worlds import MOST_COMPONENTS
from boxqte.cli.main import main
from boxqte.examples import loan_ensemble, loan_space
from boxqte.repairing.quality import auc
from boxqte.space.populations import Population

ROOT = Path(__file__).resolve().parents[2] / "examples"
ARGUMENTS: dict[str, Any] = {"label": "granted", "sensitive": ["sex", "race"], "infer": {"categorical": ["race"]}}


@pytest.fixture(scope="module")
def found() -> Audit:
    return audit(str(ROOT / "model.json"), str(ROOT / "people.csv"), engine="exhaustive", **ARGUMENTS)


def test_each_number_is_that_of_its_own_question(found: Audit) -> None:
    model, people = str(ROOT / "model.json"), pd.read_csv(ROOT / "people.csv")
    fitted = Population.fit(people, found.space, model=model, most=MOST_COMPONENTS)
    for question in found.questions:
        assert question.result is not None
        assert question.population is not None
        assert question.rows is not None
        assert question.result.exact == quantify(model, found.space, question.property, engine="exhaustive").exact
        assert question.population.exact == quantify(model, fitted.space, question.property, engine="exhaustive").exact
        own = empirical(model, found.space, question.property, people)
        assert (question.rows.unfair, question.rows.confident) == (own.unfair, own.confident)
        assert own.lower is not None
        assert own.measure is not None
        assert own.lower < own.measure
    assert found.questions[0].population.world != found.questions[0].result.world or not fitted.space.components


def test_the_worlds_stand_side_by_side_and_say_what_they_are_about(found: Audit) -> None:
    text = str(found)
    assert text.splitlines()[0].split("  ")[0] == "question"
    for column in ("over the space", "over the population", "in the rows"):
        assert column in text.splitlines()[0]
    assert [line.partition(":")[0] for line in text.splitlines() if line.partition(":")[0] in found.worlds] == [
        "space",
        "population",
        "rows",
    ]
    document = found.to_json()
    assert list(document["worlds"]) == ["space", "population", "rows"]
    first = document["questions"][0]
    assert first["rows"]["unfair"] == found.questions[0].rows.unfair
    assert first["population"]["measure"] == found.questions[0].population.to_json()["measure"]
    frame = found.to_frame()
    assert frame["rows_measure"].tolist() == [q.rows.measure for q in found.questions]


def test_worlds_that_are_not_asked_for_are_not_there() -> None:
    alone = audit(str(ROOT / "model.json"), str(ROOT / "people.csv"), worlds="space", robustness=0, **ARGUMENTS)
    assert list(alone.worlds) == ["space"]
    assert "over the space" not in str(alone)
    rows = audit(str(ROOT / "model.json"), str(ROOT / "people.csv"), worlds=["rows"], robustness=0, **ARGUMENTS)
    assert list(rows.worlds) == ["space", "rows"]
    assert rows.population is None


def test_a_space_and_data_are_compared(found: Audit) -> None:
    both = audit(
        str(ROOT / "model.json"),
        str(ROOT / "people.csv"),
        space=found.space,
        label="granted",
        sensitive="sex",
        engine="exhaustive",
        robustness=0,
    )
    assert both.inference is None
    assert both["sex"].exact == found["sex"].exact
    assert both.questions[0].rows.unfair == found.questions[0].rows.unfair


def test_examples_are_rows_of_the_data_first(found: Audit) -> None:
    people = pd.read_csv(ROOT / "people.csv")
    findings = gather_all(found, seconds=60)
    for question, own in zip(found.questions, findings):
        assert len(own.pairs) == 10
        for pair in own.pairs:
            assert pair.real
            assert pair.row in question.rows.counterexamples
            values = {d.attribute: d.first for d in pair.attributes}
            assert int(values["age"]) == people.loc[pair.row, "age"]
            assert values["sex"] == people.loc[pair.row, "sex"]
            assert pair.first_class != pair.second_class


def test_drawn_examples_have_the_row_that_they_are_most_like() -> None:
    """No row is a counterexample, so pairs are drawn; those near a row come first."""
    people = {"income": [100.0, 900.0] * 20, "race": [1, 3] * 20, "age": [20, 30] * 20}
    found = audit(loan_ensemble(), people, space=loan_space(), sensitive="race", robustness=0)
    assert found.questions[0].rows is not None
    assert found.questions[0].rows.unfair == 0
    (own,) = gather_all(found, seconds=30)
    assert len(own.pairs) == 10
    assert not any(pair.real for pair in own.pairs)
    space = loan_space()

    def distance(pair: Any) -> float:
        far = 0.0
        for d in pair.attributes:
            attribute = space[d.attribute]
            far += (
                abs(float(d.first) - float(d.row)) / float(attribute.range)
                if attribute.is_numeric
                else d.first != d.row
            )
        return far

    distances = [distance(pair) for pair in own.pairs]
    assert distances == sorted(distances)
    page = found.to_html()
    assert "most like a row of the data" in page


def test_the_data_is_described(found: Audit) -> None:
    people = pd.read_csv(ROOT / "people.csv")
    described = found.description
    assert described is not None
    assert (described.rows, described.label, described.missing) == (len(people), "granted", ())
    assert described.positive_rate == pytest.approx((people["granted"] == 1).mean())
    assert described.accuracy is not None
    assert 0.5 < described.accuracy <= 1
    assert described.auc is not None
    assert 0.5 < described.auc <= 1
    other = audit(str(ROOT / "model.json"), people.iloc[::-1], worlds="rows", robustness=0, **ARGUMENTS)
    assert other.description is not None
    assert other.description.fingerprint != described.fingerprint
    assert other.description.auc == pytest.approx(described.auc)


def test_the_area_under_the_curve_counts_pairs() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores, truth = rng.integers(0, 6, 20).astype(float), rng.random(20) < 0.5
        pairs = [(a > b) + (a == b) / 2 for a in scores[truth] for b in scores[~truth]]
        assert auc(scores, truth) == (pytest.approx(np.mean(pairs)) if pairs else None)


def test_rows_that_there_is_no_time_for_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many are decided is settled by the time that a few of them take."""
    import boxqte.answers.empirical as module

    monkeypatch.setattr(module, "PILOT", 20)
    monkeypatch.setattr(module, "SAFETY", 1e-9)
    people = {"income": np.linspace(0, 999, 200), "race": [1, 2] * 100, "age": [20, 60] * 100}
    some = empirical(loan_ensemble(), loan_space(), Fairness("race"), people, time_limit=5.0)
    every = empirical(loan_ensemble(), loan_space(), Fairness("race"), people)
    assert (some.drawn, some.rows, some.confident) == (20, 200, 20)
    assert every.drawn is None
    assert every.measure is not None
    assert some.lower is not None
    assert some.upper is not None
    assert some.lower <= every.measure <= some.upper


def test_the_command_signs_and_dates_an_audit(examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "audit model.json --data people.csv --label granted --categorical race --sensitive sex --worlds rows"
    assert main([*line.split(), "--author", "A. Uditor", "--purpose", "release 7", "--json", "a.json"]) == 0
    assert "in the rows" in capsys.readouterr().out
    signed = json.loads((examples / "a.json").read_text())["signed"]
    assert (signed["author"], signed["reviewer"], signed["purpose"]) == ("A. Uditor", "", "release 7")
    assert signed["date"][:2] == "20"
    assert main([*line.split(), "--components", "many"]) == 2
    assert "components: expected auto or a whole number, found 'many'" in capsys.readouterr().err
    assert main([*line.replace("--worlds rows", "--worlds moon").split()]) == 2
    assert "worlds: 'moon' is none" in capsys.readouterr().err


def test_a_population_given_as_the_space_is_not_fitted_again(found: Audit) -> None:
    people = pd.read_csv(ROOT / "people.csv")
    fitted = Population.fit(people, found.space, 2)
    again = audit(str(ROOT / "model.json"), people, space=fitted, sensitive="sex", robustness=0, label="granted")
    assert again.population is None
    assert isinstance(again.space, Space)
    assert again.worlds["space"].endswith("Inputs count as in a population (a mixture of 2 products).")
    assert again.to_html()
    assert boxqte.quantify(str(ROOT / "model.json"), fitted, Fairness("sex")).value == pytest.approx(again["sex"].value)
