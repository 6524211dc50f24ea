"""How a user's column becomes model columns: one-hot groups, ordinal codes, passthrough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class EncodedColumn:
    """One of the user's columns and the model columns it feeds.

    `values` are the user's category values and `codes[v, c]` is what value v writes into model column `columns[c]`
    (one-hot: an identity matrix, a zero row for a dropped category; ordinal: one column of codes). Both are None for a
    column that is passed through unchanged.
    """

    name: str
    columns: tuple[str, ...]
    values: tuple[Any, ...] | None = None
    codes: npt.NDArray[np.float64] | None = None
