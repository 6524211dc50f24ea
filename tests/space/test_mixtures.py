"""Fitting mixtures of products to cells: each step against plain loops, and what EM promises."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from boxqte.basics.budget import TimeBudget
from boxqte.space.binning import GRID, exact_shares
from boxqte.space.dependence import distances, grouped, largest
from boxqte.space.mixtures import EVEN, PULL, BlockedRows, Cells, Mixture, choose, fit_mixture

Rows = npt.NDArray[np.int64]


class Drawn(NamedTuple):
    codes: Rows
    even: list[npt.NDArray[np.float64]]


def drawn(seed: int, sizes: tuple[int, ...], n: int, hidden: int = 1, sharpness: float = 1.0) -> Drawn:
    """Rows from a random mixture of products with so many components."""
    rng = np.random.default_rng(seed)
    own = rng.integers(hidden, size=n)
    codes = []
    for size in sizes:
        masses = rng.dirichlet(np.full(size, 1 / sharpness), hidden)
        codes.append([rng.choice(size, p=masses[k]) for k in own])
    return Drawn(np.array(codes), [np.full(size, 1 / size) for size in sizes])


def random_mixture(seed: int, sizes: tuple[int, ...], k: int) -> Mixture:
    rng = np.random.default_rng(seed)
    return Mixture(rng.dirichlet(np.ones(k)), [rng.dirichlet(np.ones(size), k) for size in sizes])


def naive_step(data: Drawn, mixture: Mixture) -> tuple[list[float], list[list[list[float]]], float]:
    """One step of EM and the objective before it, row by row: weights, masses by attribute and component."""
    k, n = len(mixture.weights), data.codes.shape[1]
    shares = []
    for own, even in zip(data.codes.tolist(), data.even):
        shares.append([(own.count(v) + EVEN * e) / (n + EVEN) for v, e in enumerate(even)])
    members = [0.0] * k
    counts = [[[0.0] * len(share) for _ in range(k)] for share in shares]
    objective = 0.0
    for row in data.codes.T.tolist():
        joint = [
            mixture.weights[c] * math.prod(m[c][v] for m, v in zip(mixture.masses, row)) for c in range(k)
        ]  # fmt: skip
        objective += math.log(sum(joint))
        for c in range(k):
            part = joint[c] / sum(joint)
            members[c] += part
            for a, v in enumerate(row):
                counts[a][c][v] += part
    for share, masses in zip(shares, mixture.masses):
        pull = PULL * len(share)
        objective += pull * sum(s * math.log(masses[c][v]) for c in range(k) for v, s in enumerate(share))
    found = [
        [
            [(counts[a][c][v] + PULL * len(share) * s) / (members[c] + PULL * len(share)) for v, s in enumerate(share)]
            for c in range(k)
        ]
        for a, share in enumerate(shares)
    ]
    return [m / n for m in members], found, objective


@pytest.mark.parametrize("seed", range(8))
def test_a_step_is_what_plain_loops_compute(seed: int) -> None:
    sizes = ((2, 3, 5), (4,), (2,) * 13, (50, 60, 2, 3), (1, 2))[seed % 5]
    data = drawn(seed, sizes, 60)
    mixture = random_mixture(seed, sizes, 1 + seed % 4)
    found, objective = BlockedRows(Cells.of(*data)).improved(mixture)
    weights, masses, expected = naive_step(data, mixture)
    assert objective == pytest.approx(expected, rel=1e-12)
    assert found.weights == pytest.approx(weights, rel=1e-9)
    for own, other in zip(found.masses, masses):
        assert own == pytest.approx(np.array(other), rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_no_step_lowers_the_objective(seed: int) -> None:
    data = drawn(seed, (2, 3, 7, 12, 30), 400, hidden=3, sharpness=3)
    rows, mixture = BlockedRows(Cells.of(*data)), random_mixture(seed + 100, (2, 3, 7, 12, 30), 2 + seed)
    objectives = []
    for _ in range(40):
        mixture, objective = rows.improved(mixture)
        objectives.append(objective)
    assert all(after >= before - 1e-9 * abs(before) for before, after in itertools.pairwise(objectives))
    assert objectives[-1] > objectives[0] + 10


def test_a_known_mixture_is_recovered() -> None:
    rng = np.random.default_rng(5)
    first = rng.random(6000) < 0.3
    masses = np.array([[0.9, 0.05, 0.05], [0.1, 0.2, 0.7]])
    codes = np.stack(
        [np.where(first, rng.choice(3, 6000, p=masses[0]), rng.choice(3, 6000, p=masses[1])) for _ in range(5)]
    )
    found = fit_mixture(Cells.of(codes, [np.full(3, 1 / 3)] * 5), 2, 0)
    order = np.argsort(found.weights)
    assert found.weights[order] == pytest.approx([0.3, 0.7], abs=0.02)
    for own in found.masses:
        assert own[order] == pytest.approx(masses, abs=0.03)


def test_a_mass_too_small_for_a_float_is_no_zero() -> None:
    data = drawn(3, (40,) * 300, 50)
    rows = BlockedRows(Cells.of(*data))
    mixture, objective = rows.improved(random_mixture(3, (40,) * 300, 3))
    assert math.isfinite(objective)
    assert np.isfinite(rows.log_likelihoods(mixture)).all()
    assert rows.log_likelihoods(mixture).min() < math.log(5e-324)


def test_one_component_is_the_product_of_the_evened_shares() -> None:
    codes = np.array([[0, 0, 1], [2, 2, 2]])
    found = fit_mixture(Cells.of(codes, [np.array([0.5, 0.5]), np.array([0.25, 0.25, 0.5])]), 1, 7)
    assert found.masses[0].tolist() == [[2.5 / 4, 1.5 / 4]]
    assert found.masses[1].tolist() == [[0.25 / 4, 0.25 / 4, 3.5 / 4]]


def test_the_number_of_components_follows_the_rows() -> None:
    independent = drawn(1, (3, 4, 5), 1500)
    assert choose(*independent, None, 0).mixture.components == 1
    dependent = drawn(2, (3, 4, 5, 6, 4, 3), 3000, hidden=4, sharpness=8)
    found = choose(*dependent, None, 0)
    assert found.mixture.components >= 4
    assert found.held_out[4] > found.held_out[1] + 0.3
    assert found.rows == 3000, "of a small table every row is held out once"
    assert sorted(choose(*dependent, 3, 0).held_out) == [1, 3]


def test_a_fit_that_has_no_time_is_said_to_be_hurried() -> None:
    data = drawn(2, (3, 4, 5, 6), 2000, hidden=4, sharpness=8)
    found = choose(*data, None, 0, TimeBudget(1e-9))
    assert found.hurried
    assert not choose(*data, 2, 0).hurried


def test_exact_shares_are_near_and_never_0() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        shares = rng.dirichlet(np.full(rng.integers(1, 300), 10.0 ** rng.integers(-3, 2)))
        found = exact_shares(shares)
        assert sum(found) == GRID
        assert min(found) > 0
        assert np.abs(np.array(found) / GRID - shares).sum() <= 2 * len(shares) / GRID


def test_dependence_is_counted_pair_by_pair() -> None:
    a = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    b = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    cells = Cells.of(np.stack([a, b, np.tile([0, 1], 4)]), [np.array([0.5, 0.5])] * 3)
    grouping = grouped(cells, ["a", "b", "c"], [0, 0, 0])
    found = {pair.between: pair.distance for pair in distances(cells, grouping, None)}
    # a and b: 3, 1, 1, 3 of 8 rows where independent ones would be 2 each
    assert found == {("a", "b"): pytest.approx(0.25), ("a", "c"): pytest.approx(0), ("b", "c"): pytest.approx(0)}
    worst = largest(cells, grouping, None)
    assert worst is not None
    assert worst.between == ("a", "b")
    both = Mixture(np.array([0.5, 0.5]), [np.eye(2), np.array([[0.75, 0.25], [0.25, 0.75]]), np.full((2, 2), 0.5)])
    assert [pair.distance for pair in distances(cells, grouping, both)] == pytest.approx([0, 0, 0])


def test_cells_that_have_an_order_are_joined_to_few_groups() -> None:
    rng = np.random.default_rng(4)
    numbers = rng.integers(100, size=5000)
    cells = Cells.of(np.stack([numbers, rng.integers(3, size=5000)]), [np.full(101, 1 / 101), np.full(3, 1 / 3)])
    grouping = grouped(cells, ["number", "kind"], [100, 0])
    assert grouping.sizes == (11, 3)
    assert grouping.groups[0].tolist() == sorted(grouping.groups[0].tolist()), (
        "neighbours, and the missing value by itself"
    )
    pair = largest(cells, grouping, None)
    assert pair is not None
    assert pair.distance == pytest.approx(pair.chance, rel=0.5), "independent draws are off by chance alone"
