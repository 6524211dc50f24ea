"""TOML files as users write them: numbers keep their decimals, and every error names the file and the field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from boxqte.basics.checks import did_you_mean
from boxqte.errors import BoxQTEError
from boxqte.exact import ACCEPTED, oversized_in, shown


def read_toml(path: str | Path, error: type[BoxQTEError]) -> dict[str, Any]:
    """The tables of a file; a typed 0.1 stays one tenth."""
    import tomllib  # here, since most commands read no such file

    try:
        content = Path(path).read_bytes()
    except OSError as cause:
        raise error(f"{path}: {cause.strerror or cause}") from None

    def decimal(digits: str) -> Decimal:
        try:
            return Decimal(digits)
        except ArithmeticError:  # an exponent beyond those of Decimal itself
            raise error(f"{path}: expected numbers {ACCEPTED}, found {shown(digits)}") from None

    text = ""
    try:
        text = content.decode("utf-8")
        return tomllib.loads(text, parse_float=decimal)
    except (ValueError, RecursionError) as cause:  # bad TOML, bad UTF-8, or nested without end
        raise error(f"{path}: {oversized_in(text) or f'not a TOML file: {cause}'}") from None


def known_fields(table: Mapping[str, Any], accepted: Iterable[str], where: str, error: type[BoxQTEError]) -> None:
    """Refuse a field that nobody reads: it is a spelling mistake."""
    names = list(accepted)
    for key in table:
        if key not in names:
            raise error(f"{where}: unknown field '{key}'{did_you_mean(key, names)}; fields are {', '.join(names)}")


def a_table(value: Any, where: str, error: type[BoxQTEError]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise error(f"{where}: expected a table, found {shown(value)}")
    return value


def a_text(value: Any, where: str, error: type[BoxQTEError]) -> str:
    if not isinstance(value, str) or not value:
        raise error(f"{where}: expected a text, found {shown(value)}")
    return value


def texts(value: Any, where: str, error: type[BoxQTEError]) -> list[str]:
    """One text or a list of them."""
    given = value if isinstance(value, list) else [value]
    return [a_text(entry, where, error) for entry in given]
