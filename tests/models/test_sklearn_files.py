"""Files with scikit-learn's models: pickles, joblib, skops, and damaged ones that are refused or sound."""

from __future__ import annotations

import io
import json
import pickle
import warnings
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import skops.io
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from boxqte.errors import ModelError
from boxqte.models.importers import load_model
from tests.conformance.mutations import mutate_bytes, mutate_document, outcomes
from tests.conformance.pipelines import people
from tests.models.test_importer_sklearn import data

pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def small_models() -> tuple[Any, ...]:
    X, y = data(2)
    return (
        RandomForestClassifier(2, max_depth=3, random_state=0).fit(X, y),
        GradientBoostingClassifier(n_estimators=2, max_depth=2, random_state=0).fit(X, y),
        HistGradientBoostingClassifier(
            max_iter=2, max_leaf_nodes=4, max_bins=15, categorical_features=[1], random_state=0
        ).fit(X, y),
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_of_every_protocol_is_read_when_allowed(tmp_path: Path, protocol: int) -> None:
    for model in small_models():
        path = tmp_path / "model.bin"
        path.write_bytes(pickle.dumps(model, protocol=protocol))
        imported = load_model(path, allow_pickle=True)
        assert imported.ensemble.fingerprint() == load_model(model).ensemble.fingerprint()
        assert imported.source == str(path)


@pytest.mark.parametrize("compress", [0, 3, ("zlib", 1), ("gzip", 3), ("bz2", 3), ("lzma", 3), ("xz", 3)])
def test_a_joblib_file_of_every_compression_is_read_when_allowed(tmp_path: Path, compress: Any) -> None:
    for model in small_models():
        path = tmp_path / "model.bin"
        joblib.dump(model, path, compress=compress)
        assert (
            load_model(str(path), allow_pickle=True).ensemble.fingerprint() == load_model(model).ensemble.fingerprint()
        )


def test_a_pickle_is_not_read_unless_allowed(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(small_models()[0]))
    with pytest.raises(ModelError, match=r"model.pkl: is a pickle.*runs whatever code.*allow_pickle=True"):
        load_model(path)


def test_a_pickled_model_of_another_library_is_read(tmp_path: Path) -> None:
    X, y = data(2)
    model = XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1).fit(X, y)
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(model))
    imported = load_model(path, allow_pickle=True)
    np.testing.assert_array_equal(imported.ensemble.predict(X), model.predict(X))


def test_skops_files_of_checked_types_are_read_without_being_allowed(tmp_path: Path) -> None:
    forest, boosting, with_categories = small_models()
    path = tmp_path / "model.skops"
    for model in (forest, boosting):
        skops.io.dump(model, path)
        assert load_model(path).ensemble.fingerprint() == load_model(model).ensemble.fingerprint()
    skops.io.dump(with_categories, path)
    with pytest.raises(ModelError, match=r"model.skops: holds type 'functools.partial', which.*allow_pickle=True"):
        load_model(path)
    imported = load_model(path, allow_pickle=True)
    assert imported.ensemble.fingerprint() == load_model(with_categories).ensemble.fingerprint()
    other_name = path.rename(tmp_path / "model.zip")
    assert load_model(other_name, allow_pickle=True).ensemble.fingerprint() == imported.ensemble.fingerprint()


