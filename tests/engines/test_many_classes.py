"""Three or more classes: every engine against the oracle of tests/naive_classes.py, and real models."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest

from boxqte import Fairness, Robustness, Space, load_model, quantify
from boxqte.answers.regions import RegionStore, held_cells
from boxqte.engines.box.classes import decode, encode
from boxqte.engines.box.engine import Box
from boxqte.engines.exhaustive import Exhaustive, class_verdicts
from boxqte.engines.kinds import FAIR, LOW, UNFAIR
from boxqte.engines.point import point_decider
from boxqte.engines.point.classes import class_counterexample, exact_margins
from boxqte.engines.protocol import Companions, Limits, Status, Watch
from boxqte.engines.sample.engine import Sample, SampleOptions
from boxqte.errors import ModelError, PropertyError
from boxqte.models.ensemble import EnsembleBuilder, Test
from boxqte.questions.building import build_any_grid, build_grid
from boxqte.questions.class_grid import ClassGrid, softmax_below, top_class
from boxqte.space.attributes import Attribute
from tests.naive_classes import naive_class_answer, random_class_problem
from tests.strategies import Problem

ONE = Limits(workers=1)
SMALL = {"max_pieces": 150, "max_pairs": 8_000}


def check(problem: Problem) -> None:
    """Exhaustive and box engine equal the oracle; the point decider equals them cell by cell, with true witnesses."""
    grid = build_any_grid(*problem)
    assert isinstance(grid, ClassGrid)
    answer = naive_class_answer(*problem)
    exact = Exhaustive().run(grid, ONE, Watch(ONE)).decided
    assert (1 - exact.low, exact.unfair) == (answer.confident, answer.counterexample)
    watch = Watch(ONE)
    boxes = Box().run(grid, ONE, watch)
    assert boxes.status is Status.CONVERGED
    assert float(boxes.decided.unfair) == pytest.approx(float(answer.counterexample), abs=1e-12)
    assert float(boxes.decided.low) == pytest.approx(float(1 - answer.confident), abs=1e-12)
    if answer.measure is not None:
        assert all(lower <= answer.measure <= upper for _, lower, upper in watch.trace)
    store = RegionStore()
    Box().run(grid, ONE, Watch(ONE), Companions((store,)))
    assert store.mass == pytest.approx(float(answer.counterexample), abs=1e-12)
    points = np.array(list(itertools.product(*(range(len(a.refined)) for a in grid.axes))), np.int64)
    found = point_decider(grid).decide(points)
    confident, unfair = (bits.reshape(-1) for bits in class_verdicts(grid))
    assert np.array_equal(found.verdict, np.where(~confident, LOW, np.where(unfair, UNFAIR, FAIR)))
    covered = np.zeros(len(points), int)
    for box in store.boxes.cells:  # disjoint, and counterexamples throughout
        inside = np.ones(len(points), bool)
        for i, a in enumerate(store.problem.axis_ids):
            inside &= held_cells(box[i], len(grid.axes[a].refined))[points[:, a]]
        assert unfair[inside].all()
        covered += inside
    assert covered.max(initial=0) <= 1
    for i in np.flatnonzero(unfair).tolist():
        own = [int(axis.base[c]) for axis, c in zip(grid.axes, points[i].tolist())]
        witness = found.witness[i].tolist()
        assert top_class(exact_margins(grid, own)) != top_class(exact_margins(grid, witness))
        assert all(a.near_lo[c] <= w <= a.near_hi[c] for a, c, w in zip(grid.axes, points[i].tolist(), witness))


def test_all_engines_equal_the_oracle_on_random_problems() -> None:
    for seed in range(60):
        check(random_class_problem(seed, **SMALL))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_all_engines_equal_the_oracle_on_a_thousand_random_problems(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        check(random_class_problem(seed))


def test_leaf_values_beyond_64_bits_are_decided_exactly() -> None:
    """Thirds, half of the trees 2**40 times smaller."""
    rounded = 0
    for seed in range(20):
        ensemble, space, prop = random_class_problem(seed, max_pieces=80, max_pairs=2_000)
        if ensemble.link == "mean":
            continue
        small = np.random.default_rng(seed).random(ensemble.n_trees) < 0.5
        scale = np.where(small, 2.0**-40, 1.0) / 3
        value = ensemble.value * scale[ensemble.tree_of_node()][:, None]
        problem = Problem(dataclasses.replace(ensemble, value=value), space, prop)
        rounded += point_decider(build_any_grid(*problem)).problem.fuzz > 0
        check(problem)
    assert rounded > 3


def test_python_integers_decide_as_the_kernels_do() -> None:
    for seed in range(15):
        grid = build_any_grid(*random_class_problem(seed, max_pieces=60, max_pairs=2_000))
        assert isinstance(grid, ClassGrid)
        points = np.array(list(itertools.product(*(range(len(a.refined)) for a in grid.axes))), np.int64)
        found = point_decider(grid).decide(points)
        for row, verdict in zip(points.tolist(), found.verdict.tolist()):
            confident, witness = class_counterexample(grid, row)
            assert verdict == (LOW if not confident else FAIR if witness is None else UNFAIR)


def test_statistical_intervals_contain_the_measure() -> None:
    for seed in range(12):
        grid = build_any_grid(*random_class_problem(seed, **SMALL))
        truth = Exhaustive().run(grid, ONE, Watch(ONE)).decided.measure()
        found = Sample(SampleOptions(points=1500, seed=seed)).run(grid, ONE, Watch(ONE)).statistical
        assert found is not None
        assert truth is None or found.lower <= truth[0] <= found.upper


def test_confidence_is_decided_however_close_it_is() -> None:
    """The last digits of a double on either side of the limit: 30 digits do not tell, more do."""
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = 60
        total = 1 + Decimal(-1).exp()
    differences = [Fraction(0), Fraction(-1)]
    assert softmax_below(differences, Fraction(total) + Fraction(1, 10**50))
    assert not softmax_below(differences, Fraction(total) - Fraction(1, 10**50))
    assert not softmax_below([Fraction(0)] * 3, Fraction(3))  # equal margins: a rational comparison


def test_ranges_and_bit_sets_are_the_same_boxes() -> None:
    rng = np.random.default_rng(0)
    ranges = np.sort(rng.integers(0, 150, (20, 4, 2)), axis=2)
    assert np.array_equal(decode(encode(ranges, 3)), ranges)


def test_a_profile_asks_who_is_confident() -> None:
    """Sex 0 has (1, 0, 0), sex 1 has (.1, .5, .4): at kappa .6 only sex 0 is confident, so all counterexamples have it."""
    builder = EnsembleBuilder()
    builder.add_tree(
        feature=[0, 0, 0], test=[Test.LESS_F32, Test.LEAF, Test.LEAF], threshold=[0.5, 0.0, 0.0], left=[1, 0, 0],
        right=[2, 0, 0], value=[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.1, 0.5, 0.4]], output=-1,
    )  # fmt: skip
    model = builder.build(
        library="example", feature_names=["sex"], base=(Fraction(0),) * 3, link="mean", classes=(0, 1, 2)
    )
    space = Space([Attribute.integer("sex", 0, 1)])
    for engine in ("box", "exhaustive", "auto"):
        table = quantify(model, space, Fairness("sex", 0, "0.6"), engine=engine).profile("sex")
        assert table["lower"].tolist() == pytest.approx([0.5, 0.0])
        assert table["upper"].tolist() == pytest.approx([0.5, 0.0])
        assert table["share_lower"].tolist() == pytest.approx([1.0, 0.0])
    all_of_them = quantify(model, space, Fairness("sex", 0, 0)).profile("sex")
    assert all_of_them["lower"].tolist() == pytest.approx([0.5, 0.5])


def test_the_papers_tie_rule_is_refused() -> None:
    ensemble, space, _ = random_class_problem(1)
    with pytest.raises(PropertyError, match="two classes"):
        build_any_grid(ensemble, space, Robustness(tie="paper"))


def test_questions_for_two_classes_refuse_more() -> None:
    ensemble, space, prop = random_class_problem(1)
    with pytest.raises(ModelError, match="two classes only"):
        build_grid(ensemble, space, prop)
    with pytest.raises(ModelError, match="checkpoints and certificates"):
        quantify(ensemble, space, prop, certificate="never-written.cert")
    name = space.names[0]
    with pytest.raises(ModelError, match="pairs: for models with two classes only, this one has"):
        quantify(ensemble, space, Fairness(name, kappa=0)).pairs()


def iris() -> tuple[np.ndarray, np.ndarray, Space]:
    data = pytest.importorskip("sklearn.datasets").load_iris(as_frame=True)
    frame = data.data.rename(columns=lambda name: name.replace(" (cm)", "").replace(" ", "_"))
    return frame, data.target, Space.from_data(frame)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "forest", "boosting"])
def test_models_of_three_classes_are_answered_exactly(library: str) -> None:
    frame, target, space = iris()
    if library == "xgboost":
        model = pytest.importorskip("xgboost").XGBClassifier(n_estimators=4, max_depth=2, n_jobs=1)
    elif library == "lightgbm":
        model = pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=4, num_leaves=4, verbose=-1, n_jobs=1)
    elif library == "forest":
        model = pytest.importorskip("sklearn.ensemble").RandomForestClassifier(6, max_depth=3, random_state=0)
    else:
        ensembles = pytest.importorskip("sklearn.ensemble")
        model = ensembles.GradientBoostingClassifier(n_estimators=4, max_depth=2, random_state=0)
    model.fit(frame, target)
    for prop in (Robustness(0.05), Robustness(0.05, 0.6), Fairness("petal_width", 0, 0)):
        results = [quantify(model, space, prop, engine=e, workers=1) for e in ("box", "exhaustive")]
        assert results[0].converged
        assert results[0].value == pytest.approx(results[1].value, abs=1e-9)
    result = quantify(model, space, Robustness(0.05, 0.4), workers=1)
    drawn = result.sample(300, random_state=1)
    assert len(drawn) == 300
    assert drawn.replayed
    assert not len(drawn.disagreements)
    assert (model.predict(drawn.x) != model.predict(drawn.witness)).all()
    table = result.regions(5)
    assert table["mass"].sum() <= float(result.counterexample.upper) + 1e-12
    assert set(" ".join(table["flip"]).replace(",", "").split()) <= {"0", "1", "2", "->"}
    for rule, share in zip(table["rule"], table["mass"]):
        inside = result.restrict(rule)
        assert inside.counterexample.lower == pytest.approx(1.0)  # every region is counterexamples throughout
        assert inside.details["share_of_space"] == pytest.approx(share)
    profile = result.profile("petal_width")
    assert profile["lower"].sum() == pytest.approx(float(result.counterexample.lower), abs=1e-9)
    predicted = load_model(model).ensemble.predict(frame.to_numpy())
    assert np.array_equal(predicted, model.predict(frame))


def test_ten_classes_get_any_time_bounds_and_an_interval() -> None:
    sklearn = pytest.importorskip("sklearn.datasets")
    digits = sklearn.load_digits()
    columns = [19, 21, 26, 36, 42, 43]
    names = [f"pixel_{c}" for c in columns]
    import pandas as pd

    frame = pd.DataFrame(digits.data[:, columns].astype(int), columns=names)
    model = pytest.importorskip("sklearn.ensemble").RandomForestClassifier(12, max_depth=5, random_state=0)
    model.fit(frame, digits.target)
    space = Space.from_json({"attributes": [{"name": n, "kind": "integer", "low": 0, "high": 16} for n in names]})
    prop = Robustness(dict.fromkeys(names, 1), 0.3)
    result = quantify(model, space, prop, engine="auto", time_limit=6, gap=0.2, options={"confidence": 0.999})
    assert result.bounds is not None
    if result.statistical is not None:
        assert result.bounds.lower <= result.statistical.lower < result.statistical.upper <= result.bounds.upper
    drawn = quantify(model, space, prop, engine="sample", gap=0.2, options={"confidence": 0.999})
    assert drawn.statistical is not None
    assert drawn.statistical.lower <= result.bounds.upper
    assert drawn.statistical.upper >= result.bounds.lower
