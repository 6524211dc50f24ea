"""Results as a notebook shows them: a small table, coloured by the notebook's own style."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from boxqte.answers.result import Result
from boxqte.auditing.audit import Audit
from boxqte.basics.numbers import LONG
from boxqte.report.hotspots import together_text, tree_text
from boxqte.report.text import audit_table, between, noted_measure, numbered_remarks, statistical_text

if TYPE_CHECKING:
    import pandas as pd


def result_html(result: Result, spots: pd.DataFrame | None = None) -> str:
    """One result, and the tree of its hot spots where there are some."""
    rows = [
        ("question", str(result.property)),
        ("measure", noted_measure(result)),
        *([("statistical", statistical_text(result, LONG))] if result.statistical is not None else []),
        *(("remark", remark) for remark in result.remarks),
        ("guarantee", result.guarantee()),
        ("status", f"{result.status} in {result.seconds:.3g} s, engine {result.engine}"),
        ("confident mass", between(result.confident)),
        ("counterexample mass", between(result.counterexample)),
        ("model", f"{result.model.source}: {result.model.library}, {result.model.trees_text}"),
        *([] if result.model.decision is None else [("decision", result.model.decision.text())]),
    ]
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows
    )
    table = f"<table>{body}</table>"
    if spots is None or not len(spots):
        return table
    tree, together = escape(tree_text(spots)), escape(together_text(spots))
    return f'{table}<pre style="text-align:left">{tree}</pre><p>Hot spots: {together}.</p>'


def audit_html(audit: Audit) -> str:
    """The questions of an audit and their answers."""
    head, *rows = audit_table(audit)
    top = "".join(f'<th scope="col" style="text-align:left">{escape(name)}</th>' for name in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    remarks = "".join(f"<p>[{n}] {escape(remark)}</p>" for remark, n in numbered_remarks(audit.results).items())
    if audit.model.decision is not None:
        remarks = f"<p>decision: {escape(audit.model.decision.text())}</p>{remarks}"
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{remarks}"
