"""Model files inside gzip and zip: unpacked into a temporary folder, within bounds, and read from there."""

from __future__ import annotations

import gzip
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.importers.structure import ANY_MODEL
from boxqte.models.importers.unpickle import GZIP, ZIP, looks_like_pickle, looks_like_skops

MAX_RATIO = 200  # model files shrink to a tenth or a fiftieth; what shrinks to less is a bomb
SMALL = 2**24  # bytes that may come out of any file
CHUNK = 2**20
NOT_A_MODEL = ("__MACOSX/",)


def is_archive(path: Path) -> bool:
    """A gzip or zip file that is not in itself a model (joblib's pickles in gzip, skops)."""
    with path.open("rb") as file:
        head = file.read(4)
    return (head.startswith(GZIP) and not looks_like_pickle(path)) or (head == ZIP and not looks_like_skops(path))


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The one model file in an archive, for as long as the context lasts."""
    limit = max(SMALL, MAX_RATIO * path.stat().st_size)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with path.open("rb") as file:
                name = _from_gzip(path, folder, limit) if file.read(2) == GZIP else _from_zip(path, folder, limit)
        except (
            OSError,
            EOFError,
            zlib.error,
            zipfile.BadZipFile,
            NotImplementedError,
            RuntimeError,
            ValueError,
        ) as error:
            what = (str(error).splitlines() or [type(error).__name__])[0][:100]
            raise ModelError(f"{path}: cannot be unpacked, the file is damaged or encrypted ({what})") from None
        yield Path(folder) / name


def _from_gzip(path: Path, folder: str, limit: int) -> str:
    name = path.stem if path.suffix == ".gz" else path.name
    with gzip.open(path) as packed:
        _copy(packed, Path(folder) / name, path, limit)
    return name


def _from_zip(path: Path, folder: str, limit: int) -> str:
    with zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if not m.is_dir() and not m.filename.startswith(NOT_A_MODEL)]
        names = [member.filename for member in members]
        known = _known_zip(names)
        if known:
            raise ModelError(f"{path}: this is a zip file {known}; {ANY_MODEL}")
        if len(members) != 1:
            listed = ", ".join(shown(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
            raise ModelError(
                f"{path}: this is a zip file with {len(members)} files ({listed}); accepted is one model file in a zip, "
                "so unpack it and give the model file (or the folder, if it is an MLflow model)"
            )
        name = PurePosixPath(names[0]).name or "model"
        with archive.open(members[0]) as packed:
            _copy(packed, Path(folder) / name, path, limit)
    return name


def _known_zip(names: list[str]) -> str | None:
    """What other tools' zip files hold."""
    ends = {PurePosixPath(name).name for name in names}
    if "config.json" in ends and "model.weights.h5" in ends:
        return "with a Keras model (a neural network)"
    if "data.pkl" in ends:
        return "with a PyTorch model (a neural network)"
    if "model.ini" in ends:
        return "with an H2O model (MOJO)"
    if names and all(name.endswith(".npy") for name in names):
        return "of numpy arrays (npz)"
    if "[Content_Types].xml" in ends:
        return "with an office document"
    return None


def _copy(packed: Any, target: Path, path: Path, limit: int) -> None:
    done = 0
    with target.open("wb") as out:
        while chunk := packed.read(CHUNK):
            done += len(chunk)
            if done > limit:
                raise ModelError(
                    f"{path}: unpacks to more than {limit} bytes ({MAX_RATIO} times its size); unpack it yourself and give "
                    "the model file, if you trust it"
                )
            out.write(chunk)
