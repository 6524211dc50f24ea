"""ONNX files: a TreeEnsembleClassifier or TreeEnsembleRegressor and the nodes around it, read without any library.

onnxruntime replays what is found.

The file's bytes are parsed and validated here (protobuf, onnx_graph), the nodes before the trees are pulled back onto
the inputs (onnx_columns), and the label is the one that onnxruntime computes (onnx_trees).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.encoders import EncodedColumn
from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble
from boxqte.models.importers import ImportedModel
from boxqte.models.importers.onnx_columns import Column, columns_before, pulled_back
from boxqte.models.importers.onnx_graph import INT32, INT64, ML, Graph, Node, read_graph
from boxqte.models.importers.onnx_trees import EQ, GT, GTE, LEAF, LT, NEQ, OnnxTrees, read_trees
from boxqte.models.importers.rounds import Trees, refuse_rounds
from boxqte.models.importers.structure import ANY_MODEL, read_bytes
from boxqte.models.pullback import FIRST
from boxqte.models.pullback import Column as PulledColumn
from boxqte.models.pullback import pulled_back as over_columns

MAX_BYTES = 2**31 - 1  # protobuf's own limit
LARGEST_CODE = 2**24  # up to which every integer is a float32
TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
# Behind ir_version, the first field of a model, comes one of these: producer_name, ..., graph, opset_import.
AFTER_VERSION = frozenset((0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42))

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Feature:
    """A column of the ensemble: an input column as it is, or one of the numbers that a looked-up value writes."""

    name: str
    raw: int
    column: Column | None


def recognises(source: object) -> bool:
    """A file that opens like an ONNX model, or is named as one. There are no live ONNX models."""
    if not isinstance(source, Path):
        return False
    head = read_bytes(source, 3)
    return source.suffix == ".onnx" or (
        len(head) == 3 and head[0] == 0x08 and 0 < head[1] < 32 and head[2] in AFTER_VERSION
    )


def load(source: Any, *, allow_pickle: bool, trees: Trees | None = None) -> ImportedModel:
    """Read an ONNX file."""
    refuse_rounds(trees, f"{source}: an ONNX file")
    name, data = str(source), read_bytes(source, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ModelError(f"{name}: has more than {MAX_BYTES} bytes")
    graph = read_graph(data, name)
    node = _trees_of(graph, name)
    columns = columns_before(graph, node)
    for at, column in enumerate(columns):
        if column.dtype is np.str_ or column.truncated:
            raise ModelError(f"{node.where}.input: column {at} is text, or was cut to an integer, and is not looked up")
    kinds = {column.dtype for column in columns}
    if len(kinds) != 1:
        raise ModelError(f"{node.where}.input: has columns of several types")
    wide = kinds == {np.float64}
    if not wide and any(key.endswith("_as_tensor") for key in node.attributes):
        raise ModelError(
            f"{node.where}: has float64 numbers for an input that is not float64, which onnxruntime refuses"
        )
    labels = _check_outputs(graph, node, name)
    read = read_trees(node, len(columns))
    features = _features(graph, columns, name)
    ensemble = _Builder(read, columns, features, node.where, wide).build(labels or read.classes)
    encoded = _encoded(graph, features)
    installed = importlib.util.find_spec("onnxruntime") is not None
    replay = _Replay(data, graph, features, encoded, ensemble.classes, node, name)
    if encoded is None:
        return _imported(ensemble, name, replay if installed else None)
    return _over_inputs(ensemble, encoded, replay if installed else None, name)


def _imported(
    ensemble: TreeEnsemble, name: str, replay: Callable[[FloatArray], npt.NDArray[Any]] | None
) -> ImportedModel:
    """The model with onnxruntime's own labels, or its values for a regressor."""
    if ensemble.predicts_classes:
        return ImportedModel(ensemble, name, replay)
    return ImportedModel(ensemble, name, values=replay, objective="TreeEnsembleRegressor")


