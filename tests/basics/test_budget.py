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
            undecided=lambda name, answer: self.needs[name],
        )


def test_what_quick_questions_leave_goes_to_the_open_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(Clock(monkeypatch), hard=20, easy=1, trivial=0)
    assert asked.all(35) == ["done", "done", "done"]
    # the first look has a tenth of the time; then the open ones share the rest, and what one leaves goes to the next
    assert [name for name, _ in asked.limits] == ["hard", "easy", "trivial", "hard"]
    assert asked.limits[0][1] == pytest.approx(35 * 0.1 / 3)
    assert asked.limits[-1][1] == pytest.approx(35 - 35 * 0.1 / 3 - 1)


def test_whichever_question_is_open_nearly_all_of_the_time_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for needs in (
        {"hard": 100, "easy": 0, "free": 0},
        {"easy": 0, "hard": 100, "free": 0},
        {"one": 100, "two": 100, "easy": 0},
        {"one": 100, "two": 5, "easy": 0},
        {"one": 100, "two": 25, "three": 25},
        {"one": 100, "two": 100, "three": 100},
    ):
        clock = Clock(monkeypatch)
        asked = Asked(clock, **needs)  # type: ignore[arg-type]
        asked.all(60)
        longest = {name: max(limit or 0 for own, limit in asked.limits if own == name) for name in needs}
        useful = sum(min(needs[name], longest[name]) for name in needs)
        assert useful >= 50, (needs, asked.limits)
        assert clock.now <= 60.1


def test_nothing_is_asked_again_without_much_more_time_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(Clock(monkeypatch), one=100, two=100)
    assert asked.all(30) == ["open", "open"]
    assert [limit for _, limit in asked.limits] == pytest.approx([1.5, 1.5, 13.5, 13.5])


def test_questions_that_are_nearer_to_their_end_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(Clock(monkeypatch), hard=100, two=4, three=3)
    assert asked.all(30) == ["open", "done", "done"]
    assert [name for name, _ in asked.limits[3:]] == ["three", "two", "hard"]
    assert asked.limits[-1][1] == pytest.approx(20)


def test_after_a_stop_the_rest_is_not_asked_and_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(Clock(monkeypatch), hard=20, stop=1, easy=1)
    assert asked.all(30) == ["open", "stopped", None]
    assert len(asked.limits) == 2


def test_without_a_limit_every_question_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(Clock(monkeypatch), hard=2000, easy=1)
    assert asked.all(None) == ["done", "done"]
    assert asked.limits == [("hard", None), ("easy", None)]
