"""Short rules that hold as many counterexamples as possible: a beam search over conditions, one rule after the other.

A rule is a set of cells on a few axes. How many counterexamples it holds is estimated from drawn ones; what share of the
inputs it holds is known from the masses of the axes. Nothing that is shown comes from here: a rule is counted before it is
shown (hotspot_masses.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from boxqte.questions.axes import Axis

BEAM = 30  # rules that are made longer
A_STEP = 3  # conditions on one attribute that a rule is tried with, the best ones
LONGER = 0.97  # a condition more is worth it if the rest of the score grows beyond this
ROUNDS = 4  # how often every condition is chosen anew, given the others
CELLS = 64  # ends of an interval that are tried; of an attribute with more cells, those that divide the draws evenly
LEAST_DRAWS = 30  # in a rule: fewer say nothing about its lift
DOUBT = 2.0  # standard errors of a drawn share that a rule's lift must stand
REUSE = 1.03  # a condition that a rule before it has is worth so much more

Held = frozenset[int]
Conditions = Mapping[int, Held]
"""axis -> its cells"""
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Draws:
    """Drawn counterexamples as base cells (draws x axes), and the masses of cells in every product of the space."""

    cells: IntArray
    axes: Sequence[Axis]
    weights: FloatArray
    """of the products that the space is a mixture of"""
    masses: Sequence[FloatArray]
    """axis -> product x cell"""

    def __len__(self) -> int:
        return len(self.cells)


@dataclass(frozen=True, eq=False)
class _Rule:
    """A rule, made from another by one more condition; most are never asked for the draws inside them."""

    draws: Draws
    conditions: dict[int, Held] = field(default_factory=dict)
    before: _Rule | None = None
    score: float = 0.0
    hot: bool = False

    @cached_property
    def key(self) -> frozenset[tuple[int, Held]]:
        return frozenset(self.conditions.items())

    @cached_property
    def inside(self) -> IntArray:
        """The draws that it holds."""
        if self.before is None:
            return np.arange(len(self.draws))
        rest: IntArray = self.before.inside
        inside: IntArray = rest[self._chosen[self.draws.cells[rest, self._last]]]
        return inside

    @cached_property
    def masses(self) -> FloatArray:
        """Its mass in every product."""
        if self.before is None:
            return self.draws.weights
        masses: FloatArray = self.before.masses * self.draws.masses[self._last][:, self._chosen].sum(axis=1)
        return masses

    @property
    def _last(self) -> int:
        return next(reversed(self.conditions))

    @property
    def _chosen(self) -> BoolArray:
        chosen = np.zeros(self.draws.axes[self._last].n_cells, bool)
        chosen[list(self.conditions[self._last])] = True
        return chosen

    def with_(self, axis: int, held: Held, score: float = 0.0, hot: bool = False) -> _Rule:
        """The rule with one more condition."""
        return _Rule(self.draws, {**self.conditions, axis: held}, self, score, hot)


@dataclass(frozen=True)
class Wanted:
    """What rules are looked for."""

    conditions: int
    """at most so many in a rule"""
    values: int
    """at most so many in a list of values"""
    lift: float
    """at least so many times the unfair share of the whole"""
    least: float
    """at least this share of all counterexamples that no rule before it holds"""


def search(draws: Draws, wanted: Wanted, top: int, free: Sequence[int]) -> list[dict[int, Held]]:
    """At most `top` rules, each with the most that those before it leave; `free` are the axes that conditions may be on.

    An input in a rule has its price, which is set against the counterexamples that the rule adds: first that of the lift,
    for rules that are hot; then 1, the least at which a rule says anything, so that the others cover what is left.
    """
    open_ = np.ones(len(draws), bool)
    found: list[_Rule] = []
    seeker = _Seeker(draws, wanted, free)
    for price in (wanted.lift, 1.0):
        while len(found) < top:
            best = seeker.best(open_, price)
            if best is None or best.score <= 0 or open_[best.inside].sum() < wanted.least * len(draws):
                break
            found.append(best)
            seeker.used |= best.key
            open_[best.inside] = False
    return [rule.conditions for rule in _in_order(found, len(draws))]


def _in_order(rules: Sequence[_Rule], n: int) -> list[_Rule]:
    """Each rule adds more than those behind it would in its place."""
    open_, left, out = np.ones(n, bool), list(rules), []
    while left:
        best = max(left, key=lambda rule: int(open_[rule.inside].sum()))
        left.remove(best)
        open_[best.inside] = False
        out.append(best)
    return out


class _Seeker:
    def __init__(self, draws: Draws, wanted: Wanted, free: Sequence[int]):
        self.draws, self.wanted = draws, wanted
        self.free = [a for a in free if draws.axes[a].n_cells > 1]
        self.intervals = {a: _Intervals(draws, a) for a in self.free if draws.axes[a].attribute.is_numeric}
        self.used: frozenset[tuple[int, Held]] = frozenset()
        self.price = 1.0

    def best(self, open_: BoolArray, price: float) -> _Rule | None:
        """The rule with the best score of those that are hot enough."""
        self.price = price
        beam, hot = [_Rule(self.draws)], None
        for _ in range(self.wanted.conditions):
            longer: dict[frozenset[tuple[int, Held]], _Rule] = {}
            for rule in beam:
                for a in self.free:
                    if a not in rule.conditions:
                        for made in self.extended(rule, a, open_):
                            longer.setdefault(made.key, made)
            for rule in longer.values():
                hot = _better(hot, rule)
            beam = sorted(longer.values(), key=lambda rule: -rule.score)[:BEAM]
        return None if hot is None else self.polished(hot, open_)

    def polished(self, rule: _Rule, open_: BoolArray) -> _Rule:
        """Every condition chosen anew, given the others, as long as that helps."""
        for _ in range(ROUNDS):
            before = rule
            for a in list(rule.conditions):
                rest = _Rule(self.draws)
                for b, held in rule.conditions.items():
                    rest = rest if b == a else rest.with_(b, held)
                for made in self.extended(rest, a, open_):
                    rule = _better(rule, made) or rule
            if rule is before:
                break
        return rule

    def extended(self, rule: _Rule, a: int, open_: BoolArray) -> Iterator[_Rule]:
        """The rule with each of the best conditions on one more axis."""
        column = self.draws.cells[rule.inside, a]
        n, total = self.draws.axes[a].n_cells, len(self.draws)
        every = np.bincount(column, minlength=n) / total
        new = np.bincount(column[open_[rule.inside]], minlength=n) / total
        mass = rule.masses @ self.draws.masses[a]
        sets, sums = self.candidates(a, np.stack([every, new, mass]))
        if not len(sets):
            return
        held, fresh, size = sums
        sure = held - DOUBT * np.sqrt(held / total)
        hot = (sure >= self.wanted.lift * size) & (held * total >= LEAST_DRAWS) & (size > 0)
        known = np.full(len(sets), len(rule.key & self.used))
        for chosen in {held for b, held in self.used if b == a}:
            known[[i for i, own in enumerate(sets) if own == chosen]] += 1
        score = (fresh - self.price * size) * LONGER ** (len(rule.conditions) + 1) * REUSE**known
        at = np.argsort(-score, kind="stable")[:A_STEP].tolist()
        hottest = int(np.argmax(np.where(hot, score, -np.inf)))
        for i in dict.fromkeys([*at, *([hottest] if hot[hottest] else [])]):
            yield rule.with_(a, sets[i], float(score[i]), bool(hot[i]))

    def candidates(self, a: int, sums: FloatArray) -> tuple[list[Held], FloatArray]:
        """Sets of cells that a condition can name, and the sums over each of them (kind x set) of kind x cell."""
        axis = self.draws.axes[a]
        if axis.attribute.is_numeric:
            return self.intervals[a].sets, self.intervals[a].sums(sums)
        density = sums[0] / np.maximum(sums[2], 1e-300)
        order = np.argsort(-density, kind="stable").tolist()
        sizes = [max(len(cell.values), 1) for cell in axis.cells]
        sets: list[Held] = []
        for named, complement in ((order, False), (order[::-1], True)):
            chosen: list[int] = []
            count = 0
            for c in named:
                if count + sizes[c] <= self.wanted.values and len(chosen) < len(sizes) - 1:
                    chosen.append(c)
                    count += sizes[c]
                    sets.append(frozenset(range(len(sizes))) - {*chosen} if complement else frozenset(chosen))
        sets = list(dict.fromkeys(sets))
        return sets, np.array([sums[:, sorted(held)].sum(axis=1) for held in sets]).reshape(-1, 3).T


class _Intervals:
    """The intervals of a numeric axis that a condition may name, and its missing value."""

    def __init__(self, draws: Draws, a: int):
        n = draws.axes[a].n_cells
        ends = _ends(draws, a)
        first, last = (ends[k] for k in np.triu_indices(len(ends), 1))
        if draws.axes[a].cells[-1].missing:
            first, last = np.append(first, n - 1), np.append(last, n)
        proper = last - first < n
        self.first, self.last = first[proper], last[proper]
        self.sets = [frozenset(range(i, j)) for i, j in zip(self.first.tolist(), self.last.tolist())]

    def sums(self, by_cell: FloatArray) -> FloatArray:
        running = np.concatenate([np.zeros((len(by_cell), 1)), np.cumsum(by_cell, axis=1)], axis=1)
        sums: FloatArray = running[:, self.last] - running[:, self.first]
        return sums


def _better(one: _Rule | None, two: _Rule) -> _Rule | None:
    if not two.hot:
        return one
    return two if one is None or two.score > one.score else one


def _ends(draws: Draws, a: int) -> IntArray:
    """Where intervals of a numeric axis may begin and end."""
    axis = draws.axes[a]
    n = axis.n_cells - axis.cells[-1].missing
    ends = np.arange(n + 1)
    if n > CELLS:
        counts = np.bincount(draws.cells[:, a], minlength=axis.n_cells)[:n]
        both = np.cumsum(counts / max(counts.sum(), 1) + draws.masses[a].T[:n] @ draws.weights)
        ends = np.unique(np.concatenate([[0, n], np.searchsorted(both, both[-1] * np.arange(1, CELLS) / CELLS)]))
    return ends
