"""The oracle: semantics.md read aloud, in plain loops and fractions.

It shares no code with `src`: it reads the data fields of TreeEnsemble, Space and Property and calls none of their
methods. Whatever an engine computes must equal what is computed here.

How it works. Every attribute's domain is cut into pieces on which nothing changes: single values of finite domains; the
critical points of a real domain and the open intervals between them; the missing value. One point a piece stands for
all of it. For every combination of pieces, all x' that matter are tried one after the other.

An input x is a dict from attribute name to value: a Fraction (real), an int (integer), one of `attribute.values`
(categorical, one-hot), or MISSING.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import inf
from typing import Any

from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.properties import Property
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.naive_rules import NaiveRules

LEAF, LESS_F32, AT_MOST_F32, AT_MOST_F64, IN_SET = range(5)
DEFAULT, AS_ZERO, WITH_ZERO, ZERO_EXACT = range(4)

MISSING = None
ZERO = Fraction(0)
HALF = Fraction(1, 2)
ZERO_BAND = Fraction(float.fromhex("0x1.a95a5cp-117"))  # LightGBM's 1e-35f: the float32 nearest to 1e-35, exactly

Value = Any
Point = dict[str, Value]


@dataclass(frozen=True)
class NaiveAnswer:
    """The masses |X_kappa| and |X_unfair| among the inputs that no rule forbids, and M = 1 - |X_unfair| / |X_kappa|; M is
    None if nothing is confident."""

    confident: Fraction
    counterexample: Fraction
    measure: Fraction | None
    forbidden: Fraction = ZERO


@dataclass(frozen=True)
class Piece:
    """A part of one attribute's domain on which nothing changes: the value alone, or the open interval (low, high)."""

    value: Value
    mass: Fraction
    low: Fraction | None = None
    high: Fraction | None = None

    @property
    def is_interval(self) -> bool:
        return self.low is not None


@dataclass(frozen=True)
class NaiveRow:
    """What the definitions say of one x, and so of every point in the product of its pieces.

    `witnesses` holds one x' for every combination of sensitive values that has one (f(x') != f(x), everything else
    near), whether x is confident or not; for robustness it holds at most one. A real sensitive attribute is represented
    by its critical points and by two points of each open interval between them. `witness_values` are the same x' cut
    down to the sensitive values, in the order of `property.sensitive`.
    """

    x: Point
    pieces: dict[str, Piece]
    mass: Fraction
    margin: Fraction
    class_: int | None
    confident: bool
    counterexample: bool
    witnesses: list[Point]
    witness_values: list[tuple[Value, ...]]


def naive_quantify(ensemble: TreeEnsemble, space: Space, property: Property, *, by_cell: bool = True) -> NaiveAnswer:
    """The measure by enumeration. `by_cell=False` evaluates the trees anew for every single x' (slow)."""
    oracle = Oracle(ensemble, space, property, by_cell)
    total = forbidden = confident = counterexample = ZERO
    for pieces in oracle.products_of_pieces():
        mass = oracle.mass(pieces)
        total += mass
        if not mass:
            continue  # a point of mass 0 exists as an x', which `witnesses` sees to; as an x it adds nothing
        x = oracle.representative(pieces)
        forbidden += ZERO if oracle.rules.allowed(x) else mass
        if oracle.is_confident(x):
            confident += mass
            if any(True for _ in oracle.witnesses(x)):
                counterexample += mass
    assert total == 1, f"the masses of the pieces sum to {total}"
    return naive_answer(confident, counterexample, forbidden)


def naive_answer(confident: Fraction, counterexample: Fraction, forbidden: Fraction) -> NaiveAnswer:
    measure = 1 - counterexample / confident if confident else None
    return NaiveAnswer(confident / (1 - forbidden), counterexample / (1 - forbidden), measure, forbidden)


def naive_rows(ensemble: TreeEnsemble, space: Space, property: Property) -> Iterator[NaiveRow]:
    """Every combination of pieces, those of mass 0 included, with everything the definitions say about it."""
    oracle = Oracle(ensemble, space, property)
    for pieces in oracle.products_of_pieces():
        yield oracle.row(oracle.representative(pieces), pieces)


def naive_row_at(ensemble: TreeEnsemble, space: Space, property: Property, x: Point) -> NaiveRow:
    """The local question: the same for one given x of the space."""
    oracle = Oracle(ensemble, space, property)
    for attribute in space.attributes:
        check_value(attribute, x[attribute.name])
    return oracle.row(x, {name: Piece(value, ZERO) for name, value in x.items()})


