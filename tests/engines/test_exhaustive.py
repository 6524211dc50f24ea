"""Grid and exhaustive engine against the oracle: the same rationals, whatever the problem."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import boxqte
from boxqte.engines.exhaustive import Exhaustive, ExhaustiveOptions, dense_margins, verdicts, without_idle_axes
from boxqte.engines.protocol import Limits, Outcome, Status, Watch
from boxqte.errors import EngineError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import EnsembleBuilder, Missing, Test, TreeEnsemble
from boxqte.questions.axes import Axis, Cell
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from boxqte.questions.properties import Fairness, Robustness
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.naive import MISSING, NaiveAnswer, naive_quantify, naive_row_at
from tests.strategies import Problem, problems, random_problem
from tests.test_naive import COIN, CROSSED_PROPERTY, UNIT_B, stump, stumps

# Problems that stress one thing each; the first are those whose oddities tests/test_strategies.py counts.
STRESS: dict[str, dict[str, Any]] = {
    "anything": {},
    "anything large": {"max_pieces": 3_000, "max_pairs": 100_000, "max_trees": 10, "max_depth": 5},
    "reals with tolerances": {"max_values": 3, "max_thresholds": 5, "max_attributes": 2, "kappa": False},
    "integers and categories": {"real": False, "max_values": 12, "max_attributes": 3},
    "robustness": {"fairness": False},
    "fairness without tolerance": {"robustness": False, "eps": False, "max_attributes": 5},
    "one attribute": {
        "max_attributes": 1,
        "max_values": 40,
        "max_thresholds": 12,
        "max_trees": 12,
        "max_pieces": 2_000,
    },
}


def run(grid: Grid, **limits: Any) -> Outcome:
    bounds = Limits(**limits)
    return Exhaustive().run(grid, bounds, Watch(bounds))


def answer(problem: tuple[TreeEnsemble, Space, Any]) -> NaiveAnswer:
    """What the engine proves, in the oracle's form."""
    outcome = run(build_grid(*problem))
    assert outcome.status is Status.CONVERGED
    decided = outcome.decided
    assert decided.undecided == 0
    ends = decided.measure()
    if ends is not None:
        assert ends[0] == ends[1]
    confident = Fraction(decided.fair) + Fraction(decided.unfair)
    return NaiveAnswer(confident, Fraction(decided.unfair), None if ends is None else ends[0])


def agrees(problem: tuple[TreeEnsemble, Space, Any]) -> None:
    assert answer(problem) == naive_quantify(*problem)


# --- thousands of random problems -------------------------------------------------------------------------------------


@settings(max_examples=200, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems(max_pieces=200, max_pairs=10_000))
def test_the_engine_equals_the_oracle_on_what_hypothesis_thinks_of(problem: Problem) -> None:
    agrees(problem)


@pytest.mark.parametrize("part", range(15))
def test_the_engine_equals_the_oracle_on_every_oddity(part: int) -> None:
    for seed in range(100 * part, 100 * part + 100):
        agrees(random_problem(random.Random(seed), max_pieces=300))


@pytest.mark.parametrize("what", STRESS)
def test_the_engine_equals_the_oracle_under_stress(what: str) -> None:
    for seed in range(60):
        agrees(random_problem(random.Random(f"{what} {seed}"), **STRESS[what]))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_the_engine_equals_the_oracle_on_thousands_more(part: int) -> None:
    for seed in range(2_000 + 1_000 * part, 3_000 + 1_000 * part):
        agrees(random_problem(random.Random(seed)))


# --- cell by cell: also those of mass 0, which no sum shows -----------------------------------------------------------


def points_of(axis: Axis, cell: Cell) -> list[Any]:
    """Points of a refined cell as the oracle writes them: its ends, as far as they belong to it, and one between."""
    if cell.missing:
        return [MISSING]
    if cell.low is None or cell.high is None:
        return [axis.attribute.values[v] for v in cell.values]
    (low, low_side), (high, high_side) = cell.low, cell.high
    if cell.integral:
        return sorted({int(low), int(high) - 1})
    ends = ([low] if low_side == 0 else []) + ([high] if high_side == 1 else [])
    return sorted({*ends, (low + high) / 2} if low < high else {low})


