"""Bounded changes, confident partners, monotonicity and scores against the oracle (questions.md, 2, 2a and 3)."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxqte.engines import make_engine
from boxqte.engines.protocol import Limits, Status, Watch
from boxqte.questions.building import build_grid
from boxqte.questions.properties import Fairness, Monotonicity, Property, ScoreFairness
from tests.engines.test_point import wide_leaves
from tests.naive_questions import naive_measure
from tests.strategies import Problem, problems, random_problem

KAPPAS = [Fraction(1, 2), Fraction(3, 5), Fraction(4, 5)]


def asked(problem: Problem, seed: int) -> list[Property]:
    """Questions of every kind that fit the problem's space."""
    rng, space = random.Random(seed), problem.space
    numeric = [a for a in space.attributes if a.is_numeric]
    names = [a.name for a in space.attributes]
    some = rng.sample(names, rng.randint(1, min(2, len(names))))
    kappa = problem.property.kappa
    questions: list[Property] = [
        ScoreFairness(some, rng.choice([0, Fraction(1, 4), 1]), "margin", kappa),
        ScoreFairness(some, rng.choice([0, Fraction(1, 100), Fraction(1, 10), Fraction(1, 2)]), "probability", kappa),
        Fairness(some, 0, kappa, partner_kappa=rng.choice(KAPPAS), tie=problem.property.tie),
    ]
    if numeric:
        one = rng.choice(numeric)
        direction = rng.choice(["increasing", "decreasing"])
        questions.append(Monotonicity(one.name, direction, "class", kappa, tie=problem.property.tie))
        questions.append(Monotonicity(one.name, direction, "score"))
        reach = (one.high - one.low) * Fraction(rng.randint(1, 5), 5) or Fraction(1)
        both = list(dict.fromkeys([one.name, *some]))
        questions.append(Fairness(both, 0, kappa, max_change={one.name: reach}, tie=problem.property.tie))
    return questions


def check(problem: Problem, seed: int) -> None:
    limits = Limits()
    for prop in asked(problem, seed):
        wanted = naive_measure(problem.ensemble, problem.space, prop)
        grid = build_grid(problem.ensemble, problem.space, prop)
        exact = make_engine("exhaustive").run(grid, limits, Watch(limits)).decided
        assert (1 - exact.low, exact.unfair) == (wanted.confident, wanted.counterexample), prop
        for options in ({}, {"finish_limit": 8}, {"finish_limit": 8, "call_nodes": 1, "batch": 1}):
            watch = Watch(limits)
            outcome = make_engine("box", options).run(grid, limits, watch)
            if wanted.measure is not None:
                for _, lower, upper in watch.trace:  # at any time
                    assert lower <= wanted.measure <= upper, prop
            assert outcome.status is Status.CONVERGED
            found = outcome.decided
            for name in ("fair", "unfair", "low"):
                true = getattr(exact, name)
                assert getattr(found, name) <= true, (prop, name)
                assert getattr(found, name) >= true - Fraction(1, 10**9), (prop, name)


@settings(max_examples=30, deadline=None)
@given(problems(eps=False, max_pieces=200), st.integers(0, 10**6))
def test_engines_equal_the_oracle(problem: Problem, seed: int) -> None:
    check(problem, seed)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(problems(eps=False, max_pieces=200), st.integers(0, 10**6))
def test_engines_equal_the_oracle_on_many(problem: Problem, seed: int) -> None:
    check(problem, seed)


def test_margins_beyond_64_bits_are_counted_exactly() -> None:
    for seed in range(12):
        check(wide_leaves(random_problem(random.Random(f"wide partners {seed}"), eps=False, max_pieces=60), seed), seed)
