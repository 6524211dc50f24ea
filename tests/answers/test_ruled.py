"""Answers about a space with rules: shares of what the rules leave, rows that break one, what is refused."""

from __future__ import annotations

import html
import json
import random
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest

from boxqte import Attribute, Fairness, Space, audit, check, empirical, group_rates, quantify, score_changes, verify
from boxqte.answers.certificate import header
from boxqte.answers.checkpoint import identity
from boxqte.certify import Rejected, certify
from boxqte.errors import CertificateError, CheckpointError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_any_grid
from boxqte.report.text import answer_text
from boxqte.testers import find_idis
from tests.naive import NaiveRow, naive_row_at, naive_rows
from tests.naive_rules import NaiveRules
from tests.random_rules import with_rules
from tests.strategies import Problem, random_problem

RULES = ["race == 0 or race == 1 or age >= 50", "not (race == 0 and income > 600.25)"]
RULED = loan_space().with_rules(RULES)


def ruled_problem(seed: int, **limits: object) -> Problem:
    rng = random.Random(f"ruled {seed}")
    return with_rules(rng, random_problem(rng, max_pieces=100, max_pairs=4_000, **limits))


def test_the_answer_states_what_is_forbidden_and_its_shares_are_of_the_rest() -> None:
    result = quantify(loan_ensemble(), RULED, Fairness("race"), engine="exhaustive")
    forbidden = Fraction(3, 5) * Fraction(50, 101) + Fraction(1, 5) * Fraction(39975, 100000)
    assert result.ruled is not None
    assert result.ruled.forbidden == forbidden == 1 - RULED.allowed
    assert result.ruled.rules == tuple(RULES)
    assert (result.confident.lower, result.confident.upper) == (1.0, 1.0)
    assert result.exact is not None
    assert result.counterexample.lower <= 1 - result.exact <= result.counterexample.upper  # everything is confident
    document = json.loads(json.dumps(result.to_json()))
    assert document["rules"] == {
        "rules": RULES, "forbidden": float(forbidden), "forbidden_exact": str(forbidden),
    }  # fmt: skip
    assert document["world"] == "the space, without what 2 rules forbid"
    assert f"(exactly {forbidden}) of the space by 2 rules; all shares are of the rest\n" in answer_text(result)
    assert quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive").to_json()["rules"] is None


def test_restrictions_count_what_satisfies_them_and_is_allowed() -> None:
    seen = 0
    for seed in range(12):
        problem = ruled_problem(seed, real=False, eps=seed % 3 == 0)
        space = problem.space
        first = space.attributes[0]
        kept = first.values[0] if not first.is_numeric else int(first.low)
        condition = f"{first.name} == {kept!r}"
        rules = NaiveRules(space)

        def satisfies(row: NaiveRow) -> bool:
            return row.x[first.name] == kept and rules.allowed(row.x)

        rows = [row for row in naive_rows(*problem) if satisfies(row)]
        mass = sum((row.mass for row in rows), Fraction(0))
        if not mass:
            continue
        seen += 1
        result = quantify(*problem, engine="exhaustive").restrict(condition)
        confident = sum((row.mass for row in rows if row.confident), Fraction(0)) / mass
        unfair = sum((row.mass for row in rows if row.counterexample), Fraction(0)) / mass
        assert result.confident.lower <= confident <= result.confident.upper
        assert result.counterexample.lower <= unfair <= result.counterexample.upper
        assert result.counterexample.gap < 1e-9
        assert result.count == len(rows)
        assert abs(result.details["share_of_space"] - float(mass / space.allowed)) < 1e-12
    assert seen > 5


def test_rows_that_break_a_rule_are_outside_and_say_which() -> None:
    people = {"income": [500.0, 500.0, 700.0], "race": [2, 2, 0], "age": [40, 60, 55]}
    rows = check(loan_ensemble(), RULED, Fairness("race"), people)
    assert rows.table["verdict"].tolist() == ["outside the space", "unfair", "outside the space"]
    assert rows.table["why"].tolist() == [
        f"forbidden by the rule {RULES[0]!r}",
        "",
        f"forbidden by the rule {RULES[1]!r}",
    ]
    found = empirical(loan_ensemble(), RULED, Fairness("race"), people)
    assert (found.rows, found.outside, found.forbidden, found.confident, found.unfair) == (3, 2, 2, 1, 1)


def test_rows_are_judged_among_allowed_partners() -> None:
    unfair = 0
    for seed in range(15):
        problem = ruled_problem(seed, real=False, decision=False)
        points = [row.x for row in naive_rows(*problem)][:60]
        table = pd.DataFrame(points)
        found = empirical(*problem, table)
        rules = NaiveRules(problem.space)
        expected = [naive_row_at(*problem, x) for x in points]
        assert found.forbidden == sum(not rules.allowed(x) for x in points)
        assert found.confident == sum(row.confident for row in expected)
        assert list(found.counterexamples) == [i for i, row in enumerate(expected) if row.counterexample]
        unfair += found.unfair
    assert unfair > 10


def test_a_row_on_the_edge_of_a_rule_is_judged_as_it_is_written() -> None:
    """0.1 is no float: what the model's column holds may lie on the other side of the rule's edge, the row does not."""
    space = Space([Attribute.real("income", 0, 1000), *loan_space().attributes[1:]], rules=["income >= 500.1"])
    for value, verdict in ((500.1, 1), (500.09999, 0)):
        people = {"income": [value], "race": [1], "age": [60]}
        found = empirical(loan_ensemble(), space, Fairness("race"), people)
        assert (found.confident, found.forbidden) == (verdict, 1 - verdict)


