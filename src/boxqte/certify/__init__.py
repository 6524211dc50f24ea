"""The checker: does a certificate prove what it states? Plain Python and numpy; nothing of the engines, of grid or of axes.

It trusts the importers (the model as a TreeEnsemble, with its tests) and Space (the masses of values). All else is
derived here once more: cells, residual trees, bounds, counts, sums. The format and the theorems: docs/certificates.md.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import zlib
from array import array
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from boxqte.certify.checker import Checker
from boxqte.certify.question import BLOCK, CLOSE, FIXED, KINDS, NONSENSE, Question, Rejected
from boxqte.errors import BoxQTEError, CertificateError
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers import load_model
from boxqte.space.space import Space, read_space

__all__ = ["Rejected", "Verdict", "certify"]


@dataclass(frozen=True)
class Verdict:
    """What a certificate proves: lower bounds of three masses, and through them bounds of the measure."""

    asked: dict[str, Any]
    fair: float
    unfair: float
    low: float
    boxes: int
    open_boxes: int

    @property
    def measure(self) -> tuple[Fraction, Fraction] | None:
        """Bounds of M = 1 - |X_unfair| / |X_kappa|; None if it is proved that nothing is confident."""
        confident = 1 - Fraction(self.low)
        lower = Fraction(self.fair) / confident if confident > 0 else Fraction(0)
        return (lower, max(1 - Fraction(self.unfair) / confident, lower)) if confident > 0 else None


def certify(file: str | Path, model: object, *, space: Space | None = None, workers: int | None = None) -> Verdict:
    """Check a certificate against a model (whatever load_model takes), and a space if given: what it proves, or Rejected.

    Examples
    --------
    >>> import tempfile
    >>> from boxqte import Fairness, quantify
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     result = quantify(loan_ensemble(), loan_space(), Fairness("race"), certificate=file.name)
    ...     certify(file.name, loan_ensemble(), workers=1).unfair == result.decided.unfair
    True
    """
    n = workers or os.cpu_count() or 1
    if not isinstance(n, int) or not 1 <= n <= 10_000:
        raise CertificateError(f"workers: expected a whole number above 0, found {workers!r}")
    share = partial(_share, file, load_model(model).ensemble, None if space is None else read_space(space), n)
    if n == 1:
        parts = [share(0)]
    else:
        with ProcessPoolExecutor(n) as pool:
            parts = list(pool.map(share, range(n)))
    first, largest = parts[0], max(part.largest for part in parts)
    # docs/certificates.md, 'Rounding'; fair = 1 - unfair - low of a box has the errors of all three
    error = Fraction(101 * (4 * first.n_axes + BLOCK + 16), 100 * 2**53) + Fraction(2 * largest, int(FIXED))
    proved = []
    for k, kind in enumerate(KINDS):
        stated = first.last[kind]
        summed = Fraction(math.fsum(x for part in parts for x in part.masses[k]))
        own = max(summed - error * (1 if k else 3), Fraction(0))
        if not isinstance(stated, float) or not 0 <= stated <= 1 or abs(Fraction(stated) - own) > CLOSE:
            raise Rejected(f"{file}: the {kind} mass is stated as {stated!s:.40}, its boxes prove {float(own):.15g}")
        proved.append(stated if stated <= own else math.nextafter(float(own), 0))
    return Verdict(first.asked, proved[0], proved[1], proved[2], first.boxes, first.n_open)


class Share(NamedTuple):
    """What one process found: the masses of the boxes that it checked, and what all processes see."""

    masses: list[array[float]]
    largest: int
    asked: dict[str, Any]
    last: dict[str, Any]
    n_axes: int
    boxes: int
    n_open: int


def _share(file: str | Path, model: TreeEnsemble, space: Space | None, n: int, k: int) -> Share:
    """Follow all lines, and check the claims of every n-th one."""
    number, last = 1, {}
    try:
        lines = _lines(file)
        question = Question(json.loads(next(lines)), model, space)
        check = Checker(question)
        for number, line in enumerate(lines, 2):
            if line[0] == "[":
                check.cuts.append(question.cut_of(*json.loads(line)))
            elif line[0] == "{":
                last = json.loads(line)
            else:
                check.follow(line.split(), number % n == k)
        if set(last) != {*KINDS, "sha256"}:
            raise Rejected("the last line has other fields than fair, unfair, low, sha256")
    except BoxQTEError as error:
        raise type(error)(f"{file}, line {number}: {error}") from None
    except NONSENSE as error:
        raise Rejected(f"{file}, line {number}: has no meaning ({type(error).__name__}: {error})") from None
    return Share(check.masses, check.largest, question.asked, last, len(check.axis_cuts), check.boxes, len(check.open))


def _lines(file: str | Path) -> Iterator[str]:
    """The lines of the file; the last one must have the digest of all before it, and be the last."""
    digest = hashlib.sha256()
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="\n") as stream:
            for number, line in enumerate(stream):
                if number and line[0] == "{":
                    if json.loads(line)["sha256"] != digest.hexdigest() or stream.read(1):
                        raise Rejected("the checksum does not fit: the certificate was changed")
                    yield line
                    return
                digest.update(line.encode())
                yield line
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise CertificateError(f"cannot be read: {error.strerror}") from None
        raise Rejected(f"is no certificate, or is damaged or cut short ({error})") from None
    raise Rejected("the certificate is not finished: its last line is missing")
