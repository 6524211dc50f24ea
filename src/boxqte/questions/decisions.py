"""The decision rule on the grid: class and confidence as comparisons of the integer F, with one more tree for groups.

A threshold is a level L that the margin has to reach; confidence is measured from it. L is ln(odds) + a rational, and so
is every level of confidence, so that each comparison of F with one of them is a comparison with an integer.

A threshold for each group shifts F by its own L. No integer is L; but F only takes whole units, so in units that are
fine enough, integers near the levels decide every F as the levels themselves do. They are the leaves of one more tree
over the attribute, and all that follows knows nothing of groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from boxqte.errors import PropertyError, SpaceError
from boxqte.exact import floor_of_log
from boxqte.models.decision import DecisionRule
from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.axes import Axis
from boxqte.questions.grid import Cut, Grid, Thresholds
from boxqte.questions.properties import Property
from boxqte.space.attributes import Attribute

HALF = Fraction(1, 2)


def attribute_groups(rule: DecisionRule | None, attribute: Attribute) -> tuple[int, ...]:
    """The number of the threshold of each value of the attribute (and of the missing one); empty if it has no say."""
    if rule is None or rule.attribute != attribute.name:
        return ()
    if attribute.kind == "real":
        raise SpaceError(
            f"threshold: '{attribute.name}' is real; thresholds go by the values of a categorical, one-hot or integer "
            "attribute"
        )
    values: Sequence[object] = attribute.values
    if attribute.is_numeric:
        # one value more than there are thresholds is enough to see that one has none
        values = range(int(attribute.low), min(int(attribute.high), int(attribute.low) + len(rule.thresholds)) + 1)
    return tuple(rule.groups(attribute.name, values, attribute.missing is not None, attribute.labels))


def thresholds(model: TreeEnsemble, prop: Property, bits: int, rest: Fraction, group: int = 0) -> Thresholds:
    """Class and confidence as comparisons of the integer F, where the exact value is F + rest, 0 <= rest < 1."""
    unit = 2**bits / model.factor
    odds, offset, exclusive = Fraction(1), Fraction(0), model.tie == "negative"
    if model.decision is not None:
        (odds, offset), exclusive = model.decision.level(group, model.link), model.decision.exclusive
    if prop.tie == "paper":
        exclusive = True
    start = offset * unit - rest
    pos = _beyond(odds, unit, start) if exclusive else _reaching(odds, unit, start)
    neg = _reaching(odds, unit, start) - 1 if prop.tie == "paper" else pos - 1
    if max(prop.kappa, prop.partner_kappa) > HALF and model.link == "identity":
        raise PropertyError(
            f"kappa: {prop.kappa} asks for confident inputs, but a value with a threshold is no probability; leave kappa out"
        )

    def confident(kappa: Fraction) -> tuple[int, int]:
        """From which F on, and up to which F, an input is confident above kappa."""
        if kappa <= HALF:
            return pos, neg
        if model.link == "mean":
            away, times = (kappa - HALF) * unit, Fraction(1)
        else:
            away, times = Fraction(0), kappa / (1 - kappa)
        return _beyond(odds * times, unit, start + away), _reaching(odds / times, unit, start - away) - 1

    return Thresholds(*confident(prop.partner_kappa), *confident(prop.kappa))


def level_unit(model: TreeEnsemble, prop: Property) -> int:
    """1 / the largest unit in which the grid tells apart what a threshold does; a power of two.

    Whether an input can have no class, or no confidence, must not depend on the units. So a threshold that an input may
    lie on is a whole number of them (one whose distance from the base is no dyadic rational has no such input), and
    between the levels of confidence lies at least one.
    """
    if model.decision is None:
        return 1
    units = [1]
    if prop.tie == "paper":
        half = HALF / model.factor if model.link == "mean" else 0
        levels = [model.decision.level(group, model.link) for group in range(len(model.decision.thresholds))]
        units += [(offset / model.factor - model.base[0] + half).denominator for odds, offset in levels if odds == 1]
    for kappa in (prop.kappa, prop.partner_kappa):
        if kappa > HALF:  # logit(kappa) > kappa - 1/2, too
            units.append(1 << math.ceil(model.factor / (kappa - HALF)).bit_length())
    return max(unit for unit in units if unit & (unit - 1) == 0)


def _beyond(odds: Fraction, unit: Fraction, start: Fraction) -> int:
    """The smallest F above ln(odds) * unit + start."""
    return floor_of_log(odds, unit, start) + 1


def _reaching(odds: Fraction, unit: Fraction, start: Fraction) -> int:
    """The smallest F that is at least ln(odds) * unit + start."""
    return -floor_of_log(1 / odds, unit, -start)


def with_groups(grid: Grid, rest: Fraction, groups: Sequence[int]) -> Grid:
    """The grid of a model with a threshold for each group: finer units, and one more tree over the group's attribute.

    `groups` are those of `attribute_groups`.
    """
    rule = grid.ensemble.decision
    assert rule is not None
    at = next(a for a, axis in enumerate(grid.axes) if axis.attribute.name == rule.attribute)
    of_cell = _cell_groups(grid.axes[at], groups)
    used = sorted(set(of_cell), key=of_cell.index)  # the group of cell 0 comes first
    exact = [thresholds(grid.ensemble, grid.property, grid.scale_bits, rest, group) for group in used]
    finer, shifts, common = _shifted(grid, rest, used, exact)
    masks = [sum(1 << c for c, own in enumerate(of_cell) if own == group) for group in used]
    every = sum(masks)
    # Test i sends group i to its no side, and a yes side comes next: tests from the last group on, then all leaves.
    tests, node, leaf = len(used) - 1, len(grid.cut), len(grid.values)
    asked = [Cut(at, every & ~masks[i]) for i in range(tests, 0, -1)]
    cuts = list(dict.fromkeys([*grid.cuts, *asked]))  # a cut that some tree has already is that one
    after = node + tests
    none = np.full(len(used), -1, np.int32)
    return replace(
        grid,
        cuts=tuple(cuts),
        roots=np.append(grid.roots, np.int32(node)),
        cut=np.concatenate([grid.cut, np.array([cuts.index(cut) for cut in asked], np.int32), none]),
        yes=np.concatenate([grid.yes, np.arange(node + 1, after + 1, dtype=np.int32), none]),
        no=np.concatenate([grid.no, np.arange(after + tests, after, -1, dtype=np.int32), none]),
        leaf=np.concatenate(
            [grid.leaf, np.full(tests, -1, np.int32), np.arange(leaf, leaf + len(used), dtype=np.int32)]
        ),
        values=(*(value << finer for value in grid.values), *(-shift for shift in shifts)),
        base=grid.base << finer,
        scale_bits=grid.scale_bits + finer,
        rounding=grid.rounding << finer,
        thresholds=common,
    )


def _cell_groups(axis: Axis, groups: Sequence[int]) -> list[int]:
    """The group of each base cell."""
    found = []
    for cell in axis.cells:
        if cell.missing:
            found.append(groups[-1])
        elif cell.low is None:
            found.append(groups[cell.values[0]])
        else:
            found.append(groups[int(cell.low[0] - axis.attribute.low)])
    return found


def _shifted(
    grid: Grid, rest: Fraction, used: Sequence[int], exact: Sequence[Thresholds]
) -> tuple[int, list[int], Thresholds]:
    """How many bits finer the units are, the shift of each group in them, and the thresholds that all groups share.

    With 2**bits fine units a unit, F - shift >= common decides whole units F as F >= own does iff
    (own - 1) * 2**bits < common + shift <= own * 2**bits. The shifts are the levels, rounded down; the distances from the
    levels to the nearest F that decides otherwise are positive, so some number of bits is enough.
    """
    model, rule = grid.ensemble, grid.ensemble.decision
    assert rule is not None
    bits = 0
    while True:
        unit = 2 ** (grid.scale_bits + bits) / model.factor
        levels = [rule.level(group, model.link) for group in used]
        shifts = [floor_of_log(odds, unit, offset * unit - rest * 2**bits) for odds, offset in levels]
        pos = _common([t.pos for t in exact], shifts, bits)
        neg = _common([t.neg + 1 for t in exact], shifts, bits)
        conf_pos = _common([t.conf_pos for t in exact], shifts, bits)
        conf_neg = _common([t.conf_neg + 1 for t in exact], shifts, bits)
        if pos is not None and neg is not None and conf_pos is not None and conf_neg is not None:
            # of what all groups allow, _common gives the largest: so neg + 1 = pos where no input is a tie
            return bits, shifts, Thresholds(pos, neg - 1, conf_pos, conf_neg - 1)
        bits = 2 * bits + 1


def _common(own: Sequence[int], shifts: Sequence[int], bits: int) -> int | None:
    """The largest threshold that decides as each group's own does on its shifted F; None if there is none."""
    most = min((t << bits) - shift for t, shift in zip(own, shifts))
    least = max(((t - 1) << bits) - shift for t, shift in zip(own, shifts))
    return most if least < most else None
