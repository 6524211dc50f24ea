"""LightGBM: live Booster and LGBMClassifier, and the text model file, all through one parser of that text.

A live model is written by its own library (`model_to_string`, which keeps the trees up to `best_iteration`, the ones
that `predict` uses, and prints every float64 with 17 digits) and then read like a file.

What the library does and we keep: a numeric split is x <= t in float64; a categorical split is a bitset of codes, and
NaN, negative codes and codes outside the bitset go right; every |x| <= ZERO_BAND is read as 0.0 before any test.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import shown
from boxqte.models.ensemble import ZERO_BAND, EnsembleBuilder, Link, Missing, Test, TreeEnsemble
from boxqte.models.importers import ImportedModel
from boxqte.models.importers.lightgbm_dump import model_text
from boxqte.models.importers.rounds import Trees, rounds_used
from boxqte.models.importers.structure import (
    ANY_MODEL,
    MAX_FEATURES,
    MAX_NODES,
    Direction,
    check_distinct,
    check_tree,
    integer,
    monotone_columns,
    parsed_json,
    read_bytes,
    type_name,
    within,
)

FloatArray = npt.NDArray[np.float64]

DUMP = (b'"num_tree_per_iteration"', b'"tree_info"', b'"max_feature_idx"')
VERSIONS = ("v3", "v4")
ACCEPTED = "accepted are 'binary', 'cross_entropy', 'multiclass', and objectives of regression and ranking"
# What a predicted number makes of summed leaf values
LINKS: dict[str, Link] = {
    "regression": "identity", "regression_l1": "identity", "huber": "identity", "fair": "identity", "quantile": "identity",
    "mape": "identity", "lambdarank": "identity", "rank_xendcg": "identity", "poisson": "exp", "gamma": "exp",
    "tweedie": "exp",
}  # fmt: skip
HEADER = frozenset((
    "version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "objective", "average_output",
    "feature_names", "monotone_constraints", "feature_infos", "tree_sizes",
))  # fmt: skip
SPLIT_FIELDS = ("split_feature", "threshold", "decision_type", "left_child", "right_child", "num_cat")
BITSET_FIELDS = ("cat_boundaries", "cat_threshold")
# A field that we do not know could change what the tree computes, so it is refused rather than skipped.
TREE = frozenset((
    "num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child",
    "leaf_value", "leaf_weight", "leaf_count", "internal_value", "internal_weight", "internal_count", "cat_boundaries",
    "cat_threshold", "is_linear", "leaf_const", "num_features", "leaf_features", "leaf_coeff", "shrinkage",
))  # fmt: skip

CATEGORICAL_BIT, DEFAULT_LEFT_BIT, MISSING_SHIFT = 1, 2, 2
MISSING_RULES = (Missing.AS_ZERO, Missing.WITH_ZERO, Missing.DEFAULT)  # LightGBM's None, Zero, NaN

# int() and float() take more than LightGBM does: underscores, other scripts' digits, "infinity".
LARGEST_F64 = float(np.finfo(np.float64).max)
INTEGER = re.compile(r"-?[0-9]{1,10}")
REAL = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,5})?")


CONSTRAINTS = re.compile(r"(?m)^monotone_constraints=(.*)$")
SIGMOID = re.compile(r"(?m)^objective=binary sigmoid:(\S+)$")


@dataclass(frozen=True)
class Objective:
    """What turns summed leaf values S into classes: p = sigmoid(scale * S), or the softmax of one scale * S a class.

    Or into a number: scale * S itself, or its exponential; then `name` is the objective.
    """

    link: Link
    outputs: int
    scale: Fraction
    name: str = ""

    @property
    def classes(self) -> tuple[int, ...]:
        return () if self.name else tuple(range(max(2, self.outputs)))


def recognises(source: object) -> bool:
    """A live LightGBM model, or a file that opens like its text format or the JSON of dump_model."""
    if isinstance(source, Path):
        head = read_bytes(source, 4096)
        return head.startswith((b"tree\n", b"tree\r")) or (
            head.lstrip().startswith(b"{") and any(key in head for key in DUMP)
        )
    return _is_lightgbm(source, "Booster") or _is_lightgbm(source, "LGBMModel")


def load(source: Any, *, allow_pickle: bool, trees: Trees | None = None) -> ImportedModel:
    """Read a text model file, the JSON of dump_model, a Booster or a fitted LGBMClassifier, LGBMRegressor or LGBMRanker."""
    if isinstance(source, Path):
        name = str(source)
        data = read_bytes(source)
        text = model_text(parsed_json(data, name), name) if data.lstrip().startswith(b"{") else _decoded(data, name)
        ensemble, held = parse(text, name, trees=trees)
        installed = importlib.util.find_spec("lightgbm") is not None
        stored = (lambda: _booster_from(_checked(text, name))) if installed else None
        return _imported(ensemble, name, stored, text, held)
    name = type_name(source)
    booster, labels = source, None
    if not _is_lightgbm(source, "Booster"):
        booster, labels = _fitted(source, name)
    text = booster.model_to_string(num_iteration=None if trees is None else -1)  # None is up to the best iteration
    ensemble, held = parse(text, name, labels, trees, booster.best_iteration if booster.best_iteration > 0 else None)
    _check_sigmoid(booster, text, name)
    all_trees = booster.num_trees()
    held = all_trees if all_trees > ensemble.n_trees else held
    model = _imported(ensemble, name, lambda: booster, text, held)
    if not hasattr(source, "decision_function"):  # since LightGBM 4.7
        return model
    return replace(model, margin=_native(lambda: booster, ensemble, raw_score=True), margin_unit=unit(text))


def unit(text: str) -> Fraction:
    """What a raw score is multiplied by to be the margin."""
    written = SIGMOID.search(text)
    return Fraction(written[1]) if written else Fraction(1)


def _imported(
    ensemble: TreeEnsemble, name: str, booster: Callable[[], Any] | None, text: str, held: int | None
) -> ImportedModel:
    """The model with LightGBM's own predictions."""
    scores = booster and _native(booster, ensemble)
    of_one, scored = float(unit(text)), booster and _native(booster, ensemble, raw_score=True)
    raw = scored and (lambda rows: of_one * scored(rows))
    kept: dict[str, Any] = {"raw": raw, "trees_in_file": held, "monotone": _declared(text, ensemble, name)}
    if not ensemble.predicts_classes:
        objective = text.partition("\nobjective=")[2].partition("\n")[0]
        return ImportedModel(ensemble, name, values=scores, objective=objective, **kept)
    return ImportedModel(ensemble, name, **_asked(scores), **kept)


