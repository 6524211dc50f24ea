"""The command `boxqte`: arguments in, text and exit codes out. Everything it does is in the library.

Exit codes: 0 the question is answered (also with bounds that a limit left open), 2 the input is bad, 130 interrupted.
Nothing heavy is imported before a command needs it, so that `boxqte --help` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from boxqte._version import __version__
from boxqte.errors import BoxQTEError

if TYPE_CHECKING:
    from boxqte.engines import Progress
    from boxqte.properties import Property
    from boxqte.space import Space

OK, BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 0, 2, 130, 141
PROGRESS_SECONDS = 3.0
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class CommandError(BoxQTEError):
    """An argument that cannot be read, or a file that cannot be written."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name may hold characters that the terminal has not
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BoxQTEError as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        print("boxqte: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _silence(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        _silence(sys.stdout)
        return _failed(f"{error.filename or 'output'}: {error.strerror or error}")


def _failed(message: str) -> int:
    print(f"boxqte: error: {_one_line(message)}", file=sys.stderr)
    return BAD_INPUT


def _one_line(text: str) -> str:
    """Names come from files and may hold anything; an error stays on one line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _silence(stream: Any) -> None:
    """Let Python's own flush at exit write what is left to nowhere."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# --- commands ---


def _quantify(arguments: argparse.Namespace) -> int:
    _check_output(arguments.json, "--json")
    prop = _property(arguments)
    from boxqte.engines import DEFAULT_ENGINE
    from boxqte.importers import load_model
    from boxqte.options import read_options
    from boxqte.printing import answer_text
    from boxqte.quantification import quantify
    from boxqte.result import Status
    from boxqte.space import Space

    engine = arguments.engine or DEFAULT_ENGINE
    confidence = [] if arguments.confidence is None else [f"confidence={arguments.confidence}"]
    options = read_options(engine, [*arguments.option, *confidence])
    space = Space.load(arguments.space)
    prop.check(space)
    if arguments.population is not None:
        space = _population(space, arguments)
    elif arguments.population_where is not None:
        raise CommandError("--population-where: give the table with --population")
    with contextlib.ExitStack() as stack:
        client = None
        if arguments.dask is not None:
            from boxqte.engines.box.cluster import connect

            client = stack.enter_context(connect(arguments.dask))
        result = quantify(
            load_model(arguments.model, allow_pickle=arguments.allow_pickle),
            space,
            prop,
            engine=engine,
            time_limit=arguments.time_limit,
            gap=arguments.gap,
            workers=arguments.workers,
            memory_limit=arguments.memory_limit,
            node_limit=arguments.node_limit,
            options=options,
            progress=None if arguments.quiet else _ProgressLines(),
            executor=client,
        )
    written = _written(arguments.json, result.to_json())
    if arguments.json != "-":
        print(answer_text(result))
    if not arguments.quiet:
        _hint(prop, space)
    if written is not None:
        raise written
    return INTERRUPTED if result.status is Status.INTERRUPTED else OK


def _population(space: Space, arguments: argparse.Namespace) -> Space:
    """The space with the masses of the table, and on standard error how they were taken."""
    from boxqte.populations import population
    from boxqte.tables import read_table

    found = population(space, read_table(arguments.population), where=arguments.population_where)
    if not arguments.quiet:
        print(f"boxqte: masses from {found.rows:,} rows of {arguments.population}", file=sys.stderr)
        for note in found.notes:
            print(f"boxqte:   {note}", file=sys.stderr)
    return found.space


def _empirical(arguments: argparse.Namespace) -> int:
    _check_output(arguments.json, "--json")
    prop = _property(arguments)
    from boxqte.populations import empirical, empirical_text
    from boxqte.space import Space
    from boxqte.tables import read_table

    found = empirical(
        arguments.model,
        Space.load(arguments.space),
        prop,
        read_table(arguments.data),
        where=arguments.where,
        confidence=arguments.confidence,
        allow_pickle=arguments.allow_pickle,
    )
    written = _written(arguments.json, found.to_json() | {"property": prop.to_json()})
    if arguments.json != "-":
        print(empirical_text(found, prop))
    if written is not None:
        raise written
    return OK


def _property(arguments: argparse.Namespace) -> Property:
    from boxqte.properties import Fairness, Robustness

    epsilon = arguments.epsilon_rate
    if arguments.epsilon is not None:
        epsilon = _tolerances(arguments.epsilon)
    if arguments.sensitive is None:
        return Robustness(epsilon, arguments.kappa, tie=arguments.tie)
    return Fairness(_names(arguments.sensitive, "--sensitive"), epsilon, arguments.kappa, tie=arguments.tie)


def _hint(prop: Property, space: Space) -> None:
    """What the user may have meant instead."""
    if prop.sensitive:
        return
    if not any(prop.tolerances(space).values()):
        print("boxqte: note: nothing is sensitive and epsilon moves nothing, so every input is robust; give "
              "--sensitive, --epsilon-rate or --epsilon", file=sys.stderr)  # fmt: skip
    elif space.sensitive:
        names = ",".join(space.sensitive)
        print(
            f"boxqte: note: this is robustness; for fairness, --sensitive {names} (marked in the space)",
            file=sys.stderr,
        )


class _ProgressLines:
    """Plain lines on stderr, one every few seconds."""

    def __init__(self) -> None:
        self.next = PROGRESS_SECONDS

    def __call__(self, progress: Progress) -> None:
        if progress.seconds >= self.next:
            from boxqte.printing import progress_text

            print(progress_text(progress), file=sys.stderr, flush=True)
            self.next = progress.seconds + PROGRESS_SECONDS


def _infer(arguments: argparse.Namespace) -> int:
    _check_output(arguments.output, "--output")
    from boxqte.inference import infer_space
    from boxqte.tables import read_table

    model = None
    if arguments.model is not None:
        from boxqte.importers import load_model

        model = load_model(arguments.model, allow_pickle=arguments.allow_pickle)
    inference = infer_space(
        read_table(arguments.data),
        label=arguments.label,
        sensitive=_names(arguments.sensitive, "--sensitive"),
        missing=arguments.missing,
        mass=arguments.mass,
        model=model,
        categorical=_names(arguments.categorical, "--categorical"),
        integer=_names(arguments.integer, "--integer"),
        real=_names(arguments.real, "--real"),
    )
    written = _written(arguments.output, inference.space.to_json())
    if written is not None:
        raise written
    to_stdout = arguments.output == "-"
    print(inference, file=sys.stderr if to_stdout else sys.stdout)
    if not to_stdout:
        print(f"\nwritten to {arguments.output}; to change a kind, --categorical, --integer or --real NAME, or edit it")
    return OK


def _show_space(arguments: argparse.Namespace) -> int:
    from boxqte.printing import space_text
    from boxqte.space import Space

    print(space_text(Space.load(arguments.space)))
    return OK


def _show_model(arguments: argparse.Namespace) -> int:
    _check_output(arguments.json, "--json")
    from boxqte.importers import load_model
    from boxqte.printing import model_json, model_text

    imported = load_model(arguments.model, allow_pickle=arguments.allow_pickle)
    written = _written(arguments.json, model_json(imported))
    if written is not None:
        raise written
    if arguments.json != "-":
        print(model_text(imported))
    return OK


def _demo(arguments: argparse.Namespace) -> int:
    from boxqte.demo import run_demo

    run_demo(print)
    return OK


def _engines(arguments: argparse.Namespace) -> int:
    from boxqte.printing import engines_text

    print(engines_text())
    return OK


# --- arguments ---


def _names(texts: Sequence[str] | None, option: str) -> list[str]:
    """Names between commas, of all the times an option is given; a name with a comma goes in double quotes."""
    names = [part for text in texts or () for part in _parts(text)]
    for name in names:
        if not name:
            raise CommandError(f"{option}: an empty name in '{','.join(names)}'; expected names between commas")
    return names


def _parts(text: str) -> list[str]:
    parts: Iterable[list[str]] = csv.reader([text], skipinitialspace=True)
    return [part.strip() for row in parts for part in row] or [""]


def _tolerances(texts: Sequence[str]) -> dict[str, str]:
    """`name=value` between commas; the value is behind the last =, since a name may have one of its own."""
    tolerances: dict[str, str] = {}
    for part in (part for text in texts for part in _parts(text)):
        name, separator, value = (piece.strip() for piece in part.rpartition("="))
        if not separator or not name or not value:
            raise CommandError(f"--epsilon: expected name=value, found '{part}'; one number for all is --epsilon-rate")
        if name in tolerances:
            raise CommandError(f"--epsilon: '{name}' is given twice")
        tolerances[name] = value
    return tolerances


def _bytes(text: str) -> int:
    digits = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = digits[-1:] if digits[-1:] in ("K", "M", "G", "T") else ""
    return int(float(digits.removesuffix(unit)) * UNITS[unit])


def _count(text: str) -> int:
    from boxqte.options import count

    return count(text)


def _argument(kind: Any, wanted: str) -> Any:
    """A converter whose error says what is wanted."""

    def convert(text: str) -> Any:
        try:
            return kind(text)
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"expected {wanted}, found '{text}'") from None

    return convert


