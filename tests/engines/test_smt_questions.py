"""Confident partners, scores, monotonicity and bounded changes as formulas, against the oracle (questions.md, 2, 2a, 3)."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from boxqte import EngineError, Fairness, quantify
from boxqte.engines.smt.formula import smtlib
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_grid
from boxqte.questions.properties import Monotonicity, Property, ScoreFairness
from tests.engines.test_smtlib import by_cvc5, by_z3
from tests.naive import Oracle
from tests.naive_questions import exchanged, is_witness, naive_measure, products_of_fine_pieces
from tests.strategies import Problem, random_problem


def problem_of(seed: int) -> tuple[Problem, random.Random]:
    rng = random.Random(seed)
    return random_problem(rng, eps=False, max_pieces=100, max_trees=3, decision=seed % 4 == 0), rng


def questions(problem: Problem, rng: random.Random) -> list[Property]:
    """One of each kind that fits."""
    own, names = problem.property, list(problem.space.names)
    some = rng.sample(names, rng.randint(1, min(2, len(names))))
    found: list[Property] = [
        Fairness(some, 0, own.kappa, partner_kappa=rng.choice([Fraction(3, 5), Fraction(4, 5)]), tie=own.tie),
    ]
    numeric = [a for a in problem.space if a.is_numeric]
    if problem.ensemble.decision is None:
        found.append(ScoreFairness(some, rng.choice([0, Fraction(1, 4), 1]), "margin"))
    if numeric:
        one, direction = rng.choice(numeric), rng.choice(["increasing", "decreasing"])
        found.append(Monotonicity(one.name, direction, "class", own.kappa, tie=own.tie))
        if problem.ensemble.decision is None:
            found.append(Monotonicity(one.name, direction, "score"))
        reach = one.range * Fraction(rng.randint(1, 5), 5) or Fraction(1)
        both = list(dict.fromkeys([one.name, *some]))
        found.append(Fairness(both, 0, own.kappa, max_change={one.name: reach}, tie=own.tie))
    return found


def some_counterexample(problem: Problem, prop: Property) -> bool:
    """Whether there is one, points without mass included."""
    oracle = Oracle(problem.ensemble, problem.space, prop)
    for pieces in products_of_fine_pieces(oracle):
        x = oracle.representative(pieces)
        if oracle.is_confident(x) and any(is_witness(oracle, x, other) for other in exchanged(oracle, x)):
            return True
    return False


def check_formulas(seeds: range) -> set[tuple[str, bool]]:
    seen = set()
    for seed in seeds:
        problem, rng = problem_of(seed)
        for prop in questions(problem, rng):
            there = some_counterexample(problem, prop)
            script = smtlib(build_grid(problem.ensemble, problem.space, prop))
            assert by_z3(script) == by_cvc5(script) == ("sat" if there else "unsat"), (seed, prop)
            seen.add((prop.kind, there))
    return seen


def check_engines(seeds: range) -> None:
    for seed in seeds:
        problem, rng = problem_of(seed)
        for prop in questions(problem, rng):
            wanted = naive_measure(problem.ensemble, problem.space, prop)
            engines = ["cegar"] if prop.max_change or isinstance(prop, Monotonicity) else ["cegar", "smt"]
            for engine in engines:
                options = {"refinement": "node+random"} if engine == "cegar" else {}
                limit = 0.5 if prop.max_change else None  # cells of bounded changes are no halves of anything
                found = quantify(problem.ensemble, problem.space, prop, engine=engine, options=options, workers=1,
                                 time_limit=limit, gap=0.05 if limit else 0.0)  # fmt: skip
                true = wanted.confident - wanted.counterexample, wanted.counterexample, 1 - wanted.confident
                decided = found.decided.fair, found.decided.unfair, found.decided.low
                if found.converged:
                    assert decided == true, (seed, engine, prop)
                else:
                    assert limit is not None
                    assert all(lower <= mass for lower, mass in zip(decided, true)), (seed, engine, prop)


def test_formulas_are_satisfiable_iff_the_oracle_finds_one() -> None:
    assert len(check_formulas(range(20))) == 6


def test_engines_equal_the_oracle() -> None:
    check_engines(range(8))


@pytest.mark.slow
def test_formulas_are_satisfiable_iff_the_oracle_finds_one_of_many() -> None:
    check_formulas(range(1000, 1400))


@pytest.mark.slow
def test_engines_equal_the_oracle_on_many() -> None:
    check_engines(range(2000, 2060))


def test_smt_refuses_partners_of_one_axis_by_name() -> None:
    with pytest.raises(EngineError, match=r"engine 'smt' asks of x' only that it differs.*engines auto"):
        quantify(loan_ensemble(), loan_space(), Monotonicity("income"), engine="smt")
