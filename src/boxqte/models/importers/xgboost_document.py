"""From XGBoost's parsed model document (the same in JSON and UBJSON) to a validated model; its trees: xgboost_trees.

Fields that only XGBoost's own loader reads (the order of the category encoder) are validated too, because a document
that passes here may be given to it, and it does not check them.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.category_names import StoredNames
from boxqte.models.ensemble import Decides, EnsembleBuilder, Link, TreeEnsemble
from boxqte.models.importers.rounds import Trees, rounds_used
from boxqte.models.importers.structure import (
    ANY_MODEL,
    MAX_FEATURES,
    MAX_NODES,
    Direction,
    finite,
    get,
    monotone_columns,
    numbers,
    parsed_json,
    real,
    single_from_text,
    within,
)
from boxqte.models.importers.xgboost_trees import (
    MAX_CLASSES,
    Array,
    Categories,
    Forest,
    count_at,
    integers_at,
    list_at,
    read_forest,
    single,
)

SMALLEST_PROBABILITY = np.float32(1e-6)  # XGBoost keeps base_score this far from 0 and 1 before it takes the logit


@dataclass(frozen=True)
class Objective:
    """What an objective's margin means: its link, base_score as a margin, the class that `predict` chooses, and of two
    classes their probabilities."""

    link: Link
    intercept: Callable[[np.float32], float]
    decides_on: Decides
    decide: Callable[[Array], Array] | None
    """None for an objective that predicts a number."""
    probability: Callable[[Array], Array] = lambda output: np.column_stack([1 - output, output])


@dataclass(frozen=True, eq=False)
class Model:
    """A validated document, cut to the trees that `predict` uses."""

    objective: str
    feature_names: tuple[str, ...]
    forest: Forest
    outputs: tuple[int, ...]
    """The output that each tree that counts feeds; -1: its leaves hold a value for every output."""
    weights: tuple[float, ...]
    rounds: int
    """The boosting rounds that `predict` uses; 0 is all."""
    base: tuple[Fraction, ...]
    categories: Categories
    stored_names: Mapping[int, StoredNames]
    trees_in_file: int | None = None
    """How many trees the document has, if `predict` uses only some of them."""
    monotone: Mapping[str, Direction] = field(default_factory=dict)
    """The constraints that the document declares. XGBoost keeps none of them, but up to 1.7 its scikit-learn models did."""

    def ensemble(self, classes: Any = None) -> TreeEnsemble:
        builder = EnsembleBuilder()
        if self.outputs:
            self.forest.add_to(builder, self.outputs, self.weights)
        n_classes = max(2, len(self.base)) if OBJECTIVES[self.objective].decide else 0
        values = list(range(n_classes)) if classes is None else np.asarray(classes).tolist()
        if len(values) != n_classes:
            raise ModelError(f"classes_: has {len(values)} entries, the model has {n_classes} classes")
        return builder.build(
            library="xgboost",
            feature_names=self.feature_names,
            base=self.base,
            link=OBJECTIVES[self.objective].link,
            classes=values,
            tie="negative",
            sum_dtype="float32",
            decides_on=OBJECTIVES[self.objective].decides_on,
            categories=self.categories,
            stored_names=self.stored_names,
        )


def read_model(document: Any, *, until_best: bool, trees: Trees | None = None) -> Model:
    """Validate a document; with `until_best` the trees after the best iteration are left out, unless `trees` says more."""
    learner = get(document, "learner", dict, "document")
    version = _read_version(document)
    objective = _read_objective(learner, version)
    param = get(learner, "learner_model_param", dict, "learner")
    n_features = count_at(param, "num_feature", "learner.learner_model_param", 1, MAX_FEATURES)
    n_outputs = _read_outputs(param, objective)
    base = _read_base(param, objective, n_outputs)
    forest, where = _read_booster(learner)
    categories, stored = _read_categories(forest, n_features, where)
    nodes, outputs = _read_trees(forest, n_features, n_outputs, categories, where)
    weights = _read_weights(learner, len(outputs), vector=-1 in outputs)
    ends = _read_rounds(forest, len(outputs), 1 if -1 in outputs else n_outputs, where)
    best = _read_best(learner, len(ends) - 1)
    rounds = rounds_used(trees, ends.tolist(), best or None, best if until_best else 0, "")
    used = int(ends[rounds]) if rounds else len(outputs)
    names = _read_feature_names(learner, n_features)
    held = len(outputs) if used < len(outputs) else None
    declared = _read_wrapper(learner, names)
    return Model(
        objective, names, nodes, outputs[:used], weights[:used], rounds, base, categories, stored, held, declared
    )


def read_constraints(given: Any, names: Sequence[str], where: str) -> dict[str, Direction]:
    """Monotone constraints as XGBoost takes them: "(1,0,-1)", a list of these numbers, or numbers by column name."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise ModelError(f"{where}: '{name}' is no column of the model")
        given = [given.get(name, 0) for name in names]
    elif isinstance(given, str):
        inner = given.strip().removeprefix("(").removesuffix(")").strip().removesuffix(",")
        given = [part.strip() for part in inner.split(",")] if inner else []
    if not isinstance(given, (list, tuple)):
        raise ModelError(f"{where}: expected -1, 0 or 1 for each column, found {shown(given)}")
    return monotone_columns(given, names, where)


