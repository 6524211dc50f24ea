"""How the kernels are compiled: numba, nogil, and an on-disk cache that cannot go stale.

numba notices a change in a function's own file, not in a callee's file. So every module of kernels has a cache folder
whose name holds a digest of its source, of the sources of this package that it imports, and of numba's version: any
edit starts a new folder. Where no folder is writable the kernels are compiled in memory for this process only.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite import binding  # type: ignore[import-untyped]
from numba.core import config as numba_config
from numba.core import types

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

HERE = Path(__file__).parent


@cache
def _sources(source: Path) -> frozenset[Path]:
    """The module's file and those of this package that it imports, directly or not."""
    seen = {source}
    unread = [source]
    while unread:
        text = unread.pop().read_text(encoding="utf-8")
        for name in re.findall(r"^from boxqte\.engines\.box\.(\w+) import", text, re.MULTILINE):
            file = HERE / f"{name}.py"
            if file not in seen:
                seen.add(file)
                unread.append(file)
    return frozenset(seen)


@cache
def _digest(source: Path) -> str:
    """What the machine code depends on. Path and time of the files too: numba compiles anew where they differ, and the marker
    below must not claim another installation's work."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[:2]} {HERE}".encode())
    for file in sorted(_sources(source)):
        digest.update(f"{file.name} {file.stat().st_mtime_ns}".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _cache_folder(source: Path) -> str | None:
    """A writable folder for the compiled kernels of a module, or None."""
    home = (
        os.environ.get("BOXQTE_CACHE")
        or os.environ.get("XDG_CACHE_HOME")
        or os.path.join(os.path.expanduser("~"), ".cache")
    )
    folder = Path(home) / "boxqte" / f"{source.stem}-{_digest(source)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return None
    return str(folder)


def kernel(function: Kernel) -> Kernel:
    """Compile the function on first use; keep the machine code in our own cache folder.

    Kernels do not count references to arrays (two locked instructions for each array of each argument, at every call):
    whoever calls the outermost one holds all of them. So they cannot allocate; see `allocating`.
    """
    return _compiled(function, _nrt=False)


def inlined(function: Kernel) -> Kernel:
    """A kernel that is copied into its callers: a call that passes arrays costs more than these small bodies do."""
    return _compiled(function, forceinline=True, _nrt=False)


def spliced(function: Kernel) -> Kernel:
    """A kernel that becomes part of its callers before they are compiled, for large bodies: numba compiles a callee by itself,
    and its code once more with every caller, up to the outermost."""
    return _compiled(function, inline="always", _nrt=False)


def summing(function: Kernel) -> Kernel:
    """An inlined kernel whose float sums may be taken in any order (the proofs count roundings, not their order)."""
    return _compiled(function, forceinline=True, fastmath={"reassoc"}, _nrt=False)


def allocating(function: Kernel) -> Kernel:
    """A kernel that may make arrays; it counts references like any numba function."""
    return _compiled(function, _nrt=True)


def _compiled(function: Kernel, **options: Any) -> Kernel:
    folder = _cache_folder(Path(function.__code__.co_filename))
    config: Any = numba_config
    before = config.CACHE_DIR
    config.CACHE_DIR = folder or before  # numba reads it while decorating; other users of numba keep their own
    try:
        compiled: Kernel = _without_literals(numba.njit(nogil=True, cache=folder is not None, **options)(function))
        return compiled
    finally:
        config.CACHE_DIR = before


def _without_literals(dispatcher: Any) -> Any:
    """Let f(0) and f(n) share one machine code: numba would compile f anew for every constant that a kernel passes."""
    resolve = dispatcher.get_call_template

    def resolve_plain(args: Any, kws: dict[str, Any]) -> Any:
        plain: Any = types.unliteral
        return resolve(tuple(map(plain, args)), {name: plain(kind) for name, kind in kws.items()})

    dispatcher.get_call_template = resolve_plain
    return dispatcher


def _marker(source: Path) -> Path | None:
    """The file that says: this machine has compiled all that a run needs."""
    folder = _cache_folder(source)
    return None if folder is None else Path(folder) / f"compiled-{binding.get_host_cpu_name()}"


def needs_compiling(source: str) -> bool:
    """Whether the first run with the kernels of that file will have to compile."""
    marker = _marker(Path(source))
    return marker is None or not marker.exists()


def mark_compiled(source: str) -> None:
    """Remember that the kernels of that file are in the cache."""
    marker = _marker(Path(source))
    if marker is not None:
        marker.touch()


def compiling_note(source: str) -> str:
    """What to tell the user while the kernels of that file are compiled."""
    if _cache_folder(Path(source)) is not None:
        return "boxqte: compiling, first run only ..."
    return (
        "boxqte: compiling; the cache folder cannot be written, so every run compiles anew; set BOXQTE_CACHE to a folder that "
        "can be written ..."
    )
