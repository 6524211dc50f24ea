"""A model behind a function of each column, as a model of those columns themselves.

Every column that the model tests is g(x) of one of the user's columns x. A test of g(x) is a test of x:

- x a category: the set of values whose g(x) goes left, found by computing g of every value;
- x a number: the float64s that go left are a half-line or a few intervals. Their ends are found by bisection over the
  float64s themselves, in the order of their bit patterns, through g as its library computes it: 64 evaluations of g for
  all tests of all columns together.

What is relied on: between the `starts` that the caller names, g is monotone as a function of floats. For `rough`
features it is so only up to its own rounding (a cube root, a normal quantile: neighbouring floats may change places).
Around each end of theirs PROBES floats are tried one by one, and as many evenly spread ones as far as g has moved by NOISE
of its smallest steps (steps before g that round more coarsely make plateaus of it, which those find); every change of
outcome among them is an end of its own. Elsewhere monotony is checked at distances 1, 2, 4, ... from every end, and in
the middle of every piece.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.ensemble import EnsembleBuilder, FloatArray, Missing, Test, TreeEnsemble, holds
from boxqte.models.floats import Bools, Keys, bisected, floats_of, keys_of

Evaluate = Callable[[Mapping[int, npt.NDArray[Any]]], FloatArray]
"""From values of some of the user's columns (numbers, or indices of values) to rows of the model's columns."""

LARGEST = float(np.finfo(np.float64).max)
NOISE = 16
PROBES = 1025
MAX_NODES = 4_000_000
BLOCK = 2**16  # rows of one evaluation at most


@dataclass(frozen=True, eq=False)
class Column:
    """One of the user's columns, and what is known of the way from it to the model's columns."""

    name: str
    feeds: frozenset[int]
    """The model's columns that are functions of it."""
    same: frozenset[int] = frozenset()
    """Those of them that hold it unchanged, missing values too."""
    rough: frozenset[int] = frozenset()
    values: tuple[Any, ...] | None = None
    """The values of a category; None for numbers."""
    starts: Keys | None = None
    """Of numbers: the keys (`keys_of`) from which on other monotone pieces begin, the least float's first."""
    refused: Bools | None = None
    """The pieces on which a step refuses its input: no class is defined there, and none is computed."""


@dataclass(frozen=True)
class _Pieces:
    """A test on a number: `first` on the far left, another outcome behind each of the keys `ends`."""

    first: bool
    ends: tuple[int, ...]
    missing: bool


@dataclass(frozen=True)
class _Values:
    """A test on a category: the codes that go left."""

    left: tuple[int, ...]
    missing: bool


FIRST, LAST = keys_of([-LARGEST, LARGEST]).tolist()


class Abreast:
    """Keys of several columns side by side: the i-th of each column in row i, so that one evaluation does for all."""

    def __init__(self, column: npt.NDArray[np.int64]):
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        self.row = np.empty(len(column), np.int64)
        self.row[order] = np.arange(len(column)) - np.searchsorted(ordered, ordered)
        self.members = {int(c): np.flatnonzero(column == c) for c in np.unique(column)}
        self.n_rows = int(self.row.max(initial=-1)) + 1

    def values(self, evaluate: Evaluate, keys: Keys, feature: npt.NDArray[np.int64]) -> FloatArray:
        """What the evaluation writes for each key into its own feature."""
        floats = floats_of(keys)
        columns = {}
        for c, at in self.members.items():
            columns[c] = np.full(self.n_rows, floats[at[0]])
            columns[c][self.row[at]] = floats[at]
        out = np.empty(len(keys))
        for start in range(0, self.n_rows, BLOCK):
            here = (self.row >= start) & (self.row < start + BLOCK)
            written = evaluate({c: x[start : start + BLOCK] for c, x in columns.items()})
            out[here] = written[self.row[here] - start, feature[here]]
        return out


