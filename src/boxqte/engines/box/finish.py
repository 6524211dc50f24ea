"""Finishing a box in value space: where trees no longer interact, count sums of independent values instead of cells.

The residual trees of a node fall apart into components that share no axis. The components that touch a
sensitive-dependent tree form the vector part: a dense grid of margins, one per class. Every other component is a scalar:
a list of (value, mass). The scalars are summed into two lists A and B; for a vector cell and an entry of A, the share of
B that makes the box unfair is a difference of two entries of B's distribution function (docs/engine.md, Theorem 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import kernel
from boxqte.engines.box.records import Arena, Cuts

if TYPE_CHECKING:
    from boxqte.engines.box.exchange import Axes, Rules, Stack

FAIR, UNFAIR, LOW, AMBIGUOUS = 0, 1, 2, 3


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
    part_cuts: npt.NDArray[np.uint64]
    part_cells: npt.NDArray[np.float64]
    part_side: npt.NDArray[np.int8]
    """1: the scalar goes into list A, 2: into list B"""
    n_parts: npt.NDArray[np.int32]
    group_n: npt.NDArray[np.int32]
    group_cell: npt.NDArray[np.int32]
    """axis x group: one of its cells"""
    group_mass: npt.NDArray[np.float64]
    now: npt.NDArray[np.int32]
    """axis -> the cell of the current grid point"""
    list_axis: npt.NDArray[np.int32]
    stride: npt.NDArray[np.int64]
    odometer: npt.NDArray[np.int32]
    done: npt.NDArray[np.bool_]
    trees: npt.NDArray[np.uint32]
    same: npt.NDArray[np.uint32]
    own: npt.NDArray[np.int32]
    scope: npt.NDArray[np.int64]
    grid: npt.NDArray[np.int64]
    """class x cell"""
    grid_mass: npt.NDArray[np.float64]
    extreme: npt.NDArray[np.int64]
    """[min, max] x cell"""
    value: npt.NDArray[np.int64]
    """[A, B, merge buffer] x entry"""
    mass: npt.NDArray[np.float64]
    prefix: npt.NDArray[np.float64]
    bucket: npt.NDArray[np.int32]


@kernel
def popcount(word: np.uint64) -> int:
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def _count_bits(words: npt.NDArray[np.uint64], low: int, high: int) -> int:
    """How many of the bits low..high-1 are set."""
    total = 0
    at = low
    while at < high:
        w = at >> 6
        stop = min(high, (w + 1) << 6)
        word = words[w] >> np.uint64(at & 63)
        width = stop - at
        if width < 64:
            word &= (np.uint64(1) << np.uint64(width)) - np.uint64(1)
        total += popcount(word)
        at = stop
    return total


@kernel
def _overlap(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> bool:
    for w in range(len(a)):
        if a[w] & b[w]:
            return True
    return False


@kernel
def _split_into_parts(arena: Arena, stack: Stack, f: int, s: Scratch) -> None:
    """Connected components of the residual trees under 'share an axis'; component 0 holds all sensitive-dependent ones."""
    tree_axes, tree_cuts, part_axes, part_cuts = arena.axes, arena.cuts, s.part_axes, s.part_cuts
    n_words, n_cut_words = tree_axes.shape[1], tree_cuts.shape[1]
    for w in range(n_words):
        part_axes[0, w] = 0
    for r in range(stack.n_rows[f]):
        for c in range(stack.n_classes[f]):
            tree = stack.rows[f, r, c]
            for w in range(n_words):
                part_axes[0, w] |= tree_axes[tree, w]
    n = 1
    for t in range(stack.n_common[f]):
        tree = stack.common[f, t]
        target = -1
        k = 0
        while k < n:
            shared = False
            for w in range(n_words):
                shared |= (part_axes[k, w] & tree_axes[tree, w]) != 0
            if shared:
                if target < 0:
                    target = k
                else:  # the tree connects two components
                    n -= 1
                    for w in range(n_words):
                        part_axes[target, w] |= part_axes[k, w]
                        part_axes[k, w] = part_axes[n, w]
                    continue
            k += 1
        if target < 0:
            target = n
            n += 1
            for w in range(n_words):
                part_axes[target, w] = 0
        for w in range(n_words):
            part_axes[target, w] |= tree_axes[tree, w]
    for k in range(n):
        for w in range(n_cut_words):
            part_cuts[k, w] = 0
    for r in range(stack.n_rows[f]):
        for c in range(stack.n_classes[f]):
            tree = stack.rows[f, r, c]
            for w in range(n_cut_words):
                part_cuts[0, w] |= tree_cuts[tree, w]
    for t in range(stack.n_common[f]):
        tree = stack.common[f, t]
        for k in range(n):
            shared = False
            for w in range(n_words):
                shared |= (part_axes[k, w] & tree_axes[tree, w]) != 0
            if shared:
                for w in range(n_cut_words):
                    part_cuts[k, w] |= tree_cuts[tree, w]
                break
    s.n_parts[0] = n


@kernel
def _n_groups(axes: Axes, cuts: Cuts, stack: Stack, f: int, words: npt.NDArray[np.uint64], axis: int) -> int:
    """An upper bound on the groups of cells that the cuts tell apart on the axis; exact on a chain."""
    active = _count_bits(words, cuts.start[axis], cuts.start[axis + 1])
    if axes.chain[axis]:
        return active + 1
    cells = 0
    for w in range(stack.domain.shape[2]):
        cells += popcount(stack.domain[f, axis, w])
    return min(cells, 1 << min(active, 30))


@kernel
def finish_cost(arena: Arena, axes: Axes, cuts: Cuts, stack: Stack, f: int, s: Scratch) -> float:
    """cells(A) + 4 cells(B) of the best greedy division of the scalars; leaves the division in the scratch."""
    _split_into_parts(arena, stack, f, s)
    n = s.n_parts[0]
    for k in range(n):
        cells = 1.0
        for w in range(s.part_axes.shape[1]):
            word = s.part_axes[k, w]
            a = w << 6
            while word:
                if word & np.uint64(1):
                    cells *= _n_groups(axes, cuts, stack, f, s.part_cuts[k], a)
                word >>= np.uint64(1)
                a += 1
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
    return in_a + 4 * in_b


@kernel
def _group_axis(axes: Axes, cuts: Cuts, stack: Stack, f: int, words: npt.NDArray[np.uint64], axis: int, s: Scratch) -> None:
    """Collect the box's cells on the axis into groups that the part's cuts do not tell apart."""
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
                if (words[k >> 6] >> np.uint64(k & 63)) & np.uint64(1):
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


@kernel
def _value_at(
    record: npt.NDArray[np.void],
    cut_axis: npt.NDArray[np.int32],
    mask: npt.NDArray[np.uint64],
    tree: np.uint32,
    now: npt.NDArray[np.int32],
) -> np.int64:
    """The residual tree's value at the grid point whose cells are `now`."""
    cut = record[tree]["cut"]
    while cut >= 0:
        cell = now[cut_axis[cut]]
        if (mask[cut, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1):
            tree = record[tree]["yes"]
        else:
            tree = record[tree]["no"]
        cut = record[tree]["cut"]
    return record[tree]["min"]


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
    return n


@kernel
def _add_trees(arena: Arena, cuts: Cuts, s: Scratch, n_trees: int, n_axes: int, out: npt.NDArray[np.int64]) -> None:
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
        n_own = 0
        for i in range(n_axes):
            if s.stride[i]:
                s.own[n_own] = s.list_axis[i]
                s.odometer[n_own] = 0
                s.now[s.list_axis[i]] = s.group_cell[s.list_axis[i], 0]
                n_own += 1
        for cell in range(size):
            total = np.int64(0)
            for u in range(n_same):
                total += _value_at(arena.record, cuts.axis, cuts.mask, s.same[u], s.now)
            s.scope[cell] = total
            i = n_own - 1
            while i >= 0:
                a = s.own[i]
                g = s.odometer[i] + 1
                if g == s.group_n[a]:
                    g = 0
                s.odometer[i] = g
                s.now[a] = s.group_cell[a, g]
                if g > 0:
                    break
                i -= 1
        _broadcast(s, n_axes, out)


@kernel
def _broadcast(s: Scratch, n_axes: int, out: npt.NDArray[np.int64]) -> None:
    """out[grid point] += scope table at the point's coordinates in the scope."""
    for i in range(n_axes):
        s.odometer[i] = 0
    inner = s.group_n[s.list_axis[n_axes - 1]]
    step = s.stride[n_axes - 1]
    at = 0
    source = np.int64(0)
    while True:
        if step == 1:
            for j in range(inner):
                out[at + j] += s.scope[source + j]
        else:
            value = s.scope[source]
            for j in range(inner):
                out[at + j] += value
        at += inner
        i = n_axes - 2
        while i >= 0:
            s.odometer[i] += 1
            source += s.stride[i]
            if s.odometer[i] < s.group_n[s.list_axis[i]]:
                break
            source -= s.stride[i] * s.group_n[s.list_axis[i]]
            s.odometer[i] = 0
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
def _sort_and_merge(value: npt.NDArray[np.int64], mass: npt.NDArray[np.float64], n: int) -> int:
    """Sort the entries by value and add up the masses of equal values; how many are left."""
    order = np.argsort(value[:n])
    v = value[:n].copy()
    m = mass[:n].copy()
    kept = 0
    for i in range(n):
        j = order[i]
        if kept > 0 and value[kept - 1] == v[j]:
            mass[kept - 1] += m[j]
        else:
            value[kept] = v[j]
            mass[kept] = m[j]
            kept += 1
    return kept


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
def _scalar_lists(arena: Arena, axes: Axes, cuts: Cuts, stack: Stack, f: int, s: Scratch, side: int) -> int:
    """The distribution of the sum of all scalars on one side, as sorted (value, mass) entries in row side-1."""
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
        _add_trees(arena, cuts, s, _trees_of_part(arena, stack, f, k, s), n_axes, values)
        size = _sort_and_merge(values, s.grid_mass, size)
        at = 0
        for i in range(n):
            for j in range(size):
                s.value[2, at] = s.value[row, i] + values[j]
                s.mass[2, at] = s.mass[row, i] * s.grid_mass[j]
                at += 1
        n = _sort_and_merge(s.value[2], s.mass[2], at) if n > 1 and size > 1 else at
        for i in range(n):
            s.value[row, i] = s.value[2, i]
            s.mass[row, i] = s.mass[2, i]
    return n


@kernel
def _vector_part(arena: Arena, cuts: Cuts, stack: Stack, f: int, s: Scratch) -> int:
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
    _add_trees(arena, cuts, s, _trees_of_part(arena, stack, f, 0, s), n_axes, s.extreme[0])
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
        _add_trees(arena, cuts, s, count, n_axes, s.grid[c])
        for cell in range(size):
            s.grid[c, cell] += s.extreme[0, cell]
    return size


@kernel
def _rank(value: npt.NDArray[np.int64], n: int, bucket: npt.NDArray[np.int32], shift: int, limit: np.int64) -> int:
    """How many of the sorted values are at most the limit."""
    if limit < value[0]:
        return 0
    if limit >= value[n - 1]:
        return n
    i = bucket[(limit - value[0]) >> shift]
    while value[i] <= limit:
        i += 1
    return i


@kernel
def _near(value: npt.NDArray[np.int64], n: int, prefix: npt.NDArray[np.float64], at: int, limit: np.int64, band: int) -> float:
    """The mass of the entries within `band` of the limit; `at` is the limit's rank."""
    high = at
    while high < n and value[high] <= limit + band:
        high += 1
    low = at
    while low > 0 and value[low - 1] >= limit - band:
        low -= 1
    return prefix[high] - prefix[low]


@kernel
def finish(arena: Arena, axes: Axes, cuts: Cuts, rules: Rules, stack: Stack, f: int, s: Scratch,
           masses: npt.NDArray[np.float64]) -> bool:  # fmt: skip
    """Settle the whole box by counting; False (and nothing counted) if 64 bits cannot place some margin exactly.

    finish_cost must have been called on this frame just before: the parts are in the scratch.
    """
    outside = 1.0
    for a in range(stack.axis_mass.shape[1]):
        part = -1
        for k in range(s.n_parts[0]):
            if (s.part_axes[k, a >> 6] >> np.uint64(a & 63)) & np.uint64(1):
                part = k
        if part < 0:
            outside *= stack.axis_mass[f, a]
        else:
            _group_axis(axes, cuts, stack, f, s.part_cuts[part], a, s)
    n_b = _scalar_lists(arena, axes, cuts, stack, f, s, 2)
    b = s.value[1]
    total = 0.0
    lost = 0.0  # Neumaier: keeps the prefix sums to one rounding each
    s.prefix[0] = 0.0
    for i in range(n_b):
        x = s.mass[1, i]
        t = total + x
        lost += (total - t) + x if total >= x else (x - t) + total
        total = t
        s.prefix[i + 1] = total + lost
    total = s.prefix[n_b]
    shift = 0
    while (b[n_b - 1] - b[0]) >> shift >= len(s.bucket) - 1:
        shift += 1
    i = 0
    for k in range(((b[n_b - 1] - b[0]) >> shift) + 1):
        while i < n_b and (b[i] - b[0]) >> shift < k:
            i += 1
        s.bucket[k] = i
    n_a = _scalar_lists(arena, axes, cuts, stack, f, s, 1)
    a_value = s.value[0]
    n_cells = _vector_part(arena, cuts, stack, f, s)
    n = stack.n_classes[f]
    for cell in range(n_cells):
        least = s.grid[0, cell]
        most = least
        for c in range(1, n):
            least = min(least, s.grid[c, cell])
            most = max(most, s.grid[c, cell])
        s.extreme[0, cell] = least
        s.extreme[1, cell] = most
    prefix = s.prefix
    unfair = 0.0
    low = 0.0
    near = 0.0
    fuzzy = 0.0
    everything = 0.0
    for i in range(n_a):
        sum_unfair = 0.0
        sum_low = 0.0
        sum_all = 0.0
        for cell in range(n_cells):
            w = s.grid_mass[cell]
            sum_all += w
            least = s.extreme[0, cell] + a_value[i]
            most = s.extreme[1, cell] + a_value[i]
            if rules.simple:
                if least == most:
                    continue
                at_least = _rank(b, n_b, s.bucket, shift, rules.neg - least)
                at_most = _rank(b, n_b, s.bucket, shift, rules.neg - most)
                sum_unfair += w * (prefix[at_least] - prefix[at_most])
                near += w * s.mass[0, i] * (_near(b, n_b, prefix, at_least, rules.neg - least, rules.band)
                                            + _near(b, n_b, prefix, at_most, rules.neg - most, rules.band))  # fmt: skip
                if rules.fuzz > 0:
                    fuzzy += (_near(b, n_b, prefix, at_least, rules.neg - least, rules.fuzz)
                              + _near(b, n_b, prefix, at_most, rules.neg - most, rules.fuzz))  # fmt: skip
                continue
            some_neg = _rank(b, n_b, s.bucket, shift, rules.neg - least)
            no_pos = _rank(b, n_b, s.bucket, shift, rules.pos - 1 - most)
            edge = 0.0
            tight = 0.0
            if least != most:
                edge = (_near(b, n_b, prefix, some_neg, rules.neg - least, rules.band)
                        + _near(b, n_b, prefix, no_pos, rules.pos - 1 - most, rules.band))  # fmt: skip
                if rules.fuzz > 0:
                    tight = (_near(b, n_b, prefix, some_neg, rules.neg - least, rules.fuzz)
                             + _near(b, n_b, prefix, no_pos, rules.pos - 1 - most, rules.fuzz))  # fmt: skip
            for c in range(n):
                v = s.grid[c, cell] + a_value[i]
                below_pos = _rank(b, n_b, s.bucket, shift, rules.conf_pos - 1 - v)
                in_neg = _rank(b, n_b, s.bucket, shift, rules.conf_neg - v)
                share = w * stack.class_mass[f, c]
                sum_low += share * (prefix[below_pos] - prefix[in_neg])
                if some_neg > below_pos:
                    sum_unfair += share * (prefix[some_neg] - prefix[below_pos])
                if in_neg > no_pos:
                    sum_unfair += share * (prefix[in_neg] - prefix[no_pos])
                near += share * s.mass[0, i] * (edge + _near(b, n_b, prefix, below_pos, rules.conf_pos - 1 - v, rules.band)
                                                + _near(b, n_b, prefix, in_neg, rules.conf_neg - v, rules.band))  # fmt: skip
                if rules.fuzz > 0:
                    fuzzy += (tight + _near(b, n_b, prefix, below_pos, rules.conf_pos - 1 - v, rules.fuzz)
                              + _near(b, n_b, prefix, in_neg, rules.conf_neg - v, rules.fuzz))  # fmt: skip
        unfair += s.mass[0, i] * sum_unfair
        low += s.mass[0, i] * sum_low
        everything += s.mass[0, i] * sum_all
    if fuzzy > 0.0:
        return False
    everything *= total
    masses[UNFAIR] += outside * unfair
    masses[LOW] += outside * low
    masses[FAIR] += outside * max(everything - unfair - low, 0.0)
    masses[AMBIGUOUS] += outside * min(near, everything)
    return True
