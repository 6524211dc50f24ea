"""A policy: what a model must satisfy before it is released. One object for Python, the command line and pytest.

A requirement is a property and the least share of the confident inputs that must be treated by it. It holds when the
lower bound clears that share, is violated when the upper bound is below it, and is undecided otherwise: a gate never
passes on what is not proved.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from boxqte.answers.quantify import measure
from boxqte.answers.rate_search import rates_engine
from boxqte.answers.rates import GroupRates, group_rates
from boxqte.answers.result import Result
from boxqte.answers.verdict import Verdict, decide
from boxqte.answers.verify import verify
from boxqte.basics.budget import TimeBudget, asked_in_turn
from boxqte.basics.checks import as_names, file_path, seconds
from boxqte.basics.toml import a_table, a_text, known_fields, read_toml, texts
from boxqte.engines.protocol import Decided, Limits, Progress, Status
from boxqte.errors import BoxQTEError, PolicyError, PropertyError, SpaceError
from boxqte.exact import Number, fraction, plain, shown
from boxqte.models.decision import DecisionRule, Threshold, read_decision
from boxqte.models.importers import ImportedModel
from boxqte.questions.properties import Fairness, Property
from boxqte.questions.reading import FIELDS, monotone_of, read_property
from boxqte.space.populations import number_of_components, population
from boxqte.space.space import Space
from boxqte.space.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

VERIFY_SECONDS = 60.0  # to settle a requirement of exactly 1
POLICY_FIELDS = (
    "model", "space", "rules", "population", "components", "decision_threshold", "time_limit", "engine", "require",
)  # fmt: skip
REQUIREMENT_FIELDS = (*FIELDS, "at_least")
RATIO_FIELDS = ("sensitive", "require_ratio")


def share(value: object, where: str) -> Fraction:
    """A required share: above 0 and at most 1."""
    exact = fraction(value, PolicyError, where)
    if not 0 < exact <= 1:
        raise PolicyError(f"{where}: must be above 0 and at most 1, found {plain(exact)}")
    return exact


@dataclass(frozen=True, init=False)
class Requirement:
    """One line of a policy.

    Parameters
    ----------
    property
        `Fairness(...)`, `Robustness(...)`, `Monotonicity(...)` or `ScoreFairness(...)`.
    at_least
        The least share of the confident inputs that must be treated so (fairly, robustly, ...); above 0 and at most 1.
    name
        How reports call it; by default the property itself.

    Examples
    --------
    >>> from boxqte import Fairness
    >>> str(Requirement(Fairness("sex"), at_least=0.99))
    'fairness (sensitive sex; epsilon rate 0; kappa 0.5) at least 0.99'
    """

    property: Property
    at_least: Fraction
    name: str

    def __init__(self, property: Property, at_least: Number, *, name: str | None = None):
        if not isinstance(property, Property):
            raise PolicyError(f"requirement: expected a property such as Fairness(...), found {property!r}")
        where = "at_least" if name is None else f"requirement '{name}', at_least"
        object.__setattr__(self, "property", property)
        object.__setattr__(self, "at_least", share(at_least, where))
        object.__setattr__(self, "name", str(property) if name is None else name)

    def __str__(self) -> str:
        return f"{self.property} at least {plain(self.at_least)}"

    def to_json(self) -> dict[str, Any]:
        """The requirement as a JSON object; its fields are those of a policy file."""
        return {"name": self.name, **self.property.to_json(), "at_least": plain(self.at_least)}


class RatioRequirement(Requirement):
    """The least ratio of two groups' rates (`group_rates`): 0.8 is the four-fifths rule.

    Examples
    --------
    >>> str(RatioRequirement("sex", 0.8))
    'ratio of the group rates by sex at least 0.8'
    """

    def __init__(self, sensitive: str | Iterable[str], require_ratio: Number, *, name: str | None = None):
        super().__init__(Fairness(sensitive), share(require_ratio, "require_ratio"), name=name)
        if name is None:
            object.__setattr__(self, "name", f"ratio of the group rates by {', '.join(self.property.sensitive)}")

    def __str__(self) -> str:
        by = ", ".join(self.property.sensitive)
        return f"ratio of the group rates by {by} at least {plain(self.at_least)}"

    def to_json(self) -> dict[str, Any]:
        """The requirement as a JSON object; its fields are those of a policy file."""
        sensitive = list(self.property.sensitive)
        return {"name": self.name, "sensitive": sensitive, "require_ratio": plain(self.at_least)}


@dataclass(frozen=True, eq=False)
class Check:
    """A requirement and what is proved about it; `result` is None if it was not asked (see `why`), or if rates were."""

    requirement: Requirement
    verdict: Verdict
    result: Result | None = None
    why: str = ""
    seconds: float = 0.0
    rates: GroupRates | None = None
    """The answer to a `RatioRequirement`."""

    @property
    def status(self) -> Status | None:
        """Why the search ended; None if it was not begun."""
        answer = self.result if self.rates is None else self.rates
        return None if answer is None else answer.status


@dataclass(frozen=True, eq=False, repr=False)
class GateReport:
    """The checks of a policy, in its order. `passed` only if every one of them holds."""

    checks: tuple[Check, ...]
    model: str = ""
    policy: str = ""
    decision: DecisionRule | None = None
    """The model's decision rule, where it is not the library's own `predict`."""

    @property
    def verdict(self) -> Verdict:
        """Violated if any is, else undecided if any is, else it holds."""
        verdicts = {check.verdict for check in self.checks}
        return next(v for v in (Verdict.VIOLATED, Verdict.UNDECIDED, Verdict.HOLDS) if v in verdicts)

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.HOLDS

    @property
    def exit_code(self) -> int:
        """0 all hold, 1 one is violated, 3 none is violated but one is undecided."""
        return self.verdict.exit_code

    @property
    def interrupted(self) -> bool:
        return any(check.status is Status.INTERRUPTED for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object (the format of `boxqte gate --json`)."""
        return {
            "verdict": str(self.verdict),
            "model": self.model,
            "policy": self.policy,
            "decision": None if self.decision is None else self.decision.to_json(),
            "checks": [
                {
                    "requirement": check.requirement.to_json(),
                    "verdict": str(check.verdict),
                    "why": check.why,
                    "result": None if check.result is None else check.result.to_json(),
                    **({} if check.rates is None else {"rates": check.rates.to_json()}),
                }
                for check in self.checks
            ],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row a requirement: its verdict, what is required, and the answer; of rates, bounds on their ratio."""
        import pandas as pd

        rows = []
        for check in self.checks:
            row: dict[str, Any] = {"requirement": check.requirement.name, "verdict": str(check.verdict)}
            row |= {"at_least": float(check.requirement.at_least), "property": str(check.requirement)}
            if check.result is not None:
                row |= check.result.to_row()
            elif check.rates is not None:
                ratio, status = check.rates.ratio, str(check.rates.status)
                row |= {
                    "lower": None if ratio is None else ratio.lower,
                    "upper": None if ratio is None else ratio.upper,
                }
                row |= {"status": status, "seconds": check.rates.seconds, "remarks": " ".join(check.rates.remarks)}
            rows.append(row | {"why": check.why})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return f"GateReport({self.verdict}: {', '.join(f'{c.requirement.name} {c.verdict}' for c in self.checks)})"


@dataclass(frozen=True)
class Policy:
    """Requirements, and what they are about (api/gate.py says what each field means to a user)."""

    requirements: tuple[Requirement, ...]
    model: str | None = None
    space: str | None = None
    time_limit: float | None = None
    engine: str | None = None
    threshold: DecisionRule | None = None
    population: str | None = None
    components: int | str = 1
    rules: tuple[str, ...] = ()
    source: str = field(default="", compare=False)

    def __init__(
        self,
        requirements: Iterable[Requirement],
        *,
        model: str | None = None,
        space: str | None = None,
        time_limit: float | None = None,
        engine: str | None = None,
        threshold: Threshold | None = None,
        population: str | None = None,
        components: int | str = 1,
        rules: str | Iterable[str] = (),
        source: str = "",
    ):
        given = tuple(requirements) if isinstance(requirements, Iterable) else (requirements,)
        for requirement in given:
            if not isinstance(requirement, Requirement):
                raise PolicyError(f"{source or 'policy'}: expected Requirement(...), found {shown(requirement)}")
        time_limit = seconds(time_limit, "time_limit", PolicyError)
        if not given:
            raise PolicyError(f"{source or 'policy'}: there is no requirement in it")
        names = [r.name for r in given]
        for name in names:
            if names.count(name) > 1:
                raise PolicyError(f"{source or 'policy'}: two requirements are named '{name}'")
        fields: dict[str, Any] = {
            "requirements": given,
            "model": model,
            "space": space,
            "time_limit": time_limit,
            "engine": engine,
        }
        rule = None if threshold is None else read_decision(threshold)
        if components != 1 and population is None:
            raise PolicyError(f"{source or 'policy'}: components: give the table with population")
        try:
            number_of_components(components)
        except SpaceError as error:
            raise PolicyError(f"{source or 'policy'}: {error}") from None
        fields |= {"population": population, "components": components}
        fields["rules"] = as_names(rules, f"{source or 'policy'}: rules", PolicyError)
        for name, content in {**fields, "threshold": rule, "source": source}.items():
            object.__setattr__(self, name, content)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a TOML file; the paths in it are relative to its folder."""
        document = read_toml(file_path(path, "policy", PolicyError), PolicyError)
        return cls.from_document(document, source=str(path), folder=Path(path).parent)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, source: str = "policy", folder: Path | None = None) -> Self:
        """The policy that the tables of a TOML file describe.

        Examples
        --------
        >>> document = {"require": {"sex": {"sensitive": "sex", "at_least": 0.99}}}
        >>> Policy.from_document(document).requirements[0].at_least
        Fraction(99, 100)
        """
        known_fields(document, POLICY_FIELDS, source, PolicyError)
        if "require" not in document:
            raise PolicyError(f"{source}: it has no table [require]; expected one line a requirement, name = {{...}}")
        lines = a_table(document["require"], f"{source}: require", PolicyError)
        paths: dict[str, str | None] = {"model": None, "space": None, "population": None}
        for name in paths:
            if name in document:
                path = a_text(document[name], f"{source}: {name}", PolicyError)
                paths[name] = path if folder is None else os.path.normpath(folder / path)
        limit = document.get("time_limit")
        if limit is not None:
            where = f"{source}: time_limit"
            limit = seconds(fraction(limit, PolicyError, where), where, PolicyError)
        engine = None
        if "engine" in document:
            engine = a_text(document["engine"], f"{source}: engine", PolicyError)
        rule = None
        if "decision_threshold" in document:
            try:
                rule = read_decision(document["decision_threshold"])
            except BoxQTEError as error:
                raise PolicyError(f"{source}: decision_{error}") from None
        return cls(
            [requirement for name, line in lines.items() for requirement in _requirements(name, line, source)],
            model=paths["model"],
            space=paths["space"],
            time_limit=limit,
            engine=engine,
            threshold=rule,
            population=paths["population"],
            components=document.get("components", 1),
            rules=texts(document.get("rules", []), f"{source}: rules", PolicyError),
            source=source,
        )

    def world(self, space: Space, model: ImportedModel) -> Space:
        """The space with the masses of the policy's population, if it names one."""
        if self.population is None:
            return space
        return population(space, read_table(self.population), components=self.components, model=model).space


