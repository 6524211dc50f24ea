"""A part's trees as a dense grid of margins: one table per set of axes, broadcast into the grid of all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import inlined, kernel, spliced
from boxqte.engines.box.lanes import first_bit
from boxqte.engines.box.parts import Scratch, overlap
from boxqte.engines.box.records import Arena, Cuts, told_apart
from boxqte.engines.box.state import Axes, Stack


@kernel
def group_axis(axes: Axes, cuts: Cuts, stack: Stack, f: int, axis: int, s: Scratch) -> None:
    """Collect the box's cells on the axis into groups that the active cuts do not tell apart."""
    if axes.chain[axis]:
        _group_chain(axes, cuts, stack, f, axis, s)
        return
    n = 0
    for c in range(axes.n_cells[axis]):
        if not (stack.domain[f, axis, c >> 6] >> np.uint64(c & 63)) & np.uint64(1):
            continue
        found = -1
        for g in range(n):
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


@inlined
def _group_chain(axes: Axes, cuts: Cuts, stack: Stack, f: int, axis: int, s: Scratch) -> None:
    """The same where every cut is a prefix of the cells, shorter ones first: a group ends at the next active cut."""
    n = 0
    k, stop = cuts.start[axis], cuts.start[axis + 1]
    fresh = True
    for w in range(stack.domain.shape[2]):
        word = stack.domain[f, axis, w]
        while word != 0:
            c = np.int64(np.uint64(w << 6) + first_bit(word))
            word &= word - np.uint64(1)
            while k < stop and cuts.prefix[k] <= c:
                s.group_at[k] = n  # so many groups lie before the cut
                fresh |= ((s.active[k >> 6] >> np.uint64(k & 63)) & np.uint64(1)) != 0
                k += 1
            if fresh:
                s.group_cell[axis, n] = c
                s.group_mass[axis, n] = 0.0
                n += 1
                fresh = False
            s.group_mass[axis, n - 1] += axes.mass[axis, c]
    while k < stop:
        s.group_at[k] = n
        k += 1
    s.group_n[axis] = n


