"""scikit-learn's own decision rules: fixed and tuned thresholds, and calibrated probabilities.

All of them decide on the score of one inner model, which any importer reads. A threshold on its probability or on its
`decision_function` is the rule itself. A calibrator maps the score to another probability and never falls, so that its
class 1 begins at one score: the smallest float that the calibrator itself takes there, found by bisection over floats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import fraction, shown
from boxqte.models.decision import DecisionRule
from boxqte.models.floats import bisected, floats_of, keys_of
from boxqte.models.importers import Asks, ImportedModel, decided, load_model
from boxqte.models.importers.structure import real

Array = npt.NDArray[Any]
LARGEST_MARGIN = 2.0**40  # calibrators are asked about margins up to this
BESIDE = 512  # units of roundoff to each side of a level in which the calibrator's own rounding is looked at
METHODS = ("sigmoid", "isotonic", "temperature")


def read_frozen(model: Any, where: str) -> ImportedModel:
    """A FrozenEstimator is the model that it holds."""
    return replace(_inner(model.estimator, where), source=where)


def read_threshold(model: Any, where: str) -> ImportedModel:
    """FixedThresholdClassifier, TunedThresholdClassifierCV: class `pos_label` iff its score is at least the threshold."""
    tuned = not hasattr(model, "threshold")
    if tuned and not hasattr(model, "best_threshold_"):
        raise ModelError(f"{where}: not fitted")
    inner = _inner(getattr(model, "estimator_", model.estimator), where)
    classes = inner.ensemble.classes
    label = model._curve_scorer._get_pos_label() if tuned else model.pos_label
    if label is not None and label not in classes:
        raise ModelError(f"{where}.pos_label: {shown(label)}, the classes are {', '.join(map(str, classes))}")
    of_class = 1 if label is None else classes.index(label)
    by_margin = model.response_method == "decision_function"
    field = f"{where}.{'best_threshold_' if tuned else 'threshold'}"
    given = model.best_threshold_ if tuned else model.threshold
    if isinstance(given, str) and given == "auto":
        given = 0.0 if by_margin else 0.5
    level = real(given.item() if isinstance(given, np.generic) else given, field)
    own = (_by_margin if by_margin else _by_probability)(inner, level, of_class, field)
    return replace(own, source=where)


def _by_probability(inner: ImportedModel, level: float, of_class: int, field: str) -> ImportedModel:
    """A threshold of the float's shortest decimal: with ten votes of one tree each, 0.1 is what one vote in ten reaches."""
    tau = fraction(level, ModelError, field)
    top = 1 if inner.ensemble.link == "mean" and inner.pulled_back is None else 0  # of a forest all trees may agree
    if not 0 < tau < 1 and not (top and tau == 1):
        other = inner.ensemble.classes[of_class if tau <= 0 else 1 - of_class]
        raise ModelError(
            f"{field}: {shown(level)}, so that every input is of class {shown(other)}; nothing is to be asked"
        )
    rule = DecisionRule(((None, tau if of_class else 1 - tau),), exclusive=not of_class, of_class=of_class)
    return decided(inner, rule, lambda p: (p[:, of_class] >= level) == bool(of_class))


def _by_margin(inner: ImportedModel, level: float, of_class: int, field: str) -> ImportedModel:
    margin = inner.margin
    if margin is None:
        raise ModelError(f"{field}: the model has no decision_function; accepted is response_method='predict_proba'")
    tau = Fraction(level if of_class else -level) * inner.margin_unit
    rule = DecisionRule(((None, tau),), on="margin", exclusive=not of_class)
    sign = 1 if of_class else -1

    def native(rows: Array) -> npt.NDArray[np.int64]:
        return np.asarray((sign * margin(rows) >= level) == bool(of_class), np.int64)

    return replace(inner, ensemble=replace(inner.ensemble, decision=rule), native=native)


# ---------------------------------------------------------------------------------------------------------------------
# Calibration


