"""The options of the engine `smt`."""

from __future__ import annotations

from dataclasses import dataclass

from boxqte.errors import EngineError


@dataclass(frozen=True)
class SmtOptions:
    """Options of the smt engine. None changes the answer; all change how soon it comes."""

    priority: bool = True
    """Work on path tuples with large boxes first; otherwise in the order in which they are found."""
    decomposition: bool = True
    """Divide a task that has more blocking constraints than `blocking_limit`."""
    box_blocking: bool = True
    """Rule out every x that a pair of boxes has shown to be a counterexample, not only the pair itself."""
    blocking_limit: int = 100
    """The most blocking constraints of a task before it is divided."""

    def __post_init__(self) -> None:
        if self.blocking_limit < 1:
            raise EngineError(f"engine 'smt': option 'blocking_limit' must be at least 1, found {self.blocking_limit}")
