"""Policies and gates, with what people read of them: text, Markdown, JUnit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from boxqte.answers.quantify import limits_of
from boxqte.api.quantify import Quantification
from boxqte.auditing import policy
from boxqte.auditing.policy import Requirement, check_fits, judged, ruled
from boxqte.basics.budget import TimeBudget
from boxqte.basics.checks import function, seconds
from boxqte.engines import DEFAULT_ENGINE
from boxqte.engines.protocol import Progress
from boxqte.errors import PolicyError
from boxqte.models.decision import Threshold
from boxqte.models.importers import load_model
from boxqte.report.junit import junit
from boxqte.report.markdown import markdown
from boxqte.report.text import gate_text
from boxqte.space.space import Space, read_space


class GateReport(policy.GateReport):
    """The checks of a policy, in its order. `passed` only if every one of them holds."""

    @classmethod
    def of(cls, report: policy.GateReport) -> Self:
        """The same report, with everything that can be asked of it."""
        checks = (
            replace(check, result=None if check.result is None else Quantification.of(check.result))
            for check in report.checks
        )
        return cls(tuple(checks), report.model, report.policy, report.decision)

    def to_junit(self) -> str:
        """The checks as JUnit XML, which build servers show as tests."""
        return junit(self)

    def to_markdown(self) -> str:
        """A summary for a pull request."""
        return markdown(self)

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __str__(self) -> str:
        return gate_text(self)


class Policy(policy.Policy):
    """Requirements, and what they are about.

    Parameters
    ----------
    requirements
        What must hold, one `Requirement` a property.
    model, space
        Paths, where the policy names them; `check` may be given others.
    time_limit
        Seconds for everything: reading and all requirements, of which each gets its share of what is left; what is left
        in the end goes to the open ones.
    engine
        The engine's name; None is the default one.
    rules
        Rules beside those of the space (`Space.with_rules`).
    threshold
        The decision rule of the model, in place of its own (`load_model`); `decision_threshold` in a file.
    population, components
        The path of a table whose masses count, and of how many products they are a mixture (`boxqte.population`).

    Examples
    --------
    >>> from boxqte import Fairness
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> policy = Policy([Requirement(Fairness("race"), at_least=0.99, name="race")], engine="exhaustive")
    >>> report = policy.check(loan_ensemble(), loan_space())
    >>> report.passed, report.exit_code
    (False, 1)
    >>> print(report)
    race: violated: required at least 0.99, the measure is 0.697029702970 (exactly 352/505)
    """

    def check(
        self,
        model: object = None,
        space: Space | Mapping[str, Any] | str | Path | None = None,
        *,
        rules: str | Iterable[str] = (),
        time_limit: float | None = None,
        engine: str | None = None,
        workers: int | None = None,
        memory_limit: int | None = None,
        progress: Callable[[Requirement, float | None, Progress], None] | None = None,
        allow_pickle: bool = False,
        threshold: Threshold | None = None,
    ) -> GateReport:
        """Ask about every requirement, each until it is decided; arguments left out are the policy's own.

        `rules` count beside those of the space and of the policy.

        After Ctrl-C the rest is not asked, and undecided. `progress` is called with the requirement, its time limit and a
        Progress now and then.
        """
        clock = TimeBudget(self.time_limit if time_limit is None else seconds(time_limit))
        function(progress, "progress")
        model, space = self._subject(model, self.model, "model"), self._subject(space, self.space, "space")
        bound = ruled(read_space(space), self.rules, rules)
        for requirement in self.requirements:
            check_fits(requirement, bound)
        limits = limits_of(workers=workers, memory_limit=memory_limit)
        rule = self.threshold if threshold is None else threshold
        imported = load_model(model, allow_pickle=allow_pickle, threshold=rule)
        asked = engine or self.engine or DEFAULT_ENGINE
        bound = self.world(bound, imported)
        return GateReport.of(judged(self, imported, bound, clock, engine=asked, limits=limits, progress=progress))

    def _subject(self, given: Any, own: str | None, what: str) -> Any:
        if given is not None:
            return given
        if own is None:
            raise PolicyError(f"{self.source or 'policy'}: it names no {what}, and none is given")
        return own
