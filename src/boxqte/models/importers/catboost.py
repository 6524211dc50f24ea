"""CatBoost: live models and the JSON export, all through one parser of that JSON.

What the library does and we keep: inputs are cast to float32 and a split asks x > border (float32), so "at most the
border" is our left; NaN follows the feature's `nan_value_treatment`; a one-hot split asks whether a category equals one
value. An oblivious tree of depth d is written out as a full binary tree whose leaves keep CatBoost's own numbers (bit i
is the answer of split i).

Leaf numbers of non-symmetric trees are those of the trained model. CatBoost itself renumbers the leaves, and changes
leaf values in the last digit, when it reads its own JSON back; neither changes a tree's decisions.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import fraction, shown
from boxqte.models.categories import HashedCategories, text_hash
from boxqte.models.decision import DecisionRule
from boxqte.models.ensemble import EnsembleBuilder, Link, Missing, Test, TreeEnsemble
from boxqte.models.importers import ImportedModel
from boxqte.models.importers.catboost_cbm import exported_cbm
from boxqte.models.importers.catboost_ctr import Statistic, Unread, read_statistics
from boxqte.models.importers.rounds import Trees, rounds_used
from boxqte.models.importers.structure import (
    ANY_MODEL,
    MAX_FEATURES,
    MAX_NODES,
    check_distinct,
    finite,
    get,
    integer,
    numbers,
    parsed_json,
    read_bytes,
    real,
    type_name,
)

FloatArray = npt.NDArray[np.float64]

CBM = b"CBM1"
MAX_TREE_DEPTH = 16  # CatBoost's own limit; a deeper oblivious tree would be written out as 2^depth leaves
NAN_GOES_LEFT = {"AsIs": True, "AsFalse": True, "AsTrue": False}  # a comparison with NaN is false: not above the border
LINKS: dict[str, Link] = {"Logloss": "sigmoid", "CrossEntropy": "sigmoid", "MultiClass": "softmax"}
VALUE_LINKS: dict[str, Link] = {
    "RMSE": "identity", "MAE": "identity", "Quantile": "identity", "Huber": "identity", "Expectile": "identity",
    "Lq": "identity", "MAPE": "identity", "LogCosh": "identity", "YetiRank": "identity", "PairLogit": "identity",
    "QueryRMSE": "identity", "Poisson": "exp", "Tweedie": "exp",
}  # fmt: skip
MAX_CELLS = 50_000_000  # categories times borders: a set a split


@dataclass(frozen=True)
class Split:
    """One of the model's distinct splits as our test: true is CatBoost's 0 side of a border, its 1 side of a value."""

    column: int
    test: Test
    border: float
    codes: tuple[int, ...]
    nan_goes_left: bool
    """So do categories that the model does not know, at a set."""


@dataclass(frozen=True)
class Features:
    """The model's columns in flat order, its distinct splits in CatBoost's order, and the categories' values."""

    names: tuple[str, ...]
    splits: tuple[tuple[str, Split | str], ...]
    """Per `split_index` how a tree writes the split, and the split itself, or why it cannot be read."""
    categorical: tuple[int, ...]
    categories: Mapping[int, tuple[Any, ...]]
    known_codes: Mapping[int, frozenset[int]]
    """The codes of the features with target statistics, where an unknown category may go to either side."""
    loss: str = ""


def recognises(source: object) -> bool:
    """A live CatBoost model, or a file that opens like its JSON export."""
    if isinstance(source, Path):
        head = read_bytes(source, 4096)
        return head.startswith(CBM) or (
            head.lstrip().startswith(b"{")
            and any(
                key in head
                for key in (b'"features_info"', b'"oblivious_trees"', b'"ctr_data"', b'"catboost_version_info"')
            )
        )
    return any(c.__name__ == "CatBoost" and c.__module__.partition(".")[0] == "catboost" for c in type(source).__mro__)


