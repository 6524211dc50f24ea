"""The oracle against its own definitions read in another way, against random inputs, and against the ensemble."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise

from hypothesis import HealthCheck, given, settings

from boxqte.models.ensemble import TreeEnsemble
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests import naive
from tests.naive import MISSING, Oracle, naive_quantify, naive_row_at, naive_rows
from tests.strategies import Problem, problems, random_problem


def row_of(ensemble: TreeEnsemble, space: Space, x: naive.Point) -> list[float]:
    """The model's columns of an input, by the ensemble's own order."""
    numbers: dict[int | None, object] = {}
    model = naive.Model(ensemble, space)
    for attribute in space.attributes:
        numbers.update(model.numbers(attribute.name, x[attribute.name]))
    return [float("nan") if numbers[f] is None else float(numbers[f]) for f in range(len(ensemble.feature_names))]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems(real=False, max_pieces=200))
def test_on_finite_spaces_every_margin_and_class_is_what_the_ensemble_computes(problem: Problem):
    ensemble, space, property = problem
    rows = list(naive_rows(*problem))
    matrix = [row_of(ensemble, space, r.x) for r in rows]
    assert [(r.margin,) for r in rows] == ensemble.exact_margin(matrix)
    if property.tie == "library":
        assert [r.class_ for r in rows] == ensemble.predict(matrix).tolist()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems(max_pieces=100, max_pairs=5_000))
def test_judging_x_primes_by_their_cells_changes_nothing(problem: Problem):
    assert naive_quantify(*problem) == naive_quantify(*problem, by_cell=False)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems(max_pieces=150, max_pairs=10_000))
def test_the_rows_sum_to_the_answer(problem: Problem):
    rows = list(naive_rows(*problem))
    found = naive_quantify(*problem)
    assert sum(r.mass for r in rows) == 1
    assert sum(r.mass for r in rows if r.confident) == found.confident
    assert sum(r.mass for r in rows if r.counterexample) == found.counterexample
    assert all(r.confident for r in rows if r.counterexample)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems(max_pieces=100, max_pairs=5_000))
def test_every_witness_is_one_by_the_definition(problem: Problem):
    ensemble, space, property = problem
    oracle = Oracle(ensemble, space, property)
    for row in naive_rows(*problem):
        for other in row.witnesses:
            assert oracle.class_of(other) == 1 - row.class_
            if property.sensitive:
                assert any(other[name] != row.x[name] for name in property.sensitive)
            for name, eps in property.tolerances(space).items():
                if other[name] != row.x[name]:
                    assert abs(other[name] - row.x[name]) <= eps


def points_of(piece: naive.Piece, rng: random.Random) -> list[naive.Value]:
    if not piece.is_interval:
        return [piece.value]
    width = piece.high - piece.low
    return [
        piece.low + width / 10**6,
        piece.low + width * Fraction(rng.randint(1, 99), 100),
        piece.high - width / 10**6,
    ]


def test_all_points_of_a_piece_are_judged_like_its_representative():
    for seed in range(120):
        rng = random.Random(seed)
        problem = random_problem(rng, max_pieces=120, max_pairs=5_000)
        for row in naive_rows(*problem):
            if any(piece.is_interval for piece in row.pieces.values()):
                x = {name: rng.choice(points_of(piece, rng)) for name, piece in row.pieces.items()}
                other = naive_row_at(*problem, x)
                assert (other.class_, other.confident, other.counterexample) == (
                    row.class_,
                    row.confident,
                    row.counterexample,
                )


def test_no_random_pair_of_inputs_contradicts_the_oracle():
    """The definition tried with points that know nothing of pieces: a flip that is found must be known."""
    flips = 0
    for seed in range(150):
        rng = random.Random(seed)
        ensemble, space, property = problem = random_problem(rng, max_pieces=150)
        eps = property.tolerances(space)
        oracle = Oracle(*problem)
        for _ in range(40):
            x = {a.name: random_value(a, rng, None, None) for a in space.attributes}
            other = {a.name: random_value(a, rng, x[a.name], eps.get(a.name)) for a in space.attributes}
            if property.sensitive and all(x[name] == other[name] for name in property.sensitive):
                continue
            classes = (oracle.class_of(x), oracle.class_of(other))
            if None not in classes and classes[0] != classes[1] and oracle.is_confident(x):
                flips += 1
                assert naive_row_at(ensemble, space, property, x).counterexample
    assert flips > 300


def random_value(attribute: Attribute, rng: random.Random, near: naive.Value, eps: Fraction | None) -> naive.Value:
    """A value of the attribute; near the given one if there is a tolerance."""
    if eps is not None and (near is MISSING or not attribute.is_numeric):
        return near
    if attribute.missing is not None and eps is None and rng.random() < 0.2:
        return MISSING
    if not attribute.is_numeric:
        return rng.choice(attribute.values)
    low, high = attribute.low, attribute.high
    if eps is not None:
        low, high = max(low, near - eps), min(high, near + eps)
    if attribute.kind == "integer":
        return rng.choice([v for v in range(int(attribute.low), int(attribute.high) + 1) if low <= v <= high])
    return rng.choice([low, high, low + (high - low) * Fraction(rng.randint(0, 1000), 1000)])


def test_pieces_of_a_real_attribute_cover_it_once_and_in_order():
    for seed in range(100):
        problem = random_problem(random.Random(seed), max_pieces=300)
        oracle = Oracle(*problem)
        for attribute in problem.space.attributes:
            if attribute.kind == "real":
                pieces = [p for p in oracle.pieces(attribute) if p.value is not MISSING]
                assert (pieces[0].value, pieces[-1].value) == (attribute.low, attribute.high)
                assert [p.is_interval for p in pieces] == [i % 2 == 1 for i in range(len(pieces))]
                assert all(a.value < b.value for a, b in pairwise(pieces))
