"""Policies: what holds, what is violated, what is undecided; the file, the command, JUnit, Markdown, and pytest."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boxqte
from boxqte import Fairness, Monotonicity, Policy, Quantification, Requirement, Robustness, ScoreFairness
from boxqte.answers.result import ModelSummary
from boxqte.answers.verdict import Verdict, decide
from boxqte.auditing.policy import judge
from boxqte.cli.main import main
from boxqte.engines.protocol import Decided, Status
from boxqte.errors import BoxQTEError, PolicyError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.testing import assert_fair, assert_monotone, assert_policy, assert_robust, assert_score_fair

EXACT = Fraction(352, 505)  # the loan example, fairness in race (tests/test_examples.py has it by hand)


def answer(decided: Decided, status: Status = Status.TIME) -> Quantification:
    return Quantification(Fairness("race"), ModelSummary("x", 1, 1, 1, ""), "box", status, decided, 0.1, ())


def loan(prop: Any = None, **limits: Any) -> Quantification:
    return boxqte.quantify(loan_ensemble(), loan_space(), prop or Fairness("race"), engine="exhaustive", **limits)


# --- verdicts ---

masses = st.fractions(0, 1, max_denominator=50)


@settings(deadline=None)
@given(masses, masses, masses, st.fractions(Fraction(1, 100), 1, max_denominator=100))
def test_a_verdict_is_true_of_every_measure_that_the_bounds_allow(
    fair: Fraction, unfair: Fraction, low: Fraction, at_least: Fraction
) -> None:
    total = max(fair + unfair + low, Fraction(1))
    decided = Decided(fair / total, unfair / total, low / total)
    verdict = decide(answer(decided), at_least)
    open_mass = decided.undecided
    # the open mass may turn out fair, unfair or not confident, in any mixture; the corners are the extremes
    truths = []
    for more_fair, more_unfair in ((open_mass, 0), (0, open_mass), (0, 0)):
        confident = decided.fair + decided.unfair + more_fair + more_unfair
        if confident:
            truths.append(Fraction(decided.fair + more_fair) / Fraction(confident) >= at_least)
    if verdict is Verdict.HOLDS:
        assert all(truths)
    if verdict is Verdict.VIOLATED:
        assert not any(truths)


def test_the_required_share_itself_is_enough() -> None:
    assert decide(loan(), EXACT) is Verdict.HOLDS
    assert decide(loan(), EXACT + Fraction(1, 10**30)) is Verdict.VIOLATED


def test_bounds_on_both_sides_are_undecided() -> None:
    assert decide(answer(Decided(Fraction(1, 2), Fraction(1, 10))), Fraction(3, 4)) is Verdict.UNDECIDED


def test_a_requirement_about_no_input_is_undecided() -> None:
    report = Policy([Requirement(Fairness("race", kappa="0.999"), 0.5)], engine="exhaustive").check(
        loan_ensemble(), loan_space()
    )
    assert report.verdict is Verdict.UNDECIDED
    assert "proves nothing" in report.checks[0].why


def test_a_requirement_of_exactly_1_is_settled_by_verification() -> None:
    """Counted in floating point, a measure of 1 ends a rounding error below it; races 3 and 4 are treated alike."""
    for races, verdict in (((3, 4), Verdict.HOLDS), ((2, 3), Verdict.UNDECIDED)):
        space = loan_space().with_attribute(boxqte.Attribute.categorical("race", races))
        exact = boxqte.quantify(loan_ensemble(), space, Fairness("race"), engine="exhaustive")
        rounded = replace(exact, decided=Decided(fair=1 - 1e-13), engine="box")
        assert judge(Requirement(Fairness("race"), 1), rounded).verdict is verdict
        assert judge(Requirement(Fairness("race"), 1), replace(rounded, asked=None)).verdict is Verdict.UNDECIDED


def test_violated_counts_more_than_undecided_and_undecided_more_than_holds() -> None:
    requirements = [Requirement(Fairness("race"), share, name=str(share)) for share in (0.1, 0.99)]
    unclear = Requirement(Fairness("race", kappa="0.999"), 0.5, name="unclear")
    cases = [(requirements[:1], 0), (requirements, 1), ([*requirements, unclear], 1), ([requirements[0], unclear], 3)]
    for given_, code in cases:
        assert Policy(given_, engine="exhaustive").check(loan_ensemble(), loan_space()).exit_code == code


def test_a_search_stops_once_the_requirement_is_decided() -> None:
    """Each report is a tenth more fair; 0.35 is decided by the fourth."""
    from boxqte.engines.protocol import Limits, Watch

    watch = Watch(Limits(require=Fraction(35, 100)))
    stops = [watch.report(Decided(fair=Fraction(i, 10))) for i in range(1, 6)]
    assert stops == [None, None, None, Status.REQUIREMENT, Status.REQUIREMENT]
    below = Watch(Limits(require=Fraction(9, 10)))
    assert [below.report(Decided(unfair=Fraction(i, 20))) for i in (1, 2, 3)] == [None, None, Status.REQUIREMENT]


def test_after_ctrl_c_the_rest_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def interrupted(model: object, space: object, prop: Any, **_: Any) -> Quantification:
        asked.append(str(prop))
        return answer(Decided(), Status.INTERRUPTED)

    monkeypatch.setattr("boxqte.auditing.policy.measure", interrupted)
    policy = Policy([Requirement(Fairness("race"), 0.5), Requirement(Fairness("age"), 0.5)])
    report = policy.check(loan_ensemble(), loan_space())
    assert len(asked) == 1
    assert report.interrupted
    assert report.checks[1].why == "not asked: interrupted"


# --- files ---


def test_a_policy_file_is_the_same_object_as_in_python(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        'model = "m.json"\ntime_limit = 60\n[require]\nsex = { sensitive = "sex", kappa = 0.7, at_least = 0.99 }\n'
        'both = { sensitive = ["sex", "race"], epsilon_rate = 0.1, at_least = 1 }\n'
        'near = { epsilon = { income = 0.1 }, tie = "paper", at_least = "1/3" }\n'
    )
    policy = Policy.load(tmp_path / "policy.toml")
    assert policy == Policy(
        [
            Requirement(Fairness("sex", kappa="0.7"), 0.99, name="sex"),
            Requirement(Fairness(["sex", "race"], "0.1"), 1, name="both"),
            Requirement(Robustness({"income": "0.1"}, tie="paper"), Fraction(1, 3), name="near"),
        ],
        model=str(tmp_path / "m.json"),
        time_limit=60.0,
    )


def test_a_policy_file_asks_the_newer_questions(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        '[require]\nmono = { monotone = { income = "increasing", age = "decreasing" }, on = "score", at_least = 1 }\n'
        'one = { monotone = { income = "increasing" }, kappa = 0.6, at_least = 0.9 }\n'
        'score = { sensitive = "sex", score_at_most = 0.05, scale = "margin", at_least = 0.9 }\n'
        'near = { sensitive = "age", max_change = { age = 5 }, kappa = 0.8, partner_kappa = 0.8, at_least = 0.9 }\n'
    )
    assert Policy.load(tmp_path / "policy.toml").requirements == (
        Requirement(Monotonicity("income", on="score"), 1, name="mono, income"),
        Requirement(Monotonicity("age", "decreasing", "score"), 1, name="mono, age"),
        Requirement(Monotonicity("income", kappa="0.6"), "0.9", name="one"),
        Requirement(ScoreFairness("sex", "0.05", "margin"), "0.9", name="score"),
        Requirement(Fairness("age", 0, "0.8", partner_kappa="0.8", max_change={"age": 5}), "0.9", name="near"),
    )


def test_a_requirements_json_is_a_line_of_a_policy() -> None:
    for prop in (Monotonicity("a", on="score"), ScoreFairness("a", 1, "margin"), Fairness("a", max_change={"a": 5})):
        line = Requirement(prop, "0.9", name="x").to_json()
        del line["name"], line["kind"]
        assert Policy.from_document({"require": {"x": line}}).requirements == (Requirement(prop, "0.9", name="x"),)


def test_the_newer_questions_pass_fail_and_are_proved() -> None:
    model, space = loan_ensemble(), loan_space()
    asked = [
        Requirement(Monotonicity("income"), 1, name="grows"),
        Requirement(Monotonicity("income", "decreasing"), 1, name="falls"),
        Requirement(ScoreFairness("race", 100, "margin"), 1, name="score"),
        Requirement(Fairness("age", max_change={"age": 1}), "0.5", name="birthday"),
    ]
    report = Policy(asked).check(model, space)
    found = {check.requirement.name: (str(check.verdict), check.why) for check in report.checks}
    proved = ("holds", "verified: there is no counterexample at all")
    assert found == {"grows": proved, "falls": ("violated", ""), "score": proved, "birthday": ("holds", "")}
    assert report.exit_code == 1


def test_junit_states_the_decision_rule() -> None:
    policy = Policy([Requirement(Fairness("race"), 0.1, name="race")], engine="exhaustive")
    plain = ElementTree.fromstring(policy.check(loan_ensemble(), loan_space()).to_junit())
    assert plain.find(".//properties") is None
    ruled = policy.check(loan_ensemble(), loan_space(), threshold="0.3")
    stated = ElementTree.fromstring(ruled.to_junit()).find("testsuite/properties/property")
    assert stated is not None
    assert stated.attrib == {"name": "decision", "value": "class 1 iff p >= 0.3"}


def test_pytest_helpers_ask_the_newer_questions() -> None:
    model, space = loan_ensemble(), loan_space()
    assert assert_monotone(model, space, "income").converged
    with pytest.raises(AssertionError, match=r"monotonicity .class decreasing in income; kappa 0.5. violated"):
        assert_monotone(model, space, "income", "decreasing")
    assert assert_score_fair(model, space, "race", at_most=100, scale="margin").converged
    with pytest.raises(AssertionError, match=r"score fairness .* violated"):
        assert_score_fair(model, space, "race", at_most=0, scale="margin")
    assert assert_fair(model, space, "age", at_least="0.5", max_change={"age": 1}).property.max_change


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[require]\na = { monotone = { b = 'up' }, at_least = 1 }", "require.a.monotone: expected 'increasing' or"),
        ("[require]\na = { monotone = 'b', at_least = 1 }", "require.a.monotone: expected a table"),
        ("[require]\na = { monotone = {}, at_least = 1 }", "require.a.monotone: no attribute is named"),
        ("[require]\na = { monotone = { b = 'increasing' }, sensitive = 'c', at_least = 1 }", "leave sensitive out"),
        ("[require]\na = { on = 'score', at_least = 1 }", "require.a.on: belongs to monotone; give it too"),
        ("[require]\na = { score_at_most = 1, at_least = 1 }", "require.a.score_at_most: compares inputs that differ"),
        ("[require]\na = { sensitive = 'b', max_change = 5, at_least = 1 }", "require.a.max_change: expected a table"),
        ("[require]\na = { sensitive = 'b', partner_kappa = 1, at_least = 1 }", "require.a.partner_kappa: must be"),
        ("", "it has no table [require]"),
        ("[require]", "there is no requirement in it"),
        ("[require", "not a TOML file"),
        ("require = 3", "require: expected a table, found 3"),
        ("[require]\nsex = 0.99", "require.sex: expected a table"),
        ('[require]\nsex = { sensitive = "sex" }', "require.sex: at_least is missing"),
        (
            '[require]\nsex = { sensitive = "sex", at_least = 1.5 }',
            "at_least: must be above 0 and at most 1, found 1.5",
        ),
        ('[require]\nsex = { sensitive = "sex", at_least = 0 }', "must be above 0"),
        ('[require]\nsex = { sensitive = "sex", at_least = "many" }', "at_least: expected a finite number"),
        ('[require]\nsex = { sensitiv = "sex", at_least = 1 }', "unknown field 'sensitiv' (did you mean 'sensitive'?)"),
        ("[require]\nsex = { sensitive = [], at_least = 1 }", "sensitive: no attribute is named"),
        ("[require]\nsex = { sensitive = [1], at_least = 1 }", "require.sex.sensitive: expected a text, found 1"),
        ('[require]\nsex = { sensitive = "sex", kappa = 1, at_least = 1 }', "kappa: must be at least 0 and below 1"),
        ("[require]\na = { epsilon = 3, at_least = 1 }", "require.a.epsilon: expected a table"),
        ("[require]\na = { epsilon = { b = 1 }, epsilon_rate = 1, at_least = 1 }", "exclude each other"),
        ("[require]\na = { epsilon_rate = -1, at_least = 1 }", "epsilon: must be at least 0"),
        ('[require]\na = { tie = "none", at_least = 1 }', "tie: expected 'library' or 'paper'"),
        ("modell = 'm.json'\n[require]\na = { at_least = 1 }", "unknown field 'modell'"),
        ("time_limit = 0\n[require]\na = { at_least = 1 }", "time_limit: must be above 0 seconds, found 0"),
        ("model = 3\n[require]\na = { at_least = 1 }", "model: expected a text, found 3"),
    ],
)
def test_a_bad_policy_is_one_line_that_names_the_field(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(PolicyError) as raised:
        Policy.load(path)
    assert said in str(raised.value)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_policy_that_names_no_model_wants_one() -> None:
    with pytest.raises(PolicyError, match="it names no model, and none is given"):
        Policy([Requirement(Fairness("sex"), 1)]).check()


def test_a_requirement_that_does_not_fit_the_space_is_named() -> None:
    with pytest.raises(BoxQTEError, match="requirement 'x': sensitive: 'sex' is not an attribute"):
        Policy([Requirement(Fairness("sex"), 1, name="x")]).check(loan_ensemble(), loan_space())


def test_two_requirements_of_one_name_are_refused() -> None:
    with pytest.raises(PolicyError, match="two requirements are named 'a'"):
        Policy([Requirement(Fairness("sex"), 1, name="a"), Requirement(Fairness("race"), 1, name="a")])


# --- reports ---


def gate() -> boxqte.auditing.policy.GateReport:  # type: ignore[name-defined]
    requirements = [
        Requirement(Fairness("race"), 0.5, name="fine <&> | \x07"),
        Requirement(Fairness("race"), 0.9, name="broken"),
        Requirement(Fairness("race", kappa="0.999"), 0.9, name="unclear"),
    ]
    return Policy(requirements, engine="exhaustive").check(loan_ensemble(), loan_space())


def test_junit_is_xml_with_a_failure_and_an_error() -> None:
    root = ElementTree.fromstring(gate().to_junit())
    suite = root[0]
    assert (root.tag, suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("testsuites", "3", "1", "1")
    assert [case.get("name") for case in suite] == ["fine <&> | \\x07", "broken", "unclear"]
    assert [[part.tag for part in case] for case in suite] == [["system-out"], ["failure"], ["error"]]
    assert "required at least 0.9, the measure is 0.697029702970" in str(suite[1][0].get("message"))


def test_markdown_has_one_row_a_requirement_and_escapes_names() -> None:
    text = gate().to_markdown()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 4
    assert "fine \\<&\\> \\|" in rows[1]
    assert "❌ violated" in rows[2]
    assert "a requirement is violated" in text


def test_json_of_a_gate_can_be_written() -> None:
    document = json.loads(json.dumps(gate().to_json()))
    assert [check["verdict"] for check in document["checks"]] == ["holds", "violated", "undecided"]


# --- the commands ---


QUANTIFY = ["quantify", "model.json", "--space", "space.json", "--sensitive", "sex", "--engine", "exhaustive"]


@pytest.mark.parametrize(("required", "code", "word"), [("0.9", 0, "holds"), ("0.99", 1, "violated")])
@pytest.mark.usefixtures("examples")
def test_quantify_with_require_answers_by_its_exit_code(
    capsys: pytest.CaptureFixture[str], required: str, code: int, word: str
) -> None:
    assert main([*QUANTIFY, "--require", required]) == code
    assert f"at least {required}: {word}" in capsys.readouterr().out


@pytest.mark.usefixtures("examples")
def test_quantify_that_decides_nothing_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUANTIFY, "--kappa", "0.9999", "--require", "0.9"]) == 3
    assert "undecided" in capsys.readouterr().out


@pytest.mark.parametrize("bad", ["0", "2", "-1", "half", "nan"])
@pytest.mark.usefixtures("examples")
def test_a_bad_requirement_is_exit_code_2(capsys: pytest.CaptureFixture[str], bad: str) -> None:
    assert main([*QUANTIFY, f"--require={bad}"]) == 2
    assert capsys.readouterr().err.startswith("boxqte: error: --require: ")


def test_the_gate_command_writes_everything(examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "gate policy.toml --engine exhaustive --junit j.xml --markdown m.md --json g.json"
    assert main(line.split()) == 1
    out = capsys.readouterr().out
    assert "violated  sex" in out
    assert "holds     race" in out
    assert ElementTree.parse(examples / "j.xml").getroot().get("failures") == "1"
    assert "❌ violated" in (examples / "m.md").read_text(encoding="utf-8")
    assert json.loads((examples / "g.json").read_text())["verdict"] == "violated"


def test_the_gate_passes_where_all_holds(examples: Path) -> None:
    (examples / "fine.toml").write_text('[require]\nrace = { sensitive = "race", at_least = 0.9 }\n')
    assert main(["gate", "fine.toml", "model.json", "--space", "space.json", "--engine", "exhaustive", "--quiet"]) == 0


@pytest.mark.usefixtures("examples")
def test_only_what_is_asked_for_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    main(["gate", "policy.toml", "--engine", "exhaustive", "--junit", "-"])
    assert ElementTree.fromstring(capsys.readouterr().out).tag == "testsuites"


# --- pytest ---


def test_assert_fair_passes_on_proof_and_returns_the_result() -> None:
    result = assert_fair(loan_ensemble(), loan_space(), "race", at_least="0.6", engine="exhaustive")
    assert result.exact == EXACT


def test_assert_fair_fails_with_both_numbers() -> None:
    with pytest.raises(AssertionError, match=r"violated: required at least 0\.9, the measure is 0\.697"):
        assert_fair(loan_ensemble(), loan_space(), "race", at_least="0.9", engine="exhaustive")


def test_assert_fair_fails_on_what_is_undecided() -> None:
    with pytest.raises(AssertionError, match="undecided"):
        assert_fair(loan_ensemble(), loan_space(), "race", kappa="0.999", engine="exhaustive")


def test_assert_robust_and_assert_policy() -> None:
    assert_robust(loan_ensemble(), loan_space(), epsilon={"age": 5}, at_least=0.9, engine="exhaustive")
    policy = Policy([Requirement(Fairness("race"), 0.9, name="race")], engine="exhaustive")
    with pytest.raises(AssertionError, match="the policy is not met\nrace: violated"):
        assert_policy(policy, loan_ensemble(), loan_space())
