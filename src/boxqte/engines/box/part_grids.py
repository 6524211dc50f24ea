"""A part's trees as a dense grid of margins: one table per set of axes, broadcast into the grid of all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import inlined, kernel
from boxqte.engines.box.parts import Scratch, overlap
from boxqte.engines.box.records import Arena, Cuts, told_apart
from boxqte.engines.box.state import Axes, Stack


@kernel
def group_axis(axes: Axes, cuts: Cuts, stack: Stack, f: int, axis: int, s: Scratch) -> None:
    """Collect the box's cells on the axis into groups that the active cuts do not tell apart."""
    n = 0
    for c in range(axes.n_cells[axis]):
        if not (stack.domain[f, axis, c >> 6] >> np.uint64(c & 63)) & np.uint64(1):
            continue
        found = -1
        first = n - 1 if axes.chain[axis] and n > 0 else 0
        for g in range(first, n):
            if not told_apart(cuts, s.active, axis, c, s.group_cell[axis, g]):
                found = g
                break
        if found < 0:
            s.group_cell[axis, n] = c
            s.group_mass[axis, n] = axes.mass[axis, c]
            n += 1
        else:
            s.group_mass[axis, found] += axes.mass[axis, c]
    s.group_n[axis] = n
    if axes.chain[axis]:
        for k in range(cuts.start[axis], cuts.start[axis + 1]):
            at = 0
            while at < n and s.group_cell[axis, at] < cuts.prefix[k]:
                at += 1
            s.group_at[k] = at


