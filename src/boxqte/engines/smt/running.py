"""The loop that both engines run: hand out tasks, take in reports, tell the watch, and end cleanly whatever happens."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from boxqte.basics.machine import half_of_memory
from boxqte.engines.protocol import Decided, Limits, Outcome, Status, Watch
from boxqte.engines.smt.pool import LocalPool, ProcessPool, Report
from boxqte.engines.smt.solving import OutOfMemoryError, OutOfTimeError

WAIT = 0.1  # seconds between two looks at the clock
PREFETCH = 2  # short tasks that a worker process holds, so that it never waits for the scheduler

Pool = LocalPool | ProcessPool


@contextmanager
def remembered_interrupts() -> Iterator[list[int]]:
    """Ctrl-C as ever, and a list that it is noted in: one that falls into a destructor (z3's objects have them) is lost."""
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield noted
        return

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


class Run:
    """One run of an engine. Subclasses own the tasks and the masses; `news` says that a mass has changed."""

    bytes_of_task = 1000
    """About what one waiting task takes."""

    def __init__(self, limits: Limits, watch: Watch):
        self.limits, self.watch = limits, watch
        self.steps = 0
        self.news = False
        self.room = limits.memory_limit or half_of_memory()

    def run(self) -> Outcome:
        """Until everything is decided, or a limit or the user ends it. What is decided by then stays true."""
        pool: Pool | None = None
        status: Status | None = None
        try:
            pool = self.make_pool()
            self.begin()
            with remembered_interrupts() as interrupts:
                while status is None and not self.done():
                    if interrupts:
                        raise KeyboardInterrupt
                    self.assign(pool)
                    for report in pool.reports(min(WAIT, max(self.watch.seconds_left, 0))):
                        self.steps += report.steps
                        self.handle(report, pool)
                    status = self._state()
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        except OutOfTimeError:
            status = Status.TIME
        except (OutOfMemoryError, MemoryError):
            status = Status.MEMORY
        finally:
            if pool is not None:
                pool.close()
        decided = self.decided()
        if status is None or ((self.news or not self.watch.trace) and status is not Status.INTERRUPTED):
            self.watch.report(decided, nodes=self.steps, open_boxes=self.queued())
        details = {"steps": self.steps, "workers": self.limits.workers, "lost_workers": pool.losses if pool else 0}
        return Outcome(decided, status or self.end(), None, {**details, **self.details()})

    def _state(self) -> Status | None:
        """Tell the watch what is new; the reason to stop, if there is one."""
        if self.done():
            return None  # the last report is `run`'s
        if self.queued() * self.bytes_of_task > self.room:
            return Status.MEMORY
        over = self.watch.seconds_left <= 0 or self.steps >= (self.limits.node_limit or float("inf"))
        if not self.news and not over:
            return None
        self.news = False
        return self.watch.report(self.decided(), nodes=self.steps, open_boxes=self.queued())

    def room_of_worker(self) -> float:
        return self.room / self.limits.workers

    def hold(self, pool: Pool) -> int:
        """How many short tasks to have under way."""
        return 1 if isinstance(pool, LocalPool) else PREFETCH * pool.workers

    # --- what a subclass brings ---

    def make_pool(self) -> Pool:
        raise NotImplementedError

    def begin(self) -> None:
        """Put the first tasks into the queue."""
        raise NotImplementedError

    def done(self) -> bool:
        raise NotImplementedError

    def assign(self, pool: Pool) -> None:
        """Give the workers something to do."""
        raise NotImplementedError

    def handle(self, report: Report, pool: Pool) -> None:
        """Account for a report."""
        raise NotImplementedError

    def decided(self) -> Decided:
        raise NotImplementedError

    def queued(self) -> int:
        """How many tasks wait."""
        raise NotImplementedError

    def end(self) -> Status:
        """The status when there is nothing left to do."""
        return Status.CONVERGED

    def details(self) -> dict[str, Any]:
        return {}
