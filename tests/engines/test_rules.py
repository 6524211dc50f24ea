"""Plausibility rules: what they forbid is neither x nor x'. Every engine against the oracle, which reads the rules' text."""

from __future__ import annotations

import random
import sys
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from boxqte import quantify
from boxqte.engines import ENGINES, make_engine
from boxqte.engines.exhaustive import Exhaustive
from boxqte.engines.protocol import Capability, Limits, Status, Watch
from boxqte.engines.smt.formula import smtlib
from boxqte.errors import EngineError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_any_grid, build_grid
from boxqte.questions.properties import Fairness, Monotonicity, Property, ScoreFairness
from boxqte.space.space import Space
from tests.engines.test_smtlib import by_z3
from tests.naive import NaiveAnswer, naive_quantify
from tests.naive_classes import naive_class_answer, random_class_problem
from tests.naive_mixture import naive_mixture
from tests.naive_questions import naive_measure
from tests.questions.test_partners import asked
from tests.random_mixtures import random_mixture
from tests.random_rules import with_rules
from tests.strategies import Problem, random_problem

SMALL = {"max_pieces": 60, "max_pairs": 2_000}


def ruled_problem(seed: int, **limits: Any) -> Problem:
    rng = random.Random(f"rules {seed}")
    return with_rules(rng, random_problem(rng, **{"decision": seed % 5 == 0} | limits))


def compare(
    problem: Problem, engine: str, expected: NaiveAnswer, prop: Property | None = None, **limits: Any
) -> Status:
    """The masses are those of the oracle once the engine has converged, and bounds on them before; what is forbidden is low."""
    grid = build_any_grid(problem.ensemble, problem.space, prop or problem.property)
    assert grid.forbidden_mass == expected.forbidden == 1 - problem.space.allowed
    bounds = Limits(**limits)
    watch = Watch(bounds)
    outcome = make_engine(engine).run(grid, bounds, watch)
    found, allowed = outcome.decided, 1 - expected.forbidden
    confident, unfair = expected.confident * allowed, expected.counterexample * allowed
    true = confident - unfair, unfair, 1 - confident
    slack = Fraction(0) if engine in ("exhaustive", "smt", "cegar") else Fraction(1, 10**9)
    assert all(mass <= wanted for mass, wanted in zip((found.fair, found.unfair, found.low), true))
    assert found.low >= expected.forbidden - slack
    if outcome.status is Status.CONVERGED:
        assert all(mass >= wanted - slack for mass, wanted in zip((found.fair, found.unfair, found.low), true))
    if expected.measure is not None:
        assert all(lower <= expected.measure <= upper for _, lower, upper in watch.trace)
    return outcome.status


def check_exhaustive(seeds: range) -> tuple[int, int]:
    """How many of the problems have rules that forbid something, and how many have an x that is fair for its x' is forbidden."""
    forbidding = changed = 0
    for seed in seeds:
        problem = ruled_problem(seed, max_pieces=150, max_pairs=8_000)
        expected = naive_quantify(*problem)
        assert compare(problem, "exhaustive", expected) is Status.CONVERGED
        forbidding += expected.forbidden > 0
        free = naive_quantify(problem.ensemble, Space(problem.space.attributes), problem.property)
        changed += free.measure != expected.measure
    return forbidding, changed


def test_exhaustive_equals_the_oracle() -> None:
    forbidding, changed = check_exhaustive(range(80))
    assert forbidding > 50
    assert changed > 8


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_exhaustive_equals_the_oracle_on_thousands(part: int) -> None:
    check_exhaustive(range(1_000 + 300 * part, 1_300 + 300 * part))


@pytest.mark.parametrize("engine", ["cegar", "smt"])
def test_the_solvers_hold_the_oracle(engine: str) -> None:
    for seed in range(10):
        problem = ruled_problem(seed, **SMALL)
        compare(problem, engine, naive_quantify(*problem), time_limit=5)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("engine", ["cegar", "smt"])
def test_the_solvers_hold_the_oracle_on_a_thousand(engine: str, part: int) -> None:
    for seed in range(5_000 + 100 * part, 5_100 + 100 * part):
        problem = ruled_problem(seed, **SMALL)
        compare(problem, engine, naive_quantify(*problem), time_limit=5)


def check_partners(seeds: range, engines: tuple[str, ...], seconds: float = 2.0) -> None:
    for seed in seeds:
        problem = ruled_problem(seed, eps=False, decision=False, **SMALL)
        for prop in asked(problem, seed):
            expected = naive_measure(problem.ensemble, problem.space, prop)
            for engine in engines:
                if _takes(engine, prop):
                    compare(problem, engine, expected, prop, time_limit=None if engine == "exhaustive" else seconds)


