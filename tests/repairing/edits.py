"""Random edits of an ensemble: nodes replaced by one of their children, other leaf values, copies of trees put together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble
from tests.conformance.suite import boundary_rows


def pruned(ensemble: TreeEnsemble, rng: np.random.Generator, share: float = 0.2) -> TreeEnsemble:
    """A share of the inner nodes is replaced by one of their children."""
    goes = {int(n): int(rng.choice([ensemble.left[n], ensemble.right[n]]))
            for n in np.flatnonzero(ensemble.test != Test.LEAF) if rng.random() < share}  # fmt: skip
    return rebuilt(ensemble, goes)


def rebuilt(ensemble: TreeEnsemble, goes: dict[int, int]) -> TreeEnsemble:
    """The ensemble with each node in `goes` replaced by the node that it says."""
    builder = EnsembleBuilder()
    for t, root in enumerate(ensemble.roots.tolist()):
        nodes: list[int] = []
        children: list[list[int]] = []

        def add(node: int, nodes: list[int] = nodes, children: list[list[int]] = children) -> int:
            while node in goes:
                node = goes[node]
            at = len(nodes)
            nodes.append(node)
            children.append([-1, -1])
            if ensemble.test[node] != Test.LEAF:
                children[at] = [add(int(ensemble.left[node])), add(int(ensemble.right[node]))]
            return at

        add(root)
        old = np.array(nodes)
        builder.add_tree(
            feature=ensemble.feature[old], test=ensemble.test[old], threshold=ensemble.threshold[old],
            left=[left for left, _ in children], right=[right for _, right in children], value=ensemble.value[old],
            default_left=ensemble.default_left[old], missing=ensemble.missing[old],
            sets={at: sorted(ensemble.set_of(n)) for at, n in enumerate(nodes) if ensemble.test[n] == Test.IN_SET},
            node_id=ensemble.node_id[old], output=int(ensemble.tree_output[t]),
        )  # fmt: skip
    return with_trees_of(builder, ensemble)


def with_trees_of(builder: EnsembleBuilder, ensemble: TreeEnsemble) -> TreeEnsemble:
    built = builder.build(library=ensemble.library, feature_names=ensemble.feature_names, base=ensemble.base,
                          link=ensemble.link, classes=ensemble.classes)  # fmt: skip
    arrays = {name: getattr(built, name) for name in built._arrays()}
    return replace(ensemble, **arrays)


def revalued(ensemble: TreeEnsemble, rng: np.random.Generator, low: float = -1.5, high: float = 1.5) -> TreeEnsemble:
    """Other values in half of the leaves; some have many digits, some are whole numbers."""
    value = ensemble.value.copy()
    chosen = np.flatnonzero((ensemble.test == Test.LEAF) & (rng.random(ensemble.n_nodes) < 0.5))
    value[chosen] = rng.uniform(low, high, (len(chosen), value.shape[1]))
    whole = chosen[rng.random(len(chosen)) < 0.1]
    value[whole] = np.clip(np.round(value[whole]), low, high)
    return replace(ensemble, value=value)


def edits(ensemble: TreeEnsemble, seed: int, **limits: Any) -> list[TreeEnsemble]:
    """The ensemble itself, other values alone, other trees alone, and both."""
    rng = np.random.default_rng(seed)
    return [ensemble, revalued(ensemble, rng, **limits), pruned(ensemble, rng), revalued(pruned(ensemble, rng), rng, **limits),
            revalued(pruned(ensemble, rng, 1.0), rng, **limits)]  # fmt: skip


def some_boundary_rows(ensemble: TreeEnsemble, count: int, **options: Any) -> np.ndarray:
    """Some of the conformance suite's rows: at the boundaries of splits, and random ones."""
    rows = boundary_rows(ensemble, n_random=count // 2, **options)
    return rows[np.random.default_rng(len(rows)).permutation(len(rows))[:count]]
