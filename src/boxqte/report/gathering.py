"""From a result to the findings that a report shows."""

from __future__ import annotations

from boxqte.report.findings import NOTHING, Extent, Findings
from boxqte.result import Quantification
from boxqte.space import Space


def gather(result: Quantification, space: Space | None, extent: Extent) -> Findings:
    """Regions, profiles, flips and pairs of the result, as far as it has them."""
    del result, space, extent
    return NOTHING
