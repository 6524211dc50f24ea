"""The paper's formulas as SMT-LIB 2 text: Phi_unfair, Phi_kappa and Phi_not_kappa over the attributes themselves.

A real attribute is a Real, an integer attribute an Int, a categorical attribute or a one-hot group an Int that numbers its
values (a missing value is the number behind the last). A missing value of a numeric attribute is a Bool of its own. Tests
are read off the Grid's cells, so that every engine reads them alike. Leaf values are exact: whole multiples of
2**-scale_bits, as is the level that logit(kappa) rounds to (`Thresholds`).

The text is the only encoding there is: z3 parses what `boxqte smtlib` writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Literal

from boxqte.questions.axes import Axis, Cell, Edge
from boxqte.questions.grid import Grid

FormulaName = Literal["unfair", "kappa", "not-kappa"]
FORMULAS: tuple[FormulaName, ...] = ("unfair", "kappa", "not-kappa")

PRIME = "'"


def smtlib(grid: Grid, formula: FormulaName = "unfair") -> str:
    """One of the paper's formulas as an SMT-LIB 2 script; satisfiable iff there is such an input, or pair of inputs.

    Examples
    --------
    >>> from boxqte import Fairness
    >>> from boxqte.questions.building import build_grid
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> script = smtlib(build_grid(loan_ensemble(), loan_space(), Fairness("race", kappa=0.8)), "kappa")
    >>> script.splitlines()[0], script.splitlines()[-1]
    ('; Phi_kappa: inputs with confidence above kappa', '(check-sat)')
    """
    titles = {
        "unfair": "Phi_unfair: pairs (x, x') that violate the property",
        "kappa": "Phi_kappa: inputs with confidence above kappa",
        "not-kappa": "Phi_not_kappa: inputs with confidence at most kappa, or without a class",
    }
    lines = [f"; {titles[formula]}", f"; {comment(str(grid.property))}", "(set-logic QF_LIRA)"]
    if grid.ensemble.decision is not None:
        lines.insert(2, f"; {comment(grid.ensemble.decision.text())}")
    lines += [*input_lines(grid, ""), *tree_lines(grid, "")]
    if formula == "unfair":
        lines += [*input_lines(grid, PRIME), *tree_lines(grid, PRIME)]
        lines += ["; Psi_kappa", f"(assert {confident(grid)})", *pair_lines(grid), "; Psi_ineq", _assert_ineq(grid)]
    elif formula == "kappa":
        lines += ["; Psi_kappa", f"(assert {confident(grid)})"]
    else:
        lines += ["; not Psi_kappa", f"(assert {unsure(grid)})"]
    return "\n".join([*lines, "(check-sat)"]) + "\n"


# --- variables --------------------------------------------------------------------------------------------------------


def symbol(kind: str, index: int, prime: str) -> str:
    """x, v or p with its number; quoted if it is primed."""
    return f"|{kind}{index}{prime}|" if prime else f"{kind}{index}"


def margin(prime: str) -> str:
    """F, the sum of the trees, of x or of x'."""
    return f"|F{prime}|" if prime else "F"


def absent(axis: int, prime: str) -> str:
    """The Bool that says whether a numeric attribute is missing."""
    return symbol("x", axis, "_missing" + prime) if prime else f"x{axis}_missing"


def sort_of(axis: Axis) -> str:
    return "Real" if axis.attribute.kind == "real" else "Int"


def has_flag(axis: Axis) -> bool:
    """Whether the attribute's missing value is a Bool beside the number."""
    return axis.attribute.is_numeric and axis.attribute.missing is not None


def declared(i: int, axis: Axis, prime: str) -> str:
    """The declaration of one attribute's variables."""
    flag = f" (declare-const {absent(i, prime)} Bool)" if has_flag(axis) else ""
    return f"(declare-const {symbol('x', i, prime)} {sort_of(axis)}){flag}"


def input_lines(grid: Grid, prime: str) -> Iterator[str]:
    """The input variables x, or x', and their domains."""
    yield f"; the inputs x{prime}: one variable an attribute, in its domain"
    for i, axis in enumerate(grid.axes):
        a, x = axis.attribute, symbol("x", i, prime)
        low, high = (a.low, a.high) if a.is_numeric else (Fraction(0), Fraction(len(a.values) - (a.missing is None)))
        yield f"{declared(i, axis, prime)} ; {comment(a.name)}: {a.kind}"
        yield f"(assert (<= {number(low, sort_of(axis))} {x} {number(high, sort_of(axis))}))"
    if grid.forbidden:
        yield f"; what the rules of the space forbid, x{prime} is not"
    for one in grid.forbidden:
        held = [member(a, grid.axes[a], grid.axes[a].cells, mask, prime) for a, mask in one.masks]
        yield f"(assert (not {conjunction(held)}))"


