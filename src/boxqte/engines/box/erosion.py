"""Erosion: the mass of the x whose whole window is clear in a bitmap of base cells (docs/engine.md, Theorem 6).

A bitmap is an array of words: one bit per cell of the last moving axis, one word per combination of the others. The
window of x is a product of ranges, one an axis, so 'no bit in the window' unfolds axis by axis: OR the slices that the
range covers, and go on with what is left. Blocks seen before are looked up by their full content, never by a hash alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import inlined, kernel, summing
from boxqte.engines.box.lanes import eight_touched

# blocks of few words have a memory of their own, which fits the cache
SMALL_MEMO, SMALL_WORDS = 1 << 15, 16
MIDDLE_MEMO, MIDDLE_WORDS = 1 << 14, 64
LARGE_MEMO, LARGE_WORDS = 1 << 11, 1024
MEMO_SLOTS = SMALL_MEMO + MIDDLE_MEMO + LARGE_MEMO
MEMO_WORDS = SMALL_MEMO * SMALL_WORDS + MIDDLE_MEMO * MIDDLE_WORDS + LARGE_MEMO * LARGE_WORDS


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
    one: npt.NDArray[np.int64]
    two: npt.NDArray[np.int64]
    """row axis x window: the two places of the level's table that together cover it (Memo.table)"""
    reach: npt.NDArray[np.uint64]
    own_bit: npt.NDArray[np.uint64]
    """window of the last axis -> the bits it covers, the bit of its own base cell"""
    base_mass: npt.NDArray[np.float64]
    core_low: npt.NDArray[np.int64]
    core_high: npt.NDArray[np.int64]
    """axis x base cell: its mass, and what all windows of x in that cell cover"""
    core: npt.NDArray[np.uint64]
    """base cell of the last axis -> the bits that all of its windows cover"""
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
    block_key: npt.NDArray[np.uint64]
    block_tag: npt.NDArray[np.int64]
    block_value: npt.NDArray[np.float64]
    epoch: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    """level -> the window under work"""
    total: npt.NDArray[np.float64]
    slot: npt.NDArray[np.int64]
    halt: npt.NDArray[np.int64]
    """[not 0: come back soon, with any number]"""
    opened: npt.NDArray[np.int64]
    """level -> whether its table is filled"""
    own_at: npt.NDArray[np.int64]
    """level -> where x's own block begins in `sure`"""


@inlined
def _hash(words: npt.NDArray[np.uint64]) -> np.uint64:
    """Four interleaved chains: one alone would wait for its own multiplications."""
    n = len(words)
    one, two = np.uint64(0x243F6A8885A308D3), np.uint64(n)
    three, four = np.uint64(0x13198A2E03707344), np.uint64(0xA4093822299F31D0)
    for i in range(n >> 2):
        one = (one ^ words[4 * i]) * np.uint64(0x9E3779B97F4A7C15)
        one ^= one >> np.uint64(32)
        two = (two ^ words[4 * i + 1]) * np.uint64(0xC4CEB9FE1A85EC53)
        two ^= two >> np.uint64(32)
        three = (three ^ words[4 * i + 2]) * np.uint64(0x9E3779B97F4A7C15)
        three ^= three >> np.uint64(32)
        four = (four ^ words[4 * i + 3]) * np.uint64(0xC4CEB9FE1A85EC53)
        four ^= four >> np.uint64(32)
    for i in range(n & ~3, n):
        one = (one ^ words[i]) * np.uint64(0x9E3779B97F4A7C15)
        one ^= one >> np.uint64(32)
    one = (one ^ (two >> np.uint64(7))) * np.uint64(0xFF51AFD7ED558CCD)
    three = (three ^ (four >> np.uint64(7))) * np.uint64(0xFF51AFD7ED558CCD)
    return (one ^ (three >> np.uint64(11))) * np.uint64(0x9E3779B97F4A7C15)


@inlined
def _key_at(slot: int) -> int:
    """Where the key of a slot begins."""
    if slot < SMALL_MEMO:
        return slot * SMALL_WORDS
    slot -= SMALL_MEMO
    if slot < MIDDLE_MEMO:
        return SMALL_MEMO * SMALL_WORDS + slot * MIDDLE_WORDS
    return SMALL_MEMO * SMALL_WORDS + MIDDLE_MEMO * MIDDLE_WORDS + (slot - MIDDLE_MEMO) * LARGE_WORDS


