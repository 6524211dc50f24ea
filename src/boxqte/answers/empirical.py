"""The measure of a table's own rows, each decided exactly, and an interval for the population behind them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxqte.answers.remarks import sentences
from boxqte.basics.budget import TimeBudget
from boxqte.basics.checks import number, seconds, worker_count
from boxqte.engines.kinds import LOW, UNFAIR
from boxqte.engines.point import point_decider
from boxqte.errors import SpaceError
from boxqte.models.decision import Threshold, decision_text
from boxqte.models.importers import load_model
from boxqte.questions.building import build_any_grid
from boxqte.questions.properties import Property
from boxqte.questions.row_cells import read_rows
from boxqte.space.space import Space, read_space
from boxqte.space.tables import table_of

if TYPE_CHECKING:
    import pandas as pd

PILOT = 256  # rows that tell how long a row takes
SAFETY = 0.7  # of the time that is left, since rows differ
SEED = 0


@dataclass(frozen=True)
class Empirical:
    """The share of a table's confident rows that are no counterexamples.

    `lower` and `upper` are an exact (Clopper-Pearson) interval for the population that the rows were drawn from
    independently; for the rows at hand, `measure` is the whole truth, unless only some of them were decided (`drawn`). None if
    no row is confident.
    """

    rows: int
    outside: int
    """rows with a value outside the space, or that a rule of it forbids: they count for nothing"""
    confident: int
    unfair: int
    measure: float | None
    lower: float | None
    upper: float | None
    confidence: float
    counterexamples: tuple[int, ...]
    """the numbers of the rows, from 0, that are counterexamples"""
    decision: str = ""
    """the model's decision rule in words, where it is not the library's own `predict`"""
    drawn: int | None = None
    """how many of the rows were decided, where time was too short for all: a random choice, and the counts are its own"""
    remarks: tuple[str, ...] = ()
    """what the share does not say: that no tree tests a sensitive attribute, for one"""
    forbidden: int = 0
    """how many of those outside a rule forbids"""

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return asdict(self)

    def to_frame(self) -> pd.DataFrame:
        """The result as a table of one row: `value` is that of the rows, `lower` and `upper` are for their population."""
        import pandas as pd

        row = {"value": self.measure, "lower": self.lower, "upper": self.upper, "confidence": self.confidence}
        row |= {"rows": self.rows, "outside": self.outside, "confident": self.confident, "unfair": self.unfair}
        return pd.DataFrame([row | {"decision": self.decision, "remarks": " ".join(self.remarks)}])


def empirical(
    model: object,
    space: Space,
    prop: Property,
    frame: Any,
    *,
    where: str | None = None,
    confidence: float = 0.95,
    workers: int = 1,
    allow_pickle: bool = False,
    threshold: Threshold | None = None,
    time_limit: float | None = None,
) -> Empirical:
    """Decide every row of a table exactly, and give the share of the confident ones that are treated fairly.

    Parameters
    ----------
    where
        A condition that rows must satisfy to count.
    confidence
        Of the interval for the population behind the rows.
    threshold
        The decision rule, in place of the model's own (`load_model`).
    time_limit
        Seconds; if all rows would take longer, by the time that a few of them take, a random choice of them is decided.
    """
    clock = TimeBudget(seconds(time_limit))
    if not 0 < number(confidence, "confidence", SpaceError) < 1:
        raise SpaceError(f"confidence: must lie between 0 and 1, found {confidence}")
    workers, space = worker_count(workers), read_space(space)
    imported = load_model(model, allow_pickle=allow_pickle, threshold=threshold)
    grid = build_any_grid(imported.ensemble, space, prop)
    rows = read_rows(grid, table_of(frame))
    chosen = np.flatnonzero(rows.rows.chosen(where))
    kept = chosen[rows.inside[chosen]]
    decider = point_decider(grid)
    fitting = _fitting(lambda at: decider.decide(rows.cells[kept[at]], workers=workers), len(kept), clock)
    if fitting is not None:
        kept = kept[fitting]
    verdict = decider.decide(rows.cells[kept], workers=workers).verdict
    confident, unfair = int((verdict != LOW).sum()), int((verdict == UNFAIR).sum())
    lower, upper = clopper_pearson(confident - unfair, confident, confidence) if confident else (None, None)
    return Empirical(
        rows=len(chosen),
        outside=int(np.count_nonzero(~rows.inside[chosen])),
        confident=confident,
        unfair=unfair,
        measure=1 - unfair / confident if confident else None,
        lower=lower,
        upper=upper,
        confidence=confidence,
        counterexamples=tuple(kept[verdict == UNFAIR].tolist()),
        decision=decision_text(imported.ensemble.decision),
        drawn=None if fitting is None else len(fitting),
        remarks=sentences(grid),
        forbidden=sum(bool(rows.rows.broken[row]) and rows.rows.problems[row] is None for row in chosen.tolist()),
    )


def _fitting(decide: Callable[[npt.NDArray[np.intp]], Any], n: int, clock: TimeBudget) -> npt.NDArray[np.intp] | None:
    """The places of the rows to decide, if there is no time for all n of them; how many is settled before any counts."""
    if clock.seconds is None or n <= PILOT:
        return None
    order = np.random.default_rng(SEED).permutation(n)
    before = clock.used
    decide(order[:PILOT])
    each = (clock.used - before) / PILOT
    most = max(int(clock.left * SAFETY / max(each, 1e-9)), PILOT)
    return None if most >= n else np.sort(order[:most])


# --- the exact binomial interval --------------------------------------------------------------------------------------


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """The exact interval of a binomial share; ends are moved outward by more than the floating-point error.

    Examples
    --------
    >>> [round(end, 4) for end in clopper_pearson(8, 10, 0.95)]
    [0.4439, 0.9748]
    """
    tail = (1 - confidence) / 2
    logs = _log_choose(trials)

    def bisect(wanted: Callable[[float], bool]) -> tuple[float, float]:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            if wanted(middle):
                low = middle
            else:
                high = middle
        return low, high

    lower, upper = 0.0, 1.0
    if successes > 0:  # the share at which so many successes or more have probability `tail`
        lower = bisect(lambda p: _tail(logs, p, successes, trials) < tail)[0] - 1e-9
    if successes < trials:
        upper = bisect(lambda p: 1 - _tail(logs, p, successes + 1, trials) > tail)[1] + 1e-9
    return max(lower, 0.0), min(upper, 1.0)


def _log_choose(n: int) -> npt.NDArray[np.float64]:
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    return np.asarray(factorial[n] - factorial - factorial[::-1])


def _tail(logs: npt.NDArray[np.float64], p: float, least: int, n: int) -> float:
    """P(at least `least` successes)."""
    if p <= 0 or p >= 1:
        return float(p >= 1)
    k = np.arange(least, n + 1)
    return float(np.exp(logs[least:] + k * math.log(p) + (n - k) * math.log1p(-p)).sum())
