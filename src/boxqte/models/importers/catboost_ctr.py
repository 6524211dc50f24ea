"""CatBoost's target statistics (CTR): numbers that a category has by the table in the model.

What the library does and we keep: a category's hash is looked up in the statistic's table; the counts there give
(good + prior) / (total + prior's denominator), then (that + shift) * scale, all in float32, and a split asks whether the
result is above its border. A category that the table does not have counts zero. So each split is a set of categories.
A statistic of several features together is no function of one column, and is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.importers.structure import MAX_FEATURES, get, integer, real

MULTIPLIER = 0x4906BA494954CB65
INVERSE = pow(MULTIPLIER, -2, 2**64)
NO_BUCKET = 2**64 - 1
COUNTS = ("Borders", "Buckets")
MEANS = ("BinarizedTargetMeanValue", "FloatTargetMeanValue")
TOTALS = ("Counter", "FeatureFreq")
MAX_TABLE = 5_000_000
ONE_FEATURE = "train with max_ctr_complexity=1, or with one_hot_max_size at least the number of categories"


@dataclass(frozen=True, eq=False)
class Statistic:
    """One target statistic of one categorical feature: its number for each hash that its table has, and for others."""

    feature: int
    """The feature's place among the categorical ones."""
    target_border: int
    borders: tuple[float, ...]
    table: Mapping[int, float]
    """By the hash as CatBoost writes it in splits, that is, as signed 32 bits."""
    otherwise: float


@dataclass(frozen=True)
class Unread:
    """A statistic that is not read, and why: refused once a tree uses it."""

    target_border: int
    borders: tuple[float, ...]
    why: str
    together: tuple[tuple[str, int], ...] = ()
    """For a statistic of several features: of which kind each is ("cat", "float"), and its place among those."""


def read_statistics(info: Mapping[str, Any], document: Mapping[str, Any], where: str) -> list[Statistic | Unread]:
    """The statistics in the order in which `split_index` counts their borders."""
    entries = info.get("ctrs") or []
    if not isinstance(entries, list):
        raise ModelError(f"{where}.ctrs: expected a list, found {shown(entries)}")
    tables = document.get("ctr_data") or {}
    return [_statistic(entry, tables, f"{where}.ctrs[{at}]") for at, entry in enumerate(entries)]


def _statistic(entry: Any, tables: Any, where: str) -> Statistic | Unread:
    elements = get(entry, "elements", list, where)
    border = integer(get(entry, "target_border_idx", int, where), f"{where}.target_border_idx", 0, MAX_FEATURES)
    borders = _singles(get(entry, "borders", list, where), f"{where}.borders")
    kind = get(entry, "ctr_type", str, where)
    if kind not in (*COUNTS, *MEANS, *TOTALS):
        return Unread(border, borders, f"the target statistic '{shown(kind)[1:-1]}' is not known")
    if len(elements) != 1 or get(elements[0], "combination_element", str, where) != "cat_feature_value":
        together = tuple(_element(element, where) for element in elements)
        return Unread(border, borders, f"a target statistic of several features together; {ONE_FEATURE}", together)
    feature = integer(get(elements[0], "cat_feature_index", int, where), f"{where}.cat_feature_index", 0, MAX_FEATURES)
    identifier = get(entry, "identifier", str, where)
    if not isinstance(tables, Mapping) or identifier not in tables:
        return Unread(
            border, borders, "the model has no table for this target statistic; save it with its tables (save_model)"
        )
    prior, below, shift, scale = (
        np.float32(real(get(entry, key, (int, float), where), f"{where}.{key}"))
        for key in ("prior_numerator", "prior_denomerator", "shift", "scale")
    )

    def value(good: float, total: float) -> float:
        with np.errstate(all="ignore"):
            ratio = (np.float32(good) + prior) / (np.float32(total) + below)
            return float((ratio + shift) * scale)

    counted, nothing = _counts(kind, border, get(tables, identifier, dict, where), where)
    return Statistic(feature, border, borders, {h: value(*pair) for h, pair in counted.items()}, value(*nothing))


def _element(element: Any, where: str) -> tuple[str, int]:
    kind = "cat" if isinstance(element, Mapping) and "cat_feature_index" in element else "float"
    key = f"{kind}_feature_index"
    return kind, integer(get(element, key, int, where), f"{where}.{key}", 0, MAX_FEATURES)


def _counts(
    kind: str, border: int, table: Mapping[str, Any], where: str
) -> tuple[dict[int, tuple[float, float]], tuple[float, float]]:
    """What is counted for each hash: the good ones and all; and the same for a hash that is not there."""
    where = f"{where}: its table"
    stride = integer(get(table, "hash_stride", int, where), f"{where}.hash_stride", 2, 10_000)
    entries = get(table, "hash_map", list, where)
    if len(entries) % stride or len(entries) > MAX_TABLE:
        raise ModelError(
            f"{where}.hash_map: has {len(entries)} entries, expected a multiple of {stride}, at most {MAX_TABLE}"
        )
    if (kind in TOTALS and stride != 2) or (kind in MEANS and stride != 3) or (kind in COUNTS and border + 2 > stride):
        raise ModelError(f"{where}.hash_stride: {stride} does not fit a statistic of type {kind}")
    everything = 0.0
    if kind in TOTALS:
        everything = float(
            integer(get(table, "counter_denominator", int, where), f"{where}.counter_denominator", 0, 2**31)
        )
    counted: dict[int, tuple[float, float]] = {}
    for at in range(0, len(entries), stride):
        bucket = integer(entries[at], f"{where}.hash_map[{at}]", 0, NO_BUCKET)
        if bucket == NO_BUCKET:
            continue  # an empty place of CatBoost's own table
        counts = [real(c, f"{where}.hash_map[{at + 1}]") for c in entries[at + 1 : at + stride]]
        h = _feature_hash(bucket)
        if h is None or h in counted:
            raise ModelError(f"{where}.hash_map[{at}]: {bucket} is the hash of no category, or occurs twice")
        if kind in TOTALS:
            counted[h] = (counts[0], everything)
        elif kind in MEANS:
            counted[h] = (counts[0], counts[1])
        else:
            good = counts[border] if kind == "Buckets" else sum(counts[border + 1 :])
            counted[h] = (good, sum(counts))
    return counted, (0.0, everything)


def _feature_hash(bucket: int) -> int | None:
    """The category's hash behind the hash of a table, which is the former times a constant."""
    plain = bucket * INVERSE % 2**64
    signed = plain - 2**64 if plain >= 2**63 else plain
    return signed if -(2**31) <= signed < 2**31 else None


def _singles(values: list[Any], where: str) -> tuple[float, ...]:
    array = np.array([real(value, where) for value in values], np.float64)
    with np.errstate(over="ignore"):
        single = array.astype(np.float32).astype(np.float64)
    if not np.isfinite(single).all():
        raise ModelError(f"{where}: expected finite numbers")
    return tuple(single.tolist())
