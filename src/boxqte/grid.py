"""Space x TreeEnsemble x Property -> Grid: the whole question as weighted counting on a finite grid of integers.

Per attribute the tree tests cut the domain into base cells; for epsilon > 0 the cuts shifted by -epsilon and +epsilon
refine them, and inside a refined cell every x has the same base cell and reaches the same range of base cells
(semantics.md, 'Everything is finite: cells'). Edges are exact rationals with open and closed ends kept.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.ensemble import ZERO_BAND, Missing, Test, TreeEnsemble
from boxqte.errors import ModelError, SpaceError
from boxqte.exact import floor_scaled_logit
from boxqte.properties import Property
from boxqte.space import Attribute, Space

# (v, 0) separates the points below v from v; (v, 1) separates v from the points above it. They order as tuples do.
Edge = tuple[Fraction, int]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Cell:
    """A set of values of one attribute that no test, and no tolerance, tells apart."""

    low: Edge | None = None
    high: Edge | None = None
    """The ends of an interval of a numeric attribute."""
    values: tuple[int, ...] = ()
    """Indices into the values of a finite attribute."""
    missing: bool = False
    integral: bool = False

    @property
    def is_point(self) -> bool:
        """Whether the cell is a single value of its attribute."""
        if self.missing:
            return True
        if self.low is None or self.high is None:
            return len(self.values) == 1
        return self.high[0] - self.low[0] == (1 if self.integral else 0)


@dataclass(frozen=True, eq=False)
class Axis:
    """One attribute as cells. Refined cell r lies in base cell `base[r]` and reaches `near_lo[r]`..`near_hi[r]`."""

    attribute: Attribute
    sensitive: bool
    tolerance: Fraction
    cells: tuple[Cell, ...]
    masses: tuple[Fraction, ...]
    refined: tuple[Cell, ...]
    refined_masses: tuple[Fraction, ...]
    base: Int32Array
    near_lo: Int32Array
    near_hi: Int32Array

    @property
    def n_cells(self) -> int:
        return len(self.cells)

    @cached_property
    def single(self) -> npt.NDArray[np.bool_]:
        """Which base cells are single points."""
        return np.array([c.is_point for c in self.cells])

    @property
    def moves(self) -> bool:
        """Whether some x reaches another base cell along this axis without it being sensitive (the set E)."""
        return not self.sensitive and bool((self.near_lo < self.near_hi).any())


@dataclass(frozen=True)
class Cut:
    """A test as the set of base cells that it sends to `yes`, as a bit mask; bit 0 is always set."""

    axis: int
    mask: int


@dataclass(frozen=True)
class Thresholds:
    """Class 1 iff F >= pos, class 0 iff F <= neg, confident iff F >= conf_pos or F <= conf_neg; F in units 2**-scale.

    Under the paper's tie rule pos = neg + 2 and F = neg + 1 = 0 has no class.
    """

    pos: int
    neg: int
    conf_pos: int
    conf_neg: int

    @property
    def all_confident(self) -> bool:
        """Whether every input is confident (kappa <= 1/2 and every input has a class)."""
        return self.conf_pos == self.conf_neg + 1


@dataclass(frozen=True, eq=False)
class Grid:
    """The finite problem. Trees are flat: node n tests cut `cut[n]` (-1: leaf with value `values[leaf[n]]`).

    F(x) = base + sum of the trees' leaf values, all exact integers in units of 2**-scale_bits.
    """

    ensemble: TreeEnsemble
    space: Space
    property: Property
    axes: tuple[Axis, ...]
    cuts: tuple[Cut, ...]
    roots: Int32Array
    cut: Int32Array
    yes: Int32Array
    no: Int32Array
    leaf: Int32Array
    values: tuple[int, ...]
    base: int
    scale_bits: int
    thresholds: Thresholds
    rounding: int
    """|library's margin - exact margin| is at most this many units."""
    input_rounding: Fraction
    """A bound on the mass of inputs whose path could change when the library rounds real inputs to float32."""

    @property
    def has_tolerance(self) -> bool:
        """Whether epsilon moves anything: otherwise only sensitive attributes differ (the eps = 0 problem)."""
        return any(axis.moves for axis in self.axes)

    def n_cells(self) -> int:
        """How many base cells the whole space has."""
        return math.prod(axis.n_cells for axis in self.axes)

    def n_refined(self) -> int:
        """How many refined cells the whole space has."""
        return math.prod(len(axis.refined) for axis in self.axes)


