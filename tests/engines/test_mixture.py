"""Mixtures of products: every engine against the oracle."""

from __future__ import annotations

import random
from typing import Any

import pytest

from boxqte import quantify
from boxqte.engines.protocol import Status
from boxqte.space.space import Space
from tests.naive_mixture import naive_mixture
from tests.random_mixtures import random_mixture
from tests.strategies import Problem


def compare(problem: Problem, engine: str, **options: Any) -> None:
    """The answer holds the oracle's, and is it once it has converged."""
    expected = naive_mixture(*problem)
    result = quantify(*problem, engine=engine, workers=1, **options)
    confident, unfair = result.confident, result.counterexample
    assert confident.lower <= expected.confident <= confident.upper
    assert unfair.lower <= expected.counterexample <= unfair.upper
    if expected.measure is None:
        assert result.undefined
        return
    assert result.lower is not None
    assert result.upper is not None
    assert result.lower <= expected.measure <= result.upper
    assert all(low <= expected.measure <= high for _, low, high in result.trace)
    if engine == "exhaustive":
        assert result.exact == expected.measure
    elif result.status is Status.CONVERGED:
        assert unfair.gap < 1e-10


@pytest.mark.parametrize("part", range(5))
def test_exhaustive_equals_the_oracle(part: int) -> None:
    for seed in range(30 * part, 30 * part + 30):
        compare(random_mixture(random.Random(seed), max_pieces=200, max_pairs=10_000), "exhaustive")


@pytest.mark.parametrize("part", range(5))
def test_box_equals_the_oracle(part: int) -> None:
    for seed in range(30 * part, 30 * part + 30):
        compare(random_mixture(random.Random(seed), max_pieces=200, max_pairs=10_000), "box")


@pytest.mark.parametrize("engine", ["cegar", "smt"])
def test_the_other_certain_engines_hold_the_oracle(engine: str) -> None:
    for seed in range(10):
        compare(random_mixture(random.Random(seed), max_pieces=60, max_pairs=2_000), engine, time_limit=20)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_box_and_exhaustive_equal_the_oracle_on_a_thousand(part: int) -> None:
    for seed in range(1_000 + 100 * part, 1_100 + 100 * part):
        problem = random_mixture(random.Random(seed))
        compare(problem, "exhaustive")
        compare(problem, "box")
        compare(problem, "box", node_limit=40)


def test_a_run_with_few_nodes_holds_the_oracle() -> None:
    for seed in range(60):
        compare(random_mixture(random.Random(seed), max_pieces=200, max_pairs=10_000), "box", node_limit=seed % 20 + 1)


@pytest.mark.parametrize("engine", ["sample", "auto"])
def test_intervals_from_draws_hold_the_oracle(engine: str) -> None:
    limit = {"time_limit": 0.3} if engine == "auto" else {"options": {"points": 20_000}}
    for seed in range(12):
        problem = random_mixture(random.Random(seed), max_pieces=200, max_pairs=10_000)
        expected = naive_mixture(*problem)
        result = quantify(*problem, engine=engine, workers=1, **limit)
        if result.statistical is not None and expected.measure is not None:
            assert result.statistical.lower <= expected.measure <= result.statistical.upper


def test_equal_components_give_the_products_answer_to_the_last_bit() -> None:
    for seed in range(40):
        ensemble, space, prop = random_mixture(random.Random(seed), 1, max_pieces=200, max_pairs=10_000)
        twice = Space(space.attributes).with_components([space.as_component("1/3"), space.as_component("2/3")])
        for engine in ("box", "exhaustive"):
            one, two = (quantify(ensemble, s, prop, engine=engine, workers=1) for s in (space, twice))
            assert (one.decided, one.bounds) == (two.decided, two.bounds)
