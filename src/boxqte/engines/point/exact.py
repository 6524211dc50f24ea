"""One point in Python's integers: for margins that 64 bits cannot tell from a threshold, and as a readable reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boxqte.grid import Grid

Range = tuple[int, int]


def exact_margin(grid: Grid, cells: Sequence[int]) -> int:
    """F at a base cell of every axis of the grid."""
    return grid.base + sum(low for low, _ in _bounds(grid, [(c, c) for c in cells]))


def counterexample(grid: Grid, cells: Sequence[int]) -> tuple[bool, list[int] | None]:
    """Whether the x in these refined cells is confident, and the base cells of an x' that makes it a counterexample."""
    t = grid.thresholds
    own = [int(axis.base[c]) for axis, c in zip(grid.axes, cells)]
    F = exact_margin(grid, own)
    if t.conf_neg < F < t.conf_pos:
        return False, None
    window = [(int(axis.near_lo[c]), int(axis.near_hi[c])) for axis, c in zip(grid.axes, cells)]
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    differ = bool(sensitive) and all(grid.axes[a].single[own[a]] for a in sensitive)
    stack = [window]
    while stack:
        box = stack.pop()
        if differ and all(box[a] == (own[a], own[a]) for a in sensitive):
            continue
        bounds = list(_bounds(grid, box))
        least, most = (grid.base + sum(b[side] for b in bounds) for side in (0, 1))
        if (least > t.neg) if t.conf_pos <= F else (most < t.pos):
            continue
        widest = max(range(len(box)), key=lambda a: box[a][1] - box[a][0])
        low, high = box[widest]
        if low == high:
            return True, [low for low, _ in box]
        middle = (low + high) // 2
        for part in ((low, middle), (middle + 1, high)):
            stack.append([*box[:widest], part, *box[widest + 1 :]])
    return True, None


def _bounds(grid: Grid, box: Sequence[Range]) -> Iterator[Range]:
    """The smallest and largest leaf of every tree that the box can reach (as far as each test tells by itself)."""
    for root in grid.roots.tolist():
        stack, reached = [root], []
        while stack:
            node = stack.pop()
            if grid.cut[node] < 0:
                reached.append(grid.values[grid.leaf[node]])
                continue
            cut = grid.cuts[grid.cut[node]]
            low, high = box[cut.axis]
            inside = (cut.mask >> low) & ((1 << (high - low + 1)) - 1)
            if inside:
                stack.append(int(grid.yes[node]))
            if inside != (1 << (high - low + 1)) - 1:
                stack.append(int(grid.no[node]))
        yield min(reached), max(reached)
