"""An audit as a section of a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import boxqte
from boxqte.errors import ReportError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.space.attributes import Attribute
from tests.auditing.test_audit import INTERVAL, drawn_audit


def audited(**more: Any) -> boxqte.Audit:
    space = boxqte.Space([*loan_space(), Attribute.categorical("sex", ["f|m", "m"])])
    return boxqte.audit(
        loan_ensemble(), space=space, sensitive=["race", "sex"], robustness=0, engine="exhaustive", **more
    )


def test_the_card_has_every_answer_its_remark_and_what_it_is_about() -> None:
    card = audited().to_model_card()
    assert card.startswith("## Fairness and robustness\n\n")
    assert "| race | 0.697030 (exact) |" in card
    assert r"| sex | 1 (exact); the model does not read sex \[1\] |" in card
    assert r"- \[1\] The model does not read sex: the class never depends on it" in card
    assert r"- sex: categorical, {f\|m, m}" in card
    assert "| race | 2: 69.7 % | 3, 4: 100 % |" in card or "| race | 2: 69.7 % |" in card
    assert "Statistical intervals" not in card


def test_the_card_has_statistical_intervals_where_there_are_any() -> None:
    card = drawn_audit().to_model_card()
    assert INTERVAL in card
    assert "Statistical intervals come from random inputs" in card


def test_the_heading_may_be_another_one_or_none() -> None:
    found = audited()
    assert found.to_model_card(heading="### Bias").startswith("### Bias\n")
    assert found.to_model_card(heading="").startswith("Measured with")
    with pytest.raises(ReportError, match="heading: expected a line of Markdown, found 2"):
        found.to_model_card(heading=2)  # type: ignore[arg-type]


def test_skops_takes_the_section(tmp_path: Path) -> None:
    card = pytest.importorskip("skops.card")
    made = card.Card(None, template=None)
    made.add(**{"Fairness and robustness": audited().to_model_card(heading="")})
    assert "the model does not read sex" in made.render()


def test_the_command_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from boxqte.cli.main import main

    root = Path(__file__).resolve().parent.parent.parent / "examples"
    command = ["audit", str(root / "model.json"), "--space", str(root / "space.json"), "--sensitive", "sex", "--quiet"]
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--robustness-rate", "0", "--model-card", "card.md"]) == 0
    assert "Made by boxqte" in (tmp_path / "card.md").read_text(encoding="utf-8")
