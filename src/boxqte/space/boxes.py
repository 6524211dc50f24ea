"""The mass of what lies in no forbidden box: boxes are products of cell sets, their union is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

Box = tuple[tuple[int, int], ...]
"""Axes with the bit mask of the cells that the box has of each; of an axis that is not there it has all."""


def allowed_share(forbidden: Iterable[Box], masses: Mapping[int, Sequence[Fraction]]) -> Fraction:
    """The mass that lies in none of the boxes, exactly; the masses of an axis' cells sum to 1.

    The cells of one axis that lie in the same boxes are told apart no further. What is then left of the boxes falls apart into
    groups that share no axis, whose shares are multiplied, and what was met before is not computed again.

    Examples
    --------
    >>> even = {0: [Fraction(1, 2)] * 2, 1: [Fraction(1, 4)] * 4}
    >>> allowed_share([((0, 0b01), (1, 0b0111)), ((1, 0b0001),)], even)
    Fraction(1, 2)
    """
    known: dict[frozenset[Box], Fraction] = {}

    def share(boxes: frozenset[Box]) -> Fraction:
        if not boxes:
            return Fraction(1)
        if () in boxes:
            return Fraction(0)
        if boxes in known:
            return known[boxes]
        product = Fraction(1)
        groups = _groups(boxes)
        for group in groups:
            product *= share(group) if len(groups) > 1 else branched(group)
            if not product:
                break
        known[boxes] = product
        return product

    def branched(boxes: frozenset[Box]) -> Fraction:
        uses = Counter(axis for box in boxes for axis, _ in box)
        axis = max(uses, key=lambda a: (uses[a], -a))
        weights: dict[frozenset[Box], Fraction] = {}
        for cell, mass in enumerate(masses[axis]):
            if mass:
                left = _left(boxes, axis, cell)
                weights[left] = weights.get(left, Fraction(0)) + mass
        return sum((mass * share(left) for left, mass in weights.items()), Fraction(0))

    return share(frozenset(forbidden))


def _left(boxes: frozenset[Box], axis: int, cell: int) -> frozenset[Box]:
    """What is left of the boxes where the axis is known to lie in the cell."""
    return frozenset(
        tuple(pair for pair in box if pair[0] != axis)
        for box in boxes
        if all(a != axis or mask >> cell & 1 for a, mask in box)
    )


def _groups(boxes: frozenset[Box]) -> list[frozenset[Box]]:
    """The boxes in groups that share no axis."""
    groups: list[tuple[set[int], set[Box]]] = []
    for box in boxes:
        axes, members = {axis for axis, _ in box}, {box}
        apart = []
        for other in groups:
            if other[0] & axes:
                axes |= other[0]
                members |= other[1]
            else:
                apart.append(other)
        groups = [*apart, (axes, members)]
    return [frozenset(members) for _, members in groups]
