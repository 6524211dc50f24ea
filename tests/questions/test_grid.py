"""The grid: columns, masses, pruned trees, rounding of inputs, and class and confidence as comparisons of integers."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boxqte.errors import ModelError, PropertyError, SpaceError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble
from boxqte.questions.axes import Cell
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid, Thresholds
from boxqte.questions.properties import Fairness, Property, Robustness
from boxqte.space.attributes import Attribute, Histogram
from boxqte.space.space import Space
from tests.naive import float32
from tests.questions.test_axes import UNIT, axis_of, cells_of, cuts_of, near_of
from tests.strategies import Problem, problems, random_problem
from tests.test_naive import COIN, stump, stumps

ZERO, HALF = Fraction(0), Fraction(1, 2)
LARGEST_F32 = float(np.finfo(np.float32).max)


# --- the loan example by hand -----------------------------------------------------------------------------------------


def test_the_loan_grid_has_the_cells_of_the_papers_figure() -> None:
    grid = build_grid(loan_ensemble(), loan_space(), Fairness("race", {"income": 5, "age": 5}, 0.8))
    income, race, age = grid.axes
    assert cells_of(income) == ["[0, 300)", "[300, 600)", "[600, 1000]"]
    assert income.masses == (Fraction(3, 10), Fraction(3, 10), Fraction(4, 10))
    assert [cell.values for cell in race.cells] == [(0, 1), (2,), (3, 4)]
    assert race.masses == (Fraction(2, 5), Fraction(1, 5), Fraction(2, 5))
    assert race.single.tolist() == [False, True, False]
    assert cells_of(age) == ["0..49", "50..100"]
    assert age.masses == (Fraction(50, 101), Fraction(51, 101))
    assert near_of(age) == [("0..44", 0, 0, 0), ("45..49", 0, 0, 1), ("50..54", 1, 0, 1), ("55..100", 1, 1, 1)]
    assert near_of(income) == [
        ("[0, 295)", 0, 0, 0), ("[295, 300)", 0, 0, 1), ("[300, 305)", 1, 0, 1), ("[305, 595)", 1, 1, 1),
        ("[595, 600)", 1, 1, 2), ("[600, 605)", 2, 1, 2), ("[605, 1000]", 2, 2, 2)]  # fmt: skip
    assert (grid.n_cells(), grid.n_refined()) == (3 * 3 * 2, 7 * 3 * 4)
    assert grid.rounding > 0
    assert grid.input_rounding > 0


# --- masses and consistency on random problems ------------------------------------------------------------------------


def inside(cell: Cell, other: Cell) -> bool:
    """Whether a cell lies in another."""
    if cell.low is None or cell.high is None or other.low is None or other.high is None:
        return cell == other
    return other.low <= cell.low < cell.high <= other.high


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(problems(max_pieces=10_000, max_pairs=10**7, max_attributes=5))
def test_masses_sum_to_1_and_refined_cells_divide_base_cells(problem: Problem) -> None:
    for axis in build_grid(*problem).axes:
        assert sum(axis.masses) == sum(axis.refined_masses) == 1
        assert len(axis.refined) == len(axis.base) == len(axis.near_lo) == len(axis.near_hi)
        shares = [ZERO] * axis.n_cells
        for cell, mass, base in zip(axis.refined, axis.refined_masses, axis.base.tolist()):
            assert inside(cell, axis.cells[base])
            shares[base] += mass
        assert tuple(shares) == axis.masses
        assert (axis.near_lo <= axis.base).all()
        assert (axis.base <= axis.near_hi).all()
        numeric = [cell for cell in axis.refined if cell.low is not None]
        assert all(a.high == b.low for a, b in pairwise(numeric))
        end = len(numeric) or len(axis.base)
        for column in (axis.base, axis.near_lo, axis.near_hi):
            assert (np.diff(column[:end]) >= 0).all()  # all of them grow with x


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(problems(max_pieces=10_000, max_pairs=10**7, max_attributes=5))
def test_every_edge_is_one_because_something_changes_there(problem: Problem) -> None:
    grid = build_grid(*problem)
    for at, axis in enumerate(grid.axes):
        masks = [cut.mask for cut in grid.cuts if cut.axis == at]
        assert all(mask & 1 and 0 < mask < (1 << axis.n_cells) - 1 for mask in masks)
        triples = list(zip(axis.base.tolist(), axis.near_lo.tolist(), axis.near_hi.tolist()))
        if not axis.sensitive:
            assert all(a != b for a, b in pairwise(triples))


def test_cells_that_no_test_tells_apart_are_one() -> None:
    # Before pruning: a test may be kept from cutting anything by the tests above it, but not by itself.
    for seed in range(200):
        model, space, prop = random_problem(random.Random(seed), max_depth=1, max_trees=4)
        grid = build_grid(model, space, prop)
        for at, axis in enumerate(grid.axes):
            masks = [cut.mask for cut in grid.cuts if cut.axis == at]
            present = [i for i, cell in enumerate(axis.cells) if not cell.missing]
            signatures = [tuple(mask >> i & 1 for mask in masks) for i in present]
            assert all(a != b for a, b in pairwise(signatures))
            if not axis.attribute.is_numeric:
                assert len(set(signatures)) == len(signatures)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(problems(real=False, max_pieces=300))
def test_the_pruned_trees_compute_the_ensembles_margin_in_every_cell(problem: Problem) -> None:
    model = problem.ensemble
    grid = build_grid(*problem)
    rng = random.Random(0)
    for _ in range(5):
        at = [rng.randrange(axis.n_cells) for axis in grid.axes]
        row = [math.nan] * model.n_features
        for axis, i in zip(grid.axes, at):
            cell, a = axis.cells[i], axis.attribute
            if not cell.missing:
                columns = [model.feature_names.index(c) for c in a.columns]
                if a.is_numeric:
                    assert cell.low is not None
                    codes: Any = [float(cell.low[0])]
                elif a.codes is not None:
                    codes = a.codes[cell.values[0]]
                else:
                    value, known = a.values[cell.values[0]], model.categories.get(columns[0])
                    codes = [float(value) if known is None else float(known.index(value))]
                for column, code in zip(columns, codes):
                    row[column] = code
        total = grid.base
        for node in grid.roots.tolist():
            while grid.cut[node] >= 0:
                cut = grid.cuts[grid.cut[node]]
                node = int(grid.yes[node] if cut.mask >> at[cut.axis] & 1 else grid.no[node])
            total += grid.values[grid.leaf[node]]
        shift = HALF if model.link == "mean" else ZERO
        exact = (model.exact_margin([row])[0][0] + shift) / model.factor - shift / model.factor
        assert 0 <= exact * 2**grid.scale_bits - total < 1  # F is rounded down where the base is no dyadic rational


def test_a_degenerate_tree_is_pruned_in_linear_time() -> None:
    depth = 20_000
    builder = EnsembleBuilder()
    index = np.arange(2 * depth + 1)
    inner = index < depth
    builder.add_tree(
        feature=np.where(inner, index % 7, 0), test=np.where(inner, Test.AT_MOST_F64, Test.LEAF),
        threshold=np.where(inner, index % 500, 0).astype(float), left=np.where(inner, index + depth, 0),
        right=np.where(inner, np.where(index == depth - 1, 2 * depth, index + 1), 0),
        value=np.where(inner, 0.0, index % 5 - 2.0),
    )  # fmt: skip
    names = [f"x{i}" for i in range(7)]
    model = builder.build(library="example", feature_names=names, base=(0,), link="sigmoid")
    begin = time.perf_counter()
    grid = build_grid(model, Space([Attribute.integer(name, 0, 10**6) for name in names]), Fairness("x0"))
    assert time.perf_counter() - begin < 5
    assert len(grid.cut) <= 2 * 7 * 500 + 1


def test_two_hundred_thousand_nodes_are_cut_in_seconds() -> None:
    """A tenth of the largest model that we promise to take (2,000 trees of depth 8 on 30 columns)."""
    rng = np.random.default_rng(0)
    builder = EnsembleBuilder()
    index = np.arange(511)
    bins = np.sort(rng.uniform(0, 1, (30, 256))).astype(np.float32).astype(np.float64)
    for _ in range(400):
        feature = rng.integers(0, 30, 511)
        builder.add_tree(
            feature=feature, test=np.where(index < 255, Test.LESS_F32, Test.LEAF),
            threshold=bins[feature, rng.integers(0, 256, 511)], left=2 * index + 1, right=2 * index + 2,
            value=rng.normal(size=511).astype(np.float32).astype(np.float64), default_left=rng.integers(0, 2, 511) == 1,
        )  # fmt: skip
    names = [f"x{i}" for i in range(30)]
    model = builder.build(library="example", feature_names=names, base=(0,), link="sigmoid", sum_dtype="float32")
    space = Space([Attribute.real(name, 0, 1) for name in names])
    begin = time.perf_counter()
    grid = build_grid(model, space, Fairness("x0", 0.1, 0.7))
    assert time.perf_counter() - begin < 30  # 0.6 s on an idle core
    assert len(grid.cuts) > 7_000


# --- columns ----------------------------------------------------------------------------------------------------------


def named(*names: str, **head: Any) -> TreeEnsemble:
    builder = EnsembleBuilder()
    builder.add_tree(
        feature=[0, 0, 0], test=[Test.LESS_F32, 0, 0], threshold=[0.5, 0, 0], left=[1, 0, 0], right=[2, 0, 0],
        value=[0, -1, 1],
    )  # fmt: skip
    options = {"library": "example", "base": (0,), "link": "sigmoid"} | head
    return builder.build(feature_names=names, **options)


def test_columns_are_matched_by_name_whatever_the_order() -> None:
    space = Space([Attribute.integer("b", 0, 3), Attribute.real("a", 0, 1)])
    assert [axis.n_cells for axis in build_grid(named("a", "b"), space, Robustness()).axes] == [1, 2]


@pytest.mark.parametrize("prefix", ["f", "x", "Column_", ""])
def test_a_model_without_names_of_its_own_is_matched_by_position(prefix: str) -> None:
    space = Space([Attribute.real("a", 0, 1), Attribute.integer("b", 0, 3)])
    model = named(f"{prefix}0", f"{prefix}1")
    assert [axis.n_cells for axis in build_grid(model, space, Robustness()).axes] == [2, 1]
    with pytest.raises(SpaceError, match="the model has a column"):
        build_grid(named(f"{prefix}1", f"{prefix}0"), space, Robustness())


def test_columns_that_do_not_match_are_named() -> None:
    a, b = Attribute.real("a", 0, 1), Attribute.real("b", 0, 1)
    with pytest.raises(SpaceError, match=r"the model has a column 'c' that no attribute .*; the space has a, b"):
        build_grid(named("a", "c"), Space([a, b]), Robustness())
    with pytest.raises(SpaceError, match=r"the space has a column 'b' that the model does not take; .* takes a"):
        build_grid(named("a"), Space([a, b]), Robustness())
    with pytest.raises(SpaceError, match=r"the model has a column 'f0' that no attribute"):
        build_grid(named("f0", "f1", "f2"), Space([a, b]), Robustness())
    many = [f"c{i}" for i in range(50)]
    with pytest.raises(SpaceError, match=r"c11, \.\.\. \(50 in all\)"):
        build_grid(named("a", *many[1:]), Space([Attribute.real(name, 0, 1) for name in many]), Robustness())


def test_a_property_that_does_not_fit_the_space_is_refused_before_anything_is_built() -> None:
    with pytest.raises(PropertyError, match="sensitive: 'sex' is not an attribute"):
        build_grid(loan_ensemble(), loan_space(), Fairness("sex"))


def test_text_needs_codes_from_the_space_or_the_model() -> None:
    colours = Attribute.categorical("a", ["red", "green"])
    with pytest.raises(SpaceError, match=r"attribute 'a': value 'red' is text, .* give the attribute 'codes'"):
        axis_of(stump(Test.LESS_F32, 0.5), colours)
    by_model = stump(Test.IN_SET, 0, codes=[0], categories={0: ("green", "red", "blue")})
    assert [cell.values for cell in axis_of(by_model, colours).cells] == [(0,), (1,)]
    with pytest.raises(SpaceError, match=r"value 'grey' is not a category of the model; it has green, red, blue"):
        axis_of(by_model, Attribute.categorical("a", ["grey"]))


def test_categories_are_found_by_value_and_then_by_text() -> None:
    model = stump(Test.IN_SET, 0, codes=[0], categories={0: ("10", 10, "x")})
    ten, text = (build_grid(model, Space([Attribute.categorical("a", [v, "x"])]), Fairness("a")) for v in (10, "10"))
    assert cuts_of(ten) == set()  # 10 is the category of code 1, and so is "x" beyond the set {0}
    assert cuts_of(text) == {0b01}
    by_text = stump(Test.IN_SET, 0, codes=[0], categories={0: ("1.5", "x")})
    assert axis_of(by_text, Attribute.categorical("a", [1.5, "x"])).n_cells == 2


# --- bugs that were found, one test each ------------------------------------------------------------------------------


def test_regression_categories_of_a_model_without_names_are_found_by_position() -> None:
    # attribute_codes looked the attribute's column up among the model's names, where f0 and colour do not meet.
    model = stump(Test.IN_SET, 0, codes=[0], name="f0", categories={0: ("green", "red")})
    grid = build_grid(model, Space([Attribute.categorical("colour", ["red", "green"])]), Fairness("colour"))
    assert cuts_of(grid) == {0b01}
    assert grid.values[0] == 2**grid.scale_bits  # yes is red, whose code 1 is not in the set {0}


@pytest.mark.parametrize("threshold", [1e300, 3.5e38, LARGEST_F32, -LARGEST_F32, -1e300, -3.5e38])
def test_regression_a_threshold_at_the_end_of_float32_does_not_overflow(threshold: float) -> None:
    for test in (Test.AT_MOST_F32, Test.LESS_F32):
        if test == Test.AT_MOST_F32 or abs(threshold) <= LARGEST_F32:
            grid = build_grid(stump(test, threshold), Space([Attribute.real("a", -1, 1)]), Robustness(1))
            assert grid.input_rounding == 0


def test_regression_a_set_and_a_huge_code_agree_with_the_ensemble() -> None:
    # 1e300 was code -1 to the ensemble and an integer of 301 digits to the grid; and -1 could be in a set.
    with pytest.raises(ModelError, match="negative code"):
        stump(Test.IN_SET, 0, codes=[-1])
    model = stump(Test.IN_SET, 0, codes=[0])
    codes = Attribute.categorical("a", [0, -1, 1e300])
    assert [cell.values for cell in axis_of(model, codes).cells] == [(0,), (1, 2)]
    assert model.goes_left(0, np.array([0, -1, 1e300])).tolist() == [True, False, False]


def test_regression_a_threshold_that_is_no_float32_is_refused_where_inputs_are_float32() -> None:
    # x < 0.1 was tested against float32(0.1) by the ensemble and against the double 0.1 by the grid.
    with pytest.raises(ModelError, match=r"x < t on float32 inputs is no float32 itself: 0\.1"):
        stump(Test.LESS_F32, 0.1)
    with pytest.raises(ModelError, match="no float32 itself"):
        stump(Test.LESS_F32, 1e300)


# --- rounding of inputs -----------------------------------------------------------------------------------------------


def cast_moves(test: Test, threshold: float, x: Fraction) -> bool:
    """Whether rounding a real x to float32 (ties to even) changes the test."""
    single = float32_of(x)
    real = x < Fraction(threshold) if test == Test.LESS_F32 else x <= Fraction(threshold)
    return real != (single < threshold if test == Test.LESS_F32 else single <= threshold)


def float32_of(x: Fraction) -> float:
    """The float32 nearest to a rational, rounded once: by way of the two candidates around it."""
    near = np.float32(float(x))
    with np.errstate(over="ignore"):
        candidates = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    finite = [c for c in candidates if np.isfinite(c)]
    return float(min(finite, key=lambda c: (abs(Fraction(float(c)) - x), int(c.view(np.uint32)) & 1)))


@pytest.mark.parametrize("threshold", [0.5, 0.1, 1.0, 0.0, 2.0**-149, 1e-50, 0.3, 0.75])
@pytest.mark.parametrize("test", [Test.LESS_F32, Test.AT_MOST_F32])
def test_input_rounding_is_the_mass_between_the_threshold_and_where_the_cast_changes_its_mind(
    test: Test, threshold: float
) -> None:
    if test == Test.LESS_F32:
        threshold = float32(threshold)
    domain = Attribute.real("a", -2, 2)
    length = 4 * build_grid(stump(test, threshold), Space([domain]), Robustness()).input_rounding
    limit = Fraction(threshold)
    # What moves is the interval of that length on one side of the threshold: all of it, and nothing beyond.
    assert length > 0
    sign = 1 if cast_moves(test, threshold, limit + length / 10**6) else -1
    assert cast_moves(test, threshold, limit + sign * length / 10**6)
    assert cast_moves(test, threshold, limit + sign * length * Fraction(999999, 10**6))
    assert not cast_moves(test, threshold, limit + sign * length * Fraction(1000001, 10**6))
    assert not cast_moves(test, threshold, limit - sign * length / 10**6)


def test_input_rounding_by_hand() -> None:
    def mass(model: TreeEnsemble, attribute: Attribute) -> Fraction:
        return build_grid(model, Space([attribute]), Robustness()).input_rounding

    # Below 1/2 float32 are 2**-25 apart: from 1/2 - 2**-26 on, x becomes 1/2.
    assert mass(stump(Test.LESS_F32, 0.5), UNIT) == Fraction(1, 2**26)
    # Above 1/2 they are 2**-24 apart: up to 1/2 + 2**-25, x becomes 1/2.
    assert mass(stump(Test.AT_MOST_F32, 0.5), UNIT) == Fraction(1, 2**25)
    assert mass(stump(Test.AT_MOST_F64, 0.5), UNIT) == 0
    assert mass(stump(Test.LESS_F32, 0.5), Attribute.integer("a", 0, 1)) == 0
    assert mass(stump(Test.LESS_F32, 0.5), replace(UNIT, missing=HALF)) == Fraction(1, 2**27)
    # Cut off at the end of the domain, and weighed by its histogram.
    assert mass(stump(Test.LESS_F32, 0.5), Attribute.real("a", HALF - Fraction(1, 2**27), 1)) == Fraction(1, 2**27) / (
        HALF + Fraction(1, 2**27)
    )
    bins = Histogram((ZERO, HALF, Fraction(1)), (Fraction(3), Fraction(1)))
    assert mass(stump(Test.LESS_F32, 0.5), replace(UNIT, histogram=bins)) == Fraction(1, 2**25) * Fraction(3, 4)
    # All that is beyond the largest float32 becomes infinite, from halfway to the next one on.
    halfway = 2**128 - 2**103
    wide = Attribute.real("a", 0, 2**129)
    assert mass(stump(Test.AT_MOST_F32, 2.0**128), wide) == Fraction(2**128 - halfway, 2**129)
    assert mass(stump(Test.AT_MOST_F32, LARGEST_F32), wide) == Fraction(halfway - int(LARGEST_F32), 2**129)
    # Never more than everything.
    assert mass(stump(Test.LESS_F32, 2.0**-148), Attribute.real("a", 0, Fraction(1, 2**148))) == Fraction(1, 4)
    # Several thresholds, and several attributes, add up.
    two = stumps(("a", Test.LESS_F32, 0.5, -1, 1), ("b", Test.LESS_F32, 0.5, -1, 1), ("a", Test.LESS_F32, 0.5, 2, 1))
    space = Space([UNIT, Attribute.real("b", 0, 1)])
    assert build_grid(two, space, Robustness()).input_rounding == Fraction(2, 2**26)


# --- class and confidence as integers ---------------------------------------------------------------------------------


def thresholds_of(model: TreeEnsemble, prop: Property) -> tuple[Thresholds, Grid]:
    grid = build_grid(model, Space([COIN]), prop)
    return grid.thresholds, grid


def test_class_thresholds_are_the_tie_rule() -> None:
    def of(tie: Any, rule: Any) -> Thresholds:
        return thresholds_of(stump(Test.AT_MOST_F64, 0, tie=tie), Fairness("a", tie=rule))[0]

    assert of("negative", "library") == Thresholds(1, 0, 1, 0)
    assert of("positive", "library") == Thresholds(0, -1, 0, -1)
    assert of("negative", "paper") == of("positive", "paper") == Thresholds(1, -1, 1, -1)
    assert of("negative", "library").all_confident
    assert not of("negative", "paper").all_confident


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    kappa=st.fractions("1/2", "999999/1000000").filter(lambda k: k > HALF),
    scale=st.fractions("1/997", 1000, max_denominator=997),
    base=st.one_of(st.integers(-3, 3).map(Fraction), st.fractions(-3, 3, max_denominator=1000)),
    link=st.sampled_from(["sigmoid", "mean"]),
)
def test_confidence_thresholds_are_the_first_integers_beyond_the_level(
    kappa: Fraction, scale: Fraction, base: Fraction, link: Any
) -> None:
    scale = scale if link == "sigmoid" else Fraction(1)
    model = stump(Test.AT_MOST_F64, 0, -1.0, 0.5, base=(base,), scale=scale, link=link)
    t, grid = thresholds_of(model, Fairness("a", kappa=kappa))
    start = base - (HALF if link == "mean" else 0)

    def beyond(F: int) -> Decimal:
        """|margin| - level, where the integer F stands for F units, plus what the base has beyond whole units."""
        margin = (F - grid.base + start * 2**grid.scale_bits) / 2**grid.scale_bits * scale
        with localcontext() as context:
            context.prec = 120
            level = (Decimal(kappa.numerator) / Decimal(kappa.denominator - kappa.numerator)).ln()
            if link == "mean":
                level = Decimal(kappa.numerator) / Decimal(kappa.denominator) - Decimal("0.5")
                exact = abs(margin) - (kappa - HALF)
                return Decimal(exact.numerator) / Decimal(exact.denominator)
            return Decimal(abs(margin).numerator) / Decimal(margin.denominator) - level

    assert beyond(t.conf_pos) > 0 >= beyond(t.conf_pos - 1)
    assert beyond(t.conf_neg) > 0 >= beyond(t.conf_neg + 1)
    assert 0 <= start * 2**grid.scale_bits - grid.base < 1


def test_integers_of_a_grid_are_units_of_base_plus_sum() -> None:
    model = stump(Test.AT_MOST_F64, 0, -0.25, 3.0, base=(0.5,), scale=Fraction(7, 3))
    _, grid = thresholds_of(model, Fairness("a"))
    unit = 2**grid.scale_bits
    assert (grid.base, sorted(grid.values)) == (unit // 2, [-unit // 4, 3 * unit])
    mean = stump(Test.AT_MOST_F64, 0, 0.25, 0.75, link="mean")
    _, grid = thresholds_of(mean, Fairness("a"))
    assert grid.base == -(2**grid.scale_bits) // 2


def test_the_rounding_error_is_in_the_same_units_and_hardly_rounded_up() -> None:
    for model in (
        stump(Test.AT_MOST_F64, 0, scale=Fraction(1, 3)),
        stump(Test.AT_MOST_F64, 0, 0.0, 1.0, link="mean"),
        stump(Test.AT_MOST_F64, 0, 1e-30, 1e10, sum_dtype="float32", decides_on="probability"),
    ):
        _, grid = thresholds_of(model, Fairness("a"))
        units = model.rounding_error() / model.factor * 2**grid.scale_bits
        assert units <= grid.rounding < units * Fraction(9, 8)
