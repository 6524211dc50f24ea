"""`boxqte test` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from boxqte.cli.main import main
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space

MODULE = """
import numpy as np

def decide(rows):
    return (rows[:, 0] + 3 * rows[:, 1] > 10).astype(int)

def table(frame):
    return ["yes" if a + 3 * (s == "m") > 10 else "no" for a, s in zip(frame["a"], frame["s"])]

class holder:
    decide = staticmethod(decide)

scores = lambda rows: rows[:, 0] / 7
number = 3
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mymodel.py").write_text(MODULE)
    (tmp_path / "broken_module.py").write_text("1 / 0")
    sex = Attribute.categorical("s", ["f", "m"], codes=[0, 1])
    Space([Attribute.integer("a", 0, 20), sex, Attribute.real("r", 0, 1)]).save("space.json")

    def command(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(["test", *line.split()])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_the_inputs_go_to_a_table_and_the_figures_to_a_file(run: Any) -> None:
    code, out, err = run("mymodel:decide --space space.json --sensitive s --method themis --tests 400 --seed 1 "
                         "-o idis.csv --json figures.json")  # fmt: skip
    assert (code, err) == (0, "")
    table = pd.read_csv("idis.csv")
    figures = json.loads(Path("figures.json").read_text())
    assert list(table.columns) == ["a", "s", "r", "partner_s"]
    assert table["a"].between(8, 10).all()
    assert set(zip(table["s"], table["partner_s"])) == {("f", "m"), ("m", "f")}
    assert figures["idis"] == len(table) > 0
    assert (figures["tests"], figures["status"]) == (400, "tests")
    assert f"{len(table):,} distinct" in out
    assert "themis, fixed, batches; sensitive: s" in out


def test_a_function_of_a_table_and_a_dotted_name(run: Any) -> None:
    line = "--space space.json --sensitive s --method themis --tests 400 --seed 1 --json -"
    one = json.loads(run(f"mymodel:table --input frame {line}")[1])
    two = json.loads(run(f"mymodel:holder.decide {line}")[1])
    assert one["first"] == two["first"]


def test_options_modes_and_variants_reach_the_tester(run: Any) -> None:
    code, out, _ = run("mymodel:decide --space space.json --sensitive s --method aft --tests 50 --seed 0 --one-at-a-time "
                       "--variant faithful --option points=300 --json -")  # fmt: skip
    figures = json.loads(out)
    assert code == 0
    assert (figures["batch"], figures["variant"], figures["tests"]) == (False, "faithful", 50)
    assert figures["rows"] == 300 + 2 * 50


def test_progress_is_plain_lines_where_there_is_no_terminal(run: Any) -> None:
    _, _, err = run("mymodel:decide --space space.json --sensitive s --method themis --seconds 4")
    assert len(err.splitlines()) == 1
    assert " tests, " in err
    assert "\r" not in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nothing.json", "nothing.json: no such file"),
        ("nothing:decide", "nothing:decide: the module cannot be imported: ModuleNotFoundError"),
        ("broken_module:decide", "the module cannot be imported: ZeroDivisionError: division by zero"),
        ("mymodel:missing", "mymodel:missing: 'mymodel' has no 'missing'"),
        ("mymodel:", "not of the form module:function"),
        ("mymodel:number", "int object: not a black box"),
        ("mymodel:scores", "expected class labels, not scores"),
        ("mymodel:decide --method adf", "invalid choice: 'adf'"),
        ("mymodel:decide --option speed=1", "tester 'themis': option 'speed' is unknown"),
        ("mymodel:decide --tests many", "expected a whole number, found 'many'"),
        ("mymodel:decide --seconds -1", "seconds: must be above 0"),
        ("mymodel:decide -o no/such/folder.csv", "there is no directory"),
        ("mymodel:decide --data none.csv", "none.csv"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run: Any, line: str, words: str) -> None:
    tests = "" if "--seconds" in line or "--tests" in line else "--tests 50"
    method = "" if "--method" in line else "--method themis"
    code, _, err = run(f"{line} --space space.json --sensitive s {method} {tests}")
    assert code == 2
    assert err.startswith("boxqte: error: ")
    assert words in err
    assert len(err.splitlines()) == 1
