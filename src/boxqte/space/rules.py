"""Plausibility rules: `not (age < 20 and education in {Doctorate, Masters})`, `hours >= 0`, `a <= b`.

A rule forbids the inputs for which it is false; these are neither x nor x' (questions.md, part 6). A comparison with a missing
value is neither true nor false, so that nothing is forbidden because of it, unless the rule itself says `missing`: a CHECK
in SQL reads the same way.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from boxqte.errors import SpaceError
from boxqte.exact import shown
from boxqte.space.attributes import Attribute
from boxqte.space.boxes import Box as Masks
from boxqte.space.boxes import allowed_share
from boxqte.space.conditions import (
    MISSING,
    Attributes,
    Part,
    Reader,
    both,
    holds_in,
    mass_of,
    read_formula,
    whole,
    without,
)

ACCEPTED = (
    "comparisons (== != < <= > >= in, not in) of an attribute with values, or of two integer attributes, joined by and, "
    "or, not"
)
MOST_BOXES = 1000  # a rule that falls apart into more is refused

Box = tuple[tuple[str, Part], ...]
"""The part of each attribute's domain that a conjunction mentions; other attributes may be anything."""


@dataclass(frozen=True)
class Rule:
    """A rule as it was written, and what it forbids."""

    text: str
    boxes: tuple[Box, ...]
    """The forbidden inputs are those that lie in one of these."""

    def forbids(self, space: Attributes, values: Mapping[str, Fraction | int | None]) -> bool:
        """Whether an input is forbidden: a number, the index of a value or None for a missing one, by attribute."""
        return any(all(holds_in(space[name], part, values[name]) for name, part in box) for box in self.boxes)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Named:
    """Attributes by name, before they are a space."""

    attributes: Sequence[Attribute]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(attribute.name for attribute in self.attributes)

    def __getitem__(self, name: str) -> Attribute:
        return next(attribute for attribute in self.attributes if attribute.name == name)


def read_rules(given: object, attributes: Sequence[Attribute]) -> tuple[Rule, ...]:
    """The rules over these attributes; a rule that was read for others is read anew. Equal texts count once."""
    texts = [rule.text if isinstance(rule, Rule) else rule for rule in listed_rules(given)]
    rules = [read_rule(text, _Named(attributes)) for text in texts]
    return tuple(dict.fromkeys(rules))


def listed_rules(given: object) -> list[Any]:
    """The rules that an argument means: one, or several."""
    if isinstance(given, (str, Rule)):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, (Mapping, bytes)):
        raise SpaceError(
            f'rules: expected a list of texts such as "not (age < 20 and hours > 60)", found {shown(given)}'
        )
    return list(given)


def read_rule(text: object, attributes: Attributes) -> Rule:
    """A rule from its text.

    Examples
    --------
    >>> from boxqte.examples import loan_space
    >>> rule = read_rule("not (age < 18 and income > 500)", loan_space())
    >>> [name for name, part in rule.boxes[0]]
    ['income', 'age']
    """
    reader, tree = read_formula(text, attributes, "rule", ACCEPTED)
    try:
        boxes = _Forbidden(reader).boxes(tree, False)
    except RecursionError:
        raise reader.refused("it is nested too deeply") from None
    kept = dict.fromkeys(tuple(sorted(box.items(), key=lambda item: attributes.names.index(item[0]))) for box in boxes)
    return Rule(reader.text, tuple(kept))


@dataclass(frozen=True)
class _Forbidden:
    """Takes a formula apart into boxes: where it is true, or where it is false."""

    reader: Reader

    def boxes(self, node: ast.expr, truth: bool) -> list[dict[str, Part]]:
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=term):
                return self.boxes(term, not truth)
            case ast.BoolOp(op=operator, values=terms):
                return self._joined([self.boxes(term, truth) for term in terms], isinstance(operator, ast.And) == truth)
            case ast.Compare(left=first, ops=operators, comparators=rest):
                pairs = zip([first, *rest], operators, rest)
                return self._joined([self._comparison(*pair, truth) for pair in pairs], truth)
        raise self.reader.refused(f"'{ast.unparse(node)}' is no comparison")

    def _joined(self, terms: list[list[dict[str, Part]]], every: bool) -> list[dict[str, Part]]:
        """What lies in a box of every term, or of any."""
        if not every:
            return self._counted([box for term in terms for box in term])
        found: list[dict[str, Part]] = [{}]
        for term in terms:
            pairs = (_common(one, other) for one in found for other in term)
            found = self._counted([box for box in pairs if box is not None])
        return found

    def _counted(self, boxes: list[dict[str, Part]]) -> list[dict[str, Part]]:
        if len(boxes) > MOST_BOXES:
            raise self.reader.refused(f"it forbids the union of more than {MOST_BOXES} boxes")
        return boxes

    def _comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr, truth: bool) -> list[dict[str, Part]]:
        reader = self.reader
        if reader.is_attribute(left) and reader.is_attribute(right):
            a, b = reader.attribute(left), reader.attribute(right)
            if a.is_numeric or b.is_numeric:
                return self._two(a, operator, b, truth)
        attribute, part = reader.part(left, operator, right)
        if not truth:
            part = without(attribute, part)
        if not _says_missing(left) and not _says_missing(right):
            part = replace(part, missing=False)
        return [{attribute.name: part}] if not _empty(part) else []

    def _two(self, a: Attribute, operator: ast.cmpop, b: Attribute, truth: bool) -> list[dict[str, Part]]:
        """A comparison of two integer attributes, one box for every value of the first where something changes."""
        for attribute in (a, b):
            if attribute.kind != "integer":
                raise self.reader.refused(f"'{attribute.name}' is {attribute.kind}; two attributes are compared if both "
                                          "are integers")  # fmt: skip
        if a.name == b.name:
            raise self.reader.refused(f"'{a.name}' is compared with itself")
        low, high = int(a.low), int(a.high)
        first, last = max(low, int(b.low)), min(high, int(b.high))
        if last - first >= MOST_BOXES:
            raise self.reader.refused(f"'{a.name}' and '{b.name}' share {last - first + 1} values, and at most {MOST_BOXES} "
                                      "are compared one by one")  # fmt: skip
        # Below and above what b can be, all values of a compare alike.
        starts = sorted({low, *(v for v in range(first, last + 2) if low < v <= high)})
        boxes = []
        for start, stop in pairwise([*starts, high + 1]):
            part = self._beside(Fraction(start), operator, b, truth)
            if not _empty(part):
                boxes.append({a.name: Part(spans=((Fraction(start), Fraction(stop)),)), b.name: part})
        return boxes

    def _beside(self, value: Fraction, operator: ast.cmpop, b: Attribute, truth: bool) -> Part:
        """The values of b with which the value of a compares so."""
        low, end = b.low, b.high + 1
        match operator:
            case ast.Eq() | ast.NotEq():
                spans = [(value, value + 1)]
            case ast.Lt() | ast.GtE():
                spans = [(value + 1, end)]
            case ast.LtE() | ast.Gt():
                spans = [(value, end)]
            case _:
                raise self.reader.refused("'in' and 'is' do not compare two attributes")
        inside = tuple((max(x, low), min(y, end)) for x, y in spans if max(x, low) < min(y, end))
        part = Part(spans=inside)
        as_written = not isinstance(operator, (ast.NotEq, ast.GtE, ast.Gt))
        return part if as_written == truth else replace(without(b, part), missing=False)


