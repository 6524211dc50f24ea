"""One measurement in a fresh process: train the model, ask the question, report seconds, bounds and peak memory.

A process of its own a row, so that peak memory is that row's alone, and so that a crash, a kernel that hangs or a solver
that ignores its limit costs one row and not the table. `python -m benchmarks.paper.runs` is that process: a job as JSON on
standard input, the row as JSON on the last line of standard output.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.paper.configurations import Configuration
from benchmarks.paper.records import Row

from boxqte._version import __version__
from boxqte.basics.machine import cores as available_cores
from boxqte.errors import BoxQTEError

if TYPE_CHECKING:
    from boxqte.api.quantify import Quantification

TRACE_POINTS = 200
GRACE_SECONDS = 120.0
"""How long after its time limit a process may still train, load and report before it is ended."""


@dataclass(frozen=True)
class Job:
    """What a row measures. `method` is the name it has in the table; engine and options say what that is."""

    configuration: Configuration
    method: str = "box"
    engine: str = "box"
    options: dict[str, Any] = field(default_factory=dict)
    library: str = "xgboost"
    trees: int = 50
    depth: int = 3
    time_limit: float = 600.0
    workers: int = 2
    seed: int = 0
    sample: int = 0
    """Draw so many counterexamples afterwards (0: none)."""
    tester: str | None = None
    """Run this fairness tester instead of an engine."""
    attributes: int | None = None
    """Train on so many attributes only: the sensitive one and the first others."""
    count_boxes: bool = False
    """Also count, or estimate, the boxes that an enumerator would visit."""
    gap: float = 0.0
    """Stop where the bounds are so close."""

    @property
    def size(self) -> str:
        return f"{self.trees}x{self.depth}"

    @property
    def key(self) -> str:
        """What makes two rows the same row."""
        options = "".join(f",{name}={value}" for name, value in sorted(self.options.items()))
        what = f"tester-{self.tester}{options}" if self.tester else f"{self.engine}{options}"
        sample = f"/sample{self.sample}" if self.sample else ""
        sample += f"/{self.attributes}attributes" if self.attributes else ""
        sample += f"/gap{self.gap:g}" if self.gap else ""
        return (
            f"{self.configuration.name}/{what}/{self.library}-{self.size}/{self.time_limit:g}s-{self.workers}w-"
            f"seed{self.seed}{sample}"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, node: dict[str, Any]) -> Job:
        return cls(**(node | {"configuration": Configuration(**node["configuration"])}))


def measure(job: Job, data_dir: str | None = None) -> Row:
    """Do the job in this process; the row without the process's own figures."""
    from benchmarks.paper.datasets import load_dataset
    from benchmarks.paper.models import ModelSize, train

    from boxqte.api.quantify import quantify

    data = load_dataset(job.configuration.dataset, data_dir)
    if job.attributes is not None:
        data = data.narrowed(job.attributes, job.configuration.sensitive)
    model = train(data, ModelSize(job.trees, job.depth), job.library, job.seed)
    before = peak_bytes()
    if job.tester is not None:
        from benchmarks.paper.testing import tester_row

        return tester_row(job, model, data) | {"bytes_before": before}
    loading = load_kernels(job) if job.engine == "box" else 0.0
    last: list[Any] = []

    def keep(progress: Any) -> None:
        last[:] = [progress]

    result = quantify(
        model,
        data.space,
        job.configuration.property(),
        engine=job.engine,
        options=job.options,
        time_limit=job.time_limit,
        workers=job.workers,
        gap=job.gap,
        progress=keep,
    )
    row = result_row(result) | {"bytes_before": before}
    row["loading_seconds"] = loading
    row["nodes"] = result.details.get("nodes", last[0].nodes if last else None)
    if job.sample:
        from benchmarks.paper.testing import sample_row

        row["sample"] = sample_row(result, job, model, data)
    if job.count_boxes:
        from benchmarks.paper.boxcount import count_boxes

        from boxqte.models.importers import load_model
        from boxqte.questions.building import build_grid

        grid = build_grid(load_model(model).ensemble, data.space, job.configuration.property())
        row["boxes"] = asdict(count_boxes(grid, job.seed))
    return row


