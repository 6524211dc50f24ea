"""Pairs of the questions with partners: every one satisfies the definition, in plain loops, and they are drawn by mass."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from boxqte import quantify
from boxqte.errors import EngineError
from boxqte.questions.properties import Property
from boxqte.space.attributes import Attribute
from tests.answers.test_samples import p_value, points
from tests.engines.test_point import wide_leaves
from tests.naive import Oracle, Point
from tests.naive_questions import exchanged, fine_pieces, is_witness, naive_measure, products_of_fine_pieces
from tests.questions.test_partners import asked
from tests.strategies import Problem, random_problem


def is_pair(oracle: Oracle, x: Point, other: Point) -> bool:
    """The definition, word by word."""
    rest = [a.name for a in oracle.space.attributes if a.name not in oracle.property.sensitive]
    same_rest = all(x[name] == other[name] for name in rest)
    return same_rest and x != other and oracle.is_confident(x) and is_witness(oracle, x, other)


def check_pairs(problem: Problem, prop: Property, seed: int, n: int, **options: Any) -> bool:
    result = quantify(problem.ensemble, problem.space, prop, engine="box", workers=1, options=options)
    if not naive_measure(problem.ensemble, problem.space, prop).counterexample:
        with pytest.raises(EngineError, match="no counterexample"):
            result.sample(10)
        return False
    oracle = Oracle(problem.ensemble, problem.space, prop)
    for one, two in zip(*points(result, n, seed)):
        assert is_pair(oracle, one, two) or lies_between_floats(oracle, one, two), (prop, one, two)
    return True


def lies_between_floats(oracle: Oracle, x: Point, shown: Point) -> bool:
    """Whether x is a counterexample, but no x' that floats can write makes it one."""
    if not oracle.is_confident(x) or not any(is_witness(oracle, x, other) for other in exchanged(oracle, x)):
        return False
    reals = [a for a in oracle.sensitive if a.kind == "real"]
    near = [x | {a.name: neighbour} for a in reals for neighbour in floats_around(oracle, a, x[a.name])]
    assert len(reals) == 1, "with several, look at all combinations"
    return not any(is_pair(oracle, x, other) for other in near)


def floats_around(oracle: Oracle, attribute: Attribute, own: Fraction) -> Iterator[Fraction]:
    """Floats of every piece of the attribute that has any, and where a bounded change ends: there, and next to it."""
    pieces = fine_pieces(oracle, attribute)
    ends = {end for piece in pieces for end in (piece.low, piece.high, piece.value) if end is not None}
    ends |= {own + sign * bound for _, bound in oracle.property.max_change for sign in (-1, 1)}
    for end in ends:
        for value in (math.nextafter(float(end), -math.inf), float(end), math.nextafter(float(end), math.inf)):
            if attribute.low <= Fraction(value) <= attribute.high:
                yield Fraction(value)


def check_uniform(problem: Problem, prop: Property, seed: int, **options: Any) -> bool:
    """Chi-squared against the exact masses of all inputs of a finite space."""
    result = quantify(problem.ensemble, problem.space, prop, engine="box", workers=1, options=options)
    oracle = Oracle(problem.ensemble, problem.space, prop)
    mass: dict[tuple[Any, ...], float] = {}
    for pieces in products_of_fine_pieces(oracle):
        x = oracle.representative(pieces)
        if oracle.is_confident(x) and any(is_witness(oracle, x, other) for other in exchanged(oracle, x)):
            mass[tuple(x.values())] = float(oracle.mass(pieces))
    mass = {x: m for x, m in mass.items() if m}
    n = 3000
    if len(mass) < 2 or min(mass.values()) * n < 5 * sum(mass.values()):
        return False
    number = {x: i for i, x in enumerate(mass)}
    seen = np.zeros(len(mass))
    for point in points(result, n, seed)[0]:
        seen[number[tuple(point[a.name] for a in problem.space.attributes)]] += 1
    expected = np.array(list(mass.values())) / sum(mass.values()) * n
    statistic = float(((seen - expected) ** 2 / expected).sum())
    assert p_value(statistic, len(expected) - 1) > 1e-5, (prop, statistic, len(expected))
    return True


def check_many(seeds: range, options: dict[str, Any]) -> int:
    found = 0
    for seed in seeds:
        problem = random_problem(random.Random(seed), eps=False, max_pieces=150)
        found += sum(check_pairs(problem, prop, seed, 20, **options) for prop in asked(problem, seed))
    return found


@pytest.mark.parametrize("options", [{}, {"finish_limit": 5}])
def test_pairs_satisfy_the_definition(options: dict[str, Any]) -> None:
    assert check_many(range(30) if options else range(30, 60), options) > 25


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_pairs_satisfy_the_definition(block: int) -> None:
    assert check_many(range(100 * block, 100 * block + 100), ({}, {"finish_limit": 5})[block % 2]) > 80


@pytest.mark.parametrize("options", [{}, {"finish_limit": 5}])
def test_draws_from_finite_spaces_are_by_mass(options: dict[str, Any]) -> None:
    done = 0
    for seed in range(8):
        problem = random_problem(random.Random(seed), eps=False, real=False, max_pieces=60)
        done += sum(check_uniform(problem, prop, seed, **options) for prop in asked(problem, seed))
    assert done > 6


def test_pairs_whose_margins_are_beyond_64_bits_satisfy_the_definition() -> None:
    found = 0
    for seed in range(8):
        problem = wide_leaves(random_problem(random.Random(seed), eps=False, max_pieces=60), seed)
        found += sum(check_pairs(problem, prop, seed, 10) for prop in asked(problem, seed))
    assert found > 5
