"""One time limit for several questions: each gets its share of what is left, so what one leaves goes to the others."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Q = TypeVar("Q")
R = TypeVar("R")


class TimeBudget:
    """Hands out shares of a time limit, which runs from now on.

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

    def __init__(self, seconds: float | None, questions: int = 1):
        self.seconds = None if seconds is None or math.isinf(seconds) else seconds
        self.questions = questions
        self._started = time.perf_counter()

    @property
    def used(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left for all questions still to come."""
        return math.inf if self.seconds is None else self.seconds - self.used

    def next_share(self) -> float | None:
        """The time limit of the next question; None if there is no limit."""
        waiting, self.questions = max(self.questions, 1), self.questions - 1
        return None if self.seconds is None else max(self.left / waiting, self.LEAST)


AGAIN = 1.5  # a question is asked again where it can have so many times the seconds that it had
FIRST_LOOK = 0.1  # of the time limit, for asking each of several questions a first time: it settles those that are easy


def asked_in_turn(
    budget: TimeBudget,
    questions: Sequence[Q],
    ask: Callable[[Q, float | None], R],
    *,
    again: Callable[[Q, R, float | None], R],
    is_open: Callable[[Q, R], bool],
    stopped: Callable[[R], bool],
    undecided: Callable[[Q, R | None], float] | None = None,
) -> list[R | None]:
    """Ask all questions shortly; then share the time among those that are open, and spend what is left on them, too.

    A question that is asked again starts anew, so it is worth its while only with much more time than before. `undecided`
    says how far from its end an answer is: the nearest comes first, for what it leaves goes to the others.
    None stands for what was not asked any more, because an answer says that all was `stopped` (Ctrl-C).
    """
    answers: list[R | None] = [None] * len(questions)
    limits = [0.0] * len(questions)
    waiting = list(range(len(questions)))
    looks = budget.seconds is not None and len(questions) > 1
    first = TimeBudget(FIRST_LOOK * max(budget.left, 0.0) if looks else budget.seconds, len(questions))
    for i in waiting:
        limit = first.next_share()
        answers[i] = newest = ask(questions[i], limit)
        limits[i] = math.inf if limit is None else limit
        if stopped(newest):
            return answers
    asking = budget.seconds is not None
    while asking:
        asking = False
        waiting = [i for i in waiting if (old := answers[i]) is not None and is_open(questions[i], old)]
        if undecided is not None:  # those that may need least come first: what they leave goes to the others
            waiting.sort(key=lambda i: undecided(questions[i], answers[i]))
        for turn, i in enumerate(waiting):
            share = budget.left / (len(waiting) - turn)
            if share < AGAIN * limits[i]:
                continue
            old = answers[i]
            assert old is not None
            answers[i] = newest = again(questions[i], old, share)
            limits[i], asking = share, True
            if stopped(newest):
                return answers
    return answers
