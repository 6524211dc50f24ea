"""The canonical ensemble: every test, rule and link as its library means it, and what is no forest is refused."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from boxqte.errors import ModelError
from boxqte.models.ensemble import ZERO_BAND, EnsembleBuilder, Missing, Test, TreeEnsemble, holds
from tests.test_naive import stump, stumps

U32, U64 = Fraction(1, 2**24), Fraction(1, 2**53)


def leaf(*values: float, **head: Any) -> TreeEnsemble:
    """Trees of one leaf each."""
    builder = EnsembleBuilder()
    for value in values:
        builder.add_tree(feature=[0], test=[Test.LEAF], threshold=[0], left=[0], right=[0], value=[value])
    options = {"library": "example", "feature_names": ("a",), "base": (0,), "link": "sigmoid"} | head
    return builder.build(**options)


# --- tests ------------------------------------------------------------------------------------------------------------


def test_threshold_tests_are_those_of_their_libraries() -> None:
    single = float(np.float32(0.1))
    assert single > 0.1
    x = np.array([0.1, single, 0.2])
    assert holds(Test.LESS_F32, single, x).tolist() == [False, False, False]
    assert holds(Test.AT_MOST_F32, 0.1, x).tolist() == [False, False, False]
    assert holds(Test.AT_MOST_F32, single, x).tolist() == [True, True, False]
    assert holds(Test.AT_MOST_F64, 0.1, x).tolist() == [True, False, False]
    assert holds(Test.AT_MOST_F32, 1e300, 1e39).tolist() is False  # the cast makes it infinite
    assert holds([Test.LESS_F32, Test.AT_MOST_F64], [1.0, 1.0], 1.0).tolist() == [False, True]


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (Missing.DEFAULT, [True, True, True, True, False, True]),
        (Missing.AS_ZERO, [True, True, True, True, False, True]),
        (Missing.WITH_ZERO, [True, False, False, True, False, False]),
        (Missing.ZERO_EXACT, [True, False, True, True, False, False]),
    ],
)
def test_missing_rules_say_what_zero_and_nan_do(rule: Missing, left: list[bool]) -> None:
    x = np.array([-1.0, 0.0, ZERO_BAND, math.nextafter(ZERO_BAND, 1), 2.0, math.nan])
    # x <= 1, and the default is right, except that a missing value alone would go left by it.
    default = rule == Missing.DEFAULT
    assert stump(Test.AT_MOST_F64, 1, missing=rule, default_left=default).goes_left(0, x).tolist() == left


def test_lightgbms_zero_is_the_float_literal() -> None:
    assert Fraction(ZERO_BAND) == Fraction(6968983, 2**139)
    assert ZERO_BAND > 1e-35


def test_negative_zero_is_zero() -> None:
    for rule in (Missing.WITH_ZERO, Missing.ZERO_EXACT):
        assert stump(Test.AT_MOST_F64, -1, missing=rule, default_left=True).goes_left(0, np.array([-0.0]))[0]


# --- margins ----------------------------------------------------------------------------------------------------------


def test_a_scale_multiplies_base_and_sum() -> None:
    model = leaf(0.25, 0.5, base=(Fraction(1, 3),), scale=Fraction(7, 10))
    exact = Fraction(7, 10) * (Fraction(1, 3) + Fraction(3, 4))
    assert model.exact_margin([[0.0]]) == [(exact,)]
    assert model.margin([[0.0]])[0, 0] == pytest.approx(float(exact), rel=1e-15)
    assert model.factor == Fraction(7, 10)
    assert model.predict([[0.0]]).tolist() == [1]


def test_a_mean_counts_its_base_among_the_values_that_are_divided() -> None:
    model = leaf(0.25, 0.5, base=(Fraction(1, 3),), link="mean")
    exact = (Fraction(1, 3) + Fraction(3, 4)) / 2 - Fraction(1, 2)
    assert model.exact_margin([[0.0]]) == [(exact,)]
    assert model.margin([[0.0]])[0, 0] == pytest.approx(float(exact), rel=1e-15)
    assert model.factor == Fraction(1, 2)


def test_several_outputs_are_scaled_alike() -> None:
    builder = EnsembleBuilder()
    for output, value in enumerate((0.5, 0.25, 0.125)):
        builder.add_tree(
            feature=[0], test=[Test.LEAF], threshold=[0], left=[0], right=[0], value=[value], output=output
        )
    model = builder.build(
        library="example", feature_names=("a",), base=(0, 1, 0), link="softmax", classes=(0, 1, 2), scale=Fraction(1, 3)
    )
    assert model.exact_margin([[0.0]]) == [(Fraction(1, 6), Fraction(5, 12), Fraction(1, 24))]
    assert model.predict([[0.0]]).tolist() == [1]


def test_everything_that_decides_a_prediction_is_in_the_fingerprint() -> None:
    model = leaf(0.25, 0.5)
    others = [
        replace(model, scale=Fraction(2)), replace(model, decides_on="probability"), replace(model, tie="positive"),
        replace(model, base=(Fraction(1),)), replace(model, sum_dtype="float32"), replace(model, link="mean"),
        leaf(0.5, 0.25),
    ]  # fmt: skip
    prints = [m.fingerprint() for m in (model, *others)]
    assert len(set(prints)) == len(prints)
    assert leaf(0.25, 0.5).fingerprint() == prints[0]


# --- rounding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_order_of_summation_errs_by_more_than_the_bound(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 50, 400):
        values = (rng.normal(size=n) * 10.0 ** rng.integers(-6, 3, n)).astype(dtype)
        base = np.dtype(dtype).type(rng.normal())
        model = leaf(*values.astype(float).tolist(), base=(float(base),), sum_dtype=dtype, scale=Fraction(3, 4))
        exact, bound = model.exact_margin([[0.0]])[0][0], model.rounding_error()
        for _ in range(20):
            total = base
            for value in rng.permutation(values):
                total = total + value
            scaled = total * np.dtype(dtype).type(0.75)
            assert abs(Fraction(float(scaled)) - exact) <= bound
            unscaled = replace(model, scale=Fraction(1))
            assert abs(Fraction(float(total)) - exact / Fraction(3, 4)) <= unscaled.rounding_error()
        assert bound < 1000 * (n + 3) * (U32 if dtype == "float32" else U64) * 10**3


@pytest.mark.parametrize(("dtype", "u"), [("float32", U32), ("float64", U64)])
def test_a_probability_is_above_one_half_once_the_margin_is_beyond_the_bound(dtype: Any, u: Fraction) -> None:
    real = np.dtype(dtype).type
    bound = leaf(0.0, sum_dtype=dtype, decides_on="probability").rounding_error()
    assert bound == 4 * u
    assert leaf(0.0, sum_dtype=dtype).rounding_error() == 0

    def probability(margin: float) -> Any:
        return real(1) / (real(1) + np.exp(-real(margin)))

    assert probability(float(u)) == 0.5  # positive margin, and yet no more than one half
    for factor in (1.0, 1.1, 1.5, 2.0, 10.0, 1e3):
        assert probability(float(bound) * factor) > 0.5
        assert probability(-float(bound) * factor) < 0.5


def test_the_mean_of_the_first_class_rounds_as_well_as_that_of_the_second() -> None:
    # Fractions 1/1000 of the second class: the sum of the first class is the larger one, and so is its error.
    n = 1000
    model = leaf(*[0.001] * n, link="mean")
    first = 0.0
    for _ in range(n):
        first += 0.999
    error = abs(Fraction(first / n) - Fraction(0.999))
    second = leaf(*[0.999] * n, link="mean").rounding_error()
    assert error > U64
    assert error <= model.rounding_error() == second


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_scale_that_is_not_positive_is_refused() -> None:
    for scale in (Fraction(0), Fraction(-1)):
        with pytest.raises(ModelError, match="must be positive"):
            leaf(1.0, scale=scale)


def test_a_mean_with_a_scale_counts_trees_more_or_less_than_one_part_in_their_number() -> None:
    model = leaf(1.0, 4.0, scale=Fraction(2, 5), link="mean")  # weights 1 and 4 of 5, for leaves of 1
    assert model.factor == Fraction(1, 5)
    assert model.exact_margin([[0.0]]) == [(Fraction(1, 2),)]
    assert model.margin([[0.0]]).tolist() == [[0.5]]


def test_a_model_without_classes_says_so_when_it_is_asked_for_one() -> None:
    model = leaf(1.0, link="identity", classes=())
    assert model.exact_margin([[0.0]]) == [(Fraction(1),)]
    with pytest.raises(ModelError, match="predicts a number, not a class; give a decision threshold on the value"):
        model.predict([[0.0]])
    with pytest.raises(ModelError, match="no classes, but link 'mean'"):
        leaf(1.0, link="mean", classes=())


def test_sets_outside_the_codes_are_refused() -> None:
    model = stump(Test.IN_SET, 0, codes=[1, 2])
    for start, stop in ((0, 3), (-1, 2), (2, 1)):
        with pytest.raises(ModelError, match="a category set lies outside"):
            replace(model, set_start=np.array([start, 0, 0], np.int32), set_stop=np.array([stop, 0, 0], np.int32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"left": np.array([0, -1, -1], np.int32)}, "do not form trees"),
        ({"left": np.array([7, -1, -1], np.int32)}, "child index is out of range"),
        ({"feature": np.array([5, -1, -1], np.int32)}, "tests a feature outside 0..1"),
        ({"roots": np.array([9], np.int32)}, "root index is out of range"),
        ({"value": np.array([[0.0], [np.nan], [1.0]])}, "leaf value is NaN"),
        ({"threshold": np.array([np.inf, 0.0, 0.0])}, "threshold is NaN or infinite"),
        ({"missing": np.array([9, 0, 0], np.uint8)}, "missing rule is unknown"),
        ({"value": np.zeros((3, 2))}, "leaf values have shape"),
        ({"node_id": np.zeros(2, np.int32)}, "'node_id' has 2 entries for 3 nodes"),
        ({"tree_output": np.array([4], np.int32)}, "tree_output does not name"),
        ({"roots": np.array([], np.int32), "tree_output": np.array([], np.int32)}, "no trees"),
    ],
)
def test_arrays_that_are_no_forest_are_refused(change: dict[str, Any], message: str) -> None:
    model = stumps(("a", Test.LESS_F32, 0.5, -1.0, 1.0))
    with pytest.raises(ModelError, match=message):
        replace(model, **change)


def test_a_name_that_occurs_twice_is_found_among_very_many_at_once() -> None:
    names = [f"x{i}" for i in range(200_000)]
    begin = time.perf_counter()
    with pytest.raises(ModelError, match="feature name 'x7' occurs twice"):
        leaf(1.0, feature_names=[*names, "x7"])
    assert time.perf_counter() - begin < 5


def test_arrays_cannot_be_changed_afterwards() -> None:
    model = leaf(1.0)
    with pytest.raises(ValueError, match="read-only"):
        model.value[0, 0] = 2.0