def judged_cells(grid: Grid) -> Iterator[tuple[dict[str, Any], bool, bool]]:
    """A few points of every refined cell, with the engine's verdict on the cell."""
    confident, unfair = verdicts(grid, dense_margins(grid))
    rng = random.Random(0)
    for at in product(*(range(len(axis.refined)) for axis in grid.axes)):
        x = {a.attribute.name: rng.choice(points_of(a, a.refined[i])) for a, i in zip(grid.axes, at)}
        yield x, bool(confident[at]), bool(unfair[at])


def test_every_cell_is_judged_as_the_oracle_judges_its_points() -> None:
    cells = 0
    for seed in range(120):
        problem = random_problem(random.Random(seed), max_pieces=250, max_pairs=20_000)
        for x, confident, unfair in judged_cells(build_grid(*problem)):
            row = naive_row_at(*problem, x)
            assert (confident, unfair) == (row.confident, row.counterexample), (problem, x)
            cells += 1
    assert cells > 1_500


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_the_loan_example_is_352_of_505() -> None:
    # The derivation is in tests/test_naive.py.
    result = boxqte.quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive")
    assert result.exact == Fraction(352, 505)
    assert result.decided.unfair == Fraction(153, 505)
    assert (result.decided.fair, result.decided.low) == (Fraction(352, 505), 0)


def test_the_loan_examples_appendix_is_4379_of_4800() -> None:
    prop = Fairness("race", {"income": 5, "age": 5}, 0.8)
    result = boxqte.quantify(loan_ensemble(), loan_space(), prop, engine="exhaustive")
    assert result.exact == Fraction(4379, 4800)
    assert 1 - Fraction(result.decided.low) == Fraction(24, 101)
    assert result.decided.unfair == Fraction(421, 20200)


def test_where_nothing_is_confident_the_measure_is_undefined() -> None:
    model, prop = stump(Test.AT_MOST_F64, 0, 0.0, 0.0), Fairness("a", tie="paper")
    result = boxqte.quantify(model, Space([COIN]), prop, engine="exhaustive")
    assert result.undefined
    assert (result.exact, result.value, result.bounds) == (None, None, None)


def test_margins_that_need_more_than_64_bits_are_summed_exactly() -> None:
    # 1e300 + 1e-300 - 1e300: any float sum is 0, the exact one is positive.
    model = stumps(
        ("a", Test.AT_MOST_F64, 0, 1e300, 1e300),
        ("a", Test.AT_MOST_F64, 0, 1e-300, -1e-300),
        ("a", Test.AT_MOST_F64, 0, -1e300, -1e300),
    )
    problem = (model, Space([Attribute.categorical("a", [0, 1]), Attribute.integer("b", 0, 3)]), Fairness("a"))
    assert dense_margins(build_grid(*problem)).dtype == object
    assert answer(problem).counterexample == 1
    agrees(problem)


# --- bugs that were found, one test each ------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", [2.0**-100, 2.0**-149, 1e-300])
def test_regression_a_confidence_threshold_of_more_than_28_digits_is_exact(leaf: float) -> None:
    # The floor of the scaled logit was added up in decimal's default context of 28 digits, so that margins that agree
    # with logit(kappa) in the first 28 digits were judged by chance. logit(4/5) = ln 4 = m * 2**-k + something.
    from decimal import ROUND_FLOOR, Decimal, localcontext

    bits = Fraction(leaf).denominator.bit_length() - 1
    with localcontext() as context:
        context.prec = 800
        scaled = int((Decimal(4).ln() * Decimal(2) ** bits).to_integral_value(ROUND_FLOOR))
    for base, confident in ((Fraction(scaled, 2**bits), 0), (Fraction(scaled + 1, 2**bits), 1)):
        builder = EnsembleBuilder()
        builder.add_tree(feature=[0], test=[Test.LEAF], threshold=[0], left=[0], right=[0], value=[leaf])
        model = builder.build(library="example", feature_names=("a",), base=(base - Fraction(leaf),), link="sigmoid")
        assert answer((model, Space([COIN]), Fairness("a", kappa=0.8))).confident == confident


