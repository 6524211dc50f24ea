"""From a result to the findings that a report shows. Each part has a time limit; one that cannot be made leaves a note."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from boxqte.budget import TimeBudget
from boxqte.errors import BoxQTEError
from boxqte.report.findings import NOTHING, Difference, Extent, Findings, FlipMatrix, Pair, Profile, ProfileCell, Rule
from boxqte.result import Quantification

if TYPE_CHECKING:
    import pandas as pd

    from boxqte.space import Space

SEARCH_SECONDS = 3.0  # for each search behind a finding
PROFILE_SECONDS = 20.0  # for all profiles of one question
LONG_NUMBER = re.compile(r"\d+\.\d{6,}(?:e[-+]?\d+)?")
SEED = 0  # the examples of a report are the same whenever it is made


def gather(result: Quantification, space: Space | None = None) -> Findings:
    """Regions, profiles, flips and pairs of the result; nothing for one without counterexamples or read from a file."""
    if result.origin is None or result.undefined or not result.decided.unfair:
        return NOTHING
    notes: list[str] = []
    if not result.converged:
        notes.append("The search did not finish: regions, profiles and examples show what it has decided.")
    extent = Extent()
    space = result.origin.grid.space if space is None else space
    return Findings(
        rules=_part("the regions", notes, lambda: _rules(result, extent)),
        matrices=_part("the flip matrix", notes, lambda: _matrices(result, extent))
        if result.property.sensitive
        else (),
        pairs=_part("the examples", notes, lambda: _pairs(result, extent)),
        profiles=_part("the profiles", notes, lambda: _profiles(result, space, extent, notes)),
        notes=tuple(notes),
    )


def _part(name: str, notes: list[str], make: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    try:
        return make()
    except BoxQTEError as error:
        notes.append(f"Without {name}: {error}")
        return ()


def _rules(result: Quantification, extent: Extent) -> tuple[Rule, ...]:
    table = result.regions(top=extent.rules, time_limit=SEARCH_SECONDS)
    names = [name for name in result.origin.grid.space.names if name in table.columns]
    rules = []
    for row in table.to_dict("records"):
        conditions = tuple(_shortened(str(row[name])) for name in names if row[name])
        rules.append(Rule(conditions, row["mass"], row["share"], row["density"], str(row.get("flip", ""))))
    return tuple(rules)


def _shortened(condition: str) -> str:
    """24.899999618530273 is 24.9 as the model's float32 threshold has it; seven digits are enough to read."""
    return LONG_NUMBER.sub(lambda match: f"{float(match[0]):.7g}", condition)


def _profiles(result: Quantification, space: Space, extent: Extent, notes: list[str]) -> tuple[Profile, ...]:
    """The attributes along which the unfair share differs the most."""
    budget = TimeBudget(PROFILE_SECONDS, 1)
    found: list[tuple[float, Profile]] = []
    for axis in result.origin.grid.axes:
        name = axis.attribute.name
        if len(axis.cells) < 2 or name not in space.names:
            continue
        if budget.left <= 0:
            notes.append(f"The time for the profiles was over before {name}.")
            break
        table = result.profile(name, time_limit=SEARCH_SECONDS)
        shares = [row["density"] for row in table.to_dict("records") if row["mass"] > 0]
        if shares and max(shares) > 0:
            found.append((max(shares) - min(shares), Profile(name, _cells(table, axis, extent.cells))))
    found.sort(key=lambda entry: -entry[0])
    return tuple(profile for _, profile in found[: extent.profiles])


def _cells(table: pd.DataFrame, axis: Any, most: int) -> tuple[ProfileCell, ...]:
    """The rows of a profile; neighbours of a numeric attribute are put together while there are too many."""
    rows = []
    for row, cell in zip(table.to_dict("records"), axis.cells):
        ends = (None, None) if cell.low is None else (float(cell.low[0]), float(cell.high[0]))
        unfair = (row["lower"] + row["upper"]) / 2
        rows.append((_shortened(str(row["value"])), float(row["mass"]), unfair, *ends))
    if any(low is None for *_, low, _ in rows):
        rows = sorted((r for r in rows if r[1] > 0), key=lambda r: -r[2] / r[1])[:most]
    else:
        step = -(-len(rows) // most)
        rows = [_together(rows[i : i + step]) for i in range(0, len(rows), step)]
    return tuple(
        ProfileCell(label, unfair / mass if mass else 0.0, unfair, low, high) for label, mass, unfair, low, high in rows
    )


def _together(rows: list[Any]) -> Any:
    if len(rows) == 1:
        return rows[0]
    label = f"{rows[0][0]} ... {rows[-1][0]}"
    return (label, sum(r[1] for r in rows), sum(r[2] for r in rows), rows[0][3], rows[-1][4])


def _matrices(result: Quantification, extent: Extent) -> tuple[FlipMatrix, ...]:
    table = result.pairs(time_limit=SEARCH_SECONDS)
    weight = table.sum(axis=1) + table.sum(axis=0)
    kept = sorted(weight.nlargest(extent.labels).index, key=list(table.index).index)
    title = ", ".join(result.property.sensitive)
    if len(kept) < len(table):
        title += f" (the {len(kept)} of {len(table)} values with the most)"
    masses = tuple(tuple(_mass(table, row, column) for column in kept) for row in kept)
    return (FlipMatrix(title, tuple(map(str, kept)), masses),)


def _mass(table: pd.DataFrame, row: Any, column: Any) -> float | None:
    """None where x' cannot have the same value as x; it can within a cell that holds several points (epsilon > 0)."""
    mass = float(table.loc[row, column])
    return None if row == column and not mass else mass


def _pairs(result: Quantification, extent: Extent) -> tuple[Pair, ...]:
    """Counterexamples drawn by mass, each with the input that makes it one, in readable values."""
    import numpy as np

    from boxqte.cellvalues import GridValues
    from boxqte.sampling import drawn

    origin = result.origin
    values = GridValues(origin.grid)
    two = drawn(origin, origin.regions(), extent.pairs, np.random.default_rng(SEED), 1, values)
    classes = _classes(origin.model.ensemble, *(values.matrix(columns) for columns in two))
    pairs = []
    for i in range(extent.pairs):
        attributes = tuple(
            Difference(axis.attribute.name, *(_shown(axis.attribute, columns[at][i]) for columns in two))
            for at, axis in enumerate(origin.grid.axes)
        )
        # what changed comes first, so that it is seen where a model has many columns
        pairs.append(Pair(tuple(sorted(attributes, key=lambda d: not d.changed)), classes[0][i], classes[1][i]))
    return tuple(pairs)


def _classes(ensemble: Any, first: Any, second: Any) -> tuple[list[str], list[str]]:
    """The classes of both inputs of each pair. They differ, so of two margins the larger one is the positive class."""
    import numpy as np

    margins = np.asarray(ensemble.margin(first)), np.asarray(ensemble.margin(second))
    if margins[0].shape[1] == 1:
        positive = (margins[0] > margins[1])[:, 0]
        numbers = positive.astype(int), (~positive).astype(int)
    else:
        numbers = margins[0].argmax(axis=1), margins[1].argmax(axis=1)
    one, two = ([str(ensemble.classes[c]) for c in classes] for classes in numbers)
    return one, two


def _shown(attribute: Any, value: float) -> str:
    if math.isnan(value) or (not attribute.is_numeric and int(value) >= len(attribute.values)):
        return "missing"
    if not attribute.is_numeric:
        return str(attribute.label_of(int(value)))
    return str(int(value)) if attribute.kind == "integer" else f"{value:.6g}"
