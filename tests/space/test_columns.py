"""What the columns of a table say about attributes: plain ones, one-hot groups, an encoder's input, the user's wishes."""

from __future__ import annotations

import pandas as pd
import pytest

from boxqte import Attribute, EnsembleBuilder, Space, SpaceError
from boxqte.models.ensemble import Test
from boxqte.space.columns import attribute_columns, model_view, plain_columns, read_wishes
from boxqte.space.tables import table_of

FRAME = pd.DataFrame({"age": [20, 30], "race_a": [1, 0], "race_b": [0, 1], "label": [0, 1]})


def stump(names: list[str]) -> object:
    builder = EnsembleBuilder()
    builder.add_tree(feature=[0, 0, 0], test=[Test.LESS_F32, Test.LEAF, Test.LEAF], threshold=[25.0, 0, 0], left=[1, 0, 0],
                     right=[2, 0, 0], value=[0.0, 1.0, -1.0])  # fmt: skip
    return builder.build(library="example", feature_names=names, base=(0,), link="sigmoid")


def test_the_label_is_no_attribute_and_must_be_there() -> None:
    assert attribute_columns(table_of(FRAME), "label") == ("age", "race_a", "race_b")
    with pytest.raises(SpaceError, match="'lable'"):
        attribute_columns(table_of(FRAME), "lable")


def test_a_group_of_flags_takes_the_place_of_its_first_column() -> None:
    table = table_of(FRAME)
    view = model_view(None, None, attribute_columns(table, "label"))
    assert [r.name for r in plain_columns(table, view, "auto", {})[0]] == ["age", "race"]
    alone, lookalikes = plain_columns(table, view, None, {})
    assert [r.name for r in alone] == ["age", "race_a", "race_b"]
    assert [found.columns for found in lookalikes] == [("race_a", "race_b")]
    declared, _ = plain_columns(table, view, {"origin": ["race_a", "race_b"]}, {})
    assert declared[1].settled is not None
    assert declared[1].settled.columns == ("race_a", "race_b")


def test_a_model_says_which_columns_reach_it() -> None:
    view = model_view(stump(["age"]), None, ("age", "race_a", "race_b"))
    assert view.reads == ("age",)
    assert view.why_left_out == "the model does not read it"
    with pytest.raises(SpaceError, match="height"):
        model_view(stump(["age", "height"]), None, ("age", "race_a"))


def test_a_model_without_names_reads_by_position() -> None:
    assert model_view(stump(["f0", "f1"]), None, ("age", "income")).reads == ("age", "income")


def test_wishes_are_kinds_fields_or_whole_attributes() -> None:
    whole = Attribute.integer("age", 0, 99)
    wishes = read_wishes(
        {"categorical": ["race"], "integer": [], "real": []}, {"age": whole, "income": {"low": 0}, "job": "categorical"}
    )
    assert wishes["race"].kind == "categorical"
    assert wishes["age"].whole == whole
    assert dict(wishes["income"].fields) == {"low": 0}
    assert wishes["job"].kind == "categorical"
    with pytest.raises(SpaceError, match="categorical"):
        read_wishes({"categorical": ["age"], "integer": ["age"], "real": []}, {})


def test_the_space_of_a_table_has_one_attribute_a_reading() -> None:
    assert Space.from_data(FRAME, label="label").names == ("age", "race")
