"""Finishing a box in value space: where trees no longer interact, count sums of independent values instead of cells.

The residual trees of a node fall apart into components that share no axis. The components that touch a
sensitive-dependent tree form the vector part: a dense grid of margins, one per class. Every other component is a
scalar: a list of (value, mass). The scalars are summed into two lists A and B; for a vector cell and an entry of A, the
share of B that makes the box unfair is a difference of two entries of B's distribution function (docs/engine.md,
Theorem 4).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import inlined, kernel
from boxqte.engines.box.records import Arena, Cuts
from boxqte.engines.box.sorting import sort_together
from boxqte.engines.box.state import AMBIGUOUS, FAIR, LOW, N_KINDS, UNFAIR, Axes, Rules, Stack, add_mass, box_mass

BLOCK = 64  # sums are taken in blocks of this many terms: fewer roundings on the way to each sum


class Scratch(NamedTuple):
    """Working memory of one worker, allocated once."""

    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]
    verdict: npt.NDArray[np.int64]
    masses: npt.NDArray[np.float64]
    score: npt.NDArray[np.float64]
    best: npt.NDArray[np.int32]
    part_axes: npt.NDArray[np.uint64]
    """component x word; component 0 is the vector part"""
    active: npt.NDArray[np.uint64]
    """the cuts that some residual tree tests"""
    part_cells: npt.NDArray[np.float64]
    part_side: npt.NDArray[np.int8]
    """1: the scalar goes into list A, 2: into list B"""
    n_parts: npt.NDArray[np.int32]
    group_n: npt.NDArray[np.int32]
    group_cell: npt.NDArray[np.int32]
    """axis x group: one of its cells"""
    group_mass: npt.NDArray[np.float64]
    group_at: npt.NDArray[np.int32]
    """cut of a chain axis -> how many groups it sends to `yes`"""
    first: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    """axis -> the range of groups of the block being filled"""
    now: npt.NDArray[np.int32]
    """axis -> the cell of the current grid point"""
    list_axis: npt.NDArray[np.int32]
    stride: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    odometer: npt.NDArray[np.int32]
    done: npt.NDArray[np.bool_]
    trees: npt.NDArray[np.uint32]
    same: npt.NDArray[np.uint32]
    own: npt.NDArray[np.int32]
    own_stride: npt.NDArray[np.int64]
    free: npt.NDArray[np.int32]
    scope: npt.NDArray[np.int64]
    grid: npt.NDArray[np.int64]
    """class x cell"""
    grid_mass: npt.NDArray[np.float64]
    extreme: npt.NDArray[np.int64]
    """[min, max] x cell"""
    value: npt.NDArray[np.int64]
    """[A, B, sorting buffer] x entry"""
    key: npt.NDArray[np.int64]
    mass: npt.NDArray[np.float64]
    prefix: npt.NDArray[np.float64]
    bucket: npt.NDArray[np.int32]


@inlined
def popcount(word: np.uint64) -> int:
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))  # type: ignore[return-value]


@inlined
def _overlap(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> bool:
    for w in range(len(a)):  # noqa: SIM110 (a generator costs more here)
        if a[w] & b[w]:
            return True
    return False


@kernel
def _split_into_parts(arena: Arena, stack: Stack, f: int, s: Scratch) -> int:
    """Connected components of the residual trees under 'share an axis'; component 0 holds all sensitive-dependent ones.

    Also the union of all cuts: an axis belongs to one component, so its active cuts are that component's.
    """
    tree_axes, tree_cuts, part_axes, active = arena.axes, arena.cuts, s.part_axes, s.active
    n_words, n_cut_words = tree_axes.shape[1], tree_cuts.shape[1]
    for w in range(n_cut_words):
        active[w] = 0
    for w in range(n_words):
        part_axes[0, w] = 0
    for r in range(stack.n_rows[f]):
        for c in range(stack.n_classes[f]):
            tree = stack.rows[f, r, c]
            for w in range(n_words):
                part_axes[0, w] |= tree_axes[tree, w]
            for w in range(n_cut_words):
                active[w] |= tree_cuts[tree, w]
    n = 1
    for t in range(stack.n_common[f]):
        tree = stack.common[f, t]
        for w in range(n_cut_words):
            active[w] |= tree_cuts[tree, w]
        target = -1
        k = 0
        while k < n:
            shared = np.uint64(0)
            for w in range(n_words):
                shared |= part_axes[k, w] & tree_axes[tree, w]
            if shared:
                if target < 0:
                    target = k
                    for w in range(n_words):
                        part_axes[k, w] |= tree_axes[tree, w]
                else:  # the tree connects two components
                    n -= 1
                    for w in range(n_words):
                        part_axes[target, w] |= part_axes[k, w]
                        part_axes[k, w] = part_axes[n, w]
                    continue
            k += 1
        if target < 0:
            for w in range(n_words):
                part_axes[n, w] = tree_axes[tree, w]
            n += 1
    return n


@inlined
def _count_bits(words: npt.NDArray[np.uint64], low: int, high: int) -> int:
    """How many of the bits low..high-1 are set."""
    total = 0
    while low < high:
        w = low >> 6
        stop = min(high, (w + 1) << 6)
        word = words[w] >> np.uint64(low & 63)
        if stop - low < 64:
            word &= (np.uint64(1) << np.uint64(stop - low)) - np.uint64(1)
        total += popcount(word)
        low = stop
    return total


@kernel
def finish_cost(arena: Arena, axes: Axes, cuts: Cuts, stack: Stack, f: int, s: Scratch) -> float:
    """cells(A) + 4 cells(B) of the best greedy division of the scalars; leaves the division in the scratch."""
    active, start, chain, domain = s.active, cuts.start, axes.chain, stack.domain
    n = _split_into_parts(arena, stack, f, s)
    s.n_parts[0] = n
    for k in range(n):
        cells = 1.0
        for w in range(s.part_axes.shape[1]):
            word = s.part_axes[k, w]
            while word:
                lowest = word & (~word + np.uint64(1))
                word ^= lowest
                axis = (w << 6) + popcount(lowest - np.uint64(1))
                n_active = _count_bits(active, start[axis], start[axis + 1])
                if chain[axis]:
                    cells *= n_active + 1
                else:  # an upper bound: how many groups sets tell apart is counted only when the box is finished
                    held = 0
                    for v in range(domain.shape[2]):
                        held += popcount(domain[f, axis, v])
                    cells *= min(held, 1 << min(n_active, 30))
        s.part_cells[k] = cells
        s.part_side[k] = 0
    in_a = s.part_cells[0]
    in_b = 1.0
    for _ in range(1, n):
        k = -1
        for j in range(1, n):
            if s.part_side[j] == 0 and (k < 0 or s.part_cells[j] > s.part_cells[k]):
                k = j
        if in_a * s.part_cells[k] + 4 * in_b <= in_a + 4 * in_b * s.part_cells[k]:
            s.part_side[k] = 1
            in_a *= s.part_cells[k]
        else:
            s.part_side[k] = 2
            in_b *= s.part_cells[k]
    return in_a + 4 * in_b  # type: ignore[no-any-return]


@kernel
def _group_axis(axes: Axes, cuts: Cuts, stack: Stack, f: int, axis: int, s: Scratch) -> None:
    """Collect the box's cells on the axis into groups that the active cuts do not tell apart."""
    n = 0
    for c in range(axes.n_cells[axis]):
        if not (stack.domain[f, axis, c >> 6] >> np.uint64(c & 63)) & np.uint64(1):
            continue
        found = -1
        first = n - 1 if axes.chain[axis] and n > 0 else 0
        for g in range(first, n):
            rep = s.group_cell[axis, g]
            same = True
            for k in range(cuts.start[axis], cuts.start[axis + 1]):
                if (s.active[k >> 6] >> np.uint64(k & 63)) & np.uint64(1):
                    one = cuts.mask[k, c >> 6] >> np.uint64(c & 63)
                    two = cuts.mask[k, rep >> 6] >> np.uint64(rep & 63)
                    if (one ^ two) & np.uint64(1):
                        same = False
                        break
            if same:
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
def _lay_out(words: npt.NDArray[np.uint64], s: Scratch) -> int:
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
    """out[grid point] += scope table at the point's coordinates in the scope."""
    for i in range(n_axes):
        odometer[i] = 0
    inner = size[n_axes - 1]
    step = stride[n_axes - 1]
    at = 0
    source = np.int64(0)
    while True:
        if step == 1:
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
            source += stride[i]
            if odometer[i] < size[i]:
                break
            source -= stride[i] * size[i]
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
        if _overlap(arena.axes[tree], s.part_axes[k]):
            s.trees[n] = tree
            n += 1
    return n


