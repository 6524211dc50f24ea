"""The methods: prune and distil, average, refit; which of them `auto` means; one requirement, or a path of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from boxqte.answers.verdict import Verdict
from boxqte.engines.protocol import Status
from boxqte.errors import EngineError
from boxqte.models.ensemble import TreeEnsemble
from boxqte.repairing.fitting import distilled
from boxqte.repairing.goals import Goal
from boxqte.repairing.prune import pruned
from boxqte.repairing.refit import Refit
from boxqte.repairing.shares import PARTS, Shares
from boxqte.repairing.together import Mixture, averaged
from boxqte.repairing.workshop import Candidate, StoppedError, Workshop

Method = Literal["auto", "prune", "average", "refit"]
METHODS: tuple[Method, ...] = ("auto", "prune", "average", "refit")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one level of the requirement."""

    at_least: Fraction | None
    """The level, where there is a path of them."""
    candidate: Candidate
    met: bool
    stopped: Status | None = None


def chosen(shop: Workshop, method: Method) -> str:
    """The method that is meant; refuses one that cannot do what is asked."""
    moving = [goal for goal in shop.goals if goal.moves(shop.world.space)]
    if method == "auto":
        return "refit" if moving else "prune"
    if method in ("prune", "average") and moving:
        raise EngineError(
            f"method: '{method}' is for epsilon = 0, found {moving[0].property}; use method='refit' (or 'auto')"
        )
    return method


def repaired(
    shop: Workshop, method: str, original: Candidate, levels: Sequence[Fraction] | None = None
) -> list[Outcome]:
    """One outcome a level, ascending; without levels one for the goals as they are. Time limits and Ctrl-C end it with
    the best model so far."""
    asked = [(None, shop.goals)] if levels is None else [(at, _at(shop.goals, at)) for at in levels]
    outcomes: list[Outcome] = []
    try:
        worker: _ByShares | Refit = (
            Refit(shop, _start(shop)) if method == "refit" else _ByShares(shop, method, _blind(shop, method))
        )
        for level, goals in asked:
            shop.best = None
            found = _as_it_is(original, goals) or worker.reached(goals)
            candidate = found or shop.best or original
            outcomes.append(Outcome(level, candidate, found is not None))
    except (StoppedError, KeyboardInterrupt) as stop:
        why = stop.why if isinstance(stop, StoppedError) else Status.INTERRUPTED
        shop.stopped = why
        level = asked[len(outcomes)][0]
        best = shop.best or original
        outcomes.append(Outcome(level, best, best is not original and best.met, why))
    return outcomes


def _as_it_is(original: Candidate, goals: Sequence[Goal]) -> Candidate | None:
    """The original, for a level of a path that it meets already."""
    if any(m.lower is None or m.lower < goal.at_least for m, goal in zip(original.measures, goals)):
        return None
    kept = tuple(replace(m, goal=goal, verdict=Verdict.HOLDS) for m, goal in zip(original.measures, goals))
    return replace(original, measures=kept)


def _at(goals: Sequence[Goal], level: Fraction) -> tuple[Goal, ...]:
    return tuple(replace(goal, at_least=level) for goal in goals)


def _blind(shop: Workshop, method: str) -> TreeEnsemble:
    """G: no tree of it tests a sensitive attribute."""
    shop.say(method, "removing the tests of the sensitive attributes")
    if method == "average":
        return averaged(shop.ensemble, shop.features, shop.X)
    edited, shop.loss = distilled(pruned(shop.ensemble, shop.features, shop.X), shop.ensemble, shop.X)
    return edited


def _start(shop: Workshop) -> TreeEnsemble:
    """Where refitting starts: without tests of S, if some x' may also differ elsewhere; else with all trees as they are."""
    moving = [goal for goal in shop.goals if goal.moves(shop.world.space)]
    return _blind(shop, "refit") if moving and shop.features else shop.ensemble


class _ByShares:
    """G itself for a requirement of 1, else as little of it as is enough."""

    def __init__(self, shop: Workshop, method: str, blind: TreeEnsemble):
        self.blind = blind
        self._mixture: Mixture | None = None
        self.low = 0
        self.shop = shop
        self.shares = Shares(shop, self._mixed, method)

    def _mixed(self, share: Fraction) -> tuple[TreeEnsemble, Sequence[int] | None]:
        if share == 1:
            return self.blind, None
        if self._mixture is None:
            self._mixture = Mixture(self.shop.ensemble, self.blind)
        return self._mixture.at(share), self._mixture.origins

    def reached(self, goals: Sequence[Goal]) -> Candidate | None:
        k = self.shares.smallest(goals, min(self.low, PARTS - 1))
        if k is None:
            return None
        self.low = k - 1  # what a lower level needs, a higher one needs at least
        return self.shares.candidate(k, goals)
