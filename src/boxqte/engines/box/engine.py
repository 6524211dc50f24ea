"""The box engine: chooses the worker for the question and drives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from boxqte.engines import Limits, Outcome, Watch
from boxqte.engines.box import driver
from boxqte.errors import EngineError
from boxqte.grid import Grid
from boxqte.result import Decided, Status

if TYPE_CHECKING:
    from boxqte.engines.box.classes import ClassProblem
    from boxqte.engines.box.problem import Problem


@dataclass(frozen=True)
class BoxOptions:
    """Options of the box engine. None changes the answer; all change how soon it comes."""

    finish_limit: int = 8000
    """Finish a box by counting in value space once that takes at most about this many cells."""
    depth_first_below: float = 1e6
    """Boxes that cost less than this many cells are worked on depth first."""
    batch: int = 8
    """How many open boxes a worker takes at once."""
    call_nodes: int = 4000
    """The most nodes of the search that a worker visits before it reports."""
    call_work: int = 10_000_000
    """The most elementary steps, of about 10 ns, that a worker spends before it reports."""
    mixed_limit: int = 10
    """Epsilon > 0: measure a box once at most this many of its trees mix moving and fixed attributes."""
    cell_limit: int = 1024
    """Epsilon > 0: or once those trees span at most this many cells of the fixed attributes."""
    dense_cells: int = 1 << 18
    """Epsilon > 0: keep one table over all moving attributes while it has at most this many cells."""
    table_cells: int = 1 << 16
    """Epsilon > 0: otherwise tables of about this many cells; moving attributes beyond that are taken cell by cell."""

    def __post_init__(self) -> None:
        least = {"finish_limit": 5, "depth_first_below": 0, "mixed_limit": 0, "dense_cells": 0}
        for option in fields(self):
            value = getattr(self, option.name)
            if not value >= least.get(option.name, 1):
                raise EngineError(
                    f"engine 'box': option '{option.name}' must be at least {least.get(option.name, 1)}, found {value}"
                )


class Box:
    """Exact counting by residual trees and value space; certain bounds at any time."""

    name = "box"
    Options = BoxOptions
    many_classes = True

    def __init__(self, options: BoxOptions | None = None):
        self.options = options or BoxOptions()
        self.client: Any = None
        self.observers: list[driver.Observer] = []
        """Are shown every box that a run closes (driver.Observer)."""
        self.drive: Callable[..., Outcome] = driver.drive
        """Where the workers run: threads here, or processes of a cluster (`use_cluster`)."""
        self.roots: Callable[[Problem], driver.BoxArray] | None = None
        """Disjoint boxes to start from, with the parts of the space that a run should look at; None is all of it."""
        self.recorder: driver.Recorder | None = None
        self.keeper: driver.Keeper | None = None

    def use_cluster(self, client: Any) -> None:
        """Let the processes behind a Dask client do the work."""
        self.client = client

    def run(self, grid: Grid, limits: Limits, watch: Watch) -> Outcome:
        self.settings = self.options
        if self.client is not None:
            from boxqte.engines.box import cluster

            notes = bool(self.observers) or self.recorder is not None
            self.settings = cluster.longer_batches(self.options)
            spec = cluster.Spec(grid, self.settings, notes, limits.memory_limit)
            self.drive = cluster.drive_on(self.client, spec)
        try:
            if not grid.ensemble.is_binary:
                return self._classes(grid, limits, watch)
            if grid.has_tolerance:
                return self._tolerance(grid, limits, watch)
            return self._exchange(grid, limits, watch)
        except KeyboardInterrupt:  # before the search began: nothing is proved yet
            return Outcome(Decided(), Status.INTERRUPTED)

    def _exchange(self, grid: Grid, limits: Limits, watch: Watch) -> Outcome:
        """No attribute moves: x' differs from x in sensitive attributes only."""
        from boxqte.engines.box import exchange_worker, inside, problem

        p = problem.compile_problem(grid)
        roots = exchange_worker.root_boxes(p) if self.roots is None else self.roots(p)
        o = self.settings
        room = (limits.memory_limit or driver.half_of_memory()) // (8 * limits.workers)

        def make_worker() -> exchange_worker.ExchangeWorker:
            return exchange_worker.ExchangeWorker(
                p,
                finish_limit=o.finish_limit,
                depth_first_below=o.depth_first_below,
                call_work=o.call_work,
                batch=o.batch,
                notes=bool(self.observers) or self.recorder is not None,
                memory=min(room, exchange_worker.WORKER_MEMORY),
            )

        classes = len(problem.sensitive_classes(p)[1])
        if self.recorder is not None:
            self.recorder.about(p)
        for observer in self.observers:
            observer.begin(p, roots)
        return self.drive(
            make_worker,
            roots,
            exchange_worker.box_masses(p, roots),
            limits,
            watch,
            rounding=exchange_worker.rounding_bound(p, classes),
            inside=inside.Inside(
                exchange_worker.ExchangeWorker.enclose, exchange_worker.inside_rounding_bound(p, classes)
            ),
            batch=o.batch,
            call_nodes=o.call_nodes,
            observers=self.observers,
            recorder=self.recorder,
            keeper=self.keeper,
        )

    def _classes(self, grid: Grid, limits: Limits, watch: Watch) -> Outcome:
        """Three classes or more, any epsilon."""
        import numpy as np

        from boxqte.engines.box import classes
        from boxqte.manyclasses import ClassGrid

        assert isinstance(grid, ClassGrid)
        worker = classes.ClassWorker(grid)
        axis_ids = worker.decider.problem.axis_ids
        roots = classes.root_ranges(grid, axis_ids)
        notes = bool(self.observers)
        problem = classes.ClassProblem(grid, axis_ids)
        for observer in self.observers:
            observer.begin(problem, roots)
        outcome = self.drive(
            lambda: classes.ClassWorker(grid, notes=notes),
            roots,
            np.ones(1),
            limits,
            watch,
            rounding=classes.class_rounding_bound(problem),
            batch=classes.FRONTIER,
            call_nodes=self.settings.call_nodes,
            observers=self.observers,
        )
        return replace(outcome, rounding_ambiguous=None)  # not computed here

    def _tolerance(self, grid: Grid, limits: Limits, watch: Watch) -> Outcome:
        """Some attribute moves by epsilon."""

        from boxqte.engines.box import exchange_worker, problem, window_worker

        p = problem.compile_problem(grid)
        if (2 * p.fuzz + 2) << p.shift >= 1 << 63:
            raise EngineError(
                "engine 'box': the leaf values differ so much in magnitude that epsilon > 0 cannot be answered exactly in two "
                "64-bit numbers; use engine 'exhaustive'"
            )
        roots = exchange_worker.root_boxes(p) if self.roots is None else self.roots(p)
        o = self.settings
        room = (limits.memory_limit or driver.half_of_memory()) // limits.workers

        def make_worker() -> window_worker.WindowWorker:
            return window_worker.WindowWorker(
                p,
                mixed_limit=o.mixed_limit,
                cell_limit=o.cell_limit,
                memory=room,
                dense_cells=o.dense_cells,
                table_cells=o.table_cells,
            )

        for observer in self.observers:
            observer.begin(p, roots)
        outcome = self.drive(
            make_worker,
            roots,
            exchange_worker.box_masses(p, roots),
            limits,
            watch,
            rounding=window_worker.rounding_bound(p),
            batch=1,
            call_nodes=o.call_nodes,
            observers=self.observers,
            recorder=self.recorder,
            keeper=self.keeper,
        )
        return replace(outcome, rounding_ambiguous=None)  # not computed here: None says so, 0 would claim it


def rounding_bound(problem: Problem | ClassProblem) -> Fraction:
    """A proved bound on the rounding error of every sum of closed boxes' masses (docs/engine.md, 'Rounding')."""
    from boxqte.engines.box import classes, exchange_worker, window_worker
    from boxqte.engines.box.problem import sensitive_classes

    if isinstance(problem, classes.ClassProblem):
        return classes.class_rounding_bound(problem)
    if problem.grid.has_tolerance:
        return window_worker.rounding_bound(problem)
    return exchange_worker.rounding_bound(problem, len(sensitive_classes(problem)[1]))
