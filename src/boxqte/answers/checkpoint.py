"""Checkpoints: the state of a search in a file, so that a killed run goes on where it was (docs/resume.md).

The file is a line `boxqte checkpoint 1`, a line with the SHA-256 of all that follows, a line of JSON, and the open
boxes as plain arrays. It is replaced as a whole: written beside, forced to disk, renamed. Whenever the process dies,
the file is a complete state, the old one or the new one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from boxqte.basics.checks import number, whole
from boxqte.engines.box.driver import COUNTS
from boxqte.engines.protocol import Entry, Saved, Watch
from boxqte.errors import CheckpointError
from boxqte.exact import shown
from boxqte.questions.grid import AnyGrid, Grid

VERSION = 1
MAGIC = b"boxqte checkpoint "
EVERY = 5.0  # seconds
SHARE = 20  # saving takes at most this part of the time: one second of writing, then at least 20 of work
SUMS = ("fair", "unfair", "low", "ambiguous")
NONSENSE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
MEANINGS = {
    "engine": "of engine '{found}', asked is engine '{asked}'",
    "model": "of another model: the fingerprint is {found:.12}, that of the model here {asked:.12}",
    "space": "of another space: the fingerprint is {found:.12}, that of the space here {asked:.12}",
    "property": "of another property: {found}, asked is {asked}",
    "certificate": "of a run with certificate {found}, asked is certificate {asked}",
    "cells": "of a version of boxqte that numbered the cells in another way",
}


def identity(grid: AnyGrid, engine: str, certificate: str | None = None) -> dict[str, str]:
    """What a checkpoint must agree with before a run may go on from it. Options and limits may differ."""
    digest = hashlib.sha256()
    digest.update(repr([(axis.n_cells, axis.sensitive, axis.moves) for axis in grid.axes]).encode())
    digest.update(repr([(cut.axis, cut.mask) for cut in grid.cuts]).encode())
    if isinstance(grid, Grid):
        digest.update(repr((grid.values, grid.base, grid.thresholds)).encode())
    for array in (grid.roots, grid.cut, grid.yes, grid.no, grid.leaf):
        digest.update(array.tobytes())
    return {
        "engine": engine,
        "model": grid.ensemble.fingerprint(),
        "space": grid.space.fingerprint(),
        "property": json.dumps(grid.property.to_json(), sort_keys=True),
        "certificate": "none" if certificate is None else f"'{certificate}'",
        "cells": digest.hexdigest(),
    }


def checked_every(seconds: object) -> float:
    """How often to save: at least 0 seconds apart."""
    every = number(seconds, "checkpoint_every", CheckpointError, "seconds")
    if every < 0:
        raise CheckpointError(f"checkpoint_every: must be at least 0 seconds, found {every:g}")
    return every


class Checkpoint:
    """The checkpoint file of one run (a driver.Keeper)."""

    def __init__(self, path: str | Path, identity: Mapping[str, str], every: float = EVERY):
        self.path = Path(path)
        self.identity = dict(identity)
        self.every = every
        self.resumed = False
        self._due = time.monotonic() + every
        self._complained = False

    @property
    def seconds_left(self) -> float:
        return self._due - time.monotonic()

    def save(self, saved: Saved, watch: Watch) -> None:
        """Replace the file by the given state. If the disk refuses, the old file stays and the run goes on."""
        started = time.monotonic()
        try:
            self._replace(_encoded(saved, self.identity, watch))
        except OSError as error:
            if not self._complained:
                self._complained = True
                reason = error.strerror or error
                warnings.warn(f"checkpoint {self.path}: cannot be written: {reason}; the run goes on", stacklevel=2)
        now = time.monotonic()
        self._due = now + max(self.every, SHARE * (now - started))

    def _replace(self, content: bytes) -> None:
        beside = self.path.with_name(self.path.name + ".part")
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path)
        if hasattr(os, "O_DIRECTORY"):  # the new name itself must survive a loss of power
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def restore(self, entry_bytes: int, watch: Watch) -> Saved | None:
        """The state in the file; None if there is no file yet. Refuses what is no checkpoint of this very question."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"checkpoint {self.path}: cannot be read: {error.strerror}") from None
        head, arrays = self._opened(content)
        try:
            for name, meaning in MEANINGS.items():
                found, asked = str(head["identity"][name]), self.identity[name]
                if found != asked:
                    raise CheckpointError(
                        f"checkpoint {self.path}: is {meaning.format(found=found, asked=asked)}; give another file, or "
                        "delete it"
                    )
            saved, trace = _decoded(head, arrays, entry_bytes)
            seconds = number(head["seconds"], "seconds", CheckpointError)
            if not 0 <= seconds < math.inf:
                raise ValueError(f"seconds are {seconds}")
        except NONSENSE as error:
            why = shown(str(error))
            raise CheckpointError(
                f"checkpoint {self.path}: has no meaning ({type(error).__name__}: {why}); delete it to begin anew"
            ) from None
        watch.resume(seconds, trace)
        self.resumed = True
        return saved

    def _opened(self, content: bytes) -> tuple[dict[str, Any], bytes]:
        """Header and arrays of an intact file."""
        title, _, rest = content.partition(b"\n")
        if not title.startswith(MAGIC):
            raise CheckpointError(f"checkpoint {self.path}: the file is there, but is no checkpoint of boxqte")
        if title != MAGIC + str(VERSION).encode():
            version = title[len(MAGIC) :].decode(errors="replace")
            raise CheckpointError(f"checkpoint {self.path}: has format {version}, this version reads format {VERSION}")
        checksum, _, rest = rest.partition(b"\n")
        if checksum.decode(errors="replace") != hashlib.sha256(rest).hexdigest():
            raise CheckpointError(
                f"checkpoint {self.path}: is damaged or cut short, its checksum does not fit; delete it to begin anew"
            )
        line, _, arrays = rest.partition(b"\n")
        try:
            return json.loads(line), arrays
        except (ValueError, RecursionError):  # no JSON, or an integer of thousands of digits
            raise CheckpointError(
                f"checkpoint {self.path}: its header cannot be read; delete it to begin anew"
            ) from None


