"""Refit: the trees stay, their leaves move until the requirement is proved. For epsilon > 0 and robustness.

A loop: measure; draw counterexamples with partners and keep all earlier ones; say on which side each should lie, by what the
model says around it; fit the leaves to the original's probabilities and to these sides. In the end as little of the change
as is enough. It chases the measure and may reach it away from the data (Goodhart): rows are reported beside the space.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from boxqte.answers.verdict import Verdict
from boxqte.models.ensemble import FloatArray, TreeEnsemble
from boxqte.questions.building import match_columns
from boxqte.repairing.fitting import Leaves, Penalty, fit, levels, probability, squares
from boxqte.repairing.goals import Goal, pairs_of
from boxqte.repairing.shares import Shares
from boxqte.repairing.trees import sensitive_features
from boxqte.repairing.workshop import Candidate, Workshop

ROUNDS = 15
PAIRS = 2000
NEIGHBOURS = 48
AROUND = 2.5
"""How far neighbours lie from a point, in tolerances."""
FIRST_WEIGHT = 0.3
LITTLE = Fraction(15, 100)
"""A round that closes less than this of what was missing doubles the weight of the sides."""
HINGE = 0.1
MEAN_SCALE = 4.0  # a margin of a mean of trees is a probability; near 1/2, p changes by a quarter of a boosted margin
KEPT = ("values", "x", "other", "side", "moves")
ROUND_SECONDS = 60.0  # for measuring in one round: what is found by then is enough to draw from


class Refit:
    """Leaf values that grow towards a requirement, round by round; a path of levels goes on where the last one ended."""

    def __init__(self, shop: Workshop, start: TreeEnsemble):
        self.shop = shop
        self.leaves = Leaves.of(start)
        self.first = self.leaves.values
        self.values = self.first.copy()
        self.matrix = self.leaves.matrix(shop.X)
        self.target = probability(shop.ensemble, shop.ensemble.margin(shop.X)[:, 0])
        self.weight, self.round = FIRST_WEIGHT, 0
        self.missing: Fraction | None = None
        self.x = np.zeros((0, shop.X.shape[1]))
        self.other = self.x.copy()
        self.side = np.zeros(0)
        self.moves = np.zeros(0, bool)

    def reached(self, goals: Sequence[Goal]) -> Candidate | None:
        """Leaves that meet the goals, changed no more than needed; None after the last round."""
        low, rounds = self._resumed(goals)
        while True:
            self.shop.say("refit", "measuring", self.round)
            found = self.shop.try_out(
                self.leaves.with_values(self.values),
                goals=goals,
                until_decided=False,
                most=ROUND_SECONDS,
                round_=self.round,
                method="refit",
            )
            if found.met:
                return found if rounds == 0 else self._back(low, goals, found)
            if rounds == ROUNDS:
                return None
            rounds += 1
            self.round += 1
            self._one_round(found)
            self._keep(goals, low, rounds)

    def _one_round(self, found: Candidate) -> None:
        shop, missing = self.shop, found.distance
        if self.missing is not None and missing > (1 - LITTLE) * self.missing:
            self.weight *= 2
        self.missing = missing
        for measure in found.measures:
            if measure.verdict is Verdict.HOLDS:
                continue
            x, other = pairs_of(
                found.written.imported, measure, shop.world, PAIRS, shop.rng, shop.asking.limits.workers
            )
            if not len(x):
                continue
            moves = measure.goal.moves(shop.world.space)
            self.x, self.other = np.vstack([self.x, x]), np.vstack([self.other, other])
            self.side = np.concatenate([self.side, self._sides(x, measure.goal)])
            self.moves = np.concatenate([self.moves, np.full(len(x), moves)])
        shop.say("refit", f"fitting to {len(self.x):,} pairs", self.round)
        fitted = fit(self.leaves, self.matrix, self.target, self.values, self.first, self._penalty())
        self.values, shop.loss = fitted.values, fitted.loss

    def _back(self, low: FloatArray, goals: Sequence[Goal], found: Candidate) -> Candidate:
        """As little as is enough of the way from the leaves at the start to those at the end."""
        high = self.values

        def mixed(share: Fraction) -> tuple[TreeEnsemble, None]:
            part = float(share)
            return self.leaves.with_values((1 - part) * low + part * high), None

        keeper, self.shop.keeper = self.shop.keeper, None  # shares of these leaves mean nothing to another run
        try:
            shares = Shares(self.shop, mixed, "refit")
            k = shares.smallest(goals)
            return found if k is None else shares.candidate(k, goals)
        finally:
            self.shop.keeper = keeper

    def _penalty(self) -> Penalty:
        """mean max(0, HINGE - t F)^2 on both points of pairs that may differ anywhere; the squared difference of the
        margins on pairs that differ in S alone."""
        leaves, weight = self.leaves, self.weight
        scale = MEAN_SCALE if leaves.ensemble.link == "mean" else 1.0
        factor = float(leaves.ensemble.factor) * scale
        moves, n = self.moves, max(len(self.moves), 1)
        points = np.vstack([self.x[moves], self.other[moves]])
        sides = np.tile(self.side[moves], 2)
        at = leaves.matrix(points)
        level = scale * levels(leaves.ensemble, points)
        fixed = leaves.matrix(self.x[~moves]) - leaves.matrix(self.other[~moves])
        turned: Any = at.T.tocsr()
        back: Any = fixed.T.tocsr()

        def penalty(values: FloatArray) -> tuple[float, FloatArray]:
            short = np.maximum(0.0, HINGE - sides * (scale * leaves.margins(at, values) - level))
            apart = factor * (fixed @ values)
            total = weight / n * (squares(short) / 2 + squares(apart))
            slope = -(weight / n) * factor * (turned @ (short * sides))
            return total, slope + 2 * weight / n * factor * (back @ apart)

        return penalty

    def _sides(self, x: FloatArray, goal: Goal) -> FloatArray:
        """The side of each point: what the original says around it, on average over neighbours and sensitive values."""
        shop, space = self.shop, self.shop.world.space
        model, rng = shop.ensemble, shop.rng
        scale = MEAN_SCALE if model.link == "mean" else 1.0
        tolerances = goal.property.tolerances(space)
        owner = match_columns(model, space, space.names)
        sensitive = sorted(sensitive_features(model, space, goal.property.sensitive))
        near = np.repeat(x, NEIGHBOURS, axis=0)
        if sensitive:
            near[:, sensitive] = shop.X[rng.integers(0, len(shop.X), len(near))][:, sensitive]
        for f, (at, _) in enumerate(owner):
            attribute = space.attributes[at]
            reach = AROUND * float(tolerances.get(attribute.name, 0))
            if reach and attribute.is_numeric:
                moved = near[:, f] + rng.uniform(-reach, reach, len(near))
                moved = np.rint(moved) if attribute.kind == "integer" else moved
                near[:, f] = np.clip(moved, float(attribute.low), float(attribute.high))
        said = np.tanh(2 * scale * (model.margin(near)[:, 0] - levels(model, near)))
        total = said.reshape(len(x), NEIGHBOURS).sum(axis=1)
        return np.where(total >= 0, 1.0, -1.0)

    # --- checkpoints: the last round of every level ---

    def _keep(self, goals: Sequence[Goal], low: FloatArray, rounds: int) -> None:
        keeper = self.shop.keeper
        if keeper is None:
            return
        level = _level(goals)
        keeper.state.setdefault("refit", {})[level] = {
            "round": self.round,
            "rounds": rounds,
            "weight": self.weight,
            "missing": str(self.missing),
            "random": self.shop.rng.bit_generator.state,
        }
        arrays = {name: getattr(self, name) for name in KEPT} | {"low": low}
        keeper.arrays |= {f"{level} {name}": array for name, array in arrays.items()}
        keeper.save()

    def _resumed(self, goals: Sequence[Goal]) -> tuple[FloatArray, int]:
        """Where the level began and how many rounds it had, after going on from what is kept of it, if anything is."""
        keeper, level = self.shop.keeper, _level(goals)
        if keeper is None or level not in keeper.state.get("refit", {}):
            return self.values.copy(), 0
        state = keeper.state["refit"][level]
        for name in KEPT:
            setattr(self, name, keeper.arrays[f"{level} {name}"])
        self.round, self.weight, self.missing = state["round"], state["weight"], Fraction(state["missing"])
        self.shop.rng.bit_generator.state = state["random"]
        return keeper.arrays[f"{level} low"], int(state["rounds"])


def _level(goals: Sequence[Goal]) -> str:
    return " ".join(str(goal.at_least) for goal in goals)
