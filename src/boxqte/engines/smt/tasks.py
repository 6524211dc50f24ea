"""The paper's tasks, as work that a worker does step by step: Task_kappa, Task_not_kappa, Task_s and their parts.

A task is plain data that can be sent to another process and done again from the start. `Worker.start` turns it into a
generator that yields after every check of the solver: `Found` for a path tuple, None while it goes on, and at the end
`Finished`, or `Divided` where the task falls apart into smaller ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from boxqte.engines.smt import formula
from boxqte.engines.smt.boxes import Boxes, Masks, PathTuple, replaced
from boxqte.engines.smt.formula import PRIME
from boxqte.engines.smt.solving import Session, Terms
from boxqte.questions.grid import Grid

PathKind = Literal["kappa", "not-kappa"]


@dataclass(frozen=True)
class PathTask:
    """Enumerate the path tuples that Phi_kappa, or Phi_not_kappa, has in a box, but for those that are blocked."""

    kind: PathKind
    domain: Masks
    blocked: tuple[PathTuple, ...] = ()


@dataclass(frozen=True)
class PairTask:
    """Task_s: the unfair part of a refined box x_box of one path tuple, found by enumerating the x' in a box.

    `positive` is the class of x, `margin` its F. `blocked` are the path tuples of x' that are known already. Where several
    tasks share one x_box, each returns what it found, and the union is measured when all of them have ended.
    """

    kind: Literal["pair"]
    group: int
    x_box: Masks
    positive: bool
    domain: Masks
    blocked: tuple[PathTuple, ...] = ()
    shared: bool = False
    margin: int = 0


Task = PathTask | PairTask


@dataclass(frozen=True)
class Found:
    """A path tuple of a PathTask; more may follow."""

    leaves: PathTuple


@dataclass(frozen=True)
class Finished:
    """The end of a task. Task_s: the unfair mass, or, if its x_box is shared, the path tuples of x'."""

    unfair: int = 0
    others: tuple[PathTuple, ...] = ()
    last: ClassVar[bool] = True


@dataclass(frozen=True)
class Divided:
    """The end of a task that is replaced by others, which together have the solutions that it has not found yet."""

    parts: tuple[Task, ...]
    last: ClassVar[bool] = True


Event = Found | Finished | Divided


@dataclass(frozen=True)
class Settings:
    """What the enhancements change in a worker."""

    box_blocking: bool = True
    blocking_limit: int | None = 100
    """Divide a task that has more blocking constraints than this; None: never."""
    room: float = math.inf
    """Bytes that z3 may hold in one process."""


