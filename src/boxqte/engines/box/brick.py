"""A brick: the moving axes of a box, compacted to the cuts that are left, and the buffers to measure it.

E are the non-sensitive axes along which some x reaches another base cell, S the sensitive ones, O the rest, on which x
and x' agree (docs/engine.md, 'Epsilon > 0').
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.erosion import Memo, Windows
from boxqte.engines.box.jit import kernel
from boxqte.engines.box.records import Arena, Cuts, told_apart

ROLE_O, ROLE_E, ROLE_S = 0, 1, 2
Z_BIT = 1 << 62  # in a table's scope: it varies over the axis of the bits


class Levels(NamedTuple):
    """Class and confidence as integer comparisons (grid.Thresholds)."""

    pos: int
    neg: int
    conf_pos: int
    conf_neg: int
    simple: bool
    points: bool
    """whether a combination of sensitive single points must be left for x' (no idle sensitive axis offers another value)"""
    mixed_limit: int
    cell_limit: float
    dense_cells: int
    """a table over all moving axes may have so many cells; beyond, the signs are written without it"""
    table_cells: int
    """then a table spans at most about so many cells; axes beyond that are fixed one cell after the other"""
    fuzz: int
    """0: 64-bit sums are exact; otherwise a sum within `fuzz` of a threshold is compared by its residue (problem.py)"""
    pos_rest: int
    neg_rest: int
    conf_pos_rest: int
    conf_neg_rest: int
    """the exact thresholds modulo 2**64"""


class Frame(NamedTuple):
    """All axes that some tree cuts, as the kernels see them."""

    role: npt.NDArray[np.int8]
    chain: npt.NDArray[np.bool_]
    n_cells: npt.NDArray[np.int32]
    mass: npt.NDArray[np.float64]
    single: npt.NDArray[np.bool_]
    n_refined: npt.NDArray[np.int32]
    base: npt.NDArray[np.int32]
    near_lo: npt.NDArray[np.int32]
    near_hi: npt.NDArray[np.int32]
    refined_mass: npt.NDArray[np.float64]
    o_axes: npt.NDArray[np.uint64]
    s_axes: npt.NDArray[np.uint64]
    """the O axes and the S axes as bit sets"""


class Nodes(NamedTuple):
    """Frames of the depth-first search over O."""

    n_trees: npt.NDArray[np.int32]
    trees: npt.NDArray[np.uint32]
    constant: npt.NDArray[np.int64]
    rest: npt.NDArray[np.int64]
    """the exact constant modulo 2**64"""
    domain: npt.NDArray[np.uint64]
    axis_mass: npt.NDArray[np.float64]
    n_added: npt.NDArray[np.int32]
    """trees that the brick holds since this frame, to be let go when it is left"""
    cut: npt.NDArray[np.int64]
    side: npt.NDArray[np.int64]


class Brick(NamedTuple):
    """The compacted moving axes and the tables over them. Row axes: S first, then E by size; axis `z` is the bits."""

    active: npt.NDArray[np.uint64]
    group: npt.NDArray[np.int32]
    """axis x cell -> group"""
    group_n: npt.NDArray[np.int32]
    group_cell: npt.NDArray[np.int32]
    group_mass: npt.NDArray[np.float64]
    group_at: npt.NDArray[np.int32]
    """cut of a chain axis -> how many groups it sends to yes"""
    row_axis: npt.NDArray[np.int32]
    row_of: npt.NDArray[np.int32]
    """axis -> its row index, -1 none; the z axis has row index n_rows"""
    info: npt.NDArray[np.int64]
    """[row axes, z axis or -1, sensitive combinations, rows, rows per combination, z cells, row axes fixed cell by cell, cells
    used, trees held, whether x's own cell matters, extreme combinations kept instead of all (0: all)]"""
    held: npt.NDArray[np.uint32]
    """row axes fixed x tree: the trees without O axes that are summed, and what fixing leaves of them"""
    shown: npt.NDArray[np.uint32]
    """tree -> what of it is in the tables"""
    stand: npt.NDArray[np.int64]
    """row axis fixed cell by cell -> the group under work"""
    s_mass: npt.NDArray[np.float64]
    s_single: npt.NDArray[np.bool_]
    slot_mask: npt.NDArray[np.int64]
    """level x slot: the row axes it still varies over, with bit 62 for z"""
    slot_at: npt.NDArray[np.int64]
    slot_size: npt.NDArray[np.int64]
    n_slots: npt.NDArray[np.int64]
    owned: npt.NDArray[np.bool_]
    cells: npt.NDArray[np.int64]
    """table storage; level l's own sums begin at level_at[l]"""
    rests: npt.NDArray[np.int64]
    """the same tables modulo 2**64, where 64 bits do not hold the exact sums; otherwise unused"""
    level_at: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    """[smallest, largest] sum of the trees that are tables"""
    first: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    """frame x own axis: the block of groups under work"""
    own: npt.NDArray[np.int32]
    own_stride: npt.NDArray[np.int64]
    free: npt.NDArray[np.int32]
    free_stride: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    now: npt.NDArray[np.int32]
    todo: npt.NDArray[np.uint32]
    todo_weight: npt.NDArray[np.float64]
    line: npt.NDArray[np.int64]
    line_rest: npt.NDArray[np.int64]
    neg: npt.NDArray[np.uint64]
    pos: npt.NDArray[np.uint64]
    sure_pos: npt.NDArray[np.uint64]
    sure_neg: npt.NDArray[np.uint64]
    """offset x row words"""
    who_low: npt.NDArray[np.uint64]
    who_high: npt.NDArray[np.uint64]
    """combination x row words: where its sum is the smallest of all combinations, where the largest"""
    all_bits: npt.NDArray[np.uint64]
    twice: npt.NDArray[np.uint64]
    other: npt.NDArray[np.uint64]
    bad: npt.NDArray[np.uint64]
    offset: npt.NDArray[np.int64]
    offset_rest: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    score: npt.NDArray[np.float64]
    bit: npt.NDArray[np.int64]
    own_masses: npt.NDArray[np.float64]
    halt: npt.NDArray[np.int64]
    """[not 0: come back soon; what is measured then is thrown away]"""


