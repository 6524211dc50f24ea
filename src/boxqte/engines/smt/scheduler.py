"""Algorithm 1: one scheduler that owns all tasks, all masses and the bounds."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from boxqte.engines.protocol import Decided, Limits, Watch
from boxqte.engines.smt.boxes import Boxes, Masks, PathTuple
from boxqte.engines.smt.pool import LocalPool, ProcessPool, Report
from boxqte.engines.smt.running import Pool, Run
from boxqte.engines.smt.tasks import Divided, Finished, Found, PairTask, PathTask, Settings, Task, Worker, unfair_mass
from boxqte.questions.grid import Grid

if TYPE_CHECKING:
    from boxqte.engines.smt.options import SmtOptions


@dataclass
class _Group:
    """The tasks that share one x_box: its unfair part is measured when all of them have ended."""

    x_box: Masks
    pending: int = 1
    others: list[PathTuple] = field(default_factory=list)


class Scheduler(Run):
    """Runs Task_kappa, Task_not_kappa and the Task_s on a pool, and adds up what they prove."""

    def __init__(self, grid: Grid, options: SmtOptions, limits: Limits, watch: Watch):
        super().__init__(limits, watch)
        self.grid, self.options = grid, options
        self.boxes = Boxes(grid)
        self.bytes_of_task = 600 + 40 * (len(grid.roots) + len(grid.axes))
        self.fair = self.unfair = 0  # masses, in the boxes' units
        self.low = int(grid.forbidden_mass * self.boxes.unit)  # no task finds an x that is forbidden
        self.confident = 0  # the mass of the path tuples that Task_kappa has found
        self.groups: dict[int, _Group] = {}
        self.waiting: dict[str, list[Any]] = {"kappa": [], "not-kappa": [], "pair": []}
        self.under_way: dict[int, Task] = {}
        self.found: dict[int, list[PathTuple]] = {}
        self.counts = {"path_tuples": 0, "tasks": 0, "divided": 0}
        self._numbers = itertools.count()
        self._order = itertools.count()

    def make_pool(self) -> Pool:
        o = self.options
        settings = Settings(o.box_blocking, o.blocking_limit if o.decomposition else None, self.room_of_worker())
        if self.limits.workers == 1:
            return LocalPool(Worker(self.grid, settings, lambda: self.watch.seconds_left))
        return ProcessPool((Worker, self.grid, settings), self.limits.workers, self._resumed)

    def begin(self) -> None:
        self._push(PathTask("kappa", self.boxes.full))
        if not self.grid.thresholds.all_confident:
            self._push(PathTask("not-kappa", self.boxes.full))

    def done(self) -> bool:
        return not (self.waiting["kappa"] or self.waiting["pair"] or self._busy("kappa") or self._busy("pair"))

    def queued(self) -> int:
        return sum(map(len, self.waiting.values()))

    def details(self) -> dict[str, Any]:
        return self.counts

    def decided(self) -> Decided:
        share = self.boxes.share
        return Decided(share(self.fair), share(self.unfair), share(self.low))

    # --- tasks ---

    def _push(self, task: Task) -> None:
        if isinstance(task, PairTask) and self.options.priority:
            # |B|, the largest first: T_kappa grows by it when the task ends, and the gap is 1 - T_kappa / (1 - T_low).
            heapq.heappush(self.waiting["pair"], (-self.boxes.mass(task.x_box), next(self._order), task))
        elif isinstance(task, PairTask):
            heapq.heappush(self.waiting["pair"], (0, next(self._order), task))
        else:
            self.waiting[task.kind].append(task)

    def assign(self, pool: Pool) -> None:
        """Give the workers something to do: of 16, the paper gives 4 to Task_kappa and 2 to Task_not_kappa."""
        n = pool.workers
        while self.waiting["pair"] and pool.load("pair") < self.hold(pool):
            self._submit(pool, heapq.heappop(self.waiting["pair"])[2])
        spare = n if not self.waiting["pair"] else 0
        for kind, share in (("kappa", max(n // 4, 1, spare)), ("not-kappa", max(n // 8, 1))):
            while self.waiting[kind] and pool.load(kind) < share:
                self._submit(pool, self.waiting[kind].pop(0))

    def _submit(self, pool: Pool, task: Task) -> None:
        number = next(self._numbers)
        self.under_way[number] = task
        self.counts["tasks"] += 1
        pool.submit(number, task)

    def _resumed(self, number: int, task: Task) -> Task:
        """How to go on with a task whose worker died: what it has found is accounted for, and blocked."""
        if isinstance(task, PathTask):
            return replace(task, blocked=(*task.blocked, *self.found.pop(number, ())))
        return task

    def handle(self, report: Report, pool: Pool) -> None:
        if report.number not in self.under_way:  # cancelled by a report just before this one
            return
        task, event = self.under_way[report.number], report.event
        if isinstance(event, Found):
            assert isinstance(task, PathTask)
            self.found.setdefault(report.number, []).append(event.leaves)
            self._path_tuple(task, event.leaves)
            return
        del self.under_way[report.number]
        self.found.pop(report.number, None)
        if isinstance(event, Divided):
            self._divide(task, event.parts)
        elif isinstance(task, PairTask):
            self._measured(task, event)
        if task.kind == "kappa" and not self.waiting["kappa"] and not self._busy("kappa"):
            self._all_confident_found(pool)

    def _busy(self, kind: str) -> bool:
        return any(task.kind == kind for task in self.under_way.values())

    def _path_tuple(self, task: PathTask, leaves: PathTuple) -> None:
        x_box = self.boxes.refined(self.boxes.box(leaves))
        mass = self.boxes.mass(x_box)
        if task.kind == "not-kappa":
            self.low += mass
            self.news = True
            return
        self.counts["path_tuples"] += 1
        self.confident += mass
        if mass:  # a box without mass adds nothing to either sum
            margin = self.boxes.margin(leaves)
            positive = margin >= self.grid.thresholds.conf_pos
            self._push(self._grouped(PairTask("pair", -1, x_box, positive, self.boxes.full, margin=margin)))

    def _grouped(self, task: PairTask) -> PairTask:
        group = next(self._order)
        self.groups[group] = _Group(task.x_box)
        return replace(task, group=group)

    def _divide(self, task: Task, parts: tuple[Task, ...]) -> None:
        self.counts["divided"] += 1
        if isinstance(task, PairTask):
            own = [part for part in parts if isinstance(part, PairTask)]
            if own[0].shared:
                self.groups[task.group].pending += len(own) - 1
                parts = tuple(own)
            else:
                del self.groups[task.group]
                parts = tuple(self._grouped(part) for part in own)
        for part in parts:
            self._push(part)

    def _measured(self, task: PairTask, event: Finished) -> None:
        """T_s grows by the union of the regions, T_kappa by the box."""
        group = self.groups[task.group]
        group.pending -= 1
        group.others += event.others
        if group.pending:
            return
        del self.groups[task.group]
        unfair = unfair_mass(self.boxes, task.x_box, group.others) if task.shared else event.unfair
        self.unfair += unfair
        self.fair += self.boxes.mass(task.x_box) - unfair
        self.news = True

    def _all_confident_found(self, pool: Pool) -> None:
        """Task_kappa is complete: the rest of the space is not confident, and Task_not_kappa has nothing left to say."""
        self.low = self.boxes.unit - self.confident
        self.waiting["not-kappa"].clear()
        for number, task in list(self.under_way.items()):
            if task.kind == "not-kappa":
                pool.cancel(number)
                del self.under_way[number]
        self.news = True
