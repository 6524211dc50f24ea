"""scikit-learn's documented pipeline, audited: numbers are imputed and scaled, categories one-hot, then gradient boosting.

    python examples/pipeline.py [FOLDER] [SECONDS]

FOLDER holds adult.csv and adult.schema.json (UCI Adult, integer-coded, with the texts behind the codes); without it, the
pipeline is trained on the 400 people of people.csv, some of whose answers are left out. Needs scikit-learn.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from boxqte import audit
from boxqte.api.audit import Audit

HERE = Path(__file__).resolve().parent


def adult(folder: Path) -> pd.DataFrame:
    """The table with its texts, and a missing value where the census has a question mark."""
    frame = pd.read_csv(folder / "adult.csv")
    for attribute in json.loads((folder / "adult.schema.json").read_text(encoding="utf-8"))["attributes"]:
        if "labels" in attribute:
            texts = dict(zip(attribute["values"], attribute["labels"]))
            frame[attribute["name"]] = frame[attribute["name"]].map(texts).replace("?", np.nan)
    return frame


def people() -> pd.DataFrame:
    """Some of the 400 people have not said what they earn, or what race they are."""
    frame = pd.read_csv(HERE / "people.csv").rename(columns={"granted": "label"})
    frame["race"] = frame["race"].map(lambda race: f"race {race}")
    frame.loc[frame.index % 9 == 0, "income"] = np.nan
    frame.loc[frame.index % 11 == 0, "race"] = np.nan
    return frame


def trained(frame: pd.DataFrame, trees: int) -> Pipeline:
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    categories = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing"), OneHotEncoder(handle_unknown="ignore")
    )
    preprocessor = ColumnTransformer(
        [
            ("num", numbers, make_column_selector(dtype_include="number")),
            ("cat", categories, make_column_selector(dtype_exclude="number")),
        ]
    )
    model = Pipeline(
        [("preprocessor", preprocessor), ("classifier", GradientBoostingClassifier(n_estimators=trees, random_state=0))]
    )
    return model.fit(frame.drop(columns="label"), frame["label"])


def audited(model: Pipeline, frame: pd.DataFrame, seconds: float) -> Audit:
    """What the pipeline makes of sex and race. The space has the table's own columns, missing values where it has some."""
    infer = {"missing": "declare"}
    return audit(model, frame, label="label", sensitive=["sex", "race"], infer=infer, time_limit=seconds)


def main() -> None:
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    frame = adult(Path(sys.argv[1])) if len(sys.argv) > 1 else people()
    print(audited(trained(frame, 100 if len(sys.argv) > 1 else 20), frame, seconds))


if __name__ == "__main__":
    main()
