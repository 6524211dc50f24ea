"""Group rates against the oracle, and what they promise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from boxqte import GroupRates, Space, group_rates
from boxqte.answers.rates import _groups
from boxqte.answers.verdict import Verdict
from boxqte.engines.protocol import Status
from boxqte.errors import PropertyError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import TreeEnsemble
from boxqte.questions.building import build_grid
from boxqte.questions.properties import Fairness
from boxqte.space.rows import MISSING
from tests.naive import Piece
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
            if max(rates):
                assert group.ratio is not None
                holds(group.ratio, rate / max(rates), engine)
        holds(found.difference, max(rates) - min(rates), engine)
        if max(rates):
            assert found.ratio is not None
            holds(found.ratio, min(rates) / max(rates), engine)
        else:
            assert found.ratio is None


def holds(bounds: object, value: Fraction, engine: str) -> None:
    assert bounds.lower <= value <= bounds.upper  # type: ignore[attr-defined]
    room = 1e-15 if engine == "exhaustive" else 1e-9
    assert bounds.upper - bounds.lower <= room * max(1, 1 / max(float(value), 1e-3))  # type: ignore[attr-defined]


@settings(max_examples=150, deadline=None)
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


def test_refusals() -> None:
    with pytest.raises(PropertyError, match="require_ratio: must be above 0 and at most 1, found 2"):
        group_rates(loan_ensemble(), loan_space(), "race", require_ratio=2)
    with pytest.raises(PropertyError, match="'rac' is not an attribute; did you mean 'race'"):
        group_rates(loan_ensemble(), loan_space(), "rac")
    with pytest.raises(PropertyError, match="rates are counted by 'box' or 'exhaustive', found 'smt'"):
        group_rates(loan_ensemble(), loan_space(), "race", engine="smt")
