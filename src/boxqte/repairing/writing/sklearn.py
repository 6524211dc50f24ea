"""scikit-learn: copies of estimators with other trees in them.

`sklearn.tree._tree.Tree` is made anew from its state. What predictions do not read is carried over or made to fit: samples
of a node are those of its children, its value is their mean, and its impurity theirs and what lies between them, so that
importances stay importances. Histogram gradient boosting has records of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.ensemble import Test, TreeEnsemble
from boxqte.models.importers.sklearn import LARGEST_F32, LARGEST_F64, column_order, fraction_of_second
from boxqte.repairing.writing.shapes import Shape, leaf_statistic, shapes

Floats = npt.NDArray[np.float64]
FORESTS = ("DecisionTreeClassifier", "ExtraTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier",
           "DecisionTreeRegressor", "ExtraTreeRegressor", "RandomForestRegressor", "ExtraTreesRegressor",
           "BalancedRandomForestClassifier")  # fmt: skip
BOOSTED = ("GradientBoostingClassifier", "GradientBoostingRegressor")
HISTOGRAM = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")
ESTIMATORS = (*FORESTS, *BOOSTED, *HISTOGRAM)
ULPS = 2  # a product and a quotient are each off by half a unit in the last place


def storable(values: Floats, unit: float, fractions: bool) -> Floats:
    """Leaf values as scikit-learn keeps them: fractions of a class lie within 0..1, boosting multiplies by its rate."""
    if fractions:
        return np.clip(values, 0.0, 1.0)
    return values if unit == 1.0 else unit * stored(values, unit)


def stored(values: Floats, unit: float) -> Floats:
    """The numbers whose rounded products with the unit are nearest to the values; for values that are such products
    themselves, they are met."""
    best = values / unit
    error = np.abs(unit * best - values)
    for direction in (-np.inf, np.inf):
        near = values / unit
        for _ in range(ULPS):
            near = np.nextafter(near, direction)
            apart = np.abs(unit * near - values)
            best, error = np.where(apart < error, near, best), np.minimum(apart, error)
    return best


def changed(source: Any, edited: TreeEnsemble, origins: Sequence[int]) -> Any:
    """A copy of one of `ESTIMATORS` with the edited trees; `origins[t]` is the tree that tree t came from."""
    model = copy.deepcopy(source)
    name = type(model).__name__
    if name in HISTOGRAM:
        _histogram(model, edited, origins)
    elif name in BOOSTED:
        unit = float(model.learning_rate)
        old = np.asarray(model.estimators_)
        members = [_member(old.reshape(-1)[origin], origins, t) for t, origin in enumerate(origins)]
        for member, shape in zip(members, shapes(edited)):
            member.tree_ = _tree(member.tree_, shape, edited, stored(edited.value, unit)[shape.nodes])
        model.estimators_ = np.array(members, object).reshape(-1, old.shape[1])
        model.n_estimators_ = len(model.estimators_)
    elif hasattr(model, "tree_"):
        [shape] = shapes(edited)
        model.tree_ = _tree(model.tree_, shape, edited, _leaf_rows(edited)[shape.nodes])
    else:
        if edited.link != "mean" and edited.scale * len(origins) != 1:
            raise ModelError("a forest divides by its number of trees, so that number cannot change")
        old_members = model.estimators_
        model.estimators_ = [_member(old_members[origin], origins, t) for t, origin in enumerate(origins)]
        rows = _leaf_rows(edited)
        for member, shape in zip(model.estimators_, shapes(edited)):
            member.tree_ = _tree(member.tree_, shape, edited, rows[shape.nodes])
        model.n_estimators = len(model.estimators_)
    return model


def _member(member: Any, origins: Sequence[int], t: int) -> Any:
    """The estimator of a tree's origin: itself for the first that comes from it, then copies."""
    return copy.deepcopy(member) if t and origins[t] == origins[t - 1] else member


def _leaf_rows(edited: TreeEnsemble) -> Floats:
    """What leaves of a forest hold: both fractions of a classifier, the value of a regressor."""
    if edited.link != "mean":
        return edited.value
    second = np.clip(edited.value[:, 0], 0.0, 1.0)
    return np.column_stack([1.0 - second, second])


