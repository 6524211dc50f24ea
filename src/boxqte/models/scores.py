"""Models that predict a number, as classifiers: the number is compared with a threshold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import Number, floor_of_log, fraction, shown
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.imported import ImportedModel

Native = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.int64]]
HALF = Fraction(1, 2)


def with_value_threshold(model: ImportedModel, threshold: Number, *, exclusive: bool = False) -> ImportedModel:
    """A model that predicts a number as a classifier: class 1 iff its value is at least the threshold.

    Parameters
    ----------
    model
        A model without classes, as `load_model` reads regressors and rankers.
    threshold
        In the unit of what the model predicts: positive for a model that predicts an exponential (poisson, gamma,
        tweedie), within (0, 1) for one that predicts a sigmoid (reg:logistic). It is rounded to the precision of the
        library's values, as `model.predict(rows) >= threshold` does: a leaf of 0.3 is at least 0.3.
    exclusive
        Class 1 iff the value is above the threshold.

    Returns
    -------
    The same trees over a shifted base, so that the margin is positive in class 1 and negative in class 0. Where the
    threshold's logarithm or logit is irrational, the base is shifted by the middle of the two neighbouring values that a
    sum of leaves can have, which decides every input as the irrational number does. There is no confidence (kappa), but
    where the value is a sigmoid.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from boxqte.models.importers import load_model
    >>> tree = DecisionTreeRegressor().fit([[1], [2], [3]], [10.0, 20.0, 30.0])
    >>> decided = with_value_threshold(load_model(tree), 20)
    >>> decided.ensemble.predict([[1], [2], [3]]).tolist()
    [0, 1, 1]
    """
    ensemble = model.ensemble
    if ensemble.predicts_classes:
        raise ModelError(f"{model.source}: predicts classes, not a number; a threshold on the value has no meaning")
    limit = _rounded(fraction(threshold, ModelError, "threshold"), ensemble)
    base, further = _shifted(ensemble, limit)
    decided = replace(
        ensemble,
        base=(base,),
        link="sigmoid" if ensemble.link == "sigmoid" else "identity",
        classes=(0, 1),
        tie="negative" if exclusive else "positive",
        further_rounding=ensemble.further_rounding + further,
    )
    return replace(model, ensemble=decided, native=_native(model, limit, exclusive), values=None, raw=None)


def _rounded(limit: Fraction, ensemble: TreeEnsemble) -> Fraction:
    """The float of the library's precision that is nearest to the limit."""
    try:
        wide = float(limit)
    except OverflowError:
        wide = np.inf
    with np.errstate(over="ignore"):
        near = float(np.float32(wide)) if ensemble.sum_dtype == "float32" else wide
    if not np.isfinite(near):
        raise ModelError(f"threshold: {shown(str(limit))} is beyond the largest {ensemble.sum_dtype}")
    return Fraction(near)


def _shifted(ensemble: TreeEnsemble, limit: Fraction) -> tuple[Fraction, Fraction]:
    """The base with which the margin is that above the limit, and what the link rounds near it, in the margin."""
    (base,) = ensemble.base
    if ensemble.link == "identity":
        return base - limit / ensemble.scale, Fraction(0)
    u = Fraction(1, 2**24 if ensemble.sum_dtype == "float32" else 2**53)
    if ensemble.link == "exp":
        if limit <= 0:
            raise ModelError(f"threshold: {shown(str(limit))} is not positive, but every value of the model is")
        probability, further = limit / (1 + limit), 8 * u  # whose logit is the limit's logarithm
    else:
        if not 0 < limit < 1:
            raise ModelError(f"threshold: {shown(str(limit))} is outside 0..1, where every value of the model is")
        probability, further = limit, 8 * u / (1 - limit)  # p errs by at most a few units, and dF = dp / (p * (1 - p))
    if probability == HALF:
        return base, further
    # All sums of leaves are whole multiples of 2**-bits.
    bits = max(v.as_integer_ratio()[1] for v in np.unique(ensemble.value).tolist()).bit_length() - 1
    floor = floor_of_log(probability / (1 - probability), 2**bits / ensemble.scale, -base * 2**bits)
    return -(floor + HALF) / 2**bits, further


def _native(model: ImportedModel, limit: Fraction, exclusive: bool) -> Native | None:
    """The library's own values, compared with the limit."""
    values, above = model.values, float(limit)
    if values is None:
        return None

    def decide(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        found = np.asarray(values(rows), np.float64)
        return (found > above if exclusive else found >= above).astype(np.int64)

    return decide
