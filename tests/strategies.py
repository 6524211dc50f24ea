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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import numpy as np
from hypothesis import strategies as st

from boxqte.models.decision import DecisionRule
from boxqte.models.ensemble import EnsembleBuilder, Missing, Test, TreeEnsemble
from boxqte.questions.properties import Fairness, Property, Robustness
from boxqte.space.attributes import Attribute, Histogram
from boxqte.space.space import Space
from tests.naive import Model, Point, finite_pieces, float32, naive_margin, real_pieces

T = TypeVar("T")


class Problem(NamedTuple):
    """One question to an engine: unpacks into (ensemble, space, property)."""

    ensemble: TreeEnsemble
    space: Space
    property: Property

    def __repr__(self) -> str:
        attributes = "\n".join(f"  {a!r}" for a in self.space.attributes)
        return f"Problem(\n{describe(self.ensemble)}\n{attributes}\n  {self.property!r})"


@dataclass(frozen=True)
class Limits:
    """What a generated problem may contain, and how large it may be."""

    real: bool = True  # real attributes
    eps: bool = True  # tolerances other than 0
    kappa: bool = True  # kappa other than 1/2
    missing: bool = True  # missing values, and nodes that treat zero as missing or missing as zero
    sets: bool = True  # category sets
    masses: bool = True  # histograms and weights
    robustness: bool = True  # problems without sensitive attributes
    fairness: bool = True  # problems with sensitive attributes
    paper_ties: bool = True  # the paper's tie rule
    decision: bool = False  # every problem has a decision threshold, or one for each value of an attribute
    max_pieces: int = 600  # rows of `naive_rows`
    max_pairs: int = 60_000  # pieces x candidates for x'
    max_attributes: int = 4
    max_values: int = 6  # of a finite attribute
    max_thresholds: int = 3  # of a real attribute
    max_trees: int = 6
    max_depth: int = 3

    def __post_init__(self) -> None:
        if not (self.fairness or self.robustness):
            raise ValueError("a problem asks for fairness or robustness; both are switched off")


def problems(**limits: Any) -> st.SearchStrategy[Problem]:
    """A Hypothesis strategy of problems; see Limits for the keywords, e.g. `problems(real=False, max_pieces=100)`."""
    return _problems(Limits(**limits))


@st.composite
def _problems(draw: st.DrawFn, limits: Limits) -> Problem:
    return build_problem(Draws(lambda low, high: draw(st.integers(low, high))), limits)


def random_problem(rng: random.Random, **limits: Any) -> Problem:
    """One problem from a seeded generator; see Limits for the keywords, e.g. `max_pieces=20_000, max_trees=10`."""
    return build_problem(Draws(rng.randint), Limits(**limits))


@dataclass(frozen=True)
class Draws:
    """All choices come from one primitive, so that Hypothesis and random.Random can make them alike."""

    integer: Callable[[int, int], int]

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, n: int) -> bool:
        """True once in n times; the simplest value is False."""
        return self.integer(0, n - 1) == n - 1

    def flag(self) -> bool:
        return self.chance(2)

    def subset(self, options: Sequence[T]) -> list[T]:
        return [option for option in options if self.flag()]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        rest, order = list(options), []
        while rest:
            order.append(rest.pop(self.integer(0, len(rest) - 1)))
        return order


@dataclass
class Part:
    """One attribute and what the trees may ask about it."""

    attribute: Attribute
    sensitive: bool
    used: bool
    thresholds: list[float]
    zero_rule: bool  # nodes may use Missing.WITH_ZERO and Missing.ZERO_EXACT
    set_codes: list[int] = field(default_factory=list)
    categories: tuple[Any, ...] | None = None  # of the model's column


@dataclass
class Budget:
    """How many pieces and pairs the attributes still to come may multiply."""

    pieces: int
    pairs: int

    def allows(self, pieces: int, candidates: int) -> bool:
        return pieces <= self.pieces and pieces * candidates <= self.pairs

    def spend(self, pieces: int, candidates: int) -> None:
        self.pieces //= pieces
        self.pairs //= pieces * candidates


# --- the whole problem ------------------------------------------------------------------------------------------------


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


