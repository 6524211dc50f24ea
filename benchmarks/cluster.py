"""Efficiency on a Dask cluster: one local process against two, and a simulation of up to 1,000 workers.

    python benchmarks/cluster.py [NAME] [--trees 50] [--depth 3] [--sensitive age] [--time-limit 600]

1. The problem (XGBoost on the data set NAME; see benchmarks/reference.py for where it lies) on a LocalCluster of one and
   of two processes of one thread; prints both times and the speed-up. Measure on an idle machine.
2. How long the client and scheduler are busy with a batch: many empty tasks with a batch's bytes, submitted from as many
   threads as the driver would use.
3. From the measured length of batches and 2., a simulation: a batch occupies the client first, then travels, then runs on
   the first free worker; two batches a worker are under way. Not a measurement, and printed as what it is.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost
from distributed import Client, LocalCluster

from boxqte import Fairness, Space, quantify

ROOT = Path(__file__).resolve().parent.parent
LATENCY = 0.001  # seconds on the way, there and back


def nothing(boxes: Any) -> Any:
    return boxes


def dispatch_seconds(client: Any, boxes: Any, tasks: int = 400) -> float:
    """Client and scheduler time a batch, from empty tasks."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: client.submit(nothing, boxes, pure=False).result(), range(32)))
        started = time.perf_counter()
        list(pool.map(lambda _: client.submit(nothing, boxes, pure=False).result(), range(tasks)))
        return (time.perf_counter() - started) / tasks


def simulated(workers: int, batches: int, seconds: float, dispatch: float) -> float:
    """The efficiency: busy time of the workers over their time, with exponentially spread batch lengths."""
    rng = random.Random(0)
    free = [0.0] * workers
    waiting = [0.0] * (2 * workers)  # when each of the batches under way may be handed out
    client = busy = end = 0.0
    heapq.heapify(free)
    heapq.heapify(waiting)
    for _ in range(batches):
        ready = heapq.heappop(waiting)
        client = max(client, ready) + dispatch
        start = max(client + LATENCY / 2, heapq.heappop(free))
        length = rng.expovariate(1 / seconds)
        busy += length
        end = max(end, start + length)
        heapq.heappush(free, start + length)
        heapq.heappush(waiting, start + length + LATENCY / 2)
    return busy / (workers * end)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", nargs="?", default="adult")
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--sensitive", default="age")
    parser.add_argument("--kappa", default="0.7")
    parser.add_argument("--time-limit", type=float, default=900.0)
    arguments = parser.parse_args()
    folder = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    frame = pd.read_csv(folder / f"{arguments.name}.csv")
    space = Space.load(folder / f"{arguments.name}.schema.json")
    label = frame.pop(space.label or "label")
    model = xgboost.XGBClassifier(n_estimators=arguments.trees, max_depth=arguments.depth, n_jobs=1).fit(frame, label)
    prop = Fairness(arguments.sensitive, 0, arguments.kappa)
    times = {}
    for n in (1, 2):
        with (
            LocalCluster(n_workers=n, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            quantify(model, space, prop, engine="box", executor=client, node_limit=10)  # builds and loads everything
            result = quantify(model, space, prop, engine="box", executor=client, time_limit=arguments.time_limit)
            times[n] = result.seconds
            batches = result.details["calls"]
            print(
                f"{n} process{'es' if n > 1 else ''}: {result.seconds:.1f} s, {batches} batches, {result.status}",
                flush=True,
            )
            dispatch = dispatch_seconds(client, np.zeros((8, 16, 4), np.uint64))
    print(f"speed-up of two over one: {times[1] / times[2]:.2f}")
    seconds = times[1] / batches
    print(f"a batch takes {seconds * 1e3:.1f} ms, client and scheduler {dispatch * 1e3:.2f} ms of it each")
    print("simulated (not measured):")
    for workers in (2, 10, 30, 100, 300, 1000):
        shown = [f"{simulated(workers, 200 * workers, length, dispatch):.2f}" for length in (seconds, 1.0, 5.0)]
        print(f"  {workers:5} workers: efficiency {shown[0]}; with batches of 1 s {shown[1]}, of 5 s {shown[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
