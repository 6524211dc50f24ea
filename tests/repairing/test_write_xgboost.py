"""XGBoost: an edited ensemble, written back, is that ensemble in the library and when it is read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from boxqte.errors import ModelError
from boxqte.models.ensemble import EnsembleBuilder, TreeEnsemble
from boxqte.models.importers import load_model
from boxqte.models.importers.ubjson import read_ubjson
from boxqte.repairing.writing import storable, write_back
from boxqte.repairing.writing.ubjson import ubjson
from tests.conformance.suite import assert_conforms, boundary_rows
from tests.models.xgboost_models import (
    KINDS,
    all_models,
    booster_of,
    library_classes,
    library_leaves,
    numeric_data,
    saved,
    tree_documents,
)
from tests.repairing.edits import edits, pruned, revalued, some_boundary_rows, with_trees_of

FORMS = ("live", "json", "ubj")
REFUSED = ("vector leaves",)
WRITTEN = [kind for kind in KINDS if kind not in REFUSED]


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_is_written_is_what_was_meant(kind: str, tmp_path: Path) -> None:
    form = FORMS[WRITTEN.index(kind) % 3]
    check(kind, form, tmp_path, [edits(load_model(all_models()[kind]).ensemble, seed=1)[3]], rows_kept=30)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("form", FORMS)
def test_random_edits_are_written_as_they_were_meant(kind: str, form: str, tmp_path: Path) -> None:
    ensemble = load_model(all_models()[kind]).ensemble
    check(kind, form, tmp_path, [one for seed in range(5) for one in edits(ensemble, seed)], rows_kept=200)


def check(kind: str, form: str, folder: Path, edited_models: list[TreeEnsemble], rows_kept: int) -> None:
    model = all_models()[kind]
    source = model if form == "live" else saved(model, folder / f"model.{form}")
    imported = load_model(source)
    before = bytes(booster_of(model).save_raw("ubj"))
    for number, edited in enumerate(edited_models):
        written = write_back(source, imported, edited)
        path = written.save(folder / f"written{number}.{form if form != 'live' else 'ubj'}")
        again = load_model(path)
        rows = some_boundary_rows(edited, rows_kept)
        expected = storable(imported, edited.value)[edited.leaves(rows), 0]
        for result in (written.imported.ensemble, again.ensemble):
            assert np.array_equal(result.value[result.leaves(rows), 0], expected)
        live = written.model
        booster = booster_of(live)
        leaves = library_leaves(booster, rows, edited.n_trees)
        classes = library_classes(live, rows).astype(int)
        assert_conforms(written.imported.ensemble, rows, leaves, classes)
        assert np.array_equal(written.imported.native(rows), classes)
        assert np.array_equal(again.native(rows), classes)
        assert booster.num_boosted_rounds() * len(edited.base) <= edited.n_trees
        assert type(live) is (type(model) if form == "live" else xgboost.Booster)
    assert bytes(booster_of(model).save_raw("ubj")) == before


@pytest.mark.parametrize("kind", KINDS)
def test_ubjson_is_written_as_xgboost_writes_it(kind: str) -> None:
    raw = bytes(booster_of(all_models()[kind]).save_raw("ubj"))
    assert ubjson(read_ubjson(raw)) == raw


@pytest.mark.parametrize("kind", ["booster", "partitioned categories", "deleted nodes"])
def test_statistics_stay_consistent(kind: str, tmp_path: Path) -> None:
    path = saved(all_models()[kind], tmp_path / "model.json")
    imported = load_model(path)
    edited = revalued(pruned(imported.ensemble, np.random.default_rng(3)), np.random.default_rng(4))
    written = write_back(path, imported, edited)
    target = written.save(tmp_path / "written.json")
    assert target.stat().st_size < path.stat().st_size
    for tree in tree_documents(json.loads(target.read_bytes())):
        left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
        hessian, inner = np.array(tree["sum_hessian"]), np.flatnonzero(left >= 0)
        assert np.allclose(hessian[inner], hessian[left[inner]] + hessian[right[inner]], rtol=1e-6)
        assert (hessian > 0).all()
        assert np.array(tree["loss_changes"])[inner].all()
    rows = boundary_rows(edited, n_random=20)
    data = xgboost.DMatrix(rows, feature_types=written.model.feature_types, enable_categorical=True, nthread=1)
    shares = written.model.predict(data, pred_contribs=True)
    assert np.allclose(shares.sum(axis=1), written.model.predict(data, output_margin=True), atol=1e-4)
    unused = set(range(edited.n_features)) - set(edited.feature[edited.feature >= 0].tolist())
    assert not shares[:, sorted(unused)].any()


def test_trees_may_become_more_and_fewer() -> None:
    model = all_models()["booster"]
    imported = load_model(model)
    ensemble = imported.ensemble
    twice = np.repeat(np.arange(ensemble.n_trees), 2)
    edited = _taken(ensemble, twice)
    written = write_back(model, imported, edited, origins=twice.tolist())
    assert written.imported.ensemble.n_trees == 2 * ensemble.n_trees
    assert written.model.num_boosted_rounds() == ensemble.n_trees
    rows = boundary_rows(ensemble, n_random=20)
    assert_conforms(written.imported.ensemble, rows, library_leaves(written.model, rows, 2 * ensemble.n_trees))
    some = write_back(model, imported, _taken(ensemble, np.array([1, 3])), origins=[1, 3])
    assert some.imported.ensemble.n_trees == 2
    assert np.array_equal(some.imported.native(rows), library_classes(some.model, rows).astype(int))
    with pytest.raises(ModelError, match="origins: the edited model has 2 trees, the model 5"):
        write_back(model, imported, _taken(ensemble, np.array([1, 3])))


def _taken(ensemble: Any, trees: Any) -> Any:
    builder, owner = EnsembleBuilder(), ensemble.tree_of_node()
    for t in trees.tolist():
        own = np.flatnonzero(owner == t)
        at = {int(node): i for i, node in enumerate(own)}
        builder.add_tree(
            feature=ensemble.feature[own], test=ensemble.test[own], threshold=ensemble.threshold[own],
            left=[at.get(int(n), -1) for n in ensemble.left[own]], right=[at.get(int(n), -1) for n in ensemble.right[own]],
            value=ensemble.value[own], default_left=ensemble.default_left[own], node_id=np.full(len(own), -1),
            root=at[int(ensemble.roots[t])],
        )  # fmt: skip
    return with_trees_of(builder, ensemble)


def test_all_trees_of_a_stopped_model_may_be_written(tmp_path: Path) -> None:
    model = all_models()["early stopping"]
    path = saved(model, tmp_path / "model.json")
    for trees in ("all", "best", 3):
        imported = load_model(path, trees=trees)
        written = write_back(path, imported, revalued(imported.ensemble, np.random.default_rng(0)))
        rows = numeric_data()[0][:50]
        loaded = xgboost.XGBClassifier(n_jobs=1)
        loaded.load_model(written.save(tmp_path / "written.json"))
        assert written.imported.ensemble.n_trees == imported.ensemble.n_trees
        assert np.array_equal(loaded.predict(rows), written.imported.ensemble.predict(rows))


def test_a_file_may_be_saved_in_the_other_form(tmp_path: Path) -> None:
    for form, other in (("json", "ubj"), ("ubj", "json")):
        path = saved(all_models()["partitioned categories"], tmp_path / f"model.{form}")
        imported = load_model(path)
        written = write_back(path, imported, pruned(imported.ensemble, np.random.default_rng(0)))
        target = written.save(tmp_path / f"written.{other}")
        assert load_model(target).ensemble.fingerprint() == written.imported.ensemble.fingerprint()
        assert (target.read_bytes()[1:2] == b'"') == (other == "json")


def test_a_decision_threshold_is_kept(tmp_path: Path) -> None:
    path = saved(all_models()["booster"], tmp_path / "model.json")
    imported = load_model(path, threshold=0.3)
    written = write_back(path, imported, imported.ensemble)
    assert written.imported.ensemble.decision.text() == "class 1 iff p >= 0.3"
    rows = boundary_rows(imported.ensemble)
    assert np.array_equal(written.imported.native(rows), imported.native(rows))


def test_vector_leaves_are_refused_by_name() -> None:
    model = all_models()["vector leaves"]
    imported = load_model(model)
    with pytest.raises(ModelError, match=r"xgboost.core.Booster: leaves with a value for each class"):
        write_back(model, imported, imported.ensemble)
