"""Engines: one contract (protocol.py), several ways to the same number. A new engine is one file or folder and one line in
ENGINES.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from boxqte.basics.checks import did_you_mean
from boxqte.engines.protocol import Engine
from boxqte.errors import EngineError

# name -> module:class
ENGINES: dict[str, str] = {
    "auto": "boxqte.engines.auto:Auto",
    "box": "boxqte.engines.box.engine:Box",
    "exhaustive": "boxqte.engines.exhaustive:Exhaustive",
    "sample": "boxqte.engines.sample.engine:Sample",
    "cegar": "boxqte.engines.cegar.engine:Cegar",
    "smt": "boxqte.engines.smt.engine:Smt",
}
DEFAULT_ENGINE = "auto"


def engine_class(name: str) -> Any:
    """The class of the engine of that name."""
    if not isinstance(name, str) or name not in ENGINES:
        raise EngineError(f"engine: '{name}' is unknown{did_you_mean(name, ENGINES)}; engines are {', '.join(ENGINES)}")
    module, _, cls = ENGINES[name].partition(":")
    return getattr(importlib.import_module(module), cls)


def make_engine(name: str, options: Mapping[str, Any] | None = None) -> Engine:
    """The engine of that name with the given options; errors name what would be accepted."""
    engine = engine_class(name)
    known = {f.name: f for f in fields(engine.Options)}
    for key in options or {}:
        if key not in known:
            meant = did_you_mean(key, known)
            raise EngineError(
                f"engine '{name}': option '{key}' is unknown{meant}; options are {', '.join(known) or 'none'}"
            )
    made: Engine = engine(engine.Options(**(options or {})))
    return made
