"""Names of categories beyond ASCII in XGBoost's files, put together again with the values of a table.

For a pandas column XGBoost (3.2) stores the names one after the other as UTF-8, counts characters in the offsets, and keeps
as many bytes as there are characters: the first names are whole, the last ones are cut or gone, but the length of each
is known. For an Arrow column the offsets count bytes, and nothing is lost. A file does not say which of the two it is.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class StoredNames:
    """What a file has of the names of one column's categories, in code order."""

    offsets: tuple[int, ...]
    data: bytes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def are(self, names: Sequence[str]) -> bool:
        """Whether XGBoost stores just this for a pandas or an Arrow column with these categories, in this order."""
        encoded = "".join(names).encode()
        for lengths, kept in (
            ([len(name) for name in names], sum(map(len, names))),
            ([len(name.encode()) for name in names], len(encoded)),
        ):
            ends = [0]
            for length in lengths:
                ends.append(ends[-1] + length)
            if tuple(ends) == self.offsets and encoded[:kept] == self.data:
                return True
        return False

    def among(self, values: Sequence[Any]) -> tuple[str, ...] | None:
        """The names, if only one way to read the file fits a column that holds these distinct values; else None.

        Whole names are known from the file. Those that are cut have to be the values that are left, one each. Numbers are
        no names.
        """
        if not all(isinstance(value, str) for value in values):
            return None
        found = [names for names in (self._as_bytes(), *self._as_characters(values)) if names is not None]
        fitting = {names for names in found if set(values) <= set(names)}
        return fitting.pop() if len(fitting) == 1 else None

    def _as_bytes(self) -> tuple[str, ...] | None:
        """The names of an Arrow column."""
        try:
            return tuple(self.data[begin:end].decode() for begin, end in pairwise(self.offsets))
        except UnicodeDecodeError:
            return None

    def _as_characters(self, values: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """The names of a pandas column: all ways to read them with these values, or some if there are several."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            text = decoder.decode(self.data)
        except UnicodeDecodeError:
            return
        begun = decoder.getstate()[0]  # the first bytes of the next character
        whole = [text[begin:end] for begin, end in pairwise(self.offsets) if end <= len(text)]
        lengths = [end - begin for begin, end in pairwise(self.offsets)][len(whole) :]
        left = [value for value in dict.fromkeys(values) if value not in set(whole)]
        if not lengths or len(left) != len(lengths):
            return
        known = text[sum(map(len, whole)) :]
        for first in left:
            rest = [value for value in left if value != first]
            starts = first.startswith(known) and first[len(known) :].encode().startswith(begun)
            if not starts or len(first) != lengths[0] or sorted(map(len, rest)) != sorted(lengths[1:]):
                continue
            for order in (rest, rest[::-1]):  # two ways, if two names of one length are gone
                by_length = {length: [v for v in order if len(v) == length] for length in lengths[1:]}
                yield (*whole, first, *(by_length[length].pop() for length in lengths[1:]))