@kernel
def _scalar_list(
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
        n_axes = _lay_out(s.part_axes[k], s)
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
def _sort(s: Scratch, n: int) -> tuple[int, int]:
    """Sort list B by value: count into buckets of equal width, then insertion inside each.

    Leaves s.key (the sorted values between two sentinels) and s.bucket as `_rank` reads them, and the masses in order;
    returns the buckets' width in bits and the last bucket.
    """
    value, mass, bucket, key = s.value[1], s.mass[1], s.bucket, s.key
    low = value[0]
    high = value[0]
    for i in range(1, n):
        low = min(low, value[i])
        high = max(high, value[i])
    n_buckets = 8
    while n_buckets < 2 * n:
        n_buckets *= 2
    n_buckets = min(n_buckets, len(bucket) - 8)
    shift = 0
    while (high - low) >> shift >= n_buckets:
        shift += 1
    top = (high - low) >> shift
    for k in range(top + 5):
        bucket[k] = 0
    for i in range(n):
        bucket[((value[i] - low) >> shift) + 2] += 1
        s.mass[2, i] = mass[i]
    for k in range(2, top + 5):  # bucket[k + 1] is now where bucket k begins
        bucket[k] += bucket[k - 1]
    for i in range(n):
        k = (value[i] - low) >> shift
        at = bucket[k + 1]
        bucket[k + 1] += 1
        key[at + 1] = value[i]
        mass[at] = s.mass[2, i]
    for k in range(top + 1, 0, -1):  # every entry advanced its bucket's start to its end
        bucket[k + 1] = bucket[k]
    bucket[1] = 0
    bucket[top + 2] = n
    bucket[top + 3] = n
    bucket[top + 4] = n
    key[0] = -(np.int64(1) << 62)
    key[n + 1] = np.int64(1) << 62
    for k in range(top + 1):
        first, stop = bucket[k + 1], bucket[k + 2]
        if stop - first > 24:  # values crowd together: insertion would be quadratic
            sort_together(key[first + 1 : stop + 1], s.value[2, first:stop], mass[first:stop])
            continue
        for i in range(first + 1, stop):
            v, m = key[i + 1], mass[i]
            j = i - 1
            while j >= first and key[j + 1] > v:
                key[j + 2] = key[j + 1]
                mass[j + 1] = mass[j]
                j -= 1
            key[j + 2] = v
            mass[j + 1] = m
    return shift, top


@kernel
def _vector_part(arena: Arena, cuts: Cuts, chain: npt.NDArray[np.bool_], stack: Stack, f: int, s: Scratch) -> int:
    """Margins of the vector part (offsets included) into s.grid, one row a class; how many cells."""
    n = stack.n_classes[f]
    n_axes = _lay_out(s.part_axes[0], s)
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


@inlined
def _rank(key: npt.NDArray[np.int64], bucket: npt.NDArray[np.int32], shift: int, top: int, limit: np.int64) -> int:
    """How many values of B are at most the limit. Written without branches that a processor could guess wrong.

    key[1..n] are the sorted values between two sentinels; bucket[k + 1] is the rank at the lower end of bucket k.
    """
    k = min(max((limit - key[1]) >> shift, -1), top + 1) + 1
    i = bucket[k]
    if bucket[k + 1] - i > 16:  # values crowd together
        stop = bucket[k + 1]
        while i < stop:
            middle = (i + stop) >> 1
            if key[middle + 1] <= limit:
                i = middle + 1
            else:
                stop = middle
        return np.int64(i)  # type: ignore[return-value]
    rank = np.int64(i)
    rank += np.int64(key[rank + 1] <= limit)
    while key[rank + 1] <= limit:
        rank += 1
    return rank  # type: ignore[return-value]


@inlined
def _near(
    key: npt.NDArray[np.int64],
    prefix: npt.NDArray[np.float64],
    bucket: npt.NDArray[np.int32],
    shift: int,
    top: int,
    at: int,
    limit: np.int64,
    band: int,
) -> float:
    """The mass of the entries within `band` of the limit; `at` is the limit's rank."""
    if key[at + 1] > limit + band and key[at] < limit - band:
        return 0.0
    above = _rank(key, bucket, shift, top, limit + band)
    below = _rank(key, bucket, shift, top, limit - band - 1)
    return prefix[above] - prefix[below]  # type: ignore[no-any-return]


@kernel
def _count_signs(
    a_value: npt.NDArray[np.int64],
    a_mass: npt.NDArray[np.float64],
    n_a: int,
    least: npt.NDArray[np.int64],
    most: npt.NDArray[np.int64],
    cell_mass: npt.NDArray[np.float64],
    n_cells: int,
    key: npt.NDArray[np.int64],
    prefix: npt.NDArray[np.float64],
    bucket: npt.NDArray[np.int32],
    shift: int,
    top: int,
    neg: int,
    band: int,
    fuzz: int,
    out: npt.NDArray[np.float64],
) -> tuple[float, float]:
    """Unfair where the smallest margin is at most neg and the largest above it: a difference of two ranks in B.

    Returns the mass near a threshold, and a positive number if 64 bits cannot place some margin exactly.
    """
    out[:] = 0.0
    near = 0.0
    fuzzy = 0.0
    for i in range(n_a):
        limit = neg - a_value[i]
        for start in range(0, n_cells, BLOCK):
            block = 0.0
            for cell in range(start, min(start + BLOCK, n_cells)):
                low, high = limit - least[cell], limit - most[cell]
                if low == high and fuzz == 0:
                    continue
                w = cell_mass[cell]
                at_low = _rank(key, bucket, shift, top, low)
                at_high = _rank(key, bucket, shift, top, high)
                block += w * (prefix[at_low] - prefix[at_high])
                near += w * a_mass[i] * (_near(key, prefix, bucket, shift, top, at_low, low, band)
                                         + _near(key, prefix, bucket, shift, top, at_high, high, band))  # fmt: skip
                if fuzz > 0:
                    fuzzy += (_near(key, prefix, bucket, shift, top, at_low, low, fuzz)
                              + _near(key, prefix, bucket, shift, top, at_high, high, fuzz))  # fmt: skip
            add_mass(out, UNFAIR, a_mass[i] * block)
    return near, fuzzy


@kernel
def _count_confident(
    a_value: npt.NDArray[np.int64],
    a_mass: npt.NDArray[np.float64],
    n_a: int,
    least: npt.NDArray[np.int64],
    most: npt.NDArray[np.int64],
    margins: npt.NDArray[np.int64],
    class_mass: npt.NDArray[np.float64],
    n: int,
    cell_mass: npt.NDArray[np.float64],
    n_cells: int,
    key: npt.NDArray[np.int64],
    prefix: npt.NDArray[np.float64],
    bucket: npt.NDArray[np.int32],
    shift: int,
    top: int,
    pos: int,
    neg: int,
    conf_pos: int,
    conf_neg: int,
    band: int,
    fuzz: int,
    out: npt.NDArray[np.float64],
) -> tuple[float, float]:
    """Each class on its own: confident from its own margin, unfair if some class of the cell has the other sign."""
    out[:] = 0.0
    near = 0.0
    fuzzy = 0.0
    for i in range(n_a):
        part = 0.0
        doubt = 0.0
        a = a_value[i]
        for cell in range(n_cells):
            w = cell_mass[cell]
            neg_limit, pos_limit = neg - a - least[cell], pos - 1 - a - most[cell]
            some_neg = _rank(key, bucket, shift, top, neg_limit)
            no_pos = _rank(key, bucket, shift, top, pos_limit)
            edge = 0.0
            tight = 0.0
            if least[cell] != most[cell]:
                edge = (_near(key, prefix, bucket, shift, top, some_neg, neg_limit, band)
                        + _near(key, prefix, bucket, shift, top, no_pos, pos_limit, band))  # fmt: skip
            if fuzz > 0 and n > 1:
                tight = (_near(key, prefix, bucket, shift, top, some_neg, neg_limit, fuzz)
                         + _near(key, prefix, bucket, shift, top, no_pos, pos_limit, fuzz))  # fmt: skip
            cell_unfair = 0.0
            cell_unsure = 0.0
            for c in range(n):
                v = margins[c, cell] + a
                below_pos = _rank(key, bucket, shift, top, conf_pos - 1 - v)
                in_neg = _rank(key, bucket, shift, top, conf_neg - v)
                cell_unsure += class_mass[c] * (prefix[below_pos] - prefix[in_neg])
                if some_neg > below_pos:
                    cell_unfair += class_mass[c] * (prefix[some_neg] - prefix[below_pos])
                if in_neg > no_pos:
                    cell_unfair += class_mass[c] * (prefix[in_neg] - prefix[no_pos])
                near += w * class_mass[c] * a_mass[i] * (
                    edge
                    + _near(key, prefix, bucket, shift, top, below_pos, conf_pos - 1 - v, band)
                    + _near(key, prefix, bucket, shift, top, in_neg, conf_neg - v, band))  # fmt: skip
                if fuzz > 0:
                    fuzzy += (tight + _near(key, prefix, bucket, shift, top, below_pos, conf_pos - 1 - v, fuzz)
                              + _near(key, prefix, bucket, shift, top, in_neg, conf_neg - v, fuzz))  # fmt: skip
            part += w * cell_unfair
            doubt += w * cell_unsure
            if cell % BLOCK == BLOCK - 1 or cell == n_cells - 1:
                add_mass(out, UNFAIR, a_mass[i] * part)
                add_mass(out, LOW, a_mass[i] * doubt)
                part = 0.0
                doubt = 0.0
    return near, fuzzy


@kernel
def finish(arena: Arena, axes: Axes, cuts: Cuts, rules: Rules, stack: Stack, f: int, s: Scratch,
           masses: npt.NDArray[np.float64]) -> bool:  # fmt: skip
    """Settle the whole box by counting; False (and nothing counted) if 64 bits cannot place some margin exactly.

    finish_cost must have been called on this frame just before: the parts are in the scratch.
    """
    outside = 1.0
    for a in range(stack.axis_mass.shape[1]):
        inside = False
        for k in range(s.n_parts[0]):
            inside |= ((s.part_axes[k, a >> 6] >> np.uint64(a & 63)) & np.uint64(1)) != 0
        if inside:
            _group_axis(axes, cuts, stack, f, a, s)
        else:
            outside *= stack.axis_mass[f, a]
    n_b = _scalar_list(arena, cuts, axes.chain, stack, f, s, 2)
    shift, top = _sort(s, n_b)
    total = 0.0
    lost = 0.0  # Neumaier: keeps the prefix sums to one rounding each
    s.prefix[0] = 0.0
    for i in range(n_b):
        x = s.mass[1, i]
        t = total + x
        lost += (total - t) + x if total >= x else (x - t) + total
        total = t
        s.prefix[i + 1] = total + lost
    n_a = _scalar_list(arena, cuts, axes.chain, stack, f, s, 1)
    n_cells = _vector_part(arena, cuts, axes.chain, stack, f, s)
    n = stack.n_classes[f]
    for cell in range(n_cells):
        least = s.grid[0, cell]
        most = least
        for c in range(1, n):
            least = min(least, s.grid[c, cell])
            most = max(most, s.grid[c, cell])
        s.extreme[0, cell] = least
        s.extreme[1, cell] = most
    if rules.simple:
        near, fuzzy = _count_signs(
            s.value[0], s.mass[0], n_a, s.extreme[0], s.extreme[1], s.grid_mass, n_cells, s.key, s.prefix, s.bucket,
            shift, top, rules.neg, rules.band, rules.fuzz, s.masses,
        )  # fmt: skip
    else:
        near, fuzzy = _count_confident(
            s.value[0], s.mass[0], n_a, s.extreme[0], s.extreme[1], s.grid, stack.class_mass[f], n, s.grid_mass,
            n_cells, s.key, s.prefix, s.bucket, shift, top, rules.pos, rules.neg, rules.conf_pos, rules.conf_neg,
            rules.band, rules.fuzz, s.masses,
        )  # fmt: skip
    if fuzzy > 0.0:
        return False
    unfair = outside * (s.masses[UNFAIR] + s.masses[UNFAIR + N_KINDS])
    low = outside * (s.masses[LOW] + s.masses[LOW + N_KINDS])
    everything = box_mass(stack, f)
    add_mass(masses, UNFAIR, max(unfair, 0.0))
    add_mass(masses, LOW, max(low, 0.0))
    add_mass(masses, FAIR, max(everything - unfair - low, 0.0))
    add_mass(masses, AMBIGUOUS, min(outside * near, everything))
    return True
