"""Regions, profiles, pairs and restrictions against the oracle: the same masses, found by looking at every input."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import boxqte
from boxqte import Fairness, Robustness, Space, SpaceError, quantify
from boxqte.answers.regions import Boxes, RegionStore, held_cells, merged
from boxqte.errors import EngineError, PropertyError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import EnsembleBuilder, Test
from boxqte.questions.variations import part_of_cell
from boxqte.space.attributes import Attribute
from boxqte.space.conditions import Part, mass_of, parse_condition
from tests.naive import MISSING, NaiveRow, naive_quantify, naive_rows
from tests.strategies import Problem, random_problem

TOLERANCE = 1e-11


def asked(problem: Problem, **options: Any) -> tuple[boxqte.Quantification, list[NaiveRow]]:
    result = quantify(*problem, engine="box", workers=1, options=options)
    assert result.converged
    return result, [row for row in naive_rows(*problem) if row.mass]


def inside(problem: Problem, name: str, part: Part, value: Any) -> bool:
    """Whether a naive value lies in a part of an attribute's domain."""
    attribute = problem.space[name]
    if value is MISSING:
        return part.missing
    if attribute.is_numeric:
        if attribute.low == attribute.high and attribute.kind == "real":
            return bool(part.spans)
        return any(low <= value < high for low, high in part.spans)
    return attribute.values.index(value) in part.values


def unfair_mass(rows: list[NaiveRow], keep: Any = None) -> Fraction:
    return sum((r.mass for r in rows if r.counterexample and (keep is None or keep(r))), Fraction(0))


# --- profiles ---------------------------------------------------------------------------------------------------------


def check_profiles(problem: Problem) -> None:
    result, rows = asked(problem)
    assert result.asked is not None
    for axis in result.asked.grid.axes:
        name = axis.attribute.name
        table = result.profile(name)
        assert len(table) == axis.n_cells
        for cell, mass, (_, row) in zip(axis.cells, axis.masses, table.iterrows()):
            part = part_of_cell(axis, cell)
            assert row["mass"] == pytest.approx(float(mass))
            expected = unfair_mass(rows, lambda r, part=part, name=name: inside(problem, name, part, r.x[name]))
            if not mass:
                expected = Fraction(0)
            assert row["lower"] == pytest.approx(float(expected), abs=TOLERANCE), (name, row["value"])
            assert row["upper"] == pytest.approx(float(expected), abs=TOLERANCE)


@pytest.mark.parametrize("seed", range(40))
def test_profiles_equal_the_oracle(seed: int) -> None:
    check_profiles(random_problem(random.Random(f"profile {seed}"), eps=False, max_pieces=300))


@pytest.mark.parametrize("seed", range(8))
def test_profiles_with_tolerance_equal_the_oracle(seed: int) -> None:
    check_profiles(random_problem(random.Random(f"profile eps {seed}"), max_pieces=200, max_pairs=20_000))


# --- pairs ------------------------------------------------------------------------------------------------------------


def check_pairs(problem: Problem) -> None:
    result, rows = asked(problem)
    if not problem.property.sensitive:
        with pytest.raises(PropertyError, match="no sensitive"):
            result.pairs()
        return
    axes = [a for a in result.asked.grid.axes if a.sensitive]
    # the oracle's witnesses name the sensitive values in the property's order, the matrix has the space's
    order = [problem.property.sensitive.index(a.attribute.name) for a in axes]
    table = result.pairs()
    combos = [()]
    for axis in axes:
        combos = [(*c, part_of_cell(axis, cell)) for c in combos for cell in axis.cells]
    cells = [[]]  # type: ignore[var-annotated]
    for axis in axes:
        cells = [[*c, cell] for c in cells for cell in axis.cells]
    assert table.shape == (len(combos), len(combos))

    def holds(combo: Any, cell: Any, values: Any) -> bool:
        for axis, part, c, v in zip(axes, combo, cell, values):
            if c.low is not None and c.low[0] == c.high[0] and axis.attribute.low != axis.attribute.high:
                if v is MISSING or v != c.low[0]:  # a cell that is one real point
                    return False
            elif c.low is not None and v is not MISSING and not c.integral:
                # as an x' the ends count, although they have no mass
                below = v > c.low[0] or (v == c.low[0] and c.low[1] == 0)
                above = v < c.high[0] or (v == c.high[0] and c.high[1] == 1)
                if not (below and above):
                    return False
            elif not inside(problem, axis.attribute.name, part, v):
                return False
        return True

    names = [a.attribute.name for a in axes]
    for i in range(len(combos)):
        mine = [r for r in rows if r.counterexample and holds(combos[i], cells[i], [r.x[n] for n in names])]
        for j in range(len(combos)):
            expected = sum(
                (r.mass for r in mine
                 if any(holds(combos[j], cells[j], [w[k] for k in order]) for w in r.witness_values)),
                Fraction(0),
            )  # fmt: skip
            assert table.iloc[i, j] == pytest.approx(float(expected), abs=TOLERANCE), (i, j)


