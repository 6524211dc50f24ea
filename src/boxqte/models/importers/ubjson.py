"""A bounded reader of UBJSON, the binary JSON that XGBoost writes by default.

Files are untrusted: every count is compared with the bytes that are left before anything of that size is made, depth
and the number of values are limited, and whatever the format does not define is refused. Arrays with a declared number
type come back as numpy arrays of that type, so that float32 leaf values stay the bits that the library wrote.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError

MAX_DEPTH = 64  # XGBoost nests about ten deep
MAX_VALUES = 5_000_000  # outside typed arrays; a value costs about 60 bytes here and as little as one in the file

# Numbers are big-endian.
INTEGERS = {"i": 1, "U": 1, "I": 2, "l": 4, "L": 8}
STRUCTS = {mark: struct.Struct(layout) for mark, layout in {
    "i": ">b", "U": ">B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"
}.items()}  # fmt: skip
# XGBoost writes no float64 arrays; given one, its loader ends the process instead of reporting an error.
ARRAYS = {mark: np.dtype(layout) for mark, layout in {
    "i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4"
}.items()}  # fmt: skip
CONSTANTS: dict[str, Any] = {"Z": None, "T": True, "F": False}


def read_ubjson(data: bytes) -> Any:
    """The one value that the bytes hold; ModelError with the byte's position where they are not UBJSON."""
    reader = _Reader(data)
    value = reader.value(reader.marker(), 0)
    if reader.at != len(data):
        raise ModelError(f"byte {reader.at}: {len(data) - reader.at} bytes after the end of the document")
    return value


class _Reader:
    """A position in the bytes, and how many values may still be made."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.marks = data.decode("latin-1")  # a character a byte
        self.at = 0
        self.values_left = MAX_VALUES

    def take(self, count: int) -> bytes:
        begin = self.at
        if count > len(self.data) - begin:
            raise ModelError(f"byte {begin}: needs {count} bytes, the file has {len(self.data) - begin} left")
        self.at = begin + count
        return self.data[begin : self.at]

    def marker(self) -> str:
        """The next type marker; no-op markers mean nothing and are skipped."""
        mark = "N"
        while mark == "N":
            mark = self.marks[self.at : self.at + 1]
            self.at += 1
        if not mark:
            raise ModelError(f"byte {len(self.data)}: needs 1 bytes, the file has 0 left")
        return mark

    def count(self, what: str) -> int:
        """A length or an element count: an integer that at least its own number of bytes must follow."""
        begin = self.at
        mark = self.marker()
        if mark not in INTEGERS:
            raise ModelError(f"byte {begin}: the {what} has type {mark!r}, expected an integer type")
        count = int.from_bytes(self.take(INTEGERS[mark]), "big", signed=mark != "U")
        if not 0 <= count <= len(self.data) - self.at:
            raise ModelError(f"byte {begin}: the {what} is {count}, the file has {len(self.data) - self.at} bytes left")
        return count

    def text(self, what: str) -> str:
        begin = self.at
        end = begin + 9 + int.from_bytes(self.data[begin + 1 : begin + 9], "big")
        try:
            if end <= len(self.data) and self.marks[begin] == "L":  # what XGBoost writes
                self.at = end
                return self.data[begin + 9 : end].decode("utf-8")
            return self.take(self.count(what)).decode("utf-8")
        except UnicodeDecodeError:
            raise ModelError(f"byte {begin}: a text is not UTF-8") from None

    def value(self, mark: str, depth: int) -> Any:
        begin = self.at - 1
        self.values_left -= 1
        if self.values_left < 0:
            raise ModelError(f"byte {begin}: more than {MAX_VALUES} values outside typed arrays")
        if depth > MAX_DEPTH:
            raise ModelError(f"byte {begin}: nested deeper than {MAX_DEPTH}")
        if mark == "[":
            return self.array(depth)
        if mark == "S":
            return self.text("length of a text")
        if mark == "{":
            return self.object(depth)
        if mark in STRUCTS:
            return STRUCTS[mark].unpack(self.take(STRUCTS[mark].size))[0]
        if mark in CONSTANTS:
            return CONSTANTS[mark]
        raise ModelError(f"byte {begin}: unknown type {mark!r}")

    def array(self, depth: int) -> list[Any] | npt.NDArray[Any]:
        begin = self.at - 1
        mark = self.marker()
        if mark == "$":
            return self.typed_array(begin)
        if mark == "#":
            return [self.value(self.marker(), depth + 1) for _ in range(self.count("number of elements"))]
        values = []
        while mark != "]":
            values.append(self.value(mark, depth + 1))
            mark = self.marker()
        return values

    def typed_array(self, begin: int) -> npt.NDArray[Any]:
        kind, sign = self.marker(), self.marker()
        # Types without a payload (null, true) would let a few bytes declare any number of elements.
        if kind not in ARRAYS or sign != "#":
            raise ModelError(
                f"byte {begin}: an array of type {kind!r}, expected one of {', '.join(ARRAYS)} and a count"
            )
        dtype = ARRAYS[kind]
        count = self.count("number of elements")
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).astype(dtype.newbyteorder("="))

    def object(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while self.marks[self.at : self.at + 1] != "}":
            begin = self.at
            key = self.text("length of a key")
            if key in values:
                raise ModelError(f"byte {begin}: key {key[:40]!r} occurs twice in one object")
            values[key] = self.value(self.marker(), depth + 1)
        self.at += 1
        return values
