"""Python objects out of files: pickles (plain or by joblib, compressed or not) and skops.

A pickle is a program, so it is run only when the user allows it. A skops file is data, and is read without that where
it holds nothing but types that cannot do harm.
"""

from __future__ import annotations

import importlib
import io
import math
import pickle
import zipfile
import zlib
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from boxqte.errors import ModelError

HEAD = 4096
PICKLE_PROTOCOLS = (2, 3, 4, 5)
TEXT_PICKLE = (b"ccopy_reg\n", b"ccopyreg\n")  # protocols 0 and 1 have no magic; this is how they begin an object
PLAIN_UNPICKLER: Any = vars(pickle)["_Unpickler"]  # the one in Python, which joblib extends; the one in C has no hooks
ALIGNED_STRUCT = 0x80  # numpy's NPY_ALIGNED_STRUCT
ZIP = b"PK\x03\x04"
ZLIB = (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
GZIP = b"\x1f\x8b"
OTHER_COMPRESSION = (b"BZh", b"\xfd7zXZ\x00", b"]\x00\x00", b"\x04\x22\x4d\x18")  # bz2, xz, lzma, lz4: joblib's choices

# skops leaves the first two to its caller because a tree with bad indices crashes at its first prediction. The importer
# checks every index before any prediction is made. The others are plain data that a search or a vote carries along, and
# that no prediction asks.
CHECKED_TYPES = frozenset({
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.utils._bunch.Bunch",
})  # fmt: skip


def looks_like_pickle(path: Path) -> bool:
    """Whether a file begins as a pickle, or as a compressed stream that joblib writes pickles into."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head.startswith(ZLIB) or head.startswith(GZIP):
        try:
            head = zlib.decompressobj(wbits=47).decompress(head, 16)  # 47: zlib or gzip, whichever the header says
        except zlib.error:
            return False
    elif head.startswith(OTHER_COMPRESSION):
        return True  # their first block may be longer than any head
    return head.startswith(TEXT_PICKLE) or (len(head) > 1 and head[0] == 0x80 and head[1] in PICKLE_PROTOCOLS)


def looks_like_skops(path: Path) -> bool:
    """Whether a file is a zip archive with skops' schema in it, or is named as one."""
    with path.open("rb") as file:
        if file.read(len(ZIP)) != ZIP:
            return False
    if path.suffix == ".skops":
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            return "schema.json" in archive.namelist()
    except Exception:  # a damaged directory fails in many ways, and is then nothing that can be recognised
        return False


def read_pickle(path: Path, *, allow_pickle: bool) -> Any:
    """The object in a pickle."""
    if not allow_pickle:
        raise ModelError(
            f"{path}: is a pickle, and reading one runs whatever code is in it; if you trust the file, allow it with "
            "allow_pickle=True"
        )
    try:
        joblib = importlib.import_module("joblib.numpy_pickle")
        compressors = importlib.import_module("joblib.compressor")._COMPRESSORS
    except ImportError:
        raise ModelError(f"{path}: needs scikit-learn to be read; install boxqte[sklearn]") from None
    unpickler = _checked(joblib.NumpyUnpickler)
    options = (
        {"ensure_native_byte_order": True} if "ensure_native_byte_order" in signature(unpickler).parameters else {}
    )
    try:
        with path.open("rb") as file:
            head = file.read(8)
            file.seek(0)
            packed = next((c for c in compressors.values() if head.startswith(c.prefix)), None)
            stream = file if packed is None else io.BufferedReader(packed.decompressor_file(file), 2**20)
            return unpickler(str(path), stream, **options).load()
    except Exception as error:  # damaged instructions can call anything with anything
        raise ModelError(
            f"{path}: cannot be unpickled, the file is damaged or made by an incompatible version ({one_line(error)}); "
            "load it where it was made and save it with skops or with its library's save_model"
        ) from error


def _checked(unpickler: Any) -> Any:
    """joblib's unpickler, less what ends the process: numpy takes over any state of an array, and then crashes."""

    class Checked(unpickler):  # type: ignore[misc]
        dispatch = unpickler.dispatch.copy()

        def load_build(self) -> None:
            instance, state = self.stack[-2:]
            if isinstance(instance, np.dtype):
                _check_dtype_state(instance, state)
            elif isinstance(instance, np.ndarray):
                _check_array_state(state)
            if type(instance).__name__ == "NumpyArrayWrapper" and state["dtype"].hasobject:
                # joblib reads an array of objects with an unpickler of its own, which would not check.
                self.stack[-2:] = [_checked(PLAIN_UNPICKLER)(self.file_handle).load()]
            else:
                unpickler.load_build(self)

        dispatch[pickle.BUILD[0]] = load_build

    return Checked


def _check_dtype_state(dtype: np.dtype[Any], state: Any) -> None:
    """Refuse a state that numpy itself would not write for a dtype of this kind."""
    _, order, block, names, fields, itemsize, _, flags, *_ = state
    formats: tuple[Any, ...] = ()
    expected: Any
    if dtype.kind in "mM":
        unit, count, *_ = state[8][1]
        expected = np.dtype(f"{dtype.kind}8[{count}{unit.decode()}]").newbyteorder(order)
    elif block is not None:
        formats, expected = block[:1], np.dtype(block)
    elif names is not None:
        formats, offsets = zip(*(fields[name] for name in names))
        layout: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize}
        expected = np.dtype(layout, align=bool(flags & ALIGNED_STRUCT))
    else:
        expected = dtype.newbyteorder(order)
    # Comparing is not enough: a dtype is also equal to its own name.
    if expected.__reduce__()[2] != state or not all(isinstance(format, np.dtype) for format in formats):
        raise pickle.UnpicklingError(f"not a state of dtype {dtype}")


def _check_array_state(state: Any) -> None:
    """Refuse a list of objects that is not as long as the array: numpy writes all of it, wherever that is."""
    *_, shape, _, _, content = state
    if isinstance(content, list) and len(content) != math.prod(shape):
        raise pickle.UnpicklingError(f"an array of shape {shape} has {len(content)} objects")


def read_skops(path: Path, *, allow_pickle: bool) -> Any:
    """The object in a skops file."""
    try:
        import skops.io
    except ImportError:
        raise ModelError(f"{path}: needs skops to be read; install boxqte[sklearn]") from None
    try:
        untrusted = sorted(skops.io.get_untrusted_types(file=path))
        refused = [name for name in untrusted if name not in CHECKED_TYPES]
        if not refused or allow_pickle:
            return skops.io.load(path, trusted=untrusted)
    except Exception as error:  # a damaged schema can name anything to be built from anything
        raise ModelError(f"{path}: cannot be read as skops, the file is damaged ({one_line(error)})") from error
    raise ModelError(
        f"{path}: holds type '{one_line(refused[0])}', which skops does not trust; if you trust the file, allow it "
        "with allow_pickle=True"
    )


def one_line(error: object) -> str:
    """An error as short text on one line: libraries write several, and in a damaged file's text is any character."""
    text = str(error)
    if isinstance(error, BaseException):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    text = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return text if len(text) <= 200 else text[:197] + "..."
