"""Settings for repeated commands: `boxqte.toml` in the current folder, or `--config FILE`; one table a command.

    [audit]
    model = "model.json"
    data = "train.csv"
    sensitive = ["sex", "race"]
    time-limit = 600

A setting is an option's long name without the dashes. What is typed on the command line counts more.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boxqte.basics.toml import a_table, known_fields, read_toml
from boxqte.errors import ConfigError

FILE = "boxqte.toml"
PATHS = {"model", "data", "space", "population", "policy", "html", "json", "junit", "markdown", "save-space", "checkpoint",
         "certificate", "output"}  # fmt: skip


def settled(parser: argparse.ArgumentParser, argv: Sequence[str]) -> list[str]:
    """What was typed, without --config; the command's defaults are those of the settings file from now on."""
    typed = list(argv)
    path, typed = _taken_out(typed)
    if path is None:
        if not os.path.isfile(FILE):
            return typed
        path = FILE
    commands = _commands(parser)
    document = read_toml(path, ConfigError)
    known_fields(document, commands, path, ConfigError)
    if not typed or typed[0] not in commands:
        return typed
    command = commands[typed[0]]
    table = a_table(document.get(typed[0], {}), f"{path}: [{typed[0]}]", ConfigError)
    _set_defaults(command, table, typed[1:], f"{path}: [{typed[0]}]", Path(path).parent)
    return typed


def _taken_out(typed: list[str]) -> tuple[str | None, list[str]]:
    """The file that --config names, and the other arguments."""
    for at, word in enumerate(typed):
        if word.startswith("--config="):
            return word.partition("=")[2], typed[:at] + typed[at + 1 :]
        if word == "--config":
            if at + 1 == len(typed):
                raise ConfigError("--config: the file name is missing")
            return typed[at + 1], typed[:at] + typed[at + 2 :]
    return None, typed


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands that take options themselves; `space` and `model` only have commands of their own."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {
                name: command
                for name, command in action.choices.items()
                if not any(isinstance(a, argparse._SubParsersAction) for a in command._actions)
            }
    raise AssertionError("the parser has commands")


def _set_defaults(
    command: argparse.ArgumentParser, table: dict[str, Any], typed: Sequence[str], where: str, folder: Path
) -> None:
    options: dict[str, argparse.Action] = {}
    positional: dict[str, argparse.Action] = {}
    for action in command._actions:
        for name in action.option_strings:
            if name.startswith("--") and name != "--help":
                options[name[2:]] = action
        if not action.option_strings:
            positional[action.dest] = action
    known_fields(table, [*positional, *options], where, ConfigError)
    for name, value in table.items():
        action = positional.get(name) or options[name]
        if name in positional and action.nargs != "?":
            raise ConfigError(f"{where} {name}: is always given on the command line")
        default = _default(action, name, value, f"{where} {name}", folder)
        if not _given(action, command, typed):
            action.required = False
            command.set_defaults(**{action.dest: default})


def _default(action: argparse.Action, name: str, value: Any, field: str, folder: Path) -> Any:
    """What a setting means: true or false, or the text that could have been typed, which argparse converts."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ConfigError(f"{field}: expected true or false, found {value!r}")
        return value
    texts = _texts(value, field)
    if name in PATHS:
        texts = [text if text == "-" else os.path.normpath(folder / text) for text in texts]
    if isinstance(value, dict) and all(isinstance(entry, list) for entry in value.values()):
        return [f"{key}={_joined(_texts(entry, field))}" for key, entry in value.items()]
    if isinstance(value, dict):
        text = ",".join(f"{key}={texts[i]}" for i, key in enumerate(value))
    else:
        text = _joined(texts) if isinstance(value, list) else texts[0]
    if action.choices is not None and text not in action.choices:
        raise ConfigError(f"{field}: expected one of {', '.join(map(str, action.choices))}, found {text!r}")
    return [text] if isinstance(action, argparse._AppendAction) else text


def _texts(value: Any, field: str) -> list[str]:
    if isinstance(value, dict):
        return [text for entry in value.values() for text in _texts(entry, field)]
    if isinstance(value, list):
        if not value:
            raise ConfigError(f"{field}: the list is empty")
        return [text for entry in value for text in _texts(entry, field)]
    return [str(value)]


def _joined(texts: Sequence[str]) -> str:
    """Names between commas; one with a comma or a quote goes in double quotes, as on the command line."""
    return ",".join('"' + t.replace('"', '""') + '"' if "," in t or '"' in t else t for t in texts)


def _given(action: argparse.Action, command: argparse.ArgumentParser, typed: Sequence[str]) -> bool:
    """Whether the option, or one that excludes it, was typed."""
    rivals = {action}
    for group in command._mutually_exclusive_groups:
        if action in group._group_actions:
            rivals |= set(group._group_actions)
    names = {name for rival in rivals for name in rival.option_strings}
    return any(word.partition("=")[0] in names for word in typed)
