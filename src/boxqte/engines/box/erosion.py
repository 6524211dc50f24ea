"""Erosion: the mass of the x whose whole window is clear in a bitmap of base cells (docs/engine.md, Theorem 6).

A bitmap is an array of words: one bit per cell of the last moving axis, one word per combination of the others. The
window of x is a product of ranges, one an axis, so 'no bit in the window' unfolds axis by axis: OR the slices that the
range covers, and go on with what is left. Blocks seen before are looked up by their full content, never by a hash alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import inlined, kernel

WORD_MEMO = 1 << 15
BLOCK_MEMO = 1 << 14
BLOCK_WORDS = 192


class Windows(NamedTuple):
    """The moving axes of a brick, compacted; axis `n_rows` is the last one, whose cells are bits."""

    n_rows: npt.NDArray[np.int64]
    """[number of row axes]"""
    n_base: npt.NDArray[np.int64]
    """axis -> base cells"""
    size: npt.NDArray[np.int64]
    """axis -> words of a block of this and all later row axes"""
    widest: npt.NDArray[np.int64]
    """axis -> base cells of its widest window"""
    n_window: npt.NDArray[np.int64]
    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]
    base: npt.NDArray[np.int64]
    mass: npt.NDArray[np.float64]
    """axis x window: the range it covers, its own base cell, its mass"""
    first: npt.NDArray[np.int64]
    """base cell p of the last axis -> the first window that begins at p or later"""
    last: npt.NDArray[np.int64]
    """base cell q of the last axis -> one behind the last window that ends at q or earlier"""
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    """base cell of the last axis -> its own windows"""
    below: npt.NDArray[np.float64]
    """prefix sums of the last axis's window masses"""
    base_mass: npt.NDArray[np.float64]
    """axis x base cell"""
    full: npt.NDArray[np.uint64]
    """[all bits of the last axis]"""


class Memo(NamedTuple):
    """Buffers and memories of the erosion; `epoch` makes old entries invalid when the brick's axes change."""

    block: npt.NDArray[np.uint64]
    """the block under work of every level, at block_at[level]"""
    block_at: npt.NDArray[np.int64]
    table: npt.NDArray[np.uint64]
    """ORs of 2**log neighbouring slices of every level, at table_at[level] + log * size[level]"""
    table_at: npt.NDArray[np.int64]
    word_key: npt.NDArray[np.uint64]
    word_value: npt.NDArray[np.float64]
    block_key: npt.NDArray[np.uint64]
    block_tag: npt.NDArray[np.int64]
    block_value: npt.NDArray[np.float64]
    epoch: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    """level -> the window under work"""
    total: npt.NDArray[np.float64]
    slot: npt.NDArray[np.int64]
    own_at: npt.NDArray[np.int64]
    """level -> where x's own block begins in `sure`"""


@inlined
def _hash(words: npt.NDArray[np.uint64], at: int, n: int) -> np.uint64:
    h = np.uint64(n)
    for i in range(n):
        h = (h ^ words[at + i]) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
    return h


@kernel
def _clear_in_word(win: Windows, z: int, word: np.uint64) -> float:
    """The mass of the last axis's windows that touch no set bit: per run of clear bits, a difference of prefix sums."""
    total = 0.0
    p = 0
    n = win.n_base[z]
    while p < n:
        if (word >> np.uint64(p)) & np.uint64(1):
            p += 1
            continue
        q = p
        while q + 1 < n and not (word >> np.uint64(q + 1)) & np.uint64(1):
            q += 1
        a, b = win.first[p], win.last[q]
        if b > a:
            total += win.below[b] - win.below[a]
        p = q + 2
    return total


