"""The worker for epsilon = 0: arrays for the kernels of exchange.py, room for more records, and exact points."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.driver import POINT, BoxArray, Closed, FloatArray, Reply
from boxqte.engines.box.exchange import NEEDS_EXACT, OUT_OF_ROOM, Ledger, build_root, search
from boxqte.engines.box.finish import BLOCK, FEW, TILE
from boxqte.engines.box.parts import Scratch
from boxqte.engines.box.problem import Problem, sensitive_classes
from boxqte.engines.box.records import new_arena
from boxqte.engines.box.state import FAIR, LOW, N_KINDS, UNFAIR, Rules, Stack

CANDIDATES = 8
MAX_FRAMES = 128
STACK_BYTES = 1 << 28
GRID_BYTES = 1 << 28
BUCKETS = 1 << 13
LEDGER = 4096


class ExchangeWorker:
    """Owns an arena of residual trees, the frames of a depth-first search, and working memory; one per thread."""

    def __init__(
        self,
        problem: Problem,
        *,
        finish_limit: int,
        depth_first_below: float,
        call_work: int,
        batch: int,
        arena: int,
        notes: bool = False,
    ):
        self.problem = problem
        self.depth_first_below = depth_first_below
        self.call_work = call_work
        self.class_cells, self.class_mass = sensitive_classes(problem)
        n = len(self.class_mass)
        t = problem.thresholds
        simple = problem.grid.thresholds.all_confident  # the rounded thresholds cannot tell
        limit = min(finish_limit, max(GRID_BYTES // (8 * n), 16))
        self.rules = Rules(
            t.pos, t.neg, t.conf_pos, t.conf_neg, simple, problem.band + problem.fuzz, problem.band, problem.fuzz,
            float(limit),
        )  # fmt: skip
        self.stack = _new_stack(problem, n)
        self.scratch = _new_scratch(problem, n, limit)
        self.axes = problem.axes._replace(mass=problem.axes.mass.copy())
        for a in np.flatnonzero(problem.sensitive):  # sensitive mass is the classes' business
            self.axes.mass[a] = 0.0
            self.axes.mass[a, 0] = 1.0
        size = 2 * batch + len(self.stack.n_common) + 256
        self.out_boxes = np.zeros((size, *self.stack.domain.shape[1:]), np.uint64)
        self.out_mass = np.zeros(size)
        self.out_cost = np.zeros(size)
        pages = LEDGER + len(self.stack.n_common) + 2 * batch if notes else 0
        self.ledger = Ledger(
            np.zeros((pages, *self.stack.domain.shape[1:]), np.uint64),
            np.zeros((pages, N_KINDS)),
            np.zeros(pages, np.int8),
            np.zeros(2 * N_KINDS),
            np.zeros(2 * (pages + size) if notes else 0, np.int32),  # a tree has fewer splits than leaves
        )
        self.capacity = 1 << max(arena - 1, 15).bit_length()
        self._rebuild()

    @property
    def memory(self) -> int:
        arrays = (*self.arena, *self.stack, *self.scratch, *self.ledger, self.out_boxes)
        return sum(a.nbytes for a in arrays)

    def _rebuild(self) -> None:
        """A fresh arena with the root frame in it; a larger one if the root alone does not fit."""
        p = self.problem
        while True:
            self.arena = new_arena(len(p.cuts.axis), p.n_axes, self.capacity)
            ids = np.zeros(len(p.cut), np.uint32)
            if build_root(
                self.arena, p.cuts, self.stack, p.roots, p.cut, p.yes, p.no, p.value, p.residue, p.base, p.base_residue,
                np.flatnonzero(p.sensitive).astype(np.int32), self.class_cells, self.class_mass, ids,
            ):  # fmt: skip
                return
            self.capacity *= 2

    def halt(self) -> None:
        """Nothing to do: every call is short."""

    def work(self, boxes: BoxArray, masses: FloatArray, budget: int, depth_first: bool) -> Reply:
        decided = np.zeros(2 * N_KINDS)
        counts = np.zeros(7, np.int64)
        below = math.inf if depth_first else self.depth_first_below
        status = search(
            self.arena, self.axes, self.problem.cuts, self.rules, self.stack, self.scratch, boxes, masses, below,
            budget, self.call_work, self.out_boxes, self.out_mass, self.out_cost, decided, counts,
            self.ledger,
        )  # fmt: skip
        if status == OUT_OF_ROOM:
            self.capacity *= 2
            self._rebuild()
        n_open, nodes, finished = counts[:3].tolist()
        cost = self.out_cost[:n_open].copy()
        exact = np.flatnonzero(cost == NEEDS_EXACT)
        points = np.zeros((len(exact), N_KINDS))
        for i, own in zip(exact, points):
            self._settle_exactly(self.out_boxes[i], float(self.out_mass[i]), own)
            decided[:N_KINDS] += own
        kept = cost != NEEDS_EXACT
        cost[cost < 0] = self.depth_first_below  # it was begun, so it was no dearer than this
        fair, unfair, low, ambiguous = (decided[:N_KINDS] + decided[N_KINDS:]).tolist()
        return Reply(
            fair, unfair, low, ambiguous, self.out_boxes[:n_open][kept], self.out_mass[:n_open][kept], cost[kept],
            nodes, finished, len(exact), self._closed(int(counts[5]), self.out_boxes[exact], points),
            self.ledger.events[: counts[6]].copy(),
        )  # fmt: skip

    def _closed(self, n: int, point_boxes: BoxArray, points: FloatArray) -> Closed | None:
        """What the ledger holds, and the boxes that were settled exactly."""
        if not len(self.ledger.how):
            return None
        ledger = self.ledger
        return Closed(
            np.concatenate([ledger.domain[:n], point_boxes]),
            np.concatenate([ledger.masses[:n], points])[:, [FAIR, UNFAIR, LOW]],
            np.concatenate([ledger.how[:n], np.full(len(points), POINT, np.int8)]),
        )

    def _settle_exactly(self, box: BoxArray, mass: float, decided: FloatArray) -> None:
        """A box on which every class has one margin: compare the exact ones, in Python's integers."""
        grid = self.problem.grid
        t = grid.thresholds
        cells = {a: _first_cell(box[i]) for i, a in enumerate(self.problem.axis_ids)}
        sensitive = [a for a, s in zip(self.problem.axis_ids, self.problem.sensitive) if s]
        margins = []
        for combination in self.class_cells.tolist():
            cells.update(zip(sensitive, combination))
            margins.append(exact_margin(self.problem, cells))
        some_pos, some_neg = any(t.pos <= F for F in margins), any(t.neg >= F for F in margins)
        if t.all_confident:
            decided[UNFAIR if some_pos and some_neg else FAIR] += mass
            return
        for F, share in zip(margins, self.class_mass.tolist()):
            if t.conf_neg < F < t.conf_pos:
                kind = LOW
            else:
                kind = UNFAIR if (some_neg if t.conf_pos <= F else some_pos) else FAIR
            decided[kind] += mass * share


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
    every addition of cells, and one product; the same for classes; a block of a sum over cells, and one over the few
    entries of B; and a few single ones.
    """
    cells = sum(int(n) + 1 for n in problem.axes.n_cells.tolist())
    classes = 0 if problem.grid.thresholds.all_confident else 2 * n_classes + 2
    roundings = cells + problem.n_axes + classes + BLOCK + FEW + 64
    # (1 + u)**k - 1 <= 1.01 k u for k u <= 0.01; 2**-1000 is for products that underflow
    return Fraction(101, 100) * roundings / 2**53 + Fraction(1, 2**1000)


def _first_cell(words: npt.NDArray[np.uint64]) -> int:
    """The lowest cell that a box holds on an axis."""
    value = sum(int(word) << (64 * w) for w, word in enumerate(words.tolist()))
    return (value & -value).bit_length() - 1


def _new_stack(problem: Problem, n_classes: int) -> Stack:
    trees = len(problem.roots)
    n_axes, words = problem.n_axes, problem.cuts.mask.shape[1]
    frame_bytes = 4 * trees * (n_classes + 1) + 24 * n_classes + 8 * n_axes * (words + 1)
    n = min(MAX_FRAMES, max(STACK_BYTES // frame_bytes, 8))
    return Stack(
        n_common=np.zeros(n, np.int32),
        common=np.zeros((n, trees), np.uint32),
        n_rows=np.zeros(n, np.int32),
        n_classes=np.zeros(n, np.int32),
        rows=np.zeros((n, trees, n_classes), np.uint32),
        offset=np.zeros((n, n_classes), np.int64),
        residue=np.zeros((n, n_classes), np.int64),
        class_mass=np.zeros((n, n_classes)),
        domain=np.zeros((n, n_axes, words), np.uint64),
        axis_mass=np.ones((n, n_axes)),
        merges=np.array([problem.merges]),
    )


def _depth(problem: Problem) -> int:
    """How many cuts the longest path of a tree tests."""
    depth = 0
    nodes = problem.roots[problem.cut[problem.roots] >= 0]
    while len(nodes):
        depth += 1
        below = np.concatenate([problem.yes[nodes], problem.no[nodes]])
        nodes = below[problem.cut[below] >= 0]
    return depth


def _new_scratch(problem: Problem, n_classes: int, finish_limit: int) -> Scratch:
    trees, n_axes, n_cuts = len(problem.roots), max(problem.n_axes, 1), len(problem.cuts.axis)
    longest = int(problem.axes.n_cells.max(initial=1))
    axis_words, cut_words = (n_axes + 63) // 64, (n_cuts + 63) // 64 or 1
    size = finish_limit + 64
    return Scratch(
        low=np.zeros(n_classes, np.int64),
        high=np.zeros(n_classes, np.int64),
        verdict=np.zeros(n_classes, np.int64),
        masses=np.zeros(2 * N_KINDS),
        score=np.zeros(n_cuts),
        best=np.zeros(CANDIDATES, np.int32),
        part_axes=np.zeros((trees + 2, axis_words), np.uint64),
        active=np.zeros(cut_words, np.uint64),
        part_cells=np.zeros(trees + 2),
        part_side=np.zeros(trees + 2, np.int8),
        n_parts=np.zeros(1, np.int32),
        group_n=np.zeros(n_axes, np.int32),
        group_cell=np.zeros((n_axes, longest), np.int32),
        group_mass=np.zeros((n_axes, longest)),
        group_at=np.zeros(n_cuts + 1, np.int32),
        todo=np.zeros((_depth(problem) + 2, 1 + 2 * n_axes), np.int64),
        block_at=np.zeros(n_axes, np.int64),
        now=np.zeros(n_axes, np.int32),
        list_axis=np.zeros(n_axes, np.int32),
        stride=np.zeros(n_axes, np.int64),
        size=np.zeros(n_axes, np.int64),
        odometer=np.zeros(n_axes, np.int32),
        ripe=np.zeros(trees, np.int32),
        trees=np.zeros(trees, np.uint32),
        same=np.zeros(trees + 1, np.uint32),
        own=np.zeros(n_axes, np.int32),
        own_at=np.zeros(n_axes, np.int32),
        own_stride=np.zeros(n_axes, np.int64),
        free=np.zeros(n_axes, np.int32),
        run=np.zeros(n_axes, np.int64),
        run_stride=np.zeros(n_axes, np.int64),
        scope_axes=np.zeros(axis_words, np.uint64),
        scope=np.zeros(size, np.int64),
        users=np.zeros(n_axes, np.int32),
        grid=np.zeros((n_classes, size), np.int64),
        grid_mass=np.zeros(size),
        extreme=np.zeros((2, size), np.int64),
        row_axes=np.zeros(axis_words, np.uint64),
        row_stride=np.zeros(n_axes, np.int64),
        own_part=np.zeros(size, np.int64),
        row_extreme=np.zeros((2, size), np.int64),
        share=np.zeros(TILE),
        value=np.zeros((3, size), np.int64),
        key=np.zeros(size + 4, np.int64),
        mass=np.zeros((3, size)),
        prefix=np.zeros(size + 1),
        bucket=np.zeros(BUCKETS + 16, np.int32),
    )
