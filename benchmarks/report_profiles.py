"""Every profile in an audit's report against Monte Carlo: random inputs through XGBoost's own predict.

    python -m benchmarks.report_profiles --data-dir FOLDER
    python -m benchmarks.report_profiles --data-dir FOLDER --size 300x6 --time-limit 120

Trains XGBoost on a data set, runs `boxqte audit --html` with a time limit as a user would (its wall clock and processor time
are reported), and reads the numbers back from the page. An input is a counterexample if XGBoost predicts another class for
some x' that the question admits; all of these are tried, which takes spaces without real attributes. A row must hold the
share that was drawn, up to 4 standard errors, for its certain bounds and for its statistical interval.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.monte_carlo import probabilities, random_inputs
from benchmarks.paper.datasets import load_dataset
from benchmarks.paper.models import ModelSize, train

from boxqte import BoxQTEError, Fairness, Robustness, Space
from boxqte.auditing.audit import ROBUSTNESS_RATE
from boxqte.questions.properties import Property
from boxqte.space.attributes import Attribute

STANDARD_ERRORS = 4.0
BLOCK = 20_000


@dataclass(frozen=True)
class Row:
    """One number of a profile: of which question and attribute, of which values, and between which ends."""

    question: str
    attribute: str
    label: str
    kind: str
    lower: float
    upper: float


class Profiles(HTMLParser):
    """The rows of all profiles of a page, of tables and of charts, and how many rows are said to be undecided."""

    def __init__(self, page: str):
        super().__init__()
        self.rows: list[Row] = []
        self.undecided = 0
        self._question = self._attribute = self._label = ""
        self._in: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        data = {name: value or "" for name, value in given}
        if tag == "section":
            self._attribute = ""
        if tag in ("div", "figure"):
            self._attribute = data.get("data-attribute", self._attribute)
        if tag == "h2":
            self._in, self._question = "question", ""
        if tag == "tr":
            self._label = ""
        if tag == "td":
            self._in = "label" if not self._label else "cell"
        if "data-lower" in data and self._attribute:
            label = f"{data['data-low']} to {data['data-high']}" if tag == "rect" else self._label
            ends = float(data["data-lower"]), float(data["data-upper"])
            kind = data["data-kind"] + (" chart" if tag == "rect" else "")
            self.rows.append(Row(self._question, self._attribute, label, kind, *ends))

    def handle_data(self, data: str) -> None:
        if self._in == "question":
            self._question += data
        elif self._in == "label":
            self._label += data
        elif self._in == "cell" and data.startswith("not decided"):
            self.undecided += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h2", "td"):
            self._in = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--sensitive", default="sex,race")
    parser.add_argument("--size", default="50x3")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--samples", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data-dir", metavar="FOLDER")
    parser.add_argument("--keep", metavar="REPORT.html", help="keep the page here")
    arguments = parser.parse_args()
    try:
        data = load_dataset(arguments.dataset, arguments.data_dir)
        model = train(data, ModelSize.parse(arguments.size))
    except BoxQTEError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save_model(folder / "model.json")
        (folder / "space.json").write_text(json.dumps(data.space.to_json()))
        command = ["audit", "model.json", "--space", "space.json", "--sensitive", arguments.sensitive, "--html", "report.html",
                   "--time-limit", str(arguments.time_limit)]  # fmt: skip
        seconds, processor = run(folder, command)
        page = (folder / "report.html").read_text(encoding="utf-8")
    if arguments.keep:
        Path(arguments.keep).write_text(page, encoding="utf-8")
    print(f"boxqte {' '.join(command)}: {seconds:.1f} s wall clock, {processor:.1f} s processor time")
    found = Profiles(page)
    wrong = compare(found, model, data.space, arguments)
    kinds = {kind: sum(row.kind == kind for row in found.rows) for kind in sorted({row.kind for row in found.rows})}
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    print(
        f"{len(found.rows)} numbers of profiles ({counted}; {found.undecided} rows said to be undecided), {wrong} wrong"
    )
    return 1 if wrong or not found.rows else 0


def run(folder: Path, command: list[str]) -> tuple[float, float]:
    """Run the command there; its seconds by the clock and on processors."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "boxqte", *command], cwd=folder, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, used


