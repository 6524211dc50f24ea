"""The report: one self-contained HTML page, readable offline, printable, without a script.

Text first, numbers in tables, charts in SVG. Everything that comes from a file is escaped. The page follows the
reader's choice of dark or light and fits a phone.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from boxqte._version import __version__
from boxqte.exact import plain
from boxqte.printing import between, measure_text, percent
from boxqte.report.findings import NOTHING, Extent, Findings, FlipMatrix, Pair, Profile, Rule
from boxqte.report.svg import bar, bounds_chart, steps_chart
from boxqte.result import Quantification

if TYPE_CHECKING:
    from boxqte.auditing import Audit
    from boxqte.policy import Check
    from boxqte.space import Space

MOST_BYTES = 300_000
WIDE, NARROW = (720, 300), (360, 260)
LIBRARIES = ("numpy", "numba", "pandas", "xgboost", "xgboost-cpu", "lightgbm", "scikit-learn", "catboost")


def audit_page(audit: Audit) -> str:
    """The report of an audit."""
    from boxqte.report.gathering import gather

    found = [NOTHING if q.result is None else gather(q.result, audit.space) for q in audit.questions]
    anchors = {q.name: f"q{i}" for i, q in enumerate(audit.questions, 1)}

    def page(extent: Extent) -> str:
        sections = [_overview(audit, anchors)]
        for question, findings in zip(audit.questions, found):
            if question.result is not None:
                trimmed, checks = findings.trimmed(extent), audit.checks_of(question)
                sections.append(_question(question.name, anchors[question.name], question.result, trimmed, checks))
        sections += [_space(audit.space, audit, extent), _reading(audit.results)]
        sections.append(_provenance(audit.results, audit.command))
        return _page(f"Fairness audit of {audit.model.source or audit.model.library}", sections)

    return _small_enough(page)


def result_page(result: Quantification, *, command: str = "") -> str:
    """The report of one question."""
    from boxqte.report.gathering import gather

    findings = gather(result)
    space = None if result.origin is None else result.origin.grid.space

    def page(extent: Extent) -> str:
        sections = [_question(str(result.property), "q1", result, findings.trimmed(extent), [])]
        if space is not None:
            sections.append(_space(space, None, extent))
        sections += [_reading([result]), _provenance([result], command)]
        return _page(f"{result.property.kind.capitalize()} of {result.model.source or result.model.library}", sections)

    return _small_enough(page)


def _small_enough(page: Callable[[Extent], str]) -> str:
    """What a page shows is halved until it is small enough to be mailed."""
    extent = Extent()
    for _ in range(8):
        text = page(extent)
        if len(text.encode("utf-8")) <= MOST_BYTES:
            break
        extent = extent.halved()
    return text


@cache
def _style() -> str:
    return (Path(__file__).parent / "style.css").read_text(encoding="utf-8").replace("\n", "")


def _page(title: str, sections: Sequence[str]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="boxqte {__version__}">\n'
        f"<title>{_t(title)}</title>\n<style>{_style()}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{_t(title)}</h1>\n</header>\n<main>\n" + "\n".join(sections) + "\n</main>\n"
        f"<footer><p class=note>Made by boxqte {__version__}.</p></footer>\n</body>\n</html>\n"
    )


# --- the answer -------------------------------------------------------------------------------------------------------


def answer_sentence(result: Quantification) -> str:
    """The answer in one sentence, with its guarantee."""
    bounds, prop = result.bounds, result.property
    if result.undefined or bounds is None:
        return f"It is proved that the model is confident about no input at kappa {plain(prop.kappa)}: there is no share to give."
    whom = (
        "of all inputs"
        if prop.kappa * 2 <= 1
        else f"of all inputs about which the model is more than {plain(100 * prop.kappa)} % sure"
    )
    treated = f"treated fairly with respect to {_and(prop.sensitive)}" if prop.sensitive else "robust"
    if result.value is not None:
        amount = percent(result.value)
    else:
        amount = f"At least {percent(bounds.lower, ROUND_FLOOR)} and at most {percent(bounds.upper, ROUND_CEILING)}"
    return f"{amount[0].upper()}{amount[1:]} {whom} are {treated} (guarantee: {result.guarantee()})."


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _overview(audit: Audit, anchors: dict[str, str]) -> str:
    from boxqte.auditing import short_measure

    rows = []
    for question in audit.questions:
        result = question.result
        name = _t(question.name)
        if result is None:
            cells = [name, "", question.status, ""]
        else:
            link = f'<a href="#{anchors[question.name]}">{name}</a>'
            cells = [link, _t(short_measure(result)), _t(question.status), f"{result.seconds:.1f} s"]
        if audit.gate is not None:
            cells.append(", ".join(_verdict(check) for check in audit.checks_of(question)))
        rows.append(cells)
    head = ["question", "measure", "status", "time"] + (["verdict"] if audit.gate is not None else [])
    lead = ""
    if audit.gate is not None:
        words = {"holds": "Every requirement holds.", "violated": "A requirement is violated."}
        verdict = str(audit.gate.verdict)
        lead = f'<p class="lead {verdict}">{words.get(verdict, "A requirement is undecided, none is violated.")}</p>'
    sentences = "".join(f"<li>{_t(answer_sentence(r))}</li>" for r in audit.results)
    return (
        f"<section aria-labelledby=answers><h2 id=answers>The answers</h2>{lead}<ul>{sentences}</ul>"
        + _table("Every question, its answer and how far it got", head, rows, right=(3,))
        + "<p class=note>The measure is the share of the confident inputs, over the whole space below, that is treated "
        "fairly (for robustness: whose class no small change turns).</p></section>"
    )


def _verdict(check: Check) -> str:
    word = str(check.verdict)
    return f'<span class="{word}">{word}</span> (at least {_t(str(plain(check.requirement.at_least)))})'


def _question(name: str, anchor: str, result: Quantification, findings: Findings, checks: Sequence[Check]) -> str:
    facts = [
        ("question", _t(str(result.property))),
        ("measure", _t(measure_text(result))),
        ("confident mass", _t(between(result.confident))),
        ("counterexample mass", _t(between(result.counterexample))),
        ("status", f"{_t(str(result.status))} after {result.seconds:.2f} s, engine {_t(result.engine)}"),
        *(("required", _verdict(check)) for check in checks),
    ]
    helped = result.details.get("bounds_from")
    if helped:
        facts.append(("bounds", f"partly proved by the questions: {_t(', '.join(helped))}"))
    parts = [
        f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{_t(name)}</h2>',
        f'<p class="lead">{_t(answer_sentence(result))}</p>',
        _facts(facts),
        _bounds_figure(name, result),
        *_rules(findings.rules),
        *_matrices(findings.matrices),
        *_profiles(findings.profiles),
        *_pairs(findings.pairs),
        *(f"<p class=note>{_t(note)}</p>" for note in findings.notes),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _bounds_figure(name: str, result: Quantification) -> str:
    if result.undefined:
        return ""
    if len(result.trace) < 2:
        return f"<p class=note>The engine settled the question in one step, after {result.seconds:.2g} s.</p>"
    charts = "".join(
        f'<div class="{kind}">{bounds_chart(result.trace, name, width=width, height=height)}</div>'
        for kind, (width, height) in (("wide", WIDE), ("narrow", NARROW))
    )
    return (
        f"<h3>Bounds over time</h3><figure>{charts}<figcaption>The truth lies between the "
        '<span class="key l"></span>lower and the <span class="key u"></span>upper bound at any time.</figcaption></figure>'
    )


# --- findings ---------------------------------------------------------------------------------------------------------


def _rules(rules: Sequence[Rule]) -> list[str]:
    if not rules:
        return []
    flips = any(rule.flip for rule in rules)
    dense = any(rule.density is not None for rule in rules)
    head = [
        "region",
        *(["flip"] if flips else []),
        "of all inputs",
        "of the unfair",
        *(["unfair inside"] if dense else []),
    ]
    rows = []
    for rule in rules:
        where = " <span class=note>and</span> ".join(f"<code>{_t(c)}</code>" for c in rule.conditions) or "everywhere"
        cells = [where, *([_t(rule.flip)] if flips else []), _percent(rule.mass), _percent(rule.share)]
        rows.append([*cells, *([_percent(rule.density)] if dense else [])])
    first = 1 + flips
    table = _table("The largest regions with counterexamples; they do not overlap; numbers to seven digits", head, rows,
                   right=tuple(range(first, len(head))), kind="rule")  # fmt: skip
    return ["<h3>Where it is unfair</h3>", table]


def _profiles(profiles: Sequence[Profile]) -> list[str]:
    if not profiles:
        return []
    parts = ["<h3>By attribute</h3><p class=note>The share of the inputs with that value that are counterexamples.</p>",
             '<div class="profiles">']  # fmt: skip
    for profile in profiles:
        if profile.numeric and len(profile.cells) > 8:
            cells = [(cell.low or 0.0, cell.high or 0.0, cell.share) for cell in profile.cells]
            chart = steps_chart(cells, profile.attribute, "unfair share", width=NARROW[0], height=200)
            parts.append(f"<figure><h4>{_t(profile.attribute)}</h4>{chart}</figure>")
        else:
            most = max((cell.share for cell in profile.cells), default=0.0) or 1.0
            rows = [[_t(cell.label), f"{bar(cell.share / most)}{_percent(cell.share)}"] for cell in profile.cells]
            table = _table(f"Unfair share by {profile.attribute}", [profile.attribute, "unfair share"], rows)
            parts.append(f"<div><h4>{_t(profile.attribute)}</h4>{table}</div>")
    return [*parts, "</div>"]


def _matrices(matrices: Sequence[FlipMatrix]) -> list[str]:
    if not matrices:
        return []
    parts = ["<h3>Which value to which</h3>"]
    for matrix in matrices:
        most = max((m for row in matrix.masses for m in row if m is not None), default=0.0) or 1.0
        head = "".join(f'<th scope="col" class="n">{_t(label)}</th>' for label in matrix.labels)
        body = ""
        for label, row in zip(matrix.labels, matrix.masses):
            cells = "".join(_matrix_cell(mass, most) for mass in row)
            body += f'<tr><th scope="row">{_t(label)}</th>{cells}</tr>'
        caption = f"{_t(matrix.title)}: rows are the input's own value, columns the value that turns the class"
        table = (
            f'<table class="matrix"><caption>{caption}</caption><thead><tr><th scope="col">from \\ to</th>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )
        parts.append(_scroll(f"flip matrix of {matrix.title}", table))
    return parts


def _matrix_cell(mass: float | None, most: float) -> str:
    if mass is None:
        return "<td>–</td>"
    shade = round(0.3 * mass / most, 2)
    style = f' style="--shade:{shade}"' if shade else ""
    return f"<td{style}>{_percent(mass)}</td>"


def _pairs(pairs: Sequence[Pair]) -> list[str]:
    if not pairs:
        return []
    parts = [
        "<h3>Examples</h3><p class=note>Pairs drawn from the counterexamples. What differs is marked with ≠.</p>",
        '<div class="cards">',
    ]
    for i, pair in enumerate(pairs, 1):
        rows = ""
        for d in pair.attributes:
            mark = ' class="changed"' if d.changed else ""
            sign = "≠ " if d.changed else ""
            rows += f'<tr{mark}><th scope="row">{sign}{_t(d.attribute)}</th><td>{_t(d.first)}</td><td>{_t(d.second)}</td></tr>'
        rows += (
            f'<tr class="changed"><th scope="row">≠ class</th><td>{_t(pair.first_class)}</td>'
            f"<td>{_t(pair.second_class)}</td></tr>"
        )
        parts.append(
            f'<div class="card"><h4>Pair {i}</h4><table><caption>What the model says of two such inputs</caption><thead><tr>'
            '<th scope="col">attribute</th><th scope="col">input</th><th scope="col">its counterpart</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )
    return [*parts, "</div>"]


# --- what it is about -------------------------------------------------------------------------------------------------


def _space(space: Space, audit: Audit | None, extent: Extent) -> str:
    from boxqte.inference import describe_domain

    why = {}
    if audit is not None and audit.inference is not None:
        why = {d.name: d.why for d in audit.inference.decisions}
    rows = []
    for attribute in list(space)[: extent.space]:
        domain = extent.text(describe_domain(attribute))
        rows.append(
            [_t(attribute.name), attribute.kind, _t(domain), *([_t(why.get(attribute.name, ""))] if why else [])]
        )
    left = len(space) - len(rows)
    more = f"<p class=note>... and {left} more attributes.</p>" if left > 0 else ""
    count = space.count()
    inputs = "infinitely many" if count is None else f"{count:,}"
    return (
        "<section aria-labelledby=space><h2 id=space>All inputs</h2>"
        "<p>Every input that fits these domains counts, whether or not the data has one like it.</p>"
        + _table("The input space", ["attribute", "kind", "domain", *(["why"] if why else [])], rows)
        + f"{more}<p>Inputs: {inputs}.</p></section>"
    )


def _reading(results: Sequence[Quantification]) -> str:
    lines: dict[str, None] = {}
    for result in results:
        lines |= dict.fromkeys(result.semantics())
    items = "".join(f"<li>{_t(line)}</li>" for line in lines)
    masses = [
        (
            str(r.property),
            "not computed" if r.rounding_ambiguous is None else f"{r.rounding_ambiguous:.2g}",
            f"{r.input_rounding:.2g}",
        )
        for r in results
    ]
    rows = [[_t(a), b, c] for a, b, c in masses]
    table = _table(
        "Mass that floating point could decide otherwise, at most", ["question", "sums", "inputs"], rows, right=(1, 2)
    )
    return f"<section aria-labelledby=reading><h2 id=reading>How to read it</h2><ul>{items}</ul>{table}</section>"


def _provenance(results: Sequence[Quantification], command: str) -> str:
    facts = []
    if results:
        model = results[0].model
        facts += [
            (
                "model",
                _t(
                    f"{model.source}: {model.library}, {model.trees_text}, {model.leaves} leaves, {model.features} columns"
                ),
            ),
            ("model fingerprint", f"<code>{_t(model.fingerprint)}</code>"),
            ("space fingerprint", f"<code>{_t(results[0].space_fingerprint)}</code>"),
        ]
    versions = [f"boxqte {__version__}", f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    facts.append(("versions", _t(", ".join(versions))))
    run = f"<h3>The command</h3><pre><code>{_t(command)}</code></pre>" if command else ""
    return f"<section aria-labelledby=made><h2 id=made>How it was made</h2>{_facts(facts)}{run}</section>"


# --- pieces -----------------------------------------------------------------------------------------------------------


def _t(text: object) -> str:
    """Text for a page: escaped, without control characters, of bounded length."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in str(text))
    return escape(shown if len(shown) <= 2000 else shown[:1000] + " ... " + shown[-900:])


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    if share == 0:
        return "0\N{NO-BREAK SPACE}%"
    return f"{100 * share:.3g}\N{NO-BREAK SPACE}%" if share >= 1e-6 else f"{100 * share:.1e}\N{NO-BREAK SPACE}%"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{_t(name)}</dt><dd>{content}</dd>" for name, content in facts) + "</dl>"


def _table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, right: tuple[int, ...] = (), kind: str = ""
) -> str:
    def cell(i: int, content: str, tag: str, scope: str = "") -> str:
        return f"<{tag}{scope}{' class=n' if i in right else ''}>{content}</{tag}>"

    top = "".join(cell(i, _t(name), "th", ' scope="col"') for i, name in enumerate(head))
    body = "".join("<tr>" + "".join(cell(i, c, "td") for i, c in enumerate(row)) + "</tr>" for row in rows)
    opening = f"<table class={kind}>" if kind else "<table>"
    table = f"{opening}<caption>{_t(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return _scroll(caption, table)


def _scroll(name: str, table: str) -> str:
    """A table may be wider than a phone: it scrolls by itself, also by keyboard, and the page does not."""
    return f'<div class="scroll" role="group" aria-label="{_t(name)}" tabindex="0">{table}</div>'
