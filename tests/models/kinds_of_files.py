"""Every kind of model file and what becomes of it: `test_files.py` proves each line, docs/models.md lists them."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

N = 200
SMALL = {"iterations": 3, "depth": 2, "thread_count": 1, "verbose": False, "allow_writing_files": False}


class Kind(NamedTuple):
    """A kind of model: how one is made, and whether it is read, or the words of its refusal."""

    name: str
    make: Callable[[Path], Any]
    refused: str = ""
    """A pattern that the refusal's one line matches; empty: it is read."""
    form: str = "file"
    allow_pickle: bool = False


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 4))
    return x, (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int)


@cache
def booster() -> Any:
    import xgboost

    x, y = data()
    return xgboost.train({"objective": "binary:logistic", "max_depth": 2, "nthread": 1}, xgboost.DMatrix(x, y), 3)


@cache
def lightgbm_booster() -> Any:
    import lightgbm

    x, y = data()
    params = {"objective": "binary", "num_leaves": 4, "verbosity": -1, "num_threads": 1}
    return lightgbm.train(params, lightgbm.Dataset(x, y), 3)


@cache
def catboost_model() -> Any:
    import catboost

    return catboost.CatBoostClassifier(**SMALL).fit(*data())


@cache
def forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(2, max_depth=2, random_state=0).fit(*data())


