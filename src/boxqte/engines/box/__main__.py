"""Compile all kernels now: `python -m boxqte.engines.box`. For images and test runs, so that no first question waits."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor

from boxqte.engines import Limits, Watch
from boxqte.engines.box.engine import Box
from boxqte.examples import loan_ensemble, loan_space
from boxqte.grid import build_grid
from boxqte.properties import Fairness


def compile_for(epsilon: float) -> None:
    """Ask one question of the kind: epsilon 0 and epsilon > 0 have kernels of their own."""
    limits = Limits(workers=1)
    Box().run(build_grid(loan_ensemble(), loan_space(), Fairness("race", epsilon)), limits, Watch(limits))


def main() -> None:
    """Compile both families side by side."""
    started = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(compile_for, (0.0, 0.1)))
    print(f"kernels ready after {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