def _check_output(path: str | None, option: str) -> None:
    """Refuse an output file that cannot be written before the work is done, not after."""
    if path is None or path == "-":
        return
    where = f"{option} {path}"
    if not path:
        raise CommandError(f"{option}: the file name is empty")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        folder = Path(path).parent
        if not folder.is_dir():
            raise CommandError(f"{where}: there is no directory '{folder}'") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise CommandError(f"{where}: nothing can be written in '{folder}'") from None
        return
    except OSError as error:
        raise CommandError(f"{where}: {error.strerror}") from None
    if os.path.isdir(path):
        raise CommandError(f"{where}: is a directory, expected a file")
    if not os.access(path, os.W_OK):
        raise CommandError(f"{where}: cannot be written")


def _written(path: str | None, document: Any) -> CommandError | None:
    """Write the JSON file, if one is asked for; the error, so that what can be printed is printed first."""
    if path is None:
        return None
    text = json.dumps(document, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return None
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        return CommandError(f"{path}: cannot be written: {error.strerror}")
    return None


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any):
        super().__init__(**options, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        sys.exit(_failed(f"{message} (see {self.prog} --help)"))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="boxqte",
        description="How fair, or robust, is a tree ensemble: the exact share of the input space, or certain bounds.",
        epilog="Start with: boxqte demo",
    )
    parser.add_argument("--version", action="version", version=f"boxqte {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_quantify(commands)
    _add_empirical(commands)
    space = commands.add_parser("space", help="make or show an input space", description="Make or show an input space.")
    spaces = space.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_infer(spaces)
    show = spaces.add_parser("show", help="show a space", description="Show a space as a table.")
    show.add_argument("space", metavar="SPACE.json")
    show.set_defaults(run=_show_space)
    model = commands.add_parser("model", help="show a model", description="Show a model.")
    models = model.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = models.add_parser("show", help="show a model as it is read", description="Show a model as it is read.")
    _add_model(show)
    show.add_argument("--json", metavar="FILE", help="write everything as JSON; - is standard output")
    show.set_defaults(run=_show_model)
    demo = commands.add_parser("demo", help="the paper's loan example", description="The paper's loan example.")
    demo.set_defaults(run=_demo)
    engines = commands.add_parser("engines", help="the engines and their options", description="The engines.")
    engines.set_defaults(run=_engines)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="XGBoost (JSON, UBJSON), LightGBM (text), CatBoost (JSON), "
                        "scikit-learn (skops, or pickle with --allow-pickle)")  # fmt: skip
    parser.add_argument("--allow-pickle", action="store_true", help="unpickle the file, which runs code in it")


