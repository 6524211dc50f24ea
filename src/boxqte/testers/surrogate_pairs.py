"""Pairs that a surrogate treats unfairly, drawn from its counterexample space.

A random walk: a walker is an input that some sensitive value flips; a step draws one to three of its attributes anew and
is taken if the input still flips. Steps are as likely as their reverses, so walkers spread over the counterexamples by
the space's own measure. Walkers begin where random inputs flip.

A surrogate errs most where it is unsure. So a flip counts only if the margins on both of its sides are at least
`strength`, at first the upper quartile of random flips. It falls to 0 once the true model's flips are mostly old ones: then
the sure part of the space is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from boxqte.testers.coordinates import BoolArray, FloatArray, IntArray
from boxqte.testers.session import Session

Margin = Callable[[FloatArray], FloatArray]

WALKERS = 4096
FIRST_DRAWS = 2**14  # random inputs that are tried at once
MOST_DRAWS = 2**20
ENOUGH = 64
SURE = 0.75  # of the random flips are weaker than those that count
WARM_UP = 8  # steps before walkers that began at the same input count
MOST_VALUES = 16  # sensitive values that are tried at once
CHUNK = 16_384


class Pairs:
    """Walkers that outlive the surrogates they walk on.

    Attributes
    ----------
    found
        Whether the last surrogate had any pair.
    sure
        Whether only flips that the surrogate is sure of count; set to False once those are used up.
    strength
        The least margin on both sides of a flip.
    """

    def __init__(self, session: Session):
        self.at, self.rng, self._check = session.at, session.rng, session.check
        self.found = False
        self.sure = True
        self.strength = 0.0
        self._walkers = np.zeros((0, len(session.at)))

    def draw(self, margin: Margin, n: int) -> Iterator[tuple[FloatArray, FloatArray, BoolArray]]:
        """About n pairs in chunks: inputs, their partners, and the surrogate's answers to the inputs."""
        self._begin(margin)
        self.found = len(self._walkers) > 0
        left = n if self.found else 0
        stuck = 0
        while left > 0 and stuck < 100:
            parts: list[tuple[FloatArray, FloatArray, BoolArray]] = []
            size = 0
            while size < min(CHUNK, left) and stuck < 100:
                self._check()
                part = self._step(margin)
                stuck = 0 if len(part[0]) else stuck + 1
                parts.append(part)
                size += len(part[0])
            one, two, guess = (np.concatenate([part[i] for part in parts])[:left] for i in range(3))
            left -= len(one)
            if len(one):
                yield one, two, guess

    def _begin(self, margin: Margin) -> None:
        """Keep the walkers that the surrogate flips, and find new ones."""
        self.strength = 0.0
        if self.sure:
            self.strength = float(np.quantile(self._strengths(margin, self.at.draw(self.rng, FIRST_DRAWS)), SURE))
        walkers = [self._flipping(margin, self._walkers)[0]] if len(self._walkers) else []
        fresh = 0
        draws, total = FIRST_DRAWS, 0
        while fresh < ENOUGH and total < MOST_DRAWS:
            self._check()
            hit = self._flipping(margin, self.at.draw(self.rng, draws))[0]
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
            self._step(margin)

    def _step(self, margin: Margin) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Move every walker that can; the pairs at the walkers that moved."""
        at, rng, n = self.at, self.rng, len(self._walkers)
        fresh = at.draw(rng, n)
        changed = rng.integers(1, min(3, max(len(at.others), 1)) + 1, n)
        rank = np.argsort(np.argsort(rng.random((n, len(at.others))), axis=1), axis=1)
        mask = np.zeros((n, len(at)), bool)
        mask[:, at.others] = rank < changed[:, None]
        moved = np.where(mask, fresh, self._walkers)
        same = (moved == self._walkers).all(axis=1)
        one, two, guess, rows = self._flipping(margin, moved[~same])
        self._walkers[np.flatnonzero(~same)[rows]] = one
        return one, two, guess

    def _margins(self, margin: Margin, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sensitive values, and the surrogate's margin for each input and each of them."""
        values = self.at.values
        if len(values) > MOST_VALUES:
            values = self.rng.choice(values, MOST_VALUES, replace=False)
        rows = self.at.with_sensitive(np.repeat(x, len(values), axis=0), np.tile(values, len(x)))
        return values, margin(rows).reshape(-1, len(values))

    def _strengths(self, margin: Margin, x: FloatArray) -> FloatArray:
        """The smaller margin of the surest flip of each input that flips; 0 if none does."""
        _, margins = self._margins(margin, x)
        strengths: FloatArray = np.minimum(margins.max(axis=1), -margins.min(axis=1))
        return strengths[strengths > 0] if (strengths > 0).any() else np.zeros(1)

    def _flipping(self, margin: Margin, x: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray, IntArray]:
        """The inputs that flip on the surrogate: with a random sensitive value, their partners, answers and rows."""
        at, rng = self.at, self.rng
        values, margins = self._margins(margin, x)
        yes, no = margins > self.strength, margins <= -self.strength
        hit = np.flatnonzero(yes.any(axis=1) & no.any(axis=1))
        yes, no = yes[hit], no[hit]
        guess = rng.random(len(hit)) < 0.5
        # A random one of the values on the guessed side, and one on the other.
        own = np.where(np.where(guess[:, None], yes, no), rng.random(yes.shape), -1.0).argmax(axis=1)
        other = np.where(np.where(guess[:, None], no, yes), rng.random(yes.shape), -1.0).argmax(axis=1)
        one = at.with_sensitive(x[hit], values[own])
        return one, at.with_sensitive(one, values[other]), guess, hit
