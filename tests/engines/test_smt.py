"""The engine smt (BoxQTE) against the oracle, the exhaustive engine and the box engine."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
import xgboost

from boxqte import Attribute, EngineError, EnsembleBuilder, Fairness, Robustness, Space
from boxqte.cli.main import main
from boxqte.engines import make_engine
from boxqte.engines.exhaustive import Exhaustive
from boxqte.engines.protocol import Decided, Limits, Outcome, Status, Watch
from boxqte.engines.smt import pool as pools
from boxqte.engines.smt.boxes import Boxes
from boxqte.engines.smt.engine import Smt
from boxqte.engines.smt.options import SmtOptions
from boxqte.engines.smt.pool import LocalPool, ProcessPool
from boxqte.engines.smt.running import remembered_interrupts
from boxqte.engines.smt.scheduler import Scheduler
from boxqte.engines.smt.tasks import Found, PairTask, PathTask, Settings, Worker, unfair_mass
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import Test
from boxqte.models.importers import load_model
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from tests.deadly import Deadly
from tests.naive import naive_quantify
from tests.strategies import random_problem

ONE = Limits(workers=1)
TWO = Limits(workers=2)
ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
ALL_SETTINGS = [
    dict(zip(("priority", "decomposition", "box_blocking"), on)) for on in itertools.product((True, False), repeat=3)
]


def run(grid: Grid, limits: Limits = ONE, **options: object) -> tuple[Outcome, Watch]:
    watch = Watch(limits)
    return make_engine("smt", options).run(grid, limits, watch), watch


def exhaustive(grid: Grid) -> Decided:
    return Exhaustive().run(grid, ONE, Watch(ONE)).decided


def assert_exact(grid: Grid, expected: Decided, limits: Limits = ONE, **options: object) -> Outcome:
    outcome, watch = run(grid, limits, **options)
    assert outcome.status is Status.CONVERGED
    assert outcome.decided == expected  # fractions: equal means equal
    assert_bounds(watch, expected)
    return outcome


def assert_bounds(watch: Watch, expected: Decided) -> None:
    exact = expected.measure()
    if exact is None:
        return
    lowers, uppers = [point[1] for point in watch.trace], [point[2] for point in watch.trace]
    assert all(lower <= exact[0] <= upper for lower, upper in zip(lowers, uppers))
    assert lowers == sorted(lowers)
    assert uppers == sorted(uppers, reverse=True)


def random_grid(seed: int, **sizes: int) -> Grid:
    return build_grid(*random_problem(random.Random(seed), **sizes))


def stripes(n: int, *, kappa: object = 0.5, epsilon: object = 0) -> Grid:
    """Three attributes of n + 1 cells whose signs alternate, and a sensitive one: many path tuples of both classes."""
    builder = EnsembleBuilder()
    rng = random.Random(n)
    for axis, at in itertools.product(range(3), range(n)):
        value = (-1) ** at * (1 + rng.randrange(4))
        leaves = {"left": [1, -1, -1], "right": [2, -1, -1], "value": [0, value, -value]}
        builder.add_tree(
            feature=[axis, -1, -1], test=[Test.LESS_F32, 0, 0], threshold=[10.0 * (at + 1), 0, 0], **leaves
        )
    leaves = {"left": [1, -1, -1], "right": [2, -1, -1], "value": [0, 2, -2]}
    builder.add_tree(feature=[3, -1, -1], test=[Test.LESS_F32, 0, 0], threshold=[0.5, 0, 0], **leaves)
    model = builder.build(library="example", feature_names=["a", "b", "c", "s"], base=[0.5], link="sigmoid")
    numeric = [Attribute.integer(name, 0, 10 * (n + 1)) for name in "abc"]
    space = Space([*numeric, Attribute.categorical("s", [0, 1])])
    return build_grid(model, space, Fairness("s", epsilon, kappa))


# --- the same number ---


@pytest.mark.parametrize("block", range(3))
def test_it_agrees_with_the_exhaustive_engine_on_random_problems(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        grid = random_grid(seed)
        assert_exact(grid, exhaustive(grid), blocking_limit=1 + seed % 5)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(15))
def test_it_agrees_with_oracle_exhaustive_and_box_on_many_random_problems(block: int) -> None:
    for seed in range(2000 + 20 * block, 2020 + 20 * block):
        problem = random_problem(random.Random(seed))
        grid = build_grid(*problem)
        decided = assert_exact(grid, exhaustive(grid), blocking_limit=1 + seed % 7).decided
        naive = naive_quantify(*problem)
        assert (naive.confident, naive.counterexample) == (1 - decided.low, decided.unfair)
        box = make_engine("box").run(grid, ONE, Watch(ONE)).decided
        for kind in ("fair", "unfair", "low"):
            assert abs(float(getattr(box, kind)) - float(getattr(decided, kind))) < 1e-12


def test_it_agrees_with_the_oracle() -> None:
    for seed in range(100, 115):
        problem = random_problem(random.Random(seed))
        naive, decided = naive_quantify(*problem), run(build_grid(*problem))[0].decided
        assert (naive.confident, naive.counterexample) == (1 - decided.low, decided.unfair)


def test_all_settings_of_the_enhancements_give_the_same_measure() -> None:
    for seed in range(200, 208):
        grid = random_grid(seed)
        expected = exhaustive(grid)
        for settings in ALL_SETTINGS:
            assert_exact(grid, expected, blocking_limit=2, **settings)


@pytest.mark.slow
def test_all_settings_give_the_same_measure_on_many_random_problems() -> None:
    for seed in range(3000, 3060):
        grid = random_grid(seed)
        expected = exhaustive(grid)
        for settings in ALL_SETTINGS:
            assert_exact(grid, expected, blocking_limit=1 + seed % 5, **settings)


@pytest.mark.parametrize("settings", ALL_SETTINGS)
def test_tasks_are_divided_over_and_over_and_nothing_is_lost(settings: dict[str, bool]) -> None:
    grid = stripes(2, epsilon=0.2, kappa=0.6)
    outcome = assert_exact(grid, exhaustive(grid), blocking_limit=2, **settings)
    assert (outcome.details["divided"] > 10) == settings["decomposition"]


def test_several_sensitive_attributes_are_one_set() -> None:
    # The paper takes B_i minus B'_i per attribute, which loses x that differ from B' in some of them only.
    checked = 0
    for seed in range(300, 380):
        problem = random_problem(random.Random(seed), robustness=False)
        if len(problem.property.sensitive) > 1 and build_grid(*problem).has_tolerance:
            grid = build_grid(*problem)
            assert_exact(grid, exhaustive(grid))
            checked += 1
    assert checked >= 5


def test_the_loan_example() -> None:
    for prop in (Fairness("race", {"income": 5, "age": 5}, 0.8), Fairness("race"), Robustness(0.1, 0.7)):
        grid = build_grid(loan_ensemble(), loan_space(), prop)
        assert_exact(grid, exhaustive(grid))


def test_nothing_is_confident() -> None:
    grid = build_grid(loan_ensemble(), loan_space(), Fairness("race", 0, 0.999))
    outcome, _ = run(grid)
    assert outcome.status is Status.CONVERGED
    assert outcome.decided == Decided(low=1)


# --- what the enhancements do ---


@pytest.mark.parametrize("priority", [True, False])
def test_priority_takes_large_boxes_first(priority: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Task_kappa done first, Task_s follow by the size of their boxes, or in the order in which they were found."""
    taken: list[int] = []
    grid = stripes(2)
    submit, assign = Scheduler._submit, Scheduler.assign

    def noted(self: Scheduler, pool: LocalPool, task: object) -> None:
        if isinstance(task, PairTask):
            taken.append(self.boxes.mass(task.x_box))
        submit(self, pool, task)  # type: ignore[arg-type]

    def kappa_first(self: Scheduler, pool: LocalPool) -> None:
        held, self.waiting["pair"] = self.waiting["pair"], []
        if not (self.waiting["kappa"] or self._busy("kappa")):
            self.waiting["pair"], held = held, []
        assign(self, pool)
        self.waiting["pair"] += held

    monkeypatch.setattr(Scheduler, "_submit", noted)
    monkeypatch.setattr(Scheduler, "assign", kappa_first)
    assert_exact(grid, exhaustive(grid), priority=priority)
    assert len(set(taken)) > 2
    assert (taken == sorted(taken, reverse=True)) == priority