@pytest.mark.parametrize("seed", range(40))
def test_pairs_equal_the_oracle(seed: int) -> None:
    check_pairs(random_problem(random.Random(f"pairs {seed}"), eps=False, max_pieces=300, robustness=seed == 0))


@pytest.mark.parametrize("seed", range(8))
def test_pairs_with_tolerance_equal_the_oracle(seed: int) -> None:
    check_pairs(random_problem(random.Random(f"pairs eps {seed}"), max_pieces=150, max_pairs=20_000, robustness=False))


def test_too_many_pairs_are_refused_by_name() -> None:
    from tests.engines.test_box import integers, random_trees

    rng = np.random.default_rng(1)
    model = random_trees(rng, 3, 60, 30, 3, lambda n: rng.normal(size=n))
    result = quantify(model, integers(3, 60), Fairness(["a0", "a1"]), time_limit=1)
    with pytest.raises(EngineError, match="combinations of cells"):
        result.pairs()


# --- restrictions -----------------------------------------------------------------------------------------------------


def random_condition(rng: random.Random, space: Space) -> tuple[str, dict[str, Any]]:
    """A condition in text, and for each attribute that it names what it says of a naive value."""
    texts, tests = [], {}
    for attribute in rng.sample(list(space), rng.randint(1, len(space))):
        name = attribute.name
        if attribute.missing is not None and rng.random() < 0.2:
            texts.append(f"{name} == missing")
            tests[name] = lambda v: v is MISSING
        elif not attribute.is_numeric:
            some = [v for v in attribute.values if rng.random() < 0.6] or [attribute.values[0]]
            texts.append(f"{name} in {some!r}")
            tests[name] = lambda v, some=some: v is not MISSING and v in some
        elif attribute.kind == "integer":
            limit = rng.randint(int(attribute.low), int(attribute.high))
            if rng.random() < 0.5:
                texts.append(f"{name} >= {limit}")
                tests[name] = lambda v, limit=limit: v is not MISSING and v >= limit
            else:
                texts.append(f"not {name} >= {limit}")
                tests[name] = lambda v, limit=limit: v is MISSING or v < limit
    return " and ".join(texts), tests


def check_restriction(problem: Problem, rng: random.Random) -> bool:
    condition, tests = random_condition(rng, problem.space)
    if not tests:
        return False
    result, rows = asked(problem)
    kept = [r for r in rows if all(test(r.x[name]) for name, test in tests.items())]
    total = sum((r.mass for r in kept), Fraction(0))
    if not total:
        with pytest.raises(SpaceError, match="positive mass"):
            result.restrict(condition)
        return False
    part = result.restrict(condition)
    assert part.converged
    assert float(part.decided.unfair) == pytest.approx(float(unfair_mass(kept) / total), abs=TOLERANCE)
    confident = sum((r.mass for r in kept if r.confident), Fraction(0)) / total
    assert part.confident.upper == pytest.approx(float(confident), abs=TOLERANCE)
    assert part.details["share_of_space"] == pytest.approx(float(total))
    # what is asked of the part is about the part
    name = rng.choice(problem.space.names)
    table = part.profile(name)
    assert table["lower"].sum() == pytest.approx(float(part.decided.unfair), abs=TOLERANCE)
    return True


@pytest.mark.parametrize("seed", range(40))
def test_restrictions_equal_the_oracle(seed: int) -> None:
    rng = random.Random(f"restrict {seed}")
    for _ in range(5):
        if check_restriction(random_problem(rng, eps=False, max_pieces=300), rng):
            return
    pytest.fail("no condition with mass in five problems")