def pulled_back(
    ensemble: TreeEnsemble,
    columns: Sequence[Column],
    evaluate: Evaluate,
    missing: Mapping[int, FloatArray | None],
    where: str,
) -> TreeEnsemble:
    """The ensemble over the user's columns. `missing[c]` is the model's row where column c is missing; None: refused."""
    owner = {f: c for c, column in enumerate(columns) for f in column.feeds}
    kept = {f for column in columns if column.values is None for f in column.same}
    test_of_node, tests = _distinct_tests(ensemble)
    by_column: dict[int, list[int]] = {}
    for node in tests:
        feature = int(ensemble.feature[node])
        if feature not in kept:
            by_column.setdefault(owner[feature], []).append(node)
    found: dict[int, _Pieces | _Values] = {}
    for c, nodes in by_column.items():
        values = columns[c].values
        if values is not None:
            written = evaluate({c: np.arange(len(values))})
            for node in nodes:
                goes = ensemble.goes_left(node, written[:, ensemble.feature[node]])
                found[node] = _Values(tuple(np.flatnonzero(goes).tolist()), _missing_left(ensemble, node, missing[c]))
    numbers = {c: nodes for c, nodes in by_column.items() if columns[c].values is None}
    pieces = _Search(ensemble, columns, evaluate, where).run(numbers)
    for node, (first, ends) in pieces.items():
        c = owner[int(ensemble.feature[node])]
        found[node] = _Pieces(first, ends, _missing_left(ensemble, node, missing[c]))
    return _Trees(ensemble, columns, owner, {n: found.get(t) for n, t in test_of_node.items()}, where).built()


def _distinct_tests(model: TreeEnsemble) -> tuple[dict[int, int], list[int]]:
    """For each node the first one with the same test, and these first ones."""
    seen: dict[Any, int] = {}
    of_node = {}
    for node in np.flatnonzero(model.test != Test.LEAF).tolist():
        members = model.set_codes[model.set_start[node] : model.set_stop[node]].tobytes()
        key = (int(model.feature[node]), int(model.test[node]), float(model.threshold[node]), int(model.missing[node]),
               bool(model.default_left[node]), members)  # fmt: skip
        of_node[node] = seen.setdefault(key, node)
    return of_node, list(seen.values())


def _missing_left(ensemble: TreeEnsemble, node: int, row: FloatArray | None) -> bool:
    return row is not None and bool(
        ensemble.goes_left(node, row[ensemble.feature[node] : ensemble.feature[node] + 1])[0]
    )


# --- numbers ----------------------------------------------------------------------------------------------------------


