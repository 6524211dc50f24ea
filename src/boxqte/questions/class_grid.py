"""Models with three or more classes as a grid: one exact integer margin a class.

f(x) is the class with the largest margin, the first of them if several are equal (as the libraries' argmax does). The
confidence is the top probability: the mean over the trees of a forest, or the softmax of the margins. Comparing the
latter with a rational kappa is decided exactly: for margins that are not all equal, sum of exp(F_k - F_top) is
transcendental (Lindemann-Weierstrass), so it never equals 1 / kappa, and enough digits tell on which side it lies.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from boxqte.errors import PropertyError
from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.axes import Axis, Int32Array
from boxqte.questions.grid import AnyGrid, Trees
from boxqte.questions.properties import Property
from boxqte.space.space import Space

FLOAT_MARGIN = 1e-9  # relative; far above the error of a softmax in float64


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassGrid(AnyGrid):
    """A grid whose trees feed several outputs. F_k(x) = bases[k] + the values of the leaves that feed output k."""

    leaf_values: tuple[tuple[int, ...], ...]
    """a leaf's value for the output of its tree, or for every output, in units of 1 / unit"""
    tree_output: Int32Array
    bases: tuple[int, ...]
    unit: int

    @builtins.property
    def n_classes(self) -> int:
        return len(self.bases)

    @builtins.property
    def low_possible(self) -> bool:
        """Whether an input may fail to be confident: the top probability is at least 1 / (number of classes)."""
        return self.property.kappa * self.n_classes > 1

    def confident(self, margins: Sequence[int]) -> bool:
        """Whether the top probability exceeds kappa, exactly."""
        if not self.low_possible:
            return True
        top, kappa = max(margins), self.property.kappa
        if self.ensemble.link == "mean":
            scale, whole = self.ensemble.scale, self.unit * self.ensemble.n_trees
            return top * scale.numerator * kappa.denominator > kappa.numerator * whole * scale.denominator
        unit = self.ensemble.factor / self.unit
        return softmax_below([(F - top) * unit for F in margins], 1 / kappa)

    def clearly_confident(
        self, margins: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """For rows of float margins in whole units: surely confident, and surely not; neither near kappa."""
        kappa = float(self.property.kappa)
        if not self.low_possible:
            return np.ones(len(margins), bool), np.zeros(len(margins), bool)
        if self.ensemble.link == "mean":
            shares = margins.max(axis=1) * float(self.ensemble.factor / self.unit)
        else:
            leads = margins - margins.max(axis=1, keepdims=True)
            shares = 1 / np.exp(leads * float(self.ensemble.factor / self.unit)).sum(axis=1)
        return shares > kappa * (1 + FLOAT_MARGIN), shares < kappa * (1 - FLOAT_MARGIN)


def softmax_below(differences: Sequence[Fraction], limit: Fraction) -> bool:
    """Whether the sum of exp(d) is below the limit; more digits until the answer is certain.

    Examples
    --------
    >>> softmax_below([Fraction(0), Fraction(-1)], Fraction(3, 2))
    True
    """
    if not any(differences):
        return len(differences) < limit
    digits = 30
    while True:
        with localcontext(Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            total = sum(((Decimal(d.numerator) / Decimal(d.denominator)).exp() for d in differences), Decimal(0))
            bound = Decimal(limit.numerator) / Decimal(limit.denominator)
            # An exponent d is off by |d| units of the last digit, each exp by that times itself and one more.
            steepest = max(int(abs(d)) for d in differences) + 4
            slack = (total + bound) * Decimal(steepest * (len(differences) + 4)) * Decimal(10) ** (1 - digits)
            if abs(total - bound) > slack:
                return total < bound
        digits *= 2


def class_grid(
    ensemble: TreeEnsemble, space: Space, prop: Property, axes: Sequence[Axis], trees: Trees, input_rounding: Fraction
) -> ClassGrid:
    """The grid of a model with several outputs; margins as integers, exactly."""
    if prop.tie == "paper":
        raise PropertyError("tie: 'paper' is defined for two classes only; use 'library' for this model")
    ratios = [[v.as_integer_ratio() for v in row] for row in ensemble.value[trees.leaf_nodes].tolist()]
    unit = max((d for row in ratios for _, d in row), default=1)
    unit = math.lcm(unit, *(base.denominator for base in ensemble.base))
    leaf_values = tuple(tuple(n * (unit // d) for n, d in row) for row in ratios)
    error = ensemble.rounding_error() / ensemble.factor
    return ClassGrid(
        ensemble=ensemble,
        space=space,
        property=prop,
        axes=tuple(axes),
        cuts=trees.cuts,
        roots=trees.roots,
        cut=trees.cut,
        yes=trees.yes,
        no=trees.no,
        leaf=trees.leaf,
        rounding=math.ceil(error * unit),
        input_rounding=min(input_rounding, Fraction(1)),
        leaf_values=leaf_values,
        tree_output=ensemble.tree_output,
        bases=tuple(int(base * unit) for base in ensemble.base),
        unit=unit,
    )


def output_values(grid: ClassGrid, output: int) -> tuple[int, ...]:
    """What each leaf adds to one output."""
    owner = np.searchsorted(grid.roots, np.flatnonzero(grid.leaf >= 0), side="right") - 1
    feeds = grid.tree_output[owner].tolist()
    return tuple(
        row[output] if fed < 0 else row[0] if fed == output else 0 for row, fed in zip(grid.leaf_values, feeds)
    )


def top_class(margins: Sequence[int]) -> int:
    """The first class with the largest margin."""
    return margins.index(max(margins))


def rival_target(own: int, rival: int) -> int:
    """The rival wins at x' iff F_own - F_rival is at most this: it must be larger, or equal and come first."""
    return 0 if rival < own else -1
