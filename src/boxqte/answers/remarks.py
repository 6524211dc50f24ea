"""What a number does not say: sentences for people beside an answer that is true and yet says little."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from boxqte.answers.result import Result
from boxqte.basics.numbers import PHRASE, number_text
from boxqte.exact import plain
from boxqte.questions.axes import Axis
from boxqte.questions.grid import AnyGrid

FEW = 0.5  # below this share of confident inputs the answer says how many there are


def remarks(grid: AnyGrid, result: Result) -> tuple[str, ...]:
    """The remarks on a result, each a sentence; none for most results."""
    said = [*_on_epsilon(grid), *_on_sensitive(grid)]
    kappa, few = plain(result.property.kappa), result.confident
    if result.undefined:
        said.append(f"No input is confident at kappa {kappa}, so the measure is undefined.")
    elif few.upper < FEW:
        said.append(
            f"At kappa {kappa} only {number_text(few.lower, few.upper, PHRASE)} of the inputs are confident; the measure "
            "says nothing about the others."
        )
    return tuple(said)


def can_move(axis: Axis) -> bool:
    """Whether epsilon lets x' have another value than x."""
    attribute = axis.attribute
    if axis.sensitive or not attribute.is_numeric or attribute.low == attribute.high:
        return False
    return axis.tolerance >= 1 if attribute.kind == "integer" else axis.tolerance > 0


def _on_epsilon(grid: AnyGrid) -> list[str]:
    sensitive, epsilon = grid.property.sensitive, grid.property.epsilon
    given = bool(epsilon) if isinstance(epsilon, Fraction) else any(value for _, value in epsilon)
    if sensitive and not given:
        return []
    moving = [axis for axis in grid.axes if can_move(axis)]
    rest = "only its sensitive attributes differ" if sensitive else "it is x itself and every input is robust"
    if not moving:
        whole = any(axis.tolerance and axis.attribute.kind == "integer" for axis in grid.axes if not axis.sensitive)
        why = " (a tolerance below 1 moves no integer)" if whole else ""
        return [f"No attribute of x' can move within epsilon{why}: {rest}, whatever the model does."]
    if not any(_is_tested(grid, axis) for axis in moving):
        names = _listed([axis.attribute.name for axis in moving])
        return [f"Only {names} can move within epsilon, and no tree tests {_them(moving)}: epsilon changes no class."]
    return []


def _on_sensitive(grid: AnyGrid) -> list[str]:
    said = []
    axes = [axis for axis in grid.axes if axis.sensitive]
    alone = [axis for axis in axes if axis.n_cells == 1 and bool(axis.single[0])]
    for axis in alone:
        said.append(f"{axis.attribute.name} has one value only in this space: no x' differs from x in it.")
    untested = [axis for axis in axes if axis not in alone and not _is_tested(grid, axis)]
    if untested:
        names = _listed([axis.attribute.name for axis in untested])
        said.append(
            f"No tree tests {names}: the class never depends on {_them(untested)}; proxies are not covered by this measure."
        )
    return said


def _is_tested(grid: AnyGrid, axis: Axis) -> bool:
    return any(grid.axes[cut.axis] is axis for cut in grid.cuts)


def _them(axes: Sequence[Axis]) -> str:
    return "it" if len(axes) == 1 else "them"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
