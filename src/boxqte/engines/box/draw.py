"""Drawing counterexamples from boxes that were counted in value space (epsilon = 0), uniformly and without rejection.

The same lists as in finish.py, read backwards: first an entry of A and a cell of the vector part, by the counterexample
mass behind them; then an entry of B inside the interval that makes them one; then the cells that add up to the entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.exchange import load_box
from boxqte.engines.box.jit import inlined, kernel
from boxqte.engines.box.part_grids import count_users, group_axis, lay_out, scalar_list, vector_part
from boxqte.engines.box.parts import Scratch, finish_cost
from boxqte.engines.box.records import Arena, Cuts, told_apart
from boxqte.engines.box.state import Axes, Rules, Stack
from boxqte.engines.box.values import rank_of, sort_values

DRAWN, OUT_OF_ROOM, TOO_LARGE = 0, 1, 2


class Drawing(NamedTuple):
    """Working memory for drawing, beside that of finishing."""

    random: npt.NDArray[np.uint64]
    """[state of the generator]"""
    class_mass: npt.NDArray[np.float64]
    """the mass of every combination of sensitive cells"""
    member: npt.NDArray[np.int32]
    """combination -> its class in the box"""
    b_value: npt.NDArray[np.int64]
    b_mass: npt.NDArray[np.float64]
    """list B as it was before sorting"""
    b_entry: npt.NDArray[np.int32]
    """rank in B -> the entry before sorting"""
    b_used: npt.NDArray[np.int32]
    total: npt.NDArray[np.float64]
    """running sums of the counterexample mass over (entry of A, vector cell)"""
    part_axis: npt.NDArray[np.int32]
    """part x position: its axes in the order of its grid"""
    part_n: npt.NDArray[np.int32]
    part_size: npt.NDArray[np.int64]
    cell: npt.NDArray[np.int32]
    """axis x position: the box's cells, group by group"""
    cell_mass: npt.NDArray[np.float64]
    group_start: npt.NDArray[np.int32]
    """axis x group: where its cells begin; one more entry at the end"""


@inlined
def _uniform(random: npt.NDArray[np.uint64]) -> float:
    """A number in [0, 1) (splitmix64)."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def merge_noting(stack: Stack, f: int, merges: bool, d: Drawing) -> None:
    """Join the classes of the frame that are the same function, and note which combinations each one holds."""
    kept = 0
    for c in range(stack.n_classes[f]):
        twin = -1
        if merges:
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
            d.member[c] = twin
        else:
            d.member[c] = kept
            stack.offset[f, kept] = stack.offset[f, c]
            stack.residue[f, kept] = stack.residue[f, c]
            stack.class_mass[f, kept] = stack.class_mass[f, c]
            for r in range(stack.n_rows[f]):
                stack.rows[f, r, kept] = stack.rows[f, r, c]
            kept += 1
    stack.n_classes[f] = kept


@kernel
def _list_cells(axes: Axes, cuts: Cuts, stack: Stack, f: int, axis: int, grouped: bool, s: Scratch, d: Drawing) -> None:
    """The box's cells on the axis, group by group (all in one group if nothing asks about the axis)."""
    n = 0
    groups = s.group_n[axis] if grouped else 1
    for g in range(groups):
        d.group_start[axis, g] = n
        for c in range(axes.n_cells[axis]):
            if not (stack.domain[f, axis, c >> 6] >> np.uint64(c & 63)) & np.uint64(1):
                continue
            same = True
            if grouped:
                rep = s.group_cell[axis, g]
                if axes.chain[axis]:
                    same = c >= rep and (g + 1 == groups or c < s.group_cell[axis, g + 1])
                else:
                    same = not told_apart(cuts, s.active, axis, c, rep)
            if same:
                d.cell[axis, n] = c
                d.cell_mass[axis, n] = axes.mass[axis, c]
                n += 1
    d.group_start[axis, groups] = n


