"""The searches behind group rates, and what follows from them: bounds on rates, on their differences and on their ratios.

Each group is counted by itself. Where time ends before that is done, some of it is kept for comparing groups: two groups
differ only where their margins have different signs, and that is counted without the rates. So a difference can be known
far better than the two rates it lies between.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

from boxqte.answers.certificate import CertificateWriter, emptied, side
from boxqte.answers.result import Bounds
from boxqte.answers.verdict import Verdict
from boxqte.basics.budget import TimeBudget
from boxqte.engines import make_engine
from boxqte.engines.mixture import run_pieces
from boxqte.engines.protocol import ALONE, Companions, Decided, Limits, Outcome, Progress, Status, Watch
from boxqte.engines.refusals import refuse
from boxqte.engines.sample.draws import Stratum, WholeSpace
from boxqte.engines.sample.engine import SampleOptions, sample
from boxqte.errors import CertificateError, EngineError
from boxqte.exact import down, up
from boxqte.questions.combined import Combination, class_1_grid, combined_grid
from boxqte.questions.grid import Grid, binary
from boxqte.questions.pieces import Piece, pieces_of

PAIRED = 8  # up to so many groups are compared with the first one, where time ends before the rates are known
SHARE_OF_RATES = 0.7  # of the time for certain bounds, where groups may be compared afterwards
SHARE_OF_DRAWS = 0.4  # of the time limit, for draws where certain bounds are not known by then
LEAST_DRAWING = 0.02  # seconds for a group: with less, there is no interval
CONFIDENCE = 0.999999  # that all intervals hold together
OPTIONS = {"box": {"finish_limit": 4000}}  # single groups are counted a little faster so (benchmarks/rates.py)
RECORDED = {"finish_limit": 30_000}  # with a certificate: fewer boxes, which the checker is through with sooner
ENOUGH = (Status.INTERRUPTED, Status.REQUIREMENT)  # after one of these nothing more is asked

ZERO, ONE = Fraction(0), Fraction(1)


class Ends(NamedTuple):
    """A number between two rationals."""

    low: Fraction
    high: Fraction

    def bounds(self) -> Bounds:
        return Bounds(down(self.low), up(self.high))

    def meet(self, other: Ends) -> Ends:
        """What is known if both are true."""
        return Ends(max(self.low, other.low), min(self.high, other.high))


class Moment(NamedTuple):
    """What was proved at some moment of the run."""

    seconds: float
    difference: Bounds
    ratio: Bounds | None


class Known:
    """Bounds on the rate of every group, and on how much each exceeds the first; they only move closer."""

    def __init__(self, n: int):
        self.rates = [Ends(ZERO, ONE)] * n
        self.over_first = [Ends(ZERO, ZERO), *[Ends(-ONE, ONE)] * (n - 1)]

    def rate(self, i: int, ends: Ends) -> None:
        self.rates[i] = self.rates[i].meet(ends)

    def compared(self, i: int, ends: Ends) -> None:
        """Group i exceeds the first by so much: which also says something about the rates."""
        self.over_first[i] = gap = self.over_first[i].meet(ends)
        first, own = self.rates[0], self.rates[i]
        self.rate(i, Ends(first.low + gap.low, first.high + gap.high))
        self.rate(0, Ends(own.low - gap.high, own.high - gap.low))

    def difference(self, i: int, j: int) -> Ends:
        """Rate i minus rate j."""
        if i == j:
            return Ends(ZERO, ZERO)
        a, b, p, q = self.rates[i], self.rates[j], self.over_first[i], self.over_first[j]
        return Ends(a.low - b.high, a.high - b.low).meet(Ends(p.low - q.high, p.high - q.low))

    def ratio(self, i: int, j: int) -> tuple[Fraction, Fraction | None]:
        """Rate i by rate j, which is above 0: from the two rates, and as 1 + difference / rate j, whichever says more; no
        upper end while rate j may be 0."""
        if i == j:
            return ONE, ONE
        top, bottom, gap = self.rates[i], self.rates[j], self.difference(i, j)
        lows = [top.low / bottom.high]
        if bottom.low <= 0:
            return lows[0], None
        lows.append(1 + gap.low / (bottom.low if gap.low < 0 else bottom.high))
        return max(lows), min(top.high / bottom.low, 1 + gap.high / (bottom.high if gap.high < 0 else bottom.low))

    def corners(self) -> list[int]:
        """The groups that can be the largest or the smallest rate's bounds: of many, two for each end."""
        n = range(len(self.rates))
        if len(n) <= PAIRED:
            return [*n]
        ends: list[Callable[[int], Fraction]] = [lambda i: self.rates[i].low, lambda i: self.rates[i].high]
        return sorted({i for end in ends for pick in (heapq.nlargest, heapq.nsmallest) for i in pick(2, n, key=end)})

    def largest_difference(self) -> Bounds:
        """The largest rate minus the smallest: the largest of all differences."""
        at = self.corners()
        every = [self.difference(i, j) for i in at for j in at]
        return Ends(max(e.low for e in every), max(e.high for e in every)).bounds()

    def least_ratio(self) -> Bounds | None:
        """The smallest rate by the largest: the smallest of all ratios to the largest; None while all rates may be 0."""
        at = self.corners()
        every = [self._to_best(i, at) for i in at]
        known = [ends for ends in every if ends is not None]
        return Ends(min(e.low for e in known), min(e.high for e in known)).bounds() if known else None

    def ratios_to_best(self) -> list[Bounds | None]:
        """Every rate by the largest one; None while all rates may be 0."""
        at = self.corners()
        every = [self._to_best(i, at) for i in range(len(self.rates))]
        return [None if ends is None else ends.bounds() for ends in every]

    def _to_best(self, i: int, at: Sequence[int]) -> Ends | None:
        """Rate i by the largest rate, which is above 0 if this is not None."""
        sure = max(self.rates[j].low for j in at)
        if sure <= 0:
            return None
        rivals = [self.ratio(i, j) for j in {i, *at} if self.rates[j].high >= sure]
        return Ends(
            min([ONE, *(low for low, _ in rivals)]), min([ONE, *(high for _, high in rivals if high is not None)])
        )


