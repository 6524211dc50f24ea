"""What an engine returns: bounds that are theorems, the reason it stopped, and how it got there."""

from __future__ import annotations

import builtins
import json
import math
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any

from boxqte.properties import Property

VALUE_ERROR = Fraction(1, 10**6)  # bounds further apart than this are no value, whatever the engine says


class Status(Enum):
    """Why an engine stopped."""

    CONVERGED = "converged"
    GAP = "gap reached"
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


@dataclass(frozen=True, eq=False)
class Quantification:
    """The answer: which share of the confident inputs is treated fairly (or robustly).

    Attributes
    ----------
    lower, upper
        Bounds on the measure M = 1 - |X_unfair| / |X_kappa|, certain and rounded outward.
    value
        The measure itself once converged (the nearest float), else None; also None where so little is confident that
        floating-point error leaves the ratio open.
    exact
        The measure as a rational where the engine computes in rationals, else None.
    status
        Why the engine stopped; `Status.CONVERGED` means that every input is decided.
    confident, counterexample
        Bounds on the masses of X_kappa and X_unfair.
    rounding_ambiguous
        A bound on the mass of inputs whose verdict could differ in the library because it sums in floating point;
        None if the engine does not compute it.
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
        return "certain bounds, rounded outward; the undecided mass is counted against both"

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
            "mass": {
                "confident": [self.confident.lower, self.confident.upper],
                "counterexample": [self.counterexample.lower, self.counterexample.upper],
                "rounding_ambiguous": self.rounding_ambiguous,
                "input_rounding": self.input_rounding,
            },
            "count": self.count,
            "status": str(self.status),
            "guarantee": self.guarantee(),
            "semantics": self.semantics(),
            "engine": self.engine,
            "seconds": self.seconds,
            "property": self.property.to_json(),
            "model": {
                "library": self.model.library,
                "trees": self.model.trees,
                "leaves": self.model.leaves,
                "features": self.model.features,
                "fingerprint": self.model.fingerprint,
                "source": self.model.source,
            },
            "space": {"fingerprint": self.space_fingerprint},
            "details": self.details,
            "trace": [list(point) for point in self.trace],
        }

    def save(self, path: str) -> None:
        """Write the JSON form."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.to_json(), file, indent=1)
            file.write("\n")

    def __repr__(self) -> str:
        if self.undefined:
            return f"Quantification({self.property}: undefined, no input is confident; {self.status})"
        bounds = self.bounds
        assert bounds is not None
        shown = f"= {self.value:.12g}" if self.value is not None else f"in [{bounds.lower:.9g}, {bounds.upper:.9g}]"
        return f"Quantification({self.property}: {shown}; {self.status} in {self.seconds:.3g} s, engine {self.engine})"
