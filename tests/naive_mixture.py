"""The oracle over a mixture of products: P(x) = sum_k w_k prod_i m_k,i(x_i), straight from questions.md, part 5.

The pieces of every attribute are the same in each component, for they are cut where tests change; only their masses differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.properties import Property
from boxqte.space.space import Space
from tests.naive import NaiveAnswer, Oracle, Piece, Point, naive_answer

ZERO = Fraction(0)
Weighted = list[tuple[Fraction, Space]]


def products(space: Space) -> Weighted:
    """The products and their weights, from the data fields alone."""
    if not space.components:
        return [(Fraction(1), space)]
    found = [(component.weight, Space(component.attributes)) for component in space.components]
    for _, own in found:  # the rules of the whole may forbid all of one
        object.__setattr__(own, "rules", space.rules)
    return found


def naive_points(
    ensemble: TreeEnsemble, space: Space, prop: Property
) -> Iterator[tuple[Oracle, Point, list[Fraction], list[dict[str, Piece]]]]:
    """Every x that stands for a product of pieces, with its mass in each component."""
    oracles = [Oracle(ensemble, product, prop) for _, product in products(space)]
    for at in zip(*(oracle.products_of_pieces() for oracle in oracles)):
        x = oracles[0].representative(at[0])
        assert all(oracle.representative(pieces) == x for oracle, pieces in zip(oracles, at))
        yield oracles[0], x, [oracle.mass(pieces) for oracle, pieces in zip(oracles, at)], list(at)


def naive_mixture(ensemble: TreeEnsemble, space: Space, prop: Property) -> NaiveAnswer:
    """The measure over the mixture."""
    weights = [weight for weight, _ in products(space)]
    total = forbidden = confident = counterexample = ZERO
    for oracle, x, masses, _ in naive_points(ensemble, space, prop):
        mass = sum((w * m for w, m in zip(weights, masses)), ZERO)
        total += mass
        forbidden += ZERO if oracle.rules.allowed(x) else mass
        if mass and oracle.is_confident(x):
            confident += mass
            if any(True for _ in oracle.witnesses(x)):
                counterexample += mass
    assert total == 1, f"the masses sum to {total}"
    return naive_answer(confident, counterexample, forbidden)