@kernel
def _fill(
    record: npt.NDArray[np.void],
    cuts: Cuts,
    chain: npt.NDArray[np.bool_],
    group_at: npt.NDArray[np.int32],
    tree: np.uint32,
    now: npt.NDArray[np.int32],
    first: npt.NDArray[np.int32],
    last: npt.NDArray[np.int32],
    own: npt.NDArray[np.int32],
    own_stride: npt.NDArray[np.int64],
    n_own: int,
    at: int,
    table: npt.NDArray[np.int64],
) -> None:
    """Add the tree to the block first..last of the table over its chain axes; other axes stand at the cell `now`."""
    cut = record[tree]["cut"]
    if cut < 0:
        _add_block(record[tree]["min"], first, last, own, own_stride, n_own, at, table)
        return
    axis = cuts.axis[cut]
    yes, no = record[tree]["yes"], record[tree]["no"]
    if not chain[axis]:
        cell = now[axis]
        side = yes if (cuts.mask[cut, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1) else no
        _fill(record, cuts, chain, group_at, side, now, first, last, own, own_stride, n_own, at, table)
        return
    middle = group_at[cut]
    low, high = first[axis], last[axis]
    if low < middle:
        last[axis] = min(high, middle)
        _fill(record, cuts, chain, group_at, yes, now, first, last, own, own_stride, n_own, at, table)
        last[axis] = high
    if high > middle:
        first[axis] = max(low, middle)
        _fill(record, cuts, chain, group_at, no, now, first, last, own, own_stride, n_own, at, table)
        first[axis] = low


@kernel
def _add_block(
    value: np.int64,
    first: npt.NDArray[np.int32],
    last: npt.NDArray[np.int32],
    own: npt.NDArray[np.int32],
    own_stride: npt.NDArray[np.int64],
    n_own: int,
    at: int,
    table: npt.NDArray[np.int64],
) -> None:
    """Add the value to every cell of the block; the last own axis has stride 1 or none."""
    if n_own == 0:
        table[at] += value
        return
    axis = own[n_own - 1]
    low, size, step = first[axis], last[axis] - first[axis], own_stride[n_own - 1]
    at += low * step
    if n_own == 1:
        for g in range(size):
            table[at + g * step] += value
        return
    outer = own[n_own - 2]
    if n_own == 2:
        for h in range(first[outer], last[outer]):
            base = at + h * own_stride[0]
            for g in range(size):
                table[base + g * step] += value
        return
    if n_own == 3:
        for i in range(first[own[0]], last[own[0]]):
            for h in range(first[outer], last[outer]):
                base = at + i * own_stride[0] + h * own_stride[1]
                for g in range(size):
                    table[base + g * step] += value
        return
    for g in range(size):
        _add_block(value, first, last, own, own_stride, n_own - 1, at + g * step, table)


@kernel
def lay_out(words: npt.NDArray[np.uint64], s: Scratch) -> int:
    """The axes of a part into list_axis, the longest last (it becomes the inner loop); how many."""
    n = 0
    for w in range(len(words)):
        word = words[w]
        a = w << 6
        while word:
            if word & np.uint64(1):
                s.list_axis[n] = a
                n += 1
            word >>= np.uint64(1)
            a += 1
    for i in range(n - 1):
        if s.group_n[s.list_axis[i]] > s.group_n[s.list_axis[n - 1]]:
            s.list_axis[i], s.list_axis[n - 1] = s.list_axis[n - 1], s.list_axis[i]
    for i in range(n):
        s.size[i] = s.group_n[s.list_axis[i]]
    return n


@kernel
def _add_trees(
    arena: Arena,
    cuts: Cuts,
    chain: npt.NDArray[np.bool_],
    s: Scratch,
    n_trees: int,
    n_axes: int,
    out: npt.NDArray[np.int64],
) -> None:
    """Add the trees s.trees[:n_trees] to the part's grid: first one table per scope, then broadcast into the grid."""
    for t in range(n_trees):
        s.done[t] = False
    for t in range(n_trees):
        if s.done[t]:
            continue
        scope = arena.axes[s.trees[t]]
        size = 1
        for i in range(n_axes - 1, -1, -1):
            a = s.list_axis[i]
            if (scope[a >> 6] >> np.uint64(a & 63)) & np.uint64(1):
                s.stride[i] = size
                size *= s.group_n[a]
            else:
                s.stride[i] = 0
        n_same = 0
        for u in range(t, n_trees):
            tree = s.trees[u]
            same = not s.done[u]
            for w in range(len(scope)):
                same &= arena.axes[tree, w] == scope[w]
            if same:
                s.done[u] = True
                s.same[n_same] = tree
                n_same += 1
        n_own = 0  # chain axes of the scope, filled in blocks
        n_free = 0  # its other axes, walked cell by cell
        for i in range(n_axes):
            if s.stride[i]:
                axis = s.list_axis[i]
                if chain[axis]:
                    s.own[n_own] = axis
                    s.own_stride[n_own] = s.stride[i]
                    s.first[axis] = 0
                    s.last[axis] = s.group_n[axis]
                    n_own += 1
                else:
                    s.free[n_free] = i
                    s.odometer[i] = 0
                    s.now[axis] = s.group_cell[axis, 0]
                    n_free += 1
        for cell in range(size):
            s.scope[cell] = 0
        at = 0
        while True:
            for u in range(n_same):
                _fill(arena.record, cuts, chain, s.group_at, s.same[u], s.now, s.first, s.last, s.own, s.own_stride,
                      n_own, at, s.scope)  # fmt: skip
            j = n_free - 1
            while j >= 0:
                i = s.free[j]
                axis = s.list_axis[i]
                s.odometer[i] += 1
                at += s.stride[i]
                if s.odometer[i] < s.group_n[axis]:
                    s.now[axis] = s.group_cell[axis, s.odometer[i]]
                    break
                at -= s.stride[i] * s.group_n[axis]
                s.odometer[i] = 0
                s.now[axis] = s.group_cell[axis, 0]
                j -= 1
            if j < 0:
                break
        _broadcast(s.scope, s.stride, s.size, s.odometer, n_axes, out)


@inlined
def _broadcast(
    scope: npt.NDArray[np.int64],
    stride: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
    odometer: npt.NDArray[np.int32],
    n_axes: int,
    out: npt.NDArray[np.int64],
) -> None:
    """out[grid point] += scope table at the point's coordinates in the scope. Unsigned indices are not checked for signs."""
    for i in range(n_axes):
        odometer[i] = 0
    inner = np.uint64(size[n_axes - 1])
    varies = stride[n_axes - 1] == 1
    at, source = np.uint64(0), np.uint64(0)
    while True:
        if varies:
            for j in range(inner):
                out[at + j] += scope[source + j]
        else:
            value = scope[source]
            for j in range(inner):
                out[at + j] += value
        at += inner
        i = n_axes - 2
        while i >= 0:
            odometer[i] += 1
            source += np.uint64(stride[i])
            if odometer[i] < size[i]:
                break
            source -= np.uint64(stride[i] * size[i])
            odometer[i] = 0
            i -= 1
        if i < 0:
            return


@kernel
def _grid_masses(s: Scratch, n_axes: int, out: npt.NDArray[np.float64]) -> int:
    """The mass of every point of the part's grid; how many there are."""
    n = 1
    out[0] = 1.0
    for i in range(n_axes):
        a = s.list_axis[i]
        size = s.group_n[a]
        for cell in range(n - 1, -1, -1):
            m = out[cell]
            for g in range(size):
                out[cell * size + g] = m * s.group_mass[a, g]
        n *= size
    return n


@kernel
def _trees_of_part(arena: Arena, stack: Stack, f: int, k: int, s: Scratch) -> int:
    n = 0
    for t in range(stack.n_common[f]):
        tree = stack.common[f, t]
        if overlap(arena.axes[tree], s.part_axes[k]):
            s.trees[n] = tree
            n += 1
    return n


@kernel
def scalar_list(
    arena: Arena, cuts: Cuts, chain: npt.NDArray[np.bool_], stack: Stack, f: int, s: Scratch, side: int
) -> int:
    """The sum of all scalars on one side as (value, mass) entries in row side-1, in no order."""
    row = side - 1
    n = 1
    s.value[row, 0] = 0
    s.mass[row, 0] = 1.0
    for k in range(1, s.n_parts[0]):
        if s.part_side[k] != side:
            continue
        n_axes = lay_out(s.part_axes[k], s)
        size = _grid_masses(s, n_axes, s.grid_mass)
        values = s.grid[0]
        for cell in range(size):
            values[cell] = 0
        _add_trees(arena, cuts, chain, s, _trees_of_part(arena, stack, f, k, s), n_axes, values)
        for i in range(n - 1, -1, -1):  # from the end, so that entries are read before they are overwritten
            v, m = s.value[row, i], s.mass[row, i]
            for j in range(size):
                s.value[row, i * size + j] = v + values[j]
                s.mass[row, i * size + j] = m * s.grid_mass[j]
        n *= size
    return n


@kernel
def vector_part(arena: Arena, cuts: Cuts, chain: npt.NDArray[np.bool_], stack: Stack, f: int, s: Scratch) -> int:
    """Margins of the vector part (offsets included) into s.grid, one row a class; how many cells."""
    n = stack.n_classes[f]
    n_axes = lay_out(s.part_axes[0], s)
    size = _grid_masses(s, n_axes, s.grid_mass)
    for c in range(n):
        for cell in range(size):
            s.grid[c, cell] = stack.offset[f, c]
    if n_axes == 0:
        return size
    for cell in range(size):
        s.extreme[0, cell] = 0
    _add_trees(arena, cuts, chain, s, _trees_of_part(arena, stack, f, 0, s), n_axes, s.extreme[0])
    for c in range(n):
        count = 0
        for r in range(stack.n_rows[f]):
            tree = stack.rows[f, r, c]
            if arena.record[tree]["cut"] >= 0:
                s.trees[count] = tree
                count += 1
            else:
                for cell in range(size):
                    s.grid[c, cell] += arena.record[tree]["min"]
        _add_trees(arena, cuts, chain, s, count, n_axes, s.grid[c])
        for cell in range(size):
            s.grid[c, cell] += s.extreme[0, cell]
    return size
