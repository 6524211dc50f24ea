"""What tests of repair share."""

from __future__ import annotations

from tests.models.conftest import one_thread

__all__ = ["one_thread"]
