"""What is asked of the model (semantics.md, 'Properties', and questions.md).

Fairness and robustness as the paper has them; scores instead of classes; monotonicity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from boxqte.basics.checks import as_names, by_name, did_you_mean
from boxqte.errors import PropertyError
from boxqte.exact import Number, fraction, plain, shown
from boxqte.space.space import Space

TieRule = Literal["library", "paper"]
Scale = Literal["probability", "margin", "value"]
Direction = Literal["increasing", "decreasing"]
Epsilon = Fraction | tuple[tuple[str, Fraction], ...]


@dataclass(frozen=True)
class Property:
    """Base of Fairness and Robustness; use those.

    `epsilon` is one rate (a share of each numeric attribute's range), or a tolerance per attribute in the attribute's
    own unit. Attributes that are not named have tolerance 0.
    """

    sensitive: tuple[str, ...]
    epsilon: Epsilon
    kappa: Fraction
    tie: TieRule
    partner_kappa: Fraction = Fraction(0)
    """The confidence that x' must exceed as well; 0: any x' of the other class."""
    max_change: tuple[tuple[str, Fraction], ...] = ()
    """By how much a numeric sensitive attribute may change at most; those that are not named by any distance."""

    @property
    def kind(self) -> str:
        return "fairness" if self.sensitive else "robustness"

    @property
    def asks_scores(self) -> bool:
        """Whether scores are compared, not classes."""
        return False

    @property
    def treated(self) -> str:
        """What is said of an input that is no counterexample."""
        return "treated fairly" if self.sensitive else "robust"

    @property
    def meaning(self) -> str:
        """What a counterexample is, in one sentence."""
        sure = f", with confidence above {plain(self.partner_kappa)}" if self.partner_kappa > Fraction(1, 2) else ""
        said = f"a counterexample is a confident input x for which some x' in the space has the other class{sure}"
        if not self.sensitive:
            return f"{said} and is within epsilon in every attribute (categorical: equal)"
        bounds = "".join(f" ({name} by at most {plain(value)})" for name, value in self.max_change)
        return (
            f"{said}, differs in a sensitive attribute{bounds}, and is within epsilon in every other attribute "
            "(categorical: equal)"
        )

    def check(self, space: Space) -> None:
        """Raise PropertyError if the property does not fit the space."""
        tolerances = self.tolerances(space)
        for name, _ in self.max_change:
            if name not in self.sensitive:
                raise PropertyError(
                    f"max_change: '{name}' is not sensitive; sensitive are {', '.join(self.sensitive)}"
                    f"{did_you_mean(name, self.sensitive)}"
                )
            if not space[name].is_numeric:
                raise PropertyError(f"max_change: '{name}' is {space[name].kind}; only numbers have a distance")
        if len(self.max_change) > 1:
            raise PropertyError(
                "max_change: at most one attribute may be bounded, found " + ", ".join(n for n, _ in self.max_change)
            )
        if self.max_change and any(tolerances.values()):
            raise PropertyError("max_change: is for epsilon = 0; leave one of the two out")

    def tolerances(self, space: Space) -> dict[str, Fraction]:
        """The tolerance of each non-sensitive attribute in its own unit; 0 for categorical ones."""
        for name in self.sensitive:
            if name not in space.names:
                raise PropertyError(
                    f"sensitive: '{name}' is not an attribute{did_you_mean(name, space.names)}; attributes are "
                    f"{', '.join(space.names)}"
                )
        free = [a for a in space if a.name not in self.sensitive]
        if isinstance(self.epsilon, Fraction):
            return {a.name: self.epsilon * a.range if a.is_numeric else Fraction(0) for a in free}
        given = dict(self.epsilon)
        for name, value in given.items():
            if name not in space.names:
                raise PropertyError(
                    f"epsilon: '{name}' is not an attribute{did_you_mean(name, space.names)}; attributes are "
                    f"{', '.join(space.names)}"
                )
            if name in self.sensitive:
                raise PropertyError(
                    f"epsilon: '{name}' is sensitive, it may change by any distance; leave it out of epsilon"
                )
            if value and not space[name].is_numeric:
                raise PropertyError(
                    f"epsilon: '{name}' is {space[name].kind}, its tolerance can only be 0, found {plain(value)}"
                )
        return {a.name: given.get(a.name, Fraction(0)) for a in free}

    def to_json(self) -> dict[str, Any]:
        """The property as a JSON object."""
        out: dict[str, Any] = {"kind": self.kind}
        if self.sensitive:
            out["sensitive"] = list(self.sensitive)
        if isinstance(self.epsilon, Fraction):
            out["epsilon_rate"] = plain(self.epsilon)
        else:
            out["epsilon"] = {name: plain(value) for name, value in self.epsilon}
        if self.partner_kappa:
            out["partner_kappa"] = plain(self.partner_kappa)
        if self.max_change:
            out["max_change"] = {name: plain(value) for name, value in self.max_change}
        return out | {"kappa": plain(self.kappa), "tie": self.tie}

    def __str__(self) -> str:
        parts = [f"sensitive {', '.join(self.sensitive)}"] if self.sensitive else []
        if isinstance(self.epsilon, Fraction):
            parts.append(f"epsilon rate {plain(self.epsilon)}")
        else:
            parts.append("epsilon " + ", ".join(f"{name}={plain(value)}" for name, value in self.epsilon))
        parts.append(f"kappa {plain(self.kappa)}")
        if self.partner_kappa:
            parts.append(f"partner kappa {plain(self.partner_kappa)}")
        parts += [f"{name} changes by at most {plain(value)}" for name, value in self.max_change]
        return f"{self.kind} ({'; '.join(parts)})"


@dataclass(frozen=True, init=False)
class Fairness(Property):
    """eps-kappa-fairness with respect to a set of sensitive attributes.

    Parameters
    ----------
    sensitive
        The sensitive attribute or attributes; several are one set.
    epsilon
        A number is a rate of each numeric attribute's range; a mapping gives tolerances in the attributes' own units.
    kappa
        Only inputs with confidence above kappa count; 0.5 admits every input that has a class.
    tie
        "library": an input with margin 0 has the class that the model's own `predict` gives it. "paper": it has none.
    partner_kappa
        x' must be confident above this as well; kappa = partner_kappa = 0.8 asks for flips from 'granted at .8' to
        'refused at .2'. The default asks for any x' of the other class.
    max_change
        By how much a numeric sensitive attribute may change at most, such as {"age": 5}; by default by any distance.

    Examples
    --------
    >>> str(Fairness("sex", epsilon=0.1, kappa=0.7))
    'fairness (sensitive sex; epsilon rate 0.1; kappa 0.7)'
    """

    def __init__(
        self,
        sensitive: str | Iterable[str],
        epsilon: Number | Mapping[str, Number] = 0,
        kappa: Number = Fraction(1, 2),
        *,
        tie: TieRule = "library",
        partner_kappa: Number = 0,
        max_change: Mapping[str, Number] | None = None,
    ):
        _fill(self, _sensitive(sensitive), epsilon, kappa, tie, partner_kappa)
        bounds = []
        for name, value in by_name(max_change, "max_change", PropertyError).items():
            bound = fraction(value, PropertyError, f"max_change of '{name}'")
            if bound <= 0:
                raise PropertyError(f"max_change of '{name}': must be above 0, found {plain(bound)}")
            bounds.append((str(name), bound))
        object.__setattr__(self, "max_change", tuple(bounds))


@dataclass(frozen=True, init=False)
class Robustness(Property):
    """Global eps-kappa-robustness: no sensitive attributes, every attribute may move by its tolerance.

    Examples
    --------
    >>> str(Robustness({"income": 5}))
    'robustness (epsilon income=5; kappa 0.5)'
    """

    def __init__(
        self,
        epsilon: Number | Mapping[str, Number] = 0,
        kappa: Number = Fraction(1, 2),
        *,
        tie: TieRule = "library",
        partner_kappa: Number = 0,
    ):
        _fill(self, (), epsilon, kappa, tie, partner_kappa)


@dataclass(frozen=True, init=False)
class Monotonicity(Property):
    """Whether the class, or the score, only grows (or only falls) with an attribute; epsilon = 0.

    x is a counterexample iff some x' that differs in this attribute only, and has more of it, gets a lower class (score), or
    one that has less of it a higher one. A missing value is neither more nor less than any other.

    Parameters
    ----------
    attribute
        A numeric attribute.
    direction
        "increasing" or "decreasing".
    on
        "class" or "score": the margin, which grows and falls with the probability.
    kappa
        Only inputs with confidence above kappa count.

    Examples
    --------
    >>> str(Monotonicity("income"))
    'monotonicity (class increasing in income; kappa 0.5)'
    """

    direction: Direction = "increasing"
    on: Literal["class", "score"] = "class"

    def __init__(
        self,
        attribute: str,
        direction: Direction = "increasing",
        on: Literal["class", "score"] = "class",
        kappa: Number = Fraction(1, 2),
        *,
        tie: TieRule = "library",
    ):
        if not isinstance(attribute, str):
            raise PropertyError(f"attribute: expected the name of one attribute, found {shown(attribute)}")
        if direction not in ("increasing", "decreasing"):
            raise PropertyError(f"direction: expected 'increasing' or 'decreasing', found {direction!r}")
        if on not in ("class", "score"):
            raise PropertyError(f"on: expected 'class' or 'score', found {on!r}")
        _fill(self, (attribute,), 0, kappa, tie)
        object.__setattr__(self, "direction", direction)
        object.__setattr__(self, "on", on)

    @property
    def kind(self) -> str:
        return "monotonicity"

    @property
    def asks_scores(self) -> bool:
        return self.on == "score"

    @property
    def treated(self) -> str:
        return f"treated monotonically in {self.sensitive[0]}"

    @property
    def meaning(self) -> str:
        ((name,), more) = self.sensitive, "lower" if self.direction == "increasing" else "higher"
        less = "higher" if more == "lower" else "lower"
        return (
            f"a counterexample is a confident input x for which some x' that differs in {name} only, and has more of it, "
            f"gets a {more} {self.on}, or one that has less of it a {less} one"
        )

    def check(self, space: Space) -> None:
        (name,) = self.sensitive
        if name not in space.names:
            raise PropertyError(
                f"attribute: '{name}' is not an attribute{did_you_mean(name, space.names)}; attributes are "
                f"{', '.join(space.names)}"
            )
        super().check(space)
        if not space[name].is_numeric:
            raise PropertyError(f"attribute: '{name}' is {space[name].kind}; only numbers have an order")

    def to_json(self) -> dict[str, Any]:
        """The property as a JSON object."""
        out = {"kind": self.kind, "monotone": {self.sensitive[0]: self.direction}, "on": self.on}
        return out | {"kappa": plain(self.kappa), "tie": self.tie}

    def __str__(self) -> str:
        return f"monotonicity ({self.on} {self.direction} in {self.sensitive[0]}; kappa {plain(self.kappa)})"


@dataclass(frozen=True, init=False)
class ScoreFairness(Property):
    """How much the score changes with the sensitive attributes: x is a counterexample iff some admissible x' has a score
    that differs by more than `at_most`.

    Parameters
    ----------
    at_most
        The largest change that is accepted.
    scale
        "probability", "margin" (what the link turns into a probability), or "value", what a regressor predicts.

    Examples
    --------
    >>> str(ScoreFairness("sex", at_most=0.05))
    'score fairness (sensitive sex; probability changes by at most 0.05; kappa 0.5)'
    """

    at_most: Fraction = Fraction(0)
    scale: Scale = "probability"

    def __init__(
        self,
        sensitive: str | Iterable[str],
        at_most: Number,
        scale: Scale = "probability",
        kappa: Number = Fraction(1, 2),
    ):
        level = fraction(at_most, PropertyError, "at_most")
        if level < 0:
            raise PropertyError(f"at_most: must be at least 0, found {plain(level)}")
        if scale not in ("probability", "margin", "value"):
            raise PropertyError(f"scale: expected 'probability', 'margin' or 'value', found {scale!r}")
        if scale == "probability" and level >= 1:
            raise PropertyError(f"at_most: probabilities differ by less than 1, found {plain(level)}")
        _fill(self, _sensitive(sensitive), 0, kappa, "library")
        object.__setattr__(self, "at_most", level)
        object.__setattr__(self, "scale", scale)

    @property
    def kind(self) -> str:
        return "score fairness"

    @property
    def asks_scores(self) -> bool:
        return True

    @property
    def treated(self) -> str:
        return f"given a score that changes by at most {plain(self.at_most)} with {', '.join(self.sensitive)}"

    @property
    def meaning(self) -> str:
        return (
            f"a counterexample is a confident input x for which some x' that differs in sensitive attributes only has a "
            f"{self.scale} further than {plain(self.at_most)} from that of x"
        )

    def to_json(self) -> dict[str, Any]:
        """The property as a JSON object."""
        out = {
            "kind": self.kind,
            "sensitive": list(self.sensitive),
            "score_at_most": plain(self.at_most),
            "scale": self.scale,
        }
        return out | {"kappa": plain(self.kappa)}

    def __str__(self) -> str:
        change = f"{self.scale} changes by at most {plain(self.at_most)}"
        return f"score fairness (sensitive {', '.join(self.sensitive)}; {change}; kappa {plain(self.kappa)})"


def check_property(property: object) -> None:
    """Refuse what is no property, with the one that may be meant."""
    if isinstance(property, Property):
        return
    meant = ""
    if isinstance(property, str) or (isinstance(property, (list, tuple)) and all(isinstance(n, str) for n in property)):
        meant = f"; fairness in that attribute is Fairness({property!r})" if property else ""
    raise PropertyError(f"property: expected Fairness(...), Robustness(...), Monotonicity(...) or ScoreFairness(...), found "
                        f"{shown(property)}{meant}")  # fmt: skip


def _sensitive(sensitive: str | Iterable[str]) -> tuple[str, ...]:
    names = as_names(sensitive, "sensitive", PropertyError)
    if not names:
        raise PropertyError("sensitive: no attribute is named; for robustness use Robustness")
    for name in names:
        if names.count(name) > 1:
            raise PropertyError(f"sensitive: '{name}' is named twice")
    return names


def _fill(
    target: Property,
    sensitive: tuple[str, ...],
    epsilon: object,
    kappa: object,
    tie: TieRule,
    partner_kappa: object = 0,
) -> None:
    exact: Epsilon
    if isinstance(epsilon, Mapping):
        exact = tuple((str(name), fraction(v, PropertyError, f"epsilon of '{name}'")) for name, v in epsilon.items())
        for name, value in exact:
            if value < 0:
                raise PropertyError(f"epsilon of '{name}': must be at least 0, found {plain(value)}")
    else:
        exact = fraction(epsilon, PropertyError, "epsilon")
        if exact < 0:
            raise PropertyError(f"epsilon: must be at least 0, found {plain(exact)}")
    level = fraction(kappa, PropertyError, "kappa")
    if not 0 <= level < 1:
        raise PropertyError(f"kappa: must be at least 0 and below 1, found {plain(level)}")
    if tie not in ("library", "paper"):
        raise PropertyError(f"tie: expected 'library' or 'paper', found {tie!r}")
    other = fraction(partner_kappa, PropertyError, "partner_kappa")
    if not 0 <= other < 1:
        raise PropertyError(f"partner_kappa: must be at least 0 and below 1, found {plain(other)}")
    fields = {
        "sensitive": sensitive,
        "epsilon": exact,
        "kappa": level,
        "tie": tie,
        "partner_kappa": other,
        "max_change": (),
    }
    for field, content in fields.items():
        object.__setattr__(target, field, content)
