"""Group rates against the oracle, and what they promise."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from boxqte import GroupRates, Space, group_rates
from boxqte.answers import rate_search
from boxqte.answers.rate_search import Ends, Known, Moment, RateSearch, SearchedGroup
from boxqte.answers.rates import _groups
from boxqte.answers.result import Bounds
from boxqte.answers.verdict import Verdict
from boxqte.basics.budget import TimeBudget
from boxqte.engines.protocol import Limits, Progress, Status
from boxqte.errors import CertificateError, EngineError, ModelError, PropertyError, SpaceError
from boxqte.exact import down, up
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.building import build_grid
from boxqte.questions.properties import Fairness
from boxqte.report.rates import rates_text
from boxqte.space.rows import MISSING
from tests import resume_child
from tests.naive import Piece
from tests.naive_classes import random_class_problem
from tests.naive_questions import naive_rates
from tests.strategies import Problem, problems


def expected(ensemble: TreeEnsemble, space: Space, sensitive: tuple[str, ...]) -> list[tuple[Fraction, Fraction]]:
    """Mass and rate of every group of the result, in its order: the oracle's pieces, put together."""
    grid = build_grid(ensemble, space, Fairness(sensitive))
    axes = [axis for axis in grid.axes if axis.sensitive]
    found: dict[tuple[object, ...], tuple[Fraction, Fraction]] = {}
    for pieces, rate in naive_rates(ensemble, space, tuple(axis.attribute.name for axis in axes)):
        key, mass = [], Fraction(1)
        for axis in axes:
            piece: Piece = pieces[axis.attribute.name]
            mass *= piece.mass
            if piece.value is None:
                key.append(MISSING)
            elif axis.attribute.is_numeric:
                inside = [
                    at
                    for at, cell in enumerate(axis.cells)
                    if cell.low is not None and cell.low <= (piece.value, 0) < cell.high
                ]
                key += inside
            else:
                key.append(axis.attribute.values.index(piece.value))
        if not mass:
            continue
        before = found.get(tuple(key), (Fraction(0), rate))
        assert before[1] == rate, "all values of a group have one rate under a product measure"
        found[tuple(key)] = before[0] + mass, rate
    return [found[group.keys] for group in _groups(grid)]


def check(problem: Problem) -> None:
    ensemble, space, sensitive = problem.ensemble, problem.space, problem.property.sensitive
    if not sensitive:
        sensitive = (space.attributes[0].name,)
    wanted = expected(ensemble, space, sensitive)
    rates = [rate for _, rate in wanted]
    for engine in ("exhaustive", "box"):
        found = group_rates(ensemble, space, sensitive, engine=engine, workers=1)
        assert found.converged
        assert len(found.groups) == len(wanted)
        for group, (mass, rate) in zip(found.groups, wanted):
            assert group.mass == pytest.approx(float(mass))
            holds(group.rate, rate, engine)
            if seen(max(rates), engine):
                assert group.ratio is not None
                holds(group.ratio, rate / max(rates), engine)
        holds(found.difference, max(rates) - min(rates), engine)
        if seen(max(rates), engine):
            assert found.ratio is not None
            holds(found.ratio, min(rates) / max(rates), engine)
        else:
            assert found.ratio is None or max(rates)


def seen(rate: Fraction, engine: str) -> bool:
    """Whether the engine must find that the rate is above 0: a count in floats cannot tell very small ones from 0."""
    return rate > (0 if engine == "exhaustive" else Fraction(1, 10**6))


def holds(bounds: object, value: Fraction, engine: str) -> None:
    assert bounds.lower <= value <= bounds.upper  # type: ignore[attr-defined]
    room = 1e-15 if engine == "exhaustive" else 1e-9
    assert bounds.upper - bounds.lower <= room * max(1, 1 / max(float(value), 1e-3))  # type: ignore[attr-defined]


@settings(max_examples=60, deadline=None)
@given(problems(eps=False, kappa=False, paper_ties=False))
def test_rates_equal_the_oracle(problem: Problem) -> None:
    check(problem)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(problems(eps=False, kappa=False, paper_ties=False))
def test_rates_equal_the_oracle_on_many(problem: Problem) -> None:
    check(problem)


