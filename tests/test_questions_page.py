"""The table of docs/questions.md: every entry is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import boxqte
from boxqte import Fairness, Monotonicity, ScoreFairness, Space
from boxqte.errors import BoxQTEError
from boxqte.questions.properties import Property

ROOT = Path(__file__).parents[1]
MODEL, SPACE, PEOPLE = (ROOT / "examples" / name for name in ("model.json", "space.json", "people.csv"))
QUESTIONS: dict[str, Property] = {
    "fairness": Fairness("sex"),
    "confident partners": Fairness("sex", kappa=0.55, partner_kappa=0.55),
    "bounded change": Fairness("age", max_change={"age": 5}),
    "score (margin)": ScoreFairness("sex", 0.01, "margin"),
    "score (probability)": ScoreFairness("sex", 0.01),
    "monotone class": Monotonicity("age", "decreasing"),
    "monotone score": Monotonicity("age", "decreasing", "score"),
    "with rules": Fairness("sex"),
}
RULE = "not (sex == f and age < 25)"


def tried(what: str, question: str, folder: Path) -> None:
    prop, space = QUESTIONS[question], Space.load(SPACE)
    if question == "with rules":
        space = space.with_rules(RULE)

    def asked(prop: Property, engine: str = "box", **options: Any) -> boxqte.Quantification:
        return boxqte.quantify(MODEL, space, prop, engine=engine, time_limit=1, **options)

    if what.startswith("engine "):
        asked(prop, what.removeprefix("engine "))
    elif what in ("certificate", "checkpoint"):
        asked(prop, **{what: folder / what})
    else:
        people = pd.read_csv(PEOPLE)
        table: dict[str, Callable[[], object]] = {
            "verify": lambda: boxqte.verify(MODEL, space, prop, time_limit=5),
            "regions": lambda: asked(prop).regions(),
            "sample": lambda: asked(prop).sample(5),
            "pairs": lambda: asked(prop).pairs(),
            "restrict": lambda: asked(prop).restrict("age < 50"),
            "profile": lambda: asked(prop).profile("age"),
            "blame": lambda: asked(prop).blame(people, "granted", splits=False),
            "check (rows)": lambda: boxqte.check(MODEL, space, prop, people),
            "empirical": lambda: boxqte.empirical(MODEL, space, prop, people),
        }
        table[what]()


def entries() -> Iterator[tuple[str, str, str]]:
    page = (ROOT / "docs" / "questions.md").read_text().split("\n## What answers what")[1]
    lines = page.split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert rows[0][1:] == list(QUESTIONS)
    for row in rows[2:]:
        for question, said in zip(rows[0][1:], row[1:]):
            yield row[0], question, said


@pytest.mark.parametrize(("what", "question", "said"), list(entries()))
def test_the_table_says_what_is_so(what: str, question: str, said: str, tmp_path: Path) -> None:
    if said == "yes":
        tried(what, question, tmp_path)
        return
    assert said == "no"
    with pytest.raises(BoxQTEError) as error:
        tried(what, question, tmp_path)
    assert "\n" not in str(error.value)
    assert any(way in str(error.value) for way in ("engine", "use ", "leave "))
