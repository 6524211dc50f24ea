"""From a Grid to the arrays that the kernels work on: cuts sorted by axis, implications, 64-bit leaf values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte import _core
from boxqte.engines.box.rules import Part, Rule, asked_parts, holding, mask_words, rules_of
from boxqte.errors import EngineError
from boxqte.exact import down, up
from boxqte.questions.axes import Cell
from boxqte.questions.grid import AnyGrid, Grid, Thresholds
from boxqte.questions.rule_trees import with_rule_trees
from boxqte.questions.scores import ProbabilityScale
from boxqte.questions.variations import far_beyond

FloatArray = npt.NDArray[np.float64]
BITS = 61  # sums of margins and thresholds stay below 2**BITS in magnitude
MAX_CLASSES = 1 << 16
IMPLIED_WORDS = 1 << 18  # of masks that are compared at a time
ROLE_FIXED, ROLE_MOVING, ROLE_SENSITIVE = 0, 1, 2  # as Role in src/core/problem.hpp


class Cuts(NamedTuple):
    """The cuts of a problem, sorted by axis; all that a restriction needs to know."""

    axis: npt.NDArray[np.int32]
    """cut -> axis"""
    start: npt.NDArray[np.int32]
    """axis -> first cut; one more entry at the end"""
    prefix: npt.NDArray[np.int32]
    """cut -> how many cells it sends to `yes` (on a chain: the first so many)"""
    mask: npt.NDArray[np.uint64]
    """cut x word: the cells it sends to `yes`"""
    implied_at: npt.NDArray[np.int64]
    """cut -> where its two rows in `implied` begin"""
    implied: npt.NDArray[np.int8]
    """[side][other cut of the axis]: once this cut is taken to that side, 1 the other says yes, 0 no, -1 it is open"""


class Axes(NamedTuple):
    """The axes that some tree cuts."""

    n_cells: npt.NDArray[np.int32]
    mass: npt.NDArray[np.float64]
    """axis x cell"""
    chain: npt.NDArray[np.bool_]
    """whether every cut of the axis is a prefix of its cells, so that one restriction settles all the others"""


@dataclass(frozen=True, eq=False)
class Problem:
    """A grid as arrays. Axes that no tree cuts and no rule mentions are left out: they multiply every mass by 1."""

    grid: Grid
    axis_ids: tuple[int, ...]
    """kernel axis -> grid axis"""
    sensitive: npt.NDArray[np.bool_]
    cuts: Cuts
    axes: Axes
    roots: npt.NDArray[np.int64]
    cut: npt.NDArray[np.int32]
    yes: npt.NDArray[np.int32]
    no: npt.NDArray[np.int32]
    value: npt.NDArray[np.int64]
    """leaf values at the leaves, in units of 2**(shift - scale_bits)"""
    residue: npt.NDArray[np.int64]
    """the exact leaf values modulo 2**64 (or a number for each distinct one, where `merges` is False)"""
    base: int
    base_residue: int
    thresholds: Thresholds
    band: int
    fuzz: int
    """0: the 64-bit sums are exact; otherwise every sum is within this of the exact one"""
    shift: int
    merges: bool
    """whether two sums with equal rounded values and equal residues are certainly equal"""
    cap: int | None
    """with a tolerance: from this margin on, beyond all others, is what rules forbid; None if they forbid nothing here"""

    @property
    def n_axes(self) -> int:
        return len(self.axis_ids)

    @cached_property
    def core(self) -> _core.Problem:
        """The same for the C++ core."""
        return _core_problem(self)

    @cached_property
    def combinations(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """Every combination of cells of the sensitive axes (that some tree cuts), and its mass."""
        return _combinations(self)

    @cached_property
    def rules(self) -> list[Rule]:
        """What the space's rules say of the axes along which x' stays."""
        axes = self.grid.axes
        fixed = {a: i for i, a in enumerate(self.axis_ids) if not axes[a].sensitive and not axes[a].moves}
        return rules_of(self.grid, fixed)

    @property
    def cutting_rules(self) -> list[Rule]:
        """The rules that boxes are cut along; with a tolerance, trees say what the others forbid."""
        return [rule for rule in self.rules if not rule.rest] if self.grid.has_tolerance else self.rules

    def banned_in(self, boxes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Without a tolerance, of boxes that are cut along the rules: box x combination, which are forbidden in it."""
        banned = np.zeros((len(boxes), len(self.combinations[1])), bool)
        for parts, own in self.bans.items():
            banned[holding(boxes, parts)] |= own
        return banned

    @cached_property
    def bans(self) -> dict[tuple[Part, ...], npt.NDArray[np.bool_]]:
        """Without a tolerance: the combinations that are forbidden where all of these parts hold."""
        ids = [a for a, s in zip(self.axis_ids, self.sensitive) if s]
        cells = self.combinations[0]
        found: dict[tuple[Part, ...], npt.NDArray[np.bool_]] = {}
        for rule in self.rules:
            banned = np.ones(len(cells), bool)
            for a, mask in rule.rest:
                held = np.array([mask >> c & 1 for c in range(self.grid.axes[a].n_cells)], bool)
                banned &= held[cells[:, ids.index(a)]]
            found[rule.parts] = found.get(rule.parts, np.zeros(len(cells), bool)) | banned
        return found

    def cells_of(self, axis: int) -> tuple[Cell, ...]:
        """What the bits of a box mean on one of its axes."""
        return self.grid.axes[self.axis_ids[axis]].cells

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: the core's copy is made again when it is needed."""
        return {name: value for name, value in vars(self).items() if name != "core"}