def test_regression_a_base_that_is_no_dyadic_rational_is_accepted() -> None:
    # F = 1/3 - leaf with leaves 1/4 and 3/8: 1/12 and -1/24. It was refused as 'not a dyadic rational'.
    model = stump(Test.AT_MOST_F64, 0, -0.25, -0.375, base=(Fraction(1, 3),))
    for tie in ("library", "paper"):
        problem = (model, Space([COIN]), Fairness("a", tie=tie))
        assert answer(problem) == NaiveAnswer(Fraction(1), Fraction(1), Fraction(0))
        agrees(problem)
    for kappa in ("0.51", "0.5104", "0.5105", "0.52", "0.5208", "0.5209"):  # sigmoid(1/24), sigmoid(1/12)
        agrees((model, Space([COIN]), Fairness("a", kappa=kappa)))


def test_regression_more_than_32_attributes_are_fine_if_few_of_them_take_part() -> None:
    names = [f"x{i}" for i in range(90)]
    builder = EnsembleBuilder()
    builder.add_tree(
        feature=[88, 0, 0], test=[Test.LESS_F32, Test.LEAF, Test.LEAF], threshold=[0.5, 0, 0], left=[1, 0, 0],
        right=[2, 0, 0], value=[0, -1, 1],
    )  # fmt: skip
    model = builder.build(library="example", feature_names=names, base=(0,), link="sigmoid")
    space = Space([Attribute.real(name, 0, 1) for name in names])
    grid = build_grid(model, space, Fairness("x88", epsilon=Fraction(1, 10)))
    assert len(without_idle_axes(grid).axes) == 1
    assert run(grid).decided.unfair == 1
    assert run(build_grid(model, space, Robustness(Fraction(1, 10)))).decided.unfair == Fraction(1, 5)


def test_idle_axes_that_are_sensitive_stay_because_they_decide_what_differs() -> None:
    # b < 1/2 ? -1 : 1; a is tested by no tree. If it has a second value, x' may move b; if not, there is no x'.
    model = stumps(("b", Test.LESS_F32, 0.5, -1.0, 1.0))
    for a, unfair in ((Attribute.categorical("a", [0, 1]), Fraction(1, 2)), (Attribute.categorical("a", [0]), 0)):
        problem = (model, Space([a, UNIT_B]), CROSSED_PROPERTY)
        assert answer(problem).counterexample == unfair
        agrees(problem)


def test_values_that_share_a_code_are_one_cell_of_two_points() -> None:
    model = stumps(("a", Test.LESS_F32, 1, -1.0, 0.0), ("b", Test.LESS_F32, 0.5, 0.5, 2.0))
    shared = Attribute.categorical("a", ["x", "y", "z"], codes=[0, 5, 5])
    problem = (model, Space([shared, UNIT_B]), CROSSED_PROPERTY)
    grid = build_grid(*problem)
    assert [cell.values for cell in grid.axes[0].cells] == [(0,), (1, 2)]
    assert grid.axes[0].single.tolist() == [True, False]
    agrees(problem)
    once = replace(shared, values=("x", "y"), codes=((0.0,), (5.0,)))
    assert build_grid(model, Space([once, UNIT_B]), CROSSED_PROPERTY).axes[0].single.tolist() == [True, True]


# --- the zero rules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Missing.WITH_ZERO, Missing.ZERO_EXACT])
@pytest.mark.parametrize("test", [Test.LESS_F32, Test.AT_MOST_F64])
@pytest.mark.parametrize("threshold", [-1.0, 0.0, 1.0, float(np.float32(1e-35)), -float(np.float32(1e-35)), 2.0**-149])
@pytest.mark.parametrize("default_left", [False, True])
def test_zero_that_follows_the_default_is_cut_out_of_any_domain(
    rule: Missing, test: Test, threshold: float, default_left: bool
) -> None:
    model = stump(test, threshold, missing=rule, default_left=default_left)
    for domain in ((-2, 2), (0, 1), (-1, 0), (0, 0), (1, 2), ("-1e-35", "2e-35")):
        real = Attribute.real("a", *domain, missing=Fraction(1, 7))
        agrees((model, Space([real]), Fairness("a")))
        agrees((model, Space([real]), Robustness({"a": Fraction(1e-35)})))
        agrees((model, Space([real]), Robustness({"a": Fraction(1, 3)})))
        if not isinstance(domain[0], str):
            integer = Attribute.integer("a", *domain, missing=True)
            agrees((model, Space([integer]), Fairness("a")))
            agrees((model, Space([integer]), Robustness({"a": 1})))


# --- rounding ---------------------------------------------------------------------------------------------------------


