"""An ONNX file as a graph of nodes with typed attributes; nothing that is not known is skipped.

A file that passes here may be given to onnxruntime, so what could reach beyond the graph is refused: data in other
files, functions, graphs inside nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.importers.protobuf import FIXED32, FIXED64, Message
from boxqte.models.importers.structure import MAX_FEATURES, check_distinct

ML = "ai.onnx.ml"
MAX_NAMED = 12  # operators in a message
# What stands in the file's own schema at these numbers. Names are kept for the fields that are read or harmless.
MODEL = {1: "ir_version", 2: "producer_name", 3: "producer_version", 4: "domain", 5: "model_version", 6: "doc_string",
         7: "graph", 8: "opset_import", 14: "metadata_props"}  # fmt: skip
GRAPH = {1: "node", 2: "name", 5: "initializer", 10: "doc_string", 11: "input", 12: "output", 13: "value_info",
         16: "metadata_props"}  # fmt: skip
NODE = {1: "input", 2: "output", 3: "name", 4: "op_type", 5: "attribute", 6: "doc_string", 7: "domain",
        9: "metadata_props"}  # fmt: skip
ATTRIBUTE = {1: "name", 2: "f", 3: "i", 4: "s", 5: "t", 7: "floats", 8: "ints", 9: "strings", 13: "doc_string",
             20: "type"}  # fmt: skip
TENSOR = {1: "dims", 2: "data_type", 4: "float_data", 5: "int32_data", 6: "string_data", 7: "int64_data", 8: "name",
          9: "raw_data", 10: "double_data", 12: "doc_string", 14: "data_location"}  # fmt: skip
REFUSED_MODEL = {20: "training_info", 25: "functions", 26: "configuration"}
REFUSED_GRAPH = {14: "quantization_annotation", 15: "sparse_initializer"}
REFUSED_ATTRIBUTE = {6: "g (a graph inside a node)", 10: "tensors", 11: "graphs (inside a node)", 21: "ref_attr_name"}
REFUSED_TENSOR = {3: "segment", 13: "external_data (values in another file)"}
FLOAT, INT32, INT64, STRING, BOOL, DOUBLE = 1, 6, 7, 8, 9, 11
TYPES: dict[int, type[np.generic]] = {
    FLOAT: np.float32, INT32: np.int32, INT64: np.int64, STRING: np.str_, BOOL: np.bool_, DOUBLE: np.float64,
}  # fmt: skip
A_FLOAT, AN_INT, A_STRING, A_TENSOR, FLOATS, INTS, STRINGS = 1, 2, 3, 4, 6, 7, 8
FIELD_OF = {A_FLOAT: 2, AN_INT: 3, A_STRING: 4, A_TENSOR: 5, FLOATS: 7, INTS: 8, STRINGS: 9}


@dataclass(frozen=True, eq=False)
class Node:
    """One operator: its attributes as Python and numpy values (float lists as float64 arrays of float32 values)."""

    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    where: str

    def get(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """An attribute, checked to be of the kind."""
        value = self.attributes.get(name, default)
        if value is default or isinstance(value, kind):
            return value
        raise ModelError(f"{self.where}.{name}: {shown(value)} is of the wrong type")

    def only(self, *known: str) -> None:
        """Refuse attributes that are not known."""
        for name in self.attributes:
            if name not in known:
                raise ModelError(f"{self.where}.{name}: is not an attribute that this version knows")


@dataclass(frozen=True)
class Input:
    """One of the graph's inputs: the type of its values, and how many columns it has."""

    name: str
    dtype: type[np.generic]
    width: int


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph whose nodes come in the order in which they are computed."""

    nodes: tuple[Node, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, npt.NDArray[Any]]

    @property
    def operators(self) -> str:
        """The operators' names, for messages."""
        names = list(dict.fromkeys(node.op for node in self.nodes))
        more = f", ... ({len(names)} in all)" if len(names) > MAX_NAMED else ""
        return ", ".join(names[:MAX_NAMED]) + more


