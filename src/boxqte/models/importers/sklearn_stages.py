"""The first stages of scikit-learn's boosted models, as their `staged_predict` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers import ImportedModel
from boxqte.models.importers.rounds import Trees, refuse_rounds, rounds_used
from boxqte.models.importers.sklearn_estimator import responses

Native = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.int64]]

STAGED = ("GradientBoostingClassifier", "HistGradientBoostingClassifier")


class Staged:
    """A boosted model as it was after some of its stages."""

    def __init__(self, model: Any, stages: int) -> None:
        self.model, self.stages = model, stages
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_

    def predict(self, frame: Any) -> Any:
        return self._then(self.model.staged_predict(frame))

    def predict_proba(self, frame: Any) -> Any:
        return self._then(self.model.staged_predict_proba(frame))

    def decision_function(self, frame: Any) -> Any:
        return self._then(self.model.staged_decision_function(frame)).reshape(-1)

    def _then(self, stages: Iterator[Any]) -> Any:
        return next(islice(stages, self.stages - 1, None))


def cut_stages(
    model: Any, imported: ImportedModel, trees: Trees | None, native: Callable[..., Native]
) -> ImportedModel:
    """The model with so many of its trees as the user says; `native` makes a replay of something that predicts.

    Early stopping itself leaves no trees to cut behind.
    """
    name, ensemble = type(model).__name__, imported.ensemble
    if name not in STAGED or not type(model).__module__.startswith("sklearn."):
        refuse_rounds(trees, name)
        return imported
    ends = range(0, ensemble.n_trees + 1, ensemble.n_outputs)
    stages = rounds_used(trees, ends, None, len(ends) - 1, f"{name}: ")
    if stages == len(ends) - 1:
        return imported
    staged, categories = Staged(model, stages), dict(ensemble.categories)
    asked = responses(staged, categories) if ensemble.is_binary else {"probability": None, "margin": None}
    cut, replay = first_trees(ensemble, ends[stages]), native(staged, ensemble.classes, categories)
    return replace(imported, ensemble=cut, native=replay, trees_in_file=ensemble.n_trees, **asked)


def first_trees(ensemble: TreeEnsemble, n: int) -> TreeEnsemble:
    """An ensemble of the first n trees, whose nodes come before those of all others."""
    end = int(ensemble.roots[n])
    per_node = ("feature", "test", "threshold", "left", "right", "default_left", "missing", "set_start", "set_stop", "value",
                "node_id")  # fmt: skip
    kept = {name: getattr(ensemble, name)[:end].copy() for name in per_node}
    return replace(ensemble, roots=ensemble.roots[:n].copy(), tree_output=ensemble.tree_output[:n].copy(), **kept)
