"""All offsets of one shape at once: ranks instead of signs (docs/engine.md, Theorem 9).

The shape is a table G over base cells, the question is asked for G + o with every offset o of a sorted list. 'G + o <= t'
holds for a first part of the list: the cell's rank is how long that part is. A window is then settled for all offsets by
its smallest and its largest rank, and ranks fit a byte, so a vector instruction takes dozens of cells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.brick import Brick, Levels
from boxqte.engines.box.erosion import Windows
from boxqte.engines.box.jit import inlined, kernel, summing

MOST_RANKS = 127  # the top bit of a byte is needed to compare eight of them at once
MOST_WINDOWS = 1 << 21  # more windows than this are left to bitmaps
LANE = 32  # rows of the last axis's windows are padded to a multiple: whole vectors only


class Ranks(NamedTuple):
    """Buffers of the rank measure, and what depends on the brick's windows alone."""

    neg: npt.NDArray[np.uint8]
    pos: npt.NDArray[np.uint8]
    sure_neg: npt.NDArray[np.uint8]
    sure_pos: npt.NDArray[np.uint8]
    """base cell -> rank of F <= neg, F < pos, F <= conf_neg, F < conf_pos"""
    low: npt.NDArray[np.uint8]
    high: npt.NDArray[np.uint8]
    """base cells of one combination: what the windows are taken over"""
    second_low: npt.NDArray[np.uint8]
    second_high: npt.NDArray[np.uint8]
    all_low: npt.NDArray[np.uint8]
    all_high: npt.NDArray[np.uint8]
    window_low: npt.NDArray[np.uint8]
    window_high: npt.NDArray[np.uint8]
    """window row x padded window, twice: the smallest and largest rank of each window, two halves in turn"""
    window_low_words: npt.NDArray[np.uint64]
    window_high_words: npt.NDArray[np.uint64]
    """the same memory, eight ranks a word"""
    sparse_low: npt.NDArray[np.uint8]
    sparse_high: npt.NDArray[np.uint8]
    sparse_low_words: npt.NDArray[np.uint64]
    sparse_high_words: npt.NDArray[np.uint64]
    own_low: npt.NDArray[np.uint8]
    own_high: npt.NDArray[np.uint8]
    own_low_words: npt.NDArray[np.uint64]
    own_high_words: npt.NDArray[np.uint64]
    """base row x padded window: the ranks of x's own cell"""
    row_weight: npt.NDArray[np.float64]
    row_base: npt.NDArray[np.int32]
    """window row -> its mass, its own base row"""
    last_weight: npt.NDArray[np.float64]
    last_base: npt.NDArray[np.int64]
    one: npt.NDArray[np.uint64]
    two: npt.NDArray[np.uint64]
    """level x window -> the two places of the sparse tables that together cover it"""
    cumulated: npt.NDArray[np.float64]
    """rank -> weight of that many first offsets"""
    size: npt.NDArray[np.int64]
    """[window rows, padded windows, cost of the ranks of a shape, cost of one bitmap]"""
    masses: npt.NDArray[np.float64]


@kernel
def _places(win: Windows, rk: Ranks, level: int, size: int, inner: int) -> None:
    """Where the windows of an axis find their two entries: tables of 1, 2, 4, ... neighbours follow each other."""
    for j in range(win.n_window[level]):
        log = 0
        while 2 << log <= win.high[level, j] - win.low[level, j] + 1:
            log += 1
        rk.one[level, j] = np.uint64(log * size + win.low[level, j] * inner)
        rk.two[level, j] = np.uint64(log * size + (win.high[level, j] + 1 - (1 << log)) * inner)


