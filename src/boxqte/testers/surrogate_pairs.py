"""Pairs that a surrogate treats unfairly, drawn from its counterexample space, by one of two ways.

Regions: the box engine quantifies the surrogate, and `Result.sample` draws from the regions that it found.

Walk, where the engine found no region in the time it was given: a walker is an input that some sensitive value flips; a
step draws one to three of its attributes anew and is taken if the input still flips. Steps are as likely as their
reverses, so walkers spread over the counterexamples by the space's own measure. Walkers begin where random inputs flip.

A surrogate errs most where it is unsure. So a flip counts only if the margins on both of its sides are at least
`strength`, at first the upper quartile of random flips. It falls to 0 once too little that is new is drawn: then the
sure part of the space is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from boxqte.answers.result import Result
from boxqte.answers.samples import sample
from boxqte.testers.coordinates import BoolArray, FloatArray, IntArray
from boxqte.testers.session import Session

Margin = Callable[[FloatArray], FloatArray]
Drawn = tuple[FloatArray, FloatArray, BoolArray]

WALKERS = 4096
FIRST_DRAWS = 2**14  # random inputs that are tried at once
MOST_DRAWS = 2**17
ENOUGH = 64
SURE = 0.75  # of the random flips are weaker than those that count
WARM_UP = 8  # steps before walkers that began at the same input count
MOST_VALUES = 16  # sensitive values that are tried at once
CHUNK = 16_384
STUCK = 20  # steps without a new input, after which the surrogate has no more to give


class Pairs:
    """Walkers that outlive the surrogates they walk on.

    Attributes
    ----------
    sure
        Whether only flips that the surrogate is sure of count; set to False once those are used up.
    strength
        The least margin on both sides of a flip.
    """

    def __init__(self, session: Session):
        self.at, self.rng, self._check = session.at, session.rng, session.check
        self.sure = True
        self.strength = 0.0
        self._walkers = np.zeros((0, len(session.at)))
        self._drawn: set[Any] = set()

    def draw(self, margin: Margin, n: int, regions: Result | None = None) -> Iterator[Drawn]:
        """About n pairs in chunks: inputs, their partners, and the surrogate's answers to the inputs."""
        if regions is None:
            yield from self._walk(margin, n)
        else:
            yield from self._from_regions(margin, n, regions)

    def _from_regions(self, margin: Margin, n: int, result: Result) -> Iterator[Drawn]:
        """Draws from the regions of a result; the weaker ones are left out while sure ones are to be had."""
        at, left, stuck = self.at, n, 0
        while left > 0 and stuck < STUCK:
            self._check()
            wanted = min(CHUNK, 2 * left)
            seed = int(self.rng.integers(2**31))
            drawn = sample(result, wanted, random_state=seed, replay=False, workers=1)
            one, two = (at.from_columns(table.to_numpy(np.float64)) for table in (drawn.x, drawn.witness))
            first, second = margin(one), margin(two)
            guess = first > 0
            strength = np.minimum(np.abs(first), np.abs(second))
            good = guess != (second > 0)
            if self.sure:
                good &= strength >= np.quantile(strength, SURE)
            part = self._new((one[good], two[good], guess[good]))
            stuck = 0 if 20 * len(part[0]) > good.sum() else stuck + 1
            part = (part[0][:left], part[1][:left], part[2][:left])
            left -= len(part[0])
            if len(part[0]):
                yield part
        if left > 0:
            self.sure = False

    def _walk(self, margin: Margin, n: int) -> Iterator[Drawn]:
        self._begin(margin)
        left = n if len(self._walkers) else 0
        stuck = 0
        while left > 0 and stuck < STUCK:
            parts: list[Drawn] = []
            size = 0
            while size < min(CHUNK, left) and stuck < STUCK:
                self._check()
                part = self._new(self._step(margin))
                stuck = 0 if len(part[0]) else stuck + 1
                parts.append(part)
                size += len(part[0])
            one, two, guess = (np.concatenate([part[i] for part in parts])[:left] for i in range(3))
            left -= len(one)
            if len(one):
                yield one, two, guess
        if left > 0:
            self.sure = False

    def _new(self, part: Drawn) -> Drawn:
        """The pairs of inputs that were not drawn before, whatever their sensitive value: no test is made twice."""
        new = []
        for i, key in enumerate(self.at.keys(part[0])):
            if key not in self._drawn:
                self._drawn.add(key)
                new.append(i)
        return part[0][new], part[1][new], part[2][new]

    def _begin(self, margin: Margin) -> None:
        """Keep the walkers that the surrogate flips, and find new ones."""
        self.strength = 0.0
        if self.sure:
            self.strength = float(np.quantile(self._strengths(margin, self.at.draw(self.rng, FIRST_DRAWS)), SURE))
        walkers = [self._flipping(margin, self._walkers)[0]] if len(self._walkers) else []
        for _ in range(0, MOST_DRAWS, FIRST_DRAWS):  # some new ones always, many if there are too few
            self._check()
            walkers.append(self._flipping(margin, self.at.draw(self.rng, FIRST_DRAWS))[0])
            if sum(map(len, walkers)) >= ENOUGH:
                break
        everyone = np.concatenate(walkers)
        if not len(everyone):
            self._walkers = everyone
            return
        if len(everyone) > WALKERS:
            everyone = everyone[self.rng.choice(len(everyone), WALKERS, replace=False)]
        self._walkers = everyone[np.arange(WALKERS) % len(everyone)]
        for _ in range(WARM_UP):
            self._step(margin)

    def _step(self, margin: Margin) -> Drawn:
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