def load_kernels(job: Job) -> float:
    """Load the box engine with a tiny question of the same kind; the seconds it took.

    A process pays this once, however many questions it asks, so it is a figure of its own.
    """
    from boxqte.api.quantify import quantify
    from boxqte.examples import loan_ensemble, loan_space
    from boxqte.questions.properties import Fairness

    started = time.perf_counter()
    question = Fairness("race", job.configuration.epsilon_rate, job.configuration.kappa)
    quantify(loan_ensemble(), loan_space(), question, workers=1)
    return time.perf_counter() - started


def result_row(result: Quantification) -> Row:
    """The figures of a result that tables need; plain JSON."""
    bounds = result.bounds
    return {
        "status": str(result.status),
        "converged": result.converged,
        "lower": None if bounds is None else bounds.lower,
        "upper": None if bounds is None else bounds.upper,
        "gap": None if bounds is None else (0.0 if result.converged else bounds.gap),
        "value": result.value,
        "confident": [result.confident.lower, result.confident.upper],
        "counterexample": [result.counterexample.lower, result.counterexample.upper],
        "rounding_ambiguous": result.rounding_ambiguous,
        "input_rounding": result.input_rounding,
        "seconds": result.seconds,
        "trace": thinned(result.trace),
        "details": {k: v for k, v in result.details.items() if isinstance(v, (int, float, str, bool))},
        "model": {
            "fingerprint": result.model.fingerprint,
            "leaves": result.model.leaves,
            "library": result.model.library,
        },
    }


def thinned(trace: tuple[tuple[float, float, float], ...]) -> list[list[float]]:
    """At most TRACE_POINTS points of a trace; the first, the last, and those where the bounds moved most in between."""
    points = [list(point) for point in trace]
    if len(points) <= TRACE_POINTS:
        return points
    step = (len(points) - 1) / (TRACE_POINTS - 1)
    return [points[round(i * step)] for i in range(TRACE_POINTS)]


def run_fresh(job: Job, data_dir: str | None = None) -> Row:
    """Do the job in a fresh process. Whatever happens to it, a row comes back; `error` says what went wrong."""
    started = time.time()
    row: Row
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.paper.runs"],
            input=json.dumps({"job": job.to_json(), "data_dir": data_dir}),
            capture_output=True,
            text=True,
            timeout=job.time_limit + max(GRACE_SECONDS, 0.2 * job.time_limit),
            check=False,
            env=os.environ | {"PYTHONPATH": _python_path()},
        )
    except subprocess.TimeoutExpired:
        row = {"error": "did not stop at its time limit and was ended", "status": "killed"}
    else:
        row = _read_row(done)
    return {
        "key": job.key,
        "method": job.method,
        "job": job.to_json(),
        **row,
        "machine": machine(),
        "version": __version__,
        "started": round(started, 3),
        "wall_seconds": round(time.time() - started, 3),
    }


def _read_row(done: subprocess.CompletedProcess[str]) -> Row:
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        row: Row = json.loads(lines[-1])
        return row
    said = (done.stderr.strip().splitlines() or ["nothing on standard error"])[-1]
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return {"error": f"the process ended with {ended}: {said[:300]}", "status": "crashed"}


def _python_path() -> str:
    """The child must import this very package, also where it runs from a source tree."""
    here = str(Path(__file__).resolve().parents[2])
    before = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([here, *([before] if before else [])])


def peak_bytes() -> int:
    """The most memory that this process had so far. VmHWM where there is one: ru_maxrss survives exec on Linux."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def machine() -> dict[str, Any]:
    """What kind of machine this is, without its name."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = available_cores()
    return {"processor": model, "cores": cores, "python": platform.python_version(), "system": platform.system()}


def main() -> int:
    """The fresh process: a job on standard input, its row on standard output."""
    task = json.loads(sys.stdin.read())
    row: Row
    try:
        row = measure(Job.from_json(task["job"]), task["data_dir"])
    except BoxQTEError as error:
        row = {"error": str(error), "status": "refused"}
    except MemoryError:
        row = {"error": "out of memory", "status": "crashed"}
    row["peak_bytes"] = peak_bytes()
    print(json.dumps(row, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
