"""A gate's checks as Markdown, for the summary of a pull request."""

from __future__ import annotations

from boxqte.auditing.policy import GateReport
from boxqte.basics.numbers import LONG
from boxqte.report.text import found_words, noted_measure, required_words, statistical_text

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
    promise = "Exact and certain numbers are proved for every input of the declared space, not estimated."
    if drawn:
        promise += " Statistical intervals come from random inputs and hold with the stated confidence; no verdict rests on them."
    return "\n".join([*lines, "", promise, ""])


def _cell(text: str) -> str:
    plain_text = "".join(c if c.isprintable() else " " for c in text)
    for special in "\\`*_[]<>|":
        plain_text = plain_text.replace(special, "\\" + special)
    return plain_text


def _code(text: str) -> str:
    return "".join(c if c.isprintable() and c != "`" else "'" for c in text)
