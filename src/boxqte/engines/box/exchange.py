"""The search for epsilon = 0: x and x' share every non-sensitive attribute, only sensitive values are exchanged.

A node of the search is a box of non-sensitive values, its residual trees, and one column per class of sensitive values
that still behave differently. The mathematics, with proofs, is in docs/engine.md; the names are the same there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.finish import finish
from boxqte.engines.box.jit import kernel, spliced
from boxqte.engines.box.parts import Scratch, finish_cost
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
)
from boxqte.engines.box.state import (
    FAIR,
    LOW,
    N_KINDS,
    UNFAIR,
    Axes,
    Rules,
    Stack,
    add_mass,
    box_mass,
    copy_box,
    copy_masses,
)

DONE, OUT_OF_ROOM, OUT_OF_BUDGET = 0, 1, 2
NO_ROOM, NOTHING_TO_SPLIT = -1, -2
UNKNOWN_COST, NEEDS_EXACT = -1.0, -2.0
BY_BOUNDS, BY_COUNTING = 0, 1  # as the driver's BOUNDS and COUNTED
WAS_CLOSED, WAS_OPENED, WAS_POINT = -1, -2, -3  # events that are no cut


class Ledger(NamedTuple):
    """Where the search writes down the boxes it closes; arrays of length 0 if nobody wants to know."""

    domain: npt.NDArray[np.uint64]
    """entry x axis x word"""
    masses: npt.NDArray[np.float64]
    """entry x kind"""
    how: npt.NDArray[np.int8]
    one: npt.NDArray[np.float64]
    """the sums of a single box"""
    events: npt.NDArray[np.int32]
    """the search in preorder, yes side first: the cut of a split, or what became of a node"""


@spliced
def _merge_classes(stack: Stack, f: int) -> None:
    """Classes with the same offset and the same residual trees are the same function: one column, masses added."""
    if not stack.merges[0]:
        return
    kept = 0
    for c in range(stack.n_classes[f]):
        twin = -1
        for k in range(kept):
            if stack.offset[f, k] == stack.offset[f, c] and stack.residue[f, k] == stack.residue[f, c]:
                same = True
                for r in range(stack.n_rows[f]):
                    if stack.rows[f, r, k] != stack.rows[f, r, c]:
                        same = False
                        break
                if same:
                    twin = k
                    break
        if twin >= 0:
            stack.class_mass[f, twin] += stack.class_mass[f, c]
        else:
            if kept != c:
                stack.offset[f, kept] = stack.offset[f, c]
                stack.residue[f, kept] = stack.residue[f, c]
                stack.class_mass[f, kept] = stack.class_mass[f, c]
                for r in range(stack.n_rows[f]):
                    stack.rows[f, r, kept] = stack.rows[f, r, c]
            kept += 1
    stack.n_classes[f] = kept


@spliced
def _narrow(axes: Axes, cuts: Cuts, stack: Stack, src: int, dst: int, cut: int, side: int) -> None:
    """The child's box: the parent's, with the cut's axis restricted to one side."""
    axis = cuts.axis[cut]
    if src != dst:
        copy_box(stack.domain[src], stack.domain[dst])
        copy_masses(stack.axis_mass[src], stack.axis_mass[dst])
    for w in range(stack.domain.shape[2]):
        stack.domain[dst, axis, w] &= cuts.mask[cut, w] if side == 1 else ~cuts.mask[cut, w]
    stack.axis_mass[dst, axis] = held_mass(stack.domain[dst, axis], axes.mass[axis])


