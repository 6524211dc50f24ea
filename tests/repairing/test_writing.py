"""What cannot be written back is refused by name, in one line with the way out; and what every library shares."""

from __future__ import annotations

import gzip
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from imblearn.ensemble import BalancedRandomForestClassifier
from imblearn.over_sampling import RandomOverSampler
from imblearn.pipeline import make_pipeline
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import StandardScaler

from boxqte.errors import ModelError
from boxqte.examples import loan_ensemble
from boxqte.models.ensemble import EnsembleBuilder
from boxqte.models.imported import ImportedModel
from boxqte.models.importers import load_model
from boxqte.repairing.writing import storable, write_back
from boxqte.repairing.writing.shapes import first_difference, first_other_answer, with_trees
from tests.models.test_importer_sklearn import data
from tests.models.xgboost_models import all_models, numeric_data, saved, three_classes
from tests.repairing.edits import edits, some_boundary_rows

pytestmark = pytest.mark.usefixtures("one_thread")


def refusal(source: Any, **options: Any) -> str:
    imported = load_model(source, **options)
    with pytest.raises(ModelError) as caught:
        write_back(source, imported, imported.ensemble, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_archives_and_folders_are_refused_with_the_way_out(tmp_path: Path) -> None:
    path = saved(all_models()["booster"], tmp_path / "model.json")
    packed = tmp_path / "model.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert refusal(packed) == f"{packed}: an archive cannot be written back; unpack it and give the model file"
    folder = tmp_path / "mlflow"
    folder.mkdir()
    saved(all_models()["booster"], folder / "model.json")
    (folder / "MLmodel").write_text(
        "flavors:\n  xgboost:\n    data: model.json\n    model_class: xgboost.core.Booster\n"
    )
    assert refusal(folder) == f"{folder}: a folder cannot be written back; give the model file in it"


def test_an_onnx_model_is_refused_by_name() -> None:
    imported = ImportedModel(replace(loan_ensemble(), library="onnx"), "model.onnx")
    with pytest.raises(
        ModelError, match=r"model.onnx: a model of 'onnx' cannot be written back; accepted are models of"
    ):
        storable(imported, [0.0])


def test_leaves_with_a_value_for_each_class_are_refused_in_every_library() -> None:
    X, y = data(n_classes=3)
    forest = RandomForestClassifier(2, max_depth=2, random_state=0).fit(X, y)
    said = "leaves with a value for each class cannot be written back; accepted is one value a leaf"
    assert refusal(forest) == f"sklearn.ensemble._forest.RandomForestClassifier: {said}"


def test_boosted_models_of_many_classes_are_written_tree_by_tree() -> None:
    X, _ = numeric_data()
    model = GradientBoostingClassifier(n_estimators=3, random_state=0).fit(np.nan_to_num(X), three_classes())
    imported = load_model(model)
    edited = edits(imported.ensemble, 0)[3]
    live = write_back(model, imported, edited).model
    rows = some_boundary_rows(edited, 100, missing=False)
    assert np.array_equal(live.predict(rows), edited.predict(rows))


def test_resampling_steps_stay_in_a_pipeline_and_in_a_forest() -> None:
    X, y = data()
    model = make_pipeline(
        RandomOverSampler(random_state=0), StandardScaler(), GradientBoostingClassifier(n_estimators=3)
    )
    forest = BalancedRandomForestClassifier(4, max_depth=3, random_state=0, n_jobs=1)
    for source in (model.fit(X, y), forest.fit(X, y)):
        imported = load_model(source)
        edited = edits(imported.ensemble, 3, low=0.0, high=1.0)[3]
        live = write_back(source, imported, edited).model
        assert type(live) is type(source)
        assert np.array_equal(live.predict(X), edited.predict(X))


def test_a_frozen_model_stays_frozen() -> None:
    X, y = data()
    source = FrozenEstimator(GradientBoostingClassifier(n_estimators=3).fit(X, y))
    imported = load_model(source)
    edited = edits(imported.ensemble, 3)[3]
    live = write_back(source, imported, edited).model
    assert type(live) is FrozenEstimator
    assert np.array_equal(live.predict(X), edited.predict(X))
    assert not np.array_equal(live.predict(X), source.predict(X))


def test_a_threshold_on_a_number_is_kept(tmp_path: Path) -> None:
    X, y = numeric_data()
    for objective in ("reg:squarederror", "count:poisson"):
        model = xgboost.XGBRegressor(n_estimators=3, max_depth=2, objective=objective, n_jobs=1).fit(X, y + 0.5)
        path = saved(model, tmp_path / "model.json")
        imported = load_model(path, threshold=1)
        edited = edits(imported.ensemble, 1, low=-0.3, high=0.3)[3]
        written = write_back(path, imported, edited, threshold=1)
        loaded = xgboost.XGBRegressor(n_jobs=1)
        loaded.load_model(written.save(tmp_path / "written.json"))
        rows = some_boundary_rows(edited, 100)
        assert np.array_equal(written.imported.ensemble.predict(rows), loaded.predict(rows) >= 1)


def test_what_reads_differently_is_noticed() -> None:
    ensemble = load_model(all_models()["booster"]).ensemble
    for seed in range(5):
        for other in edits(ensemble, seed)[1:]:
            assert first_difference(ensemble, other) is not None
            assert first_other_answer(ensemble, other) is not None
    assert first_difference(ensemble, ensemble) is None
    assert first_other_answer(ensemble, ensemble) is None


def test_the_order_of_tests_is_no_other_answer() -> None:
    def tree(first: float, second: float, values: list[float]) -> Any:
        builder = EnsembleBuilder()
        builder.add_tree(
            feature=[0 if first > 1 else 1, 0 if second > 1 else 1, 0 if second > 1 else 1, -1, -1, -1, -1],
            test=[1, 1, 1, 0, 0, 0, 0], threshold=[first, second, second, 0, 0, 0, 0],
            left=[1, 3, 5, -1, -1, -1, -1], right=[2, 4, 6, -1, -1, -1, -1], value=[0.0, 0, 0, *values],
        )  # fmt: skip
        return with_trees(loan_ensemble(), builder)

    one, other = tree(2.0, 1.0, [1, 2, 3, 4]), tree(1.0, 2.0, [1, 3, 2, 4])
    assert first_difference(one, other) is not None
    assert first_other_answer(one, other) is None
    assert first_other_answer(one, tree(1.0, 2.0, [1, 2, 3, 4])) is not None


def test_a_pickled_model_of_another_library_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(all_models()["classifier"]))
    imported = load_model(path, allow_pickle=True)
    edited = edits(imported.ensemble, 0)[3]
    written = write_back(path, imported, edited, allow_pickle=True)
    loaded = pickle.loads(written.save(tmp_path / "written.pkl").read_bytes())
    assert type(loaded) is xgboost.XGBClassifier
    rows = some_boundary_rows(edited, 50)
    assert np.array_equal(loaded.predict(rows), written.imported.ensemble.predict(rows))
