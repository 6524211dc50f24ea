"""What an engine returns: bounds that are theorems, the reason it stopped, and how it got there."""

from __future__ import annotations

import builtins
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxqte.answers.asked import Asked
from boxqte.engines.protocol import Decided, Statistical, Status
from boxqte.errors import EngineError
from boxqte.exact import down, up
from boxqte.models.decision import DecisionRule
from boxqte.questions.grid import AnyGrid
from boxqte.questions.properties import Property
from boxqte.space.space import Space

if TYPE_CHECKING:
    import pandas as pd

THE_SPACE = "the space"
VALUE_ERROR = Fraction(1, 10**6)  # bounds further apart than this are no value, whatever the engine says


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
    """How many trees the model holds, where only some of them count."""
    trees_because: str = "best_iteration"
    decision: DecisionRule | None = None
    """The model's decision rule, where it is not the library's own `predict`."""

    @property
    def trees_text(self) -> str:
        """How many trees count.

        Examples
        --------
        >>> ModelSummary("xgboost", 5, 40, 3, "", trees_in_file=10).trees_text
        'trees 5 of 10 (best_iteration)'
        """
        if self.trees_in_file is None:
            return f"{self.trees} trees"
        return f"trees {of_trees(self.trees, self.trees_in_file, self.trees_because)}"

    def to_json(self) -> dict[str, Any]:
        """The summary as a JSON object."""
        return {**vars(self), "decision": None if self.decision is None else self.decision.to_json()}


def of_trees(used: int, held: int | None, because: str) -> str:
    """How many of the trees count, and why."""
    return f"{used:,}" if held is None else f"{used:,} of {held:,} ({because})"


@dataclass(frozen=True)
class Ruled:
    """The rules of the space, and what they forbid of it."""

    rules: tuple[str, ...]
    forbidden: Fraction
    """The mass of the forbidden inputs in the whole space; the masses of a result are shares of the rest."""
    error: Fraction = Fraction(0)
    """More than it is off: masses by a formula are rounded."""

    @property
    def allowed(self) -> tuple[Fraction, Fraction]:
        """The least and the most mass of the inputs that are left."""
        return 1 - self.forbidden - self.error, 1 - self.forbidden + self.error

    def to_json(self) -> dict[str, Any]:
        """The rules as a JSON object."""
        exact = None if self.error else str(self.forbidden)
        return {"rules": list(self.rules), "forbidden": float(self.forbidden), "forbidden_exact": exact}


def among_allowed(mass: float | None, ruled: Ruled | None) -> float | None:
    """A bound on a mass as a share of the inputs that no rule forbids."""
    if not mass or ruled is None:
        return mass
    least = ruled.allowed[0]
    return min(up(Fraction(mass) / least), 1.0) if least > 0 else 1.0


def ruled_of(space: Space, pieces: Iterable[tuple[Fraction, AnyGrid]]) -> Ruled | None:
    """What the rules forbid of a question's products, by their weights; None without rules."""
    if not space.rules:
        return None
    own = [(weight * grid.forbidden_mass, weight * grid.mass_error) for weight, grid in pieces]
    forbidden, error = (sum(masses, Fraction(0)) for masses in zip(*own))
    return Ruled(tuple(rule.text for rule in space.rules), forbidden, error)


