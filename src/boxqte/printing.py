"""Results, spaces, models and engines as plain text for a terminal, and the model's summary as JSON.

Digits are never better than the answer: bounds are rounded outward, and a measure below 1 is never shown as 1.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any

from boxqte.engines import DEFAULT_ENGINE, ENGINES, Progress, engine_class
from boxqte.ensemble import Missing, Test, TreeEnsemble
from boxqte.exact import plain
from boxqte.importers import ImportedModel
from boxqte.options import engine_options
from boxqte.result import Bounds, Quantification, of_trees
from boxqte.space import Attribute, Space

WIDTH = 110
LABEL = 20
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
    "softmax": "p = softmax(F), F = scale * (base + sum of the leaf values), one F a class",
}


def answer_text(result: Quantification) -> str:
    """The answer, what it promises, and how it is to be read."""
    model = result.model
    lines = [
        _line("question", str(result.property)),
        *_measure_lines(result),
        *_statistical_lines(result),
        _line("guarantee", result.guarantee()),
        _line("status", f"{result.status}"),
        _line("engine", f"{result.engine}, {result.seconds:.2f} s"),
        _line("confident mass", between(result.confident)),
        _line("counterexample mass", between(result.counterexample)),
        _line("rounding_ambiguous", _at_most(result.rounding_ambiguous)),
        _line("input_rounding", _at_most(result.input_rounding)),
        _line("model", f"{model.source}: {model.library}, {model.trees_text}, {model.leaves} leaves"),
        _line("inputs", "infinitely many" if result.count is None else f"{result.count:,}"),
        "how to read it",
        *(textwrap.fill(text, WIDTH, initial_indent="  - ", subsequent_indent="    ") for text in result.semantics()),
    ]
    return "\n".join(lines)


def _measure_lines(result: Quantification) -> list[str]:
    bounds = result.bounds
    if result.undefined or bounds is None:
        return [_line("measure", f"{measure_text(result)}, so there is no share to give")]
    if result.value is None:
        share = f"at least {percent(bounds.lower, ROUND_FLOOR)} and at most {percent(bounds.upper, ROUND_CEILING)}"
    else:
        share = percent(result.value)
    treated = "treated fairly" if result.property.sensitive else "robust"
    lines = [_line("measure", measure_text(result)), _line("", f"{share} of the confident inputs are {treated}")]
    if result.value is None and result.converged:
        few = _short_up(result.confident.upper)
        lines.append(_line("", f"at most {few} of all inputs are confident: too few for floating point to tell more"))
    return lines


def _statistical_lines(result: Quantification) -> list[str]:
    found = result.statistical
    if found is None:
        return []
    lower, upper = rounded(found.lower, ROUND_FLOOR), rounded(found.upper, ROUND_CEILING)
    drawn = f"{found.points:,} points drawn from what is undecided"
    if found.unknown:
        drawn += f", {found.unknown:,} of them given up and counted against both ends"
    refused = result.details.get("exact_engine")
    if refused is not None:
        drawn = f"{found.points:,} points drawn from the whole space; no certain bounds, because {refused}"
    return [
        _line("statistical", f"between {lower} and {upper}, with confidence {found.confidence}"),
        _line("", drawn),
    ]


def measure_text(result: Quantification) -> str:
    """The measure to at most 12 decimals and how far it can be trusted; in words if there is none."""
    bounds = result.bounds
    if result.undefined or bounds is None:
        return f"undefined: no input is confident at kappa {plain(result.property.kappa)}"
    if result.value is None:
        return f"between {rounded(bounds.lower, ROUND_FLOOR)} and {rounded(bounds.upper, ROUND_CEILING)}"
    if result.exact is None:
        return f"{agreed(bounds)} (error at most {_short_up(bounds.gap)})"
    shown = rounded(result.exact)
    if result.exact != 1 and Decimal(shown) == 1:
        return f"1 - {float(1 - result.exact):.6g} (exact)"
    if result.exact != 0 and Decimal(shown) == 0:
        return f"{float(result.exact):.6g} (exact)"
    fraction = str(result.exact)
    return f"{shown} (exactly {fraction})" if "/" in fraction and len(fraction) <= 40 else f"{shown} (exact)"


def progress_text(progress: Progress) -> str:
    """One line on how far a run is."""
    if not progress.nodes and not progress.decided:
        return f"{progress.seconds:8.1f} s  starting (the first run on a machine compiles for some minutes)"
    lower, upper = rounded(progress.lower, ROUND_FLOOR, 6), rounded(progress.upper, ROUND_CEILING, 6)
    if progress.statistical is not None:
        drawn = rounded(progress.statistical[0], ROUND_FLOOR, 6), rounded(progress.statistical[1], ROUND_CEILING, 6)
        return f"{progress.seconds:8.1f} s  statistical: between {drawn[0]} and {drawn[1]}, {progress.nodes:,} points"
    return (
        f"{progress.seconds:8.1f} s  measure between {lower} and {upper}, decided {100 * progress.decided:.2f} %, "
        f"{progress.nodes:,} nodes, {progress.open_boxes:,} open"
    )


def rounded(value: float | Fraction, rounding: str = ROUND_HALF_EVEN, places: int = 12) -> str:
    """A number with so many decimals, rounded as asked; whole numbers without any.

    Examples
    --------
    >>> rounded(2 / 3, ROUND_FLOOR), rounded(Fraction(2, 3), ROUND_CEILING), rounded(1.0)
    ('0.666666666666', '0.666666666667', '1')
    """
    exact = Fraction(value)
    if exact.denominator == 1:
        return str(exact.numerator)
    context = Context(prec=60, rounding=rounding)
    decimal = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"{decimal.quantize(Decimal(1).scaleb(-places), rounding=rounding):f}"


def between(bounds: Bounds) -> str:
    """Bounds as one number where they are that close."""
    if bounds.gap < 1e-11:
        return agreed(bounds)
    return f"between {rounded(bounds.lower, ROUND_FLOOR)} and {rounded(bounds.upper, ROUND_CEILING)}"


def agreed(bounds: Bounds) -> str:
    """The decimals, at most 12, that are the same whichever number between the bounds is meant.

    Examples
    --------
    >>> agreed(Bounds(0.123456789, 0.123456791)), agreed(Bounds(0.25, 0.25)), agreed(Bounds(1.0, 1.0))
    ('0.12345679', '0.250000000000', '1')
    """
    for places in range(12, 5, -1):
        lower, upper = (rounded(end, places=places) for end in (bounds.lower, bounds.upper))
        if Decimal(lower) == Decimal(upper):
            return max(lower, upper, key=len)
    return rounded((Fraction(bounds.lower) + Fraction(bounds.upper)) / 2)


def percent(share: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """A share as a percentage that is 100 or 0 only if the share is 1 or 0.

    Examples
    --------
    >>> percent(0.25), percent(1.0), percent(1 - 1e-9), percent(1e-9)
    ('25 %', '100 %', 'more than 99.9999 %', 'less than 0.0001 %')
    """
    shown = rounded(100 * Fraction(share), rounding, 4)
    if rounding == ROUND_HALF_EVEN and shown in ("100.0000", "0.0000"):
        return "more than 99.9999 %" if shown == "100.0000" else "less than 0.0001 %"
    return f"{shown} %"


def _at_most(mass: float | None) -> str:
    if mass is None:
        return "not computed by this engine"
    return "0" if mass == 0 else f"at most {_short_up(mass)}"


def _short_up(value: float) -> str:
    """Three significant digits, rounded up."""
    return f"{Context(prec=3, rounding=ROUND_CEILING).create_decimal(Decimal(value)):g}"


def _line(label: str, text: str) -> str:
    return f"{label:<{LABEL}} {text}".rstrip()


def space_text(space: Space) -> str:
    """The attributes as a table, then what is known of the whole space."""
    from boxqte.inference import describe_domain  # needs pandas, which takes a while to import

    rows: list[Sequence[str]] = [("attribute", "kind", "domain", "mass", "model columns")]
    for attribute in space:
        columns = "" if attribute.columns == (attribute.name,) else ", ".join(attribute.columns)
        rows.append((attribute.name, attribute.kind, describe_domain(attribute), _mass_words(attribute), columns))
    count = space.count()
    lines = [
        table_text(rows),
        "",
        _line("attributes", f"{len(space)}, feeding {len(space.columns)} model columns"),
        _line("inputs", "infinitely many" if count is None else f"{count:,}"),
    ]
    if space.label is not None:
        lines.append(_line("label", space.label))
    if space.sensitive:
        lines.append(_line("marked as sensitive", ", ".join(space.sensitive)))
    return "\n".join([*lines, _line("fingerprint", space.fingerprint())])


def _mass_words(attribute: Attribute) -> str:
    words = "uniform"
    if attribute.histogram is not None:
        words = f"histogram, {len(attribute.histogram.weights)} bins"
    elif attribute.weights is not None:
        words = "one weight a value"
    return words if attribute.missing is None else f"{words}, missing {plain(attribute.missing)}"


def model_text(imported: ImportedModel) -> str:
    """What the model is, as it was read."""
    model = imported.ensemble
    summary = model_json(imported)
    lines = [
        _line("model", imported.source),
        _line("library", model.library),
        _line(
            "trees",
            f"{of_trees(model.n_trees, imported.trees_in_file)} with {model.n_leaves:,} leaves, depth {model.depth()}",
        ),
        _line("classes", ", ".join(map(str, model.classes))),
        _line("link", LINK_WORDS[model.link]),
        _line("base", ", ".join(_number(b) for b in model.base)),
        *([_line("scale", _number(model.scale))] if model.scale != 1 else []),
        _line("tie", _tie_words(model)),
        _line("sums", f"the library adds in {model.sum_dtype}; here they are exact"),
        *(_line("tests", f"{n:,} ask whether {TEST_WORDS[Test[kind]]}") for kind, n in summary["tests"].items()),
        *(_line("missing", f"{n:,} tests: {MISSING_WORDS[Missing[kind]]}") for kind, n in summary["missing"].items()),
        _line("fingerprint", model.fingerprint()),
        "",
    ]
    rows: list[Sequence[str]] = [("column", "tests", "categories")]
    for feature in summary["features"][:MAX_LISTED]:
        values = feature.get("categories")
        shown = "" if values is None else textwrap.shorten(", ".join(map(str, values)), 60, placeholder=", ...")
        rows.append((feature["name"], str(feature["tests"]), shown))
    lines.append(table_text(rows))
    if model.n_features > MAX_LISTED:
        lines.append(f"... and {model.n_features - MAX_LISTED} more columns (all of them with --json)")
    if imported.encoding is not None:
        lines += ["", "the model encodes these columns of the user's table"]
        lines += [f"  {column.name} -> {', '.join(column.columns)}" for column in imported.encoding]
    return "\n".join(lines)


def model_json(imported: ImportedModel) -> dict[str, Any]:
    """What the model is, as a JSON object (the format of `boxqte model show --json`)."""
    model = imported.ensemble
    inner = model.test != Test.LEAF
    per_feature = Counter(model.feature[inner].tolist())
    features = []
    for i, name in enumerate(model.feature_names):
        entry: dict[str, Any] = {"name": name, "tests": per_feature[i]}
        if i in model.categories:
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
        "classes": [c if isinstance(c, (str, int, float)) else str(c) for c in model.classes],
        "link": model.link,
        "base": [str(b) for b in model.base],
        "scale": str(model.scale),
        "tie": model.tie,
        "sum_dtype": model.sum_dtype,
        "tests": _counted(Test, model.test[inner].tolist()),
        "missing": _counted(Missing, model.missing[inner].tolist()),
        "features": features,
        "encoded_columns": None if imported.encoding is None else [c.name for c in imported.encoding],
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