@spliced
def _restrict_all(arena: Arena, cuts: Cuts, stack: Stack, src: int, dst: int, cut: int, side: int) -> bool:
    """Write the node `src`, restricted to one side of the cut, into frame dst (dst may be src).

    A row that is equal over all classes moves to the common trees; a row of leaves goes into the offsets.
    """
    record, tree_axes, move_key, move_to = arena.record, arena.axes, arena.move_key, arena.move_to
    axis = cuts.axis[cut]
    word, bit = axis >> 6, np.uint64(axis & 63)
    move = cut << 1 | side
    n = stack.n_classes[src]
    common, rows = stack.common, stack.rows
    constant = np.int64(0)
    residue = np.int64(0)
    kept = 0
    for t in range(stack.n_common[src]):
        tree = common[src, t]
        if (tree_axes[tree, word] >> bit) & np.uint64(1):
            moved = known_move(move_key, move_to, tree, move)
            if moved == FULL:
                moved = restrict(arena, cuts, tree, cut, side)
                if moved == FULL:
                    return False
            tree = moved
            if record[tree]["cut"] < 0:
                constant += record[tree]["min"]
                residue += residue_of(record, tree)
                continue
        common[dst, kept] = tree
        kept += 1
    if src != dst:
        for c in range(n):
            stack.offset[dst, c] = stack.offset[src, c]
            stack.residue[dst, c] = stack.residue[src, c]
            stack.class_mass[dst, c] = stack.class_mass[src, c]
    n_rows = 0
    for r in range(stack.n_rows[src]):
        equal = True
        leaves = True
        first = np.uint32(0)
        before, after = FULL, FULL  # neighbouring classes often share a tree
        for c in range(n):
            tree = rows[src, r, c]
            if tree == before:
                tree = after
            else:
                before = tree
                if (tree_axes[tree, word] >> bit) & np.uint64(1):
                    moved = known_move(move_key, move_to, tree, move)
                    if moved == FULL:
                        moved = restrict(arena, cuts, tree, cut, side)
                        if moved == FULL:
                            return False
                    tree = moved
                after = tree
            rows[dst, n_rows, c] = tree
            if c == 0:
                first = tree
            equal &= tree == first
            leaves &= record[tree]["cut"] < 0
        if equal:
            if leaves:
                constant += record[first]["min"]
                residue += residue_of(record, first)
            else:
                common[dst, kept] = first
                kept += 1
        elif leaves:
            for c in range(n):
                stack.offset[dst, c] += record[rows[dst, n_rows, c]]["min"]
                stack.residue[dst, c] += residue_of(record, rows[dst, n_rows, c])
        else:
            n_rows += 1
    if constant != 0 or residue != 0:
        for c in range(n):
            stack.offset[dst, c] += constant
            stack.residue[dst, c] += residue
    stack.n_classes[dst] = n
    stack.n_common[dst] = kept
    stack.n_rows[dst] = n_rows
    return True


@kernel
def _restrict_frame(arena: Arena, cuts: Cuts, stack: Stack, f: int, cut: int, side: int) -> bool:
    """Restrict the node of frame f in its place: a call, where it is not worth being part of its callers."""
    return _restrict_all(arena, cuts, stack, f, f, cut, side)


@kernel
def child(arena: Arena, axes: Axes, cuts: Cuts, stack: Stack, src: int, dst: int, cut: int, side: int) -> bool:
    """Frame dst becomes the child of frame src on one side of the cut; False if the arena is full."""
    _narrow(axes, cuts, stack, src, dst, cut, side)
    if not _restrict_all(arena, cuts, stack, src, dst, cut, side):
        return False
    axis = cuts.axis[cut]
    if not axes.chain[axis]:
        # Sets are not nested: what is left of the axis may settle cuts that this one alone does not.
        for other in range(cuts.start[axis], cuts.start[axis + 1]):
            if other != cut:
                outcome = side_of(cuts, stack.domain[dst], other)
                if outcome >= 0 and not _restrict_frame(arena, cuts, stack, dst, other, outcome):
                    return False
    _merge_classes(stack, dst)
    return True


