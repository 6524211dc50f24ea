"""From XGBoost's parsed model document (the same in JSON and UBJSON) to validated trees.

What a node means (checked against the library by the conformance tests): the input is cast to float32 and `x < t` goes
left; a member of a category set goes RIGHT and everything else, unseen and negative codes included, goes left; NaN goes
where `default_left` says. The right child is the node after the left child: XGBoost adds one instead of looking.

Fields that only XGBoost's own loader reads (parents, statistics, the order of the category encoder) are validated too,
because a document that passes here may be given to it, and it does not check them.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.ensemble import Decides, EnsembleBuilder, Link, Test, TreeEnsemble
from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.importers.structure import (
    MAX_FEATURES,
    MAX_NODES,
    check_tree,
    finite,
    get,
    integer,
    numbers,
    real,
    single_from_text,
    within,
)

DELETED = 2**31 - 1  # the split index of a node that pruning has removed
NO_PARENT = (-1, 2**31 - 1)  # a root's parent, in trees with vector and with scalar leaves
MAX_CODE = 2**24 - 1  # the last category that a float32 holds exactly; XGBoost takes larger ones for none
MAX_SET_CODES = 2**33  # XGBoost keeps a bit for every code up to a set's largest: 1 GiB for all sets of a model
MAX_CLASSES = 10_000
SMALLEST_PROBABILITY = np.float32(1e-6)  # XGBoost keeps base_score this far from 0 and 1 before it takes the logit

Array = npt.NDArray[Any]
Categories = Mapping[int, tuple[Any, ...]]


@dataclass(frozen=True)
class Objective:
    """What an objective's margin means: its link, base_score as a margin, and the class that `predict` chooses."""

    link: Link
    intercept: Callable[[np.float32], float]
    decides_on: Decides
    decide: Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Tree:
    """One validated tree in XGBoost's own numbering, deleted nodes included."""

    left: Array
    right: Array
    deleted: Array
    feature: Array
    threshold: Array
    default_left: Array
    value: Array
    sets: Mapping[int, Array]
    """The categories that go right, per node that asks for categories."""

    def add_to(self, builder: EnsembleBuilder, output: int, weight: float) -> None:
        """Give the tree to the builder, where members of a set go left: the children of set nodes are swapped."""
        kept = np.flatnonzero(~self.deleted)
        number = np.full(len(self.left), -1)
        number[kept] = np.arange(len(kept))
        leaf = self.left < 0
        by_set = np.zeros(len(self.left), bool)
        by_set[list(self.sets)] = True
        builder.add_tree(
            feature=self.feature[kept],
            test=np.where(leaf, Test.LEAF, np.where(by_set, Test.IN_SET, Test.LESS_F32))[kept],
            threshold=np.where(leaf | by_set, 0.0, self.threshold)[kept],
            left=number[np.where(leaf, 0, np.where(by_set, self.right, self.left))[kept]],
            right=number[np.where(leaf, 0, np.where(by_set, self.left, self.right))[kept]],
            default_left=(self.default_left != by_set)[kept],
            # A product of two float32 is exact in float64; that XGBoost rounds it is within rounding_error().
            value=self.value[kept] * weight,
            sets={int(number[node]): codes.tolist() for node, codes in self.sets.items()},
            node_id=kept,
            output=output,
        )


@dataclass(frozen=True, eq=False)
class Model:
    """A validated document, cut to the trees that `predict` uses."""

    objective: str
    feature_names: tuple[str, ...]
    trees: tuple[Tree, ...]
    outputs: tuple[int, ...]
    """The output that each tree feeds; -1: its leaves hold a value for every output."""
    weights: tuple[float, ...]
    rounds: int
    """The boosting rounds that `predict` uses; 0 is all."""
    base: tuple[Fraction, ...]
    categories: Categories
    trees_in_file: int | None = None
    """How many trees the document has, if `predict` uses only some of them."""

    def ensemble(self, classes: Any = None) -> TreeEnsemble:
        builder = EnsembleBuilder()
        for tree, output, weight in zip(self.trees, self.outputs, self.weights, strict=True):
            tree.add_to(builder, output, weight)
        n_classes = max(2, len(self.base))
        values = list(range(n_classes)) if classes is None else np.asarray(classes).tolist()
        if len(values) != n_classes:
            raise ModelError(f"classes_: has {len(values)} entries, the model has {n_classes} classes")
        return builder.build(
            library="xgboost",
            feature_names=self.feature_names,
            base=self.base,
            link=OBJECTIVES[self.objective].link,
            classes=values,
            tie="negative",
            sum_dtype="float32",
            decides_on=OBJECTIVES[self.objective].decides_on,
            categories=self.categories,
        )


