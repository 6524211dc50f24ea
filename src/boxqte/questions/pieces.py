"""A question about a mixture of products as questions about its products: what is proved for each adds up by its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from boxqte.errors import SpaceError
from boxqte.questions.axes import Axis, cell_mass
from boxqte.questions.grid import AnyGrid
from boxqte.questions.variations import restricted_grid
from boxqte.space.attributes import Attribute
from boxqte.space.conditions import Part
from boxqte.space.space import Space


class Piece(NamedTuple):
    """A question about a product, and the weight of its masses in the whole; the weights of all pieces sum to 1."""

    weight: Fraction
    grid: AnyGrid


def pieces_of(grid: AnyGrid) -> list[Piece]:
    """The products that a grid is a mixture of; of a product, itself."""
    if not grid.space.components:
        return [Piece(Fraction(1), grid)]
    return [Piece(weight, _with_masses(grid, space)) for weight, space in grid.space.products()]


def restricted_pieces(
    pieces: Sequence[Piece], parts: dict[str, Part], text: str
) -> tuple[list[tuple[int, Piece]], Fraction]:
    """The pieces where only x inside the parts count, each with its place among the given ones, and the mass that they had.

    A piece without mass in the parts is left out.
    """
    kept = []
    for at, piece in enumerate(pieces):
        try:
            grid, share = restricted_grid(piece.grid, parts, text)
        except SpaceError:
            if len(pieces) == 1:
                raise
            continue
        kept.append((at, Piece(piece.weight * share, grid)))
    total = sum((piece.weight for _, piece in kept), Fraction(0))
    if not total:
        raise SpaceError(f"condition {text!r}: no input of the space satisfies it with positive mass")
    return [(at, Piece(weight / total, grid)) for at, (weight, grid) in kept], total


def mixed_grid(grid: AnyGrid, pieces: Sequence[Piece]) -> AnyGrid:
    """The grid of a mixture, whose axes have the mixture's own masses."""
    axes = []
    for a, axis in enumerate(grid.axes):
        own = [(weight, piece.axes[a]) for weight, piece in pieces]
        masses = tuple(sum((w * one.masses[c] for w, one in own), Fraction(0)) for c in range(axis.n_cells))
        refined = tuple(
            sum((w * one.refined_masses[r] for w, one in own), Fraction(0)) for r in range(len(axis.refined))
        )
        axes.append(replace(axis, masses=masses, refined_masses=refined))
    return replace(grid, axes=tuple(axes))


def _with_masses(grid: AnyGrid, space: Space) -> AnyGrid:
    """The same cells with the masses of another product."""
    axes = tuple(_axis(axis, attribute) for axis, attribute in zip(grid.axes, space))
    return replace(grid, axes=axes, space=space)


def _axis(axis: Axis, attribute: Attribute) -> Axis:
    masses, refined = (tuple(cell_mass(attribute, cell) for cell in cells) for cells in (axis.cells, axis.refined))
    return replace(axis, attribute=attribute, masses=masses, refined_masses=refined)
