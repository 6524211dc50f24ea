"""Plots: drawn on the axes that are given, with the numbers of the result."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

from boxqte import Fairness, Quantification, compare, quantify
from boxqte.answers.result import ModelSummary
from boxqte.engines.protocol import Decided, Status
from boxqte.errors import ReportError
from boxqte.examples import loan_ensemble, loan_space

TRACE = ((0.5, 0.1, 0.9), (1.0, 0.4, 0.6))


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def run(engine: str = "box") -> Quantification:
    decided = Decided(0.45, 0.45)
    return Quantification(Fairness("sex"), ModelSummary("x", 1, 1, 1, ""), engine, Status.TIME, decided, 2.0, TRACE)


def test_bounds_are_stairs_from_the_trivial_ones_to_the_end_on_the_given_axes() -> None:
    ax = plt.subplots()[1]
    assert run().plot_bounds(ax=ax) is ax
    lower, upper = ax.get_lines()
    assert list(lower.get_xdata()) == [0.0, 0.5, 1.0, 2.0]
    assert list(lower.get_ydata())[:3] == [0.0, 0.1, 0.4]
    assert list(upper.get_ydata())[:3] == [1.0, 0.9, 0.6]
    assert lower.get_drawstyle() == "steps-post"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["lower", "upper"]


def test_without_axes_a_figure_is_made() -> None:
    before = plt.get_fignums()
    run().plot_bounds(logx=True)
    assert len(plt.get_fignums()) == len(before) + 1


def test_compare_names_runs_by_engine_or_as_told() -> None:
    def legend(ax: Any) -> list[str]:
        return [t.get_text() for t in ax.get_legend().get_texts()]

    assert legend(compare([run("box"), run("smt")])) == ["box", "smt"]
    assert legend(compare([run("box"), run("box")])) == ["box 1", "box 2"]
    assert legend(compare({"ours": run(), "theirs": run()})) == ["ours", "theirs"]
    with pytest.raises(ReportError, match="there is no result to draw"):
        compare([])


def test_profiles_and_regions_have_the_numbers_of_the_tables() -> None:
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive")
    ax = result.plot_profile("income")
    assert ax.get_xlabel() == "income"
    assert ax.patches[0].get_data().values.tolist() == pytest.approx([100 * 51 / 101] * 2 + [0])
    assert result.plot_profile("race").get_ylabel() == "race"
    ax = result.plot_regions(top=5)
    shown = [bar.get_width() for bar in ax.patches]
    assert shown == pytest.approx((100 * result.regions(top=5)["mass"]).tolist())


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_matplotlib(name: str, *more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(ReportError, match=r"pip install boxqte\[plot\]"):
        run().plot_bounds()
