"""What becomes of a requirement: it holds, it is violated, or neither is proved."""

from __future__ import annotations

from enum import Enum
from fractions import Fraction

from boxqte.answers.result import Result


class Verdict(Enum):
    """What became of a requirement."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNDECIDED = "undecided"

    @property
    def exit_code(self) -> int:
        return {Verdict.HOLDS: 0, Verdict.VIOLATED: 1, Verdict.UNDECIDED: 3}[self]

    def __str__(self) -> str:
        return self.value


def decide(result: Result, at_least: Fraction) -> Verdict:
    """Whether the measure is proved to be at least so much, proved to be below, or neither.

    An undefined measure (no input is confident) proves nothing, so it is undecided: a requirement that no input can
    break is a mistake in the requirement.

    Examples
    --------
    >>> from boxqte import Fairness, quantify
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> result = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive")
    >>> result.exact, decide(result, Fraction(1, 2)), decide(result, Fraction(99, 100))
    (Fraction(352, 505), <Verdict.HOLDS: 'holds'>, <Verdict.VIOLATED: 'violated'>)
    """
    ends = result.decided.measure()
    if result.undefined or ends is None:
        return Verdict.UNDECIDED
    if ends[0] >= at_least:
        return Verdict.HOLDS
    return Verdict.VIOLATED if ends[1] < at_least else Verdict.UNDECIDED
