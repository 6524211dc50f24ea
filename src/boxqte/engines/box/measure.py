"""What a shape is worth: for every offset, the mass of the x that are fair, unfair and not confident.

A shape is a table of sums over a brick's moving axes; the offsets are what the trees over O add to it, each with its mass.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.brick import Brick, Frame, Levels
from boxqte.engines.box.erosion import Memo, Windows, clear_cores, erode, erode_sure, mass_of
from boxqte.engines.box.jit import inlined, kernel
from boxqte.engines.box.ranks import MOST_RANKS, Ranks, measure_ranks
from boxqte.engines.box.records import Arena, Cuts
from boxqte.engines.box.sorting import sort_together
from boxqte.engines.box.state import FAIR, LOW, UNFAIR, add_mass
from boxqte.engines.box.tables import write_bitmaps, write_dense


@kernel
def _fair_side(b: Brick, levels: Levels, win: Windows, own_win: Windows, memo: Memo, bits: npt.NDArray[np.uint64],
               sure: npt.NDArray[np.uint64]) -> float:  # fmt: skip
    """The mass of (s, x) that are sure and whose admissible windows are clear of `bits` (row words of one offset).

    At simple levels what is not in `bits` is sure.
    """
    combos, rows = b.info[2], b.info[4]
    if combos == 1 and not b.s_single[0]:
        if levels.simple:
            return erode(win, memo, 0, bits, 0)
        clear_cores(own_win, memo, sure, 0, bits, b.lone)
        return erode_sure(own_win, win, memo, b.lone, 0, bits, 0)
    seen, twice, other, lone = b.all_bits, b.twice, b.other, b.lone
    for i in range(rows):
        seen[i] = 0
        twice[i] = 0
    for s in range(combos):
        for i in range(rows):
            word = bits[s * rows + i]
            twice[i] |= seen[i] & word
            seen[i] |= word
    total = 0.0
    common = -1.0  # erosion of what any combination sees, made once
    for s in range(combos):
        differs = False
        if b.s_single[s]:  # x' must take another combination: only what some other one sees counts
            for i in range(rows):
                other[i] = twice[i] | (seen[i] & ~bits[s * rows + i])
                lone[i] = seen[i] & ~other[i]
                differs |= lone[i] != 0
        if differs and levels.simple:  # nobody else sees anything, without those who are in `bits` themselves
            clear_cores(own_win, memo, lone, 0, other, lone)
            alone = erode_sure(own_win, win, memo, lone, 0, other, 0)
            total += b.s_mass[s] * max(erode(win, memo, 0, other, 0) - alone, 0.0)
        elif differs:
            clear_cores(own_win, memo, sure, s * rows, other, lone)
            total += b.s_mass[s] * erode_sure(own_win, win, memo, lone, 0, other, 0)
        elif levels.simple:
            if common < 0.0:
                common = erode(win, memo, 0, seen, 0)
            total += b.s_mass[s] * common
        else:
            clear_cores(own_win, memo, sure, s * rows, seen, lone)
            total += b.s_mass[s] * erode_sure(own_win, win, memo, lone, 0, seen, 0)
    return total


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


@kernel
def _measure_bitmaps(b: Brick, levels: Levels, win: Windows, own_win: Windows, memo: Memo, weights: npt.NDArray[np.float64],
                     masses: npt.NDArray[np.float64]) -> None:  # fmt: skip
    """Measure the bitmaps that were written for so many offsets."""
    rows, combos, per_combo = b.info[3], b.info[2], b.info[4]
    for k in range(len(weights)):
        if b.halt[0] != 0:
            return
        neg = b.neg[k]
        low = 0.0
        if levels.simple:
            pos = b.pos[0]
            for i in range(rows):
                pos[i] = ~neg[i] & win.full[0]
            fair = _fair_side(b, levels, win, own_win, memo, neg, pos) + _fair_side(
                b, levels, win, own_win, memo, pos, neg
            )
        else:
            fair = _fair_side(b, levels, win, own_win, memo, neg, b.sure_pos[k]) + _fair_side(
                b, levels, win, own_win, memo, b.pos[k], b.sure_neg[k]
            )
            sure = 0.0
            for s in range(combos):
                sure += b.s_mass[s] * (
                    mass_of(win, memo, 0, b.sure_pos[k, s * per_combo :])
                    + mass_of(win, memo, 0, b.sure_neg[k, s * per_combo :])
                )
            low = max(1.0 - sure, 0.0)
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
        _measure_bitmaps(b, levels, win, own_win, memo, b.weight[at : at + size], masses)
        at += size
    return True


@kernel
def measure_shape(b: Brick, levels: Levels, win: Windows, own_win: Windows, memo: Memo, rk: Ranks,
                  table: npt.NDArray[np.int64], low: int,
                  high: int, offset: npt.NDArray[np.int64], rest: npt.NDArray[np.int64], weight: npt.NDArray[np.float64],
                  masses: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> None:  # fmt: skip
    """Measure a shape for all of its offsets: by ranks if they are many enough, else one bitmap each."""
    n = tidy_offsets(levels, low, high, offset, rest, weight, masses)
    counts[2] += n
    counts[3] += 1
    at = 0
    while at < n:
        if (n - at) * rk.size[3] >= rk.size[2]:
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
