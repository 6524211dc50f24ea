"""The search for epsilon > 0: x' may also move along some axes (docs/engine.md, 'Part 2').

E are the non-sensitive axes along which some x reaches another base cell, S the sensitive ones, O the rest, on which x
and x' agree. The search splits O only. Once few trees mix O with E or S, the box becomes a brick: the moving axes are
compacted to the cuts that are left, trees without O become tables over them, and every way to resolve the remaining
mixed trees turns those tables into one bitmap of signs per offset, which erosion measures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.erosion import Memo, Windows, erode, erode_sure, mass_of
from boxqte.engines.box.jit import inlined, kernel
from boxqte.engines.box.records import FULL, Arena, Cuts, known_move, make, make_leaf, residue_of, restrict
from boxqte.engines.box.state import FAIR, LOW, N_KINDS, UNFAIR, add_mass

DONE, OUT_OF_ROOM, OUT_OF_BUDGET, TOO_LARGE = 0, 1, 2, 3
ROLE_O, ROLE_E, ROLE_S = 0, 1, 2
OFFSETS = 4096


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
    """the O axes as a bit set"""


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
    added: npt.NDArray[np.uint32]
    """trees that became tables in this frame, to be taken back when it is left"""
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
    """[row axes, z axis or -1, sensitive combinations, rows, rows per combination, z cells, slots, cells used]"""
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
    all_bits: npt.NDArray[np.uint64]
    twice: npt.NDArray[np.uint64]
    other: npt.NDArray[np.uint64]
    offset: npt.NDArray[np.int64]
    offset_rest: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    score: npt.NDArray[np.float64]
    bit: npt.NDArray[np.int64]


Z_BIT = 1 << 62


@inlined
def _touches(axes: npt.NDArray[np.uint64], tree: np.uint32, which: npt.NDArray[np.uint64], flip: bool) -> bool:
    """Whether the tree tests an axis of the set (flip: an axis outside it)."""
    for w in range(len(which)):
        word = ~which[w] if flip else which[w]
        if axes[tree, w] & word:
            return True
    return False


@kernel
def child(arena: Arena, cuts: Cuts, frame: Frame, nodes: Nodes, src: int, dst: int, cut: int, side: int) -> bool:
    """Frame dst becomes frame src restricted to one side of an O cut; False if the arena is full."""
    axis = cuts.axis[cut]
    word, bit = axis >> 6, np.uint64(axis & 63)
    if src != dst:
        nodes.domain[dst] = nodes.domain[src]
        nodes.axis_mass[dst] = nodes.axis_mass[src]
        for t in range(nodes.n_trees[src]):
            nodes.trees[dst, t] = nodes.trees[src, t]
        nodes.n_trees[dst] = nodes.n_trees[src]
        nodes.constant[dst] = nodes.constant[src]
        nodes.rest[dst] = nodes.rest[src]
    mass = 0.0
    for w in range(nodes.domain.shape[2]):
        keep = cuts.mask[cut, w] if side == 1 else ~cuts.mask[cut, w]
        held = nodes.domain[dst, axis, w] & keep
        nodes.domain[dst, axis, w] = held
        for c in range(min(64, frame.n_cells[axis] - (w << 6))):
            if (held >> np.uint64(c)) & np.uint64(1):
                mass += frame.mass[axis, (w << 6) + c]
    nodes.axis_mass[dst, axis] = mass
    for k in range(cuts.start[axis], cuts.start[axis + 1]):
        outcome = side
        if k != cut:
            if frame.chain[axis]:  # one prefix cut settles all that follows from it in one restriction
                continue
            outcome = _one_sided(cuts, nodes, dst, k)
            if outcome < 0:
                continue
        move = k << 1 | outcome
        kept = 0
        for t in range(nodes.n_trees[dst]):
            tree = nodes.trees[dst, t]
            if (arena.axes[tree, word] >> bit) & np.uint64(1):
                moved = known_move(arena.move_key, arena.move_to, tree, move)
                if moved == FULL:
                    moved = restrict(arena, cuts, tree, k, outcome)
                    if moved == FULL:
                        return False
                tree = moved
                if arena.record[tree]["cut"] < 0:
                    nodes.constant[dst] += arena.record[tree]["min"]
                    nodes.rest[dst] += residue_of(arena.record, tree)
                    continue
            nodes.trees[dst, kept] = tree
            kept += 1
        nodes.n_trees[dst] = kept
    return True


@kernel
def _one_sided(cuts: Cuts, nodes: Nodes, f: int, cut: int) -> int:
    """1 if the box lies wholly on the cut's yes side, 0 if wholly on the no side, -1 if on both."""
    axis = cuts.axis[cut]
    yes = False
    no = False
    for w in range(nodes.domain.shape[2]):
        word = nodes.domain[f, axis, w]
        yes |= (word & cuts.mask[cut, w]) != 0
        no |= (word & ~cuts.mask[cut, w]) != 0
    if yes and no:
        return -1
    return 1 if yes else 0