def build_grid(ensemble: TreeEnsemble, space: Space, prop: Property) -> Grid:
    """Discretise the problem exactly. Raises if the three do not fit together."""
    if not ensemble.is_binary:
        raise ModelError(f"the model has {ensemble.n_outputs} classes; this version quantifies binary models only")
    tolerances = prop.tolerances(space)
    owner = match_columns(ensemble, space)
    tests, test_of_node = _distinct_tests(ensemble)
    masks: list[int] = [0] * len(tests)
    axes = []
    input_rounding = Fraction(0)
    for at, attribute in enumerate(space):
        mine = [i for i, test in enumerate(tests) if owner[test.feature][0] == at]
        tolerance = tolerances.get(attribute.name, Fraction(0))
        sensitive = attribute.name in prop.sensitive
        if attribute.is_numeric:
            axis, found = _numeric_axis(attribute, sensitive, tolerance, [tests[i] for i in mine])
        else:
            codes = attribute_codes(attribute, ensemble)
            columns = [owner[tests[i].feature][1] for i in mine]
            axis, found = _finite_axis(attribute, sensitive, codes, [tests[i] for i in mine], columns)
        for i, mask in zip(mine, found):
            masks[i] = mask
        axes.append(axis)
        if attribute.kind == "real":
            input_rounding += _cast_mass(attribute, [tests[i] for i in mine])
    flat = _prune(ensemble, test_of_node, [owner[t.feature][0] for t in tests], masks, [a.n_cells for a in axes])
    values, base, bits = _integer_values(ensemble, flat["leaf_node"])
    scale = 1 << bits
    per_margin = ensemble.n_trees if ensemble.link == "mean" else 1
    return Grid(
        ensemble=ensemble,
        space=space,
        property=prop,
        axes=tuple(axes),
        cuts=flat["cuts"],
        roots=flat["roots"],
        cut=flat["cut"],
        yes=flat["yes"],
        no=flat["no"],
        leaf=flat["leaf"],
        values=values,
        base=base,
        scale_bits=bits,
        thresholds=_thresholds(ensemble, prop, bits),
        rounding=math.ceil(ensemble.rounding_error() * per_margin * scale),
        input_rounding=min(input_rounding, Fraction(1)),
    )


def match_columns(ensemble: TreeEnsemble, space: Space) -> list[tuple[int, int]]:
    """For each model feature, the attribute and the column of that attribute that feed it.

    By name; by position where the model carries no names of its own (f0, f1, ... / Column_0, ... / x0, ...).
    """
    where = {column: (i, j) for i, a in enumerate(space) for j, column in enumerate(a.columns)}
    names = ensemble.feature_names
    absent = [name for name in names if name not in where]
    if absent and len(names) == len(where) and len(absent) == len(names) and _unnamed(names):
        return list(where.values())
    if absent:
        raise SpaceError(
            f"the model has a column '{absent[0]}' that no attribute of the space feeds; the space has {_listed(where)}"
        )
    extra = [column for column in where if column not in names]
    if extra:
        raise SpaceError(f"the space has a column '{extra[0]}' that the model does not take; the model takes {_listed(names)}")
    return [where[name] for name in names]


