"""Hot spots: XGBoost, 50 trees of depth 3, every sensitive attribute of the data sets; one line a problem.

    python -m benchmarks.hotspots [--rules] [--size 50x3] [NAME ...]

Columns: rules, the least lift of any of them and the share of all counterexamples that they hold together (both certain lower
bounds), seconds on the clock and of the CPU after quantification (another load on the machine distorts the first), and how many
rules disagree with a count by `restrict`: bounds that have no number in common. More than 0 is an error. --rules prints the tree
as well. The data sets (NAME.csv and NAME.schema.json) lie in the folder that BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.paper.datasets import DATASETS, DataError, load_dataset
from benchmarks.paper.models import ModelSize, train

from boxqte import BoxQTEError, Fairness, Quantification, quantify
from boxqte.report.hotspots import hotspots_text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(DATASETS))
    parser.add_argument("--size", default="50x3")
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds for each question (default 120)")
    parser.add_argument("--rules", action="store_true")
    arguments = parser.parse_args()
    print(f"{'problem':<14}{'rules':>6}{'lift':>8}{'together':>10}{'s':>7}{'CPU s':>7}{'disagree':>10}", flush=True)
    wrong = 0
    try:
        for name in arguments.names:
            data = load_dataset(name)
            model = train(data, ModelSize.parse(arguments.size))
            for sensitive in data.space.sensitive:
                result = quantify(model, data.space, Fairness(sensitive), time_limit=arguments.time_limit)
                wrong += line(f"{name} {sensitive}", result, arguments.rules)
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if wrong else 0


def line(title: str, result: Quantification, rules: bool) -> int:
    """Print a problem's line; how many rules disagree."""
    wall, cpu = time.perf_counter(), time.process_time()
    table = result.hotspots()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    wrong = sum(disagrees(result, row) for row in table.to_dict("records"))
    lift = table["lift_lower"].min() if len(table) else 0.0
    together = table["covered_lower"].iloc[-1] if len(table) else 0.0
    print(f"{title:<14}{len(table):6d}{lift:8.2f}{together:10.4f}{wall:7.1f}{cpu:7.1f}{wrong:10d}", flush=True)
    if rules:
        print(f"\n{hotspots_text(table)}\n", flush=True)
    return wrong


def disagrees(result: Quantification, row: dict[str, float | str]) -> bool:
    """Whether a count by `restrict` contradicts the rule's numbers."""
    try:
        inside = result.restrict(str(row["rule"]))
    except BoxQTEError as error:
        print(f"{row['rule']}: {error}", file=sys.stderr)
        return True
    own = inside.counterexample
    mass = abs(inside.details["share_of_space"] - float(row["mass"])) > 1e-12
    return bool(mass or own.lower > float(row["density_upper"]) or own.upper < float(row["density_lower"]))


if __name__ == "__main__":
    sys.exit(main())
