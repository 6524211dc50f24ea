"""The worker for epsilon = 0 by itself: its sums against exact ones, and how soon it comes back when it is told to."""

from __future__ import annotations

import random
import threading
import time
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import pytest

from boxqte import EnsembleBuilder, Fairness, Space
from boxqte.engines.box.exchange_worker import ExchangeWorker, box_masses, root_boxes, rounding_bound
from boxqte.engines.box.problem import Problem, compile_problem
from boxqte.engines.protocol import Reply
from boxqte.models.ensemble import Test as NodeTest
from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.building import build_grid
from boxqte.space.attributes import Attribute
from tests.naive import naive_quantify
from tests.strategies import random_problem

SIDE = 55  # here a plain sum drifts by nearly twice the bound


def worker_of(problem: Problem, finish_limit: int) -> ExchangeWorker:
    return ExchangeWorker(problem, finish_limit=finish_limit, depth_first_below=1e9, call_work=10**12, batch=8)


def work(worker: ExchangeWorker) -> Reply:
    roots = root_boxes(worker.problem)
    return worker.work(roots, box_masses(worker.problem, roots), 10**9, True)


def add_stairs(builder: EnsembleBuilder, feature: int, values: list[float]) -> None:
    """A tree that gives each of the integers 0, 1, ... its value."""
    last = len(values) - 1
    builder.add_tree(
        feature=[feature] * (2 * last + 1), test=[int(NodeTest.AT_MOST_F64)] * last + [0] * (last + 1),
        threshold=[*(k + 0.5 for k in range(last)), *[0.0] * (last + 1)], left=[*range(last, 2 * last), *[-1] * (last + 1)],
        right=[*range(1, last), 2 * last, *[-1] * (last + 1)], value=[0.0] * last + values,
    )  # fmt: skip


