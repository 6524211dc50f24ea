"""Writes the table of kinds of models in docs/models.md from the lists that the tests run over: `make reference`.

Every row is a case of a test, which makes such a model and compares it with its library on every threshold, or compares
the words of its refusal. `python docs/make_kinds.py --check` says whether the table is up to date, which the tests ask.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "models.md"
BEGIN, END = "<!-- kinds: made by docs/make_kinds.py from the tests -->\n", "<!-- end of kinds -->\n"

Row = tuple[str, str, str]


def main() -> int:
    sys.path.insert(0, str(ROOT))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    text = before + BEGIN + table() + END + after
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") != text:
            print("the table of kinds in models.md is out of date; run `make reference`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


def table() -> str:
    """The table as Markdown."""
    rows = [*_files(), *_models_of_models(), *_decisions(), *_pipelines(), *_categories(), *_regressors()]
    read = sum(outcome == "read" for _, _, outcome in rows)
    lines = [f"{len(rows)} kinds, {read} of them read; the others are refused in one line, with these words.", ""]
    lines += ["| kind | form | outcome |", "|---|---|---|"]
    lines += [f"| {kind} | {form} | {outcome} |" for kind, form, outcome in rows]
    return "\n" + "\n".join(lines) + "\n\n"


def _files() -> Iterator[Row]:
    from tests.models.kinds_of_files import KINDS

    for kind in KINDS:
        yield kind.name, kind.form, _outcome(kind.refused)


def _models_of_models() -> Iterator[Row]:
    from tests.models.test_importer_wrappers import CASES

    for case in CASES:
        yield case.kind, "live", _outcome(case.words if case.outcome == "refused" else "")


def _decisions() -> Iterator[Row]:
    from tests.models.test_decisions import MODELS, QUICK

    for name in MODELS:
        yield f"FixedThresholdClassifier of {name}", "live", "read"
    for name, method in QUICK:
        yield f"CalibratedClassifierCV, {method}, of {name}", "live", "read"


def _pipelines() -> Iterator[Row]:
    from tests.conformance.pipelines import READ, REFUSED

    for kind in (*READ, *REFUSED):
        yield f"pipeline with {kind.name}", "live", _outcome(kind.refused)


def _categories() -> Iterator[Row]:
    from tests.models.test_catboost_categories import KINDS

    for kind in KINDS:
        yield f"CatBoost, {kind}", "live, file", "read"


def _regressors() -> Iterator[Row]:
    from tests.models.test_regressors import CASES

    for case in CASES:
        refused = case.words if case.link == "refused" else ""
        yield f"{case.kind}, a number", "live", _outcome(refused)


def _outcome(pattern: str) -> str:
    """The words of a refusal; patterns are those of the tests."""
    if not pattern:
        return "read"
    words = re.sub(r"\.\*", " ... ", pattern.partition("|")[0])
    return "refused: " + re.sub(r"\\(.)", r"\1", words).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
