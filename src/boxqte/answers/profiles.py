"""Counterexamples by value of one attribute, as certain bounds: true also where a limit has ended a search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from boxqte.answers.allowed import allowed_by_cell, allowed_mass, at_most
from boxqte.answers.asked import Asked, Ends, boxes_by_cell, cell_words, searched, support_boxes
from boxqte.answers.regions import RegionStore, held_cells
from boxqte.engines.box.classes import ClassProblem
from boxqte.engines.box.exchange_worker import box_masses
from boxqte.engines.box.plan import rounding_bound
from boxqte.engines.box.problem import Problem, compile_problem
from boxqte.engines.kinds import FAIR, LOW, UNFAIR
from boxqte.engines.protocol import BoxArray, Decided, Limits
from boxqte.exact import down, up
from boxqte.questions.axes import Axis
from boxqte.questions.grid import AnyGrid, binary
from boxqte.questions.variations import part_of_cell, restricted_grid
from boxqte.space.conditions import part_text

if TYPE_CHECKING:
    import pandas as pd

MOST_ROOTS = 100_000  # parts of the regions that a profile starts from; beyond that it starts from the cells
CHUNK = 10_000
ZERO = Fraction(0)


@dataclass(frozen=True)
class Counted:
    """The mass of the counterexamples in every cell of an attribute, and whether no search was ended by a limit."""

    ends: Sequence[Ends]
    done: bool


def profile_table(asked: Asked, decided: Decided, attribute: str, limits: Limits) -> pd.DataFrame:
    """One row a cell, in the attribute's order; `decided` is what the result says of the whole."""
    import pandas as pd

    at = asked.grid.space.names.index(asked.grid.space[attribute].name)
    axis = asked.grid.axes[at]
    key = ("profile", attribute, limits.time_limit)
    if key not in asked.answers:
        asked.answers[key] = _counted_in_all(asked, at, limits)
    counted: Counted = asked.answers[key]
    masses = allowed_by_cell(asked, at) if asked.grid.forbidden else axis.masses
    ends = _tightened(counted.ends, decided, masses)
    lower, upper = sum((low for low, _ in ends), ZERO), sum((high for _, high in ends), ZERO)
    least, most = allowed_mass(asked)  # what is shown are shares of what the rules leave
    rows = []
    for cell, mass, (low, high) in zip(axis.cells, masses, ends):
        # A share grows with the mass of its own cell and falls with that of the others.
        share = _outward((low, low + upper - high), (high, high + lower - low)) if upper else (math.nan, math.nan)
        density = _outward((low, mass), (high, mass)) if mass else (math.nan, math.nan)
        value = part_text(axis.attribute, part_of_cell(axis, cell))
        rows.append((value, float(mass / most), down(low / most), at_most(high, least), *share, *density))
    columns = ["value", "mass", "lower", "upper", "share_lower", "share_upper", "density_lower", "density_upper"]
    table = pd.DataFrame(rows, columns=columns)
    table.attrs |= {"attribute": attribute, "converged": counted.done}
    return table


def _outward(low: tuple[Fraction, Fraction], high: tuple[Fraction, Fraction]) -> tuple[float, float]:
    """Two ratios, the first rounded down, the second up; 0 of nothing is 0."""
    return down(low[0] / low[1] if low[0] else ZERO), up(high[0] / high[1] if high[0] else ZERO)


def _tightened(ends: Sequence[Ends], decided: Decided, masses: Sequence[Fraction]) -> list[Ends]:
    """The rows add up to the whole, about which the result may know more than they do."""
    least, most = Fraction(decided.unfair), Fraction(decided.unfair) + decided.undecided
    lower, upper = sum((low for low, _ in ends), ZERO), sum((high for _, high in ends), ZERO)
    tight = []
    for (low, high), mass in zip(ends, masses):
        best = min(high, most - (lower - low), mass)
        tight.append((min(max(low, least - (upper - high), ZERO), best), best))
    return tight


def _counted_in_all(asked: Asked, at: int, limits: Limits) -> Counted:
    """The counterexamples in every cell; those of a mixture are the sums of its products'."""
    if not asked.pieces:
        return _counted(asked, at, limits)
    sums = [(ZERO, ZERO)] * asked.grid.axes[at].n_cells
    done = True
    for weight, result in asked.pieces:
        own = _counted(result.asked, at, limits)
        tight = _tightened(own.ends, result.decided, result.asked.grid.axes[at].masses)
        sums = [(a + weight * low, b + weight * high) for (a, b), (low, high) in zip(sums, tight)]
        done &= own.done
    return Counted(sums, done)


def _counted(asked: Asked, at: int, limits: Limits) -> Counted:
    grid, axis = asked.grid, asked.grid.axes[at]
    if same_for_all(grid, axis):
        store = asked.regions()
        if store.complete:
            ends, done = (Fraction(store.decided.unfair), _most(store.decided)), True
        else:
            ends, done = searched(asked, grid, limits)
        return Counted([(ends[0] * mass, ends[1] * mass) for mass in axis.masses], done)
    if axis.sensitive or axis.moves or not grid.ensemble.is_binary:
        store = asked.regions()
        if isinstance(store.problem, ClassProblem) and store.complete and at in store.problem.axis_ids:
            return _of_pure_boxes(store, store.problem, at, axis)
        return _by_mass(asked, at, axis, limits)
    return _by_box(asked, axis, limits)


