"""The methods of repair on random problems, against plain enumeration of all cells and the oracle's definitions."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from boxqte import Fairness, Robustness, quantify
from boxqte.answers.quantify import limits_of
from boxqte.answers.values import GridValues
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.imported import ImportedModel
from boxqte.questions.building import build_grid
from boxqte.repairing.disagreement import disagreement
from boxqte.repairing.fitting import Leaves
from boxqte.repairing.goals import Asking
from boxqte.repairing.prune import pruned
from boxqte.repairing.together import Mixture, averaged
from boxqte.repairing.trees import joined, sensitive_features, tests_any
from tests.naive import naive_rows
from tests.strategies import Problem, random_problem

FEW, MANY = range(40), range(40, 1040)


def drawn(seed: int) -> Problem:
    """A problem with epsilon 0 whose values are multiples of 1/8, so that averages over 16 rows are exact floats; without
    real attributes, since a cell of reals may hold no float that stands for it."""
    rng = random.Random(seed)
    found = random_problem(rng, eps=False, kappa=False, robustness=False, paper_ties=False, real=False, max_pieces=300)
    model = found.ensemble
    exact = replace(
        model, value=np.round(8 * model.value) / 8, base=tuple(Fraction(round(8 * b), 8) for b in model.base)
    )
    return Problem(exact, found.space, Fairness(found.property.sensitive))


def points(
    model: TreeEnsemble, problem: Problem, other: TreeEnsemble | None = None
) -> tuple[np.ndarray, list[Fraction]]:
    """A row for every cell that the model (and another one) tells apart, and its mass."""
    both = model if other is None else joined(model, other)
    grid = build_grid(both, problem.space, Robustness(0))
    cells = np.array(list(itertools.product(*(range(len(axis.refined)) for axis in grid.axes))))
    masses = [Fraction(1)] * len(cells)
    for a, axis in enumerate(grid.axes):
        masses = [m * axis.refined_masses[c] for m, c in zip(masses, cells[:, a].tolist())]
    values = GridValues(grid)
    return values.matrix(values.draw(cells, np.random.default_rng(0))), masses


def rows(problem: Problem, seed: int) -> np.ndarray:
    every, _ = points(problem.ensemble, problem)
    return every[np.random.default_rng(seed).integers(0, len(every), 16)]


def check_average(seed: int) -> None:
    """The theorem: a decision that was fair stays as it is; and the result is fair everywhere."""
    problem = drawn(seed)
    model, space, prop = problem
    features = sensitive_features(model, space, prop.sensitive)
    changed = averaged(model, features, rows(problem, seed))
    assert not tests_any(changed, features).any()
    assert changed.n_trees == model.n_trees
    assert quantify(changed, space, prop, engine="exhaustive").exact in (1, None)
    every, _ = points(model, problem, changed)
    before, after = model.predict(every), changed.predict(every)
    grid = build_grid(joined(model, changed), space, prop)
    cells = list(itertools.product(*(range(len(axis.refined)) for axis in grid.axes)))
    classes: dict[tuple[int, ...], set[int]] = {}
    kept = [a for a, axis in enumerate(grid.axes) if not axis.sensitive]
    for cell, one in zip(cells, before.tolist()):
        classes.setdefault(tuple(cell[a] for a in kept), set()).add(one)
    for cell, one, two in zip(cells, before.tolist(), after.tolist()):
        if len(classes[tuple(cell[a] for a in kept)]) == 1:
            assert one == two


def check_prune(seed: int) -> None:
    problem = drawn(seed)
    model, space, prop = problem
    features = sensitive_features(model, space, prop.sensitive)
    changed = pruned(model, features, rows(problem, seed))
    assert not tests_any(changed, features).any()
    assert changed.n_trees == model.n_trees
    assert changed.n_leaves <= model.n_leaves
    assert quantify(changed, space, prop, engine="exhaustive").exact in (1, None)
    # every node says where it came from: same test, or same leaf value
    owner, own = changed.tree_of_node(), model.tree_of_node()
    for node in range(changed.n_nodes):
        origin = next(
            o for o in range(model.n_nodes) if own[o] == owner[node] and model.node_id[o] == changed.node_id[node]
        )
        assert model.test[origin] == changed.test[node]
        assert model.value[origin, 0] == changed.value[node, 0]


def check_mixture(seed: int) -> None:
    problem = drawn(seed)
    model, space, prop = problem
    features = sensitive_features(model, space, prop.sensitive)
    blind = pruned(model, features, rows(problem, seed))
    mixture = Mixture(model, blind)
    every, _ = points(model, problem, blind)
    one, two = model.margin(every)[:, 0], blind.margin(every)[:, 0]
    for share in (Fraction(0), Fraction(1, 4), Fraction(1)):
        found = mixture.at(share)
        assert len(mixture.origins) == found.n_trees
        if model.link == "mean":
            assert found.n_trees == model.n_trees
        assert np.allclose(found.margin(every)[:, 0], (1 - float(share)) * one + float(share) * two, atol=1e-12)


def check_disagreement(seed: int) -> None:
    """The mass of the inputs that two models decide differently, exactly, against adding up all cells."""
    problem = drawn(seed)
    model, space, prop = problem
    other = averaged(model, sensitive_features(model, space, prop.sensitive), rows(problem, seed))
    every, masses = points(model, problem, other)
    differ = model.predict(every) != other.predict(every)
    expected = sum((m for m, yes in zip(masses, differ.tolist()) if yes), Fraction(0))
    asking = Asking("exhaustive", limits_of())
    found = disagreement(ImportedModel(model, "one"), ImportedModel(other, "two"), space, asking)
    assert found is not None
    assert found.exact is not None
    assert 1 - found.exact == expected


CHECKS = (check_average, check_prune, check_mixture, check_disagreement)


@pytest.mark.parametrize("check", CHECKS)
def test_on_a_few_random_problems(check: object) -> None:
    for seed in FEW:
        check(seed)  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_on_many_random_problems(check: object) -> None:
    for seed in MANY:
        check(seed)  # type: ignore[operator]


def test_the_random_problems_are_unfair_often_enough_to_mean_something() -> None:
    unfair = [seed for seed in FEW if any(row.witnesses for row in naive_rows(*drawn(seed)))]
    assert len(unfair) > len(FEW) / 3


def test_the_margins_of_leaves_are_those_of_the_model() -> None:
    for seed in FEW:
        problem = drawn(seed)
        every, _ = points(problem.ensemble, problem)
        leaves = Leaves.of(problem.ensemble)
        assert np.allclose(leaves.margins(leaves.matrix(every), leaves.values), problem.ensemble.margin(every)[:, 0])
