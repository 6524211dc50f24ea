"""How good a model is on rows with labels, and which rows two models decide differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxqte.basics.checks import did_you_mean
from boxqte.errors import ModelError, SpaceError
from boxqte.exact import shown
from boxqte.models.ensemble import FloatArray, TreeEnsemble
from boxqte.repairing.fitting import levels, probability
from boxqte.space.rows import MISSING, OUTSIDE, TableRows
from boxqte.space.space import Space
from boxqte.space.tables import Table

if TYPE_CHECKING:
    import pandas as pd

BoolArray = npt.NDArray[np.bool_]
SMALLEST_P = 1e-15
MOST_GROUPS = 12
PARTS = 5  # of a numeric attribute with more values than groups are shown


@dataclass(frozen=True)
class Quality:
    """A model on rows with labels; AUC is None where the rows have one class only."""

    rows: int
    accuracy: float
    auc: float | None
    log_loss: float
    positive_rate: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a model says of rows: class 1 or not, and its probability."""

    positive: BoolArray
    p: FloatArray


def decisions(ensemble: TreeEnsemble, X: FloatArray) -> Decisions:
    """The exact decisions (margins near the level are summed in rationals) and the probabilities as floats."""
    margin = ensemble.margin(X)[:, 0]
    rule, level = ensemble.decision, levels(ensemble, X)
    inclusive = ensemble.tie == "positive" if rule is None else not rule.exclusive
    positive = margin >= level if inclusive else margin > level
    near = np.flatnonzero(np.abs(margin - level) <= 1e-9 * (1 + np.abs(ensemble.value).max() * ensemble.n_trees))
    if len(near):
        positive[near] = ensemble.predict(X[near]).astype(bool)
    return Decisions(positive, probability(ensemble, margin))


def quality(found: Decisions, y: BoolArray) -> Quality:
    p = np.clip(found.p, SMALLEST_P, 1 - SMALLEST_P)
    loss = -float(np.mean(np.where(y, np.log(p), np.log1p(-p))))
    return Quality(len(y), float(np.mean(found.positive == y)), auc(found.p, y), loss, float(np.mean(found.positive)))


def auc(score: FloatArray, y: BoolArray) -> float | None:
    """The probability that a row of class 1 scores above one of class 0; half of the ties count.

    Examples
    --------
    >>> auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]))
    0.875
    """
    positives = int(y.sum())
    negatives = len(y) - positives
    if not positives or not negatives:
        return None
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    rank = (last - (counts - 1) / 2)[inverse]
    return float((rank[y].sum() - positives * (positives + 1) / 2) / (positives * negatives))


# --- labels and groups ------------------------------------------------------------------------------------------------


def labels_of(table: Table, column: str, ensemble: TreeEnsemble, where: str = "data") -> BoolArray:
    """Which rows are of class 1, from the label column."""
    if column not in table.names:
        raise SpaceError(
            f"label: {where} has no column '{column}'{did_you_mean(column, table.names)}; it has {_some(table.names)}"
        )
    read = table.column(column)
    classes = list(ensemble.classes)
    by_value = {value: i for i, value in enumerate(classes)}
    by_text = {str(value): i for i, value in enumerate(classes)}
    numbers = {float(value): i for i, value in enumerate(classes) if isinstance(value, (int, float, np.number))}
    meaning: dict[Any, int] = {}
    for value in read.counts:
        at = by_value.get(value, by_text.get(str(value)))
        if at is None and numbers:
            at = numbers.get(_float(value))
        if at is None:
            raise SpaceError(
                f"label: '{column}' of {where} has the value {shown(value)}; the model's classes are {_some(map(str, classes))}"
            )
        meaning[value] = at
    if read.n_missing:
        raise SpaceError(f"label: '{column}' of {where} has {read.n_missing} missing values; leave these rows out")
    if len(set(meaning.values())) < 2:
        only = next(iter(read.counts), None)
        raise SpaceError(
            f"label: every row of {where} has '{column}' {shown(only)}; both classes are needed to say what a repair costs"
        )
    return np.array([bool(meaning[value]) for value in read.values])


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _some(names: Any) -> str:
    listed = list(names)
    return ", ".join(listed[:12]) + (", ..." if len(listed) > 12 else "")


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of every row."""

    names: tuple[str, ...]
    of_row: npt.NDArray[np.int64]


def groups_of(space: Space, table: Table, attributes: Sequence[str]) -> Groups:
    """Rows by the values of the attributes, the most frequent combinations first; numbers of many values in ranges."""
    rows = TableRows(space, table)
    texts = [_texts(space, name, rows.values[name]) for name in attributes]
    combined = [", ".join(parts) for parts in zip(*texts)] if texts else ["all"] * rows.n
    names, inverse, counts = np.unique(np.array(combined, object).astype(str), return_inverse=True, return_counts=True)
    if len(names) > MOST_GROUPS:
        keep = np.argsort(-counts, kind="stable")[: MOST_GROUPS - 1]
        place = np.full(len(names), MOST_GROUPS - 1)
        place[np.sort(keep)] = np.arange(len(keep))
        return Groups((*names[np.sort(keep)].tolist(), "all others"), place[inverse])
    return Groups(tuple(names.tolist()), inverse)


def _texts(space: Space, name: str, values: Sequence[Any]) -> list[str]:
    attribute = space[name]
    if not attribute.is_numeric:
        return [value if value in (MISSING, OUTSIDE) else attribute.label_of(value) for value in values]
    numbers = sorted({value for value in values if isinstance(value, Fraction)})
    if len(numbers) <= MOST_GROUPS:
        return [f"{float(value):g}" if isinstance(value, Fraction) else value for value in values]
    every = np.sort(np.array([float(value) for value in values if isinstance(value, Fraction)]))
    edges = np.unique(every[np.linspace(0, len(every) - 1, PARTS + 1).astype(int)])
    named = [f"{low:g} to below {high:g}" for low, high in pairwise(edges.tolist())]
    named[-1] = f"{edges[-2]:g} to {edges[-1]:g}"
    width = max(len(text) for text in named)

    def part(value: Any) -> str:
        if not isinstance(value, Fraction):
            return str(value)
        at = int(np.searchsorted(edges, float(value), side="right")) - 1
        return named[min(at, len(named) - 1)].rjust(width)

    return [part(value) for value in values]


def by_group(
    groups: Groups, y: BoolArray, before: Decisions, after: Decisions, attributes: Sequence[str]
) -> pd.DataFrame:
    """Who changed: one line a group, rates and accuracies before and after, and how many decisions went which way."""
    import pandas as pd

    lines = []
    for g, name in enumerate(groups.names):
        at = groups.of_row == g
        if not at.any():
            continue
        one, two = before.positive[at], after.positive[at]
        lines.append(
            {
                ", ".join(attributes) or "group": name.strip(),
                "rows": int(at.sum()),
                "rate_before": float(one.mean()),
                "rate_after": float(two.mean()),
                "accuracy_before": float((one == y[at]).mean()),
                "accuracy_after": float((two == y[at]).mean()),
                "to_class_1": int((~one & two).sum()),
                "to_class_0": int((one & ~two).sum()),
                "changed": float((one != two).mean()),
            }
        )
    return pd.DataFrame(lines)


def refuse_classes(ensemble: TreeEnsemble, source: str) -> None:
    """Repair is for models with two classes."""
    ensemble.require_classes()
    if not ensemble.is_binary:
        raise ModelError(f"{source}: has {ensemble.n_outputs} classes; repair is for models with two classes")
