"""Blame against the oracle: the measure of the model with one tree, or one split, blinded."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import boxqte
from boxqte import Fairness, Robustness, quantify
from boxqte.errors import EngineError, PropertyError, SpaceError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers import load_model
from boxqte.repairing.blinding import Rows, sensitive_trees, without
from boxqte.repairing.prune import pruned
from tests.models.test_importer_catboost import categorical_model, table
from tests.naive import LEAF, Model, NaiveRow, naive_quantify, naive_rows
from tests.naive_mixture import naive_mixture, products
from tests.random_mixtures import random_mixture
from tests.repairing.edits import rebuilt
from tests.strategies import Problem, random_problem

TOLERANCE = 1e-11


def naive_blinded(problem: Problem, rows: list[tuple[dict[str, Any], Fraction]]) -> dict[tuple[int, int], TreeEnsemble]:
    """By (tree, -1) the model with that tree blinded, by (tree, node) with that node replaced: in loops over all inputs."""
    ensemble, space, prop = problem
    model = Model(ensemble, space)
    sensitive = {f for name in prop.sensitive for f in model.features_of[name]}
    numbers = [{f: v for name in model.attributes for f, v in model.numbers(name, x[name])} for x, _ in rows]

    def heavier(node: int, here: list[int]) -> int:
        left = [i for i in here if model.goes_left(node, numbers[i][model.feature[node]])]
        more = sum((rows[i][1] for i in left), Fraction(0))
        return model.left[node] if 2 * more >= sum((rows[i][1] for i in here), Fraction(0)) else model.right[node]

    found = {}
    for tree, root in enumerate(model.roots):
        whole: dict[int, int] = {}
        single: dict[int, int] = {}
        for is_blind, goes in ((True, whole), (False, single)):
            waiting = [(root, list(range(len(rows))))]
            while waiting:
                node, here = waiting.pop()
                if model.test[node] == LEAF:
                    continue
                if model.feature[node] in sensitive:
                    goes[node] = heavier(node, here)
                    if is_blind:
                        waiting.append((goes[node], here))
                        continue
                left = [i for i in here if model.goes_left(node, numbers[i][model.feature[node]])]
                waiting += [(model.left[node], left), (model.right[node], [i for i in here if i not in set(left)])]
        if whole:
            found[tree, -1] = rebuilt(ensemble, whole)
        found |= {(tree, node): rebuilt(ensemble, {node: child}) for node, child in single.items()}
    return found


def check_blame(problem: Problem, engine: str = "auto") -> int:
    rows: list[NaiveRow] = list(naive_rows(*problem))
    models = naive_blinded(problem, [(row.x, row.mass) for row in rows])
    return compare(problem, models, engine, naive_quantify)


def compare(problem: Problem, models: dict[tuple[int, int], TreeEnsemble], engine: str, oracle: Any) -> int:
    result = quantify(*problem, engine=engine, workers=1)
    before = oracle(*problem).counterexample
    table = result.blame()
    nodes = {
        (int(t), int(i)): n for n, (t, i) in enumerate(zip(problem.ensemble.tree_of_node(), problem.ensemble.node_id))
    }
    assert len(table) == len(models)
    for line in table.to_dict("records"):
        key = (line["tree"], -1 if line["split"] == "" else nodes[line["tree"], line["node"]])
        answer = oracle(models.pop(key), problem.space, problem.property)
        removed = before - answer.counterexample
        assert line["converged"]
        assert Fraction(line["removed_lower"]) <= removed <= Fraction(line["removed_upper"])
        assert line["removed_upper"] - line["removed_lower"] <= TOLERANCE
        if answer.measure is None:
            assert np.isnan(line["measure_lower"])
        else:
            assert Fraction(line["measure_lower"]) <= answer.measure <= Fraction(line["measure_upper"])
    assert not models
    return len(table)


@pytest.mark.parametrize("seed", range(16))
def test_blame_equals_the_oracle(seed: int) -> None:
    check_blame(random_problem(random.Random(f"blame {seed}"), eps=False, robustness=False, max_pieces=60))


@pytest.mark.parametrize("seed", range(5))
def test_blame_with_tolerance_equals_the_oracle(seed: int) -> None:
    problem = random_problem(random.Random(f"blame eps {seed}"), robustness=False, max_pieces=60, max_pairs=5_000)
    check_blame(problem, engine="exhaustive")


@pytest.mark.parametrize("seed", range(3))
def test_blame_over_a_mixture_equals_the_oracle(seed: int) -> None:
    limits = {"robustness": False, "eps": False, "max_pieces": 60, "max_pairs": 5_000}
    problem = random_mixture(random.Random(f"blame {seed}"), **limits)
    rows = [
        (row.x, weight * row.mass)
        for weight, product in products(problem.space)
        for row in naive_rows(problem.ensemble, product, problem.property)
    ]
    compare(problem, naive_blinded(problem, rows), "box", naive_mixture)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_blame_of_many_problems_equals_the_oracle(part: int) -> None:
    asked = 0
    for seed in range(100):
        rng = random.Random(f"blame {part} {seed}")
        asked += check_blame(random_problem(rng, robustness=False, eps=seed % 4 == 0, max_pieces=150, max_pairs=10_000))
    assert asked > 100


def test_rows_decide_which_child_stays() -> None:
    problem = (loan_ensemble(), loan_space(), Fairness("race"))
    people = pd.DataFrame({"income": [100.0] * 3, "race": [4, 4, 0], "age": [60, 60, 60], "paid": [1, 1, 0]})
    rows = [({"income": Fraction(100), "race": race, "age": 60}, Fraction(1)) for race in (4, 4, 0)]
    models = naive_blinded(Problem(*problem), rows)
    table = quantify(*problem).blame(people, "paid")
    y = people["paid"].to_numpy()

    def loss(ensemble: TreeEnsemble) -> float:
        p = 1 / (1 + np.exp(-ensemble.margin(people[["income", "race", "age"]].to_numpy(float))[:, 0]))
        return float(-np.log(np.where(y == 1, p, 1 - p)).mean())

    for line in table[table["split"] == ""].to_dict("records"):
        model = models[line["tree"], -1]
        measure = float(naive_quantify(model, *problem[1:]).measure)
        assert line["measure_lower"] <= measure <= line["measure_upper"]
        assert line["log_loss"] == pytest.approx(loss(model) - loss(problem[0]), abs=1e-12)
    assert table.attrs["log_loss"] == pytest.approx(loss(problem[0]))
    assert table.attrs["rows"] == 3


def test_blinding_all_trees_is_pruning() -> None:
    for seed in range(12):
        ensemble, _, _ = random_problem(random.Random(f"all {seed}"), max_pieces=200)
        features = frozenset({0, ensemble.n_features - 1})
        X = np.random.default_rng(seed).integers(-3, 9, (50, ensemble.n_features)).astype(float)
        trees = sensitive_trees(ensemble, features, Rows(ensemble, X, np.arange(50)))
        sides = {node: side for tree in trees for node, side in tree.sides.items()}
        expected, found = pruned(ensemble, features, X), without(ensemble, sides)
        assert found.n_nodes == expected.n_nodes
        assert np.array_equal(found.exact_margin(X), expected.exact_margin(X))


def test_levels_of_symmetric_trees_go_as_one() -> None:
    frame, _ = table()
    model = categorical_model("one-hot")
    space = boxqte.Space.infer(frame, model=model, missing="declare").space
    result = quantify(model, space, Fairness("colour"))
    found = result.blame(frame)
    imported = load_model(model).ensemble
    assert found.attrs["sensitive_trees"] > 0
    assert found["node"].isna().all() or imported.depth() == 1
    whole = found[found["split"] == ""].set_index("tree")
    for line in found[found["split"] != ""].to_dict("records"):
        if whole.loc[line["tree"], "splits"] == 1:
            assert line["measure_lower"] == whole.loc[line["tree"], "measure_lower"]


def test_a_time_limit_is_kept_and_says_what_was_not_done() -> None:
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"))
    names = []
    table = result.blame(splits=False, time_limit=5, progress=lambda name, limit, _: names.append((name, limit)))
    assert set(table["split"]) == {""}
    assert {name for name, _ in names} <= {"tree 0", "tree 1"}
    assert all(limit <= 5 for _, limit in names)


def test_after_an_interrupt_the_rest_is_said_not_to_be_searched() -> None:
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    table = result.blame(progress=interrupted)
    assert not table.attrs["converged"]
    assert table.attrs["not_searched"] == (table["status"] == "not searched").sum() > 0
    assert (table["measure_lower"] <= table["measure_upper"]).all()
    assert (table["removed_lower"] <= table["removed_upper"]).all()


def test_what_cannot_be_blamed_is_refused_in_one_line() -> None:
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"))
    with pytest.raises(PropertyError, match="blame: robustness has no sensitive attributes"):
        quantify(loan_ensemble(), loan_space(), Robustness(0.01)).blame()
    with pytest.raises(SpaceError, match="label: 'paid' is a column of data, and there are none; give data as well"):
        result.blame(label="paid")
    with pytest.raises(EngineError, match="blame: asks about the whole space"):
        result.restrict("age > 50").blame()
    people = {"income": [-5.0], "race": [1], "age": [30]}
    with pytest.raises(SpaceError, match="data: none of the 1 rows lies in the space"):
        result.blame(people)


def test_a_model_without_sensitive_tests_has_an_empty_table() -> None:
    table = quantify(loan_ensemble(), loan_space(), Fairness("race")).blame()
    blind = without(loan_ensemble(), dict.fromkeys(np.flatnonzero(loan_ensemble().feature == 1).tolist(), True))
    empty = quantify(blind, loan_space(), Fairness("race")).blame()
    assert len(empty) == 0
    assert list(empty.columns) == list(table.columns)
    assert empty.attrs["sensitive_trees"] == 0
