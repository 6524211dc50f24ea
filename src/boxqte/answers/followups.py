"""From a number to an answer: regions, profiles, pairs and restrictions of a result. Each returns a pandas DataFrame.

All of them are certain in the same sense as the result: lower bounds are rounded down, upper bounds up, and they are true
also where a limit has ended a search. Where none has, they agree but for the engine's rounding bound (about 1e-13).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxqte.answers.allowed import allowed_mass, allowed_shares, at_most, most_unfair
from boxqte.answers.asked import Asked, BoxSums, carried_over, searched, support_boxes
from boxqte.answers.pieces import remembered, search
from boxqte.answers.profiles import profile_table
from boxqte.answers.regions import Boxes, RegionStore, held_cells, joined, merged, rule_of
from boxqte.answers.remarks import remarked
from boxqte.answers.result import Result, among_allowed, asked_of, ruled_of
from boxqte.answers.samples import decider_of
from boxqte.engines import make_engine
from boxqte.engines.box.classes import ClassProblem
from boxqte.engines.box.exchange_worker import box_masses
from boxqte.engines.box.problem import Problem, compile_problem
from boxqte.engines.kinds import FAIR, LOW, UNFAIR
from boxqte.engines.point.classes import ClassDecider
from boxqte.engines.protocol import ALONE, BoxArray, Capability, Companions, Limits, Watch
from boxqte.engines.refusals import two_classes
from boxqte.errors import EngineError, PropertyError
from boxqte.exact import down, up
from boxqte.questions.axes import Axis
from boxqte.questions.combined import combinations, combined_grid
from boxqte.questions.grid import AnyGrid, binary
from boxqte.questions.pieces import Piece, mixed_grid, restricted_pieces
from boxqte.questions.variations import one_class_grid, one_way_grid, part_of_cell, restricted_grid
from boxqte.space.conditions import Part, both, parse_condition, part_text, without
from boxqte.space.rules import Rule, allowed_count
from boxqte.space.space import Space

if TYPE_CHECKING:
    import pandas as pd

MANY_VALUES = 12  # beyond this many sensitive values a region's flip names the classes only
MAX_PAIRS = 64
CANDIDATES = 400  # regions of a mixture whose masses are counted in every product
SMALLEST_FINISH = 5  # what a single cell costs: nothing is counted that is not one
REFINE_NODES = 200_000
NO_SHARE = 5e-7
TINY = 1e-300
FloatEnds = tuple[float, float]
FLIP_PARTS = 20_000  # three classes and more: so many parts of the regions, the heaviest, are asked for their classes


# --- restrictions -----------------------------------------------------------------------------------------------------


def restrict(result: Result, condition: str, *, time_limit: float | None = None) -> Result:
    """The measure where only the x that satisfy the condition count; x' may be any input of the space.

    Answered by the engine that has answered before (`auto` and `sample` draw anew, inside the condition), else by `box`.
    """
    asked = asked_of(result)
    key = ("restrict", str(condition))
    if key in asked.answers and asked.answers[key].converged:
        known: Result = asked.answers[key]
        return known
    parts = parse_condition(condition, asked.grid.space)
    before = [(weight, asked_of(own)) for weight, own in asked.pieces] or [(Fraction(1), asked)]
    kept, share = restricted_pieces([Piece(weight, own.grid) for weight, own in before], parts, condition)
    limits = follow_up_limits(asked, time_limit)
    watch = Watch(limits)
    name = asked.engine if asked.engine in ("auto", "sample") else "box"
    options = asked.options if name == asked.engine else {}
    engine = make_engine(name, options)
    text = f"({asked.condition}) and ({condition})" if asked.condition else condition
    now = replace(
        asked, engine=name, options=options, limits=limits, answers={}, parts=_narrowed(asked.parts, parts), condition=text,
        store=None, share=asked.share * share, pieces=(),
    )  # fmt: skip
    ruled = ruled_of(asked.grid.space, [piece for _, piece in kept])
    if ruled is not None and result.ruled is not None:  # what is forbidden counts on neither side
        now = replace(now, share=now.share * (1 - ruled.forbidden) / (1 - result.ruled.forbidden))
    sees = Capability.OBSERVERS in engine.capabilities
    now = replace(now, grid=mixed_grid(asked.grid, [piece for _, piece in kept]) if len(kept) > 1 else kept[0][1].grid)
    own = [replace(now, grid=piece.grid, store=RegionStore() if sees else None, answers={}) for _, piece in kept]
    beside = [ALONE if a.store is None else Companions((a.store,), roots=support_boxes) for a in own]
    weights = [piece.weight for _, piece in kept]
    found = search(engine, weights, own, beside, limits, watch)
    outcome, grid = found.outcome, now.grid
    answer = replace(
        result,
        engine=name,
        status=outcome.status,
        decided=found.decided,
        seconds=watch.seconds,
        trace=tuple(watch.trace),
        space_fingerprint=grid.space.fingerprint(),
        rounding_ambiguous=among_allowed(outcome.rounding_ambiguous, ruled),
        input_rounding=among_allowed(up(grid.input_rounding), ruled) or 0.0,
        count=_count(grid.space, now.parts),
        cells=None if result.cells is None else int(now.share * grid.n_cells()),
        details={**outcome.details, "condition": text, "share_of_space": float(now.share)},
        statistical=outcome.statistical,
        ruled=ruled,
    )
    answer = remarked(remembered(answer, now, weights, own, found), grid)
    asked.answers[key] = answer
    return answer


def _count(space: Space, parts: Mapping[str, Part]) -> int | None:
    """How many inputs satisfy the conditions; None if an attribute is real."""
    if space.count() is None:
        return None
    if space.rules:
        elsewhere = [Rule(name, (((name, without(space[name], part)),),)) for name, part in parts.items()]
        return allowed_count(space.attributes, [*space.rules, *elsewhere])
    sizes = [
        _size(parts[attribute.name]) if attribute.name in parts else int(attribute.size or 0) for attribute in space
    ]
    return math.prod(sizes)


def _size(part: Part) -> int:
    return sum(int(high - low) for low, high in part.spans) + len(part.values) + part.missing


def _narrowed(old: Mapping[str, Part], new: Mapping[str, Part]) -> dict[str, Part]:
    """The parts of a condition inside those of another."""
    return {**old, **{name: both(old[name], part) if name in old else part for name, part in new.items()}}


def follow_up_limits(asked: Asked, time_limit: float | None) -> Limits:
    """The limits of a search for a further question; by default those of the run."""
    limits = replace(asked.limits, gap=0.0, node_limit=None)
    return limits if time_limit is None else replace(limits, time_limit=time_limit)


# --- profiles ---------------------------------------------------------------------------------------------------------


def profile(result: Result, attribute: str, *, time_limit: float | None = None) -> pd.DataFrame:
    """The counterexample mass by value or interval of an attribute: one row a cell, in the attribute's order."""
    asked = asked_of(result)
    return profile_table(asked, result.decided, attribute, follow_up_limits(asked, time_limit))


