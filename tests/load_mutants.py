"""Loads damaged files in a process of its own: python -m tests.load_mutants FOLDER prints one JSON line for each file.

A damaged pickle can call anything with anything, so it is not run inside the test process: here memory and time are
limited, and a crash ends only this process.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np

from boxqte.models.importers import ImportedModel, load_model
from tests.conformance.mutations import SECONDS, refused_or_sound
from tests.conformance.suite import beyond_rounding, boundary_rows

MEMORY = 6 * 2**30  # address space; the libraries alone reserve a good part of it


class TooSlowError(BaseException):
    """Not an Exception: the importer turns those into its own."""


def too_slow(*_: object) -> None:
    raise TooSlowError


def outcome(path: Path) -> str:
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    loaded: list[ImportedModel] = []

    def load() -> ImportedModel:
        loaded.append(load_model(path, allow_pickle=True))
        return loaded[-1]

    try:
        result = refused_or_sound(load, path.name)
    except (AssertionError, TooSlowError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return agrees(loaded[-1]) if result == "sound" else result


def agrees(model: ImportedModel) -> str:
    """Whether a model that was accepted is the model that its library predicts with, where the library still does."""
    with np.errstate(all="ignore"):
        rows = boundary_rows(model.ensemble, n_random=20, missing=False)
        if not model.ensemble.predicts_classes:
            return same_numbers(model, rows)
        rows = rows[beyond_rounding(model.ensemble, rows)]
        theirs = None
        if model.native is not None and len(rows):
            with contextlib.suppress(Exception):  # a damaged option may break predict and nothing that is imported
                theirs = model.native(rows)
    if theirs is not None and (theirs != model.ensemble.predict(rows)).any():
        return "accepted, but predicts other classes than its library"
    return "sound"


def same_numbers(model: ImportedModel, rows: np.ndarray) -> str:
    theirs = None
    if model.values is not None:
        with contextlib.suppress(Exception):
            theirs = model.values(rows)
    if theirs is None or model.ensemble.link != "identity" or not np.isfinite(theirs).all():
        return "sound"
    error = model.ensemble.rounding_error()
    far = [abs(margin - Fraction(float(v))) > error for (margin,), v in zip(model.ensemble.exact_margin(rows), theirs)]
    return "accepted, but predicts other numbers than its library" if any(far) else "sound"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, too_slow)
    warnings.simplefilter("ignore")  # a damaged version number is worth a warning, and not the point here
    import sklearn.ensemble  # noqa: F401
    import skops.io  # noqa: F401  # the importer loads it when it is needed, which is not the file's time

    for path in sorted(Path(sys.argv[1]).iterdir()):
        print(json.dumps({"file": path.name, "outcome": outcome(path)}), flush=True)


if __name__ == "__main__":
    main()