@kernel
def build_root(
    arena: Arena,
    cuts: Cuts,
    stack: Stack,
    roots: npt.NDArray[np.int64],
    cut: npt.NDArray[np.int32],
    yes: npt.NDArray[np.int32],
    no: npt.NDArray[np.int32],
    value: npt.NDArray[np.int64],
    value_residue: npt.NDArray[np.int64],
    base: int,
    base_residue: int,
    sensitive_axes: npt.NDArray[np.int32],
    class_cells: npt.NDArray[np.int32],
    class_mass: npt.NDArray[np.float64],
    ids: npt.NDArray[np.uint32],
) -> bool:
    """Frame 0 becomes the whole space: every tree, restricted to every class of sensitive cells; False if no room."""
    make_leaf(arena, np.int64(0), np.int64(0))  # record 0 is a leaf: `restrict` relies on it
    for i in range(len(cut) - 1, -1, -1):  # children come after their parents
        if cut[i] < 0:
            ids[i] = make_leaf(arena, value[i], value_residue[i])
        elif ids[yes[i]] != FULL and ids[no[i]] != FULL:
            ids[i] = make(arena, cuts, cut[i], ids[yes[i]], ids[no[i]])
        if ids[i] == FULL:
            return False
    n = len(class_mass)
    for c in range(n):
        stack.offset[0, c] = base
        stack.residue[0, c] = base_residue
        stack.class_mass[0, c] = class_mass[c]
    n_common = 0
    n_rows = 0
    for t in range(len(roots)):
        equal = True
        leaves = True
        for c in range(n):
            tree = ids[roots[t]]
            for j in range(len(sensitive_axes)):
                axis = sensitive_axes[j]
                cell = class_cells[c, j]
                for k in range(cuts.start[axis], cuts.start[axis + 1]):
                    side = np.int64((cuts.mask[k, cell >> 6] >> np.uint64(cell & 63)) & np.uint64(1))
                    tree = restrict(arena, cuts, tree, k, side)  # type: ignore[arg-type]
                    if tree == FULL:
                        return False
            stack.rows[0, n_rows, c] = tree
            equal &= tree == stack.rows[0, n_rows, 0]
            leaves &= arena.record[tree]["cut"] < 0
        if leaves:
            for c in range(n):
                leaf = stack.rows[0, n_rows, c]
                stack.offset[0, c] += arena.record[leaf]["min"]
                stack.residue[0, c] += residue_of(arena.record, leaf)
        elif equal:
            stack.common[0, n_common] = stack.rows[0, n_rows, 0]
            n_common += 1
        else:
            n_rows += 1
    stack.n_classes[0] = n
    stack.n_common[0] = n_common
    stack.n_rows[0] = n_rows
    _merge_classes(stack, 0)
    return True


@kernel
def load_box(
    arena: Arena, axes: Axes, cuts: Cuts, stack: Stack, root: int, f: int, domain: npt.NDArray[np.uint64]
) -> bool:
    """Frame f becomes the node of the given box, derived from the root frame."""
    copy_box(domain, stack.domain[f])
    stack.n_classes[f] = stack.n_classes[root]
    stack.n_common[f] = 0
    stack.n_rows[f] = 0
    n = stack.n_classes[root]
    for c in range(n):
        stack.offset[f, c] = stack.offset[root, c]
        stack.residue[f, c] = stack.residue[root, c]
        stack.class_mass[f, c] = stack.class_mass[root, c]
    for t in range(stack.n_common[root]):
        stack.common[f, t] = stack.common[root, t]
    stack.n_common[f] = stack.n_common[root]
    for r in range(stack.n_rows[root]):
        for c in range(n):
            stack.rows[f, r, c] = stack.rows[root, r, c]
    stack.n_rows[f] = stack.n_rows[root]
    for a in range(stack.axis_mass.shape[1]):
        stack.axis_mass[f, a] = held_mass(domain[a], axes.mass[a])
        if axes.chain[a]:  # the tightest cut on either side settles all the others
            below = -1
            above = -1
            for cut in range(cuts.start[a], cuts.start[a + 1]):
                outcome = side_of(cuts, stack.domain[f], cut)
                if outcome == 0:
                    below = cut
                elif outcome == 1 and above < 0:
                    above = cut
            if below >= 0 and not _restrict_frame(arena, cuts, stack, f, below, 0):
                return False
            if above >= 0 and not _restrict_frame(arena, cuts, stack, f, above, 1):
                return False
            continue
        for cut in range(cuts.start[a], cuts.start[a + 1]):
            outcome = side_of(cuts, stack.domain[f], cut)
            if outcome >= 0 and not _restrict_frame(arena, cuts, stack, f, cut, outcome):
                return False
    _merge_classes(stack, f)
    return True


