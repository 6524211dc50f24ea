"""scikit-learn: trees, forests, both kinds of gradient boosting, wrappers of these (sklearn_wrappers.py), and pipelines that
end in a model of any library; imbalanced-learn's estimators, which are scikit-learn's with resampling before `fit`.

Trees and forests test float32(x) <= t with a float64 t, histogram gradient boosting x <= t in float64. `predict` of a
forest compares the mean class fractions of its trees; both kinds of boosting add leaf values to a constant.
Files are pickles (joblib or not), read only with `allow_pickle`, and skops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.encoders import from_transformer
from boxqte.models.ensemble import EnsembleBuilder, FloatArray, Link, Test, TreeEnsemble
from boxqte.models.importers import ImportedModel, load_model
from boxqte.models.importers.rounds import Trees
from boxqte.models.importers.sklearn_decisions import read_calibrated, read_frozen, read_threshold
from boxqte.models.importers.sklearn_estimator import classes_of, feature_names, fitted, native, responses, values
from boxqte.models.importers.sklearn_pipeline import read_pipeline
from boxqte.models.importers.sklearn_stages import cut_stages
from boxqte.models.importers.sklearn_wrappers import IMBALANCED_WRAPPERS, NO_SUM_OF_TREES, WRAPPERS
from boxqte.models.importers.structure import ANY_MODEL, check_tree, finite, integer, numbers, real, within
from boxqte.models.importers.unpickle import looks_like_pickle, looks_like_skops, one_line, read_pickle, read_skops

OTHER_LIBRARIES = ("xgboost", "lightgbm", "catboost")  # whose classifiers may end a pipeline or lie in a pickle
LARGEST_F32 = float(np.finfo(np.float32).max)
LARGEST_F64 = float(np.finfo(np.float64).max)
HIST_LINKS: dict[str, Link] = {
    "HalfSquaredError": "identity", "AbsoluteError": "identity", "PinballLoss": "identity", "HalfPoissonLoss": "exp",
    "HalfGammaLoss": "exp",
}  # fmt: skip


def recognises(source: object) -> bool:
    """Anything that is a scikit-learn estimator, a pickle or a skops file; `load` says which of them it reads."""
    if isinstance(source, Path):
        return looks_like_pickle(source) or looks_like_skops(source)
    return any(cls.__module__.partition(".")[0] == "sklearn" for cls in type(source).__mro__)


def load(source: Any, *, allow_pickle: bool, trees: Trees | None = None) -> ImportedModel:
    """Read a live estimator or pipeline, or a file that holds one."""
    if not isinstance(source, Path):
        return cut_stages(source, _import(source), trees, native)
    read = read_skops if looks_like_skops(source) else read_pickle
    model = read(source, allow_pickle=allow_pickle)
    try:
        if type(model).__module__.partition(".")[0] in OTHER_LIBRARIES:
            return replace(load_model(model, trees=trees), source=str(source))
        return replace(cut_stages(model, _import(model), trees, native), source=str(source))
    except ModelError as error:
        raise ModelError(f"{source}: {error}") from error


def _import(model: Any) -> ImportedModel:
    cls = type(model)
    try:
        if cls.__module__.partition(".")[0] in OTHER_LIBRARIES:
            return load_model(model)
        readers = {"sklearn": READERS, "imblearn": IMBALANCED}.get(cls.__module__.partition(".")[0], {})
        if cls.__name__ in readers:
            return readers[cls.__name__](model, cls.__name__)
    except ModelError:
        raise
    except Exception as error:
        # An object from a pickle can have any attribute missing or of any type; what its library makes of that is
        # beyond listing.
        raise ModelError(f"{cls.__name__}: malformed ({one_line(error)})") from error
    name = f"{cls.__module__}.{cls.__qualname__}"
    if cls.__name__ in NO_SUM_OF_TREES and cls.__module__.startswith("sklearn."):
        raise ModelError(f"{name} is not read: {NO_SUM_OF_TREES[cls.__name__]}; {ANY_MODEL}")
    accepted = ", ".join([*READERS, *IMBALANCED])
    raise ModelError(f"{name} is not read; accepted are exactly {accepted}; {ANY_MODEL}")


# ---------------------------------------------------------------------------------------------------------------------
# Trees and forests


def _read_forest(model: Any, where: str) -> ImportedModel:
    classes, names = classes_of(model, where), feature_names(model, where)
    binary = len(classes) == 2
    builder, error = EnsembleBuilder(), 0.0
    for tree, here in _trees_of(model, where):
        nodes, value, leaf = _nodes(tree, len(names), len(classes), here)
        _check_fractions(value, leaf, here)
        second = fraction_of_second(value) if binary else value
        if binary:  # probabilities are made of the fractions themselves
            apart = np.abs(np.stack([value[leaf, 1] - second[leaf], 1.0 - value[leaf, 0] - second[leaf]]))
            error = max(error, 2 * float(apart.max()))
        builder.add_tree(
            **_tests(nodes, leaf, here),
            value=second,
            output=0 if binary else -1,
        )
    ensemble = builder.build(
        library="sklearn",
        feature_names=names,
        base=[0] * (1 if binary else len(classes)),
        link="mean",
        classes=classes,
    )
    ensemble = replace(ensemble, leaf_error=error)
    return ImportedModel(ensemble, where, native(model, classes), **responses(model))


def _read_forest_regressor(model: Any, where: str) -> ImportedModel:
    """The mean of the trees' values."""
    names = feature_names(model, where)
    if getattr(model, "n_outputs_", 1) != 1:
        raise ModelError(f"{where}: predicts several targets at once; accepted is a model of one target")
    trees = _trees_of(model, where)
    builder = EnsembleBuilder()
    for tree, here in trees:
        nodes, value, leaf = _nodes(tree, len(names), 1, here)
        finite(value[:, 0], f"{here}.value", only=leaf)
        builder.add_tree(**_tests(nodes, leaf, here), value=value)
    ensemble = builder.build(
        library="sklearn", feature_names=names, base=[0], link="identity", classes=(), scale=Fraction(1, len(trees))
    )
    return ImportedModel(ensemble, where, values=values(model), objective=str(model.criterion))


