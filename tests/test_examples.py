"""The paper's loan example, computed by hand.

F = T1 + T2 + T3 on the nine cells of income and race, for ages below 50 (50 of 101 values) and from 50 on (51):

    income       race 0, 1     race 2        race 3, 4
    [0, 300)     1.25  -0.77   1.40  -0.62   2.32  0.30
    [300, 600)   2.27   0.25   1.40  -0.62   2.32  0.30
    [600, 1000]  1.38   1.30   0.51   0.43   0.51  0.43
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from boxqte import Fairness, Quantification, Robustness, quantify
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.properties import Property

NEAR = {"income": 5, "age": 5}


def ask(prop: Property) -> Quantification:
    return quantify(loan_ensemble(), loan_space(), prop, engine="exhaustive")


@pytest.mark.parametrize(
    ("income", "race", "young", "old"),
    [
        (0, 1, 1.25, -0.77), (0, 2, 1.40, -0.62), (299, 4, 2.32, 0.30),
        (300, 0, 2.27, 0.25), (599, 2, 1.40, -0.62), (599, 3, 2.32, 0.30),
        (600, 1, 1.38, 1.30), (600, 2, 0.51, 0.43), (1000, 4, 0.51, 0.43),
    ],
)  # fmt: skip
def test_the_margins_are_those_of_the_table(income: float, race: int, young: float, old: float) -> None:
    assert loan_ensemble().margin([[income, race, 49], [income, race, 50]]).ravel() == pytest.approx([young, old])


def test_individual_fairness_in_race() -> None:
    """From 50 on, income below 600: some race is refused and some is not, so everybody there is a counterexample."""
    result = ask(Fairness("race"))
    unfair = Fraction(6, 10) * Fraction(51, 101)
    assert result.decided.unfair == unfair
    assert result.decided.low == 0
    assert result.exact == 1 - unfair


def test_the_appendix_case() -> None:
    """kappa 0.8 is |F| > 1.386: income below 600 and age below 50, except race 0, 1 with income below 300 (F = 1.25).

    Those are counterexamples from 45 years on, since 50 is within 5 and another race is refused there: any but their
    own for race 3, 4; race 2 for race 0, 1; but for race 2 only race 0, 1 with income below 300, within 5 of their own.
    """
    result = ask(Fairness("race", NEAR, "0.8"))
    confident = Fraction(50, 101) * (Fraction(3, 10) * Fraction(3, 5) + Fraction(3, 10))
    shares = Fraction(6, 10) * Fraction(2, 5) + Fraction(3, 10) * Fraction(2, 5) + Fraction(305, 1000) * Fraction(1, 5)
    unfair = Fraction(5, 101) * shares
    assert 1 - result.decided.low == confident == Fraction(24, 101)
    assert result.decided.unfair == unfair
    assert result.exact == 1 - unfair / confident == Fraction(4379, 4800)


def test_robustness() -> None:
    """Race 0, 1 is refused from 50 on with income below 300, race 2 below 600: counted on both sides of that corner."""

    def near_corner(cut: int) -> Fraction:
        income = Fraction(1, 1000)
        refused = 5 * cut * income + 46 * 5 * income  # age 50..54; from 55 on, income at least cut - 5
        granted = 5 * (cut + 5) * income + 51 * 5 * income  # age 45..49; from 50 on, income below cut + 5
        return (refused + granted) / 101

    result = ask(Robustness(NEAR))
    assert result.decided.unfair == Fraction(2, 5) * near_corner(300) + Fraction(1, 5) * near_corner(600)
    assert result.exact == 1 - Fraction(result.decided.unfair)
