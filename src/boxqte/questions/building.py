"""Space x TreeEnsemble x Property -> Grid: the whole question as weighted counting on a finite grid of integers.

Each attribute becomes an axis of cells (axes.py), each test of the trees a set of cells, and class and confidence become
comparisons of integers. Nothing is rounded on the way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.basics.checks import did_you_mean
from boxqte.errors import ModelError, PropertyError, SpaceError
from boxqte.exact import plain
from boxqte.models.categories import HashedCategories
from boxqte.models.ensemble import Test, TreeEnsemble
from boxqte.questions.axes import (
    Axis,
    Question,
    bounded_axis,
    cast_mass,
    cells_inside,
    counted_axis,
    finite_axis,
    numeric_axis,
)
from boxqte.questions.class_grid import class_grid
from boxqte.questions.decisions import attribute_groups, level_unit, thresholds, with_groups
from boxqte.questions.grid import AnyGrid, Cut, Forbidden, Grid, Partners, Trees, binary
from boxqte.questions.properties import Monotonicity, Property, ScoreFairness, check_property
from boxqte.questions.scores import ProbabilityScale
from boxqte.space.attributes import Attribute
from boxqte.space.conditions import Part
from boxqte.space.space import Space

HALF = Fraction(1, 2)
UNITS_OF_ERROR = 8


def build_grid(ensemble: TreeEnsemble, space: Space, prop: Property) -> Grid:
    """The grid of a model with two classes; others are refused."""
    return binary(build_any_grid(ensemble, space, prop))


def build_any_grid(ensemble: TreeEnsemble, space: Space, prop: Property) -> AnyGrid:
    """Discretise the problem exactly: a Grid, or a ClassGrid for three classes and more. Raises if they do not fit."""
    check_property(prop)
    if prop.asks_scores:
        _check_scale(ensemble, prop)
    else:
        ensemble.require_classes()
    prop.check(space)
    tolerances = prop.tolerances(space)
    bounded = dict(prop.max_change)
    if space.mass == "cells" and (bounded or any(tolerances.values())):
        what = "max_change" if bounded else "epsilon"
        raise PropertyError(
            f"{what}: cuts cells further, so that they cannot count the same; leave it out, or the space's mass 'cells'"
        )
    windows: dict[int, list[tuple[int, int]]] = {}
    owner = match_columns(ensemble, space, prop.sensitive)
    nodes, test_of_node = distinct_tests(ensemble)
    features = ensemble.feature[nodes]
    axis_of_test = np.array([at for at, _ in owner], np.int64)[features]
    column_of_test = np.array([column for _, column in owner], np.int64)[features]
    masks = [0] * len(nodes)
    axes = []
    input_rounding = Fraction(0)
    groups: tuple[int, ...] = ()
    ruled = _ruled(space)
    for at, attribute in enumerate(space):
        mine = np.flatnonzero(axis_of_test == at)
        tolerance = tolerances.get(attribute.name, Fraction(0))
        own = attribute_groups(ensemble.decision, attribute)
        groups = own or groups
        parts = ruled.get(attribute.name, ())
        question = Question(attribute, attribute.name in prop.sensitive, tolerance, ensemble, nodes[mine], own, parts)
        if attribute.is_numeric:
            axis, found = numeric_axis(question)
            if attribute.name in bounded:
                axis, found, windows[at] = bounded_axis(axis, found, bounded[attribute.name])
        else:
            codes = attribute_codes(attribute, ensemble, feature_of(owner, at))
            axis, found = finite_axis(question, codes, column_of_test[mine].tolist())
        for test, mask in zip(mine.tolist(), found):
            masks[test] = mask
        counted = counted_axis(axis) if space.mass == "cells" else None
        axes.append(counted or axis)
        if attribute.kind == "real":
            input_rounding += cast_mass(question, counted)
    trees = prune(ensemble, test_of_node, axis_of_test.tolist(), masks, [axis.n_cells for axis in axes])
    forbidden = _forbidden(space, axes)
    if not ensemble.is_binary:
        return replace(class_grid(ensemble, space, prop, axes, trees, input_rounding), forbidden=forbidden)
    all_count = prop.kappa <= HALF and prop.tie == "library"
    if prop.asks_scores and all_count and not _by_probability(ensemble, prop):  # what all x' share cancels
        trees = only_testing(trees, {at for at, axis in enumerate(axes) if axis.sensitive})
    error = ensemble.rounding_error() / ensemble.factor
    values, base, bits, rest = _integer_values(ensemble, trees.leaf_nodes, error, level_unit(ensemble, prop))
    grid = Grid(
        ensemble=ensemble,
        space=space,
        property=prop,
        axes=tuple(axes),
        cuts=trees.cuts,
        roots=trees.roots,
        cut=trees.cut,
        yes=trees.yes,
        no=trees.no,
        leaf=trees.leaf,
        values=values,
        base=base,
        scale_bits=bits,
        thresholds=thresholds(ensemble, prop, bits, rest),
        partners=_partners(prop, axes, windows, ensemble, bits, rest),
        rounding=math.ceil(error * 2**bits),
        input_rounding=min(input_rounding, Fraction(1)),
        forbidden=forbidden,
    )
    return with_groups(grid, rest, groups) if groups and not prop.asks_scores else grid


def _ruled(space: Space) -> dict[str, tuple[Part, ...]]:
    """What the rules say of each attribute that they mention."""
    found: dict[str, dict[Part, None]] = {}
    for rule in space.rules:
        for box in rule.boxes:
            for name, part in box:
                found.setdefault(name, {})[part] = None
    return {name: tuple(parts) for name, parts in found.items()}


def _forbidden(space: Space, axes: Sequence[Axis]) -> tuple[Forbidden, ...]:
    """What the rules forbid, as cells; boxes without cells are left out."""
    at = {axis.attribute.name: (a, axis) for a, axis in enumerate(axes)}
    masks: dict[tuple[str, Part], int] = {}
    found: dict[Forbidden, None] = {}
    for rule in space.rules:
        for box in rule.boxes:
            for name, part in box:
                if (name, part) not in masks:
                    masks[name, part] = cells_inside(at[name][1], part)
            if all(masks[pair] for pair in box):
                own = ((at[name][0], masks[name, part]) for name, part in box)
                found[Forbidden(tuple((a, mask) for a, mask in own if mask != (1 << axes[a].n_cells) - 1))] = None
    return tuple(found)


def _check_scale(ensemble: TreeEnsemble, prop: Property) -> None:
    """Refuse a question about scores that the model does not have."""
    if not ensemble.is_binary:
        raise ModelError(f"scores: for models with one margin, this one has {ensemble.n_outputs}")
    if prop.kappa > HALF and ensemble.decision is not None and ensemble.decision.attribute is not None:
        raise PropertyError(
            f"kappa: {plain(prop.kappa)} is measured from a threshold, and each group has its own; leave kappa out, or ask with "
            "one threshold"
        )
    if not isinstance(prop, ScoreFairness):
        return
    if prop.scale == "value" and (ensemble.predicts_classes or ensemble.link != "identity"):
        raise PropertyError("scale: 'value' is for models that predict a sum of trees; use scale='margin'")
    if prop.scale == "probability" and ensemble.link not in ("sigmoid", "mean"):
        raise PropertyError("scale: the model predicts a value, no probability; use scale='value' or scale='margin'")


def _by_probability(ensemble: TreeEnsemble, prop: Property) -> bool:
    """Whether scores are compared behind a link that is no straight line; any change at all is one of the margin."""
    asks = isinstance(prop, ScoreFairness) and prop.scale == "probability" and prop.at_most > 0
    return asks and ensemble.link != "mean"


def match_columns(ensemble: TreeEnsemble, space: Space, sensitive: Sequence[str]) -> list[tuple[int, int]]:
    """For each model feature, the attribute and the column of that attribute that feed it.

    By name; by position where the model carries no names of its own (f0, f1, ... / Column_0, ... / x0, ...). The
    attribute that chooses a decision threshold may be one that feeds none; and so may, by name, those that the question or
    the space calls sensitive: a model that is not given one cannot depend on it, which is an answer.
    """
    rule = None if ensemble.decision is None else ensemble.decision.attribute
    if rule is not None and rule not in space.names:
        raise SpaceError(f"threshold: there is no attribute '{rule}'{did_you_mean(rule, space.names)}; the space has "
                         f"{_listed(space.names)}")  # fmt: skip
    where = {ensemble.own_name(column): (i, j) for i, a in enumerate(space) for j, column in enumerate(a.columns)}
    names = ensemble.feature_names
    beside = () if rule is None or {*space[rule].columns} & {*names} else space[rule].columns
    if _unnamed(names) and len(where) == len(names):
        beside = ()  # by position, every column is the model's own
    where = {column: at for column, at in where.items() if column not in beside}
    absent = [name for name in names if name not in where]
    if len(absent) == len(names) == len(where) and _unnamed(names):
        return list(where.values())
    if absent:
        raise SpaceError(
            f"the model has a column '{absent[0]}' that no attribute of the space feeds; the space has {_listed(where)}"
        )
    taken = set(names)
    unread = {a.name for a in space if not any(ensemble.own_name(column) in taken for column in a.columns)}
    unread &= {*sensitive, *space.sensitive}
    extra = [column for column, (i, _) in where.items() if column not in taken and space.names[i] not in unread]
    if extra:
        raise SpaceError(
            f"the space has a column '{extra[0]}' that the model does not take; the model takes {_listed(names)}, and only "
            "a sensitive attribute may be none of them"
        )
    return [where[name] for name in names]


def feature_of(owner: Sequence[tuple[int, int]], attribute: int) -> int | None:
    """The model's number for the first column of the attribute; None if it feeds the model nothing."""
    return next((f for f, of in enumerate(owner) if of == (attribute, 0)), None)


