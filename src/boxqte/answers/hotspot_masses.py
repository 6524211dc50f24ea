"""Counterexamples inside rules and inside what rules hold together, as certain bounds, from one search.

Rules overlap, and a search counts disjoint boxes. So the rules are cut into disjoint boxes of which each lies inside or
outside of every rule; the search starts from these, and each box that it closes is added to the rules that hold it.

On an axis along which x' may differ from x a search cannot start from some of the cells: there the masses of x are
restricted, and rules with the same cells on these axes share a search.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import NamedTuple

import numpy as np

from boxqte.answers.allowed import left_of
from boxqte.answers.asked import Asked, Ends, cell_words, support_boxes
from boxqte.answers.regions import RegionStore, held_cells
from boxqte.answers.result import asked_of
from boxqte.basics.budget import TimeBudget
from boxqte.engines.box.classes import ClassProblem
from boxqte.engines.box.driver import ExactSum
from boxqte.engines.box.plan import rounding_bound
from boxqte.engines.box.problem import Problem, compile_problem
from boxqte.engines.kinds import UNFAIR
from boxqte.engines.protocol import BoxArray, Closed, FloatArray, Limits, Status
from boxqte.errors import EngineError
from boxqte.questions.axes import Axis
from boxqte.questions.grid import AnyGrid, binary
from boxqte.questions.variations import part_of_cell, restricted_grid
from boxqte.space.conditions import Part

ZERO = Fraction(0)
MOST_BLOCKS = 100_000  # disjoint boxes that overlapping rules are cut into
Cells = Mapping[int, Collection[int]]
"""axis -> the cells that a rule allows; axes that it does not name are free"""
Bits = tuple[int, ...]
"""the cells that a box holds on every axis that some rule names, as bits of one number an axis"""


class Block(NamedTuple):
    """A box that lies inside or outside of every rule, and the rules that hold it."""

    bits: Bits
    rules: tuple[int, ...]


@dataclass(frozen=True)
class Counted:
    """What each rule holds, and what it holds that no earlier one does, as masses of counterexamples."""

    own: list[Ends]
    new: list[Ends]
    done: bool
    """whether no limit has ended a search"""


def _mass(grid: AnyGrid, rule: Cells) -> Fraction:
    return math.prod((sum((grid.axes[a].masses[c] for c in held), ZERO) for a, held in rule.items()), start=Fraction(1))


def count(asked: Asked, rules: Sequence[Cells], union: int, limits: Limits) -> Counted:
    """The counterexamples in all rules; the first `union` of them are those that `new` is about."""
    if not rules:
        return Counted([], [], True)
    used = _used(rules)
    blocks = blocks_of(asked.grid, rules)
    pieces = [(weight, asked_of(own)) for weight, own in asked.pieces] or [(Fraction(1), asked)]
    budget = TimeBudget(limits.time_limit, len(pieces))
    own, new, done = [(ZERO, ZERO)] * len(rules), [(ZERO, ZERO)] * union, True
    for weight, piece in pieces:
        now = replace(limits, time_limit=budget.next_share())
        found = _Counter(piece, rules, union, used, blocks).count(now)
        own = [(a + weight * low, b + weight * high) for (a, b), (low, high) in zip(own, found.own)]
        new = [(a + weight * low, b + weight * high) for (a, b), (low, high) in zip(new, found.new)]
        done &= found.done
    return Counted(own, new, done)


# --- disjoint boxes ---------------------------------------------------------------------------------------------------


def _bits(held: Iterable[int]) -> int:
    return reduce(lambda bits, c: bits | 1 << c, held, 0)


def _cells(bits: int) -> list[int]:
    return [c for c in range(bits.bit_length()) if bits >> c & 1]


def _used(rules: Sequence[Cells]) -> list[int]:
    """The axes that some rule names."""
    return sorted({a for rule in rules for a in rule})


def blocks_of(grid: AnyGrid, rules: Sequence[Cells], most: int = MOST_BLOCKS) -> list[Block]:
    """Disjoint boxes that make up all rules; an error if there are more of them than a search should start from."""
    used = _used(rules)
    blocks: list[Block] = []
    for k, rule in enumerate(rules):
        own = _bits_of(grid, rule, used)
        cut: list[Block] = []
        rest = [own]
        for block in blocks:
            common = tuple(x & y for x, y in zip(block.bits, own))
            if not all(common):
                cut.append(block)
                continue
            cut.append(Block(common, (*block.rules, k)))
            cut += [Block(part, block.rules) for part in _without(block.bits, common)]
            rest = [part for one in rest for part in _apart(one, block.bits)]
        blocks = cut + [Block(part, (k,)) for part in rest]
        if len(blocks) > most:
            raise EngineError(
                f"hotspots: {k + 1} rules overlap in more than {most} parts; ask for fewer rules or conditions"
            )
    return blocks


def _bits_of(grid: AnyGrid, rule: Cells, used: Sequence[int]) -> Bits:
    return tuple(_bits(rule.get(a, range(grid.axes[a].n_cells))) for a in used)


def _apart(one: Bits, other: Bits) -> Iterator[Bits]:
    """What lies in one box and not in another, in disjoint boxes."""
    common = tuple(x & y for x, y in zip(one, other))
    return _without(one, common) if all(common) else iter([one])


def _without(outer: Bits, inner: Bits) -> Iterator[Bits]:
    """A box without one that lies in it, in disjoint boxes."""
    for i, (outside, inside) in enumerate(zip(outer, inner)):
        if outside != inside:
            yield (*inner[:i], outside & ~inside, *outer[i + 1 :])


# --- masses in a product ----------------------------------------------------------------------------------------------


class _Sums:
    """An observer that adds up the masses of closed boxes by the rules that hold them. Sums are kept exactly."""

    def __init__(self, rules: BoxArray):
        self.rules = rules
        self._sums: dict[tuple[int, ...], list[ExactSum]] = {}

    def begin(self, problem: Problem, roots: BoxArray) -> None:
        pass

    def closed(self, parts: Closed) -> None:
        inside = np.stack([~(parts.boxes & ~rule).any(axis=(1, 2)) for rule in self.rules], axis=1)
        held, owner = np.unique(inside, axis=0, return_inverse=True)
        for i, row in enumerate(held):
            sums = self._sums.setdefault(tuple(np.flatnonzero(row).tolist()), [ExactSum() for _ in range(3)])
            masses = parts.masses[owner.reshape(-1) == i]
            for kind, total in enumerate(sums):
                total.add(math.fsum(masses[:, kind].tolist()))

    def masses(self) -> dict[tuple[int, ...], list[Fraction]]:
        """[fair, unfair, low] of what just these rules hold."""
        return {held: [Fraction(total.value) for total in sums] for held, sums in self._sums.items()}


@dataclass(frozen=True)
class _Counter:
    asked: Asked
    rules: Sequence[Cells]
    union: int
    used: Sequence[int]
    blocks: Sequence[Block]

    def count(self, limits: Limits) -> Counted:
        if not self.asked.grid.ensemble.is_binary:
            ends, done = self._of_pure_boxes()
        else:
            ends, done = self._searched(limits)
        return Counted(ends[: len(self.rules)], ends[len(self.rules) :], done)

    def places(self, held: Sequence[int]) -> list[int]:
        """Which numbers a mass belongs to that just these rules hold: what each of them holds, and what the first one adds."""
        return [*held, *(len(self.rules) + k for k in held[:1] if k < self.union)]

    def _searched(self, limits: Limits) -> tuple[list[Ends], bool]:
        """Two classes: one search for all blocks that agree on the axes along which x' may differ from x."""
        axes = [self.asked.grid.axes[a] for a in self.used]
        tied = [i for i, axis in enumerate(axes) if axis.sensitive or axis.moves]
        groups: dict[Bits, list[Block]] = {}
        for block in self.blocks:
            groups.setdefault(tuple(block.bits[i] for i in tied), []).append(block)
        budget = TimeBudget(limits.time_limit, len(groups))
        ends, done = [(ZERO, ZERO)] * (len(self.rules) + self.union), True
        for key, blocks in groups.items():
            cells = {self.used[i]: _cells(bits) for i, bits in zip(tied, key)}
            share, now = _mass(self.asked.grid, cells), replace(limits, time_limit=budget.next_share())
            if share and not self._all_forbidden(cells):
                found, finished = self._search(blocks, cells, share, now)
                ends = [(a + low, b + high) for (a, b), (low, high) in zip(ends, found)]
                done &= finished
        return ends, done

    def _all_forbidden(self, tied: Mapping[int, Sequence[int]]) -> bool:
        """Whether rules of the space forbid every x with these cells."""
        grid = self.asked.grid
        held = {a: [c in cells for c in range(grid.axes[a].n_cells)] for a, cells in tied.items()}
        return bool(grid.forbidden) and not left_of(grid, held)

    def _search(
        self, blocks: Sequence[Block], tied: Mapping[int, Sequence[int]], share: Fraction, limits: Limits
    ) -> tuple[list[Ends], bool]:
        """The masses in some of the blocks, which have the same cells on the tied axes, with the mass `share`."""
        grid = self.asked.grid
        parts = {grid.axes[a].attribute.name: _part(grid.axes[a], cells) for a, cells in tied.items()
                 if len(cells) < grid.axes[a].n_cells}  # fmt: skip
        if parts:
            grid, _ = restricted_grid(grid, parts, f"a part of {', '.join(parts)}")
        problem = compile_problem(binary(grid))
        free = [i for i, a in enumerate(self.used) if a not in tied]
        roots = self._boxes(problem, free, [block.bits for block in blocks])
        present = sorted({k for block in blocks for k in block.rules})
        sums = _Sums(self._boxes(problem, free, [_bits_of(grid, self.rules[k], self.used) for k in present]))
        outcome = self.asked.run(grid, observers=[sums], roots=lambda _: roots, limits=limits)
        done = outcome.status is Status.CONVERGED
        found = [[ZERO, ZERO, ZERO] for _ in range(len(self.rules) + self.union)]
        for held, masses in sums.masses().items():
            for at in self.places([present[i] for i in held]):
                found[at] = [a + b for a, b in zip(found[at], masses)]
        room = [ZERO] * len(found)
        for block in blocks:
            mass = _mass(grid, {self.used[i]: _cells(block.bits[i]) for i in free})
            for at in self.places(block.rules):
                room[at] += mass
        slack = 3 * rounding_bound(problem) + grid.mass_error
        ends = []
        for (fair, unfair, low), most in zip(found, room):
            high = unfair if done else max(most - fair - low, unfair)
            ends.append((share * max(unfair - slack, ZERO), share * min(high + slack, most)))
        return ends, done

    def _boxes(self, problem: Problem, free: Sequence[int], blocks: Sequence[Bits]) -> BoxArray:
        """Blocks as boxes of the compiled grid, cut along the free axes."""
        whole = support_boxes(problem)
        boxes: BoxArray = np.repeat(whole, len(blocks), axis=0)
        for i in free:
            n = problem.grid.axes[self.used[i]].n_cells
            words = {bits: cell_words([bool(bits >> c & 1) for c in range(n)], whole.shape[2])
                     for bits in {block[i] for block in blocks}}  # fmt: skip
            boxes[:, problem.axis_ids.index(self.used[i])] &= np.array([words[block[i]] for block in blocks])
        return boxes

    def _of_pure_boxes(self) -> tuple[list[Ends], bool]:
        """Three classes and more: every box of the search is counterexamples throughout, so its mass divides it."""
        store, grid = self.asked.regions(), self.asked.grid
        problem = store.problem
        assert isinstance(problem, ClassProblem)
        found = [ZERO] * (len(self.rules) + self.union)
        shares = {a: _shares(store, problem, grid.axes[a], a) for a in self.used if a in problem.axis_ids}
        for block in self.blocks:
            masses = store.boxes.masses[:, UNFAIR].copy()
            even = Fraction(1)
            for a, bits in zip(self.used, block.bits):
                if a in shares:
                    masses *= shares[a] @ _chosen(bits, shares[a].shape[1])
                else:  # no tree asks
                    even *= _mass(grid, {a: _cells(bits)})
            mass = Fraction(math.fsum(masses.tolist())) * even
            for at in self.places(block.rules):
                found[at] += mass
        # A share of a box has one rounding a cell of its axis and three more; all errors are shares of the boxes' mass.
        steps = sum(len(grid.axes[a].refined) + 8 for a in self.used)
        slack = 2 * store.rounding + Fraction(steps, 2**52) + grid.mass_error
        more = Fraction(store.elsewhere) + (ZERO if store.complete else store.decided.undecided)
        return [(max(mass - slack, ZERO), mass + slack + more) for mass in found], store.complete


def _shares(store: RegionStore, problem: ClassProblem, axis: Axis, a: int) -> FloatArray:
    """box x base cell: the share of the box's mass that lies in the cell."""
    own = np.array([float(m) for m in axis.refined_masses])
    inside = held_cells(store.boxes.cells[:, problem.axis_ids.index(a)], len(own)) * own
    by_cell = np.zeros((len(inside), axis.n_cells))
    for r, c in enumerate(axis.base.tolist()):
        by_cell[:, c] += inside[:, r]
    shares: FloatArray = by_cell / np.maximum(inside.sum(axis=1), np.finfo(float).tiny)[:, None]
    return shares


def _chosen(bits: int, n: int) -> FloatArray:
    return np.array([float(bits >> c & 1) for c in range(n)])


def _part(axis: Axis, cells: Sequence[int]) -> Part:
    """Cells of an axis as a part of its attribute's domain."""
    parts = [part_of_cell(axis, axis.cells[c]) for c in cells]
    return Part(
        spans=tuple(span for part in parts for span in part.spans),
        values=frozenset().union(*(part.values for part in parts)),
        missing=any(part.missing for part in parts),
    )