def _takes(engine: str, prop: Property) -> bool:
    """What refusals.py leaves of the questions with partners for the solvers."""
    if engine == "exhaustive":
        return True
    if isinstance(prop, ScoreFairness):
        return prop.scale == "margin" and prop.kappa <= Fraction(1, 2)
    return not prop.max_change and (engine == "cegar" or not isinstance(prop, Monotonicity))


def test_monotonicity_scores_and_bounded_changes_equal_the_oracle() -> None:
    check_partners(range(12), ("exhaustive",))
    check_partners(range(20, 23), ("smt", "cegar"), 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_monotonicity_scores_and_bounded_changes_equal_the_oracle_on_many(part: int) -> None:
    check_partners(range(7_000 + 80 * part, 7_080 + 80 * part), ("exhaustive",))
    check_partners(range(7_400 + 8 * part, 7_408 + 8 * part), ("smt", "cegar"))


def check_classes(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(f"classes {seed}")
        problem = with_rules(rng, random_class_problem(seed, max_pieces=100, max_pairs=4_000))
        compare(problem, "exhaustive", naive_class_answer(*problem))


def test_many_classes_equal_the_oracle() -> None:
    check_classes(range(25))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_many_classes_equal_the_oracle_on_many(part: int) -> None:
    check_classes(range(1_000 + 100 * part, 1_100 + 100 * part))


def check_mixtures(seeds: range, engine: str) -> None:
    for seed in seeds:
        rng = random.Random(f"mixture {seed}")
        problem = with_rules(rng, random_mixture(rng, **SMALL))
        expected = naive_mixture(*problem)
        result = quantify(*problem, engine=engine, workers=1, time_limit=20)
        assert result.ruled is not None
        assert result.ruled.forbidden == expected.forbidden
        assert result.confident.lower <= expected.confident <= result.confident.upper
        assert result.counterexample.lower <= expected.counterexample <= result.counterexample.upper
        if expected.measure is None:
            assert result.undefined
        elif engine == "exhaustive":
            assert result.exact == expected.measure
        else:
            assert result.lower is not None
            assert result.upper is not None
            assert result.lower <= expected.measure <= result.upper


def test_mixtures_with_rules_equal_the_oracle() -> None:
    check_mixtures(range(30), "exhaustive")
    check_mixtures(range(2), "smt")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_mixtures_with_rules_equal_the_oracle_on_many(part: int) -> None:
    check_mixtures(range(1_000 + 100 * part, 1_100 + 100 * part), "exhaustive")


def test_formulas_are_satisfiable_iff_the_oracle_finds_an_allowed_pair() -> None:
    seen = set()
    for seed in range(40):
        problem = ruled_problem(seed, masses=False, **SMALL)
        expected = naive_quantify(*problem)
        if expected.counterexample or not problem.space.count():
            continue  # a pair of points without mass would satisfy the formula and yet have no mass
        script = smtlib(build_grid(*problem))
        assert by_z3(script) == "unsat"
        seen.add(seed)
    assert len(seen) > 5


class Older(Exhaustive):
    """An engine that has not heard of rules."""

    name = "older"
    capabilities = Exhaustive.capabilities - {Capability.RULES}


def test_an_engine_without_the_capability_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "older", f"{__name__}:Older")
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, SimpleNamespace(Older=Older)))
    space = loan_space().with_rules("not (age < 18 and income > 500)")
    with pytest.raises(EngineError, match=r"engine 'older' .*rule forbids; spaces with rules: engines auto, box"):
        quantify(loan_ensemble(), space, Fairness("race"), engine="older")


@pytest.mark.parametrize("engine", ["exhaustive", "box", "auto"])
def test_what_is_forbidden_leaves_the_denominator_and_is_no_partner(engine: str) -> None:
    """Race 0 and 1 differ by 500 in what they need; without x' of race 0 nobody else has a partner below."""
    model, space = loan_ensemble(), loan_space()
    free = quantify(model, space, Fairness("race"), engine=engine)
    ruled = quantify(model, space.with_rules("race == 0 or race == 1"), Fairness("race"), engine=engine)
    assert free.ruled is None
    assert ruled.ruled is not None
    assert ruled.ruled.forbidden == Fraction(3, 5)
    kept = Fairness("race"), space.with_mass({"race": [1, 1, 0, 0, 0]})
    among = quantify(model, kept[1], kept[0], engine=engine)  # x is one of the two, x' still any
    assert ruled.lower is not None
    assert among.upper is not None
    assert ruled.lower >= among.upper - 1e-9
