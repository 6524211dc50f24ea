"""Points of the questions with partners: bounded changes, confident partners, monotonicity and scores, as the oracle has them."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from boxqte.engines.box.engine import Box
from boxqte.engines.exhaustive import dense_margins, verdicts
from boxqte.engines.kinds import FAIR, LOW, UNFAIR
from boxqte.engines.point import PointDecider
from boxqte.engines.point import trees as point_trees
from boxqte.engines.point.exact import exact_margin
from boxqte.engines.protocol import Limits, Watch
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from boxqte.questions.properties import Fairness, Monotonicity, Property, ScoreFairness
from tests.engines.test_point import all_points, integers_decide_alike, masses, wide_leaves
from tests.naive_questions import naive_measure
from tests.questions.test_partners import asked
from tests.strategies import Problem, random_problem


def questions(problem: Problem, seed: int) -> list[Property]:
    """Of every kind; also scores of confident inputs, which not every engine answers."""
    names = [a.name for a in problem.space.attributes]
    level = ScoreFairness(names[seed % len(names)], Fraction(1, 3), "margin", Fraction(3, 5))
    tolerant = Fairness(names[0], Fraction(1, 5), problem.property.kappa, partner_kappa=Fraction(2, 3))
    numeric = [a.name for a in problem.space.attributes if a.is_numeric]
    ties: list[Property] = [Monotonicity(name, "increasing", "score", tie="paper") for name in numeric[:1]]
    return [*asked(problem, seed), level, tolerant, *ties]


def assert_witness(grid: Grid, cells: list[int], witness: list[int]) -> None:
    """x' is one of those that x looks among, and has what x looks for."""
    own = [int(axis.base[c]) for axis, c in zip(grid.axes, cells)]
    F, other = exact_margin(grid, own), exact_margin(grid, witness)
    low, high = grid.targets(F)
    partners = grid.partners
    for axis, c, w in zip(grid.axes, cells, witness):
        assert axis.near_lo[c] <= w <= axis.near_hi[c]
    ways = []
    for hit, which in ((low is not None and other <= low, "low"), (high is not None and other >= high, "high")):
        if hit and partners is not None and partners.axis >= 0:
            first, last = getattr(partners, which)[cells[partners.axis]]
            hit = first <= witness[partners.axis] <= last
        ways.append(hit)
    assert any(ways)


def check(problem: Problem, prop: Property, *, oracle: bool = True, dense_limit: int = 4096) -> bool:
    """Whether some point was a counterexample."""
    grid = build_grid(problem.ensemble, problem.space, prop)
    points = all_points(grid)
    found = PointDecider(grid, dense_limit=dense_limit).decide(points)
    confident, unfair = (bits.reshape(-1) for bits in verdicts(grid, dense_margins(grid)))
    expected = np.where(~confident, LOW, np.where(unfair, UNFAIR, FAIR))
    assert np.array_equal(found.verdict, expected), prop
    if oracle and not grid.has_tolerance:
        wanted = naive_measure(problem.ensemble, problem.space, prop)
        assert masses(grid, points, found.verdict, UNFAIR) == wanted.counterexample, prop
        assert 1 - masses(grid, points, found.verdict, LOW) == wanted.confident, prop
    for i in np.flatnonzero(found.verdict == UNFAIR).tolist():
        assert_witness(grid, points[i].tolist(), found.witness[i].tolist())
    assert (found.witness[found.verdict != UNFAIR] == -1).all()
    return bool((found.verdict == UNFAIR).any())


def check_all(seeds: range) -> int:
    found = 0
    for seed in seeds:
        problem = random_problem(random.Random(seed), eps=False, max_pieces=120)
        found += sum(check(problem, prop) for prop in questions(problem, seed))
    return found


def test_all_points_of_random_problems_are_decided_as_the_oracle_says() -> None:
    assert check_all(range(60)) > 60


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_all_points_of_many_random_problems_are_decided_as_the_oracle_says(block: int) -> None:
    assert check_all(range(1000 + 100 * block, 1100 + 100 * block)) > 80


@pytest.mark.parametrize("dense_limit", [1, 4096])
def test_windows_that_are_searched_give_the_same_points(monkeypatch: pytest.MonkeyPatch, dense_limit: int) -> None:
    """Without room for the sums of all combinations, every point is searched for."""
    monkeypatch.setattr(point_trees, "MASK_BYTES", 0)
    for seed in range(14):
        problem = random_problem(random.Random(seed), eps=False, max_pieces=120)
        for prop in questions(problem, seed):
            check(problem, prop, oracle=False, dense_limit=dense_limit)


def test_margins_beyond_64_bits_are_decided_exactly() -> None:
    rounded = 0
    for seed in range(8):
        problem = wide_leaves(random_problem(random.Random(seed), eps=False, max_pieces=60), seed)
        for prop in questions(problem, seed):
            rounded += PointDecider(build_grid(problem.ensemble, problem.space, prop)).problem.fuzz > 0
            check(problem, prop)
    assert rounded > 10


def test_python_integers_decide_as_the_kernels_do() -> None:
    for seed in range(15):
        problem = random_problem(random.Random(seed), eps=False, max_pieces=40)
        for prop in questions(problem, seed):
            integers_decide_alike(build_grid(problem.ensemble, problem.space, prop), assert_witness)


@pytest.mark.parametrize("counted", [1, -1])
def test_only_the_class_that_counts_has_counterexamples(counted: int) -> None:
    some = 0
    for seed in range(40):
        problem = random_problem(random.Random(seed), max_pieces=100, max_pairs=5_000)
        grid = build_grid(*problem)
        grid = replace(grid, thresholds=replace(grid.thresholds, counted=counted))
        points = all_points(grid)
        found = PointDecider(grid).decide(points).verdict
        confident, unfair = (bits.reshape(-1) for bits in verdicts(grid, dense_margins(grid)))
        assert np.array_equal(found, np.where(~confident, LOW, np.where(unfair, UNFAIR, FAIR)))
        some += int(unfair.any())
    assert some > 5


def test_a_change_beyond_all_margins_is_nobodys() -> None:
    """Also where 64 bits do not hold it."""
    problem = random_problem(random.Random(5), eps=False, max_pieces=60)
    for problem in (problem, wide_leaves(problem, 5)):
        prop = ScoreFairness(problem.space.names, 10**30, "margin")
        assert not check(problem, prop)
        grid, limits = build_grid(problem.ensemble, problem.space, prop), Limits(workers=1)
        assert Box().run(grid, limits, Watch(limits)).decided.unfair == 0