def _trees_of(model: Any, where: str) -> list[tuple[Any, str]]:
    """The trees of a forest, or the one of a single tree, each with its name for errors."""
    if hasattr(model, "tree_"):
        return [(model.tree_, f"{where}.tree_")]
    members = fitted(model, "estimators_", where)
    return [(member.tree_, f"{where}.estimators_[{t}].tree_") for t, member in enumerate(members)]


def _check_fractions(value: FloatArray, leaf: npt.NDArray[np.bool_], where: str) -> None:
    """Since scikit-learn 1.3 leaves hold class fractions (before: counts, divided by their sum in predict_proba)."""
    for c in range(value.shape[1]):
        finite(value[:, c], f"{where}.value[:, 0, {c}]", only=leaf)
    off = leaf & ((np.abs(value.sum(axis=1) - 1.0) > 1e-6) | (value < 0.0).any(axis=1))
    if off.any():
        at = int(np.flatnonzero(off)[0])
        raise ModelError(f"{where}.value[{at}]: expected class fractions with sum 1, found {shown(value[at].tolist())}")


def fraction_of_second(value: FloatArray) -> FloatArray:
    """The fraction of the second class such that its excess over 1/2 is half the difference that `predict` looks at.

    The two fractions are divided by a separately rounded sum of weights and need not add up to 1. `predict` compares
    them with each other, not one with 1/2, so p1 alone could be on the wrong side by more than the rounding of a sum.
    Where they do add up, this is p1 unchanged.
    """
    second = value[:, 1].copy()
    for at in np.flatnonzero(np.isfinite(value).all(axis=1) & (value[:, 0] + second != 1.0)):
        first = Fraction(float(value[at, 0]))
        second[at] = float(Fraction(1, 2) + (Fraction(float(second[at])) - first) / 2)
    return second


def _nodes(
    tree: Any, n_features: int, width: int, where: str
) -> tuple[npt.NDArray[Any], FloatArray, npt.NDArray[np.bool_]]:
    """The checked node and value arrays of a `sklearn.tree._tree.Tree`, and which nodes are leaves."""
    if type(tree).__name__ != "Tree" or not type(tree).__module__.startswith("sklearn."):
        raise ModelError(f"{where}: expected sklearn.tree._tree.Tree, found {type(tree).__qualname__}")
    count = int(tree.node_count)
    if count < 1:
        raise ModelError(f"{where}: has no nodes")
    state = tree.__getstate__()
    nodes, value = state["nodes"], state["values"]
    if value.shape != (count, 1, width):
        raise ModelError(f"{where}.value: has shape {value.shape}, expected {(count, 1, width)}")
    leaf = nodes["left_child"] == -1
    check_tree(nodes["left_child"], nodes["right_child"], leaf, where, ("children_left", "children_right"))
    within(nodes["feature"], f"{where}.feature", 0, n_features - 1, only=~leaf)
    return nodes, value[:, 0, :].copy(), leaf