def saved(model: Callable[[], Any], name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        model().save_model(str(folder / name))
        return folder / name

    return make


def written(content: bytes | str, name: str = "model") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return folder / name

    return make


def dumped(folder: Path) -> Path:
    (folder / "dump.json").write_text(json.dumps(lightgbm_booster().dump_model()))
    return folder / "dump.json"


def xgboost_dump(name: str, **options: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        booster().dump_model(str(folder / name), **options)
        return folder / name

    return make


def skops_file(folder: Path) -> Path:
    import skops.io

    skops.io.dump(forest(), folder / "forest.skops")
    return folder / "forest.skops"


def pickled(folder: Path) -> Path:
    import joblib

    joblib.dump(forest(), folder / "forest.joblib")
    return folder / "forest.joblib"


def onnx_file(folder: Path) -> Path:
    catboost_model().save_model(str(folder / "model.onnx"), format="onnx")
    return folder / "model.onnx"


def treelite_file(folder: Path) -> Path:
    """The first bytes of a checkpoint of Treelite 4.8, and some more."""
    head = bytes.fromhex("040000000800000001000000020202000000000000000400000000000100000001000000")
    return written(head + bytes(100), "model.tl")(folder)


def in_gzip(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    def packed(folder: Path) -> Path:
        inside = make(folder)
        path = folder / f"{inside.name}.gz"
        path.write_bytes(gzip.compress(inside.read_bytes()))
        inside.unlink()
        return path

    return packed


def in_zip(*makes: Callable[[Path], Path]) -> Callable[[Path], Path]:
    def packed(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for make in makes:
                inside = make(folder)
                archive.write(inside, f"folder/{inside.name}")
                inside.unlink()
        return folder / "model.zip"

    return packed


def named_in_zip(*names: str) -> Callable[[Path], Path]:
    def packed(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "model.zip", "w") as archive:
            for name in names:
                archive.writestr(name, "content")
        return folder / "model.zip"

    return packed


def mlflow_folder(flavor: str, make: Callable[[Path], Path] | None, lines: str) -> Callable[[Path], Path]:
    """A folder as MLflow 3.17 writes it (compared with real ones of all five flavours)."""

    def made(folder: Path) -> Path:
        name = "model" if make is None else make(folder).name
        text = (
            "artifact_path: model\nflavors:\n"
            f"  {flavor}:\n    code: null\n    providers:\n    - CPUExecutionProvider\n{lines.format(name)}"
            f"  python_function:\n    data: {name}\n    env:\n      conda: conda.yaml\n      virtualenv: python_env.yaml\n"
            f"    loader_module: mlflow.{flavor}\n    python_version: 3.11.7\n"
            "mlflow_version: 3.17.2\nmodel_size_bytes: 5582\nutc_time_created: '2026-11-18 02:23:23.891044'\n"
        )
        (folder / "MLmodel").write_text(text)
        return folder

    return made


DATA = "    data: {}\n"
JSON_GZ = in_gzip(saved(booster, "model.json"))
READ = [
    Kind("XGBoost JSON", saved(booster, "model.json")),
    Kind("XGBoost UBJSON", saved(booster, "model.ubj")),
    Kind("LightGBM text", saved(lightgbm_booster, "model.txt")),
    Kind("LightGBM JSON of dump_model", dumped),
    Kind("CatBoost cbm", saved(catboost_model, "model.cbm")),
    Kind("ONNX", onnx_file),
    Kind("scikit-learn skops", skops_file),
    Kind("scikit-learn pickle, allowed", pickled, allow_pickle=True),
    Kind("XGBoost JSON in gz", JSON_GZ),
    Kind("LightGBM text in zip", in_zip(saved(lightgbm_booster, "model.txt"))),
    Kind("ONNX in gz", in_gzip(onnx_file)),
    Kind("ONNX in zip", in_zip(onnx_file)),
    Kind("CatBoost cbm in zip", in_zip(saved(catboost_model, "model.cbm"))),
    Kind("LightGBM JSON in gz", in_gzip(dumped)),
    Kind("MLflow folder, xgboost", mlflow_folder("xgboost", saved(booster, "model.ubj"), DATA)),
    Kind("MLflow folder, lightgbm", mlflow_folder("lightgbm", saved(lightgbm_booster, "model.lgb"), DATA)),
    Kind("MLflow folder, catboost", mlflow_folder("catboost", saved(catboost_model, "model.cb"), DATA)),
    Kind("MLflow folder, onnx", mlflow_folder("onnx", onnx_file, DATA)),
    Kind("MLflow folder, sklearn skops", mlflow_folder("sklearn", skops_file, "    pickled_model: {}\n")),
    Kind("MLflow folder, sklearn pickle, allowed",
         mlflow_folder("sklearn", pickled, "    pickled_model: {}\n"), allow_pickle=True),
]  # fmt: skip
REFUSED = [
    Kind("scikit-learn pickle", pickled, "is a pickle, and reading one runs whatever code.*allow_pickle=True"),
    Kind("MLflow folder, sklearn pickle", mlflow_folder("sklearn", pickled, "    pickled_model: {}\n"),
         "is a pickle.*allow_pickle=True"),
    Kind("MLflow folder, pytorch", mlflow_folder("pytorch", None, "    model_data: data\n"),
         "MLflow model of flavor pytorch.*boxqte test"),
    Kind("MLflow folder whose file is gone", mlflow_folder("xgboost", None, DATA), "'model' is not in the folder"),
    Kind("MLflow folder that leads outside", mlflow_folder("xgboost", None, "    data: ../../etc/passwd\n"),
         "'../../etc/passwd' lies outside the folder"),
    Kind("a folder", lambda folder: folder, "this is a folder .empty. without an MLmodel file"),
    Kind("XGBoost text dump", xgboost_dump("dump.txt"), "a dump of the trees.*save_model"),
    Kind("XGBoost JSON dump", xgboost_dump("dump.json", dump_format="json"), "a dump of the trees.*save_model"),
    Kind("XGBoost's old binary format", written(b"binf" + bytes(100)), "old binary format.*json or .ubj"),
    Kind("Treelite checkpoint", treelite_file, "this is a Treelite checkpoint.*library's own file"),
    Kind("Keras HDF5", written(b"\x89HDF\r\n\x1a\n" + bytes(100), "model.h5"), "HDF5 file, as Keras.*boxqte test"),
    Kind("Keras zip", named_in_zip("config.json", "model.weights.h5", "metadata.json"), "Keras model.*boxqte test"),
    Kind("PyTorch", named_in_zip("archive/data.pkl", "archive/data/0"), "PyTorch model.*boxqte test"),
    Kind("H2O MOJO", named_in_zip("model.ini", "trees/t00.bin"), "H2O model"),
    Kind("npz", named_in_zip("a.npy", "b.npy"), "numpy arrays"),
    Kind("two models in a zip", in_zip(saved(booster, "a.json"), saved(booster, "b.json")),
         "a zip file with 2 files .'folder/a.json', 'folder/b.json'.; accepted is one"),
    Kind("gz in gz", in_gzip(JSON_GZ), "an archive in an archive .model.json.gz.; unpack it"),
    Kind("CSV in gz", in_gzip(written("a,b\n1,2\n3,4\n", "data.csv")), r"data.csv.gz \(data.csv\): this is a CSV table"),
    Kind("PMML", written('<?xml version="1.0"?>\n<PMML version="4.4"></PMML>', "m.pmml"), "PMML.*exported from"),
    Kind("XML", written("<model/>"), "an XML or HTML file"),
    Kind("CSV", written("age,income\n1,2\n3,4\n"), "a CSV table, which is data and no model"),
    Kind("text", written("hello\nworld\n"), "a text file that begins 'hello'"),
    Kind("other JSON", written('{"weights": [1, 2], "bias": 0}'), "a JSON file with keys 'weights', 'bias'"),
    Kind("a space of boxqte", written('{"attributes": []}'), "a JSON file with keys 'attributes'|a space of boxqte"),
    Kind("a notebook", written('{"cells": [], "nbformat": 4}'), "a notebook"),
    Kind("numpy array", written(b"\x93NUMPY\x01\x00" + bytes(100)), "a numpy array, which is data"),
    Kind("Parquet", written(b"PAR1" + bytes(100)), "a Parquet table"),
    Kind("R object", written(b"RDX3\nX\n" + bytes(100)), "an R workspace; save the model in R"),
    Kind("shared library", written(b"\x7fELF" + bytes(100)), "a compiled library"),
    Kind("tar", written(bytes(257) + b"ustar" + bytes(300)), "a tar archive; unpack it"),
    Kind("Git LFS pointer", written("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "git lfs pull"),
    Kind("safetensors", written((60).to_bytes(8, "little") + b'{"w":{"dtype":"F32"}}' + bytes(60)), "safetensors"),
    Kind("noise", written(bytes(range(200, 256)) * 3), "a binary file of an unknown kind .it begins with c8 c9"),
    Kind("an object of another library", lambda _: object(), "not a model this version reads.*boxqte test", "live"),
]  # fmt: skip
KINDS = READ + REFUSED