def attribute_codes(attribute: Attribute, ensemble: TreeEnsemble, feature: int | None) -> npt.NDArray[np.float64]:
    """What each value of a finite attribute writes into each of its model columns (values x columns).

    `feature` is the model's number for the first of these columns; None: the model has none. The attribute's own codes
    count most, then the model's categories (by value, then by text), then the values themselves.
    """
    if attribute.codes is not None:
        return np.array(attribute.codes, np.float64)
    if feature is None:
        return np.arange(len(attribute.values), dtype=np.float64).reshape(-1, 1)
    known = ensemble.categories.get(feature)
    stored = ensemble.stored_names.get(feature)
    if known is None and stored is not None and all(isinstance(value, str) for value in attribute.values):
        known = stored.among(attribute.values)
        if known is None:
            raise SpaceError(
                f"attribute '{attribute.name}': XGBoost has cut the names of the model's {len(stored)} categories (they go "
                "beyond ASCII), and its values do not tell which is which; give the attribute 'codes', or infer the space "
                "from the training data"
            )
    if isinstance(known, HashedCategories):
        return np.array([known.code_of(value) for value in attribute.values], np.float64).reshape(-1, 1)
    if known is not None:
        by_value: dict[Any, int] = {}
        by_text: dict[str, int] = {}
        for code, value in enumerate(known):
            by_value.setdefault(value, code)
            by_text.setdefault(str(value), code)
        for value in attribute.values:
            if value not in by_value and str(value) not in by_text:
                raise SpaceError(
                    f"attribute '{attribute.name}': value {value!r} is not a category of the model; it has "
                    f"{_listed(by_text)}"
                )
        codes = [by_value[v] if v in by_value else by_text[str(v)] for v in attribute.values]
        return np.array(codes, np.float64).reshape(-1, 1)
    for value in attribute.values:
        if isinstance(value, str):
            raise SpaceError(
                f"attribute '{attribute.name}': value {value!r} is text, but the model's column takes numbers; give the "
                "attribute 'codes'"
            )
    return np.array([float(value) for value in attribute.values], np.float64).reshape(-1, 1)


