"""ONNX files decide every row as onnxruntime does, alone and in pipelines; what has no exact counterpart is refused."""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

from boxqte import Attribute, Fairness, Space, quantify
from boxqte.errors import ModelError
from boxqte.models.importers import ImportedModel, load_model
from boxqte.models.importers.onnx_graph import read_graph
from boxqte.models.importers.onnx_trees import LEAF, read_trees
from tests.conformance.mutations import mutate_bytes, mutate_document, refused_or_sound
from tests.conformance.suite import assert_conforms, boundary_rows

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
helper, T = onnx.helper, onnx.TensorProto
N = 300
pytestmark = pytest.mark.filterwarnings("ignore")  # the converters' own


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 4))
    x[:, 3] = np.round(2 * x[:, 3])
    return x, np.digitize(x[:, 0] + x[:, 1] * x[:, 2] + x[:, 3] / 3, [0.0, 1.0])


@cache
def table() -> tuple[pd.DataFrame, np.ndarray]:
    x, _ = data()
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "colour": rng.choice(["red", "blue", "grey"], N)})
    frame["size"] = rng.integers(0, 4, N)
    return frame, ((frame.a > 0) ^ (frame.colour == "red") ^ (frame["size"] == 2)).to_numpy(int)


def converted(model: Any, kind: str = "float", **options: Any) -> bytes:
    """What skl2onnx makes of a fitted model of four columns."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType

    types = {"float": FloatTensorType, "double": DoubleTensorType, "int": Int64TensorType}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = convert_sklearn(model, initial_types=[("X", types[kind]([None, 4]))], **options)
    return made.SerializeToString()


def converted_table(model: Any) -> bytes:
    """What skl2onnx makes of a fitted pipeline over `table`: one input a column."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    kinds = {"a": FloatTensorType, "b": FloatTensorType, "colour": StringTensorType, "size": Int64TensorType}
    return convert_sklearn(model, initial_types=[(c, k([None, 1])) for c, k in kinds.items()]).SerializeToString()


def forest(classes: int = 2, names: Any = None) -> Any:
    x, y = data()
    y = np.minimum(y, classes - 1)
    return RandomForestClassifier(3, max_depth=3, random_state=0).fit(x, y if names is None else np.array(names)[y])


def boosted(classes: int = 2) -> Any:
    x, y = data()
    return GradientBoostingClassifier(n_estimators=2, max_depth=3, random_state=0).fit(x, np.minimum(y, classes - 1))


def piped(*steps: Any) -> Any:
    x, y = data()
    model = GradientBoostingClassifier(n_estimators=2, max_depth=3, random_state=0)
    return make_pipeline(*steps, model).fit(x, np.minimum(y, 1))


def of_lightgbm(classes: int, **options: Any) -> bytes:
    import lightgbm
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y = data()
    x = np.where(np.arange(N)[:, None] % 7 == np.arange(4), np.nan, x)
    model = lightgbm.LGBMClassifier(n_estimators=2, num_leaves=7, verbose=-1, n_jobs=1, **options)
    model.fit(x, np.minimum(y, classes - 1))
    return onnxmltools.convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, 4]))]).SerializeToString()


def of_xgboost(classes: int) -> bytes:
    import onnxmltools
    import xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y = data()
    x = np.where(np.arange(N)[:, None] % 7 == np.arange(4), np.nan, x)
    model = xgboost.XGBClassifier(n_estimators=2, max_depth=3, n_jobs=1).fit(x, np.minimum(y, classes - 1))
    return onnxmltools.convert_xgboost(model, initial_types=[("X", FloatTensorType([None, 4]))]).SerializeToString()


def of_catboost(classes: int, path: Path) -> bytes:
    import catboost

    x, y = data()
    model = catboost.CatBoostClassifier(
        iterations=2, depth=3, verbose=False, allow_writing_files=False, thread_count=1
    ).fit(x, np.minimum(y, classes - 1))
    model.save_model(str(path / "m.onnx"), format="onnx")
    return (path / "m.onnx").read_bytes()


