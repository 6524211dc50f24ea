"""Bounds inside the boxes that a limit leaves open (docs/engine.md, Theorem 10), on all workers, until the time is up.

The boxes stay open: nothing that is found here enters the sums of closed boxes, so a checkpoint can go on from them.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.engines.protocol import Status

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Level:
    """An effort: how many cells the grids may have, what a box costs then, and how much of what is open it settles."""

    cells: int
    seconds: float
    gain: float


LEVELS = (Level(500, 4e-4, 0.4), Level(4000, 6e-4, 0.15), Level(32_000, 1.8e-3, 0.1), Level(250_000, 1.2e-2, 0.08))
SECONDS_A_BOX = 1.2e-3  # of one worker, so that the first two or three levels reach every box
LARGEST_SHARE = 0.5  # of the time for the whole run
SHORT = 0.5  # seconds, where a run is interrupted
SHARE_OF_MEMORY_RUN = 0.25  # of the seconds so far, where memory ends it
NODES_A_BOX, FEW_BOXES = (
    40,
    64,
)  # where nodes are limited, one box for so many of them: such a run can be repeated exactly
MOMENT = 0.25  # seconds


@dataclass(frozen=True)
class Inside:
    """How the workers bound the masses inside boxes that stay open."""

    enclose: Callable[[Any, Any, int], FloatArray]
    """worker, boxes, cells -> box x [fair, unfair, low]: lower bounds of the masses of each box"""
    rounding: Fraction
    """a proved bound, relative to the mass of the boxes, on the rounding error of each sum of these masses"""
    batch_seconds: float = 0.01
    """how long a call should take: the time limit is kept that well"""


def seconds_for(n_boxes: int, workers: int, whole: float) -> float:
    """How much of the time that a run has in all is kept for bounds inside so many boxes."""
    return min(n_boxes * SECONDS_A_BOX / workers, LARGEST_SHARE * whole) if whole < float("inf") else 0.0


@dataclass
class Enclosure:
    """What is known about the open boxes, and which of them is next."""

    inside: Inside
    open: Any
    masses: FloatArray
    deadline: float
    most: float
    """how many boxes may be asked about"""
    levels: Sequence[Level]
    found: FloatArray = field(init=False)
    asked: int = 0
    error: BaseException | None = None
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    heap: list[tuple[float, int, int]] = field(init=False)
    """minus what a second on the box should settle, the level to ask it at, the box"""

    def __post_init__(self) -> None:
        self.found = np.zeros((len(self.masses), 3))
        first = self.levels[0]
        self.heap = [(-m * first.gain / first.seconds, 0, i) for i, m in enumerate(self.masses.tolist())]
        heapq.heapify(self.heap)

    def take(self) -> tuple[Level, npt.NDArray[np.int64]] | None:
        """Some boxes of one level; None if there is no time, or nothing to do."""
        with self.lock:
            if self.stopped or not self.heap or self.asked >= self.most or time.perf_counter() >= self.deadline:
                return None
            at = self.heap[0][1]
            level = self.levels[at]
            count = int(min(max(self.inside.batch_seconds / level.seconds, 1), self.most - self.asked))
            boxes: list[int] = []
            while self.heap and self.heap[0][1] == at and len(boxes) < count:
                boxes.append(heapq.heappop(self.heap)[2])
            self.asked += len(boxes)
            return level, np.array(boxes, np.int64)

    def give(self, level: Level, boxes: npt.NDArray[np.int64], found: FloatArray) -> None:
        """Each bound holds on its own, so of two the larger one counts."""
        with self.lock:
            self.found[boxes] = np.maximum(self.found[boxes], found)
            after = self.levels.index(level) + 1
            if after == len(self.levels):
                return
            dearer = self.levels[after]
            left = self.masses[boxes] - self.found[boxes].sum(axis=1)
            for box, gap in zip(boxes.tolist(), left.tolist()):
                if gap > 0:
                    heapq.heappush(self.heap, (-gap * dearer.gain / dearer.seconds, after, box))

    def serve(self, worker: Any) -> None:
        """The life of a worker's thread."""
        try:
            while (task := self.take()) is not None:
                level, boxes = task
                self.give(level, boxes, self.inside.enclose(worker, self.open.boxes(boxes), level.cells))
        except BaseException as error:
            with self.lock:
                self.error, self.stopped = error, True

    def sums(self) -> tuple[Fraction, ...]:
        """Certain masses inside the open boxes: fair, unfair, low."""
        with self.lock:
            return _lowered(self.found, self.masses, self.inside.rounding)


def enclosed(
    inside: Inside, open: Any, workers: Sequence[Any], status: Status | None, elapsed: float, left: float, nodes: int,
    moment: Callable[[Enclosure], bool],
) -> Enclosure | None:  # fmt: skip
    """Ask about the open boxes as long as the reason for the end allows; `moment` is called now and then, and says when to stop.

    None if the end needs no bounds: all is decided, or what was asked is known.
    """
    most = float("inf")
    if status is Status.INTERRUPTED:
        left = min(left, SHORT)
    elif status is Status.MEMORY:
        left = min(left, max(SHARE_OF_MEMORY_RUN * elapsed, SHORT))
    elif status is Status.NODES:
        most = max(nodes // NODES_A_BOX, FEW_BOXES)
    elif status is not Status.TIME:
        return None
    masses = open.masses()
    if not len(masses) or left <= 0:
        return None
    levels = LEVELS[1:2] if status is Status.NODES else _affordable(len(masses), len(workers) * left)
    now = Enclosure(inside, open, masses, time.perf_counter() + left, most, levels)
    threads = [threading.Thread(target=now.serve, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        last = time.perf_counter()
        while any(thread.is_alive() for thread in threads) and not now.stopped:
            threads[0].join(0.02)
            if time.perf_counter() - last >= MOMENT:
                now.stopped = moment(now)
                last = time.perf_counter()
    except KeyboardInterrupt:  # pressed once more: that is enough
        pass
    now.stopped = True
    for thread in threads:
        thread.join()
    return now


def _affordable(n_boxes: int, seconds: float) -> Sequence[Level]:
    """Without the levels that are a waste because there is time for a dearer one on all boxes."""
    first = max((i for i, level in enumerate(LEVELS) if 2 * n_boxes * level.seconds <= seconds), default=0)
    return LEVELS[first:]


def _lowered(found: FloatArray, masses: FloatArray, rounding: Fraction) -> tuple[Fraction, ...]:
    """Sums without rounding, less the proved bound on all errors in their terms."""
    asked = found.sum(axis=1) > 0
    slack = rounding * Fraction(math.fsum(masses[asked].tolist()))
    return tuple(max(Fraction(math.fsum(column.tolist())) - slack, Fraction(0)) for column in found.T)
