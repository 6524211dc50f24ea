"""Mixtures of products: P(x) = the sum over components of weight times the product of the component's own masses.

A component has the space's domains and its own masses, so attributes that depend on each other in the mixture do not inside
a component. Masses enter every answer linearly: what is proved for each component adds up (questions.md, part 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from boxqte.errors import SpaceError
from boxqte.exact import fraction, plain, shown
from boxqte.space.attributes import Attribute, Histogram, list_field, read_formula


@dataclass(frozen=True)
class Component:
    """One product of a mixture: its weight, and the attributes of the space with its own masses."""

    weight: Fraction
    attributes: tuple[Attribute, ...]

    def __getitem__(self, name: str) -> Attribute:
        return next(attribute for attribute in self.attributes if attribute.name == name)

    def to_json(self) -> dict[str, Any]:
        """The weight, and the mass of every attribute that is not even."""
        mass = {a.name: node["mass"] for a in self.attributes if "mass" in (node := a.to_json())}
        missing = {a.name: plain(a.missing) for a in self.attributes if a.missing is not None}
        return {"weight": plain(self.weight), "mass": mass} | ({"missing": missing} if missing else {})


def read_component(node: Any, attributes: Sequence[Attribute], where: str) -> Component:
    """A component from its JSON object, over these domains; an attribute that it does not name has an even mass."""
    if not isinstance(node, Mapping) or "weight" not in node:
        raise SpaceError(f"{where}: expected an object with 'weight' and 'mass', found {shown(node)}")
    named = {a.name for a in attributes}
    fields: dict[str, Mapping[str, Any]] = {}
    for key in node:
        if key not in ("weight", "mass", "missing"):
            raise SpaceError(f"{where}.{key}: unknown field; known are mass, missing, weight")
    for key in ("mass", "missing"):
        given = node.get(key, {})
        if not isinstance(given, Mapping):
            raise SpaceError(f"{where}.{key}: expected an object with a field for each attribute, found {shown(given)}")
        for name in given:
            if name not in named:
                raise SpaceError(f"{where}.{key}: '{name}' is not an attribute of the space")
        fields[key] = given
    own = []
    for attribute in attributes:
        changed = replace(attribute, weights=None, histogram=None, distribution=None)
        name, mass = attribute.name, fields["mass"].get(attribute.name)
        if mass is not None and attribute.is_numeric:
            formula = read_formula(mass, f"{where}.mass.{name}")
            if not isinstance(formula, Histogram):
                raise SpaceError(f"{where}.mass.{name}: a component takes edges and weights, found {shown(mass)}")
            changed = replace(changed, histogram=formula)
        elif mass is not None:
            listed = list_field(fields["mass"], name, f"{where}.mass") or []
            changed = replace(changed, weights=tuple(fraction(v, SpaceError, f"{where}.mass.{name}") for v in listed))
        if name in fields["missing"]:
            if attribute.missing is None:
                raise SpaceError(f"{where}.missing.{name}: a missing value is not in the attribute's domain")
            changed = replace(changed, missing=fraction(fields["missing"][name], SpaceError, f"{where}.missing.{name}"))
        own.append(changed)
    return Component(fraction(node["weight"], SpaceError, f"{where}.weight"), tuple(own))


def checked_components(attributes: Sequence[Attribute], components: Iterable[Component]) -> tuple[Component, ...]:
    """The components of a mixture over these domains, the equal ones joined; an error if they are none."""
    weights: dict[tuple[Attribute, ...], Fraction] = {}
    for k, component in enumerate(components):
        where = f"components[{k}]"
        if not isinstance(component, Component):
            raise SpaceError(f"{where}: expected a Component, found {shown(component)}")
        if component.weight <= 0:
            raise SpaceError(f"{where}.weight: must be above 0, found {plain(component.weight)}")
        if [_domain(a) for a in component.attributes] != [_domain(a) for a in attributes]:
            raise SpaceError(f"{where}: must have the attributes and domains of the space")
        for attribute in component.attributes:
            if attribute.distribution is not None:
                raise SpaceError(
                    f"{where}: attribute '{attribute.name}' has a {attribute.distribution.family}; a component takes "
                    "weights or a histogram"
                )
        own = tuple(replace(a, labels=b.labels) for a, b in zip(component.attributes, attributes))
        weights[own] = weights.get(own, Fraction(0)) + component.weight
    if sum(weights.values()) != 1:
        raise SpaceError(f"components: the weights must sum to 1, found {plain(sum(weights.values(), Fraction(0)))}")
    return tuple(Component(weight, own) for own, weight in weights.items())


def marginals(components: Sequence[Component]) -> tuple[Attribute, ...]:
    """Each attribute with its mass in the whole mixture, exactly.

    Examples
    --------
    >>> sex = Attribute.categorical("sex", ["f", "m"])
    >>> women = replace(sex, weights=(Fraction(1), Fraction(0)))
    >>> parts = [Component(Fraction(1, 4), (women,)), Component(Fraction(3, 4), (sex,))]
    >>> marginals(parts)[0].value_masses()
    [Fraction(5, 8), Fraction(3, 8)]
    """
    return tuple(
        _mixed([(c.weight, c.attributes[at]) for c in components]) for at in range(len(components[0].attributes))
    )


def _mixed(parts: Sequence[tuple[Fraction, Attribute]]) -> Attribute:
    first = parts[0][1]
    missing = None if first.missing is None else sum((w * (a.missing or 0) for w, a in parts), Fraction(0))
    if not first.is_numeric:
        masses = [a.value_masses() for _, a in parts]
        weights = tuple(
            sum((w * own[v] for (w, _), own in zip(parts, masses)), Fraction(0)) for v in range(len(first.values))
        )
        return replace(first, weights=weights, missing=missing)
    if first.low == first.high:
        return replace(first, histogram=None, missing=missing)
    edges = sorted({first.low, first.end}.union(*(a.knots for _, a in parts)))
    below = [[a.mass_below(e) for e in edges] for _, a in parts]
    totals = [sum((w * own[i] for (w, _), own in zip(parts, below)), Fraction(0)) for i in range(len(edges))]
    return replace(first, histogram=Histogram(tuple(edges), tuple(b - a for a, b in pairwise(totals))), missing=missing)


def _domain(attribute: Attribute) -> Attribute:
    """The attribute without its mass."""
    absent = None if attribute.missing is None else Fraction(0)
    return replace(attribute, weights=None, histogram=None, distribution=None, labels=None, missing=absent)
