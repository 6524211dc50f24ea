"""Blame: how much of the unfairness goes away if one tree, or one split, no longer sees the sensitive attributes?

Each answer is a quantification of the model in which only that tree (or split) is blinded, so its bounds are certain. All
of them share one time limit; those that could explain the most come first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxqte.answers.asked import Asked
from boxqte.answers.quantify import measure
from boxqte.answers.result import Result, asked_of
from boxqte.answers.values import GridValues
from boxqte.basics.budget import TimeBudget, asked_in_turn
from boxqte.engines.protocol import Progress, Status
from boxqte.engines.refusals import two_classes
from boxqte.errors import EngineError, PropertyError, SpaceError
from boxqte.exact import down, up
from boxqte.models.ensemble import FloatArray, Test, TreeEnsemble
from boxqte.models.imported import ImportedModel
from boxqte.questions.grid import AnyGrid
from boxqte.questions.row_cells import read_rows
from boxqte.repairing.blinding import Cells, Reached, Rows, SensitiveTree, sensitive_trees, without
from boxqte.repairing.fitting import probability
from boxqte.repairing.quality import SMALLEST_P, labels_of
from boxqte.repairing.trees import sensitive_features
from boxqte.space.tables import table_of

if TYPE_CHECKING:
    import pandas as pd

BoolArray = npt.NDArray[np.bool_]
Watcher = Callable[[str, float | None, Progress], None]
NOT_ASKED = "not searched"


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A tree (`split` None) or one of its splits, and the model without it."""

    tree: int
    split: int | None
    nodes: tuple[int, ...]
    text: str
    model: TreeEnsemble
    splits: int = 0
    """How many splits on sensitive attributes a tree has."""

    @property
    def name(self) -> str:
        return f"tree {self.tree}" + ("" if self.split is None else f", {self.text}")


def blame(
    result: Result,
    data: Any = None,
    label: str | None = None,
    *,
    splits: bool = True,
    time_limit: float | None = None,
    progress: Watcher | None = None,
) -> pd.DataFrame:
    """What each tree, and each split on a sensitive attribute, adds to the unfairness; see `Quantification.blame`."""
    import pandas as pd

    asked = asked_of(result)
    grid, ensemble = asked.grid, asked.model.ensemble
    if asked.condition:
        raise EngineError("blame: asks about the whole space; call it on the result of quantify, not of restrict")
    budget = TimeBudget(asked.limits.time_limit if time_limit is None else time_limit)
    rows = _read(grid, data, label)
    cells = Cells(ensemble, grid.space)
    everything: Reached = cells.whole() if rows is None else Rows(ensemble, rows.X, np.arange(len(rows.X)))
    features = sensitive_features(ensemble, grid.space, grid.property.sensitive)
    trees = sorted(sensitive_trees(ensemble, features, everything), key=lambda tree: -tree.reach)
    candidates = _candidates(ensemble, trees, cells, splits)
    distinct: dict[str, _Candidate] = {}
    for candidate in candidates:
        distinct.setdefault(candidate.model.fingerprint(), candidate)
    found = _answers(asked, list(distinct.values()), budget, progress)
    answers = dict(zip(distinct, found))
    loss = None if rows is None else rows.loss()
    lines = []
    for candidate in candidates:
        answer = answers[candidate.model.fingerprint()]
        then = None if rows is None else rows.loss_without(candidate)
        bought = None if then is None or loss is None else then - loss
        lines.append(_line(candidate, ensemble, result, answer, bought))
    table = pd.DataFrame(lines, columns=list(COLUMNS)).astype(COLUMNS)
    table = _sorted(table)
    table.attrs |= {
        "sensitive": list(grid.property.sensitive),
        "trees": ensemble.n_trees,
        "sensitive_trees": len(trees),
        "measure": _ends(result),
        "counterexample": [result.counterexample.lower, result.counterexample.upper],
        "converged": bool(table["converged"].all()) and result.converged,
        "not_searched": int((table["status"] == NOT_ASKED).sum()),
        "rows": None if rows is None else len(rows.X),
        "rows_outside": None if rows is None else rows.outside,
        "log_loss": loss,
    }
    return table


COLUMNS: Mapping[str, str] = {
    "tree": "int64", "split": "str", "node": "Int64", "splits": "int64", "removed_lower": "float64",
    "removed_upper": "float64", "measure_lower": "float64", "measure_upper": "float64", "log_loss": "float64",
    "converged": "bool", "status": "str",
}  # fmt: skip


class Labelled:
    """The rows of a table that lie in the space, in the model's columns, their labels, and the model's margins on them."""

    def __init__(self, ensemble: TreeEnsemble, X: FloatArray, y: BoolArray | None, outside: int):
        self.ensemble, self.X, self.y, self.outside = ensemble, X, y, outside
        self.margin = ensemble.margin(X)[:, 0] if y is not None else np.zeros(len(X))

    def loss(self) -> float | None:
        """The model's log-loss."""
        return None if self.y is None else self._log_loss(self.y, self.margin)

    def loss_without(self, candidate: _Candidate) -> float | None:
        """The log-loss of the model with a tree or a split blinded: all other trees say what they said."""
        if self.y is None:
            return None
        before, after = (_values(e, candidate.tree, self.X) for e in (self.ensemble, candidate.model))
        return self._log_loss(self.y, self.margin + float(self.ensemble.factor) * (after - before))

    def _log_loss(self, y: BoolArray, margin: FloatArray) -> float:
        p = np.clip(probability(self.ensemble, margin), SMALLEST_P, 1 - SMALLEST_P)
        return -float(np.mean(np.where(y, np.log(p), np.log1p(-p))))