def compile_problem(grid: Grid) -> Problem:
    """Renumber axes and cuts, and bring the leaf values into 64 bits (exactly, where they fit)."""
    asked, cap = grid, None
    if grid.has_tolerance and grid.forbidden:
        grid, cap = _with_rule_trees(grid)
    used = used_axes(grid)
    where = {axis: i for i, axis in enumerate(used)}
    order = sorted(
        range(len(grid.cuts)),
        key=lambda k: (where[grid.cuts[k].axis], grid.cuts[k].mask.bit_count(), grid.cuts[k].mask),
    )
    masks = [grid.cuts[k].mask for k in order]
    axis = np.array([where[grid.cuts[k].axis] for k in order], np.int32)
    start = np.searchsorted(axis, np.arange(len(used) + 1)).astype(np.int32)
    n_cells = np.array([grid.axes[a].n_cells for a in used], np.int32)
    words = max(1, math.ceil(int(n_cells.max(initial=1)) / 64))
    cut_masks = np.array([mask_words(mask, words) for mask in masks], np.uint64).reshape(-1, words)
    implied, implied_at = _implications(cut_masks, start, n_cells)
    # On a chain every cut is a prefix of the cells (bit 0 is always set): the ordinary case of thresholds.
    chain = np.array([all(m & (m + 1) == 0 for m in masks[start[a] : start[a + 1]]) for a in range(len(used))], bool)
    prefix = np.array([m.bit_count() for m in masks], np.int32)
    mass = np.zeros((len(used), int(n_cells.max(initial=1))))
    for i, a in enumerate(used):
        mass[i, : n_cells[i]] = [float(m) for m in grid.axes[a].masses]
    new_number = np.zeros(len(order) + 1, np.int32)
    new_number[order] = np.arange(len(order), dtype=np.int32)
    new_number[-1] = -1
    value, base, thresholds, band, fuzz, shift = into_64_bits(grid)
    residue, base_residue, merges = _residues(grid, fuzz, shift)
    return Problem(
        grid=asked,
        axis_ids=tuple(used),
        sensitive=np.array([grid.axes[a].sensitive for a in used], bool),
        cuts=Cuts(axis, start, prefix, cut_masks, implied_at, implied),
        axes=Axes(n_cells, mass, chain),
        roots=grid.roots.astype(np.int64),
        cut=new_number[grid.cut],
        yes=grid.yes,
        no=grid.no,
        value=value,
        residue=residue,
        base=base,
        base_residue=base_residue,
        thresholds=thresholds,
        band=band,
        fuzz=fuzz,
        shift=shift,
        merges=merges,
        cap=cap,
    )


