"""Audits: the questions, the shared time, the shared proofs, the command."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import boxqte
from boxqte import Fairness, Policy, Requirement, Robustness, audit, quantify
from boxqte.answers.result import ModelSummary, Result
from boxqte.api.gate import GateReport
from boxqte.api.quantify import Quantification
from boxqte.auditing.audit import Question, _helped, _of_both, _share_proofs
from boxqte.auditing.policy import both_runs, judge
from boxqte.cli.main import main
from boxqte.engines.protocol import Decided, Limits, Statistical, Status
from boxqte.errors import BoxQTEError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.report.text import audit_table
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space

ROOT = Path(__file__).resolve().parents[2]


def loan_audit(**more: Any) -> boxqte.Audit:
    given_ = {"sensitive": ["race", "age"], "engine": "exhaustive", "robustness": {"income": 5}, **more}
    return audit(loan_ensemble(), space=loan_space(), **given_)


def test_each_attribute_alone_then_all_together_then_robustness() -> None:
    found = loan_audit()
    assert [(q.name, q.property) for q in found.questions] == [
        ("race", Fairness("race")),
        ("age", Fairness("age")),
        ("race, age", Fairness(["race", "age"])),
        ("robustness", Robustness({"income": 5})),
    ]
    for question in found.questions:
        alone = quantify(loan_ensemble(), loan_space(), question.property, engine="exhaustive")
        assert found[question.name].exact == alone.exact


def test_an_audit_is_readable_in_one_line() -> None:
    assert repr(loan_audit(require=0.5)) == (
        "Audit(TreeEnsemble; race: 0.697030 (exact); age: 0.760000 (exact); race, age: 0.400000 (exact); "
        "robustness: 0.996970 (exact))"
    )
    assert repr(loan_audit(require=0.5, robustness=0).gate) == (
        "GateReport(violated: race holds, age holds, race, age violated)"
    )


def test_one_sensitive_attribute_is_not_asked_about_twice() -> None:
    assert [q.name for q in loan_audit(sensitive="race").questions] == ["race", "robustness"]


def test_robustness_follows_epsilon_and_0_leaves_it_out() -> None:
    assert loan_audit(robustness=None).questions[-1].property == Robustness("0.01")
    assert loan_audit(robustness=None, epsilon="0.05").questions[-1].property == Robustness("0.05")
    assert loan_audit(robustness=0).questions[-1].name == "race, age"


def test_tolerances_of_a_sensitive_attribute_count_only_where_it_is_not_sensitive() -> None:
    found = loan_audit(epsilon={"age": 2, "income": 5})
    assert found.questions[0].property == Fairness("race", {"age": 2, "income": 5})
    assert found.questions[1].property == Fairness("age", {"income": 5})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sensitive": []}, "no attribute is named"),
        ({"sensitive": ["race", "race"]}, "'race' is named twice"),
        ({"sensitive": ["colour"]}, "'colour' is not an attribute"),
        ({"data": {"a": [1]}}, "the table has no column 'income' of the space"),
        ({"worlds": "moon"}, "worlds: 'moon' is none; expected some of space, population, rows"),
        ({"components": 0}, "components: "),
        ({"robustness": "far"}, "robustness: expected a finite number"),
        ({"require": 2}, "at_least: must be above 0 and at most 1"),
        ({"n_jobs": 2, "workers": 2}, "workers and n_jobs mean the same"),
        ({"n_jobs": -2}, "n_jobs: must be at least 1, or -1"),
    ],
)
def test_a_bad_audit_is_refused_by_name(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(BoxQTEError, match=said):
        loan_audit(**arguments)


def test_requirements_are_judged_and_those_of_a_policy_are_asked() -> None:
    policy = Policy([Requirement(Fairness("race", kappa="0.8"), 0.5, name="sure"), Requirement(Fairness("age"), 0.99)])
    found = loan_audit(policy=policy, require=0.5)
    assert found.gate is not None
    assert {c.requirement.name: str(c.verdict) for c in found.gate.checks} == {
        "race": "holds",
        "age": "holds",
        "race, age": "violated",
        "sure": "holds",
        str(Fairness("age")): "violated",
    }
    assert found.questions[-1].name == "sure"
    assert found.to_frame()["verdict"].tolist() == ["holds", "holds, violated", "violated", "", "holds"]


def test_n_jobs_is_workers_under_another_name() -> None:
    assert loan_audit(n_jobs=-1)["race"].exact == loan_audit(workers=1)["race"].exact


def test_the_time_limit_is_shared_and_what_is_left_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from boxqte.auditing.audit import measure

    given: list[float] = []

    def noted(*arguments: Any, limits: Limits, **more: Any) -> Result:
        assert limits.time_limit is not None
        given.append(limits.time_limit)
        return measure(*arguments, limits=limits, **more)

    monkeypatch.setattr("boxqte.auditing.audit.measure", noted)
    loan_audit(time_limit=400)
    # a first look at four questions and two rates has a tenth of the time, of which each gets its share of what is left
    assert given == pytest.approx([40 / 6, 40 / 5, 40 / 4, 40 / 3], rel=0.1)
    assert given == sorted(given)


def test_after_ctrl_c_the_rest_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(model: object, space: object, prop: Any, **_: Any) -> Quantification:
        return partial(prop, Decided(), Status.INTERRUPTED)

    monkeypatch.setattr("boxqte.auditing.audit.measure", interrupted)
    found = loan_audit(require=0.9)
    assert found.interrupted
    assert [q.result is None for q in found.questions] == [False, True, True, True]
    assert "not asked: interrupted" in str(found)
    assert found.gate is not None
    assert found.gate.exit_code == 3
    assert "not asked" in found.to_html()


# --- shared proofs ---


def partial(prop: Any, decided: Decided, status: Status = Status.TIME) -> Quantification:
    return Quantification(prop, ModelSummary("x", 1, 1, 1, ""), "box", status, decided, 1.0, ((1.0, 0.0, 1.0),))


def test_a_counterexample_for_one_attribute_is_one_for_both_and_fair_in_both_is_fair_in_one() -> None:
    one = Question("a", Fairness("a"), partial(Fairness("a"), Decided(0.1, 0.3, 0.0)))
    two = Question("b", Fairness("b"), partial(Fairness("b"), Decided(0.2, 0.1, 0.05)))
    both = Question("a, b", Fairness(["a", "b"]), partial(Fairness(["a", "b"]), Decided(0.4, 0.2, 0.0)))
    shared = {q.name: q.result for q in _share_proofs([one, two, both])}
    assert shared["a"].decided == Decided(0.4, 0.3, 0.05)
    assert shared["b"].decided == Decided(0.4, 0.1, 0.05)
    assert shared["a, b"].decided == Decided(0.4, 0.3, 0.05)
    assert shared["a, b"].details["bounds_from"] == ["a", "b"]
    assert shared["a, b"].trace[-1][1:] == (shared["a, b"].lower, shared["a, b"].upper)


@pytest.mark.parametrize(
    "other", [Fairness("a", kappa="0.7"), Fairness("a", tie="paper"), Fairness("c"), Robustness(0)]
)
def test_questions_that_differ_otherwise_share_at_most_what_is_not_confident(other: Any) -> None:
    helped = _helped(Fairness(["a", "b"]), Decided(), other, Decided(0.5, 0.3, 0.2))
    assert (helped.fair, helped.unfair) == (0, 0)
    alike = (other.kappa, other.tie) == (Fraction(1, 2), "library")
    assert helped.low == (0.2 if alike else 0)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_shared_bounds_still_hold_the_truth(data: st.DataObject) -> None:
    """Bounds that a limit left open, helped by the others, contain the exact measure of every question."""
    names, space, model = ["race", "age"], loan_space(), loan_ensemble()
    kappa = data.draw(st.sampled_from(["0.5", "0.7", "0.8"]))
    epsilon = data.draw(st.sampled_from([0, Fraction(1, 50)]))
    props = [*(Fairness(n, epsilon, kappa) for n in names), Fairness(names, epsilon, kappa)]
    truths = [quantify(model, space, p, engine="exhaustive") for p in props]
    questions = []
    for prop, truth in zip(props, truths):
        share = [data.draw(st.fractions(0, 1, max_denominator=4)) for _ in range(3)]
        d = truth.decided
        cut = Decided(*(s * Fraction(m) for s, m in zip(share, (d.fair, d.unfair, d.low))))
        questions.append(Question(str(prop), prop, partial(prop, cut)))
    for question, truth, before in zip(_share_proofs(questions), truths, questions):
        assert question.result is not None
        assert before.result is not None
        ends, wider, exact = question.result.decided.measure(), before.result.decided.measure(), truth.exact
        assert ends is not None
        assert wider is not None
        assert exact is not None
        assert wider[0] <= ends[0] <= exact <= ends[1] <= wider[1]


def test_two_runs_of_a_question_prove_what_either_has_proved() -> None:
    one = partial(Fairness("a"), Decided(0.5, 0.1, 0.0))
    two = partial(Fairness("a"), Decided(0.4, 0.2, 0.05))
    both = both_runs(one, two)
    assert both.decided == Decided(0.5, 0.2, 0.05)
    assert both.seconds == 2.0
    drawn = replace(two, statistical=Statistical(0.1, 0.9, 0.999999, 9, 9, 0, 0, 0, 0))
    interval = both_runs(one, drawn).statistical
    assert interval is not None
    assert (interval.lower, interval.upper) == (both.lower, both.upper)  # certain: [0.526, 0.789]
    assert [seconds for seconds, *_ in both.trace] == [1.0, 2.0]
    done = partial(Fairness("a"), Decided(Fraction(3, 4), Fraction(1, 4)), Status.CONVERGED)
    assert both_runs(one, done).exact == Fraction(3, 4)


# --- what is statistical, and remarks ---


def drawn_audit() -> boxqte.Audit:
    """One question with a statistical interval and a remark, one without."""
    drawn = replace(
        partial(Fairness("a"), Decided(0.125, 0.0, 0.0)),
        statistical=Statistical(0.9375, 0.96875, 0.999999, 1000, 960, 40, 0, 0, 0),
        remarks=("No tree tests a.",),
        caveats=("no tree tests a",),
    )
    plain = partial(Fairness("b"), Decided(Fraction(1, 2), Fraction(1, 2)), Status.CONVERGED)
    questions = (Question("a", Fairness("a"), drawn), Question("b", Fairness("b"), plain))
    gate = GateReport(tuple(judge(Requirement(q.property, 0.9, name=q.name), q.result) for q in questions))  # type: ignore[arg-type]
    return boxqte.Audit(questions, loan_space(), drawn.model, gate=gate)


INTERVAL = "0.937500 to 0.968750 (statistical, confidence 0.999999)"
LONG_INTERVAL = "between 0.937500000000 and 0.968750000000 (statistical, confidence 0.999999)"


def test_the_table_shows_the_statistical_interval_and_refers_to_the_remark() -> None:
    found = drawn_audit()
    assert audit_table(found) == [
        ["question", "measure", "statistical", "status", "seconds", "verdict"],
        ["a", "0.125000 to 1 (certain); no tree tests a [1]", INTERVAL, "time limit", "1.0", "undecided"],
        ["b", "0.500000 (exact)", "", "converged", "1.0", "violated"],
    ]
    assert INTERVAL in str(found)
    assert str(found).endswith("\n[1] No tree tests a.")


def test_the_pandas_table_has_the_statistical_interval_in_columns_of_its_own() -> None:
    frame = drawn_audit().to_frame().set_index("question")
    assert frame.loc["a", ["statistical_lower", "statistical_upper", "confidence"]].tolist() == [
        0.9375,
        0.96875,
        0.999999,
    ]
    assert frame.loc["a", "remarks"] == "No tree tests a."
    assert frame.loc["b", ["statistical_lower", "confidence"]].isna().all()


def test_page_notebook_markdown_and_junit_show_the_statistical_interval_and_the_remark() -> None:
    found = drawn_audit()
    assert found.gate is not None
    texts = (found.to_html(), found._repr_html_(), found.gate.to_markdown(), found.gate.to_junit(), str(found.gate))
    shown = "confidence 0.999999"  # the page has it as a percentage, in the sentence below
    for text, interval in zip(texts, (shown, INTERVAL, LONG_INTERVAL, LONG_INTERVAL, LONG_INTERVAL)):
        assert interval in text
        assert "No tree tests a." in text
    assert "no tree tests a [1]" in texts[0]
    for text in texts[1:3]:
        assert "(certain); no tree tests a" in text.replace("\\", "")
    assert "93.75\N{NO-BREAK SPACE}% to 96.88\N{NO-BREAK SPACE}%" in texts[0]
    said = found.to_json()["questions"][0]["result"]
    assert (said["remarks"], said["caveats"]) == (["No tree tests a."], ["no tree tests a"])


# --- the time limit ---


def test_the_report_of_a_hard_model_ends_within_the_time_limit() -> None:
    """Its searches took minutes, outside the limit."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(10)]
    X = pd.DataFrame(rng.integers(0, 30, (3000, 10)), columns=names).assign(s=rng.integers(0, 5, 3000))
    y = ((X["x0"] * X["x1"] + X["x2"] * X["x3"] + 40 * X["s"] + rng.normal(0, 80, 3000)) > 500).astype(int)
    model = xgboost.XGBClassifier(n_estimators=80, max_depth=5).fit(X, y)
    space = Space([Attribute.integer(name, 0, 29) for name in names] + [Attribute.categorical("s", range(5))])
    audit(model, space=space, sensitive="s", time_limit=0.5, report=True).to_html()  # compiles
    started, said = time.perf_counter(), []  # type: ignore[var-annotated]
    found = audit(model, space=space, sensitive="s", time_limit=8, report=True)
    asked = time.perf_counter() - started
    page = found.to_html(progress=said.append)
    whole = time.perf_counter() - started
    assert asked < 7
    assert whole < 12  # 8 and a little, on a machine that does other things too
    assert any("profile of x0" in words for words in said)
    assert "statistical" in page