def load(source: Any, *, allow_pickle: bool, trees: Trees | None = None) -> ImportedModel:
    """Read a JSON export, a .cbm file (which CatBoost itself makes JSON of) or a fitted model."""
    if isinstance(source, Path):
        name, data = str(source), read_bytes(source)
        if data.startswith(CBM):
            data = exported_cbm(source)
        ensemble, features, held = parse(data, name, trees)
        installed = importlib.util.find_spec("catboost") is not None
        return _imported(ensemble, name, features, (lambda: _model_from(data)) if installed else None, held)
    name = type_name(source)
    best = getattr(source, "best_iteration_", None)
    ensemble, features, held = parse(exported(source, name), name, trees, None if best is None else best + 1)
    return _imported(ensemble, name, features, lambda: source, held)


def _imported(
    ensemble: TreeEnsemble, name: str, features: Features, model: Callable[[], Any] | None, held: int | None
) -> ImportedModel:
    if ensemble.predicts_classes:
        asked = {} if model is None else _native(model, features, ensemble.n_trees)
        return ImportedModel(ensemble, name, **asked, trees_in_file=held)
    values = model and _values(model, features, ensemble.link, ensemble.n_trees)
    return ImportedModel(ensemble, name, values=values, objective=features.loss, trees_in_file=held)


def parse(
    data: bytes, name: str, trees: Trees | None = None, best: int | None = None
) -> tuple[TreeEnsemble, Features, int | None]:
    """The ensemble that a JSON export describes, its features, and how many trees it has if not all of them count.

    `name` opens every error message.
    """
    document = parsed_json(data, name)
    where = f"{name}: "
    if not isinstance(document, dict):
        raise ModelError(f"{where}expected an object, found {shown(document)}")
    info = _inside(document, "features_info", dict, where)
    features = _features(info, read_statistics(info, document, f"{where}features_info"), f"{where}features_info")
    link, classes, loss = _classes(_inside(document, "model_info", dict, where), f"{where}model_info")
    features = replace(features, loss=loss)
    outputs = len(classes) if link == "softmax" else 1
    scale, base = _scale_and_bias(_inside(document, "scale_and_bias", list, where), outputs, f"{where}scale_and_bias")
    builder = EnsembleBuilder()
    nodes = 0
    key, add = ("trees", _add_nested) if "trees" in document else ("oblivious_trees", _add_oblivious)
    if key == "trees" and document.get("oblivious_trees"):
        raise ModelError(f"{where}trees: given beside oblivious_trees; a model has one of them")
    written = _inside(document, key, list, where)
    if not written:
        raise ModelError(f"{where}{key}: the model has no trees")
    used = rounds_used(trees, range(len(written) + 1), best, len(written), where)
    for index, tree in enumerate(written[:used]):
        nodes += add(builder, tree, f"{where}{key}[{index}]", features, outputs)
        if nodes > MAX_NODES:
            raise ModelError(f"{where}{key}: have more than {MAX_NODES} nodes")
    rule = _decision(document["model_info"], f"{where}model_info") if link == "sigmoid" else None
    ensemble = builder.build(
        library="catboost",
        feature_names=features.names,
        base=base,
        link=link,
        classes=classes,
        scale=scale,
        decides_on="probability" if link == "exp" else "margin",
        categories=features.categories,
        known_codes=features.known_codes,
    )
    return replace(ensemble, decision=rule), features, len(written) if used < len(written) else None


