"""boxqte: how fair is this tree ensemble, exactly, and where is it not?

>>> import boxqte
>>> from boxqte.examples import loan_ensemble, loan_space
>>> boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race")).converged
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from boxqte._version import __version__

if TYPE_CHECKING:
    from boxqte.answers.empirical import empirical
    from boxqte.answers.rates import GroupRates, group_rates
    from boxqte.answers.rows import Rows, check
    from boxqte.answers.samples import Sample
    from boxqte.answers.score_changes import ScoreChanges, score_changes
    from boxqte.answers.verify import Verification, verify
    from boxqte.api.audit import Audit, audit
    from boxqte.api.gate import Policy
    from boxqte.api.quantify import Quantification, quantify
    from boxqte.api.repair import Repair, repair
    from boxqte.auditing.policy import RatioRequirement, Requirement
    from boxqte.engines.protocol import Status
    from boxqte.errors import (
        BoxQTEError,
        CertificateError,
        CheckpointError,
        EngineError,
        ModelError,
        PropertyError,
        SpaceError,
    )
    from boxqte.models.ensemble import EnsembleBuilder, TreeEnsemble
    from boxqte.models.importers import load_model
    from boxqte.questions.properties import Fairness, Monotonicity, Robustness, ScoreFairness
    from boxqte.report.plots import compare
    from boxqte.space.attributes import Attribute, Histogram
    from boxqte.space.distributions import Distribution
    from boxqte.space.populations import Population, population
    from boxqte.space.proposals import propose_rules
    from boxqte.space.space import Space
    from boxqte.testers import find_idis

# name -> module; resolved on first use, so that `import boxqte` and `boxqte --help` stay quick
_WHERE = {
    "Attribute": "space.attributes",
    "Audit": "api.audit",
    "BoxQTEError": "errors",
    "CertificateError": "errors",
    "CheckpointError": "errors",
    "Distribution": "space.distributions",
    "EngineError": "errors",
    "EnsembleBuilder": "models.ensemble",
    "Fairness": "questions.properties",
    "GroupRates": "answers.rates",
    "Histogram": "space.attributes",
    "ModelError": "errors",
    "Monotonicity": "questions.properties",
    "Policy": "api.gate",
    "Population": "space.populations",
    "PropertyError": "errors",
    "Quantification": "api.quantify",
    "RatioRequirement": "auditing.policy",
    "Repair": "api.repair",
    "Requirement": "auditing.policy",
    "Robustness": "questions.properties",
    "Rows": "answers.rows",
    "Sample": "answers.samples",
    "ScoreChanges": "answers.score_changes",
    "ScoreFairness": "questions.properties",
    "Space": "space.space",
    "SpaceError": "errors",
    "Status": "engines.protocol",
    "TreeEnsemble": "models.ensemble",
    "Verification": "answers.verify",
    "audit": "api.audit",
    "check": "answers.rows",
    "compare": "report.plots",
    "find_idis": "testers",
    "empirical": "answers.empirical",
    "group_rates": "answers.rates",
    "load_model": "models.importers",
    "population": "space.populations",
    "propose_rules": "space.proposals",
    "quantify": "api.quantify",
    "repair": "api.repair",
    "score_changes": "answers.score_changes",
    "verify": "answers.verify",
}

__all__ = [
    "Attribute",
    "Audit",
    "BoxQTEError",
    "CertificateError",
    "CheckpointError",
    "Distribution",
    "EngineError",
    "EnsembleBuilder",
    "Fairness",
    "GroupRates",
    "Histogram",
    "ModelError",
    "Monotonicity",
    "Policy",
    "Population",
    "PropertyError",
    "Quantification",
    "RatioRequirement",
    "Repair",
    "Requirement",
    "Robustness",
    "Rows",
    "Sample",
    "ScoreChanges",
    "ScoreFairness",
    "Space",
    "SpaceError",
    "Status",
    "TreeEnsemble",
    "Verification",
    "__version__",
    "audit",
    "check",
    "compare",
    "empirical",
    "find_idis",
    "group_rates",
    "load_model",
    "population",
    "propose_rules",
    "quantify",
    "repair",
    "score_changes",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"boxqte.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'boxqte' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