def read_graph(data: bytes, where: str) -> Graph:
    """The graph of a model file."""
    model = Message(memoryview(data), f"{where}: model")
    model.only(MODEL, REFUSED_MODEL)
    part = model.part(7, "graph")
    if part is None:
        raise ModelError(f"{where}: graph: missing; the file is damaged, or is not ONNX")
    for at, opset in enumerate(model.parts(8, "opset_import")):
        Message(opset, f"{where}: opset_import[{at}]").text(1, "domain", "")
    graph = Message(part, f"{where}: graph")
    graph.only(GRAPH, REFUSED_GRAPH)
    constants: dict[str, npt.NDArray[Any]] = {}
    for at, tensor in enumerate(graph.parts(5, "initializer")):
        name, value = _tensor(tensor, f"{where}: graph.initializer[{at}]")
        if name in constants:
            raise ModelError(f"{where}: graph.initializer[{at}].name: {shown(name)} occurs twice")
        constants[name] = value
    nodes = [_node(n, f"{where}: graph.node[{at}]") for at, n in enumerate(graph.parts(1, "node"))]
    inputs = [_input(i, f"{where}: graph.input[{at}]", constants) for at, i in enumerate(graph.parts(11, "input"))]
    outputs = [
        Message(o, f"{where}: graph.output[{at}]").text(1, "name") for at, o in enumerate(graph.parts(12, "output"))
    ]
    found = Graph(tuple(nodes), tuple(i for i in inputs if i is not None), tuple(outputs), constants)
    _check_order(found, where)
    return found


def _check_order(graph: Graph, where: str) -> None:
    """Every value is made once, before it is used: there are no cycles."""
    made = {value.name for value in graph.inputs} | set(graph.constants)
    check_distinct([value.name for value in graph.inputs], f"{where}: graph.input:")
    for node in graph.nodes:
        for name in node.inputs:
            if name and name not in made:
                raise ModelError(f"{node.where}.input: {shown(name)} is made by no node before this one")
        for name in node.outputs:
            if name and name in made:
                raise ModelError(f"{node.where}.output: {shown(name)} is made twice")
            made.add(name)
    for name in graph.outputs:
        if name not in made:
            raise ModelError(f"{where}: graph.output: {shown(name)} is made by no node")


def _node(data: memoryview, where: str) -> Node:
    message = Message(data, where)
    message.only(NODE)
    op = message.text(4, "op_type")
    where = f"{where} ({shown(op)[1:-1]})"
    attributes: dict[str, Any] = {}
    for part in message.parts(5, "attribute"):
        name, value = _attribute(part, where)
        if name in attributes:
            raise ModelError(f"{where}.{shown(name)[1:-1]}: occurs twice")
        attributes[name] = value
    inputs, outputs = (tuple(message.texts(number, NODE[number])) for number in (1, 2))
    return Node(op, message.text(7, "domain", ""), inputs, outputs, attributes, where)


def _attribute(data: memoryview, where: str) -> tuple[str, Any]:
    message = Message(data, f"{where}.attribute")
    name = message.text(1, "name")
    message.where = f"{where}.{shown(name)[1:-1]}"
    message.only(ATTRIBUTE, REFUSED_ATTRIBUTE)
    kind = message.integer(20, "type")
    if kind not in FIELD_OF:
        raise ModelError(f"{message.where}.type: {kind} is not read; accepted are {', '.join(map(str, FIELD_OF))}")
    given = [number for number in FIELD_OF.values() if number in message.fields and number != FIELD_OF[kind]]
    if given:
        raise ModelError(f"{message.where}: type {kind} is given, but also '{ATTRIBUTE[given[0]]}'")
    if kind == A_FLOAT:
        values = message.reals(2, "f", FIXED32)
        if len(values) > 1:
            raise ModelError(f"{message.where}.f: occurs twice")
        return name, float(values[0]) if len(values) else 0.0
    if kind == AN_INT:
        return name, message.integer(3, "i", 0)
    if kind == A_STRING:
        return name, message.text(4, "s", "")
    if kind == A_TENSOR:
        part = message.part(5, "t")
        if part is None:
            raise ModelError(f"{message.where}.t: missing")
        return name, _tensor(part, message.where)[1]
    if kind == FLOATS:
        return name, message.reals(7, "floats", FIXED32)
    return name, message.integers(8, "ints") if kind == INTS else message.texts(9, "strings")


