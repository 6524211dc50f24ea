"""Masses taken from data: how often each value of one attribute occurs, as exact counts.

The measure stays a product measure: only the attributes' own frequencies are taken, never how they occur together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from boxqte.errors import SpaceError
from boxqte.space.attributes import Attribute, Histogram
from boxqte.space.tables import exact_number

MAX_INTEGER_VALUES = 256  # an integer attribute with more distinct values gets as many bins of equal width
REAL_BINS = 64


def with_data_mass(attribute: Attribute, counts: Mapping[Any, int]) -> tuple[Attribute, str]:
    """The attribute with the mass of the counted values, and a few words on how it was taken.

    - categorical, one-hot: one weight a value;
    - integer: one weight a value; with more than 256 distinct values, 256 bins of (nearly) equal width;
    - real: at most 64 bins of about as many rows each, their edges halfway between neighbouring values, so that no
      value lies on an edge and each stays in the middle of its mass.

    Values outside the domain are left out.

    Examples
    --------
    >>> sex, how = with_data_mass(Attribute.categorical("sex", ["f", "m"]), {"f": 1, "m": 3})
    >>> sex.value_masses(), how
    ([Fraction(1, 4), Fraction(3, 4)], 'mass: a weight for each value')
    """
    if attribute.is_numeric:
        inside, changed, how = _numeric(attribute, counts)
    else:
        weights = tuple(Fraction(counts.get(v, 0)) for v in attribute.values)
        inside, how = int(sum(weights)), "mass: a weight for each value"
        changed = replace(attribute, weights=weights) if inside else attribute
    if not inside:
        raise SpaceError(f"attribute '{attribute.name}', mass: no row of the data lies in its domain")
    outside = sum(counts.values()) - inside
    return changed, f"{how}; rows outside the domain, left out: {outside}" if outside else how


@dataclass(frozen=True)
class _Sorted:
    """The values of the data that lie in a domain, in order, and how many rows hold the first i of them.

    Values stay as the table has them, and only those next to an edge are made exact: a table may hold millions. The
    order is the same, because the shortest decimals of two doubles are ordered as the doubles are.
    """

    values: Sequence[Any]
    rows: Sequence[int]

    def exact(self, index: int) -> Fraction:
        return exact_number(self.values[index], "mass")

    def below(self, edge: Fraction) -> int:
        """How many rows hold a value below the edge."""
        return self.rows[bisect_left(range(len(self.values)), edge, key=self.exact)]


def _numeric(attribute: Attribute, counts: Mapping[Any, int]) -> tuple[int, Attribute, str]:
    values = sorted(counts)
    start = bisect_left(values, attribute.low, key=lambda v: exact_number(v, "mass"))
    stop = bisect_right(values, attribute.high, key=lambda v: exact_number(v, "mass"))
    values = values[start:stop]
    data = _Sorted(values, [0, *accumulate(counts[v] for v in values)])
    if not values or not attribute.range:
        return data.rows[-1], attribute, "mass: all on the only value"
    edges, how = _integer_edges(attribute, data) if attribute.kind == "integer" else _real_edges(attribute, data)
    # [edge, next edge), and the last bin has its upper end too.
    below = [*(data.below(edge) for edge in edges[:-1]), data.rows[-1]]
    weights = tuple(Fraction(high - low) for low, high in pairwise(below))
    return data.rows[-1], replace(attribute, histogram=Histogram(tuple(edges), weights), distribution=None), how


def _integer_edges(attribute: Attribute, data: _Sorted) -> tuple[list[Fraction], str]:
    stop = attribute.high + 1
    if len(data.values) <= MAX_INTEGER_VALUES:
        # A value that occurs is a bin of its own; the values between two of them are one empty bin.
        occurring = [data.exact(i) for i in range(len(data.values))]
        return sorted(
            {attribute.low, stop} | {e for v in occurring for e in (v, v + 1)}
        ), "mass: a weight for each value"
    width = stop - attribute.low
    cuts = [attribute.low + -(-i * width // MAX_INTEGER_VALUES) for i in range(MAX_INTEGER_VALUES + 1)]
    return cuts, f"mass: {MAX_INTEGER_VALUES} bins of equal width"


def _real_edges(attribute: Attribute, data: _Sorted) -> tuple[list[Fraction], str]:
    total, quantile = data.rows[-1], 1
    edges = [attribute.low]
    for i in range(1, len(data.values)):
        if data.rows[i] * REAL_BINS >= quantile * total:
            edges.append((data.exact(i - 1) + data.exact(i)) / 2)
            quantile = data.rows[i] * REAL_BINS // total + 1  # a frequent value may fill several quantiles at once
    edges.append(attribute.high)
    return edges, f"mass: {len(edges) - 1} bins of about as many rows each"
