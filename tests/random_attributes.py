"""Small attributes as odd as the definitions allow, and what the trees may ask about them; see strategies.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar

from boxqte.space.attributes import Attribute, Histogram
from tests.naive import float32

T = TypeVar("T")


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
