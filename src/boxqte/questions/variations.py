"""Variations of a grid: the same question about fewer x, or about x of one class only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from boxqte.errors import SpaceError
from boxqte.questions.axes import Axis, Cell
from boxqte.questions.building import build_any_grid
from boxqte.questions.grid import AnyGrid, Grid, binary
from boxqte.space.conditions import Part, mass_of, restrict_space, whole


def restricted_grid(grid: AnyGrid, parts: Mapping[str, Part], text: str) -> tuple[AnyGrid, Fraction]:
    """The same question, where only x inside the parts count; and the mass that they had."""
    space, share, only_missing = restrict_space(grid.space, parts, text)
    changed = build_any_grid(grid.ensemble, space, grid.property)
    if isinstance(changed, Grid):
        changed = replace(changed, thresholds=binary(grid).thresholds)
    axes = list(changed.axes)
    for at, (axis, old) in enumerate(zip(changed.axes, grid.axes)):
        if axis.masses != old.masses and _only_missing(old):  # so it was restricted before
            part = parts.get(axis.attribute.name)
            if part is not None and not part.missing:
                raise SpaceError(f"condition {text!r}: no input of the space satisfies it with positive mass")
            if part is not None:  # the space does not know that all its mass is on the missing value
                share /= mass_of(old.attribute, part)
            axes[at] = replace(axis, masses=old.masses, refined_masses=old.refined_masses)
    for name in only_missing:  # no mass of an attribute can say this
        at = space.names.index(name)
        axis = axes[at]
        axes[at] = replace(
            axis,
            masses=tuple(Fraction(cell.missing) for cell in axis.cells),
            refined_masses=tuple(Fraction(cell.missing) for cell in axis.refined),
        )
    return replace(changed, axes=tuple(axes)), share


def _only_missing(axis: Axis) -> bool:
    return axis.cells[-1].missing and axis.masses[-1] == 1


def part_of_cell(axis: Axis, cell: Cell) -> Part:
    """The values of one cell as a part of its attribute's domain."""
    if cell.low is None or cell.high is None:
        return Part(values=frozenset(cell.values), missing=cell.missing)
    if axis.attribute.low == axis.attribute.high:
        return replace(whole(axis.attribute), missing=False)
    return Part(spans=((cell.low[0], cell.high[0]),))


def one_class_grid(grid: Grid, positive: bool) -> Grid:
    """The same question, where only x of one class count: all others are not confident."""
    far = far_beyond(grid)
    t = grid.thresholds
    if positive:
        return replace(grid, thresholds=replace(t, conf_neg=-far))
    return replace(grid, thresholds=replace(t, conf_pos=far))


def one_way_grid(grid: Grid, low: bool) -> Grid:
    """The same question about scores, where only x' with a lower score count (`low`), or only x' with a higher one."""
    assert grid.partners is not None
    nobody = ((1, 0),) * len(grid.partners.low)
    free = replace(grid.partners, order=0)
    return replace(grid, partners=replace(free, high=nobody) if low else replace(free, low=nobody))


def far_beyond(grid: Grid) -> int:
    """More than any |F| and than any threshold."""
    largest = 1 + abs(grid.base) + sum(max(map(abs, values)) for values in _leaf_values(grid))
    t = grid.thresholds
    return max(largest, *map(abs, (t.pos, t.neg, t.conf_pos, t.conf_neg))) + 1


def _leaf_values(grid: Grid) -> list[list[int]]:
    """The leaf values of every tree; the trees are stored one after the other."""
    stops = [*grid.roots.tolist()[1:], len(grid.cut)]
    return [
        [grid.values[leaf] for leaf in grid.leaf[start:stop].tolist() if leaf >= 0]
        for start, stop in zip(grid.roots.tolist(), stops)
    ]
