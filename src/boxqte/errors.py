"""The errors a user can cause. Each is one line that names the file or field, the value, and what would be accepted."""

from __future__ import annotations

MAX_LENGTH = 1000


class BoxQTEError(Exception):
    """Base of every error that a user's input can cause; the command line turns it into exit code 2.

    The message is one line of bounded length, whatever the names in the user's files look like.
    """

    def __init__(self, message: str = "") -> None:
        line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)
        super().__init__(
            line if len(line) <= MAX_LENGTH else f"{line[: MAX_LENGTH // 2]} ... {line[-MAX_LENGTH // 3 :]}"
        )


class ModelError(BoxQTEError):
    """The model cannot be read, is malformed, or uses something that has no exact counterpart here."""


class SpaceError(BoxQTEError):
    """The input space is malformed, or does not fit the model."""


class PropertyError(BoxQTEError):
    """The property does not fit the space: unknown attribute, negative epsilon, kappa out of range."""


class EngineError(BoxQTEError):
    """An engine was asked for something it cannot do: unknown name or option, a problem too large for it."""


class PolicyError(BoxQTEError):
    """A policy file that cannot be read, or a requirement that makes no sense."""


class ConfigError(BoxQTEError):
    """A settings file (boxqte.toml) that cannot be read, or a setting that no command has."""


class ReportError(BoxQTEError):
    """A report or a plot that cannot be made: a library is missing, a file cannot be written."""


class CheckpointError(BoxQTEError):
    """A checkpoint cannot be used: damaged, of another question, or of an engine that has none."""


class CertificateError(BoxQTEError):
    """A certificate cannot be written or read, or does not prove what it states."""
