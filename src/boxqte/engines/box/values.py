"""A list of values in order, with buckets: how many of them are at most a limit, in a few instructions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import inlined, kernel
from boxqte.engines.box.parts import Scratch
from boxqte.engines.box.sorting import sort_together


@kernel
def sort_values(s: Scratch, n: int) -> tuple[int, int]:
    """Sort list B by value: count into buckets of equal width, then insertion inside each.

    Leaves s.key (the sorted values between two sentinels) and s.bucket as `rank_of` reads them, and the masses in order;
    returns the buckets' width in bits and the last bucket.
    """
    value, mass, bucket, key = s.value[1], s.mass[1], s.bucket, s.key
    low = value[0]
    high = value[0]
    for i in range(1, n):
        low = min(low, value[i])
        high = max(high, value[i])
    n_buckets = 8
    while n_buckets < 2 * n:
        n_buckets *= 2
    n_buckets = min(n_buckets, len(bucket) - 8)
    shift = 0
    while (high - low) >> shift >= n_buckets:
        shift += 1
    top = (high - low) >> shift
    for k in range(top + 5):
        bucket[k] = 0
    for i in range(n):
        bucket[((value[i] - low) >> shift) + 2] += 1
        s.mass[2, i] = mass[i]
    for k in range(2, top + 5):  # bucket[k + 1] is now where bucket k begins
        bucket[k] += bucket[k - 1]
    for i in range(n):
        k = (value[i] - low) >> shift
        at = bucket[k + 1]
        bucket[k + 1] += 1
        key[at + 1] = value[i]
        mass[at] = s.mass[2, i]
    for k in range(top + 1, 0, -1):  # every entry advanced its bucket's start to its end
        bucket[k + 1] = bucket[k]
    bucket[1] = 0
    bucket[top + 2] = n
    bucket[top + 3] = n
    bucket[top + 4] = n
    key[0] = -(np.int64(1) << 62)
    key[n + 1] = np.int64(1) << 62
    for k in range(top + 1):
        first, stop = bucket[k + 1], bucket[k + 2]
        if stop - first > 24:  # values crowd together: insertion would be quadratic
            sort_together(key[first + 1 : stop + 1], s.value[2, first:stop], mass[first:stop])
            continue
        for i in range(first + 1, stop):
            v, m = key[i + 1], mass[i]
            j = i - 1
            while j >= first and key[j + 1] > v:
                key[j + 2] = key[j + 1]
                mass[j + 1] = mass[j]
                j -= 1
            key[j + 2] = v
            mass[j + 1] = m
    return shift, top


@inlined
def rank_of(key: npt.NDArray[np.int64], bucket: npt.NDArray[np.int32], shift: int, top: int, limit: np.int64) -> int:
    """How many values of B are at most the limit. Written without branches that a processor could guess wrong.

    key[1..n] are the sorted values between two sentinels; bucket[k + 1] is the rank at the lower end of bucket k.
    """
    k = min(max((limit - key[1]) >> shift, -1), top + 1) + 1
    i = bucket[k]
    if bucket[k + 1] - i > 16:  # values crowd together
        stop = bucket[k + 1]
        while i < stop:
            middle = (i + stop) >> 1
            if key[middle + 1] <= limit:
                i = middle + 1
            else:
                stop = middle
        return np.int64(i)  # type: ignore[return-value]
    rank = np.int64(i)
    rank += np.int64(key[rank + 1] <= limit)
    while key[rank + 1] <= limit:
        rank += 1
    return rank  # type: ignore[return-value]


@inlined
def near_mass(
    key: npt.NDArray[np.int64],
    prefix: npt.NDArray[np.float64],
    bucket: npt.NDArray[np.int32],
    shift: int,
    top: int,
    at: int,
    limit: np.int64,
    band: int,
) -> float:
    """The mass of the entries within `band` of the limit; `at` is the limit's rank."""
    if key[at + 1] > limit + band and key[at] < limit - band:
        return 0.0
    above = rank_of(key, bucket, shift, top, limit + band)
    below = rank_of(key, bucket, shift, top, limit - band - 1)
    return prefix[above] - prefix[below]  # type: ignore[no-any-return]
