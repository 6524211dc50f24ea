"""`boxqte demo`: the paper's loan classifier, three questions about it, and what the answers mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from boxqte.api.quantify import quantify
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.properties import Fairness, Property, Robustness
from boxqte.report.text import between, measure_text

INTRODUCTION = """\
The loan classifier of the paper (its Figure 1 and appendix): three trees over income, race and age.

  T1: race < 2 ? (income < 300 ? -0.17 : 0.85) : -0.02
  T2: income < 600 ? (race < 3 ? 0.7 : 1.62) : (age < 50 ? -0.19 : 1.75)
  T3: age < 50 ? 0.72 : -1.3

  F = T1 + T2 + T3; the loan is granted where F > 0; the confidence is that of sigmoid(F).
  Inputs: income, real, 0 to 1000; race, one of 0, 1, 2, 3, 4; age, integer, 0 to 100; all equally likely.
"""


@dataclass(frozen=True)
class Question:
    """One question about the classifier, and why its answer is what it is."""

    title: str
    property: Property
    asked: str
    meaning: str


QUESTIONS = (
    Question(
        "1. Individual fairness in race",
        Fairness("race"),
        "Of all applicants, who gets the same answer whatever the race is?",
        "Nobody with an income of 600 or more, and nobody below the age of 50, is affected. Everybody else is: with\n"
        "  income 200 and age 60, race 2 is refused (F = -0.62) and race 3 is granted the loan (F = 0.30).\n"
        "  By hand: 0.6 (income) * 51/101 (age) of all inputs are counterexamples.",
    ),
    Question(
        "2. The paper's appendix: fairness in race, epsilon 5 in income and age, kappa 0.8",
        Fairness("race", {"income": 5, "age": 5}, "0.8"),
        "Of the applicants about whom the classifier is more than 80 % sure, who gets the same answer if the race\n"
        "  changes, and income and age by at most 5?",
        "It is that sure about 24/101 of all inputs. Those aged 45 to 49 are within 5 years of the cut at 50, beyond\n"
        "  which another race is refused: all of them are counterexamples, but for race 2 with income 305 or more.",
    ),
    Question(
        "3. Robustness, epsilon 5 in income and age",
        Robustness({"income": 5, "age": 5}),
        "Of all applicants, whose answer stays the same if income and age change by at most 5?",
        "No attribute is sensitive here: the question is how much of the space lies near a border of the classifier.",
    ),
)


def run_demo(say: Callable[[str], None]) -> None:
    """Ask the three questions and say the answers."""
    say(INTRODUCTION)
    model, space = loan_ensemble(), loan_space()
    for question in QUESTIONS:
        # small enough for the engine that works in rationals
        result = quantify(model, space, question.property, engine="exhaustive")
        say(question.title)
        say(f"  {question.asked}")
        say(f"  measure              {measure_text(result)}")
        say(f"  confident mass       {between(result.confident)}")
        say(f"  counterexample mass  {between(result.counterexample)}")
        say(f"  status               {result.status} in {result.seconds:.2f} s, engine {result.engine}")
        say(f"  guarantee            {result.guarantee()}")
        say(f"  {question.meaning}\n")
    say("measure = 1 - counterexample mass / confident mass. Your own model: boxqte quantify --help")
