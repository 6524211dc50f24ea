"""The nodes between an ONNX graph's inputs and its trees, column by column.

A node that maps each column by a monotone function (Cast, Scaler, Imputer, Add, ...) is a step: numpy computes it in the
operator's own precision, and a test behind it is pulled back onto the input by bisection over all numbers that the
input can be. A node that looks values up (OneHotEncoder, LabelEncoder) makes its input categorical: each known value
writes fixed numbers. Everything else mixes columns, or has no exact counterpart, and is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.floats import Bools, Keys, bisected, floats_of, keys_of
from boxqte.models.importers.onnx_graph import ML, TYPES, Graph, Node
from boxqte.models.importers.structure import ANY_MODEL, check_distinct

Values = npt.NDArray[Any]
Step = Callable[[Values], Values]
MAX_COLUMNS = 200_000  # of all tensors together: a small file may name a column over and over
MAX_STEPS = 100
MAX_TABLE = 4_000_000  # numbers that the values of one column write


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a tensor: which input column it comes from, and how."""

    raw: int
    source: type[np.generic]
    """The type of the input's values; `dtype` is what they are here."""
    dtype: type[np.generic]
    steps: tuple[Step, ...] = ()
    falling: bool = False
    """Whether the steps together turn the order of the numbers round."""
    truncated: bool = False
    """Whether a real number was cut to an integer on the way: then it can only be looked up."""
    values: tuple[Any, ...] | None = None
    """The input's own values, where it is looked up; `written` is what each of them has become here."""
    written: Values | None = None
    label: str = ""

    def then(self, step: Step, dtype: type[np.generic], falling: bool = False) -> Column:
        """The column behind one more step."""
        if self.values is not None:
            assert self.written is not None
            return replace(self, dtype=dtype, written=step(self.written))
        if len(self.steps) == MAX_STEPS:
            raise ModelError(f"a column goes through more than {MAX_STEPS} steps before the trees")
        return replace(self, dtype=dtype, steps=(*self.steps, step), falling=self.falling != falling)

    def at(self, x: Values) -> Values:
        """What input values become here."""
        with np.errstate(all="ignore"):
            for step in self.steps:
                x = step(x)
        return x


@dataclass(frozen=True, eq=False)
class Tensor:
    """Columns, and whether they still lie in a third dimension (OneHotEncoder's output before Reshape)."""

    columns: tuple[Column, ...]
    deep: int = 0


def columns_before(graph: Graph, node: Node) -> tuple[Column, ...]:
    """The columns that reach a node (the trees), as functions of the graph's input columns."""
    tensors: dict[str, Tensor] = {}
    constants = dict(graph.constants)
    raw, total = 0, sum(value.width for value in graph.inputs)
    if total > MAX_COLUMNS:
        raise ModelError(f"{node.where}.input: the graph has {total} input columns, more than {MAX_COLUMNS}")
    for value in graph.inputs:
        tensors[value.name] = Tensor(tuple(Column(raw + i, value.dtype, value.dtype) for i in range(value.width)))
        raw += value.width
    needed = _needed(graph, node)
    for before in graph.nodes:
        if before is node:
            break
        if not needed.intersection(before.outputs):
            continue
        if before.op == "Constant" and before.domain == "":
            constants[before.outputs[0]] = _constant(before)
            continue
        reader = READERS.get((before.domain, before.op))
        if reader is None:
            raise ModelError(
                f"{before.where}: {shown(before.op)[1:-1]} is not a step that can be pulled back column by column (the file has "
                f"operators {graph.operators}); accepted before the trees are {ACCEPTED}; {ANY_MODEL}"
            )
        given = [tensors[name] for name in before.inputs if name in tensors]
        fixed = [constants[name] for name in before.inputs if name in constants]
        if not given or (before.inputs[0] not in tensors and before.op not in ("Add", "Mul")):
            raise ModelError(f"{before.where}.input: expected a column of the input first")
        result = reader(before, given, fixed)
        total += len(result.columns)
        if total > MAX_COLUMNS:
            raise ModelError(f"{before.where}: the graph has more than {MAX_COLUMNS} columns")
        if len(before.outputs) != 1:
            raise ModelError(f"{before.where}.output: has {len(before.outputs)} entries, expected 1")
        tensors[before.outputs[0]] = result
    if len(node.inputs) != 1 or node.inputs[0] not in tensors:
        raise ModelError(f"{node.where}.input: expected one input")
    tensor = tensors[node.inputs[0]]
    if tensor.deep:
        raise ModelError(f"{node.where}.input: has three dimensions, expected two")
    return tensor.columns


def _needed(graph: Graph, node: Node) -> set[str]:
    """The values that a node is computed from."""
    needed = set(node.inputs)
    for before in reversed(graph.nodes):
        if needed.intersection(before.outputs):
            needed.update(before.inputs)
    return needed


