"""The box engine: residual trees and value space for epsilon = 0, bricks and windows for epsilon > 0 (docs/engine.md)."""

from __future__ import annotations

from dataclasses import replace

from boxqte.engines.box import cluster, driver
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.plan import plan
from boxqte.engines.protocol import ALONE, Capability, Companions, Limits, Outcome, Status, Watch, known_at_first
from boxqte.questions.class_grid import ClassGrid
from boxqte.questions.grid import AnyGrid


class Box:
    """Exact counting by residual trees and value space; certain bounds at any time."""

    name = "box"
    Options = BoxOptions
    capabilities = frozenset(Capability)

    def __init__(self, options: BoxOptions | None = None):
        self.options = options or BoxOptions()

    def run(self, grid: AnyGrid, limits: Limits, watch: Watch, companions: Companions = ALONE) -> Outcome:
        notes = bool(companions.observers) or companions.recorder is not None
        options, drive = self.options, driver.drive
        if companions.cluster is not None:
            options = cluster.longer_batches(options)
            drive = cluster.drive_on(companions.cluster, cluster.Spec(grid, options, notes, limits.memory_limit))
        try:
            search = plan(grid, options, limits, notes=notes, roots=companions.roots)
            if companions.recorder is not None:
                companions.recorder.about(search.problem)
            for observer in companions.observers:
                observer.begin(search.problem, search.roots)
            outcome = drive(
                search.make_worker,
                search.roots,
                search.masses,
                limits,
                watch,
                rounding=search.rounding,
                inside=search.inside,
                batch=search.batch,
                call_nodes=options.call_nodes,
                observers=companions.observers,
                recorder=companions.recorder,
                keeper=companions.keeper,
                forbidden=search.forbidden.outside,
                least_low=search.forbidden.in_all,
            )
        except KeyboardInterrupt:  # before the search began: nothing is proved yet
            return Outcome(known_at_first(grid), Status.INTERRUPTED)
        if grid.has_tolerance or isinstance(grid, ClassGrid):
            return replace(outcome, rounding_ambiguous=None)  # not computed here: None says so, 0 would claim it
        return outcome
