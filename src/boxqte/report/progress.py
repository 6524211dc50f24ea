"""How far a run is, on standard error: a live panel (rich) in a terminal, plain lines every few seconds elsewhere.

with show_progress(time_limit=60) as progress:
    quantify(..., progress=progress)
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

    from boxqte.engines.protocol import Progress

PLAIN_SECONDS = 3.0
SPEED_SECONDS = 5.0  # nodes a second are an average over so long
REFRESH_PER_SECOND = 8
BAR = 40

Callback = Callable[["Progress"], None]


@contextlib.contextmanager
def show_progress(
    title: str = "",
    *,
    time_limit: float | None = None,
    quiet: bool = False,
    color: bool = True,
    stream: TextIO | None = None,
) -> Iterator[Callback | None]:
    """A callback for `quantify(progress=...)` that shows the run while the block lasts; None if quiet."""
    stream = sys.stderr if stream is None else stream
    if quiet or stream is None:
        yield None
    elif is_terminal(stream):
        panel = LivePanel(title, time_limit, color, stream)
        with panel:
            yield panel
    else:
        yield PlainLines(title, time_limit, stream)


@contextlib.contextmanager
def show_questions(
    *, quiet: bool = False, color: bool = True
) -> Iterator[Callable[[str, float | None, Progress], None] | None]:
    """A callback for several questions, one display for each: its name, its time limit and how far it is."""
    with contextlib.ExitStack() as stack:
        current: list[Any] = [None, None]

        def show(name: str, limit: float | None, progress: Progress) -> None:
            if current[0] != (name, limit):  # a question may be asked again, with the time that the others have left
                stack.close()
                panel = show_progress(name, time_limit=limit, color=color)
                current[:] = (name, limit), stack.enter_context(panel)
            current[1](progress)

        yield None if quiet else show


@contextlib.contextmanager
def show_steps(
    title: str,
    *,
    time_limit: float | None = None,
    quiet: bool = False,
    color: bool = True,
    stream: TextIO | None = None,
) -> Iterator[Callable[[str], None] | None]:
    """A callback for work in named steps: one line that is drawn over in a terminal, one every few seconds elsewhere."""
    stream = sys.stderr if stream is None else stream
    started = time.perf_counter()

    def line(step: str) -> str:
        seconds = time.perf_counter() - started
        left = time_left_words(seconds, time_limit)
        return ", ".join(part for part in (f"{title}: {seconds:8.1f} s  {step}", left) if part)

    if quiet or stream is None:
        yield None
    elif is_terminal(stream):
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        current = ["beginning"]
        console = Console(file=stream, no_color=not color, highlight=False)
        with Live(
            console=console,
            get_renderable=lambda: Text(line(current[0])),
            transient=True,
            refresh_per_second=REFRESH_PER_SECOND,
        ):
            yield lambda step: current.__setitem__(0, step)
    else:
        following = [0.0]

        def say(step: str) -> None:
            now = time.perf_counter()
            if now >= following[0]:
                following[0] = now + PLAIN_SECONDS
                print(line(step), file=stream, flush=True)

        yield say


def is_terminal(stream: Any) -> bool:
    """Whether lines can be drawn over; TERM=dumb says that they cannot."""
    try:
        return bool(stream.isatty()) and os.environ.get("TERM", "") != "dumb"
    except (AttributeError, ValueError):
        return False


def wants_color(no_color: bool) -> bool:
    """Colours, unless the option or NO_COLOR (https://no-color.org: any text but none) is against them."""
    return not no_color and not os.environ.get("NO_COLOR")


class Speed:
    """Nodes a second over the last few seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque([(0.0, 0)])

    def update(self, seconds: float, nodes: int) -> float:
        self._points.append((seconds, nodes))
        while len(self._points) > 2 and self._points[1][0] < seconds - SPEED_SECONDS:
            self._points.popleft()
        (start, before), (end, after) = self._points[0], self._points[-1]
        return (after - before) / (end - start) if end > start else 0.0


class PlainLines:
    """One line every few seconds, for logs."""

    def __init__(self, title: str, time_limit: float | None, stream: TextIO):
        self.title, self.time_limit, self.stream = title, time_limit, stream
        self._next = PLAIN_SECONDS
        self._speed = Speed()
        self._waiting = False

    def __call__(self, progress: Progress) -> None:
        speed = self._speed.update(progress.seconds, progress.nodes)
        if progress.seconds < self._next:
            return
        self._next = progress.seconds + PLAIN_SECONDS
        started = bool(progress.nodes or progress.decided)
        if not started and self._waiting:
            return  # nothing has happened since the line that says so
        self._waiting = not started
        from boxqte.report.text import progress_text

        parts = [progress_text(progress)]
        if started:
            parts += [f"{speed:,.0f} a second", time_left_words(progress.seconds, self.time_limit)]
        line = ", ".join(part for part in parts if part)
        print(f"{self.title}: {line}" if self.title else line, file=self.stream, flush=True)


def time_left_words(seconds: float, time_limit: float | None) -> str:
    """What is left of the time limit, in words; empty if there is none."""
    if time_limit is None or math.isinf(time_limit):
        return ""
    return f"{max(time_limit - seconds, 0):.0f} s left"


class LivePanel:
    """A few lines that are drawn over: bounds as a bar, gap, decided share, open boxes, speed, time left.

    It goes away at the end, since the answer is printed then. The clock runs by itself, so that a long
    step does not look like a hang.
    """

    def __init__(self, title: str, time_limit: float | None, color: bool, stream: TextIO):
        from rich.console import Console
        from rich.live import Live

        self.title, self.time_limit = title, time_limit
        self._started = time.perf_counter()
        self._last: Progress | None = None
        self._speed, self._rate = Speed(), 0.0
        console = Console(file=stream, no_color=not color, highlight=False)
        self._live = Live(
            console=console, get_renderable=self.render, transient=True, refresh_per_second=REFRESH_PER_SECOND
        )

    def __enter__(self) -> LivePanel:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def __call__(self, progress: Progress) -> None:
        self._rate = self._speed.update(progress.seconds, progress.nodes)
        self._last = progress

    def render(self) -> RenderableType:
        """What the terminal shows now."""
        from rich.table import Table
        from rich.text import Text

        seconds = time.perf_counter() - self._started
        left = time_left_words(seconds, self.time_limit)
        clock = f"{seconds:.1f} s" + (f", {left}" if left else "")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        grid.add_column()
        if self.title:
            grid.add_row(Text("question"), Text(self.title))
        last = self._last
        if last is None or (not last.nodes and not last.decided):
            grid.add_row("starting", Text(f"{clock}"))
            return grid
        from boxqte.basics.numbers import short_up
        from boxqte.report.text import bounds_words

        grid.add_row(last.what, _bounds_bar(last.lower, last.upper))
        grid.add_row("", Text(f"{bounds_words(last)}, gap {short_up(last.upper - last.lower)}"))
        grid.add_row("decided", Text(f"{100 * last.decided:.4f} % of all inputs"))
        counted = "nodes" if last.statistical is None else "points"
        boxes = f", {last.open_boxes:,} boxes open" if last.statistical is None else ""
        grid.add_row("search", Text(f"{last.nodes:,} {counted}, {self._rate:,.0f} a second{boxes}"))
        grid.add_row("time", Text(f"{clock}; Ctrl-C stops with these bounds"))
        return grid


def _bounds_bar(lower: float, upper: float) -> Any:
    """0 to 1 as a line: proved below, still open, proved above."""
    from rich.text import Text

    first = min(int(lower * BAR), BAR - 1)
    last = max(math.ceil(upper * BAR), first + 1)
    bar = Text("0 ")
    bar.append("█" * first, style="green")
    bar.append("▒" * (last - first), style="yellow")
    bar.append("░" * (BAR - last), style="red")
    return bar.append(" 1")
