"""The engine cegar (CegarQuant): sound at every moment, exact when it converges, with any oracle."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from boxqte import EngineError, Fairness, Robustness
from boxqte.engines import make_engine
from boxqte.engines.cegar.engine import Cegar, CegarOptions, Refinement
from boxqte.engines.cegar.regions import Region, Regions
from boxqte.engines.exhaustive import Exhaustive, dense_margins, verdicts
from boxqte.engines.protocol import Decided, Limits, Outcome, Status, Watch
from boxqte.engines.smt.pool import ProcessPool
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from tests.engines.test_smt import assert_bounds, stripes
from tests.strategies import random_problem

ONE = Limits(workers=1)
REFINEMENTS: list[Refinement] = ["random", "node", "node+random"]


def exhaustive(grid: Grid) -> Decided:
    return Exhaustive().run(grid, ONE, Watch(ONE)).decided


def assert_sound(grid: Grid, refinement: Refinement, limits: Limits, seed: int = 0) -> Outcome:
    """Decided masses are lower bounds, equal to the true ones once converged; bounds hold and close in at any time."""
    expected, watch = exhaustive(grid), Watch(limits)
    outcome = Cegar(CegarOptions(refinement, seed)).run(grid, limits, watch)
    for kind in ("fair", "unfair", "low"):
        assert getattr(outcome.decided, kind) <= getattr(expected, kind)
    if outcome.status is Status.CONVERGED:
        assert outcome.decided == expected
    assert_bounds(watch, expected)
    return outcome


def agree_on(seeds: range, node_limit: int) -> set[tuple[Refinement, Status]]:
    seen = set()
    for seed in seeds:
        grid = build_grid(*random_problem(random.Random(seed)))
        for refinement in REFINEMENTS:
            outcome = assert_sound(grid, refinement, Limits(workers=1, node_limit=node_limit), seed)
            seen.add((refinement, outcome.status))
            if refinement == "node" and not grid.has_tolerance:
                assert outcome.status is not Status.EXHAUSTED  # every cell is decided
    return seen


def test_it_agrees_with_the_exhaustive_engine_on_random_problems() -> None:
    seen = agree_on(range(16), 120)
    assert {(refinement, Status.CONVERGED) for refinement in REFINEMENTS} <= seen


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_it_agrees_with_the_exhaustive_engine_on_many_random_problems(block: int) -> None:
    agree_on(range(4000 + 30 * block, 4030 + 30 * block), 600)


def test_node_refinement_alone_ends_early_where_epsilon_moves() -> None:
    # Cells of the trees are too coarse for epsilon: some of their inputs reach a neighbour, others do not.
    grid = build_grid(loan_ensemble(), loan_space(), Robustness({"income": 5}))
    outcome = assert_sound(grid, "node", ONE)
    assert outcome.status is Status.EXHAUSTED
    assert outcome.details["stuck_mass"] > 0
    assert outcome.decided.fair > 0


@pytest.mark.parametrize("refinement", ["node", "node+random"])
def test_kappa_gives_both_bounds(refinement: Refinement) -> None:
    grid = build_grid(loan_ensemble(), loan_space(), Fairness("race", 0, 0.7))
    outcome = assert_sound(grid, refinement, ONE)
    assert outcome.status is Status.CONVERGED
    assert outcome.decided.low > 0


def test_runs_with_the_same_seed_are_the_same() -> None:
    grid = stripes(2, kappa=0.7)
    limits = Limits(workers=1, node_limit=100)
    runs = [Cegar(CegarOptions("node", seed)).run(grid, limits, Watch(limits)) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0].decided != runs[2].decided


def test_two_processes_and_a_killed_one_give_the_answer_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = stripes(2)
    made: list[ProcessPool] = []
    begin = ProcessPool._begin

    def remembered(self: ProcessPool) -> None:
        made.append(self)
        begin(self)

    monkeypatch.setattr(ProcessPool, "_begin", remembered)
    timer = threading.Timer(0.9, lambda: [os.kill(pid, signal.SIGKILL) for pid in made[0].pids[:1]])
    timer.start()
    limits = Limits(workers=2)
    outcome = Cegar(CegarOptions("node")).run(grid, limits, Watch(limits))
    timer.cancel()
    assert outcome.status is Status.CONVERGED
    assert outcome.decided == exhaustive(grid)


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (Limits(workers=1, time_limit=0.3), Status.TIME),
        (Limits(workers=1, gap=0.9), Status.GAP),
        (Limits(workers=1, node_limit=5), Status.NODES),
        (Limits(workers=1, memory_limit=1000), Status.MEMORY),
    ],
)
def test_every_limit_ends_it_with_valid_bounds(limits: Limits, status: Status) -> None:
    grid = stripes(4, kappa=0.6, epsilon=0.1)
    assert assert_sound(grid, "node+random", limits).status is status


def test_a_refinement_that_does_not_exist_is_refused() -> None:
    with pytest.raises(EngineError, match="random, node, node\\+random"):
        make_engine("cegar", {"refinement": "magic"})


# --- the oracle is an interface ---


class TableOracle:
    """Another oracle: looks verdicts up in a table of all refined cells. No z3 in it."""

    def __init__(self, grid: Grid, seconds_left: Callable[[], float], room: float):
        self.grid, self.regions = grid, Regions(grid)
        self.confident_cells, self.unfair_cells = verdicts(grid, dense_margins(grid))

    def _cells(self, region: Region, verdict: np.ndarray) -> bool:
        met = []
        for dimension, part in zip(self.regions.dimensions, region):
            axis = dimension.axis
            if not axis.attribute.is_numeric:
                missing = len(axis.attribute.values)
                met.append([any(v in part.values for v in c.values) or (c.missing and missing in part.values)
                            for c in axis.refined])  # fmt: skip
            else:
                spans = dimension._spans(part)
                inside = [
                    c.low is not None and any(max(a, c.low) < min(b, c.high) for a, b in spans) for c in axis.refined
                ]
                gone = [c.missing and bool(part.mask >> (axis.n_cells - 1) & 1) for c in axis.refined]
                met.append([a or b for a, b in zip(inside, gone)])
        return bool(verdict[np.ix_(*met)].any())

    def counterexample(self, region: Region) -> bool:
        return self._cells(region, self.unfair_cells)

    def confident(self, region: Region) -> bool:
        return self._cells(region, self.confident_cells)

    def unsure(self, region: Region) -> bool:
        return self._cells(region, ~self.confident_cells)

    def alike(self, region: Region) -> bool:
        return False  # always safe: then there is no upper bound, as in the paper


def test_another_oracle_gives_the_same_lower_bound() -> None:
    for seed in range(20, 60):
        grid = build_grid(*random_problem(random.Random(seed)))
        if grid.has_tolerance:
            continue
        watch = Watch(ONE)
        outcome = Cegar(CegarOptions("node"), oracle=TableOracle).run(grid, ONE, watch)
        expected = exhaustive(grid)
        assert outcome.decided == Decided(expected.fair, Fraction(0), expected.low)
        assert (outcome.status is Status.EXHAUSTED) == (expected.unfair > 0)


# --- regions ---


def test_a_region_is_divided_without_loss() -> None:
    for seed in range(60):
        grid = build_grid(*random_problem(random.Random(seed)))
        regions, rng = Regions(grid), random.Random(seed)
        assert regions.mass(regions.whole()) == 1
        leaves: list[Region] = [regions.whole()]
        for _ in range(12):
            region = leaves.pop(rng.randrange(len(leaves)))
            if grid.cuts and rng.random() < 0.5:
                cut = rng.choice(grid.cuts)
                parts = regions.by_cells(region, cut.axis, cut.mask)
            else:
                parts = regions.halves(region, rng.randrange(len(grid.axes)))
            leaves += [region] if parts is None else list(parts)
        assert sum(map(regions.mass, leaves)) == 1
