"""The box engine with epsilon > 0 against the exhaustive engine (which stands against the naive oracle)."""

from __future__ import annotations

import dataclasses
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from boxqte import Attribute, EnsembleBuilder, Fairness, Robustness, Space
from boxqte.engines.box.engine import Box
from boxqte.engines.box.exchange_worker import box_masses, root_boxes
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import compile_problem
from boxqte.engines.box.window_worker import WindowWorker
from boxqte.engines.exhaustive import Exhaustive
from boxqte.engines.protocol import Decided, Limits, Status, Watch
from boxqte.errors import EngineError
from boxqte.models.ensemble import Test, TreeEnsemble
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from tests.strategies import Problem, random_problem

ONE = Limits(workers=1)


def exhaustive(grid: Grid) -> Decided:
    return Exhaustive().run(grid, ONE, Watch(ONE)).decided


def assert_agrees(grid: Grid, options: BoxOptions | None = None, limits: Limits = ONE, within: float = 1e-12) -> None:
    expected = exhaustive(grid)
    watch = Watch(limits)
    outcome = Box(options).run(grid, limits, watch)
    assert outcome.status is Status.CONVERGED
    for kind in ("fair", "unfair", "low"):
        assert abs(float(getattr(outcome.decided, kind)) - float(getattr(expected, kind))) < within, kind
    exact = expected.measure()
    if exact is not None:
        lowers, uppers = [p[1] for p in watch.trace], [p[2] for p in watch.trace]
        assert all(lower <= exact[0] <= upper for lower, upper in zip(lowers, uppers))
        assert lowers == sorted(lowers)
        assert uppers == sorted(uppers, reverse=True)


def tolerant(seed: int, **limits: object) -> Grid | None:
    """The grid of a random problem on which some attribute moves, or None."""
    grid = build_grid(*random_problem(random.Random(seed), **limits))
    return grid if grid.has_tolerance else None


def wide_leaves(problem: Problem, seed: int) -> tuple[TreeEnsemble, Space, object]:
    """The same problem with leaf values that 64 bits cannot hold: thirds, half of the trees 2**22 times smaller."""
    model = problem[0]
    small = np.random.default_rng(seed).random(model.n_trees) < 0.5
    scale = np.where(small, 2.0**-22, 1.0) / 3
    return dataclasses.replace(model, value=model.value * scale[model.tree_of_node()][:, None]), problem[1], problem[2]


def staircase(n: int, n_axes: int, *, sensitive: bool = False) -> tuple[TreeEnsemble, Space]:
    """n one-split trees an attribute whose signs alternate, so that every attribute has n + 1 cells and many borders."""
    builder = EnsembleBuilder()
    rng = random.Random(n)
    for axis in range(n_axes):
        for i in range(n):
            value = (-1) ** i * (1 + rng.randrange(4))
            builder.add_tree(
                feature=[axis, -1, -1], test=[Test.LESS_F32, 0, 0], threshold=[10.0 * (i + 1), 0, 0], left=[1, -1, -1],
                right=[2, -1, -1], value=[0, value, -value],
            )  # fmt: skip
    names = [f"a{i}" for i in range(n_axes)] + ["s"] * sensitive
    if sensitive:
        builder.add_tree(
            feature=[n_axes, -1, -1], test=[Test.LESS_F32, 0, 0], threshold=[0.5, 0, 0], left=[1, -1, -1], right=[2, -1, -1],
            value=[0, 3, -3],
        )  # fmt: skip
    model = builder.build(library="example", feature_names=names, base=[0.5], link="sigmoid")
    attributes = [Attribute.integer(f"a{i}", 0, 10 * (n + 1)) for i in range(n_axes)]
    if sensitive:
        attributes.append(Attribute.categorical("s", [0, 1]))
    return model, Space(attributes)


