"""A repair as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from boxqte.basics.numbers import CELL, LONG, number_text
from boxqte.engines.protocol import Status
from boxqte.exact import plain
from boxqte.repairing.goals import Measured
from boxqte.repairing.quality import Quality
from boxqte.repairing.repair import Repair, RowShare
from boxqte.report.text import sheet_text, table_text

MEASURE = replace(CELL, tries=(5, 6))
METHOD_WORDS = {
    "none": "nothing is changed",
    "prune": "no tree tests a sensitive attribute; the leaves are fitted to the original's probabilities",
    "average": "trees that test a sensitive attribute are averaged over its values",
    "refit": "leaf values fitted until the requirement is proved",
}
WARNING = (
    "a measure is met, which is not fairness in every sense: other attributes may stand for the sensitive ones; look at "
    "the rows beside the space"
)


def repair_text(found: Repair) -> str:
    """What was required, what is proved, what it cost, and whom."""
    head = [("model", found.source), ("method", _method(found))]
    for goal in found.goals:
        head.append(("required", str(goal)))
    head.append(("verdict", _verdict(found)))
    tail = [("changed", _changed_rows(found)), ("", _changed_space(found)), ("held out", found.held_out)]
    tail += [("note", note) for note in found.notes]
    tail += [("leaves", f"{found.leaves[0]:,} before, {found.leaves[1]:,} after")]
    tail += [("time", f"{found.seconds:.1f} s, {found.rounds} models measured"), ("beware", WARNING)]
    parts = [sheet_text(head, before_after(found), [(k, v) for k, v in tail if v])]
    if len(found.who) > 1 or found.goals[0].property.sensitive:
        parts.append("\nwho changed (held-out rows)\n" + table_text(who_table(found)))
    if len(found.points) > 1:
        parts.append("\nthe trade-off (held-out rows)\n" + table_text(path_table(found)))
    return "\n".join(parts)


def _method(found: Repair) -> str:
    said = f"{found.method}: {METHOD_WORDS.get(found.method, '')}"
    if found.share is not None and 0 < found.share < 1:
        whole = (
            "the way to where the requirement is met"
            if found.method == "refit"
            else "the repaired model, the rest the original"
        )
        said += f"; {found.share} of {whole}"
    return said


def _verdict(found: Repair) -> str:
    if found.met:
        early = f"; {_end(found.stopped)}: less change may be enough" if found.stopped is not None else ""
        return f"met, by exact measurement of the model as saved and read again{early}"
    why = f"; {_end(found.stopped)}" if found.stopped is not None else ""
    return f"NOT met{why}; this is the best model so far"


def _end(stopped: Status) -> str:
    return "interrupted" if stopped is Status.INTERRUPTED else f"stopped by the {stopped}"


def before_after(found: Repair) -> list[tuple[str, ...]]:
    """The table of all figures before and after."""
    rows: list[tuple[str, ...]] = [("", "before", "after")]
    several = len(found.after) > 1
    for i, (one, two) in enumerate(zip(found.before, found.after)):
        own = f" {i + 1}" if several else ""
        where = {"space": "the space", "population": "the population", "rows": "the data"}[two.goal.on]
        rows.append((f"measure{own}, {where}", _measure(one), _measure(two)))
        rows.append((f"measure{own}, held-out rows", _rows(found.rows_before[i]), _rows(found.rows_after[i])))
    first, last = found.quality_before, found.quality_after
    rows += [
        ("accuracy", f"{100 * first.accuracy:.2f} %", f"{100 * last.accuracy:.2f} %"),
        ("AUC", _auc(first), _auc(last)),
        ("log-loss", f"{first.log_loss:.5f}", f"{last.log_loss:.5f}"),
        ("rate of class 1", f"{100 * first.positive_rate:.2f} %", f"{100 * last.positive_rate:.2f} %"),
    ]
    return rows


def _auc(found: Quality) -> str:
    return "undefined" if found.auc is None else f"{found.auc:.5f}"


def _measure(found: Measured) -> str:
    if found.lower is None or found.upper is None:
        return f"undefined: {found.why}"
    return number_text(found.lower, found.upper, MEASURE)


def _rows(found: RowShare) -> str:
    if not found.confident:
        return "no row is confident"
    share = Fraction(found.fair, found.confident)
    return number_text(share, share, MEASURE)


def _changed_rows(found: Repair) -> str:
    n = found.quality_after.rows
    return f"{found.changed_rows:,} of {n:,} held-out rows ({100 * found.changed_rows / n:.2f} %) are decided otherwise"


def _changed_space(found: Repair) -> str:
    mass, result = found.changed_mass, found.changed_space
    if mass is None or result is None:
        return ""
    said = f"{number_text(mass.lower, mass.upper, LONG)} of the space"
    if result.statistical is not None and not result.converged:
        drawn = result.statistical
        low, high = max(1 - drawn.upper, 0.0), min(1 - drawn.lower, 1.0)
        said += f"; {100 * low:.3f} to {100 * high:.3f} % with confidence {drawn.confidence}"
    return said


def who_table(found: Repair) -> list[tuple[str, ...]]:
    """One line a group."""
    lines: list[tuple[str, ...]] = [
        (str(found.who.columns[0]), "rows", "class 1", "after", "accuracy", "after", "to class 1", "to class 0")
    ]
    for row in found.who.itertuples(index=False):
        name, n, *shares, up, down, _ = row
        lines.append((str(name), f"{n:,}", *(f"{100 * share:.2f} %" for share in shares), f"{up:,}", f"{down:,}"))
    return lines


def path_table(found: Repair) -> list[tuple[str, ...]]:
    """One line a level of the path."""
    lines: list[tuple[str, ...]] = [("at least", "measure", "rows", "accuracy", "AUC", "log-loss", "changed", "met")]
    lines.append(("original", *_point(found.before, found.quality_before, found.rows_before, 0), ""))
    for point in found.points:
        level = "" if point.at_least is None else str(plain(point.at_least))
        cells = _point(point.measures, point.quality, point.rows, point.changed)
        lines.append((level, *cells, "yes" if point.met else "no"))
    return lines


def _point(measures: Sequence[Measured], found: Quality, rows: Sequence[RowShare], changed: int) -> tuple[str, ...]:
    return (
        _measure(measures[0]) if measures else "",
        _rows(rows[0]),
        f"{100 * found.accuracy:.2f} %",
        _auc(found),
        f"{found.log_loss:.5f}",
        f"{100 * changed / found.rows:.2f} %",
    )