# --- live models ---


def test_a_fitted_pipeline_is_audited_with_the_names_of_the_users_columns() -> None:
    people = pd.read_csv(ROOT / "examples" / "people.csv")
    X, y = people.drop(columns="granted"), people["granted"]
    encoder = ColumnTransformer([("sex", OneHotEncoder(), ["sex"])], remainder="passthrough")
    forest = RandomForestClassifier(5, max_depth=3, random_state=0)
    model = make_pipeline(encoder, forest).fit(X, y)
    found = audit(model, people, label="granted", sensitive="sex", robustness=0, engine="exhaustive")
    assert found.space.names == ("income", "age", "sex", "race") or set(found.space.names) == set(X.columns)
    assert found["sex"].converged
    assert "sex" in found._repr_html_()


# --- the command ---


LINE = "model.json --data people.csv --label granted --categorical race --sensitive sex,race --robustness-rate 0.01"
AUDIT = ["audit", *LINE.split(), "--engine", "exhaustive"]


def test_the_command_prints_the_space_and_one_table_and_writes_all_files(
    examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--html", "r.html", "--json", "a.json", "--save-space", "s.json", "--junit", "j.xml", "--markdown", "m.md"]
    assert main([*AUDIT, "--require", "0.9", *files]) == 1
    out = capsys.readouterr().out
    assert "integer column, 62 distinct values" in out
    assert "sex, race   0.868980 (exact)" in out
    assert "race        0.976717 (exact)" in out
    document = json.loads((examples / "a.json").read_text())
    assert [q["name"] for q in document["questions"]] == ["sex", "race", "sex, race", "robustness"]
    assert document["command"].startswith("boxqte audit model.json --data people.csv")
    page = (examples / "r.html").read_text(encoding="utf-8")
    assert document["command"] in page
    assert document["model"]["fingerprint"] in page
    space = boxqte.Space.load("s.json")
    assert space["race"].kind == "categorical"
    assert space.sensitive == ("sex", "race")
    for name in ("j.xml", "m.md"):
        assert (examples / name).stat().st_size > 100


@pytest.mark.usefixtures("examples")
def test_the_command_without_requirements_is_exit_code_0() -> None:
    assert main([*AUDIT, "--quiet"]) == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("audit", "the model is missing"),
        ("audit model.json --sensitive sex", "expected --data TRAIN.csv or --space SPACE.json, or both, found neither"),
        ("audit model.json --data people.csv --label granted", "--sensitive is missing"),
        ("audit model.json --data people.csv --sensitive sex --junit j.xml", "expected --require or --policy too"),
        ("audit model.json --data none.csv --sensitive sex", "none.csv: no such file"),
        ("audit none.json --data people.csv --sensitive sex", "none.json"),
        ("audit model.json --data people.csv --sensitive sex --html none/r.html", "there is no directory 'none'"),
        ("audit model.json --data people.csv --label granted --sensitive colour", "'colour' is not an attribute"),
        ("audit model.json --data people.csv --label granted --sensitive sex --policy none.toml", "none.toml: No such"),
    ],
)
@pytest.mark.usefixtures("examples")
def test_a_bad_command_is_one_line_and_exit_code_2(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


# --- scores and monotone attributes -------------------------------------------------------------------------------------


def declaring_model(sign: int = 1) -> tuple[Any, pd.DataFrame]:
    import lightgbm

    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"income": rng.uniform(size=400), "age": rng.integers(18, 80, 400), "sex": rng.integers(0, 2, 400)}
    )
    y = (frame["income"] + frame["sex"] / 5 + 0.2 * rng.normal(size=400) > 0.6).astype(int)
    options = {"n_estimators": 5, "num_leaves": 6, "verbose": -1, "n_jobs": 1}
    return lightgbm.LGBMClassifier(**options, monotone_constraints=[sign, 0, sign]).fit(frame, y), frame


