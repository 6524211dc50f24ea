"""Bounds inside the boxes that a limit leaves open (docs/engine.md, Theorem 10): they hold, they help, nothing counts twice."""

from __future__ import annotations

import random
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxqte import Fairness, Space, _core, quantify
from boxqte.engines.box import driver
from boxqte.engines.box.engine import Box
from boxqte.engines.box.exchange_worker import ExchangeWorker, box_masses, inside_rounding_bound
from boxqte.engines.box.inside import LEVELS
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import compile_problem
from boxqte.engines.protocol import Companions, Decided, Limits, Outcome, Status, Watch
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from boxqte.space.attributes import Attribute
from tests.engines.test_box import random_trees
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


@pytest.mark.parametrize("seed", range(40))
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
            one = Companions(roots=lambda _, i=i: boxes[i : i + 1])  # type: ignore[misc]
            exact = Box().run(grid, Limits(), Watch(Limits()), one)
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


@pytest.mark.parametrize("seed", range(60))
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
    assert len(open_) > 20
    assert sum(tighter) > len(open_) / 2
    assert all(with_bounds[i].outside == without[i].decided for i in open_)


# --- how a run ends ---------------------------------------------------------------------------------------------------


def hard_grid(kappa: float = 0.5) -> Grid:
    """Trees over nine attributes that would take hours without any counting."""
    space = Space([Attribute(f"a{i}", "integer", low=0, high=9) for i in range(9)])
    rng = np.random.default_rng(0)
    ensemble = random_trees(rng, 9, 9, 60, 4, lambda n: rng.integers(-(2**20), 2**20, n) / 2**18)
    return build_grid(ensemble, space, Fairness("a0", kappa=kappa))


@pytest.mark.parametrize("kappa", [0.5, 0.8])
@pytest.mark.parametrize("workers", [1, 2])
def test_time_is_kept_for_bounds_and_the_limit_holds(workers: int, kappa: float) -> None:
    grid = hard_grid(kappa)
    started = time.perf_counter()
    found = run(grid, workers=workers, time_limit=1.0)
    assert time.perf_counter() - started < 4.0  # on a machine that does other things too
    assert found.status is Status.TIME
    assert found.details["enclosed_boxes"] > 0
    assert found.outside is not None
    for kind in KINDS[: 2 if kappa == 0.5 else 3]:
        assert getattr(found.decided, kind) >= getattr(found.outside, kind)
    assert found.decided.undecided < found.outside.undecided


def test_the_trace_ends_with_the_bounds() -> None:
    limits = Limits(node_limit=200)
    watch = Watch(limits)
    found = Box(BoxOptions(**NOTHING_FINISHES)).run(hard_grid(), limits, watch)
    ends = found.decided.measure()
    assert ends is not None
    assert watch.trace[-1][1:] == pytest.approx([float(end) for end in ends])
    assert [found.decided, found.details] == [(again := run(hard_grid(), node_limit=200)).decided, again.details]


def test_a_gap_that_the_bounds_reach_is_the_reason() -> None:
    reached = run(hard_grid(), node_limit=400)
    gap = float(reached.decided.undecided) * 1.01
    assert reached.status is Status.NODES
    found = run(hard_grid(), node_limit=400, gap=gap)
    assert found.status is Status.GAP


def test_an_interrupt_still_asks_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(_: Any) -> None:
        raise KeyboardInterrupt

    found = run(hard_grid(), watch=Watch(Limits(), press))
    assert found.status is Status.INTERRUPTED
    assert found.details["enclosed_boxes"] > 0


def test_an_error_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(ExchangeWorker, "enclose", broken)
    with pytest.raises(RuntimeError, match="broken"):
        run(hard_grid(), node_limit=50)


# --- nothing counts twice ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_resumed_run_counts_nothing_twice(seed: int, tmp_path: Path) -> None:
    problem = larger(seed)
    exact = naive_quantify(*problem)
    state = tmp_path / "run.state"
    before = Decided()
    for nodes in (2, 4, 8, None):
        found = quantify(*problem, engine="box", options=NOTHING_FINISHES, checkpoint=state, node_limit=nodes)
        holds(found.decided, exact)
        for kind in KINDS:  # nothing that was proved is taken back
            assert getattr(found.decided, kind) >= getattr(before, kind) - 1e-15
        before = found.decided
    assert found.converged
    assert float(found.decided.unfair) == pytest.approx(float(exact.counterexample), abs=1e-12)


def test_draws_are_added_to_what_is_proved_outside_the_boxes() -> None:
    for seed in range(6):
        problem = larger(seed)
        exact = naive_quantify(*problem)
        found = quantify(*problem, engine="auto", options=NOTHING_FINISHES, time_limit=0.4)
        holds(found.decided, exact)
        if found.statistical is not None and exact.measure is not None:
            assert found.statistical.lower <= exact.measure <= found.statistical.upper


def test_a_certificate_claims_only_what_it_records(tmp_path: Path) -> None:
    problem = larger(3)
    found = quantify(*problem, engine="box", options=NOTHING_FINISHES, certificate=tmp_path / "c.gz", node_limit=3)
    assert found.details["enclosed_boxes"] == 0
    assert found.details["open_boxes"] > 0
