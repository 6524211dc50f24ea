"""The search behind a point: does the window of x hold a cell of the other class? Kernels only, arrays in and out.

G is the margin, with its sign turned so that the other class is G <= target. A box is a range of cells on every axis.

- `shrink`: the trees on a box. A tree that no longer asks anything becomes a constant; one that asks about a single
  axis is added to that axis's *line* (a table over the axis's cells); the others stay as smaller trees. G on the box is
  at least the constant + the smallest entry of every line + the smallest leaf of every tree left.
- `dense`: G on all cells of a small box at once, by differences at the corners of the leaves and running sums.
- `find`: branch and bound over boxes with these two, depth first, the side that holds the best cell so far first.

Kernels of one family stay in one module: numba does not notice a change in another module's kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import inlined, kernel

LOW, FAIR, UNFAIR, UNKNOWN, CLOSE = 0, 1, 2, 3, 4
FREE_FRAMES = 48  # so deep the search chooses its cuts by what they do to the bound; below, it halves
LARGEST = np.iinfo(np.int64).max

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


class Search(NamedTuple):
    """The working memory of one thread: residual trees, one frame a level of the search, and room for dense boxes."""

    axis: Int32Array
    cut: Int32Array
    no: Int32Array
    value: Int64Array
    root: Int32Array
    least: Int64Array
    spread: Int64Array
    frame_low: Int32Array
    frame_high: Int32Array
    frame_tree: Int64Array
    frame_node: Int64Array
    frame_constant: Int64Array
    frame_lines: Int64Array
    frame_split: Int64Array
    path: Int64Array
    low: Int32Array
    high: Int32Array
    cell: Int32Array
    best: Int32Array
    active: npt.NDArray[np.bool_]
    score: Int64Array
    dense: Int64Array
    dims: Int64Array


@kernel
def shrink(forest, s, axis, cut, no, value, roots, first, last, sign, low, high, at, tree, lines):  # type: ignore
    """The trees first..last on the box low..high; (next free node, next free tree, constant, work).

    A node whose outcome is settled on the box disappears. A cut by a set keeps both sides while it is unsettled, even
    below another test of the same axis: the bound may be loose there, never wrong, and single cells settle everything.
    """
    constant = np.int64(0)
    work = np.int64(0)
    path = s.path
    for t in range(first, last):
        node = np.int64(roots[t])
        start = at
        least, most = LARGEST, -LARGEST
        only = np.int64(-2)  # the one axis that the tree asks about; -2: none so far, -1: several
        depth = 0
        while True:
            work += 1
            a = np.int64(axis[node])
            if a >= 0:
                c = np.int64(cut[node])
                if c >= 0:
                    if high[a] < c:
                        node += 1
                        continue
                    if low[a] >= c:
                        node = np.int64(no[node])
                        continue
                    only = a if only == -2 or only == a else np.int64(-1)
                else:
                    yes = forest.odd[-1 - c, high[a] + 1] - forest.odd[-1 - c, low[a]]
                    if yes == high[a] - low[a] + 1:
                        node += 1
                        continue
                    if yes == 0:
                        node = np.int64(no[node])
                        continue
                    only = np.int64(-1)
                s.axis[at] = a
                s.cut[at] = c
                path[depth, 0] = no[node]
                path[depth, 1] = at
                path[depth, 2] = low[a]
                path[depth, 3] = high[a]
                path[depth, 4] = 0
                depth += 1
                if c >= 0:
                    high[a] = c - 1
                at += 1
                node += 1
                continue
            v = sign * value[node]
            least = min(least, v)
            most = max(most, v)
            s.axis[at] = -1
            s.value[at] = v
            if only >= 0:  # where the leaf lies on the line, should the tree end up on one
                s.cut[at] = low[only]
                s.no[at] = high[only]
            at += 1
            while depth > 0 and path[depth - 1, 4] == 1:
                depth -= 1
                a = np.int64(s.axis[path[depth, 1]])
                low[a] = path[depth, 2]
                high[a] = path[depth, 3]
            if depth == 0:
                break
            here = path[depth - 1, 1]
            a = np.int64(s.axis[here])
            high[a] = path[depth - 1, 3]
            if s.cut[here] >= 0:
                low[a] = s.cut[here]
            s.no[here] = at
            path[depth - 1, 4] = 1
            node = path[depth - 1, 0]
        if only == -2:
            constant += least
            at = start
        elif only >= 0:
            line = lines[forest.line_start[only] : forest.line_start[only + 1]]
            for n in range(start, at):
                if s.axis[n] < 0:
                    for i in range(s.cut[n], s.no[n] + 1):
                        line[i] += s.value[n]
            at = start
        elif least == most:
            constant += least
            at = start
        else:
            s.root[tree] = start
            s.least[tree] = least
            s.spread[tree] = most - least
            tree += 1
    return at, tree, constant, work


@inlined
def line_bound(forest, low, high, lines, cell):  # type: ignore
    """The sum over axes of the smallest entry of the line within the box; `cell` gets where they are."""
    total = np.int64(0)
    for a in range(len(low)):
        start = forest.line_start[a]
        least, where = lines[start + low[a]], low[a]
        for i in range(low[a] + 1, high[a] + 1):
            if lines[start + i] < least:
                least, where = lines[start + i], np.int32(i)
        total += least
        cell[a] = where
    return total


@inlined
def line_sum(forest, lines, cell):  # type: ignore
    total = np.int64(0)
    for a in range(len(cell)):
        total += lines[forest.line_start[a] + cell[a]]
    return total


@inlined
def leaf_of(odd, axis, cut, no, node, cell):  # type: ignore
    """The leaf that a cell reaches from a node."""
    while axis[node] >= 0:
        a, c = np.int64(axis[node]), np.int64(cut[node])
        if c >= 0:
            yes = cell[a] < c
        else:
            yes = odd[-1 - c, cell[a] + 1] > odd[-1 - c, cell[a]]
        node = node + 1 if yes else np.int64(no[node])
    return node


@inlined
def residual_sum(forest, s, first, last, cell):  # type: ignore
    """The sum of the residual trees at a cell."""
    total = np.int64(0)
    for t in range(first, last):
        total += s.value[leaf_of(forest.odd, s.axis, s.cut, s.no, np.int64(s.root[t]), cell)]
    return total


@kernel
def margin(forest, base, cell):  # type: ignore
    """F at a cell, in 64 bits."""
    total = base
    for t in range(len(forest.roots)):
        total += forest.value[leaf_of(forest.odd, forest.axis, forest.cut, forest.no, np.int64(forest.roots[t]), cell)]
    return total


@inlined
def is_own(forest, own, cell):  # type: ignore
    """Whether the sensitive cells are those of x."""
    for a in range(len(own)):
        if forest.sensitive[a] and own[a] != cell[a]:
            return False
    return True


@kernel
def mark_active(s, forest, first, last, at_first, at_last, lines, low, high):  # type: ignore
    """Which axes G still depends on in the box."""
    active = s.active
    for a in range(len(low)):
        active[a] = False
        if low[a] < high[a]:
            start = forest.line_start[a]
            for i in range(low[a] + 1, high[a] + 1):
                if lines[start + i] != lines[start + low[a]]:
                    active[a] = True
                    break
    for n in range(at_first, at_last):
        if s.axis[n] >= 0:
            active[s.axis[n]] = True


@kernel
def add_corners(forest, s, first, last, low, high, dense, dims, n_dims):  # type: ignore
    """The differences of all residual trees: each leaf's value at the corners of its ranges of cells.

    A test cuts the range of its axis into runs of equal outcomes (two for a threshold), taken one after the other.
    """
    path = s.path
    for t in range(first, last):
        node = np.int64(s.root[t])
        depth = 0
        while True:
            a = np.int64(s.axis[node])
            if a >= 0:
                path[depth, 0] = node
                path[depth, 1] = a
                path[depth, 2] = low[a]
                path[depth, 3] = high[a]
                path[depth, 4] = low[a]
                depth += 1
            else:
                corner = np.int64(0)
                n_steps = 0
                for d in range(n_dims):
                    b = dims[d, 0]
                    corner += (low[b] - dims[d, 1]) * dims[d, 3]
                    if high[b] - dims[d, 1] + 1 < dims[d, 2]:
                        dims[n_steps, 4] = (high[b] - low[b] + 1) * dims[d, 3]
                        n_steps += 1
                for corners in range(1 << n_steps):
                    place, v = corner, s.value[node]
                    for k in range(n_steps):
                        if corners >> k & 1:
                            place += dims[k, 4]
                            v = -v
                    dense[place] += v
            while depth > 0 and path[depth - 1, 4] > path[depth - 1, 3]:  # all its runs are done
                depth -= 1
                a = path[depth, 1]
                low[a] = path[depth, 2]
                high[a] = path[depth, 3]
            if depth == 0:
                break
            here = path[depth - 1]
            node, a, begin, end = here[0], here[1], here[4], here[3] + 1
            c = np.int64(s.cut[node])
            if c >= 0:
                yes = begin < c
                stop = min(c, end) if yes else end
            else:
                row = forest.odd[-1 - c]
                yes = row[begin + 1] > row[begin]
                stop = begin + 1
                while stop < end and (row[stop + 1] > row[stop]) == yes:
                    stop += 1
            low[a] = begin
            high[a] = stop - 1
            here[4] = stop
            node = node + 1 if yes else np.int64(s.no[node])


@kernel
def fill_dense(forest, s, first, last, constant, lines, low, high, n_dims, size):  # type: ignore
    """G on all cells of the box, the last of `dims` running fastest."""
    dense, dims = s.dense[:size], s.dims
    dense[:] = 0
    for a in range(len(low)):
        constant += lines[forest.line_start[a] + low[a]]
    dense[0] = constant
    for d in range(n_dims):
        line = lines[forest.line_start[dims[d, 0]] + dims[d, 1] :]
        for i in range(1, dims[d, 2]):
            dense[i * dims[d, 3]] += line[i] - line[i - 1]
    add_corners(forest, s, first, last, low, high, dense, dims, n_dims)
    for d in range(n_dims):
        length, stride = dims[d, 2], dims[d, 3]
        for block in range(0, size, length * stride):
            if stride == 1:
                total = np.int64(0)
                row = dense[block : block + length]
                for i in range(length):
                    total += row[i]
                    row[i] = total
            else:
                for i in range(1, length):
                    before = dense[block + (i - 1) * stride : block + i * stride]
                    here = dense[block + i * stride : block + (i + 1) * stride]
                    for j in range(stride):
                        here[j] += before[j]
    return dense.min()


@inlined
def choose_cut(forest, s, first, last, low, high, halve, must, own, cut):  # type: ignore
    """The axis and the cell at which to split: what most of the trees' spread hangs on, or the middle of a range."""
    cut[0] = -1
    if not halve:
        best = np.int64(-1)
        for t in range(first, last):
            node = s.root[t]
            a, c = s.axis[node], s.cut[node]
            if c > low[a] and c <= high[a]:
                place = forest.line_start[a] + c
                s.score[place] += s.spread[t]
                if s.score[place] > best:
                    best = s.score[place]
                    cut[0] = a
                    cut[1] = c
        for t in range(first, last):
            node = s.root[t]
            if s.cut[node] >= 0:
                s.score[forest.line_start[s.axis[node]] + s.cut[node]] = 0
    if cut[0] < 0:
        widest = 0
        for a in range(len(low)):
            if s.active[a] and high[a] - low[a] > widest:
                widest = high[a] - low[a]
                cut[0] = a
                cut[1] = low[a] + (widest + 1) // 2


