"""The worker for epsilon = 0: the C++ core's search, its replies as the driver wants them, and exact points."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from boxqte import _core
from boxqte.engines.box.inside import LEVELS
from boxqte.engines.box.problem import Problem
from boxqte.engines.protocol import POINT, BoxArray, Closed, FloatArray, Reply
from boxqte.questions.grid import Grid, Partners

FAIR, UNFAIR, LOW = int(_core.Kind.FAIR), int(_core.Kind.UNFAIR), int(_core.Kind.LOW)
N_KINDS = 4  # as n_kinds in src/core/masses.hpp
BLOCK, FEW = 64, 64  # as in src/core/finish.cpp
BUCKETS = 1 << 13  # as in src/core/enclose.cpp
WORKER_MEMORY = 1 << 28


class ExchangeWorker:
    """driver.Worker: settles what the core can settle, and single points that 64 bits cannot place."""

    def __init__(
        self,
        problem: Problem,
        *,
        finish_limit: int,
        depth_first_below: float,
        call_work: int,
        batch: int,
        notes: bool = False,
        memory: int = WORKER_MEMORY,
    ):
        self.problem = problem
        self.notes = notes
        self.room = memory
        self.encloser: _core.Encloser | None = None
        self.core = _core.ExchangeWorker(
            problem.core,
            finish_limit=finish_limit,
            depth_first_below=depth_first_below,
            call_work=call_work,
            batch=batch,
            notes=notes,
            memory=memory,
        )

    @property
    def memory(self) -> int:
        return int(self.core.memory)

    def halt(self) -> None:
        self.core.halt()

    def work(self, boxes: BoxArray, masses: FloatArray, budget: int, depth_first: bool) -> Reply:
        found = self.core.work(boxes, masses, budget, depth_first)
        decided = np.array(found["decided"])
        points = np.zeros((len(found["point_masses"]), N_KINDS))
        for box, mass, own in zip(found["point_boxes"], found["point_masses"].tolist(), points):
            if mass:  # where cells without mass are left out, a side of a split may be empty
                self._settle_exactly(box, mass, own)
            decided += own
        fair, unfair, low, ambiguous = decided.tolist()
        return Reply(
            fair, unfair, low, ambiguous, found["boxes"], found["masses"], found["costs"], found["nodes"], found["finished"],
            len(points), self._closed(found, points), found["events"],
        )  # fmt: skip

    def enclose(self, boxes: BoxArray, cells: int) -> FloatArray:
        """Lower bounds of the masses inside boxes that stay open (docs/engine.md, Theorem 10): box x [fair, unfair, low]."""
        if self.encloser is None:
            self.encloser = _core.Encloser(self.problem.core, memory=self.room)
        return self.encloser.enclose(boxes, cells)

    def _closed(self, found: dict[str, npt.NDArray[np.generic]], points: FloatArray) -> Closed | None:
        """The boxes that were closed, those that were settled exactly last."""
        if not self.notes:
            return None
        return Closed(
            np.concatenate([found["closed_boxes"], found["point_boxes"]]),
            np.concatenate([found["closed_masses"], points])[:, [FAIR, UNFAIR, LOW]],
            np.concatenate([found["how"], np.full(len(points), POINT, np.int8)]),
        )

    def _settle_exactly(self, box: BoxArray, mass: float, decided: FloatArray) -> None:
        """A box on which every class has one margin: compare the exact ones, in Python's integers."""
        grid = self.problem.grid
        t = grid.thresholds
        cells = {a: _first_cell(box[i]) for i, a in enumerate(self.problem.axis_ids)}
        sensitive = [a for a, s in zip(self.problem.axis_ids, self.problem.sensitive) if s]
        margins = []
        class_cells, class_mass = self.problem.combinations
        if grid.forbidden:
            (banned,) = self.problem.banned_in(box[None])
            decided[LOW] += mass * float(class_mass[banned].sum())
            class_cells, class_mass = class_cells[~banned], class_mass[~banned]
        for combination in class_cells.tolist():
            cells.update(zip(sensitive, combination))
            margins.append(exact_margin(self.problem, cells))
        if grid.partners is not None:
            for F, share, seen in zip(margins, class_mass.tolist(), self._seen(grid.partners, class_cells, margins)):
                decided[_related_kind(grid, F, *seen)] += mass * share
            return
        some_pos, some_neg = any(t.pos <= F for F in margins), any(t.neg >= F for F in margins)
        if t.signs_only:
            counts = t.counted == 0 or (margins[0] >= t.pos) == (t.counted > 0)
            decided[UNFAIR if some_pos and some_neg and counts else FAIR] += mass * (
                float(class_mass.sum()) if grid.forbidden else 1.0
            )
            return
        for F, share in zip(margins, class_mass.tolist()):
            if t.conf_neg < F < t.conf_pos:
                kind = LOW
            else:
                kind = UNFAIR if (some_neg if t.conf_pos <= F else some_pos) else FAIR
            decided[kind] += mass * share

    def _seen(
        self, partners: Partners, cells: npt.NDArray[np.int32], margins: list[int]
    ) -> Iterator[tuple[list[int], list[int]]]:
        """For every combination the margins of those among whom class 0 counts, and of those among whom class 1 does."""
        axes = [a for a, s in zip(self.problem.axis_ids, self.problem.sensitive) if s]
        places = cells[:, axes.index(partners.axis)].tolist() if partners.axis in axes else [0] * len(margins)
        for place in places:
            ranges = (partners.low[place], partners.high[place])
            low, high = ([F for F, p in zip(margins, places) if first <= p <= last] for first, last in ranges)
            yield low, high


