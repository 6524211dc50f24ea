"""Profiles from random draws, where certain bounds on them take too long: every drawn input is decided exactly.

Given how many draws have a value, the number of counterexamples among them is binomial. Chernoff's bound on its tails:
the share p of counterexamples satisfies n kl(k/n, p) <= log(2 / alpha) with probability at least 1 - alpha. alpha is
divided by the number of all intervals, so that all of them hold together with the stated confidence.
"""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import numpy as np

from boxqte.answers.asked import Asked
from boxqte.answers.samples import decider_of
from boxqte.engines.box.rules import is_forbidden
from boxqte.engines.kinds import UNFAIR, UNKNOWN
from boxqte.engines.sample.draws import Stratum, WholeSpace, strata_draws

CONFIDENCE = 0.999999
FIRST_ROUND = 256
ROUND_SECONDS = 0.3
BUDGET = 10_000_000  # steps on a point before it is given up; it then counts against both ends
BISECTIONS = 60
FLOAT_SLACK = 1e-9  # far above the errors of the logarithms and of the drawn masses


def drawn_profiles(
    asked: Asked, seconds: float, *, confidence: float = CONFIDENCE, seed: int = 0
) -> dict[str, list[tuple[float, float] | None]]:
    """For every attribute, the interval of the share of counterexamples in each of its cells; None without a draw.

    All of them hold together with the confidence.
    """
    grid, decider = asked.grid, decider_of(asked)
    pieces = [(weight, own.asked.grid) for weight, own in asked.pieces] or [(Fraction(1), grid)]
    draws = strata_draws([Stratum(weight, own, WholeSpace(), ()) for weight, own in pieces], seed)
    counts = [np.zeros((axis.n_cells, 3), np.int64) for axis in grid.axes]  # all, unfair, given up
    until, size, drawn = time.perf_counter() + seconds, FIRST_ROUND, 0
    while not drawn or time.perf_counter() < until:
        begun = time.perf_counter()
        points = draws.round(size)
        verdict = decider.decide(points, budget=BUDGET, workers=asked.limits.workers).verdict
        base = np.stack([axis.base[points[:, a]] for a, axis in enumerate(grid.axes)], axis=1)
        if grid.forbidden:  # what is left of the draws is drawn from what the rules leave
            allowed = ~is_forbidden(grid, base)
            base, verdict = base[allowed], verdict[allowed]
        for a, axis in enumerate(grid.axes):
            cells = base[:, a]
            for kind, chosen in enumerate((cells, cells[verdict == UNFAIR], cells[verdict == UNKNOWN])):
                counts[a][:, kind] += np.bincount(chosen, minlength=axis.n_cells)
        drawn += size
        now = time.perf_counter()
        fits = size / max(now - begun, 1e-9) * min(ROUND_SECONDS, max(until - now, 0.0) / 2)
        size = max(int(min(fits, 4 * size)), 1)
    alpha = (1 - confidence) / sum(len(table) for table in counts)
    return {
        axis.attribute.name: [_interval(row, alpha) for row in table.tolist()] for axis, table in zip(grid.axes, counts)
    }


def _interval(row: list[Any], alpha: float) -> tuple[float, float] | None:
    n, unfair, unknown = row
    if not n:
        return None
    return share_interval(unfair, n, alpha)[0], share_interval(unfair + unknown, n, alpha)[1]


def share_interval(successes: int, trials: int, alpha: float) -> tuple[float, float]:
    """The p with trials * kl(successes / trials, p) <= log(2 / alpha), moved outward by more than the rounding error.

    Examples
    --------
    >>> [round(end, 3) for end in share_interval(0, 1000, 0.05)], [round(end, 3) for end in share_interval(50, 100, 0.05)]
    ([0.0, 0.004], [0.367, 0.633])
    """
    level = math.log(2 / alpha) / trials
    share = successes / trials

    def beyond(p: float) -> bool:
        """Whether p is too far from the share that was drawn."""
        return _kl(share, p) > level

    ends = []
    for outer in (0.0, 1.0):
        inside, outside = share, outer
        for _ in range(BISECTIONS):
            middle = inside + (outside - inside) / 2
            if beyond(middle):
                outside = middle
            else:
                inside = middle
        ends.append(outside)
    return max(ends[0] - FLOAT_SLACK, 0.0), min(ends[1] + FLOAT_SLACK, 1.0)


def _kl(q: float, p: float) -> float:
    """The divergence of two coins."""
    total = 0.0
    for a, b in ((q, p), (1 - q, 1 - p)):
        if a > 0:
            if b <= 0:
                return math.inf
            total += a * math.log(a / b)
    return total
