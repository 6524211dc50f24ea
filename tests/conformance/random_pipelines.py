"""Random pipelines for Hypothesis: several columns, steps in a row, beside and inside each other, any library at the end."""

from __future__ import annotations

from typing import Any

import category_encoders as ce
import numpy as np
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

from tests.conformance.pipelines import FINAL, NO_MISSING, NUMBERS


def _functions() -> st.SearchStrategy[Any]:
    # All of them take every number; log1p(-1), or a square of squares, is an infinity that some models refuse.
    names = ["cbrt", "arctan", "arcsinh", "tanh", "negative", "absolute", "floor", "sign", "positive"]
    return st.sampled_from(names).map(lambda name: FunctionTransformer(getattr(np, name)))


def _with_missing() -> st.SearchStrategy[Any]:
    """Steps that take missing values."""
    return st.one_of(
        st.sampled_from([StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler]).map(lambda step: step()),
        st.builds(MinMaxScaler, clip=st.just(True), feature_range=st.just((-0.5, 3.0))),
        st.builds(
            QuantileTransformer,
            n_quantiles=st.integers(2, 30),
            output_distribution=st.sampled_from(["uniform", "normal"]),
        ),
        st.builds(PowerTransformer, standardize=st.booleans()),
        _functions(),
    )


def _imputer() -> st.SearchStrategy[Any]:
    return st.builds(
        SimpleImputer, strategy=st.sampled_from(["mean", "median", "most_frequent"]), add_indicator=st.booleans()
    )


def _without_missing() -> st.SearchStrategy[Any]:
    discretizer = st.builds(
        KBinsDiscretizer,
        n_bins=st.integers(2, 5),
        encode=st.sampled_from(["ordinal", "onehot-dense"]),
        strategy=st.sampled_from(["uniform", "quantile"]),
        quantile_method=st.just("averaged_inverted_cdf"),
    )
    return st.one_of(_with_missing(), discretizer, st.builds(Binarizer, threshold=st.sampled_from([0.0, 0.5, 3.0])))


@st.composite
def number_steps(draw: st.DrawFn) -> Any:
    """A few steps for numbers in a row, perhaps beside others in a union."""
    steps = draw(st.lists(_with_missing(), max_size=2))
    if draw(st.booleans()):
        steps += [draw(_imputer()), *draw(st.lists(_without_missing(), max_size=2))]
    if draw(st.integers(0, 3)) == 0:
        steps.append(FeatureUnion([("one", draw(_with_missing())), ("two", draw(_with_missing()))]))
    return make_pipeline(*steps) if steps else "passthrough"


@st.composite
def category_steps(draw: st.DrawFn) -> Any:
    encoder = draw(
        st.one_of(
            st.builds(OneHotEncoder, drop=st.sampled_from([None, "first"]), sparse_output=st.booleans()),
            st.builds(OneHotEncoder, max_categories=st.just(3), handle_unknown=st.just("infrequent_if_exist")),
            st.builds(OrdinalEncoder, encoded_missing_value=st.sampled_from([np.nan, -2])),
            st.builds(TargetEncoder, random_state=st.just(0), cv=st.just(2)),
            st.sampled_from([ce.OrdinalEncoder, ce.CountEncoder, ce.TargetEncoder, ce.OneHotEncoder]).map(
                lambda e: e()
            ),
        )
    )
    before = (
        [SimpleImputer(strategy="most_frequent")]
        if draw(st.booleans()) and "encoders" not in str(type(encoder))
        else []
    )
    behind = [MaxAbsScaler()] if draw(st.booleans()) else []
    return make_pipeline(*before, encoder, *behind)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[Any, list[str]]:
    """A pipeline that is not fitted, and the columns that it is to be fitted on."""
    parts: list[Any] = [("sex", draw(st.sampled_from([OrdinalEncoder(), OneHotEncoder(sparse_output=False)])), ["sex"])]
    columns = ["sex"]
    for name in draw(st.lists(st.sampled_from([*NUMBERS, "job", "level"]), min_size=1, max_size=4, unique=True)):
        steps = draw(category_steps() if name == "job" else number_steps())
        if draw(st.integers(0, 3)) == 0:
            steps = ColumnTransformer([("inner", steps, [name])])
        parts.append((f"of {name}", steps, [name]))
        columns.append(name)
    final = draw(st.sampled_from([name for name in FINAL if name not in NO_MISSING]))
    sparse = 1.0 if final == "XGBoost" and draw(st.booleans()) else 0.0
    remainder: Any = draw(st.sampled_from(["drop", "passthrough"]))
    before: list[Any] = [ColumnTransformer(parts, sparse_threshold=sparse, remainder=remainder)]
    if remainder == "passthrough":
        columns.append("dose") if "dose" not in columns else None
    if not sparse and draw(st.booleans()):
        before.append(draw(st.sampled_from([RobustScaler(), VarianceThreshold(), StandardScaler()])))
    return make_pipeline(*before, FINAL[final]()), draw(st.permutations(columns))