def _features(info: Mapping[str, Any], statistics: list[Statistic | Unread], where: str) -> Features:
    """Columns and distinct splits: `split_index` counts all borders, then all one-hot values, then target statistics.

    The export's one table of category values is shared by all categorical features, so each of them gets the whole
    table as its codebook: every value the user has gets a code, and no split asks for a value of another feature. An
    export without that table (a live model, a .cbm file) knows its categories by their hashes.
    """
    for key, what in (("text_features", "text"), ("embedding_features", "embedding")):
        if info.get(key):
            raise ModelError(f"{where}.{key}: {what} features are not supported; {ANY_MODEL}")
    names: dict[int, str] = {}
    splits: list[tuple[str, Split | str]] = []
    floats = _entries(info, "float_features", where)
    for at, entry in enumerate(floats):
        here = f"{where}.float_features[{at}]"
        column = _column(entry, at, names, here)
        treatment = get(entry, "nan_value_treatment", str, here)
        if treatment not in NAN_GOES_LEFT:
            raise ModelError(f"{here}.nan_value_treatment: {shown(treatment)}, accepted are {', '.join(NAN_GOES_LEFT)}")
        for border in _borders(get(entry, "borders", list, here), f"{here}.borders"):
            split = Split(column, Test.AT_MOST_F32, border, (), NAN_GOES_LEFT[treatment])
            splits.append((_written("FloatFeature", at, border), split))
    columns: list[int] = []
    asked: list[list[int]] = []
    for at, entry in enumerate(_entries(info, "categorical_features", where)):
        here = f"{where}.categorical_features[{at}]"
        columns.append(_column(entry, at, names, here))
        asked.append(numbers(entry.get("values") or [], f"{here}.values", None, np.int32).tolist())
        check_distinct(asked[-1], f"{here}.values:")
    hashes, categories = _codebooks(info, columns, asked, statistics, where)
    for at, column in enumerate(columns):
        for h in asked[at]:
            codes = tuple(code for code, known in enumerate(hashes[column]) if known == h)
            splits.append((_written("OneHotFeature", at, h), Split(column, Test.IN_SET, 0.0, codes, False)))
    cells = 0
    for statistic in statistics:
        for border in statistic.borders:
            cells += 0 if isinstance(statistic, Unread) else len(hashes[columns[statistic.feature]])
            if cells > MAX_CELLS:
                raise ModelError(f"{where}.ctrs: the target statistics divide more than {MAX_CELLS} categories")
            split_of = (
                _why(statistic, names, floats, columns)
                if isinstance(statistic, Unread)
                else _above(statistic, border, columns, hashes)
            )
            splits.append((_written("OnlineCtr", statistic.target_border, border), split_of))
    if sorted(names) != list(range(len(names))) or not names:
        raise ModelError(
            f"{where}: flat_feature_index: the features have {sorted(names)[:5]}..., expected 0, 1, 2, ..."
        )
    check_distinct((names[column] for column in sorted(names)), f"{where}: feature_id:")
    counted = {columns[s.feature] for s in statistics if isinstance(s, Statistic)}
    known_codes = {column: frozenset(range(len(hashes[column]))) for column in sorted(counted)}
    ordered = tuple(names[c] for c in range(len(names)))
    return Features(ordered, tuple(splits), tuple(columns), categories, known_codes)


def _codebooks(
    info: Mapping[str, Any],
    columns: list[int],
    asked: list[list[int]],
    statistics: list[Statistic | Unread],
    where: str,
) -> tuple[dict[int, list[int]], dict[int, tuple[Any, ...]]]:
    """Per categorical column the hash of each code, and the categories in code order: values, or else their hashes."""
    values = _hashed_values(info, where)
    check_distinct(sorted(values.values()), f"{where}.cat_features_hash: value")
    needed = [set(hashes) for hashes in asked]
    for statistic in statistics:
        if isinstance(statistic, Statistic):
            if statistic.feature >= len(columns):
                raise ModelError(
                    f"{where}.ctrs: cat_feature_index: {statistic.feature} is outside 0..{len(columns) - 1}"
                )
            needed[statistic.feature].update(statistic.table)
    if all(h in values for hashes in needed for h in hashes):
        by_value = sorted(values, key=lambda h: values[h])
        codebook = tuple(values[h] for h in by_value)
        return dict.fromkeys(columns, by_value), {c: codebook for c in columns if codebook}
    known = {column: sorted(hashes) for column, hashes in zip(columns, needed)}
    return known, {c: HashedCategories(h % 2**32 for h in hashes) for c, hashes in known.items() if hashes}


