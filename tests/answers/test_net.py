"""Three hundred random problems here, three thousand in the slow suite: tests/net.py asks the oracle about everything."""

from __future__ import annotations

import pytest

from tests.net import check


@pytest.mark.parametrize("block", range(30))
def test_everything_derived_equals_the_oracle(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(30))
def test_everything_derived_equals_the_oracle_on_three_thousand_problems(block: int) -> None:
    for seed in range(1000 + 100 * block, 1000 + 100 * block + 100):
        check(seed)
