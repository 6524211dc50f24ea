"""A reader of protobuf's wire format, for files that nobody has checked: every length and every number is bounded.

A message is read one level deep; what lies inside it is read when somebody asks for it, so that no nesting of a file
costs anything. Long runs of the same number field, of which model files are made, are decoded by numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIDTH = {FIXED64: 8, FIXED32: 4}
MAX_VARINT = 10  # bytes of a 64-bit number
MAX_FIELDS = 5_000_000  # of one message, runs of numbers aside: some seconds
FIRST_RUN = 64  # bytes that are looked at first for a run; each next look is twice as long

IntArray = npt.NDArray[np.int64]
T = TypeVar("T")


class Message:
    """The fields of one message: per field number the values in the file's order, each with its wire type.

    A value is a number (VARINT), a piece of the data (BYTES and fixed widths), or an array of several numbers.
    """

    def __init__(self, data: memoryview, where: str) -> None:
        self.where = where
        self.fields = _fields(data, where)

    def only(self, known: Mapping[int, str], refused: Mapping[int, str] | None = None) -> None:
        """Refuse fields that are not known: they could change what the message means."""
        for number in self.fields:
            if number not in known:
                raise ModelError(f"{self.where}: {(refused or {}).get(number, f'field {number}')} is not read")

    def text(self, number: int, name: str, default: str | None = None) -> str:
        """A text that is given at most once."""
        text = self.part(number, name)
        return self._given(default, name) if text is None else decoded(text, f"{self.where}.{name}")

    def texts(self, number: int, name: str) -> list[str]:
        return [decoded(part, f"{self.where}.{name}[{at}]") for at, part in enumerate(self.parts(number, name))]

    def integer(self, number: int, name: str, default: int | None = None) -> int:
        """A number that is given at most once."""
        value = self._single(number, name)
        if value is None:
            return self._given(default, name)
        if value[0] != VARINT:
            raise ModelError(f"{self.where}.{name}: expected a number, found wire type {value[0]}")
        return int(value[1])

    def integers(self, number: int, name: str) -> IntArray:
        """All numbers of a field, written one by one or packed."""
        parts = []
        for wire, value in self.fields.get(number, ()):
            if wire == BYTES:
                parts.append(varints(value, f"{self.where}.{name}"))
            elif wire == VARINT:
                parts.append(np.atleast_1d(np.asarray(value, np.int64)))
            else:
                raise ModelError(f"{self.where}.{name}: expected numbers, found wire type {wire}")
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def reals(self, number: int, name: str, wire: int) -> npt.NDArray[np.float64]:
        """All floating-point numbers of a field (FIXED32 or FIXED64), written one by one or packed, as float64."""
        kind, parts = "<f4" if wire == FIXED32 else "<f8", []
        for found, value in self.fields.get(number, ()):
            if found not in (wire, BYTES):
                raise ModelError(f"{self.where}.{name}: expected numbers, found wire type {found}")
            if len(value) % WIDTH[wire]:
                raise ModelError(f"{self.where}.{name}: {len(value)} bytes are no whole number of values")
            parts.append(np.frombuffer(value, kind))
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return np.concatenate(parts).astype(np.float64) if parts else np.empty(0)

    def part(self, number: int, name: str) -> memoryview | None:
        """The bytes of a field that is given at most once."""
        value = self._single(number, name)
        return None if value is None else _as_bytes(*value, f"{self.where}.{name}")

    def parts(self, number: int, name: str) -> list[memoryview]:
        return [_as_bytes(*value, f"{self.where}.{name}") for value in self.fields.get(number, ())]

    def _given(self, default: T | None, name: str) -> T:
        if default is None:
            raise ModelError(f"{self.where}.{name}: missing")
        return default

    def _single(self, number: int, name: str) -> tuple[int, Any] | None:
        found = self.fields.get(number)
        if found is None:
            return None
        if len(found) > 1 or isinstance(found[0][1], np.ndarray):
            raise ModelError(f"{self.where}.{name}: occurs twice")
        return found[0]


def decoded(data: memoryview, where: str) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{where}: byte {error.start} is not UTF-8 text") from None


def varints(data: memoryview, where: str) -> IntArray:
    """Numbers that follow each other without a tag."""
    values, used = _varints(np.frombuffer(data, np.uint8), where)
    if used != len(data):
        raise ModelError(f"{where}: the last number is cut off")
    return values


def _fields(data: memoryview, where: str) -> dict[int, list[tuple[int, Any]]]:
    fields: dict[int, list[tuple[int, Any]]] = {}
    at, end, count = 0, len(data), 0
    value: Any
    while at < end:
        begin, count = at, count + 1
        if count > MAX_FIELDS:
            raise ModelError(f"{where}: has more than {MAX_FIELDS} fields")
        tag, at = _varint(data, at, where)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 2**29:
            raise ModelError(f"{where}: byte {begin}: {number} is no field number; the file is damaged")
        if wire == VARINT:
            value, at = _varint(data, at, where)
        elif wire in WIDTH or wire == BYTES:
            size = WIDTH.get(wire, 0)
            if wire == BYTES:
                size, at = _varint(data, at, where)
            if not 0 <= size <= end - at:
                raise ModelError(
                    f"{where}: field {number} has {size % 2**64} bytes where {end - at} are left; the file is damaged"
                )
            value, at = data[at : at + size], at + size
        else:
            raise ModelError(f"{where}: field {number} has wire type {wire}, which is not used; the file is damaged")
        fields.setdefault(number, []).append((wire, value))
        if wire != BYTES and at - begin < end - at and number < 16 and data[at] == data[begin]:
            value, at = (_varint_run if wire == VARINT else _fixed_run)(data, at, where)
            fields[number].append((wire, value))
    return fields


def _varint(data: memoryview, at: int, where: str) -> tuple[int, int]:
    """One number as int64, and where it ends."""
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for count, byte in enumerate(data[at : at + MAX_VARINT]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value >= 2**64:
                break
            return (value - 2**64 if value >= 2**63 else value), at + count + 1
    raise ModelError(f"{where}: byte {at}: a number is cut off or has more than 64 bits; the file is damaged")


def _varint_run(data: memoryview, at: int, where: str) -> tuple[IntArray, int]:
    """The values of a run of one VARINT field: tags and values alternate, all of them varints."""
    tag, parts, size = data[at], [], FIRST_RUN
    while True:
        chunk = np.frombuffer(data[at : at + size], np.uint8)
        ends = np.flatnonzero(chunk < 0x80)
        # The tag is one byte below 0x80; the run ends where an even number is anything else.
        starts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
        pairs = len(ends) // 2
        same = (chunk[starts[: 2 * pairs : 2]] == tag) & (ends[: 2 * pairs : 2] == starts[: 2 * pairs : 2])
        count = pairs if same.all() else int(np.argmin(same))
        if count:
            used = int(ends[2 * count - 1]) + 1
            numbers, _ = _varints(chunk[:used], where)
            parts.append(numbers[1::2])
            at += used
        if count < pairs or at + MAX_VARINT >= len(data) or not count:
            return np.concatenate([*parts, np.empty(0, np.int64)]), at
        size *= 2


def _fixed_run(data: memoryview, at: int, where: str) -> tuple[npt.NDArray[np.uint8], int]:
    """The bytes of the values of a run of one field of fixed width."""
    tag, width, parts, size = data[at], 1 + WIDTH[data[at] & 7], [], FIRST_RUN
    while True:
        rows = min(size, len(data) - at) // width
        chunk = np.frombuffer(data[at : at + rows * width], np.uint8).reshape(rows, width)
        same = chunk[:, 0] == tag
        count = rows if same.all() else int(np.argmin(same))
        parts.append(chunk[:count, 1:].reshape(-1))
        at += count * width
        if count < rows or rows == 0:
            return np.concatenate(parts), at
        size *= 2


def _varints(data: npt.NDArray[np.uint8], where: str) -> tuple[IntArray, int]:
    """All numbers that end inside the bytes, and where the last one does."""
    ends = np.flatnonzero(data < 0x80)
    if not len(ends):
        return np.empty(0, np.int64), 0
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > MAX_VARINT or (data[ends[lengths == MAX_VARINT]] > 1).any():
        raise ModelError(f"{where}: a number has more than 64 bits; the file is damaged")
    values = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max())):
        has = lengths > place
        values[has] |= (data[starts[has] + place] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
    return values.view(np.int64), int(ends[-1]) + 1


def _as_bytes(wire: int, value: Any, where: str) -> memoryview:
    if wire != BYTES:
        raise ModelError(f"{where}: expected bytes, found wire type {wire}")
    part: memoryview = value
    return part
