"""Small trees over drawn attributes, in which ties are common, and a model as text; see strategies.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from boxqte.models.ensemble import EnsembleBuilder, Missing, Test, TreeEnsemble
from boxqte.space.space import Space
from tests.naive import Model, Point, finite_pieces, float32, naive_margin, real_pieces
from tests.random_attributes import Draws, Limits, Part

SCALES = [Fraction(s) for s in ("1", "1", "1/3", "2", "0.7", "1/100")]


@dataclass
class Tree:
    """The parallel lists that EnsembleBuilder.add_tree takes."""

    feature: list[int] = field(default_factory=list)
    test: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    default_left: list[bool] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    sets: dict[int, list[int]] = field(default_factory=dict)

    def add_node(self, value: float = 0.0) -> int:
        """A leaf; it becomes a split when its lists are overwritten."""
        blank = (0, Test.LEAF, 0.0, 0, 0, value, False, Missing.DEFAULT)
        names = ("feature", "test", "threshold", "left", "right", "value", "default_left", "missing")
        for name, entry in zip(names, blank):
            getattr(self, name).append(entry)
        return len(self.test) - 1


def draw_ensemble(draws: Draws, parts: list[Part], limits: Limits) -> TreeEnsemble:
    link = draws.one_of(["sigmoid", "sigmoid", "mean"])
    unit = draws.one_of([Fraction(1), Fraction(1, 4), Fraction("0.1"), Fraction(float32(0.1))])
    if link == "mean":
        leaf_values = [0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 0.75, 1.0]
    else:
        leaf_values = [float(unit * m) for m in (-3, -2, -1, 0, 1, 2, 3)]  # so that sums cancel: ties are common
    owners = {column: part for part in parts for column in part.attribute.columns}
    names = draws.shuffled(list(owners))  # the model's order of columns is its own
    asked = [part for part in parts if part.used]
    features = {name: f for f, name in enumerate(names)}
    trees = []
    for _ in range(draws.integer(1, limits.max_trees)):
        depth = 0 if draws.chance(10) else draws.integer(min(2, limits.max_depth), limits.max_depth)
        trees.append(Tree())
        Growth(draws, trees[-1], asked, features, leaf_values, limits).grow(depth)
    tested_by_set = sorted({tree.feature[node] for tree in trees for node in tree.sets})
    head = {
        "library": "example",
        "feature_names": names,
        "link": link,
        "scale": draws.one_of(SCALES) if link == "sigmoid" else Fraction(1),
        "decides_on": draws.one_of(["margin", "probability"]),
        "tie": draws.one_of(["negative", "positive"]),
        "sum_dtype": draws.one_of(["float64", "float32"]),
        "categories": {f: owners[n].categories for f, n in enumerate(names) if owners[n].categories is not None},
        "known_codes": {
            f: frozenset(draws.subset([*owners[names[f]].set_codes, 99])) for f in tested_by_set if draws.chance(3)
        },
    }
    ensemble = assemble(trees, head, Fraction(0))
    if draws.chance(6):
        return ensemble
    # Most ensembles drawn so far have one class only: move one margin that occurs, or the middle of two, to 0.
    space = Space([part.attribute for part in parts])
    margins = [naive_margin(ensemble, space, draw_point(draws, ensemble, space)) for _ in range(5)]
    centre = margins[0] if draws.chance(3) else (min(margins) + max(margins)) / 2
    if link == "sigmoid" or draws.chance(3):
        base = -centre / head["scale"] if link == "sigmoid" else -centre * len(trees)
        odd = [Fraction(0), Fraction(0), Fraction(1, 3), Fraction(-1, 10**9)]  # a base that is no float has no ties
        return assemble(trees, head, Fraction(float(base)) + draws.one_of(odd))
    # Forests have no base; one more tree of one leaf: (n (F + 1/2) + leaf) / (n + 1) = 1/2.
    level = Fraction(len(trees) + 1, 2) - len(trees) * (centre + Fraction(1, 2))
    extra = Tree()
    extra.add_node(float(min(max(level, Fraction(0)), Fraction(1))))
    return assemble([*trees, extra], head, Fraction(0))


def assemble(trees: list[Tree], head: dict[str, Any], base: Fraction) -> TreeEnsemble:
    builder = EnsembleBuilder()
    for tree in trees:
        builder.add_tree(**vars(tree))
    return builder.build(base=(base,), **head)


def draw_point(draws: Draws, ensemble: TreeEnsemble, space: Space) -> Point:
    model = Model(ensemble, space)
    return {
        a.name: draws.one_of(real_pieces(a, model.critical_points(a)) if a.kind == "real" else finite_pieces(a)).value
        for a in space.attributes
    }


@dataclass
class Growth:
    """One tree while it grows. Siblings lean to different classes, or most ensembles would have one class only."""

    draws: Draws
    tree: Tree
    parts: list[Part]
    features: dict[str, int]  # of the model, by column name
    leaf_values: list[float]  # in order
    limits: Limits

    def grow(self, depth: int, leans: int = 0) -> int:
        """Add a subtree of at most that depth; its root comes before everything below it."""
        draws, tree = self.draws, self.tree
        if depth == 0 or not self.parts or (leans and draws.chance(6 if depth > 1 else 3)):
            return tree.add_node(draws.one_of(self.leaning(leans)))
        part = draws.one_of(self.parts)
        node = tree.add_node()
        tree.feature[node] = self.features[draws.one_of(part.attribute.columns)]
        draw_test(draws, tree, node, part)
        tree.default_left[node] = draws.flag()
        if self.limits.missing:
            rules = [Missing.DEFAULT, Missing.DEFAULT, Missing.AS_ZERO]
            rules += [Missing.WITH_ZERO, Missing.ZERO_EXACT] * part.zero_rule
            tree.missing[node] = draws.one_of(rules)
        to = draws.one_of([1, -1])
        tree.left[node] = self.grow(depth - 1, to)
        tree.right[node] = self.grow(depth - 1, -to)
        return node

    def leaning(self, leans: int) -> list[float]:
        half = (len(self.leaf_values) + 1) // 2
        return {0: self.leaf_values, -1: self.leaf_values[:half], 1: self.leaf_values[-half:]}[leans]


def draw_test(draws: Draws, tree: Tree, node: int, part: Part) -> None:
    by_set = bool(part.set_codes) and draws.chance(2 if part.attribute.kind == "categorical" else 6)
    if by_set or not part.thresholds:
        if part.set_codes:
            tree.test[node] = Test.IN_SET
            tree.sets[node] = draws.subset([*part.set_codes, 99])
        else:  # a real attribute without thresholds: a test that its domain never fails
            tree.test[node] = Test.AT_MOST_F64
            tree.threshold[node] = float(part.attribute.high) + 1
        return
    threshold = draws.one_of(part.thresholds)
    tests = [Test.AT_MOST_F64, Test.AT_MOST_F32]
    if float32(threshold) == threshold:
        tests = [Test.LESS_F32, *tests]
    tree.threshold[node] = threshold
    tree.test[node] = draws.one_of(tests)


def without_columns(ensemble: TreeEnsemble, columns: Sequence[str]) -> TreeEnsemble:
    """The ensemble without these columns, if it never asks for them."""
    names = ensemble.feature_names
    kept = [f for f, name in enumerate(names) if name not in columns]
    asked = {int(f) for f, test in zip(ensemble.feature, ensemble.test) if test != Test.LEAF}
    if not asked <= set(kept) or not kept:
        return ensemble
    new = {f: i for i, f in enumerate(kept)}
    return replace(
        ensemble,
        feature_names=tuple(names[f] for f in kept),
        feature=np.array([new.get(f, -1) for f in ensemble.feature.tolist()], np.int32),
        categories={new[f]: values for f, values in ensemble.categories.items() if f in new},
        known_codes={new[f]: codes for f, codes in ensemble.known_codes.items() if f in new},
    )


def describe(ensemble: TreeEnsemble) -> str:
    """The model as indented text, so that a failing example can be read."""
    head = (
        f"  {ensemble.link}, scale {ensemble.scale}, base {ensemble.base[0]}, tie {ensemble.tie}, "
        f"columns {', '.join(ensemble.feature_names)}"
    )
    maps = f", categories {dict(ensemble.categories)}, known codes {dict(ensemble.known_codes)}"
    lines = [head + maps]
    for t, root in enumerate(ensemble.roots.tolist()):
        lines.append(f"  tree {t}")
        stack = [(root, "    ")]
        while stack:
            node, indent = stack.pop()
            if ensemble.test[node] == Test.LEAF:
                lines.append(f"{indent}{ensemble.value[node, 0]!s}")
                continue
            test, rule = Test(int(ensemble.test[node])).name, Missing(int(ensemble.missing[node])).name
            codes = ensemble.set_codes[ensemble.set_start[node] : ensemble.set_stop[node]].tolist()
            operand = codes if test == "IN_SET" else float(ensemble.threshold[node])
            side = "left" if ensemble.default_left[node] else "right"
            name = ensemble.feature_names[ensemble.feature[node]]
            lines.append(f"{indent}{name} {test} {operand} (missing {rule}, {side})")
            stack += [(int(ensemble.right[node]), indent + "  "), (int(ensemble.left[node]), indent + "  ")]
    return "\n".join(lines)
