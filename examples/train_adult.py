"""Trains XGBoost (20 trees of depth 3) on adult.csv and writes adult.json: python train_adult.py FOLDER

FOLDER, or BOXQTE_DATA in the environment, holds adult.csv (UCI Adult, integer-coded, label in the column `label`).
Needs xgboost, scikit-learn and pandas.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pandas as pd
import xgboost


def main() -> int:
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("BOXQTE_DATA")
    if folder is None or not (Path(folder) / "adult.csv").is_file():
        print("train_adult.py: adult.csv is not found; expected python train_adult.py FOLDER", file=sys.stderr)
        return 2
    frame = pd.read_csv(Path(folder) / "adult.csv")
    label = frame.pop("label")
    model = xgboost.XGBClassifier(n_estimators=20, max_depth=3).fit(frame, label)
    model.save_model("adult.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