# --- pairs ------------------------------------------------------------------------------------------------------------


def pairs(result: Result, *, time_limit: float | None = None) -> pd.DataFrame:
    """From which sensitive value to which: the mass of the counterexamples x with x_S in the row that have an x' with
    x'_S in the column. One x may have several x', so a row can sum to more than its counterexamples."""
    import pandas as pd

    asked = asked_of(result)
    grid = asked.grid
    if not grid.property.sensitive:
        raise PropertyError("pairs: robustness has no sensitive attributes")
    two_classes(grid, "pairs")
    key = ("pairs", time_limit)
    if key not in asked.answers:
        asked.answers[key] = _pairs(asked, follow_up_limits(asked, time_limit))
    lower, upper, names, converged = asked.answers[key]
    if grid.forbidden:  # what is shown are shares of what the rules leave
        least, most = allowed_mass(asked)
        lower = np.vectorize(lambda mass: down(Fraction(mass) / most), [float])(lower)
        upper = np.vectorize(lambda mass: at_most(Fraction(mass), least), [float])(upper)
    title = ", ".join(a.attribute.name for a in grid.axes if a.sensitive)
    table = pd.DataFrame(lower, index=pd.Index(names, name=title), columns=pd.Index(names, name=f"{title} of x'"))
    # plain lists: pandas compares attrs when it joins tables, and cannot compare tables in them
    table.attrs |= {"upper": upper.tolist(), "converged": converged}
    return table


