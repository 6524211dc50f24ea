"""The decision rule: every engine and every answer against the oracle, exactly; what cannot be a rule is refused."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings

from boxqte.engines.exhaustive import Exhaustive
from boxqte.engines.protocol import Limits, Watch
from boxqte.questions.building import build_grid
from tests.naive import naive_quantify
from tests.net import check
from tests.strategies import Problem, problems, random_problem

SMALL = {"max_pieces": 200, "max_pairs": 10_000, "decision": True}


def agrees(problem: Problem) -> None:
    """The exhaustive engine's masses are the oracle's rationals."""
    limits = Limits()
    decided = Exhaustive().run(build_grid(*problem), limits, Watch(limits)).decided
    true = naive_quantify(*problem)
    assert Fraction(decided.fair) + Fraction(decided.unfair) == true.confident
    assert Fraction(decided.unfair) == true.counterexample
    assert decided.undecided == 0


@settings(max_examples=200, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems(**SMALL))
def test_the_measure_equals_the_oracle_on_what_hypothesis_thinks_of(problem: Problem) -> None:
    agrees(problem)


@pytest.mark.parametrize("part", range(3))
def test_the_measure_equals_the_oracle_on_random_rules(part: int) -> None:
    for seed in range(100 * part, 100 * part + 100):
        agrees(random_problem(random.Random(f"decision {seed}"), **SMALL))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_the_measure_equals_the_oracle_on_thousands_more(part: int) -> None:
    for seed in range(1_000 + 100 * part, 1_100 + 100 * part):
        agrees(random_problem(random.Random(f"decision {seed}"), decision=True))


@pytest.mark.parametrize("block", range(4))
def test_everything_derived_equals_the_oracle(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        check(f"decision {seed}", decision=True)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_everything_derived_equals_the_oracle_on_thousands_more(block: int) -> None:
    for seed in range(1_000 + 100 * block, 1_100 + 100 * block):
        check(f"decision {seed}", decision=True)