def _why(statistic: Unread, names: Mapping[int, str], floats: list[Any], columns: list[int]) -> str:
    """Why a statistic is not read, with the names of its features."""
    flat = {"cat": columns, "float": [entry["flat_feature_index"] for entry in floats]}
    of = [names[flat[kind][at]] if at < len(flat[kind]) else str(at) for kind, at in statistic.together]
    return f"{' and '.join(map(shown, of))}: {statistic.why}" if of else statistic.why


def _above(statistic: Statistic, border: float, columns: list[int], hashes: Mapping[int, list[int]]) -> Split:
    """The categories whose statistic is above a border."""
    column, table, otherwise = columns[statistic.feature], statistic.table, statistic.otherwise
    codes = tuple(code for code, h in enumerate(hashes[column]) if table.get(h, otherwise) > border)
    return Split(column, Test.IN_SET, 0.0, codes, otherwise > border)


def _column(entry: Any, at: int, names: dict[int, str], where: str) -> int:
    """The feature's flat index, its name going to `names`; splits name a feature by its place among its kind."""
    if integer(get(entry, "feature_index", int, where), f"{where}.feature_index", 0, MAX_FEATURES) != at:
        raise ModelError(f"{where}.feature_index: {entry['feature_index']}, expected {at}")
    column = integer(get(entry, "flat_feature_index", int, where), f"{where}.flat_feature_index", 0, MAX_FEATURES)
    if column in names:
        raise ModelError(f"{where}.flat_feature_index: {column} belongs to another feature")
    # CatBoost names a feature without a name by its number, too.
    names[column] = get(entry, "feature_id", str, where) or str(column)
    return column


def _borders(values: list[Any], where: str) -> list[float]:
    """Borders as float32, as CatBoost holds them; it counts those below x, so they have to rise."""
    borders = numbers(values, where, None, np.float64)
    if len(borders) != len(values):
        raise ModelError(f"{where}: expected a list of numbers, found {shown(values)}")
    with np.errstate(over="ignore"):
        borders = borders.astype(np.float32).astype(np.float64)
    finite(borders, where)
    if (np.diff(borders) <= 0).any():
        at = int(np.flatnonzero(np.diff(borders) <= 0)[0]) + 1
        raise ModelError(f"{where}[{at}]: {borders[at]} does not exceed the border before it")
    exact: list[float] = borders.tolist()
    return exact


def _hashed_values(info: Mapping[str, Any], where: str) -> dict[int, str]:
    """The user's category values by their hash; splits write the 32 bits as signed, the table as unsigned."""
    values: dict[int, str] = {}
    for at, entry in enumerate(_entries(info, "cat_features_hash", where)):
        here = f"{where}.cat_features_hash[{at}]"
        unsigned = integer(get(entry, "hash", int, here), f"{here}.hash", 0, 2**32 - 1)
        signed = unsigned - 2**32 if unsigned >= 2**31 else unsigned
        if signed in values:
            raise ModelError(f"{here}.hash: {unsigned} occurs twice")
        values[signed] = get(entry, "value", str, here)
    return values


def _classes(info: Mapping[str, Any], where: str) -> tuple[Link, tuple[Any, ...], str]:
    """The link, the user's class labels in CatBoost's order (none where a number is predicted), and the loss."""
    parameters = info.get("params")
    if isinstance(parameters, str):
        parameters = parsed_json(parameters.encode(), f"{where}.params")
    loss = get(get(parameters, "loss_function", dict, f"{where}.params"), "type", str, f"{where}.params.loss_function")
    if loss in VALUE_LINKS:
        return VALUE_LINKS[loss], (), loss
    if loss not in LINKS:
        raise ModelError(
            f"{where}.params.loss_function: {shown(loss)} is not supported; accepted are "
            f"{', '.join([*LINKS, *VALUE_LINKS])}"
        )
    link = LINKS[loss]
    here = f"{where}.class_params"
    labels: list[Any] = []
    if link == "softmax" or info.get("class_params") is not None:
        labels = get(get(info, "class_params", dict, where), "class_names", list, here)
    if not labels and link == "sigmoid":
        labels = [0, 1]  # CrossEntropy learns from probabilities and has no labels of its own
    if not all(isinstance(label, (str, int, float, bool)) for label in labels) or len(set(labels)) != len(labels):
        raise ModelError(f"{here}.class_names: expected distinct labels, found {shown(labels)}")
    if len(labels) < 2 or (link == "sigmoid" and len(labels) != 2):
        expected = "2" if link == "sigmoid" else "at least 2"
        raise ModelError(f"{here}.class_names: has {len(labels)} entries, expected {expected} for {loss}")
    return link, tuple(labels), loss


