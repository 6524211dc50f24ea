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


def asked_in_turn(
    budget: TimeBudget,
    questions: Sequence[Q],
    ask: Callable[[Q, float | None], R],
    *,
    again: Callable[[Q, R, float | None], R],
    is_open: Callable[[Q, R], bool],
    stopped: Callable[[R], bool],
) -> list[R | None]:
    """Ask all questions, each with its share of the time; then spend what is left on those that time left open.

    A question that is asked again starts anew, so it is worth its while only with much more time than before.
    None stands for what was not asked any more, because an answer says that all was `stopped` (Ctrl-C).
    """
    budget.questions = len(questions)
    answers: list[R | None] = []
    limits: list[float | None] = []
    for question in questions:
        last = answers[-1] if answers else None
        if answers and (last is None or stopped(last)):
            answers.append(None)
            continue
        limits.append(budget.next_share())
        answers.append(ask(question, limits[-1]))
    waiting = [i for i, a in enumerate(answers) if a is not None and is_open(questions[i], a)]
    if budget.seconds is None or any(a is None or stopped(a) for a in answers):
        return answers
    while waiting:
        i, answer, before = waiting[0], answers[waiting[0]], limits[waiting[0]]
        share = budget.left / len(waiting)
        waiting = waiting[1:]
        if answer is not None and before is not None and share >= AGAIN * before:
            answers[i] = newer = again(questions[i], answer, share)
            if stopped(newer):
                break
    return answers
