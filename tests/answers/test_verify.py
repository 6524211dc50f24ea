"""verify and check against the oracle: a verdict on the whole space, and one on every row."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import boxqte
from boxqte import Fairness, Robustness, SpaceError, check, verify
from boxqte.answers.verdict import Verdict
from boxqte.examples import loan_ensemble, loan_space
from tests.naive import MISSING, Oracle, naive_row_at, naive_rows, naive_tolerance
from tests.strategies import Problem, random_problem


def oracle_says(problem: Problem) -> bool:
    """Whether there is any counterexample, also among inputs without mass."""
    return any(row.counterexample for row in naive_rows(*problem))


def without_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """No luck: the search itself must find the counterexample or prove that there is none."""
    monkeypatch.setattr("boxqte.answers.verify.TRIES", ())


@pytest.mark.parametrize("luck", [True, False])
def test_verdicts_equal_the_oracle(luck: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not luck:
        without_points(monkeypatch)
    rng = random.Random("verify")
    seen = {True: 0, False: 0}
    for _ in range(60):
        problem = random_problem(rng, eps=False, max_pieces=300)
        expected = oracle_says(problem)
        found = verify(*problem, workers=1)
        assert found.verdict is (Verdict.VIOLATED if expected else Verdict.HOLDS), found
        assert (found.x is not None) == expected
        seen[expected] += 1
    assert min(seen.values()) > 5


@pytest.mark.parametrize("luck", [True, False])
def test_verdicts_with_tolerance_equal_the_oracle(luck: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not luck:
        without_points(monkeypatch)
    rng = random.Random("verify eps")
    for _ in range(20):
        problem = random_problem(rng, max_pieces=150, max_pairs=20_000)
        found = verify(*problem, workers=1)
        assert found.verdict is (Verdict.VIOLATED if oracle_says(problem) else Verdict.HOLDS), found


def test_a_counterexample_without_mass_is_one() -> None:
    """A value of weight 0 does not count for the measure; as an input it exists."""
    from boxqte.space.attributes import Attribute

    space = loan_space().with_attribute(Attribute.integer("age", 0, 100)).with_mass(
        {"age": boxqte.Histogram((Fraction(0), Fraction(50), Fraction(101)), (Fraction(1), Fraction(0)))}
    )  # fmt: skip
    assert boxqte.quantify(loan_ensemble(), space, Fairness("race"), engine="exhaustive").exact == 1
    assert verify(loan_ensemble(), space, Fairness("race")).verdict is Verdict.VIOLATED


def test_a_time_limit_leaves_it_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    without_points(monkeypatch)
    from tests.engines.test_box import integers, random_trees

    rng = np.random.default_rng(0)
    model = random_trees(rng, 12, 30, 60, 5, lambda n: rng.normal(size=n))
    # the sensitive attribute is asked about, and its influence is too small to be seen by bounds
    found = verify(model, integers(12, 30), Fairness("a0", kappa=0.9999999), time_limit=0.05)
    assert found.verdict in (Verdict.UNDECIDED, Verdict.VIOLATED)


def test_the_pair_is_replayed_in_the_library() -> None:
    import xgboost

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.normal(50, 20, 500), "sex": rng.integers(0, 2, 500)})
    model = xgboost.XGBClassifier(n_estimators=10, max_depth=3).fit(frame, (frame["income"] + 9 * frame["sex"] > 55))
    found = verify(model, boxqte.Space.infer(frame).space, Fairness("sex"))
    assert found.replayed is True
    assert found.changes == "sex: 0 -> 1" or found.changes == "sex: 1 -> 0"
    assert model.predict(found.x[frame.columns])[0] != model.predict(found.witness[frame.columns])[0]


def test_near_data_finds_a_row_itself_or_one_close_to_it() -> None:
    people = pd.DataFrame({"income": [900.0, 500.0], "race": [2, 2], "age": [40, 60]}, index=["ann", "bob"])
    found = verify(loan_ensemble(), loan_space(), Fairness("race"), near=people)
    assert found.row == "bob"
    assert found.distance == 0
    close = verify(loan_ensemble(), loan_space(), Fairness("race"), near=people[:1])
    assert close.verdict is Verdict.VIOLATED
    # income has to fall below 600 and age to reach 50
    assert close.distance == pytest.approx(0.3 + 0.1, abs=1e-6)
    assert close.x["race"][0] == 2


# --- rows -------------------------------------------------------------------------------------------------------------


def as_frame(problem: Problem, points: list[dict[str, Any]]) -> pd.DataFrame:
    """Naive points as a user's table."""
    return pd.DataFrame(
        {
            a.name: pd.Series(
                [np.nan if p[a.name] is MISSING else float(p[a.name]) if a.is_numeric else p[a.name] for p in points],
                dtype=None if a.is_numeric else object,
            )
            for a in problem.space
        }
    )


def exact_in_float(problem: Problem, point: dict[str, Any]) -> bool:
    """Whether the oracle's point survives being a float32: critical points of other models do not."""
    return all(
        v is MISSING or not isinstance(v, Fraction) or Fraction(float(np.float32(float(v)))) == v
        for v in point.values()
    )


@pytest.mark.parametrize("eps", [False, True])
def test_every_row_has_the_oracles_verdict(eps: bool) -> None:
    rng = random.Random(f"rows {eps}")
    seen: set[str] = set()
    for _ in range(12 if eps else 40):
        problem = random_problem(rng, eps=eps, max_pieces=150, max_pairs=20_000)
        rows = [r for r in naive_rows(*problem) if exact_in_float(problem, r.x)]
        rows = rng.sample(rows, min(len(rows), 40))
        if not rows:
            continue
        found = check(*problem, as_frame(problem, [r.x for r in rows]), workers=1)
        expected = ["unfair" if r.counterexample else "fair" if r.confident else "not confident" for r in rows]
        assert found.table["verdict"].tolist() == expected
        seen |= set(expected)
    assert seen == {"unfair", "fair", "not confident"}


