"""What an engine returns: bounds that are theorems, the reason it stopped, and how it got there."""

from __future__ import annotations

import builtins
import json
import math
from dataclasses import asdict, dataclass, field
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from boxqte.checks import random_numbers, seconds, whole, worker_count
from boxqte.properties import Property

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from boxqte.sampling import Sample

VALUE_ERROR = Fraction(1, 10**6)  # bounds further apart than this are no value, whatever the engine says


class Status(Enum):
    """Why an engine stopped."""

    CONVERGED = "converged"
    GAP = "gap reached"
    THRESHOLD = "threshold decided"
    CONFIDENT_GAP = "gap reached with the stated confidence"
    POINTS = "point limit"
    TIME = "time limit"
    NODES = "node limit"
    MEMORY = "memory limit"
    INTERRUPTED = "interrupted"
    EXHAUSTED = "refinement exhausted"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Decided:
    """Masses that are proved: each a lower bound of the true mass of its kind, so float sums are rounded down.

    fair: confident and not a counterexample; unfair: counterexamples; low: not confident. The rest is undecided.
    """

    fair: Fraction | float = Fraction(0)
    unfair: Fraction | float = Fraction(0)
    low: Fraction | float = Fraction(0)

    @property
    def undecided(self) -> Fraction:
        """The mass about which nothing is proved yet."""
        return max(1 - Fraction(self.fair) - Fraction(self.unfair) - Fraction(self.low), Fraction(0))

    def measure(self) -> tuple[Fraction, Fraction] | None:
        """Bounds on M = 1 - |X_unfair| / |X_kappa| (semantics.md, 'Any-time bounds'); None if X_kappa is proved empty.

        Both bounds only widen when one of the three masses is lowered, so rounding the masses down keeps them true.
        """
        confident = 1 - Fraction(self.low)
        if confident <= 0:
            return None
        lower = Fraction(self.fair) / confident
        return lower, max(1 - Fraction(self.unfair) / confident, lower)


