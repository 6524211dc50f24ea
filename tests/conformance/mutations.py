"""Broken model files, made from sound ones: seeded mutations of JSON-like documents and of bytes.

How an importer's author uses it:

    for seed in range(500):
        broken, what = mutate_document(document, np.random.default_rng(seed))
        path.write_text(json.dumps(broken))
        refused_or_sound(lambda: load_model(path), f"seed {seed}: {what}")

A mutated file must be refused with a one-line ModelError, or load as a sound model (a changed leaf value breaks
nothing), within five seconds. It must never crash, hang, or be accepted with a broken structure.
"""

from __future__ import annotations

import copy
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from boxqte.errors import ModelError
from boxqte.models.ensemble import check_ensemble
from boxqte.models.importers import ImportedModel

SECONDS = 5.0
WRONG_TYPES: tuple[Any, ...] = (None, True, "", "text", "nan", "-1", "1e400", [], [[]], [None], {}, {"a": 1}, 0.5, -1)
BAD_INTEGERS = (-1, -2, -(2**31), 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**30)
BAD_REALS = (float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 5e-324)
# Eight bytes that read as a huge count, in either byte order.
HUGE_COUNTS = (b"\x7f" + b"\xff" * 7, b"\xff" * 8, b"\x00\x00\x7f" + b"\xff" * 5, b"\xff" * 7 + b"\x7f")
LINKS = ("left", "right", "child", "parent", "feature", "index", "ind", "tree", "node", "segment", "size", "num")

Path = tuple[Any, ...]


def refused_or_sound(
    load: Callable[[], ImportedModel], what: str, limit: float = SECONDS
) -> Literal["refused", "sound"]:
    """Load a mutated model: a one-line ModelError or a sound model, in time; anything else is an AssertionError."""
    begin = time.perf_counter()
    outcome: Literal["refused", "sound"]
    try:
        ensemble = load().ensemble
    except ModelError as error:
        message = str(error)
        assert message.splitlines() == [message], f"{what}: the message is not one line: {message!r}"
        assert len(message) < 1000, f"{what}: the message has {len(message)} characters: {message[:200]!r}"
        outcome = "refused"
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__} instead of ModelError: {error}") from error
    else:
        check_ensemble(ensemble)
        rows = np.zeros((2, ensemble.n_features))
        ensemble.predict(rows) if ensemble.predicts_classes else ensemble.exact_margin(rows)
        outcome = "sound"
    seconds = time.perf_counter() - begin
    assert seconds < limit, f"{what}: took {seconds:.1f} s"
    return outcome