@inlined
def _pick_cell(d: Drawing, axis: int, group: int) -> np.int32:
    """A cell of the group, by mass."""
    first, stop = d.group_start[axis, group], d.group_start[axis, group + 1]
    if stop - first == 1:
        return d.cell[axis, first]  # type: ignore[no-any-return]
    total = 0.0
    for i in range(first, stop):
        total += d.cell_mass[axis, i]
    left = _uniform(d.random) * total
    chosen = first
    for i in range(first, stop):
        if d.cell_mass[axis, i] > 0.0:
            chosen = i
            left -= d.cell_mass[axis, i]
            if left < 0.0:
                break
    return d.cell[axis, chosen]  # type: ignore[no-any-return]


@inlined
def _search_sum(sums: npt.NDArray[np.float64], first: int, stop: int, at: float) -> int:
    """The last index i in [first, stop) with sums[i] <= at."""
    low, high = first, stop
    while low + 1 < high:
        middle = (low + high) >> 1
        if sums[middle] <= at:
            low = middle
        else:
            high = middle
    return low


@inlined
def _spell_out(d: Drawing, s: Scratch, side: int, index: int, out: npt.NDArray[np.int32]) -> None:
    """The cells behind an entry of a list (side 1 or 2) or of the vector part (side 0)."""
    for k in range(s.n_parts[0] - 1, -1, -1):
        if (k == 0) != (side == 0) or (k > 0 and s.part_side[k] != side):
            continue
        own = index % d.part_size[k]
        index //= d.part_size[k]
        for i in range(d.part_n[k] - 1, -1, -1):
            axis = d.part_axis[k, i]
            size = s.group_n[axis]
            out[axis] = _pick_cell(d, axis, own % size)
            own //= size


@kernel
def prepare(
    arena: Arena, axes: Axes, cuts: Cuts, stack: Stack, f: int, s: Scratch, d: Drawing
) -> tuple[int, int, int, int, int]:
    """The lists of a box as `finish` makes them, with what is needed to read them backwards."""
    for a in range(stack.axis_mass.shape[1]):
        inside = False
        for k in range(s.n_parts[0]):
            inside |= ((s.part_axes[k, a >> 6] >> np.uint64(a & 63)) & np.uint64(1)) != 0
        if inside:
            group_axis(axes, cuts, stack, f, a, s)
        _list_cells(axes, cuts, stack, f, a, inside, s, d)
    count_users(arena, stack, f, s)
    for k in range(s.n_parts[0]):
        n = lay_out(s.part_axes[k], s)
        d.part_n[k] = n
        size = 1
        for i in range(n):
            d.part_axis[k, i] = s.list_axis[i]
            size *= s.group_n[s.list_axis[i]]
        d.part_size[k] = size
    n_b = scalar_list(arena, cuts, axes.chain, stack, f, s, 2)
    for i in range(n_b):
        d.b_value[i] = s.value[1, i]
        d.b_mass[i] = s.mass[1, i]
    shift, top = sort_values(s, n_b)
    for i in range(n_b):
        d.b_used[i] = 0
    for i in range(n_b):  # entries of equal value take the ranks of that value one after the other
        first = rank_of(s.key, s.bucket, shift, top, d.b_value[i] - 1)
        at = first + d.b_used[first]
        d.b_used[first] += 1
        d.b_entry[at] = i
        s.mass[1, at] = d.b_mass[i]
    total = 0.0
    s.prefix[0] = 0.0
    for i in range(n_b):
        total += s.mass[1, i]
        s.prefix[i + 1] = total
    n_a = scalar_list(arena, cuts, axes.chain, stack, f, s, 1)
    n_cells = vector_part(arena, cuts, axes.chain, stack, f, s)
    return n_a, n_b, n_cells, shift, top


@inlined
def intervals(
    rules: Rules, s: Scratch, shift: int, top: int, a: np.int64, cell: int, c: int
) -> tuple[int, int, int, int]:
    """The ranks of B between which a class is confident with class 1 and sees class 0, and the other way round."""
    v = s.grid[c, cell] + a
    some_neg = rank_of(s.key, s.bucket, shift, top, rules.neg - a - s.extreme[0, cell])
    no_pos = rank_of(s.key, s.bucket, shift, top, rules.pos - 1 - a - s.extreme[1, cell])
    below_pos = rank_of(s.key, s.bucket, shift, top, rules.conf_pos - 1 - v)
    in_neg = rank_of(s.key, s.bucket, shift, top, rules.conf_neg - v)
    return below_pos, some_neg, no_pos, in_neg


