"""CatBoost: its JSON export with the trees replaced; CatBoost itself makes .cbm files and live models of that.

Symmetric trees stay symmetric. A tree that was changed node by node asks some of the same splits as before, so it is one
symmetric tree of those again: all answers to them are led through it. CatBoost reads its own JSON with an error in a
number's last digit; live models and .cbm files get the exact leaf values by `set_leaf_values`.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.ensemble import Missing, Test, TreeEnsemble
from boxqte.models.importers.catboost import CBM, MAX_TREE_DEPTH, Features, exported, parse
from boxqte.models.importers.catboost_cbm import exported_cbm
from boxqte.models.importers.structure import read_bytes
from boxqte.repairing.trees import test_key

Floats = npt.NDArray[np.float64]
Key = tuple[object, ...]


def storable(values: Floats) -> Floats:
    """Leaf values as CatBoost keeps them: as they are."""
    return values


@dataclass(frozen=True, eq=False)
class CatBoostOutput:
    """A written JSON document."""

    document: Any
    source: Any
    is_json: bool

    def save(self, path: Path) -> None:
        if {".json": True, ".cbm": False}.get(path.suffix, self.is_json):
            path.write_text(json.dumps(self.document, separators=(",", ":")))
        else:
            self.live().save_model(str(path), format="cbm")

    def live(self) -> Any:
        """A CatBoost model, or a copy of the user's own object, with exactly these leaf values."""
        if importlib.util.find_spec("catboost") is None:
            raise ModelError("CatBoost is not installed; without it a JSON model can be saved as JSON only")
        import catboost

        model = catboost.CatBoost() if isinstance(self.source, Path) else copy.deepcopy(self.source)
        numbered, values = _numbered(self.document)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.json"  # CatBoost reads JSON from files only
            path.write_text(json.dumps(numbered))
            model.load_model(str(path), format="json")
        # CatBoost orders leaves in its own way, and reads whole numbers exactly.
        model.set_leaf_values(values[model.get_leaf_values().astype(np.int64)])
        return model


def written(source: Any, edited: TreeEnsemble, origins: Sequence[int]) -> CatBoostOutput:
    """The source's document with the edited trees; `origins[t]` is the tree that tree t came from."""
    is_json = False
    if isinstance(source, Path):
        data = read_bytes(source)
        is_json = not data.startswith(CBM)
        data = data if is_json else exported_cbm(source)
    else:
        data = exported(source, type(source).__name__)
    _, features, _ = parse(data, "model")
    document = json.loads(data)
    key = "trees" if "trees" in document else "oblivious_trees"
    old = document[key]
    entries = _entries(old, features)
    write = _nested if key == "trees" else _symmetric
    document[key] = [
        write(edited, int(root), old[origin], entries) for root, origin in zip(edited.roots.tolist(), origins)
    ]
    return CatBoostOutput(document, source, is_json)


def _entries(trees: Sequence[Any], features: Features) -> dict[Key, Any]:
    """The splits of the trees as the document writes them, by the tests that we read them as."""
    found: dict[Key, Any] = {}
    waiting = list(trees)
    while waiting:
        node = waiting.pop()
        waiting += [node[side] for side in ("left", "right") if side in node]
        for entry in [*([node["split"]] if "split" in node else []), *(node.get("splits") or [])]:
            split = features.splits[entry["split_index"]][1]
            assert not isinstance(split, str)  # the importer has read the trees
            asks = frozenset(split.codes) if split.test == Test.IN_SET else split.border
            key = (
                split.column,
                int(split.test),
                int(Missing.DEFAULT),
                int(split.nan_goes_left),
                asks,
            )  # as test_key has it
            found.setdefault(key, entry)
    return found


def _entry(edited: TreeEnsemble, node: int, entries: Mapping[Key, Any]) -> Any:
    entry = entries.get(test_key(edited, node))
    if entry is None:
        column = edited.feature_names[int(edited.feature[node])]
        raise ModelError(f"a split of column '{column}' is none of the model's own splits; CatBoost has a list of them")
    return entry


def _sides(edited: TreeEnsemble, node: int) -> tuple[int, int]:
    """The children for CatBoost's answers 0 and 1: a border's true is its 0, a category's true its 1."""
    left, right = int(edited.left[node]), int(edited.right[node])
    return (right, left) if edited.test[node] == Test.IN_SET else (left, right)


