"""Hot spots: the few short rules that hold most of the counterexamples, each with numbers that are proved."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boxqte.answers.allowed import allowed_mass, left_of
from boxqte.answers.asked import Asked, Ends
from boxqte.answers.drawn_hotspots import MOST_DRAWING, Drawn, drawn_hotspots
from boxqte.answers.hotspot_masses import Counted, blocks_of, count
from boxqte.answers.hotspot_search import Draws, Held, IntArray, Wanted, search
from boxqte.answers.profiles import same_for_all
from boxqte.answers.regions import cells_text, quoted
from boxqte.answers.result import Result, asked_of
from boxqte.answers.samples import decider_of, drawn_points
from boxqte.engines.kinds import UNFAIR
from boxqte.engines.protocol import Limits
from boxqte.engines.sample.draws import Stratum, WholeSpace, strata_draws
from boxqte.errors import EngineError, SpaceError
from boxqte.exact import down, up
from boxqte.questions.axes import Axis
from boxqte.questions.grid import AnyGrid
from boxqte.space.conditions import MISSING, Part, mass_of, parse_condition, shown_number
from boxqte.space.space import Space

if TYPE_CHECKING:
    import pandas as pd

DRAWN = 30_000  # counterexamples that the rules are chosen by
MOST_POINTS = 400_000  # of the space, decided one by one where a limit has ended the search of it
A_ROUND = 20_000
FEW = 500  # counterexamples among these points: with fewer, those that the search has found are drawn from
BUDGET = 1_000_000  # steps on a point before it is given up
LEAST = 0.01  # of all counterexamples that a rule must add
MOST_BLOCKS = 5_000  # boxes to count for the tree's inner nodes; beyond that these have no numbers
NARROW = 0.001  # where the bounds on the unfair share inside a rule are further apart, draws say more
OTHER_DRAWS = 1_000_003  # added to the seed: the draws that rules are judged by are not those that they were chosen by
TINY = 1e-300
NEAR = Fraction(1, 10**6)  # of a condition's mass: what may lie between a short number and the model's own
ZERO, ONE = Fraction(0), Fraction(1)
Rule = dict[int, Held]
COLUMNS = [
    "rule", "mass", "density_lower", "density_upper", "lift_lower", "lift_upper", "share_lower", "share_upper",
    "covered_lower", "covered_upper",
]  # fmt: skip
DRAWN_COLUMNS = [
    f"{name}_statistical_{end}" for name in ("density", "lift", "share", "covered") for end in ("lower", "upper")
]


@dataclass(frozen=True)
class Sought:
    """What hot spots are asked for: how short, how many, how hot."""

    conditions: int = 3
    top: int = 10
    values: int = 3
    lift: Fraction = Fraction(2)


def hotspots(result: Result, sought: Sought, *, time_limit: float | None = None, random_state: int = 0) -> pd.DataFrame:
    """At most `top` rules, those that add the most first, with what they hold together; the tree of them is in `attrs`."""
    asked = asked_of(result)
    key = ("hotspots", sought, time_limit, random_state)
    if key not in asked.answers:
        limits = replace(asked.limits, gap=0.0, node_limit=None)
        limits = limits if time_limit is None else replace(limits, time_limit=time_limit)
        asked.answers[key] = _HotSpots(result, asked, sought, limits).table(random_state)
    table: pd.DataFrame = asked.answers[key]
    return table.copy()


@dataclass(frozen=True)
class _HotSpots:
    result: Result
    asked: Asked
    sought: Sought
    limits: Limits
    known: dict[tuple[int, Held], Words] = field(default_factory=dict)

    def table(self, seed: int) -> pd.DataFrame:
        rules = self.found(seed)
        while True:
            nodes = tree(rules)
            inner = [node.rule for node in nodes if node.rule not in rules]
            try:
                blocks_of(self.asked.grid, [*rules, *inner], MOST_BLOCKS)
            except EngineError:
                inner = []
            counted = self.among_allowed(count(self.asked, [*rules, *inner], len(rules), self.limits))
            kept = [rule for rule, ends in zip(rules, counted.own) if self.is_hot(rule, ends)]
            if len(kept) == len(rules):
                return self.shown(rules, inner, nodes, counted, seed)
            rules = kept  # what the others add changes, so they are counted again

    # --- which rules ---

    def found(self, seed: int) -> list[Rule]:
        """The rules by drawn counterexamples."""
        points = self.points(seed)
        if not len(points):
            return []
        grid = self.asked.grid
        products = self.products()
        draws = Draws(
            np.stack([axis.base[points[:, a]] for a, axis in enumerate(grid.axes)], axis=1).astype(np.int64),
            grid.axes,
            np.array([float(weight) for weight, _ in products]),
            [np.array([[float(m) for m in own.axes[a].masses] for _, own in products]) for a in range(len(grid.axes))],
        )
        free = [a for a, axis in enumerate(grid.axes) if not same_for_all(grid, axis) and self.can_be_said(axis)]
        wanted = Wanted(self.sought.conditions, self.sought.values, float(self.least_lift), LEAST)
        return search(draws, wanted, self.sought.top, free)

    def points(self, seed: int) -> IntArray:
        """Counterexamples as refined cells: from the regions, or by deciding inputs where these are not all known."""
        asked, workers = self.asked, self.limits.workers
        owners = [asked_of(own) for _, own in asked.pieces] or [asked]
        rng = np.random.default_rng(seed)
        if all(own.regions().complete for own in owners):
            return drawn_points(asked, DRAWN, rng, workers).astype(np.int64)
        strata = [Stratum(weight, grid, WholeSpace(), ()) for weight, grid in self.products()]
        draws, decider = strata_draws(strata, seed), decider_of(asked)
        hits: list[IntArray] = []
        for _ in range(MOST_POINTS // A_ROUND):
            points = draws.round(A_ROUND)
            hits.append(points[decider.decide(points, budget=BUDGET, workers=workers).verdict == UNFAIR])
            if sum(map(len, hits)) >= DRAWN:
                break
        decided = np.concatenate(hits)
        return decided if len(decided) >= FEW else drawn_points(asked, DRAWN, rng, workers).astype(np.int64)

    def products(self) -> list[tuple[Fraction, AnyGrid]]:
        """The products that the space is a mixture of, with their weights."""
        return [(weight, asked_of(own).grid) for weight, own in self.asked.pieces] or [(ONE, self.asked.grid)]

    def can_be_said(self, axis: Axis) -> bool:
        """Whether conditions can end where cells end: where cells count the same, none may be divided, and a single point of
        a real attribute may not be at the end of a condition."""
        if self.asked.grid.space.mass is None or axis.attribute.kind != "real":
            return True
        ends = [edge[0] for cell in axis.cells for edge in (cell.low, cell.high) if edge is not None]
        return not axis.single.any() and all(Fraction(shown_number(end)) == end for end in ends)

    @property
    def whole(self) -> Ends:
        """The mass of all counterexamples. All masses here are shares of what the space's rules leave."""
        unfair = Fraction(self.result.decided.unfair)
        least, most = allowed_mass(self.asked)
        return unfair / most, ((unfair + self.result.decided.undecided) / least if least else ONE)

    def among_allowed(self, counted: Counted) -> Counted:
        """The same numbers as shares of what the rules leave."""
        least, most = allowed_mass(self.asked)
        if least == most == 1:
            return counted
        own, new = (
            [(low / most, high / least if least else ONE) for low, high in ends] for ends in (counted.own, counted.new)
        )
        return replace(counted, own=own, new=new)

    @property
    def least_lift(self) -> Fraction:
        """The lift asked for; where so many inputs are unfair that it can hardly be, that of so many times fewer fair ones."""
        low, high = self.whole
        most = high if low == high else low
        if not most:
            return self.sought.lift
        return min(self.sought.lift, (1 - (1 - most) / self.sought.lift) / most)

    def is_hot(self, rule: Rule, ends: Ends) -> bool:
        low, _ = self.whole
        said = self.said(rule)
        return ends[1] > 0 and (not low or (ends[1] + said.off) / said.mass / low >= self.least_lift)

    # --- what is shown ---

    def said(self, rule: Rule) -> Said:
        """The rule in words, and the mass of what they say."""
        words = [self.words(a, held) for a, held in rule.items()]
        mass, off = ZERO, ZERO
        for k, (weight, product) in enumerate(self.products()):
            own = [condition.masses[k] for condition in words]
            most = math.prod((cells + between for cells, _, between in own), start=ONE)
            said = math.prod((cells + more for cells, more, _ in own), start=ONE)
            if product.forbidden:
                held_cells = {a: [c in held for c in range(product.axes[a].n_cells)] for a, held in rule.items()}
                said = math.prod((cells for cells, _, _ in own), start=ONE)
                said *= left_of(product, held_cells) if said else ONE
            mass += weight * said
            off += weight * sum((between * most / (cells + between) for cells, _, between in own if between), ZERO)
        texts = [condition.text for condition in words]
        least, most = allowed_mass(self.asked)
        if not least:
            return Said(texts, ONE, ONE, ONE)
        mass, off = mass / least, off / least + mass * (1 / least - 1 / most)
        return Said(texts, mass, off, off if self.asked.grid.forbidden else ZERO)

    def words(self, a: int, held: Held) -> Words:
        """A condition in words: with short numbers where hardly anything lies between these and the model's own."""
        key = a, held
        space = self.asked.grid.space
        for shown, near in ((_short_number, NEAR), (shown_number, NEAR), (_exact_number, ONE)):
            if key not in self.known:
                text = condition_text(space, self.asked.grid.axes[a], held, shown)
                part = parse_condition(text, space)[space.attributes[a].name]
                masses = [_masses(own.axes[a], held, part) for _, own in self.products()]
                if all(between <= (near if space.mass is None else ZERO) * cells for cells, _, between in masses):
                    self.known[key] = Words(text, masses)
        return self.known[key]

    def shown(
        self, rules: list[Rule], inner: list[Rule], nodes: Sequence[Node], counted: Counted, seed: int
    ) -> pd.DataFrame:
        import pandas as pd

        rows = [self.numbers(rule, ends) for rule, ends in zip([*rules, *inner], counted.own)]
        least, most = ZERO, ZERO
        off = ZERO
        for row, rule, (low, high) in zip(rows, rules, counted.new):
            least, most, off = least + low, most + high, off + self.said(rule).off
            row |= _named("covered", *self.share((max(least - off, ZERO), most + off)))
        drawn = None
        if any(row["density_upper"] - row["density_lower"] > NARROW for row in rows):
            drawn = self.add_draws(rows, rules, inner, seed + OTHER_DRAWS)
        table = pd.DataFrame(rows[: len(rules)], columns=COLUMNS if drawn is None else [*COLUMNS, *DRAWN_COLUMNS])
        known = {_key(rule): row for rule, row in zip([*rules, *inner], rows)}
        low, high = self.whole
        table.attrs |= {
            "counterexample_lower": down(low),
            "counterexample_upper": up(high),
            **({} if drawn is None else _named("counterexample_statistical", *drawn.whole)),
            "lift": float(self.least_lift),
            "converged": counted.done and self.result.converged,
            "confidence": None if drawn is None else drawn.confidence,
            "draws": 0 if drawn is None else drawn.draws,
            "tree": [
                {
                    "level": len(node.rule) - 1,
                    "condition": self.said({node.axis: node.rule[node.axis]}).texts[0],
                    "hot_spot": rules.index(node.rule) + 1 if node.rule in rules else None,
                    **{k: v for k, v in known.get(_key(node.rule), {}).items() if k != "rule"},
                }
                for node in nodes
            ],
        }
        return table

    def add_draws(self, rows: list[dict[str, Any]], rules: Sequence[Rule], inner: Sequence[Rule], seed: int) -> Drawn:
        """Statistical intervals beside certain bounds that are far apart."""
        limit = self.limits.time_limit
        time = MOST_DRAWING if limit is None else min(limit, MOST_DRAWING)
        found = drawn_hotspots(self.asked, [*rules, *inner], len(rules), time, seed=seed)
        together = 0.0
        for k, (row, rule) in enumerate(zip(rows, [*rules, *inner])):
            said = self.said(rule)
            least, most = found.whole
            off = float(said.off) / max(least, TINY)  # of all counterexamples
            low, high = (
                found.density[k][0] - float(said.off / said.mass),
                found.density[k][1] + float(said.off / said.mass),
            )
            known = {
                "density": (low, high),
                "lift": (low / most, high / least if least else math.inf),
                "share": (found.share[k][0] - off, found.share[k][1] + off),
            }
            if k < len(rules):
                together += off
                known["covered"] = found.covered[k][0] - together, found.covered[k][1] + together
            for name, (one, two) in known.items():  # the certain bounds hold as well
                ends = max(one, row[f"{name}_lower"]), min(two, row[f"{name}_upper"])
                row |= _named(f"{name}_statistical", *ends)
        return found

    def numbers(self, rule: Rule, ends: Ends) -> dict[str, Any]:
        """A row of the table; every pair of numbers is certain, and rounded outward."""
        said = self.said(rule)
        low, high = max(ends[0] - said.off, ZERO), min(ends[1] + said.off, said.mass + said.mass_off, self.whole[1])
        least_mass = said.mass - said.mass_off
        density = low / (said.mass + said.mass_off), (high / least_mass if least_mass > 0 else ONE)
        least, most = self.whole
        lift = (density[0] / most if most else ZERO), (density[1] / least if least else None)
        return {
            "rule": " and ".join(said.texts),
            "mass": float(said.mass),
            "density_lower": down(density[0]),
            "density_upper": min(up(density[1]), 1.0),
            "lift_lower": down(lift[0]),
            "lift_upper": math.inf if lift[1] is None else up(lift[1]),
            **_named("share", *self.share((low, high))),
        }

    def share(self, ends: Ends) -> tuple[float, float]:
        """A mass of counterexamples as a share of all of them."""
        least, most = self.whole
        return (down(min(ends[0] / most, ONE)) if most else 0.0), (up(min(ends[1] / least, ONE)) if least else 1.0)