def _add_quantify(commands: Any) -> None:
    parser = commands.add_parser(
        "quantify",
        help="measure fairness or robustness",
        description="Measure fairness (with --sensitive) or robustness (without) over the whole input space.",
    )
    _add_model(parser)
    parser.add_argument("--space", metavar="SPACE.json", required=True, help="the input space (boxqte space infer)")
    parser.add_argument("--population", metavar="DATA.csv",
                        help="the masses are the frequencies of each attribute's values in this table")  # fmt: skip
    parser.add_argument("--population-where", metavar="CONDITION", help="only of the rows that satisfy the condition")
    _add_question(parser)
    work = parser.add_argument_group("how to work")
    number, whole = _argument(float, "a number"), _argument(_count, "a whole number")
    work.add_argument("--engine", metavar="E", help="see boxqte engines")
    work.add_argument("--option", metavar="NAME=VALUE", action="append", default=[], help="an option of the engine")
    work.add_argument("--time-limit", metavar="S", type=number, help="stop after so many seconds, with bounds")
    work.add_argument("--gap", metavar="G", type=number, default=0.0, help="stop once upper - lower <= G (default 0)")
    work.add_argument("--confidence", metavar="C",
                      help="of the statistical interval, engines auto and sample (default 0.999999)")  # fmt: skip
    work.add_argument("--workers", metavar="N", type=whole, help="threads or processes (default: one per core)")
    work.add_argument(
        "--dask", metavar="ADDRESS", help="work in the processes of this Dask scheduler (docs/cluster.md)"
    )
    work.add_argument("--memory-limit", metavar="4G", type=_argument(_bytes, "bytes, such as 4G or 500M"),
                      help="the most memory (default: half of the machine)")  # fmt: skip
    work.add_argument("--node-limit", metavar="N", type=whole, help="stop after so many nodes: repeats exactly")
    out = parser.add_argument_group("output")
    out.add_argument("--json", metavar="FILE", help="write the result as JSON; - is standard output")
    out.add_argument("--quiet", action="store_true", help="no progress lines and no notes")
    parser.set_defaults(run=_quantify)


