"""Conditions: one reader, one evaluator for rows and one for masses, against Python's own reading of the text."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from boxqte import Attribute, Space, SpaceError
from boxqte.space.conditions import both, holds_in, mass_of, parse_condition, whole, without
from boxqte.space.rows import MISSING, OUTSIDE, TableRows
from boxqte.space.tables import table_of

AGE = Attribute.integer("age", 18, 40)
X = Attribute.real("x", 0, 10)
SEX = Attribute.categorical("sex", ["f", "m", "d"])
SPACE = Space([AGE, X, SEX])
VALUES: dict[str, list[Any]] = {
    "age": list(range(18, 41)),
    "x": [Fraction(i, 4) for i in range(41)],
    "sex": ["f", "m", "d"],
}


def comparison(rng: random.Random, name: str) -> str:
    if name == "sex":
        chosen = rng.sample(VALUES["sex"], rng.randint(1, 2))
        return rng.choice(
            [f"sex == {chosen[0]!r}", f"sex != {chosen[0]!r}", f"sex in {chosen}", f"sex not in {chosen}"]
        )
    limit = rng.randint(15, 43) if name == "age" else rng.choice([0, 2.5, 5, 7.25, 10])
    operators = ["<", "<=", ">", ">="] + (["==", "!="] if name == "age" else [])
    return f"{name} {rng.choice(operators)} {limit}" if rng.random() < 0.7 else f"{limit} {rng.choice('<>')} {name}"


def condition(rng: random.Random, name: str, depth: int = 2) -> str:
    """Comparisons of one attribute, joined at random."""
    if depth == 0 or rng.random() < 0.4:
        return comparison(rng, name)
    kind = rng.random()
    if kind < 0.3:
        return f"not ({condition(rng, name, depth - 1)})"
    join = " and " if kind < 0.65 else " or "
    return f"({condition(rng, name, depth - 1)}{join}{condition(rng, name, depth - 1)})"


@pytest.mark.parametrize("seed", range(300))
def test_a_value_satisfies_a_condition_iff_python_says_so(seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(["age", "x", "sex"])
    text = condition(rng, name)
    part = parse_condition(text, SPACE)[name]
    for i, value in enumerate(VALUES[name]):
        expected = bool(eval(text, {name: value}))
        assert holds_in(SPACE[name], part, i if name == "sex" else Fraction(value)) == expected, (text, value)
    if name != "x":  # every value of these has the same mass
        share = sum(bool(eval(text, {name: value})) for value in VALUES[name])
        assert mass_of(SPACE[name], part) == Fraction(share, len(VALUES[name]))


@pytest.mark.parametrize("seed", range(100))
def test_the_masses_of_a_part_and_of_the_rest_make_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    attribute = rng.choice([AGE, X, SEX])
    part = parse_condition(condition(rng, attribute.name), SPACE)[attribute.name]
    rest = without(attribute, part)
    assert mass_of(attribute, part) + mass_of(attribute, rest) == 1
    assert mass_of(attribute, both(part, rest)) == 0
    assert both(part, whole(attribute)).spans == part.spans
    for i, value in enumerate(VALUES[attribute.name]):
        at = i if attribute is SEX else Fraction(value)
        assert holds_in(attribute, part, at) != holds_in(attribute, rest, at)


def test_a_missing_value_of_a_single_number_satisfies_no_comparison() -> None:
    space = Space([Attribute.real("x", 2, 2, missing="1/2")])
    for text in ("x <= 2", "x == 2", "x > 1"):
        assert not parse_condition(text, space)["x"].missing
        assert mass_of(space["x"], parse_condition(text, space)["x"]) == Fraction(1, 2)
    assert parse_condition("not x == 2", space)["x"].missing


def test_a_missing_value_satisfies_only_what_names_it() -> None:
    space = Space([Attribute.integer("n", 0, 3, missing="1/5")])
    rows = TableRows(space, table_of({"n": [0.0, 3.0, None]}))
    assert rows.values["n"] == [0, 3, MISSING]
    assert rows.chosen("n == missing").tolist() == [False, False, True]
    assert rows.chosen("n >= 0").tolist() == [True, True, False]
    assert rows.chosen("n != 3").tolist() == [True, False, True]


def test_a_value_outside_the_space_satisfies_no_condition_on_it() -> None:
    rows = TableRows(SPACE, table_of({"age": [20, 99], "x": [1.0, 1.0], "sex": ["f", "f"]}))
    assert rows.values["age"] == [20, OUTSIDE]
    assert rows.why == ["", "age: 99 is outside 18 to 40"]
    assert rows.chosen("age != 30").tolist() == [True, False]
    assert rows.chosen("sex == 'f'").tolist() == [True, True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age >", "cannot be read"),
        ("height > 3", "'height' is not an attribute"),
        ("age > 3 or sex == 'f'", "'or' joins different attributes"),
        ("sex < 'm'", "has no order"),
        ("sex == 'x'", "has no value 'x'"),
        ("x == 3", "one value has no mass"),
        ("3 > 2", "names no attribute"),
        ("age == missing", "never missing"),
    ],
)
def test_a_condition_that_means_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpaceError, match=said):
        parse_condition(text, SPACE)