@inlined
def _word(win: Windows, memo: Memo, z: int, word: np.uint64) -> float:
    """_clear_in_word, remembered."""
    slot = np.int64(((word ^ np.uint64(memo.epoch[0])) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(49))
    if memo.word_key[slot, 0] == word and memo.word_key[slot, 1] == np.uint64(memo.epoch[0]):
        return memo.word_value[slot]
    value = _clear_in_word(win, z, word)
    memo.word_key[slot, 0] = word
    memo.word_key[slot, 1] = np.uint64(memo.epoch[0])
    memo.word_value[slot] = value
    return value


@inlined
def _open_level(win: Windows, memo: Memo, level: int, words: npt.NDArray[np.uint64], at: int) -> None:
    """Fill the level's table: ORs of 1, 2, 4, ... neighbouring slices, so that any window is an OR of two entries."""
    n, inner, n_base = win.size[level], win.size[level + 1], win.n_base[level]
    table, start = memo.table, memo.table_at[level]
    for i in range(n):
        table[start + i] = words[at + i]
    log = 0
    while 2 << log <= win.widest[level]:
        step = (1 << log) * inner
        source, target = start + log * n, start + (log + 1) * n
        for i in range((n_base - (2 << log) + 1) * inner):
            table[target + i] = table[source + i] | table[source + i + step]
        log += 1


@inlined
def _window_block(win: Windows, memo: Memo, level: int, j: int) -> None:
    """The OR of the slices that window j covers, as the block of the next level."""
    n, inner = win.size[level], win.size[level + 1]
    table, block, here = memo.table, memo.block, memo.block_at[level + 1]
    low, high = win.low[level, j], win.high[level, j]
    log = 0
    while 2 << log <= high - low + 1:
        log += 1
    one = memo.table_at[level] + log * n + low * inner
    two = memo.table_at[level] + log * n + (high + 1 - (1 << log)) * inner
    for i in range(inner):
        block[here + i] = table[one + i] | table[two + i]


@kernel
def erode(win: Windows, memo: Memo, top: int, words: npt.NDArray[np.uint64], at: int) -> float:
    """The mass of the x of the row axes top.. and the last axis whose window is clear in words[at:at+size[top]]."""
    m = win.n_rows[0]
    full = win.full[0]
    if top == m:
        return _word(win, memo, m, words[at])
    level = top
    entering = True
    value = 0.0
    while level >= top:
        n = win.size[level]
        source = words if level == top else memo.block
        begin = at if level == top else memo.block_at[level]
        if entering:
            some = np.uint64(0)
            every = full
            for i in range(n):
                some |= source[begin + i]
                every &= source[begin + i]
            if some == 0 or every == full:
                value = 1.0 if some == 0 else 0.0
                entering = False
                level -= 1
                continue
            slot = np.int64(-1)
            if n <= BLOCK_WORDS:
                slot = np.int64(_hash(source, begin, n) >> np.uint64(50))
                if memo.block_tag[slot] == memo.epoch[0] * 64 + level:
                    same = True
                    for i in range(n):
                        if memo.block_key[slot, i] != source[begin + i]:
                            same = False
                            break
                    if same:
                        value = memo.block_value[slot]
                        entering = False
                        level -= 1
                        continue
            memo.slot[level] = slot
            _open_level(win, memo, level, source, begin)
            memo.total[level] = 0.0
            memo.step[level] = 0
            if level < m - 1:
                _window_block(win, memo, level, 0)
                level += 1
                continue
            table, start = memo.table, memo.table_at[level]
            total = 0.0
            for j in range(win.n_window[level]):
                low, high = win.low[level, j], win.high[level, j]
                log = 0
                while 2 << log <= high - low + 1:
                    log += 1
                row = start + log * n
                total += win.mass[level, j] * _word(win, memo, m, table[row + low] | table[row + high + 1 - (1 << log)])
            memo.total[level] = total
        else:
            memo.total[level] += win.mass[level, memo.step[level]] * value
            memo.step[level] += 1
            if memo.step[level] < win.n_window[level]:
                _window_block(win, memo, level, memo.step[level])
                level += 1
                entering = True
                continue
        value = memo.total[level]
        slot = memo.slot[level]
        if slot >= 0:
            memo.block_tag[slot] = memo.epoch[0] * 64 + level
            memo.block_value[slot] = value
            for i in range(n):
                memo.block_key[slot, i] = source[begin + i]
        entering = False
        level -= 1
    return value


@kernel
def _sure_in_word(win: Windows, z: int, sure: np.uint64, word: np.uint64) -> float:
    """Like _clear_in_word, but only windows whose own base cell has its bit set in `sure`."""
    total = 0.0
    p = 0
    n = win.n_base[z]
    while p < n:
        if (word >> np.uint64(p)) & np.uint64(1):
            p += 1
            continue
        q = p
        while q + 1 < n and not (word >> np.uint64(q + 1)) & np.uint64(1):
            q += 1
        a, b = win.first[p], win.last[q]
        if b > a:
            for c in range(p, q + 1):
                if (sure >> np.uint64(c)) & np.uint64(1):
                    low, high = max(a, win.begin[c]), min(b, win.end[c])
                    if high > low:
                        total += win.below[high] - win.below[low]
        p = q + 2
    return total


@kernel
def mass_of(win: Windows, memo: Memo, top: int, words: npt.NDArray[np.uint64], at: int) -> float:
    """The mass of the base cells of the row axes top.. and the last axis whose bit is set."""
    m = win.n_rows[0]
    total = 0.0
    for i in range(win.size[top]):
        word = words[at + i]
        if word == 0:
            continue
        part = 0.0
        for c in range(win.n_base[m]):
            if (word >> np.uint64(c)) & np.uint64(1):
                part += win.base_mass[m, c]
        rest = i
        for level in range(m - 1, top - 1, -1):
            part *= win.base_mass[level, rest % win.n_base[level]]
            rest //= win.n_base[level]
        total += part
    return total


@kernel
def erode_sure(
    win: Windows,
    memo: Memo,
    sure: npt.NDArray[np.uint64],
    sure_at: int,
    words: npt.NDArray[np.uint64],
    at: int,
) -> float:
    """The mass of the x whose own base cell is set in `sure` and whose window is clear in `words`."""
    m = win.n_rows[0]
    full = win.full[0]
    if m == 0:
        return _sure_in_word(win, m, sure[sure_at], words[at])
    level = 0
    entering = True
    value = 0.0
    memo.own_at[0] = sure_at
    while level >= 0:
        n = win.size[level]
        source = words if level == 0 else memo.block
        begin = at if level == 0 else memo.block_at[level]
        own = memo.own_at[level]
        if entering:
            some = np.uint64(0)
            every = full
            own_some = np.uint64(0)
            own_every = full
            for i in range(n):
                some |= source[begin + i]
                every &= source[begin + i]
                own_some |= sure[own + i]
                own_every &= sure[own + i]
            settled = True
            if own_some == 0 or every == full:
                value = 0.0
            elif some == 0:
                value = 1.0 if own_every == full else mass_of(win, memo, level, sure, own)
            elif own_every == full:
                value = erode(win, memo, level, source, begin)
            elif level == m:
                value = _sure_in_word(win, m, sure[own], source[begin])
            else:
                settled = False
                slot = np.int64(-1)
                if 2 * n <= BLOCK_WORDS:
                    h = _hash(source, begin, n) ^ (_hash(sure, own, n) * np.uint64(0xC4CEB9FE1A85EC53))
                    slot = np.int64((h ^ (h >> np.uint64(17))) >> np.uint64(50))
                    if memo.block_tag[slot] == memo.epoch[0] * 64 + 32 + level:
                        settled = True
                        for i in range(n):
                            if memo.block_key[slot, i] != source[begin + i] or memo.block_key[slot, n + i] != sure[own + i]:
                                settled = False
                                break
                        if settled:
                            value = memo.block_value[slot]
            if settled:
                entering = False
                level -= 1
                continue
            memo.slot[level] = slot
            _open_level(win, memo, level, source, begin)
            memo.total[level] = 0.0
            memo.step[level] = 0
        else:
            memo.total[level] += win.mass[level, memo.step[level]] * value
            memo.step[level] += 1
        if memo.step[level] < win.n_window[level]:
            j = memo.step[level]
            _window_block(win, memo, level, j)
            memo.own_at[level + 1] = own + win.base[level, j] * win.size[level + 1]
            level += 1
            entering = True
            continue
        value = memo.total[level]
        slot = memo.slot[level]
        if slot >= 0:
            memo.block_tag[slot] = memo.epoch[0] * 64 + 32 + level
            memo.block_value[slot] = value
            for i in range(n):
                memo.block_key[slot, i] = source[begin + i]
                memo.block_key[slot, n + i] = sure[own + i]
        entering = False
        level -= 1
    return value
