"""The finite problem: axes of cells, trees over cuts, and class and confidence as comparisons of integers."""

from __future__ import annotations

import builtins
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.axes import Axis, Int32Array
from boxqte.questions.properties import Property
from boxqte.questions.scores import ProbabilityScale
from boxqte.space.boxes import allowed_share
from boxqte.space.space import Space


@dataclass(frozen=True)
class Cut:
    """A test as the set of base cells that it sends to `yes`, as a bit mask; bit 0 is always set."""

    axis: int
    mask: int


class Forbidden(NamedTuple):
    """Inputs that a rule of the space forbids: those whose base cells all lie in these masks.

    They are neither x nor x'. No base cell is half inside a mask; the axes that a rule does not mention are not there.
    """

    masks: tuple[tuple[int, int], ...]
    """An axis, and the bit mask of its base cells that the rule mentions."""


@dataclass(frozen=True)
class Thresholds:
    """Class 1 iff F >= pos, class 0 iff F <= neg, confident iff F >= conf_pos or F <= conf_neg; F is Grid's integer.

    pos = neg + 1, but for the paper's tie rule: where F = neg + 1 = 0 can be a tie, that F has no class and
    pos = neg + 2.
    """

    pos: int
    neg: int
    conf_pos: int
    conf_neg: int
    counted: int = 0
    """0: every confident x may be a counterexample. 1: only x of class 1, -1: only x of class 0; all others are fair."""

    @property
    def all_confident(self) -> bool:
        """Whether every input is confident (kappa <= 1/2 and every input has a class)."""
        return self.conf_pos == self.conf_neg + 1

    @property
    def signs_only(self) -> bool:
        """Whether the class is all that matters, of x and of x'."""
        return self.all_confident and (self.pos, self.neg) == (self.conf_pos, self.conf_neg)


@dataclass(frozen=True)
class Partners:
    """Who may be whose partner, where not every exchange of sensitive values counts (epsilon = 0).

    An x in cell c of the axis, if it is of class 1, is a counterexample iff some x' in one of the cells low[c] is of class 0;
    if it is of class 0, iff some x' in one of high[c] is of class 1. Ranges are (first, last); last < first is nobody. All
    other sensitive attributes may take any value.
    """

    axis: int
    """Of the grid; -1: all cells of all sensitive axes, and both ranges have one entry."""
    low: tuple[tuple[int, int], ...]
    high: tuple[tuple[int, int], ...]
    order: int = 0
    """1: F should only grow along the axis, -1: only fall; what low and high say then follows from it."""
    gap: int = 0
    """Above 0: not classes are compared but margins, F(x) - F(x') >= gap for some x' in low[c], or F(x') - F(x) >= gap for
    some x' in high[c]; in units of F."""
    scale: ProbabilityScale | None = None
    """Not classes are compared but probabilities."""

    @property
    def scores(self) -> bool:
        """Whether scores are compared, not classes."""
        return self.gap > 0 or self.scale is not None


@dataclass(frozen=True, eq=False, kw_only=True)
class AnyGrid:
    """What all grids have: axes of cells, and trees over cuts. Node n tests cut `cut[n]` (-1: leaf number `leaf[n]`)."""

    ensemble: TreeEnsemble
    space: Space
    property: Property
    axes: tuple[Axis, ...]
    cuts: tuple[Cut, ...]
    roots: Int32Array
    cut: Int32Array
    yes: Int32Array
    no: Int32Array
    leaf: Int32Array
    rounding: int
    """The library's class and confidence are those of some F within this many units of the exact one."""
    input_rounding: Fraction
    """A bound on the mass of inputs whose path could change when the library rounds real inputs to float32."""
    forbidden: tuple[Forbidden, ...] = ()
    """What the space's rules forbid: the union of these. Engines count its mass as not confident, and x' never lies in it."""

    @builtins.property  # the field above hides the builtin's name
    def has_tolerance(self) -> bool:
        """Whether epsilon moves anything: otherwise only sensitive attributes differ (the eps = 0 problem)."""
        return any(axis.moves for axis in self.axes)

    @builtins.property
    def mass_error(self) -> Fraction:
        """More than the mass of any set of refined cells is off: masses by a formula are rounded (distributions.py)."""
        return sum((axis.mass_error for axis in self.axes), Fraction(0))

    @builtins.property
    def low_possible(self) -> bool:
        """Whether an input may fail to be confident."""
        raise NotImplementedError

    @builtins.property
    def mutual(self) -> bool:
        """Whether x' makes x a counterexample iff x makes x' one (epsilon = 0): classes alone matter, and all exchanges."""
        return not self.low_possible and not self.has_tolerance

    @cached_property
    def forbidden_mass(self) -> Fraction:
        """The exact mass of the inputs that the space's rules forbid."""
        return 1 - allowed_share([one.masks for one in self.forbidden], {a: x.masses for a, x in enumerate(self.axes)})

    def n_cells(self) -> int:
        """How many base cells the whole space has."""
        return math.prod(axis.n_cells for axis in self.axes)

    def n_refined(self) -> int:
        """How many refined cells the whole space has."""
        return math.prod(len(axis.refined) for axis in self.axes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Grid(AnyGrid):
    """The finite problem of a model with two classes: one margin, the leaf n has the value `values[leaf[n]]`.

    F(x) = base + sum of the trees' leaf values, exact integers in units of 2**-scale_bits of the ensemble's base + sum.
    If the ensemble's base is no multiple of the unit, `base` is rounded down and `thresholds` make up for it.
    """

    values: tuple[int, ...]
    base: int
    scale_bits: int
    thresholds: Thresholds
    partners: Partners | None = None
    """None: x' may have any sensitive values but those of x."""

    @builtins.property
    def low_possible(self) -> bool:
        return not self.thresholds.all_confident

    @builtins.property
    def mutual(self) -> bool:
        t = self.thresholds
        return t.signs_only and not t.counted and self.partners is None and not self.has_tolerance

    def targets(self, F: int) -> tuple[int | None, int | None]:
        """What a confident x with margin F looks for: it is a counterexample iff one of its partners has at most the first
        margin, or at least the second. None: nobody will do.

        With `partners`, the first is asked of those in low, the second of those in high. Both grow with F, among the x for
        which they are not None.
        """
        partners, t = self.partners, self.thresholds
        if partners is not None and partners.scale is not None:
            return partners.scale.below(F), partners.scale.above(F)
        if partners is not None and partners.gap:
            return F - partners.gap, F + partners.gap
        if t.conf_pos <= F:
            return (t.neg if t.counted >= 0 else None), None
        return None, (t.pos if t.counted <= 0 else None)


def binary(grid: AnyGrid) -> Grid:
    """The grid of a model with two classes, where more were refused before (engines/refusals.py)."""
    if not isinstance(grid, Grid):
        raise ModelError(f"the model has {grid.ensemble.n_outputs} classes; this is for two classes only")
    return grid


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees over cuts: as in Grid, with the ensemble's node behind each leaf."""

    cuts: tuple[Cut, ...]
    roots: Int32Array
    cut: Int32Array
    yes: Int32Array
    no: Int32Array
    leaf: Int32Array
    leaf_nodes: npt.NDArray[np.int64]