@dataclass(frozen=True)
class Keep:
    """One condition on an attribute: these values, or of a real attribute what lies between two numbers, and whether a
    missing value satisfies it."""

    name: str
    values: tuple[Value, ...] = ()
    low: Fraction | None = None
    high: Fraction | None = None
    missing: bool = False

    def holds(self, value: Value) -> bool:
        if value is MISSING:
            return self.missing
        if self.low is None or self.high is None:
            return value in self.values
        return self.low <= value <= self.high


def naive_kept_mass(space: Space, row: NaiveRow, keeps: list[Keep]) -> Fraction:
    """How much of the row's mass satisfies all conditions; what is said of the row holds on all of it."""
    mass = Fraction(1)
    for attribute in space.attributes:
        piece = row.pieces[attribute.name]
        mine = [keep for keep in keeps if keep.name == attribute.name]
        if not piece.is_interval:
            mass *= piece.mass if all(keep.holds(piece.value) for keep in mine) else ZERO
            continue
        low = max([piece.low, *(keep.low for keep in mine)])
        high = min([piece.high, *(keep.high for keep in mine)])
        mass *= present(attribute) * interval_share(attribute, low, high) if low < high else ZERO
    return mass


def naive_is_pair(oracle: Oracle, x: Point, other: Point, slack: Fraction = ZERO) -> bool:
    """Whether x is confident and x' makes it a counterexample; real values may be off by the slack, relatively."""
    own, rival = oracle.class_of(x), oracle.class_of(other)
    if own is None or rival is None or own == rival or not oracle.is_confident(x):
        return False
    if oracle.sensitive and all(x[a.name] == other[a.name] for a in oracle.sensitive):
        return False
    for a in oracle.others:
        one, two = x[a.name], other[a.name]
        if one is MISSING or two is MISSING or a.kind not in ("real", "integer"):
            if one != two:
                return False
            continue
        loose = slack * max(abs(one), abs(two)) if a.kind == "real" else ZERO
        if abs(one - two) > naive_tolerance(oracle.property, a) + loose:
            return False
    return True


def naive_signature(model: Any, attribute: Attribute, value: Value) -> list[bool]:
    """Which way every test of the attribute sends the value: what the model can tell of it."""
    numbers = dict(model.numbers(attribute.name, value))
    nodes = [n for n in range(len(model.test)) if model.test[n] != LEAF and model.feature[n] in numbers]
    return [model.goes_left(n, numbers[model.feature[n]]) for n in nodes]


def naive_margin(ensemble: TreeEnsemble, space: Space, x: Point) -> Fraction:
    """F(x), exactly."""
    return Model(ensemble, space).margin(x)


def naive_threshold(ensemble: TreeEnsemble, x: Point) -> Fraction | None:
    """tau at x: the decision rule's only threshold, or that of x's value of its attribute; None without a rule."""
    rule = ensemble.decision
    if rule is None:
        return None
    if rule.attribute is None:
        [(_, tau)] = rule.thresholds
        return tau
    own = x[rule.attribute]
    found = [tau for value, tau in rule.thresholds if (value == "missing" if own is MISSING else value == own)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} thresholds for {rule.attribute} = {own!r}")
    return found[0]


def naive_side(ensemble: TreeEnsemble, margin: Fraction, tau: Fraction | None) -> int:
    """1 if the margin lies above the decision, -1 if below, 0 on it: p against tau, or F against 0 without a rule."""
    rule = ensemble.decision
    if rule is None or tau is None:
        return (margin > 0) - (margin < 0)
    if rule.on == "margin":
        return (margin > tau) - (margin < tau)
    if ensemble.link == "mean":
        p = margin + HALF
        return (p > tau) - (p < tau)
    if margin == 0:  # the only margin with a rational probability
        return (tau < HALF) - (tau > HALF)
    with localcontext() as context:
        context.prec = 80
        beyond = 1 / (1 + (-decimal(margin)).exp()) - decimal(tau)
        if abs(beyond) < Decimal("1e-60"):
            raise ArithmeticError(f"80 digits do not separate sigmoid({margin}) from {tau}")
        return 1 if beyond > 0 else -1


