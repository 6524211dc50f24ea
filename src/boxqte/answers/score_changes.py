"""By how much the score changes with the sensitive attributes: a histogram and quantiles with certain bounds (questions.md, 2).

Every number comes from one kind of question: which share of the inputs has a partner whose score differs by more than a level
(ScoreFairness). The levels of the histogram come first; then quantiles are closed in by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from boxqte.answers.quantify import limits_of, summary
from boxqte.answers.remarks import sentences
from boxqte.answers.result import THE_SPACE, Bounds, ModelSummary, world_of
from boxqte.basics.budget import TimeBudget
from boxqte.engines import make_engine
from boxqte.engines.mixture import run_pieces
from boxqte.engines.protocol import ALONE, Limits, Progress, Status, Watch
from boxqte.engines.refusals import refuse
from boxqte.errors import PropertyError
from boxqte.exact import Number, down, fraction, plain, up
from boxqte.models.decision import Threshold, decision_text
from boxqte.models.importers import ImportedModel, load_model
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from boxqte.questions.pieces import pieces_of
from boxqte.questions.properties import Scale, ScoreFairness
from boxqte.space.space import Space, read_space

if TYPE_CHECKING:
    import pandas as pd

PROBABILITY_LEVELS = tuple(Fraction(n, 100) for n in (0, 1, 2, 5, 10, 20, 50))
LEVELS = 8  # of other scales, the largest at most half of what is possible
QUANTILES = (Fraction(1, 2), Fraction(9, 10), Fraction(99, 100))
HALVINGS = 3  # of the histogram's bin that a quantile lies in


@dataclass(frozen=True)
class Bin:
    """The share of inputs whose largest change is above `above` and at most `at_most`; None: no change at all."""

    above: Fraction | None
    at_most: Fraction
    share: Bounds


@dataclass(frozen=True)
class Quantile:
    """`share` of the inputs change by at most a number that is above `lower` (or 0) and at most `upper`."""

    share: Fraction
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class ScoreChanges:
    """The largest change of the score that exchanging sensitive values makes, over all inputs; all bounds are certain.

    Attributes
    ----------
    bins
        The histogram: first no change at all, then from level to level.
    exceeding
        For every level that was asked about, bounds on the share of inputs that change by more.
    quantiles
        Between which levels they lie; closed in further where they were asked for.
    """

    sensitive: tuple[str, ...]
    scale: Scale
    kappa: Fraction
    bins: tuple[Bin, ...]
    exceeding: dict[Fraction, Bounds]
    quantiles: tuple[Quantile, ...]
    largest_possible: float
    """No input changes by more: what the trees that test a sensitive attribute can differ by at most."""
    status: Status
    seconds: float
    model: ModelSummary
    decision: str
    space_fingerprint: str
    rounding_ambiguous: float
    """A bound on the share of inputs that the library's floating point could put to another side of some level."""
    input_rounding: float
    world: str = THE_SPACE
    """Which inputs count, and for how much."""
    remarks: tuple[str, ...] = ()
    """What the shares do not say: that no tree tests the attribute, for one."""

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    def to_frame(self) -> pd.DataFrame:
        """One row a bin: above, at_most, and bounds on the share of inputs in it."""
        import pandas as pd

        rows = [
            {
                "above": np.nan if b.above is None else float(b.above),
                "at_most": float(b.at_most),
                "lower": b.share.lower,
                "upper": b.share.upper,
            }
            for b in self.bins
        ]
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {
            "sensitive": list(self.sensitive),
            "scale": self.scale,
            "kappa": plain(self.kappa),
            "status": str(self.status),
            "guarantee": "certain bounds, rounded outward",
            "world": self.world,
            "remarks": list(self.remarks),
            "decision": self.decision,
            "bins": [
                {
                    "above": None if b.above is None else plain(b.above),
                    "at_most": plain(b.at_most),
                    "share": [b.share.lower, b.share.upper],
                }
                for b in self.bins
            ],
            "quantiles": [{"share": plain(q.share), "change": [q.lower, q.upper]} for q in self.quantiles],
            "exceeding": [{"change": plain(level), "share": [b.lower, b.upper]} for level, b in self.exceeding.items()],
            "largest_possible": self.largest_possible,
            "rounding_ambiguous": self.rounding_ambiguous,
            "input_rounding": self.input_rounding,
            "seconds": self.seconds,
            "model": {k: v for k, v in vars(self.model).items() if k != "decision"},
            "space_fingerprint": self.space_fingerprint,
        }


