"""On how much of the space do two models decide differently? Exactly, as a question of fairness.

Both models become one over one more attribute, 'which model': its trees ask it first. An input is a counterexample to
fairness in that attribute iff the two models decide it differently, so the measure of the combined model is the share of
inputs on which they agree; regions, profiles and certificates of it speak of the changed decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from boxqte.answers.quantify import measure
from boxqte.answers.result import Result
from boxqte.errors import BoxQTEError
from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble
from boxqte.models.imported import ImportedModel
from boxqte.questions.building import match_columns
from boxqte.questions.properties import Fairness
from boxqte.repairing.goals import Asking
from boxqte.space.attributes import Attribute
from boxqte.space.components import Component
from boxqte.space.space import Space

WHICH = "which model"


def disagreement(before: ImportedModel, after: ImportedModel, space: Space, asking: Asking) -> Result | None:
    """Fairness of the combined model in 'which model': 1 - measure is the mass of inputs decided differently.

    None where the space counts cells: those of two models are not the same.
    """
    if space.mass is not None:
        return None
    name = WHICH
    while name in (*space.names, *space.columns):
        name += "?"
    combined = ImportedModel(_combined(before.ensemble, after.ensemble, space, name), "both models")
    try:
        return measure(combined, _with_which(space, name), Fairness(name), engine=asking.engine, limits=asking.limits)
    except BoxQTEError:
        return None


def _with_which(space: Space, name: str) -> Space:
    """The space with one more attribute; those that the models do not read are sensitive ones, which may be in it."""
    which = Attribute.integer(name, 0, 1)
    parts = [Component(part.weight, (*part.attributes, which)) for part in space.components]
    attributes = (*space.attributes, which)
    return Space(attributes, label=space.label, sensitive=space.names, components=parts, rules=space.rules)


def _combined(before: TreeEnsemble, after: TreeEnsemble, space: Space, name: str) -> TreeEnsemble:
    """Tree by tree: that of the first model where `name` is 0, of the second where it is 1; equal trees once."""
    names = [
        before.own_name(space.attributes[at].columns[column])
        for at, column in match_columns(before, space, space.names)
    ]
    builder = EnsembleBuilder()
    trees = max(before.n_trees, after.n_trees)
    for t in range(trees):
        one = _Tree.of(before, t)
        two = _Tree.of(after, t)
        tree = one if one == two else _Tree.asking(before.n_features, one, two)
        builder.add_tree(
            feature=tree.feature,
            test=tree.test,
            threshold=tree.threshold,
            left=tree.left,
            right=tree.right,
            value=tree.value,
            default_left=tree.default_left,
            missing=tree.missing,
            sets=tree.sets,
        )
    built = builder.build(
        library=before.library,
        feature_names=[*names, name],
        base=before.base,
        link=before.link,
        classes=before.classes,
        tie=before.tie,
        sum_dtype=before.sum_dtype,
        scale=before.scale * Fraction(trees, before.n_trees) if before.link == "mean" else before.scale,
        decides_on=before.decides_on,
        further_rounding=before.further_rounding,
        categories=before.categories,
        known_codes=before.known_codes,
        stored_names=before.stored_names,
    )
    return replace(built, decision=before.decision, leaf_error=before.leaf_error)


@dataclass
class _Tree:
    """One tree as lists, its root first."""

    feature: list[int]
    test: list[int]
    threshold: list[float]
    left: list[int]
    right: list[int]
    default_left: list[bool]
    missing: list[int]
    value: list[float]
    sets: dict[int, tuple[int, ...]]

    @classmethod
    def of(cls, ensemble: TreeEnsemble, t: int) -> _Tree:
        """A tree of a model; a leaf of value 0 where it has no such tree."""
        tree = cls([], [], [], [], [], [], [], [], {})
        if t < ensemble.n_trees:
            tree._copy(ensemble, int(ensemble.roots[t]))
        else:
            tree._add(-1, Test.LEAF)
        return tree

    @classmethod
    def asking(cls, feature: int, one: _Tree, two: _Tree) -> _Tree:
        """The first tree where the feature is at most 1/2, the second elsewhere."""
        tree = cls([], [], [], [], [], [], [], [], {})
        tree._add(feature, Test.AT_MOST_F64, 0.5)
        for part, side in ((one, tree.left), (two, tree.right)):
            start = len(tree.test)
            side[0] = start
            for name in ("feature", "test", "threshold", "default_left", "missing", "value"):
                getattr(tree, name).extend(getattr(part, name))
            for name in ("left", "right"):
                getattr(tree, name).extend(child + start if child >= 0 else -1 for child in getattr(part, name))
            tree.sets |= {node + start: codes for node, codes in part.sets.items()}
        return tree

    def _add(
        self,
        feature: int,
        test: int,
        threshold: float = 0.0,
        default: bool = False,
        missing: int = 0,
        value: float = 0.0,
    ) -> int:
        self.feature.append(feature)
        self.test.append(int(test))
        self.threshold.append(threshold)
        self.left.append(-1)
        self.right.append(-1)
        self.default_left.append(default)
        self.missing.append(missing)
        self.value.append(value)
        return len(self.test) - 1

    def _copy(self, ensemble: TreeEnsemble, node: int) -> int:
        if ensemble.test[node] == Test.LEAF:
            return self._add(-1, Test.LEAF, value=float(ensemble.value[node, 0]))
        new = self._add(
            int(ensemble.feature[node]),
            int(ensemble.test[node]),
            float(ensemble.threshold[node]),
            bool(ensemble.default_left[node]),
            int(ensemble.missing[node]),
        )
        if ensemble.test[node] == Test.IN_SET:
            self.sets[new] = tuple(sorted(ensemble.set_of(node)))
        self.left[new] = self._copy(ensemble, int(ensemble.left[node]))
        self.right[new] = self._copy(ensemble, int(ensemble.right[node]))
        return new
