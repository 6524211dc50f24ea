"""How far two attributes are from independent: total variation between joint shares, for every pair of attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.space.mixtures import Cells, FloatArray, Mixture

GROUPS = 10  # the cells of a numeric attribute are joined to so many neighbouring ones, of about as many rows each


@dataclass(frozen=True)
class Dependence:
    """Two attributes, and a total variation distance between two of their joint distributions."""

    between: tuple[str, str]
    distance: float
    chance: float
    """what the distance would be about, were the rows drawn from the distribution that they are compared with"""

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object."""
        distances = {"total_variation": round(self.distance, 6), "by_chance": round(self.chance, 6)}
        return {"between": list(self.between), **distances}

    @classmethod
    def from_json(cls, node: Any) -> Dependence:
        """What `to_json` wrote."""
        first, second = map(str, node["between"])
        return cls((first, second), float(node["total_variation"]), float(node["by_chance"]))


@dataclass(frozen=True, eq=False)
class Grouping:
    """The cells of each attribute in groups: how many, and each cell's own."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    groups: tuple[npt.NDArray[np.int64], ...]


def grouped(cells: Cells, names: Sequence[str], ordered: Sequence[int]) -> Grouping:
    """The cells in groups: those of attribute `a` are a group each, or if `ordered[a]` of them have an order, these in few
    groups of neighbours. Sparse pairs would show the chance of the draw, not a dependence."""
    sizes, groups = [], []
    for own, even, first in zip(cells.codes, cells.even, ordered):
        each = np.arange(len(even))
        if first > GROUPS:
            counted = np.bincount(own, cells.counts, len(even))[:first]
            middle = (np.cumsum(counted) - counted / 2) / max(counted.sum(), 1)
            at = np.minimum((middle * GROUPS).astype(np.int64), GROUPS - 1)
            each = np.concatenate([np.unique(at, return_inverse=True)[1].reshape(-1), each[first:]])
            each[first:] = each[:first].max() + 1 + np.arange(len(even) - first)
        groups.append(each)
        sizes.append(int(each.max()) + 1)
    return Grouping(tuple(names), tuple(sizes), tuple(groups))


def largest(cells: Cells, grouping: Grouping, mixture: Mixture | None) -> Dependence | None:
    """The pair whose joint shares in the rows are farthest from those of the mixture (None: from independent ones)."""
    found = list(distances(cells, grouping, mixture))
    return max(found, key=lambda pair: pair.distance, default=None)


def distances(cells: Cells, grouping: Grouping, mixture: Mixture | None) -> Iterator[Dependence]:
    """For every pair of attributes, how far the rows' joint shares are from the mixture's."""
    codes = [group[own] for group, own in zip(grouping.groups, cells.codes)]
    masses = None if mixture is None else [_joined(m, g) for m, g in zip(mixture.masses, grouping.groups)]
    for a, b in combinations(range(len(codes)), 2):
        shape = grouping.sizes[a], grouping.sizes[b]
        pairs = codes[a] * shape[1] + codes[b]
        seen = np.bincount(pairs, cells.counts, shape[0] * shape[1]).reshape(shape) / cells.rows
        if mixture is None or masses is None:
            expected = np.outer(seen.sum(axis=1), seen.sum(axis=0))
        else:
            expected = (mixture.weights * masses[a].T) @ masses[b]
        # The mean distance of a binomial share from its own mean: by the normal law, and of rare cells at most this.
        chance = np.minimum(np.sqrt(expected * (1 - expected).clip(0) * 2 / (np.pi * cells.rows)), 2 * expected)
        distance, by_chance = float(np.abs(seen - expected).sum() / 2), float(chance.sum() / 2)
        yield Dependence((grouping.names[a], grouping.names[b]), distance, by_chance)


def _joined(masses: FloatArray, groups: npt.NDArray[np.int64]) -> FloatArray:
    return np.stack([np.bincount(groups, own) for own in masses])