def score_changes(
    model: object,
    space: Space,
    sensitive: str | Iterable[str],
    *,
    scale: Scale = "probability",
    levels: Iterable[Number] | None = None,
    quantiles: Iterable[Number] | None = None,
    kappa: Number = Fraction(1, 2),
    engine: str = "box",
    time_limit: float | None = None,
    workers: int | None = None,
    memory_limit: int | None = None,
    progress: Callable[[str, float | None, Progress], None] | None = None,
    allow_pickle: bool = False,
    threshold: Threshold | None = None,
) -> ScoreChanges:
    """How much the score of an input changes at most when its sensitive values are exchanged, over all inputs.

    Parameters
    ----------
    scale
        "probability", "margin" (what the link turns into a probability), or "value", what a regressor predicts.
    levels
        The ends of the histogram's bins; 0, which separates 'no change at all', is always among them.
    quantiles
        Which shares of the inputs a quantile is wanted for, each above 0 and below 1: further levels are asked about, until it
        is known to an eighth of its bin. By default those of 0.5, 0.9 and 0.99, as far as the histogram tells.
    kappa
        Only inputs with confidence above kappa count.
    time_limit
        Seconds for everything; what is not asked by then has the bounds that the rest implies.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> found = score_changes(loan_ensemble(), loan_space(), "race", scale="margin", levels=[0, 1])
    >>> found.converged, [round(b.share.lower, 3) for b in found.bins]
    (True, [0.0, 0.76, 0.24])
    """
    budget = TimeBudget(time_limit)
    limits = limits_of(time_limit, workers=workers, memory_limit=memory_limit)
    imported, space = load_model(model, allow_pickle=allow_pickle, threshold=threshold), read_space(space)
    wanted = [_share(q) for q in (QUANTILES if quantiles is None else quantiles)]
    search = _Search(imported, space, ScoreFairness(sensitive, 0, scale, kappa), engine, limits, budget, progress)
    ends = _levels(levels, scale, search.largest)
    return search.run(ends, wanted, 0 if quantiles is None else HALVINGS)


def _share(value: Number) -> Fraction:
    share = fraction(value, PropertyError, "quantiles")
    if not 0 < share < 1:
        raise PropertyError(f"quantiles: a share must be above 0 and below 1, found {plain(share)}")
    return share


def _levels(given: Iterable[Number] | None, scale: Scale, largest: Fraction) -> list[Fraction]:
    """The ends of the bins: those given, or round numbers."""
    if given is not None:
        levels = {fraction(level, PropertyError, "levels") for level in given}
        for level in levels:
            if level < 0 or (scale == "probability" and level >= 1):
                most = "at least 0 and below 1" if scale == "probability" else "at least 0"
                raise PropertyError(f"levels: must be {most}, found {plain(level)}")
        return sorted(levels | {Fraction(0)})
    if scale == "probability":
        return list(PROBABILITY_LEVELS)
    levels = {Fraction(0)}
    if largest:
        steps = [Fraction(digit) * Fraction(10) ** power for power in _powers(largest) for digit in (5, 2, 1)]
        levels |= set([step for step in steps if step <= largest / 2][:LEVELS])
    return sorted(levels)


def _powers(largest: Fraction) -> range:
    """Exponents of ten, from that of the number downwards."""
    power = 0
    while Fraction(10) ** power > largest:
        power -= 1
    while Fraction(10) ** (power + 1) <= largest:
        power += 1
    return range(power, power - LEVELS, -1)


