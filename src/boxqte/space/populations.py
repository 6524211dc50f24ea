"""Masses that follow a table: the product of its columns' frequencies, or a mixture of products fitted to its rows.

Which question each answers is in docs/populations.md. The space keeps its domains: x' may be any input.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from boxqte.basics.budget import TimeBudget
from boxqte.basics.checks import seconds, whole
from boxqte.errors import SpaceError
from boxqte.exact import plain, shown
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers import load_model
from boxqte.space.binning import GRID, Bins, bins_of, exact_shares
from boxqte.space.components import Component
from boxqte.space.conditions import mass_of, parse_condition, restricted
from boxqte.space.dependence import Dependence, grouped, largest
from boxqte.space.frequencies import with_data_mass
from boxqte.space.mixtures import LADDER, Cells, Mixture, choose
from boxqte.space.rows import MISSING, OUTSIDE, TableRows
from boxqte.space.space import Space, read_space
from boxqte.space.tables import table_of

MAX_COMPONENTS = 1024
NOTE = "population"  # the field of the file, which a space leaves alone


@dataclass(frozen=True)
class Captured:
    """What a fitted population captures of its rows, and how it was fitted."""

    seed: int
    held_out_rows: int
    """rows that were held out to compare fits on; 0 if there were too few"""
    held_out: Mapping[int, float]
    """by number of components that was tried: the log-likelihood a row (nats) of the rows that the fit had not seen"""
    before: Dependence | None
    """the pair of attributes that depend on each other most: total variation between their joint shares in the rows and the
    product of their own, which is what a product measure misses. None if there is one attribute"""
    after: Dependence | None
    """the pair whose joint shares in the rows are farthest from the population's"""
    components: int
    """how many products the fit began with: one that no row is left in is left out"""

    @property
    def gain(self) -> float | None:
        """By how much the log-likelihood of a row (nats) is above the product's, where it was held out."""
        if self.components not in self.held_out or 1 not in self.held_out:
            return None
        return self.held_out[self.components] - self.held_out[1]

    def to_json(self) -> dict[str, Any]:
        tried = {str(k): round(value, 6) for k, value in self.held_out.items()}
        return {
            "seed": self.seed,
            "components_at_first": self.components,
            "held_out_rows": self.held_out_rows,
            "held_out_log_likelihood": tried,
            "largest_dependence": {
                name: None if pair is None else pair.to_json()
                for name, pair in (("before", self.before), ("after", self.after))
            },
        }


