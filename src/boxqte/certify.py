"""The checker: does a certificate prove what it states? Plain Python and numpy; nothing of the engines, of grid or of axes.

It trusts the importers (the model as a TreeEnsemble, with its tests) and Space (the masses of values). All else is
derived here once more: cells, residual trees, bounds, counts, sums. The format and the theorems: docs/certificates.md.
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
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from boxqte.ensemble import ZERO_BAND, Missing, Test, TreeEnsemble, holds
from boxqte.errors import BoxQTEError, CertificateError
from boxqte.importers import load_model
from boxqte.space import Attribute, Space, read_space

FORMAT = "boxqte certificate 1"
KINDS = ("fair", "unfair", "low")
FIXED = 2.0**62  # sums over list B are whole numbers of 1 / FIXED
BLOCK = 64
CLOSE = 2.0**-40  # masses are compared up to this share of the box (claims) or of the space (sums)
CACHE = 1 << 22  # numbers that all tables in a cache may have
HALF = Fraction(1, 2)
NONSENSE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration, RecursionError)


class Rejected(CertificateError):  # noqa: N818 (it is a verdict)
    """The certificate does not prove what it states."""


@dataclass(frozen=True)
class Verdict:
    """What a certificate proves: lower bounds of three masses, and through them bounds of the measure."""

    asked: dict[str, Any]
    fair: float
    unfair: float
    low: float
    boxes: int
    open_boxes: int

    @property
    def measure(self) -> tuple[Fraction, Fraction] | None:
        """Bounds of M = 1 - |X_unfair| / |X_kappa|; None if it is proved that nothing is confident."""
        confident = 1 - Fraction(self.low)
        lower = Fraction(self.fair) / confident if confident > 0 else Fraction(0)
        return (lower, max(1 - Fraction(self.unfair) / confident, lower)) if confident > 0 else None


def certify(file: str | Path, model: object, *, space: Space | None = None, workers: int | None = None) -> Verdict:
    """Check a certificate against a model (whatever load_model takes), and a space if given: what it proves, or Rejected.

    Examples
    --------
    >>> import tempfile
    >>> from boxqte import Fairness, quantify
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     result = quantify(loan_ensemble(), loan_space(), Fairness("race"), certificate=file.name)
    ...     certify(file.name, loan_ensemble(), workers=1).unfair == result.decided.unfair
    True
    """
    n = workers or os.cpu_count() or 1
    if not isinstance(n, int) or not 1 <= n <= 10_000:
        raise CertificateError(f"workers: expected a whole number above 0, found {workers!r}")
    share = partial(_share, file, load_model(model).ensemble, None if space is None else read_space(space), n)
    if n == 1:
        parts = [share(0)]
    else:
        with ProcessPoolExecutor(n) as pool:
            parts = list(pool.map(share, range(n)))
    first, largest = parts[0], max(part.largest for part in parts)
    # docs/certificates.md, 'Rounding'; fair = 1 - unfair - low of a box has the errors of all three
    error = Fraction(101 * (4 * first.n_axes + BLOCK + 16), 100 * 2**53) + Fraction(2 * largest, int(FIXED))
    proved = []
    for k, kind in enumerate(KINDS):
        stated = first.last[kind]
        summed = Fraction(math.fsum(x for part in parts for x in part.masses[k]))
        own = max(summed - error * (1 if k else 3), Fraction(0))
        if not isinstance(stated, float) or not 0 <= stated <= 1 or abs(Fraction(stated) - own) > CLOSE:
            raise Rejected(f"{file}: the {kind} mass is stated as {stated!s:.40}, its boxes prove {float(own):.15g}")
        proved.append(stated if stated <= own else math.nextafter(float(own), 0))
    return Verdict(first.asked, proved[0], proved[1], proved[2], first.boxes, first.n_open)


class Share(NamedTuple):
    """What one process found: the masses of the boxes that it checked, and what all processes see."""

    masses: list[array[float]]
    largest: int
    asked: dict[str, Any]
    last: dict[str, Any]
    n_axes: int
    boxes: int
    n_open: int


def _share(file: str | Path, model: TreeEnsemble, space: Space | None, n: int, k: int) -> Share:
    """Follow all lines, and check the claims of every n-th one."""
    number, last = 1, {}
    try:
        lines = _lines(file)
        question = Question(json.loads(next(lines)), model, space)
        check = Checker(question)
        for number, line in enumerate(lines, 2):
            if line[0] == "[":
                check.cuts.append(question.cut_of(*json.loads(line)))
            elif line[0] == "{":
                last = json.loads(line)
            else:
                check.follow(line.split(), number % n == k)
        if set(last) != {*KINDS, "sha256"}:
            raise Rejected("the last line has other fields than fair, unfair, low, sha256")
    except BoxQTEError as error:
        raise type(error)(f"{file}, line {number}: {error}") from None
    except NONSENSE as error:
        raise Rejected(f"{file}, line {number}: has no meaning ({type(error).__name__}: {error})") from None
    return Share(check.masses, check.largest, question.asked, last, len(check.axis_cuts), check.boxes, len(check.open))


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
    """An attribute as cells on which no test changes; the missing value, if it is declared, is the last cell."""

    attribute: Attribute
    sensitive: bool
    starts: list[Any]  # numeric: where cells begin, (v, 0) before v or (v, 1) behind it; finite: the values
    masses: list[int]  # in units of 1 / unit
    unit: int


class Question:
    """The model over the space in integers: F = constant + sum of leaves, in 1 / unit; class 0 iff F <= neg, class 1 iff
    F >= pos, confident iff F <= conf_neg or F >= conf_pos. `tests` has for each inner node its axis and left cells."""

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
        if any(_number(e, "epsilon") for e in epsilon) or not model.is_binary or not {*sensitive} <= {*space.names}:
            raise Rejected("is no question for a certificate: epsilon is 0, and the model has two classes")
        columns = {column: (a, j) for a, attribute in enumerate(space) for j, column in enumerate(attribute.columns)}
        named = {*model.feature_names} == {*columns}
        if not named and (len(columns) != model.n_features or {*model.feature_names} & {*columns}):
            raise Rejected("the model's columns are not those of the space")
        # a model without names of its own takes the columns in order
        self.owner = [columns[name] for name in model.feature_names] if named else [*columns.values()]
        self.axes: list[Axis] = []
        self.tests: dict[int, tuple[int, int]] = {}
        inner = np.flatnonzero(model.test != Test.LEAF).tolist()
        for a, attribute in enumerate(space):
            nodes = [n for n in inner if self.owner[model.feature[n]][0] == a]
            cells = self._numeric(attribute, nodes) if attribute.is_numeric else self._finite(attribute)
            starts = [start for start, _, _ in cells]
            if attribute.missing is not None:
                cells.append((None, (math.nan,) * len(attribute.columns), attribute.missing))
            unit = math.lcm(*(mass.denominator for _, _, mass in cells))
            self.axes.append(
                Axis(attribute, attribute.name in sensitive, starts, [int(c[2] * unit) for c in cells], unit)
            )
            self.tests |= {node: (a, self._left(node, [point for _, point, _ in cells])) for node in nodes}
        base = model.base[0] - (Fraction(model.n_trees, 2) if model.link == "mean" else 0)
        values = [Fraction(v) for v in model.value[:, 0].tolist()]
        unit = math.lcm(base.denominator, *(v.denominator for v in values))
        self.constant, self.leaves = int(base * unit), [int(v * unit) for v in values]
        ties = {"paper": (1, -1), "library": (0, -1) if model.tie == "positive" else (1, 0)}
        dyadic = not model.base[0].denominator & (model.base[0].denominator - 1)  # otherwise F is never 0
        self.pos, self.neg = self.conf_pos, self.conf_neg = ties[self.asked["tie"]] if dyadic else (0, -1)
        kappa = _number(self.asked["kappa"], "kappa")
        if kappa > HALF:
            level = _level(kappa, unit / model.factor, model.link == "mean")
            self.conf_pos, self.conf_neg = level + 1, -level - 1
        largest = max(map(abs, self.leaves)) * model.n_trees + abs(self.constant) + abs(self.conf_pos)
        self.dtype: Any = np.int64 if largest < 2**61 else object

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
        codes, known = attribute.codes, self.model.categories.get(self.owner.index((len(self.axes), 0)))
        if codes is None and known is not None:
            texts = [str(value) for value in known]
            place = [known.index(v) if v in known else texts.index(str(v)) for v in attribute.values]
            codes = tuple((float(code),) for code in place)
        return [*zip(range(len(attribute.values)), codes or [(float(v),) for v in attribute.values],
                     attribute.value_masses())]  # fmt: skip

    def _numeric(self, attribute: Attribute, nodes: list[int]) -> list[tuple[Any, Any, Fraction]]:
        """Cells between all points at which some test may change."""
        model, integral = self.model, attribute.kind == "integer"
        edges: set[tuple[Fraction, int]] = set()
        for node in nodes:
            test, limit = model.test[node], float(model.threshold[node])
            if model.missing[node] in (Missing.WITH_ZERO, Missing.ZERO_EXACT):
                band = Fraction(ZERO_BAND if model.missing[node] == Missing.WITH_ZERO else 0)
                edges |= {(Fraction(0), 0), (Fraction(1), 0)} if integral else {(-band, 0), (band, 1)}
            if test == Test.IN_SET:
                codes = model.set_of(node) | model.known_codes.get(int(model.feature[node]), frozenset())
                edges |= {(Fraction(code + i), 0) for code in codes for i in (0, 1)}
            elif integral:  # true up to some integer
                fails = partial(_fails, test, limit)
                at = bisect_left(range(int(attribute.low), int(attribute.high) + 1), True, key=fails)
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
        axis = self.axes[a]
        present = len(axis.starts)
        if a < 0 or axis.sensitive or missing not in (0, 1) or missing > len(axis.masses) - present:
            raise Rejected("the cut is on a sensitive attribute, or on a missing value that is not declared")
        edges = [*axis.starts, _ends(axis.attribute)[1]] if axis.attribute.is_numeric else axis.starts
        cells = missing << present
        for part in held:
            if axis.attribute.is_numeric:
                first, last = [edges.index((_number(v, "the cut"), side)) for v, side in (part[:2], part[2:])]
                cells |= (1 << last) - (1 << first)
            else:
                cells |= 1 << edges.index(part)
        return a, cells


def _number(value: object, what: str) -> Fraction:
    """The rational that a number of the file means; one with more digits than anybody writes would fill the memory."""
    text = str(value) if isinstance(value, (str, float)) or (type(value) is int and abs(value) < 10**800) else "?" * 801
    if len(text) > 800 or ("/" not in text and abs(Decimal(text).adjusted()) > 400):
        raise Rejected(f"{what}: {text[:40]} is no number of at most 800 digits between 1e-400 and 1e400")
    return Fraction(text)


def _fails(test: int, limit: float, value: int) -> bool:
    return not holds(test, limit, float(value))


def _ends(attribute: Attribute) -> tuple[tuple[Fraction, int], tuple[Fraction, int]]:
    return (attribute.low, 0), (attribute.high + 1, 0) if attribute.kind == "integer" else (attribute.high, 1)


def _level(kappa: Fraction, size: Fraction, is_mean: bool) -> int:
    """The floor of the margin above which an input is confident, with digits enough to be sure of it."""
    if is_mean:
        return math.floor((kappa - HALF) * size)
    with localcontext() as context:
        context.prec = 60 + 2 * len(str(math.ceil(size)))
        odds = Decimal(kappa.numerator) / (kappa.denominator - kappa.numerator)
        exact = odds.ln() * size.numerator / size.denominator
        low, high = math.floor(exact - Decimal("1e-20")), math.floor(exact + Decimal("1e-20"))
    if low != high:
        raise Rejected("logit(kappa) is too close to a possible margin for this checker")
    return low


class Box(NamedTuple):
    trees: tuple[int, ...]  # the records that are left of the trees, without leaves
    constant: int  # F without the trees
    cells: tuple[int, ...]  # per axis the cells that the box holds


class Checker:
    """Follows the splits, checks the claims, and collects the masses that they prove."""

    def __init__(self, question: Question):
        self.question = q = question
        self.masses = [array("d") for _ in KINDS]
        self.boxes = self.largest = 0
        self.simple = q.conf_pos == q.conf_neg + 1  # every input is confident: signs are all that counts
        full = tuple((1 << len(axis.masses)) - 1 for axis in q.axes)
        asked = sorted({(a, cells) for a, cells in q.tests.values() if 0 < cells < full[a]})
        self.cut_list, self.cut_number = asked, {cut: i for i, cut in enumerate(asked)}
        self.axis_cuts = {a: sum(1 << c for c, cut in enumerate(asked) if cut[0] == a) for a, _ in asked}
        self.s_axes = [a for a in self.axis_cuts if q.axes[a].sensitive]
        self.s_bits = sum(1 << a for a in self.s_axes)
        # all combinations of sensitive cells: their masses, and where each sensitive cut sends them
        self.s_masses = _product([np.array([m / q.axes[a].unit for m in q.axes[a].masses]) for a in self.s_axes])
        rows = [*product(*(range(len(q.axes[a].masses)) for a in self.s_axes))]
        self.s_yes = {c: np.array([cells >> row[self.s_axes.index(a)] & 1 for row in rows], bool)
                      for c, (a, cells) in enumerate(asked) if a in self.s_axes}  # fmt: skip
        # residual trees: a record is (cut, yes, no), or (-1, value, 0)
        self.records: list[tuple[int, int, int]] = []
        self.numbers: dict[tuple[int, int, int], int] = {}
        self.axes_of: list[int] = []
        self.cuts_of: list[int] = []
        self.ends = np.zeros((2, 64, len(rows)), q.dtype)  # [least, largest] x record x sensitive combination
        self.moves: dict[tuple[int, int], dict[int, int]] = {}
        self.groups, self.tables, self.parts, self.orders = Cache(), Cache(), Cache(), Cache()
        self.cuts: list[tuple[int, int]] = []  # of the certificate
        roots = [self._tree(root, [*full]) for root in q.model.roots.tolist()]
        self.open = {0: self._box(roots, q.constant, full)}  # box 0 is the whole space

    def _tree(self, node: int, domain: list[int]) -> int:
        """The record of the tree below a node of the model, for points whose cells lie in the domain."""
        q = self.question
        if q.model.test[node] == Test.LEAF:
            return self._record(-1, q.leaves[node], 0)
        axis, cells = q.tests[node]
        sides = [self._tree(int(child[node]), [*domain[:axis], part, *domain[axis + 1 :]]) for part, child in
                 ((domain[axis] & cells, q.model.left), (domain[axis] & ~cells, q.model.right)) if part]  # fmt: skip
        return sides[0] if len(sides) == 1 else self._record(self.cut_number[axis, cells], *sides)

    def _record(self, cut: int, yes: int, no: int) -> int:
        """The number of a record; equal records have equal numbers, and a cut with equal sides is none."""
        if cut >= 0 and yes == no:
            return yes
        i = self.numbers.setdefault((cut, yes, no), len(self.records))
        if i < len(self.records):
            return i
        self.records.append((cut, yes, no))
        if i >= self.ends.shape[1]:
            self.ends = np.concatenate([self.ends, np.zeros_like(self.ends)], axis=1)
        least, largest = self.ends
        if cut < 0:
            least[i] = largest[i] = yes
        elif cut in self.s_yes:
            self.ends[:, i] = np.where(self.s_yes[cut], self.ends[:, yes], self.ends[:, no])
        else:
            least[i], largest[i] = np.minimum(least[yes], least[no]), np.maximum(largest[yes], largest[no])
        self.axes_of.append(0 if cut < 0 else self.axes_of[yes] | self.axes_of[no] | 1 << self.cut_list[cut][0])
        self.cuts_of.append(0 if cut < 0 else self.cuts_of[yes] | self.cuts_of[no] | 1 << cut)
        return i

    def _restricted(self, record: int, axis: int, cells: int) -> int:
        """The record on the points whose cell on the axis is one of the given."""
        memo = self.moves.setdefault((axis, cells), {})
        if record not in memo:
            memo[record] = record
            if self.axes_of[record] >> axis & 1:
                cut, yes, no = self.records[record]
                own, mask = self.cut_list[cut]
                parts = (cells & mask, cells & ~mask) if own == axis else (cells, cells)
                sides = [self._restricted(side, axis, part) for side, part in zip((yes, no), parts) if part]
                memo[record] = sides[0] if len(sides) == 1 else self._record(cut, *sides)
        return memo[record]

    def _box(self, trees: list[int], constant: int, cells: tuple[int, ...]) -> Box:
        """Leaves go into the constant."""
        constant += sum([self.records[t][1] for t in trees if not self.axes_of[t]])
        return Box(tuple([t for t in trees if self.axes_of[t]]), constant, cells)

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
                for part in (box.cells[axis] & ~mask, box.cells[axis] & mask):  # yes comes first: it lies on top
                    if not part:
                        raise Rejected(f"split {token} leaves one side empty")
                    memo = self.moves.setdefault((axis, part), {})
                    trees = [memo[t] if t in memo else self._restricted(t, axis, part) for t in box.trees]
                    stack.append(self._box(trees, box.constant, (*box.cells[:axis], part, *box.cells[axis + 1 :])))
            elif token[0] == "o":
                if self.open.setdefault(int(token[1:]), box) is not box:
                    raise Rejected(f"two boxes have the name {token[1:]}")
            elif mine:
                self._claim(box, token)
        if stack:
            raise Rejected("some parts of the box are left over")

    def _claim(self, box: Box, token: str) -> None:
        """Check what is said of a closed box, and add up its masses."""
        mass = math.prod([self._grouped(a, box.cells[a], 0)[0][0] for a in self.axis_cuts])
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
        total = self.ends[0, touched].sum(axis=0).tolist()
        return not any(self.axes_of[t] & ~self.s_bits for t in touched) and len({*total}) <= 1

    def _by_bounds(self, box: Box) -> tuple[float, float]:
        """Theorem 3: each combination of sensitive cells on its own."""
        q, (low, high) = self.question, self._bounds(box)
        unsure, sure_pos, sure_neg = (high < q.conf_pos) & (low > q.conf_neg), low >= q.conf_pos, high <= q.conf_neg
        unfair = sure_pos & (high.min() <= q.neg) | sure_neg & (low.max() >= q.pos)
        fair = sure_pos & (low.min() > q.neg) | sure_neg & (high.max() < q.pos)
        if self.simple or not (unsure | unfair | fair).all():
            raise Rejected("the bounds do not settle every class")
        return math.fsum(self.s_masses[unfair.astype(bool)]), math.fsum(self.s_masses[unsure.astype(bool)])

    def _counted(self, box: Box) -> tuple[float, float]:
        """Theorem 4: the unfair and the low share of a box, its trees taken as sums of independent parts."""
        q = self.question
        parts: list[tuple[int, tuple[int, ...]]] = [(self.s_bits, ())]  # axes, trees; the sensitive axes are one part
        for t in box.trees:
            axes, apart = self.axes_of[t], []
            joined: tuple[int, ...] = (t,)
            for part in parts:
                if part[0] & axes:
                    axes, joined = axes | part[0], part[1] + joined
                else:
                    apart.append(part)
            parts = [*apart, (axes, joined)]
        vector = [part for part in parts if part[0] & self.s_bits] or [(0, ())]
        table, classes, mass, least, most = self._part(box, *vector[0])
        scalars = [self._part(box, *part) for part in parts if part[0] and not part[0] & self.s_bits]
        lists: tuple[list[Any], list[Any]] = ([], [])  # A and B
        sizes = [len(mass), 1]
        for scalar in sorted(scalars, key=lambda scalar: -len(scalar[2])):
            n = len(scalar[2])
            to_b = sizes[0] * n + sizes[1] > sizes[0] + sizes[1] * n
            lists[to_b].append(scalar)
            sizes[to_b] *= n
        self.largest = max(self.largest, sizes[1])
        key, prefix = self._ordered(lists[1])
        value, weight = _joined(lists[0], q.dtype)
        weight = np.multiply.outer(mass, weight).reshape(-1) / FIXED

        def below(margin: Any, level: int) -> Any:
            """For every cell and every entry of A the mass of B with margin + a + b <= level."""
            return prefix[
                key.searchsorted(np.subtract.outer(level - box.constant - margin, value).reshape(-1), "right")
            ]

        if self.simple:
            return _total(weight * (below(least, q.neg) - below(most, q.neg))), 0.0
        some_neg, no_pos, sums = below(least, q.neg), below(most, q.pos - 1), np.zeros(2)
        for share, own in zip(classes.tolist(), table):
            not_pos, sure_neg = below(own, q.conf_pos - 1), below(own, q.conf_neg)
            unfair = np.maximum(some_neg - not_pos, 0) + np.maximum(sure_neg - no_pos, 0)
            sums += [share * _total(weight * unfair), share * _total(weight * (not_pos - sure_neg))]
        return float(sums[0]), float(sums[1])

    def _part(self, box: Box, axes: int, trees: tuple[int, ...]) -> Any:
        """A part of the trees: values (class x cell), shares of classes and cells, least and largest value of each cell.

        Where only signs count, there is no table, and cells on which all classes are equal are left out.
        """
        own, others = (_bits(bits) for bits in (axes & self.s_bits, axes & ~self.s_bits))
        name = (trees, *[box.cells[a] for a in others])
        if name not in self.parts:
            cuts = reduce(int.__or__, [self.cuts_of[t] for t in trees], 0)
            keys = [(a, box.cells[a], cuts & self.axis_cuts[a]) for a in own + others]
            shares = [self._grouped(*key)[0] if key[2] else np.ones(1) for key in keys]
            classes, mass = _product(shares[: len(own)]), _product(shares[len(own) :])
            first = self._sum(keys, [t for t in trees if self.axes_of[t] & self.s_bits])
            rest = self._sum(keys, [t for t in trees if not self.axes_of[t] & self.s_bits])[(0,) * len(own)]
            first = first.reshape(len(classes), *first.shape[len(own) :])
            # an exact integer of Python's comes out where nothing but the classes is left: back into an array
            ends = (first.min(axis=0) + rest, first.max(axis=0) + rest)
            least, most = (np.asarray(end, first.dtype).reshape(-1) for end in ends)
            if self.simple and (own or not axes):
                kept = np.flatnonzero(least < most)
                least, most, mass = least[kept], most[kept], mass[kept]
            table = None if self.simple else np.asarray(first + rest, first.dtype).reshape(len(classes), -1)
            self.parts.keep(
                name, (table, classes, mass, least, most), 3 * len(mass) + (0 if table is None else table.size)
            )
        return self.parts[name]

    def _sum(self, keys: list[tuple[int, int, int]], trees: Sequence[int]) -> Any:
        """The sum of the trees over groups of the axes' cells; an axis that no tree tests has length 1."""
        scopes: dict[int, list[int]] = {}
        for t in trees:
            scopes.setdefault(self.axes_of[t], []).append(t)
        tables: dict[int, Any] = {}
        for scope in sorted(scopes, key=int.bit_count):
            own = [key for key in keys if scope >> key[0] & 1]
            name = (*scopes[scope], *own)
            if name not in self.tables:
                table = sum(self._spread(t, own) for t in scopes[scope])
                self.tables.keep(name, table, table.size)
            sizes = iter(self.tables[name].shape)
            tables[scope] = self.tables[name].reshape([next(sizes) if scope >> key[0] & 1 else 1 for key in keys])
        total = np.zeros([1] * len(keys), self.question.dtype)
        while tables:  # small tables first, each into one that has all its axes
            scope = next(iter(tables))
            table = tables.pop(scope)
            wider = next((other for other in tables if not scope & ~other), None)
            if wider is None:
                total = total + table
            else:
                tables[wider] = tables[wider] + table
        return total

    def _spread(self, record: int, keys: list[tuple[int, int, int]]) -> Any:
        """The values of a tree over groups of its axes' cells."""
        cut, yes, no = self.records[record]
        if cut < 0:
            return np.array(yes, self.question.dtype)
        at = [key[0] for key in keys].index(self.cut_list[cut][0])
        side = self._grouped(*keys[at])[1][cut].reshape((1,) * at + (-1,) + (1,) * (len(keys) - at - 1))
        return np.where(side, self._spread(yes, keys), self._spread(no, keys))

    def _grouped(self, axis: int, cells: int, cuts: int) -> tuple[Any, dict[int, Any]]:
        """The cells in groups that the cuts do not tell apart: their shares, and where each cut sends them.

        The shares are those of the cells' mass, or of the whole axis if no cut is given.
        """
        key = axis, cells, cuts
        if key not in self.groups:
            masses, asked = self.question.axes[axis].masses, [(c, self.cut_list[c][1]) for c in _bits(cuts)]
            groups: dict[tuple[int, ...], int] = {}
            for i in _bits(cells):
                side = tuple([mask >> i & 1 for _, mask in asked])
                groups[side] = groups.get(side, 0) + masses[i]
            whole = sum(groups.values()) if cuts else self.question.axes[axis].unit
            shares, sides = np.array([m / whole if m else 0.0 for m in groups.values()]), np.array([*groups], bool)
            self.groups.keep(key, (shares, {c: sides[:, i] for i, (c, _) in enumerate(asked)}), sides.size)
        return self.groups[key]  # type: ignore[no-any-return]

    def _ordered(self, parts: list[Any]) -> tuple[Any, Any]:
        """The sums of independent values in order, and how much mass comes before each: rounded down, then integers."""
        key = tuple([id(part) for part in parts])
        if key not in self.orders:
            value, mass = _joined(parts, self.question.dtype)
            order = value.argsort()
            prefix = np.zeros(len(order) + 1, np.int64)
            np.cumsum((mass[order] * FIXED).astype(np.int64), out=prefix[1:])
            self.orders.keep(key, (value[order], prefix, parts), len(order))  # the ids are these parts' while they live
        return self.orders[key][:2]  # type: ignore[no-any-return]


class Cache(dict[Any, Any]):
    """Forgets everything once it holds too many numbers."""

    size = 0

    def keep(self, key: Any, value: Any, size: int) -> None:
        self.size += size + 100
        if self.size > CACHE:
            self.clear()
            self.size = size
        self[key] = value


def _joined(parts: list[Any], dtype: Any) -> tuple[Any, Any]:
    """The sums of independent values, and their shares."""
    value, mass = np.zeros(1, dtype), np.ones(1)
    for _, _, share, values, _ in parts:
        value, mass = np.add.outer(value, values).reshape(-1), np.multiply.outer(mass, share).reshape(-1)
    return value, mass


def _product(shares: Sequence[Any]) -> Any:
    return reduce(np.multiply.outer, shares, np.ones(())).reshape(-1)


def _total(terms: Any) -> float:
    """Blocks of 64 are added by numpy, in any order; the blocks without rounding."""
    n = len(terms) // BLOCK * BLOCK
    return math.fsum([*terms[:n].reshape(-1, BLOCK).sum(axis=1).tolist(), *terms[n:].tolist()])


def _bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
