"""LightGBM: an edited ensemble, written back, is that ensemble in the library and when it is read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest

from boxqte.errors import ModelError
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers import load_model
from boxqte.repairing.trees import joined
from boxqte.repairing.writing import write_back
from tests.conformance.suite import assert_conforms
from tests.models.test_importer_lightgbm import KINDS, SMALL, booster, data
from tests.repairing.edits import edits, pruned, revalued, some_boundary_rows


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_what_was_meant(kind: str, tmp_path: Path) -> None:
    live = list(KINDS).index(kind) % 2 == 0
    check(kind, tmp_path, [edits(load_model(booster(kind)).ensemble, seed=2)[3]], rows_kept=30, live=live)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_edits_are_written_as_they_were_meant(kind: str, tmp_path: Path) -> None:
    ensemble = load_model(booster(kind)).ensemble
    check(kind, tmp_path, [one for seed in range(8) for one in edits(ensemble, seed)], rows_kept=200)


def check(kind: str, folder: Path, edited_models: list[TreeEnsemble], rows_kept: int, live: bool | None = None) -> None:
    model = booster(kind)
    before = model.model_to_string()
    path = folder / "model.txt"
    path.write_bytes(before.encode())
    for source in [*([model] if live is not False else []), *([path] if not live else [])]:
        imported = load_model(source)
        for edited in edited_models:
            written = write_back(source, imported, edited)
            target = written.save(folder / "written.txt")
            again = load_model(target)
            rows = some_boundary_rows(edited, rows_kept)
            rows[::7, 0] = np.inf
            expected = edited.value[edited.leaves(rows), 0]
            for result in (written.imported.ensemble, again.ensemble):
                assert np.array_equal(result.value[result.leaves(rows), 0], expected)
            loaded = lightgbm.Booster(model_file=target)
            for own in (written.model, loaded):
                assert_conforms(again.ensemble, rows, own.predict(rows, pred_leaf=True), written.imported.native(rows))
            raw = loaded.predict(rows, raw_score=True).reshape(len(rows), -1)
            leaves = loaded.predict(rows, pred_leaf=True).reshape(len(rows), -1)
            for t in range(edited.n_trees):  # the leaves' values as LightGBM has them
                assert [loaded.get_leaf_output(t, int(leaf)) for leaf in leaves[:9, t]] == expected[:9, t].tolist()
            assert np.isfinite(raw).all()
            shares = loaded.predict(rows[:5], pred_contrib=True)
            assert np.isfinite(shares).all()
    assert model.model_to_string() == before


@pytest.mark.filterwarnings("ignore:The argument 'eval_set'")  # eval_y takes no text labels (LightGBM 4.7)
def test_a_classifier_with_text_labels_categories_and_early_stopping_keeps_its_class() -> None:
    x, y = data()
    frame = pd.DataFrame(x, columns=[f"column {i}" for i in range(5)])
    frame["kind"] = pd.Categorical(np.where(x[:, 4] % 3 == 0, "blue", np.where(x[:, 4] % 3 == 1, "red", "green")))
    labels = np.where(y > 0, "yes", "no")
    model = lightgbm.LGBMClassifier(n_estimators=60, **SMALL).fit(
        frame[:300], labels[:300], eval_set=[(frame[300:], labels[300:])],
        callbacks=[lightgbm.early_stopping(3, verbose=False)],
    )  # fmt: skip
    assert 0 < model.best_iteration_ < 60
    imported = load_model(model)
    edited = revalued(pruned(imported.ensemble, np.random.default_rng(0)), np.random.default_rng(1))
    before = model.predict_proba(frame)
    written = write_back(model, imported, edited)
    live = written.model
    assert type(live) is lightgbm.LGBMClassifier
    assert live.booster_.num_trees() == live.best_iteration_ == model.best_iteration_ == edited.n_trees
    assert set(live.predict(frame)) == {"yes", "no"}
    codes = frame.assign(kind=frame["kind"].cat.codes).to_numpy(np.float64)
    assert np.array_equal(live.predict(frame), np.array(["no", "yes"])[edited.predict(codes)])
    assert np.array_equal(model.predict_proba(frame), before)


def test_counts_and_sums_stay_consistent(tmp_path: Path) -> None:
    model = booster("categories")
    imported = load_model(model)
    edited = pruned(imported.ensemble, np.random.default_rng(5))
    dump = write_back(model, imported, edited).model.dump_model()

    def check_node(node: dict[str, Any]) -> float:
        if "leaf_index" in node:
            return float(node["leaf_count"])
        count = check_node(node["left_child"]) + check_node(node["right_child"])
        assert count == node["internal_count"] > 0
        return count

    for tree in dump["tree_info"]:
        if "split_index" in tree["tree_structure"]:
            check_node(tree["tree_structure"])
    used = np.bincount(edited.feature[edited.feature >= 0], minlength=edited.n_features)
    assert write_back(model, imported, edited).model.feature_importance().tolist() == used.tolist()


def test_the_json_of_dump_model_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(booster("missing as NaN").dump_model()))
    imported = load_model(path)
    with pytest.raises(ModelError, match=r"dump.json: the JSON of dump_model is not what LightGBM loads"):
        write_back(path, imported, imported.ensemble)


def test_a_forest_keeps_its_number_of_trees() -> None:
    model = booster("random forest of four")
    imported = load_model(model)
    doubled = joined(imported.ensemble, imported.ensemble)
    with pytest.raises(ModelError, match="a forest divides by its number of trees, so that number cannot change"):
        write_back(model, imported, doubled, origins=[0, 0, 1, 1, 2, 2, 3, 3])
    boosted = booster("missing as NaN")
    imported = load_model(boosted)
    doubled = joined(imported.ensemble, imported.ensemble)
    order = np.argsort([0, 1, 2, 3] * 2, kind="stable")
    doubled = replace(doubled, roots=doubled.roots[order])
    written = write_back(boosted, imported, doubled, origins=[0, 0, 1, 1, 2, 2, 3, 3])
    assert written.model.num_trees() == 8
