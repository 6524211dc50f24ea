"""Monotone constraints that a model declares: read from where each library keeps them, and never trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from boxqte import ModelError, load_model

DECLARED = {"income": "increasing", "debt": "decreasing"}


@pytest.fixture(scope="module")
def data() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.uniform(size=(300, 3)), columns=["income", "debt", "age"])
    return frame, (frame["income"] - frame["debt"] + 0.3 * rng.normal(size=300) > 0).astype(int)


def gbm(data: tuple[pd.DataFrame, Any], **options: Any) -> Any:
    return lightgbm.LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1, n_jobs=1, **options).fit(*data)


def boosted(data: tuple[pd.DataFrame, Any], **options: Any) -> Any:
    return xgboost.XGBClassifier(n_estimators=3, max_depth=2, n_jobs=1, **options).fit(*data)


def test_lightgbm_keeps_them_in_every_form(data: tuple[pd.DataFrame, Any], tmp_path: Path) -> None:
    model = gbm(data, monotone_constraints=[1, -1, 0])
    model.booster_.save_model(tmp_path / "model.txt")
    (tmp_path / "model.json").write_text(json.dumps(model.booster_.dump_model()))
    for source in (model, model.booster_, tmp_path / "model.txt", tmp_path / "model.json"):
        assert load_model(source).monotone == DECLARED
    assert load_model(gbm(data)).monotone == {}
    regressor = lightgbm.LGBMRegressor(n_estimators=2, verbose=-1, n_jobs=1, monotone_constraints=[0, -1, 0]).fit(*data)
    assert load_model(regressor).monotone == {"debt": "decreasing"}


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
@pytest.mark.parametrize("given", [{"income": 1, "debt": -1}, "(1,-1,0)", (1, -1)])
def test_of_xgboost_a_live_object_knows_them(data: tuple[pd.DataFrame, Any], booster: str, given: Any) -> None:
    model = boosted(data, monotone_constraints=given, booster=booster)
    assert load_model(model).monotone == DECLARED
    assert load_model(model.get_booster()).monotone == DECLARED


def test_a_saved_xgboost_model_has_lost_them(data: tuple[pd.DataFrame, Any], tmp_path: Path) -> None:
    boosted(data, monotone_constraints={"income": 1}).save_model(tmp_path / "model.json")
    assert "monotone" not in (tmp_path / "model.json").read_text()
    assert load_model(tmp_path / "model.json").monotone == {}


def as_saved_by_old_wrappers(data: tuple[pd.DataFrame, Any], path: Path, kept: Any) -> None:
    """XGBoost up to 1.7 wrote the arguments of its scikit-learn models into an attribute."""
    boosted(data).save_model(path)
    document = json.loads(path.read_text())
    document["learner"]["attributes"]["scikit_learn"] = kept if isinstance(kept, str) else json.dumps(kept)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("given", [{"income": 1, "debt": -1}, "(1,-1,0)", "(1, -1)", [1, -1, 0], None])
def test_files_of_old_wrappers_have_them(data: tuple[pd.DataFrame, Any], tmp_path: Path, given: Any) -> None:
    as_saved_by_old_wrappers(data, tmp_path / "m.json", {"n_estimators": 3, "monotone_constraints": given})
    assert load_model(tmp_path / "m.json").monotone == ({} if given is None else DECLARED)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("{", "learner.attributes.scikit_learn"),
        ("[1]", "learner.attributes.scikit_learn: expected an object, found [1]"),
        ({"monotone_constraints": 3}, "monotone_constraints: expected -1, 0 or 1 for each column, found 3"),
        ({"monotone_constraints": [1, 2]}, "monotone_constraints[1]: 2 is outside -1..1"),
        ({"monotone_constraints": "(1,x)"}, "monotone_constraints[1]: expected an integer, found 'x'"),
        ({"monotone_constraints": [0] * 4}, "monotone_constraints: has 4 entries, the model has 3 columns"),
        ({"monotone_constraints": {"height": 1}}, "monotone_constraints: 'height' is no column of the model"),
    ],
)
def test_a_file_that_declares_nonsense_is_refused(
    data: tuple[pd.DataFrame, Any], tmp_path: Path, kept: Any, said: str
) -> None:
    as_saved_by_old_wrappers(data, tmp_path / "m.json", kept)
    with pytest.raises(ModelError) as raised:
        load_model(tmp_path / "m.json")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "said"), [("1 -1 0 1", "has 4 entries"), ("1 7 0", "[1]: 7 is outside -1..1"), ("x", "x")]
)
def test_a_lightgbm_file_that_declares_nonsense_is_refused(
    data: tuple[pd.DataFrame, Any], tmp_path: Path, line: str, said: str
) -> None:
    text = gbm(data, monotone_constraints=[1, -1, 0]).booster_.model_to_string()
    (tmp_path / "m.txt").write_text(text.replace("monotone_constraints=1 -1 0", f"monotone_constraints={line}"))
    with pytest.raises(ModelError, match="monotone_constraints") as raised:
        load_model(tmp_path / "m.txt")
    assert said in str(raised.value)


def test_behind_a_pipeline_they_are_about_other_columns(data: tuple[pd.DataFrame, Any]) -> None:
    frame, y = data
    model = xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1, monotone_constraints=(1, 0, 0))
    assert load_model(make_pipeline(StandardScaler(), model).fit(frame, y)).monotone == {}