def _with_rule_trees(grid: Grid) -> tuple[Grid, int | None]:
    """The grid with a tree for every rule that is about more than axes along which x' stays, and the least margin there."""
    fixed = {a for a, axis in enumerate(grid.axes) if not axis.sensitive and not axis.moves}
    rules = [one for one in grid.forbidden if not {a for a, _ in one.masks} <= fixed]
    far = far_beyond(grid)
    return (with_rule_trees(grid, rules, 2 * far), far) if rules else (grid, None)


def used_axes(grid: AnyGrid) -> list[int]:
    """The grid's axes that some tree cuts or some rule mentions, in order: those of the kernels and of the driver's boxes."""
    return sorted({cut.axis for cut in grid.cuts} | {axis for parts in asked_parts(grid) for axis, _ in parts})


def _combinations(problem: Problem) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    ids = [a for a, s in zip(problem.axis_ids, problem.sensitive) if s]
    count = math.prod(problem.grid.axes[a].n_cells for a in ids)
    if count > MAX_CLASSES:
        raise EngineError(
            f"engine 'box': the sensitive attributes have {count} combinations of cells, at most {MAX_CLASSES} fit"
        )
    cells = list(itertools.product(*(range(problem.grid.axes[a].n_cells) for a in ids)))
    masses = [
        float(math.prod((problem.grid.axes[a].masses[c] for a, c in zip(ids, combo)), start=Fraction(1)))
        for combo in cells
    ]
    return np.array(cells, np.int32).reshape(len(cells), len(ids)), np.array(masses)


def points_matter(problem: Problem) -> bool:
    """Whether x' may be forced to leave x's own sensitive combination: no idle sensitive attribute offers another value."""
    grid = problem.grid
    used = set(problem.axis_ids)
    idle = [axis for i, axis in enumerate(grid.axes) if axis.sensitive and i not in used]
    return bool(grid.property.sensitive) and all(axis.n_cells == 1 and bool(axis.single[0]) for axis in idle)


def _core_problem(problem: Problem) -> _core.Problem:
    grid, cuts = problem.grid, problem.cuts
    axes = [grid.axes[a] for a in problem.axis_ids]
    longest = problem.axes.mass.shape[1]
    most = max((len(axis.refined) for axis in axes), default=1)
    exact = grid.thresholds
    t = problem.thresholds
    role = [ROLE_SENSITIVE if a.sensitive else ROLE_MOVING if a.moves else ROLE_FIXED for a in axes]
    # With a tolerance the sensitive attributes stay axes of the trees; without one, each combination is a class.
    no_cells: npt.NDArray[np.int32] = np.zeros((0, 0), np.int32)
    cells, mass = (no_cells, np.zeros(0)) if grid.has_tolerance else problem.combinations
    sensitive = np.flatnonzero(problem.sensitive) if not grid.has_tolerance else np.zeros(0, np.int64)
    return _core.Problem(
        cut_axis=cuts.axis,
        cut_start=cuts.start,
        cut_prefix=cuts.prefix,
        cut_mask=cuts.mask,
        implied_at=cuts.implied_at,
        implied=cuts.implied,
        n_cells=problem.axes.n_cells,
        chain=problem.axes.chain,
        role=np.array(role, np.int8),
        mass=problem.axes.mass,
        single=_padded([a.single for a in axes], longest, np.bool_),
        n_refined=np.array([len(a.refined) for a in axes], np.int32),
        base_cell=_padded([a.base for a in axes], most, np.int32),
        near_lo=_padded([a.near_lo for a in axes], most, np.int32),
        near_hi=_padded([a.near_hi for a in axes], most, np.int32),
        refined_mass=_padded([[float(m) for m in a.refined_masses] for a in axes], most, np.float64),
        root=problem.roots.astype(np.int32),
        cut=problem.cut,
        yes=np.ascontiguousarray(problem.yes, np.int32),
        no=np.ascontiguousarray(problem.no, np.int32),
        value=problem.value,
        residue=problem.residue.view(np.uint64),
        base=problem.base,
        base_residue=problem.base_residue % (1 << 64),
        thresholds=np.array([t.pos, t.neg, t.conf_pos, t.conf_neg, (problem.cap or 0) >> problem.shift], np.int64),
        threshold_residues=np.array(
            [v % (1 << 64) for v in (exact.pos, exact.neg, exact.conf_pos, exact.conf_neg, problem.cap or 0)], np.uint64
        ),
        simple=exact.signs_only,  # the rounded thresholds cannot tell
        all_confident=exact.all_confident,
        band=problem.band,
        fuzz=problem.fuzz,
        capped=problem.cap is not None,
        counted=t.counted,
        merges=problem.merges,
        points_matter=points_matter(problem),
        combination_axes=sensitive.astype(np.int32),
        combination_cells=cells,
        combination_mass=mass,
        **_partners(problem, cells),
        **_rules(problem, len(cells)),
    )


