"""What a tester found, and what it took."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

PAIRS = 10_000  # random pairs of IDIs behind the diversity
SHOWN = 10  # IDIs in the JSON form


@dataclass(frozen=True, eq=False)
class Findings:
    """The individual discriminatory inputs (IDIs) that a run found: inputs that another sensitive value flips.

    Attributes
    ----------
    idis, partners
        Tables of the user's values, one row an IDI. Row i of `partners` is row i of `idis` with another sensitive value
        and gets another label. No two IDIs are equal without the sensitive attribute; each was checked once more by
        `boxqte.testers.verification`.
    raw
        IDIs as the tool itself counts them, duplicates included.
    rejected
        Distinct candidates that the check refused. 0, but for the errors that a faithful variant keeps, and for models
        that answer the same question in two ways.
    tests
        Inputs tested.
    calls, rows
        Calls of the model, and rows asked about in all of them, the check's own not counted.
    seconds
        Duration without the check; `check_seconds` is that of the check.
    curve
        Rows of (seconds, tests, distinct IDIs): how the search went.
    status
        Why it ended: "time limit", "tests", "exhausted" (nothing left to try) or "interrupted".
    details
        Figures of the tester's own.
    """

    method: str
    variant: str
    batch: bool
    sensitive: str
    random_state: int | None
    model: str
    status: str
    seconds: float
    check_seconds: float
    tests: int
    raw: int
    rejected: int
    calls: int
    rows: int
    idis: pd.DataFrame
    partners: pd.DataFrame
    curve: pd.DataFrame
    details: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.idis)

    @property
    def success_rate(self) -> float | None:
        """Distinct IDIs per test."""
        return len(self) / self.tests if self.tests else None

    @property
    def seconds_per_idi(self) -> float | None:
        return self.seconds / len(self) if len(self) else None

    @cached_property
    def diversity(self) -> float | None:
        """The mean number of attributes in which two random IDIs differ, the sensitive one not counted."""
        if len(self) < 2:
            return None
        rest = self.idis.drop(columns=self.sensitive)
        codes = np.column_stack([pd.factorize(rest[name])[0] for name in rest] or [np.zeros(len(self), np.int64)])
        rng = np.random.default_rng(0)
        one = rng.integers(0, len(self), PAIRS)
        two = (one + rng.integers(1, len(self), PAIRS)) % len(self)
        return float((codes[one] != codes[two]).sum(axis=1).mean())

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """The IDIs with one more column: the partner's sensitive value."""
        name = f"partner_{self.sensitive}"
        while name in self.idis.columns:
            name += "_"
        return self.idis.assign(**{name: self.partners[self.sensitive]})

    def to_csv(self, path: str | Path) -> None:
        """Write `pairs` as a CSV file."""
        self.pairs.to_csv(path, index=False)

    def to_json(self) -> dict[str, Any]:
        """All figures, the curve, and the first IDIs."""
        return {
            "method": self.method,
            "variant": self.variant,
            "batch": self.batch,
            "sensitive": self.sensitive,
            "random_state": self.random_state,
            "model": self.model,
            "status": self.status,
            "idis": len(self),
            "raw": self.raw,
            "rejected": self.rejected,
            "tests": self.tests,
            "success_rate": self.success_rate,
            "seconds": self.seconds,
            "check_seconds": self.check_seconds,
            "seconds_per_idi": self.seconds_per_idi,
            "calls": self.calls,
            "rows": self.rows,
            "diversity": self.diversity,
            "details": self.details,
            "curve": self.curve.to_numpy().tolist(),
            "first": json.loads(self.pairs.head(SHOWN).to_json(orient="records")),
        }

    def __repr__(self) -> str:
        rate = "no test" if self.success_rate is None else f"{100 * self.success_rate:.3g} % of {self.tests:,} tests"
        return f"Findings({self.method}: {len(self):,} IDIs, {rate}; {self.status}, {self.seconds:.3g} s)"