@kernel
def decide(arena: Arena, rules: Rules, stack: Stack, f: int, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64],
           verdict: npt.NDArray[np.int64], masses: npt.NDArray[np.float64], commit: bool) -> bool:  # fmt: skip
    """Settle by bounds what can be; True if nothing of the box is left. With commit, add the masses that are settled.

    A class's margin lies in [low, high]. Theorems 1-3 of docs/engine.md.
    """
    n = stack.n_classes[f]
    if rules.simple and n == 1:  # one class left: exchanging sensitive values changes nothing at all
        if commit:
            add_mass(masses, FAIR, box_mass(stack, f))
        return True
    bottom = np.int64(0)
    top = np.int64(0)
    for t in range(stack.n_common[f]):
        bottom += arena.record[stack.common[f, t]]["min"]
        top += arena.record[stack.common[f, t]]["max"]
    for c in range(n):
        low[c] = stack.offset[f, c] + bottom
        high[c] = stack.offset[f, c] + top
    for r in range(stack.n_rows[f]):
        for c in range(n):
            tree = stack.rows[f, r, c]
            low[c] += arena.record[tree]["min"]
            high[c] += arena.record[tree]["max"]
    min_low = low[0]
    max_low = low[0]
    min_high = high[0]
    max_high = high[0]
    for c in range(1, n):
        min_low = min(min_low, low[c])
        max_low = max(max_low, low[c])
        min_high = min(min_high, high[c])
        max_high = max(max_high, high[c])
    surely_neg = min_high <= rules.neg - rules.margin  # some class is certainly of class 0
    surely_pos = max_low >= rules.pos + rules.margin
    never_neg = min_low >= rules.pos + rules.margin
    never_pos = max_high <= rules.neg - rules.margin
    if rules.simple:
        if never_neg or never_pos:
            if commit:
                add_mass(masses, FAIR, box_mass(stack, f))
            return True
        if surely_neg and surely_pos:
            if commit:
                add_mass(masses, UNFAIR, box_mass(stack, f))
            return True
        return False
    never_neg = min_low > rules.neg + rules.margin
    never_pos = max_high < rules.pos - rules.margin
    # All classes or none: an open box is stored as its domain alone, so no part of it may be counted before the rest.
    for c in range(n):
        verdict[c] = -1
        if high[c] < rules.conf_pos - rules.margin and low[c] > rules.conf_neg + rules.margin:
            verdict[c] = LOW
        elif low[c] >= rules.conf_pos + rules.margin:
            verdict[c] = UNFAIR if surely_neg else (FAIR if never_neg else -1)
        elif high[c] <= rules.conf_neg - rules.margin:
            verdict[c] = UNFAIR if surely_pos else (FAIR if never_pos else -1)
        if verdict[c] < 0:
            return False
    if commit:
        mass = box_mass(stack, f)
        for c in range(n):
            add_mass(masses, verdict[c], mass * stack.class_mass[f, c])
    return True


@kernel
def _candidates(
    arena: Arena, cuts: Cuts, stack: Stack, f: int, score: npt.NDArray[np.float64], best: npt.NDArray[np.int32]
) -> int:
    """The root cuts with the largest summed range of the trees rooted there, most first; how many there are.

    The 1 is for trees whose range was rounded to nothing: a box is a single point per class only without any tree.
    """
    score[:] = 0.0
    for t in range(stack.n_common[f]):
        tree = stack.common[f, t]
        score[arena.record[tree]["cut"]] += 1.0 + (arena.record[tree]["max"] - arena.record[tree]["min"])
    n = stack.n_classes[f]
    for r in range(stack.n_rows[f]):
        for c in range(n):
            tree = stack.rows[f, r, c]
            if arena.record[tree]["cut"] >= 0:
                score[arena.record[tree]["cut"]] += (1.0 + (arena.record[tree]["max"] - arena.record[tree]["min"])) / n
    found = 0
    while found < len(best):
        at = -1
        for k in range(len(score)):
            if score[k] > 0.0 and (at < 0 or score[k] > score[at]):
                at = k
        if at < 0:
            break
        best[found] = at
        found += 1
        score[at] = 0.0
    return found


