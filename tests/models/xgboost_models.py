"""Small XGBoost models, one for each kind of thing the format can say, and what the library says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

QUIET = {"nthread": 1, "verbosity": 0, "seed": 0}
CATEGORY_TYPES = ["c", "c", "float"]


def numeric_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    X[:, 1] = X[:, 1].round(1)
    X[:, 2] = rng.integers(0, 5, 300)
    y = (X[:, 0] + X[:, 1] + (X[:, 2] == 2) + rng.normal(size=300) / 2 > 0.5).astype(int)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def category_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = np.stack([rng.integers(0, 9, 400), rng.integers(0, 3, 400), rng.normal(size=400)], axis=1)
    y = (np.isin(X[:, 0], [1, 4, 7]) + (X[:, 1] == 2) + X[:, 2] / 2 + rng.normal(size=400) / 2 > 1).astype(int)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def three_classes() -> np.ndarray:
    X, y = numeric_data()
    return np.where(np.nan_to_num(X[:, 3]) > 0.8, 2, y)


def booster(rounds: int = 5, y: np.ndarray | None = None, **params: Any) -> xgboost.Booster:
    X, binary = numeric_data()
    data = xgboost.DMatrix(X, binary if y is None else y, nthread=1)
    return xgboost.train({"objective": "binary:logistic", "max_depth": 3, **QUIET, **params}, data, rounds)


def category_booster(**params: Any) -> xgboost.Booster:
    X, y = category_data()
    data = xgboost.DMatrix(X, y, feature_types=CATEGORY_TYPES, enable_categorical=True, nthread=1)
    return xgboost.train({"objective": "binary:logistic", "max_depth": 4, **QUIET, **params}, data, 5)


def pruned_category_booster() -> xgboost.Booster:
    X, y = category_data()
    data = xgboost.DMatrix(X, y, feature_types=CATEGORY_TYPES, enable_categorical=True, nthread=1)
    update = {"process_type": "update", "updater": "prune", "gamma": 4.0}
    return xgboost.train(
        {"objective": "binary:logistic", **QUIET, **update}, data, 5, xgb_model=category_booster(max_cat_to_onehot=2)
    )


def classifier(kind: type = xgboost.XGBClassifier, y: np.ndarray | None = None, **params: Any) -> Any:
    X, binary = numeric_data()
    model = kind(**{"n_estimators": 5, "max_depth": 3, "n_jobs": 1, "verbosity": 0, "random_state": 0, **params})
    return model.fit(X, binary if y is None else y)


def stopped_classifier() -> Any:
    X, y = numeric_data()
    model = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1, early_stopping_rounds=4, random_state=0)
    return model.fit(X[:200], y[:200], eval_set=[(X[200:], y[200:])], verbose=False)


MULTI = {"objective": "multi:softprob", "num_class": 3}
KINDS: dict[str, Callable[[], Any]] = {
    "classifier": classifier,
    "booster": booster,
    "base_score": lambda: booster(base_score=0.9),
    "logitraw": lambda: booster(objective="binary:logitraw"),
    "dart": lambda: booster(10, booster="dart", rate_drop=0.5),
    "dart classifier": lambda: classifier(booster="dart", rate_drop=0.5, n_estimators=10),
    "random forest": lambda: classifier(xgboost.XGBRFClassifier),
    "boosted forests": lambda: booster(2, num_parallel_tree=3, subsample=0.5),
    "deleted nodes": lambda: booster(tree_method="exact", gamma=2.0, max_depth=5),
    "leaf-wise": lambda: booster(grow_policy="lossguide", max_leaves=9, max_depth=0),
    "single leaves": lambda: booster(gamma=1e6),
    "one-hot categories": lambda: category_booster(max_cat_to_onehot=100),
    "partitioned categories": lambda: category_booster(max_cat_to_onehot=1),
    "pruned categories": pruned_category_booster,
    "softprob": lambda: booster(3, three_classes(), **MULTI),
    "softmax": lambda: booster(3, three_classes(), objective="multi:softmax", num_class=3),
    "softprob classifier": lambda: classifier(y=three_classes(), n_estimators=3),
    "softprob forests": lambda: booster(2, three_classes(), num_parallel_tree=2, subsample=0.5, **MULTI),
    "softprob dart": lambda: booster(4, three_classes(), booster="dart", rate_drop=0.5, **MULTI),
    "vector leaves": lambda: booster(3, three_classes(), multi_strategy="multi_output_tree", **MULTI),
    "early stopping": stopped_classifier,
}
SMALL = ("classifier", "dart", "partitioned categories", "deleted nodes", "vector leaves", "early stopping")


@cache
def all_models() -> dict[str, Any]:
    return {name: build() for name, build in KINDS.items()}


def booster_of(model: Any) -> xgboost.Booster:
    return model if isinstance(model, xgboost.Booster) else model.get_booster()


def document_of(model: Any) -> Any:
    return json.loads(bytes(booster_of(model).save_raw("json")))


def saved(model: Any, path: Path) -> Path:
    model.save_model(path)
    return path


def library_leaves(model: xgboost.Booster, rows: np.ndarray, n_trees: int) -> np.ndarray:
    data = xgboost.DMatrix(
        rows, feature_names=model.feature_names, feature_types=model.feature_types, enable_categorical=True, nthread=1
    )
    return model.predict(data, pred_leaf=True).reshape(len(rows), -1).astype(int)[:, :n_trees]


def library_classes(model: Any, rows: np.ndarray) -> np.ndarray:
    if not isinstance(model, xgboost.Booster):
        return model.predict(rows)
    output = model.inplace_predict(rows)
    objective = document_of(model)["learner"]["objective"]["name"]
    if output.ndim == 2:
        return output.argmax(axis=1)
    return output if objective == "multi:softmax" else output > (0.0 if objective == "binary:logitraw" else 0.5)


def tree_documents(document: Any) -> list[Any]:
    booster = document["learner"]["gradient_booster"]
    return booster.get("gbtree", booster)["model"]["trees"]
