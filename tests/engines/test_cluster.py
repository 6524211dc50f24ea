"""The box engine on a real Dask cluster of processes, one of which is killed in the middle."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from boxqte import Attribute, EnsembleBuilder, Fairness, Robustness, Space, quantify
from boxqte.cli.main import main
from boxqte.engines.box.cluster import Spec, build_worker
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.protocol import Progress, Status
from boxqte.errors import EngineError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import Test, TreeEnsemble
from boxqte.questions.building import build_grid
from tests.naive_classes import random_class_problem

distributed = pytest.importorskip("distributed", reason="needs the extra 'dask'")

# Small batches, so that a small problem takes many of them.
SLOW = {"finish_limit": 30, "call_nodes": 40, "batch": 2, "depth_first_below": 0}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


def bushy(seed: int = 0, n_trees: int = 16, n_attributes: int = 6) -> tuple[TreeEnsemble, Space]:
    """Random trees of depth 3 on integer attributes: thousands of boxes."""
    rng = random.Random(seed)
    builder = EnsembleBuilder()
    for _ in range(n_trees):
        feature = [rng.randrange(n_attributes) for _ in range(7)] + [-1] * 8
        builder.add_tree(
            feature=feature,
            test=[Test.LESS_F32] * 7 + [Test.LEAF] * 8,
            threshold=[float(rng.randint(1, 9)) for _ in range(7)] + [0.0] * 8,
            left=[1, 3, 5, 7, 9, 11, 13] + [-1] * 8,
            right=[2, 4, 6, 8, 10, 12, 14] + [-1] * 8,
            value=[0.0] * 7 + [rng.randint(-9, 9) / 8 for _ in range(8)],
        )
    names = [f"a{i}" for i in range(n_attributes)]
    model = builder.build(library="example", feature_names=names, base=[0.0], link="sigmoid")
    return model, Space([Attribute.integer(name, 0, 9) for name in names])


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_same_answer_even_if_a_process_is_killed(client: Any) -> None:
    model, space = bushy()
    local = quantify(model, space, Fairness("a0"), engine="box", workers=1, options=SLOW)
    victims = list(client.run(os.getpid).values())
    killed = []

    def kill_one(progress: Progress) -> None:
        if not killed and progress.decided > 0.05:
            killed.append(victims[0])
            os.kill(victims[0], signal.SIGKILL)

    remote = quantify(model, space, Fairness("a0"), engine="box", options=SLOW, executor=client, progress=kill_one)
    assert killed, "the problem was over before a process could be killed"
    assert remote.converged
    assert local.converged
    assert remote.value == pytest.approx(local.value, abs=1e-12)
    assert remote.counterexample.lower == pytest.approx(local.counterexample.lower, abs=1e-12)
    assert remote.details["cluster_threads"] == 2


@pytest.mark.filterwarnings("ignore")
def test_open_boxes_are_bounded_inside_on_a_cluster_as_here(client: Any) -> None:
    """At a node limit the processes are asked for bounds inside open boxes; they hold, and are worth their time."""
    model, space = bushy(n_trees=24)
    ask = {"engine": "box", "options": SLOW, "node_limit": 60}
    local = quantify(model, space, Fairness("a0"), workers=1, **ask)
    remote = quantify(model, space, Fairness("a0"), executor=client, **ask)
    value = quantify(model, space, Fairness("a0"), engine="box", workers=1).value
    for result in (local, remote):
        assert result.status is Status.NODES
        assert result.details["enclosed_boxes"] > 0
        assert result.lower <= value <= result.upper
        assert result.upper - result.lower < 0.1  # of closed boxes alone it would be nearly 1


@pytest.mark.filterwarnings("ignore")
def test_a_mixture_runs_on_a_cluster_product_by_product(client: Any) -> None:
    model, space = bushy(n_trees=8)
    young = space.with_mass(
        {"a1": {"edges": [0, 5, 10], "weights": [3, 1]}, "a0": {"edges": [0, 2, 10], "weights": [1, 1]}}
    )
    people = space.with_components([young.as_component("1/3"), space.as_component("2/3")])
    remote = quantify(model, people, Fairness("a0"), engine="box", executor=client)
    assert remote.converged
    assert remote.value == pytest.approx(quantify(model, people, Fairness("a0"), workers=1).value, abs=1e-12)
    assert remote.value != pytest.approx(quantify(model, space, Fairness("a0"), workers=1).value, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_epsilon_and_many_classes_run_on_a_cluster_too(client: Any) -> None:
    for prop in (Fairness("race", epsilon=0.1), Robustness(0.2)):
        remote = quantify(loan_ensemble(), loan_space(), prop, executor=client)
        assert remote.value == pytest.approx(quantify(loan_ensemble(), loan_space(), prop, workers=1).value, abs=1e-12)
    ensemble, space, prop = random_class_problem(4)
    remote = quantify(ensemble, space, prop, executor=client)
    assert remote.converged
    assert remote.decided.unfair == pytest.approx(
        float(quantify(ensemble, space, prop, engine="exhaustive").decided.unfair), abs=1e-12
    )


@pytest.mark.filterwarnings("ignore")
def test_the_command_takes_the_address_of_a_scheduler(client: Any, capsys: pytest.CaptureFixture[str]) -> None:
    examples = os.path.join(os.path.dirname(__file__), "..", "..", "examples")
    address = client.scheduler.address
    arguments = [f"{examples}/model.json", "--space", f"{examples}/space.json", "--sensitive", "sex", "--dask", address]
    assert main(["quantify", *arguments]) == 0
    assert "measure" in capsys.readouterr().out


def test_a_worker_is_rebuilt_from_its_problem() -> None:
    """What a process of the cluster does, here: the same reply as the engine's own worker would give."""
    import numpy as np

    from boxqte.engines.box.exchange_worker import root_boxes

    grid = build_grid(loan_ensemble(), loan_space(), Fairness("race"))
    worker = build_worker(Spec(grid, BoxOptions(), True, None))
    reply = worker.work(root_boxes(worker.problem), np.ones(1), 1000, False)  # type: ignore[attr-defined]
    assert reply.fair + reply.unfair + reply.masses.sum() == pytest.approx(1)
    assert reply.closed is not None


def test_an_engine_without_a_cluster_says_so() -> None:
    with pytest.raises(EngineError, match="a Dask cluster: engines auto, box"):
        quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive", executor=object())


def test_an_address_without_a_scheduler_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    from boxqte.engines.box import cluster

    with pytest.raises(EngineError, match="no scheduler answers"):
        cluster.connect("nowhere:-1")
    assert capsys.readouterr().out == ""
