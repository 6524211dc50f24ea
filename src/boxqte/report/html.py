"""The report: one self-contained HTML page, readable offline, printable, without a script (but for the explorer, if asked for).

Text first, numbers in tables, charts in SVG. The page is made of the templates beside this file; everything in it is
escaped by Jinja2. It follows the reader's choice of dark or light and fits a phone.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from boxqte._version import __version__
from boxqte.answers.empirical import Empirical
from boxqte.answers.result import THE_SPACE, Result
from boxqte.auditing.audit import Audit
from boxqte.auditing.findings import Extent, Findings, FlipMatrix, Profile, ProfileCell
from boxqte.auditing.policy import Check
from boxqte.basics.numbers import CELL, LONG, SENTENCE, SHORT, Style, kind_of, number_text, short_up
from boxqte.exact import plain
from boxqte.report.explorer import Explorer
from boxqte.report.limitations import limitations
from boxqte.report.mappings import NO_ADVICE
from boxqte.report.mappings import documents as mappings
from boxqte.report.populations import population_text
from boxqte.report.svg import Step, bar, bounds_chart, steps_chart
from boxqte.report.text import (
    between,
    check_text,
    measure_text,
    noted_measure,
    numbered_remarks,
    ratio_text,
    share_text,
    statistical_text,
)
from boxqte.space.inference import describe_domain
from boxqte.space.space import Space

MOST_BYTES = 300_000
MOST_GROUPS = 12
ANSWER = Style((2, 3, 4, 5, 6), "{} to {}", percent=True, labelled=False)
TIMES = Style((3, 4), "{} to {}", significant=True, labelled=False)
LONGEST_TEXT = 2000
WIDE, NARROW = (720, 300), (360, 260)
LIBRARIES = ("numpy", "pandas", "xgboost", "xgboost-cpu", "lightgbm", "scikit-learn", "catboost")
UNDECIDED = "not decided within the time"
GATE_WORDS = {
    "holds": "Every requirement holds.",
    "violated": "A requirement is violated.",
    "undecided": "A requirement is undecided, none is violated.",
}
TEMPLATES = Path(__file__).parent / "templates"


def audit_page(
    audit: Audit, found: Sequence[Findings], explorer: Explorer | None = None, *, documents: Sequence[str] = ()
) -> str:
    """The report of an audit, with what was found for each of its questions.

    documents: mappings to regulations to add (mappings.py); explorer: the interactive part, where it is wanted.
    """
    mapped = list(mappings(audit, tuple(documents)))

    def page(extent: Extent) -> str:
        questions = [
            replace(
                _question(q.name, f"q{i}", q.result, findings.trimmed(extent), audit.checks_of(q)),
                population=q.population,
                rows=q.rows,
            )
            for i, (q, findings) in enumerate(zip(audit.questions, found), 1)
            if q.result is not None
        ]
        names = {question.name: question.anchor for question in questions}
        main = sorted((q for q in questions if q.main), key=_unfairest)
        return _page(
            f"Fairness audit of {audit.model.source or audit.model.library}",
            audit.results,
            questions,
            audit=audit,
            space=_space(audit.space, audit, extent),
            command=audit.command,
            anchors={
                name: anchor if any(q.name == name for q in main) else f"d{anchor}" for name, anchor in names.items()
            },
            shown=next((q for q in main if q.findings.pairs or q.profiles), None),
            limitations=list(limitations(audit)),
            documents=mapped,
            explorer=explorer,
        )

    return _small_enough(page, explorer)


def result_page(result: Result, findings: Findings, *, command: str = "", explorer: Explorer | None = None) -> str:
    """The report of one question."""
    space = None if result.asked is None else result.asked.grid.space

    def page(extent: Extent) -> str:
        return _page(
            f"{result.property.kind.capitalize()} of {result.model.source or result.model.library}",
            [result],
            [_question(str(result.property), "q1", result, findings.trimmed(extent), [])],
            space=None if space is None else _space(space, None, extent),
            command=command,
            explorer=explorer,
        )

    return _small_enough(page, explorer)


def _small_enough(page: Callable[[Extent], str], explorer: Explorer | None) -> str:
    """What a page shows is halved until it is small enough to be mailed; the explorer, which has the model in it, is beside."""
    extent = Extent()
    most = MOST_BYTES + (0 if explorer is None else len((explorer.html + explorer.style).encode("utf-8")))
    for _ in range(8):
        text = page(extent)
        if len(text.encode("utf-8")) <= most:
            break
        extent = extent.halved()
    return text


def _page(title: str, results: Sequence[Result], questions: Sequence[QuestionPart], **parts: Any) -> str:
    semantics = dict.fromkeys(line for result in results for line in result.semantics())
    guarantees: dict[str, list[str]] = {}
    for question in questions:
        guarantees.setdefault(question.result.guarantee(), []).append(question.name)
    known = {
        "title": title, "results": results, "questions": questions, "semantics": list(semantics), "audit": None,
        "remarks": numbered_remarks(results), "versions": list(_versions()), "guarantees": guarantees, "anchors": {},
        "shown": next((q for q in questions if q.main), None), "limitations": [], "documents": [], "explorer": None,
    }  # fmt: skip
    return _environment().get_template("page.html").render(known | parts)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_readable,
    )
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8").replace("\n", "")
    made.globals |= {
        "style": Markup(style), "version": __version__, "gate_words": GATE_WORDS, "UNDECIDED": UNDECIDED, "SHORT": SHORT,
        "LONG": LONG, "answer_sentence": answer_sentence, "measure_text": measure_text, "noted_measure": noted_measure,
        "short_up": short_up, "statistical_text": statistical_text, "between": between, "plain": plain, "share": share,
        "largest": _largest, "answer": answer, "times": times,
        "most_groups": MOST_GROUPS, "no_advice": NO_ADVICE, "population_text": population_text,
        "cell_bar": _cell_bar, "ratio_text": ratio_text, "check_text": check_text, "number_text": number_text,
    }  # fmt: skip
    return made


def _readable(value: Any) -> Any:
    """What a template shows: names come from files and may hold anything, of any length."""
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    text = "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in str(value))
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT // 2] + " ... " + text[-900:]


def _versions() -> Iterable[str]:
    yield f"boxqte {__version__}"
    yield f"Python {platform.python_version()}"
    for name in LIBRARIES:
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue


# --- the answer -------------------------------------------------------------------------------------------------------


def answer_sentence(result: Result) -> str:
    """The answer in one sentence, which says what world it is about; what is promised stands once, in the appendix."""
    prop, drawn = result.property, result.statistical
    if result.undefined or result.bounds is None:
        return f"It is proved that the model is confident about no input at kappa {plain(prop.kappa)}: there is no share to give."
    inputs = "of all inputs" if result.world == THE_SPACE else f"of the inputs of {result.world}"
    whom = (
        inputs
        if prop.kappa * 2 <= 1
        else f"{inputs} about which the model is more than {plain(100 * prop.kappa)} % sure"
    )
    treated = f"{prop.treated} with respect to {_and(prop.sensitive)}" if prop.kind == "fairness" else prop.treated
    amount = share_text(result)
    sentence = f"{amount[0].upper()}{amount[1:]} {whom} are {treated}."
    if drawn is None or result.value is not None:
        return sentence
    likely = number_text(drawn.lower, drawn.upper, SENTENCE, confidence=drawn.confidence)
    return f"{sentence} Statistical, not proved: with confidence {drawn.confidence}, {likely}."


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True)
class Chart:
    """A picture and what it shows."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class QuestionPart:
    """What the page says about one question."""

    name: str
    anchor: str
    result: Result
    findings: Findings
    checks: Sequence[Check]
    charts: Sequence[tuple[str, Markup]]
    profiles: Sequence[tuple[Profile, Chart | None]]
    """With a chart in the place of a table where a numeric attribute has many cells."""
    population: Result | None = None
    rows: Empirical | None = None

    @property
    def main(self) -> bool:
        """Whether there is something to show before the appendix: counterexamples, or that nothing could be said."""
        found = self.findings
        return bool(found.hotspots or found.rules or found.pairs or found.profiles or found.notes)

    @property
    def bad(self) -> str:
        """What a counterexample is called."""
        return {"fairness": "unfair", "robustness": "not robust"}.get(self.result.property.kind, "contradicted")

    @property
    def drawn(self) -> float | None:
        """The confidence of the statistical intervals of its profiles, if it has any."""
        return next((p.confidence for p in self.findings.profiles if p.has_draws), None)


