"""Models of models in scikit-learn and imbalanced-learn: searches, bagging, voting, AdaBoost, one against the rest.

A weighted mean of what forests predict is a weighted mean of their trees, and weighted votes of trees are a sum of trees:
both are read exactly. A mean of boosted models' probabilities, or a vote of whole forests, is neither, and is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.ensemble import EnsembleBuilder, FloatArray, Test, TreeEnsemble
from boxqte.models.importers import ImportedModel, load_model
from boxqte.models.importers.sklearn_estimator import classes_of, feature_names, fitted, native, responses, values
from boxqte.models.importers.structure import ANY_MODEL, numbers, within

U = Fraction(1, 2**53)
NO_SUM_OF_TREES = {
    "StackingClassifier": "a model of its members' outputs is no sum of trees",
    "StackingRegressor": "a model of its members' outputs is no sum of trees",
    "AdaBoostRegressor": "a weighted median of its members is no sum of trees",
    "OneVsOneClassifier": "it counts the votes of whole models, which is no sum of trees",
    "OutputCodeClassifier": "it compares distances to code words, which is no sum of trees",
}
FORESTS = (
    "DecisionTreeClassifier", "ExtraTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier",
    "BalancedRandomForestClassifier",
)  # fmt: skip
SINGLE_TREES = FORESTS[:2]
MAX_WRAPPERS = 20
OWN_THRESHOLD = ("FixedThresholdClassifier", "TunedThresholdClassifierCV")
CALIBRATED = ("CalibratedClassifierCV",)


@dataclass(frozen=True, eq=False)
class Part:
    """A member: its trees, what each leaf says to the whole (nodes x outputs of the whole), and how much it counts."""

    ensemble: TreeEnsemble
    value: FloatArray
    weight: Fraction
    features: npt.NDArray[np.int64]
    """The column of the whole behind each of the member's."""


# ---------------------------------------------------------------------------------------------------------------------
# Searches and resampling: one model inside


def read_search(model: Any, where: str) -> ImportedModel:
    """The best estimator, fitted on all data."""
    if not hasattr(model, "best_estimator_"):
        if model.refit is False and hasattr(model, "best_params_"):
            raise ModelError(
                f"{where}: refit=False keeps no model; search with refit=True, or fit one with best_params_"
            )
        raise ModelError(f"{where}: not fitted")
    return replace(_member(model.best_estimator_, f"{where}.best_estimator_"), source=where)


# ---------------------------------------------------------------------------------------------------------------------
# Means


def read_bagging(model: Any, where: str) -> ImportedModel:
    """The mean of the members' probabilities, each over its own columns; also balanced bagging and easy ensembles."""
    members = fitted(model, "estimators_", where)
    classes, names = classes_of(model, where), feature_names(model, where)
    columns = [_columns(model, i, len(names), where) for i in range(len(members))]
    if len(members) == 1 and not _is_constant(members[0]):
        return _only(model, members[0], columns[0], names, f"{where}.estimators_[0]", where)
    parts = []
    for i, (member, features) in enumerate(zip(members, columns)):
        here = f"{where}.estimators_[{i}]"
        own = numbers(np.asarray(member.classes_), f"{here}.classes_", None, np.int64)
        within(own, f"{here}.classes_", 0, len(classes) - 1)
        if _is_constant(member):
            ensemble = _constant(member, len(features))
            value = _spread(np.ones((ensemble.n_nodes, 1)), own.tolist(), len(classes))
        else:
            ensemble = _forest(member, here, len(members))
            value = _spread(_fractions(ensemble), own.tolist(), len(classes))
        parts.append(Part(ensemble, value, Fraction(1), _checked(features, ensemble, here)))
    return ImportedModel(_mean(parts, names, classes), where, native(model, classes), **responses(model))


