"""The input space inferred from data, with the reason for every decision.

Data never says what it means: a column of 0, 1 and 2 may be a count or a code. So the rules are few, every decision is
reported with its reason and with the option that overrides it, and whatever is ambiguous (missing values, dates, mixed
types) is an error and not a guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

from boxqte.basics.checks import as_names, by_name, whole
from boxqte.errors import SpaceError
from boxqte.exact import plain, shown
from boxqte.space.attributes import MAX_INTEGER, Attribute
from boxqte.space.codes import asked_about
from boxqte.space.columns import (
    MassRule,
    MissingRule,
    Reading,
    Wish,
    as_category,
    attribute_columns,
    by_model,
    check_names,
    encoded_columns,
    missing_values,
    model_view,
    plain_columns,
    read_wishes,
)
from boxqte.space.frequencies import with_data_mass
from boxqte.space.onehot import Lookalike
from boxqte.space.tables import Column, Table, exact_number, table_of

if TYPE_CHECKING:
    pass

FEW = (
    12  # an integer column with at most so many values may well hold codes: its line says how to declare it; others ask
)


@dataclass(frozen=True)
class Decision:
    """What was decided for one attribute, and why. `kind` is "left out" for a column that is not in the space."""

    name: str
    kind: str
    domain: str
    why: str


@dataclass(frozen=True)
class Inferred:
    """What a table says about the space: its attributes, and the decision behind each."""

    attributes: tuple[Attribute, ...]
    decisions: tuple[Decision, ...]
    label: str | None
    sensitive: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What may be otherwise than it was decided, each in one line."""