def _tree(old: Any, shape: Shape, edited: TreeEnsemble, rows: Floats) -> Any:
    """A Tree of this shape; `rows` are the values of its nodes, read at leaves."""
    state = old.__getstate__()
    before, leaf, nodes = state["nodes"], shape.is_leaf, shape.nodes
    known = shape.origin >= 0
    records = before[np.where(known, shape.origin, 0)].copy()
    if known.all() and len(nodes) == len(before) and _same_leaves(state["values"], shape, edited, rows):
        return old
    threshold = edited.threshold[nodes]
    records["left_child"], records["right_child"] = shape.left, shape.right
    records["feature"] = np.where(leaf, -2, edited.feature[nodes])
    records["threshold"] = np.where(leaf, -2.0, np.where(threshold == LARGEST_F32, np.inf, threshold))
    records["missing_go_to_left"] = edited.default_left[nodes]
    for key in ("n_node_samples", "weighted_n_node_samples"):
        records[key] = shape.from_leaves(leaf_statistic(shape, before[key]))
    weight = records["weighted_n_node_samples"]
    values = np.where(leaf[:, None], rows, 0.0)
    impurity = np.where(leaf & known, records["impurity"], 0.0)
    spread = 2.0 if values.shape[1] == 2 else 1.0  # of Gini's impurity 2 p (1 - p), of a variance
    for node in np.flatnonzero(~leaf)[::-1]:
        children = [shape.left[node], shape.right[node]]
        share = weight[children] / weight[node]
        values[node] = share @ values[children]
        between = share @ (values[children, -1] - values[node, -1]) ** 2
        impurity[node] = share @ impurity[children] + spread * between
    records["impurity"] = impurity
    tree = type(old)(old.n_features, old.n_classes, old.n_outputs)
    depth = _depths(shape).max()
    tree.__setstate__({**state, "max_depth": int(depth), "node_count": len(nodes), "nodes": records,
                       "values": np.ascontiguousarray(values[:, None, :])})  # fmt: skip
    return tree


def _same_leaves(stored_values: Floats, shape: Shape, edited: TreeEnsemble, rows: Floats) -> bool:
    """Whether the leaves hold what they held; fractions may be kept that do not add up to one by a rounding."""
    leaf = shape.is_leaf
    before = stored_values[shape.origin[leaf], 0]
    if edited.link == "mean":
        return bool(np.array_equal(fraction_of_second(before), edited.value[shape.nodes[leaf], 0]))
    return bool(np.array_equal(before, rows[leaf]))


def _depths(shape: Shape) -> npt.NDArray[np.int64]:
    depth = np.zeros(len(shape.nodes), np.int64)
    for node in range(1, len(depth)):
        depth[node] = depth[shape.parent[node]] + 1
    return depth


# ---------------------------------------------------------------------------------------------------------------------
# Histogram gradient boosting


def _histogram(model: Any, edited: TreeEnsemble, origins: Sequence[int]) -> None:
    order, _ = column_order(model, edited.n_features, type(model).__name__)
    inside = np.empty(len(order), np.int64)
    inside[order] = np.arange(len(order))
    a_stage = len(model._predictors[0])
    old = [predictor for stage in model._predictors for predictor in stage]
    bins = {(int(record["feature_idx"]), float(record["num_threshold"])): int(record["bin_threshold"])
            for predictor in old for record in predictor.nodes if not record["is_leaf"]}  # fmt: skip
    new = [_predictor(old[origin], shape, edited, inside, bins) for shape, origin in zip(shapes(edited), origins)]
    model._predictors = [new[at : at + a_stage] for at in range(0, len(new), a_stage)]


def _predictor(
    old: Any, shape: Shape, edited: TreeEnsemble, inside: npt.NDArray[np.int64], bins: dict[tuple[int, float], int]
) -> Any:
    leaf, nodes, known = shape.is_leaf, shape.nodes, shape.origin >= 0
    records = old.nodes[np.where(known, shape.origin, 0)].copy()
    by_set = edited.test[nodes] == Test.IN_SET
    threshold = edited.threshold[nodes]
    count = shape.from_leaves(leaf_statistic(shape, old.nodes["count"]))
    sums = shape.from_leaves(np.where(leaf, edited.value[nodes, 0] * count, 0.0))
    records["count"] = count
    records["value"] = np.where(leaf, edited.value[nodes, 0], sums / count)
    records["feature_idx"] = np.where(leaf, 0, inside[edited.feature[nodes]])
    records["num_threshold"] = np.where(leaf | by_set, 0.0, np.where(threshold == LARGEST_F64, np.inf, threshold))
    records["missing_go_to_left"] = edited.default_left[nodes]
    records["left"], records["right"] = np.where(leaf, 0, shape.left), np.where(leaf, 0, shape.right)
    records["gain"] = np.where(leaf, -1.0, np.where(known, records["gain"], 0.0))
    records["depth"] = _depths(shape)
    records["is_leaf"] = leaf
    keys = zip(records["feature_idx"].tolist(), records["num_threshold"].tolist())
    records["bin_threshold"] = [bins.get(key, 0) for key in keys]
    records["is_categorical"] = by_set
    records["bitset_idx"] = np.where(by_set, np.cumsum(by_set) - 1, 0)
    sets = np.zeros((int(by_set.sum()), 8), np.uint32)
    for at, node in enumerate(nodes[by_set].tolist()):
        for code in edited.set_of(node):
            sets[at, code // 32] |= np.uint32(1 << code % 32)
    # Codes are those of the encoder, 0 to n - 1, so that a category's code is its bin.
    return type(old)(records, sets, sets.copy())
