"""Pipelines of scikit-learn and imbalanced-learn: steps that work column by column, then a model of any library.

The model is read over the user's own columns, before all steps: `sklearn_steps` says which of them each of the model's
columns is a function of, `pullback` turns every test around, and the function itself is the pipeline's own `transform`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.encoders import is_identity
from boxqte.models.ensemble import ZERO_BAND, FloatArray, Missing, Test, TreeEnsemble
from boxqte.models.floats import Keys, bisected, floats_of
from boxqte.models.importers import ImportedModel, load_model
from boxqte.models.importers.sklearn_steps import Inputs, Source, Step, applied, is_pipeline, walk
from boxqte.models.importers.unpickle import one_line
from boxqte.models.pullback import FIRST, LAST, Abreast, Column, pulled_back

Points = Mapping[int, npt.NDArray[Any]]
ABSENT = -1


def read_pipeline(pipeline: Any, where: str) -> ImportedModel:
    """The last step's model, as a model of the columns that the first step is given."""
    *before, (last, final) = _flat_steps(pipeline)
    if final is None or isinstance(final, str) or is_identity(final):
        raise ModelError(f"{where}: step '{last}' is no model")
    before = [(name, step) for name, step in before if not is_identity(step)]
    if before:
        labels, n = _columns_of(before[0][1], where)
    try:
        inner = load_model(final)
    except ModelError as error:
        raise ModelError(f"{where}: step '{last}': {error}") from error
    if not before:
        return replace(inner, source=where)
    met: list[Step] = []
    inputs: Inputs = lambda table: table  # noqa: E731
    sources = tuple(map(Source, range(n)))
    for name, step in before:
        sources, inputs = walk(step, sources, inputs, f"{where}: step '{name}'", met)
    if len(sources) != inner.ensemble.n_features:
        raise ModelError(
            f"{where}: step '{last}' takes {inner.ensemble.n_features} columns, the steps write {len(sources)}"
        )
    return _Reading(pipeline, inner, labels, n, met, sources, inputs, where).model()


def _flat_steps(pipeline: Any) -> list[tuple[str, Any]]:
    """The steps of a pipeline and, in their place, those of the pipelines inside it."""
    flat: list[tuple[str, Any]] = []
    for name, step in applied(pipeline):
        flat += (
            [(f"{name}.{inner}", deep) for inner, deep in _flat_steps(step)] if is_pipeline(step) else [(name, step)]
        )
    if not flat:
        raise ModelError(f"{type(pipeline).__name__}: has no steps")
    return flat


def _columns_of(step: Any, where: str) -> tuple[list[str] | None, int]:
    """The names of the user's columns, if the first step was fitted with names, and how many they are."""
    if not hasattr(step, "n_features_in_"):
        raise ModelError(f"{where}: {type(step).__name__} is not fitted")
    names = getattr(step, "feature_names_in_", None)
    if names is not None and not all(isinstance(name, str) for name in names):
        names = None  # category_encoders numbers the columns of arrays
    n = int(step.n_features_in_)
    if names is not None and len(set(names)) != n:
        raise ModelError(f"{where}: {type(step).__name__} was fitted with two columns of one name")
    return None if names is None else [str(name) for name in names], n


@contextmanager
def _lenient() -> Iterator[None]:
    """Steps compute with any float: that infinite ones are refused in between is not asked here, and no warning shown."""
    import sklearn

    with sklearn.config_context(assume_finite=True), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(eq=False)
class _UserColumn:
    """What is found out about one of the user's columns, and how to write it into a table."""

    values: list[Any] | None = None
    """The values of a category, None for numbers."""
    mark: Any = np.nan
    """What is written for a missing value of a category."""
    is_category: bool = False
    """Whether the model takes it as a pandas category."""
    starts: Keys | None = None
    refused: npt.NDArray[np.bool_] | None = None

    def add(self, values: Sequence[Any]) -> None:
        import pandas as pd

        own = [] if self.values is None else self.values
        for value in values:
            if value is None or value is pd.NA:
                self.mark = value
            elif value == value and value not in own:
                own.append(value)
        self.values = own

    def written(self, points: npt.NDArray[Any]) -> Any:
        """The column: numbers as float64, values (by index, ABSENT or NaN is missing) as they were at fit."""
        import pandas as pd

        if self.values is None:
            return points.astype(np.float64)
        absent = np.isnan(points) if points.dtype.kind == "f" else points < 0
        at = np.where(absent, len(self.values), points).astype(np.int64)
        if self.is_category:
            return pd.Categorical.from_codes(np.where(absent, ABSENT, at), categories=pd.Index(self.values))
        table = np.empty(len(self.values) + 1, object)
        table[:-1] = self.values
        table[-1] = self.mark
        kinds = {type(value) for value in self.values}
        if kinds <= {int, float} and (kinds == {float} or absent.any()) and self.mark is not None:
            return table[at].astype(np.float64)
        if (kinds == {int} or kinds == {bool}) and not absent.any():
            return table[at].astype(np.int64 if kinds == {int} else bool)
        return pd.Series(table[at], dtype=object)  # pandas would make its own strings, and NaN of None


