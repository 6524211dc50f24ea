"""The C++ core: of the modules built from the same sources, the one for the best instruction set that this processor has.

The environment variable BOXQTE_CORE names another one (baseline, avx2, avx512), for tests and measurements.
"""

from __future__ import annotations

import importlib
import importlib.util
import os

SETS = ("avx512", "avx2", "baseline")  # best first


def _choose() -> str:
    """The best instruction set that was built and that this processor has."""
    built = [name for name in SETS if importlib.util.find_spec(f"boxqte._core._{name}") is not None]
    wanted = os.environ.get("BOXQTE_CORE")
    if not built:
        raise ImportError("boxqte: the C++ core was not built; install the package with pip, or run make")
    if wanted is not None:
        if wanted not in built:
            raise ImportError(f"BOXQTE_CORE: '{wanted}' is not among the cores that were built: {', '.join(built)}")
        if not _has(wanted):
            raise ImportError(f"BOXQTE_CORE: this processor does not run '{wanted}'")
        return wanted
    for name in built:
        if _has(name):
            return name
    raise ImportError(
        f"boxqte: this processor runs none of the cores that were built: {', '.join(built)}; build it here"
    )


def _has(name: str) -> bool:
    """Whether the processor and the operating system run this instruction set."""
    from boxqte._core import _processor

    return bool(_processor.has(name))


INSTRUCTION_SET = _choose()
chosen = importlib.import_module(f"boxqte._core._{INSTRUCTION_SET}")
globals().update({name: value for name, value in vars(chosen).items() if not name.startswith("_")})
