"""The cells of one attribute: exact base cells, values that share a cell, and the cells that a tolerance reaches."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from boxqte.errors import SpaceError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import ZERO_BAND, EnsembleBuilder, Missing, Test, TreeEnsemble
from boxqte.questions.axes import Axis, Cell
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from boxqte.questions.properties import Fairness, Property, Robustness
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.naive import float32
from tests.test_naive import stump, stumps

ZERO, HALF = Fraction(0), Fraction(1, 2)
LARGEST_F32 = float(np.finfo(np.float32).max)


def axis_of(model: TreeEnsemble, attribute: Attribute, prop: Property | None = None) -> Axis:
    return build_grid(model, Space([attribute]), prop or Robustness()).axes[0]


def written(cell: Cell) -> str:
    """A numeric cell in the usual notation; an integer cell as its first and last value."""
    if cell.missing:
        return "missing"
    assert cell.low is not None
    assert cell.high is not None
    (low, low_side), (high, high_side) = cell.low, cell.high
    if cell.integral:
        return f"{low}..{high - 1}"
    return f"{'(' if low_side else '['}{low}, {high}{']' if high_side else ')'}"


def cells_of(axis: Axis) -> list[str]:
    return [written(cell) for cell in axis.cells]


def near_of(axis: Axis) -> list[tuple[str, int, int, int]]:
    """Every refined cell with its base cell and the base cells that it reaches."""
    columns = (axis.base.tolist(), axis.near_lo.tolist(), axis.near_hi.tolist())
    return list(zip(map(written, axis.refined), *columns))


def cuts_of(grid: Grid) -> set[int]:
    return {cut.mask for cut in grid.cuts}


# --- base cells -------------------------------------------------------------------------------------------------------

UNIT = Attribute.real("a", 0, 1)
AGE = Attribute.integer("a", 0, 9)


def test_an_open_and_a_closed_test_at_the_same_threshold_leave_the_point_between_them() -> None:
    assert cells_of(axis_of(stump(Test.LESS_F32, 0.5), UNIT)) == ["[0, 1/2)", "[1/2, 1]"]
    assert cells_of(axis_of(stump(Test.AT_MOST_F64, 0.5), UNIT)) == ["[0, 1/2]", "(1/2, 1]"]
    both = stumps(("a", Test.LESS_F32, 0.5, -1, 1), ("a", Test.AT_MOST_F64, 0.5, -1, 1))
    axis = build_grid(both, Space([UNIT, Attribute.real("b", 0, 1)]), Robustness()).axes[0]
    assert cells_of(axis) == ["[0, 1/2)", "[1/2, 1/2]", "(1/2, 1]"]
    assert axis.masses == (HALF, ZERO, HALF)
    assert axis.single.tolist() == [False, True, False]


def test_the_ends_of_a_domain_are_closed() -> None:
    assert cells_of(axis_of(stump(Test.AT_MOST_F64, 0.0), UNIT)) == ["[0, 0]", "(0, 1]"]
    assert cells_of(axis_of(stump(Test.LESS_F32, 1.0), UNIT)) == ["[0, 1)", "[1, 1]"]


@pytest.mark.parametrize(
    ("test", "threshold", "goes_left"),
    [(Test.LESS_F32, 0.0, False), (Test.LESS_F32, -1.0, False), (Test.AT_MOST_F64, -0.5, False),
     (Test.AT_MOST_F64, 1.0, True), (Test.LESS_F32, 1.25, True), (Test.AT_MOST_F32, 1e300, True),
     (Test.AT_MOST_F32, -1e300, False), (Test.LESS_F32, LARGEST_F32, True), (Test.LESS_F32, -LARGEST_F32, False)],
)  # fmt: skip
@pytest.mark.parametrize("attribute", [UNIT, Attribute.integer("a", 0, 1), replace(UNIT, missing=Fraction(0))], ids=str)
def test_a_threshold_outside_the_domain_cuts_nothing(
    test: Test, threshold: float, goes_left: bool, attribute: Attribute
) -> None:
    if attribute.kind == "integer" and threshold == 0.0:
        return  # on {0, 1} this is all of the domain, too, but for another reason
    grid = build_grid(stump(test, threshold, default_left=goes_left), Space([attribute]), Robustness(1))
    assert len(grid.axes[0].cells) == 1 + (attribute.missing is not None)
    assert grid.cuts == ()
    assert grid.cut.tolist() == [-1]
    assert grid.values[0] == (-1 if goes_left else 1) * 2**grid.scale_bits
    assert grid.input_rounding == 0


def test_a_threshold_is_kept_as_the_double_or_the_float32_that_it_is() -> None:
    tenth = axis_of(stump(Test.AT_MOST_F64, 0.1), UNIT)
    assert tenth.masses[0] == Fraction(0.1) != Fraction(1, 10)
    single = axis_of(stump(Test.LESS_F32, float32(0.1)), UNIT)
    assert single.masses[0] == Fraction(13421773, 2**27)


def test_domain_ends_that_are_no_floats_are_compared_exactly() -> None:
    # The double 0.1 is above one tenth, the double 0.3 is below three tenths.
    tenths = Attribute.real("a", "0.1", "0.3")
    assert len(cells_of(axis_of(stump(Test.AT_MOST_F64, 0.1), tenths))) == 2
    assert len(cells_of(axis_of(stump(Test.AT_MOST_F64, 0.3), tenths))) == 2
    assert len(cells_of(axis_of(stump(Test.AT_MOST_F64, math.nextafter(0.1, 0)), tenths))) == 1
    assert len(cells_of(axis_of(stump(Test.AT_MOST_F64, math.nextafter(0.3, 1)), tenths))) == 1


def test_a_domain_beyond_every_float_is_measured_exactly() -> None:
    axis = axis_of(stump(Test.AT_MOST_F64, 1.0), Attribute.real("a", "-1e350", "1e350"))
    assert axis.masses == ((10**350 + 1) / Fraction(2 * 10**350), (10**350 - 1) / Fraction(2 * 10**350))


def test_a_domain_of_one_point_is_one_cell_with_all_the_mass() -> None:
    for test in (Test.LESS_F32, Test.AT_MOST_F64):
        axis = axis_of(stump(test, 0.5), Attribute.real("a", "1/2", "1/2", missing="1/4"), Robustness({"a": 3}))
        assert cells_of(axis) == ["[1/2, 1/2]", "missing"]
        assert axis.masses == axis.refined_masses == (Fraction(3, 4), Fraction(1, 4))
        assert axis.single.tolist() == [True, True]


def test_integers_between_two_tests_are_one_run() -> None:
    axis = axis_of(stump(Test.AT_MOST_F64, 3.5), AGE)
    assert cells_of(axis) == ["0..3", "4..9"]
    assert axis.masses == (Fraction(4, 10), Fraction(6, 10))


@pytest.mark.parametrize(("test", "threshold"), [
    (Test.AT_MOST_F64, 3.0), (Test.AT_MOST_F64, 3.9), (Test.LESS_F32, 4.0), (Test.LESS_F32, 3.5),
    (Test.AT_MOST_F32, 3.0), (Test.AT_MOST_F32, 3.5)])  # fmt: skip
def test_tests_that_agree_on_all_integers_are_one_cut(test: Test, threshold: float) -> None:
    model = stumps(("a", test, threshold, -1, 1), ("a", Test.AT_MOST_F64, 3.25, -1, 1))
    grid = build_grid(model, Space([AGE, Attribute.integer("b", 0, 1)]), Robustness())
    assert cells_of(grid.axes[0]) == ["0..3", "4..9"]
    assert cuts_of(grid) == {0b01}


def test_a_single_integer_is_a_point_and_a_run_is_not() -> None:
    model = stumps(("a", Test.AT_MOST_F64, 3, -1, 1), ("a", Test.AT_MOST_F64, 4, -1, 1))
    axis = build_grid(model, Space([AGE, Attribute.integer("b", 0, 1)]), Robustness()).axes[0]
    assert cells_of(axis) == ["0..3", "4..4", "5..9"]
    assert axis.single.tolist() == [False, True, False]


def test_a_category_set_on_integers_cuts_only_where_it_begins_or_ends() -> None:
    ages = Attribute.integer("a", 0, 99)
    grid = build_grid(stump(Test.IN_SET, 0, codes=[*range(5, 50), 70, 200]), Space([ages]), Robustness())
    assert cells_of(grid.axes[0]) == ["0..4", "5..49", "50..69", "70..70", "71..99"]
    assert cuts_of(grid) == {0b10101}  # 0, in the first cell, is no member: the cut is the complement


def test_known_codes_cut_integers_where_the_default_takes_over() -> None:
    model = stump(Test.IN_SET, 0, codes=[2, 3], known_codes={0: frozenset({1, 2, 3})}, default_left=True)
    grid = build_grid(model, Space([AGE]), Robustness())
    assert cells_of(grid.axes[0]) == ["0..0", "1..1", "2..9"]
    assert cuts_of(grid) == {0b101}


def test_zero_that_goes_with_the_default_is_cut_out_only_if_it_goes_elsewhere() -> None:
    for rule in (Missing.WITH_ZERO, Missing.ZERO_EXACT):
        elsewhere = stump(Test.AT_MOST_F64, 5, missing=rule, default_left=False)
        assert cells_of(axis_of(elsewhere, AGE)) == ["0..0", "1..5", "6..9"]
        along = stump(Test.AT_MOST_F64, 5, missing=rule, default_left=True)
        assert cells_of(axis_of(along, AGE)) == ["0..5", "6..9"]
        assert cells_of(axis_of(along, Attribute.real("a", -1, 9))) == ["[-1, 5]", "(5, 9]"]
    band = Fraction(ZERO_BAND)
    assert band == Fraction(6968983, 2**139)
    reals = Attribute.real("a", -1, 9)
    with_band = axis_of(stump(Test.AT_MOST_F64, 5, missing=Missing.WITH_ZERO), reals)
    assert cells_of(with_band) == [f"[-1, {-band})", f"[{-band}, {band}]", f"({band}, 5]", "(5, 9]"]
    exact = axis_of(stump(Test.AT_MOST_F64, 5, missing=Missing.ZERO_EXACT), reals)
    assert cells_of(exact) == ["[-1, 0)", "[0, 0]", "(0, 5]", "(5, 9]"]
    # A threshold inside the band, hidden by it.
    hidden = axis_of(stump(Test.AT_MOST_F64, 0.0, missing=Missing.WITH_ZERO), reals)
    assert cells_of(hidden) == [f"[-1, {-band})", f"[{-band}, 9]"]


@pytest.mark.parametrize("low", [0, 2**24 - 5, 2**24, -(2**24) - 5, 2**53 - 9])
def test_integers_meet_the_float32_cast(low: int) -> None:
    for test in (Test.LESS_F32, Test.AT_MOST_F32, Test.AT_MOST_F64):
        for at in range(-1, 11):
            threshold = float(low + at)
            if test == Test.LESS_F32:
                threshold = float32(threshold)
            ages = Attribute.integer("a", low, low + 9)
            grid = build_grid(stump(test, threshold), Space([ages]), Robustness())
            number = float if test == Test.AT_MOST_F64 else float32
            values = [number(float(v)) for v in range(low, low + 10)]
            left = [v < threshold if test == Test.LESS_F32 else v <= threshold for v in values]
            sizes = [int(cell.high[0] - cell.low[0]) for cell in grid.axes[0].cells if cell.low and cell.high]
            assert sizes == ([sum(left), 10 - sum(left)] if 0 < sum(left) < 10 else [10])


def test_a_billion_integers_are_not_enumerated() -> None:
    huge = Attribute.integer("a", 0, 10**9 - 1)
    model = stumps(("a", Test.AT_MOST_F32, 123456789, -1, 1), ("a", Test.AT_MOST_F64, 987654321.5, -1, 1))
    begin = time.perf_counter()
    grid = build_grid(model, Space([huge, Attribute.integer("b", -(2**53), 2**53)]), Robustness(Fraction(1, 10)))
    assert time.perf_counter() - begin < 1
    # float32 are 8 apart there: ..., 123456784, 123456792, ...; 123456788 lies halfway and goes to the even one, below.
    assert cells_of(grid.axes[0]) == ["0..123456788", "123456789..987654321", "987654322..999999999"]
    assert sum(grid.axes[0].masses) == 1
    assert len(grid.axes[0].refined) <= 3 * 2 + 1
    assert len(grid.axes[1].cells) == 1


def test_a_large_category_set_on_a_huge_integer_domain_is_cut_at_its_codes_alone() -> None:
    huge = Attribute.integer("a", 0, 10**9)
    axis = axis_of(stump(Test.IN_SET, 0, codes=list(range(0, 20_000, 2))), huge)
    assert axis.n_cells == 20_000
    assert sum(axis.masses) == 1


def test_a_category_set_on_a_real_attribute_is_refused() -> None:
    with pytest.raises(SpaceError, match="attribute 'a' is real, but the model tests it for categories"):
        axis_of(stump(Test.IN_SET, 0, codes=[0]), UNIT)


# --- finite attributes ------------------------------------------------------------------------------------------------


def test_values_that_no_test_tells_apart_share_a_cell() -> None:
    colours = Attribute.categorical("a", [0, 1, 2, 3, 4])
    grid = build_grid(stump(Test.IN_SET, 0, codes=[1, 4]), Space([colours]), Fairness("a"))
    assert [cell.values for cell in grid.axes[0].cells] == [(0, 2, 3), (1, 4)]
    assert grid.axes[0].masses == (Fraction(3, 5), Fraction(2, 5))
    assert grid.axes[0].single.tolist() == [False, False]
    assert cuts_of(grid) == {0b01}


def test_a_missing_category_is_a_cell_of_its_own() -> None:
    colours = Attribute.categorical("a", [0, 1], missing=True)
    axis = axis_of(stump(Test.IN_SET, 0, codes=[1], default_left=True), colours)
    assert [cell.values for cell in axis.cells] == [(0,), (1,), ()]
    assert axis.cells[2].missing
    assert axis.single.tolist() == [True, True, True]
    assert axis.masses == (Fraction(1, 3),) * 3


def test_a_one_hot_group_is_one_axis() -> None:
    builder = EnsembleBuilder()
    for feature in (0, 1):
        builder.add_tree(
            feature=[feature, 0, 0], test=[Test.LESS_F32, 0, 0], threshold=[0.5, 0, 0], left=[1, 0, 0],
            right=[2, 0, 0], value=[0, 0, 1],
        )  # fmt: skip
    model = builder.build(library="example", feature_names=("q", "p"), base=(-0.5,), link="sigmoid")
    group = Attribute.one_hot("g", ["p", "q", "r"])
    with pytest.raises(SpaceError, match="the space has a column 'r' that the model does not take"):
        build_grid(model, Space([group]), Fairness("g"))
    dropped = Attribute.one_hot("g", ["p", "q"], values=["P", "Q", "R"], codes=[[1, 0], [0, 1], [0, 0]])
    grid = build_grid(model, Space([dropped]), Fairness("g"))
    assert [cell.values for cell in grid.axes[0].cells] == [(0,), (1,), (2,)]
    assert cuts_of(grid) == {0b101, 0b001}  # q < 1/2 holds for P and R; the complement of p < 1/2 is P


def test_codes_that_are_no_integers_are_refused_where_the_model_tests_for_categories() -> None:
    halves = Attribute.categorical("a", ["x", "y"], codes=[0, 0.5])
    with pytest.raises(SpaceError, match=r"attribute 'a': code 0\.5 is no integer, but the model tests column 'a'"):
        axis_of(stump(Test.IN_SET, 0, codes=[0]), halves)
    assert axis_of(stump(Test.LESS_F32, 0.25), halves).n_cells == 2


# --- near ranges ------------------------------------------------------------------------------------------------------


def test_near_ranges_of_a_real_attribute_keep_open_and_closed_ends() -> None:
    # Cells [0, 1/2), [1/2, 1]; reach 1/8. x reaches 1/2 from 3/8 on, and below 1/2 up to, but not at, 5/8.
    axis = axis_of(stump(Test.LESS_F32, 0.5), UNIT, Robustness({"a": Fraction(1, 8)}))
    assert near_of(axis) == [
        ("[0, 3/8)", 0, 0, 0), ("[3/8, 1/2)", 0, 0, 1), ("[1/2, 5/8)", 1, 0, 1), ("[5/8, 1]", 1, 1, 1)]  # fmt: skip
    assert axis.refined_masses == (Fraction(3, 8), Fraction(1, 8), Fraction(1, 8), Fraction(3, 8))
    # With x <= 1/2 it is the other way round.
    axis = axis_of(stump(Test.AT_MOST_F64, 0.5), UNIT, Robustness({"a": Fraction(1, 8)}))
    assert near_of(axis) == [
        ("[0, 3/8]", 0, 0, 0), ("(3/8, 1/2]", 0, 0, 1), ("(1/2, 5/8]", 1, 0, 1), ("(5/8, 1]", 1, 1, 1)]  # fmt: skip


def test_a_point_cell_is_reached_from_its_closed_neighbourhood() -> None:
    # Only x = 1/2 is a cell of its own; [3/8, 5/8] reaches it, both ends included.
    both = stumps(("a", Test.LESS_F32, 0.5, -1, 1), ("a", Test.AT_MOST_F64, 0.5, -1, 1))
    space = Space([UNIT, Attribute.real("b", 0, 1)])
    axis = build_grid(both, space, Robustness({"a": Fraction(1, 8)})).axes[0]
    assert near_of(axis) == [
        ("[0, 3/8)", 0, 0, 0), ("[3/8, 3/8]", 0, 0, 1), ("(3/8, 1/2)", 0, 0, 2), ("[1/2, 1/2]", 1, 0, 2),
        ("(1/2, 5/8)", 2, 0, 2), ("[5/8, 5/8]", 2, 1, 2), ("(5/8, 1]", 2, 2, 2)]  # fmt: skip


def test_near_ranges_of_integers_are_whole_runs() -> None:
    # {0..9}, cut between 3 and 4; reach 2 (from a tolerance of 5/2): 2 and 3 reach 4, and 4 and 5 reach 3.
    axis = axis_of(stump(Test.AT_MOST_F64, 3), AGE, Robustness({"a": Fraction(5, 2)}))
    assert axis.tolerance == Fraction(5, 2)
    assert near_of(axis) == [("0..1", 0, 0, 0), ("2..3", 0, 0, 1), ("4..5", 1, 0, 1), ("6..9", 1, 1, 1)]
    assert axis.refined_masses == (Fraction(2, 10), Fraction(2, 10), Fraction(2, 10), Fraction(4, 10))


def test_a_tolerance_below_one_moves_no_integer() -> None:
    axis = axis_of(stump(Test.AT_MOST_F64, 3), AGE, Robustness({"a": Fraction(99, 100)}))
    assert not axis.moves
    assert near_of(axis) == [("0..3", 0, 0, 0), ("4..9", 1, 1, 1)]


def test_a_tolerance_beyond_the_domain_reaches_everything_but_the_missing_value() -> None:
    axis = axis_of(stump(Test.AT_MOST_F64, 3), replace(AGE, missing=Fraction(1, 11)), Robustness({"a": 100}))
    assert near_of(axis) == [("0..3", 0, 0, 1), ("4..9", 1, 0, 1), ("missing", 2, 2, 2)]


def test_a_sensitive_attribute_reaches_all_its_cells() -> None:
    axis = axis_of(stump(Test.AT_MOST_F64, 3), replace(AGE, missing=Fraction(1, 11)), Fairness("a"))
    assert near_of(axis) == [("0..3", 0, 0, 2), ("4..9", 1, 0, 2), ("missing", 2, 0, 2)]
    assert not axis.moves


def test_a_rate_is_taken_of_the_exact_range() -> None:
    # A tenth of [0, 3/10] is 3/100; in floats 0.1 * 0.3 is 0.03 + 2**-57 and would reach further.
    axis = axis_of(stump(Test.LESS_F32, 0.25), Attribute.real("a", 0, "0.3"), Robustness(0.1))
    assert near_of(axis)[1][0] == "[11/50, 1/4)"


def test_has_tolerance_is_whether_epsilon_moves_anything() -> None:
    space = loan_space()
    assert not build_grid(loan_ensemble(), space, Fairness("race")).has_tolerance
    assert not build_grid(loan_ensemble(), space, Fairness("race", {"age": Fraction(1, 2)})).has_tolerance
    assert build_grid(loan_ensemble(), space, Fairness("race", {"age": 1})).has_tolerance
    assert not build_grid(loan_ensemble(), space, Fairness(["race", "age"], {"income": 0})).has_tolerance
