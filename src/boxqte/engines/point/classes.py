"""Points of models with three or more classes: x's class against one rival after the other (kernels.find).

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
from boxqte.engines.point import kernels
from boxqte.engines.point.decider import PointDecider
from boxqte.engines.point.kernels import CLOSE, FAIR, LOW, OPEN, UNFAIR, UNKNOWN, Int64Array
from boxqte.engines.point.trees import Int32Array, PointProblem, compile_points
from boxqte.grid import Thresholds
from boxqte.manyclasses import ClassGrid, rival_target, top_class

Range = tuple[int, int]


def compile_classes(grid: ClassGrid) -> tuple[PointProblem, Int64Array, int]:
    """The arrays of a class grid, trees sorted by output, the bases in 64 bits, and how many bits were dropped for that."""
    order = np.argsort(grid.tree_output, kind="stable")
    width = 1 if (grid.tree_output >= 0).all() else grid.n_classes
    values = [row if len(row) == width else row * width for row in grid.leaf_values]
    largest = _largest_sum(grid)
    shift = max(0, largest.bit_length() - BITS)
    half = (1 << shift) >> 1
    table = np.zeros((len(grid.cut), width), np.int64)
    table[grid.leaf >= 0] = [[(v + half) >> shift for v in row] for row in values]
    bases = np.array([base >> shift for base in grid.bases], np.int64)
    fuzz = len(grid.roots) // 2 + 3 if shift else 0
    problem = compile_points(grid, table, 0, Thresholds(1, 0, 1, 0), fuzz, order, grid.tree_output)
    return problem, bases, shift


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

    def top_classes(self, cells: npt.NDArray[np.integer]) -> Int64Array:
        """The class in every row of base cells (points x axes of the grid)."""
        if self.problem.fuzz:  # 64 bits might not tell
            return np.array([top_class(exact_margins(self.grid, row)) for row in cells.tolist()], np.int64)
        margins = np.tile(self.bases, (len(cells), 1))
        kernels.margins(
            self.problem.forest, np.ascontiguousarray(cells[:, list(self.problem.axis_ids)], np.int32), margins
        )
        top: Int64Array = margins.argmax(axis=1)
        return top

    def _decide(
        self,
        points: npt.NDArray[np.int64],
        budget: int,
        verdict: npt.NDArray[np.int8],
        witness: Int32Array,
        windows: tuple[Int32Array, Int32Array] | None,
    ) -> None:
        p, grid = self.problem, self.grid
        own, low, high, must = self._within(points, windows)
        margins = np.tile(self.bases, (len(points), 1))
        kernels.margins(p.forest, own, margins)
        ranked = np.sort(margins, axis=1)
        top = margins.argmax(axis=1)
        verdict[:] = OPEN
        unclear = np.full(len(points), p.fuzz > 0) & (ranked[:, -1] - ranked[:, -2] <= 2 * p.fuzz)
        if self.blurred:
            unclear[:] = True
        else:
            sure, not_sure = grid.clearly_confident(margins.astype(np.float64) * self.step)
            verdict[not_sure] = LOW
            for i in np.flatnonzero(~sure & ~not_sure).tolist():
                if p.fuzz:
                    unclear[i] = True
                elif not grid.confident(margins[i].tolist()):
                    verdict[i] = LOW
        verdict[unclear] = CLOSE
        found = np.zeros(own.shape, np.int32)
        given_up = np.zeros(len(points), bool)
        close = np.zeros(len(points), bool)
        for rival in range(grid.n_classes):
            for c in np.unique(top[verdict == OPEN]).tolist():
                if c == rival:
                    continue
                here = np.where((verdict == OPEN) & (top == c), OPEN, FAIR).astype(np.int8)
                self._against(c, rival, own, low, high, must, budget, here, found)
                asked = (verdict == OPEN) & (top == c)
                verdict[asked & (here == UNFAIR)] = UNFAIR
                given_up |= asked & (here == UNKNOWN)
                close |= asked & (here == CLOSE)
        verdict[(verdict == OPEN) & close] = CLOSE
        verdict[(verdict == OPEN) & given_up] = UNKNOWN
        verdict[verdict == OPEN] = FAIR
        unfair = np.flatnonzero(verdict == UNFAIR)
        witness[unfair] = p.witnesses(points[unfair], found[unfair])
        if windows is not None:
            verdict[verdict == CLOSE] = UNKNOWN
        for i in np.flatnonzero(verdict == CLOSE).tolist():
            confident, other = class_counterexample(grid, points[i].tolist())
            verdict[i] = LOW if not confident else FAIR if other is None else UNFAIR
            if other is not None:
                witness[i] = other

    def _against(
        self,
        c: int,
        rival: int,
        own: Int32Array,
        low: Int32Array,
        high: Int32Array,
        must: npt.NDArray[np.bool_],
        budget: int,
        verdict: npt.NDArray[np.int8],
        found: Int32Array,
    ) -> None:
        """Can the rival win near any of the OPEN points, whose class is c?"""
        forest = self.problem.forest
        n = len(own)
        if (forest.output >= 0).all():
            value = np.ascontiguousarray(forest.value[:, 0])
            plus, minus = (np.searchsorted(forest.output, [k, k + 1]) for k in (c, rival))
        else:
            value = forest.value[:, c] - forest.value[:, rival]
            plus, minus = np.array([0, len(forest.roots)]), np.array([0, 0])
        constant = int(self.bases[c]) - int(self.bases[rival])
        # The kernels' target is exact without fuzz; with it, sums of two outputs are off by twice the fuzz of one.
        self._find(
            value, np.tile(plus, (n, 1)), np.tile(minus, (n, 1)), np.full(n, constant), np.full(n, rival_target(c, rival)),
            2 * self.problem.fuzz, own, low, high, must, budget, verdict, found,
        )  # fmt: skip


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
