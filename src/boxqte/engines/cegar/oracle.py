"""What CegarQuant asks about a region. Whoever answers these questions makes it work for another kind of model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from boxqte.engines.cegar.regions import Region, Regions
from boxqte.engines.smt import formula
from boxqte.engines.smt.solving import Session, Terms
from boxqte.questions.grid import Grid


class RegionOracle(Protocol):
    """Answers about all inputs of a region. All but `alike` must be right; `alike` may say False when it is not sure."""

    def counterexample(self, region: Region) -> bool:
        """Is there a counterexample in the region?"""

    def confident(self, region: Region) -> bool:
        """Is there an input in the region whose confidence is above kappa?"""

    def unsure(self, region: Region) -> bool:
        """Is there an input in the region whose confidence is not above kappa?"""

    def alike(self, region: Region) -> bool:
        """Do all inputs of the region have the same verdict?"""


MakeOracle = Callable[[Grid, Callable[[], float], float], RegionOracle]
"""Makes an oracle from the grid, the seconds that are left, and the bytes that it may hold."""


class SmtOracle:
    """Asks z3: Phi_unfair, Phi_kappa and Phi_not_kappa, and x in the region."""

    def __init__(self, grid: Grid, seconds_left: Callable[[], float] = lambda: math.inf, room: float = math.inf):
        self.grid = grid
        self.terms = Terms(grid)
        self.regions = Regions(grid)
        self._limits = seconds_left, room
        self._sessions: dict[str, Session] = {}

    def counterexample(self, region: Region) -> bool:
        return self._ask("unfair", region)

    def confident(self, region: Region) -> bool:
        all_are = self.grid.thresholds.all_confident and not self.regions.meets_forbidden(region)
        return all_are or self._ask("kappa", region)

    def unsure(self, region: Region) -> bool:
        if self.regions.meets_forbidden(region):  # what is forbidden counts as not confident
            return True
        return not self.grid.thresholds.all_confident and self._ask("not-kappa", region)

    def alike(self, region: Region) -> bool:
        return self.regions.alike(region)

    def _ask(self, name: formula.FormulaName, region: Region) -> bool:
        if name not in self._sessions:
            script = formula.smtlib(self.grid, name).removesuffix("(check-sat)\n").splitlines()
            lines = [line for line in script if not line.startswith("(set-logic")]
            self._sessions[name] = Session(self.terms, lines, *self._limits)
        session = self._sessions[name]
        session.solver.push()
        try:
            session.solver.add([self._within(axis, region) for axis in range(len(region))])
            return session.check()
        finally:
            session.solver.pop()

    def _within(self, axis: int, region: Region) -> Any:
        """x_i lies in the region's part."""
        part, its, z3 = region[axis], self.grid.axes[axis], self.terms.z3
        x = formula.symbol("x", axis, "")
        if not its.attribute.is_numeric:
            return self.terms.parsed(axis, "", formula.one_of(x, part.values, its))
        inside = self.terms.within(axis, part.mask, refined=False)
        if part.low is None or part.high is None:
            return inside
        between = self.terms.between(axis, part.low, part.high)
        if formula.has_flag(its):
            between = self.terms.any_of([z3.Bool(formula.absent(axis, ""), self.terms.context), between])
        return self.terms.all_of([inside, between])


# --- the tasks of the workers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RegionTask:
    """Decide a region; `free`: a region around it is known to have no counterexample."""

    region: Region
    free: bool = False
    kind: ClassVar[str] = "region"


@dataclass(frozen=True)
class Verdict:
    """All inputs of the region are fair, or unfair, or not confident; or the region has to be refined."""

    kind: Literal["fair", "unfair", "low", "mixed"]
    free: bool = False
    last: ClassVar[bool] = True


class RegionWorker:
    """Decides regions with an oracle, one question a step."""

    def __init__(self, make: MakeOracle, grid: Grid, room: float, seconds_left: Callable[[], float] = lambda: math.inf):
        self.oracle = make(grid, seconds_left, room)

    def start(self, task: RegionTask) -> Iterator[Verdict | None]:
        oracle, region = self.oracle, task.region
        if not oracle.confident(region):
            yield Verdict("low")
            return
        if not task.free:
            yield None
            if oracle.counterexample(region):
                yield Verdict("unfair" if oracle.alike(region) else "mixed")
                return
        yield None
        yield Verdict("mixed" if oracle.unsure(region) else "fair", free=True)