def infer_attributes(
    frame: Any,
    *,
    label: str | None = None,
    sensitive: Iterable[str] = (),
    overrides: Mapping[str, Attribute | Mapping[str, Any] | str] | None = None,
    categorical: Iterable[str] = (),
    integer: Iterable[str] = (),
    real: Iterable[str] = (),
    one_hot: Mapping[str, Sequence[str]] | Literal["auto"] | None = "auto",
    encoder: Any = None,
    model: Any = None,
    mass: MassRule = "uniform",
    missing: MissingRule = "error",
    max_categories: int = 256,
) -> Inferred:
    """Infer the attributes of the input space from a table.

    Parameters
    ----------
    frame
        A pandas, polars or pyarrow table (anything narwhals reads), or a dict of columns.
    label
        The target column; it is no attribute.
    sensitive
        Attributes to mark as sensitive in the space.
    overrides
        Per attribute: an `Attribute` that is taken as it is; some fields of its JSON form, such as `{"low": 0}`, which
        replace what was inferred; or a kind.
    categorical, integer, real
        Columns whose kind is known.
    one_hot
        "auto" recognises groups of 0/1 columns with a common prefix (`race_white`, `race=white`, `race__white`,
        `race.white`, `race:white`) of which exactly one is 1 in every row, or at most one (`pd.get_dummies` with
        `drop_first`: rows of zeros are one more value) where independent columns would be 1 together in ten rows or more.
        A mapping from attribute to columns declares groups, beside those that are recognised; None takes every column by
        itself. What may be a group, but is taken one by one, is in the notes. Not used where an encoder makes the groups.
    encoder
        A fitted scikit-learn ColumnTransformer, OneHotEncoder or OrdinalEncoder between the table and the model. The
        table holds the values before encoding, and so does the space; each attribute knows its model columns and codes.
    model
        The model, live or as a path. Columns that it does not read are left out, unless they are sensitive, and what it
        treats as a category is categorical.
    mass
        "uniform", or "data": each attribute's own frequencies in the table, as exact counts (see
        `boxqte.space.frequencies.with_data_mass` for the bins of numeric attributes). "cells": every cell that a model's
        tests cut the space into counts the same (`Space.mass`).
    missing
        "error" refuses missing values; "declare" makes a missing value part of the domain of each attribute that has
        one: with uniform mass one more value, for real attributes and with `mass="data"` its share in the table;
        "ignore" leaves it out of the domain.
    max_categories
        A text column with more distinct values is refused (an identifier, free text), unless it is in `categorical`.

    Notes
    -----
    - bool, text and category columns are categorical. Values are those that occur, sorted; a dtype that declares its
      categories (pandas Categorical, polars Enum, Arrow dictionary) gives all of them in its order.
    - Integer columns are integer, from the smallest to the largest value; so are float columns that hold only integers.
      If 0 and 1 are the only values, they are two categories: epsilon never moves one into the other.
    - Other float columns are real. A float stands for its shortest decimal (a float32 for that of the equal float64).
    - A column with one value is a domain of one value. Dates, mixed types, infinite numbers are errors.
    """
    for option, given, accepted in (("mass", mass, get_args(MassRule)), ("missing", missing, get_args(MissingRule))):
        if given not in accepted:
            raise SpaceError(f"{option}: expected one of {', '.join(accepted)}, found {given!r}")
    if not (one_hot is None or one_hot == "auto" or isinstance(one_hot, Mapping)):
        raise SpaceError(f"one_hot: expected 'auto', None or a mapping from attribute to columns, found {one_hot!r}")
    table = table_of(frame)
    max_categories = whole(max_categories, "max_categories", error=SpaceError)
    changes = by_name(overrides, "overrides", SpaceError)
    wishes = read_wishes({"categorical": categorical, "integer": integer, "real": real}, changes)
    names = attribute_columns(table, label)
    chosen = as_names(sensitive, "sensitive", SpaceError)
    view = model_view(model, encoder, names, chosen)
    wishes |= {name: by_model(wishes.get(name)) for name in view.categories}
    lookalikes: list[Lookalike] = []
    if view.encoded is not None:
        readings = encoded_columns(table, names, view.encoded, wishes, missing)
    else:
        readings, lookalikes = plain_columns(table, view, one_hot, wishes)
    if view.beside is not None:
        readings.append(Reading(view.beside, table.column(view.beside)))
        wishes.setdefault(view.beside, Wish("categorical", "its values have decision thresholds"))
    readings += [
        Reading(name, table.column(name), why=f"{view.why_left_out}, sensitive all the same") for name in view.unread
    ]
    check_names(wishes, readings, names)
    attributes, decisions, notes = [], [], [str(lookalike) for lookalike in lookalikes]
    target = None if label is None else _readable(table, label)
    for reading in readings:
        attribute, why = _decided(reading, wishes.get(reading.name, Wish()), mass, missing, max_categories)
        attributes.append(attribute)
        decisions.append(Decision(attribute.name, attribute.kind, describe_domain(attribute), why))
        guessed = reading.settled is None and reading.name not in wishes and attribute.kind == "integer"
        if guessed and reading.column is not None and len(reading.column.counts) > FEW:
            asked = asked_about(reading.column, target)
            notes += [] if asked is None else [asked]
    decisions += [Decision(name, "left out", "", view.why_left_out) for name in names if name not in view.reads]
    for name in chosen:
        group = next((a for a in attributes if name in a.columns and a.name != name), None)
        if group is not None and name not in {a.name for a in attributes}:
            raise SpaceError(f"sensitive: '{name}' is a column of the attribute '{group.name}'; name the attribute")
    return Inferred(tuple(attributes), tuple(decisions), label, chosen, tuple(notes))


def describe_domain(attribute: Attribute, width: int = 40) -> str:
    """The domain in a few words, such as `17 .. 90`, `[0.5, 3.25]` or `{f, m}`.

    Examples
    --------
    >>> describe_domain(Attribute.categorical("country", ["Austria", "Belgium", "Croatia", "Denmark"]), width=30)
    '{Austria, ... Denmark}, 4 values'
    """
    if attribute.kind == "real":
        text = f"[{plain(attribute.low)}, {plain(attribute.high)}]"
    elif attribute.kind == "integer":
        text = f"{attribute.low} .. {attribute.high}" if attribute.range else f"{attribute.low}"
    else:
        texts = [attribute.label_of(i) for i in range(len(attribute.values))]
        text = f"{{{', '.join(texts)}}}"
        if len(text) > width:
            kept = 1
            while len(", ".join(texts[: kept + 1])) + len(texts[-1]) + 8 <= width - 10:
                kept += 1
            text = f"{{{', '.join(texts[:kept])}, ... {texts[-1]}}}, {len(texts)} values"
    return text if attribute.missing is None else f"{text} or missing"


