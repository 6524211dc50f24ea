"""The parts of a box: components of its residual trees that share no axis, and the working memory to count in them.

Part 0, the vector part, holds every component that touches a sensitive-dependent tree; every other one is a scalar.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import inlined, spliced
from boxqte.engines.box.records import Arena, Cuts
from boxqte.engines.box.state import Axes, Stack


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
    todo: npt.NDArray[np.int64]
    """the blocks of a tree that have still to be filled: its residual, then [first, stop) of the groups on every own axis"""
    block_at: npt.NDArray[np.int64]
    now: npt.NDArray[np.int32]
    """axis -> the cell of the current grid point"""
    list_axis: npt.NDArray[np.int32]
    stride: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    odometer: npt.NDArray[np.int32]
    ripe: npt.NDArray[np.int32]
    """tree -> the place of its last axis in list_axis; -1 once it has been added"""
    trees: npt.NDArray[np.uint32]
    same: npt.NDArray[np.uint32]
    own: npt.NDArray[np.int32]
    own_at: npt.NDArray[np.int32]
    """axis -> its place in own"""
    own_stride: npt.NDArray[np.int64]
    free: npt.NDArray[np.int32]
    run: npt.NDArray[np.int64]
    run_stride: npt.NDArray[np.int64]
    scope_axes: npt.NDArray[np.uint64]
    scope: npt.NDArray[np.int64]
    users: npt.NDArray[np.int32]
    """axis -> how many tables will be spread along it"""
    grid: npt.NDArray[np.int64]
    """class x cell"""
    grid_mass: npt.NDArray[np.float64]
    extreme: npt.NDArray[np.int64]
    """[min, max] x cell"""
    row_axes: npt.NDArray[np.uint64]
    """the axes of the sensitive-dependent trees"""
    row_stride: npt.NDArray[np.int64]
    own_part: npt.NDArray[np.int64]
    """one class's margin without the common trees, over row_axes"""
    row_extreme: npt.NDArray[np.int64]
    """[min, max] x cell of row_axes"""
    share: npt.NDArray[np.float64]
    """the unfair share of some cells"""
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
def overlap(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> bool:
    for w in range(len(a)):  # noqa: SIM110 (a generator costs more here)
        if a[w] & b[w]:
            return True
    return False


@spliced
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
            if c > 0 and tree == stack.rows[f, r, c - 1]:
                continue
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


@spliced
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
