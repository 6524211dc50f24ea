"""AFT (approximation-guided fairness testing, 2024): a decision tree stands in for the model, its leaf pairs are searched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boxqte.testers.coordinates import BoolArray, FloatArray, IntArray
from boxqte.testers.session import Session
from boxqte.testers.tester import Tester
from boxqte.testers.trees import BoxTree

FRUITLESS = 20  # restarts without a test, after which a run without time limit ends


class AFT(Tester):
    """Learns a decision tree and samples from pairs of leaves that differ in the sensitive attribute (AFT)."""

    name = "aft"
    options: Options

    @dataclass(frozen=True)
    class Options:
        """Options of AFT."""

        points: int = 5000
        """Random inputs that the first tree of a start is fitted on."""
        max_leaves: int = 1000
        """The most leaves of a tree."""
        pairs: int | None = None
        """The most leaf pairs of a round; none: 100 as published, and 2000 in batch mode, where a fit costs more."""
        tries: int | None = None
        """The most leaf pairs that a round looks at; none: 10,000 as published, and 200,000 in batch mode."""
        samples: int = 100
        """The most samples from a pair."""
        mistakes: int = 10
        """A pair is left after so many points that the tree predicts wrongly."""
        idle_rounds: int = 5
        """Start anew after so many rounds in which the tree made no mistake."""

    def needs(self) -> tuple[str, ...]:
        return ("sklearn.tree",)

    def search(self, session: Session) -> None:
        """Start again and again with fresh points."""
        session.details |= {"starts": 0, "rounds": 0}
        fruitless = 0
        while session.timed or fruitless < FRUITLESS:
            session.details["starts"] += 1
            before = session.tests
            self._start(session)
            fruitless = fruitless + 1 if session.tests == before else 0

    def _start(self, session: Session) -> None:
        """Rounds of fit, pair and sample, until one finds nothing or the tree stops learning."""
        x = session.at.draw(session.rng, self.options.points)
        labels = session.labels(x)
        idle = 0
        while idle < self.options.idle_rounds:
            session.check()
            session.details["rounds"] += 1
            tree = BoxTree(session.at, x, labels, criterion="entropy", seed=int(session.rng.integers(2**31)),
                           max_leaves=self.options.max_leaves, truncate=self.variant == "faithful")  # fmt: skip
            left, right = self.leaf_pairs(session, tree)
            if not len(left):
                return
            before = session.idis
            wrong, truth = (self._sample_all if self.batch else self._sample_each)(session, tree, left, right)
            if session.idis == before:
                return
            idle = 0 if len(wrong) else idle + 1
            x, labels = np.concatenate([x, wrong]), np.concatenate([labels, truth])

    def leaf_pairs(self, session: Session, tree: BoxTree) -> tuple[IntArray, IntArray]:
        """Leaves on different sides of a test on S that predict different labels and meet on all other attributes."""
        at, rng = session.at, session.rng
        left, right = draw_leaf_pairs(
            tree, at.sensitive, rng, self.options.tries or (200_000 if self.batch else 10_000)
        )
        others = at.others
        low = np.maximum(tree.low[left][:, others], tree.low[right][:, others])
        high = np.minimum(tree.high[left][:, others], tree.high[right][:, others])
        s = at.sensitive
        apart = (tree.high[left, s] < tree.low[right, s]) | (tree.high[right, s] < tree.low[left, s])
        # An interval of S may be empty where truncation (faithful) moved an end.
        real = (tree.low[left, s] <= tree.high[left, s]) & (tree.low[right, s] <= tree.high[right, s])
        keep = np.flatnonzero((tree.label[left] != tree.label[right]) & (low <= high).all(axis=1) & apart & real)
        keep = keep[: self.options.pairs or (2000 if self.batch else 100)]
        return left[keep], right[keep]

    def _draw(self, session: Session, tree: BoxTree, left: IntArray, right: IntArray) -> tuple[FloatArray, FloatArray]:
        """One input from the meeting of each leaf pair, with a sensitive value of either leaf."""
        at = session.at
        low, high = np.maximum(tree.low[left], tree.low[right]), np.minimum(tree.high[left], tree.high[right])
        s = at.sensitive
        low[:, s], high[:, s] = tree.low[left, s], tree.high[left, s]
        x = at.draw_box(session.rng, low, high)
        low[:, s], high[:, s] = tree.low[right, s], tree.high[right, s]
        return x, at.with_sensitive(x, at.draw_box(session.rng, low, high)[:, s])

    def _sample_each(self, session: Session, tree: BoxTree, left: IntArray, right: IntArray) -> _Points:
        """One sample at a time, as the original does."""
        wrong: list[FloatArray] = []
        truth: list[int] = []
        for pair in range(len(left)):
            mistakes = 0
            for _ in range(self.options.samples):
                session.room(1)
                found = self._test(session, tree, left[pair : pair + 1], right[pair : pair + 1])
                wrong += list(found[0])
                truth += found[1].tolist()
                mistakes += len(found[0])
                if mistakes >= self.options.mistakes:
                    break
        return np.array(wrong).reshape(-1, len(session.at)), np.array(truth, np.int64)

    def _sample_all(self, session: Session, tree: BoxTree, left: IntArray, right: IntArray) -> _Points:
        """A tenth of the samples of all pairs at once; pairs with too many mistakes are left out of the next tenth."""
        mistakes = np.zeros(len(left), np.int64)
        wrong, truth = np.zeros((0, len(session.at))), np.zeros(0, np.int64)
        wave = max(self.options.samples // 10, 1)
        for _ in range(0, self.options.samples, wave):
            pairs = np.repeat(np.flatnonzero(mistakes < self.options.mistakes), wave)
            if not len(pairs):
                break
            pairs = pairs[: session.room(len(pairs))]
            x, y, owner = self._test(session, tree, left[pairs], right[pairs])
            np.add.at(mistakes, pairs[owner], 1)
            wrong, truth = np.concatenate([wrong, x]), np.concatenate([truth, y])
        return wrong, truth

    def _test(
        self, session: Session, tree: BoxTree, left: IntArray, right: IntArray
    ) -> tuple[FloatArray, IntArray, IntArray]:
        """Test one sample a pair; the points that the tree predicts wrongly, their labels, and their samples."""
        x, other = self._draw(session, tree, left, right)
        session.tests += len(x)
        both = np.concatenate([x, other])
        labels = session.each_label(both)
        one, two = labels[: len(x)], labels[len(x) :]
        differ: BoolArray = one != two
        if differ.any():
            session.found(x[differ], other[differ, session.at.sensitive])
        if len(session.at.values) > 2 and not differ.all():
            session.flips(x[~differ], one[~differ], other[~differ, session.at.sensitive])
        mistaken = np.concatenate([one != tree.label[left], two != tree.label[right]])
        return both[mistaken], labels[mistaken], np.tile(np.arange(len(x)), 2)[mistaken]


_Points = tuple[FloatArray, IntArray]


def draw_leaf_pairs(tree: BoxTree, sensitive: int, rng: np.random.Generator, tries: int) -> tuple[IntArray, IntArray]:
    """Pairs of a leaf left and a leaf right of a test on the sensitive attribute, in random order; all if few enough."""
    nodes = np.flatnonzero((tree.left >= 0) & (tree.feature == sensitive))
    lefts, rights = tree.left[nodes], tree.right[nodes]
    n_left, n_right = tree.stop[lefts] - tree.first[lefts], tree.stop[rights] - tree.first[rights]
    ends = np.cumsum(n_left * n_right)
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    picked = rng.permutation(total) if total <= tries else rng.integers(0, total, tries)
    at = np.searchsorted(ends, picked, side="right")
    within = picked - (ends[at] - (n_left * n_right)[at])
    return tree.first[lefts[at]] + within // n_right[at], tree.first[rights[at]] + within % n_right[at]