def _declared(text: str, ensemble: TreeEnsemble, name: str) -> dict[str, Direction]:
    """The monotone constraints that the header declares."""
    written = CONSTRAINTS.search(text.partition("\nTree=")[0])
    if written is None:
        return {}
    where = f"{name}: monotone_constraints"
    return monotone_columns(_integers(written[1], where, None).tolist(), ensemble.feature_names, where)


def parse(
    text: str,
    name: str,
    labels: Sequence[Any] | None = None,
    trees: Trees | None = None,
    best: int | None = None,
) -> tuple[TreeEnsemble, int | None]:
    """The ensemble that a model text describes, and how many trees it has if not all count; `name` opens every error."""
    header, blocks, tail = sections(text, name)
    where = f"{name}: "
    per_round = _integer(header, "num_tree_per_iteration", where, 1, MAX_FEATURES)
    ends = range(0, len(blocks) + 1, per_round)
    used = ends[rounds_used(trees, ends, best, len(ends) - 1, where)]
    held = len(blocks) if trees is not None and used < len(blocks) else None
    blocks = blocks if held is None else blocks[:used]
    columns = _integer(header, "max_feature_idx", where, 0, MAX_FEATURES - 1) + 1
    names = _words(header, "feature_names", where, columns)
    check_distinct(names, f"{where}feature_names:")
    infos = _words(header, "feature_infos", where, columns)
    objective = _objective(header, where, len(blocks))
    classes = objective.classes if labels is None else tuple(labels)
    if len(classes) != len(objective.classes):
        raise ModelError(f"{where}classes_: has {len(classes)} entries, expected {len(objective.classes)}")
    builder = EnsembleBuilder()
    codes: dict[int, set[int]] = {}
    nodes = 0
    for index, fields in enumerate(blocks):
        nodes += _add_tree(builder, fields, f"{where}Tree={index}.", columns, index % objective.outputs, codes)
        if nodes > MAX_NODES:
            raise ModelError(f"{where}num_leaves: the trees have more than {MAX_NODES} nodes")
    ensemble = builder.build(
        library="lightgbm",
        feature_names=names,
        base=[Fraction(0)] * objective.outputs,
        link=objective.link,
        classes=classes,
        scale=objective.scale,
        decides_on="margin" if objective.link == "identity" else "probability",
        categories=_categories(tail, infos, codes, where),
    )
    return ensemble, held