class _Search:
    """Finds where the outcomes of tests change along the floats."""

    def __init__(self, ensemble: TreeEnsemble, columns: Sequence[Column], evaluate: Evaluate, where: str):
        self.ensemble, self.columns, self.evaluate, self.where = ensemble, columns, evaluate, where
        self.owner = np.full(ensemble.n_features, -1)
        for c, column in enumerate(columns):
            self.owner[list(column.feeds)] = c

    def run(self, numbers: Mapping[int, list[int]]) -> dict[int, tuple[bool, tuple[int, ...]]]:
        """For each test its outcome on the far left, and the last keys before it changes."""
        first: dict[int, bool] = {}
        ends: dict[int, set[int]] = {}
        inner: list[tuple[int, int, int, bool]] = []
        for c, nodes in numbers.items():
            low, high = self._pieces(c)
            middle = (low & high) + ((low ^ high) >> 1)
            written = self.evaluate({c: floats_of(np.concatenate([low, middle, high]))})
            for node in nodes:
                goes = self.ensemble.goes_left(node, written[:, self.ensemble.feature[node]]).reshape(3, -1)
                rough = int(self.ensemble.feature[node]) in self.columns[c].rough
                if not rough and ((goes[0] == goes[2]) & (goes[1] != goes[0])).any():
                    raise self._not_monotone(c)
                first[node] = bool(goes[0, 0])
                ends[node] = set(high[:-1][goes[2, :-1] != goes[0, 1:]].tolist())
                inner += [
                    (node, int(low[p]), int(high[p]), bool(goes[0, p]))
                    for p in np.flatnonzero(goes[0] != goes[2]).tolist()
                ]
        for (node, *_), key in zip(inner, self._bisected(inner)):
            ends[node].add(key)
        self._look_around(ends)
        self._confirm(first, ends)
        return {node: (first[node], tuple(sorted(ends[node]))) for node in first}

    def _pieces(self, c: int) -> tuple[Keys, Keys]:
        """The first and last key of each piece on which the column is accepted."""
        column = self.columns[c]
        assert column.starts is not None
        assert column.refused is not None
        if column.refused.all():
            raise ModelError(f"{self.where}: its steps accept no number in column '{column.name}'")
        stops = np.append(column.starts[1:] - 1, LAST)
        return column.starts[~column.refused], stops[~column.refused]

    def _not_monotone(self, c: int) -> ModelError:
        return ModelError(f"{self.where}: column '{self.columns[c].name}' reaches the model through a function that is "
                          "not monotone where it should be; `boxqte test` takes any model")  # fmt: skip

    def _outcomes(self, nodes: Sequence[int], keys: Keys, each: int = 1) -> Bools:
        """The outcomes of tests, each for `each` keys of its own."""
        at = np.repeat(np.array(nodes, np.int64), each)
        return self._left(at, self._written(at, keys))

    def _written(self, nodes: npt.NDArray[np.int64], keys: Keys) -> FloatArray:
        """What reaches the feature that each node tests."""
        feature = self.ensemble.feature[nodes].astype(np.int64)
        return Abreast(self.owner[feature]).values(self.evaluate, keys, feature)

    def _left(self, nodes: npt.NDArray[np.int64], y: FloatArray) -> Bools:
        """`goes_left` of each node for a value of its own."""
        model = self.ensemble
        left: Bools = np.where(
            np.isnan(y), model.default_left[nodes], holds(model.test[nodes], model.threshold[nodes], y)
        )
        special = (model.test[nodes] == Test.IN_SET) | (model.missing[nodes] != Missing.DEFAULT)
        for node in np.unique(nodes[special]).tolist():
            left[nodes == node] = model.goes_left(node, y[nodes == node])
        return left

    def _bisected(self, items: Sequence[tuple[int, int, int, bool]]) -> list[int]:
        """For (test, low, high, outcome at low) the last key with that outcome."""
        if not items:
            return []
        nodes, low, high, at_low = zip(*items)

        def outcome(keys: Keys, each: int) -> Bools:
            return self._outcomes(nodes, keys, each)

        last: list[int] = bisected(outcome, np.array(low), np.array(high), np.array(at_low)).tolist()
        return last

    def _owner(self, node: int) -> int:
        return int(self.owner[self.ensemble.feature[node]])

    def _look_around(self, ends: dict[int, set[int]]) -> None:
        """Check that outcomes stay as they are away from an end; where g is rough, find the other ends beside it."""
        spots = []
        for node, found in ends.items():
            low, high = self._pieces(self._owner(node))
            limits = [int(low[0]) - 1, *sorted(found), int(high[-1])]
            for before, end, after in zip(limits, limits[1:], limits[2:]):
                # The pieces without a gap between them that hold the end.
                p = int(np.searchsorted(low, end, side="right")) - 1
                q = p
                while p > 0 and high[p - 1] + 1 == low[p]:
                    p -= 1
                while q + 1 < len(low) and high[q] + 1 == low[q + 1]:
                    q += 1
                spots.append((node, max(before + 1, int(low[p])), end, min(after, int(high[q]))))
        points = [sorted({max(low, end + 1 - 2**j) for j in range(63)}
                         | {min(high, end + 2**j) for j in range(63) if end < high}) for _, low, end, high in spots]  # fmt: skip
        items = [(s, key) for s, keys in enumerate(points) for key in keys]
        if not items:
            return
        at, keys = np.array([spots[s][0] for s, _ in items]), np.array([key for _, key in items])
        y = self._written(at, keys)
        left = self._left(at, y)
        zones: list[tuple[int, Keys]] = []
        start = 0
        for spot, own in zip(spots, points):
            node, _, end, _ = spot
            mine = slice(start, start + len(own))
            start += len(own)
            if int(self.ensemble.feature[node]) in self.columns[self._owner(node)].rough:
                zones.append((node, _zone(keys[mine], y[mine], *spot[1:])))
            elif ((left[mine] == left[mine][keys[mine] == end]) != (keys[mine] <= end)).any():
                raise self._not_monotone(self._owner(node))
        self._scan(zones, ends)

    def _scan(self, zones: Sequence[tuple[int, Keys]], ends: dict[int, set[int]]) -> None:
        """Replace the ends inside zones by all changes of outcome that are found there."""
        if not zones:
            return
        nodes = [node for node, keys in zones for _ in keys]
        outcomes = self._outcomes(nodes, np.concatenate([keys for _, keys in zones]))
        changes: list[tuple[int, int, int, bool]] = []
        start = 0
        for node, keys in zones:
            left = outcomes[start : start + len(keys)]
            start += len(keys)
            ends[node] = {end for end in ends[node] if not keys[0] <= end < keys[-1]}
            changes += [
                (node, int(keys[i]), int(keys[i + 1]), bool(left[i])) for i in np.flatnonzero(left[1:] != left[:-1])
            ]
        for (node, *_), key in zip(changes, self._bisected(changes)):
            ends[node].add(key)

    def _confirm(self, first: Mapping[int, bool], ends: Mapping[int, set[int]]) -> None:
        """Every end and the float behind it have the outcomes that the list of ends says."""
        said: list[tuple[int, int, bool]] = []
        for node, found in ends.items():
            low, high = self._pieces(self._owner(node))
            outcome = first[node]
            for end in sorted(found):
                behind = end + 1
                if not ((low <= behind) & (behind <= high)).any():
                    behind = int(low[low > end][0])  # the piece between is refused
                said += [(node, end, outcome), (node, behind, not outcome)]
                outcome = not outcome
        if said:
            nodes, keys, expected = zip(*said)
            wrong = np.flatnonzero(self._outcomes(nodes, np.array(keys)) != np.array(expected))
            if len(wrong):
                raise self._not_monotone(self._owner(nodes[int(wrong[0])]))


