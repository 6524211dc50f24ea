"""Attributes: what the user means by one input of the model, its domain and its mass; it may feed several columns.

All numbers are exact rationals; a float that a user typed stands for its shortest decimal.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

from boxqte.basics.checks import as_names, text
from boxqte.errors import SpaceError
from boxqte.exact import Number, fraction, plain, shown
from boxqte.space.distributions import FAMILIES, Distribution, read_distribution

Kind = Literal["real", "integer", "categorical", "one-hot"]
KINDS: tuple[Kind, ...] = ("real", "integer", "categorical", "one-hot")
MAX_INTEGER = 2**53  # beyond this, float64 columns cannot tell neighbouring integers apart
LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Histogram:
    """A mass function over a numeric domain: `weights[i]` lies evenly on the i-th bin.

    Real attributes: bin i is [edges[i], edges[i+1]], and the edges run from low to high.
    Integer attributes: bin i is {edges[i], ..., edges[i+1] - 1}, and the edges run from low to high + 1.
    """

    edges: tuple[Fraction, ...]
    weights: tuple[Fraction, ...]

    def below(self, point: Fraction) -> Fraction:
        """The share of the mass that lies below the point."""
        if point <= self.edges[0]:
            return Fraction(0)
        if point >= self.edges[-1]:
            return Fraction(1)
        at = bisect_right(self.edges, point) - 1
        low, high = self.edges[at], self.edges[at + 1]
        inside = self.weights[at] * (point - low) / (high - low)
        return (self._before[at] + inside) / self._before[-1]

    @cached_property
    def _before(self) -> list[Fraction]:
        """The weight of the first i bins; the last entry is that of all."""
        return list(accumulate(self.weights, initial=Fraction(0)))


@dataclass(frozen=True)
class Attribute:
    """One attribute: its domain, its mass, and the model columns that it feeds.

    Build one with `Attribute.real`, `Attribute.integer`, `Attribute.categorical` or `Attribute.one_hot`.

    Parameters
    ----------
    name
        The user's name for it.
    kind
        "real", "integer", "categorical" or "one-hot".
    low, high
        The closed ends of a numeric domain.
    values
        The values of a finite domain as the user writes them.
    labels
        Readable names of the values.
    columns
        The model columns it feeds; `(name,)` unless it is a one-hot group.
    codes
        What each value writes into each column; None if the values are the codes themselves, or if the model knows
        the codes of its categories. Values may share a code (infrequent categories): they remain different values.
    missing
        The share of the mass of a missing value (NaN in every column), or None if a missing value is not in the domain.
    weights
        One weight a value of a finite domain; None is the same for all.
    histogram
        The mass function of a numeric domain; None is uniform.
    distribution
        The mass of a numeric domain by a formula, in place of a histogram.
    """

    name: str
    kind: Kind
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)
    values: tuple[Any, ...] = ()
    labels: tuple[str, ...] | None = None
    columns: tuple[str, ...] = ()
    codes: tuple[tuple[float, ...], ...] | None = None
    missing: Fraction | None = None
    weights: tuple[Fraction, ...] | None = None
    histogram: Histogram | None = None
    distribution: Distribution | None = None

    def __post_init__(self) -> None:
        _check_attribute(self)

    @classmethod
    def real(cls, name: str, low: Number, high: Number, *, missing: Number | None = None) -> Attribute:
        """A closed interval, measured by length. `missing` is the share of the mass of a missing value."""
        ends = [fraction(v, SpaceError, f"attribute '{name}', {end}") for v, end in ((low, "low"), (high, "high"))]
        share = None if missing is None else fraction(missing, SpaceError, f"attribute '{name}', missing")
        return cls(name, "real", ends[0], ends[1], columns=(name,), missing=share)

    @classmethod
    def integer(cls, name: str, low: Number, high: Number, *, missing: Number | bool | None = None) -> Attribute:
        """The integers low..high, each the same mass; `missing=True` is one more value of the same mass."""
        ends = [fraction(v, SpaceError, f"attribute '{name}', {end}") for v, end in ((low, "low"), (high, "high"))]
        share = _missing_share(name, missing, 1 + max(math.floor(ends[1]) - math.ceil(ends[0]), 0))
        return cls(name, "integer", ends[0], ends[1], columns=(name,), missing=share)

    @classmethod
    def categorical(
        cls,
        name: str,
        values: Sequence[Any],
        *,
        labels: Sequence[str] | None = None,
        codes: Sequence[float] | None = None,
        missing: Number | bool | None = None,
    ) -> Attribute:
        """A finite set of values without order, each the same mass."""
        return cls(
            name,
            "categorical",
            values=_listed(values, name, "values"),
            labels=None if labels is None else _listed(labels, name, "labels"),
            columns=(name,),
            codes=None if codes is None else tuple((_code(c, name),) for c in _listed(codes, name, "codes")),
            missing=_missing_share(name, missing, len(_listed(values, name, "values"))),
        )

    @classmethod
    def one_hot(
        cls,
        name: str,
        columns: Sequence[str],
        *,
        values: Sequence[Any] | None = None,
        labels: Sequence[str] | None = None,
        codes: Sequence[Sequence[float]] | None = None,
    ) -> Attribute:
        """k model columns that are one categorical attribute. Without `codes`, value v sets column v to 1."""
        fed = as_names(columns, f"attribute '{name}', columns", SpaceError)
        if codes is None:
            codes = [[float(i == j) for j in range(len(fed))] for i in range(len(fed))]
        names = fed if values is None else _listed(values, name, "values")
        rows = [_listed(row, name, "codes") for row in _listed(codes, name, "codes")]
        return cls(
            name,
            "one-hot",
            values=names,
            labels=None if labels is None else _listed(labels, name, "labels"),
            columns=fed,
            codes=tuple(tuple(_code(c, name) for c in row) for row in rows),
        )

    @property
    def is_numeric(self) -> bool:
        return self.kind in ("real", "integer")

    @property
    def is_even(self) -> bool:
        """Whether a numeric attribute has the same mass everywhere."""
        return self.histogram is None and self.distribution is None

    @property
    def knots(self) -> tuple[Fraction, ...]:
        """Where the mass of a numeric attribute changes its form."""
        formula = self.histogram or self.distribution
        return () if formula is None else formula.edges if isinstance(formula, Histogram) else formula.knots

    @property
    def end(self) -> Fraction:
        """Where a numeric domain ends: behind the last integer, or at the largest real number."""
        return self.high + 1 if self.kind == "integer" else self.high

    @property
    def range(self) -> Fraction:
        """high - low of a numeric attribute."""
        return self.high - self.low

    @property
    def size(self) -> int | None:
        """How many values the domain has, a declared missing value included; None if it is real."""
        if self.kind == "real":
            return None
        finite = int(self.high - self.low) + 1 if self.kind == "integer" else len(self.values)
        return finite + (self.missing is not None)

    def label_of(self, index: int) -> str:
        """The readable name of the index-th value of a finite domain."""
        return self.labels[index] if self.labels is not None else str(self.values[index])

    def value_masses(self) -> list[Fraction]:
        """The mass of each value of a categorical or one-hot attribute, the missing value's share taken off."""
        present = 1 - (self.missing or Fraction(0))
        if self.weights is None:
            return [present / len(self.values)] * len(self.values)
        total = sum(self.weights)
        return [present * w / total for w in self.weights]

    def mass_below(self, point: Fraction) -> Fraction:
        """The mass of a numeric attribute below the point (integers: of all values < point)."""
        present = 1 - (self.missing or Fraction(0))
        formula = self.histogram or self.distribution
        if formula is not None:
            return present * formula.below(point)
        high = self.high + 1 if self.kind == "integer" else self.high
        if high == self.low:
            return present if point > self.low else Fraction(0)
        return present * min(max((point - self.low) / (high - self.low), Fraction(0)), Fraction(1))

    def evened(self) -> Attribute:
        """The same finite domain with the same mass for every value."""
        absent = None if self.missing is None or self.size is None else Fraction(1, self.size)
        return replace(self, weights=None, histogram=None, distribution=None, missing=absent)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `Attribute.from_json` reads back to an equal attribute."""
        out: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.is_numeric:
            out |= {"low": plain(self.low), "high": plain(self.high)}
        else:
            out["values"] = list(self.values)
        if self.labels is not None:
            out["labels"] = list(self.labels)
        if self.columns != (self.name,):
            out["columns"] = list(self.columns)
        if self.codes is not None:
            rows = [[plain(Fraction(repr(c))) for c in row] for row in self.codes]
            out["codes"] = rows if self.kind == "one-hot" else [row[0] for row in rows]
        if self.missing is not None:
            out["missing"] = plain(self.missing)
        if self.weights is not None:
            out["mass"] = [plain(w) for w in self.weights]
        if self.histogram is not None:
            out["mass"] = {name: [plain(v) for v in getattr(self.histogram, name)] for name in ("edges", "weights")}
        if self.distribution is not None:
            out["mass"] = self.distribution.to_json(self.low, self.end)
        return out

    @classmethod
    def from_json(cls, node: Mapping[str, Any], where: str) -> Attribute:
        """An attribute from its JSON object; `where` is its place in the file, for error messages."""
        if not isinstance(node, Mapping):
            raise SpaceError(f"{where}: expected an object, found {shown(node)}")
        known = {"name", "kind", "low", "high", "values", "labels", "columns", "codes", "missing", "mass"}
        for key in node:
            if key not in known:
                raise SpaceError(f"{where}.{key}: unknown field; known are {', '.join(sorted(known))}")
        name, kind = node.get("name"), node.get("kind")
        if not isinstance(name, str) or not name:
            raise SpaceError(f"{where}.name: expected a name, found {shown(name)}")
        where = f"{where} ('{name}')"
        if kind not in KINDS:
            raise SpaceError(f"{where}.kind: expected one of {', '.join(KINDS)}, found {shown(kind)}")
        foreign = ("values", "labels", "codes") if kind in ("real", "integer") else ("low", "high")
        for key in foreign:
            if node.get(key) is not None:
                raise SpaceError(f"{where}.{key}: an attribute of kind {kind} has no such field")
        ends: list[Fraction] = []
        values: list[Any] = []
        if kind in ("real", "integer"):
            for end in ("low", "high"):
                if end not in node:
                    raise SpaceError(f"{where}.{end}: missing; a {kind} attribute needs low and high")
                ends.append(fraction(node[end], SpaceError, f"{where}.{end}"))
        else:
            ends = [Fraction(0), Fraction(0)]
            values = list_field(node, "values", where) or list(list_field(node, "columns", where) or [])
            values = [_json_value(v) for v in values]
        labels = list_field(node, "labels", where)
        columns = list_field(node, "columns", where)
        if columns is not None and not all(isinstance(c, str) for c in columns):
            raise SpaceError(f"{where}.columns: expected column names, found {shown(columns)}")
        columns = columns or [name]
        codes = _codes(node, kind, len(columns), len(values), where)
        size = int(ends[1] - ends[0]) + 1 if kind == "integer" and ends[1] >= ends[0] else len(values)
        missing = _missing_share(name, node.get("missing"), None if kind == "real" else size)
        weights, formula = None, None
        if node.get("mass") is not None:
            if kind in ("real", "integer"):
                formula = read_formula(node["mass"], f"{where}.mass")
            else:
                listed = list_field(node, "mass", where) or []
                weights = tuple(fraction(v, SpaceError, f"{where}.mass") for v in listed)
        return cls(
            name,
            kind,
            ends[0],
            ends[1],
            values=tuple(values),
            labels=None if labels is None else tuple(str(v) for v in labels),
            columns=tuple(columns),
            codes=codes,
            missing=missing,
            weights=weights,
            histogram=formula if isinstance(formula, Histogram) else None,
            distribution=formula if isinstance(formula, Distribution) else None,
        )


class DecimalText(str):
    """A JSON number that is not an integer, kept as its text."""


def read_formula(mass: Any, where: str) -> Histogram | Distribution:
    """The mass of a numeric attribute from its JSON object."""
    if isinstance(mass, Mapping):
        distribution = read_distribution(mass, where)
        if distribution is not None:
            return distribution
    if not isinstance(mass, Mapping) or set(mass) != {"edges", "weights"}:
        formulas = " or ".join(f"{{'{family}': [...]}}" for family in FAMILIES)
        raise SpaceError(f"{where}: expected {{'edges': [...], 'weights': [...]}}, {formulas}, found {shown(mass)}")
    parts = [[fraction(v, SpaceError, f"{where}.{part}") for v in list_field(mass, part, where) or []]
             for part in ("edges", "weights")]  # fmt: skip
    return Histogram(tuple(parts[0]), tuple(parts[1]))


def _json_value(value: Any) -> Any:
    """A category value from JSON: text, an integer, a bool, or a float read from its text."""
    if isinstance(value, DecimalText):
        return float(value)
    return value


def list_field(node: Mapping[str, Any], key: str, where: str) -> list[Any] | None:
    value = node.get(key)
    if value is not None and (isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence)):
        raise SpaceError(f"{where}.{key}: expected a list, found {shown(value)}")
    return None if value is None else list(value)


def _listed(values: object, name: object, what: str) -> tuple[Any, ...]:
    if not isinstance(values, Iterable):
        raise SpaceError(f"attribute {name!r}, {what}: expected a list, found {shown(values)}")
    return tuple(values)


def _code(code: Any, name: object) -> float:
    return float(fraction(code, SpaceError, f"attribute {name!r}, codes"))


def _codes(
    node: Mapping[str, Any], kind: str, n_columns: int, n_values: int, where: str
) -> tuple[tuple[float, ...], ...] | None:
    rows = list_field(node, "codes", where)
    if rows is None:
        if kind != "one-hot":
            return None
        if n_values != n_columns:
            raise SpaceError(f"{where}.codes: missing; {n_values} values and {n_columns} columns need explicit codes")
        return tuple(tuple(float(i == j) for j in range(n_columns)) for i in range(n_values))
    try:
        listed = [list(row) if kind == "one-hot" else [row] for row in rows]
        return tuple(tuple(float(fraction(c, SpaceError, f"{where}.codes")) for c in row) for row in listed)
    except (TypeError, OverflowError):
        raise SpaceError(f"{where}.codes: expected one list of numbers a value, found {shown(rows)}") from None


def _missing_share(name: str, missing: Number | bool | None, n_values: int | None) -> Fraction | None:
    if missing is None or missing is False:
        return None
    if missing is True:
        if n_values is None:
            raise SpaceError(
                f"attribute '{name}', missing: a real attribute has no smallest mass; give the missing value's share, "
                "e.g. 0.05"
            )
        return Fraction(1, n_values + 1)
    return fraction(missing, SpaceError, f"attribute '{name}', missing")


def _check_attribute(a: Attribute) -> None:
    text(a.name, "attribute", SpaceError, "its name first")
    where = f"attribute '{a.name}'"
    if a.kind not in KINDS:
        raise SpaceError(f"{where}, kind: expected one of {', '.join(KINDS)}, found {shown(a.kind)}")
    if not a.columns:
        object.__setattr__(a, "columns", (a.name,))
    if a.is_numeric:
        if a.low > a.high:
            raise SpaceError(f"{where}: low {a.low} is above high {a.high}")
        if a.kind == "integer":
            for end, v in (("low", a.low), ("high", a.high)):
                if v.denominator != 1 or abs(v) > MAX_INTEGER:
                    raise SpaceError(f"{where}, {end}: expected an integer of at most 2**53, found {plain(v)}")
        if a.histogram is not None:
            _check_histogram(a, a.histogram, where)
        if a.distribution is not None:
            if a.histogram is not None:
                raise SpaceError(f"{where}, mass: a histogram and a {a.distribution.family}; give one of them")
            placed = a.distribution.on(a.low, a.end, a.kind == "integer", where)
            object.__setattr__(a, "distribution", placed)
        if a.weights is not None:
            raise SpaceError(f"{where}, mass: a numeric attribute takes a histogram (edges and weights)")
    else:
        if not a.values:
            raise SpaceError(f"{where}, values: the domain is empty")
        seen: set[Any] = set()
        for v in a.values:
            if not isinstance(v, (str, int, float)) or (not isinstance(v, str) and not -LARGEST <= v <= LARGEST):
                raise SpaceError(f"{where}, values: expected texts or finite numbers, found {shown(v)}")
            if v in seen:
                raise SpaceError(f"{where}, values: {shown(v)} occurs twice")
            seen.add(v)
        if not a.is_even:
            raise SpaceError(f"{where}, mass: a {a.kind} attribute takes one weight a value")
        if a.weights is not None:
            _check_weights(a.weights, len(a.values), where)
    if a.labels is not None and len(a.labels) != len(a.values):
        raise SpaceError(f"{where}, labels: {len(a.labels)} labels for {len(a.values)} values")
    if a.codes is not None and (
        len(a.codes) != len(a.values)
        or any(len(row) != len(a.columns) or not all(map(math.isfinite, row)) for row in a.codes)
    ):
        raise SpaceError(f"{where}, codes: expected {len(a.values)} x {len(a.columns)} finite numbers")
    if a.kind != "one-hot" and len(a.columns) != 1:
        raise SpaceError(f"{where}, columns: only a one-hot attribute feeds several columns")
    if a.missing is not None and not 0 <= a.missing < 1:
        raise SpaceError(f"{where}, missing: the share must be at least 0 and below 1, found {plain(a.missing)}")


def _check_weights(weights: tuple[Fraction, ...], expected: int, where: str) -> None:
    if len(weights) != expected:
        raise SpaceError(f"{where}, mass: {len(weights)} weights, expected {expected}")
    if any(w < 0 for w in weights) or not sum(weights):
        raise SpaceError(f"{where}, mass: weights must be at least 0 and not all 0")


def _check_histogram(a: Attribute, histogram: Histogram, where: str) -> None:
    _check_weights(histogram.weights, len(histogram.edges) - 1, where)
    if any(low >= high for low, high in zip(histogram.edges, histogram.edges[1:])):
        raise SpaceError(f"{where}, mass: edges must increase")
    if histogram.edges[0] != a.low or histogram.edges[-1] != a.end:
        raise SpaceError(f"{where}, mass: edges must run from {plain(a.low)} to {plain(a.end)}")
    if a.kind == "integer" and any(e.denominator != 1 for e in histogram.edges):
        raise SpaceError(f"{where}, mass: edges of an integer attribute must be integers")