def _named(name: str, low: float, high: float) -> dict[str, float]:
    return {f"{name}_lower": low, f"{name}_upper": high}


def _key(rule: Rule) -> frozenset[tuple[int, Held]]:
    return frozenset(rule.items())


# --- words ------------------------------------------------------------------------------------------------------------


class Words(NamedTuple):
    """A condition in words, and for every product of the space: the mass of its cells, how much more the words have, and at
    most how much lies in just one of the two."""

    text: str
    masses: list[tuple[Fraction, Fraction, Fraction]]


@dataclass(frozen=True)
class Said:
    """A rule in words: the mass of what they say, and at most how much of it lies in no cell of the rule, or the other way
    round (a number with fewer digits than the model's threshold has)."""

    texts: list[str]
    mass: Fraction
    off: Fraction
    mass_off: Fraction = ZERO
    """At most how much the mass itself is off: where rules forbid some of it, it is that of the cells."""


def condition_text(space: Space, axis: Axis, held: Held, shown: Callable[[Fraction], str] = shown_number) -> str:
    """Some cells of an axis as a condition that `restrict` reads: labels for values, and a complement if that is shorter."""
    attribute, name = axis.attribute, quoted(axis.attribute.name)
    if attribute.is_numeric:
        return cells_text(attribute, axis.cells, sorted(held), shown=shown)
    inside, outside = (
        [word for c, cell in enumerate(axis.cells) if (c in held) == side for word in _words(space, axis, c)]
        for side in (True, False)
    )
    if len(outside) < len(inside):
        return f"{name} != {outside[0]}" if len(outside) == 1 else f"{name} not in [{', '.join(outside)}]"
    return f"{name} == {inside[0]}" if len(inside) == 1 else f"{name} in [{', '.join(inside)}]"


