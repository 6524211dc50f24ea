"""The JSON of LightGBM's dump_model, written out as the model text that `save_model` would have saved.

LightGBM prints all numbers of the dump with 17 digits, so that nothing is lost; the text then goes the way of every
LightGBM file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.importers.structure import ANY_MODEL, MAX_NODES, get, integer, real

MISSING = {"None": 0, "Zero": 1, "NaN": 2}
MAX_CODE = 2**20  # a bitset is as long as its largest code


def model_text(document: Any, name: str) -> str:
    """The model text of a parsed dump."""
    where = f"{name}: document"
    names = get(document, "feature_names", list, where)
    for at, text in enumerate(names):
        if not isinstance(text, str) or not text or any(c.isspace() for c in text):
            raise ModelError(f"{name}: feature_names[{at}]: {shown(text)}, expected a name without blanks")
    infos = _infos(document, names, where)
    header = {
        "version": _word(document, "version", where),
        "num_class": integer(get(document, "num_class", int, where), f"{where}.num_class", 1, 10**6),
        "num_tree_per_iteration": integer(
            get(document, "num_tree_per_iteration", int, where), f"{where}.num_tree_per_iteration", 1, 10**6
        ),
        "label_index": 0,
        "max_feature_idx": integer(get(document, "max_feature_idx", int, where), f"{where}.max_feature_idx", 0, 10**6),
        "objective": _word(document, "objective", where),
    }
    lines = ["tree", *(f"{key}={value}" for key, value in header.items())]
    if document.get("average_output"):
        lines.append("average_output")
    if document.get("monotone_constraints"):
        field = f"{where}.monotone_constraints"
        signs = get(document, "monotone_constraints", list, where)
        lines.append("monotone_constraints=" + " ".join(str(integer(sign, field, -1, 1)) for sign in signs))
    lines += ["feature_names=" + " ".join(names), "feature_infos=" + " ".join(infos), ""]
    trees = get(document, "tree_info", list, where)
    total = 0
    for index, tree in enumerate(trees):
        block, nodes = _tree(tree, f"{name}: tree_info[{index}]")
        total += nodes
        if total > MAX_NODES:
            raise ModelError(f"{name}: tree_info: the trees have more than {MAX_NODES} nodes")
        lines += [f"Tree={index}", *block, "", ""]
    lines += ["end of trees", ""]
    categories = document.get("pandas_categorical")
    if categories:
        import json

        lines.append("pandas_categorical:" + json.dumps(categories))
    return "\n".join(lines) + "\n"


def _word(document: Any, key: str, where: str) -> str:
    text: str = get(document, key, str, where)
    if any(c in text for c in "\n\r\0") or not text.isprintable():
        raise ModelError(f"{where}.{key}: {shown(text)} is no line of text")
    return text


def _infos(document: Any, names: list[str], where: str) -> list[str]:
    """The range or the categories of each feature, as the text has them; 'none' for a feature that is not used."""
    infos = document.get("feature_infos", {})
    if not isinstance(infos, Mapping):
        raise ModelError(f"{where}.feature_infos: expected an object, found {shown(infos)}")
    texts = []
    for name in names:
        info = infos.get(name)
        values = info.get("values") if isinstance(info, Mapping) else None
        if values:
            codes = [
                integer(v, f"{where}.feature_infos.{name}", -1, 2**31)
                for v in (values if isinstance(values, list) else [values])
            ]
            texts.append(":".join(map(str, codes)))
        else:
            texts.append("none" if not info else "[0:1]")
    return texts


def _tree(tree: Any, where: str) -> tuple[list[str], int]:
    """A tree's fields, and how many nodes it has. Splits and leaves keep the numbers that LightGBM gave them."""
    leaves = integer(get(tree, "num_leaves", int, where), f"{where}.num_leaves", 1, MAX_NODES)
    root = get(tree, "tree_structure", dict, where)
    values: dict[int, str] = {}
    splits: dict[int, dict[str, Any]] = {}
    sets: list[list[int]] = []
    stack: list[tuple[Any, str, int, str]] = [(root, f"{where}.tree_structure", -1, "")]
    while stack:
        node, here, parent, side = stack.pop()
        if isinstance(node, Mapping) and "split_index" in node:
            number = integer(node["split_index"], f"{here}.split_index", 0, leaves - 2)
            if number in splits:
                raise ModelError(f"{here}.split_index: {number} occurs twice")
            splits[number] = _split(node, here, sets)
            child = number
            for name in ("left_child", "right_child"):
                stack.append((get(node, name, dict, here), f"{here}.{name}", number, name))
        else:
            # A tree of one leaf has no index.
            number = integer(
                get(node, "leaf_index", int, here) if parent >= 0 else 0, f"{here}.leaf_index", 0, leaves - 1
            )
            if number in values:
                raise ModelError(f"{here}.leaf_index: {number} occurs twice")
            values[number] = repr(real(get(node, "leaf_value", (int, float), here), f"{here}.leaf_value"))
            if "leaf_coeff" in node or "leaf_const" in node:
                raise ModelError(
                    f"{here}.leaf_coeff: a linear tree has no constant leaves and is not supported; {ANY_MODEL}"
                )
            child = ~number
        if parent >= 0:
            splits[parent][side] = child
    if len(values) != leaves or len(splits) != leaves - 1:
        raise ModelError(
            f"{where}.num_leaves: {leaves}, but the tree has {len(values)} leaves and {len(splits)} splits"
        )
    fields = [f"num_leaves={leaves}", f"num_cat={len(sets)}"]
    if splits:
        for key in ("split_feature", "threshold", "decision_type", "left_child", "right_child"):
            fields.append(f"{key}=" + " ".join(str(splits[at][key]) for at in range(leaves - 1)))
    fields.append("leaf_value=" + " ".join(values[at] for at in range(leaves)))
    if sets:
        words = [_bitset(codes) for codes in sets]
        bounds = [0]
        for each in words:
            bounds.append(bounds[-1] + len(each))
        fields.append("cat_boundaries=" + " ".join(map(str, bounds)))
        fields.append("cat_threshold=" + " ".join(str(word) for each in words for word in each))
    return fields, 2 * leaves - 1


def _split(node: Mapping[str, Any], where: str, sets: list[list[int]]) -> dict[str, Any]:
    kind = get(node, "decision_type", str, where)
    missing = get(node, "missing_type", str, where)
    if missing not in MISSING:
        raise ModelError(f"{where}.missing_type: {shown(missing)}, accepted are {', '.join(MISSING)}")
    bits = MISSING[missing] << 2 | 2 * get(node, "default_left", bool, where)
    feature = integer(get(node, "split_feature", int, where), f"{where}.split_feature", 0, 10**6)
    if kind == "<=":
        threshold = repr(real(get(node, "threshold", (int, float), where), f"{where}.threshold"))
        return {"split_feature": feature, "threshold": threshold, "decision_type": bits}
    if kind != "==":
        raise ModelError(f"{where}.decision_type: {shown(kind)}, accepted are '<=' and '=='")
    words = str(get(node, "threshold", (str, int), where)).split("||")
    sets.append([integer(word, f"{where}.threshold", 0, MAX_CODE) for word in words])
    return {"split_feature": feature, "threshold": len(sets) - 1, "decision_type": bits & ~2 | 1}


def _bitset(codes: list[int]) -> list[int]:
    words = [0] * (max(codes) // 32 + 1)
    for code in codes:
        words[code // 32] |= 1 << code % 32
    return words
