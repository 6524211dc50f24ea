"""Live objects: a changed copy of a model of any library, of a pipeline, or of a wrapper around one model; and their files.

Objects lie in pickles (plain, as joblib reads them too, or compressed) and in skops files.
"""

from __future__ import annotations

import bz2
import copy
import gzip
import lzma
import pickle
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxqte.errors import ModelError
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers import load_model
from boxqte.models.importers.sklearn_steps import is_pipeline
from boxqte.models.importers.structure import read_bytes
from boxqte.models.importers.unpickle import looks_like_pickle, looks_like_skops, read_pickle, read_skops
from boxqte.repairing.writing import catboost, lightgbm, sklearn, xgboost
from boxqte.repairing.writing.pipelines import over_inner

LIBRARIES: dict[str, Any] = {"xgboost": xgboost, "lightgbm": lightgbm, "catboost": catboost}
HELD = {  # where wrappers that decide on one model's scores hold that model
    "FrozenEstimator": ("estimator",),
    "FixedThresholdClassifier": ("estimator_", "estimator"),
    "TunedThresholdClassifierCV": ("estimator_",),
}
COMPRESSED: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b", gzip.compress),
    (b"x", zlib.compress),
    (b"BZh", bz2.compress),
    (b"\xfd7zXZ\x00", lzma.compress),
    (b"]\x00\x00", lambda data: lzma.compress(data, lzma.FORMAT_ALONE)),
)


@dataclass(frozen=True, eq=False)
class ObjectOutput:
    """A changed object, and the file that it came from, if any."""

    changed: Any
    source: Path | None = None

    def save(self, path: Path) -> None:
        as_skops = path.suffix == ".skops" if self.source is None else looks_like_skops(self.source)
        if not as_skops:
            path.write_bytes(self._pickled())
            return
        import skops.io

        skops.io.dump(self.changed, path)

    def _pickled(self) -> bytes:
        raw = pickle.dumps(self.changed)
        head = b"" if self.source is None else read_bytes(self.source, 8)
        return next((compress(raw) for prefix, compress in COMPRESSED if head.startswith(prefix)), raw)

    def live(self) -> Any:
        return self.changed


def is_object_file(path: Path) -> bool:
    """Whether a file holds a Python object."""
    return looks_like_pickle(path) or looks_like_skops(path)


def object_in(path: Path, *, allow_pickle: bool) -> Any:
    read = read_skops if looks_like_skops(path) else read_pickle
    return read(path, allow_pickle=allow_pickle)


def library_of(source: Any) -> str:
    """The library that a live model's class, or the class that it extends, is from."""
    roots = [kind.__module__.partition(".")[0] for kind in type(source).__mro__]
    return next((root for root in roots if root in (*LIBRARIES, "sklearn", "imblearn")), "")


def changed_object(source: Any, outer: TreeEnsemble, edited: TreeEnsemble, origins: list[int]) -> Any:
    """A copy of a live model with the edited trees; `outer` is the ensemble that it was read as."""
    library, name = library_of(source), type(source).__name__
    if library in LIBRARIES:
        return LIBRARIES[library].written(source, edited, origins).live()
    if is_pipeline(source):
        return _pipeline(source, outer, edited, origins)
    if name in HELD:
        held = next(field for field in HELD[name] if hasattr(source, field))
        model = copy.copy(source)
        setattr(model, held, changed_object(getattr(source, held), outer, edited, origins))
        return model
    if name not in sklearn.ESTIMATORS:
        raise ModelError(
            f"{name} cannot be written back; accepted are {', '.join(sklearn.ESTIMATORS)}, models of {', '.join(LIBRARIES)}, "
            "and a Pipeline or a threshold around one of them"
        )
    return sklearn.changed(source, edited, origins)


def _pipeline(source: Any, outer: TreeEnsemble, edited: TreeEnsemble, origins: list[int]) -> Any:
    """The pipeline with its last step's model changed; its other steps are copies."""
    pipeline = copy.deepcopy(source)
    inside, owner = source, pipeline
    while is_pipeline(inside.steps[-1][1]):
        inside, owner = inside.steps[-1][1], owner.steps[-1][1]
    name, final = inside.steps[-1]
    inner = load_model(final).ensemble
    own = over_inner(outer, inner, edited, origins)
    owner.steps[-1] = (name, changed_object(final, inner, own, origins))
    return pipeline
