"""What every tester is: options, a mode, a variant, and a search."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from boxqte.errors import EngineError
from boxqte.testers.session import Session

Variant = Literal["fixed", "faithful"]
VARIANTS: tuple[Variant, ...] = ("fixed", "faithful")


class Tester(ABC):
    """Base of the testers. A subclass has a `name`, frozen `Options`, and a `search`.

    Parameters
    ----------
    options
        The tester's own options; None is the defaults.
    batch
        Ask about many inputs at once; False asks like the published tool.
    variant
        "fixed", or "faithful" with the published errors that change counts.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any]]

    def __init__(self, options: Any = None, *, batch: bool = True, variant: Variant = "fixed"):
        if variant not in VARIANTS:
            raise EngineError(f"variant: expected one of {', '.join(VARIANTS)}, found {variant!r}")
        self.options = self.Options() if options is None else options
        self.batch = batch
        self.variant = variant

    def needs(self) -> tuple[str, ...]:
        """Modules of other libraries that the search imports."""
        return ()

    def prepare(self) -> None:
        """Import what is needed before the clock starts."""
        for module in self.needs():
            try:
                importlib.import_module(module)
            except ImportError:
                library = module.partition(".")[0]
                raise EngineError(f"tester '{self.name}' needs {library}: pip install boxqte[testers]") from None

    @abstractmethod
    def search(self, session: Session) -> None:
        """Search until `Spent` is raised, or return if there is nothing left to try."""
