"""Tables as people have them: files on disk, and frames of any library, read into columns of plain Python values.

Files are only ever parsed: nothing in a table is executed, imported or unpickled.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from boxqte.errors import SpaceError
from boxqte.exact import fraction

if TYPE_CHECKING:  # questions without a table need not wait for these two
    import narwhals.stable.v1 as nw
    import pandas as pd

Storage = Literal["bool", "text", "integer", "float", "category", "one-hot"]

# What an empty cell looks like in a CSV file. 'None' is not among them: it is a category in many tables.
MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>")
MAX_UNPACKED = 1 << 30  # bytes: a few kilobytes may unpack to what fills the memory
PACKED: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
SEPARATORS = (",", ";", "\t")


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table: plain Python values (str, bool, int, float, Decimal, Fraction), None where one is missing.

    `categories` is the list that the column's dtype declares (pandas Categorical, polars Enum, Arrow dictionary), or
    that the model does (`declared_by`).
    """

    name: str
    storage: Storage
    values: list[Any]
    categories: tuple[Any, ...] | None = None
    declared_by: str = "its dtype"

    @cached_property
    def counts(self) -> Counter[Any]:
        """How often each value occurs, missing ones left out."""
        counts = Counter(self.values)
        counts.pop(None, None)
        return counts

    @property
    def n_missing(self) -> int:
        return len(self.values) - self.counts.total()

    def row_of(self, value: Any) -> int:
        """The first row that holds the value, counted from 0."""
        return self.values.index(value)


def exact_number(value: Any, where: str) -> Fraction:
    """The rational that a number in a table stands for: a float for its shortest decimal, the others for themselves."""
    if isinstance(value, bool):
        return Fraction(int(value))
    return fraction(value, SpaceError, where)


def read_table(path: str | Path, *, separator: str | None = None, encoding: str = "utf-8") -> pd.DataFrame:
    """Read a CSV or Parquet file, also a compressed one (gzip, bzip2, xz, zip), or say in one line why not.

    A CSV file has a header row with distinct names, and as many fields in every row. Empty fields and the texts NA,
    N/A, NaN, nan, null, NULL and <NA> are missing values. Decimal numbers become the nearest double, whose shortest
    decimal is the text in the file again (up to 15 digits).

    Parameters
    ----------
    path
        The file. Parquet and compression are recognised by the content. Parquet needs pyarrow; a zip file holds one table.
        What is unpacked may have 1 GiB at most.
    separator
        What lies between two fields; by default the first of comma, semicolon and tab that the header contains.
    encoding
        The encoding of a CSV file; a byte order mark is skipped.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text("age,income\\n31,0.1\\n52,7.5\\n")
    >>> read_table(path)["income"].tolist()
    [0.1, 7.5]
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise SpaceError(f"{path}: not a file")
        data = path.read_bytes()
    except FileNotFoundError:
        raise SpaceError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise SpaceError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    data = unpacked(path, data)
    if not data.strip():
        raise SpaceError(f"{path}: the file is empty")
    if data.startswith(b"PAR1"):
        return _read_parquet(path, data)
    text = _decoded(path, data, encoding)
    separator = _checked_csv(path, text, separator)
    import pandas as pd

    try:
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            float_precision=_exact_floats(),
            keep_default_na=False,
            na_values=list(MISSING_TEXTS),
            low_memory=False,  # one type a column, not one type a chunk
            index_col=False,
        )
    except (ValueError, OverflowError) as error:  # ParserError and EmptyDataError are ValueErrors
        raise SpaceError(f"{path}: not a CSV table: {_one_line(error)}") from None
    if not len(frame):
        raise SpaceError(f"{path}: a header and no rows")
    return frame


@dataclass(frozen=True, eq=False)
class Table:
    """A table with distinct column names and at least one row; its columns are read when they are asked for."""

    names: tuple[str, ...]
    n_rows: int
    frame: nw.DataFrame[Any]

    @property
    def index(self) -> pd.Index[Any]:
        """The rows' own names where it is a pandas table, else their numbers."""
        import pandas as pd

        native = self.frame.to_native()
        return native.index if isinstance(native, pd.DataFrame) else pd.RangeIndex(self.n_rows)

    def column(self, name: str) -> Column:
        """The column of that name, or a SpaceError that says why it has no domain."""
        return _column(name, self.frame.get_column(self.frame.columns[self.names.index(name)]))


def table_of(frame: Any) -> Table:
    """A pandas, polars, pyarrow (...) table or a dict of sequences, checked."""
    table = _table(frame)
    names = tuple(_column_name(name) for name in table.columns)
    if not names:
        raise SpaceError("the table has no columns")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SpaceError(f"column '{twice}' occurs twice in the table; names must be distinct")
    if not len(table):
        raise SpaceError(f"the table has no rows; its columns are {', '.join(names)}")
    return Table(names, len(table), table)


