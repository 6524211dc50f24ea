"""How the kernels are compiled: numba, nogil, and an on-disk cache that cannot go stale.

numba notices a change in a function's own file, not in a callee's file. So the cache folder's name holds a digest of
every source file of this package (and numba's version): any edit starts a new folder. Where no folder is writable the
kernels are compiled in memory for this process only.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _digest() -> str:
    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[:2]}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str | None:
    """A writable folder for compiled kernels, or None."""
    home = os.environ.get("BOXQTE_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(home) / "boxqte" / f"kernels-{_digest()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return None
    return str(folder)


CACHE_FOLDER = _cache_folder()


def kernel(function: Kernel) -> Kernel:
    """Compile the function on first use; keep the machine code in our own cache folder."""
    if CACHE_FOLDER is None:
        return numba.njit(nogil=True)(function)  # type: ignore[no-any-return]
    before = config.CACHE_DIR
    config.CACHE_DIR = CACHE_FOLDER  # numba reads it while decorating; other users of numba keep their own
    try:
        return numba.njit(nogil=True, cache=True)(function)  # type: ignore[no-any-return]
    finally:
        config.CACHE_DIR = before


def needs_compiling() -> bool:
    """Whether the first run will have to compile (nothing in the cache folder yet)."""
    return CACHE_FOLDER is None or not any(Path(CACHE_FOLDER).rglob("*.nbi"))
