"""From a number to an answer: regions, profiles, pairs and restrictions of a result. Each returns a pandas DataFrame.

All of them are exact in the same sense as the result: every mass is within the engine's rounding bound (about 1e-13) of
the exact one, or stands between `lower` and `upper` where a limit ended the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from boxqte.conditions import Part, both, mass_of, parse_condition, part_text
from boxqte.engines import Limits, Watch
from boxqte.errors import EngineError, PropertyError
from boxqte.grid import Axis, Grid
from boxqte.origin import (
    BoxSums,
    Origin,
    boxes_by_cell,
    carried_over,
    one_class_grid,
    part_of_cell,
    restricted_grid,
    support_boxes,
)
from boxqte.regions import UNFAIR, Boxes, RegionStore, held_cells, joined, merged, rule_of
from boxqte.result import Decided, Quantification, Status, up
from boxqte.transfer import combinations, combined_grid

if TYPE_CHECKING:
    import pandas as pd

    from boxqte.engines.box.driver import BoxArray
    from boxqte.engines.box.problem import Problem

MANY_VALUES = 12  # beyond this many sensitive values a region's flip names the classes only
MAX_PAIRS = 64
SMALLEST_FINISH = 5  # what a single cell costs: nothing is counted that is not one
REFINE_NODES = 200_000
FLIP_PARTS = 20_000  # three classes and more: so many parts of the regions, the heaviest, are asked for their classes


def origin_of(result: Quantification) -> Origin:
    """The question behind a result; an error for a result that has none."""
    if not isinstance(result.origin, Origin):
        raise EngineError("this result does not know its model (it was read from a file?); call quantify again")
    return result.origin


# --- restrictions -----------------------------------------------------------------------------------------------------


def restrict(result: Quantification, condition: str, *, time_limit: float | None = None) -> Quantification:
    """The measure where only the x that satisfy the condition count; x' may be any input of the space."""
    origin = origin_of(result)
    key = ("restrict", str(condition))
    if key in origin.answers and origin.answers[key].converged:
        known: Quantification = origin.answers[key]
        return known
    parts = parse_condition(condition, origin.grid.space)
    grid, share = restricted_grid(origin.grid, parts, condition)
    limits = _limits(origin, time_limit)
    watch = Watch(limits)
    store = RegionStore()
    from boxqte.engines.box.engine import Box, BoxOptions

    engine = Box(BoxOptions(**(dict(origin.options) if origin.engine == "box" else {})))
    engine.observers.append(store)
    engine.roots = support_boxes
    outcome = engine.run(grid, limits, watch)
    whole = replace(origin, grid=grid, engine="box", options=vars(engine.options), store=store, status=outcome.status,
                    limits=limits, answers={}, parts=_narrowed(origin.parts, parts))  # fmt: skip
    answer = replace(
        result,
        engine="box",
        status=outcome.status,
        decided=outcome.decided,
        seconds=watch.seconds,
        trace=tuple(watch.trace),
        space_fingerprint=grid.space.fingerprint(),
        rounding_ambiguous=outcome.rounding_ambiguous,
        input_rounding=up(grid.input_rounding),
        details={**outcome.details, "condition": condition, "share_of_space": float(share)},
        origin=whole,
    )
    origin.answers[key] = answer
    return answer


def _narrowed(old: Mapping[str, Part], new: Mapping[str, Part]) -> dict[str, Part]:
    """The parts of a condition inside those of another."""
    return {**old, **{name: both(old[name], part) if name in old else part for name, part in new.items()}}


def _limits(origin: Origin, time_limit: float | None) -> Limits:
    limits = replace(origin.limits, gap=0.0, node_limit=None)
    return limits if time_limit is None else replace(limits, time_limit=time_limit)


# --- profiles ---------------------------------------------------------------------------------------------------------


def profile(result: Quantification, attribute: str, *, time_limit: float | None = None) -> pd.DataFrame:
    """The counterexample mass by value or interval of an attribute: one row a cell, in the attribute's order."""
    import pandas as pd

    origin = origin_of(result)
    grid = origin.grid
    at = grid.space.names.index(grid.space[attribute].name)
    axis = grid.axes[at]
    key = ("profile", attribute, time_limit)
    if key not in origin.answers:
        limits = _limits(origin, time_limit)
        by_mass = axis.sensitive or axis.moves or not grid.ensemble.is_binary
        if by_mass or not any(cut.axis == at for cut in grid.cuts):
            rows = _profile_by_mass(origin, axis, limits)
        else:
            rows = _profile_by_box(origin, axis, limits)
        origin.answers[key] = rows
    table = pd.DataFrame(origin.answers[key])
    found = table["upper"].sum() if len(table) else 0.0
    table["share"] = (table["lower"] + table["upper"]) / 2 / found if found else 0.0
    table["density"] = (table["lower"] + table["upper"]) / 2 / table["mass"].where(table["mass"] > 0)
    table.attrs["attribute"] = attribute
    return table


