"""Hot spots as plain text for a terminal: a tree, each level one condition, and the rules to copy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from boxqte.basics.numbers import CELL, PHRASE, Style, number_text
from boxqte.report.text import table_text

if TYPE_CHECKING:
    import pandas as pd

TIMES = replace(CELL, percent=False)
HEAD = ("of all inputs", "unfair", "lift", "of the unfair")
WORDS = "unfair: of the inputs inside; lift: how many times the share of the whole"


def hotspots_text(table: pd.DataFrame) -> str:
    """The tree of the hot spots, the rules themselves, and what they hold together.

    Examples
    --------
    >>> import boxqte
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
    >>> print(hotspots_text(result.hotspots(top=1)).splitlines()[0])
    hot spots            of all inputs  unfair  lift  of the unfair
    """
    if not len(table):
        found = table.attrs["counterexample_lower"] > 0
        lift = number_text(table.attrs["lift"], table.attrs["lift"], TIMES)
        return f"no rule is hot enough (lift {lift})" if found else "no counterexample was found"
    return "\n".join([tree_text(table), "", rules_text(table), together_text(table), how_to_read(table)])


def how_to_read(table: pd.DataFrame) -> str:
    """What the numbers are."""
    confidence = table.attrs["confidence"]
    if confidence is None:
        return f"{WORDS}; one number is certain to its digits, two are certain bounds"
    certain = number_text(table["covered_lower"].iloc[-1], table["covered_upper"].iloc[-1], PHRASE)
    return (
        f"{WORDS}\nstatistical, not proved: from {table.attrs['draws']:,} random inputs, each decided exactly; all intervals\n"
        f"hold together with confidence {confidence}; certain: together {certain} of the counterexamples"
    )


def tree_text(table: pd.DataFrame) -> str:
    """One line a condition, those that follow it below; the number of the hot spot that it completes."""
    rows: list[tuple[str, ...]] = [("hot spots", *HEAD)]
    for node in table.attrs["tree"]:
        label = f"  ({node['hot_spot']})" if node["hot_spot"] else ""
        rows.append((f"{'  ' * node['level']}{node['condition']}{label}", *numbers(node)))
    return table_text(rows)


def rules_text(table: pd.DataFrame) -> str:
    """One line a rule, with what it and those above it hold together."""
    rows = [("", "together", "rule")]
    for i, row in enumerate(table.to_dict("records"), 1):
        rows.append((f"({i})", _cell(row, "covered"), str(row["rule"])))
    return table_text(rows)


def together_text(table: pd.DataFrame) -> str:
    """How much of the counterexamples all hot spots hold."""
    last = table.iloc[-1]
    share = _cell(last.to_dict(), "covered", PHRASE)
    whole = _cell(table.attrs, "counterexample", PHRASE)
    return f"together {share} of the counterexamples, which are {whole} of all inputs"


def numbers(row: Mapping[Any, Any]) -> tuple[str, ...]:
    """The cells of a rule or a node; empty for a node that was not counted."""
    if "mass" not in row:
        return ("",) * len(HEAD)
    return (
        number_text(row["mass"], row["mass"], CELL),
        _cell(row, "density"),
        _cell(row, "lift", TIMES),
        _cell(row, "share"),
    )


def _cell(row: Mapping[Any, Any], name: str, style: Style = CELL) -> str:
    """Certain bounds, or in their place the interval from draws; the line below says what it is."""
    drawn = f"{name}_statistical_lower" in row
    low, high = (row[f"{name}{'_statistical' if drawn else ''}_{end}"] for end in ("lower", "upper"))
    return number_text(low, None if math.isinf(high) else high, style, confidence=0.5 if drawn else None)