@dataclass(frozen=True, repr=False)
class Population:
    """A space whose masses are those of a table, and how they were taken.

    `Population.fit` makes one that knows which values occur together. It can be given wherever a space can, and so can the
    file that `save` writes.
    """

    space: Space
    rows: int
    """rows of the group"""
    notes: tuple[str, ...]
    captured: Captured | None = None
    """of a fitted one"""

    def __repr__(self) -> str:
        name, found = f"Population({self.rows:,} rows, {self.components} ", self.captured
        name += "product" if self.components == 1 else "products"
        if found is not None and found.gain is not None:
            name += f", {found.gain:+.3f} nats a row against the product"
        return f"{name})"

    @property
    def components(self) -> int:
        """How many products it is a mixture of."""
        return max(len(self.space.components), 1)

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """Those of its products."""
        return tuple(weight for weight, _ in self.space.products())

    @classmethod
    def fit(
        cls,
        frame: Any,
        space: Any,
        components: int | str = "auto",
        *,
        random_state: int = 0,
        model: Any = None,
        where: str | None = None,
        most: int = LADDER[-1],
        time_limit: float | None = None,
    ) -> Population:
        """Fit a mixture of products to the rows of a table: attributes depend on each other as they do in the rows.

        The masses are exact, above 0 for every value, and the same for the same seed.

        Parameters
        ----------
        frame
            A pandas, polars or pyarrow table with a column for each attribute (or for each model column of a one-hot group).
            Rows with a value outside the space are left out.
        space
            The space; its domains stay as they are.
        components
            How many products; "auto" doubles their number up to `most` while that raises the log-likelihood of rows that the fit
            has not seen. 1 is the product of the attributes' own frequencies, smoothed.
        random_state
            The seed.
        model
            The model that will be asked about, live or as a path: numeric attributes are then divided where it tests them.
        where
            A condition that rows must satisfy to count, such as `"age >= 60"`.
        most
            The largest number of products that "auto" tries: every question takes a search for each of them.
        time_limit
            Seconds for the fit; a note says if it was ended by that, and then it may differ from run to run.

        Examples
        --------
        >>> from boxqte.space.attributes import Attribute
        >>> space = Space([Attribute.categorical("sex", ["f", "m"]), Attribute.categorical("job", ["nurse", "smith"])])
        >>> people = {"sex": ["f", "m"] * 300, "job": ["nurse", "smith"] * 290 + ["smith", "nurse"] * 10}
        >>> found = Population.fit(people, space)
        >>> found.components, found.captured.before.distance > 0.4, found.captured.after.distance < 0.1
        (2, True, True)
        >>> sum(found.weights), found.space["sex"].value_masses()[0] == found.given("job == 'nurse'")["sex"].value_masses()[0]
        (Fraction(1, 1), False)
        """
        clock = TimeBudget(seconds(time_limit, error=SpaceError))
        space = _with_masses_to_take(space)
        number = number_of_components(components)
        seed = whole(random_state, "random_state", 0, error=SpaceError)
        whole(most, "most", error=SpaceError)
        ensemble = None if model is None else _ensemble(model)
        rows = TableRows(space, table_of(frame))
        chosen = rows.chosen(where)
        inside = chosen & np.array(
            [problem is None and not broken for problem, broken in zip(rows.problems, rows.broken)]
        )
        if not inside.any():
            why = next(why for why, keep in zip(rows.why, chosen) if keep and why)
            raise SpaceError(f"population: no row of the table lies in the space; the first one's {why}")
        bins = bins_of(space, rows, inside, ensemble)
        codes = np.stack([own.codes(_kept(rows.values[own.attribute.name], inside)) for own in bins])
        found = choose(codes, [own.even for own in bins], number, seed, clock, most)
        mixture = _without_the_empty(found.mixture, codes.shape[1])
        cells = Cells.of(codes, [own.even for own in bins])
        ordered = [len(own.edges) - 1 if own.edges else 0 for own in bins]
        grouping = grouped(cells, space.names, ordered)
        captured = Captured(
            seed,
            found.rows,
            found.held_out,
            largest(cells, grouping, None),
            largest(cells, grouping, mixture),
            found.mixture.components,
        )
        notes = _notes(rows, chosen, inside, bins)
        if found.hurried:
            notes = ("the time limit ended the fit: with more time it may have more products, or better ones", *notes)
        return cls(_mixed(space, bins, mixture), codes.shape[1], notes, captured)

    def given(self, condition: str) -> Space:
        """The space of a group: the population of those who satisfy the condition. Its x' may be any input.

        A component counts as much more in the group as its own members are in it more often. The space of a group is what
        group rates are about: P(x | sex = f) differs from P(x) by more than the sex.

        Parameters
        ----------
        condition
            Such as `"sex == 'f' and age >= 60"`.
        """
        parts = parse_condition(condition, self.space)
        kept = []
        for weight, product in self.space.products():
            share = math.prod((mass_of(product[name], part) for name, part in parts.items()), start=Fraction(1))
            if not share:
                continue  # no member of this component is in the group
            inside = product
            for name, part in parts.items():
                own = restricted(product[name], part)
                if own is None:
                    raise SpaceError(f"condition {condition!r}: leaves only the missing value of '{name}', which no space can "
                                     "say; restrict an answer instead")  # fmt: skip
                inside = inside.with_attribute(own)
            kept.append((weight * share, inside))
        total = sum((weight for weight, _ in kept), Fraction(0))
        if not total:
            raise SpaceError(f"condition {condition!r}: no input of the space satisfies it with positive mass")
        return self.space.with_components(inside.as_component(weight / total) for weight, inside in kept)

    def to_json(self) -> dict[str, Any]:
        """The space's JSON object with one more field, `population`: how it was taken, and what it captures."""
        note = {"rows": self.rows, "components": self.components, "weights": [plain(w) for w in self.weights]}
        note |= {} if self.captured is None else self.captured.to_json()
        return {NOTE: note | {"notes": list(self.notes)}} | self.space.to_json()

    def save(self, path: str | Path) -> None:
        """Write it as JSON; the file is that of a space, too."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Population:
        """Read what `save` wrote."""
        space = Space.load(path)
        if not is_population(path):
            raise SpaceError(f"{path}: {NOTE}: missing; this is a space, no population that was saved")
        node = json.loads(Path(path).read_text(encoding="utf-8"))
        try:
            return cls._from_note(space, node[NOTE])
        except (TypeError, KeyError, ValueError, AttributeError):
            raise SpaceError(
                f"{path}: {NOTE}: expected what Population.save writes, found {shown(node[NOTE])}"
            ) from None

    @classmethod
    def _from_note(cls, space: Space, note: Any) -> Population:
        captured = None
        if "seed" in note:
            pairs = (note["largest_dependence"][name] for name in ("before", "after"))
            before, after = (None if pair is None else Dependence.from_json(pair) for pair in pairs)
            tried = {int(k): float(v) for k, v in note["held_out_log_likelihood"].items()}
            first = int(note["components_at_first"])
            captured = Captured(int(note["seed"]), int(note["held_out_rows"]), tried, before, after, first)
        return cls(space, int(note["rows"]), tuple(map(str, note["notes"])), captured)


def is_population(path: str | Path) -> bool:
    """Whether a space's file has a population in it that `Population.save` wrote."""
    return NOTE in json.loads(Path(path).read_text(encoding="utf-8"))