def test_a_limit_leaves_certain_bounds() -> None:
    ensemble, space = loan_ensemble(), loan_space()
    exact = group_rates(ensemble, space, ["race", "age"], engine="exhaustive")
    for seconds in (1e-6, 0.01, 0.02):
        cut = group_rates(ensemble, space, ["race", "age"], time_limit=seconds)
        for group, true in zip(cut.groups, exact.groups):
            assert group.rate.lower <= true.rate.lower
            assert true.rate.upper <= group.rate.upper
        assert cut.difference.lower <= exact.difference.lower <= exact.difference.upper <= cut.difference.upper


def test_rows_stand_beside() -> None:
    ensemble, space = loan_ensemble(), loan_space()
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            a.name: rng.integers(int(a.low), int(a.high) + 1, n) if a.is_numeric else rng.choice(a.values, n)
            for a in space
        }
    )
    found = group_rates(ensemble, space, "race", data=frame)
    classes = ensemble.predict(frame[list(ensemble.feature_names)].to_numpy(float))
    for group in found.groups:
        rows = (frame["race"].astype(str) == group.values[0]).to_numpy()
        assert group.data is not None
        assert (group.data.rows, group.data.positive) == (rows.sum(), classes[rows].sum())
        assert group.data.lower is not None
        assert group.data.lower <= group.rate.lower + 1e-9  # the rows are drawn from the space itself
        assert group.data.upper is not None
        assert group.rate.upper - 1e-9 <= group.data.upper


def test_the_ratio_is_judged() -> None:
    def judged(level: float) -> Verdict | None:
        return group_rates(loan_ensemble(), loan_space(), "race", require_ratio=level).verdict

    assert judged(0.69) is Verdict.HOLDS
    assert judged(0.8) is Verdict.VIOLATED
    cut: GroupRates = group_rates(loan_ensemble(), loan_space(), "race", require_ratio=0.8, time_limit=1e-9)
    assert cut.status is Status.CONVERGED or cut.verdict in (Verdict.UNDECIDED, Verdict.VIOLATED)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(PropertyError, match="require_ratio: must be above 0 and at most 1, found 2"):
        group_rates(loan_ensemble(), loan_space(), "race", require_ratio=2)
    with pytest.raises(PropertyError, match=r"'rac' is not an attribute \(did you mean 'race'"):
        group_rates(loan_ensemble(), loan_space(), "rac")
    with pytest.raises(EngineError, match="rates are counted by 'box' or 'exhaustive', found 'smt'"):
        group_rates(loan_ensemble(), loan_space(), "race", engine="smt")
    with pytest.raises(CertificateError, match="engine 'exhaustive' writes no certificate"):
        group_rates(loan_ensemble(), loan_space(), "race", engine="exhaustive", certificate=tmp_path / "c")
    assert not (tmp_path / "c").exists()
    with pytest.raises(CertificateError, match="No such file or directory"):
        group_rates(loan_ensemble(), loan_space(), "race", certificate=tmp_path / "none" / "c")


def test_three_classes_are_refused_by_name() -> None:
    ensemble, space, _ = random_class_problem(1)
    with pytest.raises(ModelError, match="rates: for models with two classes only, this one has"):
        group_rates(ensemble, space, space.names[0])


# --- at any time ------------------------------------------------------------------------------------------------------


def check_trace(problem: Problem) -> None:
    """At every moment the bounds hold, and they never move apart."""
    ensemble, space, sensitive = problem.ensemble, problem.space, problem.space.attributes[0].name
    rates = [rate for _, rate in expected(ensemble, space, (sensitive,))]
    heard: list[Progress] = []
    found = group_rates(ensemble, space, sensitive, workers=1, progress=heard.append)
    before = Moment(0.0, Bounds(-1.0, 1.0), None)
    assert len(found.trace) >= len({group.rate for group in found.groups})
    assert len(heard) == len(found.trace)
    for moment in found.trace:
        assert moment.difference.lower <= max(rates) - min(rates) <= moment.difference.upper
        assert before.difference.lower <= moment.difference.lower
        assert moment.difference.upper <= before.difference.upper
        if moment.ratio is not None:
            assert moment.ratio.lower <= min(rates) / max(rates) <= moment.ratio.upper
            if before.ratio is not None:
                assert before.ratio.lower <= moment.ratio.lower
                assert moment.ratio.upper <= before.ratio.upper
        before = moment
    assert (found.difference, found.ratio) == (before.difference, before.ratio)
    assert heard[-1].what == "ratio"
    assert heard[-1].decided == pytest.approx(1)