def _read_wrapper(learner: Any, names: Sequence[str]) -> dict[str, Direction]:
    """What XGBClassifier and the like of XGBoost up to 1.7 have saved of their arguments."""
    attributes = get(learner, "attributes", dict, "learner") if "attributes" in learner else {}
    if "scikit_learn" not in attributes:
        return {}
    where = "learner.attributes.scikit_learn"
    kept = parsed_json(get(attributes, "scikit_learn", str, "learner.attributes").encode(), where, constants=True)
    if not isinstance(kept, Mapping):
        raise ModelError(f"{where}: expected an object, found {shown(kept)}")
    return read_constraints(kept.get("monotone_constraints"), names, f"{where}.monotone_constraints")


# --- the learner ---


def _read_version(document: Any) -> int:
    version = integers_at(document, "version", "document", 3)
    within(version, "document.version", 0, 10_000)
    return int(version[0])


def _read_objective(learner: Any, version: int) -> str:
    where = "learner.objective"
    name = get(get(learner, "objective", dict, "learner"), "name", str, where)
    if name == "binary:hinge":
        raise ModelError(f"{where}.name: 'binary:hinge' predicts no probability, so it has no confidence; {ANY_MODEL}")
    if name not in OBJECTIVES:
        raise ModelError(f"{where}.name: {shown(name)} is not read; accepted are {', '.join(OBJECTIVES)}")
    if name == "binary:logitraw" and version < 2:
        raise ModelError(f"{where}.name: XGBoost before 2.0 read base_score differently here; save it with a later one")
    return str(name)


def _read_outputs(param: Any, objective: str) -> int:
    where = "learner.learner_model_param"
    n_targets = count_at(param, "num_target", where, 0, MAX_FEATURES, default=1)
    if n_targets > 1:
        raise ModelError(f"{where}.num_target: {n_targets} labels at once; accepted is one; {ANY_MODEL}")
    if OBJECTIVES[objective].link == "softmax":
        return count_at(param, "num_class", where, 2, MAX_CLASSES)
    count_at(param, "num_class", where, 0, 1, default=0)
    return 1


def _read_base(param: Any, objective: str, n_outputs: int) -> tuple[Fraction, ...]:
    """The margin before any tree: base_score is a number or, from XGBoost 3.1 on, a list of numbers, as text."""
    where = "learner.learner_model_param.base_score"
    text = str(get(param, "base_score", (str, float), "learner.learner_model_param"))
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        inner = inner[1:-1]
    parts = inner.split(",")
    if len(parts) not in (1, n_outputs):
        raise ModelError(f"{where}: {shown(text)} has {len(parts)} values for {n_outputs} outputs")
    for part in parts:
        real(part, where)
    scores = single([single_from_text(part) for part in parts], where, None)
    finite(scores, where)
    if OBJECTIVES[objective].intercept is logit and not 0 <= scores[0] <= 1:
        raise ModelError(f"{where}: {shown(text)} is outside 0..1")
    if OBJECTIVES[objective].intercept is logarithm and not scores[0] > 0:
        raise ModelError(f"{where}: {shown(text)} is not positive")
    margins = [Fraction(OBJECTIVES[objective].intercept(np.float32(score))) for score in scores]
    return tuple(margins * n_outputs if len(margins) == 1 else margins)


