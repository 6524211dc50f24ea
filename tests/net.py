"""The net: whatever can be asked of a result, asked of the oracle, and compared.

A result says `lower` and `upper`: the oracle's number must lie between them, whatever has stopped the search. Where no
limit has, they must be that number, up to TOLERANCE. Tables are read as a person reads them: the text of a cell, a rule or
a flip says which inputs a number is about, and the oracle looks them up in its own rows.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pandas as pd
import pytest

import boxqte
from boxqte import Quantification, Space, SpaceError, quantify
from boxqte.errors import EngineError, PropertyError
from boxqte.space.attributes import Attribute
from tests.naive import (
    MISSING,
    ZERO,
    Keep,
    NaiveRow,
    Oracle,
    Point,
    float32,
    naive_is_pair,
    naive_kept_mass,
    naive_row_at,
    naive_signature,
)
from tests.naive_classes import ClassOracle, random_class_problem
from tests.strategies import Problem, random_problem

TOLERANCE = 1e-11
SMALL = {"max_pieces": 60, "max_pairs": 2_500, "max_attributes": 3, "max_trees": 5, "max_values": 5}
FLOAT_SLACK = Fraction(1, 2**21)  # x' of a real attribute is a float32 of its cell: as close as the cells allow


@dataclass(frozen=True)
class Truth:
    """The oracle's rows, with the share of the mass that each has where only some x count."""

    problem: Problem
    oracle: Oracle
    rows: list[NaiveRow]
    masses: list[Fraction]
    kept: Fraction = Fraction(1)
    keeps: tuple[Keep, ...] = ()

    def mass(self, holds: Any = lambda row: True) -> Fraction:
        return sum((m for row, m in zip(self.rows, self.masses) if holds(row)), ZERO)

    def unfair(self, holds: Any = lambda row: True) -> Fraction:
        return self.mass(lambda row: row.counterexample and holds(row))

    @property
    def confident(self) -> Fraction:
        return self.mass(lambda row: row.confident)

    def where(self, keeps: list[Keep]) -> Truth | None:
        """The same where only x that satisfy the conditions count; None if none has mass."""
        every = [*self.keeps, *keeps]
        kept = [naive_kept_mass(self.problem.space, row, every) for row in self.rows]
        total = sum(kept, ZERO)
        if not total:
            return None
        rows = [_moved(row, every) if mass else row for row, mass in zip(self.rows, kept)]
        return replace(self, rows=rows, masses=[m / total for m in kept], kept=total, keeps=tuple(every))


def _moved(row: NaiveRow, keeps: list[Keep]) -> NaiveRow:
    """The row with an x that satisfies the conditions: what is said of it holds in all of its pieces, rules may not."""
    x = dict(row.x)
    for name, piece in row.pieces.items():
        if piece.is_interval:
            mine = [keep for keep in keeps if keep.name == name]
            x[name] = (max([piece.low, *(k.low for k in mine)]) + min([piece.high, *(k.high for k in mine)])) / 2
    return replace(row, x=x)


def truth_of(problem: Problem) -> Truth:
    oracle = Oracle(*problem) if problem.ensemble.is_binary else ClassOracle(*problem)
    rows = [oracle.row(oracle.representative(pieces), pieces) for pieces in oracle.products_of_pieces()]
    rows = [row for row in rows if row.mass]
    return Truth(problem, oracle, rows, [row.mass for row in rows])


def readable(truth: Truth, name: str) -> bool:
    """Whether floats tell the pieces of the attribute apart; some are narrower than the last digit, or no float at all."""
    attribute = truth.problem.space[name]
    if attribute.kind != "real":
        return True
    if attribute.low == attribute.high:
        return Fraction(float32(float(attribute.low))) == attribute.low
    pieces = [piece for piece in truth.oracle.pieces(attribute) if piece.is_interval]
    return all(Fraction(repr(float(p.low))) < p.value < Fraction(repr(float(p.high))) for p in pieces)