def naive_class(
    ensemble: TreeEnsemble, property: Property, margin: Fraction, tau: Fraction | None = None
) -> int | None:
    """The class that a margin means where the threshold is tau; None if it has none (a tie in the paper's reading)."""
    side = naive_side(ensemble, margin, tau)
    if side == 0:
        if property.tie == "paper":
            return None
        if ensemble.decision is not None:
            return 0 if ensemble.decision.exclusive else 1
        return 1 if ensemble.tie == "positive" else 0
    return 1 if side > 0 else 0


def naive_confident(ensemble: TreeEnsemble, property: Property, margin: Fraction, tau: Fraction | None = None) -> bool:
    """f_c(x) > kappa, measured from the decision: sigmoid(|F - logit(tau)|) > kappa, or |p - tau| > kappa - 1/2."""
    kappa, rule = property.kappa, ensemble.decision
    if kappa <= HALF:
        return naive_class(ensemble, property, margin, tau) is not None
    on_margin = rule is None or tau is None or rule.on == "margin"
    if ensemble.link == "mean":
        level = ZERO if rule is None or tau is None else tau if on_margin else tau - HALF
        return abs(margin - level) > kappa - HALF
    # The margin has the scale in it, so that it is the F of p = sigmoid(F).
    with localcontext() as context:
        context.prec = 80
        if on_margin:
            away = abs(decimal(margin - (tau or ZERO)))
        elif margin == 0 and tau in (kappa, 1 - kappa):
            return False  # |0 - logit(tau)| is logit(kappa) itself
        else:
            away = abs(decimal(margin) - (decimal(tau) / decimal(1 - tau)).ln())
        beyond = away - (decimal(kappa) / decimal(1 - kappa)).ln()
        if abs(beyond) < Decimal(
            "1e-60"
        ):  # a sum of logarithms is irrational, the margin is not: more digits would tell
            raise ArithmeticError(f"80 digits do not separate F = {margin} from logit({tau}) + logit({kappa})")
        return beyond > 0


def decimal(number: Fraction) -> Decimal:
    """A rational to as many digits as the context has."""
    return Decimal(number.numerator) / Decimal(number.denominator)


def naive_tolerance(property: Property, attribute: Attribute) -> Fraction:
    """eps of a non-sensitive attribute in its own unit."""
    if attribute.kind not in ("real", "integer"):
        return ZERO
    if isinstance(property.epsilon, Fraction):
        return property.epsilon * (attribute.high - attribute.low)
    for name, tolerance in property.epsilon:
        if name == attribute.name:
            return tolerance
    return ZERO


