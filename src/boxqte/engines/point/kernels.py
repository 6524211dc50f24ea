"""The search behind a point: does the window of x hold a cell of another class? Kernels only, arrays in and out.

The question is always: is there a cell with G <= target, where G = constant + (sum of the trees *plus*) - (sum of the
trees *minus*)? For a binary model G is F or -F; for many classes it is the margin of x's class less that of a rival.
A box is a range of cells on every axis.

- `shrink`: the trees on a box. A tree that no longer asks anything becomes a constant; one that asks about a single
  axis is added to that axis's *line* (a table over the axis's cells); the others stay as smaller trees. G on the box is
  at least the constant + the smallest entry of every line + the smallest leaf of every tree left.
- `fill_dense`: G on all cells of a small box at once, by differences at the corners of the leaves and running sums.
- `find`: branch and bound over boxes with these two, depth first, the side that holds the best cell so far first.

Kernels of one family stay in one module: numba does not notice a change in another module's kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import allocating, inlined, kernel

LOW, FAIR, UNFAIR, UNKNOWN, CLOSE, OPEN = 0, 1, 2, 3, 4, 5
OUT_OF_ROOM = -1
FREE_FRAMES = 48  # so deep the search chooses its cuts by what they do to the bound; below, it halves
LARGEST = np.iinfo(np.int64).max

Int = int | np.int64
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Forest(NamedTuple):
    """Nodes in preorder: the yes side of node n is n + 1, its no side is `no[n]`. Axes that no tree cuts are left out.

    `cut[n]` sends the cells below it to yes; if it is negative, row -1 - cut[n] of `odd` says how many of the cells
    before each one go to yes (category sets, zero bands). At leaves `axis` is -1.
    """

    axis: Int32Array
    cut: Int32Array
    no: Int32Array
    value: Int64Array
    """leaf values, node x output; one column if every tree feeds one output"""
    roots: Int32Array
    """trees of one output lie side by side"""
    output: Int32Array
    """the output that each tree feeds, -1 if its leaves have a value for each"""
    depth: Int32Array
    step: Int32Array
    """node x (axis, how far the no side lies behind the yes side, cut); at a leaf every cell steps back to the leaf"""
    odd: Int32Array
    sensitive: BoolArray
    line_start: Int64Array
    """where the cells of each axis begin in an array over the cells of all axes; one entry more than axes"""


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
    active: BoolArray
    score: Int64Array
    dense: Int64Array
    dims: Int64Array


@inlined
def copy(source: Int32Array, target: Int32Array) -> None:
    """target[:] = source, which takes numba seconds to compile."""
    for i in range(len(source)):
        target[i] = source[i]


@inlined
def copy_lines(source: Int64Array, target: Int64Array) -> None:
    for i in range(len(source)):
        target[i] = source[i]


@inlined
def clear(target: Int64Array) -> None:
    for i in range(len(target)):
        target[i] = 0


# --- margins ----------------------------------------------------------------------------------------------------------


@kernel
def margins(forest: Forest, cells: Int32Array, total: Int64Array) -> None:
    """Add the leaf values of every point (row of cells) to its sums, one column an output.

    Tree by tree, so that a tree stays in the cache. Where all cuts are thresholds, each point walks the tree's full
    depth without a branch on the way: at a leaf, neither side moves it.
    """
    plain = len(forest.odd) == 0
    for t in range(len(forest.roots)):
        root, out = np.int64(forest.roots[t]), np.int64(forest.output[t])
        for i in range(len(cells)):
            node: Int = root
            if plain:
                for _ in range(forest.depth[t]):
                    step = forest.step[node]
                    node += 1 + np.int64(step[1]) * np.int64(cells[i, step[0]] >= step[2])
            else:
                node = leaf_of(forest.odd, forest.axis, forest.cut, forest.no, node, cells[i])
            if out >= 0:
                total[i, out] += forest.value[node, 0]
            else:
                for k in range(total.shape[1]):
                    total[i, k] += forest.value[node, k]


@inlined
def leaf_of(odd: Int32Array, axis: Int32Array, cut: Int32Array, no: Int32Array, node: Int, cell: Int32Array) -> Int:
    """The leaf that a cell reaches from a node."""
    while axis[node] >= 0:
        a, c = np.int64(axis[node]), np.int64(cut[node])
        if c >= 0:
            yes = cell[a] < c
        else:
            yes = odd[-1 - c, cell[a] + 1] > odd[-1 - c, cell[a]]
        node = node + 1 if yes else np.int64(no[node])
    return node


# --- the trees on a box -----------------------------------------------------------------------------------------------


@kernel
def shrink(
    forest: Forest,
    s: Search,
    axis: Int32Array,
    cut: Int32Array,
    no: Int32Array,
    value: Int64Array,
    roots: Int32Array,
    first: Int,
    last: Int,
    sign: Int,
    low: Int32Array,
    high: Int32Array,
    at: Int,
    tree: Int,
    lines: Int64Array,
) -> tuple[Int, Int, Int, Int]:
    """The trees first..last, times the sign, on the box low..high; (next free node, next free tree, constant, work).

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
        if least == most:
            constant += least
            at = start
        elif only >= 0:
            line = lines[forest.line_start[only] : forest.line_start[only + 1]]
            for n in range(start, at):
                if s.axis[n] < 0:
                    for i in range(s.cut[n], s.no[n] + 1):
                        line[i] += s.value[n]
            at = start
        else:
            s.root[tree] = start
            s.least[tree] = least
            s.spread[tree] = most - least
            tree += 1
    return at, tree, constant, work


