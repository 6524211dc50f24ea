"""A dense evaluation of a problem: the margin in every cell of the full grid, and every window read as it stands.

Written for small sub-boxes of real models, and independent of the engines and of the grid: it reads the library's own
model file and the data fields of Space and Property. An axis is either the values of a finite domain, one by one, or
the pieces of a real interval between the points where something changes. Margins are float64 sums of float32 leaves,
whose error is below 1e-12; a cell within 1e-9 of a threshold is summed again in fractions.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product
from random import Random
from typing import Any

import numpy as np

from boxqte import Attribute, Fairness, Robustness, Space
from boxqte.questions.properties import Property

NEAR = 1e-9


@dataclass(frozen=True)
class DenseAxis:
    """`points` are the x' that matter; piece j of x has `masses[j]`, equals point `own[j]` and sees points low..high."""

    points: list[Any]
    masses: list[Fraction]
    own: list[int]
    low: list[int]
    high: list[int]


@dataclass(frozen=True)
class DenseAnswer:
    confident: float
    counterexample: float
    cells: int


class XGBoostTrees:
    """The trees as the library saves them; `base` is the margin of no trees."""

    def __init__(self, model: Any, base: Fraction):
        document = json.loads(bytes(model.get_booster().save_raw("json")))
        self.base = base
        self.names = list(model.get_booster().feature_names)
        self.trees = [
            (
                tree["left_children"],
                tree["right_children"],
                tree["split_indices"],
                [float(np.float32(v)) for v in tree["split_conditions"]],
            )
            for tree in document["learner"]["gradient_booster"]["model"]["trees"]
        ]

    def thresholds(self, name: str) -> list[Fraction]:
        at = self.names.index(name)
        found = {
            Fraction(value)
            for left, _, feature, values in self.trees
            for child, f, value in zip(left, feature, values)
            if child >= 0 and f == at
        }
        return sorted(found)

    def margins(self, points: list[list[Any]]) -> np.ndarray:
        """The margin at every combination of points, one list an attribute, in float64."""
        total = np.full([len(p) for p in points], float(self.base))
        for tree in self.trees:
            total += self._table(tree, 0, points)
        return total

    def _table(self, tree: Any, node: int, points: list[list[Any]]) -> Any:
        left, right, feature, values = tree
        if left[node] < 0:
            return values[node]
        axis, threshold = feature[node], Fraction(values[node])
        shape = [1] * len(points)
        shape[axis] = len(points[axis])
        below = np.array([Fraction(p) < threshold for p in points[axis]]).reshape(shape)
        return np.where(below, self._table(tree, left[node], points), self._table(tree, right[node], points))

    def exact(self, x: list[Any]) -> Fraction:
        """The margin at one point without rounding."""
        total = self.base
        for left, right, feature, values in self.trees:
            node = 0
            while left[node] >= 0:
                node = left[node] if Fraction(x[feature[node]]) < Fraction(values[node]) else right[node]
            total += Fraction(values[node])
        return total


def dense_quantify(trees: XGBoostTrees, space: Space, prop: Property) -> DenseAnswer:
    """The masses of X_kappa and X_unfair, by looking at every cell and at every window."""
    axes = [_axis(trees, a, prop) for a in space]
    F = trees.margins([a.points for a in axes])
    confidence = math.log(prop.kappa / (1 - prop.kappa)) if prop.kappa > Fraction(1, 2) else None
    negative = F <= 0
    for at in np.argwhere(np.abs(F) < NEAR):
        negative[tuple(at)] = trees.exact([a.points[i] for a, i in zip(axes, at)]) <= 0
    sure = np.ones(F.shape, bool) if confidence is None else np.abs(F) > confidence
    if confidence is not None:
        assert not (np.abs(np.abs(F) - confidence) < NEAR).any(), "too close to logit(kappa) for float64; another box"
    own = np.ix_(*(a.own for a in axes))
    x_negative, x_sure = negative[own], sure[own]
    sensitive = [i for i, a in enumerate(space) if a.name in prop.sensitive]
    moving = [i for i in range(len(axes)) if i not in sensitive]
    unfair = np.zeros(x_negative.shape, bool)
    for s in product(*(range(len(axes[i].own)) for i in sensitive)):
        here = tuple(s[sensitive.index(i)] if i in sensitive else slice(None) for i in range(len(axes)))
        sees_negative, sees_positive = (_others(bits, axes, sensitive, moving, here) for bits in (negative, ~negative))
        unfair[here] = np.where(x_negative[here], sees_positive, sees_negative)
    unfair &= x_sure
    return DenseAnswer(_mass(x_sure, axes), _mass(unfair, axes), x_sure.size)


