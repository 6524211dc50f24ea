"""Repairing a model end to end: real XGBoost models, small tables, every figure computed again from outside."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.metrics import log_loss, roc_auc_score

import boxqte
from boxqte import Attribute, Fairness, Requirement, Robustness, ScoreFairness, Space, quantify, repair, verify
from boxqte.cli.main import main
from boxqte.engines.protocol import Status
from boxqte.errors import BoxQTEError, CheckpointError

SEX, GROUP = ["f", "m"], ["a", "b", "c"]
SPACE = Space(
    [
        Attribute.integer("age", 18, 80),
        Attribute.integer("income", 0, 100),
        Attribute.categorical("sex", [0, 1], labels=SEX),
        Attribute.categorical("group", [0, 1, 2], labels=GROUP),
    ],
    label="granted",
)
INPUTS = ["age", "income", "sex", "group"]


def people(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 81, n),
            "income": rng.integers(0, 101, n),
            "sex": rng.integers(0, 2, n),
            "group": rng.integers(0, 3, n),
        }
    )
    score = frame["income"] / 20 + frame["age"] / 40 + 0.7 * frame["sex"] + 0.3 * frame["group"] - 4.5
    frame["granted"] = (score + rng.logistic(size=n) * 0.5 > 0).astype(int)
    return frame


TRAIN, TEST = people(900, 1), people(400, 2)


@pytest.fixture(scope="module")
def model() -> Any:
    return xgboost.XGBClassifier(n_estimators=12, max_depth=3, n_jobs=1).fit(TRAIN[INPUTS], TRAIN["granted"])


def noisy() -> Any:
    """A model that has learned the noise, so that it is far from robust."""
    return xgboost.XGBClassifier(n_estimators=15, max_depth=4, n_jobs=1).fit(TRAIN[INPUTS], TRAIN["granted"])


@pytest.fixture(scope="module")
def file(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("repair") / "model.json"
    model.save_model(path)
    return path


def fixed(model: Any, prop: Any, at_least: Any = None, **options: Any) -> boxqte.Repair:
    given = {"label": "granted", "space": SPACE, "test": TEST, **options}
    return repair(model, TRAIN, prop, at_least, **given)


# --- the promise ---


def test_the_saved_model_meets_the_requirement_and_is_one_of_its_library(file: Path, tmp_path: Path) -> None:
    found = fixed(file, Fairness("sex"))
    assert found.met
    saved = found.save(tmp_path / "repaired.json")
    assert quantify(saved, SPACE, Fairness("sex")).lower > 1 - 1e-9
    assert str(verify(saved, SPACE, Fairness("sex")).verdict) == "holds"
    again = xgboost.XGBClassifier()
    again.load_model(saved)
    flipped = TEST[INPUTS].assign(sex=1 - TEST["sex"])
    assert (again.predict(flipped) == again.predict(TEST[INPUTS])).all()
    assert saved.stat().st_size <= file.stat().st_size


def test_a_live_object_becomes_another_one_of_the_same_class_and_stays_as_it_is(model: Any) -> None:
    before = model.predict(TEST[INPUTS])
    found = fixed(model, Fairness("sex"))
    assert type(found.model) is type(model)
    assert (model.predict(TEST[INPUTS]) == before).all()
    assert (found.model.predict(TEST[INPUTS]) != before).sum() == found.changed_rows > 0


def test_what_is_reported_is_what_the_library_itself_says(model: Any) -> None:
    found = fixed(model, Fairness("sex"))
    for said, own in ((found.quality_before, model), (found.quality_after, found.model)):
        chance = own.predict_proba(TEST[INPUTS])[:, 1]
        assert said.accuracy == pytest.approx((own.predict(TEST[INPUTS]) == TEST["granted"]).mean())
        assert said.auc == pytest.approx(roc_auc_score(TEST["granted"], chance), abs=1e-6)
        assert said.log_loss == pytest.approx(log_loss(TEST["granted"], chance), rel=1e-5)
        assert said.rows == len(TEST)
    flipped = TEST[INPUTS].assign(sex=1 - TEST["sex"])
    unfair = (model.predict(flipped) != model.predict(TEST[INPUTS])).sum()
    assert found.rows_before[0].confident - found.rows_before[0].fair == unfair > 0
    assert found.rows_after[0].share == 1
    women = TEST["sex"] == 0
    line = found.who.set_index("sex").loc["f"]
    assert line["rows"] == women.sum()
    assert line["rate_before"] == pytest.approx(model.predict(TEST[women][INPUTS]).mean())
    assert line["rate_after"] == pytest.approx(found.model.predict(TEST[women][INPUTS]).mean())
    assert found.who[["to_class_1", "to_class_0"]].to_numpy().sum() == found.changed_rows


def test_the_changed_mass_of_the_space_is_that_of_all_inputs(model: Any) -> None:
    found = fixed(model, Fairness("sex"), changed_seconds=None)
    every = pd.MultiIndex.from_product([range(18, 81), range(101), [0, 1], [0, 1, 2]], names=INPUTS).to_frame(
        index=False
    )
    differ = (model.predict(every) != found.model.predict(every)).mean()
    assert found.changed_mass is not None
    assert found.changed_mass.lower <= differ <= found.changed_mass.upper
    assert found.changed_mass.upper - found.changed_mass.lower < 1e-9
    spots = found.changed_regions(3)
    assert 0 < spots["mass"].sum() <= found.changed_mass.upper


# --- methods ---


def test_a_requirement_below_1_takes_the_smallest_share_that_meets_it(model: Any) -> None:
    before = quantify(model, SPACE, Fairness("sex")).value
    assert before is not None
    level = Fraction(round(1000 * (1 + before) / 2), 1000)
    found = fixed(model, Fairness("sex"), level)
    assert found.met
    assert found.share is not None
    assert 0 < found.share < 1
    measured = quantify(found.model, SPACE, Fairness("sex")).value
    assert measured is not None
    assert measured >= level
    blind = fixed(model, Fairness("sex"))
    assert found.changed_rows <= blind.changed_rows


def test_average_changes_no_decision_that_was_fair(model: Any) -> None:
    found = fixed(model, Fairness("sex"), method="average")
    assert found.met
    every = pd.MultiIndex.from_product([range(18, 81), range(101), [0, 1], [0, 1, 2]], names=INPUTS).to_frame(
        index=False
    )
    own, other = model.predict(every), model.predict(every.assign(sex=1 - every["sex"]))
    changed = found.model.predict(every) != own
    assert changed.any()
    assert not (changed & (own == other)).any()


@pytest.mark.parametrize("prop", [Robustness("0.02"), Fairness("sex", "0.02")])
def test_refit_reaches_a_requirement_with_a_tolerance(prop: Any) -> None:
    model = noisy()
    before = quantify(model, SPACE, prop).value
    assert before is not None
    level = Fraction(round(1000 * (0.08 + 0.92 * before)), 1000)
    found = fixed(model, prop, level)
    assert found.method == "refit"
    assert found.met
    lower = quantify(found.model, SPACE, prop).lower
    assert lower is not None
    assert lower >= level > before


def test_refit_without_a_tolerance_keeps_every_tree_as_it_is(model: Any) -> None:
    found = fixed(model, Fairness("sex"), "0.97", method="refit")
    assert found.met
    old, new = boxqte.load_model(model).ensemble, boxqte.load_model(found.model).ensemble
    assert (old.feature == new.feature).all()
    assert (old.threshold == new.threshold).all()


def test_a_path_is_the_trade_off_and_ends_at_its_highest_level(model: Any) -> None:
    found = fixed(model, Fairness("sex"), path=[1, 0.5, 0.97])
    table = found.to_frame()
    assert table["at_least"].tolist()[1:] == [0.5, 0.97, 1]
    assert table["met"].tolist()[1:] == [True] * 3
    assert table["changed"].tolist() == sorted(table["changed"])
    assert (table["lower"][1:] >= table["at_least"][1:] - 1e-9).all()
    assert table["changed"][1] == 0
    assert found.points[-1].written.imported.ensemble.fingerprint() == found.written.imported.ensemble.fingerprint()
    import matplotlib as mpl

    mpl.use("Agg")
    assert found.plot_path().get_ylabel() == "accuracy (%)"


def test_a_model_that_meets_the_requirement_stays_as_it_is(model: Any) -> None:
    found = fixed(model, Fairness("sex"), "0.1")
    assert found.met
    assert found.method == "none"
    assert found.changed_rows == 0
    assert (found.model.predict(TEST[INPUTS]) == model.predict(TEST[INPUTS])).all()


# --- what is required ---


def test_several_requirements_are_met_at_once(model: Any, tmp_path: Path) -> None:
    wanted = [(Fairness("sex"), 1), (Fairness("group"), "0.98")]
    found = fixed(model, wanted)
    assert found.met
    for prop, level in wanted:
        lower = quantify(found.model, SPACE, prop).lower
        assert lower is not None
        assert lower >= float(level) - 1e-9
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[require]\nsex = {sensitive = "sex", at_least = 1}\ngroup = {sensitive = "group", at_least = 0.98}\n'
    )
    assert fixed(model, policy).after[1].lower == found.after[1].lower
    assert fixed(model, [Requirement(Fairness("sex"), 1)]).met


@pytest.mark.parametrize("on", ["population", "rows"])
def test_the_share_may_be_of_a_population_or_of_the_rows(model: Any, on: Any) -> None:
    found = fixed(model, Fairness("sex"), "0.99", on=on)
    assert found.met
    if on == "rows":
        rows = boxqte.empirical(found.model, SPACE, Fairness("sex"), TRAIN)
        assert rows.measure is not None
        assert rows.measure >= 0.99
        assert found.after[0].lower == 1 - Fraction(rows.unfair, rows.confident)


def test_confidence_thresholds_and_scores_are_asked_about_as_everywhere(model: Any) -> None:
    assert fixed(model, Fairness("sex", kappa="0.8")).met
    found = fixed(model, Fairness("sex"), threshold="0.3")
    assert found.met
    assert found.quality_after.positive_rate == pytest.approx(
        (found.model.predict_proba(TEST[INPUTS])[:, 1] >= 0.3).mean()
    )
    assert fixed(model, ScoreFairness("sex", at_most="0.05")).met


def test_a_threshold_for_each_group_cannot_be_repaired_and_says_so(model: Any) -> None:
    found = fixed(model, Fairness("sex"), threshold={"sex": {0: 0.3, 1: 0.7}})
    assert not found.met
    assert found.exit_code == 3


def test_without_test_rows_some_of_the_data_are_held_out_and_the_space_is_inferred(model: Any) -> None:
    found = repair(model, TRAIN, Fairness("sex"), label="granted", random_state=5)
    assert found.met
    assert found.quality_after.rows == 270
    assert "held out" in found.held_out
    again = repair(model, TRAIN, Fairness("sex"), label="granted", random_state=5)
    assert again.written.imported.ensemble.fingerprint() == found.written.imported.ensemble.fingerprint()


# --- ends before the end ---


def test_a_time_limit_returns_what_there_is_and_says_that_it_is_not_enough(model: Any) -> None:
    found = fixed(model, Fairness("sex"), time_limit=1e-6)
    assert not found.met
    assert found.stopped is Status.TIME
    assert "NOT met" in str(found)


def test_ctrl_c_returns_the_best_model_so_far(model: Any) -> None:
    def stop(step: Any) -> None:
        if step.round >= 3:
            raise KeyboardInterrupt

    found = fixed(model, Fairness("sex"), "0.99", progress=stop)
    assert found.stopped is Status.INTERRUPTED
    assert found.met  # the fair end of the mixture was measured first


def test_a_checkpoint_goes_on_where_it_was_and_refuses_another_repair(tmp_path: Path) -> None:
    path = tmp_path / "state"
    model, prop = noisy(), Robustness("0.02")
    level = Fraction(round(1000 * (0.08 + 0.92 * (quantify(model, SPACE, prop).value or 0))), 1000)
    whole = fixed(model, prop, level)

    def stop(step: Any) -> None:
        if step.what == "measuring" and step.round == 1:
            raise KeyboardInterrupt

    fixed(model, prop, level, checkpoint=path, progress=stop)
    assert path.exists()
    rounds: list[int] = []
    found = fixed(model, prop, level, checkpoint=path, progress=lambda step: rounds.append(step.round))
    assert rounds[1] == 1  # round 1 is not drawn and fitted again
    assert found.written.imported.ensemble.fingerprint() == whole.written.imported.ensemble.fingerprint()
    with pytest.raises(CheckpointError, match="of another repair"):
        fixed(model, prop, "0.96", checkpoint=path)
    path.write_text("nonsense")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        fixed(model, prop, level, checkpoint=path)


# --- mistakes ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "grantd"}, "label: the data has no column 'grantd' (did you mean 'granted'?)"),
        ({"label": "age"}, "label: 'age' of the data has the value"),
        ({"at_least": 1.5}, "at_least: "),
        ({"method": "magic"}, "method: 'magic' is unknown; methods are auto, prune, average, refit"),
        ({"on": "moon"}, "on: 'moon' is unknown"),
        ({"path": []}, "path: has no level"),
        ({"path": [0.9], "at_least": 0.9}, "path: has the levels; leave at_least out"),
        ({"prop": Fairness("sex", "0.1"), "method": "prune"}, "method: 'prune' is for epsilon = 0"),
        ({"prop": boxqte.Monotonicity("age", "increasing")}, "property: monotonicity cannot be repaired"),
        ({"prop": Fairness("colour")}, "sensitive: 'colour' is not an attribute"),
        ({"data": TRAIN.drop(columns="sex")}, "the table has no column 'sex' of the space"),
        ({"data": TRAIN.assign(granted=1)}, "label: every row of the data has 'granted' 1; both classes are needed"),
        ({"data": TRAIN.head(5), "test": None}, "data: has 5 rows; at least 20"),
        ({"data": TRAIN.assign(age=TRAIN["age"] + 900)}, "data: no row lies in the space"),
    ],
)
def test_a_mistake_is_one_line(model: Any, options: dict[str, Any], message: str) -> None:
    given = {"label": "granted", "space": SPACE, "test": TEST, **options}
    data, prop = given.pop("data", TRAIN), given.pop("prop", Fairness("sex"))
    with pytest.raises(BoxQTEError) as error:
        repair(model, data, prop, given.pop("at_least", None), **given)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_many_classes_are_refused_by_name() -> None:
    frame = TRAIN.assign(granted=TRAIN["group"])
    many = xgboost.XGBClassifier(n_estimators=2, n_jobs=1).fit(frame[INPUTS], frame["granted"])
    with pytest.raises(BoxQTEError, match="has 3 classes; repair is for models with two classes"):
        repair(many, frame, Fairness("sex"), label="granted", space=SPACE)


# --- the command ---


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(a) for a in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_writes_the_model_and_the_report(file: Path, tmp_path: Path, capsys: Any) -> None:
    TRAIN.to_csv(tmp_path / "train.csv", index=False)
    TEST.to_csv(tmp_path / "test.csv", index=False)
    SPACE.save(tmp_path / "space.json")
    base = [
        "repair",
        file,
        "--data",
        tmp_path / "train.csv",
        "--label",
        "granted",
        "--quiet",
        "-o",
        tmp_path / "new.json",
    ]
    both = ["--test", tmp_path / "test.csv", "--space", tmp_path / "space.json", "--json", tmp_path / "report.json"]
    certificate = ["--certificate", tmp_path / "proof"]
    code, out, _ = run(capsys, *base, *both, *certificate, "--sensitive", "sex", "--at-least", "1")
    assert code == 0
    assert "met, by exact measurement of the model as saved and read again" in out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["met"] is True
    assert report["after"][0]["lower"] == 1
    assert str(verify(tmp_path / "new.json", SPACE, Fairness("sex")).verdict) == "holds"
    code, _, _ = run(capsys, "certify", tmp_path / "proof", tmp_path / "new.json", "--space", tmp_path / "space.json")
    assert code == 0
    code, out, _ = run(capsys, *base, "--sensitive", "sex", "--path", "0.95,1", "--csv", tmp_path / "path.csv")
    assert code == 0
    assert pd.read_csv(tmp_path / "path.csv")["met"].tolist()[1:] == [True, True]
    code, _, err = run(capsys, *base, "--sensitive", "sex", "--time-limit", "0.000001")
    assert code == 3
    code, _, err = run(capsys, *base, "--sensitive", "sex", "--at-least", "2")
    assert code == 2
    assert err.count("\n") == 1
    assert "--at-least" in err


def test_without_scipy_one_line_says_how_to_get_it(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(BoxQTEError, match=r"repair needs SciPy: pip install 'boxqte\[repair\]'"):
        fixed(model, Fairness("sex"))


def test_rules_of_the_space_are_kept(model: Any) -> None:
    ruled = SPACE.with_rules(["not (age < 30 and income > 60)"])
    found = fixed(model, Fairness("sex"), space=ruled, changed_seconds=None)
    assert found.met
    every = pd.MultiIndex.from_product([range(18, 81), range(101), [0, 1], [0, 1, 2]], names=INPUTS).to_frame(
        index=False
    )
    kept = every[~((every["age"] < 30) & (every["income"] > 60))]
    differ = (model.predict(kept) != found.model.predict(kept)).mean()
    assert found.changed_mass is not None
    assert found.changed_mass.lower - 1e-9 <= differ <= found.changed_mass.upper + 1e-9
