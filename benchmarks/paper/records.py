"""Finished rows as JSON lines: one object a line, appended as soon as a row is done, so that a run can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boxqte.errors import BoxQTEError

Row = dict[str, Any]


class RecordError(BoxQTEError):
    """A file of results that cannot be read or written."""


class Records:
    """The rows of a file, by key. A row that is added again replaces the older one; the file keeps both.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> records = Records(pathlib.Path(tempfile.mkdtemp()) / "rows.jsonl")
    >>> records.add({"key": "a", "seconds": 1.5})
    >>> "a" in records, Records(records.path)["a"]["seconds"]
    (True, 1.5)
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._rows: dict[str, Row] = {}
        try:
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise RecordError(f"{self.path}: cannot be read: {error}") from None
        lines = text.splitlines()
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                self._rows[row["key"]] = row
            except (ValueError, TypeError, KeyError):
                if number == len(lines) and not text.endswith("\n"):
                    continue  # cut off while it was written: that row is simply not done
                raise RecordError(
                    f"{self.path}, line {number}: not a row of results (a JSON object with 'key')"
                ) from None
        self._torn = bool(text) and not text.endswith("\n")

    def add(self, row: Row) -> None:
        """Append the row and see it safely on disk."""
        line = json.dumps(row, allow_nan=False, separators=(",", ":")) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._torn:
                _drop_torn_line(self.path)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RecordError(f"{self.path}: cannot be written: {error.strerror}") from None
        self._torn = False
        self._rows[row["key"]] = row

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Row:
        return self._rows[key]

    def get(self, key: str) -> Row | None:
        """The row with that key, or None."""
        return self._rows.get(key)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)


def _drop_torn_line(path: Path) -> None:
    """Cut off what follows the last end of line."""
    content = path.read_bytes()
    os.truncate(path, content.rfind(b"\n") + 1)
