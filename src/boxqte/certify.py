"""The checker: does a certificate prove what it states? Plain Python and numpy; nothing of the engines, of grid or of axes.

It trusts the importers (the model as a TreeEnsemble) and Space (the masses of values), and reads both as data only.
Everything else is derived here once more: cells, residual trees, bounds, counts, sums. What a certificate looks like,
and the theorem behind each step, is in docs/certificates.md.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial, reduce
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from boxqte.ensemble import ZERO_BAND, Missing, Test, TreeEnsemble
from boxqte.errors import BoxQTEError, CertificateError
from boxqte.importers import load_model
from boxqte.space import Attribute, Space

FORMAT = "boxqte certificate 1"
KINDS = ("fair", "unfair", "low")
FIXED = 2.0**62  # sums over list B are whole numbers of 1 / FIXED
BLOCK = 64
CLOSE = 2.0**-40  # masses are compared up to this share of the box (claims) or of the space (sums)
CACHE = 1 << 16  # entries of a cache
Masks = tuple[int, ...]


class Rejected(CertificateError):
    """The certificate does not prove what it states."""


@dataclass(frozen=True)
class Verdict:
    """What a certificate proves: lower bounds of three masses, and through them bounds of the measure."""

    property: dict[str, Any]
    fair: float
    unfair: float
    low: float
    boxes: int
    open_boxes: int

    @property
    def measure(self) -> tuple[Fraction, Fraction] | None:
        """Bounds of M = 1 - |X_unfair| / |X_kappa|; None if it is proved that nothing is confident."""
        confident = 1 - Fraction(self.low)
        if confident <= 0:
            return None
        lower = Fraction(self.fair) / confident
        return lower, max(1 - Fraction(self.unfair) / confident, lower)


def certify(
    file: str | Path,
    model: object,
    *,
    space: Space | None = None,
    workers: int | None = None,
    allow_pickle: bool = False,
) -> Verdict:
    """Check a certificate against a model, and a space if one is given: what it proves, or Rejected.

    Examples
    --------
    >>> import tempfile
    >>> from boxqte import Fairness, quantify
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     result = quantify(loan_ensemble(), loan_space(), Fairness("race"), certificate=file.name)
    ...     verdict = certify(file.name, loan_ensemble(), workers=1)
    >>> verdict.unfair == result.decided.unfair
    True
    """
    n = workers or os.cpu_count() or 1
    check = partial(_check, file, load_model(model, allow_pickle=allow_pickle).ensemble, space, n)
    if n == 1:
        parts = [check(0)]
    else:
        with ProcessPoolExecutor(n) as pool:
            parts = list(pool.map(check, range(n)))
    first, largest = parts[0], max(part.largest for part in parts)
    # docs/certificates.md, 'Rounding'; fair = 1 - unfair - low of a box has the errors of all three
    error = Fraction(101 * (4 * first.n_axes + BLOCK + 16), 100 * 2**53) + Fraction(2 * largest, int(FIXED))
    proved = []
    for k, kind in enumerate(KINDS):
        stated = first.last[kind]
        own = Fraction(math.fsum(x for part in parts for x in part.masses[k])) - error * (1 if k else 3)
        if not isinstance(stated, float) or not 0 <= stated <= 1 or abs(Fraction(stated) - max(own, 0)) > CLOSE:
            raise Rejected(f"{file}: the {kind} mass is stated as {stated}, its boxes prove {float(max(own, 0)):.15g}")
        proved.append(stated if stated <= own or not stated else math.nextafter(float(max(own, 0)), 0))
    return Verdict(first.asked, *proved, first.boxes, first.n_open)


class Share(NamedTuple):
    """What one process found."""

    masses: list[array[float]]
    asked: dict[str, Any]
    last: dict[str, Any]
    n_axes: int
    largest: int
    boxes: int
    n_open: int


def _check(file: str | Path, model: TreeEnsemble, space: Space | None, n: int, k: int) -> Share:
    """Follow all lines, and check the claims of every n-th one."""
    number = 1
    try:
        lines = _lines(file)
        checker = Checker(Question(json.loads(next(lines)), model, space))
        for number, line in enumerate(lines, 2):
            if line[0] == "[":
                checker.cuts.append(checker.question.cut_of(*json.loads(line)))
            elif line[0] == "{":
                checker.last = json.loads(line)
            else:
                checker.follow(line.split(), number % n == k)
        if set(checker.last) != {*KINDS, "sha256"}:
            raise Rejected("the last line has other fields than fair, unfair, low, sha256")
    except BoxQTEError as error:
        raise type(error)(f"{file}, line {number}: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration, RecursionError) as error:
        raise Rejected(f"{file}, line {number}: has no meaning ({type(error).__name__}: {error})") from None
    c = checker
    return Share(c.masses, c.question.asked, c.last, c.n_axes, c.largest, c.boxes, len(c.open))


def _lines(file: str | Path) -> Iterator[str]:
    """The lines of the file; the last one must have the digest of all before it, and be the last."""
    digest = hashlib.sha256()
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="\n") as stream:
            for number, line in enumerate(stream):
                if number and line[0] == "{":
                    if json.loads(line)["sha256"] != digest.hexdigest() or stream.read(1):
                        raise Rejected("the checksum does not fit: the certificate was changed")
                    yield line
                    return
                digest.update(line.encode())
                yield line
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise CertificateError(f"cannot be read: {error.strerror}") from None
        raise Rejected(f"is no certificate, or is damaged or cut short ({error})") from None
    raise Rejected("the certificate is not finished: its last line is missing")


class Axis(NamedTuple):
    """An attribute as cells that no test tells apart; the missing value, if it is declared, is the last cell."""

    attribute: Attribute
    sensitive: bool
    starts: list[Any]
    """numeric: the edges where cells begin, (v, 0) before v or (v, 1) behind it; finite: the values of each cell"""
    masses: list[int]
    unit: int
    """a cell's mass is its entry in masses / unit"""

    @property
    def full(self) -> int:
        return (1 << len(self.masses)) - 1


