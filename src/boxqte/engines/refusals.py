"""The one place where an engine says no: what it is asked for beyond the plain question, and cannot do."""

from __future__ import annotations

from boxqte.engines import ENGINES, engine_class
from boxqte.engines.protocol import Capability, Companions
from boxqte.errors import BoxQTEError, CertificateError, CheckpointError, EngineError, ModelError
from boxqte.questions.grid import AnyGrid, Grid

WORDS: dict[Capability, tuple[type[BoxQTEError], str]] = {
    Capability.MANY_CLASSES: (ModelError, "answers for two classes only"),
    Capability.CHECKPOINT: (CheckpointError, "cannot save its state (checkpoint)"),
    Capability.CERTIFICATE: (CertificateError, "writes no certificate"),
    Capability.CLUSTER: (EngineError, "runs in this process only"),
    Capability.RULES: (EngineError, "lets x and x' be any input of the space, also one that a rule forbids"),
    Capability.PARTNERS: (EngineError, "lets x' be any input that differs in a sensitive attribute"),
}


INSTEAD = {
    "verify": "`quantify` with engine auto, box, exhaustive or sample takes this model",
    "check": "`quantify` with engine auto, box, exhaustive or sample, and `empirical`, take this model",
    "pairs": "`sample` gives pairs of inputs for this model",
    "rates": "`quantify` with engine auto, box, exhaustive or sample takes this model",
    "smtlib": "`quantify` with engine auto, box, exhaustive or sample takes this model",
}


def two_classes(grid: AnyGrid, asked: str) -> Grid:
    """The grid of a question that is answered for two classes; for three and more it is refused, with what to use instead."""
    if not isinstance(grid, Grid):
        n = grid.ensemble.n_outputs
        raise ModelError(f"{asked}: for models with two classes only, this one has {n}; {INSTEAD[asked]}")
    return grid


def refuse(name: str, grid: AnyGrid, companions: Companions) -> None:
    """Raise, in one line that says what would be accepted, if the engine cannot do what it is asked for."""
    if grid.space.components:  # `run_pieces` asks about its products, one by one
        raise EngineError(
            f"the space is a mixture of {len(grid.space.components)} products, for which this question is not answered; "
            "use the space without components"
        )
    many = not grid.ensemble.is_binary
    asked = {
        Capability.MANY_CLASSES: many,
        Capability.CHECKPOINT: companions.keeper is not None,
        Capability.CERTIFICATE: companions.recorder is not None,
        Capability.CLUSTER: companions.cluster is not None,
        Capability.RULES: bool(grid.forbidden),
        Capability.PARTNERS: isinstance(grid, Grid) and grid.partners is not None,
    }
    able = engine_class(name).capabilities
    for capability, wanted in asked.items():
        if wanted and capability not in able:
            error, words = WORDS[capability]
            others = ", ".join(n for n in sorted(ENGINES) if capability in engine_class(n).capabilities)
            found = f"; the model has {grid.ensemble.n_outputs}" if capability is Capability.MANY_CLASSES else ""
            raise error(f"engine '{name}' {words}{found}; {capability.value}: engines {others}")
    if many and (companions.keeper is not None or companions.recorder is not None):
        raise ModelError("checkpoints and certificates are for models with two classes; leave them out for this model")
    if isinstance(grid, Grid) and grid.partners is not None:
        if companions.recorder is not None:
            raise CertificateError(
                f"certificate: there are none for {grid.property.kind} or bounded changes; leave it out"
            )
        if name == "smt" and grid.partners.axis >= 0:
            raise EngineError(
                f"engine 'smt' asks of x' only that it differs, which is not enough for {grid.property.kind} or bounded "
                "changes; engines auto, box, cegar, exhaustive"
            )
        if name in ("smt", "cegar") and grid.partners.scale is not None:
            raise EngineError(
                f"engine '{name}' compares margins, no probabilities; use scale='margin', or engine auto, box or exhaustive"
            )
        if name in ("smt", "cegar") and grid.partners.gap and not grid.thresholds.all_confident:
            raise EngineError(
                f"engine '{name}' answers scores for all inputs; leave kappa and tie out, or use engine auto, box or exhaustive"
            )
    if grid.space.mass is not None:
        if companions.recorder is not None:
            raise CertificateError(
                "certificate: there are none where cells are counted; leave it out, or the space's mass 'cells'"
            )
        if name == "cegar":
            raise EngineError("engine 'cegar' divides cells, so they cannot count the same; use another engine")
    if grid.space.rules and companions.recorder is not None:
        raise CertificateError("certificate: there are none for spaces with rules; leave it out, or the rules")
    moved = [n for n, value in grid.property.tolerances(grid.space).items() if value]
    if companions.recorder is not None and moved:
        raise CertificateError(
            f"certificate: there are certificates for epsilon = 0 only, but '{moved[0]}' has a tolerance; leave it out"
        )
