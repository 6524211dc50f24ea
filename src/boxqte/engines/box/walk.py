"""The walk over O of a brick: every way to resolve its mixed trees is a shape, every way through its pure-O trees an offset.

A mixed tree is rewritten as a decision tree over O alone whose leaves are tables over the moving axes. The trees are then
walked one after the other, as a whole path at a time; a table is added where its leaf is reached, so that the shape of a
walk costs one addition of tables more than that of its parent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.brick import ROLE_O, Brick, Frame, Levels, Nodes
from boxqte.engines.box.erosion import Memo, Windows
from boxqte.engines.box.jit import inlined, kernel
from boxqte.engines.box.lanes import LANES, eight_equal
from boxqte.engines.box.measure import measure_shape, one_kind
from boxqte.engines.box.ranks import Ranks
from boxqte.engines.box.records import FULL, Arena, Cuts, held_mass, restrict, side_of, touches
from boxqte.engines.box.state import add_mass, copy_box, copy_masses
from boxqte.engines.box.tables import fill_table

OFFSETS = 4096
LAID, NO_RECORDS, NO_TABLES = 0, 1, 2


class Walk(NamedTuple):
    """The decision trees of a brick, mixed ones first, and the state of the walk."""

    cut: npt.NDArray[np.int32]
    yes: npt.NDArray[np.int32]
    no: npt.NDArray[np.int32]
    value: npt.NDArray[np.int64]
    """node -> its O cut, -1 at a leaf; a leaf's constant; its table in `yes`, -1 none"""
    root: npt.NDArray[np.int32]
    least: npt.NDArray[np.int64]
    most: npt.NDArray[np.int64]
    """tree -> bounds of the sum of this and all later trees"""
    shape: npt.NDArray[np.int64]
    """[trees, mixed trees, mixed trees that test S, tables, cells of a sum, cells of one combination, where the extremes are]"""
    tree: npt.NDArray[np.uint32]
    table_at: npt.NDArray[np.int64]
    table_wide: npt.NDArray[np.bool_]
    """table -> the residual tree it holds, where it begins, whether it spans S or is the same for every combination"""
    table_least: npt.NDArray[np.int64]
    table_most: npt.NDArray[np.int64]
    """table -> its smallest and largest cell"""
    todo: npt.NDArray[np.uint32]
    todo_node: npt.NDArray[np.int32]
    dense: npt.NDArray[np.int64]
    """tables: first the sums after 0, 1, ... mixed trees, then the extremes over S, then the leaves' own"""
    sum_at: npt.NDArray[np.int64]
    constant: npt.NDArray[np.int64]
    smallest: npt.NDArray[np.int64]
    largest: npt.NDArray[np.int64]
    """tree -> state before it is walked: which sum, the constants, the bounds of the sum's cells"""
    domain: npt.NDArray[np.uint64]
    axis_mass: npt.NDArray[np.float64]
    at_tree: npt.NDArray[np.int32]
    at_node: npt.NDArray[np.int32]
    side: npt.NDArray[np.int8]
    kept_domain: npt.NDArray[np.uint64]
    kept_mass: npt.NDArray[np.float64]
    """choice -> where it was made, which side is under work, the axis before it"""
    offset: npt.NDArray[np.int64]
    rest: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]


@kernel
def _first_o_cut(arena: Arena, cuts: Cuts, frame: Frame, tree: np.uint32, todo: npt.NDArray[np.uint32]) -> int:
    """An O cut that the tree tests, the nearest to its root; -1 if there is none."""
    todo[0] = tree
    first, last = 0, 1
    while first < last:
        node = todo[first]
        first += 1
        cut = arena.record[node]["cut"]
        if cut < 0:
            continue
        if frame.role[cuts.axis[cut]] == ROLE_O:
            return cut  # type: ignore[no-any-return]
        todo[last] = arena.record[node]["yes"]
        todo[last + 1] = arena.record[node]["no"]
        last += 2
    return -1