def test_margins_within_the_librarys_rounding_are_reported_beside_the_result() -> None:
    # Three values of a: margins 2**-30, 1, -1. In float32 the first may be anything below u * (n + 3) * 1.
    model = stumps(
        ("a", Test.AT_MOST_F64, 0, 2.0**-30, 1.0), ("a", Test.AT_MOST_F64, 1, 0.0, -2.0)
    )  # a = 0: 2**-30, a = 1: 1, a = 2: -1
    space = Space([Attribute.categorical("a", [0, 1, 2]), Attribute.categorical("b", [0, 1])])
    third = 1 / 3
    narrow = boxqte.quantify(replace(model, sum_dtype="float32"), space, Fairness("b"), engine="exhaustive")
    assert narrow.rounding_ambiguous == third
    wide = boxqte.quantify(model, space, Fairness("b"), engine="exhaustive")
    assert wide.rounding_ambiguous == 0
    # In float64 the margin 2**-52 is safe by its sum, but not if the class is decided on p > 1/2.
    tiny = stumps(("a", Test.AT_MOST_F64, 0, 2.0**-52, 2.0**-40), ("a", Test.AT_MOST_F64, 1, 0.0, -1.0))
    for decides_on, mass in (("margin", 0.0), ("probability", third)):
        exact = replace(tiny, value=np.where(tiny.value == -1.0, -(2.0**-39), tiny.value), decides_on=decides_on)
        assert boxqte.quantify(exact, space, Fairness("b"), engine="exhaustive").rounding_ambiguous == mass


def test_regression_a_majority_of_one_vote_is_no_rounding_error() -> None:
    # Three trees that vote 0 or 1: the unit of the grid was one vote, and so was the rounding error, rounded up.
    model = stumps(*(("a", Test.AT_MOST_F64, t, 0.0, 1.0) for t in (0, 1, 2)))
    space = Space([Attribute.categorical("a", [0, 1, 2, 3]), Attribute.categorical("b", [0, 1])])
    result = boxqte.quantify(replace(model, link="mean"), space, Fairness("a"), engine="exhaustive")
    assert result.rounding_ambiguous == 0
    assert result.exact == 0


# --- limits -----------------------------------------------------------------------------------------------------------


def test_too_many_cells_are_refused_with_their_number() -> None:
    grid = build_grid(loan_ensemble(), loan_space(), Fairness("race"))
    with pytest.raises(EngineError, match=r"the grid has 18 cells, more than max_cells = 17"):
        Exhaustive(ExhaustiveOptions(max_cells=17)).run(grid, Limits(), Watch(Limits()))
    names = [f"x{i}" for i in range(1100)]
    builder = EnsembleBuilder()
    for i in range(1100):
        builder.add_tree(
            feature=[i, 0, 0], test=[Test.LESS_F32, Test.LEAF, Test.LEAF], threshold=[0.5, 0, 0], left=[1, 0, 0],
            right=[2, 0, 0], value=[0, -1, 1],
        )  # fmt: skip
    model = builder.build(library="example", feature_names=names, base=(0,), link="sigmoid")
    grid = build_grid(model, Space([Attribute.real(name, 0, 1) for name in names]), Fairness("x0"))
    with pytest.raises(EngineError, match=r"the grid has about 10\^331 cells"):  # 2**1100, beyond every float
        run(grid)


def test_more_attributes_than_an_array_has_axes_are_refused() -> None:
    names = [f"x{i}" for i in range(33)]
    builder = EnsembleBuilder()
    builder.add_tree(feature=[0], test=[Test.LEAF], threshold=[0], left=[0], right=[0], value=[1])
    model = builder.build(library="example", feature_names=names, base=(0,), link="sigmoid")
    space = Space([Attribute.categorical(name, [0]) for name in names])
    with pytest.raises(EngineError, match="33 attributes take part, at most 32 fit"):
        run(build_grid(model, space, Fairness(names)))


def test_when_time_is_up_nothing_is_claimed() -> None:
    outcome = run(build_grid(loan_ensemble(), loan_space(), Fairness("race")), time_limit=0.0)
    assert outcome.status is Status.TIME
    assert outcome.decided.undecided == 1


def test_an_interrupt_leaves_an_honest_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("boxqte.engines.exhaustive.verdicts", interrupt)
    outcome = run(build_grid(loan_ensemble(), loan_space(), Fairness("race")))
    assert outcome.status is Status.INTERRUPTED
    assert outcome.decided.undecided == 1
