"""One-hot groups: recognised as one attribute, declared as one, or named in a note where the columns are taken one by one."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from boxqte import Fairness, Space, audit, quantify
from boxqte.cli.main import main
from boxqte.space.attributes import Attribute
from tests.space.inferring import Make, refusal, why

RACES = ("Asian", "Black", "White", "other")
NAN = float("nan")


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


# Dummies of pandas


def people(n: int = 200, **options: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(20, 60, n), "race": rng.choice(RACES, n)})
    return pd.get_dummies(table, columns=["race"], **options)


def test_dummies_are_one_attribute_of_all_values() -> None:
    inference = Space.infer(people())
    assert inference.space.names == ("age", "race")
    assert inference.space["race"].values == RACES
    assert inference.notes == ()


@pytest.mark.parametrize("dtype", [bool, int, float])
def test_dummies_without_the_first_are_one_attribute_with_a_value_for_rows_of_zeros(dtype: type) -> None:
    inference = Space.infer(people(drop_first=True, dtype=dtype))
    race = inference.space["race"]
    assert race.values == ("Black", "White", "other", "(none)")
    assert race.codes == ((1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0))
    assert "never two of them 1" in inference.decisions[1].why
    assert "rows of zeros are the value (none)" in inference.decisions[1].why


def test_the_rows_of_zeros_have_their_share_of_the_mass() -> None:
    table = people(drop_first=True)
    race = Space.infer(table, mass="data").space["race"]
    zeros = int((table.filter(like="race_").sum(axis=1) == 0).sum())
    assert race.value_masses()[-1] == Fraction(zeros, len(table))


def test_a_measure_counts_the_dropped_value_and_no_input_with_two_ones() -> None:
    table = people(drop_first=True, dtype=int)
    y = (table["age"] > 40) ^ (table["race_Black"] == 1) & (table["age"] > 30)
    model = DecisionTreeClassifier(max_depth=4, random_state=0).fit(table, y)
    space = Space.infer(table, model=model).space
    codes = ((1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0))
    ages = range(int(table["age"].min()), int(table["age"].max()) + 1)
    label = {(age, code): model.predict(pd.DataFrame([[age, *code]], columns=table.columns))[0]
             for age, code in product(ages, codes)}  # fmt: skip
    unfair = [x for x in label if any(label[x[0], code] != label[x] for code in codes)]
    assert unfair
    result = quantify(model, space, Fairness(["race"]))
    assert result.lower <= 1 - Fraction(len(unfair), len(label)) <= result.upper


def test_flags_that_might_be_dummies_are_taken_one_by_one_with_a_note_that_says_how_to_declare_them() -> None:
    table = {"has_car": [1, 0, 0, 0], "has_boat": [0, 1, 0, 0], "age": [1, 2, 3, 4]}
    inference = Space.infer(table)
    assert inference.space.names == ("has_car", "has_boat", "age")
    (note,) = inference.notes
    assert note.startswith(
        "note: has_car, has_boat are taken one by one, but has_* are 0 or 1, never two of them 1 (0.25"
    )
    assert note.endswith("if they are one attribute, one_hot={'has': ['has_car', 'has_boat']}")
    assert str(inference).splitlines()[-1] == note
    declared = Space.infer(table, one_hot={"has": ["has_car", "has_boat"]})
    assert declared.space["has"].values == ("car", "boat", "(none)")
    assert declared.notes == ()


def test_flags_of_which_two_are_one_together_are_no_dummies() -> None:
    table = {"has_car": [1, 0, 0, 1], "has_boat": [0, 1, 0, 1]}
    inference = Space.infer(table)
    assert inference.space.names == ("has_car", "has_boat")
    assert inference.notes == ()


def test_a_group_without_rows_of_zeros_comes_before_a_larger_one_with_them() -> None:
    one = np.arange(300) % 3
    table = {f"a_b_{k}": (one == k).astype(int) for k in range(3)}
    assert Space.infer(table).space.names == ("a_b",)
    rare = {"a_c": np.zeros(300, int), "a_d": (np.arange(300) == 5).astype(int)}  # 1 where a_b_2 is
    assert Space.infer(table | rare).space.names == ("a_b", "a_c", "a_d")


def test_none_takes_every_column_by_itself_and_says_what_it_breaks_up() -> None:
    inference = Space.infer(people(), one_hot=None)
    assert inference.space.names == ("age", *(f"race_{race}" for race in RACES))
    assert len(inference.notes) == 1
    assert "race_Asian, race_Black" in inference.notes[0]


def test_groups_that_are_declared_leave_the_others_to_be_recognised() -> None:
    table = people()
    table["job_a"], table["job_b"] = table["age"] > 40, table["age"] <= 40
    table["x1"], table["x2"] = table["age"] > 30, table["age"] < 25
    space = Space.infer(table, one_hot={"x": ["x1", "x2"]}).space
    assert space.names == ("age", "race", "job", "x")


# ---------------------------------------------------------------------------------------------------------------------
# On the command line


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "people.csv"
    people(drop_first=True, dtype=int).assign(has_car=0, has_boat=0).to_csv(path, index=False)
    return str(path)


def inferred(table: str, tmp_path: Path, *more: str) -> list[str]:
    space = tmp_path / "space.json"
    assert main(["space", "infer", table, "-o", str(space), *more]) == 0
    return [attribute["name"] for attribute in json.loads(space.read_text())["attributes"]]


def test_groups_are_declared_on_the_command_line(table: str, tmp_path: Path) -> None:
    assert inferred(table, tmp_path) == ["age", "race", "has_car", "has_boat"]
    declared = ["--one-hot", "group=race_Black,race_White", "--one-hot", "has=has_car,has_boat"]
    assert inferred(table, tmp_path, *declared) == ["age", "group", "race_other", "has"]
    one_by_one = ["age", "race_Black", "race_White", "race_other", "has_car", "has_boat"]
    assert inferred(table, tmp_path, "--one-hot", "none") == one_by_one


@pytest.mark.parametrize(("given", "message"), [
    (["race"], "--one-hot: expected name=column,column or none, found 'race'"),
    (["race="], "--one-hot: expected name=column,column or none, found 'race='"),
    (["race=race_Black,race_Green"], "--one-hot race: there is no column 'race_Green'"),
    (["r=race_Black,age"], "--one-hot r: column 'age' must be 0 or 1 in every row"),
    (["r=race_Black,race_White", "--one-hot", "r=has_car,has_boat"], "--one-hot: 'r' is given twice"),
])  # fmt: skip
def test_what_is_wrong_with_a_group_is_said_in_the_words_of_the_command(
    table: str, tmp_path: Path, given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["space", "infer", table, "-o", str(tmp_path / "s.json"), "--one-hot", *given]) == 2
    assert message in capsys.readouterr().err


def test_the_note_on_lookalikes_is_a_command_that_can_be_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("has_car,has_boat\n1,0\n0,1\n0,0\n")
    inferred(str(path), tmp_path)
    assert "if they are one attribute, --one-hot has=has_car,has_boat" in capsys.readouterr().out


def test_an_audit_takes_groups_and_its_report_has_the_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = people(60, drop_first=True, dtype=int).assign(has_car=[1, *[0] * 59], has_boat=[0, 1, *[0] * 58])
    y = table["age"] + 10 * table["race_Black"] > 40
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(table, y)
    found = audit(model, table, sensitive=["race"], report=True, robustness=0)
    assert "has_car, has_boat are taken one by one" in found.to_html()
    declared = audit(model, table, sensitive=["has"], infer={"one_hot": {"has": ["has_car", "has_boat"]}}, robustness=0)
    assert declared.space["has"].values == ("car", "boat", "(none)")
    settings = tmp_path / "boxqte.toml"
    settings.write_text('[audit]\none-hot = {has = ["has_car", "has_boat"]}\n')
    path = tmp_path / "t.csv"
    table.assign(label=y.astype(int)).to_csv(path, index=False)
    import pickle

    (tmp_path / "m.pkl").write_bytes(pickle.dumps(model))
    line = ["audit", str(tmp_path / "m.pkl"), "--allow-pickle", "--data", str(path), "--label", "label"]
    assert main([*line, "--sensitive", "has", "--one-hot", "has=has_car,has_boat", "--robustness-rate", "0"]) == 0
    assert "{car, boat, (none)}" in capsys.readouterr().out
