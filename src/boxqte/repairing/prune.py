"""Prune: no tree tests a sensitive attribute any more. Where a tree did, what most training rows went to stays."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from boxqte.models.ensemble import FloatArray, Test, TreeEnsemble
from boxqte.repairing.trees import Growing, is_symmetric, test_key

Rows = npt.NDArray[np.intp]


def pruned(ensemble: TreeEnsemble, features: Collection[int], X: FloatArray) -> TreeEnsemble:
    """The trees without tests of the features: top down, such a node is replaced by the child that more rows reach.

    All rows at the node then go on below that child. In an oblivious tree of CatBoost the whole level goes, so that the
    tree stays one.
    """
    growing = Growing(ensemble)
    oblivious = ensemble.library == "catboost"
    roots = []
    for root in ensemble.roots.tolist():
        by_level: dict[object, bool] | None = {} if oblivious and is_symmetric(ensemble, root) else None
        roots.append(_kept(growing, root, frozenset(features), X, np.arange(len(X)), by_level))
    return growing.built(roots)


def _kept(
    growing: Growing, node: int, features: frozenset[int], X: FloatArray, at: Rows, by_level: dict[object, bool] | None
) -> int:
    model = growing.model
    while model.test[node] != Test.LEAF and int(model.feature[node]) in features:
        goes = model.goes_left(node, X[at, model.feature[node]])
        left = 2 * int(np.count_nonzero(goes)) >= len(at)
        if by_level is not None:  # the first node of a level decides for all: in such a tree it has all rows
            every = model.goes_left(node, X[:, model.feature[node]])
            left = by_level.setdefault(test_key(model, node), 2 * int(np.count_nonzero(every)) >= len(X))
        node = int(model.left[node] if left else model.right[node])
    new = growing.add(node)
    if model.test[node] != Test.LEAF:
        goes = model.goes_left(node, X[at, model.feature[node]])
        left_child = _kept(growing, int(model.left[node]), features, X, at[goes], by_level)
        right_child = _kept(growing, int(model.right[node]), features, X, at[~goes], by_level)
        growing.join(new, left_child, right_child)
    return new
