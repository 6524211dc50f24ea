"""Mixtures of products fitted to cells by expectation and maximisation (EM), and how many components they should have.

Rows are cells: one small integer an attribute. A component's masses are drawn towards those of all rows, and these a little
towards even ones: no cell has mass 0, and a component of few rows says little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.basics.budget import TimeBudget

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

EVEN = 1.0  # rows: the weight of an even mass beside the rows' own frequencies
PULL = 1.0  # rows a cell of the attribute: the weight of the frequencies of all rows in each component
LADDER = (1, 2, 4, 8, 16, 32)  # numbers of components that are tried
STARTS, SHORT, LONG = 2, 8, 200  # how many starts are tried, for so many steps each; the most steps of the best
ENOUGH = 2e-4  # nats a row: a step that gains less is the last
HELD_OUT = 5  # one row of so many is held out to compare fits on...
SMALL = 10_000  # ... and of a table of at most so many rows every one in turn
MOST = 50_000  # rows, drawn at random from a larger table, tell how many components pay off
BLOCK = 2048  # attributes are joined while their combinations are at most so many
CHUNK = 1 << 14  # rows at a time, so that what is computed for them stays near the processor


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows as cells: the distinct ones, and how many rows each of them is.

    `even[a]` is the share of each cell of attribute `a` where no value counts more than another.
    """

    codes: IntArray
    """attributes x distinct rows"""
    counts: FloatArray
    even: tuple[FloatArray, ...]

    @classmethod
    def of(cls, codes: IntArray, even: Sequence[FloatArray]) -> Cells:
        """From a code of every row (attributes x rows)."""
        distinct, counts = np.unique(codes, axis=1, return_counts=True)
        return cls(distinct, counts.astype(np.float64), tuple(even))

    @property
    def rows(self) -> float:
        return float(self.counts.sum())

    def shares(self) -> list[FloatArray]:
        """How often each cell of each attribute occurs, a little evened."""
        found = []
        for own, even in zip(self.codes, self.even):
            counted = np.bincount(own, self.counts, len(even))
            found.append((counted + EVEN * even) / (self.rows + EVEN))
        return found


class Mixture(NamedTuple):
    """Weights, and for each attribute the masses of its cells in every component (components x cells)."""

    weights: FloatArray
    masses: list[FloatArray]

    @property
    def components(self) -> int:
        return len(self.weights)


class _Block(NamedTuple):
    """Some attributes as one, whose cells are their combinations: fewer passes over the rows."""

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    codes: IntArray


class BlockedRows:
    """The rows as blocks of attributes, in chunks: what a step of the fit goes over."""

    def __init__(self, cells: Cells):
        self.cells = cells
        self.shares = cells.shares()
        sizes = [len(share) for share in self.shares]
        groups: list[list[int]] = []
        for a in sorted(range(len(sizes)), key=lambda a: (-sizes[a], a)):
            fitting = (g for g in groups if math.prod(sizes[b] for b in g) * sizes[a] <= BLOCK)
            group = next(fitting, None)
            if group is None:
                groups.append([a])
            else:
                group.append(a)
        self.blocks = []
        for group in groups:
            own = tuple(sizes[a] for a in group)
            self.blocks.append(_Block(tuple(group), own, np.ravel_multi_index(tuple(cells.codes[group]), own)))

    def chunks(self) -> Iterator[slice]:
        n = len(self.cells.counts)
        return (slice(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK))

    def tables(self, mixture: Mixture) -> list[FloatArray]:
        """For each block the masses of its combinations (components x combinations)."""
        found = []
        for block in self.blocks:
            table = mixture.masses[block.attributes[0]]
            for a in block.attributes[1:]:
                table = (table[:, :, None] * mixture.masses[a][:, None, :]).reshape(len(table), -1)
            found.append(table)
        return found

    def joint(self, mixture: Mixture, tables: Sequence[FloatArray], chunk: slice) -> tuple[FloatArray, FloatArray]:
        """The mass of every row together with each component (components x rows), and the logarithm of the row's unit."""
        found: FloatArray = np.repeat(mixture.weights[:, None], chunk.stop - chunk.start, axis=1)
        units = np.zeros(found.shape[1])
        for i, (block, table) in enumerate(zip(self.blocks, tables)):
            found *= table[:, block.codes[chunk]]
            if i % 2:  # the mass of many attributes together is too small for a float
                largest = found.max(axis=0)
                found /= largest
                units += np.log(largest)
        return found, units

    def improved(self, mixture: Mixture) -> tuple[Mixture, float]:
        """One step of EM, and the objective before it: the rows' log-likelihood and what pulls the masses together."""
        tables = self.tables(mixture)
        counted = [np.zeros_like(table) for table in tables]
        weights, objective = np.zeros(mixture.components), 0.0
        for chunk in self.chunks():
            joint, units = self.joint(mixture, tables, chunk)
            total, counts = joint.sum(axis=0), self.cells.counts[chunk]
            objective += float(counts @ (np.log(total) + units))
            joint *= counts / total
            weights += joint.sum(axis=1)
            self._count(joint, chunk, counted)
        for share, masses in zip(self.shares, mixture.masses):
            objective += PULL * len(share) * float((np.log(masses) @ share).sum())
        return Mixture(weights / self.cells.rows, self._masses(counted, weights)), objective

    def _count(self, own: FloatArray, chunk: slice, tables: Sequence[FloatArray]) -> None:
        """Add the rows that each component has of each combination."""
        for block, table in zip(self.blocks, tables):
            for k, rows in enumerate(own):
                table[k] += np.bincount(block.codes[chunk], rows, table.shape[1])

    def _masses(self, counted: Sequence[FloatArray], weights: FloatArray) -> list[FloatArray]:
        """From the rows that each component has of each combination."""
        found: list[FloatArray] = [np.empty(0)] * len(self.shares)
        for block, sums in zip(self.blocks, counted):
            shaped = sums.reshape(len(weights), *block.sizes)
            for at, a in enumerate(block.attributes):
                others = tuple(i + 1 for i in range(len(block.sizes)) if i != at)
                own = shaped.sum(axis=others) + PULL * block.sizes[at] * self.shares[a]
                found[a] = own / own.sum(axis=1, keepdims=True)
        return found

    def log_likelihoods(self, mixture: Mixture) -> FloatArray:
        """Of every distinct row."""
        tables = self.tables(mixture)
        joints = (self.joint(mixture, tables, chunk) for chunk in self.chunks())
        return np.concatenate([np.log(joint.sum(axis=0)) + units for joint, units in joints])

    def start(self, components: int, rng: np.random.Generator) -> Mixture:
        """Every row in all components at random: they begin near each other, and part where the rows do."""
        tables = [np.zeros((components, math.prod(block.sizes))) for block in self.blocks]
        weights = np.zeros(components)
        for chunk in self.chunks():
            own = rng.standard_exponential((components, chunk.stop - chunk.start))
            own *= self.cells.counts[chunk] / own.sum(axis=0)
            weights += own.sum(axis=1)
            self._count(own, chunk, tables)
        return Mixture(weights / self.cells.rows, self._masses(tables, weights))

    def settled(self, mixture: Mixture, steps: int, clock: TimeBudget) -> tuple[Mixture, float]:
        """The mixture after so many steps of EM, or once they gain little; and the objective a row before the last."""
        before = -math.inf
        for _ in range(steps):
            mixture, objective = self.improved(mixture)
            gain, before = objective / self.cells.rows - before, objective / self.cells.rows
            if gain < ENOUGH or clock.left <= 0:
                break
        return mixture, before


