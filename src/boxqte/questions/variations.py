"""Variations of a grid: the same question about fewer x, or about x of one class only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from boxqte.errors import SpaceError
from boxqte.questions.axes import Axis, Cell
from boxqte.questions.building import build_any_grid
from boxqte.questions.grid import AnyGrid, Grid, binary
from boxqte.space.conditions import Part, mass_of, restricted, whole
from boxqte.space.rules import share_of_allowed
from boxqte.space.space import Space


def restricted_grid(grid: AnyGrid, parts: Mapping[str, Part], text: str) -> tuple[AnyGrid, Fraction]:
    """The same question, where only x inside the parts count; and the mass that they had."""
    if grid.space.mass is not None:
        return _restricted_cells(grid, parts, text)
    space, share, only_missing = _restricted_space(grid.space, parts, text)
    changed = build_any_grid(grid.ensemble, space, grid.property)
    if isinstance(changed, Grid):
        changed = replace(changed, thresholds=binary(grid).thresholds)
    axes = list(changed.axes)
    for at, (axis, old) in enumerate(zip(changed.axes, grid.axes)):
        if axis.masses != old.masses and _only_missing(old):  # so it was restricted before
            part = parts.get(axis.attribute.name)
            if part is not None and not part.missing:
                raise _nobody(text)
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
    return _not_emptied(replace(changed, axes=tuple(axes)), text), share


def _not_emptied(grid: AnyGrid, text: str) -> AnyGrid:
    """The grid, if its rules leave something of it."""
    if grid.forbidden and grid.forbidden_mass == 1:
        raise _nobody(text)
    return grid


def _restricted_space(space: Space, parts: Mapping[str, Part], text: str) -> tuple[Space, Fraction, list[str]]:
    """The space with all mass inside the parts, the mass that they had, and the attributes of which only the missing
    value is left (their masses are for the grid to set)."""
    share = Fraction(1)
    only_missing = []
    own = {attribute.name: attribute for attribute in space}
    for name, part in parts.items():
        mass = mass_of(own[name], part)
        if not mass:
            raise _nobody(text)
        share *= mass
        changed = restricted(own[name], part)
        if changed is None:
            only_missing.append(name)
        else:
            own[name] = changed
    if space.rules and not only_missing and not share_of_allowed(list(own.values()), space.rules):
        raise _nobody(text)
    return space.with_attributes(own.values()), share, only_missing


def _nobody(text: str) -> SpaceError:
    return SpaceError(f"condition {text!r}: no input of the space satisfies it with positive mass")


def _restricted_cells(grid: AnyGrid, parts: Mapping[str, Part], text: str) -> tuple[AnyGrid, Fraction]:
    """The same where cells count the same: each lies in the parts, or outside of them."""
    axes, share = list(grid.axes), Fraction(1)
    for name, part in parts.items():
        at = grid.space.names.index(name)
        held = [_holds(part, cell) for cell in axes[at].cells]
        if None in held:
            raise SpaceError(f"condition {text!r}: divides a cell, and where cells are counted a part of one has no mass; "
                             "leave it out, or the space's mass 'cells'")  # fmt: skip
        mass = sum((m for m, inside in zip(axes[at].masses, held) if inside), Fraction(0))
        if not mass:
            raise _nobody(text)
        masses = tuple(m / mass if inside else Fraction(0) for m, inside in zip(axes[at].masses, held))
        axes[at], share = replace(axes[at], masses=masses, refined_masses=masses), share * mass
    return replace(grid, axes=tuple(axes)), share


def _holds(part: Part, cell: Cell) -> bool | None:
    """Whether a part has all of a cell; None if it has some of it, or an end of the part is the cell's only value."""
    if cell.missing:
        return part.missing
    if cell.low is None or cell.high is None:
        inside = part.values & set(cell.values)
        return bool(inside) if len(inside) in (0, len(cell.values)) else None
    low, high = cell.low[0], cell.high[0]
    if low == high:
        if (low, low) in part.spans or not any(start <= low <= stop for start, stop in part.spans):
            return (low, low) in part.spans
        return True if any(start < low < stop for start, stop in part.spans) else None
    if any(start <= low and high <= stop for start, stop in part.spans):
        return True
    return None if any(max(low, start) < min(high, stop) for start, stop in part.spans) else False


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