def test_verify_finds_no_forbidden_pair_and_proves_that_there_is_none() -> None:
    found = verify(loan_ensemble(), RULED, Fairness("race"))
    assert found.x is not None
    assert found.witness is not None
    for table in (found.x, found.witness):
        assert check(loan_ensemble(), RULED, Fairness("race"), table).table["verdict"].tolist() != ["outside the space"]
    assert str(verify(loan_ensemble(), loan_space().with_rules("race == 1"), Fairness("race")).verdict) == "holds"
    violated = 0
    for seed in range(12):
        problem = ruled_problem(seed, masses=False)
        there = any(row.counterexample for row in naive_rows(*problem))
        answer = verify(*problem, time_limit=20)
        if str(answer.verdict) != "undecided":
            assert (str(answer.verdict) == "violated") == there, seed
            violated += there
    assert violated > 1


def test_scores_and_rates_are_about_what_the_rules_leave() -> None:
    space = loan_space().with_rules("race in {0, 4}")
    kept = Space([loan_space()["income"], Attribute.categorical("race", [0, 4]), loan_space()["age"]])
    one, two = (score_changes(loan_ensemble(), s, "race", scale="margin", levels=[1]).exceeding for s in (space, kept))
    assert two[Fraction(0)].lower > 0.1
    for level in (Fraction(0), Fraction(1)):
        assert one[level].lower - 1e-12 <= two[level].lower <= two[level].upper <= one[level].upper + 1e-12
        assert one[level].gap < 1e-9
    tables = [group_rates(loan_ensemble(), s, "race").to_frame() for s in (space, kept)]
    assert tables[1]["ratio_lower"].min() < 0.95
    pd.testing.assert_frame_equal(*tables, check_exact=False, atol=1e-12)


def test_an_audit_takes_rules_and_says_so() -> None:
    found = audit(loan_ensemble(), space=loan_space(), rules=RULES, sensitive="race", engine="exhaustive", robustness=0)
    assert [rule.text for rule in found.space.rules] == RULES
    assert found["race"].exact == quantify(loan_ensemble(), RULED, Fairness("race"), engine="exhaustive").exact
    people = {"income": [1.5, 1000.0] * 60, "race": [0, 1, 2, 3, 4] * 24, "age": [18, 60] * 60}
    inferred = audit(loan_ensemble(), people, rules=["age >= 20"], sensitive="race", engine="exhaustive", robustness=0,
                     infer={"categorical": ["race"]})  # fmt: skip
    assert inferred.inference is not None
    assert "rule: age >= 20" in str(inferred.inference)


def test_there_are_no_certificates_for_rules(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="certificate: there are none for spaces with rules"):
        quantify(loan_ensemble(), RULED, Fairness("race"), certificate=tmp_path / "c")
    path = tmp_path / "made up"
    quantify(loan_ensemble(), loan_space(), Fairness("race"), certificate=path, engine="box")
    import gzip

    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    head = header(build_any_grid(loan_ensemble(), RULED, Fairness("race")), (), None)
    path.write_bytes(gzip.compress("\n".join([json.dumps(head), *lines[1:]]).encode()))
    with pytest.raises(Rejected, match="is about a space with rules"):
        certify(path, loan_ensemble())


def test_a_checkpoint_is_of_its_rules(tmp_path: Path) -> None:
    grids = [build_any_grid(loan_ensemble(), space, Fairness("race")) for space in (loan_space(), RULED)]
    assert identity(grids[0], "box")["space"] != identity(grids[1], "box")["space"]
    state = tmp_path / "state"
    first = quantify(loan_ensemble(), RULED, Fairness("race"), engine="box", checkpoint=state, checkpoint_every=0)
    again = quantify(loan_ensemble(), RULED, Fairness("race"), engine="box", checkpoint=state)
    assert first.bounds == again.bounds
    with pytest.raises(CheckpointError, match="is of another space"):
        quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="box", checkpoint=state)


@pytest.mark.parametrize("method", ["themis", "aft"])
def test_testers_report_no_forbidden_pair(method: str) -> None:
    found = find_idis(loan_ensemble(), RULED, "race", method=method, tests=800, random_state=1)
    assert len(found) > 0
    assert found.rejected == 0
    for table in (found.idis, found.partners):
        race = table["race"].astype(int)
        assert ((race <= 1) | (table["age"] >= 50)).all()
        assert (~((race == 0) & (table["income"] > 600.25))).all()


def test_hot_spots_have_the_densities_of_their_restrictions() -> None:
    """Each rule's share of counterexamples is that among the inputs that satisfy it and that no rule of the space forbids."""
    result = quantify(loan_ensemble(), RULED, Fairness("race"), engine="box")
    table = result.hotspots()
    assert len(table) > 0
    assert (
        table.attrs["counterexample_mass"]
        <= float(1 - Fraction(646501, 1258501))
        <= table.attrs["counterexample_upper"]
    )
    for row in table.to_dict("records"):
        inside = result.restrict(row["rule"])
        assert row["density_lower"] - 1e-9 <= inside.counterexample.upper
        assert inside.counterexample.lower <= row["density_upper"] + 1e-9
        assert abs(row["mass"] - inside.details["share_of_space"]) < 1e-9
    for seed in range(12):
        problem = ruled_problem(seed, masses=False)
        result = quantify(*problem, engine="box")
        for row in result.hotspots().to_dict("records"):
            inside = result.restrict(row["rule"])
            assert row["density_lower"] - 1e-6 <= inside.counterexample.upper
            assert inside.counterexample.lower <= row["density_upper"] + 1e-6


def test_a_report_lists_the_rules() -> None:
    found = audit(loan_ensemble(), space=loan_space(), rules=RULES, sensitive="race", robustness=0, time_limit=10)
    page = html.unescape(found.to_html(time_limit=2))
    for rule in RULES:
        assert f"rule: {rule}" in page
    assert "of the space; all shares are of the rest" in page