@kernel
def lay_walk(arena: Arena, cuts: Cuts, frame: Frame, levels: Levels, nodes: Nodes, f: int, b: Brick, walk: Walk,
             need: npt.NDArray[np.int64]) -> int:  # fmt: skip
    """Write the brick's trees as decision trees over O with tables at their leaves."""
    single = b.info[4] * b.info[5]
    cells = b.info[2] * single
    n_nodes, n_tables, n_trees, n_mixed, n_wide = 0, 0, 0, 0, 0
    plain = nodes.constant[f]
    for kind in range(3):  # mixed trees first, those that test S before the others
        for t in range(nodes.n_trees[f]):
            tree = nodes.trees[f, t]
            if not touches(arena.axes, tree, frame.o_axes, False):
                continue
            over_s, mixed = (
                touches(arena.axes, tree, frame.s_axes, False),
                touches(arena.axes, tree, frame.o_axes, True),
            )
            if kind != (0 if over_s else 1 if mixed else 2):
                continue
            walk.root[n_trees] = n_nodes
            walk.least[n_trees] = arena.record[tree]["min"]
            walk.most[n_trees] = arena.record[tree]["max"]
            n_trees += 1
            n_mixed += kind < 2
            n_wide += kind == 0
            walk.todo[0] = tree
            walk.todo_node[0] = n_nodes
            n_nodes += 1
            n = 1
            while n > 0:
                n -= 1
                part, node = walk.todo[n], walk.todo_node[n]
                if n_nodes + 2 > len(walk.cut):
                    return NO_RECORDS
                cut = _first_o_cut(arena, cuts, frame, part, walk.todo[n + 2 :])
                walk.cut[node] = cut
                walk.value[node] = 0
                if cut >= 0:
                    yes, no = restrict(arena, cuts, part, cut, 1), restrict(arena, cuts, part, cut, 0)
                    if yes == FULL or no == FULL:
                        return NO_RECORDS
                    walk.yes[node] = n_nodes
                    walk.no[node] = n_nodes + 1
                    walk.todo[n] = yes
                    walk.todo_node[n] = n_nodes
                    walk.todo[n + 1] = no
                    walk.todo_node[n + 1] = n_nodes + 1
                    n += 2
                    n_nodes += 2
                    continue
                walk.yes[node] = -1
                if arena.record[part]["cut"] < 0:
                    walk.value[node] = arena.record[part]["min"]
                    continue
                found = -1
                for i in range(n_tables):
                    if walk.tree[i] == part:
                        found = i
                if found < 0:
                    if n_tables >= len(walk.tree):
                        return NO_RECORDS
                    found = n_tables
                    walk.tree[found] = part
                    n_tables += 1
                walk.yes[node] = found
    for t in range(n_trees - 2, -1, -1):
        walk.least[t] += walk.least[t + 1]
        walk.most[t] += walk.most[t + 1]
    walk.least[n_trees] = 0
    walk.most[n_trees] = 0
    kept = 0  # at simple levels windows see the extremes over S only
    if levels.simple and b.info[2] > (4 if b.info[9] else 2):
        kept = 4 if b.info[9] else 2
    b.info[10] = kept
    extremes = (n_mixed + 1) * cells
    at = extremes + kept * single
    for i in range(n_tables):
        walk.table_wide[i] = touches(arena.axes, walk.tree[i], frame.s_axes, False)
        walk.table_at[i] = at
        at += cells if walk.table_wide[i] else single
    need[7] = at + single
    if need[7] + LANES > len(walk.dense):
        return NO_TABLES
    sums, narrow = walk.dense[:cells], walk.dense[at : at + single]
    for c in range(cells):
        sums[c] = 0
    for c in range(single):
        narrow[c] = 0
    for t in range(nodes.n_trees[f]):
        tree = nodes.trees[f, t]
        if not touches(arena.axes, tree, frame.o_axes, False):
            over_s = touches(arena.axes, tree, frame.s_axes, False)
            fill_table(arena, cuts, frame, b, tree, over_s, sums if over_s else narrow)
    for s in range(b.info[2]):
        part = sums[s * single : (s + 1) * single]
        for c in range(single):
            part[c] += narrow[c]
    for i in range(n_tables):
        begin = walk.table_at[i]
        table = walk.dense[begin : begin + (cells if walk.table_wide[i] else single)]
        for c in range(len(table)):
            table[c] = 0
        fill_table(arena, cuts, frame, b, walk.tree[i], walk.table_wide[i], table)
        walk.table_least[i] = arena.record[walk.tree[i]]["min"]
        walk.table_most[i] = arena.record[walk.tree[i]]["max"]
    walk.shape[0], walk.shape[1], walk.shape[2] = n_trees, n_mixed, n_wide
    walk.shape[3], walk.shape[4], walk.shape[5], walk.shape[6] = n_tables, cells, single, extremes
    walk.sum_at[0] = 0
    walk.constant[0] = plain
    smallest, largest = sums[0], sums[0]
    for c in range(cells):
        smallest = min(smallest, sums[c])
        largest = max(largest, sums[c])
    walk.smallest[0] = smallest
    walk.largest[0] = largest
    copy_box(nodes.domain[f], walk.domain)
    copy_masses(nodes.axis_mass[f], walk.axis_mass)
    return LAID


