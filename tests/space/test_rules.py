"""Plausibility rules as they are written: what they forbid, what is refused, and where they stay with a space."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxqte import Attribute, Space, SpaceError, population, propose_rules
from boxqte.space.boxes import allowed_share
from boxqte.space.rows import TableRows
from boxqte.space.rules import read_rule, share_of_allowed
from boxqte.space.tables import table_of
from tests.naive_rules import NaiveRules
from tests.random_rules import random_rule
from tests.strategies import random_problem

AGE = Attribute.integer("age", 0, 99)
YEARS = Attribute.integer("years in job", 0, 60)
SCHOOL = Attribute.categorical("school", ["none", "Assoc-voc", "Masters", "Doctorate"])
INCOME = Attribute.real("income", 0, 10)
SPACE = Space([AGE, SCHOOL, INCOME, YEARS])


def forbidden(text: str, space: Space = SPACE, **values: Any) -> bool:
    """Whether a rule forbids an input; of the attributes that are not given it does not speak."""
    rule = read_rule(text, space)
    named = {name for box in rule.boxes for name, _ in box}
    given = {name.replace("_", " ") if name not in space.names else name: value for name, value in values.items()}
    indices = {
        name: value if value is None or space[name].is_numeric else space[name].values.index(value)
        for name, value in given.items()
    }
    assert named <= indices.keys()
    return rule.forbids(space, indices)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("not (age < 20 and school in {Doctorate, Masters})", {"age": 19, "school": "Masters"}, True),
        ("not (age < 20 and school in {Doctorate, Masters})", {"age": 20, "school": "Masters"}, False),
        ("not (age < 20 and school in {'Doctorate', \"Masters\"})", {"age": 19, "school": "Doctorate"}, True),
        ("not (age < 20 and school == Assoc-voc)", {"age": 19, "school": "Assoc-voc"}, True),
        ("not (age < 20 and school == Assoc-voc)", {"age": 19, "school": "none"}, False),
        ("age >= 18", {"age": 17}, True),
        ("age >= 18 and income <= 8", {"age": 30, "income": Fraction(9)}, True),
        ("age >= 18 and income <= 8", {"age": 18, "income": Fraction(8)}, False),
        ("age >= 18 or school == none", {"age": 17, "school": "Masters"}, True),
        ("age >= 18 or school == none", {"age": 17, "school": "none"}, False),
        ("18 <= age < 65", {"age": 65}, True),
        ("`years in job` <= age", {"age": 5, "years_in_job": 6}, True),
        ("`years in job` <= age", {"age": 6, "years_in_job": 6}, False),
        ("`years in job` < age", {"age": 6, "years_in_job": 6}, True),
        ("age != `years in job`", {"age": 6, "years_in_job": 6}, True),
        ("age == `years in job`", {"age": 6, "years_in_job": 7}, True),
        ("age == `years in job`", {"age": 99, "years_in_job": 60}, True),
        ("not (income > 5)", {"income": Fraction(5)}, False),
        ("income < 5", {"income": Fraction(5)}, True),
        ("income < 5 or income > 5", {"income": Fraction(5)}, True),
        ("not (2 < income < 5) or age < 3", {"income": Fraction(3), "age": 3}, True),
    ],
)
def test_a_rule_forbids_what_it_says(text: str, values: dict[str, Any], expected: bool) -> None:
    assert forbidden(text, **values) is expected


MAYBE = Space([Attribute.integer("age", 0, 99, missing=True), Attribute.categorical("sex", ["f", "m"], missing=True)])


@pytest.mark.parametrize(
    ("text", "age", "sex", "expected"),
    [
        ("age >= 18", None, "f", False),
        ("not (age >= 18)", None, "f", False),
        ("not (age < 18 and sex == f)", None, "f", False),
        ("not (age < 18 and sex == f)", 17, None, False),
        ("age >= 18 or sex == f", None, "m", False),
        ("age != 18", None, "m", False),
        ("age not in {18, 19}", None, "m", False),
        ("age != missing", None, "m", True),
        ("age == missing", 3, "m", True),
        ("age in {3, missing}", None, "m", False),
        ("age in {3, missing}", 4, "m", True),
        ("age not in {3, missing}", None, "m", True),
        ("not (age == missing and sex == f)", None, "f", True),
        ("not (age == missing and sex == f)", None, None, False),
        ("age >= 18 and age != missing", None, "f", True),
    ],
)
def test_a_missing_value_breaks_no_rule_unless_the_rule_says_so(
    text: str, age: int | None, sex: str | None, expected: bool
) -> None:
    assert forbidden(text, MAYBE, age=age, sex=sex) is expected


@pytest.mark.parametrize("seed", range(60))
def test_rules_and_their_mass_are_those_of_the_oracle(seed: int) -> None:
    """Point by point on finite spaces, and the allowed mass by the sum of the points."""
    rng = random.Random(seed)
    problem = random_problem(rng, real=False, max_pieces=200)
    space = Space(problem.space.attributes)
    texts = [random_rule(rng, problem.ensemble, space) for _ in range(rng.randint(1, 4))]
    rules = [read_rule(text, space) for text in texts]
    allowed, left = Fraction(0), 0
    domains = [
        [
            *(range(int(a.low), int(a.high) + 1) if a.is_numeric else range(len(a.values))),
            *([None] * (a.missing is not None)),
        ]
        for a in space
    ]
    masses = [[_mass(a, value) for value in domain] for a, domain in zip(space, domains)]
    for at in product(*(range(len(domain)) for domain in domains)):
        indices = {a.name: domain[i] for a, domain, i in zip(space, domains, at)}
        values = {
            name: v if v is None or space[name].is_numeric else space[name].values[v] for name, v in indices.items()
        }
        naive = _naive(space, texts).allowed(values)
        assert naive == (not any(rule.forbids(space, indices) for rule in rules)), (texts, values)
        mass = Fraction(1)
        for own, i in zip(masses, at):
            mass *= own[i]
        allowed += mass if naive else 0
        left += naive
    assert share_of_allowed(space.attributes, rules) == allowed
    if allowed:
        assert space.with_rules(texts).count() == left


def _naive(space: Space, texts: list[str]) -> NaiveRules:
    import ast

    rules = NaiveRules(space)
    rules.trees = [ast.parse(text, mode="eval").body for text in texts]
    return rules


def _mass(a: Attribute, value: int | None) -> Fraction:
    if value is None:
        return a.missing or Fraction(0)
    if a.is_numeric:
        return a.mass_below(Fraction(value + 1)) - a.mass_below(Fraction(value))
    return a.value_masses()[value]


def test_the_mass_of_twenty_rules_is_exact_and_quick() -> None:
    rng = random.Random(1)

    def part() -> int:
        low, high = sorted(rng.sample(range(31), 2))
        return (1 << high) - (1 << low)

    masses = {a: [Fraction(rng.randint(1, 9)) for _ in range(30)] for a in range(12)}
    masses = {a: [m / sum(own) for m in own] for a, own in masses.items()}
    boxes = [tuple((a, part()) for a in sorted(rng.sample(range(12), 2))) for _ in range(20)]
    share = float(allowed_share(boxes, masses))
    draws = np.random.default_rng(0)
    points = np.stack([draws.choice(30, 200_000, p=np.array(masses[a], float)) for a in range(12)])
    inside = np.ones(points.shape[1], bool)
    for box in boxes:
        held = [np.array([mask >> c & 1 for c in range(30)], bool)[points[a]] for a, mask in box]
        inside &= ~(held[0] & held[1])
    assert abs(inside.mean() - share) < 4 * (share * (1 - share) / 200_000) ** 0.5


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("age <", "rule 'age <': cannot be read"),
        ("agee < 3", "'agee' is not an attribute (did you mean 'age'?)"),
        ("school == Bachelors", "'school' has no value 'Bachelors'; it has none, Assoc-voc, Masters, Doctorate"),
        ("school in Masters", "is no value or list of values"),
        ("school < Masters", "has no order"),
        ("income == 3", "one value has no mass"),
        ("income <= age", "'income' is real; two attributes are compared if both are integers"),
        ("age <= school", "'school' is categorical; two attributes are compared if both are integers"),
        ("age <= age", "'age' is compared with itself"),
        ("age in `years in job`", "'in' and 'is' do not compare two attributes"),
        ("age == missing", "'age' is never missing in this space"),
        ("age", "'age' is no comparison"),
        ("if age: 3", "cannot be read"),
        ("(" * 300 + "age < 3" + ")" * 300, "cannot be read"),
        ("not " * 5000 + "age < 3", "cannot be read"),
        (" or ".join(f"(age == {i} and income < {i / 10} and `years in job` == {i})" for i in range(1, 9)),
         "the union of more than 1000 boxes"),
        ("age >= 100", "rules: no input is left with positive mass; 'age >= 100' forbids everything"),
        ("__import__('os').system('true') == 1", "names no attribute"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(SpaceError) as error:
        SPACE.with_rules(text)
    assert "\n" not in str(error.value)
    assert why in str(error.value)


def test_long_rules_are_read() -> None:
    long = "not " * 100 + "age < 3"
    assert read_rule(long, SPACE) == replace(read_rule("age < 3", SPACE), text=long)
    many = " and ".join(f"(age == {i} or income < {i / 10})" for i in range(1, 12))
    assert len(read_rule(many, SPACE).boxes) == 11


@pytest.mark.parametrize("given", [[3], 3, {"age": 3}, [["age < 3"]]])
def test_rules_are_texts(given: Any) -> None:
    with pytest.raises(SpaceError, match=r"^rules?: expected a"):
        Space([AGE], rules=given)


def test_two_long_integer_attributes_are_not_compared_value_by_value() -> None:
    space = Space([Attribute.integer("a", 0, 10**6), Attribute.integer("b", 0, 10**6), Attribute.integer("c", -9, 9)])
    with pytest.raises(SpaceError, match=r"'a' and 'b' share 1000001 values, and at most 1000 are compared"):
        space.with_rules("a <= b")
    assert space.with_rules("c <= a").allowed == 1 - Fraction(45, 19 * (10**6 + 1))  # c > a for a in 0..8: 9 + ... + 1


def test_a_rule_that_empties_a_space_together_with_others_is_named() -> None:
    with pytest.raises(SpaceError, match="'age > 50' forbids what those before it leave"):
        SPACE.with_rules(["income < 3", "age < 40", "age > 50"])


def test_rules_stay_with_the_space(tmp_path: Path) -> None:
    texts = ["not (age < 20 and school in {Doctorate, Masters})", "income < 0.1 or age > 3"]
    space = SPACE.with_rules(texts[0]).with_rules(texts)
    assert [str(rule) for rule in space.rules] == texts
    assert space.to_json()["rules"] == texts
    assert Space.from_json(json.loads(json.dumps(space.to_json()))) == space
    space.save(tmp_path / "space.json")
    assert Space.load(tmp_path / "space.json") == space
    assert space.fingerprint() != SPACE.fingerprint()
    assert space.fingerprint() != SPACE.with_rules(texts[:1]).fingerprint()
    for changed in (
        space.with_attribute(Attribute.integer("age", 0, 30)),
        space.with_mass({"school": [1, 0, 0, 0]}),
        space.with_components([space.as_component("1/2"), space.with_mass({"age": EDGES}).as_component("1/2")]),
    ):
        assert [rule.text for rule in changed.rules] == texts
        assert [[rule.text for rule in one.rules] for _, one in changed.products()] == [texts] * len(changed.products())
    with pytest.raises(SpaceError, match="rules: cut cells further"):
        space.with_mass("cells")
    with pytest.raises(SpaceError, match="rule 'age > 3': 'age' is not an attribute"):
        Space([SCHOOL], rules=["age > 3"])


EDGES = {"edges": [0, 50, 100], "weights": [1, 3]}


def test_a_component_may_be_forbidden_altogether_but_not_the_whole_mixture() -> None:
    young, old = ({"edges": [0, 50, 100], "weights": weights} for weights in ([1, 0], [0, 1]))
    parts = [SPACE.with_mass({"age": mass}).as_component("1/2") for mass in (young, old)]
    mixture = SPACE.with_components(parts)
    assert mixture.with_rules("age < 50").allowed == Fraction(1, 2)
    with pytest.raises(SpaceError, match="no input is left"):
        mixture.with_rules(["age < 50", "age >= 50"])


def test_masses_change_at_once_so_that_no_step_on_the_way_is_empty() -> None:
    space = Space(
        [Attribute.categorical("a", ["x", "y"]), Attribute.categorical("b", ["x", "y"])],
        rules=["not (a == x and b == x)"],
    )
    first = space.with_mass({"a": [1, 0], "b": [0, 1]})
    assert first.with_mass({"a": [0, 1], "b": [1, 0]}).allowed == 1


def test_rows_that_break_a_rule_say_so_and_are_left_out_of_a_population() -> None:
    space = Space([AGE, SCHOOL], rules=["not (age < 20 and school == Doctorate)"])
    people = {"age": [10, 10, 40, 40], "school": ["none", "Doctorate", "Doctorate", "Doctorate"]}
    rows = TableRows(space, table_of(people))
    assert rows.why == ["", f"forbidden by the rule {space.rules[0].text!r}", "", ""]
    found = population(space, people)
    assert (found.rows, found.notes[0]) == (3, "rows that a rule forbids, left out: 1")
    assert found.space["school"].value_masses() == [Fraction(1, 3), 0, 0, Fraction(2, 3)]
    assert found.space.rules == space.rules


# --- rules from data --------------------------------------------------------------------------------------------------


def test_values_that_never_meet_are_proposed_with_what_was_expected() -> None:
    rng = random.Random(0)
    married = [rng.random() < 0.5 for _ in range(2000)]
    table = {
        "status": ["married" if m else rng.choice(["single", "widowed"]) for m in married],
        "role in family": [rng.choice(["husband", "other"]) if m else "other" for m in married],
        "age": [rng.randint(30, 70) if m else rng.randint(18, 70) for m in married],
        "height": [rng.randint(150, 200) for _ in married],
    }
    space = Space.infer(table).space
    found = propose_rules(space, table)
    texts = [proposal.rule for proposal in found]
    assert set(texts) == {
        "not (`role in family` == 'husband' and status == 'single')",
        "not (`role in family` == 'husband' and status == 'widowed')",
        "not (status == 'married' and age < 30)",
        "not (`role in family` == 'husband' and age < 30)",
    } or set(texts) == {
        "not (status == 'single' and `role in family` == 'husband')",
        "not (status == 'widowed' and `role in family` == 'husband')",
        "not (status == 'married' and age < 30)",
        "not (`role in family` == 'husband' and age < 30)",
    }
    assert [p.expected for p in found] == sorted((p.expected for p in found), reverse=True)
    assert all(p.expected >= 20 and p.rows == 2000 for p in found)
    ruled = space.with_rules(texts)  # they can be read, and no row breaks one
    assert not any(TableRows(ruled, table_of(table)).broken)


def test_independent_attributes_give_no_proposal_and_there_are_at_most_twenty() -> None:
    rng = random.Random(1)
    table = {name: [rng.randint(0, 5) for _ in range(500)] for name in "abc"}
    assert propose_rules(Space.infer(table, categorical=["a"]).space, table) == []
    same = [rng.randint(0, 29) for _ in range(30_000)]
    copies = {"a": [f"v{v}" for v in same], "b": [f"w{v}" for v in same]}
    found = propose_rules(Space.infer(copies).space, copies)
    assert len(found) == 20
    assert propose_rules(Space.infer(copies).space, copies, at_most=3) == found[:3]
