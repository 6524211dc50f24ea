"""Random plausibility rules over the attributes of a random problem, in all the forms in which they may be written."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from boxqte.errors import SpaceError
from boxqte.models.ensemble import TreeEnsemble
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.strategies import Problem


def with_rules(rng: random.Random, problem: Problem, n: int | None = None) -> Problem:
    """The problem with one to four rules that leave something of its space."""
    while True:
        texts = [random_rule(rng, problem.ensemble, problem.space) for _ in range(n or rng.randint(1, 4))]
        try:
            return Problem(problem.ensemble, problem.space.with_rules(texts), problem.property)
        except SpaceError as error:
            assert "no input is left" in str(error), (error, texts)  # noqa: PT017


def random_rule(rng: random.Random, ensemble: TreeEnsemble, space: Space) -> str:
    """One rule: what must not hold together, what must hold, or one of two things."""
    limits = {a.name: numbers(a, ensemble) for a in space}

    def comparison() -> str:
        return compared(rng, rng.choice(space.attributes), limits)

    whole = [a for a in space if a.kind == "integer"]
    form = rng.random()
    if len(whole) > 1 and form < 0.25:
        a, b = rng.sample(whole, 2)
        two = f"{a.name} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {b.name}"
        return two if rng.random() < 0.5 else f"not ({two} and {comparison()})"
    if form < 0.65:
        return f"not ({' and '.join(comparison() for _ in range(rng.randint(1, 3)))})"
    if form < 0.75:
        return f"{comparison()} or {comparison()}"
    if form < 0.85:
        return f"not ({comparison()} and ({comparison()} or not {comparison()}))"
    return comparison() if form < 0.95 else f"{comparison()} and {comparison()}"


def compared(rng: random.Random, a: Attribute, limits: dict[str, list[str]]) -> str:
    """A comparison of one attribute with values of its own."""
    if a.missing is not None and rng.random() < 0.15:
        return f"{a.name} {rng.choice(['==', '!='])} missing"
    if a.kind == "real":
        low, high = rng.choice(limits[a.name]), rng.choice(limits[a.name])
        if rng.random() < 0.2:
            return f"{low} {rng.choice(['<', '<='])} {a.name} {rng.choice(['<', '<='])} {high}"
        return f"{a.name} {rng.choice(['<', '<=', '>', '>='])} {low}"
    if a.kind == "integer":
        values: list[Any] = list(range(int(a.low) - 1, int(a.high) + 2))
        if rng.random() < 0.6:
            limit = rng.choice([*values, rng.choice(values) + 0.5])
            return f"{a.name} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {limit}"
    else:
        values = [written(rng, value) for value in a.values]
        if rng.random() < 0.5:
            return f"{a.name} {rng.choice(['==', '!='])} {rng.choice(values)}"
    chosen = [str(v) for v in rng.sample(values, rng.randint(1, max(1, len(values) - 1)))]
    if a.missing is not None and rng.random() < 0.2:
        chosen.append("missing")
    brackets = rng.choice(["{}", "[]"])
    return f"{a.name} {rng.choice(['in', 'not in'])} {brackets[0]}{', '.join(chosen)}{brackets[1]}"


def written(rng: random.Random, value: Any) -> str:
    """A value of a finite attribute; a word may go without quotes."""
    bare = isinstance(value, str) and value.isidentifier() and rng.random() < 0.5
    return value if bare else repr(value)


def numbers(a: Attribute, ensemble: TreeEnsemble) -> list[str]:
    """Limits for a real attribute: its ends, thresholds of the model, and others between."""
    if a.kind != "real":
        return []
    fed = [f for f, name in enumerate(ensemble.feature_names) if name in a.columns]
    tested = [float(t) for t, f in zip(ensemble.threshold, ensemble.feature) if f in fed]
    ends = [float(a.low), float(a.high)]
    between = [round(float(a.low + a.range * Fraction(i, 7)), 3) for i in range(8)]
    return [repr(v) for v in [*ends, *tested, *between] if v == v and abs(v) < 1e300]
