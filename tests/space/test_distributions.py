"""Masses by a formula: within the proven distance of the formula's own, in every answer that takes masses."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from boxqte import Attribute, Distribution, Fairness, Histogram, Space, SpaceError, quantify
from boxqte.answers.values import GridValues
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_grid
from boxqte.testers.coordinates import Coordinates
from tests.naive_questions import naive_formula, naive_formula_measure
from tests.strategies import random_problem

DOMAINS = [
    (Attribute.real("x", 18, 90), {"gaussian": [40, 12]}),
    (Attribute.integer("x", 18, 90), {"gaussian": ["40.5", "1/3"]}),
    (Attribute.real("x", 5, 9), {"gaussian": [0, 1]}),  # a tail
    (Attribute.real("x", -1000, 1000), {"gaussian": [3, 2]}),
    (Attribute.real("x", 0, 500), {"lognormal": [3, 1]}),
    (Attribute.integer("x", 0, 40), {"lognormal": ["0.5", 2]}),
]
ORACLE_ERROR = Fraction(1, 10**70)
IDS = [f"{a.kind} {next(iter(mass))} on {a.low}..{a.high}" for a, mass in DOMAINS]


@pytest.mark.parametrize(("attribute", "mass"), DOMAINS, ids=IDS)
def test_cells_have_the_mass_of_the_formula(attribute: Attribute, mass: dict[str, list[object]]) -> None:
    (changed,) = Space([attribute]).with_mass({"x": mass})
    formula = changed.distribution
    assert formula is not None
    assert formula.error < Fraction(1, 2**120)
    rng, half = random.Random(1), Fraction(1, 2) * (attribute.kind == "integer")
    points = [attribute.low + attribute.range * Fraction(rng.random()) for _ in range(40)]
    edges = sorted({attribute.low, changed.end, *(Fraction(round(p)) if half else p for p in points)})
    family = formula.family, formula.location, formula.scale
    whole = Fraction(naive_formula(*family, attribute.low - half, changed.end - half))
    masses = [changed.mass_below(b) - changed.mass_below(a) for a, b in pairwise(edges)]
    assert sum(masses) == 1
    for (a, b), found in zip(pairwise(edges), masses):
        assert abs(found - Fraction(naive_formula(*family, a - half, b - half)) / whole) < formula.error
        assert found >= 0


def test_mass_never_falls_between_neighbouring_floats() -> None:
    (attribute,) = Space([Attribute.real("x", -9, 9)]).with_mass({"x": Distribution.gaussian(0, 1)})
    for start in (-8.5, -1e-9, 0.0, 0.3, 8.5):
        points = [start]
        for _ in range(20):
            points.append(float(np.nextafter(points[-1], 10)))
        below = [attribute.mass_below(Fraction(p)) for p in points]
        assert below == sorted(below)


def with_formulas(space: Space, rng: random.Random) -> Space:
    """Some numeric attributes with a formula in place of what they have."""
    masses = {}
    for a in space:
        if a.is_numeric and a.range and rng.random() < 0.8:
            scale = a.range * Fraction(rng.randint(1, 4), 4)
            masses[a.name] = {"gaussian": [a.low + a.range * Fraction(rng.randint(0, 4), 4), scale]}
            if (
                a.low >= 0 and Fraction(1, 10) <= a.high <= 1000 and rng.random() < 0.5
            ):  # within the reach of the oracle's series
                masses[a.name] = {"lognormal": [rng.randint(-1, 2), rng.randint(1, 3)]}
    return space.with_mass(masses)


def check(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        problem = random_problem(rng, max_pieces=120)
        space = with_formulas(problem.space, rng)
        confident, unfair = naive_formula_measure(problem.ensemble, space, problem.property)
        for engine in ("exhaustive", "box"):
            result = quantify(problem.ensemble, space, problem.property, engine=engine, workers=1)
            assert result.converged
            decided = result.decided
            for proved, true in zip(
                (decided.fair, decided.unfair, decided.low), (confident - unfair, unfair, 1 - confident)
            ):
                assert Fraction(proved) <= true + ORACLE_ERROR, (seed, engine)
                assert Fraction(proved) >= true - Fraction(1, 10**9), (seed, engine)
            if engine == "exhaustive" and any(a.distribution for a in space) and result.bounds is not None:
                # where no x' can be treated otherwise, the measure is 1 whatever the masses are
                assert result.exact is None or confident == unfair == 0 or (result.exact == 1 and result.caveats), seed
                lower, upper = Fraction(result.lower), Fraction(result.upper)
                assert lower * confident - ORACLE_ERROR <= confident - unfair <= upper * confident + ORACLE_ERROR


def test_measures_are_those_of_the_formula() -> None:
    check(range(40))


@pytest.mark.slow
def test_measures_are_those_of_the_formula_on_many_problems() -> None:
    check(range(1000, 1500))


def distance(values: np.ndarray, attribute: Attribute) -> float:
    """The largest difference of the two distribution functions (Kolmogorov and Smirnov)."""
    points = [attribute.low + (attribute.end - attribute.low) * Fraction(i, 200) for i in range(201)]
    points = [Fraction(round(p)) for p in points] if attribute.kind == "integer" else points
    return max(abs(float(attribute.mass_below(p)) - float(np.mean(values < float(p)))) for p in points)


@pytest.mark.parametrize(("attribute", "mass"), DOMAINS, ids=IDS)
def test_draws_follow_the_formula(attribute: Attribute, mass: dict[str, list[object]]) -> None:
    n = 20_000
    space = Space([attribute, Attribute.categorical("y", [0, 1])]).with_mass({"x": mass})
    drawn = Coordinates(space, "y").draw(np.random.default_rng(1), n)[:, 0]
    assert distance(drawn, space["x"]) < 2 / n**0.5  # 1.95 / sqrt(n) is exceeded once in a thousand
    assert drawn.min() >= attribute.low
    assert drawn.max() <= attribute.high


def test_values_drawn_inside_cells_follow_the_formula() -> None:
    space = loan_space()
    name = next(a.name for a in space if a.kind == "real")
    a = space[name]
    space = space.with_mass({name: {"gaussian": [a.low + a.range / 2, a.range / 10]}})
    grid = build_grid(loan_ensemble(), space, Fairness("race"))
    at = space.names.index(name)
    own = GridValues(grid).axes[at]
    rng, n = np.random.default_rng(2), 20_000
    masses = np.array([float(m) for m in grid.axes[at].refined_masses])
    values = own.draw(rng.choice(len(masses), n, p=masses), rng)
    assert distance(values, space[name]) < 2 / n**0.5


def test_a_condition_truncates_the_formula() -> None:
    space = loan_space()
    name = next(a.name for a in space if a.kind == "real")
    a = space[name]
    middle = a.low + a.range / 2
    space = space.with_mass({name: {"gaussian": [middle, a.range / 4]}})
    result = quantify(loan_ensemble(), space, Fairness("race"), engine="exhaustive")
    part = result.restrict(f"{name} <= {float(middle)!r}")
    restricted = part.asked.grid.space[name]
    assert restricted.mass_below(middle) == 1
    quarter = (a.low + middle) / 2
    assert restricted.mass_below(quarter) == 2 * space[name].mass_below(quarter)
    assert Attribute.from_json(restricted.to_json(), "x") == restricted
    sample = part.sample(200, random_state=1).x
    assert (sample[name] <= float(middle)).all()


def test_it_is_part_of_the_space() -> None:
    space = Space([Attribute.integer("age", 18, 90)])
    formula = space.with_mass({"age": Distribution.gaussian(40, 12)})
    assert formula.to_json()["attributes"][0]["mass"] == {"gaussian": [40, 12]}
    assert Space.from_json(formula.to_json()) == formula
    assert formula.fingerprint() != space.fingerprint()
    flat = Histogram((Fraction(18), Fraction(91)), (Fraction(1),))
    assert formula.with_mass({"age": flat})["age"].distribution is None


@pytest.mark.parametrize(
    ("attribute", "mass", "words"),
    [
        (Attribute.real("x", 0, 1), {"gaussian": [0]}, r"expected \{'gaussian': \[mean, sd\]\}, found"),
        (Attribute.real("x", 0, 1), {"gaussian": [0, 0]}, "sd of the gaussian: must be above 0, found 0"),
        (Attribute.real("x", 0, 1), {"lognormal": [0, "a"]}, "sigma of the lognormal: expected a finite number"),
        (Attribute.real("x", -1, 1), {"lognormal": [0, 1]}, "a lognormal has no mass below 0, but the domain begins at -1"),
        (Attribute.real("x", 0, 1), {"gaussian": [1000, 1]}, "next to no mass under a gaussian, mean 1000, sd 1"),
        (Attribute.real("x", 0, 1), {"normal": [0, 1]}, "expected {'edges'.*'gaussian'"),
        (Attribute.real("x", 0, 1), {"gaussian": [0, 1], "within": [[0, 2]]}, "'within' must lie in the domain, 0 to 1"),
        (Attribute.real("x", 0, 1), {"gaussian": [0, 1], "within": [[1, 0]]}, "must lie in the domain"),
        (Attribute.categorical("x", [0, 1]), {"gaussian": [0, 1]}, "a categorical attribute takes one weight a value"),
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused_by_name(attribute: Attribute, mass: dict[str, object], words: str) -> None:
    with pytest.raises(SpaceError, match=words):
        Space([attribute]).with_mass({"x": mass})