def ruled(space: Space, *more: str | Iterable[str]) -> Space:
    """The space with further rules; the same one if there are none."""
    rules = [rule for given in more for rule in ([given] if isinstance(given, str) else given)]
    return space.with_rules(rules) if rules else space


def judged(
    policy: Policy,
    imported: ImportedModel,
    space: Space,
    clock: TimeBudget,
    *,
    engine: str,
    limits: Limits,
    progress: Callable[[Requirement, float | None, Progress], None] | None = None,
) -> GateReport:
    """Ask about every requirement, each until it is decided. After Ctrl-C the rest is not asked, and undecided."""
    for requirement in policy.requirements:
        check_fits(requirement, space)
        if isinstance(requirement, RatioRequirement):
            rates_engine(engine)

    def ask(requirement: Requirement, limit: float | None) -> Check:
        hears = None if progress is None else lambda moment: progress(requirement, limit, moment)
        if isinstance(requirement, RatioRequirement):
            own = replace(limits, time_limit=limit)
            return judge_ratio(requirement, imported, space, engine=engine, limits=own, progress=hears)
        result = measure(
            imported,
            space,
            requirement.property,
            engine=engine,
            limits=replace(limits, time_limit=limit, require=requirement.at_least),
            progress=hears,
        )
        return judge(requirement, result, seconds=clock.left)

    def again(requirement: Requirement, before: Check, limit: float | None) -> Check:
        newer = ask(requirement, limit)
        if isinstance(requirement, RatioRequirement):
            return replace(newer, seconds=before.seconds + newer.seconds)
        assert before.result is not None
        assert newer.result is not None
        return judge(requirement, both_runs(before.result, newer.result), seconds=clock.left)

    asked = asked_in_turn(
        clock,
        policy.requirements,
        ask,
        again=again,
        is_open=lambda _, check: check.verdict is Verdict.UNDECIDED and check.status is Status.TIME,
        stopped=lambda check: check.status is Status.INTERRUPTED,
    )
    checks = [
        Check(requirement, Verdict.UNDECIDED, why="not asked: interrupted") if check is None else check
        for requirement, check in zip(policy.requirements, asked)
    ]
    return GateReport(tuple(checks), imported.source, policy.source, imported.ensemble.decision)