def _table(frame: Any) -> nw.DataFrame[Any]:
    import narwhals.stable.v1 as nw

    if isinstance(frame, Mapping):
        import pandas as pd

        try:
            frame = pd.DataFrame(dict(frame))
        except (ValueError, TypeError) as error:
            raise SpaceError(f"the dict is not a table: {_one_line(error)}") from None
    try:
        table = nw.from_native(frame)
    except TypeError:
        what = f"{type(frame).__module__}.{type(frame).__qualname__}"
        raise SpaceError(
            f"expected a table with named columns (pandas, polars, pyarrow, or a dict of lists), found {what}"
        ) from None
    except ValueError as error:  # narwhals' DuplicateError
        names = [str(name) for name in getattr(frame, "column_names", getattr(frame, "columns", ()))]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is None:
            raise SpaceError(f"the table cannot be read: {_one_line(error)}") from None
        raise SpaceError(f"column '{twice}' occurs twice in the table; names must be distinct") from None
    return table.collect() if isinstance(table, nw.LazyFrame) else table


def _column_name(name: object) -> str:
    if isinstance(name, str) and name:
        return name
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        return str(name)  # a pandas frame made from an array numbers its columns
    raise SpaceError(f"column {name!r}: expected a text as column name")


def _column(name: str, series: nw.Series[Any]) -> Column:
    dtype = series.dtype
    kind = type(dtype).__name__  # narwhals' own predicates came and went with its versions; the names stay
    if kind in ("Date", "Datetime", "Duration", "Time"):
        raise _dates(name, kind)
    if kind in ("Categorical", "Enum"):
        values = [plain_value(v) for v in series.to_list()]
        return _checked(Column(name, "category", values, _declared_categories(series)))
    if kind in ("List", "Array", "Struct", "Binary"):
        raise _unsupported(name, kind)
    values = [plain_value(v) for v in series.to_list()]
    if kind == "Boolean":
        return Column(name, "bool", values)
    if kind == "String":
        return _checked(Column(name, "text", values))
    if dtype.is_integer():
        return Column(name, "integer", values)
    if dtype.is_float() or kind == "Decimal":
        return _checked(Column(name, "float", values))
    return _object_column(name, values, kind)


def _object_column(name: str, values: list[Any], dtype: str) -> Column:
    """A column whose dtype says nothing: the Python types of its values decide, and they must agree."""
    first: dict[str, tuple[int, Any]] = {}
    for row, value in enumerate(values):
        if value is not None:
            first.setdefault(_family(value), (row, value))
    if len(first) > 1:
        (_, one), (row, other), *_ = first.values()
        raise SpaceError(
            f"column '{name}': mixed types, {one!r} ({type(one).__name__}) and {other!r} ({type(other).__name__}) "
            f"in row {row}; convert the column to one type"
        )
    family = next(iter(first), "text")
    if family == "date":
        raise _dates(name, type(first["date"][1]).__name__)
    if family not in ("bool", "text", "number"):
        raise _unsupported(name, dtype if dtype not in ("Object", "Unknown") else family)
    if family != "number":
        return Column(name, "bool" if family == "bool" else "text", values)
    # Decimals and fractions of one column must be comparable.
    values = [exact_number(v, f"column '{name}'") if isinstance(v, Decimal) and v.is_finite() else v for v in values]
    whole = all(isinstance(v, int) for v in values if v is not None)
    return _checked(Column(name, "integer" if whole else "float", values))


def _family(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (int, float, Decimal, Rational)):
        return "number"
    if isinstance(value, (date, time, timedelta)) or type(value).__name__ == "Period":
        return "date"
    return type(value).__name__


def plain_value(value: Any) -> Any:
    """None for every way of saying 'missing' (None, NaN, NA, NaT); numpy scalars as Python's; -0.0 as 0.0."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return None if math.isnan(value) else value + 0.0
    if isinstance(value, Decimal) and value.is_nan():
        return None
    return value


def _checked(column: Column) -> Column:
    """Refuse infinite numbers, and categories that are neither texts nor numbers."""
    for value in column.categories or ():
        if _family(value) not in ("text", "number", "bool"):
            kind = type(value).__name__
            raise SpaceError(
                f"column '{column.name}': its categories are of type {kind}; convert them to texts or numbers"
            )
    if column.storage in ("float", "integer", "category"):
        for value in column.counts:
            if isinstance(value, (float, Decimal)) and not math.isfinite(value):
                raise SpaceError(
                    f"column '{column.name}', row {column.row_of(value)}: {value} is not a finite number; "
                    "replace it or leave the row out (rows count from 0)"
                )
    return column


def _declared_categories(series: nw.Series[Any]) -> tuple[Any, ...] | None:
    """The list of categories that the column's dtype declares, in its order; None if it declares none."""
    native = series.to_native()
    if series.implementation.is_pandas_like():
        return tuple(plain_value(v) for v in native.cat.categories.tolist())
    if series.implementation.is_pyarrow():
        chunks = native.unify_dictionaries().chunks
        return tuple(plain_value(v) for v in chunks[0].dictionary.to_pylist() if v is not None)
    if type(series.dtype).__name__ == "Enum":
        return tuple(native.dtype.categories.to_list())
    return None  # polars' Categorical: its categories belong to the process, not to the column


