"""PointDecider: is this x a counterexample? Exactly, many points at a time, with an x' for every one that is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boxqte.engines.point import kernels
from boxqte.engines.point.exact import counterexample
from boxqte.engines.point.kernels import CLOSE, FAIR, LOW, OPEN, UNFAIR, UNKNOWN, Int64Array, Search
from boxqte.engines.point.trees import Int32Array, PointProblem, compile_binary, frames_needed
from boxqte.grid import Grid

__all__ = ["FAIR", "LOW", "UNFAIR", "UNKNOWN", "PointDecider", "Verdicts"]

DENSE_LIMIT = 4096
CHUNK = 256
NO_BUDGET = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What is known of a batch of points.

    `verdict[i]` is LOW (not confident), FAIR, UNFAIR (a counterexample), or UNKNOWN (only if a budget was given).
    `witness[i]` holds the base cell of x' on every axis of the grid for an UNFAIR point, -1 for all others. x' may share
    x's sensitive cells where these have more than one value: then it is another value of the same cell.
    """

    verdict: npt.NDArray[np.int8]
    witness: Int32Array


class PointDecider:
    """Decides points of a grid exactly; one object may serve several threads.

    Parameters
    ----------
    grid
        The problem.
    dense_limit
        Boxes of at most this many cells are evaluated cell by cell instead of being split further.

    Examples
    --------
    >>> import numpy as np
    >>> from boxqte import Fairness
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> from boxqte.grid import build_grid
    >>> grid = build_grid(loan_ensemble(), loan_space(), Fairness("race"))
    >>> decider = PointDecider(grid)
    >>> found = decider.decide(np.zeros((1, len(grid.axes)), int))
    >>> int(found.verdict[0]) in (FAIR, UNFAIR)
    True
    """

    def __init__(self, grid: Grid, *, dense_limit: int = DENSE_LIMIT):
        self.grid = grid
        self.problem = self._compile()
        self.dense_limit = dense_limit
        self._growth = 1
        self._own = threading.local()

    def _compile(self) -> PointProblem:
        return compile_binary(self.grid)

    def decide(
        self,
        cells: npt.ArrayLike,
        *,
        budget: int | None = None,
        workers: int = 1,
        windows: tuple[Int32Array, Int32Array] | None = None,
    ) -> Verdicts:
        """Decide points given by their refined cells (points x axes of the grid).

        Parameters
        ----------
        cells
            For every point and every axis of the grid, the index into `axis.refined`.
        budget
            Give up on a point (UNKNOWN) after about this many steps of a few nanoseconds; None never gives up.
        workers
            Threads.
        windows
            The first and the last base cell on every axis of the grid (points x axes) that x' may lie in, within those
            that the property allows; a point that 64 bits cannot decide there is UNKNOWN.
        """
        points = np.ascontiguousarray(cells, np.int64)
        if points.ndim != 2 or points.shape[1] != len(self.grid.axes):
            raise ValueError(f"cells: expected shape (points, {len(self.grid.axes)}), found {points.shape}")
        verdict = np.full(len(points), UNKNOWN, np.int8)
        witness = np.full(points.shape, -1, np.int32)
        starts = range(0, len(points), CHUNK)

        def chunk(start: int) -> None:
            part = slice(start, start + CHUNK)
            inside = None if windows is None else (windows[0][part], windows[1][part])
            self._decide(points[part], NO_BUDGET if budget is None else budget, verdict[part], witness[part], inside)

        if workers == 1 or len(points) <= CHUNK:
            for start in starts:
                chunk(start)
        else:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(chunk, starts))
        return Verdicts(verdict, witness)

    def _within(
        self, points: npt.NDArray[np.int64], windows: tuple[Int32Array, Int32Array] | None
    ) -> tuple[Int32Array, Int32Array, Int32Array, npt.NDArray[np.bool_]]:
        """The problem's windows of the points, cut down to the given ones."""
        own, low, high, must = self.problem.windows(points)
        if windows is not None:
            mine = list(self.problem.axis_ids)
            low, high = np.maximum(low, windows[0][:, mine]), np.minimum(high, windows[1][:, mine])
        return own, low, high, must

    def _decide(
        self,
        points: npt.NDArray[np.int64],
        budget: int,
        verdict: npt.NDArray[np.int8],
        witness: Int32Array,
        windows: tuple[Int32Array, Int32Array] | None,
    ) -> None:
        p = self.problem
        t, fuzz, n_trees = p.thresholds, p.fuzz, len(p.forest.roots)
        own, low, high, must = self._within(points, windows)
        margins = np.full((len(points), 1), p.base, np.int64)
        kernels.margins(p.forest, own, margins)
        F = margins[:, 0]
        positive = (t.conf_pos + fuzz <= F) & (t.pos + fuzz <= F)
        negative = (t.conf_neg - fuzz >= F) & (t.neg - fuzz >= F)
        verdict[:] = np.where(positive | negative, OPEN, CLOSE)
        verdict[(t.conf_neg + fuzz < F) & (t.conf_pos - fuzz > F)] = LOW
        # A positive x looks for F <= neg, a negative one for -F <= -pos.
        sides = np.array([[0, n_trees], [0, 0]])
        found = np.zeros(own.shape, np.int32)
        self._find(
            np.ascontiguousarray(p.forest.value[:, 0]), sides[np.where(positive, 0, 1)], sides[np.where(positive, 1, 0)],
            np.where(positive, p.base, -p.base), np.where(positive, t.neg, -t.pos), fuzz, own, low, high, must, budget,
            verdict, found,
        )  # fmt: skip
        unfair = np.flatnonzero(verdict == UNFAIR)
        witness[unfair] = p.witnesses(points[unfair], found[unfair])
        if windows is not None:
            verdict[verdict == CLOSE] = UNKNOWN
        for i in np.flatnonzero(verdict == CLOSE).tolist():
            confident, other = counterexample(self.grid, points[i].tolist())
            verdict[i] = LOW if not confident else FAIR if other is None else UNFAIR
            if other is not None:
                witness[i] = other

    def _find(
        self,
        value: Int64Array,
        plus: Int64Array,
        minus: Int64Array,
        constant: Int64Array,
        target: Int64Array,
        fuzz: int,
        own: Int32Array,
        low: Int32Array,
        high: Int32Array,
        must: npt.NDArray[np.bool_],
        budget: int,
        verdict: npt.NDArray[np.int8],
        found: Int32Array,
    ) -> None:
        """kernels.find_all, again with more room as often as some point needs it."""
        done: kernels.Int = 0
        while True:
            done = kernels.find_all(
                self.problem.forest, self._search(), value, plus, minus, constant, target, fuzz, own, low, high, must,
                self.dense_limit, budget, verdict, found, done,
            )  # fmt: skip
            if done == len(own):
                return
            self._growth *= 2

    def _search(self) -> Search:
        """This thread's working memory; a larger one if some point has outgrown it."""
        kept: tuple[int, Search] | None = getattr(self._own, "kept", None)
        if kept is None or kept[0] < self._growth:
            kept = (self._growth, self._new_search(self._growth))
            self._own.kept = kept
        return kept[1]

    def _new_search(self, growth: int) -> Search:
        p = self.problem
        n_axes, n_nodes, n_trees = len(p.axis_ids), len(p.forest.axis), len(p.forest.roots)
        sizes = np.diff(p.forest.line_start).tolist()
        frames = frames_needed(sizes, kernels.FREE_FRAMES) + 1
        cells = int(p.forest.line_start[-1])
        nodes, trees = (n_nodes + 1024) * growth, (4 * n_trees + 64) * growth
        return Search(
            axis=np.empty(nodes, np.int32),
            cut=np.empty(nodes, np.int32),
            no=np.empty(nodes, np.int32),
            value=np.empty(nodes, np.int64),
            root=np.empty(trees, np.int32),
            least=np.empty(trees, np.int64),
            spread=np.empty(trees, np.int64),
            frame_low=np.empty((frames, n_axes), np.int32),
            frame_high=np.empty((frames, n_axes), np.int32),
            frame_tree=np.zeros(frames + 1, np.int64),
            frame_node=np.zeros(frames + 1, np.int64),
            frame_constant=np.zeros(frames, np.int64),
            frame_lines=np.empty((frames, cells), np.int64),
            frame_split=np.zeros((frames, 4), np.int64),
            path=np.zeros((int(p.forest.depth.max(initial=0)) + 1, 5), np.int64),
            low=np.empty(n_axes, np.int32),
            high=np.empty(n_axes, np.int32),
            cell=np.empty(n_axes, np.int32),
            best=np.empty(n_axes, np.int32),
            active=np.zeros(n_axes, bool),
            score=np.zeros(cells + 1, np.int64),
            dense=np.empty(max(self.dense_limit, 1), np.int64),
            dims=np.zeros((max(n_axes, 1), 5), np.int64),
        )
