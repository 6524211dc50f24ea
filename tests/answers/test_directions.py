"""Who flips to what, against the oracle."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from boxqte import Robustness, quantify
from boxqte.answers.directions import directions
from boxqte.errors import BoxQTEError
from boxqte.examples import loan_ensemble, loan_space
from tests.net import in_words, truth_of
from tests.strategies import random_problem

ZERO = Fraction(0)


def check(seed: int, *, eps: bool) -> bool:
    """Whether the problem had something to tell."""
    rng = random.Random(f"directions {seed}")
    problem = random_problem(rng, eps=eps, max_pieces=150, max_pairs=5_000)
    prop = problem.property
    if not prop.sensitive or any(problem.space[name].kind == "real" for name in prop.sensitive):
        return False
    result = quantify(*problem, engine="box", workers=1)
    try:
        found, done = directions(result)
    except BoxQTEError:
        return False
    attributes = [problem.space[name] for name in problem.space.names if name in prop.sensitive]
    order = [prop.sensitive.index(a.name) for a in attributes]
    rows = truth_of(problem).rows

    def named(text: str, values: list[object]) -> bool:
        return all(in_words(a, word, v) for a, word, v in zip(attributes, text.split(", "), values))

    for way in found:
        mass = ZERO
        for row in rows:
            own = [row.x[a.name] for a in attributes]
            wanted = {0: (way.refused, way.granted), 1: (way.granted, way.refused)}.get(row.class_)
            if row.counterexample and wanted is not None and named(wanted[0], own):
                turned = any(named(wanted[1], [w[k] for k in order]) for w in row.witness_values)
                mass += row.mass * turned
        assert way.lower <= mass <= way.upper, (seed, way, float(mass))
        assert not done or way.upper - way.lower < 1e-9
    return bool(found)


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_masses_are_those_of_the_oracle(start: int) -> None:
    assert sum(check(seed, eps=False) for seed in range(start, start + 20)) > 1


def test_masses_within_a_tolerance_are_those_of_the_oracle() -> None:
    assert sum(check(seed, eps=True) for seed in range(20)) > 3


def test_robustness_has_no_directions() -> None:
    with pytest.raises(BoxQTEError, match="robustness has no sensitive attributes"):
        directions(quantify(loan_ensemble(), loan_space(), Robustness("0.1")))
