"""The worker for drawing counterexamples: the arrays that draw.py needs; one per thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.draw import DRAWN, Drawing, draw
from boxqte.engines.box.driver import BoxArray
from boxqte.engines.box.exchange_worker import ExchangeWorker
from boxqte.engines.box.problem import Problem

Int32Array = npt.NDArray[np.int32]


class Drawer:
    """Draws counterexamples from boxes that the search has counted (epsilon = 0)."""

    def __init__(self, problem: Problem, *, finish_limit: int, arena: int):
        self.problem = problem
        self.worker = ExchangeWorker(
            problem, finish_limit=finish_limit, depth_first_below=0.0, call_work=1, batch=1, arena=arena
        )
        self._start_again()
        n_axes, n_classes = max(problem.n_axes, 1), len(self.worker.class_mass)
        longest = int(problem.axes.n_cells.max(initial=1))
        size, parts = self.worker.scratch.grid.shape[1], len(self.worker.scratch.part_cells)
        self.drawing = Drawing(
            random=np.zeros(1, np.uint64),
            class_mass=self.worker.class_mass,
            member=np.zeros(n_classes, np.int32),
            b_value=np.zeros(size, np.int64),
            b_mass=np.zeros(size),
            b_entry=np.zeros(size, np.int32),
            b_used=np.zeros(size, np.int32),
            total=np.zeros(size),
            part_axis=np.zeros((parts, n_axes), np.int32),
            part_n=np.zeros(parts, np.int32),
            part_size=np.zeros(parts, np.int64),
            cell=np.zeros((n_axes, longest), np.int32),
            cell_mass=np.zeros((n_axes, longest)),
            group_start=np.zeros((n_axes, longest + 2), np.int32),
        )

    def _start_again(self) -> None:
        """The root frame with every combination of sensitive cells as a class of its own: which is which is needed."""
        self.worker.stack.merges[0] = False
        self.worker._rebuild()

    def draw(
        self,
        boxes: BoxArray,
        counts: npt.NDArray[np.int64],
        seed: int,
        place: npt.NDArray[np.int64],
        cells: Int32Array,
        combination: Int32Array,
    ) -> npt.NDArray[np.bool_]:
        """counts[i] draws from boxes[i], the k-th of all into row place[k]; which boxes it drew from.

        `cells` gets the cells of x on the problem's axes, but for the sensitive ones: `combination` has the combination
        (a row of `class_cells`) of x and that of x', or -1 if an x' has still to be found.
        """
        p, w = self.problem, self.worker
        status = np.zeros(len(boxes), np.int8)
        self.drawing.random[0] = seed
        at = 0
        while at < len(boxes):
            at = draw(
                w.arena, w.axes, p.cuts, w.rules, w.stack, w.scratch, self.drawing, p.merges, boxes, counts, at, place,
                cells, combination, status,
            )  # fmt: skip
            if at < len(boxes):
                w.capacity *= 2
                self._start_again()
        drawn: npt.NDArray[np.bool_] = status == DRAWN
        return drawn

    def exists(self, boxes: BoxArray) -> npt.NDArray[np.int8]:
        """For every counted box: exists.NONE, SOME or UNSURE."""
        from boxqte.engines.box.exists import exists

        p, w = self.problem, self.worker
        found = np.zeros(len(boxes), np.int8)
        at = 0
        while at < len(boxes):
            at = exists(w.arena, w.axes, p.cuts, w.rules, w.stack, w.scratch, self.drawing, p.merges, boxes, at, found)
            if at < len(boxes):
                w.capacity *= 2
                self._start_again()
        return found


def can_draw(problem: Problem) -> bool:
    """Whether the boxes of the search were counted in lists of values, and x' differs in sensitive attributes only."""
    return not problem.grid.has_tolerance