def hand_made(modes: list[str], tracks: list[int], dtype: int = T.FLOAT, **attributes: Any) -> bytes:
    """A chain: node i asks column i with mode i; the leaves say 0.2 and 0.7 in turn."""
    k = len(modes)
    given: dict[str, Any] = {
        "nodes_treeids": [0] * (2 * k + 1),
        "nodes_nodeids": list(range(2 * k + 1)),
        "nodes_featureids": [*range(k), *[0] * (k + 1)],
        "nodes_modes": [f"BRANCH_{mode}" for mode in modes] + ["LEAF"] * (k + 1),
        "nodes_values": [2.0, 0.1, 3.0, 1e-30, 16777216.0, 0.0][:k] + [0.0] * (k + 1),
        "nodes_truenodeids": [k + i for i in range(k)] + [0] * (k + 1),
        "nodes_falsenodeids": [*(i + 1 for i in range(k - 1)), 2 * k] + [0] * (k + 1),
        "nodes_missing_value_tracks_true": tracks + [0] * (k + 1),
        "class_treeids": [0] * (k + 1),
        "class_nodeids": list(range(k, 2 * k + 1)),
        "class_ids": [0] * (k + 1),
        "class_weights": [0.2, 0.7] * k + [0.2],
        "classlabels_int64s": [0, 1],
        "post_transform": "NONE",
    }
    given["class_weights"] = given["class_weights"][: k + 1]
    given.update(attributes)
    node = helper.make_node("TreeEnsembleClassifier", ["X"], ["L", "S"], domain="ai.onnx.ml",
                            **{key: value for key, value in given.items() if value is not None})  # fmt: skip
    return one_node(node, dtype, k)


def one_node(node: Any, dtype: int = T.FLOAT, columns: int = 1, before: Any = (), constants: Any = ()) -> bytes:
    label = T.STRING if any(a.name == "classlabels_strings" for a in node.attribute) else T.INT64
    graph = helper.make_graph(
        [*before, node], "g", [helper.make_tensor_value_info("X", dtype, [None, columns])],
        [helper.make_tensor_value_info("L", label, [None]), helper.make_tensor_value_info("S", T.FLOAT, [None, None])],
        list(constants),
    )  # fmt: skip
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 15)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


MODES = ["LEQ", "LT", "GTE", "GT"]
KINDS: dict[str, Callable[[Path], bytes]] = {
    "forest by skl2onnx": lambda _: converted(forest()),
    "forest without ZipMap, text labels": lambda _: converted(forest(3, list("abc")), options={"zipmap": False}),
    "forest of three classes": lambda _: converted(forest(3)),
    "forest on float64": lambda _: converted(forest(), "double"),
    "forest on int64": lambda _: converted(forest(), "int"),
    "tree": lambda _: converted(DecisionTreeClassifier(max_depth=3).fit(data()[0], data()[1] > 0)),
    "gradient boosting": lambda _: converted(boosted()),
    "gradient boosting of three classes": lambda _: converted(boosted(3)),
    "LightGBM by onnxmltools": lambda _: of_lightgbm(2),
    "LightGBM of three classes": lambda _: of_lightgbm(3),
    "LightGBM with zero_as_missing": lambda _: of_lightgbm(2, zero_as_missing=True),
    "XGBoost by onnxmltools": lambda _: of_xgboost(2),
    "XGBoost of three classes": lambda _: of_xgboost(3),
    "CatBoost's own export": lambda path: of_catboost(2, path),
    "CatBoost of three classes": lambda path: of_catboost(3, path),
    "SimpleImputer, StandardScaler": lambda _: converted(piped(SimpleImputer(), StandardScaler())),
    "MinMaxScaler": lambda _: converted(piped(MinMaxScaler((-1, 1)))),
    "MaxAbsScaler": lambda _: converted(piped(MaxAbsScaler())),
    "RobustScaler twice": lambda _: converted(piped(RobustScaler(), RobustScaler())),
    "a scale below zero on float64": lambda _: scaled_by([-0.3, 1e-20], T.DOUBLE),
    "StandardScaler on int64": lambda _: converted(piped(StandardScaler()), "int"),
    "Binarizer": lambda _: converted(piped(Binarizer(threshold=0.3))),
    "columns chosen and scaled": lambda _: converted(
        piped(ColumnTransformer([("s", StandardScaler(), [2, 0]), ("p", "passthrough", [0, 3])]))
    ),
    "every order of tests": lambda _: hand_made(MODES, [0, 0, 0, 0]),
    "every order of tests, missing is true": lambda _: hand_made(MODES, [1, 1, 1, 1]),
    "orders mixed, float64": lambda _: hand_made(MODES, [1, 0, 1, 0], T.DOUBLE),
    "float64 numbers": lambda _: hand_made(
        ["LEQ", "LT"], [0, 1], T.DOUBLE, nodes_values=None, class_weights=None,
        nodes_values_as_tensor=helper.make_tensor("v", T.DOUBLE, [5], [0.1, 1 / 3, 0, 0, 0]),
        class_weights_as_tensor=helper.make_tensor("w", T.DOUBLE, [3], [0.1, 0.7, 0.2]),
    ),
    "integers beyond float32": lambda _: hand_made(
        MODES[:3], [0, 0, 0], T.INT64, nodes_values=[2.0**24, 2.0**25, -7.5, 0, 0, 0, 0]
    ),
    "whole numbers compared for equality": lambda _: hand_made(
        ["EQ", "NEQ", "EQ"], [0, 0, 1], nodes_values=[2.0, 1.0, 3.0, 0, 0, 0, 0]
    ),
    "a base value": lambda _: hand_made(MODES, [0] * 4, base_values=[-0.2], class_weights=[0.5, 0.8, 0.6, 0.9, 0.1]),
    "weights for the second class": lambda _: hand_made(MODES, [0] * 4, class_ids=[1] * 5),
    "negative weights": lambda _: hand_made(MODES, [0] * 4, class_weights=[-0.5, 0.8, -0.6, 0.9, 0.1], post_transform="LOGISTIC"),
}  # fmt: skip


