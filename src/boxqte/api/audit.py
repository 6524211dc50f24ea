"""`audit`, and the answers with everything that can be asked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from boxqte.answers.quantify import limits_of
from boxqte.api.gate import GateReport, Policy
from boxqte.api.quantify import Quantification
from boxqte.auditing import audit as questions
from boxqte.auditing import policy as policies
from boxqte.auditing.audit import TIME_LIMIT, answered, declared_questions, questions_of, requirements_of, space_of
from boxqte.auditing.gathering import gather_all
from boxqte.basics.budget import TimeBudget
from boxqte.basics.checks import as_names, by_name, function, seconds
from boxqte.engines import DEFAULT_ENGINE
from boxqte.engines.protocol import Progress
from boxqte.errors import PropertyError, SpaceError
from boxqte.exact import Number
from boxqte.models.decision import Threshold
from boxqte.models.importers import load_model
from boxqte.questions.properties import Direction, Scale, TieRule
from boxqte.report.text import audit_answers, audit_text
from boxqte.space.space import Space


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

    def to_html(
        self,
        *,
        time_limit: float | None = None,
        progress: Callable[[str], None] | None = None,
        explorer: bool = False,
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
        """
        from boxqte.report.explorer import explorer_part
        from boxqte.report.html import audit_page

        findings = gather_all(self, seconds=self.report_seconds if time_limit is None else time_limit, say=progress)
        return audit_page(self, findings, explorer_part(self.results) if explorer else None)

    def save_html(self, path: str | Path, *, time_limit: float | None = None, explorer: bool = False) -> None:
        """Write the report."""
        Path(path).write_text(self.to_html(time_limit=time_limit, explorer=explorer), encoding="utf-8")

    def _repr_html_(self) -> str:
        from boxqte.report.notebook import audit_html

        return audit_html(self)

    def __repr__(self) -> str:
        answers = (f"{row[0]}: {', '.join(part for part in row[1:3] if part)}" for row in audit_answers(self))
        return f"Audit({self.model.source or self.model.library}; {'; '.join(answers)})"

    def __str__(self) -> str:
        return audit_text(self)


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
    command: str = "",
) -> Audit:
    """Ask about each sensitive attribute alone, all of them together, and robustness.

    A monotone constraint that the model declares (LightGBM; of XGBoost a live object) is asked about as well, on scores.

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
    read = None if policy is None else policy if isinstance(policy, policies.Policy) else Policy.load(policy)
    if threshold is None and read is not None:
        threshold = read.threshold
    imported = load_model(model, allow_pickle=allow_pickle, threshold=threshold)
    names = as_names(sensitive, "sensitive", PropertyError)
    function(progress, "progress")
    limits = limits_of(workers=workers, n_jobs=n_jobs, memory_limit=memory_limit)
    bound, inference = space_of(space, data, label, names, imported, by_name(infer, "infer", SpaceError))
    further = {"partner_kappa": partner_kappa, "max_change": max_change, "monotone": monotone, "on": on}
    further |= {"score_at_most": score_at_most, "scale": scale}
    asked = questions_of(names, epsilon, kappa, tie, robustness, further)
    declared, notes = declared_questions(imported, bound)
    known = {prop for _, prop in asked}
    asked += [(name, prop) for name, prop in declared if prop not in known]
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
    )
    return Audit.of(replace(found, inference=inference, command=command, notes=tuple(notes)))