@inlined
def line_bound(forest: Forest, low: Int32Array, high: Int32Array, lines: Int64Array, cell: Int32Array) -> Int:
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
def value_at(
    forest: Forest, s: Search, first: Int, last: Int, constant: Int, lines: Int64Array, cell: Int32Array
) -> Int:
    """G at a cell of the box."""
    total = np.int64(constant)
    for a in range(len(cell)):
        total += lines[forest.line_start[a] + cell[a]]
    for t in range(first, last):
        total += s.value[leaf_of(forest.odd, s.axis, s.cut, s.no, np.int64(s.root[t]), cell)]
    return total


@inlined
def is_own(forest: Forest, own: Int32Array, cell: Int32Array) -> bool:
    """Whether the sensitive cells are those of x."""
    same = True
    for a in range(len(own)):
        same &= not forest.sensitive[a] or own[a] == cell[a]
    return same


@inlined
def only_own(forest: Forest, own: Int32Array, low: Int32Array, high: Int32Array) -> bool:
    """Whether the box holds no sensitive cells but those of x."""
    return is_own(forest, own, low) and is_own(forest, own, high)


@kernel
def mark_active(
    forest: Forest, s: Search, first_node: Int, last_node: Int, lines: Int64Array, low: Int32Array, high: Int32Array
) -> None:
    """Which axes G still depends on in the box."""
    active = s.active
    for a in range(len(low)):
        active[a] = False
        line = lines[forest.line_start[a] : forest.line_start[a + 1]]
        for i in range(low[a] + 1, high[a] + 1):
            if line[i] != line[low[a]]:
                active[a] = True
                break
    for n in range(first_node, last_node):
        if s.axis[n] >= 0:
            active[s.axis[n]] = True


# --- dense boxes ------------------------------------------------------------------------------------------------------


@kernel
def add_corners(
    forest: Forest, s: Search, first: Int, last: Int, low: Int32Array, high: Int32Array, dense: Int64Array, n_dims: Int
) -> None:
    """The differences of all residual trees: each leaf's value at the corners of its ranges of cells.

    A test cuts the range of its axis into runs of equal outcomes (two for a threshold), taken one after the other.
    """
    path, dims = s.path, s.dims
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
def fill_dense(
    forest: Forest,
    s: Search,
    first: Int,
    last: Int,
    constant: Int,
    lines: Int64Array,
    low: Int32Array,
    high: Int32Array,
    n_dims: Int,
    size: Int,
) -> Int:
    """G on all cells of the box, the last of `dims` running fastest; the smallest."""
    dense, dims = s.dense[:size], s.dims
    clear(dense)
    for a in range(len(low)):
        constant += lines[forest.line_start[a] + low[a]]
    dense[0] = constant
    for d in range(n_dims):
        line = lines[forest.line_start[dims[d, 0]] + dims[d, 1] :]
        for i in range(1, dims[d, 2]):
            dense[i * dims[d, 3]] += line[i] - line[i - 1]
    add_corners(forest, s, first, last, low, high, dense, n_dims)
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
    least = dense[0]
    for i in range(1, size):
        least = min(least, dense[i])
    return least  # type: ignore[no-any-return]


