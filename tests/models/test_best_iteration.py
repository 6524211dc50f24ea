"""Early stopping: which trees of a model are read is said wherever the model is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxqte import Attribute, Fairness, Space, audit, load_model, quantify
from boxqte.cli.main import main

COLUMNS = [f"f{i}" for i in range(4)]


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.integers(0, 10, (400, 4)).astype(float)
    y = ((X[:, 0] + X[:, 1] > 9) ^ (rng.random(400) < 0.3)).astype(int)
    return X, y


def space() -> Space:
    return Space([Attribute.integer(name, 0, 9) for name in COLUMNS])


def grid_rows() -> np.ndarray:
    return np.random.default_rng(4).integers(0, 10, (2000, 4)).astype(float)


@pytest.fixture(scope="module")
def xgboost_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same early-stopped model saved by XGBoost's two interfaces."""
    xgboost = pytest.importorskip("xgboost")
    folder = tmp_path_factory.mktemp("stopped")
    X, y = data()
    model = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1, early_stopping_rounds=4, random_state=0)
    model.fit(X[:200], y[:200], eval_set=[(X[200:], y[200:])], verbose=False)
    model.save_model(folder / "classifier.json")
    train, test = (xgboost.DMatrix(X[p], y[p], feature_names=COLUMNS) for p in (slice(0, 200), slice(200, 400)))
    booster = xgboost.train({"objective": "binary:logistic", "max_depth": 3, "nthread": 1, "verbosity": 0}, train, 30,
                            evals=[(test, "test")], early_stopping_rounds=4, verbose_eval=False)  # fmt: skip
    booster.save_model(folder / "booster.ubj")
    booster.save_model(folder / "booster.json")
    return {"folder": folder, "classifier": model, "booster": booster}


@pytest.mark.parametrize("name", ["classifier.json", "booster.json", "booster.ubj"])
def test_a_file_is_read_as_xgbclassifier_reads_it_and_says_how_many_trees_that_are(
    xgboost_files: Any, name: str
) -> None:
    import xgboost

    file = xgboost_files["folder"] / name
    imported = load_model(file)
    booster = xgboost.Booster(model_file=file)
    used, held = int(booster.attr("best_iteration")) + 1, booster.num_boosted_rounds()
    assert used < held
    assert (imported.ensemble.n_trees, imported.trees_in_file) == (used, held)
    rows = grid_rows()
    classifier = xgboost.XGBClassifier(n_jobs=1)
    classifier.load_model(file)
    assert np.array_equal((imported.ensemble.margin(rows)[:, 0] > 0).astype(int), classifier.predict(rows))
    assert not np.array_equal(booster.inplace_predict(rows) > 0.5, classifier.predict(rows))  # so it matters


def test_a_live_booster_is_read_with_all_its_trees_and_a_live_classifier_is_not(xgboost_files: Any) -> None:
    booster = load_model(xgboost_files["booster"])
    assert booster.trees_in_file is None
    assert booster.ensemble.n_trees == xgboost_files["booster"].num_boosted_rounds()
    model = xgboost_files["classifier"]
    classifier = load_model(model)
    assert classifier.trees_in_file == model.get_booster().num_boosted_rounds() > classifier.ensemble.n_trees


def test_model_show_results_and_reports_say_how_many_trees_count(
    xgboost_files: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(xgboost_files["folder"] / "booster.json")
    booster = xgboost_files["booster"]
    used, held = booster.best_iteration + 1, booster.num_boosted_rounds()
    said = f"trees {used} of {held} (best_iteration)"
    assert main(["model", "show", file]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert main(["model", "show", file, "--json", "-"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["trees"], shown["trees_in_file"]) == (used, held)
    space().save(tmp_path / "space.json")
    asked = ["quantify", file, "--space", str(tmp_path / "space.json"), "--sensitive", "f0", "--engine", "exhaustive"]
    assert main([*asked, "--json", str(tmp_path / "r.json"), "--quiet"]) == 0
    assert said in capsys.readouterr().out
    summary = json.loads((tmp_path / "r.json").read_text())["model"]
    assert (summary["trees"], summary["trees_in_file"]) == (used, held)
    result = quantify(file, space(), Fairness("f0"), engine="exhaustive")
    assert said in result._repr_html_()
    found = audit(file, space=space(), sensitive="f0", engine="exhaustive", robustness=0)
    assert found.to_json()["model"]["trees_in_file"] == held
    assert said in found.to_html()


def test_a_model_without_early_stopping_says_its_trees_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    xgboost = pytest.importorskip("xgboost")
    X, y = data()
    xgboost.XGBClassifier(n_estimators=3, max_depth=2, n_jobs=1).fit(X, y).save_model(tmp_path / "m.json")
    assert load_model(tmp_path / "m.json").trees_in_file is None
    assert main(["model", "show", str(tmp_path / "m.json")]) == 0
    out = capsys.readouterr().out
    assert "best_iteration" not in out
    assert "3 with" in out


def test_lightgbm_saves_the_trees_that_it_predicts_with(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    X, y = data()
    train = lightgbm.Dataset(X[:200], y[:200])
    model = lightgbm.train(
        {"objective": "binary", "num_leaves": 7, "verbosity": -1, "num_threads": 1}, train, 60,
        valid_sets=[lightgbm.Dataset(X[200:], y[200:], reference=train)],
        callbacks=[lightgbm.early_stopping(3, verbose=False)], keep_training_booster=True,
    )  # fmt: skip
    assert 0 < model.best_iteration < model.num_trees()
    live = load_model(model)
    assert (live.ensemble.n_trees, live.trees_in_file) == (model.best_iteration, model.num_trees())
    rows = grid_rows()
    for iterations, expected in ((None, model.best_iteration), (-1, model.num_trees())):
        model.save_model(tmp_path / "m.txt", num_iteration=iterations)
        imported, loaded = load_model(tmp_path / "m.txt"), lightgbm.Booster(model_file=tmp_path / "m.txt")
        assert (imported.ensemble.n_trees, imported.trees_in_file) == (expected, None)
        assert np.array_equal(imported.ensemble.margin(rows)[:, 0] > 0, loaded.predict(rows) > 0.5)


def test_catboost_drops_the_trees_after_the_best_iteration_itself(tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost")
    X, y = data()
    model = catboost.CatBoostClassifier(
        iterations=60, depth=3, thread_count=1, verbose=False, allow_writing_files=False, early_stopping_rounds=3,
        learning_rate=0.5,
    )  # fmt: skip
    model.fit(X[:200], y[:200], eval_set=(X[200:], y[200:]))
    model.save_model(str(tmp_path / "m.json"), format="json")
    assert model.tree_count_ == model.best_iteration_ + 1
    for source in (model, tmp_path / "m.json"):
        imported = load_model(source)
        assert (imported.ensemble.n_trees, imported.trees_in_file) == (model.tree_count_, None)
        rows = grid_rows()
        assert np.array_equal((imported.ensemble.margin(rows)[:, 0] > 0).astype(int), model.predict(rows).ravel())
