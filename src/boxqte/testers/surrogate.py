"""The surrogate tester: a tree ensemble stands in for the model, is quantified by boxqte, and its regions are the tests.

None of the published testers has it; the paper's discussion proposes it. The model may be anything with a predict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from boxqte.errors import EngineError
from boxqte.space import Attribute, Space
from boxqte.testers.coordinates import BoolArray, Coordinates, FloatArray, IntArray
from boxqte.testers.session import Session
from boxqte.testers.variants import Variant

FRUITLESS = 20  # rounds without a pair, after which a run without time limit ends


class Surrogate:
    """Fits a tree ensemble to the model's answers, quantifies it, and tests inputs from its unfair regions."""

    name = "surrogate"

    @dataclass(frozen=True)
    class Options:
        """Options of the surrogate tester."""

        library: Literal["xgboost", "lightgbm"] = "xgboost"
        """What the surrogate is fitted with."""
        points: int = 5000
        """Random inputs that the first surrogate is fitted on."""
        trees: int = 50
        """Trees of the surrogate."""
        depth: int = 4
        """Their depth."""
        samples: int = 20_000
        """Tests of a round, all from one surrogate."""
        keep: int = 100_000
        """The most inputs that a surrogate is fitted on; the oldest mistakes go first."""

    def __init__(self, options: Options | None = None, *, batch: bool = True, variant: Variant = "fixed"):
        self.options = options or self.Options()
        self.batch = batch
        self.variant = variant  # nothing is published, so there is nothing to be faithful to

    def search(self, session: Session) -> None:
        """Fit, quantify, sample, ask, learn from the mistakes, repeat."""