@kernel
def lay_ranks(b: Brick, win: Windows, rk: Ranks, need: npt.NDArray[np.int64]) -> bool:
    """What the rank measure needs to know of a brick's windows. False if the buffers are too small (see need)."""
    m = win.n_rows[0]
    n_last = win.n_window[m]
    padded = (n_last + LANE - 1) // LANE * LANE
    rows = 1
    widest = padded * b.info[4]
    sparse = b.info[4] * b.info[5]
    for i in range(m - 1, -1, -1):
        logs = 1
        while 1 << logs <= win.widest[i]:
            logs += 1
        sparse = max(sparse, logs * widest)
        rows *= win.n_window[i]
        widest = widest // win.n_base[i] * win.n_window[i]
    logs = 1
    while 1 << logs <= win.widest[m]:
        logs += 1
    sparse = max(sparse, logs * b.info[4] * b.info[5])
    largest = b.info[4] * padded
    here = largest
    for i in range(m - 1, -1, -1):
        here = here // win.n_base[i] * win.n_window[i]
        largest = max(largest, here)
    cells = b.info[2] * b.info[4] * b.info[5]
    rk.size[2] = rows * padded + 4 * cells
    rk.size[3] = 3 * (rows + b.info[3]) + 500
    if largest > MOST_WINDOWS or sparse > 8 * MOST_WINDOWS:
        rk.size[2] = np.int64(1) << 62
        return True
    need[3], need[4], need[5], need[6] = cells, largest, sparse, max(rows, 1)
    if (
        cells > len(rk.neg)
        or 2 * largest > len(rk.window_low)
        or sparse > len(rk.sparse_low)
        or rows > len(rk.row_weight)
    ):
        return False
    rk.size[0] = rows
    rk.size[1] = padded
    for j in range(padded):
        rk.last_weight[j] = win.mass[m, j] if j < n_last else 0.0
        rk.last_base[j] = win.base[m, j] if j < n_last else 0
    _places(win, rk, m, b.info[4] * b.info[5], 1)
    inner = padded >> 3
    outer = b.info[4]
    for i in range(m - 1, -1, -1):
        outer //= win.n_base[i]
        _places(win, rk, i, outer * win.n_base[i] * inner, inner)
        inner *= win.n_window[i]
    rk.row_weight[0] = 1.0
    rk.row_base[0] = 0
    count = 1
    for i in range(m):  # backwards, so that nothing is overwritten before it is read
        n = win.n_window[i]
        for o in range(count - 1, -1, -1):
            weight, base = rk.row_weight[o], rk.row_base[o]
            for j in range(n - 1, -1, -1):
                rk.row_weight[o * n + j] = weight * win.mass[i, j]
                rk.row_base[o * n + j] = base * win.n_base[i] + win.base[i, j]
        count *= n
    return True


@inlined
def _rank(offsets: npt.NDArray[np.int64], value: int) -> int:
    """How many of the sorted offsets are at most the value."""
    first, last = 0, len(offsets)
    while first < last:
        middle = (first + last) >> 1
        if offsets[middle] <= value:
            first = middle + 1
        else:
            last = middle
    return first


# The loops below index with unsigned numbers into whole arrays: a view would be counted as a new reference each time, with
# two locked instructions, and a signed index is first checked for counting from the end.


