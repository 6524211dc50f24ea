"""What the steps of a pipeline do with each column: which one of their inputs every output depends on, and how.

Listed are classes of which it is known that every output is a function of one input: monotone between the `breaks`, or
a table over the `values` that the step was fitted on. Nothing that a step computes is computed here: only its own
`transform` does. A class that is not listed, a subclass too, is refused by name.

Monotone as functions of floats, because each operation is one correctly rounded monotone one: the scalers (subtract,
divide), interpolation between two quantiles, comparisons, bins, sqrt. Others (`rough`) are monotone functions that are
computed with an error of some units in the last place: log, exp, cbrt, powers, the normal quantile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.encoders import is_identity, widths
from boxqte.models.importers.structure import check_tree, within

Accepts = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.bool_]]
Inputs = Callable[[Any], Any]
"""From the user's table to the table that a step is given, through the steps before it."""

WAY_OUT = "`boxqte test` (boxqte.find_idis) takes any model by its predict function"

# ufunc -> where its monotone pieces, or its domain, begin; and whether it is rough. None of them tells -0 from 0, as
# numpy.reciprocal does: no test of a tree could.
UFUNCS: dict[str, tuple[tuple[float, ...], bool]] = {
    **dict.fromkeys(("positive", "negative", "sign", "floor", "ceil", "trunc", "rint", "deg2rad", "rad2deg", "radians",
                     "degrees"), ((), False)),
    **dict.fromkeys(("absolute", "fabs", "square", "sqrt"), ((0.0,), False)),
    **dict.fromkeys(("exp", "exp2", "expm1", "cbrt", "sinh", "tanh", "arctan", "arcsinh"), ((), True)),
    **dict.fromkeys(("log", "log2", "log10", "cosh"), ((0.0,), True)),
    **dict.fromkeys(("arcsin", "arccos", "arctanh"), ((-1.0, 1.0), True)),
    "log1p": ((-1.0,), True),
    "arccosh": ((1.0,), True),
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Where a column of a table between the steps comes from."""

    column: int
    """The one of the user's columns that it is a function of."""
    raw: bool = True
    """Present values are the user's own."""
    same: bool = True
    """Missing values are missing, too: nothing has happened to the column."""
    rough: bool = False


@dataclass(frozen=True, eq=False)
class Output:
    """A column that a step writes: the input it depends on, what it keeps of it."""

    reads: int
    raw: bool = False
    same: bool = False
    rough: bool = False


@dataclass(frozen=True, eq=False)
class Step:
    """One step as it is met: what it writes, and what is known of each input (by its position)."""

    where: str
    outputs: tuple[Output, ...]
    values: dict[int, list[Any]] = field(default_factory=dict)
    """The values that a table-like step was fitted on."""
    marks: dict[int, Any] = field(default_factory=dict)
    """What an imputer takes for missing, where it is not NaN."""
    fills: dict[int, Any] = field(default_factory=dict)
    """The constant that an imputer writes for missing values."""
    breaks: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict)
    """Between these numbers the step is monotone."""
    accepts: dict[int, Accepts] = field(default_factory=dict)
    """Which numbers the step takes, where it does not take all."""
    sources: tuple[Source, ...] = ()
    inputs: Inputs = field(default=lambda table: table)


def is_pipeline(step: Any) -> bool:
    return _named(step) in ("sklearn.Pipeline", "imblearn.Pipeline")


def applied(pipeline: Any) -> list[tuple[str, Any]]:
    """The steps that are there at predict time: imbalanced-learn's samplers are not."""
    return [(name, step) for name, step in pipeline.steps if not hasattr(step, "fit_resample")]


