"""The documentation does what it says: its commands and its Python run, its links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from boxqte.auditing.policy import Policy
from boxqte.cli.main import main, make_parser
from boxqte.cli.settings import settled
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")], key=str)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def blocks(page: str) -> list[tuple[str, str]]:
    """The language (and more: `sh exit 1`) and the text of every fenced block, indentation removed."""
    found = re.findall(r"^( *)```(\w[^\n]*)\n(.*?)^ *```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
    return [(language, re.sub(f"^{indent}", "", text, flags=re.M)) for indent, language, text in found]


def read_toml_block(text: str, page: str) -> None:
    """A policy, or settings: every table a command, every setting an option of it."""
    document = tomllib.loads(text)
    if "require" in document:
        Policy.from_document(document, source=page)
    else:
        Path("settings.toml").write_text(text, encoding="utf-8")
        parser = make_parser()
        for command in document:
            parser.parse_args(settled(parser, ["--config", "settings.toml", command]))


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in (ROOT / "examples").iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", NAMES)
@pytest.mark.usefixtures("examples")
def test_every_command_and_program_on_a_page_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), {"__name__": "documentation"})
        elif language == "json":
            node = json.loads(text)
            assert Space.from_json(node) if "attributes" in node else Attribute.from_json(node, page)
        elif language == "toml":
            read_toml_block(text, page)
        else:
            assert language.split()[0] == "sh", f"{page}: a block of '{language}', which nothing checks"
            wanted = int([*language.split("exit "), "0"][1])
            for line in text.splitlines():
                command, *arguments = shlex.split(line)
                assert command == "boxqte"
                try:
                    code = main(arguments)
                except SystemExit as end:
                    code = int(end.code or 0)
                assert code == wanted, f"{page}: {line}: {capsys.readouterr().err}"


@pytest.mark.parametrize("page", NAMES)
def test_every_link_on_a_page_leads_to_a_file(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text(encoding="utf-8")):
        assert target.startswith("http") or (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


def test_every_option_of_the_command_is_on_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for line in ("quantify", "space infer", "space fit", "space show", "model show", "audit", "gate", "completion", "smtlib",
                 "regions", "blame", "sample", "verify", "rows", "empirical", "certify", "test", "rates",
                 "repair"):  # fmt: skip
        with pytest.raises(SystemExit):
            main([*line.split(), "--help"])
        for option in set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--output"}:
            assert option in page, f"docs/cli.md says nothing about {option} of {line}"


def test_every_field_of_a_space_is_on_its_page() -> None:
    page = (ROOT / "docs" / "space.md").read_text(encoding="utf-8")
    for field in ("name", "kind", "low", "high", "values", "labels", "columns", "codes", "missing", "mass", "label"):
        assert f"`{field}`" in page


@pytest.mark.parametrize("script", ["make_reference.py", "make_kinds.py"])
def test_what_is_made_from_the_code_is_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