def _rules(problem: Problem, n_combinations: int) -> dict[str, Any]:
    """What is forbidden where; with a tolerance the trees say so."""
    words = problem.cuts.mask.shape[1]
    bans = {} if problem.grid.has_tolerance else problem.bans
    parts = [part for rule in bans for part in rule]
    return {
        "rule_start": np.cumsum([0, *map(len, bans)], dtype=np.int32) if bans else np.zeros(0, np.int32),
        "rule_axis": np.array([axis for axis, _ in parts], np.int32),
        "rule_mask": np.array([mask_words(mask, words) for _, mask in parts], np.uint64).reshape(-1, words),
        "rule_bans": np.array([*bans.values()], bool).reshape(len(bans), n_combinations),
    }


def _partners(problem: Problem, cells: npt.NDArray[np.int32]) -> dict[str, Any]:
    """Who may be whose partner, by the place of a combination on the axis that says so."""
    partners, axes = problem.grid.partners, [a for a, s in zip(problem.axis_ids, problem.sensitive) if s]
    if partners is None or not axes or (partners.axis >= 0 and partners.axis not in axes):
        # No tree tests what may change, so nobody's margin does.
        return {
            "partner_place": np.zeros(0, np.int32),
            "partner_ranges": np.zeros((4, 0), np.int32),
            "partner_order": 0,
            "ordered_places": 0,
            "score_gap": 0,
            "probability_scale": np.zeros(4),
        }
    place = cells[:, axes.index(partners.axis)] if partners.axis >= 0 else np.zeros(len(cells), np.int32)
    ranges = np.array([(*low, *high) for low, high in zip(partners.low, partners.high)], np.int32)
    gap = -((-partners.gap) >> problem.shift) if partners.gap else 0
    if partners.gap > 2 * _largest_sum(problem.grid):  # so far apart no two margins are, and 64 bits may not hold it
        ranges, gap = ranges * 0 + np.array([1, 0, 1, 0], np.int32), 1
    return {
        "partner_place": np.ascontiguousarray(place, np.int32),
        "partner_ranges": np.ascontiguousarray(ranges.T),
        "partner_order": partners.order if len(axes) == 1 else 0,
        "ordered_places": sum(not c.missing for c in problem.grid.axes[partners.axis].cells) if partners.order else 0,
        "score_gap": gap,
        "probability_scale": _probability_scale(problem, partners.scale),
    }


def _probability_scale(problem: Problem, scale: ProbabilityScale | None) -> FloatArray:
    """The change that is accepted between two floats, the unit and the rest of F as the kernels have it."""
    if scale is None:
        return np.zeros(4)
    unit = float(scale.unit / 2**problem.shift)
    return np.array([down(scale.change), up(scale.change), unit, float(scale.rest) if not problem.shift else 0.0])


