"""Plots of results with matplotlib (`pip install boxqte[plot]`), drawn on the axes that are given or on new ones.

Each function takes `ax` and returns it; nothing is shown or saved, and no global style is touched.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from boxqte.answers.result import Result, asked_of
from boxqte.errors import ReportError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LOWER, UPPER = "#116329", "#a40e26"
OPEN_ALPHA = 0.3


def _axes(ax: Axes | None) -> Axes:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ReportError("plots need matplotlib: pip install boxqte[plot]") from None
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _stairs(result: Result) -> tuple[list[float], list[float], list[float]]:
    """The trace from the trivial bounds to the end of the run."""
    points = [(0.0, 0.0, 1.0), *result.trace]
    bounds = result.bounds
    if bounds is not None:
        points.append((max(result.seconds, points[-1][0]), bounds.lower, bounds.upper))
    seconds, lower, upper = zip(*points)
    return list(seconds), list(lower), list(upper)


def plot_bounds(
    result: Result, *, ax: Axes | None = None, label: str | None = None, color: Any = None, logx: bool = False
) -> Axes:
    """Lower and upper bound over the seconds of the run, with the band between them.

    Parameters
    ----------
    result
        What to draw.
    ax
        Where; None is a new figure.
    label
        The name in the legend; by default "lower" and "upper".
    color
        One colour for both bounds; by default green below and red above.
    logx
        A logarithmic time axis, which shows the first tenths of a second.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> from boxqte import Fairness, quantify
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> result = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive")
    >>> result.plot_bounds().get_ylabel()
    'measure'
    """
    ax = _axes(ax)
    seconds, lower, upper = _stairs(result)
    if logx:
        seconds = [max(s, 1e-3) for s in seconds]
        ax.set_xscale("log")
    ax.step(seconds, lower, where="post", color=color or LOWER, label="lower" if label is None else label)
    ax.step(seconds, upper, where="post", color=color or UPPER, label="upper" if label is None else None)
    ax.fill_between(seconds, lower, upper, step="post", color=color or "#54aeff", alpha=0.2, linewidth=0)
    ax.set(xlabel="seconds", ylabel="measure", ylim=(-0.02, 1.02))
    if label is None:
        ax.set_title(str(result.property), fontsize="medium")
    ax.legend()
    return ax


def compare(results: Sequence[Result] | Mapping[str, Result], *, ax: Axes | None = None, logx: bool = True) -> Axes:
    """The bounds of several runs over time on one pair of axes, as in the paper's figures.

    Parameters
    ----------
    results
        The results, named by their engines, or a mapping from names to results.
    ax
        Where; None is a new figure.
    logx
        A logarithmic time axis.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> from boxqte import Fairness, quantify
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> runs = [quantify(loan_ensemble(), loan_space(), Fairness(s), engine="exhaustive") for s in ("race", "age")]
    >>> [text.get_text() for text in compare({"race": runs[0], "age": runs[1]}).get_legend().get_texts()]
    ['race', 'age']
    """
    ax = _axes(ax)
    named = list(results.items()) if isinstance(results, Mapping) else _named(results)
    if not named:
        raise ReportError("compare: there is no result to draw")
    for i, (name, result) in enumerate(named):
        plot_bounds(result, ax=ax, label=name, color=f"C{i % 10}", logx=logx)
    questions = {str(result.property) for _, result in named}
    ax.set_title(questions.pop() if len(questions) == 1 else "", fontsize="medium")
    return ax


def _named(results: Sequence[Result]) -> list[tuple[str, Result]]:
    engines = [result.engine for result in results]
    return [
        (engine if engines.count(engine) == 1 else f"{engine} {i}", result)
        for i, (engine, result) in enumerate(zip(engines, results), 1)
    ]


def plot_profile(result: Result, table: pd.DataFrame, attribute: str, *, ax: Axes | None = None) -> Axes:
    """The share of the inputs with each value of the attribute that are counterexamples: certain bounds.

    What is proved is drawn full, what a search has left open above it pale.
    """
    ax = _axes(ax)
    lower, upper = ((100 * table[f"density_{end}"].fillna(0.0)).tolist() for end in ("lower", "upper"))
    is_open = any(high - low > 1e-6 for low, high in zip(lower, upper))
    axis = next(a for a in asked_of(result).grid.axes if a.attribute.name == attribute)
    ends = [
        None if cell.low is None or cell.high is None else (float(cell.low[0]), float(cell.high[0]))
        for cell in axis.cells
    ]
    if all(end is not None for end in ends) and len(ends) > 1:
        edges = [ends[0][0], *(end[1] for end in ends)]  # type: ignore[index]
        if is_open:
            ax.stairs(upper, edges, fill=True, color="C0", alpha=OPEN_ALPHA, label="at most")
        ax.stairs(lower, edges, fill=True, color="C0", label="at least")
        ax.set(xlabel=attribute, ylabel="unfair share (%)")
    else:
        names = [str(v) for v in table["value"]]
        if is_open:
            ax.barh(names, upper, color="C0", alpha=OPEN_ALPHA, label="at most")
        ax.barh(names, lower, color="C0", label="at least")
        ax.invert_yaxis()
        ax.set(ylabel=attribute, xlabel="unfair share (%)")
    if is_open:
        ax.legend()
    return ax


def plot_regions(result: Result, table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """The largest regions as bars: the share of all inputs that are counterexamples in each."""
    ax = _axes(ax)
    names = ["\n".join(textwrap.wrap(rule, 48)) for rule in table["rule"]]
    ax.barh(range(len(names)), (100 * table["mass"]).tolist(), color="C0")
    ax.set_yticks(range(len(names)), names, fontsize="x-small")
    ax.invert_yaxis()
    ax.set(xlabel="counterexamples (% of all inputs)", title=str(result.property))
    return ax


def plot_path(table: pd.DataFrame, *, ax: Axes | None = None, against: str = "accuracy") -> Axes:
    """The trade-off of a repair: a column of its table (`Repair.to_frame`) and the changed decisions over the measure.

    Parameters
    ----------
    table
        One line a model: the original first, then the levels of the path.
    ax
        Where; None is a new figure.
    against
        accuracy, auc, log_loss or rows_fair.
    """
    ax = _axes(ax)
    if against not in table.columns:
        raise ReportError(f"plot_path: there is no column '{against}'; columns are {', '.join(table.columns)}")
    measure = 100 * table["lower"]
    percent = against in ("accuracy", "rows_fair")
    ax.plot(measure, (100 if percent else 1) * table[against], "o-", color="C0", label=against.replace("_", " "))
    ax.set(xlabel="measure (%, certain lower bound)", ylabel=f"{against.replace('_', ' ')}{' (%)' if percent else ''}")
    other = ax.twinx()
    other.plot(measure, 100 * table["changed"], "s--", color="C1", label="changed decisions")
    other.set(ylabel="changed decisions (% of the rows)")
    lines = [*ax.get_lines(), *other.get_lines()]
    ax.legend(lines, [str(line.get_label()) for line in lines])
    return ax