def read_calibrated(model: Any, where: str) -> ImportedModel:
    """CalibratedClassifierCV with one calibrated model, whose `predict` takes the larger of two probabilities."""
    if not hasattr(model, "calibrated_classifiers_"):
        raise ModelError(f"{where}: not fitted")
    members = model.calibrated_classifiers_
    if len(members) != 1:
        raise ModelError(
            f"{where}: is the mean of {len(members)} calibrated models, which is no sum of trees; accepted is one, as "
            "CalibratedClassifierCV(ensemble=False) or a FrozenEstimator gives"
        )
    [member] = members
    if member.method not in METHODS:
        raise ModelError(f"{where}.method: {shown(member.method)} is not read; accepted are {', '.join(METHODS)}")
    inner = _inner(member.estimator, where)
    if tuple(member.classes.tolist()) != tuple(inner.ensemble.classes):
        raise ModelError(f"{where}.classes: {shown(member.classes.tolist())}, the model inside has other ones")
    score = inner.margin or inner.probability
    if score is None:
        raise ModelError(f"{where}: the library of the model inside is not installed, and its scores are needed")
    on_margin = inner.margin is not None
    calibrated = partial(_calibrated, member.method, member.calibrators[0], on_margin)
    example = score(np.zeros((1, inner.ensemble.n_features)))
    dtype = example.dtype

    def probability(rows: Array) -> Array:
        found = score(rows)
        return calibrated(found if on_margin else found[:, 1])

    def pulled_back(asks: Asks) -> DecisionRule:
        return _pulled_back(inner, lambda scores: asks(calibrated(scores)), member, dtype, where)

    # the median of two classes: predict asks which probability is larger, and takes the first of two equal ones
    plain = replace(inner, margin=None, probability=probability, pulled_back=pulled_back, source=where)
    return decided(plain, DecisionRule(((None, Fraction(1, 2)),), exclusive=True), lambda p: p[:, 1] > p[:, 0])


def _calibrated(method: str, calibrator: Any, on_margin: bool, scores: Array) -> Array:
    """Both probabilities, as scikit-learn computes them from scores (`_CalibratedClassifier.predict_proba`)."""
    with np.errstate(over="ignore"):
        if method == "temperature":
            column = scores.reshape(-1, 1)
            p = np.asarray(calibrator.predict(column if on_margin else np.concatenate([1 - column, column], axis=1)))
        else:
            p = np.zeros((len(scores), 2))
            p[:, 1] = calibrator.predict(scores)
            p[:, 0] = 1.0 - p[:, 1]
    p[(p > 1.0) & (p <= 1.0 + 1e-5)] = 1.0
    return p


def _pulled_back(inner: ImportedModel, asks: Asks, member: Any, dtype: Any, where: str) -> DecisionRule:
    """The rule on the inner model's score: class 1 from the first float on that the calibrator takes there."""
    on_margin = inner.margin is not None
    low, high = (-LARGEST_MARGIN, LARGEST_MARGIN) if on_margin else (0.0, 1.0)
    ends = asks(np.array([low, high], dtype)).tolist()
    if ends[0] == ends[1]:
        label = inner.ensemble.classes[int(ends[0])]
        raise ModelError(f"{where}: every score is calibrated to class {shown(label)}; nothing is to be asked")
    if ends[0]:
        raise ModelError(
            f"{where}: its calibrator falls, so that a larger score means class 0; calibrate a better model"
        )
    level = first_true(asks, low, high, dtype)
    unit = float(np.finfo(dtype).eps) / 2
    # Where the calibrator's arithmetic is rounded, it may say no beyond the level, or yes before it.
    steps = level + np.arange(-BESIDE, BESIDE + 1) * unit * (1 + abs(level))
    beside = np.unique(np.clip(steps, low, high).astype(dtype))
    nodes = np.asarray(getattr(member.calibrators[0], "X_thresholds_", []), dtype)
    points = np.concatenate([beside, nodes, *(np.nextafter(nodes, dtype.type(side)) for side in (low, high))])
    off = points[asks(points) != (points >= level)]
    width = float(np.abs(off - level).max(initial=0.0))
    if width > BESIDE / 2 * unit * (1 + abs(level)):
        worst = off[np.abs(off - level).argmax()]
        raise ModelError(
            f"{where}: its calibrator is rounded so that class 1 does not begin at one score: it has {level!r} and "
            f"{float(worst)!r}; another threshold may do"
        )
    if inner.pulled_back is not None:
        return inner.pulled_back(lambda p: p[:, 1] >= level)
    scale = inner.margin_unit if on_margin else 1
    return DecisionRule(
        ((None, Fraction(level) * scale),),
        on="margin" if on_margin else "probability",
        slack=2 * Fraction(width) * scale,
    )


def first_true(asks: Callable[[Array], Array], low: float, high: float, dtype: Any) -> float:
    """The smallest float of the dtype at which a predicate holds that does not hold at low, and does at high."""
    start, stop = np.split(keys_of([low, high], dtype), 2)
    last = bisected(lambda keys, _: asks(floats_of(keys, dtype)), start, stop, np.array([False]))
    return float(floats_of(last + 1, dtype)[0])


def _inner(estimator: Any, where: str) -> ImportedModel:
    try:
        inner = load_model(estimator)
    except ModelError as error:
        raise ModelError(f"{where}: estimator: {error}") from error
    if hasattr(estimator, "decision_function") != (inner.margin is not None):
        raise ModelError(f"{where}: estimator: the decision_function of {type(estimator).__name__} is not read here")
    if not inner.ensemble.is_binary:
        raise ModelError(f"{where}: estimator: has {inner.ensemble.n_outputs} classes; accepted are two")
    return inner