@inlined
def _add_table(b: Brick, walk: Walk, t: int, table: int) -> None:
    """The sum after tree t, whose walk ended at a leaf with this table."""
    cells = walk.shape[4]
    if t >= walk.shape[2] and b.info[10] > 0:
        cells = b.info[10] * walk.shape[5]
    size = cells if walk.table_wide[table] else walk.shape[5]
    begin = walk.table_at[table]
    add = walk.dense[begin : begin + size]
    old_at, new_at = walk.sum_at[t], (t + 1) * walk.shape[4]
    smallest, largest = walk.dense[old_at] + add[0], walk.dense[old_at] + add[0]
    for part in range(0, cells, size):
        old = walk.dense[old_at + part : old_at + part + size]
        new = walk.dense[new_at + part : new_at + part + size]
        for c in range(size):
            value = old[c] + add[c]
            new[c] = value
            smallest = min(smallest, value)
            largest = max(largest, value)
    walk.sum_at[t + 1] = new_at
    walk.smallest[t + 1] = smallest
    walk.largest[t + 1] = largest


@kernel
def _keep_extremes(b: Brick, walk: Walk) -> None:
    """All trees that test S are walked: of the sums over S only the extremes are needed, and where points matter who has them."""
    single = walk.shape[5]
    begin, to = walk.sum_at[walk.shape[2]], walk.shape[6]
    low, high = walk.dense[to : to + single], walk.dense[to + single : to + 2 * single]
    one, two = walk.dense[begin : begin + single], walk.dense[begin + single : begin + 2 * single]
    points = b.info[10] == 4
    second_low, second_high = low, high
    if points:
        second_low, second_high = (
            walk.dense[to + 2 * single : to + 3 * single],
            walk.dense[to + 3 * single : to + 4 * single],
        )
        for c in range(single):
            second_low[c] = max(one[c], two[c])
            second_high[c] = min(one[c], two[c])
    for c in range(single):
        low[c] = min(one[c], two[c])
        high[c] = max(one[c], two[c])
    for s in range(2, b.info[2]):
        sums = walk.dense[begin + s * single : begin + (s + 1) * single]
        if points:
            for c in range(single):
                second_low[c] = min(second_low[c], max(low[c], sums[c]))
                second_high[c] = max(second_high[c], min(high[c], sums[c]))
        for c in range(single):
            low[c] = min(low[c], sums[c])
            high[c] = max(high[c], sums[c])
    walk.sum_at[walk.shape[2]] = to
    if points:
        rows, n_z = b.info[4], b.info[5]
        for s in range(b.info[2]):
            if b.s_single[s]:
                for i in range(rows):
                    least, most = np.uint64(0), np.uint64(0)
                    for z in range(0, n_z, LANES):
                        at = begin + s * single + i * n_z + z
                        least |= eight_equal(walk.dense, at, walk.dense, to + i * n_z + z) << np.uint64(z)
                        most |= eight_equal(walk.dense, at, walk.dense, to + single + i * n_z + z) << np.uint64(z)
                    b.who_low[s * rows + i] = least
                    b.who_high[s * rows + i] = most


@inlined
def _narrow(cuts: Cuts, frame: Frame, walk: Walk, cut: int, yes: bool) -> None:
    """Restrict the cut's axis to one side."""
    axis = cuts.axis[cut]
    for w in range(walk.domain.shape[1]):
        walk.domain[axis, w] &= cuts.mask[cut, w] if yes else ~cuts.mask[cut, w]
    walk.axis_mass[axis] = held_mass(walk.domain[axis], frame.mass[axis])


