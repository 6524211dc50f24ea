"""Measures that follow a table: the product of its columns' frequencies, that of a group, and the rows themselves.

Which question each answers is in docs/populations.md. In all of them the space keeps its domains: x' may be any input.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.checks import number, worker_count
from boxqte.conditions import parse_condition
from boxqte.ensemble import Test
from boxqte.errors import SpaceError
from boxqte.grid import Grid, build_grid, match_columns
from boxqte.importers import load_model
from boxqte.masses import with_data_mass
from boxqte.properties import Property
from boxqte.space import Attribute, Space, read_space
from boxqte.tables import Table, exact_number, table_of

MISSING, OUTSIDE = "missing", "outside"
WORDS = (MISSING, OUTSIDE)
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge
}  # fmt: skip


@dataclass(frozen=True)
class Population:
    """A space whose masses are those of a table, and how they were taken."""

    space: Space
    rows: int
    """rows of the group"""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Empirical:
    """The share of a table's confident rows that are no counterexamples.

    `lower` and `upper` are an exact (Clopper-Pearson) interval for the population that the rows were drawn from
    independently; for the rows at hand, `measure` is the whole truth. None if no row is confident.
    """

    rows: int
    outside: int
    """rows with a value outside the space, which count for nothing"""
    confident: int
    unfair: int
    measure: float | None
    lower: float | None
    upper: float | None
    confidence: float
    counterexamples: tuple[int, ...]
    """the numbers of the rows, from 0, that are counterexamples"""

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return asdict(self)


def population(space: Space, frame: Any, *, where: str | None = None) -> Population:
    """The space with the masses of a table: each attribute's own frequencies among the rows, or those of a group.

    Parameters
    ----------
    space
        The space; its domains stay as they are.
    frame
        A pandas, polars or pyarrow table with a column for each attribute (or for each model column of a one-hot group).
    where
        A condition that rows must satisfy to count, such as `"sex == 'f' and age >= 60"`.

    Examples
    --------
    >>> from boxqte.space import Attribute
    >>> space = Space([Attribute.categorical("sex", ["f", "m"]), Attribute.integer("age", 18, 20)])
    >>> people = {"sex": ["f", "m", "m", "m"], "age": [18, 19, 19, 20]}
    >>> population(space, people).space["sex"].value_masses()
    [Fraction(1, 4), Fraction(3, 4)]
    >>> population(space, people, where="sex == 'm'").rows
    3
    """
    space = read_space(space)
    rows = Rows(space, table_of(frame))
    chosen = rows.chosen(where)
    notes = []
    for attribute in space:
        values = [v for v, keep in zip(rows.values[attribute.name], chosen) if keep]
        counts = Counter(values)
        absent, outside = counts.pop(MISSING, 0), counts.pop(OUTSIDE, 0)
        if not attribute.is_numeric:
            counts = Counter({attribute.values[index]: n for index, n in counts.items()})
        changed, how = with_data_mass(attribute, counts)
        if attribute.missing is not None:
            changed = replace(changed, missing=Fraction(absent, absent + counts.total()))
        elif absent:
            how += f"; missing values, which are not in the domain, left out: {absent}"
        if outside:
            how += f"; rows outside the domain, left out: {outside}"
        notes.append(f"{attribute.name}: {how}")
        space = space.with_attribute(changed)
    return Population(space, int(np.count_nonzero(chosen)), tuple(notes))


def empirical(
    model: object,
    space: Space,
    prop: Property,
    frame: Any,
    *,
    where: str | None = None,
    confidence: float = 0.95,
    workers: int = 1,
    allow_pickle: bool = False,
) -> Empirical:
    """Decide every row of a table exactly, and give the share of the confident ones that are treated fairly.

    Parameters
    ----------
    where
        A condition that rows must satisfy to count.
    confidence
        Of the interval for the population behind the rows.
    """
    from boxqte.engines.point import LOW, UNFAIR, point_decider

    if not 0 < number(confidence, "confidence", SpaceError) < 1:
        raise SpaceError(f"confidence: must lie between 0 and 1, found {confidence}")
    workers, space = worker_count(workers), read_space(space)
    grid = build_grid(load_model(model, allow_pickle=allow_pickle).ensemble, space, prop, many_classes=True)
    rows = Rows(space, table_of(frame))
    chosen = np.flatnonzero(rows.chosen(where))
    cells, inside = rows.cells(grid)
    kept = chosen[inside[chosen]]
    verdict = point_decider(grid).decide(cells[kept], workers=workers).verdict
    confident, unfair = int((verdict != LOW).sum()), int((verdict == UNFAIR).sum())
    lower, upper = clopper_pearson(confident - unfair, confident, confidence) if confident else (None, None)
    return Empirical(
        rows=len(chosen),
        outside=len(chosen) - len(kept),
        confident=confident,
        unfair=unfair,
        measure=1 - unfair / confident if confident else None,
        lower=lower,
        upper=upper,
        confidence=confidence,
        counterexamples=tuple(kept[verdict == UNFAIR].tolist()),
    )


class Rows:
    """The rows of a table as values of the attributes: a Fraction, the index of a value, MISSING or OUTSIDE."""

    def __init__(self, space: Space, table: Table):
        self.space = space
        self.n = table.n_rows
        self.values: dict[str, list[Any]] = {a.name: _attribute_values(a, table) for a in space}

    def chosen(self, where: str | None) -> npt.NDArray[np.bool_]:
        """Which rows satisfy the condition."""
        if where is None:
            return np.ones(self.n, bool)
        parse_condition(where, self.space)  # its errors are the ones to show
        found = _Condition(where, self).holds()
        if not found.any():
            raise SpaceError(f"condition {where!r}: no row of the table satisfies it")
        return found

    def cells(self, grid: Grid) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The refined cells of every row, and which rows lie in the space."""
        ensemble = grid.ensemble
        casts = np.isin(ensemble.test, (Test.LESS_F32, Test.AT_MOST_F32))
        owner = match_columns(ensemble, self.space)
        narrow = {owner[f][0] for f in np.unique(ensemble.feature[casts]).tolist()}
        cells = np.zeros((self.n, len(grid.axes)), np.int64)
        inside = np.ones(self.n, bool)
        for a, axis in enumerate(grid.axes):
            attribute = axis.attribute
            absent = next((i for i, cell in enumerate(axis.refined) if cell.missing), -1)
            if attribute.is_numeric:
                edges = [cell.low for cell in axis.refined if cell.low is not None]
                present = [v for v in set(self.values[attribute.name]) if v not in WORDS]
                seen = {v: _as_the_model_reads(v, a in narrow) if attribute.kind == "real" else v for v in present}
                place = {v: max(bisect_right(edges, (seen[v], 0)) - 1, 0) for v in present}
            else:
                place = {v: i for i, cell in enumerate(axis.refined) for v in cell.values}
            place |= {MISSING: absent, OUTSIDE: -1}
            cells[:, a] = [place[v] for v in self.values[attribute.name]]
            inside &= cells[:, a] >= 0
        return cells, inside