def _tests(nodes: npt.NDArray[Any], leaf: npt.NDArray[np.bool_], where: str) -> dict[str, Any]:
    # Infinity means 'any value that is not missing', and the library refuses infinite inputs.
    threshold = np.where(nodes["threshold"] == np.inf, LARGEST_F32, nodes["threshold"])
    finite(threshold, f"{where}.threshold", only=~leaf)
    return {
        "feature": nodes["feature"],
        "test": np.where(leaf, Test.LEAF, Test.AT_MOST_F32),
        "threshold": threshold,
        "left": nodes["left_child"],
        "right": nodes["right_child"],
        "default_left": nodes["missing_go_to_left"] != 0,
    }


# ---------------------------------------------------------------------------------------------------------------------
# Gradient boosting


def _read_boosting(model: Any, where: str) -> ImportedModel:
    fitted(model, "estimators_", where)
    classes, names = classes_of(model, where), feature_names(model, where)
    n_outputs = 1 if len(classes) == 2 else len(classes)
    loss = type(model._loss).__name__
    if loss not in ("HalfBinomialLoss", "HalfMultinomialLoss", "ExponentialLoss"):
        raise ModelError(f"{where}._loss: {loss} is not read; accepted are log_loss and exponential")
    ensemble = _stages(model, len(names), n_outputs, where).build(
        library="sklearn",
        feature_names=names,
        base=_initial(model, len(names), n_outputs, where),
        link="sigmoid" if n_outputs == 1 else "softmax",
        classes=classes,
        scale=Fraction(2 if loss == "ExponentialLoss" else 1),  # which has p = sigmoid(2F)
        tie="positive",  # `predict` of this one class asks raw >= 0; all others of the library ask raw > 0
    )
    own = {**responses(model), "margin_unit": ensemble.scale, "leaf_unit": float(model.learning_rate)}
    return ImportedModel(ensemble, where, native(model, classes), **own)


def _read_boosting_regressor(model: Any, where: str) -> ImportedModel:
    fitted(model, "estimators_", where)
    names = feature_names(model, where)
    ensemble = _stages(model, len(names), 1, where).build(
        library="sklearn",
        feature_names=names,
        base=_initial(model, len(names), 1, where),
        link="identity",  # of every loss that the library has
        classes=(),
    )
    rate = float(model.learning_rate)
    return ImportedModel(ensemble, where, values=values(model), objective=str(model.loss), leaf_unit=rate)


def _stages(model: Any, n_features: int, n_outputs: int, where: str) -> EnsembleBuilder:
    """The trees of gradient boosting, stage by stage."""
    members = np.asarray(model.estimators_)
    if members.ndim != 2 or members.shape[1] != n_outputs:
        raise ModelError(f"{where}.estimators_: has shape {members.shape}, expected (any, {n_outputs})")
    rate = real(model.learning_rate, f"{where}.learning_rate")
    builder = EnsembleBuilder()
    for stage, row in enumerate(members):
        for output, member in enumerate(row):
            here = f"{where}.estimators_[{stage}, {output}].tree_"
            nodes, value, leaf = _nodes(member.tree_, n_features, 1, here)
            finite(value[:, 0], f"{here}.value", only=leaf)
            # The library adds the rounded product, so the rounded product is the leaf's value.
            builder.add_tree(**_tests(nodes, leaf, here), value=rate * value, output=output)
    return builder


def _initial(model: Any, n_features: int, n_outputs: int, where: str) -> list[float]:
    """What the trees are added to: constant, or the model is not a sum of its trees."""
    init = fitted(model, "init_", where)
    dummy = type(init).__name__ in ("DummyClassifier", "DummyRegressor") and type(init).__module__.startswith(
        "sklearn."
    )
    if not (isinstance(init, str) and init == "zero") and not (dummy and init.strategy != "stratified"):
        found = init if isinstance(init, str) else type(init).__name__
        raise ModelError(f"{where}.init: {shown(found)} is not read; accepted are None, 'zero' and a DummyClassifier "
                         f"or DummyRegressor whose strategy is not 'stratified'; {ANY_MODEL}")  # fmt: skip
    raw = np.asarray(model._raw_predict_init(np.zeros((1, n_features), np.float32))).reshape(-1)
    return [float(v) for v in _finite_row(raw, n_outputs, f"{where}.init_")]


def _finite_row(row: npt.NDArray[Any], length: int, where: str) -> FloatArray:
    checked: FloatArray = numbers(row, where, length, np.float64)
    finite(checked, where)
    return checked


# ---------------------------------------------------------------------------------------------------------------------
# Histogram gradient boosting


