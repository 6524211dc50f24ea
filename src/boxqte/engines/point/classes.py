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

from boxqte.engines.box.problem import BITS
from boxqte.engines.point.decider import CLOSE, LOW, OPEN, PointDecider
from boxqte.engines.point.trees import Int32Array, Int64Array, PointProblem, compile_points
from boxqte.grid import Thresholds
from boxqte.manyclasses import ClassGrid, rival_target, top_class

Range = tuple[int, int]


def compile_classes(grid: ClassGrid) -> tuple[PointProblem, Int64Array, int]:
    """The arrays of a class grid, the bases in 64 bits, and how many bits were dropped for that."""
    width = 1 if (grid.tree_output >= 0).all() else grid.n_classes
    values = [row if len(row) == width else row * width for row in grid.leaf_values]
    largest = _largest_sum(grid)
    shift = max(0, largest.bit_length() - BITS)
    half = (1 << shift) >> 1
    table = np.zeros((len(grid.cut), width), np.int64)
    table[grid.leaf >= 0] = [[(v + half) >> shift for v in row] for row in values]
    bases = [base >> shift for base in grid.bases]
    fuzz = len(grid.roots) // 2 + 3 if shift else 0
    problem = compile_points(grid, table, bases, Thresholds(1, 0, 1, 0), fuzz, grid.tree_output)
    return problem, np.array(bases, np.int64), shift


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
        problem, self.bases, shift = compile_classes(self.grid)
        grid = self.grid
        self.step = math.ldexp(1.0, min(shift, 900))
        # What rounding to 64 bits does to a margin, in the softmax's own scale: far below FLOAT_MARGIN, or not usable.
        blur = Fraction(problem.fuzz << shift) * grid.ensemble.factor / grid.unit
        self.blurred = grid.low_possible and (shift > 900 or blur > Fraction(1, 10**11))
        return problem

    def margins(self, cells: npt.NDArray[np.integer], workers: int = 1) -> Int64Array:
        """F_k, rounded to 64 bits, for rows of base cells (points x axes of the grid)."""
        outputs = np.empty((len(cells), self.grid.n_classes), np.int64)
        self.core.margins(np.ascontiguousarray(cells, np.int64), outputs, workers)
        return outputs

    def top_classes(self, cells: npt.NDArray[np.integer]) -> Int64Array:
        """The class in every row of base cells (points x axes of the grid)."""
        if self.problem.fuzz:  # 64 bits might not tell
            return np.array([top_class(exact_margins(self.grid, row)) for row in cells.tolist()], np.int64)
        top: Int64Array = self.margins(cells).argmax(axis=1)
        return top

    def _decide(
        self,
        points: Int64Array,
        budget: int,
        workers: int,
        low: Int32Array | None,
        high: Int32Array | None,
        verdict: npt.NDArray[np.int8],
        witness: Int32Array,
    ) -> None:
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
        self.core.decide_rivals(points, top, verdict, witness, budget, workers, low, high)

    def _exactly(self, cells: list[int]) -> tuple[bool, list[int] | None]:
        return class_counterexample(self.grid, cells)


def exact_margins(grid: ClassGrid, cells: Sequence[int]) -> list[int]:
    """F_k at a base cell of every axis, for every class."""
    total = list(grid.bases)
    for t, node in enumerate(grid.roots.tolist()):
        while grid.cut[node] >= 0:
            cut = grid.cuts[grid.cut[node]]
            node = int((grid.yes if cut.mask >> cells[cut.axis] & 1 else grid.no)[node])
        for k, v in enumerate(_outputs(grid, t, int(grid.leaf[node]))):
            total[k] += v
    return total


def class_counterexample(grid: ClassGrid, cells: Sequence[int]) -> tuple[bool, list[int] | None]:
    """In Python's integers: is the x in these refined cells confident, and an x' of another class, if there is one."""
    own = [int(axis.base[c]) for axis, c in zip(grid.axes, cells)]
    margins = exact_margins(grid, own)
    if not grid.confident(margins):
        return False, None
    c = top_class(margins)
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    differ = bool(sensitive) and all(grid.axes[a].single[own[a]] for a in sensitive)
    stack = [[(int(axis.near_lo[r]), int(axis.near_hi[r])) for axis, r in zip(grid.axes, cells)]]
    while stack:
        box = stack.pop()
        if differ and all(box[a] == (own[a], own[a]) for a in sensitive):
            continue
        if not any(_least_lead(grid, box, c, k) <= rival_target(c, k) for k in range(grid.n_classes) if k != c):
            continue
        widest = max(range(len(box)), key=lambda a: box[a][1] - box[a][0])
        low, high = box[widest]
        if low == high:
            return True, [low for low, _ in box]
        middle = (low + high) // 2
        for part in ((low, middle), (middle + 1, high)):
            stack.append([*box[:widest], part, *box[widest + 1 :]])
    return True, None


def _least_lead(grid: ClassGrid, box: Sequence[Range], c: int, rival: int) -> int:
    """A lower bound of F_c - F_rival on a box; exact on a single cell."""
    total = grid.bases[c] - grid.bases[rival]
    for t, root in enumerate(grid.roots.tolist()):
        stack, leads = [root], []
        while stack:
            node = stack.pop()
            if grid.cut[node] < 0:
                outputs = _outputs(grid, t, int(grid.leaf[node]))
                leads.append(outputs[c] - outputs[rival])
                continue
            cut = grid.cuts[grid.cut[node]]
            low, high = box[cut.axis]
            inside, all_of_it = (cut.mask >> low) & ((1 << (high - low + 1)) - 1), (1 << (high - low + 1)) - 1
            if inside:
                stack.append(int(grid.yes[node]))
            if inside != all_of_it:
                stack.append(int(grid.no[node]))
        total += min(leads)
    return total


def _outputs(grid: ClassGrid, tree: int, leaf: int) -> list[int]:
    """What a leaf adds to every output."""
    row, output = grid.leaf_values[leaf], int(grid.tree_output[tree])
    return list(row) if output < 0 else [row[0] if k == output else 0 for k in range(grid.n_classes)]