# ---------------------------------------------------------------------------------------------------------------------
# Symmetric trees


def _symmetric(edited: TreeEnsemble, root: int, old: Any, entries: Mapping[Key, Any]) -> dict[str, Any]:
    """One symmetric tree over the splits that the tree still asks, in the order in which the old tree had them."""
    asked: dict[int, Any] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if edited.test[node] != Test.LEAF:
            entry = _entry(edited, node, entries)
            asked[entry["split_index"]] = entry
            waiting += _sides(edited, node)
    if len(asked) > MAX_TREE_DEPTH:
        raise ModelError(
            f"a tree asks {len(asked)} different splits; symmetric trees of CatBoost have at most {MAX_TREE_DEPTH}"
        )
    before = [entry["split_index"] for entry in old.get("splits") or []]
    order = sorted(asked, key=lambda index: (before.index(index) if index in before else len(before), index))
    bit = {index: 1 << at for at, index in enumerate(order)}
    values = [_led(edited, root, answers, bit, entries) for answers in range(1 << len(order))]
    tree = {**old, "leaf_values": values, "splits": [asked[index] for index in order]}
    if "leaf_weights" in old:
        tree["leaf_weights"] = _weights(old["leaf_weights"], before, order)
    return tree


def _led(edited: TreeEnsemble, node: int, answers: int, bit: Mapping[int, int], entries: Mapping[Key, Any]) -> float:
    """The value of the leaf that these answers lead to."""
    while edited.test[node] != Test.LEAF:
        index = _entry(edited, node, entries)["split_index"]
        node = _sides(edited, node)[1 if answers & bit[index] else 0]
    return float(edited.value[node, 0])


def _weights(old: Sequence[float], before: Sequence[int], order: Sequence[int]) -> list[float]:
    """The weights of the leaves: those of the old leaves with the same answers, split evenly over new questions."""
    weights = np.zeros(1 << len(order))
    shared = [at for at, index in enumerate(order) if index in before]
    for leaf, weight in enumerate(old):
        answers = sum(1 << at for at in shared if leaf >> before.index(order[at]) & 1)
        new = [at for at in range(len(order)) if at not in shared]
        for choice in range(1 << len(new)):
            at_leaf = answers + sum(1 << at for i, at in enumerate(new) if choice >> i & 1)
            weights[at_leaf] += weight / (1 << len(new))
    return [int(w) if w == int(w) else float(w) for w in weights.tolist()]


# ---------------------------------------------------------------------------------------------------------------------
# Other trees


def _nested(edited: TreeEnsemble, root: int, old: Any, entries: Mapping[Key, Any]) -> dict[str, Any]:
    weights = [leaf.get("weight", 0) for leaf in leaves_in_order(old)]

    def build(node: int) -> dict[str, Any]:
        if edited.test[node] == Test.LEAF:
            number = int(edited.node_id[node])
            weight = weights[number] if number >= 0 else sum(weights) / max(1, len(weights))
            return {"value": float(edited.value[node, 0]), "weight": weight}
        zero, one = _sides(edited, node)
        return {"left": build(zero), "right": build(one), "split": _entry(edited, node, entries)}

    return build(root)


def leaves_in_order(tree: Any) -> list[Any]:
    """The leaves of a nested tree as the importer numbers them: a split's only leaf child before the subtree beside it."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        if "split" not in node:
            found.append(node)
            continue
        children = sorted((node["left"], node["right"]), key=lambda child: "split" in child)
        waiting += children[::-1]
    return found


def _numbered(document: Any) -> tuple[Any, Floats]:
    """The document with its leaves numbered in place of their values, and the values by number."""
    numbered = copy.deepcopy(document)
    values: list[float] = []

    def number(value: float) -> int:
        values.append(value)
        return len(values) - 1

    for tree in numbered.get("oblivious_trees") or []:
        tree["leaf_values"] = [number(value) for value in tree["leaf_values"]]
    for tree in numbered.get("trees") or []:
        for leaf in leaves_in_order(tree):
            leaf["value"] = number(leaf["value"])
    return numbered, np.array(values)
