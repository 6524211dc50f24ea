"""What can be asked of an answer about a space with rules: profiles, regions, pairs, restrictions, samples, rates, verify."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import boxqte
from boxqte import quantify, verify
from boxqte.answers.rates import _groups, group_rates
from boxqte.answers.values import GridValues
from boxqte.answers.verdict import Verdict
from boxqte.errors import CertificateError, EngineError, SpaceError
from boxqte.questions.building import build_grid
from boxqte.questions.properties import Fairness
from boxqte.questions.variations import part_of_cell
from boxqte.space.conditions import Part, parse_condition
from tests.answers.test_followups import inside, random_condition, unfair_mass
from tests.answers.test_samples import is_counterexample, p_value, points
from tests.naive import NaiveRow, Oracle, naive_rows
from tests.naive_rules import NaiveRules
from tests.random_rules import with_rules
from tests.strategies import Problem, random_problem

TOLERANCE = 1e-10


def ruled(seed: object, **limits: Any) -> Problem:
    rng = random.Random(f"ruled {seed}")
    return with_rules(rng, random_problem(rng, **limits))


def allowed_rows(problem: Problem, *, massless: bool = False) -> list[NaiveRow]:
    """What the rules leave, with the shares that it has of them."""
    rules = NaiveRules(problem.space)
    rows = [row for row in naive_rows(*problem) if rules.allowed(row.x)]
    total = sum((row.mass for row in rows), Fraction(0))
    return [replace(row, mass=row.mass / total) for row in rows if row.mass or massless]


def asked(problem: Problem, **options: Any) -> boxqte.Quantification:
    result = quantify(*problem, engine="box", workers=1, options=options)
    assert result.converged
    return result


# --- profiles and pairs -------------------------------------------------------------------------------------------------


def check_profiles(problem: Problem) -> bool:
    result, rows = asked(problem), allowed_rows(problem)
    assert result.asked is not None
    for axis in result.asked.grid.axes:
        name = axis.attribute.name
        for cell, (_, row) in zip(axis.cells, result.profile(name).iterrows(), strict=True):
            part = part_of_cell(axis, cell)
            mine = [r for r in rows if inside(problem, name, part, r.x[name])]
            mass, expected = sum((r.mass for r in mine), Fraction(0)), unfair_mass(mine)
            assert row["mass"] == pytest.approx(float(mass), abs=1e-12), (name, row["value"])
            assert row["lower"] == pytest.approx(float(expected), abs=TOLERANCE), (name, row["value"])
            assert row["upper"] == pytest.approx(float(expected), abs=TOLERANCE)
            if mass:
                assert row["density_lower"] - 1e-6 <= expected / mass <= row["density_upper"] + 1e-6
    return bool(unfair_mass(rows))


def test_profiles_are_about_what_the_rules_leave() -> None:
    assert sum(check_profiles(ruled(seed, eps=False, max_pieces=200)) for seed in range(10)) > 0


def test_profiles_with_tolerance_are_about_what_the_rules_leave() -> None:
    for seed in range(3):
        check_profiles(ruled(f"eps {seed}", max_pieces=150, max_pairs=10_000))


def check_pairs(problem: Problem) -> bool:
    """Sums over sensitive values, whose cells hold single values here: from whom to whom."""
    result, rows = asked(problem), allowed_rows(problem)
    axes = [axis for axis in result.asked.grid.axes if axis.sensitive]
    if len(axes) != 1 or not all(axis.cells[c].values or axis.single[c] for axis in axes for c in range(axis.n_cells)):
        return False
    (axis,) = axes
    name, table = axis.attribute.name, result.pairs()
    parts = [part_of_cell(axis, cell) for cell in axis.cells]
    for i, one in enumerate(parts):
        for j, two in enumerate(parts):
            expected = unfair_mass(
                rows,
                lambda r, one=one, two=two: (
                    inside(problem, name, one, r.x[name])
                    and any(inside(problem, name, two, values[0]) for values in r.witness_values)
                ),
            )
            assert table.iloc[i, j] == pytest.approx(float(expected), abs=TOLERANCE), (i, j)
    return bool(unfair_mass(rows))


def test_pairs_are_about_what_the_rules_leave() -> None:
    limits = {"max_pieces": 200, "robustness": False, "real": False}
    assert sum(check_pairs(ruled(f"pairs {seed}", eps=False, **limits)) for seed in range(16)) > 1


# --- regions and restrictions -------------------------------------------------------------------------------------------


def check_regions(problem: Problem, **options: Any) -> bool:
    result, rows = asked(problem, **options), allowed_rows(problem)
    total = float(unfair_mass(rows))
    for form in ({}, {"merge": False}, {"pure": True}):
        table = result.regions(top=None, **form)  # type: ignore[arg-type]
        assert table["mass"].sum() == pytest.approx(total, abs=TOLERANCE)
        assert table.attrs["counterexample_upper"] == pytest.approx(total, abs=1e-6)
        if total:
            assert table["share"].sum() == pytest.approx(1)
        if result.asked.grid.has_tolerance and form:
            continue
        for _, row in table.iterrows():
            parts = {} if row["rule"] == "everywhere" else parse_condition(row["rule"], problem.space)
            mine = [r for r in rows if all(inside(problem, n, p, r.x[n]) for n, p in parts.items())]
            assert row["mass"] == pytest.approx(float(unfair_mass(mine)), abs=1e-9)
            assert row["density"] == pytest.approx(float(unfair_mass(mine) / sum(r.mass for r in mine)), abs=1e-6)
    return total > 0


def test_regions_have_the_shares_that_the_oracle_has_of_what_the_rules_leave() -> None:
    options: list[dict[str, Any]] = [{}, {"finish_limit": 8}, {"finish_limit": 40, "call_nodes": 3}]
    limits = {"eps": False, "max_pieces": 200, "missing": False, "real": False}
    assert sum(check_regions(ruled(f"regions {seed}", **limits), **options[seed % 3]) for seed in range(15)) > 1


def test_regions_with_tolerance_have_the_shares_that_the_oracle_has() -> None:
    limits = {"max_pieces": 150, "max_pairs": 10_000, "missing": False, "real": False}
    for seed in range(3):
        check_regions(ruled(f"regions eps {seed}", **limits))


def check_restriction(seed: int, **limits: Any) -> bool:
    problem = ruled(f"restrict {seed}", **limits)
    condition, tests = random_condition(random.Random(seed), problem.space)
    if not tests:
        return False
    result = asked(problem)
    kept = [r for r in allowed_rows(problem) if all(test(r.x[name]) for name, test in tests.items())]
    total = sum((r.mass for r in kept), Fraction(0))
    if not total:
        with pytest.raises(SpaceError, match="positive mass"):
            result.restrict(condition)
        return False
    part = result.restrict(condition)
    assert part.converged
    confident = sum((r.mass for r in kept if r.confident), Fraction(0))
    unfair = unfair_mass(kept)
    assert (part.bounds is None or part.undefined) == (confident == 0)
    if confident:
        assert part.bounds is not None
        assert part.bounds.lower - 1e-9 <= 1 - unfair / confident <= part.bounds.upper + 1e-9
    table = part.profile(random.Random(seed).choice(problem.space.names))
    assert table["lower"].sum() == pytest.approx(float(unfair / total), abs=TOLERANCE)
    return True


def test_restrictions_are_about_what_the_rules_leave() -> None:
    assert sum(check_restriction(seed, eps=False, max_pieces=200) for seed in range(12)) > 2
    assert sum(check_restriction(100 + seed, max_pieces=100, max_pairs=10_000) for seed in range(4)) > 0


# --- samples ------------------------------------------------------------------------------------------------------------


def check_samples(problem: Problem, seed: int, **options: Any) -> bool:
    """Every pair is allowed, and a counterexample by the definition; in finite spaces by its mass."""
    result, rows = asked(problem, **options), [r for r in allowed_rows(problem) if r.counterexample]
    if not sum((r.mass for r in rows), Fraction(0)) > Fraction(1, 10**9):
        return False
    if not all(axis.shown.all() for axis in GridValues(result.asked.grid).axes):
        return False  # between the limit of a rule and a threshold that rounds it there may be no float to show
    oracle, rules = Oracle(*problem), NaiveRules(problem.space)
    x, other = points(result, 300, seed)
    for one, two in zip(x, other):
        assert rules.allowed(one)
        assert rules.allowed(two)
        assert is_counterexample(problem, oracle, one, two), (one, two)
    if any(a.kind == "real" for a in problem.space):
        return True
    names = problem.space.names
    number = {tuple(r.x[name] for name in names): i for i, r in enumerate(rows)}
    seen = np.bincount([number[tuple(point[name] for name in names)] for point in x], minlength=len(rows))
    expected = np.array([float(r.mass) for r in rows]) / float(sum(r.mass for r in rows)) * len(x)
    enough = expected >= 5
    if enough.sum() > 1:
        statistic = float(((seen[enough] - expected[enough]) ** 2 / expected[enough]).sum())
        assert p_value(statistic, int(enough.sum())) > 1e-6
    return True


@pytest.mark.parametrize("options", [{}, {"finish_limit": 8}, {"finish_limit": 5}])
def test_samples_are_allowed_counterexamples(options: dict[str, Any]) -> None:
    assert sum(check_samples(ruled(f"s {i}", eps=False, max_pieces=200), i, **options) for i in range(5)) > 0


def test_samples_with_tolerance_are_allowed_counterexamples() -> None:
    assert sum(check_samples(ruled(f"s eps {i}", max_pieces=150, max_pairs=10_000), i) for i in range(6)) > 0


# --- verify and rates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("luck", [True, False])
def test_verdicts_equal_the_oracle_with_rules(luck: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not luck:
        monkeypatch.setattr("boxqte.answers.verify.TRIES", ())
    seen = {True: 0, False: 0}
    for seed in range(14):
        problem = ruled(f"verify {seed}", eps=seed % 5 == 0, max_pieces=120, max_pairs=10_000)
        rules = NaiveRules(problem.space)
        expected = any(row.counterexample and rules.allowed(row.x) for row in naive_rows(*problem))
        found = verify(*problem, workers=1)
        assert found.verdict is (Verdict.VIOLATED if expected else Verdict.HOLDS), (seed, found)
        seen[expected] += 1
    assert min(seen.values()) > 1


def check_rates(problem: Problem) -> int:
    name = problem.space.names[0]
    own = problem._replace(property=Fairness(name))
    grid = build_grid(*own)
    axis = grid.axes[0]
    rows, oracle = allowed_rows(own), Oracle(*own)
    found = group_rates(own.ensemble, own.space, name, workers=1)
    assert found.converged
    everything = Fraction(0)
    for group, said in zip(_groups(grid), found.groups, strict=True):
        (key,) = group.keys
        part = part_of_cell(axis, axis.cells[key]) if axis.attribute.is_numeric else Part(values=frozenset({key}))
        mine = [r for r in rows if inside(own, name, part, r.x[name])]
        mass = sum((r.mass for r in mine), Fraction(0))
        rate = sum((r.mass for r in mine if oracle.class_of(r.x) == 1), Fraction(0)) / mass
        everything += mass
        assert said.mass == pytest.approx(float(mass), abs=1e-12)
        assert said.rate.lower <= rate <= said.rate.upper
        assert said.rate.upper - said.rate.lower < 1e-9
    assert everything == 1
    return len(found.groups)


def test_rates_are_those_of_the_inputs_that_the_rules_leave() -> None:
    limits = {"eps": False, "kappa": False, "paper_ties": False, "max_pieces": 200, "missing": False}
    assert sum(check_rates(ruled(f"rates {seed}", **limits)) for seed in range(10)) > 10


def test_a_certificate_is_refused_by_name(tmp_path: Any) -> None:
    problem = next(p for p in (ruled(f"c {i}", eps=False) for i in range(20)) if asked(p).asked.grid.forbidden)
    with pytest.raises(CertificateError, match="spaces with rules"):
        quantify(*problem, engine="box", certificate=tmp_path / "proof")


def test_a_run_goes_on_from_its_checkpoint_with_rules(tmp_path: Any) -> None:
    for seed in range(6):
        problem = ruled(f"checkpoint {seed}", eps=seed % 2 == 1, max_pieces=200, max_pairs=10_000)
        whole = asked(problem).decided
        path = tmp_path / f"state {seed}"
        for _ in range(200):
            try:
                part = quantify(
                    *problem, engine="box", workers=1, checkpoint=path, node_limit=2, options={"finish_limit": 5}
                )
            except EngineError as error:  # nothing is left to go on with
                assert "finished" in str(error)  # noqa: PT017
                break
            if part.converged:
                break
        for kind in ("fair", "unfair", "low"):
            assert float(getattr(part.decided, kind)) == pytest.approx(float(getattr(whole, kind)), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_all_of_it_on_many(block: int) -> None:
    """Every kind of question, on other problems."""
    finite = {"missing": False, "real": False}
    eps = {"max_pieces": 120, "max_pairs": 10_000}
    for seed in range(1000 + 12 * block, 1012 + 12 * block):
        check_profiles(ruled(seed, eps=False, max_pieces=200))
        check_profiles(ruled(f"eps {seed}", **eps))
        check_pairs(ruled(f"pairs {seed}", eps=False, max_pieces=200, robustness=False, real=False))
        check_regions(ruled(f"regions {seed}", eps=False, max_pieces=200, **finite), finish_limit=[5, 8, 40][seed % 3])
        check_regions(ruled(f"regions eps {seed}", **eps, **finite))
        check_restriction(seed, eps=False, max_pieces=200)
        check_restriction(seed + 500, **eps)
        check_samples(ruled(f"s {seed}", eps=False, max_pieces=200), seed, finish_limit=[5, 8, 8000][seed % 3])
        check_samples(ruled(f"s eps {seed}", **eps), seed)
        limits = {"eps": False, "kappa": False, "paper_ties": False, "max_pieces": 200, "missing": False}
        check_rates(ruled(f"rates {seed}", **limits))
