"""Numbers as users mean them: a typed 0.1 is one tenth, and stays so; nothing here rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal, localcontext
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
    >>> fraction(Decimal("0.3"), ValueError, "epsilon")
    Fraction(3, 10)
    """
    if isinstance(value, bool):
        raise error(f"{where}: expected a number, found {value!r}")
    if isinstance(value, Rational):
        exact = Fraction(int(value.numerator), int(value.denominator))
        if max(abs(exact.numerator), exact.denominator) >= 10 ** (2 * MAX_DIGITS):  # str() of it may be refused
            raise error(f"{where}: expected a number of at most {2 * MAX_DIGITS} digits")
        return exact
    try:
        if isinstance(value, Decimal):
            text = str(value)
        else:
            text = value.strip() if isinstance(value, str) else repr(float(value))  # type: ignore[arg-type]
        if len(text) > 2 * MAX_DIGITS:
            raise ValueError
        if "/" not in text:
            number = Decimal(text)
            if not number.is_finite():
                raise ValueError
            if number and abs(number.adjusted()) > MAX_DIGITS:
                raise ValueError
            return Fraction(number)
        return Fraction(text)
    except (ValueError, TypeError, ArithmeticError):
        raise error(f"{where}: expected a finite number, found {shown(value)}") from None


def shown(value: object) -> str:
    """A value for an error message: short, on one line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, lists in lists in lists
        text = f"a {type(value).__name__} too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


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


def exact_sum(values: Iterable[float]) -> Fraction:
    """The sum of floats without rounding.

    Examples
    --------
    >>> exact_sum([0.5, 2**-60, -0.5])
    Fraction(1, 1152921504606846976)
    """
    ratios = [value.as_integer_ratio() for value in values]
    unit = max((denominator for _, denominator in ratios), default=1)  # all of them are powers of two
    return Fraction(sum(numerator * (unit // denominator) for numerator, denominator in ratios), unit)


def floor_scaled_logit(
    kappa: Fraction, scale_bits: int, factor: Fraction = Fraction(1), offset: Fraction = Fraction(0)
) -> int:
    """floor(logit(kappa) * factor * 2**scale_bits + offset) for 1/2 < kappa < 1, with enough digits to be certain.

    logit(kappa) is irrational for every rational kappa != 1/2 (Lindemann-Weierstrass), so enough digits always settle
    the floor; the loop adds digits until the two ends of the error interval agree.

    Examples
    --------
    >>> floor_scaled_logit(Fraction(4, 5), 10)  # ln 4 = 1.38629...
    1419
    """
    exact = factor * 2**scale_bits
    digits = 30 + math.ceil(math.ceil(exact).bit_length() * 0.30103)
    while True:
        # Every step in one context: outside it, a plain `+` rounds to 28 digits.
        with localcontext(Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            odds = Decimal(kappa.numerator) / Decimal(kappa.denominator - kappa.numerator)
            unit = Decimal(exact.numerator) / Decimal(exact.denominator)
            value = odds.ln() * unit + Decimal(offset.numerator) / Decimal(offset.denominator)
            slack = (abs(value) + unit + 1) * Decimal(10) ** (4 - digits)
            low, high = (int((value + s).to_integral_value(ROUND_FLOOR)) for s in (-slack, slack))
        if low == high:
            return low
        digits *= 2