def _as_the_model_reads(value: Fraction, single: bool) -> Fraction:
    """A real number as the library's column holds it. A row may lie exactly on a threshold, so this matters here."""
    return Fraction(float(np.float32(float(value)))) if single else Fraction(float(value))


def _attribute_values(attribute: Attribute, table: Table) -> list[Any]:
    """What each row says about one attribute, from the column of its name or from its model columns."""
    if attribute.name in table.names:
        column = table.column(attribute.name)
        read = _number_reader(attribute) if attribute.is_numeric else _value_reader(attribute)
    elif all(name in table.names for name in attribute.columns):
        if len(attribute.columns) > 1:
            return _group_values(attribute, table)
        column = table.column(attribute.columns[0])
        read = _number_reader(attribute) if attribute.is_numeric else _code_reader(attribute)
    else:
        wanted = " or ".join(dict.fromkeys([f"'{attribute.name}'", f"'{', '.join(attribute.columns)}'"]))
        raise SpaceError(f"the table has no column {wanted} of the space; it has {', '.join(table.names)}")
    seen: dict[Any, Any] = {None: MISSING}
    for value in column.counts:
        seen[value] = read(value)
    return [seen[value] for value in column.values]


def _number_reader(attribute: Attribute) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            raise SpaceError(f"column '{attribute.name}': found {value!r}, but the attribute is {attribute.kind}")
        number = exact_number(value, f"column '{attribute.name}'")
        inside = attribute.low <= number <= attribute.high
        return number if inside and (attribute.kind == "real" or number.denominator == 1) else OUTSIDE

    return read


def _value_reader(attribute: Attribute) -> Callable[[Any], Any]:
    by_value: dict[Any, int] = {value: i for i, value in enumerate(attribute.values)}
    by_text = {str(value): i for i, value in enumerate(attribute.values)}
    by_text |= {attribute.label_of(i): i for i in range(len(attribute.values))}
    return lambda value: by_value.get(value, by_text.get(str(value), OUTSIDE))


def _code_reader(attribute: Attribute) -> Callable[[Any], Any]:
    if attribute.codes is None:
        return _value_reader(attribute)
    by_code = {code[0]: i for i, code in reversed(list(enumerate(attribute.codes)))}
    return lambda value: by_code.get(value, OUTSIDE)


def _group_values(attribute: Attribute, table: Table) -> list[Any]:
    """A one-hot group: the value that writes what the row holds in all its columns."""
    codes = attribute.codes or tuple(
        tuple(float(i == j) for j in range(len(attribute.columns))) for i in range(len(attribute.values))
    )
    by_code = {code: i for i, code in reversed(list(enumerate(codes)))}
    columns = [table.column(name).values for name in attribute.columns]
    found: list[Any] = []
    for row in zip(*columns):
        if all(value is None for value in row):
            found.append(MISSING)
        else:
            found.append(by_code.get(tuple(math.nan if v is None else float(v) for v in row), OUTSIDE))
    return found