UNLIMITED = TimeBudget(None)


def fit_mixture(cells: Cells, components: int, seed: int, clock: TimeBudget = UNLIMITED) -> Mixture:
    """The best of several starts, all of them drawn with the seed; one component is the product of the (evened) shares."""
    rows = BlockedRows(cells)
    if components == 1:
        return Mixture(np.ones(1), [share[None] for share in rows.shares])
    rng = np.random.default_rng([seed, components])
    tried = [rows.settled(rows.start(components, rng), SHORT, clock) for _ in range(STARTS)]
    best = max(range(STARTS), key=lambda i: tried[i][1])
    return rows.settled(tried[best][0], LONG, clock)[0]


def refined_on(cells: Cells, mixture: Mixture, clock: TimeBudget = UNLIMITED) -> Mixture:
    """A mixture that was fitted to some rows, fitted to all of them from there."""
    if mixture.components == 1:
        return fit_mixture(cells, 1, 0)
    return BlockedRows(cells).settled(mixture, LONG, clock)[0]


def log_likelihoods(cells: Cells, mixture: Mixture) -> FloatArray:
    """The natural logarithm of the mass of each distinct row."""
    return BlockedRows(cells).log_likelihoods(mixture)


class Chosen(NamedTuple):
    """A mixture, and how well those that were tried fit the rows that were held out."""

    mixture: Mixture
    held_out: dict[int, float]
    """By number of components, nats a row."""
    rows: int
    """How many rows were held out."""
    hurried: bool
    """Whether the time limit ended it: with more time there may be more components, or better ones."""


def choose(
    codes: IntArray,
    even: Sequence[FloatArray],
    components: int | None,
    seed: int,
    clock: TimeBudget = UNLIMITED,
    most: int = LADDER[-1],
) -> Chosen:
    """The mixture of so many components, or (None) of as many as pay off, at most `most`: the ladder is climbed while the
    next rung raises the log-likelihood of rows that the fit has not seen.

    `codes` has a code of every row (attributes x rows). One row in five is held out; of a small table every row once, and of
    a large one some rows are asked. The chosen number of components is then fitted to all rows.
    """
    n = codes.shape[1]
    folds = HELD_OUT if n <= SMALL else 1
    parts = np.array_split(np.random.default_rng(seed).permutation(n)[:MOST], HELD_OUT)
    splits = []
    for i in range(folds):
        rest = np.concatenate([part for j, part in enumerate(parts) if j != i])
        splits.append((Cells.of(codes[:, rest], even), Cells.of(codes[:, parts[i]], even)))
    kept = sum(len(part) for part in parts[:folds])
    every = Cells.of(codes, even)
    if n < HELD_OUT:
        return Chosen(fit_mixture(every, components or 1, seed, clock), {}, 0, clock.left <= 0)
    held_out: dict[int, float] = {}
    best, hurried = fit_mixture(every, 1, seed), False
    for rung in [n for n in LADDER if n <= most] if components is None else sorted({1, components}):
        started = clock.used
        found = [fit_mixture(rest, rung, seed, clock) for rest, _ in splits]
        total = sum(float(out.counts @ log_likelihoods(out, own)) for (_, out), own in zip(splits, found))
        pays_off = components is not None or not held_out or total / kept > max(held_out.values())
        held_out[rung] = total / kept
        if not pays_off:
            break
        best = found[0]
        # The next rung takes twice as long as this one, and then all rows are to be fitted.
        hurried = components is None and rung < most and clock.left < 4 * (clock.used - started)
        if hurried:
            break
    return Chosen(refined_on(every, best, clock), held_out, kept, hurried or clock.left <= 0)
