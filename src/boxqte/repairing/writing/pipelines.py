"""Pipelines: from trees over the user's columns back to trees over what the last step is given.

A pipeline is read as a model of the user's columns, in which every test is turned around (`models/pullback.py`). To write
an edited model, each of its tests is replaced by the one of the last step's model that it came from.
"""

from __future__ import annotations

import numpy as np

from boxqte.errors import ModelError
from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble
from boxqte.repairing.trees import test_key
from boxqte.repairing.writing.shapes import with_trees


def over_inner(outer: TreeEnsemble, inner: TreeEnsemble, edited: TreeEnsemble, origins: list[int]) -> TreeEnsemble:
    """The edited ensemble with the tests of `inner`, the last step's model, which `outer` is the pulled back form of."""
    came = _Correspondence(outer, inner)
    builder = EnsembleBuilder()
    for t, root in enumerate(edited.roots.tolist()):
        nodes: list[int] = [root]
        tests: list[int] = []
        children: list[tuple[int, int]] = []
        for node in nodes:  # grows as it goes
            if edited.test[node] == Test.LEAF:
                tests.append(-1)
                children.append((-1, -1))
                continue
            own, flipped = came.of(edited, node, origins[t])
            first, second = int(edited.left[node]), int(edited.right[node])
            children.append((len(nodes), len(nodes) + 1))
            nodes += [second, first] if flipped else [first, second]
            tests.append(own)
        at = np.array(tests)
        builder.add_tree(
            feature=np.where(at >= 0, inner.feature[at], -1),
            test=np.where(at >= 0, inner.test[at], Test.LEAF),
            threshold=inner.threshold[at],
            left=[left for left, _ in children],
            right=[right for _, right in children],
            default_left=inner.default_left[at],
            missing=inner.missing[at],
            sets={i: sorted(inner.set_of(n)) for i, n in enumerate(tests) if n >= 0 and inner.test[n] == Test.IN_SET},
            value=edited.value[nodes],
            node_id=edited.node_id[nodes],
            output=int(edited.tree_output[t]),
        )
    return with_trees(inner, builder)


class _Correspondence:
    """Which test of the last step's model each test over the user's columns came from, and whether its sides changed."""

    def __init__(self, outer: TreeEnsemble, inner: TreeEnsemble) -> None:
        self.outer = outer
        self.by_origin: dict[tuple[int, int], tuple[int, bool]] = {}
        self.by_test: dict[tuple[object, ...], tuple[int, bool]] = {}
        numbers = {(int(t), int(inner.node_id[n]), bool(inner.test[n] == Test.LEAF)): n
                   for n, t in enumerate(inner.tree_of_node().tolist())}  # fmt: skip
        owner = outer.tree_of_node().tolist()
        home = [
            numbers[owner[n], int(outer.node_id[n]), bool(outer.test[n] == Test.LEAF)] for n in range(outer.n_nodes)
        ]
        below = _subtrees(inner)
        self.several: set[tuple[int, int]] = set()
        for node in np.flatnonzero(outer.test != Test.LEAF).tolist():
            own = home[node]
            start, stop = below[int(inner.left[own])]
            flipped = not start <= below[home[int(outer.left[node])]][0] < stop
            key = (owner[node], int(outer.node_id[node]))
            if key in self.by_origin:  # a test of several intervals became several
                self.several.add(key)
            self.by_origin[key] = own, flipped
            self.by_test.setdefault(test_key(outer, node), (own, flipped))

    def of(self, edited: TreeEnsemble, node: int, tree: int) -> tuple[int, bool]:
        number = int(edited.node_id[node])
        found = self.by_origin.get((tree, number)) if number >= 0 else self.by_test.get(test_key(edited, node))
        if found is None or (tree, number) in self.several:
            column = edited.feature_names[int(edited.feature[node])]
            raise ModelError(
                f"column '{column}' reaches the model through a step that makes several intervals of one test; accepted "
                "are steps that keep a test one test (scalers, imputers, ordinal and one-hot encoders)"
            )
        return found


def _subtrees(ensemble: TreeEnsemble) -> dict[int, tuple[int, int]]:
    """By node its place in the order of depth first, and where its subtree ends there."""
    places: dict[int, tuple[int, int]] = {}
    at = 0
    for root in ensemble.roots.tolist():
        stack = [(root, False)]
        while stack:
            node, done = stack.pop()
            if done:
                places[node] = places[node][0], at
                continue
            places[node] = at, at + 1
            at += 1
            stack.append((node, True))
            if ensemble.test[node] != Test.LEAF:
                stack += [(int(ensemble.right[node]), False), (int(ensemble.left[node]), False)]
    return places