def scaled_by(scale: list[float], dtype: int = T.FLOAT) -> bytes:
    """Two columns scaled (one of them turned round), then two tests."""
    before = helper.make_node("Scaler", ["X"], ["Y"], domain="ai.onnx.ml", offset=[0.1, -3.0], scale=scale)
    node = onnx.load_from_string(hand_made(["LEQ", "GT"], [1, 0])).graph.node[0]
    node.input[0] = "Y"
    return one_node(node, dtype, 2, [before])


KINDS["a scale below zero"] = lambda _: scaled_by([-0.3, 1e-20])
KINDS["a scale that overflows"] = lambda _: scaled_by([1e30, -1e30])


def session(model: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def leaf_model(model: bytes) -> bytes:
    """The same graph with trees whose weights say which leaf was reached: one class a tree, the leaf's own number."""
    proto = onnx.load_from_string(model)
    (trees,) = [node for node in proto.graph.node if node.op_type == "TreeEnsembleClassifier"]
    given = {a.name: helper.get_attribute_value(a) for a in trees.attribute}
    ids = list(dict.fromkeys(given["nodes_treeids"]))
    nodes = zip(given["nodes_treeids"], given["nodes_nodeids"], given["nodes_modes"])
    leaves = [(tree, node) for tree, node, mode in nodes if mode == b"LEAF"]
    weights: dict[str, Any] = {"class_weights": [float(node) for _, node in leaves]}
    if "nodes_values_as_tensor" in given:
        tensor = helper.make_tensor("w", T.DOUBLE, [len(leaves)], weights["class_weights"])
        weights = {"class_weights_as_tensor": tensor}
    node = helper.make_node(
        "TreeEnsembleClassifier", list(trees.input), ["no label", "leaves"], domain="ai.onnx.ml", **weights,
        **{name: value for name, value in given.items() if name.startswith("nodes_")}, post_transform="NONE",
        class_treeids=[tree for tree, _ in leaves], class_nodeids=[node for _, node in leaves],
        class_ids=[ids.index(tree) for tree, _ in leaves], classlabels_int64s=list(range(max(3, len(ids)))),
    )  # fmt: skip
    before = list(proto.graph.node)[: list(proto.graph.node).index(trees)]
    del proto.graph.node[:], proto.graph.output[:]
    proto.graph.node.extend([*before, node])
    proto.graph.output.append(helper.make_tensor_value_info("leaves", T.FLOAT, [None, None]))
    return proto.SerializeToString()


def with_input(rows: np.ndarray, model: bytes) -> dict[str, np.ndarray]:
    (value,) = onnx.load_from_string(model).graph.input
    kind = {T.FLOAT: np.float32, T.DOUBLE: np.float64, T.INT64: np.int64}[value.type.tensor_type.elem_type]
    with np.errstate(over="ignore"):
        return {value.name: rows.astype(kind)}


def rows_for(imported: ImportedModel, model: bytes) -> np.ndarray:
    """The suite's rows; whole numbers around them for an input of integers. Binarizer itself refuses NaN."""
    graph = onnx.load_from_string(model).graph
    integral = graph.input[0].type.tensor_type.elem_type == T.INT64
    missing = not integral and all(node.op_type != "Binarizer" for node in graph.node)
    rows = boundary_rows(imported.ensemble, 60, missing=missing)
    if not integral:
        return rows
    return np.concatenate([np.floor(rows), np.ceil(rows), np.floor(rows) - 1, np.ceil(rows) + 1])


def saved(path: Path, model: bytes) -> Path:
    (path / "model.onnx").write_bytes(model)
    return path / "model.onnx"


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_reaches_onnxruntimes_own_leaf_and_label(kind: str, tmp_path: Path) -> None:
    model = KINDS[kind](tmp_path)
    imported = load_model(saved(tmp_path, model))
    rows = rows_for(imported, model)
    leaves = session(leaf_model(model)).run(None, with_input(rows, model))[0][:, : imported.ensemble.n_trees]
    labels = session(model).run(None, with_input(rows, model))[0].reshape(-1).tolist()
    classes = [imported.ensemble.classes.index(label) for label in labels]
    assert_conforms(imported.ensemble, rows, leaves, classes)
    assert imported.native is not None
    assert imported.native(rows).tolist() == classes


TABLES: dict[str, Callable[[], Any]] = {
    "impute and scale numbers, one-hot categories": lambda: ColumnTransformer([
        ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]),
        ("c", OneHotEncoder(handle_unknown="ignore"), ["colour", "size"]),
    ]),
    "ordinal categories": lambda: ColumnTransformer([
        ("c", OrdinalEncoder(), ["colour", "size"]), ("n", "passthrough", ["b", "a"]),
    ]),
    "one category alone": lambda: ColumnTransformer([("c", OneHotEncoder(), ["colour"]), ("n", StandardScaler(), ["a"])]),
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_a_pipeline_over_a_table_is_read_with_the_users_columns_and_categories(kind: str, tmp_path: Path) -> None:
    frame, y = table()
    forest = RandomForestClassifier(2, max_depth=4, random_state=0)
    model = converted_table(make_pipeline(TABLES[kind](), forest).fit(frame, y))
    imported = load_model(saved(tmp_path, model))
    rows, rng = boundary_rows(imported.ensemble), np.random.default_rng(0)
    names = imported.ensemble.feature_names
    categories = {names[f]: values for f, values in imported.ensemble.categories.items()}
    inputs: dict[str, Any] = {}
    for value in onnx.load_from_string(model).graph.input:
        if value.name not in names:
            kind_of = {T.FLOAT: np.float32, T.INT64: np.int64}.get(value.type.tensor_type.elem_type, object)
            inputs[value.name] = np.full((len(rows), 1), "x" if kind_of is object else 0, kind_of)
        elif value.name not in categories:
            inputs[value.name] = rows[:, [names.index(value.name)]].astype(np.float32)
        else:
            values = categories[value.name]
            chosen = rng.integers(len(values), size=len(rows))
            rows[:, names.index(value.name)] = chosen
            typed = object if isinstance(values[0], str) else np.int64
            inputs[value.name] = np.array(values, typed)[chosen].reshape(-1, 1)
    leaves = session(leaf_model(model)).run(None, inputs)[0][:, : imported.ensemble.n_trees]
    labels = session(model).run(None, inputs)[0]
    assert_conforms(imported.ensemble, rows, leaves, labels)
    assert imported.native is not None
    assert imported.native(rows).tolist() == labels.tolist()
    assert set(categories["colour"]) == {"red", "blue", "grey"}


