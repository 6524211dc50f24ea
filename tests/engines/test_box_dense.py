"""The box engine on random sub-boxes of real models equals a dense evaluation that shares no code with it."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from benchmarks.paper.configurations import SENSITIVE
from benchmarks.paper.datasets import DATASETS, DataError, load_dataset
from benchmarks.paper.models import ModelSize, train

from boxqte import Fairness, Robustness, Space, load_model, quantify
from boxqte.questions.properties import Property
from tests.dense import XGBoostTrees, dense_quantify, random_sub_box

ROOT = Path(__file__).resolve().parents[2]
SIZES = ("50x3", "100x4")


@cache
def trained(name: str, size: str) -> tuple[Any, Space, XGBoostTrees]:
    try:
        data = load_dataset(name)
    except DataError as error:
        pytest.skip(f"the data sets are not here: {error}")
    model = train(data, ModelSize.parse(size))
    return model, data.space, XGBoostTrees(model, load_model(model).ensemble.base[0])


def question(rng: Random, names: tuple[str, ...], epsilon_rate: str, kappa: str) -> Property:
    """One sensitive attribute, all of them at once, or (where something moves) none."""
    choices: list[tuple[str, ...]] = [*((n,) for n in names), names]
    if epsilon_rate != "0":
        choices.append(())
    sensitive = rng.choice(choices)
    return Fairness(sensitive, epsilon_rate, kappa) if sensitive else Robustness(epsilon_rate, kappa)


def check(model: Any, space: Space, trees: XGBoostTrees, prop: Property, rng: Random, most_cells: int) -> bool:
    """Compare on one sub-box; whether anything in it is a counterexample."""
    part, asked = random_sub_box(rng, trees, space, prop, most_cells)
    dense = dense_quantify(trees, part, asked)
    result = quantify(model, part, asked, workers=1)
    assert result.converged
    for found, expected in ((result.confident, dense.confident), (result.counterexample, dense.counterexample)):
        assert found.lower - 1e-12 <= expected <= found.upper + 1e-12, (str(asked), part.to_json())
        assert found.gap < 1e-11
    return dense.counterexample > 0


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", DATASETS)
def test_sub_boxes_of_the_real_models_agree_with_a_dense_evaluation(name: str, size: str) -> None:
    # 5 data sets x 2 sizes x 2 epsilons x 2 kappas x 6 = 240 sub-boxes
    model, space, trees = trained(name, size)
    rng = Random(f"{name}{size}")
    unfair = 0
    for epsilon_rate in ("0", "0.1"):
        for kappa in ("0.5", "0.7"):
            for _ in range(6):
                prop = question(rng, SENSITIVE[name], epsilon_rate, kappa)
                unfair += check(model, space, trees, prop, rng, 300_000)
    assert unfair >= 6  # otherwise the boxes are too tame to tell anything


@pytest.mark.data
@pytest.mark.parametrize("name", ["compas", "lsac"])
def test_a_few_sub_boxes_of_the_real_models_agree_with_a_dense_evaluation(name: str) -> None:
    model, space, trees = trained(name, "50x3")
    rng = Random(name)
    for epsilon_rate, kappa in (("0", "0.5"), ("0.1", "0.5"), ("0.1", "0.7")):
        check(model, space, trees, question(rng, SENSITIVE[name], epsilon_rate, kappa), rng, 20_000)


@cache
def people(trees: int) -> tuple[Any, Space, XGBoostTrees]:
    """A model of that many trees on the example's table, with sex as 0 and 1."""
    table = pd.read_csv(ROOT / "examples" / "people.csv")
    table["sex"] = (table["sex"] == "m").astype(int)
    space = Space.from_data(table, label="granted", categorical=["race", "sex"], integer=["age"], real=["income"])
    model = xgboost.XGBClassifier(n_estimators=trees, max_depth=3).fit(table[list(space.columns)], table["granted"])
    return model, space, XGBoostTrees(model, load_model(model).ensemble.base[0])


@pytest.mark.parametrize("kappa", ["0.5", "0.7"])
@pytest.mark.parametrize("epsilon_rate", ["0", "0.1"])
def test_sub_boxes_of_a_small_model_agree_with_a_dense_evaluation(epsilon_rate: str, kappa: str) -> None:
    rng = Random(f"{epsilon_rate}{kappa}")
    unfair = 0
    for n_trees in (3, 12, 30):
        model, space, trees = people(n_trees)
        for _ in range(3):
            unfair += check(model, space, trees, question(rng, ("race", "sex"), epsilon_rate, kappa), rng, 30_000)
    assert unfair > 0


@pytest.mark.parametrize("seed", range(2))
def test_the_dense_margins_are_the_librarys(seed: int) -> None:
    model, space, trees = people(12)
    part, _ = random_sub_box(Random(seed), trees, space, Robustness("0.1"), 5_000)
    points = [list(a.values) or [a.low, (a.low + a.high) / 2, a.high] for a in part]
    rows = np.array(np.meshgrid(*[[float(v) for v in p] for p in points], indexing="ij")).reshape(len(points), -1).T
    # float32-exact rows only: the library rounds its inputs, the definitions do not
    rows = rows.astype(np.float32).astype(np.float64)
    ours = np.array([float(trees.exact(list(row))) for row in rows])
    library = model.predict(rows, output_margin=True)
    assert np.abs(ours - library).max() < 1e-5


def test_the_dense_evaluation_notices_one_wrong_leaf() -> None:
    # A check that cannot fail is no check: the same box with one leaf of the model changed gives other masses.
    _, space, trees = people(12)
    part, asked = random_sub_box(Random(5), trees, space, Fairness("sex", "0.1"), 30_000)
    right = dense_quantify(trees, part, asked)
    left, right_children, feature, values = trees.trees[0]
    first_leaf = left.index(-1)
    changed = [v + 1.0 if node == first_leaf else v for node, v in enumerate(values)]
    wrong_trees = copy.copy(trees)
    wrong_trees.trees = [(left, right_children, feature, changed), *trees.trees[1:]]
    wrong = dense_quantify(wrong_trees, part, asked)
    assert abs(right.counterexample - wrong.counterexample) > 1e-6