def test_the_nearest_witness_moves_the_least() -> None:
    problem = Problem(loan_ensemble(), loan_space(), Robustness({"income": 200, "age": 20}))
    people = pd.DataFrame({"income": [650.0, 590.0, 250.0], "race": [0, 2, 4], "age": [55, 55, 48]})
    found = check(*problem, people)
    oracle = Oracle(*problem)
    for i in range(3):
        x = {"income": Fraction(people["income"][i]), "race": int(people["race"][i]), "age": int(people["age"][i])}
        unfair = naive_row_at(*problem, x).counterexample
        assert (found.table["verdict"][i] == "unfair") == unfair
        if not unfair:
            continue
        # the oracle on a shrunken tolerance: none at nine tenths of what was needed
        distance = found.table["distance"][i]
        assert 0 < distance <= 1
        smaller = Robustness({"income": Fraction(200) * Fraction(distance) * Fraction(9, 10), "age": Fraction(20) * Fraction(distance) * Fraction(9, 10)})  # noqa: E501  # fmt: skip
        assert not naive_row_at(problem.ensemble, problem.space, smaller, x).counterexample
        witness = found.witness.loc[i]
        other = {"income": Fraction(float(witness["income"])), "race": int(witness["race"]), "age": int(witness["age"])}
        assert oracle.class_of(other) != oracle.class_of(x)
        for name in ("income", "age"):
            assert abs(other[name] - x[name]) <= naive_tolerance(problem.property, problem.space[name])


def test_rows_outside_the_space_are_named() -> None:
    people = {"income": [500.0, -3.0, None], "race": [2, 9, 2], "age": [60, 60, 60]}
    found = check(loan_ensemble(), loan_space(), Fairness("race"), people)
    assert found.counts == {"not confident": 0, "fair": 0, "unfair": 1, "outside the space": 2}
    assert found.table["why"].tolist() == ["", "income: -3.0 is outside 0 to 1000", "income: missing, which the space does not allow"]  # noqa: E501  # fmt: skip
    with pytest.raises(SpaceError, match="the table has no column 'age' of the space; it has income, race"):
        check(loan_ensemble(), loan_space(), Fairness("race"), {"income": [1.0], "race": [0]})


def test_one_hot_rows_are_read_from_their_columns() -> None:
    from tests.engines.test_box import EnsembleBuilder

    builder = EnsembleBuilder()
    builder.add_tree(feature=[0, 0, 0], test=[3, 0, 0], threshold=[0.5, 0, 0], left=[1, -1, -1], right=[2, -1, -1],
                     value=[0, 1.0, -1.0])  # fmt: skip
    model = builder.build(library="test", feature_names=["sex_f", "sex_m"], base=(0.0,), link="sigmoid")
    from boxqte.space.attributes import Attribute
    from boxqte.space.space import Space

    space = Space([Attribute.one_hot("sex", ["sex_f", "sex_m"], values=["f", "m"])])
    found = check(model, space, Fairness("sex"), {"sex_f": [1, 0, 1], "sex_m": [0, 1, 1]})
    assert found.table["verdict"].tolist() == ["unfair", "unfair", "outside the space"]
    assert found.table["changes"][0] == "sex: f -> m"
    assert found.witness["sex_m"].tolist() == [1, 0]


# --- commands ---------------------------------------------------------------------------------------------------------


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    from boxqte.cli.main import main

    code = main([*arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def question(*rest: str) -> list[str]:
    return [str(EXAMPLES / "model.json"), "--space", str(EXAMPLES / "space.json"), "--sensitive", "sex", *rest]


def test_verify_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "verify", *question("--json", str(tmp_path / "v.json")))
    assert code == 1
    assert "violated" in out
    assert "different classes" in out
    assert '"verdict": "violated"' in (tmp_path / "v.json").read_text()
    code, out, _ = run(capsys, "verify", *question("--near", str(EXAMPLES / "people.csv")))
    assert code == 1
    assert "from row" in out


def test_rows_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "rows", str(EXAMPLES / "people.csv"), *question("-o", str(tmp_path / "rows.csv")))
    table = pd.read_csv(tmp_path / "rows.csv", index_col=0)
    people = pd.read_csv(EXAMPLES / "people.csv")
    assert len(table) == len(people)
    assert code == int((table["verdict"] == "unfair").any())
    assert "space, measure" in out


def test_sample_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "sample", *question("-n", "25", "--where", "age >= 40", "-o", str(tmp_path / "s.csv")))
    assert code == 0
    table = pd.read_csv(tmp_path / "s.csv")
    assert len(table) == 25
    assert (table["age"] >= 40).all()
    assert (table["sex"] != table["sex'"]).all()
    assert "25 pairs" in err


def test_regions_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "regions", *question("--top", "5", "--profile", "age", "--pairs", "--where", "age < 60"))
    assert code == 0
    assert re.search(r"share +density +rule", out)
    assert re.search(r"from \\ to +\S", out)
    assert re.search(r"age +of all inputs +unfair +of the unfair", out)
    assert out.count("two numbers are certain bounds, one number is certain to the digits shown") == 2
    assert "of the space" in out
    with pytest.raises(SystemExit):
        run(capsys, "regions", *question("--top", "many"))
    code, _, err = run(capsys, "regions", *question("--where", "height > 3"))
    assert code == 2
    assert "'height' is not an attribute" in err
