"""Mass 'cells': every cell of the grid counts the same (questions.md, 2a)."""

from __future__ import annotations

import random

import pytest

from boxqte import EngineError, Fairness, PropertyError, Robustness, Space, SpaceError, quantify
from boxqte.errors import CertificateError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_grid
from boxqte.questions.properties import Monotonicity, ScoreFairness
from tests.naive_questions import naive_cells
from tests.strategies import random_problem


def check(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        problem = random_problem(rng, eps=False, max_pieces=150, decision=seed % 3 == 0)
        space = problem.space.with_mass("cells")
        questions = [problem.property]
        name = rng.choice([a.name for a in space])
        if problem.ensemble.decision is None:
            questions.append(ScoreFairness(name, rng.choice([0, 1]), "margin"))
            if space[name].is_numeric:
                questions.append(Monotonicity(name, rng.choice(["increasing", "decreasing"])))
        for prop in questions:
            total, confident, counterexample = naive_cells(problem.ensemble, problem.space, prop)
            exact = quantify(problem.ensemble, space, prop, engine="exhaustive")
            assert (exact.cells, exact.counted) == (total, (counterexample, counterexample)), (seed, prop)
            assert exact.undefined if not confident else exact.exact * confident == confident - counterexample
            box = quantify(problem.ensemble, space, prop, engine="box", workers=1)
            assert box.counted == exact.counted, (seed, prop)


def test_the_count_is_the_oracles() -> None:
    check(range(60))


@pytest.mark.slow
def test_the_count_is_the_oracles_on_many_problems() -> None:
    check(range(1000, 3000))


def test_the_engine_of_the_paper_counts_the_same_cells() -> None:
    space = loan_space().with_mass("cells")
    exact, found = (
        quantify(loan_ensemble(), space, Fairness("race"), engine=e, workers=1) for e in ("exhaustive", "smt")
    )
    assert found.counted == exact.counted
    assert found.exact == exact.exact


def test_a_drawn_estimate_is_of_cells() -> None:
    space = loan_space().with_mass("cells")
    exact = quantify(loan_ensemble(), space, Fairness("race"), engine="exhaustive")
    drawn = quantify(loan_ensemble(), space, Fairness("race"), engine="sample", time_limit=1.0, workers=1)
    assert drawn.statistical is not None
    assert drawn.statistical.lower <= exact.value <= drawn.statistical.upper


def test_the_answer_says_its_world() -> None:
    from boxqte.report.text import answer_text

    result = quantify(loan_ensemble(), loan_space().with_mass("cells"), Fairness("race"), engine="exhaustive")
    assert "cells of the grid, each counts the same" in result.semantics()[0]
    assert result.counted is not None
    assert f"{result.counted[0]} of {result.cells} are counterexamples" in answer_text(result)
    assert result.to_json()["cells"] == {"all": result.cells, "counterexample": list(result.counted)}
    plain = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive")
    assert plain.cells is None
    assert plain.exact != result.exact


def test_conditions_choose_whole_cells() -> None:
    result = quantify(loan_ensemble(), loan_space().with_mass("cells"), Fairness("race"), engine="exhaustive")
    parts = [result.restrict(condition) for condition in ("income < 600", "income >= 600")]
    assert [part.cells for part in parts] == [12, 6]
    assert sum(part.counted[0] for part in parts) == result.counted[0]
    assert result.profile("race")["mass"].tolist() == pytest.approx([1 / 3] * 3)
    assert result.regions(1)["mass"].sum() == pytest.approx(float(1 - result.exact))


def test_it_belongs_to_the_space() -> None:
    space = loan_space().with_mass("cells")
    assert Space.from_json(space.to_json()) == space
    assert space.fingerprint() != loan_space().fingerprint()
    assert space.with_attribute(space["race"]).mass == "cells"


def test_what_a_cast_moves_is_a_share_of_its_cell() -> None:
    problem = random_problem(random.Random(3), eps=False)
    for seed in range(40):
        problem = random_problem(random.Random(seed), eps=False)
        grid = build_grid(problem.ensemble, problem.space.with_mass("cells"), problem.property)
        same = build_grid(problem.ensemble, problem.space, problem.property)
        assert (grid.input_rounding > 0) >= (same.input_rounding > 0), seed


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda s: quantify(loan_ensemble(), s, Robustness(0.1)), PropertyError, "epsilon: cuts cells further"),
        (
            lambda s: quantify(loan_ensemble(), s, Fairness("income", max_change={"income": 5})),
            PropertyError,
            "max_change: cuts cells further",
        ),
        (lambda s: quantify(loan_ensemble(), s, Fairness("race"), engine="cegar"), EngineError, "divides cells"),
        (
            lambda s: quantify(loan_ensemble(), s, Fairness("race"), certificate="never.cert"),
            CertificateError,
            "where cells are counted",
        ),
        (
            lambda s: quantify(loan_ensemble(), s, Fairness("race")).restrict("income > 5"),
            SpaceError,
            "divides a cell",
        ),
        (lambda s: s.with_mass("boxes"), SpaceError, "mass: expected 'cells'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(ask, error, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=words):
        ask(loan_space().with_mass("cells"))