@dataclass(frozen=True, eq=False)
class Result:
    """The answer as data: what is proved, how, and about what. Its attributes are explained in api/quantify.py."""

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
    cells: int | None = None
    """How many cells the grid has, where every cell counts the same."""
    details: dict[str, Any] = field(default_factory=dict)
    statistical: Statistical | None = None
    remarks: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    """The remarks in a few words each, as they stand beside the number."""
    world: str = THE_SPACE
    """Which inputs count, and for how much."""
    all_confident: bool = False
    """Whether every input is confident by definition, whatever is decided of it."""
    ruled: Ruled | None = None
    """What the rules of the space forbid; `decided` counts it as not confident."""
    asked: Asked | None = field(default=None, repr=False)
    """The question behind the answer, for further questions; not part of the JSON form."""

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
        return self._among_allowed(sure, max(1 - low, sure))

    @builtins.property
    def counterexample(self) -> Bounds:
        unfair = Fraction(self.decided.unfair)
        return self._among_allowed(unfair, unfair + self.decided.undecided)

    def _among_allowed(self, least: Fraction, most: Fraction) -> Bounds:
        """Bounds on a mass as a share of the inputs that no rule forbids."""
        if self.ruled is None:
            return Bounds(down(least), up(most))
        low, high = self.ruled.allowed
        return Bounds(down(least / high), min(up(most / low), 1.0) if low > 0 else 1.0)

    @builtins.property
    def counted(self) -> tuple[int, int] | None:
        """The least and the most cells that are counterexamples, where every cell counts the same; equal once exact."""
        if self.cells is None:
            return None
        unfair = Fraction(self.decided.unfair)
        return math.ceil(unfair * self.cells), math.floor((unfair + self.decided.undecided) * self.cells)

    def semantics(self) -> list[str]:
        """The reading of the definitions behind the numbers, in plain words."""
        p = self.property
        lines = [
            "measure = 1 - |counterexamples| / |confident inputs|, over "
            + (
                "the cells of the grid, each counts the same"
                if self.cells is not None
                else "the whole declared space, product measure"
                if self.world == THE_SPACE
                else self.world
            ),
            *([] if self.ruled is None else ["what the rules forbid is neither x nor x', and counts in no mass"]),
            p.meaning,
            "margins are summed exactly; `rounding_ambiguous` bounds the mass where the library's own rounding could "
            "matter",
            "tests on real attributes are read on the real number; `input_rounding` bounds the mass that a float32 "
            "cast moves",
        ]
        rule = self.model.decision
        if rule is not None:
            lines.append(f"the decision rule is part of the model: {rule.text()}; confidence is measured from there")
            if p.tie == "paper":
                lines.append("an input exactly on the threshold has no class (the paper's reading)")
            return lines
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
            "rules": None if self.ruled is None else self.ruled.to_json(),
            "decided": {
                **{kind: str(Fraction(getattr(self.decided, kind))) for kind in ("fair", "unfair", "low")},
                "all_confident": self.all_confident,
            },
            "count": self.count,
            "cells": None if self.counted is None else {"all": self.cells, "counterexample": list(self.counted)},
            "status": str(self.status),
            "guarantee": self.guarantee(),
            "world": self.world,
            "remarks": list(self.remarks),
            "caveats": list(self.caveats),
            "semantics": self.semantics(),
            "engine": self.engine,
            "seconds": self.seconds,
            "property": self.property.to_json(),
            "model": {
                "library": self.model.library,
                "trees": self.model.trees,
                "trees_in_file": self.model.trees_in_file or self.model.trees,
                "trees_because": self.model.trees_because,
                "leaves": self.model.leaves,
                "features": self.model.features,
                "fingerprint": self.model.fingerprint,
                "source": self.model.source,
                "decision": None if self.model.decision is None else self.model.decision.to_json(),
            },
            "space": {"fingerprint": self.space_fingerprint},
            "details": self.details,
            "trace": [list(point) for point in self.trace],
        }

    def to_row(self) -> dict[str, Any]:
        """The answer as a row of a table. `lower`, `upper` and `value` are certain; `statistical_...` hold with the
        `confidence`."""
        drawn = self.statistical
        return {
            "property": str(self.property),
            "lower": self.lower,
            "upper": self.upper,
            "value": self.value,
            "statistical_lower": None if drawn is None else drawn.lower,
            "statistical_upper": None if drawn is None else drawn.upper,
            "confidence": None if drawn is None else drawn.confidence,
            "status": str(self.status),
            "seconds": self.seconds,
            "remarks": " ".join(self.remarks),
            "caveats": "; ".join(self.caveats),
        }

    def to_frame(self) -> pd.DataFrame:
        """The answer as a table of one row, with the columns of `Audit.to_frame`."""
        import pandas as pd

        return pd.DataFrame([self.to_row()])

    def save(self, path: str | Path) -> None:
        """Write the JSON form."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.to_json(), file, indent=1)
            file.write("\n")


def world_of(space: Space) -> str:
    """Which inputs a question about a space is about.

    Examples
    --------
    >>> from boxqte.examples import loan_space
    >>> world_of(loan_space())
    'the space'
    """
    world = f"a population (a mixture of {len(space.components)} products)" if space.components else THE_SPACE
    if not space.rules:
        return world
    return f"{world}, without what {'a rule forbids' if len(space.rules) == 1 else f'{len(space.rules)} rules forbid'}"


def asked_of(result: Result) -> Asked:
    """The question behind a result; an error for a result that has none."""
    if result.asked is None:
        raise EngineError(
            "this result has the numbers alone (read from a file?), not the model; for more, call quantify again"
        )
    return result.asked
