"""Blame as text: which trees and splits are unfair, how much goes with each of them, and what it costs."""

from __future__ import annotations

import math
from typing import Any

from boxqte.auditing.findings import Blamed
from boxqte.basics.numbers import CELL, PHRASE, Style, number_text
from boxqte.report.text import table_text

NOTHING = 1e-9  # two exact searches differ by their rounding, which is far less
NOTABLE = 0.01


def blame_text(table: Any, top: int | None = None) -> str:
    """One line a tree, then one a split of it; and in a sentence whether it is one of them or all.

    Examples
    --------
    >>> import boxqte
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> table = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race")).blame(splits=False)
    >>> print(blame_text(table))
    blinded  unfair mass removed  of all of it  measure then
    tree 1   15.1 %               50 %          0.848515
    tree 0   nothing              0 %           0.697030
    2 of 3 trees test race; blinding tree 1 alone removes 50 % of the unfair mass; 1 of them removes 1 % or more
    two numbers are certain bounds, one number is certain to the digits shown
    """
    facts = table.attrs
    trees = table.loc[table["split"] == "", "tree"].tolist()
    if not trees:
        return sentences(table)[0]
    rows: list[tuple[str, ...]] = [("blinded", "unfair mass removed", "of all of it", "measure then")]
    has_loss = facts["log_loss"] is not None
    rows = [(*rows[0], "log-loss")] if has_loss else rows
    for line in blamed(table, top):
        named = f"  {line.name}" if line.is_split else line.name
        rows.append((named, line.removed, line.share, line.measure, *([line.loss] if has_loss else [])))
    said = [table_text(rows)]
    if top is not None and top < len(trees):
        said.append(f"... and {len(trees) - top} more trees")
    return "\n".join([*said, *sentences(table)])


def blamed(table: Any, top: int | None = None) -> list[Blamed]:
    """The lines to show, of the first trees; a tree and its only split are one."""
    facts = table.attrs
    records = table.to_dict("records")
    shown = set(table.loc[table["split"] == "", "tree"].tolist()[:top])
    splits: dict[int, list[str]] = {}
    for line in records:
        if line["split"]:
            splits.setdefault(line["tree"], []).append(_name(line))
    found = []
    for line in records:
        own = splits.get(line["tree"], [])
        if line["tree"] not in shown or (line["split"] and len(own) == 1):
            continue
        name = _name(line) if line["split"] or len(own) != 1 else f"{_name(line)}: {own[0]}"
        loss = "" if facts["log_loss"] is None else f"{line['log_loss']:+.6f}"
        found.append(Blamed(name, *_numbers(line, facts), loss, bool(line["split"])))
    return found


def _name(line: dict[str, Any]) -> str:
    if line["split"] == "":
        return f"tree {line['tree']}" + (f" ({line['splits']} splits)" if line["splits"] > 1 else "")
    return f"{line['split']}" + (
        "" if line["node"] is None or line["node"] != line["node"] else f" (node {line['node']})"
    )


def _numbers(line: dict[str, Any], facts: Any) -> tuple[str, str, str]:
    if line["status"] == "not searched":
        return "not searched", "", ""
    removed = _signed(line["removed_lower"], line["removed_upper"])
    if math.isnan(line["measure_lower"]):
        return removed, _share_text(line, facts), "undefined"
    measure = number_text(line["measure_lower"], line["measure_upper"], MEASURE)
    return removed, _share_text(line, facts), measure


MEASURE = Style((6, 7, 8), "{} to {}", labelled=False)


def _share(line: dict[str, Any], facts: Any) -> tuple[float, float] | None:
    """Bounds on the share of the unfair mass that blinding removes."""
    low, high = facts["counterexample"]
    if low <= 0:
        return None
    most, least = low - line["removed_lower"], high - line["removed_upper"]  # of what is unfair then
    return 1 - most / low, 1 - least / high


def _share_text(line: dict[str, Any], facts: Any, style: Style = CELL) -> str:
    share = _share(line, facts)
    if share is None:
        return ""
    return "0 %" if max(map(abs, share)) < NOTHING else _signed(*share, style)


def _signed(low: float, high: float, style: Style = CELL) -> str:
    if max(abs(low), abs(high)) < NOTHING:
        return "nothing"
    if high < 0:
        return f"-{number_text(-high, -low, style)}"
    if low < 0:
        return style.pattern.format(f"-{number_text(-low, -low, style)}", number_text(high, high, style))
    return number_text(low, high, style)


def sentences(table: Any) -> list[str]:
    """Whether it is one of the trees or all, and what the numbers are."""
    facts = table.attrs
    names = " or ".join(facts["sensitive"])
    if not len(table):
        return [f"none of the {facts['trees']} trees tests {names}: there is nothing to blame"]
    whole = table[table["split"] == ""]
    said = f"{len(whole)} of {facts['trees']} trees test {names}"
    first = whole.iloc[0].to_dict()
    shares = [_share(line, facts) for line in whole.to_dict("records")]
    if shares[0] is not None and first["converged"] and shares[0][0] > 0:
        text = _share_text(first, facts, PHRASE)
        notable = sum(1 for share in shares if share is not None and share[0] >= NOTABLE)
        said += f"; blinding tree {first['tree']} alone removes {text} of the unfair mass; {notable} of them "
        said += f"{'removes' if notable == 1 else 'remove'} 1 % or more"
    lines = [said]
    if facts["rows"] is not None:
        outside = f" ({facts['rows_outside']} more lie outside the space)" if facts["rows_outside"] else ""
        loss = f"; the model's log-loss on them is {facts['log_loss']:.6f}" if facts["log_loss"] is not None else ""
        lines.append(f"the child that more of {facts['rows']} rows reach stays{outside}{loss}")
    open_ = int((~table["converged"]).sum()) - facts["not_searched"]
    if open_ or facts["not_searched"]:
        parts = [f"{open_} searches were ended by a limit"] if open_ else []
        parts += [f"{facts['not_searched']} were not made"] if facts["not_searched"] else []
        lines.append(f"{' and '.join(parts)}: more time (--time-limit) tells more")
    return [*lines, "two numbers are certain bounds, one number is certain to the digits shown"]
