"""What rules leave of a question's inputs: the masses that people read are shares of it, those of searches of everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from boxqte.answers.asked import Asked
from boxqte.answers.regions import held_cells
from boxqte.answers.result import Result, asked_of
from boxqte.engines.box.classes import ClassProblem
from boxqte.engines.box.problem import Problem
from boxqte.engines.protocol import BoxArray, FloatArray
from boxqte.exact import up
from boxqte.questions.grid import AnyGrid
from boxqte.space.boxes import allowed_share

ONE = Fraction(1)


def products(asked: Asked) -> list[tuple[Fraction, AnyGrid]]:
    """The products behind a question, with their weights."""
    return [(weight, asked_of(own).grid) for weight, own in asked.pieces] or [(ONE, asked.grid)]


def allowed_mass(asked: Asked) -> tuple[Fraction, Fraction]:
    """The least and the most mass of the inputs that no rule forbids; they differ where masses by a formula are rounded."""
    if not asked.grid.forbidden:
        return ONE, ONE
    left = sum((weight * (1 - grid.forbidden_mass) for weight, grid in products(asked)), Fraction(0))
    error = sum((weight * grid.mass_error for weight, grid in products(asked)), Fraction(0))
    return max(left - error, Fraction(0)), min(left + error, ONE)


def at_most(mass: Fraction, least: Fraction) -> float:
    """A mass as a share of at least so much, rounded up; without any, it may be all."""
    return up(mass / least) if least else 1.0


def most_unfair(result: Result) -> Fraction:
    """The most mass of counterexamples, of everything."""
    return Fraction(result.decided.unfair) + result.decided.undecided


def allowed_by_cell(asked: Asked, at: int) -> list[Fraction]:
    """For every base cell of an axis the mass of the inputs in it that no rule forbids, of everything."""
    sums = [Fraction(0)] * asked.grid.axes[at].n_cells
    for weight, grid in products(asked):
        for c, mass in enumerate(grid.axes[at].masses):
            if mass:
                sums[c] += weight * mass * left_of(grid, {at: [k == c for k in range(len(sums))]})
    return sums


def allowed_shares(asked: Asked, problem: Problem | ClassProblem, boxes: BoxArray) -> FloatArray:
    """The share of every box's mass that no rule forbids."""
    if not asked.grid.forbidden or isinstance(problem, ClassProblem):  # whose boxes have nothing of what is forbidden
        return np.ones(len(boxes))
    axes = asked.grid.axes
    fixed = {a: i for i, a in enumerate(problem.axis_ids) if not axes[a].sensitive and not axes[a].moves}
    ruled = [a for a in fixed if any(a == axis for one in asked.grid.forbidden for axis, _ in one.masks)]
    known: dict[bytes, float] = {}
    shares = np.ones(len(boxes))
    for k, box in enumerate(boxes):
        # In a mixture a box's mass depends on all of its axes.
        key = (box if asked.pieces else box[[fixed[a] for a in ruled]]).tobytes()
        if key not in known:
            held = {a: held_cells(box[i], axes[a].n_cells).tolist() for a, i in fixed.items()}
            parts = [(weight * _mass(grid, held), grid) for weight, grid in products(asked)]
            whole = sum((mass for mass, _ in parts), Fraction(0))
            left = sum((mass * left_of(grid, held) for mass, grid in parts if mass), Fraction(0))
            known[key] = float(left / whole) if whole else 1.0
        shares[k] = known[key]
    return shares


def _mass(grid: AnyGrid, held: Mapping[int, Sequence[bool]]) -> Fraction:
    """The mass of some cells of some axes, and of all cells of the others."""
    product = ONE
    for a, cells in held.items():
        product *= sum((m for m, inside in zip(grid.axes[a].masses, cells) if inside), Fraction(0))
    return product


def left_of(grid: AnyGrid, held: Mapping[int, Sequence[bool]]) -> Fraction:
    """The share of such a mass that no rule forbids."""
    masses = {a: axis.masses for a, axis in enumerate(grid.axes)}
    for a, cells in held.items():
        own = [m if inside else Fraction(0) for m, inside in zip(masses[a], cells)]
        whole = sum(own, Fraction(0))
        masses[a] = tuple(m / whole for m in own) if whole else masses[a]
    return allowed_share([one.masks for one in grid.forbidden], masses)