def _common(one: Mapping[str, Part], other: Mapping[str, Part]) -> dict[str, Part] | None:
    """The box of what two boxes share; None if that is nothing."""
    found = dict(one)
    for name, part in other.items():
        found[name] = both(found[name], part) if name in found else part
        if _empty(found[name]):
            return None
    return found


def _empty(part: Part) -> bool:
    return not (part.spans or part.values or part.missing or part.points)


def _says_missing(node: ast.expr) -> bool:
    return any(
        (isinstance(part, ast.Name) and part.id == MISSING) or (isinstance(part, ast.Constant) and part.value is None)
        for part in ast.walk(node)
    )


# --- masses -----------------------------------------------------------------------------------------------------------


def share_of_allowed(attributes: Sequence[Attribute], rules: Iterable[Rule]) -> Fraction:
    """The mass of the inputs that no rule forbids, under the product of the attributes' masses."""
    boxes = [box for rule in rules for box in rule.boxes]
    at = {attribute.name: i for i, attribute in enumerate(attributes)}
    mentioned: dict[str, dict[Part, None]] = {}
    for box in boxes:
        for name, part in box:
            mentioned.setdefault(name, {})[part] = None
    masses: dict[int, list[Fraction]] = {}
    masks: dict[tuple[str, Part], int] = {}
    for name, parts in mentioned.items():
        attribute = attributes[at[name]]
        cells = _cells(attribute, parts)
        masses[at[name]] = [mass_of(attribute, cell) for cell in cells]
        for part in parts:
            held = (1 << i for i, cell in enumerate(cells) if not _empty(_inside(part, cell)))
            masks[name, part] = sum(held)
    forbidden: list[Masks] = [tuple((at[name], masks[name, part]) for name, part in box) for box in boxes]
    return allowed_share(forbidden, masses)


def allowed_count(attributes: Sequence[Attribute], rules: Iterable[Rule]) -> int | None:
    """How many inputs no rule forbids; None if an attribute is real."""
    sizes = [attribute.size for attribute in attributes]
    if None in sizes:
        return None
    everything = math.prod(size for size in sizes if size is not None)
    return int(everything * share_of_allowed([attribute.evened() for attribute in attributes], rules))


def emptying(rules: Sequence[Rule], products: Iterable[tuple[Fraction, Sequence[Attribute]]]) -> str:
    """Which rule empties a space, for its error message: by itself, or together with those before it."""
    own = [attributes for _, attributes in products]
    for n, rule in enumerate(rules):
        if not any(share_of_allowed(attributes, [rule]) for attributes in own):
            return f"{rule.text!r} forbids everything"
        if not any(share_of_allowed(attributes, rules[: n + 1]) for attributes in own):
            return f"{rule.text!r} forbids what those before it leave"
    return "together they forbid everything"


def _cells(attribute: Attribute, parts: Iterable[Part]) -> list[Part]:
    """The domain in pieces, each of which lies in a part or outside of it, but for points without mass."""
    everything = whole(attribute)
    absent = [Part(missing=True)] if everything.missing else []
    if not attribute.is_numeric:
        return [Part(values=frozenset([v])) for v in sorted(everything.values)] + absent
    ((low, high),) = everything.spans
    ends = {low, high, *(end for part in parts for end in part.edges if low < end < high)}
    return [Part(spans=(span,)) for span in pairwise(sorted(ends))] + absent


def _inside(part: Part, cell: Part) -> Part:
    """What a part has of a cell; points have no mass."""
    return replace(both(part, cell), points=frozenset())