class Question:
    """The model over the space in integers: F = constant + leaf values; class 0 iff F <= neg, class 1 iff F >= pos,
    confident iff F <= conf_neg or F >= conf_pos. A record is (cut, yes, no), or (-1, value, 0); a cut (axis, cells)."""

    def __init__(self, head: dict[str, Any], model: TreeEnsemble, expected: Space | None):
        if head.get("format") != FORMAT:
            raise CertificateError(f"has format {head.get('format')!r}, this checker reads '{FORMAT}'")
        about = {name: head[name] for name in ("model", "space", "property")}
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        if head != {"format": FORMAT, **about, "question": digest}:
            raise Rejected("the question was changed: its digest does not fit")
        if head["model"] != model.fingerprint():
            raise Rejected(f"is about model {head['model']:.12}, the model given is {model.fingerprint():.12}")
        space, self.asked, self.model = Space.from_json(head["space"]), head["property"], model
        if expected is not None and expected.fingerprint() != space.fingerprint():
            raise Rejected("is about another space than the one given")
        sensitive = self.asked.get("sensitive", ())
        epsilon = [self.asked.get("epsilon_rate", 0), *self.asked.get("epsilon", {}).values()]
        if any(Fraction(str(e)) for e in epsilon) or not model.is_binary or not {*sensitive} <= {*space.names}:
            raise Rejected("is no question for a certificate: epsilon is 0, and the model has two classes")
        where = {column: (a, j) for a, attribute in enumerate(space) for j, column in enumerate(attribute.columns)}
        by_name = {*model.feature_names} == {*where}
        if not by_name and (len(where) != model.n_features or {*model.feature_names} & {*where}):
            raise Rejected("the model's columns are not those of the space")
        # a model without names of its own takes the columns in order
        self.owner = [where[name] for name in model.feature_names] if by_name else [*where.values()]
        self.axes: list[Axis] = []
        self.tests: dict[int, tuple[int, int]] = {}  # node -> axis, cells that go left
        inner = np.flatnonzero(model.test != Test.LEAF).tolist()
        for a, attribute in enumerate(space):
            nodes = [node for node in inner if self.owner[model.feature[node]][0] == a]
            starts, masses, outcomes = (self._numeric if attribute.is_numeric else self._finite)(attribute, nodes)
            if attribute.missing is not None:
                masses.append(attribute.missing)
                outcomes.append([self._left(node, None) for node in nodes])
            unit = math.lcm(*(mass.denominator for mass in masses))
            self.axes.append(Axis(attribute, attribute.name in sensitive, starts, [int(m * unit) for m in masses], unit))
            self.tests |= {
                node: (a, sum(row[t] << i for i, row in enumerate(outcomes))) for t, node in enumerate(nodes)
            }
        self.cuts: dict[tuple[int, int], int] = {}
        self.records: dict[tuple[int, int, int], int] = {}
        values = [Fraction(v) for v in model.value[:, 0].tolist()]
        base = model.base[0] - (Fraction(model.n_trees, 2) if model.link == "mean" else 0)
        unit = math.lcm(base.denominator, *(v.denominator for v in values))
        self.constant, self.leaves = int(base * unit), [int(v * unit) for v in values]
        domain = [axis.full for axis in self.axes]
        self.roots = [self._tree(root, domain) for root in model.roots.tolist()]
        self._thresholds(unit)
        largest = max(map(abs, self.leaves)) * model.n_trees + abs(self.constant) + abs(self.conf_pos)
        self.dtype: Any = np.int64 if largest < 2**61 else object

    def _thresholds(self, unit: int) -> None:
        """Class and confidence as comparisons of F, which is in units of 1 / unit."""
        model, kappa = self.model, Fraction(str(self.asked["kappa"]))
        self.pos, self.neg = {"paper": (1, -1), "library": (0, -1) if model.tie == "positive" else (1, 0)}[self.asked["tie"]]
        if model.base[0].denominator & (model.base[0].denominator - 1):
            self.pos, self.neg = 0, -1  # all leaves are dyadic and the base is not: F is never 0
        self.conf_pos, self.conf_neg = self.pos, self.neg
        if kappa > Fraction(1, 2):  # |F| > level
            size = unit / model.factor
            if model.link == "mean":
                level = math.floor((kappa - Fraction(1, 2)) * size)
            else:  # logit(kappa), with digits enough to know its floor
                with localcontext() as context:
                    context.prec = 60 + 2 * len(str(math.ceil(size)))
                    odds = Decimal(kappa.numerator) / (kappa.denominator - kappa.numerator)
                    exact = odds.ln() * size.numerator / size.denominator
                    level = math.floor(exact - Decimal("1e-20"))
                    if level != math.floor(exact + Decimal("1e-20")):
                        raise Rejected("logit(kappa) is too close to a possible margin for this checker")
            self.conf_pos, self.conf_neg = level + 1, -level - 1

    def _left(self, node: int, x: float | Fraction | None) -> bool:
        """The node's test, as its library means it. A Fraction is a point of a real attribute and read as it is."""
        model, rule = self.model, self.model.missing[node]
        x = 0.0 if x is None and rule == Missing.AS_ZERO else x
        band = ZERO_BAND if rule == Missing.WITH_ZERO else 0.0
        if x is None or (rule in (Missing.WITH_ZERO, Missing.ZERO_EXACT) and -band <= x <= band):
            return bool(model.default_left[node])
        if model.test[node] != Test.IN_SET:
            return _holds(model.test[node], float(model.threshold[node]), x)
        if x not in model.known_codes.get(int(model.feature[node]), (x,)):
            return bool(model.default_left[node])
        return x in model.set_of(node)

    def _finite(self, attribute: Attribute, nodes: list[int]) -> tuple[list[Any], list[Fraction], list[Any]]:
        """Values that all tests send the same way are one cell."""
        codes, known = attribute.codes, self.model.categories.get(self.owner.index((len(self.axes), 0)))
        if codes is None and known is not None:
            texts = [str(value) for value in known]
            codes = tuple((float((known if v in known else texts).index(v if v in known else str(v))),)
                          for v in attribute.values)  # fmt: skip
        rows = codes or [(float(v),) for v in attribute.values]
        asked = [(node, self.owner[self.model.feature[node]][1]) for node in nodes]
        if any(row[j] != int(row[j]) for node, j in asked if self.model.test[node] == Test.IN_SET for row in rows):
            raise Rejected(f"'{attribute.name}' is tested for categories, but has codes that are no integers")
        groups: dict[tuple[bool, ...], list[int]] = {}
        for v, row in enumerate(rows):
            groups.setdefault(tuple(self._left(node, row[j]) for node, j in asked), []).append(v)
        mass = attribute.value_masses()
        return [*groups.values()], [sum((mass[v] for v in g), Fraction(0)) for g in groups.values()], [*groups]

    def _numeric(self, attribute: Attribute, nodes: list[int]) -> tuple[list[Any], list[Fraction], list[Any]]:
        """Cells between all points at which some test may change."""
        model, integral = self.model, attribute.kind == "integer"
        edges: set[tuple[Fraction, int]] = set()
        for node in nodes:
            test, limit = model.test[node], float(model.threshold[node])
            if model.missing[node] in (Missing.WITH_ZERO, Missing.ZERO_EXACT):
                band = Fraction(ZERO_BAND if model.missing[node] == Missing.WITH_ZERO else 0)
                edges |= {(Fraction(0), 0), (Fraction(1), 0)} if integral else {(-band, 0), (band, 1)}
            if test == Test.IN_SET and integral:
                codes = model.set_of(node) | model.known_codes.get(int(model.feature[node]), frozenset())
                edges |= {(Fraction(code + i), 0) for code in codes for i in (0, 1)}
            elif test == Test.IN_SET:
                raise Rejected(f"'{attribute.name}' is real, but is tested for categories")
            elif integral:  # true up to some integer
                domain = range(int(attribute.low), int(attribute.high) + 1)
                at = bisect_left(domain, True, key=lambda v: not _holds(test, limit, float(v)))  # noqa: B023
                edges.add((attribute.low + at, 0))
            else:
                edges.add((Fraction(limit), int(test != Test.LESS_F32)))
        first, last = _ends(attribute)
        starts = [first, *sorted(e for e in edges if first < e < last)]
        masses, outcomes = [], []
        for start, stop in zip(starts, [*starts[1:], last]):
            point = float(start[0]) if integral else (start[0] + stop[0]) / 2
            outcomes.append([self._left(node, point) for node in nodes])
            masses.append(attribute.mass_below(stop[0]) - attribute.mass_below(start[0]))
        if first[0] == last[0]:  # a single real number
            masses = [1 - (attribute.missing or Fraction(0))]
        return starts, masses, outcomes

    def _tree(self, node: int, domain: list[int]) -> int:
        """The record of the tree below a node, for points whose cells lie in the domain."""
        if self.model.test[node] == Test.LEAF:
            return self.records.setdefault((-1, self.leaves[node], 0), len(self.records))
        axis, cells = self.tests[node]
        sides = []
        for part, child in ((domain[axis] & cells, self.model.left), (domain[axis] & ~cells, self.model.right)):
            if part:
                sides.append(self._tree(int(child[node]), [*domain[:axis], part, *domain[axis + 1 :]]))
        if len(sides) == 1 or sides[0] == sides[1]:
            return sides[0]
        cut = self.cuts.setdefault((axis, cells), len(self.cuts))
        return self.records.setdefault((cut, sides[0], sides[1]), len(self.records))

    def cut_of(self, a: int, held: list[Any], missing: int) -> tuple[int, int]:
        """A cut of the certificate in our cells; it must not divide any of them."""
        axis = self.axes[a]
        present = len(axis.starts)
        if a < 0 or axis.sensitive or missing not in (0, 1) or missing > len(axis.masses) - present:
            raise Rejected("the cut is on a sensitive attribute, or on a missing value that is not declared")
        cells = missing << present
        if axis.attribute.is_numeric:
            edges = [*axis.starts, _ends(axis.attribute)[1]]
            for low, low_side, high, high_side in held:
                first, last = edges.index((Fraction(str(low)), low_side)), edges.index((Fraction(str(high)), high_side))
                cells |= (1 << last) - (1 << first)
        else:
            cells |= sum(1 << i for i, values in enumerate(axis.starts) if values[0] in held)
            if sorted(held) != sorted(v for i, values in enumerate(axis.starts) if cells >> i & 1 for v in values):
                raise Rejected("the cut divides values that no test tells apart, or names values that do not exist")
        return a, cells


