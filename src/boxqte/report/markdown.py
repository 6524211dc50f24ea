"""A gate's checks as Markdown, for the summary of a pull request; an audit as a section of a model card."""

from __future__ import annotations

from collections.abc import Sequence

from boxqte._version import __version__
from boxqte.auditing.audit import Audit
from boxqte.auditing.policy import GateReport
from boxqte.basics.numbers import LONG
from boxqte.report.text import (
    audit_rates,
    audit_table,
    found_words,
    noted_measure,
    numbered_remarks,
    required_words,
    statistical_text,
)
from boxqte.space.inference import describe_domain

PROMISE = "Exact and certain numbers are proved for every input of the declared space, not estimated."
DRAWN = " Statistical intervals come from random inputs and hold with the stated confidence; no verdict rests on them."
MARKS = {"holds": "✅ holds", "violated": "❌ violated", "undecided": "❔ undecided"}
TITLES = {
    "holds": "every requirement holds",
    "violated": "a requirement is violated",
    "undecided": "a requirement is undecided",
}


def markdown(report: GateReport) -> str:
    """A heading, one row a requirement, and what the numbers promise."""
    lines = [f"### boxqte: {TITLES[str(report.verdict)]}", ""]
    if report.model:
        lines += [
            f"Model `{_code(report.model)}`" + (f", policy `{_code(report.policy)}`" if report.policy else ""),
            "",
        ]
    if report.decision is not None:
        lines += [f"Decision: {_cell(report.decision.text())}", ""]
    drawn = any(check.result is not None and check.result.statistical is not None for check in report.checks)
    head = ["requirement", "verdict", "required", "measure", *(["statistical"] if drawn else []), "question"]
    lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for check in report.checks:
        measure = found_words(check) if check.result is None else noted_measure(check.result)
        likely = "" if check.result is None else statistical_text(check.result, LONG)
        cells = (
            check.requirement.name,
            MARKS[str(check.verdict)],
            required_words(check.requirement),
            measure,
            *([likely] if drawn else []),
            str(check.requirement.property) if check.rates is None else str(check.requirement),
        )
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    reasons = [f"- {_cell(check.requirement.name)}: {_cell(check.why)}" for check in report.checks if check.why]
    reasons += [
        f"- {_cell(c.requirement.name)}: {_cell(r)}" for c in report.checks if c.result for r in c.result.remarks
    ]
    if reasons:
        lines += ["", *reasons]
    return "\n".join([*lines, "", PROMISE + (DRAWN if drawn else ""), ""])


def model_card(audit: Audit, heading: str) -> str:
    """What a model card says of an audit: what was asked, the answers, what they are about, and what they leave out."""
    model, count = audit.model, audit.space.count()
    lines = [heading, ""] if heading else []
    lines += [
        "Measured with boxqte over the whole input space that is declared below, not on a "
        "sample of rows: the measure is the share of the confident inputs that is treated alike whatever their sensitive "
        "attributes are (for robustness: whose class no small change turns; for scores and monotonicity: that no other input "
        "contradicts).",
        "",
        *_table(audit_table(audit)),
    ]
    remarks = numbered_remarks(audit.results)
    if remarks:
        lines += ["", *(f"- \\[{n}\\] {_cell(remark)}" for remark, n in remarks.items())]
    lines += ["", *(f"- {_cell(note)}" for note in audit.notes)] if audit.notes else []
    if audit.rates:
        lines += [
            "",
            "The rate of class 1 in the groups, all else being spread as the space says:",
            "",
            *_table(audit_rates(audit)),
        ]
    about = [
        f"Model: {model.library}, {model.trees_text}, {model.leaves:,} leaves, {model.features} columns; "
        f"fingerprint `{model.fingerprint[:16]}`",
        *([] if model.decision is None else [f"Decision: {_cell(model.decision.text())}"]),
        f"Inputs: {'infinitely many' if count is None else f'{count:,}'}, from {len(audit.space)} attributes; "
        f"fingerprint of the space `{audit.space.fingerprint()[:16]}`",
        *(f"{_cell(a.name)}: {a.kind}, {_cell(describe_domain(a))}" for a in audit.space),
    ]
    lines += ["", "What it is about:", "", *(f"- {line}" for line in about)]
    lines += ["", "What it does not say: anything about inputs outside that space, about how frequent the inputs in it are "
              "in a population unless the masses say so, about proxies that stay as they are while the attribute changes, or "
              "about whether the model is right."]  # fmt: skip
    lines += ["", PROMISE + (DRAWN if any(r.statistical is not None for r in audit.results) else "")]
    lines += ["", f"Made by boxqte {__version__}" + (f": `{_code(audit.command)}`" if audit.command else "") + "."]
    return "\n".join([*lines, ""])


def _table(table: Sequence[Sequence[str]]) -> list[str]:
    head, *rows = table
    lines = [f"| {' | '.join(map(_cell, head))} |", "|---" * len(head) + "|"]
    return lines + [f"| {' | '.join(_cell(text.strip()) for text in row)} |" for row in rows]


def _cell(text: str) -> str:
    plain_text = "".join(c if c.isprintable() else " " for c in text)
    for special in "\\`*_[]<>|":
        plain_text = plain_text.replace(special, "\\" + special)
    return plain_text


def _code(text: str) -> str:
    return "".join(c if c.isprintable() and c != "`" else "'" for c in text)
