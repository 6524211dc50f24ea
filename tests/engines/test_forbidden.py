"""What rules forbid, in every search of the core: against loops over the cells of the grid (tests/naive_forbidden.py)."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from boxqte.engines.auto import Auto
from boxqte.engines.box.engine import Box
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import compile_problem, used_axes
from boxqte.engines.box.rules import Rule, cut_along_rules
from boxqte.engines.kinds import FAIR, LOW, UNFAIR
from boxqte.engines.mixture import run_pieces
from boxqte.engines.point import point_decider
from boxqte.engines.protocol import Engine, Limits, Outcome, Status, Watch
from boxqte.engines.sample.draws import Stratum
from boxqte.engines.sample.engine import Sample, SampleOptions, sample
from boxqte.errors import EngineError
from boxqte.questions.building import build_any_grid, build_grid
from boxqte.questions.grid import AnyGrid, Forbidden, Grid
from boxqte.questions.pieces import pieces_of
from tests.engines.test_box_tolerance import wide_leaves
from tests.engines.test_point_partners import questions
from tests.naive import NaiveAnswer, naive_quantify
from tests.naive_classes import random_class_problem
from tests.naive_forbidden import naive_class_verdicts, naive_forbidden, naive_masses, naive_verdicts
from tests.naive_mixture import naive_mixture
from tests.naive_questions import naive_measure
from tests.questions.test_partners import asked
from tests.random_mixtures import random_mixture
from tests.random_rules import with_rules as with_texts
from tests.strategies import Problem, random_problem

ONE = Limits(workers=1)
OPTIONS = (
    BoxOptions(),
    BoxOptions(finish_limit=5),
    BoxOptions(finish_limit=30, call_nodes=3, depth_first_below=10),
    BoxOptions(finish_limit=5, call_nodes=1, batch=1),
    BoxOptions(mixed_limit=0, cell_limit=1, dense_cells=1, table_cells=8),
    BoxOptions(mixed_limit=30, dense_cells=64, table_cells=16),
)
NAMES = {FAIR: "fair", UNFAIR: "unfair", LOW: "low"}


def with_rules(rng: random.Random, grid: Any) -> Any:
    """The grid with one to four rules on one to three of its axes, whichever these are."""
    wide = [a for a, axis in enumerate(grid.axes) if axis.n_cells > 1]
    rules = []
    for _ in range(rng.randint(1, 4) if wide else 0):
        masks = []
        for a in sorted(rng.sample(wide, rng.randint(1, min(3, len(wide))))):
            n = grid.axes[a].n_cells
            first = rng.randint(0, n - 1)
            interval = ((1 << rng.randint(1, n - first)) - 1) << first
            masks.append((a, interval if rng.random() < 0.6 else rng.randint(1, (1 << n) - 1)))
        rules.append(Forbidden(tuple(masks)))
    return replace(grid, forbidden=tuple(rules))


def assert_box_agrees(grid: AnyGrid, options: BoxOptions, limits: Limits = ONE) -> bool:
    """The masses are lower bounds, and close; whether there is something to be unfair in spite of the rules."""
    expected = naive_masses(grid)
    assert expected.forbidden == grid.forbidden_mass
    watch = Watch(limits)
    outcome = Box(options).run(grid, limits, watch)
    assert outcome.status is Status.CONVERGED
    found = outcome.decided
    for kind in ("fair", "unfair", "low"):
        exact, proved = getattr(expected, kind), Fraction(getattr(found, kind))
        assert exact - Fraction(1, 10**11) < proved <= exact, kind
    assert found.low >= expected.forbidden
    if expected.low < 1:
        measure = 1 - expected.unfair / (1 - expected.low)
        assert all(lower <= measure <= upper for _, lower, upper in watch.trace)
    return bool(expected.unfair and 0 < expected.forbidden < 1)


def assert_points_agree(grid: Any, dense_limit: int = 4096) -> int:
    """Every cell's verdict is the oracle's, and no x' is forbidden; how many were counterexamples."""
    expected = naive_verdicts(grid) if isinstance(grid, Grid) else naive_class_verdicts(grid)
    gone = naive_forbidden(grid)
    points = np.array(list(expected)).reshape(-1, len(grid.axes))
    found = point_decider(grid, dense_limit=dense_limit).decide(points)
    for cells, verdict, witness in zip(points.tolist(), found.verdict.tolist(), found.witness.tolist()):
        wanted = expected[tuple(cells)]
        assert NAMES[verdict] == ("low" if wanted == "forbidden" else wanted), cells
        assert (witness[0] >= 0) == (verdict == UNFAIR)
        assert verdict != UNFAIR or not gone[tuple(witness)]
    return int((found.verdict == UNFAIR).sum())


