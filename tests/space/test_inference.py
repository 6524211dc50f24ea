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

from boxqte.space.attributes import Attribute
from boxqte.space.inference import describe_domain
from boxqte.space.space import Space
from boxqte.space.tables import read_table
from tests.space.inferring import Make, refusal, why

NAN = float("nan")


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


def test_the_label_is_no_attribute_and_is_not_inferred_about() -> None:
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