def _readable(table: Table, name: str) -> Column | None:
    """A column that only helps to judge others; None if it is of a kind that has no domain, dates for one."""
    try:
        return table.column(name)
    except SpaceError:
        return None


def _decided(
    reading: Reading, wish: Wish, mass: MassRule, missing: MissingRule, max_categories: int
) -> tuple[Attribute, str]:
    """The attribute of a reading: its domain, then the user's fields, then its missing value, then its mass."""
    if wish.whole is not None:
        return wish.whole, "given as it is (overrides)"
    column = reading.column
    assert column is not None
    if not column.counts and reading.settled is None:
        raise SpaceError(f"column '{column.name}': all values are missing; leave the column out")
    reasons = [reading.why] if reading.why else []
    if reading.settled is not None:
        attribute = reading.settled
        if wish.kind not in (None, attribute.kind, "categorical"):
            raise SpaceError(
                f"{wish.said_by}: '{reading.name}' is {attribute.kind}, it cannot be {wish.kind}: {reading.why}"
            )
    else:
        attribute, why = _domain(column, wish, max_categories)
        reasons.append(why)
        if reading.feeds is not None:
            attribute = replace(attribute, columns=reading.feeds)
    if wish.fields:
        attribute = _overridden(attribute, wish.fields)
        reasons.append(f"overridden: {', '.join(wish.fields)}")
    if column.n_missing and "missing" not in wish.fields:
        attribute, why = _with_missing(attribute, column, mass, missing)
        reasons.append(why)
    if mass == "data" and "mass" not in wish.fields:
        attribute, why = with_data_mass(attribute, column.counts)
        reasons.append(why)
    return attribute, "; ".join(reasons)


def _domain(column: Column, wish: Wish, max_categories: int) -> tuple[Attribute, str]:
    """The domain of a column: the ladder of rules, the user's word first."""
    if wish.kind == "one-hot":
        raise SpaceError(
            f"{wish.said_by}: '{column.name}' is one column; declare groups with one_hot={{name: columns}}"
        )
    if wish.kind is not None:
        build = {"categorical": _as_categorical, "integer": _as_integer, "real": _as_real}[wish.kind]
        return build(column, wish.said_by)
    if "values" in wish.fields or column.storage in ("bool", "category"):
        return _as_categorical(column)
    if column.storage == "text":
        _refuse_mixed_lengths(column)
        if len(column.counts) > max_categories:
            raise SpaceError(
                f"column '{column.name}': {len(column.counts)} distinct texts, more than {max_categories} "
                f"(max_categories); leave the column out, or categorical=['{column.name}'] takes all of them"
            )
        return _as_categorical(column)
    bounded = "low" in wish.fields or "high" in wish.fields
    if set(column.counts) == {0, 1} and not bounded:
        return _as_two_categories(column)
    if column.storage == "integer" or _all_integers(column):
        return _as_integer(column)
    return _as_real(column)


def _as_categorical(column: Column, said_by: str = "") -> tuple[Attribute, str]:
    declared = column.categories
    values = tuple(as_category(v) for v in (sorted(column.counts) if declared is None else declared))
    why = f"{column.storage} column, {_distinct(column)}"
    if declared is not None:
        why = f"{column.storage} column, the {len(values)} values that {column.declared_by} declares"
        unused, unknown = len(set(values) - set(column.counts)), len(set(column.counts) - set(values))
        why += f", {unused} of which do not occur" if unused else ""
        why += f"; {unknown} other values occur, outside the domain" if unknown else ""
    elif not said_by and column.storage == "text" and all(map(_reads_as_number, values)):
        why += ", which all read as numbers: convert the column if it is numeric"
    elif column.storage == "bool" and len(values) == 1:
        why += "; if both are possible, give it both values in the space"
    return Attribute.categorical(column.name, values), f"{why} ({said_by})" if said_by else why


def _as_two_categories(column: Column) -> tuple[Attribute, str]:
    why = f"{column.storage} column of 0 and 1 only: two categories, which epsilon does not mix"
    return Attribute.categorical(column.name, (0, 1)), f"{why}; override with integer=['{column.name}']"