def check(seed: int) -> bool:
    """One random problem with random rules."""
    rng = random.Random(seed)
    problem = random_problem(
        rng, eps=rng.random() < 0.6, max_pieces=rng.choice([30, 200, 800]), decision=rng.random() < 0.3
    )
    model = wide_leaves(problem, seed) if seed % 7 == 0 else problem
    grid = with_rules(rng, build_grid(*model))
    matters = assert_box_agrees(grid, rng.choice(OPTIONS), replace(ONE, workers=rng.randint(1, 2)))
    if len(naive_forbidden(grid).ravel()) < 400:
        assert_points_agree(grid, rng.choice([1, 8, 4096]))
    return matters


def check_partners(seed: int) -> int:
    """Bounded changes, confident partners, monotonicity and scores, with rules."""
    rng = random.Random(seed)
    problem = random_problem(rng, eps=False, max_pieces=120)
    found = 0
    for prop in questions(problem, seed):
        grid = with_rules(rng, build_grid(problem.ensemble, problem.space, prop))
        if grid.partners is None or not grid.has_tolerance:
            assert_box_agrees(grid, rng.choice(OPTIONS))
        found += assert_points_agree(grid, rng.choice([1, 8, 4096]))
    return found


def check_classes(seed: int) -> int:
    rng = random.Random(seed)
    grid = with_rules(rng, build_any_grid(*random_class_problem(seed, max_pieces=150, max_pairs=8000)))
    assert_box_agrees(grid, BoxOptions())
    return assert_points_agree(grid, rng.choice([1, 8, 4096]))


def test_the_box_engine_and_points_equal_the_oracle_with_random_rules() -> None:
    assert sum(check(seed) for seed in range(60)) > 2


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_the_box_engine_and_points_equal_the_oracle_with_a_thousand_random_rules(block: int) -> None:
    assert sum(check(seed) for seed in range(1000 + 100 * block, 1100 + 100 * block)) > 3