@dataclass(frozen=True)
class Cast:
    """How a problem is asked: the engine and its limits, and the seconds for every further search (None: all it takes)."""

    engine: str
    limits: dict[str, Any]
    seconds: float | None

    @classmethod
    def drawn(cls, rng: random.Random) -> Cast:
        options: dict[str, Any] = rng.choice([{}, {"finish_limit": 5, "call_nodes": 1, "batch": 1}])
        seconds = rng.choice([None, None, 1e-9])
        kind = rng.choice(["box", "box", "nodes", "nodes", "sample", "exhaustive", "auto"])
        if kind == "nodes":
            return cls("box", {"node_limit": rng.randint(1, 12), "options": options}, seconds)
        if kind == "sample":
            return cls("sample", {"options": {"points": 400, "seed": rng.randint(0, 99)}}, seconds)
        return cls(kind, {"options": options if kind != "exhaustive" else {}}, seconds)


def check(seed: int | str, **more: Any) -> None:
    """Everything about one random problem."""
    rng = random.Random(f"net {seed}")
    many = rng.random() < 0.3 and not more
    problem = random_class_problem(rng.getrandbits(32), **SMALL) if many else random_problem(rng, **SMALL, **more)
    truth, cast = truth_of(problem), Cast.drawn(rng)
    result = quantify(*problem, engine=cast.engine, workers=1, **cast.limits)
    check_all(result, truth, cast, rng)
    check_rows(truth, rng)
    part, of_part = check_restriction(result, truth, cast, rng)
    if part is not None and of_part is not None:
        check_all(part, of_part, cast, rng)
        inner, of_inner = check_restriction(part, of_part, cast, rng)
        if inner is not None and of_inner is not None:
            check_measure(inner, of_inner)
            for name in filter(lambda name: readable(truth, name), problem.space.names):
                check_profile(inner, of_inner, name, cast)


def check_all(result: Quantification, truth: Truth, cast: Cast, rng: random.Random) -> None:
    check_measure(result, truth)
    for name in filter(lambda name: readable(truth, name), truth.problem.space.names):
        check_profile(result, truth, name, cast)
    if truth.problem.ensemble.is_binary and all(readable(truth, name) for name in truth.problem.property.sensitive):
        check_pairs(result, truth, cast)
    if all(readable(truth, name) for name in truth.problem.space.names):
        check_regions(result, truth, cast, rng)
        check_sample(result, truth, rng)  # a piece that is narrower than a digit may hold no float


def between(lower: float, true: Fraction, upper: float) -> None:
    assert Fraction(lower) <= true <= Fraction(upper)


# --- the measure ------------------------------------------------------------------------------------------------------


def check_measure(result: Quantification, truth: Truth) -> None:
    said = json.loads(json.dumps(result.to_json()))
    unfair, confident = truth.unfair(), truth.confident
    between(said["mass"]["counterexample"][0], unfair, said["mass"]["counterexample"][1])
    between(said["mass"]["confident"][0], confident, said["mass"]["confident"][1])
    assert said["remarks"] == list(result.remarks)
    if result.converged:
        assert result.undefined == (confident == 0)
        assert said["mass"]["counterexample"][1] - said["mass"]["counterexample"][0] < TOLERANCE
    if confident == 0:
        assert said["measure"]["value"] is None
        return
    assert not result.undefined
    measure = 1 - unfair / confident
    between(said["measure"]["lower"], measure, said["measure"]["upper"])
    if said["measure"]["value"] is not None:
        assert said["measure"]["value"] == pytest.approx(float(measure), abs=1e-6)
        between(said["measure"]["lower"], Fraction(said["measure"]["value"]), said["measure"]["upper"])
    if said["measure"]["exact"] is not None:
        assert Fraction(said["measure"]["exact"]) == measure
    if said["statistical"] is not None:
        between(said["statistical"]["lower"], measure, said["statistical"]["upper"])
    prop = truth.problem.property
    if prop.kappa * max(len(truth.problem.ensemble.base), 2) <= 1 and prop.tie == "library":  # by definition
        assert said["mass"]["confident"] == [1.0, 1.0]


