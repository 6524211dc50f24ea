"""The contract of all engines: what they are given, what they report, and what they end with.

An engine is a class whose constructor takes its options (a frozen dataclass `Options`) and whose `run` takes a Grid,
the limits and a Watch. It reports proved masses to the watch as it goes, stops when the watch says so, and returns an
Outcome. Whatever stops it, what it has reported stays true.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from boxqte.exact import down, up
from boxqte.questions.grid import AnyGrid

BoxArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]

CLOSED_NEXT, OPENED_NEXT, POINT_NEXT = -1, -2, -3
BOUNDS, COUNTED, POINT = 0, 1, 2  # what settled a closed box: bounds on it, counting in it, its single exact margins


class Status(Enum):
    """Why an engine stopped."""

    CONVERGED = "converged"
    GAP = "gap reached"
    REQUIREMENT = "requirement decided"
    CONFIDENT_GAP = "gap reached with the stated confidence"
    POINTS = "point limit"
    TIME = "time limit"
    NODES = "node limit"
    MEMORY = "memory limit"
    INTERRUPTED = "interrupted"
    EXHAUSTED = "refinement exhausted"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Decided:
    """Masses that are proved: each a lower bound of the true mass of its kind, so float sums are rounded down.

    fair: confident and not a counterexample; unfair: counterexamples; low: not confident. The rest is undecided.
    """

    fair: Fraction | float = Fraction(0)
    unfair: Fraction | float = Fraction(0)
    low: Fraction | float = Fraction(0)

    @property
    def undecided(self) -> Fraction:
        """The mass about which nothing is proved yet."""
        return max(1 - Fraction(self.fair) - Fraction(self.unfair) - Fraction(self.low), Fraction(0))

    def lowered(self, by: Fraction) -> Decided:
        """What is proved if each mass is off by less than so much."""
        return (
            self
            if not by
            else Decided(*(max(Fraction(m) - by, Fraction(0)) for m in (self.fair, self.unfair, self.low)))
        )

    def measure(self) -> tuple[Fraction, Fraction] | None:
        """Bounds on M = 1 - |X_unfair| / |X_kappa| (semantics.md, 'Any-time bounds'); None if X_kappa is proved empty.

        Both bounds only widen when one of the three masses is lowered, so rounding the masses down keeps them true.
        """
        confident = 1 - Fraction(self.low)
        if confident <= 0:
            return None
        lower = Fraction(self.fair) / confident
        return lower, max(1 - Fraction(self.unfair) / confident, lower)


def known_at_first(grid: AnyGrid) -> Decided:
    """What is proved before a search: what rules forbid counts as not confident."""
    return Decided(low=grid.forbidden_mass) if grid.forbidden else Decided()


@dataclass(frozen=True)
class Statistical:
    """An interval that holds with the stated confidence, at all times at once, and the draws behind it.

    `unknown` points were given up; they count as unfair for `lower` and as fair for `upper`.
    """

    lower: float
    upper: float
    confidence: float
    points: int
    fair: int
    unfair: int
    low: int
    unknown: int
    seed: int

    @property
    def width(self) -> float:
        return self.upper - self.lower

    def to_json(self) -> dict[str, Any]:
        """The interval as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Limits:
    """When to stop. Work limits are counted as well as timed, so that a run can be repeated exactly."""

    time_limit: float | None = None
    gap: float = 0.0
    node_limit: int | None = None
    memory_limit: int | None = None
    """Bytes; None is half of the machine."""
    workers: int = 1
    require: Fraction | None = None
    """Stop once the measure is proved to be at least this, or below."""


class OpenBoxes(Protocol):
    """What a search has left open, for whoever draws from it."""

    def masses(self) -> FloatArray:
        """The mass of every open box."""
        ...

    def boxes(self, at: npt.NDArray[np.int64]) -> BoxArray:
        """Some of the boxes, by their place in `masses`."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What an engine ends with."""

    decided: Decided
    status: Status
    rounding_ambiguous: float | None = None
    details: dict[str, Any] = field(default_factory=dict)
    statistical: Statistical | None = None
    open: OpenBoxes | None = None
    """The boxes that are still open, where the engine has such."""
    outside: Decided | None = None
    """What is proved outside the open boxes, where `decided` also counts what is proved inside some of them."""