def _decision(info: Mapping[str, Any], where: str) -> DecisionRule | None:
    """The model's own threshold: CatBoost takes its logit once and asks whether the margin is above it."""
    field = f"{where}.binclass_probability_threshold"
    level = real(info.get("binclass_probability_threshold", "0.5"), field)
    if not 0 < level < 1:
        raise ModelError(f"{field}: {shown(level)}, accepted are numbers between 0 and 1")
    return None if level == 0.5 else DecisionRule(((None, fraction(level, ModelError, field)),), exclusive=True)


def _scale_and_bias(pair: list[Any], outputs: int, where: str) -> tuple[Fraction, list[Fraction]]:
    """CatBoost's F = scale * sum + bias as our scale * (base + sum)."""
    if len(pair) != 2:
        raise ModelError(f"{where}: has {len(pair)} entries, expected 2")
    scale = Fraction(real(pair[0], f"{where}[0]"))
    if scale <= 0:
        raise ModelError(f"{where}[0]: {shown(pair[0])} is not positive")
    biases = pair[1] if isinstance(pair[1], list) else [pair[1]]
    if len(biases) != outputs:
        raise ModelError(f"{where}[1]: has {len(biases)} entries, expected {outputs}")
    return scale, [Fraction(real(bias, f"{where}[1][{at}]")) / scale for at, bias in enumerate(biases)]


def _split(node: Any, features: Features, where: str) -> Split:
    """The split that a tree names. CatBoost itself reads only `split_index`; the rest of the entry has to agree."""
    kind = get(node, "split_type", str, where)
    if kind not in ("FloatFeature", "OneHotFeature", "OnlineCtr"):
        raise ModelError(
            f"{where}.split_type: {shown(kind)} is not supported; accepted are FloatFeature, OneHotFeature, OnlineCtr"
        )
    index = integer(get(node, "split_index", int, where), f"{where}.split_index", 0, max(len(features.splits) - 1, 0))
    if not features.splits:
        raise ModelError(f"{where}.split_index: {index}, but features_info has no borders and no values")
    if kind != "OneHotFeature":
        key = "float_feature_index" if kind == "FloatFeature" else "ctr_target_border_idx"
        feature = integer(get(node, key, int, where), f"{where}.{key}", 0, MAX_FEATURES)
        with np.errstate(over="ignore"):
            value = float(np.float32(real(get(node, "border", (int, float), where), f"{where}.border")))
    else:
        feature = integer(get(node, "cat_feature_index", int, where), f"{where}.cat_feature_index", 0, MAX_FEATURES)
        value = integer(get(node, "value", int, where), f"{where}.value", -(2**31), 2**31 - 1)
    written = _written(kind, feature, value)
    expected, split = features.splits[index]
    if written != expected:
        raise ModelError(f"{where}.split_index: {index} is {expected} in features_info, but the split is {written}")
    if isinstance(split, str):
        raise ModelError(f"{where}: {split}")
    return split


def _written(kind: str, feature: int, value: float) -> str:
    return f"{kind} {feature} at {value!r}"


