"""The surrogate tester: a tree ensemble stands in for the model, is quantified by boxqte, and its unfair inputs are tests.

None of the published testers has it; the paper's discussion proposes it. The model may be anything with a predict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from boxqte.answers.quantify import limits_of, measure
from boxqte.answers.result import Result
from boxqte.models.importers import load_model
from boxqte.questions.properties import Fairness
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from boxqte.testers.coordinates import Coordinates, FloatArray, IntArray
from boxqte.testers.session import Session
from boxqte.testers.surrogate_pairs import Margin, Pairs
from boxqte.testers.tester import Tester

FRUITLESS = 5  # rounds without a pair, after which a run without time limit ends
QUANTIFY_SHARE = 0.2  # of the time so far may go into the regions of one surrogate
QUANTIFY_NODES = 20_000  # the same limit for runs that must repeat exactly


class Surrogate(Tester):
    """Fits a tree ensemble to the model's answers, quantifies it, and tests the inputs that it treats unfairly."""

    name = "surrogate"
    options: Options

    @dataclass(frozen=True)
    class Options:
        """Options of the surrogate tester."""

        library: Literal["xgboost", "lightgbm"] = "xgboost"
        """What the surrogate is fitted with."""
        points: int = 20_000
        """Random inputs that the first surrogate is fitted on."""
        trees: int = 50
        """Trees of the surrogate."""
        depth: int = 4
        """Their depth."""
        samples: int = 5000
        """Tests from the first surrogate; each later one gives twice as many, up to `largest`."""
        largest: int = 200_000
        """The most tests from one surrogate."""
        learn: int = 20_000
        """The most answers of a round that the next surrogate learns from: mistakes first, then others."""
        keep: int = 100_000
        """The most answers that a surrogate is fitted on; beyond it a random part of them."""
        quantify: bool = True
        """Quantify each surrogate with the box engine and draw from its regions; False: only walk (surrogate_pairs)."""

    def needs(self) -> tuple[str, ...]:
        return (self.options.library,)

    def search(self, session: Session) -> None:
        """Fit, quantify, sample, ask, learn from the answers, repeat."""
        options, at = self.options, session.at
        session.details |= {"rounds": 0, "from_regions": 0, "from_walk": 0, "agreement": None,
                            "surrogate_fairness": None}  # fmt: skip
        x = at.draw(session.rng, options.points)
        labels = session.labels(x)
        pairs = Pairs(session)
        samples, fruitless = options.samples, 0
        while session.timed or fruitless < FRUITLESS:
            session.check()
            session.details["rounds"] += 1
            majority = _majority(labels)
            learnt, truth = np.zeros((0, len(at))), np.zeros(0, np.int64)
            if (labels != majority).any():
                model = self._fit(session, x, labels != majority)
                regions = self._quantify(session, model) if options.quantify else None
                before, source = session.tests, "from_walk" if regions is None else "from_regions"
                try:
                    learnt, truth = self._round(session, pairs, _margin(model, at), regions, majority, samples)
                finally:  # also if the budget ends here
                    session.details[source] += session.tests - before
            if not len(learnt):  # no pair that is new: look elsewhere
                fruitless += 1
                learnt = at.draw(session.rng, options.points)
                truth = session.labels(learnt)
            else:
                fruitless = 0
                samples = min(2 * samples, options.largest)
            x, labels = np.concatenate([x, learnt]), np.concatenate([labels, truth])
            if len(x) > options.keep:
                kept = session.rng.choice(len(x), options.keep, replace=False)
                x, labels = x[kept], labels[kept]

    def _round(
        self,
        session: Session,
        pairs: Pairs,
        margin: Margin,
        regions: Result | None,
        majority: int,
        samples: int,
    ) -> tuple[FloatArray, IntArray]:
        """Test pairs from one surrogate; answers to learn from.

        Mistakes come first. Answers that the surrogate got right are learnt too: mistakes alone would teach it that
        whatever it believes of these places is wrong.
        """
        asked, answers, mistaken = [np.zeros((0, len(session.at)))], [np.zeros(0, np.int64)], [np.zeros(0, bool)]
        for one, two, guess in pairs.draw(margin, samples if self.batch else 1000, regions):
            step = len(one) if self.batch else 1
            for start in range(0, len(one), step):
                rows = slice(start, start + session.room(step))
                both, labels = self._ask(session, one[rows], two[rows])
                asked.append(both)
                answers.append(labels)
                mistaken.append((labels != majority) != np.concatenate([guess[rows], ~guess[rows]]))
        x, labels, wrong = np.concatenate(asked), np.concatenate(answers), np.concatenate(mistaken)
        if len(x):
            session.details["agreement"] = 1 - float(wrong.mean())
        learn = np.argsort(session.rng.random(len(x)) - wrong)[: self.options.learn]
        return x[learn], labels[learn]

    def _ask(self, session: Session, x: FloatArray, y: FloatArray) -> tuple[FloatArray, IntArray]:
        """Ask the true model about pairs, and about other sensitive values where a pair does not flip."""
        s = session.at.sensitive
        session.tests += len(x)
        both = np.concatenate([x, y])
        labels = session.each_label(both)
        first, second = labels[: len(x)], labels[len(x) :]
        differ = first != second
        if differ.any():
            session.found(x[differ], y[differ, s])
        if len(session.at.values) > 2 and not differ.all():
            session.flips(x[~differ], first[~differ], y[~differ, s])
        return both, labels

    def _fit(self, session: Session, x: FloatArray, target: Any) -> Any:
        options = self.options
        seed = int(session.rng.integers(2**31))
        shape: dict[str, Any] = {
            "n_estimators": options.trees,
            "max_depth": options.depth,
            "learning_rate": 0.3,
            "random_state": seed,
        }
        rows = session.at.matrix(x, {})
        if options.library == "lightgbm":
            import lightgbm

            shape |= {"num_leaves": 2**options.depth, "verbosity": -1}
            return lightgbm.LGBMClassifier(**shape, deterministic=True, force_row_wise=True).fit(rows, target)
        import xgboost

        return xgboost.XGBClassifier(**shape, tree_method="hist").fit(rows, target)

    def _quantify(self, session: Session, model: Any) -> Result | None:
        """The surrogate's individual fairness with its unfair regions; None if no region was found in the time."""
        left = session.seconds_left
        limit = None if left is None else max(min(QUANTIFY_SHARE * session.seconds, left), 0.2)
        prop = Fairness(f"x{session.at.sensitive}")
        exactly: dict[str, Any] = {} if session.timed else {"node_limit": QUANTIFY_NODES, "workers": 1}
        limits = limits_of(limit, **exactly)
        result = measure(load_model(model), coordinate_space(session.at), prop, limits=limits)
        if result.bounds is not None:
            session.details["surrogate_fairness"] = [result.bounds.lower, result.bounds.upper]
        return result if result.counterexample.lower > 0 else None


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


def _margin(model: Any, at: Coordinates) -> Margin:
    """The surrogate's margins for rows of coordinates, by its own library: above 0 is not the most frequent label."""
    if hasattr(model, "get_booster"):
        booster = model.get_booster()
        return lambda x: np.asarray(booster.inplace_predict(at.matrix(x, {}), predict_type="margin"), np.float64)
    return lambda x: np.asarray(model.booster_.predict(at.matrix(x, {}), raw_score=True), np.float64)


def _majority(labels: IntArray) -> int:
    """The most frequent label: a surrogate tells it from all others, so that models of several classes can be tested."""
    values, counts = np.unique(labels, return_counts=True)
    return int(values[counts.argmax()])
