"""The box engine against the exhaustive one: the same masses, by another road."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from boxqte import EnsembleBuilder, Fairness, Robustness, Space
from boxqte.engines import make_engine
from boxqte.engines.box.driver import ExactSum, OpenBoxes
from boxqte.engines.box.problem import compile_problem
from boxqte.engines.protocol import Limits, Outcome, Progress, Status, Watch
from boxqte.errors import EngineError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import Test as NodeTest
from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from boxqte.space.attributes import Attribute
from tests.strategies import Problem, problems, random_problem

# Together these send the search through every road: nothing fits in one finish, every call runs out of its budget,
# every box goes back to the queue, the arena fills again and again.
ODD_OPTIONS: list[dict[str, Any]] = [
    {},
    {"finish_limit": 8},
    {"finish_limit": 8, "depth_first_below": 0.0, "batch": 1},
    {"finish_limit": 8, "call_nodes": 1},
    {"finish_limit": 16, "call_work": 1, "batch": 3},
    {"finish_limit": 8},
    {"finish_limit": 40, "depth_first_below": 100.0, "call_nodes": 3},
]


def run(
    grid: Grid,
    *,
    workers: int = 1,
    engine: str = "box",
    progress: Any = None,
    watch: Watch | None = None,
    **options: Any,
) -> Outcome:
    names = {"time_limit", "gap", "node_limit", "memory_limit"}
    limits = Limits(workers=workers, **{k: v for k, v in options.items() if k in names})
    solver = make_engine(engine, {k: v for k, v in options.items() if k not in names})
    if watch is not None:
        watch.limits = limits
    return solver.run(grid, limits, watch or Watch(limits, progress))


def masses(outcome: Outcome) -> tuple[float, float, float]:
    d = outcome.decided
    return float(d.fair), float(d.unfair), float(d.low)


def agree(grid: Grid, **options: Any) -> Outcome:
    """The box engine must converge to the exhaustive engine's masses, from below."""
    exact = run(grid, engine="exhaustive")
    found = run(grid, **options)
    assert found.status is Status.CONVERGED
    assert masses(found) == pytest.approx(masses(exact), abs=1e-12)
    for kind in ("fair", "unfair", "low"):
        assert Fraction(getattr(found.decided, kind)) <= getattr(exact.decided, kind), kind
    assert found.decided.undecided < 1e-12
    return found


def grid_of(problem: Problem) -> Grid:
    return build_grid(*problem)


# --- small problems ---------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(problems(eps=False))
def test_masses_equal_the_exhaustive_engine(problem: Problem) -> None:
    agree(grid_of(problem))