def _pairs(asked: Asked, limits: Limits) -> tuple[Any, Any, list[str], bool]:
    grid = asked.grid
    if asked.pieces:
        tables = [(weight, _pairs(asked_of(own), limits)) for weight, own in asked.pieces]
        ends = [
            np.vectorize(rounded, [float])(sum(np.vectorize(Fraction, [object])(t[i]) * w for w, t in tables))
            for i, rounded in ((0, down), (1, up))
        ]
        return ends[0], ends[1], tables[0][1][2], all(table[3] for _, table in tables)
    combos = combinations(grid)
    if len(combos) > MAX_PAIRS:
        raise EngineError(
            f"pairs: the sensitive attributes have {len(combos)} combinations of cells, at most {MAX_PAIRS} are listed; "
            "ask about fewer attributes"
        )
    lower, upper = np.zeros((len(combos), len(combos))), np.zeros((len(combos), len(combos)))
    converged = True
    rounding = asked.regions().rounding
    mutual = grid.mutual
    for i, one in enumerate(combos):
        for j, other in enumerate(combos):
            if i == j and (not grid.has_tolerance or one.single):
                continue  # x' must differ from x
            if (not one.mass and not (mutual and other.mass)) or (mutual and j < i):
                continue
            (low, high), done = searched(asked, combined_grid(binary(grid), [one] if i == j else [one, other]), limits)
            converged &= done
            for at, mass in (((i, j), one.mass), *([((j, i), other.mass)] if mutual else [])):
                lower[at] = down(low * mass)
                upper[at] = up(min(high * mass + rounding, mass)) if mass else 0.0
    return lower, upper, [combo.text for combo in combos], converged


# --- regions ----------------------------------------------------------------------------------------------------------


def regions(
    result: Result,
    top: int | None = 20,
    *,
    merge: bool = True,
    pure: bool | None = None,
    flip: bool = True,
    time_limit: float | None = None,
) -> pd.DataFrame:
    """The counterexample space as disjoint regions, the largest first."""
    asked = asked_of(result)
    if asked.pieces:
        return _mixed_regions(result, top, merge, flip, time_limit)
    store = asked.regions()
    problem = store.problem
    if problem is None:
        raise EngineError("regions: the search was interrupted before it began; call quantify again")
    boxes = store.boxes
    if pure is None:
        pure = len(boxes) <= (top or 0)
    if pure:
        boxes = refined(asked, boxes.heaviest(top), time_limit)
    if merge:
        ordered = [asked.grid.axes[a].attribute.is_numeric for a in problem.axis_ids]
        boxes = merged(boxes, ordered=ordered)
    shown = boxes.heaviest(top)
    most = Fraction(up(most_unfair(result)))
    if store.complete:
        most = min(most, Fraction(store.mass) + Fraction(store.doubtful) + store.rounding)
    allowed = allowed_mass(asked)[1]
    known = {
        "counterexample_mass": down(max(Fraction(store.mass) - store.rounding, Fraction(0)) / allowed),
        "regions": len(boxes),
        "elsewhere": float(Fraction(store.elsewhere) / allowed),
        "complete": store.complete,
    }
    directions = flips(asked, store, shown, follow_up_limits(asked, time_limit)) if flip else None
    return _table(asked, problem, shown, store.rounding, most, directions, known)