def _as_integer(column: Column, said_by: str = "") -> tuple[Attribute, str]:
    _refuse_texts(column, "integer", said_by)
    for value in column.counts:
        if value != int(value):
            raise SpaceError(
                f"{said_by}: '{column.name}' cannot be integer, row {column.row_of(value)} holds {value} "
                "(rows count from 0)"
            )
    low, high = int(min(column.counts)), int(max(column.counts))
    if max(abs(low), abs(high)) > MAX_INTEGER:
        raise SpaceError(
            f"column '{column.name}': its integers run from {low} to {high}, beyond 2**53 where a float64 model column "
            f"cannot tell neighbours apart; real=['{column.name}'] reads them as real numbers, or leave it out"
        )
    if said_by:
        why = f"{column.storage} column, {_distinct(column)} ({said_by})"
    elif column.storage == "integer":
        why = f"integer column, {_distinct(column)}"
        if 1 < len(column.counts) <= FEW and len(column.counts) < len(column.values):
            why += f"; if they are codes without order, categorical=['{column.name}']"
    else:
        why = f"float column whose values are all integers; override with real=['{column.name}']"
    return Attribute.integer(column.name, low, high), why


def _as_real(column: Column, said_by: str = "") -> tuple[Attribute, str]:
    _refuse_texts(column, "real", said_by)
    ends = [exact_number(v, f"column '{column.name}'") for v in (min(column.counts), max(column.counts))]
    why = f"{column.storage} column" + (", one value" if ends[0] == ends[1] else "")
    return Attribute.real(column.name, *ends), f"{why} ({said_by})" if said_by else why


def _overridden(attribute: Attribute, fields: Mapping[str, Any]) -> Attribute:
    """The attribute with some fields of its JSON form replaced; values that are picked out keep their codes."""
    where = f"overrides['{attribute.name}']"
    node = attribute.to_json()
    picked = fields.get("values")
    if isinstance(picked, Sequence) and not isinstance(picked, str) and not attribute.is_numeric:
        node.pop("mass", None)
        unknown = [v for v in picked if v not in attribute.values]
        if unknown and attribute.codes is not None and "codes" not in fields:
            known = ", ".join(str(v) for v in attribute.values)
            raise SpaceError(f"{where}.values: {unknown[0]!r} has no code; known values are {known}")
        for part in ("codes", "labels"):
            if part in node and not unknown:
                node[part] = [node[part][attribute.values.index(v)] for v in picked]
    return Attribute.from_json(node | dict(fields) | {"name": attribute.name, "kind": attribute.kind}, where)


def _with_missing(attribute: Attribute, column: Column, mass: MassRule, missing: MissingRule) -> tuple[Attribute, str]:
    n, rows = column.n_missing, len(column.values)
    found = "1 missing value" if n == 1 else f"{n} missing values"
    if missing == "error":
        raise missing_values(column)
    if missing == "ignore":
        return attribute, f"{found} left out of the domain"
    size = attribute.size
    if mass == "data" or size is None:
        return replace(attribute, missing=Fraction(n, rows)), f"{found}, declared with the share {n}/{rows}"
    return replace(attribute, missing=Fraction(1, size + 1)), f"{found}, declared as one more value"


def _distinct(column: Column) -> str:
    n = len(column.counts)
    return "one value" if n == 1 else f"{n} distinct values"


def _all_integers(column: Column) -> bool:
    return all(v == int(v) and abs(v) <= MAX_INTEGER for v in column.counts)


def _reads_as_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _refuse_mixed_lengths(column: Column) -> None:
    """An integer too long for the reader makes texts of a whole column: no 60 ages become 60 categories by that."""
    digits = {text: len(text.lstrip("+-")) for text in column.counts if text.lstrip("+-").isdecimal()}
    if len(digits) == len(column.counts) and min(digits.values()) < 16 and max(digits.values()) > 19:
        longest = max(digits, key=lambda text: digits[text])
        raise SpaceError(
            f"column '{column.name}', row {column.row_of(longest)}: {shown(longest)} is beyond 2**53, where a float64 model "
            f"column cannot tell neighbours apart; correct it, or categorical=['{column.name}'] (rows count from 0)"
        )


def _refuse_texts(column: Column, kind: str, said_by: str) -> None:
    for value in column.counts:
        if isinstance(value, str):
            raise SpaceError(
                f"{said_by}: '{column.name}' cannot be {kind}, row {column.row_of(value)} holds {value!r} "
                "(rows count from 0)"
            )