def down(value: Fraction) -> float:
    """The largest float that is not above the value."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def up(value: Fraction) -> float:
    """The smallest float that is not below the value."""
    return -down(-value) + 0.0  # 0, never -0


@dataclass(frozen=True)
class Bounds:
    """An interval that certainly contains the value; the floats are rounded outward."""

    lower: float
    upper: float

    @property
    def gap(self) -> float:
        return self.upper - self.lower


@dataclass(frozen=True)
class ModelSummary:
    """Which model was asked about."""

    library: str
    trees: int
    leaves: int
    features: int
    fingerprint: str
    source: str = ""
    trees_in_file: int | None = None
    """How many trees the model holds, where its `predict` uses only those up to the best iteration."""

    @property
    def trees_text(self) -> str:
        """How many trees count.

        Examples
        --------
        >>> ModelSummary("xgboost", 5, 40, 3, "", trees_in_file=10).trees_text
        'trees 5 of 10 (best_iteration)'
        """
        return (
            f"{self.trees} trees" if self.trees_in_file is None else f"trees {of_trees(self.trees, self.trees_in_file)}"
        )


def of_trees(used: int, held: int | None) -> str:
    """How many of the trees count, and why."""
    return f"{used:,}" if held is None else f"{used:,} of {held:,} (best_iteration)"


@dataclass(frozen=True)
class Statistical:
    """An interval that holds with the stated confidence, at all times at once, and the draws behind it.

    `unknown` points were given up; they count as unfair for `lower` and as fair for `upper`.
    """

    lower: float
    upper: float
    confidence: float
    points: int
    fair: int
    unfair: int
    low: int
    unknown: int
    seed: int

    @property
    def width(self) -> float:
        return self.upper - self.lower

    def to_json(self) -> dict[str, Any]:
        """The interval as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Quantification:
    """The answer: which share of the confident inputs is treated fairly (or robustly).

    Attributes
    ----------
    lower, upper
        Bounds on the measure M = 1 - |X_unfair| / |X_kappa|, certain and rounded outward.
    value
        The measure once converged, as a float that is as close to it as `lower` and `upper` are to each other, else
        None; also None where so little is confident that floating-point error leaves the ratio open.
    exact
        The measure as a rational where the engine computes in rationals, else None.
    status
        Why the engine stopped; `Status.CONVERGED` means that every input is decided.
    confident, counterexample
        Bounds on the masses of X_kappa and X_unfair.
    statistical
        Inside the certain bounds, an interval that holds with a stated confidence, if points were drawn; else None.
    rounding_ambiguous
        A bound on the mass of inputs whose verdict could differ in the library because it sums in floating point;
        None if the engine does not compute it.
    remarks
        Sentences about what the number does not say: that no attribute can move, that few inputs are confident, that no
        tree tests a sensitive attribute, that the measure is undefined. Empty for most results.
    """

    property: Property  # hides the builtin below, as far as a type checker can see
    model: ModelSummary
    engine: str
    status: Status
    decided: Decided
    seconds: float
    trace: tuple[tuple[float, float, float], ...]
    space_fingerprint: str = ""
    rounding_ambiguous: float | None = None
    input_rounding: float = 0.0
    count: int | None = None
    details: dict[str, Any] = field(default_factory=dict)
    statistical: Statistical | None = None
    remarks: tuple[str, ...] = ()
    all_confident: bool = False
    """Whether every input is confident by definition, whatever is decided of it."""
    origin: Any = field(default=None, repr=False)
    """The question behind the answer (boxqte.origin.Origin), for further questions; not part of the JSON form."""

    @builtins.property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    @builtins.property
    def bounds(self) -> Bounds | None:
        """Bounds on the measure; None if no input is confident, which leaves the measure undefined."""
        ends = self.decided.measure()
        return None if ends is None else Bounds(down(ends[0]), min(up(ends[1]), 1.0))

    @builtins.property
    def undefined(self) -> bool:
        """Whether |X_kappa| = 0 is proved, so that there is no measure."""
        return self.bounds is None or (self.converged and self.confident.upper == 0)

    @builtins.property
    def lower(self) -> float | None:
        return None if self.bounds is None else self.bounds.lower

    @builtins.property
    def upper(self) -> float | None:
        return None if self.bounds is None else self.bounds.upper

    @builtins.property
    def value(self) -> float | None:
        ends = self.decided.measure()
        if not self.converged or ends is None or ends[1] - ends[0] > VALUE_ERROR:
            return None
        return float((ends[0] + ends[1]) / 2)

    @builtins.property
    def exact(self) -> Fraction | None:
        ends = self.decided.measure()
        return ends[0] if self.converged and ends is not None and ends[0] == ends[1] else None

    @builtins.property
    def confident(self) -> Bounds:
        if self.all_confident:
            return Bounds(1.0, 1.0)
        low = Fraction(self.decided.low)
        sure = Fraction(self.decided.fair) + Fraction(self.decided.unfair)
        return Bounds(down(sure), up(max(1 - low, sure)))

    @builtins.property
    def counterexample(self) -> Bounds:
        unfair = Fraction(self.decided.unfair)
        return Bounds(down(unfair), up(unfair + self.decided.undecided))

    def semantics(self) -> list[str]:
        """The reading of the definitions behind the numbers, in plain words."""
        p = self.property
        lines = [
            "measure = 1 - |counterexamples| / |confident inputs|, over the whole declared space, product measure",
            "a counterexample is a confident input x for which some x' in the space has the other class"
            + (", differs in a sensitive attribute, and is within epsilon in every other" if p.sensitive else "")
            + ("" if p.sensitive else " and is within epsilon in every")
            + " attribute (categorical: equal)",
            "margins are summed exactly; `rounding_ambiguous` bounds the mass where the library's own rounding could "
            "matter",
            "tests on real attributes are read on the real number; `input_rounding` bounds the mass that a float32 "
            "cast moves",
        ]
        lines.append(
            "an input with margin 0 has the class that the library's predict gives it"
            if p.tie == "library"
            else "an input with margin 0 has no class (the paper's reading)"
        )
        return lines

    def guarantee(self) -> str:
        """What the bounds promise."""
        if self.undefined:
            return "every input decided; it is proved that none is confident"
        if self.exact is not None:
            return "exact rational arithmetic"
        if self.converged:
            return "every input decided; bounds include all floating-point error"
        certain = "certain bounds, rounded outward; the undecided mass is counted against both"
        if self.statistical is None:
            return certain
        return (
            f"{certain}; inside them, an interval that contains the measure with probability "
            f"{self.statistical.confidence} over the random draws, whenever one looks"
        )

    def regions(
        self,
        top: int | None = 20,
        *,
        merge: bool = True,
        pure: bool | None = None,
        flip: bool = True,
        time_limit: float | None = None,
    ) -> pd.DataFrame:
        """Where the counterexamples are: disjoint regions as readable rules, the largest first.

        Parameters
        ----------
        top
            How many regions; None is all of them.
        merge
            Join neighbouring regions that differ in one attribute and have about the same density.
        pure
            Split the heaviest regions until they consist of counterexamples only (epsilon = 0), and list their parts;
            by default where the search has no more regions than are asked for.
        flip
            Also compute which way the class flips; takes a search of the regions shown.
        time_limit
            Seconds for each search that this needs; by default as in the run.

        Returns
        -------
        pandas.DataFrame
            `rule` (as `restrict` reads it), `mass` of its counterexamples and their `share` of all counterexamples (both
            certain lower bounds, reached but for rounding if the search is complete), the `density` (share of the
            region's mass that is counterexamples), `flip`, and the condition on each attribute.
            In `attrs`: `counterexample_mass` and `counterexample_upper` (certain bounds on all of them; the first is what
            was found), `regions` (how many there are), `listed` (the mass in the table), `elsewhere` (mass that is kept
            in no region), `complete` (whether all counterexamples were found), `flips_complete` (False: a limit has
            ended a search for the flips, whose shares are then ranges).

        Examples
        --------
        >>> import boxqte
        >>> from boxqte.examples import loan_ensemble, loan_space
        >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
        >>> print(result.regions().loc[0, "rule"])
        income < 600 and age >= 50
        """
        from boxqte import exploration

        n = None if top is None else whole(top, "top")
        return exploration.regions(self, n, merge=merge, pure=pure, flip=flip, time_limit=seconds(time_limit))

    def profile(self, attribute: str, *, time_limit: float | None = None) -> pd.DataFrame:
        """Counterexamples by value or interval of an attribute, as certain bounds.

        Returns
        -------
        pandas.DataFrame
            One row for each set of values that the model cannot tell apart: `value`, its `mass`, bounds on the mass of
            its counterexamples (`lower`, `upper`), on their share of all counterexamples (`share_lower`, `share_upper`;
            NaN if there are none), and on the counterexamples per mass (`density_lower`, `density_upper`; NaN without
            mass). Rounded outward; they agree but for rounding unless a limit ended a search (`attrs["converged"]`).
        """
        from boxqte import exploration

        return exploration.profile(self, attribute, time_limit=seconds(time_limit))

    def pairs(self, *, time_limit: float | None = None) -> pd.DataFrame:
        """From which sensitive value to which: a matrix of masses.

        Row s, column s': the mass of the counterexamples x with value s that have an x' with value s', a certain lower
        bound. An x may have several x', so that a row can sum to more than the counterexamples in it. The certain upper
        bounds are in `attrs["upper"]`, a list of rows; both agree but for rounding if `attrs["converged"]`.
        """
        from boxqte import exploration

        return exploration.pairs(self, time_limit=seconds(time_limit))

    def restrict(self, condition: str, *, time_limit: float | None = None) -> Quantification:
        """The measure on a part of the space: only x that satisfy the condition count. x' may be any input.

        Parameters
        ----------
        condition
            Such as `"age >= 60 and sex == 'f'"`; see `boxqte.conditions.parse_condition`.

        Examples
        --------
        >>> import boxqte
        >>> from boxqte.examples import loan_ensemble, loan_space
        >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
        >>> result.restrict("income < 300").value < result.value
        True
        """
        from boxqte import exploration

        return exploration.restrict(self, condition, time_limit=seconds(time_limit))

    def sample(
        self,
        n: int,
        *,
        random_state: int | np.random.Generator | None = None,
        replay: bool = True,
        distinct: bool = False,
        workers: int | None = None,
    ) -> Sample:
        """Counterexamples drawn by the space's mass, each with an x' that makes it one.

        Parameters
        ----------
        n
            How many pairs.
        random_state
            A seed or a numpy Generator; the same seed gives the same pairs, however many threads there are.
        replay
            Ask the model's own library about every pair, where it is installed; pairs on which it disagrees stay, and are
            listed in `disagreements`.
        distinct
            No pair twice. Without it the draws are independent, and in a small space pairs repeat.
        workers
            Threads; None is one per core.

        Returns
        -------
        boxqte.sampling.Sample
            Two tables, `x` and `witness`, in the columns that the model's own `predict` takes.

        Examples
        --------
        >>> import boxqte
        >>> from boxqte.examples import loan_ensemble, loan_space
        >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
        >>> found = result.sample(100, random_state=0)
        >>> len(found), bool((found.x["age"] >= 50).all()), bool((found.x["income"] == found.witness["income"]).all())
        (100, True, True)
        """
        from boxqte import sampling

        rng, threads = random_numbers(random_state), worker_count(workers)
        return sampling.sample(self, whole(n, "n"), random_state=rng, replay=replay, distinct=distinct, workers=threads)

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object (the format of `boxqte quantify --json`)."""
        bounds = self.bounds
        return {
            "measure": {
                "lower": None if bounds is None else bounds.lower,
                "upper": None if bounds is None else bounds.upper,
                "value": self.value,
                "exact": None if self.exact is None else str(self.exact),
                "converged": self.converged,
            },
            "statistical": None if self.statistical is None else self.statistical.to_json(),
            "mass": {
                "confident": [self.confident.lower, self.confident.upper],
                "counterexample": [self.counterexample.lower, self.counterexample.upper],
                "rounding_ambiguous": self.rounding_ambiguous,
                "input_rounding": self.input_rounding,
            },
            "count": self.count,
            "status": str(self.status),
            "guarantee": self.guarantee(),
            "remarks": list(self.remarks),
            "semantics": self.semantics(),
            "engine": self.engine,
            "seconds": self.seconds,
            "property": self.property.to_json(),
            "model": {
                "library": self.model.library,
                "trees": self.model.trees,
                "trees_in_file": self.model.trees_in_file or self.model.trees,
                "leaves": self.model.leaves,
                "features": self.model.features,
                "fingerprint": self.model.fingerprint,
                "source": self.model.source,
            },
            "space": {"fingerprint": self.space_fingerprint},
            "details": self.details,
            "trace": [list(point) for point in self.trace],
        }

    def to_html(self, *, command: str = "", time_limit: float | None = 60.0) -> str:
        """The report: one self-contained page with regions, profiles, flips and examples.

        `time_limit` are the seconds for all searches that it takes; None is no limit.
        """
        from boxqte.report.html import result_page

        return result_page(self, command=command, seconds=time_limit)

    def save_html(self, path: str, *, time_limit: float | None = 60.0) -> None:
        """Write the report."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_html(time_limit=time_limit))

    def plot_bounds(self, *, ax: Any = None, **style: Any) -> Any:
        """Draw the bounds over time with matplotlib; see `boxqte.report.plots.plot_bounds`."""
        from boxqte.report.plots import plot_bounds

        return plot_bounds(self, ax=ax, **style)

    def plot_profile(self, attribute: str, *, ax: Any = None, time_limit: float | None = None) -> Any:
        """Draw the unfair share by value of an attribute; see `boxqte.report.plots.plot_profile`."""
        from boxqte.report.plots import plot_profile

        return plot_profile(self, attribute, ax=ax, time_limit=time_limit)

    def plot_regions(self, top: int = 10, *, ax: Any = None, time_limit: float | None = None) -> Any:
        """Draw the largest regions and their masses; see `boxqte.report.plots.plot_regions`."""
        from boxqte.report.plots import plot_regions

        return plot_regions(self, top, ax=ax, time_limit=time_limit)

    def save(self, path: str) -> None:
        """Write the JSON form."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.to_json(), file, indent=1)
            file.write("\n")

    def __repr__(self) -> str:
        from boxqte.printing import measure_text, statistical_text

        shown = "; ".join(part for part in (measure_text(self), statistical_text(self)) if part)
        return f"Quantification({self.property}: {shown}; {self.status} in {self.seconds:.3g} s, engine {self.engine})"

    def _repr_html_(self) -> str:
        from boxqte.report.notebook import result_html

        return result_html(self)