def _question(name: str, anchor: str, result: Result, findings: Findings, checks: Sequence[Check]) -> QuestionPart:
    charts: list[tuple[str, Markup]] = []
    if not result.undefined and len(result.trace) > 1:
        charts = [
            (kind, Markup(bounds_chart(result.trace, name, width=width, height=height)))
            for kind, (width, height) in (("wide", WIDE), ("narrow", NARROW))
        ]
    profiles = [
        (profile, _profile_chart(profile) if profile.numeric and len(profile.cells) > 8 else None)
        for profile in findings.profiles
    ]
    return QuestionPart(name, anchor, result, findings, checks, charts, profiles)


def _unfairest(question: QuestionPart) -> float:
    """Fairness before the rest, and the smallest measure first."""
    upper = question.result.upper
    return (0 if question.result.property.kind == "fairness" else 2) + (1.0 if upper is None else upper)


def _profile_chart(profile: Profile) -> Chart:
    """One kind of bounds a chart: certain ones if all of them say something, else statistical ones if there are any."""
    drawn = profile.has_draws and not all(cell.useful for cell in profile.cells)
    steps = []
    for cell in profile.cells:
        certain = (cell.lower, cell.upper) if cell.useful else None
        steps.append(Step(cell.low or 0.0, cell.high or 0.0, cell.statistical if drawn else certain))
    confidence = profile.confidence if drawn else None
    chart = steps_chart(steps, profile.attribute, "unfair share", width=NARROW[0], height=200, confidence=confidence)
    bounds = f"statistical, confidence {confidence}" if drawn else "certain bounds"
    open_ = sum(step.ends is None for step in steps)
    missing = f"; {open_} of {len(steps)} intervals not decided within the time" if open_ else ""
    return Chart(Markup(chart), f"{bounds}: full up to the lower, light up to the upper end{missing}")