@kernel
def _choose(
    arena: Arena, axes: Axes, cuts: Cuts, rules: Rules, stack: Stack, f: int, spare: int, scratch: Scratch
) -> int:
    """The candidate cut whose two children are cheapest to finish."""
    n = _candidates(arena, cuts, stack, f, scratch.score, scratch.best)
    if n <= 1:
        return scratch.best[0] if n == 1 else NOTHING_TO_SPLIT
    chosen = -1
    least = np.inf
    for i in range(n):
        cost = 0.0
        for side in range(2):
            if not child(arena, axes, cuts, stack, f, spare, scratch.best[i], side):
                return NO_ROOM
            if not decide(
                arena, rules, stack, spare, scratch.low, scratch.high, scratch.verdict, scratch.masses, False
            ):
                cost += finish_cost(arena, axes, cuts, stack, spare, scratch)
            if cost >= least:
                break
        if cost < least:
            least = cost
            chosen = scratch.best[i]
    return chosen


@kernel
def search(
    arena: Arena,
    axes: Axes,
    cuts: Cuts,
    rules: Rules,
    stack: Stack,
    scratch: Scratch,
    boxes: npt.NDArray[np.uint64],
    in_mass: npt.NDArray[np.float64],
    depth_first_below: float,
    node_budget: int,
    work_budget: int,
    out_boxes: npt.NDArray[np.uint64],
    out_mass: npt.NDArray[np.float64],
    out_cost: npt.NDArray[np.float64],
    masses: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64],
    ledger: Ledger,
) -> int:
    """Work on a batch of boxes: settled masses go into `masses`, what stays open into `out_boxes`; frame 0 is the root.

    A box that is expensive to finish is split once and its children are handed back, so that the queue outside decides
    what comes next; a cheap one is finished here, depth first. Every call that is not out of room makes progress: its
    first box is settled or split. counts: [open boxes out, nodes, finished, status, work, closed boxes noted, events].
    """
    noting = len(ledger.how) > 0
    settled = ledger.one if noting else masses
    # between two looks at the budget every frame and every box of the batch may be closed
    pages = len(ledger.how) - len(stack.n_common) - len(boxes)
    spare = len(stack.n_common) - 1
    last = spare - 2
    room = len(out_boxes) - len(stack.n_common) - len(boxes)
    for i in range(len(boxes)):
        if counts[3] != DONE or not load_box(arena, axes, cuts, stack, 0, 1, boxes[i]):
            # out of room or of budget: what was not begun goes back as it came
            if counts[3] == DONE:
                counts[3] = OUT_OF_ROOM
            _emit(boxes[i], in_mass[i], UNKNOWN_COST, out_boxes, out_mass, out_cost, counts)
            _event(ledger, WAS_OPENED, counts)
            continue
        top = 1
        entered = counts[1]
        while top >= 1:
            trees = stack.n_common[top] + stack.n_rows[top] * stack.n_classes[top]
            counts[1] += 1
            counts[4] += trees
            if decide(arena, rules, stack, top, scratch.low, scratch.high, scratch.verdict, settled, True):
                if noting:
                    _note(ledger, stack.domain[top], BY_BOUNDS, masses, counts)
                top -= 1
                continue
            cost = finish_cost(arena, axes, cuts, stack, top, scratch)
            if cost <= rules.finish_limit:
                counts[4] += np.int64(cost) * (4 if rules.simple else 4 + stack.n_classes[top])
                if finish(arena, axes, cuts, rules, stack, top, scratch, settled):
                    counts[2] += 1
                    if noting:
                        _note(ledger, stack.domain[top], BY_COUNTING, masses, counts)
                    top -= 1
                    continue
            if (counts[1] - entered > 1 and cost > depth_first_below) or top >= last:
                _emit(stack.domain[top], box_mass(stack, top), cost, out_boxes, out_mass, out_cost, counts)
                _event(ledger, WAS_OPENED, counts)
                top -= 1
                continue
            if counts[1] > 1 and (
                counts[1] >= node_budget
                or counts[4] >= work_budget
                or counts[0] >= room
                or (noting and counts[5] >= pages)
            ):
                counts[3] = OUT_OF_BUDGET
                break
            counts[4] += 64 * trees
            cut = _choose(arena, axes, cuts, rules, stack, top, spare, scratch)
            if cut == NOTHING_TO_SPLIT:  # a single margin per class, and 64 bits cannot place one of them exactly
                _emit(stack.domain[top], box_mass(stack, top), NEEDS_EXACT, out_boxes, out_mass, out_cost, counts)
                _event(ledger, WAS_POINT, counts)
                top -= 1
                continue
            if (
                cut == NO_ROOM
                or not child(arena, axes, cuts, stack, top, top + 1, cut, 1)
                or not child(arena, axes, cuts, stack, top, spare, cut, 0)
            ):
                counts[3] = OUT_OF_ROOM
                break
            _event(ledger, cut, counts)
            _copy(stack, spare, top)
            top += 1
        while top >= 1:  # stopped half-way: the frames that are left are open boxes
            _emit(stack.domain[top], box_mass(stack, top), UNKNOWN_COST, out_boxes, out_mass, out_cost, counts)
            _event(ledger, WAS_OPENED, counts)
            top -= 1
    return counts[3]  # type: ignore[no-any-return]


