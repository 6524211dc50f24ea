"""`repair`, and the repaired model with everything that can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from boxqte.answers.quantify import limits_of
from boxqte.api.gate import Policy
from boxqte.api.quantify import Quantification, quantify
from boxqte.auditing import policy as policies
from boxqte.auditing.policy import RatioRequirement, Requirement, share
from boxqte.basics.checks import by_name, file_path, function, seconds, whole
from boxqte.engines import DEFAULT_ENGINE, engine_class
from boxqte.errors import CheckpointError, EngineError, PolicyError, SpaceError
from boxqte.exact import Number, shown
from boxqte.models.decision import Threshold
from boxqte.models.importers import load_model
from boxqte.questions.properties import Property
from boxqte.repairing import repair as repairs
from boxqte.repairing.fitting import scipy_parts
from boxqte.repairing.goals import ON, Asking, Goal, On
from boxqte.repairing.methods import METHODS, Method
from boxqte.repairing.workshop import Step
from boxqte.report.repair import repair_text
from boxqte.space.populations import number_of_components
from boxqte.space.space import Space, read_space
from boxqte.space.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

Wanted = Property | Policy | str | Path | Requirement | Sequence[Any]


class Repair(repairs.Repair):
    """The repaired model, what is proved of it, and what it costs.

    `print(repair)` is the report, `repair.model` the model as an object of its own library, `repair.save(path)` writes it
    in the format of its source.

    Attributes
    ----------
    met
        Whether every requirement is proved of the model as saved and read again.
    before, after
        For each requirement what is proved of the model before and after: `lower` and `upper` (exact numbers, certain
        bounds), `verdict`, `why`, and `result`, the answer of `quantify`.
    quality_before, quality_after
        On the held-out rows: `accuracy`, `auc`, `log_loss`, `positive_rate`, `rows`.
    rows_before, rows_after
        For each requirement how many of the held-out rows that are `confident` are treated so (`fair`), exactly.
    changed_rows
        How many of the held-out rows are decided otherwise than before.
    changed_space, changed_mass
        The same over the whole space: an answer of `quantify` about both models together, whose counterexamples are the
        inputs that they decide differently (`changed_regions` says where), and certain bounds on their mass.
    who
        A table with one line a group of the held-out rows: rates, accuracies, and how many decisions went which way.
    points
        With `path` one point a level, each with a `written` model; else one. `to_frame()` is the table.
    share
        How much of the repaired model is in the result, where a requirement below 1 needs only a part of it.
    rounds, seconds, stopped
        How many models were measured, how long it took, and what ended it early (None: nothing).
    """

    @classmethod
    def of(cls, found: repairs.Repair) -> Self:
        """The same repair, with everything that can be asked of it."""
        return cls(**{f.name: getattr(found, f.name) for f in fields(found)})

    def changed_regions(self, top: int = 10, *, time_limit: float | None = None) -> pd.DataFrame:
        """Hot spots of change: the regions of the space with the most changed decisions; as `Quantification.regions`."""
        if self.changed_space is None:
            raise EngineError("changed_regions: nothing was changed, or the space counts cells")
        return Quantification.of(self.changed_space).regions(top, flip=False, time_limit=time_limit)

    def certificate(self, path: str | Path, *, time_limit: float | None = None) -> Quantification:
        """Write a proof of the repaired model's measure, which `boxqte certify` checks; epsilon = 0, of the first requirement."""
        goal = self.goals[0]
        return quantify(
            self.written.imported,
            self.space,
            goal.property,
            certificate=path,
            time_limit=time_limit,
            require=goal.at_least,
        )

    def plot_path(self, *, ax: Any = None, against: str = "accuracy") -> Any:
        """Draw the trade-off with matplotlib; see `boxqte.report.plots.plot_path`."""
        from boxqte.report.plots import plot_path

        return plot_path(self.to_frame(), ax=ax, against=against)

    def __repr__(self) -> str:
        said = "met" if self.met else "not met"
        cost = 100 * (self.quality_after.accuracy - self.quality_before.accuracy)
        changed = 100 * self.changed_rows / self.quality_after.rows
        goals = "; ".join(str(goal) for goal in self.goals)
        return (
            f"Repair({goals}: {said}, {self.method}; accuracy {cost:+.2f} points, {changed:.2f} % of decisions changed)"
        )

    def __str__(self) -> str:
        return repair_text(self)


