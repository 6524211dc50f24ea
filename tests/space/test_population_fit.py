"""Populations fitted to tables: exact masses, what they capture, groups, files, and commands."""

from __future__ import annotations

import itertools
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import boxqte
from boxqte import (
    Attribute,
    Fairness,
    Policy,
    Population,
    Requirement,
    Robustness,
    Space,
    group_rates,
    population,
    quantify,
)
from boxqte.cli.main import main
from boxqte.errors import PolicyError, SpaceError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import Test
from boxqte.report.populations import population_text
from boxqte.space.binning import MAX_CUTS, bins_of, model_cuts
from boxqte.space.rows import TableRows
from boxqte.space.tables import table_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def people(n: int = 600, seed: int = 0) -> dict[str, list[Any]]:
    """A table in which age, sex and wealth depend on each other; some wealth is missing."""
    rng = random.Random(seed)
    rows: list[tuple[Any, ...]] = []
    for _ in range(n):
        old = rng.random() < 0.4
        age = rng.randint(50, 80) if old else rng.randint(18, 49)
        sex = "f" if rng.random() < (0.8 if old else 0.3) else "m"
        wealth = None if rng.random() < 0.1 else round(rng.uniform(5, 10) if old else rng.uniform(0, 6), 2)
        rows.append((age, sex, wealth, rng.choice("xyz")))
    return dict(zip(("age", "sex", "wealth", "kind"), map(list, zip(*rows))))