class _Condition:
    """A condition (boxqte.conditions), evaluated on rows; a missing value satisfies no comparison but `== missing`."""

    def __init__(self, text: str, rows: Rows):
        self.rows = rows
        self.names: dict[str, str] = {}
        source = re.sub(r"`([^`]*)`", self._stand_in, text)
        self.tree = ast.parse(source.strip(), mode="eval").body

    def _stand_in(self, match: re.Match[str]) -> str:
        stand = f"name_{len(self.names)}_in_backticks"
        self.names[stand] = match[1]
        return stand

    def holds(self) -> npt.NDArray[np.bool_]:
        return self._holds(self.tree)

    def _holds(self, node: ast.expr) -> npt.NDArray[np.bool_]:
        match node:
            case ast.BoolOp(op=op, values=terms):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return np.array(join.reduce([self._holds(term) for term in terms]))
            case ast.UnaryOp(operand=term):
                return ~self._holds(term)
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                parts = [self._compare(a, op, b) for a, op, b in zip(sides, ops, sides[1:])]
                return np.array(np.logical_and.reduce(parts))
        raise AssertionError("parse_condition has accepted something else")

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> npt.NDArray[np.bool_]:
        swapped = not (isinstance(left, ast.Name) and left.id != MISSING)
        name, other = (right, left) if swapped else (left, right)
        assert isinstance(name, ast.Name)
        attribute = self.rows.space[self.names.get(name.id, name.id)]
        verdicts = {}
        for value in set(self.rows.values[attribute.name]):
            if type(op) in COMPARISONS:
                limit = exact_number(ast.literal_eval(other), "condition")
                sides = (limit, value) if swapped else (value, limit)
                verdicts[value] = value not in WORDS and COMPARISONS[type(op)](*sides)
                continue
            items = other.elts if isinstance(other, (ast.List, ast.Tuple, ast.Set)) else [other]
            equal = any(self._equal(attribute, value, item) for item in items)
            verdicts[value] = equal if isinstance(op, (ast.Eq, ast.Is, ast.In)) else not equal
        return np.array([verdicts[value] for value in self.rows.values[attribute.name]])

    def _equal(self, attribute: Attribute, value: Any, item: ast.expr) -> bool:
        if isinstance(item, ast.Name) or (isinstance(item, ast.Constant) and item.value is None):
            return bool(value == MISSING)
        wanted = ast.literal_eval(item)
        if value in WORDS:
            return False
        if attribute.is_numeric:
            return bool(value == exact_number(wanted, "condition"))
        known = attribute.values[value]
        return bool(known == wanted) or (isinstance(wanted, str) and wanted in (str(known), attribute.label_of(value)))


# --- the exact binomial interval --------------------------------------------------------------------------------------


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """The exact interval of a binomial share; ends are moved outward by more than the floating-point error.

    Examples
    --------
    >>> [round(end, 4) for end in clopper_pearson(8, 10, 0.95)]
    [0.4439, 0.9748]
    """
    tail = (1 - confidence) / 2
    logs = _log_choose(trials)

    def bisect(wanted: Callable[[float], bool]) -> tuple[float, float]:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            if wanted(middle):
                low = middle
            else:
                high = middle
        return low, high

    lower, upper = 0.0, 1.0
    if successes > 0:  # the share at which so many successes or more have probability `tail`
        lower = bisect(lambda p: _tail(logs, p, successes, trials) < tail)[0] - 1e-9
    if successes < trials:
        upper = bisect(lambda p: 1 - _tail(logs, p, successes + 1, trials) > tail)[1] + 1e-9
    return max(lower, 0.0), min(upper, 1.0)


def _log_choose(n: int) -> npt.NDArray[np.float64]:
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    return np.asarray(factorial[n] - factorial - factorial[::-1])


def _tail(logs: npt.NDArray[np.float64], p: float, least: int, n: int) -> float:
    """P(at least `least` successes)."""
    if p <= 0 or p >= 1:
        return float(p >= 1)
    k = np.arange(least, n + 1)
    return float(np.exp(logs[least:] + k * math.log(p) + (n - k) * math.log1p(-p)).sum())


def empirical_text(found: Empirical, prop: Property) -> str:
    """The empirical measure for a terminal."""
    lines = [
        f"question            {prop}",
        f"rows                {found.rows:,}, of which {found.confident:,} are confident",
    ]
    if found.outside:
        lines.append(f"                    {found.outside:,} rows lie outside the space and count for nothing")
    if found.measure is None or found.lower is None or found.upper is None:
        return "\n".join([*lines, "measure             undefined: no row is confident"])
    treated = "treated fairly" if prop.sensitive else "robust"
    lines.append(f"counterexamples     {found.unfair:,}")
    lines.append(f"measure             {found.measure:.6f} of the confident rows are {treated}")
    lines.append(
        f"population          between {math.floor(found.lower * 1e6) / 1e6:.6f} and {math.ceil(found.upper * 1e6) / 1e6:.6f}"
        f" with confidence {found.confidence}, if the rows are independent draws from it"
    )
    return "\n".join(lines)
