"""`boxqte blame`: the table of the library, as text and as CSV."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from boxqte import Fairness, Space, quantify
from boxqte.cli.main import main

LINE = ["blame", "model.json", "--space", "space.json", "--sensitive", "race", "--quiet"]


@pytest.mark.usefixtures("folder")
def test_the_text_has_every_tree_and_says_whether_it_is_one_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LINE, "--data", "people.csv", "--label", "granted"]) == 0
    out = capsys.readouterr().out
    table = quantify("model.json", Space.load("space.json"), Fairness("race")).blame(
        pd.read_csv("people.csv"), "granted"
    )
    for tree in table["tree"].unique():
        assert f"\ntree {tree}" in out
    assert f"{table['tree'].nunique()} of 12 trees test race; blinding tree {table.loc[0, 'tree']} alone removes" in out
    assert "the child that more of 400 rows reach stays; the model's log-loss on them is" in out


@pytest.mark.usefixtures("folder")
def test_csv_is_the_whole_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LINE, "--top", "1", "--csv", "-"]) == 0
    read = pd.read_csv(io.StringIO(capsys.readouterr().out), keep_default_na=False)
    table = quantify("model.json", Space.load("space.json"), Fairness("race")).blame()
    assert read["tree"].tolist() == table["tree"].tolist()
    assert read["split"].tolist() == table["split"].tolist()


def test_the_most_trees_shown_and_a_limit_are_said(folder: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    assert main([*LINE, "--top", "1", "--trees-only", "--time-limit", "60"]) == 0
    out = capsys.readouterr().out
    assert "... and 3 more trees" in out
    assert out.count("\ntree ") == 1


@pytest.mark.usefixtures("folder")
def test_the_report_has_the_table() -> None:
    assert main([*LINE, "--data", "people.csv", "--label", "granted", "--html", "report.html"]) == 0
    page = Path("report.html").read_text()
    assert "Which trees are to blame" in page
    assert "tree 11: race in [0, 1] (node 1)" in page
    assert "alone removes" in page