class Oracle:
    """One problem, its pieces and its x'."""

    def __init__(self, ensemble: TreeEnsemble, space: Space, property: Property, by_cell: bool = True):
        self.ensemble, self.space, self.property = ensemble, space, property
        self.model = Model(ensemble, space)
        self.rules = NaiveRules(space)
        self.sensitive = [a for a in space.attributes if a.name in property.sensitive]
        self.others = [a for a in space.attributes if a.name not in property.sensitive]
        self.by_cell = by_cell
        self._classes: dict[tuple[Any, ...], int | None] = {}
        self._near: dict[tuple[str, Value], list[tuple[Any, Value]]] = {}

    def margin(self, x: Point) -> Fraction:
        return self.model.margin(x)

    def class_of(self, x: Point) -> int | None:
        """The class of x; an input that is forbidden has none."""
        if not self.rules.allowed(x):
            return None
        return naive_class(self.ensemble, self.property, self.margin(x), naive_threshold(self.ensemble, x))

    def is_confident(self, x: Point) -> bool:
        if not self.rules.allowed(x):
            return False
        return naive_confident(self.ensemble, self.property, self.margin(x), naive_threshold(self.ensemble, x))

    def pieces(self, attribute: Attribute) -> list[Piece]:
        """The pieces of the attribute on which nothing changes, neither the class nor the set of reachable pieces."""
        if attribute.kind != "real":
            return finite_pieces(attribute)
        points = self.critical_points(attribute)
        if attribute not in self.sensitive:
            eps = naive_tolerance(self.property, attribute)
            shifted = [p + shift for p in points for shift in (-eps, eps)]
            points = sorted({p for p in points + shifted if attribute.low <= p <= attribute.high})
        return real_pieces(attribute, points)

    def critical_points(self, attribute: Attribute) -> list[Fraction]:
        """Where the model's tests and the rules can change along a real attribute."""
        ruled = [p for p in self.rules.points(attribute) if attribute.low <= p <= attribute.high]
        return sorted({*self.model.critical_points(attribute), *ruled})

    def products_of_pieces(self) -> Iterator[dict[str, Piece]]:
        names = [a.name for a in self.space.attributes]
        for pieces in product(*(self.pieces(a) for a in self.space.attributes)):
            yield dict(zip(names, pieces))

    def mass(self, pieces: dict[str, Piece]) -> Fraction:
        mass = Fraction(1)
        for piece in pieces.values():
            mass *= piece.mass
        return mass

    def representative(self, pieces: dict[str, Piece]) -> Point:
        return {name: piece.value for name, piece in pieces.items()}

    def row(self, x: Point, pieces: dict[str, Piece]) -> NaiveRow:
        confident = self.is_confident(x)
        witnesses = list(self.witnesses(x))
        return NaiveRow(
            x=x,
            pieces=pieces,
            mass=self.mass(pieces),
            margin=self.margin(x),
            class_=self.class_of(x),
            confident=confident,
            counterexample=confident and bool(witnesses),
            witnesses=witnesses,
            witness_values=[tuple(w[name] for name in self.property.sensitive) for w in witnesses],
        )

    def witnesses(self, x: Point) -> Iterator[Point]:
        """For every combination of sensitive values but x's own: the first near x' of the other class, if any."""
        own = self.class_of(x)
        if own is None:
            return
        names = [a.name for a in self.sensitive + self.others]
        near = [self.near(a, x[a.name]) for a in self.others]
        for group in product(*(self.near(a, x[a.name]) for a in self.sensitive)):
            if self.sensitive and all(value == x[a.name] for a, (_, value) in zip(self.sensitive, group)):
                continue  # x'_S = x_S
            for rest in product(*near):
                other = self.class_at(names, group + rest)
                if other is not None and other != own:
                    yield {name: value for name, (_, value) in zip(names, group + rest)}
                    break

    def class_at(self, names: list[str], choice: tuple[tuple[Any, Value], ...]) -> int | None:
        """The class of an x' given as (cell, value) pairs; points in the same cells pass the same tests."""
        if not self.by_cell:
            return self.class_of({name: value for name, (_, value) in zip(names, choice)})
        cells = tuple([cell for cell, _ in choice])
        if cells not in self._classes:
            self._classes[cells] = self.class_of({name: value for name, (_, value) in zip(names, choice)})
        return self._classes[cells]

    def near(self, attribute: Attribute, value: Value) -> list[tuple[Any, Value]]:
        """Enough values of x' near the value of x, each with the number of the cell it lies in."""
        if (attribute.name, value) not in self._near:
            if attribute in self.sensitive:
                found = self.anywhere(attribute)
            else:
                found = self.within_tolerance(attribute, value)
            self._near[attribute.name, value] = found
        return self._near[attribute.name, value]

    def anywhere(self, attribute: Attribute) -> list[tuple[Any, Value]]:
        """Sensitive: every value counts, and of an open interval two points, so that one always differs from x."""
        if attribute.kind != "real":
            return list(enumerate(piece.value for piece in finite_pieces(attribute)))
        found: list[tuple[Any, Value]] = []
        for cell, piece in enumerate(real_pieces(attribute, self.critical_points(attribute))):
            if piece.is_interval:
                third = (piece.high - piece.low) / 3
                found += [(cell, piece.low + third), (cell, piece.high - third)]
            else:
                found.append((cell, piece.value))
        return found

    def within_tolerance(self, attribute: Attribute, value: Value) -> list[tuple[Any, Value]]:
        """Not sensitive: |x_i - x'_i| <= eps_i; categories equal; missing near missing alone."""
        eps = naive_tolerance(self.property, attribute)
        found: list[tuple[Any, Value]] = []
        if attribute.kind != "real":
            for cell, piece in enumerate(finite_pieces(attribute)):
                if piece.value is MISSING or value is MISSING or attribute.kind != "integer":
                    close = piece.value == value
                else:
                    close = abs(piece.value - value) <= eps
                if close:
                    found.append((cell, piece.value))
            return found
        for cell, piece in enumerate(real_pieces(attribute, self.critical_points(attribute))):
            if piece.value is MISSING or value is MISSING:
                if piece.value is MISSING and value is MISSING:
                    found.append((cell, MISSING))
            elif piece.is_interval:
                # The middle of what the closed window leaves of the open interval, if it leaves anything.
                middle = (max(piece.low, value - eps) + min(piece.high, value + eps)) / 2
                if piece.low < middle < piece.high and abs(middle - value) <= eps:
                    found.append((cell, middle))
            elif abs(piece.value - value) <= eps:
                found.append((cell, piece.value))
        return found


