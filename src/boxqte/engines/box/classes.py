"""Boxes of models with three or more classes: branch and bound with bounds on the differences of margins.

A box is a range of refined cells on every axis that some tree cuts. What decides one, in order:

- *fair*: one class beats every rival on all that the box's inputs can reach;
- *low*: no class's top probability can exceed kappa;
- *unfair*: the box has one class, is confident, and an x' of another class is within reach of all of it;
- a single cell: the point decider, exactly.

Everything else is split. Bounds are sums over trees of the smallest difference on the leaves that a box reaches.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte import _core
from boxqte.engines.box.rules import MOST_BOXES, cut_along_rules, rules_of, too_many_boxes
from boxqte.engines.kinds import FAIR, LOW, UNFAIR
from boxqte.engines.point.classes import ClassDecider
from boxqte.engines.point.trees import Int32Array, Int64Array, padded
from boxqte.engines.protocol import BOUNDS, BoxArray, Closed, FloatArray, Reply
from boxqte.questions.axes import Cell
from boxqte.questions.class_grid import FLOAT_MARGIN, ClassGrid, rival_target

Ranges = npt.NDArray[np.int64]  # box x axis x (first refined cell, last refined cell)
BoolArray = npt.NDArray[np.bool_]
OPEN = 9
FRONTIER = 512


@dataclass(frozen=True, eq=False)
class ClassProblem:
    """What the boxes of this search are made of, for those who look at them: ranges of refined cells."""

    grid: ClassGrid
    axis_ids: tuple[int, ...]
    """box axis -> grid axis"""

    def cells_of(self, axis: int) -> tuple[Cell, ...]:
        """What the bits of a box mean on one of its axes."""
        return self.grid.axes[self.axis_ids[axis]].refined


class Judged(NamedTuple):
    """A verdict a box (OPEN: split it there), and the cut."""

    verdict: npt.NDArray[np.int8]
    cut: Int64Array


class ClassWorker:
    """driver.Worker for a ClassGrid."""

    def __init__(self, grid: ClassGrid, *, notes: bool = False):
        self.grid = grid
        self.notes = notes
        self.decider = ClassDecider(grid)
        p = self.decider.problem
        self.axes = [grid.axes[a] for a in p.axis_ids]
        self.axis_ids = np.array(p.axis_ids, np.int64)
        most = max((len(axis.refined) for axis in self.axes), default=1)
        self.masses = padded([[float(m) for m in axis.refined_masses] for axis in self.axes], most, np.float64)
        self.base = padded([axis.base for axis in self.axes], most, np.int32)
        self.near_lo = padded([axis.near_lo for axis in self.axes], most, np.int32)
        self.near_hi = padded([axis.near_hi for axis in self.axes], most, np.int32)
        self.targets = np.array([[rival_target(c, r) for r in range(grid.n_classes)] for c in range(grid.n_classes)])
        np.fill_diagonal(self.targets, np.iinfo(np.int64).min // 2)  # a class is no rival of itself
        idle = [a for i, a in enumerate(grid.axes) if a.sensitive and i not in p.axis_ids]
        # An idle sensitive attribute with a second value offers every x an x' that differs.
        self.free = not any(a.sensitive for a in grid.axes) or any(a.n_cells > 1 or not a.single[0] for a in idle)

    @property
    def memory(self) -> int:
        return int(self.decider.core.bytes) + (64 << 20)

    def halt(self) -> None:
        """Nothing to do: every call is short."""

    def work(self, boxes: BoxArray, masses: FloatArray, budget: int, depth_first: bool) -> Reply:
        ranges = decode(boxes)
        sums: dict[int, list[float]] = {FAIR: [], UNFAIR: [], LOW: []}
        nodes = 0
        closed: list[tuple[Ranges, FloatArray]] = []
        while len(ranges) and nodes < budget:
            now, later = ranges[:FRONTIER], ranges[FRONTIER:]
            nodes += len(now)
            judged = self.judge(now)
            weights = self.mass(now)
            for kind, parts in sums.items():
                parts += weights[judged.verdict == kind].tolist()
            still = judged.verdict == OPEN
            if self.notes:
                parts_masses = np.stack([np.where(judged.verdict == kind, weights, 0.0) for kind in sums], axis=1)
                closed.append((now[~still], parts_masses[~still]))
            ranges = np.concatenate([self.split(now[still], judged.cut[still]), later])
            if not depth_first and len(ranges) > 4 * FRONTIER:
                break
        fair, unfair, low = (math.fsum(sums[kind]) for kind in (FAIR, UNFAIR, LOW))
        left = self.mass(ranges)
        return Reply(
            fair, unfair, low, 0.0, encode(ranges, boxes.shape[2]), left, np.ones(len(left)), nodes,
            closed=self._noted(closed, boxes.shape[2]),
        )  # fmt: skip

    def _noted(self, closed: list[tuple[Ranges, FloatArray]], words: int) -> Closed | None:
        if not closed:
            return None
        boxes = encode(np.concatenate([ranges for ranges, _ in closed]), words)
        return Closed(boxes, np.concatenate([masses for _, masses in closed]), np.full(len(boxes), BOUNDS, np.int8))

    def judge(self, ranges: Ranges) -> Judged:
        """What the bounds, a point of each box, and for single cells the decider say."""
        p, grid = self.decider.problem, self.grid
        slack = 2 * p.fuzz
        axes, first, last = np.arange(len(self.axes)), ranges[:, :, 0], ranges[:, :, 1]
        least, most, lead, cut = self.decider.core.bound_classes(self.base[axes, first], self.base[axes, last])
        # All that some input of the box reaches: `near` grows with the cell, so the ends say it.
        reach = self.decider.core.bound_classes(self.near_lo[axes, first], self.near_hi[axes, last])[2]
        verdict = np.full(len(ranges), OPEN, np.int8)
        beats: BoolArray = np.all(lead > self.targets + slack, axis=2)
        stays: BoolArray = np.all(reach > self.targets + slack, axis=2)
        one_class: BoolArray = np.any(beats, axis=1)
        sure, hopeless = self._confidence(least, most, lead, beats.argmax(axis=1), one_class)
        verdict[np.any(stays, axis=1) & sure] = FAIR
        verdict[hopeless] = LOW
        single = (first == last).all(axis=1)
        asked = np.flatnonzero((verdict == OPEN) & (single | (one_class & sure)))
        if len(asked):
            points = np.zeros((len(asked), len(grid.axes)), np.int64)
            points[:, self.axis_ids] = ranges[asked].sum(axis=2) // 2
            found = self.decider.decide(points)
            settled = single[asked]
            verdict[asked[settled]] = found.verdict[settled]
            unfair = (found.verdict == UNFAIR) & ~settled
            witness = found.witness[:, self.axis_ids]
            shared = unfair & self._within_reach_of_all(ranges[asked], witness)
            verdict[asked[shared]] = UNFAIR
        return Judged(verdict, cut)

    def _confidence(
        self, least: Int64Array, most: Int64Array, lead: Int64Array, top: npt.NDArray[np.intp], one_class: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Boxes that are confident as a whole (given their one class), and boxes that are nowhere confident."""
        grid, n = self.grid, len(least)
        if not grid.low_possible:
            return np.ones(n, bool), np.zeros(n, bool)
        if self.decider.blurred:
            return np.zeros(n, bool), np.zeros(n, bool)
        kappa = float(grid.property.kappa)
        step = self.decider.step
        if grid.ensemble.link == "mean":
            whole = float(grid.unit / grid.ensemble.factor) / step
            sure = least[np.arange(n), top] / whole > kappa * (1 + FLOAT_MARGIN)
            return sure & one_class, most.max(axis=1) / whole < kappa * (1 - FLOAT_MARGIN)
        scaled = np.clip(lead * (step * float(grid.ensemble.factor / grid.unit)), -700.0, 700.0)
        ones = np.exp(-scaled[np.arange(n), top]).sum(axis=1)  # its own difference is 0, which adds the 1
        sure = 1 / ones > kappa * (1 + FLOAT_MARGIN)
        highest = 1 / np.exp(scaled.transpose(0, 2, 1)).sum(axis=2)  # p_c <= 1 / sum of exp(least F_r - F_c)
        return sure & one_class, highest.max(axis=1) < kappa * (1 - FLOAT_MARGIN)

    def _within_reach_of_all(self, ranges: Ranges, witness: Int32Array) -> BoolArray:
        """Whether every input of the box may take the witness for its x'."""
        near = np.ones(len(ranges), bool)
        differs = np.full(len(ranges), self.free)
        for i, axis in enumerate(self.axes):
            first, last = ranges[:, i, 0], ranges[:, i, 1]
            near &= (axis.near_lo[last] <= witness[:, i]) & (witness[:, i] <= axis.near_hi[first])
            if axis.sensitive:
                differs |= (witness[:, i] < axis.base[first]) | (witness[:, i] > axis.base[last])
                several = np.concatenate([[0], np.cumsum(~axis.single)])
                cells = axis.base[last] - axis.base[first] + 1
                differs |= several[axis.base[last] + 1] - several[axis.base[first]] == cells
        both: BoolArray = near & differs
        return both

    def split(self, ranges: Ranges, cut: Int64Array) -> Ranges:
        """Both sides of every box: at its cut, or in the middle of the axis with the most cells."""
        if not len(ranges):
            return ranges
        sides: Ranges = self.decider.core.split_boxes(np.ascontiguousarray(ranges), np.ascontiguousarray(cut))
        return sides

    def mass(self, ranges: Ranges) -> FloatArray:
        """The mass of every box: sums of cells, then a product, as `class_rounding_bound` counts."""
        total: FloatArray = _core.box_masses(np.ascontiguousarray(ranges), self.masses)
        return total