@inlined
def close_to_some(s: Scratch, shift: int, top: int, limit: np.int64, fuzz: int) -> bool:
    """Whether some entry of B is so close to the limit that rounded values cannot tell on which side it is."""
    below = rank_of(s.key, s.bucket, shift, top, limit - fuzz - 1)
    return rank_of(s.key, s.bucket, shift, top, limit + fuzz) != below


@kernel
def _weigh(
    rules: Rules, stack: Stack, f: int, s: Scratch, d: Drawing, n_a: int, n_cells: int, shift: int, top: int
) -> float:
    """Running sums of the counterexample mass; the sum of all, or -1 if 64 bits cannot place some margin exactly."""
    at = 0
    total = 0.0
    prefix = s.prefix
    for i in range(n_a):
        a = s.value[0, i]
        for cell in range(n_cells):
            d.total[at] = total
            at += 1
            w = s.grid_mass[cell] * s.mass[0, i]
            if rules.simple:
                low, high = rules.neg - a - s.extreme[0, cell], rules.neg - a - s.extreme[1, cell]
                if rules.fuzz > 0 and (
                    close_to_some(s, shift, top, low, rules.fuzz) or close_to_some(s, shift, top, high, rules.fuzz)
                ):
                    return -1.0
                if low != high:
                    total += w * (
                        prefix[rank_of(s.key, s.bucket, shift, top, low)]
                        - prefix[rank_of(s.key, s.bucket, shift, top, high)]
                    )
                continue
            for c in range(stack.n_classes[f]):
                if rules.fuzz > 0:
                    v = s.grid[c, cell] + a
                    if (
                        close_to_some(s, shift, top, rules.neg - v, rules.fuzz)
                        or close_to_some(s, shift, top, rules.pos - 1 - v, rules.fuzz)
                        or close_to_some(s, shift, top, rules.conf_pos - 1 - v, rules.fuzz)
                        or close_to_some(s, shift, top, rules.conf_neg - v, rules.fuzz)
                    ):
                        return -1.0
                p0, p1, n0, n1 = intervals(rules, s, shift, top, a, cell, c)
                if p1 > p0:
                    total += w * stack.class_mass[f, c] * (prefix[p1] - prefix[p0])
                if n1 > n0:
                    total += w * stack.class_mass[f, c] * (prefix[n1] - prefix[n0])
    return total


@inlined
def _pick_combination(
    d: Drawing, s: Scratch, cell: int, add: np.int64, least: np.int64, most: np.int64, only: int
) -> int:
    """A combination of sensitive cells by mass, whose margin is in [least, most] and whose class is `only` (-1: any)."""
    total = 0.0
    count = 0
    for c in range(len(d.class_mass)):
        k = d.member[c]
        v = s.grid[k, cell] + add
        if v >= least and v <= most and (only < 0 or only == k):
            total += d.class_mass[c]
            count += 1
    even = total <= 0.0  # such values have no mass of their own; as an x' they exist
    left = _uniform(d.random) * (count if even else total)
    chosen = -1
    for c in range(len(d.class_mass)):
        k = d.member[c]
        v = s.grid[k, cell] + add
        if v >= least and v <= most and (only < 0 or only == k) and (even or d.class_mass[c] > 0.0):
            chosen = c
            left -= 1.0 if even else d.class_mass[c]
            if left < 0.0:
                break
    return chosen


