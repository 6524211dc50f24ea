"""What several commands share: reading names, numbers and sizes from texts, and writing files."""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from boxqte.errors import BoxQTEError
from boxqte.exact import shown

if TYPE_CHECKING:
    from boxqte.api.quantify import Quantification
    from boxqte.models.importers import ImportedModel
    from boxqte.questions.properties import Property
    from boxqte.space.space import Space

OK, INTERRUPTED = 0, 130  # exit codes
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class CommandError(BoxQTEError):
    """An argument that cannot be read, or a file that cannot be written."""


def read_names(texts: Sequence[str] | None, option: str) -> list[str]:
    """Names between commas, of all the times an option is given; a name with a comma goes in double quotes."""
    names = [part for text in texts or () for part in _parts(text)]
    for name in names:
        if not name:
            raise CommandError(f"{option}: an empty name in '{','.join(names)}'; expected names between commas")
    return names


def _parts(text: str) -> list[str]:
    parts: Iterable[list[str]] = csv.reader([text], skipinitialspace=True)
    return [part.strip() for row in parts for part in row] or [""]


def read_tolerances(texts: Sequence[str], option: str = "--epsilon") -> dict[str, str]:
    """`name=value` between commas; the value is behind the last =, since a name may have one of its own."""
    tolerances: dict[str, str] = {}
    for part in (part for text in texts for part in _parts(text)):
        name, separator, value = (piece.strip() for piece in part.rpartition("="))
        if not separator or not name or not value:
            instead = "; one number for all is --epsilon-rate" if option == "--epsilon" else ""
            raise CommandError(f"{option}: expected name=value, found '{part}'{instead}")
        if name in tolerances:
            raise CommandError(f"{option}: '{name}' is given twice")
        tolerances[name] = value
    return tolerances


def read_monotone(texts: Sequence[str]) -> dict[str, str]:
    """`name:increasing` or `name:decreasing` between commas (in settings: `name=increasing`)."""
    directions: dict[str, str] = {}
    for part in (part for text in texts for part in _parts(text)):
        found = re.fullmatch(r"(.+?)\s*[:=]\s*(increasing|decreasing)", part)
        if found is None:
            raise CommandError(f"--monotone: expected name:increasing or name:decreasing, found '{part}'")
        if found[1] in directions:
            raise CommandError(f"--monotone: '{found[1]}' is given twice")
        directions[found[1]] = found[2]
    return directions


def add_one_hot(parser: Any) -> None:
    """The option of the commands that infer a space."""
    parser.add_argument("--one-hot", metavar="NAME=A,B,...", action="append",
                        help="columns of 0 and 1 that are one attribute, such as race=race_Black,race_White (others are "
                        "recognised by themselves); none: take every column by itself")  # fmt: skip


def read_one_hot(texts: Sequence[str] | None) -> dict[str, list[str]] | Literal["auto"] | None:
    """`name=column,column` of all the times the option is given; the name is before the first =."""
    if texts is None:
        return "auto"
    if [text.lower() for text in texts] == ["none"]:
        return None
    groups: dict[str, list[str]] = {}
    for text in texts:
        name, _, columns = (piece.strip() for piece in text.partition("="))
        if not name or not columns:
            raise CommandError(f"--one-hot: expected name=column,column or none, found '{text}'")
        if name in groups:
            raise CommandError(f"--one-hot: '{name}' is given twice")
        groups[name] = read_names([columns], "--one-hot")
    return groups


def property_of(arguments: argparse.Namespace) -> Property:
    """The property that the options of `add_question` describe."""
    from boxqte.questions.reading import FIELDS, read_property

    return read_property(question_of(arguments, FIELDS), called=lambda field: f"--{field.replace('_', '-')}")


def question_of(arguments: argparse.Namespace, fields: Iterable[str]) -> dict[str, Any]:
    """The fields of a question, as they were typed; None where one was not."""
    given = {field: getattr(arguments, field) for field in fields}
    readers: dict[str, Any] = {"sensitive": lambda texts: read_names(texts, "--sensitive"), "epsilon": read_tolerances}
    readers["max_change"] = lambda texts: read_tolerances(texts, "--max-change")
    readers["monotone"] = read_monotone
    for field, read in readers.items():
        if given.get(field) is not None:
            given[field] = read(given[field])
    if given.get("epsilon") is not None:
        given["epsilon_rate"] = None  # the default of an option that this one excludes
    return given


def read_model(arguments: argparse.Namespace) -> ImportedModel:
    """The model that the options of `add_reading` describe."""
    from boxqte.models.importers import load_model

    return load_model(
        arguments.model,
        allow_pickle=arguments.allow_pickle,
        threshold=arguments.decision_threshold,
        trees=arguments.trees,
    )


def given_model(arguments: argparse.Namespace) -> Any:
    """The model to pass on, for a command that decides on a threshold later: its path, or with --trees the model itself."""
    if arguments.trees is None:
        return arguments.model
    if arguments.model is None:
        raise CommandError("--trees: give the model on the command line, too")
    from boxqte.models.importers import load_model

    return load_model(arguments.model, allow_pickle=arguments.allow_pickle, trees=arguments.trees)


