"""PointDecider: is this x a counterexample? Exactly, many points at a time, with an x' for every one that is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte import _core
from boxqte.engines.box.rules import is_forbidden
from boxqte.engines.point.exact import counterexample
from boxqte.engines.point.trees import Int32Array, Int64Array, PointProblem, compile_binary
from boxqte.questions.grid import AnyGrid, Partners, binary
from boxqte.questions.rule_trees import with_rule_trees
from boxqte.questions.scores import ProbabilityScale
from boxqte.questions.variations import far_beyond

__all__ = ["FAIR", "LOW", "UNFAIR", "UNKNOWN", "PointDecider", "Verdicts"]

FAIR, UNFAIR, LOW, UNKNOWN = (
    int(kind) for kind in (_core.Kind.FAIR, _core.Kind.UNFAIR, _core.Kind.LOW, _core.Kind.UNKNOWN)
)
CLOSE, OPEN = _core.POINT_CLOSE, _core.POINT_OPEN
DENSE_LIMIT = 4096
NOBODY = np.iinfo(np.int64)
NO_BUDGET = int(NOBODY.max)
BEYOND = 1 << 62  # so far apart no two margins are
WIDEST = 1 << 60  # of what a target may be off by

Windows = tuple[Int32Array, Int32Array]


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What is known of a batch of points.

    `verdict[i]` is LOW (not confident), FAIR, UNFAIR (a counterexample), or UNKNOWN (only if a budget was given).
    `witness[i]` holds the base cell of x' on every axis of the grid for an UNFAIR point, -1 for all others. x' may share
    x's sensitive cells where these have more than one value: then it is another value of the same cell.
    """

    verdict: npt.NDArray[np.int8]
    witness: Int32Array


@dataclass(frozen=True, eq=False)
class Batch:
    """Points to be decided, the cells that x' may take if these are given, and room for what is found."""

    points: Int64Array
    low: Int32Array | None
    high: Int32Array | None
    verdict: npt.NDArray[np.int8]
    witness: Int32Array

    def take(self, at: npt.NDArray[np.intp]) -> Batch:
        """A copy of some of the points."""
        low, high = (None if ends is None else ends[at] for ends in (self.low, self.high))
        return Batch(self.points[at], low, high, self.verdict[at], self.witness[at])


