"""One time limit for several questions, and what is left in the end."""

from __future__ import annotations

import pytest

from boxqte.basics import budget
from boxqte.basics.budget import TimeBudget, asked_in_turn


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 0.0
        monkeypatch.setattr(budget.time, "perf_counter", lambda: self.now)


class Asked:
    """Questions that take so many seconds; one that gets fewer is open, unless it is called off."""

    def __init__(self, clock: Clock, **needs: float):
        self.clock, self.needs, self.limits = clock, needs, []  # type: ignore[var-annotated]

    def ask(self, name: str, limit: float | None) -> str:
        self.limits.append((name, limit))
        took = min(self.needs[name], self.needs[name] if limit is None else limit)
        self.clock.now += took
        return "stopped" if name == "stop" else "done" if took >= self.needs[name] else "open"

    def all(self, seconds: float | None) -> list[str | None]:
        return asked_in_turn(
            TimeBudget(seconds),
            list(self.needs),
            self.ask,
            again=lambda name, before, limit: self.ask(name, limit),
            is_open=lambda _, answer: answer == "open",
            stopped=lambda answer: answer == "stopped",
        )


def test_what_quick_questions_leave_goes_to_the_open_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(Clock(monkeypatch), hard=20, easy=1, trivial=0)
    assert asked.all(35) == ["done", "done", "done"]
    assert [name for name, _ in asked.limits] == ["hard", "easy", "trivial", "hard"]
    assert asked.limits[0][1] == pytest.approx(35 / 3)
    assert asked.limits[-1][1] == pytest.approx(35 - 35 / 3 - 1)


def test_nothing_is_asked_again_without_much_more_time_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(Clock(monkeypatch), hard=20, easy=9, trivial=9)
    assert asked.all(30) == ["open", "done", "done"]
    assert len(asked.limits) == 3


def test_of_two_open_questions_the_last_gets_what_is_too_little_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(Clock(monkeypatch), one=100, two=100, easy=0)
    assert asked.all(60) == ["open", "open", "done"]
    assert [name for name, _ in asked.limits] == ["one", "two", "easy"]  # 20 s are left, as much as each has had
    asked = Asked(Clock(monkeypatch), one=100, two=100, easy=0, free=0, none=0)
    asked.all(60)
    assert [limit for _, limit in asked.limits[-2:]] == pytest.approx([18, 18])  # 36 s are left, each has had 12


def test_after_a_stop_the_rest_is_not_asked_and_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(Clock(monkeypatch), hard=20, stop=1, easy=1)
    assert asked.all(30) == ["open", "stopped", None]
    assert len(asked.limits) == 2


def test_without_a_limit_every_question_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(Clock(monkeypatch), hard=2000, easy=1)
    assert asked.all(None) == ["done", "done"]
    assert asked.limits == [("hard", None), ("easy", None)]
