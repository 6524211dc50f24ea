"""One question about a mixture of products: an engine's runs on the products, under one clock and one set of limits.

Masses enter linearly, so what is proved for the products adds up by their weights at any moment. The products are searched
one after the other, each with a share of the time; what is then left goes to those with the most undecided mass, which go on
where they stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from boxqte.basics.machine import half_of_memory
from boxqte.engines.auto import Auto
from boxqte.engines.box.problem import used_axes
from boxqte.engines.protocol import (
    ALONE,
    Capability,
    Companions,
    Decided,
    Engine,
    Limits,
    Outcome,
    Saved,
    Status,
    Watch,
    known_at_first,
)
from boxqte.engines.sample.draws import Stratum, WholeSpace
from boxqte.engines.sample.engine import Sample, SampleOptions, sample
from boxqte.errors import EngineError
from boxqte.exact import up
from boxqte.questions.pieces import Piece

LEAST_TURN = 0.05  # seconds: with less left, nobody gets a second turn
SUMMED = ("nodes", "finished", "exact_points", "calls", "open_boxes", "enclosed_boxes", "queue_bytes", "cells")
FINAL = (Status.GAP, Status.REQUIREMENT, Status.INTERRUPTED)  # after one of these nothing more is asked


class Answered(NamedTuple):
    """The outcome of the whole, and those of its pieces."""

    whole: Outcome
    pieces: list[Outcome]


def run_pieces(
    engine: Engine, pieces: Sequence[Piece], limits: Limits, watch: Watch, beside: Sequence[Companions] = ()
) -> Answered:
    """An engine's answer to a question that has been taken apart; `beside` goes with each of its pieces."""
    beside = beside or [ALONE] * len(pieces)
    if len(pieces) == 1:
        outcome = engine.run(pieces[0].grid, limits, watch, beside[0])
        return Answered(outcome, [outcome])
    if isinstance(engine, Sample):
        nothing = [Outcome(Decided(), Status.POINTS) for _ in pieces]
        return Answered(_drawn(pieces, nothing, Decided(), limits, watch, engine.options, _at_first(pieces)), nothing)
    if not isinstance(engine, Auto):
        return _Run(engine, pieces, limits, watch, beside).answered()
    if limits.time_limit is None:
        return _Run(engine.box, pieces, limits, watch, beside).answered()
    try:
        with watch.shortened(engine.options.exact_share):
            certain = _Run(engine.box, pieces, limits, watch, beside).answered()
    except EngineError as refusal:  # the question is beyond the exact engine: draws alone, and say so
        nothing = [Outcome(Decided(), Status.POINTS) for _ in pieces]
        drawn = _drawn(pieces, nothing, Decided(), limits, watch, engine.options, _at_first(pieces))
        return Answered(replace(drawn, details=drawn.details | {"exact_engine": str(refusal)}), nothing)
    whole = certain.whole
    if whole.status not in (Status.TIME, Status.MEMORY):
        return certain
    drawn = _drawn(pieces, certain.pieces, whole.outside or whole.decided, limits, watch, engine.options, whole.decided)
    both = replace(drawn, rounding_ambiguous=whole.rounding_ambiguous, details=whole.details | drawn.details)
    return Answered(both, certain.pieces)


def _drawn(
    pieces: Sequence[Piece],
    outcomes: Sequence[Outcome],
    outside: Decided,
    limits: Limits,
    watch: Watch,
    options: SampleOptions,
    certain: Decided | None = None,
) -> Outcome:
    """Draws from what the outcomes leave open: some boxes, everything where nothing was begun, nothing where all is done."""
    strata = []
    for (weight, grid), outcome in zip(pieces, outcomes):
        if outcome.open is not None:
            strata.append(Stratum(weight, grid, outcome.open, tuple(used_axes(grid))))
        elif outcome.status is not Status.CONVERGED:
            strata.append(Stratum(weight, grid, WholeSpace(), ()))
    return sample(pieces[0].grid, strata, outside, limits, watch, options, certain=certain)


def _at_first(pieces: Sequence[Piece]) -> Decided:
    """What is proved of the whole before any search."""
    return summed(pieces, [known_at_first(piece.grid) for piece in pieces])


def summed(pieces: Sequence[Piece], masses: Iterable[Decided]) -> Decided:
    """What is proved of the whole."""
    total = [Fraction(0)] * 3
    for (weight, _), own in zip(pieces, masses):
        for i, mass in enumerate((own.fair, own.unfair, own.low)):
            total[i] += weight * Fraction(mass)
    return Decided(*total)


@dataclass
class _Memory:
    """Keeps the state of one search between its turns (a Keeper)."""

    saved: Saved | None = None
    seconds_left: float = math.inf

    def save(self, saved: Saved, watch: Watch) -> None:
        self.saved = saved

    def restore(self, entry_bytes: int, watch: Watch) -> Saved | None:
        return self.saved


class _PieceWatch(Watch):
    """The clock of one piece: what it reports is added to what is known of the others."""

    def __init__(self, run: _Run, at: int, limits: Limits):
        super().__init__(limits)
        self.run, self.at = run, at

    def report(
        self,
        decided: Decided,
        *,
        nodes: int = 0,
        open_boxes: int = 0,
        statistical: tuple[float, float, float] | None = None,
    ) -> Status | None:
        own = super().report(decided, nodes=nodes, open_boxes=open_boxes, statistical=statistical)
        return self.run.learn(self.at, decided, nodes, open_boxes) or own


