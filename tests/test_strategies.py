"""The generators keep their promises: size, repeatability, and every oddity they are there for."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from math import prod

import pytest
from hypothesis import HealthCheck, given, settings

from boxqte.models.ensemble import Missing, Test
from tests.naive import Oracle, naive_quantify
from tests.random_attributes import Limits
from tests.strategies import Problem, problems, random_problem


def sizes(problem: Problem) -> tuple[int, int]:
    """Pieces and pairs as the oracle will loop over them."""
    oracle = Oracle(*problem)
    pieces = [oracle.pieces(a) for a in problem.space.attributes]
    candidates = [max(len(oracle.near(a, p.value)) for p in ps) for a, ps in zip(problem.space.attributes, pieces)]
    n = prod(len(ps) for ps in pieces)
    return n, n * prod(candidates)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems(max_pieces=100, max_pairs=2_000))
def test_problems_stay_within_their_limits(problem: Problem):
    n, pairs = sizes(problem)
    assert n <= 100
    assert pairs <= 2_000


def test_random_problems_stay_within_their_limits_and_larger_limits_are_used():
    largest = 0
    for seed in range(200):
        n, pairs = sizes(random_problem(random.Random(seed), max_pieces=20_000, max_pairs=10**7, max_attributes=6))
        assert n <= 20_000
        assert pairs <= 10**7
        largest = max(largest, n)
    assert largest > 10_000


def test_the_same_seed_gives_the_same_problem():
    for seed in range(20):
        first, second = (random_problem(random.Random(seed)) for _ in range(2))
        assert first.ensemble.fingerprint() == second.ensemble.fingerprint()
        assert (first.space, first.property) == (second.space, second.property)
        assert repr(first) == repr(second)


def test_restrictions_are_kept():
    for seed in range(200):
        limits = {"real": False, "eps": False, "kappa": False, "missing": False, "sets": False, "masses": False}
        ensemble, space, property = random_problem(random.Random(seed), **limits, robustness=False, paper_ties=False)
        assert all(a.kind != "real" and a.missing is None and a.weights is None and a.histogram is None for a in space)
        assert property.sensitive
        assert (property.epsilon, property.kappa, property.tie) == (0, Fraction(1, 2), "library")
        assert (ensemble.test != Test.IN_SET).all()
        assert (ensemble.missing == Missing.DEFAULT).all()
        assert not random_problem(random.Random(seed), fairness=False).property.sensitive


def test_neither_fairness_nor_robustness_is_no_problem():
    with pytest.raises(ValueError, match="fairness or robustness"):
        Limits(fairness=False, robustness=False)


def oddities(problem: Problem) -> set[str]:
    ensemble, space, property = problem
    found = {f"link {ensemble.link}", f"tie {ensemble.tie}", f"tie rule {property.tie}", f"sum {ensemble.sum_dtype}"}
    found |= {f"test {Test(t).name}" for t in ensemble.test.tolist()}
    found |= {f"missing {Missing(m).name}" for m in ensemble.missing.tolist()}
    found |= {"known codes"} if ensemble.known_codes else set()
    found |= {"scale"} if ensemble.scale != 1 else set()
    found |= {"mean with a base"} if ensemble.link == "mean" and ensemble.base[0] else set()
    found |= {"base no float"} if ensemble.base[0].denominator & (ensemble.base[0].denominator - 1) else set()
    found.add(f"decides on {ensemble.decides_on}")
    found |= {"one-leaf tree" for root in ensemble.roots.tolist() if ensemble.test[root] == Test.LEAF}
    found.add("one tree" if len(ensemble.roots) == 1 else "several trees")
    found.add("one attribute" if len(space.attributes) == 1 else "several attributes")
    n_sensitive = len(property.sensitive)
    found.add(("robustness", "one sensitive", "several sensitive")[min(n_sensitive, 2)])
    found |= {"all sensitive"} if n_sensitive == len(space.attributes) else set()
    found.add(
        "eps zero" if not property.epsilon else "eps rate" if isinstance(property.epsilon, Fraction) else "eps each"
    )
    found.add(f"kappa {'0' if not property.kappa else 'half' if property.kappa == Fraction(1, 2) else 'other'}")
    eps = property.tolerances(space)
    tests_at: dict[tuple[int, float], list[int]] = {}
    for node, test in enumerate(ensemble.test.tolist()):
        if test not in (Test.LEAF, Test.IN_SET):
            tests_at.setdefault((int(ensemble.feature[node]), float(ensemble.threshold[node])), []).append(test)
    for tests in tests_at.values():
        found |= {"duplicate threshold"} if len(tests) > 1 else set()
        found |= {"x < t and x <= t"} if Test.LESS_F32 in tests and len(set(tests)) > 1 else set()
    tested = {ensemble.feature_names[f] for f in ensemble.feature.tolist() if f >= 0}
    for a in space.attributes:
        role = "sensitive" if a.name in property.sensitive else "free"
        found |= {f"{a.kind} {role}", f"{a.kind} unused" if not tested & set(a.columns) else f"{a.kind} used"}
        found |= {f"{a.kind} missing {role}"} if a.missing is not None else set()
        found |= {f"{a.kind} missing share 0"} if a.missing == 0 else set()
        found |= {"zero weight"} if 0 in (a.weights or (a.histogram.weights if a.histogram else ())) else set()
        found |= {f"{a.kind} mass"} if a.weights or a.histogram else set()
        single = a.low == a.high if a.is_numeric else len(a.values) == 1
        found |= {f"{a.kind} single value"} if single else set()
        if a.codes is not None and len(set(a.codes)) < len(a.codes):
            found.add(f"{a.kind} shared code")
        if a.kind == "one-hot":
            found |= {"zero row" for row in a.codes if not any(row)}
        if a.kind == "categorical":
            own = a.name in ensemble.feature_names and ensemble.feature_names.index(a.name) in ensemble.categories
            found.add("codes of space and model" if a.codes and own else "codes of space" if a.codes else
                      "codes of model" if own else "values as codes")  # fmt: skip
            found |= {"categorical split by threshold" for f, _ in tests_at if ensemble.feature_names[f] == a.name}
        if a.is_numeric:
            cuts = {Fraction(t) for f, t in tests_at if ensemble.feature_names[f] == a.name}
            found |= {f"{a.kind} threshold outside"} if any(not a.low <= t <= a.high for t in cuts) else set()
            found |= {f"{a.kind} threshold at end"} if cuts & {a.low, a.high} else set()
            found |= {f"{a.kind} negative"} if a.high < 0 else set()
            found |= {f"{a.kind} float32 threshold"} if Fraction(float.fromhex("0x1.99999ap-4")) in cuts else set()
            inside = sorted(t for t in cuts | {a.low, a.high} if a.low <= t <= a.high)
            e = eps.get(a.name, Fraction(0))
            if e:
                gaps = {y - x for x in inside for y in inside if x < y}
                found |= {f"{a.kind} eps reaches exactly"} if e in gaps else set()
                found |= {f"{a.kind} eps beyond domain"} if e > a.high - a.low else set()
                found |= {f"{a.kind} eps small"} if gaps and e < min(gaps) else set()
                found |= {f"{a.kind} eps fractional"} if e.denominator != 1 else set()
    return found


ROLES = [f"{kind} {role}" for kind in ("real", "integer", "categorical", "one-hot") for role in (
    "sensitive", "free", "used", "unused", "missing sensitive", "missing free", "missing share 0", "mass",
    "single value")]  # fmt: skip
NUMERIC = [f"{kind} {oddity}" for kind in ("real", "integer") for oddity in (
    "threshold outside", "threshold at end", "negative", "eps reaches exactly", "eps beyond domain", "eps small",
    "eps fractional", "float32 threshold")]  # fmt: skip
OTHERS = """link sigmoid, link mean, tie negative, tie positive, tie rule library, tie rule paper, sum float32, sum
float64, test LESS_F32, test AT_MOST_F32, test AT_MOST_F64, test IN_SET, missing DEFAULT, missing AS_ZERO, missing
WITH_ZERO, missing ZERO_EXACT, scale, mean with a base, base no float, decides on margin, decides on probability,
categorical shared code, one-hot shared code, known codes, one-leaf tree, one tree, several trees, one attribute,
several attributes, robustness, one sensitive, several sensitive, all sensitive, eps zero, eps rate, eps each, kappa
0, kappa half, kappa other, duplicate threshold, x < t and x <= t, zero weight, zero row, codes of space, codes of
model, codes of space and model, values as codes, categorical split by threshold""".replace("\n", " ").split(", ")


def test_every_oddity_occurs_often_enough():
    seen: Counter[str] = Counter()
    for seed in range(1500):
        seen.update(oddities(random_problem(random.Random(seed))))
    rare = {oddity: seen[oddity] for oddity in [*ROLES, *NUMERIC, *OTHERS] if seen[oddity] < 5}
    assert not rare


def test_all_kinds_of_answers_occur_often_enough():
    seen: Counter[str] = Counter()
    for seed in range(400):
        problem = random_problem(random.Random(seed), max_pieces=200)
        found = naive_quantify(*problem)
        if found.measure is None:
            seen["undefined"] += 1
        else:
            seen["0" if found.measure == 0 else "1" if found.measure == 1 else "between"] += 1
            seen["confident everywhere" if found.confident == 1 else "confident somewhere"] += 1
        seen["exact tie"] += has_tie(problem)
    at_least = {"between": 50, "0": 50, "1": 50, "undefined": 10, "confident somewhere": 50, "exact tie": 50}
    assert {answer: seen[answer] for answer, n in at_least.items() if seen[answer] < n} == {}


def has_tie(problem: Problem) -> bool:
    oracle = Oracle(*problem)
    points = (oracle.representative(pieces) for pieces in oracle.products_of_pieces())
    return any(oracle.margin(x) == 0 for x in points)


def test_a_problem_prints_its_trees_and_domains():
    text = repr(random_problem(random.Random(3)))
    assert "tree 0" in text
    assert "kappa" in text