def _over_inputs(
    ensemble: TreeEnsemble, encoded: tuple[EncodedColumn, ...], replay: _Replay | None, name: str
) -> ImportedModel:
    """The model of the graph's own inputs, where some of these are categories that it looks up."""
    places = [[ensemble.feature_names.index(c) for c in column.columns] for column in encoded]

    def evaluate(points: Mapping[int, npt.NDArray[Any]]) -> FloatArray:
        rows = np.zeros((len(next(iter(points.values()))), ensemble.n_features))
        for c, given in points.items():
            codes = encoded[c].codes
            if codes is None:
                rows[:, places[c][0]] = given
            else:
                rows[:, places[c]] = codes[given.astype(np.int64)]
        return rows

    columns, missing = [], {}
    for c, column in enumerate(encoded):
        feeds = frozenset(places[c])
        number = column.values is None
        columns.append(
            PulledColumn(
                name=column.name,
                feeds=feeds,
                same=feeds if number else frozenset(),
                values=None if column.values is None else tuple(column.values),
                starts=np.array([FIRST]) if number else None,
                refused=np.zeros(1, bool) if number else None,
            )
        )
        missing[c] = np.full(ensemble.n_features, np.nan) if number else None
    over = over_columns(ensemble, columns, evaluate, missing, name)

    def native(rows: FloatArray) -> npt.NDArray[Any]:
        assert replay is not None
        for c, column in enumerate(encoded):
            if column.values is not None and not np.isin(rows[:, c], np.arange(len(column.values))).all():
                raise ModelError(f"{name}: a missing or unknown category of {shown(column.name)} has no label")
        return replay(evaluate(dict(enumerate(np.asarray(rows, np.float64).T))))

    return _imported(over, name, native if replay is not None else None)


def _trees_of(graph: Graph, name: str) -> Node:
    """The one tree ensemble of the graph."""
    found = [node for node in graph.nodes if node.domain == ML and node.op in TREES]
    if len(found) != 1:
        what = "no tree ensemble" if not found else f"{len(found)} tree ensembles"
        raise ModelError(
            f"{name}: this is an ONNX file with operators {graph.operators or 'of no kind'}: {what}; accepted is one "
            f"{TREES[0]} or {TREES[1]}; {ANY_MODEL}"
        )
    return found[0]


def _check_outputs(graph: Graph, node: Node, name: str) -> tuple[Any, ...] | None:
    """Follow label and scores to the graph's outputs: nothing behind the trees may change what they say.

    Returns the labels behind a LabelEncoder, where there is one.
    """
    if node.op == TREES[1]:
        _check_value(graph, node, name)
        return None
    if len(node.outputs) != 2 or not node.outputs[0]:
        raise ModelError(f"{node.where}.output: has {len(node.outputs)} entries, expected label and scores")
    label, scores = {node.outputs[0]}, {node.outputs[1]}
    labels: tuple[Any, ...] | None = None
    behind = False
    for after in graph.nodes:
        if after is node:
            behind = True
            continue
        from_label, from_scores = label.intersection(after.inputs), scores.intersection(after.inputs)
        if not from_label and not from_scores:
            if behind and after.op != "Constant" and not set(after.outputs).isdisjoint(graph.outputs):
                raise ModelError(f"{after.where}: makes an output beside the label and the scores, which is not read")
            continue
        plain = after.domain == "" and after.op in ("Identity", "Reshape", "Cast", "Squeeze")
        if from_label and after.op == "Cast" and after.get("to", int) not in (INT64, INT32):
            plain = labels is None and after.get("to", int) == 8  # text of a text
        if from_label and after.op == "LabelEncoder" and after.domain == ML and labels is None:
            labels = _renamed(after, node)
            plain = True
        if from_scores and (after.domain, after.op) == (ML, "ZipMap"):
            plain = True
        if not plain or (from_label and from_scores):
            raise ModelError(
                f"{after.where}: changes what the trees say (the file has operators {graph.operators}); accepted behind "
                f"them are Cast, Identity, Reshape, Squeeze, ZipMap; {ANY_MODEL}"
            )
        (label if from_label else scores).update(after.outputs)
    if not label.intersection(graph.outputs):
        raise ModelError(f"{name}: graph.output: none is the label; export the model with it")
    return labels


