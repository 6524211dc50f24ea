"""Follows a certificate box by box: residual trees, bounds, counts, masses."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from boxqte.certify.question import BLOCK, CACHE, CLOSE, FIXED, KINDS, Question, Rejected
from boxqte.models.ensemble import Test


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
        self.full = full = tuple((1 << len(axis.masses)) - 1 for axis in q.axes)
        tests = [*q.tests.values(), *((axis, cells) for axis, shifts in q.stumps for cells, _ in shifts[1:])]
        # a test and its opposite are one cut, which holds cell 0
        asked = sorted({(a, cells if cells & 1 else full[a] ^ cells) for a, cells in tests if 0 < cells < full[a]})
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
        self.records, self.numbers = list[tuple[int, int, int]](), dict[tuple[int, int, int], int]()
        self.axes_of, self.cuts_of = list[int](), list[int]()
        self.ends = np.zeros((2, 64, len(rows)), q.dtype)  # [least, largest] x record x sensitive combination
        self.moves, self.cuts = dict[tuple[int, int], dict[int, int]](), list[tuple[int, int]]()
        self.groups, self.tables, self.parts, self.orders = Cache(), Cache(), Cache(), Cache()
        roots = [self._tree(root, [*full]) for root in q.model.roots.tolist()]
        for axis, shifts in q.stumps:
            stump = self._record(-1, shifts[0][1], 0)
            for cells, shift in shifts[1:]:
                stump = self._test(axis, cells, self._record(-1, shift, 0), stump)
            roots.append(stump)
        for axis, cells in q.group:
            roots = [self._restricted(root, axis, cells) for root in roots]
        self.used = reduce(int.__or__, [self.axes_of[root] for root in roots], 0)
        if any(self.used >> axis & 1 for axis, _ in q.group):
            raise Rejected("the group has values that the model tells apart")
        # box 0 is the whole space, or all of the group
        start = tuple(dict(q.group).get(a, cells) for a, cells in enumerate(full))
        self.open = {0: self._box(roots, q.constant, start)}

    def _tree(self, node: int, domain: list[int]) -> int:
        """The record of the tree below a node of the model, for points whose cells lie in the domain."""
        q = self.question
        if q.model.test[node] == Test.LEAF:
            return self._record(-1, q.leaves[node], 0)
        axis, cells = q.tests[node]
        sides = [self._tree(int(child[node]), [*domain[:axis], part, *domain[axis + 1 :]]) for part, child in
                 ((domain[axis] & cells, q.model.left), (domain[axis] & ~cells, q.model.right)) if part]  # fmt: skip
        return sides[0] if len(sides) == 1 else self._test(axis, cells, *sides)

    def _test(self, axis: int, cells: int, inside: int, outside: int) -> int:
        """The record of a test of the cells on an axis."""
        cut = self.cut_number[axis, cells if cells & 1 else self.full[axis] ^ cells]
        return self._record(cut, inside, outside) if cells & 1 else self._record(cut, outside, inside)

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
            low, high = self.ends[:, box.trees].sum(axis=1) + box.constant
            fair = low.min() >= self.question.pos or high.max() <= self.question.neg or self._constant(box)
            unfair = high.min() <= self.question.neg and low.max() >= self.question.pos
            if not {"f": fair, "u": unfair, "b0,0": fair or unfair}[token]:
                raise Rejected(f"'{token}' does not follow from the bounds")
            shares = (0.0 if fair else 1.0, 0.0)
        else:
            shares = {"c": self._counted, "b": self._by_bounds}[token[0]](box)
            stated = [float(part) for part in token[1:].split(",")]
            close = all(abs(claim - share * mass) <= CLOSE * mass for claim, share in zip(stated, shares))
            if len(stated) != (1 if self.simple else 2) or not close:
                raise Rejected(f"'{token}' is wrong, the masses are {shares[0] * mass:.15g}, {shares[1] * mass:.15g}")
        for total, share in zip(self.masses, (1 - shares[0] - shares[1], *shares)):
            total.append(max(share, 0.0) * mass)

    def _constant(self, box: Box) -> bool:
        """Theorem 1: F is the same for all combinations of sensitive cells, whatever the other cells are."""
        touched = [t for t in box.trees if self.axes_of[t] & self.s_bits]
        total = self.ends[0, touched].sum(axis=0).tolist()
        return not any(self.axes_of[t] & ~self.s_bits for t in touched) and len({*total}) <= 1

    def _by_bounds(self, box: Box) -> tuple[float, float]:
        """Theorem 3: each combination of sensitive cells on its own."""
        q, (low, high) = self.question, self.ends[:, box.trees].sum(axis=1) + box.constant
        unsure, sure_pos, sure_neg = (high < q.conf_pos) & (low > q.conf_neg), low >= q.conf_pos, high <= q.conf_neg
        unfair = sure_pos & (high.min() <= q.neg) | sure_neg & (low.max() >= q.pos)
        fair = sure_pos & (low.min() > q.neg) | sure_neg & (high.max() < q.pos)
        if self.simple or not (unsure | unfair | fair).all():
            raise Rejected("the bounds do not settle every class")
        return math.fsum(self.s_masses[unfair.astype(bool)]), math.fsum(self.s_masses[unsure.astype(bool)])

    def _counted(self, box: Box) -> tuple[float, float]:
        """Theorem 4: the unfair and the low share of a box, its trees taken as sums of independent parts."""
        q, parts = self.question, list[Any]([(self.s_bits, ())])  # axes, trees; the sensitive axes are one part
        for t in box.trees:
            axes = self.axes_of[t]
            met = [part for part in parts if part[0] & axes]
            for part in met:
                axes |= part[0]
            apart = [part for part in parts if not part[0] & axes]
            parts = [*apart, (axes, (*[u for part in met for u in part[1]], t))]
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
            most_b = np.subtract.outer(level - box.constant - margin, value).reshape(-1)
            return prefix[key.searchsorted(most_b, "right")]

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
            table: Any = None if self.simple else np.asarray(first + rest, first.dtype).reshape(len(classes), -1)
            self.parts.keep(name, (table, classes, mass, least, most), 3 * len(mass) + np.size(table))
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
        tables[-1] = np.zeros([1] * len(keys), self.question.dtype)  # -1 has all axes
        for scope in [*tables][:-1]:  # small tables first, each into one that has all its axes
            table = tables.pop(scope)
            wider = next(other for other in tables if not scope & ~other)
            tables[wider] = tables[wider] + table
        return tables[-1]

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
        if self.size > CACHE:
            self.clear()
        self.size = (self.size if self else 0) + size + 100
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
