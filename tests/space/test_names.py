"""Names that a library changes: XGBoost's categories beyond ASCII, LightGBM's columns with blanks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMClassifier
from xgboost import XGBClassifier

from boxqte import Attribute, Fairness, Space, SpaceError, quantify
from boxqte.certify import certify
from boxqte.models.category_names import StoredNames
from boxqte.models.importers import load_model

N = 200
CITIES = ("Wien", "München", "Köln", "été", "日本", "abc")


def table(names: tuple[str, ...], seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    city = pd.Categorical.from_codes(rng.permutation(np.arange(N) % len(names)), categories=list(names))
    return pd.DataFrame({"city": city, "x": rng.normal(size=N)})


def as_trained(frame: pd.DataFrame, names: tuple[str, ...], arrow: bool) -> Any:
    if not arrow:
        return frame
    city = pl.Series(frame["city"].astype(str).tolist(), dtype=pl.Enum(names))
    return pl.DataFrame({"city": city, "x": frame["x"].tolist()})


def model_on(frame: pd.DataFrame, names: tuple[str, ...], arrow: bool = False) -> Any:
    y = frame["city"].isin(names[::2]) ^ (frame["x"] > 0.5)
    model = XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1, enable_categorical=True)
    return model.fit(as_trained(frame, names, arrow), y)


def stored_as_pandas(names: tuple[str, ...]) -> StoredNames:
    """What XGBoost's own Python code makes of a pandas column: lengths in characters, and as many bytes."""
    ends = [0]
    for name in names:
        ends.append(ends[-1] + len(name))
    return StoredNames(tuple(ends), "".join(names).encode()[: ends[-1]])


def stored_as_arrow(names: tuple[str, ...]) -> StoredNames:
    ends = [0]
    for name in names:
        ends.append(ends[-1] + len(name.encode()))
    return StoredNames(tuple(ends), "".join(names).encode())


@pytest.mark.parametrize("arrow", [False, True])
@pytest.mark.parametrize("names", [CITIES, ("Amt", "Köln", "Wien"), ("ä", "b")])
def test_the_file_has_what_we_say_that_it_has(names: tuple[str, ...], arrow: bool) -> None:
    (stored,) = load_model(model_on(table(names), names, arrow)).ensemble.stored_names.values()
    assert stored == (stored_as_arrow if arrow else stored_as_pandas)(names)
    assert stored.are(names)
    assert not stored.are(names[::-1])


@pytest.mark.parametrize("source", ["categories", "texts", "file and csv"])
@pytest.mark.parametrize("arrow", [False, True])
def test_names_beyond_ascii_are_matched_with_the_table(source: str, arrow: bool, tmp_path: Path) -> None:
    frame = table(CITIES)
    model: Any = model_on(frame, CITIES, arrow)
    expected = model.predict(as_trained(frame, CITIES, arrow))
    rows: Any = frame if source == "categories" else frame.astype({"city": str})
    if source == "file and csv":
        model.save_model(tmp_path / "m.json")
        model = tmp_path / "m.json"
        rows.to_csv(tmp_path / "t.csv", index=False)
        rows = pd.read_csv(tmp_path / "t.csv")
    imported = load_model(model)
    space = Space.infer(rows, model=imported).space
    city = space["city"]
    assert city.values == CITIES
    assert city.codes == tuple((float(code),) for code in range(6))
    codes = frame["city"].map(dict(zip(city.values, range(6)))).astype(float)
    np.testing.assert_array_equal(imported.ensemble.predict(np.column_stack([codes, frame["x"]])), expected)
    by_hand = Space([Attribute.categorical("city", sorted(CITIES)), space["x"]])
    result = quantify(imported, by_hand, Fairness(["city"]), certificate=tmp_path / "c", workers=1)
    assert result.value == pytest.approx(quantify(imported, space, Fairness(["city"])).value, abs=1e-11)
    assert certify(tmp_path / "c", imported.ensemble, space=by_hand, workers=1).open_boxes == 0


