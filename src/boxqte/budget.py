"""One time limit for several questions: each gets its share of what is left, so what one leaves goes to the others."""

from __future__ import annotations

import math
import time


class TimeBudget:
    """Hands out shares of a time limit.

    Examples
    --------
    >>> budget = TimeBudget(60, 3)
    >>> 19 < budget.next_share() <= 20  # a third; the first question takes no time here,
    True
    >>> 29 < budget.next_share() <= 30  # so the second gets half of 60
    True
    >>> TimeBudget(None, 3).next_share() is None
    True
    """

    LEAST = 0.01  # seconds: a question that comes too late still states its trivial bounds

    def __init__(self, seconds: float | None, questions: int):
        self.seconds = None if seconds is None or math.isinf(seconds) else seconds
        self.questions = questions
        self._started = time.perf_counter()

    @property
    def left(self) -> float:
        """Seconds that are left for all questions still to come."""
        return math.inf if self.seconds is None else self.seconds - (time.perf_counter() - self._started)

    def next_share(self) -> float | None:
        """The time limit of the next question; None if there is no limit."""
        waiting, self.questions = max(self.questions, 1), self.questions - 1
        return None if self.seconds is None else max(self.left / waiting, self.LEAST)
