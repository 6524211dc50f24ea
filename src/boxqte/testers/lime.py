"""Local linear explanations of a black box (after LIME, Ribeiro et al. 2016), as ExpGA needs them: which attribute matters.

Rows are drawn around the mean of the data, labelled, and a ridge regression weighted by the distance from the explained
input is fitted to the labels. Attributes are not made discrete. Two things differ from the library of that name: rows
are moved to the nearest input of the space, since a black box may refuse others, and the labels stand in for
probabilities, since a black box gives no more.
"""

from __future__ import annotations

import numpy as np

from boxqte.testers.coordinates import FloatArray
from boxqte.testers.session import Session

RIDGE = 1.0
WIDTH = 0.75  # of the kernel, in units of the square root of the number of attributes


class Explainer:
    """Explains single inputs by the weights of a local linear model."""

    def __init__(self, session: Session, data: FloatArray, rows: int):
        self._session = session
        self._mean = data.mean(axis=0)
        spread = data.std(axis=0)
        self._scale = np.where(spread > 0, spread, 1.0)
        self._rows = rows
        self.refresh()

    def refresh(self) -> None:
        """Draw and label new rows."""
        session = self._session
        noise = session.rng.standard_normal((self._rows - 1, len(self._mean)))
        x = session.at.snap(noise * self._scale + self._mean)
        labels = session.labels(x)
        # Several classes: the most frequent one against the rest.
        values, counts = np.unique(labels, return_counts=True)
        self._class = int(values[counts.argmax()])
        self._scaled = (x - self._mean) / self._scale
        self._truth = (labels != self._class).astype(np.float64)

    def weights(self, x: FloatArray, label: int) -> FloatArray:
        """The weight of each attribute in the linear model around one input with that label."""
        here = (x - self._mean) / self._scale
        rows = np.concatenate([here[None], self._scaled])
        truth = np.concatenate([[float(label != self._class)], self._truth])
        width = WIDTH * np.sqrt(len(x))
        kernel = np.exp(-((rows - here) ** 2).sum(axis=1) / width**2) ** 0.5
        total = kernel.sum()
        rows = rows - kernel @ rows / total
        truth = truth - kernel @ truth / total
        normal = (rows * kernel[:, None]).T @ rows + RIDGE * np.eye(len(x))
        solved: FloatArray = np.linalg.solve(normal, (rows * kernel[:, None]).T @ truth)
        return solved