def tree_lines(grid: Grid, prime: str) -> Iterator[str]:
    """Psi_trees: each path implies its tree's value v and its own number p; F is the sum."""
    unit = f"2^-{grid.scale_bits}" if grid.scale_bits else "1"
    yield f"; Psi_trees for x{prime}: a path implies its tree's value v, in units of {unit}, and its own number p"
    for j, root in enumerate(grid.roots.tolist()):
        v, p = symbol("v", j, prime), symbol("p", j, prime)
        yield f"(declare-const {v} Real)"
        yield f"(declare-const {p} Int)"
        for leaf, path in paths(grid, root):
            tests = [literal(grid, cut, side, prime) for cut, side in path]
            reached = f"(and (= {v} {number(Fraction(grid.values[leaf]), 'Real')}) (= {p} {leaf}))"
            value = grid.values[leaf] / 2**grid.scale_bits
            yield f"(assert {implies(tests, reached)}) ; {value}"
    terms = [number(Fraction(grid.base), "Real"), *(symbol("v", j, prime) for j in range(len(grid.roots)))]
    total = f"(+ {' '.join(terms)})" if len(terms) > 1 else terms[0]
    yield f"(define-fun {margin(prime)} () Real {total})"


def pair_lines(grid: Grid) -> Iterator[str]:
    """The condition on the pair: near in every attribute that is not sensitive, different in one that is."""
    bounds = dict(grid.property.max_change)
    yield "; Psi_unfair: near in every other attribute, different in a sensitive one"
    for i, axis in enumerate(grid.axes):
        if not axis.sensitive:
            yield f"(assert {close(i, axis)})"
        elif axis.attribute.name in bounds:
            yield f"(assert {close(i, axis, bounds[axis.attribute.name])})"
    different = [differs(i, axis) for i, axis in enumerate(grid.axes) if axis.sensitive]
    if different:
        yield f"(assert {disjunction(different)})"


def paths(grid: Grid, root: int) -> Iterator[tuple[int, tuple[tuple[int, bool], ...]]]:
    """Every path of a tree: its leaf, and the cuts on the way with their outcomes."""
    stack: list[tuple[int, tuple[tuple[int, bool], ...]]] = [(root, ())]
    while stack:
        node, path = stack.pop()
        cut = int(grid.cut[node])
        if cut < 0:
            yield int(grid.leaf[node]), path
        else:
            stack += [(int(grid.no[node]), (*path, (cut, False))), (int(grid.yes[node]), (*path, (cut, True)))]


# --- conditions -------------------------------------------------------------------------------------------------------


def confident(grid: Grid) -> str:
    """Psi_kappa on F."""
    t = grid.thresholds
    return disjunction([at_least("F", t.conf_pos), at_most("F", t.conf_neg)]) if not t.all_confident else "true"


def unsure(grid: Grid) -> str:
    """The negation of Psi_kappa; `false` where it is known that every input is confident, which a solver finds hard."""
    t = grid.thresholds
    if t.all_confident:
        return "false"
    return conjunction([at_most("F", t.conf_pos - 1), at_least("F", t.conf_neg + 1)])


def _assert_ineq(grid: Grid) -> str:
    """Psi_ineq: x and x' have different classes, or scores that differ by the gap; x has the right place in an order.

    Where x' must be confident as well (partner_kappa), pos and neg are its levels; the class of x, which is confident
    (Psi_kappa), then follows from those of its own confidence.
    """
    t, other, partners = grid.thresholds, margin(PRIME), grid.partners
    pos, neg = (t.conf_pos, t.conf_neg) if grid.property.partner_kappa else (t.pos, t.neg)
    falls = conjunction([at_least("F", pos), at_most(other, t.neg)])  # from x to x'
    grows = conjunction([at_most("F", neg), at_least(other, t.pos)])
    if partners is not None and partners.gap:
        falls, grows = at_least(f"(- F {other})", partners.gap), at_least(f"(- {other} F)", partners.gap)
    if partners is not None and partners.order:
        up, down = (further(grid, partners.axis, side) for side in ((">", "<") if partners.order > 0 else ("<", ">")))
        falls, grows = conjunction([up, falls]), conjunction([down, grows])
    kinds = [falls] * (t.counted >= 0) + [grows] * (t.counted <= 0)
    return f"(assert {disjunction(kinds)})"


def further(grid: Grid, i: int, side: str) -> str:
    """x'_i > x_i, or <; a missing value is neither."""
    order = f"({side} {symbol('x', i, PRIME)} {symbol('x', i, '')})"
    flags = [f"(not {absent(i, prime)})" for prime in ("", PRIME)] if has_flag(grid.axes[i]) else []
    return conjunction([*flags, order])


def at_least(total: str, units: int) -> str:
    return f"(>= {total} {number(Fraction(units), 'Real')})"


def at_most(total: str, units: int) -> str:
    return f"(<= {total} {number(Fraction(units), 'Real')})"


