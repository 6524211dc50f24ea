"""A requirement below 1: the smallest share of a repaired model G, mixed into the original F, that meets it.

Shares are k / 128. At kappa 1/2 and with the average as G the measure grows with the share; elsewhere it is not proved to,
and the search finds a share that meets the requirement and whose lower neighbour does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from boxqte.answers.verdict import Verdict
from boxqte.models.ensemble import TreeEnsemble
from boxqte.repairing.goals import Goal
from boxqte.repairing.workshop import Candidate, Workshop

PARTS = 128
STEP_SECONDS = 60.0
"""For measuring one mixture: what is not proved by then counts as not met, and more of G is taken."""
Known = dict[int, list[tuple[Fraction, Fraction]]]
"""By share (in parts), what is proved of each goal: bounds on its measure."""


class Shares:
    """The mixtures of two models, tried out once each as far as a level needs it."""

    def __init__(
        self, shop: Workshop, mixed: Callable[[Fraction], tuple[TreeEnsemble, Sequence[int] | None]], method: str
    ):
        self.shop, self.mixed, self.method = shop, mixed, method
        self.known: Known = {}
        self.candidates: dict[int, Candidate] = {}
        if shop.keeper is not None:
            stored = shop.keeper.state.get("shares", {})
            self.known = {int(k): [(Fraction(a), Fraction(b)) for a, b in ends] for k, ends in stored.items()}

    def meets(self, k: int, goals: Sequence[Goal]) -> bool:
        """Whether k parts of 128 meet all goals, from what is known or by trying."""
        ends = self.known.get(k)
        if ends is not None:
            if any(upper < goal.at_least for goal, (_, upper) in zip(goals, ends)):
                return False
            if all(lower >= goal.at_least for goal, (lower, _) in zip(goals, ends)):
                return True
        return self.candidate(k, goals).met

    def candidate(self, k: int, goals: Sequence[Goal]) -> Candidate:
        """The mixture as saved, measured for these goals."""
        known = self.candidates.get(k)
        if known is not None and [m.goal for m in known.measures] == list(goals):
            return known
        share = Fraction(k, PARTS)
        edited, origins = self.mixed(share)
        self.shop.say(self.method, f"trying {k}/{PARTS} of the repaired model", self.shop.tried + 1)
        found = self.shop.try_out(
            edited,
            origins,
            goals=goals,
            most=None if k == PARTS else STEP_SECONDS,
            share=share,
            round_=self.shop.tried + 1,
            method=self.method,
        )
        self.candidates[k] = found
        if all(m.lower is not None and m.upper is not None for m in found.measures):
            self.known[k] = [
                (Fraction(1) if m.verdict is Verdict.HOLDS and m.goal.at_least == 1 else m.lower, m.upper)
                for m in found.measures
                if m.lower is not None and m.upper is not None
            ]
            self._keep()
        return found

    def _keep(self) -> None:
        if self.shop.keeper is not None:
            self.shop.keeper.state["shares"] = {
                str(k): [[str(a), str(b)] for a, b in ends] for k, ends in self.known.items()
            }
            self.shop.keeper.save()

    def smallest(self, goals: Sequence[Goal], low: int = 0) -> int | None:
        """The smallest number of parts that meets the goals, above `low` parts, which do not; None if not even all do."""
        if not self.meets(PARTS, goals):
            return None
        high = PARTS
        if all(goal.at_least == 1 for goal in goals):
            return high  # whatever keeps some of the original keeps some of what it does
        while high - low > 1:
            middle = (low + high) // 2
            if self.meets(middle, goals):
                high = middle
            else:
                low = middle
        return high
