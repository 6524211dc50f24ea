"""The engine `cegar`: CegarQuant, the paper's Algorithm 2 with its three ways to refine, extended to kappa."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, get_args

from boxqte.engines.cegar.oracle import MakeOracle, RegionTask, RegionWorker, SmtOracle, Verdict
from boxqte.engines.cegar.regions import Region, Regions
from boxqte.engines.protocol import ALONE, Capability, Companions, Decided, Limits, Outcome, Status, Watch
from boxqte.engines.smt.pool import LocalPool, ProcessPool, Report
from boxqte.engines.smt.running import Pool, Run
from boxqte.engines.smt.solving import load_z3
from boxqte.errors import EngineError
from boxqte.questions.grid import AnyGrid, Grid, binary
from boxqte.questions.rule_trees import divided_by_rules

Refinement = Literal["random", "node", "node+random"]


@dataclass(frozen=True)
class CegarOptions:
    """Options of the cegar engine."""

    refinement: Refinement = "node+random"
    """How a region is divided: half of a random attribute, the test of a random node, or nodes while there are any."""
    seed: int = 0
    """Of the random choices."""

    def __post_init__(self) -> None:
        if self.refinement not in get_args(Refinement):
            raise EngineError(
                f"engine 'cegar': option 'refinement' must be one of {', '.join(get_args(Refinement))}, found "
                f"'{self.refinement}'"
            )


class Cegar:
    """The paper's CegarQuant: divides regions until they have no counterexample; the published baseline."""

    name = "cegar"
    Options = CegarOptions
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.PARTNERS, Capability.RULES})

    def __init__(self, options: CegarOptions | None = None, oracle: MakeOracle = SmtOracle):
        self.options = options or CegarOptions()
        self.oracle = oracle

    def run(self, grid: AnyGrid, limits: Limits, watch: Watch, companions: Companions = ALONE) -> Outcome:
        if self.oracle is SmtOracle:
            load_z3()
        try:
            return Refining(divided_by_rules(binary(grid)), self.options, self.oracle, limits, watch).run()
        except KeyboardInterrupt:  # before the search began: nothing is proved yet
            return Outcome(Decided(), Status.INTERRUPTED)


class Refining(Run):
    """The queue of regions and the masses that are decided."""

    def __init__(self, grid: Grid, options: CegarOptions, oracle: MakeOracle, limits: Limits, watch: Watch):
        super().__init__(limits, watch)
        self.grid, self.options, self.oracle = grid, options, oracle
        self.regions = Regions(grid)
        self.bytes_of_task = 500 + 300 * len(grid.axes)
        self.random = random.Random(options.seed)
        self.queue: deque[RegionTask] = deque()
        self.under_way: dict[int, RegionTask] = {}
        self.masses = {"fair": Fraction(0), "unfair": Fraction(0), "low": Fraction(0)}
        self.stuck = Fraction(0)
        self.asked = self.refined = 0
        # A node counts as often as it occurs, so that each is as likely as any other.
        self.nodes = [(grid.cuts[cut].axis, grid.cuts[cut].mask) for cut in grid.cut.tolist() if cut >= 0]

    def make_pool(self) -> Pool:
        room = self.room_of_worker()
        if self.limits.workers == 1:
            return LocalPool(RegionWorker(self.oracle, self.grid, room, lambda: self.watch.seconds_left))
        setup = (RegionWorker, self.oracle, self.grid, room)
        return ProcessPool(setup, self.limits.workers, lambda number, task: task)

    def begin(self) -> None:
        self.queue.append(RegionTask(self.regions.whole()))

    def done(self) -> bool:
        return not self.queue and not self.under_way

    def queued(self) -> int:
        return len(self.queue)

    def decided(self) -> Decided:
        masses = self.masses
        return Decided(masses["fair"], masses["unfair"], max(masses["low"], self.grid.forbidden_mass))

    def end(self) -> Status:
        return Status.EXHAUSTED if self.stuck else Status.CONVERGED

    def details(self) -> dict[str, Any]:
        return {"regions": self.asked, "refined": self.refined, "stuck_mass": float(self.stuck)}

    def assign(self, pool: Pool) -> None:
        while self.queue and pool.load("region") < self.hold(pool):
            task = self.queue.popleft()
            self.asked += 1
            self.under_way[self.asked] = task
            pool.submit(self.asked, task)

    def handle(self, report: Report, pool: Pool) -> None:
        task, verdict = self.under_way.pop(report.number), report.event
        assert isinstance(verdict, Verdict)
        if verdict.kind != "mixed":
            self.masses[verdict.kind] += self.regions.mass(task.region)
            self.news = True
            return
        parts = self._refine(task.region)
        if parts is None:  # what is left of it can be divided no further in this way: undecided, for good
            self.stuck += self.regions.mass(task.region)
            return
        self.refined += 1
        self.queue.extend(RegionTask(part, verdict.free) for part in parts if self.regions.mass(part))

    def _refine(self, region: Region) -> tuple[Region, Region] | None:
        if self.options.refinement != "random":
            parts = self._by_node(region)
            if parts is not None or self.options.refinement == "node":
                return parts
        return self._by_half(region)

    def _by_node(self, region: Region) -> tuple[Region, Region] | None:
        """By a random one of the nodes that divide the region."""
        order = self.nodes.copy()
        while order:
            at = self.random.randrange(len(order))
            axis, mask = order[at]
            parts = self.regions.by_cells(region, axis, mask)
            if parts is not None:
                return parts
            order[at] = order[-1]
            order.pop()
        return None

    def _by_half(self, region: Region) -> tuple[Region, Region] | None:
        """By the middle of a random attribute that is not sensitive; of a sensitive one if no other is left."""
        for sensitive in (False, True):
            axes = [i for i, axis in enumerate(self.grid.axes) if axis.sensitive == sensitive]
            self.random.shuffle(axes)
            for axis in axes:
                parts = self.regions.halves(region, axis)
                if parts is not None:
                    return parts
        return None
