"""The oracle itself, against numbers derived by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import inf

import pytest

from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import EnsembleBuilder, Missing, Test, TreeEnsemble
from boxqte.questions.properties import Fairness, Property, Robustness
from boxqte.space.attributes import Attribute, Histogram
from boxqte.space.space import Space
from tests import naive
from tests.naive import MISSING, float32, naive_margin, naive_quantify, naive_row_at, naive_rows


def stump(
    test: Test,
    threshold: float,
    left: float = -1.0,
    right: float = 1.0,
    *,
    name: str = "a",
    codes: list[int] | None = None,
    default_left: bool = False,
    missing: Missing = Missing.DEFAULT,
    **head: object,
) -> TreeEnsemble:
    """One tree with one split on one column."""
    builder = EnsembleBuilder()
    builder.add_tree(
        feature=[0, 0, 0],
        test=[test, Test.LEAF, Test.LEAF],
        threshold=[threshold, 0, 0],
        left=[1, 0, 0],
        right=[2, 0, 0],
        value=[0, left, right],
        default_left=default_left,
        missing=missing,
        sets={0: codes} if codes is not None else None,
    )
    options = {"library": "example", "feature_names": (name,), "base": (0,), "link": "sigmoid"} | head
    return builder.build(**options)


def stumps(*splits: tuple[str, Test, float, float, float]) -> TreeEnsemble:
    """A sum of trees with one split each: column a or b, test, threshold, left value, right value."""
    builder = EnsembleBuilder()
    for name, test, threshold, left, right in splits:
        builder.add_tree(
            feature=["ab".index(name), 0, 0],
            test=[test, Test.LEAF, Test.LEAF],
            threshold=[threshold, 0, 0],
            left=[1, 0, 0],
            right=[2, 0, 0],
            value=[0, left, right],
        )
    return builder.build(library="example", feature_names=("a", "b"), base=(0,), link="sigmoid")


def answer(ensemble: TreeEnsemble, attribute: Attribute, property: Property) -> tuple[Fraction, Fraction]:
    found = naive_quantify(ensemble, Space([attribute]), property)
    return found.confident, found.counterexample


# --- the loan ensemble of the paper -----------------------------------------------------------------------------------
#
# Leaf values by race group (0,1 | 2 | 3,4), income I1 = [0,300), I2 = [300,600), I3 = [600,1000], age young = 0..49 (50
# of 101 values), old = 50..100 (51 of 101). T1 + T2 + T3:
#
#              race 0,1                     race 2                       race 3,4
#  I1 young   -0.17 + 0.70 + 0.72 =  1.25   -0.02 + 0.70 + 0.72 =  1.40   -0.02 + 1.62 + 0.72 =  2.32
#  I1 old     -0.17 + 0.70 - 1.30 = -0.77   -0.02 + 0.70 - 1.30 = -0.62   -0.02 + 1.62 - 1.30 =  0.30
#  I2 young    0.85 + 0.70 + 0.72 =  2.27   -0.02 + 0.70 + 0.72 =  1.40   -0.02 + 1.62 + 0.72 =  2.32
#  I2 old      0.85 + 0.70 - 1.30 =  0.25   -0.02 + 0.70 - 1.30 = -0.62   -0.02 + 1.62 - 1.30 =  0.30
#  I3 young    0.85 - 0.19 + 0.72 =  1.38   -0.02 - 0.19 + 0.72 =  0.51   -0.02 - 0.19 + 0.72 =  0.51
#  I3 old      0.85 + 1.75 - 1.30 =  1.30   -0.02 + 1.75 - 1.30 =  0.43   -0.02 + 1.75 - 1.30 =  0.43
#
# The masses of I1, I2, I3 are 3/10, 3/10, 4/10. No margin is 0, and none is near logit(0.8) = 1.38629 (1.38 is the
# closest), so that the difference between the paper's decimals and the nearest doubles decides nothing.

MARGINS = {
    ("I1", "young"): (1.25, 1.40, 2.32),
    ("I1", "old"): (-0.77, -0.62, 0.30),
    ("I2", "young"): (2.27, 1.40, 2.32),
    ("I2", "old"): (0.25, -0.62, 0.30),
    ("I3", "young"): (1.38, 0.51, 0.51),
    ("I3", "old"): (1.30, 0.43, 0.43),
}


def test_the_margins_of_the_loan_ensemble_are_those_of_the_table():
    incomes = {"I1": (0, 299), "I2": (300, 599), "I3": (600, 1000)}
    ages = {"young": (0, 49), "old": (50, 100)}
    for (income, age), margins in MARGINS.items():
        for group, races in enumerate([(0, 1), (2,), (3, 4)]):
            for i, a, race in product(incomes[income], ages[age], races):
                x = {"income": Fraction(i), "race": race, "age": a}
                margin = naive_margin(loan_ensemble(), loan_space(), x)
                assert float(margin) == pytest.approx(margins[group], abs=1e-12)


def test_the_loan_ensembles_individual_fairness_in_race_is_352_of_505():
    # Only I1 old (races 0,1,2 negative, 3,4 positive) and I2 old (race 2 negative, the others positive) have both
    # classes among the races; there every x has an x' of another race and the other class.
    # |X_unfair| = (3/10 + 3/10) * 51/101 = 153/505, and every x is confident.
    found = naive_quantify(loan_ensemble(), loan_space(), Fairness("race"))
    assert found.confident == 1
    assert found.counterexample == Fraction(153, 505)
    assert found.measure == Fraction(352, 505)


def test_the_appendix_property_of_the_loan_ensemble_measures_4379_of_4800():
    # kappa = 0.8: |F| > 1.38629 holds for I1 young races 2,3,4 and for I2 young all races:
    #   |X_kappa| = 50/101 * (3/10 * 3/5 + 3/10) = 24/101.
    # These are all positive. Negative x' are I1 old races 0,1,2 and I2 old race 2, so x' is old and, with eps = 5 on
    # age, x has age 45..49 (from 45 the closed window just reaches 50): 5 of 101 values.
    #   x in I1, races 2,3,4: x' with the same income and race 0.                        3/10 * 3/5 = 0.18
    #   x in I2, races 0,1,3,4: x' with the same income and race 2.                      3/10 * 4/5 = 0.24
    #   x in I2, race 2: x' must have another race, so it is in I1, income below 300;
    #     within 5 that is x in [300, 305) (305 itself reaches 300, which is not in I1). 5/1000 * 1/5 = 0.001
    # |X_unfair| = 5/101 * 0.421 = 421/20200, and M = 1 - 421/4800.
    property = Fairness("race", {"income": 5, "age": 5}, 0.8)
    found = naive_quantify(loan_ensemble(), loan_space(), property)
    assert found.confident == Fraction(24, 101)
    assert found.counterexample == Fraction(421, 20200)
    assert found.measure == Fraction(4379, 4800)


def test_the_loan_ensembles_end_of_the_window_is_open_where_the_box_is():
    property = Fairness("race", {"income": 5, "age": 5}, 0.8)
    inside = {"income": Fraction(30499, 100), "race": 2, "age": 45}
    assert naive_row_at(loan_ensemble(), loan_space(), property, inside).counterexample
    assert not naive_row_at(loan_ensemble(), loan_space(), property, inside | {"income": Fraction(305)}).counterexample
    assert not naive_row_at(loan_ensemble(), loan_space(), property, inside | {"age": 44}).counterexample


def test_a_loan_row_lists_the_races_that_would_be_decided_otherwise():
    x = {"income": Fraction(400), "race": 0, "age": 60}
    row = naive_row_at(loan_ensemble(), loan_space(), Fairness("race"), x)
    assert (row.class_, row.confident, row.counterexample) == (1, True, True)
    assert row.witness_values == [(2,)]
    assert row.witnesses == [x | {"race": 2}]


# --- confidence and ties ----------------------------------------------------------------------------------------------

COIN = Attribute.categorical("a", [0, 1])


@pytest.mark.parametrize(("tie", "unfair"), [("negative", Fraction(1)), ("positive", Fraction(0))])
def test_at_margin_0_the_models_own_tie_decides_the_class(tie, unfair):
    # a = 0: F = 0; a = 1: F = 1, class 1.
    model = stump(Test.AT_MOST_F64, 0, 0.0, 1.0, tie=tie)
    assert answer(model, COIN, Fairness("a")) == (1, unfair)


@pytest.mark.parametrize("tie", ["negative", "positive"])
def test_in_the_papers_reading_margin_0_is_no_class_no_counterexample_and_no_witness(tie):
    model = stump(Test.AT_MOST_F64, 0, 0.0, 1.0, tie=tie)
    assert answer(model, COIN, Fairness("a", tie="paper")) == (Fraction(1, 2), 0)
    assert answer(model, COIN, Fairness("a", kappa=0, tie="paper")) == (Fraction(1, 2), 0)
    rows = list(naive_rows(model, Space([COIN]), Fairness("a", tie="paper")))
    assert [(r.class_, r.confident, r.counterexample, r.witnesses) for r in rows] == [
        (None, False, False, []), (1, True, False, [])]  # fmt: skip


def test_the_measure_is_undefined_where_nothing_is_confident():
    everywhere_0 = stump(Test.AT_MOST_F64, 0, 0.0, 0.0)
    found = naive_quantify(everywhere_0, Space([COIN]), Fairness("a", tie="paper"))
    assert (found.confident, found.counterexample, found.measure) == (0, 0, None)


def test_a_tie_needs_the_exact_sum_and_not_a_rounded_one():
    # As doubles 0.1 + 0.2 - 0.3 is 1 * 2**-55 exactly (2.8e-17), not 0 and not the rounded 5.6e-17.
    builder = EnsembleBuilder()
    for value in (0.1, 0.2, -0.3):
        builder.add_tree(feature=[0], test=[Test.LEAF], threshold=[0], left=[0], right=[0], value=[value])
    model = builder.build(library="example", feature_names=("a",), base=(0,), link="sigmoid")
    assert naive_margin(model, Space([COIN]), {"a": 0}) == Fraction(1, 2**55)


def test_every_input_is_confident_at_kappa_up_to_one_half():
    model = stump(Test.AT_MOST_F64, 0, 0.0, 1e-300)
    for kappa in (0, 0.3, 0.5):
        assert answer(model, COIN, Fairness("a", kappa=kappa)) == (1, 1)


def test_sigmoid_confidence_is_above_kappa_iff_the_margin_is_beyond_its_logit():
    # logit(0.8) = ln 4 = 1.38629436111989061883..., between two neighbouring doubles that are exactly
    # 1.38629436111989057245... and 1.38629436111989079449...; math.log(4) is the lower one.
    below, above = 1.3862943611198906, 1.3862943611198908
    assert answer(stump(Test.AT_MOST_F64, 0, -below, above), COIN, Fairness("a", kappa=0.8)) == (Fraction(1, 2),) * 2
    assert answer(stump(Test.AT_MOST_F64, 0, -above, above), COIN, Fairness("a", kappa=0.8)) == (1, 1)


def test_the_confidence_of_a_mean_of_trees_is_compared_strictly():
    # p = 1/4 and 3/4: f_c = 3/4 for both.
    model = stump(Test.AT_MOST_F64, 0, 0.25, 0.75, link="mean")
    assert answer(model, COIN, Fairness("a", kappa=Fraction(3, 4))) == (0, 0)
    assert answer(model, COIN, Fairness("a", kappa=Fraction(749, 1000))) == (1, 1)


def test_a_mean_of_trees_is_a_tie_at_one_half():
    model = stump(Test.AT_MOST_F64, 0, 0.5, 0.75, link="mean")
    assert answer(model, COIN, Fairness("a")) == (1, 1)
    assert answer(model, COIN, Fairness("a", tie="paper")) == (Fraction(1, 2), 0)


def test_a_mean_of_trees_has_its_base_in_the_sum():
    # One tree: p = 1/4 + leaf, so leaf 1/4 is the tie and leaf 1/2 is p = 3/4.
    model = stump(Test.AT_MOST_F64, 0, 0.25, 0.5, link="mean", base=(Fraction(1, 4),))
    assert [naive_margin(model, Space([COIN]), {"a": v}) for v in (0, 1)] == [0, Fraction(1, 4)]
    assert answer(model, COIN, Fairness("a", kappa=0.74)) == (Fraction(1, 2), Fraction(1, 2))
    assert answer(model, COIN, Fairness("a", kappa=0.75)) == (0, 0)
    # Two trees: S = 1/3 + 1/4 + 0, p = S / 2.
    builder = EnsembleBuilder()
    for value in (0.25, 0.0):
        builder.add_tree(feature=[0], test=[Test.LEAF], threshold=[0], left=[0], right=[0], value=[value])
    model = builder.build(library="example", feature_names=("a",), base=(Fraction(1, 3),), link="mean")
    assert naive_margin(model, Space([COIN]), {"a": 0}) == (Fraction(1, 3) + Fraction(1, 4)) / 2 - Fraction(1, 2)


def test_a_scale_stretches_the_margin_and_so_the_confidence():
    # F = 3 * (1/3 + leaf) = -2 and 4; logit(0.9) = ln 9 = 2.197, so at kappa = 0.9 only 4 is confident; unscaled
    # neither 2/3 nor 4/3 would be.
    model = stump(Test.AT_MOST_F64, 0, -1.0, 1.0, base=(Fraction(1, 3),), scale=Fraction(3))
    assert [naive_margin(model, Space([COIN]), {"a": v}) for v in (0, 1)] == [-2, 4]
    assert answer(model, COIN, Fairness("a", kappa=0.9)) == (Fraction(1, 2), Fraction(1, 2))
    assert answer(replace(model, scale=Fraction(1)), COIN, Fairness("a", kappa=0.9)) == (0, 0)


def test_only_the_confidence_of_x_counts_not_that_of_its_witness():
    model = stump(Test.AT_MOST_F64, 0, -0.1, 5.0)
    assert answer(model, COIN, Fairness("a", kappa=0.9)) == (Fraction(1, 2), Fraction(1, 2))


# --- what is near -----------------------------------------------------------------------------------------------------


def test_the_window_is_closed_so_an_eps_that_exactly_reaches_counts():
    # x <= 2 is negative, x > 2 positive, on {0..9}. eps = 1: 2 reaches 3 and 3 reaches 2.
    model, ages = stump(Test.AT_MOST_F64, 2), Attribute.integer("a", 0, 9)
    assert answer(model, ages, Robustness({"a": 1})) == (1, Fraction(2, 10))
    assert answer(model, ages, Robustness({"a": Fraction(99, 100)})) == (1, 0)
    assert answer(model, ages, Robustness({"a": Fraction(5, 2)})) == (1, Fraction(4, 10))
    assert answer(model, ages, Robustness({"a": 100})) == (1, 1)


def test_a_rate_is_a_share_of_the_range():
    # 1/9 of the range 9 is exactly 1.
    model, ages = stump(Test.AT_MOST_F64, 2), Attribute.integer("a", 0, 9)
    assert answer(model, ages, Robustness(Fraction(1, 9))) == (1, Fraction(2, 10))
    assert answer(model, ages, Robustness("0.111")) == (1, 0)


def test_on_the_reals_both_sides_of_a_threshold_are_counterexamples_up_to_eps():
    # x < 1/2 on [0, 1], eps = 1/8: [3/8, 1/2) reaches 1/2, and [1/2, 5/8) reaches below it; 3/8 does, 5/8 does not.
    model, unit = stump(Test.LESS_F32, 0.5), Attribute.real("a", 0, 1)
    property = Robustness({"a": Fraction(1, 8)})
    assert answer(model, unit, property) == (1, Fraction(1, 4))
    ends = [naive_row_at(model, Space([unit]), property, {"a": Fraction(i, 8)}).counterexample for i in (3, 5)]
    assert ends == [True, False]
    # With x <= 1/2 the open end is the other one, of the same mass.
    model = stump(Test.AT_MOST_F64, 0.5)
    assert answer(model, unit, property) == (1, Fraction(1, 4))
    ends = [naive_row_at(model, Space([unit]), property, {"a": Fraction(i, 8)}).counterexample for i in (3, 5)]
    assert ends == [False, True]


def test_a_point_of_mass_0_is_a_witness():
    # On [0, 1], x < 1 is negative and only x = 1 is positive: mass 0, but everything within 1/4 of it reaches it.
    model, unit = stump(Test.LESS_F32, 1.0), Attribute.real("a", 0, 1)
    assert answer(model, unit, Robustness({"a": Fraction(1, 4)})) == (1, Fraction(1, 4))
    assert answer(model, unit, Fairness("a")) == (1, 1)


def test_a_threshold_outside_the_domain_reaches_nothing():
    unit = Attribute.real("a", 0, 1)
    for model in (stump(Test.LESS_F32, 0.0), stump(Test.AT_MOST_F64, 1.0), stump(Test.LESS_F32, 1.25)):
        assert answer(model, unit, Robustness({"a": 1})) == (1, 0)


def test_with_eps_0_robustness_never_fails():
    assert answer(stump(Test.LESS_F32, 0.5), Attribute.real("a", 0, 1), Robustness()) == (1, 0)


def test_categories_are_near_themselves_alone():
    assert answer(stump(Test.AT_MOST_F64, 0), COIN, Robustness(1)) == (1, 0)


# --- x'_S != x_S ------------------------------------------------------------------------------------------------------
# a < 1 ? -1 : 0 on the sensitive a, b < 1/2 ? 1/2 : 2 on b in [0, 1] with tolerance 1/4:
#     F       b < 1/2   b >= 1/2
#     a < 1    -1/2        1
#     a >= 1    1/2        2
CROSSED = stumps(("a", Test.LESS_F32, 1, -1.0, 0.0), ("b", Test.LESS_F32, 0.5, 0.5, 2.0))
CROSSED_PROPERTY = Fairness("a", {"b": Fraction(1, 4)})
UNIT_B = Attribute.real("b", 0, 1)


def test_the_only_value_of_the_sensitive_attribute_leaves_no_witness():
    space = Space([Attribute.categorical("a", [0]), UNIT_B])
    found = naive_quantify(CROSSED, space, CROSSED_PROPERTY)
    assert (found.confident, found.counterexample) == (1, 0)
    # The same move is a counterexample to robustness: [1/4, 3/4) straddles b = 1/2.
    assert naive_quantify(CROSSED, space, Robustness({"b": Fraction(1, 4)})).counterexample == Fraction(1, 2)


def test_a_single_sensitive_value_is_excluded_but_another_value_of_the_same_class_is_not():
    # a in {0, 1}. a = 0: b in [0, 1/2) is negative, a' = 1 is positive for the same b; b in [1/2, 3/4) is positive and
    # would need a' = 0 (its own value, excluded). So a = 0 contributes [0, 1/2) only.
    # a = 1: always positive; a' = 0 with b' < 1/2 is negative: b in [0, 3/4).
    found = naive_quantify(CROSSED, Space([Attribute.categorical("a", [0, 1]), UNIT_B]), CROSSED_PROPERTY)
    assert found.counterexample == Fraction(1, 2) * Fraction(1, 2) + Fraction(1, 2) * Fraction(3, 4)
    # a in {-1, 0, 1}: now -1 and 0 can serve each other, so both contribute [0, 3/4).
    found = naive_quantify(CROSSED, Space([Attribute.categorical("a", [-1, 0, 1]), UNIT_B]), CROSSED_PROPERTY)
    assert found.counterexample == Fraction(3, 4)


# On a in [0, 2] with one more tree, a <= 0 ? 3 : 0, the open interval (0, 1) alone can be negative:
#     F            b < 1/2   b >= 1/2
#     a = 0          5/2        4
#     0 < a < 1     -1/2        1
#     a >= 1         1/2        2
HOLLOW = stumps(
    ("a", Test.AT_MOST_F64, 0, 3.0, 0.0), ("a", Test.LESS_F32, 1, -1.0, 0.0), ("b", Test.LESS_F32, 0.5, 0.5, 2.0)
)
HOLLOW_SPACE = Space([Attribute.real("a", 0, 2), UNIT_B])


def test_an_interval_of_a_real_sensitive_attribute_has_another_point_for_every_x():
    # 0 < a < 1: b in [0, 1/2) is negative, a' = 1 is not; b in [1/2, 3/4) reaches b' < 1/2 with another a' of (0, 1).
    # a >= 1: b in [0, 3/4) reaches b' < 1/2 with a' in (0, 1).
    found = naive_quantify(HOLLOW, HOLLOW_SPACE, CROSSED_PROPERTY)
    assert found.counterexample == Fraction(3, 4)


def test_a_real_sensitive_attribute_that_is_one_point_leaves_no_witness():
    found = naive_quantify(CROSSED, Space([Attribute.real("a", 0, 0), UNIT_B]), CROSSED_PROPERTY)
    assert (found.confident, found.counterexample) == (1, 0)


def test_whatever_point_of_its_interval_x_is_there_is_another():
    for a in (Fraction(1, 3), Fraction(2, 3), Fraction(1, 2), Fraction(1, 1000)):
        row = naive_row_at(HOLLOW, HOLLOW_SPACE, CROSSED_PROPERTY, {"a": a, "b": Fraction(5, 8)})
        assert row.counterexample
        assert all(0 < w["a"] < 1 and w["a"] != a for w in row.witnesses)


def test_of_several_sensitive_attributes_one_that_differs_is_enough():
    # F(0, 0) = -3/2, F(0, 1) = 1/2, F(1, 0) = 1/2, F(1, 1) = 5/2: x = (0, 1) differs from (0, 0) in b alone.
    model = stumps(("a", Test.LESS_F32, 1, -1.0, 1.0), ("b", Test.LESS_F32, 0.5, -0.5, 1.5))
    space = Space([Attribute.categorical("a", [0, 1]), Attribute.categorical("b", [0, 1])])
    rows = {tuple(r.x.values()): r for r in naive_rows(model, space, Fairness(["a", "b"]))}
    assert [rows[x].class_ for x in ((0, 0), (0, 1), (1, 0), (1, 1))] == [0, 1, 1, 1]
    assert all(row.counterexample for row in rows.values())
    assert rows[0, 1].witness_values == [(0, 0)]
    assert sorted(rows[0, 0].witness_values) == [(0, 1), (1, 0), (1, 1)]


# --- missing values ---------------------------------------------------------------------------------------------------


def test_a_missing_value_has_its_share_and_the_rest_shares_what_is_left():
    # x <= 1 negative on {0, 1, 2, 3}; missing (share 1/5) follows the default to the right.
    model, ages = stump(Test.AT_MOST_F64, 1), Attribute.integer("a", 0, 3, missing=Fraction(1, 5))
    masses = {r.x["a"]: (r.mass, r.class_) for r in naive_rows(model, Space([ages]), Robustness())}
    fifth = Fraction(1, 5)
    assert masses == {0: (fifth, 0), 1: (fifth, 0), 2: (fifth, 1), 3: (fifth, 1), MISSING: (fifth, 1)}


def test_a_missing_value_is_near_a_missing_value_alone():
    model, ages = stump(Test.AT_MOST_F64, 5, default_left=False), Attribute.integer("a", 0, 3, missing=True)
    assert answer(model, ages, Robustness({"a": 100})) == (1, 0)  # 0..3 negative, missing positive, never near
    unit = Attribute.real("a", 0, 1, missing=Fraction(1, 2))
    assert answer(model, unit, Robustness({"a": 100})) == (1, 0)


def test_a_missing_sensitive_value_is_one_more_value():
    model = stump(Test.AT_MOST_F64, 5)
    for attribute in (Attribute.integer("a", 0, 3, missing=True), Attribute.real("a", 0, 1, missing=Fraction(0))):
        row = naive_row_at(model, Space([attribute]), Fairness("a"), {"a": attribute.low})
        assert row.witness_values == [(MISSING,)]
        assert answer(model, attribute, Fairness("a")) == (1, 1)


def test_missing_as_zero_is_tested_as_zero():
    ages = Attribute.integer("a", 1, 2, missing=True)
    model = stump(Test.AT_MOST_F64, 0, missing=Missing.AS_ZERO, default_left=False)
    assert naive_margin(model, Space([ages]), {"a": MISSING}) == -1
    by_set = stump(Test.IN_SET, 0, codes=[0], missing=Missing.AS_ZERO, default_left=False)
    assert naive_margin(by_set, Space([ages]), {"a": MISSING}) == -1


def test_missing_with_zero_sends_the_whole_zero_band_to_the_default():
    # x <= -1 negative, and the default is left (negative) too: on {-1, 0, 1} only 1 is positive.
    model = stump(Test.AT_MOST_F64, -1, missing=Missing.WITH_ZERO, default_left=True)
    space = Space([Attribute.integer("a", -1, 1)])
    assert [naive_margin(model, space, {"a": v}) for v in (-1, 0, 1)] == [-1, -1, 1]
    # On the reals the band is the closed interval between -1e-35f and 1e-35f, which as a float32 is m * 2**-139.
    edge = Fraction(6968983, 2**139)
    assert abs(edge * 10**35 - 1) < Fraction(1, 2**24)
    reals = Space([Attribute.real("a", -1, 1)])
    margins = [naive_margin(model, reals, {"a": v}) for v in (edge, -edge, edge + edge / 2**60, -edge - edge / 2**60)]
    assert margins == [-1, -1, 1, 1]
    # Its length is 2e-35 of the domain's 2; x <= -1 holds at one point, of mass 0.
    rows = list(naive_rows(model, reals, Robustness()))
    assert sum(r.mass for r in rows if r.class_ == 0) == edge


def test_exactly_zero_can_follow_the_default_and_nothing_beside_it():
    # x <= -1 negative, zero goes left (negative): on {-1, 0, 1} only 1 is positive, on the reals only (-1, 0), (0, 1].
    model = stump(Test.AT_MOST_F64, -1, missing=Missing.ZERO_EXACT, default_left=True)
    space = Space([Attribute.integer("a", -1, 1, missing=True)])
    assert [naive_margin(model, space, {"a": v}) for v in (-1, 0, 1, MISSING)] == [-1, -1, 1, -1]
    tiny = Fraction(1, 10**300)
    reals = Space([Attribute.real("a", -1, 1)])
    assert [naive_margin(model, reals, {"a": v}) for v in (0 * tiny, tiny, -tiny)] == [-1, 1, 1]
    # A single point has no mass, but everything within 1/4 of it reaches it: (-1/4, 0) and (0, 1/4) of length 2; and
    # (-1, -3/4] reaches -1.
    property = Robustness({"a": Fraction(1, 4)})
    assert naive_quantify(model, reals, property).counterexample == Fraction(3, 4) / 2


# --- tests on integers and categories ---------------------------------------------------------------------------------


def test_integers_meet_the_float32_cast_and_reals_do_not():
    odd = 2**24 + 1  # float32 rounds it to 2**24
    model = stump(Test.AT_MOST_F32, 2.0**24)
    assert naive_margin(model, Space([Attribute.integer("a", odd, odd)]), {"a": odd}) == -1
    assert naive_margin(model, Space([Attribute.real("a", odd, odd)]), {"a": Fraction(odd)}) == 1
    assert naive_margin(stump(Test.AT_MOST_F64, 2.0**24), Space([Attribute.integer("a", odd, odd)]), {"a": odd}) == 1


def test_a_category_written_as_0_1_is_above_the_double_0_1_after_the_cast():
    tenth = Space([Attribute.categorical("a", [0.1])])
    assert naive_margin(stump(Test.AT_MOST_F32, 0.1), tenth, {"a": 0.1}) == 1
    assert naive_margin(stump(Test.AT_MOST_F64, 0.1), tenth, {"a": 0.1}) == -1
    assert naive_margin(stump(Test.LESS_F32, float32(0.1)), tenth, {"a": 0.1}) == 1


def test_the_cast_to_float32_rounds_to_even_and_overflows_to_infinity():
    assert float32(2.0**24 + 1) == 2.0**24
    assert float32(2.0**24 + 3) == 2.0**24 + 4
    assert (float32(1e300), float32(-1e300), float32(1e-50)) == (inf, -inf, 0.0)


def test_category_sets_read_the_models_own_codes():
    colours = Attribute.categorical("a", ["red", "green", "blue"])
    by_model = stump(Test.IN_SET, 0, codes=[0, 2], categories={0: ("green", "red", "blue", "white")})
    assert [naive_margin(by_model, Space([colours]), {"a": v}) for v in colours.values] == [1, -1, -1]
    by_space = replace(colours, codes=((0.0,), (1.0,), (2.0,)))
    assert [naive_margin(by_model, Space([by_space]), {"a": v}) for v in colours.values] == [-1, 1, -1]


def test_negative_and_huge_codes_are_in_no_category_set():
    codes = Attribute.categorical("a", [-1, 0, 1, 1e300])
    by_set = stump(Test.IN_SET, 0, codes=[0, 2])
    assert [naive_margin(by_set, Space([codes]), {"a": v}) for v in codes.values] == [1, -1, 1, 1]


def test_values_that_share_a_code_are_still_different_values():
    # b < 1/2 ? -1 : 1, and the sensitive a is asked by no tree: x' with the same b has the same class, so only a b that
    # moves by up to 1/4 changes it, on [1/4, 3/4). It counts if x' can have another value of a.
    model, b = stumps(("b", Test.LESS_F32, 0.5, -1.0, 1.0)), UNIT_B
    alike = Attribute.categorical("a", ["rare", "rarer"], codes=[7, 7])
    alone = Attribute.categorical("a", ["rare"], codes=[7])
    assert naive_quantify(model, Space([alike, b]), CROSSED_PROPERTY).counterexample == Fraction(1, 2)
    assert naive_quantify(model, Space([alone, b]), CROSSED_PROPERTY).counterexample == 0


def test_unknown_codes_go_where_missing_values_go():
    codes = Attribute.categorical("a", [0, 1, 2])
    model = stump(Test.IN_SET, 0, codes=[0], default_left=True, known_codes={0: frozenset({0, 1})})
    assert [naive_margin(model, Space([codes]), {"a": v}) for v in (0, 1, 2)] == [-1, 1, -1]


def test_a_one_hot_group_is_one_attribute_whose_dropped_value_is_a_row_of_zeros():
    builder = EnsembleBuilder()
    for feature in (0, 1):
        builder.add_tree(
            feature=[feature, 0, 0],
            test=[Test.AT_MOST_F64, Test.LEAF, Test.LEAF],
            threshold=[0.5, 0, 0],
            left=[1, 0, 0],
            right=[2, 0, 0],
            value=[0, -1, 3],
        )
    model = builder.build(library="example", feature_names=("c=2", "c=1"), base=(0,), link="sigmoid")
    group = Attribute.one_hot("c", ["c=1", "c=2"], values=["c0", "c1", "c2"], codes=[[0, 0], [1, 0], [0, 1]])
    rows = list(naive_rows(model, Space([group]), Fairness("c")))
    assert [(r.x["c"], r.mass, r.margin) for r in rows] == [
        ("c0", Fraction(1, 3), -2), ("c1", Fraction(1, 3), 2), ("c2", Fraction(1, 3), 2)]  # fmt: skip


# --- masses -----------------------------------------------------------------------------------------------------------


def test_a_histogram_weighs_its_bins_evenly():
    unit = replace(
        Attribute.real("a", 0, 4),
        histogram=Histogram((Fraction(0), Fraction(1), Fraction(4)), (Fraction(1), Fraction(1))),
    )
    # x < 2: all of the first bin, a third of the second.
    assert answer(stump(Test.LESS_F32, 2), unit, Fairness("a", kappa=0.5))[0] == 1
    rows = naive_rows(stump(Test.LESS_F32, 2), Space([unit]), Robustness())
    assert sum(r.mass for r in rows if r.class_ == 0) == Fraction(1, 2) + Fraction(1, 2) * Fraction(1, 3)


def test_an_integer_histogram_weighs_the_integers_of_a_bin_evenly():
    bins = Histogram((Fraction(0), Fraction(1), Fraction(4)), (Fraction(1), Fraction(1)))
    ages = replace(Attribute.integer("a", 0, 3), histogram=bins)
    rows = naive_rows(stump(Test.LESS_F32, 2), Space([ages]), Robustness())
    assert [r.mass for r in rows] == [Fraction(1, 2), Fraction(1, 6), Fraction(1, 6), Fraction(1, 6)]


def test_a_value_of_weight_0_is_in_the_domain_and_can_be_a_witness():
    weighted = replace(COIN, weights=(Fraction(1), Fraction(0)))
    assert answer(stump(Test.AT_MOST_F64, 0), weighted, Fairness("a")) == (1, 1)


def test_a_real_domain_of_one_point_has_all_the_mass_there():
    assert answer(stump(Test.LESS_F32, 1), Attribute.real("a", 1, 1), Robustness(1)) == (1, 0)


# --- what the oracle refuses ------------------------------------------------------------------------------------------


def test_the_oracle_refuses_what_the_definitions_do_not_define():
    unit = Space([Attribute.real("a", 0, 1)])
    with pytest.raises(ValueError, match="set tests a real"):
        naive_quantify(stump(Test.IN_SET, 0, codes=[0]), unit, Robustness())
    halves = Space([Attribute.categorical("a", [0.5])])
    with pytest.raises(ValueError, match="no integer"):
        naive_quantify(stump(Test.IN_SET, 0, codes=[0]), halves, Robustness())
    with pytest.raises(ValueError, match="not in the space"):
        naive_quantify(stump(Test.LESS_F32, 0.5, name="b"), unit, Robustness())
    with pytest.raises(ValueError, match="not a value"):
        naive_row_at(stump(Test.LESS_F32, 0.5), unit, Robustness(), {"a": Fraction(2)})


def test_the_oracles_numbers_for_tests_and_missing_rules_are_the_ensembles():
    assert list(Test) == [naive.LEAF, naive.LESS_F32, naive.AT_MOST_F32, naive.AT_MOST_F64, naive.IN_SET]
    assert list(Missing) == [naive.DEFAULT, naive.AS_ZERO, naive.WITH_ZERO, naive.ZERO_EXACT]
