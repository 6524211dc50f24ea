"""Finishing a box in value space: where trees no longer interact, count sums of independent values instead of cells.

The residual trees of a node fall apart into components that share no axis. The components that touch a
sensitive-dependent tree form the vector part: a dense grid of margins, one per class. Every other component is a
scalar: a list of (value, mass). The scalars are summed into two lists A and B; for a vector cell and an entry of A, the
share of B that makes the box unfair is a difference of two entries of B's distribution function (docs/engine.md,
Theorem 4).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import kernel
from boxqte.engines.box.part_grids import count_users, group_axis, scalar_list, vector_extremes, vector_part
from boxqte.engines.box.parts import Scratch
from boxqte.engines.box.records import Arena, Cuts
from boxqte.engines.box.state import AMBIGUOUS, FAIR, LOW, N_KINDS, UNFAIR, Axes, Rules, Stack, add_mass, box_mass
from boxqte.engines.box.values import near_mass, rank_of, sort_values

BLOCK = 64  # sums are taken in blocks of this many terms: fewer roundings on the way to each sum
FEW = BLOCK  # so many entries of B are compared with every cell: vector instructions, no search
TILE = 512  # cells that stay in the nearest cache while B's entries go by


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
                at_low = rank_of(key, bucket, shift, top, low)
                at_high = rank_of(key, bucket, shift, top, high)
                block += w * (prefix[at_low] - prefix[at_high])
                near += w * a_mass[i] * (near_mass(key, prefix, bucket, shift, top, at_low, low, band)
                                         + near_mass(key, prefix, bucket, shift, top, at_high, high, band))  # fmt: skip
                if fuzz > 0:
                    fuzzy += (near_mass(key, prefix, bucket, shift, top, at_low, low, fuzz)
                              + near_mass(key, prefix, bucket, shift, top, at_high, high, fuzz))  # fmt: skip
            add_mass(out, UNFAIR, a_mass[i] * block)
    return near, fuzzy


@kernel
def _spread_over_a(s: Scratch, n_a: int, n_cells: int) -> int:
    """Every vector cell with every entry of A: their extremes and masses in place of the cells'; how many."""
    for i in range(n_a - 1, -1, -1):  # the cells themselves are overwritten last
        start = np.uint64(i * n_cells)
        value, mass = s.value[0, i], s.mass[0, i]
        for kind in range(2):
            extreme = s.extreme[kind]
            for c in range(np.uint64(n_cells)):
                extreme[start + c] = extreme[c] + value
        for c in range(np.uint64(n_cells)):
            s.grid_mass[start + c] = s.grid_mass[c] * mass
    return n_a * n_cells


