"""What a result remembers of its question, so that it can be asked more: where, to whom, which way, and for whom not.

Every further question is the same search on a variation of the grid: other masses (which x count), other thresholds
(which class x has), other sensitive cells (where x' may go), or other boxes to start from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxqte.axes import Axis
from boxqte.conditions import Part, mass_of, restrict_space, whole
from boxqte.engines import Limits, Outcome, Watch
from boxqte.errors import EngineError, SpaceError
from boxqte.grid import Cell, Grid, Thresholds, build_grid
from boxqte.importers import ImportedModel
from boxqte.regions import RegionStore, held_cells
from boxqte.result import Status

if TYPE_CHECKING:
    from boxqte.engines.box.driver import BoxArray, Closed, FloatArray
    from boxqte.engines.box.engine import BoxOptions
    from boxqte.engines.box.problem import Problem


@dataclass(frozen=True, eq=False)
class Origin:
    """The question behind a result, and what the search has seen."""

    model: ImportedModel
    grid: Grid
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
        grid: Grid,
        *,
        observers: Sequence[Any] = (),
        roots: Any = None,
        options: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> Outcome:
        """The box engine on a variation of the grid."""
        from boxqte.engines.box.engine import Box

        engine = Box(replace(self.box_options(), **(options or {})))
        engine.observers.extend(observers)
        engine.roots = roots
        limits = limits or replace(self.limits, gap=0.0, node_limit=None)
        outcome = engine.run(grid, limits, Watch(limits))
        if outcome.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return outcome

    def box_options(self) -> BoxOptions:
        """How the box engine was asked to search, alone or as the first part of `auto`."""
        from boxqte.engines.box.engine import BoxOptions

        if self.engine not in ("box", "auto"):
            return BoxOptions()
        known = {option.name for option in fields(BoxOptions)}
        return BoxOptions(**{name: value for name, value in self.options.items() if name in known})

    def masses_in(
        self, grid: Grid, boxes: BoxArray, *, roots: BoxArray | None = None, limits: Limits | None = None
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
        from boxqte.engines.box.driver import ExactSum

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


def searched(origin: Origin, grid: Grid, limits: Limits) -> tuple[Ends, bool]:
    """Certain bounds on the counterexamples of a variation of the grid, as a share of its mass; and whether no limit
    ended the search.

    Where the boxes with counterexamples are known, only these are searched: a variation asks about fewer x or fewer x',
    so nothing else can become one (but for what rounding has hidden, at most `rounding` of the store, in the masses of
    the whole question).
    """
    from boxqte.engines.box.engine import rounding_bound
    from boxqte.engines.box.exchange_worker import box_masses
    from boxqte.engines.box.problem import Problem, compile_problem

    store = origin.regions()
    complete = store.complete and not store.elsewhere and not origin.grid.has_tolerance
    if complete and isinstance(store.problem, Problem):
        problem = compile_problem(grid)
        boxes = carried_over(store.boxes.cells, store.problem, problem)
        if boxes is not None:
            if not len(boxes):
                return (Fraction(0), Fraction(0)), True
            outcome = origin.run(grid, roots=lambda problem: boxes, limits=limits)
            slack, decided = 3 * rounding_bound(problem), outcome.decided
            unfair = Fraction(decided.unfair)
            if outcome.status is Status.CONVERGED:
                return (unfair, unfair + slack), True
            inside = Fraction(math.fsum(box_masses(problem, boxes).tolist())) + slack
            return (unfair, max(inside - Fraction(decided.fair) - Fraction(decided.low), unfair)), False
    outcome = origin.run(grid, roots=support_boxes, limits=limits)
    unfair = Fraction(outcome.decided.unfair)
    return (unfair, unfair + outcome.decided.undecided), outcome.status is Status.CONVERGED


# --- variations of a grid ---------------------------------------------------------------------------------------------


def restricted_grid(grid: Grid, parts: Mapping[str, Part], text: str) -> tuple[Grid, Fraction]:
    """The same question, where only x inside the parts count; and the mass that they had."""
    space, share, only_missing = restrict_space(grid.space, parts, text)
    changed = build_grid(grid.ensemble, space, grid.property, many_classes=True)
    changed = replace(changed, thresholds=grid.thresholds)
    axes = list(changed.axes)
    for at, (axis, old) in enumerate(zip(changed.axes, grid.axes)):
        if axis.masses != old.masses and _only_missing(old):  # so it was restricted before
            part = parts.get(axis.attribute.name)
            if part is not None and not part.missing:
                raise SpaceError(f"condition {text!r}: no input of the space satisfies it with positive mass")
            if part is not None:  # the space does not know that all its mass is on the missing value
                share /= mass_of(old.attribute, part)
            axes[at] = replace(axis, masses=old.masses, refined_masses=old.refined_masses)
    for name in only_missing:  # no mass of an attribute can say this
        at = space.names.index(name)
        axis = axes[at]
        axes[at] = replace(
            axis,
            masses=tuple(Fraction(cell.missing) for cell in axis.cells),
            refined_masses=tuple(Fraction(cell.missing) for cell in axis.refined),
        )
    return replace(changed, axes=tuple(axes)), share


def _only_missing(axis: Axis) -> bool:
    return axis.cells[-1].missing and axis.masses[-1] == 1


def part_of_cell(axis: Axis, cell: Cell) -> Part:
    """The values of one cell as a part of its attribute's domain."""
    if cell.low is None or cell.high is None:
        return Part(values=frozenset(cell.values), missing=cell.missing)
    if axis.attribute.low == axis.attribute.high:
        return replace(whole(axis.attribute), missing=False)
    return Part(spans=((cell.low[0], cell.high[0]),))


def one_class_grid(grid: Grid, positive: bool) -> Grid:
    """The same question, where only x of one class count: all others are not confident."""
    far = far_beyond(grid)
    t = grid.thresholds
    if positive:
        return replace(grid, thresholds=Thresholds(t.pos, t.neg, t.conf_pos, -far))
    return replace(grid, thresholds=Thresholds(t.pos, t.neg, far, t.conf_neg))


def far_beyond(grid: Grid) -> int:
    """More than any |F| and than any threshold of confidence."""
    largest = 1 + abs(grid.base) + sum(max(map(abs, values)) for values in _leaf_values(grid))
    return max(largest, abs(grid.thresholds.conf_pos), abs(grid.thresholds.conf_neg)) + 1


def _leaf_values(grid: Grid) -> list[list[int]]:
    """The leaf values of every tree; the trees are stored one after the other."""
    stops = [*grid.roots.tolist()[1:], len(grid.cut)]
    return [
        [grid.values[leaf] for leaf in grid.leaf[start:stop].tolist() if leaf >= 0]
        for start, stop in zip(grid.roots.tolist(), stops)
    ]


def support_boxes(problem: Problem) -> BoxArray:
    """One box with the cells that have mass. x' may still lie in the others: only axes along which x' stays are cut."""
    from boxqte.engines.box.exchange_worker import root_boxes

    box = root_boxes(problem)
    for i, a in enumerate(problem.axis_ids):
        axis = problem.grid.axes[a]
        if not axis.sensitive and not axis.moves:
            box[0, i] = cell_words([m > 0 for m in axis.masses], box.shape[2])
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