def without_columns(ensemble: TreeEnsemble, columns: Sequence[str]) -> TreeEnsemble:
    """The ensemble without these columns, if it never asks for them."""
    names = ensemble.feature_names
    kept = [f for f, name in enumerate(names) if name not in columns]
    asked = {int(f) for f, test in zip(ensemble.feature, ensemble.test) if test != Test.LEAF}
    if not asked <= set(kept) or not kept:
        return ensemble
    new = {f: i for i, f in enumerate(kept)}
    return replace(
        ensemble,
        feature_names=tuple(names[f] for f in kept),
        feature=np.array([new.get(f, -1) for f in ensemble.feature.tolist()], np.int32),
        categories={new[f]: values for f, values in ensemble.categories.items() if f in new},
        known_codes={new[f]: codes for f, codes in ensemble.known_codes.items() if f in new},
    )


# --- attributes -------------------------------------------------------------------------------------------------------


def draw_part(draws: Draws, name: str, sensitive: bool, moves: bool, budget: Budget, limits: Limits) -> Part:
    kinds = ["integer", "integer", "categorical", "categorical", "one-hot"] + ["real", "real"] * limits.real
    kind = draws.one_of(kinds)
    missing = limits.missing and draws.chance(4)
    if kind == "real":
        zero_rule = limits.missing and draws.chance(5)
        reaches = sensitive or moves
        for n in range(draws.integer(0 if draws.chance(8) else 1, limits.max_thresholds), -1, -1):
            pieces, candidates = real_cost(n, missing, zero_rule, moves and not sensitive, reaches)
            if budget.allows(pieces, candidates):
                budget.spend(pieces, candidates)
                return draw_real(draws, name, n, sensitive, missing, zero_rule)
    reaches = sensitive or (moves and kind in ("real", "integer"))  # a real that is too dear becomes an integer
    n = 1 if draws.chance(10) else draws.integer(2, limits.max_values)
    while n + missing > 1 and not budget.allows(n + missing, n + missing if reaches else 1):
        n, missing = (n - 1, missing) if n > 1 else (1, False)
    budget.spend(n + missing, n + missing if reaches else 1)
    if kind == "categorical":
        part = draw_categorical(draws, name, n, sensitive)
    elif kind == "one-hot":
        part = draw_one_hot(draws, name, n, sensitive)
    else:
        part = draw_integer(draws, name, n, sensitive)
    if not limits.sets:
        part.set_codes = []
    part.zero_rule = limits.missing
    if missing:
        part.attribute = replace(
            part.attribute, missing=draws.one_of([Fraction(1, n + 1), Fraction(1, 10), Fraction(0)])
        )
    return part


def real_cost(n_thresholds: int, missing: bool, zero_rule: bool, shifts: bool, reaches: bool) -> tuple[int, int]:
    """Upper bounds of the pieces and of the candidates for x' of a real attribute, as the oracle counts them."""
    points = n_thresholds + 2 + 3 * zero_rule
    pieces = 2 * (3 * points - 2 if shifts else points) - 1 + missing
    return pieces, 3 * points + missing if reaches else 1


REAL_DOMAINS = [("0", "1"), ("-1", "1"), ("0", "10"), ("-5", "-2"), ("0.1", "0.9"), ("1/3", "2/3"), ("-3", "0.3")]
ODD_REAL_DOMAINS = [("0", "0"), ("0.1", "0.1"), ("-2", "-2"), ("-2e-35", "3e-35"), ("0", "1e-35"), ("1e-35", "1")]


def draw_real(draws: Draws, name: str, n_thresholds: int, sensitive: bool, missing: bool, zero_rule: bool) -> Part:
    low, high = draws.one_of(ODD_REAL_DOMAINS if draws.chance(6) else REAL_DOMAINS)
    attribute = Attribute.real(name, low, high, missing=draws.one_of(["0.1", "1/2", "0"]) if missing else None)
    a, width = attribute.low, attribute.range
    inside = [a + width * Fraction(i, 8) for i in (4, 2, 6, 3, 5, 1, 7)]
    odd = [a, attribute.high, Fraction(0), *map(Fraction, ("0.1", "0.3", "0.5")), a - 1, attribute.high + 1]
    thresholds = [draw_threshold(draws, inside, odd) for _ in range(n_thresholds)]
    return Part(attribute, sensitive, True, thresholds, zero_rule)


INTEGER_STARTS = [0, 1, -2, -7, 5, 2**24 - 2, -(2**24) - 2, 2**53 - 6]  # float32 cannot tell 2**24 from 2**24 + 1


