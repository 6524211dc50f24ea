"""A refusal that has a way out says it: another call to save, an extra to install, or `boxqte test`."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxqte import ModelError, load_model
from tests.models.kinds_of_files import catboost_model, data, forest, saved


def of_xgboost(**params: Any) -> Any:
    import xgboost

    return xgboost.train({"max_depth": 2, "nthread": 1, **params}, xgboost.DMatrix(*data()), 2)


def of_lightgbm(y: np.ndarray | None = None, **params: Any) -> Any:
    import lightgbm

    x, labels = data()
    return lightgbm.train(
        {"verbosity": -1, "num_threads": 1, "num_leaves": 4, **params},
        lightgbm.Dataset(x, labels if y is None else y, free_raw_data=False), 2,
    )  # fmt: skip


def of_sklearn(name: str, y: Any = None, **params: Any) -> Any:
    import sklearn.ensemble
    import sklearn.linear_model

    module = sklearn.ensemble if hasattr(sklearn.ensemble, name) else sklearn.linear_model
    x, labels = data()
    return getattr(module, name)(**params).fit(x, labels if y is None else y)


def logistic_init() -> Any:
    from sklearn.linear_model import LogisticRegression

    return of_sklearn("GradientBoostingClassifier", n_estimators=2, init=LogisticRegression())


SQUARE: Callable[..., Any] = lambda p, d: (p - d.get_label(), np.ones_like(p))  # noqa: E731
TEST = "`boxqte test` asks any predict function"
WAYS: dict[str, tuple[Callable[[], Any], str]] = {
    "XGBoost, linear booster": (lambda: of_xgboost(booster="gblinear", objective="binary:logistic", max_depth=6), TEST),
    "XGBoost, hinge": (lambda: of_xgboost(objective="binary:hinge"), TEST),
    "LightGBM, one against the rest": (
        lambda: of_lightgbm(np.digitize(data()[0][:, 0], [-0.5, 0.5]), objective="multiclassova", num_class=3), TEST),
    "LightGBM, custom objective": (lambda: of_lightgbm(objective=SQUARE), TEST),
    "LightGBM, linear trees": (lambda: of_lightgbm(objective="binary", linear_tree=True), TEST),
    "scikit-learn, no trees": (lambda: of_sklearn("LogisticRegression"), TEST),
    "scikit-learn, several targets": (
        lambda: of_sklearn("RandomForestClassifier", np.stack([data()[1]] * 2, axis=1), n_estimators=2), TEST),
    "scikit-learn, a model before the trees": (logistic_init, TEST),
    "anything else": (lambda: {"a": "dict"}, TEST),
}  # fmt: skip


@pytest.mark.parametrize("what", WAYS)
@pytest.mark.filterwarnings("ignore")
def test_a_model_without_an_exact_counterpart_is_sent_to_the_testers(what: str) -> None:
    make, way = WAYS[what]
    with pytest.raises(ModelError) as caught:
        load_model(make())
    assert way in str(caught.value)


@pytest.mark.parametrize(
    ("library", "extra"), [("joblib", "sklearn"), ("skops", "sklearn"), ("catboost", "catboost")]
)  # fmt: skip
def test_a_missing_library_is_named_with_the_extra_that_brings_it(
    library: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    if library == "joblib":
        path.write_bytes(pickle.dumps(forest()))
    elif library == "skops":
        import skops.io

        skops.io.dump(forest(), path)
    else:
        path = saved(catboost_model, "model.cbm")(tmp_path)
    for name in ("joblib.numpy_pickle", "joblib.compressor", "skops", "skops.io"):
        if name.partition(".")[0] == library:
            monkeypatch.setitem(__import__("sys").modules, name, None)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == library else found(name))
    with pytest.raises(ModelError, match=rf"install boxqte\[{extra}\]"):
        load_model(path, allow_pickle=True)


def test_a_pickle_of_another_version_says_how_to_save_it_instead(tmp_path: Path) -> None:
    (tmp_path / "m.pkl").write_bytes(b"\x80\x04csklearn.tree\nNoSuchTree\n.")
    with pytest.raises(ModelError, match=r"load it where it was made and save it with skops or .* save_model"):
        load_model(tmp_path / "m.pkl", allow_pickle=True)