def _unnamed(names: Sequence[str]) -> bool:
    return any(all(name == f"{prefix}{i}" for i, name in enumerate(names)) for prefix in ("f", "Column_", "x", ""))


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:12]) + (f", ... ({len(names)} in all)" if len(names) > 12 else "")


def distinct_tests(model: TreeEnsemble) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """One node for each distinct test of the model, and for each node the index of its test (-1 at leaves)."""
    inner = np.flatnonzero(model.test != Test.LEAF)
    # Equal thresholds, and equal sets, get equal numbers; then a test is one integer.
    limits, operand = np.unique(model.threshold[inner] + 0.0, return_inverse=True)  # + 0.0 makes 0 of -0
    operand = operand.reshape(-1)
    sets: dict[bytes, int] = {}
    for at in np.flatnonzero(model.test[inner] == Test.IN_SET).tolist():
        members = model.set_codes[model.set_start[inner[at]] : model.set_stop[inner[at]]]
        operand[at] = sets.setdefault(members.tobytes(), len(sets))
    key = model.feature[inner].astype(np.int64)
    for part, size in (
        (model.test[inner], 8),
        (model.missing[inner], 8),
        (model.default_left[inner], 2),
        (operand, max(len(limits), len(sets), 1)),
    ):
        key = key * size + part
    _, first, index = np.unique(key, return_index=True, return_inverse=True)
    of_node = np.full(model.n_nodes, -1, np.int64)
    of_node[inner] = index.reshape(-1)
    return inner[first], of_node


