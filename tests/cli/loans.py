"""The table, the space and the question that the tests of the command share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from boxqte.space.attributes import Attribute
from boxqte.space.space import Space


def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "income": rng.uniform(0, 1000, 200).round(2),
            "race": rng.integers(0, 4, 200),
            "age": rng.integers(18, 80, 200),
            "sex": rng.choice(["f", "m"], 200),
        }
    )


def granted(frame: pd.DataFrame) -> Any:
    points = [frame["income"] > 400, frame["age"] > 50, frame["race"] == 2]
    return (sum(point.astype(int) for point in points) > 1).astype(int)


SPACE = Space(
    [Attribute.real("income", 0, 1000), Attribute.categorical("race", range(4)), Attribute.integer("age", 18, 80)],
    label="granted",
    sensitive=["race"],
)


QUANTIFY = "quantify model.json --space space.json --engine exhaustive"
