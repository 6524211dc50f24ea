"""Bad input is one line and exit 2, whatever is wrong with it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.cli.loans import QUANTIFY, SPACE
from tests.conformance.mutations import mutate_bytes, mutate_document


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("quantify none.json --space space.json", "none.json: no such file"),
        ("quantify . --space space.json", ".: not a file"),
        ("quantify empty --space space.json", "empty: the file is empty"),
        ("quantify noise --space space.json", "noise: this is a "),
        ("quantify truncated.json --space space.json", "truncated.json: "),
        ("quantify data.csv --space space.json", "data.csv: this is a CSV table, which is data and no model"),
        (f"quantify {'x' * 300} --space space.json", "name too long"),
        ("quantify model.json", "the following arguments are required: --space"),
        ("quantify model.json --space none.json", "none.json: no such file"),
        ("quantify model.json --space .", ".: cannot be read: Is a directory"),
        ("quantify model.json --space broken.json", "broken.json: not valid JSON"),
        ("quantify model.json --space list.json", "list.json: expected an object with 'attributes'"),
        ("quantify model.json --space upside.json", "upside.json: attribute 'age': low 9 is above high 1"),
        ("quantify model.json --space noise", "noise: not valid JSON"),
        ("quantify model.json --space two.json", "a column 'age' that no attribute of the space feeds"),
        ("quantify model.json --space four.json", "a column 'height' that the model does not take"),
        ("quantify model.json --space texts.json", "attribute 'race': value 'a' is text"),
        (f"{QUANTIFY} --sensitive sex", "sensitive: 'sex' is not an attribute; attributes are income, race, age"),
        (f"{QUANTIFY} --sensitive race,race", "sensitive: 'race' is named twice"),
        (f"{QUANTIFY} --sensitive race,,age", "--sensitive: an empty name in 'race,,age'"),
        (f"{QUANTIFY} --sensitive=", "--sensitive: an empty name"),
        (f"{QUANTIFY} --kappa 1", "kappa: must be at least 0 and below 1, found 1"),
        (f"{QUANTIFY} --kappa 1.5", "kappa: must be at least 0 and below 1, found 1.5"),
        (f"{QUANTIFY} --kappa high", "kappa: expected a finite number, found 'high'"),
        (f"{QUANTIFY} --kappa nan", "kappa: expected a finite number, found 'nan'"),
        (f"{QUANTIFY} --epsilon-rate -0.1", "--epsilon-rate: must be at least 0, found -0.1"),
        (f"{QUANTIFY} --epsilon-rate 1/0", "--epsilon-rate: expected a finite number"),
        (f"{QUANTIFY} --epsilon age=-1", "epsilon of 'age': must be at least 0, found -1"),
        (f"{QUANTIFY} --epsilon age=old", "epsilon of 'age': expected a finite number, found 'old'"),
        (f"{QUANTIFY} --epsilon income=5,age", "--epsilon: expected name=value, found 'age'"),
        (f"{QUANTIFY} --epsilon 5", "--epsilon: expected name=value, found '5'; one number for all is --epsilon-rate"),
        (f"{QUANTIFY} --epsilon =5", "--epsilon: expected name=value, found '=5'"),
        (f"{QUANTIFY} --epsilon age=1,age=2", "--epsilon: 'age' is given twice"),
        (f"{QUANTIFY} --epsilon height=1", "epsilon: 'height' is not an attribute"),
        (f"{QUANTIFY} --epsilon race=1", "epsilon: 'race' is categorical, its tolerance can only be 0"),
        (f"{QUANTIFY} --sensitive age --epsilon age=1", "epsilon: 'age' is sensitive"),
        (f"{QUANTIFY} --epsilon age=1 --epsilon-rate 0.1", "not allowed with argument"),
        (f"{QUANTIFY} --tie mine", "argument --tie: invalid choice"),
        (f"{QUANTIFY} --engine steam", "engine: 'steam' is unknown; engines are "),
        (f"{QUANTIFY} --option depth=1", "option 'depth' is unknown; options are max_cells"),
        (f"{QUANTIFY} --option max_cells=many", "option 'max_cells' takes int, found 'many'"),
        (f"{QUANTIFY} --option max_cells", "option 'max_cells': expected name=value"),
        (f"{QUANTIFY} --option max_cells=3", "more than max_cells = 3"),
        (f"{QUANTIFY} --time-limit 0", "--time-limit: must be above 0 seconds, found 0"),
        (f"{QUANTIFY} --time-limit soon", "argument --time-limit: expected a number, found 'soon'"),
        (f"{QUANTIFY} --time-limit nan", "--time-limit: expected a number of seconds, found nan"),
        (f"{QUANTIFY} --gap 2", "gap: must lie between 0 and 1, found 2.0"),
        (f"{QUANTIFY} --workers 0", "workers: must be at least 1, found 0"),
        (f"{QUANTIFY} --workers 1.5", "argument --workers: expected a whole number, found '1.5'"),
        (f"{QUANTIFY} --memory-limit lots", "argument --memory-limit: expected bytes, such as 4G or 500M"),
        (f"{QUANTIFY} --memory-limit 0", "--memory-limit: must be at least 1 bytes, found 0"),
        (f"{QUANTIFY} --node-limit 0", "--node-limit: must be at least 1, found 0"),
        (f"{QUANTIFY} --json .", "--json .: is a directory, expected a file"),
        (f"{QUANTIFY} --json none/out.json", "--json none/out.json: there is no directory 'none'"),
        (f"{QUANTIFY} --json data.csv/out.json", "there is no directory 'data.csv'"),
        (f"{QUANTIFY} --json=", "--json: the file name is empty"),
        (f"{QUANTIFY} --json {'x' * 300}", "x: File name too long"),
        (f"{QUANTIFY} --wish 0.9", "unrecognized arguments: --wish"),
        (f"{QUANTIFY} --time 3", "unrecognized arguments: --time; did you mean --time-limit?"),
        ("", "the following arguments are required: COMMAND"),
        ("guess", "invalid choice: 'guess'"),
        ("space", "the following arguments are required: COMMAND"),
        ("model", "the following arguments are required: COMMAND"),
        ("space infer data.csv", "the following arguments are required: -o/--output"),
        ("space infer none.csv -o s.json", "none.csv: no such file"),
        ("space infer . -o s.json", ".: not a file"),
        ("space infer empty -o s.json", "empty: the file is empty"),
        ("space infer gaps.csv -o s.json", "column 'age': 1 missing value, the first in row 1"),
        ("space infer data.csv --label colour -o s.json", "label: there is no column 'colour'"),
        ("space infer data.csv --sensitive colour -o s.json", "sensitive: 'colour' is not an attribute"),
        ("space infer data.csv --real sex -o s.json", "real: 'sex' cannot be real, row 0 holds"),
        ("space infer data.csv --real age --integer age -o s.json", "'age' is named in both integer and real"),
        ("space infer data.csv --missing maybe -o s.json", "argument --missing: invalid choice"),
        ("space infer data.csv -o none/s.json", "--output none/s.json: there is no directory 'none'"),
        ("space infer data.csv -o .", "--output .: is a directory"),
        ("space infer data.csv --model none.json -o s.json", "none.json: no such file"),
        ("space show none.json", "none.json: no such file"),
        ("space show model.json", "model.json.attributes: missing"),
        ("model show none.json", "none.json: no such file"),
        ("model show forest.pkl", "forest.pkl: is a pickle"),
        ("model show model.json --json none/m.json", "there is no directory 'none'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run: Any, line: str, said: str) -> None:
    code, out, err = run(line)
    assert code == 2
    assert out == ""
    assert err.startswith("boxqte: error: ")
    assert err.count("\n") == 1
    assert said.lower() in err.lower()


def test_no_output_file_is_made_when_the_input_is_bad(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    assert run(f"{QUANTIFY} --sensitive sex --json {path}")[0] == 2
    assert not path.exists()


def test_an_unwritable_file_is_refused_before_the_run(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    monkeypatch.setattr("boxqte.api.quantify.quantify", None)
    assert "--json model.json: cannot be written" in run(f"{QUANTIFY} --json model.json")[2]
    assert "--json new.json: nothing can be written in '.'" in run(f"{QUANTIFY} --json new.json")[2]


def test_the_answer_is_printed_even_if_the_file_cannot_be_written_after_all(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    code, out, err = run(f"{QUANTIFY} --sensitive race --json result.json")
    assert code == 2
    assert "measure" in out
    assert err == "boxqte: error: result.json: cannot be written: No space left on device\n"


def test_names_with_line_ends_stay_on_one_line(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    Space([Attribute.integer("a\nb\x1b", 0, 3)]).save(path)
    code, _, err = run(f"quantify model.json --space {path} --sensitive c")
    assert code == 2
    assert err.count("\n") == 1
    assert "a\\nb\\x1b" in err


def test_an_unknown_error_keeps_its_traceback(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("boxqte.api.quantify.quantify", bug)
    with pytest.raises(RuntimeError, match="a bug"):
        run(QUANTIFY)


def test_mutated_spaces_are_refused_or_read(run: Any, tmp_path: Path) -> None:
    rich = SPACE.with_mass({"race": [1, 2, 3, 4]}).to_json()
    rich["attributes"].append(Attribute.one_hot("job", ["job_a", "job_b"], labels=["A", "B"]).to_json())
    rich["attributes"][0] |= {"missing": 0.25, "mass": {"edges": [0, 100, 1000], "weights": [1, 3]}}
    path = tmp_path / "space.json"
    codes = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        if seed % 3:
            path.write_text(json.dumps(mutate_document(rich, rng)[0]))
        else:
            path.write_bytes(mutate_bytes(json.dumps(rich).encode(), rng))
        code, _, err = run(f"space show {path}")
        assert code == 0 or (code == 2 and err.count("\n") == 1 and err.startswith("boxqte: error: ")), err
        codes.append(code)
    assert 150 < codes.count(2) < 300


def test_mutated_models_are_refused_or_shown(run: Any, files: Path, tmp_path: Path) -> None:
    document = json.loads((files / "model.json").read_text())
    path = tmp_path / "model.json"
    codes = []
    for seed in range(60):
        path.write_text(json.dumps(mutate_document(document, np.random.default_rng(seed))[0]))
        code, _, err = run(f"model show {path}")
        assert code == 0 or (code == 2 and err.count("\n") == 1 and err.startswith("boxqte: error: ")), err
        codes.append(code)
    assert 20 < codes.count(2) < 60
