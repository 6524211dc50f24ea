"""The oracle of the newer questions: questions.md read aloud, in plain loops and fractions, on the oracle's own pieces."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.properties import Fairness, Monotonicity, Property, ScoreFairness
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.naive import (
    ZERO,
    NaiveAnswer,
    Oracle,
    Piece,
    Point,
    Value,
    decimal,
    naive_answer,
    naive_confident,
    naive_signature,
    naive_threshold,
    present,
    real_pieces,
)


def naive_rates(
    ensemble: TreeEnsemble, space: Space, sensitive: tuple[str, ...]
) -> Iterator[tuple[dict[str, Piece], Fraction]]:
    """Part 4: for every combination of pieces of the sensitive attributes, P(class 1 | group)."""
    oracle = Oracle(ensemble, space, Fairness(sensitive))
    others = [a for a in space.attributes if a.name not in sensitive]
    for group in product(*(oracle.pieces(space[name]) for name in sensitive)):
        rate = allowed = ZERO
        for rest in product(*(oracle.pieces(a) for a in others)):
            pieces = dict(zip(sensitive, group)) | {a.name: piece for a, piece in zip(others, rest)}
            mass = oracle.mass({a.name: pieces[a.name] for a in others})
            allowed += mass if oracle.rules.allowed(oracle.representative(pieces)) else ZERO
            if mass and oracle.class_of(oracle.representative(pieces)) == 1:
                rate += mass
        if allowed:  # a group that the rules forbid has no rate
            yield dict(zip(sensitive, group)), rate / allowed


def naive_measure(ensemble: TreeEnsemble, space: Space, prop: Property) -> NaiveAnswer:
    """Parts 2, 2a and 3: |X_kappa|, |X_unfair| and the measure, by enumeration of x and of all its x'."""
    oracle = Oracle(ensemble, space, prop)
    forbidden = confident = counterexample = ZERO
    for pieces in products_of_fine_pieces(oracle):
        mass = oracle.mass(pieces)
        if not mass:
            continue
        x = oracle.representative(pieces)
        forbidden += ZERO if oracle.rules.allowed(x) else mass
        if oracle.is_confident(x):
            confident += mass
            if any(is_witness(oracle, x, other) for other in exchanged(oracle, x)):
                counterexample += mass
    return naive_answer(confident, counterexample, forbidden)


def products_of_fine_pieces(oracle: Oracle) -> Iterator[dict[str, Piece]]:
    """As the oracle's own; a sensitive attribute with a bounded change is cut where its reach changes, too."""
    attributes = oracle.space.attributes
    for pieces in product(*(fine_pieces(oracle, a) for a in attributes)):
        yield {a.name: piece for a, piece in zip(attributes, pieces)}


def fine_pieces(oracle: Oracle, attribute: Attribute) -> list[Piece]:
    bound = dict(oracle.property.max_change).get(attribute.name)
    if bound is None or attribute.kind != "real":
        return oracle.pieces(attribute)
    points = oracle.critical_points(attribute)
    points += [p + shift for p in points for shift in (-bound, bound)]
    return real_pieces(attribute, sorted({p for p in points if attribute.low <= p <= attribute.high}))


def exchanged(oracle: Oracle, x: Point) -> Iterator[Point]:
    """Every x' that matters and differs from x in sensitive attributes only (epsilon = 0), whether it is admissible or not."""
    names = [a.name for a in oracle.sensitive]
    for values in product(*(values_near(oracle, a, x[a.name]) for a in oracle.sensitive)):
        other = x | dict(zip(names, values))
        if other != x:
            yield other


def values_near(oracle: Oracle, attribute: Attribute, value: Value) -> list[Value]:
    """One value of every piece, if there is one within the bound; of an open interval the middle of what is within it."""
    bound = dict(oracle.property.max_change).get(attribute.name)
    found = []
    for piece in fine_pieces(oracle, attribute):
        if bound is None or value is None or piece.value is None or not piece.is_interval:
            found.append(piece.value)
            continue
        low, high = max(piece.low, value - bound), min(piece.high, value + bound)
        if low < high:
            found.append((low + high) / 2)
    return found


def is_witness(oracle: Oracle, x: Point, other: Point) -> bool:
    """Whether x' makes x a counterexample."""
    prop = oracle.property
    if not oracle.rules.allowed(x) or not oracle.rules.allowed(other):
        return False
    for name, bound in prop.max_change:
        if x[name] is None or other[name] is None:
            if x[name] != other[name]:
                return False
        elif abs(x[name] - other[name]) > bound:
            return False
    F, G = oracle.margin(x), oracle.margin(other)
    if isinstance(prop, ScoreFairness):
        if prop.scale == "probability" and oracle.ensemble.link == "sigmoid":
            return probabilities_differ(F, G, prop.at_most)
        return abs(F - G) > prop.at_most
    if isinstance(prop, Monotonicity):
        one, two = x[prop.sensitive[0]], other[prop.sensitive[0]]
        if one is None or two is None:
            return False
        more = two > one if prop.direction == "increasing" else two < one  # x' is to have at least as much as x
        below, above = (x, other) if more else (other, x)
        if prop.on == "score":
            return oracle.margin(below) > oracle.margin(above)
        return oracle.class_of(below) == 1 and oracle.class_of(above) == 0
    own, rival = oracle.class_of(x), oracle.class_of(other)
    partner = replace_kappa(prop)
    sure = naive_confident(oracle.ensemble, partner, G, naive_threshold(oracle.ensemble, other))
    return own is not None and rival is not None and own != rival and sure


