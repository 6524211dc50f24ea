"""From the outcomes of the pieces of a question to one answer that remembers them (questions/pieces.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from boxqte.answers.asked import Asked
from boxqte.answers.existence import settled
from boxqte.answers.result import Result, ruled_of
from boxqte.engines.mixture import run_pieces, summed
from boxqte.engines.protocol import Companions, Decided, Engine, Limits, Outcome, Status, Watch
from boxqte.engines.refusals import refuse
from boxqte.questions.pieces import Piece


class Found(NamedTuple):
    """What a search has found of the whole, and of each piece."""

    outcome: Outcome
    pieces: list[Outcome]
    decided: Decided
    decided_of: list[Decided]


def search(
    engine: Engine,
    weights: Sequence[Fraction],
    asked: Sequence[Asked],
    beside: Sequence[Companions],
    limits: Limits,
    watch: Watch,
    *,
    recorded: bool = False,
) -> Found:
    """Run the engine on the question of every piece, whose store is finished here.

    recorded: with a certificate the result claims what the record proves, and nothing more.
    """
    pieces = [Piece(weight, own.grid) for weight, own in zip(weights, asked)]
    for piece, companions in zip(pieces, beside):
        refuse(engine.name, piece.grid, companions)
    outcome, parts = run_pieces(engine, pieces, limits, watch, beside)
    decided_of = []
    for own, part in zip(asked, parts):
        if own.store is not None:
            own.store.finish(part.decided, part.status)
        decided = part.decided if recorded else settled(own.grid, part, own.store, limits)
        decided = replace(decided, low=max(Fraction(decided.low), own.grid.forbidden_mass))
        decided_of.append(decided.lowered(own.grid.mass_error))
    sums = outcome.status is Status.CONVERGED or len(pieces) == 1
    decided = summed(pieces, decided_of) if sums else outcome.decided
    return Found(outcome, parts, decided if len(pieces) > 1 else decided_of[0], decided_of)


def remembered(
    result: Result, whole: Asked, weights: Sequence[Fraction], asked: Sequence[Asked], found: Found
) -> Result:
    """The answer with the question behind it: that of a product, or that of a mixture with the answers of its products."""
    if len(asked) == 1:
        return replace(result, asked=asked[0])
    answers = [
        replace(
            result,
            status=part.status,
            decided=decided,
            statistical=None,
            space_fingerprint=own.grid.space.fingerprint(),
            ruled=ruled_of(own.grid.space, [Piece(Fraction(1), own.grid)]),
            asked=own,
        )
        for part, decided, own in zip(found.pieces, found.decided_of, asked)
    ]
    return replace(result, asked=replace(whole, pieces=tuple(zip(weights, answers))))