def space() -> Space:
    return Space([
        Attribute.integer("age", 0, 100),
        Attribute.categorical("sex", ["f", "m", "d"]),
        Attribute.real("wealth", 0, 10, missing="0.1"),
        Attribute.one_hot("kind", ["kind_x", "kind_y", "kind_z", "kind_w"], values=["x", "y", "z", "w"]),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def fitted() -> Population:
    return Population.fit(people(), space(), 3)


def cells_of(attribute: Attribute) -> list[Fraction]:
    """The mass of every piece of a domain in which an attribute's mass is even."""
    absent = [] if attribute.missing is None else [attribute.missing]
    if not attribute.is_numeric:
        return attribute.value_masses() + absent
    edges = [attribute.low, *attribute.knots, attribute.end]
    below = [attribute.mass_below(edge) for edge in sorted(set(edges))]
    return [high - low for low, high in itertools.pairwise(below)] + absent


def test_masses_are_exact_and_none_is_0(fitted: Population) -> None:
    assert fitted.components == 3
    assert sum(fitted.weights) == 1
    for _, product in fitted.space.products():
        for attribute in product:
            masses = cells_of(attribute)
            assert sum(masses) == 1
            assert min(masses) > 0, "also of the value d, which no row has, and of ages that none is"
            assert all(mass.denominator <= 2**24 for mass in masses)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        Population.fit(people(), space(), random_state=4).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert json.loads((tmp_path / "one").read_text())["population"]["seed"] == 4


def test_dependence_is_captured_and_said() -> None:
    found = Population.fit(people(3000), space())
    captured = found.captured
    assert captured is not None
    assert captured.gain is not None
    assert captured.gain > 0.3
    assert captured.before is not None
    assert captured.after is not None
    assert captured.before.between == ("age", "wealth")
    assert captured.after.distance < captured.before.distance / 3
    text = population_text(found)
    assert f"a mixture of {found.components} products, from 3,000 rows" in text
    assert "age and wealth: the product misses 0.37" in text
    old = found.given("age >= 60")
    assert float(old["sex"].value_masses()[0]) == pytest.approx(0.8, abs=0.06)
    assert float(old["wealth"].mass_below(Fraction(5))) < 0.05


def test_one_component_is_the_smoothed_product() -> None:
    table = people()
    found = Population.fit(table, space(), 1)
    assert found.components == 1
    assert found.space.components == ()
    counts = [table["sex"].count(v) for v in ("f", "m", "d")]
    for count, mass in zip(counts, found.space["sex"].value_masses()):
        assert float(mass) == pytest.approx((count + 1 / 3) / 601, abs=2**-23)
    absent = found.space["wealth"].missing
    assert absent is not None
    assert float(absent) == pytest.approx(table["wealth"].count(None) / 600, abs=0.002)
    assert found.captured is not None
    assert found.captured.gain == 0


def test_rows_outside_the_space_are_left_out_and_counted() -> None:
    table = people(50)
    table["age"][3], table["sex"][7] = 400, "u"
    found = Population.fit(table, space(), 2)
    assert found.rows == 48
    assert found.notes[0].startswith(
        "rows outside the space, left out: 2 (the first one's age: 400 is outside 0 to 100"
    )


def test_a_condition_chooses_the_rows() -> None:
    table = people()
    found = Population.fit(table, space(), 2, where="sex == 'f'")
    assert found.rows == table["sex"].count("f")
    assert found.space["sex"].value_masses()[0] > Fraction(99, 100)


# --- groups -----------------------------------------------------------------------------------------------------------


def points(found: Space) -> dict[tuple[Any, ...], Fraction]:
    """The mass of every input of a finite space, by its definition."""
    masses: dict[tuple[Any, ...], Fraction] = {}
    for x in itertools.product(*(range(len(a.values)) for a in found)):
        masses[x] = Fraction(0)
        for weight, product in found.products():
            own = weight
            for attribute, value in zip(product, x):
                own *= attribute.value_masses()[value]
            masses[x] += own
    return masses


@pytest.mark.parametrize("seed", range(5))
def test_a_group_has_the_conditional_masses(seed: int) -> None:
    finite = Space([Attribute.categorical(name, ["x", "y", "z"][:n]) for name, n in (("a", 2), ("b", 3), ("c", 3))])
    rng = random.Random(seed)
    hidden = [rng.random() < 0.5 for _ in range(200)]
    table = {a.name: [rng.choice(a.values[h:]) for h in hidden] for a in finite}
    found = Population.fit(table, finite, 1 + seed)
    whole, group = points(found.space), points(found.given("b in ['x', 'z'] and a == 'y'"))
    share = sum((m for x, m in whole.items() if x[1] in (0, 2) and x[0] == 1), Fraction(0))
    assert group == {x: m / share if x[1] in (0, 2) and x[0] == 1 else Fraction(0) for x, m in whole.items()}


def test_a_group_keeps_the_rules_of_the_whole() -> None:
    finite = Space(
        [Attribute.categorical("a", ["x", "y"], codes=[0, 1]), Attribute.integer("n", 0, 3)],
        rules=["not (a == 'x' and n >= 2)"],
    )
    rng = random.Random(3)
    table: dict[str, list[Any]] = {"a": [rng.choice("xy") for _ in range(100)]}
    table["n"] = [rng.randint(0, 1 if a == "x" else 3) for a in table["a"]]
    table["a"][0], table["n"][0] = "x", 3
    found = Population.fit(table, finite, 2)
    assert found.rows == 99
    assert "forbidden by the rule" in found.notes[0]
    group = found.given("n <= 2")
    assert [rule.text for rule in group.rules] == [rule.text for rule in finite.rules]
    ensemble = stump("n", 1)
    assert quantify(ensemble, found, Robustness(), engine="exhaustive").exact == 1
    (x, y) = group_rates(ensemble, group, "a", engine="exhaustive").groups
    assert x.rate.upper == 0, "who has x has n <= 1, by the rule"
    masses = [found.space.products()[k][1]["n"] for k in range(2)]
    ys = [w * p["a"].value_masses()[1] for w, p in found.space.products()]
    two = sum(w * (m.mass_below(Fraction(3)) - m.mass_below(Fraction(2))) for w, m in zip(ys, masses))
    below = sum(w * m.mass_below(Fraction(3)) for w, m in zip(ys, masses))
    assert Fraction(y.rate.lower) <= two / below <= Fraction(y.rate.upper)


def stump(name: str, threshold: float) -> Any:
    """A model that says 1 above the threshold of its second column."""
    builder = boxqte.EnsembleBuilder()
    builder.add_tree(feature=1, test=[Test.AT_MOST_F64, Test.LEAF, Test.LEAF], threshold=threshold, left=[1, 0, 0],
                     right=[2, 0, 0], value=[0, -1, 1])  # fmt: skip
    return builder.build(library="lightgbm", feature_names=["a", name], base=[0], link="sigmoid")


def test_group_rates_are_those_of_the_groups_own_space() -> None:
    rng = random.Random(1)
    old = [rng.random() < 0.5 for _ in range(300)]
    table: dict[str, list[Any]] = {
        "income": [rng.uniform(0, 400) if o else rng.uniform(300, 1000) for o in old],
        "age": [rng.randint(60, 100) if o else rng.randint(18, 70) for o in old],
    }
    ensemble, plain = loan_ensemble(), loan_space()
    race = plain["race"]
    table["race"] = [race.values[0] if o and rng.random() < 0.8 else rng.choice(race.values) for o in old]
    found = Population.fit(table, plain, 3, model=ensemble)
    rates = group_rates(ensemble, found, "race", engine="exhaustive")
    for at, group in enumerate(rates.groups):
        inside = found.given(f"race == {race.values[at]!r}")
        (alone,) = group_rates(ensemble, inside, "race", engine="exhaustive").groups
        assert (alone.name, alone.rate) == (group.name, group.rate)
        assert group.mass == found.space["race"].value_masses()[at]


def test_a_group_that_cannot_be_is_refused(fitted: Population) -> None:
    with pytest.raises(SpaceError, match="no input of the space satisfies it"):
        fitted.given("age > 40 and age < 30")
    with pytest.raises(SpaceError, match="leaves only the missing value of 'wealth'"):
        fitted.given("wealth == missing")
    with pytest.raises(SpaceError, match="'hair' is not an attribute"):
        fitted.given("hair == 'red'")


# --- bins -------------------------------------------------------------------------------------------------------------


def test_bins_divide_rows_as_the_model_does() -> None:
    """Also where float32 rounds a value onto a threshold, or past it."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": np.round(rng.random(400), 1), "b": rng.integers(0, 3000, 400)})
    label = ((data.a * 3 + data.b / 400) % 1 > 0.5).astype(int)
    ensemble = boxqte.load_model(
        xgboost.XGBClassifier(n_estimators=15, max_depth=3, n_jobs=1).fit(data, label)
    ).ensemble
    numbers = Space([Attribute.real("a", 0, 1), Attribute.integer("b", 0, 5000)])
    rows = TableRows(numbers, table_of(data))
    cuts = model_cuts(ensemble, numbers)
    assert cuts["a"].single
    for own, column in zip(bins_of(numbers, rows, np.ones(400, bool), ensemble), ("a", "b")):
        edges = [value for value, _ in own.edges]
        codes = own.codes(rows.values[column])
        feature = ensemble.feature_names.index(column)
        for node in np.flatnonzero((ensemble.feature == feature) & (ensemble.left >= 0)).tolist():
            left = ensemble.goes_left(node, data[column].to_numpy(np.float64))
            cut = (
                Fraction(ensemble.threshold[node])
                if column == "a"
                else Fraction(int(np.ceil(ensemble.threshold[node])))
            )
            assert (left == (codes < edges.index(cut))).all()


def test_only_the_edges_that_are_tested_most_divide() -> None:
    builder = boxqte.EnsembleBuilder()
    thresholds = [
        *range(1, 401),
        *range(100, 300),
        0.0,
        5000.0,
    ]  # those from 100 to 299 are tested twice; two lie outside
    for threshold in thresholds:
        builder.add_tree(feature=0, test=[Test.AT_MOST_F64, Test.LEAF, Test.LEAF], threshold=threshold, left=[1, 0, 0],
                         right=[2, 0, 0], value=[0, -1, 1])  # fmt: skip
    ensemble = builder.build(library="lightgbm", feature_names=["a"], base=[0], link="sigmoid")
    cuts = model_cuts(ensemble, Space([Attribute.real("a", 0, 500)]))["a"]
    assert len(cuts.edges) == MAX_CUTS
    assert {(Fraction(value), 1) for value in range(100, 300)} <= set(cuts.edges)
    assert not cuts.single
    whole = model_cuts(ensemble, Space([Attribute.integer("a", 0, 500)]))["a"]
    assert (Fraction(101), 0) in whole.edges, "the first integer for which a <= 100 fails"


# --- files, questions, commands -----------------------------------------------------------------------------------------


def test_the_file_is_a_space_and_a_population(fitted: Population, tmp_path: Path) -> None:
    path = tmp_path / "people.json"
    fitted.save(path)
    assert Space.load(path) == fitted.space
    again = Population.load(path)
    assert again.space == fitted.space
    assert again.to_json() == fitted.to_json()
    assert again.weights == fitted.weights
    fitted.space.save(path)
    with pytest.raises(SpaceError, match="population: missing; this is a space"):
        Population.load(path)
    path.write_text(json.dumps(fitted.to_json() | {"population": {"rows": "many"}}))
    with pytest.raises(SpaceError, match=r"people.json: population: expected what Population.save writes"):
        Population.load(path)
    assert Space.load(path) == fitted.space


def test_a_population_is_taken_for_a_space(tmp_path: Path) -> None:
    table = pd.read_csv(EXAMPLES / "people.csv")
    found = Population.fit(table, Space.load(EXAMPLES / "space.json"), 2)
    found.save(tmp_path / "people.json")
    answers = [
        quantify(EXAMPLES / "model.json", given, Fairness("sex"), engine="exhaustive").exact
        for given in (found, found.space, tmp_path / "people.json")
    ]
    assert answers[0] is not None
    assert answers == [answers[0]] * 3


@pytest.mark.parametrize(("change", "said"), [
    ({"components": 0}, "components: must be at least 1, found 0"),
    ({"components": "many"}, "components: expected auto or a whole number, found 'many'"),
    ({"components": 1.5}, "components: expected a whole number, found 1.5"),
    ({"components": 2000}, "components: must be at most 1024"),
    ({"random_state": -1}, "random_state: must be at least 0"),
    ({"time_limit": 0}, "time_limit: must be above 0 seconds"),
    ({"where": "age > 99"}, "no row of the table satisfies it"),
    ({"space": 3}, "space: expected a Space"),
    ({"frame": {"age": [1]}}, "the table has no column 'sex'"),
    ({"frame": {"age": [-1], "sex": ["f"], "wealth": [1.5], "kind": ["x"]}}, "no row of the table lies in the space"),
    ({"space": space().with_mass("cells")}, "the space counts cells"),
])  # fmt: skip
def test_mistakes_are_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SpaceError, match=said):
        Population.fit(**{"frame": people(30), "space": space()} | change)


def test_a_table_of_few_rows_is_a_product_and_one_value_a_domain() -> None:
    tiny = Space([Attribute.integer("n", 3, 3), Attribute.real("r", 1, 1), Attribute.categorical("c", ["x"])])
    found = Population.fit({"n": [3, 3], "r": [1, 1], "c": ["x", "x"]}, tiny)
    assert found.components == 1
    assert found.captured is not None
    assert found.captured.gain is None
    assert "held-out" not in population_text(found)
    assert Population.fit({"n": [3] * 9, "r": [1] * 9, "c": ["x"] * 9}, tiny, 2).space.names == tiny.names


def test_a_time_limit_ends_the_fit_and_is_noted() -> None:
    found = Population.fit(people(), space(), time_limit=1e-9)
    assert found.notes[0].startswith("the time limit ended the fit")
    assert sum(found.weights) == 1


def test_a_policy_may_be_about_a_population(tmp_path: Path) -> None:
    model, plain, table = (str(EXAMPLES / name) for name in ("model.json", "space.json", "people.csv"))
    lines = [
        f"{name} = {json.dumps(path)}" for name, path in (("model", model), ("space", plain), ("population", table))
    ]
    (tmp_path / "p.toml").write_text("\n".join([*lines, "components = 2", "[require]",
                                                'sex = { sensitive = "sex", at_least = 0.5 }']))  # fmt: skip
    policy = Policy.load(tmp_path / "p.toml")
    report = policy.check(engine="exhaustive")
    expected = population(Space.load(plain), pd.read_csv(table), components=2, model=model)
    result = report.checks[0].result
    assert result is not None
    assert result.exact == quantify(model, expected, Fairness("sex"), engine="exhaustive").exact
    assert main(["gate", str(tmp_path / "p.toml"), "--quiet"]) == 0
    with pytest.raises(PolicyError, match="population: an audit judges requirements over its own space"):
        boxqte.audit(model, space=plain, sensitive="sex", policy=tmp_path / "p.toml")
    requirement = Requirement(Fairness("sex"), 0.5)
    with pytest.raises(PolicyError, match="components: give the table with population"):
        Policy([requirement], components=2)
    with pytest.raises(PolicyError, match="components: expected auto or a whole number, found 'x'"):
        Policy([requirement], population="people.csv", components="x")


def test_space_fit_writes_a_population_that_every_command_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, plain, table = (str(EXAMPLES / name) for name in ("model.json", "space.json", "people.csv"))
    fit = ["space", "fit", table, "--space", plain, "--components", "2", "--model", model, "--seed", "3"]
    assert main([*fit, "-o", str(tmp_path / "one.json")]) == 0
    assert "a mixture of 2 products, from 400 rows" in capsys.readouterr().out
    assert main([*fit, "-o", str(tmp_path / "two.json")]) == 0
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert main(["space", "show", str(tmp_path / "one.json")]) == 0
    shown = capsys.readouterr().out
    assert "a mixture of 2 products; the masses above are each attribute's own" in shown
    assert "the product misses" in shown
    assert main(["rates", model, "--space", str(tmp_path / "one.json"), "--sensitive", "sex", "--quiet"]) == 0


def test_components_are_an_option_of_the_commands_that_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, plain, table = (str(EXAMPLES / name) for name in ("model.json", "space.json", "people.csv"))
    asked = [model, "--space", plain, "--sensitive", "sex", "--population", table]
    answers = []
    for more in ([], ["--components", "1"], ["--components", "3"]):
        assert main(["quantify", *asked, *more, "--engine", "exhaustive", "--json", str(tmp_path / "r.json")]) == 0
        answers.append(json.loads((tmp_path / "r.json").read_text())["measure"]["exact"])
    assert answers[0] == answers[1] != answers[2]
    assert "a mixture of 3 products" in capsys.readouterr().err
    for command, more in (("rates", []), ("scores", []), ("regions", ["--top", "1"]), ("sample", ["-n", "1"])):
        assert main([command, *asked, "--components", "2", *more]) == 0
        assert "a mixture of 2 products" in capsys.readouterr().err
        assert main([command, *asked, "--components", "none", *more]) == 2
        assert "--components: expected auto or a whole number, found 'none'" in capsys.readouterr().err
    assert main(["rates", model, "--space", plain, "--sensitive", "sex", "--components", "2"]) == 2
    assert "--components: give the table with --population" in capsys.readouterr().err


def test_draws_of_the_benchmark_follow_the_population() -> None:
    pytest.importorskip("xgboost")
    from benchmarks.populations import draws

    numbers = Space(
        [Attribute.integer("age", 0, 100), Attribute.categorical("sex", [0, 1]), Attribute.real("wealth", 0, 10)]
    )
    table = people(400)
    table |= {"sex": [int(v == "f") for v in table["sex"]], "wealth": [v or 0.0 for v in table["wealth"]]}
    found = Population.fit(table, numbers, 2)
    x = draws(np.random.default_rng(0), found.space, 40_000)
    assert ((x[:, 0] == np.floor(x[:, 0])) & (x[:, 0] >= 0) & (x[:, 0] <= 100)).all()
    old, woman = x[:, 0] >= 50, x[:, 1] == 1
    group = found.given("age >= 50")
    share = float(group["sex"].value_masses()[1])
    assert woman[old].mean() == pytest.approx(share, abs=4 * (share * (1 - share) / old.sum()) ** 0.5)
    poor = float(group["wealth"].mass_below(Fraction(6)))
    assert (x[old, 2] < 6).mean() == pytest.approx(poor, abs=4 * (poor * (1 - poor) / old.sum()) ** 0.5)


# --- the data sets ------------------------------------------------------------------------------------------------------


@pytest.mark.data
def test_a_population_of_adult_halves_what_the_product_misses() -> None:
    captured = Population.fit(*_data("adult"), 8).captured
    assert captured is not None
    assert captured.before is not None
    assert captured.after is not None
    assert captured.gain is not None
    assert captured.before.between == ("marital_status", "relationship")
    assert captured.after.distance <= captured.before.distance / 2
    assert captured.gain > 1.5


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["adult", "bank", "compas", "credit", "lsac"])
def test_rows_that_were_held_out_are_likelier_than_under_the_product(name: str) -> None:
    captured = Population.fit(*_data(name)).captured
    assert captured is not None
    assert captured.gain is not None
    assert captured.gain > 0.05


def _data(name: str) -> tuple[pd.DataFrame, Space]:
    from benchmarks.paper.datasets import load_dataset

    data = load_dataset(name)
    return data.inputs, data.space