def attribute_codes(attribute: Attribute, ensemble: TreeEnsemble) -> npt.NDArray[np.float64]:
    """What each value of a finite attribute writes into each of its model columns (values x columns)."""
    if attribute.codes is not None:
        return np.array(attribute.codes, np.float64)
    names = ensemble.feature_names
    column = attribute.columns[0]
    feature = names.index(column) if column in names else None
    known = ensemble.categories.get(feature) if feature is not None else None
    codes = []
    for value in attribute.values:
        if known is not None:
            texts = [str(k) for k in known]
            if value in known:
                codes.append(float(known.index(value)))
            elif str(value) in texts:
                codes.append(float(texts.index(str(value))))
            else:
                raise SpaceError(
                    f"attribute '{attribute.name}': value {value!r} is not a category of the model; it has {_listed(texts)}"
                )
        elif isinstance(value, str):
            raise SpaceError(
                f"attribute '{attribute.name}': value {value!r} is text, but the model's column takes numbers; give the attribute 'codes'"
            )
        else:
            codes.append(float(value))
    return np.array(codes, np.float64).reshape(-1, 1)


def _unnamed(names: Sequence[str]) -> bool:
    return any(all(name == f"{prefix}{i}" for i, name in enumerate(names)) for prefix in ("f", "Column_", "x", ""))


def _listed(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:12]) + (f", ... ({len(names)} in all)" if len(names) > 12 else "")


@dataclass(frozen=True)
class _TestKey:
    """A node's test without the node: equal tests are the same object of study."""

    feature: int
    test: int
    threshold: float
    missing: int
    default_left: bool
    codes: frozenset[int]
    known: frozenset[int] | None

    def on(self, x: float) -> bool:
        """The test on a value that is present or NaN, as the library computes it."""
        if math.isnan(x):
            if self.missing != Missing.AS_ZERO:
                return self.default_left
            x = 0.0
        if self.missing == Missing.WITH_ZERO and abs(x) <= ZERO_BAND:
            return self.default_left
        if self.test == Test.LESS_F32:
            return bool(_to_f32(x) < self.threshold)
        if self.test == Test.AT_MOST_F32:
            return bool(_to_f32(x) <= self.threshold)
        if self.test == Test.AT_MOST_F64:
            return x <= self.threshold
        code = math.trunc(x)
        if self.known is not None and code not in self.known:
            return self.default_left
        return code in self.codes


def _to_f32(x: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(x))


def _distinct_tests(model: TreeEnsemble) -> tuple[list[_TestKey], npt.NDArray[np.int64]]:
    """The distinct tests of the model, and for each node the index of its test (-1 at leaves)."""
    index: dict[tuple[Any, ...], int] = {}
    tests: list[_TestKey] = []
    of_node = np.full(model.n_nodes, -1, np.int64)
    rows = zip(
        model.feature.tolist(),
        model.test.tolist(),
        model.threshold.tolist(),
        model.missing.tolist(),
        model.default_left.tolist(),
        model.set_start.tolist(),
        model.set_stop.tolist(),
    )
    for node, (feature, test, threshold, missing, default_left, start, stop) in enumerate(rows):
        if test == Test.LEAF:
            continue
        codes = frozenset(model.set_codes[start:stop].tolist()) if test == Test.IN_SET else frozenset()
        limit = 0.0 if test == Test.IN_SET else threshold
        key = (feature, test, limit, missing, default_left, codes)
        if key not in index:
            index[key] = len(tests)
            known = model.known_codes.get(feature) if test == Test.IN_SET else None
            tests.append(_TestKey(feature, test, limit, missing, default_left, codes, known))
        of_node[node] = index[key]
    return tests, of_node


