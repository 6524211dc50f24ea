"""The statistical engine: its intervals hold as often as they say, and say what they are."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from boxqte import Fairness, quantify
from boxqte.engines.box.engine import Box
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import used_axes
from boxqte.engines.exhaustive import Exhaustive
from boxqte.engines.protocol import Decided, Limits, Status, Watch
from boxqte.engines.sample import sequence
from boxqte.engines.sample.draws import Boxes, Draws, Stratum, WholeSpace
from boxqte.engines.sample.engine import Sample, SampleOptions, sample
from boxqte.errors import EngineError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from tests import resume_child
from tests.engines.test_point_partners import questions
from tests.questions.test_partners import asked
from tests.strategies import random_problem

ONE = Limits(workers=1)


def exact(grid: Grid) -> Decided:
    return Exhaustive().run(grid, ONE, Watch(ONE)).decided


class SomeBoxes:
    """Some of the base cells of the first axis; the rest of the space counts as decided."""

    def __init__(self, grid: Grid, cells: list[int]):
        self.word = sum(1 << c for c in cells)
        self.mass = float(sum(grid.axes[0].masses[c] for c in cells))

    def masses(self) -> np.ndarray:
        return np.array([self.mass])

    def boxes(self, at: np.ndarray) -> np.ndarray:
        return np.full((len(at), 1, 1), self.word, np.uint64)


def part(grid: Grid, cells: list[int]) -> Decided:
    """The verdicts on the inputs whose first base cell is none of these."""
    from boxqte.engines.kinds import FAIR, LOW, UNFAIR
    from boxqte.engines.point import PointDecider

    points = np.array(list(itertools.product(*(range(len(a.refined)) for a in grid.axes))), np.int64)
    points = points[~np.isin(grid.axes[0].base[points[:, 0]], cells)]
    verdict = PointDecider(grid).decide(points).verdict
    sums = {FAIR: 0, UNFAIR: 0, LOW: 0}
    for row, kind in zip(points.tolist(), verdict.tolist()):
        sums[kind] += math.prod(axis.refined_masses[c] for axis, c in zip(grid.axes, row))
    return Decided(sums[FAIR], sums[UNFAIR], sums[LOW])


def one_stratum(grid: Grid, boxes: Boxes, axis_ids: tuple[int, ...]) -> list[Stratum]:
    """Boxes of a product."""
    return [Stratum(Fraction(1), grid, boxes, axis_ids)]


def covered(seed: int, confidence: float, points: int) -> bool | None:
    """Whether the interval of one problem holds; None if the problem has no measure. Half of them are partly decided."""
    return holds(
        build_grid(*random_problem(random.Random(seed), max_pieces=200, max_pairs=10_000)), seed, confidence, points
    )


def holds(grid: Grid, seed: int, confidence: float, points: int) -> bool | None:
    truth = exact(grid).measure()
    if truth is None:
        return None
    options = SampleOptions(confidence=confidence, seed=seed, points=points)
    axis = grid.axes[0]
    cells = [c for c in range(axis.n_cells) if c % 2 == 0]
    if seed % 2 and axis.n_cells <= 64 and sum(axis.masses[c] for c in cells):
        outcome = sample(
            grid, one_stratum(grid, SomeBoxes(grid, cells), (0,)), part(grid, cells), ONE, Watch(ONE), options
        )
    else:
        outcome = Sample(options).run(grid, ONE, Watch(ONE))
    found = outcome.statistical
    assert found is not None
    assert found.points == points
    return found.lower <= truth[0] <= found.upper


@pytest.mark.parametrize(("confidence", "least"), [(0.95, 0.935), (0.999999, 1.0)])
def test_intervals_hold_as_often_as_they_say(confidence: float, least: float) -> None:
    held = [covered(seed, confidence, 1500) for seed in range(60)]
    known = [h for h in held if h is not None]
    assert len(known) > 40
    assert sum(known) >= least * len(known)


def with_partners(seed: int, confidence: float, points: int) -> list[bool]:
    """The same for the questions with partners about one problem."""
    problem = random_problem(random.Random(seed), eps=False, max_pieces=200)
    grids = [build_grid(problem.ensemble, problem.space, prop) for prop in questions(problem, seed)]
    return [h for h in (holds(grid, seed, confidence, points) for grid in grids) if h is not None]


@pytest.mark.parametrize(("confidence", "least"), [(0.95, 0.935), (0.999999, 1.0)])
def test_intervals_of_questions_with_partners_hold_as_often_as_they_say(confidence: float, least: float) -> None:
    held = [h for seed in range(12) for h in with_partners(seed, confidence, 1500)]
    assert len(held) > 40
    assert sum(held) >= least * len(held)


@pytest.mark.slow
@pytest.mark.parametrize(("confidence", "least"), [(0.95, 0.935), (0.999999, 1.0)])
def test_many_intervals_of_questions_with_partners_hold_as_often_as_they_say(confidence: float, least: float) -> None:
    held = [h for seed in range(300) for h in with_partners(seed, confidence, 4000)]
    assert len(held) >= 1000
    assert sum(held) >= least * len(held)


def test_auto_draws_from_what_is_open_for_questions_with_partners() -> None:
    """Stopped at once, it leaves boxes open; the interval of the draws from them holds."""
    drawn = 0
    for seed in range(12):
        problem = random_problem(random.Random(seed), eps=False, max_pieces=400)
        for prop in asked(problem, seed):
            grid = build_grid(problem.ensemble, problem.space, prop)
            truth = exact(grid).measure()
            limits = Limits(time_limit=30, node_limit=1, workers=1)
            options = BoxOptions(finish_limit=5, call_nodes=1, batch=1)
            outcome = Box(options).run(grid, limits, Watch(limits))
            if truth is None or outcome.open is None:
                continue
            outside = outcome.outside or outcome.decided
            strata = one_stratum(grid, outcome.open, tuple(used_axes(grid)))
            options = SampleOptions(points=1500)
            found = sample(grid, strata, outside, ONE, Watch(ONE), options, certain=outcome.decided).statistical
            assert found is not None
            assert found.lower <= truth[0] <= found.upper, prop
            drawn += 1
    assert drawn > 5


@pytest.mark.slow
@pytest.mark.parametrize(("confidence", "least"), [(0.95, 0.935), (0.999999, 1.0)])
def test_intervals_of_a_thousand_problems_hold_as_often_as_they_say(confidence: float, least: float) -> None:
    held = [h for h in (covered(seed, confidence, 4000) for seed in range(1200)) if h is not None]
    assert len(held) >= 1000
    assert sum(held) >= least * len(held)


def test_the_sequence_holds_at_all_times_at_once() -> None:
    """Bernoulli draws, looked at after every hundred: ever wrong in at most 5 % (in fact far fewer) of the runs."""
    rng = np.random.default_rng(1)
    proved = sequence.Proved(0.2, 0.1, 0.6, 0.0)
    wrong = 0
    for _ in range(60):
        q = rng.dirichlet([1, 1, 0.5])
        truth = proved.measure(q[0], q[1])
        counts = np.zeros(3, int)
        bad = False
        for _ in range(15):
            counts += rng.multinomial(100, q)
            low, high = sequence.interval(counts.tolist(), sequence.flat_prior(True), proved, 0.05)
            bad |= not low <= truth <= high
        wrong += bad
    assert wrong <= 6  # 3 expected at the very most; more than 6 of 60 has probability below 4 %


def test_the_interval_is_the_range_of_the_measure_over_the_region() -> None:
    """Against a fine grid of q: every q in the region lies inside, and the ends are reached."""
    proved, alpha = sequence.Proved(0.1, 0.3, 0.5, 0.0), 0.01
    counts, prior = [60, 25, 15], sequence.flat_prior(True)
    low, high = sequence.interval(counts, prior, proved, alpha)
    floor = prior.evidence(counts) - math.log(1 / alpha)
    inside = []
    for f, u in itertools.product(np.linspace(0.001, 0.999, 400), repeat=2):
        if f + u < 1:
            likelihood = sum(n * math.log(q) for n, q in zip(counts, (f, u, 1 - f - u)))
            if likelihood >= floor:
                inside.append(proved.measure(f, u))
    assert low <= min(inside) <= low + 0.005
    assert high - 0.005 <= max(inside) <= high


def test_evidence_is_the_probability_of_the_draws_one_by_one() -> None:
    prior, drawn = sequence.Prior((0.5, 2.0, 1.25)), [0, 1, 1, 2, 0, 1]
    weights, logs = list(prior.weights), 0.0
    for kind in drawn:
        logs += math.log(weights[kind] / sum(weights))
        weights[kind] += 1
    assert prior.evidence([drawn.count(k) for k in range(3)]) == pytest.approx(logs)


def test_a_tuned_prior_gives_a_shorter_interval_than_a_flat_one() -> None:
    proved, alpha = sequence.Proved(0.0, 0.0, 1.0, 0.0), 5e-7
    tuned = sequence.tuned_prior([700, 300, 0], 100_000, alpha, False)
    widths = []
    for prior in (tuned, sequence.flat_prior(False)):
        low, high = sequence.interval([70_000, 30_000, 0], prior, proved, alpha)
        assert low < 0.7 < high
        widths.append(high - low)
    assert widths[0] < 0.93 * widths[1]
    assert widths[0] < 2 * 5.9 * math.sqrt(0.21 / 100_000)


def test_draws_follow_the_masses_and_stay_in_their_boxes() -> None:
    grid = build_grid(*random_problem(random.Random(5)))
    points = Draws(grid, WholeSpace(), (), 3).round(20_000)
    for a, axis in enumerate(grid.axes):
        share = np.bincount(points[:, a], minlength=len(axis.refined)) / len(points)
        assert np.allclose(share, [float(m) for m in axis.refined_masses], atol=0.02)
    cells = [c for c in range(grid.axes[0].n_cells) if c % 2 == 0]
    points = Draws(grid, SomeBoxes(grid, cells), (0,), 3).round(1000)
    assert np.isin(grid.axes[0].base[points[:, 0]], cells).all()


def test_the_same_seed_draws_the_same_points() -> None:
    grid = build_grid(*random_problem(random.Random(5)))
    runs = [Sample(SampleOptions(seed=s, points=500)).run(grid, ONE, Watch(ONE)).statistical for s in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_points_that_are_given_up_count_against_both_ends() -> None:
    grid = build_grid(*random_problem(random.Random(8), max_pieces=400))
    found = Sample(SampleOptions(points=2000, budget=1)).run(grid, ONE, Watch(ONE)).statistical
    assert found is not None
    truth = exact(grid).measure()
    assert truth is not None
    assert found.lower <= truth[0] <= found.upper


def test_sampling_stops_at_the_gap_and_says_so() -> None:
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="sample", gap=0.2)
    assert result.status is Status.CONFIDENT_GAP
    assert result.statistical is not None
    assert result.statistical.width <= 0.2
    assert result.bounds is not None
    assert (result.bounds.lower, result.bounds.upper) == (0, 1)
    assert result.to_json()["statistical"]["confidence"] == 0.999999
    assert "statistical, confidence 0.999999" in repr(result)
    assert "probability 0.999999" in result.guarantee()


def test_with_a_time_limit_points_are_drawn_until_it_ends() -> None:
    """A million of them took a fraction of it, and the rest was left unused."""
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="sample", time_limit=3.0)
    assert result.status is Status.TIME
    few = quantify(
        loan_ensemble(), loan_space(), Fairness("race"), engine="sample", time_limit=60.0, options={"points": 1000}
    )
    assert few.status is Status.POINTS
    assert few.statistical is not None
    assert few.statistical.points == 1000


def test_auto_is_exact_without_a_time_limit() -> None:
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"))
    assert result.engine == "auto"
    assert result.converged
    assert result.statistical is None


@pytest.mark.parametrize("eps", [False, True])
def test_draws_from_the_boxes_that_the_exact_engine_leaves_open(eps: bool) -> None:
    """Stopped after one node, the box engine hands out its open boxes; points drawn from them complete its bounds."""
    checked = 0
    for seed in range(40):
        problem = random_problem(random.Random(seed), max_attributes=6, max_trees=10, max_pieces=3000, eps=eps)
        grid = build_grid(*problem)
        truth = exact(grid).measure()
        few = Limits(node_limit=1, workers=1)
        left = Box(BoxOptions(finish_limit=8, mixed_limit=0, cell_limit=1)).run(grid, few, Watch(few))
        if left.open is None or truth is None or grid.has_tolerance != eps:
            continue
        assert left.outside is not None
        assert left.outside.undecided == pytest.approx(left.open.masses().sum(), abs=1e-9)
        options = SampleOptions(points=2000, seed=seed)
        strata = one_stratum(grid, left.open, tuple(used_axes(grid)))
        drawn = sample(grid, strata, left.outside, ONE, Watch(ONE), options).statistical
        assert drawn is not None
        assert drawn.lower <= truth[0] <= drawn.upper
        checked += 1
    assert checked >= 3


def test_auto_keeps_time_for_draws() -> None:
    watch = Watch(Limits(time_limit=100.0))
    with watch.shortened(0.3):
        assert 29 < watch.seconds_left < 30
    assert 99 < watch.seconds_left < 100


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"confidence": 0.2}, {"points": 0}, {"seed": -1}])
def test_options_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(EngineError, match=next(iter(wrong))):
        quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="sample", options=wrong)


def test_where_memory_ends_the_search_the_time_goes_to_draws() -> None:
    question = resume_child.ensemble(), resume_child.space(), Fairness("a0")
    found = quantify(
        *question, time_limit=1.0, memory_limit=1, workers=1, options={"call_nodes": 20, "finish_limit": 5}
    )
    assert found.status is Status.TIME
    assert found.statistical is not None
    assert found.statistical.points > 1000
    truth = quantify(*question)
    assert found.lower <= found.statistical.lower <= truth.upper  # type: ignore[operator]
    assert truth.lower <= found.statistical.upper <= found.upper  # type: ignore[operator]
