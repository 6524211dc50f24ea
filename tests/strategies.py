"""Small problems (ensemble, space, property) that are as odd as the definitions allow, for comparison with the oracle.

`problems(...)` is a Hypothesis strategy, `random_problem(rng, ...)` a plain seeded generator for long loops; both drive
the same construction through one primitive, "an integer between low and high". The first option is always the plainest,
so that Hypothesis shrinks towards plain problems.

What is left out on purpose, because the definitions do not say what it means: category sets on real attributes and on
codes that are no integers, x < t with a threshold that is no float32.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from hypothesis import strategies as st

from boxqte.models.decision import DecisionRule
from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.properties import Fairness, Property, Robustness
from boxqte.space.space import Space
from tests.naive import naive_margin
from tests.random_attributes import Budget, Draws, Limits, Part, draw_part, with_finite_mass, with_histogram
from tests.random_trees import describe, draw_ensemble, draw_point, without_columns


class Problem(NamedTuple):
    """One question to an engine: unpacks into (ensemble, space, property)."""

    ensemble: TreeEnsemble
    space: Space
    property: Property

    def __repr__(self) -> str:
        attributes = "\n".join(f"  {a!r}" for a in self.space.attributes)
        return f"Problem(\n{describe(self.ensemble)}\n{attributes}\n  {self.property!r})"


def problems(**limits: Any) -> st.SearchStrategy[Problem]:
    """A Hypothesis strategy of problems; see Limits for the keywords, e.g. `problems(real=False, max_pieces=100)`."""
    return _problems(Limits(**limits))


@st.composite
def _problems(draw: st.DrawFn, limits: Limits) -> Problem:
    return build_problem(Draws(lambda low, high: draw(st.integers(low, high))), limits)


def random_problem(rng: random.Random, **limits: Any) -> Problem:
    """One problem from a seeded generator; see Limits for the keywords, e.g. `max_pieces=20_000, max_trees=10`."""
    return build_problem(Draws(rng.randint), Limits(**limits))


def build_problem(draws: Draws, limits: Limits) -> Problem:
    budget = Budget(limits.max_pieces, limits.max_pairs)
    n_attributes = 1 if draws.chance(8) else draws.integer(min(2, limits.max_attributes), limits.max_attributes)
    sensitive = draw_sensitive(draws, n_attributes, limits)
    forms = ["zero", "rate", "each"] if sensitive or draws.chance(6) else ["rate", "each"]  # eps 0 is always robust
    epsilon_form = draws.one_of(forms) if limits.eps else "zero"
    parts = [
        draw_part(draws, f"a{i}", i in sensitive, epsilon_form != "zero", budget, limits) for i in range(n_attributes)
    ]
    for i, part in enumerate(parts):
        part.used = not draws.chance(12)
        if part.attribute.kind != "real" and limits.masses and draws.chance(4):
            parts[i].attribute = with_finite_mass(draws, part.attribute)
        elif part.attribute.kind == "real" and limits.masses and draws.chance(3):
            parts[i].attribute = with_histogram(draws, part)
    ensemble = draw_ensemble(draws, parts, limits)
    space = Space([part.attribute for part in parts])
    prop = draw_property(draws, parts, epsilon_form, ensemble, limits)
    if limits.decision:
        ensemble = with_decision(draws, ensemble, space, prop)
    return Problem(ensemble, space, prop)


def draw_sensitive(draws: Draws, n: int, limits: Limits) -> set[int]:
    if limits.robustness and (not limits.fairness or draws.chance(4)):
        return set()
    if draws.chance(10):
        return set(range(n))
    return {draws.integer(0, n - 1)} | ({draws.integer(0, n - 1)} if draws.chance(3) else set())


def draw_property(
    draws: Draws, parts: list[Part], epsilon_form: str, ensemble: TreeEnsemble, limits: Limits
) -> Property:
    names = [part.attribute.name for part in parts if part.sensitive]
    free = [part for part in parts if not part.sensitive]
    epsilon: Any = Fraction(0)
    if epsilon_form == "rate":
        reaching = [
            gap / part.attribute.range for part in free if part.attribute.is_numeric and part.attribute.range
            for gap in gaps(part)
        ]  # fmt: skip
        plain = [
            Fraction(1, 10),
            Fraction(1, 4),
            Fraction(1, 3),
            Fraction(1),
            Fraction(3, 2),
            Fraction(0),
            Fraction(1, 64),
        ]
        epsilon = draws.one_of(reaching) if reaching and draws.flag() else draws.one_of(plain)
    elif epsilon_form == "each":
        epsilon = {}
        for part in free:
            attribute = part.attribute
            if not attribute.is_numeric:
                if draws.chance(4):
                    epsilon[attribute.name] = 0
            elif not draws.chance(5):  # attributes that are not named have tolerance 0
                epsilon[attribute.name] = draw_tolerance(draws, part)
    kappa = draw_kappa(draws, ensemble, Space([part.attribute for part in parts])) if limits.kappa else Fraction(1, 2)
    tie = "paper" if limits.paper_ties and draws.chance(3) else "library"
    return Fairness(draws.shuffled(names), epsilon, kappa, tie=tie) if names else Robustness(epsilon, kappa, tie=tie)


def draw_tolerance(draws: Draws, part: Part) -> Fraction:
    width, between = part.attribute.range, gaps(part)
    if between and draws.flag():
        return draws.one_of(between)  # reaches exactly from one critical point to another
    absolute = [Fraction(s) for s in ("1", "1/2", "1/10", "5/2", "0")]
    return draws.one_of([*absolute, width / 16, width / 3, width, 2 * width + 1, Fraction(1e-35)])


def gaps(part: Part) -> list[Fraction]:
    """The distances between critical points of a numeric attribute."""
    attribute = part.attribute
    points = {attribute.low, attribute.high} | {Fraction(t) for t in part.thresholds}
    inside = sorted(p for p in points if attribute.low <= p <= attribute.high)
    return sorted({b - a for a in inside for b in inside if a < b})


def draw_kappa(draws: Draws, ensemble: TreeEnsemble, space: Space) -> Fraction:
    form = draws.integer(0, 5)
    if form <= 1:
        return Fraction(1, 2)
    if form == 2:
        return draws.one_of([Fraction(s) for s in ("0", "0.3", "0.51", "0.55", "0.7", "0.999999")])
    # A confidence that occurs: exactly if it is that of a mean of trees, else about, to either side.
    margin = min(abs(naive_margin(ensemble, space, draw_point(draws, ensemble, space))) for _ in range(3))
    if ensemble.link == "mean":
        confidence = margin + Fraction(1, 2)
    else:
        confidence = Fraction(str(round(1 / (1 + math.exp(-margin)), draws.integer(2, 6))))
    return min(confidence, Fraction("0.999999"))


def with_decision(draws: Draws, ensemble: TreeEnsemble, space: Space, prop: Property) -> TreeEnsemble:
    """The ensemble with one threshold, or with one for each value of a finite attribute, which it may not even know."""
    on = "margin" if ensemble.link == "sigmoid" and draws.chance(6) else "probability"
    exclusive = draws.chance(3)
    finite = [a for a in space.attributes if a.kind != "real"]
    if not finite or draws.chance(2):
        tau = draw_threshold_of(draws, ensemble, space, prop, on)
        return replace(ensemble, decision=DecisionRule(((None, tau),), on=on, exclusive=exclusive))
    group = draws.one_of(finite)
    values: list[Any] = list(range(int(group.low), int(group.high) + 1)) if group.is_numeric else list(group.values)
    taus = [draw_threshold_of(draws, ensemble, space, prop, on) for _ in range(draws.integer(1, 3))]
    keys = draws.shuffled([*values, *(["missing"] if group.missing is not None else [])])
    rule = DecisionRule(tuple((key, draws.one_of(taus)) for key in keys), group.name, on=on, exclusive=exclusive)
    return replace(without_columns(ensemble, group.columns) if draws.flag() else ensemble, decision=rule)


def draw_threshold_of(draws: Draws, ensemble: TreeEnsemble, space: Space, prop: Property, on: str) -> Fraction:
    """A threshold that matters: that of an input (exactly for a mean), or one at which an input is just confident."""
    form = draws.integer(0, 4)
    if form == 0:
        return draws.one_of([Fraction(s) for s in ("0.5", "0.3", "0.1", "0.7", "2/3")])
    if form == 1 and Fraction(1, 2) < prop.kappa < Fraction(999, 1000):
        return draws.one_of([prop.kappa, 1 - prop.kappa]) if on == "probability" else Fraction(0)
    margin = naive_margin(ensemble, space, draw_point(draws, ensemble, space))
    if on == "margin":
        return margin + draws.one_of([Fraction(0), Fraction(1, 7), Fraction(-1, 10**6)])
    if ensemble.link == "mean":
        return min(max(margin + Fraction(1, 2), Fraction(1, 100)), Fraction(99, 100))
    p = Fraction(str(round(1 / (1 + math.exp(-margin)), draws.integer(2, 8))))
    return min(max(p, Fraction(1, 1000)), Fraction(999, 1000))