class Model:
    """The trees of one ensemble, applied to points of one space."""

    def __init__(self, ensemble: TreeEnsemble, space: Space):
        if len(ensemble.base) != 1 or ensemble.link not in ("sigmoid", "mean"):
            raise ValueError("the oracle knows binary models only")
        self.attributes = {a.name: a for a in space.attributes}
        self.base = ensemble.base[0]
        self.scale = ensemble.scale
        self.link = ensemble.link
        self.categories = ensemble.categories
        self.known_codes = ensemble.known_codes
        self.roots: list[int] = ensemble.roots.tolist()
        self.feature: list[int] = ensemble.feature.tolist()
        self.test: list[int] = ensemble.test.tolist()
        self.threshold: list[float] = ensemble.threshold.tolist()
        self.left: list[int] = ensemble.left.tolist()
        self.right: list[int] = ensemble.right.tolist()
        self.default_left: list[bool] = ensemble.default_left.tolist()
        self.missing: list[int] = ensemble.missing.tolist()
        codes, starts, stops = ensemble.set_codes.tolist(), ensemble.set_start.tolist(), ensemble.set_stop.tolist()
        self.sets = [codes[start:stop] for start, stop in zip(starts, stops)]
        self.value = [Fraction(row[0]) for row in ensemble.value.tolist()]
        self.features_of = {
            a.name: [ensemble.feature_names.index(c) if c in ensemble.feature_names else None for c in a.columns]
            for a in space.attributes
        }
        fed = {f for features in self.features_of.values() for f in features}
        for node in range(len(self.test)):
            if self.test[node] != LEAF and self.feature[node] not in fed:
                raise ValueError(
                    f"the model tests '{ensemble.feature_names[self.feature[node]]}', which is not in the space"
                )
            if self.test[node] == LESS_F32 and float32(self.threshold[node]) != self.threshold[node]:
                raise ValueError(f"x < {self.threshold[node]!r} on float32, but the threshold is no float32")
        self._numbers: dict[tuple[str, Value], list[tuple[int | None, Fraction | float | None]]] = {}

    def critical_points(self, attribute: Attribute) -> list[Fraction]:
        """Where a real attribute's test results can change: its ends, its thresholds, zero and the edges of its band."""
        points = [attribute.low, attribute.high]
        for node in range(len(self.test)):
            if self.test[node] != LEAF and self.feature[node] in self.features_of[attribute.name]:
                points.append(Fraction(self.threshold[node]))
                if self.missing[node] == WITH_ZERO:
                    points += [-ZERO_BAND, ZERO_BAND]
                elif self.missing[node] == ZERO_EXACT:
                    points.append(ZERO)
        return sorted({p for p in points if attribute.low <= p <= attribute.high})

    def margin(self, x: Point) -> Fraction:
        numbers: dict[int | None, Fraction | float | None] = {}
        for name in self.attributes:
            numbers.update(self.numbers(name, x[name]))
        total = self.base
        for root in self.roots:
            node = root
            while self.test[node] != LEAF:
                node = self.left[node] if self.goes_left(node, numbers[self.feature[node]]) else self.right[node]
            total += self.value[node]
        return total / len(self.roots) - HALF if self.link == "mean" else self.scale * total

    def goes_left(self, node: int, number: Fraction | float | None) -> bool:
        """A node's test. A Fraction is a value of a real attribute, a float any other, None is missing."""
        test, rule, threshold = self.test[node], self.missing[node], self.threshold[node]
        if number is None and rule == AS_ZERO:
            number = 0.0
        if number is None:
            return self.default_left[node]
        if rule == WITH_ZERO and abs(Fraction(number)) <= ZERO_BAND:
            return self.default_left[node]
        if rule == ZERO_EXACT and number == 0:
            return self.default_left[node]
        if test == IN_SET:
            if isinstance(number, Fraction):
                raise ValueError("a category set tests a real attribute")
            if number != int(number):
                raise ValueError(f"a category set tests {number}, which is no integer")
            code = int(number)
            known = self.known_codes.get(self.feature[node])
            if known is not None and code not in known:
                return self.default_left[node]
            return code in self.sets[node]
        if isinstance(number, Fraction):
            return number < Fraction(threshold) if test == LESS_F32 else number <= Fraction(threshold)
        if test == LESS_F32:
            return float32(number) < threshold
        if test == AT_MOST_F32:
            return float32(number) <= threshold
        return number <= threshold

    def numbers(self, name: str, value: Value) -> list[tuple[int | None, Fraction | float | None]]:
        """What the attribute's value writes into each of its model columns: (feature, number) pairs."""
        if (name, value) not in self._numbers:
            attribute, features = self.attributes[name], self.features_of[name]
            if set(features) == {None}:
                written: list[Any] = []  # an attribute that the model does not know; a threshold may go by it
            elif value is MISSING:
                written = [None] * len(features)
            elif attribute.kind == "real":
                written = [Fraction(value)]
            elif attribute.kind == "integer":
                written = [float(value)]
            elif attribute.codes is not None:
                written = list(attribute.codes[attribute.values.index(value)])
            elif features[0] in self.categories:
                written = [float(self.categories[features[0]].index(value))]
            else:
                written = [float(value)]
            self._numbers[name, value] = list(zip(features, written))
        return self._numbers[name, value]


