"""What the kernels of the search share: the rules of the question, the axes, the frames, and running sums of masses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxqte.engines.box.jit import inlined

FAIR, UNFAIR, LOW, AMBIGUOUS = 0, 1, 2, 3
N_KINDS = 4


class Rules(NamedTuple):
    """Class and confidence as integer comparisons (grid.Thresholds), the error margins, and the cost limit."""

    pos: int
    neg: int
    conf_pos: int
    conf_neg: int
    simple: bool
    """kappa <= 1/2 and every input has a class: signs are all that matters"""
    margin: int
    """a sign counts as certain by bounds only beyond this: the library's rounding error plus ours"""
    band: int
    """the library's rounding error: what finish() reports as ambiguous"""
    fuzz: int
    """our own error where values were rounded to fit 64 bits; 0 almost always"""
    finish_limit: float


class Axes(NamedTuple):
    """The non-sensitive axes that some tree cuts."""

    n_cells: npt.NDArray[np.int32]
    mass: npt.NDArray[np.float64]
    """axis x cell"""
    chain: npt.NDArray[np.bool_]
    """whether every cut of the axis is a prefix of its cells, so that one restriction settles all the others"""


class Stack(NamedTuple):
    """Frames of the depth-first search; frame f is a node."""

    n_common: npt.NDArray[np.int32]
    common: npt.NDArray[np.uint32]
    n_rows: npt.NDArray[np.int32]
    n_classes: npt.NDArray[np.int32]
    rows: npt.NDArray[np.uint32]
    """frame x row x class: the residual of a sensitive-dependent tree for that class"""
    offset: npt.NDArray[np.int64]
    residue: npt.NDArray[np.int64]
    """the exact offset modulo 2**64: equal offsets and residues mean equal exact offsets (problem.py)"""
    class_mass: npt.NDArray[np.float64]
    domain: npt.NDArray[np.uint64]
    """frame x axis x word: the cells that the box holds"""
    axis_mass: npt.NDArray[np.float64]
    merges: npt.NDArray[np.bool_]
    """[whether equal offsets and residues prove that classes are equal]"""


@inlined
def add_mass(masses: npt.NDArray[np.float64], kind: int, mass: float) -> None:
    """Neumaier's sum: masses[kind] + masses[kind + N_KINDS] is within two roundings of the exact sum."""
    before = masses[kind]
    after = before + mass
    masses[kind + N_KINDS] += (before - after) + mass if before >= mass else (mass - after) + before
    masses[kind] = after


@inlined
def box_mass(stack: Stack, f: int) -> float:
    mass = 1.0
    for a in range(stack.axis_mass.shape[1]):
        mass *= stack.axis_mass[f, a]
    return mass


@inlined
def copy_box(source: npt.NDArray[np.uint64], target: npt.NDArray[np.uint64]) -> None:
    """Copy the cells of a box, axis by axis."""
    for a in range(source.shape[0]):
        for w in range(source.shape[1]):
            target[a, w] = source[a, w]


@inlined
def copy_masses(source: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> None:
    for a in range(len(source)):
        target[a] = source[a]