def prune(
    model: TreeEnsemble,
    test_of_node: npt.NDArray[np.int64],
    axis_of_test: Sequence[int],
    masks: Sequence[int],
    sizes: Sequence[int],
) -> Trees:
    """The trees over cuts, without the nodes that no point of the space can take both ways."""
    domain = [(1 << n) - 1 for n in sizes]  # the cells that are still possible on the way to the current node
    # The number of cells is part of the key because Python hashes 2**k - 1 to one of 61 values only.
    cuts: dict[tuple[int, int, int], int] = {}
    asked = []  # per test: axis, the cells that it sends to yes, whether yes is the right child, its cut
    for axis, mask in zip(axis_of_test, masks):
        flipped = not mask & 1
        cells = domain[axis] & ~mask if flipped else mask
        asked.append((axis, cells, flipped, cuts.setdefault((axis, cells.bit_count(), cells), len(cuts))))
    cut: list[int] = []
    no: list[int] = []
    leaf_nodes: list[int] = []
    roots: list[int] = []
    left, right, tests = model.left.tolist(), model.right.tolist(), test_of_node.tolist()
    for node in model.roots.tolist():
        roots.append(len(cut))
        # The no sides still to come: their node, their parent's new number, and the restriction that leads to them.
        # The trail has what the restrictions on the way to the current node have replaced.
        later: list[tuple[int, int, int, int, int]] = []
        trail: list[tuple[int, int]] = []
        while True:
            test = tests[node]
            while test >= 0:
                axis, mask, flipped, number = asked[test]
                here = domain[axis]
                inside = here & mask
                if inside and inside != here:
                    break
                node = left[node] if (inside != 0) != flipped else right[node]
                test = tests[node]
            if test >= 0:
                yes, other = (right[node], left[node]) if flipped else (left[node], right[node])
                later.append((other, len(cut), axis, here ^ inside, len(trail)))
                cut.append(number)
                no.append(-1)
                trail.append((axis, here))
                domain[axis] = inside
                node = yes
                continue
            cut.append(-1)
            no.append(-1)
            leaf_nodes.append(node)
            depth = later[-1][-1] if later else 0
            while len(trail) > depth:
                axis, here = trail.pop()
                domain[axis] = here
            if not later:
                break
            node, parent, axis, cells, _ = later.pop()
            no[parent] = len(cut)
            trail.append((axis, domain[axis]))
            domain[axis] = cells
    asking = np.array(cut, np.int32)
    used, renumbered = np.unique(asking[asking >= 0], return_inverse=True)
    listed = list(cuts)
    asking[asking >= 0] = renumbered.reshape(-1)
    at_leaf = asking < 0
    return Trees(
        tuple(Cut(listed[number][0], listed[number][2]) for number in used.tolist()),
        np.array(roots, np.int32),
        asking,
        np.where(at_leaf, -1, np.arange(1, len(asking) + 1)).astype(np.int32),  # yes comes next
        np.array(no, np.int32),
        np.where(at_leaf, np.cumsum(at_leaf) - 1, -1).astype(np.int32),
        np.array(leaf_nodes, np.int64),
    )