def _padded(rows: Sequence[Any], width: int, dtype: type) -> npt.NDArray[Any]:
    out: npt.NDArray[Any] = np.zeros((len(rows), width), dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def _implications(
    masks: npt.NDArray[np.uint64], start: npt.NDArray[np.int32], n_cells: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """What taking a cut to one side says about the other cuts of its axis."""
    size = np.diff(start)
    implied = np.full(max(2 * int(size @ size), 1), -1, np.int8)
    at = np.concatenate([[0], 2 * np.repeat(size, size).cumsum()[:-1]]).astype(np.int64)[: len(masks)]
    for first, end, n in zip(start.tolist(), start[1:].tolist(), n_cells.tolist()):
        mine = masks[first:end]
        full = np.array(mask_words((1 << n) - 1, masks.shape[1]), np.uint64)
        sides = np.stack([full & ~mine, mine], axis=1)
        rows = max(IMPLIED_WORDS // max(mine.size, 1), 1)
        for row in range(0, len(mine), rows):
            inside = sides[row : row + rows, :, None]
            found = np.where((inside & mine).any(-1), np.where((inside & ~mine).any(-1), -1, 1), 0)
            implied[at[first + row] :][: found.size] = found.reshape(-1)
    return implied, at


def into_64_bits(grid: Grid) -> tuple[npt.NDArray[np.int64], int, Thresholds, int, int, int]:
    """Leaf values as int64. If the exact integers are too wide, drop low bits and carry the error bound (`fuzz`)."""
    t = grid.thresholds
    largest = _largest_sum(grid) + max(abs(v) for v in (t.pos, t.neg, t.conf_pos, t.conf_neg)) + grid.rounding
    shift = max(0, largest.bit_length() - BITS)
    values = np.zeros(len(grid.cut), np.int64)
    half = (1 << shift) >> 1
    leaves = grid.leaf >= 0
    values[leaves] = [(v + half) >> shift for v in grid.values]
    if shift == 0:
        return values, grid.base, t, grid.rounding, 0, 0
    # Each rounded value is within half a unit; base and thresholds add one more each.
    fuzz = (len(grid.roots) + 1) // 2 + 3
    scaled = Thresholds(t.pos >> shift, t.neg >> shift, t.conf_pos >> shift, t.conf_neg >> shift, t.counted)
    if t.signs_only:  # keep pos = neg + 1: the sign alone decides
        scaled = Thresholds(scaled.neg + 1, scaled.neg, scaled.neg + 1, scaled.neg, t.counted)
    elif scaled.signs_only:  # ties without a class must not vanish in the rounding; one unit is within the fuzz
        scaled = replace(scaled, conf_pos=scaled.conf_pos + 1)
    return values, grid.base >> shift, scaled, (grid.rounding >> shift) + 1, fuzz, shift


def _residues(grid: Grid, fuzz: int, shift: int) -> tuple[npt.NDArray[np.int64], int, bool]:
    """What rounding to 64 bits dropped, modulo 2**64.

    Two exact sums whose rounded values are equal differ by at most 2 fuzz 2**shift. If that is below 2**64, equal
    residues make them equal. Otherwise each distinct leaf gets a number of its own, and sums are never taken as equal.
    """
    residue = np.zeros(len(grid.cut), np.int64)
    merges = 2 * fuzz << shift < 1 << 64
    number = {v: i for i, v in enumerate(sorted(set(grid.values)))}
    residue[grid.leaf >= 0] = [wrapped(v) if merges else number[v] for v in grid.values]
    return residue, wrapped(grid.base), merges


def wrapped(value: int) -> int:
    """The value modulo 2**64 as a signed number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _largest_sum(grid: Grid) -> int:
    """A bound on |F|: the largest leaf of every tree, added up."""
    total = abs(grid.base)
    yes, no, leaf = grid.yes.tolist(), grid.no.tolist(), grid.leaf.tolist()
    for root in grid.roots.tolist():
        stack, largest = [root], 0
        while stack:
            node = stack.pop()
            if leaf[node] >= 0:
                largest = max(largest, abs(grid.values[leaf[node]]))
            else:
                stack += [yes[node], no[node]]
        total += largest
    return total