@kernel
def rank_cells(table: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], limit: int, n_last: int,
               ranks: npt.NDArray[np.uint8]) -> None:  # fmt: skip
    """ranks[c] = how many offsets o have table[c] + o <= limit; offsets are sorted."""
    width = np.uint64(n_last)
    begin = np.uint64(0)
    for _ in range(len(table) // n_last):
        smallest, largest = table[begin], table[begin]
        for z in range(width):
            smallest = min(smallest, table[begin + z])
            largest = max(largest, table[begin + z])
        first, last = _rank(offsets, limit - largest), _rank(offsets, limit - smallest)
        for z in range(width):
            ranks[begin + z] = np.uint8(first)
        for k in range(first, last):  # only these offsets tell the row's cells apart
            most = limit - offsets[k]
            for z in range(width):
                ranks[begin + z] += np.uint8(table[begin + z] <= most)
        begin += width


@kernel
def _double_last(low: npt.NDArray[np.uint8], high: npt.NDArray[np.uint8], size: int, widest: int,
                 sparse_low: npt.NDArray[np.uint8], sparse_high: npt.NDArray[np.uint8]) -> None:  # fmt: skip
    """Smallest and largest of 1, 2, 4, ... neighbouring cells."""
    n = np.uint64(size)
    for i in range(n):
        sparse_low[i] = low[i]
        sparse_high[i] = high[i]
    step = np.uint64(1)
    at = np.uint64(0)
    while 2 * step <= widest:
        n -= step
        to = at + np.uint64(size)
        for i in range(n):
            sparse_low[to + i] = min(sparse_low[at + i], sparse_low[at + step + i])
        for i in range(n):
            sparse_high[to + i] = max(sparse_high[at + i], sparse_high[at + step + i])
        at = to
        step += step


@kernel
def _last_windows(low: npt.NDArray[np.uint8], high: npt.NDArray[np.uint8], sparse_low: npt.NDArray[np.uint8],
                  sparse_high: npt.NDArray[np.uint8], one: npt.NDArray[np.uint64], two: npt.NDArray[np.uint64],
                  rows: int, cells: int, windows: int, padded: int, out_low: npt.NDArray[np.uint8],
                  out_high: npt.NDArray[np.uint8]) -> None:  # fmt: skip
    """The windows along every row; a uniform row is filled, the others are looked up."""
    n_cells, n_windows, width = np.uint64(cells), np.uint64(windows), np.uint64(padded)
    begin, to = np.uint64(0), np.uint64(0)
    for _ in range(rows):
        some_low, some_high = low[begin], high[begin]
        differ = np.uint8(0)
        for z in range(n_cells):
            differ |= (low[begin + z] ^ some_low) | (high[begin + z] ^ some_high)
        if differ == 0:
            for j in range(n_windows):
                out_low[to + j] = some_low
                out_high[to + j] = some_high
        else:
            for j in range(n_windows):
                a, b = begin + one[j], begin + two[j]
                out_low[to + j] = min(sparse_low[a], sparse_low[b])
                out_high[to + j] = max(sparse_high[a], sparse_high[b])
        for j in range(n_windows, width):
            out_low[to + j] = 0
            out_high[to + j] = 0
        begin += n_cells
        to += width


@inlined
def _smaller(a: np.uint64, b: np.uint64) -> np.uint64:
    """The smaller one, byte by byte. Bytes are below 128: (a | 128) - b never borrows, its top bit says a >= b."""
    first = ((a | np.uint64(0x8080808080808080)) - b) & np.uint64(0x8080808080808080)
    mask = (first - (first >> np.uint64(7))) | first
    return (b & mask) | (a & ~mask)


@inlined
def _larger(a: np.uint64, b: np.uint64) -> np.uint64:
    first = ((a | np.uint64(0x8080808080808080)) - b) & np.uint64(0x8080808080808080)
    mask = (first - (first >> np.uint64(7))) | first
    return (a & mask) | (b & ~mask)


@kernel
def _double(low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64], begin: int, size: int, inner: int, widest: int,
            sparse_low: npt.NDArray[np.uint64], sparse_high: npt.NDArray[np.uint64]) -> None:  # fmt: skip
    """Smallest and largest of 1, 2, 4, ... neighbouring slices of `inner` words."""
    n, source = np.uint64(size), np.uint64(begin)
    for i in range(n):
        sparse_low[i] = low[source + i]
        sparse_high[i] = high[source + i]
    step = np.uint64(inner)
    length = 1
    at = np.uint64(0)
    while 2 * length <= widest:
        n -= step
        to = at + np.uint64(size)
        for i in range(n):
            sparse_low[to + i] = _smaller(sparse_low[at + i], sparse_low[at + step + i])
        for i in range(n):
            sparse_high[to + i] = _larger(sparse_high[at + i], sparse_high[at + step + i])
        at = to
        step += step
        length *= 2


