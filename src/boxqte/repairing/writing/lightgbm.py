"""LightGBM: the model text with its trees replaced.

Header, parameters and categories stay, but for what is said about the trees: their sizes, and how often each feature is
used. Leaf values are float64, written with as many digits as it takes. Splits are numbered level by level, and so are
leaves, as numbers of their own.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.ensemble import Test, TreeEnsemble
from boxqte.models.importers.lightgbm import (
    CATEGORICAL_BIT,
    DEFAULT_LEFT_BIT,
    LARGEST_F64,
    MISSING_RULES,
    MISSING_SHIFT,
    around_zero,
    sections,
    unit,
)
from boxqte.models.importers.structure import read_bytes
from boxqte.repairing.writing.shapes import Shape, leaf_statistic, shapes

Floats = npt.NDArray[np.float64]


def storable(values: Floats) -> Floats:
    """Leaf values as LightGBM keeps them: as they are."""
    return values


@dataclass(frozen=True, eq=False)
class LightGBMOutput:
    """A written model text."""

    text: str
    source: Any
    rounds: int

    def save(self, path: Path) -> None:
        path.write_bytes(self.text.encode())

    def live(self) -> Any:
        """A Booster, or a copy of the user's own object around one."""
        import lightgbm

        if isinstance(self.source, Path):
            return lightgbm.Booster(model_str=self.text)
        changed = copy.deepcopy(self.source)
        booster = changed if isinstance(changed, lightgbm.Booster) else changed.booster_
        booster.model_from_string(self.text)
        if booster.best_iteration > 0:
            booster.best_iteration = self.rounds
        if (getattr(changed, "_best_iteration", None) or 0) > 0:
            changed._best_iteration = self.rounds
        return changed