def sections(text: str, name: str) -> tuple[dict[str, str], list[dict[str, str]], list[str]]:
    """The header's fields, each tree's fields, and the lines behind the trees."""
    if "\0" in text or "\r" in text:
        what = "NUL characters" if "\0" in text else "carriage returns (Windows line ends)"
        raise ModelError(f"{name}: has {what}, which LightGBM's own offsets do not allow for; save the model again")
    lines = text.split("\n")
    if lines[0] != "tree":
        raise ModelError(f"{name}: the first line is {shown(lines[0])}, expected 'tree'")
    if "end of trees" not in lines:
        raise ModelError(f"{name}: 'end of trees' is missing; the file is truncated")
    end = lines.index("end of trees")
    starts = [at for at in range(1, end) if lines[at].startswith("Tree=")]
    if not starts:
        raise ModelError(f"{name}: Tree=0: missing; the model has no trees")
    header = _fields(lines[1 : starts[0]], HEADER, f"{name}: ")
    if _field(header, "version", f"{name}: ") not in VERSIONS:
        raise ModelError(f"{name}: version: {shown(header['version'])} is not read; accepted are {', '.join(VERSIONS)}")
    blocks = [lines[start:stop] for start, stop in zip(starts, [*starts[1:], end])]
    for index, block in enumerate(blocks):
        if block[0] != f"Tree={index}":
            raise ModelError(f"{name}: {shown(block[0])} found where 'Tree={index}' was expected")
        if any(not line and after for line, after in pairwise(block)):
            raise ModelError(f"{name}: Tree={index}: has an empty line among its fields, where LightGBM stops reading")
    _check_sizes(header, blocks, name)
    trees = [_fields(block[1:], TREE, f"{name}: Tree={index}.") for index, block in enumerate(blocks)]
    return header, trees, lines[end + 1 :]


def _check_sizes(header: Mapping[str, str], blocks: list[list[str]], name: str) -> None:
    """LightGBM jumps from tree to tree by `tree_sizes` alone: if they are off, it reads another model than we do."""
    if "tree_sizes" not in header:
        return
    sizes = _integers(header["tree_sizes"], f"{name}: tree_sizes", len(blocks))
    for index, block in enumerate(blocks):
        size = sum(len(line.encode()) + 1 for line in block)
        if sizes[index] != size:
            raise ModelError(f"{name}: tree_sizes[{index}]: {sizes[index]}, but Tree={index} takes {size} bytes")