@dataclass
class _Run:
    """The turns of the pieces."""

    engine: Engine
    pieces: Sequence[Piece]
    limits: Limits
    watch: Watch
    beside: Sequence[Companions]
    outcomes: list[Outcome] = field(init=False)
    stop: Status | None = None
    """Why the whole is to stop, if it is."""

    def __post_init__(self) -> None:
        n = len(self.pieces)
        self.outcomes = [Outcome(Decided(), Status.TIME) for _ in range(n)]
        self.proved = [known_at_first(piece.grid) for piece in self.pieces]
        self.nodes, self.open_boxes = [0] * n, [0] * n
        resumes = Capability.CHECKPOINT in self.engine.capabilities and self.pieces[0].grid.ensemble.is_binary
        resumes = resumes and all(c.recorder is None for c in self.beside)  # a record is written in one go
        kept = [c.keeper or (_Memory() if resumes else None) for c in self.beside]
        self.beside = [replace(c, keeper=keeper) for c, keeper in zip(self.beside, kept)]
        self.resumes = resumes

    def learn(self, at: int, decided: Decided, nodes: int, open_boxes: int) -> Status | None:
        """Take in what is proved of a piece; nothing that was proved once is taken back."""
        before = self.proved[at]
        kinds = ("fair", "unfair", "low")
        self.proved[at] = Decided(*(max(Fraction(getattr(before, k)), Fraction(getattr(decided, k))) for k in kinds))
        self.nodes[at], self.open_boxes[at] = max(nodes, self.nodes[at]), open_boxes
        self.stop = self.watch.report(
            summed(self.pieces, self.proved), nodes=sum(self.nodes), open_boxes=sum(self.open_boxes)
        )
        return self.stop

    def answered(self) -> Answered:
        """All turns; Ctrl-C ends them with what is proved."""
        try:
            self._turns()
        except KeyboardInterrupt:
            self.stop = Status.INTERRUPTED
        return Answered(self._whole(), self.outcomes)

    def _turns(self) -> None:
        order = sorted(range(len(self.pieces)), key=lambda k: -self.pieces[k].weight)
        left = Fraction(1)  # of the weights
        for k in order:
            if self._over():
                break
            share = float(self.pieces[k].weight / left)
            self._turn(k, self.watch.seconds_left * share, self.limits.gap / 2)
            left -= self.pieces[k].weight
        while self.resumes and not self._over():
            waiting = [k for k in order if self.outcomes[k].status in (Status.TIME, Status.GAP)]
            if not waiting or self.watch.seconds_left < LEAST_TURN:
                break
            first = max(waiting, key=lambda k: self.pieces[k].weight * self.proved[k].undecided)
            self._turn(first, self.watch.seconds_left, 0.0)

    def _over(self) -> bool:
        """Whether the whole is to stop; an earlier piece's own time may be up while there is time for others."""
        return self.stop in FINAL or self.watch.seconds_left <= 0

    def _turn(self, k: int, seconds: float, gap: float) -> None:
        weight, grid = self.pieces[k]
        nodes, memory = self.limits.node_limit, self.limits.memory_limit or half_of_memory()
        limits = replace(
            self.limits,
            time_limit=None if math.isinf(seconds) else seconds,
            gap=gap,
            node_limit=None if nodes is None else max(int(nodes * weight), 1),
            memory_limit=max(memory // len(self.pieces), 1),
            require=None,
        )
        outcome = self.engine.run(grid, limits, _PieceWatch(self, k, limits), self.beside[k])
        self.outcomes[k] = outcome
        if outcome.status is Status.INTERRUPTED:
            self.stop = Status.INTERRUPTED
            return
        stop = self.learn(k, outcome.decided, 0, 0 if outcome.open is None else self.open_boxes[k])
        if self.stop is Status.TIME and stop is Status.TIME and self.watch.seconds_left > 0:
            self.stop = None

    def _whole(self) -> Outcome:
        found = self.outcomes
        done = all(outcome.status is Status.CONVERGED for outcome in found)
        rest = [outcome.status for outcome in found if outcome.status is not Status.CONVERGED]
        status = Status.CONVERGED if done else self.stop or (Status.TIME if Status.TIME in rest else rest[0])
        known = [outcome.rounding_ambiguous for outcome in found]
        ambiguous = None
        if None not in known:
            ambiguous = up(sum((w * Fraction(mass or 0) for (w, _), mass in zip(self.pieces, known)), Fraction(0)))
        details = {
            name: sum(outcome.details[name] for outcome in found if name in outcome.details)
            for name in SUMMED
            if any(name in outcome.details for outcome in found)
        }
        return Outcome(
            summed(self.pieces, [o.decided for o in found] if done else self.proved),
            status,
            ambiguous,
            details | {"components": len(self.pieces)},
            outside=summed(self.pieces, [o.outside or (o.decided if o.open is None else Decided()) for o in found]),
        )
