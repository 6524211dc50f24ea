"""Checks on parsed model files that every importer shares: shapes, indices, cycles, sizes, finiteness.

Each raises ModelError with one line that names the field (`where`) and the offending value.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import oversized_in, shown

Direction = Literal["increasing", "decreasing"]

MAX_NODES = 50_000_000  # per model; far above any real ensemble, far below what would exhaust memory
MAX_DEPTH = 10_000
MAX_FEATURES = 1_000_000
ANY_MODEL = "`boxqte test` asks any predict function"  # the way out where a model has no exact counterpart


def get(node: object, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """`node[key]`, checked to be present and of the kind."""
    if not isinstance(node, Mapping):
        raise ModelError(f"{where}: expected an object, found {shown(node)}")
    if key not in node:
        raise ModelError(f"{where}.{key}: missing")
    value = node[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise ModelError(f"{where}.{key}: expected {names}, found {shown(value)}")
    return value


def monotone_columns(values: Sequence[object], names: Sequence[str], where: str) -> dict[str, Direction]:
    """Declared constraints, -1, 0 or 1 a column, as the direction of each column that has one; columns behind the last
    one have none."""
    if len(values) > len(names):
        raise ModelError(f"{where}: has {len(values)} entries, the model has {len(names)} columns")
    signs = [integer(value, f"{where}[{at}]", -1, 1) for at, value in enumerate(values)]
    return {name: "increasing" if sign > 0 else "decreasing" for name, sign in zip(names, signs) if sign}


def integer(value: object, where: str, low: int, high: int) -> int:
    """An integer within [low, high], given as a number or as decimal text."""
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool):
        raise ModelError(f"{where}: expected an integer, found {shown(value)}")
    if not low <= number <= high:
        raise ModelError(f"{where}: {shown(number)} is outside {low}..{high}")
    return number


def real(value: object, where: str) -> float:
    """A finite number, given as a number or as decimal text."""
    try:
        number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ModelError(f"{where}: expected a finite number, found {shown(value)}")
    return number


def numbers(values: object, where: str, length: int | None, dtype: type) -> npt.NDArray[Any]:
    """A flat list of numbers as an array of the dtype, of the given length; integers must be integral and in range."""
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, (str, bytes)):
        raise ModelError(f"{where}: expected a list of numbers, found {shown(values)}")
    if length is not None and len(values) != length:
        raise ModelError(f"{where}: has {len(values)} entries, expected {length}")
    if len(values) > MAX_NODES:
        raise ModelError(f"{where}: has {len(values)} entries, more than {MAX_NODES}")
    if isinstance(values, np.ndarray) and values.ndim == 1 and np.can_cast(values.dtype, dtype):
        with np.errstate(invalid="ignore"):
            return values.astype(dtype)  # a typed array of a binary file: all of it fits
    try:
        array = np.array(values)
    except (ValueError, TypeError, OverflowError):
        array = np.array(["?"])
    if array.size and (array.ndim != 1 or array.dtype.kind not in "iufb"):
        bad = next((v for v in values if isinstance(v, str) or not isinstance(v, (int, float, np.number))), values)
        raise ModelError(f"{where}: expected a list of numbers, found {shown(bad)}")
    # A file may hold signalling NaN and numbers beyond the dtype: what they become is for `finite` to judge.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.issubdtype(dtype, np.integer) and array.size:
            limits = np.iinfo(dtype)
            real_array = array.astype(np.float64)
            off = ~np.isfinite(real_array) | (array != np.floor(real_array))
            off |= (array < limits.min) | (array > limits.max)
            if array.dtype.kind == "f":
                off |= real_array >= float(limits.max) + 1.0  # int64's largest is no float64; the next one is
            if off.any():
                at = int(np.flatnonzero(off)[0])
                raise ModelError(f"{where}[{at}]: expected an integer, found {shown(values[at])}")
        return array.reshape(-1).astype(dtype)


def finite(array: npt.NDArray[Any], where: str, only: npt.NDArray[np.bool_] | None = None) -> None:
    """Refuse NaN and infinities (at the positions `only`)."""
    off = ~np.isfinite(array) if only is None else ~np.isfinite(array) & only
    if off.any():
        at = int(np.flatnonzero(off)[0])
        raise ModelError(f"{where}[{at}]: {array[at]} is not a finite number")


def within(array: npt.NDArray[Any], where: str, low: int, high: int, only: npt.NDArray[np.bool_] | None = None) -> None:
    """Refuse entries outside [low, high] (at the positions `only`)."""
    off = (array < low) | (array > high)
    if only is not None:
        off = off & only
    if off.any():
        at = int(np.flatnonzero(off)[0])
        raise ModelError(f"{where}[{at}]: {array[at]} is outside {low}..{high}")


def check_tree(
    left: npt.NDArray[Any],
    right: npt.NDArray[Any],
    leaf: npt.NDArray[np.bool_],
    where: str,
    names: tuple[str, str] = ("left_children", "right_children"),
    unused: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Refuse child arrays that are not one tree rooted at node 0: bad index, two parents, cycle, unreachable node.

    `unused` marks nodes that the library has deleted and that may be unreachable.
    """
    n = len(left)
    if n == 0:
        raise ModelError(f"{where}: has no nodes")
    parents = np.zeros(n, np.int64)
    parents[0] = 1
    for side, name in ((left, names[0]), (right, names[1])):
        within(side, f"{where}.{name}", 0, n - 1, only=~leaf)
        np.add.at(parents, side[~leaf], 1)
    if (parents > 1).any():
        at = int(np.flatnonzero(parents > 1)[0])
        raise ModelError(f"{where}.{names[0]}/{names[1]}: node {at} has more than one parent or is its own ancestor")
    reached = np.zeros(n, bool)
    level = np.array([0])
    depth = 0
    while len(level):
        reached[level] = True
        inner = level[~leaf[level]]
        level = np.concatenate([left[inner], right[inner]]).astype(np.int64)
        depth += 1
        if depth > MAX_DEPTH:
            raise ModelError(f"{where}: deeper than {MAX_DEPTH}")
    missing = ~reached if unused is None else ~reached & ~unused
    if missing.any():
        raise ModelError(
            f"{where}.{names[0]}/{names[1]}: node {int(np.flatnonzero(missing)[0])} cannot be reached from the root"
        )