def logit(probability: np.float32) -> float:
    """XGBoost's intercept for base_score, bit for bit: float32 arithmetic and the C library's float32 logarithm.

    Rounding a float64 logarithm instead gives another float32 for one base_score in two hundred.
    """
    one = np.float32(1)
    inside = min(max(probability, SMALLEST_PROBABILITY), one - SMALLEST_PROBABILITY)
    return -_logf(float(one / inside - one))


def logarithm(value: np.float32) -> float:
    """XGBoost's intercept where the value is an exponential, by the C library's float32 logarithm."""
    return _logf(float(value))


def _logf(value: float) -> float:
    try:
        logf = ctypes.CDLL("ucrtbase" if os.name == "nt" else None).logf
    except (OSError, AttributeError):
        return float(np.float32(math.log(value)))
    logf.argtypes, logf.restype = [ctypes.c_float], ctypes.c_float
    return float(logf(value))


def _both(margin: Array) -> Array:
    with np.errstate(over="ignore"):
        p = 1 / (1 + np.exp(-margin.astype(np.float64)))
    return np.column_stack([1 - p, p])


OBJECTIVES = {
    "binary:logistic": Objective("sigmoid", logit, "probability", lambda output: output > 0.5),
    "binary:logitraw": Objective("sigmoid", float, "margin", lambda output: output > 0, _both),
    "multi:softprob": Objective("softmax", float, "probability", lambda output: output.argmax(axis=1)),
    "multi:softmax": Objective("softmax", float, "margin", lambda output: output),
    **{
        name: Objective("identity", float, "margin", None)
        for name in (
            "reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror", "reg:quantileerror",
            "reg:linear", "rank:pairwise", "rank:ndcg", "rank:map",
        )
    },
    **{
        name: Objective("exp", logarithm, "probability", None)
        for name in ("count:poisson", "reg:gamma", "reg:tweedie")
    },
    "reg:logistic": Objective("sigmoid", logit, "probability", None),
}  # fmt: skip


def _read_feature_names(learner: Any, n_features: int) -> tuple[str, ...]:
    for key in ("feature_names", "feature_types"):
        texts = get(learner, key, list, "learner") if key in learner else []
        if len(texts) not in (0, n_features):
            raise ModelError(f"learner.{key}: has {len(texts)} entries for {n_features} features")
        for at, text in enumerate(texts):
            if not isinstance(text, str):
                raise ModelError(f"learner.{key}[{at}]: expected text, found {shown(text)}")
    names: Sequence[str] = learner.get("feature_names") or [f"f{i}" for i in range(n_features)]
    if len(set(names)) != n_features:
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise ModelError(f"learner.feature_names: {shown(twice)} occurs twice")
    return tuple(names)


def _read_best(learner: Any, n_rounds: int) -> int:
    attributes = get(learner, "attributes", dict, "learner") if "attributes" in learner else {}
    if "best_iteration" not in attributes:
        return 0
    return count_at(attributes, "best_iteration", "learner.attributes", 0, n_rounds - 1) + 1


# --- the booster ---


def _read_booster(learner: Any) -> tuple[Any, str]:
    """The forest, and where in the document it is."""
    where = "learner.gradient_booster"
    booster = get(learner, "gradient_booster", dict, "learner")
    name = get(booster, "name", str, where)
    if name == "dart":
        booster, where = get(booster, "gbtree", dict, where), f"{where}.gbtree"
    elif name != "gbtree":
        raise ModelError(f"{where}.name: {shown(name)} has no trees; accepted are gbtree and dart; {ANY_MODEL}")
    return get(booster, "model", dict, where), f"{where}.model"


def _read_weights(learner: Any, n_trees: int, vector: bool) -> tuple[float, ...]:
    """What each tree's leaves are multiplied by: in dart the share that dropping trees has left of it, else one."""
    booster, where = learner["gradient_booster"], "learner.gradient_booster"
    if booster["name"] == "gbtree":
        return (1.0,) * n_trees
    if vector:
        raise ModelError(f"{where}.name: XGBoost does not define 'dart' with vector leaves")
    weights = single(list_at(booster, "weight_drop", where), f"{where}.weight_drop", n_trees)
    finite(weights, f"{where}.weight_drop")
    return tuple(weights.tolist())