@inlined
def _draw_one(rules: Rules, stack: Stack, f: int, s: Scratch, d: Drawing, total: float, n_a: int, n_cells: int,
               shift: int, top: int, out: npt.NDArray[np.int32],
              combination: npt.NDArray[np.int32]) -> None:  # fmt: skip
    """One counterexample: its cells, and the combinations of sensitive cells of x and of x'."""
    prefix = s.prefix
    r0, r1, only = 0, 0, -1
    i, cell, a = 0, 0, np.int64(0)
    while r1 <= r0:  # a rounded sum may point at an empty interval; then draw again
        at = _search_sum(d.total, 0, n_a * n_cells, _uniform(d.random) * total)
        i, cell = at // n_cells, at % n_cells
        a = s.value[0, i]
        if rules.simple:
            r0 = rank_of(s.key, s.bucket, shift, top, rules.neg - a - s.extreme[1, cell])
            r1 = rank_of(s.key, s.bucket, shift, top, rules.neg - a - s.extreme[0, cell])
            if r1 > r0 and prefix[r1] <= prefix[r0]:
                r1 = r0
            continue
        mass = 0.0
        for c in range(stack.n_classes[f]):
            p0, p1, n0, n1 = intervals(rules, s, shift, top, a, cell, c)
            mass += stack.class_mass[f, c] * (max(prefix[p1] - prefix[p0], 0.0) + max(prefix[n1] - prefix[n0], 0.0))
        left = _uniform(d.random) * mass
        for c in range(stack.n_classes[f]):
            p0, p1, n0, n1 = intervals(rules, s, shift, top, a, cell, c)
            up = stack.class_mass[f, c] * max(prefix[p1] - prefix[p0], 0.0)
            down = stack.class_mass[f, c] * max(prefix[n1] - prefix[n0], 0.0)
            if left < up:
                r0, r1, only = p0, p1, c
                break
            left -= up
            if left < down:
                r0, r1, only = n0, n1, c
                break
            left -= down
    v = prefix[r0] + _uniform(d.random) * (prefix[r1] - prefix[r0])
    rank = _search_sum(prefix, r0, r1, v)
    b, entry = s.key[rank + 1], d.b_entry[rank]
    for axis in range(len(out)):
        out[axis] = -1
    _spell_out(d, s, 0, cell, out)
    _spell_out(d, s, 1, i, out)
    _spell_out(d, s, 2, entry, out)
    for axis in range(len(out)):
        if out[axis] < 0:
            out[axis] = _pick_cell(d, axis, 0)
    far = np.int64(1) << 62
    own = _pick_combination(d, s, cell, a + b, -far, far, only)
    F = s.grid[d.member[own], cell] + a + b
    combination[0] = own
    combination[1] = -1  # rounded values cannot tell the class of x: the caller has to look for an x'
    if F <= rules.neg - rules.fuzz:  # noqa: SIM300
        combination[1] = _pick_combination(d, s, cell, a + b, np.int64(rules.pos + rules.fuzz), far, -1)
    elif F >= rules.pos + rules.fuzz:  # noqa: SIM300
        combination[1] = _pick_combination(d, s, cell, a + b, -far, np.int64(rules.neg - rules.fuzz), -1)


@kernel
def draw(
    arena: Arena,
    axes: Axes,
    cuts: Cuts,
    rules: Rules,
    stack: Stack,
    s: Scratch,
    d: Drawing,
    merges: bool,
    boxes: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
    start: int,
    place: npt.NDArray[np.int64],
    out: npt.NDArray[np.int32],
    combination: npt.NDArray[np.int32],
    status: npt.NDArray[np.int8],
) -> int:
    """counts[i] counterexamples from boxes[i], for i from `start` on; where to go on if the arena is full.

    The k-th draw goes into row place[k]. status[i]: DRAWN, or TOO_LARGE for a box that cannot be counted at once. Frame 0
    must hold all combinations, unmerged. What is called for every draw is inlined: passing all these arrays costs more.
    """
    at = 0
    for i in range(start):
        at += counts[i]
    for i in range(start, len(boxes)):
        if not load_box(arena, axes, cuts, stack, 0, 1, boxes[i]):
            return i
        merge_noting(stack, 1, merges, d)
        status[i] = TOO_LARGE
        if finish_cost(arena, axes, cuts, stack, 1, s) <= rules.finish_limit:
            n_a, _, n_cells, shift, top = prepare(arena, axes, cuts, stack, 1, s, d)
            total = _weigh(rules, stack, 1, s, d, n_a, n_cells, shift, top)
            if total > 0.0:
                status[i] = DRAWN
                for k in range(at, at + counts[i]):
                    _draw_one(
                        rules, stack, 1, s, d, total, n_a, n_cells, shift, top, out[place[k]], combination[place[k]]
                    )  # fmt: skip
        at += counts[i]
    return len(boxes)
