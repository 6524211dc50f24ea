"""Results, spaces, models and engines as plain text for a terminal, and the model's summary as JSON.

Numbers are made by `boxqte.basics.numbers.number_text`, which says what each of them is.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from boxqte.answers.empirical import Empirical
from boxqte.answers.rates import GroupRates
from boxqte.answers.result import Bounds, Result, Ruled, of_trees
from boxqte.auditing.audit import Audit
from boxqte.auditing.policy import Check, GateReport, RatioRequirement, Requirement
from boxqte.basics.numbers import CELL, LONG, PROGRESS, SENTENCE, SHORT, Style, number_text, short_up
from boxqte.engines import DEFAULT_ENGINE, ENGINES, engine_class
from boxqte.engines.options import engine_options
from boxqte.engines.protocol import Progress
from boxqte.exact import plain
from boxqte.models.categories import HashedCategories
from boxqte.models.ensemble import Missing, Test, TreeEnsemble
from boxqte.models.importers import ImportedModel
from boxqte.questions.properties import Property
from boxqte.space.attributes import Attribute
from boxqte.space.inference import describe_domain
from boxqte.space.space import Space

WIDTH = 110
LABEL = 20
SHEET_LABEL = 12
Named = Sequence[tuple[str, str]]
MAX_LISTED = 40
TEST_WORDS = {
    Test.LESS_F32: "x < t, x rounded to float32",
    Test.AT_MOST_F32: "x <= t, x rounded to float32",
    Test.AT_MOST_F64: "x <= t, x in float64",
    Test.IN_SET: "x is in a set of categories",
}
MISSING_WORDS = {
    Missing.DEFAULT: "a missing value takes the node's own default side",
    Missing.AS_ZERO: "a missing value is read as 0",
    Missing.WITH_ZERO: "a missing value, and zero, take the node's own default side",
    Missing.ZERO_EXACT: "a missing value, and exactly 0, take the node's own default side",
}
LINK_WORDS = {
    "sigmoid": "p = sigmoid(F), F = scale * (base + sum of the leaf values)",
    "mean": "p = mean of the trees, F = p - 1/2",
    "identity": "value = F = scale * (base + sum of the leaf values)",
    "exp": "value = exp(F), F = scale * (base + sum of the leaf values)",
    "softmax": "p = softmax(F), F = scale * (base + sum of the leaf values), one F a class",
}


def answer_text(result: Result) -> str:
    """The answer, what it promises, and how it is to be read."""
    model = result.model
    lines = [
        _line("question", str(result.property)),
        *_measure_lines(result),
        *_statistical_lines(result),
        *(_line("remark" if not i else "", remark) for i, remark in enumerate(result.remarks)),
        _line("guarantee", result.guarantee()),
        _line("status", f"{result.status}"),
        _line("engine", f"{result.engine}, {result.seconds:.2f} s"),
        _line("confident mass", between(result.confident)),
        _line("counterexample mass", between(result.counterexample)),
        _line("rounding_ambiguous", _at_most(result.rounding_ambiguous)),
        _line("input_rounding", _at_most(result.input_rounding)),
        _line("model", f"{model.source}: {model.library}, {model.trees_text}, {model.leaves} leaves"),
        *([] if model.decision is None else [_line("decision", model.decision.text())]),
        _line("inputs", "infinitely many" if result.count is None else f"{result.count:,}"),
        *([] if result.ruled is None else [_line("forbidden", _ruled_words(result.ruled))]),
        *([] if result.counted is None else [_line("cells", _cells_words(result.cells or 0, *result.counted))]),
        "how to read it",
        *(textwrap.fill(text, WIDTH, initial_indent="  - ", subsequent_indent="    ") for text in result.semantics()),
    ]
    return "\n".join(lines)


def _ruled_words(ruled: Ruled) -> str:
    """How much the rules forbid; their texts are in the space."""
    rules = "a rule" if len(ruled.rules) == 1 else f"{len(ruled.rules)} rules"
    low, high = ruled.forbidden - ruled.error, ruled.forbidden + ruled.error
    return f"{number_text(max(low, Fraction(0)), high)} of the space by {rules}; all shares are of the rest"


def _cells_words(cells: int, least: int, most: int) -> str:
    found = f"{least:,}" if least == most else f"between {least:,} and {most:,}"
    return f"{found} of {cells:,} are counterexamples"


def _measure_lines(result: Result) -> list[str]:
    if result.undefined or result.bounds is None:
        return [_line("measure", f"{measure_text(result)}, so there is no share to give")]
    share = f"{share_text(result)} of the confident inputs are {result.property.treated}"
    lines = [_line("measure", noted_measure(result)), _line("", share)]
    if result.value is None and result.converged:
        few = short_up(result.confident.upper)
        lines.append(_line("", f"at most {few} of all inputs are confident: too few for floating point to tell more"))
    return lines


def _statistical_lines(result: Result) -> list[str]:
    found = result.statistical
    if found is None:
        return []
    drawn = f"{found.points:,} points drawn from what is undecided"
    if found.unknown:
        drawn += f", {found.unknown:,} of them given up and counted against both ends"
    refused = result.details.get("exact_engine")
    if refused is not None:
        drawn = f"{found.points:,} points drawn from the whole space; no certain bounds, because {refused}"
    return [
        _line("statistical", statistical_text(result, LONG)),
        _line("", drawn),
    ]


def measure_text(result: Result, style: Style = LONG) -> str:
    """The measure and what it is (exact, or certain bounds); in words if there is none.

    Examples
    --------
    >>> from boxqte import Fairness, quantify
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> measure_text(quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive"), SHORT)
    '0.697030 (exact)'
    """
    ends = result.decided.measure()
    if result.undefined or ends is None:
        return f"undefined: no input is confident at kappa {plain(result.property.kappa)}"
    return number_text(*ends, style)


def share_text(result: Result) -> str:
    """The measure as a percentage within a sentence that says what it is."""
    ends = result.decided.measure()
    return "" if ends is None else number_text(*ends, SENTENCE)


def statistical_text(result: Result, style: Style = SHORT) -> str:
    """The statistical interval, marked as such; empty if no points were drawn."""
    found = result.statistical
    return "" if found is None else number_text(found.lower, found.upper, style, confidence=found.confidence)


def best_text(result: Result | None, style: Style = SHORT) -> str:
    """The measure where it is known, else the statistical interval where there is one; empty if nothing was asked."""
    if result is None:
        return ""
    known = result.statistical is None or result.value is not None or result.undefined
    return measure_text(result, style) if known else statistical_text(result, style)


def rows_text(found: Empirical | None, style: Style = SHORT) -> str:
    """The measure of rows, and the interval for the people behind them; empty if nothing was asked."""
    if found is None:
        return ""
    if found.measure is None or found.lower is None or found.upper is None:
        return "undefined"
    interval = number_text(found.lower, found.upper, style, confidence=found.confidence)
    if found.drawn is not None:  # the rows that were not decided may be otherwise
        return interval
    fair = Fraction(found.confident - found.unfair, found.confident)
    return f"{number_text(fair, fair, style)}; {interval}"


def noted_measure(result: Result, style: Style = LONG) -> str:
    """The measure, and in a few words what it does not say.

    Examples
    --------
    >>> from boxqte import Robustness, quantify
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> noted_measure(quantify(loan_ensemble(), loan_space(), Robustness(0)), SHORT)
    '1 (exact); epsilon moves no attribute'
    """
    caveats = () if result.undefined else result.caveats  # an undefined measure says why
    return "; ".join([measure_text(result, style), *caveats])


def numbered_remarks(results: Iterable[Result]) -> dict[str, int]:
    """Every remark once, with the number under which a table refers to it."""
    remarks = dict.fromkeys(remark for result in results for remark in result.remarks)
    return {remark: number for number, remark in enumerate(remarks, 1)}


def answer_words(result: Result) -> str:
    """The measure, the statistical interval and the remarks on one line: for gates and build servers."""
    parts = [measure_text(result), statistical_text(result, LONG), *result.remarks]
    return "; ".join(part for part in parts if part)


def progress_text(progress: Progress) -> str:
    """One line on how far a run is."""
    if not progress.nodes and not progress.decided:
        return f"{progress.seconds:8.1f} s  starting"
    return (
        f"{progress.seconds:8.1f} s  {progress.what} {bounds_words(progress)}, decided {100 * progress.decided:.2f} %, "
        f"{progress.nodes:,} {'nodes' if progress.statistical is None else 'points'}"
        + (f", {progress.open_boxes:,} open" if progress.statistical is None else "")
    )


def bounds_words(progress: Progress) -> str:
    """The bounds of a run so far; where points are drawn, also the interval that they give."""
    certain = number_text(progress.lower, progress.upper, PROGRESS)
    if progress.statistical is None:
        return certain
    lower, upper, confidence = progress.statistical
    return f"{certain}, {number_text(lower, upper, PROGRESS, confidence=confidence)}"


def between(bounds: Bounds) -> str:
    """Bounds as text; one number where they are that close."""
    return number_text(bounds.lower, bounds.upper)


def _at_most(mass: float | None) -> str:
    if mass is None:
        return "not computed by this engine"
    return "0" if mass == 0 else f"at most {short_up(mass)}"


def _line(label: str, text: str) -> str:
    return f"{label:<{LABEL}} {text}".rstrip()


def space_text(space: Space) -> str:
    """The attributes as a table, then what is known of the whole space."""
    rows: list[Sequence[str]] = [("attribute", "kind", "domain", "mass", "model columns")]
    for attribute in space:
        columns = "" if attribute.columns == (attribute.name,) else ", ".join(attribute.columns)
        rows.append((attribute.name, attribute.kind, describe_domain(attribute), _mass_words(attribute), columns))
    count = space.count()
    lines = [
        table_text(rows),
        "",
        _line("attributes", f"{len(space)}, feeding {len(space.columns)} model columns"),
        _line(
            "inputs",
            "infinitely many" if count is None else f"{count:,}{' that no rule forbids' if space.rules else ''}",
        ),
    ]
    if space.label is not None:
        lines.append(_line("label", space.label))
    if space.components:
        words = f"a mixture of {len(space.components)} products; the masses above are each attribute's own in all of it"
        lines.append(_line("mass", words))
    for number, rule in enumerate(space.rules):
        lines.append(_line("" if number else "rules", rule.text))
    if space.rules:
        lines.append(_line("forbidden", f"{number_text(1 - space.allowed, 1 - space.allowed)} of the space"))
    if space.mass is not None:
        lines.append(_line("mass", "every cell that a model's tests cut it into counts the same"))
    if space.sensitive:
        lines.append(_line("marked as sensitive", ", ".join(space.sensitive)))
    return "\n".join([*lines, _line("fingerprint", space.fingerprint())])


def _mass_words(attribute: Attribute) -> str:
    words = "uniform"
    if attribute.histogram is not None:
        words = f"histogram, {len(attribute.histogram.weights)} bins"
    elif attribute.distribution is not None:
        words = attribute.distribution.words()
    elif attribute.weights is not None:
        words = "one weight a value"
    return words if attribute.missing is None else f"{words}, missing {plain(attribute.missing)}"


def model_text(imported: ImportedModel) -> str:
    """What the model is, as it was read."""
    model = imported.ensemble
    summary = model_json(imported)
    trees = of_trees(model.n_trees, imported.trees_in_file, imported.trees_because)
    lines = [
        _line("model", imported.source),
        _line("library", model.library),
        _line("trees", f"{trees} with {model.n_leaves:,} leaves, depth {model.depth()}"),
        _line("classes", ", ".join(map(str, model.classes)) or f"none: predicts a number ({imported.objective})"),
        _line("link", LINK_WORDS[model.link]),
        _line("base", ", ".join(_number(b) for b in model.base)),
        *([_line("scale", _number(model.scale))] if model.scale != 1 else []),
        *([_line("tie", _tie_words(model))] if model.predicts_classes and model.decision is None else []),
        *([_line("decision", model.decision.text())] if model.decision is not None else []),
        *(_line("declared", f"the score is {way} in {column}") for column, way in imported.monotone.items()),
        _line("sums", f"the library adds in {model.sum_dtype}; here they are exact"),
        *(_line("tests", f"{n:,} ask whether {TEST_WORDS[Test[kind]]}") for kind, n in summary["tests"].items()),
        *(_line("missing", f"{n:,} tests: {MISSING_WORDS[Missing[kind]]}") for kind, n in summary["missing"].items()),
        _line("fingerprint", model.fingerprint()),
        "",
    ]
    rows: list[Sequence[str]] = [("column", "tests", "categories")]
    for feature in summary["features"][:MAX_LISTED]:
        values = feature.get("categories")
        if "categories_by_hash" in feature:
            values = [f"{feature['categories_by_hash']} known by their hashes"]
        shown = "" if values is None else textwrap.shorten(", ".join(map(str, values)), 60, placeholder=", ...")
        rows.append((feature["name"], str(feature["tests"]), shown))
    lines.append(table_text(rows))
    if model.n_features > MAX_LISTED:
        lines.append(f"... and {model.n_features - MAX_LISTED} more columns (all of them with --json)")
    return "\n".join(lines)


def model_json(imported: ImportedModel) -> dict[str, Any]:
    """What the model is, as a JSON object (the format of `boxqte model show --json`)."""
    model = imported.ensemble
    inner = model.test != Test.LEAF
    per_feature = Counter(model.feature[inner].tolist())
    features = []
    for i, name in enumerate(model.feature_names):
        entry: dict[str, Any] = {"name": name, "tests": per_feature[i]}
        if isinstance(model.categories.get(i), HashedCategories):
            entry["categories_by_hash"] = len(model.categories[i])
        elif i in model.categories:
            entry["categories"] = [v if isinstance(v, (str, int, float)) else str(v) for v in model.categories[i]]
        features.append(entry)
    return {
        "source": imported.source,
        "library": model.library,
        "trees": model.n_trees,
        "trees_in_file": imported.trees_in_file or model.n_trees,
        "leaves": model.n_leaves,
        "nodes": model.n_nodes,
        "depth": model.depth(),
        "objective": imported.objective,
        "classes": [c if isinstance(c, (str, int, float)) else str(c) for c in model.classes],
        "link": model.link,
        "base": [str(b) for b in model.base],
        "scale": str(model.scale),
        "tie": model.tie,
        "decision": None if model.decision is None else model.decision.to_json(),
        "monotone": dict(imported.monotone),
        "sum_dtype": model.sum_dtype,
        "tests": _counted(Test, model.test[inner].tolist()),
        "missing": _counted(Missing, model.missing[inner].tolist()),
        "features": features,
        "fingerprint": model.fingerprint(),
    }


def _counted(kinds: Any, numbers: Iterable[int]) -> dict[str, int]:
    return {kinds(number).name: n for number, n in sorted(Counter(numbers).items())}


def _tie_words(model: TreeEnsemble) -> str:
    if not model.is_binary:
        return "the first of the largest outputs"
    return f"F = 0 is class {model.classes[1 if model.tie == 'positive' else 0]}"


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else repr(float(value))


def engines_text() -> str:
    """Every engine, with the options of its dataclass."""
    lines = []
    for name in ENGINES:
        cls = engine_class(name)
        about = " ".join((cls.__doc__ or "").partition("\n\n")[0].split())
        lines.append(f"{name}{' (default)' if name == DEFAULT_ENGINE else ''}: {about}")
        for option in engine_options(name):
            head = f"  --option {option.name}={option.default} ({option.describe_type()})"
            lines += [head, *([textwrap.fill(option.help, WIDTH, initial_indent="      ", subsequent_indent="      ")]
                              if option.help else [])]  # fmt: skip
    return "\n".join(lines)


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Rows as columns of text; the first row is the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows)


def sheet_text(head: Named, table: Sequence[Sequence[str]], tail: Named) -> str:
    """What was asked, a table, and what it means; what is named stands in lines of their own."""
    above, below = ([f"{name:<{SHEET_LABEL}} {what}" for name, what in part] for part in (head, tail))
    return "\n".join([*above, "", textwrap.indent(table_text(table), "  "), "", *below])


def check_text(check: Check) -> str:
    """The verdict on a requirement in one sentence."""
    words = f"{check.verdict}: required {required_words(check.requirement)}"
    if check.result is not None or check.rates is not None:
        words += f", the {'measure' if check.rates is None else 'ratio'} is {found_words(check)}"
    return f"{words}; {check.why}" if check.why else words


def required_words(requirement: Requirement) -> str:
    """What is required, in a few words."""
    kind = "a ratio of " if isinstance(requirement, RatioRequirement) else ""
    return f"{kind}at least {plain(requirement.at_least)}"


def found_words(check: Check) -> str:
    """What was found about a requirement: the measure, or the ratio of group rates."""
    if check.rates is not None:
        return "; ".join([ratio_text(check.rates), *check.rates.remarks])
    return "not asked" if check.result is None else answer_words(check.result)


def ratio_text(rates: GroupRates, style: Style = LONG) -> str:
    """The smallest of all groups' rates by the largest."""
    if rates.ratio is None:
        return "unknown: no group surely has a rate above 0"
    return number_text(rates.ratio.lower, rates.ratio.upper, style)


def gate_text(report: GateReport) -> str:
    """One line a requirement."""
    lines = [f"{check.requirement.name}: {check_text(check)}" for check in report.checks]
    return "\n".join([*lines, *([] if report.decision is None else [f"decision: {report.decision.text()}"])])


def audit_table(audit: Audit) -> list[list[str]]:
    """The head, then a row a question; columns that nothing has are left out."""
    drawn = any(r.statistical is not None for r in audit.results)
    people, rows = audit.population is not None, audit.data is not None
    shown = [True, True, drawn, people, rows, True, True, audit.gate is not None]
    measure = "over the space" if people or rows else "measure"
    head = ["question", measure, "statistical", "over the population", "in the rows", "status", "seconds", "verdict"]
    return [[cell for cell, wanted in zip(row, shown) if wanted] for row in [head, *audit_answers(audit)]]


def audit_answers(audit: Audit) -> list[list[str]]:
    """A row a question: its name, the measure with what it does not say, interval, other worlds, status, seconds, verdicts."""
    remarks = numbered_remarks(audit.results)
    rows = []
    for question in audit.questions:
        r = question.result
        row = [question.name, "", ""]
        if r is not None:
            marks = "".join(f" [{remarks[remark]}]" for remark in r.remarks)
            row = [question.name, noted_measure(r, SHORT) + marks, statistical_text(r)]
        row += [best_text(question.population), rows_text(question.rows), question.status]
        row.append("" if r is None else f"{r.seconds:.1f}")
        rows.append([*row, ", ".join(str(c.verdict) for c in audit.checks_of(question))])
    return rows


def audit_text(audit: Audit) -> str:
    """All questions as a table, and the remarks below it."""
    remarks = numbered_remarks(audit.results)
    rule = [] if audit.model.decision is None else [f"decision: {audit.model.decision.text()}"]
    said = [*(f"[{n}] {remark}" for remark, n in remarks.items()), *audit.notes]
    answers = [table_text(audit_table(audit)), *rule, *world_lines(audit), *said]
    if audit.rates:
        answers += ["", table_text(audit_rates(audit))]
    return "\n".join(answers)


def world_lines(audit: Audit) -> list[str]:
    """Which question each world answers, where there are several."""
    worlds = audit.worlds
    return [f"{world}: {sentence}" for world, sentence in worlds.items()] if len(worlds) > 1 else []


def audit_rates(audit: Audit) -> list[tuple[str, ...]]:
    """The head, then a row an attribute: how far its groups' rates of class 1 are apart."""
    rows: list[tuple[str, ...]] = [("group rates by", "lowest", "highest", "difference", "ratio", "status", "seconds")]
    for rates in audit.rates:
        ends = [_group_rate(group.name, group.rate) for group in rates.ordered]
        gap = number_text(rates.difference.lower, rates.difference.upper, CELL)
        seconds = f"{rates.seconds:.1f}"
        row = (", ".join(rates.sensitive), ends[0], ends[-1], gap, ratio_text(rates, SHORT), str(rates.status), seconds)
        rows.append(row)
        said = rates.statistical
        if said is not None:  # what random inputs say, below what is certain
            drawn = [_group_rate(g.name, g.statistical) for g in rates.ordered if g.statistical is not None]
            gap = number_text(said.difference.lower, said.difference.upper, CELL)
            ratio = (
                ""
                if said.ratio is None
                else number_text(said.ratio.lower, said.ratio.upper, SHORT, confidence=said.confidence)
            )
            rows.append(("  statistical", drawn[0], drawn[-1], gap, ratio, "", ""))
    return rows


def _group_rate(name: str, rate: Bounds) -> str:
    return f"{name}: {number_text(rate.lower, rate.upper, CELL)}"


def empirical_text(found: Empirical, prop: Property) -> str:
    """The empirical measure for a terminal."""
    lines = [
        f"question            {prop}",
        f"rows                {found.rows:,}, of which {found.confident:,} are confident",
    ]
    if found.decision:
        lines.insert(1, f"decision            {found.decision}")
    lines += [_line("remark" if not i else "", remark) for i, remark in enumerate(found.remarks)]
    if found.outside:
        ruled = f" ({found.forbidden:,} of them a rule forbids)" if found.forbidden else ""
        lines.append(f"                    {found.outside:,} rows lie outside the space{ruled} and count for nothing")
    if found.measure is None or found.lower is None or found.upper is None:
        return "\n".join([*lines, "measure             undefined: no row is confident"])
    lines.append(f"counterexamples     {found.unfair:,}")
    lines.append(f"measure             {found.measure:.6f} of the confident rows are {prop.treated}")
    lines.append(
        f"population          between {math.floor(found.lower * 1e6) / 1e6:.6f} and {math.ceil(found.upper * 1e6) / 1e6:.6f}"
        f" with confidence {found.confidence}, if the rows are independent draws from it"
    )
    return "\n".join(lines)
