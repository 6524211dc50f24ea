"""What the machine has: cores and memory, on Linux, macOS and Windows."""

from __future__ import annotations

import ctypes
import os
import sys

UNKNOWN_MEMORY = 8 << 30  # bytes, where the machine does not say


def cores() -> int:
    """The cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> int:
    """The machine's memory in bytes."""
    try:
        if sys.platform == "win32":
            return _windows_memory()
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN_MEMORY


def half_of_memory() -> int:
    """What an engine may use where no limit is given, in bytes."""
    return memory() // 2


class _MemoryStatus(ctypes.Structure):
    """What GlobalMemoryStatusEx fills in (Windows)."""

    _fields_ = [
        ("length", ctypes.c_ulong), ("load", ctypes.c_ulong),
        *((name, ctypes.c_ulonglong) for name in ("total", "free", "page", "free_page", "virtual", "free_virtual", "rest")),
    ]  # fmt: skip


def _windows_memory() -> int:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009  # only Windows has it
    if not kernel.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise OSError("GlobalMemoryStatusEx")
    return int(status.total)