@kernel
def _group_cells(cuts: Cuts, frame: Frame, b: Brick, axis: int) -> None:
    """Collect the axis's cells into groups that the active cuts do not tell apart."""
    n = 0
    for c in range(frame.n_cells[axis]):
        found = -1
        # On a moving axis only neighbours may share a group: windows are ranges of groups.
        first = n - 1 if (frame.chain[axis] or frame.role[axis] == ROLE_E) and n > 0 else 0
        for g in range(first, n):
            if not told_apart(cuts, b.active, axis, c, b.group_cell[axis, g]):
                found = g
                break
        if found < 0:
            found = n
            b.group_cell[axis, n] = c
            b.group_mass[axis, n] = 0.0
            n += 1
        b.group[axis, c] = found
        b.group_mass[axis, found] += frame.mass[axis, c]
    b.group_n[axis] = n
    if frame.chain[axis]:
        for k in range(cuts.start[axis], cuts.start[axis + 1]):
            at = 0
            while at < n and b.group_cell[axis, at] < cuts.prefix[k]:
                at += 1
            b.group_at[k] = at


@kernel
def _windows_of(frame: Frame, b: Brick, win: Windows, axis: int, level: int, with_base: bool) -> None:
    """The windows of one moving axis in groups; refined cells that cover the same range are merged."""
    n = 0
    widest = 1
    for g in range(b.group_n[axis]):
        win.core_low[level, g] = 0
        win.core_high[level, g] = b.group_n[axis] - 1
    for r in range(frame.n_refined[axis]):
        low, high = b.group[axis, frame.near_lo[axis, r]], b.group[axis, frame.near_hi[axis, r]]
        base = b.group[axis, frame.base[axis, r]]
        win.core_low[level, base] = max(win.core_low[level, base], low)
        win.core_high[level, base] = min(win.core_high[level, base], high)
        if (
            n > 0
            and win.low[level, n - 1] == low
            and win.high[level, n - 1] == high
            and (not with_base or win.base[level, n - 1] == base)
        ):
            win.mass[level, n - 1] += frame.refined_mass[axis, r]
            continue
        win.low[level, n] = low
        win.high[level, n] = high
        win.base[level, n] = base
        win.mass[level, n] = frame.refined_mass[axis, r]
        widest = max(widest, high - low + 1)
        n += 1
    win.n_window[level] = n
    win.widest[level] = widest
    win.n_base[level] = b.group_n[axis]
    for g in range(b.group_n[axis]):
        win.base_mass[level, g] = b.group_mass[axis, g]