def _related_kind(grid: Grid, F: int, low: list[int], high: list[int]) -> int:
    """The verdict on an x with margin F whose partners have these margins (docs/engine.md, Theorems 11 and 12)."""
    if grid.thresholds.conf_neg < F < grid.thresholds.conf_pos:
        return LOW
    least, most = grid.targets(F)
    found = (least is not None and any(least >= G for G in low)) or (most is not None and any(most <= G for G in high))
    return UNFAIR if found else FAIR


def exact_margin(problem: Problem, cells: dict[int, int]) -> int:
    """F at a cell of every grid axis that some tree cuts, in the grid's own exact units."""
    grid = problem.grid
    total = grid.base
    for node in grid.roots.tolist():
        while grid.cut[node] >= 0:
            cut = grid.cuts[grid.cut[node]]
            node = int((grid.yes if cut.mask >> cells[cut.axis] & 1 else grid.no)[node])
        total += grid.values[grid.leaf[node]]
    return total


def root_boxes(problem: Problem) -> BoxArray:
    """The whole space as one box."""
    words = problem.cuts.mask.shape[1]
    root = np.zeros((1, problem.n_axes, words), np.uint64)
    for a, n in enumerate(problem.axes.n_cells.tolist()):
        for w in range(words):
            root[0, a, w] = (1 << min(max(n - 64 * w, 0), 64)) - 1
    return root


def in_runs(problem: Problem, boxes: BoxArray) -> BoxArray:
    """The same boxes as the core takes them: on a chain the cells of a box are neighbours, so others are divided.

    The core counts a group of cells more than there are cuts inside a box: two cuts in one gap would be two groups.
    Boxes without a cell on some axis are left out.
    """
    for a in range(problem.n_axes):
        bits = np.unpackbits(np.ascontiguousarray(boxes[:, a]).view(np.uint8), axis=-1, bitorder="little")
        starts = bits.copy()
        starts[:, 1:] &= 1 - bits[:, :-1]
        n = starts.sum(axis=1, dtype=np.int64) if problem.axes.chain[a] else bits.any(axis=1).astype(np.int64)
        if (n == 1).all():
            continue
        box = np.repeat(np.arange(len(boxes)), n)
        boxes = boxes[box]
        if problem.axes.chain[a]:
            run = np.arange(len(box)) - np.repeat(np.cumsum(n) - n, n)
            own = bits[box] * (np.cumsum(starts, axis=1)[box] == 1 + run[:, None])
            boxes[:, a] = np.packbits(own, axis=-1, bitorder="little").view(np.uint64)
    return boxes


def holds_all_mass(problem: Problem, box: npt.NDArray[np.uint64]) -> bool:
    """Whether a box has every cell that has mass, but for sensitive and moving axes, along which boxes are not cut."""
    for i, a in enumerate(problem.axis_ids):
        axis = problem.grid.axes[a]
        held = sum(int(word) << (64 * w) for w, word in enumerate(box[i].tolist()))
        if not axis.sensitive and not axis.moves and any(m and not held >> c & 1 for c, m in enumerate(axis.masses)):
            return False
    return True


def box_masses(problem: Problem, boxes: BoxArray) -> FloatArray:
    """The mass of every box; sensitive axes count as a whole."""
    masses = np.ones(len(boxes))
    for a in np.flatnonzero(~problem.sensitive).tolist():
        n = int(problem.axes.n_cells[a])
        held = np.unpackbits(np.ascontiguousarray(boxes[:, a]).view(np.uint8), axis=1, bitorder="little")[:, :n]
        masses *= held @ problem.axes.mass[a, :n]
    return masses


def rounding_bound(problem: Problem, n_classes: int) -> Fraction:
    """How far each sum of decided masses can be from the exact sum (docs/engine.md, 'Rounding').

    u = 2**-53. On the way to a decided mass there are, at most: per axis one rounding for every cell mass and one for
    every addition of cells, and one product; the same for classes; per axis six for merging equal values of lists; a
    block of a sum over cells, and one over the few entries of B; and a few single ones.
    """
    cells = sum(int(n) + 1 for n in problem.axes.n_cells.tolist())
    simple = problem.grid.thresholds.signs_only and problem.grid.partners is None
    classes = 0 if simple else 2 * n_classes + 2
    scores = 32 if problem.grid.partners is not None and problem.grid.partners.scores else 0  # unions of ranges
    roundings = cells + 7 * problem.n_axes + classes + BLOCK + FEW + scores + 64
    # (1 + u)**k - 1 <= 1.01 k u for k u <= 0.01; 2**-1000 is for products that underflow
    return Fraction(101, 100) * roundings / 2**53 + Fraction(1, 2**1000)


def inside_rounding_bound(problem: Problem, n_classes: int) -> Fraction:
    """How far each sum of masses proved inside open boxes can be from the exact sum, relative to the mass of these boxes.

    As above, but the terms of a bucket and the buckets are added one by one; a mass is a difference of two such sums, and
    `fair` is what another one leaves of the box.
    """
    cells = sum(int(n) + 1 for n in problem.axes.n_cells.tolist())
    roundings = cells + 4 * problem.n_axes + 2 * n_classes + 2 * max(level.cells for level in LEVELS) + BUCKETS + 256
    return 4 * (Fraction(101, 100) * roundings / 2**53 + Fraction(1, 2**1000))


def _first_cell(words: npt.NDArray[np.uint64]) -> int:
    """The lowest cell that a box holds on an axis."""
    value = sum(int(word) << (64 * w) for w, word in enumerate(words.tolist()))
    return (value & -value).bit_length() - 1