def test_a_declared_constraint_is_asked_and_proved() -> None:
    model, frame = declaring_model()
    found = audit(model, frame, sensitive="sex", robustness=0, infer={"categorical": ["sex"]})
    assert found.keys() == ("sex", "score increasing in income (declared)")
    proved = found["score increasing in income (declared)"]
    assert proved.property == boxqte.Monotonicity("income", on="score")
    assert "Verified: there is no counterexample at all." in proved.remarks
    assert found.notes == (
        "the model declares that its score is increasing in sex: not asked, since no number of the space is this column",
    )
    assert found.notes[0] in str(found)
    assert found.to_json()["notes"] == list(found.notes)
    assert found.notes[0] in found.to_html(time_limit=5)


def test_a_declared_constraint_that_the_trees_break_is_measured(tmp_path: Path) -> None:
    model, frame = declaring_model()
    text = model.booster_.model_to_string().replace("monotone_constraints=1 0 1", "monotone_constraints=-1 0 0")
    (tmp_path / "m.txt").write_text(text)
    found = audit(tmp_path / "m.txt", frame, sensitive="sex", robustness=0)
    broken = found["score decreasing in income (declared)"]
    assert broken.upper is not None
    assert broken.upper < 0.5
    assert not any("Verified" in remark for remark in broken.remarks)


