"""The kinds of verdicts, in the one order that Python and C++ have: `_core.Kind`, as plain integers for numpy."""

from __future__ import annotations

from boxqte._core import Kind

FAIR, UNFAIR, LOW, AMBIGUOUS, UNKNOWN = (
    int(kind) for kind in (Kind.FAIR, Kind.UNFAIR, Kind.LOW, Kind.AMBIGUOUS, Kind.UNKNOWN)
)