def _read_rounds(forest: Any, n_trees: int, trees_an_output: int, where: str) -> Array:
    """After how many trees each boosting round ends, from 0 on."""
    param = get(forest, "gbtree_model_param", dict, where)
    parallel = count_at(param, "num_parallel_tree", f"{where}.gbtree_model_param", 0, MAX_NODES, default=1)
    if "iteration_indptr" not in forest:
        return np.arange(0, n_trees + 1, max(1, parallel) * trees_an_output)
    ends = integers_at(forest, "iteration_indptr", where, None)
    if len(ends) == 0 or ends[0] != 0 or ends[-1] != n_trees or (np.diff(ends) < 0).any():
        raise ModelError(f"{where}.iteration_indptr: {shown(ends.tolist())} does not rise from 0 to {n_trees}")
    return ends


def _read_categories(
    forest: Any, n_features: int, where: str
) -> tuple[dict[int, tuple[Any, ...]], dict[int, StoredNames]]:
    """The user's category values in code order, from the encoder that XGBoost stores for data frames since 3.1.

    Where names go beyond ASCII, what the file has of them.
    """
    if "cats" not in forest:
        return {}, {}
    encoder, where = get(forest, "cats", dict, where), f"{where}.cats"
    columns = get(encoder, "enc", list, where)
    if len(columns) not in (0, n_features):
        raise ModelError(f"{where}.enc: has {len(columns)} entries for {n_features} features")
    sizes: list[int] = []
    categories, stored = {}, {}
    for feature, column in enumerate(columns):
        values = _read_category_column(column, f"{where}.enc[{feature}]")
        sizes.append(len(values))
        if isinstance(values, StoredNames):
            stored[feature] = values
        elif values:
            categories[feature] = values
    ends = integers_at(encoder, "feature_segments", where, None)
    if ends.tolist() not in ([0, *np.cumsum(sizes).tolist()], [] if sum(sizes) == 0 else None):
        raise ModelError(f"{where}.feature_segments: {shown(ends.tolist())} are not the sizes in enc")
    order = integers_at(encoder, "sorted_idx", where, None)
    if len(order) not in (0, sum(sizes)):
        raise ModelError(f"{where}.sorted_idx: has {len(order)} entries for {sum(sizes)} categories")
    if len(order) and ((order < 0) | (order >= np.repeat(sizes, sizes))).any():
        raise ModelError(f"{where}.sorted_idx: {shown(order.tolist())} leads outside its feature's categories")
    return categories, stored


def _read_category_column(column: Any, where: str) -> tuple[Any, ...] | StoredNames:
    """The values of a feature's categories, or what the file has of them."""
    values = numbers(list_at(column, "values", where), f"{where}.values", None, np.int64)
    if "offsets" not in column:
        count_at(column, "type", where, 0, 100)
        return tuple(values.tolist())
    within(values, f"{where}.values", -128, 255)
    offsets = integers_at(column, "offsets", where, None)
    if len(offsets) == 0:
        return ()
    if offsets[0] != 0 or offsets[-1] > len(values) or (np.diff(offsets) < 0).any():
        raise ModelError(f"{where}.offsets: {shown(offsets.tolist())} does not rise from 0 to {len(values)}")
    if ((values < 0) | (values > 127)).any():
        return StoredNames(tuple(offsets.tolist()), bytes(values.astype(np.uint8)))
    text = bytes(values.astype(np.uint8)).decode("ascii")
    return tuple(text[begin:end] for begin, end in pairwise(offsets.tolist()))


# --- the trees ---


def _read_trees(
    forest: Any, n_features: int, n_outputs: int, categories: Categories, where: str
) -> tuple[Forest, tuple[int, ...]]:
    """All trees, and the output each of them feeds (-1: every output)."""
    documents = get(forest, "trees", list, where)
    param = get(forest, "gbtree_model_param", dict, where)
    n_trees = count_at(param, "num_trees", f"{where}.gbtree_model_param", 0, MAX_NODES)
    if n_trees != len(documents):
        raise ModelError(f"{where}.gbtree_model_param.num_trees: is {n_trees}, but there are {len(documents)} trees")
    info = integers_at(forest, "tree_info", where, n_trees)
    within(info, f"{where}.tree_info", 0, n_outputs - 1)
    if not documents:
        raise ModelError("the model has no trees")
    trees = read_forest(documents, n_features, n_outputs, categories, f"{where}.trees")
    return trees, (-1,) * n_trees if trees.has_vector_leaves else tuple(info.tolist())
