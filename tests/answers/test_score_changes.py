"""Changes of scores: every share lies within its bounds, and quantiles are where the oracle has them."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import pytest

import boxqte
from boxqte.errors import PropertyError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.properties import ScoreFairness
from tests.naive_questions import naive_measure
from tests.strategies import random_problem

ONE = Fraction(1)


def check(seed: str) -> None:
    rng = random.Random(seed)
    problem = random_problem(rng, eps=False, max_pieces=60, max_trees=4)
    names = [a.name for a in problem.space.attributes]
    sensitive = rng.sample(names, rng.randint(1, min(2, len(names))))
    scale = rng.choice(["margin", "probability"])
    levels = [Fraction(1, 20), Fraction(1, 4)]
    model, space = problem.ensemble, problem.space
    found = boxqte.score_changes(model, space, sensitive, scale=scale, levels=levels, quantiles=[0.5], workers=1)
    assert found.converged
    true = {}
    for level, share in found.exceeding.items():
        if scale == "probability" and level >= 1:
            true[level] = Fraction(0)
            continue
        wanted = naive_measure(model, space, ScoreFairness(sensitive, level, scale))
        true[level] = wanted.counterexample / wanted.confident
        assert share.lower <= true[level] <= share.upper
        assert share.upper - share.lower < 1e-9
    assert sum(b.share.lower for b in found.bins) <= 1 <= sum(b.share.upper for b in found.bins)
    assert sum(b.share.upper - b.share.lower for b in found.bins) < 1e-8  # the total mass is 1, but for rounding
    (median,) = found.quantiles
    at_most = [level for level, share in true.items() if 1 - share >= Fraction(1, 2)]
    assert min(at_most) <= Fraction(median.upper) + Fraction(1, 10**9)
    below = [level for level in true if level <= Fraction(median.lower)]
    assert all(1 - true[level] < Fraction(1, 2) for level in below) or median.lower == 0


def test_shares_and_quantiles_equal_the_oracle() -> None:
    for seed in range(20):
        check(f"changes {seed}")


@pytest.mark.slow
def test_shares_and_quantiles_equal_the_oracle_on_many() -> None:
    for seed in range(2000):
        check(f"changes {seed}")


def test_no_time_gives_trivial_bounds_that_still_add_up() -> None:
    found = boxqte.score_changes(loan_ensemble(), loan_space(), "race", time_limit=1e-6)
    assert sum(b.share.lower for b in found.bins) <= 1 <= sum(b.share.upper for b in found.bins)


def test_frame_and_json_have_the_same_numbers() -> None:
    found = boxqte.score_changes(loan_ensemble(), loan_space(), "race", scale="margin", levels=[1])
    document = json.loads(json.dumps(found.to_json()))
    assert [b["share"] for b in document["bins"]] == found.to_frame()[["lower", "upper"]].to_numpy().tolist()
    assert document["world"] == "the space"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"levels": [-1]}, "levels: must be at least 0 and below 1, found -1"),
        ({"levels": [2]}, "levels: must be at least 0 and below 1, found 2"),
        ({"quantiles": [1]}, "quantiles: a share must be above 0 and below 1, found 1"),
        ({"scale": "odds"}, "scale: expected 'probability', 'margin' or 'value', found 'odds'"),
        ({"scale": "value"}, "scale: 'value' is for models that predict a sum of trees"),
    ],
)
def test_what_cannot_be_asked_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(PropertyError, match=words):
        boxqte.score_changes(loan_ensemble(), loan_space(), "race", **arguments)  # type: ignore[arg-type]