def root_ranges(grid: ClassGrid, axis_ids: tuple[int, ...]) -> Ranges:
    """The whole space as one box of refined cells; with rules, as boxes in which nothing is forbidden."""
    axes = [grid.axes[a] for a in axis_ids]
    whole = [(1 << axis.n_cells) - 1 for axis in axes]
    boxes: list[tuple[tuple[int, int], ...]] = []
    for masks in cut_along_rules(whole, rules_of(grid, {a: i for i, a in enumerate(axis_ids)}))[0]:
        runs = [_runs(mask) for mask in masks]
        if len(boxes) + math.prod(map(len, runs)) > MOST_BOXES:
            raise too_many_boxes()
        boxes += itertools.product(*runs)
    bounds = np.array(boxes, np.int64).reshape(len(boxes), len(axes), 2)
    for i, axis in enumerate(axes):  # the refined cells of neighbouring base cells are neighbours
        first = np.searchsorted(axis.base, np.arange(axis.n_cells + 1))
        bounds[:, i] = np.stack([first[bounds[:, i, 0]], first[bounds[:, i, 1] + 1] - 1], axis=1)
    return bounds


def _runs(mask: int) -> list[tuple[int, int]]:
    """The first and the last bit of every run of bits."""
    found = []
    at = 0
    while mask >> at:
        at += (mask >> at & -(mask >> at)).bit_length() - 1
        length = (~(mask >> at) & (mask >> at) + 1).bit_length() - 1
        found.append((at, at + length - 1))
        at += length
    return found