def _fields(lines: list[str], known: frozenset[str], where: str) -> dict[str, str]:
    """`key=value` lines as a mapping; a second line for a key has no defined meaning and is refused."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            continue
        key, _, value = line.partition("=")
        if key not in known:
            raise ModelError(f"{where}{shown(key)} is not a field that this version knows")
        if key in fields:
            raise ModelError(f"{where}{key}: occurs twice")
        fields[key] = value
    return fields


def _objective(header: Mapping[str, str], where: str, n_trees: int) -> Objective:
    """The link, and the scale of the margin: sigmoid's own parameter, and 1/m if m trees are averaged (rf)."""
    if "objective" not in header:
        raise ModelError(f"{where}objective: missing, as for a custom objective; {ACCEPTED}; {ANY_MODEL}")
    kind, *rest = header["objective"].split(" ")
    per_iteration = _integer(header, "num_tree_per_iteration", where, 1, MAX_FEATURES)
    num_class = _integer(header, "num_class", where, 1, MAX_FEATURES)
    scale = Fraction(1)
    link: Link = "sigmoid"
    given = {"binary": ["sigmoid"], "multiclass": ["num_class"], "cross_entropy": []}.get(kind)
    if given is not None and [word.partition(":")[0] for word in rest] != given:
        raise ModelError(
            f"{where}objective: {shown(header['objective'])}, expected {' '.join([kind, *given])}:<number>"
        )
    value = rest[0].partition(":")[2] if rest else ""
    if kind == "binary":
        sigma = float(_reals(value, f"{where}objective.sigmoid", 1)[0])
        if sigma <= 0:
            raise ModelError(f"{where}objective.sigmoid: {sigma} is not positive")
        scale = Fraction(sigma)
    elif kind == "multiclass":
        link = "softmax"
        if _integers(value, f"{where}objective.num_class", 1)[0] != num_class or num_class < 2:
            raise ModelError(f"{where}objective.num_class: {shown(value)}, but num_class is {num_class}")
    elif kind in LINKS:
        link = LINKS[kind]
        if rest:
            why = (
                "squares the sum of the trees (reg_sqrt=True)" if rest == ["sqrt"] else f"is not read, only '{kind}' is"
            )
            raise ModelError(f"{where}objective: {shown(header['objective'])} {why}")
    elif kind == "multiclassova":
        raise ModelError(
            f"{where}objective: 'multiclassova' scores each class by its own sigmoid; {ACCEPTED}; {ANY_MODEL}"
        )
    elif kind != "cross_entropy":
        raise ModelError(f"{where}objective: {shown(kind)} is not read; {ACCEPTED}")
    if link != "softmax" and num_class != 1:
        raise ModelError(f"{where}num_class: {num_class}, but objective '{kind}' has 1")
    if per_iteration != num_class:
        raise ModelError(f"{where}num_tree_per_iteration: {per_iteration}, but num_class is {num_class}")
    if n_trees % per_iteration:
        raise ModelError(f"{where}num_tree_per_iteration: {per_iteration} does not divide the {n_trees} trees")
    if "average_output" in header:
        scale /= n_trees // per_iteration
    return Objective(link, num_class, scale, kind if kind in LINKS else "")


