"""Counterexamples drawn from the counterexample space by its mass, each with a witness x', replayed in the library."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxqte.answers.allowed import most_unfair
from boxqte.answers.asked import Asked
from boxqte.answers.existence import counterexample_cells
from boxqte.answers.regions import Boxes, RegionStore, held_cells
from boxqte.answers.replay import replayed
from boxqte.answers.result import Result, asked_of
from boxqte.answers.values import FloatArray, GridValues
from boxqte.basics.machine import cores
from boxqte.engines.box.classes import ClassProblem
from boxqte.engines.box.draw_worker import Drawer, can_draw
from boxqte.engines.box.problem import Problem
from boxqte.engines.kinds import UNFAIR
from boxqte.engines.point import PointDecider, point_decider
from boxqte.engines.point.exact import partners_of
from boxqte.errors import EngineError
from boxqte.exact import down, up
from boxqte.questions.grid import AnyGrid, Grid

if TYPE_CHECKING:
    import pandas as pd

CHUNKS = 64  # the work is divided the same way however many threads there are, so that a seed means the same draws
MAX_TRIES = 50_000_000
TINY = 1e-300
MOST_COMBINATIONS = 10_000  # of sensitive cells that are tried one by one for an x' that can be written
Int32Array = npt.NDArray[np.int32]
Columns = list[FloatArray]


@dataclass(frozen=True, eq=False)
class Sample:
    """Pairs of inputs: row i of `x` is a counterexample, row i of `witness` is an x' that makes it one.

    Attributes
    ----------
    x, witness
        Tables in the columns and values that the model's own `predict` takes.
    complete
        Whether they are drawn from all counterexamples; False where the search was stopped early (then from those that
        were found by then, see `share`).
    share
        A lower bound on the share of the counterexample mass that they are drawn from.
    replayed
        Whether the model's own library was asked about every pair.
    disagreements
        The rows that are no counterexample by the library's own classes (two inputs of the same class) or scores, which
        it sums and rounds in floating point. They stay in the tables.
    """

    x: pd.DataFrame
    witness: pd.DataFrame
    complete: bool
    share: float
    replayed: bool
    disagreements: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.x)

    def pairs(self) -> pd.DataFrame:
        """Both inputs side by side: one row a pair, columns (x, name) and (witness, name)."""
        import pandas as pd

        return pd.concat({"x": self.x, "witness": self.witness}, axis=1)

    def __repr__(self) -> str:
        parts = [f"{len(self)} pairs"]
        if not self.complete:
            parts.append(f"drawn from the part of the counterexamples found so far (at least {self.share:.3g} of them)")
        parts.append(f"replayed, {len(self.disagreements)} disagree" if self.replayed else "not replayed")
        return f"Sample({'; '.join(parts)})"


def sample(
    result: Result,
    n: int,
    *,
    random_state: int | np.random.Generator | None = None,
    replay: bool = True,
    distinct: bool = False,
    workers: int | None = None,
) -> Sample:
    """Draw counterexamples by the space's mass."""
    asked = asked_of(result)
    if n < 1:
        raise EngineError(f"sample: n must be at least 1, found {n}")
    rng = np.random.default_rng(random_state)
    sources = _sources(asked)
    count = workers or cores()
    values = sources[0][1].answers["values"]

    def more(size: int) -> tuple[Columns, Columns]:
        return _drawn_from(sources, size, rng, count)

    x, other = more(n)
    if distinct:
        x, other = _until_distinct(n, more, x, other)
    stores = [own.regions() for _, own in sources]
    complete = all(store.complete and not store.elsewhere for store in stores)
    found = sum(
        weight * max(Fraction(store.mass) - Fraction(store.elsewhere) - store.rounding, Fraction(0))
        for (weight, _), store in zip(sources, stores)
    )
    share = 1.0 if complete else down(found / max(most_unfair(result), found)) if found else 0.0
    agreed = replayed(asked.model, values, x, other) if replay else None
    denied = np.zeros(0, np.int64) if agreed is None else np.flatnonzero(~agreed)
    return Sample(values.frame(x), values.frame(other), complete, share, agreed is not None, denied)


