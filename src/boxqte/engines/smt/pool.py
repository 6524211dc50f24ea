"""Who does the tasks: this process, or worker processes that may die at any moment.

A pool takes numbered tasks and gives back reports in the order in which things happened. One worker does one task of each
kind at a time, a check of the solver each in turn, so that a few workers serve all kinds.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from boxqte.engines.smt.solving import OutOfMemoryError, OutOfTimeError
from boxqte.errors import EngineError

MAX_LOSSES = 10  # of one task in a row: one that kills every worker that takes it will not get better
MAX_STILLBORN = 50  # workers in a row that end before they are ready
MOST_REPORTS = 1000  # at once, so that the watch is told now and then
READY = "ready"
GRACE = 2.0  # seconds that a worker process gets to end


class Starts(Protocol):
    """What does the tasks: turns one into a generator that yields after every step."""

    def start(self, task: Any) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Report:
    """Something that a task yielded. `last` is its end, `steps` how many steps it took since the report before."""

    number: int
    event: Any
    last: bool
    steps: int


class Turns:
    """The tasks of one worker: one of each kind at a time, a step each in turn."""

    def __init__(self, worker: Starts):
        self.worker = worker
        self.waiting: dict[str, deque[tuple[int, Any]]] = {}
        self.running: dict[str, tuple[int, Iterator[Any]]] = {}
        self.silent: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.running) or any(self.waiting.values())

    def add(self, number: int, task: Any) -> None:
        self.waiting.setdefault(task.kind, deque()).append((number, task))

    def drop(self, number: int) -> None:
        for kind, tasks in self.waiting.items():
            self.waiting[kind] = deque(entry for entry in tasks if entry[0] != number)
        for kind, (running, steps) in list(self.running.items()):
            if running == number:
                steps.close()  # type: ignore[attr-defined]
                del self.running[kind]

    def steps(self) -> Iterator[Report]:
        """One step of every kind that has something to do, and what is to be said about it."""
        for kind in list(self.waiting):
            if kind not in self.running and self.waiting[kind]:
                number, task = self.waiting[kind].popleft()
                self.running[kind] = number, self.worker.start(task)
                self.silent[kind] = 0
            if kind not in self.running:
                continue
            number, steps = self.running[kind]
            event = next(steps)
            self.silent[kind] += 1
            if event is None:
                continue
            last = bool(getattr(event, "last", False))
            if last:
                steps.close()  # type: ignore[attr-defined]
                del self.running[kind]
            yield Report(number, event, last, self.silent[kind])
            self.silent[kind] = 0


class LocalPool:
    """All tasks in this process."""

    def __init__(self, worker: Starts):
        self._turns = Turns(worker)
        self.workers = 1
        self.losses = 0

    def load(self, kind: str) -> int:
        """How many tasks of a kind are under way."""
        return len(self._turns.waiting.get(kind, ())) + (kind in self._turns.running)

    def submit(self, number: int, task: Any) -> None:
        self._turns.add(number, task)

    def cancel(self, number: int) -> None:
        self._turns.drop(number)

    def reports(self, timeout: float) -> list[Report]:
        """What happened; waits at most that long for it, but for a check of the solver."""
        return list(self._turns.steps())

    def close(self) -> None:
        """End everything at once."""


@dataclass
class _Process:
    """One worker process and what it is busy with."""

    child: subprocess.Popen[bytes]
    ready: bool = False
    tasks: dict[int, Any] = field(default_factory=dict)

    def send(self, message: Any) -> None:
        assert self.child.stdin is not None
        # A worker that has died is noticed by its reader, which hands its tasks on.
        with contextlib.suppress(BrokenPipeError, OSError):
            self.child.stdin.write(pickle.dumps(message))
            self.child.stdin.flush()


class ProcessPool:
    """Worker processes. One that dies is replaced, and its tasks are done again by another.

    Each worker has its own pipes, and nothing is shared between workers: a worker killed at any moment leaves no lock
    behind, and at most a message cut short, which is dropped. What a dead worker reported in full is kept, and the owner
    of the tasks says with what to go on (`resumed`), so that nothing is counted twice or lost. Workers end when their
    input does, that is also when this process is killed.
    """

    def __init__(self, setup: Any, workers: int, resumed: Callable[[int, Any], Any]):
        self._setup = pickle.dumps(setup)
        self._resumed = resumed
        self._inbox: queue.SimpleQueue[tuple[_Process, Any]] = queue.SimpleQueue()
        self._processes: list[_Process] = []
        self._lost: dict[int, int] = {}
        self._tasks: dict[int, Any] = {}
        self._aside: list[tuple[_Process, Any]] = []
        self._stillborn = 0
        self.workers = workers
        self.losses = 0
        try:
            for _ in range(workers):
                self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        # The same modules as here, wherever they were found; not `multiprocessing`, which would import the user's script.
        code = f"import sys; sys.path[:] = {sys.path!r}; from boxqte.engines.smt.worker import main; main()"
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is for this process, which then ends the workers
        )
        process = _Process(child)
        self._processes.append(process)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError, OSError):
            child.stdin.write(self._setup)
            child.stdin.flush()

    def _listen(self, process: _Process) -> None:
        """The life of a reader's thread: everything that the worker says, and then None."""
        assert process.child.stdout is not None
        try:
            while True:
                self._inbox.put((process, pickle.load(process.child.stdout)))
        except (EOFError, OSError, ValueError, pickle.UnpicklingError, MemoryError, AttributeError, IndexError):
            self._inbox.put((process, None))  # the end, or a message that was cut short

    @property
    def pids(self) -> list[int]:
        return [process.child.pid for process in self._processes]

    def load(self, kind: str) -> int:
        """How many tasks of a kind are under way."""
        return sum(task.kind == kind for task in self._tasks.values())

    def submit(self, number: int, task: Any) -> None:
        self._tasks[number] = task
        same = [sum(t.kind == task.kind for t in process.tasks.values()) for process in self._processes]
        loads = [(n, len(process.tasks), at) for at, (n, process) in enumerate(zip(same, self._processes))]
        process = self._processes[min(loads)[2]]
        process.tasks[number] = task
        process.send((number, task))

    def cancel(self, number: int) -> None:
        self._tasks.pop(number, None)
        for process in self._processes:
            if process.tasks.pop(number, None) is not None:
                process.send((number, None))

    def reports(self, timeout: float) -> list[Report]:
        """What happened; waits at most that long for the first of it."""
        reports: list[Report] = []
        deadline = time.perf_counter() + timeout
        while len(reports) < MOST_REPORTS:
            wait = 0.0 if reports else max(deadline - time.perf_counter(), 0.0)
            try:
                process, message = self._aside.pop() if self._aside else self._inbox.get(timeout=wait)
            except queue.Empty:
                break
            if message == READY:
                process.ready, self._stillborn = True, 0
            elif not isinstance(message, Report):
                if reports:  # their owner must know of them before a task is handed on
                    self._aside.append((process, message))
                    break
                if message is not None:
                    raise message
                self._replace(process)
            elif message.number in process.tasks:  # not one that was cancelled meanwhile
                self._lost.pop(message.number, None)
                if message.last:
                    del process.tasks[message.number], self._tasks[message.number]
                reports.append(message)
        return reports

    def _replace(self, process: _Process) -> None:
        """A worker is gone: another takes its place and its tasks."""
        if process not in self._processes:
            return
        self._processes.remove(process)
        _end(process)
        self.losses += 1
        self._stillborn += not process.ready
        if self._stillborn > MAX_STILLBORN:
            raise EngineError(f"{MAX_STILLBORN} worker processes ended before they were ready; the run is over")
        self._begin()
        for number in process.tasks:
            self._lost[number] = self._lost.get(number, 0) + process.ready  # else it did not die of the task
            if self._lost[number] > MAX_LOSSES:
                raise EngineError(
                    f"{MAX_LOSSES} worker processes died on the same task (out of memory?); the run is over"
                )
            self.submit(number, self._resumed(number, self._tasks[number]))

    def close(self) -> None:
        """End everything at once."""
        for process in self._processes:
            _end(process)
        self._processes.clear()


