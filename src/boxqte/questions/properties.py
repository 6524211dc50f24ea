"""What is asked of the model: eps-kappa-fairness and eps-kappa-robustness (semantics.md, 'Properties')."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from boxqte.basics.checks import as_names, did_you_mean
from boxqte.errors import PropertyError
from boxqte.exact import Number, fraction, plain, shown
from boxqte.space.space import Space

TieRule = Literal["library", "paper"]
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

    @property
    def kind(self) -> str:
        return "fairness" if self.sensitive else "robustness"

    def check(self, space: Space) -> None:
        """Raise PropertyError if the property does not fit the space."""
        self.tolerances(space)

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
        return out | {"kappa": plain(self.kappa), "tie": self.tie}

    def __str__(self) -> str:
        parts = [f"sensitive {', '.join(self.sensitive)}"] if self.sensitive else []
        if isinstance(self.epsilon, Fraction):
            parts.append(f"epsilon rate {plain(self.epsilon)}")
        else:
            parts.append("epsilon " + ", ".join(f"{name}={plain(value)}" for name, value in self.epsilon))
        return f"{self.kind} ({'; '.join(parts)}; kappa {plain(self.kappa)})"


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
    ):
        names = as_names(sensitive, "sensitive", PropertyError)
        if not names:
            raise PropertyError("sensitive: no attribute is named; for robustness use Robustness")
        for name in names:
            if names.count(name) > 1:
                raise PropertyError(f"sensitive: '{name}' is named twice")
        _fill(self, names, epsilon, kappa, tie)


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
    ):
        _fill(self, (), epsilon, kappa, tie)


def check_property(property: object) -> None:
    """Refuse what is no property, with the one that may be meant."""
    if isinstance(property, Property):
        return
    meant = ""
    if isinstance(property, str) or (isinstance(property, (list, tuple)) and all(isinstance(n, str) for n in property)):
        meant = f"; fairness in that attribute is Fairness({property!r})" if property else ""
    raise PropertyError(f"property: expected Fairness(...) or Robustness(...), found {shown(property)}{meant}")


def _fill(target: Property, sensitive: tuple[str, ...], epsilon: object, kappa: object, tie: TieRule) -> None:
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
    fields = {"sensitive": sensitive, "epsilon": exact, "kappa": level, "tie": tie}
    for field, content in fields.items():
        object.__setattr__(target, field, content)
