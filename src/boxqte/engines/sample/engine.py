"""The engines `sample` (draws only) and `auto` (certain bounds first, draws from what they leave open)."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from boxqte.engines.kinds import FAIR, LOW, UNFAIR, UNKNOWN
from boxqte.engines.point import point_decider
from boxqte.engines.protocol import (
    ALONE,
    Capability,
    Companions,
    Decided,
    Limits,
    Outcome,
    Statistical,
    Status,
    Watch,
    known_at_first,
)
from boxqte.engines.sample import sequence
from boxqte.engines.sample.draws import Stratum, WholeSpace, strata_draws
from boxqte.errors import EngineError
from boxqte.exact import down, up
from boxqte.questions.grid import AnyGrid

PILOT = 1000
PILOT_SHARE = 64  # the pilot is at least this part of all draws that are expected
FIRST_ROUND = 256
ROUND_SECONDS = 0.4
LARGEST_ROUND = 1 << 18
POINTS = 1_000_000  # if nothing else ends the draws
DRAWING_ERROR = (
    1e-11  # more than float masses and cumulative sums can shift the share of any set of inputs, and so much
)
CELL_ERROR = 1e-15  # more a cell: an end of a cell is off by at most two units in the last place of 1


@dataclass(frozen=True)
class SampleOptions:
    """Options of the statistical engine."""

    confidence: float = 0.999999
    """The probability with which the statistical interval holds, at all times at once."""
    seed: int = 0
    """Of the random draws; the same seed and limits that count (not seconds) give the same draws."""
    points: int | None = None
    """The most points that are drawn; none: as many as the gap or the time limit takes, 1,000,000 without either."""
    budget: int = 100_000_000
    """Give up on a point after about so many steps, of a few ns each; such points count against both ends."""

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise EngineError(f"confidence: must be at least 0.5 and below 1, found {self.confidence}")
        for name in ("points", "budget"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise EngineError(f"engine 'sample': option '{name}' must be at least 1, found {getattr(self, name)}")
        if self.seed < 0:
            raise EngineError(f"engine 'sample': option 'seed' must be at least 0, found {self.seed}")


class Sample:
    """Points drawn from the whole space, each decided exactly: an interval that holds with the stated confidence."""

    name = "sample"
    Options = SampleOptions
    capabilities = frozenset({Capability.MANY_CLASSES, Capability.PARTNERS, Capability.RULES})

    def __init__(self, options: SampleOptions | None = None):
        self.options = options or SampleOptions()

    def run(self, grid: AnyGrid, limits: Limits, watch: Watch, companions: Companions = ALONE) -> Outcome:
        whole = [Stratum(Fraction(1), grid, WholeSpace(), ())]
        return sample(grid, whole, Decided(), limits, watch, self.options, certain=known_at_first(grid))


def sample(
    grid: AnyGrid,
    strata: Sequence[Stratum],
    decided: Decided,
    limits: Limits,
    watch: Watch,
    options: SampleOptions,
    certain: Decided | None = None,
) -> Outcome:
    """Draw from the boxes of the strata until the interval is as short as `limits.gap`, or a limit is met.

    `decided` is proved outside of the boxes; `certain` in all, if that is more. All strata have the cells of the grid.
    """
    certain = certain or decided
    draws = strata_draws(strata, options.seed, workers=limits.workers)
    decider = point_decider(grid)
    cells = sum(len(axis.refined) for axis in grid.axes)
    error = DRAWING_ERROR + cells * CELL_ERROR
    low_possible = grid.low_possible or bool(grid.forbidden)  # what is forbidden is drawn, and counts as low
    run = _Run(decided, certain, draws.mass, error, options, low_possible=low_possible)
    most = _most_points(limits, options)
    size, status, started, fastest = min(FIRST_ROUND, most), None, time.perf_counter(), 0.0
    try:
        while status is None:
            begun = time.perf_counter()
            verdict = decider.decide(draws.round(size), budget=options.budget, workers=limits.workers).verdict
            run.add([int(np.count_nonzero(verdict == kind)) for kind in (FAIR, UNFAIR, LOW, UNKNOWN)])
            now = time.perf_counter()
            fastest = max(fastest, size / max(now - begun, 1e-9))
            if run.priors is None and run.drawn >= min(PILOT, most / 10):
                run.tune(min(most - run.drawn, fastest * watch.seconds_left), limits.gap)
            status = run.status(limits.gap, most) or watch.report(
                certain, nodes=run.drawn, statistical=(run.lower, run.upper, options.confidence)
            )
            if status is Status.NODES:
                status = Status.POINTS
            fits: float = LARGEST_ROUND
            if limits.time_limit is not None:  # otherwise rounds are the same on every machine
                fits = size / max(now - begun, 1e-9) * min(ROUND_SECONDS, max(watch.seconds_left, 0.0) / 2)
            size = max(int(min(fits, LARGEST_ROUND, 4 * size, most - run.drawn)), 1)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    seconds = time.perf_counter() - started
    details = {"points": run.drawn, "sampling_seconds": round(seconds, 3)}
    return Outcome(certain, status or Status.INTERRUPTED, None, details, statistical=run.result(options))


def _most_points(limits: Limits, options: SampleOptions) -> int:
    """Where the draws end at the latest."""
    counted = [n for n in (options.points, limits.node_limit) if n is not None]
    if counted:
        return min(counted)
    return POINTS if limits.time_limit is None and limits.gap <= 0 else sys.maxsize


class _Run:
    """The draws so far and what they say. The first thousand or so only set the prior, so that it is no hindsight.

    Points on which the decider gave up count as unfair for the lower end and as fair for the upper end: two sequences,
    each with half of the allowed probability of error.
    """

    def __init__(
        self, decided: Decided, certain: Decided, mass: float, error: float, options: SampleOptions, low_possible: bool
    ):
        undecided = float(decided.undecided)
        rest = max(undecided - mass, 0.0) + error
        self.proved = sequence.Proved(down(Fraction(decided.fair)), down(Fraction(decided.unfair)), mass, rest)
        self.alpha = (1 - options.confidence) / 2
        self.low_possible = low_possible
        self.pilot = [0, 0, 0, 0]
        self.counts = [0, 0, 0, 0]
        self.priors: tuple[sequence.Prior, sequence.Prior] | None = None
        ends = certain.measure()
        self.lower, self.upper = (0.0, 1.0) if ends is None else (down(ends[0]), up(ends[1]))

    @property
    def drawn(self) -> int:
        return sum(self.pilot) + sum(self.counts)

    def add(self, kinds: list[int]) -> None:
        if self.priors is None:
            self.pilot = [a + b for a, b in zip(self.pilot, kinds)]
            return
        self.counts = [a + b for a, b in zip(self.counts, kinds)]
        for prior, counts, end in zip(self.priors, labelled(self.counts), (0, 1)):
            found = sequence.interval(counts, prior, self.proved, self.alpha)[end]
            if end == 0:  # a confidence sequence holds at all times at once: ends never move apart
                self.lower = max(self.lower, min(found, self.upper))
            else:
                self.upper = min(self.upper, max(found, self.lower))

    def tune(self, affordable: float, gap: float) -> None:
        """Choose the priors for the number of draws that the gap will take, or that there is time for, once the pilot
        is long enough for so many."""
        expected = affordable
        if gap > 0:
            fair, unfair = ((self.pilot[kind] + 1) / (sum(self.pilot) + 3) for kind in (0, 1))
            share = self.proved.measure(fair, unfair) or 0.5
            confident = self.proved.fair + self.proved.unfair + self.proved.open * (fair + unfair)
            mean = fair * (1 - share) - unfair * share
            variance = fair * (1 - share) ** 2 + unfair * share**2 - mean**2
            scale = self.proved.open / confident
            expected = min(expected, 2.4 * math.log(1 / self.alpha) * variance * (2 * scale / gap) ** 2)
        if expected > PILOT_SHARE * self.drawn:  # a prior is as good as its pilot is long
            return
        pilots = labelled(self.pilot)
        self.priors = (
            sequence.tuned_prior(pilots[0], expected, self.alpha, self.low_possible),
            sequence.tuned_prior(pilots[1], expected, self.alpha, self.low_possible),
        )

    def status(self, gap: float, most: float) -> Status | None:
        if gap > 0 and self.upper - self.lower <= gap:
            return Status.CONFIDENT_GAP
        return Status.POINTS if self.drawn >= most else None

    def result(self, options: SampleOptions) -> Statistical:
        fair, unfair, low, unknown = (a + b for a, b in zip(self.pilot, self.counts))
        return Statistical(
            self.lower, self.upper, options.confidence, self.drawn, fair, unfair, low, unknown, options.seed
        )


def labelled(kinds: list[int]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Fair, unfair and low draws, with the unknown ones as unfair, and as fair."""
    fair, unfair, low, unknown = kinds
    return (fair, unfair + unknown, low), (fair + unknown, unfair, low)
