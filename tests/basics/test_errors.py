"""Every row of docs/errors.md is true: the command ends with exit code 2 and that one line, and never a traceback."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeRegressor

from boxqte.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (?P<mistake>[^|]*) \| `(?P<command>[^`]*)` \| `(?P<message>.*)` \|$", re.MULTILINE)
ROWS = [match.groups() for match in ROW.finditer((ROOT / "docs" / "errors.md").read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("errors")
    for name in ("model.json", "space.json", "people.csv"):
        shutil.copy(ROOT / "examples" / name, folder)
    space = json.loads((folder / "space.json").read_text())
    (folder / "cells.json").write_text(json.dumps(space | {"mass": "cells"}))
    (folder / "boxes.json").write_text(json.dumps(space | {"mass": "boxes"}))
    (folder / "empty").write_text("")
    (folder / "truncated.json").write_text((folder / "model.json").read_text()[:3000])
    (folder / "broken.json").write_text('{"attributes": [')
    (folder / "headonly.csv").write_text("income,age,sex,race,granted\n")
    (folder / "gaps.csv").write_text("age,granted\n31,0\n,1\n52,1\n")
    (folder / "other.csv").write_text("height,sex,granted\n1,f,0\n2,m,1\n")
    (folder / "two.json").write_text(json.dumps({"attributes": [a for a in space["attributes"] if a["name"] != "age"]}))
    wider = [*space["attributes"], {"name": "height", "kind": "integer", "low": 1, "high": 9}]
    (folder / "wider.json").write_text(json.dumps({"attributes": wider}))
    (folder / "category.json").write_text(
        json.dumps(
            {
                "attributes": [
                    a | ({"values": ["f", "m", "x"]} if a["name"] == "sex" else {}) for a in space["attributes"]
                ]
            }
        )
    )
    (folder / "upside.json").write_text('{"attributes": [{"name": "age", "kind": "integer", "low": 9, "high": 1}]}')
    (folder / "huge.json").write_text(
        '{"attributes": [{"name": "age", "kind": "integer", "low": 9, "high": 1e99999999}]}'
    )
    (folder / "huge.csv").write_text("age\n31\n" + "9" * 5000 + "\n")
    (folder / "latin.csv").write_bytes("name\nRen\u00e9\n".encode("latin-1"))
    (folder / "cut.csv.gz").write_bytes(gzip.compress(b"age,sex\n31,f\n" * 100)[:30])
    with zipfile.ZipFile(folder / "two.zip", "w") as archive:
        for name in ("one.csv", "two.csv"):
            archive.writestr(name, "age\n31\n")
    (folder / "misspelled.toml").write_text('[require]\nsex = { sensitive = "sex", at_leest = 1 }\n')
    (folder / "nomodel.toml").write_text('[require]\nsex = { sensitive = "sex", at_least = 1 }\n')
    (folder / "settings.toml").write_text('[audit]\nsensitiv = "sex"\n')
    people = pd.read_csv(folder / "people.csv")
    pd.to_pickle(DecisionTreeRegressor().fit(people[["age"]], people["income"]), folder / "regressor.pkl")
    forest = RandomForestClassifier(2, max_depth=2).fit(people[["income", "age"]], people["granted"])
    pd.to_pickle(forest, folder / "forest.pkl")
    turned = make_pipeline(PCA(1), RandomForestClassifier(2, max_depth=2)).fit(
        people[["income", "age"]], people["granted"]
    )
    pd.to_pickle(turned, folder / "pca.pkl")
    return folder


def test_the_table_has_every_mistake_that_was_asked_for() -> None:
    mistakes = " ".join(mistake for mistake, *_ in ROWS)
    wanted = ("wrong path", "wrong library", "unknown attribute", "category that the model does not know", "kappa >= 1",
              "negative epsilon", "no rows", "NaN", "other columns", "out of disk")  # fmt: skip
    assert [w for w in wanted if w not in mistakes] == []
    assert len(ROWS) > 35


@pytest.mark.parametrize(("mistake", "command", "message"), ROWS, ids=[command for _, command, _ in ROWS])
def test_a_mistake_is_one_line_and_exit_code_2(
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mistake: str,
    command: str,
    message: str,
) -> None:
    if "/dev/full" in command and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full to run out of disk on")
    monkeypatch.chdir(files)
    name, *arguments = shlex.split(command)
    assert name == "boxqte"
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    err = capsys.readouterr().err
    pattern = ".*".join(re.escape(part) for part in f"boxqte: error: {message}\n".split("..."))
    assert code == 2, mistake
    assert err.count("\n") == 1
    assert re.fullmatch(pattern, err), f"{message!r} is documented, {err!r} is said"