def _add_oblivious(builder: EnsembleBuilder, tree: Any, where: str, features: Features, outputs: int) -> int:
    """Write an oblivious tree out: the root asks the last split, so that the leaves come in CatBoost's order."""
    entries = _entries(tree, "splits", where)
    depth = len(entries)
    if depth > MAX_TREE_DEPTH:
        raise ModelError(f"{where}.splits: has {depth} entries, at most {MAX_TREE_DEPTH} are accepted")
    leaves = 1 << depth
    flat = numbers(get(tree, "leaf_values", list, where), f"{where}.leaf_values", leaves * outputs, np.float64)
    finite(flat, f"{where}.leaf_values")
    value = flat.reshape(leaves, outputs)
    splits = [_split(entry, features, f"{where}.splits[{at}]") for at, entry in enumerate(entries)]
    inner = leaves - 1
    per_node = [splits[depth - 1 - level] for level in range(depth) for _ in range(1 << level)]
    zero = 2 * np.arange(inner) + 1  # the child on CatBoost's 0 side, in heap order
    _add(builder, per_node, zero, zero + 1, value, np.arange(leaves))
    return inner + leaves


def _add_nested(builder: EnsembleBuilder, tree: Any, where: str, features: Features, outputs: int) -> int:
    """Add a tree that is written as nested left/right objects: splits first, then leaves in CatBoost's order."""
    splits: list[Split] = []
    values: list[npt.NDArray[np.float64]] = []
    links: list[tuple[int, bool, int, bool]] = []  # parent, whether its right child, own number, whether a leaf
    stack: list[tuple[Any, str, int, bool, int]] = [(tree, where, -1, False, 0)]
    while stack:
        node, here, parent, right, depth = stack.pop()
        if not isinstance(node, dict) or "split" not in node:
            raw = get(node, "value", (int, float, list), here)
            leaf = numbers(raw if isinstance(raw, list) else [raw], f"{here}.value", outputs, np.float64)
            finite(leaf, f"{here}.value")
            links.append((parent, right, len(values), True))
            values.append(leaf)
            continue
        if depth == MAX_TREE_DEPTH:
            raise ModelError(f"{here}: deeper than {MAX_TREE_DEPTH}, which is the most that is accepted")
        links.append((parent, right, len(splits), False))
        own = len(splits)
        splits.append(_split(get(node, "split", dict, here), features, f"{here}.split"))
        children = [
            (get(node, side, dict, here), f"{here}.{side}", own, side == "right", depth + 1)
            for side in ("left", "right")
        ]
        # CatBoost keeps a split's only leaf child in the split itself, ahead of the subtree on the other side.
        children.sort(key=lambda child: "split" in child[0])
        stack += reversed(children)
    zero, one = np.full(len(splits), -1), np.full(len(splits), -1)
    for parent, right, number, is_leaf in links[1:]:
        (one if right else zero)[parent] = number + len(splits) if is_leaf else number
    _add(builder, splits, zero, one, np.array(values), np.arange(len(values)))
    return len(splits) + len(values)


def _add(
    builder: EnsembleBuilder,
    splits: list[Split],
    zero: npt.NDArray[np.int64],
    one: npt.NDArray[np.int64],
    value: FloatArray,
    leaf_numbers: npt.NDArray[np.int64],
) -> None:
    """Hand a tree over: inner nodes first. A border's true is CatBoost's 0 side, a category's true its 1 side."""
    leaves = len(value)
    test = np.array([*(split.test for split in splits), *[Test.LEAF] * leaves], np.uint8)
    asks_value = test[: len(splits)] == Test.IN_SET
    none = np.full(leaves, -1)
    builder.add_tree(
        feature=[*(split.column for split in splits), *none],
        test=test,
        threshold=[*(split.border for split in splits), *np.zeros(leaves)],
        left=np.concatenate([np.where(asks_value, one, zero), none]),
        right=np.concatenate([np.where(asks_value, zero, one), none]),
        default_left=[*(split.nan_goes_left for split in splits), *[False] * leaves],
        missing=Missing.DEFAULT,
        sets={node: split.codes for node, split in enumerate(splits) if split.test == Test.IN_SET},
        value=np.concatenate([np.zeros((len(splits), value.shape[1])), value]),
        node_id=np.concatenate([np.arange(len(splits)), leaf_numbers]),
        output=0 if value.shape[1] == 1 else -1,
    )