def walk(
    step: Any, sources: tuple[Source, ...], inputs: Inputs, where: str, met: list[Step]
) -> tuple[tuple[Source, ...], Inputs]:
    """Where each column behind a step comes from, and the table behind it; the simple steps in it are added to `met`."""
    if is_identity(step):
        return sources, inputs
    kind = _named(step)
    if is_pipeline(step):
        for name, inner in applied(step):
            sources, inputs = walk(inner, sources, inputs, f"{where}.{name}", met)
        return sources, inputs
    behind = _then(inputs, step)
    if kind == "sklearn.FeatureUnion":
        parts = []
        for name, inner in step.transformer_list:
            if not (isinstance(inner, str) and inner == "drop"):
                written, _ = walk(inner, sources, inputs, f"{where}.{name}", met)
                parts += _weighted(written, step, name)
        return tuple(parts), behind
    if kind == "sklearn.ColumnTransformer":
        return _walk_columns(step, sources, inputs, where, met), behind
    simple = replace(_simple(step, kind, len(sources), where), sources=sources, inputs=inputs)
    met.append(simple)
    return tuple(_composed(sources[out.reads], out) for out in simple.outputs), behind


def _walk_columns(
    step: Any, sources: tuple[Source, ...], inputs: Inputs, where: str, met: list[Step]
) -> tuple[Source, ...]:
    _check_fitted(step, "transformers_", len(sources), where)
    placed: dict[int, Source] = {}
    for name, inner, _ in step.transformers_:
        chosen = [int(i) for i in step._transformer_to_input_indices[name]]
        if not chosen or (isinstance(inner, str) and inner == "drop"):
            continue
        here = f"{where}.{name}"
        written, _ = walk(inner, tuple(sources[i] for i in chosen), _selected(inputs, chosen), here, met)
        at = step.output_indices_[name]
        if at.stop - at.start != len(written):
            raise ModelError(f"{here}: writes {at.stop - at.start} columns, expected {len(written)}")
        placed |= dict(zip(range(at.start, at.stop), _weighted(written, step, name)))
    return tuple(placed[i] for i in sorted(placed))


def _then(inputs: Inputs, step: Any) -> Inputs:
    return lambda table: step.transform(inputs(table))


def _selected(inputs: Inputs, chosen: list[int]) -> Inputs:
    def select(table: Any) -> Any:
        from sklearn.utils import _safe_indexing

        return _safe_indexing(inputs(table), chosen, axis=1)

    return select


def _weighted(written: tuple[Source, ...], step: Any, name: str) -> list[Source]:
    """`transformer_weights` multiplies what a part writes."""
    if (step.transformer_weights or {}).get(name) is None:
        return list(written)
    return [replace(source, raw=False, same=False) for source in written]


def _composed(source: Source, out: Output) -> Source:
    return Source(source.column, source.raw and out.raw, source.same and out.same, source.rough or out.rough)


def _named(step: Any) -> str:
    """The package and name of a class, such as `sklearn.OneHotEncoder`."""
    cls = type(step)
    return f"{cls.__module__.partition('.')[0]}.{cls.__name__}"


def _is(step: Any, name: str) -> bool:
    return type(step).__name__ == name


def _check_fitted(step: Any, attribute: str, n: int, where: str) -> None:
    if not hasattr(step, attribute):
        raise ModelError(f"{where}: {type(step).__name__} is not fitted")
    if int(getattr(step, "n_features_in_", n)) != n:
        raise ModelError(f"{where}: {type(step).__name__} takes {step.n_features_in_} columns, it is given {n}")


# ---------------------------------------------------------------------------------------------------------------------
# Simple steps


def _simple(step: Any, kind: str, n: int, where: str) -> Step:
    if kind in READERS:
        attribute, reader = READERS[kind]
        _check_fitted(step, attribute, n, where)
        return reader(step, n, where)
    if type(step).__module__.startswith("sklearn.feature_selection.") and hasattr(step, "get_support"):
        _check_fitted(step, "n_features_in_", n, where)
        _check_trees(getattr(step, "estimator_", None), n, where)
        return Step(where, tuple(Output(int(i), True, True) for i in step.get_support(indices=True)))
    name = "an estimator" if kind == "builtins.str" else type(step).__name__
    raise ModelError(f"{where}: {name} does not work column by column, or is not known to; {WAY_OUT}")


