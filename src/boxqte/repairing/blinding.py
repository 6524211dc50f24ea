"""Blinding single trees and splits: which child stays in place of a node that tests a sensitive attribute, and the rest.

As in `prune`, a node is replaced by the child that more training rows reach; without rows, by the child with more mass in
the space. At a tie the left one stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from boxqte.answers.regions import cells_text
from boxqte.models.ensemble import FloatArray, Test, TreeEnsemble
from boxqte.questions.axes import Axis, Question, counted_axis, finite_axis, numeric_axis
from boxqte.questions.building import attribute_codes, distinct_tests, feature_of, match_columns
from boxqte.questions.decisions import attribute_groups
from boxqte.repairing.trees import PER_NODE, is_symmetric, test_key, tests_any
from boxqte.space.space import Space

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]


def without(ensemble: TreeEnsemble, sides: Mapping[int, bool]) -> TreeEnsemble:
    """The ensemble with each of these nodes replaced by its left child (True) or by its right one."""

    def kept(node: int) -> int:
        while node in sides:
            node = int((ensemble.left if sides[node] else ensemble.right)[node])
        return node

    left, right, roots = ensemble.left.copy(), ensemble.right.copy(), ensemble.roots.copy()
    dropped = np.array(sorted(sides), np.int32)
    for children in (left, right, roots):
        for at in np.flatnonzero(np.isin(children, dropped)).tolist():
            children[at] = kept(int(children[at]))
    used = np.zeros(ensemble.n_nodes, bool)
    level: npt.NDArray[Any] = roots
    while len(level):
        used[level] = True
        level = level[ensemble.test[level] != Test.LEAF]
        level = np.concatenate([left[level], right[level]])
    number = (np.cumsum(used) - 1).astype(np.int32)
    arrays: dict[str, Any] = {name: getattr(ensemble, name)[used] for name in PER_NODE}
    inner = ensemble.test[used] != Test.LEAF
    for name, children in (("left", left), ("right", right)):
        arrays[name] = np.where(inner, number[children[used]], -1).astype(np.int32)
    return replace(ensemble, roots=number[roots], **arrays)


class Reached(Protocol):
    """What reaches a node: rows of a table, or a part of the space."""

    def split(self, node: int) -> tuple[Reached, Reached]:
        """What goes left, and what goes right."""

    def weight(self) -> Fraction:
        """How much it is."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows in the model's columns."""

    ensemble: TreeEnsemble
    X: FloatArray
    at: IntArray

    def split(self, node: int) -> tuple[Rows, Rows]:
        goes = self.ensemble.goes_left(node, self.X[self.at, self.ensemble.feature[node]])
        return replace(self, at=self.at[goes]), replace(self, at=self.at[~goes])

    def weight(self) -> Fraction:
        return Fraction(len(self.at))


class Cells:
    """The attributes of a space in cells that the model's tests tell apart, exactly, with their masses in each product."""

    def __init__(self, ensemble: TreeEnsemble, space: Space):
        owner = match_columns(ensemble, space, space.names)
        nodes, test_of_node = distinct_tests(ensemble)
        self.axis_of_node = np.array([at for at, _ in owner] or [0])[ensemble.feature]
        of_test = self.axis_of_node[nodes]
        columns = np.array([column for _, column in owner] or [0])[ensemble.feature[nodes]]
        self.test_of_node = test_of_node
        self.masks: list[BoolArray] = [np.zeros(0, bool)] * len(nodes)
        self.products: list[tuple[Fraction, list[Axis]]] = []
        for weight, product in space.products():
            axes = []
            for at, attribute in enumerate(product):
                mine = np.flatnonzero(of_test == at)
                groups = attribute_groups(ensemble.decision, attribute)
                question = Question(attribute, False, Fraction(0), ensemble, nodes[mine], groups)
                if attribute.is_numeric:
                    axis, found = numeric_axis(question)
                else:
                    codes = attribute_codes(attribute, ensemble, feature_of(owner, at))
                    axis, found = finite_axis(question, codes, columns[mine].tolist())
                axes.append(counted_axis(axis) if space.mass == "cells" else axis)
                for test, mask in zip(mine.tolist(), found):
                    self.masks[test] = np.array([mask >> cell & 1 for cell in range(axis.n_cells)], bool)
            self.products.append((weight, axes))

    def goes_left(self, node: int) -> BoolArray:
        """Which cells of the node's axis it sends left."""
        return self.masks[int(self.test_of_node[node])]

    def text(self, node: int) -> str:
        """The node's test as a condition on its attribute."""
        axis = self.products[0][1][self.axis_of_node[node]]
        chosen = np.flatnonzero(self.goes_left(node)).tolist()
        if not chosen or len(chosen) == axis.n_cells:
            return f"{axis.attribute.name}: {'every' if chosen else 'no'} value"
        return cells_text(axis.attribute, axis.cells, chosen)

    def whole(self) -> Part:
        return Part(self, {})