def _dates(name: str, dtype: str) -> SpaceError:
    return SpaceError(
        f"column '{name}': {dtype} values have no domain here; convert them to numbers (such as days since a date) "
        "as the model gets them, or leave the column out"
    )


def _unsupported(name: str, dtype: str) -> SpaceError:
    return SpaceError(
        f"column '{name}': {dtype} values are neither numbers nor categories; convert them or leave the column out"
    )


def unpacked(path: Path, data: bytes) -> bytes:
    """The content of a compressed file, which is read no further than MAX_UNPACKED; other files as they are."""
    try:
        if data.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                inside = [entry for entry in archive.infolist() if not entry.is_dir()]
                if len(inside) != 1:
                    raise SpaceError(f"{path}: a zip file with {len(inside)} files in it; expected one table")
                with archive.open(inside[0]) as stream:
                    return _bounded(path, stream)
        for magic, opened in PACKED.items():
            if data.startswith(magic):
                with opened(io.BytesIO(data)) as stream:
                    return _bounded(path, stream)
    except (
        OSError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        zipfile.BadZipFile,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise SpaceError(f"{path}: a compressed file that cannot be unpacked: {_one_line(error)}") from None
    return data


def _bounded(path: Path, stream: IO[bytes]) -> bytes:
    content = stream.read(MAX_UNPACKED + 1)
    if len(content) > MAX_UNPACKED:
        raise SpaceError(
            f"{path}: has more than {MAX_UNPACKED:,} bytes when it is unpacked, which is the most that is read; unpack it "
            "yourself, or take some of its rows"
        )
    return content


def _read_parquet(path: Path, data: bytes) -> pd.DataFrame:
    try:
        from pyarrow import parquet  # type: ignore[import-untyped]
    except ImportError:
        raise SpaceError(f"{path}: a Parquet file needs pyarrow; install it, or give a CSV file") from None
    try:
        frame: pd.DataFrame = parquet.read_table(io.BytesIO(data)).to_pandas()
    except (ValueError, OSError, NotImplementedError, KeyError, TypeError) as error:  # ArrowInvalid is a ValueError
        raise SpaceError(f"{path}: not a readable Parquet file: {_one_line(error)}") from None
    return frame


def _decoded(path: Path, data: bytes, encoding: str) -> str:
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        encoding = "utf-8-sig"
    try:
        text = data.decode(encoding)
    except LookupError:
        raise SpaceError(f"{path}: unknown encoding '{encoding}'") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpaceError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not {error.encoding}; save the file as UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise SpaceError(
            f"{path}, line {line}: a NUL character; this is not a CSV file in {encoding.removesuffix('-sig')}"
        )
    return text


def _checked_csv(path: Path, text: str, separator: str | None) -> str:
    """The separator, after checking that the header's names are distinct and that every row has as many fields.

    pandas itself would fill short rows up with missing values, and rename columns that have the same name.
    """
    if not text.strip():
        raise SpaceError(f"{path}: the file is empty")
    if separator is None:
        head = text.lstrip("\r\n ").splitlines()[0]
        separator = next((s for s in SEPARATORS if s in head), ",")
    elif len(separator) != 1 or separator in '"\r\n':
        raise SpaceError(f"separator: expected one character, found {separator!r}")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        header: list[str] | None = None
        n_rows = 0
        for row in reader:
            if not "".join(row).strip() and len(row) <= 1:
                continue  # a blank line, which pandas skips as well
            if header is None:
                header = row
            elif len(row) != len(header):
                raise SpaceError(
                    f"{path}, line {reader.line_num}: {len(row)} fields, the header has {len(header)} "
                    f"(separated by {separator!r})"
                )
            else:
                n_rows += 1
    except csv.Error as error:
        raise SpaceError(f"{path}, line {reader.line_num}: not valid CSV: {error}") from None
    if header is None:
        raise SpaceError(f"{path}: the file has no header")
    for position, name in enumerate(header):
        if not name:
            raise SpaceError(
                f"{path}: column {position + 1} has no name in the header; name it or leave it out "
                "(pandas' to_csv writes such an index column without index=False)"
            )
        if header.count(name) > 1:
            raise SpaceError(f"{path}: column '{name}' occurs twice in the header; names must be distinct")
    if not n_rows:
        raise SpaceError(f"{path}: a header and no rows")
    return separator


def _exact_floats() -> Literal["round_trip"] | None:
    """pandas' option for correctly rounded decimals: from 3.1 on they are the default, and naming it is deprecated."""
    import pandas as pd

    major, minor = (int(part) for part in pd.__version__.split(".")[:2])
    return None if (major, minor) >= (3, 1) else "round_trip"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
