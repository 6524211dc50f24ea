"""The command speaks of its own options, never of Python's keywords; it suggests, and its help fits the terminal."""

from __future__ import annotations

import argparse
import ast
import bz2
import gzip
import io
import lzma
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import boxqte
from boxqte.cli.main import main, make_parser
from boxqte.cli.wording import FAMILIAR, SYNONYMS, in_flags
from boxqte.errors import SpaceError
from boxqte.space import tables
from boxqte.space.tables import read_table

SOURCE = Path(boxqte.__file__).parent
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def commands(parser: argparse.ArgumentParser, name: str = "") -> dict[str, argparse.ArgumentParser]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        return {name.strip(): parser}
    return {k: v for a in below for n, p in a.choices.items() for k, v in commands(p, f"{name} {n}").items()}


COMMANDS = commands(make_parser())
FLAGS = {a.dest for parser in COMMANDS.values() for a in parser._actions if a.option_strings} - {"help", "option"}


def messages() -> list[tuple[str, str]]:
    """Every text of the library that a user may read because of a mistake: what is raised, and what is inferred."""
    found = []
    for path in SOURCE.rglob("*.py"):
        if {"cli", "box"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            texts: list[ast.expr] = []
            if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith(("Error", "Rejected")):
                texts = node.args
            elif path.name in ("inference.py", "sources.py", "masses.py") and isinstance(
                node, (ast.Assign, ast.AugAssign)
            ):
                texts = [node.value]
            for text in texts:
                if isinstance(text, (ast.JoinedStr, ast.Constant)):
                    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                    said = "".join(str(p.value) if isinstance(p, ast.Constant) else "x" for p in parts)
                    found.append((f"{path.name}:{node.lineno}", said))
    return found


def test_the_messages_are_found() -> None:
    texts = [text for _, text in messages()]
    assert len(texts) > 300
    assert any("missing='declare'" in text for text in texts)
    assert any("allow_pickle=True" in text for text in texts)


def test_no_message_shown_by_a_command_names_a_keyword_for_which_it_has_an_option() -> None:
    everything = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    for parser in commands(make_parser()).values():  # actions of its own: resolving a conflict changes them
        for action in parser._actions:
            if action.option_strings and action.dest != "help":
                everything._add_action(action)
    keyword = re.compile(rf"(?<![\w.\-'])({'|'.join(sorted(FLAGS))})=")
    with_underscore = re.compile(rf"(?<![\w.\-])({'|'.join(f for f in sorted(FLAGS) if '_' in f)})(?=[:=])")
    for where, text in messages():
        said = in_flags(text, everything, ["--epsilon=age=1"])
        assert not keyword.search(said), f"{where}: {said}"
        assert not with_underscore.match(said), f"{where}: {said}"


def test_the_library_does_not_speak_of_options() -> None:
    for where, text in messages():
        assert not re.search(r"(?<!\w)--[a-z]", text), f"{where}: {text}"


def test_every_synonym_leads_to_an_option_of_some_command() -> None:
    options = {name for parser in COMMANDS.values() for action in parser._actions for name in action.option_strings}
    assert set(FAMILIAR.values()) <= options
    assert set(SYNONYMS.values()) <= FLAGS | {"data"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("missing='ignore' leaves it out", "--missing ignore leaves it out"),
        ("time_limit: must be", "--time-limit: must be"),
        ("epsilon: must be", "--epsilon-rate: must be"),
        ("epsilon of 'age': must be", "--epsilon-rate of 'age': must be"),
        ("allow it with allow_pickle=True", "allow it with --allow-pickle"),
        ("policy.toml: time_limit: must be", "policy.toml: time_limit: must be"),
        ("categorical=['a', 'b']", "--categorical a,b"),
        ("column 'real=3': text", "column 'real=3': text"),
        ("nothing=1 here", "nothing=1 here"),
    ],
)
def test_keywords_become_options(text: str, said: str) -> None:
    assert in_flags(text, COMMANDS["audit"]) == said


# --- suggestions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_suggests_an_option_for_a_misspelled_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [a for a in COMMANDS[name]._actions if a.dest != "help" and any(len(o) > 4 for o in a.option_strings)]
    for action in options:
        flag = max(action.option_strings, key=len)
        with pytest.raises(SystemExit) as end:
            main([*name.split(), f"{flag[:-2]}{flag[-1]}x=3"])
        err = capsys.readouterr().err
        assert end.value.code == 2
        assert err.count("\n") == 1
        assert "did you mean --" in err, flag


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_a_word_too_many_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*name.split(), *["none"] * 7])
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert err.count("\n") == 1