@inlined
def lay_out(s: Search, low: Int32Array, high: Int32Array, limit: Int) -> tuple[Int, Int]:
    """The active axes as dimensions of a dense box: how many, and of how many cells (beyond the limit if too many)."""
    size = np.int64(1)
    n_dims = 0
    for a in range(len(low)):
        if s.active[a] and size <= limit:
            s.dims[n_dims, 0] = a
            s.dims[n_dims, 1] = low[a]
            s.dims[n_dims, 2] = high[a] - low[a] + 1
            size *= s.dims[n_dims, 2]
            n_dims += 1
    stride = size
    for d in range(n_dims):
        stride //= s.dims[d, 2]
        s.dims[d, 3] = stride
    return n_dims, size


# --- the search -------------------------------------------------------------------------------------------------------


@inlined
def choose_cut(
    forest: Forest, s: Search, first: Int, last: Int, low: Int32Array, high: Int32Array, halve: bool, cut: Int64Array
) -> None:
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


@inlined
def pin_idle(forest: Forest, s: Search, own: Int32Array, must: bool, low: Int32Array, high: Int32Array) -> None:
    """One cell is enough of an axis that G does not depend on; a sensitive one that x does not have, if there is any."""
    for a in range(len(low)):
        if not s.active[a]:
            pin = low[a]
            if must and forest.sensitive[a] and pin == own[a]:
                pin = high[a]
            low[a] = pin
            high[a] = pin
            s.cell[a] = pin


