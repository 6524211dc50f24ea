"""Which search answers a grid: its workers, its root boxes, and the proved bound on its rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.basics.machine import half_of_memory
from boxqte.engines.box import classes, exchange_worker, window_worker
from boxqte.engines.box.driver import Worker
from boxqte.engines.box.inside import Inside
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import Problem, compile_problem, used_axes
from boxqte.engines.box.rules import cut_boxes
from boxqte.engines.protocol import BoxArray, FloatArray, Limits
from boxqte.errors import EngineError
from boxqte.questions.class_grid import ClassGrid
from boxqte.questions.grid import AnyGrid, Grid, binary

CHUNK = 256  # boxes that are looked at together
Roots = Callable[[Any], BoxArray] | None


class Banned(NamedTuple):
    """What is known of the mass that rules forbid before the search."""

    outside: float = 0.0
    """Of what was taken from the root boxes, within the rounding bound."""
    in_all: Fraction = Fraction(0)
    """At most the mass of all of it in the boxes that were asked for."""


NOTHING_BANNED = Banned()


@dataclass(frozen=True, eq=False)
class Plan:
    """A search that is ready to be driven."""

    problem: Problem | classes.ClassProblem
    make_worker: Callable[[], Worker]
    roots: BoxArray
    masses: FloatArray
    batch: int
    inside: Inside | None = None
    """How bounds inside open boxes are found, where the search has such."""
    forbidden: Banned = NOTHING_BANNED
    """What is known of the mass that the rules forbid."""

    @property
    def rounding(self) -> Fraction:
        return rounding_bound(self.problem)


def plan(grid: AnyGrid, options: BoxOptions, limits: Limits, *, notes: bool, roots: Roots = None) -> Plan:
    """The search for a grid. notes: whether workers keep what they close, one by one."""
    if isinstance(grid, ClassGrid):
        return _classes(grid, notes)
    two = binary(grid)
    return (
        _tolerance(two, options, limits, roots) if two.has_tolerance else _exchange(two, options, limits, notes, roots)
    )


def _exchange(grid: Grid, options: BoxOptions, limits: Limits, notes: bool, roots: Roots) -> Plan:
    """No attribute moves: x' differs from x in sensitive attributes only."""
    p = compile_problem(grid)
    start, forbidden = _roots(p, roots)
    room = (limits.memory_limit or half_of_memory()) // (8 * limits.workers)
    n_classes = len(p.combinations[1])

    def make_worker() -> exchange_worker.ExchangeWorker:
        return exchange_worker.ExchangeWorker(
            p,
            finish_limit=options.finish_limit,
            depth_first_below=options.depth_first_below,
            call_work=options.call_work,
            batch=options.batch,
            notes=notes,
            memory=min(room, exchange_worker.WORKER_MEMORY),
        )

    if grid.partners is not None:  # there are no bounds inside open boxes for these yet
        return Plan(p, make_worker, start, exchange_worker.box_masses(p, start), options.batch, forbidden=forbidden)
    inside = Inside(exchange_worker.ExchangeWorker.enclose, exchange_worker.inside_rounding_bound(p, n_classes))
    return Plan(p, make_worker, start, exchange_worker.box_masses(p, start), options.batch, inside, forbidden)


def _roots(problem: Problem, roots: Roots) -> tuple[BoxArray, Banned]:
    """Where the search starts, cut along the rules (docs/engine.md, Theorem 14)."""
    boxes = exchange_worker.root_boxes(problem) if roots is None else roots(problem)
    if not problem.grid.forbidden:
        return boxes if roots is None else exchange_worker.in_runs(problem, boxes), NOTHING_BANNED
    whole = len(boxes) == 1 and exchange_worker.holds_all_mass(problem, boxes[0])
    left, gone = cut_boxes(boxes, problem.cutting_rules)
    if not problem.grid.has_tolerance:  # several rules together may leave nobody
        empty = np.concatenate([_nobody(problem, left[at : at + CHUNK]) for at in range(0, len(left) + 1, CHUNK)])
        left, gone = left[~empty], np.concatenate([gone, left[empty]])
    masses = exchange_worker.box_masses(problem, gone).tolist()
    return exchange_worker.in_runs(problem, left), Banned(
        math.fsum(masses), problem.grid.forbidden_mass if whole else Fraction(0)
    )


def _nobody(problem: Problem, boxes: BoxArray) -> npt.NDArray[np.bool_]:
    """The boxes in which no combination with any mass is allowed."""
    found: npt.NDArray[np.bool_] = np.any((problem.combinations[1] > 0) & ~problem.banned_in(boxes), axis=1)
    return ~found


def _classes(grid: ClassGrid, notes: bool) -> Plan:
    """Three classes or more, any epsilon."""
    axis_ids = tuple(used_axes(grid))
    problem = classes.ClassProblem(grid, axis_ids)
    ranges = classes.root_ranges(grid, axis_ids)
    masses = classes.ClassWorker(grid).mass(ranges) if grid.forbidden else np.ones(1)
    return Plan(
        problem,
        lambda: classes.ClassWorker(grid, notes=notes),
        classes.encode(ranges, classes.words_for(grid, axis_ids)),
        masses,
        classes.FRONTIER,
        forbidden=Banned(float(grid.forbidden_mass), grid.forbidden_mass) if grid.forbidden else NOTHING_BANNED,
    )


def _tolerance(grid: Grid, options: BoxOptions, limits: Limits, roots: Roots) -> Plan:
    """Some attribute moves by epsilon."""
    p = compile_problem(grid)
    if (2 * p.fuzz + 2) << p.shift >= 1 << 63:
        raise EngineError(
            "engine 'box': the leaf values differ so much in magnitude that epsilon > 0 cannot be answered exactly in two "
            "64-bit numbers; use engine 'exhaustive'"
        )
    start, forbidden = _roots(p, roots)
    room = (limits.memory_limit or half_of_memory()) // limits.workers

    def make_worker() -> window_worker.WindowWorker:
        return window_worker.WindowWorker(
            p,
            mixed_limit=options.mixed_limit,
            cell_limit=options.cell_limit,
            memory=room,
            dense_cells=options.dense_cells,
            table_cells=options.table_cells,
        )

    return Plan(p, make_worker, start, exchange_worker.box_masses(p, start), 1, forbidden=forbidden)


def rounding_bound(problem: Problem | classes.ClassProblem) -> Fraction:
    """A proved bound on the rounding error of every sum of closed boxes' masses (docs/engine.md, 'Rounding')."""
    if isinstance(problem, classes.ClassProblem):
        return classes.class_rounding_bound(problem)
    if problem.grid.has_tolerance:
        return window_worker.rounding_bound(problem)
    return exchange_worker.rounding_bound(problem, len(problem.combinations[1]))
