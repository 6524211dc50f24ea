"""Group rates as plain text for a terminal."""

from __future__ import annotations

from boxqte.answers.rates import GroupRates, RowRate
from boxqte.answers.result import Bounds
from boxqte.basics.numbers import CELL, LONG, number_text
from boxqte.exact import plain

LABEL = 12


def rates_text(found: GroupRates) -> str:
    """One line a group, then how far apart the groups are, and what was required.

    Examples
    --------
    >>> from boxqte import group_rates
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> print(rates_text(group_rates(loan_ensemble(), loan_space(), "race", engine="exhaustive")))  # doctest: +ELLIPSIS
    question     the share of class 1 by race; world: the space
    ...
    """
    rows: list[tuple[str, ...]] = [("group", "share of the space", "rate of class 1", "by the best rate")]
    for group in found.groups:
        ratio = "" if group.ratio is None else _cell(group.ratio)
        rows.append((group.name, f"{group.mass:.4g}", _cell(group.rate), ratio))
    if found.confidence is not None:
        rows[0] += (f"in the rows (interval at {found.confidence:g})",)
        rows[1:] = [
            (*row, "" if group.data is None else _rows_text(group.data)) for row, group in zip(rows[1:], found.groups)
        ]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = ["  " + "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows]
    ratio = "unknown: no group surely has a rate above 0" if found.ratio is None else _long(found.ratio)
    head = [
        ("question", f"the share of class 1 by {', '.join(found.sensitive)}; world: the space"),
        ("decision", found.decision),
        ("status", f"{found.status}, {found.seconds:.2f} s"),
    ]
    tail = [("difference", f"{_long(found.difference)}, the largest rate minus the smallest"),
            ("ratio", f"{ratio}, the smallest rate by the largest" if found.ratio else ratio),
            ("guarantee", "certain bounds, rounded outward; exact once converged, but for rounding")]  # fmt: skip
    if found.verdict is not None and found.require_ratio is not None:
        tail.append(("required", f"ratio at least {plain(found.require_ratio)}: {found.verdict}"))
    text = [f"{name:<{LABEL}} {what}" for name, what in head]
    return "\n".join([*text, "", *lines, "", *(f"{name:<{LABEL}} {what}" for name, what in tail)])


def _rows_text(rows: RowRate) -> str:
    if rows.rate is None or rows.lower is None or rows.upper is None:
        return "no rows"
    interval = number_text(rows.lower, rows.upper, CELL, confidence=0.5)  # the caption says what it is
    return f"{rows.positive} of {rows.rows} = {100 * rows.rate:.3g} % ({interval})"


def _cell(bounds: Bounds) -> str:
    return number_text(bounds.lower, bounds.upper, CELL)


def _long(bounds: Bounds) -> str:
    return number_text(bounds.lower, bounds.upper, LONG)
