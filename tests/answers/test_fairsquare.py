"""Group rates of FairSquare's five decision trees under its independent population, against a direct integration.

The trees and the population are those of Albarghouthi, D'Antoni, Drews and Nori, FairSquare: Probabilistic Verification of
Program Fairness (OOPSLA 2017), as published at github.com/sedrews/fairsquare, oopsla/noqual/M_ind_F_DT_*.fr (MIT licence,
copyright 2017 Samuel Drews): their thresholds and probabilities are written here as data. 'Hired' is class 1.

Two ways that share nothing: masses of cells by the error function, counted by the engine; and a quadrature of the densities
over rules that are written as Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from boxqte import Space, group_rates
from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble

SEX = ("0.3307", "0.6693")  # the first one is the minority
RELATIONSHIP = ("0.0481", "0.1557", "0.4051", "0.2551", "0.0301", "0.1059")
EDUCATION = ("0.1644", "0.2239", "0.0361", "0.3225", "0.0177", "0.0328", "0.0424", "0.0158", "0.0198", "0.0133", "0.0530",
             "0.0051", "0.0287", "0.0127", "0.0102", "0.0016")  # fmt: skip
LUCK = ("0.15", "0.85")  # the tree 16 with alpha hires some of the refused minority by a coin, which is an input here
GAUSSIAN = {"age": (38.5816, 186.0614), "capital_gain": (1077.6488, 54542539.1784)}  # mean, variance
TAIL = 12  # standard deviations: what lies beyond is less than 1e-32

RICH = (5095.5, 4718.5, 5095.5, 8296.0, math.inf, 4668.5)  # by relationship: hired from this capital gain on
OLD = {1: (21.5, 47.5), 3: (50.5,), 4: (49.5,)}  # by relationship: hired from the last of these ages on
LEARNED = {0: {0, 4, 5, 6, 10, 13}, 2: {0, 4, 10, 13}}  # by relationship: hired with this education

Spec = Any  # a leaf (bool), (attribute, threshold, below, from it on), or (attribute, [one spec a value])


def above(name: str, threshold: float, inner: Spec = True) -> Spec:
    return False if threshold == math.inf else (name, threshold, False, inner)


def by_age(ages: Sequence[float]) -> Spec:
    return (("age", ages[0], False, by_age(ages[1:])) if len(ages) > 1 else above("age", ages[0])) if ages else False


def by_education(relationship: int) -> Spec:
    return ("education", [value in LEARNED[relationship] for value in range(len(EDUCATION))])


TREE_16 = ("relationship", [above("capital_gain", rich) for rich in RICH])
TREES: dict[str, Spec] = {
    "4": above("capital_gain", 7073.5, above("age", 20.0)),
    "14": ("relationship", [by_age(OLD.get(r, ())) for r in range(6)]),
    "16": TREE_16,
    "16 alpha": ("relationship", [above("capital_gain", rich) for rich in RICH]),
    "44": ("relationship", [by_education(r) if r in LEARNED else above("capital_gain", RICH[r]) for r in range(6)]),
}
# 16 alpha: where the tree refuses, the minority is hired with luck
MERCY = ("sex", [("luck", [True, False]), False])


def with_mercy(spec: Spec) -> Spec:
    if isinstance(spec, bool):
        return True if spec else MERCY
    if len(spec) == 2:
        return (spec[0], [with_mercy(inner) for inner in spec[1]])
    return (*spec[:2], with_mercy(spec[2]), with_mercy(spec[3]))


TREES["16 alpha"] = with_mercy(TREES["16 alpha"])
RULES: dict[str, Callable[..., Any]] = {
    "4": lambda age, capital_gain, **_: (capital_gain >= 7073.5) & (age >= 20),
    "14": lambda age, relationship, **_: age >= {1: 47.5, 3: 50.5, 4: 49.5}.get(relationship, math.inf),
    "16": lambda capital_gain, relationship, **_: capital_gain >= RICH[relationship],
    "16 alpha": lambda capital_gain, relationship, sex, luck, **_: (
        (capital_gain >= RICH[relationship]) | (sex == 0 and luck == 0)
    ),
    "44": lambda capital_gain, relationship, education, **_: (
        np.full(capital_gain.shape, education in LEARNED[relationship])
        if relationship in LEARNED
        else capital_gain >= RICH[relationship]
    ),
}


# --- the tree and the space -------------------------------------------------------------------------------------------


def names_of(spec: Spec) -> set[str]:
    if isinstance(spec, bool):
        return set()
    inner = spec[1] if len(spec) == 2 else spec[2:]
    return {spec[0]}.union(*(names_of(part) for part in inner))


def cuts_of(spec: Spec, name: str) -> set[float]:
    if isinstance(spec, bool):
        return set()
    own = {spec[1]} if len(spec) == 4 and spec[0] == name else set()
    return own.union(*(cuts_of(part, name) for part in (spec[1] if len(spec) == 2 else spec[2:])))


def ensemble(spec: Spec, names: Sequence[str]) -> TreeEnsemble:
    nodes: list[list[Any]] = []  # feature, threshold, left, right, value

    def add(spec: Spec) -> int:
        at = len(nodes)
        if isinstance(spec, bool):
            nodes.append([-1, 0.0, -1, -1, 1.0 if spec else -1.0])
            return at
        feature = names.index(spec[0])
        if len(spec) == 2:  # one value after the other
            if len(spec[1]) == 1:
                return add(spec[1][0])
            return split(feature, values[spec[0]] - len(spec[1]) + 0.5, spec[1][0], (spec[0], spec[1][1:]))
        return split(feature, spec[1], spec[2], spec[3])

    def split(feature: int, threshold: float, below: Spec, rest: Spec) -> int:
        at = len(nodes)
        nodes.append([feature, threshold, -1, -1, 0.0])
        nodes[at][2] = add(below)
        nodes[at][3] = add(rest)
        return at

    values = {"sex": len(SEX), "relationship": len(RELATIONSHIP), "education": len(EDUCATION), "luck": len(LUCK)}
    add(spec)
    builder = EnsembleBuilder()
    feature, threshold, left, right, value = (list(column) for column in zip(*nodes))
    test = [Test.LEAF if f < 0 else Test.AT_MOST_F64 for f in feature]
    builder.add_tree(feature=feature, test=test, threshold=threshold, left=left, right=right, value=value)
    return builder.build(library="example", feature_names=list(names), base=(0.0,), link="identity")


def gaussian_below(name: str, value: float) -> float:
    mean, variance = GAUSSIAN[name]
    return math.erfc((mean - value) / math.sqrt(2 * variance)) / 2


def attribute(name: str, spec: Spec) -> dict[str, Any]:
    """The attribute as a space's file has it."""
    finite = {"sex": SEX, "relationship": RELATIONSHIP, "education": EDUCATION, "luck": LUCK}
    if name in finite:
        return {"name": name, "kind": "categorical", "values": [*range(len(finite[name]))], "mass": [*finite[name]]}
    mean, variance = GAUSSIAN[name]
    low, high = mean - TAIL * math.sqrt(variance), mean + TAIL * math.sqrt(variance)
    edges = [low, *sorted(cuts_of(spec, name)), high]
    masses = [gaussian_below(name, end) - gaussian_below(name, start) for start, end in pairwise(edges)]
    return {"name": name, "kind": "real", "low": low, "high": high, "mass": {"edges": edges, "weights": masses}}


