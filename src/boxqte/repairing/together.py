"""Walking several trees together: one tree whose leaves are weighted sums of theirs.

`averaged` replaces every tree that tests a sensitive attribute by its average over the sensitive values. `Mixture` is
(1 - share) F + share G, built once for all shares.

Theorem. The average is convex and the same in every tree, so its margin at x is the weighted mean of F(x, s) over s. Where
all F(x, s) lie on one side of the decision level, so does their mean: `averaged` changes no decision on an input that
was treated fairly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from boxqte.errors import ModelError
from boxqte.models.ensemble import FloatArray, Test, TreeEnsemble
from boxqte.repairing.trees import NO_ORIGIN, Growing, Key, family, joined, test_key, tests_any

MAX_WALKED = 2_000_000  # nodes of one merged tree

Facts = dict[Key, Any]


def averaged(ensemble: TreeEnsemble, features: Collection[int], X: FloatArray) -> TreeEnsemble:
    """Every tree that tests one of the features, replaced by its average over their values with the rows' frequencies."""
    growing = Growing(ensemble)
    asked, owner = tests_any(ensemble, features), ensemble.tree_of_node()
    roots = []
    for t, root in enumerate(ensemble.roots.tolist()):
        nodes = np.flatnonzero(asked & (owner == t)).tolist()
        if not nodes:
            roots.append(growing.copy(root))
            continue
        answers = np.array([ensemble.goes_left(node, X[:, ensemble.feature[node]]) for node in nodes]).T
        outcomes, counts = np.unique(answers, axis=0, return_counts=True)
        routes = [dict(zip(nodes, row)) for row in outcomes.tolist()]
        weights = counts / counts.sum()
        roots.append(_walk(growing, [root] * len(routes), {}, _weighted(ensemble, weights), routes))
    return growing.built(roots)


def _weighted(ensemble: TreeEnsemble, weights: FloatArray) -> Callable[[Sequence[int]], FloatArray]:
    def value(leaves: Sequence[int]) -> FloatArray:
        total: FloatArray = weights @ ensemble.value[list(leaves)]
        # a mean of equal values is that value, which a sum of rounded products may miss
        return ensemble.value[leaves[0]] if len(set(leaves)) == 1 else total

    return value


class Mixture:
    """(1 - share) F + share G. Trees with equal tests are summed; of others each input needs a leaf of both.

    Those stay two trees, side by side, where that is smaller and the model adds its trees up; in a mean of trees they are
    walked together, so that their number stays the same.
    """

    def __init__(self, one: TreeEnsemble, two: TreeEnsemble):
        self.one, self.two = one, two
        both = joined(one, two)
        growing = Growing(both)
        roots: list[int] = []
        origins: list[int] = []
        for t, (first, second) in enumerate(zip(one.roots.tolist(), (two.roots + one.n_nodes).tolist())):
            start = len(growing)
            apart = _size(both, first) + _size(both, second)
            limit = start + (MAX_WALKED if one.link == "mean" else apart)
            try:
                roots.append(
                    _walk(growing, [first, second], {}, lambda leaves: both.value[list(leaves), 0], None, limit)
                )
                origins.append(t)
            except _TooLargeError:
                if one.link == "mean":
                    raise ModelError(
                        f"tree {t}: together with its repaired form it has more than {MAX_WALKED:,} nodes; ask for "
                        "at_least=1, which needs no mixture of the two"
                    ) from None
                growing.cut_back(start)
                roots.append(growing.copy(first, lambda node: np.array([both.value[node, 0], 0.0])))
                roots.append(growing.copy(second, lambda node: np.array([0.0, both.value[node, 0]])))
                origins += [t, t]
        self.origins = origins
        """For each tree of the mixture, the tree that it came from."""
        self._ends = growing.values()
        outputs = one.tree_output[origins]
        frame = growing.built(roots, value=self._ends[:, :1].copy(), tree_output=outputs)
        self._frame = replace(frame, set_codes=both.set_codes)

    def at(self, share: Fraction) -> TreeEnsemble:
        """The mixture with so much of G."""
        part = float(share)
        return replace(self._frame, value=((1 - part) * self._ends[:, 0] + part * self._ends[:, 1])[:, None])


def _size(ensemble: TreeEnsemble, node: int) -> int:
    if ensemble.test[node] == Test.LEAF:
        return 1
    return 1 + _size(ensemble, int(ensemble.left[node])) + _size(ensemble, int(ensemble.right[node]))


class _TooLargeError(Exception):
    pass


def _walk(
    growing: Growing,
    heads: list[int],
    facts: Facts,
    value: Callable[[Sequence[int]], FloatArray],
    routes: Sequence[dict[int, bool]] | None,
    limit: int | None = None,
) -> int:
    """One tree for the trees below all heads. `facts` are the answers on the way here, `routes` those that each head has
    of its own."""
    model = growing.model
    heads = [_settled(model, head, facts, {} if routes is None else routes[k]) for k, head in enumerate(heads)]
    if limit is not None and len(growing) >= limit:
        raise _TooLargeError
    one = len(set(heads)) == 1
    asks = next((head for head in heads if model.test[head] != Test.LEAF), None)
    if asks is None:
        return growing.add(heads[0], value(heads), None if one else NO_ORIGIN)
    new = growing.add(asks, np.zeros(len(value(heads[:1] * len(heads)))), None if one else NO_ORIGIN)
    left = _walk(growing, heads, _told(model, facts, asks, True), value, routes, limit)
    right = _walk(growing, heads, _told(model, facts, asks, False), value, routes, limit)
    growing.join(new, left, right)
    return new


def _settled(model: TreeEnsemble, node: int, facts: Facts, route: dict[int, bool]) -> int:
    """The first node on the way down whose answer is not known."""
    while model.test[node] != Test.LEAF:
        answer = route.get(node)
        if answer is None:
            answer = _known(model, facts, node)
        if answer is None:
            return node
        node = int(model.left[node] if answer else model.right[node])
    return node


def _known(model: TreeEnsemble, facts: Facts, node: int) -> bool | None:
    if model.test[node] == Test.IN_SET:
        found: bool | None = facts.get(test_key(model, node))
        return found
    threshold = float(model.threshold[node])
    own = family(model, node)
    if threshold >= facts.get((*own, "left from"), np.inf):
        return True
    return False if threshold <= facts.get((*own, "right up to"), -np.inf) else None


def _told(model: TreeEnsemble, facts: Facts, node: int, answer: bool) -> Facts:
    """The facts with the answer to a node's test: x < 3 answers x < 5, too, where both treat missing values alike."""
    if model.test[node] == Test.IN_SET:
        return {**facts, test_key(model, node): answer}
    return {**facts, (*family(model, node), "left from" if answer else "right up to"): float(model.threshold[node])}
