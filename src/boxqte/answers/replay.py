"""What the model's own library says of pairs: by its classes, or by its scores where scores are asked about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boxqte.answers.values import FloatArray, GridValues
from boxqte.models.importers import ImportedModel
from boxqte.models.scores import library_scores
from boxqte.questions.grid import Grid
from boxqte.questions.properties import Monotonicity, ScoreFairness

Scores = Callable[[FloatArray], npt.NDArray[np.number]]


@dataclass(frozen=True, eq=False)
class Replay:
    """Which pairs break the property as the library computes it, and its scores of both, where scores are asked about."""

    breaks: npt.NDArray[np.bool_]
    scores: tuple[FloatArray, FloatArray] | None = None

    def scores_of(self, pair: int) -> tuple[float, float] | None:
        return None if self.scores is None else (float(self.scores[0][pair]), float(self.scores[1][pair]))


def replayed_by_library(
    model: ImportedModel, grid: Grid, values: GridValues, x: Sequence[FloatArray], witness: Sequence[FloatArray]
) -> Replay | None:
    """The pairs asked of the library; None where it is not installed, or gives no such score."""
    prop, n = grid.property, grid.ensemble.n_features
    ask: Scores | None = model.native if not prop.asks_scores else library_scores(model)
    if isinstance(prop, ScoreFairness) and prop.scale == "probability" and model.probability is not None:
        probability = model.probability
        ask = lambda rows: probability(rows)[:, 1]  # noqa: E731
    if ask is None:
        return None
    rows = [values.matrix(columns) for columns in (x, witness)]
    one, two = (np.asarray(ask(r[:, :n] if prop.asks_scores else r), np.float64) for r in rows)
    if isinstance(prop, Monotonicity):
        at = next(a for a, axis in enumerate(grid.axes) if axis.sensitive)
        upward = (witness[at] > x[at]) == (prop.direction == "increasing")  # x' is to have at least as much as x
        breaks = np.where(upward, two < one, two > one)
    elif isinstance(prop, ScoreFairness):
        breaks = np.abs(one - two) > float(prop.at_most)
    else:
        breaks = one != two
    return Replay(breaks, (one, two) if prop.asks_scores else None)