@pytest.mark.parametrize("seed", range(150))
def test_random_problems_with_odd_options(seed: int) -> None:
    rng = random.Random(seed)
    agree(grid_of(random_problem(rng, eps=False)), **ODD_OPTIONS[seed % len(ODD_OPTIONS)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_a_hundred_random_problems(seed: int) -> None:
    rng = random.Random(f"slow {seed}")
    for i in range(100):
        agree(grid_of(random_problem(rng, eps=False)), **ODD_OPTIONS[i % len(ODD_OPTIONS)])


@pytest.mark.parametrize("seed", range(40))
def test_larger_random_problems(seed: int) -> None:
    rng = random.Random(f"larger {seed}")
    problem = random_problem(
        rng, eps=False, max_attributes=7, max_values=9, max_thresholds=6, max_trees=25, max_depth=4, max_pieces=40_000,
        max_pairs=10**9,
    )  # fmt: skip
    agree(grid_of(problem), **ODD_OPTIONS[seed % len(ODD_OPTIONS)])


# --- problems by hand -------------------------------------------------------------------------------------------------


def random_trees(
    rng: np.random.Generator,
    n_features: int,
    high: int,
    n_trees: int,
    depth: int,
    values: Any,
    sets: bool = False,
    **head: Any,
) -> TreeEnsemble:
    """Full trees with random tests on integer features 0..high; `values(size)` draws the leaves."""
    builder = EnsembleBuilder()
    for _ in range(n_trees):
        inner, leaves = 2**depth - 1, 2**depth
        at = np.arange(inner)
        test = np.full(inner + leaves, int(NodeTest.LEAF))
        test[:inner] = int(NodeTest.AT_MOST_F64)
        threshold = np.zeros(inner + leaves)
        threshold[:inner] = rng.integers(0, high, inner) + 0.5
        tree: dict[str, Any] = {
            "feature": np.concatenate([rng.integers(0, n_features, inner), np.zeros(leaves, int)]),
            "test": test,
            "threshold": threshold,
            "left": np.concatenate([2 * at + 1, np.full(leaves, -1)]),
            "right": np.concatenate([2 * at + 2, np.full(leaves, -1)]),
            "value": np.concatenate([np.zeros(inner), values(leaves)]),
        }
        if sets:
            tree["test"][:inner] = np.where(rng.random(inner) < 0.7, int(NodeTest.IN_SET), tree["test"][:inner])
            chosen = [np.flatnonzero(rng.random(high + 1) < 0.5).tolist() for _ in range(inner)]
            tree["sets"] = {i: chosen[i] for i in range(inner) if tree["test"][i] == int(NodeTest.IN_SET)}
        builder.add_tree(**tree)
    options: dict[str, Any] = {"link": "sigmoid", "base": (0.0,), **head}
    return builder.build(library="test", feature_names=[f"a{i}" for i in range(n_features)], **options)


def integers(n: int, high: int) -> Space:
    return Space([Attribute.integer(f"a{i}", 0, high) for i in range(n)])


def test_a_constant_model_is_fair_and_its_confidence_counts() -> None:
    builder = EnsembleBuilder()
    builder.add_tree(feature=[0], test=[0], threshold=[0.0], left=[-1], right=[-1], value=[0.25])
    model = builder.build(library="test", feature_names=["a0"], base=(0.0,), link="sigmoid")
    for kappa, low in ((0.5, 0.0), (0.55, 0.0), (0.6, 1.0)):
        found = agree(build_grid(model, integers(1, 3), Fairness("a0", 0, kappa)))
        assert masses(found)[2] == pytest.approx(low)


def test_robustness_without_tolerance_is_one() -> None:
    model = random_trees(np.random.default_rng(0), 4, 5, 10, 3, lambda n: np.random.default_rng(1).normal(size=n))
    found = agree(build_grid(model, integers(4, 5), Robustness(0)))
    assert masses(found)[:2] == pytest.approx((1, 0))
    agree(build_grid(model, integers(4, 5), Robustness(0, 0.7)))


def test_all_attributes_sensitive() -> None:
    rng = np.random.default_rng(2)
    model = random_trees(rng, 3, 6, 12, 3, lambda n: rng.normal(size=n))
    for kappa in (0.5, 0.8):
        agree(build_grid(model, integers(3, 6), Fairness(["a0", "a1", "a2"], 0, kappa)))


@pytest.mark.parametrize("kappa", [0.5, 0.65])
@pytest.mark.parametrize("tie", ["library", "paper"])
def test_more_than_64_attributes_most_of_them_idle(kappa: float, tie: Any) -> None:
    rng = np.random.default_rng(3)
    small = random_trees(rng, 6, 3, 9, 3, lambda n: rng.integers(-3, 4, n).astype(float))
    grid = build_grid(small, integers(6, 3), Fairness(["a1", "a4"], 0, kappa, tie=tie))
    names = [f"a{i}" if i < 6 else f"idle{i}" for i in range(90)]
    # The same trees on the last columns of 90, a coin on three columns, and a test without effect on all the others.
    builder = EnsembleBuilder()
    for t, root in enumerate(small.roots.tolist()):
        stop = [*small.roots.tolist(), small.n_nodes][t + 1]
        part = slice(root, stop)
        builder.add_tree(
            feature=small.feature[part] + 84, test=small.test[part], threshold=small.threshold[part],
            left=np.where(small.left[part] < 0, -1, small.left[part] - root),
            right=np.where(small.right[part] < 0, -1, small.right[part] - root), value=small.value[part, 0],
        )  # fmt: skip
    for column in range(84):
        builder.add_tree(
            feature=[column, 0, 0], test=[int(NodeTest.AT_MOST_F64), 0, 0], threshold=[1.5, 0, 0], left=[1, -1, -1],
            right=[2, -1, -1], value=[0, float(column % 30 == 0), 0],
        )  # fmt: skip
    wide = builder.build(library="test", feature_names=names[6:] + names[:6], base=(-1.0,), link="sigmoid")
    space = Space([Attribute.integer(name, 0, 3) for name in names])
    wide_grid = build_grid(wide, space, Fairness(["a1", "a4"], 0, kappa, tie=tie))
    assert compile_problem(wide_grid).n_axes > 64
    # fair coins beside the trees: the exact answer from the coins' distribution and the small grid's margins
    found = run(wide_grid)
    assert found.status is Status.CONVERGED
    assert masses(found) == pytest.approx(coin_masses(small, kappa, tie), abs=1e-12)
    assert grid.n_cells() == 4**6


def coin_masses(model: TreeEnsemble, kappa: float, tie: str) -> tuple[float, float, float]:
    """fair, unfair, low of `model + (heads of 3 coins - 1)`, by enumerating the margins of the small model."""
    import math

    from boxqte.engines.exhaustive import dense_margins

    grid = build_grid(model, integers(6, 3), Fairness(["a1", "a4"], 0, kappa, tie=tie))
    F = dense_margins(grid).astype(float) / 2**grid.scale_bits
    level = math.log(kappa / (1 - kappa))
    fair = unfair = low = 0.0
    for heads in range(4):
        share = math.comb(3, heads) / 2**3
        G = F + heads - 1
        pos = G > 0
        neg = (G < 0) if tie == "paper" else (G <= 0)
        confident = (np.abs(G) > level + 1e-9) | ((kappa == 0.5) & (pos | neg))
        some_pos, some_neg = pos.any(axis=(1, 4), keepdims=True), neg.any(axis=(1, 4), keepdims=True)
        bad = confident & ((pos & some_neg) | (neg & some_pos))
        low += share * (~confident).mean()
        unfair += share * bad.mean()
        fair += share * (confident & ~bad).mean()
    return fair, unfair, low


@pytest.mark.parametrize("sets", [False, True])
def test_more_than_64_cells_on_an_axis(sets: bool) -> None:
    rng = np.random.default_rng(4)
    model = random_trees(rng, 3, 199, 40, 3, lambda n: rng.normal(size=n), sets=sets)
    grid = build_grid(model, integers(3, 199), Fairness("a2", 0, 0.6))
    assert max(axis.n_cells for axis in grid.axes) > 64
    if grid.n_cells() < 5_000_000:
        agree(grid)
    else:
        small = random_trees(rng, 2, 199, 40, 3, lambda n: rng.normal(size=n), sets=sets)
        agree(build_grid(small, integers(2, 199), Fairness("a1", 0, 0.6)))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("kappa", [0.5, 0.6])
def test_independent_attributes_are_counted_as_values(kappa: float, ties: bool) -> None:
    """Six attributes with a staircase of their own: the longer list of sums has 216 entries, too many to compare one by one."""
    rng = np.random.default_rng(7)
    builder = EnsembleBuilder()
    stairs = 5
    for feature in range(2, 8):
        values = rng.integers(-3, 4, stairs + 1) if ties else rng.normal(size=stairs + 1)
        at = np.arange(stairs)
        builder.add_tree(
            feature=[feature] * (2 * stairs + 1), test=[int(NodeTest.AT_MOST_F64)] * stairs + [0] * (stairs + 1),
            threshold=[*(at + 0.5), *np.zeros(stairs + 1)], left=[*(stairs + at), *[-1] * (stairs + 1)],
            right=[*(at[1:]), 2 * stairs, *[-1] * (stairs + 1)], value=[*np.zeros(stairs), *values.astype(float)],
        )  # fmt: skip
    builder.add_tree(  # the sensitive a0, and a1 beside it
        feature=[0, 1, 1, 0, 0, 0, 0], test=[int(NodeTest.AT_MOST_F64)] * 3 + [0] * 4, threshold=[0.5, 0.5, 0.5, 0, 0, 0, 0],
        left=[1, 3, 5, -1, -1, -1, -1], right=[2, 4, 6, -1, -1, -1, -1], value=[0, 0, 0, -1.0, 1.0, 2.0, -2.0],
    )  # fmt: skip
    model = builder.build(library="test", feature_names=[f"a{i}" for i in range(8)], base=(0.0,), link="sigmoid")
    space = Space([Attribute.integer(f"a{i}", 0, 1 if i < 2 else stairs) for i in range(8)])
    found = agree(build_grid(model, space, Fairness("a0", 0, kappa)))
    assert found.details["nodes"] == found.details["finished"] == 1  # all of it in one count


def test_many_classes() -> None:
    rng = np.random.default_rng(5)
    model = random_trees(rng, 3, 60, 30, 3, lambda n: rng.normal(size=n))
    grid = build_grid(model, integers(3, 60), Fairness(["a0", "a1"], 0))
    assert grid.axes[0].n_cells * grid.axes[1].n_cells > 500
    agree(grid)
    agree(build_grid(model, integers(3, 60), Fairness(["a0", "a1"], 0, 0.9)), finish_limit=100)


@pytest.mark.parametrize("kappa", [0.5, 0.6])
@pytest.mark.parametrize("tie", ["library", "paper"])
@pytest.mark.parametrize("votes", [True, False])
def test_forests(votes: bool, tie: Any, kappa: float) -> None:
    rng = np.random.default_rng(6)
    values = (lambda n: rng.integers(0, 2, n).astype(float)) if votes else (lambda n: rng.integers(0, 4, n) / 3)
    model = random_trees(rng, 4, 5, 12, 3, values, sets=True, link="mean")
    agree(build_grid(model, integers(4, 5), Fairness("a0", 0, kappa, tie=tie)))
    agree(build_grid(model, integers(4, 5), Fairness("a0", 0, kappa, tie=tie)), finish_limit=8)


# --- values that 64 bits cannot hold ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["thirds", "wide", "too wide to merge"])
def test_wide_leaf_values_are_compared_exactly(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    small = {"thirds": 1e-9, "wide": 2.0**-90, "too wide to merge": 2.0**-300}[kind]

    def values(n: int) -> Any:
        # pairs v, -v make exact ties common; the small part decides where the large part ties
        large = rng.choice([-1.0, -1 / 3, 0.0, 1 / 3, 1.0], n)
        return np.where(rng.random(n) < 0.4, rng.choice([-3.0, -1.0, 1.0, 3.0], n) * small, large)

    model = random_trees(rng, 4, 3, 8, 2, values)
    for kappa in (0.5, 0.55):
        for tie in ("library", "paper"):
            grid = build_grid(model, integers(4, 3), Fairness(["a0"], 0, kappa, tie=tie))
            problem = compile_problem(grid)
            assert problem.fuzz > 0
            assert problem.merges == (kind != "too wide to merge")
            agree(grid)
            agree(grid, finish_limit=8)


# --- any time ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def medium() -> Grid:
    """Large enough for some hundred nodes with small finishes, small enough for the exhaustive engine."""
    rng = np.random.default_rng(7)
    model = random_trees(rng, 7, 5, 40, 3, lambda n: rng.normal(size=n))
    return build_grid(model, integers(7, 5), Fairness("a0", 0, 0.6))


@pytest.fixture(scope="module")
def medium_exact(medium: Grid) -> tuple[Fraction, Fraction]:
    ends = run(medium, engine="exhaustive").decided.measure()
    assert ends is not None
    return ends


SMALL_STEPS: dict[str, Any] = {"finish_limit": 100, "depth_first_below": 0.0, "batch": 1}


def test_bounds_hold_and_close_at_every_point_of_the_trace(
    medium: Grid, medium_exact: tuple[Fraction, Fraction], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxqte.engines.box.driver.REPORT_EVERY", 0.0)
    watch = Watch(Limits())
    agree(medium)
    found = run(medium, watch=watch, **SMALL_STEPS)
    assert found.status is Status.CONVERGED
    assert len(watch.trace) > 20
    for _, lower, upper in watch.trace:
        assert Fraction(lower) <= medium_exact[0] <= Fraction(upper)
    for (_, a, b), (_, c, d) in zip(watch.trace, watch.trace[1:]):
        assert a <= c <= d <= b
    assert watch.trace[-1][2] - watch.trace[-1][1] < 1e-12


@pytest.mark.parametrize("node_limit", [1, 2, 10, 100])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_node_limit_leaves_valid_bounds(
    medium: Grid, medium_exact: tuple[Fraction, Fraction], node_limit: int, workers: int
) -> None:
    found = run(medium, node_limit=node_limit, workers=workers, **SMALL_STEPS)
    assert found.status is Status.NODES
    assert found.details["nodes"] >= node_limit
    ends = found.decided.measure()
    assert ends is not None
    assert ends[0] <= medium_exact[0] <= ends[1]


def test_a_node_limit_repeats_exactly(medium: Grid) -> None:
    one, two = (run(medium, node_limit=150, **SMALL_STEPS) for _ in range(2))
    assert one.decided == two.decided
    assert one.details == two.details


def test_two_workers_give_the_same_answer(medium: Grid) -> None:
    one = run(medium, workers=1, **SMALL_STEPS)
    two = run(medium, workers=2, **SMALL_STEPS)
    three = run(medium, workers=3, finish_limit=300)
    assert masses(one) == pytest.approx(masses(two), abs=1e-13)
    assert masses(one) == pytest.approx(masses(three), abs=1e-13)


def test_a_gap_stops_the_search(medium: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxqte.engines.box.driver.REPORT_EVERY", 0.0)
    found = run(medium, gap=0.5, **SMALL_STEPS)
    ends = found.decided.measure()
    assert ends is not None
    assert ends[1] - ends[0] <= 0.5
    assert found.status in (Status.GAP, Status.CONVERGED)


def test_a_time_limit_stops_the_search(medium: Grid, medium_exact: tuple[Fraction, Fraction]) -> None:
    run(medium, node_limit=1)  # compile
    found = run(medium, time_limit=1e-6, **SMALL_STEPS)
    assert found.status is Status.TIME
    ends = found.decided.measure()
    assert ends is not None
    assert ends[0] <= medium_exact[0] <= ends[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_leaves_valid_bounds(
    medium: Grid, medium_exact: tuple[Fraction, Fraction], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxqte.engines.box.driver.REPORT_EVERY", 0.0)
    calls = []

    def progress(state: Progress) -> None:
        calls.append(state)
        if len(calls) == 5:
            raise KeyboardInterrupt

    found = run(medium, workers=workers, progress=progress, **SMALL_STEPS)
    assert found.status is Status.INTERRUPTED
    assert len(calls) == 5
    ends = found.decided.measure()
    assert ends is not None
    assert ends[0] <= medium_exact[0] <= ends[1]
    assert Fraction(calls[-1].lower) <= ends[0]


def test_past_the_memory_limit_it_goes_depth_first(medium: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxqte.engines.box.driver.DEPTH_FIRST_FROM", 0.0)
    found = agree(medium, **SMALL_STEPS, call_nodes=20)
    best_first = run(medium, **SMALL_STEPS, call_nodes=20)
    assert found.details["queue_bytes"] <= best_first.details["queue_bytes"]


def test_depth_first_needs_less_memory(medium: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    best_first = run(medium, **SMALL_STEPS).details["queue_bytes"]
    monkeypatch.setattr("boxqte.engines.box.driver.DEPTH_FIRST_FROM", 0.0)
    assert run(medium, **SMALL_STEPS, call_nodes=20).details["queue_bytes"] < best_first / 2


def test_too_little_memory_stops_with_valid_bounds(medium: Grid, medium_exact: tuple[Fraction, Fraction]) -> None:
    found = run(medium, memory_limit=1, call_nodes=20, **SMALL_STEPS)
    assert found.status is Status.MEMORY
    ends = found.decided.measure()
    assert ends is not None
    assert ends[0] <= medium_exact[0] <= ends[1]


def test_an_error_in_a_worker_reaches_the_caller(medium: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("boxqte.engines.box.exchange_worker.ExchangeWorker.work", broken)
    with pytest.raises(RuntimeError, match="broken"):
        run(medium, workers=2)


# --- the driver's parts -----------------------------------------------------------------------------------------------


def test_exact_sum_has_no_rounding() -> None:
    rng = random.Random(0)
    total, exact = ExactSum(), Fraction(0)
    for _ in range(2000):
        x = rng.random() * 10.0 ** rng.randint(-30, 0)
        total.add(x)
        exact += Fraction(x)
    assert total.value == exact


def test_open_boxes_come_back_as_they_went_in() -> None:
    rng = np.random.default_rng(0)
    root = rng.integers(0, 2**60, (1, 5, 3)).astype(np.uint64)
    root[0, 2, 1:] = 0
    boxes = rng.integers(0, 2**60, (7, 5, 3)).astype(np.uint64) & root
    queue = OpenBoxes.of(root)
    mass = np.array([0.1, 0.7, 0.3, 0.2, 0.6, 0.5, 0.4])
    queue.push(boxes, mass, np.ones(7))
    found, their_mass = queue.unpacked(queue.take(3))
    assert their_mass.tolist() == [0.7, 0.6, 0.5]
    assert (found == boxes[[1, 4, 5]]).all()
    queue.stack_up(boxes[:2], mass[:2])
    assert (queue.unpacked(queue.take(3))[0] == boxes[:1]).all()
    assert (queue.unpacked(queue.take(3))[0] == boxes[1:2]).all()
    assert len(queue) == 4


def test_options_are_checked() -> None:
    with pytest.raises(EngineError, match="finish_limit"):
        make_engine("box", {"finish_limit": 1})


def test_an_interrupt_in_the_last_report_keeps_what_is_proved() -> None:
    grid = build_grid(loan_ensemble(), loan_space(), Fairness("race"))
    limits = Limits(workers=1)

    def interrupted(progress: object) -> None:
        raise KeyboardInterrupt

    outcome = make_engine("box").run(grid, limits, Watch(limits, interrupted))
    assert outcome.status is Status.INTERRUPTED
    assert outcome.decided.undecided < Fraction(1, 10**9)  # all was decided before the first report
