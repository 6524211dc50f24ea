"""The driver of the box engine: owns the open boxes, the deadline, the threads and the sums; knows no mathematics.

A worker takes a batch of boxes and hands back decided masses and the boxes that are still open. Nothing else passes
between them, and all of it is plain arrays and numbers, so a worker may as well live in another process.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from boxqte.basics.machine import half_of_memory
from boxqte.engines.box.inside import Enclosure, Inside, enclosed, seconds_for
from boxqte.engines.protocol import (
    BoxArray,
    Decided,
    Entry,
    FloatArray,
    Keeper,
    Limits,
    Masses,
    Observer,
    Outcome,
    Recorder,
    Reply,
    Saved,
    Status,
    Watch,
)
from boxqte.exact import down, up

REPORT_EVERY = 0.05  # seconds
ENTRY_BYTES = 250  # a queue entry without the box itself: tuple, numbers, bytes header
DEPTH_FIRST_FROM = 0.75  # of the memory limit
COUNTS = ("nodes", "finished", "exact", "calls", "peak")


class Worker(Protocol):
    """One per thread; owns its working memory. A call takes a fraction of a second and always makes progress."""

    @property
    def memory(self) -> int:
        """Bytes of working memory."""
        ...

    def work(self, boxes: BoxArray, masses: FloatArray, budget: int, depth_first: bool) -> Reply:
        """Decide what can be decided of the boxes within about `budget` nodes.

        With depth_first, go on into every part as far as the budget allows; the open boxes come deepest first.
        """
        ...

    def halt(self) -> None:
        """Called from another thread: a call that could take long should come back now, with what is open. For good."""
        ...


class ExactSum:
    """A sum of floats without any rounding (Shewchuk's expansions, as in math.fsum, but kept)."""

    def __init__(self, parts: Sequence[float] = ()) -> None:
        self._parts = list(parts)

    @property
    def parts(self) -> tuple[float, ...]:
        return tuple(self._parts)

    def add(self, x: float) -> None:
        kept = []
        for y in self._parts:
            if abs(x) < abs(y):
                x, y = y, x
            high = x + y
            low = y - (high - x)
            if low:
                kept.append(low)
            x = high
        self._parts = [*kept, x]

    @property
    def value(self) -> Fraction:
        return sum(map(Fraction, self._parts), Fraction(0))


@dataclass
class OpenBoxes:
    """The queue, best first on mass / sqrt(cost); what depth-first work gave back is taken first, last in first out.

    A box is kept as the bytes that any of the root boxes uses.
    """

    used: npt.NDArray[np.intp]
    shape: tuple[int, int]
    heap: list[Entry] = field(default_factory=list)
    stack: list[Entry] = field(default_factory=list)
    serial: int = 0

    @classmethod
    def of(cls, roots: BoxArray) -> OpenBoxes:
        if not len(roots):
            return cls(np.zeros(0, np.intp), (roots.shape[1], roots.shape[2]))
        union = np.ascontiguousarray(np.bitwise_or.reduce(roots, axis=0))
        return cls(np.flatnonzero(union.reshape(-1).view(np.uint8)), (roots.shape[1], roots.shape[2]))

    def __len__(self) -> int:
        return len(self.heap) + len(self.stack)

    @property
    def memory(self) -> int:
        return len(self) * (ENTRY_BYTES + len(self.used))

    def push(self, boxes: BoxArray, masses: FloatArray, costs: FloatArray) -> range:
        """Queue the boxes; their serial numbers."""
        scores = -masses / np.sqrt(np.maximum(costs, 1.0))
        first = self.serial
        for entry in self._entries(scores, boxes, masses):
            heapq.heappush(self.heap, entry)
        return range(first, self.serial)

    def stack_up(self, boxes: BoxArray, masses: FloatArray) -> range:
        first = self.serial
        self.stack.extend(reversed(self._entries(np.zeros(len(boxes)), boxes, masses)))
        return range(first, self.serial)

    def take(self, count: int) -> list[Entry]:
        """The best boxes, at most so many; one that depth-first work left, if there is any."""
        if self.stack:
            return [self.stack.pop()]
        return [heapq.heappop(self.heap) for _ in range(min(count, len(self.heap)))]

    def unpacked(self, entries: Sequence[Entry]) -> tuple[BoxArray, FloatArray]:
        """The boxes of some entries, and their masses."""
        n_axes, words = self.shape
        rows = np.zeros((len(entries), n_axes * words * 8), np.uint8)
        if len(self.used):
            packed = b"".join(entry[3] for entry in entries)
            rows[:, self.used] = np.frombuffer(packed, np.uint8).reshape(len(entries), -1)
        return rows.view(np.uint64).reshape(len(entries), n_axes, words), np.array([entry[2] for entry in entries])

    def _entries(self, scores: FloatArray, boxes: BoxArray, masses: FloatArray) -> list[Entry]:
        # the serial number settles ties by age, so that a run with one worker can be repeated exactly
        first = self.serial
        self.serial += len(boxes)
        return list(zip(scores.tolist(), range(first, self.serial), masses.tolist(), self._packed(boxes)))

    def masses(self) -> FloatArray:
        """The mass of every open box."""
        return np.array([entry[2] for entry in [*self.heap, *self.stack]], dtype=np.float64)

    def boxes(self, at: npt.NDArray[np.int64]) -> BoxArray:
        """Some of the boxes, by their place in `masses`."""
        n = len(self.heap)
        return self.unpacked([self.heap[i] if i < n else self.stack[i - n] for i in at.tolist()])[0]

    def _packed(self, boxes: BoxArray) -> list[bytes]:
        n_axes, words = self.shape
        rows = np.ascontiguousarray(boxes).reshape(len(boxes), n_axes * words).view(np.uint8)[:, self.used]
        return [row.tobytes() for row in rows]


class _Run:
    """The state that the threads share, all of it under one lock."""

    def __init__(
        self,
        roots: BoxArray,
        masses: FloatArray,
        limits: Limits,
        batch: int,
        call_nodes: int,
        slack: Fraction,
        observers: Sequence[Observer],
        recorder: Recorder | None,
        forbidden: float,
        least_low: Fraction,
    ):
        self.observers = observers
        self.recorder = recorder
        self.limits = limits
        self.batch = batch
        self.call_nodes = call_nodes
        self.slack = slack
        self.changed = threading.Condition()
        self.open = OpenBoxes.of(roots)
        self.open.push(roots, masses, np.ones(len(roots)))
        self.sums = {kind: ExactSum() for kind in ("fair", "unfair", "low", "ambiguous")}
        self.sums["low"].add(forbidden)
        self.least_low = least_low
        self.nodes = self.finished = self.exact = self.calls = self.peak = 0
        self.out: dict[int, tuple[list[Entry], bool]] = {}
        """the batches that workers have in hand, by ticket, and whether they are worked on depth first"""
        self.tickets = 0
        self.stop: Status | None = None
        self.error: BaseException | None = None
        self.room = limits.memory_limit or half_of_memory()
        self.proved: Masses = (0.0, 0.0, 0.0)

    @property
    def busy(self) -> int:
        return len(self.out)

    def saved(self) -> Saved:
        """The state at this moment; to be called under the lock."""
        taken = [([], entries) if deep else (entries, []) for entries, deep in self.out.values()]
        return Saved(
            {kind: total.parts for kind, total in self.sums.items()},
            {name: getattr(self, name) for name in COUNTS} | {"serial": self.open.serial},
            [*self.open.heap, *(entry for entries, _ in taken for entry in entries)],
            [*self.open.stack, *(entry for _, entries in taken for entry in entries)],
            0 if self.recorder is None else self.recorder.mark(),
            self.proved,
        )

    def restore(self, saved: Saved) -> None:
        """Go on from a saved state instead of the roots."""
        self.sums = {kind: ExactSum(saved.sums[kind]) for kind in self.sums}
        for name in COUNTS:
            setattr(self, name, saved.counts[name])
        self.open.serial = saved.counts["serial"]
        self.open.heap = sorted(saved.heap)
        self.open.stack = list(saved.stack)
        self.proved = saved.proved

    def take(self) -> tuple[BoxArray, FloatArray, int, bool, int] | None:
        """The next batch for a thread, with its ticket; None if it should end."""
        with self.changed:
            while self.stop is None and not self.open and self.busy:
                self.changed.wait()
            if self.nodes >= (self.limits.node_limit or float("inf")):
                self.stop = self.stop or Status.NODES
            if self.stop is not None or not self.open:
                self.changed.notify_all()
                return None
            left = self.call_nodes if self.limits.node_limit is None else self.limits.node_limit - self.nodes
            depth_first = self.open.memory > DEPTH_FIRST_FROM * self.room
            # Few boxes: leave some to the other threads. Depth first: one at a time, or the frontier would grow.
            fair_share = -(-len(self.open) // self.limits.workers)
            entries = self.open.take(1 if depth_first else min(self.batch, fair_share))
            self.tickets += 1
            self.out[self.tickets] = entries, depth_first
            boxes, masses = self.open.unpacked(entries)
            return boxes, masses, min(self.call_nodes, left), depth_first, self.tickets

    def give(self, reply: Reply, ticket: int) -> None:
        """Account for a batch that came back."""
        with self.changed:
            entries, depth_first = self.out.pop(ticket)
            self.calls += 1
            self.nodes += reply.nodes
            self.finished += reply.finished
            self.exact += reply.exact
            for kind, total in self.sums.items():
                total.add(getattr(reply, kind))
            if reply.closed is not None and len(reply.closed.how):
                for observer in self.observers:
                    observer.closed(reply.closed)
            if depth_first:
                opened = self.open.stack_up(reply.boxes, reply.masses)
            else:
                opened = self.open.push(reply.boxes, reply.masses, reply.costs)
            if self.recorder is not None:
                self.recorder.record([entry[1] for entry in entries], reply, opened)
            self.peak = max(self.peak, self.open.memory)
            if self.open.memory > self.room:
                self.stop = self.stop or Status.MEMORY
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.error = error
            self.stop = self.stop or Status.INTERRUPTED
            self.changed.notify_all()

    @property
    def done(self) -> bool:
        return self.stop is not None or not (self.open or self.busy)

    def closed_masses(self) -> tuple[Fraction, ...]:
        """The sums, lowered by the proved bound on all rounding errors: what is left is a theorem."""
        # `fair` is a box's mass minus what is unfair or low in it: it carries the errors of all three.
        times = {"fair": 3, "unfair": 1, "low": 1}
        return tuple(max(self.sums[kind].value - n * self.slack, Fraction(0)) for kind, n in times.items())

    def decided(self, inside: Enclosure | None = None) -> Decided:
        """All that is proved, with what is proved inside open boxes. Nothing that was proved once is taken back."""
        masses = self.closed_masses()
        if inside is not None:
            masses = tuple(a + b for a, b in zip(masses, inside.sums()))
            self.proved = tuple(max(down(a), b) for a, b in zip(masses, self.proved))
        fair, unfair, low = (max(down(a), b) for a, b in zip(masses, self.proved))
        return Decided(fair, unfair, low if low >= self.least_low else self.least_low)


def drive(
    make_worker: Callable[[], Worker],
    roots: BoxArray,
    masses: FloatArray,
    limits: Limits,
    watch: Watch,
    *,
    rounding: Fraction,
    batch: int = 8,
    call_nodes: int = 4000,
    observers: Sequence[Observer] = (),
    recorder: Recorder | None = None,
    keeper: Keeper | None = None,
    inside: Inside | None = None,
    forbidden: float = 0.0,
    least_low: Fraction = Fraction(0),
) -> Outcome:
    """Decide the root boxes, best first, on `limits.workers` threads, until all is decided or a limit is met.

    Parameters
    ----------
    make_worker
        Called once per thread, in this thread.
    rounding
        A proved bound, relative to the mass of all boxes, on the rounding error of each sum of decided masses.
    batch, call_nodes
        How many boxes a worker gets at once, and how many nodes it may spend on them.
    observers
        Are shown every closed box; the workers must then keep them (`Reply.closed`). Several root boxes need no tags: a
        closed box lies in one of them.
    recorder
        Is shown how every batch was taken apart.
    keeper
        Saves the state now and then and at the end, and may have one to go on from.
    inside
        How the workers bound the masses inside boxes that a limit leaves open, if they can. Some of the time is kept for that.
        With a recorder it is not used: a record proves what is closed, and the result claims nothing more.
    forbidden
        The mass of what rules forbid outside of the root boxes, which is not confident, within the rounding bound.
    least_low
        What is known of the mass that is not confident before the search: all that rules forbid.
    """
    if recorder is not None:
        inside = None
    whole = watch.seconds_left
    run = _Run(roots, masses, limits, batch, call_nodes, rounding, observers, recorder, forbidden, least_low)
    saved = None if keeper is None else keeper.restore(len(run.open.used), watch)
    if saved is not None:
        run.restore(saved)
    if recorder is not None:
        recorder.begin(None if saved is None else saved.record)
    threads: list[threading.Thread] = []
    workers: list[Worker] = []
    status: Status | None = None
    try:
        workers = [make_worker() for _ in range(limits.workers)]
        run.room -= sum(worker.memory for worker in workers)
        threads = [threading.Thread(target=_serve, args=(run, worker), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        status = _wait(run, watch, keeper, whole if inside is not None else 0.0)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    with run.changed:
        run.stop = run.stop or status or Status.CONVERGED
        run.changed.notify_all()
    if run.busy:
        for worker in workers:
            worker.halt()
    for thread in threads:
        thread.join()
    if run.error is not None:
        if keeper is not None:  # the batch that failed counts as open: with more memory, say, it may succeed
            keeper.save(run.saved(), watch)
        raise run.error
    if not run.open and not run.busy and status is not Status.INTERRUPTED:
        status = Status.CONVERGED
        run.proved = (0.0, 0.0, 0.0)  # the sums say it all
    found = None
    if inside is not None:

        def moment(now: Enclosure) -> bool:
            """Report, but after an interrupt: the user's callback may have been its source."""
            nonlocal status
            if status is not Status.INTERRUPTED:
                reason = watch.report(run.decided(now), nodes=run.nodes, open_boxes=len(run.open))
                status = reason if reason in (Status.GAP, Status.REQUIREMENT) else status
            return status in (Status.GAP, Status.REQUIREMENT)

        why, elapsed = status or run.stop, watch.seconds - watch.earlier
        found = enclosed(inside, run.open, workers, why, elapsed, watch.seconds_left, run.nodes, moment)
    decided = run.decided(found)
    if status is not Status.INTERRUPTED:
        try:
            reason = watch.report(decided, nodes=run.nodes, open_boxes=len(run.open))
        except KeyboardInterrupt:  # what is proved stays so
            reason = status = Status.INTERRUPTED
        if found is not None and reason in (Status.GAP, Status.REQUIREMENT):
            status = reason
    if keeper is not None:
        keeper.save(run.saved(), watch)
    if found is not None and found.error is not None:
        raise found.error
    ambiguous = run.sums["ambiguous"].value
    return Outcome(
        decided,
        status or run.stop,
        up(min(ambiguous + (run.slack if ambiguous else 0), Fraction(1))),
        {
            "nodes": run.nodes,
            "finished": run.finished,
            "exact_points": run.exact,
            "calls": run.calls,
            "open_boxes": len(run.open),
            "enclosed_boxes": 0 if found is None else found.asked,
            "queue_bytes": run.peak,
        },
        open=run.open if run.open else None,
        outside=Decided(*map(down, run.closed_masses())),
    )


def _wait(run: _Run, watch: Watch, keeper: Keeper | None, whole: float) -> Status | None:
    """Report and save now and then until the run is over; the reason to stop, if the watch or a limit gave one.

    whole: the time of the run, of which some is kept for bounds inside open boxes; 0 keeps none.
    """
    last = time.perf_counter()
    while True:
        with run.changed:
            kept = seconds_for(len(run.open), run.limits.workers, whole)
            if not run.done:
                run.changed.wait(min(REPORT_EVERY, max(watch.seconds_left - kept, 0.001)))
            if run.done:
                return run.stop
            now = time.perf_counter()
            if now - last < REPORT_EVERY and watch.seconds_left > kept:
                continue
            state = run.decided(), run.nodes, len(run.open)
            saved = run.saved() if keeper is not None and keeper.seconds_left <= 0 else None
        last = now
        if keeper is not None and saved is not None:
            keeper.save(saved, watch)
        # Outside the lock: whatever the user's callback does, the workers go on.
        reason = watch.report(state[0], nodes=state[1], open_boxes=state[2])
        if reason is None and watch.seconds_left <= kept:
            reason = Status.TIME
        if reason is not None:
            return reason


def _serve(run: _Run, worker: Worker) -> None:
    """The life of a worker's thread."""
    while (task := run.take()) is not None:
        boxes, masses, budget, depth_first, ticket = task
        try:
            run.give(worker.work(boxes, masses, budget, depth_first), ticket)
        except BaseException as error:
            run.fail(error)
            return
