"""A property from named fields: of a JSON object, of a line of a policy, or the options of a command.

The three doors ask with the same words, so that what may stand together is said once. A property reads back from its own
JSON form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from boxqte.basics.checks import did_you_mean
from boxqte.errors import PropertyError
from boxqte.exact import fraction, shown
from boxqte.questions.properties import Fairness, Monotonicity, Property, Robustness, ScoreFairness

FIELDS = ("sensitive", "epsilon_rate", "epsilon", "kappa", "tie", "partner_kappa", "max_change", "monotone", "on",
          "score_at_most", "scale")  # fmt: skip
NUMBERS = {"epsilon_rate": 0, "kappa": Fraction(1, 2), "partner_kappa": 0}
# what the properties call their arguments -> field
WORDS = {"attribute": "monotone", "direction": "monotone", "at_most": "score_at_most"}


def read_property(fields: Mapping[str, Any], called: Callable[[str], str] = str) -> Property:
    """The property that the fields describe; those that are None are left out. `called` is what the user calls a field.
    An error begins with the field's own name.

    Examples
    --------
    >>> str(read_property({"monotone": {"income": "increasing"}, "on": "score"}))
    'monotonicity (score increasing in income; kappa 0.5)'
    >>> read_property(Fairness("sex", partner_kappa="0.8").to_json()) == Fairness("sex", partner_kappa="0.8")
    True
    """
    given = {name: value for name, value in fields.items() if value is not None}
    kind = given.pop("kind", None)
    for name in given:
        if name not in FIELDS:
            raise PropertyError(f"unknown field '{name}'{did_you_mean(name, FIELDS)}; fields are {', '.join(FIELDS)}")
    try:
        prop = _asked(given, called)
    except PropertyError as error:
        raise PropertyError(re.sub(r"^\w+(?=: )", lambda word: WORDS.get(word[0], word[0]), str(error))) from None
    if kind is not None and kind != prop.kind:
        raise PropertyError(f"kind: {shown(kind)}, but its fields ask about {prop.kind}")
    return prop


def monotone_of(value: Any) -> dict[str, Any]:
    """Attributes and the direction of each, as they stand in a table."""
    table = _table(value, "monotone", "attribute = 'increasing' or 'decreasing'")
    if not table:
        raise PropertyError("monotone: no attribute is named; expected at least one")
    return table


def _asked(given: Mapping[str, Any], called: Callable[[str], str]) -> Property:
    number = {name: given.get(name, default) for name, default in NUMBERS.items()}
    kappa, tie = number["kappa"], given.get("tie", "library")
    if "monotone" in given:
        _alone("monotone", given, ("on", "kappa", "tie"), called)
        directions = monotone_of(given["monotone"])
        if len(directions) > 1:
            raise PropertyError(
                f"monotone: one attribute a question, found {', '.join(directions)}; ask for each of them"
            )
        ((name, direction),) = directions.items()
        return Monotonicity(name, direction, given.get("on", "class"), kappa, tie=tie)
    if "score_at_most" in given:
        _alone("score_at_most", given, ("sensitive", "scale", "kappa"), called)
        if "sensitive" not in given:
            raise PropertyError(f"score_at_most: compares inputs that differ in {called('sensitive')}; give it too")
        return ScoreFairness(_names(given), given["score_at_most"], given.get("scale", "probability"), kappa)
    for name, needs in (("on", "monotone"), ("scale", "score_at_most")):
        if name in given:
            raise PropertyError(f"{name}: belongs to {called(needs)}; give it too")
    if "epsilon" in given and "epsilon_rate" in given:
        raise PropertyError(f"epsilon: it and {called('epsilon_rate')} exclude each other; give one of them")
    epsilon = (
        _table(given["epsilon"], "epsilon", "attribute = number") if "epsilon" in given else number["epsilon_rate"]
    )
    if "sensitive" not in given:
        if "max_change" in given:
            raise PropertyError(f"max_change: bounds a sensitive attribute; give {called('sensitive')} too")
        return Robustness(epsilon, kappa, tie=tie, partner_kappa=number["partner_kappa"])
    bounds = _table(given["max_change"], "max_change", "attribute = number") if "max_change" in given else None
    further = {"partner_kappa": number["partner_kappa"], "max_change": bounds}
    return Fairness(_names(given), epsilon, kappa, tie=tie, **further)


def _alone(asked: str, given: Mapping[str, Any], beside: Iterable[str], called: Callable[[str], str]) -> None:
    """Refuse a field that the question has no place for."""
    for name, value in given.items():
        says_nothing = value == "library" or (name in NUMBERS and fraction(value, PropertyError, name) == NUMBERS[name])
        if name != asked and name not in beside and not says_nothing:
            why = {"monotone": "asks about one attribute, and nothing else changes", "score_at_most": "compares scores"}
            raise PropertyError(f"{asked}: {why[asked]}; leave {called(name)} out")


def _names(given: Mapping[str, Any]) -> list[str]:
    value = given["sensitive"]
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)):
        raise PropertyError(f"sensitive: expected the names of attributes, found {shown(value)}")
    for name in names:
        if not isinstance(name, str) or not name:
            raise PropertyError(f"sensitive: expected a text, found {shown(name)}")
    return list(names)


def _table(value: Any, name: str, wanted: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise PropertyError(f"{name}: expected a table, {wanted}, found {shown(value)}")
    return dict(value)
