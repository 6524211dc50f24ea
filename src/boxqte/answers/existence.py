"""Is there any at all? A sum of masses cannot say so where rounding may hide the last of it; ranks and bounds can."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.answers.asked import support_boxes
from boxqte.answers.regions import Boxes, RegionStore
from boxqte.engines.box.draw_worker import NONE, SOME, Drawer
from boxqte.engines.box.engine import Box
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import Problem
from boxqte.engines.exhaustive import dense_margins, verdicts, without_idle_axes
from boxqte.engines.kinds import UNFAIR
from boxqte.engines.protocol import COUNTED, BoxArray, Closed, Companions, Decided, Limits, Outcome, Status, Watch
from boxqte.questions.axes import Axis, Cell
from boxqte.questions.grid import AnyGrid, Cut, Grid, binary
from boxqte.questions.variations import far_beyond
from boxqte.space.attributes import Attribute

CANDIDATES = 32
FINISH_LIMIT = 8000
EXHAUSTIVE_CELLS = 4_000_000
NEXT_TO_NOTHING = Fraction(1, 10**9)
SMALLEST_EXPONENT = -280  # a cell's mass below 10 to this is no float any more


class Finder:
    """An observer that keeps the first boxes with a counterexample; masses of 0 are checked by ranks."""

    def __init__(self) -> None:
        self.found: list[Boxes] = []
        self.unsure = False
        self._drawer: Any = None

    def begin(self, problem: Problem, roots: BoxArray) -> None:
        self.problem = problem

    def closed(self, parts: Closed) -> None:
        if self.found:
            return
        hit = parts.masses[:, UNFAIR] > 0
        silent = np.flatnonzero(~hit & (parts.how == COUNTED))
        if not hit.any() and len(silent):
            if self._drawer is None:
                self._drawer = Drawer(self.problem, finish_limit=FINISH_LIMIT)
            there = self._drawer.exists(parts.boxes[silent])
            hit[silent[there == SOME]] = True
            self.unsure |= bool(((there != SOME) & (there != NONE)).any())
        at = np.flatnonzero(hit)[:CANDIDATES]
        if len(at):
            masses = np.maximum(parts.masses[at], [0, 1e-300, 0])
            self.found.append(Boxes(parts.boxes[at], masses, parts.how[at] == COUNTED))


class UntilFound(Watch):
    """A clock that stops the search once the finder has something."""

    def __init__(self, limits: Limits, finder: Finder):
        super().__init__(limits)
        self.finder = finder

    def report(self, decided: Decided, **counts: Any) -> Status | None:
        reason = super().report(decided, **counts)
        return Status.GAP if self.finder.found else reason


def settled(grid: AnyGrid, outcome: Outcome, store: RegionStore | None, limits: Limits) -> Decided:
    """What is decided; where sums in floats leave next to nothing confident, whether there is anything at all."""
    decided = outcome.decided
    if outcome.status is not Status.CONVERGED or not grid.low_possible:
        return decided
    if Fraction(decided.fair) + Fraction(decided.unfair) > 0 or 1 - Fraction(decided.low) > NEXT_TO_NOTHING:
        return decided
    if grid.ensemble.is_binary:
        none = none_confident(grid, limits)
    else:  # masses of boxes with three classes and more are never differences: a sum of 0 has no other terms
        none = store is not None and not store.some_confident
    return Decided(low=Fraction(1)) if none else decided


def none_confident(grid: AnyGrid, limits: Limits) -> bool:
    """Whether it is proved that no x with mass is confident (two classes); False also if a limit leaves it open."""
    least = [min(m for m in axis.masses if m) for axis in grid.axes]
    if sum(math.log10(m.numerator) - math.log10(m.denominator) for m in least) < SMALLEST_EXPONENT:
        return False
    finder = Finder()
    engine = Box(BoxOptions(finish_limit=FINISH_LIMIT))
    limits = replace(limits, gap=0.0, node_limit=None, require=None)
    beside = Companions((finder,), roots=support_boxes)
    status = engine.run(_all_or_none(binary(grid)), limits, UntilFound(limits, finder), beside).status
    return status is Status.CONVERGED and not finder.found and not finder.unsure


def counterexample_cells(grid: AnyGrid) -> npt.NDArray[np.int64] | None:
    """All refined cells with mass that are counterexamples, one by one (cells x axes); None if the grid has too many.

    For two classes: with three and more, no region is in doubt.
    """
    if max(grid.n_cells(), grid.n_refined()) > EXHAUSTIVE_CELLS:
        return None
    small = without_idle_axes(binary(grid))
    at = np.argwhere(verdicts(small, dense_margins(small))[1])
    names = [axis.attribute.name for axis in small.axes]
    cells = np.zeros((len(at), len(grid.axes)), np.int64)
    has_mass = np.ones(len(at), bool)
    for a, axis in enumerate(grid.axes):
        if axis.attribute.name in names:
            cells[:, a] = at[:, names.index(axis.attribute.name)]
        has_mass &= np.array([m > 0 for m in axis.refined_masses])[cells[:, a]]
    return cells[has_mass]


def _all_or_none(grid: Grid) -> Grid:
    """The same x and the same confidence, and every confident x is a counterexample, whatever the property asks of x'.

    One more attribute is sensitive, and nothing else: its first value, which all x have, changes no margin; the other
    two, which x' may take, bring every margin below all thresholds, and above them.
    """
    far = 2 * far_beyond(grid)
    axes = [_still(axis) for axis in grid.axes]
    attribute = Attribute("side", "categorical", values=(0, 1, 2), columns=("side",))
    cells = tuple(Cell(values=(i,)) for i in range(3))
    masses = (Fraction(1), Fraction(0), Fraction(0))
    at = np.arange(3, dtype=np.int32)
    axes.append(Axis(attribute, True, Fraction(0), cells, masses, cells, masses, at, at * 0, at * 0 + np.int32(2)))
    first, cut, leaf = len(grid.cut), len(grid.cuts), len(grid.values)
    return replace(
        grid,
        axes=tuple(axes),
        cuts=(*grid.cuts, Cut(len(grid.axes), 0b001), Cut(len(grid.axes), 0b011)),
        roots=np.append(grid.roots, np.int32(first)),
        cut=np.append(grid.cut, np.array([cut, -1, cut + 1, -1, -1], np.int32)),
        yes=np.append(grid.yes, np.array([first + 1, -1, first + 3, -1, -1], np.int32)),
        no=np.append(grid.no, np.array([first + 2, -1, first + 4, -1, -1], np.int32)),
        leaf=np.append(grid.leaf, np.array([-1, leaf, -1, leaf + 1, leaf + 2], np.int32)),
        values=(*grid.values, 0, -far, far),
        thresholds=replace(grid.thresholds, counted=0),
        partners=None,
    )


def _still(axis: Axis) -> Axis:
    """The axis where x' has the value of x."""
    own = np.arange(axis.n_cells, dtype=np.int32)
    return replace(
        axis, sensitive=False, refined=axis.cells, refined_masses=axis.masses, base=own, near_lo=own, near_hi=own
    )