def _row(axis: Axis, part: Part, mass: float, lower: float, upper: float) -> dict[str, Any]:
    return {"value": part_text(axis.attribute, part), "mass": mass, "lower": max(lower, 0.0), "upper": min(upper, mass)}


def _profile_by_box(origin: Origin, axis: Axis, limits: Limits) -> list[dict[str, Any]]:
    """x' has the same value as x: one search that starts from one box a cell."""
    from boxqte.engines.box.engine import rounding_bound
    from boxqte.engines.box.problem import compile_problem

    problem = compile_problem(origin.grid)
    masses = origin.masses_in(origin.grid, boxes_by_cell(problem, axis.attribute.name), limits=limits)
    slack = float(3 * rounding_bound(problem))
    rows = []
    for cell, mass, (fair, unfair, low) in zip(axis.cells, axis.masses, masses.tolist()):
        rest = max(float(mass) - fair - unfair - low, 0.0)
        open_mass = rest if rest > slack else 0.0
        rows.append(_row(axis, part_of_cell(axis, cell), float(mass), unfair, unfair + open_mass))
    return rows


def _profile_by_mass(origin: Origin, axis: Axis, limits: Limits) -> list[dict[str, Any]]:
    """x' may have another value: one search a cell, with all mass of x in it. None at all where the cell cannot matter."""
    rows = []
    grid = origin.grid
    store = origin.regions()
    alike = _same_for_all(grid, axis) and origin.status is Status.CONVERGED
    for cell, mass in zip(axis.cells, axis.masses):
        part = part_of_cell(axis, cell)
        if alike or not mass:
            found = (store.mass * float(mass),) * 2
        else:
            decided = search_again(origin, restricted_grid(grid, {axis.attribute.name: part}, "a cell")[0], limits)
            ends = Fraction(decided.unfair), Fraction(decided.unfair) + decided.undecided
            settled = float(ends[1]) - float(ends[0]) < 1e-9
            found = (float(ends[0] * mass), float((ends[0] if settled else ends[1]) * mass))
        rows.append(_row(axis, part, float(mass), *found))
    return rows


def _same_for_all(grid: Grid, axis: Axis) -> bool:
    """Whether the verdict on x does not depend on its value here: no tree asks, or only signs count and all x' are free."""
    asked = any(grid.axes[cut.axis] is axis for cut in grid.cuts)
    if not grid.has_tolerance:
        return not asked or (axis.sensitive and grid.thresholds.all_confident)
    return not asked and not axis.sensitive


def search_again(origin: Origin, grid: Grid, limits: Limits) -> Decided:
    """What is decided of a variation of the grid, as shares of its mass.

    Where the boxes with counterexamples are known, only these are searched: a variation asks about fewer x or fewer x',
    so nothing else can become one.
    """
    from boxqte.engines.box.problem import Problem, compile_problem

    store = origin.regions()
    complete = not store.elsewhere and origin.status is Status.CONVERGED
    if complete and isinstance(store.problem, Problem) and not origin.grid.has_tolerance:
        boxes = carried_over(store.boxes.cells, store.problem, compile_problem(grid))
        if boxes is not None:
            if not len(boxes):
                return Decided(fair=1)
            outcome = origin.run(grid, roots=lambda problem: boxes, limits=limits)
            if outcome.status is Status.CONVERGED:
                return Decided(fair=1 - Fraction(outcome.decided.unfair), unfair=outcome.decided.unfair)
            return outcome.decided
    return origin.run(grid, roots=support_boxes, limits=limits).decided


# --- pairs ------------------------------------------------------------------------------------------------------------