@kernel
def _axis_windows(sparse_low: npt.NDArray[np.uint64], sparse_high: npt.NDArray[np.uint64], one: npt.NDArray[np.uint64],
                  two: npt.NDArray[np.uint64], outer: int, cells: int, windows: int, inner: int, begin: int,
                  out_low: npt.NDArray[np.uint64], out_high: npt.NDArray[np.uint64]) -> None:  # fmt: skip
    """The windows along one row axis, in words of eight ranks."""
    n_windows, width, stride = np.uint64(windows), np.uint64(inner), np.uint64(cells * inner)
    base, to = np.uint64(0), np.uint64(begin)
    for _ in range(outer):
        for j in range(n_windows):
            a, b = base + one[j], base + two[j]
            for i in range(width):
                out_low[to + i] = _smaller(sparse_low[a + i], sparse_low[b + i])
                out_high[to + i] = _larger(sparse_high[a + i], sparse_high[b + i])
            to += width
        base += stride


@kernel
def _windows(b: Brick, win: Windows, rk: Ranks, low: npt.NDArray[np.uint8], high: npt.NDArray[np.uint8]) -> int:
    """The smallest of `low` and the largest of `high` over every window, axis by axis; where they begin in rk.window_*."""
    m = win.n_rows[0]
    rows, n_z, padded = b.info[4], b.info[5], rk.size[1]
    _double_last(low, high, rows * n_z, win.widest[m], rk.sparse_low, rk.sparse_high)
    _last_windows(low, high, rk.sparse_low, rk.sparse_high, rk.one[m], rk.two[m], rows, n_z, win.n_window[m], padded,
                  rk.window_low, rk.window_high)  # fmt: skip
    half = len(rk.window_low_words) // 2
    now = 0
    inner = padded >> 3
    outer = rows
    for level in range(m - 1, -1, -1):
        n, n_window = win.n_base[level], win.n_window[level]
        outer //= n
        _double(rk.window_low_words, rk.window_high_words, now, outer * n * inner, inner, win.widest[level],
                rk.sparse_low_words, rk.sparse_high_words)  # fmt: skip
        now = half - now
        _axis_windows(rk.sparse_low_words, rk.sparse_high_words, rk.one[level], rk.two[level], outer, n, n_window, inner,
                      now, rk.window_low_words, rk.window_high_words)  # fmt: skip
        inner *= n_window
    return now * 8


@summing
def _spread_rows(low_words: npt.NDArray[np.uint64], high_words: npt.NDArray[np.uint64], low: npt.NDArray[np.uint8],
                 high: npt.NDArray[np.uint8], begin: int, rows: int, padded: int, row_weight: npt.NDArray[np.float64],
                 weight: npt.NDArray[np.float64], cumulated: npt.NDArray[np.float64]) -> float:  # fmt: skip
    width, words = np.uint64(padded), np.uint64(padded >> 3)
    at, word_at = np.uint64(begin), np.uint64(begin >> 3)
    total = 0.0
    for row in range(rows):
        differ = np.uint64(0)
        for i in range(words):
            differ |= low_words[word_at + i] ^ high_words[word_at + i]
        if differ != 0:
            part = 0.0
            for j in range(width):
                part += weight[j] * (cumulated[high[at + j]] - cumulated[low[at + j]])
            total += row_weight[row] * part
        at += width
        word_at += words
    return total


@kernel
def _spread(rk: Ranks, now: int) -> float:
    """The mass of (x, offset) whose window holds both signs; x's own sign is one of them."""
    return _spread_rows(
        rk.window_low_words, rk.window_high_words, rk.window_low, rk.window_high, now, rk.size[0], rk.size[1], rk.row_weight,
        rk.last_weight, rk.cumulated,
    )  # fmt: skip