# --- the integration --------------------------------------------------------------------------------------------------


def quadrature(name: str, spec: Spec) -> tuple[Any, Any]:
    """Points and weights for the density of an attribute: Gauss-Legendre on pieces of at most a standard deviation."""
    mean, variance = GAUSSIAN[name]
    sd = math.sqrt(variance)
    edges = sorted({mean + k * sd for k in range(-TAIL, TAIL + 1)} | cuts_of(spec, name))
    at, weight = np.polynomial.legendre.leggauss(24)
    pieces = [((high + low) / 2 + at * (high - low) / 2, weight * (high - low) / 2) for low, high in pairwise(edges)]
    points = np.concatenate([p for p, _ in pieces])
    density = np.exp(-((points - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    return points, np.concatenate([w for _, w in pieces]) * density


def integrated(tree: str, sex: int) -> float:
    spec = TREES[tree]
    finite = {"relationship": RELATIONSHIP, "education": EDUCATION, "luck": LUCK}
    names = [name for name in finite if name in names_of(spec)]
    points: dict[str, Any] = {}
    weights: Any = np.ones(())
    for name in [name for name in GAUSSIAN if name in names_of(spec)]:
        own, weight = quadrature(name, spec)
        points = {other: values[..., None] for other, values in points.items()} | {name: own}
        weights = weights[..., None] * weight
    total = 0.0
    for chosen in product(*(range(len(finite[name])) for name in names)):
        mass = math.prod(float(finite[name][value]) for name, value in zip(names, chosen))
        hired = RULES[tree](**points, **dict(zip(names, chosen)), sex=sex)
        total += mass * float((weights * hired).sum())
    return total


@pytest.mark.parametrize("tree", TREES)
def test_the_rates_are_those_of_a_direct_integration(tree: str) -> None:
    names = sorted(names_of(TREES[tree]) | {"sex"})
    model, space = (
        ensemble(TREES[tree], names),
        Space.from_json({"attributes": [attribute(name, TREES[tree]) for name in names]}),
    )
    found = min((group_rates(model, space, "sex") for _ in range(3)), key=lambda rates: rates.seconds)
    assert found.converged
    assert [group.name for group in found.groups] == ["0", "1"]
    assert found.seconds < 0.1
    for sex, group in enumerate(found.groups):
        wanted = integrated(tree, sex)
        assert 0.01 < wanted < 0.9
        assert group.rate.lower - 1e-9 <= wanted <= group.rate.upper + 1e-9
        assert group.rate.gap < 1e-9
    assert found.ratio is not None
    assert (found.ratio.lower == 1) == (tree != "16 alpha")  # only that tree looks at the sex
