"""The same question for three worlds: the whole space, a population like the data, and the rows of the data themselves.

One number misleads where worlds differ: a share of all inputs counts people that nobody has seen, a share of the rows says
nothing of those who come tomorrow. So an audit that has data asks for all three, and says which number is about whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boxqte.answers.empirical import Empirical, empirical
from boxqte.answers.rates import RowRates, row_rates
from boxqte.answers.result import THE_SPACE, world_of
from boxqte.basics.budget import TimeBudget
from boxqte.basics.checks import as_names
from boxqte.errors import BoxQTEError, EngineError
from boxqte.models.importers import ImportedModel
from boxqte.questions.properties import Property
from boxqte.space.populations import Population, number_of_components
from boxqte.space.space import Space

SPACE, POPULATION, ROWS = "space", "population", "rows"
WORLDS = (SPACE, POPULATION, ROWS)
FIT_SHARE, ROWS_SHARE = 0.2, 0.1  # of the time limit
MOST_COMPONENTS = 8  # if nobody says how many: each of them takes a search


@dataclass(frozen=True, eq=False)
class Worlds:
    """What the space is compared with."""

    data: Any = None
    """The table, where its rows are asked about."""
    population: Population | None = None
    notes: tuple[str, ...] = ()


def read_worlds(names: Any) -> tuple[str, ...]:
    """The worlds that are asked for; the space is always among them."""
    if names is None:
        return WORLDS
    given = as_names(names, "worlds", EngineError)
    for name in given:
        if name not in WORLDS:
            raise EngineError(f"worlds: '{name}' is none; expected some of {', '.join(WORLDS)}")
    return tuple(world for world in WORLDS if world in given or world == SPACE)


def worlds_of(
    names: Sequence[str], data: Any, space: Space, imported: ImportedModel, components: Any, clock: TimeBudget
) -> Worlds:
    """The population behind a table, fitted, and its rows; as far as they are asked for and there is a table."""
    number_of_components(components)  # refuses what is no number
    if data is None:
        return Worlds()
    rows = data if ROWS in names else None
    if POPULATION not in names or space.components:
        return Worlds(rows)
    seconds = None if clock.seconds is None else max(FIT_SHARE * clock.left, TimeBudget.LEAST)
    try:
        people = Population.fit(data, space, components, model=imported, most=MOST_COMPONENTS, time_limit=seconds)
    except BoxQTEError as error:
        return Worlds(rows, notes=(f"the population was not fitted: {error}",))
    return Worlds(rows, people)


def row_answers(
    imported: ImportedModel, space: Space, asked: Sequence[Property], data: Any, clock: TimeBudget, workers: int
) -> tuple[list[Empirical | None], list[str]]:
    """Each question for the rows, within a part of the time; and why, where that cannot be asked."""
    budget = TimeBudget(None if clock.seconds is None else max(ROWS_SHARE * clock.left, 0.0), len(asked))
    found: list[Empirical | None] = []
    notes = []
    for prop in asked:
        try:
            found.append(empirical(imported, space, prop, data, workers=workers, time_limit=budget.next_share()))
        except BoxQTEError as error:
            found.append(None)
            notes.append(f"rows: {error}")
    return found, list(dict.fromkeys(notes))


def rates_of_rows(imported: ImportedModel, space: Space, sensitive: Sequence[str], data: Any) -> tuple[RowRates, ...]:
    """The rates of class 1 in the rows, by each attribute and by all of them together; none where they cannot be told."""
    if data is None or not imported.ensemble.is_binary or not imported.ensemble.predicts_classes:
        return ()
    sets = [(name,) for name in sensitive] + ([tuple(sensitive)] if len(sensitive) > 1 else [])
    found = []
    for names in sets:
        try:
            found.append(row_rates(imported, space, names, data))
        except BoxQTEError:  # too many groups; the attributes alone are told
            continue
    return tuple(found)


def world_sentences(space: Space, population: Population | None, rows: Empirical | None) -> Mapping[str, str]:
    """Which question each world answers, in one sentence each."""
    said = {SPACE: _space_sentence(space)}
    if population is not None:
        n = len(population.space.components) or 1
        what = f"a mixture of {n} products" if n > 1 else "the product of its columns' frequencies"
        said[POPULATION] = (
            f"how often would it happen to people like those in the data? Inputs count as {what}, fitted to {population.rows:,} "
            "rows, has them."
        )
    if rows is not None:
        some = f"; {rows.drawn:,} of them, drawn at random, were decided" if rows.drawn is not None else ""
        those = f"{rows.rows:,} rows as they are"
        if rows.forbidden:
            those = f"{rows.rows - rows.outside:,} of {rows.rows:,} rows that lie in the space and that no rule forbids"
        said[ROWS] = (
            f"how often does it happen in the data itself? The {those}{some}; the interval is for "
            f"the people behind them, with confidence {rows.confidence}."
        )
    return said


def _space_sentence(space: Space) -> str:
    counted = "Every input that the domains allow counts alike, whether or not anybody is like that."
    if world_of(space) != THE_SPACE:
        counted = f"Inputs count as in {world_of(space)}."
    elif any(a.weights is not None or a.histogram is not None or a.distribution is not None for a in space):
        counted = "Every combination of values counts, each value as often as the space says, without correlations."
    return f"is there room for it anywhere, and how much? {counted}"
