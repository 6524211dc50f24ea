"""Algorithm 1: one scheduler that owns all tasks, all masses and the bounds."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from boxqte.engines import Limits, Outcome, Watch
from boxqte.engines.box.driver import half_of_memory
from boxqte.engines.smt.boxes import Boxes, Masks, PathTuple
from boxqte.engines.smt.pool import LocalPool, ProcessPool, Report
from boxqte.engines.smt.solving import OutOfMemory, OutOfTime
from boxqte.engines.smt.tasks import Divided, Finished, Found, PairTask, PathTask, Settings, Task, Worker, unfair_mass
from boxqte.grid import Grid
from boxqte.result import Decided, Status

if TYPE_CHECKING:
    from boxqte.engines.smt.engine import SmtOptions

WAIT = 0.1  # seconds between two looks at the clock
PREFETCH = 2  # tasks of Task_s that a worker process holds, so that it never waits for the scheduler
BYTES_OF_TASK = 600  # about what a waiting task takes, beside 40 bytes a tree and an attribute


@dataclass
class _Group:
    """The tasks that share one x_box: its unfair part is measured when all of them have ended."""

    x_box: Masks
    pending: int = 1
    others: list[PathTuple] = field(default_factory=list)


class Scheduler:
    """Runs Task_kappa, Task_not_kappa and the Task_s on a pool, and adds up what they prove."""

    def __init__(self, grid: Grid, options: SmtOptions, limits: Limits, watch: Watch):
        self.grid, self.options, self.limits, self.watch = grid, options, limits, watch
        self.boxes = Boxes(grid)
        self.fair = self.unfair = self.low = 0  # masses, in the boxes' units
        self.confident = 0  # the mass of the path tuples that Task_kappa has found
        self.groups: dict[int, _Group] = {}
        self.waiting: dict[str, list[Any]] = {"kappa": [], "not-kappa": [], "pair": []}
        self.under_way: dict[int, Task] = {}
        self.found: dict[int, list[PathTuple]] = {}
        self.counts = {"path_tuples": 0, "tasks": 0, "divided": 0, "checks": 0}
        self._numbers = itertools.count()
        self._order = itertools.count()
        self._news = False

    # --- the loop ---

    def run(self) -> Outcome:
        """Until everything is decided, or a limit or the user ends it."""
        pool: LocalPool | ProcessPool | None = None
        status: Status | None = None
        try:
            pool = self._pool()
            self._push(PathTask("kappa", self.boxes.full))
            if not self.grid.thresholds.all_confident:
                self._push(PathTask("not-kappa", self.boxes.full))
            while status is None and not self._done():
                self._assign(pool)
                for report in pool.reports(min(WAIT, max(self.watch.seconds_left, 0))):
                    self._handle(report, pool)
                status = self._state()
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        except OutOfTime:
            status = Status.TIME
        except (OutOfMemory, MemoryError):
            status = Status.MEMORY
        finally:
            if pool is not None:
                pool.close()
        decided = self._decided()
        if status is not Status.INTERRUPTED and (status is None or self._news):
            self.watch.report(decided, nodes=self.counts["checks"], open_boxes=0)
        details = {**self.counts, "workers": self.limits.workers, "lost_workers": pool.losses if pool else 0}
        return Outcome(decided, status or Status.CONVERGED, None, details)

    def _pool(self) -> LocalPool | ProcessPool:
        o = self.options
        room = (self.limits.memory_limit or half_of_memory()) / self.limits.workers
        settings = Settings(o.box_blocking, o.blocking_limit if o.decomposition else None, room)
        if self.limits.workers == 1:
            return LocalPool(Worker(self.grid, settings, lambda: self.watch.seconds_left))
        return ProcessPool((Worker, self.grid, settings), self.limits.workers, self._resumed)

    def _done(self) -> bool:
        busy = {task.kind for task in self.under_way.values()}
        return not (self.waiting["kappa"] or self.waiting["pair"] or "kappa" in busy or "pair" in busy)

    def _state(self) -> Status | None:
        """Tell the watch what is new; the reason to stop, if there is one."""
        queued = sum(map(len, self.waiting.values()))
        size = BYTES_OF_TASK + 40 * (len(self.boxes.roots) + len(self.boxes.axes))
        if queued * size > (self.limits.memory_limit or half_of_memory()):
            return Status.MEMORY
        checks = self.counts["checks"]
        if self._news or self.watch.seconds_left <= 0 or checks >= (self.limits.node_limit or float("inf")):
            self._news = False
            if not self._done():
                return self.watch.report(self._decided(), nodes=checks, open_boxes=queued)
            self._news = True  # the last word is `run`'s
        return None

    def _decided(self) -> Decided:
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

    def _assign(self, pool: LocalPool | ProcessPool) -> None:
        """Give the workers something to do: of 16, the paper gives 4 to Task_kappa and 2 to Task_not_kappa."""
        n = pool.workers
        hold = n if isinstance(pool, LocalPool) else PREFETCH * n
        while self.waiting["pair"] and pool.load("pair") < hold:
            self._submit(pool, heapq.heappop(self.waiting["pair"])[2])
        spare = n if not self.waiting["pair"] else 0
        for kind, share in (("kappa", max(n // 4, 1, spare)), ("not-kappa", max(n // 8, 1))):
            while self.waiting[kind] and pool.load(kind) < share:
                self._submit(pool, self.waiting[kind].pop(0))

    def _submit(self, pool: LocalPool | ProcessPool, task: Task) -> None:
        number = next(self._numbers)
        self.under_way[number] = task
        self.counts["tasks"] += 1
        pool.submit(number, task)

    def _resumed(self, number: int, task: Task) -> Task:
        """How to go on with a task whose worker died: what it has found is accounted for, and blocked."""
        if isinstance(task, PathTask):
            return replace(task, blocked=(*task.blocked, *self.found.pop(number, ())))
        return task

    def _handle(self, report: Report, pool: LocalPool | ProcessPool) -> None:
        self.counts["checks"] += report.steps
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
            self._news = True
            return
        self.counts["path_tuples"] += 1
        self.confident += mass
        if mass:  # a box without mass adds nothing to either sum
            positive = self.boxes.margin(leaves) >= self.grid.thresholds.conf_pos
            self._push(self._grouped(PairTask("pair", -1, x_box, positive, self.boxes.full)))

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
        self._news = True

    def _all_confident_found(self, pool: LocalPool | ProcessPool) -> None:
        """Task_kappa is complete: the rest of the space is not confident, and Task_not_kappa has nothing left to say."""
        self.low = self.boxes.unit - self.confident
        self.waiting["not-kappa"].clear()
        for number, task in list(self.under_way.items()):
            if task.kind == "not-kappa":
                pool.cancel(number)
                del self.under_way[number]
        self._news = True
