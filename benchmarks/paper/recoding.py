"""How the public Adult and Bank tables become the integer-coded tables of the fairness-testing literature.

A column's rule says how: a code for each text, or a number divided and cut off at both ends. The rules also give the
space: the domain of a coded column is its codes, that of a number the range that occurs. What comes out is compared with
the digest of the table that every published figure was measured on, so a wrong rule cannot go unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boxqte.errors import SpaceError

if TYPE_CHECKING:
    import pandas as pd

    from boxqte.space.space import Space

UNKNOWN = 100
"""The code of '?', as in the published tables."""


@dataclass(frozen=True)
class Coded:
    """Texts become their position in the list; '?' and missing values become UNKNOWN where that is allowed."""

    texts: tuple[str, ...]
    unknown: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.texts, "?") if self.unknown else self.texts

    @property
    def codes(self) -> tuple[int, ...]:
        return (*range(len(self.texts)), UNKNOWN) if self.unknown else tuple(range(len(self.texts)))


@dataclass(frozen=True)
class Scaled:
    """A number divided and rounded down, then cut off at both ends."""

    by: int = 1
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Flag:
    """1 where the number is in the range, else 0."""

    low: float
    high: float


Rule = Coded | Scaled | Flag


@dataclass(frozen=True)
class Source:
    """Where a table comes from and how it is recoded: (column, raw column, rule), the label last."""

    openml_id: int
    columns: tuple[tuple[str, str, Rule], ...]
    sensitive: tuple[str, ...]
    digest: str
    last_rows: int | None = None
    """Keep only so many rows at the end (Adult: OpenML has the test rows first)."""


ADULT = Source(
    openml_id=1590,
    last_rows=32_561,
    sensitive=("sex", "race", "age"),
    digest="753cc569246ebace615a24ca9bd34ed03b44a4b34d906ee8cb80687b82a07004",
    columns=(
        ("age", "age", Scaled(10)),
        ("workclass", "workclass", Coded(("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov",
                                          "State-gov", "Without-pay", "Never-worked"), unknown=True)),
        ("fnlwgt", "fnlwgt", Scaled(20_000)),
        ("education", "education", Coded((
            "Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th", "7th-8th",
            "12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool"))),
        ("marital_status", "marital-status", Coded((
            "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
            "Married-AF-spouse"))),
        ("occupation", "occupation", Coded((
            "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
            "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
            "Priv-house-serv", "Protective-serv", "Armed-Forces"), unknown=True)),
        ("relationship", "relationship", Coded((
            "Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"))),
        ("race", "race", Coded(("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"))),
        ("sex", "sex", Coded(("Female", "Male"))),
        ("capital_gain", "capital-gain", Scaled(1000)),
        ("capital_loss", "capital-loss", Scaled(100)),
        ("hours_per_week", "hours-per-week", Scaled()),
        ("native_country", "native-country", Coded((
            "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany", "Outlying-US(Guam-USVI-etc)",
            "India", "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines", "Italy", "Poland",
            "Jamaica", "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador",
            "Taiwan", "Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia",
            "El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands"), unknown=True)),
        ("label", "class", Coded(("<=50K", ">50K"))),
    ),
)  # fmt: skip

# OpenML calls Bank's columns V1..V16 and its classes 1 and 2.
BANK = Source(
    openml_id=1461,
    sensitive=("age",),
    digest="ea1b992d0271c1d03214d586de6581c47c57619a8f786d748f93607dccbd6585",
    columns=(
        ("age", "V1", Scaled(10)),
        ("job", "V2", Coded(("admin.", "unknown", "unemployed", "management", "housemaid", "entrepreneur", "student",
                             "blue-collar", "self-employed", "retired", "technician", "services"))),
        ("marital", "V3", Coded(("married", "divorced", "single"))),
        ("education", "V4", Coded(("unknown", "secondary", "primary", "tertiary"))),
        ("default", "V5", Coded(("no", "yes"))),
        ("balance", "V6", Scaled(50, low=-20, high=179)),
        ("housing", "V7", Coded(("no", "yes"))),
        ("loan", "V8", Coded(("no", "yes"))),
        ("contact", "V9", Coded(("unknown", "telephone", "cellular"))),
        ("day", "V10", Scaled()),
        ("month", "V11", Coded(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))),
        ("duration", "V12", Scaled(10, high=99)),
        ("campaign", "V13", Scaled()),
        ("pdays", "V14", Flag(-1, -1)),
        ("previous", "V15", Flag(1, float("inf"))),
        ("poutcome", "V16", Coded(("unknown", "other", "failure", "success"))),
        ("label", "Class", Coded(("1", "2"))),
    ),
)  # fmt: skip

SOURCES: Mapping[str, Source] = {"adult": ADULT, "bank": BANK}


def recoded(raw: pd.DataFrame, source: Source) -> pd.DataFrame:
    """The raw table in the codes of the literature; SpaceError names a column or a text that no rule knows."""
    import pandas as pd

    rows = raw if source.last_rows is None else raw.tail(source.last_rows)
    out: dict[str, Any] = {}
    for name, column, rule in source.columns:
        if column not in rows:
            raise SpaceError(f"column '{column}' is not in the table; columns are {', '.join(map(str, rows.columns))}")
        out[name] = _recoded_column(rows[column], rule, column)
    return pd.DataFrame(out).reset_index(drop=True)


def _recoded_column(values: pd.Series[Any], rule: Rule, column: str) -> Any:
    import numpy as np
    import pandas as pd

    if isinstance(rule, Coded):
        code = dict(zip(rule.texts, range(len(rule.texts))))
        texts = values.astype(object).where(values.notna(), "?").map(lambda v: str(v).strip())
        if rule.unknown:
            code["?"] = UNKNOWN
        for text in texts.unique():
            if text not in code:
                raise SpaceError(f"column '{column}': '{text}' has no code; known are {', '.join(code)}")
        return texts.map(code).astype(np.int64)
    numbers = pd.to_numeric(values)
    if isinstance(rule, Flag):
        return numbers.between(rule.low, rule.high).astype(np.int64)
    return np.floor(numbers / rule.by).astype(np.int64).clip(rule.low, rule.high)


def space_of(table: pd.DataFrame, source: Source) -> Space:
    """The space that belongs to a recoded table."""
    from boxqte.space.attributes import Attribute
    from boxqte.space.space import Space

    attributes = []
    for name, _, rule in source.columns[:-1]:
        if isinstance(rule, Coded):
            attributes.append(Attribute.categorical(name, rule.codes, labels=rule.labels))
        else:
            attributes.append(Attribute.integer(name, int(table[name].min()), int(table[name].max())))
    return Space(attributes, label=source.columns[-1][0], sensitive=source.sensitive)


def digest(table: pd.DataFrame) -> str:
    """SHA-256 of the table as a CSV file."""
    text: str = table.to_csv(index=False, lineterminator="\n")
    return hashlib.sha256(text.encode()).hexdigest()