@pytest.mark.parametrize("block", range(8))
def test_it_agrees_with_the_exhaustive_engine_on_random_problems(block: int) -> None:
    checked = 0
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        grid = tolerant(seed)
        if grid is not None:
            assert_agrees(grid)
            checked += 1
    assert checked > 10


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_it_agrees_with_the_exhaustive_engine_on_many_random_problems(block: int) -> None:
    for seed in range(10_000 + 1000 * block, 11_000 + 1000 * block):
        grid = tolerant(seed)
        if grid is not None:
            assert_agrees(grid)


def test_it_agrees_on_larger_random_problems() -> None:
    sizes = {"max_attributes": 6, "max_trees": 14, "max_depth": 4, "max_thresholds": 6, "max_values": 9}
    checked = 0
    for seed in range(40):
        grid = tolerant(seed, max_pieces=40_000, max_pairs=10**9, **sizes)
        if grid is not None and max(grid.n_cells(), grid.n_refined()) < 200_000:
            assert_agrees(grid)
            checked += 1
    assert checked > 5


def test_leaf_values_too_wide_for_64_bits_are_still_exact() -> None:
    checked = 0
    for seed in range(300):
        problem = random_problem(random.Random(seed))
        grid = build_grid(*wide_leaves(problem, seed))
        if grid.has_tolerance:
            assert_agrees(grid)
            checked += 1
    assert checked > 30


def test_a_tie_without_a_class_survives_the_rounding_of_wide_leaves() -> None:
    # Found by the loop above: rounded thresholds made every input look confident.
    problem = random_problem(random.Random(66))
    assert_agrees(build_grid(*wide_leaves(problem, 66)))


def test_a_missing_value_on_a_moving_attribute_keeps_windows_contiguous() -> None:
    # Found by random problems: groups of cells that are no neighbours must not merge on an axis along which x moves.
    for seed in (98, 161, 214, 216):
        grid = tolerant(seed)
        assert grid is not None
        assert_agrees(grid)


@pytest.mark.parametrize("kappa", [0.5, 0.7])
@pytest.mark.parametrize("sensitive", [False, True])
def test_an_attribute_with_more_than_64_cells_works(kappa: float, sensitive: bool) -> None:
    model, space = staircase(90, 2, sensitive=sensitive)
    question = Fairness("s", 0.05, kappa) if sensitive else Robustness(0.05, kappa)
    # hundreds of windows an axis: the outward rounding is proportional to their number
    assert_agrees(build_grid(model, space, question), within=1e-11)


def test_a_brick_that_outgrows_its_buffers_is_tried_again_with_more_room() -> None:
    model, space = staircase(30, 3)
    assert_agrees(build_grid(model, space, Robustness(0.1)))


def test_every_way_to_start_a_brick_gives_the_same_answer() -> None:
    for seed in range(1000, 1060):
        grid = tolerant(seed)
        if grid is not None:
            assert_agrees(grid, BoxOptions(mixed_limit=0, cell_limit=1))


@pytest.mark.parametrize("seed", [407, 1235, 2763])
def test_inputs_without_a_class_are_neither_fair_nor_unfair(seed: int) -> None:
    grid = tolerant(seed)
    assert grid is not None
    assert_agrees(grid)


@pytest.mark.parametrize("table_cells", [1, 8])
def test_bricks_too_large_for_one_table_give_the_same_answer(table_cells: int) -> None:
    checked = 0
    for seed in range(5000, 5120):
        grid = tolerant(seed)
        if grid is not None:
            checked += 1
            assert_agrees(grid, BoxOptions(dense_cells=0, table_cells=table_cells))
    assert checked > 20


@pytest.mark.parametrize("sum_bits", [2, 7])
@pytest.mark.parametrize("dense_cells", [0, 1 << 18])
def test_sums_of_few_bits_are_settled_exactly_within_their_guard(sum_bits: int, dense_cells: int) -> None:
    # so few bits that most sums lie within the guard of a threshold
    for seed in range(7000, 7080):
        problem = random_problem(random.Random(seed))
        grid = build_grid(*(wide_leaves(problem, seed) if seed % 4 == 0 else problem))
        if not grid.has_tolerance:
            continue
        p = compile_problem(grid)
        worker = WindowWorker(
            p, mixed_limit=10, cell_limit=1024, memory=1 << 30, dense_cells=dense_cells, sum_bits=sum_bits
        )
        boxes = root_boxes(p)
        reply = worker.work(boxes, box_masses(p, boxes), 10**6, False)
        expected = exhaustive(grid)
        assert not len(reply.boxes)
        for kind in ("fair", "unfair", "low"):
            assert abs(getattr(reply, kind) - float(getattr(expected, kind))) < 1e-12, (seed, kind)


