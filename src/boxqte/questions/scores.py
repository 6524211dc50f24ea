"""Probabilities on the grid: which integer margins are so far from F that their probabilities differ by more than a change.

p(F) = 1 / (1 + exp(-(F + rest) / unit)). p(F) - p(G) > change holds for all G up to a level, which is never an integer: with
rational x and y, p(x) - p(y) = change is exp(x) - exp(y) = change (1 + exp(x) + exp(y) + exp(x + y)), and that has no
solution with change > 0 (Lindemann-Weierstrass). So enough digits always settle on which side of the level an integer is.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction

FIRST_DIGITS = 40


@dataclass(frozen=True)
class ProbabilityScale:
    """Margins that are compared as probabilities."""

    change: Fraction
    """What is accepted; above 0 and below 1."""
    unit: Fraction
    """Units of F of a margin of 1."""
    rest: Fraction
    """What a margin is beyond F, in units."""

    def below(self, F: int) -> int | None:
        """The largest G with p(F) - p(G) > change; None if there is none.

        Examples
        --------
        >>> ProbabilityScale(Fraction(1, 4), Fraction(1000), Fraction(0)).below(0)  # 1000 ln(1/3) = -1098.6
        -1099
        """
        return _floor_of_level(F + self.rest, self.change, self.unit, self.rest)

    def above(self, F: int) -> int | None:
        """The smallest G with p(G) - p(F) > change; None if there is none."""
        level = _floor_of_level(-(F + self.rest), self.change, self.unit, -self.rest)
        return None if level is None else -level


def _floor_of_level(margin: Fraction, change: Fraction, unit: Fraction, rest: Fraction) -> int | None:
    """floor(unit * logit(p(margin / unit) - change) - rest); None if that probability is not above 0."""
    if margin == 0 and change >= Fraction(1, 2):
        return None
    digits = FIRST_DIGITS
    while True:
        with localcontext(Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            ratio = margin / unit
            x = _decimal(ratio)
            p = 1 / (1 + (-x).exp()) - _decimal(change)
            # a relative error of 10**-digits of x is an absolute one of |x| times so much in ln p, and all else is smaller
            slack = (abs(x) + 10) * Decimal(10) ** (2 - digits)
            if p + slack <= 0:
                return None
            if slack < p < 1 - slack:
                ends = [_level(q, unit, rest) for q in (p - slack, p + slack)]
                scale = Decimal(10) ** (4 - digits) * (1 + abs(ends[0]) + abs(ends[1]) + _decimal(unit))
                low, high = ends[0] - scale, ends[1] + scale
                first, last = (int(end.to_integral_value(ROUND_FLOOR)) for end in (low, high))
                if first == last:
                    return first
        digits *= 2


def _level(q: Decimal, unit: Fraction, rest: Fraction) -> Decimal:
    return (q.ln() - (1 - q).ln()) * _decimal(unit) - _decimal(rest)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
