"""ImportedModel: a model as we read it, and the way back to its own library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from boxqte.models.decision import DecisionRule
from boxqte.models.ensemble import TreeEnsemble

Asks = Callable[[npt.NDArray[np.floating]], npt.NDArray[np.bool_]]
"""A decision on the library's own probabilities of both classes: which rows are class 1."""


@dataclass(frozen=True, eq=False)
class ImportedModel:
    """A model as we read it, and the way back to its own library."""

    ensemble: TreeEnsemble
    source: str
    """The file's path or the live object's type."""
    native: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.int64]] | None = None
    """The library's own predicted class indices for rows in model columns (float64, codes for categories, NaN for
    missing); None where the library is not installed. Importing the library is put off until the first call."""
    fills: Mapping[str, Any] = field(default_factory=dict)
    """By column what a pipeline writes in place of a missing category: it takes that value from a user, too."""
    probability: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.floating]] | None = None
    """The library's own probabilities of both classes for such rows (rows x 2); None where it is not installed."""
    margin: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.floating]] | None = None
    """The library's own `decision_function` for such rows, where it has one..."""
    margin_unit: Fraction = Fraction(1)
    """... and what it is multiplied by to be the ensemble's margin."""
    raw: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.floating]] | None = None
    """The library's own margins for such rows in the ensemble's unit, where it gives them by another name than that."""
    pulled_back: Callable[[Asks], DecisionRule] | None = None
    """Where the probability is not the link of the margin (a calibrated model): the decision that a question about the
    probability means for the margin."""
    trees_in_file: int | None = None
    """How many trees the model holds, where only some of them count: those up to its best iteration, or so many as the
    user says (`trees_because`)."""
    trees_because: str = "best_iteration"
    values: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]] | None = None
    """The library's own predicted numbers for such rows, where the model predicts a number (it has no `native` then)."""
    monotone: Mapping[str, Literal["increasing", "decreasing"]] = field(default_factory=dict)
    """By column the monotone constraints that the model says it was trained with: a claim, not a fact."""
    objective: str = ""
    """What a model that predicts a number was trained for, in its library's own words."""
    leaf_unit: float = 1.0
    """What the library multiplies a stored leaf value by, in float64, to have the ensemble's: the learning rate of
    scikit-learn's GradientBoosting."""

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: all that we read. The way back to the library is made of functions, and stays behind."""
        return {name: None if callable(value) else value for name, value in vars(self).items()}
