"""From cells back to values: what is drawn lies in its cell as the model sees it, and is written as the model reads it."""

from __future__ import annotations

import random

import numpy as np
import pandas as pd
import pytest

from boxqte.answers.values import ABSENT, GridValues
from boxqte.engines.point.exact import exact_margin
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_grid
from boxqte.questions.properties import Fairness
from boxqte.questions.row_cells import read_rows
from boxqte.space.tables import table_of
from tests.strategies import random_problem


@pytest.mark.parametrize("seed", range(60))
def test_a_drawn_value_lies_in_its_cell_for_the_model_too(seed: int) -> None:
    """The model's own margin of the drawn rows is the margin of their cells."""
    problem = random_problem(random.Random(seed), max_pieces=60)
    grid = build_grid(*problem)
    rng = np.random.default_rng(seed)
    values = GridValues(grid)
    cells = np.stack([rng.integers(0, len(axis.refined), 40) for axis in grid.axes], axis=1)
    columns = values.draw(cells, rng)
    margins = grid.ensemble.exact_margin(values.matrix(columns))
    base = np.stack([axis.base[cells[:, a]] for a, axis in enumerate(grid.axes)], axis=1)
    for row, margin in zip(base.tolist(), margins):
        unit = grid.ensemble.factor / 2**grid.scale_bits
        assert abs(exact_margin(grid, row) * unit - margin[0]) < 2 * unit


@pytest.mark.parametrize("seed", range(40))
def test_what_is_written_as_a_table_is_read_back_into_the_same_cells(seed: int) -> None:
    problem = random_problem(random.Random(f"table {seed}"), max_pieces=60)
    grid = build_grid(*problem)
    rng = np.random.default_rng(seed)
    values = GridValues(grid)
    cells = np.stack([rng.integers(0, len(axis.refined), 25) for axis in grid.axes], axis=1)
    columns = values.draw(cells, rng)
    frame = values.frame(columns)
    read = read_rows(grid, table_of(frame))
    for a, axis in enumerate(grid.axes):
        same = axis.base[read.cells[:, a]] == axis.base[cells[:, a]]
        assert same[read.inside].all()


def test_missing_values_are_nan_or_absent() -> None:
    space = loan_space()
    grid = build_grid(loan_ensemble(), space, Fairness("race"))
    values = GridValues(grid)
    people = pd.DataFrame({"income": [500.0], "race": [2], "age": [40]})
    columns = values.columns(read_rows(grid, table_of(people)).rows)
    assert [column.tolist() for column in columns] == [[500.0], [2.0], [40.0]]
    assert ABSENT == -1
