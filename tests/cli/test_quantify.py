"""`boxqte quantify`: what it prints, what it writes, its limits and its exit codes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import xgboost

import boxqte
from boxqte.engines.protocol import Limits, Progress
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.cli.loans import QUANTIFY, granted, people


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
