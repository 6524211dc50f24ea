"""Bounds inside the boxes that a limit leaves open (docs/engine.md, Theorem 10): they hold, they help, nothing counts twice."""

from __future__ import annotations

import random
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxqte import _core, quantify
from boxqte.engines import Limits, Outcome, Watch
from boxqte.engines.box import driver
from boxqte.engines.box.engine import Box, BoxOptions
from boxqte.engines.box.exchange_worker import box_masses, inside_rounding_bound
from boxqte.engines.box.inside import LEVELS
from boxqte.engines.box.problem import compile_problem
from boxqte.grid import Grid, build_grid
from boxqte.result import Decided, Status
from tests.naive import NaiveAnswer, naive_quantify
from tests.strategies import Problem, random_problem

KINDS = ("fair", "unfair", "low")
NOTHING_FINISHES: dict[str, Any] = {"finish_limit": 5, "depth_first_below": 0.0, "batch": 1, "call_nodes": 1}


def larger(seed: object) -> Problem:
    rng = random.Random(f"inside {seed}")
    return random_problem(
        rng, eps=False, max_attributes=5, max_values=7, max_thresholds=5, max_trees=12, max_depth=4, max_pieces=5_000,
        max_pairs=10**9,
    )  # fmt: skip


def run(grid: Grid, *, workers: int = 1, watch: Watch | None = None, **limits: Any) -> Outcome:
    found = Limits(workers=workers, **limits)
    return Box(BoxOptions(**NOTHING_FINISHES)).run(grid, found, watch or Watch(found))


def without_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "enclosed", lambda *_: None)


def holds(decided: Decided, exact: NaiveAnswer) -> None:
    assert Fraction(decided.fair) <= exact.confident - exact.counterexample
    assert Fraction(decided.unfair) <= exact.counterexample
    assert Fraction(decided.low) <= 1 - exact.confident


# --- one box ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(120))
def test_each_box_holds_at_least_so_much(seed: int) -> None:
    grid = build_grid(*larger(seed))
    outcome = run(grid, node_limit=seed % 7 + 1)
    if outcome.open is None:
        return
    problem = compile_problem(grid)
    boxes = outcome.open.boxes(np.arange(min(len(outcome.open), 12)))
    encloser = _core.Encloser(problem.core, memory=1 << 24)
    for cells in (1, 4, 30, 500, LEVELS[-1].cells):
        found = encloser.enclose(boxes, cells)
        for i, masses in enumerate(found.tolist()):
            engine = Box()
            engine.roots = lambda _, i=i: boxes[i : i + 1]  # type: ignore[misc]
            exact = engine.run(grid, Limits(), Watch(Limits()))
            assert exact.status is Status.CONVERGED
            for kind, mass in zip(KINDS, masses):
                assert mass <= float(getattr(exact.decided, kind)) + 1e-13, (kind, cells)
            assert min(masses) >= 0


def test_large_grids_leave_nothing_open_where_two_halves_are_enough() -> None:
    # Every tree tests one attribute: any two halves are exact, but for the width of a bucket.
    left = []
    for seed in range(40):
        rng = random.Random(f"stumps {seed}")
        grid = build_grid(*random_problem(rng, eps=False, max_depth=1, max_trees=12, max_pieces=5_000, max_pairs=10**9))
        problem = compile_problem(grid)
        outcome = run(grid, node_limit=1)
        if outcome.open is None:
            continue
        boxes = outcome.open.boxes(np.arange(len(outcome.open)))
        found = _core.Encloser(problem.core, memory=1 << 24).enclose(boxes, LEVELS[-1].cells)
        left.append(1 - found.sum() / box_masses(problem, boxes).sum())
    assert len(left) > 5
    assert np.median(left) < 0.01


def test_masses_far_below_rounding_are_never_proved() -> None:
    grid = build_grid(*larger(1))
    problem = compile_problem(grid)
    assert 1e-13 < inside_rounding_bound(problem, 2) < 1e-9


def test_boxes_of_another_problem_are_refused() -> None:
    problem = compile_problem(build_grid(*larger(1)))
    with pytest.raises(ValueError, match="boxes"):
        _core.Encloser(problem.core, memory=1 << 24).enclose(np.zeros((1, 99, 1), np.uint64), 100)


# --- whole runs against the oracle ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(150))
def test_bounds_hold_against_the_oracle(seed: int) -> None:
    problem = random_problem(random.Random(f"oracle {seed}"), eps=False)
    exact = naive_quantify(*problem)
    for limits in ({"node_limit": 1}, {"node_limit": seed % 13 + 1}, {"time_limit": 1e-9}, {"memory_limit": 1}):
        holds(run(build_grid(*problem), workers=1 + seed % 2, **limits).decided, exact)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_bounds_hold_against_the_oracle_on_many_problems(seed: int) -> None:
    rng = random.Random(f"many {seed}")
    for _ in range(100):
        problem = random_problem(rng, eps=False)
        holds(run(build_grid(*problem), node_limit=rng.randint(1, 9)).decided, naive_quantify(*problem))


def test_they_are_often_tighter_than_open_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    grids = [build_grid(*larger(seed)) for seed in range(60)]
    with_bounds = [run(grid, node_limit=3) for grid in grids]
    without_bounds(monkeypatch)
    without = [run(grid, node_limit=3) for grid in grids]
    open_ = [i for i, outcome in enumerate(without) if outcome.open is not None]
    tighter = [with_bounds[i].decided.undecided < without[i].decided.undecided for i in open_]
    assert len(open_) > 30
    assert sum(tighter) > len(open_) / 2
    assert all(with_bounds[i].outside == without[i].decided for i in open_)


def hard_grid() -> Grid:
    """A problem that takes long if nothing is counted."""
    rng = random.Random("hard")
    return build_grid(
        *random_problem(
            rng, eps=False, max_attributes=8, max_values=9, max_thresholds=8, max_trees=40, max_depth=5,
            max_pieces=10**9, max_pairs=10**18,
        )  # fmt: skip
    )