def judge_ratio(
    requirement: RatioRequirement,
    imported: ImportedModel,
    space: Space,
    *,
    engine: str,
    limits: Limits,
    progress: Callable[[Progress], None] | None = None,
) -> Check:
    """Count the groups until the ratio is decided."""
    found = group_rates(
        imported,
        space,
        requirement.property.sensitive,
        require_ratio=requirement.at_least,
        engine=engine,
        time_limit=limits.time_limit,
        workers=limits.workers,
        memory_limit=limits.memory_limit,
        progress=progress,
    )
    return rates_check(requirement, found)


def rates_check(requirement: RatioRequirement, found: GroupRates) -> Check:
    """The check that rates amount to, of which the ratio is required."""
    return Check(requirement, found.verdict or Verdict.UNDECIDED, None, found.why, found.seconds, found)


def both_runs(before: Result, newer: Result) -> Result:
    """The answer of two runs of the same question: what each has proved holds. The statistical interval is the newer
    one's: to take the shorter of two would cost confidence."""
    one, two = before.decided, newer.decided
    if newer.converged:
        decided = two
    else:
        decided = Decided(max(one.fair, two.fair), max(one.unfair, two.unfair), max(one.low, two.low))
    trace = list(before.trace)
    for moment, lower, upper in newer.trace:
        lower, upper = (lower, upper) if not trace else (max(lower, trace[-1][1]), min(upper, trace[-1][2]))
        trace.append((before.seconds + moment, lower, upper))
    joined = replace(newer, decided=decided, trace=tuple(trace), seconds=before.seconds + newer.seconds)
    return within_bounds(joined)


