"""The trees of an ONNX TreeEnsembleClassifier or TreeEnsembleRegressor, with the label as onnxruntime decides it.

What the operator does and we keep: a float32 input is compared in float32 with a float32 threshold (LEQ, LT, GTE, GT,
EQ, NEQ); an input of float64 is compared in float64; NaN fails every test but NEQ, unless `missing_value_tracks_true`
says otherwise. The label follows the summed weights, before `post_transform`: for two classes that share one weight it
is the second one above 1/2 if no weight is negative, else above 0; for more classes it is the first largest sum.

onnxruntime's label has gaps (`_classes`): models that fall into one are refused, because their label contradicts their
probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.ensemble import Link
from boxqte.models.importers.onnx_graph import Node
from boxqte.models.importers.structure import ANY_MODEL, MAX_FEATURES, MAX_NODES, check_tree, finite, within

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_WEIGHTS = 20_000_000  # nodes times classes: a small file may name very many of both
LARGEST_F32, LARGEST_F64 = float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)
MODES = ("LEAF", "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
LEAF, LEQ, LT, GTE, GT, EQ, NEQ = range(7)
NODES = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values", "nodes_truenodeids",
         "nodes_falsenodeids", "nodes_hitrates", "nodes_missing_value_tracks_true", "nodes_values_as_tensor",
         "nodes_hitrates_as_tensor", "base_values", "base_values_as_tensor", "post_transform")  # fmt: skip
WEIGHTS = ("treeids", "nodeids", "ids", "weights", "weights_as_tensor")
CLASSIFIER = (*(f"class_{name}" for name in WEIGHTS), "classlabels_int64s", "classlabels_strings")
REGRESSOR = (*(f"target_{name}" for name in WEIGHTS), "n_targets", "aggregate_function")


@dataclass(frozen=True, eq=False)
class OnnxTrees:
    """All nodes of all trees in the file's order; children are places in these arrays."""

    feature: IntArray
    mode: IntArray
    threshold: FloatArray
    on_true: IntArray
    on_false: IntArray
    tracks_true: npt.NDArray[np.bool_]
    node_id: IntArray
    roots: IntArray
    value: FloatArray
    """Per node one value an output (or one alone); zero at inner nodes."""
    base: tuple[Fraction, ...]
    link: Link
    classes: tuple[Any, ...]
    """None for a regressor."""
    scale: Fraction


