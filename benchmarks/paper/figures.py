"""Figures of the experiments as SVG and PNG: bounds over time, and growth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.paper.experiment import Rows, Settings
from benchmarks.paper.records import RecordError, Row
from benchmarks.paper.runs import Job
from benchmarks.paper.scaling import Point, growth
from benchmarks.paper.session import finished

COLORS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d98200", "#555555")


def bounds_figures(folder: str | Path, name: str, jobs: Sequence[Job], rows: Rows) -> list[Path]:
    """Lower and upper bound over time, one small plot a configuration, one figure a model size."""
    written = []
    for size in dict.fromkeys(job.size for job in jobs):
        by_configuration: dict[str, dict[str, Row]] = {}
        for job in jobs:
            row = rows(job)
            if job.size == size and row is not None and finished(row) and row.get("trace"):
                by_configuration.setdefault(job.configuration.name, {})[job.method] = row
        if by_configuration:
            written += _saved(_bounds(by_configuration), folder, f"{name}-bounds-{size}")
    return written


def _bounds(by_configuration: Mapping[str, Mapping[str, Row]]) -> Any:
    plt = _pyplot()
    across = min(4, len(by_configuration))
    down = math.ceil(len(by_configuration) / across)
    figure, axes = plt.subplots(down, across, figsize=(3.2 * across, 2.3 * down), squeeze=False, layout="constrained")
    methods = list(dict.fromkeys(m for part in by_configuration.values() for m in part))
    for at, (name, part) in zip(axes.flat, by_configuration.items()):
        for method, row in part.items():
            seconds, lower, upper = zip(*([0.0, 0.0, 1.0], *row["trace"]))
            color = COLORS[methods.index(method) % len(COLORS)]
            # A logarithmic axis has no 0: the first hundredth of a second is left of the figure.
            shown = [max(s, 0.01) for s in seconds]
            at.step(shown, lower, where="post", color=color, linewidth=1.2, label=method)
            at.step(shown, upper, where="post", color=color, linewidth=1.2, linestyle="--")
        at.set(xscale="log", ylim=(-0.02, 1.02))
        at.set_title(name, fontsize=8)
        at.tick_params(labelsize=7)
    for at in list(axes.flat)[len(by_configuration) :]:
        at.set_visible(False)
    handles = {label: handle for at in axes.flat for handle, label in zip(*at.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, fontsize=8)
    figure.suptitle("bounds on the measure over seconds: lower solid, upper dashed", fontsize=9)
    return figure


def scaling_figures(folder: str | Path, every: Sequence[Point], rows: Rows, settings: Settings) -> list[Path]:
    """Seconds against what is swept, one figure a sweep; runs that did not converge are hollow, at their limit."""
    written = []
    for sweep in dict.fromkeys(p.sweep for p in every):
        figure = _scaling(sweep, [p for p in every if p.sweep == sweep], rows, settings)
        if figure is not None:
            written += _saved(figure, folder, f"scaling-{sweep}")
    return written


def _scaling(sweep: str, part: Sequence[Point], rows: Rows, settings: Settings) -> Any:
    lines: dict[str, list[tuple[float, Row]]] = {}
    for p in part:
        row = rows(p.job)
        if row is not None and finished(row):
            lines.setdefault(p.line, []).append((p.at, row))
    if not lines:
        return None
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for i, (line, measured) in enumerate(lines.items()):
        color = COLORS[i % len(COLORS)]
        done = [(x, row["seconds"]) for x, row in measured if row["converged"]]
        late = [(x, row["seconds"]) for x, row in measured if not row["converged"]]
        fitted = growth(measured) if sweep in ("trees", "depth", "attributes") else None
        label = line if fitted is None else f"{line}: exponent {fitted.power:.1f}"
        axes.plot(*(zip(*done) if done else ([], [])), "o-", color=color, markersize=4, linewidth=1.2, label=label)
        if late:
            axes.plot(*zip(*late), "o", color=color, markerfacecolor="white", markersize=5)
    axes.set(xlabel=sweep, ylabel="seconds", yscale="log")
    if sweep in ("trees", "attributes"):
        axes.set_xscale("log")
    places = sorted({x for measured in lines.values() for x, _ in measured})
    axes.set_xticks(places, [f"{x:g}" for x in places])
    axes.minorticks_off()
    axes.set_title(f"box engine, {settings.workers} workers; hollow: not converged in {settings.limit:g} s", fontsize=9)
    axes.legend(fontsize=8)
    return figure


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise RecordError("figures need matplotlib: pip install boxqte[plot] (or --no-figures)") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "boxqte"  # the same figure is the same file
    import matplotlib.pyplot

    return matplotlib.pyplot


def _saved(figure: Any, folder: str | Path, name: str) -> list[Path]:
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = [target / f"{name}.svg", target / f"{name}.png"]
    figure.savefig(paths[0], metadata={"Date": None})
    figure.savefig(paths[1], dpi=150)
    _pyplot().close(figure)
    return paths