def _add_empirical(commands: Any) -> None:
    parser = commands.add_parser(
        "empirical",
        help="the same question for the rows of a table",
        description="The share of a table's confident rows that are treated fairly, each row decided exactly, with an "
        "interval for the population behind them.",
    )
    _add_model(parser)
    parser.add_argument("--space", metavar="SPACE.json", required=True, help="the input space, in which x' lies")
    parser.add_argument("--data", metavar="DATA.csv", required=True, help="the rows")
    parser.add_argument("--where", metavar="CONDITION", help="only rows that satisfy it, such as \"sex == 'f'\"")
    parser.add_argument("--confidence", metavar="C", type=_argument(float, "a number"), default=0.95,
                        help="of the interval for the population behind the rows (default 0.95)")  # fmt: skip
    _add_question(parser)
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - is standard output")
    parser.set_defaults(run=_empirical)


def _add_question(parser: argparse.ArgumentParser) -> None:
    asked = parser.add_argument_group("what is asked")
    asked.add_argument("--sensitive", metavar="A,B", action="append", help="sensitive attributes; several are one set")
    epsilon = asked.add_mutually_exclusive_group()
    epsilon.add_argument("--epsilon-rate", metavar="R", default="0",
                         help="tolerance as a share of each numeric attribute's range (default 0)")  # fmt: skip
    epsilon.add_argument("--epsilon", metavar="NAME=VALUE,...", action="append",
                         help="tolerance per attribute, in its own unit; 0 for those that are not named")  # fmt: skip
    asked.add_argument("--kappa", metavar="K", default="0.5",
                       help="only inputs with confidence above it count (default 0.5: all)")  # fmt: skip
    asked.add_argument("--tie", choices=("library", "paper"), default="library",
                       help="the class at margin 0: what the library's predict says, or none")  # fmt: skip


def _add_infer(spaces: Any) -> None:
    parser = spaces.add_parser(
        "infer",
        help="infer a space from data",
        description="Infer the kinds and domains of the attributes from a table, and say why.",
    )
    parser.add_argument("data", metavar="DATA.csv", help="a CSV file with a header (or Parquet)")
    parser.add_argument("-o", "--output", metavar="SPACE.json", required=True, help="- is standard output")
    parser.add_argument("--label", metavar="COLUMN", help="the target column, which is no attribute")
    parser.add_argument("--sensitive", metavar="A,B", action="append", help="attributes to mark as sensitive")
    for kind in ("categorical", "integer", "real"):
        parser.add_argument(f"--{kind}", metavar="A,B", action="append", help=f"columns that are {kind}")
    parser.add_argument("--missing", choices=("error", "declare", "ignore"), default="error",
                        help="missing values: refuse, make them part of the domain, or leave them out")  # fmt: skip
    parser.add_argument("--mass", choices=("uniform", "data"), default="uniform",
                        help="all values of an attribute alike, or as often as in the data")  # fmt: skip
    parser.add_argument("--model", metavar="MODEL", help="use the model's columns, categories and encoder")
    parser.add_argument("--allow-pickle", action="store_true", help="unpickle the model, which runs code in it")
    parser.set_defaults(run=_infer)
