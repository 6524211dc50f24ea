"""The trees of XGBoost's model document, validated all at once: one array a field, tree after tree.

What a node means (checked against the library by the conformance tests): the input is cast to float32 and `x < t` goes
left; a member of a category set goes RIGHT and everything else, unseen and negative codes included, goes left; NaN goes
where `default_left` says. The right child is the node after the left child: XGBoost adds one instead of looking.

Fields that only XGBoost's own loader reads (parents, statistics) are validated too, because a document that passes here
may be given to it, and it does not check them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.ensemble import EnsembleBuilder, Test
from boxqte.models.importers.structure import MAX_DEPTH, MAX_NODES, finite, get, integer, numbers, within

DELETED = 2**31 - 1  # the split index of a node that pruning has removed
NO_PARENT = (-1, 2**31 - 1)  # a root's parent, in trees with vector and with scalar leaves
MAX_CODE = 2**24 - 1  # the last category that a float32 holds exactly; XGBoost takes larger ones for none
MAX_SET_CODES = 2**33  # XGBoost keeps a bit for every code up to a set's largest: 1 GiB for all sets of a model
MAX_CLASSES = 10_000
SET_KEYS = ("split_type", "categories", "categories_nodes", "categories_segments", "categories_sizes")

Array = npt.NDArray[Any]
Categories = Mapping[int, tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Forest:
    """Validated trees, one after the other, deleted nodes included; nodes are numbered through all trees."""

    starts: Array
    """Where each tree begins; one more entry at the end."""
    left: Array
    right: Array
    deleted: Array
    feature: Array
    threshold: Array
    default_left: Array
    value: Array
    sets: Mapping[int, Array]
    """The categories that go right, per node that asks for categories."""

    @property
    def has_vector_leaves(self) -> bool:
        return bool(self.value.shape[1] > 1)

    def add_to(self, builder: EnsembleBuilder, outputs: Sequence[int], weights: Sequence[float]) -> None:
        """Give the first trees to the builder, where members of a set go left: the children of set nodes are swapped."""
        n = len(outputs)
        size = int(self.starts[n])
        kept = np.flatnonzero(~self.deleted[:size])
        number = np.full(size, -1)
        number[kept] = np.arange(len(kept))
        leaf = self.left[kept] < 0
        by_set = np.zeros(size, bool)
        by_set[[node for node in self.sets if node < size]] = True
        swapped, (left, right) = by_set[kept], (np.where(leaf, 0, side[kept]) for side in (self.left, self.right))
        lengths = np.diff(self.starts[: n + 1])
        builder.add_tree(
            feature=self.feature[kept],
            test=np.where(leaf, Test.LEAF, np.where(swapped, Test.IN_SET, Test.LESS_F32)),
            threshold=np.where(leaf | swapped, 0.0, self.threshold[kept]),
            left=number[np.where(swapped, right, left)],
            right=number[np.where(swapped, left, right)],
            default_left=self.default_left[kept] != swapped,
            # A product of two float32 is exact in float64; that XGBoost rounds it is within rounding_error().
            value=self.value[kept] * np.repeat(weights, lengths)[kept, None],
            sets={int(number[node]): codes.tolist() for node, codes in self.sets.items() if node < size},
            node_id=kept - np.repeat(self.starts[:n], lengths)[kept],
            root=number[self.starts[:n]],
            output=outputs,
        )


def single(values: object, where: str, length: int | None) -> Array:
    """A list of numbers as the float32 that XGBoost reads, held in float64."""
    with np.errstate(over="ignore"):
        return numbers(values, where, length, np.float64).astype(np.float32).astype(np.float64)


def count_at(node: object, key: str, where: str, low: int, high: int, default: int | None = None) -> int:
    if default is not None and isinstance(node, Mapping) and key not in node:
        return default
    return integer(get(node, key, (str, int), where), f"{where}.{key}", low, high)


def list_at(node: object, key: str, where: str) -> Any:
    return get(node, key, (list, np.ndarray), where)


def integers_at(node: object, key: str, where: str, length: int | None) -> Array:
    return numbers(list_at(node, key, where), f"{where}.{key}", length, np.int32).astype(np.int64)


class _Columns:
    """The trees' lists as one array a field; what is refused is named by its tree and its place there."""

    def __init__(self, trees: Sequence[Any], where: str):
        self.trees, self.where = trees, where
        self.params = [get(tree, "tree_param", dict, self.tree(t)) for t, tree in enumerate(trees)]
        self.sizes = [self.count(t, "num_nodes", 1, MAX_NODES) for t in range(len(trees))]
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.offset = np.repeat(self.starts[:-1], self.sizes)
        self.last = np.repeat(self.sizes, self.sizes) - 1

    def tree(self, t: int) -> str:
        return f"{self.where}[{t}]"

    def count(self, t: int, key: str, low: int, high: int, default: int | None = None) -> int:
        return count_at(self.params[t], key, f"{self.where}[{t}].tree_param", low, high, default)

    def floats(self, key: str, width: int = 1) -> Array:
        parts = []
        for t, (tree, n) in enumerate(zip(self.trees, self.sizes)):
            values = tree.get(key)
            if not (isinstance(values, np.ndarray) and values.dtype.kind == "f" and len(values) == n * width):
                values = single(list_at(tree, key, self.tree(t)), f"{self.tree(t)}.{key}", n * width)
            parts.append(values)
        with np.errstate(invalid="ignore"):
            return np.concatenate(parts, dtype=np.float64)

    def integers(self, key: str) -> Array:
        parts = []
        for t, (tree, n) in enumerate(zip(self.trees, self.sizes)):
            values = tree.get(key)
            if not (isinstance(values, np.ndarray) and values.dtype.char in "bBhi" and len(values) == n):
                values = integers_at(tree, key, self.tree(t), n)
            parts.append(values)
        return np.concatenate(parts, dtype=np.int64)

    def refuse(self, off: Array, key: str, why: Callable[[int], str], of_node: bool = True) -> None:
        """Name the first node that is off."""
        if off.any():
            at = int(np.argmax(off))
            t = int(np.searchsorted(self.starts, at, side="right")) - 1
            place = f"[{at - self.starts[t]}]" if of_node else ""
            raise ModelError(f"{self.tree(t)}.{key}{place}: {why(at)}")

    def within(self, key: str, array: Array, low: int, high: Array | int, only: Array | bool = True) -> None:
        def why(at: int) -> str:
            return f"{array[at]} is outside {low}..{high if isinstance(high, int) else high[at]}"

        self.refuse(((array < low) | (array > high)) & only, key, why)


