"""Dummies of pandas: recognised as one attribute, declared as one, or named in a note where they are taken one by one."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from boxqte import Fairness, Space, audit, quantify
from boxqte.cli.main import main

RACES = ("Asian", "Black", "White", "other")


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