@allocating
def find(
    forest: Forest,
    s: Search,
    value: Int64Array,
    plus: Int64Array,
    minus: Int64Array,
    constant: Int,
    target: Int,
    fuzz: Int,
    own: Int32Array,
    window_low: Int32Array,
    window_high: Int32Array,
    must: bool,
    dense_limit: Int,
    budget: Int,
) -> Int:
    """Is there a cell with G <= target in the window, other than x's own sensitive cells if it must differ?

    UNFAIR with the cell in `s.best`, or FAIR; CLOSE if sums within `fuzz` cannot tell; UNKNOWN beyond the budget;
    OUT_OF_ROOM if a larger arena is needed. `plus` and `minus` are the first tree and the one behind the last.
    """
    # As variables: numba would compile `shrink` anew for each literal.
    ZERO, ONE, MINUS_ONE = np.int64(0), np.int64(1), np.int64(-1)
    n_axes = len(own)
    cut = np.zeros(2, np.int64)
    depth = 0
    close = False
    fresh = True
    lowest: Int = LARGEST
    work = np.int64(0)
    copy(window_low, s.frame_low[0])
    copy(window_high, s.frame_high[0])
    s.frame_tree[0] = 0
    s.frame_node[0] = 0
    if len(forest.axis) > len(s.axis) or len(forest.roots) > len(s.root):
        return OUT_OF_ROOM
    while depth >= 0:
        low, high, lines = s.frame_low[depth], s.frame_high[depth], s.frame_lines[depth]
        if fresh:
            copy(low, s.low)
            copy(high, s.high)
            if depth == 0:
                clear(lines)
                at, tree, added, steps = shrink(
                    forest, s, forest.axis, forest.cut, forest.no, value, forest.roots, plus[0], plus[1],
                    ONE, s.low, s.high, ZERO, ZERO, lines,
                )  # fmt: skip
                here = np.int64(constant) + added
                at, tree, added, more = shrink(
                    forest, s, forest.axis, forest.cut, forest.no, value, forest.roots, minus[0], minus[1],
                    MINUS_ONE, s.low, s.high, at, tree, lines,
                )  # fmt: skip
                steps += more
            else:
                first, last = s.frame_tree[depth - 1], s.frame_tree[depth]
                nodes = s.frame_node[depth] - s.frame_node[depth - 1]
                if s.frame_node[depth] + nodes > len(s.axis) or 2 * last - first > len(s.root):
                    return OUT_OF_ROOM
                copy_lines(s.frame_lines[depth - 1], lines)
                here = s.frame_constant[depth - 1]
                at, tree, added, steps = shrink(
                    forest, s, s.axis, s.cut, s.no, s.value, s.root, first, last, ONE, s.low, s.high,
                    s.frame_node[depth], last, lines,
                )  # fmt: skip
            here += added
            work += steps
            s.frame_constant[depth] = here
            s.frame_tree[depth + 1] = tree
            s.frame_node[depth + 1] = at
            first, last = s.frame_tree[depth], s.frame_tree[depth + 1]
            bound = here + line_bound(forest, low, high, lines, s.cell)
            for t in range(first, last):
                bound += s.least[t]
            if bound > target + fuzz or (must and only_own(forest, own, low, high)):
                depth -= 1
                fresh = False
                continue
            mark_active(forest, s, s.frame_node[depth], at, lines, low, high)
            pin_idle(forest, s, own, must, low, high)
            n_dims, size = lay_out(s, low, high, dense_limit)
            if size <= dense_limit:
                copy(low, s.low)
                copy(high, s.high)
                least = fill_dense(forest, s, first, last, here, lines, s.low, s.high, n_dims, size)
                work += size
                if least <= target + fuzz:
                    for i in range(size):
                        if s.dense[i] <= target + fuzz:
                            copy(low, s.best)
                            for d in range(n_dims):
                                s.best[s.dims[d, 0]] += i // s.dims[d, 3] % s.dims[d, 2]
                            if not (must and is_own(forest, own, s.best)):
                                if s.dense[i] <= target - fuzz:
                                    return UNFAIR
                                close = True
                depth -= 1
                fresh = False
                continue
            if must and is_own(forest, own, s.cell):
                for a in range(n_axes):
                    if forest.sensitive[a] and low[a] < high[a]:
                        s.cell[a] = high[a] if low[a] == own[a] else low[a]
                        break
            sample = value_at(forest, s, first, last, here, lines, s.cell)
            if sample < lowest:
                lowest = sample
                copy(s.cell, s.best)
                if lowest <= target - fuzz:
                    return UNFAIR
            if work > budget:
                return UNKNOWN
            choose_cut(forest, s, first, last, low, high, depth >= FREE_FRAMES, cut)
            s.frame_split[depth, 0] = cut[0]
            s.frame_split[depth, 1] = cut[1]
            s.frame_split[depth, 2] = 0
            s.frame_split[depth, 3] = s.best[cut[0]] >= cut[1]
        # This frame's box is split: its next side, or back.
        side = s.frame_split[depth, 2]
        if side == 2:
            depth -= 1
            fresh = False
            continue
        s.frame_split[depth, 2] = side + 1
        copy(low, s.frame_low[depth + 1])
        copy(high, s.frame_high[depth + 1])
        if side == s.frame_split[depth, 3]:
            s.frame_high[depth + 1, s.frame_split[depth, 0]] = s.frame_split[depth, 1] - 1
        else:
            s.frame_low[depth + 1, s.frame_split[depth, 0]] = s.frame_split[depth, 1]
        depth += 1
        fresh = True
    return CLOSE if close else FAIR


@kernel
def find_all(
    forest: Forest,
    s: Search,
    value: Int64Array,
    plus: Int64Array,
    minus: Int64Array,
    constant: Int64Array,
    target: Int64Array,
    fuzz: Int,
    own: Int32Array,
    low: Int32Array,
    high: Int32Array,
    must: BoolArray,
    dense_limit: Int,
    budget: Int,
    verdict: npt.NDArray[np.int8],
    witness: Int32Array,
    start: Int,
) -> Int:
    """`find` for the points from `start` on whose verdict is OPEN; the first that needs a larger arena, or the end."""
    for i in range(start, len(own)):
        if verdict[i] != OPEN:
            continue
        found = find(
            forest, s, value, plus[i], minus[i], constant[i], target[i], fuzz, own[i], low[i], high[i], must[i],
            dense_limit, budget,
        )  # fmt: skip
        if found == OUT_OF_ROOM:
            return i
        verdict[i] = found
        if found == UNFAIR:
            copy(s.best, witness[i])
    return len(own)