def within_bounds(result: Result) -> Result:
    """The result with its statistical interval inside its certain bounds, which another run may have brought closer."""
    drawn, bounds = result.statistical, result.bounds
    if drawn is None or bounds is None:
        return result
    lower = min(max(drawn.lower, bounds.lower), bounds.upper)
    upper = max(min(drawn.upper, bounds.upper), lower)
    return replace(result, statistical=replace(drawn, lower=lower, upper=upper))


def judge(requirement: Requirement, result: Result, *, seconds: float = math.inf) -> Check:
    """The check that a result amounts to, with the reason where it is undecided. `seconds` are what is left for it."""
    verdict = decide(result, requirement.at_least)
    why = ""
    may_be_none = verdict is Verdict.UNDECIDED and requirement.at_least == 1 and result.converged
    if may_be_none and no_counterexample(result, min(seconds, VERIFY_SECONDS)):
        return Check(requirement, Verdict.HOLDS, result, "verified: there is no counterexample at all", result.seconds)
    if verdict is Verdict.UNDECIDED:
        if result.undefined:
            why = "a requirement about no input proves nothing: lower kappa"
        elif result.converged:
            why = "the requirement lies within the engine's rounding error: engine 'exhaustive' is exact on small problems"
        else:
            why = f"stopped by {result.status}" if result.status is not Status.INTERRUPTED else "interrupted"
    return Check(requirement, verdict, result, why, result.seconds)


def no_counterexample(result: Result, seconds: float) -> bool:
    """Whether verification proves it: a count in floating point ends within its rounding error of 1, never at 1."""
    if result.undefined or result.asked is None or seconds <= 0:
        return False
    try:
        found = verify(result.asked.model, result.asked.grid.space, result.property, time_limit=seconds)
    except BoxQTEError:
        return False
    return str(found.verdict) == str(Verdict.HOLDS)


def check_fits(requirement: Requirement, space: Space) -> None:
    try:
        requirement.property.check(space)
    except BoxQTEError as error:
        raise type(error)(f"requirement '{requirement.name}': {error}") from None


def _requirements(name: str, line: Any, source: str) -> list[Requirement]:
    """What a line requires: one property, or of several monotone attributes one each."""
    where = f"{source}: require.{name}"
    table = a_table(line, where, PolicyError)
    if "require_ratio" in table:
        return [_ratio_requirement(name, table, where)]
    known_fields(table, REQUIREMENT_FIELDS, where, PolicyError)
    if "at_least" not in table:
        raise PolicyError(f"{where}: at_least is missing; expected the least share, such as at_least = 0.99")
    at_least = share(table["at_least"], f"{where}.at_least")
    asked = {field: value for field, value in table.items() if field in FIELDS}
    try:
        each = monotone_of(asked["monotone"]).items() if "monotone" in asked else ()
        if len(each) <= 1:
            return [Requirement(read_property(asked), at_least, name=name)]
        return [
            Requirement(read_property({**asked, "monotone": {own: way}}), at_least, name=f"{name}, {own}")
            for own, way in each
        ]
    except PropertyError as error:
        raise PolicyError(f"{where}.{error}") from None


def _ratio_requirement(name: str, table: Mapping[str, Any], where: str) -> RatioRequirement:
    known_fields(table, RATIO_FIELDS, where, PolicyError)
    if "sensitive" not in table:
        raise PolicyError(f"{where}: sensitive is missing; expected the attribute whose values are the groups")
    sensitive = texts(table["sensitive"], f"{where}.sensitive", PolicyError)
    level = share(table["require_ratio"], f"{where}.require_ratio")
    try:
        return RatioRequirement(sensitive, level, name=name)
    except PolicyError:
        raise
    except BoxQTEError as error:
        raise PolicyError(f"{where}: {error}") from None