def written(source: Any, edited: TreeEnsemble, origins: Sequence[int]) -> LightGBMOutput:
    """The source's text with the edited trees; `origins[t]` is the tree that tree t came from."""
    if isinstance(source, Path):
        data = read_bytes(source)
        if data.lstrip().startswith(b"{"):
            raise ModelError("the JSON of dump_model is not what LightGBM loads; give the file of save_model")
        text = data.decode()
    else:
        booster = getattr(source, "booster_", source)
        text = booster.model_to_string(num_iteration=-1)
    header, trees, tail = sections(text, "model")
    a_round = int(header["num_tree_per_iteration"])
    if a_round > 1 and list(origins) != list(range(len(origins))):
        raise ModelError("a model of several classes keeps its number of trees")
    if "average_output" in header and edited.scale * len(origins) != unit(text) * a_round:
        raise ModelError("a forest divides by its number of trees, so that number cannot change")
    tests = _Tests(trees)
    blocks = [
        _block(t, _fields(shape, edited, trees[origin], tests))
        for t, (shape, origin) in enumerate(zip(shapes(edited), origins))
    ]
    if "tree_sizes" in header:
        header = {**header, "tree_sizes": " ".join(str(len(block.encode())) for block in blocks)}
    # A field without a value (average_output) is a line without a sign.
    lines = ["tree", *(f"{key}={value}" if value else key for key, value in header.items())]
    rest = [] if tail == [""] else _with_importances(tail, edited)
    body = "\n".join(lines) + "\n\n" + "".join(blocks) + "\n".join(["end of trees", *rest])
    return LightGBMOutput(body, source, len(blocks) // a_round)


class _Tests:
    """How the model's own text has its splits: thresholds that we read differently, what categories' splits say."""

    def __init__(self, trees: Sequence[Mapping[str, str]]) -> None:
        self.thresholds: dict[tuple[int, float], str] = {}
        self.by_category: dict[int, int] = {}
        for fields in trees:
            if int(fields["num_leaves"]) < 2:
                continue
            columns = (fields[key].split() for key in ("split_feature", "threshold", "decision_type"))
            for feature, text, decision in zip(*columns):
                if int(decision) & CATEGORICAL_BIT:
                    self.by_category[int(feature)] = int(decision)
                    continue
                number = LARGEST_F64 if text == "inf" else float(text)
                read = float(around_zero(np.array([number]))[0])
                self.thresholds.setdefault((int(feature), read), text)

    def threshold(self, feature: int, value: float) -> str:
        return self.thresholds.get((feature, value), repr(value))


def _fields(shape: Shape, edited: TreeEnsemble, old: Mapping[str, str], tests: _Tests) -> dict[str, str]:
    leaf, nodes = shape.is_leaf, shape.nodes
    inner, outer = np.flatnonzero(~leaf), np.flatnonzero(leaf)
    number = np.where(leaf, ~(np.cumsum(leaf) - 1), np.cumsum(~leaf) - 1)  # leaf j is ~j
    by_set = edited.test[nodes[inner]] == Test.IN_SET
    features = edited.feature[nodes[inner]].tolist()
    texts, decisions, words, bounds = [], [], [], [0]
    for node, feature, is_set in zip(nodes[inner].tolist(), features, by_set.tolist()):
        if is_set:
            texts.append(str(len(bounds) - 1))
            decisions.append(tests.by_category.get(feature, CATEGORICAL_BIT))
            words += _bitset(sorted(edited.set_of(node)))
            bounds.append(len(words))
        else:
            texts.append(tests.threshold(feature, float(edited.threshold[node])))
            rule = MISSING_RULES.index(int(edited.missing[node]))
            decisions.append((rule << MISSING_SHIFT) | (DEFAULT_LEFT_BIT if edited.default_left[node] else 0))
    values = edited.value[nodes[outer], 0]
    count = _carried(shape, old, "count")
    weight = _carried(shape, old, "weight")
    share = count if count is not None else np.ones(len(nodes))
    mean = shape.from_leaves(np.where(leaf, edited.value[nodes, 0] * share, 0.0)) / np.maximum(share, 1e-300)
    gains = _words(old, "split_gain")
    kept = {
        "num_leaves": str(len(outer)),
        "num_cat": str(int(by_set.sum())),
        "split_feature": _row(features),
        "split_gain": " ".join(gains[o] if 0 <= o < len(gains) else "0" for o in shape.origin[inner].tolist()),
        "threshold": " ".join(texts),
        "decision_type": _row(decisions),
        "left_child": _row(number[shape.left[inner]].tolist()),
        "right_child": _row(number[shape.right[inner]].tolist()),
        "leaf_value": _row(values.tolist()),
        "leaf_weight": "" if weight is None or len(inner) == 0 else _row(weight[outer].tolist()),
        "leaf_count": "" if count is None else _row(count[outer].astype(np.int64).tolist()),
        "internal_value": " ".join(f"{v:.6g}" for v in mean[inner]),
        "internal_weight": "" if weight is None else " ".join(f"{v:.6g}" for v in weight[inner]),
        "internal_count": "" if count is None else _row(count[inner].astype(np.int64).tolist()),
    }
    if by_set.any():
        kept |= {"cat_boundaries": _row(bounds), "cat_threshold": _row(words)}
    ends = {key: value for key, value in old.items() if key in ("is_linear", "shrinkage")}
    return {key: value for key, value in kept.items() if key in old or key.startswith("cat_")} | ends


def _carried(shape: Shape, old: Mapping[str, str], what: str) -> Floats | None:
    """Counts or weights of the new nodes, from those of the tree's old leaves; None where it has none."""
    leaves = np.array(_words(old, f"leaf_{what}"), np.float64)
    if not len(leaves):
        return None
    return shape.from_leaves(leaf_statistic(shape, leaves, float(leaves.sum())))


def _words(fields: Mapping[str, str], key: str) -> list[str]:
    return fields.get(key, "").split()


def _row(values: Sequence[Any]) -> str:
    return " ".join(map(repr, values))


def _bitset(codes: Sequence[int]) -> list[int]:
    """Codes as the bits of 32-bit words."""
    words = [0] * (codes[-1] // 32 + 1 if codes else 1)
    for code in codes:
        words[code // 32] |= 1 << code % 32
    return words


def _block(t: int, fields: Mapping[str, str]) -> str:
    return "".join([f"Tree={t}\n", *(f"{key}={value}\n" for key, value in fields.items()), "\n\n"])


def _with_importances(tail: Sequence[str], edited: TreeEnsemble) -> list[str]:
    """The lines behind the trees, where the features' numbers of splits are those of the new trees."""
    if "feature_importances:" not in tail:
        return list(tail)
    at = tail.index("feature_importances:")
    end = next((i for i in range(at, len(tail)) if not tail[i]), len(tail))
    used = Counter(edited.feature[edited.feature >= 0].tolist())
    lines = [f"{edited.feature_names[f]}={n}" for f, n in sorted(used.items(), key=lambda item: (-item[1], item[0]))]
    return [*tail[: at + 1], *lines, *tail[end:]]
