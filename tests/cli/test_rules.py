"""Plausibility rules on the command line: --rule everywhere, policies, and rules from data that are taken only if asked for."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from boxqte import Policy
from boxqte.errors import PolicyError, SpaceError
from boxqte.space.space import Space
from tests.cli.loans import QUANTIFY

RULE = "not (race == 0 and age < 30)"


def test_a_rule_is_part_of_the_answer(run: Any, files: Path) -> None:
    code, out, _ = run(
        f"{QUANTIFY} --sensitive race --engine exhaustive --quiet --rule", RULE, "--rule", "income <= 900"
    )
    assert code == 0
    assert "of the space by 2 rules; all shares are of the rest" in out
    code, out, _ = run(f"{QUANTIFY} --sensitive race --quiet --json - --rule", RULE)
    assert code == 0
    document = json.loads(out)
    space = Space.load(files / "space.json").with_rules(RULE)
    assert document["rules"] == {
        "rules": [RULE],
        "forbidden": float(1 - space.allowed),
        "forbidden_exact": str(1 - space.allowed),
    }
    assert document["space"]["fingerprint"] == space.fingerprint()


@pytest.mark.parametrize(
    "line",
    [
        "verify model.json --space space.json --sensitive race",
        "rows data.csv model.json --space space.json --sensitive race --only-rows",
        "empirical model.json --space space.json --sensitive race --data data.csv",
        "rates model.json --space space.json --sensitive race --quiet",
        "scores model.json --space space.json --sensitive race --quiet",
        "regions model.json --space space.json --sensitive race",
        "sample model.json --space space.json --sensitive race -n 3",
        "smtlib model.json --space space.json --sensitive race -o pairs.smt2",
        "audit model.json --space space.json --sensitive race --quiet --robustness-rate 0",
        "test model.json --space space.json --sensitive race --method themis --tests 50 --quiet",
    ],
)
def test_every_command_that_takes_a_space_takes_rules(run: Any, line: str) -> None:
    code, _, err = run(line, "--rule", RULE)
    assert code in (0, 1), err  # 1: verify has found one
    code, _, err = run(line, "--rule", "colour == 3")
    assert code == 2
    assert err.startswith("boxqte: error: rule 'colour == 3': 'colour' is not an attribute")
    assert err.count("\n") == 1


def test_rows_that_break_a_rule_are_counted(run: Any, files: Path) -> None:
    people = pd.read_csv(files / "data.csv")
    broken = int(((people["race"] == 0) & (people["age"] < 30)).sum())
    assert broken > 0
    code, out, _ = run("empirical model.json --space space.json --sensitive race --data data.csv --rule", RULE)
    assert code == 0
    assert f"({broken:,} of them a rule forbids)" in out


def test_a_policy_has_rules(run: Any, files: Path) -> None:
    head = f'model = "model.json"\nspace = "space.json"\nrules = ["{RULE}"]\n'
    (files / "ruled.toml").write_text(head + '[require]\nrace = { sensitive = "race", at_least = 0.01 }\n')
    policy = Policy.load(files / "ruled.toml")
    assert policy.rules == (RULE,)
    report = policy.check(engine="exhaustive")
    assert report.checks[0].result is not None
    assert report.checks[0].result.ruled is not None
    assert report.checks[0].result.ruled.rules == (RULE,)
    code, _, _ = run("gate ruled.toml --quiet --json gate.json --rule", "income <= 900")
    found = json.loads((files / "gate.json").read_text())["checks"][0]["result"]["rules"]
    assert code in (0, 1)
    assert found["rules"] == [RULE, "income <= 900"]
    with pytest.raises(SpaceError, match="rule 'colour == 3'"):
        policy.check(rules="colour == 3")
    with pytest.raises(PolicyError, match="rules: expected a text, found 3"):
        Policy.from_document({"rules": [3], "require": {"sex": {"sensitive": "sex", "at_least": 0.99}}})


# --- rules from data --------------------------------------------------------------------------------------------------


@pytest.fixture
def families(files: Path) -> Path:
    rng = random.Random(2)
    married = [rng.random() < 0.5 for _ in range(800)]
    roles = [rng.choice(["husband", "wife"]) if m else "single" for m in married]
    pd.DataFrame({"married": ["yes" if m else "no" for m in married], "role": roles}).to_csv(
        files / "families.csv", index=False
    )
    return files


PROPOSED = "not (married == 'no' and role in {'husband', 'wife'})"


def test_rules_from_data_are_shown_and_not_taken(run: Any, families: Path) -> None:
    code, out, _ = run("space infer families.csv --rules-from-data -o families.json")
    assert code == 0
    assert 'proposed, none is taken: --rule "..." takes one, --accept-rules all' in out
    assert f"  {PROPOSED}  (0 of 800 rows; " in out
    assert Space.load(families / "families.json").rules == ()


def test_rules_from_data_are_taken_if_asked_for(run: Any, families: Path) -> None:
    code, out, _ = run("space infer families.csv --rules-from-data --accept-rules -o families.json")
    assert code == 0
    assert "rules from the data, taken" in out
    rules = [rule.text for rule in Space.load(families / "families.json").rules]
    assert PROPOSED in rules
    code, out, _ = run("space infer families.csv --rules-from-data -o families.json --rule", PROPOSED)
    assert [rule.text for rule in Space.load(families / "families.json").rules] == [PROPOSED]
    assert PROPOSED not in out.split("rules from the data")[1]  # it is there already
    code, out, _ = run("space show families.json")
    assert code == 0
    assert f"rules                {PROPOSED}\nforbidden            0.333333333333 (exactly 1/3) of the space" in out
    assert Space.load(families / "families.json").allowed == Fraction(2, 3)


def test_nothing_is_proposed_where_nothing_is_absent(run: Any, files: Path) -> None:
    code, out, _ = run("space infer data.csv --label granted --rules-from-data -o own.json")
    assert code == 0
    assert "no rule is proposed" in out
