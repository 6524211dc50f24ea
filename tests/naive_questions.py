"""The oracle of the newer questions: questions.md read aloud, in plain loops and fractions, on the oracle's own pieces."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.properties import Fairness
from boxqte.space.space import Space
from tests.naive import ZERO, Oracle, Piece


def naive_rates(ensemble: TreeEnsemble, space: Space, sensitive: tuple[str, ...]) -> Iterator[tuple[dict[str, Piece], Fraction]]:
    """Part 4: for every combination of pieces of the sensitive attributes, P(class 1 | group)."""
    oracle = Oracle(ensemble, space, Fairness(sensitive))
    others = [a for a in space.attributes if a.name not in sensitive]
    for group in product(*(oracle.pieces(space[name]) for name in sensitive)):
        rate = ZERO
        for rest in product(*(oracle.pieces(a) for a in others)):
            pieces = dict(zip(sensitive, group)) | {a.name: piece for a, piece in zip(others, rest)}
            mass = oracle.mass({a.name: pieces[a.name] for a in others})
            if mass and oracle.class_of(oracle.representative(pieces)) == 1:
                rate += mass
        yield dict(zip(sensitive, group)), rate