@dataclass(frozen=True, eq=False)
class Part:
    """The inputs of the space in some cells of each axis; axes that are not named have all of theirs."""

    cells: Cells
    held: Mapping[int, BoolArray]

    def split(self, node: int) -> tuple[Part, Part]:
        axis, goes = int(self.cells.axis_of_node[node]), self.cells.goes_left(node)
        own = self.held.get(axis, np.ones(len(goes), bool))
        return Part(self.cells, {**self.held, axis: own & goes}), Part(self.cells, {**self.held, axis: own & ~goes})

    def weight(self) -> Fraction:
        total = Fraction(0)
        for weight, axes in self.cells.products:
            mass = weight
            for a, own in self.held.items():
                mass *= sum((axes[a].masses[c] for c in np.flatnonzero(own).tolist()), Fraction(0))
            total += mass
        return total


@dataclass(frozen=True)
class Split:
    """A split on a sensitive attribute: its nodes (one, or a level of a symmetric tree), and which child stays of each."""

    nodes: tuple[int, ...]
    sides: Mapping[int, bool]


@dataclass(frozen=True)
class SensitiveTree:
    """A tree that tests a sensitive attribute."""

    tree: int
    sides: Mapping[int, bool]
    """What blinding all of it does."""
    splits: tuple[Split, ...]
    reach: float
    """How far its sensitive splits can move margins: the share of what reaches each, times the difference of its sides."""


def sensitive_trees(ensemble: TreeEnsemble, features: frozenset[int], everything: Reached) -> Iterator[SensitiveTree]:
    """The trees that test one of the features, with what blinding them does to each of their nodes."""
    tests = tests_any(ensemble, features)
    owner = ensemble.tree_of_node()
    for t in np.unique(owner[tests]).tolist():
        root = int(ensemble.roots[t])
        if ensemble.library == "catboost" and is_symmetric(ensemble, root):
            yield _symmetric(ensemble, t, np.flatnonzero(tests & (owner == t)).tolist(), everything)
            continue
        sides: dict[int, bool] = {}
        _choose(ensemble, root, tests, everything, sides)
        reached: list[tuple[int, Reached]] = []
        _find(ensemble, root, tests, everything, reached)
        splits, reach = [], 0.0
        whole = everything.weight() or Fraction(1)
        for node, inputs in reached:
            splits.append(Split((node,), {node: _stays(inputs, node)}))
            reach += float(inputs.weight() / whole) * _apart(ensemble, node)
        yield SensitiveTree(t, sides, tuple(splits), reach)


def _stays(inputs: Reached, node: int) -> bool:
    left, right = inputs.split(node)
    return left.weight() >= right.weight()


def _choose(ensemble: TreeEnsemble, node: int, tests: BoolArray, inputs: Reached, sides: dict[int, bool]) -> None:
    """Top down: all that reaches a node that goes, goes on below the child that stays."""
    while tests[node]:
        sides[node] = _stays(inputs, node)
        node = int((ensemble.left if sides[node] else ensemble.right)[node])
    if ensemble.test[node] != Test.LEAF:
        left, right = inputs.split(node)
        _choose(ensemble, int(ensemble.left[node]), tests, left, sides)
        _choose(ensemble, int(ensemble.right[node]), tests, right, sides)


def _find(
    ensemble: TreeEnsemble, node: int, tests: BoolArray, inputs: Reached, found: list[tuple[int, Reached]]
) -> None:
    if ensemble.test[node] == Test.LEAF:
        return
    if tests[node]:
        found.append((node, inputs))
    left, right = inputs.split(node)
    _find(ensemble, int(ensemble.left[node]), tests, left, found)
    _find(ensemble, int(ensemble.right[node]), tests, right, found)


def _symmetric(ensemble: TreeEnsemble, t: int, nodes: list[int], everything: Reached) -> SensitiveTree:
    """In a symmetric tree a split is a whole level, which goes as one."""
    levels: dict[Any, list[int]] = {}
    for node in nodes:
        levels.setdefault(test_key(ensemble, node), []).append(node)
    splits = []
    for level in levels.values():
        side = _stays(everything, level[0])
        splits.append(Split(tuple(level), dict.fromkeys(level, side)))
    sides = {node: side for split in splits for node, side in split.sides.items()}
    reach = max(_apart(ensemble, node) for node in nodes)
    return SensitiveTree(t, sides, tuple(splits), reach)


def _apart(ensemble: TreeEnsemble, node: int) -> float:
    """How far apart the leaves on the two sides of a node can be."""
    ends = []
    for child in (int(ensemble.left[node]), int(ensemble.right[node])):
        level, values = np.array([child]), []
        while len(level):
            leaf = ensemble.test[level] == Test.LEAF
            values += ensemble.value[level[leaf]].tolist()
            level = np.concatenate([ensemble.left[level[~leaf]], ensemble.right[level[~leaf]]])
        ends.append((np.min(values, axis=0), np.max(values, axis=0)))
    (low, high), (other_low, other_high) = ends
    return float(np.maximum(high - other_low, other_high - low).max())
