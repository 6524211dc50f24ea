"""Points of models with three or more classes: x's class against one rival after the other.

x' has another class than c iff some rival beats c there: F_c - F_rival is at most `rival_target`. So each rival is one
search, and a point is fair once all of them have failed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from boxqte import _core
from boxqte.engines.box.problem import BITS
from boxqte.engines.point.decider import CLOSE, LOW, OPEN, Batch, PointDecider
from boxqte.engines.point.exact import Box, forbids, partner, reached_leaves
from boxqte.engines.point.trees import Int64Array, PointProblem, compile_points
from boxqte.questions.class_grid import ClassGrid, rival_target, top_class
from boxqte.questions.grid import Thresholds
from boxqte.questions.rule_trees import with_class_rule_trees


def compile_classes(grid: ClassGrid) -> tuple[PointProblem, int]:
    """The arrays of a class grid, and how many bits were dropped to make its values fit into 64."""
    width = 1 if (grid.tree_output >= 0).all() else grid.n_classes
    values = [row if len(row) == width else row * width for row in grid.leaf_values]
    largest = _largest_sum(grid)
    shift = max(0, largest.bit_length() - BITS)
    half = (1 << shift) >> 1
    table = np.zeros((len(grid.cut), width), np.int64)
    table[grid.leaf >= 0] = [[(v + half) >> shift for v in row] for row in values]
    bases = [base >> shift for base in grid.bases]
    fuzz = len(grid.roots) // 2 + 3 if shift else 0
    return compile_points(grid, table, bases, Thresholds(1, 0, 1, 0), fuzz, grid.tree_output), shift


def _largest_sum(grid: ClassGrid) -> int:
    """A bound on |F_k| and on differences of two of them: all leaves' sizes, tree by tree."""
    starts = [*grid.roots.tolist(), len(grid.cut)]
    sizes = [max(map(abs, row)) for row in grid.leaf_values]
    total = max(map(abs, grid.bases))
    for first, stop in pairwise(starts):
        leaves = grid.leaf[first:stop]
        total += max((sizes[leaf] for leaf in leaves[leaves >= 0].tolist()), default=0)
    return 2 * total


class ClassDecider(PointDecider):
    """PointDecider for a ClassGrid: the same questions, the same answers."""

    grid: ClassGrid

    def _compile(self) -> PointProblem:
        problem, shift = compile_classes(self.grid)
        grid = self.grid
        self.step = math.ldexp(1.0, min(shift, 900))
        # What rounding to 64 bits does to a margin, in the softmax's own scale: far below FLOAT_MARGIN, or not usable.
        blur = Fraction(problem.fuzz << shift) * grid.ensemble.factor / grid.unit
        self.blurred = grid.low_possible and (shift > 900 or blur > Fraction(1, 10**11))
        self._rivals: dict[int, _core.Points] = {}
        return problem

    def top_classes(self, cells: npt.NDArray[np.integer]) -> Int64Array:
        """The class in every row of base cells (points x axes of the grid)."""
        if self.problem.fuzz:  # 64 bits might not tell
            return np.array([top_class(exact_margins(self.grid, row)) for row in cells.tolist()], np.int64)
        top: Int64Array = self.margins(cells).argmax(axis=1)
        return top

    def _decide(self, batch: Batch, budget: int, workers: int) -> None:
        points, verdict = batch.points, batch.verdict
        grid, fuzz = self.grid, self.problem.fuzz
        own = np.stack([axis.base[points[:, a]] for a, axis in enumerate(grid.axes)], axis=1)
        margins = self.margins(own, workers)
        ranked = np.partition(margins, -2, axis=1)
        verdict[:] = OPEN
        unclear = np.full(len(points), fuzz > 0) & (ranked[:, -1] - ranked[:, -2] <= 2 * fuzz)
        if self.blurred:
            unclear[:] = True
        else:
            sure, not_sure = grid.clearly_confident(margins.astype(np.float64) * self.step)
            verdict[not_sure] = LOW
            for i in np.flatnonzero(~sure & ~not_sure).tolist():
                if fuzz:
                    unclear[i] = True
                elif not grid.confident(margins[i].tolist()):
                    verdict[i] = LOW
        verdict[unclear] = CLOSE
        top = np.ascontiguousarray(margins.argmax(axis=1), np.int64)
        if not grid.forbidden:
            self.core.decide_rivals(points, top, verdict, batch.witness, budget, workers, batch.low, batch.high)
            return
        for c in np.unique(top[verdict == OPEN]).tolist():
            at = np.flatnonzero((verdict == OPEN) & (top == c))
            part = batch.take(at)
            self._against(c).decide_rivals(
                part.points, top[at], part.verdict, part.witness, budget, workers, part.low, part.high
            )
            verdict[at], batch.witness[at] = part.verdict, part.witness

    def _against(self, own: int) -> _core.Points:
        """What looks for rivals of a class: what rules forbid has so large a margin of it that no rival wins there."""
        if own not in self._rivals:
            grid = with_class_rule_trees(self.grid, self.grid.forbidden, 2 * _largest_sum(self.grid) + 2, own)
            self._rivals[own] = compile_classes(grid)[0].core(self.dense_limit)
        return self._rivals[own]

    def _exactly(self, cells: list[int]) -> tuple[bool, list[int] | None]:
        return class_counterexample(self.grid, cells)


def exact_margins(grid: ClassGrid, cells: Sequence[int]) -> list[int]:
    """F_k at a base cell of every axis, for every class."""
    total, box = list(grid.bases), [(c, c) for c in cells]
    for t, root in enumerate(grid.roots.tolist()):
        for leaf in reached_leaves(grid, root, box):  # one
            for k, v in enumerate(_outputs(grid, t, leaf)):
                total[k] += v
    return total


def class_counterexample(grid: ClassGrid, cells: Sequence[int]) -> tuple[bool, list[int] | None]:
    """In Python's integers: is the x in these refined cells confident, and an x' of another class, if there is one."""
    own = [int(axis.base[c]) for axis, c in zip(grid.axes, cells)]
    margins = exact_margins(grid, own)
    if forbids(grid, [(c, c) for c in own]) or not grid.confident(margins):
        return False, None
    c = top_class(margins)
    targets = {k: rival_target(c, k) for k in range(grid.n_classes) if k != c}
    window = [(int(axis.near_lo[r]), int(axis.near_hi[r])) for axis, r in zip(grid.axes, cells)]
    found = partner(grid, cells, window, lambda box: any(_least_lead(grid, box, c, k) <= t for k, t in targets.items()))
    return True, found


def _least_lead(grid: ClassGrid, box: Box, c: int, rival: int) -> int:
    """A lower bound of F_c - F_rival on a box; exact on a single cell."""
    total = grid.bases[c] - grid.bases[rival]
    for t, root in enumerate(grid.roots.tolist()):
        outputs = (_outputs(grid, t, leaf) for leaf in reached_leaves(grid, root, box))
        total += min(added[c] - added[rival] for added in outputs)
    return total


def _outputs(grid: ClassGrid, tree: int, leaf: int) -> list[int]:
    """What a leaf adds to every output."""
    row, output = grid.leaf_values[leaf], int(grid.tree_output[tree])
    return list(row) if output < 0 else [row[0] if k == output else 0 for k in range(grid.n_classes)]