def finite_pieces(attribute: Attribute) -> list[Piece]:
    """Every single value of an integer, categorical or one-hot attribute, and the missing value if it is declared."""
    if attribute.kind == "integer":
        values: list[Value] = list(range(int(attribute.low), int(attribute.high) + 1))
        weights = [integer_weight(attribute, v) for v in values]
    else:
        values = list(attribute.values)
        weights = list(attribute.weights) if attribute.weights is not None else [Fraction(1) for _ in values]
    total = sum(weights)
    pieces = [Piece(v, present(attribute) * w / total) for v, w in zip(values, weights)]
    return pieces + missing_piece(attribute)


def integer_weight(attribute: Attribute, value: int) -> Fraction:
    """The weight of a bin lies evenly on its integers: edges[i], ..., edges[i + 1] - 1."""
    if attribute.histogram is None:
        return Fraction(1)
    edges, weights = attribute.histogram.edges, attribute.histogram.weights
    for low, high, weight in zip(edges, edges[1:], weights):
        if low <= value < high:
            return weight / (high - low)
    raise ValueError(f"{value} lies in no bin")


def real_pieces(attribute: Attribute, points: list[Fraction]) -> list[Piece]:
    """The points, the open intervals between them, and the missing value if it is declared."""
    pieces = []
    for i, point in enumerate(points):
        # A point has no length, unless the domain is nothing but this point.
        pieces.append(Piece(point, present(attribute) if attribute.low == attribute.high else ZERO))
        if i + 1 < len(points):
            low, high = point, points[i + 1]
            pieces.append(Piece((low + high) / 2, present(attribute) * interval_share(attribute, low, high), low, high))
    return pieces + missing_piece(attribute)


def interval_share(attribute: Attribute, low: Fraction, high: Fraction) -> Fraction:
    """The share of a real attribute's present mass that lies between low and high."""
    if attribute.histogram is None:
        return (high - low) / (attribute.high - attribute.low)
    edges, weights = attribute.histogram.edges, attribute.histogram.weights
    share = ZERO
    for left, right, weight in zip(edges, edges[1:], weights):
        overlap = min(high, right) - max(low, left)
        if overlap > 0:
            share += weight * overlap / (right - left)
    return share / sum(weights)


def present(attribute: Attribute) -> Fraction:
    return 1 - attribute.missing if attribute.missing is not None else Fraction(1)


def missing_piece(attribute: Attribute) -> list[Piece]:
    return [Piece(MISSING, attribute.missing)] if attribute.missing is not None else []


def check_value(attribute: Attribute, value: Value) -> None:
    """Refuse a value that is not in the attribute's domain."""
    if value is MISSING:
        inside = attribute.missing is not None
    elif attribute.kind in ("real", "integer"):
        inside = attribute.low <= value <= attribute.high and (attribute.kind == "real" or value == int(value))
    else:
        inside = value in attribute.values
    if not inside:
        raise ValueError(f"{value!r} is not a value of '{attribute.name}'")


def float32(number: float) -> float:
    """The nearest float32, ties to even, infinite beyond its range: the C cast that the libraries apply."""
    try:
        nearest: float = struct.unpack("<f", struct.pack("<f", number))[0]
        return nearest
    except OverflowError:
        return inf if number > 0 else -inf