def read_forest(trees: Sequence[Any], n_features: int, n_outputs: int, categories: Categories, where: str) -> Forest:
    """All trees of the document; `where` is their list's place in it."""
    for t, tree in enumerate(trees):
        if count_at(tree, "id", f"{where}[{t}]", 0, MAX_NODES) != t:
            raise ModelError(f"{where}[{t}].id: is {shown(tree['id'])}, expected {t}; XGBoost orders trees by it")
    columns = _Columns(trees, where)
    width = _read_width(columns, n_features, n_outputs)
    left, right = columns.integers("left_children"), columns.integers("right_children")
    feature, default_left = columns.integers("split_indices"), columns.integers("default_left")
    threshold = columns.floats("split_conditions")
    for key, per_node in (("base_weights", width), ("loss_changes", 1), ("sum_hessian", 1)):
        columns.floats(key, per_node)
    leaf, deleted = left == -1, feature == DELETED
    for key, side in (("left_children", left), ("right_children", right)):
        columns.within(key, side, 0, columns.last, only=~leaf)
    _check_deleted(columns, deleted, left, right)
    _check_shape(columns, deleted, left, right)
    _check_links(columns, columns.integers("parents"), left, right)
    columns.within("default_left", default_left, 0, 1)
    columns.within("default_left", default_left, 1, 1, only=deleted)  # half of XGBoost's own mark of a deleted node
    columns.within("split_indices", feature, 0, n_features - 1, only=~deleted)
    wrong = ~np.isfinite(threshold) & ~deleted
    columns.refuse(wrong, "split_conditions", lambda at: f"{threshold[at]} is not a finite number")
    sets = _read_sets(columns, feature, leaf, categories)
    if width == 1:
        columns.within("right_children", right, -1, -1, only=leaf)
        value = np.where(leaf & ~deleted, threshold, 0.0)[:, None]
    else:
        value = _read_vector_leaves(columns, right, leaf, width)
    left, right = (np.where(leaf, -1, side + columns.offset) for side in (left, right))
    return Forest(columns.starts, left, right, deleted, feature, threshold, default_left == 1, value, sets)