def read_model(document: Any, *, until_best: bool) -> Model:
    """Validate a document; with `until_best` the trees after the best iteration are left out."""
    learner = get(document, "learner", dict, "document")
    version = _read_version(document)
    objective = _read_objective(learner, version)
    param = get(learner, "learner_model_param", dict, "learner")
    n_features = _count(param, "num_feature", "learner.learner_model_param", 1, MAX_FEATURES)
    n_outputs = _read_outputs(param, objective)
    base = _read_base(param, objective, n_outputs)
    forest, where = _read_booster(learner)
    categories = _read_categories(forest, n_features, where)
    trees, outputs = _read_trees(forest, n_features, n_outputs, categories, where)
    weights = _read_weights(learner, len(trees), vector=-1 in outputs)
    ends = _read_rounds(forest, len(trees), 1 if -1 in outputs else n_outputs, where)
    rounds = _read_best(learner, len(ends) - 1) if until_best else 0
    used = int(ends[rounds]) if rounds else len(trees)
    names = _read_feature_names(learner, n_features)
    held = len(trees) if used < len(trees) else None
    return Model(objective, names, trees[:used], outputs[:used], weights[:used], rounds, base, categories, held)


def single(values: object, where: str, length: int | None) -> Array:
    """A list of numbers as the float32 that XGBoost reads, held in float64."""
    with np.errstate(over="ignore"):
        return numbers(values, where, length, np.float64).astype(np.float32).astype(np.float64)


def _count(node: object, key: str, where: str, low: int, high: int, default: int | None = None) -> int:
    if default is not None and isinstance(node, Mapping) and key not in node:
        return default
    return integer(get(node, key, (str, int), where), f"{where}.{key}", low, high)


def _list(node: object, key: str, where: str) -> Any:
    return get(node, key, (list, np.ndarray), where)


def _integers(node: object, key: str, where: str, length: int | None) -> Array:
    return numbers(_list(node, key, where), f"{where}.{key}", length, np.int32).astype(np.int64)


# --- the learner ---


def _read_version(document: Any) -> int:
    version = _integers(document, "version", "document", 3)
    within(version, "document.version", 0, 10_000)
    return int(version[0])


def _read_objective(learner: Any, version: int) -> str:
    where = "learner.objective"
    name = get(get(learner, "objective", dict, "learner"), "name", str, where)
    if name == "binary:hinge":
        raise ModelError(f"{where}.name: 'binary:hinge' predicts no probability, so it has no confidence")
    if name not in OBJECTIVES:
        raise ModelError(f"{where}.name: {shown(name)} is no classifier; accepted are {', '.join(OBJECTIVES)}")
    if name == "binary:logitraw" and version < 2:
        raise ModelError(f"{where}.name: XGBoost before 2.0 read base_score differently here; save it with a later one")
    return str(name)


def _read_outputs(param: Any, objective: str) -> int:
    where = "learner.learner_model_param"
    n_targets = _count(param, "num_target", where, 0, MAX_FEATURES, default=1)
    if n_targets > 1:
        raise ModelError(f"{where}.num_target: {n_targets} labels at once; accepted is one")
    if OBJECTIVES[objective].link == "softmax":
        return _count(param, "num_class", where, 2, MAX_CLASSES)
    _count(param, "num_class", where, 0, 1, default=0)
    return 1


