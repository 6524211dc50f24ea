"""Seconds against trees (10 to 100, depth 3 and 4) on COMPAS, Bank and LSAC, with fitted exponents and a plot.

    python -m benchmarks.scaling [options of `python -m benchmarks.paper scaling`]

It is `python -m benchmarks.paper scaling --only trees`, with its files in benchmarks/out.
"""

from __future__ import annotations

import sys

from benchmarks.paper.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["scaling", "--only", "trees", "--output", "benchmarks/out", *sys.argv[1:]]))
