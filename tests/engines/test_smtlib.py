"""The formulas as SMT-LIB 2: z3 and cvc5 read them and agree with the oracle about whether they can be satisfied."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import cvc5
import pytest
import z3

from boxqte import Attribute, Fairness, Space
from boxqte.cli.main import main
from boxqte.engines.smt.formula import FORMULAS, FormulaName, number, smtlib
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_grid
from boxqte.questions.grid import Grid
from tests.naive import naive_row_at, naive_rows
from tests.strategies import Problem, random_problem

APPENDIX = Fairness("race", {"income": 5, "age": 5}, 0.8)


def by_z3(script: str) -> str:
    solver = z3.Solver()
    solver.from_string(script)
    return str(solver.check())


def by_cvc5(script: str) -> str:
    solver = cvc5.Solver(cvc5.TermManager())
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script, "formula")
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said += command.invoke(solver, parser.getSymbolManager())
    return said.strip()


def expected(problem: Problem) -> dict[FormulaName, str]:
    """What the oracle says: points without mass are inputs too."""
    rows = list(naive_rows(*problem))
    there = {
        "unfair": any(row.counterexample for row in rows),
        "kappa": any(row.confident for row in rows),
        "not-kappa": any(not row.confident for row in rows),
    }
    return {name: "sat" if there[name] else "unsat" for name in FORMULAS}


def assert_all_agree(seed: int, **more: bool) -> set[str]:
    problem = random_problem(random.Random(seed), max_pieces=200, max_pairs=20_000, **more)
    grid, answers = build_grid(*problem), expected(problem)
    for name in FORMULAS:
        script = smtlib(grid, name)
        assert by_z3(script) == answers[name], (seed, name)
        assert by_cvc5(script) == answers[name], (seed, name)
    return {f"{name} {answer}" for name, answer in answers.items()}


def test_z3_and_cvc5_agree_with_the_oracle_on_random_problems() -> None:
    seen: set[str] = set()
    for seed in range(60):
        seen |= assert_all_agree(seed)
    assert len(seen) == 6  # every formula was satisfiable at times, and unsatisfiable at times


def test_z3_and_cvc5_agree_with_the_oracle_on_random_decision_rules() -> None:
    for seed in range(20):
        assert_all_agree(seed, decision=True)


@pytest.mark.slow
def test_z3_and_cvc5_agree_with_the_oracle_on_many_random_problems() -> None:
    for seed in range(1000, 1500):
        assert_all_agree(seed)
        assert_all_agree(seed, decision=True)


# --- the paper's appendix ---


def loan(prop: Fairness = APPENDIX) -> Grid:
    return build_grid(loan_ensemble(), loan_space(), prop)


def test_the_formula_of_the_papers_appendix_is_written() -> None:
    script = smtlib(loan(), "unfair")
    lines = [line.partition(" ;")[0] for line in script.splitlines()]
    # domains
    for domain in ("(assert (<= 0.0 x0 1000.0))", "(assert (<= 0 x1 4))", "(assert (<= 0 x2 100))"):
        assert domain in lines
        assert (
            domain.replace(" x", " |x").replace("|x0", "|x0'|").replace("|x1", "|x1'|").replace("|x2", "|x2'|") in lines
        )
    # paths 0..8 of three trees: condition, value, number (values are multiples of 2^-58; the comment has the number)
    paths = {
        0: ("(and (<= x1 1) (< x0 300.0))", "p0", "-0.17"),
        1: ("(and (<= x1 1) (>= x0 300.0))", "p0", "0.85"),
        2: ("(>= x1 2)", "p0", "-0.02"),
        3: ("(and (< x0 600.0) (<= x1 2))", "p1", "0.7"),
        4: ("(and (< x0 600.0) (>= x1 3))", "p1", "1.62"),
        5: ("(and (>= x0 600.0) (< x2 50))", "p1", "-0.19"),
        6: ("(and (>= x0 600.0) (>= x2 50))", "p1", "1.75"),
        7: ("(< x2 50)", "p2", "0.72"),
        8: ("(>= x2 50)", "p2", "-1.3"),
    }
    for leaf, (condition, p, value) in paths.items():
        (line,) = [line for line in script.splitlines() if f"(= {p} {leaf})))" in line]
        assert line.startswith(f"(assert (=> {condition} (and (= v{p[1]} ")
        assert line.endswith(f"; {value}")
        units = number(Fraction(float(value)) * 2**58, "Real")
        assert f"(= v{p[1]} {units})" in line
    # |F| > logit(0.8) = ln 4 = 1.386..., race differs, income and age within 5, and different classes
    level = (
        int(z3.simplify(z3.RealVal("1.38629436111989061883446424291635313615100026872051") * 2**58).as_fraction() // 1)
        + 1
    )
    assert f"(assert (or (>= F {level}.0) (<= F (- {level}.0))))" in lines
    for condition in (
        "(assert (<= (- 5.0) (- x0 |x0'|) 5.0))",
        "(assert (distinct x1 |x1'|))",
        "(assert (<= (- 5) (- x2 |x2'|) 5))",
        "(assert (or (and (>= F 1.0) (<= |F'| 0.0)) (and (<= F 0.0) (>= |F'| 1.0))))",
    ):
        assert condition in lines


def test_a_model_of_the_appendix_formula_is_a_counterexample_pair() -> None:
    solver = z3.Solver()
    solver.from_string(smtlib(loan(), "unfair"))
    assert solver.check() == z3.sat
    model = solver.model()

    def point(prime: str) -> dict[str, object]:
        income = model.eval(z3.Real(f"x0{prime}"), model_completion=True).as_fraction()
        race, age = (model.eval(z3.Int(f"x{i}{prime}"), model_completion=True).as_long() for i in (1, 2))
        return {"income": Fraction(income), "race": race, "age": age}

    x, other = point(""), point("'")
    row = naive_row_at(loan_ensemble(), loan_space(), APPENDIX, x)
    assert row.counterexample
    assert (other["race"],) in row.witness_values
    assert naive_row_at(loan_ensemble(), loan_space(), APPENDIX, other).class_ != row.class_


def test_epsilon_is_a_closed_distance() -> None:
    # The paper's formula has <, which no pair satisfies for epsilon 0; the definitions have <=.
    assert by_z3(smtlib(loan(Fairness("race")), "unfair")) == "sat"


def test_where_every_input_is_confident_not_kappa_is_false_at_once() -> None:
    assert "(assert false)" in smtlib(loan(Fairness("race")), "not-kappa")


def test_names_cannot_break_the_script() -> None:
    space = Space([Attribute.real("a |b|\n(check-sat)", 0, 1000), *loan_space().attributes[1:]])
    model = loan_ensemble()
    object.__setattr__(model, "feature_names", ("a |b|\n(check-sat)", "race", "age"))
    script = smtlib(build_grid(model, space, Fairness("race")), "unfair")
    assert by_z3(script) == by_cvc5(script) == "sat"
    assert script.count("\n(check-sat)") == 1


# --- the command ---

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", FORMULAS)
def test_the_command_writes_what_the_library_writes(
    name: FormulaName, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = [
        str(EXAMPLES / "model.json"),
        "--space",
        str(EXAMPLES / "space.json"),
        "--sensitive",
        "sex",
        "--kappa",
        "0.7",
    ]
    file = tmp_path / "question.smt2"
    assert main(["smtlib", *question, "--formula", name, "-o", str(file)]) == 0
    assert main(["smtlib", *question, "--formula", name, "-o", "-"]) == 0
    assert capsys.readouterr().out == file.read_text()
    assert by_z3(file.read_text()) == by_cvc5(file.read_text()) == "sat"


def test_a_file_that_cannot_be_written_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    question = [str(EXAMPLES / "model.json"), "--space", str(EXAMPLES / "space.json"), "--sensitive", "sex"]
    assert main(["smtlib", *question, "-o", "/nowhere/question.smt2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
