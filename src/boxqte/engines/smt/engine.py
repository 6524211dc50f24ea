"""The engine `smt`: BoxQTE, the paper's Algorithm 1 with its three enhancements."""

from __future__ import annotations

from typing import ClassVar

from boxqte.engines.protocol import ALONE, Capability, Companions, Decided, Limits, Outcome, Status, Watch
from boxqte.engines.smt.options import SmtOptions
from boxqte.engines.smt.scheduler import Scheduler
from boxqte.engines.smt.solving import load_z3
from boxqte.questions.grid import AnyGrid, binary
from boxqte.questions.rule_trees import divided_by_rules


class Smt:
    """The paper's BoxQTE: enumerates pairs of path tuples with z3; certain bounds at any time; worker processes."""

    name = "smt"
    Options = SmtOptions
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.PARTNERS, Capability.RULES})

    def __init__(self, options: SmtOptions | None = None):
        self.options = options or SmtOptions()

    def run(self, grid: AnyGrid, limits: Limits, watch: Watch, companions: Companions = ALONE) -> Outcome:
        load_z3()
        try:
            return Scheduler(divided_by_rules(binary(grid)), self.options, limits, watch).run()
        except KeyboardInterrupt:  # before the search began: nothing is proved yet
            return Outcome(Decided(), Status.INTERRUPTED)