def read_voting(model: Any, where: str) -> ImportedModel:
    """Soft: the weighted mean of probabilities. Hard: weighted votes, of which only those of single trees add up."""
    members = fitted(model, "estimators_", where)
    classes, names = classes_of(model, where), feature_names(model, where)
    hard = model.voting == "hard"
    numbers_of_classes = tuple(range(len(classes)))  # what members are fitted on, and vote for
    if len(members) == 1 and hard:  # its own predict decides
        here = f"{where}.estimators_[0]"
        inner = _member(members[0], here)
        _check_labels(inner.ensemble, numbers_of_classes, here)
        return replace(_relabelled(inner, classes), source=where)
    every = np.arange(len(names))
    if len(members) == 1:
        return _only(model, members[0], every, names, f"{where}.estimators_[0]", where)
    parts = []
    for i, (member, weight) in enumerate(zip(members, _weights(model, len(members), where))):
        here = f"{where}.estimators_[{i}]"
        if hard:
            ensemble, said = _tree_votes(member, here, numbers_of_classes)
            value = np.eye(len(classes))[said]
        else:
            ensemble = _forest(member, here, len(members))
            value = _fractions(ensemble)
        value = _spread(value, range(len(classes)), len(classes))
        parts.append(Part(ensemble, value, weight, _checked(every, ensemble, here)))
    return ImportedModel(_mean(parts, names, classes), where, native(model, classes), **responses(model))


def read_mean_regressor(model: Any, where: str) -> ImportedModel:
    """BaggingRegressor and VotingRegressor: a (weighted) mean of values; sums of trees stay sums of trees."""
    members, names = fitted(model, "estimators_", where), feature_names(model, where)
    bagged = hasattr(model, "estimators_features_")
    weights = [Fraction(1)] * len(members) if bagged else _weights(model, len(members), where)
    parts = []
    for i, (member, weight) in enumerate(zip(members, weights)):
        here = f"{where}.estimators_[{i}]"
        features = _columns(model, i, len(names), where) if bagged else np.arange(len(names))
        inner = _without_encoder(_member(member, here), member, here).ensemble
        if inner.link != "identity":
            raise ModelError(
                f"{here}: predicts {inner.link} of a sum of trees, and a mean of these is none; {ANY_MODEL}"
            )
        parts.append(Part(inner, inner.value, weight, _checked(features, inner, here)))
    return ImportedModel(_mean(parts, names, ()), where, values=values(model), objective="mean of the members")


def _mean(parts: Sequence[Part], names: Sequence[str], classes: tuple[Any, ...]) -> TreeEnsemble:
    """The weighted mean of the members as one ensemble.

    A leaf counts for weight * factor of its member, a whole multiple of the greatest common divisor of all of these. So
    votes and equal weights stay as they are; other products are rounded to float64, which `further_rounding` covers
    together with what the library rounds: every member's own error, and its weight, the sum and the division.
    """
    total = sum((part.weight for part in parts), Fraction(0))
    shares = [part.weight * part.ensemble.factor / total for part in parts]
    factor = _common_divisor(shares)
    link = "mean" if classes else "identity"
    builder = EnsembleBuilder()
    error = Fraction(0)
    base = Fraction(0)
    for part, share in zip(parts, shares):
        inner, multiple = part.ensemble, share / factor
        if link == "identity":
            base += inner.base[0] * multiple
        _add(builder, inner, part.value * float(multiple), part.features)
        size = _largest(inner) if link == "identity" else Fraction(1)
        error += part.weight / total * (inner.rounding_error() + (2 * len(parts) + 10) * U * size)
    n_trees = sum(part.ensemble.n_trees for part in parts)
    n_outputs = 1 if len(classes) <= 2 else len(classes)
    mean = builder.build(
        library="sklearn",
        feature_names=names,
        base=[base] * n_outputs,
        link="mean" if classes else "identity",
        classes=classes,
        scale=factor * n_trees if classes else factor,
        further_rounding=error,
    )
    return replace(mean, leaf_error=max(part.ensemble.leaf_error for part in parts))


def _common_divisor(shares: Sequence[Fraction]) -> Fraction:
    denominator = math.lcm(*(share.denominator for share in shares))
    return Fraction(math.gcd(*(int(share * denominator) for share in shares)), denominator)


def _largest(ensemble: TreeEnsemble) -> Fraction:
    """No value of the ensemble is larger, in size."""
    per_tree = np.zeros(ensemble.n_trees)
    np.maximum.at(per_tree, ensemble.tree_of_node(), np.abs(ensemble.value).max(axis=1))
    return ensemble.factor * sum(map(Fraction, per_tree.tolist()), abs(ensemble.base[0]))


