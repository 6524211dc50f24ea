"""The conformance suite that every importer must pass: the imported model decides each row as its library does.

How an importer's author uses it, for a model trained in the test and imported from a live object or from a file:

    imported = load_model(booster)
    rows = boundary_rows(imported.ensemble)
    leaf_ids = booster.predict(DMatrix(rows), pred_leaf=True)       # the library's own numbers, [rows, trees]
    classes = (booster.predict(DMatrix(rows)) > 0.5).astype(int)    # the library's own classes, as class indices
    assert_conforms(imported.ensemble, rows, leaf_ids, classes)

The rows are float64 on purpose: a library that works in float32 has to cast them by itself, because that cast is part
of what is imported. `boundary_rows` puts rows where importers go wrong: for every split of every tree, rows that reach
that split and lie exactly on its threshold, one ulp to each side (float64 and float32), on the points where the cast to
float32 changes its mind, at NaN, at zero; for category sets every member, a non-member, a category that no split has
seen, and a negative one. Switch off what the library rejects with `missing=False` (NaN) or `unseen=False` (categories
that the model does not know), never by dropping rows.

Leaf ids are compared with no tolerance. A class may differ only where the library's own rounding could decide it
(the exact margin is at most `ensemble.rounding_error()` away from the decision).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from boxqte.exact import above_log
from boxqte.models.ensemble import ZERO_BAND, Test, TreeEnsemble

FloatArray = npt.NDArray[np.float64]
INFINITE_F32 = 2.0**128 - 2.0**103  # halfway from the largest float32 to the next: the cast makes infinity of it
UNSEEN_ABOVE = (1, 2, 1000)  # how far above the largest known code the unseen ones lie


def boundary_rows(
    ensemble: TreeEnsemble, n_random: int = 200, seed: int = 0, missing: bool = True, unseen: bool = True
) -> FloatArray:
    """Rows that reach every split and lie on, just below and just above its boundary; then `n_random` random rows.

    Returns
    -------
    float64 array [rows, features], in the order of the model's columns.
    """
    rng = np.random.default_rng(seed)
    pools = [value_pool(ensemble, feature, missing, unseen) for feature in range(ensemble.n_features)]
    rows = []
    for node, reaching in reaching_row_at_every_split(ensemble, pools, rng):
        values = split_values(ensemble, node, missing, unseen)
        block = np.tile(reaching, (len(values), 1))
        block[:, ensemble.feature[node]] = values
        rows.append(block)
    rows.append(random_rows(pools, n_random, rng))
    return np.concatenate(rows)


def assert_conforms(
    ensemble: TreeEnsemble,
    rows: FloatArray,
    leaf_ids: npt.ArrayLike,
    classes: npt.ArrayLike | None = None,
) -> None:
    """Compare with the library: its leaf ids [rows, trees] without tolerance, its class indices up to its rounding."""
    expected = np.asarray(leaf_ids)
    ours = ensemble.leaf_ids(rows)
    expected = expected.reshape(len(rows), -1)
    assert expected.shape == ours.shape, f"library has leaf ids of shape {expected.shape}, the import {ours.shape}"
    wrong = np.argwhere(ours != expected)
    if len(wrong):
        row, tree = wrong[0]
        raise AssertionError(
            f"{len(wrong)} of {ours.size} leaf ids differ; first: tree {tree}, row {row} gets leaf {ours[row, tree]}, "
            f"library leaf {expected[row, tree]}; the row is {[float(v).hex() for v in rows[row]]}"
        )
    if classes is None:
        return
    theirs = np.asarray(classes).reshape(-1)
    assert len(theirs) == len(rows), f"library has {len(theirs)} classes for {len(rows)} rows"
    decided = beyond_rounding(ensemble, rows)
    assert decided.any(), "every margin is within the library's rounding error: this model tests no class"
    predicted = ensemble.predict(rows[decided])
    differ = np.flatnonzero(predicted != theirs[decided])
    if len(differ):
        row = np.flatnonzero(decided)[differ[0]]
        raise AssertionError(
            f"{len(differ)} of {int(decided.sum())} classes differ; first: row {row} is class {predicted[differ[0]]}, "
            f"in the library {theirs[row]}, margin {[float(m) for m in ensemble.exact_margin(rows[row : row + 1])[0]]}"
        )


def beyond_rounding(ensemble: TreeEnsemble, rows: FloatArray) -> npt.NDArray[np.bool_]:
    """The rows whose class does not depend on how the library rounds its sums."""
    error, rule = ensemble.rounding_error(), ensemble.decision
    odds, level = (Fraction(1), Fraction(0)) if rule is None else rule.level(0, ensemble.link)

    def decided(margin: tuple[Fraction, ...]) -> bool:
        if len(margin) == 1:
            above, below = margin[0] - level - error, margin[0] - level + error
            return above_log(above, odds) > 0 or above_log(below, odds) < 0
        first, second = sorted(margin, reverse=True)[:2]
        return first - second > 2 * error  # both sums may be off, in opposite directions

    return np.array([decided(margin) for margin in ensemble.exact_margin(rows)], bool)


def split_values(ensemble: TreeEnsemble, node: int, missing: bool, unseen: bool) -> FloatArray:
    """The values of its feature that a split's boundary is tested with."""
    if ensemble.test[node] == Test.IN_SET:
        values = set_values(ensemble, node, unseen)
    else:
        values = threshold_values(float(ensemble.threshold[node]))
    return np.array([*values, *([np.nan] if missing else [])], np.float64)