def repair(
    model: object,
    data: Any,
    property: Wanted,
    at_least: Number | None = None,
    *,
    label: str | None = None,
    method: Method = "auto",
    on: On = "space",
    space: Space | Mapping[str, Any] | str | Path | None = None,
    rules: str | Iterable[str] = (),
    test: Any = None,
    path: Iterable[Number] | None = None,
    random_state: int = 0,
    time_limit: float | None = None,
    progress: Callable[[Step], None] | None = None,
    checkpoint: str | Path | None = None,
    engine: str = DEFAULT_ENGINE,
    workers: int | None = None,
    memory_limit: int | None = None,
    infer: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    threshold: Threshold | None = None,
    changed_seconds: float | None = repairs.CHANGED_SECONDS,
    components: int | str = 1,
) -> Repair:
    """Change a model so that it provably meets a requirement, with few changed decisions (docs/repair.md).

    Parameters
    ----------
    model
        A fitted model or pipeline (XGBoost, LightGBM, CatBoost, scikit-learn), or the path of a model file.
    data
        The training table, or the path of a CSV or Parquet file: the repair counts and fits on its rows.
    property
        `Fairness(...)`, `Robustness(...)` or `ScoreFairness(...)`; or several requirements at once: a list of (property,
        at_least), of `Requirement`, a `Policy` or its file.
    at_least
        The least share of the confident inputs that must be treated so; 1 where it is left out.
    label
        The target column of the data; left out, that of the space.
    method
        'prune' (no tree tests a sensitive attribute any more, and the leaves are fitted to the original's probabilities),
        'average' (over the sensitive values; changes no decision that was fair), 'refit' (leaf values only, for epsilon >
        0 and robustness), or 'auto': prune where epsilon is 0, else refit.
    on
        What the share is of: 'space', 'population' (the space with the frequencies of the data, or a mixture of
        `components`), or the 'rows' themselves.
    space
        The input space; left out, it is inferred from the data.
    rules
        What every input must keep, beside the rules of the space and of the policy (`Space.with_rules`).
    test
        Rows that neither the model nor the repair has seen (a table or a path), to say what it costs. Left out, 30 % of
        the data are held out from the repair.
    path
        Levels of `at_least`, such as [.95, .98, .99, 1]: the trade-off between the measure, accuracy and changed decisions.
        The result is the model of the highest level.
    random_state
        The seed of everything that is drawn.
    time_limit
        Seconds for everything but the last report; then the best model so far is returned, and `met` says what it is.
    progress
        Called with a Step now and then.
    checkpoint
        A file that is written after every round; if it is there already, the repair goes on from it.
    engine, workers, memory_limit, allow_pickle, threshold
        As for `quantify`.
    infer
        Further arguments of `Space.infer`, where the space is inferred.
    changed_seconds
        Seconds for the exact mass of changed decisions in the space; None is no limit.
    components
        With on="population": how many products it is a mixture of (`Population.fit`), or "auto"; 1 has no correlations.

    Returns
    -------
    Repair

    Examples
    --------
    >>> import numpy as np
    >>> from boxqte import Fairness, repair
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> rng = np.random.default_rng(0)
    >>> people = {"income": rng.integers(0, 1000, 200) * 1.0, "race": rng.integers(0, 3, 200), "age": rng.integers(18, 80, 200)}
    >>> people["granted"] = (people["income"] > 500).astype(int)
    >>> found = repair(loan_ensemble(), people, Fairness("race"), label="granted", space=loan_space())
    >>> found.met, float(found.after[0].lower)
    (True, 1.0)
    """
    scipy_parts()
    if isinstance(property, (str, Path)):
        property = Policy.load(property)
    rule = property.threshold if threshold is None and isinstance(property, policies.Policy) else threshold
    goals = _goals(property, at_least, on)
    levels = None if path is None else _levels(path, at_least)
    if method not in METHODS:
        raise EngineError(f"method: '{method}' is unknown; methods are {', '.join(METHODS)}")
    engine_class(engine)
    seed = whole(random_state, "random_state", 0)
    limits = limits_of(workers=workers, memory_limit=memory_limit)
    source = Path(model) if isinstance(model, str) else model
    imported = load_model(source, allow_pickle=allow_pickle, threshold=rule)
    frame, tested = _frame(data, "data"), None if test is None else _frame(test, "test")
    names = list(dict.fromkeys(name for goal in goals for name in goal.property.sensitive))
    if space is None:
        given = by_name(infer, "infer", SpaceError)
        bound = Space.infer(frame, label=label, sensitive=names, model=imported, **given).space
    else:
        bound = read_space(space)
    own = property.rules if isinstance(property, policies.Policy) else ()
    bound = policies.ruled(bound, rules, own)
    target = label if label is not None else bound.label
    if target is None:
        raise SpaceError("label: is missing; give the target column of the data")
    order = repairs.Order(
        source,
        imported,
        goals,
        bound,
        repairs.split_rows(frame, tested, seed),
        target,
        method,
        levels,
        seed,
        Asking(engine, limits),
        seconds(time_limit),
        function(progress, "progress"),
        None if checkpoint is None else file_path(checkpoint, "checkpoint", CheckpointError),
        allow_pickle,
        rule,
        seconds(changed_seconds, "changed_seconds"),
        1 if components == 1 else number_of_components(components) or "auto",
    )
    return Repair.of(repairs.repair_model(order))


