"""Drawing counterexamples from counted boxes, and looking for any: the C++ core's drawer, one per thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte import _core
from boxqte.engines.box.problem import Problem
from boxqte.engines.protocol import BoxArray

NONE, SOME, UNSURE = (int(found) for found in (_core.Found.NONE, _core.Found.SOME, _core.Found.UNSURE))

Int32Array = npt.NDArray[np.int32]


class Drawer:
    """Draws counterexamples from boxes that the search has counted (epsilon = 0)."""

    def __init__(self, problem: Problem, *, finish_limit: int):
        self.core = _core.Drawer(problem.core, finish_limit=finish_limit)

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
        (a row of `Problem.combinations`) of x and that of x', or -1 if an x' has still to be found.
        """
        drawn: npt.NDArray[np.bool_] = self.core.draw(boxes, counts, seed, place, cells, combination).astype(bool)
        return drawn

    def exists(self, boxes: BoxArray) -> npt.NDArray[np.int8]:
        """For every counted box: NONE, SOME or UNSURE."""
        found: npt.NDArray[np.int8] = self.core.exists(boxes)
        return found


def can_draw(problem: Problem) -> bool:
    """Whether the boxes of the search were counted in lists of values, and x' differs in sensitive attributes only."""
    return not problem.grid.has_tolerance