def _renamed(after: Node, node: Node) -> tuple[Any, ...]:
    """The labels that a LabelEncoder behind the trees makes of theirs."""
    after.only("keys_int64s", "values_strings", "values_int64s", "default_string", "default_int64")
    keys = after.get("keys_int64s", np.ndarray, np.empty(0, np.int64)).tolist()
    texts, numbers = (
        after.get("values_strings", list, []),
        after.get("values_int64s", np.ndarray, np.empty(0, np.int64)),
    )
    values = list(texts) or numbers.tolist()
    own = node.get("classlabels_int64s", np.ndarray, np.empty(0, np.int64)).tolist()
    if len(keys) != len(values) or len(set(keys)) != len(keys) or any(label not in keys for label in own):
        raise ModelError(f"{after.where}: does not give each of the labels {shown(own)} one value")
    names = tuple(dict(zip(keys, values))[label] for label in own)
    if not names or len(set(names)) != len(names):
        raise ModelError(f"{after.where}: gives two labels one value")
    return names


# ---------------------------------------------------------------------------------------------------------------------
# Columns


def _raw_names(graph: Graph) -> list[str]:
    """The input columns' names: those of inputs with one column each, else x0, x1, ... or X_0, X_1, ..."""
    if len(graph.inputs) == 1 and graph.inputs[0].width > 1:
        return [f"x{i}" for i in range(graph.inputs[0].width)]
    return [v.name if v.width == 1 else f"{v.name}_{i}" for v in graph.inputs for i in range(v.width)]


def _features(graph: Graph, columns: tuple[Column, ...], name: str) -> list[Feature]:
    """The ensemble's columns: numeric inputs under their own names, then what looked-up inputs write."""
    names = _raw_names(graph)
    looked_up = {column.raw for column in columns if column.values is not None}
    plain = {column.raw for column in columns if column.values is None}
    both = sorted(looked_up & plain)
    if both:
        raise ModelError(
            f"{name}: column {shown(names[both[0]])} is read both as a number and as a category; accepted is one"
        )
    if not looked_up:
        return [Feature(text, raw, None) for raw, text in enumerate(names)]
    features = [Feature(names[raw], raw, None) for raw in sorted(plain)]
    distinct = {id(column): column for column in columns if column.values is not None}
    return features + [Feature(names[c.raw] + c.label, c.raw, c) for c in distinct.values()]


def _check_value(graph: Graph, node: Node, name: str) -> None:
    """Follow a regressor's number to the graph's output: nothing behind the trees may change it."""
    made = set(node.outputs[:1])
    for after in graph.nodes:
        if after is node or not made.intersection(after.inputs):
            continue
        to_float = after.op == "Cast" and after.get("to", int) in (1, 11)
        if after.domain != "" or not (to_float or after.op in ("Identity", "Reshape", "Squeeze", "Flatten")):
            raise ModelError(
                f"{after.where}: changes what the trees say (the file has operators {graph.operators}); accepted behind a "
                f"regressor are Cast, Identity, Reshape, Squeeze, Flatten; {ANY_MODEL}"
            )
        made.update(after.outputs)
    if not made.intersection(graph.outputs):
        raise ModelError(f"{name}: graph.output: none is what the trees say; export the model with it")


def _encoded(graph: Graph, features: list[Feature]) -> tuple[EncodedColumn, ...] | None:
    """How the user's columns become the ensemble's, where some of them are looked up."""
    if all(feature.column is None for feature in features):
        return None
    names, encoded = _raw_names(graph), []
    for raw in sorted({feature.raw for feature in features}):
        own = [feature for feature in features if feature.raw == raw]
        if own[0].column is None:
            encoded.append(EncodedColumn(names[raw], (own[0].name,)))
            continue
        values = own[0].column.values
        if any(f.column is None or f.column.values != values for f in own):
            raise ModelError(
                f"column {shown(names[raw])} is looked up by two encoders with other categories; accepted is one list"
            )
        codes = np.stack([np.asarray(f.column.written, np.float64) for f in own if f.column is not None], axis=1)
        codes.setflags(write=False)
        encoded.append(EncodedColumn(names[raw], tuple(f.name for f in own), values, codes))
    return tuple(encoded)


