"""Seconds against trees (10 to 100, depth 3 and 4) on COMPAS, Bank and LSAC, with fitted exponents and a plot.

    python -m benchmarks.scaling [options of `boxqte bench scaling`]

It is `boxqte bench scaling --only trees`, with its files in benchmarks/out.
"""

from __future__ import annotations

import sys

from boxqte.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "scaling", "--only", "trees", "--output", "benchmarks/out", *sys.argv[1:]]))
