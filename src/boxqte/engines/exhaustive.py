"""The exhaustive engine: every cell of the grid, in exact rationals. Small problems only; the yardstick of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from boxqte.engines.protocol import ALONE, Capability, Companions, Decided, Limits, Outcome, Status, Watch
from boxqte.errors import EngineError
from boxqte.questions.axes import Axis
from boxqte.questions.class_grid import ClassGrid, output_values
from boxqte.questions.grid import AnyGrid, Cut, Forbidden, Grid, Partners, binary

G = TypeVar("G", bound=AnyGrid)
BoolArray = npt.NDArray[np.bool_]

FAR = 1 << 4000  # beyond every margin
MAX_AXES = 32  # numpy's own limit on the axes of an array, before numpy 2


@dataclass(frozen=True)
class ExhaustiveOptions:
    """Options of the exhaustive engine."""

    max_cells: int = 20_000_000
    """The most cells, base or refined, that it agrees to enumerate."""


class Exhaustive:
    """Evaluates F on all base cells and the property on all refined cells."""

    name = "exhaustive"
    Options = ExhaustiveOptions
    capabilities = frozenset({Capability.MANY_CLASSES, Capability.PARTNERS, Capability.RULES})

    def __init__(self, options: ExhaustiveOptions | None = None):
        self.options = options or ExhaustiveOptions()

    def run(self, grid: AnyGrid, limits: Limits, watch: Watch, companions: Companions = ALONE) -> Outcome:
        cells = max(grid.n_cells(), grid.n_refined())
        if cells > self.options.max_cells:
            raise EngineError(
                f"engine 'exhaustive': the grid has {_rounded(cells)} cells, more than max_cells = "
                f"{self.options.max_cells}; use another engine"
            )
        grid = without_idle_axes(grid)
        if len(grid.axes) > MAX_AXES:
            raise EngineError(
                f"engine 'exhaustive': {len(grid.axes)} attributes take part, at most {MAX_AXES} fit; use another engine"
            )
        try:
            if isinstance(grid, ClassGrid):
                confident, counterexample = class_verdicts(grid, watch)
                near_tie = None  # not computed for many classes
            else:
                small = binary(grid)
                margins = dense_margins(small, watch)
                confident, counterexample = verdicts(small, margins)
                near_tie = _ambiguous(small, margins)
            low, unfair = _mass(grid, ~confident), _mass(grid, counterexample)
            ambiguous = None if near_tie is None else float(_mass(grid, near_tie))
        except KeyboardInterrupt:
            return Outcome(Decided(), Status.INTERRUPTED)
        except TimeoutError:
            return Outcome(Decided(), Status.TIME)
        decided = Decided(fair=1 - low - unfair, unfair=unfair, low=low)
        watch.report(decided, nodes=cells)
        return Outcome(decided, Status.CONVERGED, ambiguous, {"cells": cells})


def without_idle_axes(grid: G) -> G:
    """The same question without the attributes that it cannot depend on: one cell, and not sensitive.

    A sensitive attribute stays: whether its one cell has a second point decides whether any x' differs from x.
    """
    kept = [at for at, axis in enumerate(grid.axes) if axis.sensitive or len(axis.refined) > 1] or [0]
    cuts = tuple(Cut(kept.index(cut.axis), cut.mask) for cut in grid.cuts)
    # An axis with one cell is in no mask: a rule that mentions it forbids nothing there, or whatever it is.
    forbidden = tuple(Forbidden(tuple((kept.index(a), mask) for a, mask in one.masks)) for one in grid.forbidden)
    smaller = replace(grid, axes=tuple(grid.axes[at] for at in kept), cuts=cuts, forbidden=forbidden)
    if isinstance(smaller, Grid) and smaller.partners is not None and smaller.partners.axis >= 0:
        return replace(smaller, partners=replace(smaller.partners, axis=kept.index(smaller.partners.axis)))
    return smaller


def dense_margins(grid: Grid, watch: Watch | None = None) -> npt.NDArray[Any]:
    """F on every base cell (one array axis per attribute), in exact integers; TimeoutError when the watch runs out."""
    limits = (grid.thresholds.conf_pos, grid.thresholds.conf_neg, grid.rounding)
    return _dense_sums(grid, grid.values, grid.base, max(map(abs, limits)), watch)


def _dense_sums(
    grid: AnyGrid, values: Sequence[int], base: int, largest_limit: int, watch: Watch | None
) -> npt.NDArray[Any]:
    """Base and leaf values summed on every base cell; in Python's integers where 64 bits could be too few."""
    fits = abs(base) + sum(map(abs, values)) + largest_limit < 2**62
    F: npt.NDArray[Any] = np.full([a.n_cells for a in grid.axes], base, dtype=np.int64 if fits else object)
    masks = [np.array([cut.mask >> i & 1 for i in range(grid.axes[cut.axis].n_cells)], bool) for cut in grid.cuts]
    for root in grid.roots.tolist():
        if watch is not None and watch.seconds_left <= 0:
            raise TimeoutError
        stack = [(root, [np.ones(a.n_cells, bool) for a in grid.axes])]
        while stack:
            node, inside = stack.pop()
            cut = int(grid.cut[node])
            if cut < 0:
                F[np.ix_(*inside)] += values[grid.leaf[node]]
                continue
            axis = grid.cuts[cut].axis
            for child, side in ((grid.yes[node], masks[cut]), (grid.no[node], ~masks[cut])):
                rest = list(inside)
                rest[axis] = inside[axis] & side
                stack.append((int(child), rest))
    return F


