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
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, reduce
from pathlib import Path
from typing import Any

from boxqte.certify.checker import Checker
from boxqte.certify.question import BLOCK, CLOSE, FIXED, KINDS, NONSENSE, Question, Rejected
from boxqte.errors import BoxQTEError, CertificateError
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.importers import load_model
from boxqte.space.space import Space, read_space

__all__ = ["Rejected", "Verdict", "certify", "certify_parts"]

OWN = ("component", "group")  # what the parts of a certificate do not share
# What one process found of a part: the masses of the boxes that it checked, their rounding error, and what is stated.
Share = tuple[list[Any], Fraction, "Verdict"]


@dataclass(frozen=True)
class Verdict:
    """What a certificate proves: lower bounds of three masses, and through them bounds of the measure, or of a group's rate."""

    asked: dict[str, Any]
    space: Space
    group: tuple[tuple[int, int], ...]
    mass: Fraction
    boxes: int
    open_boxes: int
    fair: float
    unfair: float
    low: float

    @property
    def measure(self) -> tuple[Fraction, Fraction] | None:
        """Bounds of M = 1 - |X_unfair| / |X_kappa|; None if it is proved that nothing is confident."""
        confident = 1 - Fraction(self.low)
        ends = Fraction(self.fair), max(confident - Fraction(self.unfair), Fraction(self.fair))
        return (ends[0] / confident, ends[1] / confident) if confident > 0 else None

    @property
    def rate(self) -> tuple[Fraction, Fraction] | None:
        """Bounds of the share of the group that gets class 1; None if the question is another one."""
        return (Fraction(self.unfair), 1 - Fraction(self.fair)) if self.group else None


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
    parts = certify_parts(file, model, space, workers)
    if parts[0].group:
        raise CertificateError(f"{file}: has the rates of {len(parts)} groups; certify_parts checks them")
    return parts[0]


def certify_parts(file: str | Path, model: object, space: Space | None, workers: int | None) -> list[Verdict]:
    """The same for all parts of a certificate: of group rates there is one for each group, and all groups are there.

    Examples
    --------
    >>> import tempfile
    >>> from boxqte import group_rates
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     rates = group_rates(loan_ensemble(), loan_space(), "race", certificate=file.name)
    ...     proved = certify_parts(file.name, loan_ensemble(), loan_space(), 1)
    >>> {float(part.rate[0]) for part in proved} == {group.rate.lower for group in rates.groups}
    True
    """
    n = workers or os.cpu_count() or 1
    if not isinstance(n, int) or not 1 <= n <= 10_000:
        raise CertificateError(f"workers: expected a whole number above 0, found {workers!r}")
    share = partial(_share, file, load_model(model).ensemble, None if space is None else read_space(space), n)
    with ProcessPoolExecutor(n) as pool:  # it has no process before it is given something to do
        parts = [*zip(*(map if n == 1 else pool.map)(share, range(n)))]
    stated = [part[0][2] for part in parts]
    # groups that differ are disjoint, if on each attribute their sets of cells are the same or disjoint
    sets = [{cells for _, cells in own} for own in zip(*(v.group for v in stated))]
    apart = len({v.group for v in stated}) == len(stated) and all(sum(own) == reduce(int.__or__, own) for own in sets)
    mixed = bool(stated[0].space.components)  # its products are numbered
    apart = len({v.asked["component"] for v in stated}) == len(stated) if mixed else apart
    same = {(v.space.fingerprint(), *sorted(f"{k} {a}" for k, a in v.asked.items() if k not in OWN)) for v in stated}
    if len(same) != 1 or not apart or sum(v.mass for v in stated) != 1:
        raise Rejected(f"{file}: its parts are not all groups or products of one question, each once")
    proved = [_proved(file, part) for part in parts]
    return [_mixed(proved)] if mixed else proved


def _mixed(parts: Sequence[Verdict]) -> Verdict:
    """What is proved of a mixture: masses add up by the weights of its products."""
    sums = [sum(part.mass * Fraction(getattr(part, kind)) for part in parts) for kind in KINDS]
    fair, unfair, low = (m if Fraction(m) <= own else math.nextafter(m, 0) for m, own in zip(map(float, sums), sums))
    boxes, opened = (sum(own) for own in zip(*((part.boxes, part.open_boxes) for part in parts)))
    asked = {name: value for name, value in parts[0].asked.items() if name != "component"}
    return Verdict(asked, parts[0].space, (), Fraction(1), boxes, opened, fair, unfair, low)


def _proved(file: str | Path, shares: Sequence[Share]) -> Verdict:
    """The sums of all processes, less what rounding may have added, against what is stated."""
    error, stated, proved = max(error for _, error, _ in shares), shares[0][2], list[float]()
    for k, kind in enumerate(KINDS):
        mass, summed = getattr(stated, kind), Fraction(math.fsum(x for masses, _, _ in shares for x in masses[k]))
        # fair = 1 - unfair - low of a box has the errors of all three
        own = max(summed - error * (1 if k else 3), Fraction(0))
        if not isinstance(mass, float) or not 0 <= mass <= 1 or abs(Fraction(mass) - own) > CLOSE:
            raise Rejected(f"{file}: the {kind} mass is stated as {mass!s:.40}, its boxes prove {float(own):.15g}")
        proved.append(mass if mass <= own else math.nextafter(float(own), 0))
    return replace(stated, fair=proved[0], unfair=proved[1], low=proved[2])


def _share(file: str | Path, model: TreeEnsemble, space: Space | None, of: int, k: int) -> list[Share]:
    """Follow all lines, and check the claims of some: those of process k of so many."""
    number, found, check = 1, list[Share](), None
    try:
        for number, line in enumerate(_lines(file), 1):
            if check is None:
                check = Checker(Question(json.loads(line), model, space))
            elif line[0] == "[":
                check.cuts.append(check.question.cut_of(*json.loads(line)))
            elif line[0] == "{":
                q, last = check.question, json.loads(line)
                if last.pop("sha256") and {*last} != {*KINDS}:
                    raise Rejected("the last line has other fields than fair, unfair, low, sha256")
                about = q.asked, q.space, tuple(q.group), q.mass, check.boxes, len(check.open)
                n = len({a for a in check.axis_cuts if check.used >> a & 1} | {a for a, _ in check.cuts})
                # docs/certificates.md, 'Rounding'
                error = Fraction(101 * (4 * n + BLOCK + 16), 100 * 2**53) + Fraction(2 * check.largest, int(FIXED))
                found.append((check.masses, error, Verdict(*about, **last)))
                check = None
            else:
                check.follow(line.split(), number % of == k)
    except BoxQTEError as error:
        raise type(error)(f"{file}, line {number}: {error}") from None
    except NONSENSE as error:
        raise Rejected(f"{file}, line {number}: has no meaning ({type(error).__name__}: {error})") from None
    return found


def _lines(file: str | Path) -> Iterator[str]:
    """The lines of the file; the last one of a part must have the digest of all lines of the part before it."""
    digest, inside = hashlib.sha256(), -1  # how many lines of a part were read
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="\n") as stream:
            for line in stream:
                if inside > 0 and line[0] == "{":
                    if json.loads(line)["sha256"] != digest.hexdigest():
                        raise Rejected("the checksum does not fit: the certificate was changed")
                    digest, inside = hashlib.sha256(), 0
                else:
                    digest.update(line.encode())
                    inside = max(inside, 0) + 1
                yield line
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise CertificateError(f"cannot be read: {error.strerror}") from None
        raise Rejected(f"is no certificate, or is damaged or cut short ({error})") from None
    if inside:
        raise Rejected("the certificate is not finished: its last line is missing")