def compare(found: Profiles, model: Any, space: Space, arguments: argparse.Namespace) -> int:
    """Draw inputs for every question of the page; how many rows do not hold what was drawn."""
    wrong = 0
    for question in dict.fromkeys(row.question for row in found.rows):
        sensitive = () if question == "robustness" else tuple(question.split(", "))
        prop: Property = Fairness(sensitive) if sensitive else Robustness(ROBUSTNESS_RATE)
        rng = np.random.default_rng([arguments.seed, *question.encode()])
        parts = []
        for start in range(0, arguments.samples, BLOCK):
            x = random_inputs(rng, space, min(BLOCK, arguments.samples - start))
            parts.append((x, counterexamples(model, x, space, prop)))
        x, unfair = (np.concatenate(part) for part in zip(*parts))
        print(f"{question}: {100 * unfair.mean():.4f} % of {len(x):,} inputs are counterexamples")
        for row in (row for row in found.rows if row.question == question):
            mine = unfair[
                holds(space[row.attribute], row.label, "chart" in row.kind)(x[:, space.names.index(row.attribute)])
            ]
            if not len(mine):
                continue
            share = float(mine.mean())
            near = min(max(share, row.lower), row.upper)
            off = (share - near) / math.sqrt(max(near * (1 - near), 1 / len(mine)) / len(mine))
            if abs(off) > STANDARD_ERRORS:
                wrong += 1
                print(f"wrong: {row} but {share:.6f} of {len(mine):,} inputs ({off:+.1f} standard errors)")
    return wrong


def counterexamples(model: Any, x: np.ndarray, space: Space, prop: Property) -> np.ndarray:
    """Whether XGBoost predicts another class for some x' of each x. kappa is 1/2 here: every x is confident."""
    own = probabilities(model, x) > 0.5
    unfair = np.zeros(len(x), bool)
    for values in itertools.product(*(partners(a, prop) for a in space)):
        other, inside = x.copy(), np.ones(len(x), bool)
        for at, (attribute, value) in enumerate(zip(space, values)):
            if value is None:
                continue
            column = np.full(len(x), value) if attribute.name in prop.sensitive else x[:, at] + value
            if attribute.is_numeric:
                inside &= (column >= float(attribute.low)) & (column <= float(attribute.high))
            other[:, at] = column
        unfair |= inside & ((probabilities(model, other) > 0.5) != own)
    return unfair


def partners(attribute: Attribute, prop: Property) -> list[float | None]:
    """What an attribute of x' may be: all its values if it is sensitive, else offsets from x; None leaves it as it is."""
    if attribute.kind == "real":
        raise SystemExit(f"error: attribute '{attribute.name}' is real; expected a data set of integers and categories")
    if attribute.name in prop.sensitive:
        if attribute.is_numeric:
            return [float(v) for v in range(int(attribute.low), int(attribute.high) + 1)]
        return [float(v) for v in attribute.values]
    if prop.sensitive or not attribute.is_numeric:
        return [None]
    reach = math.floor(ROBUSTNESS_RATE * attribute.range)
    return [float(step) for step in range(-reach, reach + 1)] if reach else [None]


def holds(attribute: Attribute, label: str, chart: bool) -> Any:
    """Which values of a column a row is about; the upper end of an integer's step in a chart is the next value."""
    if not attribute.is_numeric:
        names = label.split(" or ")
        values = [float(v) for i, v in enumerate(attribute.values) if attribute.label_of(i) in names or str(v) in names]
        return lambda column: np.isin(column, values)
    first, last = label.split(" ... ", maxsplit=1)[0], label.rsplit(" ... ", maxsplit=1)[-1]
    low, high = float(first.split(" to ")[0]), float(last.split(" to ")[-1])
    return lambda column: (column >= low) & (column < high if chart else column <= high)


if __name__ == "__main__":
    sys.exit(main())