def judged(ratio: Bounds | None, level: Fraction) -> Verdict:
    """Whether the ratio is proved to be at least so much, proved to be below, or neither."""
    if ratio is None or ratio.lower < level <= ratio.upper:
        return Verdict.UNDECIDED
    return Verdict.HOLDS if ratio.lower >= level else Verdict.VIOLATED


def rates_engine(name: str) -> str:
    """The engine that counts; others are refused."""
    if name not in ("auto", "box", "exhaustive"):
        raise EngineError(f"engine: rates are counted by 'box' or 'exhaustive', found {name!r}")
    return "box" if name == "auto" else name


class SearchedGroup(NamedTuple):
    """A group whose rate is counted, and what each product of the mixture has of it; the shares sum to 1."""

    combination: Combination
    shares: tuple[Fraction, ...] = (ONE,)


class _GroupWatch(Watch):
    """Passes on what a run proves as it goes."""

    def __init__(self, limits: Limits, hear: Callable[[Decided, int, int], Status | None]):
        super().__init__(limits)
        self._hear = hear

    def report(
        self,
        decided: Decided,
        *,
        nodes: int = 0,
        open_boxes: int = 0,
        statistical: tuple[float, float, float] | None = None,
    ) -> Status | None:
        stop = super().report(decided, nodes=nodes, open_boxes=open_boxes, statistical=statistical)
        return self._hear(decided, nodes, open_boxes) or stop


