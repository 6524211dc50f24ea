"""The decision rule: every engine and every answer against the oracle, exactly; what cannot be a rule is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from boxqte import Attribute, Fairness, Space, load_model, quantify, verify
from boxqte import check as check_table
from boxqte.answers.checkpoint import identity
from boxqte.engines.exhaustive import Exhaustive
from boxqte.engines.protocol import Limits, Watch
from boxqte.errors import BoxQTEError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.decision import DecisionRule
from boxqte.questions.building import build_grid
from boxqte.testers import find_idis
from tests.naive import Oracle, naive_class, naive_margin, naive_quantify
from tests.net import check
from tests.strategies import Problem, problems, random_problem

SMALL = {"max_pieces": 200, "max_pairs": 10_000, "decision": True}


def agrees(problem: Problem) -> None:
    """The exhaustive engine's masses are the oracle's rationals."""
    limits = Limits()
    decided = Exhaustive().run(build_grid(*problem), limits, Watch(limits)).decided
    true = naive_quantify(*problem)
    assert Fraction(decided.fair) + Fraction(decided.unfair) == true.confident
    assert Fraction(decided.unfair) == true.counterexample
    assert decided.undecided == 0


@settings(max_examples=120, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems(**SMALL))
def test_the_measure_equals_the_oracle_on_what_hypothesis_thinks_of(problem: Problem) -> None:
    agrees(problem)


@pytest.mark.parametrize("part", range(2))
def test_the_measure_equals_the_oracle_on_random_rules(part: int) -> None:
    for seed in range(100 * part, 100 * part + 100):
        agrees(random_problem(random.Random(f"decision {seed}"), **SMALL))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_the_measure_equals_the_oracle_on_thousands_more(part: int) -> None:
    for seed in range(1_000 + 100 * part, 1_100 + 100 * part):
        agrees(random_problem(random.Random(f"decision {seed}"), decision=True))


@pytest.mark.parametrize("block", range(3))
def test_everything_derived_equals_the_oracle(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        check(f"decision {seed}", decision=True)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_everything_derived_equals_the_oracle_on_thousands_more(block: int) -> None:
    for seed in range(1_000 + 100 * block, 1_100 + 100 * block):
        check(f"decision {seed}", decision=True)


def test_a_partner_in_a_cell_that_a_restriction_divides_stays_in_it() -> None:
    check("decision 2682", decision=True)


def test_an_empty_side_of_a_split_is_nothing_to_settle() -> None:
    check("decision 4277", decision=True)


ENGINES = {"smt": 8, "cegar": 8, "box": 25, "auto": 10, "sample": 4}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_equals_the_oracle(engine: str) -> None:
    for seed in range(ENGINES[engine]):
        engine_agrees(engine, seed)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["smt", "cegar", "auto"])
def test_every_engine_equals_the_oracle_on_hundreds_more(engine: str) -> None:
    for seed in range(1_000, 1_200):
        engine_agrees(engine, seed)


def engine_agrees(engine: str, seed: int) -> None:
    sizes = {"max_pieces": 40, "max_pairs": 1_500, "max_attributes": 3, "max_trees": 4, "decision": True}
    problem = random_problem(random.Random(f"engine {seed}"), **sizes)
    options = {"points": 400, "seed": seed} if engine == "sample" else {}
    result, true = quantify(*problem, engine=engine, workers=1, options=options), naive_quantify(*problem)
    assert result.model.decision == problem.ensemble.decision
    if engine != "sample":
        assert result.converged
        assert abs(result.counterexample.upper - result.counterexample.lower) < 1e-9
    assert result.counterexample.lower <= true.counterexample <= result.counterexample.upper
    assert result.confident.lower <= true.confident <= result.confident.upper
    if true.measure is not None and result.bounds is not None:
        assert result.bounds.lower <= true.measure <= result.bounds.upper


def test_what_rounding_could_decide_otherwise_is_reported() -> None:
    """A threshold on a margin that occurs: all inputs with that margin could be decided either way."""
    plain = loan_ensemble()
    values = [float(v) for v in {naive_margin(plain, loan_space(), x) for x in some_points()}]
    for value in values:
        near = replace(plain, decision=DecisionRule(((None, Fraction(value)),), on="margin"))
        result = quantify(near, loan_space(), Fairness("race"), engine="exhaustive")
        assert result.rounding_ambiguous
        beside = replace(plain, decision=DecisionRule(((None, Fraction(value) + Fraction(1, 1000)),), on="margin"))
        assert quantify(beside, loan_space(), Fairness("race"), engine="exhaustive").rounding_ambiguous == 0


def some_points() -> list[dict[str, object]]:
    return [{"income": Fraction(i), "race": r, "age": a} for i in (100, 450, 800) for r in range(5) for a in (20, 70)]


def test_equal_thresholds_for_all_groups_are_one_threshold() -> None:
    one = load_model(loan_ensemble(), threshold="0.45")
    each = load_model(loan_ensemble(), threshold={"race": dict.fromkeys(range(5), "0.45")})
    for prop in (Fairness("race"), Fairness("age", kappa="0.6"), Fairness("race", epsilon={"income": 50})):
        two = [quantify(model, loan_space(), prop, engine="exhaustive") for model in (one, each)]
        assert two[0].exact == two[1].exact
        assert two[0].decided == two[1].decided


def test_a_group_that_the_model_does_not_know_is_all_that_makes_it_unfair() -> None:
    """The model never sees `union`; its thresholds do, and turn the inputs whose probability lies between them."""
    space = Space([*loan_space().attributes, Attribute.categorical("union", ["no", "yes"])])
    margins = sorted({naive_margin(loan_ensemble(), loan_space(), x) for x in some_points()})
    low, high = (
        1 / (1 + np.exp(-float((a + b) / 2))) for a, b in ((margins[0], margins[1]), (margins[-2], margins[-1]))
    )
    model = load_model(loan_ensemble(), threshold={"union": {"no": round(low, 6), "yes": round(high, 6)}})
    found = quantify(model, space, Fairness("union"), engine="exhaustive")
    assert found.exact == naive_quantify(model.ensemble, space, Fairness("union")).measure
    assert found.exact is not None
    assert 0 < found.exact < 1
    same = load_model(loan_ensemble(), threshold={"union": {"no": 0.4, "yes": 0.4}})
    assert quantify(same, space, Fairness("union"), engine="exhaustive").exact == 1
    pair = verify(model, space, Fairness("union"))
    assert "union" in pair.changes
    assert pair.decision == model.ensemble.decision.text()  # type: ignore[union-attr]
    idis = find_idis(model, space, "union", method="themis", tests=200, random_state=0)
    assert len(idis)
    assert idis.rejected == 0


def test_rows_are_judged_by_the_threshold_of_their_group() -> None:
    rng = random.Random(5)
    for seed in range(40):
        problem = random_problem(random.Random(f"rows {seed}"), real=False, missing=False, eps=False, **SMALL)
        points = [{a.name: rng.choice(pieces_of(a)) for a in problem.space} for _ in range(12)]
        table = {a.name: [x[a.name] for x in points] for a in problem.space}
        oracle = Oracle(*problem)
        found = check_table(*problem, table).table["verdict"].tolist()
        for x, said in zip(points, found):
            row = oracle.row(x, {})
            assert said == ("not confident" if not row.confident else "unfair" if row.counterexample else "fair")


def pieces_of(attribute: Attribute) -> list[object]:
    if attribute.is_numeric:
        return list(range(int(attribute.low), int(attribute.high) + 1))
    return list(attribute.values)


def test_predict_is_the_oracles_class_also_by_group() -> None:
    from boxqte.answers.values import GridValues

    for seed in range(60):
        problem = random_problem(random.Random(f"predict {seed}"), paper_ties=False, **SMALL)
        grid, oracle = build_grid(*problem), Oracle(*problem)
        values, rng = GridValues(grid), np.random.default_rng(seed)
        cells = np.stack([rng.integers(0, len(axis.refined), 8) for axis in grid.axes], axis=1)
        columns = values.draw(cells, rng)
        classes = problem.ensemble.predict(values.matrix(columns))
        for i in range(len(cells)):
            x = {a.name: _value(a, float(column[i])) for a, column in zip(problem.space, columns)}
            assert classes[i] == oracle.class_of(x)


def _value(attribute: Attribute, number: float) -> object:
    if np.isnan(number) or (not attribute.is_numeric and number < 0):
        return None
    if attribute.kind == "real":
        return Fraction(number)
    return int(number) if attribute.is_numeric else attribute.values[int(number)]


def test_a_tie_is_class_1_unless_it_is_excluded() -> None:
    """p = tau exactly: a mean of trees, and a margin of 0 at one half."""
    half = replace(loan_ensemble(), decision=DecisionRule(((None, Fraction(1, 2)),)))
    without = replace(half, decision=DecisionRule(((None, Fraction(1, 2)),), exclusive=True))
    library, paper = Fairness("race"), Fairness("race", tie="paper")
    assert [naive_class(m, library, Fraction(0), Fraction(1, 2)) for m in (half, without)] == [1, 0]
    assert [naive_class(m, paper, Fraction(0), Fraction(1, 2)) for m in (half, without)] == [None, None]
    assert build_grid(half, loan_space(), library).thresholds.pos == 0
    assert build_grid(without, loan_space(), library).thresholds.pos == 1


def test_a_checkpoint_knows_the_rule() -> None:
    grids = [
        build_grid(load_model(loan_ensemble(), threshold=t).ensemble, loan_space(), Fairness("race"))
        for t in (None, 0.3, 0.4, {"race": {0: 0.3, 1: 0.3, 2: 0.3, 3: 0.3, 4: 0.4}})
    ]
    assert len({str(identity(grid, "box", None)) for grid in grids}) == 4


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        ({"rase": {0: 0.4}}, r"threshold: there is no attribute 'rase' \(did you mean 'race'\?\)"),
        ({"race": {0: 0.4}}, "threshold: 'race' has the value 1, which has no threshold"),
        ({"race": {**dict.fromkeys(range(5), 0.4), 7: 0.3}}, "threshold: 7 is no value of 'race'"),
        ({"age": {20: 0.4}}, "threshold: 'age' has the value 0, which has no threshold"),
        ({"income": {20: 0.4}}, "threshold: 'income' is real"),
    ],
)
def test_a_rule_that_does_not_fit_the_space_is_refused(threshold: dict[str, dict[int, float]], message: str) -> None:
    with pytest.raises(BoxQTEError, match=message):
        quantify(loan_ensemble(), loan_space(), Fairness("race"), threshold=threshold)