@inlined
def _fill(record: npt.NDArray[np.void], cuts: Cuts, chain: npt.NDArray[np.bool_], s: Scratch, tree: np.uint32, sign: int,
          n_own: int, at: int) -> None:  # fmt: skip
    """Add the tree (sign 1; -1: take it away) to the scope's table from `at` on.

    Blocks over the own axes s.own are filled at once, other axes stand at the cell s.now. A block that has still to be
    visited is a row of s.todo: the tree, then the range of groups on every own axis.
    """
    todo = s.todo
    todo[0, 0] = np.int64(tree)
    for i in range(n_own):
        todo[0, 1 + 2 * i] = 0
        todo[0, 2 + 2 * i] = s.group_n[s.own[i]]
    n = 1
    while n > 0:
        top = n - 1
        node = np.uint32(todo[top, 0])
        cut = record[node]["cut"]
        if cut < 0:
            n -= 1
            _add_block(sign * record[node]["min"], s, top, n_own, at)
            continue
        axis = cuts.axis[cut]
        if not chain[axis]:
            cell = s.now[axis]
            inside = (cuts.mask[cut, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1)
            todo[top, 0] = np.int64(record[node]["yes"] if inside else record[node]["no"])
            continue
        i = s.own_at[axis]
        middle = s.group_at[cut]
        low, high = todo[top, 1 + 2 * i], todo[top, 2 + 2 * i]
        if middle <= low:
            todo[top, 0] = np.int64(record[node]["no"])
        elif middle >= high:
            todo[top, 0] = np.int64(record[node]["yes"])
        else:
            for j in range(1, 1 + 2 * n_own):
                todo[n, j] = todo[top, j]
            todo[top, 0] = np.int64(record[node]["no"])
            todo[top, 1 + 2 * i] = middle
            todo[n, 0] = np.int64(record[node]["yes"])
            todo[n, 2 + 2 * i] = middle
            n += 1


@inlined
def _add_block(value: np.int64, s: Scratch, top: int, n_own: int, at: int) -> None:
    """Add the value to every cell of the block s.todo[top]. Unsigned indices are not checked for signs."""
    table, todo = s.scope, s.todo
    if n_own == 0:
        table[at] += value
        return
    for i in range(n_own):
        s.block_at[i] = todo[top, 1 + 2 * i]
        at += todo[top, 1 + 2 * i] * s.own_stride[i]
    inner = n_own - 1
    size = np.uint64(todo[top, 2 + 2 * inner] - todo[top, 1 + 2 * inner])
    step = s.own_stride[inner]
    while True:
        if step == 1:
            start = np.uint64(at)
            for g in range(size):
                table[start + g] += value
        else:
            for g in range(np.int64(size)):
                table[at + g * step] += value
        i = inner - 1
        while i >= 0:
            s.block_at[i] += 1
            at += s.own_stride[i]
            if s.block_at[i] < todo[top, 2 + 2 * i]:
                break
            at -= (s.block_at[i] - todo[top, 1 + 2 * i]) * s.own_stride[i]
            s.block_at[i] = todo[top, 1 + 2 * i]
            i -= 1
        if i < 0:
            return


@kernel
def count_users(arena: Arena, stack: Stack, f: int, s: Scratch) -> None:
    """How many tables will be spread along every axis, for `lay_out`: one a common tree, two for the extremes of the rows."""
    n_axes = len(s.users)
    for a in range(n_axes):
        s.users[a] = 0
    for w in range(len(s.row_axes)):
        s.row_axes[w] = 0
    for r in range(stack.n_rows[f]):
        for c in range(stack.n_classes[f]):
            for w in range(len(s.row_axes)):
                s.row_axes[w] |= arena.axes[stack.rows[f, r, c], w]
    for t in range(stack.n_common[f]):
        _count_user(arena.axes[stack.common[f, t]], s.users, 1)
    _count_user(s.row_axes, s.users, 2)


@inlined
def _count_user(words: npt.NDArray[np.uint64], users: npt.NDArray[np.int32], times: int) -> None:
    for w in range(len(words)):
        word = words[w]
        while word != 0:
            users[np.uint64(w << 6) + first_bit(word)] += times
            word &= word - np.uint64(1)


@kernel
def lay_out(words: npt.NDArray[np.uint64], s: Scratch) -> int:
    """The axes of a part into list_axis; how many. Last comes the one that is long and that few trees test: see _add_trees."""
    n = 0
    for w in range(len(words)):
        word = words[w]
        while word != 0:
            a = np.int64(np.uint64(w << 6) + first_bit(word))
            word &= word - np.uint64(1)
            i = n
            while i > 0 and s.users[s.list_axis[i - 1]] * s.group_n[a] < s.users[a] * s.group_n[s.list_axis[i - 1]]:
                s.list_axis[i] = s.list_axis[i - 1]
                i -= 1
            s.list_axis[i] = a
            n += 1
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
    constant: np.int64,
    out: npt.NDArray[np.int64],
) -> None:
    """The part's grid becomes the sum of a constant and the trees s.trees[:n_trees].

    Trees with the same scope share a table. `out` grows axis by axis: a table joins as soon as all its axes are there, so only
    those of the last axis are spread over the whole grid.
    """
    for t in range(n_trees):
        scope = arena.axes[s.trees[t]]
        s.ripe[t] = -1
        for i in range(n_axes - 1, -1, -1):
            a = s.list_axis[i]
            if (scope[a >> 6] >> np.uint64(a & 63)) & np.uint64(1):
                s.ripe[t] = i
                break
    cells = 1
    out[0] = constant
    for grown in range(n_axes):
        size = s.size[grown]
        for cell in range(cells - 1, -1, -1):  # from the end, so that entries are read before they are overwritten
            value = out[cell]
            start = np.uint64(cell * size)
            for g in range(np.uint64(size)):
                out[start + g] = value
        cells *= size
        for t in range(n_trees):
            if s.ripe[t] == grown:
                _add_scope(arena, cuts, chain, s, t, n_trees, grown, out)


@spliced
def _add_scope(
    arena: Arena,
    cuts: Cuts,
    chain: npt.NDArray[np.bool_],
    s: Scratch,
    first: int,
    n_trees: int,
    grown: int,
    out: npt.NDArray[np.int64],
) -> None:
    """Add the tree s.trees[first], and the later ones with the same scope, to the grid of the axes 0..grown."""
    scope = s.scope_axes
    for w in range(len(scope)):
        scope[w] = arena.axes[s.trees[first], w]
    n_same = 0
    for u in range(first, n_trees):
        if s.ripe[u] == grown:
            tree = s.trees[u]
            same = True
            for w in range(len(scope)):
                same &= arena.axes[tree, w] == scope[w]
            if same:
                s.ripe[u] = -1
                s.same[n_same] = tree
                n_same += 1
    _spread(arena, cuts, chain, s, n_same, n_same, grown + 1, out)


