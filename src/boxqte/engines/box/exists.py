"""Is there any counterexample in a counted box? By ranks, not by masses: a mass may be lost in rounding, a rank cannot."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.draw import Drawing, close_to_some, intervals, merge_noting, prepare
from boxqte.engines.box.exchange import load_box
from boxqte.engines.box.jit import kernel
from boxqte.engines.box.parts import Scratch, finish_cost
from boxqte.engines.box.records import Arena, Cuts
from boxqte.engines.box.state import Axes, Rules, Stack
from boxqte.engines.box.values import rank_of

NONE, SOME, UNSURE = 0, 1, 2


@kernel
def _any_pair(rules: Rules, stack: Stack, f: int, s: Scratch, n_a: int, n_cells: int, shift: int, top: int) -> int:
    """SOME if an entry of B makes a counterexample with some entry of A and some vector cell."""
    for i in range(n_a):
        a = s.value[0, i]
        for cell in range(n_cells):
            if rules.simple:
                low, high = rules.neg - a - s.extreme[0, cell], rules.neg - a - s.extreme[1, cell]
                if rules.fuzz > 0 and (
                    close_to_some(s, shift, top, low, rules.fuzz) or close_to_some(s, shift, top, high, rules.fuzz)
                ):
                    return UNSURE
                if rank_of(s.key, s.bucket, shift, top, low) != rank_of(s.key, s.bucket, shift, top, high):
                    return SOME
                continue
            for c in range(stack.n_classes[f]):
                if stack.class_mass[f, c] == 0.0:  # not among the x that are asked about
                    continue
                p0, p1, n0, n1 = intervals(rules, s, shift, top, a, cell, c)
                if rules.fuzz > 0:
                    v = s.grid[c, cell] + a
                    if (
                        close_to_some(s, shift, top, rules.neg - v, rules.fuzz)
                        or close_to_some(s, shift, top, rules.pos - 1 - v, rules.fuzz)
                        or close_to_some(s, shift, top, rules.conf_pos - 1 - v, rules.fuzz)
                        or close_to_some(s, shift, top, rules.conf_neg - v, rules.fuzz)
                    ):
                        return UNSURE
                if p1 > p0 or n1 > n0:
                    return SOME
    return NONE


@kernel
def exists(
    arena: Arena,
    axes: Axes,
    cuts: Cuts,
    rules: Rules,
    stack: Stack,
    s: Scratch,
    d: Drawing,
    merges: bool,
    boxes: npt.NDArray[np.uint64],
    start: int,
    found: npt.NDArray[np.int8],
) -> int:
    """found[i]: NONE, SOME, or UNSURE (boxes[i] cannot be counted at once); where to go on if the arena is full."""
    for i in range(start, len(boxes)):
        if not load_box(arena, axes, cuts, stack, 0, 1, boxes[i]):
            return i
        merge_noting(stack, 1, merges, d)
        found[i] = UNSURE
        if finish_cost(arena, axes, cuts, stack, 1, s) <= rules.finish_limit:
            n_a, _, n_cells, shift, top = prepare(arena, axes, cuts, stack, 1, s, d)
            found[i] = _any_pair(rules, stack, 1, s, n_a, n_cells, shift, top)
    return len(boxes)
