"""Files of every kind: read as their library reads them, or refused with what they look like and the way out."""

from __future__ import annotations

import gzip
import json
import time
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxqte import ModelError, load_model
from tests.conformance.mutations import mutate_bytes, mutate_document, refused_or_sound
from tests.conformance.suite import assert_conforms, boundary_rows
from tests.models.kinds_of_files import (
    READ,
    REFUSED,
    Kind,
    booster,
    catboost_model,
    data,
    dumped,
    forest,
    lightgbm_booster,
    mlflow_folder,
    saved,
)


def predicted(name: str, x: np.ndarray) -> np.ndarray:
    """The classes by the library that trained the model of a kind."""
    if "XGBoost" in name or "xgboost" in name:
        return (booster().inplace_predict(x) > 0.5).astype(int)
    if "LightGBM" in name or "lightgbm" in name:
        return (lightgbm_booster().predict(x) > 0.5).astype(int)
    if "scikit-learn" in name or "sklearn" in name:
        return forest().predict(x)
    return catboost_model().predict(x)  # ONNX too: CatBoost exported it


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.name)
def test_a_file_is_read_and_replayed_as_the_library_that_trained_it_predicts(kind: Kind, tmp_path: Path) -> None:
    source = kind.make(tmp_path)
    imported = load_model(source, allow_pickle=kind.allow_pickle)
    x, _ = data()
    x = x.astype(np.float32).astype(float)
    assert imported.source.startswith(str(source))  # not a temporary file
    assert imported.ensemble.predict(x).tolist() == predicted(kind.name, x).tolist()
    assert imported.native is not None
    assert imported.native(x).tolist() == predicted(kind.name, x).tolist()


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.name)
def test_a_refusal_says_what_was_found_and_the_way_out(kind: Kind, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=kind.refused) as caught:
        load_model(kind.make(tmp_path), allow_pickle=kind.allow_pickle)
    assert str(caught.value).splitlines() == [str(caught.value)]
    assert kind.form == "live" or str(tmp_path) in str(caught.value)
    assert "/tmp/tmp" not in str(caught.value)


# --- LightGBM's JSON ---


@cache
def lightgbm_kinds() -> dict[str, Any]:
    import lightgbm

    x, y = data()
    rng = np.random.default_rng(1)
    holed = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    coded = np.column_stack([x[:, 0], rng.integers(0, 40, len(x)), np.round(x[:, 2]), x[:, 3]])
    several = np.digitize(x[:, 0], [-0.5, 0.5])
    common = {"verbosity": -1, "num_threads": 1, "num_leaves": 6, "min_data_in_leaf": 5}

    def train(
        features: np.ndarray, labels: np.ndarray, rounds: int = 3, categories: Any = "auto", **options: Any
    ) -> Any:
        train_set = lightgbm.Dataset(features, labels, categorical_feature=categories)
        return lightgbm.train({"objective": "binary", **common, **options}, train_set, rounds)

    return {
        "missing values": train(holed, y),
        "zero as missing": train(np.where(rng.random(x.shape) < 0.3, 0, x), y, zero_as_missing=True),
        "categories": train(
            coded, (coded[:, 1] % 3 == 1).astype(int), categories=[1], min_data_per_group=2, cat_smooth=1
        ),
        "three classes": train(x, several, objective="multiclass", num_class=3),
        "random forest": train(x, y, boosting="rf", bagging_fraction=0.7, bagging_freq=1, feature_fraction=0.9),
        "sigmoid": train(x, y, sigmoid=0.7),
        "one leaf": train(x, y, min_data_in_leaf=150, rounds=2),
    }


@pytest.mark.parametrize("what", lightgbm_kinds())
def test_the_json_of_dump_model_is_the_same_model_as_the_saved_file(what: str, tmp_path: Path) -> None:
    model = lightgbm_kinds()[what]
    model.save_model(tmp_path / "model.txt")
    (tmp_path / "dump.json").write_text(json.dumps(model.dump_model()))
    plain, dump = load_model(tmp_path / "model.txt"), load_model(tmp_path / "dump.json")
    assert dump.ensemble.fingerprint() == plain.ensemble.fingerprint()
    rows = boundary_rows(dump.ensemble, 50)
    assert dump.native is not None
    leaves = model.predict(rows, pred_leaf=True)
    if what == "one leaf":
        assert np.array_equal(dump.ensemble.leaf_ids(rows), leaves.reshape(len(rows), -1))
    else:
        assert_conforms(dump.ensemble, rows, leaves, dump.native(rows))


def test_the_categories_of_a_data_frame_are_in_the_json_too(tmp_path: Path) -> None:
    import lightgbm
    import pandas as pd

    x, _ = data()
    frame = pd.DataFrame({"a": x[:, 0], "c": pd.Categorical(np.array(["red", "blue", "grey"])[np.arange(len(x)) % 3])})
    y = (frame.c == "red").to_numpy(int)
    params = {"objective": "binary", "verbosity": -1, "num_threads": 1, "min_data_per_group": 2, "num_leaves": 4}
    model = lightgbm.train(params, lightgbm.Dataset(frame, y), 2)
    (tmp_path / "dump.json").write_text(json.dumps(model.dump_model()))
    assert load_model(tmp_path / "dump.json").ensemble.categories[1] == ("blue", "grey", "red")