def _zone(keys: Keys, y: FloatArray, low: int, end: int, high: int) -> Keys:
    """The keys to be tried around an end: those beside it, and spread ones as far as the rounding of g may reach."""
    near = np.arange(max(low, end - PROBES // 2), min(high, end + PROBES // 2) + 1)
    moved = np.abs(y - y[keys == end][0])
    steps = moved[moved > 0]
    far = keys[moved >= NOISE * steps.min()] if len(steps) else keys[:0]
    left = int(max(far[far < end], default=near[0]))
    right = int(min(far[far > end], default=near[-1]))
    spread = [left + (right - left) * i // (PROBES - 1) for i in range(PROBES)]
    return np.unique(np.concatenate([near, np.array(spread)]))


# --- trees ------------------------------------------------------------------------------------------------------------

_Range = tuple[int, int, bool]
_EVERYTHING: _Range = (FIRST, LAST, True)


class _Trees:
    """The trees with each test replaced. A test of several intervals becomes several, and its subtrees are copied."""

    def __init__(
        self,
        ensemble: TreeEnsemble,
        columns: Sequence[Column],
        owner: Mapping[int, int],
        test_of: Mapping[int, _Pieces | _Values | None],
        where: str,
    ):
        self.ensemble, self.columns, self.owner, self.test_of, self.where = ensemble, columns, owner, test_of, where
        # Of these columns a path keeps what is left of their range, so that no copy has a part that nothing reaches.
        self.tracked = {owner[int(ensemble.feature[node])] for node, test in test_of.items()
                        if isinstance(test, _Pieces) and len(test.ends) > 1}  # fmt: skip
        self.old: list[int] = []
        self.tests: list[tuple[int, int, float, bool, int]] = []  # feature, test, threshold, default_left, missing
        self.children: list[list[int]] = []
        self.sets: dict[int, Sequence[int]] = {}
        self.waiting: list[tuple[int, dict[int, _Range], int, int]] = []
        """A node still to come, the ranges on its path, and the number and side of its parent."""

    def built(self) -> TreeEnsemble:
        model = self.ensemble
        roots = []
        for root in model.roots.tolist():
            roots.append(len(self.old))
            self._replace(root, {}, -1, 0)
            while self.waiting:
                self._replace(*self.waiting.pop())
        old = np.array(self.old)
        feature, test, threshold, default_left, missing = (np.array(part) for part in zip(*self.tests))
        builder = EnsembleBuilder()
        builder.add_tree(
            feature=feature,
            test=test,
            threshold=threshold,
            left=[left for left, _ in self.children],
            right=[right for _, right in self.children],
            default_left=default_left,
            missing=missing,
            sets=self.sets,
            value=model.value[old],
            node_id=model.node_id[old],
            root=roots,
            output=model.tree_output,
        )
        built = builder.build(
            library=model.library,
            feature_names=[column.name for column in self.columns],
            base=model.base,
            link=model.link,
            classes=model.classes,
            tie=model.tie,
            sum_dtype=model.sum_dtype,
            scale=model.scale,
            decides_on=model.decides_on,
            further_rounding=model.further_rounding,
            categories={c: column.values for c, column in enumerate(self.columns) if column.values is not None},
        )
        return replace(built, decision=model.decision, leaf_error=model.leaf_error)

    def _replace(self, node: int, ranges: dict[int, _Range], parent: int, side: int) -> None:
        """Add a node in its new form, below its parent; its children are left waiting."""
        model = self.ensemble
        while model.test[node] != Test.LEAF:
            test, c = self.test_of[node], self.owner[int(model.feature[node])]
            away, left = int(model.right[node]), int(model.left[node])
            if test is None:
                kept = (c, int(model.test[node]), float(model.threshold[node]), bool(model.default_left[node]),
                        int(model.missing[node]))  # fmt: skip
                at = self._add(node, kept, parent, side)
                if model.test[node] == Test.IN_SET:
                    self.sets[at] = sorted(model.set_of(node))
                self.waiting += [(left, ranges, at, 0), (away, ranges, at, 1)]
                return
            if isinstance(test, _Values):
                values = self.columns[c].values
                assert values is not None
                if len(test.left) in (0, len(values)) and bool(test.left) == test.missing:
                    node = left if test.missing else away
                    continue
                at = self._add(node, (c, Test.IN_SET, 0.0, test.missing, Missing.DEFAULT), parent, side)
                self.sets[at] = test.left
                self.waiting += [(left, ranges, at, 0), (away, ranges, at, 1)]
                return
            low, high, absent = ranges.get(c, _EVERYTHING)
            ends = [end for end in test.ends if low <= end < high]
            goes = test.first ^ (sum(end < low for end in test.ends) % 2 == 1)
            if low > high or not (ends or (absent and goes != test.missing)):  # all that comes here goes one way
                node = left if (test.missing if low > high else goes) else away
                continue
            for end in ends or [LAST]:
                behind = end + 1, high, absent and test.missing != goes
                at = self._add(node, (c, Test.AT_MOST_F64, float(floats_of(np.array([end]))[0]), test.missing == goes,
                                      Missing.DEFAULT), parent, side)  # fmt: skip
                part = (low, min(end, high), absent and test.missing == goes)
                self.waiting.append((left if goes else away, self._narrowed(ranges, c, part), at, 0))
                low, high, absent = behind
                goes = not goes
                parent, side = at, 1
            self.waiting.append((left if goes else away, self._narrowed(ranges, c, (low, high, absent)), parent, 1))
            return
        self._add(node, (-1, Test.LEAF, 0.0, False, Missing.DEFAULT), parent, side)

    def _narrowed(self, ranges: dict[int, _Range], c: int, part: _Range) -> dict[int, _Range]:
        return {**ranges, c: part} if c in self.tracked else ranges

    def _add(self, node: int, test: tuple[int, int, float, bool, int], parent: int, side: int) -> int:
        if len(self.old) >= MAX_NODES:
            raise ModelError(
                f"{self.where}: as a model of the user's columns it has more than {MAX_NODES} nodes, because tests of "
                "several intervals copy what is below them; KBinsDiscretizer(encode='ordinal') keeps the trees small"
            )
        self.old.append(node)
        self.tests.append(test)
        self.children.append([-1, -1])
        if parent >= 0:
            self.children[parent][side] = len(self.old) - 1
        return len(self.old) - 1