def _mixed_regions(result: Result, top: int | None, merge: bool, flip: bool, time_limit: float | None) -> pd.DataFrame:
    """The same for a mixture: the boxes of the product that has most of the counterexamples, with their masses in all."""
    asked, limits = asked_of(result), follow_up_limits(asked_of(result), time_limit)
    pieces = [(weight, asked_of(own)) for weight, own in asked.pieces]
    stores = [own.regions() for _, own in pieces]
    lead = max(range(len(pieces)), key=lambda k: pieces[k][0] * Fraction(stores[k].mass))
    store = stores[lead]
    problem, boxes = store.problem, store.boxes
    if problem is None:
        raise EngineError("regions: the search was interrupted before it began; call quantify again")
    if merge:
        boxes = merged(boxes, ordered=[asked.grid.axes[a].attribute.is_numeric for a in problem.axis_ids])
    regions, done = len(boxes), True
    candidates = boxes.take(
        np.argsort(-boxes.density * _box_masses(asked.grid, problem, boxes), kind="stable")[:CANDIDATES]
    )
    totals = np.zeros_like(candidates.masses)
    for weight, own in pieces if len(candidates) else []:
        masses, finished = _masses_of(own, problem, candidates, limits)
        totals, done = totals + float(weight) * masses, done and finished
    shown = Boxes(candidates.cells, totals, candidates.counted).heaviest(top)
    rounding = max(one.rounding for one in stores) + Fraction(len(pieces) + 4, 2**52)
    directions = _mixed_flips(asked, problem, shown, limits) if flip and isinstance(problem, Problem) else None
    known = {
        "counterexample_mass": result.counterexample.lower,
        "regions": regions,
        "elsewhere": math.fsum(one.elsewhere for one in stores) / float(allowed_mass(asked)[1]),
        "complete": done and all(one.complete for one in stores),
    }
    return _table(asked, problem, shown, rounding, Fraction(up(most_unfair(result))), directions, known)


def _box_masses(grid: AnyGrid, problem: Problem | ClassProblem, boxes: Boxes) -> npt.NDArray[np.float64]:
    """The mass of every box by the masses of the axes; sensitive axes of two classes count as a whole."""
    masses = np.ones(len(boxes))
    for i, a in enumerate(problem.axis_ids):
        axis, refined = grid.axes[a], isinstance(problem, ClassProblem)
        if axis.sensitive and not refined:
            continue
        own = np.array([float(m) for m in (axis.refined_masses if refined else axis.masses)])
        masses *= held_cells(boxes.cells[:, i], len(own)) @ own
    return masses


def _masses_of(
    asked: Asked, problem: Problem | ClassProblem, boxes: Boxes, limits: Limits
) -> tuple[npt.NDArray[np.float64], bool]:
    """box x [fair, unfair, low] of boxes that another product's search has found; and whether all of it is decided."""
    if isinstance(problem, ClassProblem):  # every box is counterexamples throughout
        pure = np.zeros((len(boxes), 3))
        pure[:, UNFAIR] = _box_masses(asked.grid, problem, boxes)
        return pure, True
    inside = asked.masses_in(asked.grid, boxes.cells, limits=limits)
    return inside.masses, inside.done


def _mixed_flips(asked: Asked, problem: Problem, boxes: Boxes, limits: Limits) -> tuple[list[str], bool]:
    """Which way the class flips, or the score goes, in each box of a mixture."""
    scores = asked.grid.property.asks_scores
    ends: list[list[FloatEnds]] = []
    done = True
    for first in (True, False):
        total = [(0.0, 0.0)] * len(boxes)
        for weight, own in [(float(weight), asked_of(own)) for weight, own in asked.pieces] if len(boxes) else []:
            grid = binary(own.grid)
            varied = one_way_grid(grid, first) if scores else one_class_grid(grid, not first)
            unfair, finished = _unfair_in(own, varied, problem, boxes, limits)
            total = [(a + weight * low, b + weight * high) for (a, b), (low, high) in zip(total, unfair)]
            done &= finished
        ends.append(total)
    if scores:
        words = [[(text, own) for text, own in zip(("lower", "higher"), both)] for both in zip(*ends)]
        return _score_texts(words, boxes), done
    return [_directions(up_ends, down_ends) for up_ends, down_ends in zip(*ends)], done


def _table(
    asked: Asked,
    problem: Problem | ClassProblem,
    shown: Boxes,
    rounding: Fraction,
    most: Fraction,
    directions: tuple[list[str], bool] | None,
    known: dict[str, Any],
) -> pd.DataFrame:
    """Regions as a table: their rules, masses and shares of at most `most` counterexamples."""
    import pandas as pd

    rules = [rule_of(problem, box, asked.parts) for box in shown.cells]
    masses = shown.certain(rounding)
    least, allowed = allowed_mass(asked)  # what is shown are shares of what the space's rules leave
    shares = [down(Fraction(mass) / most) if mass else 0.0 for mass in masses.tolist()]
    if asked.grid.forbidden:
        masses = np.array([down(Fraction(mass) / allowed) for mass in masses.tolist()])
    rows: dict[str, Any] = {
        "rule": [" and ".join(rule.values()) or "everywhere" for rule in rules],
        "mass": masses,
        "share": shares,
        "density": np.minimum(shown.density / allowed_shares(asked, problem, shown.cells), 1.0),
    }
    if directions is not None:
        rows["flip"] = directions[0]
    for name in asked.grid.space.names:
        if any(name in rule for rule in rules):
            rows[name] = [rule.get(name, "") for rule in rules]
    table = pd.DataFrame(rows)
    table.attrs |= known | {
        "counterexample_upper": at_most(most, least),
        "listed": down(sum(map(Fraction, masses.tolist()), Fraction(0))),
        "flips_complete": directions is None or directions[1],
    }
    return table