def draw_integer(draws: Draws, name: str, n: int, sensitive: bool) -> Part:
    low = min(draws.one_of(INTEGER_STARTS), 2**53 - n + 1)
    attribute = Attribute.integer(name, low, low + n - 1)
    inside = [low + Fraction(i, 2) for i in range(1, 2 * n)]
    odd = [Fraction(low), Fraction(low + n - 1), Fraction(low - 1), Fraction(low + n), Fraction(0), Fraction("0.1")]
    thresholds = [draw_threshold(draws, inside, odd) for _ in range(draws.integer(1, 4))]
    return Part(attribute, sensitive, True, thresholds, False, [v for v in range(low, low + n) if v >= 0])


def draw_categorical(draws: Draws, name: str, n: int, sensitive: bool) -> Part:
    form = draws.integer(0, 4)
    texts = [f"v{i}" for i in range(n)]
    categories: tuple[Any, ...] | None = None
    if form == 0:  # the values are the codes
        attribute = Attribute.categorical(name, draws.shuffled(range(n)))
        codes = [float(v) for v in attribute.values]
    elif form == 1:  # odd numbers as values: they meet the float32 cast
        attribute = Attribute.categorical(
            name, draws.shuffled([0.1, -1, 2.5, -0.5, 1e-36, 7][:n] + list(range(20, 14 + n)))
        )
        codes = [float(v) for v in attribute.values]
    elif form == 2:  # the space brings the codes, and they win over the model's
        codes = draws.shuffled([0.0, 3.0, 1.0, -2.0, 1e300, 0.1][:n] + [float(v) for v in range(20, 14 + n)])
        if draws.chance(3):  # two values, one code
            codes[-1] = codes[0]
        attribute = Attribute.categorical(name, texts, codes=codes)
        categories = tuple(draws.shuffled(texts)) if draws.flag() else None
    else:  # the model brings the codes, and knows categories that the space does not have
        attribute = Attribute.categorical(name, texts if form == 3 else list(range(10, 10 + n)))
        extra = ["other"] if draws.flag() else []
        categories = tuple(draws.shuffled([*attribute.values, *extra]))
        codes = [float(categories.index(v)) for v in attribute.values]
    pool = [Fraction(c) + shift for c in codes for shift in (Fraction(1, 2), Fraction(0)) if abs(c) < 1e9]
    thresholds = [draw_threshold(draws, pool, [Fraction("0.1")]) for _ in range(draws.integer(1, 4))]
    set_codes = sorted({int(c) for c in codes if 0 <= c < 1e9}) if all(c == int(c) for c in codes) else []
    return Part(attribute, sensitive, True, thresholds, False, set_codes, categories)


def draw_one_hot(draws: Draws, name: str, n: int, sensitive: bool) -> Part:
    values = [f"{name}={i}" for i in range(n)]
    if n > 2 and draws.chance(4):  # the last two are infrequent categories that share a column
        codes = [[float(min(i, n - 2) == j) for j in range(n - 1)] for i in range(n)]
        attribute = Attribute.one_hot(name, values[:-1], values=values, codes=codes)
    elif n > 1 and draws.flag():  # the first value was dropped: a row of zeros
        columns = values[1:]
        codes = [[float(i == j) for j in range(1, n)] for i in range(n)]
        attribute = Attribute.one_hot(name, columns, values=values, codes=codes)
    else:
        attribute = Attribute.one_hot(name, values)
    odd = [Fraction(0), Fraction(1), Fraction("0.1"), Fraction(-1), Fraction(2)]
    thresholds = [draw_threshold(draws, [Fraction(1, 2)], odd) for _ in range(draws.integer(1, 3))]
    return Part(attribute, sensitive, True, thresholds, False, [0, 1])


def draw_threshold(draws: Draws, inside: list[Fraction], odd: list[Fraction]) -> float:
    """A double; half of them rounded to float32, as XGBoost writes 0.1, the others as they are."""
    threshold = float(draws.one_of(odd if draws.chance(4) else inside))
    if threshold == 0 and draws.chance(3):
        return -0.0
    return float32(threshold) if draws.flag() else threshold


def with_finite_mass(draws: Draws, attribute: Attribute) -> Attribute:
    if attribute.kind != "integer":
        return replace(attribute, weights=draw_weights(draws, len(attribute.values)))
    low, high = int(attribute.low), int(attribute.high)
    edges = [low, *draws.subset(range(low + 1, high + 1)), high + 1]
    return replace(attribute, histogram=Histogram(tuple(map(Fraction, edges)), draw_weights(draws, len(edges) - 1)))


