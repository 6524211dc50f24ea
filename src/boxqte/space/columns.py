"""Where attributes come from: columns, one-hot groups, an encoder's input; and what user and model say of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from boxqte.basics.checks import as_names, did_you_mean
from boxqte.errors import SpaceError
from boxqte.models.categories import HashedCategories
from boxqte.models.category_names import StoredNames
from boxqte.models.encoders import EncodedColumn, from_transformer
from boxqte.models.ensemble import Test
from boxqte.models.importers import ImportedModel, load_model
from boxqte.space.attributes import KINDS, Attribute, Kind
from boxqte.space.onehot import Group, Lookalike, declared_group, find_groups
from boxqte.space.tables import Column, Table, plain_value

MassRule = Literal["uniform", "data", "cells"]
MissingRule = Literal["error", "declare", "ignore"]

MISSING_CATEGORY = "(missing)"  # a missing value that an encoder has a code for, as a value of the attribute
BY_MODEL = "the model splits it by categories"


@dataclass(frozen=True)
class Wish:
    """What the user (or the model) says about one attribute: a kind, some fields, or the whole attribute."""

    kind: Kind | None = None
    said_by: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    whole: Attribute | None = None


@dataclass(frozen=True, eq=False)
class Reading:
    """Where an attribute comes from: its column in the user's values, and the attribute itself if it is settled."""

    name: str
    column: Column | None = None
    """None if the user gave the whole attribute."""
    feeds: tuple[str, ...] | None = None
    """The model columns, where they are not the column itself."""
    settled: Attribute | None = None
    why: str = ""


@dataclass(frozen=True, eq=False)
class ModelView:
    """What is known of the way from the table to the model."""

    reads: tuple[str, ...]
    why_left_out: str = ""
    encoded: tuple[EncodedColumn, ...] | None = None
    categories: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict)
    """The columns that the model treats as categories, and the list of them where the model carries one."""
    stored: Mapping[str, StoredNames] = field(default_factory=dict)
    """The columns of whose categories the model has names that only the table makes certain."""
    fills: Mapping[str, Any] = field(default_factory=dict)
    """What the model itself writes for missing values: no value of the column, unless the table has it."""
    beside: str | None = None
    """A column that the model itself does not read, but its decision rule does."""
    unread: tuple[str, ...] = ()
    """Columns that nothing reads, and that are asked about as sensitive all the same."""


def plain_columns(
    table: Table, view: ModelView, one_hot: Mapping[str, Sequence[str]] | str | None, wishes: Mapping[str, Wish]
) -> tuple[list[Reading], list[Lookalike]]:
    """One reading a column, or a one-hot group in the place of its first column; and what may be groups as well."""
    names = tuple(name for name in view.reads if name != view.beside and name not in view.unread)
    given = {name: wish.whole for name, wish in wishes.items() if wish.whole is not None}
    owner = {c: name for name, attribute in given.items() for c in attribute.columns}
    for column, name in owner.items():
        if column not in names:
            raise no_such_column(f"overrides['{name}']", column, names)
    groups: list[Group] = []
    if isinstance(one_hot, Mapping):
        for name, members in one_hot.items():
            for member in as_names(members, f"one_hot['{name}']", SpaceError):
                if member not in names:
                    raise no_such_column(f"one_hot['{name}']", member, names)
                if member in owner:
                    raise SpaceError(f"one_hot['{name}']: column '{member}' already belongs to '{owner[member]}'")
                owner[member] = name
            groups.append(declared_group(name, [table.column(m) for m in as_names(members, name, SpaceError)]))
    columns = {name: table.column(name) for name in names if name not in owner}
    for name, categories in view.categories.items():
        if categories is not None and name in columns:
            counts, fill = columns[name].counts, view.fills.get(name)
            own = tuple(value for value in categories if fill is None or value != fill or value in counts)
            columns[name] = replace(columns[name], categories=own, declared_by="the model")
    settled = {
        name: coded
        for name, stored in view.stored.items()
        if name in columns and "codes" not in wishes[name].fields and (coded := _coded(columns[name], stored))
    }
    free = [column for name, column in columns.items() if name not in wishes]
    found, lookalikes = find_groups(free, taken=[*names, *(group.attribute.name for group in groups)])
    if one_hot is None:
        said = "never two of them are 1, and one_hot=None"
        lookalikes += [Lookalike(g.attribute.name, g.attribute.columns, said) for g in found]
    else:
        groups += found
    grouped = {g.attribute.name: g for g in groups}
    owner |= {c: name for name, g in grouped.items() for c in g.attribute.columns}
    readings: dict[str, Reading] = {}
    for name in names:
        attribute = owner.get(name, name)
        if attribute in grouped:
            group = grouped[attribute]
            readings[attribute] = Reading(attribute, group.column, None, group.attribute, group.why)
        else:
            readings[attribute] = settled.get(name) or Reading(attribute, columns.get(name))
    return list(readings.values()), lookalikes