def _others(bits: np.ndarray, axes: list[DenseAxis], sensitive: list[int], moving: list[int], here: Any) -> np.ndarray:
    """Whether each x with the sensitive values `here` sees a set bit in its window, at other sensitive values."""
    if not sensitive:
        seen = bits
    else:
        seen = np.zeros([bits.shape[i] for i in moving], bool)
        own = tuple(here[i] for i in sensitive)
        for other in product(*(range(bits.shape[i]) for i in sensitive)):
            if other != own:
                seen |= bits[
                    tuple(other[sensitive.index(i)] if i in sensitive else slice(None) for i in range(bits.ndim))
                ]
    for at, i in enumerate(moving):
        slices = [seen.take(range(low, high + 1), at).any(at) for low, high in zip(axes[i].low, axes[i].high)]
        seen = np.stack(slices, at)
    return seen


def _axis(trees: XGBoostTrees, a: Attribute, prop: Property) -> DenseAxis:
    epsilon = dict(prop.epsilon).get(a.name, Fraction(0)) if a.name not in prop.sensitive else None
    if a.kind == "real":
        assert epsilon is not None, "a real sensitive attribute has no single points; not needed here"
        return _real_axis(a, trees.thresholds(a.name), epsilon)
    values = list(a.values) if a.kind == "categorical" else list(range(int(a.low), int(a.high) + 1))
    n = len(values)
    low, high = list(range(n)), list(range(n))
    if a.kind == "integer" and epsilon:
        low = [max(0, i - math.floor(epsilon)) for i in range(n)]
        high = [min(n - 1, i + math.floor(epsilon)) for i in range(n)]
    return DenseAxis(values, [Fraction(1, n)] * n, list(range(n)), low, high)


def _real_axis(a: Attribute, thresholds: list[Fraction], epsilon: Fraction) -> DenseAxis:
    """x: pieces between the thresholds and the thresholds moved by epsilon. x': one point a cell between thresholds."""
    cuts = [t for t in thresholds if a.low < t <= a.high]
    points = [a.low, *cuts]  # a cell [t, t') holds t itself, and the last one holds high
    if a.low == a.high:
        return DenseAxis(points, [Fraction(1)], [0], [0], [0])
    edges = sorted({a.low, a.high, *(e for t in cuts for e in (t, t - epsilon, t + epsilon) if a.low < e < a.high)})
    masses, own, low, high = [], [], [], []
    for left, right in pairwise(edges):
        x = (left + right) / 2
        masses.append((right - left) / (a.high - a.low))
        for end, out in ((x, own), (max(x - epsilon, a.low), low), (min(x + epsilon, a.high), high)):
            out.append(sum(t <= end for t in cuts))
    return DenseAxis(points, masses, own, low, high)


def _mass(bits: np.ndarray, axes: list[DenseAxis]) -> float:
    total: Any = bits.astype(np.float64)
    for axis in reversed(axes):
        total = total @ np.array([float(m) for m in axis.masses])
    return float(total)


def random_sub_box(
    rng: Random, trees: XGBoostTrees, space: Space, prop: Property, most_cells: int
) -> tuple[Space, Property]:
    """The space cut down to a random box around a random point, and the property with epsilon in the old units.

    Sensitive attributes keep all their values most of the time; the others are widened in random order while the dense
    grid stays below `most_cells`.
    """
    given = prop.tolerances(space)
    kept: Property = replace_epsilon(prop, {name: value for name, value in given.items() if value})
    narrow = {a.name: _narrowed(rng, a, 0.0) for a in space}
    order = [a.name for a in space]
    rng.shuffle(order)
    order.sort(key=lambda name: name not in prop.sensitive)
    for name in order:
        share = 1.0 if name in prop.sensitive and rng.random() < 0.8 else rng.choice((0.15, 0.3, 0.6, 1.0))
        wider = narrow | {name: _narrowed(rng, space[name], share)}
        if _cells(trees, wider, kept) <= most_cells:
            narrow = wider
    return Space(narrow[a.name] for a in space), kept


def replace_epsilon(prop: Property, epsilon: dict[str, Fraction]) -> Property:
    if prop.sensitive:
        return Fairness(prop.sensitive, epsilon, prop.kappa, tie=prop.tie)
    return Robustness(epsilon, prop.kappa, tie=prop.tie)


def _cells(trees: XGBoostTrees, narrow: dict[str, Attribute], prop: Property) -> int:
    axes = [_axis(trees, a, prop) for a in narrow.values()]
    return max(math.prod(len(a.own) for a in axes), math.prod(len(a.points) for a in axes))


def _narrowed(rng: Random, a: Attribute, share: float) -> Attribute:
    if a.kind == "categorical":
        n = max(1, round(share * len(a.values)))
        return replace(a, values=tuple(rng.sample(a.values, n)), labels=None)
    if a.kind == "integer":
        width = round(share * int(a.high - a.low))
        low = rng.randint(int(a.low), int(a.high) - width)
        return replace(a, low=Fraction(low), high=Fraction(low + width))
    width = Fraction(round(1000 * max(share, 0.001)), 1000) * (a.high - a.low)
    low = a.low + Fraction(rng.randint(0, 1000), 1000) * (a.high - a.low - width)
    return replace(a, low=low, high=low + width)
