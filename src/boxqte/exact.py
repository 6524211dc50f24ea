"""Numbers as users mean them: a typed 0.1 is one tenth, and stays so; nothing here rounds."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from numbers import Rational

MAX_DIGITS = 400  # refuses 1e999999999, which would otherwise fill the memory with zeros

Number = int | float | str | Fraction | Decimal


def fraction(value: object, error: type[Exception], where: str) -> Fraction:
    """The exact rational that a user's number means: a float stands for its shortest decimal, text for itself.

    Examples
    --------
    >>> fraction(0.1, ValueError, "epsilon")
    Fraction(1, 10)
    >>> fraction("1/3", ValueError, "epsilon")
    Fraction(1, 3)
    """
    if isinstance(value, bool):
        raise error(f"{where}: expected a number, found {value!r}")
    if isinstance(value, Fraction):
        return value
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    try:
        text = value.strip() if isinstance(value, str) else repr(float(value))  # type: ignore[arg-type]
        if "/" not in text:
            number = Decimal(text)
            if not number.is_finite():
                raise ValueError
            if number and abs(number.adjusted()) > MAX_DIGITS:
                raise ValueError
            return Fraction(number)
        if len(text) > 2 * MAX_DIGITS:
            raise ValueError
        return Fraction(text)
    except (ValueError, TypeError, ArithmeticError):
        shown = repr(value)
        raise error(f"{where}: expected a finite number, found {shown if len(shown) <= 60 else shown[:57] + '...'}") from None


def plain(value: Fraction) -> int | float | str:
    """The shortest JSON form that `fraction` reads back to the same rational."""
    if value.denominator == 1:
        return int(value)
    try:
        as_float = float(value)
        if Fraction(repr(as_float)) == value:
            return as_float
    except OverflowError:
        pass
    return f"{value.numerator}/{value.denominator}"


def floor_scaled_logit(kappa: Fraction, scale_bits: int) -> int:
    """floor(logit(kappa) * 2**scale_bits) for 1/2 < kappa < 1, computed with enough digits to be certain.

    logit(kappa) is irrational for every rational kappa != 1/2 (Lindemann-Weierstrass), so enough digits always settle
    the floor; the loop adds digits until the two ends of the error interval agree.
    """
    digits = 30 + math.ceil(scale_bits * 0.30103)
    while True:
        context = Context(prec=digits, Emax=999999, Emin=-999999)
        odds = context.divide(Decimal(kappa.numerator), Decimal(kappa.denominator - kappa.numerator))
        value = context.multiply(context.ln(odds), Decimal(2**scale_bits))
        slack = context.multiply(abs(value) + Decimal(2**scale_bits), Decimal(10) ** (4 - digits))
        low, high = (int((value + s).to_integral_value(ROUND_FLOOR, context)) for s in (-slack, slack))
        if low == high:
            return low
        digits *= 2