@kernel
def load_box(
    arena: Arena, cuts: Cuts, frame: Frame, nodes: Nodes, root: int, f: int, domain: npt.NDArray[np.uint64]
) -> bool:
    """Frame f becomes the node of the given box, derived from the root frame."""
    nodes.domain[f] = domain
    nodes.n_trees[f] = nodes.n_trees[root]
    nodes.constant[f] = nodes.constant[root]
    nodes.rest[f] = nodes.rest[root]
    for t in range(nodes.n_trees[root]):
        nodes.trees[f, t] = nodes.trees[root, t]
    for a in range(len(frame.role)):
        nodes.axis_mass[f, a] = 1.0
        if frame.role[a] != ROLE_O:
            continue
        mass = 0.0
        for c in range(frame.n_cells[a]):
            if (domain[a, c >> 6] >> np.uint64(c & 63)) & np.uint64(1):
                mass += frame.mass[a, c]
        nodes.axis_mass[f, a] = mass
        for k in range(cuts.start[a], cuts.start[a + 1]):
            outcome = _one_sided(cuts, nodes, f, k)
            if outcome < 0:
                continue
            kept = 0
            for t in range(nodes.n_trees[f]):
                tree = restrict(arena, cuts, nodes.trees[f, t], k, outcome)
                if tree == FULL:
                    return False
                if arena.record[tree]["cut"] < 0:
                    nodes.constant[f] += arena.record[tree]["min"]
                    nodes.rest[f] += residue_of(arena.record, tree)
                else:
                    nodes.trees[f, kept] = tree
                    kept += 1
            nodes.n_trees[f] = kept
    return True


@kernel
def build_root(arena: Arena, cuts: Cuts, nodes: Nodes, roots: npt.NDArray[np.int64], cut: npt.NDArray[np.int32],
               yes: npt.NDArray[np.int32], no: npt.NDArray[np.int32], value: npt.NDArray[np.int64],
               residue: npt.NDArray[np.int64], base: int, base_rest: int, ids: npt.NDArray[np.uint32]) -> bool:  # fmt: skip
    """Frame 0 becomes the whole space; False if the arena is too small."""
    make_leaf(arena, np.int64(0), np.int64(0))  # record 0 is a leaf: restrict() relies on it
    for i in range(len(cut) - 1, -1, -1):  # children come after their parents
        if cut[i] < 0:
            ids[i] = make_leaf(arena, value[i], residue[i])
        else:
            ids[i] = make(arena, cuts, cut[i], ids[yes[i]], ids[no[i]])
        if ids[i] == FULL:
            return False
    nodes.constant[0] = base
    nodes.rest[0] = base_rest
    nodes.n_trees[0] = 0
    for t in range(len(roots)):
        tree = ids[roots[t]]
        if arena.record[tree]["cut"] < 0:
            nodes.constant[0] += arena.record[tree]["min"]
            nodes.rest[0] += residue_of(arena.record, tree)
        else:
            nodes.trees[0, nodes.n_trees[0]] = tree
            nodes.n_trees[0] += 1
    return True


@kernel
def box_mass(nodes: Nodes, f: int) -> float:
    mass = 1.0
    for a in range(nodes.axis_mass.shape[1]):
        mass *= nodes.axis_mass[f, a]
    return mass


@kernel
def choose_cut(arena: Arena, cuts: Cuts, frame: Frame, nodes: Nodes, f: int, b: Brick, pure: bool) -> int:
    """The O cut that resolves most of the mixed trees (pure: of the trees over O alone); -1 if there is none.

    A cut scores 2**-depth for every node of such a tree that tests it.
    """
    score, todo, weight = b.score, b.todo, b.todo_weight
    score[:] = 0.0
    for t in range(nodes.n_trees[f]):
        if _touches(arena.axes, nodes.trees[f, t], frame.o_axes, True) == pure:
            continue
        todo[0] = nodes.trees[f, t]
        weight[0] = 1.0
        n = 1
        while n > 0:
            n -= 1
            tree, w = todo[n], weight[n]
            cut = arena.record[tree]["cut"]
            if cut < 0 or not _touches(arena.axes, tree, frame.o_axes, False):
                continue
            if frame.role[cuts.axis[cut]] == ROLE_O:
                score[cut] += w
            todo[n] = arena.record[tree]["yes"]
            todo[n + 1] = arena.record[tree]["no"]
            weight[n] = 0.5 * w
            weight[n + 1] = 0.5 * w
            n += 2
    best = -1
    for k in range(len(score)):
        if score[k] > 0.0 and (best < 0 or score[k] > score[best]):
            best = k
    return best


