"""Masses from data: the frequencies of each attribute's values."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from boxqte.space.space import Space
from tests.space.inferring import Make, refusal


def test_the_mass_of_categories_is_how_often_they_occur(make: Make) -> None:
    space = Space.infer(make({"s": ["a", "b", "b", "b"], "r_x": [1, 0, 0, 0], "r_y": [0, 1, 1, 1]}), mass="data").space
    assert space["s"].value_masses() == space["r"].value_masses() == [Fraction(1, 4), Fraction(3, 4)]


def test_the_mass_of_integers_is_how_often_each_value_occurs_and_none_between(make: Make) -> None:
    attribute = Space.infer(make({"i": [2, 2, 5, 9, 9, 9]}), mass="data").space["i"]
    mass = [attribute.mass_below(Fraction(v + 1)) - attribute.mass_below(Fraction(v)) for v in range(2, 10)]
    assert mass == [Fraction(n, 6) for n in (2, 0, 0, 1, 0, 0, 0, 3)]


def test_a_bool_column_that_is_declared_integer_has_a_mass_too() -> None:
    attribute = Space.infer({"b": [True, True, False]}, integer=["b"], mass="data").space["b"]
    assert attribute.mass_below(Fraction(1)) == Fraction(1, 3)


def test_more_than_256_integers_are_256_bins_of_equal_width() -> None:
    attribute = Space.infer({"i": list(range(0, 1000, 3))}, mass="data").space["i"]
    assert attribute.histogram is not None
    widths = {b - a for a, b in zip(attribute.histogram.edges, attribute.histogram.edges[1:])}
    assert len(attribute.histogram.weights) == 256
    assert widths == {3, 4}
    assert sum(attribute.histogram.weights) == 334


def test_the_bins_of_a_real_attribute_lie_around_the_values() -> None:
    attribute = Space.infer({"x": [0.0, 0.5, 0.5, 2.0]}, mass="data").space["x"]
    assert attribute.histogram is not None
    assert attribute.histogram.edges == (0, Fraction(1, 4), Fraction(5, 4), 2)
    assert attribute.histogram.weights == (1, 2, 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6).map(lambda v: round(v, 3)), min_size=1, max_size=200))
def test_real_bins_are_few_and_their_mass_is_the_number_of_rows(values: list[float]) -> None:
    attribute = Space.infer({"x": values}, mass="data", real=["x"]).space["x"]
    if attribute.range:
        assert attribute.histogram is not None
        assert len(attribute.histogram.weights) <= 64
        assert sum(attribute.histogram.weights) == len(values)
        assert attribute.mass_below(attribute.high) == 1
        median = sorted(values)[len(values) // 2]
        largest = max(attribute.histogram.weights) / len(values)
        assert abs(attribute.mass_below(Fraction(repr(median))) - Fraction(1, 2)) <= largest + Fraction(1, len(values))


def test_a_value_at_the_end_of_the_domain_counts_though_its_double_lies_beyond() -> None:
    assert Fraction(0.1) > Fraction(1, 10)  # the double is larger than the decimal it stands for
    inference = Space.infer({"x": [0.0, 0.05, 0.1]}, mass="data")
    assert inference.space["x"].histogram is not None
    assert sum(inference.space["x"].histogram.weights) == 3


def test_a_constant_column_has_its_mass_on_its_only_value() -> None:
    space = Space.infer({"f": [0.5, 0.5], "i": [3, 3]}, mass="data").space
    assert [a.mass_below(Fraction(4)) for a in space] == [1, 1]


def test_rows_outside_an_overridden_domain_have_no_mass_and_the_report_says_so() -> None:
    frame = {"i": [1, 2, 50], "s": ["a", "b", "c"]}
    inference = Space.infer(frame, mass="data", overrides={"i": {"high": 10}, "s": {"values": ["a", "z"]}})
    assert inference.space["i"].mass_below(Fraction(2)) == Fraction(1, 2)
    assert inference.space["s"].value_masses() == [1, 0]
    assert "rows outside the domain, left out: 1" in inference.decisions[0].why
    assert "no row of the data lies in its domain" in refusal(
        frame, mass="data", overrides={"i": {"low": 60, "high": 70}}
    )


def test_a_mass_in_an_override_counts_more_than_the_data() -> None:
    space = Space.infer({"s": ["a", "b", "b"]}, mass="data", overrides={"s": {"mass": [5, 1]}}).space
    assert space["s"].value_masses() == [Fraction(5, 6), Fraction(1, 6)]


def test_declared_categories_that_do_not_occur_have_no_mass() -> None:
    frame = pd.DataFrame({"g": pd.Categorical(["a", "a"], categories=["a", "b"])})
    assert Space.infer(frame, mass="data").space["g"].value_masses() == [1, 0]
