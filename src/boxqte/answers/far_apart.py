"""Where margins can be far enough apart: a first, quick look at who may change the class at all.

If x is confident and so must x' be, their margins differ by at least the sum of the two levels. With epsilon = 0 the trees
that test no sensitive attribute give x and x' the same, so that only the others can make that difference: a much smaller
question (`ScoreFairness` on margins). Outside of the boxes in which it is possible there is no counterexample.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from boxqte.engines.box.engine import Box
from boxqte.engines.box.exchange_worker import root_boxes
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import Problem
from boxqte.engines.kinds import UNFAIR
from boxqte.engines.protocol import COUNTED, BoxArray, Closed, Companions, Limits, Status, Watch
from boxqte.questions.building import only_testing
from boxqte.questions.grid import Grid, Partners, Thresholds, Trees

MOST_BOXES = 200_000
FINISH_LIMIT = 200  # small: what is counted at once is not cut out as a box


class PossibleBoxes:
    """An observer that keeps the boxes in which it is not proved that there is no counterexample."""

    def __init__(self) -> None:
        self.boxes: list[BoxArray] = []
        self.count = 0

    def begin(self, problem: Problem, roots: BoxArray) -> None:
        self.problem = problem

    def closed(self, parts: Closed) -> None:
        possible = (parts.masses[:, UNFAIR] > 0) | (
            parts.how == COUNTED
        )  # a mass of 0 that was counted may be a rounded one
        if possible.any():
            self.boxes.append(parts.boxes[possible])
            self.count += int(possible.sum())


def possible_boxes(grid: Grid, limits: Limits) -> tuple[Problem, BoxArray] | None:
    """The boxes outside of which no x is a counterexample, with the problem that they belong to (epsilon = 0, no partners);
    None where this is not quick, or where x' need not be confident."""
    t = grid.thresholds
    gap = min(t.conf_pos - t.neg, t.pos - t.conf_neg)
    if grid.property.partner_kappa <= Fraction(1, 2) or grid.partners is not None or gap <= 1:
        return None
    observer = PossibleBoxes()
    engine = Box(BoxOptions(finish_limit=FINISH_LIMIT))
    outcome = engine.run(_gap_grid(grid, gap), limits, Watch(limits), Companions((observer,)))
    if outcome.status is not Status.CONVERGED or observer.count > MOST_BOXES:
        return None
    empty = root_boxes(observer.problem)[:0]
    return observer.problem, np.concatenate([empty, *observer.boxes])


def as_roots(problem: Problem, boxes: BoxArray, other: Problem) -> BoxArray:
    """Boxes of one problem as those of another on the same cells; whole along the axes that the first does not have."""
    whole = root_boxes(other)
    out = np.repeat(whole, len(boxes), axis=0)
    for i, axis in enumerate(other.axis_ids):
        if axis in problem.axis_ids:
            own = boxes[:, problem.axis_ids.index(axis)]
            out[:, i] = 0
            out[:, i, : own.shape[1]] = own[:, : out.shape[2]]
    return out


def _gap_grid(grid: Grid, gap: int) -> Grid:
    """The question whether margins differ by the gap, of all x, on the trees that can make a difference."""
    trees = Trees(grid.cuts, grid.roots, grid.cut, grid.yes, grid.no, grid.leaf, np.arange(len(grid.values)))
    kept = only_testing(trees, {at for at, axis in enumerate(grid.axes) if axis.sensitive})
    return replace(
        grid,
        cuts=kept.cuts,
        roots=kept.roots,
        cut=kept.cut,
        yes=kept.yes,
        no=kept.no,
        leaf=kept.leaf,
        values=tuple(grid.values[leaf] for leaf in kept.leaf_nodes.tolist()),
        base=0,
        thresholds=Thresholds(1, 0, 1, 0),
        partners=Partners(-1, ((0, 0),), ((0, 0),), gap=gap),
    )