@inlined
def _slot(h: np.uint64, n: int) -> int:
    """The slot that a block of n words with this hash may have."""
    if n <= SMALL_WORDS:
        return int(np.int64(h >> np.uint64(49)))
    if n <= MIDDLE_WORDS:
        return int(np.int64(h >> np.uint64(50))) + SMALL_MEMO
    return int(np.int64(h >> np.uint64(53))) + SMALL_MEMO + MIDDLE_MEMO


@inlined
def _equal(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> bool:
    differ = np.uint64(0)
    for i in range(len(a)):
        differ |= a[i] ^ b[i]
    return bool(differ == 0)


@summing
def _clear_in_word(reach: npt.NDArray[np.uint64], mass: npt.NDArray[np.float64], word: np.uint64) -> float:
    """The mass of the last axis's windows that touch no set bit. All of them are tested: no branch, eight at a time."""
    total = 0.0
    for j in range(len(mass)):
        total += mass[j] if reach[j] & word == 0 else 0.0
    return total


# Loops below run over views (array[a:b]) and not over offsets into the whole array: numba lets an index that is not the
# loop variable itself count from the end when negative, and that keeps the compiler from using vector instructions.


@inlined
def _open_level(win: Windows, memo: Memo, level: int, words: npt.NDArray[np.uint64]) -> None:
    """Fill the level's table: ORs of 1, 2, 4, ... neighbouring slices, so that any window is an OR of two entries."""
    n, inner, n_base = win.size[level], win.size[level + 1], win.n_base[level]
    start = memo.table_at[level]
    lowest = memo.table[start : start + n]
    for i in range(n):
        lowest[i] = words[i]
    log = 0
    while 2 << log <= win.widest[level]:
        length = (n_base - (2 << log) + 1) * inner
        source = start + log * n
        one = memo.table[source : source + length]
        two = memo.table[source + (1 << log) * inner : source + (1 << log) * inner + length]
        target = memo.table[source + n : source + n + length]
        for i in range(length):
            target[i] = one[i] | two[i]
        log += 1


@inlined
def _window_block(win: Windows, memo: Memo, level: int, j: int) -> bool:
    """The OR of the slices that window j covers, as the block of the next level; whether it differs from what was there."""
    inner = win.size[level + 1]
    here = memo.block_at[level + 1]
    first, second = memo.table_at[level] + win.one[level, j], memo.table_at[level] + win.two[level, j]
    one, two = memo.table[first : first + inner], memo.table[second : second + inner]
    block = memo.block[here : here + inner]
    differ = np.uint64(0)
    for i in range(inner):
        word = one[i] | two[i]
        differ |= word ^ block[i]
        block[i] = word
    return bool(differ != 0)


@inlined
def erode(win: Windows, memo: Memo, top: int, words: npt.NDArray[np.uint64], at: int) -> float:
    """The mass of the x of the row axes top.. and the last axis whose window is clear in words[at:at+size[top]]."""
    m = win.n_rows[0]
    full = win.full[0]
    n_last = win.n_window[m]
    reach, last_mass = win.reach[:n_last], win.mass[m, :n_last]
    if top == m:
        return _clear_in_word(reach, last_mass, words[at])
    level = top
    entering = True
    value = 0.0
    while level >= top:
        n = win.size[level]
        begin = at if level == top else memo.block_at[level]
        source = (words if level == top else memo.block)[begin : begin + n]
        if entering:
            some = np.uint64(0)
            every = full
            for i in range(n):
                some |= source[i]
                every &= source[i]
            if some == 0 or every == full:
                value = 1.0 if some == 0 else 0.0
                entering = False
                level -= 1
                continue
            # a large block that is asked for by itself hardly comes twice: its key would cost more than it saves
            slot = -1
            if n <= MIDDLE_WORDS or (level > top and n <= LARGE_WORDS):
                slot = _slot(_hash(source), n)
                key_at = _key_at(slot)
                if memo.block_tag[slot] == memo.epoch[0] * 64 + level and _equal(
                    source, memo.block_key[key_at : key_at + n]
                ):
                    value = memo.block_value[slot]
                    entering = False
                    level -= 1
                    continue
            memo.slot[level] = slot
            _open_level(win, memo, level, source)
            memo.total[level] = 0.0
            memo.step[level] = 0
            if level < m - 1:
                _window_block(win, memo, level, 0)
                level += 1
                continue
            table = memo.table[memo.table_at[level] :]
            one, two, mass = win.one[level], win.two[level], win.mass[level]
            total = 0.0
            seen, clear = full, 0.0  # neighbouring windows often show the same word
            for j in range(win.n_window[level]):
                word = table[one[j]] | table[two[j]]
                if word != seen:
                    seen = word
                    clear = 1.0 if word == 0 else _clear_in_word(reach, last_mass, word)
                total += mass[j] * clear
            memo.total[level] = total
        else:
            if level <= top + 1 and memo.halt[0] != 0:
                return 0.0
            j = memo.step[level]
            memo.total[level] += win.mass[level, j] * value
            j += 1
            while j < win.n_window[level] and not _window_block(win, memo, level, j):  # neighbours are often alike
                memo.total[level] += win.mass[level, j] * value
                j += 1
            memo.step[level] = j
            if j < win.n_window[level]:
                level += 1
                entering = True
                continue
        value = memo.total[level]
        slot = memo.slot[level]
        if slot >= 0:
            memo.block_tag[slot] = memo.epoch[0] * 64 + level
            memo.block_value[slot] = value
            key_at = _key_at(slot)
            key = memo.block_key[key_at : key_at + n]
            for i in range(n):
                key[i] = source[i]
        entering = False
        level -= 1
    return value


@summing
def _sure_in_word(
    reach: npt.NDArray[np.uint64],
    own: npt.NDArray[np.uint64],
    mass: npt.NDArray[np.float64],
    sure: np.uint64,
    word: np.uint64,
) -> float:
    """Like _clear_in_word, but only windows whose own base cell has its bit set in `sure`."""
    total = 0.0
    for j in range(len(mass)):
        total += mass[j] if (reach[j] & word) | (own[j] & ~sure) == 0 else 0.0
    return total


@summing
def _bits_mass(mass: npt.NDArray[np.float64], word: np.uint64) -> float:
    """The mass of the last axis's cells whose bit is set."""
    total = 0.0
    for c in range(len(mass)):
        total += mass[c] if (word >> np.uint64(c)) & np.uint64(1) != 0 else 0.0
    return total


@kernel
def mass_of(win: Windows, memo: Memo, top: int, words: npt.NDArray[np.uint64]) -> float:
    """The mass of the base cells of the row axes top.. and the last axis whose bit is set."""
    m = win.n_rows[0]
    bit_mass = win.base_mass[m, : win.n_base[m]]
    n_line = win.n_base[m - 1] if m > top else 1
    total = 0.0
    for at in range(0, win.size[top], n_line):  # along the last row axis
        line = 0.0
        for y in range(n_line):
            word = words[at + y]
            if word != 0:
                part = 1.0 if word == win.full[0] else _bits_mass(bit_mass, word)
                line += part * win.base_mass[m - 1, y] if m > top else part
        if line != 0.0:
            rest = at // n_line
            for level in range(m - 2, top - 1, -1):
                line *= win.base_mass[level, rest % win.n_base[level]]
                rest //= win.n_base[level]
            total += line
    return total


@inlined
def _join_cores(win: Windows, level: int, source: npt.NDArray[np.uint64], target: npt.NDArray[np.uint64]) -> None:
    """target = for every cell of a row axis the OR of the slices of its core. Unsigned indices are not checked for signs."""
    inner, n_base = np.uint64(win.size[level + 1]), win.n_base[level]
    core_low, core_high = win.core_low[level], win.core_high[level]
    begin, to = np.uint64(0), np.uint64(0)
    for _ in range(win.size[0] // (win.size[level + 1] * n_base)):
        for g in range(n_base):
            first, last = begin + np.uint64(core_low[g]) * inner, begin + np.uint64(core_high[g]) * inner
            if inner == 1:
                word = source[first]
                for at in range(first + np.uint64(1), last + np.uint64(1)):
                    word |= source[at]
                target[to] = word
            else:
                for i in range(inner):
                    target[to + i] = source[first + i]
                while first < last:
                    first += inner
                    for i in range(inner):
                        target[to + i] |= source[first + i]
            to += inner
        begin = to


@inlined
def _cells_touched(core: npt.NDArray[np.uint64], n: int, word: np.uint64) -> np.uint64:
    """The bits of the last axis's n cells whose core holds a bit of the word; beyond them anything."""
    touched = np.uint64(0)
    for c in range(0, n, 8):
        touched |= eight_touched(core, c, word) << np.uint64(c)
    return touched


@inlined
def _core_word(win: Windows, memo: Memo, row: int, words: npt.NDArray[np.uint64]) -> np.uint64:
    """The OR of the words of all rows in the core of one."""
    m = win.n_rows[0]
    rest, at = row, 0
    for level in range(m):
        inner = win.size[level + 1]
        g = rest // inner
        rest -= g * inner
        at += win.core_low[level, g] * inner
        memo.slot[level] = win.core_high[level, g] - win.core_low[level, g]
        memo.step[level] = 0
    word = np.uint64(0)
    while True:
        word |= words[at]
        level = m - 1
        while level >= 0:
            inner = win.size[level + 1]
            if memo.step[level] < memo.slot[level]:
                memo.step[level] += 1
                at += inner
                break
            at -= memo.step[level] * inner
            memo.step[level] = 0
            level -= 1
        if level < 0:
            return word  # type: ignore[no-any-return]


@inlined
def _line_ends(win: Windows, memo: Memo, line: int) -> None:
    """memo.step and memo.slot = level -> how far the ends of the core are from a row of this line along the last row axis."""
    rest = line
    for level in range(win.n_rows[0] - 1):
        inner = win.size[level + 1]
        g = rest // inner
        rest -= g * inner
        memo.step[level] = (win.core_low[level, g] - g) * inner
        memo.slot[level] = (win.core_high[level, g] - g) * inner


@inlined
def clear_cores(win: Windows, memo: Memo, cells: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64]) -> bool:
    """Take out of `cells` those whose core touches `words`: every window of a cell covers its core. Whether any is left.

    A core is a product of ranges. Most cells fall for what lies next to them; for few others the core is looked through row
    by row, for many axis by axis.
    """
    m, n = win.n_rows[0], win.size[0]
    n_last = win.n_base[m]
    n_line = win.n_base[m - 1] if m > 0 else 1
    rows = 0
    for line in range(0, n, n_line):  # along the last row axis
        ends = False
        for y in range(n_line):
            i = line + y
            left = cells[i]
            if left == 0:
                continue
            word = words[i]
            left &= ~_cells_touched(win.core, n_last, word)
            if left != 0 and m > 0:  # the words of the ends of its core along each axis
                if not ends:
                    _line_ends(win, memo, line)
                    ends = True
                word |= words[line + win.core_low[m - 1, y]] | words[line + win.core_high[m - 1, y]]
                for level in range(m - 1):
                    word |= words[i + memo.step[level]] | words[i + memo.slot[level]]
                left &= ~_cells_touched(win.core, n_last, word)
            cells[i] = left
            rows += left != 0
    if rows == 0:
        return False
    one, all_axes = 1.0, 1.0
    for level in range(m):
        width = 0
        for g in range(win.n_base[level]):
            width += win.core_high[level, g] - win.core_low[level, g] + 1
        one *= width / win.n_base[level]
        all_axes += width / win.n_base[level]
    source = words[:n]
    few = rows * (one + 4.0) < n * all_axes * 0.25
    if not few:
        target = memo.block[:n]  # neither the block nor the table of the top level is in use yet
        joined = 0
        for level in range(m):
            wide = False
            for g in range(win.n_base[level]):
                wide |= win.core_low[level, g] < win.core_high[level, g]
            if wide:
                _join_cores(win, level, source, target)
                source = target
                target = memo.table[:n] if joined % 2 == 0 else memo.block[:n]
                joined += 1
    some = np.uint64(0)
    for i in range(n):
        left = cells[i]
        if left != 0:
            left &= ~_cells_touched(win.core, n_last, _core_word(win, memo, i, source) if few else source[i])
            cells[i] = left
            some |= left
    return bool(some != 0)


@inlined
def erode_sure(
    win: Windows,
    merged: Windows,
    memo: Memo,
    sure: npt.NDArray[np.uint64],
    sure_at: int,
    words: npt.NDArray[np.uint64],
    at: int,
) -> float:
    """The mass of the x whose own base cell is set in `sure` and whose window is clear in `words`.

    `win` tells the windows of different base cells apart, `merged` does not have to.
    """
    m = win.n_rows[0]
    full = win.full[0]
    n_last = win.n_window[m]
    reach, own_bit, last_mass = win.reach[:n_last], win.own_bit[:n_last], win.mass[m, :n_last]
    if m == 0:
        return _sure_in_word(reach, own_bit, last_mass, sure[sure_at], words[at])
    level = 0
    entering = True
    value = 0.0
    memo.own_at[0] = sure_at
    while level >= 0:
        n = win.size[level]
        begin = at if level == 0 else memo.block_at[level]
        source = (words if level == 0 else memo.block)[begin : begin + n]
        own = memo.own_at[level]
        mine = sure[own : own + n]
        if entering:
            some = np.uint64(0)
            every = full
            own_some = np.uint64(0)
            own_every = full
            for i in range(n):
                some |= source[i]
                every &= source[i]
                own_some |= mine[i]
                own_every &= mine[i]
            settled = True
            if own_some == 0 or every == full:
                value = 0.0
            elif some == 0:
                value = 1.0 if own_every == full else mass_of(win, memo, level, mine)
            elif own_every == full:
                value = erode(merged, memo, level, source, 0)
            elif level == m:
                value = _sure_in_word(reach, own_bit, last_mass, mine[0], source[0])
            else:
                settled = False
                slot = -1
                if 2 * n <= LARGE_WORDS:
                    h = _hash(source) ^ (_hash(mine) * np.uint64(0xC4CEB9FE1A85EC53))
                    slot = _slot(h ^ (h << np.uint64(23)), 2 * n)
                    key_at = _key_at(slot)
                    if (
                        memo.block_tag[slot] == memo.epoch[0] * 64 + 32 + level
                        and _equal(source, memo.block_key[key_at : key_at + n])
                        and _equal(mine, memo.block_key[key_at + n : key_at + 2 * n])
                    ):
                        settled = True
                        value = memo.block_value[slot]
            if settled:
                entering = False
                level -= 1
                continue
            memo.slot[level] = slot
            memo.total[level] = 0.0
            memo.step[level] = 0
            memo.opened[level] = 0
            if level == m - 1:
                _open_level(win, memo, level, source)
                table = memo.table[memo.table_at[level] :]
                one, two, mass, base_of = win.one[level], win.two[level], win.mass[level], win.base[level]
                total = 0.0
                for j in range(win.n_window[level]):
                    bits = mine[base_of[j]]
                    if bits == 0:
                        continue
                    word = table[one[j]] | table[two[j]]
                    if word != full:
                        total += mass[j] * _sure_in_word(reach, own_bit, last_mass, bits, word)
                memo.total[level] = total
                memo.step[level] = win.n_window[level]
        else:
            if level <= 1 and memo.halt[0] != 0:
                return 0.0
            memo.total[level] += win.mass[level, memo.step[level]] * value
            memo.step[level] += 1
        j = memo.step[level]
        inner = win.size[level + 1]
        while j < win.n_window[level]:  # windows of base cells without anything in `sure` are worth nothing
            base = win.base[level, j]
            some = np.uint64(0)
            for i in range(inner):
                some |= mine[base * inner + i]
            if some != 0:
                break
            while j < win.n_window[level] and win.base[level, j] == base:
                j += 1
        memo.step[level] = j
        if j < win.n_window[level]:
            if memo.opened[level] == 0:
                _open_level(win, memo, level, source)
                memo.opened[level] = 1
            _window_block(win, memo, level, j)
            memo.own_at[level + 1] = own + win.base[level, j] * inner
            level += 1
            entering = True
            continue
        value = memo.total[level]
        slot = memo.slot[level]
        if slot >= 0:
            memo.block_tag[slot] = memo.epoch[0] * 64 + 32 + level
            memo.block_value[slot] = value
            key_at = _key_at(slot)
            key, second = memo.block_key[key_at : key_at + n], memo.block_key[key_at + n : key_at + 2 * n]
            for i in range(n):
                key[i] = source[i]
            for i in range(n):
                second[i] = mine[i]
        entering = False
        level -= 1
    return value
