"""ExpGA (explanation-guided genetic algorithm, Fan et al. 2022): seeds by explanation, then a genetic search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boxqte.testers.coordinates import FloatArray
from boxqte.testers.lime import Explainer
from boxqte.testers.session import Session
from boxqte.testers.tester import Tester

EMPTY_SLICE = 0.71  # how often the published crossover copies nothing
FRUITLESS = 20  # rounds of sampling without a seed, after which a run without time limit ends


class ExpGA(Tester):
    """Seeds in which the sensitive attribute matters by explanation, then a genetic search from them (ExpGA)."""

    name = "expga"
    options: Options

    @dataclass(frozen=True)
    class Options:
        """Options of ExpGA."""

        samples: int = 1000
        """Random inputs that are explained to find seeds."""
        seeds: int = 100
        """Enough seeds."""
        rank: int | None = None
        """An input is a seed if fewer attributes than this matter more than the sensitive one; none: half of them."""
        perturbations: int = 5000
        """Rows behind an explanation."""
        population: int | None = None
        """Inputs in a generation; none: as many as seeds, and 20 times as many in batch mode."""
        crossover: float = 0.9
        """The probability that an input takes a slice of attributes from another."""
        mutation: float = 0.05
        """The probability that an attribute is drawn anew."""

    def search(self, session: Session) -> None:
        """Find seeds, then breed."""
        seeds = self._seeds(session)
        if not len(seeds):
            return
        size = self.options.population or len(seeds) * (20 if self.batch else 1)
        population = seeds[np.arange(size) % len(seeds)] if size > len(seeds) else seeds[:size]
        session.details |= {"seeds": len(seeds), "generations": 0}
        while True:
            session.details["generations"] += 1
            fitness = self._evaluate(session, population)
            population = population[: len(fitness)]
            population = self._breed(session, population, fitness, size)

    def _seeds(self, session: Session) -> FloatArray:
        """Inputs with the lowest sensitive value in which the sensitive attribute is among those that matter most."""
        options, at = self.options, session.at
        limit = options.rank if options.rank is not None else (len(at) + 1) // 2
        explainer = Explainer(session, session.data(options.samples), options.perturbations)
        rounds = 0
        while session.timed or rounds < FRUITLESS:
            rounds += 1
            # The published code writes 0, whether or not the domain has a 0.
            lowest = 0.0 if self.variant == "faithful" else at.low[at.sensitive]
            x = at.with_sensitive(at.draw(session.rng, options.samples), lowest)
            labels = session.labels(x)
            seeds = []
            for row, label in zip(x, labels.tolist()):
                session.check()
                if not self.batch:
                    explainer.refresh()  # the original draws and labels new rows for each explanation
                weight = np.abs(explainer.weights(row, label))
                if int((weight > weight[at.sensitive]).sum()) < limit:
                    seeds.append(row)
                    if len(seeds) == options.seeds:
                        break
            if seeds:
                return np.array(seeds)
        return np.zeros((0, len(at)))

    def _evaluate(self, session: Session, population: FloatArray) -> FloatArray:
        """Test a generation; each input's fitness. Fewer than given come back if the budget of tests ends there.

        3 at the first flip of a new input, else 2 * (whether the last sensitive value flips it) + 1.
        """
        x = population[: session.room(len(population))]
        if not self.batch:
            return np.concatenate([self._evaluate_one(session, row[None]) for row in x])
        at, values = session.at, session.at.values
        session.tests += len(x)
        rows = at.with_sensitive(np.repeat(x, len(values), axis=0), np.tile(values, len(x)))
        answers = session.labels(rows).reshape(len(x), -1)
        own = np.rint(x[:, at.sensitive] - values[0]).astype(np.int64)
        if (own >= 0).all():
            labels = answers[np.arange(len(x)), own]
        else:  # faithful: 0 outside the domain
            labels = session.labels(x)
        flips = answers != labels[:, None]
        new = np.zeros(len(x), bool)
        idi = np.flatnonzero(flips.any(axis=1))
        if len(idi):
            new[idi] = session.found(x[idi], values[flips[idi].argmax(axis=1)])
        return np.where(new, 3.0, 2.0 * flips[:, -1] + 1.0)

    def _evaluate_one(self, session: Session, x: FloatArray) -> FloatArray:
        session.room(1)
        session.tests += 1
        label = session.labels(x)[0]
        old = session.known(x)[0]
        fitness = 1.0
        for value in session.at.values:
            if value == x[0, session.at.sensitive]:
                fitness = 1.0
                continue
            differs = session.labels(session.at.with_sensitive(x, value))[0] != label
            fitness = 2.0 * differs + 1.0
            if differs and not old:
                session.found(x, np.array([value]))
                return np.array([3.0])
        return np.array([fitness])

    def _breed(self, session: Session, population: FloatArray, fitness: FloatArray, size: int) -> FloatArray:
        """Select by fitness, cross, mutate."""
        rng, at = session.rng, session.at
        n, width = size, len(at)
        chosen = population[rng.choice(len(population), n, p=fitness / fitness.sum())]
        # Crossover: copy a slice of a random mate; the fixed variant's slice is never empty.
        mate = chosen[rng.integers(0, n, n)]
        ends = np.sort(np.argsort(rng.random((n, width + 1)), axis=1)[:, :2], axis=1)
        crossed = rng.random(n) < self.options.crossover
        if self.variant == "faithful":
            crossed &= rng.random(n) >= EMPTY_SLICE
        genes = np.arange(width)
        copied = crossed[:, None] & (genes >= ends[:, :1]) & (genes < ends[:, 1:])
        child = np.where(copied, mate, chosen)
        # Mutation: draw the attribute anew. The published one never draws the highest value.
        fresh = at.draw(rng, n)
        if self.variant == "faithful":
            below = np.tile(np.where(at.integral, np.maximum(at.high - 1, at.low), at.high), (n, 1))
            fresh = np.where(fresh == at.high, at.draw_box(rng, np.tile(at.low, (n, 1)), below), fresh)
        mutated = rng.random((n, width)) < self.options.mutation
        mutated[:, at.sensitive] = False  # every sensitive value is asked anyway
        return np.where(mutated, fresh, child)
