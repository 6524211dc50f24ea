"""Certificates: the search as evidence, written while it runs (format and theorems: docs/certificates.md).

The file is gzipped text. A line of JSON says what the question is; then come the cuts, each before its first use, and
the search itself: each line names an open box and says in preorder how it was split and what became of the parts. That
the parts are disjoint and cover the box follows from this form. A last line of JSON has the sums.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from boxqte.engines.box.problem import Problem
from boxqte.engines.protocol import Decided, Reply
from boxqte.errors import CertificateError
from boxqte.exact import plain
from boxqte.questions.axes import Axis
from boxqte.questions.grid import AnyGrid

FORMAT = "boxqte certificate 1"


class CertificateWriter:
    """Writes the certificate of one run (a driver.Recorder)."""

    def __init__(
        self, path: str | Path, grid: AnyGrid, group: Sequence[Sequence[Any]] = (), component: int | None = None
    ):
        self.path = Path(path)
        self.grid = grid
        self.group = group
        """Of a group's rate: the cells of each of its sensitive attributes; the file gets one more part."""
        self.component = component
        """Of a mixture: which of its products was searched."""
        self._cuts: dict[str, int] = {}  # the cuts that the file has, by their lines
        self._lines: dict[int, str] = {}  # kernel cut -> its line
        self._digest = hashlib.sha256()
        self._file: io.BufferedWriter | None = None
        self._zip: gzip.GzipFile | None = None
        self._problem: Problem | None = None

    def about(self, problem: Problem) -> None:
        """What the numbers of cuts mean."""
        self._problem = problem

    def begin(self, mark: int | None) -> None:
        """Start the file, or go on from what `mark` gave when a checkpoint was written."""
        try:
            if mark is None:
                self._file = open(self.path, "ab" if self.group else "wb")  # noqa: SIM115 (open while the search runs)
            else:
                self._go_on(mark)
        except OSError as error:
            raise CertificateError(f"certificate {self.path}: {error.strerror or error}") from None
        if mark is None:
            self._write(json.dumps(header(self.grid, self.group, self.component)))  # box 0 is the whole space

    def _go_on(self, mark: int) -> None:
        with open(self.path, "r+b") as file:
            content = file.read(mark)
            file.truncate(mark)
        if len(content) < mark:
            raise CertificateError(
                f"certificate {self.path}: is shorter than its checkpoint says; delete both to begin anew"
            )
        text = gzip.decompress(content)
        self._digest.update(text)
        for line in text.decode().splitlines():
            if line.startswith("["):
                self._cuts[line] = len(self._cuts)
        self._file = open(self.path, "ab")  # noqa: SIM115

    def record(self, taken: Sequence[int], reply: Reply, opened: Sequence[int]) -> None:
        """A line for each box of the batch."""
        assert reply.events is not None
        assert reply.closed is not None
        events = iter(reply.events.tolist())
        closed = self._claims(reply)
        points = [claim for claim, how in zip(closed, reply.closed.how.tolist()) if how == 2]
        nexts = {-1: iter(closed), -2: (f"o{name}" for name in opened), -3: iter(points)}
        for name in taken:
            tokens = list(self._subtree(events, nexts))
            if tokens != [f"o{name}"]:
                self._write(f"{name} {' '.join(tokens)}")

    def _subtree(self, events: Iterator[int], nexts: dict[int, Iterator[str]]) -> Iterator[str]:
        """The tokens of one box, in preorder."""
        missing = 1
        while missing:
            event = next(events)
            if event >= 0:
                missing += 1
                yield str(self._cut(event))
            else:
                missing -= 1
                yield next(nexts[event])

    def _claims(self, reply: Reply) -> list[str]:
        """What each closed box is claimed to be: wholly fair or unfair by bounds, or so much of it unfair and low."""
        assert reply.closed is not None
        simple = not self.grid.low_possible
        out = []
        for (fair, unfair, low), how in zip(reply.closed.masses.tolist(), reply.closed.how.tolist()):
            if how == 0 and simple and (fair > 0) != (unfair > 0):
                out.append("f" if fair > 0 else "u")
            elif how == 0:
                out.append(f"b{unfair:.13g},{low:.13g}")
            else:
                out.append(f"c{unfair:.13g}" + ("" if simple else f",{low:.13g}"))
        return out

    def _cut(self, kernel_cut: int) -> int:
        """The file's number for a cut; its line is written before it is used."""
        line = self._lines.get(kernel_cut)
        if line is None:
            assert self._problem is not None
            cuts = self._problem.cuts
            axis = self._problem.axis_ids[int(cuts.axis[kernel_cut])]
            mask = sum(int(word) << (64 * w) for w, word in enumerate(cuts.mask[kernel_cut].tolist()))
            line = self._lines[kernel_cut] = json.dumps(side(self.grid, axis, mask))
        number = self._cuts.get(line)
        if number is None:
            number = self._cuts[line] = len(self._cuts)
            self._write(line)
        return number

    def mark(self) -> int:
        """Bring everything to disk; the length of the file."""
        assert self._file is not None
        self._close_member()
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def finish(self, decided: Decided) -> None:
        """The last line: the sums, and a digest of all lines before it."""
        if self._file is None:  # interrupted before the search began
            self.begin(None)
        masses = {kind: float(getattr(decided, kind)) for kind in ("fair", "unfair", "low")}
        digest = self._digest.hexdigest()
        self._write(json.dumps(masses | {"sha256": digest}))
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._close_member()
            self._file.close()
            self._file = None

    def _close_member(self) -> None:
        if self._zip is not None:
            self._zip.close()
            self._zip = None

    def _write(self, line: str) -> None:
        assert self._file is not None
        if self._zip is None:  # a gzip file may have several members: after a mark a new one begins
            self._zip = gzip.GzipFile(fileobj=self._file, mode="wb", filename="", mtime=0, compresslevel=5)
        data = f"{line}\n".encode()
        self._digest.update(data)
        self._zip.write(data)


