"""Is this x a counterexample? Decided exactly for one x at a time, by a search that shares nothing with the engines.

Only for XGBoost models and what the benchmarks need: one sensitive attribute or none, numbers and codes, no missing
values. The trees are read from the library's own model file. A finite attribute is the list of its values, a real one
the list of its cells between thresholds; an x' is a position on every axis, the window of x a range of positions.

The search is branch and bound. For a box of positions each tree is cut back to what it can still reach; the sums of the
trees' largest (smallest) leaves bound F. If F cannot get to the other side of 0, the box holds no x'; if it must, any
point of the box is one; otherwise the box is split at the cut on which most of the bounds' distance rests. Leaf values
are integers (float32 numbers scaled by a power of two), so every sum is exact.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from boxqte import Attribute, Space
from boxqte.questions.properties import Property

FAIR, UNFAIR, UNDECIDED = 0, 1, 2
NODE_LIMIT = 2_000_000
MOST_BITS = 60

try:  # some hundred times faster, where it is installed; the package itself does not need it
    from numba import njit
except ImportError:

    def njit(**_: Any) -> Any:
        return lambda function: function


@dataclass(frozen=True)
class AxisOfPositions:
    """The positions of an attribute: `values` of a finite domain, or the lower ends of a real one's cells."""

    attribute: Attribute
    values: np.ndarray
    reach: float
    """Epsilon; 0 for attributes that do not move."""
    cut_of: dict[float, int]
    """Threshold -> how many positions lie below it."""

    @property
    def is_real(self) -> bool:
        return self.attribute.kind == "real"

    def positions(self, x: np.ndarray) -> np.ndarray:
        """Where each x lies."""
        return np.searchsorted(self.values, x, side="right") - 1

    def windows(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last position that an x' may have."""
        if not self.reach:
            at = self.positions(x)
            return at, at
        low = np.maximum(x - self.reach, float(self.attribute.low))
        high = np.minimum(x + self.reach, float(self.attribute.high))
        if self.is_real:
            return self.positions(low), self.positions(high)
        return np.searchsorted(self.values, low, side="left"), self.positions(high)


class WindowSearch:
    """Decides points of one problem.

    Parameters
    ----------
    model
        A fitted XGBClassifier.
    base
        The margin of no trees, exactly.
    space, prop
        The space and the question; epsilon as a rate.
    """

    def __init__(self, model: Any, base: Fraction, space: Space, prop: Property):
        if len(prop.sensitive) > 1:
            raise ValueError("at most one sensitive attribute")
        self.space, self.prop = space, prop
        document = json.loads(bytes(model.get_booster().save_raw("json")))
        trees = document["learner"]["gradient_booster"]["model"]["trees"]
        tolerances = prop.tolerances(space)
        self.axes = [_axis(a, i, trees, tolerances.get(a.name, Fraction(0))) for i, a in enumerate(space)]
        self.sensitive = space.names.index(prop.sensitive[0]) if prop.sensitive else -1
        self._flatten(trees, base)

    def _flatten(self, trees: list[Any], base: Fraction) -> None:
        leaves = [
            Fraction(float(np.float32(value)))
            for tree in trees
            for value, left in zip(tree["split_conditions"], tree["left_children"])
            if left < 0
        ]
        unit = math.lcm(base.denominator, *(leaf.denominator for leaf in leaves))
        most = (abs(base) + sum(map(abs, leaves))) * unit
        if most >= 2**MOST_BITS:
            raise ValueError(
                f"sums of leaf values need {int(most).bit_length()} bits, at most {MOST_BITS} are done here"
            )
        self.unit, self.base = unit, int(base * unit)
        feature, cut, left, right, value, roots = [], [], [], [], [], []
        for tree in trees:
            start = len(feature)
            roots.append(start)
            for below, above, f, v in zip(
                tree["left_children"], tree["right_children"], tree["split_indices"], tree["split_conditions"]
            ):  # fmt: skip
                number = float(np.float32(v))
                feature.append(f if below >= 0 else -1)
                cut.append(self.axes[f].cut_of[number] if below >= 0 else 0)
                left.append(start + below if below >= 0 else -1)
                right.append(start + above if below >= 0 else -1)
                value.append(0 if below >= 0 else int(Fraction(number) * unit))
        arrays = (np.array(part, np.int64) for part in (roots, feature, cut, left, right, value))
        self.roots, self.feature, self.cut, self.left, self.right, self.value = arrays

    def margins(self, x: np.ndarray) -> np.ndarray:
        """The exact margins in units of 1 / unit."""
        at = np.stack([axis.positions(x[:, i]) for i, axis in enumerate(self.axes)], 1)
        return _margins(at, self.base, self.roots, self.feature, self.cut, self.left, self.right, self.value)

    def decide(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each row of x: FAIR, UNFAIR or UNDECIDED; the positions of an x' (where UNFAIR); nodes of the search.

        Confidence is not asked here: UNFAIR means that an admissible x' of the other class exists.
        """
        own = np.stack([axis.positions(x[:, i]) for i, axis in enumerate(self.axes)], 1)
        windows = [axis.windows(x[:, i]) for i, axis in enumerate(self.axes)]
        low, high = (np.stack([w[end] for w in windows], 1) for end in (0, 1))
        if self.sensitive >= 0:
            low[:, self.sensitive], high[:, self.sensitive] = 0, len(self.axes[self.sensitive].values) - 1
        sizes = np.array([len(axis.values) for axis in self.axes], np.int64)
        return _decide(own, low, high, sizes, self.sensitive, self.base, self.roots, self.feature, self.cut, self.left,
                       self.right, self.value, NODE_LIMIT)  # fmt: skip

    def values_at(self, positions: np.ndarray, x: np.ndarray) -> np.ndarray:
        """An x' as numbers: in the given cells, within epsilon of x, a float32 where the attribute is real."""
        out = np.empty(x.shape)
        for i, axis in enumerate(self.axes):
            at = positions[:, i]
            out[:, i] = axis.values[at]
            if axis.is_real:
                stays = at == axis.positions(x[:, i])
                least = x[:, i] - axis.reach
                rounded = least.astype(np.float32)
                rounded = np.where(rounded < least, np.nextafter(rounded, np.float32(np.inf)), rounded)
                out[:, i] = np.where(stays, x[:, i], np.maximum(out[:, i], rounded.astype(np.float64)))
        return out


def _axis(attribute: Attribute, index: int, trees: list[Any], reach: Fraction) -> AxisOfPositions:
    found = {
        float(np.float32(value))
        for tree in trees
        for value, feature, left in zip(tree["split_conditions"], tree["split_indices"], tree["left_children"])
        if left >= 0 and feature == index
    }
    if attribute.kind == "real":
        low, high = float(attribute.low), float(attribute.high)
        values = np.array([low, *sorted(t for t in found if low < t <= high)])
    elif attribute.kind == "integer":
        values = np.arange(int(attribute.low), int(attribute.high) + 1, dtype=np.float64)
    else:
        values = np.array(sorted(attribute.values), np.float64)
    cut_of = {t: int(np.searchsorted(values, t, side="left")) for t in found}
    if attribute.kind == "integer":
        reach = Fraction(math.floor(reach))
    return AxisOfPositions(attribute, values, float(reach) if attribute.is_numeric else 0.0, cut_of)


@njit(cache=True)
def _margins(at, base, roots, feature, cut, left, right, value):  # type: ignore[no-untyped-def]
    total = np.full(len(at), base, np.int64)
    for i in range(len(at)):
        for root in roots:
            node = root
            while feature[node] >= 0:
                node = left[node] if at[i, feature[node]] < cut[node] else right[node]
            total[i] += value[node]
    return total


@njit(cache=True, nogil=True)
def _extremes(node, low, high, feature, cut, left, right, value, stack):  # type: ignore[no-untyped-def]
    """The smallest and the largest leaf that a subtree reaches inside the box."""
    least, most = np.int64(2**62), np.int64(-(2**62))
    stack[0] = node
    depth = 1
    while depth:
        depth -= 1
        n = stack[depth]
        f = feature[n]
        if f < 0:
            least, most = min(least, value[n]), max(most, value[n])
            continue
        if high[f] >= cut[n]:
            stack[depth] = right[n]
            depth += 1
        if low[f] < cut[n]:
            stack[depth] = left[n]
            depth += 1
    return least, most


@njit(cache=True, nogil=True)
def _seek(low, high, positive, base, roots, feature, cut, left, right, value, room, limit):  # type: ignore[no-untyped-def]
    """Whether the box low[0]..high[0] holds a point with F > 0 (or F <= 0); it is then in low[0]. Returns (answer, nodes).

    `low`, `high`, `room.nodes` are stacks of boxes with the trees that they have not decided yet.
    """
    live, count, offset, score, stack = room
    for t in range(len(roots)):
        live[0, t] = roots[t]
    count[0], offset[0] = len(roots), base
    depth, nodes = 1, 0
    while depth:
        depth -= 1
        nodes += 1
        if nodes > limit:
            return UNDECIDED, nodes
        kept, total = 0, offset[depth]
        floor, ceiling = np.int64(0), np.int64(0)
        best, best_score = -1, np.int64(-1)
        for t in range(count[depth]):
            n = live[depth, t]
            f = feature[n]
            while f >= 0 and (high[depth, f] < cut[n] or low[depth, f] >= cut[n]):
                n = left[n] if high[depth, f] < cut[n] else right[n]
                f = feature[n]
            if f < 0:
                total += value[n]
                continue
            least, most = _extremes(n, low[depth], high[depth], feature, cut, left, right, value, stack)
            floor += least
            ceiling += most
            live[depth, kept] = n
            kept += 1
            score[f, cut[n]] += most - least
            if score[f, cut[n]] > best_score:
                best, best_score = n, score[f, cut[n]]
        for t in range(kept):
            score[feature[live[depth, t]], cut[live[depth, t]]] = 0
        if positive:
            hopeless, sure = total + ceiling <= 0, total + floor > 0
        else:
            hopeless, sure = total + floor > 0, total + ceiling <= 0
        if hopeless:
            continue
        if sure:
            low[0] = low[depth]
            return UNFAIR, nodes
        # Two boxes in place of one; the side that promises more is looked at first.
        f, at = feature[best], cut[best]
        promise = np.int64(0)
        for t in range(kept):
            n = live[depth, t]
            if feature[n] == f and cut[n] == at:
                low_left = _extremes(left[n], low[depth], high[depth], feature, cut, left, right, value, stack)
                low_right = _extremes(right[n], low[depth], high[depth], feature, cut, left, right, value, stack)
                if positive:
                    promise += low_left[1] - low_right[1]
                else:
                    promise += low_right[0] - low_left[0]
        above = depth + 1
        low[above], high[above] = low[depth], high[depth]
        live[above, :kept] = live[depth, :kept]
        count[depth], count[above] = kept, kept
        offset[depth], offset[above] = total, total
        to_left = above if promise > 0 else depth
        to_right = depth if promise > 0 else above
        high[to_left, f] = at - 1
        low[to_right, f] = at
        depth += 2
    return FAIR, nodes


@njit(cache=True, nogil=True)
def _decide(own, lows, highs, sizes, sensitive, base, roots, feature, cut, left, right, value, limit):  # type: ignore[no-untyped-def]
    n_rows, n_axes = own.shape
    verdict = np.zeros(n_rows, np.int8)
    where = np.zeros((n_rows, n_axes), np.int64)
    nodes = np.zeros(n_rows, np.int64)
    # Every split cuts one axis at one cut, so a stack never holds more boxes than there are cuts, and one.
    deep = len(feature) + 2
    low, high = np.empty((deep, n_axes), np.int64), np.empty((deep, n_axes), np.int64)
    room = (np.empty((deep, len(roots)), np.int64), np.empty(deep, np.int64), np.empty(deep, np.int64),
            np.zeros((n_axes, sizes.max() + 1), np.int64), np.empty(len(feature) + 1, np.int64))  # fmt: skip
    for i in range(n_rows):
        F = base
        for root in roots:
            node = root
            while feature[node] >= 0:
                node = left[node] if own[i, feature[node]] < cut[node] else right[node]
            F += value[node]
        # x' takes any sensitive value but x's own: the values below it, then those above
        for side in range(2 if sensitive >= 0 else 1):
            low[0], high[0] = lows[i], highs[i]
            if sensitive >= 0:
                if side == 0:
                    high[0, sensitive] = own[i, sensitive] - 1
                else:
                    low[0, sensitive] = own[i, sensitive] + 1
                if low[0, sensitive] > high[0, sensitive]:
                    continue
            answer, spent = _seek(low, high, F <= 0, base, roots, feature, cut, left, right, value, room, limit)
            nodes[i] += spent
            if answer != FAIR:
                verdict[i] = answer
                where[i] = low[0]
            if answer == UNFAIR:
                break
    return verdict, where, nodes