@pytest.mark.parametrize("thing", [{"a": 1}, "model.json", Path("x"), np.zeros(3), None, LogisticRegression()])
def test_a_pickle_of_something_else_is_refused_by_its_type(tmp_path: Path, thing: Any) -> None:
    path = tmp_path / "thing.pkl"
    path.write_bytes(pickle.dumps(thing))
    with pytest.raises(ModelError, match=rf"thing.pkl: .*{type(thing).__qualname__} is not read"):
        load_model(path, allow_pickle=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04", "cannot be unpickled"),
        (b"\x80\x04cno_such_module\nThing\n.", "cannot be unpickled.*ModuleNotFoundError"),
        (b"\x80\x04csklearn.tree\nNoSuchTree\n.", "cannot be unpickled.*AttributeError"),
        (b"x\x9c" + b"not zlib", "a binary file of an unknown kind|a text file"),
        (b"BZh9 not bz2", "cannot be unpickled"),
        (b"PK\x03\x04 not a zip", "cannot be unpacked"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(path, allow_pickle=True)
    assert len(str(caught.value).splitlines()) == 1
    assert str(path) in str(caught.value)


class Written:
    """Is pickled as a call and a state of one's choice."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def dtype_of(name: str, *state: Any) -> Written:
    return Written(np.dtype, (name, False, True), (3, *state))


FLOAT = np.dtype(float)
EMPTY_ARRAY = (np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"))  # type: ignore[attr-defined]
CRASHING: dict[str, Written] = {
    "a field's format by name": dtype_of("V8", "|", None, ("a",), {"a": ("f8", 0)}, 8, 1, 16),
    "a field outside the record": dtype_of("V8", "|", None, ("a",), {"a": (FLOAT, 9)}, 8, 1, 16),
    "a block's format by name": dtype_of("V16", "|", ("f8", (2,)), None, None, 16, 8, 0),
    "a number that holds objects": dtype_of("f8", "<", None, None, None, -1, -1, 63),
    "a time without unit": dtype_of("m8", "<", None, None, None, -1, -1, 0),
    "more objects than there is room for": Written(*EMPTY_ARRAY, (1, (1,), np.dtype(object), False, [0.5] * 10_000)),
}


@pytest.mark.parametrize("what", CRASHING)
@pytest.mark.parametrize("nested", [False, True])
def test_a_state_on_which_numpy_would_crash_is_refused(tmp_path: Path, what: str, nested: bool) -> None:
    path = tmp_path / "crash.pkl"
    content = np.array([None, CRASHING[what]], dtype=object) if nested else [CRASHING[what]]
    joblib.dump(content, path)
    with pytest.raises(ModelError, match=r"crash.pkl: cannot be unpickled"):
        load_model(path, allow_pickle=True)


@pytest.mark.parametrize("dtype", ["f4", ">i8", "U7", "S3", "O", "M8[ns]", "m8[25s]", "bool", "u1,f8", "(2,)f8,U3"])
def test_arrays_of_every_kind_can_be_unpickled(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "array.pkl"
    for content in (np.zeros(3, dtype), [np.zeros((2, 0), dtype)], np.zeros(1, np.dtype(dtype, align=True))):
        joblib.dump([content], path)
        with pytest.raises(ModelError, match=r"builtins.list is not read"):
            load_model(path, allow_pickle=True)
        path.write_bytes(pickle.dumps([content]))
        with pytest.raises(ModelError, match=r"builtins.list is not read"):
            load_model(path, allow_pickle=True)


MANY = [120, pytest.param(500, marks=pytest.mark.slow)]


@pytest.mark.parametrize("n", MANY)
def test_damaged_pickles_are_refused_or_sound(tmp_path: Path, n: int) -> None:
    for seed in range(n):
        model, stream = small_models()[seed % 3], io.BytesIO()
        if seed % 2:
            joblib.dump(model, stream)
        else:
            pickle.dump(model, stream)
        (tmp_path / f"{seed:03}.pkl").write_bytes(mutate_bytes(stream.getvalue(), np.random.default_rng(seed)))
    assert 0.6 * n < outcomes(tmp_path).count("refused") < n


@pytest.mark.parametrize("n", MANY)
def test_damaged_skops_files_are_refused_or_sound(tmp_path: Path, n: int) -> None:
    sound = [skops.io.dumps(model) for model in small_models()]
    for seed in range(n):
        rng = np.random.default_rng(seed)
        change = mutate_bytes if seed % 4 == 0 else mutate_member
        (tmp_path / f"{seed:03}.skops").write_bytes(change(sound[seed % 3], rng))
    assert 0.4 * n < outcomes(tmp_path).count("refused") < n


@pytest.mark.slow
def test_damaged_skops_files_with_pipelines_are_refused_or_sound(tmp_path: Path) -> None:
    frame, y = people(150)
    numbers = make_pipeline(StandardScaler(), FunctionTransformer(np.log1p))
    columns = [("n", numbers, ["gain"]), ("hot", OneHotEncoder(sparse_output=False), ["sex", "level"])]
    others = [("q", QuantileTransformer(n_quantiles=9), ["gain"]), ("p", PowerTransformer(), ["dose"])]
    chooser = SelectFromModel(DecisionTreeClassifier(max_depth=3, random_state=0))
    boosting = HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=4)
    pipelines = (
        make_pipeline(ColumnTransformer(columns), boosting),
        make_pipeline(ColumnTransformer(others), chooser, RandomForestClassifier(2, max_depth=2, random_state=0)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # log1p of numbers below -1
        sound = [skops.io.dumps(pipeline.fit(frame, y)) for pipeline in pipelines]
    for seed in range(200):
        rng = np.random.default_rng(seed)
        change = mutate_bytes if seed % 8 == 0 else mutate_member
        (tmp_path / f"{seed:03}.skops").write_bytes(change(sound[seed % 2], rng))
    assert 50 < outcomes(tmp_path).count("refused") < 190


def mutate_member(archive: bytes, rng: np.random.Generator) -> bytes:
    """A sound archive with damaged content; damage to the archive itself stops at its checksums."""
    with zipfile.ZipFile(io.BytesIO(archive)) as before:
        members = {name: before.read(name) for name in before.namelist()}
    name = "schema.json" if rng.integers(2) else str(rng.choice(list(members)))
    if name == "schema.json":
        members[name] = json.dumps(mutate_document(json.loads(members[name]), rng)[0]).encode()
    else:
        members[name] = mutate_bytes(members[name], rng)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as after:
        for member, content in members.items():
            after.writestr(member, content)
    return stream.getvalue()
