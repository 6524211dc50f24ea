"""VBT (verification-based testing, Sharma and Wehrheim 2020): solve for a pair on a decision tree, ask the model, refit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from boxqte.testers.coordinates import FloatArray, IntArray
from boxqte.testers.pair_solver import Demands, PairSolver
from boxqte.testers.session import Session
from boxqte.testers.tester import Tester
from boxqte.testers.trees import BoxTree

STARTS = 512  # solutions that a round of batch mode starts from
FRUITLESS = 20  # searches without a new pair, after which a run without time limit ends


class Solver(Protocol):
    """Finds pairs on a tree: equal but for the sensitive attribute, with different labels, meeting a demand each."""

    def solve(self, demands: Demands) -> tuple[FloatArray, FloatArray]: ...


class VBT(Tester):
    """Solves for pairs on a decision tree and prunes the solutions, one demand at a time (VBT)."""

    name = "vbt"
    options: Options

    @dataclass(frozen=True)
    class Options:
        """Options of VBT."""

        points: int = 2000
        """Distinct random inputs that the first tree is fitted on."""
        idle_rounds: int = 5
        """Rounds without a new candidate after which the search is over."""
        starts: int | None = None
        """Solutions that a round starts from; none: one, and 512 in batch mode."""

    def needs(self) -> tuple[str, ...]:
        return ("sklearn.tree", "z3") if self.variant == "faithful" else ("sklearn.tree",)

    def search(self, session: Session) -> None:
        """Search from random inputs again and again, as long as the budget lasts and anything new comes of it.

        The published code ends where the first search does, with most of its time unspent.
        """
        session.details |= {"rounds": 0, "refits": 0, "restarts": -1}
        seen: set[tuple[bytes, bytes]] = set()
        fruitless = 0
        while session.timed or fruitless < FRUITLESS:
            before = session.tests
            session.details["restarts"] += 1
            self._search_once(session, seen)
            fruitless = 0 if session.tests > before else fruitless + 1

    def _search_once(self, session: Session, seen: set[tuple[bytes, bytes]]) -> None:
        """Fit, solve, ask, refit. Ends when the tree has no pair, or nothing new comes of it."""
        x, labels = self._points(session)
        idle = 0
        tree, stale = None, True
        while idle < self.options.idle_rounds:
            session.check()
            session.details["rounds"] += 1
            if tree is None or stale:
                session.details["refits"] += 1
                seed = int(session.rng.integers(2**31))
                tree = BoxTree(session.at, x, labels, criterion="entropy", seed=seed)
                solver = self._solver(session, tree)
            one, two = self._candidates(session, tree, solver)
            if not len(one):
                return  # no pair: the tree is fair
            fresh = [i for i, key in enumerate(zip(map(bytes, one), map(bytes, two))) if _first(seen, key)]
            idle = 0 if fresh else idle + 1
            wrong, truth = self._ask(session, tree, one[fresh], two[fresh])
            stale = len(wrong) > 0
            x, labels = np.concatenate([x, wrong]), np.concatenate([labels, truth])

    def _points(self, session: Session) -> tuple[FloatArray, IntArray]:
        """Distinct random inputs and their labels."""
        x = np.unique(session.at.draw(session.rng, self.options.points), axis=0)
        return x, session.labels(x)

    def _solver(self, session: Session, tree: BoxTree) -> Solver:
        """The published code leaves the domains out of its formula: only an SMT solver can tell what comes of that."""
        if self.variant == "faithful":
            from boxqte.testers.smt_pairs import SMTPairs

            return SMTPairs(session, tree)
        return PairSolver(session, tree)

    def _candidates(self, session: Session, tree: BoxTree, solver: Solver) -> tuple[FloatArray, FloatArray]:
        """Solutions, and for each what comes of forbidding one of its values or negating one test on its paths."""
        n = self.options.starts or (STARTS if self.batch else 1)
        one, two = solver.solve(Demands.none(n))
        if not len(one):
            return one, two
        demands = Demands.pruning(session.at, tree, one, two)
        more = solver.solve(demands)
        return np.concatenate([one, more[0]]), np.concatenate([two, more[1]])

    def _ask(self, session: Session, tree: BoxTree, one: FloatArray, two: FloatArray) -> tuple[FloatArray, IntArray]:
        """Ask about candidates; the points that the tree predicts wrongly, with their labels."""
        at = session.at
        wrong, truth = [np.zeros((0, len(at)))], [np.zeros(0, np.int64)]
        step = max(len(one), 1) if self.batch else 1
        for start in range(0, len(one), step):
            n = session.room(min(step, len(one) - start))
            x, y = one[start : start + n], two[start : start + n]
            session.tests += n
            both = np.concatenate([x, y])
            labels = session.each_label(both)
            differ = labels[:n] != labels[n:]
            if differ.any():
                session.found(x[differ], y[differ, at.sensitive])
            mistaken = labels != tree.predict(both)
            wrong.append(both[mistaken])
            truth.append(labels[mistaken])
        return np.concatenate(wrong), np.concatenate(truth)


def _first(seen: set[tuple[bytes, bytes]], key: tuple[bytes, bytes]) -> bool:
    if key in seen:
        return False
    seen.add(key)
    return True
