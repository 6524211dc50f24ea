"""Conditions on attributes, `age >= 60 and sex == 'f'`, and the space they leave: the same domains, other masses.

A condition says which x count. It takes mass away from the other values, and nothing else: x' may still be any input of
the space, so whether an x is a counterexample does not change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Protocol

from boxqte.basics.checks import did_you_mean
from boxqte.errors import SpaceError
from boxqte.exact import fraction, plain, shown
from boxqte.space.attributes import Attribute, Histogram

MISSING = "missing"
ACCEPTED = (
    "comparisons (== != < <= > >= in, not in) of an attribute with values, joined by 'and'; or, not: of one attribute"
)

Span = tuple[Fraction, Fraction]


class Attributes(Protocol):
    """What a condition is about: a space, or what is to become one."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def __getitem__(self, name: str, /) -> Attribute: ...


@dataclass(frozen=True)
class Part:
    """A subset of one attribute's domain: spans [low, high) of a numeric one, indices of values of a finite one.

    The ends of a span of a real attribute have no mass, so it does not matter on which side they count; `lacks` has those
    that the condition excludes, and `points` single numbers beside the spans that it includes, for rows and for rules that
    say the same.
    """

    spans: tuple[Span, ...] = ()
    values: frozenset[int] = frozenset()
    missing: bool = False
    lacks: frozenset[Fraction] = frozenset()
    points: frozenset[Fraction] = frozenset()

    def has(self, number: Fraction) -> bool:
        """Whether a number lies in it; of a real attribute."""
        inside = number not in self.lacks and any(low <= number <= high for low, high in self.spans)
        return inside or number in self.points

    @property
    def edges(self) -> frozenset[Fraction]:
        """Where a number may lie inside while its neighbours do not, or the other way round."""
        return self.points | self.lacks | frozenset(end for span in self.spans for end in span)


def cuts_of(attribute: Attribute, parts: Iterable[Part]) -> set[tuple[Fraction, int]]:
    """The edges inside a numeric domain at which one of the parts begins or ends: (v, 0) before v, (v, 1) behind it."""
    found = set()
    for part in parts:
        if attribute.kind == "integer":
            found |= {(end, 0) for span in part.spans for end in span if attribute.low < end <= attribute.high}
            continue
        for v in part.edges:
            held = part.has(v)
            if attribute.low < v <= attribute.high and held != any(a < v <= b for a, b in part.spans):
                found.add((v, 0))
            if attribute.low <= v < attribute.high and held != any(a <= v < b for a, b in part.spans):
                found.add((v, 1))
    return found


def whole(attribute: Attribute) -> Part:
    """The attribute's whole domain."""
    absent = attribute.missing is not None
    if attribute.is_numeric:
        return Part(spans=((attribute.low, _end(attribute)),), missing=absent)
    return Part(values=frozenset(range(len(attribute.values))), missing=absent)


def _present(attribute: Attribute) -> Part:
    """The domain without the missing value, which satisfies no comparison."""
    return replace(whole(attribute), missing=False)


def without(attribute: Attribute, part: Part) -> Part:
    """The rest of the domain."""
    everything = whole(attribute)
    spans = []
    at = attribute.low
    for low, high in part.spans:
        if low > at:
            spans.append((at, low))
        at = max(at, high)
    if attribute.is_numeric and at < _end(attribute):
        spans.append((at, _end(attribute)))
    rest = Part(tuple(spans), everything.values - part.values, everything.missing and not part.missing)
    inside = {attribute.low, attribute.high} | part.edges if attribute.is_numeric else set()
    return _with_edges(
        rest, {e for e in inside if not part.has(e) and attribute.low <= e <= attribute.high}, part.edges
    )


def both(a: Part, b: Part) -> Part:
    """What two parts have in common."""
    spans = [(max(a0, b0), min(a1, b1)) for a0, a1 in a.spans for b0, b1 in b.spans]
    kept = Part(tuple(sorted(s for s in spans if s[0] < s[1])), a.values & b.values, a.missing and b.missing)
    return _with_edges(kept, {e for e in a.edges | b.edges if a.has(e) and b.has(e)}, a.edges | b.edges)


