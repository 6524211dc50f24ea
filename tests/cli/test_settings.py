"""boxqte.toml, --config, and Tab completion: what is set, what is typed, what is suggested."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from boxqte.cli.completion import SHELLS
from boxqte.cli.main import main, make_parser
from boxqte.cli.settings import settled
from boxqte.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def read(*typed: str) -> Any:
    parser = make_parser()
    return parser.parse_args(settled(parser, typed))


def test_settings_are_options_and_what_is_typed_counts_more(folder: Path) -> None:
    (folder / "boxqte.toml").write_text(
        '[audit]\nmodel = "model.json"\nsensitive = ["sex", "a,b"]\nkappa = 0.7\nquiet = true\ntime-limit = 9\n'
    )
    arguments = read("audit", "--time-limit", "5")
    assert (arguments.model, arguments.kappa, arguments.quiet, arguments.time_limit) == ("model.json", "0.7", True, 5.0)
    assert arguments.sensitive == ['sex,"a,b"']
    assert read("audit", "other.json", "--sensitive", "race").sensitive == ["race"]
    assert read("audit", "other.json").model == "other.json"


def test_an_option_that_excludes_a_setting_replaces_it(folder: Path) -> None:
    (folder / "boxqte.toml").write_text('[quantify]\nspace = "space.json"\nsensitive = "sex"\nepsilon-rate = 0.1\n')
    arguments = read("quantify", "model.json", "--epsilon", "age=2")
    assert (arguments.epsilon_rate, arguments.epsilon) == ("0", ["age=2"])


def test_tolerances_may_be_a_table(folder: Path) -> None:
    (folder / "boxqte.toml").write_text("[quantify]\nepsilon = { age = 2, income = 0.5 }\nspace = 's.json'\n")
    assert read("quantify", "model.json").epsilon == ["age=2,income=0.5"]


def test_paths_are_relative_to_the_settings_file(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "mine.toml").write_text('[audit]\nmodel = "m.json"\nhtml = "../r.html"\njson = "-"\n')
    arguments = read("--config", "sub/mine.toml", "audit")
    assert (arguments.model, arguments.html, arguments.json) == ("sub/m.json", "r.html", "-")


def test_a_whole_audit_from_settings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "boxqte.toml").write_text(
        '[audit]\nmodel = "model.json"\ndata = "people.csv"\nlabel = "granted"\ncategorical = "race"\n'
        'sensitive = ["sex"]\nengine = "exhaustive"\nrobustness-rate = 0\n'
    )
    assert main(["audit"]) == 0
    assert "sex       0.903828 (exact)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[audi]\n", "unknown field 'audi' .did you mean 'audit'.*; fields are audit, quantify,"),
        ("[audit]\nsensitiv = 1\n", r"\[audit\]: unknown field 'sensitiv'"),
        ("audit = 3\n", r"\[audit\]: expected a table, found 3"),
        ("[audit]\nquiet = 1\n", "quiet: expected true or false, found 1"),
        ("[audit]\ntie = 'mine'\n", r"tie: expected one of library, paper, found 'mine'"),
        ("[audit]\nsensitive = []\n", "sensitive: the list is empty"),
        ("[audit\n", "not a TOML file"),
    ],
)
def test_bad_settings_name_the_file_and_the_field(folder: Path, text: str, said: str) -> None:
    (folder / "boxqte.toml").write_text(text)
    with pytest.raises(ConfigError, match=said) as raised:
        read("audit", "model.json")
    assert str(raised.value).startswith("boxqte.toml")


def test_config_without_a_file_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="--config: the file name is missing"):
        read("audit", "--config")


# --- completion ---


def suggested(folder: Path, line: str) -> list[str]:
    """What the command answers when a shell asks it about the line, as argcomplete's scripts ask."""
    answer = folder / "answer.txt"
    environment = {
        "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src"), "HOME": str(folder), "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9",
    }  # fmt: skip
    subprocess.run([sys.executable, "-m", "boxqte"], cwd=folder, env=environment, check=True)
    return [word for word in answer.read_text().split("\n") if word and word != answer.name]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("boxqte ga", ["gate"]),
        ("boxqte space ", ["fit", "infer", "show", "-h", "--help"]),
        ("boxqte quantify --tie ", ["library", "paper"]),
        ("boxqte quantify --engine ex", ["exhaustive"]),
        ("boxqte quantify mod", ["model.json"]),
        ("boxqte quantify model.json --space sp", ["space.json"]),
        ("boxqte quantify --space space.json --sensitive s", ["sex"]),
        ("boxqte quantify --space space.json --sensitive sex,r", ["sex,race"]),
        ("boxqte audit --data people.csv --sensitive g", ["granted"]),
        ("boxqte quantify --space none.json --sensitive s", []),
        ("boxqte quantify --kappa ", []),
        ("boxqte quantify --score-at-most ", []),
        ("boxqte verify --on ", ["class", "score"]),
        ("boxqte quantify --space space.json --monotone inc", ["income:increasing", "income:decreasing"]),
        ("boxqte completion f", ["fish"]),
        ("boxqte --v", ["--version"]),
    ],
)
def test_suggestions(folder: Path, line: str, found: list[str]) -> None:
    assert sorted(suggested(folder, line)) == sorted(found)


@pytest.mark.parametrize("shell", list(SHELLS))
def test_each_shell_reads_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "boxqte" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", "/dev/stdin"], input=script, text=True, check=True)
