"""Where, to whom, which way and for whom not: the questions with partners, against the points one by one."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

import boxqte
from boxqte import quantify
from boxqte.engines.kinds import UNFAIR
from boxqte.engines.point import PointDecider
from boxqte.engines.point.exact import exact_margin
from boxqte.errors import EngineError
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from boxqte.questions.properties import Fairness, Property, ScoreFairness
from tests.engines.test_point import all_points
from tests.naive import Oracle
from tests.naive_questions import exchanged, is_witness, products_of_fine_pieces
from tests.questions.test_partners import asked
from tests.strategies import Problem, random_problem

SLACK = Fraction(1, 10**9)


def mass_of(grid: Grid, cells: list[int]) -> Fraction:
    mass = Fraction(1)
    for axis, c in zip(grid.axes, cells):
        mass *= axis.refined_masses[c]
    return mass


def check_profiles(problem: Problem, prop: Property) -> bool:
    """The bounds on every cell of every attribute hold the mass of the points that are counterexamples there."""
    result = quantify(problem.ensemble, problem.space, prop, engine="box", workers=1)
    grid = build_grid(problem.ensemble, problem.space, prop)
    points = all_points(grid)
    unfair = points[PointDecider(grid).decide(points).verdict == UNFAIR].tolist()
    for a, axis in enumerate(grid.axes):
        table = result.profile(axis.attribute.name)
        truth = [Fraction(0)] * axis.n_cells
        for row in unfair:
            truth[int(axis.base[row[a]])] += mass_of(grid, row)
        for mass, low, high in zip(truth, table["lower"].tolist(), table["upper"].tolist()):
            assert low <= mass <= high, (prop, axis.attribute.name)
            assert high - low < SLACK
    return bool(unfair)


def test_profiles_hold_the_counterexamples_of_every_value() -> None:
    found = 0
    for seed in range(14):
        problem = random_problem(random.Random(f"partners {seed}"), eps=False, max_pieces=60)
        found += sum(check_profiles(problem, prop) for prop in asked(problem, seed))
    assert found > 15


def ways(result: boxqte.Quantification, grid: Grid) -> tuple[Fraction, Fraction]:
    """The mass of the counterexamples that have a partner with a lower score, and with a higher one."""
    partners = grid.partners
    assert partners is not None
    margins = {tuple(row): exact_margin(grid, row) for row in all_points(grid).tolist()}
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    totals = [Fraction(0), Fraction(0)]
    for x, F in margins.items():
        if grid.thresholds.conf_neg < F < grid.thresholds.conf_pos:
            continue
        rest = {a: c for a, c in enumerate(x) if a not in sensitive}
        others = {y: G for y, G in margins.items() if all(y[a] == c for a, c in rest.items())}
        for way, (target, ranges) in enumerate(zip(grid.targets(F), (partners.low, partners.high))):
            first, last = ranges[x[partners.axis]] if partners.axis >= 0 else (0, 10**6)
            place = partners.axis
            among = [G for y, G in others.items() if place < 0 or first <= y[place] <= last]
            if target is not None and any(target >= G if way == 0 else target <= G for G in among):
                totals[way] += mass_of(grid, list(x))
    return totals[0], totals[1]


def test_regions_say_which_way_scores_go() -> None:
    both = seen = 0
    for seed in range(40):
        problem = random_problem(random.Random(f"ways {seed}"), eps=False, max_pieces=30)
        for prop in asked(problem, seed):
            if not prop.asks_scores:
                continue
            result = quantify(problem.ensemble, problem.space, prop, engine="box", workers=1)
            if not result.counterexample.upper > 1e-9:
                continue
            table = result.regions(merge=False, pure=False, top=None)
            grid = build_grid(problem.ensemble, problem.space, prop)
            lower, higher = ways(result, grid)
            text = " ".join(table["flip"])
            assert ("lower" in text) == (lower > 0), prop
            assert ("higher" in text) == (higher > 0), prop
            seen += 1
            both += bool(lower and higher)
    assert seen > 20
    assert both > 5


def test_regions_of_classes_have_a_direction_that_the_oracle_sees() -> None:
    seen = 0
    for seed in range(20):
        problem = random_problem(random.Random(f"classes {seed}"), eps=False, max_pieces=30)
        for prop in asked(problem, seed):
            result = quantify(problem.ensemble, problem.space, prop, engine="box", workers=1)
            if prop.asks_scores or not result.counterexample.upper > 1e-9:
                continue
            oracle = Oracle(problem.ensemble, problem.space, prop)
            classes = set()
            for pieces in products_of_fine_pieces(oracle):
                x = oracle.representative(pieces)
                sure = oracle.mass(pieces) and oracle.is_confident(x)
                if sure and any(is_witness(oracle, x, other) for other in exchanged(oracle, x)):
                    classes.add(oracle.class_of(x))
            text = " ".join(result.regions(merge=False, pure=False, top=None)["flip"])
            if "->" not in text:  # one word for each value, where the classes alone decide
                assert result.asked.grid.mutual
                continue
            assert {int(own) for own, way in ((1, "1 -> 0"), (0, "0 -> 1")) if way in text} == classes, prop
            seen += 1
    assert seen > 10


def test_restrictions_keep_the_partners() -> None:
    """Where only the x of one value of an attribute count, x' may still be anywhere."""
    seen = 0
    for seed in range(12):
        problem = random_problem(random.Random(f"restrict {seed}"), eps=False, max_pieces=60)
        for prop in asked(problem, seed):
            result = quantify(problem.ensemble, problem.space, prop, engine="box", workers=1)
            grid = build_grid(problem.ensemble, problem.space, prop)
            integers = [a for a in grid.axes if a.attribute.kind == "integer"]
            if not integers:
                continue
            axis = integers[0]
            at = grid.axes.index(axis)
            cut = axis.attribute.low
            inside = [c for c, cell in enumerate(axis.cells) if cell.low is not None and cell.low[0] == cut]
            points = all_points(grid)
            points = points[np.isin(points[:, at], inside)]
            name, last = axis.attribute.name, axis.cells[inside[0]].high
            assert last is not None
            total = axis.masses[inside[0]]
            if not total:
                continue
            verdict = PointDecider(grid).decide(points).verdict
            wanted = sum((mass_of(grid, row) for row in points[verdict == UNFAIR].tolist()), Fraction(0)) / total
            found = result.restrict(f"`{name}` < {int(last[0])}")
            assert found.counterexample.lower <= wanted <= found.counterexample.upper + SLACK, prop
            seen += 1
    assert seen > 15


