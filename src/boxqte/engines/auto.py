"""The engine `auto`: certain bounds first, then draws from what they leave open."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction

from boxqte.engines.box.engine import Box
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.box.problem import used_axes
from boxqte.engines.protocol import (
    ALONE,
    Capability,
    Companions,
    Decided,
    Limits,
    Outcome,
    Status,
    Watch,
    known_at_first,
)
from boxqte.engines.sample.draws import Stratum, WholeSpace
from boxqte.engines.sample.engine import SampleOptions, sample
from boxqte.errors import EngineError
from boxqte.questions.grid import AnyGrid


@dataclass(frozen=True)
class AutoOptions(SampleOptions, BoxOptions):
    """Options of the engine `auto`: those of `box` and of `sample`, and how they share the time."""

    exact_share: float = 0.3
    """The share of the time limit for certain bounds; the rest is for draws from what they leave open."""

    def __post_init__(self) -> None:
        SampleOptions.__post_init__(self)
        self.box_options()
        if not 0 < self.exact_share <= 1:
            raise EngineError(
                f"engine 'auto': option 'exact_share' must lie above 0 and up to 1, found {self.exact_share}"
            )

    def box_options(self) -> BoxOptions:
        return BoxOptions(**{option.name: getattr(self, option.name) for option in fields(BoxOptions)})


class Auto:
    """Certain bounds first; if time is limited, draws from what is then undecided. Without a time limit, exact."""

    name = "auto"
    Options = AutoOptions
    capabilities = frozenset(Capability)

    def __init__(self, options: AutoOptions | None = None):
        self.options = options or AutoOptions()
        self.box = Box(self.options.box_options())

    def run(self, grid: AnyGrid, limits: Limits, watch: Watch, companions: Companions = ALONE) -> Outcome:
        if limits.time_limit is None:
            return self.box.run(grid, limits, watch, companions)
        try:
            with watch.shortened(self.options.exact_share):
                outcome = self.box.run(grid, limits, watch, companions)
        except EngineError as refusal:  # the question is beyond the exact engine: draws alone, and say so
            whole = [Stratum(Fraction(1), grid, WholeSpace(), ())]
            drawn = sample(grid, whole, Decided(), limits, watch, self.options, certain=known_at_first(grid))
            return replace(drawn, details=drawn.details | {"exact_engine": str(refusal)})
        # where memory ends the search, the time that it has not used goes to the draws
        if outcome.status not in (Status.TIME, Status.MEMORY) or outcome.open is None:
            return outcome
        # Draws are from the open boxes, so what they are added to is what is proved outside of these.
        outside = outcome.outside or outcome.decided
        open_boxes = [Stratum(Fraction(1), grid, outcome.open, tuple(used_axes(grid)))]
        drawn = sample(grid, open_boxes, outside, limits, watch, self.options, certain=outcome.decided)
        return replace(
            drawn,
            rounding_ambiguous=outcome.rounding_ambiguous,
            details=outcome.details | drawn.details,
            open=outcome.open,
        )
