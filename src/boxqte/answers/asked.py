"""What a result remembers of its question, so that it can be asked more: where, to whom, which way, and for whom not.

Every further question is the same search on a variation of the grid: other masses (which x count), other thresholds
(which class x has), other sensitive cells (where x' may go), or other boxes to start from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.answers.regions import RegionStore, held_cells
from boxqte.engines.box.driver import ExactSum
from boxqte.engines.box.engine import Box
from boxqte.engines.box.exchange_worker import box_masses, root_boxes
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.plan import rounding_bound
from boxqte.engines.box.problem import Problem, compile_problem
from boxqte.engines.protocol import BoxArray, Closed, Companions, FloatArray, Limits, Outcome, Status, Watch
from boxqte.engines.refusals import refuse
from boxqte.errors import EngineError
from boxqte.models.importers import ImportedModel
from boxqte.questions.grid import AnyGrid, binary
from boxqte.space.conditions import Part

MOST_PARTS = 4096  # into which the cells with mass are divided for a search


@dataclass(frozen=True, eq=False)
class Asked:
    """The question behind a result, and what the search has seen."""

    model: ImportedModel
    grid: AnyGrid
    engine: str
    options: Mapping[str, Any]
    limits: Limits
    store: RegionStore | None = None
    """The boxes with counterexamples, where the box engine has answered."""
    answers: dict[Any, Any] = field(default_factory=dict)
    """Further questions that were answered before."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    """Which x count: the part of each attribute's domain that the conditions so far leave."""
    condition: str = ""
    share: Fraction = Fraction(1)
    """The mass of these x in the whole space."""
    pieces: tuple[tuple[Fraction, Any], ...] = ()
    """The weights and results of the products that the space is a mixture of; empty: it is one product."""

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: what was answered before is found again when it is asked for."""
        return {**vars(self), "answers": {}}

    def regions(self) -> RegionStore:
        """The boxes with counterexamples in them; found by the box engine if another engine has answered."""
        if self.store is not None:
            return self.store
        if "store" not in self.answers:
            store = RegionStore()
            outcome = self.run(self.grid, observers=[store], roots=support_boxes)
            store.finish(outcome.decided, outcome.status)
            self.answers["store"] = store
        found: RegionStore = self.answers["store"]
        return found

    def run(
        self,
        grid: AnyGrid,
        *,
        observers: Sequence[Any] = (),
        roots: Any = None,
        options: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> Outcome:
        """The box engine on a variation of the grid."""
        engine = Box(replace(self.box_options(), **(options or {})))
        limits = limits or replace(self.limits, gap=0.0, node_limit=None)
        beside = Companions(tuple(observers), roots=roots)
        refuse(engine.name, grid, beside)
        outcome = engine.run(grid, limits, Watch(limits), beside)
        if outcome.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return replace(outcome, decided=outcome.decided.lowered(grid.mass_error))

    def box_options(self) -> BoxOptions:
        """How the box engine was asked to search, alone or as the first part of `auto`."""
        if self.engine not in ("box", "auto"):
            return BoxOptions()
        known = {option.name for option in fields(BoxOptions)}
        return BoxOptions(**{name: value for name, value in self.options.items() if name in known})

    def masses_in(
        self, grid: AnyGrid, boxes: BoxArray, *, roots: BoxArray | None = None, limits: Limits | None = None
    ) -> Inside:
        """What is decided inside disjoint boxes (of the compiled grid's axes), or inside those parts of them."""
        sums = BoxSums(boxes)
        outcome = self.run(
            grid, observers=[sums], roots=lambda problem: boxes if roots is None else roots, limits=limits
        )
        return Inside(sums.masses, outcome.status is Status.CONVERGED)


@dataclass(frozen=True, eq=False)
class Inside:
    """box x [fair, unfair, low], floats within the rounding bound; and whether the search went through all of them."""

    masses: FloatArray
    done: bool


class BoxSums:
    """An observer that adds up the masses in each of the root boxes. Sums are kept exactly, as the driver keeps them."""

    def __init__(self, roots: BoxArray):
        self.roots = roots
        self._sums = [[ExactSum() for _ in range(3)] for _ in roots]

    def begin(self, problem: Problem, roots: BoxArray) -> None:
        pass

    def closed(self, parts: Closed) -> None:
        owner = self.owners(parts.boxes)
        assert (owner >= 0).all(), "a box outside of the root boxes"
        order = np.argsort(owner, kind="stable")
        starts = np.flatnonzero(np.concatenate([[True], owner[order][1:] != owner[order][:-1]]))
        for group in np.split(order, starts[1:]):
            for kind, total in enumerate(self._sums[owner[group[0]]]):
                total.add(math.fsum(parts.masses[group, kind].tolist()))

    def owners(self, boxes: BoxArray) -> npt.NDArray[np.intp]:
        """Which root each box lies in: the roots are disjoint, so its words tell."""
        owner = np.full(len(boxes), -1, np.intp)
        for i, root in enumerate(self.roots):
            owner[~(boxes & ~root).any(axis=(1, 2))] = i
        return owner

    @property
    def masses(self) -> FloatArray:
        return np.array([[float(total.value) for total in row] for row in self._sums]).reshape(-1, 3)


Ends = tuple[Fraction, Fraction]


def searched(asked: Asked, grid: AnyGrid, limits: Limits) -> tuple[Ends, bool]:
    """Certain bounds on the counterexamples of a variation of the grid, as a share of its mass; and whether no limit
    ended the search.

    Where the boxes with counterexamples are known, only these are searched: a variation asks about fewer x or fewer x',
    so nothing else can become one (but for what rounding has hidden, at most `rounding` of the store, in the masses of
    the whole question).
    """
    store = asked.regions()
    complete = store.complete and not store.elsewhere and not asked.grid.has_tolerance
    if complete and isinstance(store.problem, Problem):
        problem = compile_problem(binary(grid))
        boxes = carried_over(store.boxes.cells, store.problem, problem)
        if boxes is not None:
            if not len(boxes):
                return (Fraction(0), Fraction(0)), True
            outcome = asked.run(grid, roots=lambda problem: boxes, limits=limits)
            slack, decided = 3 * rounding_bound(problem), outcome.decided
            unfair = Fraction(decided.unfair)
            if outcome.status is Status.CONVERGED:
                return (unfair, unfair + slack), True
            inside = Fraction(math.fsum(box_masses(problem, boxes).tolist())) + slack
            return (unfair, max(inside - Fraction(decided.fair) - Fraction(decided.low), unfair)), False
    outcome = asked.run(grid, roots=support_boxes, limits=limits)
    unfair = Fraction(outcome.decided.unfair)
    return (unfair, unfair + outcome.decided.undecided), outcome.status is Status.CONVERGED


def support_boxes(problem: Problem) -> BoxArray:
    """One box with the cells that have mass. x' may still lie in the others: only axes along which x' stays are cut.

    A search divides a box with gaps (`in_runs`): gaps that would make too many of it are left in.
    """
    box, parts = root_boxes(problem), 1
    for i, a in enumerate(problem.axis_ids):
        axis = problem.grid.axes[a]
        if not axis.sensitive and not axis.moves:
            held = np.array([m > 0 for m in axis.masses])
            runs = int((np.diff(held, prepend=False) & held).sum())
            if parts * runs > MOST_PARTS:
                first, last = np.flatnonzero(held)[[0, -1]]
                held[first : last + 1] = True
            else:
                parts *= max(runs, 1)
            box[0, i] = cell_words(held.tolist(), box.shape[2])
    return box


def boxes_by_cell(problem: Problem, attribute: str) -> BoxArray:
    """The whole space as one box for every cell of an attribute along which x' stays."""
    whole = support_boxes(problem)
    i = next(i for i, a in enumerate(problem.axis_ids) if problem.grid.axes[a].attribute.name == attribute)
    n = problem.grid.axes[problem.axis_ids[i]].n_cells
    boxes = np.repeat(whole, n, axis=0)
    for c in range(n):
        boxes[c, i] = cell_words([k == c for k in range(n)], whole.shape[2])
    return boxes


def cell_words(held: Sequence[bool], n_words: int) -> npt.NDArray[np.uint64]:
    """A set of cells of one axis as the words that a box has for it."""
    bits = np.zeros(64 * n_words, np.uint8)
    bits[: len(held)] = held
    words: npt.NDArray[np.uint64] = np.packbits(bits, bitorder="little").view(np.uint64)
    return words


def carried_over(boxes: BoxArray, source: Problem, target: Problem) -> BoxArray | None:
    """Boxes of one compiled grid in terms of another, which may lack or merge sensitive axes; None if they would overlap.

    Both grids must have the same cells on the other axes.
    """
    where = {source.grid.axes[a].attribute.name: i for i, a in enumerate(source.axis_ids) if not source.sensitive[i]}
    named = [target.grid.axes[a].attribute.name for a in target.axis_ids]
    kept = [name for i, name in enumerate(named) if not target.sensitive[i]]
    for name, i in where.items():
        if name not in kept and not held_cells(boxes[:, i], int(source.axes.n_cells[i])).all():
            return None
    if any(name not in where for name in kept):
        raise EngineError("boxes of another problem")
    words = target.cuts.mask.shape[1]
    out = np.zeros((len(boxes), target.n_axes, words), np.uint64)
    for i, name in enumerate(named):
        if target.sensitive[i]:
            out[:, i] = cell_words([True] * int(target.axes.n_cells[i]), words)
        else:
            n = min(words, boxes.shape[2])
            out[:, i, :n] = boxes[:, where[name], :n]
    return out