def _read_base(param: Any, objective: str, n_outputs: int) -> tuple[Fraction, ...]:
    """The margin before any tree: base_score is a number or, from XGBoost 3.1 on, a list of numbers, as text."""
    where = "learner.learner_model_param.base_score"
    text = str(get(param, "base_score", (str, float), "learner.learner_model_param"))
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        inner = inner[1:-1]
    parts = inner.split(",")
    if len(parts) not in (1, n_outputs):
        raise ModelError(f"{where}: {shown(text)} has {len(parts)} values for {n_outputs} outputs")
    for part in parts:
        real(part, where)
    scores = single([single_from_text(part) for part in parts], where, None)
    finite(scores, where)
    if objective == "binary:logistic" and not 0 <= scores[0] <= 1:
        raise ModelError(f"{where}: {shown(text)} is outside 0..1")
    margins = [Fraction(OBJECTIVES[objective].intercept(np.float32(score))) for score in scores]
    return tuple(margins * n_outputs if len(margins) == 1 else margins)


def logit(probability: np.float32) -> float:
    """XGBoost's intercept for base_score, bit for bit: float32 arithmetic and the C library's float32 logarithm.

    Rounding a float64 logarithm instead gives another float32 for one base_score in two hundred.
    """
    one = np.float32(1)
    inside = min(max(probability, SMALLEST_PROBABILITY), one - SMALLEST_PROBABILITY)
    odds = float(one / inside - one)
    try:
        logf = ctypes.CDLL("ucrtbase" if os.name == "nt" else None).logf
    except (OSError, AttributeError):
        return float(np.float32(-math.log(odds)))
    logf.argtypes, logf.restype = [ctypes.c_float], ctypes.c_float
    return -float(logf(odds))


OBJECTIVES = {
    "binary:logistic": Objective("sigmoid", logit, "probability", lambda output: output > 0.5),
    "binary:logitraw": Objective("sigmoid", float, "margin", lambda output: output > 0),
    "multi:softprob": Objective("softmax", float, "probability", lambda output: output.argmax(axis=1)),
    "multi:softmax": Objective("softmax", float, "margin", lambda output: output),
}


def _read_feature_names(learner: Any, n_features: int) -> tuple[str, ...]:
    for key in ("feature_names", "feature_types"):
        texts = get(learner, key, list, "learner") if key in learner else []
        if len(texts) not in (0, n_features):
            raise ModelError(f"learner.{key}: has {len(texts)} entries for {n_features} features")
        for at, text in enumerate(texts):
            if not isinstance(text, str):
                raise ModelError(f"learner.{key}[{at}]: expected text, found {shown(text)}")
    names: Sequence[str] = learner.get("feature_names") or [f"f{i}" for i in range(n_features)]
    if len(set(names)) != n_features:
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise ModelError(f"learner.feature_names: {shown(twice)} occurs twice")
    return tuple(names)


def _read_best(learner: Any, n_rounds: int) -> int:
    attributes = get(learner, "attributes", dict, "learner") if "attributes" in learner else {}
    if "best_iteration" not in attributes:
        return 0
    return _count(attributes, "best_iteration", "learner.attributes", 0, n_rounds - 1) + 1


# --- the booster ---


def _read_booster(learner: Any) -> tuple[Any, str]:
    """The forest, and where in the document it is."""
    where = "learner.gradient_booster"
    booster = get(learner, "gradient_booster", dict, "learner")
    name = get(booster, "name", str, where)
    if name == "dart":
        booster, where = get(booster, "gbtree", dict, where), f"{where}.gbtree"
    elif name != "gbtree":
        raise ModelError(f"{where}.name: {shown(name)} has no trees; accepted are gbtree and dart")
    return get(booster, "model", dict, where), f"{where}.model"


