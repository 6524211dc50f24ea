"""Tables over a brick's moving axes, one a scope, and the bitmaps of signs that they add up to.

A tree is added to the table of its own axes, and taken back when it is replaced: integers, so exactly. Where a table over all
moving axes would be too large, the outer ones are fixed cell by cell, and the tables are over the others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.brick import ROLE_S, Z_BIT, Brick, Frame, Levels
from boxqte.engines.box.jit import inlined, kernel, spliced
from boxqte.engines.box.lanes import eight_at_most, eight_sums_at_most
from boxqte.engines.box.records import FULL, Arena, Cuts, residue_of, restrict

NOTHING = np.uint32(0xFFFFFFFE)


@kernel
def _slot_size(b: Brick, mask: int) -> int:
    size = 1
    for i in range(b.info[0]):
        if mask >> i & 1:
            size *= b.group_n[b.row_axis[i]]
    return size * b.info[5] if mask & Z_BIT else size


@kernel
def clear_tables(b: Brick, levels: Levels) -> None:
    """No tables, no trees held; the row axes that are fixed one by one come first, the tables are over the others."""
    outer = 0
    cells = b.info[3] * b.info[5]
    while outer < b.info[0] - 1 and cells > levels.table_cells:
        cells //= b.group_n[b.row_axis[outer]]
        outer += 1
    b.info[6] = outer
    b.info[8] = 0
    b.sums[0] = 0
    b.sums[1] = 0


@inlined
def _fill(arena: Arena, cuts: Cuts, chain: npt.NDArray[np.bool_], b: Brick, tree: np.uint32, sign: int, n_own: int,
          at: int, cells: npt.NDArray[np.int64], rests: npt.NDArray[np.int64], exact: bool) -> None:  # fmt: skip
    """Add sign * tree to its table, a block a leaf; axes without order stand at the cell `now`.

    b.own lists the scope's ordered axes, the one with the smallest stride last; frame d of b.first and b.last is a block.
    """
    record, own, stride, todo = arena.record, b.own, b.own_stride, b.todo
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


@inlined
def _add_tree(arena: Arena, cuts: Cuts, frame: Frame, b: Brick, tree: np.uint32, sign: int, mask: int, at: int,
              cells: npt.NDArray[np.int64], rests: npt.NDArray[np.int64], exact: bool) -> None:  # fmt: skip
    """Add sign * tree to the table over the axes of the mask that begins at `at`."""
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
    while True:  # every combination of groups of the axes without order
        _fill(arena, cuts, frame.chain, b, tree, sign, n_own, at, cells, rests, exact)
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
            return


@kernel
def fill_table(arena: Arena, cuts: Cuts, frame: Frame, b: Brick, tree: np.uint32, wide: bool,
               cells: npt.NDArray[np.int64]) -> None:  # fmt: skip
    """Add the tree to a table over all moving axes of the brick (not wide: over those of E only)."""
    mask = (1 << b.info[0]) - 1
    if not wide:
        for i in range(b.info[0]):
            if frame.role[b.row_axis[i]] == ROLE_S:
                mask ^= 1 << i
    if b.info[1] >= 0:
        mask |= Z_BIT
    _add_tree(arena, cuts, frame, b, tree, 1, mask, 0, cells, b.rests, False)


@inlined
def _add_table(arena: Arena, cuts: Cuts, frame: Frame, b: Brick, tree: np.uint32, sign: int, exact: bool) -> bool:
    """Add (or take back) a tree over the tables' axes to the table of its scope; False if the tables do not fit."""
    base = b.info[6]
    mask = 0
    for a in range(len(frame.role)):
        if (arena.axes[tree, a >> 6] >> np.uint64(a & 63)) & np.uint64(1):
            mask |= Z_BIT if a == b.info[1] else 1 << b.row_of[a]
    slot = -1
    for i in range(b.n_slots[base]):
        if b.slot_mask[base, i] == mask:
            slot = i
    if slot < 0:
        size = _slot_size(b, mask)
        slot = b.n_slots[base]
        if slot >= b.slot_mask.shape[1] or b.info[7] + size > b.level_at[base + 1]:
            return False
        b.n_slots[base] += 1
        b.slot_mask[base, slot] = mask
        b.slot_at[base, slot] = b.info[7]
        b.slot_size[base, slot] = size
        for c in range(b.info[7], b.info[7] + size):
            b.cells[c] = 0
        if exact:
            for c in range(b.info[7], b.info[7] + size):
                b.rests[c] = 0
        b.info[7] += size
    _add_tree(arena, cuts, frame, b, tree, sign, mask, b.slot_at[base, slot], b.cells, b.rests, exact)
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
def _write_tables(b: Brick, levels: Levels, row: int, offsets: npt.NDArray[np.int64], rests: npt.NDArray[np.int64],
                  n: int) -> bool:  # fmt: skip
    """Fix one row axis of the tables after the other; on the last one write the signs of every offset."""
    base = b.info[6]
    last = max(b.info[0] - 1, base)
    level = base
    b.place[level] = 0
    while True:
        if level == last:
            _write_rows(b, levels, level, row, offsets, rests, n)
            row += b.group_n[b.row_axis[level]]
            level -= 1
        elif b.place[level] < b.group_n[b.row_axis[level]]:
            if not _fix_axis(b, level, b.place[level], levels.fuzz > 0):
                return False
            level += 1
            b.place[level] = 0
            continue
        else:
            level -= 1
        if level < base:
            return True
        b.place[level] += 1


