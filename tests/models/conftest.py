"""What tests of models share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """The models are too small for several, and threads that wait for each other on a busy machine take seconds."""
    with threadpool_limits(limits=1):
        yield
