"""Hot spots from random draws, where certain bounds on them take too long: every drawn input is decided exactly.

The draws are others than those that the rules were chosen by, so they know nothing of the rules: given how many of them a rule
holds, the number of counterexamples among these is binomial, and given how many are counterexamples, so is the number of these
that it holds. The intervals are those of drawn_profiles.py, and hold all together with the stated confidence.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.answers.asked import Asked
from boxqte.answers.drawn_profiles import BUDGET, CONFIDENCE, FIRST_ROUND, ROUND_SECONDS, share_interval
from boxqte.answers.hotspot_masses import Cells
from boxqte.answers.result import asked_of
from boxqte.answers.samples import decider_of
from boxqte.engines.kinds import UNFAIR, UNKNOWN
from boxqte.engines.sample.draws import Stratum, WholeSpace, strata_draws

MOST_DRAWING = 5.0  # seconds
FloatEnds = tuple[float, float]
IntArray = npt.NDArray[np.int64]


class Drawn(NamedTuple):
    """Intervals: of the unfair share of the whole, inside every rule, of its share of all counterexamples; and of what the
    first of them hold together, one after the other."""

    whole: FloatEnds
    density: list[FloatEnds]
    share: list[FloatEnds]
    covered: list[FloatEnds]
    draws: int
    confidence: float


class _Counts:
    """Draws, counterexamples among them, and those that were given up: of all, of each rule, of the first rules together."""

    def __init__(self, rules: Sequence[Cells], union: int):
        self.rules, self.union = rules, union
        self.all, self.own, self.together = (
            np.zeros(3, np.int64),
            np.zeros((len(rules), 3), np.int64),
            np.zeros((union, 3), int),
        )

    def add(self, cells: IntArray, verdict: npt.NDArray[np.integer]) -> None:
        kinds = np.stack([np.ones(len(verdict), bool), verdict == UNFAIR, verdict == UNKNOWN], axis=1)
        self.all += kinds.sum(axis=0)
        before = np.zeros(len(cells), bool)
        for k, rule in enumerate(self.rules):
            inside = np.ones(len(cells), bool)
            for a, held in rule.items():
                inside &= np.isin(cells[:, a], list(held))
            self.own[k] += kinds[inside].sum(axis=0)
            if k < self.union:
                before |= inside
                self.together[k] += kinds[before].sum(axis=0)


def drawn_hotspots(
    asked: Asked, rules: Sequence[Cells], union: int, seconds: float, *, seed: int, confidence: float = CONFIDENCE
) -> Drawn:
    """The intervals after so many seconds of drawing."""
    grid, decider = asked.grid, decider_of(asked)
    pieces = [(weight, asked_of(own).grid) for weight, own in asked.pieces] or [(Fraction(1), grid)]
    draws = strata_draws([Stratum(weight, own, WholeSpace(), ()) for weight, own in pieces], seed)
    counts = _Counts(rules, union)
    until, size = time.perf_counter() + seconds, FIRST_ROUND
    while not counts.all[0] or time.perf_counter() < until:
        begun = time.perf_counter()
        points = draws.round(size)
        verdict = decider.decide(points, budget=BUDGET, workers=asked.limits.workers).verdict
        counts.add(
            np.stack([axis.base[points[:, a]] for a, axis in enumerate(grid.axes)], axis=1).astype(np.int64), verdict
        )
        now = time.perf_counter()
        fits = size / max(now - begun, 1e-9) * min(ROUND_SECONDS, max(until - now, 0.0) / 2)
        size = max(int(min(fits, 4 * size)), 1)
    alpha = (1 - confidence) / (1 + 2 * len(rules) + union)
    return Drawn(
        whole=_part(counts.all.tolist(), alpha),
        density=[_part(row, alpha) for row in counts.own.tolist()],
        share=[_held(row, counts.all.tolist(), alpha) for row in counts.own.tolist()],
        covered=[_held(row, counts.all.tolist(), alpha) for row in counts.together.tolist()],
        draws=int(counts.all[0]),
        confidence=confidence,
    )


def _part(row: Sequence[int], alpha: float) -> FloatEnds:
    """The share of counterexamples; draws that were given up count against both ends."""
    n, unfair, unknown = row
    return (share_interval(unfair, n, alpha)[0], share_interval(unfair + unknown, n, alpha)[1]) if n else (0.0, 1.0)


def _held(row: Sequence[int], everything: Sequence[int], alpha: float) -> FloatEnds:
    """The share of all counterexamples that a rule holds: at the least with those given up elsewhere, at the most with its
    own."""
    (_, own, given_up), (_, unfair, unknown) = row, everything
    least, most = unfair + unknown - given_up, unfair + given_up
    low = share_interval(own, least, alpha)[0] if least else 0.0
    return low, share_interval(own + given_up, most, alpha)[1] if most else 1.0
