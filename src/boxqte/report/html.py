"""The report: one self-contained HTML page, readable offline, printable, without a script.

Text first, numbers in tables, charts in SVG. Everything that comes from a file is escaped. The page follows the
reader's choice of dark or light and fits a phone.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from boxqte._version import __version__
from boxqte.budget import TimeBudget
from boxqte.exact import plain
from boxqte.numbers import CELL, LONG, SENTENCE, SHORT, kind_of, number_text, short_up
from boxqte.printing import between, measure_text, numbered_remarks, share_text, statistical_text
from boxqte.report.findings import NOTHING, Extent, Findings, FlipMatrix, Pair, Profile, ProfileCell, Rule
from boxqte.report.svg import Step, bar, bounds_chart, steps_chart
from boxqte.result import Quantification

if TYPE_CHECKING:
    from boxqte.auditing import Audit
    from boxqte.policy import Check
    from boxqte.space import Space

MOST_BYTES = 300_000
WIDE, NARROW = (720, 300), (360, 260)
LIBRARIES = ("numpy", "pandas", "xgboost", "xgboost-cpu", "lightgbm", "scikit-learn", "catboost")
UNDECIDED = "not decided within the time"


def audit_page(audit: Audit, *, seconds: float | None, say: Callable[[str], None] | None = None) -> str:
    """The report of an audit; `seconds` are for the searches behind it, and `say` hears what is done."""
    from boxqte.report.gathering import gather

    budget = TimeBudget(seconds, len(audit.results))
    found = []
    for question in audit.questions:
        if question.result is None:
            found.append(NOTHING)
            continue
        hears = None if say is None else _named(say, question.name)
        found.append(gather(question.result, audit.space, seconds=budget.next_share(), say=hears))
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


def _named(say: Callable[[str], None], name: str) -> Callable[[str], None]:
    return lambda words: say(f"{name}, {words}")


def result_page(
    result: Quantification, *, command: str = "", seconds: float | None, say: Callable[[str], None] | None = None
) -> str:
    """The report of one question."""
    from boxqte.report.gathering import gather

    findings = gather(result, seconds=seconds, say=say)
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
    prop, drawn = result.property, result.statistical
    if result.undefined or result.bounds is None:
        return f"It is proved that the model is confident about no input at kappa {plain(prop.kappa)}: there is no share to give."
    whom = (
        "of all inputs"
        if prop.kappa * 2 <= 1
        else f"of all inputs about which the model is more than {plain(100 * prop.kappa)} % sure"
    )
    treated = f"treated fairly with respect to {_and(prop.sensitive)}" if prop.sensitive else "robust"
    amount = share_text(result)
    sentence = f"{amount[0].upper()}{amount[1:]} {whom} are {treated} (guarantee: {result.guarantee()})."
    if drawn is None:
        return sentence
    likely = number_text(drawn.lower, drawn.upper, SENTENCE, confidence=drawn.confidence)
    return f"{sentence} Statistical, not proved: with confidence {drawn.confidence}, {likely}."


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _overview(audit: Audit, anchors: dict[str, str]) -> str:
    drawn = any(result.statistical is not None for result in audit.results)
    remarks = numbered_remarks(audit.results)
    rows = []
    for question in audit.questions:
        result = question.result
        name, measure, likely, seconds = _t(question.name), "", "", ""
        if result is not None:
            marks = "".join(f" [{remarks[remark]}]" for remark in result.remarks)
            name = f'<a href="#{anchors[question.name]}">{name}</a>{marks}'
            measure, likely, seconds = measure_text(result, SHORT), statistical_text(result), f"{result.seconds:.1f} s"
        cells = [name, _t(measure), *([_t(likely)] if drawn else []), _t(question.status), seconds]
        if audit.gate is not None:
            cells.append(", ".join(_verdict(check) for check in audit.checks_of(question)))
        rows.append(cells)
    head = ["question", "measure", *(["statistical"] if drawn else []), "status", "time"]
    head += ["verdict"] if audit.gate is not None else []
    lead = ""
    if audit.gate is not None:
        words = {"holds": "Every requirement holds.", "violated": "A requirement is violated."}
        verdict = str(audit.gate.verdict)
        lead = f'<p class="lead {verdict}">{words.get(verdict, "A requirement is undecided, none is violated.")}</p>'
    sentences = "".join(f"<li>{_t(answer_sentence(r))}</li>" for r in audit.results)
    return (
        f"<section aria-labelledby=answers><h2 id=answers>The answers</h2>{lead}<ul>{sentences}</ul>"
        + _table("Every question, its answer and how far it got", head, rows, right=(3 + drawn,), kind="answers")
        + "".join(f"<p class=remark>[{number}] {_t(remark)}</p>" for remark, number in remarks.items())
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
        *([("statistical", _t(statistical_text(result, LONG)))] if result.statistical is not None else []),
        *(("remark", _t(remark)) for remark in result.remarks),
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
        *_rules(findings.rules, findings.complete),
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


def _rules(rules: Sequence[Rule], complete: bool) -> list[str]:
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
        cells = [where, *([_t(rule.flip)] if flips else []), _number(rule.mass, rule.mass, kind="certain")]
        cells.append(_number(rule.share, rule.share if complete else None, kind="certain"))
        density = "" if rule.density is None else _number(rule.density, rule.density, kind="certain")
        rows.append([*cells, *([density] if dense else [])])
    first = 1 + flips
    caption = (
        f"The largest regions with counterexamples{'' if complete else ' that were found'}; they do not overlap. All inputs "
        "of a region are decided: its shares are certain to the digits shown; conditions to seven digits"
    )
    table = _table(caption, head, rows, right=tuple(range(first, len(head))), kind="rule")
    return ["<h3>Where it is unfair</h3>", table]


def _profiles(profiles: Sequence[Profile]) -> list[str]:
    if not profiles:
        return []
    drawn = next((p.confidence for p in profiles if p.has_draws), None)
    reading = "Two numbers are certain bounds, one number is certain to the digits shown."
    if drawn is not None:
        reading += (
            f" Statistical intervals come from random inputs, each decided exactly; all of them together hold with confidence "
            f"{drawn}."
        )
    parts = ["<h3>By attribute</h3><p class=note>The share of the inputs with that value that are counterexamples. "
             f"{reading}</p>", '<div class="profiles">']  # fmt: skip
    for profile in profiles:
        chart = profile.numeric and len(profile.cells) > 8
        parts.append(_profile_chart(profile) if chart else _profile_table(profile))
    return [*parts, "</div>"]


def _profile_chart(profile: Profile) -> str:
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
    caption = f"{bounds}: full up to the lower, light up to the upper end{missing}"
    name = _t(profile.attribute)
    return f'<figure data-attribute="{name}"><h4>{name}</h4>{chart}<figcaption>{_t(caption)}</figcaption></figure>'


def _profile_table(profile: Profile) -> str:
    most = max((cell.best[1] for cell in profile.cells if cell.best is not None), default=0.0) or 1.0
    rows = [[_t(cell.label), *_profile_cells(cell, profile, most)] for cell in profile.cells]
    head = [profile.attribute, "unfair share", *(["statistical"] if profile.has_draws else [])]
    name = _t(profile.attribute)
    table = _table(f"Unfair share by {profile.attribute}", head, rows, kind="profile")
    return f'<div data-attribute="{name}"><h4>{name}</h4>{table}</div>'


def _profile_cells(cell: ProfileCell, profile: Profile, most: float) -> list[str]:
    ends = cell.best
    certain = _number(cell.lower, cell.upper) if cell.useful else UNDECIDED
    cells = [f"{'' if ends is None else bar(ends[0] / most, ends[1] / most)}{certain}"]
    if profile.has_draws:
        known = not cell.settled and cell.statistical is not None
        cells.append(_number(*cell.statistical, confidence=profile.confidence) if known and cell.statistical else "")
    return cells


def _matrices(matrices: Sequence[FlipMatrix]) -> list[str]:
    if not matrices:
        return []
    parts = ["<h3>Which value to which</h3>"]
    for matrix in matrices:
        most = max((m[0] for row in matrix.masses for m in row if m is not None), default=0.0) or 1.0
        head = "".join(f'<th scope="col" class="n">{_t(label)}</th>' for label in matrix.labels)
        body = ""
        for label, row in zip(matrix.labels, matrix.masses):
            cells = "".join(_matrix_cell(mass, most) for mass in row)
            body += f'<tr><th scope="row">{_t(label)}</th>{cells}</tr>'
        caption = f"{_t(matrix.title)}: rows are the input's own value, columns the value that turns the class; "
        caption += "of all inputs, certain, and to the digits shown where one number stands alone"
        table = (
            f'<table class="matrix"><caption>{caption}</caption><thead><tr><th scope="col">from \\ to</th>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )
        parts.append(_scroll(f"flip matrix of {matrix.title}", table))
    return parts


def _matrix_cell(mass: tuple[float, float | None] | None, most: float) -> str:
    if mass is None:
        return "<td>–</td>"
    shade = round(0.3 * mass[0] / most, 2)
    style = f' style="--shade:{shade}"' if shade else ""
    return f"<td{style}>{_number(*mass)}</td>"


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
            "not computed" if r.rounding_ambiguous is None else short_up(r.rounding_ambiguous),
            short_up(r.input_rounding),
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


def _number(lower: float, upper: float | None, *, confidence: float | None = None, kind: str = "") -> str:
    """A share as a percentage, with what it is and its ends for whoever reads the page by program."""
    text = _t(number_text(lower, upper, CELL, confidence=confidence)).replace(" %", "\N{NO-BREAK SPACE}%")
    ends = f'data-lower="{lower!r}"' + ("" if upper is None else f' data-upper="{upper!r}"')
    return f'<span {ends} data-kind="{kind or kind_of(lower, upper, confidence)}">{text}</span>'


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