@inlined
def _mass(walk: Walk) -> float:
    mass = 1.0
    for a in range(len(walk.axis_mass)):
        mass *= walk.axis_mass[a]
    return mass


@kernel
def walk_brick(cuts: Cuts, frame: Frame, levels: Levels, b: Brick, win: Windows, own_win: Windows, memo: Memo,
               rk: Ranks, walk: Walk, masses: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> None:  # fmt: skip
    """Walk all trees in every way; measure every shape with all of its offsets."""
    n_trees, n_mixed, n_wide = walk.shape[0], walk.shape[1], walk.shape[2]
    cells = b.info[10] * walk.shape[5] if b.info[10] > 0 else walk.shape[4]
    if b.info[10] > 0 and n_wide == 0:
        _keep_extremes(b, walk)
    t = 0
    node = walk.root[0]
    depth = 0
    n = 0  # offsets of the shape under work
    going = True
    while True:
        if b.halt[0] != 0:
            return
        # down, until a tree's leaf settles everything or all trees are walked
        while going:
            if t == n_trees:
                walk.offset[n] = walk.constant[t]
                walk.rest[n] = 0
                walk.weight[n] = _mass(walk)
                n += 1
                going = False
                continue
            cut = walk.cut[node]
            if cut < 0:
                low = walk.constant[t] + walk.value[node] + walk.least[t + 1] + walk.smallest[t]
                high = walk.constant[t] + walk.value[node] + walk.most[t + 1] + walk.largest[t]
                table = walk.yes[node]
                if table >= 0:  # bounds of the two tables often settle it, without their sum
                    low += walk.table_least[table]
                    high += walk.table_most[table]
                kind = one_kind(levels, low, high)
                if kind < 0 and table >= 0:
                    counts[1] += 1
                    counts[5] += cells >> 5
                    _add_table(b, walk, t, table)
                    low = walk.constant[t] + walk.value[node] + walk.least[t + 1] + walk.smallest[t + 1]
                    high = walk.constant[t] + walk.value[node] + walk.most[t + 1] + walk.largest[t + 1]
                    kind = one_kind(levels, low, high)
                elif kind < 0:
                    walk.sum_at[t + 1] = walk.sum_at[t]
                    walk.smallest[t + 1] = walk.smallest[t]
                    walk.largest[t + 1] = walk.largest[t]
                walk.constant[t + 1] = walk.constant[t] + walk.value[node]
                t += 1
                if kind >= 0:
                    add_mass(masses, kind, _mass(walk))
                    going = False
                    continue
                if t == n_wide and b.info[10] > 0:
                    _keep_extremes(b, walk)
                if t < n_trees:
                    node = walk.root[t]
                continue
            axis = cuts.axis[cut]
            side = side_of(cuts, walk.domain, cut)
            if side < 0:
                walk.at_tree[depth] = t
                walk.at_node[depth] = node
                walk.side[depth] = 1
                for w in range(walk.domain.shape[1]):
                    walk.kept_domain[depth, w] = walk.domain[axis, w]
                walk.kept_mass[depth] = walk.axis_mass[axis]
                depth += 1
                _narrow(cuts, frame, walk, cut, True)
            node = walk.no[node] if side == 0 else walk.yes[node]
        # a shape is measured once all of its offsets are known
        if n == OFFSETS or (n > 0 and (depth == 0 or walk.at_tree[depth - 1] < n_mixed)):
            at = walk.sum_at[n_mixed]
            measure_shape(b, levels, win, own_win, memo, rk, walk.dense[at : at + cells], walk.smallest[n_mixed],
                          walk.largest[n_mixed], walk.offset[:n], walk.rest[:n], walk.weight[:n], masses, counts)  # fmt: skip
            n = 0
            continue
        # back, to the last choice whose other side is left
        if depth == 0:
            return
        d = depth - 1
        cut = walk.cut[walk.at_node[d]]
        axis = cuts.axis[cut]
        for w in range(walk.domain.shape[1]):
            walk.domain[axis, w] = walk.kept_domain[d, w]
        walk.axis_mass[axis] = walk.kept_mass[d]
        if walk.side[d] == 1:
            walk.side[d] = 0
            t = walk.at_tree[d]
            node = walk.no[walk.at_node[d]]
            _narrow(cuts, frame, walk, cut, False)
            going = True
        else:
            depth -= 1