def exported(model: Any, name: str) -> bytes:
    """The model's JSON, written by its own library."""
    if not model.is_fitted():
        raise ModelError(f"{name}: is not fitted")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        try:
            model.save_model(str(path), format="json")
        except Exception as error:  # CatBoost refuses text and embedding features here
            raise ModelError(f"{name}: CatBoost cannot export it: {' '.join(str(error).split())[:200]}") from error
        return read_bytes(path)


def _model_from(data: bytes) -> Any:
    import catboost

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"  # CatBoost reads JSON from files only
        path.write_bytes(data)
        return catboost.CatBoost().load_model(str(path), format="json")


def _native(model: Callable[[], Any], features: Features, trees: int) -> dict[str, Any]:
    """Class indices and probabilities by CatBoost itself, which takes category values, not codes."""
    ready: list[Any] = []

    def predicted(rows: FloatArray, kind: str) -> npt.NDArray[Any]:
        if not ready:
            ready.append(model())
        return np.asarray(ready[0].predict(_frame(rows, features), prediction_type=kind, ntree_end=trees))

    def native(rows: FloatArray) -> npt.NDArray[np.int64]:
        labels = predicted(rows, "Class").reshape(-1).tolist()
        index = {label: at for at, label in enumerate(ready[0].classes_.tolist())}
        return np.array([index[label] for label in labels], np.int64)

    return {
        "native": native,
        "probability": lambda rows: predicted(rows, "Probability"),
        "raw": lambda rows: predicted(rows, "RawFormulaVal"),
    }


def _values(model: Callable[[], Any], features: Features, link: Link, trees: int) -> Callable[[FloatArray], FloatArray]:
    """The number that CatBoost itself predicts."""
    ready: list[Any] = []

    def predict(rows: FloatArray) -> FloatArray:
        if not ready:
            ready.append(model())
        kind = "Exponent" if link == "exp" else "RawFormulaVal"
        found = ready[0].predict(_frame(rows, features), prediction_type=kind, ntree_end=trees)
        return np.asarray(found, np.float64).reshape(-1)

    return predict


def _frame(rows: FloatArray, features: Features) -> Any:
    """The rows as CatBoost takes them: category values in place of codes, one that nobody has for unknown codes."""
    if not features.categorical:
        return np.ascontiguousarray(rows, np.float64)
    import pandas as pd

    columns: dict[str, Any] = {name: rows[:, at] for at, name in enumerate(features.names)}
    for column in features.categorical:
        columns[features.names[column]] = _texts(rows[:, column].tolist(), features.categories.get(column, ()))
    return pd.DataFrame(columns)


def _texts(codes: list[float], values: tuple[Any, ...]) -> list[str]:
    """The categories behind codes."""
    known: Mapping[int, str] = dict(enumerate(values))
    unknown = "unknown"
    if isinstance(values, HashedCategories):
        known = values.texts
        while text_hash(unknown) in values.codes:
            unknown += "_"
    else:
        while unknown in values:
            unknown += "_"
    found = [math.trunc(x) if math.isfinite(x) else -1 for x in codes]
    for code in found:
        if 0 <= code < len(values) and code not in known:
            raise ModelError(
                f"the model knows category {code} by its hash {values[code]} only; ask with a space that names it"
            )
    return [known.get(code, unknown) if 0 <= code < len(values) else unknown for code in found]


def _inside(document: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    """A top-level entry; `where` ends in ': ' there, so that the field is named without a dot."""
    if not isinstance(document.get(key), kind):
        found = shown(document[key]) if key in document else "nothing"
        raise ModelError(f"{where}{key}: expected {kind.__name__}, found {found}")
    return document[key]


def _entries(node: Any, key: str, where: str) -> list[Any]:
    """A list that CatBoost leaves out where it would be empty."""
    if isinstance(node, dict) and node.get(key) is None:
        return []
    entries: list[Any] = get(node, key, list, where)
    return entries
