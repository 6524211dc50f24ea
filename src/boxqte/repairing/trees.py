"""New trees made of the nodes of a model: what every method of repair builds its result with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.models.ensemble import FloatArray, Test, TreeEnsemble
from boxqte.questions.building import match_columns
from boxqte.space.space import Space

PER_NODE = (
    "feature",
    "test",
    "threshold",
    "left",
    "right",
    "default_left",
    "missing",
    "set_start",
    "set_stop",
    "value",
    "node_id",
)
NO_ORIGIN = -1


def sensitive_features(ensemble: TreeEnsemble, space: Space, sensitive: Iterable[str]) -> frozenset[int]:
    """The model's columns that the sensitive attributes feed."""
    names = set(sensitive)
    return frozenset(
        f for f, (at, _) in enumerate(match_columns(ensemble, space, space.names)) if space.names[at] in names
    )


def tests_any(ensemble: TreeEnsemble, features: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Which nodes test one of the features."""
    found: npt.NDArray[np.bool_] = (ensemble.test != Test.LEAF) & np.isin(ensemble.feature, list(features))
    return found


class Growing:
    """Trees that are built node by node; each has the test (or, at a leaf, the kind) of a node of the model."""

    def __init__(self, model: TreeEnsemble):
        self.model = model
        self._like: list[int] = []
        self._left: list[int] = []
        self._right: list[int] = []
        self._value: list[FloatArray] = []
        self._node_id: list[int] = []

    def add(self, like: int, value: FloatArray | None = None, node_id: int | None = None) -> int:
        """A node with the test of the model's node `like`; at a leaf also its value, unless another is given."""
        self._like.append(like)
        self._left.append(-1)
        self._right.append(-1)
        self._value.append(self.model.value[like] if value is None else value)
        self._node_id.append(int(self.model.node_id[like]) if node_id is None else node_id)
        return len(self._like) - 1

    def join(self, node: int, left: int, right: int) -> None:
        self._left[node], self._right[node] = left, right

    def __len__(self) -> int:
        return len(self._like)

    def cut_back(self, size: int) -> None:
        """Forget all nodes but the first so many."""
        for nodes in (self._like, self._left, self._right, self._value, self._node_id):
            del nodes[size:]

    def copy(self, node: int, value: Callable[[int], FloatArray] | None = None) -> int:
        """The model's tree below (and with) a node, as it is; `value` may give other leaf values."""
        new = self.add(node, None if value is None else value(node))
        if self.model.test[node] != Test.LEAF:
            self.join(new, self.copy(int(self.model.left[node]), value), self.copy(int(self.model.right[node]), value))
        return new

    def values(self) -> FloatArray:
        """What was given as the nodes' values."""
        return np.array(self._value, np.float64)

    def built(self, roots: Sequence[int], **changes: Any) -> TreeEnsemble:
        """The model with these trees in place of its own."""
        model, like = self.model, np.array(self._like)
        arrays: dict[str, Any] = {name: getattr(model, name)[like] for name in PER_NODE}
        arrays["left"], arrays["right"] = np.array(self._left, np.int32), np.array(self._right, np.int32)
        arrays["value"] = changes.pop("value") if "value" in changes else self.values()
        arrays["node_id"] = np.array(self._node_id, np.int32)
        arrays["roots"] = np.array(roots, np.int32)
        if "tree_output" not in changes and len(roots) != model.n_trees:
            changes["tree_output"] = np.zeros(len(roots), np.int32)
        return replace(model, **arrays, **changes)


def with_values(ensemble: TreeEnsemble, leaves: npt.NDArray[np.intp], values: FloatArray) -> TreeEnsemble:
    """The ensemble with other values at some leaves."""
    changed = ensemble.value.copy()
    changed[leaves, 0] = values
    return replace(ensemble, value=changed)


def joined(one: TreeEnsemble, two: TreeEnsemble) -> TreeEnsemble:
    """The trees of two ensembles side by side: nodes and trees of the second come behind those of the first."""
    n, codes = one.n_nodes, len(one.set_codes)
    arrays: dict[str, Any] = {}
    for name in PER_NODE:
        first, second = getattr(one, name), getattr(two, name)
        if name in ("left", "right"):
            second = np.where(second < 0, second, second + n).astype(np.int32)
        elif name in ("set_start", "set_stop"):
            second = second + np.int32(codes)
        arrays[name] = np.concatenate([first, second])
    return replace(
        one,
        roots=np.concatenate([one.roots, two.roots + np.int32(n)]),
        tree_output=np.concatenate([one.tree_output, two.tree_output]),
        set_codes=np.concatenate([one.set_codes, two.set_codes]),
        **arrays,
    )


Key = tuple[Any, ...]


def test_key(ensemble: TreeEnsemble, node: int) -> Key:
    """What a node asks; two nodes with the same key send every input the same way."""
    own: Any = float(ensemble.threshold[node])
    if ensemble.test[node] == Test.IN_SET:
        own = ensemble.set_of(node)
    return (*family(ensemble, node), own)


def family(ensemble: TreeEnsemble, node: int) -> Key:
    """Feature, comparison and missing rule: within a family of threshold tests the answers are monotone in the threshold."""
    kinds = (ensemble.feature, ensemble.test, ensemble.missing, ensemble.default_left)
    return tuple(int(kind[node]) for kind in kinds)


def is_symmetric(ensemble: TreeEnsemble, root: int) -> bool:
    """Whether all nodes of a level ask the same (CatBoost's oblivious trees): then a level goes as a whole, or stays."""
    level = [root]
    while level:
        kinds = {ensemble.test[node] == Test.LEAF for node in level}
        if len(kinds) > 1:
            return False
        if kinds == {True}:
            return True
        if len({test_key(ensemble, node) for node in level}) > 1:
            return False
        level = [int(child) for node in level for child in (ensemble.left[node], ensemble.right[node])]
    return True
