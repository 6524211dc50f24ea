"""The surrogate tester: a tree ensemble stands in for the model, is quantified by boxqte, and its unfair inputs are tests.

None of the published testers has it; the paper's discussion proposes it. The model may be anything with a predict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from boxqte.importers import load_model
from boxqte.space import Attribute, Space
from boxqte.testers.coordinates import Coordinates, FloatArray, IntArray
from boxqte.testers.session import Session
from boxqte.testers.surrogate_pairs import Pairs, Predict
from boxqte.testers.variants import Variant

FRUITLESS = 20  # rounds without a pair, after which a run without time limit ends
QUANTIFY_SHARE = 0.1  # of the time may go into bounds on the surrogate's fairness
QUANTIFY_NODES = 20_000  # the same limit for runs that must repeat exactly


class Surrogate:
    """Fits a tree ensemble to the model's answers, quantifies it, and tests the inputs that it treats unfairly."""

    name = "surrogate"

    @dataclass(frozen=True)
    class Options:
        """Options of the surrogate tester."""

        library: Literal["xgboost", "lightgbm"] = "xgboost"
        """What the surrogate is fitted with."""
        points: int = 10_000
        """Random inputs that the first surrogate is fitted on."""
        trees: int = 50
        """Trees of the surrogate."""
        depth: int = 4
        """Their depth."""
        samples: int = 5000
        """Tests from the first surrogate; each later one gives twice as many, up to `largest`."""
        largest: int = 200_000
        """The most tests from one surrogate."""
        mistakes: int = 20_000
        """The most mistakes that are remembered, and learnt from, a round."""
        keep: int = 60_000
        """The most inputs that a surrogate is fitted on; the oldest mistakes go first."""
        quantify: bool = True
        """Bound the surrogate's fairness with the box engine, for the result's details."""

    def __init__(self, options: Options | None = None, *, batch: bool = True, variant: Variant = "fixed"):
        self.options = options or self.Options()
        self.batch = batch
        self.variant = variant  # nothing is published, so there is nothing to be faithful to

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.options.library,)

    def search(self, session: Session) -> None:
        """Fit, quantify, sample, ask, learn from the mistakes, repeat."""
        options, at = self.options, session.at
        session.details |= {"rounds": 0, "agreement": None, "surrogate_fairness": None}
        x = at.draw(session.rng, options.points)
        labels = session.labels(x)
        pairs = Pairs(session)
        samples, fruitless, quantifying = options.samples, 0, 0.0
        while session.timed or fruitless < FRUITLESS:
            session.check()
            session.details["rounds"] += 1
            majority = _majority(labels)
            wrong, truth = np.zeros((0, len(at))), np.zeros(0, np.int64)
            if (labels != majority).any():
                model = self._fit(session, x, labels != majority)
                predict = _predictor(model, at)
                if options.quantify and (not session.timed or quantifying < QUANTIFY_SHARE * session.seconds):
                    quantifying += self._quantify(session, model)
                wrong, truth = self._round(session, pairs, predict, majority, samples)
            if not pairs.found:  # the surrogate is fair, or nearly: look elsewhere
                fruitless += 1
                wrong = at.draw(session.rng, options.points)
                truth = session.labels(wrong)
            else:
                fruitless = 0
                samples = min(2 * samples, options.largest)
            x, labels = _remember(x, labels, wrong, truth, options.points, options.keep)

    def _round(self, session: Session, pairs: Pairs, predict: Predict, majority: int, samples: int) -> tuple[Any, Any]:
        """Test pairs from one surrogate; the points that it predicts wrongly, and their labels."""
        s = session.at.sensitive
        wrong: list[FloatArray] = []
        truth: list[IntArray] = []
        asked = mistakes = 0
        for one, two, guess in pairs.draw(predict, samples if self.batch else 1000):
            for start in range(0, len(one), len(one) if self.batch else 1):
                n = session.room(len(one) if self.batch else 1)
                x, y = one[start : start + n], two[start : start + n]
                session.tests += len(x)
                both = np.concatenate([x, y])
                labels = session.each_label(both)
                first, second = labels[: len(x)], labels[len(x) :]
                differ = first != second
                if differ.any():
                    session.found(x[differ], y[differ, s])
                if len(session.at.values) > 2 and not differ.all():
                    session.flips(x[~differ], first[~differ], y[~differ, s])
                guesses = guess[start : start + n]
                mistaken = (labels != majority) != np.concatenate([guesses, ~guesses])
                asked += len(both)
                mistakes += int(mistaken.sum())
                wrong.append(both[mistaken])
                truth.append(labels[mistaken])
        if asked:
            session.details["agreement"] = 1 - mistakes / asked
        if not wrong:
            return np.zeros((0, len(session.at))), np.zeros(0, np.int64)
        return np.concatenate(wrong)[: self.options.mistakes], np.concatenate(truth)[: self.options.mistakes]

    def _fit(self, session: Session, x: FloatArray, target: Any) -> Any:
        options = self.options
        seed = int(session.rng.integers(2**31))
        shape = {"n_estimators": options.trees, "max_depth": options.depth, "learning_rate": 0.3, "random_state": seed}
        rows = session.at.matrix(x, {})
        if options.library == "lightgbm":
            import lightgbm

            shape |= {"num_leaves": 2**options.depth, "verbosity": -1}
            return lightgbm.LGBMClassifier(**shape, deterministic=True, force_row_wise=True).fit(rows, target)
        import xgboost

        return xgboost.XGBClassifier(**shape, tree_method="hist").fit(rows, target)

    def _quantify(self, session: Session, model: Any) -> float:
        """Certain bounds on the surrogate's individual fairness; how long it took."""
        from boxqte.properties import Fairness
        from boxqte.quantification import quantify

        left = session.seconds_left
        limit = None if left is None else max(min(QUANTIFY_SHARE * session.seconds, left), 0.05)
        prop = Fairness(f"x{session.at.sensitive}")
        nodes = None if session.timed else QUANTIFY_NODES
        result = quantify(model, coordinate_space(session.at), prop, time_limit=limit, node_limit=nodes)
        if result.bounds is not None:
            session.details["surrogate_fairness"] = [result.bounds.lower, result.bounds.upper]
        return result.seconds