@dataclass(eq=False)
class RateSearch:
    """The runs of an engine that the rates need, under one time limit."""

    grid: Grid
    groups: Sequence[SearchedGroup]
    engine: str
    limits: Limits
    budget: TimeBudget
    level: Fraction | None = None
    """Stop once the ratio is proved to be at least this, or below."""
    progress: Callable[[Progress], None] | None = None
    certificate: Path | None = None

    def __post_init__(self) -> None:
        self.engine = rates_engine(self.engine)
        self.known = Known(len(self.groups))
        self.statuses: list[Status] = []
        self.ambiguous: list[float | None] = []
        self.trace: list[Moment] = []
        self.likely: Known | None = None
        """What follows with draws, where certain bounds are not known in time: it holds with CONFIDENCE."""
        self._nodes = 0
        self._products = pieces_of(self.grid)
        self._turns = self.budget

    @property
    def status(self) -> Status:
        """Why it ended: converged only if every group is."""
        return next((status for status in self.statuses if status is not Status.CONVERGED), Status.CONVERGED)

    @property
    def rounding_ambiguous(self) -> float | None:
        """The largest of all groups; None if one of them was not asked, or not by an engine that knows it."""
        known = [mass for mass in self.ambiguous if mass is not None]
        return max(known) if len(known) == len(self.groups) else None

    def run(self) -> None:
        """Count every group; Ctrl-C ends it with what is proved."""
        # In a mixture two groups differ in more than their own values, so that comparing margins says nothing of rates.
        mixed = len(self._products) > 1
        # The same holds if rules forbid some of them and not others.
        compares = 1 < len(self.groups) <= PAIRED and self.certificate is None and not mixed and not self.grid.forbidden
        search = self._part(1 - SHARE_OF_DRAWS)
        self._turns = self._part((1 - SHARE_OF_DRAWS) * (SHARE_OF_RATES if compares else 1.0))
        self._turns.questions = len(self.groups)
        if self.certificate is not None and mixed:
            raise CertificateError("certificate: there are none of rates over a mixture of products; leave it out")
        if self.certificate is not None:
            refuse(self.engine, self.grid, Companions(recorder=CertificateWriter(self.certificate, self.grid)))
            emptied(self.certificate)
        try:
            for i in range(len(self.groups)):
                self._count(i)
            if compares and self.status is Status.TIME:
                self._turns = search
                self._turns.questions = 2 * (len(self.groups) - 1)
                for i in range(1, len(self.groups)):
                    self._compare(i)
            if self.status in (Status.TIME, Status.MEMORY, Status.NODES) and self.budget.seconds is not None:
                self._draw()
        except KeyboardInterrupt:  # between two runs: an engine ends by itself
            self.statuses.append(Status.INTERRUPTED)

    def _draw(self) -> None:
        """Random x of every group whose rate is open, each decided exactly."""
        open_ = [i for i, ends in enumerate(self.known.rates) if ends.low < ends.high]
        likely = copy.deepcopy(self.known)
        self.budget.questions = len(open_)
        options = SampleOptions(confidence=1 - (1 - CONFIDENCE) / len(open_)) if open_ else SampleOptions()
        for i in open_:
            seconds = self.budget.next_share()
            if seconds is None or seconds < LEAST_DRAWING:
                break  # the others keep their certain bounds
            limits = replace(self.limits, time_limit=seconds, node_limit=None)
            pieces = self._group(self.groups[i])
            strata = [Stratum(weight, grid, WholeSpace(), ()) for weight, grid in pieces]
            ends = self.known.rates[i]
            certain = Decided(1 - ends.high, ends.low)
            found = sample(
                pieces[0].grid, strata, Decided(), limits, Watch(limits), options, certain=certain
            ).statistical
            assert found is not None
            likely.rate(i, Ends(1 - Fraction(found.upper), 1 - Fraction(found.lower)))
            self.likely = likely

    def _part(self, share: float) -> TimeBudget:
        """A part of the time, from now on."""
        return TimeBudget(None if self.budget.seconds is None else share * max(self.budget.left, 0.0))

    def _count(self, i: int) -> None:
        """The rate of a group, with its part of the certificate."""
        if self.certificate is None:
            pieces = self._group(self.groups[i])
            self.ambiguous.append(self._run(pieces, partial(self.known.rate, i)).rounding_ambiguous)
            return
        group = self.groups[i].combination
        grid = class_1_grid(self.grid, group)
        cells = zip((a for a, axis in enumerate(self.grid.axes) if axis.sensitive), group.cells)
        writer = CertificateWriter(self.certificate, grid, [side(self.grid, a, 1 << cell) for a, cell in cells])
        try:
            pieces = [Piece(ONE, grid)]
            outcome = self._run(pieces, partial(self.known.rate, i), Companions(recorder=writer))
            writer.finish(outcome.decided)
        finally:
            writer.close()
        self.ambiguous.append(outcome.rounding_ambiguous)

    def _group(self, group: SearchedGroup) -> list[Piece]:
        """The x of a group: P(x | S = s) is a mixture again, with weights w_k m_k,S(s) (questions.md, part 5)."""
        return [
            Piece(share, class_1_grid(binary(piece.grid), group.combination))
            for share, piece in zip(group.shares, self._products)
            if share
        ]

    def _compare(self, i: int) -> None:
        """Which x have class 1 in group i and class 0 in the first, and the other way round."""
        pair = combined_grid(self.grid, [self.groups[i].combination, self.groups[0].combination])
        ends = {1: Ends(ZERO, ONE), -1: Ends(ZERO, ONE)}

        def hear(counted: int, found: Ends) -> None:
            ends[counted] = ends[counted].meet(found)
            self.known.compared(i, Ends(ends[1].low - ends[-1].high, ends[1].high - ends[-1].low))

        for counted in (1, -1):
            counting = replace(pair, thresholds=replace(pair.thresholds, counted=counted))
            self._run([Piece(ONE, counting)], partial(hear, counted))

    def _run(
        self,
        pieces: Sequence[Piece],
        learn: Callable[[Ends], None],
        companions: Companions = ALONE,
    ) -> Outcome:
        """One run: its counterexamples are counted, all inputs are confident. What is proved is used as it is proved."""
        for piece in pieces:
            refuse(self.engine, piece.grid, companions)
        seconds = self._turns.next_share()
        if self.statuses and self.statuses[-1] in ENOUGH:
            self.statuses.append(self.statuses[-1])
            return Outcome(Decided(), self.statuses[-1])

        error = pieces[0].grid.mass_error  # 0 in a mixture
        forbidden = sum((piece.weight * piece.grid.forbidden_mass for piece in pieces), Fraction(0))
        allowed = min(1 - forbidden + error, ONE)

        def hear(decided: Decided, nodes: int, open_boxes: int) -> Status | None:
            proved = decided.lowered(error)
            learn(Ends(Fraction(proved.unfair) / allowed, 1 - Fraction(proved.fair) / allowed))
            return self._moment(float(1 - decided.undecided), nodes, open_boxes)

        limits = replace(self.limits, time_limit=seconds)
        engine = make_engine(self.engine, OPTIONS.get(self.engine) if companions.recorder is None else RECORDED)
        outcome = run_pieces(engine, pieces, limits, _GroupWatch(limits, hear), [companions] * len(pieces)).whole
        self._nodes += outcome.details.get("nodes", 0)
        enough = hear(outcome.decided, 0, 0)
        last = len(self.statuses) == len(self.groups) - 1
        if enough is not None and outcome.status is Status.CONVERGED and not last:
            self.statuses.append(enough)  # the groups that are left are not asked
        else:
            self.statuses.append(outcome.status)
        return outcome

    def _moment(self, decided: float, nodes: int, open_boxes: int) -> Status | None:
        """Keep and show what follows from all that is proved so far; REQUIREMENT if that is enough."""
        moment = Moment(self.budget.used, self.known.largest_difference(), self.known.least_ratio())
        self.trace.append(moment)
        if self.progress is not None:
            ends = moment.ratio or Bounds(0.0, 1.0)
            share = min((len(self.statuses) + decided) / len(self.groups), 1.0)  # pairs come behind all groups
            self.progress(
                Progress(moment.seconds, ends.lower, ends.upper, share, self._nodes + nodes, open_boxes, what="ratio")
            )
        if self.level is None or judged(moment.ratio, self.level) is Verdict.UNDECIDED:
            return None
        return Status.REQUIREMENT