# --- what the text of a table means -----------------------------------------------------------------------------------


def in_words(attribute: Attribute, text: str, value: Any) -> bool:
    """Whether a cell's text (`3 to 5 or missing`, `v0 or v2`) means the value."""
    for word in text.split(" or "):
        if word == "missing":
            if value is MISSING:
                return True
        elif value is MISSING:
            continue
        elif attribute.kind in ("real", "integer"):
            low, _, high = word.partition(" to ")
            if Fraction(low) <= value <= Fraction(high or low):
                return True
            if attribute.kind == "real" and attribute.low == attribute.high:
                return True
        elif str(value) == word:
            return True
    return False


class _Missing:
    """The missing value in a rule: equal to itself, and in no order with anything."""

    def __lt__(self, other: object) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__


def rule_holds(rule: str, x: Point) -> bool:
    """Whether the rule of a region means x. A rule is what Python makes of it."""
    if rule == "everywhere":
        return True
    missing = _Missing()
    names = {name: missing if value is MISSING else value for name, value in x.items()}
    return bool(eval(rule, {"__builtins__": {}}, {**names, "missing": missing}))


# --- profiles ---------------------------------------------------------------------------------------------------------


def check_profile(result: Quantification, truth: Truth, name: str, cast: Cast) -> None:
    attribute, total = truth.problem.space[name], truth.unfair()
    table = result.profile(name, time_limit=cast.seconds)
    assert list(table.columns) == [
        "value", "mass", "lower", "upper", "share_lower", "share_upper", "density_lower", "density_upper",
    ]  # fmt: skip
    masses = unfair = ZERO
    for row in table.to_dict("records"):

        def mine(r: NaiveRow, row: Any = row) -> bool:
            return in_words(attribute, row["value"], r.x[name])

        mass, found = truth.mass(mine), truth.unfair(mine)
        masses, unfair = masses + mass, unfair + found
        assert row["mass"] == pytest.approx(float(mass), abs=TOLERANCE)
        between(row["lower"], found, row["upper"])
        if total:
            between(row["share_lower"], found / total, row["share_upper"])
        if mass > TOLERANCE:
            between(row["density_lower"], found / mass, row["density_upper"])
            assert 0 <= row["density_lower"] <= row["density_upper"] <= 1
        elif not row[
            "mass"
        ]:  # a text has fewer digits than an end: it may lose a piece that is narrower than they tell
            assert math.isnan(row["density_lower"])
        if table.attrs["converged"]:
            assert row["upper"] - row["lower"] < TOLERANCE
    assert masses == 1  # every x is in one row
    assert unfair == total
    if cast.seconds is None:
        assert table.attrs["converged"]


# --- pairs ------------------------------------------------------------------------------------------------------------


def in_cell(truth: Truth, attribute: Attribute, text: str, value: Any) -> bool:
    """As `in_words`, for an x': whether the end of an interval belongs to it, the tests say."""
    if attribute.kind != "real" or value is MISSING or text == "missing" or attribute.low == attribute.high:
        return in_words(attribute, text, value)
    low, _, high = text.partition(" to ")
    ends = Fraction(low), Fraction(high or low)
    if not high or ends[0] == ends[1]:
        return bool(float(value) == float(ends[0]))
    if float(value) not in (float(ends[0]), float(ends[1])):
        return ends[0] < value < ends[1]
    model = getattr(truth.oracle.model, "parts", [truth.oracle.model])[0]
    signature = naive_signature(model, attribute, value)
    return signature == naive_signature(model, attribute, (ends[0] + ends[1]) / 2)


