"""What can be asked of an answer about a mixture of products, against the oracle."""

from __future__ import annotations

import gzip
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import boxqte
from boxqte import quantify
from boxqte.certify import Rejected, certify
from boxqte.errors import BoxQTEError
from boxqte.exact import down
from boxqte.questions.properties import Fairness
from tests.naive_mixture import naive_points, products
from tests.random_mixtures import random_mixture
from tests.strategies import Problem

SMALL = {"max_pieces": 150, "max_pairs": 5_000}
ZERO = Fraction(0)


def judged(problem: Problem) -> list[tuple[dict[str, Any], Fraction, bool, bool]]:
    """Every x with its mass in the mixture, whether it is confident, and whether it is a counterexample."""
    weights = [w for w, _ in products(problem[1])]
    rows = []
    for oracle, x, masses, _ in naive_points(*problem):
        mass = sum((w * m for w, m in zip(weights, masses)), ZERO)
        sure = oracle.is_confident(x)
        rows.append((x, mass, sure, sure and any(True for _ in oracle.witnesses(x))))
    return rows


def mixtures(n: int, start: int = 0) -> list[Problem]:
    return [random_mixture(random.Random(seed), **SMALL) for seed in range(start, start + n)]


@pytest.mark.parametrize("part", range(3))
def test_profiles_add_up_what_the_oracle_counts(part: int) -> None:
    for problem in mixtures(12, 12 * part):
        result = quantify(*problem, engine="box", workers=1)
        rows = judged(problem)
        for attribute in problem[1]:
            table = result.profile(attribute.name)
            assert table["mass"].sum() == pytest.approx(1)
            if attribute.kind == "real":
                continue
            counts: dict[Any, Fraction] = {}
            for x, mass, _, unfair in rows:
                value = x[attribute.name]
                counts[value] = counts.get(value, ZERO) + mass * unfair
            assert sum(table["lower"]) <= sum(counts.values()) + Fraction(1, 10**12)
            assert sum(table["upper"]) >= sum(counts.values()) - Fraction(1, 10**12)
            assert sum(table["upper"]) - sum(table["lower"]) < 1e-9


def test_a_restriction_takes_the_x_that_satisfy_it() -> None:
    tried = 0
    for problem in mixtures(40):
        attribute = next((a for a in problem[1] if not a.is_numeric), None)
        if attribute is None:
            continue
        value = attribute.values[0]
        inside = [row for row in judged(problem) if row[0][attribute.name] == value]
        confident = sum((mass for _, mass, sure, _ in inside if sure), ZERO)
        unfair = sum((mass for _, mass, _, is_unfair in inside if is_unfair), ZERO)
        result = quantify(*problem, engine="box", workers=1)
        name = attribute.name if attribute.name.isidentifier() else f"`{attribute.name}`"
        if not sum((mass for _, mass, _, _ in inside), ZERO):
            with pytest.raises(BoxQTEError, match="positive mass"):
                result.restrict(f"{name} == {value!r}")
            continue
        part = result.restrict(f"{name} == {value!r}")
        if not confident:
            assert part.undefined
            continue
        assert part.lower is not None
        assert part.upper is not None
        assert part.lower <= 1 - unfair / confident <= part.upper
        assert part.upper - part.lower < 1e-9
        tried += 1
    assert tried > 10


def test_regions_list_counterexamples_and_no_more_than_there_are() -> None:
    for problem in mixtures(25):
        result = quantify(*problem, engine="box", workers=1)
        unfair = sum((mass for _, mass, _, is_unfair in judged(problem) if is_unfair), ZERO)
        table = result.regions(None)
        assert table["mass"].sum() <= unfair + Fraction(1, 10**9)
        assert table.attrs["counterexample_mass"] <= unfair <= table.attrs["counterexample_upper"]
        for rule, mass in zip(table["rule"], table["mass"]):
            if rule != "everywhere" and " or " not in rule:
                part = result.restrict(rule)
                share = part.counterexample.upper * part.details["share_of_space"]
                assert mass <= share + 1e-9


