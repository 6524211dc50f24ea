"""`--decision-threshold` on every command that takes a model; the same rule in Python and in a policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boxqte import Fairness, Policy, Requirement, Space, audit, check, load_model, quantify, verify
from boxqte.answers.empirical import empirical
from boxqte.cli.main import main
from boxqte.errors import ModelError, PolicyError
from boxqte.space.tables import read_table
from boxqte.testers import find_idis
from boxqte.testing import assert_fair

RULE = "sex:f=0.4,m=0.6"
TEXT = "class 1 iff p >= 0.4 (sex f), 0.6 (sex m)"
ASKED = ["--space", "space.json", "--sensitive", "sex"]
COMMANDS: dict[str, tuple[list[str], int]] = {
    "quantify": (["quantify", "model.json", *ASKED, "--quiet"], 0),
    "verify": (["verify", "model.json", *ASKED, "--quiet"], 1),
    "rows": (["rows", "people.csv", "model.json", *ASKED, "--only-rows"], 1),
    "empirical": (["empirical", "model.json", "--data", "people.csv", *ASKED], 0),
    "regions": (["regions", "model.json", *ASKED, "--top", "2"], 0),
    "blame": (["blame", "model.json", *ASKED, "--trees-only", "--quiet"], 0),
    "smtlib": (["smtlib", "model.json", *ASKED, "-o", "-"], 0),
    "model show": (["model", "show", "model.json"], 0),
    "audit": (["audit", "model.json", *ASKED, "--robustness-rate", "0", "--quiet"], 0),
    "test": (["test", "model.json", *ASKED, "--method", "themis", "--tests", "50", "--seed", "1", "--quiet"], 0),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("folder")
def test_every_command_takes_the_rule_and_says_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, code = COMMANDS[name]
    assert main([*command, "--decision-threshold", RULE]) == code
    assert TEXT in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("folder")
def test_pairs_are_drawn_by_the_rule_and_certificates_are_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    threshold = ["--decision-threshold", RULE]
    assert main(["sample", "model.json", *ASKED, *threshold, "-n", "3"]) == 0
    assert "0 disagree" in capsys.readouterr().err
    assert main(["quantify", "model.json", *ASKED, *threshold, "--certificate", "proof", "--json", "r.json"]) == 0
    assert json.loads(Path("r.json").read_text())["model"]["decision"]["threshold"] == {"f": 0.4, "m": 0.6}
    assert main(["certify", "proof", "model.json", *threshold, "--workers", "1"]) == 0
    assert TEXT in capsys.readouterr().out
    assert main(["certify", "proof", "model.json", "--workers", "1"]) == 1  # another rule is another model


def test_python_means_the_same_everywhere(folder: Path) -> None:
    space, prop, rule = Space.load("space.json"), Fairness("sex"), {"sex": {"f": "0.4", "m": 0.6}}
    model, people = load_model("model.json", threshold=rule), read_table("people.csv")
    answer = quantify(model, space, prop).decided
    assert (
        quantify("model.json", space, prop, threshold=rule).decided
        == answer
        != quantify("model.json", space, prop).decided
    )
    assert audit("model.json", space=space, sensitive="sex", robustness=0, threshold=RULE).results[0].decided == answer
    assert verify("model.json", space, prop, threshold=rule).decision == TEXT == verify(model, space, prop).decision
    assert check("model.json", space, prop, people, threshold=rule).counts == check(model, space, prop, people).counts
    assert empirical("model.json", space, prop, people, threshold=rule) == empirical(model, space, prop, people)
    assert (
        assert_fair("model.json", space, "sex", at_least=0.01, threshold=rule).model.decision == model.ensemble.decision
    )
    found: list[Any] = [
        find_idis(m, space, "sex", method="themis", tests=100, random_state=1, **more)
        for m, more in ((model, {}), ("model.json", {"threshold": rule}))
    ]
    assert len(found[0]) == len(found[1]) > 0


def test_a_policy_has_the_rule_for_all_its_requirements(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = 'model = "model.json"\nspace = "space.json"\n'
    tail = '[require]\nsex = { sensitive = "sex", at_least = 0.01 }\n'
    file = folder / "policy.toml"
    file.write_text(f"{head}decision_threshold = {{ sex = {{ f = 0.4, m = 0.6 }} }}\n{tail}")
    assert main(["gate", "policy.toml", "--quiet"]) == 0
    assert f"decision: {TEXT}" in capsys.readouterr().out
    assert main(["gate", "policy.toml", "--quiet", "--decision-threshold", "0.5", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["decision"]["threshold"] == 0.5  # what is typed counts more
    report = Policy.load(file).check()
    assert TEXT in str(report)
    assert "p \\>= 0.4 (sex f)" in report.to_markdown()
    policy = Policy([Requirement(Fairness("sex"), 0.01)], threshold=RULE)
    assert policy.check("model.json", "space.json").decision == report.decision
    assert (
        audit("model.json", space="space.json", sensitive="sex", robustness=0, policy=file).model.decision
        == report.decision
    )
    file.write_text(f"{head}decision_threshold = 3\n{tail}")
    with pytest.raises(PolicyError, match=r"policy.toml: decision_threshold: must lie between 0 and 1, found 3"):
        Policy.load(file)


def test_settings_may_have_the_rule(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "boxqte.toml").write_text(f'[quantify]\ndecision-threshold = "{RULE}"\nspace = "space.json"\n')
    assert main(["quantify", "model.json", "--sensitive", "sex", "--quiet"]) == 0
    assert TEXT in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("folder")
def test_a_function_has_its_own_rule() -> None:
    with pytest.raises(ModelError, match="threshold: function decides by itself"):
        find_idis(lambda rows: rows[:, 0] > 3, "space.json", "sex", tests=10, threshold=0.3)


def test_the_report_says_the_rule(folder: Path) -> None:
    page = audit("model.json", space="space.json", sensitive="sex", robustness=0, threshold="0.35").to_html()
    assert "class 1 iff p &gt;= 0.35" in page


@pytest.mark.usefixtures("folder")
def test_the_json_of_an_audit_has_the_rule() -> None:
    assert main([*COMMANDS["audit"][0], "--decision-threshold", "0.35", "--json", "audit.json"]) == 0
    document = json.loads(Path("audit.json").read_text())
    rule = document["model"]["decision"]
    assert rule == load_model("model.json", threshold="0.35").ensemble.decision.to_json()
    assert rule == document["questions"][0]["result"]["model"]["decision"]