def _tensor(data: memoryview, where: str) -> tuple[str, npt.NDArray[Any]]:
    """A tensor's name and values."""
    message = Message(data, where)
    message.only(TENSOR, REFUSED_TENSOR)
    if message.integer(14, "data_location", 0) != 0:
        raise ModelError(f"{where}.data_location: the values are in another file, which is not read")
    code = message.integer(2, "data_type")
    if code not in TYPES:
        raise ModelError(f"{where}.data_type: {code} is not read; accepted are {', '.join(map(str, TYPES))}")
    dims = message.integers(1, "dims").tolist()
    raw = message.part(9, "raw_data")
    values: npt.NDArray[Any]
    if raw is not None and code != STRING:
        size = np.dtype(TYPES[code]).itemsize
        if len(raw) % size:
            raise ModelError(f"{where}.raw_data: {len(raw)} bytes are no whole number of values")
        values = np.frombuffer(raw, np.dtype(TYPES[code]).newbyteorder("<"))
        if code == BOOL and (np.frombuffer(raw, np.uint8) > 1).any():
            raise ModelError(f"{where}.raw_data: a byte is neither 0 nor 1")
    elif code == FLOAT:
        values = message.reals(4, "float_data", FIXED32).astype(np.float32)
    elif code == DOUBLE:
        values = message.reals(10, "double_data", FIXED64)
    elif code == STRING:
        values = np.array(message.texts(6, "string_data"), np.str_)
    else:
        values = message.integers(5 if code in (INT32, BOOL) else 7, "int_data")
        if code != INT64 and (values != values.astype(TYPES[code])).any():
            raise ModelError(f"{where}: a value lies outside {np.dtype(TYPES[code]).name}")
    expected = 1
    for size in dims:
        if not 0 <= size <= 2**40:
            raise ModelError(f"{where}.dims: {size} is outside 0..{2**40}")
        expected *= size
    if expected != len(values):
        raise ModelError(f"{where}.dims: {shown(dims)} is {expected} values, but there are {len(values)}")
    return message.text(8, "name", ""), values.astype(TYPES[code]).reshape(dims)


def _input(data: memoryview, where: str, constants: Mapping[str, Any]) -> Input | None:
    """An input of the graph; None for one that has a constant value (files before IR version 4 list those, too)."""
    message = Message(data, where)
    name = message.text(1, "name")
    if name in constants:
        return None
    kind = message.part(2, "type")
    tensor = None if kind is None else Message(kind, f"{where}.type").part(1, "tensor_type")
    if tensor is None:
        raise ModelError(f"{where}.type: input {shown(name)} is no tensor; accepted are tensors of one row a case")
    shaped = Message(tensor, f"{where}.type.tensor_type")
    code = shaped.integer(1, "elem_type")
    if code not in TYPES:
        raise ModelError(f"{where}.type: elem_type {code} is not read; accepted are {', '.join(map(str, TYPES))}")
    shape = shaped.part(2, "shape")
    dims = [] if shape is None else Message(shape, f"{where}.type.shape").parts(1, "dim")
    if len(dims) != 2:
        raise ModelError(f"{where}.type.shape: has {len(dims)} dimensions, expected rows and columns")
    width = Message(dims[1], f"{where}.type.shape.dim[1]").integer(1, "dim_value", 0)
    if not 1 <= width <= MAX_FEATURES:
        raise ModelError(
            f"{where}.type.shape.dim[1]: the number of columns of {shown(name)} is not given; export the model with it "
            "(initial_types=[('X', FloatTensorType([None, <columns>]))])"
        )
    return Input(name, TYPES[code], width)
