"""Numbers as users mean them, and the one irrational number that everything else is compared with."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxqte.exact import above_log, exact_sum, floor_of_log, fraction, plain, shown


def floor_with_1000_digits(kappa: Fraction, bits: int, factor: Fraction, offset: Fraction) -> int:
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 1000, 10**6, -(10**6)
        logit = (Decimal(kappa.numerator) / Decimal(kappa.denominator - kappa.numerator)).ln()
        value = logit * Decimal(factor.numerator) * Decimal(2) ** bits / Decimal(factor.denominator)
        value += Decimal(offset.numerator) / Decimal(offset.denominator)
        return int(value.to_integral_value(ROUND_FLOOR))


def floor_of_logit(kappa: Fraction, bits: int, factor: Fraction, offset: Fraction) -> int:
    return floor_of_log(kappa / (1 - kappa), factor * 2**bits, offset)


@pytest.mark.parametrize("bits", [0, 1, 10, 53, 80, 90, 100, 149, 300, 1074])
@pytest.mark.parametrize("kappa", ["0.8", "0.51", "0.999999", "0.5000001", "2/3", "0.3", "1e-9"])
def test_the_floor_of_the_logit_is_right_to_the_last_bit(kappa: str, bits: int) -> None:
    for factor, offset in ((1, 0), (Fraction(1, 3), Fraction(-1, 7)), (Fraction(10, 7), Fraction(2, 3))):
        given = (Fraction(kappa), bits, Fraction(factor), Fraction(offset))
        assert floor_of_logit(*given) == floor_with_1000_digits(*given)


@settings(max_examples=200, deadline=None)
@given(
    kappa=st.fractions("1e-9", "0.999999999").filter(lambda k: k != Fraction(1, 2)),
    bits=st.integers(0, 400),
    factor=st.fractions("1/1000000", 1000000).filter(bool),
    offset=st.one_of(st.fractions(-1, 1), st.fractions(-(10**40), 10**40)),
)
def test_the_floor_of_the_logit_is_right_for_any_factor_and_offset(
    kappa: Fraction, bits: int, factor: Fraction, offset: Fraction
) -> None:
    assert floor_of_logit(kappa, bits, factor, offset) == floor_with_1000_digits(kappa, bits, factor, offset)


def test_a_kappa_next_to_one_half_takes_more_digits() -> None:
    kappa = Fraction(1, 2) + Fraction(1, 10**300)
    assert floor_of_log(kappa / (1 - kappa)) == 0
    assert (
        floor_of_logit(kappa, 1200, Fraction(1), Fraction(0))
        == floor_with_1000_digits(kappa, 1200, Fraction(1), Fraction(0))
        > 0
    )


def test_a_float_beside_a_logarithm_is_on_its_own_side_of_it() -> None:
    log = 0.8472978603872037  # ln(7/3) = 0.84729786038720367...
    beside = [Fraction(np.nextafter(log, side)) for side in (-1, 1)]
    assert [above_log(value, Fraction(7, 3)) for value in beside] == [-1, 1]
    assert above_log(Fraction(0), Fraction(1)) == 0
    assert above_log(Fraction(-1, 10**50), Fraction(1)) == -1


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (0.1, "1/10"), ("0.1", "1/10"), (" 1/3 ", "1/3"), (7, "7"), (np.int64(7), "7"), (np.float64(0.1), "1/10"),
        (Decimal("0.1"), "1/10"), (Decimal("0.30000000000000000000000000001"), "0.30000000000000000000000000001"),
        (Decimal("1E-30"), "1e-30"), (Fraction(2, 3), "2/3"), ("1e-400", "1e-400"), (1e308, "1e308"),
    ],
)  # fmt: skip
def test_a_number_is_what_its_text_says(value: object, exact: str) -> None:
    assert fraction(value, ValueError, "x") == Fraction(exact)


@pytest.mark.parametrize(
    "value",
    [True, None, [], "x", "", float("nan"), float("inf"), Decimal("NaN"), Decimal("Infinity"), Decimal("1e5000"),
     "1e999999999", "1e401", "1/0", "1/" + "9" * 900, "0." + "1" * 900, 10**5000, Fraction(1, 10**5000), [10**5000],
     1j],
    ids=lambda value: shown(value),
)  # fmt: skip
def test_what_is_no_number_or_too_long_a_one_is_refused_in_one_line(value: object) -> None:
    with pytest.raises(ValueError, match=r"^where: expected a") as caught:
        fraction(value, ValueError, "where")
    assert len(str(caught.value)) < 170  # one line of a terminal or two


@given(st.fractions())
def test_the_plain_form_reads_back_to_the_same_rational(value: Fraction) -> None:
    assert fraction(plain(value), ValueError, "x") == value


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_floats_are_added_without_rounding(values: list[float]) -> None:
    assert exact_sum(values) == sum(map(Fraction, values))