def add_and(builder: EnsembleBuilder, one: int, other: int, value: float) -> None:
    """A tree that ties two attributes together: a value where both lie above the middle."""
    builder.add_tree(
        feature=[one, 0, other, 0, 0], test=[int(NodeTest.AT_MOST_F64), 0, int(NodeTest.AT_MOST_F64), 0, 0],
        threshold=[SIDE // 2 + 0.5, 0, SIDE // 2 + 0.5, 0, 0], left=[1, -1, 3, -1, -1], right=[2, -1, 4, -1, -1],
        value=[0, 0, 0, 0, value],
    )  # fmt: skip


def tied_stairs(sensitive: list[float], blocks: int, side: int) -> tuple[TreeEnsemble, Space]:
    """A sensitive attribute, and blocks of three attributes that are tied together; most sums have very many cells."""
    builder = EnsembleBuilder()
    add_stairs(builder, 0, sensitive)
    for first in range(1, 3 * blocks, 3):
        for feature in range(first, first + 3):
            add_stairs(builder, feature, [float(k % 2) for k in range(side)])
        add_and(builder, first, first + 1, 1.0)
        add_and(builder, first + 1, first + 2, 1.0)
    names = [f"a{i}" for i in range(3 * blocks + 1)]
    model = builder.build(library="test", feature_names=names, base=(0.0,), link="sigmoid")
    highs = [len(sensitive) - 1, *[side - 1] * (3 * blocks)]
    return model, Space([Attribute.integer(name, 0, high) for name, high in zip(names, highs)])


@cache
def block_counts() -> dict[int, int]:
    """How many of the cells of one block of `tied_stairs` have each sum."""
    counts: dict[int, int] = {}
    for x, y, z in product(range(SIDE), repeat=3):
        upper = [v > SIDE // 2 for v in (x, y, z)]
        value = x % 2 + y % 2 + z % 2 + (upper[0] and upper[1]) + (upper[1] and upper[2])
        counts[value] = counts.get(value, 0) + 1
    return counts


# --- rounding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [0.5, 0.7])
@pytest.mark.parametrize("blocks", [1, 2])
def test_merging_ten_thousands_of_equal_values_stays_within_the_rounding_bound(kappa: float, blocks: int) -> None:
    """A plain sum of that many equal masses drifts further than the bound allows; all is counted at once here."""
    at = 5 if blocks == 2 else 2
    model, space = tied_stairs([-at - 0.5, -at + 0.5], blocks, SIDE)
    problem = compile_problem(build_grid(model, space, Fairness("a0", 0, kappa)))
    reply = work(worker_of(problem, 10**6))
    assert (reply.nodes, reply.finished) == (1, 1)
    counts = block_counts()
    total: dict[int, Fraction] = {0: Fraction(1)}
    for _ in range(blocks):
        summed: dict[int, Fraction] = {}
        for (value, mass), (other, n) in product(total.items(), counts.items()):
            summed[value + other] = summed.get(value + other, Fraction(0)) + mass * n / SIDE**3
        total = summed
    unfair = low = Fraction(0)
    for value, mass in total.items():
        margins = [value - at - 0.5, value - at + 0.5]
        for margin in margins:
            if kappa == 0.7 and abs(margin) < 0.84:  # the margin of confidence .7 is ln(7 / 3) = .847
                low += mass / 2
            elif margins[0] < 0 < margins[1]:
                unfair += mass / 2
    bound = rounding_bound(problem, 2)
    assert abs(Fraction(reply.unfair) - unfair) <= bound
    assert abs(Fraction(reply.low) - low) <= bound
    assert abs(Fraction(reply.fair) - (1 - unfair - low)) <= 3 * bound


@pytest.mark.parametrize("seed", range(25))
def test_sums_are_within_the_rounding_bound_of_the_oracle(seed: int) -> None:
    asked = random_problem(random.Random(f"rounding {seed}"), eps=False, robustness=False)
    problem = compile_problem(build_grid(*asked))
    exact = naive_quantify(*asked)
    bound = rounding_bound(problem, len(problem.combinations[1]))
    for finish_limit in (5, 8000):
        reply = work(worker_of(problem, finish_limit))
        assert abs(Fraction(reply.unfair) - exact.counterexample) <= bound
        assert abs(Fraction(reply.low) - (1 - exact.confident)) <= bound
        assert abs(Fraction(reply.fair) - (exact.confident - exact.counterexample)) <= 3 * bound


@pytest.mark.parametrize("kappa", [0.5, 0.7])
def test_the_rounding_bound_counts_what_theorem_5_counts(kappa: float) -> None:
    model, space = tied_stairs([0.0, 1.0, 2.0], 2, 5)
    problem = compile_problem(build_grid(model, space, Fairness("a0", 0, kappa)))
    cells, axes, classes = 3 + 6 * 5, 7, 3
    roundings = cells + 2 * axes + 6 * axes + (0 if kappa == 0.5 else 2 * classes + 2) + 3 * 64  # 6 for merging
    assert rounding_bound(problem, classes) >= Fraction(101, 100) * roundings / 2**53


# --- halting ----------------------------------------------------------------------------------------------------------


def test_a_long_count_is_halted_at_once() -> None:
    """One count of about 150 ms: two lists of 330,000 sums for 20 combinations."""
    model, space = tied_stairs([k / 20 - 3 for k in range(20)], 2, 69)
    worker = worker_of(compile_problem(build_grid(model, space, Fairness("a0", 0, 0.7))), 10**7)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append((work(worker), time.process_time())))
    begun = time.process_time()
    thread.start()
    while time.process_time() < begun + 0.03:
        time.sleep(0.001)
    told = time.process_time()
    worker.halt()
    thread.join()
    reply, back = found[0]
    assert back - told < 0.05  # seconds of this process, so that other processes do not matter
    assert (reply.nodes, reply.finished) == (1, 0)
    assert reply.masses.tolist() == [pytest.approx(1.0)]
    assert (reply.fair, reply.unfair, reply.low) == (0.0, 0.0, 0.0)