def _read_width(columns: _Columns, n_features: int, n_outputs: int) -> int:
    """How many values a leaf has."""
    widths = set()
    for t in range(len(columns.trees)):
        columns.count(t, "num_feature", 0, n_features, default=0)
        width = max(1, columns.count(t, "size_leaf_vector", 0, MAX_CLASSES, default=1))
        if width not in (1, n_outputs):
            raise ModelError(f"{columns.tree(t)}.tree_param.size_leaf_vector: is {width} for {n_outputs} outputs")
        widths.add(width)
    if len(widths) > 1:
        raise ModelError(f"{columns.where}: some have scalar leaves and some have vector leaves")
    return widths.pop() if widths else 1


def _check_deleted(columns: _Columns, deleted: Array, left: Array, right: Array) -> None:
    """Deleted nodes are as many as declared, and no part of the tree."""
    for t, n in enumerate(columns.sizes):
        declared = columns.count(t, "num_deleted", 0, n, default=0)
        found = np.count_nonzero(deleted[columns.starts[t] : columns.starts[t + 1]])
        if declared != found:
            raise ModelError(f"{columns.tree(t)}.tree_param.num_deleted: is {declared}, but {found} nodes are deleted")
    part = left != -1
    children = np.concatenate([(side + columns.offset)[part] for side in (left, right)])
    part[columns.starts[:-1]] = True
    part[children] = True
    columns.refuse(part & deleted, "split_indices", lambda _: "marked as deleted, but the node is part of the tree")


def _check_shape(columns: _Columns, deleted: Array, left: Array, right: Array) -> None:
    """The nodes are trees with their roots first: none has two parents, all but deleted ones can be reached."""
    inner = left != -1
    below = [side + columns.offset for side in (left, right)]
    parents = np.bincount(np.concatenate([side[inner] for side in below]), minlength=len(left))
    parents[columns.starts[:-1]] += 1
    where = "left_children/right_children"

    def node(at: int) -> str:
        return f"node {at - columns.offset[at]}"

    columns.refuse(
        parents > 1, where, lambda at: f"{node(at)} has more than one parent or is its own ancestor", of_node=False
    )
    reached = np.zeros(len(left), bool)
    level, depth = columns.starts[:-1], 0
    while len(level):
        reached[level] = True
        level = level[inner[level]]
        level = np.concatenate([side[level] for side in below])
        depth += 1
        if depth > MAX_DEPTH:
            raise ModelError(f"{columns.where}: a tree is deeper than {MAX_DEPTH}")
    columns.refuse(~reached & ~deleted, where, lambda at: f"{node(at)} cannot be reached from the root", of_node=False)


def _check_links(columns: _Columns, parents: Array, left: Array, right: Array) -> None:
    """The right child follows the left one, and `parents` is the inverse of the children."""
    inner = left != -1
    columns.refuse(
        inner & (right != left + 1), "right_children",
        lambda at: f"is {right[at]}, but XGBoost goes to {left[at] + 1}, left plus one",
    )  # fmt: skip
    root = np.zeros(len(left), bool)
    root[columns.starts[:-1]] = True
    columns.refuse(
        root & ~np.isin(parents, NO_PARENT), "parents", lambda at: f"is {parents[at]}, but node 0 is the root"
    )
    columns.within("parents", parents, 0, columns.last, only=~root)
    own = np.flatnonzero(inner)
    parent = parents.copy()  # as the children say it
    for children in (left, right):
        parent[(children + columns.offset)[own]] = own - columns.offset[own]
    columns.refuse(parents != parent, "parents", lambda at: f"is {parents[at]}, but it is a child of node {parent[at]}")