def test_mutated_dumps_are_refused_in_one_line_or_are_sound(tmp_path: Path) -> None:
    documents = [lightgbm_kinds()[what].dump_model() for what in ("categories", "three classes")]
    path, outcomes = tmp_path / "dump.json", []
    for seed in range(500):
        rng = np.random.default_rng(seed)
        broken, what = mutate_document(documents[seed % 2], rng)
        content = json.dumps(broken).encode() if seed % 5 else mutate_bytes(json.dumps(documents[0]).encode(), rng)
        path.write_bytes(content or b"{")
        outcomes.append(refused_or_sound(lambda: load_model(path), f"seed {seed}: {what}"))
    assert outcomes.count("refused") > 100


# --- CatBoost's cbm ---


def test_a_cbm_file_is_the_same_model_as_its_json(tmp_path: Path) -> None:
    cbm = load_model(saved(catboost_model, "model.cbm")(tmp_path))
    catboost_model().save_model(str(tmp_path / "model.json"), format="json")
    assert cbm.ensemble.fingerprint() == load_model(tmp_path / "model.json").ensemble.fingerprint()
    rows = boundary_rows(cbm.ensemble, 50)
    assert cbm.native is not None
    assert_conforms(cbm.ensemble, rows, catboost_model().calc_leaf_indexes(rows), cbm.native(rows))


def mutated_cbm(tmp_path: Path, seeds: range) -> list[str]:
    sound = saved(catboost_model, "model.cbm")(tmp_path).read_bytes()
    path, outcomes = tmp_path / "broken.cbm", []
    for seed in seeds:
        content = mutate_bytes(sound, np.random.default_rng(seed))
        path.write_bytes(b"CBM1" + content[4:])
        # The child process imports CatBoost, which takes seconds on a busy machine.
        outcomes.append(refused_or_sound(lambda: load_model(path), f"seed {seed}", limit=60))
    return outcomes


def test_a_damaged_cbm_file_may_end_the_child_process_only(tmp_path: Path) -> None:
    assert "refused" in mutated_cbm(tmp_path, range(2))


@pytest.mark.slow
def test_mutated_cbm_files_are_refused_in_one_line_or_are_sound(tmp_path: Path) -> None:
    assert mutated_cbm(tmp_path, range(500)).count("refused") > 250


# --- archives and folders ---


@pytest.mark.parametrize("packer", ["gz", "zip"])
def test_a_bomb_is_refused_before_it_fills_the_disk(packer: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.json.{packer}"
    if packer == "gz":
        path.write_bytes(gzip.compress(b'{"learner": {' + b" " * 2**26))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("model.json", b'{"learner": {' + b" " * 2**26)
    begin = time.perf_counter()
    with pytest.raises(ModelError, match=r"unpacks to more than .* bytes .200 times its size.; unpack it yourself"):
        load_model(path)
    assert time.perf_counter() - begin < 10


def test_a_zip_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.json", b" " * 2**26)
    content = path.read_bytes()
    size = (2**26).to_bytes(4, "little")
    assert content.count(size) == 2  # in the entry and in the directory
    path.write_bytes(content.replace(size, (10).to_bytes(4, "little")))
    with pytest.raises(ModelError, match=r"cannot be unpacked|unpacks to more|this is"):
        load_model(path)


def test_mutated_archives_are_refused_in_one_line_or_are_sound(tmp_path: Path) -> None:
    model = dumped(tmp_path).read_bytes()
    with zipfile.ZipFile(tmp_path / "sound.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dump.json", model)
    sound = [gzip.compress(model), (tmp_path / "sound.zip").read_bytes()]
    path, outcomes = tmp_path / "model.archive", []
    for seed in range(500):
        path.write_bytes(mutate_bytes(sound[seed % 2], np.random.default_rng(seed)) or b"\x1f\x8b")
        outcomes.append(refused_or_sound(lambda: load_model(path), f"seed {seed}"))
    assert outcomes.count("refused") > 250


def test_mutated_mlflow_folders_are_refused_in_one_line_or_are_sound(tmp_path: Path) -> None:
    folder = mlflow_folder("lightgbm", saved(lightgbm_booster, "model.lgb"), "    data: {}\n")(tmp_path)
    sound, outcomes = (folder / "MLmodel").read_bytes(), []
    for seed in range(500):
        (folder / "MLmodel").write_bytes(mutate_bytes(sound, np.random.default_rng(seed)))
        outcomes.append(refused_or_sound(lambda: load_model(folder), f"seed {seed}"))
    assert outcomes.count("refused") > 50


def test_an_mlflow_booster_is_read_with_all_its_trees_as_mlflow_loads_it(tmp_path: Path) -> None:
    import xgboost

    x, y = data()
    rng = np.random.default_rng(0)
    noisy = y ^ (rng.random(len(y)) < 0.3)
    train, test = xgboost.DMatrix(x[:100], noisy[:100]), xgboost.DMatrix(x[100:], noisy[100:])
    params = {"objective": "binary:logistic", "max_depth": 4, "nthread": 1}
    model = xgboost.train(params, train, 30, evals=[(test, "test")], early_stopping_rounds=3, verbose_eval=False)
    used, held = model.best_iteration + 1, model.num_boosted_rounds()
    assert used < held
    for kind, expected in (("xgboost.core.Booster", held), ("xgboost.sklearn.XGBClassifier", used)):
        lines = f"    data: {{}}\n    model_class: {kind}\n"
        folder = mlflow_folder("xgboost", saved(lambda: model, "model.ubj"), lines)(tmp_path)
        assert load_model(folder).ensemble.n_trees == expected