@kernel
def _emit(
    domain: npt.NDArray[np.uint64],
    mass: float,
    cost: float,
    out_boxes: npt.NDArray[np.uint64],
    out_mass: npt.NDArray[np.float64],
    out_cost: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64],
) -> None:
    n = counts[0]
    copy_box(domain, out_boxes[n])
    out_mass[n] = mass
    out_cost[n] = cost
    counts[0] = n + 1


@kernel
def _note(
    ledger: Ledger,
    domain: npt.NDArray[np.uint64],
    how: int,
    masses: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64],
) -> None:
    """Write down a closed box, and move its masses from the ledger's single sums into the sums of all."""
    n = counts[5]
    copy_box(domain, ledger.domain[n])
    ledger.how[n] = how
    for kind in range(N_KINDS):
        ledger.masses[n, kind] = ledger.one[kind] + ledger.one[kind + N_KINDS]
        add_mass(masses, kind, ledger.one[kind])
        masses[kind + N_KINDS] += ledger.one[kind + N_KINDS]
        ledger.one[kind] = 0.0
        ledger.one[kind + N_KINDS] = 0.0
    counts[5] = n + 1
    _event(ledger, WAS_CLOSED, counts)


@kernel
def _event(ledger: Ledger, what: int, counts: npt.NDArray[np.int64]) -> None:
    if len(ledger.events) > 0:
        ledger.events[counts[6]] = what
        counts[6] += 1


@kernel
def _copy(stack: Stack, src: int, dst: int) -> None:
    n = stack.n_classes[src]
    stack.n_classes[dst] = n
    stack.n_common[dst] = stack.n_common[src]
    stack.n_rows[dst] = stack.n_rows[src]
    for c in range(n):
        stack.offset[dst, c] = stack.offset[src, c]
        stack.residue[dst, c] = stack.residue[src, c]
        stack.class_mass[dst, c] = stack.class_mass[src, c]
    for t in range(stack.n_common[src]):
        stack.common[dst, t] = stack.common[src, t]
    for r in range(stack.n_rows[src]):
        for c in range(n):
            stack.rows[dst, r, c] = stack.rows[src, r, c]
    copy_box(stack.domain[src], stack.domain[dst])
    copy_masses(stack.axis_mass[src], stack.axis_mass[dst])
