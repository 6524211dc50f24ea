"""The rules of a restricted result lie inside its condition: checked by evaluating both, as Python, on points."""

from __future__ import annotations

import random
import re
from itertools import product
from typing import Any

import pytest

from boxqte import Fairness, Space, quantify
from boxqte.api.quantify import Quantification
from boxqte.cli.main import main
from boxqte.errors import SpaceError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.space.attributes import Attribute
from tests.strategies import random_problem


class _Missing:
    """A value that satisfies no comparison but == missing."""

    def __lt__(self, other: object) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__


MISSING = _Missing()
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def comparison(rng: random.Random, attribute: Attribute) -> str:
    name = attribute.name
    if attribute.missing is not None and rng.random() < 0.2:
        return f"{name} == missing"
    if not attribute.is_numeric:
        some = [v for v in attribute.values if rng.random() < 0.6] or [attribute.values[0]]
        return f"{name} in {some!r}" if rng.random() < 0.7 else f"{name} != {some[0]!r}"
    low, high = float(attribute.low), float(attribute.high)
    first, second = sorted(round(rng.uniform(low, high), rng.choice([0, 1, 3])) for _ in range(2))
    sign = rng.choice(["<", "<=", ">", ">="])
    return rng.choice(
        [f"{name} {sign} {first}", f"{first} <{rng.choice(['', '='])} {name} <{rng.choice(['', '='])} {second}",
         f"({name} < {first} or {name} >= {second})", f"not {name} {sign} {first}"]
    )  # fmt: skip


def condition_on(rng: random.Random, space: Space) -> str:
    chosen = rng.sample(list(space), rng.randint(1, len(space)))
    return " and ".join(comparison(rng, attribute) for attribute in chosen)


def implies(rule: str, condition: str, space: Space) -> bool:
    """On every combination, by attribute, of the numbers in both texts, points beside them, and the domain's values."""
    if rule == "everywhere":
        rule = "True"
    numbers = {float(n) for n in NUMBER.findall(re.sub(r"\b[A-Za-z_]\w*", "", f"{rule} {condition}"))}
    for attribute in space:  # a condition joins comparisons of single attributes by 'and', so one at a time will do
        if not re.search(rf"\b{attribute.name}\b", condition):
            continue
        if attribute.is_numeric:
            steps = (0,) if attribute.kind == "integer" else (-1e-6, 0, 1e-6)
            points: list[Any] = [n + s for n, s in product(numbers, steps)] + [
                float(attribute.low),
                float(attribute.high),
            ]
            points = [p for p in points if attribute.low <= p <= attribute.high]
            if attribute.kind == "integer":
                points = list(range(int(attribute.low), int(attribute.high) + 1))
        else:
            points = list(attribute.values)
        if attribute.missing is not None:
            points.append(MISSING)
        of_rule, of_condition = (_terms(text, attribute.name) for text in (rule, condition))
        for point in points:
            names = {attribute.name: point, "missing": MISSING}
            if all(eval(t, {}, names) for t in of_rule) and not all(eval(t, {}, names) for t in of_condition):
                return False
    return True


def _terms(text: str, name: str) -> list[str]:
    """The comparisons of one attribute; those joined by 'or' stand in parentheses."""
    return [term for term in re.split(r" and ", text) if re.search(rf"\b{name}\b", term)]


def check(result: Quantification, condition: str, space: Space) -> int:
    try:
        part = result.restrict(condition)
    except SpaceError:  # nothing, or a single real point, is left
        return 0
    table = part.regions(flip=False)
    for rule in table["rule"]:
        assert implies(rule, condition, space), f"{rule!r} is not inside {condition!r}"
        if rule != "everywhere":
            inside = result.restrict(rule)  # reads back, and is where the region says
            assert inside.details["share_of_space"] <= part.details["share_of_space"] + 1e-12
    return len(table)


@pytest.mark.parametrize("seed", range(12))
def test_every_rule_of_a_restriction_implies_its_condition(seed: int) -> None:
    rng = random.Random(f"rules {seed}")
    rules = 0
    for _ in range(6):
        problem = random_problem(rng, eps=False, robustness=False, max_pieces=200)
        result = quantify(*problem)
        condition = condition_on(rng, problem.space)
        rules += check(result, condition, problem.space)
    assert rules


def test_a_restriction_of_a_restriction_stays_inside_both() -> None:
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"))
    twice = result.restrict("income > 120.5").restrict("55 <= age <= 70 and income <= 300")
    rules = list(twice.regions(flip=False)["rule"])
    assert rules
    for rule in rules:
        assert implies(rule, "120.5 < income <= 300 and 55 <= age <= 70", loan_space()), rule


def test_the_commands_rules_show_the_conditions_own_bound(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.basics.test_errors import ROOT

    monkeypatch.chdir(ROOT / "examples")
    asked = ["regions", "model.json", "--space", "space.json", "--sensitive", "sex", "--quiet"]
    assert main([*asked, "--where", "age >= 41 and race == 2", "--top", "5"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "race" in line and "==" in line]
    assert lines
    assert all("race == 2" in line for line in lines)
    assert any("41" in line for line in lines)