def refuses(path: Path, message: str, **options: Any) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(path, **options)
    assert str(caught.value).splitlines() == [str(caught.value)]
    assert str(caught.value).startswith(f"{path}: ")


def tree_with(**changes: Any) -> Callable[[Path], bytes]:
    return lambda _: hand_made(MODES, [0, 0, 0, 0], **changes)


def graph_of(*nodes: Any, outputs: tuple[str, ...] = ("Z",)) -> bytes:
    graph = helper.make_graph(list(nodes), "g", [helper.make_tensor_value_info("X", T.FLOAT, [None, 2])],
                              [helper.make_tensor_value_info(name, T.FLOAT, None) for name in outputs])  # fmt: skip
    return helper.make_model(graph).SerializeToString()


def behind(node: Any, path: Path) -> bytes:
    """A readable model with one more node behind its label or scores."""
    proto = onnx.load_from_string(hand_made(MODES, [0] * 4))
    proto.graph.node.append(node)
    del proto.graph.output[:]
    proto.graph.output.extend([helper.make_tensor_value_info(name, T.FLOAT, None) for name in (*node.output, "S")])
    return proto.SerializeToString()


FIVE = [0.5, -0.5, 0.1, 0.2, 0.3]
REFUSED: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "PCA before the trees": (lambda _: converted(piped(PCA(3))), r"(MatMul|Sub).*is not a step|expected a column"),
    "Normalizer before the trees": (lambda _: converted(piped(Normalizer())),
                                    r"Normalizer is not a step .*operators Normalizer, TreeEnsembleClassifier.*boxqte test"),
    "no trees": (lambda _: graph_of(helper.make_node("Relu", ["X"], ["Z"])),
                 "this is an ONNX file with operators Relu: no tree ensemble.*boxqte test"),
    "an Argmax behind the trees": (lambda path: behind(helper.make_node("ArgMax", ["S"], ["Z"], axis=1), path),
                                   "ArgMax.: changes what the trees say"),
    "two classes with weights of their own": (
        tree_with(class_treeids=[0] * 10, class_nodeids=[4, 5, 6, 7, 8] * 2, class_ids=[0] * 5 + [1] * 5,
                  class_weights=FIVE * 2), "both classes have weights of their own"),
    "opposite weights, other labels": (
        tree_with(class_treeids=[0] * 10, class_nodeids=[4, 5, 6, 7, 8] * 2, class_ids=[0] * 5 + [1] * 5,
                  class_weights=FIVE + [-w for w in FIVE], classlabels_int64s=[3, 4]), "onnxruntime says 0 and 1"),
    "a sigmoid of weights that are not negative": (tree_with(post_transform="LOGISTIC"), "contradict each other"),
    "PROBIT": (tree_with(post_transform="PROBIT"), "post_transform: 'PROBIT' is not read"),
    "base values for the second class": (tree_with(class_ids=[1] * 5, base_values=[0.1]), "leaves them out of the label"),
    "a class without a weight": (tree_with(classlabels_int64s=[0, 1, 2]), "class 1 has no weight for some inputs"),
    "one class": (tree_with(classlabels_int64s=[7]), "expected two or more distinct labels"),
    "equality on real numbers": (tree_with(nodes_modes=["BRANCH_EQ"] * 4 + ["LEAF"] * 5), "read for categories only"),
    "an unknown mode": (tree_with(nodes_modes=["BRANCH_MEMBER"] * 4 + ["LEAF"] * 5), r"nodes_modes\[0\]: 'BRANCH_MEMBER'"),
    "an unknown attribute": (tree_with(nodes_extra=[1]), "nodes_extra: is not an attribute"),
    "a child that is not there": (tree_with(nodes_truenodeids=[4, 99, 6, 7, 0, 0, 0, 0, 0]), "tree 0 has no node 99"),
    "a cycle": (tree_with(nodes_truenodeids=[4, 0, 6, 7, 0, 0, 0, 0, 0]), "more than one parent"),
    "a feature that is not there": (tree_with(nodes_featureids=[0, 1, 2, 4, 0, 0, 0, 0, 0]), r"ids\[3\]: 4 is outside 0..3"),
    "an infinite weight": (tree_with(class_weights=[0.1, 0.2, float("inf"), 0.3, 0.4]), r"class_weights\[2\]: inf"),
    "a leaf without a weight": (tree_with(class_treeids=[0] * 4, class_nodeids=[4, 5, 6, 7], class_ids=[0] * 4,
                                          class_weights=FIVE[:4]), "the leaf at place 8 has no weight"),
    "a weight at a branch": (tree_with(class_nodeids=[0, 5, 6, 7, 8]), "node 0 of tree 0 is no leaf"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_exact_counterpart_is_refused_by_name(what: str, tmp_path: Path) -> None:
    make, message = REFUSED[what]
    refuses(saved(tmp_path, make(tmp_path)), message)


def test_values_in_another_file_are_refused(tmp_path: Path) -> None:
    proto = onnx.load_from_string(converted(piped(MinMaxScaler())))
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = T.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    refuses(saved(tmp_path, proto.SerializeToString()), "external_data .values in another file. is not read")


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def block(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def deep(depth: int) -> bytes:
    content = b""
    for _ in range(depth):
        content = block(1, content)
    return content


BOMBS: dict[str, bytes] = {
    "a length beyond the end": b"\x08\x08" + varint(7 << 3 | 2) + varint(2**40) + b"x",
    "a length of 2**64 - 1": b"\x08\x08" + varint(7 << 3 | 2) + b"\xff" * 9 + b"\x01",
    "a number of eleven bytes": b"\x08" + b"\xff" * 10 + b"\x01",
    "a number of 70 bits": b"\x08" + b"\xff" * 9 + b"\x7f",
    "a group": b"\x08\x08\x3b",
    "field number 0": b"\x08\x08\x00\x00",
    "graphs in graphs": b"\x08\x08" + block(7, deep(20_000)),
    "a graph twice": b"\x08\x08" + block(7, b"") * 2,
    "very many empty nodes": b"\x08\x08" + block(7, block(1, b"") * 50_000),
    "very many fields": b"\x08\x08" + b"\x10\x01\x18\x01" * 50_000,
    "a million columns": b"\x08\x08" + block(7, block(11, block(1, b"X") + block(2, block(1, b"\x08\x01" + block(2, (
        block(1, b"") + block(1, b"\x08" + varint(10**12)))))))),
    "a tensor of huge dimensions": b"\x08\x08" + block(7, block(5, b"\x08" + varint(2**39) * 1 + b"\x08" + varint(2**39)
                                                                  + b"\x10\x01" + block(8, b"t"))),
}  # fmt: skip


@pytest.mark.parametrize("what", BOMBS)
def test_protobuf_bombs_are_refused_at_once_and_without_memory(what: str, tmp_path: Path) -> None:
    path = saved(tmp_path, BOMBS[what])
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refuses(path, "")
    assert time.perf_counter() - begin < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 2**10  # in KiB


def test_columns_named_over_and_over_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    names = ["X", *(f"y{i}" for i in range(40))]
    before = [helper.make_node("Concat", [a, a], [b], axis=1) for a, b in pairwise(names)]
    node = onnx.load_from_string(hand_made(MODES, [0] * 4)).graph.node[0]
    node.input[0] = names[-1]
    refuses(saved(tmp_path, one_node(node, T.FLOAT, 4, before)), "more than 200000 columns")


def attribute_mutant(seed: int) -> tuple[bytes, str] | None:
    """A model whose trees have one attribute broken; None where that cannot be written as ONNX at all."""
    proto = onnx.load_from_string(hand_made(["LEQ", "GT", "LT"], [0, 1, 0]))
    node = proto.graph.node[0]
    document = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    plain = {k: [v.decode() for v in value] if k == "nodes_modes" else list(value) if not isinstance(value, bytes) else
             value.decode() for k, value in document.items()}  # fmt: skip
    broken, what = mutate_document(plain, np.random.default_rng(seed))
    try:
        made = helper.make_node("TreeEnsembleClassifier", ["X"], ["L", "S"], domain="ai.onnx.ml", **broken)
    except (ValueError, TypeError, OverflowError):
        return None
    return one_node(made, T.FLOAT, 3), what


def test_mutated_files_are_refused_in_one_line_or_are_sound_also_to_onnxruntime(tmp_path: Path) -> None:
    whole = [
        hand_made(MODES, [0, 1, 0, 1]),
        converted(piped(SimpleImputer(), StandardScaler())),
        scaled_by([2.0, -1.0]),
    ]
    outcomes: list[str] = []
    for seed in range(750):
        what = "bytes"
        if seed % 3:
            mutant = attribute_mutant(seed)
            if mutant is None:
                continue
            broken, what = mutant
        else:
            broken = mutate_bytes(whole[seed // 3 % 3], np.random.default_rng(seed))
        path = saved(tmp_path, broken)
        if not broken:
            continue
        outcomes.append(refused_or_sound(lambda: load_model(path), f"seed {seed}: {what}"))
        if outcomes[-1] == "sound":
            imported = load_model(path)
            assert imported.native is not None
            rows = np.zeros((3, imported.ensemble.n_features))
            with suppress(ModelError):  # which says that onnxruntime itself refuses the file
                imported.native(rows)
    assert len(outcomes) >= 500
    assert outcomes.count("refused") > 250


def test_a_measure_of_a_pipeline_is_what_onnxruntime_says_of_all_rows_of_the_space(tmp_path: Path) -> None:
    frame, _ = table()
    y = ((frame.a > 0) | ((frame.colour == "red") & (frame["size"] == 2))).to_numpy(int)
    steps = TABLES["impute and scale numbers, one-hot categories"]()
    trained = make_pipeline(steps, GradientBoostingClassifier(n_estimators=4, max_depth=3, random_state=0)).fit(
        frame, y
    )
    path = saved(tmp_path, converted_table(trained))
    imported = load_model(path)
    inferred = Space.infer(frame, model=imported).space
    assert set(inferred["colour"].values) == {"red", "blue", "grey"}
    space = Space(
        [Attribute.integer("a", -2, 2), Attribute.integer("b", -2, 2), *(inferred[name] for name in ("colour", "size"))]
    )
    colours = inferred["colour"].values
    rows = list(product(range(-2, 3), range(-2, 3), colours, inferred["size"].values))
    columns = list(zip(*rows))
    inputs = {name: np.array(columns[at], np.float32).reshape(-1, 1) for at, name in enumerate("ab")}
    inputs |= {
        "colour": np.array(columns[2], object).reshape(-1, 1),
        "size": np.array(columns[3], np.int64).reshape(-1, 1),
    }
    said = dict(zip(rows, session(path.read_bytes()).run(None, inputs)[0].tolist()))
    unfair = sum(
        any(said[(a, b, other, size)] != said[(a, b, colour, size)] for other in colours) for a, b, colour, size in rows
    )
    assert 0 < unfair < len(rows)
    result = quantify(imported, space, Fairness("colour"))
    assert result.lower == pytest.approx(1 - unfair / len(rows), abs=1e-12)
    assert result.upper == pytest.approx(1 - unfair / len(rows), abs=1e-12)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
def test_a_regressors_trees_are_read_as_onnxruntime_sums_them(aggregate: str, tmp_path: Path) -> None:
    proto = onnx.load_from_string(converted(RandomForestRegressor(3, max_depth=3, random_state=0).fit(*data())))
    (node,) = [node for node in proto.graph.node if node.op_type == "TreeEnsembleRegressor"]
    node.attribute.append(helper.make_attribute("aggregate_function", aggregate))
    node.attribute.append(helper.make_attribute("base_values", [0.25]))
    graph = read_graph(proto.SerializeToString(), "m")
    trees = read_trees(graph.nodes[-1], 4)
    x = data()[0].astype(np.float32)
    expected = session(proto.SerializeToString()).run(None, {"X": x})[0][:, 0]
    for row, value in zip(x[:50].astype(float), expected[:50]):
        total = trees.base[0]
        for at in trees.roots.tolist():
            while trees.mode[at] != LEAF:  # all of them ask x <= t
                goes = row[trees.feature[at]] <= trees.threshold[at]
                at = int((trees.on_true if goes else trees.on_false)[at])
            total += Fraction(float(trees.value[at, 0]))
        assert float(total * trees.scale) == pytest.approx(value, rel=1e-6)
    imported = load_model(saved(tmp_path, proto.SerializeToString()))
    assert imported.values is not None
    rows = boundary_rows(imported.ensemble).astype(np.float32).astype(float)
    own = imported.values(rows)
    room = float(imported.ensemble.rounding_error())
    exact = np.array([float(row[0]) for row in imported.ensemble.exact_margin(rows)])
    assert np.abs(own - exact).max() <= room
    decided = load_model(saved(tmp_path, proto.SerializeToString()), threshold=float(np.unique(own)[2:4].mean()))
    assert decided.native is not None
    assert decided.ensemble.predict(rows).tolist() == decided.native(rows).tolist()
