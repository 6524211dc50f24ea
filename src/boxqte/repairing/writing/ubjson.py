"""UBJSON as XGBoost writes it: the counterpart of the bounded reader `models/importers/ubjson.py`."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

INTEGERS = (("i", ">b"), ("I", ">h"), ("l", ">i"), ("L", ">q"))
ARRAYS = {"i1": "i", "u1": "U", "i2": "I", "i4": "l", "i8": "L", "f4": "d"}


def ubjson(value: Any) -> bytes:
    """The bytes of a document of objects, lists, typed arrays, texts, numbers and constants.

    Examples
    --------
    >>> from boxqte.models.importers.ubjson import read_ubjson
    >>> read_ubjson(ubjson({"a": ["b", 7, True], "c": np.array([1, 2], np.int32)}))
    {'a': ['b', 7, True], 'c': array([1, 2], dtype=int32)}
    """
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _length(size: int) -> bytes:
    return b"L" + struct.pack(">q", size)


def _text(text: str) -> bytes:
    raw = text.encode()
    return _length(len(raw)) + raw


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, Mapping):
        parts.append(b"{")
        for key, inner in value.items():
            parts.append(_text(key))
            _write(inner, parts)
        parts.append(b"}")
    elif isinstance(value, np.ndarray):
        mark = ARRAYS[value.dtype.newbyteorder("=").str[1:]]
        raw = value.astype(value.dtype.newbyteorder(">")).tobytes()
        parts.append(b"[$" + mark.encode() + b"#" + _length(len(value)) + raw)
    elif isinstance(value, list):
        parts.append(b"[#" + _length(len(value)))
        for inner in value:
            _write(inner, parts)
    elif isinstance(value, str):
        parts.append(b"S" + _text(value))
    elif value is None or isinstance(value, bool):
        parts.append(b"Z" if value is None else b"T" if value else b"F")
    elif isinstance(value, int):
        mark, layout = next(
            (m, s)
            for m, s in INTEGERS
            if -(2 ** (8 * struct.calcsize(s) - 1)) <= value < 2 ** (8 * struct.calcsize(s) - 1)
        )
        parts.append(mark.encode() + struct.pack(layout, value))
    else:
        parts.append(b"d" + struct.pack(">f", value))