def read_question(arguments: argparse.Namespace) -> tuple[ImportedModel, Space, Property]:
    """The model, the space and the property that `add_model`, `--space` and `add_question` name, and that they fit."""
    prop = property_of(arguments)
    return *read_model_and_space(arguments, prop), prop


def load_space(arguments: argparse.Namespace) -> Space:
    """The space that `--space` names, with the rules of `--rule` beside its own."""
    from boxqte.space.space import Space

    space = Space.load(arguments.space)
    return space.with_rules(arguments.rule) if arguments.rule else space


def read_model_and_space(arguments: argparse.Namespace, prop: Property | None = None) -> tuple[ImportedModel, Space]:
    """The model and the space, with the masses of `add_population` where the command has them; the property fits them."""
    people = getattr(arguments, "population", None)
    for option in ("population_where", "components"):
        if people is None and getattr(arguments, option, None) is not None:
            raise CommandError(f"--{option.replace('_', '-')}: give the table with --population")
    space = load_space(arguments)
    if prop is not None:
        prop.check(space)
    model = read_model(arguments)
    return model, space if people is None else _populated(space, model, arguments)


def _populated(space: Space, model: ImportedModel, arguments: argparse.Namespace) -> Space:
    """The space with the masses of the table, and on standard error how they were taken."""
    from boxqte.report.populations import masses_text
    from boxqte.space.populations import population
    from boxqte.space.tables import read_table

    table, where = read_table(arguments.population), arguments.population_where
    found = population(space, table, where=where, components=arguments.components or 1, model=model)
    if not arguments.quiet:
        for line in masses_text(found, arguments.population).splitlines():
            print(f"boxqte: {line}", file=sys.stderr)
    return found.space


def read_result(arguments: argparse.Namespace) -> Quantification:
    """The answer to the command's question, for a command that shows a part of it; only x that satisfy `--where` count."""
    question = read_question(arguments)
    from boxqte.api.quantify import quantify

    limits = {name: getattr(arguments, name) for name in ("time_limit", "workers", "memory_limit")}
    result = quantify(*question, **limits)
    return result if arguments.where is None else result.restrict(arguments.where)


def read_size(text: str) -> int:
    digits = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = digits[-1:] if digits[-1:] in ("K", "M", "G", "T") else ""
    return int(float(digits.removesuffix(unit)) * UNITS[unit])


def read_count(text: str) -> int:
    from boxqte.engines.options import count

    return count(text)


def converter(kind: Any, wanted: str) -> Any:
    """A converter whose error says what is wanted."""

    def convert(text: str) -> Any:
        try:
            return kind(text)
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"expected {wanted}, found {shown(text)}") from None

    return convert


def check_output(path: str | None, option: str) -> None:
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


def write_json(path: str | None, document: Any) -> CommandError | None:
    """Write the JSON file, if one is asked for; the error, so that what can be printed is printed first."""
    return None if path is None else write_text(path, json.dumps(document, indent=1) + "\n")


def write_text(path: str | None, text: str) -> CommandError | None:
    """Write the file, if one is asked for; - is standard output. The error is returned, as `write_json` does."""
    if path is None:
        return None
    if path == "-":
        sys.stdout.write(text)
        return None
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        return CommandError(f"{path}: cannot be written: {error.strerror}")
    return None


def raise_first(*errors: CommandError | None) -> None:
    """Raise the first of the errors that writing gave, if there is one."""
    for error in errors:
        if error is not None:
            raise error


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="XGBoost (JSON, UBJSON), LightGBM (text, JSON), CatBoost (JSON, "
                        "cbm), ONNX, an MLflow folder, scikit-learn (skops, or pickle with --allow-pickle); "
                        "also in gz or zip")  # fmt: skip
    add_reading(parser)


