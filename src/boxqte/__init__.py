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
    from boxqte.properties import Fairness, Robustness
    from boxqte.quantification import quantify
    from boxqte.result import Quantification, Status
    from boxqte.space import Attribute, Histogram, Space

# name -> module; resolved on first use, so that `import boxqte` and `boxqte --help` stay quick
_WHERE = {
    "Attribute": "space",
    "BoxQTEError": "errors",
    "CertificateError": "errors",
    "CheckpointError": "errors",
    "EngineError": "errors",
    "EnsembleBuilder": "ensemble",
    "Fairness": "properties",
    "Histogram": "space",
    "ModelError": "errors",
    "PropertyError": "errors",
    "Quantification": "result",
    "Robustness": "properties",
    "Space": "space",
    "SpaceError": "errors",
    "Status": "result",
    "TreeEnsemble": "ensemble",
    "load_model": "importers",
    "quantify": "quantification",
}

__all__ = [
    "Attribute",
    "BoxQTEError",
    "CertificateError",
    "CheckpointError",
    "EngineError",
    "EnsembleBuilder",
    "Fairness",
    "Histogram",
    "ModelError",
    "PropertyError",
    "Quantification",
    "Robustness",
    "Space",
    "SpaceError",
    "Status",
    "TreeEnsemble",
    "__version__",
    "load_model",
    "quantify",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"boxqte.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'boxqte' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