@kernel
def _lay_windows(frame: Frame, b: Brick, win: Windows, n_s: int, with_base: bool) -> None:
    """The erosion's view of the brick: its level 0 is the first E row axis."""
    z, n_z = b.info[1], b.info[5]
    m = b.info[0] - n_s
    win.n_rows[0] = m
    for i in range(m):
        _windows_of(frame, b, win, b.row_axis[n_s + i], i, with_base)
    win.size[m] = 1
    for i in range(m - 1, -1, -1):
        win.size[i] = win.size[i + 1] * win.n_base[i]
        for j in range(win.n_window[i]):
            log = 0
            while 2 << log <= win.high[i, j] - win.low[i, j] + 1:
                log += 1
            win.one[i, j] = log * win.size[i] + win.low[i, j] * win.size[i + 1]
            win.two[i, j] = log * win.size[i] + (win.high[i, j] + 1 - (1 << log)) * win.size[i + 1]
    if z >= 0:
        _windows_of(frame, b, win, z, m, with_base)
    else:
        win.n_window[m] = 1
        win.n_base[m] = 1
        win.low[m, 0] = 0
        win.high[m, 0] = 0
        win.base[m, 0] = 0
        win.mass[m, 0] = 1.0
        win.base_mass[m, 0] = 1.0
        win.core_low[m, 0] = 0
        win.core_high[m, 0] = 0
    win.full[0] = ~np.uint64(0) if n_z == 64 else (np.uint64(1) << np.uint64(n_z)) - np.uint64(1)
    for g in range(win.n_base[m]):
        win.core[g] = 0
        for c in range(win.core_low[m, g], win.core_high[m, g] + 1):
            win.core[g] |= np.uint64(1) << np.uint64(c)
    for j in range(win.n_window[m]):
        reach = np.uint64(0)
        for c in range(win.low[m, j], win.high[m, j] + 1):
            reach |= np.uint64(1) << np.uint64(c)
        win.reach[j] = reach
        win.own_bit[j] = np.uint64(1) << np.uint64(win.base[m, j])


@kernel
def lay_brick(arena: Arena, cuts: Cuts, frame: Frame, levels: Levels, nodes: Nodes, f: int, b: Brick, win: Windows,
              own_win: Windows, memo: Memo, need: npt.NDArray[np.int64]) -> bool:  # fmt: skip
    """Compact the moving axes to the cuts that the node's trees still test. False if buffers are too small (see need).

    `win` gets the windows merged where they cover the same cells, `own_win` only where x's own cell is the same as well.
    """
    b.active[:] = 0
    for t in range(nodes.n_trees[f]):
        for w in range(len(b.active)):
            b.active[w] |= arena.cuts[nodes.trees[f, t], w]
    n_rows = 0
    combos = 1
    z = -1
    n_axes = len(frame.role)
    for a in range(n_axes):
        b.row_of[a] = -1
        if frame.role[a] != ROLE_O:
            _group_cells(cuts, frame, b, a)
            if frame.role[a] == ROLE_S:
                combos *= b.group_n[a]
                if b.group_n[a] > 1:
                    b.row_axis[n_rows] = a
                    b.row_of[a] = n_rows
                    n_rows += 1
            elif b.group_n[a] <= 64 and b.group_n[a] > 1 and (z < 0 or b.group_n[a] > b.group_n[z]):
                z = a
    n_s = n_rows
    for size in range(2, 1 << 30):  # E axes by size, smallest first
        left = False
        for a in range(n_axes):
            if frame.role[a] == ROLE_E and a != z and b.group_n[a] >= size:
                if b.group_n[a] == size:
                    b.row_axis[n_rows] = a
                    b.row_of[a] = n_rows
                    n_rows += 1
                else:
                    left = True
        if not left:
            break
    if z >= 0:
        b.row_of[z] = n_rows
    rows = 1
    for i in range(n_rows):
        rows *= b.group_n[b.row_axis[i]]
    n_z = b.group_n[z] if z >= 0 else 1
    b.info[0], b.info[1], b.info[2], b.info[3], b.info[4], b.info[5] = n_rows, z, combos, rows, rows // combos, n_z
    any_point = False
    for c in range(combos):
        rest = c
        mass = 1.0
        single = levels.points
        for i in range(n_s - 1, -1, -1):
            a = b.row_axis[i]
            g = rest % b.group_n[a]
            rest //= b.group_n[a]
            mass *= b.group_mass[a, g]
            members = 0
            for cell in range(frame.n_cells[a]):
                members += b.group[a, cell] == g
            single &= members == 1 and frame.single[a, b.group_cell[a, g]]
        for a in range(n_axes):  # sensitive axes on which nothing is left to tell apart
            if frame.role[a] == ROLE_S and b.group_n[a] == 1:
                single &= frame.n_cells[a] == 1 and frame.single[a, 0]
        b.s_mass[c] = mass
        b.s_single[c] = single
        any_point |= single
    b.info[9] = any_point or not levels.simple
    _lay_windows(frame, b, win, n_s, False)
    if b.info[9]:
        _lay_windows(frame, b, own_win, n_s, True)
    m = win.n_rows[0]
    block, table = 0, 0
    for i in range(m + 1):
        memo.block_at[i] = block
        block += win.size[i]
        logs = 1
        while 1 << logs <= win.widest[i]:
            logs += 1
        memo.table_at[i] = table
        table += logs * win.size[i] if i < m else 0
    memo.epoch[0] += 1
    need[0], need[1], need[2] = rows, block, table
    return rows <= b.neg.shape[1] and block <= len(memo.block) and table <= len(memo.table)