def test_box_blocking_saves_checks() -> None:
    grid = stripes(2, epsilon=0.3)
    steps = {on: run(grid, box_blocking=on)[0].details["steps"] for on in (True, False)}
    assert steps[True] < steps[False]


def test_the_parts_of_a_divided_task_have_disjoint_solutions_and_share_the_blocking_constraints() -> None:
    grid = stripes(3, epsilon=0.3)
    boxes = Boxes(grid)
    found = next(Worker(grid, Settings()).start(PathTask("kappa", boxes.full)))
    assert isinstance(found, Found)
    leaves = found.leaves
    x_box = boxes.refined(boxes.box(leaves))
    positive = boxes.margin(leaves) >= grid.thresholds.conf_pos
    for box_blocking in (True, False):
        worker = Worker(grid, Settings(box_blocking, blocking_limit=1))
        *_, end = worker.start(PairTask("pair", 0, x_box, positive, boxes.full))
        parts = getattr(end, "parts", None)
        if parts is None:
            continue
        first, second = parts
        side = "x_box" if box_blocking else "domain"
        assert any(not a & b for a, b in zip(getattr(first, side), getattr(second, side)))
        assert sum(boxes.mass(p.x_box) for p in parts) == boxes.mass(x_box) * (1 if box_blocking else 2)
        assert first.blocked or second.blocked


