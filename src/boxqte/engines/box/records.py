"""Residual trees, hash-consed: each distinct subtree that a restriction can leave is one immutable record.

make(cut, yes, no) returns `yes` if both sides are equal and otherwise the one record of that triple; restricting a tree
to one side of a cut is then a memoised walk. Equal functions of the same shape have equal numbers, so comparing two
residual trees is comparing two integers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import inlined, kernel
from boxqte.engines.box.lanes import first_bit

RECORD = np.dtype(
    [("cut", np.int32), ("yes", np.uint32), ("no", np.uint32), ("pad", np.uint32), ("min", np.int64), ("max", np.int64)]
)
FULL = np.uint32(0xFFFFFFFF)  # returned when an arena has no room left; callers pass it on


class Cuts(NamedTuple):
    """The cuts of a problem, sorted by axis; all that a restriction needs to know."""

    axis: npt.NDArray[np.int32]
    """cut -> axis"""
    start: npt.NDArray[np.int32]
    """axis -> first cut; one more entry at the end"""
    prefix: npt.NDArray[np.int32]
    """cut -> how many cells it sends to `yes` (on a chain: the first so many)"""
    mask: npt.NDArray[np.uint64]
    """cut x word: the cells it sends to `yes`"""
    implied_at: npt.NDArray[np.int64]
    """cut -> where its two rows in `implied` begin"""
    implied: npt.NDArray[np.int8]
    """[side][other cut of the axis]: once this cut is taken to that side, 1 the other says yes, 0 no, -1 it is open"""


class Arena(NamedTuple):
    """Records and their two hash tables. `used[0]` counts records, `used[1]` transitions."""

    used: npt.NDArray[np.int64]
    record: npt.NDArray[np.void]
    cuts: npt.NDArray[np.uint64]
    """record x word: the cuts it tests"""
    axes: npt.NDArray[np.uint64]
    """record x word: the axes it tests"""
    unique: npt.NDArray[np.uint32]
    """open addressing: the record of a triple, + 1"""
    move_key: npt.NDArray[np.uint64]
    move_to: npt.NDArray[np.uint32]


def new_arena(n_cuts: int, n_axes: int, capacity: int) -> Arena:
    """An empty arena; capacity is a power of two."""
    return Arena(
        np.zeros(2, np.int64),
        np.zeros(capacity, RECORD),
        np.zeros((capacity, (n_cuts + 63) // 64 or 1), np.uint64),
        np.zeros((capacity, (n_axes + 63) // 64 or 1), np.uint64),
        np.zeros(capacity * 2, np.uint32),
        np.zeros(capacity * 8, np.uint64),
        np.zeros(capacity * 8, np.uint32),
    )


@inlined
def _mix(key: np.uint64) -> np.uint64:
    key ^= key >> np.uint64(33)
    key *= np.uint64(0xFF51AFD7ED558CCD)
    key ^= key >> np.uint64(33)
    key *= np.uint64(0xC4CEB9FE1A85EC53)
    return key ^ (key >> np.uint64(33))


@kernel
def make_leaf(arena: Arena, value: np.int64, residue: np.int64) -> np.uint32:
    """The record of a constant; value and residue together say which exact one (problem.py)."""
    size = np.uint64(len(arena.unique) - 1)
    low = np.uint32(np.uint64(residue) & np.uint64(0xFFFFFFFF))
    high = np.uint32(np.uint64(residue) >> np.uint64(32))
    at = _mix(np.uint64(value) ^ _mix(np.uint64(residue) ^ np.uint64(0x9E3779B97F4A7C15))) & size
    while arena.unique[at] != 0:
        found = arena.record[arena.unique[at] - 1]
        if found["cut"] == -1 and found["min"] == value and found["yes"] == low and found["no"] == high:
            return np.uint32(arena.unique[at] - 1)
        at = (at + np.uint64(1)) & size
    made = arena.used[0]
    if made >= len(arena.record):
        return FULL
    arena.used[0] += 1
    arena.record[made]["cut"] = -1
    arena.record[made]["yes"] = low
    arena.record[made]["no"] = high
    arena.record[made]["min"] = value
    arena.record[made]["max"] = value
    arena.cuts[made, :] = 0
    arena.axes[made, :] = 0
    arena.unique[at] = made + 1
    return np.uint32(made)


@inlined
def residue_of(record: npt.NDArray[np.void], leaf: np.uint32) -> np.int64:
    """A leaf has no children: their place holds its residue."""
    return np.int64((np.uint64(record[leaf]["no"]) << np.uint64(32)) | np.uint64(record[leaf]["yes"]))


@kernel
def make(arena: Arena, cuts: Cuts, cut: int, yes: np.uint32, no: np.uint32) -> np.uint32:
    """The record of 'if cut then yes else no'; `yes` itself where both are equal."""
    if yes == no:
        return yes
    size = np.uint64(len(arena.unique) - 1)
    at = (
        _mix((np.uint64(yes) << np.uint64(32)) ^ np.uint64(no) ^ (np.uint64(cut) * np.uint64(0x9E3779B97F4A7C15)))
        & size
    )
    while arena.unique[at] != 0:
        i = arena.unique[at] - 1
        if arena.record[i]["cut"] == cut and arena.record[i]["yes"] == yes and arena.record[i]["no"] == no:
            return np.uint32(i)
        at = (at + np.uint64(1)) & size
    made = arena.used[0]
    if made >= len(arena.record):
        return FULL
    arena.used[0] += 1
    arena.record[made]["cut"] = cut
    arena.record[made]["yes"] = yes
    arena.record[made]["no"] = no
    arena.record[made]["min"] = min(arena.record[yes]["min"], arena.record[no]["min"])
    arena.record[made]["max"] = max(arena.record[yes]["max"], arena.record[no]["max"])
    for w in range(arena.cuts.shape[1]):
        arena.cuts[made, w] = arena.cuts[yes, w] | arena.cuts[no, w]
    arena.cuts[made, cut >> 6] |= np.uint64(1) << np.uint64(cut & 63)
    axis = cuts.axis[cut]
    for w in range(arena.axes.shape[1]):
        arena.axes[made, w] = arena.axes[yes, w] | arena.axes[no, w]
    arena.axes[made, axis >> 6] |= np.uint64(1) << np.uint64(axis & 63)
    arena.unique[at] = made + 1
    return np.uint32(made)


@inlined
def known_move(
    move_key: npt.NDArray[np.uint64], move_to: npt.NDArray[np.uint32], tree: np.uint32, move: int
) -> np.uint32:
    """The memoised restriction of a tree (move = cut << 1 | side), or FULL if it was not made yet."""
    key = (np.uint64(tree) << np.uint64(32)) | np.uint64(move)
    size = np.uint64(len(move_key) - 1)
    at = _mix(key) & size
    while move_key[at] != 0:
        if move_key[at] == key:
            return move_to[at]  # type: ignore[no-any-return]
        at = (at + np.uint64(1)) & size
    return FULL


@kernel
def restrict(arena: Arena, cuts: Cuts, tree: np.uint32, cut: int, side: int) -> np.uint32:
    """The tree on the points that `cut` sends to `side` (1 yes, 0 no)."""
    axis = cuts.axis[cut]
    if not (arena.axes[tree, axis >> 6] >> np.uint64(axis & 63)) & np.uint64(1):
        return tree
    key = (np.uint64(tree) << np.uint64(32)) | np.uint64(cut << 1 | side)
    size = np.uint64(len(arena.move_key) - 1)
    at = _mix(key) & size
    # key 0 would be record 0 under cut 0; record 0 is always a leaf, so it never gets here
    while arena.move_key[at] != 0:
        if arena.move_key[at] == key:
            return arena.move_to[at]  # type: ignore[no-any-return]
        at = (at + np.uint64(1)) & size
    node_cut = arena.record[tree]["cut"]
    yes, no = arena.record[tree]["yes"], arena.record[tree]["no"]
    outcome = -1
    if cuts.axis[node_cut] == axis:
        width = cuts.start[axis + 1] - cuts.start[axis]
        outcome = cuts.implied[cuts.implied_at[cut] + side * width + (node_cut - cuts.start[axis])]
    if outcome == 1:
        result = restrict(arena, cuts, yes, cut, side)
    elif outcome == 0:
        result = restrict(arena, cuts, no, cut, side)
    else:
        new_yes = restrict(arena, cuts, yes, cut, side)
        new_no = restrict(arena, cuts, no, cut, side)
        if new_yes == FULL or new_no == FULL:
            return FULL
        result = make(arena, cuts, node_cut, new_yes, new_no)
    if result == FULL or 2 * arena.used[1] >= len(arena.move_key):
        return FULL
    at = _mix(key) & size  # the recursion may have filled the slot found above
    while arena.move_key[at] != 0:
        at = (at + np.uint64(1)) & size
    arena.used[1] += 1
    arena.move_key[at] = key
    arena.move_to[at] = result
    return result


@inlined
def touches(axes: npt.NDArray[np.uint64], tree: np.uint32, which: npt.NDArray[np.uint64], flip: bool) -> bool:
    """Whether the tree tests an axis of the set (flip: an axis outside it)."""
    for w in range(len(which)):
        word = ~which[w] if flip else which[w]
        if axes[tree, w] & word:
            return True
    return False


@inlined
def side_of(cuts: Cuts, domain: npt.NDArray[np.uint64], cut: int) -> int:
    """1 if the box lies wholly on the cut's yes side, 0 if wholly on the no side, -1 if on both."""
    axis = cuts.axis[cut]
    yes = False
    no = False
    for w in range(domain.shape[1]):
        word = domain[axis, w]
        yes |= (word & cuts.mask[cut, w]) != 0
        no |= (word & ~cuts.mask[cut, w]) != 0
    if yes and no:
        return -1
    return 1 if yes else 0


@inlined
def held_mass(cells: npt.NDArray[np.uint64], mass: npt.NDArray[np.float64]) -> float:
    """The mass of the cells of one axis that a box holds."""
    total = 0.0
    for w in range(len(cells)):
        word = cells[w]
        while word != 0:
            total += mass[np.uint64(w << 6) + first_bit(word)]
            word &= word - np.uint64(1)
    return total


@inlined
def told_apart(cuts: Cuts, active: npt.NDArray[np.uint64], axis: int, one: int, two: int) -> bool:
    """Whether an active cut sends two cells of the axis to different sides."""
    for k in range(cuts.start[axis], cuts.start[axis + 1]):
        if (active[k >> 6] >> np.uint64(k & 63)) & np.uint64(1):
            first = cuts.mask[k, one >> 6] >> np.uint64(one & 63)
            second = cuts.mask[k, two >> 6] >> np.uint64(two & 63)
            if (first ^ second) & np.uint64(1):
                return True
    return False
