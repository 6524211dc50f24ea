"""Pairs on a decision tree by an SMT solver (z3), with the published VBT's formula: the ranges of numbers are not in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from boxqte.testers.coordinates import FloatArray
from boxqte.testers.pair_solver import Demands
from boxqte.testers.session import Session
from boxqte.testers.trees import BoxTree


class SMTPairs:
    """Two copies of the tree's paths as implications: equal off S, different on S, different labels."""

    def __init__(self, session: Session, tree: BoxTree):
        import z3

        self.z3: Any = z3
        self.session = session
        at = session.at
        # A context of its own: what z3 finds would otherwise depend on what this process asked it before.
        self.context = z3.Context()
        self.solver = z3.Solver(ctx=self.context)
        self.solver.set("random_seed", int(session.rng.integers(2**30)))
        sort = [z3.Int if whole else z3.Real for whole in at.integral]
        self.copies = [[sort[f](f"x{c}_{f}", self.context) for f in range(len(at))] for c in (0, 1)]
        labels = [z3.Int("label0", self.context), z3.Int("label1", self.context)]
        for c, copy in enumerate(self.copies):
            for path, label in _paths(tree):
                tests = [copy[f] <= number if at_most else copy[f] > number for f, at_most, t in path
                         for number in [self._number(f, t)]]  # fmt: skip
                self.solver.add(z3.Implies(z3.And(*tests, z3.BoolVal(True, self.context)), labels[c] == label))
        # A category outside the list has no code that a model could be asked with, so these bounds stay.
        for f, attribute in enumerate(at.space):
            if not attribute.is_numeric:
                low, high = int(at.low[f]), int(at.high[f])
                self.solver.add(*(z3.And(copy[f] >= low, copy[f] <= high) for copy in self.copies))
        one, two = self.copies
        self.solver.add(*(one[f] == two[f] for f in at.others), one[at.sensitive] != two[at.sensitive])
        self.solver.add(labels[0] != labels[1])

    def _number(self, f: int, value: float) -> Any:
        if self.session.at.integral[f]:
            return self.z3.IntVal(int(np.floor(value)), self.context)
        return self.z3.RealVal(repr(float(value)), self.context)

    def solve(self, demands: Demands) -> tuple[FloatArray, FloatArray]:
        """One solution for each demand that has any."""
        ones, twos = [], []
        for c, f, low, high, not_ in zip(*(field.tolist() for field in tuple(demands))):
            self.session.check()
            self.solver.push()
            x = self.copies[c][f]
            if np.isfinite(low):
                self.solver.add(x >= self._number(f, low))
            if np.isfinite(high):
                self.solver.add(x <= self._number(f, high))
            if not np.isnan(not_):
                self.solver.add(x != self._number(f, not_))
            if self.solver.check() == self.z3.sat:
                model = self.solver.model()
                rows = [[self._value(model, v) for v in copy] for copy in self.copies]
                ones.append(rows[0])
                twos.append(rows[1])
            self.solver.pop()
        width = len(self.session.at)
        return np.array(ones).reshape(-1, width), np.array(twos).reshape(-1, width)

    def _value(self, model: Any, variable: Any) -> float:
        value = model.eval(variable, model_completion=True)
        return float(value.as_long()) if self.z3.is_int_value(value) else float(value.as_fraction())


def _paths(tree: BoxTree) -> list[tuple[list[tuple[int, bool, float]], int]]:
    """The tests on the way to each leaf, and its label."""
    paths = []
    stack: list[tuple[int, list[tuple[int, bool, float]]]] = [(0, [])]
    leaf_label = dict(zip(tree.leaves.tolist(), tree.label.tolist()))
    while stack:
        node, path = stack.pop()
        if node in leaf_label:
            paths.append((path, leaf_label[node]))
            continue
        f, t = int(tree.feature[node]), float(tree.threshold[node])
        stack.append((int(tree.left[node]), [*path, (f, True, t)]))
        stack.append((int(tree.right[node]), [*path, (f, False, t)]))
    return paths
