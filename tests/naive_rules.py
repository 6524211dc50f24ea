"""The oracle's own reading of plausibility rules (questions.md, part 6): every rule is evaluated at every point, as text.

A rule forbids an input for which it is false. A comparison with a missing value is neither true nor false, unless the
comparison says `missing` itself.
"""

from __future__ import annotations

import ast
from fractions import Fraction
from typing import Any

from boxqte.space.attributes import Attribute
from boxqte.space.space import Space

MISSING = None
SAID_MISSING = object()


class NaiveRules:
    """The rules of a space, from their texts alone."""

    def __init__(self, space: Space):
        self.attributes = {a.name: a for a in space.attributes}
        self.trees = [ast.parse(rule.text, mode="eval").body for rule in space.rules]

    def allowed(self, x: dict[str, Any]) -> bool:
        return all(self.truth(tree, x) is not False for tree in self.trees)

    def points(self, attribute: Attribute) -> list[Fraction]:
        """The numbers with which the rules compare a numeric attribute."""
        found = []
        for tree in self.trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Compare) and attribute.name in [
                    name.id for name in ast.walk(node) if isinstance(name, ast.Name)
                ]:
                    sides = [node.left, *node.comparators]
                    values = [self.operand(side, {attribute.name: MISSING}) for side in sides]
                    found += [value for value in values if isinstance(value, Fraction)]
        return found

    def truth(self, node: ast.expr, x: dict[str, Any]) -> bool | None:
        """True, False, or None where a missing value leaves it open."""
        if isinstance(node, ast.UnaryOp):
            inner = self.truth(node.operand, x)
            return None if inner is None else not inner
        if isinstance(node, ast.BoolOp):
            found = [self.truth(term, x) for term in node.values]
        else:
            assert isinstance(node, ast.Compare)
            sides = [node.left, *node.comparators]
            found = [self.compared(a, op, b, x) for a, op, b in zip(sides, node.ops, sides[1:])]
        settles = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)
        if settles in found:
            return settles
        return None if None in found else not settles

    def compared(self, left: ast.expr, operator: ast.cmpop, right: ast.expr, x: dict[str, Any]) -> bool | None:
        if isinstance(operator, (ast.In, ast.NotIn)):
            items = [self.compared(left, ast.Eq(), item, x) for item in right.elts]  # type: ignore[attr-defined]
            listed = any(self.operand(item, x) is SAID_MISSING for item in right.elts)  # type: ignore[attr-defined]
            if self.operand(left, x) is MISSING and not listed:
                return None
            return (True in items) == isinstance(operator, ast.In)
        a, b = self.operand(left, x), self.operand(right, x)
        if SAID_MISSING in (a, b):
            return (a is MISSING or b is MISSING) == isinstance(operator, ast.Eq)
        if a is MISSING or b is MISSING:
            return None
        if isinstance(operator, (ast.Eq, ast.NotEq)):
            return (a == b) == isinstance(operator, ast.Eq)
        if isinstance(operator, (ast.Lt, ast.LtE)):
            return a < b or (a == b and isinstance(operator, ast.LtE))
        return a > b or (a == b and isinstance(operator, ast.GtE))

    def operand(self, node: ast.expr, x: dict[str, Any]) -> Any:
        """A number, a text, a value of x, or the word `missing`."""
        if isinstance(node, ast.Name):
            if node.id == "missing":
                return SAID_MISSING
            value = x.get(node.id, node.id)
            return Fraction(repr(value)) if isinstance(value, float) else value
        if isinstance(node, (ast.Set, ast.List)):
            return None
        value = ast.literal_eval(node)
        return value if isinstance(value, str) else Fraction(repr(value))
