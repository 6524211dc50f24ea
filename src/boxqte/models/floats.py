"""Floats as integers in the same order, and bisection over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ROWS = 2048  # rows of one evaluation for which its fixed costs are still the greater part


def keys_of(x: npt.ArrayLike, dtype: npt.DTypeLike = np.float64) -> Keys:
    """Floats of a type as integers in the same order, neighbours as neighbours.

    Examples
    --------
    >>> keys_of([-5e-324, 0.0, 5e-324]).tolist()
    [-1, 0, 1]
    """
    floats = np.atleast_1d(np.asarray(x, dtype)) + 0  # + 0 makes 0 of -0
    bits = floats.view(f"i{floats.itemsize}").astype(np.int64)
    return np.where(bits < 0, np.iinfo(f"i{floats.itemsize}").min - bits, bits)


def floats_of(keys: Keys, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """The floats whose keys these are."""
    whole = f"i{np.dtype(dtype).itemsize}"
    return np.where(keys < 0, np.iinfo(whole).min - keys, keys).astype(whole).view(dtype)


def bisected(outcome: Callable[[Keys, int], Bools], low: Keys, high: Keys, at_low: Bools) -> Keys:
    """The last key from `low` on that has its outcome, where `high` has the other: all items at once.

    An evaluation takes its time however few rows it has, so that several keys of each item are asked at once;
    `outcome(keys, n)` is given n of them for each item, one after the other.
    """
    halvings = max(1, min(6, (ROWS // len(low)).bit_length()))
    while (low + 1 < high).any():
        keys = np.stack([low, high], axis=1)
        for _ in range(halvings):
            parts = np.empty((len(low), 2 * keys.shape[1] - 1), np.int64)
            parts[:, ::2] = keys
            parts[:, 1::2] = (keys[:, :-1] & keys[:, 1:]) + (
                (keys[:, :-1] ^ keys[:, 1:]) >> 1
            )  # the middle, rounded down
            keys = parts
        asked = keys[:, 1:-1]
        other = outcome(asked.reshape(-1), asked.shape[1]).reshape(asked.shape) != at_low[:, None]
        first = np.where(other.any(axis=1), other.argmax(axis=1), asked.shape[1])
        low, high = keys[np.arange(len(low)), first], keys[np.arange(len(low)), first + 1]
    return low