def test_names_that_nothing_tells_apart_are_refused_with_the_way_out() -> None:
    names = ("日本", "東京", "京都", "大阪")
    frame = table(names)
    model = load_model(model_on(frame, names))
    assert Space.infer(frame, model=model).space["city"].values == names  # the dtype has XGBoost's own order
    texts = frame.astype({"city": str})
    with pytest.raises(
        SpaceError, match="column 'city': XGBoost has cut the names of the model's 4 categories"
    ) as caught:
        Space.infer(texts, model=model)
    assert "'codes'" in str(caught.value)
    codes = {"city": {"codes": [names.index(name) for name in sorted(names)]}}
    given = Space.infer(texts, model=model, overrides=codes).space
    assert given["city"].values == tuple(sorted(names))
    x = given["x"]
    with pytest.raises(SpaceError, match="attribute 'city': XGBoost has cut the names"):
        quantify(model, Space([Attribute.categorical("city", names), x]), Fairness(["city"]))
    declared = frame.assign(city=frame["city"].cat.reorder_categories(sorted(names)))
    with pytest.raises(SpaceError, match="do not tell which is which"):
        Space.infer(declared, model=model)


def test_a_category_that_the_table_does_not_have_leaves_a_cut_name_unknown() -> None:
    frame = table(CITIES)
    model = load_model(model_on(frame, CITIES))
    texts = frame.astype({"city": str})
    with pytest.raises(SpaceError, match="has cut the names"):
        Space.infer(texts[texts["city"] != "abc"], model=model)
    without_whole = texts[texts["city"] != "Wien"]  # which the file has as a whole
    assert Space.infer(without_whole, model=model).space["city"].values == CITIES


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("aäb日", min_size=1, max_size=3), min_size=1, max_size=6, unique=True), st.randoms())
def test_what_is_matched_is_what_was_stored(names: list[str], rng: Any) -> None:
    shuffled = names.copy()
    rng.shuffle(shuffled)
    for stored in (stored_as_pandas(tuple(names)), stored_as_arrow(tuple(names))):
        assert stored.are(names)
        if not "".join(names).isascii():
            assert stored.among(shuffled) in (None, tuple(names))


def test_damaged_names_are_no_names() -> None:
    for stored in (
        StoredNames((0, 2), b"\xff\xfe"),
        StoredNames((0, 1, 1), b"\xc3"),
        StoredNames((0, 0, 3), b"\xe6\x97\xa5"),
    ):
        assert stored.among(["x", "y"]) is None
        assert stored.among([0, 1]) is None


# ---------------------------------------------------------------------------------------------------------------------
# LightGBM


def test_columns_that_lightgbm_renames_are_found_by_their_own_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age in years": rng.integers(20, 60, N),
            "race (self)": pd.Categorical(rng.choice(["a", "b c"], N)),
            "x_y": 1.0 * (np.arange(N) % 7),
        }
    )
    y = (frame["age in years"] > 40) ^ (frame["race (self)"] == "a")
    model = LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(frame, y)
    model.booster_.save_model(tmp_path / "m.txt")
    imported = load_model(tmp_path / "m.txt")
    assert imported.ensemble.feature_names == ("age_in_years", "race_(self)", "x_y")
    space = Space.infer(frame, model=imported).space
    assert space.names == ("age in years", "race (self)", "x_y")
    assert space["race (self)"].values == ("a", "b c")
    result = quantify(imported, space, Fairness(["race (self)"]), certificate=tmp_path / "c", workers=1)
    assert result.value < 1
    proved = certify(tmp_path / "c", imported.ensemble, space=space, workers=1).measure
    assert proved is not None
    assert proved[0] <= result.value <= proved[1]
    renamed = Space([Attribute.integer("age_in_years", 20, 59), Attribute.categorical("race_(self)", ["a", "b c"]),
                     Attribute.integer("x_y", 0, 6)])  # fmt: skip
    assert quantify(imported, renamed, Fairness(["race_(self)"])).value == pytest.approx(result.value, abs=1e-11)
    with pytest.raises(SpaceError, match="model: there is no column 'race_\\(self\\)'"):
        Space.infer(frame.rename(columns={"race (self)": "race"}), model=imported)
