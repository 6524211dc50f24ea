"""Pairs of inputs shown to the model's own library: which of them are counterexamples by its own answers?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from boxqte.answers.values import FloatArray, GridValues
from boxqte.models.imported import ImportedModel
from boxqte.questions.properties import Monotonicity, Property, ScoreFairness

BoolArray = npt.NDArray[np.bool_]
Reader = Callable[[FloatArray], FloatArray]
HALF = Fraction(1, 2)


def replayed(
    model: ImportedModel, values: GridValues, x: Sequence[FloatArray], witness: Sequence[FloatArray]
) -> BoolArray | None:
    """For every pair whether the library's own classes, or scores, make x a counterexample; None if it cannot be asked.

    Its sums are rounded, so it may say no to a pair that is one. Where x' must be confident, its confidence is read as well,
    if the library gives margins or probabilities.
    """
    prop = values.grid.property
    read: Callable[[FloatArray], npt.NDArray[np.generic]] | None = (
        scores(model, prop) if prop.asks_scores else model.native
    )
    if read is None or not len(x[0]):
        return None if read is None else np.zeros(0, bool)
    columns = [values.matrix(x), values.matrix(witness)]
    if prop.asks_scores:  # the group of a threshold is no business of scores
        columns = [own[:, : model.ensemble.n_features] for own in columns]
    one, two = (np.asarray(read(own)) for own in columns)
    if isinstance(prop, Monotonicity):
        at = values.grid.space.names.index(prop.sensitive[0])
        more = (witness[at] > x[at]) == (prop.direction == "increasing")  # x' is to have at least as much as x
        return np.asarray(np.where(more, one > two, two > one), bool)
    if isinstance(prop, ScoreFairness):
        return np.asarray(np.abs(one - two) > float(prop.at_most), bool)
    agreed = one != two
    if prop.partner_kappa > HALF and margins(model) is not None:
        agreed = agreed & _confident(model, prop.partner_kappa, columns[1])
    return np.asarray(agreed, bool)


def scores(model: ImportedModel, prop: Property) -> Reader | None:
    """The library's own scores, on the scale of the property."""
    on_probability = isinstance(prop, ScoreFairness) and prop.scale == "probability"
    return probabilities(model) if on_probability else margins(model)


def probabilities(model: ImportedModel) -> Reader | None:
    """The library's own probabilities of class 1."""
    read = model.probability
    return None if read is None else lambda rows: np.asarray(read(rows), np.float64)[:, 1]


def margins(model: ImportedModel) -> Reader | None:
    """The library's own margins, in the ensemble's unit; where it gives none, from what it predicts."""
    link = model.ensemble.link
    for read, unit in ((model.raw, 1.0), (model.margin, float(model.margin_unit))):
        if read is not None:
            return _scaled(read, unit)
    if model.values is not None and link == "identity":
        return _scaled(model.values, 1.0)
    p = probabilities(model)
    if p is None or model.pulled_back is not None or link not in ("mean", "sigmoid"):
        return None
    return (lambda rows: p(rows) - 0.5) if link == "mean" else (lambda rows: _logit(p(rows)))


def _scaled(read: Callable[[FloatArray], npt.NDArray[np.floating]], unit: float) -> Reader:
    return lambda rows: unit * np.asarray(read(rows), np.float64).reshape(-1)


def _logit(p: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        found: FloatArray = np.log(p) - np.log1p(-p)
    return found


def _confident(model: ImportedModel, kappa: Fraction, rows: FloatArray) -> BoolArray:
    """Whether the library's margin is as far from the decision as the confidence takes."""
    read, link, rule = margins(model), model.ensemble.link, model.ensemble.decision
    assert read is not None
    levels = [0.0]
    if rule is not None:
        both = [rule.level(group, link) for group in range(len(rule.thresholds))]
        levels = [math.log(odds) + float(offset) for odds, offset in both]
    grouped = rule is not None and rule.attribute is not None
    group = rows[:, -1].astype(np.int64) if grouped else np.zeros(len(rows), np.int64)
    away = float(kappa - HALF) if link == "mean" else math.log(kappa / (1 - kappa))
    far = np.abs(read(rows[:, : model.ensemble.n_features]) - np.array(levels)[group])
    return np.asarray(far > away, bool)