def _end(process: _Process) -> None:
    with contextlib.suppress(OSError):
        process.child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.child.wait(GRACE)
    for pipe in (process.child.stdin, process.child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError, ValueError):
                pipe.close()


def serve(make: Callable[[Any], Starts]) -> None:
    """The life of a worker process: tasks from standard input, reports to standard output, until the input ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints, prints elsewhere
    source = sys.stdin.buffer
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    setup = pickle.load(source)

    def listen() -> None:
        try:
            while True:
                inbox.put(pickle.load(source))
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(0)  # also in the middle of a check: whoever asked is gone

    threading.Thread(target=listen, daemon=True).start()
    try:
        turns = Turns(make(setup))
        pickle.dump(READY, out)
        out.flush()
        while True:
            while not turns or not inbox.empty():
                number, task = inbox.get()
                if task is None:
                    turns.drop(number)
                else:
                    turns.add(number, task)
            for report in turns.steps():
                pickle.dump(report, out)
            out.flush()
    except Exception as problem:  # a mistake here would be made by the next worker too: say so, and do not try again
        known = isinstance(problem, (OutOfMemoryError, OutOfTimeError, EngineError, MemoryError))
        pickle.dump(problem if known else EngineError(f"a worker failed: {type(problem).__name__}: {problem}"), out)
        out.flush()
        threading.Event().wait()  # until the input ends
