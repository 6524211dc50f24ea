"""An audit: every question worth asking about a model, from the model and its training data, in one call.

The space is inferred from the data unless it is given. The questions are fairness in each sensitive attribute alone,
in all of them together, and robustness. They share the model as read, the space, and one time limit; and what one
proves tightens the others (see `_share_proofs`).
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxqte.budget import TimeBudget, asked_in_turn
from boxqte.checks import as_names, by_name, function, seconds
from boxqte.errors import PropertyError, SpaceError
from boxqte.exact import Number, fraction
from boxqte.policy import Check, GateReport, Policy, Requirement, Verdict, both_runs, judge, within_bounds
from boxqte.properties import Epsilon, Fairness, Property, Robustness, TieRule
from boxqte.result import Decided, ModelSummary, Quantification, Status
from boxqte.space import Space, read_space

if TYPE_CHECKING:
    import pandas as pd

    from boxqte.engines import Progress
    from boxqte.inference import Inference

TIME_LIMIT = 300.0
ROBUSTNESS_RATE = Fraction(1, 100)
REPORT_SHARE = 0.3  # of the time limit, where a report is to be made
REPORT_SECONDS = 60.0  # for a report that nobody said was to be made; or as long as the audit took
FINISH_SECONDS = 0.5  # for what comes behind the last search: putting the page together


@dataclass(frozen=True, eq=False)
class Question:
    """One question of an audit and its answer; None if it was not asked any more."""

    name: str
    property: Property
    result: Quantification | None = None

    @builtins.property
    def status(self) -> str:
        return "not asked: interrupted" if self.result is None else str(self.result.status)


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """The answers of an audit, in the order of the questions.

    `print(audit)` is a table, `to_frame()` a pandas table, `save_html(path)` the report. Like a mapping, it iterates over
    the questions' names, and `audit[name]` is a question's result; `results` has them all.
    """

    questions: tuple[Question, ...]
    space: Space
    model: ModelSummary
    inference: Inference | None = None
    gate: GateReport | None = None
    command: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    clock: TimeBudget | None = field(default=None, repr=False)
    """The time limit of the audit, where some of it is kept for the report."""

    def __iter__(self) -> Iterator[str]:
        """The questions' names, as a mapping has its keys; `audit[name]` is the result."""
        return (q.name for q in self.questions)

    def __len__(self) -> int:
        return len(self.questions)

    def __contains__(self, name: object) -> bool:
        return name in [q.name for q in self.questions]

    def keys(self) -> tuple[str, ...]:
        """The questions' names."""
        return tuple(self)

    def __getitem__(self, name: str) -> Quantification:
        for question in self.questions:
            if question.name == name and question.result is not None:
                return question.result
        raise KeyError(f"'{name}' is no answered question; they are {', '.join(q.name for q in self.questions)}")

    @property
    def results(self) -> tuple[Quantification, ...]:
        """The results of all questions that were asked."""
        return tuple(q.result for q in self.questions if q.result is not None)

    @property
    def interrupted(self) -> bool:
        return any(result.status is Status.INTERRUPTED for result in self.results)

    def to_frame(self) -> pd.DataFrame:
        """One row a question: bounds, value, the statistical interval, status, seconds, remarks, and the verdict where
        something is required. `lower`, `upper` and `value` are certain; `statistical_...` hold with the `confidence`."""
        import pandas as pd

        rows = []
        for question in self.questions:
            r = question.result
            row: dict[str, Any] = {"question": question.name, "property": str(question.property)}
            row |= {"lower": None if r is None else r.lower, "upper": None if r is None else r.upper}
            row |= {"value": None if r is None else r.value}
            drawn = None if r is None else r.statistical
            row |= {"statistical_lower": None if drawn is None else drawn.lower}
            row |= {"statistical_upper": None if drawn is None else drawn.upper}
            row |= {"confidence": None if drawn is None else drawn.confidence, "status": question.status}
            row |= {"seconds": None if r is None else r.seconds, "remarks": "" if r is None else " ".join(r.remarks)}
            if self.gate is not None:
                row["verdict"] = ", ".join(str(c.verdict) for c in self.checks_of(question))
            rows.append(row)
        return pd.DataFrame(rows)

    def checks_of(self, question: Question) -> list[Check]:
        """What is required of the question's property."""
        if self.gate is None:
            return []
        return [check for check in self.gate.checks if check.requirement.property == question.property]

    def to_json(self) -> dict[str, Any]:
        """Everything as a JSON object (the format of `boxqte audit --json`)."""
        return {
            "model": vars(self.model),
            "space": {"fingerprint": self.space.fingerprint(), **self.space.to_json()},
            "questions": [
                {"name": q.name, "result": None if q.result is None else q.result.to_json()} for q in self.questions
            ],
            "gate": None if self.gate is None else self.gate.to_json(),
            "command": self.command,
        }

    def save(self, path: str | Path) -> None:
        """Write the JSON form."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    def to_html(self, *, time_limit: float | None = None, progress: Callable[[str], None] | None = None) -> str:
        """The report: one self-contained page.

        Parameters
        ----------
        time_limit
            Seconds for the searches behind the report. None is what is left of the audit's own limit, if it was told to
            keep some (`report=True`); else a minute, or as long as the questions took.
        progress
            Called with a few words whenever something else is begun.
        """
        from boxqte.report.html import audit_page

        if time_limit is None:
            time_limit = self._report_seconds()
        return audit_page(self, seconds=time_limit, say=progress)

    def _report_seconds(self) -> float:
        if self.clock is not None and self.clock.seconds is not None:
            return max(self.clock.left - FINISH_SECONDS, 0.0)
        return max(REPORT_SECONDS, sum(result.seconds for result in self.results))

    def save_html(self, path: str | Path, *, time_limit: float | None = None) -> None:
        """Write the report."""
        Path(path).write_text(self.to_html(time_limit=time_limit), encoding="utf-8")

    def _repr_html_(self) -> str:
        from boxqte.report.notebook import audit_html

        return audit_html(self)

    def __repr__(self) -> str:
        answers = (f"{row[0]}: {', '.join(part for part in row[1:3] if part)}" for row in self._answers())
        return f"Audit({self.model.source or self.model.library}; {'; '.join(answers)})"

    def table(self) -> list[list[str]]:
        """What `print(audit)` shows: the head, then a row a question; columns that nothing has are left out."""
        shown = [True, True, any(r.statistical is not None for r in self.results), True, True, self.gate is not None]
        rows = [["question", "measure", "statistical", "status", "seconds", "verdict"], *self._answers()]
        return [[cell for cell, wanted in zip(row, shown) if wanted] for row in rows]

    def _answers(self) -> list[list[str]]:
        from boxqte.numbers import SHORT
        from boxqte.printing import measure_text, numbered_remarks, statistical_text

        remarks = numbered_remarks(self.results)
        rows = []
        for question in self.questions:
            r = question.result
            row = [question.name, "", "", question.status, ""]
            if r is not None:
                name = question.name + "".join(f" [{remarks[remark]}]" for remark in r.remarks)
                row = [name, measure_text(r, SHORT), statistical_text(r), question.status, f"{r.seconds:.1f}"]
            rows.append([*row, ", ".join(str(c.verdict) for c in self.checks_of(question))])
        return rows

    def __str__(self) -> str:
        from boxqte.printing import numbered_remarks, table_text

        return "\n".join(
            [table_text(self.table()), *(f"[{n}] {remark}" for remark, n in numbered_remarks(self.results).items())]
        )


def audit(
    model: object,
    data: Any = None,
    *,
    sensitive: str | Iterable[str],
    space: Space | Mapping[str, Any] | str | Path | None = None,
    label: str | None = None,
    epsilon: Number | Mapping[str, Number] = 0,
    kappa: Number = Fraction(1, 2),
    tie: TieRule = "library",
    robustness: Number | Mapping[str, Number] | None = None,
    policy: Policy | str | Path | None = None,
    require: Number | None = None,
    time_limit: float | None = TIME_LIMIT,
    report: bool = False,
    engine: str | None = None,
    workers: int | None = None,
    n_jobs: int | None = None,
    memory_limit: int | None = None,
    infer: Mapping[str, Any] | None = None,
    progress: Callable[[str, float | None, Progress], None] | None = None,
    allow_pickle: bool = False,
    command: str = "",
) -> Audit:
    """Ask about each sensitive attribute alone, all of them together, and robustness.

    Parameters
    ----------
    model
        A fitted model or pipeline, the path of a model file, or a TreeEnsemble.
    data
        The training table (pandas, polars, ...), or the path of a CSV or Parquet file, to infer the space from.
    sensitive
        The sensitive attribute or attributes.
    space
        The space, instead of `data`.
    label
        The target column of the data.
    epsilon, kappa, tie
        As for `Fairness`; of all fairness questions.
    robustness
        The tolerance of the robustness question; None is `epsilon`, or one hundredth of each range if that is 0; 0
        leaves the question out.
    policy
        A policy or its file: its requirements are asked as well, and judged.
    require
        The least measure of every fairness question; with it, or with a policy, `audit.gate` has the verdicts.
    time_limit
        Seconds for everything: reading, inferring the space, and all questions, of which each gets its share of what is
        left; what is left in the end goes to the open ones. None is no limit.
    report
        Keep a part of the time for the report (`to_html`, `save_html`), which then ends within the limit too.
    engine, workers, n_jobs, memory_limit, allow_pickle
        As for `quantify`.
    infer
        Further arguments of `Space.infer`, such as `{"categorical": ["race"]}`.
    progress
        Called with the question's name, its time limit and a Progress now and then.
    command
        The command line, for the report.

    Returns
    -------
    Audit

    Examples
    --------
    >>> from boxqte import audit
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> found = audit(loan_ensemble(), space=loan_space(), sensitive=["race", "age"], engine="exhaustive", robustness=0)
    >>> print(found.to_frame()[["question", "value"]].to_string(index=False))
     question   value
         race 0.69703
          age 0.76000
    race, age 0.40000
    """
    clock = TimeBudget(seconds(time_limit))
    from boxqte.engines import DEFAULT_ENGINE
    from boxqte.importers import load_model
    from boxqte.quantification import quantify, summary

    imported = load_model(model, allow_pickle=allow_pickle)
    names = as_names(sensitive, "sensitive", PropertyError)
    function(progress, "progress")
    bound, inference = _space(space, data, label, names, imported, by_name(infer, "infer", SpaceError))
    asked = _questions(names, epsilon, kappa, tie, robustness)
    requirements = _requirements(policy, require, asked)
    known = {prop for _, prop in asked}
    asked += [(r.name, r.property) for r in requirements if r.property not in known and not known.add(r.property)]  # type: ignore[func-returns-value]
    for _, prop in asked:
        prop.check(bound)

    def ask(question: tuple[str, Property], limit: float | None) -> Quantification:
        name, prop = question
        watcher = None if progress is None else _named(progress, name, limit)
        return quantify(
            imported, bound, prop, engine=engine or DEFAULT_ENGINE, time_limit=limit, workers=workers,
            n_jobs=n_jobs, memory_limit=memory_limit, progress=watcher,
        )  # fmt: skip

    kept = 0.0 if clock.seconds is None else clock.seconds * (REPORT_SHARE if report else 0.0)
    results = asked_in_turn(
        TimeBudget(None if clock.seconds is None else max(clock.left - kept, 0.0)),
        asked,
        ask,
        again=lambda question, before, limit: both_runs(before, ask(question, limit)),
        is_open=lambda _, result: result.status is Status.TIME,
        stopped=lambda result: result.status is Status.INTERRUPTED,
    )
    questions = _share_proofs([Question(name, prop, r) for (name, prop), r in zip(asked, results)])
    gate = None
    if requirements:
        by_property = {q.property: q.result for q in questions}
        source = policy.source if isinstance(policy, Policy) else str(policy or "")
        checks = tuple(_judged(r, by_property[r.property], clock.left - kept) for r in requirements)
        gate = GateReport(checks, imported.source, source)
    return Audit(questions, bound, summary(imported), inference, gate, command, clock=clock if report else None)


def _named(
    progress: Callable[[str, float | None, Progress], None], name: str, limit: float | None
) -> Callable[[Progress], None]:
    return lambda moment: progress(name, limit, moment)


def _space(
    space: Any, data: Any, label: str | None, names: Sequence[str], model: Any, infer: Mapping[str, Any]
) -> tuple[Space, Inference | None]:
    if (space is None) == (data is None):
        raise SpaceError("audit: give the training data, or the space; one of the two")
    if space is not None:
        return read_space(space), None
    from boxqte.inference import infer_space
    from boxqte.tables import read_table

    frame = read_table(data) if isinstance(data, (str, Path)) else data
    inference = infer_space(frame, label=label, sensitive=names, model=model, **infer)
    return inference.space, inference


def _questions(
    names: Sequence[str], epsilon: Any, kappa: Any, tie: TieRule, robustness: Any
) -> list[tuple[str, Property]]:
    if not names:
        raise PropertyError("sensitive: no attribute is named; expected at least one")
    Fairness(names, epsilon, kappa, tie=tie)  # refuses a name that is given twice, before it is asked alone
    questions: list[tuple[str, Property]] = [
        (name, Fairness(name, _without(epsilon, names, name), kappa, tie=tie)) for name in names
    ]
    if len(names) > 1:
        questions.append((", ".join(names), Fairness(names, _without(epsilon, names, None), kappa, tie=tie)))
    tolerance = _robustness(robustness, Fairness(names, epsilon, kappa).epsilon)
    if tolerance is not None:
        questions.append(("robustness", Robustness(tolerance, kappa, tie=tie)))
    return questions


def _without(epsilon: Any, names: Sequence[str], name: str | None) -> Any:
    """Tolerances per attribute, less those of the attributes that are sensitive in the question."""
    if not isinstance(epsilon, Mapping):
        return epsilon
    gone = names if name is None else (name,)
    return {key: value for key, value in epsilon.items() if key not in gone}


def _robustness(given: Any, epsilon: Epsilon) -> Any:
    if given is None:
        if isinstance(epsilon, Fraction):
            return epsilon or ROBUSTNESS_RATE
        return dict(epsilon) or ROBUSTNESS_RATE
    if isinstance(given, Mapping):
        return given
    return fraction(given, PropertyError, "robustness") or None


def _requirements(policy: Any, require: Any, asked: Sequence[tuple[str, Property]]) -> list[Requirement]:
    own = [] if require is None else [Requirement(p, require, name=name) for name, p in asked if p.sensitive]
    if policy is None:
        return own
    read = policy if isinstance(policy, Policy) else Policy.load(policy)
    return own + list(read.requirements)


def _judged(requirement: Requirement, result: Quantification | None, seconds: float) -> Check:
    if result is None:
        return Check(requirement, Verdict.UNDECIDED, why="not asked: interrupted")
    return judge(requirement, result, seconds=seconds)


def _share_proofs(questions: Sequence[Question]) -> tuple[Question, ...]:
    """What one question proves, others may use.

    Let A be a subset of B, and the rest of the two questions alike. An x' that differs from x in some attribute of A
    and is within epsilon elsewhere is admissible for B too, where more attributes may move freely. So a counterexample
    for A is one for B, and an input that is fair for B is fair for A. X_kappa depends on kappa and the tie rule alone.
    """
    shared = []
    for question in questions:
        result = question.result
        if result is None or result.converged:
            shared.append(question)
            continue
        decided = result.decided
        helped = []
        for other in questions:
            if other is question or other.result is None:
                continue
            better = _helped(question.property, decided, other.property, other.result.decided)
            if better != decided:
                decided = better
                helped.append(other.name)
        if helped:
            ends = decided.measure()
            details = {**result.details, "bounds_from": helped}
            result = within_bounds(replace(result, decided=decided, details=details))
            if ends is not None and result.bounds is not None:
                last = (result.seconds, result.bounds.lower, result.bounds.upper)
                result = replace(result, trace=(*result.trace, last))
        shared.append(replace(question, result=result))
    return tuple(shared)


def _helped(prop: Property, decided: Decided, other: Property, proved: Decided) -> Decided:
    """The decided masses of a question with what another one has proved."""
    if (prop.kappa, prop.tie) != (other.kappa, other.tie):
        return decided
    low = max(decided.low, proved.low)
    fair, unfair = decided.fair, decided.unfair
    if prop.sensitive and other.sensitive and prop.epsilon == other.epsilon:
        if set(other.sensitive) <= set(prop.sensitive):
            unfair = max(unfair, proved.unfair)
        if set(other.sensitive) >= set(prop.sensitive):
            fair = max(fair, proved.fair)
    return Decided(fair, unfair, low)