def _add_tree(
    builder: EnsembleBuilder,
    fields: Mapping[str, str],
    where: str,
    columns: int,
    output: int,
    codes: dict[int, set[int]],
) -> int:
    """Add one tree: splits are nodes 0..n-2 as in the file, leaf j is node n-1+j. Returns the number of nodes."""
    if "is_linear" in fields and _integer(fields, "is_linear", where, 0, 1):
        raise ModelError(f"{where}is_linear: 1; a linear tree has no constant leaves and is not supported; {ANY_MODEL}")
    leaves = _integer(fields, "num_leaves", where, 1, MAX_NODES)
    splits = leaves - 1
    value = _reals(_field(fields, "leaf_value", where), f"{where}leaf_value", leaves)
    if splits == 0:
        builder.add_tree(
            feature=[-1], test=[Test.LEAF], threshold=[0.0], left=[-1], right=[-1], value=value, output=output
        )
        return 1
    feature = _integers(_field(fields, "split_feature", where), f"{where}split_feature", splits)
    within(feature, f"{where}split_feature", 0, columns - 1)
    # Infinity parts what is missing from what is not; no domain holds an infinite value.
    threshold = _reals(_field(fields, "threshold", where), f"{where}threshold", splits, infinity=LARGEST_F64)
    decision = _integers(_field(fields, "decision_type", where), f"{where}decision_type", splits)
    within(decision, f"{where}decision_type", 0, 11)  # bits: categorical, default left, missing type 0..2
    categorical = (decision & CATEGORICAL_BIT).astype(bool)
    rules = np.array(MISSING_RULES, np.uint8)[decision >> MISSING_SHIFT]
    children = []
    for key in ("left_child", "right_child"):
        child = _integers(_field(fields, key, where), f"{where}{key}", splits)
        within(child, f"{where}{key}", -leaves, splits - 1)
        child = np.where(child < 0, splits + ~child, child)  # the library writes leaf j as ~j
        children.append(np.concatenate([child, np.full(leaves, -1)]))
    leaf = np.arange(splits + leaves) >= splits
    check_tree(children[0], children[1], leaf, where.rstrip("."), ("left_child", "right_child"))
    sets = _sets(fields, threshold, categorical, where)
    for node, members in sets.items():
        codes.setdefault(int(feature[node]), set()).update(members)
    builder.add_tree(
        feature=_padded(feature, leaves),
        test=_padded(np.where(categorical, Test.IN_SET, Test.AT_MOST_F64), leaves),
        threshold=_padded(np.where(categorical, 0.0, around_zero(threshold)), leaves),
        left=children[0],
        right=children[1],
        default_left=_padded(((decision & DEFAULT_LEFT_BIT) != 0) & ~categorical, leaves).astype(bool),
        missing=_padded(np.where(categorical, Missing.DEFAULT, rules), leaves),
        sets=sets,
        value=np.concatenate([np.zeros(splits), value]),
        node_id=np.concatenate([np.arange(splits), np.arange(leaves)]),
        output=output,
    )
    return splits + leaves


def around_zero(threshold: FloatArray) -> FloatArray:
    """The thresholds with which x <= t decides as LightGBM does, which reads every |x| <= Z = ZERO_BAND as 0.0 first.

    For -Z <= t < 0 that is x < -Z, for 0 <= t < Z it is x <= Z; elsewhere nothing changes. The first kind is common:
    LightGBM cuts just below zero at -Z itself, and a plain x <= t would send x = -Z the wrong way.
    """
    below = (threshold >= -ZERO_BAND) & (threshold < 0)
    above = (threshold >= 0) & (threshold < ZERO_BAND)
    return np.where(below, np.nextafter(-ZERO_BAND, -np.inf), np.where(above, ZERO_BAND, threshold))


def _sets(
    fields: Mapping[str, str], threshold: FloatArray, categorical: npt.NDArray[np.bool_], where: str
) -> dict[int, list[int]]:
    """Per categorical split the codes it sends left: its threshold is an index into the tree's bitsets."""
    nodes = np.flatnonzero(categorical)
    count = _integer(fields, "num_cat", where, 0, len(categorical))
    if count != len(nodes):
        raise ModelError(f"{where}num_cat: {count}, but decision_type marks {len(nodes)} categorical splits")
    if count == 0:
        return {}
    bounds = _integers(_field(fields, "cat_boundaries", where), f"{where}cat_boundaries", count + 1)
    words = _integers(_field(fields, "cat_threshold", where), f"{where}cat_threshold", None)
    within(words, f"{where}cat_threshold", 0, 2**32 - 1)
    if bounds[0] != 0 or bounds[-1] != len(words) or (np.diff(bounds) < 0).any():
        raise ModelError(f"{where}cat_boundaries: do not rise from 0 to the {len(words)} entries of cat_threshold")
    which = threshold[nodes]
    # Each split owns one bitset; sharing them would let a small file stand for an enormous model.
    if not np.array_equal(np.sort(which), np.arange(count)):
        raise ModelError(f"{where}threshold: categorical splits do not name each of the {count} bitsets once")
    sets = {}
    for node, index in zip(nodes.tolist(), which.astype(np.int64).tolist()):
        bitset = words[bounds[index] : bounds[index + 1]].astype("<u4")
        sets[node] = np.flatnonzero(np.unpackbits(bitset.view(np.uint8), bitorder="little")).tolist()
    return sets