def _with_edges(part: Part, inside: set[Fraction], known: frozenset[Fraction]) -> Part:
    """The part, of whose known edges just these lie inside."""
    lacks = frozenset(e for e in known - inside if any(low <= e <= high for low, high in part.spans))
    return replace(part, lacks=lacks, points=frozenset(e for e in inside if not replace(part, lacks=lacks).has(e)))


def holds_in(attribute: Attribute, part: Part, value: Fraction | int | None) -> bool:
    """Whether a value lies in a part: a number, the index of a value of a finite attribute, or None for a missing one."""
    if value is None:
        return part.missing
    if not attribute.is_numeric:
        return value in part.values
    if attribute.kind == "integer" or attribute.low == attribute.high:
        return any(low <= value < high for low, high in part.spans)
    return part.has(Fraction(value))


def parse_condition(text: str, space: Attributes) -> dict[str, Part]:
    """The part of each attribute's domain that the condition leaves; attributes that it does not name are not there.

    Parameters
    ----------
    text
        Comparisons joined by `and`: `age >= 60 and sex == 'f'`, `30 <= age < 40`, `race in ['A', 'B']`,
        `income == missing`. A name that is no identifier goes between backticks. Values are the attribute's values or
        labels; those that are words need no quotes. `or` and `not` may join comparisons of one attribute.

    Examples
    --------
    >>> from boxqte.examples import loan_space
    >>> parse_condition("age >= 30", loan_space())["age"].spans
    ((Fraction(30, 1), Fraction(101, 1)),)
    """
    reader, tree = read_formula(text, space, "condition", ACCEPTED)
    return reader.conjunction(tree)


def read_formula(text: object, attributes: Attributes, what: str, accepted: str) -> tuple[Reader, ast.expr]:
    """The text as a tree, and who reads its comparisons; errors call it `what` and say what would be accepted."""
    if not isinstance(text, str):
        raise SpaceError(f'{what}: expected a text such as "age >= 60", found {shown(text)}')
    names: dict[str, str] = {}

    def stand_in(match: re.Match[str]) -> str:
        return names.setdefault(match[1], f"name_{len(names)}_in_backticks")

    source = re.sub(r"`([^`]*)`", stand_in, text).strip()
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpaceError(f"{what} {text!r}: cannot be read; accepted are {accepted}") from None
    return Reader(text, source, attributes, {stand: name for name, stand in names.items()}, what, accepted), tree


