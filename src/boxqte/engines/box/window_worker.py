"""The worker for epsilon > 0: arrays for the kernels of window.py, and room for larger bricks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from mmap import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.brick import ROLE_E, ROLE_O, ROLE_S, Brick, Frame, Levels, Nodes
from boxqte.engines.box.driver import COUNTED, BoxArray, Closed, FloatArray, Reply
from boxqte.engines.box.erosion import MEMO_SLOTS, MEMO_WORDS, Memo, Windows
from boxqte.engines.box.exchange_worker import root_boxes
from boxqte.engines.box.measure import NODE_WORK
from boxqte.engines.box.problem import Problem, compile_problem, wrapped
from boxqte.engines.box.ranks import LANE, MOST_RANKS, Ranks
from boxqte.engines.box.records import new_arena
from boxqte.engines.box.state import N_KINDS
from boxqte.engines.box.walk import OFFSETS, Walk
from boxqte.engines.box.window import OUT_OF_ROOM, TOO_LARGE, Found, build_root, search
from boxqte.errors import EngineError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.grid import build_grid
from boxqte.properties import Robustness

BITMAPS = 16  # offsets measured together, while the bitmaps are small
BITMAP_WORDS = 1 << 20
MAX_SLOTS = 256
SETTLED = 256  # parts that one call of the kernel settles at most


class WindowWorker:
    """Owns an arena of residual trees, the frames of the search over O, and the buffers of one brick; one per thread."""

    def __init__(
        self,
        problem: Problem,
        *,
        mixed_limit: int,
        cell_limit: int,
        arena: int,
        memory: int,
        dense_cells: int = 1 << 14,
        table_cells: int = 1 << 16,
    ):
        self.problem = problem
        self.memory_limit = memory
        t = problem.thresholds
        self.frame = _frame(problem)
        exact = problem.grid.thresholds
        self.levels = Levels(
            t.pos, t.neg, t.conf_pos, t.conf_neg, exact.all_confident, _points_matter(problem), mixed_limit, float(cell_limit),
            dense_cells, table_cells, problem.fuzz, *(wrapped(v) for v in (exact.pos, exact.neg, exact.conf_pos, exact.conf_neg)),
        )  # fmt: skip
        self.rows = 1 << 12
        self.block = 1 << 13
        self.table = 1 << 15
        self.cells = 1 << 14
        self.calls = 0
        self.capacity = 1 << max(arena - 1, 15).bit_length()
        frames, words = int(problem.axes.n_cells.sum()) + 8, problem.cuts.mask.shape[1]
        self.found = Found(
            settled=np.zeros((SETTLED, problem.n_axes, words), np.uint64),
            settled_mass=np.zeros((SETTLED, 3)),
            open=np.zeros((frames, problem.n_axes, words), np.uint64),
            open_mass=np.zeros(frames),
        )
        self.need = np.zeros(8, np.int64)
        self.halted = np.zeros(1, np.int64)
        self.sizes = [1 << 12, 1 << 14, 1 << 16, 1 << 10, 1 << 16]
        """of ranks and walks: cells, windows, sparse tables, window rows, dense tables"""
        self.windows, self.own_windows = self._new_windows(), self._new_windows()
        self._rebuild_tree_arena()
        self._rebuild_brick()
        self.memo = self._new_memo()
        self._rebuild_walk()

    @property
    def memory(self) -> int:
        return sum(
            a.nbytes
            for a in (
                *self.arena,
                *self.nodes,
                *self.brick,
                *self.windows,
                *self.own_windows,
                *self.memo,
                *self.ranks,
                *self.walk,
            )
        )

    def _rebuild_tree_arena(self) -> None:
        """A fresh arena with the root frame in it; a larger one if the root alone does not fit."""
        p = self.problem
        trees, words = len(p.roots), p.cuts.mask.shape[1]
        frames = int(p.axes.n_cells.sum()) + 8  # every frame narrows some axis by at least one cell
        self.nodes = Nodes(
            n_trees=np.zeros(frames, np.int32),
            trees=np.zeros((frames, trees), np.uint32),
            constant=np.zeros(frames, np.int64),
            rest=np.zeros(frames, np.int64),
            domain=np.zeros((frames, p.n_axes, words), np.uint64),
            axis_mass=np.ones((frames, p.n_axes)),
            n_added=np.zeros(frames, np.int32),
            cut=np.zeros(frames, np.int64),
            side=np.zeros(frames, np.int64),
        )
        while True:
            self.arena = new_arena(len(p.cuts.axis), p.n_axes, self.capacity)
            ids = np.zeros(len(p.cut), np.uint32)
            if build_root(
                self.arena,
                p.cuts,
                self.nodes,
                p.roots,
                p.cut,
                p.yes,
                p.no,
                p.value,
                p.residue,
                p.base,
                p.base_residue,
                ids,
            ):
                return
            self.capacity *= 2

    def _rebuild_brick(self) -> None:
        p = self.problem
        n_axes, n_cuts = p.n_axes, len(p.cuts.axis)
        longest = int(p.axes.n_cells.max(initial=1))
        n_levels = n_axes + 3
        combinations = 1
        for a in np.flatnonzero(p.sensitive):
            combinations *= int(p.axes.n_cells[a])
        bitmaps = max(1, min(BITMAPS, BITMAP_WORDS // self.rows))
        simple = self.levels.simple
        sides = 1 if simple else bitmaps
        depth = 2 * max(p.grid.ensemble.depth(), 1) + 4
        self.brick = Brick(
            active=np.zeros((n_cuts + 63) // 64, np.uint64),
            group=np.zeros((n_axes, longest), np.int32),
            group_n=np.zeros(n_axes, np.int32),
            group_cell=np.zeros((n_axes, longest), np.int32),
            group_mass=np.zeros((n_axes, longest)),
            group_at=np.zeros(n_cuts, np.int32),
            row_axis=np.zeros(n_axes, np.int32),
            row_of=np.zeros(n_axes, np.int32),
            info=np.zeros(11, np.int64),
            held=np.zeros((n_levels, len(p.roots)), np.uint32),
            shown=np.zeros(len(p.roots), np.uint32),
            stand=np.zeros(n_levels, np.int64),
            s_mass=np.zeros(combinations),
            s_single=np.zeros(combinations, np.bool_),
            slot_mask=np.zeros((n_levels, MAX_SLOTS), np.int64),
            slot_at=np.zeros((n_levels, MAX_SLOTS), np.int64),
            slot_size=np.zeros((n_levels, MAX_SLOTS), np.int64),
            n_slots=np.zeros(n_levels, np.int64),
            owned=np.zeros((n_levels, MAX_SLOTS), np.bool_),
            cells=np.empty(self.cells * (n_levels + 1), np.int64),
            rests=np.empty(self.cells * (n_levels + 1) if p.fuzz else 1, np.int64),
            level_at=np.arange(n_levels + 1, dtype=np.int64) * self.cells,
            sums=np.zeros(2, np.int64),
            first=np.zeros((depth, n_axes), np.int32),
            last=np.zeros((depth, n_axes), np.int32),
            own=np.zeros(n_axes, np.int32),
            own_stride=np.zeros(n_axes, np.int64),
            free=np.zeros(n_axes, np.int32),
            free_stride=np.zeros(n_axes, np.int64),
            place=np.zeros(n_axes + 2, np.int64),
            now=np.zeros(n_axes, np.int32),
            todo=np.zeros(depth, np.uint32),
            todo_weight=np.zeros(depth),
            line=np.zeros(64, np.int64),
            line_rest=np.zeros(64, np.int64),
            neg=np.zeros((bitmaps, self.rows), np.uint64),
            pos=np.zeros((sides, self.rows), np.uint64),
            sure_pos=np.zeros((sides, 1 if simple else self.rows), np.uint64),
            sure_neg=np.zeros((sides, 1 if simple else self.rows), np.uint64),
            who_low=np.zeros(self.rows if simple and self.levels.points else 1, np.uint64),
            who_high=np.zeros(self.rows if simple and self.levels.points else 1, np.uint64),
            all_bits=np.zeros(self.rows, np.uint64),
            twice=np.zeros(self.rows, np.uint64),
            other=np.zeros(self.rows, np.uint64),
            bad=np.zeros(self.rows, np.uint64),
            offset=np.zeros(OFFSETS, np.int64),
            offset_rest=np.zeros(OFFSETS, np.int64),
            weight=np.zeros(OFFSETS),
            score=np.zeros(n_cuts),
            own_masses=np.zeros(2 * N_KINDS),
            halt=self.halted,
            bit=(np.uint64(1) << np.arange(64, dtype=np.uint64)).view(np.int64),
        )

    def _new_memo(self) -> Memo:
        """Buffers of the erosion, and its memory of 30 MB. It need not be zero: a key counts only where its tag does.

        Until the second call it comes in small pages. numpy asks for huge ones, which make long runs faster by a tenth, but
        getting them can take 30 ms, and small problems are solved in one.
        """
        n_levels = self.problem.n_axes + 3
        return Memo(
            block=np.zeros(self.block, np.uint64),
            block_at=np.zeros(n_levels, np.int64),
            table=np.zeros(self.table, np.uint64),
            table_at=np.zeros(n_levels, np.int64),
            block_key=np.empty(MEMO_WORDS, np.uint64) if self.calls > 1 else _in_small_pages(MEMO_WORDS),
            block_tag=np.zeros(MEMO_SLOTS, np.int64),
            block_value=np.zeros(MEMO_SLOTS),
            epoch=np.ones(1, np.int64),
            step=np.zeros(n_levels, np.int64),
            total=np.zeros(n_levels),
            slot=np.zeros(n_levels, np.int64),
            halt=self.halted,
            opened=np.zeros(n_levels, np.int64),
            own_at=np.zeros(n_levels, np.int64),
        )

    def _new_windows(self) -> Windows:
        """Room for the windows of any brick."""
        n_levels = self.problem.n_axes + 3
        longest = int(self.problem.axes.n_cells.max(initial=1))
        most_windows = int(self.frame.n_refined.max(initial=1)) + 1
        return Windows(
            n_rows=np.zeros(1, np.int64),
            n_base=np.zeros(n_levels, np.int64),
            size=np.zeros(n_levels, np.int64),
            widest=np.zeros(n_levels, np.int64),
            n_window=np.zeros(n_levels, np.int64),
            low=np.zeros((n_levels, most_windows), np.int64),
            high=np.zeros((n_levels, most_windows), np.int64),
            base=np.zeros((n_levels, most_windows), np.int64),
            mass=np.zeros((n_levels, most_windows)),
            one=np.zeros((n_levels, most_windows), np.int64),
            two=np.zeros((n_levels, most_windows), np.int64),
            reach=np.zeros(most_windows, np.uint64),
            own_bit=np.zeros(most_windows, np.uint64),
            base_mass=np.zeros((n_levels, max(longest, 64))),
            core_low=np.zeros((n_levels, max(longest, 64)), np.int64),
            core_high=np.zeros((n_levels, max(longest, 64)), np.int64),
            core=np.zeros(64, np.uint64),
            full=np.zeros(1, np.uint64),
        )

    def _rebuild_walk(self) -> None:
        p = self.problem
        trees, n_axes, words = len(p.roots), p.n_axes, p.cuts.mask.shape[1]
        cells, windows, sparse, rows, dense = (-(-size // LANE) * LANE for size in self.sizes)
        most_windows = int(self.frame.n_refined.max(initial=1)) + 1 + LANE
        choices = int(p.axes.n_cells.sum()) + 8  # every choice narrows some axis by at least one cell
        nodes = 4 * len(p.cut) + 64
        sides = 1 if self.levels.simple else cells
        window_low, window_high = np.zeros(2 * windows, np.uint8), np.zeros(2 * windows, np.uint8)
        sparse_low, sparse_high = np.zeros(sparse, np.uint8), np.zeros(sparse, np.uint8)
        own_low, own_high = np.zeros(windows, np.uint8), np.zeros(windows, np.uint8)
        self.ranks = Ranks(
            neg=np.zeros(cells, np.uint8),
            pos=np.zeros(sides, np.uint8),
            sure_neg=np.zeros(sides, np.uint8),
            sure_pos=np.zeros(sides, np.uint8),
            low=np.zeros(cells, np.uint8),
            high=np.zeros(cells, np.uint8),
            second_low=np.zeros(cells, np.uint8),
            second_high=np.zeros(cells, np.uint8),
            all_low=np.zeros(cells, np.uint8),
            all_high=np.zeros(cells, np.uint8),
            window_low=window_low,
            window_low_words=window_low.view(np.uint64),
            window_high=window_high,
            window_high_words=window_high.view(np.uint64),
            sparse_low=sparse_low,
            sparse_low_words=sparse_low.view(np.uint64),
            sparse_high=sparse_high,
            sparse_high_words=sparse_high.view(np.uint64),
            own_low=own_low,
            own_low_words=own_low.view(np.uint64),
            own_high=own_high,
            own_high_words=own_high.view(np.uint64),
            row_weight=np.zeros(rows),
            row_base=np.zeros(rows, np.int32),
            last_weight=np.zeros(most_windows),
            last_base=np.zeros(most_windows, np.int64),
            one=np.zeros((n_axes + 3, most_windows), np.uint64),
            two=np.zeros((n_axes + 3, most_windows), np.uint64),
            cumulated=np.zeros(MOST_RANKS + 1),
            size=np.zeros(4, np.int64),
            masses=np.zeros(3),
        )
        self.walk = Walk(
            cut=np.zeros(nodes, np.int32),
            yes=np.zeros(nodes, np.int32),
            no=np.zeros(nodes, np.int32),
            value=np.zeros(nodes, np.int64),
            root=np.zeros(trees + 1, np.int32),
            least=np.zeros(trees + 1, np.int64),
            most=np.zeros(trees + 1, np.int64),
            shape=np.zeros(7, np.int64),
            tree=np.zeros(nodes, np.uint32),
            table_at=np.zeros(nodes, np.int64),
            table_wide=np.zeros(nodes, np.bool_),
            table_least=np.zeros(nodes, np.int64),
            table_most=np.zeros(nodes, np.int64),
            todo=np.zeros(nodes, np.uint32),
            todo_node=np.zeros(nodes, np.int32),
            dense=np.zeros(
                dense + LANE, np.int64
            ),  # signs are read eight cells at a time, the last ones beyond the end
            sum_at=np.zeros(trees + 1, np.int64),
            constant=np.zeros(trees + 1, np.int64),
            smallest=np.zeros(trees + 1, np.int64),
            largest=np.zeros(trees + 1, np.int64),
            domain=np.zeros((n_axes, words), np.uint64),
            axis_mass=np.zeros(n_axes),
            at_tree=np.zeros(choices, np.int32),
            at_node=np.zeros(choices, np.int32),
            side=np.zeros(choices, np.int8),
            kept_domain=np.zeros((choices, words), np.uint64),
            kept_mass=np.zeros(choices),
            offset=np.zeros(OFFSETS, np.int64),
            rest=np.zeros(OFFSETS, np.int64),
            weight=np.zeros(OFFSETS),
        )

    def work(self, boxes: BoxArray, masses: FloatArray, budget: int, depth_first: bool) -> Reply:
        self.calls += 1
        if self.calls == 2:
            self.memo = self._new_memo()
        decided = np.zeros(2 * N_KINDS)
        settled: list[BoxArray] = []
        settled_masses: list[FloatArray] = []
        nodes = tiles = spent = begun = 0
        left: list[tuple[BoxArray, float]] = list(zip(boxes, masses.tolist()))[::-1]
        while left and not self.halted[0] and (begun < len(boxes) or spent < budget):
            box, _ = left.pop()
            begun += 1
            n_open, visited, measured, _, n_settled, work = self._search(box, max(budget - spent, 1), decided)
            nodes += visited
            spent += max(work // NODE_WORK, 1)
            tiles += measured
            settled.append(self.found.settled[:n_settled].copy())
            settled_masses.append(self.found.settled_mass[:n_settled].copy())
            parts = list(zip(self.found.open[:n_open].copy(), self.found.open_mass[:n_open].tolist()))
            left.extend(reversed(parts))
        left.reverse()
        fair, unfair, low, _ = (decided[:N_KINDS] + decided[N_KINDS:]).tolist()
        shape = (len(left), *self.found.open.shape[1:])
        closed = np.concatenate([self.found.settled[:0], *settled])
        closed_masses = np.concatenate([self.found.settled_mass[:0], *settled_masses])
        return Reply(
            fair, unfair, low, 0.0, np.array([box for box, _ in left], np.uint64).reshape(shape),
            np.array([mass for _, mass in left]), np.ones(len(left)), nodes, tiles,
            closed=Closed(closed, closed_masses, np.full(len(closed), COUNTED, np.int8)),
        )  # fmt: skip

    def halt(self) -> None:
        """Leave the brick under work, however large it is: its box stays open."""
        self.halted[0] = 1

    def _search(self, box: BoxArray, budget: int, decided: FloatArray) -> list[int]:
        """The counts of one call of the kernel; where the first open part did not fit, there is more room now."""
        counts = np.zeros(6, np.int64)
        status = search(
            self.arena, self.problem.cuts, self.frame, self.levels, self.nodes, self.brick, self.windows, self.own_windows,
            self.memo, self.ranks, self.walk, box, budget, self.found, decided, counts, self.need,
        )  # fmt: skip
        if status == TOO_LARGE:
            rows, block, table, *sizes = (int(n) for n in self.need)
            if 8 * (8 * rows + block + table) > self.memory_limit:
                raise EngineError(
                    f"engine 'box': the attributes that epsilon moves span {rows} rows of cells, more than fit into the "
                    "memory limit; give more memory, or a tolerance to fewer attributes"
                )
            if rows > self.rows:
                self.rows = rows
                self._rebuild_brick()
            if block > self.block or table > self.table:
                self.block, self.table = max(self.block, block), max(self.table, table)
                self.memo = self._new_memo()
            if any(new > old for old, new in zip(self.sizes, sizes)):
                self.sizes = [max(old, new) for old, new in zip(self.sizes, sizes)]
                self._rebuild_walk()
        elif status == OUT_OF_ROOM:
            self.capacity *= 2
            self.cells *= 2
            if 8 * self.cells * (self.problem.n_axes + 4) > self.memory_limit:
                raise EngineError(
                    "engine 'box': the tables of a brick do not fit into the memory limit; give more memory"
                )
            self._rebuild_tree_arena()
            self._rebuild_brick()
        return counts.tolist()


def compile_kernels() -> None:
    """Call the kernels once on a problem that takes no time."""
    small = compile_problem(build_grid(loan_ensemble(), loan_space(), Robustness(Fraction(1, 10))))
    worker = WindowWorker(small, mixed_limit=10, cell_limit=1024, arena=1, memory=1 << 30)
    worker.work(root_boxes(small), np.ones(1), 1, False)


def rounding_bound(problem: Problem) -> Fraction:
    """How far each sum of decided masses can be from the exact sum (docs/engine.md, 'Rounding').

    Every erosion is a sum of products of window masses: per axis one rounding for each refined cell that a window's mass
    adds up, one for each addition over windows, one product; the same for sensitive combinations and the boxes' own masses.
    """
    refined = sum(2 * len(problem.grid.axes[a].refined) for a in problem.axis_ids)
    cells = int(problem.axes.n_cells.sum())
    # twice: the unfair mass is what the other two leave of a box, so it carries the errors of both
    # and once for every offset of a shape: ranks look their weights up in a prefix sum
    # and twice again where x's own cell matters: who is not sure is taken from all whose window is clear
    simple = problem.grid.thresholds.all_confident and not _points_matter(problem)
    roundings = (2 if simple else 4) * (refined + cells + 16 * problem.n_axes + 2 * MOST_RANKS + 128)
    return Fraction(101, 100) * roundings / 2**53 + Fraction(1, 2**1000)


def _points_matter(problem: Problem) -> bool:
    """Whether x' may be forced to leave x's own sensitive combination: no idle sensitive attribute offers another value."""
    grid = problem.grid
    used = set(problem.axis_ids)
    idle = [axis for i, axis in enumerate(grid.axes) if axis.sensitive and i not in used]
    return bool(grid.property.sensitive) and all(axis.n_cells == 1 and bool(axis.single[0]) for axis in idle)


def _frame(problem: Problem) -> Frame:
    axes = [problem.grid.axes[a] for a in problem.axis_ids]
    longest = int(problem.axes.n_cells.max(initial=1))
    most = max((len(axis.refined) for axis in axes), default=1)
    role = np.array([ROLE_S if a.sensitive else ROLE_E if a.moves else ROLE_O for a in axes], np.int8)
    o_axes = np.zeros((problem.n_axes + 63) // 64 or 1, np.uint64)
    s_axes = np.zeros_like(o_axes)
    for i in np.flatnonzero(role == ROLE_O).tolist():
        o_axes[i >> 6] |= np.uint64(1 << (i & 63))
    for i in np.flatnonzero(role == ROLE_S).tolist():
        s_axes[i >> 6] |= np.uint64(1 << (i & 63))
    return Frame(
        role=role,
        chain=problem.axes.chain,
        n_cells=problem.axes.n_cells,
        mass=problem.axes.mass,
        single=_padded([a.single for a in axes], longest, np.bool_),
        n_refined=np.array([len(a.refined) for a in axes], np.int32),
        base=_padded([a.base for a in axes], most, np.int32),
        near_lo=_padded([a.near_lo for a in axes], most, np.int32),
        near_hi=_padded([a.near_hi for a in axes], most, np.int32),
        refined_mass=_padded([[float(m) for m in a.refined_masses] for a in axes], most, np.float64),
        o_axes=o_axes,
        s_axes=s_axes,
    )


def _in_small_pages(words: int) -> npt.NDArray[np.uint64]:
    return np.frombuffer(mmap(-1, 8 * words), np.uint64)


def _padded(rows: Sequence[Any], width: int, dtype: type) -> npt.NDArray[Any]:
    out: npt.NDArray[Any] = np.zeros((len(rows), width), dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
