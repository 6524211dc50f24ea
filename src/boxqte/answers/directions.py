"""Who flips to what: with which sensitive value an input gets one class, and with which other value the other class."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from boxqte.answers.allowed import allowed_mass
from boxqte.answers.asked import Asked, Ends, searched
from boxqte.answers.followups import follow_up_limits
from boxqte.answers.result import Result, asked_of
from boxqte.engines.protocol import Limits
from boxqte.engines.refusals import two_classes
from boxqte.errors import EngineError, PropertyError
from boxqte.exact import down, up
from boxqte.questions.combined import Combination, combinations, combined_grid
from boxqte.questions.grid import binary
from boxqte.questions.variations import one_class_grid

MOST_VALUES = 12
ZERO = Fraction(0)


class Direction(NamedTuple):
    """Class 0 with one sensitive value, class 1 with the other; certain bounds on the share of all inputs in such a pair."""

    refused: str
    granted: str
    lower: float
    upper: float


def directions(result: Result, *, time_limit: float | None = None) -> tuple[list[Direction], bool]:
    """Every pair of sensitive values, both ways, the most frequent first; and whether no limit ended a search.

    An input counts with its own value as either of the two, if there is an x' with the other value and the other class.
    """
    asked = asked_of(result)
    if not asked.grid.property.sensitive:
        raise PropertyError("directions: robustness has no sensitive attributes")
    two_classes(asked.grid, "pairs")
    key = ("directions", time_limit)
    if key not in asked.answers:
        asked.answers[key] = _mixed(asked, follow_up_limits(asked, time_limit))
    found, texts, done = asked.answers[key]
    least, most = allowed_mass(asked)  # what is shown are shares of what the rules leave
    listed = [
        Direction(texts[refused], texts[granted], down(low / most), min(up(high / least), 1.0))
        for (refused, granted), (low, high) in found.items()
    ]
    return sorted(listed, key=lambda direction: -direction.lower), done


Found = tuple[dict[tuple[int, int], Ends], list[str], bool]


def _mixed(asked: Asked, limits: Limits) -> Found:
    if not asked.pieces:
        return _counted(asked, limits)
    sums: dict[tuple[int, int], Ends] = {}
    done, texts = True, list[str]()
    for weight, own in asked.pieces:
        found, texts, finished = _counted(asked_of(own), limits)
        for key, (low, high) in found.items():
            before = sums.get(key, (ZERO, ZERO))
            sums[key] = before[0] + weight * low, before[1] + weight * high
        done &= finished
    return sums, texts, done


def _counted(asked: Asked, limits: Limits) -> Found:
    """(who has class 0, who has class 1) -> bounds on the mass of both."""
    combos = combinations(asked.grid)
    if len(combos) > MOST_VALUES:
        raise EngineError(
            f"directions: the sensitive attributes have {len(combos)} combinations of cells, at most {MOST_VALUES} are told apart"
        )
    found: dict[tuple[int, int], Ends] = {}
    done = True
    for i in range(len(combos)):
        for j in range(len(combos)):
            if i == j:
                continue
            (low, high), finished = _one_way(asked, combos[i], combos[j], limits)
            found[i, j] = low, high
            done &= finished
    return found, [combo.text for combo in combos], done


def _one_way(asked: Asked, refused: Combination, granted: Combination, limits: Limits) -> tuple[Ends, bool]:
    """The mass of the x with either value that are class 0 with the first, and class 1 with the second."""
    total, done = (ZERO, ZERO), True
    rounding = asked.regions().rounding
    mutual = asked.grid.mutual
    turns = [(refused, granted, -1)] if mutual else [(refused, granted, -1), (granted, refused, 1)]
    for own, other, counted in turns:
        mass = own.mass + other.mass if mutual else own.mass
        if not mass:
            continue
        grid = combined_grid(binary(asked.grid), [own, other])
        if grid.thresholds.signs_only:
            grid = replace(grid, thresholds=replace(grid.thresholds, counted=counted))
        else:
            grid = one_class_grid(grid, counted == 1)
        (low, high), finished = searched(asked, grid, limits)
        total = total[0] + low * mass, total[1] + min(high * mass + rounding, mass)
        done &= finished
    return total, done
