"""The input space: a product of attribute domains with a product measure (semantics.md, 'Input space')."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from boxqte.basics.checks import as_names, by_name, did_you_mean, file_path, text
from boxqte.errors import SpaceError
from boxqte.exact import MAX_LENGTH, Number, fraction, shown
from boxqte.space.attributes import Attribute, DecimalText, Histogram, list_field, read_formula
from boxqte.space.components import Component, checked_components, marginals, read_component
from boxqte.space.distributions import Distribution
from boxqte.space.rules import Rule, allowed_count, emptying, read_rules, share_of_allowed

if TYPE_CHECKING:
    import pandas as pd

    from boxqte.space.inference import Decision


@dataclass(frozen=True)
class Space:
    """The input space X: the product of its attributes.

    Examples
    --------
    >>> space = Space([Attribute.real("income", 0, 1000), Attribute.integer("age", 0, 100)])
    >>> space["age"].size
    101
    >>> Space.from_json(space.to_json()) == space
    True
    """

    attributes: tuple[Attribute, ...]
    label: str | None = None
    """The name of the target column in the data that the space was taken from."""
    sensitive: tuple[str, ...] = ()
    """Attributes the author of the space considers sensitive: a suggestion, no property."""
    mass: Literal["cells"] | None = None
    """None: the product of the attributes' masses. "cells": every cell that a model's tests cut the space into counts the
    same, for comparison with counters that know no domain."""
    components: tuple[Component, ...] = ()
    """A mixture of products, the population (`with_components`); the attributes have the mixture's marginals then. Empty: the
    product of the attributes' masses."""
    rules: tuple[Rule, ...] = ()
    """What no input may be (`with_rules`): forbidden inputs are neither x nor x'."""

    def __init__(
        self,
        attributes: Iterable[Attribute],
        *,
        label: str | None = None,
        sensitive: Iterable[str] = (),
        mass: Literal["cells"] | None = None,
        components: Iterable[Component] = (),
        rules: Iterable[str | Rule] = (),
    ):
        given = tuple(attributes) if isinstance(attributes, Iterable) else (attributes,)
        for attribute in given:
            if not isinstance(attribute, Attribute):
                raise SpaceError(f"attributes: expected Attribute.real(...) and the like, found {shown(attribute)}")
        if label is not None:
            text(label, "label", SpaceError, "the name of a column")
        if mass not in (None, "cells"):
            raise SpaceError(f"mass: expected 'cells', or nothing for the attributes' own masses, found {shown(mass)}")
        if not isinstance(components, Iterable):
            raise SpaceError(f"components: expected a list of Component, found {shown(components)}")
        mixture = tuple(components)
        if mixture:
            if mass is not None:
                raise SpaceError("components: the space counts cells; leave out its mass 'cells', or the components")
            mixture = checked_components(given, mixture)
            given = marginals(mixture) if len(mixture) > 1 else mixture[0].attributes
        # A mixture of one product is that product.
        object.__setattr__(self, "components", mixture if len(mixture) > 1 else ())
        object.__setattr__(self, "mass", mass)
        object.__setattr__(self, "attributes", given)
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "sensitive", as_names(sensitive, "sensitive", SpaceError))
        if not self.attributes:
            raise SpaceError("the space has no attributes")
        for what, names in (
            ("attribute", [a.name for a in self.attributes]),
            ("column", [c for a in self.attributes for c in a.columns]),
        ):
            for name in names:
                if names.count(name) > 1:
                    raise SpaceError(f"{what} '{name}' occurs twice in the space; names must be distinct")
        for name in self.sensitive:
            if name not in self.names:
                raise SpaceError(f"sensitive: {self._no_attribute(name)}")
        object.__setattr__(self, "rules", read_rules(rules, self.attributes))
        if self.rules and mass is not None:
            raise SpaceError("rules: cut cells further, so that they cannot count the same; leave them out, or the space's "
                             "mass 'cells'")  # fmt: skip
        if self.rules and not self.allowed:
            raise SpaceError(f"rules: no input is left with positive mass; {emptying(self.rules, self._products())}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.attributes)

    @property
    def columns(self) -> tuple[str, ...]:
        """All model columns, in the order of the attributes."""
        return tuple(c for a in self.attributes for c in a.columns)

    def __getitem__(self, name: str) -> Attribute:
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise SpaceError(self._no_attribute(name))

    def _no_attribute(self, name: object) -> str:
        return f"'{name}' is not an attribute{did_you_mean(name, self.names)}; attributes are {', '.join(self.names)}"

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def count(self) -> int | None:
        """How many inputs there are that no rule forbids; None if an attribute is real."""
        return allowed_count(self.attributes, self.rules)

    @cached_property
    def allowed(self) -> Fraction:
        """The mass of the inputs that no rule forbids, exactly.

        Examples
        --------
        >>> space = Space([Attribute.integer("age", 0, 99), Attribute.integer("years in job", 0, 99)])
        >>> space.with_rules("`years in job` <= age").allowed
        Fraction(101, 200)
        """
        return sum((w * share_of_allowed(own, self.rules) for w, own in self._products()), Fraction(0))

    def _products(self) -> list[tuple[Fraction, tuple[Attribute, ...]]]:
        return [(c.weight, c.attributes) for c in self.components] or [(Fraction(1), self.attributes)]

    def _changed(self, **changes: Any) -> Space:
        """The same space but for some of its fields."""
        kept = {name: getattr(self, name) for name in ("label", "sensitive", "mass", "components", "rules")}
        return Space(changes.pop("attributes", self.attributes), **kept | changes)

    def with_rules(self, rules: str | Iterable[str | Rule]) -> Space:
        """The same space with more rules: what they forbid is neither x nor x'.

        A rule is a formula over attributes that every input must keep. It may use `and`, `or` and `not`; comparisons are as
        in conditions, and two integer attributes may be compared as well. A missing value breaks no rule, unless the
        rule says so (`age != missing`).

        Examples
        --------
        >>> space = Space([Attribute.integer("age", 0, 99), Attribute.categorical("school", ["none", "PhD"])])
        >>> space.with_rules(["not (age < 20 and school == PhD)", "age >= 10"]).count()
        170
        """
        return self._changed(rules=(*self.rules, *([rules] if isinstance(rules, (str, Rule)) else rules)))

    def with_attribute(self, attribute: Attribute) -> Space:
        """The same space with the attribute of that name replaced."""
        if not isinstance(attribute, Attribute):
            raise SpaceError(f"attribute: expected Attribute.real(...) and the like, found {shown(attribute)}")
        _ = self[attribute.name]
        return self.with_attributes([attribute if a.name == attribute.name else a for a in self.attributes])

    def with_attributes(self, attributes: Iterable[Attribute]) -> Space:
        """The same space with all its attributes replaced, by others of the same names in the same order."""
        given = tuple(attributes)
        if self.components:
            changed = next((a.name for a, b in zip(given, self.attributes) if a != b), self.names[0])
            raise SpaceError(f"attribute '{changed}': the space is a mixture of {len(self.components)} products; "
                             "change it in each of them, or use the space without components")  # fmt: skip
        return self._changed(attributes=given)

    def marked(self, sensitive: Iterable[str]) -> Space:
        """The same space with these attributes marked as sensitive too, as far as it has them."""
        wanted = (*self.sensitive, *(name for name in sensitive if name in self.names))
        space = copy.copy(self)
        object.__setattr__(space, "sensitive", tuple(dict.fromkeys(wanted)))
        return space

    def with_mass(
        self, masses: Literal["cells"] | Mapping[str, Sequence[Number] | Histogram | Distribution | Mapping[str, Any]]
    ) -> Space:
        """The same domains with other masses.

        For each attribute, a Histogram, a Distribution or their JSON form for numeric ones, weights for finite ones. Or
        "cells" for all of them: every cell that the model's tests cut the space into counts the same.

        Examples
        --------
        >>> space = Space([Attribute.real("income", 0, 1000)])
        >>> float(space.with_mass({"income": {"gaussian": [500, 100]}})["income"].mass_below(500))
        0.5
        """
        if isinstance(masses, str):
            return self._changed(mass=masses)
        own = {attribute.name: attribute for attribute in self}
        for name, mass in by_name(masses, "masses", SpaceError).items():
            attribute = self[name]
            if isinstance(mass, Mapping):
                mass = read_formula(mass, f"attribute '{name}', mass")
            if isinstance(mass, Histogram):
                changed = replace(attribute, histogram=mass, distribution=None)
            elif isinstance(mass, Distribution):
                changed = replace(attribute, histogram=None, distribution=mass)
            else:
                if not isinstance(mass, Iterable):
                    raise SpaceError(f"attribute '{name}', mass: expected weights, a Histogram or a Distribution, found "
                                     f"{shown(mass)}")  # fmt: skip
                exact = tuple(fraction(w, SpaceError, f"attribute '{name}', mass") for w in mass)
                changed = replace(attribute, weights=exact)
            own[name] = changed
        return self.with_attributes(own.values()) if masses else self

    def with_components(self, components: Iterable[Component]) -> Space:
        """The same domains with the masses of a mixture of products; equal components are joined.

        Examples
        --------
        >>> from fractions import Fraction
        >>> space = Space([Attribute.categorical("sex", ["f", "m"]), Attribute.categorical("job", ["a", "b"])])
        >>> f_a, m_b = space.with_mass({"sex": [1, 0], "job": [3, 1]}), space.with_mass({"sex": [0, 1], "job": [1, 3]})
        >>> people = space.with_components([f_a.as_component("1/2"), m_b.as_component("1/2")])
        >>> people["job"].value_masses(), len(people.components)
        ([Fraction(1, 2), Fraction(1, 2)], 2)
        """
        return self._changed(mass=None, components=components)

    def as_component(self, weight: Number) -> Component:
        """This product as a component of a mixture."""
        if self.components:
            raise SpaceError("as_component: the space is a mixture already")
        return Component(fraction(weight, SpaceError, "weight"), self.attributes)

    def products(self) -> list[tuple[Fraction, Space]]:
        """The products that the space is a mixture of, with their weights; itself with weight 1 if it is one product."""
        if not self.components:
            return [(Fraction(1), self)]
        return [(c.weight, self._product(c.attributes)) for c in self.components]

    def _product(self, attributes: tuple[Attribute, ...]) -> Space:
        """One product of the mixture, with the rules of the whole, which may forbid all of it."""
        product = Space(attributes, label=self.label, sensitive=self.sensitive)
        object.__setattr__(product, "rules", self.rules)
        return product

    def fingerprint(self) -> str:
        """SHA-256 of the space's meaning (labels and suggestions do not count)."""
        meaning = [{k: v for k, v in a.to_json().items() if k != "labels"} for a in self.attributes]
        counted = meaning if self.mass is None else [*meaning, {"mass": self.mass}]
        counted = counted + [component.to_json() for component in self.components]
        counted = counted + ([{"rules": [rule.text for rule in self.rules]}] if self.rules else [])
        return hashlib.sha256(json.dumps(counted, sort_keys=True, default=str).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `Space.from_json` reads back to an equal space."""
        out: dict[str, Any] = {}
        if self.label is not None:
            out["label"] = self.label
        if self.sensitive:
            out["sensitive"] = list(self.sensitive)
        if self.mass is not None:
            out["mass"] = self.mass
        if self.rules:
            out["rules"] = [rule.text for rule in self.rules]
        out["attributes"] = [a.to_json() for a in self.attributes]
        return out | ({"components": [c.to_json() for c in self.components]} if self.components else {})

    @classmethod
    def from_json(cls, node: Mapping[str, Any], where: str = "space") -> Space:
        """A space from its JSON object. Fields that it does not know are left alone."""
        if not isinstance(node, Mapping):
            raise SpaceError(f"{where}: expected an object with 'attributes', found {shown(node)}")
        attributes = list_field(node, "attributes", where)
        if attributes is None:
            raise SpaceError(f"{where}.attributes: missing")
        label = node.get("label")
        if label is not None and not isinstance(label, str):
            raise SpaceError(f"{where}.label: expected a column name, found {shown(label)}")
        try:
            read = [Attribute.from_json(a, f"{where}: attributes[{i}]") for i, a in enumerate(attributes)]
            mixture = [
                read_component(c, read, f"{where}: components[{k}]")
                for k, c in enumerate(list_field(node, "components", where) or [])
            ]
            sensitive = list_field(node, "sensitive", where) or ()
            rules = list_field(node, "rules", where) or ()
            return cls(read, label=label, sensitive=sensitive, mass=node.get("mass"), components=mixture, rules=rules)
        except SpaceError as error:
            raise SpaceError(f"{where}: {error}" if not str(error).startswith(where) else str(error)) from None

    @classmethod
    def load(cls, path: str | Path) -> Space:
        """Read a space from a JSON file."""
        path = file_path(path, "space", SpaceError)
        try:
            content = path.read_text(encoding="utf-8")
            # Numbers stay text until `fraction` reads them: 0.1 must not become the nearest double first.
            node = json.loads(content, parse_float=DecimalText, parse_int=_integer, parse_constant=_refuse_constant)
        except FileNotFoundError:
            raise SpaceError(f"{path}: no such file") from None
        except OSError as error:
            raise SpaceError(f"{path}: cannot be read: {error.strerror}") from None
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            raise SpaceError(f"{path}: not valid JSON: {str(error).splitlines()[0]}") from None
        return cls.from_json(node, str(path))

    def save(self, path: str | Path) -> None:
        """Write the space as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def from_data(frame: Any, **options: Any) -> Space:
        """Infer the space from a table (pandas, polars, ...); see `boxqte.space.inference.infer_attributes` for the options.

        What was inferred, and why, is in `Space.infer(...)`'s report; this returns the space alone.
        """
        return Space.infer(frame, **options).space

    @staticmethod
    def infer(frame: Any, **options: Any) -> Inference:
        """Like `from_data`, with a readable report of every decision.

        Examples
        --------
        >>> table = {"age": [17, 90, 34], "sex": ["f", "m", "f"], "income": [0.5, 3.25, 1.0], "label": [0, 1, 1]}
        >>> inference = Space.infer(table, label="label", sensitive=["sex"], overrides={"age": {"high": 100}})
        >>> print(inference)
        attribute  kind         domain       why
        age        integer      17 .. 100    integer column, 3 distinct values; overridden: high
        sex        categorical  {f, m}       text column, 2 distinct values
        income     real         [0.5, 3.25]  float column
        >>> inference.space["income"].high
        Fraction(13, 4)
        """
        from boxqte.space.inference import infer_attributes  # it needs the readers of tables, which take time to load

        rules = options.pop("rules", ())
        found = infer_attributes(frame, **options)
        mass: Literal["cells"] | None = "cells" if options.get("mass") == "cells" else None
        space = Space(found.attributes, label=found.label, sensitive=found.sensitive, mass=mass, rules=rules)
        return Inference(space, found.decisions, found.notes)


@dataclass(frozen=True)
class Inference:
    """An inferred space and the decision behind each of its attributes; `str()` is a readable table."""

    space: Space
    decisions: tuple[Decision, ...]
    notes: tuple[str, ...] = ()
    """What may be otherwise than it was decided, each in one line."""

    def to_json(self) -> dict[str, Any]:
        """Every decision and note as a JSON object; the space has its own."""
        return {"decisions": [vars(d) for d in self.decisions], "notes": list(self.notes)}

    def to_frame(self) -> pd.DataFrame:
        """The decisions as a pandas table."""
        import pandas as pd

        fields = ("name", "kind", "domain", "why")
        return pd.DataFrame({f: [getattr(d, f) for d in self.decisions] for f in fields})

    def __str__(self) -> str:
        rows = [("attribute", "kind", "domain", "why")]
        rows += [(d.name, d.kind, d.domain, d.why) for d in self.decisions]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[3]]).rstrip() for row in rows]
        return "\n".join([*lines, *self.notes])


def read_space(space: object) -> Space:
    """The space that an argument means: itself, what it was inferred with, the path of its file, or its JSON object."""
    found = getattr(space, "space", space)  # an Inference, a Population
    if isinstance(found, Space):
        return found
    if isinstance(space, (str, Path)):
        return Space.load(space)
    if isinstance(space, Mapping):
        return Space.from_json(space)
    raise SpaceError(f"space: expected a Space, an Inference, a path or a JSON object, found {shown(space)}")


def _integer(text: str) -> int | DecimalText:
    """An integer; one with too many digits stays text, so that `fraction` refuses it with its place."""
    return int(text) if len(text) <= MAX_LENGTH else DecimalText(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number JSON knows")