def emptied(file: Path) -> None:
    """A file to which several parts will be added."""
    try:
        file.write_bytes(b"")
    except OSError as error:
        raise CertificateError(f"certificate {file}: {error.strerror or error}") from None


def joined(file: Path, parts: Sequence[Path]) -> None:
    """One file of the parts, which are gone afterwards: a gzip file may have several members."""
    try:
        with open(parts[0], "ab") as whole:
            for part in parts[1:]:
                with open(part, "rb") as more:
                    shutil.copyfileobj(more, whole)
                part.unlink()
        parts[0].replace(file)
    except OSError as error:
        raise CertificateError(f"certificate {file}: {error.strerror or error}") from None


def header(grid: AnyGrid, group: Sequence[Sequence[Any]] = (), component: int | None = None) -> dict[str, Any]:
    """What the certificate is about."""
    asked = grid.property.to_json()
    if group:
        asked |= {"kind": "group rate", "sensitive": [grid.space.names[a] for a, *_ in group], "group": group}
    if component is not None:
        asked |= {"component": component}
    about = {"model": grid.ensemble.fingerprint(), "space": grid.space.to_json(), "property": asked}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    return {"format": FORMAT, **about, "question": digest}


def side(grid: AnyGrid, axis: int, mask: int) -> list[Any]:
    """Some cells of an axis as a line of a cut says it: the attribute, and what they hold of it."""
    own = grid.axes[axis]
    return [grid.space.names.index(own.attribute.name), *_held(own, mask)]


def _held(axis: Axis, mask: int) -> tuple[list[Any], int]:
    """The values (by index) or ranges that the cells hold, and whether they hold the missing value."""
    held = [cell for i, cell in enumerate(axis.cells) if mask >> i & 1]
    missing = int(any(cell.missing for cell in held))
    if not axis.attribute.is_numeric:
        return sorted(v for cell in held for v in cell.values), missing
    ranges = []
    numbers = [i for i, cell in enumerate(axis.cells) if mask >> i & 1 and not cell.missing]
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run_cells = [axis.cells[i] for _, i in run]
        low, high = run_cells[0].low, run_cells[-1].high
        assert low is not None
        assert high is not None
        ranges.append([plain(low[0]), low[1], plain(high[0]), high[1]])
    return ranges, missing