@kernel
def _count_few(
    b_value: npt.NDArray[np.int64],
    b_mass: npt.NDArray[np.float64],
    n_b: int,
    least: npt.NDArray[np.int64],
    most: npt.NDArray[np.int64],
    cell_mass: npt.NDArray[np.float64],
    n_cells: int,
    neg: int,
    band: int,
    fuzz: int,
    share: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
) -> tuple[float, float]:
    """As _count_signs, for at most FEW entries of B, in no order. Unsigned indices are not checked for signs."""
    out[:] = 0.0
    near = 0.0
    fuzzy = 0.0
    reach = np.int64(max(band, fuzz))
    width = np.uint64(2 * reach)
    for start in range(0, n_cells, TILE):
        first, size = np.uint64(start), np.uint64(min(TILE, n_cells - start))
        for c in range(size):
            share[c] = 0.0
        for j in range(n_b):
            limit, w = neg - b_value[j], b_mass[j]
            lowest = limit - reach
            close = False
            for c in range(size):
                low, high = least[first + c], most[first + c]
                share[c] += w if (low <= limit) & (high > limit) else 0.0
                close |= bool((np.uint64(low - lowest) <= width) | (np.uint64(high - lowest) <= width))
            if close:
                for c in range(start, min(start + TILE, n_cells)):
                    by_low, by_high = abs(limit - least[c]), abs(limit - most[c])
                    if least[c] != most[c] or fuzz > 0:
                        near += cell_mass[c] * w * (int(by_low <= band) + int(by_high <= band))
                    if fuzz > 0:
                        fuzzy += int(by_low <= fuzz) + int(by_high <= fuzz)
        for block in range(start, min(start + TILE, n_cells), BLOCK):
            total = 0.0
            for c in range(block, min(block + BLOCK, start + TILE, n_cells)):
                total += cell_mass[c] * share[c - start]
            if total > 0.0:
                add_mass(out, UNFAIR, total)
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
            some_neg = rank_of(key, bucket, shift, top, neg_limit)
            no_pos = rank_of(key, bucket, shift, top, pos_limit)
            edge = 0.0
            tight = 0.0
            if least[cell] != most[cell]:
                edge = (near_mass(key, prefix, bucket, shift, top, some_neg, neg_limit, band)
                        + near_mass(key, prefix, bucket, shift, top, no_pos, pos_limit, band))  # fmt: skip
            if fuzz > 0 and n > 1:
                tight = (near_mass(key, prefix, bucket, shift, top, some_neg, neg_limit, fuzz)
                         + near_mass(key, prefix, bucket, shift, top, no_pos, pos_limit, fuzz))  # fmt: skip
            cell_unfair = 0.0
            cell_unsure = 0.0
            for c in range(n):
                v = margins[c, cell] + a
                below_pos = rank_of(key, bucket, shift, top, conf_pos - 1 - v)
                in_neg = rank_of(key, bucket, shift, top, conf_neg - v)
                cell_unsure += class_mass[c] * (prefix[below_pos] - prefix[in_neg])
                if some_neg > below_pos:
                    cell_unfair += class_mass[c] * (prefix[some_neg] - prefix[below_pos])
                if in_neg > no_pos:
                    cell_unfair += class_mass[c] * (prefix[in_neg] - prefix[no_pos])
                near += w * class_mass[c] * a_mass[i] * (
                    edge
                    + near_mass(key, prefix, bucket, shift, top, below_pos, conf_pos - 1 - v, band)
                    + near_mass(key, prefix, bucket, shift, top, in_neg, conf_neg - v, band))  # fmt: skip
                if fuzz > 0:
                    fuzzy += (tight + near_mass(key, prefix, bucket, shift, top, below_pos, conf_pos - 1 - v, fuzz)
                              + near_mass(key, prefix, bucket, shift, top, in_neg, conf_neg - v, fuzz))  # fmt: skip
            part += w * cell_unfair
            doubt += w * cell_unsure
            if cell % BLOCK == BLOCK - 1 or cell == n_cells - 1:
                add_mass(out, UNFAIR, a_mass[i] * part)
                add_mass(out, LOW, a_mass[i] * doubt)
                part = 0.0
                doubt = 0.0
    return near, fuzzy


@kernel
def _distribution(s: Scratch, n_b: int) -> tuple[int, int]:
    """Sort list B and sum its masses up; what `rank_of` needs to know."""
    shift, top = sort_values(s, n_b)
    total = 0.0
    lost = 0.0  # Neumaier: keeps the prefix sums to one rounding each
    s.prefix[0] = 0.0
    for i in range(n_b):
        x = s.mass[1, i]
        t = total + x
        lost += (total - t) + x if total >= x else (x - t) + total
        total = t
        s.prefix[i + 1] = total + lost
    return shift, top


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
            group_axis(axes, cuts, stack, f, a, s)
        else:
            outside *= stack.axis_mass[f, a]
    count_users(arena, stack, f, s)
    n_b = scalar_list(arena, cuts, axes.chain, stack, f, s, 2)
    few = rules.simple and n_b <= FEW
    shift, top = (0, 0) if few else _distribution(s, n_b)
    n_a = scalar_list(arena, cuts, axes.chain, stack, f, s, 1)
    if few:
        n_cells = vector_extremes(arena, cuts, axes.chain, stack, f, s)
        if n_a > 1:
            n_cells = _spread_over_a(s, n_a, n_cells)
        near, fuzzy = _count_few(
            s.value[1], s.mass[1], n_b, s.extreme[0], s.extreme[1], s.grid_mass, n_cells, rules.neg, rules.band,
            rules.fuzz, s.share, s.masses,
        )  # fmt: skip
    elif rules.simple:
        n_cells = vector_extremes(arena, cuts, axes.chain, stack, f, s)
        near, fuzzy = _count_signs(
            s.value[0], s.mass[0], n_a, s.extreme[0], s.extreme[1], s.grid_mass, n_cells, s.key, s.prefix, s.bucket,
            shift, top, rules.neg, rules.band, rules.fuzz, s.masses,
        )  # fmt: skip
    else:
        n_cells = vector_part(arena, cuts, axes.chain, stack, f, s)
        near, fuzzy = _count_confident(
            s.value[0], s.mass[0], n_a, s.extreme[0], s.extreme[1], s.grid, stack.class_mass[f], stack.n_classes[f],
            s.grid_mass, n_cells, s.key, s.prefix, s.bucket, shift, top, rules.pos, rules.neg, rules.conf_pos,
            rules.conf_neg, rules.band, rules.fuzz, s.masses,
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