def _coded(column: Column, stored: StoredNames) -> Reading | None:
    """The attribute of a column of texts whose codes are known by names that XGBoost has cut; None for other columns.

    The categories that the column's dtype declares are in the model's order if XGBoost stores for them just what the model
    has: then it takes this column for its own. Without a dtype the values have to leave only one way to read the names.
    """
    declared = column.categories
    if not all(isinstance(value, str) for value in declared or column.counts):
        return None
    names = tuple(declared) if declared and stored.are(declared) else stored.among(list(column.counts))
    if names is None:
        raise SpaceError(
            f"column '{column.name}': XGBoost has cut the names of the model's {len(stored)} categories (they go beyond "
            "ASCII), and the values in the table do not tell which is which; give the table the training data's categories "
            "(a pandas category column, in Parquet), or the attribute its 'codes'"
        )
    attribute = Attribute(
        column.name,
        "categorical",
        values=names,
        columns=(column.name,),
        codes=tuple((float(code),) for code in range(len(names))),
    )
    return Reading(
        column.name, column, None, attribute, f"{len(names)} categories of the model, matched by their names"
    )


def encoded_columns(
    table: Table,
    names: Sequence[str],
    columns: Sequence[EncodedColumn],
    wishes: Mapping[str, Wish],
    missing: MissingRule,
) -> list[Reading]:
    """One reading for each of the user's columns that reaches the model through the encoder."""
    readings = []
    for encoded in columns:
        if encoded.name not in names:
            raise no_such_column("encoder", encoded.name, names)
        if wishes.get(encoded.name, Wish()).whole is not None:
            readings.append(Reading(encoded.name))
        elif encoded.values is None:
            readings.append(Reading(encoded.name, table.column(encoded.name), encoded.columns))
        else:
            readings.append(_encoded_column(encoded, table.column(encoded.name), missing))
    return readings


def _encoded_column(encoded: EncodedColumn, column: Column, missing: MissingRule) -> Reading:
    """The attribute that an encoder makes of a column: its categories, and what each writes into the model columns.

    Categories that share a code (infrequent ones) remain values of their own. A missing value that the encoder writes
    as a category of its own is a value only if missing values are declared; one that it writes as NaN is the
    attribute's missing value.
    """
    assert encoded.values is not None
    assert encoded.codes is not None
    codes: dict[Any, tuple[float, ...]] = {}
    for value, code in zip(encoded.values, encoded.codes.tolist()):
        value = plain_value(value)
        absent = value is None
        if absent and (missing != "declare" or any(map(math.isnan, code))):
            continue
        value = MISSING_CATEGORY if absent else as_category(value)
        if codes.setdefault(value, tuple(code)) != tuple(code):  # None and NaN, which tables do not keep apart
            raise SpaceError(f"encoder: column '{column.name}' has two categories {value!r} with codes of their own")
    if column.n_missing and missing == "error":
        raise missing_values(column)
    why = f"{len(encoded.values)} categories of the encoder"
    shared = len(codes) - sum(1 for n in Counter(codes.values()).values() if n == 1)
    if shared:
        why += f", {shared} of them share a code"
    unknown = sum(count for value, count in column.counts.items() if value not in codes)
    if unknown:
        why += f"; rows with values that it does not know: {unknown}"
    held = [MISSING_CATEGORY if v is None and MISSING_CATEGORY in codes else v for v in column.values]
    attribute = Attribute(
        encoded.name,
        "categorical" if len(encoded.columns) == 1 else "one-hot",
        values=tuple(codes),
        columns=encoded.columns,
        codes=tuple(codes.values()),
    )
    return Reading(encoded.name, Column(column.name, column.storage, held), None, attribute, why)


def model_view(model: Any, encoder: Any, names: tuple[str, ...], sensitive: Sequence[str] = ()) -> ModelView:
    """Which columns reach the model, and how. An encoder that is given stands between the table and the model."""
    view = _read_by(model, encoder, names)
    unread = tuple(name for name in sensitive if name in names and name not in view.reads)
    return replace(view, reads=(*view.reads, *unread), unread=unread)


def _read_by(model: Any, encoder: Any, names: tuple[str, ...]) -> ModelView:
    if encoder is not None:
        named = getattr(encoder, "feature_names_in_", None) is not None
        columns = from_transformer(encoder, None if named else names)
        return ModelView(tuple(column.name for column in columns), "the encoder drops it", columns)
    if model is None:
        return ModelView(names)
    imported = load_model(model)
    rule, features = imported.ensemble.decision, {*imported.ensemble.feature_names}
    of_model = {imported.ensemble.own_name(name) for name in names}
    if rule is None or rule.attribute not in names or imported.ensemble.own_name(rule.attribute) in features:
        return _view_of(imported, names)
    # a model without names of its own reads every column, if there are as many
    if not of_model & features and len(names) <= len(features):
        return _view_of(imported, names)
    view = _view_of(imported, tuple(name for name in names if name != rule.attribute))
    return replace(view, reads=(*view.reads, rule.attribute), beside=rule.attribute)