def add_model_and_space(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--space", metavar="SPACE.json", required=True, help="the input space (boxqte space infer)")
    add_rules(parser)


def add_rules(parser: Any) -> None:
    """The option of the commands that take a space; `load_space` reads it."""
    parser.add_argument("--rule", metavar="RULE", action="append",
                        help="what every input must keep, beside the space's own rules: \"not (age < 20 and school == "
                        "PhD)\"; repeat it for more")  # fmt: skip


def add_population(parser: argparse.ArgumentParser) -> None:
    """Masses that follow a table; `read_model_and_space` takes them."""
    group = parser.add_argument_group("which inputs count, and how much")
    group.add_argument("--population", metavar="DATA.csv",
                       help="the masses are the frequencies of each attribute's values in this table")  # fmt: skip
    group.add_argument("--population-where", metavar="CONDITION", help="only of the rows that satisfy the condition")
    group.add_argument("--components", metavar="auto|K",
                       help="of --population: fit a mixture of so many products, which knows what values occur together; auto: "
                       "as many as pay off (default 1: every attribute by itself)")  # fmt: skip


def add_reading(parser: Any) -> None:
    """How the model is read; `read_model` reads it so."""
    parser.add_argument("--allow-pickle", action="store_true", help="unpickle the file, which runs code in it")
    parser.add_argument("--decision-threshold", metavar="T", help="class 1 iff p >= T instead of the model's own predict "
                        "('>T': p > T); by group: sex:f=0.4,m=0.6")  # fmt: skip
    parser.add_argument("--trees", metavar="all|best|N", help="which trees count after early stopping (default: those with "
                        "which the model's own library predicts)")  # fmt: skip


def add_question(parser: argparse.ArgumentParser) -> Any:
    """The options that say what is asked."""
    asked = parser.add_argument_group("what is asked")
    asked.add_argument("--sensitive", metavar="A,B", action="append", help="sensitive attributes; several are one set")
    epsilon = asked.add_mutually_exclusive_group()
    epsilon.add_argument("--epsilon-rate", metavar="R", default="0",
                         help="tolerance as a share of each numeric attribute's range (default 0)")  # fmt: skip
    epsilon.add_argument("--epsilon", metavar="NAME=VALUE,...", action="append",
                         help="tolerance per attribute, in its own unit; 0 for those that are not named")  # fmt: skip
    asked.add_argument("--kappa", metavar="K", default="0.5",
                       help="only inputs with confidence above it count (default 0.5: all, for two classes)")  # fmt: skip
    asked.add_argument("--tie", choices=("library", "paper"), default="library",
                       help="the class at margin 0: what the library's predict says, or none")  # fmt: skip
    add_newer_questions(asked)
    return asked


def add_newer_questions(asked: Any, *, several: bool = False) -> None:
    """The options of confident partners, bounded changes, monotonicity and scores."""
    asked.add_argument("--partner-kappa", metavar="K",
                       help="x' must have a confidence above it, too (default: any x' of the other class)")  # fmt: skip
    asked.add_argument("--max-change", metavar="NAME=VALUE", action="append",
                       help="a numeric sensitive attribute changes by at most so much: age=5")  # fmt: skip
    asked.add_argument("--monotone", metavar="NAME:DIRECTION", action="append",
                       help=f"{'also' if several else 'instead'}: does the class only grow (or fall) with the "
                       f"{'attributes' if several else 'attribute'}: income:increasing")  # fmt: skip
    asked.add_argument("--on", choices=("class", "score"), help="with --monotone: of what (default class)")
    asked.add_argument("--score-at-most", metavar="D",
                       help=f"{'also' if several else 'instead of classes'}: does the score change by at most D with the "
                       "sensitive attributes")  # fmt: skip
    asked.add_argument("--scale", choices=("probability", "margin", "value"),
                       help="with --score-at-most: which score (default probability)")  # fmt: skip


def add_work(parser: argparse.ArgumentParser, *wanted: str) -> Any:
    """The options that say how to work: all of them, or those that are wanted."""
    work = parser.add_argument_group("how to work")
    number, whole = converter(float, "a number"), converter(read_count, "a whole number")
    options: dict[str, dict[str, Any]] = {
        "--engine": {"metavar": "E", "help": "see boxqte engines"},
        "--option": {"metavar": "NAME=VALUE", "action": "append", "default": [], "help": "an option of the engine"},
        "--time-limit": {"metavar": "S", "type": number, "help": "stop after so many seconds, with bounds"},
        "--gap": {"metavar": "G", "type": number, "default": 0.0, "help": "stop once upper - lower <= G (default 0)"},
        "--workers": {"metavar": "N", "type": whole, "help": "threads or processes (default: one per core)"},
        "--memory-limit": {"metavar": "4G", "type": converter(read_size, "bytes, such as 4G or 500M"),
                           "help": "the most memory (default: half of the machine)"},
        "--node-limit": {"metavar": "N", "type": whole, "help": "stop after so many nodes: repeats exactly"},
    }  # fmt: skip
    for option in wanted or options:
        work.add_argument(option, **options[option])
    return work


def add_display(parser: argparse.ArgumentParser) -> Any:
    """The output group, with the options that every command that computes has."""
    out = parser.add_argument_group("output")
    out.add_argument("--quiet", action="store_true", help="no progress and no notes")
    out.add_argument("--no-color", action="store_true", help="no colours (so does the environment's NO_COLOR)")
    return out


def add_explorer(out: Any) -> None:
    """The option of commands that write a report."""
    out.add_argument("--explorer", action="store_true",
                     help="with --html: also a part with scripts, to try inputs (two classes)")  # fmt: skip


def check_explorer(arguments: argparse.Namespace) -> None:
    """The explorer is a part of the report."""
    if arguments.explorer and arguments.html is None:
        raise CommandError("--explorer: is a part of the report; expected --html REPORT.html too")


def wants_colors(arguments: argparse.Namespace, stream: Any) -> bool:
    """Whether to colour what goes to the stream."""
    from boxqte.report.progress import is_terminal, wants_color

    return wants_color(arguments.no_color) and is_terminal(stream)
