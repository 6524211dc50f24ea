"""THEMIS (Galhotra, Brun, Meliou 2017): random inputs, random sensitive values. Its success rate is the Monte Carlo rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from boxqte.testers.session import Session
from boxqte.testers.tester import Tester


class Themis(Tester):
    """Draws inputs at random and tries their other sensitive values (Themis)."""

    name = "themis"
    options: Options

    @dataclass(frozen=True)
    class Options:
        """Options of THEMIS."""

        causal_stop: bool = False
        """Stop once the causal score (the share of inputs that flip) is known within `margin`, as the original does."""
        confidence: float = 0.999
        """The confidence of that interval."""
        margin: float = 1e-4
        """Half of its width."""
        largest_batch: int = 16384
        """The most inputs that are tested at once."""

    def search(self, session: Session) -> None:
        """Draw and test until the budget is spent, or until the causal score is known well enough."""
        flips = n = 0
        z = NormalDist().inv_cdf((1 + self.options.confidence) / 2)
        for size in session.sizes(self.options.largest_batch):
            flips += int(session.test(session.at.draw(session.rng, size)).sum())
            n += size
            half = self.half_width(flips, n, z)
            session.details |= {"causal_score": flips / n, "half_width": half, "confidence": self.options.confidence}
            if self.options.causal_stop and half < self.options.margin:
                return

    def half_width(self, flips: int, n: int, z: float) -> float:
        """z * sqrt(p (1 - p) / n). With p = 0 that is 0, and the original stops at its first input.

        The fixed variant adds one flip and one other input before (Laplace), so that no flip is no certainty.
        """
        if self.variant == "fixed":
            flips, n = flips + 1, n + 2
        p = flips / n
        return z * math.sqrt(p * (1 - p) / n)
