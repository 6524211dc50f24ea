"""Numbers in print: never better than the answer."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxqte.answers.result import Bounds, ModelSummary
from boxqte.api.quantify import Quantification
from boxqte.basics.numbers import CELL, LONG, SENTENCE, SHORT, Style, number_text
from boxqte.engines.protocol import Decided, Status
from boxqte.exact import Number
from boxqte.models.ensemble import Link, Missing, Test
from boxqte.questions.properties import Fairness
from boxqte.report.text import (
    LINK_WORDS,
    MISSING_WORDS,
    TEST_WORDS,
    answer_text,
    between,
    measure_text,
    space_text,
)
from boxqte.space.attributes import Attribute, Histogram
from boxqte.space.space import Space


def result(
    fair: Fraction | float, unfair: Fraction | float, status: Status = Status.CONVERGED, kappa: Number = 0.5
) -> Quantification:
    low = 1 - Fraction(fair) - Fraction(unfair) if status is Status.CONVERGED else Fraction(0)
    model = ModelSummary("example", 1, 2, 3, "")
    return Quantification(Fairness("race", 0, kappa), model, "engine", status, Decided(fair, unfair, low), 0.5, ())


def test_a_measure_just_below_1_is_not_shown_as_1() -> None:
    tiny = Fraction(1, 10**20)
    assert measure_text(result(1 - tiny, tiny)) == "1 - 1e-20 (exact)"
    assert measure_text(result(tiny, 1 - tiny)) == "1e-20 (exact)"


def test_a_measure_of_1_is_shown_as_1() -> None:
    assert measure_text(result(Fraction(1), Fraction(0))) == "1 (exact)"


def test_a_measure_with_a_short_fraction_shows_it() -> None:
    assert measure_text(result(Fraction(2, 3), Fraction(1, 3))) == "0.666666666667 (exactly 2/3)"


def test_a_measure_with_a_long_fraction_does_not_show_it() -> None:
    third = Fraction(10**30, 3 * 10**30 + 1)
    assert measure_text(result(third, 1 - third)) == "0.333333333333 (exact)"


def test_a_converged_measure_from_floats_says_how_far_off_it_can_be() -> None:
    floats = Quantification(
        Fairness("race"), ModelSummary("example", 1, 2, 3, ""), "engine", Status.CONVERGED,
        Decided(0.6, 0.4 - 1e-14, 0.0), 0.5, (),
    )  # fmt: skip
    assert measure_text(floats).startswith("0.600000000000 (certain, error at most 9.9")


def test_digits_that_are_not_certain_are_left_out() -> None:
    assert between(Bounds(4379 / 4800 - 4e-13, 4379 / 4800 + 1e-13)).startswith(
        "0.91229166667 (certain, error at most "
    )
    assert between(Bounds(1 - 1e-13, 1.0)) == "1.000000000000 (certain, error at most 1.01e-13)"


def test_what_does_not_agree_is_shown_as_bounds_and_never_as_their_middle() -> None:
    assert between(Bounds(0.1, 0.2)) == "between 0.100000000000 and 0.200000000001 (certain)"
    assert number_text(0.1, 0.2, SHORT) == "0.100000 to 0.200001 (certain)"
    assert number_text(0.1, 0.2, SENTENCE) == "at least 10.0000 % and at most 20.0001 %"
    assert number_text(0.1, 0.2, CELL) == "10 % to 20.1 %"


ENDS = st.floats(0, 1) | st.floats(0, 1e-9) | st.floats(0, 1e-9).map(lambda x: 1 - x)


@given(ENDS, st.sampled_from([0.0, 1e-15, 1e-12, 1e-7, 1e-3, 0.5]), st.sampled_from([LONG, SHORT, SENTENCE, CELL]))
def test_the_text_holds_every_number_between_the_ends(low: float, width: float, style: Style) -> None:
    """Two numbers contain the ends; one number is that of both ends, rounded to as many digits as are shown."""
    high = min(low + width, 1.0)
    text = number_text(low, high, style)
    shown = [
        Fraction(part) / (100 if style.percent else 1) for part in re.findall(r"[\d.]+(?:e-?\d+)?", text.split(" (")[0])
    ]
    if text.startswith("1 - "):
        shown = [1 - shown[1]]
    if len(shown) == 2:
        assert shown[0] <= Fraction(low) <= Fraction(high) <= shown[1]
    elif text.startswith("less than"):
        assert 0 < high <= shown[0]
    elif text.startswith("more than"):
        assert shown[0] <= low < 1
    else:
        coarse = Fraction(shown[0], 100) if style is CELL else Fraction(1, 10**6)
        assert abs(shown[0] - Fraction(low)) <= coarse
        assert abs(shown[0] - Fraction(high)) <= coarse
        assert shown[0] != 1 or high == 1
        assert shown[0] != 0 or low == 0


def test_a_statistical_interval_is_never_one_number_and_says_its_confidence() -> None:
    assert number_text(0.25, 0.25, SHORT, confidence=0.999) == "0.250000 to 0.250000 (statistical, confidence 0.999)"


def test_what_is_known_from_below_only_says_so() -> None:
    assert number_text(0.12345, None, CELL) == "at least 12.3 %"


def test_a_ratio_that_floats_leave_open_is_no_value() -> None:
    open_ratio = Quantification(
        Fairness("race", 0, 0.9), ModelSummary("example", 1, 2, 3, ""), "engine", Status.CONVERGED,
        Decided(0.0, 0.0, 1 - 1e-13), 0.5, (),
    )  # fmt: skip
    assert open_ratio.value is None
    assert "between 0 and 1" in answer_text(open_ratio)
    assert "of all inputs are confident: too few for floating point to tell more" in answer_text(open_ratio)


def test_bounds_are_rounded_outward() -> None:
    text = measure_text(result(Fraction(1, 3), Fraction(1, 3), Status.TIME))
    assert text == "between 0.333333333333 and 0.666666666667 (certain)"
    assert between(Bounds(1 / 3, 2 / 3)) == "between 0.333333333333 and 0.666666666667 (certain)"
    assert number_text(1 - 1e-9, 1 - 1e-9, SENTENCE) == "more than 99.9999 %"


def test_the_status_is_shown_with_the_bounds() -> None:
    text = answer_text(result(Fraction(1, 3), Fraction(1, 3), Status.MEMORY))
    assert "at least 33.3333 % and at most 66.6667 % of the confident inputs are treated fairly" in text
    assert "memory limit" in text


def test_no_confident_input_is_said_in_words() -> None:
    text = answer_text(result(Fraction(0), Fraction(0), kappa=0.9))
    assert "undefined: no input is confident at kappa 0.9, so there is no share to give" in text
    assert "it is proved that none is confident" in text


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        (Attribute.integer("a", 0, 3), "uniform"),
        (Attribute.integer("a", 0, 3, missing=True), "uniform, missing 0.2"),
        (Attribute("a", "categorical", values=(1, 2), weights=(Fraction(1), Fraction(2))), "one weight a value"),
        (
            Attribute("a", "real", Fraction(0), Fraction(2),
                      histogram=Histogram((Fraction(0), Fraction(2)), (Fraction(1),))),
            "histogram, 1 bins",
        ),
    ],
)  # fmt: skip
def test_the_mass_of_an_attribute_is_said_in_words(attribute: Attribute, words: str) -> None:
    assert words in space_text(Space([attribute]))


def test_every_kind_of_test_missing_rule_and_link_has_words() -> None:
    assert set(TEST_WORDS) == set(Test) - {Test.LEAF}
    assert set(MISSING_WORDS) == set(Missing)
    assert set(LINK_WORDS) == set(get_args(Link))
