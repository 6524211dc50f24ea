"""Arguments of the public functions, checked before anything else happens: one line that names the argument."""

from __future__ import annotations

import math
from numbers import Integral, Real

from boxqte.errors import BoxQTEError, EngineError
from boxqte.exact import shown

MAX_WORKERS = 10_000
LARGEST = 2**63 - 1


def number(value: object, where: str, error: type[BoxQTEError] = EngineError, unit: str = "") -> float:
    """A number, infinity included; not NaN, not a text."""
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            as_float = float(value)
        except OverflowError:
            as_float = math.inf if value > 0 else -math.inf
        if not math.isnan(as_float):
            return as_float
    raise error(f"{where}: expected a number{unit and f' of {unit}'}, found {shown(value)}")


def seconds(value: object, where: str = "time_limit", error: type[BoxQTEError] = EngineError) -> float | None:
    """Seconds above 0; None is no limit.

    Examples
    --------
    >>> seconds(2), seconds(None)
    (2.0, None)
    """
    if value is None:
        return None
    given = number(value, where, error, "seconds")
    if not given > 0:
        raise error(f"{where}: must be above 0 seconds, found {given:g}")
    return given


def whole(
    value: object, where: str, low: int = 1, high: int = LARGEST, error: type[BoxQTEError] = EngineError, unit: str = ""
) -> int:
    """A whole number within its limits; 1e6 is one.

    Examples
    --------
    >>> whole(1e6, "node_limit")
    1000000
    """
    given = number(value, where, error, unit)
    exact = int(value) if isinstance(value, Integral) else int(given) if given.is_integer() else None
    if exact is None:
        raise error(f"{where}: expected a whole number{unit and f' of {unit}'}, found {shown(value)}")
    if not low <= exact <= high:
        bound = f"at least {low}" if exact < low else f"at most {high}"
        raise error(f"{where}: must be {bound}{unit and f' {unit}'}, found {shown(value)}")
    return exact
