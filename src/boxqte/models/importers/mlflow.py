"""MLflow model folders: the MLmodel file says which library wrote which file, and that file is read.

MLmodel is YAML; what is needed of it are the keys of two levels under `flavors`, in the block style that MLflow writes.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.importers.structure import ANY_MODEL, read_bytes

NAME = "MLmodel"
MAX_BYTES = 2**20
# The flavours that are read, and the keys under which each names its file.
FILES = {
    "xgboost": ("data",),
    "lightgbm": ("data",),
    "catboost": ("data",),
    "onnx": ("data",),
    "sklearn": ("pickled_model",),
}
LINE = re.compile(r"( *)([A-Za-z_][\w.-]*):(?: +(.*?))?\s*")


def inner_file(folder: Path) -> tuple[Path, bool]:
    """The model file of an MLflow folder, and whether MLflow loads it as an XGBoost Booster, which uses all trees."""
    where = folder / NAME
    flavors = _flavors(read_bytes(where, MAX_BYTES).decode(errors="replace"))
    if not flavors:
        raise ModelError(f"{where}: flavors: missing; expected an MLflow model")
    flavor = next((name for name in FILES if name in flavors), None)
    if flavor is None:
        raise ModelError(
            f"{where}: this is an MLflow model of flavor {', '.join(flavors)}; accepted are {', '.join(FILES)}; "
            f"{ANY_MODEL}"
        )
    given = next((flavors[flavor][key] for key in FILES[flavor] if flavors[flavor].get(key)), None)
    if given is None:
        raise ModelError(f"{where}: flavors.{flavor}.{FILES[flavor][0]}: missing")
    inside = PurePosixPath(given)
    if inside.is_absolute() or ".." in inside.parts:
        raise ModelError(f"{where}: flavors.{flavor}: {shown(given)} lies outside the folder")
    if not (folder / inside).is_file():
        raise ModelError(f"{where}: flavors.{flavor}: {shown(given)} is not in the folder")
    return folder / inside, flavor == "xgboost" and flavors[flavor].get("model_class", "").endswith(".Booster")


def _flavors(text: str) -> dict[str, dict[str, str]]:
    """flavor -> key -> value, from the lines between `flavors:` and the next top-level key."""
    found: dict[str, dict[str, str]] = {}
    inside, step, current = False, 0, ""
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        if match is None:
            continue
        depth, key, value = len(match[1]), match[2], (match[3] or "").strip("'\"")
        if depth == 0:
            inside, step, current = key == "flavors", 0, ""
        elif inside and (step == 0 or depth == step):
            step, current = depth, key
            found[key] = {}
        elif inside and depth == 2 * step:
            found[current].setdefault(key, value)
    return found
