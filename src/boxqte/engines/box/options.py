"""The options of the box engine."""

from __future__ import annotations

from dataclasses import dataclass, fields

from boxqte.errors import EngineError


@dataclass(frozen=True)
class BoxOptions:
    """Options of the box engine. None changes the answer; all change how soon it comes."""

    finish_limit: int = 8000
    """Finish a box by counting in value space once that takes at most about this many cells."""
    depth_first_below: float = 1e6
    """Boxes that cost less than this many cells are worked on depth first."""
    batch: int = 8
    """How many open boxes a worker takes at once."""
    call_nodes: int = 4000
    """The most nodes of the search that a worker visits before it reports."""
    call_work: int = 10_000_000
    """The most elementary steps, of about 10 ns, that a worker spends before it reports."""
    mixed_limit: int = 10
    """Epsilon > 0: measure a box once at most this many of its trees mix moving and fixed attributes."""
    cell_limit: int = 1024
    """Epsilon > 0: or once those trees span at most this many cells of the fixed attributes."""
    dense_cells: int = 1 << 18
    """Epsilon > 0: keep one table over all moving attributes while it has at most this many cells."""
    table_cells: int = 1 << 16
    """Epsilon > 0: otherwise tables of about this many cells; moving attributes beyond that are taken cell by cell."""

    def __post_init__(self) -> None:
        least = {"finish_limit": 5, "depth_first_below": 0, "mixed_limit": 0, "dense_cells": 0}
        for option in fields(self):
            value = getattr(self, option.name)
            if not value >= least.get(option.name, 1):
                raise EngineError(
                    f"engine 'box': option '{option.name}' must be at least {least.get(option.name, 1)}, found {value}"
                )