def _read_weights(learner: Any, n_trees: int, vector: bool) -> tuple[float, ...]:
    """What each tree's leaves are multiplied by: in dart the share that dropping trees has left of it, else one."""
    booster, where = learner["gradient_booster"], "learner.gradient_booster"
    if booster["name"] == "gbtree":
        return (1.0,) * n_trees
    if vector:
        raise ModelError(f"{where}.name: XGBoost does not define 'dart' with vector leaves")
    weights = single(_list(booster, "weight_drop", where), f"{where}.weight_drop", n_trees)
    finite(weights, f"{where}.weight_drop")
    return tuple(weights.tolist())


def _read_rounds(forest: Any, n_trees: int, trees_an_output: int, where: str) -> Array:
    """After how many trees each boosting round ends, from 0 on."""
    param = get(forest, "gbtree_model_param", dict, where)
    parallel = _count(param, "num_parallel_tree", f"{where}.gbtree_model_param", 0, MAX_NODES, default=1)
    if "iteration_indptr" not in forest:
        return np.arange(0, n_trees + 1, max(1, parallel) * trees_an_output)
    ends = _integers(forest, "iteration_indptr", where, None)
    if len(ends) == 0 or ends[0] != 0 or ends[-1] != n_trees or (np.diff(ends) < 0).any():
        raise ModelError(f"{where}.iteration_indptr: {shown(ends.tolist())} does not rise from 0 to {n_trees}")
    return ends


def _read_categories(forest: Any, n_features: int, where: str) -> dict[int, tuple[Any, ...]]:
    """The user's category values in code order, from the encoder that XGBoost stores for data frames since 3.1."""
    if "cats" not in forest:
        return {}
    encoder, where = get(forest, "cats", dict, where), f"{where}.cats"
    columns = get(encoder, "enc", list, where)
    if len(columns) not in (0, n_features):
        raise ModelError(f"{where}.enc: has {len(columns)} entries for {n_features} features")
    sizes: list[int] = []
    categories = {}
    for feature, column in enumerate(columns):
        size, values = _read_category_column(column, f"{where}.enc[{feature}]")
        sizes.append(size)
        if values:
            categories[feature] = values
    ends = _integers(encoder, "feature_segments", where, None)
    if ends.tolist() not in ([0, *np.cumsum(sizes).tolist()], [] if sum(sizes) == 0 else None):
        raise ModelError(f"{where}.feature_segments: {shown(ends.tolist())} are not the sizes in enc")
    order = _integers(encoder, "sorted_idx", where, None)
    if len(order) not in (0, sum(sizes)):
        raise ModelError(f"{where}.sorted_idx: has {len(order)} entries for {sum(sizes)} categories")
    if len(order) and ((order < 0) | (order >= np.repeat(sizes, sizes))).any():
        raise ModelError(f"{where}.sorted_idx: {shown(order.tolist())} leads outside its feature's categories")
    return categories


def _read_category_column(column: Any, where: str) -> tuple[int, tuple[Any, ...]]:
    """How many categories a feature has, and their values where the file can be trusted with them."""
    values = numbers(_list(column, "values", where), f"{where}.values", None, np.int64)
    if "offsets" not in column:
        _count(column, "type", where, 0, 100)
        return len(values), tuple(values.tolist())
    within(values, f"{where}.values", -128, 255)
    offsets = _integers(column, "offsets", where, None)
    if len(offsets) == 0:
        return 0, ()
    if offsets[0] != 0 or offsets[-1] > len(values) or (np.diff(offsets) < 0).any():
        raise ModelError(f"{where}.offsets: {shown(offsets.tolist())} does not rise from 0 to {len(values)}")
    if ((values < 0) | (values > 127)).any():
        # XGBoost 3.2 counts characters in the offsets but writes bytes: names beyond ASCII arrive cut and shifted.
        return len(offsets) - 1, ()
    text = bytes(values.astype(np.uint8)).decode("ascii")
    return len(offsets) - 1, tuple(text[begin:end] for begin, end in pairwise(offsets.tolist()))


# --- the trees ---


