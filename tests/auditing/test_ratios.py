"""Group rates as a requirement and in audits: the policy file, the gate, JUnit, Markdown, pytest, the report, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from boxqte import Audit, Fairness, Policy, RatioRequirement, Requirement, audit, group_rates
from boxqte.answers.verdict import Verdict
from boxqte.cli.main import main
from boxqte.engines.protocol import Status
from boxqte.errors import EngineError, PolicyError, PropertyError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.testing import assert_policy, assert_ratio
from tests.naive_classes import random_class_problem

RATIO = 352 / 505  # of the loan example by race: every rate is 1 but that of one race (tests/test_examples.py)


def gate(*requirements: Requirement, **limits: Any) -> Any:
    return Policy(requirements).check(loan_ensemble(), loan_space(), **limits)


# --- policies ---


def test_a_policy_file_may_require_a_ratio(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        '[require]\nrates = { sensitive = "race", require_ratio = 0.8 }\nrace = { sensitive = "race", at_least = 0.5 }\n'
    )
    policy = Policy.load(tmp_path / "policy.toml")
    assert policy == Policy(
        [RatioRequirement("race", "0.8", name="rates"), Requirement(Fairness("race"), "0.5", name="race")]
    )
    assert policy.requirements[0].to_json() == {"name": "rates", "sensitive": ["race"], "require_ratio": 0.8}
    assert policy.requirements[0] != Requirement(Fairness("race"), "0.8", name="rates")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = { require_ratio = 0.8 }", "require.a: sensitive is missing"),
        ('a = { sensitive = "sex", require_ratio = 2 }', "require_ratio: must be above 0 and at most 1, found 2"),
        ('a = { sensitive = "sex", require_ratio = "x" }', "require.a.require_ratio: expected a finite number"),
        ('a = { sensitive = "sex", require_ratio = 0.8, kappa = 0.7 }', "require.a: unknown field 'kappa'"),
        ("a = { sensitive = [], require_ratio = 0.8 }", "sensitive: no attribute is named"),
    ],
)
def test_a_bad_ratio_is_one_line_that_names_the_field(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "policy.toml").write_text(f"[require]\n{text}\n")
    with pytest.raises(PolicyError) as raised:
        Policy.load(tmp_path / "policy.toml")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_gate_judges_the_ratio_and_everything_says_so() -> None:
    report = gate(
        RatioRequirement("race", 0.6, name="low"),
        RatioRequirement("race", 0.8, name="high"),
        Requirement(Fairness("race"), 0.5, name="race"),
        engine="exhaustive",
    )
    assert [check.verdict for check in report.checks] == [Verdict.HOLDS, Verdict.VIOLATED, Verdict.HOLDS]
    assert report.exit_code == 1
    assert "high: violated: required a ratio of at least 0.8, the ratio is 0.697029702970" in str(report)
    suite = ElementTree.fromstring(report.to_junit())[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert "the ratio is 0.697029702970" in str(suite[1][0].get("message"))
    rows = [line for line in report.to_markdown().splitlines() if line.startswith("| ")]
    assert "a ratio of at least 0.8" in rows[2]
    assert "ratio of the group rates by race at least 0.8" in rows[2]
    document = json.loads(json.dumps(report.to_json()))
    assert document["checks"][1]["rates"]["verdict"] == "violated"
    assert document["checks"][1]["result"] is None
    assert "rates" not in document["checks"][2]


def test_a_ratio_that_nothing_decides_is_undecided_and_says_why() -> None:
    limits = {"time_limit": 1e-6}
    (check,) = gate(RatioRequirement("race", RATIO, name="close")).checks
    assert check.verdict is Verdict.UNDECIDED
    assert "within the engine's rounding error" in check.why
    (check,) = gate(RatioRequirement(["race", "age"], 0.8), **limits).checks
    assert check.verdict is not Verdict.HOLDS
    assert check.status in (Status.TIME, Status.REQUIREMENT, Status.CONVERGED)


def test_an_engine_that_cannot_count_groups_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(EngineError, match="rates are counted by 'box' or 'exhaustive', found 'smt'"):
        gate(Requirement(Fairness("race"), 0.5), RatioRequirement("race", 0.8), engine="smt")


def test_an_attribute_that_is_not_there_is_named_with_its_requirement() -> None:
    with pytest.raises(PropertyError, match="requirement 'rates': sensitive: 'rac' is not an attribute"):
        gate(RatioRequirement("rac", 0.8, name="rates"))


def test_assert_ratio_passes_on_proof_alone() -> None:
    assert assert_ratio(loan_ensemble(), loan_space(), "race", at_least=0.6).ratio is not None
    with pytest.raises(
        AssertionError, match=r"by race violated: required a ratio of at least 0\.8, the ratio is 0\.697"
    ):
        assert_ratio(loan_ensemble(), loan_space(), "race")
    with pytest.raises(AssertionError, match="undecided"):
        assert_ratio(loan_ensemble(), loan_space(), "race", at_least=RATIO)
    assert_policy(Policy([RatioRequirement("race", 0.6)]), loan_ensemble(), loan_space())


# --- audits ---


def loan_audit(**more: Any) -> Audit:
    return audit(loan_ensemble(), space=loan_space(), sensitive=["race", "age"], engine="exhaustive", **more)


def test_an_audit_has_the_rates_of_every_sensitive_attribute() -> None:
    found = loan_audit(robustness=0)
    assert [rates.sensitive for rates in found.rates] == [("race",), ("age",)]
    for rates in found.rates:
        alone = group_rates(loan_ensemble(), loan_space(), rates.sensitive, engine="exhaustive")
        assert [group.rate for group in rates.groups] == [group.rate for group in alone.groups]
        assert (rates.difference, rates.ratio) == (alone.difference, alone.ratio)
    assert "group rates by" in str(found)
    assert [entry["sensitive"] for entry in found.to_json()["rates"]] == [["race"], ["age"]]
    page = found.to_html(time_limit=5)
    assert "The rate of class 1 in every group" in page
    assert "the smallest by the largest rate" in page


def test_the_ratio_of_a_policy_is_judged_by_the_rates_of_the_audit() -> None:
    policy = Policy([RatioRequirement("race", 0.8, name="four fifths"), RatioRequirement(["race", "age"], 0.1)])
    found = loan_audit(robustness=0, policy=policy)
    assert found.gate is not None
    assert [check.verdict for check in found.gate.checks] == [Verdict.VIOLATED, Verdict.HOLDS]
    assert [rates.sensitive for rates in found.rates] == [("race",), ("age",), ("race", "age")]
    assert [q.name for q in found.questions] == ["race", "age", "race, age"]
    assert all(not found.checks_of(question) for question in found.questions)
    assert "four fifths: violated: required a ratio of at least 0.8" in found.to_html(time_limit=5)


def test_an_audit_of_three_classes_has_no_rates() -> None:
    ensemble, space, _ = random_class_problem(1)
    found = audit(ensemble, space=space, sensitive=space.names[0], kappa=0, robustness=0, time_limit=5)
    assert found.rates == ()
    assert "group rates" not in str(found)


# --- the command ---


RATES = ["rates", "model.json", "--space", "space.json", "--sensitive", "sex", "--quiet"]


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize(("level", "code", "word"), [("0.1", 0, "holds"), ("1", 1, "violated")])
def test_the_command_answers_by_its_exit_code(
    capsys: pytest.CaptureFixture[str], level: str, code: int, word: str
) -> None:
    assert main([*RATES, "--require-ratio", level]) == code
    assert f"ratio at least {level}: {word}" in capsys.readouterr().out


@pytest.mark.usefixtures("examples")
def test_the_command_is_undecided_where_nothing_is_proved(capsys: pytest.CaptureFixture[str]) -> None:
    ratio = group_rates("model.json", "space.json", "sex").ratio  # type: ignore[arg-type]
    assert ratio is not None
    assert main([*RATES, "--require-ratio", repr((ratio.lower + ratio.upper) / 2)]) == 3
    assert "undecided; the requirement lies within" in capsys.readouterr().out


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("bad", ["0", "2", "-1", "half", "nan"])
def test_a_bad_level_is_exit_code_2(capsys: pytest.CaptureFixture[str], bad: str) -> None:
    assert main([*RATES, f"--require-ratio={bad}"]) == 2
    assert capsys.readouterr().err.startswith("boxqte: error: --require-ratio: ")


def test_the_command_prints_rates_of_the_space_beside_those_of_the_rows(
    examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RATES, "--data", "people.csv", "--json", "rates.json"]) == 0
    out = capsys.readouterr().out
    assert "world: the space" in out
    assert "as the library's own predict decides" in out
    assert "in the rows (interval at 0.95)" in out
    assert "guarantee" in out
    document = json.loads((examples / "rates.json").read_text())
    assert all(group["data"]["rows"] > 0 for group in document["groups"])
    assert document["confidence"] == 0.95
    assert main([*RATES, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "converged"


@pytest.mark.usefixtures("examples")
def test_a_decision_threshold_is_stated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RATES, "--decision-threshold", "0.3"]) == 0
    assert "p >= 0.3" in capsys.readouterr().out


@pytest.mark.usefixtures("examples")
def test_progress_is_of_the_ratio(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxqte.report.progress.PLAIN_SECONDS", 0.0)
    assert main(RATES[:-1]) == 0
    assert "group rates by sex: " in (err := capsys.readouterr().err)
    assert " s  ratio " in err