def allowed_cells(grid: AnyGrid) -> BoolArray:
    """The base cells that no rule forbids; one value for all of them where there are no rules."""
    if not grid.forbidden:
        return np.ones([1] * len(grid.axes), bool)
    allowed = np.ones([axis.n_cells for axis in grid.axes], bool)
    for one in grid.forbidden:
        masks = dict(one.masks)
        held = [[c for c in range(axis.n_cells) if masks.get(a, -1) >> c & 1] for a, axis in enumerate(grid.axes)]
        allowed[np.ix_(*held)] = False
    return allowed


def verdicts(grid: Grid, F: npt.NDArray[Any]) -> tuple[BoolArray, BoolArray]:
    """Confidence and counterexample on every refined cell, straight from the definition."""
    own = F[np.ix_(*(a.base for a in grid.axes))]
    t, allowed = grid.thresholds, allowed_cells(grid)
    sure_pos, sure_neg = (_of_x(grid, allowed) & side.astype(bool) for side in (own >= t.conf_pos, own <= t.conf_neg))
    if grid.partners is not None and grid.partners.scores:
        return sure_pos | sure_neg, (sure_pos | sure_neg) & _apart(grid, grid.partners, F, own)
    sees_neg = _reaches(grid, allowed & (t.neg >= F).astype(bool), "low")
    sees_pos = _reaches(grid, allowed & (t.pos <= F).astype(bool), "high")
    return sure_pos | sure_neg, _counterexamples(grid, sure_pos & sees_neg, sure_neg & sees_pos)


def _of_x(grid: AnyGrid, bits: BoolArray) -> BoolArray:
    """Bits of base cells as bits of refined cells; one bit for all stays that."""
    return bits if bits.size == 1 else bits[np.ix_(*(axis.base for axis in grid.axes))]


def _counterexamples(grid: Grid, positive: BoolArray, negative: BoolArray) -> BoolArray:
    """Those of class 1 that see class 0 and those of class 0 that see class 1, as far as they count."""
    counted = grid.thresholds.counted
    return positive if counted > 0 else negative if counted < 0 else positive | negative


def class_verdicts(grid: ClassGrid, watch: Watch | None = None) -> tuple[BoolArray, BoolArray]:
    """The same for three classes or more: the first largest margin, its probability, another class within reach."""
    outputs = [_dense_sums(grid, output_values(grid, k), grid.bases[k], 0, watch) for k in range(grid.n_classes)]
    F = np.stack([margins.astype(object) for margins in outputs], axis=-1)
    top = F.argmax(axis=-1)
    flat = F.reshape(-1, grid.n_classes)
    confident = np.array([grid.confident(row.tolist()) for row in flat]).reshape(top.shape)
    near = np.ix_(*(a.base for a in grid.axes))
    allowed = allowed_cells(grid)
    own, sure = top[near], confident[near] & _of_x(grid, allowed)
    unfair = np.zeros(own.shape, bool)
    for k in range(grid.n_classes):
        unfair |= (own == k) & sure & _reaches(grid, (top != k) & allowed, "low")
    return sure, unfair


def _apart(grid: Grid, partners: Partners, F: npt.NDArray[Any], own: npt.NDArray[Any], off: int = 0) -> BoolArray:
    """Where some partner's score is too far from x's; as if every margin were off by `off`, away from the others'."""
    lowest, highest = _partner_extremes(grid, partners, F)
    margins, at = np.unique(own, return_inverse=True)
    targets = [(grid.targets(int(m) + off), grid.targets(int(m) - off)) for m in margins.tolist()]
    below = np.array([-FAR if low is None else low + off for (low, _), _ in targets], object)[at.reshape(own.shape)]
    above = np.array([FAR if high is None else high - off for _, (_, high) in targets], object)[at.reshape(own.shape)]
    return np.asarray((lowest <= below) | (highest >= above), bool)