@summing
def _spread_own_rows(low_words: npt.NDArray[np.uint64], high_words: npt.NDArray[np.uint64],
                     own_low_words: npt.NDArray[np.uint64], own_high_words: npt.NDArray[np.uint64],
                     low: npt.NDArray[np.uint8], high: npt.NDArray[np.uint8], own_low: npt.NDArray[np.uint8],
                     own_high: npt.NDArray[np.uint8], begin: int, rows: int, padded: int,
                     row_base: npt.NDArray[np.int32], row_weight: npt.NDArray[np.float64],
                     weight: npt.NDArray[np.float64], cumulated: npt.NDArray[np.float64]) -> float:  # fmt: skip
    width, words = np.uint64(padded), np.uint64(padded >> 3)
    at, word_at = np.uint64(begin), np.uint64(begin >> 3)
    total = 0.0
    for row in range(rows):
        own_at, own_word_at = np.uint64(row_base[row]) * width, np.uint64(row_base[row]) * words
        differ = np.uint64(0)
        for i in range(words):
            word = low_words[word_at + i]
            differ |= (
                (word ^ high_words[word_at + i])
                | (word ^ own_low_words[own_word_at + i])
                | (word ^ own_high_words[own_word_at + i])
            )
        if differ != 0:
            part = 0.0
            for j in range(width):
                top = max(high[at + j], own_high[own_at + j])
                bottom = min(low[at + j], own_low[own_at + j])
                part += weight[j] * (cumulated[top] - cumulated[bottom])
            total += row_weight[row] * part
        at += width
        word_at += words
    return total


@kernel
def _own_windows(low: npt.NDArray[np.uint8], high: npt.NDArray[np.uint8], first: int, rows: int, cells: int, windows: int,
                 padded: int, base: npt.NDArray[np.int64], own_low: npt.NDArray[np.uint8],
                 own_high: npt.NDArray[np.uint8]) -> None:  # fmt: skip
    """The ranks of x's own base cell, for every window of the last axis."""
    n_windows, width = np.uint64(windows), np.uint64(padded)
    begin, to = np.uint64(first), np.uint64(0)
    for _ in range(rows):
        for j in range(n_windows):
            at = begin + np.uint64(base[j])
            own_low[to + j] = low[at]
            own_high[to + j] = high[at]
        for j in range(n_windows, width):
            own_low[to + j] = 0
            own_high[to + j] = 0
        begin += np.uint64(cells)
        to += width


@kernel
def _spread_own(b: Brick, rk: Ranks, n_last: int, now: int, s: int, sure_low: npt.NDArray[np.uint8],
                sure_high: npt.NDArray[np.uint8]) -> float:  # fmt: skip
    """The mass of (x, offset) of combination s that are not both confident and fair."""
    rows, n_z = b.info[4], b.info[5]
    _own_windows(
        sure_low, sure_high, s * rows * n_z, rows, n_z, n_last, rk.size[1], rk.last_base, rk.own_low, rk.own_high
    )
    return _spread_own_rows(
        rk.window_low_words, rk.window_high_words, rk.own_low_words, rk.own_high_words, rk.window_low, rk.window_high,
        rk.own_low, rk.own_high, now, rk.size[0], rk.size[1], rk.row_base, rk.row_weight, rk.last_weight, rk.cumulated,
    )  # fmt: skip


@summing
def _between(low: npt.NDArray[np.uint8], high: npt.NDArray[np.uint8], weight: npt.NDArray[np.float64],
             cumulated: npt.NDArray[np.float64]) -> float:  # fmt: skip
    total = 0.0
    for j in range(len(weight)):
        total += weight[j] * (cumulated[high[j]] - cumulated[low[j]])
    return total