class _Builder:
    """Trees on the columns before them as trees on the ensemble's columns."""

    def __init__(self, trees: OnnxTrees, columns: tuple[Column, ...], features: list[Feature], where: str, wide: bool):
        self.trees, self.columns, self.where, self.wide = trees, columns, where, wide
        self.features = features
        self.place = {id(f.column) if f.column is not None else f.raw: at for at, f in enumerate(features)}

    def build(self, classes: tuple[Any, ...]) -> Any:
        trees, builder = self.trees, EnsembleBuilder()
        n = len(trees.mode)
        feature, test = np.zeros(n, np.int64), np.full(n, Test.LEAF, np.uint8)
        threshold, swap, default = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool)
        sets: dict[int, list[int]] = {}
        for at, column in enumerate(self.columns):
            own = np.flatnonzero((trees.mode != LEAF) & (trees.feature == at))
            if not len(own):
                continue
            feature[own] = self.place[id(column) if column.values is not None else column.raw]
            if np.isin(trees.mode[own], (EQ, NEQ)).any():
                test[own], swap[own], default[own] = Test.IN_SET, trees.mode[own] == NEQ, self._equal(column, own, sets)
            else:
                test[own], threshold[own], swap[own], default[own] = self._ordered(column, own)
        outputs, value = self._outputs()
        builder.add_tree(
            feature=feature,
            test=test,
            threshold=threshold,
            left=np.where(swap, trees.on_false, trees.on_true),
            right=np.where(swap, trees.on_true, trees.on_false),
            default_left=default,
            sets=sets,
            value=value,
            node_id=trees.node_id,
            root=trees.roots,
            output=outputs,
        )
        return builder.build(
            library="onnx",
            feature_names=[feature.name for feature in self.features],
            base=trees.base,
            link=trees.link,
            classes=classes,
            scale=trees.scale,
            sum_dtype="float64" if self.wide else "float32",
        )

    def _ordered(self, column: Column, own: npt.NDArray[np.int64]) -> tuple[Any, FloatArray, Any, Any]:
        """Tests x <= t, x < t and their opposites: as they are, or pulled back through the column's steps."""
        trees = self.trees
        mode, limit = trees.mode[own], trees.threshold[own]
        strict = np.isin(mode, (LT, GTE))
        swap = np.isin(mode, (GTE, GT))

        def holds(x: npt.NDArray[Any], each: int = 1) -> npt.NDArray[np.bool_]:
            # float64(x) is x for every type that arrives here but int64, which onnxruntime compares as float32.
            seen = x.astype(np.float32) if x.dtype.kind == "i" else x
            wide, t = seen.astype(np.float64), np.repeat(limit, each)
            below: npt.NDArray[np.bool_] = np.where(np.repeat(strict, each), wide < t, wide <= t)
            return below

        missing = (
            column.at(np.full(len(own), np.nan).astype(column.source))
            if column.source in (np.float32, np.float64)
            else None
        )
        if missing is None or column.values is not None:
            nan_true = trees.tracks_true[own]
        else:
            absent = np.isnan(missing)
            nan_true = np.where(absent, trees.tracks_true[own], holds(missing) != swap)
        default = nan_true != swap
        if column.values is not None or (not column.steps and column.source is np.float32):
            return np.where(strict, Test.LESS_F32, Test.AT_MOST_F32), limit, swap, default
        cut, turned = pulled_back(column, holds, len(own))
        test = np.full(len(own), Test.AT_MOST_F32 if column.source is np.float32 else Test.AT_MOST_F64)
        return test, cut, swap != turned, default != turned

    def _equal(self, column: Column, own: npt.NDArray[np.int64], sets: dict[int, list[int]]) -> Any:
        """Tests x == t: sets of one code each. Fills `sets`; returns where NaN goes."""
        trees, limit = self.trees, self.trees.threshold[own]
        plain = not column.steps and np.isin(trees.mode[own], (EQ, NEQ)).all()
        if not plain or (limit != np.floor(limit)).any() or (limit < 0).any() or (limit >= LARGEST_CODE).any():
            raise ModelError(
                f"{self.where}.nodes_modes: BRANCH_EQ and BRANCH_NEQ are read for categories only, that is on an input column "
                f"that every node compares with whole numbers from 0 on and in no other way; {ANY_MODEL}"
            )
        sets.update((int(node), [int(code)]) for node, code in zip(own, limit))
        return trees.tracks_true[own] & (trees.mode[own] == EQ)

    def _outputs(self) -> tuple[npt.NDArray[np.int64], FloatArray]:
        """Which output each tree feeds: one where its leaves are zero elsewhere, else all (-1)."""
        trees = self.trees
        if trees.value.shape[1] == 1:
            return np.zeros(len(trees.roots), np.int64), trees.value
        used = np.logical_or.reduceat(trees.value != 0, trees.roots)
        if (used.sum(axis=1) > 1).any():
            return np.full(len(trees.roots), -1), trees.value
        return used.argmax(axis=1), trees.value.sum(axis=1, keepdims=True)


