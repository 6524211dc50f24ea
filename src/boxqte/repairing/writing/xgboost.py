"""XGBoost: the document of a model (JSON or UBJSON) with its trees replaced.

Only what describes the trees changes; objective, base_score, names, categories and the user's attributes stay. Trees that
`predict` does not use (behind the best iteration) are left out, so that the written model is the same however it is read.
Leaf values are float32. In dart models a leaf counts times its tree's weight: the weights become one.
"""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.ensemble import Missing, Test, TreeEnsemble
from boxqte.models.importers.structure import read_bytes
from boxqte.models.importers.xgboost import is_binary, live_bytes, parsed
from boxqte.repairing.writing.shapes import Shape, leaf_statistic, shapes
from boxqte.repairing.writing.ubjson import ubjson

SMALLEST = np.float32(1e-45)  # what XGBoost writes as the threshold of a category split


def storable(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Leaf values as XGBoost keeps them."""
    return values.astype(np.float32).astype(np.float64)


@dataclass(frozen=True, eq=False)
class XGBoostOutput:
    """A written document."""

    document: Any
    source: Any
    binary: bool
    """Whether the source's own form is UBJSON."""

    def save(self, path: Path) -> None:
        binary = {".json": False, ".ubj": True}.get(path.suffix, self.binary)  # XGBoost reads by the name's end
        path.write_bytes(self.raw(binary=binary))

    def raw(self, *, binary: bool) -> bytes:
        if binary and self.binary:
            return ubjson(self.document)
        text = json.dumps(_short(self.document), separators=(",", ":")).encode()
        # JSON does not say of which type the arrays in a binary file are; XGBoost knows.
        return bytes(_booster(bytearray(text)).save_raw("ubj")) if binary else text

    def live(self) -> Any:
        """A Booster, or a copy of the user's own object around one."""
        raw = bytearray(self.raw(binary=self.binary))
        if isinstance(self.source, Path):
            return _booster(raw)
        changed = copy.deepcopy(self.source)
        booster = changed.get_booster() if hasattr(changed, "get_booster") else changed
        booster.load_model(raw)
        return changed


def _booster(raw: bytearray) -> Any:
    if importlib.util.find_spec("xgboost") is None:
        raise ModelError("XGBoost is not installed; without it a JSON model can be saved as .json only")
    import xgboost

    return xgboost.Booster(model_file=raw)


def written(source: Any, edited: TreeEnsemble, origins: Sequence[int]) -> XGBoostOutput:
    """The source's document with the edited trees; `origins[t]` is the tree that tree t came from."""
    if (edited.missing[edited.test != Test.LEAF] != Missing.DEFAULT).any():
        raise ModelError("XGBoost has no split that takes zeros for missing values")
    raw = read_bytes(source) if isinstance(source, Path) else live_bytes(source)
    document = parsed(raw)
    learner = document["learner"]
    booster = learner["gradient_booster"]
    forest = booster.get("gbtree", booster)["model"]
    old = forest["trees"]
    ends = _rounds(forest, len(old), origins)
    like = forest["tree_info"]
    forest["trees"] = [
        _tree(t, shape, edited, old[origin])
        for t, (shape, origin) in enumerate(zip(shapes(edited, swap_sets=True), origins))
    ]
    forest["tree_info"] = _as(like, [int(like[origin]) for origin in origins])
    forest["gbtree_model_param"]["num_trees"] = str(len(origins))
    if "iteration_indptr" in forest or len(origins) != len(old):
        forest["iteration_indptr"] = _as(forest.get("iteration_indptr", like), ends)
    if "weight_drop" in booster:
        booster["weight_drop"] = _as(booster["weight_drop"], [1.0] * len(origins))
    if "best_iteration" in learner.get("attributes", {}):
        learner["attributes"]["best_iteration"] = str(len(ends) - 2)
    return XGBoostOutput(document, source, is_binary(raw))


def _rounds(forest: Any, n_trees: int, origins: Sequence[int]) -> list[int]:
    """After how many of the new trees each boosting round ends; a tree stays in the round that it came from."""
    if "iteration_indptr" in forest:
        ends = np.asarray(forest["iteration_indptr"], np.int64)
    else:
        parallel = max(1, int(forest["gbtree_model_param"].get("num_parallel_tree", 1)))
        ends = np.arange(0, n_trees + 1, parallel * (int(max(forest["tree_info"])) + 1))
    used = int(np.searchsorted(ends, max(origins), side="right"))
    return [int(np.searchsorted(origins, end)) for end in ends[: used + 1]]


def _tree(t: int, shape: Shape, edited: TreeEnsemble, old: Any) -> dict[str, Any]:
    n, leaf, nodes = len(shape.nodes), shape.is_leaf, shape.nodes
    by_set = edited.test[nodes] == Test.IN_SET
    value = edited.value[nodes, 0].astype(np.float32)
    threshold = np.where(by_set, SMALLEST, edited.threshold[nodes].astype(np.float32))
    known = shape.origin >= 0

    def kept(key: str) -> npt.NDArray[np.float32]:
        own = np.asarray(old[key], np.float32)[np.where(known, shape.origin, 0)]
        return np.where(known, own, np.float32(0))

    sets = [sorted(edited.set_of(int(node))) for node in nodes[by_set]]
    sizes = [len(codes) for codes in sets]
    if 0 in sizes:
        raise ModelError("a category split without a category cannot be written to an XGBoost model")
    fields: dict[str, Any] = {
        "base_weights": np.where(leaf, value, kept("base_weights")),
        "categories": [code for codes in sets for code in codes],
        "categories_nodes": np.flatnonzero(by_set),
        "categories_segments": (np.cumsum(sizes) - sizes).astype(np.int64),
        "categories_sizes": sizes,
        "default_left": np.where(leaf, False, edited.default_left[nodes] != by_set),
        "left_children": shape.left,
        "loss_changes": np.where(leaf, np.float32(0), kept("loss_changes")),
        "parents": np.where(shape.parent < 0, int(old["parents"][0]), shape.parent),
        "right_children": shape.right,
        "split_conditions": np.where(leaf, value, threshold),
        "split_indices": np.where(leaf, 0, edited.feature[nodes]),
        "split_type": by_set.astype(int),
        "sum_hessian": shape.from_leaves(leaf_statistic(shape, np.asarray(old["sum_hessian"]))),
    }
    tree = {key: _as(like, fields[key]) if key in fields else like for key, like in old.items()}
    for key in [key for key in fields if key not in old]:  # before XGBoost 1.3 there were no category splits
        if key not in ("categories", "categories_nodes", "categories_segments", "categories_sizes", "split_type"):
            tree[key] = fields[key]
    tree["id"] = t
    tree["tree_param"] = {**old["tree_param"], "num_nodes": str(n)}
    if "num_deleted" in tree["tree_param"]:
        tree["tree_param"]["num_deleted"] = "0"
    return tree


def _as(like: Any, values: Any) -> Any:
    """Values in the form that the document has them in: a typed array, or a list."""
    if isinstance(like, np.ndarray):
        return np.asarray(values).astype(like.dtype)
    found = np.asarray(values)
    return (found.astype(int) if found.dtype.kind == "b" else found).tolist()


def _short(value: Any) -> Any:
    """A document for JSON: every float by the shortest text that is that float32 again."""
    if isinstance(value, dict):
        return {key: _short(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        if value and all(isinstance(inner, float) for inner in value):
            return [float(text) for text in np.array(value, np.float32).astype(str).tolist()]
        return [_short(inner) for inner in value]
    return float(str(np.float32(value))) if isinstance(value, float) else value
