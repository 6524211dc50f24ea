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
    weights: dict[tuple[int, int], Fraction] = {}

    def share(boxes: frozenset[Box]) -> Fraction:
        if () in boxes:
            return Fraction(0)
        boxes = _simplified(boxes)
        if not boxes:
            return Fraction(1)
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
        parts = [sum(1 << cell for cell, mass in enumerate(masses[axis]) if mass)]
        for mask in {mask for box in boxes for a, mask in box if a == axis}:
            parts = [piece for part in parts for piece in (part & mask, part & ~mask) if piece]
        total = Fraction(0)
        for part in parts:
            inside = share(_left(boxes, axis, part))
            if inside:
                total += weight(axis, part) * inside
        return total

    def weight(axis: int, part: int) -> Fraction:
        if (axis, part) not in weights:
            weights[axis, part] = sum((m for c, m in enumerate(masses[axis]) if part >> c & 1), Fraction(0))
        return weights[axis, part]

    return share(frozenset(forbidden))


def _left(boxes: frozenset[Box], axis: int, part: int) -> frozenset[Box]:
    """What is left of the boxes where the axis is known to lie in a part, which no box divides."""
    left = []
    for box in boxes:
        own = next((mask for a, mask in box if a == axis), None)
        if own is None:
            left.append(box)
        elif own & part:
            left.append(tuple(pair for pair in box if pair[0] != axis))
    return frozenset(left)


def _simplified(boxes: frozenset[Box]) -> frozenset[Box]:
    """The same union: boxes of one axis are joined, and the others are without what these have."""
    whole: dict[int, int] = {}
    for box in boxes:
        if len(box) == 1:
            axis, mask = box[0]
            whole[axis] = whole.get(axis, 0) | mask
    if not whole:
        return boxes
    kept: set[Box] = {((axis, mask),) for axis, mask in whole.items()}
    for box in boxes:
        if len(box) > 1:
            rest = tuple((axis, mask & ~whole.get(axis, 0)) for axis, mask in box)
            if all(mask for _, mask in rest):
                kept.add(rest)
    return frozenset(kept)


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