def population(
    space: Space,
    frame: Any,
    *,
    where: str | None = None,
    components: int | str = 1,
    random_state: int = 0,
    model: Any = None,
) -> Population:
    """The space with the masses of a table: each attribute's own frequencies among the rows, or those of a group.

    Parameters
    ----------
    space
        The space; its domains stay as they are.
    frame
        A pandas, polars or pyarrow table with a column for each attribute (or for each model column of a one-hot group).
    where
        A condition that rows must satisfy to count, such as `"sex == 'f' and age >= 60"`.
    components
        1 is the product of the frequencies as they are: a value that no row has counts for nothing. More, or "auto", is a
        mixture that knows which values occur together: see `Population.fit`, also for `random_state` and `model`.

    Examples
    --------
    >>> from boxqte.space.attributes import Attribute
    >>> space = Space([Attribute.categorical("sex", ["f", "m"]), Attribute.integer("age", 18, 20)])
    >>> people = {"sex": ["f", "m", "m", "m"], "age": [18, 19, 19, 20]}
    >>> population(space, people).space["sex"].value_masses()
    [Fraction(1, 4), Fraction(3, 4)]
    >>> population(space, people, where="sex == 'm'").rows
    3
    """
    if number_of_components(components) != 1:
        return Population.fit(frame, space, components, random_state=random_state, model=model, where=where)
    space = _with_masses_to_take(space)
    rows = TableRows(space, table_of(frame))
    chosen = rows.chosen(where)
    notes = []
    broken = np.array([bool(words) for words in rows.broken], bool) & chosen
    if broken.any():
        notes.append(f"rows that a rule forbids, left out: {int(broken.sum())}")
        chosen &= ~broken
        if not chosen.any():
            raise SpaceError("population: the rules forbid every row of the table")
    own = []
    for attribute in space:
        counts = Counter(_kept(rows.values[attribute.name], chosen))
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
        own.append(changed)
    return Population(space.with_attributes(own), int(np.count_nonzero(chosen)), tuple(notes))


def _with_masses_to_take(space: Any) -> Space:
    """The space, whose masses are to be those of a table."""
    space = read_space(space)
    if space.mass is not None:
        raise SpaceError("population: the space counts cells; leave out its mass 'cells', or the population")
    return Space(space.attributes, label=space.label, sensitive=space.sensitive, rules=space.rules)


def number_of_components(components: object) -> int | None:
    """How many components; None is as many as pay off."""
    if components == "auto":
        return None
    if isinstance(components, str):
        if not components.strip().isdecimal():
            raise SpaceError(f"components: expected auto or a whole number, found {shown(components)}")
        components = int(components)
    return whole(components, "components", 1, MAX_COMPONENTS, SpaceError)


def _ensemble(model: Any) -> TreeEnsemble:
    return model if isinstance(model, TreeEnsemble) else load_model(model).ensemble


def _kept(values: list[Any], chosen: Any) -> list[Any]:
    return [value for value, keep in zip(values, chosen) if keep]


def _without_the_empty(mixture: Mixture, rows: int) -> Mixture:
    """Without components that less than a row is in."""
    full = mixture.weights * rows >= min(1.0, float(mixture.weights.max() * rows))
    return Mixture(mixture.weights[full] / mixture.weights[full].sum(), [own[full] for own in mixture.masses])


def _mixed(space: Space, bins: list[Bins], mixture: Mixture) -> Space:
    """The space with the mixture's masses, made exact."""
    weights = exact_shares(mixture.weights)
    return space.with_components(
        Component(Fraction(weight, GRID), tuple(b.attribute_with(m[k]) for b, m in zip(bins, mixture.masses)))
        for k, weight in enumerate(weights)
    )


def _notes(rows: TableRows, chosen: Any, inside: Any, bins: list[Bins]) -> tuple[str, ...]:
    notes = []
    left_out = int(np.count_nonzero(chosen & ~inside))
    if left_out:
        why = next(why for why, keep in zip(rows.why, chosen) if keep and why)
        notes.append(f"rows outside the space, left out: {left_out} (the first one's {why})")
    for own in bins:
        if own.attribute.is_numeric:
            notes.append(f"{own.attribute.name}: {len(own.edges) - 1} bins")
    return tuple(notes)
