"""The models of the experiments: trained on all rows, of a given number of trees and depth, otherwise with defaults."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.paper.datasets import DataSet

from boxqte.errors import ModelError


@dataclass(frozen=True)
class ModelSize:
    """So many trees of at most such a depth; written `50x3`."""

    trees: int
    depth: int

    @classmethod
    def parse(cls, text: str) -> ModelSize:
        """Read `50x3`.

        Examples
        --------
        >>> ModelSize.parse("50x3")
        ModelSize(trees=50, depth=3)
        """
        found = re.fullmatch(r"\s*(\d+)\s*x\s*(\d+)\s*", text)
        if not found or not int(found[1]) or not int(found[2]):
            raise ModelError(f"model size: expected TREESxDEPTH such as 50x3, found '{text}'")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.trees}x{self.depth}"


def train(data: DataSet, size: ModelSize, library: str = "xgboost", seed: int = 0) -> Any:
    """A model of that library and size, trained on all rows. XGBoost is as the paper states: the seed changes nothing.

    Parameters
    ----------
    data
        The data set.
    size
        Trees and depth.
    library
        xgboost, lightgbm, forest (scikit-learn's random forest) or catboost.
    seed
        For the libraries that draw at random.
    """
    if library not in LIBRARIES:
        raise ModelError(f"model library '{library}' is unknown; libraries are {', '.join(LIBRARIES)}")
    try:
        return LIBRARIES[library](data, size, seed)
    except ImportError as error:
        extra = "sklearn" if library == "forest" else library
        raise ModelError(f"{library} models: {error}; pip install boxqte[{extra}]") from None


def _xgboost(data: DataSet, size: ModelSize, seed: int) -> Any:
    import xgboost

    model = xgboost.XGBClassifier(n_estimators=size.trees, max_depth=size.depth)
    return model.fit(data.inputs, data.labels)


def _lightgbm(data: DataSet, size: ModelSize, seed: int) -> Any:
    import lightgbm

    model = lightgbm.LGBMClassifier(
        n_estimators=size.trees, max_depth=size.depth, num_leaves=2**size.depth, random_state=seed, verbosity=-1
    )
    return model.fit(data.inputs, data.labels)


def _forest(data: DataSet, size: ModelSize, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(n_estimators=size.trees, max_depth=size.depth, random_state=seed)
    return model.fit(data.inputs, data.labels)


def _catboost(data: DataSet, size: ModelSize, seed: int) -> Any:
    import catboost

    model = catboost.CatBoostClassifier(
        iterations=size.trees, depth=size.depth, random_seed=seed, verbose=False, allow_writing_files=False
    )
    return model.fit(data.inputs, data.labels)


LIBRARIES: dict[str, Callable[[DataSet, ModelSize, int], Any]] = {
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "forest": _forest,
    "catboost": _catboost,
}
