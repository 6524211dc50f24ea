"""Whether counted boxes hold a counterexample at all, by ranks: the questions with partners against the counted masses."""

from __future__ import annotations

import random

import numpy as np

from boxqte.engines.box.draw_worker import NONE, SOME, UNSURE, Drawer
from boxqte.engines.box.engine import Box
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import Problem as Compiled
from boxqte.engines.kinds import UNFAIR
from boxqte.engines.protocol import COUNTED, Closed, Companions, Limits, Watch
from boxqte.questions.building import build_grid
from tests.engines.test_point import wide_leaves
from tests.questions.test_partners import asked
from tests.strategies import Problem, random_problem


class Counted:
    """An observer that keeps what was counted."""

    def __init__(self) -> None:
        self.parts: list[Closed] = []

    def begin(self, problem: Compiled, roots: np.ndarray) -> None:
        self.problem = problem

    def closed(self, parts: Closed) -> None:
        self.parts.append(parts)


def found_in(problem: Problem, seed: int) -> list[tuple[int, bool]]:
    """For every counted box what ranks say, and whether it has counterexample mass."""
    out = []
    limits = Limits(workers=1)
    for prop in asked(problem, seed):
        grid = build_grid(problem.ensemble, problem.space, prop)
        seen = Counted()
        Box(BoxOptions(finish_limit=200)).run(grid, limits, Watch(limits), Companions((seen,)))
        drawer = Drawer(seen.problem, finish_limit=200)
        for parts in seen.parts:
            counted = np.flatnonzero(parts.how == COUNTED)
            if len(counted):
                there = drawer.exists(parts.boxes[counted])
                out += list(zip(there.tolist(), (parts.masses[counted, UNFAIR] > 1e-12).tolist()))
    return out


def test_ranks_find_what_masses_show_and_nothing_else() -> None:
    seen = []
    for seed in range(40):
        for there, mass in found_in(random_problem(random.Random(seed), eps=False, max_pieces=120), seed):
            assert there == (SOME if mass else NONE)
            seen.append(mass)
    assert sum(seen) > 20
    assert len(seen) - sum(seen) > 20


def test_ranks_are_never_wrong_where_margins_are_rounded() -> None:
    seen = []
    for seed in range(25):
        problem = wide_leaves(random_problem(random.Random(seed), eps=False, max_pieces=60), seed)
        for there, mass in found_in(problem, seed):
            assert there in (SOME if mass else NONE, UNSURE)
            seen.append(mass)
    assert sum(seen) > 3
    assert len(seen) - sum(seen) > 3
