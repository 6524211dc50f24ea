"""The command `boxqte`: what it prints, what it writes, its exit codes, and that bad input is one line and exit 2."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import boxqte
from boxqte.cli.main import main
from boxqte.engines import ENGINES
from boxqte.engines.protocol import ALONE, Capability, Companions, Decided, Limits, Outcome, Progress, Status, Watch
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.conformance.mutations import mutate_bytes, mutate_document

Run = tuple[int, str, str]


def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "income": rng.uniform(0, 1000, 200).round(2),
            "race": rng.integers(0, 4, 200),
            "age": rng.integers(18, 80, 200),
            "sex": rng.choice(["f", "m"], 200),
        }
    )


def granted(frame: pd.DataFrame) -> Any:
    points = [frame["income"] > 400, frame["age"] > 50, frame["race"] == 2]
    return (sum(point.astype(int) for point in points) > 1).astype(int)


SPACE = Space(
    [Attribute.real("income", 0, 1000), Attribute.categorical("race", range(4)), Attribute.integer("age", 18, 80)],
    label="granted",
    sensitive=["race"],
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its space, its data, and things that are none of these."""
    folder = tmp_path_factory.mktemp("cli")
    frame = people()
    X, y = frame[["income", "race", "age"]], granted(frame)
    model = xgboost.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1).fit(X, y)
    model.save_model(folder / "model.json")
    SPACE.save(folder / "space.json")
    frame.assign(granted=y).to_csv(folder / "data.csv", index=False)
    (folder / "gaps.csv").write_text("age,granted\n31,0\n,1\n52,1\n")
    (folder / "empty").write_text("")
    (folder / "truncated.json").write_text((folder / "model.json").read_text()[:3000])
    (folder / "broken.json").write_text('{"attributes": [')
    (folder / "list.json").write_text("[]")
    (folder / "upside.json").write_text('{"attributes": [{"name": "age", "kind": "integer", "low": 9, "high": 1}]}')
    (folder / "noise").write_bytes(np.random.default_rng(1).bytes(500))
    pd.to_pickle(RandomForestClassifier(2, max_depth=2).fit(X, y), folder / "forest.pkl")
    Space(SPACE.attributes[:2]).save(folder / "two.json")
    Space([*SPACE, Attribute.integer("height", 0, 9)]).save(folder / "four.json")
    SPACE.with_attribute(Attribute.categorical("race", ["a", "b"])).save(folder / "texts.json")
    return folder