def test_the_union_of_overlapping_boxes_is_measured_exactly() -> None:
    grid = stripes(3, epsilon=0.1)
    boxes = Boxes(grid)
    rng = random.Random(0)
    sizes = [axis.full_refined.bit_length() for axis in boxes.axes]
    for _ in range(50):
        chosen = [tuple(rng.randrange(1, 1 << n) for n in sizes) for _ in range(rng.randrange(5))]
        cells = itertools.product(*map(range, sizes))
        inside = (c for c in cells if any(all(m >> at & 1 for m, at in zip(box, c)) for box in chosen))
        total = sum(boxes.mass(tuple(1 << at for at in cell)) for cell in inside)
        assert boxes.union(chosen) == total
    assert unfair_mass(boxes, boxes.refined(boxes.full), []) == 0


# --- limits ---


def test_a_node_limit_leaves_valid_bounds_and_repeats_exactly() -> None:
    grid = stripes(3, kappa=0.7)
    expected = exhaustive(grid)
    for limit in (1, 20, 60):
        limits = Limits(workers=1, node_limit=limit)
        (first, watch), (again, _) = run(grid, limits), run(grid, limits)
        assert first.status is Status.NODES
        assert first.decided == again.decided
        assert_bounds(watch, expected)


def test_a_gap_ends_the_run() -> None:
    limits = Limits(workers=1, gap=0.5)
    outcome, watch = run(stripes(3), limits)
    assert outcome.status is Status.GAP
    assert 0 < watch.trace[-1][2] - watch.trace[-1][1] <= 0.5


@pytest.mark.parametrize("workers", [1, 2])
def test_a_time_limit_ends_the_run_in_time(workers: int) -> None:
    limits = Limits(workers=workers, time_limit=0.7)
    grid = stripes(12, epsilon=0.1, kappa=0.6)
    started = time.perf_counter()
    outcome, watch = run(grid, limits)
    assert outcome.status is Status.TIME
    assert time.perf_counter() - started < 20  # the machine may be busy; without a limit this takes hours
    assert watch.trace


@pytest.mark.parametrize("workers", [1, 2])
def test_a_memory_limit_ends_the_run(workers: int) -> None:
    outcome, _ = run(stripes(3), Limits(workers=workers, memory_limit=1000))
    assert outcome.status is Status.MEMORY


def test_bad_options_are_refused_by_name() -> None:
    with pytest.raises(EngineError, match="blocking_limit"):
        Smt(SmtOptions(blocking_limit=0))


def test_a_missing_z3_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    with pytest.raises(EngineError, match=r"pip install boxqte\[smt\]"):
        run(stripes(1))


# --- worker processes ---


def test_two_processes_give_the_answer_of_one() -> None:
    grid = stripes(3, kappa=0.6, epsilon=0.1)
    outcome = assert_exact(grid, exhaustive(grid), TWO, blocking_limit=20)
    assert outcome.details["lost_workers"] == 0


def survives_kills(times: int, grid: Grid, monkeypatch: pytest.MonkeyPatch, **options: object) -> None:
    """Run until workers have been killed that often in all, each time in the middle of something."""
    expected = exhaustive(grid)
    rng = random.Random(times)
    made: list[ProcessPool] = []
    begin = ProcessPool._begin

    def remembered(self: ProcessPool) -> None:
        if self not in made:
            made.append(self)
        begin(self)

    monkeypatch.setattr(ProcessPool, "_begin", remembered)
    killed = 0
    while killed < times:
        over = threading.Event()

        def killer(over: threading.Event = over) -> None:
            nonlocal killed
            while not over.wait(rng.uniform(0.0, 1.5)) and killed < times:
                for pid in made[-1].pids[:1] if made else []:
                    try:
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
                    except ProcessLookupError:
                        pass

        thread = threading.Thread(target=killer)
        thread.start()
        try:
            assert_exact(grid, expected, TWO, **options)
        finally:
            over.set()
            thread.join()
    assert sum(pool.losses for pool in made) > 0