def with_histogram(draws: Draws, part: Part) -> Attribute:
    low, high = part.attribute.low, part.attribute.high
    if low == high:
        return part.attribute
    points = [low + (high - low) * Fraction(i, 7) for i in range(1, 7)] + [Fraction(t) for t in part.thresholds]
    edges = [low, *draws.subset(sorted({p for p in points if low < p < high})), high]
    return replace(part.attribute, histogram=Histogram(tuple(edges), draw_weights(draws, len(edges) - 1)))


def draw_weights(draws: Draws, n: int) -> tuple[Fraction, ...]:
    weights = [draws.one_of([Fraction(1), Fraction(0), Fraction(3), Fraction(1, 7)]) for _ in range(n)]
    return tuple(weights) if any(weights) else (*weights[1:], Fraction(2))


# --- trees ------------------------------------------------------------------------------------------------------------


SCALES = [Fraction(s) for s in ("1", "1", "1/3", "2", "0.7", "1/100")]


@dataclass
class Tree:
    """The parallel lists that EnsembleBuilder.add_tree takes."""

    feature: list[int] = field(default_factory=list)
    test: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    default_left: list[bool] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    sets: dict[int, list[int]] = field(default_factory=dict)

    def add_node(self, value: float = 0.0) -> int:
        """A leaf; it becomes a split when its lists are overwritten."""
        blank = (0, Test.LEAF, 0.0, 0, 0, value, False, Missing.DEFAULT)
        names = ("feature", "test", "threshold", "left", "right", "value", "default_left", "missing")
        for name, entry in zip(names, blank):
            getattr(self, name).append(entry)
        return len(self.test) - 1


def draw_ensemble(draws: Draws, parts: list[Part], limits: Limits) -> TreeEnsemble:
    link = draws.one_of(["sigmoid", "sigmoid", "mean"])
    unit = draws.one_of([Fraction(1), Fraction(1, 4), Fraction("0.1"), Fraction(float32(0.1))])
    if link == "mean":
        leaf_values = [0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 0.75, 1.0]
    else:
        leaf_values = [float(unit * m) for m in (-3, -2, -1, 0, 1, 2, 3)]  # so that sums cancel: ties are common
    owners = {column: part for part in parts for column in part.attribute.columns}
    names = draws.shuffled(list(owners))  # the model's order of columns is its own
    asked = [part for part in parts if part.used]
    features = {name: f for f, name in enumerate(names)}
    trees = []
    for _ in range(draws.integer(1, limits.max_trees)):
        depth = 0 if draws.chance(10) else draws.integer(min(2, limits.max_depth), limits.max_depth)
        trees.append(Tree())
        Growth(draws, trees[-1], asked, features, leaf_values, limits).grow(depth)
    tested_by_set = sorted({tree.feature[node] for tree in trees for node in tree.sets})
    head = {
        "library": "example",
        "feature_names": names,
        "link": link,
        "scale": draws.one_of(SCALES) if link == "sigmoid" else Fraction(1),
        "decides_on": draws.one_of(["margin", "probability"]),
        "tie": draws.one_of(["negative", "positive"]),
        "sum_dtype": draws.one_of(["float64", "float32"]),
        "categories": {f: owners[n].categories for f, n in enumerate(names) if owners[n].categories is not None},
        "known_codes": {
            f: frozenset(draws.subset([*owners[names[f]].set_codes, 99])) for f in tested_by_set if draws.chance(3)
        },
    }
    ensemble = assemble(trees, head, Fraction(0))
    if draws.chance(6):
        return ensemble
    # Most ensembles drawn so far have one class only: move one margin that occurs, or the middle of two, to 0.
    space = Space([part.attribute for part in parts])
    margins = [naive_margin(ensemble, space, draw_point(draws, ensemble, space)) for _ in range(5)]
    centre = margins[0] if draws.chance(3) else (min(margins) + max(margins)) / 2
    if link == "sigmoid" or draws.chance(3):
        base = -centre / head["scale"] if link == "sigmoid" else -centre * len(trees)
        odd = [Fraction(0), Fraction(0), Fraction(1, 3), Fraction(-1, 10**9)]  # a base that is no float has no ties
        return assemble(trees, head, Fraction(float(base)) + draws.one_of(odd))
    # Forests have no base; one more tree of one leaf: (n (F + 1/2) + leaf) / (n + 1) = 1/2.
    level = Fraction(len(trees) + 1, 2) - len(trees) * (centre + Fraction(1, 2))
    extra = Tree()
    extra.add_node(float(min(max(level, Fraction(0)), Fraction(1))))
    return assemble([*trees, extra], head, Fraction(0))


