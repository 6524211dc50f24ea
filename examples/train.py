"""Makes people.csv and model.json, the files that the commands in the documentation use. Needs xgboost 3.1 or newer.

python examples/train.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import xgboost

HERE = Path(__file__).resolve().parent


def main() -> None:
    rng = np.random.default_rng(7)
    n = 400
    people = pd.DataFrame(
        {
            "income": rng.gamma(4.0, 12.0, n).round(1).clip(0, 150),
            "age": rng.integers(18, 80, n),
            "sex": rng.choice(["f", "m"], n),
            "race": rng.integers(0, 5, n),
        }
    )
    score = people["income"] / 20 - 2.2 + (people["age"] > 30) * 0.5 + (people["sex"] == "m") * 0.4
    people["granted"] = (score + rng.normal(0, 0.6, n) > 0).astype(int)
    people.to_csv(HERE / "people.csv", index=False)
    rows = people.drop(columns="granted").astype({"sex": "category"})
    model = xgboost.XGBClassifier(n_estimators=12, max_depth=3, learning_rate=0.5, enable_categorical=True)
    model.fit(rows, people["granted"])
    model.save_model(HERE / "model.json")


if __name__ == "__main__":
    main()
