"""What a shape is worth: for every offset, the mass of the x that are fair, unfair and not confident.

A shape is a table of sums over a brick's moving axes; the offsets are what the trees over O add to it, each with its mass.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.brick import Brick, Frame, Levels
from boxqte.engines.box.erosion import Memo, Windows, clear_cores, erode, erode_sure, mass_of
from boxqte.engines.box.jit import inlined, kernel, spliced
from boxqte.engines.box.ranks import MOST_RANKS, Ranks, measure_ranks
from boxqte.engines.box.records import Arena, Cuts
from boxqte.engines.box.sorting import sort_together
from boxqte.engines.box.state import FAIR, LOW, UNFAIR, add_mass
from boxqte.engines.box.tables import write_bitmaps, write_dense

NODE_WORK = 1024  # the work of a node of the search, as many words of bitmaps written and measured: some .1 ms


# A call copies every array of every argument to the stack, seven words each. A brick of a few hundred cells is measured in about
# the time of one such call, so all that is called per shape or per offset is inlined, from one place each.


@inlined
def _two_points(b: Brick) -> bool:
    """Whether there are two combinations, and x' must take the one that x does not have."""
    return bool(b.info[2] == 2 and b.s_single[0] and b.s_single[1])


@spliced
def _fair_side(b: Brick, levels: Levels, win: Windows, own_win: Windows, memo: Memo, seen: npt.NDArray[np.uint64],
               twice: npt.NDArray[np.uint64], own: npt.NDArray[np.uint64], sure: npt.NDArray[np.uint64]) -> float:  # fmt: skip
    """The mass of (s, x) that are sure and whose admissible windows hold no bit (row words of one offset).

    seen, twice: the bits of any and of more than one combination; own: which one has the bit where it is the only one. At
    simple levels sure is who has no bit. The answer is all x with a clear window, without those that are not sure
    themselves: they lie at the border, and are few.
    """
    combos, rows = b.info[2], b.info[4]
    two_points = _two_points(b)
    bad = b.bad
    full = win.full[0]
    total = 0.0
    common = -1.0  # erosion of what any combination sees, made once
    for s in range(combos):
        differs, some = np.uint64(0), np.uint64(0)
        at = s * rows
        view = seen if combos > 1 else own
        if two_points:  # the other combination is all that x' can take
            view = own[rows - at : 2 * rows - at]
            mine = own[at : at + rows]
            for i in range(rows):
                alone = mine[i] & ~view[i]
                differs |= alone
                bad[i] = alone
            some = differs
        elif b.s_single[s]:  # x' must take another combination: what x's own alone sees does not count
            view = b.other
            mine = own[at : at + rows]
            for i in range(rows):
                alone = seen[i] & ~twice[i] & mine[i]
                differs |= alone
                view[i] = seen[i] & ~alone
                bad[i] = alone
            some = differs
        if not levels.simple:
            mine = sure[at : at + rows]
            for i in range(rows):
                bad[i] = full & ~(view[i] | mine[i])
                some |= bad[i]
        clear = common
        if differs != 0 or common < 0.0:
            clear = erode(win, memo, 0, view, 0)
            if differs == 0:
                common = clear
        if clear > 0.0 and some != 0 and clear_cores(own_win, memo, bad, view):
            clear = max(clear - erode_sure(own_win, win, memo, bad, 0, view, 0), 0.0)
        total += b.s_mass[s] * clear
    return total


@inlined
def _count_bits(b: Brick, bits: npt.NDArray[np.uint64]) -> None:
    """b.all_bits and b.twice = the bits of any, and of more than one, combination; nothing where `_fair_side` does not look."""
    if (b.info[2] == 1 and not b.s_single[0]) or _two_points(b):
        return
    rows = b.info[4]
    seen, twice = b.all_bits, b.twice
    for i in range(rows):
        seen[i] = bits[i]
        twice[i] = 0
    for s in range(1, b.info[2]):
        mine = bits[s * rows : (s + 1) * rows]
        for i in range(rows):
            twice[i] |= seen[i] & mine[i]
            seen[i] |= mine[i]


@inlined
def one_kind(levels: Levels, low: int, high: int) -> int:
    """FAIR or LOW if margins between low and high settle every x alike, else -1."""
    low -= levels.fuzz
    high += levels.fuzz
    if low > levels.conf_neg and high < levels.conf_pos:
        return LOW
    if (low >= levels.conf_pos and low > levels.neg) or (high <= levels.conf_neg and high < levels.pos):
        return FAIR
    return -1