def _add(builder: EnsembleBuilder, ensemble: TreeEnsemble, value: FloatArray, features: npt.NDArray[np.int64]) -> None:
    """All trees of a member, over the columns of the whole."""
    asks = np.flatnonzero(ensemble.test == Test.IN_SET).tolist()
    builder.add_tree(
        feature=features[np.maximum(ensemble.feature, 0)],
        test=ensemble.test,
        threshold=ensemble.threshold,
        left=ensemble.left,
        right=ensemble.right,
        default_left=ensemble.default_left,
        missing=ensemble.missing,
        sets={node: sorted(ensemble.set_of(node)) for node in asks},
        node_id=ensemble.node_id,
        root=ensemble.roots,
        output=np.full(ensemble.n_trees, 0 if value.shape[1] == 1 else -1),
        value=value,
    )


def _fractions(forest: TreeEnsemble) -> FloatArray:
    """Per node the fraction of every class of the forest."""
    if not forest.is_binary:
        return forest.value
    return np.concatenate([1.0 - forest.value, forest.value], axis=1)


def _spread(value: FloatArray, own: Sequence[int], n_classes: int) -> FloatArray:
    """Fractions of a member's own classes as those of all classes; of two classes the second one's is enough."""
    spread = np.zeros((len(value), n_classes))
    spread[:, own] = value
    return spread[:, 1:] if n_classes == 2 else spread


# ---------------------------------------------------------------------------------------------------------------------
# Votes


def read_adaboost(model: Any, where: str) -> ImportedModel:
    """SAMME: every tree votes with its weight for the class of its leaf, and against all others."""
    members = fitted(model, "estimators_", where)
    classes, names = classes_of(model, where), feature_names(model, where)
    if getattr(model, "algorithm", "SAMME") == "SAMME.R":
        raise ModelError(
            f"{where}: algorithm='SAMME.R' adds logarithms of probabilities; accepted is algorithm='SAMME'"
        )
    weights = numbers(np.asarray(model.estimator_weights_), f"{where}.estimator_weights_", None, np.float64)
    total = float(weights.sum())
    if len(weights) < len(members) or not (weights >= 0).all() or not 0 < total < math.inf:
        raise ModelError(
            f"{where}.estimator_weights_: expected {len(members)} weights, found {shown(weights.tolist())}"
        )
    n = len(classes)
    builder = EnsembleBuilder()
    for i, (member, weight) in enumerate(zip(members, weights.tolist())):
        here = f"{where}.estimators_[{i}]"
        ensemble, said = _tree_votes(member, here, classes)
        votes = np.where(np.eye(n)[said] == 1, weight, -1 / (n - 1) * weight)
        every = _checked(np.arange(len(names)), ensemble, here)
        _add(builder, ensemble, votes[:, 1:] if n == 2 else votes, every)
    # Two classes: the difference of both sums, which is twice one of them, and p is its sigmoid.
    scale = Fraction(2 if n == 2 else 1) / (Fraction(total) * (n - 1))
    ensemble = builder.build(
        library="sklearn",
        feature_names=names,
        base=[0] * (1 if n == 2 else n),
        link="sigmoid" if n == 2 else "softmax",
        classes=classes,
        scale=scale,
        further_rounding=(len(weights) + 4) * U * 2,  # the sum of the weights, and the division by it
    )
    return ImportedModel(ensemble, where, native(model, classes), probability=responses(model)["probability"])


def _tree_votes(member: Any, where: str, labels: tuple[Any, ...]) -> tuple[TreeEnsemble, npt.NDArray[np.int64]]:
    """A single tree, and per node the class that its `predict` says there: the first of its largest fractions."""
    inner = _without_encoder(_member(member, where), member, where).ensemble
    member = _innermost(member)
    if type(member).__name__ not in SINGLE_TREES:
        raise ModelError(
            f"{where}: a {type(member).__name__} votes as a whole, which is no sum of trees; accepted are single trees; "
            f"{ANY_MODEL}"
        )
    _check_labels(inner, labels, where)
    return inner, np.asarray(member.tree_.value)[:, 0, :].argmax(axis=1)[inner.node_id]


def _check_labels(ensemble: TreeEnsemble, labels: tuple[Any, ...], where: str) -> None:
    """Votes count by their label."""
    if ensemble.classes != labels:
        raise ModelError(f"{where}.classes_: expected {shown(list(labels))}, found {shown(list(ensemble.classes))}")


# ---------------------------------------------------------------------------------------------------------------------
# One against the rest


