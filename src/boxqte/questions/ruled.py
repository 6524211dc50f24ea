"""Rules as trees that add nothing: what divides boxes by the trees' tests then divides them by the rules as well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boxqte.questions.grid import Cut, Grid


def with_rule_trees(grid: Grid) -> Grid:
    """The same question with one more tree of value 0 for each forbidden box, whose last leaf is that box.

    So all inputs of a path tuple are forbidden, or none is.
    """
    if not grid.forbidden:
        return grid
    cuts = {(cut.axis, cut.mask): n for n, cut in enumerate(grid.cuts)}
    cut, yes, no, leaf = (array.tolist() for array in (grid.cut, grid.yes, grid.no, grid.leaf))
    roots, values = grid.roots.tolist(), list(grid.values)

    def add_leaf() -> int:
        cut.append(-1)
        yes.append(-1)
        no.append(-1)
        leaf.append(len(values))
        values.append(0)
        return len(cut) - 1

    for one in grid.forbidden:
        roots.append(len(cut))
        later: list[int] = []  # nodes whose no side is still to come
        for axis, mask in one.masks:
            inverse = not mask & 1  # bit 0 of a cut is always set
            mask = ((1 << grid.axes[axis].n_cells) - 1) & ~mask if inverse else mask
            node = len(cut)
            cut.append(cuts.setdefault((axis, mask), len(cuts)))
            leaf.append(-1)
            yes.append(node + 1)
            no.append(-1)
            if inverse:  # yes, which comes next, is outside of the box
                add_leaf()
                no[node] = len(cut)
            else:
                later.append(node)
        add_leaf()
        for node in reversed(later):
            no[node] = add_leaf()
    return replace(
        grid,
        cuts=tuple(Cut(axis, mask) for axis, mask in cuts),
        roots=np.array(roots, np.int32),
        cut=np.array(cut, np.int32),
        yes=np.array(yes, np.int32),
        no=np.array(no, np.int32),
        leaf=np.array(leaf, np.int32),
        values=tuple(values),
    )