def _check_trees(estimator: Any, n: int, where: str) -> None:
    """Refuse trees with bad indices, from a file: SelectFromModel asks them for their importances, which would crash."""
    for t, member in enumerate(np.ravel(np.array(getattr(estimator, "estimators_", [estimator]), object)).tolist()):
        if hasattr(member, "tree_"):
            nodes, here = member.tree_.__getstate__()["nodes"], f"{where}.estimator_.estimators_[{t}].tree_"
            leaf = nodes["left_child"] == -1
            check_tree(nodes["left_child"], nodes["right_child"], leaf, here, ("children_left", "children_right"))
            within(nodes["feature"], f"{here}.feature", 0, n - 1, only=~leaf)


def _each(n: int, **what: bool) -> tuple[Output, ...]:
    return tuple(Output(i, **what) for i in range(n))


def _scaler(step: Any, n: int, where: str) -> Step:
    return Step(where, _each(n))


def _quantiles(step: Any, n: int, where: str) -> Step:
    # Each piece is computed from its own left end, so that from one to the next the value could fall by a unit.
    rough = step.output_distribution != "uniform"
    quantiles = np.asarray(step.quantiles_, np.float64)
    breaks = {i: np.unique(quantiles[np.isfinite(quantiles[:, i]), i]) for i in range(n)}
    return Step(where, _each(n, rough=rough), breaks=breaks)


def _power(step: Any, n: int, where: str) -> Step:
    breaks = {i: np.zeros(1) for i in range(n)}
    if step.method == "box-cox":
        return Step(where, _each(n, rough=True), breaks=breaks, accepts=dict.fromkeys(range(n), lambda y: ~(y <= 0)))
    return Step(where, _each(n, rough=True), breaks=breaks)


def _bins(step: Any, n: int, where: str) -> Step:
    widths = [1] * n if step.encode == "ordinal" else [int(width) for width in step.n_bins_]
    breaks = {i: np.asarray(step.bin_edges_[i], np.float64)[1:-1] for i in range(n)}
    return Step(where, tuple(Output(i) for i, width in enumerate(widths) for _ in range(width)), breaks=breaks)


def _imputer(step: Any, n: int, where: str) -> Step:
    statistics = step.statistics_
    kept = [i for i in range(n) if step.keep_empty_features or statistics[i] == statistics[i]]
    outputs = [Output(i, raw=True) for i in kept]
    if step.add_indicator:
        outputs += [Output(int(i)) for i in step.indicator_.features_]
    fills = dict(enumerate(statistics.tolist())) if step.strategy == "constant" else {}
    return replace(_marked(step, n, where, outputs), fills=fills)


def _indicator(step: Any, n: int, where: str) -> Step:
    return _marked(step, n, where, [Output(int(i)) for i in step.features_])


def _marked(step: Any, n: int, where: str, outputs: list[Output]) -> Step:
    mark = step.missing_values
    if isinstance(mark, float) and np.isnan(mark):
        return Step(where, tuple(outputs))
    number = isinstance(mark, (int, float, np.number))
    breaks = {i: np.array([float(mark)]) for i in range(n)} if number else {}
    return Step(where, tuple(outputs), marks=dict.fromkeys(range(n), mark), breaks=breaks)


def _function(step: Any, n: int, where: str) -> Step:
    name = getattr(step.func, "__name__", type(step.func).__name__)
    if name not in UFUNCS or step.func is not getattr(np, name) or step.kw_args:
        given = f"{name} and kw_args" if step.kw_args else name
        raise ModelError(f"{where}: FunctionTransformer with {given} is not known to be monotone; accepted are numpy's "
                         f"functions of one number, such as numpy.log1p, without kw_args; {WAY_OUT}")  # fmt: skip
    starts, rough = UFUNCS[name]
    return Step(where, _each(n, rough=rough), breaks={i: np.array(starts) for i in range(n)} if starts else {})


