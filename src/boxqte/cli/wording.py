"""Errors in the words of the command line: the library says `missing='declare'`, the command says `--missing declare`.

What a keyword is called comes from the command's own options, so that a new option needs nothing here.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from boxqte.basics.checks import nearest

if TYPE_CHECKING:
    from boxqte.space.space import Inference

# keyword of the library -> option, where the two have different names
SYNONYMS = {"random_state": "seed", "robustness": "robustness_rate", "n": "count",
            "near": "near", "attribute": "monotone", "direction": "monotone", "at_most": "score_at_most",
            "rows": "data", "condition": "where", "threshold": "decision_threshold", "rules": "rule"}  # fmt: skip
# what people type -> option: the words of other tools
FAMILIAR = {
    "--target": "--label", "--target-column": "--label", "--y": "--label", "--class": "--label", "--outcome": "--label",
    "--protected": "--sensitive", "--protected-attribute": "--sensitive", "--protected-attributes": "--sensitive",
    "--sensitive-attribute": "--sensitive", "--sensitive-features": "--sensitive", "--attribute": "--sensitive",
    "--train": "--data", "--csv": "--data", "--input": "--data", "--table": "--data", "--dataset": "--data",
    "--domain": "--space", "--timeout": "--time-limit", "--seconds": "--time-limit", "--threads": "--workers",
    "--jobs": "--workers", "--n-jobs": "--workers", "--eps": "--epsilon-rate", "--confidence-threshold": "--kappa",
    "--memory": "--memory-limit", "--threshold": "--decision-threshold", "--cutoff": "--decision-threshold",
    "--at-least": "--require", "--monotonicity": "--monotone", "--monotone-constraints": "--monotone",
    "--delta": "--score-at-most", "--at-most": "--score-at-most", "--report": "--html",
    "--out": "--output", "--categories": "--categorical", "--pickle": "--allow-pickle", "--silent": "--quiet",
    "--random-state": "--seed",
}  # fmt: skip
VALUE = r"(\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[\w.+-]+)"
ASSIGNED = re.compile(rf"(?<![\w.'-])([a-z_]+)={VALUE}")
GROUPED = re.compile(r"one_hot=\{'?([^':]*)'?: \[?([^\]}]*)\]?\}|one_hot\['([^']*)'\]")
OPENING = re.compile(r"([a-z_]+)(?=(?: of '[^']*')?: )")


def command_of(parser: argparse.ArgumentParser, typed: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that was typed, as far as it is one."""
    for word in typed:
        below = next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
        if below is None or word not in below.choices:
            return parser
        parser = below.choices[word]
    return parser


def in_flags(text: str, command: argparse.ArgumentParser, typed: Sequence[str] = ()) -> str:
    """The text with the library's keywords as the command's options, where it has them.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> for option in ("--missing", "--categorical", "--time-limit"):
    ...     _ = parser.add_argument(option)
    >>> in_flags("column 'a': missing='declare' takes it; if codes, categorical=['a']", parser)
    "column 'a': --missing declare takes it; if codes, --categorical a"
    >>> in_flags("time_limit: must be above 0", parser)
    '--time-limit: must be above 0'
    """
    options = {action.dest: action for action in command._actions if action.option_strings}

    def option(keyword: str) -> argparse.Action | None:
        if keyword == "epsilon" and not any(word.split("=")[0] == "--epsilon" for word in typed):
            keyword = "epsilon_rate"
        return options.get(keyword) or options.get(SYNONYMS.get(keyword, ""))

    def assigned(match: re.Match[str]) -> str:
        action = option(match[1])
        if action is None:
            return match[0]
        names = [part.strip().strip("'\"") for part in match[2].strip("[]").split(",")]
        return longest(action) if action.nargs == 0 else f"{longest(action)} {','.join(names)}"

    def grouped(match: re.Match[str]) -> str:
        if match[3] is not None:
            return f"--one-hot {match[3]}"
        columns = [part.strip().strip("'\"") for part in match[2].split(",")]
        return "--one-hot " + shlex.quote(f"{match[1]}={','.join(columns)}")

    if "one_hot" in options:
        text = GROUPED.sub(grouped, text)
    opening = OPENING.match(text)
    action = option(opening[1]) if opening else None
    if opening and action is not None:
        text = longest(action) + text[opening.end() :]
    return ASSIGNED.sub(assigned, text)


def inference_in_flags(inference: Inference, command: argparse.ArgumentParser) -> Inference:
    """What was inferred, in the words of the command: on the terminal, in its report and in its JSON."""
    decisions = tuple(replace(d, why=in_flags(d.why, command)) for d in inference.decisions)
    return replace(inference, decisions=decisions, notes=tuple(in_flags(note, command) for note in inference.notes))


def longest(action: argparse.Action) -> str:
    return max(action.option_strings, key=len)


def unknown_option(command: argparse.ArgumentParser, words: Sequence[str]) -> str | None:
    """What is wrong with the first option that the command does not have, and which one may be meant."""
    known = [name for action in command._actions for name in action.option_strings]
    for word in words:
        if word == "--":
            return None
        name = word.partition("=")[0]
        if name.startswith("--") and name not in known:
            meant = FAMILIAR.get(name.replace("_", "-"))
            if meant not in known:
                begun = [option for option in known if option.startswith(name)]
                meant = begun[0] if len(begun) == 1 else nearest(name, known)
            return f"unrecognized arguments: {word}" + (f"; did you mean {meant}?" if meant else "")
    return None


def left_over(command: argparse.ArgumentParser, words: Sequence[str], rest: Sequence[str]) -> str:
    """What is wrong with words that nothing takes: often names that should stand between commas."""
    lists = {name: action for action in command._actions if action.metavar == "A,B" for name in action.option_strings}
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        if name in lists:
            names = [value] if value else []
            for following in words[at + 1 :]:
                if following.startswith("-"):
                    break
                names.append(following)
            extra = [n for n in names[1:] if n in rest]
            if extra:
                return f"unrecognized arguments: {' '.join(rest)}; names go between commas: {name} {','.join(names)}"
    return f"unrecognized arguments: {' '.join(rest)}"


def with_suggestion(message: str) -> str:
    """argparse's own message about a choice, with the one that may be meant."""
    found = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
    if found is None:
        return message
    meant = nearest(found[1], re.findall(r"'([^']*)'", found[2]) or found[2].split(", "))
    return f"{message}; did you mean '{meant}'?" if meant else message
