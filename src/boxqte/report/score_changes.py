"""Changes of scores as plain text for a terminal."""

from __future__ import annotations

from fractions import Fraction

from boxqte.answers.rates import GUARANTEE
from boxqte.answers.score_changes import ScoreChanges
from boxqte.basics.numbers import CELL, number_text
from boxqte.exact import plain
from boxqte.report.text import sheet_text

BAR = 30


def score_changes_text(found: ScoreChanges) -> str:
    """The histogram, a bar for what is certain, then the quantiles.

    Examples
    --------
    >>> from boxqte import score_changes
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> print(score_changes_text(score_changes(loan_ensemble(), loan_space(), "race", scale="margin")))  # doctest: +ELLIPSIS
    question     the largest change of the margin when race changes; world: the space
    ...
    """
    confident = "" if found.kappa <= Fraction(1, 2) else f", of inputs with confidence above {plain(found.kappa)}"
    rows = [("change", f"share of the inputs{confident}", "")]
    for b in found.bins:
        name = "none" if b.above is None else f"above {plain(b.above)}, at most {_level(b.at_most)}"
        share = number_text(b.share.lower, b.share.upper, CELL)
        rows.append((name, share, "#" * round(BAR * b.share.lower)))
    head = [
        (
            "question",
            f"the largest change of the {found.scale} when {', '.join(found.sensitive)} changes; world: {found.world}",
        ),
        ("decision", found.decision),
        ("status", f"{found.status}, {found.seconds:.2f} s"),
        *(("remark", remark) for remark in found.remarks),
    ]
    tail = [
        (
            "quantile",
            f"{plain(q.share)} of the inputs change by at most {q.upper:.4g}; no number up to {q.lower:.4g} is enough",
        )
        for q in found.quantiles
    ] + [("guarantee", GUARANTEE)]
    return sheet_text(head, rows, tail)


def _level(value: Fraction) -> str:
    return f"{float(value):.4g}"