def test_partners_scores_and_orders_with_random_rules() -> None:
    assert sum(check_partners(seed) for seed in range(8)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_partners_scores_and_orders_with_many_random_rules(block: int) -> None:
    assert sum(check_partners(seed) for seed in range(1000 + 40 * block, 1040 + 40 * block)) > 0


def test_many_classes_with_random_rules() -> None:
    assert sum(check_classes(seed) for seed in range(25)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_many_classes_with_many_random_rules(block: int) -> None:
    assert sum(check_classes(seed) for seed in range(1000 + 100 * block, 1100 + 100 * block)) > 0


# --- rules as users write them, against the oracle of the whole ---


def assert_holds(problem: Problem, expected: NaiveAnswer, engine: Engine, limits: Limits = ONE) -> Outcome:
    """An engine's run on all products, and what it has proved: of what the rules leave, as the oracle says it."""
    pieces = pieces_of(build_any_grid(*problem))
    watch = Watch(limits)
    outcome = run_pieces(engine, pieces, limits, watch).whole
    left = 1 - expected.forbidden
    exact = {
        "unfair": expected.counterexample * left,
        "fair": (expected.confident - expected.counterexample) * left,
        "low": 1 - expected.confident * left,
    }
    for kind, mass in exact.items():
        proved = Fraction(getattr(outcome.decided, kind))
        assert proved <= mass, kind
        if outcome.status is Status.CONVERGED:
            assert proved > mass - Fraction(1, 10**11), kind
    assert outcome.decided.low >= expected.forbidden
    if expected.measure is not None:
        assert all(lower <= expected.measure <= upper for _, lower, upper in watch.trace)
        drawn = outcome.statistical
        assert drawn is None or drawn.lower <= expected.measure <= drawn.upper
    return outcome


def check_texts(seed: int) -> None:
    rng = random.Random(seed)
    kind = seed % 4
    if kind == 0:
        problem = with_texts(rng, random_mixture(rng, max_pieces=200, max_pairs=10_000))
        expected = naive_mixture(*problem)
    else:
        problem = with_texts(rng, random_problem(rng, eps=kind == 1, max_pieces=200, max_pairs=10_000))
        expected = naive_quantify(*problem)
    assert assert_holds(problem, expected, Box(rng.choice(OPTIONS))).status is Status.CONVERGED
    assert_holds(problem, expected, Box(BoxOptions(finish_limit=5)), replace(ONE, node_limit=rng.randint(1, 20)))
    assert_holds(problem, expected, Sample(SampleOptions(points=500)))


def check_written_questions(seed: int) -> None:
    rng = random.Random(seed)
    problem = with_texts(rng, random_problem(rng, eps=False, max_pieces=60))
    for prop in asked(problem, seed):
        own = problem._replace(property=prop)
        assert_holds(own, naive_measure(*own), Box(rng.choice(OPTIONS)))


def test_rules_as_they_are_written_equal_the_oracle() -> None:
    for seed in range(24):
        check_texts(seed)


def test_questions_about_partners_with_rules_as_they_are_written_equal_the_oracle() -> None:
    for seed in range(3):
        check_written_questions(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_a_thousand_rules_as_they_are_written_equal_the_oracle(block: int) -> None:
    for seed in range(1000 + 60 * block, 1060 + 60 * block):
        check_texts(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many_questions_about_partners_with_rules_as_they_are_written_equal_the_oracle(block: int) -> None:
    for seed in range(1000 + 30 * block, 1030 + 30 * block):
        check_written_questions(seed)


def test_what_is_proved_outside_and_what_is_open_add_up_and_draws_from_it_hold_the_oracle() -> None:
    """A forbidden x in an open box is drawn, and is low; what is forbidden elsewhere is low already."""
    opened = 0
    for seed in range(45):
        rng = random.Random(seed)
        if seed % 3 == 2:
            grid = with_rules(rng, build_any_grid(*random_class_problem(seed, max_pieces=150, max_pairs=8000)))
        else:
            grid = with_rules(rng, build_grid(*random_problem(rng, eps=seed % 3 == 1, max_pieces=150, max_trees=12)))
        few = replace(ONE, node_limit=rng.randint(1, 4))
        outcome = Box(BoxOptions(finish_limit=5, mixed_limit=0, cell_limit=1)).run(grid, few, Watch(few))
        if outcome.open is None:
            continue
        opened += bool(grid.forbidden)
        outside = outcome.outside
        assert outside is not None
        parts = (outside.fair, outside.unfair, outside.low)
        assert float(sum(parts)) + outcome.open.masses().sum() == pytest.approx(1, abs=1e-9)
        strata = [Stratum(Fraction(1), grid, outcome.open, tuple(used_axes(grid)))]
        options = SampleOptions(points=3000)
        drawn = sample(grid, strata, outside, ONE, Watch(ONE), options, certain=outcome.decided).statistical
        expected = naive_masses(grid)
        if drawn is not None and expected.low < 1:
            assert drawn.lower <= 1 - expected.unfair / (1 - expected.low) <= drawn.upper
    assert opened > 2


def test_boxes_are_cut_into_disjoint_parts_on_which_every_rule_holds_or_holds_nowhere() -> None:
    rng = random.Random(3)
    for _ in range(50):
        sizes = [rng.randint(1, 4) for _ in range(4)]
        rules = [
            Rule(
                tuple(
                    (a, rng.randint(1, (1 << sizes[a]) - 1)) for a in sorted(rng.sample(range(4), rng.randint(0, 3)))
                ),
                ((9, 1),) if rng.random() < 0.4 else (),
            )
            for _ in range(rng.randint(1, 5))
        ]
        left, gone = cut_along_rules([(1 << n) - 1 for n in sizes], rules)
        seen: set[tuple[int, ...]] = set()
        for parts, forbidden in ((left, False), (gone, True)):
            for box in parts:
                cells = [tuple(point) for point in np.ndindex(*sizes) if all(m >> c & 1 for m, c in zip(box, point))]
                assert cells
                assert not seen & {*cells}
                seen |= {*cells}
                holds = [{all(mask >> cell[a] & 1 for a, mask in rule.parts) for cell in cells} for rule in rules]
                if forbidden:
                    assert any(on == {True} and not rule.rest for on, rule in zip(holds, rules))
                else:
                    assert all(len(on) == 1 for on in holds)
                    assert not any(on == {True} and not rule.rest for on, rule in zip(holds, rules))
        assert len(seen) == np.prod(sizes)


def test_rules_that_leave_nothing_are_answered_at_once() -> None:
    grid = next(
        grid for grid in (build_grid(*random_problem(random.Random(seed), eps=False)) for seed in range(9)) if grid.cuts
    )
    axis = grid.cuts[0].axis
    whole = (1 << grid.axes[axis].n_cells) - 1
    empty = replace(grid, forbidden=(Forbidden(((axis, 1),)), Forbidden(((axis, whole & ~1),))))
    outcome = Box().run(empty, ONE, Watch(ONE))
    assert (outcome.status, outcome.decided.low) == (Status.CONVERGED, 1)


def test_too_many_parts_are_refused_by_name_and_auto_draws_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxqte.engines.box.rules.MOST_BOXES", 0)
    grids = (build_grid(*random_problem(random.Random(seed), eps=False, max_pieces=60)) for seed in range(20))
    found = ((grid, a) for grid in grids for a, x in enumerate(grid.axes) if x.n_cells > 1 and not x.sensitive)
    grid, at = next(found)
    ruled = replace(grid, forbidden=(Forbidden(((at, 1),)),))
    with pytest.raises(EngineError, match="the rules cut the space into more than 0 boxes; use engine 'sample'"):
        Box().run(ruled, ONE, Watch(ONE))
    limits = Limits(workers=1, time_limit=0.2)
    drawn = Auto().run(ruled, limits, Watch(limits))
    assert "the rules cut" in drawn.details["exact_engine"]
    assert drawn.decided.low == ruled.forbidden_mass


def test_rules_take_no_time_where_there_are_none() -> None:
    """What a grid without rules is compiled to has none, and no trees beyond its own."""
    grid = build_grid(*random_problem(random.Random(5), eps=True))
    problem = compile_problem(grid)
    assert (problem.cap, problem.rules, len(problem.roots)) == (None, [], len(grid.roots))
