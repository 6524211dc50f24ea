"""The one obvious function: how fair (or robust) is this model over this space?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from boxqte.answers.asked import Asked
from boxqte.answers.certificate import CertificateWriter
from boxqte.answers.checkpoint import EVERY, Checkpoint, identity
from boxqte.answers.existence import settled
from boxqte.answers.regions import RegionStore
from boxqte.answers.remarks import remarks
from boxqte.answers.result import ModelSummary, Result
from boxqte.basics.checks import MAX_WORKERS, number, seconds, whole, worker_count
from boxqte.engines import DEFAULT_ENGINE, engine_class, make_engine
from boxqte.engines.options import check_types
from boxqte.engines.protocol import Capability, Companions, Limits, Progress, Watch
from boxqte.engines.refusals import refuse
from boxqte.errors import EngineError
from boxqte.exact import Number, fraction, plain, up
from boxqte.models.importers import ImportedModel
from boxqte.questions.building import build_any_grid
from boxqte.questions.properties import Property
from boxqte.space.space import Space


def measure(
    imported: ImportedModel,
    space: Space,
    prop: Property,
    *,
    engine: str = DEFAULT_ENGINE,
    limits: Limits,
    options: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    cluster: Any = None,
    checkpoint: Path | None = None,
    checkpoint_every: float = EVERY,
    certificate: Path | None = None,
) -> Result:
    """The answer of an engine to one question about a model that is read, over a space; the limits are checked ones."""
    check_types(f"engine '{engine}'", engine_class(engine).Options, options)
    solver = make_engine(engine, options)
    watch = Watch(limits, progress)
    grid = build_any_grid(imported.ensemble, space, prop)
    # A resumed run sees only part of the boxes; without a store the regions are searched when they are asked for.
    store = RegionStore() if checkpoint is None and Capability.OBSERVERS in solver.capabilities else None
    name = None if certificate is None else str(certificate)
    writer = None if certificate is None else CertificateWriter(certificate, grid)
    companions = Companions(
        observers=() if store is None else (store,),
        recorder=writer,
        keeper=None if checkpoint is None else Checkpoint(checkpoint, identity(grid, engine, name), checkpoint_every),
        cluster=cluster,
    )
    refuse(engine, grid, companions)
    try:
        outcome = solver.run(grid, limits, watch, companions)
        if store is not None:
            store.finish(outcome.decided, outcome.status)
        if writer is not None:
            writer.finish(outcome.decided)
    finally:
        if writer is not None:
            writer.close()
    result = Result(
        property=prop,
        model=summary(imported),
        engine=engine,
        status=outcome.status,
        # With a certificate the result claims what the record proves, and nothing more.
        decided=(outcome.decided if writer is not None else settled(grid, outcome, store, limits)).lowered(
            grid.mass_error
        ),
        seconds=watch.seconds,
        trace=tuple(watch.trace),
        space_fingerprint=space.fingerprint(),
        rounding_ambiguous=outcome.rounding_ambiguous,
        input_rounding=up(grid.input_rounding),
        count=space.count(),
        cells=grid.n_cells() if space.mass == "cells" else None,
        details=outcome.details,
        statistical=outcome.statistical,
        all_confident=not grid.low_possible,
        asked=Asked(imported, grid, engine, dict(options or {}), limits, store),
    )
    return replace(result, remarks=remarks(grid, result))


def summary(imported: ImportedModel) -> ModelSummary:
    """Which model it is, for results and reports."""
    e = imported.ensemble
    facts = (e.library, e.n_trees, e.n_leaves, e.n_features, e.fingerprint())
    return ModelSummary(*facts, imported.source, imported.trees_in_file, imported.trees_because, e.decision)


def _workers(workers: int | None, n_jobs: int | None) -> int:
    if n_jobs is not None:
        if workers is not None:
            raise EngineError(f"workers and n_jobs mean the same; give one of them, found {workers} and {n_jobs}")
        if n_jobs == 0 or whole(n_jobs, "n_jobs", -(2**63), MAX_WORKERS) < -1:
            raise EngineError(f"n_jobs: must be at least 1, or -1 for one per core, found {n_jobs}")
        workers = None if n_jobs == -1 else n_jobs
    return worker_count(workers)


def limits_of(
    time_limit: float | None = None,
    *,
    gap: float = 0.0,
    workers: int | None = None,
    n_jobs: int | None = None,
    memory_limit: int | None = None,
    node_limit: int | None = None,
    require: Number | None = None,
) -> Limits:
    """The limits that arguments mean; errors name the argument."""
    gap = number(gap, "gap")
    if not 0 <= gap <= 1:
        raise EngineError(f"gap: must lie between 0 and 1, found {gap}")
    memory = None if memory_limit is None else whole(memory_limit, "memory_limit", unit="bytes")
    nodes = None if node_limit is None else whole(node_limit, "node_limit")
    level = None if require is None else fraction(require, EngineError, "require")
    if level is not None and not 0 <= level <= 1:
        raise EngineError(f"require: must lie between 0 and 1, found {plain(level)}")
    return Limits(seconds(time_limit), gap, nodes, memory, _workers(workers, n_jobs), level)