def close(i: int, axis: Axis, bound: Fraction | None = None) -> str:
    """|x_i - x'_i| <= epsilon_i, or the bound (the definition's <=, where the paper's formula has <); categorical: equal."""
    x, y, sort = symbol("x", i, ""), symbol("x", i, PRIME), sort_of(axis)
    reach = axis.tolerance if bound is None else bound
    reach = Fraction(math.floor(reach)) if axis.attribute.kind == "integer" else reach
    if not axis.attribute.is_numeric or not reach:
        near = f"(= {x} {y})"
    else:
        near = f"(<= {number(-reach, sort)} (- {x} {y}) {number(reach, sort)})"
    if not has_flag(axis):
        return near
    gone, also = absent(i, ""), absent(i, PRIME)
    return conjunction([f"(= {gone} {also})", disjunction([gone, near])])


def differs(i: int, axis: Axis) -> str:
    """x_i != x'_i."""
    distinct = f"(distinct {symbol('x', i, '')} {symbol('x', i, PRIME)})"
    if not has_flag(axis):
        return distinct
    gone, also = absent(i, ""), absent(i, PRIME)
    return disjunction([f"(distinct {gone} {also})", conjunction([f"(not {gone})", distinct])])


def literal(grid: Grid, cut: int, side: bool, prime: str) -> str:
    """A test of the trees, or its negation."""
    at = grid.cuts[cut].axis
    axis = grid.axes[at]
    mask = grid.cuts[cut].mask if side else ((1 << axis.n_cells) - 1) & ~grid.cuts[cut].mask
    return member(at, axis, axis.cells, mask, prime)


def member(i: int, axis: Axis, cells: Sequence[Cell], mask: int, prime: str) -> str:
    """x_i lies in one of the cells of the mask; `cells` are the base cells or the refined ones."""
    if mask == (1 << len(cells)) - 1:
        return "true"
    x, sort = symbol("x", i, prime), sort_of(axis)
    chosen = [cell for at, cell in enumerate(cells) if mask >> at & 1]
    if axis.attribute.is_numeric:
        first, last = cells[0].low, cells[-1 - (axis.attribute.missing is not None)].high
        spans = [between(x, sort, low, high, first, last) for low, high in _spans(chosen)]
        if not has_flag(axis):
            return disjunction(spans)
        gone = absent(i, prime)
        if chosen and chosen[-1].missing:
            return disjunction([gone, *spans])
        return conjunction([f"(not {gone})", disjunction(spans)])
    return one_of(
        x, [n for cell in chosen for n in (cell.values if not cell.missing else (len(axis.attribute.values),))], axis
    )


def one_of(x: str, numbers: Iterable[int], axis: Axis) -> str:
    """x is one of these values of a finite attribute."""
    top = len(axis.attribute.values) - (axis.attribute.missing is None)
    return disjunction([_run(x, low, high, top) for low, high in _runs(sorted(numbers))])


def between(x: str, sort: str, low: Edge, high: Edge, first: Edge | None = None, last: Edge | None = None) -> str:
    """x lies between two edges; an end that is the domain's own goes without saying."""
    ends = []
    if low != first:
        ends.append(f"({'>=' if low[1] == 0 else '>'} {x} {number(low[0], sort)})")
    if high != last:
        ends.append(f"({'<' if high[1] == 0 else '<='} {x} {number(high[0], sort)})")
    return conjunction(ends)


def _spans(cells: Iterable[Cell]) -> list[tuple[Edge, Edge]]:
    """Numeric cells as intervals, neighbours joined."""
    spans: list[tuple[Edge, Edge]] = []
    for cell in cells:
        if cell.low is None or cell.high is None:
            continue  # the missing value
        if spans and spans[-1][1] == cell.low:
            spans[-1] = (spans[-1][0], cell.high)
        else:
            spans.append((cell.low, cell.high))
    return spans


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Whole numbers as ranges."""
    runs: list[tuple[int, int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return runs


def _run(x: str, low: int, high: int, top: int) -> str:
    if low == high and top:
        return f"(= {x} {low})"
    if low == 0:
        return f"(<= {x} {high})" if high != top else "true"
    return f"(>= {x} {low})" if high == top else f"(<= {low} {x} {high})"


# --- text -------------------------------------------------------------------------------------------------------------


def number(value: Fraction, sort: str) -> str:
    """An exact literal of the sort."""
    if sort == "Int":
        n = int(value)
        return str(n) if n >= 0 else f"(- {-n})"
    size = abs(value)
    text = f"{size.numerator}.0" if size.denominator == 1 else f"(/ {size.numerator}.0 {size.denominator}.0)"
    return text if value >= 0 else f"(- {text})"


def conjunction(parts: Sequence[str]) -> str:
    kept = [part for part in parts if part != "true"]
    if "false" in kept:
        return "false"
    return "true" if not kept else kept[0] if len(kept) == 1 else f"(and {' '.join(kept)})"


def disjunction(parts: Sequence[str]) -> str:
    kept = [part for part in parts if part != "false"]
    if "true" in kept:
        return "true"
    return "false" if not kept else kept[0] if len(kept) == 1 else f"(or {' '.join(kept)})"


def implies(tests: Sequence[str], then: str) -> str:
    condition = conjunction(tests)
    return then if condition == "true" else f"(=> {condition} {then})"


def comment(text: str) -> str:
    """Names come from files and may hold line ends; a comment stays on its line."""
    return "".join(c if c.isprintable() else "?" for c in text)
