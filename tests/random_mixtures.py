"""Random problems over mixtures of products: the masses of each component are drawn anew."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

from boxqte.space.attributes import Attribute, Histogram
from boxqte.space.components import Component
from boxqte.space.space import Space
from tests.strategies import Problem, random_problem


def random_mixture(rng: random.Random, k: int | None = None, **limits: Any) -> Problem:
    """A random problem whose space is a mixture of one to five products."""
    ensemble, space, prop = random_problem(rng, **limits)
    n = k or rng.randint(1, 5)
    shares = [rng.randint(1, 6) for _ in range(n)]
    components = [
        Component(Fraction(share, sum(shares)), tuple(with_random_mass(rng, a) for a in space)) for share in shares
    ]
    return Problem(ensemble, space_of(space, components), prop)


def space_of(space: Space, components: list[Component]) -> Space:
    return Space(space.attributes, label=space.label, sensitive=space.sensitive, components=components)


def with_random_mass(rng: random.Random, attribute: Attribute) -> Attribute:
    missing = None if attribute.missing is None else Fraction(rng.randint(0, 3), 7)
    plain = replace(attribute, weights=None, histogram=None, distribution=None, missing=missing)
    if not attribute.is_numeric:
        return replace(plain, weights=_weights(rng, len(attribute.values)))
    if attribute.low == attribute.high or rng.random() < 0.2:
        return plain
    whole = attribute.kind == "integer"
    inner = set()
    for _ in range(rng.randint(0, 3)):
        edge = attribute.low + (attribute.end - attribute.low) * Fraction(rng.randint(1, 15), 16)
        edge = Fraction(round(edge)) if whole else edge
        if attribute.low < edge < attribute.end:
            inner.add(edge)
    edges = (attribute.low, *sorted(inner), attribute.end)
    return replace(plain, histogram=Histogram(edges, _weights(rng, len(edges) - 1)))


def _weights(rng: random.Random, n: int) -> tuple[Fraction, ...]:
    weights = [Fraction(rng.choice([0, 1, 1, 2, 3, 5]), rng.choice([1, 1, 3])) for _ in range(n)]
    if not any(weights):
        weights[rng.randrange(n)] = Fraction(1)
    return tuple(weights)
