"""The search for epsilon > 0: x' may also move along some axes (docs/engine.md, 'Epsilon > 0').

The search splits O only. Once few trees mix O with E or S, the box becomes a brick: every way to resolve the remaining
mixed trees turns its tables into one bitmap of signs per offset, which erosion measures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.brick import ROLE_O, Brick, Frame, Levels, Nodes, lay_brick
from boxqte.engines.box.erosion import Memo, Windows
from boxqte.engines.box.jit import kernel, spliced
from boxqte.engines.box.measure import NODE_WORK, measure_held, one_kind
from boxqte.engines.box.ranks import Ranks, lay_ranks
from boxqte.engines.box.records import (
    FULL,
    Arena,
    Cuts,
    held_mass,
    known_move,
    make,
    make_leaf,
    residue_of,
    restrict,
    side_of,
    touches,
)
from boxqte.engines.box.state import FAIR, LOW, N_KINDS, UNFAIR, add_mass, copy_box, copy_masses
from boxqte.engines.box.tables import clear_tables
from boxqte.engines.box.walk import LAID, NO_RECORDS, OFFSETS, Walk, lay_walk, walk_brick

DONE, OUT_OF_ROOM, TOO_LARGE, SPLIT, HALTED = 0, 1, 2, 3, 4


class Found(NamedTuple):
    """What became of a box: its parts, disjoint."""

    settled: npt.NDArray[np.uint64]
    settled_mass: npt.NDArray[np.float64]
    """part -> fair, unfair and low mass"""
    open: npt.NDArray[np.uint64]
    open_mass: npt.NDArray[np.float64]


@kernel
def narrow_box(cuts: Cuts, frame: Frame, nodes: Nodes, f: int, cut: int, side: int) -> None:
    """Restrict the box of a frame, but not its trees, to one side of a cut."""
    axis = cuts.axis[cut]
    for w in range(nodes.domain.shape[2]):
        nodes.domain[f, axis, w] &= cuts.mask[cut, w] if side == 1 else ~cuts.mask[cut, w]
    nodes.axis_mass[f, axis] = held_mass(nodes.domain[f, axis], frame.mass[axis])


@kernel
def child(arena: Arena, cuts: Cuts, frame: Frame, nodes: Nodes, src: int, dst: int, cut: int, side: int) -> bool:
    """Frame dst becomes frame src restricted to one side of an O cut; False if the arena is full."""
    axis = cuts.axis[cut]
    word, bit = axis >> 6, np.uint64(axis & 63)
    if src != dst:
        copy_box(nodes.domain[src], nodes.domain[dst])
        copy_masses(nodes.axis_mass[src], nodes.axis_mass[dst])
        for t in range(nodes.n_trees[src]):
            nodes.trees[dst, t] = nodes.trees[src, t]
        nodes.n_trees[dst] = nodes.n_trees[src]
        nodes.constant[dst] = nodes.constant[src]
        nodes.rest[dst] = nodes.rest[src]
    narrow_box(cuts, frame, nodes, dst, cut, side)
    for k in range(cuts.start[axis], cuts.start[axis + 1]):
        outcome = side
        if k != cut:
            if frame.chain[axis]:  # one prefix cut settles all that follows from it in one restriction
                continue
            outcome = side_of(cuts, nodes.domain[dst], k)
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
def load_box(
    arena: Arena, cuts: Cuts, frame: Frame, nodes: Nodes, root: int, f: int, domain: npt.NDArray[np.uint64]
) -> bool:
    """Frame f becomes the node of the given box, derived from the root frame."""
    copy_box(domain, nodes.domain[f])
    nodes.n_trees[f] = nodes.n_trees[root]
    nodes.constant[f] = nodes.constant[root]
    nodes.rest[f] = nodes.rest[root]
    for t in range(nodes.n_trees[root]):
        nodes.trees[f, t] = nodes.trees[root, t]
    for a in range(len(frame.role)):  # all of them first: the mass counts also if the arena is full below
        nodes.axis_mass[f, a] = held_mass(domain[a], frame.mass[a]) if frame.role[a] == ROLE_O else 1.0
    for a in range(len(frame.role)):
        if frame.role[a] != ROLE_O:
            continue
        for k in range(cuts.start[a], cuts.start[a + 1]):
            outcome = side_of(cuts, nodes.domain[f], k)
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
def _leave_open(nodes: Nodes, f: int, found: Found, counts: npt.NDArray[np.int64]) -> None:
    copy_box(nodes.domain[f], found.open[counts[0]])
    found.open_mass[counts[0]] = box_mass(nodes, f)
    counts[0] += 1


@kernel
def choose_cut(arena: Arena, cuts: Cuts, frame: Frame, nodes: Nodes, f: int, b: Brick, pure: bool) -> int:
    """The O cut that resolves most of the mixed trees (pure: of the trees over O alone); -1 if there is none.

    A cut scores 2**-depth for every node of such a tree that tests it.
    """
    score, todo, weight = b.score, b.todo, b.todo_weight
    score[:] = 0.0
    for t in range(nodes.n_trees[f]):
        if touches(arena.axes, nodes.trees[f, t], frame.o_axes, True) == pure:
            continue
        todo[0] = nodes.trees[f, t]
        weight[0] = 1.0
        n = 1
        while n > 0:
            n -= 1
            tree, w = todo[n], weight[n]
            cut = arena.record[tree]["cut"]
            if cut < 0 or not touches(arena.axes, tree, frame.o_axes, False):
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
        if touches(arena.axes, tree, frame.o_axes, False) and touches(arena.axes, tree, frame.o_axes, True):
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
def _settle(arena: Arena, frame: Frame, nodes: Nodes, f: int, b: Brick) -> None:
    """Trees of the frame that have no O axis left are held by the brick, until the search leaves the frame."""
    kept = 0
    nodes.n_added[f] = 0
    for t in range(nodes.n_trees[f]):
        tree = nodes.trees[f, t]
        if touches(arena.axes, tree, frame.o_axes, False):
            nodes.trees[f, kept] = tree
            kept += 1
        else:
            b.held[0, b.info[8]] = tree
            b.info[8] += 1
            b.sums[0] += arena.record[tree]["min"]
            b.sums[1] += arena.record[tree]["max"]
            nodes.n_added[f] += 1
    nodes.n_trees[f] = kept


@spliced
def _resolve(arena: Arena, cuts: Cuts, frame: Frame, levels: Levels, nodes: Nodes, top: int, b: Brick, win: Windows,
             own_win: Windows, memo: Memo, masses: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> bool:  # fmt: skip
    """Resolve the mixed trees of a brick in every way; where none is left, list the ways of the trees over O and measure.

    Frames top.. are an explicit stack: nodes.cut[f] is the cut under work, nodes.side[f] how many sides are done.
    Below the frame `base` only trees over O are left: their leaves are (offset, mass) entries.
    """
    f = top
    entering = True
    base = -1
    n = 0
    while f >= top:
        if b.halt[0] != 0:
            return False
        if entering:
            if base < 0:
                counts[1] += 1
                _settle(arena, frame, nodes, f, b)
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
                    if not measure_held(arena, cuts, frame, b, levels, win, own_win, memo, n, masses, counts):
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
            if n > 0 and not measure_held(arena, cuts, frame, b, levels, win, own_win, memo, n, masses, counts):
                return False
            base = -1
        if base < 0:
            for _ in range(nodes.n_added[f]):
                b.info[8] -= 1
                tree = b.held[0, b.info[8]]
                b.sums[0] -= arena.record[tree]["min"]
                b.sums[1] -= arena.record[tree]["max"]
            nodes.n_added[f] = 0
        entering = False
        f -= 1
    return True


@spliced
def _settle_box(arena: Arena, cuts: Cuts, frame: Frame, levels: Levels, nodes: Nodes, f: int, b: Brick, win: Windows,
                own_win: Windows, memo: Memo, rk: Ranks, walk: Walk, counts: npt.NDArray[np.int64],
                need: npt.NDArray[np.int64]) -> int:  # fmt: skip
    """Settle the box of a frame into b.own_masses, or set nodes.cut[f] to the cut that should split it (status SPLIT)."""
    counts[1] += 1
    counts[5] += NODE_WORK
    own = b.own_masses
    for kind in range(2 * N_KINDS):
        own[kind] = 0.0
    low, high = nodes.constant[f], nodes.constant[f]
    for t in range(nodes.n_trees[f]):
        low += arena.record[nodes.trees[f, t]]["min"]
        high += arena.record[nodes.trees[f, t]]["max"]
    kind = one_kind(levels, low, high)
    if kind >= 0:
        add_mass(own, kind, box_mass(nodes, f))
        return DONE
    cut = choose_cut(arena, cuts, frame, nodes, f, b, False)
    nodes.cut[f] = cut
    nodes.side[f] = 0
    if cut >= 0 and not _is_brick(arena, cuts, frame, levels, nodes, f, b):
        return SPLIT
    fits = lay_brick(arena, cuts, frame, levels, nodes, f, b, win, own_win, memo, need)
    small = b.info[3] * b.info[5] <= levels.dense_cells
    if cut >= 0 and not small:  # a large brick is worth its compaction: first resolve all that mixes O with other axes
        return SPLIT
    if not fits:
        return TOO_LARGE
    if small and levels.fuzz == 0:
        if not lay_ranks(b, own_win if b.info[9] else win, rk, need):
            return TOO_LARGE
        status = lay_walk(arena, cuts, frame, levels, nodes, f, b, walk, need)
        if status != LAID:
            return OUT_OF_ROOM if status == NO_RECORDS else TOO_LARGE
        walk_brick(cuts, frame, levels, b, win, own_win, memo, rk, walk, own, counts)
        return DONE
    b.info[10] = 0
    clear_tables(b, levels)
    if not _resolve(arena, cuts, frame, levels, nodes, f, b, win, own_win, memo, own, counts):
        return OUT_OF_ROOM
    return DONE


@kernel
def search(
    arena: Arena,
    cuts: Cuts,
    frame: Frame,
    levels: Levels,
    nodes: Nodes,
    b: Brick,
    win: Windows,
    own_win: Windows,
    memo: Memo,
    rk: Ranks,
    walk: Walk,
    box: npt.NDArray[np.uint64],
    budget: int,
    found: Found,
    masses: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64],
    need: npt.NDArray[np.int64],
) -> int:
    """Take a box apart depth first, until the work of `budget` nodes is done, something does not fit, or all is settled.

    `found` gets the settled parts with their masses (which `masses` gets as well) and the open ones, the deepest first.
    counts: [open parts, nodes, tiles, shapes, settled parts, work]. Unless DONE or HALTED, the first open part is what
    did not fit.
    """
    f = 1
    if not load_box(arena, cuts, frame, nodes, 0, f, box):
        _leave_open(nodes, f, found, counts)
        return OUT_OF_ROOM
    while True:
        if f > 1 and (counts[5] >= budget * NODE_WORK or counts[4] == len(found.settled)):
            status = DONE
            break
        status = _settle_box(arena, cuts, frame, levels, nodes, f, b, win, own_win, memo, rk, walk, counts, need)
        if b.halt[0] != 0:
            status = HALTED
        if status == DONE:
            own = b.own_masses
            copy_box(nodes.domain[f], found.settled[counts[4]])
            for kind in (FAIR, UNFAIR, LOW):
                mass = own[kind] + own[kind + N_KINDS]
                add_mass(masses, kind, mass)
                found.settled_mass[counts[4], kind] = mass
            counts[4] += 1
            f -= 1
            while f > 0 and nodes.side[f] == 2:
                f -= 1
            if f == 0:
                return DONE
        elif status != SPLIT:
            break
        fits = child(arena, cuts, frame, nodes, f, f + 1, nodes.cut[f], nodes.side[f])
        nodes.side[f] += 1
        f += 1
        if not fits:
            status = OUT_OF_ROOM
            break
    _leave_open(nodes, f, found, counts)
    for g in range(f - 1, 0, -1):
        if nodes.side[g] == 1:
            narrow_box(cuts, frame, nodes, g, nodes.cut[g], 1)
            _leave_open(nodes, g, found, counts)
    return status
