"""Given rows and the questions with partners: verdicts and nearest x' of all inputs of finite spaces, as the oracle has them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from boxqte import check
from boxqte.answers.empirical import empirical
from boxqte.answers.values import GridValues
from boxqte.questions.building import build_grid
from boxqte.questions.properties import Property
from boxqte.questions.row_cells import read_rows
from boxqte.space.tables import table_of
from tests.answers.test_samples_partners import is_pair
from tests.engines.test_point import all_points
from tests.naive import MISSING, Oracle, Point
from tests.naive_questions import exchanged, is_witness
from tests.questions.test_partners import asked
from tests.strategies import Problem, random_problem


def read(grid: Any, values: GridValues, frame: Any) -> list[Point]:
    """The rows of a table as the oracle's points."""
    columns = values.columns(read_rows(grid, table_of(frame)).rows)
    found: list[Point] = [{} for _ in range(len(frame))]
    for axis, column in zip(grid.axes, columns):
        a = axis.attribute
        for point, v in zip(found, column.tolist()):
            if a.is_numeric:
                point[a.name] = MISSING if np.isnan(v) else int(v)
            else:
                point[a.name] = MISSING if v < 0 else a.values[int(v)]
    return found


def check_rows(problem: Problem, prop: Property) -> int:
    grid = build_grid(problem.ensemble, problem.space, prop)
    values = GridValues(grid)
    points = all_points(grid)
    frame = values.frame(values.draw(points, np.random.default_rng(0)))
    oracle = Oracle(problem.ensemble, problem.space, prop)
    wanted = []
    for x in read(grid, values, frame):
        unfair = any(is_witness(oracle, x, other) for other in exchanged(oracle, x))
        wanted.append("not confident" if not oracle.is_confident(x) else "unfair" if unfair else "fair")
    found = check(problem.ensemble, problem.space, prop, frame, workers=1)
    assert found.table["verdict"].tolist() == wanted, prop
    shown = [read(grid, values, rows) for rows in (found.x, found.witness)] if "unfair" in wanted else [[], []]
    assert len(shown[0]) == wanted.count("unfair")
    for x, other in zip(*shown):
        assert is_pair(oracle, x, other), (prop, x, other)
        name = grid.axes[grid.partners.axis].attribute.name if grid.partners and grid.partners.axis >= 0 else None
        if name is not None and x[name] is not None:  # nobody is nearer
            witnesses = [y for y in exchanged(oracle, x) if is_witness(oracle, x, y)]
            assert abs(other[name] - x[name]) == min(abs(y[name] - x[name]) for y in witnesses), (prop, x, other)
    counted = empirical(problem.ensemble, problem.space, prop, frame)
    assert (counted.confident, counted.unfair) == (len(wanted) - wanted.count("not confident"), wanted.count("unfair"))
    return wanted.count("unfair")


def test_rows_of_finite_spaces_are_decided_as_the_oracle_says() -> None:
    found = 0
    for seed in range(14):
        problem = random_problem(random.Random(f"rows {seed}"), eps=False, real=False, max_pieces=60)
        found += sum(check_rows(problem, prop) for prop in asked(problem, seed))
    assert found > 100