def _read_trees(
    forest: Any, n_features: int, n_outputs: int, categories: Categories, where: str
) -> tuple[tuple[Tree, ...], tuple[int, ...]]:
    """All trees, and the output each of them feeds (-1: every output)."""
    documents = get(forest, "trees", list, where)
    param = get(forest, "gbtree_model_param", dict, where)
    n_trees = _count(param, "num_trees", f"{where}.gbtree_model_param", 0, MAX_NODES)
    if n_trees != len(documents):
        raise ModelError(f"{where}.gbtree_model_param.num_trees: is {n_trees}, but there are {len(documents)} trees")
    info = _integers(forest, "tree_info", where, n_trees)
    within(info, f"{where}.tree_info", 0, n_outputs - 1)
    trees: list[Tree] = []
    set_codes = 0
    for at, document in enumerate(documents):
        here = f"{where}.trees[{at}]"
        if _count(document, "id", here, 0, MAX_NODES) != at:
            raise ModelError(f"{here}.id: is {shown(document['id'])}, expected {at}; XGBoost orders trees by it")
        trees.append(_read_tree(document, n_features, n_outputs, categories, here))
        set_codes += sum(int(codes.max()) + 1 for codes in trees[-1].sets.values())
        if set_codes > MAX_SET_CODES:
            raise ModelError(f"{here}.categories: the model's sets span more than {MAX_SET_CODES} codes")
    vector = {tree.value.shape[1] > 1 for tree in trees}
    if len(vector) > 1:
        raise ModelError(f"{where}.trees: some have scalar leaves and some have vector leaves")
    return tuple(trees), (-1,) * n_trees if vector == {True} else tuple(info.tolist())


def _read_tree(tree: Any, n_features: int, n_outputs: int, categories: Categories, where: str) -> Tree:
    param = get(tree, "tree_param", dict, where)
    n = _count(param, "num_nodes", f"{where}.tree_param", 1, MAX_NODES)
    _count(param, "num_feature", f"{where}.tree_param", 0, n_features, default=0)
    width = max(1, _count(param, "size_leaf_vector", f"{where}.tree_param", 0, MAX_CLASSES, default=1))
    if width not in (1, n_outputs):
        raise ModelError(f"{where}.tree_param.size_leaf_vector: is {width} for {n_outputs} outputs")
    left = _integers(tree, "left_children", where, n)
    right = _integers(tree, "right_children", where, n)
    feature = _integers(tree, "split_indices", where, n)
    default_left = _integers(tree, "default_left", where, n)
    threshold = single(_list(tree, "split_conditions", where), f"{where}.split_conditions", n)
    for key, length in (("base_weights", n * width), ("loss_changes", n), ("sum_hessian", n)):
        numbers(_list(tree, key, where), f"{where}.{key}", length, np.float64)
    leaf, deleted = left == -1, feature == DELETED
    _check_deleted(param, deleted, left, right, where)
    check_tree(left, right, leaf, where, unused=deleted)
    _check_links(_integers(tree, "parents", where, n), left, right, where)
    within(default_left, f"{where}.default_left", 0, 1)
    within(default_left, f"{where}.default_left", 1, 1, only=deleted)  # half of XGBoost's own mark of a deleted node
    within(feature, f"{where}.split_indices", 0, n_features - 1, only=~deleted)
    finite(threshold, f"{where}.split_conditions", only=~deleted)
    sets = _read_sets(tree, feature, leaf, categories, where)
    if width == 1:
        within(right, f"{where}.right_children", -1, -1, only=leaf)
        value = np.where(leaf & ~deleted, threshold, 0.0)[:, None]
    else:
        value = _read_vector_leaves(tree, right, leaf, width, where)
    return Tree(left, right, deleted, feature, threshold, default_left == 1, value, sets)