def type_name(source: object) -> str:
    """A live object's type, to open the error messages about it."""
    return f"{type(source).__module__}.{type(source).__qualname__}"


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """A file's content, or its first `limit` bytes."""
    try:
        with path.open("rb") as file:
            # Python sets aside as many bytes as it is asked for, not as many as there are.
            return file.read(limit if limit < 0 else min(limit, os.fstat(file.fileno()).st_size))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None


def check_distinct(values: Iterable[Hashable], where: str) -> None:
    """Refuse a value that occurs twice."""
    seen: set[Hashable] = set()
    for value in values:
        if value in seen:
            raise ModelError(f"{where} {shown(value)} occurs twice")
        seen.add(value)


def parsed_json(
    data: bytes, where: str, *, parse_float: Callable[[str], float] = float, constants: bool = False
) -> Any:
    """JSON without what JSON does not have (NaN, Infinity, unless `constants`) and without a key given twice."""

    def refuse_constant(text: str) -> NoReturn:
        raise ModelError(f"{where}: has the number {text}, which is not JSON")

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        node = dict(pairs)
        if len(node) != len(pairs):
            check_distinct([key for key, _ in pairs], f"{where}: key")
        return node

    try:
        return json.loads(
            data,
            parse_float=parse_float,
            parse_constant=float if constants else refuse_constant,
            object_pairs_hook=distinct,
        )
    except RecursionError:
        raise ModelError(f"{where}: is nested too deeply") from None
    except ValueError as error:  # not JSON, not UTF-8, or an integer of thousands of digits
        why = oversized_in(data.decode(errors="replace")) or f"is not JSON: {str(error).splitlines()[0][:100]}"
        raise ModelError(f"{where}: {why}") from None


def single_from_text(text: str) -> float:
    """The float64 from which the float32 nearest to the decimal text results by rounding.

    Rounding a decimal to float64 and then to float32 goes wrong if the float64 lies half-way between two float32 and
    the decimal does not; then the float64 beside it, on the decimal's side, is the right one.
    """
    number = float(text)
    if not math.isfinite(number):
        return number
    if abs(number) < 2.0**-126:
        halfway = (number * 2.0**150) % 2 == 1  # float32 this small are multiples of 2^-149
    else:
        halfway = struct.unpack("<Q", struct.pack("<d", number))[0] & 0x1FFFFFFF == 0x10000000
    if halfway and Fraction(text) != Fraction(number):
        return math.nextafter(number, math.inf if Fraction(text) > Fraction(number) else -math.inf)
    return number