@spliced
def _spread(arena: Arena, cuts: Cuts, chain: npt.NDArray[np.bool_], s: Scratch, n_plus: int, n_all: int, n_axes: int,
            out: npt.NDArray[np.int64]) -> None:  # fmt: skip
    """Add the first trees of s.same to the grid of the first axes and take the others away; s.scope_axes holds all of theirs."""
    scope = s.scope_axes
    size = 1
    for i in range(n_axes - 1, -1, -1):
        a = s.list_axis[i]
        if (scope[a >> 6] >> np.uint64(a & 63)) & np.uint64(1):
            s.stride[i] = size
            size *= s.size[i]
        else:
            s.stride[i] = 0
    n_own = 0  # chain axes of the scope, filled in blocks
    n_free = 0  # its other axes, walked cell by cell
    for i in range(n_axes):
        if s.stride[i]:
            axis = s.list_axis[i]
            if chain[axis]:
                s.own[n_own] = axis
                s.own_at[axis] = n_own
                s.own_stride[n_own] = s.stride[i]
                n_own += 1
            else:
                s.free[n_free] = i
                s.odometer[i] = 0
                s.now[axis] = s.group_cell[axis, 0]
                n_free += 1
    for cell in range(np.uint64(size)):
        s.scope[cell] = 0
    at = 0
    while True:
        for u in range(n_all):
            _fill(arena.record, cuts, chain, s, s.same[u], 1 if u < n_plus else -1, n_own, at)
        j = n_free - 1
        while j >= 0:
            i = s.free[j]
            axis = s.list_axis[i]
            s.odometer[i] += 1
            at += s.stride[i]
            if s.odometer[i] < s.size[i]:
                s.now[axis] = s.group_cell[axis, s.odometer[i]]
                break
            at -= s.stride[i] * s.size[i]
            s.odometer[i] = 0
            s.now[axis] = s.group_cell[axis, 0]
            j -= 1
        if j < 0:
            break
    _broadcast(s.scope, s.stride, s, n_axes, out)


@inlined
def _broadcast(
    scope: npt.NDArray[np.int64], stride: npt.NDArray[np.int64], s: Scratch, n_axes: int, out: npt.NDArray[np.int64]
) -> None:
    """out[grid point] += scope table at the point's coordinates in the scope. Unsigned indices are not checked for signs.

    Neighbouring axes that are all in the scope, or all outside it, are one long axis.
    """
    if n_axes == 0:  # the grid is a single point
        out[0] += scope[0]
        return
    run, run_stride, odometer = s.run, s.run_stride, s.odometer
    n = 0
    for i in range(n_axes):
        if n > 0 and run_stride[n - 1] == stride[i] * s.size[i]:
            run[n - 1] *= s.size[i]
            run_stride[n - 1] = stride[i]
        else:
            run[n] = s.size[i]
            run_stride[n] = stride[i]
            n += 1
    for i in range(n):
        odometer[i] = 0
    inner = np.uint64(run[n - 1])
    varies = run_stride[n - 1] != 0
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
        i = n - 2
        while i >= 0:
            odometer[i] += 1
            source += np.uint64(run_stride[i])
            if odometer[i] < run[i]:
                break
            source -= np.uint64(run_stride[i] * run[i])
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
        _add_trees(arena, cuts, chain, s, _trees_of_part(arena, stack, f, k, s), n_axes, np.int64(0), values)
        for i in range(n - 1, -1, -1):  # from the end, so that entries are read before they are overwritten
            v, m = s.value[row, i], s.mass[row, i]
            for j in range(size):
                s.value[row, i * size + j] = v + values[j]
                s.mass[row, i * size + j] = m * s.grid_mass[j]
        n *= size
    return n


