"""`trees=`: all trees, those up to the best iteration, or so many, as each library's own predict has them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxqte import ModelError, load_model
from boxqte.cli.main import main
from boxqte.models.importers import ImportedModel

STOP = 4


@cache
def data(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 10, (400, 4)).astype(float)
    score = x[:, 0] + x[:, 1]
    y = np.digitize(score, [9.5] if classes == 2 else [6.5, 12.5])
    return x, np.where(rng.random(400) < 0.3, rng.integers(0, classes, 400), y)


@cache
def rows() -> np.ndarray:
    return np.random.default_rng(4).integers(0, 10, (100, 4)).astype(float)


@cache
def of_xgboost(classes: int = 2) -> Any:
    import xgboost

    x, y = data(classes)
    model = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1, early_stopping_rounds=STOP)
    return model.fit(x[:200], y[:200], eval_set=[(x[200:], y[200:])], verbose=False)


@cache
def of_lightgbm(classes: int = 2, **options: Any) -> Any:
    import lightgbm

    x, y = data(classes)
    train = lightgbm.Dataset(x[:200], y[:200])
    objective = {"objective": "binary"} if classes == 2 else {"objective": "multiclass", "num_class": classes}
    return lightgbm.train(
        {**objective, "num_leaves": 7, "verbosity": -1, "num_threads": 1, **options}, train, 40,
        valid_sets=[lightgbm.Dataset(x[200:], y[200:], reference=train)],
        callbacks=[lightgbm.early_stopping(STOP, verbose=False)], keep_training_booster=True,
    )  # fmt: skip


@cache
def of_catboost() -> Any:
    import catboost

    x, y = data()
    model = catboost.CatBoostClassifier(iterations=25, depth=3, thread_count=1, verbose=False, learning_rate=0.5,
                                        allow_writing_files=False, use_best_model=False)  # fmt: skip
    return model.fit(x[:200], y[:200], eval_set=(x[200:], y[200:]))


def same(imported: ImportedModel, expected: np.ndarray) -> None:
    """Our classes and the replay's are the library's own, wherever rounding does not decide."""
    assert imported.native is not None
    assert imported.native(rows()).tolist() == expected.tolist()
    margins = imported.ensemble.exact_margin(rows())
    clear = [sorted(m)[-1] - sorted(m)[-2] > 1e-3 if len(m) > 1 else abs(m[0]) > 1e-3 for m in margins]
    assert sum(clear) > 60
    assert imported.ensemble.predict(rows())[clear].tolist() == expected[clear].tolist()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("form", ["classifier", "booster", "ubj"])
def test_xgboost(classes: int, form: str, tmp_path: Path) -> None:
    model = of_xgboost(classes)
    held, best = model.get_booster().num_boosted_rounds(), model.best_iteration + 1
    assert best < held
    source: Any = {"classifier": model, "booster": model.get_booster()}.get(form)
    if source is None:
        source = tmp_path / f"model.{form}"
        model.save_model(source)
    per = 1 if classes == 2 else classes
    default = held if form == "booster" else best
    for trees, rounds in ((None, default), ("all", held), ("best", best), (2 * per, 2), (str(per), 1)):
        imported = load_model(source, trees=trees)
        assert imported.ensemble.n_trees == rounds * per
        assert imported.trees_in_file == (held * per if rounds < held else None)
        same(imported, model.predict(rows(), iteration_range=(0, rounds)))
    assert not np.array_equal(
        model.predict(rows(), iteration_range=(0, held)), model.predict(rows(), iteration_range=(0, best))
    )
    # The default is what the library's own object predicts.
    if form == "classifier":
        same(load_model(source), model.predict(rows()))
    elif form == "ubj":
        import xgboost

        again = xgboost.XGBClassifier()
        again.load_model(source)
        same(load_model(source), again.predict(rows()))


@pytest.mark.parametrize("classes", [2, 3])
def test_lightgbm(classes: int, tmp_path: Path) -> None:
    model = of_lightgbm(classes)
    held, best, per = model.current_iteration(), model.best_iteration, 1 if classes == 2 else classes
    assert 0 < best < held

    def expected(rounds: int | None) -> np.ndarray:
        scores = model.predict(rows(), num_iteration=rounds)
        return (scores > 0.5).astype(int) if classes == 2 else scores.argmax(axis=1)

    same(load_model(model), expected(None))
    for trees, rounds in ((None, best), ("all", held), ("best", best), (2 * per, 2), (held * per, held)):
        imported = load_model(model, trees=trees)
        assert imported.ensemble.n_trees == rounds * per
        assert imported.trees_in_file == (held * per if rounds < held else None)
        same(imported, expected(rounds))
    model.save_model(tmp_path / "all.txt", num_iteration=-1)
    (tmp_path / "dump.json").write_text(json.dumps(model.dump_model(num_iteration=-1)))
    for path in (tmp_path / "all.txt", tmp_path / "dump.json"):
        for trees, rounds in ((None, held), ("all", held), (3 * per, 3)):
            imported = load_model(path, trees=trees)
            assert imported.ensemble.n_trees == rounds * per
            same(imported, expected(rounds))
        with pytest.raises(ModelError, match=f"{path}: trees='best': the model has no best iteration"):
            load_model(path, trees="best")


def test_a_random_forest_of_lightgbm_is_the_mean_of_the_trees_that_count(tmp_path: Path) -> None:
    import lightgbm

    x, y = data()
    params = {"objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6, "num_leaves": 7,
              "verbosity": -1, "num_threads": 1}  # fmt: skip
    model = lightgbm.train(params, lightgbm.Dataset(x, y), 8)
    model.save_model(tmp_path / "m.txt")
    imported = load_model(tmp_path / "m.txt", trees=3)
    probability = 1 / (1 + np.exp(-imported.ensemble.margin(rows())[:, 0]))
    assert np.allclose(probability, model.predict(rows(), num_iteration=3), rtol=1e-12)
    same(imported, (model.predict(rows(), num_iteration=3) > 0.5).astype(int))


def test_catboost(tmp_path: Path) -> None:
    model = of_catboost()
    held, best = model.tree_count_, model.best_iteration_ + 1
    assert best < held
    model.save_model(str(tmp_path / "m.json"), format="json")
    for trees, rounds in ((None, held), ("all", held), ("best", best), (3, 3)):
        imported = load_model(model, trees=trees)
        assert (imported.ensemble.n_trees, imported.trees_in_file) == (rounds, held if rounds < held else None)
        same(imported, model.predict(rows(), ntree_end=rounds))
    same(load_model(model), model.predict(rows()))
    same(load_model(tmp_path / "m.json", trees=3), model.predict(rows(), ntree_end=3))
    with pytest.raises(ModelError, match=r"m.json: trees='best': the model has no best iteration; accepted are 'all'"):
        load_model(tmp_path / "m.json", trees="best")


@pytest.mark.parametrize("kind", ["GradientBoostingClassifier", "HistGradientBoostingClassifier"])
@pytest.mark.parametrize("classes", [2, 3])
def test_scikit_learns_stages(kind: str, classes: int, tmp_path: Path) -> None:
    import sklearn.ensemble
    import skops.io
    from threadpoolctl import threadpool_limits

    x, y = data(classes)
    rounds = {"n_estimators": 4} if kind.startswith("Gradient") else {"max_iter": 4}
    per = 1 if classes == 2 else classes
    with threadpool_limits(1):  # so little work is done sooner by one thread
        model = getattr(sklearn.ensemble, kind)(max_depth=3, **rounds).fit(x, y)
        stages = list(model.staged_predict(rows()))
        skops.io.dump(model, tmp_path / "m.skops")
        for source, trees, count in ((model, None, 4), (model, "all", 4), (tmp_path / "m.skops", 2 * per, 2)):
            imported = load_model(source, trees=trees)
            assert (imported.ensemble.n_trees, imported.trees_in_file) == (count * per, 4 * per if count < 4 else None)
            same(imported, stages[count - 1])


@pytest.mark.parametrize("kind", ["GradientBoostingClassifier", "HistGradientBoostingClassifier"])
def test_a_cut_model_is_asked_for_its_own_stages_probabilities_and_margins(kind: str) -> None:
    import sklearn.ensemble
    from threadpoolctl import threadpool_limits

    x, y = data(2)
    rounds = {"n_estimators": 8} if kind.startswith("Gradient") else {"max_iter": 8}
    with threadpool_limits(1):
        model = getattr(sklearn.ensemble, kind)(max_depth=3, **rounds).fit(x, y)
        p, margin = list(model.staged_predict_proba(rows()))[2], list(model.staged_decision_function(rows()))[2]
        cut = load_model(model, trees=3)
        assert cut.probability is not None
        assert cut.margin is not None
        assert np.array_equal(cut.probability(rows()), p)
        assert np.array_equal(cut.margin(rows()), margin.reshape(-1))
        decided = load_model(model, trees=3, threshold=0.6)
        assert decided.native is not None
        assert np.array_equal(decided.native(rows()), p[:, 1] >= 0.6)


def test_a_model_without_rounds_is_not_cut(tmp_path: Path) -> None:
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(3, max_depth=2).fit(*data())
    assert load_model(forest, trees="all").ensemble.n_trees == 3
    with pytest.raises(ModelError, match="RandomForestClassifier: trees=2: has no boosting rounds, so all"):
        load_model(forest, trees=2)
    of_catboost().save_model(str(tmp_path / "m.onnx"), format="onnx")
    with pytest.raises(ModelError, match=r"m.onnx: an ONNX file: trees='best': has no boosting rounds"):
        load_model(tmp_path / "m.onnx", trees="best")


@pytest.mark.parametrize("trees", [0, -1, "none", True, 1.5, "0", "1e3", ""])
def test_a_number_of_trees_that_makes_no_sense_is_refused(trees: Any) -> None:
    with pytest.raises(ModelError, match="trees: expected 'all', 'best' or a number of trees from 1 on"):
        load_model(of_catboost(), trees=trees)


def test_a_number_that_is_no_whole_round_is_refused_with_what_is_accepted() -> None:
    held = of_xgboost(3).get_booster().num_boosted_rounds() * 3
    with pytest.raises(
        ModelError, match=f"trees=4: the model has {held} trees; accepted are 1 to {held} in steps of 3"
    ):
        load_model(of_xgboost(3), trees=4)


def test_the_command_line_chooses_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = of_xgboost()
    file = str(tmp_path / "model.json")
    model.save_model(file)
    held, best = model.get_booster().num_boosted_rounds(), model.best_iteration + 1
    said = {
        "best": f"trees {best} of {held} (best_iteration)",
        "all": f"trees {held} with",
        "2": f"trees 2 of {held} (trees=2)",
    }
    for trees, words in said.items():
        assert main(["model", "show", file, "--trees", trees]) == 0
        assert words in " ".join(capsys.readouterr().out.split())
    assert main(["model", "show", file, "--trees", "some"]) == 2
    assert "--trees: expected 'all', 'best' or a number" in capsys.readouterr().err
    from boxqte import Attribute, Space

    Space([Attribute.integer(f"f{i}", 0, 9) for i in range(4)]).save(tmp_path / "space.json")
    asked = ["--space", str(tmp_path / "space.json"), "--sensitive", "f0", "--quiet"]
    assert main(["quantify", file, *asked, "--trees", "2", "--json", str(tmp_path / "r.json")]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["model"]["trees"] == 2
    audited = ["--robustness-rate", "0", "--engine", "exhaustive", "--json", str(tmp_path / "a.json")]
    assert main(["audit", file, *asked, "--trees", "all", *audited]) == 0
    assert json.loads((tmp_path / "a.json").read_text())["model"]["trees"] == held
