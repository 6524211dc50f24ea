"""The point decider against the oracle: every combination of cells of small problems, with its witnesses."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from boxqte.engines.exhaustive import dense_margins, verdicts
from boxqte.engines.kinds import FAIR, LOW, UNFAIR, UNKNOWN
from boxqte.engines.point import PointDecider
from boxqte.engines.point.exact import counterexample, exact_margin
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from tests.naive import naive_quantify
from tests.strategies import Problem, random_problem


def all_points(grid: Grid) -> np.ndarray:
    return np.array(list(itertools.product(*(range(len(a.refined)) for a in grid.axes))), np.int64)


def masses(grid: Grid, points: np.ndarray, kinds: np.ndarray, kind: int) -> Fraction:
    total = Fraction(0)
    for row in points[kinds == kind].tolist():
        mass = Fraction(1)
        for axis, cell in zip(grid.axes, row):
            mass *= axis.refined_masses[cell]
        total += mass
    return total


def assert_witness(grid: Grid, cells: list[int], witness: list[int]) -> None:
    """x' has the other class, is near, and differs in a sensitive attribute."""
    t = grid.thresholds
    own = [int(axis.base[c]) for axis, c in zip(grid.axes, cells)]
    F, other = exact_margin(grid, own), exact_margin(grid, witness)
    assert t.neg >= other if t.conf_pos <= F else t.pos <= other
    for axis, c, w in zip(grid.axes, cells, witness):
        assert axis.near_lo[c] <= w <= axis.near_hi[c]
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    if sensitive:
        assert any(own[a] != witness[a] or not grid.axes[a].single[own[a]] for a in sensitive)


def check(problem: Problem, dense_limit: int) -> None:
    grid = build_grid(*problem)
    points = all_points(grid)
    found = PointDecider(grid, dense_limit=dense_limit).decide(points)
    answer = naive_quantify(*problem)
    assert masses(grid, points, found.verdict, UNFAIR) == answer.counterexample
    assert 1 - masses(grid, points, found.verdict, LOW) == answer.confident
    # Cells of mass 0 count for nothing in the oracle's sums; the exhaustive engine has a verdict on them as well.
    confident, unfair = (bits.reshape(-1) for bits in verdicts(grid, dense_margins(grid)))
    expected = np.where(~confident, LOW, np.where(unfair, UNFAIR, FAIR))
    assert np.array_equal(found.verdict, expected)
    for i in np.flatnonzero(found.verdict == UNFAIR).tolist():
        assert_witness(grid, points[i].tolist(), found.witness[i].tolist())
    assert (found.witness[found.verdict != UNFAIR] == -1).all()


@pytest.mark.parametrize("dense_limit", [1, 6, 4096])
def test_all_points_of_random_problems_are_decided_as_the_oracle_says(dense_limit: int) -> None:
    for seed in range(150):
        check(random_problem(random.Random(seed), max_pieces=300, max_pairs=20_000), dense_limit)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_all_points_of_many_random_problems_are_decided_as_the_oracle_says(block: int) -> None:
    for seed in range(1000 * block, 1000 * block + 1000):
        check(random_problem(random.Random(seed)), (1, 6, 4096)[seed % 3])


def test_the_search_goes_deep_on_larger_windows() -> None:
    for seed in range(12):
        problem = random_problem(
            random.Random(seed), max_attributes=6, max_trees=14, max_depth=4, max_thresholds=6, max_values=9,
            max_pieces=40_000, max_pairs=10**9,
        )  # fmt: skip
        grid = build_grid(*problem)
        if grid.n_refined() > 60_000:
            continue
        points = all_points(grid)
        confident, unfair = (bits.reshape(-1) for bits in verdicts(grid, dense_margins(grid)))
        expected = np.where(~confident, LOW, np.where(unfair, UNFAIR, FAIR))
        for limit in (1, 40):
            assert np.array_equal(PointDecider(grid, dense_limit=limit).decide(points, workers=2).verdict, expected)


def wide_leaves(problem: Problem, seed: int) -> Problem:
    """The same problem with leaf values that 64 bits cannot hold: thirds, half of the trees 2**40 times smaller."""
    model = problem[0]
    small = np.random.default_rng(seed).random(model.n_trees) < 0.5
    scale = np.where(small, 2.0**-40, 1.0) / 3
    value = model.value * scale[model.tree_of_node()][:, None]
    return Problem(dataclasses.replace(model, value=value), problem[1], problem[2])


def test_leaf_values_beyond_64_bits_are_decided_exactly() -> None:
    rounded = 0
    for seed in range(60):
        problem = wide_leaves(random_problem(random.Random(seed), max_pieces=150, max_pairs=5_000), seed)
        rounded += PointDecider(build_grid(*problem)).problem.fuzz > 0
        check(problem, (1, 4096)[seed % 2])
    assert rounded > 10


def integers_decide_alike(grid: Grid, holds: Callable[[Grid, list[int], list[int]], None] = assert_witness) -> None:
    """Every point is decided by Python's integers as by the kernels; `holds` checks a witness."""
    points = all_points(grid)
    found = PointDecider(grid).decide(points)
    for row, verdict in zip(points.tolist(), found.verdict.tolist()):
        confident, witness = counterexample(grid, row)
        assert verdict == (LOW if not confident else FAIR if witness is None else UNFAIR)
        if witness is not None:
            holds(grid, row, witness)


def test_python_integers_decide_as_the_kernels_do() -> None:
    for seed in range(40):
        integers_decide_alike(build_grid(*random_problem(random.Random(seed), max_pieces=60, max_pairs=2_000)))


def test_a_budget_leaves_points_unknown_but_never_wrong() -> None:
    unknown = 0
    for seed in range(60):
        grid = build_grid(*random_problem(random.Random(seed), max_pieces=300))
        points = all_points(grid)
        full = PointDecider(grid, dense_limit=1).decide(points).verdict
        some = PointDecider(grid, dense_limit=1).decide(points, budget=1).verdict
        assert ((some == full) | (some == UNKNOWN)).all()
        unknown += int((some == UNKNOWN).sum())
    assert unknown > 0


def test_points_of_another_grid_are_refused() -> None:
    grid = build_grid(*random_problem(random.Random(0)))
    with pytest.raises(ValueError, match="expected shape"):
        PointDecider(grid).decide(np.zeros((3, len(grid.axes) + 1), int))