def _encoded(saved: Saved, identity: Mapping[str, str], watch: Watch) -> bytes:
    entries = saved.heap + saved.stack
    head = {
        "identity": identity,
        "seconds": watch.seconds,
        "sums": {kind: [part.hex() for part in parts] for kind, parts in saved.sums.items()},
        "counts": saved.counts,
        "record": saved.record,
        "proved": [mass.hex() for mass in saved.proved],
        "heap": len(saved.heap),
        "stack": len(saved.stack),
        "trace": len(watch.trace),
    }
    body = [
        json.dumps(head).encode(),
        b"\n",
        np.array([entry[0] for entry in entries], "<f8").tobytes(),
        np.array([entry[1] for entry in entries], "<i8").tobytes(),
        np.array([entry[2] for entry in entries], "<f8").tobytes(),
        np.array(watch.trace, "<f8").tobytes(),
        *(entry[3] for entry in entries),
    ]
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    return b"".join([MAGIC, str(VERSION).encode(), b"\n", digest.hexdigest().encode(), b"\n", *body])


def _decoded(head: dict[str, Any], arrays: bytes, entry_bytes: int) -> tuple[Saved, list[tuple[float, float, float]]]:
    sizes = [whole(head[key], key, 0, len(arrays), CheckpointError) for key in ("heap", "stack", "trace")]
    counts = {name: whole(head["counts"][name], name, 0, error=CheckpointError) for name in (*COUNTS, "serial")}
    record = whole(head["record"], "record", 0, error=CheckpointError)
    n, m = sizes[0] + sizes[1], sizes[2]
    if len(arrays) != n * (24 + entry_bytes) + 24 * m:
        raise ValueError(f"{len(arrays)} bytes for {n} boxes and {m} points")
    scores, serials, masses, points = (
        np.frombuffer(arrays, kind, count, 8 * start).tolist()
        for kind, count, start in (("<f8", n, 0), ("<i8", n, n), ("<f8", n, 2 * n), ("<f8", 3 * m, 3 * n))
    )
    boxes = memoryview(arrays)[8 * (3 * n + 3 * m) :]
    entries: list[Entry] = [
        (score, serial, mass, bytes(boxes[i * entry_bytes : (i + 1) * entry_bytes]))
        for i, (score, serial, mass) in enumerate(zip(scores, serials, masses))
    ]
    sums = {kind: tuple(map(float.fromhex, head["sums"][kind])) for kind in SUMS}
    if not all(abs(part) <= 1 for parts in sums.values() for part in parts):
        raise ValueError("a mass above 1")
    fair, unfair, low = map(float.fromhex, head.get("proved", ["0x0p+0"] * 3))
    if not (min(fair, unfair, low) >= 0 and fair + unfair + low <= 1.000001):
        raise ValueError("masses that are no parts of 1")
    saved = Saved(sums, counts, entries[: sizes[0]], entries[sizes[0] :], record, (fair, unfair, low))
    return saved, [(points[i], points[i + 1], points[i + 2]) for i in range(0, 3 * m, 3)]