@pytest.mark.parametrize("seed", range(8))
def test_restrictions_with_tolerance_equal_the_oracle(seed: int) -> None:
    rng = random.Random(f"restrict eps {seed}")
    for _ in range(5):
        if check_restriction(random_problem(rng, max_pieces=150, max_pairs=20_000, max_attributes=3), rng):
            return
    pytest.fail("no condition with mass in five problems")


def test_a_restriction_draws_anew_and_keeps_no_interval_of_the_whole() -> None:
    exact = quantify(loan_ensemble(), loan_space(), Fairness("race")).restrict("age >= 50").value
    assert exact == pytest.approx(0.4)
    drawn = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="sample", options={"points": 3000})
    part = drawn.restrict("age >= 50")
    assert drawn.statistical is not None
    assert drawn.statistical.lower > exact
    assert part.statistical is not None
    assert part.statistical.lower <= exact <= part.statistical.upper
    assert part.statistical.points == 3000
    assert part.engine == "sample"


def test_a_restriction_of_a_result_with_an_interval_has_none_if_it_converges() -> None:
    from tests.engines.test_box import integers, random_trees

    rng = np.random.default_rng(11)
    model = random_trees(rng, 7, 12, 120, 4, lambda n: rng.normal(size=n))
    whole = quantify(model, integers(7, 12), Fairness("a0"), time_limit=0.5, workers=1)
    assert whole.statistical is not None
    part = whole.restrict(" and ".join(f"a{i} == 3" for i in range(1, 7)), time_limit=60)
    assert part.converged
    assert part.statistical is None


def test_a_part_without_confident_inputs_is_undefined() -> None:
    model, space = two_sided_model()
    for engine in ("box", "auto", "exhaustive"):
        part = quantify(model, space, Fairness("sex", 0, "0.9"), engine=engine).restrict("age < 5")
        assert part.undefined
        assert part.bounds is None
        assert part.confident.upper == 0
        assert part.remarks == ("No input is confident at kappa 0.9, so the measure is undefined.",)
        other = quantify(model, space, Fairness("sex", 0, "0.9"), engine=engine).restrict("age >= 5")
        assert other.value == pytest.approx(0, abs=1e-9)
        assert not other.undefined


def test_a_whole_space_without_confident_inputs_is_undefined_however_its_mass_is_rounded() -> None:
    """Masses of a third and a seventh, and many boxes: sums in floats leave 1e-17 of fair inputs."""
    undefined = 0
    for seed in range(40):
        ensemble, space, prop = random_problem(random.Random(f"undefined {seed}"), max_pieces=200, kappa=False)
        if ensemble.link != "sigmoid":
            continue
        kind = Fairness(prop.sensitive, 0, "0.9999999999") if prop.sensitive else Robustness("1/4", "0.9999999999")
        result = quantify(ensemble, space, kind, engine="box", workers=1)
        assert result.undefined == (naive_quantify(ensemble, space, kind).confident == 0)
        undefined += result.undefined
    assert undefined > 10


def two_sided_model() -> tuple[Any, Space]:
    """Below 5 years nobody is confident; from there on the classes of the sexes differ, with 0.95 of confidence."""
    builder = EnsembleBuilder()
    builder.add_tree(
        feature=[0, 0, 1, 0, 0],
        test=[Test.LESS_F32, Test.LEAF, Test.LESS_F32, Test.LEAF, Test.LEAF],
        threshold=[5.0, 0.0, 0.5, 0.0, 0.0],
        left=[1, 0, 3, 0, 0],
        right=[2, 0, 4, 0, 0],
        value=[0.0, 0.1, 0.0, 3.0, -3.0],
    )
    model = builder.build(library="example", feature_names=["age", "sex"], base=(Fraction(0),), link="sigmoid")
    return model, Space([Attribute.integer("age", 0, 8), Attribute.integer("sex", 0, 1)])


def test_a_restriction_of_a_restriction_is_about_both_conditions() -> None:
    result = quantify(loan_ensemble(), Space([Attribute.integer("income", 0, 999), *list(loan_space())[1:]]),
                      Fairness("race"))  # fmt: skip
    part = result.restrict("age >= 91").restrict("income < 100 and race in [0, 1]")
    assert part.details["condition"] == "(age >= 91) and (income < 100 and race in [0, 1])"
    assert part.details["share_of_space"] == pytest.approx(10 / 101 * 0.1 * 0.4)
    assert part.count == 10 * 100 * 2
    assert result.restrict("age >= 91").restrict("age < 93").count == 1000 * 5 * 2


