"""The checker's own reading of a question: the model over the space in cells and integers."""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from boxqte.errors import CertificateError
from boxqte.models.categories import HashedCategories
from boxqte.models.decision import DecisionRule
from boxqte.models.ensemble import ZERO_BAND, Missing, Test, TreeEnsemble, holds
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space

FORMAT = "boxqte certificate 1"
KINDS = ("fair", "unfair", "low")
RATE = "group rate"
FIELDS = {"kind", "sensitive", "group", "component", "epsilon_rate", "epsilon", "kappa", "tie"}
FIXED = 2.0**62  # sums over list B are whole numbers of 1 / FIXED
BLOCK = 64
CLOSE = 2.0**-40  # masses are compared up to this share of the box (claims) or of the space (sums)
CACHE = 1 << 22  # numbers that all tables in a cache may have
HALF = Fraction(1, 2)
NONSENSE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration, RecursionError)


class Rejected(CertificateError):  # noqa: N818 (it is a verdict)
    """The certificate does not prove what it states."""


class Axis(NamedTuple):
    """An attribute as cells on which no test changes; the missing value, if it is declared, is the last cell."""

    attribute: Attribute
    sensitive: bool
    starts: list[Any]  # numeric: where cells begin, (v, 0) before v or (v, 1) behind it; finite: the values
    masses: list[int]  # in units of 1 / unit
    unit: int