class _Search:
    """Levels that were asked about, and what is known of the share that changes by more, under one time limit."""

    def __init__(
        self,
        imported: ImportedModel,
        space: Space,
        question: ScoreFairness,
        engine: str,
        limits: Limits,
        budget: TimeBudget,
        progress: Callable[[str, float | None, Progress], None] | None,
    ):
        self.imported, self.space, self.question, self.engine = imported, space, question, engine
        self.limits, self.budget, self.progress = limits, budget, progress
        grid = self._grid(Fraction(0))
        for piece in pieces_of(grid):
            refuse(engine, piece.grid, ALONE)
        self.largest = _largest_change(grid, question.scale)
        self.input_rounding = grid.input_rounding
        self.remarks = sentences(grid)
        self.known: dict[Fraction, Bounds] = {self.largest: Bounds(0.0, 0.0)}
        self.status = Status.CONVERGED
        self.ambiguous = Fraction(0)

    def _grid(self, level: Fraction) -> Grid:
        q = self.question
        return build_grid(self.imported.ensemble, self.space, ScoreFairness(q.sensitive, level, q.scale, q.kappa))

    def run(self, levels: Sequence[Fraction], quantiles: Sequence[Fraction], halvings: int) -> ScoreChanges:
        asked = [level for level in levels if level < self.largest]
        self.budget.questions = len(asked) + len(quantiles) * (halvings > 0)
        for level in asked:
            self.ask(level)
        histogram = self.status
        self.budget.questions = halvings * len(quantiles)
        closed = [self.quantile(share, halvings) for share in quantiles]
        for level in levels:
            self.known.setdefault(level, Bounds(0.0, 0.0))
        ends = sorted(level for level in self.known if level in levels or level == max(self.known))
        return ScoreChanges(
            sensitive=self.question.sensitive,
            scale=self.question.scale,
            kappa=self.question.kappa,
            bins=tuple(self._bins(ends)),
            exceeding={level: self.more_than(level) for level in sorted(self.known)},
            quantiles=tuple(closed),
            largest_possible=up(self.largest),
            status=histogram,
            seconds=self.budget.used,
            model=summary(self.imported),
            decision=decision_text(self.imported.ensemble.decision) or "as the library's own predict decides",
            space_fingerprint=self.space.fingerprint(),
            rounding_ambiguous=up(min(self.ambiguous, Fraction(1))),
            input_rounding=up(self.input_rounding),
            world=world_of(self.space),
            remarks=self.remarks,
        )

    def ask(self, level: Fraction) -> bool:
        """Ask about a level that is not known; False where there is no time any more."""
        if level in self.known:
            return True
        if self.status is Status.INTERRUPTED or self.budget.left <= 0:
            if self.status is not Status.INTERRUPTED:
                self.status = Status.TIME
            return False
        limits = replace(self.limits, time_limit=self.budget.next_share())
        show = self.progress
        name = f"{self.question.scale} changes by more than {plain(level)}"
        watch = Watch(limits, None if show is None else lambda progress: show(name, limits.time_limit, progress))
        grid = self._grid(level)
        outcome = run_pieces(make_engine(self.engine), pieces_of(grid), limits, watch).whole
        if outcome.status is not Status.CONVERGED:
            self.status = outcome.status
        self.ambiguous += Fraction(outcome.rounding_ambiguous or 0)
        fair = outcome.decided.lowered(grid.mass_error).measure()
        self.known[level] = Bounds(0.0, 1.0) if fair is None else Bounds(down(1 - fair[1]), up(1 - fair[0]))
        return True

    def more_than(self, level: Fraction) -> Bounds:
        """Bounds on the share that changes by more than the level: what changes by more than a larger one does so, too."""
        lower = max((b.lower for other, b in self.known.items() if other >= level), default=0.0)
        upper = min((b.upper for other, b in self.known.items() if other <= level), default=1.0)
        return Bounds(lower, max(lower, upper))

    def _bins(self, ends: Sequence[Fraction]) -> Iterable[Bin]:
        more = self.more_than(ends[0])
        yield Bin(None, ends[0], _minus(Bounds(1.0, 1.0), more))
        for above, at_most in pairwise(ends):
            less = self.more_than(at_most)
            yield Bin(above, at_most, _minus(more, less))
            more = less

    def quantile(self, share: Fraction, halvings: int) -> Quantile:
        """Halve the levels between which the share is reached, as long as there is time."""
        for _ in range(halvings):
            low, high = self._around(share)
            middle = (low + high) / 2
            if low == high or not self.ask(middle):
                break
        low, high = self._around(share)
        return Quantile(share, down(low), up(high))

    def _around(self, share: Fraction) -> tuple[Fraction, Fraction]:
        """The largest level that too many change by more than, and the smallest that few enough do."""
        few = [level for level in self.known if 1 - Fraction(self.more_than(level).upper) >= share]
        many = [level for level in self.known if 1 - Fraction(self.more_than(level).lower) < share]
        high = min(few, default=self.largest)
        return min(max(many, default=Fraction(0)), high), high


def _minus(more: Bounds, less: Bounds) -> Bounds:
    low, high = Fraction(more.lower) - Fraction(less.upper), Fraction(more.upper) - Fraction(less.lower)
    return Bounds(max(down(low), 0.0), min(max(up(high), 0.0), 1.0))


def _largest_change(grid: Grid, scale: Scale) -> Fraction:
    """A bound on every change: the spread of each tree that tests a sensitive attribute; probabilities differ by less than 1."""
    if scale == "probability" and grid.ensemble.link != "mean":
        return Fraction(1)
    sensitive = {number for number, cut in enumerate(grid.cuts) if grid.axes[cut.axis].sensitive}
    stops = [*grid.roots.tolist()[1:], len(grid.cut)]
    total = 0
    for first, stop in zip(grid.roots.tolist(), stops):
        if sensitive & set(grid.cut[first:stop].tolist()):
            values = [grid.values[leaf] for leaf in grid.leaf[first:stop].tolist() if leaf >= 0]
            total += max(values) - min(values)
    change = Fraction(total, 2**grid.scale_bits) * grid.ensemble.factor
    return min(change, Fraction(1)) if scale == "probability" else change
