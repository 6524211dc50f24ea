"""An audit: every question worth asking about a model, from the model and its training data, in one call.

The space is inferred from the data unless it is given. The questions are fairness in each sensitive attribute alone,
in all of them together, and robustness; scores and monotone attributes where they are asked for; and every monotone
constraint that the model itself declares. They share the model as read, the space, and one time limit; and what one
proves tightens the others (see `_share_proofs`).
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxqte.answers.empirical import Empirical
from boxqte.answers.quantify import measure, summary
from boxqte.answers.rates import GroupRates, RowRates, group_rates
from boxqte.answers.result import ModelSummary, Result
from boxqte.answers.verdict import Verdict
from boxqte.auditing.description import DataDescription
from boxqte.auditing.findings import Findings
from boxqte.auditing.policy import (
    VERIFY_SECONDS,
    Check,
    GateReport,
    Policy,
    RatioRequirement,
    Requirement,
    both_runs,
    judge,
    no_counterexample,
    rates_check,
    within_bounds,
)
from boxqte.auditing.worlds import POPULATION, Worlds, row_answers, world_sentences
from boxqte.basics.budget import TimeBudget, asked_in_turn
from boxqte.basics.checks import by_name
from boxqte.engines.protocol import Decided, Limits, Progress, Status
from boxqte.errors import PropertyError, SpaceError
from boxqte.exact import fraction
from boxqte.models.importers import ImportedModel
from boxqte.questions.properties import Epsilon, Fairness, Monotonicity, Property, Robustness, TieRule
from boxqte.questions.reading import monotone_of, read_property
from boxqte.space.populations import Population
from boxqte.space.space import Inference, Space, read_space

if TYPE_CHECKING:
    import pandas as pd

TIME_LIMIT = 300.0
ROBUSTNESS_RATE = Fraction(1, 100)
REPORT_SHARE = 0.3  # of the time limit, where a report is to be made
REPORT_SECONDS = 60.0  # for a report that nobody said was to be made; or as long as the audit took
ANSWER = ("lower", "upper", "value", "statistical_lower", "statistical_upper", "confidence", "status", "seconds", "remarks",
          "caveats")  # fmt: skip
FINISH_SECONDS = 0.5  # for what comes behind the last search: putting the page together
ALONE = Worlds()


@dataclass(frozen=True, eq=False)
class Question:
    """One question of an audit and its answer; None if it was not asked any more."""

    name: str
    property: Property
    result: Result | None = None
    population: Result | None = None
    """The same question over the population that was fitted to the data, if it was."""
    rows: Empirical | None = None
    """The same question for the rows of the data."""

    @builtins.property
    def status(self) -> str:
        return "not asked: interrupted" if self.result is None else str(self.result.status)


@dataclass(frozen=True)
class Signed:
    """Who answers for an audit, when and what for; empty where nobody said."""

    author: str = ""
    reviewer: str = ""
    purpose: str = ""
    date: str = ""
    """ISO 8601, with the time zone."""

    def to_json(self) -> dict[str, str]:
        """The fields as a JSON object."""
        return asdict(self)


NOBODY = Signed()


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """The answers of an audit, in the order of the questions.

    `print(audit)` is a table, `to_frame()` a pandas table, `save_html(path)` the report. Like a mapping, it iterates over
    the questions' names, and `audit[name]` is a question's result; `results` has them all.
    """

    questions: tuple[Question, ...]
    space: Space
    model: ModelSummary
    rates: tuple[GroupRates, ...] = ()
    """The rates of class 1 by each sensitive attribute; none for a model of three and more classes."""
    row_rates: tuple[RowRates, ...] = ()
    """The rates in the rows alone, by each sensitive attribute and by all of them together."""
    inference: Inference | None = None
    gate: GateReport | None = None
    command: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What could not be asked, and why."""
    clock: TimeBudget | None = field(default=None, repr=False)
    """The time limit of the audit, where some of it is kept for the report."""
    population: Population | None = None
    """What was fitted to the data, for the questions' second world."""
    data: Any = field(default=None, repr=False)
    """The table, where its rows were asked about."""
    description: DataDescription | None = None
    signed: Signed = NOBODY
    class_names: tuple[str, ...] = ()
    """What the report calls the classes; empty: as the model does."""
    findings: tuple[Findings, ...] = field(default=(), repr=False)
    """What a report shows beyond the answers, for each question, where it was gathered (`gathered`)."""

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: a clock does not go on elsewhere."""
        return {**vars(self), "clock": None}

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

    def __getitem__(self, name: str) -> Result:
        for question in self.questions:
            if question.name == name and question.result is not None:
                return question.result
        raise KeyError(f"'{name}' is no answered question; they are {', '.join(q.name for q in self.questions)}")

    @property
    def results(self) -> tuple[Result, ...]:
        """The results of all questions that were asked."""
        return tuple(q.result for q in self.questions if q.result is not None)

    @property
    def interrupted(self) -> bool:
        statuses = [result.status for result in self.results] + [rates.status for rates in self.rates]
        return Status.INTERRUPTED in statuses

    def to_frame(self) -> pd.DataFrame:
        """One row a question: bounds, value, the statistical interval, status, seconds, remarks, and the verdict where
        something is required. `lower`, `upper` and `value` are certain; `statistical_...` hold with the `confidence`."""
        import pandas as pd

        rows = []
        for question in self.questions:
            row: dict[str, Any] = {"question": question.name, "property": str(question.property)}
            row |= dict.fromkeys(ANSWER) if question.result is None else question.result.to_row()
            row["status"] = question.status
            if self.population is not None:
                people = question.population
                row |= {"population_lower": None if people is None else people.lower}
                row |= {"population_upper": None if people is None else people.upper}
            if self.data is not None:
                own = question.rows
                row |= {
                    f"rows_{end}": None if own is None else getattr(own, end) for end in ("measure", "lower", "upper")
                }
            if self.gate is not None:
                row["verdict"] = ", ".join(str(c.verdict) for c in self.checks_of(question))
            rows.append(row)
        return pd.DataFrame(rows)

    def checks_of(self, question: Question) -> list[Check]:
        """What is required of the question's property."""
        if self.gate is None:
            return []
        return [c for c in self.gate.checks if c.rates is None and c.requirement.property == question.property]

    def to_json(self) -> dict[str, Any]:
        """Everything as a JSON object (the format of `boxqte audit --json`)."""
        return {
            "model": self.model.to_json(),
            "space": {"fingerprint": self.space.fingerprint(), **self.space.to_json()},
            "worlds": dict(self.worlds),
            "population": None if self.population is None else self.population.to_json(),
            "questions": [
                {
                    "name": q.name,
                    "result": None if q.result is None else q.result.to_json(),
                    "population": None if q.population is None else q.population.to_json(),
                    "rows": None if q.rows is None else q.rows.to_json(),
                    **({"findings": self.findings[i].to_json()} if self.findings else {}),
                }
                for i, q in enumerate(self.questions)
            ],
            "rates": [rates.to_json() for rates in self.rates],
            "row_rates": [rates.to_json() for rates in self.row_rates],
            "inference": None if self.inference is None else self.inference.to_json(),
            "gate": None if self.gate is None else self.gate.to_json(),
            "notes": list(self.notes),
            "data": None if self.description is None else self.description.to_json(),
            "command": self.command,
            "signed": self.signed.to_json(),
        }

    @property
    def worlds(self) -> Mapping[str, str]:
        """The worlds that were asked about, each with the question that it answers."""
        rows = next((q.rows for q in self.questions if q.rows is not None), None)
        return world_sentences(self.space, self.population, rows)

    def save(self, path: str | Path) -> None:
        """Write the JSON form."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @property
    def report_seconds(self) -> float:
        if self.clock is not None and self.clock.seconds is not None:
            return max(self.clock.left - FINISH_SECONDS, 0.0)
        return max(REPORT_SECONDS, sum(result.seconds for result in self.results))


def _named(
    progress: Callable[[str, float | None, Progress], None], name: str, limit: float | None
) -> Callable[[Progress], None]:
    return lambda moment: progress(name, limit, moment)


def space_of(
    space: Any, data: Any, label: str | None, names: Sequence[str], model: Any, infer: Mapping[str, Any]
) -> tuple[Space, Inference | None]:
    """The space that is given, or else the one that the data says."""
    if space is None and data is None:
        raise SpaceError("audit: give the training data, the space, or both")
    if space is not None:
        return read_space(space).marked(names), None  # what no tree is given may be asked about beside the others
    inference = Space.infer(data, label=label, sensitive=names, model=model, **infer)
    return inference.space, inference


def questions_of(
    names: Sequence[str],
    epsilon: Any,
    kappa: Any,
    tie: TieRule,
    robustness: Any,
    further: Mapping[str, Any] | None = None,
) -> list[tuple[str, Property]]:
    """The questions by name. `further` are fields of questions/reading.py: what is asked beyond the plain ones."""
    if not names:
        raise PropertyError("sensitive: no attribute is named; expected at least one")
    given = {field: value for field, value in (further or {}).items() if value is not None}
    sure, bounds = given.get("partner_kappa", 0), by_name(given.get("max_change"), "max_change", PropertyError)

    def fairness(*sensitive: str) -> Fairness:
        rest = _without(epsilon, names, sensitive[0] if len(sensitive) == 1 else None)
        own = {name: most for name, most in bounds.items() if name in sensitive}
        return Fairness(sensitive, rest, kappa, tie=tie, partner_kappa=sure, max_change=own)

    # refuses a name that is given twice, before it is asked alone
    Fairness(names, epsilon, kappa, tie=tie, partner_kappa=sure, max_change=bounds)
    for name in bounds:
        if name not in names:
            raise PropertyError(f"max_change: '{name}' is not sensitive; sensitive are {', '.join(names)}")
    sets = [(name,) for name in names] + ([tuple(names)] if len(names) > 1 else [])
    questions: list[tuple[str, Property]] = [(", ".join(own), fairness(*own)) for own in sets]
    asked = {"kappa": kappa, "tie": tie, "on": given.get("on"), "scale": given.get("scale")}
    if "score_at_most" in given:
        fields = {"score_at_most": given["score_at_most"], "scale": asked["scale"], "kappa": kappa}
        questions += [(f"score by {', '.join(own)}", read_property({**fields, "sensitive": list(own)})) for own in sets]
    elif asked["scale"] is not None:
        read_property({"scale": asked["scale"]})  # says what is missing
    tolerance = _robustness(robustness, Fairness(names, epsilon, kappa).epsilon)
    if tolerance is not None:
        questions.append(("robustness", Robustness(tolerance, kappa, tie=tie, partner_kappa=sure)))
    if "monotone" in given:
        for name, way in monotone_of(given["monotone"]).items():
            fields = {"monotone": {name: way}, "on": asked["on"], "kappa": kappa, "tie": tie}
            prop = read_property(fields)
            questions.append((monotone_name(prop), prop))
    elif asked["on"] is not None:
        read_property({"on": asked["on"]})
    return questions


def monotone_name(prop: Property) -> str:
    """What an audit calls the question."""
    assert isinstance(prop, Monotonicity)
    return f"{prop.on} {prop.direction} in {prop.sensitive[0]}"


def declared_questions(model: ImportedModel, space: Space) -> tuple[list[tuple[str, Property]], list[str]]:
    """A question for each monotone constraint that the model declares, and notes on those that cannot be asked."""
    questions: list[tuple[str, Property]] = []
    notes = []
    for column, direction in model.monotone.items():
        attribute = next((a for a in space if [model.ensemble.own_name(c) for c in a.columns] == [column]), None)
        if not model.ensemble.is_binary:
            why = f"the model has {model.ensemble.n_outputs} margins"
        elif attribute is None or not attribute.is_numeric:
            why = "no number of the space is this column"
        else:
            prop = Monotonicity(attribute.name, direction, on="score")
            questions.append((f"{monotone_name(prop)} (declared)", prop))
            continue
        notes.append(f"the model declares that its score is {direction} in {column}: not asked, since {why}")
    return questions, notes


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


def requirements_of(policy: Policy | None, require: Any, asked: Sequence[tuple[str, Property]]) -> list[Requirement]:
    """What is required: of every fairness question, and by the policy."""
    own = [] if require is None else [Requirement(p, require, name=name) for name, p in asked if p.kind == "fairness"]
    return own if policy is None else own + list(policy.requirements)


def answered(
    imported: ImportedModel,
    space: Space,
    asked: Sequence[tuple[str, Property]],
    requirements: Sequence[Requirement],
    clock: TimeBudget,
    *,
    report: bool,
    engine: str,
    limits: Limits,
    progress: Callable[[str, float | None, Progress], None] | None = None,
    policy: str = "",
    worlds: Worlds = ALONE,
) -> Audit:
    """Every question asked within the time, in every world, and the requirements judged."""
    known = {prop for _, prop in asked}
    asked = [*asked]
    for requirement in requirements:
        if requirement.property not in known and not isinstance(requirement, RatioRequirement):
            known.add(requirement.property)
            asked.append((requirement.name, requirement.property))
    for _, prop in asked:
        prop.check(space)

    rows: list[Empirical | None] = [None] * len(asked)
    notes = list(worlds.notes)
    if worlds.data is not None:
        rows, said = row_answers(imported, space, [p for _, p in asked], worlds.data, clock, limits.workers)
        notes += said

    def ask(asking: Asking, limit: float | None, data: Any = worlds.data) -> Result | GroupRates:
        watcher = None if progress is None else _named(progress, asking.name, limit)
        if asking.property is not None:
            own = replace(limits, time_limit=limit)
            return measure(imported, asking.space, asking.property, engine=engine, limits=own, progress=watcher)
        return group_rates(
            imported,
            space,
            asking.rates_by,
            engine=engine if engine == "exhaustive" else "box",
            time_limit=limit,
            workers=limits.workers,
            memory_limit=limits.memory_limit,
            data=data,
            progress=watcher,
        )

    single = {p.sensitive: None for _, p in asked if isinstance(p, Fairness) and len(p.sensitive) == 1}
    required = {r.property.sensitive: None for r in requirements if isinstance(r, RatioRequirement)}
    groups = [*(single if imported.ensemble.is_binary else {}), *(names for names in required if names not in single)]
    turns = [Asking(name, space, prop) for name, prop in asked]
    if worlds.population is not None:
        turns += [Asking(f"{name}, {POPULATION}", worlds.population.space, prop) for name, prop in asked]
    turns += [Asking(f"group rates by {', '.join(names)}", space, None, names) for names in groups]
    kept = 0.0 if clock.seconds is None else clock.seconds * (REPORT_SHARE if report else 0.0)
    results = asked_in_turn(
        TimeBudget(None if clock.seconds is None else max(clock.left - kept, 0.0)),
        turns,
        ask,
        again=lambda asking, before, limit: _of_both(before, ask(asking, limit, None)),
        is_open=lambda _, result: result.status is Status.TIME,
        stopped=lambda result: result.status is Status.INTERRUPTED,
        undecided=lambda _, result: _undecided(result),
    )
    answers = [_proved(r, clock.left - kept) if isinstance(r, Result) else None for r in results]
    questions = _share_proofs([Question(name, prop, r) for (name, prop), r in zip(asked, answers)])
    if worlds.population is not None:
        others = _share_proofs([Question(name, prop, r) for (name, prop), r in zip(asked, answers[len(asked) :])])
        questions = tuple(replace(q, population=other.result) for q, other in zip(questions, others))
    questions = tuple(replace(q, rows=own) for q, own in zip(questions, rows))
    rates = [r for r in results if isinstance(r, GroupRates)]
    gate = None
    if requirements:
        by_property, by_names = {q.property: q.result for q in questions}, {r.sensitive: r for r in rates}
        checks = [
            _judged_ratio(r, by_names.get(r.property.sensitive))
            if isinstance(r, RatioRequirement)
            else _judged(r, by_property[r.property], clock.left - kept)
            for r in requirements
        ]
        gate = GateReport(tuple(checks), imported.source, policy, imported.ensemble.decision)
    return Audit(
        questions,
        space,
        summary(imported),
        tuple(rates),
        gate=gate,
        notes=tuple(notes),
        clock=clock if report else None,
        population=worlds.population,
        data=worlds.data,
    )


@dataclass(frozen=True)
class Asking:
    """What is asked under the audit's clock: about a property, or for the rates of groups."""

    name: str
    space: Space
    property: Property | None
    rates_by: tuple[str, ...] = ()