def _categories(
    tail: list[str], infos: Sequence[str], codes: Mapping[int, set[int]], where: str
) -> dict[int, tuple[Any, ...]]:
    """The user's own values of the pandas categorical columns, in code order.

    The file lists them column after column without saying which columns. They are the features that `feature_infos`
    writes as categorical, unless the user mixed pandas categories with integer columns declared categorical or with
    ordered categories; where the lists do not fit, no values are given (the codes remain) rather than wrong ones.
    """
    found = [line for line in tail if line.startswith("pandas_categorical:")]
    if not found:
        return {}
    if len(found) > 1:
        raise ModelError(f"{where}pandas_categorical: occurs twice")
    try:
        lists = json.loads(found[0].partition(":")[2])
    except (ValueError, RecursionError):
        raise ModelError(f"{where}pandas_categorical: is not JSON: {shown(found[0][19:])}") from None
    if lists is None:
        return {}
    if not isinstance(lists, list):
        raise ModelError(f"{where}pandas_categorical: expected a list of lists, found {shown(lists)}")
    for at, values in enumerate(lists):
        if not isinstance(values, list) or not all(isinstance(v, (str, int, float, bool)) for v in values):
            raise ModelError(f"{where}pandas_categorical[{at}]: expected a list of values, found {shown(values)}")
    columns = [at for at, info in enumerate(infos) if info != "none" and not info.startswith("[")]
    if len(columns) != len(lists):
        return {}
    for column, values in zip(columns, lists):
        seen = _integers(infos[column].replace(":", " "), f"{where}feature_infos[{column}]", None)
        if max([*seen.tolist(), *codes.get(column, ())], default=-1) >= len(values):
            return {}
    return {column: tuple(values) for column, values in zip(columns, lists)}


def _native(
    booster: Callable[[], Any], ensemble: TreeEnsemble, *, raw_score: bool = False
) -> Callable[[FloatArray], FloatArray]:
    """Probabilities (or margins) by LightGBM itself: of class 1, or of every class if there are more than two."""
    ready: list[Any] = []
    rounds = ensemble.n_trees // ensemble.n_outputs

    def scores(rows: FloatArray) -> FloatArray:
        if not ready:
            ready.append(booster())
        found = ready[0].predict(np.ascontiguousarray(rows, np.float64), raw_score=raw_score, num_iteration=rounds)
        return np.asarray(found, np.float64)

    return scores


def _asked(scores: Callable[[FloatArray], FloatArray] | None) -> dict[str, Any]:
    """Class indices and probabilities; one of exactly 1/2 is class 0, as in LGBMClassifier.predict."""
    if scores is None:
        return {}

    def native(rows: FloatArray) -> npt.NDArray[np.int64]:
        p = scores(rows)
        return (p > 0.5).astype(np.int64) if p.ndim == 1 else p.argmax(axis=1).astype(np.int64)

    def probability(rows: FloatArray) -> FloatArray:
        p = scores(rows)
        return np.column_stack([1.0 - p, p])

    return {"native": native, "probability": probability}


def _checked(text: str, name: str) -> str:
    """The model text with nothing in it but the fields that `parse` has checked.

    LightGBM ends the process, rather than raising, over faults in fields that decide nothing (a weight that is no
    number), so a file is never handed to it as it came.
    """
    header, trees, _ = sections(text, name)
    columns = int(header["max_feature_idx"]) + 1
    blocks = []
    for index, fields in enumerate(trees):
        kept = {"num_leaves": fields["num_leaves"], "num_cat": "0", "leaf_value": fields["leaf_value"]}
        if int(fields["num_leaves"]) > 1:
            kept |= {key: fields[key] for key in SPLIT_FIELDS}
            kept |= {key: fields[key] for key in BITSET_FIELDS if int(fields["num_cat"])}
        blocks.append("".join([f"Tree={index}\n", *(f"{key}={value}\n" for key, value in kept.items()), "\n\n"]))
    lines = [
        "tree",
        *(f"{key}={header[key]}" for key in ("version", "num_class", "num_tree_per_iteration")),
        "label_index=0",
        *(f"{key}={header[key]}" for key in ("max_feature_idx", "objective")),
        *(["average_output"] if "average_output" in header else []),
        "feature_names=" + " ".join(f"Column_{column}" for column in range(columns)),
        "feature_infos=" + " ".join(["none"] * columns),
        "tree_sizes=" + " ".join(str(len(block)) for block in blocks),
    ]
    return "\n".join(lines) + "\n\n" + "".join(blocks) + "end of trees\n"


