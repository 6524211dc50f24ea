"""Numbers that would fill the memory with digits are refused at every door, in at most a second, with one line."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from boxqte import Attribute, Fairness, Robustness, Space, audit, quantify, verify
from boxqte.auditing.policy import Policy, Requirement
from boxqte.cli.main import main
from boxqte.errors import BoxQTEError
from boxqte.examples import loan_ensemble, loan_space

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 1.0

HUGE = ["1e99999999", "-1e99999999", "1e99999999999999999999999", "1e401", "9" * 5000, "9" * 100_000]
TINY = ["1e-99999999", "1e-99999999999999999999999", "0." + "1" * 5000, "0." + "0" * 5000 + "1"]
TEXTS = ["1/" + "9" * 5000, "9" * 5000 + "/7", "nan", "inf", "1e99999999/3", "much"]


def named(number: object) -> str:
    text = str(number) if not isinstance(number, int) else f"10**{len(hex(number)) * 1.2:.0f}"
    return text if len(text) < 30 else f"{text[:8]}~{len(text)}"


@contextlib.contextmanager
def at_most_a_second() -> Iterator[None]:
    """Of this process' own time: the machine may be busy."""

    def late(*_: Any) -> None:
        raise AssertionError(f"takes more than {SECONDS} s")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# --- files and the command line ---------------------------------------------------------------------------------------

QUESTION = "quantify model.json --space space.json --engine exhaustive --quiet --sensitive sex"


def changed(name: str, document: Any) -> None:
    """The document with its one "NUMBER" in the place of a text, as JSON."""
    Path(name).write_text(json.dumps(document))


def space_with(**fields: Any) -> Callable[[str], str]:
    """A door: the space's attribute of that name with other fields, in which NUMBER (unquoted) is the number."""

    def door(number: str) -> str:
        document = json.loads(Path("space.json").read_text())
        for attribute in document["attributes"]:
            attribute |= fields.get(attribute["name"], {})
        Path("nasty.json").write_text(json.dumps(document).replace('"NUMBER"', number))
        return "quantify model.json --space nasty.json --engine exhaustive --quiet --sensitive sex"

    return door


def policy_with(line: str) -> Callable[[str], str]:
    def door(number: str) -> str:
        Path("nasty.toml").write_text(line.replace("NUMBER", number) + "\n")
        return "gate nasty.toml model.json --space space.json --engine exhaustive --quiet"

    return door


def settings_with(field: str) -> Callable[[str], str]:
    def door(number: str) -> str:
        Path("nasty.toml").write_text(f"[quantify]\n{field} = {number}\n")
        return f"--config nasty.toml {QUESTION}"

    return door


def certificate_with(change: Callable[[list[Any], Any], None]) -> Callable[[str], str]:
    """A certificate whose checksums fit."""

    def door(number: str) -> str:
        lines = [
            json.loads(line) if line[0] in "{[" else line
            for line in gzip.decompress(Path("certificate").read_bytes()).decode().splitlines()
        ]
        change(lines, "NUMBER")
        texts = [line if isinstance(line, str) else json.dumps(line).replace("NUMBER", number) for line in lines]
        head = json.loads(texts[0])
        about = {name: head[name] for name in ("model", "space", "property")}
        head["question"] = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        body = "".join(f"{line}\n" for line in [json.dumps(head), *texts[1:-1]]).encode()
        last = json.loads(texts[-1]) | {"sha256": hashlib.sha256(body).hexdigest()}
        Path("nasty").write_bytes(gzip.compress(body + json.dumps(last).encode() + b"\n", 1))
        return "certify nasty model.json --workers 1"

    return door


def cut_with(lines: list[Any], number: Any) -> None:
    cut = next(line for line in lines if isinstance(line, list) and line[1] and isinstance(line[1][0], list))
    cut[1][0][0] = number


def checkpoint_with(*path: Any) -> Callable[[str], str]:
    """A checkpoint of the same question whose checksum fits."""

    def door(number: str) -> str:
        title, _, rest = Path("state").read_bytes().split(b"\n", 2)
        line, arrays = rest.split(b"\n", 1)
        node = head = json.loads(line)
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = "NUMBER"
        body = json.dumps(head).replace('"NUMBER"', number).encode() + b"\n" + arrays
        Path("nasty").write_bytes(b"\n".join([title, hashlib.sha256(body).hexdigest().encode(), body]))
        return "quantify model.json --space space.json --engine box --quiet --sensitive sex --checkpoint nasty"

    return door


def argument(option: str) -> Callable[[str], str]:
    return lambda number: f"{QUESTION} {option}={number}"


def table_with(column: str) -> Callable[[str], str]:
    def door(number: str) -> str:
        frame = pd.read_csv("people.csv", dtype=str)
        frame.loc[1, column] = number
        frame.to_csv("nasty.csv", index=False)
        return "space infer nasty.csv --label granted -o s.json"

    return door


def rows_with(column: str) -> Callable[[str], str]:
    return lambda number: table_with(column)(number) and "rows nasty.csv model.json --space space.json --sensitive sex"


