"""Spaces inferred from a table with an encoder, a pipeline or a model: its columns, its values, its codes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from boxqte.errors import BoxQTEError
from boxqte.examples import loan_ensemble
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.space.inferring import refusal, why

NAN = float("nan")


def sklearn_preprocessing() -> Any:
    return pytest.importorskip("sklearn.preprocessing")


RAW = pd.DataFrame(
    {"age": [20, 35, 61, 44], "job": ["b", "a", "c", "a"], "size": ["S", "L", "S", "M"], "id": [9, 8, 7, 6]}
)


def column_transformer(**one_hot: Any) -> Any:
    preprocessing, compose = sklearn_preprocessing(), pytest.importorskip("sklearn.compose")
    parts = [
        ("hot", preprocessing.OneHotEncoder(**one_hot), ["job"]),
        ("code", preprocessing.OrdinalEncoder(categories=[["S", "M", "L"]]), ["size"]),
        ("keep", "passthrough", ["age"]),
    ]
    return compose.ColumnTransformer(parts).fit(RAW)


def test_an_encoder_gives_attributes_in_the_users_values_with_the_models_columns_and_codes() -> None:
    inference = Space.infer(RAW, encoder=column_transformer())
    space = inference.space
    assert space.names == ("age", "job", "size")
    assert space["age"] == Attribute("age", "integer", Fraction(20), Fraction(61), columns=("keep__age",))
    hot = Attribute.one_hot("job", ["hot__job_a", "hot__job_b", "hot__job_c"], values=["a", "b", "c"])
    assert space["job"] == hot
    assert (space["size"].kind, space["size"].values) == ("categorical", ("S", "M", "L"))
    assert space["size"].codes == ((0.0,), (1.0,), (2.0,))
    assert inference.decisions[-1].why == "the encoder drops it"
    assert inference.decisions[-1].kind == "left out"


def test_the_codes_of_an_encoded_space_are_what_the_encoder_writes() -> None:
    encoder = column_transformer(drop="first")
    space = Space.infer(RAW, encoder=encoder, mass="data").space
    written = pd.DataFrame(encoder.transform(RAW), columns=encoder.get_feature_names_out())
    for attribute in (space["job"], space["size"]):
        assert attribute.codes is not None
        for raw, row in zip(RAW[attribute.name], written[list(attribute.columns)].itertuples(index=False)):
            assert attribute.codes[attribute.values.index(raw)] == tuple(row)
    assert space["job"].value_masses() == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]


def test_a_polars_table_goes_with_an_encoder_that_was_fitted_on_pandas() -> None:
    assert (
        Space.infer(pl.from_pandas(RAW), encoder=column_transformer()).space
        == Space.infer(RAW, encoder=column_transformer()).space
    )


def test_values_that_share_a_code_remain_values_of_their_own() -> None:
    frame = pd.DataFrame({"job": ["a"] * 5 + ["b", "c"]})
    encoder = sklearn_preprocessing().OneHotEncoder(min_frequency=2).fit(frame)
    uniform, data = (Space.infer(frame, encoder=encoder, mass=mass).space["job"] for mass in ("uniform", "data"))
    assert uniform.values == data.values == ("a", "b", "c")
    assert uniform.codes == ((1.0, 0.0), (0.0, 1.0), (0.0, 1.0))
    assert uniform.value_masses() == [Fraction(1, 3)] * 3
    assert data.value_masses() == [Fraction(5, 7), Fraction(1, 7), Fraction(1, 7)]
    assert "2 of them share a code" in why(frame, "job", encoder=encoder)


def test_a_missing_value_that_the_encoder_codes_is_a_value_only_if_it_is_declared() -> None:
    frame = pd.DataFrame({"job": ["a", "b", None, "b"]}, dtype=object)
    encoder = sklearn_preprocessing().OneHotEncoder().fit(frame)
    assert "column 'job': 1 missing value" in refusal(frame, encoder=encoder)
    ignored = Space.infer(frame, encoder=encoder, missing="ignore").space["job"]
    assert (ignored.values, ignored.missing) == (("a", "b"), None)
    declared = Space.infer(frame, encoder=encoder, missing="declare", mass="data").space["job"]
    assert (declared.values, declared.missing) == (("a", "b", "(missing)"), None)
    assert declared.codes == ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    assert declared.value_masses() == [Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)]


def test_a_missing_value_that_the_encoder_passes_on_is_the_missing_value_of_the_attribute() -> None:
    frame = pd.DataFrame({"size": ["S", "L", np.nan, "L"]}, dtype=object)
    encoder = sklearn_preprocessing().OrdinalEncoder().fit(frame)
    attribute = Space.infer(frame, encoder=encoder, missing="declare").space["size"]
    assert (attribute.values, attribute.missing) == (("L", "S"), Fraction(1, 3))


def test_rows_that_the_encoder_does_not_know_are_counted_in_the_report() -> None:
    encoder = column_transformer(handle_unknown="ignore")
    frame = RAW.assign(job=["z", "a", "b", "a"])
    assert "rows with values that it does not know: 1" in why(frame, "job", encoder=encoder)


def test_an_override_replaces_what_the_encoder_says() -> None:
    job = Attribute.one_hot("job", ["hot__job_a", "hot__job_b", "hot__job_c"])
    assert Space.infer(RAW, encoder=column_transformer(), overrides={"job": job}).space["job"] == job
    picked = Space.infer(RAW, encoder=column_transformer(), overrides={"size": {"values": ["L", "S"]}}).space["size"]
    assert picked.codes == ((2.0,), (0.0,))


def test_an_encoder_whose_columns_the_table_lacks_is_refused() -> None:
    assert "encoder: there is no column 'job'" in refusal(RAW.drop(columns="job"), encoder=column_transformer())
    with pytest.raises(BoxQTEError):
        Space.infer(RAW, encoder=object())


def test_the_space_of_a_pipeline_has_its_own_columns_with_its_encoders_values() -> None:
    pipeline, trees = pytest.importorskip("sklearn.pipeline"), pytest.importorskip("sklearn.ensemble")
    model = pipeline.make_pipeline(column_transformer(), trees.RandomForestClassifier(2, random_state=0)).fit(
        RAW, [0, 1, 1, 0]
    )
    ours, encoders = (
        Space.infer(RAW, **given).space for given in ({"model": model}, {"encoder": column_transformer()})
    )
    assert [(a.name, a.values, a.low, a.high) for a in ours] == [(a.name, a.values, a.low, a.high) for a in encoders]
    assert all(attribute.columns == (attribute.name,) for attribute in ours)


LOANS = {"income": [10, 900, 400], "race": [0, 3, 4], "age": [18, 70, 44], "name": ["x", "y", "z"]}


def test_columns_that_the_model_does_not_read_are_left_out_with_the_reason() -> None:
    inference = Space.infer(LOANS, model=loan_ensemble())
    assert inference.space.names == ("income", "race", "age")
    assert inference.decisions[-1].why == "the model does not read it"


def test_a_column_that_the_model_reads_and_the_table_lacks_is_refused() -> None:
    assert "model: there is no column 'age'" in refusal(
        {k: LOANS[k] for k in ("income", "race")}, model=loan_ensemble()
    )
    assert "model: it reads 3 columns" in refusal({"p": [1, 2]}, model=loan_ensemble())


def test_a_model_without_the_tables_names_reads_by_position() -> None:
    assert Space.infer({"p": [1, 2], "q": [1, 2], "r": [1, 2]}, model=loan_ensemble()).space.names == ("p", "q", "r")


def test_what_the_model_treats_as_a_category_is_categorical_with_the_models_own_list() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"c": pd.Categorical(rng.choice(list("abc"), 200)), "x": rng.normal(size=200)})
    model = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, min_data_per_group=1, cat_smooth=0)
    model.fit(frame, (frame["c"] == "b") ^ (frame["x"] > 1))
    plain = pd.DataFrame({"c": ["b", "a", "b"], "x": [0.5, 1.5, 2.5]})
    inference = Space.infer(plain, model=model)
    assert inference.space["c"] == Attribute.categorical("c", ["a", "b", "c"])
    assert "the 3 values that the model declares, 1 of which do not occur" in inference.decisions[0].why
    labelled = Space.infer(plain, model=model, overrides={"c": {"labels": ["A", "B", "C"]}}).space["c"]
    assert (labelled.kind, labelled.values, labelled.labels) == ("categorical", ("a", "b", "c"), ("A", "B", "C"))
    coded = Space.infer(plain.assign(c=[1, 0, 1]), model=model, integer=["c"]).space["c"]
    assert coded == Attribute.integer("c", 0, 1)
