"""Where margins can be far enough apart: no counterexample lies outside of these boxes."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np

from boxqte import Fairness, verify
from boxqte.answers.existence import counterexample_cells
from boxqte.answers.far_apart import as_roots, possible_boxes
from boxqte.answers.verdict import Verdict
from boxqte.answers.verify import every_cell
from boxqte.engines.box.problem import compile_problem
from boxqte.engines.protocol import Limits
from boxqte.questions.building import build_grid
from tests.engines.test_smt_questions import some_counterexample
from tests.strategies import random_problem


def held(words: np.ndarray, cell: int) -> bool:
    return bool(int(words[cell // 64]) >> (cell % 64) & 1)


def check(seeds: range) -> tuple[int, int]:
    some = fewer = 0
    for seed in seeds:
        rng = random.Random(seed)
        problem = random_problem(rng, eps=False, max_pieces=150, decision=seed % 3 == 0)
        names = rng.sample(list(problem.space.names), 1)
        kappa, partner = (Fraction(rng.choice([1, 11, 12, 14]), 20) for _ in range(2))
        prop = Fairness(names, 0, max(kappa, Fraction(1, 2)), partner_kappa=max(partner, Fraction(11, 20)))
        grid = every_cell(build_grid(problem.ensemble, problem.space, prop))
        found = possible_boxes(grid, Limits(workers=1))
        if found is None:
            continue
        whole = compile_problem(grid)
        boxes = as_roots(*found, whole)
        cells = counterexample_cells(grid)
        assert cells is not None
        for x in cells:
            inside = [
                all(grid.axes[a].sensitive or held(box[i], int(x[a])) for i, a in enumerate(whole.axis_ids))
                for box in boxes
            ]
            assert any(inside), (seed, x)
        some += bool(len(cells))
        fewer += not len(boxes)
        assert verify(problem.ensemble, problem.space, prop, workers=1).verdict is (
            Verdict.VIOLATED if some_counterexample(problem, prop) else Verdict.HOLDS
        ), seed
    return some, fewer


def test_every_counterexample_lies_in_a_possible_box() -> None:
    some, fewer = check(range(40))
    assert some > 2
    assert fewer > 2