def _view_of(model: ImportedModel, names: tuple[str, ...]) -> ModelView:
    ensemble = model.ensemble
    features = ensemble.feature_names
    of_model = {ensemble.own_name(name): name for name in names}
    if set(features) & set(of_model):
        for feature in features:
            if feature not in of_model:
                raise no_such_column("model", feature, names)
        features = tuple(of_model[feature] for feature in features)
    elif len(features) == len(names):
        features = names  # a model without names of its own reads by position
    else:
        raise SpaceError(f"model: it reads {len(features)} columns ({features[0]}, ...), the table has {len(names)}")
    split_by_sets = {int(f) for f in ensemble.feature[ensemble.test == Test.IN_SET]}
    sets = sorted(split_by_sets | set(ensemble.categories) | set(ensemble.stored_names))
    # Hashes are no values: such a model takes whatever categories the table has.
    listed = {f: values for f, values in ensemble.categories.items() if not isinstance(values, HashedCategories)}
    categories = {features[f]: listed.get(f) for f in sets}
    reads = tuple(name for name in names if name in set(features))
    stored = {features[f]: names for f, names in ensemble.stored_names.items()}
    return ModelView(reads, "the model does not read it", None, categories, stored, model.fills)


def read_wishes(kinds: Mapping[str, Iterable[str]], overrides: Mapping[str, Any]) -> dict[str, Wish]:
    wishes: dict[str, Wish] = {}
    for kind in ("categorical", "integer", "real"):
        for name in as_names(kinds[kind], kind, SpaceError):
            if name in wishes and wishes[name].kind != kind:
                raise SpaceError(f"'{name}' is named in both {wishes[name].kind} and {kind}")
            wishes[name] = Wish(kind, kind)
    for name, override in overrides.items():
        wish = _override(name, override)
        listed = wishes.get(name)
        if listed is not None:
            if wish.whole is not None or wish.kind not in (None, listed.kind):
                raise SpaceError(f"'{name}' is named in both {listed.kind} and overrides")
            wish = replace(wish, kind=listed.kind, said_by=listed.said_by)
        wishes[name] = wish
    return wishes


def _override(name: str, override: Any) -> Wish:
    where = f"overrides['{name}']"
    if isinstance(override, Attribute):
        if override.name != name:
            raise SpaceError(f"{where}: the attribute is named '{override.name}'")
        return Wish(whole=override)
    fields: Mapping[str, Any] = {"kind": override} if isinstance(override, str) else override
    if not isinstance(fields, Mapping):
        raise SpaceError(f"{where}: expected an Attribute, a dict of its fields or a kind, found {override!r}")
    kind = fields.get("kind")
    if kind is not None and kind not in KINDS:
        raise SpaceError(f"{where}.kind: expected one of {', '.join(KINDS)}, found {kind!r}")
    if fields.get("name", name) != name:
        raise SpaceError(f"{where}.name: an attribute cannot be renamed, found {fields['name']!r}")
    return Wish(kind, "overrides", {k: v for k, v in fields.items() if k not in ("kind", "name")})


def by_model(wish: Wish | None) -> Wish:
    """What the user says of a column that the model treats as categories; categorical, unless that contradicts it."""
    if wish is None:
        return Wish("categorical", BY_MODEL)
    if wish.whole is not None or wish.kind is not None or "low" in wish.fields or "high" in wish.fields:
        return wish
    return replace(wish, kind="categorical", said_by=BY_MODEL)


def attribute_columns(table: Table, label: str | None) -> tuple[str, ...]:
    if label is None:
        return table.names
    if label not in table.names:
        raise no_such_column("label", label, table.names)
    names = tuple(name for name in table.names if name != label)
    if not names:
        raise SpaceError(f"the table has no columns besides the label '{label}'")
    return names


def check_names(wishes: Mapping[str, Wish], readings: Sequence[Reading], names: Sequence[str]) -> None:
    known = {reading.name for reading in readings}
    for name, wish in wishes.items():
        where = wish.said_by or f"overrides['{name}']"
        if name in known:
            continue
        if name not in names:
            raise no_such_column(where, name, [*names, *(k for k in sorted(known) if k not in names)])
        raise SpaceError(
            f"{where}: column '{name}' is no attribute of its own; attributes are {', '.join(sorted(known))}"
        )


def missing_values(column: Column) -> SpaceError:
    n = column.n_missing
    count = "1 missing value" if n == 1 else f"{n} missing values"
    return SpaceError(
        f"column '{column.name}': {count}, the first in row {column.row_of(None)} (rows count from 0); "
        "missing='declare' makes a missing value part of the domain, missing='ignore' leaves it out, or drop the rows"
    )


def no_such_column(where: str, name: str, names: Sequence[str]) -> SpaceError:
    shown = ", ".join(names[:30]) + (f", ... ({len(names)} in all)" if len(names) > 30 else "")
    return SpaceError(f"{where}: there is no column '{name}'{did_you_mean(name, names)}; columns are {shown}")


def as_category(value: Any) -> Any:
    """A category as an attribute holds it: whole numbers as int, other exact numbers as float."""
    if isinstance(value, (float, Decimal, Fraction)) and not (isinstance(value, float) and not math.isfinite(value)):
        return int(value) if value == int(value) else float(value)
    return value
