"""A gate's checks as JUnit XML. A violated requirement is a failure; an undecided one is an error: nothing is proved."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from boxqte.auditing.policy import Check, GateReport
from boxqte.report.text import check_text


def junit(report: GateReport) -> str:
    """The XML document; build servers show each requirement as a test, and the decision rule as a property of all."""
    counts = [sum(str(c.verdict) == kind for c in report.checks) for kind in ("violated", "undecided")]
    seconds = sum(check.seconds for check in report.checks)
    head = f'tests="{len(report.checks)}" failures="{counts[0]}" errors="{counts[1]}" time="{seconds:.3f}"'
    rule = "" if report.decision is None else report.decision.text()
    about = f'  <properties><property name="decision" value={_attribute(rule)}/></properties>\n' if rule else ""
    cases = "\n".join(_case(check) for check in report.checks)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<testsuites name="boxqte" {head}>\n'
        f' <testsuite name="boxqte" {head}>\n{about}{cases}\n </testsuite>\n'
        "</testsuites>\n"
    )


def _case(check: Check) -> str:
    head = f'  <testcase classname="boxqte" name={_attribute(check.requirement.name)} time="{check.seconds:.3f}"'
    kind = {"violated": "failure", "undecided": "error"}.get(str(check.verdict))
    said = _plain(check_text(check))
    if kind is None:
        return f"{head}>\n   <system-out>{escape(said)}</system-out>\n  </testcase>"
    detail = escape(_plain(str(check.requirement)))
    return f"{head}>\n   <{kind} message={_attribute(check_text(check))}>{detail}</{kind}>\n  </testcase>"


def _attribute(text: str) -> str:
    return quoteattr(_plain(text))


def _plain(text: str) -> str:
    """XML 1.0 has no place for control characters, not even escaped; names from files may hold them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