def refined(asked: Asked, boxes: Boxes, time_limit: float | None) -> Boxes:
    """The boxes split until they are counterexamples throughout or hold a few cells only (epsilon = 0).

    A box that a limit leaves half done stays as it is.
    """
    if asked.grid.has_tolerance or not asked.grid.ensemble.is_binary or not len(boxes):
        return boxes
    store, sums = RegionStore(), BoxSums(boxes.cells)
    asked.run(
        asked.grid,
        observers=[store, sums],
        roots=lambda problem: boxes.cells,
        options={"finish_limit": SMALLEST_FINISH, "depth_first_below": 1e300},
        limits=replace(follow_up_limits(asked, time_limit), node_limit=REFINE_NODES),
    )
    done = np.abs(sums.masses.sum(axis=1) - boxes.masses.sum(axis=1)) < 1e-9 * boxes.masses.sum(axis=1)
    parts = store.boxes
    inside = done[sums.owners(parts.cells)] if len(parts) else np.zeros(0, bool)
    return joined([parts.take(np.flatnonzero(inside)), boxes.take(np.flatnonzero(~done))])


def flips(asked: Asked, store: RegionStore, boxes: Boxes, limits: Limits) -> tuple[list[str], bool]:
    """Which way the class flips in each box: what each sensitive value gets, or the classes of x; and whether no limit has
    ended a search, which leaves shares as ranges."""
    if not len(boxes):
        return [], True
    grid, problem = asked.grid, store.problem
    if not isinstance(problem, Problem):
        return _class_flips(asked, store, boxes), len(store.boxes) <= FLIP_PARTS
    axes = [a for a in grid.axes if a.sensitive and any(grid.axes[cut.axis] is a for cut in grid.cuts)]
    if binary(grid).partners is not None and grid.property.asks_scores:
        return _score_directions(asked, problem, boxes, limits)
    if grid.mutual and len(axes) == 1 and axes[0].n_cells <= MANY_VALUES and not grid.forbidden:
        return _flips_by_value(asked, problem, boxes, axes[0], limits)
    ups, one_done = _unfair_in(asked, one_class_grid(binary(grid), False), problem, boxes, limits)
    downs, two_done = _unfair_in(asked, one_class_grid(binary(grid), True), problem, boxes, limits)
    return [_directions(up_ends, down_ends) for up_ends, down_ends in zip(ups, downs)], one_done and two_done


def _score_directions(asked: Asked, problem: Problem, boxes: Boxes, limits: Limits) -> tuple[list[str], bool]:
    """Whether x' has the lower or the higher score; an x may have partners of both kinds."""
    words: list[list[tuple[str, FloatEnds]]] = [[] for _ in range(len(boxes))]
    done = True
    for text, low in (("lower", True), ("higher", False)):
        unfair, finished = _unfair_in(asked, one_way_grid(binary(asked.grid), low), problem, boxes, limits)
        done &= finished
        for said, ends in zip(words, unfair):
            said.append((text, ends))
    return _score_texts(words, boxes), done


def _score_texts(words: list[list[tuple[str, FloatEnds]]], boxes: Boxes) -> list[str]:
    """In how much of each box x' has the lower, and in how much the higher score."""
    texts = []
    for said, total in zip(words, boxes.masses[:, UNFAIR].tolist()):
        shares = [(text, (min(least / total, 1.0), min(most / total, 1.0))) for text, (least, most) in said]
        shares = [(text, share) for text, share in shares if share[1] > NO_SHARE]
        one = len(shares) == 1
        texts.append(
            f"score {shares[0][0]}" if one else "score " + ", ".join(f"{t} in {_percent(*s)}" for t, s in shares)
        )
    return texts


