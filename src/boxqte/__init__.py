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
    from boxqte.auditing import Audit, audit
    from boxqte.ensemble import EnsembleBuilder, TreeEnsemble
    from boxqte.errors import (
        BoxQTEError,
        CertificateError,
        CheckpointError,
        EngineError,
        ModelError,
        PropertyError,
        SpaceError,
    )
    from boxqte.importers import load_model
    from boxqte.policy import Policy, Requirement
    from boxqte.populations import empirical, population
    from boxqte.properties import Fairness, Robustness
    from boxqte.quantification import quantify
    from boxqte.report.plots import compare
    from boxqte.result import Quantification, Status
    from boxqte.rows import Rows, check
    from boxqte.sampling import Sample
    from boxqte.space import Attribute, Histogram, Space
    from boxqte.testers import find_idis
    from boxqte.verification import Verification, verify

# name -> module; resolved on first use, so that `import boxqte` and `boxqte --help` stay quick
_WHERE = {
    "Attribute": "space",
    "Audit": "auditing",
    "BoxQTEError": "errors",
    "CertificateError": "errors",
    "CheckpointError": "errors",
    "EngineError": "errors",
    "EnsembleBuilder": "ensemble",
    "Fairness": "properties",
    "Histogram": "space",
    "ModelError": "errors",
    "Policy": "policy",
    "PropertyError": "errors",
    "Quantification": "result",
    "Requirement": "policy",
    "Robustness": "properties",
    "Rows": "rows",
    "Sample": "sampling",
    "Space": "space",
    "SpaceError": "errors",
    "Status": "result",
    "TreeEnsemble": "ensemble",
    "Verification": "verification",
    "audit": "auditing",
    "check": "rows",
    "compare": "report.plots",
    "find_idis": "testers",
    "empirical": "populations",
    "load_model": "importers",
    "population": "populations",
    "quantify": "quantification",
    "verify": "verification",
}

__all__ = [
    "Attribute",
    "Audit",
    "BoxQTEError",
    "CertificateError",
    "CheckpointError",
    "EngineError",
    "EnsembleBuilder",
    "Fairness",
    "Histogram",
    "ModelError",
    "Policy",
    "PropertyError",
    "Quantification",
    "Requirement",
    "Robustness",
    "Rows",
    "Sample",
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
    "load_model",
    "population",
    "quantify",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"boxqte.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'boxqte' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
