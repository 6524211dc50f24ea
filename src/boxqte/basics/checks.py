"""Arguments of the public functions, checked before anything else happens: one line that names the argument."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

from boxqte.basics.machine import cores
from boxqte.errors import BoxQTEError, EngineError
from boxqte.exact import shown

MAX_WORKERS = 10_000
LARGEST = 2**63 - 1


def number(value: object, where: str, error: type[BoxQTEError] = EngineError, unit: str = "") -> float:
    """A number, infinity included; not NaN, not a text."""
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            as_float = float(value)
        except OverflowError:  # an integer or a fraction beyond every limit
            as_float = -math.inf if value < 0 else math.inf
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


def worker_count(workers: object) -> int:
    """Threads or processes; None is one per core that this process may use."""
    if workers is None:
        return cores()
    return whole(workers, "workers", 1, MAX_WORKERS)


def random_numbers(random_state: object, error: type[BoxQTEError] = EngineError) -> np.random.Generator:
    """The generator for a seed; None is a new one every time."""
    import numpy as np

    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    return np.random.default_rng(whole(random_state, "random_state", 0, error=error))


def file_path(value: object, where: str, error: type[BoxQTEError]) -> Path:
    """A path, as a text or a Path."""
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise error(f"{where}: expected the path of a file, found {shown(value)}")
    return Path(value)


def text(value: object, where: str, error: type[BoxQTEError], wanted: str = "a text") -> str:
    if not isinstance(value, str):
        raise error(f"{where}: expected {wanted}, found {shown(value)}")
    return value


def as_names(value: object, where: str, error: type[BoxQTEError]) -> tuple[str, ...]:
    """The names that an argument means: one, or several."""
    names = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    for name in names:
        if not isinstance(name, str):
            raise error(f"{where}: expected a name or a list of names, found {shown(name)}")
    return names


def by_name(value: object, where: str, error: type[BoxQTEError] = EngineError) -> Mapping[str, Any]:
    """A mapping from names; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise error(f"{where}: expected a mapping from names, such as {{'name': value}}, found {shown(value)}")
    return value


def function(value: object, where: str, error: type[BoxQTEError] = EngineError) -> Callable[..., Any] | None:
    """Something to call, or None."""
    if value is not None and not callable(value):
        raise error(f"{where}: expected a function, found {shown(value)}")
    return value


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like it, if one is."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), 1, 0.7)), None)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """For a message about an unknown word: the known one that may be meant.

    Examples
    --------
    >>> did_you_mean("sexx", ["age", "sex"]), did_you_mean("colour", ["age", "sex"])
    (" (did you mean 'sex'?)", '')
    """
    meant = nearest(str(word), known)
    return "" if meant is None else f" (did you mean '{meant}'?)"