def _finite_axis(
    attribute: Attribute, sensitive: bool, codes: npt.NDArray[np.float64], tests: list[_TestKey], columns: list[int]
) -> tuple[Axis, list[int]]:
    """Cells of a categorical or one-hot attribute: values with the same outcome in every test share one."""
    rows = codes.tolist()
    outcomes = [[test.on(row[c]) for row in rows] for test, c in zip(tests, columns)]
    signatures: dict[tuple[bool, ...], list[int]] = {}
    for v in range(len(rows)):
        signatures.setdefault(tuple(o[v] for o in outcomes), []).append(v)
    groups = list(signatures.values())
    cells = [Cell(values=tuple(group)) for group in groups]
    value_masses = attribute.value_masses()
    masses = [sum((value_masses[v] for v in group), Fraction(0)) for group in groups]
    found = [sum(1 << i for i, group in enumerate(groups) if o[group[0]]) for o in outcomes]
    if attribute.missing is not None:
        found = [mask | (int(test.on(math.nan)) << len(cells)) for mask, test in zip(found, tests)]
        cells.append(Cell(missing=True))
        masses.append(attribute.missing)
    own = np.arange(len(cells), dtype=np.int32)
    lo, hi = (np.zeros_like(own), np.full_like(own, len(cells) - 1)) if sensitive else (own, own)
    return Axis(attribute, sensitive, Fraction(0), tuple(cells), tuple(masses), tuple(cells), tuple(masses), own, lo, hi), found


def _numeric_axis(
    attribute: Attribute, sensitive: bool, tolerance: Fraction, tests: list[_TestKey]
) -> tuple[Axis, list[int]]:
    """Cells of a real or integer attribute: intervals between the tests' edges; a declared missing value comes last."""
    integral = attribute.kind == "integer"
    first: Edge = (attribute.low, 0)
    last: Edge = (attribute.high + 1, 0) if integral else (attribute.high, 1)
    test_edges = [_edges_of(attribute, test) for test in tests]
    inner = sorted({edge for edges in test_edges for edge in edges if first < edge < last})
    edges = [first, *inner, last]
    cells = _intervals(edges, integral)
    masses = [_interval_mass(attribute, cell) for cell in cells]
    found = []
    for test, mine in zip(tests, test_edges):
        if integral:
            outcome = [test.on(float(cell.low[0])) for cell in cells if cell.low is not None]
        else:
            outcome = [_holds_on_real(test, mine, cell) for cell in cells]
        found.append(sum(1 << i for i, yes in enumerate(outcome) if yes))
    reach = Fraction(math.floor(tolerance)) if integral else tolerance
    if sensitive or not reach:
        refined, base = cells, np.arange(len(cells), dtype=np.int32)
        lo = hi = base
    else:
        shifted = {(v + d, side) for v, side in inner for d in (-reach, Fraction(0), reach)}
        refined = _intervals([first, *sorted(e for e in shifted if first < e < last), last], integral)
        starts = [cell.low for cell in refined if cell.low is not None]
        # An x to the right of the edge (v - reach) reaches past the edge v; one left of (v + reach) reaches before it.
        base = np.array([bisect_left(inner, (s[0], s[1] + 1)) for s in starts], np.int32)
        hi = np.array([bisect_left(inner, (s[0] + reach, s[1] + 1)) for s in starts], np.int32)
        lo = np.array([bisect_left(inner, (s[0] - reach, s[1] + 1)) for s in starts], np.int32)
    refined_masses = [_interval_mass(attribute, cell) for cell in refined]
    if attribute.missing is not None:
        found = [mask | (int(test.on(math.nan)) << len(cells)) for mask, test in zip(found, tests)]
        absent = Cell(missing=True)
        end = np.array([len(cells)], np.int32)
        cells, masses = [*cells, absent], [*masses, attribute.missing]
        refined, refined_masses = [*refined, absent], [*refined_masses, attribute.missing]
        base, lo, hi = (np.concatenate([a, end]) for a in (base, lo, hi))
    if sensitive:
        lo, hi = np.zeros_like(base), np.full_like(base, len(cells) - 1)
    axis = Axis(
        attribute, sensitive, tolerance, tuple(cells), tuple(masses), tuple(refined), tuple(refined_masses), base, lo, hi
    )
    return axis, found


