"""The hot loops of boxqte: arrays in, arrays out."""

import enum
from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

class Kind(enum.IntEnum):
    FAIR = 0

    UNFAIR = 1

    LOW = 2

    AMBIGUOUS = 3

    UNKNOWN = 4

class MemoryLimitError(MemoryError):
    pass

class Problem:
    def __init__(
        self,
        *,
        cut_axis: NDArray[numpy.int32],
        cut_start: NDArray[numpy.int32],
        cut_prefix: NDArray[numpy.int32],
        cut_mask: NDArray[numpy.uint64],
        implied_at: NDArray[numpy.int64],
        implied: NDArray[numpy.int8],
        n_cells: NDArray[numpy.int32],
        chain: NDArray[numpy.bool_],
        role: NDArray[numpy.int8],
        mass: NDArray[numpy.float64],
        single: NDArray[numpy.bool_],
        n_refined: NDArray[numpy.int32],
        base_cell: NDArray[numpy.int32],
        near_lo: NDArray[numpy.int32],
        near_hi: NDArray[numpy.int32],
        refined_mass: NDArray[numpy.float64],
        root: NDArray[numpy.int32],
        cut: NDArray[numpy.int32],
        yes: NDArray[numpy.int32],
        no: NDArray[numpy.int32],
        value: NDArray[numpy.int64],
        residue: NDArray[numpy.uint64],
        base: int,
        base_residue: int,
        thresholds: NDArray[numpy.int64],
        threshold_residues: NDArray[numpy.uint64],
        simple: bool,
        all_confident: bool,
        band: int,
        fuzz: int,
        capped: bool,
        counted: int,
        merges: bool,
        points_matter: bool,
        combination_axes: NDArray[numpy.int32],
        combination_cells: NDArray[numpy.int32],
        combination_mass: NDArray[numpy.float64],
        partner_place: NDArray[numpy.int32],
        partner_ranges: NDArray[numpy.int32],
        partner_order: int,
        ordered_places: int,
        score_gap: int,
        probability_scale: NDArray[numpy.float64],
        rule_start: NDArray[numpy.int32],
        rule_axis: NDArray[numpy.int32],
        rule_mask: NDArray[numpy.uint64],
        rule_bans: NDArray[numpy.bool_],
    ) -> None: ...

class ExchangeWorker:
    def __init__(
        self,
        problem: Problem,
        *,
        finish_limit: float,
        depth_first_below: float,
        call_work: int,
        batch: int,
        notes: bool,
        memory: int,
    ) -> None: ...
    def halt(self) -> None: ...
    @property
    def memory(self) -> int: ...
    def work(
        self, boxes: NDArray[numpy.uint64], masses: NDArray[numpy.float64], budget: int, depth_first: bool
    ) -> dict[str, Any]: ...

class Encloser:
    def __init__(self, problem: Problem, *, memory: int) -> None: ...
    @property
    def memory(self) -> int: ...
    def enclose(self, boxes: NDArray[numpy.uint64], cells: float) -> NDArray[numpy.float64]: ...

class Found(enum.IntEnum):
    NONE = 0

    SOME = 1

    UNSURE = 2

class Drawer:
    def __init__(self, problem: Problem, *, finish_limit: float) -> None: ...
    def draw(
        self,
        boxes: NDArray[numpy.uint64],
        counts: NDArray[numpy.int64],
        seed: int,
        place: NDArray[numpy.int64],
        cells: NDArray[numpy.int32],
        combinations: NDArray[numpy.int32],
    ) -> NDArray[numpy.uint8]: ...
    def exists(self, boxes: NDArray[numpy.uint64]) -> NDArray[numpy.int8]: ...

class WindowWorker:
    def __init__(
        self,
        problem: Problem,
        *,
        mixed_limit: int,
        cell_limit: float,
        dense_cells: int,
        table_cells: int,
        memory: int,
        sum_bits: int = 29,
    ) -> None: ...
    def work(self, boxes: NDArray[numpy.uint64], budget: int) -> tuple[Any, ...]:
        """
        (fair, unfair, low, open boxes, their masses, settled boxes, their [fair, unfair, low], nodes, tiles)
        """

    def halt(self) -> None: ...
    @property
    def memory(self) -> int: ...

POINT_CLOSE: int = 5

POINT_OPEN: int = 6

class Points:
    def __init__(
        self,
        *,
        axis: NDArray[numpy.int32],
        cut: NDArray[numpy.int32],
        no: NDArray[numpy.int32],
        value: NDArray[numpy.int64],
        root: NDArray[numpy.int32],
        output: NDArray[numpy.int32],
        base: NDArray[numpy.int64],
        odd: NDArray[numpy.int32],
        tested: NDArray[numpy.int32],
        n_cells: NDArray[numpy.int32],
        ordered: NDArray[numpy.int32],
        sensitive: NDArray[numpy.bool_],
        n_refined: NDArray[numpy.int32],
        base_cell: NDArray[numpy.int32],
        near_lo: NDArray[numpy.int32],
        near_hi: NDArray[numpy.int32],
        single: NDArray[numpy.bool_],
        fuzz: int,
        dense_limit: int,
        mask_bytes: int,
    ) -> None: ...
    @property
    def bytes(self) -> int: ...
    def decide(
        self,
        cells: NDArray[numpy.int64],
        verdict: NDArray[numpy.int8],
        witness: NDArray[numpy.int32],
        thresholds: Sequence[int],
        budget: int,
        workers: int,
        low: NDArray[numpy.int32] | None,
        high: NDArray[numpy.int32] | None,
    ) -> None: ...
    def decide_targets(
        self,
        cells: NDArray[numpy.int64],
        verdict: NDArray[numpy.int8],
        witness: NDArray[numpy.int32],
        target: NDArray[numpy.int64],
        slack: NDArray[numpy.int64],
        axis: int,
        ranges: NDArray[numpy.int32],
        budget: int,
        workers: int,
        low: NDArray[numpy.int32] | None,
        high: NDArray[numpy.int32] | None,
    ) -> None: ...
    def decide_rivals(
        self,
        cells: NDArray[numpy.int64],
        own_class: NDArray[numpy.int64],
        verdict: NDArray[numpy.int8],
        witness: NDArray[numpy.int32],
        budget: int,
        workers: int,
        low: NDArray[numpy.int32] | None,
        high: NDArray[numpy.int32] | None,
    ) -> None: ...
    def margins(self, cells: NDArray[numpy.int64], outputs: NDArray[numpy.int64], workers: int) -> None: ...
    def bound_classes(self, low: NDArray[numpy.int32], high: NDArray[numpy.int32]) -> tuple[Any, ...]: ...
    def split_boxes(self, ranges: NDArray[numpy.int64], cut: NDArray[numpy.int64]) -> NDArray[numpy.int64]: ...

def box_masses(ranges: NDArray[numpy.int64], mass: NDArray[numpy.float64]) -> NDArray[numpy.float64]: ...

class Draws:
    def __init__(
        self,
        seed: int,
        n_refined: NDArray[numpy.int32],
        mass: NDArray[numpy.float64],
        place: NDArray[numpy.int32],
        box_axis: NDArray[numpy.int32],
    ) -> None: ...
    def places(self, n: int, mass: float) -> NDArray[numpy.float64]: ...
    def cells(
        self, index: NDArray[numpy.int64], boxes: NDArray[numpy.uint64], workers: int
    ) -> NDArray[numpy.int64]: ...

INSTRUCTION_SET: str
"""Of the core that was chosen: baseline, avx2 or avx512."""

SETS: tuple[str, ...]
"""All that there can be, the best first."""
