"""Numbers as users mean them: a typed 0.1 is one tenth, and stays so; and outward rounding."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from numbers import Rational

MAX_DIGITS = 400  # refuses 1e999999999, which would otherwise fill the memory with zeros
MAX_LENGTH = 2 * MAX_DIGITS
ACCEPTED = f"of at most {MAX_LENGTH} digits, and 0 or between 1e-{MAX_DIGITS} and 1e{MAX_DIGITS} in size"
LONG_INTEGER = re.compile(rf"\d{{{MAX_LENGTH + 1},}}")

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
        if max(abs(exact.numerator), exact.denominator) >= 10**MAX_LENGTH:
            raise error(f"{where}: expected a number {ACCEPTED}, found {shown(value)}")
        return exact
    try:
        if isinstance(value, Decimal):
            text = str(value)
        else:
            text = value.strip() if isinstance(value, str) else repr(float(value))  # type: ignore[arg-type]
        read = _rational(text)
    except (ValueError, TypeError, ArithmeticError):
        raise error(f"{where}: expected a finite number, found {shown(value)}") from None
    if read is None:
        raise error(f"{where}: expected a number {ACCEPTED}, found {shown(value)}")
    return read


def _rational(text: str) -> Fraction | None:
    """The rational that the text means, None if it has too many digits; ValueError if it means none."""
    if len(text) > MAX_LENGTH:
        return None
    if "/" in text:  # two integers: Fraction takes no exponent there
        return Fraction(text)
    number = Decimal(text)  # which keeps 1e99999999 as it is written; Fraction would write its zeros
    if not number.is_finite():
        raise ValueError
    return None if number and abs(number.adjusted()) > MAX_DIGITS else Fraction(number)


def oversized_in(text: str) -> str:
    """Where a file has an integer of thousands of digits, which Python's readers refuse without a word on where it is."""
    found = LONG_INTEGER.search(text)
    if found is None:
        return ""
    line = text.count("\n", 0, found.start()) + 1
    return f"line {line}: expected numbers {ACCEPTED}, found {found[0][:20]}... of {len(found[0])} digits"


def shown(value: object) -> str:
    """A value for an error message: short, on one line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, lists in lists in lists
        text = "something too long to show"
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


def floor_of_log(odds: Fraction, factor: Fraction = Fraction(1), offset: Fraction = Fraction(0)) -> int:
    """floor(ln(odds) * factor + offset) for odds > 0 and factor > 0, with enough digits to be certain.

    ln(odds) is irrational for every rational odds other than 1 (Lindemann-Weierstrass), so enough digits always settle
    the floor; the loop adds digits until the two ends of the error interval agree.

    Examples
    --------
    >>> floor_of_log(Fraction(4), Fraction(2**10))  # ln 4 = 1.38629...
    1419
    """
    if odds == 1:
        return math.floor(offset)
    digits = 30 + math.ceil(math.ceil(factor).bit_length() * 0.30103)
    while True:
        # Every step in one context: outside it, a plain `+` rounds to 28 digits.
        with localcontext(Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            unit = Decimal(factor.numerator) / Decimal(factor.denominator)
            log = (Decimal(odds.numerator) / Decimal(odds.denominator)).ln()
            added = Decimal(offset.numerator) / Decimal(offset.denominator)
            value = log * unit + added
            # rounding odds moves its logarithm by an absolute amount, and the two terms may cancel
            slack = ((abs(log) + 1) * unit + abs(added) + 1) * Decimal(10) ** (4 - digits)
            low, high = (int((value + s).to_integral_value(ROUND_FLOOR)) for s in (-slack, slack))
        if low == high:
            return low
        digits *= 2


def above_log(value: Fraction, odds: Fraction) -> int:
    """1, 0 or -1: whether the value lies above ln(odds), on it or below it.

    Examples
    --------
    >>> above_log(Fraction(7, 5), Fraction(4)), above_log(Fraction(0), Fraction(1)), above_log(Fraction(1), Fraction(4))
    (1, 0, -1)
    """
    if odds == 1:
        return (value > 0) - (value < 0)
    return 1 if floor_of_log(odds, offset=-value) < 0 else -1


def down(value: Fraction) -> float:
    """The largest float that is not above the value."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def up(value: Fraction) -> float:
    """The smallest float that is not below the value."""
    return -down(-value) + 0.0  # 0, never -0