def _holds(test: int, limit: float, x: float | Fraction) -> bool:
    if test != Test.AT_MOST_F64 and isinstance(x, float):
        with np.errstate(over="ignore"):
            x = float(np.float32(x))
    return x < limit if test == Test.LESS_F32 else x <= limit


def _ends(attribute: Attribute) -> tuple[tuple[Fraction, int], tuple[Fraction, int]]:
    return (attribute.low, 0), (attribute.high + 1, 0) if attribute.kind == "integer" else (attribute.high, 1)


class Box(NamedTuple):
    trees: tuple[int, ...]
    """the records that are left of the trees, without leaves"""
    constant: int
    """F without the trees"""
    cells: Masks
    """per axis the cells that the box holds"""


class Checker:
    """Follows the splits, checks the claims, and collects the masses that they prove."""

    def __init__(self, question: Question):
        self.question = q = question
        self.last: dict[str, Any] = {}
        self.masses = [array("d") for _ in KINDS]
        self.boxes = self.largest = 0
        self.simple = q.conf_pos == q.conf_neg + 1  # every input is confident: signs are all that counts
        self.cut_list, self.records, self.numbers = [*q.cuts], [*q.records], dict(q.records)
        used = sorted({axis for axis, _ in q.cuts})
        self.n_axes, self.s_axes = len(used), [a for a in used if q.axes[a].sensitive]
        self.s_bits = sum(1 << a for a in self.s_axes)
        self.cuts_on = {a: sum(1 << c for c, cut in enumerate(q.cuts) if cut[0] == a) for a in used}
        # all combinations of sensitive cells: their masses, and where each sensitive cut sends them
        combinations = [*product(*(range(len(q.axes[a].masses)) for a in self.s_axes))]
        cell = {a: [row[j] for row in combinations] for j, a in enumerate(self.s_axes)}
        self.s_masses = _product([np.array([m / q.axes[a].unit for m in q.axes[a].masses]) for a in self.s_axes])
        self.s_yes = {c: np.array([cells >> i & 1 for i in cell[a]], bool)
                      for c, (a, cells) in enumerate(q.cuts) if a in cell}  # fmt: skip
        self.ends = np.zeros((2, 64, len(self.s_masses)), q.dtype)  # [least, largest] x record x combination
        self.axes_of: list[int] = []
        self.cuts_of: list[int] = []
        for _ in self.records:
            self._describe()
        self.cuts: list[tuple[int, int]] = []  # of the certificate
        self.moves: dict[tuple[int, int], dict[int, int]] = {}
        self.groups: dict[Any, Any] = {}
        self.tables: dict[Any, Any] = {}
        self.lists: dict[Any, Any] = {}
        whole = Box((), q.constant, tuple(axis.full for axis in q.axes))
        self.open = {0: self._with(whole, q.roots, whole.cells)}

    def _describe(self) -> None:
        """Axes, cuts and bounds of the next record."""
        i = len(self.axes_of)
        if i >= self.ends.shape[1]:
            self.ends = np.concatenate([self.ends, np.zeros_like(self.ends)], axis=1)
        cut, yes, no = self.records[i]
        if cut < 0:
            self.ends[:, i] = yes
            self.axes_of.append(0)
            self.cuts_of.append(0)
            return
        self.axes_of.append(self.axes_of[yes] | self.axes_of[no] | 1 << self.cut_list[cut][0])
        self.cuts_of.append(self.cuts_of[yes] | self.cuts_of[no] | 1 << cut)
        least, largest = self.ends
        if cut in self.s_yes:
            self.ends[:, i] = np.where(self.s_yes[cut], self.ends[:, yes], self.ends[:, no])
        else:
            least[i], largest[i] = np.minimum(least[yes], least[no]), np.maximum(largest[yes], largest[no])

    def _restricted(self, record: int, axis: int, cells: int) -> int:
        """The record on the points whose cell on the axis is one of the given."""
        memo = self.moves.setdefault((axis, cells), {})
        if record in memo:
            return memo[record]
        found = record
        if self.axes_of[record] >> axis & 1:
            cut, yes, no = self.records[record]
            own, mask = self.cut_list[cut]
            parts = (cells & mask, cells & ~mask) if own == axis else (cells, cells)
            sides = [self._restricted(side, axis, part) for side, part in zip((yes, no), parts) if part]
            found = sides[0]
            if len(sides) == 2 and sides[0] != sides[1]:
                key = (cut, sides[0], sides[1])
                found = self.numbers.setdefault(key, len(self.records))
                if found == len(self.records):
                    self.records.append(key)
                    self._describe()
        memo[record] = found
        return found

    def _with(self, box: Box, trees: Sequence[int], cells: Masks) -> Box:
        """The part of a box with the given cells and trees; leaves go into the constant."""
        axes_of = self.axes_of
        constant = box.constant + sum([self.records[t][1] for t in trees if not axes_of[t]])
        return Box(tuple([t for t in trees if axes_of[t]]), constant, cells)

    def follow(self, line: list[str], mine: bool) -> None:
        """One line: the name of an open box; in preorder its splits and what became of the parts."""
        name, *tokens = line
        stack = [self.open.pop(int(name))]  # so no box is used twice
        self.boxes += sum(token[0] in "fubc" for token in tokens)
        if not mine and not any(token[0] == "o" for token in tokens):
            return
        for token in tokens:
            box = stack.pop()
            if token.isdecimal():
                axis, mask = self.cuts[int(token)]
                here = box.cells[axis]
                if not here & mask or not here & ~mask:
                    raise Rejected(f"split {token} leaves one side empty")
                for part in (here & ~mask, here & mask):  # yes comes first: it lies on top
                    memo = self.moves.setdefault((axis, part), {})
                    trees = [memo[t] if t in memo else self._restricted(t, axis, part) for t in box.trees]
                    stack.append(self._with(box, trees, (*box.cells[:axis], part, *box.cells[axis + 1 :])))
            elif token[0] == "o":
                if self.open.setdefault(int(token[1:]), box) is not box:
                    raise Rejected(f"two boxes have the name {token[1:]}")
            elif mine:
                self._claim(box, token)
        if stack:
            raise Rejected("some parts of the box are left over")

    def _claim(self, box: Box, token: str) -> None:
        """Check what is said of a closed box, and add up its masses."""
        mass = math.prod([self._grouped(a, box.cells[a], 0)[0][0] for a in self.cuts_on])
        if token in ("f", "u", "b0,0") and self.simple:
            low, high = self._bounds(box)
            fair = low.min() >= self.question.pos or high.max() <= self.question.neg or self._constant(box)
            unfair = high.min() <= self.question.neg and low.max() >= self.question.pos
            if not {"f": fair, "u": unfair, "b0,0": fair or unfair}[token]:
                raise Rejected(f"'{token}' does not follow from the bounds")
            shares = (0.0 if fair else 1.0, 0.0)
        else:
            shares = {"c": self._counted, "b": self._by_bounds}[token[0]](box)
            stated = [float(part) for part in token[1:].split(",")]
            if len(stated) != (1 if self.simple else 2):
                raise Rejected(f"'{token}' has too few or too many masses")
            if not all(abs(claim - share * mass) <= CLOSE * mass for claim, share in zip(stated, shares)):
                raise Rejected(f"'{token}' is wrong, the masses are {shares[0] * mass:.15g}, {shares[1] * mass:.15g}")
        for total, share in zip(self.masses, (1 - shares[0] - shares[1], *shares)):
            total.append(max(share, 0.0) * mass)

    def _bounds(self, box: Box) -> Any:
        return self.ends[:, box.trees].sum(axis=1) + box.constant

    def _constant(self, box: Box) -> bool:
        """Theorem 1: F is the same for all combinations of sensitive cells, whatever the other cells are."""
        touched = [t for t in box.trees if self.axes_of[t] & self.s_bits]
        total = self.ends[0, touched].sum(axis=0)
        return not any(self.axes_of[t] & ~self.s_bits for t in touched) and len(set(total.tolist())) <= 1

    def _by_bounds(self, box: Box) -> tuple[float, float]:
        """Theorem 3: each combination of sensitive cells on its own."""
        q, (low, high) = self.question, self._bounds(box)
        unsure = (high < q.conf_pos) & (low > q.conf_neg)
        sure_pos, sure_neg = low >= q.conf_pos, high <= q.conf_neg
        unfair = sure_pos & (high.min() <= q.neg) | sure_neg & (low.max() >= q.pos)
        fair = sure_pos & (low.min() > q.neg) | sure_neg & (high.max() < q.pos)
        if self.simple or not (unsure | unfair | fair).all():
            raise Rejected("the bounds do not settle every class")
        return math.fsum(self.s_masses[unfair.astype(bool)]), math.fsum(self.s_masses[unsure.astype(bool)])

    def _counted(self, box: Box) -> tuple[float, float]:
        """Theorem 4: the unfair and the low share of a box, its trees taken as sums of independent parts."""
        parts: list[tuple[int, tuple[int, ...]]] = [(self.s_bits, ())]  # axes, trees; the sensitive axes are one part
        for t in box.trees:
            axes, joined, apart = self.axes_of[t], (t,), []
            for part in parts:
                if part[0] & axes:
                    axes, joined = axes | part[0], part[1] + joined
                else:
                    apart.append(part)
            parts = [*apart, (axes, joined)]
        vector = next((part for part in parts if part[0] & self.s_bits), (0, ()))
        scalars = [self._list(box, axes, trees) for axes, trees in parts if axes and not axes & self.s_bits]
        table, shares = self._table(box, [*self.s_axes, *_bits(vector[0] & ~self.s_bits)], vector[1])
        classes, mass = (_product(part) for part in (shares[: len(self.s_axes)], shares[len(self.s_axes) :]))
        table = table.reshape(len(classes), len(mass)) + box.constant
        least, most = table.min(axis=0), table.max(axis=0)
        if self.simple:
            kept = np.flatnonzero(least < most)
            least, most, mass = least[kept], most[kept], mass[kept]
        in_a, in_b = [], []
        size_a, size_b = len(mass), 1
        for part in sorted(scalars, key=lambda part: -len(part[1])):
            n = len(part[1])
            if size_a * n + size_b <= size_a + size_b * n:
                in_a, size_a = [*in_a, part], size_a * n
            else:
                in_b, size_b = [*in_b, part], size_b * n
        self.largest = max(self.largest, size_b)
        key, prefix = self._ordered(in_b)
        value, weight = _joined(in_a, self.question.dtype)
        weight = np.multiply.outer(mass, weight).reshape(-1) / FIXED

        def below(margin: Any, level: int) -> Any:
            """For every cell and every entry of A the mass of B with margin + a + b <= level."""
            return prefix[key.searchsorted(np.subtract.outer(level - margin, value).reshape(-1), "right")]

        q = self.question
        if self.simple:
            return _total(weight * (below(least, q.neg) - below(most, q.neg))), 0.0
        some_neg, no_pos = below(least, q.neg), below(most, q.pos - 1)
        sums = np.zeros(2)
        for share, own in zip(classes.tolist(), table):
            not_pos, sure_neg = below(own, q.conf_pos - 1), below(own, q.conf_neg)
            unfair = np.maximum(some_neg - not_pos, 0) + np.maximum(sure_neg - no_pos, 0)
            sums += [share * _total(weight * unfair), share * _total(weight * (not_pos - sure_neg))]
        return float(sums[0]), float(sums[1])

    def _grouped(self, axis: int, cells: int, cuts: int) -> tuple[Any, dict[int, Any]]:
        """The cells in groups that the cuts do not tell apart: their shares, and where each cut sends them.

        The shares are those of the cells' mass, or of the whole axis if no cut is given.
        """
        found = self.groups.get((axis, cells, cuts))
        if found is None:
            masses, asked = self.question.axes[axis].masses, [(c, self.cut_list[c][1]) for c in _bits(cuts)]
            groups: dict[tuple[int, ...], int] = {}
            for i in _bits(cells):
                side = tuple([mask >> i & 1 for _, mask in asked])
                groups[side] = groups.get(side, 0) + masses[i]
            whole = sum(groups.values()) if cuts else self.question.axes[axis].unit
            shares = np.array([m / whole if m else 0.0 for m in groups.values()])
            sides = np.array([*groups], bool)
            found = shares, {c: sides[:, i] for i, (c, _) in enumerate(asked)}
            _keep(self.groups, (axis, cells, cuts), found)
        return found  # type: ignore[no-any-return]

    def _table(self, box: Box, axes: list[int], trees: Sequence[int]) -> tuple[Any, list[Any]]:
        """The sum of the trees over groups of the axes' cells, and the shares of the groups."""
        cuts = 0
        for t in trees:
            cuts |= self.cuts_of[t]
        keys = [(a, box.cells[a], cuts & self.cuts_on[a]) for a in axes]
        shares = [self._grouped(*key)[0] if key[2] else np.ones(1) for key in keys]
        scopes: dict[int, list[int]] = {}
        for t in trees:
            scopes.setdefault(self.axes_of[t], []).append(t)
        tables = {}
        for scope in sorted(scopes, key=int.bit_count):
            own = [key for key in keys if scope >> key[0] & 1]
            name = (*scopes[scope], *own)
            table = self.tables.get(name)
            if table is None:
                table = sum(self._spread(t, own) for t in scopes[scope])
                _keep(self.tables, name, table)
            tables[scope] = table.reshape([len(share) if scope >> a & 1 else 1 for a, share in zip(axes, shares)])
        total = np.zeros([len(share) for share in shares], self.question.dtype)
        while tables:  # small tables first, each into one that has all its axes
            scope, table = next(iter(tables.items()))
            del tables[scope]
            wider = next((other for other in tables if not scope & ~other), None)
            if wider is None:
                total += table
            else:
                tables[wider] = tables[wider] + table
        return total, shares

    def _spread(self, record: int, keys: list[tuple[int, int, int]]) -> Any:
        """The values of a tree over groups of its axes' cells."""
        cut, yes, no = self.records[record]
        if cut < 0:
            return np.array(yes, self.question.dtype)
        axis = self.cut_list[cut][0]
        at = [key[0] for key in keys].index(axis)
        side = self._grouped(*keys[at])[1][cut].reshape((1,) * at + (-1,) + (1,) * (len(keys) - at - 1))
        return np.where(side, self._spread(yes, keys), self._spread(no, keys))

    def _list(self, box: Box, axes: int, trees: tuple[int, ...]) -> tuple[Any, Any]:
        """The values of a part that has no sensitive axis, and their shares."""
        key = (trees, *[box.cells[a] for a in _bits(axes)])
        found = self.lists.get(key)
        if found is None:
            table, shares = self._table(box, _bits(axes), trees)
            found = table.reshape(-1), _product(shares)
            _keep(self.lists, key, found)
        return found  # type: ignore[no-any-return]

    def _ordered(self, parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """The sums of independent values in order, and how much mass comes before each: rounded down, then integers."""
        value, mass = _joined(parts, self.question.dtype)
        order = value.argsort()
        prefix = np.zeros(len(order) + 1, np.int64)
        np.cumsum((mass[order] * FIXED).astype(np.int64), out=prefix[1:])
        return value[order], prefix


def _joined(parts: list[tuple[Any, Any]], dtype: Any) -> tuple[Any, Any]:
    """The sums of independent values, and their shares."""
    value, mass = np.zeros(1, dtype), np.ones(1)
    for v, m in parts:
        value, mass = np.add.outer(value, v).reshape(-1), np.multiply.outer(mass, m).reshape(-1)
    return value, mass


def _product(shares: Sequence[Any]) -> Any:
    return reduce(np.multiply.outer, shares, np.ones(())).reshape(-1)


def _total(terms: Any) -> float:
    """Blocks of 64 are added by numpy, in any order; the blocks without rounding."""
    n = len(terms) // BLOCK * BLOCK
    return math.fsum([*terms[:n].reshape(-1, BLOCK).sum(axis=1).tolist(), *terms[n:].tolist()])


def _bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def _keep(cache: dict[Any, Any], key: Any, value: Any) -> None:
    if len(cache) >= CACHE:
        cache.clear()
    cache[key] = value