def assemble(trees: list[Tree], head: dict[str, Any], base: Fraction) -> TreeEnsemble:
    builder = EnsembleBuilder()
    for tree in trees:
        builder.add_tree(**vars(tree))
    return builder.build(base=(base,), **head)


def draw_point(draws: Draws, ensemble: TreeEnsemble, space: Space) -> Point:
    model = Model(ensemble, space)
    return {
        a.name: draws.one_of(real_pieces(a, model.critical_points(a)) if a.kind == "real" else finite_pieces(a)).value
        for a in space.attributes
    }


@dataclass
class Growth:
    """One tree while it grows. Siblings lean to different classes, or most ensembles would have one class only."""

    draws: Draws
    tree: Tree
    parts: list[Part]
    features: dict[str, int]  # of the model, by column name
    leaf_values: list[float]  # in order
    limits: Limits

    def grow(self, depth: int, leans: int = 0) -> int:
        """Add a subtree of at most that depth; its root comes before everything below it."""
        draws, tree = self.draws, self.tree
        if depth == 0 or not self.parts or (leans and draws.chance(6 if depth > 1 else 3)):
            return tree.add_node(draws.one_of(self.leaning(leans)))
        part = draws.one_of(self.parts)
        node = tree.add_node()
        tree.feature[node] = self.features[draws.one_of(part.attribute.columns)]
        draw_test(draws, tree, node, part)
        tree.default_left[node] = draws.flag()
        if self.limits.missing:
            rules = [Missing.DEFAULT, Missing.DEFAULT, Missing.AS_ZERO]
            rules += [Missing.WITH_ZERO, Missing.ZERO_EXACT] * part.zero_rule
            tree.missing[node] = draws.one_of(rules)
        to = draws.one_of([1, -1])
        tree.left[node] = self.grow(depth - 1, to)
        tree.right[node] = self.grow(depth - 1, -to)
        return node

    def leaning(self, leans: int) -> list[float]:
        half = (len(self.leaf_values) + 1) // 2
        return {0: self.leaf_values, -1: self.leaf_values[:half], 1: self.leaf_values[-half:]}[leans]


def draw_test(draws: Draws, tree: Tree, node: int, part: Part) -> None:
    by_set = bool(part.set_codes) and draws.chance(2 if part.attribute.kind == "categorical" else 6)
    if by_set or not part.thresholds:
        if part.set_codes:
            tree.test[node] = Test.IN_SET
            tree.sets[node] = draws.subset([*part.set_codes, 99])
        else:  # a real attribute without thresholds: a test that its domain never fails
            tree.test[node] = Test.AT_MOST_F64
            tree.threshold[node] = float(part.attribute.high) + 1
        return
    threshold = draws.one_of(part.thresholds)
    tests = [Test.AT_MOST_F64, Test.AT_MOST_F32]
    if float32(threshold) == threshold:
        tests = [Test.LESS_F32, *tests]
    tree.threshold[node] = threshold
    tree.test[node] = draws.one_of(tests)


# --- reading a failure ------------------------------------------------------------------------------------------------


def describe(ensemble: TreeEnsemble) -> str:
    """The model as indented text, so that a failing example can be read."""
    head = (
        f"  {ensemble.link}, scale {ensemble.scale}, base {ensemble.base[0]}, tie {ensemble.tie}, "
        f"columns {', '.join(ensemble.feature_names)}"
    )
    maps = f", categories {dict(ensemble.categories)}, known codes {dict(ensemble.known_codes)}"
    lines = [head + maps]
    for t, root in enumerate(ensemble.roots.tolist()):
        lines.append(f"  tree {t}")
        stack = [(root, "    ")]
        while stack:
            node, indent = stack.pop()
            if ensemble.test[node] == Test.LEAF:
                lines.append(f"{indent}{ensemble.value[node, 0]!s}")
                continue
            test, rule = Test(int(ensemble.test[node])).name, Missing(int(ensemble.missing[node])).name
            codes = ensemble.set_codes[ensemble.set_start[node] : ensemble.set_stop[node]].tolist()
            operand = codes if test == "IN_SET" else float(ensemble.threshold[node])
            side = "left" if ensemble.default_left[node] else "right"
            name = ensemble.feature_names[ensemble.feature[node]]
            lines.append(f"{indent}{name} {test} {operand} (missing {rule}, {side})")
            stack += [(int(ensemble.right[node]), indent + "  "), (int(ensemble.left[node]), indent + "  ")]
    return "\n".join(lines)