def outcomes(folder: pathlib.Path) -> list[str]:
    """What became of each file; a crash or a hang of the loading process fails here."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.load_mutants", str(folder)],
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    names = sorted(path.name for path in folder.iterdir())
    assert run.returncode == 0, f"died at {names[len(lines)]}: {run.stderr[-500:]}"
    assert [line["file"] for line in lines] == names
    wrong = [line for line in lines if line["outcome"] not in ("refused", "sound")]
    assert not wrong, wrong[:3]
    return [line["outcome"] for line in lines]


def mutate_document(document: Any, rng: np.random.Generator) -> tuple[Any, str]:
    """A copy of the document with one thing broken, and a sentence that says what."""
    broken = copy.deepcopy(document)
    places = list(walk(broken))
    for _ in range(100):
        path, value = places[rng.integers(len(places))]
        change = CHANGES[rng.integers(len(CHANGES))]
        new = change(value, path, rng)
        if new is not KEEP:
            parent = broken
            for step in path[:-1]:
                parent = parent[step]
            if new is DELETE:
                del parent[path[-1]]
            else:
                parent[path[-1]] = new
            name = ".".join(str(step) for step in path)
            return broken, f"{change.__name__} at {name}: {short(value)} became {short(new)}"
    raise AssertionError("nothing in this document can be mutated")


def mutate_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """The bytes with random damage: truncated, overwritten, cut, doubled, or replaced."""
    at, length = int(rng.integers(len(data))), int(rng.integers(1, 65))
    noise = rng.integers(0, 256, length, np.uint8).tobytes()
    kind = int(rng.integers(8))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + noise + data[at + length :]
    if kind == 2:
        return data[:at] + noise + data[at:]
    if kind == 3:
        return data[:at] + data[at + length :]
    if kind == 4:
        return data[:at] + data[max(0, at - length) :]
    if kind == 5:
        return data[:at] + HUGE_COUNTS[rng.integers(len(HUGE_COUNTS))] + data[at + 8 :]
    if kind == 6:
        flipped = bytearray(data)
        for where in rng.integers(len(data), size=int(rng.integers(1, 9))):
            flipped[where] ^= 1 << int(rng.integers(8))
        return bytes(flipped)
    return data[: int(rng.integers(16))] + rng.integers(0, 256, int(rng.integers(2048)), np.uint8).tobytes()


def walk(document: Any) -> list[tuple[Path, Any]]:
    """Every place in the document with its value; of long lists only the first and last few entries."""
    places: list[tuple[Path, Any]] = []
    stack: list[tuple[Path, Any]] = [((), document)]
    while stack:
        path, value = stack.pop()
        if path:
            places.append((path, value))
        if isinstance(value, dict):
            stack += [((*path, key), child) for key, child in value.items()]
        elif isinstance(value, list):
            kept = range(len(value)) if len(value) <= 8 else (0, 1, 2, len(value) // 2, len(value) - 2, len(value) - 1)
            stack += [((*path, at), value[at]) for at in kept]
    return places


def short(value: Any) -> str:
    if value is DELETE:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


KEEP, DELETE = object(), object()


def delete(value: Any, path: Path, rng: np.random.Generator) -> Any:
    return DELETE


def wrong_type(value: Any, path: Path, rng: np.random.Generator) -> Any:
    other = copy.deepcopy(WRONG_TYPES[rng.integers(len(WRONG_TYPES))])
    return KEEP if type(other) is type(value) and other == value else other


def bad_number(value: Any, path: Path, rng: np.random.Generator) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return KEEP
    bad = (BAD_INTEGERS + BAD_REALS)[rng.integers(len(BAD_INTEGERS) + len(BAD_REALS))]
    if isinstance(value, str):
        return str(bad) if value.lstrip("-").replace(".", "", 1).isdigit() else KEEP
    return bad


def bad_entry(value: Any, path: Path, rng: np.random.Generator) -> Any:
    """A list of numbers with one entry that points elsewhere: out of range, to the root, to itself, to a sibling."""
    if not isinstance(value, list) or not value or not all(isinstance(v, (int, float)) for v in value):
        return KEEP
    at = int(rng.integers(len(value)))
    choices: list[Any] = [0, at, max(at - 1, 0), len(value) - 1, len(value), value[rng.integers(len(value))], -1]
    choices += [BAD_INTEGERS[rng.integers(len(BAD_INTEGERS))], BAD_REALS[rng.integers(len(BAD_REALS))]]
    return [*value[:at], choices[rng.integers(len(choices))], *value[at + 1 :]]


def bad_link(value: Any, path: Path, rng: np.random.Generator) -> Any:
    """As bad_entry, but only where the name says that the list holds indices: this is where cycles come from."""
    named = any(isinstance(step, str) and any(link in step.lower() for link in LINKS) for step in path[-2:])
    return bad_entry(value, path, rng) if named else KEEP


def other_length(value: Any, path: Path, rng: np.random.Generator) -> Any:
    if not isinstance(value, (list, str)) or not value:
        return KEEP
    cut = int(rng.integers(len(value)))
    return [value[:cut], value + value[-1:], value + value, value[1:]][rng.integers(4)]


def shuffled(value: Any, path: Path, rng: np.random.Generator) -> Any:
    if not isinstance(value, list) or len(value) < 2:
        return KEEP
    return [value[at] for at in rng.permutation(len(value))]


def renamed_key(value: Any, path: Path, rng: np.random.Generator) -> Any:
    if not isinstance(value, dict) or not value:
        return KEEP
    key = list(value)[rng.integers(len(value))]
    return {(f"{k}_" if k == key else k): v for k, v in value.items()}


def swapped_values(value: Any, path: Path, rng: np.random.Generator) -> Any:
    if not isinstance(value, dict) or len(value) < 2:
        return KEEP
    one, two = rng.choice(len(value), 2, replace=False)
    keys = list(value)
    return {**value, keys[one]: value[keys[two]], keys[two]: value[keys[one]]}


def nested(value: Any, path: Path, rng: np.random.Generator) -> Any:
    for _ in range(int(rng.integers(1, 60))):
        value = [value] if rng.integers(2) else {"a": value}
    return value


def long_text(value: Any, path: Path, rng: np.random.Generator) -> Any:
    return "9" * 5000 if isinstance(value, (str, int, float)) else KEEP


CHANGES = (delete, wrong_type, bad_number, bad_entry, bad_link, bad_link, other_length, shuffled, renamed_key,
           swapped_values, nested, long_text)  # fmt: skip
