"""Integers that look like codes are asked about."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from boxqte import Space
from boxqte.cli.main import main

RNG = np.random.default_rng(7)
ROWS = 4000
RATES = RNG.permutation(np.linspace(0.1, 0.9, 30))
OFTEN = RNG.permutation(np.geomspace(1, 50, 30))
CODE = RNG.choice(30, ROWS, p=OFTEN / OFTEN.sum())


def table() -> pd.DataFrame:
    return pd.DataFrame({
        "native_country": RNG.integers(0, 41, ROWS),
        "kind_of_shop": np.where(RNG.random(ROWS) < 0.02, 999, RNG.integers(0, 20, ROWS)),
        "shop": np.where(RNG.random(ROWS) < 0.02, 999, RNG.integers(0, 20, ROWS)),
        "v": CODE,
        "age": RNG.integers(17, 90, ROWS),
        "num_countries": RNG.integers(0, 41, ROWS),
        "race": RNG.integers(0, 5, ROWS),
        "label": (RNG.random(ROWS) < RATES[CODE]).astype(int),
    })  # fmt: skip


def asked(frame: pd.DataFrame, **options: object) -> dict[str, str]:
    notes = Space.infer(frame, **options).notes
    assert all(note.startswith("note: ") for note in notes)
    return {note.split(": ")[1]: note for note in notes}


def test_codes_are_asked_about_and_numbers_are_not() -> None:
    notes = asked(table(), label="label")
    assert [*notes] == ["native_country", "kind_of_shop", "shop", "v"]
    assert notes["native_country"] == (
        "note: native_country: 41 distinct integers 0 .. 40 look like codes (by its name), taken as numbers; if they are "
        "categories, categorical=['native_country']; if not, integer=['native_country']"
    )
    assert "(999 is far from the others, which follow each other)" in notes["shop"]
    assert "neighbours have as little in common as any two of them" in notes["v"]
    assert "v" not in asked(table().drop(columns="label"))


def test_an_order_that_the_label_follows_is_no_code() -> None:
    frame = table()
    frame["v"] = np.argsort(np.argsort(RATES))[CODE]  # the same values, in the order of their label rates
    assert "v" not in asked(frame, label="label")


def test_who_answers_is_not_asked_again() -> None:
    assert "native_country" not in asked(table(), label="label", categorical=["native_country"])
    assert "native_country" not in asked(table(), label="label", integer=["native_country"])
    assert "v" not in asked(table(), label="label", overrides={"v": {"low": 0}})


def test_what_the_model_treats_as_categories_is_settled() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    frame = table()
    rows = frame.drop(columns="label")
    for settled in (["native_country"], []):
        model = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(
            rows, frame["label"], categorical_feature=settled
        )
        assert ("native_country" in asked(frame, label="label", model=model)) != bool(settled)


def test_commands_ask_in_their_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    xgboost = pytest.importorskip("xgboost")
    monkeypatch.chdir(tmp_path)
    frame = table()[["native_country", "age", "label"]]
    frame.to_csv(tmp_path / "people.csv", index=False)
    model = xgboost.XGBClassifier(n_estimators=3, max_depth=2).fit(frame[["native_country", "age"]], frame["label"])
    model.save_model(tmp_path / "model.json")
    words = "if they are categories, --categorical native_country; if not, --integer native_country"
    assert main(["space", "infer", "people.csv", "--label", "label", "-o", "s.json"]) == 0
    assert words in capsys.readouterr().out
    audit = ["audit", "model.json", "--data", "people.csv", "--label", "label", "--sensitive", "age", "--quiet"]
    assert main([*audit, "--html", "r.html", "--json", "r.json"]) == 0
    assert words in capsys.readouterr().out
    assert words in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert words in json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["inference"]["notes"][0]
