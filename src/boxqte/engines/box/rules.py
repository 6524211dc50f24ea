"""What the space's rules forbid, for the box engine (docs/engine.md, Theorem 14): boxes are cut along the rules first.

Along the axes where x' stays, a rule holds on all of a box or nowhere in it; what is forbidden there of the other axes is told
by the rules that hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.protocol import BoxArray
from boxqte.errors import EngineError
from boxqte.questions.grid import AnyGrid

MOST_BOXES = 200_000  # that rules may cut the space into

Part = tuple[int, int]  # an axis of the boxes, and the mask of its cells that a rule mentions


class Rule(NamedTuple):
    """What a rule says of the axes along which boxes are cut, and of the others; each in the order of the axes."""

    parts: tuple[Part, ...]
    rest: tuple[Part, ...]
    """Of a grid's axes; empty: all of such a box is forbidden."""


def rules_of(grid: AnyGrid, at: Mapping[int, int]) -> list[Rule]:
    """The rules, where `at` has the axes of the grid along which boxes are cut, with their places in the boxes."""
    return [
        Rule(
            tuple(sorted((at[a], mask) for a, mask in parts if a in at)),
            tuple(sorted((a, mask) for a, mask in parts if a not in at)),
        )
        for parts in asked_parts(grid)
    ]


def asked_parts(grid: AnyGrid) -> list[list[Part]]:
    """Of every rule that forbids something the axes of the grid that it asks about, with the cells."""
    found = []
    for one in grid.forbidden:
        if all(mask for _, mask in one.masks):
            found.append([(a, mask) for a, mask in one.masks if mask != (1 << grid.axes[a].n_cells) - 1])
    return found


def too_many_boxes() -> EngineError:
    """What is said if the rules are too many for boxes."""
    return EngineError(
        f"engine 'box': the rules cut the space into more than {MOST_BOXES} boxes; use engine 'sample', or fewer rules"
    )


def cut_along_rules(box: Sequence[int], rules: Iterable[Rule]) -> tuple[list[list[int]], list[list[int]]]:
    """Disjoint parts of a box (a mask of cells for every axis), on each of which every rule holds or holds nowhere: those
    that are not forbidden as a whole, and those that are.

    Examples
    --------
    >>> cut_along_rules([0b11, 0b111], [Rule(((0, 0b01), (1, 0b100)), ())])
    ([[3, 3], [2, 4]], [[1, 4]])
    """
    left: list[list[int]] = []
    gone: list[list[int]] = []
    stack = [(list(box), list(rules))]
    while stack:
        held, open_rules = stack.pop()
        divided: list[Rule] = []
        for rule in open_rules:
            met = [held[a] & mask for a, mask in rule.parts]
            if not all(met):
                continue  # it holds nowhere here
            if any(cells != held[a] for cells, (a, _) in zip(met, rule.parts)):
                divided.append(rule)
            elif not rule.rest:
                gone.append(held)
                break
        else:
            if not divided:
                left.append(held)
                if len(left) > MOST_BOXES:
                    raise too_many_boxes()
                continue
            # The same cells, as many rules as possible at once; first those that leave nothing.
            uses = Counter(
                (a, held[a] & mask)
                for rule in divided
                for a, mask in rule.parts
                if held[a] & ~mask
                for _ in range(1 if rule.rest else 4)
            )
            axis, cells = max(uses, key=lambda part: (uses[part], part))
            for side in (cells, held[axis] & ~cells):
                stack.append(([*held[:axis], side, *held[axis + 1 :]], divided))
    return left, gone


def cut_boxes(boxes: BoxArray, rules: Sequence[Rule]) -> tuple[BoxArray, BoxArray]:
    """`cut_along_rules` for boxes as words (box x axis x word): what is left of them, and what is forbidden as a whole."""
    if not rules or not len(boxes):
        return boxes, boxes[:0]
    divided, gone = np.zeros(len(boxes), bool), np.zeros(len(boxes), bool)
    words = boxes.shape[2]
    for rule in rules:
        inside, outside = np.ones(len(boxes), bool), np.zeros(len(boxes), bool)
        for axis, mask in rule.parts:
            cells = np.array(mask_words(mask, words), np.uint64)
            outside |= ~(boxes[:, axis] & cells).any(axis=1)
            inside &= ~(boxes[:, axis] & ~cells).any(axis=1)
        divided |= ~inside & ~outside
        if not rule.rest:
            gone |= inside & ~outside
    divided &= ~gone
    kept, dropped = [boxes[~divided & ~gone]], [boxes[gone]]
    for box in boxes[divided]:
        masks = [sum(int(word) << (64 * w) for w, word in enumerate(row)) for row in box.tolist()]
        for parts, to in zip(cut_along_rules(masks, rules), (kept, dropped)):
            if parts:
                to.append(np.array([[mask_words(mask, words) for mask in part] for part in parts], np.uint64))
    return np.concatenate(kept), np.concatenate(dropped)


def holding(boxes: BoxArray, parts: Iterable[Part]) -> npt.NDArray[np.bool_]:
    """The boxes on which all of these parts hold somewhere: of boxes that are cut along the rules, everywhere."""
    found = np.ones(len(boxes), bool)
    for axis, mask in parts:
        found &= (boxes[:, axis] & np.array(mask_words(mask, boxes.shape[2]), np.uint64)).any(axis=1)
    return found


def mask_words(mask: int, n: int) -> list[int]:
    """A set of cells as the words of a box."""
    return [mask >> (64 * w) & (2**64 - 1) for w in range(n)]


def is_forbidden(grid: AnyGrid, cells: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Which points, given by their base cells (points x axes of the grid), some rule forbids."""
    found = np.zeros(len(cells), bool)
    for one in grid.forbidden:
        inside = np.ones(len(cells), bool)
        for axis, mask in one.masks:
            held = np.array([mask >> c & 1 for c in range(grid.axes[axis].n_cells)], bool)
            inside &= held[cells[:, axis]]
        found |= inside
    return found