def check_pairs(result: Quantification, truth: Truth, cast: Cast) -> None:
    names = [name for name in truth.problem.space.names if name in truth.problem.property.sensitive]
    if not names:
        with pytest.raises(PropertyError, match="no sensitive"):
            result.pairs()
        return
    attributes = [truth.problem.space[name] for name in names]
    order = [truth.problem.property.sensitive.index(name) for name in names]
    table = result.pairs(time_limit=cast.seconds)
    upper = table.attrs["upper"]

    def holds(text: str, values: Any) -> bool:
        return all(in_cell(truth, a, word, v) for a, word, v in zip(attributes, text.split(", "), values))

    for i, one in enumerate(table.index):
        mine = [
            (row, mass)
            for row, mass in zip(truth.rows, truth.masses)
            if row.counterexample and holds(one, [row.x[name] for name in names])
        ]
        for j, two in enumerate(table.columns):
            expected = sum(
                (mass for row, mass in mine if any(holds(two, [w[k] for k in order]) for w in row.witness_values)), ZERO
            )
            between(table.iloc[i, j], expected, upper[i][j])
            if table.attrs["converged"]:
                assert upper[i][j] - table.iloc[i, j] < TOLERANCE
    if cast.seconds is None:
        assert table.attrs["converged"]


# --- regions and flips ------------------------------------------------------------------------------------------------


def check_regions(result: Quantification, truth: Truth, cast: Cast, rng: random.Random) -> None:
    form: dict[str, Any] = rng.choice([{}, {"merge": False}, {"pure": True}])
    table = result.regions(top=None, time_limit=cast.seconds, **form)
    total = truth.unfair()
    between(table.attrs["counterexample_mass"], total, table.attrs["counterexample_upper"])
    assert table.attrs["elsewhere"] == 0
    assert not result.converged or table.attrs["complete"]
    if table.attrs["complete"]:
        assert table["mass"].sum() == pytest.approx(float(total), abs=TOLERANCE)
        assert table.attrs["counterexample_upper"] - table.attrs["counterexample_mass"] < TOLERANCE
    seen: set[int] = set()
    for row in table.to_dict("records"):
        inside = [i for i, r in enumerate(truth.rows) if truth.masses[i] and rule_holds(row["rule"], r.x)]
        assert not seen.intersection(inside)  # disjoint
        seen.update(inside)
        mass = sum((truth.masses[i] for i in inside), ZERO)
        found = sum((truth.masses[i] for i in inside if truth.rows[i].counterexample), ZERO)
        assert 0 <= row["mass"] <= float(found) + 1e-15
        assert row["mass"] == pytest.approx(float(found), abs=TOLERANCE)
        assert row["density"] == pytest.approx(float(found / mass), abs=1e-6)
        assert row["share"] <= float(found / total) + 1e-15
        check_flip(row["flip"], [truth.rows[i] for i in inside], [truth.masses[i] for i in inside], truth, table.attrs)


def check_flip(text: str, rows: list[NaiveRow], masses: list[Fraction], truth: Truth, attrs: dict[str, Any]) -> None:
    """`2: 0; 3 or 4: 1 in 50%`, `0 -> 1 25%, 1 -> 0 75%`, `0 -> 1`, or for several classes `0 -> 2, 1 -> 2`."""
    unfair = [(row, mass) for row, mass in zip(rows, masses) if row.counterexample]
    total = sum((mass for _, mass in unfair), ZERO)
    if not truth.problem.ensemble.is_binary:
        classes = {way.split(" -> ")[0] for way in text.split(", ")}
        assert classes == {str(row.class_) for row, _ in unfair}
        return
    if "->" in text:
        said = {way[:6]: way[7:] for way in text.split(", ")}
        for way, own in (("0 -> 1", 0), ("1 -> 0", 1)):
            share = sum((mass for row, mass in unfair if row.class_ == own), ZERO) / total
            words = said.get(way)
            assert is_share("0%" if words is None else words or "100%", share, attrs["flips_complete"])
        return
    # the text does not name the attribute: of those that the model tells apart, it is true of one
    tested = [a for a in truth.oracle.sensitive if is_told_apart(truth, a)]
    assert any(says_who_gets_what(text, attribute, unfair, attrs["flips_complete"]) for attribute in tested)


