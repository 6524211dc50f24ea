"""The space: JSON round trips, the product measure, and one line for everything that is wrong with a space."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxqte.errors import PropertyError, SpaceError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_grid
from boxqte.questions.properties import Fairness
from boxqte.space.attributes import Attribute, Histogram
from boxqte.space.inference import describe_domain
from boxqte.space.space import Space
from tests.conformance.mutations import mutate_bytes, mutate_document

DATA = Path(os.environ.get("BOXQTE_DATA", Path(__file__).parents[3] / "shared" / "data"))

rationals = st.fractions(-1000, 1000, max_denominator=997)
decimals = st.floats(-1e9, 1e9).map(lambda v: Fraction(repr(v)))
numbers = st.one_of(rationals, decimals, st.integers(-1000, 1000).map(Fraction))
names = st.text("abcdé _-", min_size=1, max_size=6)
weights = st.one_of(st.integers(0, 9).map(Fraction), st.fractions(0, 5, max_denominator=7))
shares = st.one_of(st.none(), st.fractions(0, "9/10", max_denominator=50))


def heights(size: int) -> st.SearchStrategy[tuple[Fraction, ...]]:
    return st.lists(weights, min_size=size, max_size=size).map(tuple).filter(lambda w: sum(w) > 0)


@st.composite
def numeric(draw: st.DrawFn, name: str = "n") -> Attribute:
    integer = draw(st.booleans())
    edges = sorted(draw(st.sets(st.integers(-50, 50).map(Fraction) if integer else numbers, min_size=1, max_size=6)))
    low, high = edges[0], edges[-1]
    if integer:
        edges = [*edges, high + 1]
    histogram = None
    if len(edges) > 1 and draw(st.booleans()):
        histogram = Histogram(tuple(edges), draw(heights(len(edges) - 1)))
    kind = "integer" if integer else "real"
    return Attribute(name, kind, low, high, missing=draw(shares), histogram=histogram)


@st.composite
def finite(draw: st.DrawFn, name: str = "c") -> Attribute:
    value = st.one_of(st.text(max_size=4), st.integers(-9, 200), st.floats(-9, 9))
    values = draw(st.lists(value, min_size=1, max_size=5, unique=True))
    size = len(values)
    one_hot = draw(st.booleans())
    columns = tuple(f"{name}_{i}" for i in range(draw(st.integers(1, 3)))) if one_hot else (name,)
    row = st.tuples(*[st.integers(-3, 3).map(float)] * len(columns))
    codes = draw(st.lists(row, min_size=size, max_size=size))  # two values may write the same
    return Attribute(
        name,
        "one-hot" if one_hot else "categorical",
        values=tuple(values),
        labels=tuple(f"label {i}" for i in range(size)) if draw(st.booleans()) else None,
        columns=columns,
        codes=tuple(codes) if one_hot or draw(st.booleans()) else None,
        missing=draw(shares),
        weights=draw(st.one_of(st.none(), heights(size))),
    )


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    chosen = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    attributes = [draw(st.one_of(numeric(name), finite(name))) for name in chosen]
    columns = [c for a in attributes for c in a.columns]
    if len(set(columns)) != len(columns):
        attributes = attributes[:1]
    known = [a.name for a in attributes]
    return Space(attributes, label=draw(st.none() | names), sensitive=[n for n in known if draw(st.booleans())])


# JSON


@settings(max_examples=70, deadline=None)
@given(spaces())
def test_a_space_survives_json_text(space: Space) -> None:
    again = Space.from_json(json.loads(json.dumps(space.to_json())))
    assert again == space
    assert again.fingerprint() == space.fingerprint()


@settings(max_examples=25, deadline=None)
@given(space=spaces())
def test_a_space_survives_a_file(tmp_path_factory: pytest.TempPathFactory, space: Space) -> None:
    path = tmp_path_factory.mktemp("space") / "space.json"
    space.save(path)
    assert Space.load(path) == space


def test_a_decimal_in_a_file_is_the_decimal_that_was_typed(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"attributes": [{"name": "x", "kind": "real", "low": 0.1, "high": 0.30000000000000000001}]}')
    space = Space.load(path)
    assert (space["x"].low, space["x"].high) == (Fraction(1, 10), Fraction("0.30000000000000000001"))


def test_a_one_hot_group_needs_only_its_columns() -> None:
    node = {"attributes": [{"name": "g", "kind": "one-hot", "columns": ["g_a", "g_b"]}]}
    assert Space.from_json(node)["g"] == Attribute.one_hot("g", ["g_a", "g_b"])


def test_fields_of_a_schema_that_are_not_ours_are_left_alone() -> None:
    node = {"dataset": "d", "rows": 3, "attributes": [{"name": "a", "kind": "integer", "low": 0, "high": 3}]}
    assert Space.from_json(node).names == ("a",)


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}; BOXQTE_DATA names their folder")
@pytest.mark.parametrize(("name", "n"), [("adult", 13), ("bank", 16), ("compas", 6), ("credit", 20), ("lsac", 11)])
def test_a_schema_file_loads_as_it_is(name: str, n: int) -> None:
    space = Space.load(DATA / f"{name}.schema.json")
    assert len(space) == n
    assert space.label == "label"
    assert set(space.sensitive) <= set(space.names)
    assert Space.from_json(space.to_json()) == space


def test_the_fingerprint_is_of_the_meaning_and_not_of_the_labels() -> None:
    plain = Space([Attribute.categorical("s", [0, 1])])
    labelled = Space([Attribute.categorical("s", [0, 1], labels=["f", "m"])], sensitive=["s"])
    other = Space([Attribute.categorical("s", [0, 2])])
    assert plain.fingerprint() == labelled.fingerprint() != other.fingerprint()


# The measure


@settings(max_examples=70, deadline=None)
@given(numeric(), st.lists(numbers, max_size=6))
def test_the_mass_of_a_numeric_attribute_grows_from_0_to_what_is_not_missing(
    a: Attribute, points: list[Fraction]
) -> None:
    present = 1 - (a.missing or 0)
    # Beyond `high`, because the mass below a point leaves the point itself out.
    masses = [a.mass_below(p) for p in [a.low, *sorted(p for p in points if a.low <= p <= a.high), a.high + 1]]
    assert masses[0] == 0
    assert masses[-1] == present
    assert masses == sorted(masses)


@settings(max_examples=50, deadline=None)
@given(numeric())
def test_the_bins_of_a_histogram_hold_their_weights(a: Attribute) -> None:
    if a.histogram is not None:
        edges, total = a.histogram.edges, sum(a.histogram.weights)
        present = 1 - (a.missing or 0)
        for low, high, weight in zip(edges, edges[1:], a.histogram.weights):
            assert a.mass_below(high) - a.mass_below(low) == present * weight / total


@settings(max_examples=50, deadline=None)
@given(finite())
def test_the_masses_of_a_finite_attribute_sum_to_1_with_the_missing_value(a: Attribute) -> None:
    assert sum(a.value_masses()) + (a.missing or 0) == 1
    assert len(a.value_masses()) == len(a.values)


def test_a_uniform_attribute_is_measured_by_length_or_by_count() -> None:
    assert Attribute.real("x", 0, 10).mass_below(Fraction(3)) == Fraction(3, 10)
    assert Attribute.integer("i", 0, 9).mass_below(Fraction(3)) == Fraction(3, 10)
    assert Attribute.categorical("c", "abc").value_masses() == [Fraction(1, 3)] * 3
    assert Attribute.real("x", 1, 1).mass_below(Fraction(2)) == 1


def test_a_missing_value_is_one_more_value_of_the_same_mass() -> None:
    assert Attribute.integer("i", 1, 4, missing=True).missing == Fraction(1, 5)
    assert Attribute.categorical("c", "ab", missing=True).value_masses() == [Fraction(1, 3)] * 2
    assert Attribute.real("x", 0, 1, missing=0.05).mass_below(Fraction(1)) == Fraction(19, 20)
    assert Attribute.categorical("c", "ab", missing=True).size == 3


def test_the_count_of_inputs_is_a_product_and_unknown_if_an_attribute_is_real() -> None:
    finite_attributes = [Attribute.integer("i", 1, 4, missing=True), Attribute.one_hot("g", ["p", "q"])]
    assert Space(finite_attributes).count() == math.prod((5, 2))
    assert Space([*finite_attributes, Attribute.real("x", 0, 1)]).count() is None


def test_other_masses_leave_the_domains_as_they_are() -> None:
    space = Space([Attribute.categorical("c", "ab"), Attribute.integer("i", 0, 1)])
    histogram = Histogram((Fraction(0), Fraction(1), Fraction(2)), (Fraction(3), Fraction(1)))
    weighted = space.with_mass({"c": [0.1, 0.9], "i": histogram})
    assert weighted["c"].value_masses() == [Fraction(1, 10), Fraction(9, 10)]
    assert weighted["i"].mass_below(Fraction(1)) == Fraction(3, 4)
    assert weighted.count() == space.count()
    assert space["c"].weights is None


# Reading a space


def test_attributes_are_found_by_name_and_in_order() -> None:
    space = Space([Attribute.integer("b", 0, 1), Attribute.one_hot("g", ["p", "q"])])
    assert [a.name for a in space] == ["b", "g"]
    assert space.columns == ("b", "p", "q")
    assert len(space) == 2
    assert space["g"].label_of(1) == "q"
    with pytest.raises(SpaceError, match=r"'a' is not an attribute; attributes are b, g"):
        space["a"]


def test_an_attribute_can_be_replaced_but_not_added() -> None:
    space = Space([Attribute.integer("b", 0, 1)], label="y", sensitive=["b"])
    assert space.with_attribute(Attribute.real("b", 0, 5)) == Space(
        [Attribute.real("b", 0, 5)], label="y", sensitive=["b"]
    )
    with pytest.raises(SpaceError, match="'c' is not an attribute"):
        space.with_attribute(Attribute.real("c", 0, 5))


# Errors

BAD_ATTRIBUTES: dict[str, tuple[Callable[[], Any], str]] = {
    "low above high": (lambda: Attribute.real("x", 2, 1), "attribute 'x': low 2 is above high 1"),
    "an end that is no number": (
        lambda: Attribute.real("x", "a", 1),
        "attribute 'x', low: expected a finite number, found 'a'",
    ),
    "an infinite end": (
        lambda: Attribute.real("x", 0, math.inf),
        "attribute 'x', high: expected a finite number, found inf",
    ),
    "a bool as end": (lambda: Attribute.real("x", False, 1), "attribute 'x', low: expected a number, found False"),
    "an end between integers": (lambda: Attribute.integer("i", 0, 1.5), "attribute 'i', high: expected an integer"),
    "an integer too large": (
        lambda: Attribute.integer("i", 0, 2**53 + 1),
        "attribute 'i', high: expected an integer of at most 2**53",
    ),
    "no values": (lambda: Attribute.categorical("c", []), "attribute 'c', values: the domain is empty"),
    "a value twice": (lambda: Attribute.categorical("c", [1, 1.0]), "attribute 'c', values: 1.0 occurs twice"),
    "a value that is NaN": (
        lambda: Attribute.categorical("c", [math.nan]),
        "attribute 'c', values: expected texts or finite",
    ),
    "a value that is None": (
        lambda: Attribute.categorical("c", [None]),
        "attribute 'c', values: expected texts or finite",
    ),
    "too few labels": (
        lambda: Attribute.categorical("c", "ab", labels=["x"]),
        "attribute 'c', labels: 1 labels for 2 values",
    ),
    "too few codes": (
        lambda: Attribute.categorical("c", "ab", codes=[1]),
        "attribute 'c', codes: expected 2 x 1 finite numbers",
    ),
    "an infinite code": (
        lambda: Attribute.categorical("c", "a", codes=[math.inf]),
        "attribute 'c', codes: expected a finite number, found inf",
    ),
    "a value beyond every float": (
        lambda: Attribute.categorical("c", [0, 10**400]),
        "attribute 'c', values: expected texts or finite",
    ),
    "a value of thousands of digits": (
        lambda: Attribute.categorical("c", [10**5000]),
        "attribute 'c', values: expected texts or finite numbers, found something too long to show",
    ),
    "an end of thousands of digits": (
        lambda: Attribute.integer("i", 0, 10**5000),
        "attribute 'i', high: expected a number of at most 800 digits",
    ),
    "a code beyond every float": (
        lambda: Attribute.from_json({"name": "c", "kind": "categorical", "values": [1], "codes": ["1e390"]}, "a"),
        "a ('c').codes: expected one list of numbers a value",
    ),
    "two columns": (lambda: Attribute("i", "integer", columns=("p", "q")), "attribute 'i', columns: only a one-hot"),
    "a kind unknown": (lambda: Attribute("i", "ordinal"), "attribute 'i', kind: expected one of real, integer"),
    "a share of 1": (
        lambda: Attribute.real("x", 0, 1, missing=1),
        "attribute 'x', missing: the share must be at least 0 and below 1",
    ),
    "a negative share": (lambda: Attribute.real("x", 0, 1, missing=-0.1), "attribute 'x', missing: the share must be"),
    "one more real value": (
        lambda: Attribute.from_json({"name": "x", "kind": "real", "low": 0, "high": 1, "missing": True}, "a"),
        "attribute 'x', missing: a real attribute has no smallest mass",
    ),
    "weights on numbers": (
        lambda: Attribute("i", "integer", weights=(Fraction(1),)),
        "attribute 'i', mass: a numeric attribute takes a histogram",
    ),
    "a histogram on values": (
        lambda: Attribute("c", "categorical", values=("a",), histogram=Histogram((), ())),
        "attribute 'c', mass: a categorical attribute takes one weight a value",
    ),
    "too few weights": (
        lambda: Attribute("c", "categorical", values=("a", "b"), weights=(Fraction(1),)),
        "attribute 'c', mass: 1 weights, expected 2",
    ),
    "weights that are 0": (
        lambda: Attribute("c", "categorical", values=("a",), weights=(Fraction(0),)),
        "attribute 'c', mass: weights must be at least 0 and not all 0",
    ),
    "edges that fall": (lambda: histogram(0, 2, [0, 2, 1, 2]), "attribute 'x', mass: edges must increase"),
    "edges elsewhere": (lambda: histogram(0, 2, [0, 1]), "attribute 'x', mass: edges must run from 0 to 2"),
    "edges between integers": (
        lambda: histogram(0, 2, [0, 0.5, 3], "integer"),
        "attribute 'x', mass: edges of an integer attribute must be integers",
    ),
}


def histogram(low: int, high: int, edges: list[float], kind: Any = "real") -> Attribute:
    exact = tuple(map(Fraction, edges))
    return Attribute(
        "x", kind, Fraction(low), Fraction(high), histogram=Histogram(exact, (Fraction(1),) * (len(edges) - 1))
    )


@pytest.mark.parametrize("what", BAD_ATTRIBUTES)
def test_an_attribute_that_is_no_domain_is_refused_in_one_line(what: str) -> None:
    build, expected = BAD_ATTRIBUTES[what]
    with pytest.raises(SpaceError) as caught:
        build()
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


GOOD: dict[str, Any] = {"name": "a", "kind": "integer", "low": 0, "high": 3}
SET: dict[str, Any] = {"name": "s", "kind": "categorical", "values": [0, 1]}
HOT: dict[str, Any] = {"name": "g", "kind": "one-hot", "columns": ["p", "q"]}

BAD_JSON: dict[str, tuple[Any, str]] = {
    "no object": ([1], "space: expected an object with 'attributes', found [1]"),
    "no attributes": ({}, "space.attributes: missing"),
    "no list": ({"attributes": "a"}, "space.attributes: expected a list, found 'a'"),
    "an empty list": ({"attributes": []}, "space: the space has no attributes"),
    "no attribute object": ({"attributes": [GOOD, 7]}, "space: attributes[1]: expected an object, found 7"),
    "a name twice": ({"attributes": [GOOD, GOOD]}, "space: attribute 'a' occurs twice in the space"),
    "a column twice": ({"attributes": [GOOD | {"name": "p"}, HOT]}, "space: column 'p' occurs twice in the space"),
    "a label that is no name": ({"label": 3, "attributes": [GOOD]}, "space.label: expected a column name, found 3"),
    "a sensitive stranger": (
        {"sensitive": ["z"], "attributes": [GOOD]},
        "space: sensitive: 'z' is not an attribute; attributes are a",
    ),
}

# The first attribute of a space, and what is said after its place.
BAD_ATTRIBUTE_JSON: dict[str, tuple[Any, str]] = {
    "an unknown field": (GOOD | {"hi": 1}, ".hi: unknown field; known are"),
    "no name": ({"kind": "real"}, ".name: expected a name, found None"),
    "an empty name": (GOOD | {"name": ""}, ".name: expected a name, found ''"),
    "an unknown kind": (GOOD | {"kind": "date"}, " ('a').kind: expected one of real"),
    "no high": ({k: v for k, v in GOOD.items() if k != "high"}, " ('a').high: missing"),
    "an end that is no number": (GOOD | {"low": "x"}, " ('a').low: expected a finite number"),
    "an end that is huge": (GOOD | {"low": "1e999999999"}, " ('a').low: expected a number of at most 800 digits"),
    "values of an integer": (GOOD | {"values": [1]}, " ('a').values: an attribute of kind integer has no"),
    "low of a category": (SET | {"low": 0}, " ('s').low: an attribute of kind categorical has no"),
    "values that are no list": (SET | {"values": {"a": 1}}, " ('s').values: expected a list"),
    "columns that are no names": (HOT | {"columns": [1, 2]}, " ('g').columns: expected column names"),
    "codes that are lacking": (HOT | {"values": [1, 2, 3]}, " ('g').codes: missing; 3 values and 2 columns"),
    "codes that are no lists": (HOT | {"codes": [1, 2]}, " ('g').codes: expected one list of numbers"),
    "codes that are no numbers": (SET | {"codes": ["x", "y"]}, " ('s').codes: expected a finite number"),
    "a list as histogram": (GOOD | {"mass": [1]}, " ('a').mass: expected {'edges'"),
    "a histogram as list": (SET | {"mass": {"edges": []}}, " ('s').mass: expected a list"),
}


@pytest.mark.parametrize("what", BAD_JSON)
def test_json_that_is_no_space_is_refused_with_its_place(what: str) -> None:
    node, expected = BAD_JSON[what]
    with pytest.raises(SpaceError) as caught:
        Space.from_json(node)
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", BAD_ATTRIBUTE_JSON)
def test_json_that_is_no_attribute_is_refused_with_its_place(what: str) -> None:
    node, expected = BAD_ATTRIBUTE_JSON[what]
    with pytest.raises(SpaceError) as caught:
        Space.from_json({"attributes": [node]})
    assert str(caught.value).startswith(f"space: attributes[0]{expected}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"attributes": [{"name": "x", "kind": "real", "low": NaN, "high": 1}]}', "NaN is not a number"),
        (b'{"attributes": [{"name": "x", "kind": "real", "low": 1e999, "high": 1}]}', "attributes[0] ('x').low"),
        (b"[]", "expected an object with 'attributes'"),
    ],
)
def test_a_file_that_is_no_space_is_refused_with_its_name(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(content)
    with pytest.raises(SpaceError) as caught:
        Space.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="no such file"):
        Space.load(tmp_path / "absent.json")
    with pytest.raises(SpaceError, match="cannot be read"):
        Space.load(tmp_path)


# Damaged spaces

SOUND: list[Space] = [
    Space(
        [
            Attribute.real("income", 0, "1000.5", missing="0.1"),
            Attribute.categorical("race", range(5), labels="abcde", missing=True),
            histogram(0, 3, [0, 1, 4], "integer"),
        ],
        label="y",
        sensitive=["race"],
    ),
    Space(
        [
            Attribute.categorical("colour", ["red", "green", 2.5], codes=[0, 1, 1]),
            Attribute.one_hot("job", ["job_a", "job_b"], values=["a", "b", "c"], codes=[[1, 0], [0, 1], [0, 0]]),
            Attribute("size", "categorical", values=(1, 2), weights=(Fraction(1, 3), Fraction(2))),
            histogram(0, 2, [0, 0.5, 2]),
        ]
    ),
]


def refused_or_sound(load: Callable[[], Space], what: str) -> bool:
    """A one-line SpaceError, or a space that can be used; anything else fails. Whether it was refused."""
    begin = time.perf_counter()
    try:
        space = load()
    except SpaceError as error:
        message = str(error)
        assert message.splitlines() == [message], f"{what}: {message!r}"
        assert len(message) < 2000, f"{what}: {message[:200]!r}"
        return True
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__} instead of SpaceError: {error}") from error
    finally:
        assert time.perf_counter() - begin < 5, what
    assert Space.from_json(space.to_json()) == space, what
    assert space.fingerprint()
    for attribute in space:
        assert describe_domain(attribute), what
        if not attribute.is_numeric:
            assert sum(attribute.value_masses()) + (attribute.missing or 0) == 1, what
    return False


def test_damaged_json_is_refused_as_a_space_or_is_one() -> None:
    refused = 0
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        node, what = mutate_document(SOUND[seed % 2].to_json(), rng)
        if seed % 3 == 0 and node:
            node, more = mutate_document(node, rng)
            what += f"; {more}"
        refused += refused_or_sound(lambda: Space.from_json(node), f"seed {seed}: {what}")
    assert refused > 750


def test_damaged_files_are_refused_as_a_space_or_are_one(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    refused = 0
    for seed in range(600):
        rng = np.random.default_rng(seed)
        if seed % 2:
            node, what = mutate_document(SOUND[seed % 4 // 2].to_json(), rng)
            path.write_text(json.dumps(node))
        else:
            what = "bytes"
            path.write_bytes(mutate_bytes(json.dumps(SOUND[seed % 4 // 2].to_json()).encode(), rng))
        refused += refused_or_sound(lambda: Space.load(path), f"seed {seed}: {what}")
    assert refused > 300


def test_a_damaged_space_never_breaks_the_grid() -> None:
    sound = loan_space().to_json()
    built = 0
    for seed in range(600):
        node, _ = mutate_document(sound, np.random.default_rng(seed))
        with contextlib.suppress(SpaceError, PropertyError):
            build_grid(loan_ensemble(), Space.from_json(node), Fairness("race", 0.1, 0.7))
            built += 1
    assert built > 20
