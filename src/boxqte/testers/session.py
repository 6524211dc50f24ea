"""One run of a tester: the black box, the budget, the random numbers, and what was found so far.

A tester is an endless loop over a Session. `check` and `room` raise `Spent` when the budget is used up, which ends the
run; a tester calls one of them before every test or batch of tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from boxqte.testers.blackbox import BlackBox
from boxqte.testers.coordinates import BoolArray, Coordinates, FloatArray, IntArray

SLOW_BATCH = 0.25  # seconds: batches that take longer do not grow, so that a time limit is met
CURVE_STEP = 0.01
PROGRESS_STEP = 0.1
MOST_ORDERS = 2**21  # random orders of sensitive values that are held at once, times their length
WAVE = 16  # how many other sensitive values are asked at once


class Spent(Exception):  # noqa: N818  (no error: it ends every run)
    """The budget is used up."""


@dataclass(frozen=True)
class Progress:
    """A moment of a run, for display."""

    seconds: float
    tests: int
    idis: int

    @property
    def rate(self) -> float:
        """IDIs a second."""
        return self.idis / self.seconds if self.seconds > 0 else 0.0


class Session:
    """What a tester may use.

    Attributes
    ----------
    at
        The coordinates of the space.
    rng
        The only source of random numbers.
    batch
        Whether many rows may be asked at once.
    data
        Rows like those the model was trained on, in coordinates; drawn from the space if the user gave none.
    details
        Figures of the tester's own, for the result.
    """

    def __init__(
        self,
        box: BlackBox,
        at: Coordinates,
        *,
        batch: bool,
        seconds: float | None,
        tests: int | None,
        random_state: int | None,
        data: FloatArray | None = None,
        progress: Callable[[Progress], None] | None = None,
    ):
        self.at = at
        self.batch = batch
        self.rng = np.random.default_rng(random_state)
        self.details: dict[str, Any] = {}
        self.tests = 0
        self.raw = 0
        self.curve: list[tuple[float, int, int]] = [(0.0, 0, 0)]
        self._box = box
        self._data = data
        self._seconds = seconds
        self._tests = tests
        self._progress = progress
        self._next_progress = 0.0
        self._seen: set[Any] = set()
        self._found: list[FloatArray] = []
        self._partners: list[FloatArray] = []
        self._started = time.perf_counter()

    # --- the budget ---

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    @property
    def seconds_left(self) -> float | None:
        """None if the budget is not in seconds."""
        return None if self._seconds is None else self._seconds - self.seconds

    @property
    def timed(self) -> bool:
        return self._seconds is not None

    def check(self) -> None:
        """Raise `Spent` if the time is up or no test is left."""
        now = self.seconds
        if self._progress is not None and now >= self._next_progress:
            self._next_progress = now + PROGRESS_STEP
            self._progress(Progress(now, self.tests, self.idis))
        if self._seconds is not None and now >= self._seconds:
            raise Spent("time limit")
        if self._tests is not None and self.tests >= self._tests:
            raise Spent("tests")

    def room(self, wanted: int) -> int:
        """How many of so many tests the budget still allows: at least one, or `Spent` is raised."""
        self.check()
        return wanted if self._tests is None else min(wanted, self._tests - self.tests)

    def sizes(self, largest: int) -> Iterator[int]:
        """How many tests to make at once: 1, or growing numbers as long as they are quick.

        Without a time limit the numbers do not depend on the clock, so that a run can be repeated.
        """
        size = min(64, largest) if self.batch else 1
        while True:
            before = self.seconds
            yield self.room(size)
            if self.batch and not (self.timed and self.seconds - before > SLOW_BATCH):
                size = min(2 * size, largest)

    # --- questions to the model ---

    def labels(self, x: FloatArray) -> IntArray:
        """The labels of the rows, in one call. The budget is not looked at: a test that has begun is finished."""
        return self._box.labels(self.at, x)

    def each_label(self, x: FloatArray) -> IntArray:
        """The labels of the rows: in one call in batch mode, else one row at a time like the originals."""
        if self.batch or len(x) == 1:
            return self.labels(x)
        return np.concatenate([self.labels(row[None]) for row in x])

    def test(self, x: FloatArray) -> BoolArray:
        """Test inputs: ask f, then the other sensitive values in random order until the first flip; which rows flip."""
        self.tests += len(x)
        return self.flips(x, self.each_label(x))

    def flips(self, x: FloatArray, labels: IntArray, tried: FloatArray | None = None) -> BoolArray:
        """Which rows have another label under another sensitive value; those are recorded. Not counted as tests.

        `tried` is one sensitive value a row that is known not to flip.
        """
        at, n, k = self.at, len(x), len(self.at.values)
        most = max(MOST_ORDERS // k, 1)
        if n > most:
            parts = [slice(start, start + most) for start in range(0, n, most)]
            return np.concatenate([self.flips(x[p], labels[p], None if tried is None else tried[p]) for p in parts])
        order = self.rng.random((n, k)).argsort(axis=1) if k > 2 else np.tile(np.arange(k), (n, 1))
        own = np.rint(x[:, at.sensitive] - at.values[0]).astype(np.int64)
        rank = np.take_along_axis(np.ones((n, k), np.int64), order, axis=1)
        rank[order == own[:, None]] = 2
        if tried is not None:
            rank[order == np.rint(tried - at.values[0]).astype(np.int64)[:, None]] = 2
        # What need not be asked goes to the end, the rest keeps its random order.
        order = np.take_along_axis(order, rank.argsort(axis=1, kind="stable"), axis=1)
        asked = (rank == 1).sum(axis=1)
        ruled = bool(at.space.rules)
        if ruled:  # what is forbidden is no x, and below no partner
            asked[~at.allowed(x)] = 0
        partner = np.full(n, np.nan)
        step = WAVE if self.batch else 1
        for start in range(0, k, step):
            open_rows = np.flatnonzero(np.isnan(partner) & (asked > start))
            if not len(open_rows):
                break
            wave = order[open_rows, start : min(start + step, int(asked.max()))]
            width = wave.shape[1]
            values = at.values[wave]
            rows = at.with_sensitive(np.repeat(x[open_rows], width, axis=0), values.ravel())
            other = self.labels(rows).reshape(-1, width) != labels[open_rows, None]
            other &= np.arange(start, start + width) < asked[open_rows, None]
            if ruled:
                other &= at.allowed(rows).reshape(-1, width)
            hit = other.any(axis=1)
            partner[open_rows[hit]] = values[hit, other[hit].argmax(axis=1)]
        flipped: BoolArray = ~np.isnan(partner)
        if flipped.any():
            self.found(x[flipped], partner[flipped])
        return flipped

    # --- what is found ---

    @property
    def idis(self) -> int:
        """Distinct IDIs so far."""
        return len(self._seen)

    def found(self, x: FloatArray, partner: FloatArray) -> BoolArray:
        """Record inputs that flip under the sensitive values `partner`; which of them are new."""
        new = np.zeros(len(x), bool)
        kept = np.ones(len(x), bool)
        if self.at.space.rules:
            kept = self.at.allowed(x) & self.at.allowed(self.at.with_sensitive(x, partner))
        self.raw += int(kept.sum())
        for i, key in enumerate(self.at.keys(x)):
            if kept[i] and key not in self._seen:
                self._seen.add(key)
                new[i] = True
        if new.any():
            self._found.append(x[new])
            self._partners.append(partner[new])
            now = self.seconds
            if len(self.curve) > 1 and now - self.curve[-2][0] < CURVE_STEP:
                self.curve.pop()
            self.curve.append((now, self.tests, self.idis))
        return new

    def known(self, x: FloatArray) -> BoolArray:
        """Which inputs are already recorded, whatever their sensitive value."""
        return np.array([key in self._seen for key in self.at.keys(x)], bool)

    def pairs(self) -> tuple[FloatArray, FloatArray]:
        """All recorded inputs and their partners."""
        if not self._found:
            empty = np.zeros((0, len(self.at)))
            return empty, empty
        x = np.concatenate(self._found)
        return x, self.at.with_sensitive(x, np.concatenate(self._partners))

    # --- data ---

    def data(self, n: int) -> FloatArray:
        """The user's data; without any, n inputs drawn from the space stand in for it."""
        return self.at.draw(self.rng, n) if self._data is None else self._data