def says_who_gets_what(text: str, attribute: Attribute, unfair: list[Any], complete: bool) -> bool:
    for words in text.split("; "):
        values, _, shown = words.rpartition(": ")
        try:
            mine = [(row, mass) for row, mass in unfair if in_words(attribute, values, row.x[attribute.name])]
        except ValueError:  # the values of another attribute
            return False
        whole = sum((mass for _, mass in mine), ZERO)
        share = sum((mass for row, mass in mine if row.class_ == 1), ZERO) / whole if whole else ZERO
        percent = {"1": "100%", "0": "0%"}.get(shown, shown.removeprefix("1 in "))
        if whole and not is_share(percent, share, complete):
            return False
    return True


def is_told_apart(truth: Truth, attribute: Attribute) -> bool:
    """Whether the model tests the attribute, or has thresholds for it, in a way that two of its values differ."""
    values = [value for _, value in truth.oracle.anywhere(attribute)]
    rule = truth.problem.ensemble.decision
    if rule is not None and rule.attribute == attribute.name and len({tau for _, tau in rule.thresholds}) > 1:
        return True
    return len({tuple(naive_signature(truth.oracle.model, attribute, value)) for value in values}) > 1


def is_share(text: str, share: Fraction, complete: bool) -> bool:
    """`25%` is rounded, `20% to 60%` are certain bounds, of a search that a limit has ended."""
    low, _, high = (end.strip().rstrip("%") for end in text.partition(" to "))
    if high:
        return not complete and int(low) - 1e-6 <= 100 * share <= int(high) + 1e-6
    return abs(100 * share - int(low)) <= Fraction(1, 2) + Fraction(1, 10**4)


# --- samples ----------------------------------------------------------------------------------------------------------


def check_sample(result: Quantification, truth: Truth, rng: random.Random) -> None:
    drawn, refusal = None, ""
    try:
        drawn = result.sample(6, random_state=rng.getrandbits(16), replay=False, workers=1)
    except EngineError as error:
        refusal = str(error)
    if drawn is None:
        assert "no counterexample was found" in refusal
        assert "the model has none" not in refusal or truth.unfair() == 0
        assert not result.converged or truth.unfair() == 0
        return
    assert truth.unfair() > 0
    assert 0 <= drawn.share <= 1
    for one, two in zip(drawn.x.to_dict("records"), drawn.witness.to_dict("records")):
        candidates = [(x, other) for x in read_back(truth, one) for other in read_back(truth, two)]
        assert any(naive_is_pair(truth.oracle, x, other, FLOAT_SLACK) for x, other in candidates)
        inside = [x for x, _ in candidates if all(keep.holds(x[keep.name]) for keep in truth.keeps)]
        assert inside
        assert any(True for x in inside for _ in truth.oracle.witnesses(x))


def read_back(truth: Truth, record: dict[str, Any]) -> list[Point]:
    """The points that a row of the model's columns means: several, where values share their codes."""
    points: list[Point] = [{}]
    for attribute in truth.problem.space.attributes:
        written = [record[column] for column in attribute.columns]
        if all(v is None or (isinstance(v, float) and math.isnan(v)) for v in written):
            found: list[Any] = [MISSING]
        elif attribute.kind == "real":
            found = [Fraction(written[0])]
        elif attribute.kind == "integer":
            found = [int(written[0])]
        elif attribute.codes is None:
            found = [v for v in attribute.values if v == written[0]]
        else:
            found = [v for v, code in zip(attribute.values, attribute.codes) if list(code) == written]
        points = [{**point, attribute.name: value} for point in points for value in found]
    return points


# --- rows -------------------------------------------------------------------------------------------------------------


