"""Hot spots against the oracle: the mass of every rule, of its counterexamples, and of what the rules hold together."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from boxqte import Attribute, Fairness, Quantification, Space, quantify
from boxqte.answers.hotspot_masses import blocks_of
from boxqte.answers.hotspots import tree
from boxqte.errors import EngineError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble
from boxqte.report.hotspots import hotspots_text
from boxqte.space.conditions import parse_condition
from tests.answers.test_rules import condition_on
from tests.engines.test_box import integers, random_trees
from tests.naive import Keep, naive_kept_mass
from tests.naive_classes import ClassOracle, random_class_problem
from tests.naive_mixture import naive_points, products
from tests.random_mixtures import random_mixture
from tests.strategies import Problem, random_problem

ZERO = Fraction(0)


class Judged(NamedTuple):
    """A product of pieces in every component of the space, and whether its inputs are counterexamples."""

    pieces: list[dict[str, Any]]
    unfair: bool


def judged(problem: Problem) -> list[Judged]:
    """Every x of the problem."""
    if problem.ensemble.is_binary:
        return [
            Judged(pieces, oracle.is_confident(x) and any(True for _ in oracle.witnesses(x)))
            for oracle, x, _, pieces in naive_points(*problem)
        ]
    oracle = ClassOracle(*problem)
    rows = []
    for pieces in oracle.products_of_pieces():
        x = oracle.representative(pieces)
        rows.append(Judged([pieces], oracle.is_confident(x) and any(True for _ in oracle.witnesses(x))))
    return rows


def keeps_of(space: Space, rule: str) -> list[Keep]:
    """A rule as the oracle reads it."""
    keeps = []
    for name, part in parse_condition(rule, space).items():
        attribute = space[name]
        if attribute.kind == "integer":
            values: tuple[Any, ...] = tuple(v for low, high in part.spans for v in range(int(low), int(high)))
        elif attribute.kind == "real":
            assert len(part.spans) <= 1
            low, high = (
                part.spans[0] if part.spans else (attribute.high + 1, attribute.high + 1)
            )  # only the missing value
            keeps.append(Keep(name, low=low, high=min(high, attribute.high), missing=part.missing))
            continue
        else:
            values = tuple(attribute.values[v] for v in part.values)
        keeps.append(Keep(name, values, missing=part.missing))
    return keeps


def masses(problem: Problem, rows: list[Judged], keeps: list[Keep]) -> tuple[Fraction, Fraction]:
    """The mass of what satisfies all conditions, and of the counterexamples in it."""
    total = unfair = ZERO
    spaces = products(problem.space)
    for row in rows:
        mass = ZERO
        for (weight, space), pieces in zip(spaces, row.pieces):
            mass += weight * naive_kept_mass(space, SimpleNamespace(pieces=pieces), keeps)  # type: ignore[arg-type]
        total += mass
        unfair += mass * row.unfair
    return total, unfair


def check(problem: Problem, **asked: Any) -> int:
    """All numbers of the table; how many rules there are."""
    result = quantify(*problem, engine="box", workers=1)
    table = result.hotspots(**({"top": 4, "lift": "1.05"} | asked))
    rows = judged(problem)
    _, everything = masses(problem, rows, [])
    # numbers of real attributes are written with the digits of a float32
    close = 1e-5 if any(attribute.kind == "real" for attribute in problem.space) else 1e-9
    rules: list[list[Keep]] = []
    for _, row in table.iterrows():
        assert isinstance(row["rule"], str)
        rules.append(keeps_of(problem.space, row["rule"]))
        assert len(rules[-1]) <= asked.get("conditions", 3)
        mass, unfair = masses(problem, rows, rules[-1])
        assert row["mass"] == pytest.approx(float(mass), rel=1e-12)
        union = ZERO
        for n in range(1, len(rules) + 1):
            for some in combinations(rules, n):
                union += (-1) ** (n + 1) * masses(problem, rows, [keep for rule in some for keep in rule])[1]
        truth = {
            "density": unfair / mass,
            "lift": unfair / mass / everything,
            "share": unfair / everything,
            "covered": union / everything,
        }
        for name, value in truth.items():
            low, high = row[f"{name}_lower"], row[f"{name}_upper"]
            assert low <= value <= high, (name, row["rule"], float(value), low, high)
            assert table.attrs["counterexample_lower"] == 0 or high - low < close * max(1, value, 1 / everything)
        assert row["lift_upper"] >= table.attrs["lift"]
        part = result.restrict(row["rule"])  # the same question, asked anew
        assert part.details["share_of_space"] == pytest.approx(row["mass"], rel=1e-12)
        assert part.counterexample.lower <= row["density_upper"]
        assert row["density_lower"] <= part.counterexample.upper
    nodes = table.attrs["tree"]
    assert sorted(node["hot_spot"] for node in nodes if node["hot_spot"]) == list(range(1, len(table) + 1))
    return len(table)


def test_hot_spots_equal_the_oracle() -> None:
    rng = random.Random("hot spots")
    assert sum(check(random_problem(rng, eps=False, robustness=False, max_pieces=150)) for _ in range(40)) > 8


def test_hot_spots_with_tolerance_equal_the_oracle() -> None:
    rng = random.Random("hot spots eps")
    assert sum(check(random_problem(rng, max_pieces=100, max_pairs=10_000), top=3) for _ in range(20)) > 3


def test_hot_spots_of_mixtures_equal_the_oracle() -> None:
    rng = random.Random("hot spots of mixtures")
    assert sum(check(random_mixture(rng, max_pieces=80, max_pairs=5_000), top=3) for _ in range(20)) > 3


def test_hot_spots_of_many_classes_equal_the_oracle() -> None:
    assert sum(check(random_class_problem(seed, max_pieces=80, max_pairs=5_000), top=3) for seed in range(20)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_hot_spots_of_a_thousand_problems_equal_the_oracle(block: int) -> None:
    rng = random.Random(f"hot spots {block}")
    rules = 0
    for i in range(100):
        sizes = {"max_pieces": 120, "max_pairs": 10_000}
        problem = (
            random_problem(rng, eps=False, max_pieces=200)
            if i % 4 < 2
            else random_problem(rng, **sizes)
            if i % 4 == 2
            else random_mixture(rng, **sizes)
            if i % 8 == 3
            else random_class_problem(1000 * block + i, **sizes)
        )
        rules += check(problem, top=rng.randint(1, 4), conditions=rng.randint(1, 3), values=rng.randint(1, 4))
    assert rules > 10


# --- what is asked, and what is said ----------------------------------------------------------------------------------


def test_the_loans_hot_spot_is_the_region_that_the_paper_shows() -> None:
    table = quantify(loan_ensemble(), loan_space(), Fairness("race")).hotspots()
    assert table["rule"].tolist()[0] == "age >= 50 and income < 600"
    assert table["density_lower"][0] == pytest.approx(1)
    assert table["covered_lower"].iloc[-1] > 0.99


def labelled() -> tuple[TreeEnsemble, Space]:
    """Women of job 2, whose label is the value of job 0, and of job 3 are refused up to a score of 0.3."""
    builder = EnsembleBuilder()
    builder.add_tree(
        feature=[0, 0, 2, 1, 0, 0, 0],
        test=[Test.LESS_F32, Test.LEAF, Test.LESS_F32, Test.LESS_F32, Test.LEAF, Test.LEAF, Test.LEAF],
        threshold=[1.5, 0.0, float(np.float32(0.3)), 0.5, 0.0, 0.0, 0.0],
        left=[1, -1, 3, 4, -1, -1, -1],
        right=[2, -1, 6, 5, -1, -1, -1],
        value=[0.0, 1.0, 0.0, 0.0, -1.0, 1.0, 1.0],
    )
    model = builder.build(library="test", feature_names=["job", "sex", "score"], base=(Fraction(0),), link="sigmoid")
    job = Attribute.categorical("job", [0, 1, 2, 3], labels=["clerk", "cook", "0", "guard"])
    return model, Space([job, Attribute.categorical("sex", [0, 1], labels=["f", "m"]), Attribute.real("score", 0, 1)])


def test_values_are_named_by_labels_unless_these_mean_another_value_and_numbers_have_the_digits_of_a_float32() -> None:
    result = quantify(*labelled(), Fairness("sex"))
    table = result.hotspots()
    assert table["rule"].tolist() == ["score < 0.3 and job in [2, 'guard']"]
    assert result.restrict(table["rule"][0]).counterexample.lower == pytest.approx(1)
    assert table["density_lower"][0] == pytest.approx(1, abs=1e-7)
    assert table["density_lower"][0] < 1  # 0.3 is not the threshold


def test_a_hot_spot_may_be_about_the_sensitive_value_of_x() -> None:
    model, space = labelled()
    result = quantify(model, space, Fairness("sex", kappa="0.9", partner_kappa=0))
    assert result.hotspots().empty
    kinder = replace(model, value=np.where(model.value > 0, 3.0, model.value))
    table = quantify(kinder, space, Fairness("sex", kappa="0.9")).hotspots()
    assert set(table["rule"][0].split(" and ")) == {"sex == 'm'", "job in [2, 'guard']", "score < 0.3"}
    assert table["covered_lower"][0] == pytest.approx(1, abs=1e-6)


def test_the_same_question_gives_the_same_rules() -> None:
    rng = np.random.default_rng(3)
    model = random_trees(rng, 5, 12, 30, 3, lambda n: rng.normal(size=n))
    space = integers(5, 12)
    tables = [quantify(model, space, Fairness("a0"), workers=workers).hotspots(lift="1.2") for workers in (1, 2)]
    assert len(tables[0])
    assert tables[0]["rule"].tolist() == tables[1]["rule"].tolist()


def test_bounds_are_certain_where_a_limit_ends_the_search() -> None:
    rng = np.random.default_rng(4)
    model = random_trees(rng, 7, 12, 60, 3, lambda n: rng.normal(size=n))
    whole = quantify(model, integers(7, 12), Fairness("a0"), node_limit=50, workers=1)
    assert not whole.converged
    table = whole.hotspots(lift="1.1", time_limit=0.05, top=3)
    assert len(table)
    assert not table.attrs["converged"]
    assert f"confidence {table.attrs['confidence']}" in hotspots_text(table)
    truth = quantify(model, integers(7, 12), Fairness("a0"), workers=1)
    assert table.attrs["counterexample_statistical_lower"] <= truth.counterexample.upper
    assert truth.counterexample.lower <= table.attrs["counterexample_statistical_upper"]
    for row in table.to_dict("records"):
        inside = truth.restrict(row["rule"])
        assert row["density_lower"] <= inside.counterexample.upper
        assert inside.counterexample.lower <= row["density_upper"]
        assert row["density_statistical_lower"] <= inside.counterexample.upper
        assert inside.counterexample.lower <= row["density_statistical_upper"]
        drawn, certain = (row[f"density{kind}_upper"] - row[f"density{kind}_lower"] for kind in ("_statistical", ""))
        assert drawn < certain
        lift = inside.counterexample.lower / truth.counterexample.upper
        assert row["lift_statistical_lower"] <= lift <= row["lift_statistical_upper"]
        assert row["lift_lower"] <= lift * (1 + 1e-9)
        assert lift <= row["lift_upper"] * (1 + 1e-9)


def test_a_restriction_has_hot_spots_of_its_own() -> None:
    result = quantify(loan_ensemble(), loan_space(), Fairness("race")).restrict("income < 600")
    table = result.hotspots(lift="1.5")
    assert table["rule"].tolist() == ["age >= 50"]
    shares = [part.details["share_of_space"] for part in (result.restrict("age >= 50"), result)]
    assert table["mass"][0] == pytest.approx(shares[0] / shares[1])


def test_a_fair_model_has_no_hot_spots() -> None:
    space = loan_space()
    result = quantify(loan_ensemble(), space, Fairness("race")).restrict("age < 50")
    table = result.hotspots()
    assert table.empty
    assert hotspots_text(table) == "no counterexample was found"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"lift": 1}, "lift: must be above 1, found 1"),
        ({"conditions": 0}, "conditions: must be at least 1, found 0"),
        ({"top": 101}, "top: must be at most 100, found 101"),
        ({"values": "many"}, "values: expected a number, found 'many'"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(asked: dict[str, Any], why: str) -> None:
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"))
    with pytest.raises(EngineError, match=why):
        result.hotspots(**asked)


# --- disjoint boxes and the tree --------------------------------------------------------------------------------------


def test_blocks_are_disjoint_and_make_up_the_rules() -> None:
    rng = random.Random(5)
    grid = quantify(loan_ensemble(), loan_space(), Fairness("race")).asked.grid  # type: ignore[union-attr]
    sizes = {a: axis.n_cells for a, axis in enumerate(grid.axes) if axis.n_cells > 1}
    for _ in range(20):
        rules = [
            {a: frozenset(rng.sample(range(n), rng.randint(1, n - 1))) for a, n in sizes.items() if rng.random() < 0.8}
            for _ in range(4)
        ]
        rules = [rule for rule in rules if rule]
        used = sorted({a for rule in rules for a in rule})
        blocks = blocks_of(grid, rules)
        for cell in product(*(range(sizes[a]) for a in used)):
            holding = tuple(k for k, rule in enumerate(rules) if all(cell[used.index(a)] in h for a, h in rule.items()))
            own = [b for b in blocks if all(bits >> c & 1 for bits, c in zip(b.bits, cell))]
            assert [block.rules for block in own] == ([holding] if holding else [])


def test_too_many_overlaps_are_refused() -> None:
    grid = quantify(loan_ensemble(), loan_space(), Fairness("race")).asked.grid  # type: ignore[union-attr]
    with pytest.raises(EngineError, match="2 rules overlap in more than 1 parts; ask for fewer rules or conditions"):
        blocks_of(grid, [{0: frozenset([0])}, {1: frozenset([0])}], 1)


def test_conditions_that_rules_share_come_first_in_the_tree() -> None:
    low, high, other = frozenset([0]), frozenset([1]), frozenset([2])
    nodes = tree([{0: low, 1: high}, {2: other}, {3: low, 1: high}])
    assert [(node.axis, len(node.rule)) for node in nodes] == [(1, 1), (0, 2), (3, 2), (2, 1)]


# --- other masses, and parts ------------------------------------------------------------------------------------------


def check_by_restriction(result: Quantification) -> int:
    """The rules say what `restrict` counts."""
    table = result.hotspots(top=3, lift="1.05")
    assert result.asked is not None
    for row in table.to_dict("records"):
        part = result.restrict(row["rule"])
        assert part.asked is not None
        assert row["mass"] == pytest.approx(float(part.asked.share / result.asked.share), rel=1e-9)
        assert part.counterexample.lower <= row["density_upper"]
        assert row["density_lower"] <= part.counterexample.upper
    return len(table)


def test_hot_spots_where_cells_count_the_same() -> None:
    rng = random.Random("cells that count the same")
    found = 0
    for _ in range(20):
        problem = random_problem(rng, eps=False, robustness=False, masses=False, max_pieces=150)
        space = Space(problem.space.attributes, mass="cells")
        found += check_by_restriction(quantify(problem.ensemble, space, problem.property, engine="box", workers=1))
    assert found


@pytest.mark.parametrize("seed", [55, 58, 67])
def test_hot_spots_of_a_part_are_about_the_part(seed: int) -> None:
    """58: all of a condition's mass lies between a float and the decimal that is written for it."""
    rng = random.Random(f"restr {seed}")
    problem = random_problem(rng, eps=seed % 3 == 1, max_pieces=150, max_pairs=8000)
    result = quantify(*problem, engine=rng.choice(["box", "auto", "exhaustive"]), workers=1)
    part = result.restrict(condition_on(rng, problem.space))
    assert check_by_restriction(part)