FILES = {
    "audit": "audit BAD --space space.json --sensitive sex|audit model.json --space BAD --sensitive sex"
             "|audit model.json --data BAD --sensitive sex|audit model.json --space space.json --sensitive sex --policy BAD",
    "quantify": "quantify BAD --space space.json --sensitive sex|quantify model.json --space BAD --sensitive sex"
                "|quantify model.json --space space.json --sensitive sex --population BAD"
                "|quantify model.json --space space.json --sensitive sex --engine box --quiet --checkpoint BAD",
    "smtlib": "smtlib BAD --space space.json -o -|smtlib model.json --space BAD -o -",
    "empirical": "empirical BAD --space space.json --data people.csv|empirical model.json --space BAD --data people.csv"
                 "|empirical model.json --space space.json --data BAD",
    "space infer": "space infer BAD -o -|space infer people.csv --model BAD -o -",
    "space fit": "space fit BAD --space space.json -o -|space fit people.csv --space BAD -o -"
                 "|space fit people.csv --space space.json --model BAD -o -",
    "space show": "space show BAD",
    "model show": "model show BAD",
    "test": "test BAD --space space.json --sensitive sex|test model.json --space BAD --sensitive sex"
            "|test model.json --space space.json --sensitive sex --method sg --tests 3 --data BAD",
    "regions": "regions BAD --space space.json --sensitive sex|regions model.json --space BAD --sensitive sex",
    "hotspots": "hotspots BAD --space space.json --sensitive sex|hotspots model.json --space BAD --sensitive sex",
    "blame": "blame BAD --space space.json --sensitive sex|blame model.json --space BAD --sensitive sex"
             "|blame model.json --space space.json --sensitive sex --data BAD",
    "repair": "repair BAD --data people.csv --label granted --sensitive sex -o r.json"
              "|repair model.json --data BAD --label granted --sensitive sex -o r.json"
              "|repair model.json --data people.csv --label granted --sensitive sex --space BAD -o r.json",
    "sample": "sample BAD --space space.json --sensitive sex|sample model.json --space BAD --sensitive sex",
    "verify": "verify BAD --space space.json --sensitive sex|verify model.json --space BAD --sensitive sex"
              "|verify model.json --space space.json --sensitive sex --near BAD",
    "rows": "rows BAD model.json --space space.json --sensitive sex|rows people.csv BAD --space space.json --sensitive sex"
            "|rows people.csv model.json --space BAD --sensitive sex",
    "rates": "rates BAD --space space.json --sensitive sex|rates model.json --space BAD --sensitive sex"
             "|rates model.json --space space.json --sensitive sex --data BAD",
    "scores": "scores BAD --space space.json --sensitive sex|scores model.json --space BAD --sensitive sex",
    "gate": "gate BAD model.json --space space.json|gate policy.toml BAD --space space.json"
            "|gate policy.toml model.json --space BAD",
    "certify": "certify BAD model.json --workers 1|certify certificate BAD --workers 1"
               "|certify certificate model.json --space BAD --workers 1",
}  # fmt: skip
WITHOUT_FILES = {"demo", "engines", "completion"}
BROKEN = {
    "none": None, "empty": b"", "noise": bytes(range(256)) * 9, "half.json": b'{"attributes": [{"name": ',
    "list.json": b"[1, 2]", "deep.json": b"[" * 100_000, "bad.toml": b"[require\n", "words.csv": b"a,b\n1\n",
    "gone.csv.gz": gzip.compress(b"age\n1\n")[:15], "nul.csv": b"a\0b\n1\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("broken")
    for name in ("model.json", "space.json", "people.csv"):
        shutil.copy(EXAMPLES / name, where)
    (where / "policy.toml").write_text('[require]\nsex = { sensitive = "sex", at_least = 0.5 }\n')
    question = (where / "model.json", where / "space.json", boxqte.Fairness("sex"))
    boxqte.quantify(*question, engine="box", certificate=where / "certificate")
    for name, content in BROKEN.items():
        if content is not None:
            (where / name).write_bytes(content)
    return where


def test_every_command_that_reads_files_is_listed() -> None:
    assert set(FILES) | WITHOUT_FILES == set(COMMANDS)


@pytest.mark.parametrize("name", FILES)
def test_every_command_refuses_a_broken_file_in_one_line(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for line in FILES[name].split("|"):
        for broken in BROKEN:
            if "--checkpoint" in line and broken == "none":
                continue  # where the state is to be kept
            code = main(line.replace("BAD", broken).split())
            out, err = capsys.readouterr()
            said = out if code == 1 else err  # a certificate may also be rejected, which is an answer
            assert code == 2 or (code == 1 and name == "certify"), f"{line} with {broken}: {code}, {out}{err}"
            assert said.count("\n") == 1, f"{line} with {broken}: {said}"
            assert len(said) < 1200


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_wraps_at_the_terminals_width(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert [line for line in lines if len(line) > width] == []


# --- compressed tables ------------------------------------------------------------------------------------------------

TEXT = b"age,sex\n31,f\n52,m\n"


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("people.csv", content)
    return file.getvalue()


PACKERS: dict[str, Any] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zip": zipped}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_compressed_table_is_read_as_the_table_in_it(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"people.csv.{ending}"
    file.write_bytes(PACKERS[ending](TEXT))
    pd.testing.assert_frame_equal(read_table(file), pd.DataFrame({"age": [31, 52], "sex": ["f", "m"]}))
    pd.testing.assert_frame_equal(read_table(file), pd.read_csv(file))
    assert main(["space", "infer", str(file), "-o", str(tmp_path / "s.json")]) == 0
    assert boxqte.Space.load(tmp_path / "s.json").names == ("age", "sex")


@pytest.mark.parametrize("ending", PACKERS)
def test_a_table_that_unpacks_to_too_much_is_refused_in_one_line(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"bomb.csv.{ending}"
    file.write_bytes(PACKERS[ending](b"a\n" + b"1\n" * 5_000_000))
    assert file.stat().st_size < 100_000
    monkeypatch.setattr(tables, "MAX_UNPACKED", 1_000_000)
    with pytest.raises(SpaceError, match="has more than 1,000,000 bytes when it is unpacked") as caught:
        read_table(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", PACKERS)
def test_a_damaged_compressed_table_is_refused_in_one_line(ending: str, tmp_path: Path) -> None:
    whole = PACKERS[ending](TEXT * 50)
    for at in (len(whole) // 2, len(whole) - 3):
        file = tmp_path / f"cut.csv.{ending}"
        file.write_bytes(whole[:at])
        with pytest.raises(SpaceError, match="cannot be unpacked") as caught:
            read_table(file)
        assert "\n" not in str(caught.value)
