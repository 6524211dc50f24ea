"""Integers that look like codes of categories: they are taken as numbers, since nothing says otherwise, and asked about.

A number has an order that matters; a code has one by accident. Three things tell, each of them seen in real tables: the
column's name; one value far from all others, which follow each other (100 or 999 for 'unknown'); or neighbours that have no
more to do with each other than any two values, in how often they occur and in how often the label is 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise
from math import log

from boxqte.space.tables import Column

NAMES = {
    "branch", "brand", "category", "cat", "city", "class", "code", "codes", "color", "colour", "country", "county",
    "currency", "department", "dept", "district", "ethnic", "ethnicity", "gender", "group", "id", "ids", "industry",
    "job", "kind", "language", "marital", "month", "nation", "nationality", "occupation", "postal", "postcode",
    "product", "profession", "province", "purpose", "race", "region", "relationship", "religion", "sector", "sex",
    "state", "status", "type", "weekday", "workclass", "zip", "zipcode",
}  # fmt: skip
COUNTED = {
    "age", "amount", "count", "counts", "day", "days", "hours", "len", "length", "months", "n", "no", "num", "number",
    "percent", "rate", "score", "size", "sum", "total", "years",
}  # fmt: skip
MOST = 1000  # distinct values: with more, comparing all pairs takes long, and labels say little about each
LEAST_ROWS = 5  # a value, on average, for its label rate to say anything
CLASSES = 20  # a label with more distinct values is a number, and has no rates
APART = 3.0  # pairs of values differ this many times more in their label rates than by chance
ROUGH = 0.5  # neighbours differ at least half as much as any two values: their order says little


def asked_about(column: Column, label: Column | None) -> str | None:
    """The question about a column that is taken as integers, if it looks like codes; else None.

    Examples
    --------
    >>> asked_about(Column("native_country", "integer", [0, 3, 100, 7]), None)
    "note: native_country: 4 distinct integers 0 .. 100 look like codes (by its name), taken as numbers; if they are \
categories, categorical=['native_country']; if not, integer=['native_country']"
    >>> asked_about(Column("num_products", "integer", [0, 3, 100, 7]), None)
    """
    values = sorted(column.counts)
    reasons = []
    if _named_like_codes(column.name):
        reasons.append("by its name")
    far = _far_value(values)
    if far is not None:
        reasons.append(f"{far} is far from the others, which follow each other")
    if label is not None and _order_says_little(column, label):
        reasons.append("neighbours have as little in common as any two of them, in number and label")
    if not reasons:
        return None
    name = column.name
    return (
        f"note: {name}: {len(values)} distinct integers {int(values[0])} .. {int(values[-1])} look like codes "
        f"({'; '.join(reasons)}), taken as numbers; if they are categories, categorical=['{name}']; if not, integer=['{name}']"
    )


def _named_like_codes(name: str) -> bool:
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    return bool(words & NAMES) and not words & COUNTED


def _far_value(values: Sequence[int]) -> int | None:
    """The one value that lies further from the others than they span; these leave no gap."""
    for far, rest in ((values[-1], values[:-1]), (values[0], values[1:])):
        if len(rest) > 1 and rest[-1] - rest[0] == len(rest) - 1:
            distance = far - rest[-1] if far > rest[-1] else rest[0] - far
            if distance > len(rest):
                return int(far)
    return None


def _order_says_little(column: Column, label: Column) -> bool:
    """Whether neighbours are no more alike than any two values: in label rate (less what chance makes), and in frequency."""
    n = column.counts
    rows = len(column.values)
    if not 2 < len(n) <= MOST or rows < LEAST_ROWS * len(n) or not 1 < len(label.counts) <= CLASSES:
        return False
    usual = max(label.counts, key=lambda value: label.counts[value])
    hits = Counter(value for value, of in zip(column.values, label.values) if of == usual)
    share = label.counts[usual] / rows
    chance = share * (1 - share)
    values = sorted(n)
    rate = {value: hits[value] / n[value] for value in values}

    def apart(a: int, b: int) -> float:
        """The squared difference of two rates, as a multiple of what chance makes on average."""
        return float((rate[a] - rate[b]) ** 2 * n[a] * n[b] / (n[a] + n[b]) / chance)

    def spread(a: int, b: int) -> float:
        return log(n[a] / n[b]) ** 2

    pairs, near = [*combinations(values, 2)], [*pairwise(values)]
    labels, labels_near = (sum(apart(*pair) for pair in of) / len(of) for of in (pairs, near))
    counts, counts_near = (sum(spread(*pair) for pair in of) / len(of) for of in (pairs, near))
    return labels > APART and labels_near - 1 > ROUGH * (labels - 1) and counts_near > ROUGH * counts
