"""Pairs on a decision tree without an SMT solver: two leaves and one demand are boxes, and boxes meet or do not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxqte.testers.coordinates import BoolArray, Coordinates, FloatArray, IntArray
from boxqte.testers.session import Session
from boxqte.testers.trees import BoxTree

TRIES = 8  # random leaf pairs that are tried for a demand before all are
MAX_PAIRS = 200_000
REDRAWS = 16


class Demands(NamedTuple):
    """What solutions must meet, one demand a solution: copy c of attribute f lies in [low, high] and is not `not_`."""

    copy: IntArray
    feature: IntArray
    low: FloatArray
    high: FloatArray
    not_: FloatArray

    @staticmethod
    def none(n: int) -> Demands:
        """n times no demand."""
        zero = np.zeros(n, np.int64)
        return Demands(zero, zero, np.full(n, -np.inf), np.full(n, np.inf), np.full(n, np.nan))

    @staticmethod
    def pruning(at: Coordinates, tree: BoxTree, one: FloatArray, two: FloatArray) -> Demands:
        """For each pair, copy and attribute: not this value. For each test on a copy's path: its opposite."""
        rows: list[tuple[float, ...]] = []
        inf = np.inf
        for pair in zip(one, two):
            for c, x in enumerate(pair):
                rows += [(c, f, -inf, inf, v) for f, v in enumerate(x.tolist())]
                for f, at_most, threshold, _ in tree.path(x):
                    cut = np.floor(threshold) if at.integral[f] else threshold
                    above = cut + 1 if at.integral[f] else np.nextafter(cut, inf)
                    rows.append((c, f, above, inf, np.nan) if at_most else (c, f, -inf, cut, np.nan))
        table = np.array(rows).T
        return Demands(table[0].astype(np.int64), table[1].astype(np.int64), *table[2:])

    def of(self, at: IntArray | BoolArray) -> Demands:
        """Those at the given places."""
        return Demands(self.copy[at], self.feature[at], self.low[at], self.high[at], self.not_[at])


class PairSolver:
    """All pairs of leaves that differ in label, meet off S, and leave two different values of S."""

    def __init__(self, session: Session, tree: BoxTree):
        self.at, self.rng = session.at, session.rng
        self.tree = tree
        first, second = self._leaf_pairs()
        if len(first) > MAX_PAIRS:
            kept = self.rng.choice(len(first), MAX_PAIRS, replace=False)
            first, second = first[kept], second[kept]
        swapped = self.rng.random(len(first)) < 0.5  # neither copy is special
        self.first, self.second = np.where(swapped, second, first), np.where(swapped, first, second)

    def _leaf_pairs(self) -> tuple[IntArray, IntArray]:
        tree, s, others = self.tree, self.at.sensitive, self.at.others
        firsts, seconds = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        n = len(tree.label)
        for i in range(n - 1):
            rest = np.arange(i + 1, n)
            rest = rest[tree.label[rest] != tree.label[i]]
            for f in others:  # one attribute after the other: few leaves survive the first ones
                rest = rest[(tree.low[rest, f] <= tree.high[i, f]) & (tree.high[rest, f] >= tree.low[i, f])]
                if not len(rest):
                    break
            low, high = tree.low[i, s], tree.high[i, s]
            same_point = (low == high) & (tree.low[rest, s] == low) & (tree.high[rest, s] == low)
            rest = rest[~same_point]
            firsts.append(np.full(len(rest), i))
            seconds.append(rest)
        return np.concatenate(firsts), np.concatenate(seconds)

    def solve(self, demands: Demands) -> tuple[FloatArray, FloatArray]:
        """One random solution for each demand that has any."""
        empty = np.zeros((0, len(self.at)))
        if not len(self.first):
            return empty, empty
        n = len(demands.copy)
        picked = self.rng.integers(0, len(self.first), (n, TRIES))
        meets = self._meets(picked, demands)
        pair = picked[np.arange(n), meets.argmax(axis=1)]
        done: BoolArray = np.asarray(meets.any(axis=1))
        everything = np.arange(len(self.first))[None]
        for i in np.flatnonzero(~done):
            able = np.flatnonzero(self._meets(everything, demands.of(np.array([i])))[0])
            if len(able):
                pair[i], done[i] = self.rng.choice(able), True
        return self._draw(pair[done], demands.of(done))

    def _ends(self, pairs: IntArray, demands: Demands) -> tuple[FloatArray, FloatArray]:
        """The interval of each demand's own attribute and copy, in each pair of leaves (demands x pairs)."""
        tree, s = self.tree, self.at.sensitive
        f = demands.feature[:, None]
        a, b = self.first[pairs], self.second[pairs]
        low = np.maximum(tree.low[a, f], tree.low[b, f])
        high = np.minimum(tree.high[a, f], tree.high[b, f])
        own = np.where(demands.copy[:, None] == 0, a, b)
        low, high = np.where(f == s, tree.low[own, s], low), np.where(f == s, tree.high[own, s], high)
        return np.maximum(low, demands.low[:, None]), np.minimum(high, demands.high[:, None])

    def _meets(self, pairs: IntArray, demands: Demands) -> BoolArray:
        low, high = self._ends(pairs, demands)
        only = (low == high) & (low == demands.not_[:, None])
        meets: BoolArray = (low <= high) & ~only
        return meets

    def _draw(self, pair: IntArray, demands: Demands) -> tuple[FloatArray, FloatArray]:
        tree, at, rng = self.tree, self.at, self.rng
        s, n = at.sensitive, len(pair)
        a, b = self.first[pair], self.second[pair]
        low, high = np.maximum(tree.low[a], tree.low[b]), np.minimum(tree.high[a], tree.high[b])
        low_s = np.stack([tree.low[a, s], tree.low[b, s]])
        high_s = np.stack([tree.high[a, s], tree.high[b, s]])
        mine = np.arange(n)
        own_low, own_high = (ends[:, 0] for ends in self._ends(pair[:, None], demands))
        on_s = demands.feature == s
        low_s[demands.copy[on_s], mine[on_s]], high_s[demands.copy[on_s], mine[on_s]] = own_low[on_s], own_high[on_s]
        low[mine[~on_s], demands.feature[~on_s]] = own_low[~on_s]
        high[mine[~on_s], demands.feature[~on_s]] = own_high[~on_s]
        one, two = np.zeros((n, len(at))), np.zeros((n, len(at)))
        todo = mine
        for _ in range(REDRAWS):  # a forbidden value, or twice the same S: draw again
            low[todo, s], high[todo, s] = low_s[0, todo], high_s[0, todo]
            one[todo] = at.draw_box(rng, low[todo], high[todo])
            low[todo, s], high[todo, s] = low_s[1, todo], high_s[1, todo]
            two[todo] = at.with_sensitive(one[todo], at.draw_box(rng, low[todo], high[todo])[:, s])
            value = np.where(demands.copy == 0, one[mine, demands.feature], two[mine, demands.feature])
            todo = np.flatnonzero((value == demands.not_) | (one[:, s] == two[:, s]))
            if not len(todo):
                break
        good = np.ones(n, bool)
        good[todo] = False
        return one[good], two[good]