JSON_NUMBERS = [*HUGE, *TINY]
AS_TEXT = [f'"{text}"' for text in [*HUGE, *TINY, *TEXTS]]
DOORS: list[tuple[str, Callable[[str], str], list[str], str]] = [
    # what it is, how to go through it, the nasty numbers, a number that is fine
    ("space, low", space_with(income={"low": "NUMBER"}), JSON_NUMBERS + AS_TEXT, "5.8"),
    ("space, high", space_with(age={"high": "NUMBER"}), JSON_NUMBERS + AS_TEXT, "79"),
    ("space, missing", space_with(age={"missing": "NUMBER"}), JSON_NUMBERS + AS_TEXT, "0.1"),
    ("space, mass", space_with(sex={"mass": [1, "NUMBER"]}), JSON_NUMBERS + AS_TEXT, "0.1"),
    ("space, edges", space_with(income={"mass": {"edges": [5.8, "NUMBER", 131.6], "weights": [1, 2]}}),
     JSON_NUMBERS + AS_TEXT, "60"),
    ("space, values", space_with(sex={"values": ["f", "NUMBER"]}), HUGE, '"m"'),
    ("space, codes", space_with(sex={"codes": [0, "NUMBER"]}), JSON_NUMBERS + AS_TEXT, "1"),
    ("policy, at_least", policy_with('[require]\nsex = { sensitive = "sex", at_least = NUMBER }'),
     JSON_NUMBERS + AS_TEXT, "0.5"),
    ("policy, kappa", policy_with('[require]\nsex = { sensitive = "sex", at_least = 0.5, kappa = NUMBER }'),
     JSON_NUMBERS + AS_TEXT, "0.6"),
    ("policy, epsilon_rate", policy_with('[require]\nsex = { sensitive = "sex", at_least = 0.5, epsilon_rate = NUMBER }'),
     JSON_NUMBERS + AS_TEXT, "0.01"),
    ("policy, epsilon", policy_with('[require]\nsex = { sensitive = "sex", at_least = 0.5, epsilon = { age = NUMBER } }'),
     JSON_NUMBERS + AS_TEXT, "1"),
    ("policy, time_limit", policy_with('time_limit = NUMBER\n[require]\nsex = { sensitive = "sex", at_least = 0.5 }'),
     JSON_NUMBERS + AS_TEXT, "1e309"),
    ("settings, kappa", settings_with("kappa"), JSON_NUMBERS + AS_TEXT, "0.6"),
    ("settings, node-limit", settings_with("node-limit"), JSON_NUMBERS + AS_TEXT, "1000000"),
    ("certificate, kappa", certificate_with(lambda lines, n: lines[0]["property"].update(kappa=n)), HUGE + TINY + TEXTS,
     "0.5"),
    ("certificate, epsilon", certificate_with(lambda lines, n: lines[0]["property"].update(epsilon_rate=n)),
     HUGE + TINY + TEXTS, "0"),
    ("certificate, epsilon by name",
     certificate_with(lambda lines, n: lines[0]["property"].update(epsilon={"age": n})), HUGE + TINY + TEXTS, "0"),
    ("certificate, cut", certificate_with(cut_with), HUGE + TINY + TEXTS, ""),
    ("certificate, space", certificate_with(lambda lines, n: lines[0]["space"]["attributes"][0].update(low=n)),
     HUGE + TINY + TEXTS, "5.8"),
    ("certificate, sums", certificate_with(lambda lines, n: lines[-1].update(unfair=n)), HUGE + TINY + TEXTS, ""),
    ("checkpoint, heap", checkpoint_with("heap"), JSON_NUMBERS + AS_TEXT, ""),
    ("checkpoint, trace", checkpoint_with("trace"), JSON_NUMBERS + AS_TEXT, ""),
    ("checkpoint, seconds", checkpoint_with("seconds"), [*HUGE, "NaN", '"7"', "null", "-1"], "7"),
    ("checkpoint, sums", checkpoint_with("sums", "unfair"), ['["0x1p99999999"]', "[1e999]", "7", '[["7"]]'], ""),
    ("checkpoint, counts", checkpoint_with("counts", "nodes"), [*HUGE, '"7"', "0.5", "null"], "7"),
    ("checkpoint, identity", checkpoint_with("identity", "model"), [*HUGE, "7", "null", "[]"], ""),
    ("--kappa", argument("--kappa"), HUGE + TINY + TEXTS, "0.6"),
    ("--epsilon-rate", argument("--epsilon-rate"), HUGE + TINY + TEXTS, "0.01"),
    ("--epsilon", argument("--epsilon=age"), HUGE + TINY + TEXTS, "1"),
    ("--require", argument("--require"), HUGE + TINY + TEXTS, "0.5"),
    ("--time-limit", argument("--time-limit"), ["nan", "-1e99999999", "much", "-1", "0"], "60"),
    ("--gap", argument("--gap"), [*HUGE, "nan", "inf", "much"], "0.5"),
    ("--workers", argument("--workers"), HUGE + TINY + TEXTS + ["1e300", "1e18"], "2"),
    ("--node-limit", argument("--node-limit"), HUGE + TINY + TEXTS, "1e6"),
    ("--memory-limit", argument("--memory-limit"), HUGE + TEXTS + ["nanG", "infG", "1e300G"], "1G"),
    ("--confidence", lambda n: argument("--engine=auto --confidence")(n), [*HUGE, "nan", "inf", "much"], "0.9"),
    ("--checkpoint-every", argument("--checkpoint-every"), ["nan", "-1", "much"], "7"),
    ("--option", argument("--option=max_cells"), HUGE + TINY + TEXTS, "1e6"),
    ("--where", lambda n: f"regions model.json --space space.json --sensitive sex --quiet --where=age>={n}",
     ["1e99999999", "-1e99999999", "9" * 5000, "1/7", "nan", "much"], "40"),
    ("a table, real", table_with("income"), ["1e99999999", "-1e99999999", "9" * 5000, "inf", "1e309"], "60"),
    ("a table, integer", table_with("age"), ["1e99999999", "-1e99999999", "9" * 5000, "9" * 30, "inf"], "60"),
    ("rows", rows_with("income"), [], "60"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("nasty")
    for name in ("model.json", "space.json", "people.csv"):
        shutil.copy(ROOT / "examples" / name, where)
    question = (where / "model.json", where / "space.json", Fairness("sex"))
    options = {"finish_limit": 8}  # so that there are cuts
    quantify(*question, engine="box", workers=1, options=options, certificate=where / "certificate")
    quantify(*question, engine="box", workers=1, options=options, checkpoint=where / "state", node_limit=3)
    return where


@pytest.fixture
def go(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(folder)

    def run(door: Callable[[str], str], number: str) -> tuple[int, str, str]:
        words = door(number).split(" ")
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        return (code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(("name", "door", "numbers", "good"), DOORS, ids=[name for name, *_ in DOORS])
def test_a_nasty_number_is_refused_at_once_with_one_line(
    go: Any, name: str, door: Any, numbers: list[str], good: str
) -> None:
    if good:  # also, what is imported and compiled once is not the nasty number's fault
        code, out, err = go(door, good)
        assert code in (0, 1), (out, err)
        assert "error" not in err
    for number in numbers:
        with at_most_a_second():
            code, out, err = go(door, number)
        rejected = name.startswith("certificate") and code == 1
        said = out if rejected else err
        where = f"{named(number)}: exit code {code}, {out}{err}"
        assert rejected or code == 2, where
        assert said.count("\n") == 1, where
        assert len(said) < 1100, where


# --- Python -----------------------------------------------------------------------------------------------------------

VALUES: list[Any] = [
    *HUGE, *TINY, *TEXTS, Decimal("1e99999999"), Decimal("1e-99999999"), Decimal("NaN"), Decimal("inf"), 10**5000,
    Fraction(1, 10**5000), float("nan"), float("inf"), [10**5000], None, True,
]  # fmt: skip
SPACE, MODEL = loan_space(), loan_ensemble()
CALLS: list[tuple[str, Callable[[Any], Any], list[Any]]] = [
    ("epsilon", lambda v: Fairness("race", v), VALUES),
    ("epsilon by name", lambda v: Robustness({"age": v}), VALUES),
    ("kappa", lambda v: Fairness("race", kappa=v), VALUES),
    ("low", lambda v: Attribute.real("x", v, 1), VALUES),
    ("high", lambda v: Attribute.integer("x", 0, v), VALUES),
    ("missing", lambda v: Attribute.real("x", 0, 1, missing=v), [v for v in VALUES if v is not None]),
    ("mass", lambda v: SPACE.with_mass({"race": [v, 1]}), VALUES),
    ("at_least", lambda v: Requirement(Fairness("race"), v), VALUES),
    ("a policy", lambda v: Policy.from_document({"require": {"a": {"at_least": v}}}), VALUES),
    ("require", lambda v: quantify(MODEL, SPACE, Fairness("race"), require=v), [v for v in VALUES if v is not None]),
    ("robustness", lambda v: audit(MODEL, space=SPACE, sensitive="race", robustness=v),
     [v for v in VALUES if v is not None]),
    ("time_limit", lambda v: verify(MODEL, SPACE, Fairness("race"), time_limit=v), [*HUGE, *TEXTS, Decimal("NaN"), "10s"]),
    ("a frame", lambda v: Space.from_data(pd.DataFrame({"x": [Decimal(1), v], "y": [1, 2]})),
     [Decimal("1e99999999"), Decimal("-1e-99999999"), 10**5000, Fraction(1, 10**5000)]),
    ("a frame, real", lambda v: Space.from_data({"x": [Fraction(1, 3), v], "y": [1, 2]}, real=["x"]),
     [Decimal("1e99999999"), 10**5000, Fraction(1, 10**5000), float("inf")]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "call", "values"), CALLS, ids=[name for name, *_ in CALLS])
def test_a_nasty_number_is_refused_by_every_call(name: str, call: Callable[[Any], Any], values: list[Any]) -> None:
    for value in values:
        with at_most_a_second(), pytest.raises(BoxQTEError) as caught:
            call(value)
        assert "\n" not in str(caught.value), named(value)
        assert len(str(caught.value)) < 400, named(value)
