"""SG (symbolic generation, Aggarwal et al. 2019): local decision trees explain inputs, negated path tests make new ones."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from boxqte.testers.coordinates import Coordinates, FloatArray
from boxqte.testers.session import Session
from boxqte.testers.tester import Tester
from boxqte.testers.trees import BoxTree, Condition

SEED_RANK = 5.0
LOCAL_RANK = 2.0  # an IDI of at most this rank came from an IDI by one changed attribute
STAND_IN = 10_000  # inputs drawn from the space where there is no data


class SymbolicGeneration(Tester):
    """Explains inputs by decision trees and negates the tests on their paths (SG)."""

    name = "sg"
    options: Options

    @dataclass(frozen=True)
    class Options:
        """Options of SG."""

        seeds: int = 1000
        """Inputs from the data that the search begins with."""
        clusters: int = 4
        """The clusters of the data that the seeds are taken from in turn."""
        rows: int = 5000
        """The rows that a decision tree is fitted on."""
        least_confidence: float = 0.3
        """The global search leaves a path at the first test that fewer of the samples share."""
        at_once: int = 512
        """Batch mode: inputs that share one decision tree and one call of the model."""
        queue: int = 200_000
        """The most inputs that wait; beyond it the worse half is dropped."""

    def needs(self) -> tuple[str, ...]:
        return ("sklearn.tree", "sklearn.cluster")

    def search(self, session: Session) -> None:
        """Test the best inputs in the queue, put their children into it, repeat."""
        options, at = self.options, session.at
        data = session.data(STAND_IN)
        queue = _Queue(options.queue)
        for seed in self._seeds(session, data):
            queue.push(SEED_RANK, seed)
        session.details |= {"global": 0, "local": 0}
        tried: set[tuple[Condition, ...]] = set()
        while queue.entries:
            batch = queue.pop(session.room(options.at_once if self.batch else 1))
            x = np.array([entry[2] for entry in batch])
            known = session.known(x)
            flips = session.test(x)
            for entry, is_idi, old in zip(batch, flips.tolist(), known.tolist()):
                if is_idi and not old:
                    session.details["local" if entry[0] <= LOCAL_RANK else "global"] += 1
            tree = self._explainer(session, data, x)
            for t, is_idi in zip(x, flips.tolist()):
                path = tree.path(t)
                if is_idi:
                    self._local(at, session.rng, t, path, tried, queue)
                self._global(at, session.rng, t, path, queue)

    def _seeds(self, session: Session, data: FloatArray) -> list[FloatArray]:
        """Rows of the data, one of each cluster in turn."""
        from sklearn.cluster import KMeans

        options = self.options
        n = min(options.clusters, len(np.unique(data, axis=0)))
        of_row = KMeans(n, n_init=1, random_state=int(session.rng.integers(2**31))).fit_predict(data)
        groups = [session.rng.permutation(np.flatnonzero(of_row == c)) for c in range(n)]
        turns = range(max(len(g) for g in groups))
        order = [g[i] for i in turns for g in groups if i < len(g)]
        return list(data[order[: options.seeds]])

    def _explainer(self, session: Session, data: FloatArray, x: FloatArray) -> BoxTree:
        """A tree over rows whose columns are drawn independently from the data, and the inputs to be explained.

        The rows do not depend on the input, so in batch mode all inputs of a step share them.
        """
        n = self.options.rows - 1
        picked = session.rng.integers(0, len(data), (n, len(session.at)))
        rows = np.concatenate([x, np.take_along_axis(data, picked, axis=0)])
        labels = session.labels(rows)
        return BoxTree(session.at, rows, labels, criterion="gini", seed=int(session.rng.integers(2**31)))

    def _local(
        self,
        at: Coordinates,
        rng: np.random.Generator,
        t: FloatArray,
        path: list[Condition],
        tried: set[tuple[Condition, ...]],
        queue: _Queue,
    ) -> None:
        """Around an IDI: negate each test in turn and move only the attribute that it is about."""
        for i, condition in enumerate(path):
            if condition.feature == at.sensitive:
                continue
            changed = [*path[:i], condition.negated(), *path[i + 1 :]]
            if tuple(changed) in tried:
                continue
            tried.add(tuple(changed))
            child = solve(at, rng, t, [c for c in changed if c.feature == condition.feature])
            if child is not None:
                queue.push(1 + _mean_confidence(changed), child)

    def _global(
        self, at: Coordinates, rng: np.random.Generator, t: FloatArray, path: list[Condition], queue: _Queue
    ) -> None:
        """Away from any input: keep a prefix of the path and negate the test behind it."""
        prefix: list[Condition] = []
        for condition in path:
            if condition.feature == at.sensitive:
                continue
            if condition.confidence < self.options.least_confidence:
                break
            changed = [*prefix, condition.negated()]
            child = solve(at, rng, t, changed)
            if child is not None:
                queue.push(10 - _mean_confidence(changed), child)
            prefix.append(condition)


def solve(
    at: Coordinates, rng: np.random.Generator, t: FloatArray, conditions: Sequence[Condition]
) -> FloatArray | None:
    """An input that meets the conditions and equals t where they say nothing; None if there is none.

    The conditions on an attribute are an interval, so no solver is needed.
    """
    low, high = t.copy(), t.copy()
    for f in {c.feature for c in conditions}:
        low[f], high[f] = at.low[f], at.high[f]
    for f, at_most, threshold, _ in conditions:
        if at_most:
            high[f] = min(high[f], np.floor(threshold) if at.integral[f] else threshold)
        else:
            low[f] = max(low[f], np.floor(threshold) + 1 if at.integral[f] else np.nextafter(threshold, np.inf))
    if (low > high).any():
        return None
    child: FloatArray = at.draw_box(rng, low[None], high[None])[0]
    return child


def _mean_confidence(conditions: Sequence[Condition]) -> float:
    return sum(c.confidence for c in conditions) / len(conditions)


@dataclass
class _Queue:
    """Inputs by rank, lowest first; equal ranks in the order they came."""

    largest: int
    entries: list[tuple[float, int, Any]] = field(default_factory=list)
    pushed: int = 0

    def push(self, rank: float, x: FloatArray) -> None:
        self.pushed += 1
        heapq.heappush(self.entries, (rank, self.pushed, x))
        if len(self.entries) > self.largest:
            self.entries = heapq.nsmallest(self.largest // 2, self.entries, key=lambda entry: entry[:2])

    def pop(self, n: int) -> list[tuple[float, int, Any]]:
        return [heapq.heappop(self.entries) for _ in range(min(n, len(self.entries)))]