class Worker:
    """Does tasks of one problem, with one solver for each of the three formulas."""

    def __init__(self, grid: Grid, settings: Settings, seconds_left: Callable[[], float] = lambda: math.inf):
        self.grid = grid
        self.boxes = Boxes(grid)
        self.terms = Terms(grid)
        self.settings = settings
        self.seconds_left = seconds_left
        self._sessions: dict[str, Session] = {}
        self._opposite: dict[bool, object] = {}

    def start(self, task: Task) -> Iterator[Event | None]:
        if isinstance(task, PairTask):
            return self._pairs(task)
        return self._paths(task)

    def _session(self, kind: str) -> Session:
        """The solver for a kind of task, made when it is first needed."""
        if kind not in self._sessions:
            grid = self.grid
            if kind == "pair":
                # p = pi is the same as x in B(pi), and then F(x) is known: the trees are needed for x' only.
                lines = [*formula.input_lines(grid, ""), *formula.input_lines(grid, PRIME)]
                lines += [*formula.tree_lines(grid, PRIME), *formula.pair_lines(grid)]
            else:
                condition = formula.confident(grid) if kind == "kappa" else formula.unsure(grid)
                lines = [*formula.input_lines(grid, ""), *formula.tree_lines(grid, ""), f"(assert {condition})"]
            self._sessions[kind] = Session(self.terms, lines, self.seconds_left, self.settings.room)
        return self._sessions[kind]

    def _too_many(self, blocked: list[PathTuple]) -> bool:
        return self.settings.blocking_limit is not None and len(blocked) > self.settings.blocking_limit

    # --- Task_kappa, Task_not_kappa ---

    def _paths(self, task: PathTask) -> Iterator[Event | None]:
        session = self._session(task.kind)
        solver, blocked = session.solver, list(task.blocked)
        solver.push()
        try:
            solver.add(self.terms.inside(task.domain, refined=False))
            solver.add([self.terms.not_this(leaves, "") for leaves in blocked])
            while True:
                if self._too_many(blocked):
                    yield Divided(self._path_parts(task, blocked))
                    return
                if not session.check():
                    yield Finished()
                    return
                leaves = session.leaves("")
                blocked.append(leaves)
                solver.add(self.terms.not_this(leaves, ""))
                yield Found(leaves)
        finally:
            solver.pop()

    def _path_parts(self, task: PathTask, blocked: list[PathTuple]) -> tuple[Task, ...]:
        """The two sides of a cut; each takes over the blocking constraints on its side."""
        sides = self._halves(task.domain, blocked)
        return tuple(PathTask(task.kind, domain, kept) for domain, kept in sides)

    def _halves(self, domain: Masks, blocked: list[PathTuple]) -> list[tuple[Masks, tuple[PathTuple, ...]]]:
        """A box of base cells in two, at the tree root that divides the blocked path tuples most evenly.

        Two different path tuples in the box differ in some tree, whose first dividing cut puts them on two sides or leaves
        both in a smaller box: so more than one blocked path tuple means that there is a cut.
        """
        boxes = [self.boxes.box(leaves) for leaves in blocked]
        best: tuple[int, int] | None = None
        for cut in sorted(self.boxes.residual_cuts(domain)):
            axis, mask = self.boxes.cuts[cut]
            yes = sum(1 for box in boxes if not box[axis] & ~mask)
            best = min(best or (len(boxes) + 1, -1), (max(yes, len(boxes) - yes), cut))
        assert best is not None, "a box with one path tuple has more than one blocked"
        axis, mask = self.boxes.cuts[best[1]]
        inside = self.boxes.sides(domain, best[1])
        kept = [tuple(p for p, box in zip(blocked, boxes) if not box[axis] & ~side) for side in (mask, ~mask)]
        return [(half, mine) for half, mine in zip(inside, kept)]

    # --- Task_s ---

    def _pairs(self, task: PairTask) -> Iterator[Event | None]:
        session = self._session("pair")
        solver, blocked = session.solver, list(task.blocked)
        solver.push()
        try:
            solver.add(self._partner(task))
            solver.add(self.terms.inside(task.x_box, refined=True))
            solver.add(self.terms.inside(task.domain, refined=False, prime=PRIME))
            for leaves in blocked:
                solver.add(self._blocking(task, leaves))
            while True:
                if self._too_many(blocked):
                    yield Divided(self._pair_parts(task, blocked))
                    return
                if not session.check():
                    yield self._pairs_end(task, blocked)
                    return
                leaves = session.leaves(PRIME)
                blocked.append(leaves)
                solver.add(self._blocking(task, leaves))
                yield None
        finally:
            solver.pop()

    def _partner(self, task: PairTask) -> object:
        """x' has the class that x has not, or a score that is the gap away."""
        limits, z3, context = self.grid.thresholds, self.terms.z3, self.terms.context
        gap = 0 if self.grid.partners is None else self.grid.partners.gap
        if gap or task.positive not in self._opposite:
            values = [z3.Real(f"v{j}{PRIME}", context) for j in range(len(self.grid.roots))]
            total = z3.Sum([z3.RealVal(self.grid.base, context), *values])
            if gap:
                return z3.Or(total <= task.margin - gap, total >= task.margin + gap)
            self._opposite[task.positive] = total <= limits.neg if task.positive else total >= limits.pos
        return self._opposite[task.positive]

    def _blocking(self, task: PairTask, leaves: PathTuple) -> object:
        other = self.terms.not_this(leaves, PRIME)
        if not self.settings.box_blocking:
            return other
        near, own = self.boxes.near(self.boxes.box(leaves))
        return self.terms.all_of([other, self.terms.outside(near, own, task.x_box)])

    def _pairs_end(self, task: PairTask, blocked: list[PathTuple]) -> Finished:
        if task.shared:
            return Finished(others=tuple(blocked))
        return Finished(unfair=unfair_mass(self.boxes, task.x_box, blocked))

    def _pair_parts(self, task: PairTask, blocked: list[PathTuple]) -> tuple[Task, ...]:
        """Smaller tasks with disjoint solutions.

        With box blocking, x is divided: a blocking constraint goes where its region is. Without it, x' is divided: a
        blocking constraint goes where its path tuple is, and the parts share x_box.
        """
        if not self.settings.box_blocking:
            halves = self._halves(task.domain, blocked)
            return tuple(replace(task, domain=domain, blocked=kept, shared=True) for domain, kept in halves)
        regions = [self.boxes.region(task.x_box, self.boxes.box(leaves)) for leaves in blocked]
        axis, side = _even_split(task.x_box, regions)
        parts = []
        for mask in (task.x_box[axis] & side, task.x_box[axis] & ~side):
            x_box = replaced(task.x_box, axis, mask)
            parts.append(replace(task, x_box=x_box, blocked=self._largest(x_box, blocked)))
        return tuple(parts)

    def _largest(self, x_box: Masks, blocked: list[PathTuple]) -> tuple[PathTuple, ...]:
        """The path tuples whose regions meet the refined box, without those whose region lies in another's."""
        kept: list[tuple[PathTuple, list[Masks]]] = []
        for leaves in blocked:
            region = self.boxes.region(x_box, self.boxes.box(leaves))
            if region and not any(_covered(region, other) for _, other in kept):
                kept = [(p, other) for p, other in kept if not _covered(other, region)] + [(leaves, region)]
        return tuple(leaves for leaves, _ in kept)


def _covered(region: list[Masks], by: list[Masks]) -> bool:
    """Whether each box of a region lies in some box of the other; False is always safe."""
    return all(any(all(not a & ~b for a, b in zip(box, large)) for large in by) for box in region)


def _even_split(x_box: Masks, regions: list[list[Masks]]) -> tuple[int, int]:
    """The axis, and the cells of one side, that leave the fewest regions to the fuller side.

    With box blocking every region has an x that the regions before it have not, so that more than one region means more
    than one cell: there is always a split.
    """
    best: tuple[int, int, int, int] | None = None
    for axis, mask in enumerate(x_box):
        touched = []
        for region in regions:
            cells = 0
            for box in region:
                cells |= box[axis]
            touched.append(cells)
        for at in range(mask.bit_length() - 1):
            side = mask & ((2 << at) - 1)
            if mask >> at & 1 and side != mask:
                low, high = sum(1 for t in touched if t & side), sum(1 for t in touched if t & ~side)
                best = min(best or (len(regions) * 2 + 1, 0, 0, 0), (max(low, high), low + high, axis, side))
    assert best is not None, "one cell has more than one region"
    return best[2], best[3]


def unfair_mass(boxes: Boxes, x_box: Masks, others: list[PathTuple]) -> int:
    """The mass of the union of the regions X_unfair(pi, pi') inside x_box, in the boxes' units."""
    return boxes.union(part for leaves in others for part in boxes.region(x_box, boxes.box(leaves)))
