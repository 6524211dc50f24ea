"""UBJSON: read as what XGBoost writes, and hostile bytes are refused without the memory they ask for."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest

from boxqte.errors import ModelError
from boxqte.models.importers import ubjson
from boxqte.models.importers.ubjson import read_ubjson
from tests.models.xgboost_models import KINDS, SMALL, booster_of, document_of, tree_documents

ARRAY_TYPES = {
    "base_weights": "d", "loss_changes": "d", "sum_hessian": "d", "split_conditions": "d", "leaf_weights": "d",
    "left_children": "l", "right_children": "l", "parents": "l", "split_indices": "l", "categories": "l",
    "categories_nodes": "l", "feature_segments": "l", "sorted_idx": "l", "offsets": "l",
    "categories_segments": "L", "categories_sizes": "L", "default_left": "U", "split_type": "U",
}  # fmt: skip


def to_ubjson(value: Any, key: str = "") -> bytes:
    """UBJSON as XGBoost writes it: typed arrays in trees, counted arrays elsewhere, every size an int64."""
    if value is None or isinstance(value, bool):
        return {None: b"Z", True: b"T", False: b"F"}[value]
    if isinstance(value, int):
        return b"L" + struct.pack(">q", value) if -(2**63) <= value < 2**63 else to_ubjson(float(value))
    if isinstance(value, float):
        return b"D" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"S" + sized(value.encode())
    if isinstance(value, dict):
        return b"{" + b"".join(sized(name.encode()) + to_ubjson(item, name) for name, item in value.items()) + b"}"
    kind = ARRAY_TYPES.get(key, "")
    if kind and all(type(item) in (int, float) for item in value):
        with np.errstate(all="ignore"):
            array = np.array(value, float).astype(np.dtype(ubjson.ARRAYS[kind]))
        return b"[$" + kind.encode() + b"#L" + struct.pack(">q", len(value)) + array.tobytes()
    return b"[#L" + struct.pack(">q", len(value)) + b"".join(map(to_ubjson, value))


def sized(text: bytes) -> bytes:
    return b"L" + struct.pack(">q", len(text)) + text


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", SMALL)
def test_ubjson_reads_as_what_xgboost_writes_in_json(kind: str) -> None:
    model = booster_of(KINDS[kind]())
    document = document_of(model)
    read = plain(read_ubjson(bytes(model.save_raw("ubj"))))
    for tree, same in zip(tree_documents(document), tree_documents(read)):
        for key in ("base_weights", "loss_changes", "sum_hessian", "split_conditions", "leaf_weights"):
            if key in tree:
                assert np.array_equal(np.float32(tree.pop(key)), np.float32(same.pop(key)))
    for booster_document in (document, read):
        booster_document["learner"]["gradient_booster"].pop("weight_drop", None)
    assert read == document


def test_ubjson_reads_every_kind_of_value() -> None:
    mixed = {"a": [None, True, False, -1, 2.5, "é", [], {}], "left_children": [1, 2, -1], "c": [0.5, 1e300]}
    assert plain(read_ubjson(to_ubjson(mixed))) == mixed
    assert read_ubjson(b"[U\xffi\xffI\xff\xfeNl\x00\x00\x00\x07]") == [255, -1, -2, 7]
    assert read_ubjson(b"[$d#i\x02" + struct.pack(">2f", 0.1, -2)).dtype == np.float32
    assert read_ubjson(b"[$U#i\x02\x01\xff").tolist() == [1, 255]


HUGE = b"L" + struct.pack(">q", 2**62)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[$d#" + HUGE,
        b"[#" + HUGE,
        b"[$Z#" + HUGE,
        b"[$D#U\x00",
        b"[$[#" + HUGE,
        b"[$l#L" + struct.pack(">q", -1),
        b"[$L#U\x7f" + bytes(100),
        b"S" + HUGE,
        b"SL" + struct.pack(">q", -5) + b"hello",
        b"Sd" + struct.pack(">f", 3) + b"abc",
        b"SU\x02\xff\xfe",
        b"{" + HUGE,
        b"{U\x01aZU\x01aZ}",
        b"{$i#U\x01",
        b"[" * 100_000,
        b"{U\x01a" * 100_000,
        b"H" + HUGE,
        b"ZZ",
        b"N" * 1000,
        b"L\x00",
        b"\xff",
    ],
)
def test_hostile_ubjson_is_refused_without_the_memory_it_asks_for(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match="byte"):
            read_ubjson(data)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_ubjson_with_more_values_than_a_model_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ubjson, "MAX_VALUES", 100)
    with pytest.raises(ModelError, match="more than 100 values"):
        read_ubjson(b"[" + b"Z" * 200 + b"]")