def words_for(grid: ClassGrid, axis_ids: tuple[int, ...]) -> int:
    """How many words a set of refined cells takes."""
    return max(1, -(-max((len(grid.axes[a].refined) for a in axis_ids), default=1) // 64))


def encode(ranges: Ranges, words: int) -> BoxArray:
    """Ranges as bit sets, the driver's form of a box."""
    cells = np.arange(64 * words)
    bits = (cells >= ranges[:, :, :1]) & (cells <= ranges[:, :, 1:])
    packed = np.packbits(bits, axis=2, bitorder="little")
    return np.ascontiguousarray(packed).view(np.uint64).reshape(len(ranges), ranges.shape[1], words)


def decode(boxes: BoxArray) -> Ranges:
    """Bit sets, each without gaps, as ranges."""
    n, axes, words = boxes.shape
    bits = np.unpackbits(
        np.ascontiguousarray(boxes).view(np.uint8).reshape(n, axes, 8 * words), axis=2, bitorder="little"
    )
    first = bits.argmax(axis=2)
    return np.stack([first, first + bits.sum(axis=2, dtype=np.int64) - 1], axis=2).astype(np.int64)


def class_rounding_bound(problem: ClassProblem) -> Fraction:
    """As exchange_worker.rounding_bound: one rounding a cell mass, two a (Neumaier's) sum, one a product, a few single ones."""
    cells = sum(len(problem.cells_of(i)) + 1 for i in range(len(problem.axis_ids)))
    return Fraction(101, 100) * (cells + len(problem.axis_ids) + 64) / 2**53 + Fraction(1, 2**1000)