@spliced
def _class_table(arena: Arena, cuts: Cuts, chain: npt.NDArray[np.bool_], stack: Stack, f: int, s: Scratch, c: int,
                 n_axes: int) -> np.int64:  # fmt: skip
    """What sets class c apart from the others, over the axes of the rows alone: a constant, and a table in s.own_part.

    s.list_axis holds these axes. The table of the class before becomes this one's: most of their trees are the same.
    """
    record, rows = arena.record, stack.rows
    constant = stack.offset[f, c]
    count = 0
    for r in range(stack.n_rows[f]):
        tree = rows[f, r, c]
        if record[tree]["cut"] < 0:
            constant += record[tree]["min"]
        elif c == 0:
            s.trees[count] = tree
            count += 1
    if c == 0:
        _add_trees(arena, cuts, chain, s, count, n_axes, np.int64(0), s.own_part)
        return np.int64(constant)
    for r in range(stack.n_rows[f]):
        tree, before = rows[f, r, c], rows[f, r, c - 1]
        if tree == before:
            continue
        n_plus = 0
        if record[tree]["cut"] >= 0:
            s.same[0] = tree
            n_plus = 1
        n_all = n_plus
        if record[before]["cut"] >= 0:
            s.same[n_all] = before
            n_all += 1
        if n_all == 0:
            continue
        for w in range(len(s.scope_axes)):
            s.scope_axes[w] = arena.axes[tree, w] | arena.axes[before, w]
        _spread(arena, cuts, chain, s, n_plus, n_all, n_axes, s.own_part)
    return np.int64(constant)


@kernel
def _lay_out_rows(s: Scratch) -> tuple[int, int]:
    """The axes of the sensitive-dependent trees into list_axis, in the order they have in the vector part; how many, and cells.

    Leaves s.row_stride: their strides in a table over these axes, by their place in the vector part.
    """
    n_axes = lay_out(s.part_axes[0], s)
    cells = 1
    for i in range(n_axes - 1, -1, -1):
        a = s.list_axis[i]
        if (s.row_axes[a >> 6] >> np.uint64(a & 63)) & np.uint64(1):
            s.row_stride[i] = cells
            cells *= s.size[i]
        else:
            s.row_stride[i] = 0
    n = 0
    for i in range(n_axes):
        if s.row_stride[i]:
            s.list_axis[n] = s.list_axis[i]
            s.size[n] = s.size[i]
            n += 1
    return n, cells


@kernel
def vector_extremes(arena: Arena, cuts: Cuts, chain: npt.NDArray[np.bool_], stack: Stack, f: int, s: Scratch) -> int:
    """The smallest and the largest margin over the classes of every cell of the vector part, into s.extreme; how many cells.

    Common trees add the same to all classes, so who is least is found among the rows alone, on the smaller grid of their axes.
    """
    n_own, cells = _lay_out_rows(s)
    least, most, own = s.row_extreme[0], s.row_extreme[1], s.own_part
    for c in range(stack.n_classes[f]):
        constant = _class_table(arena, cuts, chain, stack, f, s, c, n_own)
        for cell in range(np.uint64(cells)):
            value = own[cell] + constant
            least[cell] = value if c == 0 else min(least[cell], value)
            most[cell] = value if c == 0 else max(most[cell], value)
    n_axes = lay_out(s.part_axes[0], s)
    size = _grid_masses(s, n_axes, s.grid_mass)
    _add_trees(arena, cuts, chain, s, _trees_of_part(arena, stack, f, 0, s), n_axes, np.int64(0), s.extreme[0])
    for cell in range(np.uint64(size)):
        s.extreme[1, cell] = s.extreme[0, cell]
    _broadcast(least, s.row_stride, s, n_axes, s.extreme[0])
    _broadcast(most, s.row_stride, s, n_axes, s.extreme[1])
    return size


@kernel
def vector_part(arena: Arena, cuts: Cuts, chain: npt.NDArray[np.bool_], stack: Stack, f: int, s: Scratch) -> int:
    """Margins of the vector part (offsets included), one row of s.grid a class, and their extremes; how many cells."""
    n = stack.n_classes[f]
    n_axes = lay_out(s.part_axes[0], s)
    size = _grid_masses(s, n_axes, s.grid_mass)
    common = s.extreme[0]
    _add_trees(arena, cuts, chain, s, _trees_of_part(arena, stack, f, 0, s), n_axes, np.int64(0), common)
    for c in range(n):
        n_own, _ = _lay_out_rows(s)
        constant = _class_table(arena, cuts, chain, stack, f, s, c, n_own)
        lay_out(s.part_axes[0], s)
        margins = s.grid[c]
        for cell in range(np.uint64(size)):
            margins[cell] = common[cell] + constant
        _broadcast(s.own_part, s.row_stride, s, n_axes, margins)
    for cell in range(size):
        least = s.grid[0, cell]
        most = least
        for c in range(1, n):
            least = min(least, s.grid[c, cell])
            most = max(most, s.grid[c, cell])
        s.extreme[0, cell] = least
        s.extreme[1, cell] = most
    return size