# ---------------------------------------------------------------------------------------------------------------------
# onnxruntime


class _Replay:
    """onnxruntime's own label, or a regressor's number, for rows in the ensemble's columns, through the whole graph."""

    def __init__(
        self, data: bytes, graph: Graph, features: list[Feature], encoded: tuple[EncodedColumn, ...] | None,
        classes: tuple[Any, ...], node: Node, name: str,
    ):  # fmt: skip
        self.data, self.graph, self.features, self.name = data, graph, features, name
        self.encoded = {column.name: column for column in encoded or ()}
        self.names = _raw_names(graph)
        self.index = {label: at for at, label in enumerate(classes)}
        self.label = self._label(node)
        self.session: list[Any] = []

    def _label(self, node: Node) -> str:
        made = {node.outputs[0]} if node.outputs else set()
        for after in self.graph.nodes:
            if after is not node and made.intersection(after.inputs):
                made.update(after.outputs)
        return next((name for name in self.graph.outputs if name in made), "")

    def __call__(self, rows: FloatArray) -> npt.NDArray[Any]:
        import onnxruntime

        try:
            if not self.session:
                options = onnxruntime.SessionOptions()
                options.log_severity_level = 4  # nothing on standard error: what matters is raised
                self.session.append(
                    onnxruntime.InferenceSession(self.data, options, providers=["CPUExecutionProvider"])
                )
            labels = self.session[0].run([self.label], self._inputs(rows))[0]
        except ModelError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise ModelError(f"{self.name}: onnxruntime itself cannot predict with this model: {text}") from None
        if not self.index:
            return np.asarray(labels, np.float64).reshape(-1)
        return np.array([self.index[label] for label in np.asarray(labels).reshape(-1).tolist()], np.int64)

    def _inputs(self, rows: FloatArray) -> dict[str, npt.NDArray[Any]]:
        raw, inputs = 0, {}
        for value in self.graph.inputs:
            columns = [self._column(rows, raw + i, value.dtype) for i in range(value.width)]
            inputs[value.name] = np.stack(columns, axis=1)
            raw += value.width
        return inputs

    def _column(self, rows: FloatArray, raw: int, dtype: Any) -> npt.NDArray[Any]:
        own = [at for at, feature in enumerate(self.features) if feature.raw == raw]
        kind = object if dtype is np.str_ else dtype
        if not own:  # no tree sees this column
            return np.full(len(rows), "" if dtype is np.str_ else 0, kind)
        encoded = self.encoded.get(self.names[raw])
        if encoded is None or encoded.values is None or encoded.codes is None:
            x = rows[:, own[0]]
            if np.dtype(dtype).kind in "ib" and not (x == np.floor(x)).all():
                raise ModelError(
                    f"{self.name}: column {shown(self.names[raw])} takes whole numbers, found {x[x != np.floor(x)][0]}"
                )
            with np.errstate(over="ignore"):
                return x.astype(dtype)
        same = (rows[:, own][:, None, :] == encoded.codes[None]).all(axis=2)
        if not same.any(axis=1).all():
            raise ModelError(
                f"{self.name}: no category of {shown(self.names[raw])} writes {rows[int(np.argmin(same.any(axis=1))), own]}"
            )
        taken: npt.NDArray[Any] = np.array(encoded.values, kind)[same.argmax(axis=1)]
        return taken