def test_where_kappa_admits_every_input_all_are_confident_whatever_is_decided() -> None:
    for kappa in (0, "1/2"):
        for engine, options in (("box", {"call_nodes": 1, "finish_limit": 5}), ("sample", {"points": 50})):
            result = quantify(loan_ensemble(), loan_space(), Fairness("race", 0, kappa), engine=engine, node_limit=1,
                              workers=1, options=options)  # fmt: skip
            assert not result.converged
            assert (result.confident.lower, result.confident.upper) == (1.0, 1.0)
    partial = quantify(loan_ensemble(), loan_space(), Fairness("race", 0, "0.6"), engine="sample",
                       options={"points": 50})  # fmt: skip
    assert partial.confident.lower == 0


# --- searches that a limit has ended ----------------------------------------------------------------------------------


def large_problem() -> tuple[Any, Space, Fairness]:
    from tests.engines.test_box import integers, random_trees

    rng = np.random.default_rng(7)
    return random_trees(rng, 6, 9, 60, 3, lambda n: rng.normal(size=n)), integers(6, 9), Fairness("a0")


def test_bounds_of_partial_answers_contain_the_final_ones() -> None:
    problem = large_problem()
    small = {"finish_limit": 8, "call_nodes": 5, "batch": 1}
    whole = quantify(*problem, engine="box", workers=1)
    part = quantify(*problem, engine="box", workers=1, node_limit=200, options=small)
    assert whole.converged
    assert not part.converged
    some_open = False
    for name in ("a0", "a1", "a2"):
        exact, found = whole.profile(name), part.profile(name, time_limit=0.01)
        for one in ("", "share_", "density_"):
            assert (found[f"{one}lower"] <= exact[f"{one}upper"]).all()
            assert (found[f"{one}upper"] >= exact[f"{one}lower"]).all()
        assert exact.attrs["converged"]
        some_open |= not found.attrs["converged"]
        assert (exact["upper"] - exact["lower"]).max() < TOLERANCE
        assert exact["share_lower"].sum() == pytest.approx(1)
    assert some_open
    exact, found = whole.pairs(), part.pairs(time_limit=0.001)
    assert (found.to_numpy() <= np.array(exact.attrs["upper"])).all()
    assert (np.array(found.attrs["upper"]) >= exact.to_numpy()).all()
    table = part.regions(top=None, time_limit=0.01)
    assert not table.attrs["complete"]
    assert table.attrs["counterexample_upper"] >= whole.counterexample.lower
    assert table["share"].sum() <= table["mass"].sum() / whole.counterexample.lower + 1e-12


def test_whether_all_regions_are_known_is_asked_of_the_search_that_found_them() -> None:
    """The exhaustive engine has converged; the box engine, which it needs for the regions, is stopped at once."""
    from dataclasses import replace

    from boxqte.engines.protocol import Limits

    problem = large_problem()
    done = quantify(*problem, engine="exhaustive")
    options = {"finish_limit": 8, "call_nodes": 1, "batch": 1}
    stopped = replace(done.asked, engine="box", options=options, limits=Limits(time_limit=1e-9), answers={})
    result = replace(done, asked=stopped)
    table = result.regions(top=None, flip=False)
    assert not table.attrs["complete"]
    assert table["share"].sum() < 0.9
    profile = result.profile("a1")
    exact = done.profile("a1")
    assert (profile["lower"] <= exact["upper"]).all()
    assert (profile["upper"] >= exact["lower"]).all()


def test_flips_of_an_unfinished_search_are_ranges() -> None:
    from boxqte.answers.followups import _directions, _percent

    assert _percent(0.25, 0.25) == "25%"
    assert _percent(0.251, 0.399) == "25% to 40%"
    assert _directions((0.1, 0.1), (0.3, 0.3)) == "0 -> 1 25%, 1 -> 0 75%"
    assert _directions((0.1, 0.1), (0.0, 0.0)) == "0 -> 1"
    assert _directions((0.1, 0.2), (0.0, 0.1)) == "0 -> 1 50% to 100%, 1 -> 0 0% to 50%"


def test_a_restriction_cuts_cells_anywhere() -> None:
    """The edge of a condition need not be an edge of the model: inside a cell all x are alike."""
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"))
    parts = [result.restrict(f"{a} <= income < {b}") for a, b in ((0, 123.5), (123.5, 700), (700, 1000))]
    shares = (0.1235, 0.5765, 0.3)
    assert sum(float(p.decided.unfair) * s for p, s in zip(parts, shares)) == pytest.approx(
        float(result.decided.unfair), abs=1e-13
    )
    assert parts[0].details["share_of_space"] == pytest.approx(0.1235)


