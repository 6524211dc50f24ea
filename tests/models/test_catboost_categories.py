"""CatBoost's categories, by value or by hash: one-hot splits and target statistics send each where CatBoost does."""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boxqte import Attribute, Fairness, ModelError, Space, load_model, quantify
from boxqte.certify import certify
from boxqte.models.categories import HashedCategories, text_hash
from boxqte.models.ensemble import Test
from boxqte.models.importers import ImportedModel
from boxqte.models.importers.catboost_ctr import MULTIPLIER
from boxqte.report.text import model_json, model_text
from tests.conformance.mutations import mutate_document, refused_or_sound
from tests.conformance.suite import assert_conforms, threshold_values

catboost = pytest.importorskip("catboost")

N = 400
CATS = ["colour", "size"]
COLOURS, UNSEEN = ["red", "green", "blue", "grey"], ["violet", "", "42"]
SMALL = {
    "iterations": 4,
    "depth": 3,
    "thread_count": 1,
    "verbose": False,
    "allow_writing_files": False,
    "cat_features": CATS,
}
KINDS: dict[str, dict[str, Any]] = {
    "one-hot": {"one_hot_max_size": 20},
    "one-hot by lossguide": {"one_hot_max_size": 20, "grow_policy": "Lossguide", "max_leaves": 7},
    "target statistics": {"max_ctr_complexity": 1},
    "target statistics by lossguide": {"max_ctr_complexity": 1, "grow_policy": "Lossguide", "max_leaves": 7},
    "target statistics of three classes": {"max_ctr_complexity": 1, "classes": 3},
    "buckets": {"max_ctr_complexity": 1, "simple_ctr": ["Buckets:Prior=0.3/1"]},
    "buckets of three classes": {"max_ctr_complexity": 1, "simple_ctr": ["Buckets"], "classes": 3},
    "mean of the target": {"max_ctr_complexity": 1, "simple_ctr": ["BinarizedTargetMeanValue:Prior=0.7/1"]},
    "counter": {"max_ctr_complexity": 1, "simple_ctr": ["Counter:Prior=0.1/1", "Borders:Prior=0.9/1"]},
    "both": {"max_ctr_complexity": 1, "one_hot_max_size": 4},
}  # fmt: skip


@cache
def table() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(1)
    colour, size = rng.choice(COLOURS, N, p=[0.4, 0.3, 0.2, 0.1]), rng.integers(0, 9, N)
    amount = rng.normal(size=N)
    score = (
        (colour == "red")
        + 2.0 * (size % 3 == 2)
        - (size == 4)
        + (amount > 0)
        - (colour == "grey")
        + rng.normal(size=N) / 2
    )
    return pd.DataFrame({"colour": colour, "amount": amount, "size": size}), np.digitize(score, [0.5, 2.0])


@cache
def model(kind: str) -> Any:
    options = dict(KINDS[kind])
    frame, y = table()
    y = np.minimum(y, options.pop("classes", 2) - 1)
    return catboost.CatBoostClassifier(**{**SMALL, **options}).fit(frame, y)


def source(kind: str, form: str, folder: Path) -> Any:
    trained = model(kind)
    if form == "live":
        return trained
    pool = catboost.Pool(*table(), cat_features=CATS) if form == "json with values" else None
    path = folder / ("m.cbm" if form == "cbm" else "m.json")
    trained.save_model(str(path), format="cbm" if form == "cbm" else "json", pool=pool)
    return path