class Watch:
    """The clock of a run: takes proved masses, keeps the trace, and says when to stop."""

    def __init__(self, limits: Limits, progress: Callable[[Progress], None] | None = None):
        self.limits = limits
        self.started = time.perf_counter()
        self.earlier = 0.0
        """Seconds of earlier runs that this one continues."""
        self.trace: list[tuple[float, float, float]] = []
        self._progress = progress
        self._share = 1.0

    @property
    def seconds(self) -> float:
        """Of this run and of those that it continues."""
        return time.perf_counter() - self.started + self.earlier

    @property
    def seconds_left(self) -> float:
        """Of the time limit, which is for one run: the same command, repeated, goes on."""
        limit = self.limits.time_limit
        return float("inf") if limit is None else limit * self._share - (self.seconds - self.earlier)

    def resume(self, seconds: float, trace: Iterable[tuple[float, float, float]]) -> None:
        """Go on from where an earlier run was."""
        self.earlier = seconds
        self.trace = list(trace)

    @contextmanager
    def shortened(self, share: float) -> Iterator[None]:
        """Inside, time is up after this share of the time limit: the rest is kept for what comes behind."""
        self._share = share
        try:
            yield
        finally:
            self._share = 1.0

    def report(
        self,
        decided: Decided,
        *,
        nodes: int = 0,
        open_boxes: int = 0,
        statistical: tuple[float, float, float] | None = None,
    ) -> Status | None:
        """Record the state; the reason to stop if there is one.

        `statistical` (lower, upper, confidence) is shown, and no proof.
        """
        ends = decided.measure()
        lower, upper = (0.0, 1.0) if ends is None else (down(ends[0]), min(up(ends[1]), 1.0))
        if self.trace:  # bounds never move apart, even by the rounding of a ratio
            lower, upper = max(lower, self.trace[-1][1]), min(upper, self.trace[-1][2])
        self.trace.append((self.seconds, lower, upper))
        if self._progress is not None:
            share = float(1 - decided.undecided)
            self._progress(Progress(self.seconds, lower, upper, share, nodes, open_boxes, statistical))
        if upper - lower <= self.limits.gap and self.limits.gap > 0:
            return Status.GAP
        level = self.limits.require
        if level is not None and ends is not None and (ends[0] >= level or ends[1] < level):
            return Status.REQUIREMENT
        if self.seconds_left <= 0:
            return Status.TIME
        if self.limits.node_limit is not None and nodes >= self.limits.node_limit:
            return Status.NODES
        return None


@dataclass(frozen=True)
class Progress:
    """A moment of a run, for display."""

    seconds: float
    lower: float
    upper: float
    decided: float
    nodes: int
    open_boxes: int
    statistical: tuple[float, float, float] | None = None
    """The interval so far and its confidence, where the engine draws points; `nodes` are the points then."""
    what: str = "measure"
    """What the bounds are of."""


# --- what may go with a run ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Closed:
    """The parts of a batch that are decided, one by one. Together with the open boxes they are the batch."""

    boxes: BoxArray
    """box x axis x word: the cells that each closed box holds"""
    masses: FloatArray
    """box x [fair, unfair, low]: floats, each within the run's rounding bound of the exact mass"""
    how: npt.NDArray[np.int8]
    """BOUNDS, COUNTED or POINT"""


class Observer(Protocol):
    """Sees all boxes that a search closes: regions, certificates and profiles are observers of the one event stream."""

    def begin(self, problem: Any, roots: BoxArray) -> None:
        """The search is about to start from the root boxes; `problem` says what the axes and cells are."""
        ...

    def closed(self, parts: Closed) -> None:
        """Some boxes were closed. Called under the driver's lock, from any thread, in batches; to be quick."""
        ...


