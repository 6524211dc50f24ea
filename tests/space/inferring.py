"""The kinds of tables that a space is inferred from, what is said of a column, and a refusal in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from boxqte.errors import SpaceError
from boxqte.space.space import Space

Make = Callable[[dict[str, list[Any]]], Any]
MAKERS: dict[str, Make] = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table, "dict": dict}


def why(frame: Any, name: str, **options: Any) -> str:
    return next(d.why for d in Space.infer(frame, **options).decisions if d.name == name)


def refusal(frame: Any, **options: Any) -> str:
    with pytest.raises(SpaceError) as caught:
        Space.infer(frame, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text