def rows_and_frame(imported: ImportedModel) -> tuple[np.ndarray, pd.DataFrame]:
    """Random rows as codes and as the user's own table: all values, some unseen, numbers on every border and beside."""
    ensemble, rng = imported.ensemble, np.random.default_rng(0)
    borders = ensemble.threshold[(ensemble.test == Test.AT_MOST_F32)]
    amounts = sorted({v for border in borders.tolist() for v in threshold_values(border)} | {0.0, 1.0, -1.0})
    columns: dict[str, Any] = {"amount": rng.choice([*amounts, np.nan], 600)}
    codes = np.zeros((600, 3))
    codes[:, 1] = columns["amount"]
    for at, values in ((0, COLOURS), (2, [str(i) for i in range(9)])):
        known = ensemble.categories.get(at, HashedCategories([]))
        unseen = UNSEEN if isinstance(known, HashedCategories) else []
        texts = rng.choice([*values, *unseen], 600)
        columns[CATS[at // 2]] = texts
        codes[:, at] = [known.code_of(t) if isinstance(known, HashedCategories) else known.index(t) for t in texts]
    return codes, pd.DataFrame(columns)[["colour", "amount", "size"]]


@pytest.mark.parametrize("form", ["live", "json with values"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_category_reaches_catboosts_own_leaf_and_class(kind: str, form: str, tmp_path: Path) -> None:
    imported = load_model(source(kind, form, tmp_path))
    assert Test.IN_SET in imported.ensemble.test
    rows, frame = rows_and_frame(imported)
    trained = model(kind)
    index = {label: at for at, label in enumerate(trained.classes_.tolist())}
    classes = [index[label] for label in trained.predict(frame).reshape(-1).tolist()]
    assert_conforms(imported.ensemble, rows, trained.calc_leaf_indexes(frame), classes)
    assert imported.native is not None
    assert imported.native(rows).tolist() == classes


@pytest.mark.parametrize("kind", ["one-hot", "target statistics"])
def test_a_file_without_values_is_the_same_model_as_the_live_one(kind: str, tmp_path: Path) -> None:
    live = load_model(model(kind))
    for form in ("cbm", "json"):
        imported = load_model(source(kind, form, tmp_path))
        assert imported.ensemble.fingerprint() == live.ensemble.fingerprint()
    rows, frame = rows_and_frame(imported)
    assert imported.native is not None
    assert imported.native(rows).tolist() == model(kind).predict(frame).tolist()


def test_the_hash_is_catboosts_own_for_texts_of_every_length(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    letters = [*map(chr, range(33, 127)), *"äöüßéλж漢字😀"]
    values = ["", *("".join(rng.choice(letters, n)) for n in [*range(1, 140), 200, 500])]
    frame = pd.DataFrame({"c": values * 2, "a": rng.normal(size=2 * len(values))})
    y = np.arange(len(frame)) % 2
    options = {**SMALL, "cat_features": ["c"], "iterations": 1}
    trained = catboost.CatBoostClassifier(**options).fit(frame, y)
    trained.save_model(str(tmp_path / "m.json"), format="json", pool=catboost.Pool(frame, y, cat_features=["c"]))
    written = json.loads((tmp_path / "m.json").read_text())["features_info"]["cat_features_hash"]
    assert {entry["value"] for entry in written} == set(values)
    assert all(text_hash(entry["value"]) == entry["hash"] for entry in written)


def test_a_measure_of_a_live_model_is_what_all_rows_of_the_space_say(tmp_path: Path) -> None:
    trained = model("target statistics")
    colours, sizes, amounts = [*COLOURS, "violet"], list(range(10)), list(range(-2, 3))
    space = Space([
        Attribute.categorical("colour", colours), Attribute.integer("amount", -2, 2), Attribute.categorical("size", sizes),
    ])  # fmt: skip
    rows = list(itertools.product(colours, amounts, sizes))
    said = dict(zip(rows, trained.predict(pd.DataFrame(rows, columns=["colour", "amount", "size"])).tolist()))
    unfair = sum(any(said[(other, *row[1:])] != said[row] for other in colours) for row in rows)
    result = quantify(trained, space, Fairness("colour"), certificate=tmp_path / "c")
    assert 0 < unfair < len(rows)
    assert result.lower == pytest.approx(1 - unfair / len(rows), abs=1e-12)
    assert result.upper == pytest.approx(1 - unfair / len(rows), abs=1e-12)
    checked = certify(tmp_path / "c", trained, space=space)
    assert checked.unfair == pytest.approx(unfair / len(rows), abs=1e-9)


def test_a_space_is_inferred_for_a_model_that_knows_its_categories_by_hash() -> None:
    frame, _ = table()
    inferred = Space.infer(frame, model=model("one-hot"))
    space = getattr(inferred, "space", inferred)
    assert set(space["colour"].values) == set(COLOURS)
    assert set(space["size"].values) == set(range(9))


def test_model_show_says_that_categories_are_known_by_their_hashes() -> None:
    imported = load_model(model("target statistics"))
    assert "known by their hashes" in model_text(imported)
    assert any(feature.get("categories_by_hash", 0) > 0 for feature in model_json(imported)["features"])


def test_a_code_that_no_text_stands_for_cannot_be_replayed() -> None:
    imported = load_model(model("one-hot"))
    assert imported.native is not None
    with pytest.raises(ModelError, match=r"by its hash [0-9]+ only; ask with a space that names it"):
        imported.native(np.zeros((1, 3)))


def test_a_statistic_of_several_features_together_is_refused_by_name(tmp_path: Path) -> None:
    frame, _ = table()
    pairs = frame.colour + frame["size"].astype(str)
    mixed = pairs.map({pair: at % 2 for at, pair in enumerate(sorted(set(pairs)))}).to_numpy(int)
    trained = catboost.CatBoostClassifier(**{**SMALL, "iterations": 20, "depth": 6, "max_ctr_complexity": 4}).fit(
        frame, mixed
    )
    with pytest.raises(
        ModelError,
        match="'colour' and 'size': a target statistic of several features together; train with max_ctr_complexity=1",
    ):
        load_model(trained)


def test_a_model_without_its_tables_is_refused_with_the_way_out(tmp_path: Path) -> None:
    document = json.loads(source("target statistics", "json", tmp_path).read_text())
    del document["ctr_data"]
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(ModelError, match="the model has no table for this target statistic; save it with its tables"):
        load_model(tmp_path / "m.json")


def test_a_bucket_that_is_the_hash_of_no_category_is_refused(tmp_path: Path) -> None:
    document = json.loads(source("target statistics", "json", tmp_path).read_text())
    (table_of, *_) = document["ctr_data"].values()
    table_of["hash_map"][0] = str(2**40 * MULTIPLIER**2 % 2**64)
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(ModelError, match="is the hash of no category, or occurs twice"):
        load_model(tmp_path / "m.json")


def test_mutated_statistics_are_refused_in_one_line_or_are_sound(tmp_path: Path) -> None:
    documents = [json.loads(source(kind, "json", tmp_path).read_text()) for kind in ("counter", "mean of the target")]
    for document in documents:
        document["model_info"] = {key: document["model_info"][key] for key in ("params", "class_params")}
        document["model_info"]["params"] = {"loss_function": document["model_info"]["params"]["loss_function"]}
    path, outcomes = tmp_path / "m.json", []
    for seed in range(500):
        broken, what = mutate_document(documents[seed % 2], np.random.default_rng(seed))
        path.write_text(json.dumps(broken))
        outcomes.append(refused_or_sound(lambda: load_model(path), f"seed {seed}: {what}"))
    assert outcomes.count("refused") > 150