def pulled_back(column: Column, holds: Callable[[Values, int], Bools], n: int) -> tuple[Values, Bools]:
    """n tests on a column's own values as tests `x <= t` on the input.

    `holds(x, each)` is the outcome of every test for `each` values of its own; each is true up to some value and then
    false, as x <= t and x < t are. Returns t and whether true and false have to change places; where no input is on
    the one side, t is the largest number.
    """
    low, high = _places(column.source)

    def below(places: Keys, each: int) -> Bools:
        left: Bools = holds(column.at(_number(places, column.source)), each) != column.falling
        return left

    first = np.full(n, low)
    some = below(first, 1)
    last = bisected(below, first, np.full(n, high + 1), some)
    return _number(last, column.source).astype(np.float64), some == column.falling


def _places(source: type[np.generic]) -> tuple[int, int]:
    """The numbers of a type in their order, as integers: the places of the least and of the largest finite one."""
    if source is np.bool_:
        return 0, 1
    if source is np.float32 or source is np.float64:
        top = int(keys_of(np.finfo(source).max, source)[0])
    else:
        top = 2**31 - 1 if source is np.int32 else 2**53  # beyond which float64 does not hold every integer
    return -top, top


def _number(places: Keys, source: type[np.generic]) -> Values:
    """The numbers at places."""
    return floats_of(places, source) if source is np.float32 or source is np.float64 else places.astype(source)


# ---------------------------------------------------------------------------------------------------------------------
# The nodes


def _constant(node: Node) -> Values:
    node.only("value")
    value: Values = node.get("value", np.ndarray)
    if value is None:
        raise ModelError(f"{node.where}.value: missing")
    return value


def _one(node: Node, given: list[Tensor], fixed: list[Values], constants: int = 0) -> Tensor:
    """The node's only input, with as many constants beside it as it takes."""
    if len(given) != 1 or len(fixed) != constants:
        raise ModelError(f"{node.where}.input: expected one column input and {constants} constants")
    return given[0]


def _numeric(node: Node, column: Column) -> Column:
    if column.dtype is np.str_ or column.dtype is np.bool_:
        raise ModelError(f"{node.where}.input: has values of type {column.dtype.__name__}, expected numbers")
    return column


