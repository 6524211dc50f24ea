"""The options of confident partners, bounded changes, monotonicity and scores, in every command that takes a question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boxqte import Fairness, Monotonicity, Robustness, ScoreFairness
from boxqte.cli.arguments import property_of
from boxqte.cli.main import main, make_parser
from boxqte.cli.settings import settled
from boxqte.questions.reading import read_property

COMMANDS = {
    "quantify": "quantify model.json --space space.json --quiet --json -",
    "verify": "verify model.json --space space.json --json -",
    "regions": "regions model.json --space space.json --csv -",
    "blame": "blame model.json --space space.json --trees-only --quiet",
    "sample": "sample model.json --space space.json --quiet -n 3",
    "rows": "rows people.csv model.json --space space.json --only-rows -o -",
    "empirical": "empirical model.json --space space.json --data people.csv --json -",
}
QUESTIONS = {
    "--monotone age:increasing": Monotonicity("age"),
    "--monotone income:decreasing --on score": Monotonicity("income", "decreasing", "score"),
    "--sensitive sex --score-at-most 0.1 --scale margin": ScoreFairness("sex", "0.1", "margin"),
    "--sensitive age --max-change age=3 --kappa 0.6": Fairness("age", 0, "0.6", max_change={"age": 3}),
    "--sensitive sex,race --kappa 0.6 --partner-kappa 0.6": Fairness(["sex", "race"], 0, "0.6", partner_kappa="0.6"),
    "--epsilon age=2 --partner-kappa 0.6": Robustness({"age": 2}, partner_kappa="0.6"),
}


def read(line: str) -> Any:
    parser = make_parser()
    return property_of(parser.parse_args(settled(parser, line.split())))


@pytest.mark.parametrize("options", QUESTIONS)
@pytest.mark.parametrize("command", [*COMMANDS, "smtlib"])
def test_every_command_takes_every_question(folder: Path, command: str, options: str) -> None:
    line = COMMANDS.get(command, "smtlib model.json --space space.json -o -")
    assert read(f"{line} {options}") == QUESTIONS[options]


@pytest.mark.parametrize("options", [*QUESTIONS][:5])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_answers_every_question(
    folder: Path, command: str, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*COMMANDS[command].split(), *options.split()])
    out, err = capsys.readouterr()
    assert code in ((0, 1) if command in ("verify", "rows") else (0,)), err
    assert out
    if command in ("quantify", "empirical"):
        document = json.loads(out)
        assert read_property(document["property"]) == QUESTIONS[options]
        assert "lower" in (document["measure"] if command == "quantify" else document)
    if command == "verify":
        assert json.loads(out)["replayed"] is (True if code else None)


def test_verify_shows_the_librarys_own_scores(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["verify", "model.json", "--space", "space.json", "--monotone", "income:decreasing", "--on", "score"]) == 1
    )
    out = capsys.readouterr().out
    assert "monotonicity (score decreasing in income; kappa 0.5)" in out
    assert "the library's own scores are " in out


def test_a_requirement_on_a_monotone_attribute_is_judged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "quantify model.json --space space.json --quiet --monotone income:decreasing --require 1"
    assert main(line.split()) == 1
    out = capsys.readouterr().out
    assert "required             at least 1: violated" in out
    assert "of the confident inputs are treated monotonically in income" in out
    assert "has more of it, gets a higher class" in " ".join(out.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--monotone income", "--monotone: expected name:increasing or name:decreasing, found 'income'"),
        ("--monotone income:up", "--monotone: expected name:increasing or name:decreasing, found 'income:up'"),
        ("--monotone income:increasing,income:decreasing", "--monotone: 'income' is given twice"),
        ("--monotone income:increasing,age:increasing", "--monotone: one attribute a question, found income, age"),
        ("--monotone incom:increasing", "--monotone: 'incom' is not an attribute (did you mean 'income'?)"),
        ("--monotone sex:increasing", "--monotone: 'sex' is categorical; only numbers have an order"),
        ("--monotone age:increasing --sensitive sex", "nothing else changes; leave --sensitive out"),
        ("--monotone age:increasing --epsilon-rate 0.1", "nothing else changes; leave --epsilon-rate out"),
        ("--monotone age:increasing --max-change age=1", "nothing else changes; leave --max-change out"),
        ("--monotone age:increasing --score-at-most 1", "nothing else changes; leave --score-at-most out"),
        ("--on score --sensitive sex", "--on: belongs to --monotone; give it too"),
        ("--scale margin --sensitive sex", "--scale: belongs to --score-at-most; give it too"),
        ("--score-at-most 0.1", "--score-at-most: compares inputs that differ in --sensitive; give it too"),
        ("--score-at-most 2 --sensitive sex", "--score-at-most: probabilities differ by less than 1, found 2"),
        ("--score-at-most much --sensitive sex", "--score-at-most: expected a finite number, found 'much'"),
        (
            "--score-at-most 1 --scale value --sensitive sex",
            "--scale: 'value' is for models that predict a sum of trees",
        ),
        ("--score-at-most 1 --scale margin --sensitive sex --tie paper", "compares scores; leave --tie out"),
        ("--max-change age=5", "--max-change: bounds a sensitive attribute; give --sensitive too"),
        ("--max-change age=5 --sensitive sex", "--max-change: 'age' is not sensitive; sensitive are sex"),
        ("--max-change age=0 --sensitive age", "--max-change of 'age': must be above 0, found 0"),
        ("--max-change 5 --sensitive age", "--max-change: expected name=value, found '5'"),
        ("--max-change sex=1 --sensitive sex", "--max-change: 'sex' is categorical; only numbers have a distance"),
        ("--max-change age=1 --sensitive age --epsilon income=1", "--max-change: is for epsilon = 0"),
        ("--partner-kappa 1 --sensitive sex", "--partner-kappa: must be at least 0 and below 1, found 1"),
    ],
)
@pytest.mark.parametrize("command", ["quantify", "verify"])
def test_contradictions_are_one_line_in_the_words_of_the_command(
    folder: Path, command: str, options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMANDS[command].split(), *options.split()]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("boxqte: error: ")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--engine smt", "engine 'smt' asks of x' only that it differs, which is not enough"),
        ("--certificate proof", "certificate: there are none for monotonicity or bounded changes; leave it out"),
    ],
)
def test_what_is_not_answered_is_refused_by_name(
    folder: Path, options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"quantify model.json --space space.json --quiet --monotone income:increasing {options}"
    assert main(line.split()) == 2
    assert said in capsys.readouterr().err


def test_a_formula_of_probabilities_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            ["smtlib", "model.json", "--space", "space.json", "--sensitive", "sex", "--score-at-most", "0.1", "-o", "-"]
        )
        == 2
    )
    said = "--scale: a difference of probabilities is no formula of linear arithmetic; use --scale margin"
    assert said in capsys.readouterr().err


def test_settings_may_be_tables(folder: Path) -> None:
    text = "[quantify]\nspace = 'space.json'\nmonotone = { income = 'increasing' }\non = 'score'\n"
    text += "[verify]\nspace = 'space.json'\nsensitive = 'age'\nmax-change = { age = 2 }\npartner-kappa = 0.7\n"
    (folder / "boxqte.toml").write_text(text)
    assert read("quantify model.json") == Monotonicity("income", on="score")
    assert read("verify model.json") == Fairness("age", max_change={"age": 2}, partner_kappa="0.7")


def test_an_audit_takes_several_monotone_attributes_and_scores(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "audit model.json --space space.json --sensitive sex --quiet --robustness-rate 0 --time-limit 30 --json -"
    asked = " --monotone income:increasing,age:increasing --on score --score-at-most 0.1 --scale margin"
    assert main((line + asked).split()) == 0
    questions = json.loads(capsys.readouterr().out)["questions"]
    names = ["sex", "score by sex", "score increasing in income", "score increasing in age"]
    assert [question["name"] for question in questions] == names


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--on score", "--on: belongs to --monotone; give it too"),
        ("--scale margin", "--scale: belongs to --score-at-most; give it too"),
        ("--max-change age=1", "--max-change: 'age' is not sensitive; sensitive are sex"),
        ("--monotone sex:increasing", "--monotone: 'sex' is categorical; only numbers have an order"),
    ],
)
def test_an_audit_refuses_them_too(folder: Path, options: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"audit model.json --space space.json --sensitive sex --quiet {options}".split()) == 2
    assert said in capsys.readouterr().err