def threshold_values(threshold: float) -> list[float]:
    """The threshold, its neighbours in float64 and float32, and where rounding to float32 flips between neighbours."""
    with np.errstate(over="ignore", invalid="ignore"):  # beyond the largest float32 there is infinity
        single = np.float32(threshold)
        around = [single, np.nextafter(single, np.float32(-np.inf)), np.nextafter(single, np.float32(np.inf))]
    points = [threshold, *(float(v) for v in around)]
    # Half-way between float32 neighbours the cast rounds to even; one float64 ulp decides which neighbour it becomes.
    points += [(float(around[0]) + float(around[1])) / 2, (float(around[0]) + float(around[2])) / 2]
    points += [0.0, -0.0, ZERO_BAND, -ZERO_BAND]
    with np.errstate(over="ignore"):
        beside = [float(np.nextafter(p, side)) for p in points for side in (-np.inf, np.inf)]
    return sorted({p for p in points + beside if abs(p) < INFINITE_F32})


def set_values(ensemble: TreeEnsemble, node: int, unseen: bool) -> list[float]:
    """Every member of the set, every code below its largest that is no member, unseen codes, a negative code."""
    members = ensemble.set_of(node)
    feature = int(ensemble.feature[node])
    known = known_codes(ensemble, feature)
    values = [float(code) for code in sorted(members | known)]
    if unseen:
        top = max(known, default=0)
        values += [float(top + step) for step in UNSEEN_ABOVE] + [-1.0]
        values += [float(code) for code in range(top) if code not in known][:3]  # gaps between known codes
    return values


def known_codes(ensemble: TreeEnsemble, feature: int) -> frozenset[int]:
    """The codes of a categorical feature that the model itself names: in sets, in its categories, as trained on."""
    codes: set[int] = set(ensemble.known_codes.get(feature, ()))
    codes |= set(range(len(ensemble.categories.get(feature, ()))))
    for node in np.flatnonzero((ensemble.feature == feature) & (ensemble.test == Test.IN_SET)):
        codes |= ensemble.set_of(int(node))
    return frozenset(codes)


def value_pool(ensemble: TreeEnsemble, feature: int, missing: bool, unseen: bool) -> FloatArray:
    """Every value of the feature that some split could care about, and some in between."""
    nodes = np.flatnonzero((ensemble.feature == feature) & (ensemble.test != Test.LEAF))
    categorical = feature in ensemble.categories or (ensemble.test[nodes] == Test.IN_SET).any()
    points: set[float] = {0.0}
    if categorical:
        points |= {float(code) for code in known_codes(ensemble, feature)}
        for node in nodes[ensemble.test[nodes] == Test.IN_SET]:
            points |= set(set_values(ensemble, int(node), unseen))
    else:
        cuts = sorted({float(t) for t in ensemble.threshold[nodes]})
        for threshold in cuts:
            points |= set(threshold_values(threshold))
        points |= {(a + b) / 2 for a, b in pairwise(cuts)}
        points |= {cuts[0] - 1.0, cuts[-1] + 1.0} if cuts else {-1.0, 1.0}
    return np.array([*sorted(points), *([np.nan] if missing else [])], np.float64)


def reaching_row_at_every_split(
    ensemble: TreeEnsemble, pools: list[FloatArray], rng: np.random.Generator
) -> Iterator[tuple[int, FloatArray]]:
    """For every split a random row that reaches it, as far as one can be put together from the pools.

    Per feature the walk keeps which pool values satisfy every test on the path so far; without this, deep splits would
    be tested by rows that never arrive there.
    """
    for root in ensemble.roots.tolist():
        stack: list[tuple[int, dict[int, npt.NDArray[np.bool_]]]] = [(root, {})]
        while stack:
            node, fits = stack.pop()
            if ensemble.test[node] == Test.LEAF:
                continue
            row = np.array([rng.choice(pool) for pool in pools])
            for feature, fit in fits.items():
                if fit.any():
                    row[feature] = rng.choice(pools[feature][fit])
            yield node, row
            feature = int(ensemble.feature[node])
            goes = ensemble.goes_left(node, pools[feature])
            before = fits.get(feature, np.ones(len(pools[feature]), bool))
            stack.append((int(ensemble.left[node]), {**fits, feature: before & goes}))
            stack.append((int(ensemble.right[node]), {**fits, feature: before & ~goes}))


def random_rows(pools: list[FloatArray], n_random: int, rng: np.random.Generator) -> FloatArray:
    """Rows with every feature drawn from its pool, so that missing and unseen values meet in one row."""
    return np.stack([rng.choice(pool, n_random) for pool in pools], axis=1).reshape(n_random, len(pools))
