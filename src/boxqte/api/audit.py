"""`audit`, and the answers with everything that can be asked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from boxqte.answers.quantify import limits_of
from boxqte.api.gate import GateReport, Policy
from boxqte.api.quantify import Quantification
from boxqte.auditing import audit as questions
from boxqte.auditing import policy as policies
from boxqte.auditing.audit import (
    TIME_LIMIT,
    Signed,
    answered,
    declared_questions,
    questions_of,
    requirements_of,
    space_of,
)
from boxqte.auditing.description import describe
from boxqte.auditing.findings import Findings
from boxqte.auditing.gathering import gather_all
from boxqte.auditing.worlds import rates_of_rows, read_worlds, worlds_of
from boxqte.basics.budget import TimeBudget
from boxqte.basics.checks import as_names, by_name, function, seconds, text
from boxqte.engines import DEFAULT_ENGINE
from boxqte.engines.protocol import Progress
from boxqte.errors import BoxQTEError, EngineError, PolicyError, PropertyError, ReportError, SpaceError
from boxqte.exact import Number
from boxqte.models.decision import Threshold
from boxqte.models.importers import load_model
from boxqte.questions.properties import Direction, Fairness, Scale, TieRule
from boxqte.repairing.blame import blame
from boxqte.report.text import audit_answers, audit_text
from boxqte.space.space import Space
from boxqte.space.tables import read_table

BLAME_SHARE = 0.25  # of the time for the report
MOST_BLAMED = 6


class Audit(questions.Audit):
    """The answers of an audit, in the order of the questions.

    `print(audit)` is a table, `to_frame()` a pandas table, `save_html(path)` the report. Like a mapping, it iterates over
    the questions' names, and `audit[name]` is a question's result; `results` has them all.
    """

    if TYPE_CHECKING:  # what it holds has everything that can be asked of it, too
        gate: GateReport | None

        def __getitem__(self, name: str) -> Quantification: ...

        @property
        def results(self) -> tuple[Quantification, ...]: ...

    @classmethod
    def of(cls, audit: questions.Audit) -> Self:
        """The same audit, with everything that can be asked of it."""
        questions = tuple(
            replace(q, result=None if q.result is None else Quantification.of(q.result)) for q in audit.questions
        )
        gate = None if audit.gate is None else GateReport.of(audit.gate)
        known = {f.name: getattr(audit, f.name) for f in fields(audit)}
        return cls(**known | {"questions": questions, "gate": gate})

    def gathered(self, *, time_limit: float | None = None, progress: Callable[[str], None] | None = None) -> Self:
        """The audit with what its report shows beyond the answers: hot spots, flips, profiles, pairs (`findings`).

        `time_limit` and `progress` as for `to_html`.
        """
        clock = TimeBudget(self.report_seconds if time_limit is None else time_limit)
        rest = None if clock.seconds is None else (1 - BLAME_SHARE) * clock.seconds
        found = gather_all(self, seconds=rest, say=progress)
        return replace(self, findings=_with_blame(self, found, clock, progress))

    def to_html(
        self,
        *,
        time_limit: float | None = None,
        progress: Callable[[str], None] | None = None,
        explorer: bool = False,
        documents: str | Iterable[str] | None = None,
    ) -> str:
        """The report: one self-contained page.

        Parameters
        ----------
        time_limit
            Seconds for the searches behind the report. None is what is left of the audit's own limit, if it was told to
            keep some (`report=True`); else a minute, or as long as the questions took.
        progress
            Called with a few words whenever something else is begun.
        explorer
            Also a part that needs scripts: the reader chooses an input and sees what the model makes of it (two classes).
        documents
            Also tables that say what the audit answers of these: "eu-ai-act", "sr-26-2", "nyc-ll144", "ecoa".
        """
        from boxqte.report.explorer import explorer_part
        from boxqte.report.html import audit_page
        from boxqte.report.mappings import read_documents

        names = read_documents(documents)
        found = self if self.findings else self.gathered(time_limit=time_limit, progress=progress)
        part = explorer_part(self.results) if explorer else None
        return audit_page(found, found.findings, part, documents=names)

    def save_html(
        self,
        path: str | Path,
        *,
        time_limit: float | None = None,
        explorer: bool = False,
        documents: str | Iterable[str] | None = None,
    ) -> None:
        """Write the report; see `to_html`."""
        page = self.to_html(time_limit=time_limit, explorer=explorer, documents=documents)
        Path(path).write_text(page, encoding="utf-8")

    def to_model_card(self, *, heading: str = "## Fairness and robustness") -> str:
        """A section of a model card in Markdown, as Hugging Face and skops have them.

        Parameters
        ----------
        heading
            The section's first line; empty leaves it out, for cards that make their own
            (`skops.card.Card.add(Fairness=audit.to_model_card(heading=""))`).

        Examples
        --------
        >>> from boxqte import audit
        >>> from boxqte.examples import loan_ensemble, loan_space
        >>> card = audit(loan_ensemble(), space=loan_space(), sensitive="race", robustness=0).to_model_card()
        >>> card.splitlines()[0]
        '## Fairness and robustness'
        """
        from boxqte.report.markdown import model_card

        return model_card(self, text(heading, "heading", ReportError, "a line of Markdown"))

    def _repr_html_(self) -> str:
        from boxqte.report.notebook import audit_html

        return audit_html(self)

    def __repr__(self) -> str:
        answers = (f"{row[0]}: {', '.join(part for part in row[1:3] if part)}" for row in audit_answers(self))
        return f"Audit({self.model.source or self.model.library}; {'; '.join(answers)})"

    def __str__(self) -> str:
        return audit_text(self)


def _with_blame(
    audit: questions.Audit, found: Sequence[Findings], clock: TimeBudget, say: Callable[[str], None] | None
) -> tuple[Findings, ...]:
    """The findings, those of the least fair question with the trees that are to blame, if there is time to count them."""
    from boxqte.report.blame import blamed, sentences

    exact = {
        i: q.result
        for i, q in enumerate(audit.questions)
        if isinstance(q.property, Fairness) and q.result is not None and q.result.converged and q.result.decided.unfair
    }
    at = min(exact, key=lambda i: exact[i].upper or 1.0, default=None)
    if at is None or exact[at].asked is None or 2 * exact[at].seconds > clock.left:
        return tuple(found)
    if say is not None:
        say(f"{audit.questions[at].name}, which trees are to blame")
    label = None if audit.description is None or audit.data is None else audit.description.label
    limit = None if clock.seconds is None else max(clock.left, TimeBudget.LEAST)
    try:
        table = blame(exact[at], audit.data, label, splits=False, time_limit=limit)
    except BoxQTEError:  # a question that has no blame
        return tuple(found)
    if not table["converged"].any():
        return tuple(found)
    own = replace(found[at], blamed=tuple(blamed(table, MOST_BLAMED)), blame=tuple(sentences(table)))
    return (*found[:at], own, *found[at + 1 :])


def audit(
    model: object,
    data: Any = None,
    *,
    sensitive: str | Iterable[str],
    space: Space | Mapping[str, Any] | str | Path | None = None,
    rules: str | Iterable[str] = (),
    label: str | None = None,
    worlds: str | Iterable[str] | None = None,
    components: int | Literal["auto"] = "auto",
    epsilon: Number | Mapping[str, Number] = 0,
    kappa: Number = Fraction(1, 2),
    tie: TieRule = "library",
    robustness: Number | Mapping[str, Number] | None = None,
    partner_kappa: Number = 0,
    max_change: Mapping[str, Number] | None = None,
    monotone: Mapping[str, Direction] | None = None,
    on: Literal["class", "score"] | None = None,
    score_at_most: Number | None = None,
    scale: Scale | None = None,
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
    threshold: Threshold | None = None,
    author: str = "",
    reviewer: str = "",
    purpose: str = "",
    class_names: Iterable[str] = (),
    command: str = "",
) -> Audit:
    """Ask about each sensitive attribute alone, all of them together, and robustness.

    A monotone constraint that the model declares (LightGBM; of XGBoost a live object) is asked about as well, on scores.

    Parameters
    ----------
    model
        A fitted model or pipeline, the path of a model file, or a TreeEnsemble.
    data
        The training table (pandas, polars, ...), or the path of a CSV or Parquet file, to infer the space from; and its rows,
        and the population behind them, are asked about as well (`worlds`).
    sensitive
        The sensitive attribute or attributes.
    space
        The space, where it is not to be inferred; `data` may be given, too.
    rules
        What every input must keep, beside the rules of the space and of the policy (`Space.with_rules`).
    worlds
        Which worlds are asked about where there is data, beside the space: some of "population" (a mixture of products
        that is fitted to the data) and "rows" (the rows themselves). None is all of them.
    components
        How many products the population is a mixture of; "auto" chooses by held-out likelihood, 1 has no correlations.
    label
        The target column of the data.
    epsilon, kappa, tie
        As for `Fairness`; of all fairness questions.
    robustness
        The tolerance of the robustness question; None is `epsilon`, or one hundredth of each range if that is 0; 0
        leaves the question out.
    partner_kappa, max_change
        As for `Fairness`; of all fairness questions, `max_change` of those in which the attribute is sensitive.
    monotone, on
        Attributes that the class (or with on="score" the score) should only grow or fall with, such as
        {"income": "increasing"}: one question each.
    score_at_most, scale
        As `at_most` and `scale` of `ScoreFairness`: for every set of sensitive attributes one more question, on scores.
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
    threshold
        The decision rule, in place of the model's own (`load_model`); left out, that of the policy.
    infer
        Further arguments of `Space.infer`, such as `{"categorical": ["race"]}`.
    progress
        Called with the question's name, its time limit and a Progress now and then.
    author, reviewer, purpose
        Who made the audit, who reviews it, and what for: the report and the JSON state them with the date.
    class_names
        What the report calls class 0 and class 1, such as ["refused", "granted"]; left out, as the model does.
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
    for name, said in (("author", author), ("reviewer", reviewer), ("purpose", purpose)):
        text(said, name, EngineError, "some words")
    read = None if policy is None else policy if isinstance(policy, policies.Policy) else Policy.load(policy)
    if read is not None and read.population is not None:
        raise PolicyError(f"{read.source or 'policy'}: population: an audit judges requirements over its own space; check this "
                          "policy by itself (boxqte gate)")  # fmt: skip
    if threshold is None and read is not None:
        threshold = read.threshold
    imported = load_model(model, allow_pickle=allow_pickle, threshold=threshold)
    called = as_names(class_names, "class_names", EngineError) if class_names != () else ()
    if called and len(called) != max(len(imported.ensemble.classes), 2):
        raise EngineError(
            f"class_names: the model has {len(imported.ensemble.classes)} classes, found {len(called)} names"
        )
    names = as_names(sensitive, "sensitive", PropertyError)
    function(progress, "progress")
    limits = limits_of(workers=workers, n_jobs=n_jobs, memory_limit=memory_limit)
    frame = read_table(data) if isinstance(data, (str, Path)) else data
    bound, inference = space_of(space, frame, label, names, imported, by_name(infer, "infer", SpaceError))
    bound = policies.ruled(bound, rules, () if read is None else read.rules)
    if inference is not None:
        notes_on_rules = tuple(f"rule: {rule}" for rule in bound.rules)
        inference = replace(inference, space=bound, notes=(*inference.notes, *notes_on_rules))
    further = {"partner_kappa": partner_kappa, "max_change": max_change, "monotone": monotone, "on": on}
    further |= {"score_at_most": score_at_most, "scale": scale}
    asked = questions_of(names, epsilon, kappa, tie, robustness, further)
    declared, notes = declared_questions(imported, bound)
    known = {prop for _, prop in asked}
    asked += [(name, prop) for name, prop in declared if prop not in known]
    others = worlds_of(read_worlds(worlds), frame, bound, imported, components, clock)
    found = answered(
        imported,
        bound,
        asked,
        requirements_of(read, require, asked),
        clock,
        report=report,
        engine=engine or DEFAULT_ENGINE,
        limits=limits,
        progress=progress,
        policy="" if read is None else read.source,
        worlds=others,
    )
    described = None
    if frame is not None:
        source = str(data) if isinstance(data, (str, Path)) else ""
        described = describe(imported, bound, frame, names[0], label or bound.label, source)
    signed = Signed(author, reviewer, purpose, _now())
    return Audit.of(
        replace(
            found,
            inference=inference,
            command=command,
            notes=(*notes, *found.notes),
            description=described,
            row_rates=rates_of_rows(imported, bound, names, others.data),
            signed=signed,
            class_names=called,
        )
    )


def _now() -> str:
    return datetime.now(UTC).astimezone().isoformat(timespec="seconds")
