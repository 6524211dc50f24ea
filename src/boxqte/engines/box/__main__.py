"""Compile all kernels now: `python -m boxqte.engines.box`. For images and test runs, so that no first question waits."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from boxqte.engines import Limits, Watch
from boxqte.engines.box.draw_worker import Drawer
from boxqte.engines.box.engine import Box
from boxqte.engines.box.exchange_worker import root_boxes
from boxqte.engines.box.problem import compile_problem
from boxqte.engines.point import PointDecider
from boxqte.examples import loan_ensemble, loan_space
from boxqte.grid import build_grid
from boxqte.properties import Fairness


def compile_for(epsilon: float) -> None:
    """Ask one question of the kind: epsilon 0 and epsilon > 0 have kernels of their own."""
    limits = Limits(workers=1)
    Box().run(build_grid(loan_ensemble(), loan_space(), Fairness("race", epsilon)), limits, Watch(limits))


def compile_points() -> None:
    """The kernels that decide single points."""
    grid = build_grid(loan_ensemble(), loan_space(), Fairness("race"))
    PointDecider(grid).decide(np.zeros((1, len(grid.axes)), np.int64))


def compile_draws() -> None:
    """The kernels that draw counterexamples from counted boxes, and that look for any."""
    p = compile_problem(build_grid(loan_ensemble(), loan_space(), Fairness("race")))
    drawer = Drawer(p, finish_limit=8000)
    cells, combination = np.zeros((1, p.n_axes), np.int32), np.zeros((1, 2), np.int32)
    drawer.draw(root_boxes(p), np.ones(1, np.int64), 0, np.zeros(1, np.int64), cells, combination)
    drawer.exists(root_boxes(p))


def main() -> None:
    """Compile the families side by side."""
    started = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        waiting = [pool.submit(compile_for, 0.0), pool.submit(compile_for, 0.1), pool.submit(compile_points)]
        waiting[0].result()  # drawing uses the kernels for epsilon 0
        for task in (*waiting, pool.submit(compile_draws)):
            task.result()
    print(f"kernels ready after {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