def _edges_of(attribute: Attribute, test: _TestKey) -> list[Edge]:
    """The edges at which the test's outcome can change; the first is the threshold's own on a real attribute."""
    integral = attribute.kind == "integer"
    if test.test == Test.IN_SET:
        if not integral:
            raise SpaceError(
                f"attribute '{attribute.name}' is real, but the model tests it for categories; declare it categorical or integer"
            )
        codes = set(test.codes) | (set(test.known) if test.known is not None else set())
        if len(codes) > 1_000_000:
            raise SpaceError(f"attribute '{attribute.name}': the model tests more than a million categories")
        # math.trunc sends -0.x to 0, but integers have no such values: each code is one integer.
        edges = [(Fraction(c + d), 0) for c in codes for d in (0, 1)]
    elif integral:
        edges = [(Fraction(_first_false(test, int(attribute.low), int(attribute.high))), 0)]
    else:
        edges = [(Fraction(test.threshold), 0 if test.test == Test.LESS_F32 else 1)]
    if test.missing == Missing.WITH_ZERO:
        if integral:
            edges += [(Fraction(0), 0), (Fraction(1), 0)]
        else:
            edges += [(-Fraction(ZERO_BAND), 0), (Fraction(ZERO_BAND), 1)]
    return edges


def _first_false(test: _TestKey, low: int, high: int) -> int:
    """The smallest integer in low..high+1 at which a threshold test fails: every such test is true below, false above."""
    while low <= high:
        middle = (low + high) // 2
        x = float(middle)
        holds = _to_f32(x) < test.threshold if test.test == Test.LESS_F32 else (
            (_to_f32(x) if test.test == Test.AT_MOST_F32 else x) <= test.threshold)  # fmt: skip
        if holds:
            low = middle + 1
        else:
            high = middle - 1
    return low


def _holds_on_real(test: _TestKey, edges: list[Edge], cell: Cell) -> bool:
    """A threshold test on a real cell, read on the real number itself: left of the threshold's edge it holds."""
    assert cell.low is not None
    if test.missing == Missing.WITH_ZERO and edges[1] <= cell.low < edges[2]:
        return test.default_left
    return cell.low < edges[0]


def _intervals(edges: Sequence[Edge], integral: bool) -> list[Cell]:
    return [Cell(low=a, high=b, integral=integral) for a, b in zip(edges, edges[1:])]


def _interval_mass(attribute: Attribute, cell: Cell) -> Fraction:
    assert cell.low is not None
    assert cell.high is not None
    if attribute.kind == "real" and attribute.low == attribute.high:
        return 1 - (attribute.missing or Fraction(0))
    return attribute.mass_below(cell.high[0]) - attribute.mass_below(cell.low[0])


def _cast_mass(attribute: Attribute, tests: list[_TestKey]) -> Fraction:
    """The mass of real x that a float32 cast moves across a threshold: between the threshold and a rounding midpoint."""
    total = Fraction(0)
    for limit, test in {(t.threshold, t.test) for t in tests}:
        if test not in (Test.LESS_F32, Test.AT_MOST_F32):
            continue
        down = np.float32(limit) if Fraction(float(np.float32(limit))) <= Fraction(limit) else np.nextafter(np.float32(limit), np.float32(-np.inf))
        other = np.nextafter(down, np.float32(-np.inf if test == Test.LESS_F32 else np.inf))
        if not np.isfinite(other):
            continue
        middle = (Fraction(float(down)) + Fraction(float(other))) / 2
        a, b = sorted((middle, Fraction(limit)))
        total += attribute.mass_below(b) - attribute.mass_below(a)
    return total


