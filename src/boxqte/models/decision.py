"""The decision rule of a model: class 1 iff its probability reaches a threshold, one for all or one for each group.

A model without such a rule decides as its library's own `predict` does. The rule is part of the model: whatever takes a
model takes `load_model(model, threshold=...)`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from boxqte.errors import ModelError
from boxqte.exact import Number, fraction, plain, shown

HALF = Fraction(1, 2)
MISSING = "missing"  # the group of a missing value, as in conditions
SMALLEST = Fraction(1, 10**30)  # a threshold: no library's float32 probabilities have all their digits below
ACCEPTED = (
    "expected a number between 0 and 1, such as 0.3 (p >= 0.3) or '>0.3' (p > 0.3), or one for each value of an "
    "attribute: {'sex': {'f': 0.4, 'm': 0.6}} or 'sex:f=0.4,m=0.6'"
)


@dataclass(frozen=True)
class DecisionRule:
    """Class 1 iff p >= tau (or p > tau); on a margin, iff F >= tau.

    `thresholds` has one entry (None, tau), or with an `attribute` one entry (value, tau) for each of its values.
    """

    thresholds: tuple[tuple[Any, Fraction], ...]
    attribute: str | None = None
    on: Literal["probability", "margin"] = "probability"
    exclusive: bool = False
    of_class: int = 1
    """Whose probability the library compares; that of class 0 is 1 - p, rounded once more."""
    slack: Fraction = Fraction(0)
    """How far from tau the library may still decide either way, beside the rounding of its sums and its link."""

    def level(self, group: int, link: str) -> tuple[Fraction, Fraction]:
        """Where class 1 begins as a margin: ln(first) + second, both rational."""
        tau = self.thresholds[group][1]
        if self.on == "margin":
            return Fraction(1), tau
        if link == "mean":
            return Fraction(1), tau - HALF
        return tau / (1 - tau), Fraction(0)

    def rounding_error(self, link: str, u: Fraction) -> Fraction:
        """How much the library's own arithmetic between a margin and the decision may be worth, as a margin.

        With u the unit roundoff. p = 1 / (1 + exp(-F)), computed with a few roundings, has a relative error of a few u,
        and 1 - p an absolute one; tau itself is rounded to the precision of p. Near tau, dF = dp / (p (1 - p)).
        """
        few, worst = 32 * u, Fraction(0)
        for _, tau in self.thresholds:
            if self.on == "margin":
                worst = max(worst, few * (1 + abs(tau)) + self.slack)
            elif link == "mean":
                worst = max(worst, few + self.slack)
            else:
                size = few * (2 if self.of_class == 1 else 2 / tau) + self.slack / tau
                digits = max(tau.numerator.bit_length(), tau.denominator.bit_length())  # more than |logit(tau)|
                worst = max(worst, 2 * size / (1 - tau) + few * digits)
        return worst

    def check(self, link: str, u: Fraction, library: str) -> None:
        """Refuse a threshold that the library's probabilities cannot be told from 0 or 1 at."""
        if self.on == "margin" or link == "mean":
            return
        for _, tau in self.thresholds:
            near = 1 - tau if self.of_class == 1 else min(tau, 1 - tau)
            if near < 256 * u or tau < SMALLEST:
                raise ModelError(
                    f"threshold: {plain(tau)} is closer to {1 if 1 - tau == near else 0} than the probabilities of {library} "
                    f"can be told from it; accepted are thresholds between 1e-30 and 1 - {float(256 * u):.1e}"
                )

    def text(self) -> str:
        """The rule in a few words.

        Examples
        --------
        >>> read_decision("sex:f=0.4,m=0.6").text()
        'class 1 iff p >= 0.4 (sex f), 0.6 (sex m)'
        >>> read_decision(">0.3").text()
        'class 1 iff p > 0.3'
        """
        sign = ">" if self.exclusive else ">="
        what = "p" if self.on == "probability" else "F"
        if self.attribute is None:
            return f"class 1 iff {what} {sign} {_shown(self.thresholds[0][1])}"
        groups = ", ".join(f"{_shown(tau)} ({self.attribute} {value})" for value, tau in self.thresholds)
        return f"class 1 iff {what} {sign} {groups}"

    def to_json(self) -> dict[str, Any]:
        """The rule as a JSON object."""
        levels: Any = {str(value): plain(tau) for value, tau in self.thresholds}
        return {
            "text": self.text(),
            "on": self.on,
            "threshold": levels if self.attribute is not None else plain(self.thresholds[0][1]),
            "attribute": self.attribute,
            "exclusive": self.exclusive,
        }

    def key(self) -> str:
        """What tells two rules apart, in whatever order their groups are given."""
        return repr((self.attribute, self.on, self.exclusive, sorted((str(v), str(tau)) for v, tau in self.thresholds)))

    def groups(
        self, attribute: str, values: Sequence[Any], missing: bool, labels: Sequence[str] | None = None
    ) -> list[int]:
        """The number of the threshold of each of the attribute's values, and of the missing one; equal ones are one.

        A threshold names a value, its text or its label.
        """
        keys = [*values, *([MISSING] if missing else [])]
        texts = [*(labels or map(str, values)), MISSING]
        first: dict[Fraction, int] = {}
        found: dict[int, int] = {}
        taken: set[int] = set()
        for at, key in enumerate(keys):
            mine = [i for i, (given, _) in enumerate(self.thresholds) if _same(given, key)]
            mine = mine or [i for i, (given, _) in enumerate(self.thresholds) if given == texts[at]]
            if not mine:
                raise ModelError(
                    f"threshold: '{attribute}' has the value {key!r}, which has no threshold; give one for each of "
                    f"{_listed(keys)}"
                )
            taken.update(mine)
            found[at] = first.setdefault(self.thresholds[mine[0]][1], mine[0])
        unknown = [given for i, (given, _) in enumerate(self.thresholds) if i not in taken]
        if unknown:
            raise ModelError(f"threshold: {unknown[0]!r} is no value of '{attribute}'; it has {_listed(keys)}")
        return [found[at] for at in range(len(keys))]


