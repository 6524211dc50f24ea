"""The worker for epsilon > 0: src/core/window.hpp behind the driver's interface."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from boxqte import _core
from boxqte.engines.box.problem import Problem, points_matter
from boxqte.engines.protocol import COUNTED, BoxArray, Closed, FloatArray, Reply
from boxqte.errors import EngineError

WORD = 64  # cells of the axis whose cells are bits


class WindowWorker:
    """Owns residual trees, the frames of the search over O, and the buffers of one brick; one per thread."""

    def __init__(
        self,
        problem: Problem,
        *,
        mixed_limit: int,
        cell_limit: int,
        memory: int,
        dense_cells: int = 1 << 18,
        table_cells: int = 1 << 16,
        sum_bits: int = 29,
    ):
        try:
            self.core = _core.WindowWorker(
                problem.core,
                mixed_limit=mixed_limit,
                cell_limit=cell_limit,
                dense_cells=dense_cells,
                table_cells=table_cells,
                memory=memory,
                sum_bits=sum_bits,
            )
        except _core.MemoryLimitError as error:
            raise EngineError(f"engine 'box': {error}") from None

    @property
    def memory(self) -> int:
        return int(self.core.memory)

    def work(self, boxes: BoxArray, masses: FloatArray, budget: int, depth_first: bool) -> Reply:
        try:
            fair, unfair, low, left, left_masses, closed, closed_masses, nodes, tiles = self.core.work(
                np.ascontiguousarray(boxes), budget
            )
        except _core.MemoryLimitError as error:
            raise EngineError(f"engine 'box': {error}") from None
        return Reply(
            fair,
            unfair,
            low,
            0.0,
            left,
            left_masses,
            np.ones(len(left)),
            nodes,
            tiles,
            closed=Closed(closed, closed_masses, np.full(len(closed), COUNTED, np.int8)),
        )

    def halt(self) -> None:
        """Leave the brick under work, however large it is: its box stays open."""
        self.core.halt()


def rounding_bound(problem: Problem) -> Fraction:
    """How far each sum of decided masses can be from the exact sum (docs/engine.md, 'Rounding').

    Every erosion is a sum of products of window masses: per axis one rounding for each refined cell that a window's mass
    adds up, one for each addition over windows, one product; the same for sensitive combinations and the boxes' own masses.
    """
    refined = sum(2 * len(problem.grid.axes[a].refined) for a in problem.axis_ids)
    cells = int(problem.axes.n_cells.sum())
    # twice: the unfair mass is what the other two leave of a box, so it carries the errors of both
    # and a difference of two prefix sums, each within two roundings, for the offsets of a shape and for each run of clear bits
    # and twice again where x's own cell matters: who is not sure is taken from all whose window is clear
    simple = problem.grid.thresholds.signs_only and not points_matter(problem) and problem.cap is None
    runs = (min(int(problem.axes.n_cells.max(initial=1)), WORD) + 1) // 2
    terms = refined + cells + 16 * problem.n_axes + 6 * (runs + 1) + 128
    return Fraction(101, 100) * (2 if simple else 4) * terms / 2**53 + Fraction(1, 2**1000)