@pytest.fixture
def run(files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line in the folder: its exit code, standard output and standard error."""
    monkeypatch.chdir(files)

    def command(line: str, *more: str) -> Run:
        capsys.readouterr()
        try:
            code = main([*line.split(), *more])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return command


def shell(*arguments: str, cwd: Path | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    line = [sys.executable, "-m", "boxqte", *arguments]
    return subprocess.run(line, cwd=cwd, text=True, timeout=120, check=False, **{"capture_output": True, **options})


QUANTIFY = "quantify model.json --space space.json --engine exhaustive"


# --- quantify ---


def test_quantify_prints_measure_guarantee_status_engine_and_masses(run: Any) -> None:
    code, out, err = run(f"{QUANTIFY} --sensitive race")
    result = boxqte.quantify("model.json", "space.json", boxqte.Fairness("race"), engine="exhaustive")
    assert (code, err) == (0, "")
    shown = {line[:20].strip(): line[21:] for line in out.splitlines()}
    assert shown["question"] == "fairness (sensitive race; epsilon rate 0; kappa 0.5)"
    assert shown["measure"].startswith(f"{result.value:.12f} (exact")
    assert shown["guarantee"] == "exact rational arithmetic"
    assert shown["status"] == "converged"
    assert shown["engine"].startswith("exhaustive, ")
    assert shown["confident mass"] == "1 (exact)"
    assert float(shown["counterexample mass"].split(" (")[0]) == pytest.approx(result.counterexample.lower, abs=1e-11)
    assert "rounding_ambiguous" in shown
    assert shown["input_rounding"].startswith("at most ")
    for line in result.semantics():
        assert line[:40] in out


def test_quantify_without_sensitive_is_robustness(run: Any) -> None:
    code, out, err = run(f"{QUANTIFY} --epsilon-rate 0.1")
    assert code == 0
    assert "robustness (epsilon rate 0.1; kappa 0.5)" in out
    assert err == "boxqte: note: this is robustness; for fairness, --sensitive race (marked in the space)\n"


def test_quantify_says_when_the_question_is_trivial(run: Any) -> None:
    code, out, err = run(QUANTIFY)
    assert code == 0
    assert "every input is robust" in err
    assert "100 % of the confident inputs are robust" in out


def test_quiet_leaves_out_the_notes(run: Any) -> None:
    assert run(f"{QUANTIFY} --quiet")[2] == ""


def test_numbers_are_read_as_they_are_written(run: Any) -> None:
    code, out, _ = run(f"{QUANTIFY} --sensitive race --epsilon-rate 1/3 --kappa 0.7 --json -")
    assert code == 0
    assert json.loads(out)["property"] == {
        "kind": "fairness", "sensitive": ["race"], "epsilon_rate": "1/3", "kappa": 0.7, "tie": "library"
    }  # fmt: skip


def test_epsilon_takes_tolerances_by_name(run: Any) -> None:
    code, out, _ = run(f"{QUANTIFY} --sensitive race --tie paper --json - --epsilon", "income = 0.1, age=2")
    assert code == 0
    assert json.loads(out)["property"]["epsilon"] == {"income": 0.1, "age": 2}
    assert json.loads(out)["property"]["tie"] == "paper"


def test_names_with_commas_and_equals_signs_can_be_given(run: Any, tmp_path: Path) -> None:
    odd = Space(
        [Attribute.real("a=b", 0, 1000), Attribute.categorical("c,d", range(4)), Attribute.integer("e", 18, 80)]
    )
    odd.save(tmp_path / "odd.json")
    model = xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1)
    model.fit(people()[["income", "race", "age"]].to_numpy(), granted(people()))
    model.save_model(tmp_path / "unnamed.json")
    line = ["quantify", f"{tmp_path}/unnamed.json", "--space", f"{tmp_path}/odd.json", "--json", "-"]
    code, out, _ = run(" ".join(line), "--sensitive", '"c,d"', "--epsilon", "a=b=5", "--epsilon", "e=1")
    assert code == 0
    assert json.loads(out)["property"]["sensitive"] == ["c,d"]
    assert json.loads(out)["property"]["epsilon"] == {"a=b": 5, "e": 1}


def test_several_sensitive_attributes_are_one_set(run: Any) -> None:
    both = run(f"{QUANTIFY} --sensitive race,age --json -")[1]
    apart = run(f"{QUANTIFY} --sensitive race --sensitive age --json -")[1]
    assert json.loads(both)["measure"] == json.loads(apart)["measure"]
    assert json.loads(both)["property"]["sensitive"] == ["race", "age"]


def test_the_json_file_holds_the_whole_result(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    code, out, _ = run(f"{QUANTIFY} --sensitive race --kappa 0.6 --json {path}")
    assert code == 0
    assert out.startswith("question")
    result = json.loads(path.read_text())
    assert set(result["measure"]) >= {"lower", "upper", "value", "converged"}
    assert result["measure"]["converged"] is True
    assert 0 <= result["measure"]["lower"] <= result["measure"]["value"] <= result["measure"]["upper"] <= 1
    for mass in ("confident", "counterexample"):
        low, high = result["mass"][mass]
        assert 0 <= low <= high <= 1
    assert result["mass"]["rounding_ambiguous"] >= 0
    assert result["status"] == "converged"
    assert result["engine"] == "exhaustive"
    assert result["seconds"] >= 0
    assert result["property"] == {
        "kind": "fairness", "sensitive": ["race"], "epsilon_rate": 0, "kappa": 0.6, "tie": "library"
    }  # fmt: skip
    assert result["model"]["library"] == "xgboost"
    assert result["model"]["trees"] == 4
    assert result["model"]["leaves"] > 4
    for seconds, lower, upper in result["trace"]:
        assert seconds >= 0
        assert 0 <= lower <= upper <= 1
    assert result["trace"][-1][1:] == [result["measure"]["lower"], result["measure"]["upper"]]


def test_json_to_standard_output_is_json_alone(run: Any) -> None:
    code, out, _ = run(f"{QUANTIFY} --sensitive race --json -")
    assert code == 0
    assert json.loads(out)["measure"]["converged"] is True


def test_an_undefined_measure_is_said_in_words(run: Any) -> None:
    code, out, _ = run(f"{QUANTIFY} --sensitive race --kappa 0.9999")
    assert code == 0
    assert "undefined: no input is confident at kappa 0.9999" in out
    result = json.loads(run(f"{QUANTIFY} --sensitive race --kappa 0.9999 --json -")[1])
    assert result["measure"] == {"lower": None, "upper": None, "value": None, "exact": None, "converged": True}


def test_a_pickle_is_read_only_when_it_is_allowed(run: Any) -> None:
    line = "quantify forest.pkl --space space.json --sensitive race"
    code, _, err = run(line)
    assert code == 2
    assert "--allow-pickle" in err
    assert run(f"{line} --allow-pickle")[0] == 0


@dataclass(frozen=True)
class StoppingOptions:
    """Options of an engine that stops early."""

    status: str = "time limit"
    """Why it
    stops."""
    boxes: int | None = None
    share: float = 0.5


class Stopping:
    """Reports some bounds for a while and stops.

    For these tests only.
    """

    name = "stopping"
    Options = StoppingOptions
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    def __init__(self, options: StoppingOptions):
        self.options = options

    def run(self, grid: Any, limits: Limits, watch: Watch, companions: Companions = ALONE) -> Outcome:
        decided = Decided(fair=self.options.share, unfair=0.125, low=0.125)
        watch.report(decided, nodes=7, open_boxes=3)
        return Outcome(decided, Status(self.options.status), None, {"limits": repr(limits)})


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "an_engine_that_stops", SimpleNamespace(Stopping=Stopping))
    monkeypatch.setitem(ENGINES, "stopping", "an_engine_that_stops:Stopping")


@pytest.mark.usefixtures("stopping")
def test_a_run_that_ends_early_prints_its_bounds_and_exits_with_0(run: Any) -> None:
    code, out, _ = run(f"{QUANTIFY} --sensitive race --engine stopping")
    assert code == 0
    assert "between 0.571428571428 and 0.857142857143" in out  # 4/7 and 6/7, rounded outward
    assert "time limit" in out
    assert "certain bounds" in out
    assert re.search(r"confident mass +1 \(exact\)", out)  # every input is confident at kappa 0.5, whatever is decided
    assert "not computed by this engine" in out


@pytest.mark.usefixtures("stopping")
def test_an_interrupted_run_prints_its_bounds_and_exits_with_130(run: Any) -> None:
    code, out, _ = run(f"{QUANTIFY} --sensitive race --engine stopping --option", "status=interrupted")
    assert code == 130
    assert "between 0.571428571428 and 0.857142857143" in out


@pytest.mark.usefixtures("stopping")
def test_limits_reach_the_engine(run: Any) -> None:
    limits = "--time-limit 2.5 --gap 0.25 --workers 3 --memory-limit 1.5G --node-limit 1e6"
    code, out, _ = run(f"{QUANTIFY} --sensitive race --engine stopping --json - {limits}")
    assert code == 0
    assert json.loads(out)["details"]["limits"] == repr(
        Limits(time_limit=2.5, gap=0.25, node_limit=10**6, memory_limit=3 * 2**29, workers=3)
    )


@pytest.mark.parametrize(
    ("text", "expected"), [("123", 123), ("2k", 2048), ("1M", 2**20), ("4G", 2**32), ("4GiB", 2**32), ("1TB", 2**40)]
)
@pytest.mark.usefixtures("stopping")
def test_memory_is_given_in_bytes_or_with_a_unit(run: Any, text: str, expected: int) -> None:
    out = run(f"{QUANTIFY} --sensitive race --engine stopping --json - --memory-limit {text}")[1]
    assert f"memory_limit={expected}," in json.loads(out)["details"]["limits"]


@pytest.mark.usefixtures("stopping")
def test_progress_lines_go_to_standard_error_every_few_seconds(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxqte.report.progress.PLAIN_SECONDS", 0.0)
    _, out, err = run(f"{QUANTIFY} --sensitive race --engine stopping")
    assert "measure between 0.571428 and 0.857143 (certain), decided 75.00 %, 7 nodes, 3 open" in err
    assert "7 nodes" not in out
    assert "7 nodes" not in run(f"{QUANTIFY} --sensitive race --engine stopping --quiet")[2]


def test_progress_lines_keep_their_distance(capsys: pytest.CaptureFixture[str]) -> None:
    from boxqte.report.progress import PLAIN_SECONDS, PlainLines

    lines = PlainLines("", None, sys.stderr)
    for tenths in range(100):
        lines(Progress(tenths / 10, 0.0, 1.0, 0.0, tenths, 0))
    assert len(capsys.readouterr().err.splitlines()) == int(9.9 / PLAIN_SECONDS)


# --- errors ---


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


# --- space, model, engines, demo ---


def test_space_infer_writes_what_the_library_infers_and_says_why(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    code, out, err = run(f"space infer data.csv --label granted --sensitive sex,race --categorical race -o {path}")
    assert (code, err) == (0, "")
    assert "race       categorical  {0, 1, 2, 3}" in out
    assert f"written to {path}" in out
    frame = people().assign(granted=granted(people()))
    assert Space.load(path) == Space.from_data(frame, label="granted", sensitive=["sex", "race"], categorical=["race"])


def test_space_infer_to_standard_output_is_json_alone(run: Any) -> None:
    code, out, err = run("space infer data.csv --label granted --integer race --real age -o -")
    assert code == 0
    kinds = {a.name: a.kind for a in Space.from_json(json.loads(out))}
    assert kinds == {"income": "real", "race": "integer", "age": "real", "sex": "categorical"}
    assert "float column" in err


def test_space_infer_takes_rules_for_missing_values_and_mass(run: Any) -> None:
    space = Space.from_json(json.loads(run("space infer gaps.csv --label granted --missing declare -o -")[1]))
    assert space["age"].missing is not None
    space = Space.from_json(json.loads(run("space infer gaps.csv --missing ignore --mass data -o -")[1]))
    assert space["age"].missing is None
    assert space["age"].histogram is not None


def test_space_infer_reads_the_columns_of_a_model(run: Any, tmp_path: Path) -> None:
    frame = people()
    encoder = ColumnTransformer([("hot", OneHotEncoder(sparse_output=False), ["sex"])], remainder="passthrough")
    pipeline = make_pipeline(encoder, RandomForestClassifier(2, max_depth=3, random_state=0))
    pd.to_pickle(pipeline.fit(frame, granted(frame)), tmp_path / "pipeline.pkl")
    space = tmp_path / "space.json"
    line = f"space infer data.csv --label granted --model {tmp_path}/pipeline.pkl -o {space}"
    assert run(line)[0] == 2
    assert run(f"{line} --allow-pickle")[0] == 0
    assert (Space.load(space)["sex"].columns, Space.load(space)["sex"].values) == (("sex",), ("f", "m"))
    assert run(f"quantify {tmp_path}/pipeline.pkl --allow-pickle --space {space} --sensitive sex")[0] == 0


def test_space_show_prints_a_table(run: Any) -> None:
    code, out, _ = run("space show space.json")
    assert code == 0
    assert out.splitlines()[1].split() == ["income", "real", "[0,", "1000]", "uniform"]
    assert "marked as sensitive  race" in out
    assert SPACE.fingerprint() in out


def test_model_show_prints_what_the_model_is(run: Any) -> None:
    code, out, _ = run("model show model.json")
    ensemble = boxqte.load_model("model.json").ensemble
    assert code == 0
    for part in (
        "xgboost",
        f"4 with {ensemble.n_leaves} leaves, depth {ensemble.depth()}",
        "p = sigmoid(F)",
        "F = 0 is class 0",
        "ask whether x < t, x rounded to float32",
        "a missing value takes the node's own default side",
        ensemble.fingerprint(),
    ):
        assert part in out


def test_model_show_writes_json(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    assert run(f"model show model.json --json {path}")[0] == 0
    shown = json.loads(path.read_text())
    ensemble = boxqte.load_model("model.json").ensemble
    assert (shown["library"], shown["trees"], shown["leaves"]) == ("xgboost", 4, ensemble.n_leaves)
    assert shown["tests"] == {"LESS_F32": ensemble.n_nodes - ensemble.n_leaves}
    assert [feature["name"] for feature in shown["features"]] == ["income", "race", "age"]
    assert sum(feature["tests"] for feature in shown["features"]) == ensemble.n_nodes - ensemble.n_leaves
    assert json.loads(run("model show model.json --json -")[1]) == shown


def test_model_show_names_the_categories_and_a_pipeline_s_own_columns(run: Any, tmp_path: Path) -> None:
    frame = people().astype({"sex": "category"})
    model = xgboost.XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1, enable_categorical=True)
    model.fit(frame[["sex", "age"]], (frame["sex"] == "m").astype(int))
    model.save_model(tmp_path / "categories.json")
    assert "f, m" in run(f"model show {tmp_path}/categories.json")[1]
    pipeline = make_pipeline(OneHotEncoder(), RandomForestClassifier(2, max_depth=2))
    pd.to_pickle(pipeline.fit(people()[["sex"]], granted(people())), tmp_path / "pipeline.pkl")
    assert run(f"model show {tmp_path}/pipeline.pkl --allow-pickle")[1].splitlines()[-1].split() == [
        "sex",
        "2",
        "f,",
        "m",
    ]


def test_model_show_keeps_wide_models_short(run: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((50, 60))
    model = xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(X, X[:, 0] > 0.5)
    model.save_model(tmp_path / "wide.json")
    assert "... and 20 more columns" in run(f"model show {tmp_path}/wide.json")[1]


@pytest.mark.usefixtures("stopping")
def test_engines_lists_every_engine_and_option_with_its_help(run: Any) -> None:
    code, out, _ = run("engines")
    assert code == 0
    for name in ENGINES:
        assert f"\n{name}" in f"\n{out}"
    assert "stopping: Reports some bounds for a while and stops.\n" in out
    assert "--option max_cells=20000000 (int)" in out
    assert "--option status=time limit (str)\n      Why it stops.\n" in out
    assert "--option boxes=None (int or none)\n" in out


def test_demo_answers_the_papers_example(run: Any) -> None:
    code, out, _ = run("demo")
    assert code == 0
    measures = [float(line.split()[1]) for line in out.splitlines() if line.startswith("  measure")]
    assert measures == pytest.approx([352 / 505, 4379 / 4800, 49147 / 50500], abs=1e-11)
    assert out.count("converged in") == 3


# --- the command as a process ---


def test_help_imports_neither_numpy_nor_the_core() -> None:
    code = (
        "import sys\n"
        "from boxqte.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'boxqte._core', 'pandas', 'narwhals', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "quantify" in done.stdout


@pytest.mark.parametrize(
    "line", ["--help", "quantify --help", "space --help", "space infer --help", "space show --help", "model --help",
             "model show --help", "demo --help", "engines --help", "rates --help"]
)  # fmt: skip
def test_every_command_has_help(run: Any, line: str) -> None:
    code, out, err = run(line)
    assert (code, err) == (0, "")
    assert out.startswith("usage: boxqte")


def test_the_version_is_printed() -> None:
    done = shell("--version")
    assert (done.returncode, done.stdout) == (0, f"boxqte {boxqte.__version__}\n")


def test_a_closed_pipe_is_no_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "boxqte", "engines"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = shell("engines", stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert done.returncode == 2
    assert done.stderr == "boxqte: error: output: No space left on device\n"


def test_an_interrupt_is_one_line_and_exit_code_130(tmp_path: Path) -> None:
    fifo = tmp_path / "data.csv"
    os.mkfifo(fifo)  # reading it waits for a writer that never comes
    process = subprocess.Popen(
        [sys.executable, "-m", "boxqte", "space", "infer", str(fifo), "-o", "-"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    descriptor = os.open(fifo, os.O_WRONLY)  # waits until the command has opened the other end
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read() == "boxqte: interrupted\n"
    process.stderr.close()
    os.close(descriptor)


def test_the_command_runs_as_a_process(files: Path) -> None:
    done = shell("quantify", "model.json", "--space", "space.json", "--sensitive", "race", cwd=files)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("question             fairness (sensitive race")


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path: Path) -> None:
    Space([Attribute.integer("größe", 0, 3)]).save(tmp_path / "space.json")
    done = shell("space", "show", "space.json", cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "gr\\xf6\\xdfe" in done.stdout
