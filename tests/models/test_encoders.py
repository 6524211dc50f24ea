"""What an encoder writes for each of the user's values is read from the encoder itself, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)

from boxqte.errors import ModelError
from boxqte.models.encoders import EncodedColumn, from_transformer, model_columns


def frame(n: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(size=n),
            "job": rng.choice(["clerk", "farmer", "none", "teacher"], n, p=[0.5, 0.4, 0.05, 0.05]),
            "sex": rng.choice(["f", "m"], n),
            "level": rng.choice([1, 5, 9], n),
            "member": rng.random(n) < 0.5,
            "always": "same",
        }
    )


def encode(encoded: tuple[EncodedColumn, ...], outputs: tuple[str, ...], data: pd.DataFrame) -> np.ndarray:
    """The oracle: every value on its own, by the encoding alone."""
    rows = np.full((len(data), len(outputs)), -99.0)
    for column in encoded:
        for r, value in enumerate(data[column.name].tolist()):
            if column.codes is None:
                rows[r, outputs.index(column.columns[0])] = value
                continue
            assert column.values is not None
            (v,) = [i for i, known in enumerate(column.values) if known == value]
            for c, name in enumerate(column.columns):
                rows[r, outputs.index(name)] = column.codes[v, c]
    return rows


CATEGORICAL = ["job", "sex", "level", "member", "always"]
ENCODERS: dict[str, Callable[[], Any]] = {
    "one-hot": lambda: OneHotEncoder(),
    "dense one-hot": lambda: OneHotEncoder(sparse_output=False, dtype=np.int8),
    "one-hot, first dropped": lambda: OneHotEncoder(drop="first"),
    "one-hot, binary dropped": lambda: OneHotEncoder(drop="if_binary"),
    "one-hot, named drop": lambda: OneHotEncoder(drop=["farmer", "m", 5, False, "same"]),
    "one-hot, unknown ignored": lambda: OneHotEncoder(handle_unknown="ignore"),
    "one-hot, infrequent by share": lambda: OneHotEncoder(min_frequency=0.1, handle_unknown="infrequent_if_exist"),
    "one-hot, infrequent by count": lambda: OneHotEncoder(max_categories=2),
    "one-hot, infrequent and dropped": lambda: OneHotEncoder(max_categories=2, drop="first"),
    "one-hot into a data frame": lambda: OneHotEncoder(sparse_output=False).set_output(transform="pandas"),
    "ordinal": lambda: OrdinalEncoder(),
    "ordinal of integers": lambda: OrdinalEncoder(dtype=np.int32),
    "ordinal, infrequent": lambda: OrdinalEncoder(max_categories=2),
    "ordinal, unknown coded": lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    "one-hot in a pipeline": lambda: make_pipeline("passthrough", OneHotEncoder(drop="first")),
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_bare_encoder_writes_what_its_encoding_says(kind: str) -> None:
    data = frame()[CATEGORICAL]
    encoder = ENCODERS[kind]().fit(data)
    agrees(encoder, data)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("verbose", [True, False])
@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_a_column_transformer_writes_what_its_encoding_says(kind: str, verbose: bool, threshold: float) -> None:
    transformer = ColumnTransformer(
        [("kept", "passthrough", ["age"]), ("cat", ENCODERS[kind](), CATEGORICAL), ("none", OneHotEncoder(), [])],
        verbose_feature_names_out=verbose,
        sparse_threshold=threshold,
    )
    agrees(transformer.fit(frame()), frame())


def agrees(transformer: Any, data: pd.DataFrame) -> None:
    encoding, outputs = from_transformer(transformer), model_columns(transformer)
    assert outputs == tuple(transformer.get_feature_names_out())
    assert sorted(name for column in encoding for name in column.columns) == sorted(outputs)
    assert [column.name for column in encoding] == [name for name in data if name in {c.name for c in encoding}]
    written = transformer.transform(data)
    written = written.toarray() if hasattr(written, "toarray") else np.asarray(written)
    np.testing.assert_array_equal(encode(encoding, outputs, data), written.astype(float))


def test_a_one_hot_group_is_an_identity_matrix_with_a_zero_row_for_the_dropped_category() -> None:
    data = frame()[["job"]]
    (plain,) = from_transformer(OneHotEncoder().fit(data))
    assert plain.values == ("clerk", "farmer", "none", "teacher")
    assert plain.columns == ("job_clerk", "job_farmer", "job_none", "job_teacher")
    assert plain.codes is not None
    np.testing.assert_array_equal(plain.codes, np.eye(4))
    (dropped,) = from_transformer(OneHotEncoder(drop="first").fit(data))
    assert dropped.codes is not None
    np.testing.assert_array_equal(dropped.codes, np.eye(4)[:, 1:])


def test_infrequent_categories_share_one_column() -> None:
    (column,) = from_transformer(OneHotEncoder(min_frequency=0.2).fit(frame()[["job"]]))
    assert column.columns == ("job_clerk", "job_farmer", "job_infrequent_sklearn")
    assert column.codes is not None
    assert column.codes.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]


def test_columns_of_which_nothing_reaches_the_model_are_left_out() -> None:
    transformer = ColumnTransformer([("o", OneHotEncoder(drop="first"), ["always", "sex"]), ("d", "drop", ["job"])])
    assert [column.name for column in from_transformer(transformer.fit(frame()))] == ["sex"]


def test_the_remainder_is_passed_through_in_the_order_of_the_transformer_s_output() -> None:
    transformer = ColumnTransformer([("o", OrdinalEncoder(), ["sex"])], remainder="passthrough")
    data = frame()[["age", "sex", "level"]]
    transformer.fit(data)
    assert model_columns(transformer) == ("o__sex", "remainder__age", "remainder__level")
    assert [(c.name, c.columns, c.codes is None) for c in from_transformer(transformer)] == [
        ("age", ("remainder__age",), True),
        ("sex", ("o__sex",), False),
        ("level", ("remainder__level",), True),
    ]
    agrees(transformer, data)


def test_columns_chosen_by_position_mask_slice_or_selector_are_found() -> None:
    data = frame()[["age", "job", "sex"]]
    texts = make_column_selector(dtype_exclude=float)
    for chosen in ([1, 2], slice(1, 3), [False, True, True], slice("job", "sex"), texts):
        agrees(ColumnTransformer([("o", OneHotEncoder(), chosen)], remainder="passthrough").fit(data), data)


def test_a_transformer_fitted_without_names_takes_the_names_given_or_numbers_them() -> None:
    data = frame()[["job", "sex"]]
    transformer = OneHotEncoder().fit(data.to_numpy(object))
    assert [column.name for column in from_transformer(transformer)] == ["x0", "x1"]
    named = from_transformer(transformer, ["work", "gender"])
    assert [column.name for column in named] == ["work", "gender"]
    assert named[1].columns == ("gender_f", "gender_m")
    columns = ColumnTransformer([("o", OrdinalEncoder(), [1]), ("p", "passthrough", [0])])
    columns.fit(np.arange(12.0).reshape(6, 2))
    assert model_columns(columns, ["a", "b"]) == ("o__b", "p__a")


def test_missing_values_that_an_encoder_was_fitted_on_are_categories() -> None:
    data = pd.DataFrame({"a": pd.Series(["x", None, "y", "x"], dtype=object), "b": [1.0, np.nan, 2.0, 1.0]})
    one_hot = from_transformer(OneHotEncoder().fit(data))
    assert one_hot[0].values == ("x", "y", None)
    assert one_hot[1].values is not None
    np.testing.assert_array_equal(one_hot[1].values, (1.0, 2.0, np.nan))
    assert all(column.codes is not None and (column.codes == np.eye(3)).all() for column in one_hot)
    ordinal = from_transformer(OrdinalEncoder(encoded_missing_value=-5).fit(data))
    assert ordinal[1].codes is not None
    assert ordinal[1].codes[:, 0].tolist() == [0.0, 1.0, -5.0]


def test_an_identity_function_without_names_for_its_output_passes_through() -> None:
    data = frame()[["sex", "age"]]
    transformer = ColumnTransformer([("o", OneHotEncoder(), ["sex"]), ("same", FunctionTransformer(), ["age"])]).fit(
        data
    )
    assert model_columns(transformer) == ("o__sex_f", "o__sex_m", "same__age")
    assert [column.columns for column in from_transformer(transformer)] == [("o__sex_f", "o__sex_m"), ("same__age",)]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            StandardScaler(),
            r"^ColumnTransformer.part: StandardScaler has no exact counterpart here; accepted are OneHot",
        ),
        (FunctionTransformer(np.exp), r"part: FunctionTransformer with a function has no exact counterpart"),
        (KBinsDiscretizer(2, quantile_method="averaged_inverted_cdf"), r"part: KBinsDiscretizer has no exact"),
        (make_pipeline(StandardScaler(), KBinsDiscretizer(2, quantile_method="averaged_inverted_cdf")), "Pipeline of"),
        (ColumnTransformer([("inner", "passthrough", [0])]), r"part: ColumnTransformer has no exact counterpart"),
    ],
)
def test_a_transformer_without_exact_counterpart_is_refused_by_name(part: Any, message: str) -> None:
    transformer = ColumnTransformer([("part", part, ["age"]), ("rest", OneHotEncoder(), ["sex"])]).fit(frame())
    with pytest.raises(ModelError, match=message) as caught:
        from_transformer(transformer)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("transformer", [StandardScaler(), FunctionTransformer(np.exp)])
def test_a_bare_transformer_without_exact_counterpart_is_refused_by_name(transformer: Any) -> None:
    with pytest.raises(ModelError, match=f"^{type(transformer).__name__}: .* has no exact counterpart"):
        from_transformer(transformer.fit(frame()[["age"]]))


def test_a_target_encoder_is_refused_by_name() -> None:
    data = frame()[["job"]]
    with pytest.raises(ModelError, match="TargetEncoder has no exact counterpart"):
        from_transformer(TargetEncoder().fit(data, np.arange(len(data)) % 2))


def test_a_column_that_two_transformers_read_is_refused() -> None:
    transformer = ColumnTransformer([("o", OneHotEncoder(), ["sex", "level"]), ("p", "passthrough", ["level"])])
    with pytest.raises(ModelError, match=r"\.p: column 'level' is already encoded by ColumnTransformer.o"):
        from_transformer(transformer.fit(frame()))


@pytest.mark.parametrize("transformer", [OneHotEncoder(), OrdinalEncoder(), ColumnTransformer([])])
def test_a_transformer_that_is_not_fitted_is_refused(transformer: Any) -> None:
    with pytest.raises(ModelError, match=f"^{type(transformer).__name__}: not fitted"):
        from_transformer(transformer)


def test_names_that_do_not_fit_are_refused() -> None:
    transformer = OneHotEncoder().fit(frame()[["job", "sex"]])
    with pytest.raises(ModelError, match="was fitted with column 0 named 'job', found 'work'"):
        from_transformer(transformer, ["work", "sex"])
    with pytest.raises(ModelError, match="takes 2 columns, 1 are named"):
        from_transformer(transformer, ["job"])
    with pytest.raises(ModelError, match="column name 'a' occurs twice"):
        from_transformer(OneHotEncoder().fit(frame()[["job", "sex"]].to_numpy(object)), ["a", "a"])


def test_two_model_columns_of_one_name_are_refused() -> None:
    data = pd.DataFrame({"a": ["b_c", "x"], "a_b": ["c", "y"]})
    with pytest.raises(ModelError, match="writes two columns named 'a_b_c'"):
        from_transformer(OneHotEncoder().fit(data))


def test_a_subclass_is_refused_because_it_may_do_anything() -> None:
    class Mine(OneHotEncoder):
        pass

    with pytest.raises(ModelError, match="Mine has no exact counterpart"):
        from_transformer(Mine().fit(frame()[["sex"]]))
