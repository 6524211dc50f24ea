"""The options of an engine as a table, read from its frozen dataclass: what the command line and the docs show."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
import types
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from boxqte.basics.checks import by_name, did_you_mean
from boxqte.engines import engine_class
from boxqte.errors import EngineError
from boxqte.exact import shown


@dataclass(frozen=True)
class Option:
    """One option of an engine."""

    name: str
    type: Any
    default: Any
    help: str

    def describe_type(self) -> str:
        """The type in words, such as `int` or `fast or exact`."""
        return _described(self.type)


def engine_options(engine: str) -> tuple[Option, ...]:
    """The options of the engine of that name, in the order of its dataclass.

    Examples
    --------
    >>> [(option.name, option.describe_type()) for option in engine_options("exhaustive")]
    [('max_cells', 'int')]
    """
    return options_of(engine_class(engine).Options)


def options_of(options: type) -> tuple[Option, ...]:
    """The fields of a frozen dataclass of options, in order."""
    hints, helps = get_type_hints(options), _help_texts(options)
    return tuple(
        Option(
            f.name,
            hints[f.name],
            None if f.default is MISSING else f.default,
            f.metadata.get("help") or helps.get(f.name, ""),
        )
        for f in fields(options)
    )


def check_types(where: str, options: type, given: object) -> None:
    """Refuse options that are not by name, or not of the type that their field declares; unknown names are left alone."""
    values = by_name(given, "options")
    for option in options_of(options) if values else ():
        if option.name in values and not _fits(option.type, values[option.name]):
            wanted, found = option.describe_type(), shown(values[option.name])
            raise EngineError(f"{where}: option '{option.name}' takes {wanted}, found {found}")


def _fits(hint: Any, value: object) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(choice, value) for choice in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint in (int, float):
        wanted = (Integral,) if hint is int else (Real,)
        return isinstance(value, wanted) and not isinstance(value, bool) and value == value  # not NaN
    return not isinstance(hint, type) or isinstance(value, hint)


def read_options(engine: str, settings: Iterable[str]) -> dict[str, Any]:
    """Options from texts of the form `name=value`, each converted to the type that its field declares.

    Examples
    --------
    >>> read_options("exhaustive", ["max_cells=1000"])
    {'max_cells': 1000}
    """
    return read_settings(f"engine '{engine}'", engine_options(engine), settings)


def read_settings(where: str, options: Iterable[Option], settings: Iterable[str]) -> dict[str, Any]:
    """Options from texts of the form `name=value`; `where` is whose options they are, for error messages."""
    known = {option.name: option for option in options}
    read: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        name = name.strip()
        if not separator or not name:
            raise EngineError(f"option '{setting}': expected name=value")
        if name not in known:
            meant = did_you_mean(name, known)
            raise EngineError(f"{where}: option '{name}' is unknown{meant}; options are {', '.join(known) or 'none'}")
        if name in read:
            raise EngineError(f"{where}: option '{name}' is given twice")
        try:
            read[name] = _converted(known[name].type, text.strip())
        except ValueError:
            wanted = known[name].describe_type()
            raise EngineError(f"{where}: option '{name}' takes {wanted}, found {shown(text)}") from None
    return read


def _converted(hint: Any, text: str) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        choices = get_args(hint)
        if type(None) in choices and text.lower() == "none":
            return None
        for choice in choices:
            if choice is not type(None):
                try:
                    return _converted(choice, text)
                except ValueError:
                    continue
        raise ValueError(text)
    if get_origin(hint) is Literal:
        named = {str(value): value for value in get_args(hint)}
        return named[text] if text in named else _refuse(text)
    if hint is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return words[text.lower()] if text.lower() in words else _refuse(text)
    if hint is int:
        return count(text)
    if hint is float:
        number = float(text)
        return number if not math.isnan(number) else _refuse(text)
    return text


def count(text: str) -> int:
    """A whole number as people type one: `1000000`, `1_000_000` or `1e6`.

    Examples
    --------
    >>> count("1e6")
    1000000
    """
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not math.isfinite(number) or number != int(number):
            raise ValueError(text) from None
        return int(number)


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _described(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_described(choice) for choice in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(str(value) for value in get_args(hint))
    return "none" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _help_texts(options: type) -> dict[str, str]:
    """The string below each field. Python keeps such strings in the source only, so that is where they are read."""
    texts = {
        name: text for parent in options.__bases__ if is_dataclass(parent) for name, text in _help_texts(parent).items()
    }
    try:
        source = ast.parse(textwrap.dedent(inspect.getsource(options))).body[0]
    except (OSError, SyntaxError):
        return texts
    for field, below in pairwise(source.body if isinstance(source, ast.ClassDef) else ()):
        match field, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                texts[name] = " ".join(text.split())
    return texts