class Question:
    """The model over the space in integers: F = constant + sum of leaves, in 1 / unit; class 0 iff F <= neg, class 1 iff
    F >= pos, confident iff F <= conf_neg or F >= conf_pos. `tests` has for each inner node its axis and left cells.

    A decision threshold for each group is one more tree: `stumps` has an axis, its groups of cells, and what each adds to F.

    The rate of class 1 in a group of values: x lies in their cells (`group`). One more sensitive axis has two cells: x in the
    first, which has all the mass, and its partner in the second, where a stump makes F less than any F. So the partner is of
    class 0, and the counterexamples are the x of class 1."""

    def __init__(self, head: dict[str, Any], model: TreeEnsemble, expected: Space | None):
        if head.get("format") != FORMAT:
            raise CertificateError(f"has format {head.get('format')!r}, this checker reads '{FORMAT}'")
        about = {name: head[name] for name in ("model", "space", "property")}
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        if head != {"format": FORMAT, **about, "question": digest}:
            raise Rejected("the question was changed: its digest does not fit")
        if head["model"] != model.fingerprint():
            raise Rejected(f"is about model {head['model']:.12}, the model given is {model.fingerprint():.12}")
        self.space = space = Space.from_json(head["space"])
        if space.rules:
            raise Rejected("is about a space with rules, for which there are no certificates")
        self.asked, self.model, rule = head["property"], model, model.decision
        if expected is not None and expected.fingerprint() != space.fingerprint():
            raise Rejected("is about another space than the one given")
        names, kind = self.asked.get("sensitive", ()), self.asked["kind"]
        epsilon = [self.asked.get("epsilon_rate", 0), *self.asked.get("epsilon", {}).values()]
        known = {*self.asked} <= FIELDS and {*names} <= {*space.names} and kind in ("fairness", "robustness", RATE)
        if (
            any(_number(e, "epsilon") for e in epsilon)
            or not known
            or not model.is_binary
            or not model.predicts_classes
        ):
            raise Rejected("is no question for a certificate: epsilon is 0, and the model has two classes")
        product = (
            space.components[range(len(space.components)).index(self.asked["component"])] if space.components else None
        )
        if ("component" in self.asked) != bool(product) or (product and kind == RATE):
            raise Rejected("a mixture of products is proved product by product, and its group rates are not")
        columns = {model.own_name(n): (a, j) for a, own in enumerate(space) for j, n in enumerate(own.columns)}
        if rule is not None and rule.attribute is not None and len(columns) > model.n_features:
            for column in space[rule.attribute].columns:  # an attribute that the model itself does not take
                del columns[model.own_name(column)]
        if {*model.feature_names} <= {*columns}:  # a sensitive attribute may be one that the model does not take
            for one in space:
                unread = {*map(model.own_name, one.columns)}
                if one.name in (*names, *space.sensitive) and not unread & {*model.feature_names}:
                    columns = {column: at for column, at in columns.items() if column not in unread}
        named = {*model.feature_names} == {*columns}
        if not named and (len(columns) != model.n_features or {*model.feature_names} & {*columns}):
            raise Rejected("the model's columns are not those of the space")
        # a model without names of its own takes the columns in order
        self.owner = [columns[name] for name in model.feature_names] if named else [*columns.values()]
        self.axes, self.tests = list[Axis](), dict[int, tuple[int, int]]()
        self.group_axis, self.group_cells, self.stumps = -1, {0: -1}, [(-1, [(-1, 0)])]
        inner = np.flatnonzero(model.test != Test.LEAF).tolist()
        for a, attribute in enumerate(space if product is None else product.attributes):
            nodes = [n for n in inner if self.owner[model.feature[n]][0] == a]
            groups = [] if rule is None or rule.attribute != attribute.name else _groups(rule, attribute)
            cells = self._numeric(attribute, nodes, groups) if attribute.is_numeric else self._finite(attribute)
            starts = [start for start, _, _ in cells]
            if attribute.missing is not None:
                cells.append((None, (math.nan,) * len(attribute.columns), attribute.missing))
            unit = math.lcm(*(mass.denominator for _, _, mass in cells))
            masses = [int(mass * unit) for _, _, mass in cells]
            self.axes.append(Axis(attribute, attribute.name in names and kind != RATE, starts, masses, unit))
            self.tests |= {node: (a, self._left(node, [point for _, point, _ in cells])) for node in nodes}
            if groups:
                own = groups
                if attribute.is_numeric:
                    own = [groups[int(v - attribute.low)] for v, _ in starts] + groups[int(attribute.range) + 1 :]
                self.group_axis = a
                self.group_cells = {g: sum(1 << c for c, of in enumerate(own) if of == g) for g in own}
        base = model.base[0] - (1 / (2 * model.factor) if model.link == "mean" else 0)
        values = [Fraction(v) for v in model.value[:, 0].tolist()]
        unit = math.lcm(base.denominator, *(v.denominator for v in values))
        self.constant, self.leaves = int(base * unit), [int(v * unit) for v in values]
        ties = {"paper": (1, -1), "library": (0, -1) if model.tie == "positive" else (1, 0)}
        dyadic = not model.base[0].denominator & (model.base[0].denominator - 1)  # otherwise F is never 0
        self.pos, self.neg = self.conf_pos, self.conf_neg = ties[self.asked["tie"]] if dyadic else (0, -1)
        kappa, size, mean = _number(self.asked["kappa"], "kappa"), unit / model.factor, model.link == "mean"
        sure = Fraction(1) if mean or kappa <= HALF else kappa / (1 - kappa)
        away = (kappa - HALF) * size if mean and kappa > HALF else Fraction(0)
        if kappa > HALF and (kind == RATE or model.link == "identity"):
            raise Rejected("asks for a kappa above 1/2, but it is about a rate, or the model has no probabilities")
        if rule is not None:
            self._decide(rule, base, size, sure, away)
        elif kappa > HALF:
            level = _fine(sure, size, away)[0]
            self.conf_pos, self.conf_neg = level + 1, -level - 1
        largest = max(map(abs, self.leaves)) * model.n_trees + abs(self.constant) + abs(self.conf_pos)
        largest += max(abs(shift) for _, shift in self.stumps[0][1])
        self.group = [self.cut_of(*part) for part in self.asked.get("group", ())]
        if [space.names[a] for a, _ in self.group] != [*names] * (kind == RATE) or len({*names}) < len(names):
            raise Rejected("names other sensitive attributes than its group has")
        self.mass = Fraction(1) if product is None else product.weight  # of the group, or of the product
        for a, held in self.group:
            whole = sum(mass for c, mass in enumerate(self.axes[a].masses) if held >> c & 1)
            self.mass *= Fraction(whole, self.axes[a].unit)
            self.axes[a] = self.axes[a]._replace(unit=whole)
        if kind == RATE:
            self.stumps.append((len(self.axes), [(1, 0), (2, -2 * largest - 2)]))
            self.axes.append(Axis(self.axes[0].attribute, True, [], [1, 0], 1))
            largest = 3 * largest + 2
        self.dtype: Any = np.int64 if largest < 2**61 else object

    def _decide(self, rule: DecisionRule, base: Fraction, size: Fraction, sure: Fraction, away: Fraction) -> None:
        """F less the level of its group, in units so fine that the levels, rounded down, are told from every F.

        The levels, and those of confidence, are ln(odds) + a rational; no F may lie within two fine units of one that is
        not F itself.
        """
        tie = False
        for fine in (1 << 8, 1 << 24, 1 << 96):
            shifts = []
            for group, cells in self.group_cells.items():
                odds, margin = rule.level(group, self.model.link)
                ends = [(odds, margin * size), (odds * sure, margin * size + away), (odds / sure, margin * size - away)]
                floors = [_fine(ratio, size * fine, offset * fine) for ratio, offset in ends]
                if any((floor + 2) % fine <= 4 and not (exact and floor % fine == 0) for floor, exact in floors):
                    break
                shifts.append((cells, -floors[0][0]))
                off = (margin / self.model.factor - base).denominator
                # otherwise no F, a sum of floats and base, is the level
                tie = tie or (odds == 1 and not off & (off - 1))
            else:
                self.stumps, self.constant = [(self.group_axis, shifts)], self.constant * fine
                self.leaves = [leaf * fine for leaf in self.leaves]
                self.pos = self.conf_pos = {"library": int(rule.exclusive), "paper": 1}[self.asked["tie"]]
                self.neg = self.conf_neg = self.pos - 1 - (tie and self.asked["tie"] == "paper")
                if sure > 1 or away:
                    level = _fine(sure, size * fine, away * fine)[0]
                    self.conf_pos, self.conf_neg = level + 2, -level - 2
                return
        raise Rejected("a decision threshold is too close to a possible margin for this checker")

    def _left(self, node: int, points: list[Any]) -> int:
        """The cells that a node sends left. Points of real attributes are read as they are, not rounded to float32."""
        model, column = self.model, self.owner[self.model.feature[node]][1]
        left = model.goes_left(node, np.array([p[column] for p in points], float)).tolist()
        limit, rule, default = float(model.threshold[node]), model.missing[node], bool(model.default_left[node])
        band = {Missing.WITH_ZERO: ZERO_BAND, Missing.ZERO_EXACT: 0.0}.get(rule, -1.0)
        for i, (x, *_) in enumerate(points):
            if isinstance(x, Fraction):
                plain = x < limit if model.test[node] == Test.LESS_F32 else x <= limit
                left[i] = default if -band <= x <= band else plain
        return sum(1 << i for i, yes in enumerate(left) if yes)

    def _finite(self, attribute: Attribute) -> list[tuple[Any, Any, Fraction]]:
        at, codes = (len(self.axes), 0), attribute.codes
        feature = self.owner.index(at) if at in self.owner else -1  # one that only chooses a threshold
        stored = self.model.stored_names.get(feature)
        known = stored.among(attribute.values) if stored else self.model.categories.get(feature)
        if feature < 0:
            codes = tuple((0.0,) for _ in attribute.values)
        elif codes is None and isinstance(known, HashedCategories):
            codes = tuple((float(known.code_of(value)),) for value in attribute.values)
        elif codes is None and known is not None:
            place = {str(value): code for code, value in reversed([*enumerate(known)])}
            codes = tuple((float(known.index(v) if v in known else place[str(v)]),) for v in attribute.values)
        return [*zip(range(len(attribute.values)), codes or [(float(v),) for v in attribute.values],
                     attribute.value_masses())]  # fmt: skip

    def _numeric(self, attribute: Attribute, nodes: list[int], groups: list[int]) -> list[tuple[Any, Any, Fraction]]:
        """Cells between all points at which some test may change."""
        model, integral = self.model, attribute.kind == "integer"
        edges = {(attribute.low + i, 0) for i in range(1, len(groups)) if groups[i] != groups[i - 1]}
        for node in nodes:
            test, limit = model.test[node], float(model.threshold[node])
            if model.missing[node] in (Missing.WITH_ZERO, Missing.ZERO_EXACT):
                band = Fraction(ZERO_BAND if model.missing[node] == Missing.WITH_ZERO else 0)
                edges |= {(Fraction(0), 0), (Fraction(1), 0)} if integral else {(-band, 0), (band, 1)}
            if test == Test.IN_SET:
                codes = model.set_of(node) | model.known_codes.get(int(model.feature[node]), frozenset())
                edges |= {(Fraction(code + i), 0) for code in codes for i in (0, 1)}
            elif integral:  # true up to some integer
                own = range(int(attribute.low), int(attribute.high) + 1)
                at = bisect_left(own, True, key=lambda value: not holds(test, limit, float(value)))
                edges.add((attribute.low + at, 0))
            else:
                edges.add((Fraction(limit), int(test != Test.LESS_F32)))
            if test == Test.IN_SET and not integral:
                raise Rejected(f"'{attribute.name}' is real, but is tested for categories")
        first, last = _ends(attribute)
        starts = [first, *sorted(e for e in edges if first < e < last), last]
        below = [attribute.mass_below(v) for v, _ in starts]
        if first[0] == last[0]:  # a single real number
            below = [Fraction(0), 1 - (attribute.missing or Fraction(0))]
        points = [(float(v),) if integral else ((v + w) / 2,) for (v, _), (w, _) in pairwise(starts)]
        return [*zip(starts, points, [high - low for low, high in pairwise(below)])]

    def cut_of(self, a: int, held: list[Any], missing: int) -> tuple[int, int]:
        """A cut of the certificate in our cells; it must not divide any of them."""
        axis, present = self.axes[a], len(self.axes[a].starts)
        if a < 0 or axis.sensitive or missing not in (0, 1) or missing > len(axis.masses) - present:
            raise Rejected("the cut is on a sensitive attribute, or on a missing value that is not declared")
        numeric, cells = axis.attribute.is_numeric, missing << present
        edges = [*axis.starts, _ends(axis.attribute)[1] if numeric else present]
        for part in held:
            ends = [(_number(v, "the cut"), side) for v, side in (part[:2], part[2:])] if numeric else [part, part + 1]
            first, last = map(edges.index, ends)
            cells |= sum(1 << c for c in range(first, last))
        return a, cells


