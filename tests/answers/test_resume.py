"""Checkpoints: a killed run goes on where it was, and nothing else passes for its state."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boxqte import Attribute, Fairness, Robustness, Space, Status, quantify
from boxqte.answers.checkpoint import _encoded
from boxqte.cli.main import main
from boxqte.engines.box.driver import ExactSum
from boxqte.engines.protocol import Limits, Saved, Watch
from boxqte.errors import CheckpointError
from boxqte.examples import loan_ensemble, loan_space
from tests.resume_child import ensemble, space

CHILD = Path(__file__).parent.parent / "resume_child.py"


def start(checkpoint: Path, workers: int) -> subprocess.Popen[str]:
    """The child, as soon as its search is about to begin."""
    command = [sys.executable, str(CHILD), str(checkpoint), str(workers)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def finish(checkpoint: Path, workers: int) -> dict:
    with start(checkpoint, workers) as child:
        text, _ = child.communicate()
    assert child.returncode == 0
    return json.loads(text)


def kill_and_finish(tmp_path: Path, kills: int, workers: int, seed: int) -> tuple[dict, int]:
    """The answer of a run that was killed so many times, and how many kills left a state behind them."""
    rng = random.Random(seed)
    file = tmp_path / f"killed-{workers}"
    states = set()
    for _ in range(kills):
        child = start(file, workers)
        time.sleep(rng.uniform(0.0, 0.7))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        if file.exists():
            states.add(file.read_bytes())
    return finish(file, workers), len(states)


@pytest.mark.parametrize(("kills", "workers"), [(10, 1), pytest.param(50, 1, marks=pytest.mark.slow),
                                                pytest.param(50, 2, marks=pytest.mark.slow)])  # fmt: skip
def test_a_killed_run_goes_on_and_ends_with_the_same_answer(tmp_path, kills, workers):
    expected = finish(tmp_path / "whole", workers)
    assert expected["status"] == "converged"
    found, states = kill_and_finish(tmp_path, kills, workers, seed=kills + workers)
    assert states > 1, "no kill came after a checkpoint: the test shows nothing"
    assert found["status"] == "converged"
    if workers == 1:  # one worker takes the boxes in the same order: equal to the last bit, no node visited twice
        assert (found["masses"], found["nodes"], found["finished"]) == (
            expected["masses"], expected["nodes"], expected["finished"])  # fmt: skip
    else:
        assert found["masses"] == pytest.approx(expected["masses"], abs=1e-12)


def test_a_stopped_run_goes_on(tmp_path):
    file = tmp_path / "state"
    whole = quantify(ensemble(18), space(), Fairness("a0"), workers=1)
    first = quantify(ensemble(18), space(), Fairness("a0"), workers=1, node_limit=2000, checkpoint=file)
    assert first.status is Status.NODES
    last = quantify(ensemble(18), space(), Fairness("a0"), workers=1, checkpoint=file)
    assert last.converged
    assert last.value == pytest.approx(whole.value, abs=1e-13)
    assert last.seconds > first.seconds, "seconds are those of all runs"
    assert last.trace[: len(first.trace)] == first.trace
    assert all(a[1] <= b[1] and a[2] >= b[2] for a, b in zip(last.trace, last.trace[1:]))
    again = quantify(ensemble(18), space(), Fairness("a0"), workers=1, checkpoint=file)
    assert (again.decided, again.details["nodes"]) == (last.decided, last.details["nodes"])


def test_a_run_goes_on_with_other_options_workers_and_limits(tmp_path):
    file = tmp_path / "state"
    first = quantify(ensemble(18), space(), Fairness("a0"), node_limit=500, workers=2, checkpoint=file)
    assert not first.converged
    options = {"finish_limit": 2000, "batch": 3}
    last = quantify(ensemble(18), space(), Fairness("a0"), workers=1, options=options, checkpoint=file)
    assert last.converged
    assert last.value == pytest.approx(quantify(ensemble(18), space(), Fairness("a0")).value, abs=1e-12)


def test_depth_first_work_goes_on(tmp_path):
    """A memory limit that leaves no room for a queue: open boxes lie on the stack."""
    file = tmp_path / "state"
    from boxqte.engines import make_engine
    from boxqte.engines.box import driver
    from boxqte.questions.building import build_grid

    grid = build_grid(ensemble(18), space(), Fairness("a0"))
    limits = Limits(workers=1)
    whole = make_engine("box").run(grid, limits, Watch(limits))
    factor, driver.DEPTH_FIRST_FROM = driver.DEPTH_FIRST_FROM, 0.0
    try:
        first = quantify(
            ensemble(18), space(), Fairness("a0"), workers=1, node_limit=300, checkpoint=file, engine="box"
        )
        assert json.loads(file.read_bytes().split(b"\n")[2])["stack"] > 1
        last = quantify(ensemble(18), space(), Fairness("a0"), workers=1, checkpoint=file, engine="box")
    finally:
        driver.DEPTH_FIRST_FROM = factor
    assert not first.converged
    assert last.converged
    assert float(last.decided.unfair) == pytest.approx(float(whole.decided.unfair), abs=1e-12)


def test_epsilon_above_zero_goes_on(tmp_path):
    file = tmp_path / "state"
    question = (loan_ensemble(), loan_space(), Fairness("race", 0.1))
    first = quantify(*question, node_limit=1, workers=1, checkpoint=file)
    last = quantify(*question, workers=1, checkpoint=file)
    assert last.converged
    assert last.details["nodes"] >= first.details["nodes"]
    assert last.value == pytest.approx(quantify(*question).value, abs=1e-12)


def other_space() -> Space:
    return Space([Attribute.integer(f"a{i}", 0, 24) for i in range(9)])


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ((loan_ensemble(), loan_space(), Fairness("race")), "another model"),
        ((ensemble(), other_space(), Fairness("a0")), "another space"),
        ((ensemble(), space(), Fairness("a1")), "another property.*a0.*a1"),
        ((ensemble(), space(), Fairness("a0", kappa=0.7)), "another property.*0.5.*0.7"),
        ((ensemble(), space(), Fairness("a0", tie="paper")), "another property.*library.*paper"),
        ((ensemble(), space(), Robustness(0.1)), "another property"),
    ],
)
def test_a_checkpoint_of_another_question_is_refused_by_name(tmp_path, question, named):
    file = tmp_path / "state"
    quantify(ensemble(), space(), Fairness("a0"), node_limit=100, checkpoint=file)
    before = file.read_bytes()
    with pytest.raises(CheckpointError, match=named):
        quantify(*question, node_limit=100, checkpoint=file)
    assert file.read_bytes() == before


def test_cells_that_are_numbered_otherwise_are_refused(tmp_path):
    file = tmp_path / "state"
    quantify(ensemble(), space(), Fairness("a0"), node_limit=100, checkpoint=file, engine="box")
    from boxqte.answers.checkpoint import Checkpoint, identity
    from boxqte.questions.building import build_grid

    wrong = identity(build_grid(ensemble(), space(), Fairness("a0")), "box") | {"cells": "0" * 64}
    with pytest.raises(CheckpointError, match="numbered the cells in another way"):
        Checkpoint(file, wrong).restore(1, Watch(Limits()))


def test_damaged_files_are_refused_in_one_line(tmp_path):
    file = tmp_path / "state"
    quantify(ensemble(), space(), Fairness("a0"), node_limit=100, checkpoint=file)
    whole = file.read_bytes()
    rng = random.Random(1)
    damaged = [whole[: rng.randrange(len(whole))] for _ in range(20)] + [b"", b"hello", whole + b"x"]
    for _ in range(40):
        garbled = bytearray(whole)
        garbled[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        damaged.append(bytes(garbled))
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            quantify(ensemble(), space(), Fairness("a0"), node_limit=200, checkpoint=file)
        assert "\n" not in str(caught.value)
        assert file.read_bytes() == content, "what is no checkpoint must not be overwritten"


def test_another_format_is_named(tmp_path):
    file = tmp_path / "state"
    file.write_bytes(b"boxqte checkpoint 2\nabc\n{}\n")
    with pytest.raises(CheckpointError, match="has format 2, this version reads format 1"):
        quantify(ensemble(), space(), Fairness("a0"), checkpoint=file)


def test_other_engines_say_that_they_cannot(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"engine .exhaustive. cannot save its state .checkpoint.; checkpoints: engines auto, box"
    ):
        quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive", checkpoint=tmp_path / "state")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_disk_that_refuses_does_not_end_the_run(tmp_path):  # pragma: no cover
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    with pytest.warns(UserWarning, match="cannot be written"):
        assert quantify(loan_ensemble(), loan_space(), Fairness("race"), checkpoint=folder / "state").converged


def test_a_folder_that_vanishes_does_not_end_the_run(tmp_path):
    with pytest.warns(UserWarning, match="cannot be written.*the run goes on"):
        result = quantify(loan_ensemble(), loan_space(), Fairness("race"), checkpoint=tmp_path / "gone" / "state")
    assert result.converged


def test_no_file_is_left_beside_the_checkpoint(tmp_path):
    quantify(loan_ensemble(), loan_space(), Fairness("race"), checkpoint=tmp_path / "state", checkpoint_every=0)
    assert [f.name for f in tmp_path.iterdir()] == ["state"]


def test_sums_survive_to_the_last_bit():
    total = ExactSum()
    for x in (0.1, 1e-30, 0.7, 2.0**-300):
        total.add(x)
    assert ExactSum(total.parts).value == total.value
    saved = Saved({"fair": total.parts}, {"nodes": 1}, [], [])
    head = json.loads(_encoded(saved, {}, Watch(Limits())).split(b"\n")[2])
    assert tuple(map(float.fromhex, head["sums"]["fair"])) == total.parts


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    numpy = pytest.importorskip("numpy")
    rng = numpy.random.default_rng(3)
    X = rng.integers(0, 40, (1000, 9)).astype(float)
    y = (X @ rng.normal(size=9) * rng.normal(size=1000) > 0).astype(int)
    xgboost.XGBClassifier(n_estimators=40, max_depth=3).fit(X, y).get_booster().save_model(tmp_path / "model.json")
    attributes = [Attribute.integer(f"f{i}", 0, 39).to_json() for i in range(9)]
    (tmp_path / "space.json").write_text(json.dumps({"attributes": attributes}))
    state = tmp_path / "state"
    question = ["quantify", str(tmp_path / "model.json"), "--space", str(tmp_path / "space.json"), "--sensitive", "f0",
                "--checkpoint", str(state), "--checkpoint-every", "0.1"]  # fmt: skip
    child = subprocess.Popen([sys.executable, "-m", "boxqte", *question], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)  # fmt: skip
    deadline = time.monotonic() + 120
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 130, err
    assert "interrupted" in out
    assert f"the state is in {state}; the same command goes on from there" in err
    nodes = json.loads(state.read_bytes().split(b"\n")[2])["counts"]["nodes"]
    assert main([*question, "--node-limit", str(nodes + 50), "--json", str(tmp_path / "result.json"), "--quiet"]) == 0
    assert json.loads((tmp_path / "result.json").read_text())["details"]["nodes"] >= nodes + 50
