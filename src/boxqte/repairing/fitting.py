"""Fitting leaf values: F is linear in the leaves, so a model with new leaves is close to another by convex optimisation.

`distilled` fits them to the original model's own probabilities, not to labels: labels would be learned by heart (the
trees have seen these rows), and decisions would change that nothing asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.ensemble import FloatArray, Test, TreeEnsemble
from boxqte.repairing.trees import with_values

RIDGE = 10.0
"""How many rows' worth the old value of a leaf is."""
MEAN_CURVATURE = 0.25  # of a squared error of a mean of trees, beside that of cross-entropy at p = 1/2
MAX_STEPS = 300

Penalty = Callable[[FloatArray], tuple[float, FloatArray]]


def scipy_parts() -> tuple[Any, Any]:
    """`scipy.sparse` and `scipy.optimize.minimize`."""
    try:
        from scipy import sparse
        from scipy.optimize import minimize
    except ImportError:
        raise ModelError("repair needs SciPy: pip install 'boxqte[repair]'") from None
    return sparse, minimize


@dataclass(frozen=True, eq=False)
class Leaves:
    """The leaves of an ensemble as unknowns."""

    ensemble: TreeEnsemble
    nodes: npt.NDArray[np.intp]
    column: npt.NDArray[np.int64]
    """By node its number among the leaves; -1 for others."""

    @classmethod
    def of(cls, ensemble: TreeEnsemble) -> Leaves:
        nodes = np.flatnonzero(ensemble.test == Test.LEAF)
        column = np.full(ensemble.n_nodes, -1, np.int64)
        column[nodes] = np.arange(len(nodes))
        return cls(ensemble, nodes, column)

    @property
    def values(self) -> FloatArray:
        found: FloatArray = self.ensemble.value[self.nodes, 0].copy()
        return found

    def with_values(self, values: FloatArray) -> TreeEnsemble:
        return with_values(self.ensemble, self.nodes, values)

    def matrix(self, X: FloatArray) -> Any:
        """Which leaves each row reaches: rows x leaves, sparse."""
        sparse, _ = scipy_parts()
        reached = self.column[self.ensemble.leaves(X)]
        starts = np.arange(0, reached.size + 1, reached.shape[1])
        return sparse.csr_matrix((np.ones(reached.size), reached.ravel(), starts), (len(reached), len(self.nodes)))

    def margins(self, matrix: Any, values: FloatArray) -> FloatArray:
        """The margin of every row of `matrix`."""
        model = self.ensemble
        shift = 0.5 if model.link == "mean" else 0.0
        found: FloatArray = float(model.factor) * (matrix @ values + float(model.base[0])) - shift
        return found


def probability(ensemble: TreeEnsemble, margins: FloatArray) -> FloatArray:
    """p of class 1 at a margin."""
    if ensemble.link == "mean":
        return margins + 0.5
    return np.asarray(0.5 * (1 + np.tanh(margins / 2)))


def levels(ensemble: TreeEnsemble, X: FloatArray) -> FloatArray:
    """The margin at which class 1 begins, for rows in the model's columns."""
    rule = ensemble.decision
    if rule is None:
        return np.zeros(len(X))
    ends = [rule.level(i, ensemble.link) for i in range(len(rule.thresholds))]
    found = np.array([np.log(float(odds)) + float(offset) for odds, offset in ends])
    return np.full(len(X), found[0]) if rule.attribute is None else found[X[:, -1].astype(np.int64)]


def squares(values: FloatArray) -> float:
    """The sum of squares; not as a product of vectors, for which BLAS wakes up threads that wait for each other."""
    return float(np.square(values).sum())


@dataclass(frozen=True, eq=False)
class Fitted:
    values: FloatArray
    loss: float


def fit(
    leaves: Leaves,
    matrix: Any,
    target: FloatArray,
    start: FloatArray,
    anchor: FloatArray,
    penalty: Penalty | None = None,
) -> Fitted:
    """min CE(target, p) + RIDGE / (2n) |values - anchor|^2 + penalty, from `start` on; a squared error for a mean of trees.

    `penalty` gives a value and a gradient. Of a mean of trees the leaves stay probabilities.
    """
    _, minimize = scipy_parts()
    model, n = leaves.ensemble, matrix.shape[0]
    transposed, factor = matrix.T.tocsr(), float(model.factor)
    is_mean = model.link == "mean"

    def objective(values: FloatArray) -> tuple[float, FloatArray]:
        margin = leaves.margins(matrix, values)
        if is_mean:  # in units of the sum of the trees, so that the ridge means as much as in boosted models
            off = (margin + 0.5 - target) / factor
            loss, slope = MEAN_CURVATURE * squares(off) / (2 * n), MEAN_CURVATURE * off / n
        else:
            loss = float(np.sum(np.logaddexp(0.0, margin) - target * margin)) / n
            slope = factor * (probability(model, margin) - target) / n
        away = values - anchor
        total = loss + RIDGE / (2 * n) * squares(away)
        gradient = transposed @ slope + RIDGE / n * away
        if penalty is not None:
            more, own = penalty(values)
            total, gradient = total + more, gradient + own
        return total, gradient

    bounds = [(0.0, 1.0)] * len(start) if is_mean else None
    options = {"maxiter": MAX_STEPS, "maxfun": 2 * MAX_STEPS}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return Fitted(np.asarray(found.x, np.float64), float(found.fun))


def distilled(edited: TreeEnsemble, original: TreeEnsemble, X: FloatArray) -> tuple[TreeEnsemble, float]:
    """The edited trees with leaves fitted to the original model's probabilities on the rows; and the loss."""
    leaves = Leaves.of(edited)
    target = probability(original, original.margin(X)[:, 0])
    values = leaves.values
    found = fit(leaves, leaves.matrix(X), target, values, values)
    return leaves.with_values(found.values), found.loss
