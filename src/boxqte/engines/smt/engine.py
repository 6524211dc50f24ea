"""The engine `smt`: BoxQTE, the paper's Algorithm 1 with its three enhancements."""

from __future__ import annotations

from dataclasses import dataclass

from boxqte.engines import Limits, Outcome, Watch
from boxqte.engines.smt.solving import load_z3
from boxqte.errors import EngineError
from boxqte.grid import Grid
from boxqte.result import Decided, Status


@dataclass(frozen=True)
class SmtOptions:
    """Options of the smt engine. None changes the answer; all change how soon it comes."""

    priority: bool = True
    """Work on path tuples with large boxes first; otherwise in the order in which they are found."""
    decomposition: bool = True
    """Divide a task that has more blocking constraints than `blocking_limit`."""
    box_blocking: bool = True
    """Rule out every x that a pair of boxes has shown to be a counterexample, not only the pair itself."""
    blocking_limit: int = 100
    """The most blocking constraints of a task before it is divided."""

    def __post_init__(self) -> None:
        if self.blocking_limit < 1:
            raise EngineError(f"engine 'smt': option 'blocking_limit' must be at least 1, found {self.blocking_limit}")


class Smt:
    """The paper's BoxQTE: enumerates pairs of path tuples with z3; certain bounds at any time; worker processes."""

    name = "smt"
    Options = SmtOptions

    def __init__(self, options: SmtOptions | None = None):
        self.options = options or SmtOptions()

    def run(self, grid: Grid, limits: Limits, watch: Watch) -> Outcome:
        load_z3()
        from boxqte.engines.smt.scheduler import Scheduler

        try:
            return Scheduler(grid, self.options, limits, watch).run()
        except KeyboardInterrupt:  # before the search began: nothing is proved yet
            return Outcome(Decided(), Status.INTERRUPTED)