def _identity(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    node.only()
    return _one(node, given, fixed)


def _cast(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    node.only("to")
    tensor, code = _one(node, given, fixed), node.get("to", int)
    if code not in TYPES:
        raise ModelError(f"{node.where}.to: {code} is not read; accepted are {', '.join(map(str, TYPES))}")
    target = TYPES[code]

    def cast(column: Column) -> Column:
        if column.dtype is target:
            return column
        if column.dtype is np.str_ or target in (np.str_, np.bool_, np.int32):
            raise ModelError(
                f"{node.where}.to: a cast of {column.dtype.__name__} to {target.__name__} is not read; accepted are "
                "casts between numbers"
            )
        done = column.then(lambda x: x.astype(target), target)
        cuts = target is np.int64 and column.dtype in (np.float32, np.float64)
        return replace(done, truncated=True) if cuts and column.values is None else done

    return replace(tensor, columns=tuple(cast(column) for column in tensor.columns))


def _concat(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    node.only("axis")
    if fixed or node.get("axis", int) not in (1, -1):
        raise ModelError(f"{node.where}.axis: expected that columns are put side by side (axis 1)")
    deep = {tensor.deep for tensor in given}
    if len(deep) != 1 or not deep <= {0, 1} or (deep == {1} and node.get("axis", int) != -1):
        raise ModelError(f"{node.where}.axis: the inputs have three dimensions; only their last one is read")
    if sum(len(tensor.columns) for tensor in given) > MAX_COLUMNS:
        raise ModelError(f"{node.where}: writes more than {MAX_COLUMNS} columns")
    columns = tuple(column for tensor in given for column in tensor.columns)
    if len({column.dtype for column in columns}) != 1:
        raise ModelError(f"{node.where}.input: has columns of several types")
    return Tensor(columns, deep.pop())


def _vectorized(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    node.only("inputdimensions")
    if fixed or any(tensor.deep for tensor in given):
        raise ModelError(f"{node.where}.input: expected columns of the input")
    columns = [_numeric(node, column) for tensor in given for column in tensor.columns]
    return Tensor(tuple(column.then(lambda x: x.astype(np.float32), np.float32) for column in columns))


def _reshape(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    node.only("allowzero")
    tensor = _one(node, given, fixed, constants=1)
    width = len(tensor.columns)
    if fixed[0].reshape(-1).tolist() not in ([-1, width], [0, width], [0, -1]):
        raise ModelError(
            f"{node.where}.shape: {shown(fixed[0].tolist())}, expected one row a case, that is [-1, {width}]"
        )
    return Tensor(tensor.columns)


def _flatten(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    node.only("axis")
    if node.get("axis", int, 1) != 1:
        raise ModelError(f"{node.where}.axis: {node.get('axis', int)}, expected 1")
    return Tensor(_one(node, given, fixed).columns)


def _extract(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    """ArrayFeatureExtractor and Gather: some columns, in an order of their own."""
    node.only(*(("axis",) if node.op == "Gather" else ()))
    if node.op == "Gather" and node.get("axis", int, 0) not in (1, -1):
        raise ModelError(f"{node.where}.axis: {node.get('axis', int, 0)}, expected 1 (columns)")
    tensor = _one(node, given, fixed, constants=1)
    places = fixed[0].reshape(-1)
    if tensor.deep or places.dtype.kind != "i" or (node.op == "Gather" and fixed[0].ndim != 1):
        raise ModelError(f"{node.where}.input: expected a list of columns")
    if not 0 < len(places) <= MAX_COLUMNS:
        raise ModelError(f"{node.where}.input: names {len(places)} columns, expected 1 to {MAX_COLUMNS}")
    if places.min() < 0 or places.max() >= len(tensor.columns):
        raise ModelError(f"{node.where}.input: column {places.max()} is outside 0..{len(tensor.columns) - 1}")
    return Tensor(tuple(tensor.columns[at] for at in places.tolist()))


def _per_column(node: Node, name: str, values: Values | None, columns: int) -> Values:
    """One number a column: as many as there are, or one for all of them."""
    if values is None or values.size not in (1, columns) or (values.ndim > 1 and values.shape[-1] != values.size):
        raise ModelError(f"{node.where}.{name}: expected 1 or {columns} numbers")
    numbers: Values = np.broadcast_to(values.reshape(-1), columns)
    if numbers.dtype.kind not in "fi" or not np.isfinite(numbers).all():
        raise ModelError(f"{node.where}.{name}: expected finite numbers")
    return numbers


def _scaler(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    """(x - offset) * scale, rounded to float32 after each step (in float64, and then cast, where x is float64)."""
    node.only("offset", "scale")
    tensor = _one(node, given, fixed)
    n = len(tensor.columns)
    offsets = _per_column(node, "offset", node.get("offset", np.ndarray, np.zeros(1)), n)
    scales = _per_column(node, "scale", node.get("scale", np.ndarray, np.ones(1)), n)
    _check_nonzero(node, "scale", scales)

    def scaled(column: Column, offset: float, scale: float) -> Column:
        wide = np.float64 if _numeric(node, column).dtype is np.float64 else np.float32

        def step(x: Values) -> Values:
            exact: Any = x.astype(wide)
            written: Values = ((exact - wide(offset)) * wide(scale)).astype(np.float32)
            return written

        return column.then(step, np.float32, falling=scale < 0)

    return replace(tensor, columns=tuple(map(scaled, tensor.columns, offsets.tolist(), scales.tolist())))


def _check_nonzero(node: Node, name: str, values: Values) -> None:
    if (values == 0).any():
        raise ModelError(f"{node.where}.{name}: 0 makes a column constant; leave that column out before training")


def _arithmetic(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    """Add, Sub, Mul, Div by one number a column, in the column's own precision."""
    node.only()
    tensor = _one(node, given, fixed, constants=1)
    operands = _per_column(node, "input", fixed[0], len(tensor.columns))
    if node.op in ("Mul", "Div"):
        _check_nonzero(node, "input", operands)
    ufunc = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[node.op]

    def step(column: Column, operand: Any) -> Column:
        kind = column.dtype
        if fixed[0].dtype != kind or kind not in (np.float32, np.float64):
            raise ModelError(f"{node.where}.input: expected real numbers of one type")
        typed = np.asarray(operand, kind)
        falling = node.op in ("Mul", "Div") and operand < 0
        return column.then(lambda x: ufunc(x, typed), kind, falling=bool(falling))

    return replace(tensor, columns=tuple(map(step, tensor.columns, operands)))


def _imputer(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    node.only("imputed_value_floats", "replaced_value_float")
    tensor = _one(node, given, fixed)
    replaced = node.get("replaced_value_float", float, 0.0)
    if not np.isnan(replaced):
        raise ModelError(f"{node.where}.replaced_value_float: {replaced}, accepted is NaN (missing values)")
    fills = _per_column(node, "imputed_value_floats", node.get("imputed_value_floats", np.ndarray), len(tensor.columns))

    def filled(column: Column, fill: float) -> Column:
        if column.dtype is not np.float32:
            raise ModelError(f"{node.where}.input: has values of type {column.dtype.__name__}, expected float32")
        return column.then(lambda x: np.where(np.isnan(x), np.float32(fill), x), np.float32)

    return replace(tensor, columns=tuple(map(filled, tensor.columns, fills.tolist())))


def _binarizer(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    node.only("threshold")
    tensor, limit = _one(node, given, fixed), np.float32(node.get("threshold", float, 0.0))
    columns = tuple(
        _numeric(node, c).then(lambda x: (x > limit).astype(np.float32), np.float32) for c in tensor.columns
    )
    if any(column.dtype is not np.float32 for column in tensor.columns):
        raise ModelError(f"{node.where}.input: expected float32 values")
    return replace(tensor, columns=columns)


def _looked_up(node: Node, column: Column, keys: list[Any]) -> None:
    """Only an input's own values can be looked up: nothing but a cast may come before."""
    text = all(isinstance(key, str) for key in keys)
    if column.values is not None or (column.steps and not column.truncated) or len(column.steps) > 1:
        raise ModelError(
            f"{node.where}.input: looks up what another step has written; accepted is a column of the input"
        )
    if text != (column.dtype is np.str_):
        raise ModelError(
            f"{node.where}: looks up {'texts' if text else 'numbers'} in a column of {column.dtype.__name__}"
        )
    check_distinct(keys, f"{node.where}: key")
    if not keys:
        raise ModelError(f"{node.where}: has no keys")


def _one_hot(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    node.only("cats_int64s", "cats_strings", "zeros")
    tensor = _one(node, given, fixed)
    keys = (
        list(node.get("cats_strings", list, [])) + node.get("cats_int64s", np.ndarray, np.empty(0, np.int64)).tolist()
    )
    if tensor.deep or len(keys) ** 2 * len(tensor.columns) > MAX_TABLE:
        raise ModelError(
            f"{node.where}: has {len(keys)} categories for {len(tensor.columns)} columns, which is too many"
        )
    columns = []
    for column in tensor.columns:
        _looked_up(node, column, keys)
        for at, key in enumerate(keys):
            written = np.zeros(len(keys), np.float32)
            written[at] = 1.0
            made = replace(column, dtype=np.float32, steps=(), truncated=False, values=tuple(keys), written=written)
            columns.append(replace(made, label=f"_{key}"))
    return Tensor(tuple(columns), deep=len(tensor.columns))


def _label_encoder(node: Node, given: list[Tensor], fixed: list[Values]) -> Tensor:
    kinds = ("strings", "int64s", "floats", "tensor")
    node.only(*(f"{side}_{kind}" for side in ("keys", "values", "default") for kind in kinds), "default_string",
              "default_int64", "default_float")  # fmt: skip
    tensor = _one(node, given, fixed)
    keys, values = (_side(node, side, kinds) for side in ("keys", "values"))
    if len(keys) != len(values) or values.dtype.kind not in "fi":
        raise ModelError(f"{node.where}.values: expected one number for each of the {len(keys)} keys")
    kind: type[np.generic] = np.int64 if values.dtype.kind == "i" else values.dtype.type
    columns = []
    for column in tensor.columns:
        _looked_up(node, column, keys.tolist())
        made = replace(column, dtype=kind, steps=(), truncated=False, values=tuple(keys.tolist()), label="_code")
        columns.append(replace(made, written=values.astype(kind)))
    return replace(tensor, columns=tuple(columns))


def _side(node: Node, side: str, kinds: tuple[str, ...]) -> Values:
    """The keys or the values of a LabelEncoder, of which there is one list."""
    found = [node.attributes[f"{side}_{kind}"] for kind in kinds if f"{side}_{kind}" in node.attributes]
    if len(found) != 1:
        raise ModelError(f"{node.where}.{side}: {len(found)} lists are given, expected 1")
    values = np.array(found[0], np.str_) if isinstance(found[0], list) else found[0]
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        raise ModelError(f"{node.where}.{side}: expected a list")
    if f"{side}_floats" in node.attributes:
        values = values.astype(np.float32)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ModelError(f"{node.where}.{side}: expected finite numbers")
    return values


READERS: Mapping[tuple[str, str], Callable[[Node, list[Tensor], list[Values]], Tensor]] = {
    ("", "Identity"): _identity,
    ("", "Cast"): _cast,
    ("", "Concat"): _concat,
    ("", "Reshape"): _reshape,
    ("", "Flatten"): _flatten,
    ("", "Gather"): _extract,
    ("", "Add"): _arithmetic,
    ("", "Sub"): _arithmetic,
    ("", "Mul"): _arithmetic,
    ("", "Div"): _arithmetic,
    (ML, "ArrayFeatureExtractor"): _extract,
    (ML, "FeatureVectorizer"): _vectorized,
    (ML, "Scaler"): _scaler,
    (ML, "Imputer"): _imputer,
    (ML, "Binarizer"): _binarizer,
    (ML, "OneHotEncoder"): _one_hot,
    (ML, "LabelEncoder"): _label_encoder,
}
ACCEPTED = ", ".join(name for _, name in READERS)