def _frame(given: Any, what: str) -> Any:
    if given is None:
        raise SpaceError(f"{what}: is missing; a repair fits to the training rows")
    return read_table(given) if isinstance(given, (str, Path)) else given


def _levels(path: Iterable[Number], at_least: Number | None) -> tuple[Fraction, ...]:
    if at_least is not None:
        raise EngineError("path: has the levels; leave at_least out")
    if isinstance(path, (str, bytes)) or not isinstance(path, Iterable):
        raise EngineError(f"path: expected levels such as [0.95, 0.99, 1], found {shown(path)}")
    levels = sorted({share(level, "path") for level in path})
    if not levels:
        raise EngineError("path: has no level; expected some such as [0.95, 0.99, 1]")
    return tuple(levels)


def _goals(wanted: Wanted, at_least: Number | None, on: On) -> tuple[Goal, ...]:
    """The requirements that the arguments mean."""
    if on not in ON:
        raise EngineError(f"on: '{on}' is unknown; it is one of {', '.join(ON)}")
    if isinstance(wanted, Property):
        level = share(1 if at_least is None else at_least, "at_least")
        return (Goal(wanted, level, on),)
    if at_least is not None:
        raise EngineError("at_least: every requirement has its own; leave it out")
    requirements: Iterable[Any]
    if isinstance(wanted, policies.Policy):
        requirements = wanted.requirements
    elif isinstance(wanted, Requirement):
        requirements = [wanted]
    elif isinstance(wanted, Iterable) and not isinstance(wanted, str):
        requirements = wanted
    else:
        raise PolicyError(
            f"property: expected Fairness(...) and the like, requirements or a policy, found {shown(wanted)}"
        )
    goals = []
    for given in requirements:
        if isinstance(given, RatioRequirement):
            raise PolicyError(f"requirement '{given.name}': a ratio of group rates cannot be repaired; leave it out")
        if isinstance(given, Requirement):
            goals.append(Goal(given.property, given.at_least, on, given.name))
        elif isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], Property):
            goals.append(Goal(given[0], share(given[1], "at_least"), on))
        else:
            raise PolicyError(f"property: expected (property, at_least), found {shown(given)}")
    if not goals:
        raise PolicyError("property: there is no requirement")
    return tuple(goals)