@dataclass(frozen=True)
class Reader:
    """Reads the comparisons of one text."""

    text: str
    source: str
    """The text with a stand-in for every name in backticks."""
    space: Attributes
    quoted: Mapping[str, str]
    what: str
    accepted: str

    def conjunction(self, node: ast.expr) -> dict[str, Part]:
        match node:
            case ast.BoolOp(op=ast.And(), values=terms):
                parts: dict[str, Part] = {}
                for term in terms:
                    for name, part in self.conjunction(term).items():
                        parts[name] = both(parts[name], part) if name in parts else part
                return parts
            case ast.BoolOp(op=ast.Or(), values=terms):
                found = [self._single(term) for term in terms]
                if len({attribute.name for attribute, _ in found}) > 1:
                    raise self.refused("'or' joins different attributes")
                attribute = found[0][0]
                rest = whole(attribute)  # a or b is not (not a and not b)
                for _, part in found:
                    rest = both(rest, without(attribute, part))
                return {attribute.name: without(attribute, rest)}
            case ast.UnaryOp(op=ast.Not(), operand=term):
                attribute, part = self._single(term)
                return {attribute.name: without(attribute, part)}
            case ast.Compare():
                return self._comparison(node)
        raise self.refused(f"'{ast.unparse(node)}' is no comparison")

    def _single(self, node: ast.expr) -> tuple[Attribute, Part]:
        parts = self.conjunction(node)
        if len(parts) != 1:
            raise self.refused("'or' and 'not' take comparisons of one attribute")
        ((name, part),) = parts.items()
        return self.space[name], part

    def _comparison(self, node: ast.Compare) -> dict[str, Part]:
        parts: dict[str, Part] = {}
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:]):
            attribute, part = self.part(left, operator, right)
            parts[attribute.name] = both(parts[attribute.name], part) if attribute.name in parts else part
        return parts

    def part(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> tuple[Attribute, Part]:
        """One comparison: its attribute, and the part of the domain for which it holds."""
        swapped = not self.is_attribute(left) and (self.is_attribute(right) or not self._is_name(left))
        name, value = (right, left) if swapped else (left, right)
        if not self._is_name(name):
            written = ast.unparse(ast.Compare(left, [operator], [right]))
            raise self.refused(f"'{written}' names no attribute; attributes are {self._attributes()}")
        attribute = self.attribute(name)
        return attribute, self._part(attribute, operator, value, swapped)

    def is_attribute(self, node: ast.expr) -> bool:
        """Whether it is the name of an attribute."""
        return self._is_name(node) and self._name(node) in self.space.names

    def _is_name(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id != MISSING

    def _name(self, node: ast.expr) -> str:
        assert isinstance(node, ast.Name)
        return self.quoted.get(node.id, node.id)

    def attribute(self, node: ast.expr) -> Attribute:
        """The attribute that a name means."""
        name = self._name(node)
        if name not in self.space.names:
            meant = did_you_mean(name, self.space.names)
            raise self.refused(f"'{name}' is not an attribute{meant}; attributes are {self._attributes()}")
        return self.space[name]

    def _part(self, attribute: Attribute, operator: ast.cmpop, value: ast.expr, swapped: bool) -> Part:
        match operator, value:
            case ((ast.In() | ast.NotIn()), (ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items))):
                if swapped:
                    raise self.refused("'in' has the attribute on its left")
                rest = whole(attribute)
                for item in items:
                    rest = both(rest, without(attribute, self._equal(attribute, item)))
                return rest if isinstance(operator, ast.NotIn) else without(attribute, rest)
            case ast.Eq() | ast.Is(), _:
                return self._equal(attribute, value)
            case ast.NotEq() | ast.IsNot(), _:
                return without(attribute, self._equal(attribute, value))
            case ((ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()), _):
                return self._ordered(attribute, operator, value, swapped)
        raise self.refused(f"'{ast.unparse(value)}' is no value or list of values")

    def _ordered(self, attribute: Attribute, operator: ast.cmpop, value: ast.expr, swapped: bool) -> Part:
        if not attribute.is_numeric:
            raise self.refused(f"'{attribute.name}' is {attribute.kind} and has no order; use == or in")
        limit = self._number(attribute, value)
        below = isinstance(operator, (ast.Lt, ast.LtE)) != swapped
        closed = isinstance(operator, (ast.LtE, ast.GtE))
        if attribute.kind == "real" and attribute.low == attribute.high:  # one point, which may lie on the limit
            inside = attribute.low < limit if below else attribute.low > limit
            return _present(attribute) if inside or (closed and attribute.low == limit) else Part()
        if attribute.kind == "integer":  # the first integer that is above the limit, or not below it
            floor = limit.numerator // limit.denominator
            ceiling = -(-limit.numerator // limit.denominator)
            limit = Fraction(floor + 1 if below == closed else ceiling)
        low, high = attribute.low, _end(attribute)
        span = (low, min(limit, high)) if below else (max(limit, low), high)
        # a missing value satisfies no comparison
        lacks = frozenset([limit]) if attribute.kind == "real" and not closed else frozenset()
        if span[0] < span[1]:
            return Part(spans=(span,), lacks=lacks)
        at_end = attribute.kind == "real" and closed and low <= limit <= high
        return Part(points=frozenset([limit] if at_end else []))

    def _equal(self, attribute: Attribute, value: ast.expr) -> Part:
        if (isinstance(value, ast.Name) and value.id == MISSING) or (
            isinstance(value, ast.Constant) and value.value is None
        ):
            if attribute.missing is None:
                raise self.refused(f"'{attribute.name}' is never missing in this space")
            return Part(missing=True)
        if attribute.is_numeric:
            number = self._number(attribute, value)
            if attribute.kind == "real":
                if attribute.low != attribute.high:
                    raise self.refused(f"'{attribute.name}' is real: one value has no mass; give a range")
                return _present(attribute) if number == attribute.low else Part()
            inside = attribute.low <= number <= attribute.high and number.denominator == 1
            return Part(spans=((number, number + 1),)) if inside else Part()
        wanted = self._constant(value, unquoted=True)
        for index, known in enumerate(attribute.values):
            if known == wanted or (isinstance(wanted, str) and wanted in (str(known), attribute.label_of(index))):
                return Part(values=frozenset([index]))
        listed = ", ".join(attribute.label_of(i) for i in range(min(len(attribute.values), 12)))
        raise self.refused(f"'{attribute.name}' has no value {wanted!r}; it has {listed}")

    def _number(self, attribute: Attribute, value: ast.expr) -> Fraction:
        constant = self._constant(value)
        return fraction(constant, SpaceError, f"{self.what} {self.text!r}, '{attribute.name}'")

    def _constant(self, value: ast.expr, unquoted: bool = False) -> Any:
        try:
            return ast.literal_eval(value)
        except ValueError:
            pass
        if unquoted and self._is_name(value):
            return self._name(value)
        if unquoted and isinstance(value, ast.BinOp):  # Assoc-voc
            return ast.get_source_segment(self.source, value)
        raise self.refused(f"'{ast.unparse(value)}' is no value; texts go in quotes")

    def _attributes(self) -> str:
        return ", ".join(self.space.names)

    def refused(self, why: str) -> SpaceError:
        return SpaceError(f"{self.what} {self.text!r}: {why}; accepted are {self.accepted}")


def _end(attribute: Attribute) -> Fraction:
    """Where the last span of a numeric domain ends; a domain of one real point is given a span of its own."""
    if attribute.kind == "integer" or attribute.low == attribute.high:
        return attribute.high + 1
    return attribute.high


# --- masses -----------------------------------------------------------------------------------------------------------


def mass_of(attribute: Attribute, part: Part) -> Fraction:
    """The mass of a part of the attribute's domain."""
    mass = (attribute.missing or Fraction(0)) if part.missing else Fraction(0)
    if not attribute.is_numeric:
        masses = attribute.value_masses()
        return mass + sum((masses[v] for v in part.values), Fraction(0))
    return mass + sum((attribute.mass_below(high) - attribute.mass_below(low) for low, high in part.spans), Fraction(0))


def restricted(attribute: Attribute, part: Part) -> Attribute | None:
    """The attribute with all its mass on the part; None where only the missing value is left, which no mass can say."""
    total = mass_of(attribute, part)
    present = mass_of(attribute, replace(part, missing=False))
    if not present:
        return None
    missing = None if attribute.missing is None else (attribute.missing / total if part.missing else Fraction(0))
    if not attribute.is_numeric:
        masses = attribute.value_masses()
        weights = tuple(masses[v] if v in part.values else Fraction(0) for v in range(len(masses)))
        return replace(attribute, weights=weights, missing=missing)
    if attribute.kind == "real" and attribute.low == attribute.high:
        return replace(attribute, missing=missing)
    if attribute.distribution is not None:
        inside = [(max(a, b), min(c, d)) for a, c in attribute.distribution.spans for b, d in part.spans]
        spans = tuple(sorted(span for span in inside if span[0] < span[1]))
        return replace(attribute, distribution=replace(attribute.distribution, spans=spans), missing=missing)
    old = () if attribute.histogram is None else attribute.histogram.edges
    edges = sorted({attribute.low, _end(attribute), *old, *(end for span in part.spans for end in span)})
    weights = tuple(
        attribute.mass_below(high) - attribute.mass_below(low)
        if any(start <= low and high <= stop for start, stop in part.spans)
        else Fraction(0)
        for low, high in pairwise(edges)
    )
    return replace(attribute, histogram=Histogram(tuple(edges), weights), missing=missing)


def part_text(attribute: Attribute, part: Part) -> str:
    """The part in words, for tables."""
    words = []
    for low, high in part.spans:
        if attribute.kind == "integer":
            words.append(f"{int(low)}" if high == low + 1 else f"{int(low)} to {int(high) - 1}")
        elif low == high or attribute.low == attribute.high:
            words.append(shown_number(low))
        else:
            words.append(f"{shown_number(low)} to {shown_number(high)}")
    words += [attribute.label_of(v) for v in sorted(part.values)]
    if part.missing:
        words.append(MISSING)
    return " or ".join(words)


def shown_number(value: Fraction) -> str:
    """A rational as people read it: an integer, or the shortest decimal that is the same float."""
    exact = plain(value)
    return str(exact) if not isinstance(exact, str) else repr(float(value))
