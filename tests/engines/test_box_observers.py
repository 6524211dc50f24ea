"""What observers of the box engine see: disjoint boxes that cover the space, with the masses of the answer."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from boxqte import Fairness, quantify
from boxqte.answers.regions import cells_text
from boxqte.engines.box.engine import Box
from boxqte.engines.box.exchange_worker import root_boxes
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import Problem as Compiled
from boxqte.engines.box.problem import compile_problem
from boxqte.engines.exhaustive import dense_margins, verdicts
from boxqte.engines.kinds import UNFAIR
from boxqte.engines.protocol import BOUNDS, COUNTED, POINT, BoxArray, Closed, Companions, Limits, Watch
from boxqte.questions.building import build_grid
from tests.engines.test_box import ODD_OPTIONS, integers, random_trees
from tests.strategies import Problem, random_problem


class Record:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.parts: list[Closed] = []

    def begin(self, problem: Compiled, roots: BoxArray) -> None:
        self.problem, self.roots = problem, roots

    def closed(self, parts: Closed) -> None:
        self.parts.append(parts)

    @property
    def boxes(self) -> BoxArray:
        return np.concatenate([p.boxes for p in self.parts])

    @property
    def masses(self) -> Any:
        return np.concatenate([p.masses for p in self.parts])

    @property
    def how(self) -> Any:
        return np.concatenate([p.how for p in self.parts])


def observed(problem: Problem, **options: Any) -> tuple[Record, Any, Any]:
    grid = build_grid(*problem)
    engine, record, limits = Box(BoxOptions(**options)), Record(), Limits()
    return record, engine.run(grid, limits, Watch(limits), Companions((record,))), grid


def check(problem: Problem, **options: Any) -> set[int]:
    record, outcome, grid = observed(problem, **options)
    plain = Box(BoxOptions(**options)).run(grid, Limits(), Watch(Limits()))
    assert float(outcome.decided.unfair) == pytest.approx(float(plain.decided.unfair), abs=1e-13)
    sums = record.masses.sum(axis=0)
    decided = outcome.decided
    assert sums == pytest.approx([float(decided.fair), float(decided.unfair), float(decided.low)], abs=1e-12)
    # every cell in one box and one only; each box's unfair mass is that of its cells
    unfair = verdicts(grid, dense_margins(grid))[1]
    ids = record.problem.axis_ids
    seen: dict[tuple[int, ...], int] = {}
    for number, box in enumerate(record.boxes):
        cells = []
        for i, a in enumerate(ids):
            bits = sum(int(word) << (64 * w) for w, word in enumerate(box[i].tolist()))
            cells.append([c for c in range(grid.axes[a].n_cells) if bits >> c & 1])
        for cell in itertools.product(*cells):
            assert cell not in seen
            seen[cell] = number
    size = 1
    for a in ids:
        size *= grid.axes[a].n_cells
    assert len(seen) == size
    mass = np.zeros(len(record.how))
    for at in np.argwhere(unfair):
        base = tuple(int(grid.axes[a].base[at[a]]) for a in ids)
        mass[seen[base]] += float(
            np.prod([Fraction(axis.refined_masses[r]) for axis, r in zip(grid.axes, at.tolist())], initial=1)
        )
    assert mass == pytest.approx(record.masses[:, 1], abs=1e-12)
    return set(record.how.tolist())


@pytest.mark.parametrize("eps", [False, True])
def test_closed_boxes_cover_the_space_with_the_masses_of_their_cells(eps: bool) -> None:
    rng = random.Random(f"observers {eps}")
    how: set[int] = set()
    for i in range(60 if not eps else 15):
        options = ODD_OPTIONS[i % len(ODD_OPTIONS)] if not eps else {"mixed_limit": i % 2, "cell_limit": 1}
        how |= check(random_problem(rng, eps=eps), **options)
    assert how >= ({COUNTED} if eps else {BOUNDS, COUNTED})


def test_wide_values_are_settled_as_points() -> None:
    from boxqte import EnsembleBuilder, Fairness, Space
    from boxqte.space.attributes import Attribute

    builder = EnsembleBuilder()
    for column, value in ((0, [1.0, -1.0]), (1, [2.0**-80, -1.0]), (0, [-1.0, 1.0])):
        builder.add_tree(feature=[column, 0, 0], test=[3, 0, 0], threshold=[0.5, 0, 0], left=[1, -1, -1],
                         right=[2, -1, -1], value=[0, *value])  # fmt: skip
    model = builder.build(library="test", feature_names=["a", "b"], base=(0.0,), link="sigmoid")
    space = Space([Attribute.integer("a", 0, 1), Attribute.integer("b", 0, 1)])
    assert POINT in check(Problem(model, space, Fairness("b")))


@pytest.mark.parametrize("seed", [2, 5])
def test_a_search_starts_from_boxes_with_gaps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_trees(rng, 8, 9, 25, 3, lambda n: rng.normal(size=n))
    result = quantify(model, integers(8, 9), Fairness("a0"), engine="box", workers=1, node_limit=300)
    asked = result.asked
    assert asked is not None
    axes = asked.grid.axes[1:4]
    some = [sorted(rng.choice(axis.n_cells, 4, replace=False).tolist()) for axis in axes]
    terms = [cells_text(axis.attribute, axis.cells, cells) for axis, cells in zip(axes, some)]
    whole = result.restrict(" and ".join(terms), time_limit=60)
    assert whole.converged
    parts = []
    for cells in itertools.product(*some):
        box = root_boxes(compile_problem(asked.grid))
        box[0, 1:4, 0] = [1 << c for c in cells]
        parts.append(box)
    inside = asked.masses_in(asked.grid, np.concatenate(parts))
    assert inside.done
    unfair = inside.masses[:, UNFAIR].sum() / whole.details["share_of_space"]
    assert 0 < float(whole.decided.unfair) == pytest.approx(unfair, abs=1e-10)
