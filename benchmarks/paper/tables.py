"""Tables as text, Markdown, LaTeX and CSV. Columns that hold the paper's own figures are marked in every form."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PAPER = "paper: "
"""How the heading of a column begins whose figures the paper printed and nobody measured here."""


@dataclass(frozen=True)
class Table:
    """A heading, columns and rows of text; the rows below `summary` sum up."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    summary: Sequence[tuple[str, ...]] = ()
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in (*self.rows, *self.summary):
            if len(row) != len(self.columns):
                raise ValueError(f"a row of '{self.title}' has {len(row)} cells for {len(self.columns)} columns: {row}")

    def text(self) -> str:
        """For a terminal."""
        widths = [
            max(len(row[i]) for row in (self.columns, *self.rows, *self.summary)) for i in range(len(self.columns))
        ]
        right = self._numeric()

        def line(row: Sequence[str]) -> str:
            cells = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right)]
            return "  ".join(cells).rstrip()

        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        parts = [self.title, line(self.columns), rule, *map(line, self.rows)]
        if self.summary:
            parts += [rule, *map(line, self.summary)]
        return "\n".join([*parts, *(f"  {note}" for note in self.notes)])

    def markdown(self) -> str:
        """For the documentation."""
        right = self._numeric()
        lines = [
            f"**{self.title}**",
            "",
            _piped(self.columns),
            _piped("---:" if r else "---" for r in right),
            *map(_piped, self.rows),
            *(_piped(f"**{cell}**" if cell else "" for cell in row) for row in self.summary),
        ]
        if self.notes:
            lines += ["", *(f"{note}  " for note in self.notes[:-1]), self.notes[-1]]
        return "\n".join(lines)

    def latex(self) -> str:
        """A tabular inside a table; needs no package."""
        spec = "".join("r" if r else "l" for r in self._numeric())
        lines = [
            r"\begin{table}[t]",
            rf"\caption{{{_escaped(self.title)}}}",
            r"\centering",
            rf"\begin{{tabular}}{{{spec}}}",
            r"\hline",
            _ampersands(self.columns),
            r"\hline",
            *map(_ampersands, self.rows),
            *([r"\hline", *map(_ampersands, self.summary)] if self.summary else []),
            r"\hline",
            r"\end{tabular}",
            *(rf"\par\footnotesize {_escaped(note)}" for note in self.notes),
            r"\end{table}",
        ]
        return "\n".join(lines)

    def csv(self) -> str:
        """For a spreadsheet; summary rows included, notes not."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([self.columns, *self.rows, *self.summary])
        return out.getvalue()

    def _numeric(self) -> list[bool]:
        return [any(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]


def seconds_text(seconds: float | None) -> str:
    """Seconds with as many digits as are worth reading.

    Examples
    --------
    >>> seconds_text(0.0123), seconds_text(3.21), seconds_text(67.95), seconds_text(None)
    ('0.012', '3.2', '68', '')
    """
    if seconds is None:
        return ""
    digits = 3 if seconds < 0.1 else 2 if seconds < 1 else 1 if seconds < 10 else 0
    return f"{seconds:.{digits}f}"


def gap_text(gap: float | None) -> str:
    """A gap as the paper prints it, with '<.01' for what would round to 0.00 but is not.

    Examples
    --------
    >>> gap_text(0.0), gap_text(0.004), gap_text(0.3912)
    ('0.00', '<.01', '0.39')
    """
    if gap is None:
        return ""
    return "0.00" if gap == 0 else "<.01" if gap < 0.01 else f"{gap:.2f}"


def bytes_text(size: float | None) -> str:
    """Bytes in MiB.

    Examples
    --------
    >>> bytes_text(341_536_768)
    '326 MiB'
    """
    return "" if size is None else f"{size / 2**20:.0f} MiB"


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing."""
    import math

    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def _is_number(text: str) -> bool:
    try:
        float(text.lstrip("<>").replace(",", "").split(" ")[0])
    except ValueError:
        return False
    return True


def _piped(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _ampersands(cells: Iterable[str]) -> str:
    return " & ".join(map(_escaped, cells)) + r" \\"


def _escaped(text: str) -> str:
    special = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\~{}",
               "^": r"\^{}", "\\": r"\textbackslash{}", "<": r"$<$", ">": r"$>$"}  # fmt: skip
    return "".join(special.get(c, c) for c in text)
