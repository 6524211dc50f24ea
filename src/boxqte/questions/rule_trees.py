"""What rules forbid as trees: margins that no x' will do with, so that a search for partners never finds a forbidden one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from boxqte.questions.class_grid import ClassGrid
from boxqte.questions.grid import AnyGrid, Cut, Forbidden, Grid


def with_rule_trees(grid: Grid, rules: Sequence[Forbidden], value: int) -> Grid:
    """The grid with one more tree for every rule, which adds the value where the rule forbids, and nothing elsewhere."""
    trees = _RuleTrees(grid, len(grid.values), rules)
    return replace(grid, **trees.fields(), values=(*grid.values, *(value * inside for inside in trees.leaves)))


def divided_by_rules(grid: Grid) -> Grid:
    """The same question, with trees of value 0 by which whatever divides boxes by the trees' tests divides them by the rules."""
    return with_rule_trees(grid, grid.forbidden, 0) if grid.forbidden else grid


def with_class_rule_trees(grid: ClassGrid, rules: Sequence[Forbidden], value: int, output: int) -> ClassGrid:
    """The same for several outputs: the trees feed one of them."""
    trees = _RuleTrees(grid, len(grid.leaf_values), rules)
    outputs = np.append(grid.tree_output, np.full(len(rules), output, np.int32)).astype(np.int32)
    leaf_values = (*grid.leaf_values, *((value * inside,) for inside in trees.leaves))
    return replace(grid, **trees.fields(), leaf_values=leaf_values, tree_output=outputs)


class _RuleTrees:
    """Trees over the cells of a grid, behind its own, in preorder as those are."""

    def __init__(self, grid: AnyGrid, n_leaves: int, rules: Sequence[Forbidden]):
        self.before, self.n_leaves = grid, n_leaves
        self.cuts = list(grid.cuts)
        self.known = {cut: i for i, cut in enumerate(grid.cuts)}
        self.first = len(grid.cut)
        self.roots: list[int] = []
        self.cut: list[int] = []
        self.no: list[int] = []
        self.leaf: list[int] = []
        self.leaves: list[bool] = []
        """Whether each of the new leaves is forbidden."""
        for rule in rules:
            self.roots.append(self.first + len(self.cut))
            self._grow(rule.masks)

    def _grow(self, masks: Sequence[tuple[int, int]]) -> None:
        """The tree of the parts that are still to be asked about, all of which have to hold."""
        if not masks:
            self._leaf(True)
            return
        (axis, mask), rest = masks[0], masks[1:]
        n = self.before.axes[axis].n_cells
        whole = (1 << n) - 1
        if self.before.axes[axis].attribute.is_numeric:  # thresholds: cuts stay prefixes of the cells
            flips = [c for c in range(1, n) if (mask >> c ^ mask >> (c - 1)) & 1]
            asked = [((1 << c) - 1, bool(mask >> (c - 1) & 1)) for c in flips]
            last = bool(mask >> (n - 1) & 1)
        else:
            asked = [] if mask in (0, whole) else [(mask if mask & 1 else whole & ~mask, bool(mask & 1))]
            last = bool(mask & 1) != bool(asked)
        for cells, inside in asked:
            at = self._node(Cut(axis, cells))
            self._side(inside, rest)
            self.no[at] = self.first + len(self.cut)
        self._side(last, rest)

    def _side(self, inside: bool, rest: Sequence[tuple[int, int]]) -> None:
        if inside:
            self._grow(rest)
        else:
            self._leaf(False)

    def _node(self, cut: Cut) -> int:
        if cut not in self.known:
            self.known[cut] = len(self.cuts)
            self.cuts.append(cut)
        self.cut.append(self.known[cut])
        self.no.append(-1)
        self.leaf.append(-1)
        return len(self.cut) - 1

    def _leaf(self, inside: bool) -> None:
        self.cut.append(-1)
        self.no.append(-1)
        self.leaf.append(self.n_leaves + len(self.leaves))
        self.leaves.append(inside)

    def fields(self) -> dict[str, Any]:
        """What of the grid changes, but for the values of the new leaves."""
        grid, asking = self.before, np.array(self.cut, np.int32)
        yes = np.where(asking < 0, -1, self.first + 1 + np.arange(len(asking)))
        return {
            "cuts": tuple(self.cuts),
            "roots": np.append(grid.roots, np.array(self.roots)).astype(np.int32),
            "cut": np.append(grid.cut, asking).astype(np.int32),
            "yes": np.append(grid.yes, yes).astype(np.int32),
            "no": np.append(grid.no, np.array(self.no)).astype(np.int32),
            "leaf": np.append(grid.leaf, np.array(self.leaf)).astype(np.int32),
        }
