"""Each rule of the inference, on every kind of table; the five data sets against their schemas."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxqte.errors import BoxQTEError, SpaceError
from boxqte.examples import loan_ensemble
from boxqte.space.attributes import Attribute
from boxqte.space.inference import describe_domain
from boxqte.space.space import Space
from boxqte.space.tables import read_table

Make = Callable[[dict[str, list[Any]]], Any]
MAKERS: dict[str, Make] = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table, "dict": dict}
NAN = float("nan")


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


def why(frame: Any, name: str, **options: Any) -> str:
    return next(d.why for d in Space.infer(frame, **options).decisions if d.name == name)


def refusal(frame: Any, **options: Any) -> str:
    with pytest.raises(SpaceError) as caught:
        Space.infer(frame, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


# Kinds


def test_an_integer_column_is_integer_from_its_smallest_to_its_largest_value(make: Make) -> None:
    assert Space.infer(make({"age": [34, 17, 90]})).space["age"] == Attribute.integer("age", 17, 90)


def test_a_float_column_is_real_and_its_ends_are_the_decimals_that_were_typed(make: Make) -> None:
    attribute = Space.infer(make({"x": [0.1, 2.5, 0.3]})).space["x"]
    assert (attribute.kind, attribute.low, attribute.high) == ("real", Fraction(1, 10), Fraction(5, 2))


def test_a_float_column_that_holds_only_integers_is_integer_and_says_how_to_make_it_real(make: Make) -> None:
    frame = make({"x": [1.0, 5.0, 3.0]})
    assert Space.infer(frame).space["x"] == Attribute.integer("x", 1, 5)
    assert "override with real=['x']" in why(frame, "x")
    assert Space.infer(frame, real=["x"]).space["x"] == Attribute.real("x", 1, 5)


def test_a_text_column_is_categorical_with_the_values_that_occur_in_sorted_order(make: Make) -> None:
    frame = make({"job": ["nurse", "clerk", "nurse"]})
    assert Space.infer(frame).space["job"] == Attribute.categorical("job", ["clerk", "nurse"])
    assert why(frame, "job") == "text column, 2 distinct values"


def test_a_bool_column_is_categorical(make: Make) -> None:
    attribute = Space.infer(make({"b": [True, False, True]})).space["b"]
    assert (attribute.kind, attribute.values) == ("categorical", (False, True))


@pytest.mark.parametrize("values", [[0, 1, 1], [0.0, 1.0, 1.0]])
def test_a_column_of_0_and_1_is_two_categories_and_says_why(make: Make, values: list[Any]) -> None:
    frame = make({"flag": values})
    assert Space.infer(frame).space["flag"] == Attribute.categorical("flag", [0, 1])
    assert "two categories, which epsilon does not mix" in why(frame, "flag")
    assert Space.infer(frame, integer=["flag"]).space["flag"] == Attribute.integer("flag", 0, 1)


def test_two_values_other_than_0_and_1_stay_integers_and_the_report_names_the_way_out() -> None:
    frame = {"sex": [1, 2, 2]}
    assert Space.infer(frame).space["sex"] == Attribute.integer("sex", 1, 2)
    assert "if they are codes without order, categorical=['sex']" in why(frame, "sex")


def test_a_constant_column_is_a_domain_of_one_value(make: Make) -> None:
    space = Space.infer(make({"i": [3, 3], "f": [0.5, 0.5], "s": ["a", "a"], "b": [True, True], "zero": [0, 0]})).space
    assert [a.kind for a in space] == ["integer", "real", "categorical", "categorical", "integer"]
    assert [a.size for a in space] == [1, None, 1, 1, 1]
    assert space["f"].low == space["f"].high == Fraction(1, 2)


def test_texts_that_all_read_as_numbers_are_categories_but_the_report_wonders() -> None:
    assert "which all read as numbers" in why({"zip": ["10115", "80331"]}, "zip")
    assert "numbers" not in why({"zip": ["10115", "80331"]}, "zip", categorical=["zip"])


def test_integers_in_categorical_keep_only_the_codes_that_occur(make: Make) -> None:
    attribute = Space.infer(make({"work": [0, 100, 2, 2]}), categorical=["work"]).space["work"]
    assert attribute == Attribute.categorical("work", [0, 2, 100])


def test_numbers_of_exact_types_stay_exact() -> None:
    frame = {"d": [Decimal("0.1234567890123456789"), Decimal(1)], "f": [Fraction(1, 3), Fraction(2, 3)]}
    space = Space.infer(frame).space
    assert space["d"].low == Fraction("0.1234567890123456789")
    assert (space["f"].low, space["f"].high) == (Fraction(1, 3), Fraction(2, 3))
    assert Space.infer({"m": [Decimal("0.5"), Fraction(1, 3), 2]}, mass="data").space["m"].low == Fraction(1, 3)
    polars = pl.DataFrame({"d": pl.Series(["0.10", "2.25"]).cast(pl.Decimal(10, 2))})
    assert Space.infer(polars).space["d"] == Attribute.real("d", "0.1", "2.25")


def test_a_float32_column_stands_for_the_doubles_it_equals() -> None:
    for frame in (pd.DataFrame({"x": np.array([0.1, 0.5], "f4")}), pl.DataFrame({"x": [0.1, 0.5]}, {"x": pl.Float32})):
        assert Space.infer(frame).space["x"].low == Fraction(repr(float(np.float32(0.1))))


def test_minus_zero_is_zero() -> None:
    assert Space.infer({"x": [-0.0, 0.5]}, categorical=["x"]).space["x"].values == (0, 0.5)
    assert str(Space.infer({"x": [-0.0, 0.5]}, categorical=["x"]).space["x"].values[0]) == "0"


def test_integers_beyond_2_to_the_53_are_refused_with_a_way_out() -> None:
    frame = {"id": [0, 2**53 + 1]}
    assert "column 'id'" in refusal(frame)
    assert "real" in refusal(frame)
    assert Space.infer(frame, real=["id"]).space["id"].high == 2**53 + 1


def test_floats_too_large_to_be_exact_integers_are_real() -> None:
    assert Space.infer({"x": [0.0, 1e300]}).space["x"].kind == "real"


# Category dtypes


def test_a_dtype_that_declares_its_categories_gives_all_of_them_in_its_order() -> None:
    pandas = pd.DataFrame({"g": pd.Categorical(["mid", "low"], categories=["low", "mid", "high"], ordered=True)})
    frames = [
        pandas,
        pa.Table.from_pandas(pandas),
        pl.DataFrame({"g": ["mid", "low"]}, {"g": pl.Enum(["low", "mid", "high"])}),
    ]
    for frame in frames:
        assert Space.infer(frame).space["g"] == Attribute.categorical("g", ["low", "mid", "high"])
        assert why(frame, "g") == "category column, the 3 values that its dtype declares, 1 of which do not occur"


def test_a_polars_categorical_declares_no_list_so_the_values_that_occur_are_sorted() -> None:
    frame = pl.DataFrame({"g": pl.Series(["b", "a"], dtype=pl.Categorical)})
    assert Space.infer(frame).space["g"].values == ("a", "b")


def test_numeric_categories_keep_their_numbers_and_may_be_declared_integer() -> None:
    frame = pd.DataFrame({"g": pd.Categorical([3, 1, 3])})
    assert Space.infer(frame).space["g"] == Attribute.categorical("g", [1, 3])
    assert Space.infer(frame, integer=["g"]).space["g"] == Attribute.integer("g", 1, 3)


def test_categories_that_are_neither_texts_nor_numbers_are_refused() -> None:
    assert "column 'g': its categories are of type Interval" in refusal(pd.DataFrame({"g": pd.cut([1, 5], 2)}))


def test_pandas_nullable_and_arrow_backed_columns_are_read_like_any_other() -> None:
    frame = pd.DataFrame({"i": [1, 5], "s": ["a", "b"], "b": [True, False], "f": [0.5, 1.25]}).convert_dtypes()
    expected = Space.infer({"i": [1, 5], "s": ["a", "b"], "b": [True, False], "f": [0.5, 1.25]}).space
    assert Space.infer(frame).space == expected
    assert Space.infer(frame.convert_dtypes(dtype_backend="pyarrow")).space == expected


# Refusals


@pytest.mark.parametrize(
    "values",
    [[dt.date(2020, 1, 1)], [dt.datetime(2020, 1, 1)], [dt.timedelta(1)]],
    ids=["date", "datetime", "duration"],
)
def test_dates_are_refused_with_the_column_and_a_way_out(make: Make, values: list[Any]) -> None:
    message = refusal(make({"born": values}))
    assert message.startswith("column 'born': ")
    assert "convert them to numbers" in message


def test_infinite_numbers_are_refused_with_column_and_row(make: Make) -> None:
    message = refusal(make({"x": [0.5, 1.5, float("-inf")]}))
    assert message.startswith("column 'x', row 2: -inf is not a finite number")


def test_mixed_types_are_refused_with_both_types_and_the_row() -> None:
    message = refusal(pd.DataFrame({"m": [1, None, "a"]}, dtype=object))
    assert message == "column 'm': mixed types, 1 (int) and 'a' (str) in row 2; convert the column to one type"
    assert "mixed types" in refusal({"m": [True, 2]})


@pytest.mark.parametrize("values", [[[1], [2]], [{"a": 1}, {"a": 2}], [b"a", b"b"]], ids=["list", "struct", "bytes"])
def test_values_that_are_neither_numbers_nor_categories_are_refused(make: Make, values: list[Any]) -> None:
    assert refusal(make({"v": values})).startswith("column 'v': ")


def test_empty_tables_are_refused(make: Make) -> None:
    assert refusal(make({})) == "the table has no columns"
    assert refusal(make({"a": [], "b": []})) == "the table has no rows; its columns are a, b"


def test_a_table_of_the_label_alone_is_refused() -> None:
    assert refusal({"y": [1]}, label="y") == "the table has no columns besides the label 'y'"


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame([[1, 2]], columns=["a", "a"]), pa.table([[1], [2]], names=["a", "a"])],
    ids=["pandas", "pyarrow"],
)
def test_columns_of_the_same_name_are_refused(frame: Any) -> None:
    assert refusal(frame) == "column 'a' occurs twice in the table; names must be distinct"


@pytest.mark.parametrize("frame", [np.zeros((2, 2)), [1, 2], "adult.csv", pd.Series([1]), None])
def test_what_is_no_table_is_refused(frame: Any) -> None:
    assert refusal(frame).startswith("expected a table with named columns")


def test_a_dict_of_columns_of_different_lengths_is_refused() -> None:
    assert refusal({"a": [1], "b": [1, 2]}).startswith("the dict is not a table: ")


def test_numbered_columns_get_their_number_as_name() -> None:
    assert Space.infer(pd.DataFrame(np.eye(2) * 3)).space.names == ("0", "1")
    assert refusal(pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")]))).startswith("column ('a', 'b')")


def test_a_lazy_frame_is_collected() -> None:
    assert Space.infer(pl.LazyFrame({"a": [1, 5]})).space["a"].high == 5


def test_texts_without_end_are_refused_unless_named_in_categorical(make: Make) -> None:
    frame = make({"id": [f"p{i}" for i in range(5)]})
    message = refusal(frame, max_categories=4)
    assert message.startswith("column 'id': 5 distinct texts, more than 4 (max_categories)")
    assert Space.infer(frame, max_categories=4, categorical=["id"]).space["id"].size == 5


@pytest.mark.parametrize("option", ["categorical", "integer", "real", "label", "sensitive"])
def test_an_unknown_name_in_an_option_is_refused_with_the_names_there_are(option: str) -> None:
    message = refusal({"a": [1, 2], "b": [1, 2]}, **{option: "c"})
    assert "'c'" in message
    assert "a, b" in message


def test_an_unknown_name_in_overrides_or_one_hot_is_refused() -> None:
    assert "overrides: there is no column 'c'; columns are a" in refusal({"a": [1, 2]}, overrides={"c": {"low": 0}})
    assert "one_hot['g']: there is no column 'c'" in refusal({"a": [1, 2]}, one_hot={"g": ["a", "c"]})


def test_a_column_of_two_kinds_is_refused() -> None:
    assert refusal({"a": [1]}, real=["a"], integer=["a"]) == "'a' is named in both integer and real"
    assert "both real and overrides" in refusal({"a": [1]}, real=["a"], overrides={"a": "integer"})


@pytest.mark.parametrize(("option", "value"), [("mass", "normal"), ("missing", "drop"), ("one_hot", "yes")])
def test_an_unknown_option_value_is_refused_with_what_is_accepted(option: str, value: str) -> None:
    assert refusal({"a": [1]}, **{option: value}).startswith(f"{option}: expected")


def test_a_kind_that_the_values_contradict_is_refused_with_the_row() -> None:
    assert refusal({"a": [1.0, 1.5]}, integer=["a"]).startswith("integer: 'a' cannot be integer, row 1 holds 1.5")
    assert refusal({"a": ["x", "y"]}, real=["a"]).startswith("real: 'a' cannot be real, row 0 holds 'x'")
    assert "one_hot={name: columns}" in refusal({"a": [1, 2]}, overrides={"a": "one-hot"})


# Label and sensitive


def test_the_label_is_no_attribute_and_is_never_read() -> None:
    inference = Space.infer({"a": [1, 2], "y": [dt.date(2020, 1, 1)] * 2}, label="y", sensitive="a")
    assert inference.space == Space([Attribute.integer("a", 1, 2)], label="y", sensitive=["a"])


def test_a_sensitive_column_of_a_one_hot_group_is_refused_with_the_name_of_the_group() -> None:
    message = refusal({"race_a": [0, 1], "race_b": [1, 0]}, sensitive=["race_a"])
    assert message == "sensitive: 'race_a' is a column of the attribute 'race'; name the attribute"


# Missing values


def _with_nan(values: list[Any]) -> list[Any]:
    return [NAN if v is None and type(values[0]) in (int, float) else v for v in values]


MISSING_FRAMES: dict[str, Callable[[list[Any]], Any]] = {
    "pandas": lambda v: pd.DataFrame({"x": v}),
    "pandas nullable": lambda v: pd.DataFrame({"x": v}).convert_dtypes(),
    "pandas object": lambda v: pd.DataFrame({"x": v}, dtype=object),
    "polars": lambda v: pl.DataFrame({"x": v}),
    "pyarrow": lambda v: pa.table({"x": v}),
    "polars NaN": lambda v: pl.DataFrame({"x": _with_nan(v)}, strict=False),
}


@pytest.fixture(params=MISSING_FRAMES)
def holed(request: pytest.FixtureRequest) -> Callable[[list[Any]], Any]:
    return MISSING_FRAMES[request.param]


HOLED = [[2, None, 5], [0.5, None, 1.5], ["a", None, "b"], [True, None, False]]


@pytest.mark.parametrize("values", HOLED, ids=["integer", "real", "text", "bool"])
def test_missing_values_are_refused_with_column_count_row_and_ways_out(holed: Any, values: list[Any]) -> None:
    message = refusal(holed(values))
    assert message.startswith("column 'x': 1 missing value, the first in row 1 (rows count from 0)")
    assert "missing='declare'" in message
    assert "missing='ignore'" in message


@pytest.mark.parametrize("values", HOLED, ids=["integer", "real", "text", "bool"])
def test_ignored_missing_values_are_not_in_the_domain_and_the_report_says_so(holed: Any, values: list[Any]) -> None:
    inference = Space.infer(holed(values), missing="ignore")
    assert inference.space == Space.infer({"x": [v for v in values if v is not None]}).space
    assert inference.decisions[0].why.endswith("1 missing value left out of the domain")


@pytest.mark.parametrize(
    ("values", "uniform"), list(zip(HOLED, ["1/5", "1/3", "1/3", "1/3"])), ids=["integer", "real", "text", "bool"]
)
def test_a_declared_missing_value_is_one_more_value_or_has_its_share_in_the_data(
    holed: Any, values: list[Any], uniform: str
) -> None:
    attribute = Space.infer(holed(values), missing="declare").space["x"]
    assert attribute.missing == Fraction(uniform)
    assert Space.infer(holed(values), missing="declare", mass="data").space["x"].missing == Fraction(1, 3)


def test_only_columns_with_missing_values_get_one() -> None:
    space = Space.infer(pl.DataFrame({"a": [1, 2, None], "b": [1, 2, 4]}), missing="declare").space
    assert [a.missing for a in space] == [Fraction(1, 3), None]


def test_a_column_without_any_value_is_refused(make: Make) -> None:
    for option in ("error", "declare", "ignore"):
        assert refusal(make({"a": [None, None]}), missing=option).startswith("column 'a': all values are missing")


def test_a_missing_value_that_the_override_settles_is_no_error() -> None:
    frame = pl.DataFrame({"a": [1, 3, None]})
    assert Space.infer(frame, overrides={"a": {"missing": True}}).space["a"].missing == Fraction(1, 4)
    assert Space.infer(frame, overrides={"a": {"missing": "1/7"}}).space["a"].missing == Fraction(1, 7)
    assert Space.infer(frame, overrides={"a": {"missing": False}}).space["a"].missing is None


def test_the_missing_value_counts_the_domain_after_the_override() -> None:
    frame = pl.DataFrame({"a": [1, 3, None]})
    assert Space.infer(frame, missing="declare", overrides={"a": {"low": 0, "high": 8}}).space["a"].missing == Fraction(
        1, 10
    )


# Overrides


def test_a_partial_override_is_merged_over_what_was_inferred(make: Make) -> None:
    inference = Space.infer(
        make({"a": [3, 5], "x": [0.5, 0.7]}), overrides={"a": {"low": 0}, "x": {"high": "1/3", "low": 0}}
    )
    assert inference.space["a"] == Attribute.integer("a", 0, 5)
    assert inference.space["x"] == Attribute.real("x", 0, Fraction(1, 3))
    assert inference.decisions[0].why == "integer column, 2 distinct values; overridden: low"


def test_an_attribute_as_override_is_taken_as_it_is_and_its_column_is_not_read() -> None:
    born = Attribute.integer("born", 1900, 2020)
    frame = {"born": [dt.date(2000, 1, 1), None], "a": [1, 2]}
    assert Space.infer(frame, overrides={"born": born}, mass="data").space["born"] == born
    assert "the attribute is named 'born'" in refusal(frame, overrides={"a": born})
    stray = Attribute.one_hot("g", ["p", "a"])
    assert "overrides['g']: there is no column 'p'" in refusal(frame, overrides={"g": stray})


def test_a_one_hot_attribute_as_override_takes_its_columns() -> None:
    group = Attribute.one_hot("g", ["p", "q"])
    assert Space.infer({"p": [1, 0], "a": [1, 4], "q": [0, 0]}, overrides={"g": group}).space.attributes == (
        group,
        Attribute.integer("a", 1, 4),
    )


def test_a_kind_as_override_works_like_the_kinds_option() -> None:
    assert Space.infer({"a": [1, 5]}, overrides={"a": "real"}).space == Space.infer({"a": [1, 5]}, real="a").space
    assert Space.infer({"a": [1, 5]}, overrides={"a": {"kind": "categorical"}}).space["a"].values == (1, 5)


def test_values_in_an_override_make_a_categorical_attribute_and_ends_a_numeric_one() -> None:
    assert Space.infer({"a": [1, 2]}, overrides={"a": {"values": [1, 2, 9]}}).space["a"].values == (1, 2, 9)
    assert Space.infer({"a": [0, 1]}, overrides={"a": {"high": 7}}).space["a"] == Attribute.integer("a", 0, 7)


def test_fields_that_do_not_fit_are_refused_with_their_place() -> None:
    frame = {"a": [1, 2], "s": ["x", "y"]}
    assert "overrides['a'].lo: unknown field" in refusal(frame, overrides={"a": {"lo": 0}})
    assert "overrides['a'] ('a').low: expected a finite number" in refusal(frame, overrides={"a": {"low": "zero"}})
    assert "overrides['s'] ('s').low: an attribute of kind categorical has no such field" in refusal(
        frame, overrides={"s": {"low": 0}}
    )
    assert "overrides['a'].kind: expected one of" in refusal(frame, overrides={"a": "ordinal"})
    assert "low 5 is above high 2" in refusal(frame, overrides={"a": {"low": 5}})
    assert "overrides['a']: expected an Attribute, a dict" in refusal(frame, overrides={"a": 3})
    assert "cannot be renamed" in refusal(frame, overrides={"a": {"name": "b"}})


# One-hot groups


@pytest.mark.parametrize("separator", ["_", "=", "__", ".", ":"])
def test_columns_of_which_exactly_one_is_1_in_every_row_are_one_attribute(make: Make, separator: str) -> None:
    columns = [f"race{separator}{value}" for value in ("white", "black", "other")]
    frame = make(
        {"age": [30, 40, 50], columns[0]: [1, 0, 0], columns[1]: [0, 1, 1], columns[2]: [0, 0, 0], "x": [3, 4, 5]}
    )
    space = Space.infer(frame).space
    assert space.names == ("age", "race", "x")
    assert space["race"] == Attribute.one_hot("race", columns, values=["white", "black", "other"])


def test_bool_columns_of_get_dummies_are_a_group() -> None:
    frame = pd.get_dummies(pd.DataFrame({"native_country": ["US", "UK", "US"], "age": [3, 4, 6]}))
    space = Space.infer(frame).space
    assert space["native_country"].columns == ("native_country_UK", "native_country_US")
    assert space["native_country"].values == ("UK", "US")


@pytest.mark.parametrize(
    "columns",
    [
        {"a_x": [1, 0, 0], "a_y": [0, 1, 0]},  # a row sums to 0
        {"a_x": [1, 0, 1], "a_y": [0, 1, 1]},  # a row sums to 2
        {"a_x": [1, 0, 1], "b_y": [0, 1, 0]},  # no common prefix
        {"ax": [1, 0, 1], "ay": [0, 1, 0]},  # no separator
        {"_x": [1, 0, 1], "_y": [0, 1, 0]},  # no name
        {"a_x": [1, 1, 1], "a_y": [0, 0, 0]},  # constant columns prove nothing
        {"a_x": [1, 0, 2], "a_y": [0, 1, -1]},  # not 0 and 1
        {"a_x": ["1", "0"], "a_y": ["0", "1"]},  # texts
    ],
)
def test_columns_that_the_rows_do_not_prove_to_be_a_group_stay_by_themselves(columns: dict[str, list[Any]]) -> None:
    assert Space.infer(columns).space.names == tuple(columns)


def test_two_groups_with_a_common_prefix_are_told_apart() -> None:
    frame = {"p_sex_f": [1, 0, 0], "p_sex_m": [0, 1, 1], "p_job_a": [0, 1, 0], "p_job_b": [1, 0, 1]}
    assert Space.infer(frame).space.names == ("p_sex", "p_job")


def test_a_group_is_as_large_as_the_rows_allow() -> None:
    frame = {"g_a_1": [1, 0, 0, 0], "g_a_2": [0, 1, 0, 0], "g_b": [0, 0, 1, 0], "g_c": [0, 0, 0, 1]}
    space = Space.infer(frame).space
    assert space.names == ("g",)
    assert space["g"].values == ("a_1", "a_2", "b", "c")


def test_a_group_never_takes_the_name_of_a_column() -> None:
    space = Space.infer({"age": [20, 60], "age_young": [1, 0], "age_old": [0, 1]}).space
    assert space.names == ("age", "age_*")


def test_a_group_can_be_switched_off_or_broken_up_by_naming_a_column() -> None:
    frame = {"r_a": [1, 0, 0], "r_b": [0, 1, 1]}
    assert Space.infer(frame, one_hot=None).space.names == ("r_a", "r_b")
    assert Space.infer(frame, integer=["r_a"]).space.names == ("r_a", "r_b")
    assert "one_hot=None" in why(frame, "r")


def test_a_row_that_is_missing_in_the_whole_group_is_a_missing_value_of_the_group() -> None:
    frame = {"r_a": [1, 0, NAN], "r_b": [0, 1, NAN]}
    assert "column 'r': 1 missing value, the first in row 2" in refusal(frame)
    assert Space.infer(frame, missing="declare").space["r"].missing == Fraction(1, 3)
    assert Space.infer({"r_a": [1, 0, NAN], "r_b": [0, 1, 1]}, missing="ignore").space.names == ("r_a", "r_b")


def test_a_declared_group_may_have_rows_of_zeros_which_are_one_more_value() -> None:
    frame = {"r_b": [1, 0, 0], "x": [1, 2, 3], "r_c": [0, 1, 0]}
    space = Space.infer(frame, one_hot={"race": ["r_b", "r_c"]}).space
    assert space.names == ("race", "x")
    assert space["race"].values == ("b", "c", "(none)")
    assert space["race"].codes == ((1.0, 0.0), (0.0, 1.0), (0.0, 0.0))


def test_a_declared_group_that_the_rows_contradict_is_refused_with_the_row() -> None:
    groups = {"g": ["p", "q"]}
    assert (
        refusal({"p": [1, 1], "q": [0, 1]}, one_hot=groups)
        == "one_hot['g'], row 1: expected one 1 at most, found p=1, q=1"
    )
    assert "column 'q' must be 0 or 1 in every row, found 3" in refusal({"p": [1, 0], "q": [0, 3]}, one_hot=groups)
    assert "at least 2 columns" in refusal({"p": [1, 0]}, one_hot={"g": ["p"]})
    assert "already belongs to 'g'" in refusal({"p": [1, 0], "q": [0, 1]}, one_hot={"g": ["p", "q"], "h": ["p", "q"]})


def test_overrides_reach_a_group_by_its_name_and_not_its_columns_by_theirs() -> None:
    frame = {"r_a": [1, 0, 0], "r_b": [0, 1, 0], "r_c": [0, 0, 1]}
    picked = Space.infer(frame, overrides={"r": {"values": ["c", "a"]}}).space["r"]
    assert (picked.values, picked.codes) == (("c", "a"), ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0)))
    assert "'d' has no code; known values are a, b, c" in refusal(frame, overrides={"r": {"values": ["a", "d"]}})
    assert "'r' is one-hot, it cannot be real" in refusal(frame, real=["r"])
    declared = {"one_hot": {"r": list(frame)}}
    assert "column 'r_a' is no attribute of its own" in refusal(frame, real=["r_a"], **declared)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_one_hot_encoding_and_inference_are_inverse(codes: list[int], rng: Any) -> None:
    columns = [f"g_{k}" for k in range(4)]
    rng.shuffle(columns)
    frame = {c: [int(c == f"g_{code}") for code in codes] for c in columns}
    space = Space.infer(frame).space
    if len(set(codes)) >= 2:
        assert space.attributes == (Attribute.one_hot("g", columns, values=[c[2:] for c in columns]),)
    else:
        assert space.names == tuple(columns)


# Masses


def test_the_mass_of_categories_is_how_often_they_occur(make: Make) -> None:
    space = Space.infer(make({"s": ["a", "b", "b", "b"], "r_x": [1, 0, 0, 0], "r_y": [0, 1, 1, 1]}), mass="data").space
    assert space["s"].value_masses() == space["r"].value_masses() == [Fraction(1, 4), Fraction(3, 4)]


def test_the_mass_of_integers_is_how_often_each_value_occurs_and_none_between(make: Make) -> None:
    attribute = Space.infer(make({"i": [2, 2, 5, 9, 9, 9]}), mass="data").space["i"]
    mass = [attribute.mass_below(Fraction(v + 1)) - attribute.mass_below(Fraction(v)) for v in range(2, 10)]
    assert mass == [Fraction(n, 6) for n in (2, 0, 0, 1, 0, 0, 0, 3)]


def test_a_bool_column_that_is_declared_integer_has_a_mass_too() -> None:
    attribute = Space.infer({"b": [True, True, False]}, integer=["b"], mass="data").space["b"]
    assert attribute.mass_below(Fraction(1)) == Fraction(1, 3)


def test_more_than_256_integers_are_256_bins_of_equal_width() -> None:
    attribute = Space.infer({"i": list(range(0, 1000, 3))}, mass="data").space["i"]
    assert attribute.histogram is not None
    widths = {b - a for a, b in zip(attribute.histogram.edges, attribute.histogram.edges[1:])}
    assert len(attribute.histogram.weights) == 256
    assert widths == {3, 4}
    assert sum(attribute.histogram.weights) == 334


def test_the_bins_of_a_real_attribute_lie_around_the_values() -> None:
    attribute = Space.infer({"x": [0.0, 0.5, 0.5, 2.0]}, mass="data").space["x"]
    assert attribute.histogram is not None
    assert attribute.histogram.edges == (0, Fraction(1, 4), Fraction(5, 4), 2)
    assert attribute.histogram.weights == (1, 2, 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6).map(lambda v: round(v, 3)), min_size=1, max_size=200))
def test_real_bins_are_few_and_their_mass_is_the_number_of_rows(values: list[float]) -> None:
    attribute = Space.infer({"x": values}, mass="data", real=["x"]).space["x"]
    if attribute.range:
        assert attribute.histogram is not None
        assert len(attribute.histogram.weights) <= 64
        assert sum(attribute.histogram.weights) == len(values)
        assert attribute.mass_below(attribute.high) == 1
        median = sorted(values)[len(values) // 2]
        largest = max(attribute.histogram.weights) / len(values)
        assert abs(attribute.mass_below(Fraction(repr(median))) - Fraction(1, 2)) <= largest + Fraction(1, len(values))


def test_a_value_at_the_end_of_the_domain_counts_though_its_double_lies_beyond() -> None:
    assert Fraction(0.1) > Fraction(1, 10)  # the double is larger than the decimal it stands for
    inference = Space.infer({"x": [0.0, 0.05, 0.1]}, mass="data")
    assert inference.space["x"].histogram is not None
    assert sum(inference.space["x"].histogram.weights) == 3


def test_a_constant_column_has_its_mass_on_its_only_value() -> None:
    space = Space.infer({"f": [0.5, 0.5], "i": [3, 3]}, mass="data").space
    assert [a.mass_below(Fraction(4)) for a in space] == [1, 1]


def test_rows_outside_an_overridden_domain_have_no_mass_and_the_report_says_so() -> None:
    frame = {"i": [1, 2, 50], "s": ["a", "b", "c"]}
    inference = Space.infer(frame, mass="data", overrides={"i": {"high": 10}, "s": {"values": ["a", "z"]}})
    assert inference.space["i"].mass_below(Fraction(2)) == Fraction(1, 2)
    assert inference.space["s"].value_masses() == [1, 0]
    assert "rows outside the domain, left out: 1" in inference.decisions[0].why
    assert "no row of the data lies in its domain" in refusal(
        frame, mass="data", overrides={"i": {"low": 60, "high": 70}}
    )


def test_a_mass_in_an_override_counts_more_than_the_data() -> None:
    space = Space.infer({"s": ["a", "b", "b"]}, mass="data", overrides={"s": {"mass": [5, 1]}}).space
    assert space["s"].value_masses() == [Fraction(5, 6), Fraction(1, 6)]


def test_declared_categories_that_do_not_occur_have_no_mass() -> None:
    frame = pd.DataFrame({"g": pd.Categorical(["a", "a"], categories=["a", "b"])})
    assert Space.infer(frame, mass="data").space["g"].value_masses() == [1, 0]


# Encoders and models


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


# The report


def test_the_report_is_an_aligned_table_and_a_frame() -> None:
    inference = Space.infer({"income": [0.5, 1.5], "sex": ["f", "m"]})
    assert str(inference).splitlines() == [
        "attribute  kind         domain      why",
        "income     real         [0.5, 1.5]  float column",
        "sex        categorical  {f, m}      text column, 2 distinct values",
    ]
    table = inference.to_frame()
    assert table.columns.tolist() == ["name", "kind", "domain", "why"]
    assert table["name"].tolist() == ["income", "sex"]


def test_a_long_domain_is_shortened_to_its_ends_and_size() -> None:
    text = describe_domain(Attribute.categorical("c", [f"value {i}" for i in range(100)]))
    assert text.startswith("{value 0, ")
    assert text.endswith(" ... value 99}, 100 values")
    assert len(text) < 60
    assert describe_domain(Attribute.integer("i", 3, 3, missing=True)) == "3 or missing"


def test_every_inferred_space_survives_json(make: Make) -> None:
    frame = make({"i": [1, 4, 4], "f": [0.1, 0.7, 0.2], "s": ["a", "b", "a"], "g_x": [1, 0, 0], "g_y": [0, 1, 1]})
    for mass in ("uniform", "data"):
        space = Space.infer(frame, mass=mass, sensitive=["s"]).space
        assert Space.from_json(space.to_json()) == space
        assert Space.from_data(frame, mass=mass, sensitive=["s"]) == space


# The five data sets

DATA = Path(os.environ.get("BOXQTE_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}; BOXQTE_DATA names their folder")
@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", ["adult", "bank", "compas", "credit", "lsac"])
def test_a_data_set_gives_the_domains_of_its_schema(name: str, library: str) -> None:
    schema = Space.load(DATA / f"{name}.schema.json")
    frame = read_table(DATA / f"{name}.csv") if library == "pandas" else pl.read_csv(DATA / f"{name}.csv")
    kinds = {kind: [a.name for a in schema if a.kind == kind] for kind in ("categorical", "integer")}
    space = Space.infer(frame, label=schema.label, sensitive=schema.sensitive, **kinds).space
    assert space.names == schema.names
    for attribute in schema:
        inferred = space[attribute.name]
        assert (inferred.kind, inferred.low, inferred.high, inferred.values) == (
            attribute.kind,
            attribute.low,
            attribute.high,
            attribute.values,
        )
    assert space.fingerprint() == schema.fingerprint()


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}; BOXQTE_DATA names their folder")
@pytest.mark.parametrize("name", ["adult", "bank", "compas", "credit", "lsac"])
def test_the_masses_of_a_data_set_are_its_frequencies(name: str) -> None:
    frame = read_table(DATA / f"{name}.csv")
    space = Space.infer(frame, label="label", mass="data").space
    for attribute in space:
        column = frame[attribute.name]
        if attribute.kind == "categorical":
            assert attribute.value_masses()[1] == Fraction(int((column == 1).sum()), len(column))
        else:
            middle = attribute.low + attribute.range / 2
            below = Fraction(int((column < float(middle)).sum()), len(column))
            assert attribute.histogram is not None
            exact = attribute.kind == "integer" and column.nunique() <= 256
            tolerance = 0 if exact else max(attribute.histogram.weights) / len(column)
            assert abs(attribute.mass_below(Fraction(-(-middle // 1)) if exact else middle) - below) <= tolerance