@kernel
def _is_brick(arena: Arena, cuts: Cuts, frame: Frame, levels: Levels, nodes: Nodes, f: int, b: Brick) -> bool:
    """Few mixed trees are left, or they span few O cells."""
    n = 0
    b.active[:] = 0
    for t in range(nodes.n_trees[f]):
        tree = nodes.trees[f, t]
        if _touches(arena.axes, tree, frame.o_axes, False) and _touches(arena.axes, tree, frame.o_axes, True):
            n += 1
            for w in range(len(b.active)):
                b.active[w] |= arena.cuts[tree, w]
    if n <= levels.mixed_limit:
        return True
    cells = 1.0
    for a in range(len(frame.role)):
        if frame.role[a] == ROLE_O:
            active = np.int64(1)
            for k in range(cuts.start[a], cuts.start[a + 1]):
                active += np.int64((b.active[k >> 6] >> np.uint64(k & 63)) & np.uint64(1))
            cells *= active
    return cells <= levels.cell_limit


@kernel
def _group_cells(cuts: Cuts, frame: Frame, b: Brick, axis: int) -> None:
    """Collect the axis's cells into groups that the active cuts do not tell apart."""
    n = 0
    for c in range(frame.n_cells[axis]):
        found = -1
        # On a moving axis only neighbours may share a group: windows are ranges of groups.
        first = n - 1 if (frame.chain[axis] or frame.role[axis] == ROLE_E) and n > 0 else 0
        for g in range(first, n):
            rep = b.group_cell[axis, g]
            same = True
            for k in range(cuts.start[axis], cuts.start[axis + 1]):
                if (b.active[k >> 6] >> np.uint64(k & 63)) & np.uint64(1):
                    one = cuts.mask[k, c >> 6] >> np.uint64(c & 63)
                    two = cuts.mask[k, rep >> 6] >> np.uint64(rep & 63)
                    if (one ^ two) & np.uint64(1):
                        same = False
                        break
            if same:
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
    for r in range(frame.n_refined[axis]):
        low, high = b.group[axis, frame.near_lo[axis, r]], b.group[axis, frame.near_hi[axis, r]]
        base = b.group[axis, frame.base[axis, r]]
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
def lay_brick(arena: Arena, cuts: Cuts, frame: Frame, levels: Levels, nodes: Nodes, f: int, b: Brick, win: Windows,
              memo: Memo, need: npt.NDArray[np.int64]) -> bool:  # fmt: skip
    """Compact the moving axes to the cuts that the node's trees still test. False if buffers are too small (see need)."""
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
    with_base = any_point or not levels.simple
    # the erosion's view: its level 0 is the first E row axis
    m = n_rows - n_s
    win.n_rows[0] = m
    for i in range(m):
        _windows_of(frame, b, win, b.row_axis[n_s + i], i, with_base)
    win.size[m] = 1
    for i in range(m - 1, -1, -1):
        win.size[i] = win.size[i + 1] * win.n_base[i]
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
    win.full[0] = ~np.uint64(0) if n_z == 64 else (np.uint64(1) << np.uint64(n_z)) - np.uint64(1)
    for j in range(win.n_window[m]):
        reach = np.uint64(0)
        for c in range(win.low[m, j], win.high[m, j] + 1):
            reach |= np.uint64(1) << np.uint64(c)
        win.reach[j] = reach
        win.own_bit[j] = np.uint64(1) << np.uint64(win.base[m, j])
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


@kernel
def _slot_size(b: Brick, mask: int) -> int:
    size = 1
    for i in range(b.info[0]):
        if mask >> i & 1:
            size *= b.group_n[b.row_axis[i]]
    return size * b.info[5] if mask & Z_BIT else size


@kernel
def clear_tables(b: Brick) -> None:
    b.info[6] = 0
    b.info[7] = 0
    b.n_slots[0] = 0
    b.sums[0] = 0
    b.sums[1] = 0