def pairs(result: Quantification, *, time_limit: float | None = None) -> pd.DataFrame:
    """From which sensitive value to which: the mass of the counterexamples x with x_S in the row that have an x' with
    x'_S in the column. One x may have several x', so a row can sum to more than its counterexamples."""
    import pandas as pd

    origin = origin_of(result)
    grid = origin.grid
    if not grid.property.sensitive:
        raise PropertyError("pairs: robustness has no sensitive attributes")
    if not grid.ensemble.is_binary:
        raise EngineError("pairs: for models with two classes only; `sample` gives pairs of inputs for this model")
    key = ("pairs", time_limit)
    if key not in origin.answers:
        origin.answers[key] = _pairs(origin, _limits(origin, time_limit))
    matrix, names, converged = origin.answers[key]
    title = ", ".join(a.attribute.name for a in grid.axes if a.sensitive)
    table = pd.DataFrame(matrix, index=pd.Index(names, name=title), columns=pd.Index(names, name=f"{title} of x'"))
    table.attrs["converged"] = converged
    return table


def _pairs(origin: Origin, limits: Limits) -> tuple[Any, list[str], bool]:
    grid = origin.grid
    combos = combinations(grid)
    if len(combos) > MAX_PAIRS:
        raise EngineError(
            f"pairs: the sensitive attributes have {len(combos)} combinations of cells, at most {MAX_PAIRS} are listed; "
            "ask about fewer attributes"
        )
    matrix = np.zeros((len(combos), len(combos)))
    converged = True
    # Signs alone, and nothing else moves: who differs from whom is mutual.
    mutual = not grid.has_tolerance and grid.thresholds.all_confident
    for i, one in enumerate(combos):
        for j, other in enumerate(combos):
            if i == j and (not grid.has_tolerance or one.single):
                continue  # x' must differ from x
            if (not one.mass and not (mutual and other.mass)) or (mutual and j < i):
                continue
            decided = search_again(origin, combined_grid(grid, [one] if i == j else [one, other]), limits)
            converged &= decided.undecided < 1e-9
            matrix[i, j] = float(decided.unfair) * float(one.mass)
            if mutual:
                matrix[j, i] = float(decided.unfair) * float(other.mass)
    return matrix, [combo.text for combo in combos], converged


# --- regions ----------------------------------------------------------------------------------------------------------


def regions(
    result: Quantification,
    top: int | None = 20,
    *,
    merge: bool = True,
    pure: bool | None = None,
    flip: bool = True,
    time_limit: float | None = None,
) -> pd.DataFrame:
    """The counterexample space as disjoint regions, the largest first."""
    import pandas as pd

    origin = origin_of(result)
    store = origin.regions()
    problem = store.problem
    if problem is None:
        raise EngineError("regions: the search was interrupted before it began; call quantify again")
    total = store.mass
    boxes = store.boxes
    if pure is None:
        pure = len(boxes) <= (top or 0)
    if pure:
        boxes = refined(origin, boxes.heaviest(top), time_limit)
    if merge:
        ordered = [origin.grid.axes[a].attribute.is_numeric for a in problem.axis_ids]
        boxes = merged(boxes, ordered=ordered)
    shown = boxes.heaviest(top)
    rules = [rule_of(problem, box, origin.parts) for box in shown.cells]
    rows: dict[str, Any] = {
        "rule": [" and ".join(rule.values()) or "everywhere" for rule in rules],
        "mass": shown.masses[:, UNFAIR],
        "share": shown.masses[:, UNFAIR] / total if total else 0.0,
        "density": shown.density,
    }
    if flip:
        rows["flip"] = flips(origin, store, shown, _limits(origin, time_limit))
    for name in origin.grid.space.names:
        if any(name in rule for rule in rules):
            rows[name] = [rule.get(name, "") for rule in rules]
    table = pd.DataFrame(rows)
    table.attrs |= {
        "counterexample_mass": total,
        "regions": len(boxes),
        "listed": float(shown.masses[:, UNFAIR].sum()),
        "elsewhere": store.elsewhere,
        "complete": origin.status is Status.CONVERGED,
    }
    return table


def refined(origin: Origin, boxes: Boxes, time_limit: float | None) -> Boxes:
    """The boxes split until they are counterexamples throughout or hold a few cells only (epsilon = 0).

    A box that a limit leaves half done stays as it is.
    """
    if origin.grid.has_tolerance or not origin.grid.ensemble.is_binary or not len(boxes):
        return boxes
    store, sums = RegionStore(), BoxSums(boxes.cells)
    origin.run(
        origin.grid,
        observers=[store, sums],
        roots=lambda problem: boxes.cells,
        options={"finish_limit": SMALLEST_FINISH, "depth_first_below": 1e300},
        limits=replace(_limits(origin, time_limit), node_limit=REFINE_NODES),
    )
    done = np.abs(sums.masses.sum(axis=1) - boxes.masses.sum(axis=1)) < 1e-9 * boxes.masses.sum(axis=1)
    parts = store.boxes
    inside = done[sums.owners(parts.cells)] if len(parts) else np.zeros(0, bool)
    return joined([parts.take(np.flatnonzero(inside)), boxes.take(np.flatnonzero(~done))])


