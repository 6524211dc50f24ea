"""What a number does not say: sentences for people beside an answer that is true and yet says little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from boxqte.answers.result import Result
from boxqte.basics.numbers import PHRASE, number_text
from boxqte.engines.protocol import Decided
from boxqte.exact import plain
from boxqte.questions.axes import Axis
from boxqte.questions.building import match_columns
from boxqte.questions.grid import AnyGrid

FEW = 0.5  # below this share of confident inputs the answer says how many there are


class Remark(NamedTuple):
    """A sentence, and the same in the few words that fit beside a number."""

    brief: str
    sentence: str


def remarked(result: Result, grid: AnyGrid, *, recorded: bool = False) -> Result:
    """The result with its remarks; most have none. Where no x' can be treated otherwise, the measure is 1 exactly.

    recorded: with a certificate the result claims what the record proves, and nothing more.
    """
    if not recorded and result.converged and result.all_confident and not any(map(partial(_matters, grid), grid.axes)):
        result = replace(result, decided=Decided(Fraction(1)))
    said = [*about_question(grid), *_on_confidence(result)]
    return replace(result, remarks=tuple(r.sentence for r in said), caveats=tuple(r.brief for r in said))


def about_question(grid: AnyGrid, *, rates: bool = False) -> list[Remark]:
    """What the question alone says, before it is answered: that x' cannot differ from x, or not in what counts."""
    return [*_on_epsilon(grid), *_on_sensitive(grid, rates)]


def sentences(grid: AnyGrid, *, rates: bool = False) -> tuple[str, ...]:
    """The remarks on a question, for answers that are no measure; those of group rates know a population's correlations."""
    return tuple(remark.sentence for remark in about_question(grid, rates=rates))


def _on_confidence(result: Result) -> list[Remark]:
    kappa, few = plain(result.property.kappa), result.confident
    if result.undefined:
        said = f"No input is confident at kappa {kappa}, so the measure is undefined."
        return [Remark("no input is confident", said)]
    if few.upper >= FEW:
        return []
    share = number_text(few.lower, few.upper, PHRASE)
    said = f"At kappa {kappa} only {share} of the inputs are confident; the measure says nothing about the others."
    return [Remark(f"about {share} of the inputs, the confident ones", said)]


def can_move(axis: Axis) -> bool:
    """Whether epsilon lets x' have another value than x."""
    attribute = axis.attribute
    if axis.sensitive or not attribute.is_numeric or attribute.low == attribute.high:
        return False
    return axis.tolerance >= 1 if attribute.kind == "integer" else axis.tolerance > 0


def _on_epsilon(grid: AnyGrid) -> list[Remark]:
    sensitive, epsilon = grid.property.sensitive, grid.property.epsilon
    given = bool(epsilon) if isinstance(epsilon, Fraction) else any(value for _, value in epsilon)
    if sensitive and not given:
        return []
    moving = [axis for axis in grid.axes if can_move(axis)]
    rest = "only its sensitive attributes differ" if sensitive else "it is x itself and every input is robust"
    if not moving:
        whole = any(axis.tolerance and axis.attribute.kind == "integer" for axis in grid.axes if not axis.sensitive)
        why = " (a tolerance below 1 moves no integer)" if whole else ""
        said = f"No attribute of x' can move within epsilon{why}: {rest}, whatever the model does."
        return [Remark("epsilon moves no attribute", said)]
    if not any(_is_tested(grid, axis) for axis in moving):
        names = _listed([axis.attribute.name for axis in moving])
        said = f"Only {names} can move within epsilon, and no tree tests {_them(moving)}: epsilon changes no class."
        return [Remark("epsilon changes no class", said)]
    return []


def _on_sensitive(grid: AnyGrid, rates: bool) -> list[Remark]:
    said = []
    prop = grid.property
    read = {at for at, _ in match_columns(grid.ensemble, grid.space, prop.sensitive)}
    axes = [axis for axis in grid.axes if axis.sensitive]
    alone = [axis for axis in axes if axis.n_cells == 1 and bool(axis.single[0])]
    for axis in alone:
        name = axis.attribute.name
        sentence = f"{name} has one value only in this space: no x' differs from x in it."
        said.append(Remark(f"{name} has one value only", sentence))
    untested = [axis for axis in axes if axis not in alone and not _is_tested(grid, axis)]
    what = "score" if prop.asks_scores else "class"
    for unread, words in ((True, "the model does not read"), (False, "no tree tests")):
        mine = [axis for at, axis in enumerate(grid.axes) if axis in untested and (at not in read) == unread]
        if not mine:
            continue
        brief = f"{words} {_listed([axis.attribute.name for axis in mine])}"
        sentence = f"{brief[0].upper()}{brief[1:]}: the {what} never depends on {_them(mine)}"
        if rates and grid.space.components:
            sentence += "; groups differ only by what goes along with it in the population"
        elif prop.kind != "monotonicity":
            sentence += "; proxies are not covered by this measure"
        said.append(Remark(brief, f"{sentence}."))
    return said


def _matters(grid: AnyGrid, axis: Axis) -> bool:
    """Whether x' can have a value on the axis that some tree tells from that of x."""
    return (axis.sensitive or can_move(axis)) and _is_tested(grid, axis)


def _is_tested(grid: AnyGrid, axis: Axis) -> bool:
    return any(grid.axes[cut.axis] is axis for cut in grid.cuts)


def _them(axes: Sequence[Axis]) -> str:
    return "it" if len(axes) == 1 else "them"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