def _words(space: Space, axis: Axis, c: int) -> list[str]:
    """The values of a cell, by their labels where a condition reads these as meant."""
    attribute, cell = axis.attribute, axis.cells[c]
    return [_word(space, attribute.name, v) for v in cell.values] + ([MISSING] if cell.missing else [])


def _word(space: Space, name: str, value: int) -> str:
    attribute = space[name]
    label = repr(attribute.label_of(value))
    if attribute.labels is not None:
        try:
            read = parse_condition(f"{quoted(name)} == {label}", space)
        except SpaceError:
            read = {}
        if read == {name: Part(values=frozenset([value]))}:
            return label
    return repr(attribute.values[value])


def _short_number(value: Fraction) -> str:
    """As `shown_number`; of a float32 the shortest decimal that is the same float32."""
    with np.errstate(over="ignore"):
        single = np.float32(float(value))
    exact = shown_number(value)
    same = bool(np.isfinite(single)) and Fraction(float(single)) == value
    return min(str(single), exact, key=len) if same and "e" not in str(single) else exact


def _exact_number(value: Fraction) -> str:
    """As `shown_number`; a float whose shortest decimal is not itself, with all of its digits: conditions read text, too."""
    if Fraction(shown_number(value)) == value:
        return shown_number(value)
    with localcontext() as context:
        context.prec = 2000
        return repr(f"{Decimal(value.numerator) / Decimal(value.denominator):f}")


