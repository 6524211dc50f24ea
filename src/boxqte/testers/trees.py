"""A decision tree over coordinates, fitted with scikit-learn and read as boxes: what AFT, VBT and SG look at."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.testers.coordinates import Coordinates, FloatArray, IntArray


class Condition(NamedTuple):
    """One test on the path of an input: x[feature] <= threshold, or its opposite."""

    feature: int
    at_most: bool
    threshold: float
    confidence: float
    """The share of the node's samples that go the same way."""

    def negated(self) -> Condition:
        return Condition(self.feature, not self.at_most, self.threshold, 1 - self.confidence)


class BoxTree:
    """A fitted tree whose leaves are boxes, numbered from left to right.

    Attributes
    ----------
    low, high
        The closed ends of each leaf's box (leaves x attributes).
    label
        The label that each leaf predicts.
    """

    def __init__(
        self,
        at: Coordinates,
        x: FloatArray,
        labels: IntArray,
        *,
        criterion: Literal["gini", "entropy"],
        seed: int,
        max_leaves: int | None = None,
        truncate: bool = False,
    ):
        """`truncate` cuts thresholds off towards 0 instead of down, the published AFT's error on negative values."""
        from sklearn.tree import DecisionTreeClassifier

        learner = DecisionTreeClassifier(criterion=criterion, max_leaf_nodes=max_leaves, random_state=seed)
        fitted = learner.fit(x, labels)
        tree = fitted.tree_
        self.at = at
        self._tree = tree
        self.feature: npt.NDArray[np.int64] = tree.feature.astype(np.int64)
        self.threshold: FloatArray = tree.threshold
        self.left: npt.NDArray[np.int64] = tree.children_left.astype(np.int64)
        self.right: npt.NDArray[np.int64] = tree.children_right.astype(np.int64)
        self.samples: npt.NDArray[np.int64] = tree.n_node_samples.astype(np.int64)
        best = fitted.classes_[tree.value[:, 0, :].argmax(axis=1)]
        self._read_boxes(best.astype(np.int64), truncate)

    def _read_boxes(self, best: IntArray, truncate: bool) -> None:
        n = len(self.feature)
        low, high = np.tile(self.at.low, (n, 1)), np.tile(self.at.high, (n, 1))
        cut = np.trunc(self.threshold) if truncate else np.floor(self.threshold)
        leaves: list[int] = []
        self.first, self.stop = np.zeros(n, np.int64), np.zeros(n, np.int64)  # the leaves below a node are a range
        stack: list[tuple[int, bool]] = [(0, False)]
        while stack:
            node, done = stack.pop()
            if done:
                self.stop[node] = len(leaves)
                continue
            self.first[node] = len(leaves)
            if self.left[node] < 0:
                leaves.append(node)
                self.stop[node] = len(leaves)
                continue
            f, a, b = self.feature[node], self.left[node], self.right[node]
            low[a], high[a], low[b], high[b] = low[node], high[node], low[node], high[node]
            if self.at.integral[f]:
                high[a, f] = min(high[a, f], cut[node])
                low[b, f] = max(low[b, f], cut[node] + 1)
            else:
                high[a, f] = min(high[a, f], self.threshold[node])
                low[b, f] = max(low[b, f], np.nextafter(self.threshold[node], np.inf))
            stack += [(node, True), (int(b), False), (int(a), False)]
        self.leaves = np.array(leaves, np.int64)
        self.low, self.high, self.label = low[self.leaves], high[self.leaves], best[self.leaves]
        self._best = best

    def predict(self, x: FloatArray) -> IntArray:
        """The tree's labels."""
        labels: IntArray = self._best[self._tree.apply(x.astype(np.float32))]
        return labels

    def path(self, x: FloatArray) -> list[Condition]:
        """The tests that one input passes on its way, from the root on."""
        conditions = []
        node = 0
        while self.left[node] >= 0:
            at_most = bool(np.float32(x[self.feature[node]]) <= self.threshold[node])
            below = self.left[node] if at_most else self.right[node]
            share = float(self.samples[below] / self.samples[node])
            conditions.append(Condition(int(self.feature[node]), at_most, float(self.threshold[node]), share))
            node = int(below)
        return conditions
