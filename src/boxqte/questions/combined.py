"""A grid whose sensitive attributes are one axis with chosen combinations of cells: from this value to that one.

x lies in the first combination, x' in the last. Tests of sensitive attributes become tests of the combined axis, and
tests that do not tell the combinations apart disappear.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from boxqte.errors import EngineError
from boxqte.questions.axes import Axis, Cell, Int32Array
from boxqte.questions.grid import AnyGrid, Cut, Forbidden, Grid
from boxqte.questions.variations import far_beyond, part_of_cell
from boxqte.space.attributes import Attribute
from boxqte.space.boxes import allowed_share
from boxqte.space.conditions import part_text

NAME = "sensitive value"


@dataclass(frozen=True)
class Combination:
    """One cell for every sensitive axis of a grid."""

    cells: tuple[int, ...]
    mass: Fraction
    single: bool
    text: str


def combinations(grid: AnyGrid) -> list[Combination]:
    """All combinations of cells of the sensitive axes."""
    axes = [axis for axis in grid.axes if axis.sensitive]
    return [
        Combination(
            cells,
            math.prod((axis.masses[c] for axis, c in zip(axes, cells)), start=Fraction(1)),
            all(bool(axis.single[c]) for axis, c in zip(axes, cells)),
            ", ".join(part_text(axis.attribute, part_of_cell(axis, axis.cells[c])) for axis, c in zip(axes, cells)),
        )
        for cells in itertools.product(*(range(axis.n_cells) for axis in axes))
    ]


def combined_grid(grid: Grid, chosen: Sequence[Combination]) -> Grid:
    """The grid with one sensitive axis; all mass of x is on the first combination.

    With two combinations x' must take the other one (their cells count as single points). With one, x' stays in it.
    """
    if grid.partners is not None:
        raise EngineError(
            f"pairs: sensitive values are not told apart for {grid.property.kind} or bounded changes; use `sample`, which gives "
            "pairs of inputs"
        )
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    others = [a for a, axis in enumerate(grid.axes) if not axis.sensitive]
    n = len(chosen)
    values = tuple(range(n)) if n > 1 else (0, 1)  # a cell of two values: x' may be another point of it
    attribute = Attribute(NAME, "categorical", values=values, columns=(NAME,))
    cells = tuple(Cell(values=(i,)) for i in range(n)) if n > 1 else (Cell(values=(0, 1)),)
    masses = (Fraction(1), *(Fraction(0) for _ in chosen[1:]))
    at = np.arange(n, dtype=np.int32)
    axis = Axis(attribute, True, Fraction(0), cells, masses, cells, masses, at, at * 0, at * 0 + np.int32(n - 1))
    where = {a: i for i, a in enumerate(others)}
    new = len(others)
    # per cut: its axis and the cells that it sends to yes in the new grid
    asked = []
    for cut in grid.cuts:
        if cut.axis in where:
            asked.append((where[cut.axis], cut.mask))
        else:
            j = sensitive.index(cut.axis)
            asked.append((new, sum(1 << i for i, combo in enumerate(chosen) if cut.mask >> combo.cells[j] & 1)))
    return replace(
        _regrown(grid, asked, new, n),
        axes=(*(grid.axes[a] for a in others), axis),
        forbidden=_forbidden(grid, chosen, sensitive, where),
    )


def _forbidden(
    grid: AnyGrid, chosen: Sequence[Combination], sensitive: Sequence[int], where: Mapping[int, int]
) -> tuple[Forbidden, ...]:
    """What is forbidden, where the sensitive cells are one of the chosen combinations."""
    found = []
    for one in grid.forbidden:
        masks = dict(one.masks)
        held = sum(
            1 << i
            for i, combo in enumerate(chosen)
            if all(masks.get(a, -1) >> c & 1 for a, c in zip(sensitive, combo.cells))
        )
        if held:
            own = ((len(where), held),) if held != (1 << len(chosen)) - 1 else ()
            found.append(Forbidden((*((where[a], mask) for a, mask in one.masks if a in where), *own)))
    return tuple(found)


def forbidden_in(grid: AnyGrid, group: Combination) -> Fraction:
    """The share of the inputs in a combination that rules forbid, exactly."""
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    where = {a: a for a, axis in enumerate(grid.axes) if not axis.sensitive}
    boxes = [one.masks for one in _forbidden(grid, [group], sensitive, where)]
    return 1 - allowed_share(boxes, {a: axis.masses for a, axis in enumerate(grid.axes)})


def class_1_grid(grid: Grid, group: Combination) -> Grid:
    """The grid on which the counterexamples are the x of the group that have class 1.

    x lies in the group; its only partner has the same margin less more than any margin, and so is of class 0. Signs are all
    that counts, which engines do faster than asking which x of one class are confident.
    """
    pair = combined_grid(grid, [group, group])
    at, n, leaves = len(pair.axes) - 1, len(pair.cut), len(pair.values)

    def longer(array: Int32Array, *new: int) -> Int32Array:
        return np.append(array, np.array(new, np.int32)).astype(np.int32)

    return replace(
        pair,
        cuts=(*pair.cuts, Cut(at, 1)),
        roots=longer(pair.roots, n),
        cut=longer(pair.cut, len(pair.cuts), -1, -1),
        yes=longer(pair.yes, n + 1, -1, -1),
        no=longer(pair.no, n + 2, -1, -1),
        leaf=longer(pair.leaf, -1, leaves, leaves + 1),
        values=(*pair.values, 0, -2 * far_beyond(pair)),
    )


def _regrown(grid: Grid, asked: Sequence[tuple[int, int]], combined: int, n: int) -> Grid:
    """The trees over the new cuts, in preorder, without tests that are settled on the combined axis."""
    cuts: dict[tuple[int, int], int] = {}
    cut: list[int] = []
    no: list[int] = []
    leaf: list[int] = []
    roots: list[int] = []
    for root in grid.roots.tolist():
        roots.append(len(cut))
        stack = [(root, (1 << n) - 1, -1)]  # node, the combinations that are left, whose no side this is
        while stack:
            node, left, parent = stack.pop()
            while grid.cut[node] >= 0:
                axis, mask = asked[grid.cut[node]]
                if axis != combined or (left & mask and left & ~mask):
                    break
                node = int(grid.yes[node] if left & mask else grid.no[node])
            if parent >= 0:
                no[parent] = len(cut)
            if grid.cut[node] < 0:
                cut.append(-1)
                leaf.append(int(grid.leaf[node]))
                no.append(-1)
                continue
            axis, mask = asked[grid.cut[node]]
            yes_side, no_side = int(grid.yes[node]), int(grid.no[node])
            if axis == combined:
                if not mask & 1:  # bit 0 of a cut is always set
                    mask, yes_side, no_side = ((1 << n) - 1) & ~mask, no_side, yes_side
                stack += [(no_side, left & ~mask, len(cut)), (yes_side, left & mask, -1)]
            else:
                stack += [(no_side, left, len(cut)), (yes_side, left, -1)]
            cut.append(cuts.setdefault((axis, mask), len(cuts)))
            no.append(-1)
            leaf.append(-1)
    asking = np.array(cut, np.int32)
    at_leaf = asking < 0
    numbers = np.array(leaf, np.int64)
    return replace(
        grid,
        cuts=tuple(Cut(axis, mask) for axis, mask in cuts),
        roots=np.array(roots, np.int32),
        cut=asking,
        yes=np.where(at_leaf, -1, np.arange(1, len(asking) + 1)).astype(np.int32),
        no=np.array(no, np.int32),
        leaf=np.where(at_leaf, np.cumsum(at_leaf) - 1, -1).astype(np.int32),
        values=tuple(grid.values[i] for i in numbers[at_leaf].tolist()),
    )