def _values(ensemble: TreeEnsemble, tree: int, X: FloatArray) -> FloatArray:
    """What one tree says of each row."""
    found = np.zeros(len(X))
    waiting = [(int(ensemble.roots[tree]), np.arange(len(X)))]
    while waiting:
        node, at = waiting.pop()
        if ensemble.test[node] == Test.LEAF:
            found[at] = ensemble.value[node, 0]
            continue
        goes = ensemble.goes_left(node, X[at, ensemble.feature[node]])
        waiting += [(int(ensemble.left[node]), at[goes]), (int(ensemble.right[node]), at[~goes])]
    return found


def checked_labels(grid: AnyGrid, data: Any, label: str | None) -> BoolArray | None:
    """Which rows are of class 1, if that is to be known; refuses a question without blame, and a label that is none."""
    if not grid.property.sensitive:
        raise PropertyError("blame: robustness has no sensitive attributes")
    if label is None:
        return None
    if data is None:
        raise SpaceError(f"label: '{label}' is a column of data, and there are none; give data as well")
    two_classes(grid, "the log-loss")
    return labels_of(table_of(data), label, grid.ensemble)


def _read(grid: AnyGrid, data: Any, label: str | None) -> Labelled | None:
    y = checked_labels(grid, data, label)
    if data is None:
        return None
    read = read_rows(grid, table_of(data))
    if not read.inside.any():
        why = next((text for text in read.rows.why if text), "")
        raise SpaceError(f"data: none of the {len(read.inside)} rows lies in the space{f': {why}' if why else ''}")
    values = GridValues(grid)
    X = values.matrix(values.columns(read.rows))[read.inside]
    return Labelled(grid.ensemble, X, None if y is None else y[read.inside], int((~read.inside).sum()))


def _candidates(ensemble: TreeEnsemble, trees: list[SensitiveTree], cells: Cells, splits: bool) -> list[_Candidate]:
    """All trees first, then their splits."""
    found = [_Candidate(tree.tree, None, (), "", without(ensemble, tree.sides), len(tree.splits)) for tree in trees]
    for tree in trees if splits else []:
        for number, split in enumerate(tree.splits):
            text = cells.text(split.nodes[0])
            found.append(_Candidate(tree.tree, number, split.nodes, text, without(ensemble, split.sides)))
    return found


def _answers(
    asked: Asked, candidates: list[_Candidate], budget: TimeBudget, progress: Watcher | None
) -> list[Result | None]:
    def ask(candidate: _Candidate, limit: float | None) -> Result | None:
        limits = replace(asked.limits, time_limit=limit, require=None)
        watcher = None if progress is None else _named(progress, candidate.name, limit)
        model = ImportedModel(candidate.model, asked.model.source, fills=asked.model.fills)
        try:
            return measure(
                model, asked.grid.space, asked.grid.property, engine=asked.engine, limits=limits, options=asked.options,
                progress=watcher,
            )  # fmt: skip
        except KeyboardInterrupt:
            return None  # what is answered so far is kept

    return asked_in_turn(
        budget, candidates, ask,
        again=lambda candidate, _, limit: ask(candidate, limit),
        is_open=lambda _, answer: answer is not None and answer.status is Status.TIME,
        stopped=lambda answer: answer is None or answer.status is Status.INTERRUPTED,
    )  # fmt: skip


def _named(progress: Watcher, name: str, limit: float | None) -> Callable[[Progress], None]:
    return lambda moment: progress(name, limit, moment)


def _line(
    candidate: _Candidate, ensemble: TreeEnsemble, result: Result, answer: Result | None, bought: float | None
) -> dict[str, Any]:
    before = _unfair(result)
    after = (Fraction(0), Fraction(1)) if answer is None else _unfair(answer)
    ends = [0.0, 1.0] if answer is None else _ends(answer)
    level = candidate.nodes[0] if len(candidate.nodes) == 1 else None
    return {
        "tree": candidate.tree,
        "split": candidate.text,
        "node": None if level is None else int(ensemble.node_id[level]),
        "splits": candidate.splits,
        "removed_lower": down(before[0] - after[1]),
        "removed_upper": up(before[1] - after[0]),
        "measure_lower": ends[0],
        "measure_upper": ends[1],
        "log_loss": np.nan if bought is None else bought,
        "converged": answer is not None and answer.converged,
        "status": NOT_ASKED if answer is None else str(answer.status),
    }


def _unfair(result: Result) -> tuple[Fraction, Fraction]:
    unfair = Fraction(result.decided.unfair)
    return unfair, unfair + result.decided.undecided


def _ends(result: Result) -> list[float]:
    """The bounds of the measure; NaN where nothing is confident."""
    ends = result.decided.measure()
    return [np.nan, np.nan] if result.undefined or ends is None else [down(ends[0]), up(ends[1])]


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    """Trees by the unfair mass that blinding them removes, each followed by its splits in that order."""
    whole = table["split"] == ""
    middle = table["removed_lower"] + table["removed_upper"]
    of_tree = table["tree"].map(middle[whole].set_axis(table.loc[whole, "tree"]))
    order = np.lexsort((table.index, -middle, ~whole, table["tree"], -of_tree))
    return table.iloc[order].reset_index(drop=True)