def replace_kappa(prop: Property) -> Property:
    """A property whose kappa is what x' must exceed."""
    return Fairness(prop.sensitive, 0, prop.partner_kappa, tie=prop.tie)


def probabilities_differ(F: Fraction, G: Fraction, by_more_than: Fraction) -> bool:
    """|p(F) - p(G)| > a change, with 80 digits, which must settle it."""
    with localcontext(prec=80):
        p, q, change = (Decimal(v.numerator) / Decimal(v.denominator) for v in (F, G, by_more_than))
        apart = abs(1 / (1 + (-p).exp()) - 1 / (1 + (-q).exp())) - change
        assert F == G or not change or abs(apart) > Decimal(10) ** -60
        return apart > 0


def naive_cells(ensemble: TreeEnsemble, space: Space, prop: Property) -> tuple[int, int, int]:
    """Part 2a, mass 'cells' (epsilon = 0): how many cells there are, how many are confident, how many counterexamples."""
    oracle = Oracle(ensemble, space, prop)
    cells = [cells_of(oracle, attribute) for attribute in space.attributes]
    total = confident = counterexample = 0
    for values in product(*cells):
        x = dict(zip([a.name for a in space.attributes], values))
        total += 1
        if oracle.is_confident(x):
            confident += 1
            counterexample += any(is_witness(oracle, x, other) for other in exchanged(oracle, x))
    return total, confident, counterexample


def cells_of(oracle: Oracle, attribute: Attribute) -> list[Value]:
    """One value of every cell: neighbouring numbers, or any categories, that no test and no threshold tells apart."""
    found: list[tuple[object, Value]] = []
    for piece in oracle.pieces(attribute):
        own: list[object] = [piece.value is None, *naive_signature(oracle.model, attribute, piece.value)]
        rule = oracle.ensemble.decision
        if rule is not None and rule.attribute == attribute.name:
            own.append(naive_threshold(oracle.ensemble, {attribute.name: piece.value}))
        seen = [signature for signature, _ in found]
        if own not in (seen[-1:] if attribute.is_numeric else seen):
            found.append((own, piece.value))
    return [value for _, value in found]


def naive_formula(family: str, location: Fraction, scale: Fraction, low: Fraction, high: Fraction) -> Decimal:
    """The mass that a gaussian or a lognormal has between two numbers, to some 80 digits: by the alternating series of the
    error function, z - z^3 / (3 * 2) + z^5 / (5 * 2^2 * 2!) - ..., for |z| < 20."""

    def standard(x: Fraction) -> Decimal:
        z = (decimal(x).ln() if family == "lognormal" else decimal(x)) - decimal(location)
        return z / decimal(scale)

    def normal(z: Decimal) -> Decimal:
        if abs(z) > 20:
            return Decimal(0) if z < 0 else Decimal(1)
        term, total = z, Decimal(0)
        for n in range(1200):
            total += term / (2 * n + 1)
            term = -term * z * z / (2 * (n + 1))
        return Decimal(1) / 2 + total / (2 * PI).sqrt()

    with localcontext() as context:
        context.prec = 240
        ends = [Decimal(0) if family == "lognormal" and x <= 0 else normal(standard(x)) for x in (low, high)]
        return ends[1] - ends[0]


PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"
)


def naive_formula_measure(ensemble: TreeEnsemble, space: Space, prop: Property) -> tuple[Fraction, Fraction]:
    """|X_kappa| and |X_unfair| where numeric attributes may have a mass by a formula; to some 80 digits."""
    oracle = Oracle(ensemble, space, prop)
    masses = {a.name: [formula_mass(a, piece) for piece in oracle.pieces(a)] for a in space.attributes}
    names = [a.name for a in space.attributes]
    confident = counterexample = ZERO
    for at in product(*(range(len(masses[name])) for name in names)):
        mass = Fraction(1)
        for name, i in zip(names, at):
            mass *= masses[name][i]
        if mass:
            x = {a.name: oracle.pieces(a)[i].value for a, i in zip(space.attributes, at)}
            if oracle.is_confident(x):
                confident += mass
                counterexample += mass * any(True for _ in oracle.witnesses(x))
    return confident, counterexample


def formula_mass(attribute: Attribute, piece: Piece) -> Fraction:
    """An integer has the mass of [v - 1/2, v + 1/2]; all is truncated to the domain."""
    formula = attribute.distribution
    if formula is None or piece.value is None:
        return piece.mass
    half = Fraction(1, 2) if attribute.kind == "integer" else ZERO
    if attribute.kind == "real" and not piece.is_interval:
        return ZERO
    low, high = (piece.low, piece.high) if attribute.kind == "real" else (piece.value - half, piece.value + half)
    family = formula.family, formula.location, formula.scale
    whole = naive_formula(*family, attribute.low - half, attribute.high + half)
    return present(attribute) * Fraction(naive_formula(*family, low, high)) / Fraction(whole)