def read_trees(node: Node, n_features: int) -> OnnxTrees:
    """The checked trees of a TreeEnsembleClassifier or TreeEnsembleRegressor (which has no classes)."""
    classifies = node.op == "TreeEnsembleClassifier"
    node.only(*NODES, *(CLASSIFIER if classifies else REGRESSOR))
    where = node.where
    treeids = _integers(node, "nodes_treeids", None)
    n = len(treeids)
    if not 0 < n <= MAX_NODES:
        raise ModelError(f"{where}.nodes_treeids: has {n} entries, expected 1 to {MAX_NODES}")
    node_id, feature, on_true, on_false = (
        _integers(node, f"nodes_{key}", n) for key in ("nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    within(treeids, f"{where}.nodes_treeids", 0, 2**31 - 1)
    within(node_id, f"{where}.nodes_nodeids", 0, 2**31 - 1)
    mode = _modes(node, n)
    inner = mode != LEAF
    within(feature, f"{where}.nodes_featureids", 0, n_features - 1, only=inner)
    threshold = _reals(node, "nodes_values", n)
    # Infinity means 'any value that is not missing'; no domain holds an infinite value.
    largest = LARGEST_F64 if "nodes_values_as_tensor" in node.attributes else LARGEST_F32
    threshold = np.where((threshold == np.inf) & (mode == LEQ), largest, threshold)
    finite(threshold, f"{where}.nodes_values", only=inner)
    tracks = _integers(node, "nodes_missing_value_tracks_true", None)
    if len(tracks) not in (0, n):
        raise ModelError(f"{where}.nodes_missing_value_tracks_true: has {len(tracks)} entries, expected {n}")
    within(tracks, f"{where}.nodes_missing_value_tracks_true", 0, 1)
    roots = np.flatnonzero(np.concatenate([[True], np.diff(treeids) != 0]))
    if len(np.unique(treeids[roots])) != len(roots):
        raise ModelError(f"{where}.nodes_treeids: the nodes of a tree do not follow each other")
    places = _Places(treeids, node_id, where)
    children = [
        np.where(inner, places.find(treeids, ids, f"{where}.{name}", only=inner), -1)
        for name, ids in (("nodes_truenodeids", on_true), ("nodes_falsenodeids", on_false))
    ]
    _check_trees(children[0], children[1], inner, roots, where)
    value, base, link, classes, scale = (_classes if classifies else _target)(node, places, inner, roots)
    return OnnxTrees(feature, mode, threshold, children[0], children[1], tracks == 1 if len(tracks) else np.zeros(n, bool),
                 node_id, roots, value, base, link, classes, scale)  # fmt: skip


class _Places:
    """Where in the file's order a node of a tree is."""

    def __init__(self, treeids: IntArray, node_id: IntArray, where: str) -> None:
        keys = treeids << 31 | node_id
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        same = np.flatnonzero(np.diff(self.keys) == 0)
        if len(same):
            at = int(self.order[same[0] + 1])
            raise ModelError(f"{where}.nodes_nodeids[{at}]: tree {treeids[at]} has two nodes {node_id[at]}")

    def find(self, trees: IntArray, nodes: IntArray, where: str, only: npt.NDArray[np.bool_] | None = None) -> IntArray:
        fits = (nodes >= 0) & (nodes < 2**31) & (trees >= 0) & (trees < 2**31)
        keys = np.where(fits, trees << 31 | np.where(fits, nodes, 0), -1)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        off = self.keys[at] != keys
        if only is not None:
            off &= only
        if off.any():
            bad = int(np.flatnonzero(off)[0])
            raise ModelError(f"{where}[{bad}]: tree {trees[bad]} has no node {nodes[bad]}")
        places: IntArray = self.order[at]
        return places


def _check_trees(
    on_true: IntArray, on_false: IntArray, inner: npt.NDArray[np.bool_], roots: IntArray, where: str
) -> None:
    """Each run of nodes is one tree under its first node, which is the one where onnxruntime begins."""
    ends = [*roots[1:].tolist(), len(inner)]
    for t, (begin, end) in enumerate(zip(roots.tolist(), ends)):
        own = slice(begin, end)
        check_tree(
            on_true[own] - begin, on_false[own] - begin, ~inner[own], f"{where}, tree {t}",
            ("nodes_truenodeids", "nodes_falsenodeids"),
        )  # fmt: skip


def _modes(node: Node, n: int) -> IntArray:
    names = node.get("nodes_modes", list, [])
    if len(names) != n:
        raise ModelError(f"{node.where}.nodes_modes: has {len(names)} entries, expected {n}")
    code = {name: at for at, name in enumerate(MODES)}
    for at, name in enumerate(names):
        if name not in code:
            raise ModelError(f"{node.where}.nodes_modes[{at}]: {shown(name)}, accepted are {', '.join(MODES)}")
    return np.array([code[name] for name in names], np.int64)


def _classes(
    node: Node, places: _Places, inner: npt.NDArray[np.bool_], roots: IntArray
) -> tuple[FloatArray, tuple[Fraction, ...], Link, tuple[Any, ...], Fraction]:
    """Leaf values, base, link, labels and scale such that our decision rule is the operator's label."""
    where = node.where
    labels = _labels(node)
    n_classes, n_trees = len(labels), len(roots)
    value, has = _weights(node, "class", n_classes, places, inner)
    base = _reals(node, "base_values", None)
    finite(base, f"{where}.base_values")
    transform = node.get("post_transform", str, "NONE")
    nonnegative = not (value < 0).any()
    if n_classes > 2:
        link = _several(transform, nonnegative, where)
        if len(base) not in (0, n_classes):
            raise ModelError(f"{where}.base_values: has {len(base)} entries, expected {n_classes}")
        trees_with = np.logical_and.reduceat(has | inner[:, None], roots).any(axis=0)
        if not len(base) and not trees_with.all():
            raise ModelError(
                f"{where}.class_ids: class {labels[int(np.argmin(trees_with))]!r} has no weight for some inputs, and is "
                "then left out of onnxruntime's comparison; give base_values"
            )
        bases = [Fraction(b) for b in (base.tolist() or [0.0] * n_classes)]
    else:
        link, value, bases = _two(node, transform, nonnegative, value, has & ~inner[:, None], base.tolist(), labels)
    if link == "mean":  # ours divides by the number of trees; the products are exact
        value, bases = value * n_trees, [b * n_trees for b in bases]
    return value, tuple(bases), link, labels, Fraction(1)


def _weights(
    node: Node, prefix: str, width: int, places: _Places, inner: npt.NDArray[np.bool_]
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Per node a weight for each class or target, and whether it is given; every leaf has one, no branch has."""
    where = f"{node.where}.{prefix}"
    tree = _integers(node, f"{prefix}_treeids", None)
    n = len(tree)
    ids, nodes = _integers(node, f"{prefix}_ids", n), _integers(node, f"{prefix}_nodeids", n)
    within(ids, f"{where}_ids", 0, width - 1)
    weights = _reals(node, f"{prefix}_weights", n)
    finite(weights, f"{where}_weights")
    at = places.find(tree, nodes, f"{where}_nodeids")
    if inner[at].any():
        bad = int(np.flatnonzero(inner[at])[0])
        raise ModelError(f"{where}_nodeids[{bad}]: node {nodes[bad]} of tree {tree[bad]} is no leaf")
    if len(inner) * width > MAX_WEIGHTS:
        raise ModelError(
            f"{node.where}: {len(inner)} nodes with {width} weights each are more than {MAX_WEIGHTS} numbers"
        )
    order = np.unique(at * width + ids)
    if len(order) != n:
        raise ModelError(f"{where}_ids: a leaf has two weights for one {prefix}")
    value, has = np.zeros((len(inner), width)), np.zeros((len(inner), width), bool)
    value[at, ids], has[at, ids] = weights, True
    if not has[~inner].any(axis=1).all():
        bad = int(np.flatnonzero(~inner & ~has.any(axis=1))[0])
        raise ModelError(f"{where}_nodeids: the leaf at place {bad} has no weight")
    return value, has


def _target(
    node: Node, places: _Places, inner: npt.NDArray[np.bool_], roots: IntArray
) -> tuple[FloatArray, tuple[Fraction, ...], Link, tuple[Any, ...], Fraction]:
    """Leaf values and base of a regressor of one number: the sum of its leaves, or their mean."""
    where = node.where
    if node.get("n_targets", int, 1) != 1:
        raise ModelError(f"{where}.n_targets: {node.get('n_targets', int)} numbers at once; accepted is 1; {ANY_MODEL}")
    aggregate = node.get("aggregate_function", str, "SUM")
    if aggregate not in ("SUM", "AVERAGE"):
        raise ModelError(f"{where}.aggregate_function: {shown(aggregate)}, accepted are SUM, AVERAGE; {ANY_MODEL}")
    transform = node.get("post_transform", str, "NONE")
    if transform != "NONE":
        raise ModelError(f"{where}.post_transform: {shown(transform)}, accepted is NONE; {ANY_MODEL}")
    value, _ = _weights(node, "target", 1, places, inner)
    base = _reals(node, "base_values", None)
    finite(base, f"{where}.base_values")
    if len(base) > 1:
        raise ModelError(f"{where}.base_values: has {len(base)} entries, expected 1")
    first = Fraction(float(base[0])) if len(base) else Fraction(0)
    scale = Fraction(1, len(roots)) if aggregate == "AVERAGE" else Fraction(1)
    return value, (first / scale,), "identity", (), scale


def _several(transform: str, nonnegative: bool, where: str) -> Link:
    if transform == "SOFTMAX" or (transform == "NONE" and not nonnegative):
        return "softmax"
    if transform == "NONE":
        return "mean"
    raise ModelError(
        f"{where}.post_transform: {shown(transform)} is not read for several classes; accepted are NONE, SOFTMAX; {ANY_MODEL}"
    )


def _two(
    node: Node, transform: str, nonnegative: bool, value: FloatArray, has: npt.NDArray[np.bool_], base: list[float],
    labels: tuple[Any, ...],
) -> tuple[Link, FloatArray, list[Fraction]]:  # fmt: skip
    """Two classes: onnxruntime's label looks at one score only."""
    where = node.where
    if transform not in ("NONE", "LOGISTIC"):
        raise ModelError(
            f"{where}.post_transform: {shown(transform)} is not read for two classes; accepted are NONE, LOGISTIC; {ANY_MODEL}"
        )
    both, second = has.all(axis=1).any(), has[:, 1].any()
    if second and has[:, 0].any():
        if not (value[:, 0] == -value[:, 1]).all() or not (has[:, 0] == has[:, 1]).all() or not both:
            raise ModelError(
                f"{where}.class_ids: both classes have weights of their own, and onnxruntime's label then asks only "
                "whether the second sum is above 0, whatever the first is; accepted are weights for one class, or "
                "opposite ones"
            )
        if labels not in ((0, 1), tuple(map(str, labels))):
            raise ModelError(
                f"{where}.classlabels_int64s: {shown(list(labels))}, where onnxruntime says 0 and 1 for two classes with "
                "weights of their own; accepted are 0, 1"
            )
        nonnegative = False
    if second and base:
        raise ModelError(f"{where}.base_values: onnxruntime leaves them out of the label here; accepted are none")
    if transform == "LOGISTIC" and nonnegative:
        raise ModelError(
            f"{where}.class_weights: none is negative, and onnxruntime's label then asks for a sum above 1/2 where its "
            "LOGISTIC probability asks for one above 0: label and probability contradict each other"
        )
    column = value[:, 1:] if second else value[:, :1]
    first = [Fraction(base[0]) if base else Fraction(0)]
    return ("mean" if nonnegative else "sigmoid"), column, first


def _labels(node: Node) -> tuple[Any, ...]:
    where = node.where
    numbers, texts = _integers(node, "classlabels_int64s", None), node.get("classlabels_strings", list, [])
    if len(numbers) and texts:
        raise ModelError(f"{where}.classlabels_strings: given beside classlabels_int64s")
    labels = tuple(texts) or tuple(numbers.tolist())
    name = "classlabels_strings" if texts else "classlabels_int64s"
    if not 2 <= len(labels) <= MAX_FEATURES or len(set(labels)) != len(labels):
        raise ModelError(f"{where}.{name}: expected two or more distinct labels, found {shown(list(labels))}")
    return labels


def _integers(node: Node, name: str, length: int | None) -> IntArray:
    values = node.get(name, np.ndarray, np.empty(0, np.int64))
    if values.dtype != np.int64:
        raise ModelError(f"{node.where}.{name}: expected integers")
    if length is not None and len(values) != length:
        raise ModelError(f"{node.where}.{name}: has {len(values)} entries, expected {length}")
    checked: IntArray = values
    return checked


def _reals(node: Node, name: str, length: int | None) -> FloatArray:
    """A list of float32, or the tensor of float64 that may be given instead."""
    values = node.get(name, np.ndarray, np.empty(0))
    wide = node.get(f"{name}_as_tensor", np.ndarray, np.empty(0))
    if values.size and wide.size:
        raise ModelError(f"{node.where}.{name}_as_tensor: given beside {name}")
    chosen = values if values.size else wide
    if chosen.dtype.kind != "f" or chosen.ndim != 1:
        raise ModelError(f"{node.where}.{name}: expected a list of real numbers")
    if length is not None and len(chosen) != length:
        raise ModelError(f"{node.where}.{name}: has {len(chosen)} entries, expected {length}")
    numbers: FloatArray = chosen.astype(np.float64)
    return numbers
