"""The commands beside `quantify`, and the command as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import boxqte
from boxqte.engines import ENGINES
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.cli.loans import SPACE, granted, people


def shell(*arguments: str, cwd: Path | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    line = [sys.executable, "-m", "boxqte", *arguments]
    return subprocess.run(line, cwd=cwd, text=True, timeout=120, check=False, **{"capture_output": True, **options})


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