@kernel
def _unsure(b: Brick, win: Windows, rk: Ranks) -> float:
    """The mass of (x, offset) that are not confident."""
    m = win.n_rows[0]
    rows, n_z = b.info[4], b.info[5]
    weight = win.base_mass[m, :n_z]
    total = 0.0
    for row in range(b.info[2] * rows):
        low, high = rk.sure_neg[row * n_z : (row + 1) * n_z], rk.sure_pos[row * n_z : (row + 1) * n_z]
        differ = np.uint8(0)
        for z in range(n_z):
            differ |= low[z] ^ high[z]
        if differ == 0:
            continue
        part = _between(low, high, weight, rk.cumulated) * b.s_mass[row // rows]
        rest = row % rows
        for level in range(m - 1, -1, -1):
            part *= win.base_mass[level, rest % win.n_base[level]]
            rest //= win.n_base[level]
        total += part
    return total


@kernel
def _without(rk: Ranks, low: npt.NDArray[np.uint8], high: npt.NDArray[np.uint8]) -> bool:
    """rk.low and rk.high become the ranks that combinations other than this one reach; whether that makes a difference."""
    differs = False
    for c in range(len(low)):
        rk.low[c] = rk.second_low[c] if low[c] == rk.all_low[c] else rk.all_low[c]
        rk.high[c] = rk.second_high[c] if high[c] == rk.all_high[c] else rk.all_high[c]
        differs |= rk.low[c] != rk.all_low[c] or rk.high[c] != rk.all_high[c]
    return differs


@kernel
def measure_ranks(b: Brick, levels: Levels, win: Windows, rk: Ranks, table: npt.NDArray[np.int64],
                  offsets: npt.NDArray[np.int64], weights: npt.NDArray[np.float64],
                  masses: npt.NDArray[np.float64]) -> None:  # fmt: skip
    """masses = [fair, unfair, low] of the shape, over all offsets (sorted, at most MOST_RANKS) with their weights."""
    n = len(offsets)
    combos, cells = b.info[2], b.info[4] * b.info[5]
    n_last = win.n_window[win.n_rows[0]]
    rk.cumulated[0] = 0.0
    for k in range(n):
        rk.cumulated[k + 1] = rk.cumulated[k] + weights[k]
    whole = rk.cumulated[n]
    if b.info[10] > 0:  # the smallest and the largest sum over S are all there is
        rank_cells(table[:cells], offsets, levels.neg, b.info[5], rk.all_high)
        rank_cells(table[cells : 2 * cells], offsets, levels.neg, b.info[5], rk.all_low)
        bad = _spread(rk, _windows(b, win, rk, rk.all_low, rk.all_high))
        masses[0] = max(whole - bad, 0.0)
        masses[1] = bad
        masses[2] = 0.0
        return
    rank_cells(table, offsets, levels.neg, b.info[5], rk.neg)
    pos, sure_neg, sure_pos = rk.neg, rk.neg, rk.neg
    if not levels.simple:
        pos, sure_neg, sure_pos = rk.pos, rk.sure_neg, rk.sure_pos
        rank_cells(table, offsets, levels.pos - 1, b.info[5], pos)
        rank_cells(table, offsets, levels.conf_neg, b.info[5], sure_neg)
        rank_cells(table, offsets, levels.conf_pos - 1, b.info[5], sure_pos)
    all_low, all_high = rk.all_low[:cells], rk.all_high[:cells]
    second_low, second_high = rk.second_low[:cells], rk.second_high[:cells]
    for c in range(cells):
        all_low[c] = pos[c]
        all_high[c] = rk.neg[c]
        second_low[c] = n
        second_high[c] = 0
    for s in range(1, combos):
        low, high = pos[s * cells : (s + 1) * cells], rk.neg[s * cells : (s + 1) * cells]
        for c in range(cells):
            second_low[c] = min(second_low[c], max(all_low[c], low[c]))
            second_high[c] = max(second_high[c], min(all_high[c], high[c]))
            all_low[c] = min(all_low[c], low[c])
            all_high[c] = max(all_high[c], high[c])
    bad = 0.0
    now = -1  # where the windows over all combinations are, once made
    common = -1.0
    for s in range(combos):
        if b.s_single[s] and _without(rk, pos[s * cells : (s + 1) * cells], rk.neg[s * cells : (s + 1) * cells]):
            bad += b.s_mass[s] * _spread_own(
                b, rk, n_last, _windows(b, win, rk, rk.low, rk.high), s, sure_neg, sure_pos
            )
            now = -1
            continue
        if levels.simple:
            if common < 0.0:
                common = _spread(rk, _windows(b, win, rk, rk.all_low, rk.all_high))
                now = -1
            bad += b.s_mass[s] * common
            continue
        if now < 0:
            now = _windows(b, win, rk, rk.all_low, rk.all_high)
        bad += b.s_mass[s] * _spread_own(b, rk, n_last, now, s, sure_neg, sure_pos)
    low_mass = 0.0 if levels.simple else _unsure(b, win, rk)
    masses[0] = max(whole - bad, 0.0)
    masses[1] = max(bad - low_mass, 0.0)
    masses[2] = low_mass