def _number(value: object, what: str) -> Fraction:
    """The rational that a number of the file means; one with more digits than anybody writes would fill the memory."""
    text = str(value) if isinstance(value, (str, float)) or (type(value) is int and abs(value) < 10**800) else "?" * 801
    if len(text) > 800 or ("/" not in text and abs(Decimal(text).adjusted()) > 400):
        raise Rejected(f"{what}: {text[:40]} is no number of at most 800 digits between 1e-400 and 1e400")
    return Fraction(text)


def _groups(rule: DecisionRule, attribute: Attribute) -> list[int]:
    """The group of each value, and of the missing one."""
    values: Any = attribute.values
    if attribute.is_numeric:
        values = range(int(attribute.low), min(int(attribute.high), int(attribute.low) + len(rule.thresholds)) + 1)
    return rule.groups(attribute.name, values, attribute.missing is not None, attribute.labels)


def _fine(odds: Fraction, size: Fraction, offset: Fraction) -> tuple[int, bool]:
    """The floor of ln(odds) * size + offset, and whether that is the number itself."""
    if odds == 1:
        return math.floor(offset), offset.denominator == 1
    with localcontext() as context:
        context.prec = 60 + 2 * len(str(math.ceil(size + abs(offset))))
        value = (Decimal(odds.numerator) / odds.denominator).ln() * size.numerator / size.denominator
        value += Decimal(offset.numerator) / offset.denominator
        low, high = math.floor(value - Decimal("1e-20")), math.floor(value + Decimal("1e-20"))
    if low != high:
        raise Rejected("a level of the decision or of kappa is too close to a possible margin for this checker")
    return low, False


def _ends(attribute: Attribute) -> tuple[tuple[Fraction, int], tuple[Fraction, int]]:
    return (attribute.low, 0), (attribute.high + 1, 0) if attribute.kind == "integer" else (attribute.high, 1)
