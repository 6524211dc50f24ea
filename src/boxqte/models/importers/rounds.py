"""Which of a boosted model's trees count: all of them, those up to the best iteration, or a number of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from boxqte.errors import ModelError
from boxqte.exact import shown

Trees = int | Literal["all", "best"]


def read_trees(trees: object) -> Trees | None:
    """What a user says, as text or number: 'all', 'best', or how many trees."""
    if trees is None or trees == "all" or trees == "best":
        return trees
    text = str(trees) if isinstance(trees, int) and not isinstance(trees, bool) else trees
    if isinstance(text, str) and text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) > 0:
        return int(text)
    raise ModelError(f"trees: expected 'all', 'best' or a number of trees from 1 on, found {shown(trees)}")


def rounds_used(trees: Trees | None, ends: Sequence[int], best: int | None, default: int, where: str) -> int:
    """How many boosting rounds count; `ends[r]` is the number of trees of the first r rounds, from 0 on.

    `best` is the number of rounds up to the best iteration, where the model knows one.
    """
    if trees is None:
        return default
    if trees == "all":
        return len(ends) - 1
    if trees == "best":
        if best is None:
            raise ModelError(
                f"{where}trees='best': the model has no best iteration; accepted are 'all' and a number of trees"
            )
        return best
    if trees in ends:
        return list(ends).index(trees)
    step = f" in steps of {ends[1]}" if len(ends) > 1 and ends[1] > 1 else ""
    raise ModelError(f"{where}trees={trees}: the model has {ends[-1]} trees; accepted are 1 to {ends[-1]}{step}")


def refuse_rounds(trees: Trees | None, what: str) -> None:
    """Refuse to cut a model that is no sequence of rounds."""
    if trees not in (None, "all"):
        shown_as = trees if isinstance(trees, int) else f"'{trees}'"
        raise ModelError(
            f"{what}: trees={shown_as}: has no boosting rounds, so all of its trees count; accepted is 'all'"
        )
