"""Results that are kept: as pickles with everything, as JSON with the numbers."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import boxqte
from boxqte import Fairness, Monotonicity, Quantification, Robustness, ScoreFairness, quantify
from boxqte.errors import EngineError, ReportError
from boxqte.examples import loan_ensemble, loan_space
from tests import resume_child

QUESTIONS = [
    (Fairness("race"), {"engine": "exhaustive"}),
    (Fairness(["race", "age"], kappa="1/3", partner_kappa="0.7"), {}),
    (Fairness("age", max_change={"age": 5}), {}),
    (Robustness({"income": "0.1"}, "0.6", tie="paper"), {}),
    (Monotonicity("income", "increasing", on="score"), {}),
    (ScoreFairness("race", "1/7", "margin"), {}),
    (Fairness("race", kappa="0.9999999"), {}),
    (Fairness("race"), {"threshold": {"race": {0: "0.3", 1: "0.3", 2: "0.4", 3: "1/3", 4: "0.6"}}}),
    (Fairness("race"), {"threshold": ">0.3"}),
    (Fairness("race"), {"engine": "sample", "options": {"points": 2000}}),
    (Fairness("race"), {"node_limit": 1}),
]


@pytest.mark.parametrize(("prop", "options"), QUESTIONS)
def test_what_is_saved_is_read_back(prop: Any, options: Any, tmp_path: Path) -> None:
    result = quantify(loan_ensemble(), loan_space(), prop, workers=1, **options)
    result.save(tmp_path / "result.json")
    found = Quantification.load(tmp_path / "result.json")
    assert found.to_json() == json.loads(json.dumps(result.to_json()))
    assert (found.decided, found.exact, found.bounds) == (result.decided, result.exact, result.bounds)
    assert (str(found.property), found.status, found.guarantee()) == (
        str(result.property),
        result.status,
        result.guarantee(),
    )
    assert found.to_frame().equals(result.to_frame())
    assert result._repr_html_().startswith(found._repr_html_())  # hot spots are asked of the model
    assert found.to_html().startswith("<!DOCTYPE html>")


def test_cells_are_read_back(tmp_path: Path) -> None:
    result = quantify(loan_ensemble(), loan_space().with_mass("cells"), Fairness("race"))
    result.save(tmp_path / "result.json")
    assert Quantification.load(tmp_path / "result.json").counted == result.counted


@pytest.mark.parametrize("ask", ["regions", "pairs", "sample", "restrict", "profile"])
def test_what_is_read_from_a_file_says_what_it_does_not_know(ask: str, tmp_path: Path) -> None:
    quantify(loan_ensemble(), loan_space(), Fairness("race")).save(tmp_path / "result.json")
    found = Quantification.load(tmp_path / "result.json")
    arguments = {"sample": (3,), "restrict": ("income < 300",), "profile": ("age",)}.get(ask, ())
    with pytest.raises(EngineError, match=r"has the numbers alone .*, not the model; for more, call quantify again"):
        getattr(found, ask)(*arguments)


def broken(**fields: Any) -> Any:
    node = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive").to_json()
    return {name: value for name, value in (node | fields).items() if value != "gone"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "this is no saved result; expected what `save` writes"),
        ('{"attributes": []}', "this is no saved result"),
        (
            broken(decided="gone"),
            "decided: expected what `save` writes there, found nothing: was it written by an older",
        ),
        (
            broken(decided={"fair": "x", "unfair": "0", "low": "0"}),
            "decided.fair: expected a share such as '3/4', found 'x'",
        ),
        (broken(status="fine"), "status: expected one of converged, .*, found 'fine'"),
        (broken(seconds="long"), "seconds: expected what `save` writes there, found 'long'"),
        (broken(trace=[1]), r"trace: expected \[seconds, lower, upper\], found 1"),
        (broken(property={"kind": "fairness", "sensitive": []}), "sensitive: no attribute is named"),
    ],
)
def test_other_files_are_refused_in_one_line(content: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ReportError, match=f"^{path}: .*{said}" if "valid" not in said else said):
        Quantification.load(path)
    with pytest.raises(ReportError, match=r"none\.json: cannot be read: No such file"):
        Quantification.load(tmp_path / "none.json")


@pytest.mark.parametrize("engine", ["auto", "exhaustive", "sample"])
def test_a_pickled_result_can_be_asked_further(engine: str) -> None:
    options = {"points": 2000} if engine == "sample" else {}
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine=engine, options=options, workers=1)
    found = pickle.loads(pickle.dumps(result))
    assert type(found) is Quantification
    assert found.to_json() == result.to_json()
    assert found.regions().equals(result.regions())
    assert found.sample(20, random_state=1).x.equals(result.sample(20, random_state=1).x)
    assert found.restrict("income < 300").to_json()["measure"] == result.restrict("income < 300").to_json()["measure"]
    again = pickle.loads(pickle.dumps(found))  # also with what was answered in between
    assert again.profile("age").equals(result.profile("age"))


def test_a_pickled_result_of_a_search_cut_short_keeps_its_regions() -> None:
    result = quantify(resume_child.ensemble(), resume_child.space(), Fairness("a0"), node_limit=3000, workers=1)
    found = pickle.loads(pickle.dumps(result))
    assert not result.converged
    assert found.regions(flip=False).equals(result.regions(flip=False))


def test_a_model_from_its_library_is_pickled_without_the_way_back(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    frame = {"a": [0.0, 1.0, 2.0, 3.0] * 10, "b": [0, 1] * 20}
    import pandas as pd

    rows = pd.DataFrame(frame)
    model = xgboost.XGBClassifier(n_estimators=3, max_depth=2).fit(rows, (rows["a"] > 1.5).astype(int))
    result = quantify(model, boxqte.Space.from_data(rows), Fairness("a"))
    assert result.sample(3, random_state=0).replayed
    found = pickle.loads(pickle.dumps(result))
    drawn = found.sample(3, random_state=0)
    assert not drawn.replayed
    assert drawn.x.equals(result.sample(3, random_state=0).x)


def test_audits_and_the_other_answers_pickle() -> None:
    model, space = loan_ensemble(), loan_space()
    audit = boxqte.audit(model, space=space, sensitive=["race", "age"], require="0.5", report=True, time_limit=60)
    found = pickle.loads(pickle.dumps(audit))
    assert str(found) == str(audit)
    assert found["race"].regions().equals(audit["race"].regions())
    assert found.to_json() == audit.to_json()
    for answer in (
        boxqte.group_rates(model, space, "race"),
        boxqte.score_changes(model, space, "race", scale="margin"),
        boxqte.verify(model, space, Fairness("race")),
        audit.gate,
    ):
        assert pickle.loads(pickle.dumps(answer)).to_json() == answer.to_json()  # type: ignore[union-attr]


def test_every_answer_is_a_table() -> None:
    model, space = loan_ensemble(), loan_space()
    rows = {"income": [100.0, 400.0], "race": [0, 2], "age": [30, 60]}
    audit = boxqte.audit(model, space=space, sensitive="race", require="0.5", robustness=0, engine="exhaustive")
    row = audit["race"].to_frame()
    frame = audit.to_frame()
    assert list(frame.columns) == ["question", *row.columns, "verdict"]
    assert frame.loc[0, "value"] == row.loc[0, "value"] == audit["race"].value
    assert audit.gate is not None
    gate = audit.gate.to_frame()
    assert gate.loc[0, ["requirement", "verdict", "at_least", "value"]].tolist() == [
        "race",
        "holds",
        0.5,
        row.loc[0, "value"],
    ]
    assert {*row.columns} <= {*gate.columns}
    found = boxqte.verify(model, space, Fairness("race")).to_frame()
    assert found.loc[0, "verdict"] == "violated"
    share = boxqte.empirical(model, space, Fairness("race"), rows).to_frame()
    assert share.loc[0, "rows"] == 2
    assert len(boxqte.check(model, space, Fairness("race"), rows).to_frame()) == 2
