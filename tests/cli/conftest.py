"""A folder with files, a command line that runs in it, and an engine that stops early."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.ensemble import RandomForestClassifier

from boxqte.cli.main import main
from boxqte.engines import ENGINES
from boxqte.engines.protocol import ALONE, Capability, Companions, Decided, Limits, Outcome, Status, Watch
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space
from tests.cli.loans import SPACE, granted, people

ROOT = Path(__file__).resolve().parents[2]
Run = tuple[int, str, str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its space, its data, and things that are none of these."""
    folder = tmp_path_factory.mktemp("cli")
    frame = people()
    X, y = frame[["income", "race", "age"]], granted(frame)
    model = xgboost.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1).fit(X, y)
    model.save_model(folder / "model.json")
    SPACE.save(folder / "space.json")
    frame.assign(granted=y).to_csv(folder / "data.csv", index=False)
    (folder / "gaps.csv").write_text("age,granted\n31,0\n,1\n52,1\n")
    (folder / "empty").write_text("")
    (folder / "truncated.json").write_text((folder / "model.json").read_text()[:3000])
    (folder / "broken.json").write_text('{"attributes": [')
    (folder / "list.json").write_text("[]")
    (folder / "upside.json").write_text('{"attributes": [{"name": "age", "kind": "integer", "low": 9, "high": 1}]}')
    (folder / "noise").write_bytes(np.random.default_rng(1).bytes(500))
    pd.to_pickle(RandomForestClassifier(2, max_depth=2).fit(X, y), folder / "forest.pkl")
    Space(SPACE.attributes[:2]).save(folder / "two.json")
    Space([*SPACE, Attribute.integer("height", 0, 9)]).save(folder / "four.json")
    SPACE.with_attribute(Attribute.categorical("race", ["a", "b"])).save(folder / "texts.json")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the examples, in the folder that commands run in."""
    for name in ("model.json", "space.json", "people.csv"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line in the folder: its exit code, standard output and standard error."""
    monkeypatch.chdir(files)

    def command(line: str, *more: str) -> Run:
        capsys.readouterr()
        try:
            code = main([*line.split(), *more])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return command


@dataclass(frozen=True)
class StoppingOptions:
    """Options of an engine that stops early."""

    status: str = "time limit"
    """Why it
    stops."""
    boxes: int | None = None
    share: float = 0.5


class Stopping:
    """Reports some bounds for a while and stops.

    For these tests only.
    """

    name = "stopping"
    Options = StoppingOptions
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    def __init__(self, options: StoppingOptions):
        self.options = options

    def run(self, grid: Any, limits: Limits, watch: Watch, companions: Companions = ALONE) -> Outcome:
        decided = Decided(fair=self.options.share, unfair=0.125, low=0.125)
        watch.report(decided, nodes=7, open_boxes=3)
        return Outcome(decided, Status(self.options.status), None, {"limits": repr(limits)})


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "an_engine_that_stops", SimpleNamespace(Stopping=Stopping))
    monkeypatch.setitem(ENGINES, "stopping", "an_engine_that_stops:Stopping")