def drawn_columns(asked: Asked, n: int, rng: np.random.Generator) -> tuple[Columns, Columns]:
    """n counterexamples with a partner each, as columns of values; of a mixture, by their mass in it."""
    return _drawn_from(_sources(asked), n, rng, 1)


def drawn_points(asked: Asked, n: int, rng: np.random.Generator, workers: int) -> Int32Array:
    """n counterexamples as the refined cells of x (points x axes of the grid); none where none was found."""
    sources = _found_in(asked)
    if not sources:
        return np.zeros((0, len(asked.grid.axes)), np.int32)
    masses = np.array([float(weight) * max(own.regions().mass, TINY) for weight, own in sources])
    counts = rng.multinomial(n, masses / masses.sum()).tolist()
    return np.concatenate(
        [drawn_cells(own, own.regions(), count, rng, workers)[0] for (_, own), count in zip(sources, counts) if count]
    )


def sampled_columns(
    result: Result, n: int, rng: np.random.Generator, workers: int
) -> tuple[GridValues, Columns, Columns]:
    """n counterexamples with a witness each as columns of values, and what writes them as rows or tables."""
    sources = _sources(asked_of(result))
    return sources[0][1].answers["values"], *_drawn_from(sources, n, rng, workers)


def _sources(asked: Asked) -> list[tuple[Fraction, Asked]]:
    """The products to draw from, with their weights; an error if no counterexample was found."""
    found = _found_in(asked)
    if not found:
        first = asked_of(asked.pieces[0][1]) if asked.pieces else asked
        raise EngineError(f"sample: no counterexample was found{_why_none(first, first.regions())}")
    return found


def _found_in(asked: Asked) -> list[tuple[Fraction, Asked]]:
    """The products in which counterexamples were found, with their weights."""
    every = [(weight, asked_of(own)) for weight, own in asked.pieces] or [(Fraction(1), asked)]
    found = []
    for weight, own in every:
        store = own.regions()
        if store.problem is not None and (len(store.boxes) or _one_by_one(own, store)):
            _once(own, "values", partial(GridValues, own.grid))
            found.append((weight, own))
    return found


def _drawn_from(
    sources: Sequence[tuple[Fraction, Asked]], n: int, rng: np.random.Generator, workers: int
) -> tuple[Columns, Columns]:
    """n pairs, from each product by its part of the counterexamples, in random order."""
    if len(sources) == 1:
        (_, only) = sources[0]
        return drawn(only, only.regions(), n, rng, workers, only.answers["values"])
    masses = np.array([float(weight) * max(own.regions().mass, TINY) for weight, own in sources])
    counts = rng.multinomial(n, masses / masses.sum())
    pairs = [
        drawn(own, own.regions(), count, rng, workers, own.answers["values"])
        for (_, own), count in zip(sources, counts.tolist())
        if count
    ]
    order = rng.permutation(n)
    x, other = ([np.concatenate(columns)[order] for columns in zip(*side)] for side in zip(*pairs))
    return x, other


def _one_by_one(asked: Asked, store: RegionStore) -> bool:
    """Counterexamples so few that their mass is lost in rounding: look at every cell, where there are not too many."""
    if not store.complete or not store.unsure:
        return False
    cells = _once(asked, "cells", lambda: counterexample_cells(asked.grid))
    return cells is not None and len(cells) > 0


def _why_none(asked: Asked, store: RegionStore) -> str:
    """Why there is nothing to draw from: none was found yet, there is none, or none that could be told from rounding."""
    if not store.complete:
        return " so far; give quantify more time"
    if not store.unsure or asked.answers.get("cells") is not None:
        return "; the model has none"
    most = up(Fraction(store.doubtful) + store.rounding)
    return f"; if the model has any, their mass is at most {most:.3g}, too little to be told from rounding"