# --- conditions -------------------------------------------------------------------------------------------------------


SPACE = Space([
    Attribute.real("income", 0, 10), Attribute.integer("age", 18, 99, missing=True),
    Attribute.categorical("marital-status", ["single", "married", "widowed"]),
    Attribute.categorical("race", [0, 1, 2], labels=["A", "B", "C"]),
])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "mass"),
    [
        ("age >= 60", Fraction(40, 83)),
        ("age > 59", Fraction(40, 83)),
        ("59.5 < age", Fraction(40, 83)),
        ("18 <= age < 28", Fraction(10, 83)),
        ("age < 20 or age >= 98", Fraction(4, 83)),
        ("not (age < 20 or age >= 98)", Fraction(79, 83)),
        ("age == missing", Fraction(1, 83)),
        ("age is missing", Fraction(1, 83)),
        ("age != missing", Fraction(82, 83)),
        ("age == 30", Fraction(1, 83)),
        ("age in [30, 31, 7]", Fraction(2, 83)),
        ("age not in (30, 31)", Fraction(81, 83)),
        ("`marital-status` == 'married'", Fraction(1, 3)),
        ("race == 'B'", Fraction(1, 3)),
        ("race == B", Fraction(1, 3)),
        ("race in {A, `B`}", Fraction(2, 3)),
        ("race in [1, 'C']", Fraction(2, 3)),
        ("income < 2.5 and race != 0", Fraction(1, 6)),
        ("income >= 2.5 and income <= 5", Fraction(1, 4)),
    ],
)
def test_conditions_mean_what_they_say(text: str, mass: Fraction) -> None:
    parts = parse_condition(text, SPACE)
    assert math.prod((mass_of(SPACE[n], p) for n, p in parts.items()), start=Fraction(1)) == mass


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("age >=", "cannot be read"),
        ("height > 3", "'height' is not an attribute"),
        ("age > 3 or income > 3", "'or' joins different attributes"),
        ("not (age > 3 and income > 3)", "one attribute"),
        ("race < 1", "has no order"),
        ("race == 'X'", "has no value 'X'; it has A, B, C"),
        ("race == X", "has no value 'X'; it has A, B, C"),
        ("race == age", "has no value 'age'; it has A, B, C"),
        ("income == 3", "one value has no mass"),
        ("income == missing", "never missing"),
        ("age > 'old'", "expected a finite number"),
        ("age + 1", "is no comparison"),
        ("__import__('os').system('x') > 1", "names no attribute"),
        ("age in 3", "is no value or list"),
        ("3 < 4", "names no attribute"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(SpaceError) as error:
        parse_condition(text, SPACE)
    assert why in str(error.value)


# --- regions ----------------------------------------------------------------------------------------------------------


def check_regions(problem: Problem, **options: Any) -> None:
    result, rows = asked(problem, **options)
    grid = result.asked.grid
    total = float(unfair_mass(rows))
    for form in ({}, {"merge": False}, {"pure": True}):
        table = result.regions(top=None, **form)  # type: ignore[arg-type]
        assert table["mass"].sum() == pytest.approx(total, abs=TOLERANCE)
        assert table["mass"].is_monotonic_decreasing
        assert table.attrs["elsewhere"] == 0
        assert table.attrs["complete"]
        if total:
            assert table["share"].sum() == pytest.approx(1)
        if grid.has_tolerance and form:
            continue
        found = Fraction(0)
        for _, row in table.iterrows():
            parts = {} if row["rule"] == "everywhere" else parse_condition(row["rule"], problem.space)
            mine = [r for r in rows if all(inside(problem, n, p, r.x[n]) for n, p in parts.items())]
            mass = sum((r.mass for r in mine), Fraction(0))
            assert row["mass"] == pytest.approx(float(unfair_mass(mine)), abs=1e-9)
            assert row["density"] == pytest.approx(float(unfair_mass(mine) / mass), abs=1e-6)
            found += mass
        assert found <= 1 + Fraction(1, 10**9)  # disjoint


@pytest.mark.parametrize("seed", range(30))
def test_regions_equal_the_oracle(seed: int) -> None:
    options = [{}, {"finish_limit": 8}, {"finish_limit": 40, "call_nodes": 3}][seed % 3]
    # thresholds like 1e-35 do not survive being printed, so no zero bands: they come with missing values
    check_regions(random_problem(random.Random(f"regions {seed}"), eps=False, max_pieces=300, missing=seed % 2 == 0,
                                 real=seed % 2 == 1), **options)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_regions_with_tolerance_equal_the_oracle(seed: int) -> None:
    check_regions(random_problem(random.Random(f"regions eps {seed}"), max_pieces=150, max_pairs=20_000, missing=False))


def test_flips_say_who_gets_what() -> None:
    """The loan model: the direction of every region, checked value by value."""
    problem = Problem(loan_ensemble(), loan_space(), Fairness("race"))
    result, rows = asked(problem)
    table = result.regions(merge=False)
    assert len(table)
    for _, row in table.iterrows():
        parts = parse_condition(row["rule"], problem.space)
        mine = [r for r in rows if all(inside(problem, n, p, r.x[n]) for n, p in parts.items()) and r.counterexample]
        said = {}
        for words in row["flip"].split("; "):
            values, _, share = words.rpartition(": ")
            for value in values.split(" or "):
                said[int(value)] = share
        for value in range(5):
            of_value = [r for r in mine if r.x["race"] == value]
            ones = sum((r.mass for r in of_value if r.class_ == 1), Fraction(0)) / sum(r.mass for r in of_value)
            expected = "1" if ones == 1 else "0" if ones == 0 else f"1 in {float(ones):.0%}"
            assert said[value] == expected


def test_flips_with_tolerance_are_shares_of_the_classes() -> None:
    problem = Problem(loan_ensemble(), loan_space(), Robustness("1/10"))
    result, rows = asked(problem)
    table = result.regions(top=None)
    assert len(table) == 1  # income and age move, race is tested by trees together with them
    up = sum((r.mass for r in rows if r.counterexample and r.class_ == 0), Fraction(0)) / unfair_mass(rows)
    assert table["flip"][0] == f"0 -> 1 {float(up):.0%}, 1 -> 0 {float(1 - up):.0%}"


def test_the_store_is_bounded_and_loses_no_mass() -> None:
    from tests.engines.test_box import integers, random_trees

    rng = np.random.default_rng(7)
    model = random_trees(rng, 6, 9, 40, 3, lambda n: rng.normal(size=n))
    whole = quantify(model, integers(6, 9), Fairness("a0"), engine="box", options={"finish_limit": 8})
    boxes = whole.asked.store.boxes
    small = RegionStore(limit=boxes.cells.nbytes // 10)
    small.begin(whole.asked.store.problem, boxes.cells[:1])
    from boxqte.engines.protocol import Closed

    for start in range(0, len(boxes), 50):
        part = boxes.take(slice(start, start + 50))
        small.closed(Closed(part.cells, part.masses, part.counted.astype(np.int8)))
    assert small.boxes.cells.nbytes <= small.limit
    assert small.elsewhere > 0
    assert small.mass == pytest.approx(whole.asked.store.mass, abs=1e-12)


def test_merging_joins_only_neighbours_and_keeps_the_sum() -> None:
    cells = np.array([[[0b0001], [1]], [[0b0010], [1]], [[0b1000], [1]], [[0b0001], [2]]], np.uint64)
    masses = np.array([[0.1, 0.1, 0], [0.1, 0.1, 0], [0.1, 0.1, 0], [0.0, 0.2, 0]])
    boxes = Boxes(cells, masses, np.ones(4, bool))
    joined = merged(boxes, ordered=[True, False])
    assert sorted(held_cells(joined.cells[:, 0], 4).sum(axis=1).tolist()) == [1, 1, 2]
    assert joined.masses.sum() == pytest.approx(masses.sum())
    assert len(merged(boxes, alike=math.inf)) == 2  # sets may have gaps, the pure box joins no other in its own row


def test_a_result_without_its_model_says_so() -> None:
    from dataclasses import replace

    result = replace(quantify(loan_ensemble(), loan_space(), Fairness("race")), asked=None)
    with pytest.raises(EngineError, match="call quantify again"):
        result.regions()


def test_other_engines_find_their_regions_too() -> None:
    exact = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive")
    assert exact.regions(top=None)["mass"].sum() == pytest.approx(exact.counterexample.lower)
