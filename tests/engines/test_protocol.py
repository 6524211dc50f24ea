"""The contract of engines: a toy engine made by CONTRIBUTING's steps, and what is refused, by one function."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import boxqte.engines
from boxqte import Fairness, quantify
from boxqte.answers.regions import RegionStore
from boxqte.engines import ENGINES, engine_class, make_engine
from boxqte.engines.box.options import BoxOptions
from boxqte.engines.exhaustive import dense_margins, verdicts
from boxqte.engines.protocol import ALONE, Capability, Companions, Decided, Engine, Limits, Outcome, Status, Watch
from boxqte.errors import BoxQTEError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.grid import AnyGrid, binary
from tests.naive import naive_quantify
from tests.strategies import random_problem

RACE = Fairness("race")


@dataclass(frozen=True)
class ToyOptions:
    """Options of the toy engine."""

    most: int = 10**6
    """Cells that it looks at."""


class Toy:
    """Every cell on its own; knows nothing beyond the plain question."""

    name: ClassVar[str] = "toy"
    Options: ClassVar[type] = ToyOptions
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    def __init__(self, options: ToyOptions | None = None):
        self.options = options or ToyOptions()

    def run(self, grid: AnyGrid, limits: Limits, watch: Watch, companions: Companions = ALONE) -> Outcome:
        assert companions == ALONE
        two = binary(grid)
        confident, unfair = verdicts(two, dense_margins(two))
        masses = {"unfair": Fraction(0), "low": Fraction(0)}
        for at in map(tuple, (index.tolist() for index in np.argwhere(~confident | unfair))):
            mass = Fraction(1)
            for axis, cell in zip(grid.axes, at):
                mass *= axis.refined_masses[cell]
            masses["unfair" if unfair[at] else "low"] += mass
        decided = Decided(1 - masses["unfair"] - masses["low"], **masses)
        watch.report(decided)
        return Outcome(decided, Status.CONVERGED)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(boxqte.engines.ENGINES, "toy", f"{__name__}:Toy")
    monkeypatch.setattr("boxqte.engines.engine_class", _engine_class)
    monkeypatch.setattr("boxqte.engines.refusals.engine_class", _engine_class)
    monkeypatch.setattr("boxqte.answers.quantify.engine_class", _engine_class)


def _engine_class(name: str) -> Any:
    return Toy if name == "toy" else engine_class(name)


@pytest.mark.usefixtures("toy")
def test_an_engine_that_follows_the_steps_answers_like_the_oracle() -> None:
    for seed in range(20):
        problem = random_problem(random.Random(seed))
        answer = naive_quantify(*problem)
        result = quantify(*problem, engine="toy")
        if answer.measure is not None:
            assert result.exact == answer.measure


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"checkpoint": "state"}, r"engine 'toy' cannot save its state .checkpoint.; checkpoints: engines auto, box"),
        ({"certificate": "proof"}, "engine 'toy' writes no certificate; certificates: engines auto, box"),
        ({"executor": object()}, "engine 'toy' runs in this process only; a Dask cluster: engines auto, box"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_in_one_line(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    asked = {k: str(tmp_path / v) if isinstance(v, str) else v for k, v in asked.items()}
    with pytest.raises(BoxQTEError, match=said):
        quantify(loan_ensemble(), loan_space(), RACE, engine="toy", **asked)


def test_every_engine_declares_the_whole_contract() -> None:
    for name in ENGINES:
        engine: Engine = make_engine(name)
        assert engine.name == name
        assert engine.capabilities <= frozenset(Capability)
        assert isinstance(engine.Options(), engine.Options)


def test_follow_ups_use_the_options_of_the_answer_also_under_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[BoxOptions] = []
    real = boxqte.engines.box.engine.plan  # type: ignore[attr-defined]

    def noted(grid: AnyGrid, options: BoxOptions, *rest: Any, **more: Any) -> Any:
        seen.append(options)
        return real(grid, options, *rest, **more)

    monkeypatch.setattr("boxqte.engines.box.engine.plan", noted)
    for engine in ("auto", "box"):
        result = quantify(loan_ensemble(), loan_space(), RACE, engine=engine, options={"batch": 3})
        result.regions()
        result.profile("age")
        result.restrict("age >= 30").value
        result.pairs()
    assert len(seen) > 6
    assert {options.batch for options in seen} == {3}


def test_regions_of_an_engine_without_observers_come_from_a_search_of_their_own() -> None:
    result = quantify(loan_ensemble(), loan_space(), RACE, engine="exhaustive")
    assert result.asked is not None
    assert result.asked.store is None
    assert isinstance(result.asked.regions(), RegionStore)
    assert len(result.regions()) > 0