@settings(max_examples=30, deadline=None)
@given(problems(eps=False, kappa=False, paper_ties=False))
def test_bounds_hold_at_every_moment(problem: Problem) -> None:
    with short_calls():
        check_trace(problem)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(problems(eps=False, kappa=False, paper_ties=False))
def test_bounds_hold_at_every_moment_of_many(problem: Problem) -> None:
    with short_calls():
        check_trace(problem)


@contextlib.contextmanager
def short_calls() -> Iterator[None]:
    """The engine reports after every box, and counts only small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rate_search.OPTIONS, "box", {"finish_limit": 5, "call_nodes": 1, "batch": 1})
        yield


def check_pairs(problem: Problem) -> None:
    """What groups are compared by, where time ends before their rates are known."""
    ensemble, space, sensitive = problem.ensemble, problem.space, problem.space.attributes[0].name
    grid = build_grid(ensemble, space, Fairness(sensitive))
    groups = {group.combination.cells: group.combination for group in _groups(grid)}
    truth = zip(_groups(grid), expected(ensemble, space, (sensitive,)))
    rates = {group.combination.cells: rate for group, (_, rate) in truth}
    wanted = [rates[cells] for cells in groups]
    search = RateSearch(grid, [SearchedGroup(group) for group in groups.values()], "box", Limits(), TimeBudget(None))
    for i in range(1, len(groups)):
        search._compare(i)
        gap = search.known.over_first[i]
        assert gap.low <= wanted[i] - wanted[0] <= gap.high
        assert gap.high - gap.low < 1e-9
    for i, ends in enumerate(search.known.rates):
        assert ends.low <= wanted[i] <= ends.high
    if max(wanted):
        search.known.rate(0, Ends(wanted[0], wanted[0]))  # one rate is enough, once all are compared
        for i in range(1, len(groups)):
            search.known.compared(i, search.known.over_first[i])
        ratio = search.known.least_ratio()
        assert ratio is None or ratio.lower <= min(wanted) / max(wanted) <= ratio.upper


@settings(max_examples=30, deadline=None)
@given(problems(eps=False, kappa=False, paper_ties=False))
def test_groups_are_compared_without_their_rates(problem: Problem) -> None:
    check_pairs(problem)


def test_a_difference_is_known_before_the_rates() -> None:
    found = group_rates(resume_child.ensemble(), resume_child.space(), "a0", time_limit=0.5, workers=1)
    exact = group_rates(resume_child.ensemble(), resume_child.space(), "a0")
    assert found.status is Status.TIME
    assert exact.converged
    assert found.difference.lower <= exact.difference.lower <= exact.difference.upper <= found.difference.upper
    for group, true in zip(found.groups, exact.groups):
        assert group.rate.lower <= true.rate.lower <= true.rate.upper <= group.rate.upper


def test_where_bounds_stay_wide_draws_give_intervals() -> None:
    model, space = resume_child.ensemble(), resume_child.space()
    with short_calls():
        found = group_rates(model, space, "a0", time_limit=2.0, node_limit=1, workers=1)
    exact = group_rates(model, space, "a0")
    said = found.statistical
    assert said is not None
    assert (said.confidence, exact.statistical) == (0.999999, None)
    assert min(group.statistical.gap for group in found.groups if group.statistical is not None) < 0.2
    assert said.difference.lower <= exact.difference.lower <= exact.difference.upper <= said.difference.upper
    for group, true in zip(found.groups, exact.groups):
        drawn = group.statistical
        assert drawn is not None
        assert group.rate.lower <= drawn.lower <= true.rate.lower <= true.rate.upper <= drawn.upper <= group.rate.upper
    assert found.to_json()["statistical"]["confidence"] == 0.999999
    assert found.to_frame()["statistical_upper"].tolist() == [g.statistical.upper for g in found.groups]  # type: ignore[union-attr]
    assert "(statistical, confidence 0.999999)" in rates_text(found)
    assert found.verdict is None


def check_draws(problem: Problem) -> None:
    """Whatever the model and the space are, intervals from draws hold the truth and lie within the certain bounds."""
    ensemble, space, prop = problem
    names = prop.sensitive or (space.names[0],)
    with short_calls():
        found = group_rates(ensemble, space, names, time_limit=0.15, node_limit=1, workers=1)
    exact = group_rates(ensemble, space, names, engine="exhaustive")
    for group, true in zip(found.groups, exact.groups):
        drawn = group.statistical or group.rate
        assert group.rate.lower <= drawn.lower <= true.rate.upper
        assert true.rate.lower <= drawn.upper <= group.rate.upper


@settings(max_examples=10, deadline=None)
@given(problems(eps=False, kappa=False, paper_ties=False))
def test_draws_agree_with_what_is_exact(problem: Problem) -> None:
    check_draws(problem)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(problems(eps=False, kappa=False, paper_ties=False))
def test_draws_agree_with_what_is_exact_on_many(problem: Problem) -> None:
    check_draws(problem)


@pytest.mark.parametrize("when", [1, 2, 3])
def test_ctrl_c_leaves_certain_bounds(when: int) -> None:
    heard: list[Progress] = []

    def interrupt(moment: Progress) -> None:
        heard.append(moment)
        if len(heard) == when:
            raise KeyboardInterrupt

    exact = group_rates(loan_ensemble(), loan_space(), "age", engine="exhaustive")
    found = group_rates(loan_ensemble(), loan_space(), "age", progress=interrupt)
    assert found.status is Status.INTERRUPTED
    for group, true in zip(found.groups, exact.groups):
        assert group.rate.lower <= true.rate.lower <= true.rate.upper <= group.rate.upper


def test_a_memory_limit_leaves_certain_bounds() -> None:
    with short_calls():
        found = group_rates(resume_child.ensemble(12), resume_child.space(), "a0", memory_limit=1, workers=1)
    exact = group_rates(resume_child.ensemble(12), resume_child.space(), "a0")
    assert found.status is Status.MEMORY
    for group, true in zip(found.groups, exact.groups):
        assert group.rate.lower <= true.rate.lower <= true.rate.upper <= group.rate.upper


def test_many_groups_have_the_bounds_of_all_pairs() -> None:
    """Of many groups only the outermost are compared with each other; it makes no difference."""
    rng = random.Random(1)
    known = Known(40)
    for i in range(40):
        low = Fraction(rng.randrange(100), 200)
        known.rate(i, Ends(low, low + Fraction(rng.randrange(60), 200)))
    ends = known.rates
    gap = max(known.difference(i, j).high for i in range(40) for j in range(40))
    assert (
        known.largest_difference()
        == Ends(max(known.difference(i, j).low for i in range(40) for j in range(40)), gap).bounds()
    )
    best = max(e.low for e in ends)
    for i, ratio in enumerate(known.ratios_to_best()):
        rivals = [e.high for j, e in enumerate(ends) if j != i]
        assert ratio is not None
        assert ratio.lower == down(min(ends[i].low / max(rivals), 1))
        others = max(e.low for j, e in enumerate(ends) if j != i)
        assert ratio.upper == up(min(ends[i].high / others, 1))
        assert ratio.upper >= down(ends[i].low / max(e.high for e in ends))
    assert best > 0


def test_the_frame_and_the_json_say_what_the_answer_is(tmp_path: Path) -> None:
    found = group_rates(loan_ensemble(), loan_space(), ["race", "age"], require_ratio=0.8)
    frame, document = found.to_frame(), json.loads(json.dumps(found.to_json()))
    assert list(frame.columns) == [
        "race", "age", "mass", "lower", "upper", "statistical_lower", "statistical_upper", "confidence", "ratio_lower",
        "ratio_upper",
    ]  # fmt: skip
    assert frame["lower"].tolist() == [group["rate"][0] for group in document["groups"]]
    said = {name: document[name] for name in ("status", "world", "decision", "require_ratio", "verdict")}
    assert said == {
        "status": str(found.status), "world": "the space", "decision": "as the library's own predict decides",
        "require_ratio": 0.8, "verdict": "violated",
    }  # fmt: skip
    assert document["guarantee"].startswith("certain bounds")
    assert len(document["trace"]) == len(found.trace)


def test_rows_outside_the_space_are_counted() -> None:
    frame = pd.DataFrame({"income": [100, 10**9], "race": [0, 0], "age": [30, 30]})
    found = group_rates(loan_ensemble(), loan_space(), "race", data=frame)
    assert found.rows_outside == 1
    assert sum(group.data.rows for group in found.groups if group.data is not None) == 1
    assert "1 row lies outside the space" in rates_text(found)


def test_cells_have_no_rates() -> None:
    with pytest.raises(SpaceError, match="leave out its mass 'cells'"):
        group_rates(loan_ensemble(), loan_space().with_mass("cells"), "race")
