"""The box engine on a cluster: a Dask client hands batches of boxes out and gets masses and open boxes back.

The driver stays here, with the queue, the sums and the limits; only `Worker.work` runs elsewhere. Every process of the
cluster gets the problem once (a worker plugin, so that processes that join later get it too) and rebuilds its worker from
it. A batch whose process dies is done again by another one: nothing of it had been counted.
"""

from __future__ import annotations

import importlib
import pickle
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boxqte.engines.box import driver
from boxqte.engines.box.plan import plan
from boxqte.engines.protocol import Limits, Outcome, Reply, Watch
from boxqte.errors import EngineError

IN_FLIGHT = 2  # batches a thread of the cluster: one runs, one waits at the door
LONGER = (
    8  # a batch costs the client and the scheduler some milliseconds, so it is so many times as long as a local one
)
ENCLOSE_SECONDS = 0.2  # of bounds inside open boxes in one batch
ATTEMPTS = 20  # so many deaths of processes a batch may meet; each is counted only after Dask has tried by itself


@dataclass(frozen=True)
class Spec:
    """All that a process needs to build its workers."""

    grid: Any
    options: Any
    notes: bool
    memory_limit: int | None


# In a process of the cluster: the problems it was sent, and the workers of its threads.
_specs: dict[str, bytes] = {}
_live: dict[str, list[driver.Worker]] = {}
_here = threading.local()


def connect(address: str) -> Any:
    """A client of the Dask scheduler at the address."""
    try:
        distributed = _distributed()
    except ImportError:
        raise EngineError("--dask needs the package 'distributed': pip install boxqte[dask]") from None
    try:
        return distributed.Client(address, timeout=10)
    except (OSError, ValueError, TimeoutError) as error:
        raise EngineError(f"--dask {address}: no scheduler answers there: {str(error).splitlines()[0]}") from None


def longer_batches(options: Any) -> Any:
    """The box engine's options on a cluster."""
    return replace(
        options,
        batch=LONGER * options.batch,
        call_nodes=LONGER * options.call_nodes,
        call_work=LONGER * options.call_work,
    )


def _distributed() -> Any:
    return importlib.import_module("distributed")


def drive_on(client: Any, spec: Spec) -> Callable[..., Outcome]:
    """What takes the place of `driver.drive`: the same, with workers that live in the cluster."""

    def drive(make_worker: Any, roots: Any, masses: Any, limits: Limits, watch: Watch, **settings: Any) -> Outcome:
        threads = sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
        if not threads:
            raise EngineError("the Dask cluster has no workers; start some, or wait until they have joined")
        key = f"boxqte-{uuid.uuid4().hex}"
        client.register_plugin(_plugin(key, pickle.dumps(spec)), name=key)
        deaths = _Deaths()
        if settings.get("inside") is not None:
            settings["inside"] = replace(
                settings["inside"], enclose=RemoteWorker.enclose, batch_seconds=ENCLOSE_SECONDS
            )
        try:
            many = replace(limits, workers=IN_FLIGHT * threads)
            outcome = driver.drive(
                lambda: RemoteWorker(client, key, deaths), roots, masses, many, watch, **settings
            )  # fmt: skip
        finally:
            client.unregister_worker_plugin(name=key)
        return replace(outcome, details=outcome.details | {"cluster_threads": threads, "redone_batches": deaths.count})

    return drive


@dataclass
class _Deaths:
    """How many batches this client had to hand out again."""

    count: int = 0


class RemoteWorker:
    """driver.Worker whose work is done by some process of the cluster."""

    def __init__(self, client: Any, key: str, deaths: _Deaths):
        self.client, self.key, self.deaths = client, key, deaths
        self.halted = False

    @property
    def memory(self) -> int:
        return 0  # here; the processes have their own

    def work(self, boxes: Any, masses: Any, budget: int, depth_first: bool) -> Reply:
        lost = (_distributed().KilledWorker, _distributed().comm.CommClosedError, CancelledError)
        for _ in range(ATTEMPTS):
            future = self.client.submit(work_here, self.key, boxes, masses, budget, depth_first, pure=False, retries=2)
            ended = threading.Event()
            future.add_done_callback(lambda _, ended=ended: ended.set())
            # Not result(timeout=...): where its timeout and the end of the batch meet, Dask fails on a variable of its own.
            while not ended.wait(0.5) and future.status == "pending":
                if self.halted:  # the batch stays open; the process hears of it when the problem is taken from it
                    future.cancel()
                    return Reply(0.0, 0.0, 0.0, 0.0, boxes, masses, np.ones(len(boxes)), 0)
            try:
                reply: Reply = future.result()
                return reply
            except lost:
                self.deaths.count += 1
        raise EngineError(f"the Dask cluster lost the process of one batch {ATTEMPTS} times; giving up")

    def enclose(self, boxes: Any, cells: int) -> Any:
        """Bounds inside open boxes; what comes too late, or is lost with its process, is not known."""
        future = self.client.submit(enclose_here, self.key, boxes, cells, pure=False, retries=2)
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        ended.wait(10 * ENCLOSE_SECONDS)
        try:
            return future.result() if future.status == "finished" else np.zeros((len(boxes), 3))
        finally:
            future.cancel()

    def halt(self) -> None:
        """Do not wait any longer."""
        self.halted = True


def _plugin(key: str, spec: bytes) -> Any:
    class Problem(_distributed().WorkerPlugin):  # type: ignore[misc]
        """Brings the problem to every process, also to those that join later."""

        def setup(self, worker: Any) -> None:
            receive(key, spec)

        def teardown(self, worker: Any) -> None:
            forget(key)

    return Problem()


def receive(key: str, spec: bytes) -> None:
    """In a process of the cluster: keep a problem."""
    _specs[key] = spec


def forget(key: str) -> None:
    """In a process of the cluster: drop a problem; its threads' workers stop, and go when they are next used."""
    _specs.pop(key, None)
    for worker in _live.pop(key, []):
        worker.halt()


def work_here(key: str, boxes: Any, masses: Any, budget: int, depth_first: bool) -> Reply:
    """In a process of the cluster: do one batch with this thread's worker."""
    reply: Reply = _worker_here(key).work(boxes, masses, budget, depth_first)
    return reply


def enclose_here(key: str, boxes: Any, cells: int) -> Any:
    """In a process of the cluster: bounds inside open boxes, by this thread's worker."""
    return _worker_here(key).enclose(boxes, cells)


def _worker_here(key: str) -> Any:
    """This thread's worker, built when it is first needed."""
    known: dict[str, driver.Worker] = getattr(_here, "workers", {})
    if key not in known:
        known = {k: w for k, w in known.items() if k in _specs}
        known[key] = build_worker(pickle.loads(_specs[key]))
        _live.setdefault(key, []).append(known[key])
        _here.workers = known
    return known[key]


def build_worker(spec: Spec) -> driver.Worker:
    """The worker that the box engine would make for the problem here."""
    limits = Limits(workers=1, memory_limit=spec.memory_limit)
    return plan(spec.grid, spec.options, limits, notes=spec.notes).make_worker()