def decision_text(rule: DecisionRule | None) -> str:
    """The rule in a few words; nothing where the model decides as its library does."""
    return "" if rule is None else rule.text()


Threshold = Number | Mapping[str, Mapping[Any, Number]] | DecisionRule
"""What a user gives as a threshold; `read_decision` says what it means."""


def read_decision(given: object) -> DecisionRule:
    """The rule that a threshold means.

    A number is exact: text such as '0.3' and a float such as 0.3 both mean 3/10, as for epsilon and kappa (a float
    stands for its shortest decimal; `Fraction(0.3)` is the float itself). The library compares floats with floats; what
    that could change is reported as rounding-ambiguous.
    """
    if isinstance(given, DecisionRule):
        return given
    if isinstance(given, str) and ":" in given:
        given = _grouped(given)
    if not isinstance(given, Mapping):
        tau, exclusive = _number(given, "threshold")
        return DecisionRule(((None, tau),), exclusive=exclusive)
    if len(given) != 1 or not all(isinstance(table, Mapping) and table for table in given.values()):
        raise ModelError(f"threshold: {ACCEPTED}; found {shown(given)}")
    [(attribute, table)] = given.items()
    read = [(value, *_number(level, f"threshold: {attribute} {value}")) for value, level in table.items()]
    signs = {exclusive for _, _, exclusive in read}
    if len(signs) > 1:
        raise ModelError(f"threshold: p > tau for some values of '{attribute}' and p >= tau for others; give one kind")
    return DecisionRule(tuple((value, tau) for value, tau, _ in read), str(attribute), exclusive=signs.pop())


def read_limit(given: object) -> tuple[Fraction, bool]:
    """A threshold on a value that a model predicts, and whether it is exclusive."""
    if isinstance(given, Mapping | DecisionRule) or (isinstance(given, str) and ":" in given):
        raise ModelError(
            f"threshold: the model predicts a number; expected one threshold on it, such as 12.5 or '>12.5', found {shown(given)}"
        )
    return _signed(given, "threshold")


def _number(given: object, where: str) -> tuple[Fraction, bool]:
    tau, exclusive = _signed(given, where)
    if not 0 < tau < 1:
        raise ModelError(f"{where}: must lie between 0 and 1, found {plain(tau)}")
    return tau, exclusive


def _signed(given: object, where: str) -> tuple[Fraction, bool]:
    """A number, and whether it is exclusive: text may open with > or >=."""
    exclusive = False
    if isinstance(given, str):
        text = given.strip()
        exclusive = text.startswith(">") and not text.startswith(">=")
        given = text.removeprefix(">").removeprefix("=").strip()
    return fraction(given, ModelError, where), exclusive


def _grouped(text: str) -> dict[str, dict[str, str]]:
    """`sex:f=0.4,m=0.6`; a value with a comma goes in double quotes, a sign before the name is for all."""
    name, _, rest = text.partition(":")
    sign = ">" if name.lstrip().startswith(">") and not name.lstrip().startswith(">=") else ""
    table: dict[str, str] = {}
    for part in next(csv.reader([rest], skipinitialspace=True), []):
        value, equals, level = (piece.strip() for piece in part.rpartition("="))
        if not equals or not value or not level:
            raise ModelError(f"threshold: {ACCEPTED}; found {shown(text)}")
        if value in table:
            raise ModelError(f"threshold: {value!r} is given twice in {shown(text)}")
        table[value] = sign + level
    return {name.strip().removeprefix(">").removeprefix("=").strip(): table}


def _same(given: Any, value: Any) -> bool:
    """Whether a key of the user's table is this value: itself, its text, or its number."""
    if isinstance(given, bool) or isinstance(value, bool):
        return str(given) == str(value)
    if given is None:
        return bool(value == MISSING)
    if given == value or str(given) == str(value):
        return True
    try:
        return float(given) == float(value)
    except (TypeError, ValueError, OverflowError):
        return False


def _shown(tau: Fraction) -> str:
    exact = plain(tau)
    return str(exact) if len(str(exact)) <= 22 else f"{float(tau)!r}"


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values[:12])) + (f", ... ({len(values)} in all)" if len(values) > 12 else "")