def _masses(axis: Axis, held: Held, part: Part) -> tuple[Fraction, Fraction, Fraction]:
    """The mass of cells, how much more a part in words has, and at most how much lies in just one of the two."""
    mass = sum((axis.masses[c] for c in held), ZERO)
    cells = [axis.cells[c] for c in sorted(held)]
    attribute = axis.attribute
    low, high = cells[0].low, cells[-1].high
    if low is None or high is None or attribute.low == attribute.high or not mass:
        return mass, ZERO, ZERO
    if not part.spans:
        return mass, -mass, mass
    starts, stops = zip(part.spans[0], (low[0], high[0]))
    more = mass_of(attribute, replace(part, missing=False)) - mass_of(attribute, Part(spans=((low[0], high[0]),)))
    return mass, more, mass_of(attribute, Part(spans=tuple((min(ends), max(ends)) for ends in (starts, stops))))


# --- the tree of rules ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A condition below others: the rule that they make together, and the axis that the last of them is on."""

    rule: Rule
    axis: int


def tree(rules: Sequence[Rule]) -> list[Node]:
    """The rules as a tree, each level one condition, from the root down: conditions that several rules share come first."""
    nodes: list[Node] = []
    _grow({}, list(rules), nodes)
    return nodes


def _grow(path: Rule, rules: Sequence[Mapping[int, Held]], nodes: list[Node]) -> None:
    left = list(rules)
    while left:
        rest = [{a: held for a, held in rule.items() if a not in path} for rule in left]
        every = [condition for own in rest for condition in own.items()]
        if not every:
            return
        axis, held = max(every, key=every.count)  # the first of the largest
        node = Node({**path, axis: held}, axis)
        nodes.append(node)
        inside = [rule for rule, own in zip(left, rest) if own.get(axis) == held]
        left = [rule for rule, own in zip(left, rest) if own.get(axis) != held]
        _grow(node.rule, [rule for rule in inside if len(rule) > len(node.rule)], nodes)