def read_one_vs_rest(model: Any, where: str) -> ImportedModel:
    """Two classes: one model, with class 1 where its decision function is above 0, or its probability above 1/2."""
    members = fitted(model, "estimators_", where)
    if model.multilabel_:
        raise ModelError(f"{where}: predicts several labels at once; accepted is a model of one target")
    classes = classes_of(model, where)
    if len(members) != 1:
        raise ModelError(
            f"{where}: divides the probabilities of {len(members)} models by their sum, which is no sum of trees; train "
            f"one model on all classes; {ANY_MODEL}"
        )
    here = f"{where}.estimators_[0]"
    inner = _relabelled(_probabilities(members[0], here), classes)
    on_margin = hasattr(members[0], "decision_function")
    ensemble = replace(
        inner.ensemble,
        tie="negative",
        decides_on="margin" if on_margin or inner.ensemble.link == "mean" else "probability",
        # p1 > 1/2 is asked, not p1 > p0: the two need not add up to 1.
        further_rounding=inner.ensemble.further_rounding + (4 * U if inner.ensemble.link == "mean" else 0),
    )
    return replace(inner, ensemble=ensemble, source=where)


# ---------------------------------------------------------------------------------------------------------------------
# Members


def _member(estimator: Any, where: str) -> ImportedModel:
    if isinstance(estimator, (str, Path)):
        raise ModelError(f"{where}: expected a fitted model, found {shown(estimator)}")
    try:
        return load_model(estimator)
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from error


def _probabilities(estimator: Any, where: str) -> ImportedModel:
    """A member that is asked for its probabilities: a threshold of its own does not count."""
    inner, kind = _member(estimator, where), _kind(estimator)
    if kind in OWN_THRESHOLD:
        raise ModelError(f"{where}: the threshold of a {kind} does not count here; give its classifier itself")
    if kind in CALIBRATED:
        raise ModelError(f"{where}: the probabilities of {kind} are no mean of trees; {ANY_MODEL}")
    if not inner.ensemble.predicts_classes:
        raise ModelError(f"{where}: predicts a number, not a class")
    if inner.pulled_back is not None:
        raise ModelError(f"{where}: its probabilities are no mean of trees; {ANY_MODEL}")
    return replace(inner, ensemble=replace(inner.ensemble, decision=None))  # CatBoost's own threshold


def _innermost(model: Any) -> Any:
    """The model inside searches, pipelines and frozen estimators."""
    for _ in range(MAX_WRAPPERS):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif type(model).__name__ == "Pipeline":
            model = model.steps[-1][1]
        elif type(model).__name__ == "FrozenEstimator":
            model = model.estimator
        else:
            return model
    raise ModelError(f"{type(model).__name__}: has more than {MAX_WRAPPERS} models inside each other")


def _kind(model: Any) -> str:
    return type(_innermost(model)).__name__


def _forest(estimator: Any, where: str, n_members: int) -> TreeEnsemble:
    """A member whose probabilities are a mean of trees."""
    inner = _without_encoder(_probabilities(estimator, where), estimator, where).ensemble
    if inner.link != "mean":
        raise ModelError(
            f"{where}: the probabilities of {_kind(estimator)} are no mean of trees, so the mean of {n_members} models "
            f"is none either; accepted are trees, forests and means of these; {ANY_MODEL}"
        )
    if any(inner.base):
        raise ModelError(f"{where}: has a decision threshold of its own, which does not count here")
    return inner


def _only(
    model: Any, estimator: Any, features: npt.NDArray[np.int64], names: Sequence[str], where: str, source: str
) -> ImportedModel:
    """The mean over one member: the first of its largest probabilities decides, whatever its own `predict` does."""
    classes = classes_of(model, source)
    inner = _relabelled(_probabilities(estimator, where), classes)
    old = inner.ensemble
    by_name = list(names) == list(old.feature_names) and np.array_equal(features, np.arange(len(names)))
    if not by_name:
        inner = replace(_without_encoder(inner, estimator, where), monotone={})
        _checked(features, old, where)
        old = replace(
            old,
            feature_names=tuple(names),
            feature=np.where(old.feature < 0, -1, features[np.maximum(old.feature, 0)]).astype(np.int32),
            categories={int(features[f]): values for f, values in old.categories.items()},
            known_codes={int(features[f]): codes for f, codes in old.known_codes.items()},
        )
    ensemble = replace(
        old,
        tie="negative",
        decides_on="margin" if old.link == "mean" else "probability",
        further_rounding=old.further_rounding + 4 * U,  # a weight, and the division by it
    )
    # A table of categories is the member's own to write.
    if _encodes(inner, estimator):
        return replace(inner, ensemble=ensemble, source=source)
    asked = {"margin": None, "raw": None} | responses(model, ensemble.categories)
    return replace(inner, ensemble=ensemble, source=source, native=native(model, classes, ensemble.categories), **asked)


