"""A confidence sequence for the measure: an interval that holds at all times at once with the stated probability.

Points are drawn from the undecided mass, and each is decided exactly: fair, unfair, or of low confidence, with unknown
probabilities q = (q_fair, q_unfair, q_low). For any fixed p the likelihood ratio of the draws, product of p_k / q_k, has
expectation 1 under q; so has its mixture over a Dirichlet prior on p. By Ville's inequality the mixture ever exceeds
1/alpha with probability at most alpha. The q for which it has not are the confidence region, valid whenever one looks.

The draws of a round may be stratified (one from each of n parts of equal mass): the expectation of the round's ratio is
the product of sum_k q_tk p_k / q_k over its strata t, which is at most the n-th power of their mean, 1. So the argument
holds for stratified rounds, looked at when they are complete.

The measure is (a + m q_fair) / (a + u + m (q_fair + q_unfair)), where a, u are the masses proved fair and unfair and m
is the undecided mass. Its interval is the range of the measure over the confidence region.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from boxqte.engines.kinds import FAIR, LOW, UNFAIR

BISECTIONS = 60
FLOAT_SLACK = 1e-6  # on the logarithm of the level: far above the errors of lgamma and log here


@dataclass(frozen=True)
class Proved:
    """The masses around the draws: what is proved, what is drawn from, and what neither covers (rounding)."""

    fair: float
    unfair: float
    open: float
    rest: float = 0.0

    def measure(self, fair: float, unfair: float) -> float | None:
        """The measure if the open mass has these shares of fair and unfair inputs."""
        confident = self.fair + self.unfair + self.open * (fair + unfair)
        return (self.fair + self.open * fair) / confident if confident > 0 else None


@dataclass(frozen=True)
class Prior:
    """A Dirichlet prior: what each kind of draw counts beforehand. 0: the kind is known not to occur."""

    weights: tuple[float, float, float]

    def evidence(self, counts: Sequence[int]) -> float:
        """The logarithm of the mixture's probability of the draws, in the order in which they came."""
        total = math.fsum(self.weights)
        gained = math.lgamma(total) - math.lgamma(total + sum(counts))
        for weight, count in zip(self.weights, counts):
            if count and not weight:
                raise ValueError("a kind of draw that was declared impossible has occurred")
            gained += math.lgamma(weight + count) - math.lgamma(weight) if count else 0.0
        return gained


def flat_prior(low_possible: bool) -> Prior:
    """Half a draw of each kind: good at any number of draws, best at none."""
    return Prior((0.5, 0.5, 0.5 if low_possible else 0.0))


def tuned_prior(pilot: Sequence[int], expected: float, alpha: float, low_possible: bool) -> Prior:
    """A prior around the shares of a pilot, as strong as makes the interval shortest after about `expected` draws.

    The pilot's draws must not be counted again. The level costs log(1/alpha), the mixture log(1 + expected / strength)
    / 2 a dimension; the sum of both effects is least at a strength of about expected / (2 log(1/alpha)). A prior stronger
    than the pilot is long would be surer of the pilot's shares than the pilot itself.
    """
    strength = min(max(expected, 100.0) / (2 * math.log(1 / alpha)), float(max(sum(pilot), 10)))
    total = sum(pilot) + 1.5
    shares = [(count + 0.5) / total * strength + 0.5 for count in pilot]
    return Prior((shares[FAIR], shares[UNFAIR], shares[LOW] if low_possible else 0.0))


def interval(counts: Sequence[int], prior: Prior, proved: Proved, alpha: float) -> tuple[float, float]:
    """The range of the measure over the confidence region at level 1 - alpha; `counts` are fair, unfair, low."""
    floor = prior.evidence(counts) - math.log(1 / alpha) - FLOAT_SLACK
    low_possible = prior.weights[LOW] > 0
    ends = []
    for side in (0, 1):
        # Mass that neither proof nor draws cover counts against both ends.
        if side == 0:
            around = Proved(proved.fair, proved.unfair + proved.rest, proved.open)
        else:
            around = Proved(proved.fair + proved.rest, proved.unfair, proved.open)
        ends.append(_end(counts, around, floor, low_possible, side))
    return max(ends[0], 0.0), min(ends[1], 1.0)


def _end(counts: Sequence[int], proved: Proved, floor: float, low_possible: bool, side: int) -> float:
    """The smallest (side 0) or largest (side 1) measure whose best q has a likelihood above the floor, by bisection."""
    drawn = sum(counts)
    likeliest = proved.measure(counts[FAIR] / drawn, counts[UNFAIR] / drawn) if drawn else None
    inside = 0.5 if likeliest is None else likeliest
    outside = float(side)
    if best_likelihood(counts, proved, outside, low_possible) >= floor:
        return outside
    for _ in range(BISECTIONS):
        middle = (inside + outside) / 2
        if best_likelihood(counts, proved, middle, low_possible) >= floor:
            inside = middle
        else:
            outside = middle
    return outside  # not above the floor: the true end lies between, so this is on the safe side


def best_likelihood(counts: Sequence[int], proved: Proved, theta: float, low_possible: bool) -> float:
    """The largest log-likelihood of the draws over all q for which the measure is theta; -inf if there is none.

    With s = q_fair + q_unfair the measure is theta iff q_fair = theta s + c and q_unfair = (1 - theta) s - c, where c
    makes up for the proved masses. The log-likelihood is concave in s: its slope is bisected.
    """
    if proved.open <= 0:
        return -math.inf
    n_fair, n_unfair, n_low = counts
    c = (theta * (proved.fair + proved.unfair) - proved.fair) / proved.open
    least, most = 0.0 if low_possible else 1.0, 1.0
    for slope, offset in ((theta, c), (1 - theta, -c)):  # both shares are at least 0
        if slope > 0:
            least = max(least, -offset / slope)
        elif offset < 0:
            return -math.inf
    if least > most:
        return -math.inf

    def rises(s: float) -> bool:
        fair, unfair = theta * s + c, (1 - theta) * s - c
        if (n_fair and fair <= 0) or (n_unfair and unfair <= 0):
            return True
        if n_low and s >= 1:
            return False
        slope = n_fair * theta / fair if n_fair else 0.0
        slope += n_unfair * (1 - theta) / unfair if n_unfair else 0.0
        return slope > (n_low / (1 - s) if n_low else 0.0)

    low, high = least, most
    if rises(high):
        low = high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if rises(middle):
            low = middle
        else:
            high = middle
    return max(_likelihood(counts, theta * s + c, (1 - theta) * s - c, 1 - s) for s in (low, high))


def _likelihood(counts: Sequence[int], *shares: float) -> float:
    total = 0.0
    for count, share in zip(counts, shares):
        if count:
            if share <= 0:
                return -math.inf
            total += count * math.log(share)
    return total