def _read_sets(columns: _Columns, feature: Array, leaf: Array, categories: Categories) -> dict[int, Array]:
    """The categories of every inner node that asks for them."""
    sets: dict[int, Array] = {}
    set_codes = 0
    for t, tree in enumerate(columns.trees):
        if _has_no_sets(tree, columns.sizes[t]):
            continue
        nodes = slice(columns.starts[t], columns.starts[t + 1])
        for node, codes in _sets_of_tree(tree, feature[nodes], leaf[nodes], categories, columns.tree(t)).items():
            sets[int(columns.starts[t]) + node] = codes
            set_codes += int(codes.max()) + 1
        if set_codes > MAX_SET_CODES:
            raise ModelError(f"{columns.tree(t)}.categories: the model's sets span more than {MAX_SET_CODES} codes")
    return sets


def _has_no_sets(tree: Any, n: int) -> bool:
    """Whether no node asks for categories, as XGBoost writes it: in a binary file, or before 1.3."""
    kind, *lists = (tree.get(key) for key in SET_KEYS)
    if kind is None:
        return all(values is None for values in lists)
    if not (isinstance(kind, np.ndarray) and len(kind) == n and kind.dtype.kind in "iu" and not kind.any()):
        return False
    return all(isinstance(values, np.ndarray) and len(values) == 0 for values in lists)


def _sets_of_tree(tree: Any, feature: Array, leaf: Array, categories: Categories, where: str) -> dict[int, Array]:
    """A pruned node keeps its categories in the file, unread."""
    kind = integers_at(tree, "split_type", where, len(leaf))
    within(kind, f"{where}.split_type", 0, 1)
    nodes = integers_at(tree, "categories_nodes", where, None)
    if nodes.tolist() != np.flatnonzero(kind).tolist():
        raise ModelError(f"{where}.categories_nodes: {shown(nodes.tolist())} are not the nodes with split_type 1")
    codes = integers_at(tree, "categories", where, None)
    within(codes, f"{where}.categories", 0, MAX_CODE)
    starts = integers_at(tree, "categories_segments", where, len(nodes))
    sizes = integers_at(tree, "categories_sizes", where, len(nodes))
    within(sizes, f"{where}.categories_sizes", 1, len(codes))
    # Segments that overlap would let a small file hold sets of any total size.
    if starts.tolist() != (np.cumsum(sizes) - sizes).tolist() or sizes.sum() != len(codes):
        raise ModelError(f"{where}.categories_segments: {shown(starts.tolist())} do not divide {len(codes)} categories")
    sets: dict[int, Array] = {}
    for node, start, size in zip(nodes.tolist(), starts.tolist(), sizes.tolist()):
        if not leaf[node]:
            members = codes[start : start + size]
            known = len(categories.get(int(feature[node]), ())) or MAX_CODE + 1
            within(members, f"{where}.categories[{start}:{start + size}]", 0, known - 1)
            sets[node] = members
    return sets


def _read_vector_leaves(columns: _Columns, right: Array, leaf: Array, width: int) -> Array:
    """One value an output: `right_children` of a leaf says which row of `leaf_weights` is its own."""
    parts = []
    for t, tree in enumerate(columns.trees):
        where, nodes = columns.tree(t), slice(columns.starts[t], columns.starts[t + 1])
        if "leaf_weights" not in tree:
            raise ModelError(
                f"{where}.leaf_weights: missing; vector leaves are read from XGBoost 3.2 on, save it again"
            )
        n_leaves = int(leaf[nodes].sum())
        weights = single(list_at(tree, "leaf_weights", where), f"{where}.leaf_weights", n_leaves * width)
        finite(weights, f"{where}.leaf_weights")
        within(right[nodes], f"{where}.right_children", 0, n_leaves - 1, only=leaf[nodes])
        parts.append(weights.reshape(n_leaves, width)[np.where(leaf[nodes], right[nodes], 0)])
    return np.where(leaf[:, None], np.concatenate(parts), 0.0)