def flips(origin: Origin, store: RegionStore, boxes: Boxes, limits: Limits) -> list[str]:
    """Which way the class flips in each box: what each sensitive value gets, or the classes of x."""
    from boxqte.engines.box.problem import Problem

    if not len(boxes):
        return []
    grid, problem = origin.grid, store.problem
    if not isinstance(problem, Problem):
        return _class_flips(origin, store, boxes)
    axes = [a for a in grid.axes if a.sensitive and any(grid.axes[cut.axis] is a for cut in grid.cuts)]
    if not grid.has_tolerance and grid.thresholds.all_confident and len(axes) == 1 and axes[0].n_cells <= MANY_VALUES:
        return _flips_by_value(origin, problem, boxes, axes[0], limits)
    ups = _unfair_in(origin, one_class_grid(grid, False), problem, boxes, limits)
    downs = _unfair_in(origin, one_class_grid(grid, True), problem, boxes, limits)
    totals = [max(a + b, 1e-300) for a, b in zip(ups, downs)]
    return [_directions(a / total, b / total) for a, b, total in zip(ups, downs, totals)]


def _class_flips(origin: Origin, store: RegionStore, boxes: Boxes) -> list[str]:
    """Three classes and more: from which class to which. A box of the search has one class, and one x' for all of it."""
    from boxqte.engines.point.classes import ClassDecider
    from boxqte.sampling import decider_of

    decider, problem, found = decider_of(origin), store.problem, store.boxes.heaviest(FLIP_PARTS)
    assert isinstance(decider, ClassDecider)
    assert problem is not None
    points = np.zeros((len(found), len(origin.grid.axes)), np.int64)
    for i, a in enumerate(problem.axis_ids):
        held = held_cells(found.cells[:, i], len(problem.cells_of(i)))
        points[:, a] = (held.argmax(axis=1) + held.sum(axis=1) // 2).clip(max=held.shape[1] - 1)
    own = np.stack([axis.base[points[:, a]] for a, axis in enumerate(origin.grid.axes)], axis=1)
    witness = decider.decide(points, workers=origin.limits.workers).witness
    ways = list(zip(decider.top_classes(own).tolist(), decider.top_classes(witness).tolist()))
    texts = []
    for box in boxes.cells:
        inside = np.flatnonzero(~(found.cells & ~box).any(axis=(1, 2)))
        names = [f"{one} -> {two}" for one, two in sorted({ways[i] for i in inside.tolist()})]
        texts.append(", ".join(names))
    return texts


def _directions(up_share: float, down_share: float) -> str:
    parts = [f"{text} {share:.0%}" for text, share in (("0 -> 1", up_share), ("1 -> 0", down_share)) if share > 5e-7]
    return parts[0].rsplit(" ", 1)[0] if len(parts) == 1 else ", ".join(parts)


def _flips_by_value(origin: Origin, problem: Problem, boxes: Boxes, axis: Axis, limits: Limits) -> list[str]:
    """All x that differ in the sensitive value only are counterexamples together: which values get class 1?"""
    name = axis.attribute.name
    texts: list[list[str]] = [[] for _ in range(len(boxes))]
    for cell in axis.cells:
        part = part_of_cell(axis, cell)
        if not mass_of(axis.attribute, part):
            continue
        grid, _ = restricted_grid(origin.grid, {name: part}, "a cell")
        unfair = _unfair_in(origin, one_class_grid(grid, True), problem, boxes, limits)
        for words, mass, total in zip(texts, unfair, boxes.masses[:, UNFAIR].tolist()):
            share = mass / total if total else 0.0
            shown = "1" if share > 1 - 5e-7 else "0" if share < 5e-7 else f"1 in {share:.0%}"
            words.append(f"{part_text(axis.attribute, part)}: {shown}")
    return ["; ".join(words) for words in texts]


def _unfair_in(origin: Origin, grid: Grid, problem: Problem, boxes: Boxes, limits: Limits) -> list[float]:
    from boxqte.engines.box.problem import compile_problem

    cells: BoxArray | None = carried_over(boxes.cells, problem, compile_problem(grid))
    if cells is None:
        raise EngineError("regions: an attribute of the regions has no cell in the restricted problem")
    unfair: list[float] = origin.masses_in(grid, cells, limits=limits)[:, UNFAIR].tolist()
    return unfair