@kernel
def _at_group(arena: Arena, cuts: Cuts, frame: Frame, b: Brick, tree: np.uint32, axis: int, g: int) -> np.uint32:
    """The tree where the axis stands at group g; FULL if the arena is."""
    if not (arena.axes[tree, axis >> 6] >> np.uint64(axis & 63)) & np.uint64(1):
        return tree
    cell = b.group_cell[axis, g]
    below, above = -1, -1
    for k in range(cuts.start[axis], cuts.start[axis + 1]):
        if not (b.active[k >> 6] >> np.uint64(k & 63)) & np.uint64(1):
            continue
        side = np.int64((cuts.mask[k, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1))
        if not frame.chain[axis]:
            tree = restrict(arena, cuts, tree, k, side)  # type: ignore[arg-type]
            if tree == FULL:
                return FULL
        elif side == 0:
            below = k
        elif above < 0:
            above = k
    if below >= 0:  # on a chain the nearest cut to each side settles the others
        tree = restrict(arena, cuts, tree, below, np.int64(0))  # type: ignore[arg-type]
    if above >= 0 and tree != FULL:
        tree = restrict(arena, cuts, tree, above, np.int64(1))  # type: ignore[arg-type]
    return tree


@spliced
def write_bitmaps(arena: Arena, cuts: Cuts, frame: Frame, b: Brick, levels: Levels, offsets: npt.NDArray[np.int64],
                  rests: npt.NDArray[np.int64], n: int) -> bool:  # fmt: skip
    """Write the signs of the sum of the held trees, for every offset: the outer axes cell by cell, the others by tables.

    Moving on by a cell replaces only the trees that the step changes.
    """
    outer, held = b.info[6], b.info[8]
    exact = levels.fuzz > 0
    b.n_slots[outer] = 0
    b.info[7] = b.level_at[outer]
    for t in range(held):
        b.shown[t] = NOTHING
    row, level, known = 0, 0, 0
    inner_rows = b.info[3]
    for i in range(outer):
        inner_rows //= b.group_n[b.row_axis[i]]
        b.stand[i] = 0
    while True:
        for i in range(known, outer):
            axis = b.row_axis[i]
            for t in range(held):
                tree = _at_group(arena, cuts, frame, b, b.held[i, t], axis, b.stand[i])
                if tree == FULL:
                    return False
                b.held[i + 1, t] = tree
        for t in range(held):
            tree = b.held[outer, t]
            if tree != b.shown[t]:
                for sign in range(1 if b.shown[t] == NOTHING else -1, 2, 2):
                    if not _add_table(arena, cuts, frame, b, tree if sign > 0 else b.shown[t], sign, exact):
                        return False
                b.shown[t] = tree
        if not _write_tables(b, levels, row, offsets, rests, n) or b.halt[0] != 0:
            return False
        row += inner_rows
        level = outer - 1
        while level >= 0:
            b.stand[level] += 1
            if b.stand[level] < b.group_n[b.row_axis[level]]:
                break
            b.stand[level] = 0
            level -= 1
        if level < 0:
            return True
        known = level


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


@inlined
def _all_bits(n: int) -> np.uint64:
    return ~np.uint64(0) >> np.uint64(64 - n)


@inlined
def _at_most(cells: npt.NDArray[np.int64], at: int, n: int, limit: int) -> np.uint64:
    """A bit for each of n cells from `at` on: set where the cell is at most the limit. Beyond them anything."""
    word = np.uint64(0)
    for z in range(0, n, 8):
        word |= eight_at_most(cells, at + z, limit) << np.uint64(z)
    return word


@inlined
def _write_word(b: Brick, levels: Levels, cells: npt.NDArray[np.int64], at: int, n: int, full: np.uint64, total: int, k: int,
                row: int) -> None:  # fmt: skip
    """The signs of total + cells[at:at+n]: one word of every bitmap of offset k."""
    b.neg[k, row] = _at_most(cells, at, n, levels.neg - total) & full
    if not levels.simple:
        b.pos[k, row] = ~_at_most(cells, at, n, levels.pos - 1 - total) & full
        b.sure_pos[k, row] = ~_at_most(cells, at, n, levels.conf_pos - 1 - total) & full
        b.sure_neg[k, row] = _at_most(cells, at, n, levels.conf_neg - total) & full


@inlined
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
    line = b.line
    full = _all_bits(n_z)
    constant = cells[scalar] if scalar >= 0 else np.int64(0)
    for y in range(n_y):
        here = constant + (cells[column + y] if column >= 0 else np.int64(0))
        if n == 1 and levels.simple and levels.fuzz == 0 and (vector >= 0 or plane >= 0):
            begin = plane + y * n_z if plane >= 0 else vector
            limit = levels.neg - here - offsets[0]
            word = np.uint64(0)
            if vector >= 0 and plane >= 0:
                for z in range(0, n_z, 8):
                    word |= eight_sums_at_most(cells, vector + z, begin + z, limit) << np.uint64(z)
            else:
                word = _at_most(cells, begin, n_z, limit)
            b.neg[0, row + y] = word & full
            continue
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
            _write_word(b, levels, line, 0, n_z, full, here + offsets[k], k, row + y)


@inlined
def write_dense(b: Brick, levels: Levels, table: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> None:
    """The signs of a table over all moving axes (or of the extremes over S), for every offset."""
    n_z = b.info[5]
    full = _all_bits(n_z)
    for k in range(len(offsets)):
        for row in range(len(table) // n_z):
            _write_word(b, levels, table, row * n_z, n_z, full, offsets[k], k, row)