def check_rows(truth: Truth, rng: random.Random) -> None:
    """Given rows, here some of the oracle's own as floats that every library reads alike."""
    if not truth.problem.ensemble.is_binary:
        return
    space = truth.problem.space
    points = [as_floats(space, row.x) for row in rng.sample(truth.rows, min(len(truth.rows), 12))]
    points = [x for x in points if x is not None]
    if not points:
        return
    columns = {a.name: pd.Series([shown(x[a.name]) for x in points], dtype=object) for a in space.attributes}
    table = boxqte.check(*truth.problem, pd.DataFrame(columns), workers=1).table
    for x, verdict in zip(points, table["verdict"]):
        row = naive_row_at(*truth.problem, x)
        assert verdict == ("unfair" if row.counterexample else "fair" if row.confident else "not confident")


def shown(value: Any) -> Any:
    return float(value) if isinstance(value, Fraction) else value


def as_floats(space: Space, x: Point) -> Point | None:
    rounded = dict(x)
    for attribute in space.attributes:
        if attribute.kind == "real" and x[attribute.name] is not MISSING:
            rounded[attribute.name] = Fraction(float32(float(x[attribute.name])))
            if not attribute.low <= rounded[attribute.name] <= attribute.high:
                return None
    return rounded


# --- restrictions -----------------------------------------------------------------------------------------------------


def random_condition(rng: random.Random, space: Space) -> tuple[str, list[Keep]]:
    """A condition in text, and what it means."""
    texts, keeps = [], []
    for attribute in rng.sample(list(space.attributes), rng.randint(1, min(2, len(space.attributes)))):
        name = attribute.name
        if attribute.missing is not None and rng.random() < 0.2:
            texts.append(f"{name} == missing")
            nothing = (attribute.high + 1, attribute.low - 1) if attribute.kind == "real" else (None, None)
            keeps.append(Keep(name, (), *nothing, missing=True))
        elif attribute.kind == "integer":
            values = range(int(attribute.low), int(attribute.high) + 1)
            limit = rng.choice(values)
            if rng.random() < 0.5:
                texts.append(f"{name} >= {limit}")
                keeps.append(Keep(name, tuple(v for v in values if v >= limit)))
            else:
                texts.append(f"not {name} > {limit}")
                keeps.append(Keep(name, tuple(v for v in values if v <= limit), missing=True))
        elif attribute.kind == "real":
            if attribute.low == attribute.high:
                continue
            text = f"{float(attribute.low + attribute.range * Fraction(rng.randint(1, 9), 10)):.6g}"
            limit = Fraction(text)
            if not attribute.low < limit < attribute.high:
                continue
            if rng.random() < 0.5:
                texts.append(f"{name} > {text}")
                keeps.append(Keep(name, low=limit, high=attribute.high))
            else:
                texts.append(f"not {name} >= {text}")
                keeps.append(Keep(name, low=attribute.low, high=limit, missing=True))
        else:
            some = [v for v in attribute.values if rng.random() < 0.6] or [attribute.values[0]]
            texts.append(f"{name} in {some!r}")
            keeps.append(Keep(name, tuple(some)))
    return " and ".join(texts), keeps


def check_restriction(
    result: Quantification, truth: Truth, cast: Cast, rng: random.Random
) -> tuple[Quantification | None, Truth | None]:
    condition, keeps = random_condition(rng, truth.problem.space)
    if not keeps:
        return None, None
    kept = truth.where(keeps)
    if kept is None:
        with pytest.raises(SpaceError, match="positive mass"):
            result.restrict(condition)
        return None, None
    part = result.restrict(condition, time_limit=cast.seconds)
    assert part.details["share_of_space"] == pytest.approx(float(kept.kept))
    if part.count is not None:
        assert part.count == sum(all(k.holds(row.x[k.name]) for k in kept.keeps) for row in every_row(truth))
    return part, kept


def every_row(truth: Truth) -> list[NaiveRow]:
    """Those of mass 0, too."""
    return [
        truth.oracle.row(truth.oracle.representative(pieces), pieces) for pieces in truth.oracle.products_of_pieces()
    ]