def _check_deleted(param: Any, deleted: Array, left: Array, right: Array, where: str) -> None:
    """Deleted nodes are as many as declared, and no part of the tree."""
    declared = _count(param, "num_deleted", f"{where}.tree_param", 0, len(deleted), default=0)
    if declared != int(deleted.sum()):
        raise ModelError(f"{where}.tree_param.num_deleted: is {declared}, but {int(deleted.sum())} nodes are deleted")
    inner = left != -1
    children = np.concatenate([left[inner], right[inner]])
    part = inner.copy()
    part[0] = True
    part[children[(children >= 0) & (children < len(part))]] = True
    wrong = np.flatnonzero(part & deleted)
    if len(wrong):
        raise ModelError(f"{where}.split_indices[{wrong[0]}]: marked as deleted, but the node is part of the tree")


def _check_links(parents: Array, left: Array, right: Array, where: str) -> None:
    """The right child follows the left one, and `parents` is the inverse of the children."""
    inner = np.flatnonzero(left != -1)
    apart = inner[right[inner] != left[inner] + 1]
    if len(apart):
        at = int(apart[0])
        raise ModelError(
            f"{where}.right_children[{at}]: is {right[at]}, but XGBoost goes to {left[at] + 1}, left plus one"
        )
    if parents[0] not in NO_PARENT:
        raise ModelError(f"{where}.parents[0]: is {parents[0]}, but node 0 is the root")
    within(parents, f"{where}.parents", 0, len(parents) - 1, only=np.arange(len(parents)) > 0)
    for children in (left, right):
        wrong = inner[parents[children[inner]] != inner]
        if len(wrong):
            child = int(children[wrong[0]])
            raise ModelError(f"{where}.parents[{child}]: is {parents[child]}, but it is a child of node {wrong[0]}")


def _read_sets(tree: Any, feature: Array, leaf: Array, categories: Categories, where: str) -> dict[int, Array]:
    """The categories of every inner node that asks for them; a pruned node keeps its own in the file, unread."""
    keys = ("split_type", "categories", "categories_nodes", "categories_segments", "categories_sizes")
    if not any(key in tree for key in keys):  # XGBoost before 1.3
        return {}
    kind = _integers(tree, "split_type", where, len(leaf))
    within(kind, f"{where}.split_type", 0, 1)
    nodes = _integers(tree, "categories_nodes", where, None)
    if nodes.tolist() != np.flatnonzero(kind).tolist():
        raise ModelError(f"{where}.categories_nodes: {shown(nodes.tolist())} are not the nodes with split_type 1")
    codes = _integers(tree, "categories", where, None)
    within(codes, f"{where}.categories", 0, MAX_CODE)
    starts = _integers(tree, "categories_segments", where, len(nodes))
    sizes = _integers(tree, "categories_sizes", where, len(nodes))
    within(sizes, f"{where}.categories_sizes", 1, len(codes))
    # Segments that overlap would let a small file hold sets of any total size.
    if starts.tolist() != (np.cumsum(sizes) - sizes).tolist() or sizes.sum() != len(codes):
        raise ModelError(f"{where}.categories_segments: {shown(starts.tolist())} do not divide {len(codes)} categories")
    sets = {}
    for node, start, size in zip(nodes.tolist(), starts.tolist(), sizes.tolist()):
        if not leaf[node]:
            members = codes[start : start + size]
            known = len(categories.get(int(feature[node]), ())) or MAX_CODE + 1
            within(members, f"{where}.categories[{start}:{start + size}]", 0, known - 1)
            sets[node] = members
    return sets


def _read_vector_leaves(tree: Any, right: Array, leaf: Array, width: int, where: str) -> Array:
    """One value an output: `right_children` of a leaf says which row of `leaf_weights` is its own."""
    if "leaf_weights" not in tree:
        raise ModelError(f"{where}.leaf_weights: missing; vector leaves are read from XGBoost 3.2 on, save it again")
    n_leaves = int(leaf.sum())
    weights = single(_list(tree, "leaf_weights", where), f"{where}.leaf_weights", n_leaves * width)
    finite(weights, f"{where}.leaf_weights")
    within(right, f"{where}.right_children", 0, n_leaves - 1, only=leaf)
    rows = weights.reshape(n_leaves, width)[np.where(leaf, right, 0)]
    return np.where(leaf[:, None], rows, 0.0)