@kernel
def tidy_offsets(levels: Levels, low: int, high: int, offset: npt.NDArray[np.int64], rest: npt.NDArray[np.int64],
                 weight: npt.NDArray[np.float64], masses: npt.NDArray[np.float64]) -> int:  # fmt: skip
    """Sort the offsets, merge equal ones, account for those that settle every cell; how many are left (at the front).

    The shape's sums lie between low and high.
    """
    sort_together(offset, rest, weight)
    n = len(offset)
    kept = 0
    i = 0
    while i < n:
        value, extra, mass = offset[i], rest[i], weight[i]
        lost = 0.0  # Neumaier: equal offsets add up within two roundings
        i += 1
        while i < n and offset[i] == value and rest[i] == extra:
            after = mass + weight[i]
            lost += (mass - after) + weight[i] if mass >= weight[i] else (weight[i] - after) + mass
            mass = after
            i += 1
        mass += lost
        kind = one_kind(levels, low + value, high + value)
        if kind >= 0:
            add_mass(masses, kind, mass)
            continue
        offset[kept] = value
        rest[kept] = extra
        weight[kept] = mass
        kept += 1
    return kept


@spliced
def _measure_bitmaps(b: Brick, levels: Levels, win: Windows, own_win: Windows, memo: Memo, weights: npt.NDArray[np.float64],
                     masses: npt.NDArray[np.float64]) -> None:  # fmt: skip
    """Measure the bitmaps that were written for so many offsets."""
    combos, per_combo, extremes = b.info[2], b.info[4], b.info[10]
    rows = extremes * per_combo if extremes > 0 else b.info[3]
    second = 2 * per_combo if extremes == 4 else 0  # where points matter: the second smallest, the second largest
    for k in range(len(weights)):
        if b.halt[0] != 0:
            return
        neg, pos = b.neg[k], b.pos[0] if levels.simple else b.pos[k]
        if levels.simple:
            for i in range(rows):
                pos[i] = ~neg[i] & win.full[0]
        fair = 0.0
        for side in range(2):
            bits = neg if side == 0 else pos
            if extremes > 0:  # the smallest sum tells whether any is negative, the largest whether any is positive
                seen = bits[side * per_combo :]
                twice = seen[second:]
                own = b.who_low if side == 0 else b.who_high
                sure = own
            else:
                _count_bits(b, bits)
                seen, twice, own = b.all_bits, b.twice, bits
                sure = pos if side == 0 else neg
                if not levels.simple:
                    sure = b.sure_pos[k] if side == 0 else b.sure_neg[k]
            fair += _fair_side(b, levels, win, own_win, memo, seen, twice, own, sure)
        low = 0.0
        if not levels.simple:
            unsure = pos  # its work is done
            for i in range(rows):
                unsure[i] = win.full[0] & ~(b.sure_pos[k, i] | b.sure_neg[k, i])
            for s in range(combos):
                low += b.s_mass[s] * mass_of(win, memo, 0, unsure[s * per_combo :])
        w = weights[k]
        add_mass(masses, FAIR, w * fair)
        add_mass(masses, LOW, w * low)
        add_mass(masses, UNFAIR, w * max(1.0 - fair - low, 0.0))


@kernel
def measure_held(arena: Arena, cuts: Cuts, frame: Frame, b: Brick, levels: Levels, win: Windows, own_win: Windows, memo: Memo,
                 n_offsets: int, masses: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> bool:  # fmt: skip
    """Measure the sum of the trees that the brick holds for the offsets in b.offset; False if something does not fit."""
    n = tidy_offsets(
        levels, b.sums[0], b.sums[1], b.offset[:n_offsets], b.offset_rest[:n_offsets], b.weight[:n_offsets], masses
    )
    batch = b.neg.shape[0]
    at = 0
    while at < n:
        size = min(batch, n - at)
        if not write_bitmaps(
            arena, cuts, frame, b, levels, b.offset[at : at + size], b.offset_rest[at : at + size], size
        ):
            return False
        counts[2] += size
        counts[5] += size * b.info[3]
        _measure_bitmaps(b, levels, win, own_win, memo, b.weight[at : at + size], masses)
        at += size
    return True


@spliced
def measure_shape(b: Brick, levels: Levels, win: Windows, own_win: Windows, memo: Memo, rk: Ranks,
                  table: npt.NDArray[np.int64], low: int,
                  high: int, offset: npt.NDArray[np.int64], rest: npt.NDArray[np.int64], weight: npt.NDArray[np.float64],
                  masses: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> None:  # fmt: skip
    """Measure a shape for all of its offsets: by ranks if they are many enough, else one bitmap each."""
    n = tidy_offsets(levels, low, high, offset, rest, weight, masses)
    counts[2] += n
    counts[3] += 1
    counts[5] += n * b.info[3]
    at = 0
    while at < n:
        if (n - at) * rk.size[3] >= rk.size[2] and b.info[10] < 4:
            size = min(MOST_RANKS, n - at)
            measure_ranks(
                b,
                levels,
                own_win if b.info[9] else win,
                rk,
                table,
                offset[at : at + size],
                weight[at : at + size],
                rk.masses,
            )
            for kind in (FAIR, UNFAIR, LOW):
                add_mass(masses, kind, rk.masses[kind])
        else:
            size = min(b.neg.shape[0], n - at)
            write_dense(b, levels, table, offset[at : at + size])
            _measure_bitmaps(b, levels, win, own_win, memo, weight[at : at + size], masses)
        at += size