class _Search(NamedTuple):
    """A search for x' with its arrays."""

    problem: PointProblem
    core: _core.Points
    seeks: int
    """0: x' of the other class, whichever that is; 1: only x of class 1 look for x' of class 0, -1: the other way round."""


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
    >>> from boxqte.questions.building import build_grid
    >>> grid = build_grid(loan_ensemble(), loan_space(), Fairness("race"))
    >>> decider = PointDecider(grid)
    >>> found = decider.decide(np.zeros((1, len(grid.axes)), int))
    >>> int(found.verdict[0]) in (FAIR, UNFAIR)
    True
    """

    def __init__(self, grid: AnyGrid, *, dense_limit: int = DENSE_LIMIT):
        self.grid = grid
        self.dense_limit = dense_limit
        self.problem = self._compile()
        self.core = self.problem.core(dense_limit)

    def _compile(self) -> PointProblem:
        return compile_binary(binary(self.grid))

    @cached_property
    def _searches(self) -> list[_Search]:
        """How x' is looked for. With rules, once for class 0 and once for class 1: what is forbidden is far from the class."""
        if not self.grid.forbidden:
            return [_Search(self.problem, self.core, 0)]
        grid = binary(self.grid)
        far = 2 * far_beyond(grid)
        made = []
        for seeks, value in ((1, far), (-1, -far)):
            problem = compile_binary(with_rule_trees(grid, grid.forbidden, value))
            made.append(_Search(problem, problem.core(self.dense_limit), seeks))
        return made

    def decide(
        self,
        cells: npt.ArrayLike,
        *,
        budget: int | None = None,
        workers: int = 1,
        windows: Windows | None = None,
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
        low, high = (None, None) if windows is None else (np.ascontiguousarray(w, np.int32) for w in windows)
        self._decide(Batch(points, low, high, verdict, witness), NO_BUDGET if budget is None else budget, workers)
        if self.grid.forbidden:
            own = np.stack([axis.base[points[:, a]] for a, axis in enumerate(self.grid.axes)], axis=1)
            gone = is_forbidden(self.grid, own)
            verdict[gone], witness[gone] = LOW, -1
        close = np.flatnonzero(verdict == CLOSE)
        if windows is not None:
            verdict[close] = UNKNOWN
            return Verdicts(verdict, witness)
        for i in close.tolist():
            confident, other = self._exactly(points[i].tolist())
            verdict[i] = LOW if not confident else FAIR if other is None else UNFAIR
            if other is not None:
                witness[i] = other
        return Verdicts(verdict, witness)

    def margins(self, cells: npt.NDArray[np.integer], workers: int = 1) -> Int64Array:
        """F (of every class), rounded to 64 bits, for rows of base cells (points x axes of the grid)."""
        outputs = np.empty((len(cells), len(self.problem.arrays["base"])), np.int64)
        self.core.margins(np.ascontiguousarray(cells, np.int64), outputs, workers)
        return outputs

    def _decide(self, batch: Batch, budget: int, workers: int) -> None:
        """Fill in verdicts and witnesses; CLOSE where 64 bits cannot tell."""
        counted = self.problem.thresholds.counted
        first, *others = [search for search in self._searches if search.seeks * counted >= 0]
        self._seek(first, batch, budget, workers)
        for search in others:  # who has found no x' of class 0, or was not looking for one
            at = np.flatnonzero(batch.verdict == FAIR)
            part = batch.take(at)
            self._seek(search, part, budget, workers)
            batch.verdict[at], batch.witness[at] = part.verdict, part.witness

    def _seek(self, search: _Search, batch: Batch, budget: int, workers: int) -> None:
        b, t, partners = batch, search.problem.thresholds, binary(self.grid).partners
        if partners is not None:
            self._seek_targets(search, batch, partners, budget, workers)
            return
        thresholds = (t.pos, t.neg, t.conf_pos, t.conf_neg, search.seeks or t.counted)
        search.core.decide(b.points, b.verdict, b.witness, thresholds, budget, workers, b.low, b.high)

    def _seek_targets(self, search: _Search, batch: Batch, partners: Partners, budget: int, workers: int) -> None:
        """The same where the property says who may be whose partner: each x has targets of its own (Grid.targets)."""
        b, t, fuzz = batch, search.problem.thresholds, search.problem.fuzz
        own = np.stack([axis.base[b.points[:, a]] for a, axis in enumerate(self.grid.axes)], axis=1)
        F = np.empty((len(own), 1), np.int64)
        search.core.margins(np.ascontiguousarray(own, np.int64), F, workers)
        F = F[:, 0]
        b.verdict[:] = CLOSE
        b.verdict[(t.conf_neg + fuzz < F) & (t.conf_pos - fuzz > F)] = LOW
        b.verdict[(t.conf_neg - fuzz >= F) | (t.conf_pos + fuzz <= F)] = OPEN
        target, slack = self._targets(search.problem, F, partners)
        b.verdict[(slack == BEYOND) & (b.verdict == OPEN)] = CLOSE
        if search.seeks:
            target[:, int(search.seeks > 0)] = NOBODY.max if search.seeks > 0 else NOBODY.min
        ranges = np.array([(*low, *high) for low, high in zip(partners.low, partners.high)], np.int32).T
        search.core.decide_targets(
            b.points, b.verdict, b.witness, target, slack, partners.axis, np.ascontiguousarray(ranges), budget, workers,
            b.low, b.high,
        )  # fmt: skip

    def _targets(self, problem: PointProblem, F: Int64Array, partners: Partners) -> tuple[Int64Array, Int64Array]:
        """`Grid.targets` in 64 bits, and by how much these, and a margin that is compared with them, can be off."""
        t, fuzz, shift = problem.thresholds, problem.fuzz, problem.shift
        if partners.scale is not None:
            return _probability_targets(F, partners.scale, fuzz, shift)
        if partners.gap:
            gap = min(-(-partners.gap >> shift), BEYOND)
            return np.stack([F - gap, F + gap], axis=1), np.full(len(F), 2 * fuzz + 1 if fuzz else 0, np.int64)
        target = np.tile(np.array([NOBODY.min, NOBODY.max], np.int64), (len(F), 1))
        if t.counted >= 0:
            target[t.conf_pos <= F, 0] = t.neg
        if t.counted <= 0:
            target[t.conf_neg >= F, 1] = t.pos
        return target, np.full(len(F), fuzz, np.int64)

    def _exactly(self, cells: list[int]) -> tuple[bool, list[int] | None]:
        """One point in Python's integers: whether it is confident, and an x' if it is a counterexample."""
        return counterexample(binary(self.grid), cells)


def _probability_targets(
    F: Int64Array, scale: ProbabilityScale, fuzz: int, shift: int
) -> tuple[Int64Array, Int64Array]:
    """`ProbabilityScale.below` and `above` in floats, and how far the true ones can be: BEYOND, where floats cannot tell."""
    change, unit, eps = float(scale.change), float(scale.unit / 2**shift), float(np.finfo(float).eps)
    rest = 0.0 if shift else float(scale.rest)
    x = np.clip((F + rest) / unit, -700, 700)  # beyond, p is 0 or 1 to the last bit
    error = eps * (16 + np.abs(x)) + fuzz / (4 * unit)  # of p, which grows by at most a quarter of its margin
    target, slack = np.empty((len(F), 2), np.int64), np.zeros(len(F))
    for k, sign in enumerate((1, -1)):
        p = 1 / (1 + np.exp(-sign * x)) - change
        clear = (p > 2 * error) & (1 - p > 2 * error)
        q = np.where(clear, p, 0.5)
        level = np.log(q) - np.log1p(-q)
        off = (2 * error / (q * (1 - q)) + 16 * eps * (1 + np.abs(level))) * unit
        nobody = p < -error
        slack = np.where(nobody, slack, np.maximum(slack, np.where(clear, off, BEYOND)))
        target[:, k] = np.clip(np.rint(sign * level * unit - rest), -float(BEYOND), float(BEYOND))
        target[nobody, k] = (NOBODY.min, NOBODY.max)[k]
    return target, np.where(slack > WIDEST, BEYOND, slack + fuzz + 3).astype(np.int64)