def _read_hist_boosting(model: Any, where: str) -> ImportedModel:
    fitted(model, "_predictors", where)
    classes, names = classes_of(model, where), feature_names(model, where)
    n_outputs = 1 if len(classes) == 2 else len(classes)
    loss = type(model._loss).__name__
    if loss not in ("HalfBinomialLoss", "HalfMultinomialLoss"):
        raise ModelError(f"{where}._loss: {loss} is not read; accepted is log_loss")
    ensemble = _hist_ensemble(
        model, names, n_outputs, where, link="sigmoid" if n_outputs == 1 else "softmax", classes=classes
    )
    answers = responses(model, ensemble.categories)
    return ImportedModel(ensemble, where, native(model, classes, ensemble.categories), **answers)


def _read_hist_boosting_regressor(model: Any, where: str) -> ImportedModel:
    fitted(model, "_predictors", where)
    names = feature_names(model, where)
    loss = type(model._loss).__name__
    if loss not in HIST_LINKS:
        raise ModelError(f"{where}._loss: {loss} is not read; accepted are {', '.join(HIST_LINKS)}")
    ensemble = _hist_ensemble(model, names, 1, where, link=HIST_LINKS[loss], classes=())
    return ImportedModel(ensemble, where, values=values(model, ensemble.categories), objective=str(model.loss))


def _hist_ensemble(
    model: Any, names: list[str], n_outputs: int, where: str, *, link: Link, classes: tuple[Any, ...]
) -> TreeEnsemble:
    integer(model.n_trees_per_iteration_, f"{where}.n_trees_per_iteration_", n_outputs, n_outputs)
    order, categories = column_order(model, len(names), where)
    known = _known_codes(model, order, categories, where)
    builder = EnsembleBuilder()
    for stage, predictors in enumerate(model._predictors):
        if len(predictors) != n_outputs:
            raise ModelError(f"{where}._predictors[{stage}]: has {len(predictors)} trees, expected {n_outputs}")
        for output, predictor in enumerate(predictors):
            _add_predictor(builder, predictor, order, known, output, f"{where}._predictors[{stage}][{output}]")
    baseline = np.asarray(model._baseline_prediction)
    return builder.build(
        library="sklearn",
        feature_names=names,
        base=[float(v) for v in _finite_row(baseline.reshape(-1), n_outputs, f"{where}._baseline_prediction")],
        link=link,
        classes=classes,
        sum_dtype="float32" if baseline.dtype == np.float32 else "float64",
        categories=categories,
        known_codes=known,
    )


def column_order(model: Any, n_features: int, where: str) -> tuple[npt.NDArray[np.int64], dict[int, tuple[Any, ...]]]:
    """The user's column behind each internal one (categorical columns come first inside), and the categories."""
    if not hasattr(model, "_preprocessor"):
        raise ModelError(f"{where}: fitted by a scikit-learn that is too old; accepted is 1.4 or newer")
    if model._preprocessor is None:
        return np.arange(n_features), {}
    reads = model._preprocessor._transformer_to_input_indices
    order = np.array([*reads["encoder"], *reads["numerical"]], np.int64)
    if sorted(order.tolist()) != list(range(n_features)):
        raise ModelError(f"{where}._preprocessor: does not read each of {n_features} columns once")
    encoder, here = model._preprocessor.named_transformers_["encoder"], f"{where}._preprocessor.encoder"
    if encoder.handle_unknown != "use_encoded_value" or not np.isnan(encoder.unknown_value):
        raise ModelError(f"{here}.handle_unknown: expected that unknown categories are missing, "
                         f"found {shown(encoder.handle_unknown)}")  # fmt: skip
    encoded = from_transformer(encoder, where=here)
    categories: dict[int, tuple[Any, ...]] = {}
    for feature, column in zip(order.tolist(), encoded):
        assert column.values is not None
        assert column.codes is not None
        coded = ~np.isnan(column.codes[:, 0])  # where training data had missing values, the encoder has NaN as well
        if column.codes[coded, 0].tolist() != list(range(int(coded.sum()))):
            raise ModelError(f"{here}.categories_: column {feature} has codes {shown(column.codes[:, 0].tolist())}")
        categories[feature] = tuple(value for value, has_code in zip(column.values, coded.tolist()) if has_code)
    return order, categories


