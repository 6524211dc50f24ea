"""Numbers as people read them. One function makes the text, and the text says what the number is.

exact: a rational number, with no error at all. certain: bounds that are proved, or one number with its greatest error.
statistical: an interval that holds with the stated confidence. Digits are never better than the answer: lower ends are
rounded down and upper ends up, and one number stands alone only if both ends round to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

Real = float | Fraction

NEXT_TO_NOTHING = Fraction(1, 10**6)  # a share between 0 and this needs no digits of its own
LONGEST_FRACTION = 40


@dataclass(frozen=True)
class Style:
    """How much of a number a place has room for.

    `tries` are the numbers of decimals (or of significant digits) that one number may have, the best first; bounds have
    `tries[0]`.
    """

    tries: tuple[int, ...]
    pattern: str
    percent: bool = False
    significant: bool = False
    labelled: bool = True


LONG = Style(tuple(range(12, 5, -1)), "between {} and {}")
SHORT = Style((6, 7, 8), "{} to {}")
PROGRESS = Style((6, 7, 8), "between {} and {}")
SENTENCE = Style((4, 5, 6), "at least {} and at most {}", percent=True, labelled=False)
CELL = Style((3, 4, 5, 6), "{} to {}", percent=True, significant=True, labelled=False)
"""For tables whose caption says what their numbers are."""
PHRASE = replace(CELL, pattern="between {} and {}")


def kind_of(lower: Real, upper: Real | None, confidence: float | None = None) -> str:
    """What a number is: exact, certain or statistical."""
    if confidence is not None:
        return "statistical"
    return "exact" if lower == upper else "certain"


def number_text(lower: Real, upper: Real | None, style: Style = LONG, *, confidence: float | None = None) -> str:
    """A number between the ends as text; `upper` None: nothing is known above, `confidence`: the ends are statistical.

    Examples
    --------
    >>> number_text(Fraction(2, 3), Fraction(2, 3)), number_text(0.1, 0.2, SHORT)
    ('0.666666666667 (exactly 2/3)', '0.100000 to 0.200001 (certain)')
    >>> number_text(0.25, 0.25 + 1e-14), number_text(0.25, 0.5, SHORT, confidence=0.99)
    ('0.250000000000 (certain, error at most 1e-14)', '0.250000 to 0.500000 (statistical, confidence 0.99)')
    >>> number_text(Fraction(1, 3), Fraction(1, 3), CELL), number_text(0.006, 0.021, CELL), number_text(0.125, None, CELL)
    ('33.3 %', '0.6 % to 2.11 %', 'at least 12.5 %')
    """
    low, high = Fraction(lower), None if upper is None else Fraction(upper)
    one = None
    if high is None:
        text = f"at least {_end(low, ROUND_FLOOR, style)}"
    elif confidence is None and (one := _one_number(low, high, style)) is not None:
        text = one
    else:
        text = style.pattern.format(_end(low, ROUND_FLOOR, style), _end(high, ROUND_CEILING, style))
    return f"{text} ({_label(low, high, one, style, confidence)})" if style.labelled else text


def _label(low: Fraction, high: Fraction | None, one: str | None, style: Style, confidence: float | None) -> str:
    kind = kind_of(low, high, confidence)
    if kind == "statistical":
        return f"statistical, confidence {confidence}"
    if kind == "exact":
        fraction = str(low)
        short = (
            "/" in fraction
            and len(fraction) <= LONGEST_FRACTION
            and style is LONG
            and re.fullmatch(r"[\d.]+", one or "")
        )
        return f"exactly {fraction}" if short else "exact"
    if one is None or high is None or (style is not LONG and Decimal(one.removeprefix("1 - ")) not in (0, 1)):
        return "certain"
    shown = 1 - Fraction(one[4:]) if one.startswith("1 - ") else Fraction(one)
    return f"certain, error at most {short_up(max(abs(shown - low), abs(shown - high)))}"


def _one_number(low: Fraction, high: Fraction, style: Style) -> str | None:
    """The first way of writing both ends that gives the same text and does not say 0 or 1 of what is neither."""
    write = _writer(style)
    for digits in style.tries:
        ends = [write(end, ROUND_HALF_EVEN, digits) for end in (low, high)]
        if Decimal(ends[0]) == Decimal(ends[1]) and not _overstated(Decimal(ends[0]), low, high, style):
            return _with_unit(max(ends, key=len), style)
    if style.percent:
        return _percent_words(low, high)
    if high < NEXT_TO_NOTHING:
        return _few_digits(low, high)
    rest = _few_digits(1 - high, 1 - low) if low > 1 - NEXT_TO_NOTHING else None
    return None if rest is None else f"1 - {rest}"


def _overstated(shown: Decimal, low: Fraction, high: Fraction, style: Style) -> bool:
    """Whether the text is 0 or 1 although the number is certainly not."""
    whole = 100 if style.percent else 1
    return (shown == 0 and low > 0) or (shown == whole and high < 1)


def _percent_words(low: Fraction, high: Fraction) -> str | None:
    if 0 < high <= NEXT_TO_NOTHING:
        return "less than 0.0001 %"
    return "more than 99.9999 %" if 1 > low >= 1 - NEXT_TO_NOTHING else None


def _few_digits(low: Fraction, high: Fraction) -> str | None:
    """A small number to six digits, or as many of them as both ends have in common."""
    for digits in range(6, 0, -1):
        ends = {significant(end, ROUND_HALF_EVEN, digits) for end in (low, high)}
        if len(ends) == 1:
            return ends.pop()
    return None


def _end(value: Fraction, rounding: str, style: Style) -> str:
    return _with_unit(_writer(style)(value, rounding, style.tries[0]), style)


def _writer(style: Style) -> Callable[[Fraction, str, int], str]:
    scale = 100 if style.percent else 1
    if style.significant:
        return lambda value, rounding, digits: significant(scale * value, rounding, digits)
    return lambda value, rounding, digits: rounded(scale * value, rounding, digits)


def _with_unit(text: str, style: Style) -> str:
    return f"{text} %" if style.percent else text


def rounded(value: Real, rounding: str = ROUND_HALF_EVEN, places: int = 12) -> str:
    """A number with so many decimals, rounded as asked; whole numbers without any.

    Examples
    --------
    >>> rounded(2 / 3, ROUND_FLOOR), rounded(Fraction(2, 3), ROUND_CEILING), rounded(1.0)
    ('0.666666666666', '0.666666666667', '1')
    """
    exact = Fraction(value)
    if exact.denominator == 1:
        return str(exact.numerator)
    context = Context(prec=60, rounding=rounding)
    decimal = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"{decimal.quantize(Decimal(1).scaleb(-places), rounding=rounding):f}"


def significant(value: Real, rounding: str = ROUND_HALF_EVEN, digits: int = 3) -> str:
    """A number with so many significant digits, rounded as asked.

    Examples
    --------
    >>> significant(0.012345), significant(1 / 3, ROUND_CEILING), significant(100), significant(1.5e-9)
    ('0.0123', '0.334', '100', '1.5e-9')
    """
    exact = Fraction(value)
    decimal = Context(prec=digits, rounding=rounding).divide(Decimal(exact.numerator), Decimal(exact.denominator))
    shortest = decimal.normalize()
    return f"{shortest:f}" if decimal == 0 or abs(decimal) >= Decimal("0.0001") else f"{shortest:e}"


def short_up(value: Real) -> str:
    """Three significant digits, rounded up."""
    return significant(value, ROUND_CEILING, 3)
