"""Pairs that a surrogate treats unfairly, drawn from its counterexample space.

A random walk: a walker is an input that some sensitive value flips; a step draws one to three of its attributes anew and
is taken if the input still flips. Steps are as likely as their reverses, so walkers spread over the counterexamples by
the space's own measure. Walkers begin where random inputs flip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from boxqte.testers.coordinates import BoolArray, FloatArray
from boxqte.testers.session import Session

Predict = Callable[[FloatArray], BoolArray]

WALKERS = 4096
FIRST_DRAWS = 2**14  # random inputs that are tried at once
MOST_DRAWS = 2**20
ENOUGH = 64
WARM_UP = 8  # steps before walkers that began at the same input count
MOST_VALUES = 16  # sensitive values that are tried at once
CHUNK = 16_384


class Pairs:
    """Walkers that outlive the surrogates they walk on.

    Attributes
    ----------
    found
        Whether the last surrogate had any pair.
    """

    def __init__(self, session: Session):
        self.at, self.rng, self._check = session.at, session.rng, session.check
        self.found = False
        self._walkers = np.zeros((0, len(session.at)))

    def draw(self, predict: Predict, n: int) -> Iterator[tuple[FloatArray, FloatArray, BoolArray]]:
        """About n pairs in chunks: inputs, their partners, and the surrogate's answers to the inputs."""
        self._begin(predict)
        self.found = len(self._walkers) > 0
        left = n if self.found else 0
        stuck = 0
        while left > 0 and stuck < 100:
            parts: list[tuple[FloatArray, FloatArray, BoolArray]] = []
            size = 0
            while size < min(CHUNK, left) and stuck < 100:
                self._check()
                part = self._step(predict)
                stuck = 0 if len(part[0]) else stuck + 1
                parts.append(part)
                size += len(part[0])
            one, two, guess = (np.concatenate([part[i] for part in parts])[:left] for i in range(3))
            left -= len(one)
            if len(one):
                yield one, two, guess

    def _begin(self, predict: Predict) -> None:
        """Keep the walkers that the surrogate flips, and find new ones."""
        walkers = [self._flipping(predict, self._walkers)[0]] if len(self._walkers) else []
        fresh = 0
        draws, total = FIRST_DRAWS, 0
        while fresh < ENOUGH and total < MOST_DRAWS:
            self._check()
            hit = self._flipping(predict, self.at.draw(self.rng, draws))[0]
            walkers.append(hit)
            fresh, total = fresh + len(hit), total + draws
        everyone = np.concatenate(walkers)
        if not len(everyone):
            self._walkers = everyone
            return
        if len(everyone) > WALKERS:
            everyone = everyone[self.rng.choice(len(everyone), WALKERS, replace=False)]
        self._walkers = everyone[np.arange(WALKERS) % len(everyone)]
        for _ in range(WARM_UP):
            self._step(predict)

    def _step(self, predict: Predict) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Move every walker that can; the pairs at the walkers that moved."""
        at, rng, n = self.at, self.rng, len(self._walkers)
        fresh = at.draw(rng, n)
        changed = rng.integers(1, min(3, max(len(at.others), 1)) + 1, n)
        rank = np.argsort(np.argsort(rng.random((n, len(at.others))), axis=1), axis=1)
        mask = np.zeros((n, len(at)), bool)
        mask[:, at.others] = rank < changed[:, None]
        moved = np.where(mask, fresh, self._walkers)
        same = (moved == self._walkers).all(axis=1)
        one, two, guess, rows = self._flipping(predict, moved[~same])
        self._walkers[np.flatnonzero(~same)[rows]] = one
        return one, two, guess

    def _flipping(self, predict: Predict, x: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray, FloatArray]:
        """The inputs that flip on the surrogate: with a random sensitive value, their partners, answers and rows."""
        at, rng = self.at, self.rng
        values = at.values
        if len(values) > MOST_VALUES:
            values = rng.choice(values, MOST_VALUES, replace=False)
        k = len(values)
        rows = at.with_sensitive(np.repeat(x, k, axis=0), np.tile(values, len(x)))
        answers = predict(rows).reshape(-1, k)
        hit = np.flatnonzero(answers.any(axis=1) & ~answers.all(axis=1))
        answers = answers[hit]
        own = rng.integers(0, k, len(hit))
        guess = answers[np.arange(len(hit)), own]
        # A random one of the values that the surrogate answers the other way.
        other = np.where(answers != guess[:, None], rng.random(answers.shape), -1.0).argmax(axis=1)
        one = at.with_sensitive(x[hit], values[own])
        return one, at.with_sensitive(one, values[other]), guess, hit
