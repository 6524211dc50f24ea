"""`boxqte test`: search for individual discriminatory inputs of any model, tree ensemble or not."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxqte.cli.arguments import (
    add_reading,
    add_rules,
    check_output,
    converter,
    given_model,
    load_space,
    raise_first,
    read_count,
    write_json,
    write_text,
)
from boxqte.errors import ModelError

if TYPE_CHECKING:
    from boxqte.testers.findings import Findings
    from boxqte.testers.session import Progress

OK, INTERRUPTED = 0, 130
METHODS = ("surrogate", "aft", "expga", "sg", "themis", "vbt")
TERMINAL_SECONDS, FILE_SECONDS = 0.2, 3.0


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "test",
        help="search for unfairly treated inputs of any model",
        description="Search for individual discriminatory inputs (IDIs): inputs whose class changes when nothing but the "
        "sensitive attribute does. The model is asked, never read, so it may be anything.",
    )
    parser.add_argument("model", metavar="MODEL|MODULE:FUNCTION",
                        help="a model file, or a function (or object with predict) in a Python module")  # fmt: skip
    parser.add_argument("--space", metavar="SPACE.json", required=True, help="the input space (boxqte space infer)")
    add_rules(parser)
    parser.add_argument("--sensitive", metavar="A", required=True, help="the sensitive attribute")
    parser.add_argument("--method", choices=METHODS, default="surrogate", help="the tester (default surrogate)")
    number, whole = converter(float, "a number"), converter(read_count, "a whole number")
    budget = parser.add_argument_group("budget (default: 10 seconds)")
    budget.add_argument("--seconds", metavar="S", type=number, help="stop after so many seconds")
    budget.add_argument("--tests", metavar="N", type=whole, help="stop after so many tests; repeats for the same seed")
    how = parser.add_argument_group("how to work")
    how.add_argument("--seed", metavar="N", type=whole, help="the seed of the random numbers (default: a new one)")
    how.add_argument("--one-at-a-time", action="store_true", help="ask about one or two inputs a call, as published")
    how.add_argument("--variant", choices=("fixed", "faithful"), default="fixed",
                     help="faithful keeps the errors of the published code")  # fmt: skip
    how.add_argument("--option", metavar="NAME=VALUE", action="append", default=[], help="an option of the tester")
    how.add_argument("--data", metavar="DATA.csv", help="rows like the training data, for sg and expga")
    how.add_argument("--input", choices=("matrix", "frame"), default="matrix",
                     help="what a function is called with: model columns as numbers, or a table of values")  # fmt: skip
    add_reading(how)
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", metavar="IDIS.csv", help="write the inputs and their partners' sensitive values")
    out.add_argument("--json", metavar="FILE", help="write all figures as JSON; - is standard output")
    out.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Search, print, write."""
    check_output(arguments.output, "--output")
    check_output(arguments.json, "--json")
    from boxqte.engines.options import options_of, read_settings
    from boxqte.space.tables import read_table
    from boxqte.testers import find_idis, named_tester

    method = arguments.method
    options = read_settings(f"tester '{method}'", options_of(named_tester(method).Options), arguments.option)
    seconds = 10.0 if arguments.seconds is None and arguments.tests is None else arguments.seconds
    space = load_space(arguments)
    display = _Display(arguments.quiet)
    try:
        found = find_idis(
            _model(arguments.model) if arguments.trees is None else given_model(arguments),
            space,
            arguments.sensitive,
            method=method,
            seconds=seconds,
            tests=arguments.tests,
            random_state=arguments.seed,
            batch=not arguments.one_at_a_time,
            variant=arguments.variant,
            options=options,
            input=arguments.input,
            data=None if arguments.data is None else read_table(arguments.data),
            progress=display,
            allow_pickle=arguments.allow_pickle,
            threshold=arguments.decision_threshold,
        )
    finally:
        display.end()
    if arguments.json != "-":
        print(findings_text(found))
    table = None if arguments.output is None else found.pairs.to_csv(index=False)
    raise_first(write_text(arguments.output, table or ""), write_json(arguments.json, found.to_json()))
    return INTERRUPTED if found.status == "interrupted" else OK


def findings_text(found: Findings) -> str:
    """The findings for a terminal."""

    def number(value: float | None, unit: str = "") -> str:
        return "none" if value is None else f"{value:.4g}{unit}"

    rate = "no test" if found.success_rate is None else f"{100 * found.success_rate:.4g} % of {found.tests:,} tests"
    how = "batches" if found.batch else "one at a time"
    rows = [
        ("IDIs", f"{len(found):,} distinct, each checked again ({found.raw:,} flips in all)"),
        ("success rate", rate),
        ("tester", f"{found.method}, {found.variant}, {how}; sensitive: {found.sensitive}"),
        ("status", f"{found.status} after {found.seconds:.2f} s"),
        ("time an IDI", number(found.seconds_per_idi, " s")),
        ("model", f"{found.model}: {found.calls:,} calls, {found.rows:,} rows"),
        ("diversity", f"{number(found.diversity)} attributes differ between two of them, on average"),
    ]
    if found.rejected:
        rows.append(("rejected", f"{found.rejected:,} candidates failed the check"))
    rows += [(name.replace("_", " "), str(value)) for name, value in found.details.items()]
    return "\n".join(f"{label:<20} {text}" for label, text in rows)


class _Display:
    """One line that is rewritten on a terminal; a line every few seconds elsewhere."""

    def __init__(self, quiet: bool):
        self._terminal = sys.stderr.isatty()
        self._quiet = quiet
        self._next = TERMINAL_SECONDS if self._terminal else FILE_SECONDS
        self._shown = False

    def __call__(self, progress: Progress) -> None:
        if self._quiet or progress.seconds < self._next:
            return
        self._next = progress.seconds + (TERMINAL_SECONDS if self._terminal else FILE_SECONDS)
        share = f" ({100 * progress.idis / progress.tests:.2f} %)" if progress.tests else ""
        line = (
            f"{progress.seconds:8.1f} s  {progress.tests:,} tests, {progress.idis:,} IDIs{share}, "
            f"{progress.rate:,.0f} a second"
        )
        print(
            f"\r{line:<79}" if self._terminal else line, end="" if self._terminal else "\n", file=sys.stderr, flush=True
        )
        self._shown = True

    def end(self) -> None:
        if self._shown and self._terminal:
            print(f"\r{'':<79}\r", end="", file=sys.stderr, flush=True)


def _model(text: str) -> Any:
    """A model file's path, or what MODULE:FUNCTION names."""
    module, colon, name = text.partition(":")
    if Path(text).exists() or not colon:
        return text
    import importlib

    if not name or not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
        raise ModelError(f"{text}: no such file, and not of the form module:function")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # whatever the user's module does wrong
        raise ModelError(f"{text}: the module cannot be imported: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(os.getcwd())
    for part in name.split("."):
        if not hasattr(found, part):
            raise ModelError(f"{text}: '{module}' has no '{part}'")
        found = getattr(found, part)
    return found
