"""Charts as hand-made SVG: small, no script, coloured by the page's own style so that they follow dark and light."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from html import escape

from boxqte.basics.numbers import CELL, kind_of, number_text, rounded

LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 46
STEPS = 300  # a point that moves less than the 300th part of the chart is not seen


@dataclass(frozen=True)
class Frame:
    """The plot area of a chart, and where numbers lie in it."""

    width: int
    height: int
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.x_range
        return LEFT + (self.width - LEFT - RIGHT) * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return TOP + (self.height - TOP - BOTTOM) * (high - value) / (high - low)


def bounds_chart(trace: Sequence[tuple[float, float, float]], name: str, *, width: int, height: int) -> str:
    """Lower and upper bound over the seconds of a run; the truth lies in the band between them."""
    points = _thinned([(0.0, 0.0, 1.0), *trace])
    seconds = max(points[-1][0], 1e-3)
    frame = Frame(width, height, (0.0, seconds), (0.0, 1.0))
    lower = _stairs(frame, [(at, bound) for at, bound, _ in points], seconds)
    upper = _stairs(frame, [(at, bound) for at, _, bound in points], seconds)
    band = f'<path class="band" d="M{_joined(lower)}L{_joined(list(reversed(upper)))}Z"/>'
    lines = f'<path class="lower" d="M{_joined(lower)}"/><path class="upper" d="M{_joined(upper)}"/>'
    axes = _axes(frame, "seconds", "measure", x_ticks=ticks(0, seconds, width // 90), y_ticks=ticks(0, 1, 5))
    last = points[-1]
    label = (
        f"{name}: bounds on the measure over time. They begin at 0 and 1; after {last[0]:.3g} seconds the lower bound "
        f"is {rounded(last[1], ROUND_FLOOR, 6)} and the upper bound is {rounded(last[2], ROUND_CEILING, 6)}."
    )
    return _svg(frame, label, axes + band + lines)


@dataclass(frozen=True)
class Step:
    """A cell of a numeric attribute: from low to high, with bounds on its share; None if nothing useful is known."""

    low: float
    high: float
    ends: tuple[float, float] | None


def steps_chart(
    cells: Sequence[Step], name: str, unit: str, *, width: int, height: int, confidence: float | None = None
) -> str:
    """The unfair share by value of a numeric attribute: up to the lower bound a bar, from there to the upper one a band."""
    known = [cell.ends for cell in cells if cell.ends is not None]
    most = max((upper for _, upper in known), default=0.0) or 1.0
    first, last = cells[0].low, cells[-1].high
    frame = Frame(width, height, (first, last if last > first else first + 1), (0.0, most))
    parts = []
    kind = kind_of(0, 1, confidence)
    for cell in cells:
        if cell.ends is None:
            continue
        left, right = frame.x(cell.low), max(frame.x(cell.high), frame.x(cell.low) + 1)
        lower, upper = cell.ends
        data = f'data-low="{cell.low!r}" data-high="{cell.high!r}" data-lower="{lower!r}" data-upper="{upper!r}"'
        spans = (("bar", 0.0, lower, ""), ("band", lower, upper, f' {data} data-kind="{kind}"'))
        for style, start, stop, more in spans:
            top = frame.y(stop)
            if stop > start or more:
                parts.append(f'<rect class="{style}" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
                             f'height="{frame.y(start) - top:.1f}"{more}/>')  # fmt: skip
    axes = _axes(frame, name, unit, x_ticks=ticks(*frame.x_range, width // 90), y_ticks=ticks(0, most, 4), percent=True)
    label = f"{unit} by {name}, from {first:.6g} to {last:.6g}, {kind} bounds"
    if known:
        peak = max((cell for cell in cells if cell.ends is not None), key=lambda cell: cell.ends or (0.0, 0.0))
        shown = number_text(*(peak.ends or (0.0, 0.0)), CELL, confidence=confidence)
        label += f"; the most, {shown}, between {peak.low:.6g} and {peak.high:.6g}"
    if len(known) < len(cells):
        label += f"; {len(cells) - len(known)} of {len(cells)} intervals are not decided"
    label += "."
    return _svg(frame, label, axes + "".join(parts))


def bar(lower: float, upper: float) -> str:
    """Bounds as a bar for a table cell; the numbers stand beside it, so it is hidden from screen readers."""
    start, stop = (100 * min(max(end, 0.0), 1.0) for end in (lower, upper))
    return (
        '<svg class="cell" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        f'<rect class="rail" width="100" height="8"/><rect class="bar" width="{start:.2f}" height="8"/>'
        f'<rect class="band" x="{start:.2f}" width="{stop - start:.2f}" height="8"/></svg>'
    )


def ticks(low: float, high: float, wanted: int) -> list[float]:
    """Round numbers between the ends, about as many as wanted.

    Examples
    --------
    >>> ticks(0, 1, 5), ticks(0, 37, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 10.0, 20.0, 30.0])
    """
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    rough = span / max(wanted, 1)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(s * magnitude for s in (1, 2, 5, 10) if s * magnitude >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """A tick's number: as short as it can be."""
    if value and (abs(value) >= 1e7 or abs(value) < 1e-4):
        return f"{value:.3g}"
    return f"{value:,.6g}" if abs(value) < 1e5 else f"{value:,.0f}"


def _thinned(points: Sequence[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    span = max(points[-1][0], 1e-9)
    kept = [points[0]]
    for point in points[1:-1]:
        moved = max(abs(point[1] - kept[-1][1]), abs(point[2] - kept[-1][2]))
        if moved >= 1 / STEPS and (point[0] - kept[-1][0] >= span / STEPS or moved >= 0.01):
            kept.append(point)
    return [*kept, points[-1]]


def _stairs(frame: Frame, points: Sequence[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    """Bounds hold until better ones come, so they are stairs."""
    corners = []
    for i, (at, value) in enumerate(points):
        if i:
            corners.append((frame.x(at), frame.y(points[i - 1][1])))
        corners.append((frame.x(at), frame.y(value)))
    corners.append((frame.x(end), frame.y(points[-1][1])))
    return corners


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _axes(
    frame: Frame, x_name: str, y_name: str, *, x_ticks: Sequence[float], y_ticks: Sequence[float], percent: bool = False
) -> str:
    bottom, right = frame.height - BOTTOM, frame.width - RIGHT
    parts = []
    for value in y_ticks:
        y = frame.y(value)
        shown = f"{number(round(100 * value, 10))} %" if percent else number(value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>')
    for value in x_ticks:
        x = frame.x(value)
        anchor = "end" if x > right - 12 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="{anchor}">{number(value)}</text>')
    middle = (LEFT + right) / 2
    short = x_name if len(x_name) <= 40 else x_name[:37] + "..."
    parts.append(
        f'<text class="name" x="{middle:.0f}" y="{frame.height - 8}" text-anchor="middle">{escape(short)}</text>'
    )
    height = (TOP + bottom) / 2
    parts.append(
        f'<text class="name" transform="translate(13 {height:.0f}) rotate(-90)" text-anchor="middle">{escape(y_name)}</text>'
    )
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
    return "".join(parts)


def _svg(frame: Frame, label: str, content: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {frame.width} {frame.height}" role="img" aria-label="{escape(label)}">'
        f"{content}</svg>"
    )
