"""`boxqte completion`: Tab completion for bash, zsh and fish.

The script that a shell reads is a few lines; each Tab asks `boxqte completion words -- WORD...` what fits. So there is
one set of rules, made from the parser itself, and it can look into files: `--sensitive` completes the attributes of
the space on the line.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

SCRIPTS = {
    "bash": """\
_boxqte() {
    local IFS=$'\\n'
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=($(boxqte completion words -- "${words[@]}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace
    return 0
}
complete -o nosort -F _boxqte boxqte
""",
    "zsh": """\
#compdef boxqte
_boxqte() {
    local -a found
    found=("${(@f)$(boxqte completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -Q -- ${found:#}
}
compdef _boxqte boxqte
""",
    "fish": """\
function __boxqte
    set -l words (commandline -opc) (commandline -ct)
    boxqte completion words -- $words[2..-1] 2>/dev/null
end
complete -c boxqte -f -a '(__boxqte)'
""",
}
WHERE = {
    "bash": "~/.bashrc: source <(boxqte completion bash)",
    "zsh": "~/.zshrc, after compinit: source <(boxqte completion zsh)",
    "fish": "~/.config/fish/config.fish: boxqte completion fish | source",
}
ATTRIBUTE_OPTIONS = ("--sensitive", "--categorical", "--integer", "--real")


def add_parser(commands: Any) -> None:
    lines = "\n".join(f"  {shell}: {line}" for shell, line in WHERE.items())
    parser = commands.add_parser(
        "completion",
        help="Tab completion for a shell",
        description=f"Print the completion script of a shell. To have it in every new shell, one line in\n{lines}",
    )
    parser.add_argument("shell", choices=list(SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    print(SCRIPTS[arguments.shell], end="")
    return 0


def print_suggestions(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Answer a Tab: one suggestion a line."""
    for word in suggestions(parser, words):
        print(word)
    return 0


def suggestions(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """What the last word, which may be empty, can be completed to.

    Examples
    --------
    >>> from boxqte.cli import make_parser
    >>> suggestions(make_parser(), ["qu"]), suggestions(make_parser(), ["quantify", "--ti"])
    (['quantify'], ['--tie', '--time-limit'])
    """
    *before, current = [*words] or [""]
    command, rest = parser, list(before)
    while rest:
        choices = _subcommands(command)
        if rest[0] not in choices:
            break
        command = choices[rest.pop(0)]
    if _subcommands(command):
        names = [*_subcommands(command), *_options(command)]
        return [name for name in names if name.startswith(current) and (current or not name.startswith("-"))]
    action = _options(command).get(rest[-1]) if rest else None
    if action is not None and action.nargs != 0:
        return _values(action, rest, current)
    if current.startswith("-"):
        used = set(rest)
        return sorted(
            name
            for name, option in _options(command).items()
            if name.startswith(current) and name.startswith("--") and (name not in used or _repeats(option))
        )
    return _choices(command, current) or files(current)


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {name: action for action in parser._actions for name in action.option_strings}


def _repeats(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction)


def _choices(command: argparse.ArgumentParser, current: str) -> list[str]:
    for action in command._actions:
        if not action.option_strings and action.choices and action.dest == "shell":
            return [name for name in SCRIPTS if name.startswith(current)]
    return []


def _values(action: argparse.Action, before: Sequence[str], current: str) -> list[str]:
    if action.choices:
        return [str(choice) for choice in action.choices if str(choice).startswith(current)]
    option = action.option_strings[-1]
    if option == "--engine":
        from boxqte.engines import ENGINES

        return [name for name in ENGINES if name.startswith(current)]
    if option in ATTRIBUTE_OPTIONS:
        head, comma, last = current.rpartition(",")
        return [f"{head}{comma}{name}" for name in _attributes(before) if name.startswith(last)]
    if action.metavar in ("R", "K", "S", "N", "G", "4G", "E", "COLUMN") or "=" in str(action.metavar):
        return []
    return files(current)


def _attributes(before: Sequence[str]) -> list[str]:
    """The attributes of the space, or the columns of the data, that are on the line."""
    for option, word in pairwise(before):
        try:
            if option == "--space":
                with open(word, encoding="utf-8") as file:
                    return [attribute["name"] for attribute in json.load(file)["attributes"]]
            if option == "--data":
                with open(word, encoding="utf-8") as file:
                    return [name.strip().strip('"') for name in file.readline().split(",")]
        except (OSError, ValueError, KeyError, TypeError):
            return []
    return []


def files(current: str) -> list[str]:
    """Files and folders that begin like this; a folder ends in /."""
    folder, name = os.path.split(current)
    try:
        found = sorted(os.scandir(os.path.expanduser(folder) or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    return [
        os.path.join(folder, entry.name) + ("/" if entry.is_dir() else "")
        for entry in found
        if entry.name.startswith(name) and (name.startswith(".") or not entry.name.startswith("."))
    ]