def _encoder(step: Any, n: int, where: str) -> Step:
    """OneHotEncoder, OrdinalEncoder and TargetEncoder: a table over their categories."""
    if len(step.categories_) != n:
        raise ModelError(f"{where}.categories_: has {len(step.categories_)} entries, expected {n}")
    multiclass = _is(step, "TargetEncoder") and step.target_type_ == "multiclass"
    writes = widths(step, where) if _is(step, "OneHotEncoder") else [len(step.classes_) if multiclass else 1] * n
    values = {i: list(categories.tolist()) for i, categories in enumerate(step.categories_)}
    empty = [i for i in range(n) if not values[i]]
    if empty:
        raise ModelError(f"{where}.categories_[{empty[0]}]: has no categories")
    strict = getattr(step, "handle_unknown", "ignore") == "error"
    return _table(where, tuple(Output(i) for i, width in enumerate(writes) for _ in range(width)), values, strict)


def _table(where: str, outputs: tuple[Output, ...], values: dict[int, list[Any]], strict: bool) -> Step:
    """A step that is a table over its values. Where numbers come in from another step, the values are their breaks."""
    breaks, accepts = {}, {}

    def among(known: npt.NDArray[np.float64]) -> Accepts:
        return lambda y: np.isin(y, known) | np.isnan(y)

    for i, own in values.items():
        numbers = np.array([v for v in own if isinstance(v, (int, float)) and v == v], np.float64)
        if len(numbers):
            breaks[i] = np.unique(numbers)
            if strict:
                accepts[i] = among(breaks[i])
    return Step(where, outputs, values, breaks=breaks, accepts=accepts)


def _category_encoder(step: Any, n: int, where: str) -> Step:
    """category_encoders: the columns in `cols` are looked up in tables, the others stay as they are."""
    if getattr(step, "composite_members_", None):
        raise ModelError(f"{where}: composite_cols reads two columns at once; {WAY_OUT}")
    names = [*step.feature_names_in_]
    at = {name: i for i, name in enumerate(names)}
    owner: dict[Any, int] = dict(at)
    tables = step.mapping if _is(step, "OrdinalEncoder") else step.ordinal_encoder.mapping
    if _is(step, "OneHotEncoder"):
        for own in step.mapping:
            owner |= dict.fromkeys(own["mapping"].columns, at[own["col"]])
    lumped = getattr(step, "min_group_lumping_", {})
    values = {}
    for own in tables:
        merged = lumped.get(own["col"], {})
        groups = set(merged.values())
        values[at[own["col"]]] = [*(v for v in own["mapping"].index.tolist() if v not in groups), *merged]
    written = [*step.get_feature_names_out()]
    if len(set(written)) != len(written) or not set(written) <= set(owner):
        raise ModelError(f"{where}: its columns cannot be told from their names {written[:12]}")
    plain = {i for i in range(n) if i not in values}
    outputs = tuple(Output(owner[name], owner[name] in plain, owner[name] in plain) for name in written)
    return _table(where, outputs, values, step.handle_unknown == "error")


Reader = Callable[[Any, int, str], Step]

READERS: dict[str, tuple[str, Reader]] = {
    "sklearn.StandardScaler": ("n_features_in_", _scaler),
    "sklearn.MinMaxScaler": ("scale_", _scaler),
    "sklearn.MaxAbsScaler": ("scale_", _scaler),
    "sklearn.RobustScaler": ("n_features_in_", _scaler),
    "sklearn.Binarizer": ("n_features_in_", _scaler),
    "sklearn.QuantileTransformer": ("quantiles_", _quantiles),
    "sklearn.PowerTransformer": ("lambdas_", _power),
    "sklearn.KBinsDiscretizer": ("bin_edges_", _bins),
    "sklearn.SimpleImputer": ("statistics_", _imputer),
    "sklearn.MissingIndicator": ("features_", _indicator),
    "sklearn.FunctionTransformer": ("func", _function),
    "sklearn.OneHotEncoder": ("categories_", _encoder),
    "sklearn.OrdinalEncoder": ("categories_", _encoder),
    "sklearn.TargetEncoder": ("encodings_", _encoder),
    "category_encoders.OneHotEncoder": ("feature_names_out_", _category_encoder),
    "category_encoders.OrdinalEncoder": ("feature_names_out_", _category_encoder),
    "category_encoders.CountEncoder": ("feature_names_out_", _category_encoder),
    "category_encoders.TargetEncoder": ("feature_names_out_", _category_encoder),
}