def test_a_question_that_is_asked_is_not_asked_again_as_declared() -> None:
    model, frame = declaring_model()
    found = audit(model, frame, sensitive="sex", robustness=0, monotone={"income": "increasing"}, on="score")
    assert found.keys() == ("sex", "score increasing in income")


def test_scores_and_bounded_changes_are_asked_of_every_set() -> None:
    further = {"partner_kappa": "0.6", "max_change": {"age": 3}, "score_at_most": 1, "scale": "margin"}
    found = audit(loan_ensemble(), space=loan_space(), sensitive=["race", "age"], robustness=0, **further)
    assert found.keys() == ("race", "age", "race, age", "score by race", "score by age", "score by race, age")
    properties = [question.property for question in found.questions]
    assert [prop.max_change for prop in properties[:3]] == [(), (("age", 3),), (("age", 3),)]
    assert all(prop.partner_kappa == Fraction(3, 5) for prop in properties[:3])
    assert properties[3] == boxqte.ScoreFairness("race", 1, "margin")


def test_only_questions_that_are_alike_share_proofs() -> None:
    """A monotone attribute has fewer partners than fairness in it; what is unfair for one need not be for the other."""
    decided, proved = Decided(0, 0, 0), Decided(Fraction(1, 4), Fraction(1, 2), Fraction(1, 8))
    plain = Fairness("age")
    for other in (boxqte.Monotonicity("age"), boxqte.ScoreFairness("age", 1, "margin"), Fairness("age", max_change={"age": 2}),
                  Fairness("age", partner_kappa="0.8")):  # fmt: skip
        assert _helped(plain, decided, other, proved) == Decided(0, 0, Fraction(1, 8))
        assert _helped(other, decided, plain, proved) == Decided(0, 0, Fraction(1, 8))
    assert _helped(plain, decided, plain, proved) == proved


def test_rates_that_are_asked_again_keep_what_the_rows_say() -> None:
    rows = {"income": [100.0, 400.0, 900.0], "race": [0, 2, 2], "age": [30, 60, 50]}
    first = boxqte.group_rates(loan_ensemble(), loan_space(), "race", data=rows, time_limit=1e-6)
    longer = boxqte.group_rates(loan_ensemble(), loan_space(), "race")
    both = _of_both(first, longer)
    assert isinstance(both, boxqte.GroupRates)
    assert [group.data for group in both.groups] == [group.data for group in first.groups]
    assert [group.rate for group in both.groups] == [group.rate for group in longer.groups]
    assert (both.confidence, both.converged) == (first.confidence, True)
