"""An edited tree as a library numbers its nodes, and whether a model read again has the trees that were meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble
from boxqte.repairing.trees import test_key

Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shape:
    """The nodes of one tree, level by level, siblings side by side; a node's place here is its new number."""

    nodes: Array
    """By new number the node of the ensemble."""
    left: Array
    """New number of the child that a true test leads to, -1 at leaves; its sibling is `right`."""
    right: Array
    parent: Array
    """New number, -1 for the root."""
    origin: Array
    """The library's own number of the node that it came from, -1 where there is none."""

    @property
    def is_leaf(self) -> npt.NDArray[np.bool_]:
        return self.left < 0

    def from_leaves(self, own: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """A statistic that leaves have, for all nodes: what is in a node is what is in its children."""
        total = own.copy()
        for node in np.flatnonzero(~self.is_leaf)[::-1]:  # children have larger numbers
            total[node] = total[self.left[node]] + total[self.right[node]]
        return total


def shapes(ensemble: TreeEnsemble, *, swap_sets: bool = False) -> Iterator[Shape]:
    """Every tree in the order of levels. With `swap_sets` members of a category set go right, as in XGBoost, and `left` is
    the smaller number of the two all the same."""
    first, second = ensemble.left, ensemble.right
    if swap_sets:
        by_set = ensemble.test == Test.IN_SET
        first, second = np.where(by_set, second, first), np.where(by_set, first, second)
    for root in ensemble.roots.tolist():
        nodes, left, right, parent = [root], [], [], [-1]
        for at, node in enumerate(nodes):  # grows as it goes
            if ensemble.test[node] == Test.LEAF:
                left.append(-1)
                right.append(-1)
                continue
            left.append(len(nodes))
            right.append(len(nodes) + 1)
            nodes += [int(first[node]), int(second[node])]
            parent += [at, at]
        numbers = np.array(nodes, np.int64)
        left_at, right_at, parent_at = (np.array(part, np.int64) for part in (left, right, parent))
        yield Shape(numbers, left_at, right_at, parent_at, ensemble.node_id[numbers].astype(np.int64))


def leaf_statistic(
    shape: Shape, stored: npt.NDArray[np.floating], total: float | None = None
) -> npt.NDArray[np.float64]:
    """A positive statistic of the leaves (rows, hessians) from the tree of origin, 0 at other nodes.

    A leaf without an origin gets an equal share of all that the tree had (`total`, or what its root has), so that no node
    is left empty.
    """
    everything = float(stored[0]) if total is None else total
    found = np.zeros(len(shape.nodes))
    for leaf in np.flatnonzero(shape.is_leaf):
        known = shape.origin[leaf] >= 0
        found[leaf] = stored[shape.origin[leaf]] if known else max(1.0, everything // int(shape.is_leaf.sum()))
    return found


def with_trees(ensemble: TreeEnsemble, builder: EnsembleBuilder) -> TreeEnsemble:
    """The ensemble with other trees, and all else as it is."""
    built = builder.build(
        library=ensemble.library,
        feature_names=ensemble.feature_names,
        base=ensemble.base,
        link=ensemble.link,
        classes=ensemble.classes,
    )
    names = ("roots", "feature", "test", "threshold", "left", "right", "default_left", "missing", "set_start", "set_stop",
             "set_codes", "value", "tree_output", "node_id")  # fmt: skip
    return replace(ensemble, **{name: getattr(built, name) for name in names})


def first_difference(one: TreeEnsemble, other: TreeEnsemble) -> str | None:
    """The first thing in which the trees of two ensembles differ, or None: nodes may be numbered differently."""
    if one.n_trees != other.n_trees:
        return f"{other.n_trees} trees in place of {one.n_trees}"
    if one.base != other.base or one.factor != other.factor or one.link != other.link:
        return f"base {other.base} in place of {one.base}"
    here, there = one.roots.astype(np.int64), other.roots.astype(np.int64)
    tree = np.arange(one.n_trees)
    fields = ("test", "feature", "threshold", "default_left", "missing")
    while len(here):
        for name in fields:
            mine, its = getattr(one, name)[here], getattr(other, name)[there]
            if not np.array_equal(mine, its):
                at = int(np.flatnonzero(mine != its)[0])
                return f"tree {tree[at]}: {name} {its[at]} in place of {mine[at]}"
        leaf = one.test[here] == Test.LEAF
        values, read = one.value[here[leaf]], other.value[there[leaf]]
        if not np.array_equal(values, read):
            at = int(np.argwhere(values != read)[0][0])
            return f"tree {tree[leaf][at]}: a leaf of {read[at].tolist()} in place of {values[at].tolist()}"
        for mine, its, t in zip(here.tolist(), there.tolist(), tree.tolist()):
            if one.test[mine] == Test.IN_SET and one.set_of(mine) != other.set_of(its):
                return f"tree {t}: a category set {sorted(other.set_of(its))} in place of {sorted(one.set_of(mine))}"
        here, there, tree = here[~leaf], there[~leaf], tree[~leaf]
        here = np.concatenate([one.left[here], one.right[here]]).astype(np.int64)
        there = np.concatenate([other.left[there], other.right[there]]).astype(np.int64)
        tree = np.concatenate([tree, tree])
    return None


def first_other_answer(one: TreeEnsemble, other: TreeEnsemble) -> str | None:
    """Where two ensembles lead the same answers to their tests to other values, whatever the order of the tests; or None."""
    if one.n_trees != other.n_trees or one.base != other.base or one.factor != other.factor:
        return first_difference(one, other)
    for t, roots in enumerate(zip(one.roots.tolist(), other.roots.tolist())):
        waiting: list[tuple[int, int, dict[tuple[object, ...], bool]]] = [(*roots, {})]
        while waiting:
            here, there, answers = waiting.pop()
            here, there = _led(one, here, answers), _led(other, there, answers)
            for ensemble, node in ((one, here), (other, there)):
                if ensemble.test[node] != Test.LEAF:
                    key = test_key(ensemble, node)
                    waiting += [(here, there, {**answers, key: answer}) for answer in (True, False)]
                    break
            else:
                if one.value[here].tolist() != other.value[there].tolist():
                    return f"tree {t}: a leaf of {other.value[there].tolist()} in place of {one.value[here].tolist()}"
    return None


def _led(ensemble: TreeEnsemble, node: int, answers: dict[tuple[object, ...], bool]) -> int:
    while ensemble.test[node] != Test.LEAF and (key := test_key(ensemble, node)) in answers:
        node = int((ensemble.left if answers[key] else ensemble.right)[node])
    return node
