"""The errors a user can cause. Each is one line that names the file or field, the value, and what would be accepted."""

from __future__ import annotations


class BoxQTEError(Exception):
    """Base of every error that a user's input can cause; the command line turns it into one line and exit code 2."""


class ModelError(BoxQTEError):
    """The model cannot be read, is malformed, or uses something that has no exact counterpart here."""


class SpaceError(BoxQTEError):
    """The input space is malformed, or does not fit the model."""


class PropertyError(BoxQTEError):
    """The property does not fit the space: unknown attribute, negative epsilon, kappa out of range."""


class EngineError(BoxQTEError):
    """An engine was asked for something it cannot do: unknown name or option, a problem too large for it."""
