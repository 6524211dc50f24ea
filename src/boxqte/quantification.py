"""The one obvious function: how fair (or robust) is this model over this space?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from boxqte.certificate import CertificateWriter, refuse_what_has_none
from boxqte.checkpoint import EVERY, Checkpoint, checked_every, identity
from boxqte.checks import MAX_WORKERS, file_path, function, number, seconds, whole, worker_count
from boxqte.engines import DEFAULT_ENGINE, Limits, Progress, Watch, engine_class, make_engine
from boxqte.errors import CertificateError, CheckpointError, EngineError, ModelError
from boxqte.exact import Number, fraction, plain
from boxqte.existence import settled
from boxqte.grid import build_grid
from boxqte.importers import ImportedModel, load_model
from boxqte.options import check_types
from boxqte.origin import Origin
from boxqte.properties import Property, check_property
from boxqte.regions import RegionStore
from boxqte.remarks import remarks
from boxqte.result import ModelSummary, Quantification, up
from boxqte.space import Space, read_space


def quantify(
    model: object,
    space: Space | Mapping[str, Any] | str | Path,
    property: Property,
    *,
    engine: str = DEFAULT_ENGINE,
    time_limit: float | None = None,
    gap: float = 0.0,
    threshold: Number | None = None,
    workers: int | None = None,
    n_jobs: int | None = None,
    memory_limit: int | None = None,
    node_limit: int | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    executor: Any = None,
    allow_pickle: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = EVERY,
    certificate: str | Path | None = None,
) -> Quantification:
    """Measure which share of the confident inputs is treated fairly (or robustly), with proof.

    Parameters
    ----------
    model
        A fitted model (XGBoost, LightGBM, CatBoost, scikit-learn), the path of a model file, or a TreeEnsemble.
    space
        The input space: a Space (or the `Inference` that it came with), the path of its JSON file, or the JSON object.
    property
        `Fairness(...)` or `Robustness(...)`.
    engine
        The engine's name.
    time_limit
        Seconds after which the engine stops with the bounds it has; None is no limit.
    gap
        Stop once upper - lower is at most this; 0 runs to the exact answer.
    threshold
        Stop once it is proved that the measure is at least this, or that it is below; None runs on.
    workers
        Threads or processes; None is one per core.
    n_jobs
        The same under scikit-learn's name: -1 is one per core. Give one of the two.
    memory_limit
        Bytes the engine may use; None is half of the machine.
    node_limit
        Stop after this many nodes of the search: a limit that repeats exactly.
    options
        Options of the engine, by name.
    progress
        Called with a Progress now and then.
    executor
        A `dask.distributed.Client`: the search runs in the processes behind it (engines box and auto; docs/cluster.md).
    allow_pickle
        Unpickle scikit-learn files; only for files you trust.
    checkpoint
        A file that keeps the state of the run. If it is there already, the run goes on from it; the file of another
        model, space or property is refused. Only for engine 'box'.
    checkpoint_every
        Seconds between two writings of the checkpoint.
    certificate
        A file for the proof: `boxqte certify` checks it without the engine. Only for engine 'box' and epsilon = 0.

    Returns
    -------
    Quantification
        The measure with its bounds, status, guarantee and trace.

    Examples
    --------
    >>> from boxqte import Fairness, quantify
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> result = quantify(loan_ensemble(), loan_space(), Fairness("race"))
    >>> result.converged
    True
    """
    check_property(property)
    imported = load_model(model, allow_pickle=allow_pickle)
    bound = read_space(space)
    limits = _limits(time_limit, gap, _workers(workers, n_jobs), memory_limit, node_limit, threshold)
    every = checked_every(checkpoint_every)
    checkpoint = None if checkpoint is None else file_path(checkpoint, "checkpoint", CheckpointError)
    certificate = None if certificate is None else file_path(certificate, "certificate", CertificateError)
    check_types(f"engine '{engine}'", engine_class(engine).Options, options)
    solver = make_engine(engine, options)
    if executor is not None:
        if not hasattr(solver, "use_cluster"):
            raise EngineError(f"engine '{engine}' runs in this process only; engines with a cluster are auto and box")
        solver.use_cluster(executor)
    watch = Watch(limits, function(progress, "progress"))
    grid = build_grid(imported.ensemble, bound, property, many_classes=getattr(solver, "many_classes", False))
    if not imported.ensemble.is_binary and (checkpoint is not None or certificate is not None):
        raise ModelError("checkpoints and certificates are for models with two classes; leave them out for this model")
    if checkpoint is not None:
        if not hasattr(solver, "keeper"):
            raise CheckpointError(f"checkpoint: engine '{engine}' cannot save its state; engine 'box' can")
        name = None if certificate is None else str(certificate)
        solver.keeper = Checkpoint(checkpoint, identity(grid, engine, name), every)
    writer = None
    if certificate is not None:
        refuse_what_has_none(grid, engine, solver)
        writer = solver.recorder = CertificateWriter(certificate, grid)  # type: ignore[attr-defined]
    # A resumed run sees only part of the boxes; without a store the regions are searched when they are asked for.
    store = RegionStore() if checkpoint is None and hasattr(solver, "observers") else None
    if store is not None:
        solver.observers.append(store)  # type: ignore[attr-defined]
    try:
        outcome = solver.run(grid, limits, watch)
        if store is not None:
            store.finish(outcome.decided, outcome.status)
        if writer is not None:
            writer.finish(outcome.decided)
    finally:
        if writer is not None:
            writer.close()
    result = Quantification(
        property=property,
        model=summary(imported),
        engine=engine,
        status=outcome.status,
        # With a certificate the result claims what the record proves, and nothing more.
        decided=outcome.decided if writer is not None else settled(grid, outcome, store, limits),
        seconds=watch.seconds,
        trace=tuple(watch.trace),
        space_fingerprint=bound.fingerprint(),
        rounding_ambiguous=outcome.rounding_ambiguous,
        input_rounding=up(grid.input_rounding),
        count=bound.count(),
        details=outcome.details,
        statistical=outcome.statistical,
        all_confident=not grid.low_possible,
        origin=Origin(imported, grid, engine, dict(options or {}), limits, store),
    )
    return replace(result, remarks=remarks(grid, result))


def summary(imported: ImportedModel) -> ModelSummary:
    """Which model it is, for results and reports."""
    e = imported.ensemble
    facts = (e.library, e.n_trees, e.n_leaves, e.n_features, e.fingerprint())
    return ModelSummary(*facts, imported.source, imported.trees_in_file)


def _workers(workers: int | None, n_jobs: int | None) -> int:
    if n_jobs is not None:
        if workers is not None:
            raise EngineError(f"workers and n_jobs mean the same; give one of them, found {workers} and {n_jobs}")
        if n_jobs == 0 or whole(n_jobs, "n_jobs", -(2**63), MAX_WORKERS) < -1:
            raise EngineError(f"n_jobs: must be at least 1, or -1 for one per core, found {n_jobs}")
        workers = None if n_jobs == -1 else n_jobs
    return worker_count(workers)


def _limits(
    time_limit: float | None,
    gap: float,
    workers: int,
    memory_limit: int | None,
    node_limit: int | None,
    threshold: Number | None,
) -> Limits:
    gap = number(gap, "gap")
    if not 0 <= gap <= 1:
        raise EngineError(f"gap: must lie between 0 and 1, found {gap}")
    memory = None if memory_limit is None else whole(memory_limit, "memory_limit", unit="bytes")
    nodes = None if node_limit is None else whole(node_limit, "node_limit")
    level = None if threshold is None else fraction(threshold, EngineError, "threshold")
    if level is not None and not 0 <= level <= 1:
        raise EngineError(f"threshold: must lie between 0 and 1, found {plain(level)}")
    return Limits(seconds(time_limit), gap, nodes, memory, workers, level)
