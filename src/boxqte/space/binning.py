"""The rows of a table as small integers, a cell of each attribute, and masses of cells as those of an attribute.

Finite attributes: a cell a value. Numeric ones: the bins of `with_data_mass`, and where a model is given the edges of its
tests too; a row lies on the side of an edge on which the model sees it. A missing value that is in the domain is one more
cell, the last.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import SpaceError
from boxqte.models.ensemble import Test, TreeEnsemble
from boxqte.space.attributes import Attribute, Histogram
from boxqte.space.frequencies import with_data_mass
from boxqte.space.rows import MISSING, TableRows, as_the_model_reads
from boxqte.space.space import Space

MAX_CUTS = 256  # of one attribute: those that most nodes test
GRID = 1 << 24  # masses are multiples of 1 / GRID: exact, and few digits

Cut = tuple[Fraction, int]
"""(v, 0) separates the numbers below v from v, (v, 1) separates v from those above it."""


@dataclass(frozen=True)
class Cuts:
    """Where a model's tests cut a numeric attribute, and whether the model reads its numbers as float32."""

    edges: tuple[Cut, ...] = ()
    single: bool = False


@dataclass(frozen=True, eq=False)
class Bins:
    """The cells of one attribute."""

    attribute: Attribute
    edges: tuple[Cut, ...] = ()
    """of a numeric one, from low to high"""
    single: bool = False

    @property
    def even(self) -> npt.NDArray[np.float64]:
        """The share of each cell where no value counts more than another; a missing value is as one of the cells."""
        if self.attribute.is_numeric:
            widths = np.array([float(high - low) for (low, _), (high, _) in pairwise(self.edges)])
            shares = widths / widths.sum() if self.attribute.low < self.attribute.end else np.ones(1)
        else:
            shares = np.full(len(self.attribute.values), 1 / len(self.attribute.values))
        if self.attribute.missing is None:
            return shares
        return np.append(shares * len(shares), 1.0) / (len(shares) + 1)

    def codes(self, values: Sequence[Any]) -> npt.NDArray[np.int64]:
        """The cell of each of these values, as `TableRows` has them."""
        place: dict[Any, int] = {}
        for value in set(values):
            if value == MISSING:
                place[value] = len(self.even) - 1
            elif not self.attribute.is_numeric:
                place[value] = value
            else:
                seen = as_the_model_reads(value, self.single) if self.edges and self.attribute.kind == "real" else value
                place[value] = bisect_right(self.edges[1:-1], (seen, 0))
        return np.array([place[value] for value in values], np.int64)

    def attribute_with(self, masses: npt.NDArray[np.float64]) -> Attribute:
        """The attribute with these masses of its cells, on the grid of exact ones."""
        on_grid = exact_shares(masses)
        changed = replace(self.attribute, weights=None, histogram=None, distribution=None)
        if changed.missing is not None:
            changed = replace(changed, missing=Fraction(on_grid.pop(), GRID))
        if not changed.is_numeric:
            return replace(changed, weights=tuple(map(Fraction, on_grid)))
        if changed.low == changed.high:
            return changed
        edges = tuple(value for value, _ in self.edges)
        return replace(changed, histogram=Histogram(edges, tuple(map(Fraction, on_grid))))


def exact_shares(shares: npt.NDArray[np.float64]) -> list[int]:
    """Whole numbers in the proportion of the shares, as nearly as they can: all above 0, their sum GRID.

    Examples
    --------
    >>> [GRID // n for n in exact_shares(np.array([0.25, 0.75]))], exact_shares(np.array([0.0, 1.0]))
    ([4, 1], [1, 16777215])
    """
    wanted = shares / shares.sum() * GRID
    found = np.maximum(np.floor(wanted), 1).astype(np.int64)
    left = GRID - int(found.sum())
    if left > 0:  # fewer than there are shares: to those that lost most
        found[np.argsort(found - wanted, kind="stable")[:left]] += 1
    else:  # what the smallest were given, the largest has
        found[np.argmax(found)] += left
    whole: list[int] = found.tolist()
    return whole


def bins_of(space: Space, rows: TableRows, chosen: npt.NDArray[np.bool_], model: TreeEnsemble | None) -> list[Bins]:
    """The cells of every attribute, for the chosen rows."""
    cuts = {} if model is None else model_cuts(model, space)
    found = []
    for attribute in space:
        if not attribute.is_numeric:
            found.append(Bins(attribute))
            continue
        plain = replace(attribute, histogram=None, distribution=None)
        own = cuts.get(attribute.name, Cuts())
        counts = Counter(v for v, keep in zip(rows.values[attribute.name], chosen) if keep)
        counts.pop(MISSING, None)
        if not counts:
            raise SpaceError(f"attribute '{attribute.name}', mass: no row of the data lies in its domain")
        histogram = with_data_mass(plain, counts)[0].histogram
        inner = () if histogram is None else histogram.edges[1:-1]
        by_value = {value: (value, 0) for value in inner} | {cut[0]: cut for cut in own.edges}
        ends = (attribute.low, 0), (attribute.end, 1)
        found.append(Bins(attribute, (ends[0], *sorted(by_value.values()), ends[1]), own.single))
    return found


def model_cuts(model: TreeEnsemble, space: Space) -> Mapping[str, Cuts]:
    """Where the tests of a model cut the numeric attributes; of one that is cut often, at the edges tested most."""
    columns = {model.own_name(column): attribute for attribute in space for column in attribute.columns}
    if not set(columns) & set(model.feature_names) and len(columns) == len(model.feature_names):
        columns = dict(zip(model.feature_names, columns.values()))  # a model without names reads by position
    found = {}
    for feature, name in enumerate(model.feature_names):
        attribute = columns.get(name)
        if attribute is None or not attribute.is_numeric:
            continue
        nodes = np.flatnonzero((model.feature == feature) & np.isin(model.test, THRESHOLDS))
        tested: Counter[Cut] = Counter()
        for test, threshold in zip(model.test[nodes].tolist(), model.threshold[nodes].tolist()):
            cut = _cut(attribute, test, threshold)
            if cut is not None:
                tested[cut] += 1
        often = sorted(tested, key=lambda cut: (-tested[cut], cut))[:MAX_CUTS]
        single = bool(np.isin(model.test[nodes], SINGLE).any())
        found[attribute.name] = Cuts(tuple(sorted(often)), single)
    return found


THRESHOLDS = (Test.LESS_F32, Test.AT_MOST_F32, Test.AT_MOST_F64)
SINGLE = (Test.LESS_F32, Test.AT_MOST_F32)


def _cut(attribute: Attribute, test: int, threshold: float) -> Cut | None:
    """The edge of a test, if it lies inside the domain."""
    if not math.isfinite(threshold):
        return None
    value = Fraction(threshold)
    if attribute.kind == "integer":  # the first integer for which the test fails
        value = Fraction(math.ceil(value) if test == Test.LESS_F32 else math.floor(value) + 1)
    if not attribute.low < value < attribute.end:
        return None
    return value, 0 if attribute.kind == "integer" or test == Test.LESS_F32 else 1