def _known_codes(
    model: Any, order: npt.NDArray[np.int64], categories: dict[int, tuple[Any, ...]], where: str
) -> dict[int, frozenset[int]]:
    binning = model._bin_mapper
    categorical = np.asarray(binning.is_categorical_).astype(bool)
    if categorical.shape != order.shape or len(binning.bin_thresholds_) != len(order):
        raise ModelError(f"{where}._bin_mapper: has {categorical.size} columns, expected {len(order)}")
    known = {}
    for column in np.flatnonzero(categorical).tolist():
        here = f"{where}._bin_mapper.bin_thresholds_[{column}]"
        codes = numbers(binning.bin_thresholds_[column], here, None, np.int64)
        within(codes, here, 0, 255)
        feature = int(order[column])
        known[feature] = frozenset(codes.tolist())
        if known[feature] != frozenset(range(len(categories.get(feature, ())))):
            raise ModelError(
                f"{here}: expected one code for each of the column's categories, found {shown(codes.tolist())}"
            )
    return known


def _add_predictor(
    builder: EnsembleBuilder,
    predictor: Any,
    order: npt.NDArray[np.int64],
    known: dict[int, frozenset[int]],
    output: int,
    where: str,
) -> None:
    nodes = predictor.nodes
    if not isinstance(nodes, np.ndarray) or nodes.ndim != 1 or nodes.dtype.names is None:
        raise ModelError(f"{where}.nodes: expected a record array, found {shown(nodes)}")
    leaf = nodes["is_leaf"] != 0
    check_tree(
        nodes["left"].astype(np.int64), nodes["right"].astype(np.int64), leaf, f"{where}.nodes", ("left", "right")
    )
    within(nodes["feature_idx"], f"{where}.nodes.feature_idx", 0, len(order) - 1, only=~leaf)
    finite(nodes["value"], f"{where}.nodes.value", only=leaf)
    by_set = (nodes["is_categorical"] != 0) & ~leaf
    # Infinity means 'any value that is not missing'; no domain holds an infinite value.
    threshold = np.where(by_set | (nodes["num_threshold"] == np.inf), LARGEST_F64, nodes["num_threshold"])
    finite(threshold, f"{where}.nodes.num_threshold", only=~leaf)
    feature = np.where(leaf, 0, order[np.where(leaf, 0, nodes["feature_idx"])])
    bits = np.asarray(predictor.raw_left_cat_bitsets)
    if by_set.any() and (bits.ndim != 2 or bits.shape[1] != 8 or bits.dtype != np.uint32):
        raise ModelError(f"{where}.raw_left_cat_bitsets: expected 8 uint32 a row, found {bits.dtype} {bits.shape}")
    within(nodes["bitset_idx"], f"{where}.nodes.bitset_idx", 0, len(bits) - 1, only=by_set)
    sets = {}
    for node in np.flatnonzero(by_set).tolist():
        if int(feature[node]) not in known:
            raise ModelError(f"{where}.nodes[{node}]: tests categories of column {feature[node]}, which has none")
        members = np.flatnonzero(
            np.unpackbits(bits[nodes["bitset_idx"][node]].astype("<u4").view(np.uint8), bitorder="little")
        )
        # A split of one category against missing values gets no bitset of its own and is read with the tree's first
        # one (scikit-learn 1.9), so a set can hold codes that its column does not have and that no input can be.
        sets[node] = sorted(known[int(feature[node])].intersection(members.tolist()))
    builder.add_tree(
        feature=feature,
        test=np.where(leaf, Test.LEAF, np.where(by_set, Test.IN_SET, Test.AT_MOST_F64)),
        threshold=threshold,
        left=nodes["left"],
        right=nodes["right"],
        default_left=nodes["missing_go_to_left"] != 0,
        value=nodes["value"],
        sets=sets,
        output=output,
    )


READERS: dict[str, Callable[[Any, str], ImportedModel]] = {
    "DecisionTreeClassifier": _read_forest,
    "ExtraTreeClassifier": _read_forest,
    "RandomForestClassifier": _read_forest,
    "ExtraTreesClassifier": _read_forest,
    "GradientBoostingClassifier": _read_boosting,
    "HistGradientBoostingClassifier": _read_hist_boosting,
    "DecisionTreeRegressor": _read_forest_regressor,
    "ExtraTreeRegressor": _read_forest_regressor,
    "RandomForestRegressor": _read_forest_regressor,
    "ExtraTreesRegressor": _read_forest_regressor,
    "GradientBoostingRegressor": _read_boosting_regressor,
    "HistGradientBoostingRegressor": _read_hist_boosting_regressor,
    "Pipeline": read_pipeline,
    "FixedThresholdClassifier": read_threshold,
    "TunedThresholdClassifierCV": read_threshold,
    "CalibratedClassifierCV": read_calibrated,
    "FrozenEstimator": read_frozen,
    **WRAPPERS,
}
IMBALANCED = {"BalancedRandomForestClassifier": _read_forest, "Pipeline": read_pipeline, **IMBALANCED_WRAPPERS}