# --- pieces that the templates ask for --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """A share as a percentage, with what it is and its ends for whoever reads the page by program."""

    lower: str
    upper: str | None
    kind: str
    text: Markup


def share(
    lower: float, upper: float | None, *, confidence: float | None = None, kind: str = "", style: Style = CELL
) -> Number:
    """The share between these ends."""
    text = escape(number_text(lower, upper, style, confidence=confidence)).replace(" %", "\N{NO-BREAK SPACE}%")
    return Number(repr(lower), None if upper is None else repr(upper), kind or kind_of(lower, upper, confidence), text)


def answer(lower: float, upper: float, *, confidence: float | None = None, kind: str = "") -> Number:
    """A measure, to the hundredth of a percent or to as many digits as tell it from 100 %."""
    return share(lower, upper, confidence=confidence, kind=kind, style=ANSWER)


def times(lower: float, upper: float | None, *, confidence: float | None = None) -> Number:
    """How many times as much."""
    return share(lower, upper, confidence=confidence, style=TIMES)


def _cell_bar(cell: ProfileCell, profile: Profile) -> Markup:
    most = max((known.best[1] for known in profile.cells if known.best is not None), default=0.0) or 1.0
    return Markup() if cell.best is None else Markup(bar(cell.best[0] / most, cell.best[1] / most))


def _largest(matrix: FlipMatrix) -> float:
    return max((m[0] for row in matrix.masses for m in row if m is not None), default=0.0) or 1.0


@dataclass(frozen=True)
class SpacePart:
    """What the page says about the space."""

    attributes: Sequence[tuple[Any, str]]
    why: dict[str, str]
    notes: Sequence[str]
    left: int
    count: int | None


def _space(space: Space, audit: Audit | None, extent: Extent) -> SpacePart:
    why, notes = {}, []
    if audit is not None and audit.inference is not None:
        why = {d.name: d.why for d in audit.inference.decisions}
        notes = [extent.text(note) for note in audit.inference.notes[: extent.space]]
    else:
        notes = [extent.text(f"rule: {rule}") for rule in space.rules[: extent.space]]
    if space.rules:
        share = 1 - space.allowed
        notes.append(f"the rules forbid {number_text(share, share, SENTENCE)} of the space; all shares are of the rest")
    shown = [(a, extent.text(describe_domain(a))) for a in list(space)[: extent.space]]
    return SpacePart(shown, why, notes, len(space) - len(shown), space.count())