def test_killed_workers_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    survives_kills(3, stripes(3, kappa=0.6), monkeypatch, blocking_limit=30)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"decomposition": False}, {"box_blocking": False, "blocking_limit": 5}])
def test_workers_killed_twenty_times_change_nothing(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    survives_kills(20, stripes(3, kappa=0.6, epsilon=0.1), monkeypatch, **settings)


def test_workers_that_cannot_start_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MAX_STILLBORN", 3)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EngineError, match="ended before they were ready"):
        run(stripes(2), TWO)


def test_a_task_that_kills_every_worker_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MAX_LOSSES", 1)
    pool = ProcessPool((Deadly,), 1, lambda number, task: task)
    try:
        pool.submit(0, PathTask("kappa", ()))
        with pytest.raises(EngineError, match="died on the same task"):
            pool.reports(300.0)
        assert pool.losses == 2
    finally:
        pool.close()


def test_a_mistake_in_a_worker_is_one_error_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = stripes(2)
    too_long = ((0,) * 99,)  # a path tuple with more trees than the model has
    monkeypatch.setattr(Scheduler, "begin", lambda self: self._push(PathTask("kappa", self.boxes.full, too_long)))
    with pytest.raises(EngineError, match="a worker failed: "):
        run(grid, TWO)


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def alive(pid: int) -> bool:
    """Whether the process still runs (a zombie that nobody has collected does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(("ending", "workers"), [(signal.SIGINT, 2), (signal.SIGINT, 1), (signal.SIGKILL, 2)])
def test_no_process_outlives_the_run(ending: signal.Signals, workers: int) -> None:
    question = (
        "model.json --space space.json --sensitive sex,race --epsilon-rate 0.1 --kappa 0.6 --option blocking_limit=5"
    )
    command = f"-m boxqte quantify {question} --engine smt --workers {workers}".split()
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT / "examples", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "measure between" in process.stderr.readline()  # the first progress line: it is in the middle of it
        children = children_of(process.pid)
        assert len(children) == (workers if workers > 1 else 0)
        process.send_signal(ending)
        out, err = process.communicate(timeout=60)
    if ending is signal.SIGINT:
        assert process.returncode == 130, err
        assert "interrupted" in out
        assert "measure  " in out
    deadline = time.monotonic() + 30
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))


def test_an_interrupt_that_a_destructor_swallows_is_remembered() -> None:
    class Deaf:
        def __del__(self) -> None:
            with contextlib.suppress(KeyboardInterrupt):  # as Python does with what a destructor raises
                signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it ignored
    try:
        with remembered_interrupts() as interrupts:
            deaf = Deaf()
            assert not interrupts
            del deaf
            gc.collect()
            assert interrupts == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# --- the command, real models ---


def test_the_switches_of_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    space = Space(
        [Attribute.integer("age", 18, 80), Attribute.integer("priors", 0, 20), Attribute.categorical("sex", [0, 1])]
    )
    rows = pd.DataFrame({"age": range(18, 58), "priors": [i % 7 for i in range(40)], "sex": [i % 2 for i in range(40)]})
    label = [int(i % 7 > 3 or (i % 2 and i > 20)) for i in range(40)]
    model = xgboost.XGBClassifier(n_estimators=3, max_depth=2, n_jobs=1).fit(rows, label)
    model.save_model(tmp_path / "model.json")
    space.save(tmp_path / "space.json")
    question = (
        f"quantify {tmp_path}/model.json --space {tmp_path}/space.json --sensitive sex --quiet --workers 1".split()
    )
    answers = set()
    for switches in ("", "--no-priority", "--no-decomposition --no-box-blocking"):
        assert main([*question, "--engine", "smt", *switches.split()]) == 0
        answers.add(capsys.readouterr().out.split("exactly")[1].split(")")[0])
    assert len(answers) == 1
    assert main([*question, "--engine", "box", "--no-priority"]) == 2
    assert "--no-priority: only the engine 'smt'" in capsys.readouterr().err
    assert main([*question, "--engine", "smt", "--no-priority", "--option", "priority=yes"]) == 2
    assert "given as well" in capsys.readouterr().err


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not here (BOXQTE_DATA)")
@pytest.mark.parametrize("epsilon", ["0", "0.1"])
def test_compas_equals_the_box_engine(epsilon: str) -> None:
    frame = pd.read_csv(DATA / "compas.csv")
    space = Space.load(DATA / "compas.schema.json")
    label = frame.pop(space.label or "label")
    model = xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1).fit(frame, label)
    grid = build_grid(load_model(model).ensemble, space, Fairness("race", epsilon, 0.6))
    outcome, watch = run(grid)
    box = make_engine("box").run(grid, ONE, Watch(ONE)).decided
    assert outcome.status is Status.CONVERGED
    for kind in ("fair", "unfair", "low"):
        assert abs(float(getattr(outcome.decided, kind)) - float(getattr(box, kind))) < 1e-12
    assert_bounds(watch, outcome.decided)
