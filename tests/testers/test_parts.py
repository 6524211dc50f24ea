"""The parts of the testers: coordinates, trees as boxes, pairs on a tree, explanations."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boxqte.errors import SpaceError
from boxqte.space.attributes import Attribute, Histogram
from boxqte.space.space import Space
from boxqte.testers.blackbox import BlackBox
from boxqte.testers.coordinates import Coordinates
from boxqte.testers.expga import ExpGA
from boxqte.testers.lime import Explainer
from boxqte.testers.pair_solver import Demands, PairSolver
from boxqte.testers.session import Session, Spent
from boxqte.testers.sg import solve
from boxqte.testers.trees import BoxTree, Condition

SPACE = Space(
    [
        Attribute.integer("n", -5, 5),
        Attribute.real("r", -1, 1, missing=0.25),
        Attribute.categorical("c", ["u", "v"], codes=[7, 3], missing=True),
        Attribute.one_hot("h", ["h0", "h1", "h2"]),
        Attribute.integer("s", 0, 1),
    ]
)
AT = Coordinates(SPACE, "s")


def session(space: Space = SPACE, sensitive: str = "s", function: Any = None, **options: Any) -> Session:
    box = BlackBox(function or (lambda rows: (np.nan_to_num(rows[:, 0]) > 0).astype(int)), space)
    arguments: dict[str, Any] = {"batch": True, "seconds": None, "tests": 1000, "random_state": 0} | options
    return Session(box, Coordinates(space, sensitive), **arguments)


# --- coordinates ---


def test_draws_lie_in_the_space_and_reach_all_of_it() -> None:
    x = AT.draw(np.random.default_rng(0), 5000)
    assert AT.inside(x).all()
    frame = AT.frame(x)
    assert sorted(frame["n"].unique()) == list(range(-5, 6))
    assert abs(frame["r"].isna().mean() - 0.25) < 0.02
    assert set(frame["c"].dropna()) == {"u", "v"}
    assert abs(frame["c"].isna().mean() - 1 / 3) < 0.03
    assert set(frame["h"]) == {"h0", "h1", "h2"}


def test_draws_follow_the_masses_of_the_space() -> None:
    space = Space([Attribute.integer("n", 0, 9), Attribute.real("r", 0, 1), Attribute.categorical("c", [0, 1])])
    quarter = Histogram(tuple(map(Fraction, (0, 2, 10))), (Fraction(1), Fraction(3)))
    half = Histogram((Fraction(0), Fraction(1, 10), Fraction(1)), (Fraction(1), Fraction(1)))
    space = space.with_mass({"n": quarter, "r": half, "c": [1, 9]})
    x = Coordinates(space, "c").draw(np.random.default_rng(0), 20_000)
    assert abs((x[:, 0] < 2).mean() - 0.25) < 0.02
    assert abs((x[:, 1] < 0.1).mean() - 0.5) < 0.02
    assert abs((x[:, 2] == 1).mean() - 0.9) < 0.02


def test_a_table_is_read_back_to_the_same_coordinates() -> None:
    x = AT.draw(np.random.default_rng(1), 500)
    np.testing.assert_array_equal(AT.read(AT.frame(x)), x)


def test_a_typed_end_of_a_range_is_read_as_that_end() -> None:
    """The doubles of -4.44 and 4.4 lie just outside the interval that the decimals name, as in the data set LSAC."""
    space = Space([Attribute.real("r", "-4.44", "4.4"), Attribute.integer("s", 0, 1)])
    low, high = space.attributes[0].low, space.attributes[0].high
    assert Fraction(-4.44) < low
    assert Fraction(4.4) > high
    at = Coordinates(space, "s")
    x = at.read(pd.DataFrame({"r": [-4.44, 0.0, 4.4], "s": [0, 1, 0]}))
    assert at.inside(x).all()
    assert all(low <= Fraction(v) <= high for v in x[:, 0])
    with pytest.raises(SpaceError, match=r"attribute 'r', row 0: -4\.45 is outside -4\.44 to 4\.4"):
        at.read(pd.DataFrame({"r": [-4.45], "s": [0]}))


def test_a_one_hot_group_is_read_from_its_columns() -> None:
    x = AT.draw(np.random.default_rng(1), 50)
    frame = AT.frame(x)
    for value in ("h0", "h1", "h2"):
        frame[value] = (frame["h"] == value).astype(float)
    np.testing.assert_array_equal(AT.read(frame.drop(columns="h")), x)


@pytest.mark.parametrize(("name", "value"), [("n", 6), ("n", 0.5), ("n", None), ("c", "w"), ("r", 1.5), ("n", "many")])
def test_a_row_outside_the_space_is_refused(name: str, value: Any) -> None:
    frame = AT.frame(AT.draw(np.random.default_rng(1), 3)).astype(object)
    frame.loc[1, name] = value
    with pytest.raises(SpaceError, match=f"data, attribute '{name}', row 1: |column '{name}': mixed types"):
        AT.read(frame)


def test_the_matrix_holds_the_codes_and_nan_for_missing() -> None:
    box = BlackBox(lambda rows: rows[:, 0] > 0, SPACE)
    absent_r, absent_c = AT.high[1], AT.high[2]
    x = np.array([[-5.0, 0.5, 0.0, 1.0, 1.0], [2.0, absent_r, absent_c, 2.0, 0.0]])
    np.testing.assert_array_equal(AT.matrix(x, box.codes), [[-5, 0.5, 7, 0, 1, 0, 1], [2, np.nan, np.nan, 0, 0, 1, 0]])


def test_keys_are_equal_exactly_for_rows_that_differ_in_the_sensitive_attribute_alone() -> None:
    finite = Coordinates(Space([Attribute.integer("a", -3, 3), Attribute.integer("b", 0, 5), SPACE["s"]]), "s")
    for at in (AT, finite):
        x = at.draw(np.random.default_rng(2), 400)
        keys = at.keys(x)
        rows = [tuple(row) for row in x[:, at.others]]
        assert len(set(keys)) == len(set(rows)) == len({*zip(keys, rows)})
        assert at.keys(at.with_sensitive(x, 1 - x[:, at.sensitive])) == keys


def test_keys_outside_the_space_are_distinct_too() -> None:
    at = Coordinates(Space([Attribute.integer("a", 0, 9), Attribute.integer("b", 0, 9), SPACE["s"]]), "s")
    keys = at.keys(np.array([[10.0, 0, 0], [0, 1, 0], [0, 1, 1], [-1, 2, 0], [9, 1, 0]]))
    assert keys[1] == keys[2]
    assert len(set(keys)) == 4


def test_snapping_leads_into_the_space() -> None:
    x = np.random.default_rng(3).normal(0, 20, (500, 5))
    assert AT.inside(AT.snap(x)).all()
    inside = AT.draw(np.random.default_rng(3), 100)
    np.testing.assert_array_equal(AT.snap(inside), inside)


# --- the session ---


def test_flips_are_found_for_every_sensitive_value() -> None:
    space = Space([Attribute.integer("a", 0, 9), Attribute.integer("s", 3, 40)])
    run = session(space, function=lambda rows: (rows[:, 1] == 29) & (rows[:, 0] > 4))
    x = run.at.draw(run.rng, 100)
    flips = run.test(x)
    np.testing.assert_array_equal(flips, x[:, 0] > 4)
    idis, partners = run.pairs()
    assert ((idis[:, 1] == 29) ^ (partners[:, 1] == 29)).all()


def test_what_is_known_not_to_flip_is_not_asked_again() -> None:
    asked: list[float] = []

    def f(rows: np.ndarray) -> np.ndarray:
        asked.extend(rows[:, 1].tolist())
        return np.zeros(len(rows))

    space = Space([Attribute.integer("a", 0, 9), Attribute.integer("s", 0, 3)])
    run = session(space, function=f)
    run.flips(np.array([[0.0, 2.0], [1.0, 0.0]]), np.zeros(2, np.int64), tried=np.array([1.0, 3.0]))
    assert sorted(asked) == [0, 1, 2, 3]


def test_a_session_ends_when_its_tests_are_spent() -> None:
    run = session(tests=100)
    sizes = run.sizes(1000)
    for expected in (64, 36):
        size = next(sizes)
        assert size == expected
        run.tests += size
    with pytest.raises(Spent, match="tests"):
        next(sizes)


# --- trees ---


def labelled(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = AT.draw(rng, n)
    return x, ((x[:, 0] + 3 * (x[:, 3] == 1) - 2 * x[:, 4] + 2 * x[:, 1] > 0.5) ^ (rng.random(n) < 0.05)).astype(int)


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_the_leaves_of_a_tree_are_disjoint_boxes_that_predict_what_it_predicts(criterion: Any) -> None:
    x, labels = labelled(400, 0)
    tree = BoxTree(AT, x, labels, criterion=criterion, seed=0)
    fresh = AT.draw(np.random.default_rng(5), 1000)
    inside = ((fresh[:, None] >= tree.low) & (fresh[:, None] <= tree.high)).all(axis=2)
    assert (inside.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(tree.label[inside.argmax(axis=1)], tree.predict(fresh))


def test_truncated_thresholds_are_wrong_below_zero() -> None:
    """The published AFT's error: int(-0.5) is 0, so that 0 lies in the left leaf's box although the tree sends it right."""
    space = Space([Attribute.integer("a", -9, 9), Attribute.integer("s", 0, 1)])
    at = Coordinates(space, "s")
    x = np.array([[a, 0.0] for a in range(-9, 10)])
    labels = (x[:, 0] >= -4).astype(np.int64)
    fixed = BoxTree(at, x, labels, criterion="entropy", seed=0)
    faithful = BoxTree(at, x, labels, criterion="entropy", seed=0, truncate=True)
    assert (fixed.high[0, 0], fixed.low[1, 0]) == (-5, -4)
    assert (faithful.high[0, 0], faithful.low[1, 0]) == (-4, -3)


def test_the_path_of_an_input_holds_for_it() -> None:
    x, labels = labelled(400, 1)
    tree = BoxTree(AT, x, labels, criterion="gini", seed=0)
    for row in x[:50]:
        path = tree.path(row)
        assert all((np.float32(row[c.feature]) <= c.threshold) == c.at_most for c in path)
        assert all(0 < c.confidence < 1 for c in path)


def test_a_pair_on_a_tree_meets_every_demand() -> None:
    x, labels = labelled(300, 2)
    run = session()
    tree = BoxTree(AT, x, labels, criterion="entropy", seed=0)
    solver = PairSolver(run, tree)
    one, two = solver.solve(Demands.none(50))
    assert len(one) == 50
    demands = Demands.pruning(AT, tree, one[:5], two[:5])
    more = solver.solve(demands)
    assert len(more[0]) > len(demands.copy) // 2
    for a, b in zip(*(np.concatenate(both) for both in zip((one, two), more))):
        np.testing.assert_array_equal(a[AT.others], b[AT.others])
        assert a[AT.sensitive] != b[AT.sensitive]
        assert AT.inside(np.stack([a, b])).all()
        assert tree.predict(a[None]) != tree.predict(b[None])


def test_a_demand_is_met_by_the_pair_that_answers_it() -> None:
    x, labels = labelled(300, 2)
    run = session()
    tree = BoxTree(AT, x, labels, criterion="entropy", seed=0)
    solver = PairSolver(run, tree)
    one, two = solver.solve(Demands.none(3))
    demands = Demands.pruning(AT, tree, one, two)
    for i in range(len(demands.copy)):
        a, b = solver.solve(demands.of(np.array([i])))
        for pair in zip(a, b):
            value = pair[demands.copy[i]][demands.feature[i]]
            assert demands.low[i] <= value <= demands.high[i]
            assert value != demands.not_[i]


def test_a_tree_without_pairs_has_no_solution() -> None:
    x, _ = labelled(100, 3)
    tree = BoxTree(AT, x, (x[:, 0] > 0).astype(int), criterion="entropy", seed=0)
    assert len(PairSolver(session(), tree).solve(Demands.none(5))[0]) == 0


def test_conditions_are_solved_within_the_domain_and_leave_the_rest() -> None:
    rng = np.random.default_rng(0)
    t = AT.draw(rng, 1)[0]
    for _ in range(50):
        child = solve(AT, rng, t, [Condition(0, False, 1.5, 0.5), Condition(0, True, 3.5, 0.5)])
        assert child is not None
        assert child[0] in (2, 3)
        np.testing.assert_array_equal(child[1:], t[1:])
    assert solve(AT, rng, t, [Condition(0, False, 3.5, 0.5), Condition(0, True, 1.5, 0.5)]) is None
    assert solve(AT, rng, t, [Condition(0, False, 5.5, 0.5)]) is None


# --- ExpGA ---


def test_explanations_rank_the_attribute_that_decides_first() -> None:
    run = session(function=lambda rows: rows[:, 6] > 0.5)
    x = run.at.draw(run.rng, 20)
    explainer = Explainer(run, run.at.draw(run.rng, 500), 1000)
    for row, label in zip(x, run.labels(x)):
        assert np.abs(explainer.weights(row, int(label))).argmax() == AT.sensitive


def test_the_published_mutation_never_draws_the_highest_value() -> None:
    space = Space([Attribute.integer("a", 0, 3), Attribute.integer("b", 0, 3), Attribute.integer("s", 0, 1)])
    run = session(space)
    parents = np.zeros((400, 3))
    seen = {}
    for variant in ("fixed", "faithful"):
        tester = ExpGA(ExpGA.Options(mutation=0.5), variant=variant)  # type: ignore[arg-type]
        seen[variant] = set(tester._breed(run, parents, np.ones(400), 400)[:, 0].tolist())
    assert seen == {"fixed": {0, 1, 2, 3}, "faithful": {0, 1, 2}}


def test_crossover_copies_a_slice_of_a_mate_and_the_published_one_mostly_nothing() -> None:
    space = Space([*(Attribute.integer(f"x{i}", 0, 1) for i in range(10)), Attribute.integer("s", 0, 1)])
    run = session(space)
    parents = np.repeat([[0.0], [1.0]], 500, axis=0) * np.ones(11)
    mixed = {}
    for variant in ("fixed", "faithful"):
        tester = ExpGA(ExpGA.Options(mutation=0.0), variant=variant)  # type: ignore[arg-type]
        children = tester._breed(run, parents, np.ones(1000), 1000)
        mixed[variant] = float((np.ptp(children, axis=1) > 0).mean())
    # A mate differs half of the time; one of 55 slices is everything.
    assert abs(mixed["fixed"] - 0.9 / 2 * 65 / 66) < 0.06
    assert abs(mixed["faithful"] - 0.29 * 0.9 / 2 * 65 / 66) < 0.06


def test_frames_keep_the_kinds_of_the_values() -> None:
    frame = AT.frame(AT.draw(np.random.default_rng(0), 5))
    assert frame["n"].dtype == np.int64
    assert frame["r"].dtype == np.float64
    assert isinstance(frame, pd.DataFrame)
