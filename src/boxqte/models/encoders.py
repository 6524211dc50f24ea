"""How a user's column becomes model columns: one-hot groups, ordinal codes, passthrough.

Read from a fitted scikit-learn encoder. The codes are never derived from an encoder's options (`drop`, `min_frequency`,
`max_categories`, `encoded_missing_value`, ...): the encoder itself transforms each of its own categories, and what it
writes is what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError

ACCEPTED = "OneHotEncoder, OrdinalEncoder, 'passthrough', 'drop', and a ColumnTransformer of these"

Kind = Literal["columns", "encoder", "passthrough", "drop"]


@dataclass(frozen=True, eq=False)
class EncodedColumn:
    """One of the user's columns and the model columns it feeds.

    `values` are the user's category values and `codes[v, c]` is what value v writes into model column `columns[c]`
    (one-hot: an identity matrix, a zero row for a dropped category; ordinal: one column of codes). Both are None for a
    column that is passed through unchanged.

    Two values may have the same codes (infrequent categories that share a column), and a value may be NaN or None
    where the encoder was fitted on missing values: then it is a category like any other.
    """

    name: str
    columns: tuple[str, ...]
    values: tuple[Any, ...] | None = None
    codes: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class _Part:
    """One transformer of a ColumnTransformer: which of the user's columns it reads, which model columns it writes."""

    where: str
    kind: Kind
    transformer: Any
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def from_transformer(
    transformer: Any, columns: Sequence[str] | None = None, *, where: str | None = None
) -> tuple[EncodedColumn, ...]:
    """Read how a fitted scikit-learn transformer encodes the user's columns.

    Parameters
    ----------
    transformer
        A fitted ColumnTransformer of OneHotEncoder, OrdinalEncoder, 'passthrough' and 'drop', or a fitted
        OneHotEncoder or OrdinalEncoder over all columns.
    columns
        The user's column names, for a transformer that was fitted without names (default x0, x1, ...).
    where
        What to call the transformer in errors.

    Returns
    -------
    One EncodedColumn for each of the user's columns that reaches the model, in the order of the user's columns. A
    column that the transformer drops, or of which nothing is left (its only category is dropped), decides nothing and
    is left out.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> frame = pd.DataFrame({"sex": ["f", "m", "f"]})
    >>> (column,) = from_transformer(OneHotEncoder().fit(frame))
    >>> column.name, column.columns, column.values
    ('sex', ('sex_f', 'sex_m'), ('f', 'm'))
    >>> column.codes.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    where = where or type(transformer).__name__
    names = _names_in(transformer, columns, where)
    outputs = model_columns(transformer, columns, where=where)
    encoded: dict[int, EncodedColumn] = {}
    reader: dict[int, str] = {}
    for part in _parts(transformer, where):
        for index in part.reads if part.kind != "drop" else ():
            if index in reader:
                # Its model columns would depend on each other in a way that no attribute of a space can express.
                raise ModelError(f"{part.where}: column '{names[index]}' is already encoded by {reader[index]}; "
                                 "accepted is one transformer for each column")  # fmt: skip
            reader[index] = part.where
        for column in _encode(part, names, outputs):
            if column.columns:
                encoded[names.index(column.name)] = column
    return tuple(encoded[index] for index in sorted(encoded))


def model_columns(
    transformer: Any, columns: Sequence[str] | None = None, *, where: str | None = None
) -> tuple[str, ...]:
    """The names of the columns that a fitted transformer writes, in order: scikit-learn's own names for them."""
    where = where or type(transformer).__name__
    names = _names_in(transformer, columns, where)
    parts = list(_parts(transformer, where))
    try:
        outputs = [str(name) for name in transformer.get_feature_names_out(names)]
    except (AttributeError, ValueError):
        # A FunctionTransformer without feature_names_out makes a ColumnTransformer refuse to name its columns.
        outputs = [""] * sum(len(part.writes) for part in parts)
        for part in parts:
            given = (
                part.transformer.get_feature_names_out() if part.kind == "encoder" else [names[i] for i in part.reads]
            )
            for at, name in zip(part.writes, given):
                outputs[at] = f"{part.where.rsplit('.', 1)[-1]}__{name}"
    if len(set(outputs)) != len(outputs):
        twice = next(name for name in outputs if outputs.count(name) > 1)
        raise ModelError(f"{where}: writes two columns named '{twice}'; rename a column or a category")
    return tuple(outputs)


def is_identity(transformer: Any) -> bool:
    """Whether a transformer leaves every value as it is."""
    return transformer is None or kind_of(transformer) == "passthrough"


def kind_of(transformer: Any) -> Kind | None:
    """What a transformer is to us; None for one that has no exact counterpart."""
    transformer = _unwrapped(transformer)
    if transformer == "passthrough" or transformer == "drop":
        kind: Kind = transformer
        return kind
    cls = type(transformer)
    if not cls.__module__.startswith("sklearn."):  # a subclass may do anything
        return None
    if cls.__name__ == "FunctionTransformer":
        return "passthrough" if transformer.func is None else None
    kinds: dict[str, Kind] = {"OneHotEncoder": "encoder", "OrdinalEncoder": "encoder", "ColumnTransformer": "columns"}
    return kinds.get(cls.__name__)


