"""`boxqte completion`: Tab completion for bash, zsh and fish, by argcomplete.

The script that a shell reads is argcomplete's; each Tab runs `boxqte` itself, whose parser knows the options. Here is only
what the parser cannot know: `--sensitive` completes the attributes of the space (or the columns of the data) on the line.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

SHELLS = {
    "bash": "~/.bashrc: source <(boxqte completion bash)",
    "zsh": "~/.zshrc, after compinit: source <(boxqte completion zsh)",
    "fish": "~/.config/fish/config.fish: boxqte completion fish | source",
}
ATTRIBUTE_OPTIONS = ("--sensitive", "--categorical", "--integer", "--real")


def add_parser(commands: Any) -> None:
    lines = "\n".join(f"  {shell}: {line}" for shell, line in SHELLS.items())
    parser = commands.add_parser(
        "completion",
        help="Tab completion for a shell",
        description=f"Print the completion script of a shell. To have it in every new shell, one line in\n{lines}",
    )
    parser.add_argument("shell", choices=list(SHELLS), metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["boxqte"], shell=arguments.shell), end="")
    return 0


def answer_tab(parser: argparse.ArgumentParser) -> None:
    """If a shell asks what a line can be completed to, answer and end; else do nothing."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    from argcomplete import autocomplete
    from argcomplete.completers import FilesCompleter

    _add_completers(parser)
    autocomplete(parser, default_completer=FilesCompleter())


def _add_completers(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _add_completers(command)
        elif "--engine" in action.option_strings:
            action.completer = _engines  # type: ignore[attr-defined]
        elif set(action.option_strings) & set(ATTRIBUTE_OPTIONS):
            action.completer = attributes  # type: ignore[attr-defined]
        elif "--monotone" in action.option_strings:
            action.completer = directions  # type: ignore[attr-defined]
        elif action.type is not None or action.metavar in ("R", "K", "C", "D", "COLUMN") or "=" in str(action.metavar):
            action.completer = lambda **_: ()  # type: ignore[attr-defined]


def _engines(**_: Any) -> list[str]:
    from boxqte.engines import ENGINES

    return list(ENGINES)


def attributes(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Names between commas: the attributes of the space, or the columns of the data, that are on the line."""
    head, comma, _last = prefix.rpartition(",")
    return [f"{head}{comma}{name}" for name in _names(parsed_args)]


def directions(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The same, each with both directions."""
    names = attributes(prefix, parsed_args)
    return [f"{name}:{direction}" for name in names for direction in ("increasing", "decreasing")]


def _names(parsed: argparse.Namespace) -> list[str]:
    try:
        if getattr(parsed, "space", None):
            with open(parsed.space, encoding="utf-8") as file:
                return [attribute["name"] for attribute in json.load(file)["attributes"]]
        if getattr(parsed, "data", None):
            with open(parsed.data, encoding="utf-8") as file:
                return [name.strip().strip('"') for name in file.readline().split(",")]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return []