def _partner_extremes(grid: Grid, partners: Partners, F: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """For every cell the smallest and the largest margin of its partners, straight from the definition; epsilon = 0."""
    others = tuple(i for i, axis in enumerate(grid.axes) if axis.sensitive and i != partners.axis)
    allowed = allowed_cells(grid)
    found = []
    for best, ranges, nobody in ((np.min, partners.low, FAR), (np.max, partners.high, -FAR)):
        G = F if allowed.size == 1 else np.where(allowed, F.astype(object), np.array(nobody, object))
        G = best(G, axis=others, keepdims=True) if others else G
        if partners.axis < 0:
            found.append(np.broadcast_to(G, F.shape))
            continue
        slices = []
        for first, last in ranges:
            inside = G.take(range(first, last + 1), partners.axis)
            empty = np.full_like(G.take([0], partners.axis), nobody, dtype=object)
            slices.append(best(inside, axis=partners.axis, keepdims=True) if first <= last else empty)
        found.append(np.broadcast_to(np.concatenate(slices, axis=partners.axis), F.shape))
    return found[0], found[1]


def _reaches(grid: AnyGrid, bits: BoolArray, which: Literal["low", "high"]) -> BoolArray:
    """For every refined cell: does some admissible x' lie in a base cell whose bit is set?"""
    if isinstance(grid, Grid) and grid.partners is not None:
        return _sees_partner(grid, grid.partners, bits, grid.partners.low if which == "low" else grid.partners.high)
    hits = bits
    for i, axis in enumerate(grid.axes):
        if not axis.sensitive:
            hits = _window(hits, axis, i)
    sensitive = tuple(i for i, axis in enumerate(grid.axes) if axis.sensitive)
    if not sensitive:
        return hits
    # x' must differ from x in S: where all of x's sensitive cells are single points, their own combination is out.
    points = np.ones([1] * len(grid.axes), bool)
    for i in sensitive:
        shape = [-1 if j == i else 1 for j in range(len(grid.axes))]
        points = points & grid.axes[i].single.reshape(shape)
    total = hits.sum(axis=sensitive, keepdims=True)
    found: BoolArray = (total - (hits & points)) > 0
    return found


def _sees_partner(grid: Grid, partners: Partners, bits: BoolArray, ranges: Sequence[tuple[int, int]]) -> BoolArray:
    """The same where the property says who may be whose partner; x itself never has another class than its own."""
    others = tuple(i for i, axis in enumerate(grid.axes) if axis.sensitive and i != partners.axis)
    hits = bits.any(axis=others, keepdims=True) if others else bits
    slices = [
        hits.take(range(first, last + 1), partners.axis).any(axis=partners.axis, keepdims=True)
        for first, last in ranges
    ]
    return np.broadcast_to(np.concatenate(slices, axis=partners.axis), bits.shape)


def _window(bits: BoolArray, axis: Axis, i: int) -> BoolArray:
    """OR over the base cells near_lo..near_hi along array axis i, for every refined cell."""
    running = np.concatenate([np.zeros_like(bits.take([0], i), np.int64), bits.cumsum(axis=i)], axis=i)
    inside: BoolArray = (running.take(axis.near_hi + 1, i) - running.take(axis.near_lo, i)) > 0
    return inside


def _ambiguous(grid: Grid, F: npt.NDArray[Any]) -> BoolArray:
    """Refined cells whose verdict changes if every margin may be off by the library's rounding error."""
    own = F[np.ix_(*(a.base for a in grid.axes))]
    t, r, allowed = grid.thresholds, grid.rounding, allowed_cells(grid)
    if grid.partners is not None and grid.partners.scores:
        could, surely = (_apart(grid, grid.partners, F, own, off) for off in (r, -r))
        near_kappa = [abs(own - level) <= r for level in (t.conf_pos, t.conf_neg) if grid.low_possible]
        return np.asarray(sum(near_kappa, could & ~surely), bool) & _of_x(grid, allowed)
    verdict = []
    for sign in (1, -1):
        sees_neg = _reaches(grid, allowed & (t.neg + sign * r >= F).astype(bool), "low")
        sees_pos = _reaches(grid, allowed & (t.pos - sign * r <= F).astype(bool), "high")
        sure_pos, sure_neg = (own >= t.conf_pos - sign * r).astype(bool), (own <= t.conf_neg + sign * r).astype(bool)
        verdict.append((sure_pos | sure_neg, _counterexamples(grid, sure_pos & sees_neg, sure_neg & sees_pos)))
    (could_be_sure, could_be_unfair), (surely_sure, surely_unfair) = verdict
    changes: BoolArray = (could_be_unfair & ~surely_unfair) | (could_be_sure & ~surely_sure)
    return changes & _of_x(grid, allowed)


def _mass(grid: AnyGrid, bits: BoolArray) -> Fraction:
    """The exact mass of the refined cells whose bit is set."""
    total: Any = bits
    denominator = 1
    for axis in reversed(grid.axes):
        common = math.lcm(*(m.denominator for m in axis.refined_masses))
        weights = np.array([int(m * common) for m in axis.refined_masses], dtype=object)
        total = np.dot(total.astype(object), weights)
        denominator *= common
    return Fraction(int(total), denominator)


def _rounded(count: int) -> str:
    """A count for an error message; products of cells can be beyond every float."""
    return str(count) if count < 10**9 else f"about 10^{len(str(count)) - 1}"