def _unwrapped(transformer: Any) -> Any:
    """The only transformer of a pipeline whose other steps pass everything through; any other transformer itself."""
    while type(transformer).__name__ == "Pipeline" and type(transformer).__module__.startswith("sklearn."):
        steps = [step for _, step in transformer.steps]
        changing = [step for step in steps if not is_identity(step)]
        if len(changing) > 1:
            return transformer
        transformer = changing[0] if changing else "passthrough"
    return transformer


def _parts(transformer: Any, where: str) -> Iterator[_Part]:
    kind = kind_of(transformer)
    if kind != "columns":
        yield _part(where, transformer, range(len(_names_in(transformer, None, where))), slice(0, None))
        return
    transformer = _unwrapped(transformer)
    for name, step, _ in transformer.transformers_:
        reads = transformer._transformer_to_input_indices[name]
        yield _part(f"{where}.{name}", step, reads, transformer.output_indices_[name])


def _part(where: str, transformer: Any, reads: Sequence[int], writes: slice) -> _Part:
    kind = kind_of(transformer)
    transformer = _unwrapped(transformer)
    if kind is None or kind == "columns":
        raise ModelError(f"{where}: {_described(transformer)} has no exact counterpart here; accepted are {ACCEPTED}")
    width = {"encoder": 0, "passthrough": len(reads), "drop": 0}[kind]
    if kind == "encoder" and len(reads):
        width = sum(widths(transformer, where))
    if writes.stop is not None and writes.stop - writes.start != width:
        raise ModelError(f"{where}: writes {writes.stop - writes.start} columns, expected {width}")
    return _Part(where, kind, transformer, tuple(reads), tuple(range(writes.start, writes.start + width)))


def _described(transformer: Any) -> str:
    if type(transformer).__name__ == "Pipeline":
        return "Pipeline of " + ", ".join(type(step).__name__ for _, step in transformer.steps)
    if type(transformer).__name__ == "FunctionTransformer":
        return "FunctionTransformer with a function"
    return type(transformer).__name__


def _encode(part: _Part, names: Sequence[str], outputs: Sequence[str]) -> Iterator[EncodedColumn]:
    if part.kind == "passthrough":
        for index, output in zip(part.reads, part.writes):
            yield EncodedColumn(names[index], (outputs[output],))
    elif part.kind == "encoder" and part.reads:
        codes = _transformed_categories(part)
        start = 0
        for index, width, values in zip(part.reads, widths(part.transformer, part.where), part.transformer.categories_):
            at = part.writes[start : start + width]
            mine = codes[: len(values), start : start + width].copy()
            mine.setflags(write=False)
            yield EncodedColumn(names[index], tuple(outputs[i] for i in at), tuple(values.tolist()), mine)
            start += width


def _transformed_categories(part: _Part) -> npt.NDArray[np.float64]:
    """What the encoder writes for its own categories: in row i every column has its category i (or its last)."""
    import pandas as pd

    encoder, categories = part.transformer, part.transformer.categories_
    empty = [i for i, values in enumerate(categories) if not len(values)]
    if empty:
        raise ModelError(f"{part.where}.categories_[{empty[0]}]: has no categories")
    names = getattr(encoder, "feature_names_in_", range(len(categories)))
    rows = np.arange(max(len(values) for values in categories))
    # dtype=object: pandas would make NaN out of None and its own strings out of str.
    series = {
        name: pd.Series(values[np.minimum(rows, len(values) - 1)], dtype=object if values.dtype == object else None)
        for name, values in zip(names, categories)
    }
    written = encoder.transform(pd.DataFrame(series))
    if hasattr(written, "toarray"):
        written = written.toarray()
    codes = np.asarray(written).astype(np.float64)
    if codes.shape != (len(rows), len(part.writes)):
        raise ModelError(f"{part.where}: writes {codes.shape[1]} columns, expected {len(part.writes)}")
    return codes


def widths(encoder: Any, where: str) -> list[int]:
    """How many model columns each of an encoder's columns feeds."""
    if not hasattr(encoder, "categories_"):
        raise ModelError(f"{where}: not fitted")
    categories = encoder.categories_
    if type(encoder).__name__ == "OrdinalEncoder":
        return [1] * len(categories)
    grouped = getattr(encoder, "infrequent_categories_", [None] * len(categories))
    dropped = [None] * len(categories) if encoder.drop_idx_ is None else encoder.drop_idx_
    return [
        len(values) - (0 if rare is None else len(rare) - 1) - (drop is not None)
        for values, rare, drop in zip(categories, grouped, dropped)
    ]


def _names_in(transformer: Any, columns: Sequence[str] | None, where: str) -> list[str]:
    transformer = _unwrapped(transformer)
    if not hasattr(transformer, "n_features_in_"):
        if kind_of(transformer) in ("columns", "encoder"):
            raise ModelError(f"{where}: not fitted")
        raise ModelError(f"{where}: {_described(transformer)} has no exact counterpart here; accepted are {ACCEPTED}")
    n = int(transformer.n_features_in_)
    fitted = [str(name) for name in getattr(transformer, "feature_names_in_", ())]
    names = fitted or [f"x{i}" for i in range(n)]
    if columns is not None:
        names = [str(name) for name in columns]
    if len(names) != n:
        raise ModelError(f"{where}: takes {n} columns, {len(names)} are named")
    if len(set(names)) != n:
        twice = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"{where}: column name '{twice}' occurs twice; names must be distinct")
    if fitted and names != fitted:
        at = next(i for i in range(n) if names[i] != fitted[i])
        raise ModelError(f"{where}: was fitted with column {at} named '{fitted[at]}', found '{names[at]}'")
    return names