@kernel
def find(forest, s, sign, base, target, fuzz, own, window_low, window_high, must, dense_limit, budget):  # type: ignore
    """Is there a cell with G <= target in the window, other than x's own sensitive cells if it must differ?

    UNFAIR with the cell in `s.best`, or FAIR; CLOSE if 64 bits cannot tell; UNKNOWN beyond the budget; -1 if a larger
    arena is needed.
    """
    n_axes = len(own)
    cut = np.zeros(2, np.int64)
    depth = 0
    close = False
    lowest = LARGEST
    s.frame_low[0, :] = window_low
    s.frame_high[0, :] = window_high
    s.frame_tree[0] = 0
    s.frame_node[0] = 0
    if len(forest.axis) > len(s.axis) or len(forest.roots) > len(s.root):
        return -1
    fresh = True
    work = np.int64(0)
    while True:
        low, high, lines = s.frame_low[depth], s.frame_high[depth], s.frame_lines[depth]
        open_box = False
        if fresh:
            s.low[:] = low
            s.high[:] = high
            if depth == 0:
                lines[:] = 0
                at, tree, constant, steps = shrink(
                    forest, s, forest.axis, forest.cut, forest.no, forest.value, forest.roots, 0, len(forest.roots),
                    sign, s.low, s.high, 0, 0, lines,
                )  # fmt: skip
                constant += sign * base
            else:
                first, last = s.frame_tree[depth - 1], s.frame_tree[depth]
                nodes = s.frame_node[depth] - s.frame_node[depth - 1]
                if s.frame_node[depth] + nodes > len(s.axis) or 2 * last - first > len(s.root):
                    return -1
                lines[:] = s.frame_lines[depth - 1]
                at, tree, constant, steps = shrink(
                    forest, s, s.axis, s.cut, s.no, s.value, s.root, first, last, np.int64(1), s.low, s.high,
                    s.frame_node[depth], last, lines,
                )  # fmt: skip
                constant += s.frame_constant[depth - 1]
            work += steps
            s.frame_constant[depth] = constant
            s.frame_tree[depth + 1] = tree
            s.frame_node[depth + 1] = at
            first, last = s.frame_tree[depth], tree
            bound = constant + line_bound(forest, low, high, lines, s.cell)
            for t in range(first, last):
                bound += s.least[t]
            open_box = bound <= target + fuzz
            if open_box and must:
                open_box = False
                for a in range(n_axes):
                    if forest.sensitive[a] and (low[a] != own[a] or high[a] != own[a]):
                        open_box = True
                        break
            if open_box:
                mark_active(s, forest, first, last, s.frame_node[depth], at, lines, low, high)
                size = np.int64(1)
                n_dims = 0
                for a in range(n_axes):
                    if not s.active[a]:
                        if low[a] < high[a]:
                            pin = low[a]
                            if must and forest.sensitive[a] and pin == own[a]:
                                pin = high[a]
                            low[a] = pin
                            high[a] = pin
                        s.cell[a] = low[a]
                    elif size <= dense_limit:
                        s.dims[n_dims, 0] = a
                        s.dims[n_dims, 1] = low[a]
                        s.dims[n_dims, 2] = high[a] - low[a] + 1
                        size *= s.dims[n_dims, 2]
                        n_dims += 1
                if size <= dense_limit:
                    open_box = False
                    stride = size
                    for d in range(n_dims):
                        stride //= s.dims[d, 2]
                        s.dims[d, 3] = stride
                    s.low[:] = low
                    s.high[:] = high
                    least = fill_dense(forest, s, first, last, constant, lines, s.low, s.high, n_dims, size)
                    work += size
                    if least <= target + fuzz:
                        for i in range(size):
                            if s.dense[i] <= target + fuzz:
                                s.best[:] = low
                                for d in range(n_dims):
                                    s.best[s.dims[d, 0]] += i // s.dims[d, 3] % s.dims[d, 2]
                                if not (must and is_own(forest, own, s.best)):
                                    if s.dense[i] <= target - fuzz:
                                        return UNFAIR
                                    close = True
                else:
                    if must and is_own(forest, own, s.cell):
                        for a in range(n_axes):
                            if forest.sensitive[a] and low[a] < high[a]:
                                s.cell[a] = high[a] if low[a] == own[a] else low[a]
                                break
                    value = constant + line_sum(forest, lines, s.cell) + residual_sum(forest, s, first, last, s.cell)
                    if value <= target - fuzz:
                        s.best[:] = s.cell
                        return UNFAIR
                    if value < lowest:
                        lowest = value
                        s.best[:] = s.cell
                    if work > budget:
                        return UNKNOWN
                    choose_cut(forest, s, first, last, low, high, depth >= FREE_FRAMES, must, own, cut)
                    s.frame_split[depth, 0] = cut[0]
                    s.frame_split[depth, 1] = cut[1]
                    s.frame_split[depth, 2] = 0
                    s.frame_split[depth, 3] = 1 if s.best[cut[0]] < cut[1] else 0  # the lower side first?
            if not open_box:
                depth -= 1
                fresh = False
                if depth < 0:
                    return CLOSE if close else FAIR
                continue
        # The box of this frame is split: its next side, or back.
        side = s.frame_split[depth, 2]
        if side == 2:
            depth -= 1
            fresh = False
            if depth < 0:
                return CLOSE if close else FAIR
            continue
        s.frame_split[depth, 2] = side + 1
        s.frame_low[depth + 1, :] = low
        s.frame_high[depth + 1, :] = high
        a = s.frame_split[depth, 0]
        if (side == 0) == (s.frame_split[depth, 3] == 1):
            s.frame_high[depth + 1, a] = s.frame_split[depth, 1] - 1
        else:
            s.frame_low[depth + 1, a] = s.frame_split[depth, 1]
        depth += 1
        fresh = True


@kernel
def decide(
    forest,
    s,
    base,
    pos,
    neg,
    conf_pos,
    conf_neg,
    fuzz,
    own,
    low,
    high,
    must,
    dense_limit,
    budget,
    verdict,
    witness,
    start,
):  # type: ignore
    """Decide the points from `start` on; the index of the first that is left, because it needs a larger arena."""
    for i in range(start, len(own)):
        F = margin(forest, base, own[i])
        if F > conf_neg + fuzz and F < conf_pos - fuzz:
            verdict[i] = LOW
            continue
        if F >= conf_pos + fuzz and F >= pos + fuzz:
            found = find(forest, s, 1, base, neg, fuzz, own[i], low[i], high[i], must[i], dense_limit, budget)
        elif F <= conf_neg - fuzz and F <= neg - fuzz:
            found = find(forest, s, -1, base, -pos, fuzz, own[i], low[i], high[i], must[i], dense_limit, budget)
        else:
            found = CLOSE
        if found < 0:
            return i
        verdict[i] = found
        if found == UNFAIR:
            witness[i, :] = s.best
    return len(own)
