"""Engines: one protocol, several ways to the same number. A new engine is one file or folder and one line in ENGINES.

An engine is a class whose constructor takes its options (a frozen dataclass `Options`) and whose `run` takes a Grid,
the limits and a Watch. It reports proved masses to the watch as it goes, stops when the watch says so, and returns an
Outcome. Whatever stops it, what it has reported stays true.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from boxqte.checks import did_you_mean
from boxqte.errors import EngineError
from boxqte.grid import Grid
from boxqte.result import Decided, Statistical, Status, down, up

if TYPE_CHECKING:
    from boxqte.engines.box.driver import OpenBoxes

# name -> module:class
ENGINES: dict[str, str] = {
    "auto": "boxqte.engines.sample.engine:Auto",
    "box": "boxqte.engines.box.engine:Box",
    "exhaustive": "boxqte.engines.exhaustive:Exhaustive",
    "sample": "boxqte.engines.sample.engine:Sample",
    "cegar": "boxqte.engines.cegar.engine:Cegar",
    "smt": "boxqte.engines.smt.engine:Smt",
}
DEFAULT_ENGINE = "auto"


@dataclass(frozen=True)
class Limits:
    """When to stop. Work limits are counted as well as timed, so that a run can be repeated exactly."""

    time_limit: float | None = None
    gap: float = 0.0
    node_limit: int | None = None
    memory_limit: int | None = None
    """Bytes; None is half of the machine."""
    workers: int = 1
    threshold: Fraction | None = None
    """Stop once the measure is proved to be at least this, or below."""


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


class Engine(Protocol):
    """What every engine provides."""

    name: str

    def run(self, grid: Grid, limits: Limits, watch: Watch) -> Outcome: ...


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
        level = self.limits.threshold
        if level is not None and ends is not None and (ends[0] >= level or ends[1] < level):
            return Status.THRESHOLD
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


def engine_class(name: str) -> Any:
    """The class of the engine of that name."""
    if not isinstance(name, str) or name not in ENGINES:
        raise EngineError(f"engine: '{name}' is unknown{did_you_mean(name, ENGINES)}; engines are {', '.join(ENGINES)}")
    module, _, cls = ENGINES[name].partition(":")
    return getattr(importlib.import_module(module), cls)


def make_engine(name: str, options: Mapping[str, Any] | None = None) -> Engine:
    """The engine of that name with the given options; errors name what would be accepted."""
    engine = engine_class(name)
    known = {f.name: f for f in fields(engine.Options)}
    for key in options or {}:
        if key not in known:
            meant = did_you_mean(key, known)
            raise EngineError(
                f"engine '{name}': option '{key}' is unknown{meant}; options are {', '.join(known) or 'none'}"
            )
    made: Engine = engine(engine.Options(**(options or {})))
    return made