def _of_both(before: Result | GroupRates, newer: Result | GroupRates) -> Result | GroupRates:
    """What two runs of one question say together; rates are those of the longer run, beside the rows of the first."""
    if isinstance(before, Result) and isinstance(newer, Result):
        return both_runs(before, newer)
    assert isinstance(before, GroupRates)
    assert isinstance(newer, GroupRates)
    groups = tuple(replace(own, data=old.data) for own, old in zip(newer.groups, before.groups))
    return replace(newer, groups=groups, confidence=before.confidence, rows_outside=before.rows_outside)


def _undecided(result: Result | GroupRates | None) -> float:
    """How far apart the certain bounds are."""
    if isinstance(result, GroupRates):
        return result.difference.gap
    return 1.0 if result is None or result.bounds is None else result.bounds.gap


def _judged_ratio(requirement: RatioRequirement, rates: GroupRates | None) -> Check:
    if rates is None:
        return _judged(requirement, None, 0.0)
    return rates_check(requirement, replace(rates, require_ratio=requirement.at_least))


def _proved(result: Result, seconds: float) -> Result:
    """The result on a monotone attribute with a remark, where it is proved that there is no counterexample at all."""
    if not isinstance(result.property, Monotonicity) or not result.converged or result.counterexample.lower > 0:
        return result
    if not no_counterexample(result, min(seconds, VERIFY_SECONDS)):
        return result
    said = "Verified: there is no counterexample at all."
    return replace(result, remarks=(*result.remarks, said), caveats=(*result.caveats, "verified"))


def _judged(requirement: Requirement, result: Result | None, seconds: float) -> Check:
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
    alike = (prop.epsilon, prop.partner_kappa, prop.max_change) == (
        other.epsilon,
        other.partner_kappa,
        other.max_change,
    )
    if prop.kind == other.kind == "fairness" and alike:
        if set(other.sensitive) <= set(prop.sensitive):
            unfair = max(unfair, proved.unfair)
        if set(other.sensitive) >= set(prop.sensitive):
            fair = max(fair, proved.fair)
    return Decided(fair, unfair, low)