class _Reading:
    """A pipeline that is being read: the user's columns, and the way from them to the model's."""

    def __init__(
        self,
        pipeline: Any,
        inner: ImportedModel,
        labels: list[str] | None,
        n: int,
        met: Sequence[Step],
        sources: tuple[Source, ...],
        inputs: Inputs,
        where: str,
    ):
        self.pipeline, self.inner, self.labels, self.where = pipeline, inner, labels, where
        self.met, self.sources, self.inputs = met, sources, inputs
        self.columns = [_UserColumn() for _ in range(n)]
        categories = inner.ensemble.categories
        self.codes = {
            feature: {str(value): float(code) for code, value in reversed(list(enumerate(values)))}
            | {value: float(code) for code, value in reversed(list(enumerate(values)))}
            for feature, values in categories.items()
        }

    def model(self) -> ImportedModel:
        self._find_values()
        with _lenient():
            self._find_pieces()
            ensemble = self._over_the_user_s_columns()
        index = {label: i for i, label in enumerate(ensemble.classes)}
        texts = {str(label): i for i, label in enumerate(ensemble.classes)}

        def native(rows: FloatArray) -> npt.NDArray[np.int64]:
            labels = self._asked("predict", rows).reshape(-1).tolist()
            return np.array([index[label] if label in index else texts[str(label)] for label in labels], np.int64)

        inner = self.inner
        return replace(
            inner,
            source=self.where,
            ensemble=ensemble,
            native=inner.native and native,
            probability=inner.probability and (lambda rows: self._asked("predict_proba", rows)),
            margin=inner.margin and (lambda rows: self._asked("decision_function", rows)),
            raw=None,  # a pipeline has no name for it
            values=inner.values and (lambda rows: self._asked("predict", rows).astype(np.float64).reshape(-1)),
            fills=self._fills(),
            monotone={},  # they are about the last step's columns
        )

    def _asked(self, method: str, rows: FloatArray) -> npt.NDArray[Any]:
        """What the pipeline itself answers for rows of the columns that reach the model."""
        table = self.table(dict(zip(self._reads(), np.asarray(rows, np.float64).T)), len(rows))
        try:
            return np.asarray(getattr(self.pipeline, method)(table))
        except ValueError as error:
            raise ModelError(f"{self.where}: refuses to predict ({one_line(error)})") from None

    def _reads(self) -> list[int]:
        """The user's columns that reach the model."""
        return sorted({source.column for source in self.sources})

    def _fills(self) -> dict[str, Any]:
        """Constants that stand for missing values of categories."""
        met = ((step.sources[i], fill) for step in self.met for i, fill in step.fills.items())
        return {self._name(source.column): fill for source, fill in met
                if source.raw and self.columns[source.column].values is not None}  # fmt: skip

    def _name(self, c: int) -> str:
        return f"x{c}" if self.labels is None else self.labels[c]

    # --- the user's table ---------------------------------------------------------------------------------------------

    def table(self, points: Points, n_rows: int) -> Any:
        """Rows as the pipeline's first step takes them; columns that are not named hold a value that every step takes."""
        import pandas as pd

        written = [column.written(points[c]) if c in points else column.written(self._any_value(c, n_rows))
                   for c, column in enumerate(self.columns)]  # fmt: skip
        if self.labels is not None:
            return pd.DataFrame(dict(zip(self.labels, written)))
        if all(column.values is None for column in self.columns):
            return np.column_stack(written)
        objects = np.empty((n_rows, len(written)), object)
        for c, values in enumerate(written):
            objects[:, c] = values
        return objects

    def _any_value(self, c: int, n_rows: int) -> npt.NDArray[Any]:
        column = self.columns[c]
        if column.values is not None:
            return np.zeros(n_rows, np.int64)
        taken = 1.0
        if column.refused is not None and column.refused.any():
            assert column.starts is not None
            stops = np.append(column.starts[1:] - 1, LAST)
            taken = float(floats_of(stops[~column.refused][-1:])[0])
        return np.full(n_rows, taken)

    # --- the way to the model -----------------------------------------------------------------------------------------

    def evaluate(self, points: Points) -> FloatArray:
        """The model's columns: numbers, and codes where it has categories; NaN is missing."""
        n_rows = len(next(iter(points.values())))
        return self._matrix(self.inputs(self.table(points, n_rows)))

    def _matrix(self, written: Any) -> FloatArray:
        n = len(self.sources)
        if hasattr(written, "tocoo"):
            if self.inner.ensemble.library != "xgboost":
                return np.asarray(written.toarray(), np.float64)
            stored = written.tocoo()
            matrix = np.full(written.shape, np.nan)  # XGBoost takes what is not stored for missing
            matrix[stored.row, stored.col] = stored.data
            return matrix
        if not self.codes and getattr(getattr(written, "dtype", None), "kind", "O") in "fiub":
            return np.asarray(written, np.float64)
        return np.column_stack([self._coded(_column(written, f), f) for f in range(n)])

    def _coded(self, values: Any, feature: int) -> FloatArray:
        codes = self.codes.get(feature)
        if codes is None:
            return _as_numbers(values)
        texts = [codes.get(v, codes.get(str(v), np.nan)) for v in np.asarray(values, object).tolist()]
        return np.array(texts, np.float64)

    # --- what the columns are -----------------------------------------------------------------------------------------

    def _find_values(self) -> None:
        """Which columns are categories, with which values: those that tables of steps or of the model have."""
        for step in self.met:
            for i, values in step.values.items():
                if not step.sources[i].raw:
                    continue
                if any(value is None for value in values) and any(value != value for value in values):
                    name = self._name(step.sources[i].column)
                    raise ModelError(f"{step.where}: column '{name}' has both None and NaN for missing, which a table does "
                                     "not keep apart; fit it with one of them")  # fmt: skip
                self.columns[step.sources[i].column].add(values)
        for feature, own in self.inner.ensemble.categories.items():
            source = self.sources[feature]
            if source.raw:
                self.columns[source.column].add(own)
                self.columns[source.column].is_category = self.inner.ensemble.library != "catboost"
        for step in self.met:
            for i, mark in step.marks.items():
                column = self.columns[step.sources[i].column]
                if step.sources[i].raw and column.values is not None:
                    column.add([mark])

    def _find_pieces(self) -> None:
        """Along each column of numbers, the pieces on which all steps are monotone; steps in their order."""
        for column in self.columns:
            if column.values is None:
                column.starts, column.refused = np.array([FIRST]), np.zeros(1, bool)
        for step in self.met:
            numbers = [i for i, source in enumerate(step.sources) if self.columns[source.column].values is None]
            self._cut(step.inputs, {i: step.breaks[i] for i in numbers if i in step.breaks}, step.sources)
            for i in numbers:
                if i in step.accepts:
                    self._refuse(step, i)
        self._cut(self.inputs, self._breaks_of_the_model(), self.sources)

    def _breaks_of_the_model(self) -> dict[int, FloatArray]:
        """Where the model's own tests are not monotone: zeros that are missing to it, sets of codes."""
        model = self.inner.ensemble
        breaks: dict[int, FloatArray] = {}
        for feature, source in enumerate(self.sources):
            if self.columns[source.column].values is not None or source.same:
                continue
            nodes = np.flatnonzero((model.feature == feature) & (model.test != Test.LEAF))
            points = {0.0} if self._drops_zeros() else set()
            if (model.missing[nodes] == Missing.WITH_ZERO).any():
                points |= {-ZERO_BAND, ZERO_BAND}
            if feature in model.categories:
                points |= {float(value) for value in model.categories[feature]}
            else:
                for node in nodes[model.test[nodes] == Test.IN_SET].tolist():
                    points |= {float(edge) for code in model.set_of(node) for edge in (code, code + 1)}
            if points:
                breaks[feature] = np.array(sorted(points))
        return breaks

    def _drops_zeros(self) -> bool:
        """Whether XGBoost is given a sparse matrix, which does not store zeros."""
        if self.inner.ensemble.library != "xgboost":
            return False
        return hasattr(self.inputs(self.table({}, 1)), "tocoo")

    def _cut(self, inputs: Inputs, breaks: Mapping[int, FloatArray], sources: Sequence[Source]) -> None:
        """Begin a new piece wherever a column of a step's input passes one of its breaks."""
        items: list[tuple[int, int, int, int, float, bool, bool]] = []
        for i, levels in breaks.items():
            c = sources[i].column
            low, high = self._accepted(c)
            ends = self._inputs_at(inputs, c, i, np.concatenate([low, high])).reshape(2, -1)
            for strict in (False, True):
                first, last = (_beyond(y[:, None], levels[None, :], strict) for y in ends)
                items += [(c, i, int(low[p]), int(high[p]), float(levels[b]), strict, bool(first[p, b]))
                          for p, b in np.argwhere(first != last).tolist()]  # fmt: skip
        if not items:
            return
        column, feature, low, high, level, above, at_low = (np.array(part) for part in zip(*items))
        wanted, place = np.unique(feature, return_inverse=True)

        def outcome(keys: Keys, each: int) -> npt.NDArray[np.bool_]:
            of, own, to, strictly = (np.repeat(part, each) for part in (column, place.reshape(-1), level, above))
            y = Abreast(of).values(lambda points: self._inputs(inputs, points, wanted.tolist()), keys, own)
            return _beyond(y, to, strictly)

        starts = bisected(outcome, low, high, at_low) + 1
        for c in np.unique(column).tolist():
            user = self.columns[c]
            assert user.starts is not None
            assert user.refused is not None
            merged = np.unique(np.concatenate([user.starts, starts[column == c]]))
            user.refused = user.refused[np.searchsorted(user.starts, merged, side="right") - 1]
            user.starts = merged

    def _accepted(self, c: int) -> tuple[Keys, Keys]:
        """The first and last keys of a column's pieces that no step refuses."""
        column = self.columns[c]
        assert column.starts is not None
        assert column.refused is not None
        stops = np.append(column.starts[1:] - 1, LAST)
        return column.starts[~column.refused], stops[~column.refused]

    def _inputs(self, inputs: Inputs, points: Points, wanted: Sequence[int]) -> FloatArray:
        """Some columns of the table that a step is given."""
        written = inputs(self.table(points, len(next(iter(points.values())))))
        return np.column_stack([_as_numbers(_column(written, i)) for i in wanted])

    def _inputs_at(self, inputs: Inputs, c: int, i: int, keys: Keys) -> FloatArray:
        return self._inputs(inputs, {c: floats_of(keys)}, [i])[:, 0]

    def _refuse(self, step: Step, i: int) -> None:
        """Mark the pieces on which a step does not take what it is given."""
        column = self.columns[step.sources[i].column]
        assert column.refused is not None
        low, _ = self._accepted(step.sources[i].column)
        taken = step.accepts[i](self._inputs_at(step.inputs, step.sources[i].column, i, low))
        refused = column.refused.copy()
        refused[~refused] = ~taken
        column.refused = refused

    # --- the model over the user's columns ----------------------------------------------------------------------------

    def _over_the_user_s_columns(self) -> TreeEnsemble:
        reads = self._reads()
        ensemble = self.inner.ensemble
        if self._drops_zeros():  # for columns that reach it unchanged; of others, the pieces say where zero is
            unchanged = [f for f, source in enumerate(self.sources) if source.same]
            absent = (ensemble.test != Test.LEAF) & np.isin(ensemble.feature, unchanged)
            missing = np.where(absent, Missing.ZERO_EXACT, ensemble.missing).astype(np.uint8)
            ensemble = replace(ensemble, missing=missing)
        columns = []
        for c in reads:
            mine = [(f, source) for f, source in enumerate(self.sources) if source.column == c]
            user = self.columns[c]
            columns.append(
                Column(
                    name=self._name(c),
                    feeds=frozenset(f for f, _ in mine),
                    same=frozenset(f for f, source in mine if source.same),
                    rough=frozenset(f for f, source in mine if source.rough),
                    values=None if user.values is None else tuple(user.values),
                    starts=user.starts,
                    refused=user.refused,
                )
            )

        def evaluate(points: Points) -> FloatArray:
            return self.evaluate({reads[c]: own for c, own in points.items()})

        return pulled_back(ensemble, columns, evaluate, self._missing_rows(reads), self.where)

    def _missing_rows(self, reads: Sequence[int]) -> dict[int, FloatArray | None]:
        """The model's row where a column is missing; None where a step refuses that."""
        import sklearn

        def row(columns: Sequence[int]) -> FloatArray | None:
            points = {c: np.array([np.nan]) for c in columns}
            try:
                with sklearn.config_context(assume_finite=False):
                    first: FloatArray = self.evaluate(points)[0]
                    return first
            except (ValueError, TypeError):
                return None

        together = row(reads)
        return {at: together if together is not None else row([c]) for at, c in enumerate(reads)}


def _beyond(y: FloatArray, level: Any, strict: Any) -> npt.NDArray[np.bool_]:
    result: npt.NDArray[np.bool_] = np.where(strict, y > level, y >= level)
    return result


def _column(written: Any, i: int) -> Any:
    """One column of a table between steps."""
    if hasattr(written, "tocsc"):
        return written.tocsc()[:, [i]].toarray()[:, 0]
    if hasattr(written, "to_pandas"):
        written = written.to_pandas()
    return written.iloc[:, i] if hasattr(written, "iloc") else written[:, i]


def _as_numbers(values: Any) -> FloatArray:
    if hasattr(values, "cat"):  # categories of which the model has no list: it takes their codes
        values = values.cat.codes.to_numpy().astype(np.float64)
        return np.where(values < 0, np.nan, values)
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy(np.float64, na_value=np.nan))
    return np.asarray(values).astype(np.float64)