def _booster_from(text: str) -> Any:
    import lightgbm

    return lightgbm.Booster(model_str=text)


def _fitted(source: Any, name: str) -> tuple[Any, Sequence[Any] | None]:
    """The Booster inside a scikit-learn style model, and the user's class labels."""
    try:
        booster = source.booster_
    except Exception as error:
        raise ModelError(f"{name}: is not fitted") from error
    # The only predict-time option that a model carries along and that changes its classes.
    if source.get_params().get("pred_early_stop"):
        raise ModelError(f"{name}: pred_early_stop: True stops summing trees early; accepted is False")
    return booster, source.classes_.tolist() if _is_lightgbm(source, "LGBMClassifier") else None


def _check_sigmoid(booster: Any, text: str, name: str) -> None:
    """LightGBM writes the sigmoid's parameter with six digits, but a booster may still compute with all of them."""
    given = (booster.params or {}).get("sigmoid")
    written = SIGMOID.search(text)
    if given is not None and written is not None and float(given) != float(written[1]):
        raise ModelError(
            f"{name}: sigmoid: {shown(given)}, which LightGBM itself saves as {written[1]}; save the model and load the "
            "file, or train with a sigmoid of at most six digits"
        )


def _is_lightgbm(source: object, kind: str) -> bool:
    return any(c.__name__ == kind and c.__module__.partition(".")[0] == "lightgbm" for c in type(source).__mro__)


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{name}: byte {error.start} is not UTF-8 text") from None


def _field(fields: Mapping[str, str], key: str, where: str) -> str:
    if key not in fields:
        raise ModelError(f"{where}{key}: missing")
    return fields[key]


def _integer(fields: Mapping[str, str], key: str, where: str, low: int, high: int) -> int:
    text = _field(fields, key, where)
    if not INTEGER.fullmatch(text):
        raise ModelError(f"{where}{key}: expected an integer, found {shown(text)}")
    return integer(text, f"{where}{key}", low, high)


def _words(fields: Mapping[str, str], key: str, where: str, count: int) -> list[str]:
    words = _field(fields, key, where).split(" ")
    if len(words) != count:
        raise ModelError(f"{where}{key}: has {len(words)} entries, expected {count} (max_feature_idx + 1)")
    return words


def _integers(text: str, where: str, count: int | None) -> npt.NDArray[np.int64]:
    """Blank-separated integers of at most ten digits (the widest field is uint32)."""
    words = _split(text, where, count)
    for at, word in enumerate(words):
        if not INTEGER.fullmatch(word):
            raise ModelError(f"{where}[{at}]: expected an integer, found {shown(word)}")
    return np.array([int(word) for word in words], np.int64)


def _reals(text: str, where: str, count: int, infinity: float = np.nan) -> FloatArray:
    """Blank-separated finite float64 numbers; `infinity` is what an infinite one is read as, if it may be there."""
    words = _split(text, where, count)
    read = [infinity if word == "inf" else float(word) if REAL.fullmatch(word) else np.nan for word in words]
    values = np.array(read, np.float64)
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ModelError(f"{where}[{at}]: expected a finite number, found {shown(words[at])}")
    return values


def _split(text: str, where: str, count: int | None) -> list[str]:
    words = [word for word in text.split(" ") if word]
    if count is not None and len(words) != count:
        raise ModelError(f"{where}: has {len(words)} entries, expected {count}")
    return words


def _padded(array: npt.NDArray[Any], leaves: int) -> npt.NDArray[Any]:
    return np.concatenate([array, np.zeros(leaves, array.dtype)])