def _once(asked: Asked, key: str, make: Any) -> Any:
    if key not in asked.answers:
        asked.answers[key] = make()
    return asked.answers[key]


def drawn(
    asked: Asked, store: RegionStore, n: int, rng: np.random.Generator, workers: int, values: GridValues
) -> tuple[Columns, Columns]:
    """n pairs as columns of values."""
    cells, others = drawn_cells(asked, store, n, rng, workers)
    x = values.draw(cells, rng, workers)
    return x, witness_values(asked.grid, values, cells, shown_partners(asked.grid, values, cells, others), x, rng)


def drawn_cells(
    asked: Asked, store: RegionStore, n: int, rng: np.random.Generator, workers: int
) -> tuple[Int32Array, Int32Array]:
    """n pairs as the refined cells of x and the base cells of x' (points x axes of the grid), in random order."""
    problem, boxes = store.problem, store.boxes
    assert problem is not None
    if not len(boxes) and _one_by_one(asked, store):
        found: npt.NDArray[np.int64] = asked.answers["cells"]
        masses = [[float(m) for m in axis.refined_masses] for axis in asked.grid.axes]
        shares = np.prod([np.array(own)[found[:, a]] for a, own in enumerate(masses)], axis=0)
        drawn_at = found[rng.choice(len(found), n, p=shares / shares.sum())]
        return drawn_at.astype(np.int32), decider_of(asked).decide(drawn_at, workers=workers).witness
    weights = boxes.masses[:, UNFAIR]
    counts = rng.multinomial(n, weights / weights.sum())
    chosen = boxes.take(np.flatnonzero(counts))
    counts = counts[counts > 0]
    if isinstance(problem, Problem) and can_draw(problem):
        return _from_lists(asked, problem, chosen, counts, rng, workers)
    order = rng.permutation(n)
    cells, others = _by_rejection(asked, problem, chosen, counts, rng, workers)
    return cells[order], others[order]


def _from_lists(
    asked: Asked,
    problem: Problem,
    boxes: Boxes,
    counts: npt.NDArray[np.int64],
    rng: np.random.Generator,
    workers: int,
) -> tuple[Int32Array, Int32Array]:
    """epsilon = 0: read the lists of the counted boxes backwards; the few boxes that were not counted by rejection."""
    own = asked.box_options()
    total = int(counts.sum())
    starts = np.concatenate([[0], np.cumsum(counts)])
    # chunks of about as many boxes and draws each; a box costs as much to prepare as some tens of draws
    work = np.cumsum(counts + 60)
    bounds = np.unique(np.searchsorted(work, np.linspace(0, work[-1], CHUNKS + 1)[1:-1]))
    pieces = [p for p in np.split(np.arange(len(boxes)), bounds) if len(p)]
    seeds = rng.integers(0, 2**63, len(pieces)).tolist()
    cells, combination = np.empty((total, problem.n_axes), np.int32), np.zeros((total, 2), np.int32)
    place = rng.permutation(total)
    ready: list[Drawer] = asked.answers.setdefault("drawers", [])
    good = np.ones(len(boxes), bool)

    def work_on(task: tuple[npt.NDArray[np.intp], int]) -> None:
        at, seed = task
        try:
            drawer = ready.pop()
        except IndexError:
            drawer = Drawer(problem, finish_limit=own.finish_limit)
        rows = place[starts[at[0]] : starts[at[-1] + 1]]
        good[at] = drawer.draw(boxes.cells[at], counts[at], seed, rows, cells, combination)
        ready.append(drawer)

    _in_threads(work_on, list(zip(pieces, seeds)), workers)
    classes = problem.combinations[0]
    whole = np.zeros((len(asked.grid.axes), total), np.int32)  # an axis is a row here, so that it is read in one go
    others = []
    for a, axis in enumerate(asked.grid.axes):
        if a not in problem.axis_ids:
            if axis.n_cells > 1:  # a missing value that no tree asks about
                masses = np.array([float(m) for m in axis.masses])
                whole[a] = rng.choice(axis.n_cells, total, p=masses / masses.sum())
            others.append(whole[a])
            continue
        i = problem.axis_ids.index(a)
        if axis.sensitive:
            j = int(problem.sensitive[:i].sum())
            whole[a] = classes[combination[:, 0], j]
            others.append(np.where(combination[:, 1] < 0, -1, classes[combination[:, 1], j]).astype(np.int32))
        else:
            whole[a] = cells[:, i]
            others.append(whole[a])
    points, witnesses = whole.T, np.stack(others).T
    lost = np.flatnonzero(combination[:, 1] < 0)
    if len(lost):
        witnesses[lost] = decider_of(asked).decide(points[lost], workers=workers).witness
    bad = np.flatnonzero(~good)
    if len(bad):
        rows = np.concatenate([place[starts[i] : starts[i + 1]] for i in bad.tolist()])
        points[rows], witnesses[rows] = _by_rejection(asked, problem, boxes.take(bad), counts[bad], rng, workers)
    return points, witnesses