def test_pairs_are_drawn_by_their_mass_in_the_mixture() -> None:
    compared = 0
    for problem in mixtures(30):
        result = quantify(*problem, engine="box", workers=1)
        rows = judged(problem)
        unfair = sum((mass for _, mass, _, is_unfair in rows if is_unfair), ZERO)
        if not unfair:
            continue
        found = result.sample(3000, random_state=0, replay=False, workers=1)
        attribute = next((a for a in problem[1] if a.kind == "integer"), None)
        if attribute is None or attribute.missing is not None:
            continue
        column = found.x[attribute.columns[0]].to_numpy()
        for value in range(int(attribute.low), int(attribute.high) + 1):
            mass = sum((m for x, m, _, is_unfair in rows if is_unfair and x[attribute.name] == value), ZERO)
            share = float(mass / unfair)
            error = 5 * np.sqrt(max(share * (1 - share), 1e-4) / 3000)
            assert abs(float((column == value).mean()) - share) <= error
        compared += 1
    assert compared >= 5


def test_group_rates_are_those_of_the_group_in_the_mixture() -> None:
    tried = 0
    for seed in range(40):
        ensemble, space, _ = random_mixture(random.Random(seed), **SMALL)
        names = [a.name for a in space if not a.is_numeric and a.missing is None]
        if not names or not ensemble.is_binary:
            continue
        ask = Problem(ensemble, space, Fairness(names[:1]))
        weights = [w for w, _ in products(space)]
        total: dict[Any, Fraction] = {}
        positive: dict[Any, Fraction] = {}
        for oracle, x, masses, _ in naive_points(*ask):
            mass, value = sum((w * m for w, m in zip(weights, masses)), ZERO), x[names[0]]
            total[value] = total.get(value, ZERO) + mass
            positive[value] = positive.get(value, ZERO) + mass * (oracle.class_of(x) == 1)
        rates = boxqte.group_rates(ensemble, space, names[0], workers=1)
        attribute = space[names[0]]
        labels = {attribute.label_of(i): v for i, v in enumerate(attribute.values)}
        assert {labels[group.name] for group in rates.groups} == {v for v, mass in total.items() if mass}
        for group in rates.groups:
            value = labels[group.name]
            expected = positive[value] / total[value]
            assert group.rate.lower <= expected <= group.rate.upper
            assert group.rate.upper - group.rate.lower < 1e-9
            assert group.mass == pytest.approx(float(total[value]))
        tried += 1
    assert tried > 15


def test_a_stopped_run_goes_on_from_its_checkpoints(tmp_path: Any) -> None:
    for problem in mixtures(6):
        whole = quantify(*problem, engine="box", workers=1)
        file = tmp_path / f"{id(problem)}"
        quantify(*problem, engine="box", workers=1, node_limit=3, checkpoint=file)
        again = quantify(*problem, engine="box", workers=1, checkpoint=file)
        assert again.converged
        assert (again.lower, again.upper) == pytest.approx((whole.lower, whole.upper), abs=1e-12)


def test_certificates_prove_a_mixture_product_by_product(tmp_path: Any) -> None:
    tried = 0
    for seed in range(60):
        problem = random_mixture(random.Random(seed), **SMALL)
        asks = problem.property
        if not problem.ensemble.is_binary or asks.kind != "fairness" or asks.epsilon:
            continue
        file = tmp_path / "certificate"
        limit = random.Random(seed).choice([None, None, 2])
        result = quantify(*problem, engine="box", workers=1, certificate=file, node_limit=limit)
        verdict = certify(file, problem.ensemble, space=problem.space, workers=1)
        proved = verdict.fair, verdict.unfair, verdict.low
        assert proved == tuple(down(getattr(result.decided, kind)) for kind in ("fair", "unfair", "low"))
        tried += 1
    assert tried >= 10


def test_a_certificate_of_some_products_proves_nothing_of_the_mixture(tmp_path: Any) -> None:
    problem = next(
        p for p in mixtures(60) if p.ensemble.is_binary and p.property.kind == "fairness" and not p.property.epsilon
    )
    file = tmp_path / "certificate"
    quantify(*problem, engine="box", workers=1, certificate=file)
    members = gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True)
    ends = [at + 1 for at, line in enumerate(members) if line.startswith('{"fair"')]
    assert len(ends) == len(problem.space.components)
    for kept in (members[: ends[0]], members[ends[0] :], members + members[: ends[0]]):
        file.write_bytes(gzip.compress("".join(kept).encode()))
        with pytest.raises(Rejected, match="products of one question"):
            certify(file, problem.ensemble, workers=1)