def _relabelled(inner: ImportedModel, classes: tuple[Any, ...]) -> ImportedModel:
    """With the labels of the whole: members are fitted on their numbers."""
    if len(inner.ensemble.classes) != len(classes):
        raise ModelError(f"{inner.source}: has {len(inner.ensemble.classes)} classes, expected {len(classes)}")
    return replace(inner, ensemble=replace(inner.ensemble, classes=classes))


def _encodes(inner: ImportedModel, estimator: Any) -> bool:
    """Whether a member is a pipeline that takes categories; one that takes numbers is a model of the same columns."""
    while hasattr(estimator, "best_estimator_"):
        estimator = estimator.best_estimator_
    return type(estimator).__name__ == "Pipeline" and bool(inner.ensemble.categories)


def _without_encoder(inner: ImportedModel, estimator: Any, where: str) -> ImportedModel:
    if _encodes(inner, estimator):
        raise ModelError(f"{where}: encodes columns by itself; put the encoder before the whole, in one Pipeline")
    return inner


def _is_constant(member: Any) -> bool:
    """A forest fitted on a sample that has only one of the classes: it is sure of that class everywhere.

    Where members take weights, a sample is a matter of weights and has all classes; in a pipeline they do not.
    """
    return _kind(member) in FORESTS and np.size(getattr(member, "classes_", ())) == 1


def _constant(member: Any, n_features: int) -> TreeEnsemble:
    n_trees = len(getattr(_innermost(member), "estimators_", (member,)))
    builder = EnsembleBuilder()
    for _ in range(n_trees):
        builder.add_tree(feature=[-1], test=[Test.LEAF], threshold=[0.0], left=[-1], right=[-1], value=[1.0])
    names = [f"x{i}" for i in range(n_features)]
    return builder.build(library="sklearn", feature_names=names, base=[0], link="mean")


def _columns(model: Any, i: int, n_features: int, where: str) -> npt.NDArray[np.int64]:
    """The columns that a bagged member is given, in its order."""
    here = f"{where}.estimators_features_[{i}]"
    columns = numbers(np.asarray(model.estimators_features_[i]), here, None, np.int64)
    within(columns, here, 0, n_features - 1)
    return columns


def _checked(features: npt.NDArray[np.int64], ensemble: TreeEnsemble, where: str) -> npt.NDArray[np.int64]:
    if len(features) != ensemble.n_features:
        raise ModelError(f"{where}: takes {ensemble.n_features} columns, but is given {len(features)}")
    return features


def _weights(model: Any, n: int, where: str) -> list[Fraction]:
    given = model._weights_not_none
    if given is None:
        return [Fraction(1)] * n
    weights = numbers(np.asarray(given), f"{where}.weights", n, np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ModelError(
            f"{where}.weights: expected numbers that are not negative and not all 0, found {shown(weights.tolist())}"
        )
    return [Fraction(w) for w in weights.tolist()]


Reader = Callable[[Any, str], ImportedModel]
WRAPPERS: dict[str, Reader] = {
    "GridSearchCV": read_search,
    "RandomizedSearchCV": read_search,
    "HalvingGridSearchCV": read_search,
    "HalvingRandomSearchCV": read_search,
    "BaggingClassifier": read_bagging,
    "VotingClassifier": read_voting,
    "AdaBoostClassifier": read_adaboost,
    "OneVsRestClassifier": read_one_vs_rest,
    "BaggingRegressor": read_mean_regressor,
    "VotingRegressor": read_mean_regressor,
}
IMBALANCED_WRAPPERS: dict[str, Reader] = {
    "BalancedBaggingClassifier": read_bagging,
    "EasyEnsembleClassifier": read_bagging,
    "RUSBoostClassifier": read_adaboost,
}
