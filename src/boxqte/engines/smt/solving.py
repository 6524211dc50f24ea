"""z3 behind three questions: a formula that is loaded, constraints that are added, and `check`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from boxqte.engines.smt import formula
from boxqte.engines.smt.boxes import Mask, Masks, PathTuple
from boxqte.errors import EngineError
from boxqte.questions.axes import Edge
from boxqte.questions.grid import Grid

NO_TIMEOUT = 2**32 - 1  # z3's own word for it


class OutOfTimeError(Exception):
    """The time limit ended a check."""


class OutOfMemoryError(Exception):
    """z3 holds more than its share of memory."""


def load_z3() -> Any:
    """The module z3, or an error that says how to get it."""
    try:
        import z3
    except ImportError:
        raise EngineError(
            "the engines 'smt' and 'cegar' need z3, which is not installed: pip install boxqte[smt]"
        ) from None
    return z3


class Terms:
    """The conditions that tasks add to a formula, as z3 terms; those on masks are made once."""

    def __init__(self, grid: Grid):
        self.z3 = load_z3()
        self.context = self.z3.Context()  # of its own: what else z3 did in this process must not change a run
        self.grid = grid
        self._within: dict[tuple[int, Mask, bool, str], Any] = {}
        self.paths = {
            prime: [self.z3.Int(f"p{j}{prime}", self.context) for j in range(len(grid.roots))]
            for prime in ("", formula.PRIME)
        }
        self._other_path: dict[tuple[int, int, str], Any] = {}

    def parsed(self, axis: int, prime: str, text: str) -> Any:
        """A condition on one attribute's variables, from SMT-LIB text."""
        script = f"{formula.declared(axis, self.grid.axes[axis], prime)} (assert {text})"
        return self.all_of(list(self.z3.parse_smt2_string(script, ctx=self.context)))  # nothing at all for `true`

    def all_of(self, terms: Sequence[Any]) -> Any:
        return self.z3.And(terms) if terms else self.z3.BoolVal(True, self.context)

    def any_of(self, terms: Sequence[Any]) -> Any:
        return self.z3.Or(terms) if terms else self.z3.BoolVal(False, self.context)

    def within(self, axis: int, mask: Mask, *, refined: bool, prime: str = "") -> Any:
        """x_i lies in the cells of the mask."""
        key = (axis, mask, refined, prime)
        if key not in self._within:
            its = self.grid.axes[axis]
            text = formula.member(axis, its, its.refined if refined else its.cells, mask, prime)
            self._within[key] = self.parsed(axis, prime, text)
        return self._within[key]

    def inside(self, box: Masks, *, refined: bool, prime: str = "") -> list[Any]:
        """x, or x', lies in the box."""
        sizes = [len(axis.refined) if refined else axis.n_cells for axis in self.grid.axes]
        return [
            self.within(i, mask, refined=refined, prime=prime)
            for i, (mask, n) in enumerate(zip(box, sizes))
            if mask != (1 << n) - 1
        ]

    def between(self, axis: int, low: Edge, high: Edge) -> Any:
        """x_i lies between two edges, whatever they are."""
        its = self.grid.axes[axis]
        return self.parsed(axis, "", formula.between(formula.symbol("x", axis, ""), formula.sort_of(its), low, high))

    def not_this(self, leaves: PathTuple, prime: str) -> Any:
        """The paper's blocking constraint: some path is another one."""
        return self.any_of([self._not_leaf(j, leaf, prime) for j, leaf in enumerate(leaves)])

    def _not_leaf(self, tree: int, leaf: int, prime: str) -> Any:
        key = (tree, leaf, prime)
        if key not in self._other_path:
            self._other_path[key] = self.paths[prime][tree] != leaf
        return self._other_path[key]

    def outside(self, near: Masks, own: Masks | None, x_box: Masks) -> Any:
        """Box blocking, corrected: x is too far from B' in some attribute, or has B's only sensitive values itself.

        `near` and `own` are those of `Boxes.near`. Attributes in which all of x_box is near cannot help.
        """
        far = [
            self.z3.Not(self.within(i, mask & here, refined=True))
            for i, (mask, here) in enumerate(zip(near, x_box))
            if here & ~mask
        ]
        if own is not None and all(a & b for a, b in zip(own, x_box)):
            far.append(self.all_of(self.inside(own, refined=True)))
        return self.any_of(far)


class Session:
    """One z3 solver with a formula in it.

    `seconds_left` bounds each check; `room` is the memory in bytes that all of z3 may hold in this process.
    """

    def __init__(self, terms: Terms, lines: Sequence[str], seconds_left: Callable[[], float], room: float = math.inf):
        self._z3 = terms.z3
        self._paths = terms.paths
        self._seconds_left = seconds_left
        self._room = room
        self.solver = self._z3.Solver(ctx=terms.context)
        self.solver.set("relevancy", 0)  # twice as fast on these formulas, which have no quantifiers
        self.solver.from_string("\n".join(lines))

    def check(self) -> bool:
        """Whether what has been added can be satisfied."""
        left = self._seconds_left()
        if left <= 0:
            raise OutOfTimeError
        self.solver.set("timeout", NO_TIMEOUT if math.isinf(left) else min(int(left * 1000) + 1, NO_TIMEOUT))
        try:
            answer = self.solver.check()
        except self._z3.Z3Exception as error:
            if "memory" in str(error):
                raise OutOfMemoryError from None
            raise
        if self._z3.Z3_get_estimated_alloc_size() > self._room:
            raise OutOfMemoryError
        if answer != self._z3.unknown:
            return bool(answer == self._z3.sat)
        reason = self.solver.reason_unknown()
        if self._seconds_left() <= 0 or "timeout" in reason:
            raise OutOfTimeError
        if any(word in reason for word in ("keyboard", "interrupt", "cancel")):
            raise KeyboardInterrupt  # z3 takes Ctrl-C for itself while it works, and says so in one of these words
        if "memory" in reason:
            raise OutOfMemoryError
        raise EngineError(f"z3 gave up on a formula: {reason}")

    def leaves(self, prime: str) -> PathTuple:
        """The path tuple of x, or of x', in the last model."""
        model = self.solver.model()
        return tuple(model[p].as_long() for p in self._paths[prime])
