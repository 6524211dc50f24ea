"""The one obvious function: how fair (or robust) is this model over this space?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from boxqte.answers.asked import Asked
from boxqte.answers.certificate import CertificateWriter, joined
from boxqte.answers.checkpoint import EVERY, Checkpoint, identity
from boxqte.answers.pieces import remembered, search
from boxqte.answers.regions import RegionStore
from boxqte.answers.remarks import remarked
from boxqte.answers.result import ModelSummary, Result, among_allowed, ruled_of, world_of
from boxqte.basics.checks import MAX_WORKERS, number, seconds, whole, worker_count
from boxqte.engines import DEFAULT_ENGINE, engine_class, make_engine
from boxqte.engines.options import check_types
from boxqte.engines.protocol import Capability, Companions, Limits, Progress, Watch
from boxqte.errors import CheckpointError, EngineError
from boxqte.exact import Number, fraction, plain, up
from boxqte.models.importers import ImportedModel
from boxqte.questions.building import build_any_grid
from boxqte.questions.grid import AnyGrid
from boxqte.questions.pieces import pieces_of
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
    pieces = pieces_of(grid)
    mixed = len(pieces) > 1
    if certificate is not None and checkpoint is not None and mixed:
        raise CheckpointError("checkpoint: a certificate of a mixture is written in one go; leave out one of the two")
    # A resumed run sees only part of the boxes; without a store the regions are searched when they are asked for.
    sees = checkpoint is None and Capability.OBSERVERS in solver.capabilities
    stores = [RegionStore() if sees else None for _ in pieces]
    files = [] if certificate is None else [_part(certificate, at if mixed else None) for at in range(len(pieces))]
    writers: list[CertificateWriter | None] = [
        CertificateWriter(file, grid, component=at if mixed else None) for at, file in enumerate(files)
    ] or [None] * len(pieces)
    beside = [
        Companions(
            observers=() if store is None else (store,),
            recorder=writer,
            keeper=_keeper(checkpoint, piece.grid, engine, certificate, checkpoint_every, at if mixed else None),
            cluster=cluster,
        )
        for at, (piece, store, writer) in enumerate(zip(pieces, stores, writers))
    ]
    whole = Asked(imported, grid, engine, dict(options or {}), limits)
    asked = [replace(whole, grid=piece.grid, store=store, answers={}) for piece, store in zip(pieces, stores)]
    weights = [piece.weight for piece in pieces]
    try:
        found = search(solver, weights, asked, beside, limits, watch, recorded=certificate is not None)
        for writer, part in zip(writers, found.pieces):
            if writer is not None:
                writer.finish(part.decided)
        if certificate is not None and mixed:
            joined(certificate, files)
    finally:
        for writer in writers:
            if writer is not None:
                writer.close()
    outcome, ruled = found.outcome, ruled_of(space, pieces)
    result = Result(
        property=prop,
        model=summary(imported),
        engine=engine,
        status=outcome.status,
        decided=found.decided,
        seconds=watch.seconds,
        trace=tuple(watch.trace),
        space_fingerprint=space.fingerprint(),
        rounding_ambiguous=among_allowed(outcome.rounding_ambiguous, ruled),
        input_rounding=among_allowed(up(grid.input_rounding), ruled) or 0.0,
        count=space.count(),
        cells=grid.n_cells() if space.mass == "cells" else None,
        details=outcome.details,
        statistical=outcome.statistical,
        all_confident=not grid.low_possible,
        ruled=ruled,
        world=world_of(space),
    )
    return remarked(remembered(result, whole, weights, asked, found), grid, recorded=certificate is not None)


def _keeper(
    path: Path | None, grid: AnyGrid, engine: str, certificate: Path | None, every: float, at: int | None
) -> Checkpoint | None:
    """The checkpoint of a run; the products of a mixture have one file each."""
    if path is None:
        return None
    return Checkpoint(_part(path, at), identity(grid, engine, None if certificate is None else str(certificate)), every)


def _part(path: Path, at: int | None) -> Path:
    """The file of one product of a mixture."""
    return path if at is None else path.with_name(f"{path.name}.{at + 1}")


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