@kernel
def _fill(arena: Arena, cuts: Cuts, chain: npt.NDArray[np.bool_], b: Brick, tree: np.uint32, sign: int, n_own: int,
          at: int, exact: bool) -> None:  # fmt: skip
    """Add sign * tree to its table, a block a leaf; axes without order stand at the cell `now`.

    b.own lists the scope's ordered axes, the one with the smallest stride last; frame d of b.first and b.last is a block.
    """
    record, own, stride, cells, rests, todo = arena.record, b.own, b.own_stride, b.cells, b.rests, b.todo
    for i in range(n_own):
        b.first[0, i] = 0
        b.last[0, i] = b.group_n[own[i]]
    todo[0] = tree
    n = 1
    while n > 0:
        d = n - 1
        node = todo[d]
        cut = record[node]["cut"]
        if cut < 0:
            n -= 1
            value = sign * record[node]["min"]
            rest = sign * residue_of(record, node)
            if n_own == 0:
                cells[at] += value
                if exact:
                    rests[at] += rest
                continue
            inner = n_own - 1
            low, high, step = b.first[d, inner], b.last[d, inner], stride[inner]
            for i in range(inner):
                b.place[i] = b.first[d, i]
            while True:
                here = at
                for i in range(inner):
                    here += b.place[i] * stride[i]
                if step == 1:
                    part = cells[here + low : here + high]
                    for g in range(high - low):
                        part[g] += value
                else:
                    for g in range(low, high):
                        cells[here + g * step] += value
                if exact:
                    for g in range(low, high):
                        rests[here + g * step] += rest
                i = inner - 1
                while i >= 0:
                    b.place[i] += 1
                    if b.place[i] < b.last[d, i]:
                        break
                    b.place[i] = b.first[d, i]
                    i -= 1
                if i < 0:
                    break
            continue
        axis = cuts.axis[cut]
        yes, no = record[node]["yes"], record[node]["no"]
        if not chain[axis]:
            cell = b.now[axis]
            todo[d] = yes if (cuts.mask[cut, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1) else no
            continue
        k = 0
        while own[k] != axis:
            k += 1
        middle = b.group_at[cut]
        low, high = b.first[d, k], b.last[d, k]
        if high <= middle:
            todo[d] = yes
        elif low >= middle:
            todo[d] = no
        else:
            for i in range(n_own):
                b.first[n, i] = b.first[d, i]
                b.last[n, i] = b.last[d, i]
            todo[d] = no
            b.first[d, k] = middle
            todo[n] = yes
            b.last[n, k] = middle
            n += 1


@kernel
def add_table(arena: Arena, cuts: Cuts, frame: Frame, b: Brick, tree: np.uint32, sign: int, exact: bool) -> bool:
    """Add (or take back) a tree without O axes to the table of its scope; False if the tables do not fit."""
    b.sums[0] += sign * arena.record[tree]["min"]
    b.sums[1] += sign * arena.record[tree]["max"]
    mask = 0
    for a in range(len(frame.role)):
        if (arena.axes[tree, a >> 6] >> np.uint64(a & 63)) & np.uint64(1):
            mask |= Z_BIT if a == b.info[1] else 1 << b.row_of[a]
    slot = -1
    for i in range(b.n_slots[0]):
        if b.slot_mask[0, i] == mask:
            slot = i
    if slot < 0:
        size = _slot_size(b, mask)
        slot = b.n_slots[0]
        if slot >= b.slot_mask.shape[1] or b.info[7] + size > b.level_at[1]:
            return False
        b.n_slots[0] += 1
        b.slot_mask[0, slot] = mask
        b.slot_at[0, slot] = b.info[7]
        b.slot_size[0, slot] = size
        b.cells[b.info[7] : b.info[7] + size] = 0
        if exact:
            b.rests[b.info[7] : b.info[7] + size] = 0
        b.info[7] += size
    n_own = 0
    n_free = 0
    step = 1
    for i in range(b.info[0], -1, -1):  # the bits' axis first: stride 1
        if not (mask & Z_BIT if i == b.info[0] else mask >> i & 1):
            continue
        a = b.info[1] if i == b.info[0] else b.row_axis[i]
        if frame.chain[a]:
            b.own[n_own] = a
            b.own_stride[n_own] = step
            n_own += 1
        else:
            b.free[n_free] = a
            b.free_stride[n_free] = step
            b.now[a] = b.group_cell[a, 0]
            n_free += 1
        step *= b.group_n[a]
    for i in range(n_own // 2):  # smallest stride last
        j = n_own - 1 - i
        b.own[i], b.own[j] = b.own[j], b.own[i]
        b.own_stride[i], b.own_stride[j] = b.own_stride[j], b.own_stride[i]
    at = b.slot_at[0, slot]
    while True:  # every combination of groups of the axes without order
        _fill(arena, cuts, frame.chain, b, tree, sign, n_own, at, exact)
        i = 0
        while i < n_free:
            a = b.free[i]
            g = b.group[a, b.now[a]] + 1
            at += b.free_stride[i]
            if g < b.group_n[a]:
                b.now[a] = b.group_cell[a, g]
                break
            at -= b.free_stride[i] * b.group_n[a]
            b.now[a] = b.group_cell[a, 0]
            i += 1
        if i == n_free:
            return True


@inlined
def _fix_axis(b: Brick, level: int, g: int, exact: bool) -> bool:
    """Slots of level + 1: those of `level` with row axis `level` fixed at group g; equal scopes are added up."""
    used = b.level_at[level + 1]
    count = 0
    cells = b.cells
    n_groups = b.group_n[b.row_axis[level]]
    for i in range(b.n_slots[level]):
        mask = b.slot_mask[level, i]
        at = b.slot_at[level, i]
        size = b.slot_size[level, i]
        if mask >> level & 1:
            mask ^= 1 << level
            size //= n_groups
            at += g * size
        twin = -1
        for j in range(count):
            if b.slot_mask[level + 1, j] == mask:
                twin = j
        if twin < 0:
            b.slot_mask[level + 1, count] = mask
            b.slot_at[level + 1, count] = at
            b.slot_size[level + 1, count] = size
            b.owned[level + 1, count] = False
            count += 1
            continue
        old = b.slot_at[level + 1, twin]
        if b.owned[level + 1, twin]:
            into, term = cells[old : old + size], cells[at : at + size]
            for c in range(size):
                into[c] += term[c]
            if exact:
                for c in range(size):
                    b.rests[old + c] += b.rests[at + c]
        else:
            if used + size > b.level_at[level + 2]:
                return False
            into, one, two = cells[used : used + size], cells[old : old + size], cells[at : at + size]
            for c in range(size):
                into[c] = one[c] + two[c]
            if exact:
                for c in range(size):
                    b.rests[used + c] = b.rests[old + c] + b.rests[at + c]
            b.slot_at[level + 1, twin] = used
            b.owned[level + 1, twin] = True
            used += size
    b.n_slots[level + 1] = count
    return True


@kernel
def _write_bitmaps(
    b: Brick, levels: Levels, offsets: npt.NDArray[np.int64], rests: npt.NDArray[np.int64], n: int
) -> bool:
    """Fix one row axis after the other; on the last one write the signs of every offset."""
    n_rows = b.info[0]
    if n_rows <= 1:
        _write_rows(b, levels, 0, 0, offsets, rests, n)
        return True
    row = 0
    level = 0
    b.place[0] = 0
    while level >= 0:
        if b.place[level] == b.group_n[b.row_axis[level]]:
            level -= 1
            if level >= 0:
                b.place[level] += 1
            continue
        if not _fix_axis(b, level, b.place[level], levels.fuzz > 0):
            return False
        if level == n_rows - 2:
            _write_rows(b, levels, level + 1, row, offsets, rests, n)
            row += b.group_n[b.row_axis[n_rows - 1]]
            b.place[level] += 1
        else:
            level += 1
            b.place[level] = 0
    return True


@inlined
def _sign(total: int, rest: int, limit: int, limit_rest: int, fuzz: int) -> int:
    """The sign of F - limit, exactly: near the limit the difference is small, so its residue modulo 2**64 is itself."""
    if total < limit - fuzz:
        return -1
    if total > limit + fuzz:
        return 1
    difference = rest - limit_rest
    return -1 if difference < 0 else (1 if difference > 0 else 0)


@kernel
def _write_exact_row(b: Brick, levels: Levels, row: int, here: np.int64, here_rest: np.int64, offsets: npt.NDArray[np.int64],
                     rests: npt.NDArray[np.int64], n: int) -> None:  # fmt: skip
    """The signs of one row where the sums are compared by value and residue."""
    for k in range(n):
        neg, pos, sure_pos, sure_neg = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        for z in range(b.info[5]):
            total = here + offsets[k] + b.line[z]
            rest = here_rest + rests[k] + b.line_rest[z]
            if _sign(total, rest, levels.neg, levels.neg_rest, levels.fuzz) <= 0:
                neg |= b.bit[z]
            if levels.simple:
                continue
            if _sign(total, rest, levels.pos, levels.pos_rest, levels.fuzz) >= 0:
                pos |= b.bit[z]
            if _sign(total, rest, levels.conf_pos, levels.conf_pos_rest, levels.fuzz) >= 0:
                sure_pos |= b.bit[z]
            if _sign(total, rest, levels.conf_neg, levels.conf_neg_rest, levels.fuzz) <= 0:
                sure_neg |= b.bit[z]
        b.neg[k, row] = np.uint64(neg)
        if not levels.simple:
            b.pos[k, row] = np.uint64(pos)
            b.sure_pos[k, row] = np.uint64(sure_pos)
            b.sure_neg[k, row] = np.uint64(sure_neg)


@kernel
def _write_rows(b: Brick, levels: Levels, level: int, row: int, offsets: npt.NDArray[np.int64],
                rests: npt.NDArray[np.int64], n: int) -> None:  # fmt: skip
    """The signs along the last row axis and the bits' axis, for every offset."""
    n_z = b.info[5]
    cells = b.cells
    scalar, column, vector, plane = -1, -1, -1, -1
    for i in range(b.n_slots[level]):
        mask, at = b.slot_mask[level, i], b.slot_at[level, i]
        if mask == 0:
            scalar = at
        elif mask == Z_BIT:
            vector = at
        elif mask & Z_BIT:
            plane = at
        else:
            column = at
    n_y = b.group_n[b.row_axis[level]] if level < b.info[0] else 1
    line, bit = b.line[:n_z], b.bit[:n_z]
    constant = cells[scalar] if scalar >= 0 else np.int64(0)
    for y in range(n_y):
        here = constant + (cells[column + y] if column >= 0 else np.int64(0))
        if vector >= 0 and plane >= 0:
            one, two = cells[vector : vector + n_z], cells[plane + y * n_z : plane + (y + 1) * n_z]
            for z in range(n_z):
                line[z] = one[z] + two[z]
        elif vector >= 0 or plane >= 0:
            begin = vector if vector >= 0 else plane + y * n_z
            one = cells[begin : begin + n_z]
            for z in range(n_z):
                line[z] = one[z]
        else:
            for z in range(n_z):
                line[z] = 0
        if levels.fuzz > 0:
            rest = b.rests[scalar] if scalar >= 0 else np.int64(0)
            rest += b.rests[column + y] if column >= 0 else np.int64(0)
            for z in range(n_z):
                part = b.rests[vector + z] if vector >= 0 else np.int64(0)
                b.line_rest[z] = part + (b.rests[plane + y * n_z + z] if plane >= 0 else np.int64(0))
            _write_exact_row(b, levels, row + y, here, rest, offsets, rests, n)
            continue
        for k in range(n):
            total = here + offsets[k]
            limit = levels.neg - total + 1
            word = np.int64(0)
            for z in range(n_z):  # the sign of line - limit, spread over the word: set where F <= neg
                word |= ((line[z] - limit) >> 63) & bit[z]
            b.neg[k, row + y] = np.uint64(word)
            if levels.simple:
                continue
            word = np.int64(0)
            limit = levels.pos - total
            for z in range(n_z):
                word |= ~((line[z] - limit) >> 63) & bit[z]
            b.pos[k, row + y] = np.uint64(word)
            word = np.int64(0)
            limit = levels.conf_pos - total
            for z in range(n_z):
                word |= ~((line[z] - limit) >> 63) & bit[z]
            b.sure_pos[k, row + y] = np.uint64(word)
            word = np.int64(0)
            limit = levels.conf_neg - total + 1
            for z in range(n_z):
                word |= ((line[z] - limit) >> 63) & bit[z]
            b.sure_neg[k, row + y] = np.uint64(word)


@kernel
def _fair_side(b: Brick, levels: Levels, win: Windows, memo: Memo, bits: npt.NDArray[np.uint64],
               sure: npt.NDArray[np.uint64]) -> float:  # fmt: skip
    """The mass of (s, x) that are sure and whose admissible windows are clear of `bits` (row words of one offset)."""
    combos, rows = b.info[2], b.info[4]
    if combos == 1 and not b.s_single[0]:
        return erode(win, memo, 0, bits, 0) if levels.simple else erode_sure(win, memo, sure, 0, bits, 0)
    seen, twice, other = b.all_bits, b.twice, b.other
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
                differs |= other[i] != seen[i]
        if differs:
            total += b.s_mass[s] * erode_sure(win, memo, sure, s * rows, other, 0)
        elif levels.simple:
            if common < 0.0:
                common = erode(win, memo, 0, seen, 0)
            total += b.s_mass[s] * common
        else:
            total += b.s_mass[s] * erode_sure(win, memo, sure, s * rows, seen, 0)
    return total


@inlined
def _one_kind(levels: Levels, low: int, high: int) -> int:
    """FAIR or LOW if margins between low and high settle every x alike, else -1."""
    low -= levels.fuzz
    high += levels.fuzz
    if low > levels.conf_neg and high < levels.conf_pos:
        return LOW
    if (low >= levels.conf_pos and low > levels.neg) or (high <= levels.conf_neg and high < levels.pos):
        return FAIR
    return -1


@kernel
def _measure_offsets(b: Brick, levels: Levels, win: Windows, memo: Memo, n_offsets: int, masses: npt.NDArray[np.float64],
                     counts: npt.NDArray[np.int64]) -> bool:  # fmt: skip
    """Measure the brick's current tables for every offset in the list and add the masses."""
    order = np.argsort(b.offset[:n_offsets])
    kept = 0
    values = np.empty(n_offsets, np.int64)
    rests = np.empty(n_offsets, np.int64)
    weights = np.empty(n_offsets, np.float64)
    lost = np.empty(n_offsets, np.float64)  # Neumaier: equal offsets add up within two roundings
    for i in range(n_offsets):
        j = order[i]
        if kept > 0 and values[kept - 1] == b.offset[j] and rests[kept - 1] == b.offset_rest[j]:
            before, more = weights[kept - 1], b.weight[j]
            after = before + more
            lost[kept - 1] += (before - after) + more if before >= more else (more - after) + before
            weights[kept - 1] = after
        else:
            values[kept] = b.offset[j]
            rests[kept] = b.offset_rest[j]
            weights[kept] = b.weight[j]
            lost[kept] = 0.0
            kept += 1
    for i in range(kept):
        weights[i] += lost[i]
    n = 0
    for i in range(kept):  # offsets that leave no doubt about any cell
        kind = _one_kind(levels, b.sums[0] + values[i], b.sums[1] + values[i])
        if kind >= 0:
            add_mass(masses, kind, weights[i])
        else:
            values[n] = values[i]
            rests[n] = rests[i]
            weights[n] = weights[i]
            n += 1
    rows, combos = b.info[3], b.info[2]
    per_combo = b.info[4]
    batch = b.neg.shape[0]
    at = 0
    while at < n:
        size = min(batch, n - at)
        if not _write_bitmaps(b, levels, values[at : at + size], rests[at : at + size], size):
            return False
        counts[2] += size
        for k in range(size):
            neg = b.neg[k]
            fair = 0.0
            low = 0.0
            if levels.simple:
                pos = b.pos[0]
                for i in range(rows):
                    pos[i] = ~neg[i] & win.full[0]
                fair = _fair_side(b, levels, win, memo, neg, pos) + _fair_side(b, levels, win, memo, pos, neg)
            else:
                fair = _fair_side(b, levels, win, memo, neg, b.sure_pos[k]) + _fair_side(
                    b, levels, win, memo, b.pos[k], b.sure_neg[k]
                )
                sure = 0.0
                for s in range(combos):
                    sure += b.s_mass[s] * (
                        mass_of(win, memo, 0, b.sure_pos[k, s * per_combo :])
                        + mass_of(win, memo, 0, b.sure_neg[k, s * per_combo :])
                    )
                low = max(1.0 - sure, 0.0)
            w = weights[at + k]
            add_mass(masses, FAIR, w * fair)
            add_mass(masses, LOW, w * low)
            add_mass(masses, UNFAIR, w * max(1.0 - fair - low, 0.0))
        at += size
    return True


@kernel
def _settle(arena: Arena, cuts: Cuts, frame: Frame, nodes: Nodes, f: int, b: Brick, exact: bool) -> bool:
    """Trees of the frame that have no O axis left become tables; they are noted so that they can be taken back."""
    kept = 0
    nodes.n_added[f] = 0
    for t in range(nodes.n_trees[f]):
        tree = nodes.trees[f, t]
        if _touches(arena.axes, tree, frame.o_axes, False):
            nodes.trees[f, kept] = tree
            kept += 1
        else:
            if not add_table(arena, cuts, frame, b, tree, 1, exact):
                return False
            nodes.added[f, nodes.n_added[f]] = tree
            nodes.n_added[f] += 1
    nodes.n_trees[f] = kept
    return True


@kernel
def _resolve(arena: Arena, cuts: Cuts, frame: Frame, levels: Levels, nodes: Nodes, top: int, b: Brick, win: Windows,
             memo: Memo, masses: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> bool:  # fmt: skip
    """Resolve the mixed trees of a brick in every way; where none is left, list the ways of the trees over O and measure.

    Frames top.. are an explicit stack: nodes.cut[f] is the cut under work, nodes.side[f] how many sides are done.
    Below the frame `base` only trees over O are left: their leaves are (offset, mass) entries.
    """
    f = top
    entering = True
    base = -1
    n = 0
    while f >= top:
        if entering:
            if base < 0:
                counts[1] += 1
                if not _settle(arena, cuts, frame, nodes, f, b, levels.fuzz > 0):
                    return False
            cut = choose_cut(arena, cuts, frame, nodes, f, b, base >= 0)
            if base < 0 and cut < 0:
                base = f
                n = 0
                cut = choose_cut(arena, cuts, frame, nodes, f, b, True)
            nodes.cut[f] = cut
            nodes.side[f] = 0
            if cut < 0:
                b.offset[n] = nodes.constant[f]
                b.offset_rest[n] = nodes.rest[f]
                b.weight[n] = box_mass(nodes, f)
                n += 1
                nodes.side[f] = 2
                if n == OFFSETS:
                    if not _measure_offsets(b, levels, win, memo, n, masses, counts):
                        return False
                    n = 0
        if nodes.side[f] < 2:
            if f + 1 >= len(nodes.n_trees) or not child(
                arena, cuts, frame, nodes, f, f + 1, nodes.cut[f], nodes.side[f]
            ):
                return False
            nodes.side[f] += 1
            f += 1
            entering = True
            continue
        if f == base:
            if n > 0 and not _measure_offsets(b, levels, win, memo, n, masses, counts):
                return False
            base = -1
        if base < 0:
            for t in range(nodes.n_added[f]):
                add_table(arena, cuts, frame, b, nodes.added[f, t], -1, levels.fuzz > 0)
            nodes.n_added[f] = 0
        entering = False
        f -= 1
    return True


@kernel
def search(
    arena: Arena,
    cuts: Cuts,
    frame: Frame,
    levels: Levels,
    nodes: Nodes,
    b: Brick,
    win: Windows,
    memo: Memo,
    box: npt.NDArray[np.uint64],
    out_boxes: npt.NDArray[np.uint64],
    out_mass: npt.NDArray[np.float64],
    masses: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64],
    need: npt.NDArray[np.int64],
) -> int:
    """Work on one box: a brick is measured, anything else is split once. counts: [open boxes out, nodes, tiles].

    `masses` is added to only when the whole brick is measured, so that a box that did not fit can be tried again.
    """
    if not load_box(arena, cuts, frame, nodes, 0, 1, box):
        return OUT_OF_ROOM
    counts[1] += 1
    low, high = nodes.constant[1], nodes.constant[1]
    for t in range(nodes.n_trees[1]):
        low += arena.record[nodes.trees[1, t]]["min"]
        high += arena.record[nodes.trees[1, t]]["max"]
    kind = _one_kind(levels, low, high)
    if kind >= 0:
        add_mass(masses, kind, box_mass(nodes, 1))
        return DONE
    if _is_brick(arena, cuts, frame, levels, nodes, 1, b):
        if not lay_brick(arena, cuts, frame, levels, nodes, 1, b, win, memo, need):
            return TOO_LARGE
        clear_tables(b)
        own = np.zeros(2 * N_KINDS)
        if not _resolve(arena, cuts, frame, levels, nodes, 1, b, win, memo, own, counts):
            return OUT_OF_ROOM
        for kind in (FAIR, UNFAIR, LOW):
            add_mass(masses, kind, own[kind] + own[kind + N_KINDS])
        return DONE
    cut = choose_cut(arena, cuts, frame, nodes, 1, b, False)
    for side in range(2):
        if not child(arena, cuts, frame, nodes, 1, 2, cut, side):
            return OUT_OF_ROOM
        out_boxes[counts[0]] = nodes.domain[2]
        out_mass[counts[0]] = box_mass(nodes, 2)
        counts[0] += 1
    return DONE