def coordinate_space(at: Coordinates) -> Space:
    """The space as the surrogate sees it: one column an attribute, finite values by their index, the same masses.

    The surrogate is fitted without names, so columns are matched by position; the names must not be those it makes up.
    """

    def simple(a: Attribute) -> Attribute:
        if a.is_numeric:
            return a
        codes = tuple(range(len(a.values)))
        return replace(a, kind="categorical", values=codes, columns=(a.name,), codes=None, labels=None)

    return Space(replace(simple(a), name=f"x{i}", columns=(f"x{i}",)) for i, a in enumerate(at.space))


def _predictor(model: Any, at: Coordinates) -> Predict:
    """The surrogate's answers to rows of coordinates, by its own library."""
    native = load_model(model).native
    assert native is not None  # the library has just fitted it
    return lambda x: native(at.matrix(x, {})).astype(bool)


def _majority(labels: IntArray) -> int:
    """The most frequent label: a surrogate tells it from all others, so that models of several classes can be tested."""
    values, counts = np.unique(labels, return_counts=True)
    return int(values[counts.argmax()])


def _remember(
    x: FloatArray, labels: IntArray, wrong: FloatArray, truth: IntArray, points: int, keep: int
) -> tuple[FloatArray, IntArray]:
    """The random points that the first surrogate was fitted on, and the latest mistakes."""
    x, labels = np.concatenate([x, wrong]), np.concatenate([labels, truth])
    drop = max(len(x) - keep, 0)
    rows = np.r_[: min(points, len(x)), points + drop : len(x)] if drop else np.arange(len(x))
    return x[rows], labels[rows]