def _in_threads(function: Any, tasks: Sequence[Any], workers: int) -> None:
    if workers == 1 or len(tasks) == 1:
        for task in tasks:
            function(task)
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(function, tasks))


def decider_of(asked: Asked) -> PointDecider:
    """What decides single points of the question's grid."""
    found: PointDecider = _once(asked, "decider", lambda: point_decider(asked.grid))
    return found


def _by_rejection(
    asked: Asked,
    problem: Problem | ClassProblem,
    boxes: Boxes,
    counts: npt.NDArray[np.int64],
    rng: np.random.Generator,
    workers: int,
) -> tuple[Int32Array, Int32Array]:
    """Draw points of the boxes by mass, decide them, keep the counterexamples: counts[i] from boxes[i]."""
    grid = asked.grid
    decider = decider_of(asked)
    shares = _cell_shares(grid, problem, boxes)
    starts = np.concatenate([[0], np.cumsum(counts)])
    cells = np.zeros((int(counts.sum()), len(grid.axes)), np.int32)
    others = np.zeros_like(cells)
    filled = np.zeros(len(boxes), np.int64)
    tries = 0
    while (filled < counts).any():
        if tries > MAX_TRIES:
            raise EngineError(
                f"sample: {MAX_TRIES} points of some region hold no counterexample; its mass is too small"
            )
        left = np.flatnonzero(filled < counts)
        wanted = np.ceil(1.2 * (counts - filled)[left] / np.maximum(boxes.density[left], 1e-3)).astype(np.int64) + 4
        wanted = np.maximum(np.minimum(wanted, 2_000_000 // len(left)), 1)
        owner = np.repeat(left, wanted)
        tries += len(owner)
        points = np.zeros((len(owner), len(grid.axes)), np.int32)
        for a in range(len(grid.axes)):
            points[:, a] = _pick(shares[a], owner, rng)
        found = decider.decide(points, workers=workers)
        hits = np.flatnonzero(found.verdict == UNFAIR)
        # the first so many of each box: they stand together
        position = np.arange(len(hits)) - np.searchsorted(owner[hits], owner[hits])
        keep = position < (counts - filled)[owner[hits]]
        hits, position = hits[keep], position[keep]
        rows = starts[owner[hits]] + filled[owner[hits]] + position
        cells[rows], others[rows] = points[hits], found.witness[hits]
        filled += np.bincount(owner[hits], minlength=len(boxes))
    return cells, others


def _cell_shares(grid: AnyGrid, problem: Problem | ClassProblem, boxes: Boxes) -> list[FloatArray]:
    """Per axis, box x refined cell: the running share of the box's mass."""
    out = []
    for a, axis in enumerate(grid.axes):
        masses = np.array([float(m) for m in axis.refined_masses])
        weights = np.broadcast_to(masses, (len(boxes), len(masses)))
        if a in problem.axis_ids:
            words = boxes.cells[:, problem.axis_ids.index(a)]
            if not isinstance(problem, Problem):
                weights = weights * held_cells(words, len(masses))
            elif not axis.sensitive and not axis.moves:
                weights = weights * held_cells(words, axis.n_cells)[:, axis.base]
        running = np.cumsum(weights, axis=1)
        out.append(running / running[:, -1:])
    return out


def _pick(running: FloatArray, owner: npt.NDArray[np.intp], rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """For every entry of `owner` a column of that row, by the row's running shares (owner is in order)."""
    u = rng.random(len(owner))
    picked = np.empty(len(owner), np.intp)
    edges = np.concatenate([[0], 1 + np.flatnonzero(np.diff(owner)), [len(owner)]])
    for first, stop in pairwise(edges.tolist()):
        picked[first:stop] = np.searchsorted(running[owner[first]], u[first:stop], side="right")
    np.minimum(picked, running.shape[1] - 1, out=picked)
    return picked


def witness_values(
    grid: AnyGrid,
    values: GridValues,
    cells: npt.NDArray[np.integer],
    others: npt.NDArray[np.integer],
    x: Sequence[FloatArray],
    rng: np.random.Generator,
) -> Columns:
    """x' from x and the base cells of x': equal where nothing forces it to differ, as near as possible elsewhere."""
    out: Columns = []
    related = grid.partners.axis if isinstance(grid, Grid) and grid.partners is not None else -1
    differs = np.zeros(len(cells), bool)
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    for a, axis in enumerate(grid.axes):
        if not axis.sensitive and not axis.moves:
            out.append(x[a])
            continue
        moved = axis.base[cells[:, a]] != others[:, a]
        at = np.flatnonzero(moved)
        if not len(at):
            out.append(x[a])
            continue
        column = x[a].copy()
        if a == related:  # the property says how far x' may be from x, or on which side
            first, last = (ends[others[at, a]] for ends in alike(grid, a))
            reach = dict(grid.property.max_change).get(axis.attribute.name)
            column[at] = values.axes[a].nearest_among(first, last, x[a][at], reach)
            differs |= moved
        elif axis.sensitive:
            column[at] = values.axes[a].draw(_some_refined(axis)[others[at, a]], rng)
            differs |= moved
        else:
            column[at] = values.axes[a].nearest(others[at, a], x[a][at])
        out.append(column)
    # x' in the same sensitive cells as x: another value of one of them
    rest = np.flatnonzero(~differs) if sensitive else np.zeros(0, np.intp)
    for a in sensitive:
        axis = grid.axes[a]
        at = rest[~axis.single[axis.base[cells[rest, a]]]]
        if len(at):
            own = axis.base[cells[at, a]]
            out[a] = out[a].copy()
            out[a][at] = values.axes[a].draw(_some_refined(axis)[own], rng)
            same = np.flatnonzero(out[a][at] == x[a][at])
            out[a][at[same]] = _another(values.axes[a], own[same], x[a][at[same]])
        rest = np.setdiff1d(rest, at)
    return out


def shown_partners(grid: AnyGrid, values: GridValues, cells: npt.NDArray[np.integer], others: Int32Array) -> Int32Array:
    """x' that can be shown: where one lies between two neighbouring floats, another one, if there is one (epsilon = 0)."""
    sensitive = [a for a, axis in enumerate(grid.axes) if axis.sensitive]
    shown = [values.axes[a].shown for a in sensitive]
    if not isinstance(grid, Grid) or grid.has_tolerance or all(own.all() for own in shown):
        return others
    others = others.copy()
    hidden = ~np.all([own[others[:, a]] for a, own in zip(sensitive, shown)], axis=0)
    for i in np.flatnonzero(hidden).tolist():
        free = itertools.product(*(np.flatnonzero(own).tolist() for own in shown))
        found = next(partners_of(grid, cells[i].tolist(), itertools.islice(free, MOST_COMBINATIONS)), None)
        if found is not None:
            others[i] = found
    return others


def alike(grid: AnyGrid, a: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """base cell -> the first and the last cell of the stretch around it in which no cut and no rule tells two cells apart.

    All their x' have the same margin. A window of places takes all of a stretch or nothing, so the value of a stretch that is
    nearest to x is within a bounded change, while a cell of it may lie beyond.
    """
    axis = grid.axes[a]
    masks = [cut.mask for cut in grid.cuts if cut.axis == a] + masks_of_rules(grid, a)
    n = axis.n_cells
    first, last = np.arange(n), np.arange(n)
    for c in range(1, n):
        if not axis.cells[c].missing and all(mask >> c & 1 == mask >> (c - 1) & 1 for mask in masks):
            first[c] = first[c - 1]
    for c in range(n - 2, -1, -1):
        if first[c + 1] == first[c]:
            last[c] = last[c + 1]
    return first, last


def masks_of_rules(grid: AnyGrid, a: int) -> list[int]:
    """The sets of cells of an axis that rules mention."""
    return [mask for one in grid.forbidden for axis, mask in one.masks if axis == a]


def _some_refined(axis: Any) -> npt.NDArray[np.int64]:
    """base cell -> a refined cell in it (a sensitive attribute has no others)."""
    first = np.zeros(axis.n_cells, np.int64)
    first[axis.base[::-1]] = np.arange(len(axis.base))[::-1]
    return first


def _another(values: Any, cells: npt.NDArray[np.integer], x: FloatArray) -> FloatArray:
    """Another value of the same cell than x, which has at least two."""
    out = x.copy()
    for i, (cell, own) in enumerate(zip(cells.tolist(), x.tolist())):
        base = values.axis.cells[cell]
        if base.values:
            out[i] = float(next(v for v in base.values if v != own))
        else:
            refined = _some_refined(values.axis)[cell]  # which a histogram may divide into pieces
            low, high = values.low[values.start[refined]], values.high[values.start[refined + 1] - 1]
            if values.integral:
                out[i] = own + 1 if own + 1 < high else own - 1
            else:
                out[i] = low if own != low else high
    return out


def _until_distinct(
    n: int, draw: Callable[[int], tuple[Columns, Columns]], x: Columns, other: Columns
) -> tuple[Columns, Columns]:
    """Drop pairs that were drawn before, and draw more, until there are n different ones."""
    while True:
        at = _first_of_each(x, other)
        x, other = [c[at] for c in x], [c[at] for c in other]
        if len(at) >= n:
            return [c[:n] for c in x], [c[:n] for c in other]
        new, new_other = draw(max(2 * (n - len(at)), 1000))
        before = len(at)
        x, other = ([np.concatenate(c) for c in zip(*both)] for both in ((x, new), (other, new_other)))
        if len(_first_of_each(x, other)) == before:
            raise EngineError(f"sample: after {before} different pairs none is new; ask for at most so many")


def _first_of_each(x: Columns, other: Columns) -> npt.NDArray[np.intp]:
    """The rows that are not equal to an earlier row, in order."""
    key = np.zeros(len(x[0]), np.uint64)
    factors = np.random.default_rng(1).integers(1, 2**63, 2 * len(x), dtype=np.uint64) | np.uint64(1)
    for factor, column in zip(factors, [*x, *other]):
        bits = (np.where(np.isnan(column), -1e300, column) + 0.0).view(np.uint64)
        bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
        key += (bits ^ (bits >> np.uint64(29))) * factor
    _, first = np.unique(key, return_index=True)
    return np.sort(first)