def test_pairs_of_values_are_refused_by_name_where_changes_are_related_and_one_sided_for_confident_partners() -> None:
    problem = random_problem(random.Random(3), eps=False, max_pieces=60)
    name = problem.space.names[0]
    result = quantify(problem.ensemble, problem.space, ScoreFairness(name, 0, "margin"), engine="box")
    with pytest.raises(EngineError, match="pairs: sensitive values are not told apart for score fairness"):
        result.pairs()
    seen = 0
    for seed in range(60):
        problem = random_problem(random.Random(f"one-sided {seed}"), eps=False, max_pieces=40)
        prop = Fairness(problem.space.names[0], 0, partner_kappa=Fraction(3, 4))
        result = quantify(problem.ensemble, problem.space, prop, engine="box")
        grid = result.asked.grid
        axis = grid.axes[0]
        table = result.pairs()
        truth = np.zeros((axis.n_cells, axis.n_cells))
        for row in all_points(grid).tolist():
            F = exact_margin(grid, row)
            if grid.thresholds.conf_neg < F < grid.thresholds.conf_pos:
                continue
            low, high = grid.targets(F)
            for c in range(axis.n_cells):
                G = exact_margin(grid, [c, *row[1:]])
                if c != row[0] and ((low is not None and low >= G) or (high is not None and high <= G)):
                    truth[row[0], c] += float(mass_of(grid, row))
        assert np.allclose(table.to_numpy(), truth, rtol=0, atol=1e-9)
        seen += int((np.sign(truth) != np.sign(truth.T)).any())  # who flips whom is not mutual
    assert seen > 3


def test_scores_of_confident_inputs_have_regions_and_draws() -> None:
    problem = random_problem(random.Random(3), eps=False, max_pieces=60)
    prop = ScoreFairness(problem.space.names[0], 0, "margin", kappa=Fraction(3, 5))
    result = quantify(problem.ensemble, problem.space, prop, engine="exhaustive")
    assert result.counterexample.lower > 0
    assert result.regions(top=None)["mass"].sum() == pytest.approx(result.counterexample.lower)
    assert len(result.sample(3, random_state=0)) == 3
    drawn = quantify(problem.ensemble, problem.space, prop, engine="sample", options={"points": 500})
    assert drawn.statistical is not None
    truth = result.decided.measure()
    assert truth is not None
    assert drawn.statistical.lower <= truth[0] <= drawn.statistical.upper
