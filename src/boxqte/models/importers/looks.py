"""What a file that no importer recognises looks like, so that the refusal can say it, and the way out."""

from __future__ import annotations

import json
import re
from pathlib import Path

from boxqte.exact import shown
from boxqte.models.importers.structure import ANY_MODEL, read_bytes

HEAD = 8192
ACCEPTED = (
    "accepted are XGBoost (JSON, UBJSON), LightGBM (text, dump_model JSON), CatBoost (JSON, cbm), ONNX, an MLflow folder, "
    "scikit-learn (skops; pickle with allow_pickle=True), any of these in gz or zip, and live models of these libraries"
)
MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89HDF\r\n\x1a\n", f"an HDF5 file, as Keras writes for neural networks; {ANY_MODEL}"),
    (b"\x93NUMPY", "a numpy array, which is data and no model"),
    (b"PAR1", "a Parquet table, which is data and no model"),
    (b"ARROW1", "an Arrow table, which is data and no model"),
    (b"SQLite format 3\0", "an SQLite database, which is no model"),
    (b"RDX", "an R workspace; save the model in R with xgb.save or lgb.save"),
    (b"X\n\0\0\0", "an R object (RDS); save the model in R with xgb.save or lgb.save"),
    (b"\x7fELF", f"a compiled library; give the model that it was compiled from; {ANY_MODEL}"),
    (b"MZ", f"a Windows program or library; give the model that it was compiled from; {ANY_MODEL}"),
    (b"GGUF", f"a GGUF file of a language model; {ANY_MODEL}"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "an image"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it and give the model file"),
    (b"Rar!", "a RAR archive; unpack it and give the model file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file; unpack it and give the model file"),
)
TAR_AT, TAR = 257, b"ustar"


def described(path: Path) -> str:
    """One sentence about a file (or folder) that is not read."""
    if path.is_dir():
        return _folder(path)
    head = read_bytes(path, HEAD)
    for magic, what in MAGIC:
        if head.startswith(magic):
            return f"this is {what}"
    if head[TAR_AT : TAR_AT + len(TAR)] == TAR:
        return "this is a tar archive; unpack it and give the model file"
    if _is_treelite(head):
        return (
            "this is a Treelite checkpoint, which keeps neither names and categories nor how the library that trained the "
            "model rounds its inputs; give that library's own file (save_model; for scikit-learn skops)"
        )
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 2**27 and b'"dtype"' in head:
        return f"this is a safetensors file of a neural network; {ANY_MODEL}"
    text = _text(head)
    if text is None:
        return f"this is a binary file of an unknown kind (it begins with {head[:8].hex(' ')}); {ACCEPTED}"
    return f"this is {_of_text(path, text)}"


def _folder(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    if "saved_model.pb" in names:
        return f"this is a folder with a TensorFlow model; {ANY_MODEL}"
    if "metadata" in names and ("data" in names or "stages" in names):
        return (
            "this is a folder with a Spark model; save the XGBoost or LightGBM model in it in its own format (nativeBooster, "
            "saveNativeModel)"
        )
    listed = ", ".join(shown(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    return f"this is a folder ({listed or 'empty'}) without an MLmodel file; give the model file in it"


def _is_treelite(head: bytes) -> bool:
    """Three version numbers, then the types of thresholds and leaves (uint32, float32, float64)."""
    version = [int.from_bytes(head[at : at + 4], "little") for at in (0, 4, 8)]
    return (
        len(head) > 32
        and 3 <= version[0] <= 9
        and max(version) < 100
        and head[12] in (1, 2, 3)
        and head[13] in (1, 2, 3)
    )


def _text(head: bytes) -> str | None:
    """The head as text; None if it is none."""
    if b"\0" in head:
        return None
    for cut in range(4):  # a character may be cut off at the end
        try:
            return head[: len(head) - cut].decode("utf-8-sig")
        except UnicodeDecodeError:
            continue
    return None


def _of_text(path: Path, text: str) -> str:
    stripped = text.lstrip()
    if re.search(r"<(\w+:)?PMML\b", text):
        return f"a PMML file, which rounds the model's numbers; give the model that it was exported from; {ANY_MODEL}"
    if stripped.startswith("<"):
        return f"an XML or HTML file; {ACCEPTED}"
    if stripped.startswith("# XGBoost") or re.match(r"booster\[\d+\]:", stripped):
        return "a text dump of XGBoost trees; save the model with save_model instead"
    if stripped.startswith(("{", "[")):
        return f"{_of_json(path)}; {ACCEPTED}"
    if stripped.startswith("version https://git-lfs"):
        return "a Git LFS pointer, not the model itself; fetch it with `git lfs pull`"
    lines = [line for line in stripped.splitlines() if line][:5]
    for separator, name in ((",", "CSV"), ("\t", "tab-separated"), (";", "semicolon-separated")):
        counts = {line.count(separator) for line in lines[:-1] or lines}
        if len(counts) == 1 and counts != {0}:
            return f"a {name} table, which is data and no model; the model goes first, the table after --data"
    return f"a text file that begins {shown(lines[0] if lines else '')}; {ACCEPTED}"


def _of_json(path: Path) -> str:
    """The keys of a JSON file."""
    if path.stat().st_size > 2**26:
        return "a large JSON file of an unknown kind"
    try:
        document = json.loads(read_bytes(path))
    except (ValueError, RecursionError):
        return "a damaged JSON file"
    if isinstance(document, dict):
        if "cells" in document and "nbformat" in document:
            return "a notebook"
        if "attributes" in document and any(key in document for key in ("format", "boxqte", "version")):
            return "a space of boxqte (the model goes first, the space after --space)"
        keys = ", ".join(shown(key) for key in list(document)[:5]) + (", ..." if len(document) > 5 else "")
        return f"a JSON file with keys {keys or '(none)'}"
    return f"a JSON file with a {type(document).__name__} of {len(document) if isinstance(document, list) else 1}"
