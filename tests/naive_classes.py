"""The oracle for three or more classes: tests/naive.py's loops with one naive margin a class.

A model with K outputs is K binary models that share their trees' tests: in the k-th, every leaf has what it adds to
output k. Their margins come from the binary oracle's own evaluation.
"""

from __future__ import annotations

import dataclasses
import random
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.properties import Property
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.naive import ZERO, Model, NaiveAnswer, NaiveRow, Oracle, Piece, Point, naive_answer
from tests.naive_rules import NaiveRules
from tests.strategies import Problem, random_problem

ONE = Fraction(1)


class ClassModel:
    """The margins of all classes at a point; for a forest, the mean probabilities."""

    def __init__(self, ensemble: TreeEnsemble, space: Space):
        owner = ensemble.tree_of_node()
        scale = Fraction(1, ensemble.n_trees) if ensemble.link == "mean" else ensemble.scale
        self.parts = []
        for k, base in enumerate(ensemble.base):
            value = ensemble.value[:, min(k, ensemble.value.shape[1] - 1)].copy()
            fed = ensemble.tree_output[owner]
            value[(fed >= 0) & (fed != k)] = 0.0
            one = dataclasses.replace(
                ensemble, value=value.reshape(-1, 1), tree_output=np.zeros(ensemble.n_trees, np.int32), base=(base,),
                link="sigmoid", scale=scale, classes=(0, 1),
            )  # fmt: skip
            self.parts.append(Model(one, space))

    def margin(self, x: Point) -> tuple[Fraction, ...]:
        return tuple(part.margin(x) for part in self.parts)

    def critical_points(self, attribute: Attribute) -> list[Fraction]:
        return self.parts[0].critical_points(attribute)


class ClassOracle(Oracle):
    def __init__(self, ensemble: TreeEnsemble, space: Space, property: Property):
        self.ensemble, self.space, self.property = ensemble, space, property
        self.model = ClassModel(ensemble, space)  # type: ignore[assignment]
        self.rules = NaiveRules(space)
        self.sensitive = [a for a in space.attributes if a.name in property.sensitive]
        self.others = [a for a in space.attributes if a.name not in property.sensitive]
        self.by_cell = True
        self._classes: dict = {}
        self._near: dict = {}

    def class_of(self, x: Point) -> int | None:
        if not self.rules.allowed(x):
            return None
        margins = self.margin(x)
        return margins.index(max(margins))

    def row(self, x: Point, pieces: dict[str, Piece]) -> NaiveRow:
        margins = self.margin(x)
        confident = self.is_confident(x)
        witnesses = list(self.witnesses(x))
        values = [tuple(w[name] for name in self.property.sensitive) for w in witnesses]
        return NaiveRow(
            x, pieces, self.mass(pieces), margins, self.class_of(x), confident,  # type: ignore[arg-type]
            confident and bool(witnesses), witnesses, values,
        )  # fmt: skip

    def is_confident(self, x: Point) -> bool:
        kappa, margins = self.property.kappa, self.margin(x)
        if not self.rules.allowed(x):
            return False
        if kappa * len(margins) <= 1:
            return True
        if self.ensemble.link == "mean":
            return max(margins) > kappa
        if len(set(margins)) == 1:
            return Fraction(1, len(margins)) > kappa
        with localcontext() as context:
            context.prec = 80
            powers = [(Decimal(m.numerator) / Decimal(m.denominator)).exp() for m in margins]
            beyond = max(powers) / sum(powers) - Decimal(kappa.numerator) / Decimal(kappa.denominator)
            assert abs(beyond) > Decimal("1e-60")
            return beyond > 0


def naive_class_answer(ensemble: TreeEnsemble, space: Space, property: Property) -> NaiveAnswer:
    oracle = ClassOracle(ensemble, space, property)
    total = forbidden = confident = counterexample = ZERO
    for pieces in oracle.products_of_pieces():
        mass = oracle.mass(pieces)
        total += mass
        if not mass:
            continue
        x = oracle.representative(pieces)
        forbidden += ZERO if oracle.rules.allowed(x) else mass
        if oracle.is_confident(x):
            confident += mass
            if any(True for _ in oracle.witnesses(x)):
                counterexample += mass
    assert total == 1
    return naive_answer(confident, counterexample, forbidden)


def random_class_problem(seed: int, **limits: object) -> Problem:
    """A random binary problem whose trees are given several outputs: by turns, or all of them at every leaf."""
    rng = random.Random(seed)
    problem = random_problem(rng, **limits)
    ensemble, space, prop = problem
    k = rng.choice([3, 3, 4, 5])
    n = ensemble.n_trees
    vector = rng.random() < 0.5
    values = rng.choice([[-1.0, 0.0, 0.5, 1.0], [-0.3, -0.1, 0.1, 0.7], [0.0, 1.0]])
    link = "softmax"
    if vector and rng.random() < 0.6:
        link = "mean"
        parts = np.array([[rng.randint(0, 3) for _ in range(k)] for _ in range(ensemble.n_nodes)], float)
        parts[:, 0] += parts.sum(axis=1) == 0
        value = parts / parts.sum(axis=1, keepdims=True)
        output = np.full(n, -1, np.int32)
        base = (Fraction(0),) * k
    elif vector:
        value = np.array([[rng.choice(values) for _ in range(k)] for _ in range(ensemble.n_nodes)])
        output = np.full(n, -1, np.int32)
        base = tuple(Fraction(rng.choice([0, 0, 1, Fraction(1, 3)])) for _ in range(k))
    else:
        value = np.array([[rng.choice(values)] for _ in range(ensemble.n_nodes)])
        output = np.array([(t + rng.randint(0, 1)) % k for t in range(n)], np.int32)
        base = tuple(Fraction(rng.choice([0, 0, 1, Fraction(1, 3)])) for _ in range(k))
    model = dataclasses.replace(
        ensemble, value=value, tree_output=output, base=base, link=link, classes=tuple(range(k)),
        scale=ONE if link == "mean" else ensemble.scale, decides_on="margin",
    )  # fmt: skip
    kappa = rng.choice([Fraction(0), Fraction(0), Fraction(1, k), Fraction(2, 5), Fraction(1, 2), prop.kappa])
    return Problem(model, space, with_kappa(prop, kappa))


def with_kappa(prop: Property, kappa: Fraction) -> Property:
    """The same property with another kappa and the library's ties; its classes take no `replace`."""
    from boxqte.questions.properties import Fairness, Robustness

    epsilon = prop.epsilon if isinstance(prop.epsilon, Fraction) else dict(prop.epsilon)
    return Fairness(prop.sensitive, epsilon, kappa) if prop.sensitive else Robustness(epsilon, kappa)