def _class_flips(asked: Asked, store: RegionStore, boxes: Boxes) -> list[str]:
    """Three classes and more: from which class to which. A box of the search has one class, and one x' for all of it."""
    decider, problem, found = decider_of(asked), store.problem, store.boxes.heaviest(FLIP_PARTS)
    assert isinstance(decider, ClassDecider)
    assert problem is not None
    points = np.zeros((len(found), len(asked.grid.axes)), np.int64)
    for i, a in enumerate(problem.axis_ids):
        held = held_cells(found.cells[:, i], len(problem.cells_of(i)))
        points[:, a] = (held.argmax(axis=1) + held.sum(axis=1) // 2).clip(max=held.shape[1] - 1)
    own = np.stack([axis.base[points[:, a]] for a, axis in enumerate(asked.grid.axes)], axis=1)
    witness = decider.decide(points, workers=asked.limits.workers).witness
    ways = list(zip(decider.top_classes(own).tolist(), decider.top_classes(witness).tolist()))
    texts = []
    for box in boxes.cells:
        inside = np.flatnonzero(~(found.cells & ~box).any(axis=(1, 2)))
        names = [f"{one} -> {two}" for one, two in sorted({ways[i] for i in inside.tolist()})]
        texts.append(", ".join(names))
    return texts


def _directions(ups: FloatEnds, downs: FloatEnds) -> str:
    """How much of the counterexamples flips up and down. A share grows with its own mass, and falls with the other's."""
    parts = []
    for text, (low, high), (other_low, other_high) in (("0 -> 1", ups, downs), ("1 -> 0", downs, ups)):
        share = low / max(low + other_high, TINY), high / max(high + other_low, TINY)
        if share[1] > NO_SHARE:
            parts.append((text, _percent(*share)))
    return parts[0][0] if len(parts) == 1 else ", ".join(f"{text} {share}" for text, share in parts)


def _percent(low: float, high: float) -> str:
    """A share of which certain bounds are known, as one number where they agree."""
    if high - low < NO_SHARE:
        return f"{low:.0%}"
    return f"{math.floor(100 * low)}% to {math.ceil(100 * high)}%"


def _flips_by_value(asked: Asked, problem: Problem, boxes: Boxes, axis: Axis, limits: Limits) -> tuple[list[str], bool]:
    """All x that differ in the sensitive value only are counterexamples together: which values get class 1?"""
    name = axis.attribute.name
    texts: list[list[str]] = [[] for _ in range(len(boxes))]
    done = True
    for cell, mass in zip(axis.cells, axis.masses):
        if not mass:
            continue
        part = part_of_cell(axis, cell)
        grid, _ = restricted_grid(asked.grid, {name: part}, "a cell")
        unfair, finished = _unfair_in(asked, one_class_grid(binary(grid), True), problem, boxes, limits)
        done &= finished
        for words, (low, high), total in zip(texts, unfair, boxes.masses[:, UNFAIR].tolist()):
            low, high = low / total, min(high / total, 1.0)
            shown = "1" if low > 1 - NO_SHARE else "0" if high < NO_SHARE else f"1 in {_percent(low, high)}"
            words.append(f"{part_text(axis.attribute, part)}: {shown}")
    return ["; ".join(words) for words in texts], done


def _unfair_in(
    asked: Asked, grid: AnyGrid, problem: Problem, boxes: Boxes, limits: Limits
) -> tuple[list[FloatEnds], bool]:
    """The least and the most counterexamples of a variation inside each box, up to rounding; and whether all is decided."""
    compiled = compile_problem(binary(grid))
    cells: BoxArray | None = carried_over(boxes.cells, problem, compiled)
    if cells is None:
        raise EngineError("regions: an attribute of the regions has no cell in the restricted problem")
    inside = asked.masses_in(grid, cells, limits=limits)
    unfair = inside.masses[:, UNFAIR]
    most = (
        unfair
        if inside.done
        else np.maximum(box_masses(compiled, cells) - inside.masses[:, [FAIR, LOW]].sum(1), unfair)
    )
    return list(zip(unfair.tolist(), most.tolist())), inside.done
