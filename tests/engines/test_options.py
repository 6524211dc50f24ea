"""Options of engines: the table that is read from a dataclass, and texts converted to the declared types."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from boxqte.engines import ENGINES
from boxqte.engines.options import engine_options, read_options
from boxqte.errors import EngineError


@dataclass(frozen=True)
class Options:
    depth: int = 3
    """How deep
    it looks."""
    share: float = 0.5
    fast: bool = False
    order: Literal["volume", "cost"] = "volume"
    seed: int | None = None
    level: float = field(default=1.0, metadata={"help": "from the metadata"})
    name: str = "x"


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "an_engine", SimpleNamespace(Engine=SimpleNamespace(Options=Options)))
    monkeypatch.setitem(ENGINES, "mine", "an_engine:Engine")


def test_the_table_has_name_type_default_and_help_of_each_option() -> None:
    table = {option.name: option for option in engine_options("mine")}
    assert list(table) == ["depth", "share", "fast", "order", "seed", "level", "name"]
    assert (table["depth"].default, table["depth"].help) == (3, "How deep it looks.")
    assert table["share"].help == ""
    assert table["level"].help == "from the metadata"
    assert table["order"].describe_type() == "volume or cost"
    assert table["seed"].describe_type() == "int or none"


def test_a_dataclass_without_source_has_options_without_help(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_source(_: object) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr("inspect.getsource", no_source)
    assert engine_options("mine")[0].help == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("depth=7", 7),
        ("depth=1e6", 10**6),
        ("depth=1_000", 1000),
        (" depth = 4", 4),
        ("share=.25", 0.25),
        ("fast=true", True),
        ("fast=No", False),
        ("order=cost", "cost"),
        ("seed=none", None),
        ("seed=5", 5),
        ("name=a=b", "a=b"),
    ],
)
def test_a_text_becomes_a_value_of_the_declared_type(text: str, value: Any) -> None:
    (read,) = read_options("mine", [text]).values()
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["depth=deep"], "option 'depth' takes int, found 'deep'"),
        (["depth=1.5"], "option 'depth' takes int, found '1.5'"),
        (["depth=inf"], "option 'depth' takes int, found 'inf'"),
        (["share=nan"], "option 'share' takes float, found 'nan'"),
        (["fast=maybe"], "option 'fast' takes bool, found 'maybe'"),
        (["order=size"], "option 'order' takes volume or cost, found 'size'"),
        (["seed=x"], "option 'seed' takes int or none, found 'x'"),
        (["width=1"], "option 'width' is unknown; options are depth, share"),
        (["depth=1", "depth=2"], "option 'depth' is given twice"),
        (["depth"], "option 'depth': expected name=value"),
        (["=1"], "option '=1': expected name=value"),
    ],
)
def test_a_text_that_does_not_fit_is_refused_by_name(texts: list[str], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        read_options("mine", texts)


@pytest.mark.parametrize("name", list(ENGINES))
def test_every_option_of_every_engine_has_a_help_text_and_a_default_it_accepts(name: str) -> None:
    for option in engine_options(name):
        assert option.help, f"option '{option.name}' of engine '{name}' has no help"
        assert read_options(name, [f"{option.name}={option.default}"]) == {option.name: option.default}
