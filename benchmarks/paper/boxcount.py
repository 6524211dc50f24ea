"""How many boxes an enumerator of path tuples (VoTE, or the paper's method) has to visit: counted, or estimated.

A path tuple takes one leaf of every tree; its box is not empty if the tests on all paths agree. Few boxes are counted one
by one. Many are estimated by Knuth's method: walk down at random, multiply the numbers of branches on the way; the mean of
that product over many walks is the number of boxes, without bias. It is for orientation: the product varies widely.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from boxqte.questions.grid import Grid

COUNTED = 20_000
WALKS = 2_000


@dataclass(frozen=True)
class BoxCount:
    """`boxes` as a float; exact, or an estimate with its relative standard error."""

    boxes: float
    exact: bool
    relative_error: float = 0.0


def count_boxes(grid: Grid, seed: int = 0, *, counted: int = COUNTED, walks: int = WALKS) -> BoxCount:
    """The number of non-empty path tuples of the grid's trees."""
    walker = _Walker(grid)
    found = walker.count(counted)
    if found is not None:
        return BoxCount(float(found), True)
    rng = random.Random(seed)
    products = [walker.walk(rng) for _ in range(walks)]
    mean = math.fsum(products) / walks
    spread = math.sqrt(math.fsum((p - mean) ** 2 for p in products) / (walks - 1) / walks)
    return BoxCount(mean, False, spread / mean)


class _Walker:
    """A box is one bit mask of cells an axis; the leaves of a tree that a box reaches are smaller boxes."""

    def __init__(self, grid: Grid):
        self.full = tuple((1 << axis.n_cells) - 1 for axis in grid.axes)
        self.cuts = [(c.axis, c.mask) for c in grid.cuts]
        self.roots = [int(r) for r in grid.roots]
        self.cut, self.yes, self.no = grid.cut.tolist(), grid.yes.tolist(), grid.no.tolist()

    def leaves(self, root: int, box: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The box cut down to each leaf of the tree that it reaches."""
        reached, stack = [], [(root, box)]
        while stack:
            node, part = stack.pop()
            if self.cut[node] < 0:
                reached.append(part)
                continue
            axis, mask = self.cuts[self.cut[node]]
            for child, cells in ((self.yes[node], part[axis] & mask), (self.no[node], part[axis] & ~mask)):
                if cells:
                    stack.append((child, (*part[:axis], cells, *part[axis + 1 :])))
        return reached

    def count(self, most: int) -> int | None:
        """All boxes, or None if there are more than `most`."""
        found, stack = 0, [(0, self.full)]
        while stack:
            tree, box = stack.pop()
            if tree == len(self.roots):
                found += 1
            else:
                stack += [(tree + 1, part) for part in self.leaves(self.roots[tree], box)]
            if found + len(stack) > most:
                return None
        return found

    def walk(self, rng: random.Random) -> float:
        """One random path through all trees; the product of the numbers of choices."""
        box, product = self.full, 1.0
        for root in self.roots:
            choices = self.leaves(root, box)
            product *= len(choices)
            box = rng.choice(choices)
        return product
