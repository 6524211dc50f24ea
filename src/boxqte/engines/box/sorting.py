"""Sorting in place: numba's own sort would allocate, which kernels do not (jit.py)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import kernel


@kernel
def sort_together(key: npt.NDArray[np.int64], rest: npt.NDArray[np.int64], mass: npt.NDArray[np.float64]) -> None:
    """Sort three lists by key: insertion while they are short, a heap otherwise."""
    n = len(key)
    if n <= 48:
        for i in range(1, n):
            k, r, m = key[i], rest[i], mass[i]
            j = i
            while j > 0 and key[j - 1] > k:
                key[j], rest[j], mass[j] = key[j - 1], rest[j - 1], mass[j - 1]
                j -= 1
            key[j], rest[j], mass[j] = k, r, m
        return
    start, end = n >> 1, n
    while end > 1:
        if start > 0:  # the heap is being built
            start -= 1
        else:  # its largest goes to the end
            end -= 1
            key[0], key[end] = key[end], key[0]
            rest[0], rest[end] = rest[end], rest[0]
            mass[0], mass[end] = mass[end], mass[0]
        k, r, m = key[start], rest[start], mass[start]
        hole = start
        while True:
            child = 2 * hole + 1
            if child >= end:
                break
            if child + 1 < end and key[child + 1] > key[child]:
                child += 1
            if key[child] <= k:
                break
            key[hole], rest[hole], mass[hole] = key[child], rest[child], mass[child]
            hole = child
        key[hole], rest[hole], mass[hole] = k, r, m
