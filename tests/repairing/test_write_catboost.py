"""CatBoost: an edited ensemble, written back, is that ensemble in the library and when it is read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers import load_model
from boxqte.repairing.writing import write_back
from tests.models.test_importer_catboost import (
    CATEGORICAL,
    KINDS,
    categorical_model,
    exported,
    exported_with_values,
    model,
    with_values,
)
from tests.repairing.edits import edits, pruned, some_boundary_rows

catboost = pytest.importorskip("catboost")
ALL = [kind for kind in (*KINDS, *CATEGORICAL) if "three" not in kind and "softmax" not in kind]
FORMS = ("live", "json", "cbm")


def source_of(kind: str, form: str, folder: Path) -> Any:
    trained = categorical_model(kind) if kind in CATEGORICAL else model(kind)
    if form == "live":
        return trained
    if form == "json":
        export = exported_with_values if kind in CATEGORICAL else exported
        return export(trained, folder / "model.json")
    trained.save_model(str(folder / "model.cbm"))
    return folder / "model.cbm"


@pytest.mark.parametrize("kind", ALL)
def test_what_is_written_is_what_was_meant(kind: str, tmp_path: Path) -> None:
    form = FORMS[ALL.index(kind) % 2]
    check(source_of(kind, form, tmp_path), tmp_path, [3], [1], rows_kept=60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("form", FORMS)
def test_random_edits_are_written_as_they_were_meant(kind: str, form: str, tmp_path: Path) -> None:
    check(source_of(kind, form, tmp_path), tmp_path, range(5), range(4 if form != "cbm" else 1), rows_kept=150)


def check(source: Any, folder: Path, which: Any, seeds: Any, rows_kept: int) -> None:
    imported = load_model(source)
    for edited in [edits(imported.ensemble, seed)[number] for seed in seeds for number in which]:
        written = write_back(source, imported, edited)
        suffix = source.suffix if isinstance(source, Path) else ".json"
        again = load_model(written.save(folder / f"written{suffix}"))
        rows = some_boundary_rows(edited, rows_kept)
        expected = edited.value[edited.leaves(rows), 0]
        for result in (written.imported.ensemble, again.ensemble):
            assert np.array_equal(result.value[result.leaves(rows), 0], expected)
        live = written.model
        assert type(live) is (catboost.CatBoost if isinstance(source, Path) else type(source))
        hashed = any(not isinstance(v, str) for values in edited.categories.values() for v in values)
        if not hashed:
            margins = live.predict(with_values(rows, edited), prediction_type="RawFormulaVal")
            assert np.abs(margins - edited.margin(rows)[:, 0]).max() <= float(edited.rounding_error())
            assert np.array_equal(written.imported.native(rows), again.native(rows))
            assert np.array_equal((margins > 0).astype(int), edited.predict(rows))


def test_symmetric_trees_stay_symmetric_and_keep_all_their_weight(tmp_path: Path) -> None:
    path = source_of("deeper", "json", tmp_path)
    imported = load_model(path)
    for seed in range(5):
        written = write_back(path, imported, pruned(imported.ensemble, np.random.default_rng(seed), 0.3))
        before, after = (
            json.loads(p.read_text())["oblivious_trees"] for p in (path, written.save(tmp_path / "w.json"))
        )
        for old, new in zip(before, after):
            assert len(new["leaf_values"]) == 2 ** len(new["splits"]) <= len(old["leaf_values"])
            assert sum(new["leaf_weights"]) == sum(old["leaf_weights"])


def test_target_statistics_are_kept() -> None:
    from tests.models.test_importer_catboost import SMALL, table

    frame, y = table()
    options = {**SMALL, "cat_features": ["colour", "size"], "one_hot_max_size": 2, "max_ctr_complexity": 1}
    options |= {"simple_ctr": ["Borders", "Counter"], "iterations": 6}
    trained = catboost.CatBoostClassifier(**options).fit(frame, np.where(y > 0, "yes", "no"))
    imported = load_model(trained)
    edited: TreeEnsemble = edits(imported.ensemble, 0)[3]
    written = write_back(trained, imported, edited)
    assert set(written.model.predict(frame)) <= {"yes", "no"}
    assert written.imported.ensemble.classes == ("no", "yes")


def test_what_follows_the_last_tree_that_counts_is_left_out() -> None:
    trained = model("symmetric")
    imported = load_model(trained, trees=2)
    written = write_back(trained, imported, edits(imported.ensemble, 1)[1])
    assert written.model.tree_count_ == 2
    assert trained.tree_count_ == 3
