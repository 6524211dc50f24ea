"""Writes docs/reference.md from the docstrings, the parser and the engines' options: `make reference`.

`python docs/make_reference.py --check` says whether the page is up to date, which the tests ask.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boxqte
import boxqte.testing
from boxqte.cli.main import make_parser
from boxqte.engines import ENGINES, engine_class
from boxqte.engines.options import engine_options

PAGE = Path(__file__).parent / "reference.md"
INTRODUCTION = """# Reference

Made by `make reference` from the docstrings and the options themselves; do not edit it. The words are explained in
[semantics.md](semantics.md), the files in [space.md](space.md) and [models.md](models.md).
"""


def main() -> int:
    text = reference()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE.name} is out of date; run `make reference`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


def reference() -> str:
    parts = [INTRODUCTION, "## Commands\n"]
    for name, parser in commands(make_parser(), "boxqte"):
        parts.append(command_text(name, parser))
    parts.append("## Options of the engines\n")
    for name in ENGINES:
        parts.append(engine_text(name))
    parts.append("## Python\n")
    for name in boxqte.__all__:
        thing = getattr(boxqte, name)
        if callable(thing):
            parts.append(object_text(f"boxqte.{name}", thing))
    for name in ("assert_fair", "assert_robust", "assert_score_fair", "assert_monotone", "assert_policy"):
        parts.append(object_text(f"boxqte.testing.{name}", getattr(boxqte.testing, name)))
    return "\n".join(parts)


def commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield name, parser
    for action in inner:
        for word, child in action.choices.items():
            yield from commands(child, f"{name} {word}")


def command_text(name: str, parser: argparse.ArgumentParser) -> str:
    lines = [f"### {name}\n", f"{paragraph(parser.description or '')}\n"]
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        flag = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            flag += f" {action.metavar or '|'.join(map(str, action.choices or ()))}"
        rows.append(f"| `{flag.replace('|', chr(92) + '|')}` | {cell(action.help or '')} |")
    if rows:
        lines += ["| argument | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def engine_text(name: str) -> str:
    about = paragraph((engine_class(name).__doc__ or "").partition("\n\n")[0])
    lines = [f"### {name}\n", f"{about}\n"]
    options = engine_options(name)
    if options:
        lines += ["| `--option` | type | default | meaning |", "|---|---|---|---|"]
        lines += [f"| `{o.name}` | {cell(o.describe_type())} | `{o.default}` | {cell(o.help)} |" for o in options]
    return "\n".join([*lines, ""])


def object_text(name: str, thing: Any) -> str:
    lines = [f"### {name}\n"]
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return "\n".join([*lines, f"{paragraph(thing.__doc__ or '')}\n"])
    if not inspect.isclass(thing) or any("__init__" in vars(cls) for cls in thing.__mro__[:-1]):
        lines += [f"    {signature(name, thing)}\n"]
    lines.append(docstring(thing))
    if inspect.isclass(thing):
        own = [cls for cls in thing.__mro__ if cls.__module__.startswith("boxqte")]  # also what it inherits from ours
        members = {name: member for cls in reversed(own) for name, member in vars(cls).items()}
        for method, member in members.items():
            function = member.__func__ if isinstance(member, classmethod) else member
            if not method.startswith("_") and inspect.isfunction(function) and inspect.getdoc(function):
                lines.append(f"#### {name.rpartition('.')[2]}.{method}\n")
                lines += [f"    {signature(method, function)}\n", docstring(function)]
    return "\n".join(lines)


def signature(name: str, thing: Any) -> str:
    try:
        shown = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    parts = []
    starred = False
    for parameter in shown.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        text = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + parameter.name
        if parameter.default is not parameter.empty:
            default = parameter.default if not isinstance(parameter.default, str) else repr(parameter.default)
            text += f"={default}" if "<" not in repr(default) else "=..."
        parts.append(text)
    line = f"{name.rpartition('.')[2]}({', '.join(parts)})"
    return "\n    ".join(textwrap.wrap(line, 110, subsequent_indent="    ", break_long_words=False))


def docstring(thing: Any) -> str:
    """numpydoc as Markdown: sections become bold words, parameters a list, examples indented code."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    out: list[str] = []
    section, at = "", 0
    while at < len(lines):
        line = lines[at]
        if at + 1 < len(lines) and line and re.fullmatch(r"-{3,}", lines[at + 1]):
            section = line
            out += ["", f"**{section}**", ""]
            at += 2
            continue
        if section == "Examples":
            out.append(f"    {line}".rstrip())
        elif section in ("Parameters", "Attributes", "Returns") and line and not line.startswith(" "):
            out.append(f"- `{line}`")
        elif section in ("Parameters", "Attributes", "Returns"):
            out.append(f"  {escaped(line.strip())}".rstrip())
        else:
            out.append(escaped(line))
        at += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out).strip()) + "\n"


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("](", "] (").replace("<", "&lt;")


def paragraph(text: str) -> str:
    return escaped(" ".join(text.split()))


def cell(text: str) -> str:
    return paragraph(text % {"prog": "boxqte"} if "%(" in text else text)


if __name__ == "__main__":
    sys.exit(main())
