"""Group rates as plain text for a terminal."""

from __future__ import annotations

from fractions import Fraction

from boxqte.answers.rates import GUARANTEE, GroupRates, RowRate
from boxqte.answers.result import Bounds
from boxqte.basics.numbers import CELL, LONG, number_text
from boxqte.exact import plain
from boxqte.report.text import ratio_text, sheet_text


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
    head = [
        ("question", f"the share of class 1 by {', '.join(found.sensitive)}; world: {found.world}"),
        ("decision", found.decision),
        ("status", f"{found.status}, {found.seconds:.2f} s"),
        *(("remark", remark) for remark in found.remarks),
    ]
    ratio = ratio_text(found) + ("" if found.ratio is None else ", the smallest rate by the largest")
    tail = [
        ("difference", f"{_long(found.difference)}, the largest rate minus the smallest"),
        ("ratio", ratio),
        *_likely(found),
        ("guarantee", GUARANTEE),
    ]
    if found.rows_outside:
        lie = "row lies" if found.rows_outside == 1 else "rows lie"
        tail.append(("rows", f"{found.rows_outside:,} {lie} outside the space and count for nothing"))
    if found.verdict is not None and found.require_ratio is not None:
        why = f"; {found.why}" if found.why else ""
        tail.append(("required", f"ratio at least {plain(found.require_ratio)}: {found.verdict}{why}"))
    return sheet_text(head, rates_table(found), tail)


def rates_table(found: GroupRates) -> list[tuple[str, ...]]:
    """The head, then a row a group; all numbers are certain bounds but those of the rows."""
    rows: list[tuple[str, ...]] = [("group", "share of the space", "rate of class 1", "by the best rate")]
    if found.statistical is not None:
        rows[0] += ("statistical",)
    for group in found.groups:
        ratio = "" if group.ratio is None else _cell(group.ratio)
        drawn = () if found.statistical is None else ("" if group.statistical is None else _cell(group.statistical),)
        rows.append((group.name, number_text(group.mass, group.mass, CELL), _cell(group.rate), ratio, *drawn))
    if found.confidence is not None:
        rows[0] += (f"in the rows (interval at {found.confidence:g})",)
        rows[1:] = [(*row, "" if g.data is None else _rows_text(g.data)) for row, g in zip(rows[1:], found.groups)]
    return rows


def _likely(found: GroupRates) -> list[tuple[str, str]]:
    """What random inputs say where the certain bounds are wide."""
    if found.statistical is None:
        return []
    said, sure = found.statistical, found.statistical.confidence
    gap = number_text(said.difference.lower, said.difference.upper, LONG, confidence=sure)
    ratio = "unknown" if said.ratio is None else number_text(said.ratio.lower, said.ratio.upper, LONG, confidence=sure)
    return [("statistical", f"difference {gap}"), ("", f"ratio {ratio}")]


def _rows_text(rows: RowRate) -> str:
    if rows.lower is None or rows.upper is None:
        return "no rows"
    interval = number_text(rows.lower, rows.upper, CELL, confidence=0.5)  # the caption says what it is
    share = Fraction(rows.positive, rows.rows)
    return f"{rows.positive:,} of {rows.rows:,} = {number_text(share, share, CELL)} ({interval})"


def _cell(bounds: Bounds) -> str:
    return number_text(bounds.lower, bounds.upper, CELL)


def _long(bounds: Bounds) -> str:
    return number_text(bounds.lower, bounds.upper, LONG)