def _most(decided: Decided) -> Fraction:
    return Fraction(decided.unfair) + decided.undecided


def same_for_all(grid: AnyGrid, axis: Axis) -> bool:
    """Whether the verdict on x does not depend on its value here: no tree asks, or only classes count and all x' are free."""
    asked = any(grid.axes[cut.axis] is axis for cut in grid.cuts)
    if any(grid.axes[a] is axis for one in grid.forbidden for a, _ in one.masks):
        return False
    if not grid.has_tolerance:
        return not asked or (axis.sensitive and grid.mutual)
    return not asked and not axis.sensitive


def _of_pure_boxes(store: RegionStore, problem: ClassProblem, at: int, axis: Axis) -> Counted:
    """Three classes and more: every box of the search is counterexamples throughout, so its mass divides it."""
    own = np.array([float(m) for m in axis.refined_masses])
    parts: list[list[float]] = [[] for _ in own]  # one a chunk of boxes
    for start in range(0, len(store.boxes), CHUNK):
        boxes = store.boxes.take(slice(start, start + CHUNK))
        inside = held_cells(boxes.cells[:, problem.axis_ids.index(at)], len(own)) * own
        masses = inside * (boxes.masses[:, UNFAIR] / inside.sum(axis=1))[:, None]
        for column, part in zip(masses.T.tolist(), parts):
            part.append(math.fsum(column))
    sums = [ZERO] * axis.n_cells
    for base, part in zip(axis.base.tolist(), parts):
        sums[base] += Fraction(math.fsum(part))
    # One rounding a cell mass, one a sum of cells, a quotient, a product and two sums: fewer than `rounding` allows for.
    slack, lost = 2 * store.rounding, Fraction(store.elsewhere)
    return Counted([(max(found - slack, ZERO), found + slack + lost) for found in sums], True)


def _by_box(asked: Asked, axis: Axis, limits: Limits) -> Counted:
    """x' has the same value as x: one search that starts from the cells, or from what is known to have counterexamples."""
    problem, store = compile_problem(binary(asked.grid)), asked.regions()
    cells = boxes_by_cell(problem, axis.attribute.name)
    i = next(i for i, a in enumerate(problem.axis_ids) if asked.grid.axes[a] is axis)
    slack = 2 * rounding_bound(problem)
    known, roots = [ZERO] * axis.n_cells, None
    if isinstance(store.problem, Problem):
        known, parts = _divided(store, i, axis.n_cells)
        if parts is not None and store.complete and not store.elsewhere and not asked.grid.has_tolerance:
            roots = parts & support_boxes(problem)
    if roots is None:
        inside = asked.masses_in(asked.grid, cells, limits=limits)
        room = list(axis.masses)
        start = [ZERO] * axis.n_cells
    else:
        inside = asked.masses_in(asked.grid, cells, roots=roots, limits=limits)
        room = [ZERO] * axis.n_cells
        for c, mass in zip(held_cells(roots[:, i], axis.n_cells).argmax(axis=1), box_masses(problem, roots).tolist()):
            room[c] += Fraction(mass)
        start, slack = known, 2 * slack
    ends = []
    for c, own in enumerate(inside.masses.tolist()):
        fair, unfair, low = Fraction(own[FAIR]), Fraction(own[UNFAIR]), Fraction(own[LOW])
        most = unfair if inside.done else max(room[c] - fair - low, unfair)
        ends.append((max(start[c] + unfair, known[c]) - slack, start[c] + most + 3 * slack))
    return Counted([(max(low, ZERO), high) for low, high in ends], inside.done)


def _divided(store: RegionStore, i: int, n_cells: int) -> tuple[list[Fraction], BoxArray | None]:
    """The counterexamples of the boxes that lie in one cell of an axis; and the other boxes, cut along its cells.

    None where these would be too many to start a search from.
    """
    boxes = store.boxes
    held = held_cells(boxes.cells[:, i], n_cells)
    single = held.sum(axis=1) == 1
    known = [ZERO] * n_cells
    for c, mass in zip(held[single].argmax(axis=1).tolist(), boxes.masses[single, UNFAIR].tolist()):
        known[c] += Fraction(mass)
    box, cell = np.nonzero(held & ~single[:, None])
    if len(box) > MOST_ROOTS:
        return known, None
    parts = boxes.cells[box].copy()
    words = np.array([cell_words([k == c for k in range(n_cells)], boxes.cells.shape[2]) for c in range(n_cells)])
    parts[:, i] = words[cell]
    return known, parts


def _by_mass(asked: Asked, at: int, axis: Axis, limits: Limits) -> Counted:
    """x' may have another value: one search a cell, with all mass of x in it."""
    ends: list[Ends] = []
    done = True
    rounding = asked.regions().rounding
    allowed = allowed_by_cell(asked, at) if asked.grid.forbidden else axis.masses
    for cell, mass, left in zip(axis.cells, axis.masses, allowed):
        if not left:
            ends.append((ZERO, ZERO))
            continue
        part = part_of_cell(axis, cell)
        grid = restricted_grid(asked.grid, {axis.attribute.name: part}, "a cell")[0]
        (low, high), finished = searched(asked, grid, limits)
        ends.append((low * mass, high * mass + rounding))
        done &= finished
    return Counted(ends, done)
