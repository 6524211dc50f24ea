"""Mixtures of products as masses of a space."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from boxqte import Attribute, Space
from boxqte.errors import SpaceError
from boxqte.space.attributes import Histogram
from boxqte.space.components import Component

HALF = Fraction(1, 2)


def two() -> Space:
    return Space(
        [Attribute.integer("age", 0, 9, missing=True), Attribute.categorical("sex", ["f", "m"])], sensitive=["sex"]
    )


def mixture() -> Space:
    space = two()
    young = space.with_mass({"age": Histogram((Fraction(0), Fraction(3), Fraction(10)), (Fraction(1), Fraction(0)))})
    women = space.with_mass({"sex": [1, 0]})
    return space.with_components([young.as_component("1/4"), women.as_component("3/4")])


def test_the_attributes_have_the_marginals() -> None:
    space = mixture()
    assert space["sex"].value_masses() == [HALF / 4 + Fraction(3, 4), HALF / 4]
    present = Fraction(10, 11)
    assert space["age"].mass_below(Fraction(3)) == present * (Fraction(1, 4) + Fraction(3, 4) * Fraction(3, 10))
    assert space["age"].missing == Fraction(1, 11)


def test_it_is_read_back_from_json_with_the_same_meaning() -> None:
    space = mixture()
    again = Space.from_json(space.to_json())
    assert again == space
    assert again.fingerprint() == space.fingerprint() != two().fingerprint()


def test_equal_components_are_one_product() -> None:
    space = two().with_mass({"sex": [1, 3]})
    assert two().with_components([space.as_component("1/3"), space.as_component("2/3")]) == space


@pytest.mark.parametrize(
    ("weights", "said"), [(["1/2", "1/3"], "sum to 1, found 5/6"), (["3/2", "-1/2"], r"components\[1\].weight: must be above 0")]
)  # fmt: skip
def test_weights_that_are_none_are_refused(weights: list[str], said: str) -> None:
    products = [two(), two().with_mass({"sex": [1, 0]})]
    with pytest.raises(SpaceError, match=said):
        two().with_components([space.as_component(w) for space, w in zip(products, weights)])


def test_other_domains_are_refused() -> None:
    other = Space([replace(two()["age"], high=Fraction(8)), two()["sex"]])
    with pytest.raises(SpaceError, match="domains of the space"):
        two().with_components([Component(Fraction(1), other.attributes)])


def test_a_mass_cannot_be_changed_behind_the_components() -> None:
    with pytest.raises(SpaceError, match="mixture of 2 products"):
        mixture().with_mass({"sex": [1, 0]})