@pytest.mark.parametrize("dense_cells", [0, 1 << 18])
@pytest.mark.parametrize("kappa", [0.5, 0.7])
def test_sums_that_4_byte_tables_cannot_tell_from_the_threshold_are_told_exactly(
    dense_cells: int, kappa: float
) -> None:
    # margins are whole numbers, many of them 0, moved by less than a unit of the narrow sums (here about 2**-23)
    model, space = staircase(8, 3, sensitive=True)
    rng = np.random.default_rng(0)
    moved = model.value + 2.0**-45 * rng.integers(-3, 4, model.value.shape)
    model = dataclasses.replace(model, value=np.where(model.value == 0, 0, moved), base=(Fraction(0),))
    for question in (Robustness(0.05, kappa), Fairness("s", 0.05, kappa)):
        assert_agrees(build_grid(model, space, question), BoxOptions(dense_cells=dense_cells))


def test_two_workers_give_the_answer_of_one() -> None:
    for seed in range(1000, 1040):
        grid = tolerant(seed)
        if grid is not None:
            assert_agrees(grid, BoxOptions(mixed_limit=0, cell_limit=1), Limits(workers=2))


def test_a_node_limit_leaves_valid_bounds() -> None:
    for seed in range(1000, 1060):
        grid = tolerant(seed)
        if grid is None:
            continue
        limits = Limits(workers=1, node_limit=1)
        outcome = Box(BoxOptions(mixed_limit=0, cell_limit=1)).run(grid, limits, Watch(limits))
        exact, ends = exhaustive(grid).measure(), outcome.decided.measure()
        if exact is not None and ends is not None:
            assert ends[0] <= exact[0] <= ends[1]


def test_leaf_values_of_absurdly_different_size_are_refused_by_name() -> None:
    model, space = staircase(2, 1)
    value = model.value.copy()
    value[1, 0] = 2.0**-200
    grid = build_grid(dataclasses.replace(model, value=value), space, Robustness(0.5))
    with pytest.raises(EngineError, match="exhaustive"):
        Box().run(grid, ONE, Watch(ONE))


def test_a_time_limit_interrupts_a_brick_under_work() -> None:
    model, space = staircase(32, 6)  # one brick, of some seconds
    limits = Limits(workers=2, time_limit=0.1)
    outcome = Box(BoxOptions(dense_cells=0)).run(build_grid(model, space, Robustness(0.1)), limits, Watch(limits))
    assert outcome.status is Status.TIME
    assert (outcome.decided.fair, outcome.decided.unfair) == (0, 0)
    assert outcome.open is not None


def test_a_worker_gives_back_all_the_mass_that_it_got() -> None:
    left_open = 0
    for seed in range(1000, 1160):
        grid = tolerant(seed)
        if grid is None:
            continue
        problem = compile_problem(grid)
        worker = WindowWorker(problem, mixed_limit=0, cell_limit=1, memory=1 << 30)
        boxes = root_boxes(problem)
        masses = box_masses(problem, boxes)
        for _ in range(500):
            reply = worker.work(boxes[:1], masses[:1], 3, False)
            assert np.allclose(reply.masses, box_masses(problem, reply.boxes), rtol=1e-12, atol=0)
            assert math.isclose(reply.fair + reply.unfair + reply.low + reply.masses.sum(), masses[0], rel_tol=1e-9)
            left_open += len(reply.boxes)
            boxes, masses = np.concatenate([reply.boxes, boxes[1:]]), np.concatenate([reply.masses, masses[1:]])
            if not len(boxes):
                break
    assert left_open > 0