@dataclass(frozen=True, eq=False)
class Reply:
    """What became of a batch: masses of its parts that are decided, and the boxes that are still open.

    Batch = decided parts + open boxes, without overlap: no point is lost, none is counted twice.
    """

    fair: float
    unfair: float
    low: float
    ambiguous: float
    boxes: BoxArray
    """box x axis x word: the cells that each open box holds"""
    masses: FloatArray
    costs: FloatArray
    """how expensive each open box is expected to be, in the worker's own unit"""
    nodes: int
    finished: int = 0
    exact: int = 0
    """how many points had to be evaluated with Python's integers"""
    closed: Closed | None = None
    """the decided parts one by one, if the worker was asked to keep them"""
    events: npt.NDArray[np.int32] | None = None
    """how the batch was taken apart, if the worker was asked for it and can say: for each box of the batch the search
    below it in preorder, yes side first; the cut of a split, or CLOSED_NEXT, OPENED_NEXT, POINT_NEXT: the next of the
    closed boxes, of the open boxes, of the closed boxes that are points (these come last)"""


Masses = tuple[float, ...]  # fair, unfair, low
# A queue entry: score, serial number, mass, the box's bytes. The serial number is the box's name for its whole life.
Entry = tuple[float, int, float, bytes]


class Recorder(Protocol):
    """Sees how every batch was taken apart, in an order in which a box is opened before it is taken."""

    def about(self, problem: Any) -> None:
        """What the axes, cells and cuts are."""
        ...

    def begin(self, mark: int | None) -> None:
        """The search starts from the roots (named 0, 1, ...), or goes on from where `mark` was called."""
        ...

    def record(self, taken: Sequence[int], reply: Reply, opened: Sequence[int]) -> None:
        """The boxes `taken` were replaced by the reply's closed boxes and the open ones, which have the names `opened`.

        Called under the driver's lock, from any thread; to be quick.
        """
        ...

    def mark(self) -> int:
        """Called under the lock when a state is saved: what brings the record back to this moment."""
        ...


@dataclass(frozen=True, eq=False)
class Saved:
    """A run at one moment: the sums of all that is settled, and all that is not. Batches that are out count as open."""

    sums: dict[str, tuple[float, ...]]
    """the parts of each ExactSum"""
    counts: dict[str, int]
    heap: list[Entry]
    stack: list[Entry]
    record: int = 0
    """what the recorder's `mark` gave"""
    proved: Masses = (0.0, 0.0, 0.0)
    """what was proved so far in all, of each kind, where bounds inside open boxes have said more than the sums"""


class Keeper(Protocol):
    """Keeps the state of a run on disk."""

    @property
    def seconds_left(self) -> float:
        """Until the state should be saved again."""
        ...

    def save(self, saved: Saved, watch: Watch) -> None: ...

    def restore(self, entry_bytes: int, watch: Watch) -> Saved | None:
        """The state to go on from, if there is one."""
        ...


@dataclass(frozen=True)
class Companions:
    """What goes with a run beside the question: who is shown its boxes, where its state is kept, where it works."""

    observers: tuple[Observer, ...] = ()
    """Are shown every box that the run closes."""
    recorder: Recorder | None = None
    """Writes the proof."""
    keeper: Keeper | None = None
    """Keeps the state, so that the run can go on after a stop."""
    cluster: Any = None
    """A Dask client: the processes behind it do the work."""
    roots: Callable[[Any], BoxArray] | None = None
    """Disjoint boxes of the compiled problem to start from; None is all of the space."""


ALONE = Companions()


class Capability(Enum):
    """What an engine can do beyond the plain question; `refuse` (refusals.py) says no to the rest."""

    MANY_CLASSES = "models with three classes and more"
    OBSERVERS = "regions from its own search"
    CHECKPOINT = "checkpoints"
    CERTIFICATE = "certificates"
    CLUSTER = "a Dask cluster"
    PARTNERS = "monotonicity, scores and bounded changes"
    RULES = "spaces with rules"


class Engine(Protocol):
    """What every engine provides. Its constructor takes its options, an instance of `Options`."""

    name: ClassVar[str]
    Options: ClassVar[type]
    capabilities: ClassVar[frozenset[Capability]]

    def run(self, grid: AnyGrid, limits: Limits, watch: Watch, companions: Companions = ALONE) -> Outcome:
        """Answer: report proved masses to the watch, stop when it says so, and return what is proved by then.

        It is given only companions and grids that its capabilities allow.
        """
        ...
