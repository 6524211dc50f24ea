"""Every kind of table in turn."""

from __future__ import annotations

import pytest

from tests.space.inferring import MAKERS, Make


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]
