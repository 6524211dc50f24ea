"""Fairness as a test, for pytest or any test runner: `assert_fair`, `assert_robust`, `assert_score_fair`, `assert_monotone`,
`assert_ratio`, and `assert_policy`.

A test passes only on proof. If the bounds are still on both sides of what is required when the time is over, it fails
and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from boxqte.answers.rates import GroupRates, group_rates
from boxqte.answers.verdict import Verdict
from boxqte.api.gate import GateReport, Policy
from boxqte.api.quantify import Quantification, quantify
from boxqte.auditing.policy import RatioRequirement, Requirement, judge, rates_check
from boxqte.exact import Number
from boxqte.questions.properties import Direction, Fairness, Monotonicity, Property, Robustness, Scale, ScoreFairness
from boxqte.report.text import check_text


def assert_fair(
    model: object,
    space: Any,
    sensitive: str | Iterable[str],
    *,
    at_least: Number = 1,
    epsilon: Number | Mapping[str, Number] = 0,
    kappa: Number = "0.5",
    tie: Any = "library",
    partner_kappa: Number = 0,
    max_change: Mapping[str, Number] | None = None,
    **limits: Any,
) -> Quantification:
    """Fail unless it is proved that at least this share of the confident inputs is treated fairly.

    Parameters
    ----------
    model, space
        As for `boxqte.quantify`.
    sensitive, epsilon, kappa, tie, partner_kappa, max_change
        As for `boxqte.Fairness`.
    at_least
        The least share; 1 allows no counterexample at all.
    **limits
        Further arguments of `boxqte.quantify`, such as `time_limit` or `engine`.

    Returns
    -------
    Quantification
        The result, for further assertions.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> _ = assert_fair(loan_ensemble(), loan_space(), "race", at_least=0.6, engine="exhaustive")
    >>> assert_fair(loan_ensemble(), loan_space(), "race", at_least=0.9, engine="exhaustive")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: fairness (sensitive race; epsilon rate 0; kappa 0.5) violated: required at least 0.9, ...
    """
    __tracebackhide__ = True
    prop = Fairness(sensitive, epsilon, kappa, tie=tie, partner_kappa=partner_kappa, max_change=max_change)
    return _assert(model, space, prop, at_least, limits)


def assert_score_fair(
    model: object,
    space: Any,
    sensitive: str | Iterable[str],
    *,
    at_most: Number,
    scale: Scale = "probability",
    at_least: Number = 1,
    **limits: Any,
) -> Quantification:
    """Fail unless it is proved that the score of at least this share of the inputs changes by at most `at_most` with the
    sensitive attributes; see `ScoreFairness` and `assert_fair`.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> _ = assert_score_fair(loan_ensemble(), loan_space(), "race", at_most=100, scale="margin", engine="exhaustive")
    """
    __tracebackhide__ = True
    return _assert(model, space, ScoreFairness(sensitive, at_most, scale), at_least, limits)


def assert_monotone(
    model: object,
    space: Any,
    attribute: str,
    direction: Direction = "increasing",
    *,
    on: Literal["class", "score"] = "class",
    at_least: Number = 1,
    kappa: Number = "0.5",
    **limits: Any,
) -> Quantification:
    """Fail unless it is proved that the class (or the score) only grows, or falls, with the attribute; see `Monotonicity` and
    `assert_fair`.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> _ = assert_monotone(loan_ensemble(), loan_space(), "income", at_least=0.5, engine="exhaustive")
    """
    __tracebackhide__ = True
    return _assert(model, space, Monotonicity(attribute, direction, on, kappa), at_least, limits)


def assert_robust(
    model: object,
    space: Any,
    *,
    epsilon: Number | Mapping[str, Number],
    at_least: Number = 1,
    kappa: Number = "0.5",
    tie: Any = "library",
    **limits: Any,
) -> Quantification:
    """Fail unless it is proved that at least this share of the confident inputs is robust; see `assert_fair`.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> _ = assert_robust(loan_ensemble(), loan_space(), epsilon={"age": 5}, at_least=0.9, engine="exhaustive")
    """
    __tracebackhide__ = True
    return _assert(model, space, Robustness(epsilon, kappa, tie=tie), at_least, limits)


def assert_ratio(
    model: object, space: Any, sensitive: str | Iterable[str], *, at_least: Number = "0.8", **limits: Any
) -> GroupRates:
    """Fail unless it is proved that the groups' rates of class 1 have at least this ratio; see `boxqte.group_rates`.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> _ = assert_ratio(loan_ensemble(), loan_space(), "race", at_least=0.6)
    >>> assert_ratio(loan_ensemble(), loan_space(), "race")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: ratio of the group rates by race violated: required a ratio of at least 0.8, the ratio is 0.697...
    """
    __tracebackhide__ = True
    requirement = RatioRequirement(sensitive, at_least)
    rates = group_rates(model, space, sensitive, require_ratio=requirement.at_least, **limits)
    check = rates_check(requirement, rates)
    if check.verdict is not Verdict.HOLDS:
        raise AssertionError(f"{requirement.name} {check_text(check)}")
    return rates


def assert_policy(policy: Policy | str | Path, model: object = None, space: Any = None, **limits: Any) -> GateReport:
    """Fail unless every requirement of the policy (or of the policy file) holds.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> policy = Policy([Requirement(Fairness("race"), 0.6, name="race")], engine="exhaustive")
    >>> assert_policy(policy, loan_ensemble(), loan_space()).passed
    True
    """
    __tracebackhide__ = True
    read = policy if isinstance(policy, Policy) else Policy.load(policy)
    report = read.check(model, space, **limits)
    if not report.passed:
        raise AssertionError(f"the policy is not met\n{report}")
    return report


def _assert(model: object, space: Any, prop: Property, at_least: Number, limits: Mapping[str, Any]) -> Quantification:
    __tracebackhide__ = True
    requirement = Requirement(prop, at_least)
    result = quantify(model, space, prop, require=requirement.at_least, **limits)
    check = judge(requirement, result)
    if check.verdict is not Verdict.HOLDS:
        raise AssertionError(f"{prop} {check_text(check)}")
    return result
