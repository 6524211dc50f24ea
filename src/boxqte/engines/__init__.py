"""Engines: one protocol, several ways to the same number. A new engine is one file or folder and one line in ENGINES.

An engine is a class whose constructor takes its options (a frozen dataclass `Options`) and whose `run` takes a Grid,
the limits and a Watch. It reports proved masses to the watch as it goes, stops when the watch says so, and returns an
Outcome. Whatever stops it, what it has reported stays true.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from boxqte.errors import EngineError
from boxqte.grid import Grid
from boxqte.result import Decided, Status, down, up

# name -> module:class
ENGINES: dict[str, str] = {
    "box": "boxqte.engines.box.engine:Box",
    "exhaustive": "boxqte.engines.exhaustive:Exhaustive",
    "cegar": "boxqte.engines.cegar.engine:Cegar",
    "smt": "boxqte.engines.smt.engine:Smt",
}
DEFAULT_ENGINE = "box"


@dataclass(frozen=True)
class Limits:
    """When to stop. Work limits are counted as well as timed, so that a run can be repeated exactly."""

    time_limit: float | None = None
    gap: float = 0.0
    node_limit: int | None = None
    memory_limit: int | None = None
    """Bytes; None is half of the machine."""
    workers: int = 1


@dataclass(frozen=True)
class Outcome:
    """What an engine ends with."""

    decided: Decided
    status: Status
    rounding_ambiguous: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """What every engine provides."""

    name: str

    def run(self, grid: Grid, limits: Limits, watch: Watch) -> Outcome: ...


class Watch:
    """The clock of a run: takes proved masses, keeps the trace, and says when to stop."""

    def __init__(self, limits: Limits, progress: Callable[[Progress], None] | None = None):
        self.limits = limits
        self.started = time.perf_counter()
        self.trace: list[tuple[float, float, float]] = []
        self._progress = progress

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    @property
    def seconds_left(self) -> float:
        return float("inf") if self.limits.time_limit is None else self.limits.time_limit - self.seconds

    def report(self, decided: Decided, *, nodes: int = 0, open_boxes: int = 0) -> Status | None:
        """Record the state; the reason to stop if there is one."""
        ends = decided.measure()
        lower, upper = (0.0, 1.0) if ends is None else (down(ends[0]), min(up(ends[1]), 1.0))
        if self.trace:  # bounds never move apart, even by the rounding of a ratio
            lower, upper = max(lower, self.trace[-1][1]), min(upper, self.trace[-1][2])
        self.trace.append((self.seconds, lower, upper))
        if self._progress is not None:
            self._progress(Progress(self.seconds, lower, upper, float(1 - decided.undecided), nodes, open_boxes))
        if upper - lower <= self.limits.gap and self.limits.gap > 0:
            return Status.GAP
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


def engine_class(name: str) -> Any:
    """The class of the engine of that name."""
    if name not in ENGINES:
        raise EngineError(f"engine: '{name}' is unknown; engines are {', '.join(ENGINES)}")
    module, _, cls = ENGINES[name].partition(":")
    return getattr(importlib.import_module(module), cls)


def make_engine(name: str, options: Mapping[str, Any] | None = None) -> Engine:
    """The engine of that name with the given options; errors name what would be accepted."""
    engine = engine_class(name)
    known = {f.name: f for f in fields(engine.Options)}
    for key in options or {}:
        if key not in known:
            raise EngineError(f"engine '{name}': option '{key}' is unknown; options are {', '.join(known) or 'none'}")
    made: Engine = engine(engine.Options(**(options or {})))
    return made
