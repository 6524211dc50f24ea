"""How soon the command answers and the package is imported: `python benchmarks/startup.py`. Both should be below 0.3 s.

Each line is the median of several fresh processes, beside that of an interpreter that does nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 11
LINES = {
    "python -c pass": ["-c", "pass"],
    "import boxqte": ["-c", "import boxqte"],
    "boxqte --version": ["-m", "boxqte", "--version"],
    "boxqte --help": ["-m", "boxqte", "--help"],
    "boxqte audit --help": ["-m", "boxqte", "audit", "--help"],
}


def seconds(arguments: list[str], runs: int = RUNS) -> float:
    """The median wall time of a fresh interpreter with these arguments."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    for name, arguments in LINES.items():
        print(f"{name:<22} {seconds(arguments):.3f} s")


if __name__ == "__main__":
    main()
