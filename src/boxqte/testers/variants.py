"""Which version of a published tool is run."""

from __future__ import annotations

from typing import Literal

Variant = Literal["fixed", "faithful"]
VARIANTS: tuple[Variant, ...] = ("fixed", "faithful")