def only_testing(trees: Trees, axes: set[int]) -> Trees:
    """The trees that test one of the axes, and the cuts that are left."""
    stops = [*trees.roots.tolist()[1:], len(trees.cut)]
    tests = np.array([cut.axis in axes for cut in trees.cuts] + [False])[trees.cut]
    kept = [(start, stop) for start, stop in zip(trees.roots.tolist(), stops) if tests[start:stop].any()]
    nodes = np.array([node for start, stop in kept for node in range(start, stop)], np.int64)
    new = np.full(len(trees.cut) + 1, -1, np.int32)
    new[nodes] = np.arange(len(nodes), dtype=np.int32)
    cut = trees.cut[nodes]
    used, renumbered = np.unique(cut[cut >= 0], return_inverse=True)
    cut = cut.copy()
    cut[cut >= 0] = renumbered.reshape(-1)
    leaves = trees.leaf[nodes]
    return Trees(
        tuple(trees.cuts[k] for k in used.tolist()),
        new[[start for start, _ in kept]].astype(np.int32),
        cut,
        new[trees.yes[nodes]],
        new[trees.no[nodes]],
        np.where(leaves < 0, -1, np.cumsum(leaves >= 0) - 1).astype(np.int32),
        trees.leaf_nodes[leaves[leaves >= 0]],
    )


def _partners(
    prop: Property,
    axes: Sequence[Axis],
    windows: Mapping[int, list[tuple[int, int]]],
    ensemble: TreeEnsemble,
    bits: int,
    rest: Fraction,
) -> Partners | None:
    """Who may be whose partner; None: everybody whose other sensitive values differ."""
    if isinstance(prop, ScoreFairness):
        if _by_probability(ensemble, prop):
            scale = ProbabilityScale(prop.at_most, 2**bits / ensemble.factor, rest)
            return Partners(-1, ((0, 0),), ((0, 0),), scale=scale)
        gap = math.floor(prop.at_most / ensemble.factor * 2**bits) + 1
        return Partners(-1, ((0, 0),), ((0, 0),), gap=gap)
    if isinstance(prop, Monotonicity):
        at = next(i for i, axis in enumerate(axes) if axis.sensitive)
        cells = axes[at].cells
        n = sum(not cell.missing for cell in cells)
        above = tuple((1, 0) if cell.missing else (c + 1, n - 1) for c, cell in enumerate(cells))
        below = tuple((1, 0) if cell.missing else (0, c - 1) for c, cell in enumerate(cells))
        low, high = (above, below) if prop.direction == "increasing" else (below, above)
        order = 1 if prop.direction == "increasing" else -1
        return Partners(at, low, high, order, 1 if prop.asks_scores else 0)
    for at, reached in windows.items():
        return Partners(at, tuple(reached), tuple(reached))
    return None


def _integer_values(
    model: TreeEnsemble, leaf_nodes: npt.NDArray[np.int64], error: Fraction, least: int
) -> tuple[tuple[int, ...], int, int, Fraction]:
    """Leaf values and base as exact integers in units of 2**-bits (every float is a dyadic rational).

    The unit is at most 1 / least. It is also small against the rounding error, which is rounded up to whole units: where
    all leaves are votes of 0 and 1, a majority of one vote is no rounding error. The last result is what the base has
    beyond a whole number of units; 0, unless it is no dyadic rational.
    """
    ratios = [value.as_integer_ratio() for value in model.value[leaf_nodes, 0].tolist()]
    base = model.base[0] - (1 / (2 * model.factor) if model.link == "mean" else 0)
    unit = max((d for _, d in ratios), default=1)
    unit = max(unit, least)
    if error:
        unit = max(unit, 1 << math.ceil(UNITS_OF_ERROR / error).bit_length())
    if base.denominator & (base.denominator - 1) == 0:
        unit = max(unit, base.denominator)
    values = tuple(n * (unit // d) for n, d in ratios)
    whole = math.floor(base * unit)
    return values, whole, unit.bit_length() - 1, base * unit - whole