def _prune(
    model: TreeEnsemble,
    test_of_node: npt.NDArray[np.int64],
    axis_of_test: list[int],
    masks: list[int],
    sizes: list[int],
) -> dict[str, Any]:
    """The trees over cuts, without the nodes that no point of the space can take both ways."""
    cuts: dict[tuple[int, int], int] = {}
    everything = [(1 << n) - 1 for n in sizes]
    canonical: list[tuple[int, int, bool]] = []
    for axis, mask in zip(axis_of_test, masks):
        flipped = not mask & 1
        canonical.append((axis, everything[axis] & ~mask if flipped else mask, flipped))
    cut: list[int] = []
    children: list[list[int]] = []
    leaf_node: list[int] = []
    roots: list[int] = []
    left, right, test_list = model.left.tolist(), model.right.tolist(), test_of_node.tolist()
    for root in model.roots.tolist():
        # source node, parent slot (-1 at the root), side of the parent, cells still possible on the axes tested so far
        stack: list[tuple[int, int, int, dict[int, int]]] = [(root, -1, 0, {})]
        while stack:
            node, parent, side, domain = stack.pop()
            test = test_list[node]
            while test >= 0:
                axis, mask, flipped = canonical[test]
                here = domain.get(axis, everything[axis])
                inside, outside = here & mask, here & ~mask
                if inside and outside:
                    break
                goes_left = bool(inside) != flipped
                node = left[node] if goes_left else right[node]
                test = test_list[node]
            slot = len(cut)
            if parent >= 0:
                children[parent][side] = slot
            else:
                roots.append(slot)
            if test < 0:
                cut.append(-1)
                children.append([-1, -1])
                leaf_node.append(node)
                continue
            cut.append(cuts.setdefault((axis, mask), len(cuts)))
            children.append([-1, -1])
            leaf_node.append(-1)
            yes, no = (right[node], left[node]) if flipped else (left[node], right[node])
            stack.append((no, slot, 1, {**domain, axis: outside}))
            stack.append((yes, slot, 0, {**domain, axis: inside}))
    pairs = np.array(children, np.int32).reshape(-1, 2)
    leaves = np.array(leaf_node, np.int64)
    leaf = np.full(len(cut), -1, np.int32)
    leaf[leaves >= 0] = np.arange(np.count_nonzero(leaves >= 0))
    return {
        "cuts": tuple(Cut(axis, mask) for axis, mask in cuts),
        "roots": np.array(roots, np.int32),
        "cut": np.array(cut, np.int32),
        "yes": pairs[:, 0].copy(),
        "no": pairs[:, 1].copy(),
        "leaf": leaf,
        "leaf_node": leaves[leaves >= 0],
    }


def _integer_values(model: TreeEnsemble, leaf_nodes: npt.NDArray[np.int64]) -> tuple[tuple[int, ...], int, int]:
    """Leaf values and base as exact integers in units of 2**-bits (every float is a dyadic rational)."""
    numbers = [float(v).as_integer_ratio() for v in model.value[leaf_nodes, 0].tolist()]
    base = model.base[0]
    if model.link == "mean":
        base -= Fraction(model.n_trees, 2)
    if base.denominator & (base.denominator - 1):
        raise ModelError(f"the model's base score {base} is not a dyadic rational")
    bits = max([d.bit_length() - 1 for _, d in numbers] + [base.denominator.bit_length() - 1])
    values = tuple(n << (bits - d.bit_length() + 1) for n, d in numbers)
    return values, int(base * (1 << bits)), bits


def _thresholds(model: TreeEnsemble, prop: Property, bits: int) -> Thresholds:
    """The definitions of class and confidence as integer comparisons; floor + 1 turns '> t' into '>= n' exactly."""
    if prop.tie == "paper":
        pos, neg = 1, -1
    else:
        pos = 0 if model.tie == "positive" else 1
        neg = pos - 1
    half = Fraction(1, 2)
    if prop.kappa <= half:
        return Thresholds(pos, neg, pos, neg)
    if model.link == "mean":
        level = math.floor((prop.kappa - half) * model.n_trees * (1 << bits)) + 1
    else:
        level = floor_scaled_logit(prop.kappa, bits) + 1
    return Thresholds(pos, neg, level, -level)
